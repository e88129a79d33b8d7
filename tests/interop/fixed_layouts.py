# SPDX-License-Identifier: Apache-2.0
"""Cases over layouts written by hand: counts, optimizer shards, replicas, pipelines."""
from build import Case, full_tensors, source_files
from layouts import Item, Layout, Strategy
from registry import case
from values import random_value


def strategy(rows, form="ckpt", **more):
    """rows: (name, shape, Layout[, stage])."""
    return Strategy([Item(r[0], r[2], r[1], r[3] if len(r) > 3 else 0) for r in rows], form, **more)


def build(rng, src, dst, dtypes="Float32", extras=(), noise=False, **more):
    shapes = {i.name: i.shape for i in (src or dst).items}
    kinds = dtypes if isinstance(dtypes, dict) else {n: dtypes for n in shapes}
    fulls = full_tensors(rng, shapes, kinds)
    files = source_files(rng, src, fulls, extras, noise)
    return Case("", src, dst, files, fulls=None if noise else fulls, noise=noise, **more)


def matmuls(rng, n, m, expect, shape=(48, 48), **more):
    """Two weights over n ranks into m: one cut along rows, one along columns."""
    src = strategy([("w", shape, Layout([n], [0, -1])), ("v", shape, Layout([n], [-1, 0])),
                    ("b", shape[:1], Layout([n], [-1]))])
    dst = strategy([("w", shape, Layout([m], [-1, 0])), ("v", shape, Layout([m], [-1, 0])),
                    ("b", shape[:1], Layout([m], [0]))])
    return build(rng, src, dst, expect=expect, **more)


def add_counts(n, m, expect, shape):
    def make(rng):
        return matmuls(rng, n, m, expect, shape)

    make.__name__ = f"counts_{n}_to_{m}"
    make.__doc__ = f"{n} ranks to {m}, rows and columns"
    case(make)


for counts in ((8, 4), (4, 8), (2, 16), (1, 6), (12, 4)):
    add_counts(*counts, "transform", (48, 48))
for counts in ((8, 6), (3, 2), (24, 16), (2, 3)):
    add_counts(*counts, "model", (48, 48))


@case
def counts_64_to_56(rng):
    """64 ranks to 56: neither divides the other, the shapes divide."""
    src = strategy([("w", (8, 16), Layout([4, 16], [-1, 0])), ("v", (448,), Layout([64], [0]))])
    dst = strategy([("w", (8, 16), Layout([7, 8], [-1, 0])), ("v", (448,), Layout([56], [0]))])
    step = [("global_step", lambda: random_value(rng, "Int32", ()))]
    return build(rng, src, dst, "Int16", step, expect="model")


def shard(rng, dev, axes, opt, target=None, shape=(24, 16), expect="transform", **more):
    src = strategy([("w", shape, Layout(dev, axes, opt)), ("b", (4,), Layout(dev, [-1]))])
    n = src.devices
    to = target or Layout([n], [0, -1])
    dst = strategy([("w", shape, to), ("b", (4,), Layout(to.dev, [-1]))])
    return build(rng, src, dst, expect=expect, **more)


@case
def shard_all(rng):
    """Optimizer shard of size -1 over all ranks."""
    return shard(rng, [8], [-1, -1], -1)


@case
def shard_some(rng):
    """Optimizer shard of size 2 of 8 repeats."""
    return shard(rng, [8], [-1, -1], 2)


@case
def shard_part_of_axis(rng):
    """A shard of 2 out of a repeated axis of 4, inside of a tensor-parallel axis."""
    return shard(rng, [2, 4], [1, -1], 2)


@case
def shard_several_axes(rng):
    """A shard over two repeated axes with a cut axis between them."""
    return shard(rng, [2, 2, 2], [-1, 1], -1)


@case
def shard_axis_and_a_part(rng):
    """A shard of 6: the rightmost repeated axis of 3 and half of one of 4."""
    return shard(rng, [4, 2, 3], [-1, 1], 6, shape=(24, 16), target=Layout([12], [0, -1]))


@case
def shard_to_shard(rng):
    """Optimizer shards of differing sizes on both sides."""
    return shard(rng, [4, 2], [0, -1], -1, Layout([2, 4], [-1, 0], 2))


@case
def shard_nested(rng):
    """A nested map with an optimizer shard."""
    return shard(rng, [2, 2, 2], [[2, 0], -1], -1, Layout([2, 2, 2], [-1, [0, 1]], 2))


@case
def shard_out_of_order(rng):
    """Leftmost axis sharded, tensor axes out of device order: MindSpore is wrong in the source."""
    return shard(rng, [2, 2, 2], [0, 1], -1, expect="model")


@case
def shard_out_of_order_target(rng):
    """The same layout as the target."""
    return shard(rng, [8], [0, -1], 0, Layout([2, 2, 2], [0, 1], -1), expect="model")


@case
def shard_below_threshold(rng):
    """A file that shards some of its parameters only, step and size 0 for the rest."""
    src = strategy([("w", (16, 4), Layout([4, 2], [0, -1], -1)), ("b", (4,), Layout([8], [-1], 0))])
    dst = strategy([("w", (16, 4), Layout([4], [-1, 0])), ("b", (4,), Layout([4], [0]))])
    return build(rng, src, dst, expect="transform")


def noisy(rng, src_layout, dst_layout, shape=(16, 8), **more):
    src = strategy([("w", shape, src_layout), ("u", shape, Layout(src_layout.dev, [-1, -1]))])
    dst = strategy([("w", shape, dst_layout), ("u", shape, Layout(dst_layout.dev, [0, -1]))])
    return build(rng, src, dst, noise=True, expect="transform", **more)


@case
def replicas_differ(rng):
    """Replicas of differing values: the rank that MindSpore takes gives the bytes."""
    return noisy(rng, Layout([2, 2, 2], [1, -1]), Layout([4], [-1, 0]))


@case
def replicas_differ_more_ranks(rng):
    """The same from 4 ranks to 8: R modulo the source's ranks."""
    return noisy(rng, Layout([2, 2], [-1, 0]), Layout([2, 4], [0, -1]))


@case
def replicas_differ_shard(rng):
    """The same with a partial optimizer shard: the outer part of the axis repeats."""
    return noisy(rng, Layout([8], [-1, -1], 2), Layout([2, 2], [0, 1]))


@case
def replicas_differ_nested(rng):
    """The same with nested maps."""
    return noisy(rng, Layout([2, 2, 2], [[0, 2], -1]), Layout([8], [-1, 0]))


@case
def passed_through(rng):
    """Scalars, gradients and moments that the target lacks, of each rank's own values."""
    src = strategy([("w", (8, 8), Layout([8], [0, -1])), ("moments.w", (8, 8), Layout([8], [0, -1])),
                    ("accu_grads.w", (8, 8), Layout([8], [-1, 0]))])
    dst = strategy([("w", (8, 8), Layout([4], [-1, 0])), ("new.w", (4,), Layout([4], [0]))])
    extras = [("learning_rate", lambda: random_value(rng, "Float32", ())),
              ("rng_state", lambda: random_value(rng, "UInt8", (5,))),
              ("new.w", lambda: random_value(rng, "Float32", (4,)))]
    return build(rng, src, dst, "Float32", extras, noise=True, expect="transform")


@case
def unmapped_everything(rng):
    """Tensor maps of -1 only, on both sides."""
    src = strategy([("w", (4, 4), Layout([2, 2], [-1, -1])), ("s", (3,), Layout([4], [-1]))])
    dst = strategy([("w", (4, 4), Layout([2], [-1, -1])), ("s", (3,), Layout([1, 2], [-1]))])
    return build(rng, src, dst, expect="transform")


@case
def many_axes(rng):
    """Tensors of five axes, the device axes spread over all of them."""
    shape = (4, 6, 2, 4, 3)
    src = strategy([("conv", shape, Layout([2, 3, 2, 2], [1, 2, -1, 0, -1]))])
    dst = strategy([("conv", shape, Layout([2, 2, 3], [-1, -1, 1, 2, 0]))])
    return build(rng, src, dst, "Float16", expect="transform")


@case
def device_axes_of_one(rng):
    """Device axes of extent 1 inside the matrix and in the map."""
    src = strategy([("w", (8, 6), Layout([1, 4, 1, 2], [1, 0]))])
    dst = strategy([("w", (8, 6), Layout([2, 1, 1], [0, 2]))])
    return build(rng, src, dst, expect="transform")


@case
def prefixed_single_stage(rng):
    """A merged file of one stage: every name is 0-name."""
    src = strategy([("w", (8, 8), Layout([4], [0, -1]))], merged=True)
    dst = strategy([("w", (8, 8), Layout([2], [-1, 0]))], form="json", merged=True)
    return build(rng, src, dst, expect="transform")


def layers(devices, stages, count, axis, form="ckpt", opt=0):
    """COUNT layers spread evenly over STAGES, each with a weight and its moment."""
    rows = []
    for i in range(count):
        maps = [0, -1] if axis == 0 else [-1, 0]
        for prefix in ("", "moments."):
            rows.append((f"{prefix}layer{i}.w", (8, 8), Layout([devices], maps, opt),
                         i * stages // count))
    return strategy(rows, form, merged=stages > 1)


def add_pipeline(m, n, src, dst, form):
    def make(rng):
        step = [("global_step", lambda: random_value(rng, "Int32", ()))]
        return build(rng, layers(src, m, 6, 0, form), layers(dst, n, 6, 1, form), "Float32", step,
                     expect="transform")

    make.__name__ = f"pipeline_{m}x{src}_to_{n}x{dst}_{form}"
    make.__doc__ = f"{m} stages of {src} to {n} stages of {dst}, {form}"
    case(make)


for numbers in ((2, 1, 4, 8), (1, 2, 8, 4), (2, 3, 4, 2), (3, 2, 2, 4), (2, 2, 2, 4)):
    add_pipeline(*numbers, "ckpt")
add_pipeline(3, 2, 4, 4, "json")


@case
def pipeline_counts_apart(rng):
    """Stages of 3 ranks to stages of 2."""
    src = strategy([("a", (6, 6), Layout([3], [0, -1]), 0), ("b", (6, 6), Layout([3], [0, -1]), 1)])
    dst = strategy([("a", (6, 6), Layout([2], [-1, 0]), 0), ("b", (6, 6), Layout([2], [0, -1]), 1)])
    return build(rng, src, dst, expect="model")


def one_device_stages(rng, dev, axis, expect):
    src = strategy([("a", (6,), Layout(dev, [axis]), 0), ("b", (6,), Layout(dev, [axis]), 0)])
    dst = strategy([("a", (6,), Layout([1], [-1]), 0), ("b", (6,), Layout([1], [-1]), 1)])
    return build(rng, src, dst, expect=expect)


@case
def pipeline_one_device_stages(rng):
    """Target stages of one device each."""
    return one_device_stages(rng, [2], 0, "transform")


@case
def pipeline_one_device_stages_replicas(rng):
    """The same from replicas: MindSpore takes the rank for its place in the stage."""
    return one_device_stages(rng, [2, 2], 1, "model")


@case
def pipeline_stage_of_new_parameters(rng):
    """A target stage none of whose parameters the source strategy has: MindSpore refuses."""
    src = strategy([("a", (4,), Layout([2], [0])), ("m", (4,), Layout([2], [0]))])
    dst = strategy([("a", (4,), Layout([2], [-1]), 0), ("new", (4,), Layout([2], [0]), 1)])
    return build(rng, src, dst, extras=[("new", lambda: random_value(rng, "Int8", (4,)))],
                 expect="model")


@case
def scalars_of_unlike_matrices(rng):
    """A sharded scalar, device matrices without common factors: MindSpore refuses."""
    src = strategy([("s", (), Layout([4, 3], [])), ("w", (12,), Layout([4, 3], [0]))])
    dst = strategy([("s", (), Layout([4], [])), ("w", (12,), Layout([4], [0]))])
    return build(rng, src, dst, expect="model")


def shared_embedding(src_extra, dst_extra):
    src = strategy([("emb", (8, 4), Layout([2], [0, -1]), 0), ("a", (4, 4), Layout([2], [0, -1]), 0),
                    ("b", (4, 4), Layout([2], [-1, 0]), 1), ("emb", (8, 4), src_extra, 1)])
    dst = strategy([("emb", (8, 4), Layout([4], [0, -1]), 0), ("a", (4, 4), Layout([4], [0, -1]), 0),
                    ("b", (4, 4), Layout([4], [0, -1]), 1), ("emb", (8, 4), dst_extra, 1)])
    return src, dst


@case
def pipeline_shared(rng):
    """An embedding in the first and the last stage, on both sides."""
    src, dst = shared_embedding(Layout([2], [0, -1]), Layout([4], [0, -1]))
    return build(rng, src, dst, expect="transform")


@case
def pipeline_shared_sender_only(rng):
    """The same, saved by the sending stage only."""
    src, dst = shared_embedding(Layout([2], [0, -1]), Layout([4], [0, -1]))
    out = build(rng, src, dst, expect="transform")
    for rank in (2, 3):
        out.files[rank] = [(n, v) for n, v in out.files[rank] if n != "emb"]
    return out


@case
def pipeline_shared_two_layouts(rng):
    """The same with another layout in the last stage."""
    src, dst = shared_embedding(Layout([2], [-1, 0]), Layout([4], [-1, 0]))
    return build(rng, src, dst, expect="transform")


@case
def pipeline_shared_receiver_only(rng):
    """The same, saved by the last stage only: MindSpore takes the first stage's layout."""
    src, dst = shared_embedding(Layout([2], [-1, 0]), Layout([4], [-1, 0]))
    out = build(rng, src, dst, expect="model")
    for rank in (0, 1):
        out.files[rank] = [(n, v) for n, v in out.files[rank] if n != "emb"]
    return out


@case
def pipeline_shared_three_layouts(rng):
    """Three target stages with a layout each: MindSpore takes the last one listed for all but 0."""
    src = strategy([("emb", (12, 8), Layout([4], [0, -1])), ("a", (4,), Layout([4], [0]))])
    dst = strategy([("emb", (12, 8), Layout([2, 2], [1, 0]), 0),
                    ("emb", (12, 8), Layout([4], [-1, 0]), 1), ("a", (4,), Layout([4], [-1]), 1),
                    ("emb", (12, 8), Layout([2, 2], [0, -1]), 2)])
    return build(rng, src, dst, expect="model")
