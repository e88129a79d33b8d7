# SPDX-License-Identifier: Apache-2.0
"""Checkpoints saved with remove_redundancy, by the real ModelCheckpoint of MindSpore, rank after rank: it is told
which rank it is and how many there are, which a distributed run would know. transform_checkpoints refuses what it
writes, so files must be what the model says of it, and hold what transform_checkpoints makes of the complete tree."""
import contextlib
import functools
import glob
import os
import random
import shutil
import types

import numpy as np

import mounting
import oracle
import random_cases
import values
from build import full_tensors, source_files
from fixed_layouts import matmuls, strategy
from layouts import Layout
from model import Target, cuts_of
from registry import story
from story import Story
from values import random_value


class Kept(Target):
    """The model, where ranks lack what others keep."""

    def passed(self, name, like, sources):
        stage = min(s for s, _, v in sources if name in v)
        holders = {i: v[name] for s, i, v in sources if s == stage and name in v}
        layout = self.src_layout(name, stage) if self.src else None
        if like not in holders and layout:
            holders = {i: v for i, v in holders.items()
                       if cuts_of(layout, i)[0] == cuts_of(layout, like)[0]}
        return holders[like if like in holders else min(holders)]


@contextlib.contextmanager
def replaced(*changes):
    """(module, name, value) for a while."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for change in before:
            setattr(*change)


def layout_dict(src, stage, named):
    """parameter_layout_dict of the network of a stage, as far as it is used: the device matrix, the map and the
    group of the optimizer shard, whose name says here how many ranks it has."""
    out = {}
    for name, _ in named:
        layout = src.layout(name, stage)
        if layout:
            pieces = layout.opt_pieces() if layout.opt else 1
            out[name] = [list(layout.dev), layout.flat(), None, None, None,
                         f"group-{pieces}" if pieces > 1 else ""]
    return out


def save_rank(folder, rank, ranks, named, layouts, form, keep, appended, crc):
    """What ModelCheckpoint saves at the end of a step."""
    import mindspore as ms
    from mindspore.communication import management
    from mindspore.train import _utils
    from mindspore.train.callback import _checkpoint

    def group_size(group=None):
        return int(group.split("-")[1]) if group else ranks

    net = ms.nn.Cell()
    for number, (name, value) in enumerate(named):
        net.insert_param_to_cell(f"p{number}", values.to_mindspore(name, value))
        net._params[f"p{number}"].name = name
    net.parameter_layout_dict = layouts
    config = _checkpoint.CheckpointConfig(
        save_checkpoint_steps=1, integrated_save=False, remove_redundancy=True, format=form,
        append_info=appended, crc_check=crc)
    callback = _checkpoint.ModelCheckpoint("net", os.path.join(folder, f"rank_{rank}"), config)
    callback._graph_saved = True  # there is none
    step = types.SimpleNamespace(cur_step_num=7, batch_num=10, cur_epoch_num=1, train_network=net)
    with replaced(
            (_checkpoint, "get_group_size", group_size), (_checkpoint, "get_rank", lambda: rank),
            (_utils, "get_group_size", group_size), (_utils, "get_rank", lambda: rank),
            (management, "get_process_group_ranks", lambda: list(range(ranks))),
            (_checkpoint, "remove_param_redundancy", functools.partial(
                _utils.remove_param_redundancy, keep_redundancy=keep))):
        callback.step_end(types.SimpleNamespace(original_args=lambda: step))
    return glob.glob(os.path.join(folder, f"rank_{rank}", "*"))[0]


def names_in(path, form):
    """The names of a file, in the order in which MindSpore loads them."""
    import mindspore as ms
    if os.path.getsize(path) == 0:
        return []
    try:
        return list(ms.load_checkpoint(path, format=form, remove_redundancy=form != "ckpt"))
    except ValueError as e:
        assert "parameter dict is empty" in str(e), e
        return []


APPENDED = [("epoch_num", 1), ("step_num", 7), ("loss_scale", 1.5)]


def save_removed(folder, src, files, form="ckpt", keep=1, layouts=True, append=True, crc=False):
    """Saves a tree and returns what its files hold: rank -> [(name, Value)]."""
    import mindspore as ms
    ranks = len(files)
    kept = {}
    for rank, named in files.items():
        path = save_rank(folder, rank, ranks, named,
                         layout_dict(src, rank // src.devices, named) if layouts else {}, form, keep,
                         ["epoch_num", "step_num", {"loss_scale": 1.5}] if append else None, crc)
        there = dict(named)
        for name, value in APPENDED:
            dtype, shape, content = values.loaded_bytes(ms.Parameter(ms.Tensor(value)))
            kind = values.STORED[dtype]
            there[name] = values.Value(dtype, np.frombuffer(content, kind).reshape(shape))
        kept[rank] = [(n, there[n]) for n in names_in(path, form)]
    return kept


def loaded(path):
    import mindspore as ms
    return {n: values.loaded_bytes(v) for n, v in ms.load_checkpoint(path).items()}


def same_as_complete(folder, case, appended):
    """A check: the values are those that transform_checkpoints makes of the complete tree."""
    whole = os.path.join(folder, "complete")
    made = os.path.join(folder, "transformed")
    for rank, named in case.files.items():
        values.save(os.path.join(whole, f"rank_{rank}", "net.ckpt"), named)
    sides = [os.path.join(folder, f"{side}.{getattr(case, side).form}")
             if getattr(case, side) else None for side in ("src", "dst")]
    done = oracle.transform(whole, made, *sides, "checkpoint_")
    assert not isinstance(done, Exception), done

    def check(path):
        names = mounting.listing(made)
        assert names == mounting.listing(path)
        for name in names:
            want, got = (loaded(os.path.join(root, name)) for root in (made, path))
            for extra in appended:
                assert got.pop(extra)
            assert got == want, name
    return check


def removed(case, folder, form="ckpt", keep=1, append=True, complete=True, lost=(), **more):
    """The story of a case whose tree is saved so, and then loses some ranks."""
    options = {}
    for side in ("src", "dst"):
        plan = getattr(case, side)
        if plan:
            options[f"{side}_strategy"] = os.path.join(folder, f"{side}.{plan.form}")
            plan.write(options[f"{side}_strategy"])
    kept = save_removed(os.path.join(folder, "src"), case.src, case.files, form, keep,
                        append=append, **more)
    assert any(set(dict(case.files[r])) - set(dict(kept[r])) for r in kept), "nothing was removed"
    for rank in lost:
        shutil.rmtree(os.path.join(folder, "src", f"rank_{rank}"))
        del kept[rank]
    target = Kept(case.src, case.dst, kept, source_format=form)
    expected = os.path.join(folder, "expected")
    for rank in range(target.ranks):
        values.save(os.path.join(expected, target.file_name(rank)), target.contents(rank))
    appended = [n for n, _ in APPENDED] if append else []
    return Story(options, expected=expected,
                 check=same_as_complete(folder, case, appended) if complete else None)


def two_by_four(rng, **more):
    """Two replicas of four slices, what no axis cuts, and an optimizer shard."""
    dev = [2, 4]
    rows = [("a.w", (16, 8), Layout(dev, [0, -1])), ("a.m", (16, 8), Layout(dev, [0, -1])),
            ("b.w", (8, 16), Layout(dev, [-1, 0])), ("b.m", (8, 16), Layout(dev, [-1, 0])),
            ("norm", (8,), Layout(dev, [-1])), ("bias", (8,), Layout(dev, [-1])),
            ("s.w", (32, 4), Layout(dev, [0, -1], -1)), ("t.w", (8, 4), Layout(dev, [-1, -1], 4))]
    src = strategy(rows)
    to = [4]
    dst = strategy([(n, s, Layout(to, [-1] * (len(s) - 1) + [0])) for n, s, _ in rows])
    fulls = full_tensors(rng, {n: s for n, s, _ in rows}, {n: "Float32" for n, _, _ in rows})
    return types.SimpleNamespace(src=src, dst=dst, files=source_files(rng, src, fulls))


@story
def removed_redundancy(rng, folder):
    """.ckpt files of which each rank keeps a part, with the values that all ranks append."""
    return removed(two_by_four(rng), folder)


@story
def removed_redundancy_safetensors(rng, folder):
    """safetensors files, whose metadata says that redundancy was removed."""
    return removed(two_by_four(rng), folder, "safetensors")


@story
def removed_redundancy_keeps_two(rng, folder):
    """Two ranks of each group keep a parameter."""
    return removed(two_by_four(rng), folder, keep=2)


@story
def removed_redundancy_crc(rng, folder):
    """With a checksum behind what is kept."""
    return removed(two_by_four(rng), folder, crc=True)


@story
def removed_redundancy_merged(rng, folder):
    """Into one whole checkpoint."""
    case = two_by_four(rng)
    case.dst = None
    return removed(case, folder)


@story
def removed_redundancy_unified(rng, folder):
    """What unified_safetensors, which alone of MindSpore's tools takes such a tree, merges of it."""
    import mindspore as ms
    case = two_by_four(rng)
    case.src.items = [i for i in case.src.items if i.layout.opt == 0]  # it misplaces those shards
    case.files = {r: [(n, v) for n, v in named if case.src.layout(n, 0)]
                  for r, named in case.files.items()}
    case.dst = None
    out = removed(case, folder, "safetensors")
    whole = os.path.join(folder, "unified")
    ms.parallel.unified_safetensors(os.path.join(folder, "src"), out.options["src_strategy"], whole,
                                    merge_with_redundancy=False)
    parts = [ms.load_checkpoint(p, format="safetensors")
             for p in glob.glob(os.path.join(whole, "part*.safetensors"))]
    want = {n: values.loaded_bytes(v) for part in parts for n, v in part.items()}
    assert sorted(want) == sorted(case.src.names())

    def check(path):
        got = loaded(os.path.join(path, "rank_0", "checkpoint_0.ckpt"))
        assert {n: got[n] for n in want} == want
    out.check = check
    return out


@story
def removed_redundancy_same(rng, folder):
    """Under the strategy that it was saved with: each rank gets back what it had."""
    case = two_by_four(rng)
    case.dst = case.src
    return removed(case, folder)


def few(rng, form, folder):
    """Three parameters over eight ranks, nothing appended: ranks that keep nothing have empty files."""
    rows = [(n, (8, 8), Layout([8], [-1, -1])) for n in ("u", "v", "w")]
    src = strategy(rows)
    dst = strategy([(n, s, Layout([2], [0, -1])) for n, s, _ in rows])
    fulls = full_tensors(rng, {n: s for n, s, _ in rows}, {n: "Int16" for n, _, _ in rows})
    case = types.SimpleNamespace(src=src, dst=dst, files=source_files(rng, src, fulls))
    return removed(case, folder, form, append=False)


@story
def removed_redundancy_empty_files(rng, folder):
    """Ranks that keep nothing: files of no bytes."""
    out = few(rng, "ckpt", folder)
    assert os.path.getsize(glob.glob(os.path.join(folder, "src", "rank_5", "*"))[0]) == 0
    return out


@story
def removed_redundancy_empty_safetensors(rng, folder):
    """Ranks that keep nothing: headers without tensors."""
    return few(rng, "safetensors", folder)


@story
def removed_redundancy_pipeline(rng, folder):
    """Two stages, of which both have the embedding."""
    def rows(dev, cut):
        return [("embed", (16, 8), Layout(dev, cut), 0), ("l0.w", (8, 8), Layout(dev, cut), 0),
                ("l0.b", (8,), Layout(dev, [-1]), 0), ("l1.w", (8, 8), Layout(dev, cut), 1),
                ("l1.b", (8,), Layout(dev, [-1]), 1), ("embed", (16, 8), Layout(dev, cut), 1)]
    src = strategy(rows([2, 2], [0, -1]))
    dst = strategy(rows([4], [-1, 0]))
    shapes = {r[0]: r[1] for r in rows([4], [-1, 0])}
    fulls = full_tensors(rng, shapes, {n: "Float16" for n in shapes})
    case = types.SimpleNamespace(src=src, dst=dst, files=source_files(rng, src, fulls))
    return removed(case, folder)


@story
def removed_redundancy_lost_rank(rng, folder):
    """A rank is lost as well, all of whose parameters others keep."""
    case = two_by_four(rng)
    case.src.items = [i for i in case.src.items if i.name != "s.w"]  # whose eighth rank 6 alone has
    case.files = {r: [(n, v) for n, v in named if n != "s.w"] for r, named in case.files.items()}
    return removed(case, folder, keep=2, lost=(6,))


def save_data_parallel(rng, folder, form):
    names = {f"layer{k}.w": (4, 6 + k) for k in range(7)}
    names["learning_rate"] = ()
    names["state"] = (3,)
    src = strategy([(n, s, Layout([4], [-1] * len(s))) for n, s in names.items()])
    fulls = full_tensors(rng, names, {n: "Float32" for n in names})
    files = source_files(rng, src, fulls)
    kept = save_removed(os.path.join(folder, "src"), src, files, form, layouts=False, append=False)
    assert sum(map(len, kept.values())) == len(names)
    return src, kept


@story
def removed_redundancy_data_parallel(rng, folder):
    """A network without layouts: each parameter, of the optimizer too, is kept by one rank of all."""
    src, kept = save_data_parallel(rng, folder, "ckpt")
    dst = strategy([(f"layer{k}.w", (4, 6 + k), Layout([2], [0, -1])) for k in range(7)])
    known = strategy([(i.name, i.shape, i.layout) for i in src.items if i.name.startswith("layer")])
    target = Kept(known, dst, kept)
    expected = os.path.join(folder, "expected")
    for rank in range(target.ranks):
        values.save(os.path.join(expected, target.file_name(rank)), target.contents(rank))
    options = {}
    for side, plan in (("src", known), ("dst", dst)):
        options[f"{side}_strategy"] = os.path.join(folder, f"{side}.ckpt")
        plan.write(options[f"{side}_strategy"])
    return Story(options, expected=expected)


@story
def removed_redundancy_data_parallel_rules(rng, folder):
    """The same without any strategy file, as there is none after such a run."""
    src, kept = save_data_parallel(rng, folder, "safetensors")
    target = Kept(src, None, kept, source_format="safetensors")
    expected = os.path.join(folder, "expected")
    values.save(os.path.join(expected, target.file_name(0)), target.contents(0))
    return Story({"src_ranks": 4, "src_rules": "*: whole"}, expected=expected)


@story
def removed_redundancy_hole(rng, folder):
    """A slice that nobody keeps, though others have theirs."""
    src = strategy([("w", (8, 4), Layout([2, 2], [0, -1])), ("v", (8, 4), Layout([2, 2], [0, -1]))])
    fulls = full_tensors(rng, {"w": (8, 4), "v": (8, 4)}, {"w": "Float32", "v": "Float32"})
    case = types.SimpleNamespace(src=src, dst=None, files=source_files(rng, src, fulls))
    out = removed(case, folder, complete=False)
    gone = glob.glob(os.path.join(folder, "src", "rank_0", "*"))[0]
    os.chmod(gone, 0o600)
    with open(gone, "rb") as f:
        assert b"v" in f.read()
    values.save(gone, [("step_num", random_value(rng, "Int64", ()))])
    out.expected, out.refusal = "", "a hole that no replica fills"
    return out


def groups(src, stage):
    """Ranks with equal slices, for each parameter of a stage: what get_parameter_redundancy says, for any
    layout."""
    out = {}
    for item in src.items:
        if item.stage == stage:
            by_slice = {}
            for local in range(src.devices):
                place = tuple(p for _, _, p in cuts_of(item.layout, local)[0])
                by_slice.setdefault(place, []).append(stage * src.devices + local)
            out[item.name] = tuple(tuple(by_slice[k]) for k in sorted(by_slice))
    return dict(sorted(out.items()))


def reduce_files(rng, case):
    """Leaves out of the files what MindSpore's remove_param_redundancy says."""
    from mindspore.train._utils import remove_param_redundancy
    keep = rng.choice([1, 1, 2])
    out = {}
    for stage in range(case.src.stages):
        kept = remove_param_redundancy(groups(case.src, stage), keep)
        for local in range(case.src.devices):
            rank = stage * case.src.devices + local
            out[rank] = [(n, v) for n, v in case.files[rank]
                         if not case.src.layout(n, stage) or n in kept.get(rank, ())]
    return out


def add_random(number):
    def tell(_, folder):
        rng = random.Random(f"redundancy/{number}")
        while True:
            case = random_cases.make(f"redundancy-{number}", rng.randrange(1 << 30))
            if not case.src or case.src.nested_json() or case.src.first_stage or case.noise:
                continue
            if any(v.dtype in ("str", "map") for n in case.files.values() for _, v in n):
                continue
            kept = reduce_files(rng, case)
            target = Kept(case.src, case.dst, kept, case.prefix)
            if case.options or target.part or target.without_sources():
                continue
            break
        options = {"prefix": case.prefix}
        for side in ("src", "dst"):
            plan = getattr(case, side)
            if plan:
                options[f"{side}_strategy"] = os.path.join(folder, f"{side}.{plan.form}")
                plan.write(options[f"{side}_strategy"])
        for rank, named in kept.items():
            values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), named, case.crc)
        expected = os.path.join(folder, "expected")
        for rank in range(target.ranks):
            values.save(os.path.join(expected, target.file_name(rank)), target.contents(rank))
        return Story(options, expected=expected)

    tell.__name__ = f"removed_redundancy_random_{number}"
    tell.__doc__ = f"Random layouts, what remove_param_redundancy leaves of their files: {number}"
    story(tell)


for count in range(8):
    add_random(count)
