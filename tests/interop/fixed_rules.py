# SPDX-License-Identifier: Apache-2.0
"""Rules instead of strategy files: against transform_checkpoints with the same layouts in files, against
merge_sliced_parameter and numpy, and against true slices where MindSpore has no way."""
import json
import math
import os
import random

import numpy as np

import oracle
import values
from build import Case, full_tensors, source_files
from fixed_compiler import compiled, network
from fixed_layouts import build, strategy
from layouts import Item, Layout, Strategy
from random_cases import device_matrix, random_shard, shape_for
from registry import FIXED, case, story
from story import Story
from values import random_value


def cuts_of(layout, rng=None):
    """What stands after the colon; device axis k of the matrix is called d{k}."""
    cuts = []
    for i, by in enumerate(layout.axes):
        if by:
            axis = i - len(layout.axes) if rng and rng.random() < 0.4 else i
            named = " ".join(f"d{len(layout.dev) - 1 - d}" for d in by)
            cuts.append(f"axis {axis} over {named}")
    if layout.opt:
        cuts.append("optimizer" if layout.opt == -1 else f"optimizer {layout.opt}")
    if rng:
        rng.shuffle(cuts)
    return (", " if not rng or rng.random() < 0.5 else " and ").join(cuts) or "whole"


def rules_of(plan, rng=None, line="\n"):
    """Rules for a strategy of one stage, all of whose layouts have the same device matrix."""
    dev = plan.items[0].layout.dev
    assert all(i.layout.dev == dev for i in plan.items)
    lines = ["axes " + " ".join(f"d{k}={n}" for k, n in enumerate(dev))]
    lines += [f"{i.name}: {cuts_of(i.layout, rng)}" for i in plan.items]
    return line.join(lines)


def ruled(made, **sides):
    """A case, mounted with rules for the sides that are given."""
    for side, rules in sides.items():
        made.options[f"{side}_rules"] = rules
        made.options[f"{side}_ranks"] = str(getattr(made, side).ranks)
    return made


def random_layout(rng, dev, ndim):
    axes = [[] for _ in range(ndim)]
    for d in rng.sample(range(len(dev)), len(dev)):
        if ndim and rng.random() < 0.5:
            axes[rng.randrange(ndim)].append(d)
    layout = Layout(dev, axes)
    free = layout.free_axes()
    if ndim and free and rng.random() < 0.4:
        layout.opt = random_shard(rng, [dev[k] for k in free])
    return layout


def add_random(number):
    def make(_):
        rng = random.Random(f"rules/{number}")
        data = np.random.default_rng(number)
        counts = rng.choice([(4, 8), (8, 4), (8, 8), (4, 2), (6, 12), (2, 16), (8, 6)])
        devs = [device_matrix(rng, n) for n in counts]
        items, shapes = ([], []), {}
        for k in range(7):
            ndim = rng.choice([0, 1, 2, 2, 3])
            layouts = [random_layout(rng, dev, ndim) for dev in devs]
            name = f"layer{k}.w"
            shapes[name] = shape_for(rng, layouts, ndim, 1)
            for side, layout in enumerate(layouts):
                items[side].append(Item(name, layout, shapes[name]))
        src, dst = Strategy(items[0]), Strategy(items[1])
        fulls = full_tensors(data, shapes, {n: "Float32" for n in shapes})
        sides = rng.choice([["src"], ["dst"], ["dst"], ["src", "dst"]])
        # What no strategy has would be in one that rules make for the files.
        extras = [] if "src" in sides else [("global_step", lambda: random_value(data, "Int32", ()))]
        out = Case("", src, dst, source_files(data, src, fulls, extras), fulls=fulls)
        text = {s: rules_of(getattr(out, s), rng, ";") for s in sides}
        return ruled(out, **text)

    make.__doc__ = "random layouts as rules, on one side or both"
    FIXED[f"rules-random-{number}"] = make


for _number in range(24):
    add_random(_number)


SHAPES = {"embed": (16, 8), "h.0.q.weight": (16, 8), "h.0.o.weight": (16, 8), "h.0.norm": (8,),
          "h.0.moe.w": (4, 8, 4), "h.0.adam_m": (24, 4)}


def manual():
    """The first example in the section RULES of reshardfs(1)."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "man", "reshardfs.1.in"), encoding="utf-8") as f:
        section = f.read().split("\n.SH RULES\n")[1].split("\n.SH ")[0]
    return section.split("\n.nf\n")[1].split("\n.fi\n")[0].replace("\\-", "-")


RULES = manual() + "\n"
INLINE = ";".join(RULES.splitlines()[1:])  # without the comment


def dp2_tp4():
    dev = [2, 4]
    layouts = {"embed": Layout(dev, [[1, 0], -1]), "h.0.q.weight": Layout(dev, [0, -1]),
               "h.0.o.weight": Layout(dev, [-1, 0]), "h.0.norm": Layout(dev, [-1]),
               "h.0.moe.w": Layout(dev, [1, -1, 0]), "h.0.adam_m": Layout(dev, [0, -1], 2)}
    return strategy([(n, SHAPES[n], layouts[n]) for n in SHAPES])


def rows(n):
    return strategy([(name, shape, Layout([n], [0] + [-1] * (len(shape) - 1)))
                     for name, shape in SHAPES.items()])


@case
def rules_of_the_manual(rng):
    """Globs and all kinds of cuts, for a sharded source."""
    out = build(rng, rows(4), dp2_tp4(), expect="transform")
    return ruled(out, dst=INLINE)


@case
def rules_for_an_unsharded_source(rng):
    """One whole checkpoint to 8 ranks."""
    out = build(rng, None, dp2_tp4(), expect="transform")
    return ruled(out, dst=INLINE)


@case
def rules_for_the_source(rng):
    """8 ranks to one whole checkpoint."""
    out = build(rng, dp2_tp4(), None, expect="transform")
    return ruled(out, src=INLINE)


@case
def rules_for_a_pipeline(rng):
    """Two stages of the compiler's become one, with the parameters of both."""
    src = compiled("pipe8")
    layouts = {n: next(i for i in src.items if i.name == n) for n in src.names()}
    dst = strategy([(n, i.shape, Layout([2], [0] + [-1] * (len(i.shape) - 1)))
                    for n, i in layouts.items()])
    out = network(rng, src, dst, expect="transform")
    return ruled(out, dst="*: axis 0 over all")


# ---- the source strategy with another number of replicas --------------------------------------


def other_replicas(layout, n, m):
    """By hand: N of the devices that hold the same become M. Only for what the cases below have."""
    devices = math.prod(layout.dev)
    used = {len(layout.dev) - 1 - d for axis in layout.axes for d in axis}
    if not any(layout.dev[k] > 1 for k in used) and (not layout.opt or layout.opt_pieces() == devices):
        new = devices * m // n
        return Layout([new], [-1] * len(layout.axes), new if layout.opt and new > 1 else 0)
    (at,) = [k for k, size in enumerate(layout.dev) if k not in used and size == n]
    dev = list(layout.dev)
    dev[at] = m
    opt = layout.opt
    if opt == n:
        opt = m
    return Layout(dev, layout.axes, opt if m > 1 else 0)


def replicas(rng, src, n, m, expect="auto", without=()):
    dst = Strategy([Item(i.name, Layout([src.devices * m // n], [-1] * len(i.shape))
                         if i.name in without else other_replicas(i.layout, n, m), i.shape, i.stage)
                    for i in src.items], merged=src.stages > 1)
    fulls = full_tensors(rng, {i.name: i.shape for i in src.items},
                         {i.name: "Float32" for i in src.items})
    step = [("global_step", lambda: random_value(rng, "Int32", ()))]
    out = Case("", src, dst, source_files(rng, src, fulls, step), fulls=fulls, expect=expect)
    more = "".join(f";{name}: whole" for name in without)
    return ruled(out, dst=f"like source with dp {n} -> {m}{more}")


def dp8_tp2():
    dev = [8, 2]
    return strategy([("w", (48, 8), Layout(dev, [0, -1])), ("v", (48, 8), Layout(dev, [-1, 0])),
                     ("o", (96, 2), Layout(dev, [0, -1], 8)), ("p", (48,), Layout(dev, [0], 2)),
                     ("u", (8,), Layout([16], [-1])), ("z", (96,), Layout([16], [-1], -1)),
                     ("s", (), Layout([16], []))])


@case
def replicas_8_to_6(rng):
    """Data parallelism of 8 becomes 6, optimizer shards with it: MindSpore cannot go from 16 to 12."""
    return replicas(rng, dp8_tp2(), 8, 6, "model")


@case
def replicas_8_to_4(rng):
    """The same to 4."""
    return replicas(rng, dp8_tp2(), 8, 4, "transform")


@case
def replicas_8_to_1(rng):
    """To none."""
    return replicas(rng, dp8_tp2(), 8, 1, "transform", without=("p",))


def add_compiled(name, n, m, without=()):
    def make(rng):
        return replicas(rng, compiled(name), n, m, "transform", without)

    make.__doc__ = f"the compiler's {name}, data parallelism of {n} as {m}"
    FIXED[f"replicas-of-{name}-{n}-to-{m}"] = make


add_compiled("d16", 2, 4)
add_compiled("d16", 2, 1)
add_compiled("opt8", 4, 2, without=("layer3.weight", "moments.layer3.weight"))
add_compiled("pipe8", 2, 4)


@case
def replicas_of_src8_are_not_clear(rng):
    """Two axes of 2 devices hold the same slices, on either side of the one that cuts."""
    out = network(rng, compiled("src8"), compiled("src8"), expect="refuse",
                  refusal="2 of its device axes have 2 devices and cut no axis of the tensor")
    out.options |= {"dst_rules": "like source with dp 2 -> 4", "dst_ranks": "16"}
    return out


# ---- merge_sliced_parameter --------------------------------------------------------------------


def save(path, named):
    import mindspore as ms
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ms.save_checkpoint([{"name": n, "data": p} for n, p in named], path)


def merged(folder, ranks, place, strategies=None, whole=()):
    """What the recipe of old releases does: all files loaded, each parameter merged."""
    import mindspore as ms
    loaded = [ms.load_checkpoint(os.path.join(folder, "src", place(r))) for r in range(ranks)]
    out = []
    for name in loaded[0]:
        slices = [held[name] for held in loaded]
        out.append((name, slices[0] if name in whole else
                    ms.merge_sliced_parameter(slices, strategies)))
    return out


def slices(rng, folder, place, plan=None):
    """Files of 4 ranks; without a plan every tensor is an even slice along axis 0, but for two."""
    shapes = {"w": (8, 6), "b": (4,), "moments.w": (8, 6), "t": (2, 3, 5)}
    fulls = full_tensors(rng, shapes, {"w": "Float32", "b": "Float16", "moments.w": "Float32", "t": "Int32"})
    shared = [("bias", random_value(rng, "Float32", (3,))), ("global_step", random_value(rng, "Int32", ()))]
    for rank in range(4):
        if plan:
            named = source_files(rng, plan, fulls)[rank]
        else:
            named = [(n, random_value(rng, v.dtype, v.shape)) for n, v in fulls.items()] + shared
        values.save(os.path.join(folder, "src", place(rank)), named)


def rank_n(rank):
    return f"rank_{rank}/net.ckpt"


@story
def merged_along_axis_0(rng, folder):
    """merge_sliced_parameter without a strategy; one that is not layerwise parallel is its first slice."""
    slices(rng, folder, rank_n)
    whole = ("bias", "global_step")
    save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
         merged(folder, 4, rank_n, whole=whole))
    return Story({"src_ranks": 4, "src_rules": "bias: whole;global_step: whole;*: axis 0 over all"},
                 expected=os.path.join(folder, "expected"))


def with_strategy(rng, folder, options):
    """merge_sliced_parameter with a strategy, which must name every parameter."""
    import mindspore as ms
    dev = [2, 2]
    plan = strategy([("w", (8, 6), Layout(dev, [1, 0])), ("b", (4,), Layout(dev, [0])),
                     ("moments.w", (8, 6), Layout(dev, [-1, 1])), ("t", (2, 3, 5), Layout(dev, [-1, -1, -1]))])
    slices(rng, folder, rank_n, plan)
    path = os.path.join(folder, "train.ckpt")
    plan.write(path)
    save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
         merged(folder, 4, rank_n, ms.build_searched_strategy(path)))
    return Story({k: v.replace("STRATEGY", path) for k, v in options.items()},
                 expected=os.path.join(folder, "expected"))


@story
def merged_by_a_strategy(rng, folder):
    """merge_sliced_parameter with build_searched_strategy's layouts: as a strategy file."""
    return with_strategy(rng, folder, {"src_strategy": "STRATEGY"})


@story
def merged_by_a_strategy_in_rules(rng, folder):
    """The same layouts in rules."""
    return with_strategy(rng, folder, {
        "src_ranks": "4", "src_rules": "axes a=2 b=2;w: axis 0 over a and axis 1 over b;b: axis 0 over b;"
                                       "moments.w: axis 1 over a;t: whole"})


@story
def merged_and_cut_again(rng, folder):
    """node0/CKP_1-4_32.ckpt and so on, merged over 4 devices and cut again by np.split for 2."""
    import mindspore as ms

    def place(rank):
        return f"node{rank}/CKP_1-4_32.ckpt"

    slices(rng, folder, place)
    whole = ("bias", "global_step")
    for rank in range(2):
        cut = [(n, p if n in whole else ms.Parameter(ms.Tensor(np.split(p.asnumpy(), 2)[rank]), name=n))
               for n, p in merged(folder, 4, place, whole=whole)]
        save(os.path.join(folder, "expected", f"rank_{rank}", f"checkpoint_{rank}.ckpt"), cut)
    rules = "bias: whole;global_step: whole;*: axis 0 over all"
    return Story({"rank_dir": "node%d", "file": "CKP_1-4_32.ckpt", "src_ranks": 4, "src_rules": rules,
                  "dst_ranks": 2, "dst_rules": rules}, expected=os.path.join(folder, "expected"))


@story
def merging_a_scalar_is_refused(rng, folder):
    """np.concatenate refuses zero-dimensional arrays, and so do rules."""
    import mindspore as ms
    slices(rng, folder, rank_n)
    try:
        merged(folder, 4, rank_n)
        raise AssertionError("MindSpore merges a scalar")
    except ValueError:
        pass
    return Story({"src_ranks": 4, "src_rules": "*: axis 0 over all"},
                 refusal="src_rules: line 1: parameter 'global_step': the rule cuts axis 0 of a tensor "
                         "that has 0 axes")


# ---- sources that have no strategy of their own -------------------------------------------------


@story
def rules_for_a_huggingface_folder(rng, folder):
    """Shards of an unsharded model, cut by rules as by the same layouts in a strategy file."""
    from safetensors.numpy import save_file
    plan = dp2_tp4()
    fulls = full_tensors(rng, SHAPES, {n: "Float32" for n in SHAPES})
    named = sorted(fulls.items())
    os.makedirs(os.path.join(folder, "src"))
    weight_map = {}
    for k in range(2):
        file = f"model-0000{k + 1}-of-00002.safetensors"
        held = dict(named[k::2])
        save_file({n: v.data for n, v in held.items()}, os.path.join(folder, "src", file), {"format": "pt"})
        weight_map |= {n: file for n in held}
    with open(os.path.join(folder, "src", "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    path = os.path.join(folder, "dst.ckpt")
    plan.write(path)
    values.save(os.path.join(folder, "plain", "rank_0", "net.ckpt"), [(n, fulls[n]) for n in weight_map])
    made = oracle.transform(os.path.join(folder, "plain"), os.path.join(folder, "expected"), None, path,
                            "checkpoint_")
    if isinstance(made, Exception):
        raise made
    rules = os.path.join(folder, "rules.txt")
    with open(rules, "w", encoding="utf-8") as f:
        f.write(RULES)
    return Story({"format": "ckpt", "dst_ranks": 8, "dst_rules": rules},
                 expected=os.path.join(folder, "expected"))


@story
def rules_for_replicas_left_out(rng, folder):
    """remove_redundancy: what is the same in all ranks is in one rank's file."""
    w = [random_value(rng, "Float32", (2, 4)) for _ in range(4)]
    shared = [random_value(rng, "Float32", (5,)) for _ in range(4)]
    for rank in range(4):
        values.save(os.path.join(folder, "src", rank_n(rank)), [("w", w[rank]), (f"s{rank}", shared[rank])])
    whole = w[0].with_data(np.concatenate([x.data for x in w]))
    named = [("w", whole)] + [(f"s{r}", shared[r]) for r in (3, 2, 1, 0)]
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"), named)
    return Story({"src_ranks": 4, "src_rules": "w: axis 0 over all;*: whole"},
                 expected=os.path.join(folder, "expected"))
