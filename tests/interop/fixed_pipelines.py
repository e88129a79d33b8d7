# SPDX-License-Identifier: Apache-2.0
"""Pipelines: strategy files of the stages as they are, parameters that stages share, sub-networks."""
import os
import shutil

import oracle
import values
from build import Case, full_tensors, source_files
from fixed_compiler import FOLDER, compiled, network
from layouts import Item, Layout, Strategy
from model import cut
from registry import case, story
from story import Story
# ---- strategy files of each stage ----


def stage_files(rng, folder, form, side, given):
    """A checkpoint between pipe8 (the SIDE says which) and src8; the mount gets the compiler's own files of
    the stages by GIVEN(folder), MindSpore what it merges of them."""
    import mindspore as ms
    pipe, plain = compiled("pipe8", form), compiled("src8", form)
    src, dst = (pipe, plain) if side == "src" else (plain, pipe)
    made = network(rng, src, dst)
    for rank, named in made.files.items():
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), named)
    parts = os.path.join(folder, "parts")
    shutil.copytree(os.path.join(FOLDER, f"pipe8_{form}"), parts)
    paths = {}
    for name, strategy in (("src", src), ("dst", dst)):
        paths[name] = os.path.join(folder, f"{name}.{form}")
        if strategy is pipe:
            ms.merge_pipeline_strategys(parts, paths[name])
        else:
            strategy.write(paths[name])
    out = os.path.join(folder, "expected")
    made = oracle.transform(os.path.join(folder, "src"), out, paths["src"], paths["dst"], "checkpoint_")
    assert not isinstance(made, Exception), made
    options = {"src_strategy": paths["src"], "dst_strategy": paths["dst"]}
    options[f"{side}_strategy"] = given(parts)
    return Story(options, expected=out)


def listed(parts):
    return ":".join(os.path.join(parts, n) for n in sorted(os.listdir(parts), reverse=True))


@story
def stage_files_as_source(rng, folder):
    """A folder of the compiler's files of two stages, as the source's strategy."""
    return stage_files(rng, folder, "ckpt", "src", lambda parts: parts)


@story
def stage_files_as_target(rng, folder):
    """The same as the destination's, as a list, the last stage first."""
    return stage_files(rng, folder, "ckpt", "dst", listed)


@story
def stage_files_in_json(rng, folder):
    """A folder of JSON files."""
    return stage_files(rng, folder, "json", "src", lambda parts: parts)


@story
def stage_files_in_json_as_target(rng, folder):
    """A list of JSON files."""
    return stage_files(rng, folder, "json", "dst", listed)


def several_stages(rng, parts, count=3, devices=2):
    layout, bias = Layout([devices], [0, -1]), Layout([devices], [-1])
    items = [item for s in range(count) for item in (
        Item(f"layer{s}.w", layout, (4 * devices, 3), s), Item(f"layer{s}.b", bias, (3,), s))]
    src = Strategy(items)
    src.parts = parts
    fulls = full_tensors(rng, {i.name: i.shape for i in items}, {i.name: "Float32" for i in items})
    return Case("", src, None, source_files(rng, src, fulls), fulls=fulls, expect="transform")


@case
def stage_files_of_every_rank(rng):
    """Each rank of three stages saved its own strategy, in an order of its own."""
    return several_stages(rng, "ranks")


def refused(rng, folder, change, refusal):
    """The three stages again; CHANGE(parts) spoils the folder."""
    made = several_stages(rng, "folder")
    for rank, named in made.files.items():
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), named)
    parts = os.path.join(folder, "parts")
    made.src.write_parts(parts)
    change(parts)
    import mindspore as ms
    merged = os.path.join(folder, "merged.ckpt")
    accepted = True
    try:
        ms.merge_pipeline_strategys(parts, merged)
        made = oracle.transform(os.path.join(folder, "src"), os.path.join(folder, "out"), merged, None, "c")
        accepted = not isinstance(made, Exception)
    except Exception:  # noqa: BLE001 - that it refuses is what we want to know
        accepted = False
    return Story({"src_strategy": parts}, refusal=refusal), accepted


@story
def stage_files_with_one_missing(rng, folder):
    """Stages 0 and 2 without 1: MindSpore refuses, too."""
    out, accepted = refused(rng, folder, lambda parts: os.remove(os.path.join(parts, "stage1_0.ckpt")),
                            "it has a stage 2 but no stage 1")
    assert not accepted
    return out


@story
def stage_files_of_two_runs(rng, folder):
    """Stage 1 twice, cut differently: MindSpore takes whichever the folder lists first."""
    def change(parts):
        other = Strategy([Item("layer1.w", Layout([2], [-1, -1]), (8, 3))], "ckpt", False, 1)
        other.write(os.path.join(parts, "again.ckpt"))
    return refused(rng, folder, change, "stage 1 is given twice")[0]


@story
def stage_files_mixed(rng, folder):
    """One of three in JSON: MindSpore refuses, too."""
    def change(parts):
        os.remove(os.path.join(parts, "stage1_0.ckpt"))
        other = Strategy([Item("layer1.w", Layout([2], [0, -1]), (8, 3))], "json", False, 1)
        other.write(os.path.join(parts, "stage1_0.json"))
    out, accepted = refused(rng, folder, change, "are JSON and some protobuf")
    assert not accepted
    return out


@story
def stage_files_with_their_merge(rng, folder):
    """merge_pipeline_strategys wrote its output beside its inputs. A second time MindSpore refuses, or ignores it,
    as the folder lists them."""
    def change(parts):
        import mindspore as ms
        ms.merge_pipeline_strategys(parts, os.path.join(parts, "merged.ckpt"))
    return refused(rng, folder, change, "it is a merge of several stages already")[0]


# ---- parameters that stages share ----

SHARED = "embedding.table"


def layers(layout, stages):
    """Four of them over the stages."""
    return [Item(f"layer{k}.w", layout, (8, 8), k * stages // 4) for k in range(4)]


def shared(rng, sender, target, other=None, noise=False):
    """Two stages of 4 ranks; both strategies list the table, only the files of stage SENDER hold it."""
    layout = Layout([2, 2], [1, 0])
    src = Strategy(layers(layout, 2) + [Item(SHARED, layout, (16, 4), 0),
                                        Item(SHARED, other or layout, (16, 4), 1)])
    fulls = full_tensors(rng, {i.name: i.shape for i in src.items},
                         {i.name: "Float32" for i in src.items})
    files = source_files(rng, src, fulls, noise=noise)
    for rank, named in files.items():
        if rank // src.devices != sender:
            files[rank] = [(n, v) for n, v in named if n != SHARED]
    return Case("", src, target, files, fulls=None if noise else fulls, noise=noise,
                expect="model" if other and sender == 1 else "transform")


def target_of(stages, alike=True):
    """The table in the first and the last stage, as embedding and as head."""
    layout = Layout([4], [0, -1])
    items = layers(layout, stages) + [Item(SHARED, layout, (16, 4), 0)]
    if stages > 1:
        items.append(Item(SHARED, layout if alike else Layout([4], [-1, 0]), (16, 4), stages - 1))
    return Strategy(items)


@case
def shared_from_stage_0_to_0(rng):
    """A table that two stages share, saved by the first only, to no strategy."""
    return shared(rng, 0, None)


@case
def shared_from_stage_0_to_1(rng):
    """A table that two stages share, saved by the first only, to one stage."""
    return shared(rng, 0, target_of(1))


@case
def shared_from_stage_0_to_2(rng):
    """A table that two stages share, saved by the first only, to 2 stages; replicas have values of their own."""
    return shared(rng, 0, target_of(2), noise=True)


@case
def shared_from_stage_0_to_4(rng):
    """A table that two stages share, saved by the first only, to 4 stages."""
    return shared(rng, 0, target_of(4))


@case
def shared_from_stage_1_to_0(rng):
    """A table that two stages share, saved by the last only, to no strategy."""
    return shared(rng, 1, None)


@case
def shared_from_stage_1_to_1(rng):
    """A table that two stages share, saved by the last only, to one stage."""
    return shared(rng, 1, target_of(1))


@case
def shared_from_stage_1_to_2(rng):
    """A table that two stages share, saved by the last only, to 2 stages; replicas have values of their own."""
    return shared(rng, 1, target_of(2), noise=True)


@case
def shared_from_stage_1_to_4(rng):
    """A table that two stages share, saved by the last only, to 4 stages."""
    return shared(rng, 1, target_of(4))


@case
def shared_head_cut_otherwise(rng):
    """The head's stage cuts the shared table along the other axis: each stage has its own layout."""
    return shared(rng, 0, target_of(2, alike=False))


@case
def shared_from_a_stage_that_cuts_otherwise(rng):
    """Only the last stage's files hold the table, which that stage cuts in its own way."""
    return shared(rng, 1, target_of(2), other=Layout([4], [0, -1]))


def embedding_and_head(rng, folder, side, form):
    """The compiler's files of two stages that share a table, transposed in the second, which cuts it in its
    own way. The first stage's files hold it, as it is the one that sends."""
    import mindspore as ms
    parts = os.path.join(FOLDER, f"shared8_{form}")
    merged = os.path.join(folder, f"merged.{form}")
    ms.merge_pipeline_strategys(parts, merged)
    by_stage = [read_strategy(os.path.join(parts, f"s_{s}.{form}")) for s in (0, 1)]
    shapes = {"network.e.w": (16, 8), "network.l0.w": (8, 8), "network.l1.w": (8, 8)}
    pipe = Strategy([Item(n, layout, shapes[n], s) for s in (0, 1)
                     for n, layout in by_stage[s].items()])
    layout = Layout([2, 2], [0, 1])
    plain = Strategy([Item(n, layout, shapes[n]) for n in shapes], form)
    src = pipe if side == "src" else plain
    fulls = full_tensors(rng, shapes, {n: "Float32" for n in shapes})
    for rank, named in source_files(rng, src, fulls).items():
        kept = [(n, v) for n, v in named if rank < 4 or n != "network.e.w" or src is plain]
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), kept)
    other = os.path.join(folder, f"plain.{form}")
    plain.write(other)
    pair = [merged, other] if side == "src" else [other, merged]
    out = os.path.join(folder, "expected")
    made = oracle.transform(os.path.join(folder, "src"), out, *pair, "checkpoint_")
    assert not isinstance(made, Exception), made
    if side == "dst":  # what the receiving stage has is the sender's value, in its own layout
        for rank in range(8):
            got = ms.load_checkpoint(os.path.join(out, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
            want = cut(fulls["network.e.w"].data, pipe.layout("network.e.w", rank // 4), rank % 4)
            assert (got["network.e.w"].asnumpy() == want).all()
    pair = [parts, other] if side == "src" else [other, parts]
    return Story(dict(zip(("src_strategy", "dst_strategy"), pair)), expected=out)


def read_strategy(path):
    """name -> Layout of a file of plain layouts."""
    from mindspore.parallel._parallel_serialization import _build_searched_strategy
    return {n: Layout(list(x.dev_matrix[0].dim), list(x.tensor_map[0].dim))
            for n, x in _build_searched_strategy(path).items()}


@story
def embedding_and_head_as_source(rng, folder):
    """Two stages of the real compiler share a table, which the first stage's files hold."""
    return embedding_and_head(rng, folder, "src", "ckpt")


@story
def embedding_and_head_as_target(rng, folder):
    """The same as the destination: both stages get it, each in its own layout."""
    return embedding_and_head(rng, folder, "dst", "json")


# ---- sub-networks ----

def sub_networks(rng, folder, options, **filters):
    """Two stages of a pipeline, each saved by itself, transformed one at a time; their parts in one tree. Each
    rank of the mount must have what load_segmented_checkpoints gives."""
    import mindspore as ms
    whole = compiled("src8")
    target, tree = os.path.join(folder, "dst.ckpt"), os.path.join(folder, "src")
    whole.write(target)
    for stage in (0, 1):
        part = compiled(f"pipe8_ckpt/s_{stage}")
        made = network(rng, part, whole, extra=False)
        at = os.path.join(folder, f"stage{stage}")
        for rank, named in made.files.items():
            values.save(os.path.join(at, f"rank_{stage * part.devices + rank}", "net.ckpt"), named)
        strategy = os.path.join(folder, f"s{stage}.ckpt")
        part.write(strategy)
        with oracle.silence():
            ms.transform_checkpoints(at, tree, "checkpoint_", strategy, target)
    ranks = [os.path.join(tree, f"rank_{r}") for r in range(8)]
    for n, rank in enumerate(ranks):
        assert sorted(os.listdir(rank)) == [f"checkpoint_{n}_part{s}.ckpt" for s in (0, 1)]

    def check(mount):
        for n, rank in enumerate(ranks):
            want = ms.load_segmented_checkpoints(rank, **filters)
            got = ms.load_checkpoint(os.path.join(mount, f"rank_{n}", f"checkpoint_{n}.ckpt"))
            assert set(got) == set(want), set(got) ^ set(want)
            for name, value in want.items():
                assert values.loaded_bytes(got[name]) == values.loaded_bytes(value), name
    return Story({"src_strategy": target, "dst_strategy": target, "segmented": None, **options},
                 check=check)


@story
def sub_networks_put_together(rng, folder):
    """Parts of two sub-networks in one tree, mounted with segmented."""
    return sub_networks(rng, folder, {})


@story
def sub_networks_without_moments(rng, folder):
    """The same without what begins with a prefix."""
    return sub_networks(rng, folder, {"segmented_skip": "moments.layer1:accu"},
                        filter_prefix=["moments.layer1", "accu"])
