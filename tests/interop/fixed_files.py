# SPDX-License-Identifier: Apache-2.0
"""Cases over what files hold and how the tree lies: dtypes, chunks, strings, choice of files."""
import os
import shutil

import numpy as np

import values
from build import Case, full_tensors, source_files
from fixed_layouts import build, matmuls, strategy
from layouts import Item, Layout
from registry import case
from values import Value, map_messages, random_value


def rows_to_columns(rng, shapes, dtypes, n=4, m=2, **more):
    """Everything cut along the first axis over n ranks, and along the last over m."""
    src = strategy([(x, s, Layout([n], [0] + [-1] * (len(s) - 1))) for x, s in shapes.items()])
    dst = strategy([(x, s, Layout([m], [-1] * (len(s) - 1) + [0])) for x, s in shapes.items()])
    return build(rng, src, dst, dtypes, **more)


@case
def every_dtype(rng):
    """Every element type that MindSpore transforms; all bits but NaNs in bfloat16."""
    kinds = values.TRANSFORMED
    shapes = {f"p.{d.lower()}": (8, 6) for d in kinds}
    return rows_to_columns(rng, shapes, dict(zip(shapes, kinds)), expect="transform")


@case
def bfloat16_nan_payloads(rng):
    """MindSpore rewrites bfloat16 NaNs to 0x7fc0; here the bits stay."""
    out = rows_to_columns(rng, {"w": (8, 4)}, "BFloat16", expect="model")
    bits = rng.integers(0x7F81, 0x8000, (8, 4)).astype(np.uint16)
    out.fulls = {"w": Value("BFloat16", bits)}
    out.files = source_files(rng, out.src, out.fulls)
    return out


@case
def int4(rng):
    """Int4, a byte an element: MindSpore's outputs call it Int8, here it stays Int4."""
    step = [("scale", lambda: random_value(rng, "Int4", (3,)))]
    return rows_to_columns(rng, {"w": (8, 4)}, "Int4", extras=step, expect="model")


@case
def complex_numbers(rng):
    """Complex tensors, which MindSpore saves and does not load."""
    out = rows_to_columns(rng, {"w": (8, 4)}, "Float32", expect="model", loadable=False)
    for kind, dtype in (("Complex64", np.complex64), ("Complex128", np.complex128)):
        whole = rng.standard_normal((8, 4)) + 1j * rng.standard_normal((8, 4))
        out.fulls[kind] = Value(kind, whole.astype(dtype))
        for side in (out.src, out.dst):
            side.items.append(Item(kind, side.items[0].layout, (8, 4)))
    out.files = source_files(rng, out.src, out.fulls)
    return out


@case
def odd_sizes(rng):
    """Slices of 1, 3 and 7 bytes, and runs that no kernel is made for."""
    shapes = {"a": (4, 2), "b": (12, 14), "c": (4, 22), "d": (4, 3, 2)}
    return rows_to_columns(rng, shapes, "Int8", expect="transform")


@case
def large_dims(rng):
    """Dims and lengths whose varints take two and three bytes."""
    shapes = {"a": (128, 16), "b": (20000, 2), "c": (16, 300)}
    return rows_to_columns(rng, shapes, "Int8", expect="transform")


@case
def scalars(rng):
    """Tensors without axes inside and outside of the strategies."""
    src = strategy([("s", (), Layout([4], [])), ("w", (8,), Layout([4], [0]))])
    dst = strategy([("s", (), Layout([2], [])), ("w", (8,), Layout([2], [0]))])
    extras = [("lr", lambda: random_value(rng, "Float64", ())),
              ("flag", lambda: random_value(rng, "Bool", ()))]
    return build(rng, src, dst, "Float32", extras, expect="transform")


@case
def unusual_names(rng):
    """Names with spaces, quotes, dots, other scripts, and a very long one."""
    names = ["a b", 'q"u\'o', "x.y.z", "权重.λ", "moments." + "n" * 300, "0"]
    return rows_to_columns(rng, {n: (4, 4) for n in names}, "Int16", expect="transform")


@case
def many_parameters(rng):
    """Three hundred small parameters."""
    shapes = {f"layer{i}.weight": (4, 4) for i in range(300)}
    return rows_to_columns(rng, shapes, "Float16", expect="transform")


@case
def both_whole(rng):
    """One whole checkpoint in and out by strategies of one device."""
    return matmuls(rng, 1, 1, "transform", (4, 4))


@case
def no_strategies(rng):
    """No strategy on either side: nothing to reshard, which MindSpore refuses too."""
    fulls = full_tensors(rng, {"w": (4, 4), "b": (4,)}, {"w": "Float32", "b": "Float16"})
    return Case("", None, None, source_files(rng, None, fulls), fulls, expect="refuse",
                refusal="neither src_strategy nor dst_strategy", exit_code=2)


@case
def crc_trailer(rng):
    """Sources with a crc trailer; the outputs have none."""
    return matmuls(rng, 4, 2, "transform", crc=True)


@case
def other_prefix(rng):
    """Another prefix for the files' names."""
    return matmuls(rng, 4, 2, "transform", prefix="net-")


@case
def comma_in_prefix(rng):
    """A comma in an option's value."""
    return matmuls(rng, 2, 1, "transform", prefix="a,b_")


@case
def last_by_name(rng):
    """Several checkpoints in a rank folder: net-9_2 beats net-10_2, hidden files don't count."""
    def more(folder):
        for rank in range(4):
            at = os.path.join(folder, f"rank_{rank}")
            shutil.copy(os.path.join(at, "net-9_2.ckpt"), os.path.join(at, "tmp"))
            for name in ("net-10_2.ckpt", "net-10_9.ckpt", ".z.ckpt"):
                with open(os.path.join(at, name), "wb") as f:
                    f.write(values.encode([("w", random_value(rng, "Int8", (3,)))]))
            os.mkdir(os.path.join(at, "zz.ckpt.d"))
            os.remove(os.path.join(at, "tmp"))

    return matmuls(rng, 4, 2, "transform", source_names=lambda r: "net-9_2.ckpt", prepare=more)


@case
def folders_that_look_like_files(rng):
    """A folder named like a checkpoint, and files beside the rank folders."""
    def more(folder):
        os.mkdir(os.path.join(folder, "rank_0", "zz.ckpt"))
        os.mkdir(os.path.join(folder, "rank_x"))
        os.mkdir(os.path.join(folder, "log"))
        with open(os.path.join(folder, "rank_9"), "wb"):
            pass

    return matmuls(rng, 4, 2, "auto", prepare=more)


@case
def ranks_in_two_digits(rng):
    """Sixteen ranks, whose folders sort otherwise than their numbers."""
    return matmuls(rng, 16, 2, "transform")


@case
def rank_orders_differ(rng):
    """Each rank's file lists its parameters in an order of its own: the highest needed one counts."""
    out = build(rng, strategy([(n, (4, 4), Layout([4], [-1, -1])) for n in "abc"]
                              + [("w", (4, 4), Layout([2, 2], [0, -1]))]),
                strategy([(n, (4, 4), Layout([2], [-1, 0])) for n in "abc"]
                         + [("w", (4, 4), Layout([2], [-1, 0]))]), "Int32",
                expect="transform", check_model=False)
    for rank, named in out.files.items():
        out.files[rank] = named[rank:] + named[:rank]
    return out


@case
def string_values(rng):
    """Strings are copied as they are; MindSpore fails on them."""
    out = matmuls(rng, 4, 2, "model")
    for rank, named in out.files.items():
        named.insert(1, ("phase", Value("str", f"train of {rank}: \u2200 \U0001F600")))
    return out


@case
def map_tensors(rng):
    """Map tensors of one and of several values are copied as they are; MindSpore fails on them."""
    out = matmuls(rng, 4, 2, "model")

    def piece(n):
        return (rng.integers(0, 99, n).astype(np.int32), rng.random((n, 4)).astype(np.float32),
                np.zeros(n, np.int32))

    for named in out.files.values():
        named.insert(0, ("table", map_messages("table", [piece(3)])))
        named.append(("table2", map_messages("table2", [piece(2), piece(5)])))
    return out


BIG = (520 * 1024, 1024)  # 520 MiB of Int8: two chunks


def large(rng, dtype):
    """BIG's bytes as DTYPE, of a pattern whose length shares nothing with rows or chunks."""
    width = np.dtype(dtype).itemsize
    pattern = rng.integers(0, 256, 1048573 * width, dtype=np.uint8).view(dtype)
    return np.resize(pattern, (BIG[0], BIG[1] // width))


@case
def chunks_in(rng):
    """A tensor over 512 MiB, in two chunks in the source, cut so that runs cross the chunks."""
    fulls = {"w": Value("Int8", large(rng, np.int8))}
    dst = strategy([("w", BIG, Layout([2], [-1, 0]))])
    return Case("", None, dst, source_files(rng, None, fulls), fulls, expect="transform",
                check_model=False)


@case
def chunks_out(rng):
    """Slices that become a tensor over 512 MiB, written in chunks."""
    fulls = {"w": Value("Int32", large(rng, np.int32))}
    src = strategy([("w", fulls["w"].shape, Layout([2], [-1, 0]))])
    return Case("", src, None, source_files(rng, src, fulls), fulls, expect="transform",
                check_model=False)


def lose(out, *ranks):
    for rank in ranks:
        del out.files[rank]
    return out


@case
def missing_rank_with_replica(rng):
    """A lost rank whose slices another rank holds too."""
    src = strategy([("w", (8, 4), Layout([2, 2], [0, -1]))])
    dst = strategy([("w", (8, 4), Layout([4], [-1, 0]))])
    return lose(build(rng, src, dst, expect="model"), 1)


@case
def missing_ranks_with_replicas(rng):
    """The same with an optimizer shard and a nested map, several lost."""
    src = strategy([("w", (16, 4), Layout([2, 2, 2], [[0], -1], 2)),
                    ("b", (8,), Layout([2, 4], [-1]))])
    dst = strategy([("w", (16, 4), Layout([2], [-1, 0])), ("b", (8,), Layout([2], [0]))])
    return lose(build(rng, src, dst, expect="model"), 0, 5, 6)


@case
def missing_rank_alone(rng):
    """A lost rank that alone held its slices."""
    out = lose(matmuls(rng, 4, 2, "refuse"), 2)
    out.refusal = "rank_2"
    return out


@case
def shape_does_not_divide(rng):
    """A target layout that the tensor's shape does not fit."""
    src = strategy([("w", (8, 6), Layout([4], [0, -1]))])
    dst = strategy([("w", (8, 6), Layout([4], [-1, 0]))])
    return build(rng, src, dst, expect="refuse", refusal="'w'")


@case
def stage_without_sources(rng):
    """A target stage that takes nothing from the source."""
    src = strategy([("a", (4,), Layout([2], [0]))])
    dst = strategy([("a", (4,), Layout([2], [-1]), 0), ("b", (4,), Layout([2], [-1]), 1)])
    return build(rng, src, dst)


@case
def duplicate_parameter(rng):
    """A file that has a parameter twice."""
    out = matmuls(rng, 4, 2, "refuse", refusal="twice")

    def damage(folder):
        for rank in range(4):
            path = os.path.join(folder, f"rank_{rank}", f"net_{rank}.ckpt")
            os.chmod(path, 0o600)
            with open(path, "ab") as f:
                f.write(values.encode(out.files[rank][:1]))

    out.prepare = damage
    return out


@case
def truncated_source(rng):
    """A source cut off in a tensor."""
    def damage(folder):
        path = os.path.join(folder, "rank_3", "net_3.ckpt")
        os.chmod(path, 0o600)
        os.truncate(path, os.path.getsize(path) - 5)

    return matmuls(rng, 4, 2, "refuse", refusal="rank_3", prepare=damage)


@case
def mixed_kinds(rng):
    """.ckpt and .safetensors in one tree."""
    def damage(folder):
        with open(os.path.join(folder, "rank_1", "net_1.safetensors"), "wb") as f:
            f.write(b"\x02\0\0\0\0\0\0\0{}")

    return matmuls(rng, 4, 2, "refuse", refusal="safetensors", prepare=damage)


@case
def disjoint_strategies(rng):
    """Strategies that have no parameter in common."""
    src = strategy([("w", (8, 4), Layout([4], [0, -1]))])
    dst = strategy([("v", (8, 4), Layout([2], [0, -1]))])
    return build(rng, src, dst, expect="refuse", refusal="none of its parameters")


@case
def too_many_ranks(rng):
    """More rank folders than the source strategy describes."""
    out = matmuls(rng, 4, 2, "refuse", refusal="rank_4")
    out.files[4] = out.files[0]
    return out


@case
def not_a_strategy(rng):
    """A strategy file that is none."""
    out = matmuls(rng, 4, 2, "refuse", refusal="src.ckpt")
    out.src.raw = b"\x0a\xff\xff\xff"
    return out


@case
def device_axis_out_of_range(rng):
    """A tensor map that names a device axis that is not there."""
    out = matmuls(rng, 4, 2, "refuse", refusal="'w'")
    good = out.dst.items[0].layout.flat
    out.dst.items[0].layout.flat = lambda: [-1, 3]
    out.dst.raw = out.dst.proto_bytes()
    out.dst.items[0].layout.flat = good
    return out


@case
def uneven_split(rng):
    """A manual split along the first axis, which can't be resharded by its layout."""
    from mindspore.train import node_strategy_pb2 as pb
    out = matmuls(rng, 4, 2, "refuse", refusal="'w'")
    parsed = pb.ParallelStrategyMap.FromString(out.src.proto_bytes())
    body = parsed.parallel_layout_item[0].parallel_layouts
    body.param_split_shape[0].dim.extend([10, 14, 12, 12])
    out.src.raw = parsed.SerializeToString()
    return out
