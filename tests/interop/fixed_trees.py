# SPDX-License-Identifier: Apache-2.0
"""Stories of which files a source has: trees of other names, maps, steps, lost ranks, unsharded folders."""
import json
import os
import shutil

import numpy as np

import oracle
import values
from fixed_layouts import build, matmuls, strategy
from layouts import Layout
from registry import story
from story import Story
from values import Value, random_value


def write(case, folder, place=None):
    """The case's checkpoints at src/place(rank), its strategies, and as expected what MindSpore makes of the
    same in folders rank_N. Returns the options that name the strategies."""
    options = {}
    for side, plan in (("src", case.src), ("dst", case.dst)):
        if plan:
            options[f"{side}_strategy"] = os.path.join(folder, f"{side}.ckpt")
            plan.write(options[f"{side}_strategy"])
    plain = os.path.join(folder, "plain")
    for rank, named in case.files.items():
        values.save(os.path.join(plain, f"rank_{rank}", "net.ckpt"), named)
        if place:
            values.save(os.path.join(folder, "src", place(rank)), named)
    expect(plain, folder, options)
    return options


def expect(source, folder, options):
    made = oracle.transform(source, os.path.join(folder, "expected"), options.get("src_strategy"),
                            options.get("dst_strategy"), "checkpoint_")
    if isinstance(made, Exception):
        raise made


def decoy(rng, path):
    values.save(path, [("w", random_value(rng, "Int8", (3,)))])


@story
def node_trees(rng, folder):
    """node0/CKP_1-4_32.ckpt and so on, beside files of another run and folders of other names."""
    options = write(matmuls(rng, 4, 2, "transform"), folder, lambda r: f"node{r}/CKP_1-4_32.ckpt")
    for name in ("node0/CKP_2-4_32.ckpt", "node2/CKP_2-4_32.ckpt", "node/CKP_1-4_32.ckpt",
                 "rank_0/CKP_1-4_32.ckpt"):
        decoy(rng, os.path.join(folder, "src", name))
    options |= {"rank_dir": "node%d", "file": "CKP_1-*"}
    return Story(options, expected=os.path.join(folder, "expected"))


@story
def map_of_files(rng, folder):
    """checkpoint_files_map of transform_checkpoint_by_rank as a JSON file; the source is any folder."""
    import mindspore as ms
    case = matmuls(rng, 4, 2, "transform")
    options = write(case, folder, lambda r: f"job{r % 2}/{'ab'[r // 2]}.ckpt")
    shutil.rmtree(os.path.join(folder, "expected"))
    paths = {r: os.path.join(folder, "src", f"job{r % 2}", f"{'ab'[r // 2]}.ckpt") for r in range(4)}
    for rank in range(2):
        out = os.path.join(folder, "expected", f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        os.makedirs(os.path.dirname(out))
        needed = ms.rank_list_for_transform(rank, options["src_strategy"], options["dst_strategy"])
        ms.transform_checkpoint_by_rank(rank, {r: paths[r] for r in needed}, out,
                                        options["src_strategy"], options["dst_strategy"])
    options["files"] = os.path.join(folder, "map.json")
    with open(options["files"], "w", encoding="utf-8") as f:
        json.dump({r: os.path.relpath(p, folder) if r % 2 else p for r, p in paths.items()}, f)
    return Story(options, source=os.path.join(folder, "plain"),
                 expected=os.path.join(folder, "expected"))


@story
def map_with_a_missing_file(rng, folder):
    """A map that names a file that is not there."""
    options = write(matmuls(rng, 2, 1, "transform"), folder, lambda r: f"{r}.ckpt")
    options["files"] = os.path.join(folder, "src", "map.json")
    with open(options["files"], "w", encoding="utf-8") as f:
        json.dump({"0": "0.ckpt", "1": "2.ckpt"}, f)
    return Story(options, refusal="2.ckpt")


def saves(rng, folder, more=()):
    """Four ranks with three saves each, of which 2_20 is what is expected."""
    options = write(matmuls(rng, 4, 2, "transform"), folder, lambda r: f"rank_{r}/net-2_20.ckpt")
    for rank in range(4):
        for name in ("net-1_20.ckpt", "net-2_10.ckpt", *more):
            decoy(rng, os.path.join(folder, "src", f"rank_{rank}", name))
    return options


@story
def step_and_epoch(rng, folder):
    """Several saves in each folder, one of them chosen by its numbers."""
    options = saves(rng, folder, ["net-9_9.ckpt"])
    return Story(options | {"step": 20, "epoch": 2}, expected=os.path.join(folder, "expected"))


@story
def last_save_by_default(rng, folder):
    """All ranks have the same saves: the last by its name, as MindSpore chooses."""
    return Story(saves(rng, folder), expected=os.path.join(folder, "expected"))


@story
def saves_of_one_epoch(rng, folder):
    """epoch=2 leaves two saves to choose from."""
    return Story(saves(rng, folder) | {"epoch": 2}, refusal="2_10, 2_20")


@story
def saves_that_are_not_there(rng, folder):
    """A step that nobody has: those that there are."""
    return Story(saves(rng, folder) | {"step": 21}, refusal="1_20, 2_10, 2_20")


@story
def all_saves(rng, folder):
    """step=all: what MindSpore makes of each save, side by side."""
    options = {}
    for save in ("1_20", "2_10", "2_20"):
        part = os.path.join(folder, save)
        os.makedirs(part)
        case = matmuls(rng, 4, 2, "transform")
        options = write(case, part)
        for rank, named in case.files.items():
            values.save(os.path.join(folder, "src", f"rank_{rank}", f"net-{save}.ckpt"), named)
        shutil.move(os.path.join(part, "expected"), os.path.join(folder, "expected", save))
    return Story(options | {"step": "all"}, expected=os.path.join(folder, "expected"))


@story
def mixed_saves(rng, folder):
    """A rank stopped one save early: MindSpore mixes the two, here it is refused."""
    options = saves(rng, folder)
    decoy(rng, os.path.join(folder, "src", "rank_3", "net-3_10.ckpt"))
    return Story(options, refusal="of different saves: rank_0/net-2_20.ckpt and rank_3/net-3_10.ckpt")


@story
def model_checkpoint(rng, folder):
    """Files of the real ModelCheckpoint, of two runs into one folder that is no rank's."""
    from types import SimpleNamespace
    from mindspore import nn, train
    where = os.path.join(folder, "src")
    for _ in range(2):
        net = nn.Dense(4, 2)
        callback = train.ModelCheckpoint("net", where, train.CheckpointConfig(2))
        callback._graph_saved = True  # nothing is compiled here
        for step in range(1, 9):
            at = SimpleNamespace(cur_step_num=step, cur_epoch_num=(step + 3) // 4, batch_num=4,
                                 train_network=net)
            callback.step_end(SimpleNamespace(original_args=lambda at=at: at))
    names = sorted(n for n in os.listdir(where) if n.endswith(".ckpt"))
    assert names == ["net-1_2.ckpt", "net-1_4.ckpt", "net-2_2.ckpt", "net-2_4.ckpt",
                     "net_1-1_2.ckpt", "net_1-1_4.ckpt", "net_1-2_2.ckpt", "net_1-2_4.ckpt"], names
    os.makedirs(os.path.join(folder, "one", "rank_0"))
    shutil.copy(os.path.join(where, "net_1-2_2.ckpt"), os.path.join(folder, "one", "rank_0"))
    dst = strategy([("weight", (2, 4), Layout([2], [-1, 0]))])
    options = {"dst_strategy": os.path.join(folder, "dst.ckpt")}
    dst.write(options["dst_strategy"])
    expect(os.path.join(folder, "one"), folder, options)
    return Story(options | {"epoch": 2, "step": 2}, expected=os.path.join(folder, "expected"))


def two_groups(rng):
    """Data parallel over two groups of two, with a state that no strategy knows."""
    src = strategy([("w", (8, 4), Layout([2, 2], [0, -1]))])
    dst = strategy([("w", (8, 4), Layout([2], [-1, 0]))])
    case = build(rng, src, dst, expect="transform")
    for rank, named in case.files.items():
        state = case.files[rank - 2][-1][1] if rank > 1 else random_value(rng, "Int32", (5,))
        named.append(("state", state))
    return case


def group_info(path, ranks):
    """As SaveGroupInfo of the compiler; restore_group_info_list must agree."""
    import mindspore as ms
    from mindspore.train import node_strategy_pb2 as pb
    message = pb.ParallelGroupMap()
    item = message.parallel_group_item.add()
    item.group_name = "2-1234"
    item.parallel_group_ranks.dim.extend(ranks)
    message.ckpt_restore_rank_list.dim.extend(ranks)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(message.SerializeToString())
    assert ms.restore_group_info_list(path) == list(ranks)


@story
def lost_rank_without_group_info(rng, folder):
    """Nothing says that another rank holds the state of a lost one too."""
    options = write(two_groups(rng), folder, lambda r: f"rank_{r}/net.ckpt")
    shutil.rmtree(os.path.join(folder, "src", "rank_0"))
    return Story(options, refusal="'state'")


@story
def lost_rank_with_group_info(rng, folder):
    """group_info.pb beside each rank's checkpoints, as in MindSpore's tutorial, which copies the file."""
    options = write(two_groups(rng), folder, lambda r: f"rank_{r}/net.ckpt")
    src = os.path.join(folder, "src")
    for rank in range(4):
        group_info(os.path.join(src, f"rank_{rank}", "group_info.pb"), [rank % 2, rank % 2 + 2])
    os.remove(os.path.join(src, "rank_0", "net.ckpt"))
    shutil.rmtree(os.path.join(src, "rank_3"))
    return Story(options | {"group_info": src}, expected=os.path.join(folder, "expected"),
                 says=("rank 0 has no checkpoint: that of rank 2 is used",
                       "rank 3 has no checkpoint: that of rank 1 is used"))


@story
def one_group_info_file(rng, folder):
    """One list for all of its ranks."""
    options = write(two_groups(rng), folder, lambda r: f"rank_{r}/net.ckpt")
    shutil.rmtree(os.path.join(folder, "src", "rank_1"))
    options["group_info"] = os.path.join(folder, "group.pb")
    group_info(options["group_info"], [1, 3])
    return Story(options, expected=os.path.join(folder, "expected"))


def save_on_failure(where, step, rank, named):
    """What MindSpore's TrainFaultTolerance saves in a rank when another one fails."""
    import mindspore as ms
    from types import SimpleNamespace
    from unittest.mock import patch
    from mindspore.train.callback import _train_fault_tolerance as tft
    net = ms.nn.Cell()
    for number, (name, value) in enumerate(named):
        net.insert_param_to_cell(f"p{number}", values.to_mindspore(name, value))
        net._params[f"p{number}"].name = name
    told = SimpleNamespace(_is_params_consistent=lambda: True, cur_step_num=step, cur_epoch_num=3, global_step=step,
                           save_cb=None, ckpt_save_path=where)
    args = SimpleNamespace(optimizer=None, network=net, train_network=net, batch_num=10, net_outputs=None)
    with patch.object(tft, "get_rank", lambda: rank):
        tft._save_checkpoint_on_failure(step, None, args, told)
    return lambda: tft._rename_save_result(step, told)


def saved_on_failure(rng, folder, finished):
    """Four ranks in two groups, of which one saves; expected is what MindSpore makes of copies for the other."""
    case, root = two_groups(rng), os.path.join(folder, "saves")
    for rank in (1, 2):
        rename = save_on_failure(root, 27, rank, case.files[rank][:-1])
    source = os.path.join(root, "ttp_saved_checkpoints-step_27" + ("" if finished else "_tmp"))
    if finished:
        rename()
    assert sorted(os.listdir(source)) == ["rank_1", "rank_2"], os.listdir(source)
    options = {}
    for side, plan in (("src", case.src), ("dst", case.dst)):
        options[f"{side}_strategy"] = os.path.join(folder, f"{side}.ckpt")
        plan.write(options[f"{side}_strategy"])
    for rank in range(4):
        group_info(os.path.join(folder, "groups", f"rank_{rank}", "group_info.pb"), [rank % 2, rank % 2 + 2])
    return source, options | {"group_info": os.path.join(folder, "groups")}


@story
def saved_at_a_failure(rng, folder):
    """TrainFaultTolerance: one rank of each group has saved, with its number and others in the file."""
    source, options = saved_on_failure(rng, folder, True)
    plain = os.path.join(folder, "plain")
    for rank, saved in ((0, 2), (1, 1), (2, 2), (3, 1)):
        os.makedirs(os.path.join(plain, f"rank_{rank}"))
        shutil.copy(os.path.join(source, f"rank_{saved}", f"ttp_rank_{saved}-3_7.ckpt"),
                    os.path.join(plain, f"rank_{rank}", "net.ckpt"))
    expect(plain, folder, options)
    return Story(options, source=source, expected=os.path.join(folder, "expected"),
                 says=("rank 0 has no checkpoint: that of rank 2 is used",))


@story
def saved_at_a_failure_in_part(rng, folder):
    """The same, before all ranks are done."""
    source, options = saved_on_failure(rng, folder, False)
    return Story(options, source=source, refusal="the save of TrainFaultTolerance did not end")


@story
def lost_rank_that_kept_something(rng, folder):
    """A group says that ranks hold the same, but redundancy was removed: what the lost rank kept is missed."""
    src = strategy([(n, (8, 4), Layout([2, 2], [0, -1])) for n in ("w", "v")])
    case = build(rng, src, None)
    src.write(os.path.join(folder, "src.ckpt"))
    for rank, keeps in ((1, "v"), (2, "v"), (3, "w")):
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"),
                    [(n, v) for n, v in case.files[rank] if n == keeps])
    info = os.path.join(folder, "group.pb")
    group_info(info, [0, 2])
    return Story({"src_strategy": os.path.join(folder, "src.ckpt"), "group_info": info},
                 refusal="a hole that no replica fills")


@story
def groups_that_contradict(rng, folder):
    """Group info of two runs."""
    options = write(two_groups(rng), folder, lambda r: f"rank_{r}/net.ckpt")
    options["group_info"] = os.path.join(folder, "info")
    group_info(os.path.join(options["group_info"], "group_info_0.pb"), [0, 2])
    group_info(os.path.join(options["group_info"], "group_info_3.pb"), [0, 1, 2, 3])
    return Story(options, refusal="different ranks as equal to rank 0")


def save_safetensors(path, named):
    import mindspore as ms
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ms.save_checkpoint({n: values.to_mindspore(n, v) for n, v in named}, path, format="safetensors")


def safetensors_expected(folder, options):
    import mindspore as ms
    ms.transform_checkpoints(os.path.join(folder, "src"), os.path.join(folder, "expected"),
                             "checkpoint_", options["src_strategy"], None, output_format="ckpt")
    return os.path.join(folder, "expected")


def chosen(src, names, ranks):
    """What MindSpore's own numbers choose of these names in each rank's folder; None where they don't say."""
    from mindspore.parallel.transform_safetensors import _extract_last_two_numbers as numbers
    out = []
    for rank in range(ranks):
        paths = [os.path.join(src, f"rank_{rank}", name) for name in names]
        if len({tuple(numbers(path)) for path in paths}) < len(paths):
            return None
        out.append(os.path.basename(max(paths, key=numbers)))
    return out


@story
def safetensors_choice(rng, folder):
    """Of many names, those that MindSpore's own numbers choose; the same in all ranks, as others are refused."""
    ranks = 24
    src = strategy([("w", (ranks,), Layout([ranks], [0]))])
    options = {"src_strategy": os.path.join(folder, "src.ckpt")}
    src.write(options["src_strategy"])
    letters = list("0012399-__a.")
    names, where = set(), os.path.join(folder, "src")
    while len(names) < 12:
        name = "".join(rng.choice(letters, rng.integers(1, 10))) + ".safetensors"
        of_ranks = None if name.startswith(".") or name in names else chosen(where, names | {name}, ranks)
        if of_ranks and len(set(of_ranks)) == 1:
            names.add(name)
    for rank in range(ranks):
        for name in sorted(names):
            save_safetensors(os.path.join(where, f"rank_{rank}", name), [("w", random_value(rng, "Float32", (1,)))])
    return Story(options | {"format": "ckpt"}, expected=safetensors_expected(folder, options))


@story
def saves_of_two_runs(rng, folder):
    """ModelCheckpoint's second run into the folders was killed after some ranks: neither is mixed with the first."""
    from mindspore.train.callback._checkpoint import _chg_ckpt_file_name_if_same_exist as named
    options = saves(rng, folder)
    for rank in (0, 1):
        where = os.path.join(folder, "src", f"rank_{rank}")
        prefix = named(where, "net")
        assert prefix == "net_1", prefix
        decoy(rng, os.path.join(where, f"{prefix}-2_20.ckpt"))
    return Story(options | {"step": 20, "epoch": 2},
                 refusal="of epoch 2, step 20 are of different saves: rank_0/net_1-2_20.ckpt and rank_2/net-2_20.ckpt; "
                         "try: file='net-2_20.ckpt'")


@story
def one_of_two_runs(rng, folder):
    """The same, with what the message says."""
    options = saves(rng, folder)
    for rank in (0, 1):
        decoy(rng, os.path.join(folder, "src", f"rank_{rank}", "net_1-2_20.ckpt"))
    return Story(options | {"file": "net-2_20.ckpt"}, expected=os.path.join(folder, "expected"))


@story
def safetensors_tie(rng, folder):
    """Names whose last two numbers are the same: MindSpore takes what the folder lists last."""
    src = strategy([("w", (1,), Layout([1], [0]))])
    options = {"src_strategy": os.path.join(folder, "src.ckpt"), "format": "ckpt"}
    src.write(options["src_strategy"])
    for name in ("net_1-10_2", "net_5-10_2", "net-9_2"):
        save_safetensors(os.path.join(folder, "src", "rank_0", f"{name}.safetensors"),
                         [("w", Value("Float32", rng.standard_normal(1).astype("float32")))])
    return Story(options, refusal="'net_1-10_2.safetensors' and 'net_5-10_2.safetensors'")


def unify(folder, options):
    """unified_safetensors of the tree in folder/ranks into folder/src, in three parts."""
    import math
    from types import SimpleNamespace
    from mindspore.parallel import transform_safetensors
    kept = transform_safetensors.math
    transform_safetensors.math = SimpleNamespace(ceil=lambda _: 3, prod=math.prod)  # else 3 GiB a part
    try:
        transform_safetensors.unified_safetensors(os.path.join(folder, "ranks"),
                                                  options["src_strategy"],
                                                  os.path.join(folder, "src"), max_process_num=1)
    finally:
        transform_safetensors.math = kept


def same_values(path, expected):
    """Two .ckpt files with the same values, in whatever order."""
    import mindspore as ms
    got, want = ms.load_checkpoint(path), ms.load_checkpoint(expected)
    assert set(got) == set(want), (sorted(got), sorted(want))
    for name in want:
        assert values.loaded_bytes(got[name]) == values.loaded_bytes(want[name]), name


@story
def unified_folder(rng, folder):
    """The folder that unified_safetensors writes, cut as load_distributed_checkpoint does; the order of an
    output is that of the parts here, and of the strategy there."""
    import mindspore as ms
    shapes = {"a": (8, 4), "b": (4, 8), "c": (8,), "d": (16, 2)}
    src = strategy([(n, s, Layout([4], [0] + [-1] * (len(s) - 1))) for n, s in shapes.items()])
    dst = strategy([(n, s, Layout([2], [-1] * (len(s) - 1) + [0])) for n, s in shapes.items()])
    case = build(rng, src, dst, extras=[("lr", lambda: Value("Float32", np.float32([0.5])))])
    options = {"src_strategy": os.path.join(folder, "src.ckpt"),
               "dst_strategy": os.path.join(folder, "dst.ckpt")}
    src.write(options["src_strategy"])
    dst.write(options["dst_strategy"])
    for rank, named in case.files.items():
        save_safetensors(os.path.join(folder, "ranks", f"rank_{rank}", "net.safetensors"), named)
    unify(folder, options)
    assert sorted(os.listdir(os.path.join(folder, "src"))) == [
        "hyper_param.safetensors", "param_name_map.json", "part0.safetensors", "part1.safetensors",
        "part2.safetensors"]
    expected = os.path.join(folder, "loaded")
    for rank in range(2):
        ms.load_distributed_checkpoint(
            None, predict_strategy=options["dst_strategy"], format="safetensors", rank_id=rank,
            unified_safetensors_dir=os.path.join(folder, "src"), dst_safetensors_dir=expected,
            output_format="ckpt")
    options.pop("src_strategy")

    def check(mnt):
        for rank in range(2):
            same_values(os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.ckpt"),
                        os.path.join(expected, f"rank_{rank}", "net.ckpt"))

    return Story(options | {"format": "ckpt"}, check=check)


@story
def unified_folder_without_a_part(rng, folder):
    """param_name_map.json names a part that is not there."""
    named = [("w", random_value(rng, "Float32", (4,)))]
    save_safetensors(os.path.join(folder, "src", "part0.safetensors"), named)
    with open(os.path.join(folder, "src", "param_name_map.json"), "w", encoding="utf-8") as f:
        json.dump({"weight_map": {"w": "part0.safetensors", "v": "part1.safetensors"}}, f)
    return Story({"format": "ckpt"}, refusal="'part1.safetensors'")


@story
def segmented_folder(rng, folder):
    """All files of a folder as load_segmented_checkpoints takes them: the same values, in the order of the
    files' names here, of the folder's listing there."""
    import mindspore as ms
    src = os.path.join(folder, "src")
    for part in range(3):
        named = [(f"p{part}.w", random_value(rng, "Float32", (4, 2))),
                 (f"p{part}.b", random_value(rng, "Int8", (3,)))]
        values.save(os.path.join(src, f"checkpoint_0_part{part}.ckpt"), named)
    ms.save_checkpoint(ms.load_segmented_checkpoints(src), os.path.join(folder, "union.ckpt"))

    def check(mnt):
        path = os.path.join(mnt, "rank_0", "checkpoint_0.ckpt")
        same_values(path, os.path.join(folder, "union.ckpt"))
        assert [n[:2] for n in ms.load_checkpoint(path)] == ["p0", "p0", "p1", "p1", "p2", "p2"]

    return Story({"segmented": None}, check=check)
