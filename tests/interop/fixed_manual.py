# SPDX-License-Identifier: Apache-2.0
"""Manual splits (param_split_shape) and field slicing (field). The judge is merge_sliced_parameter:
transform_checkpoints takes such layouts for even ones."""
import os

import numpy as np

import mounting
import oracle
import values
from fixed_compiler import FOLDER
from registry import story
from story import Story
from values import Value, random_value


def strategy_file(path, items, form="ckpt"):
    """items: name -> (dev, map, rows or None, field or 0, shape), as the compiler writes them."""
    import json
    from mindspore.train import node_strategy_pb2 as pb
    if form == "json":
        out = {}
        for name, (dev, axes, rows, field, shape) in items.items():
            out[name] = {"dev_matrix": dev, "tensor_map": axes, "field": field, "tensor_shape": shape,
                         "opt_weight_shard_size": 0, "opt_weight_shard_step": 0}
            if rows:
                offsets = [0, *np.cumsum(rows)[:-1].tolist()]
                out[name].update(param_split_shape=rows, indices_offset=offsets)
        whole = {"current_stage": 2, "parallel_layout_item": out,
                 "parallel_strategy_item": {"Gather": {"parallel_strategy": [[1]], "stage": 0}}}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(whole, f)
        return path
    out = pb.ParallelStrategyMap()
    out.current_stage = 2
    node = out.parallel_strategy_item.add()
    node.node_name = "Gather"
    node.parallel_strategys.stage = 0
    node.parallel_strategys.parallel_strategy.add().dim.extend([1])
    for name, (dev, axes, rows, field, _) in items.items():
        entry = out.parallel_layout_item.add()
        entry.param_name = name
        body = entry.parallel_layouts
        body.dev_matrix.add().dim.extend(dev)
        body.tensor_map.add().dim.extend(axes)
        body.param_split_shape.add().dim.extend(rows or [])
        body.indices_offset.add().dim.extend([0, *np.cumsum(rows)[:-1].tolist()] if rows else [])
        body.field, body.opt_weight_shard_step, body.opt_weight_shard_size = field, 0, 0
    with open(path, "wb") as f:
        f.write(out.SerializeToString())
    return path


def random_slices(rng, shapes, dtype):
    """One value for each rank, all of their own."""
    return [random_value(rng, dtype, shape) for shape in shapes]


def merged(path, name, slices):
    """What merge_sliced_parameter makes of the slices by the strategy in PATH."""
    import mindspore as ms
    strategy = ms.build_searched_strategy(path)
    out = ms.merge_sliced_parameter([values.to_mindspore(name, v) for v in slices], strategy)
    dtype, _, _ = values.loaded_bytes(out)
    return Value(dtype, out.asnumpy())


def write_ranks(folder, held):
    """held: name -> [Value of each rank]"""
    for rank in range(len(next(iter(held.values())))):
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"),
                    [(name, of[rank]) for name, of in held.items()])


def is_merged(rng, folder, items, shapes, form="ckpt", judge=None, dtype="Float32"):
    """Source slices of these shapes (name -> one for each rank), mounted whole: what the real function merges.
    JUDGE is items as that function wants them."""
    path = strategy_file(os.path.join(folder, f"src.{form}"), items, form)
    other = strategy_file(os.path.join(folder, "judge.ckpt"), judge or items)
    held = {name: random_slices(rng, of, dtype) for name, of in shapes.items()}
    write_ranks(folder, held)
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
                [(name, merged(other, name, held[name])) for name in items])
    return Story({"src_strategy": path}, expected=os.path.join(folder, "expected"))


ROWS = [10, 24, 2, 4]


@story
def manual_split_as_source(rng, folder):
    """Rows 10, 24, 2 and 4 of an embedding table over four ranks."""
    return is_merged(rng, folder, {"table": ([4], [0, -1], ROWS, 0, [40, 8])},
                     {"table": [(n, 8) for n in ROWS]})


@story
def manual_split_over_replicas(rng, folder):
    """The same over eight ranks, two of which hold each slice; the last one counts for
    merge_sliced_parameter, so replicas are equal here."""
    path = strategy_file(os.path.join(folder, "src.ckpt"),
                         {"table": ([4, 2], [1, -1], ROWS, 0, [40, 8])})
    own = random_slices(rng, [(n, 8) for n in ROWS], "Float16")
    held = [own[rank // 2] for rank in range(8)]
    write_ranks(folder, {"table": held})
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
                [("table", merged(path, "table", held))])
    return Story({"src_strategy": path}, expected=os.path.join(folder, "expected"))


@story
def manual_split_without_redundancy(rng, folder):
    """Each slice is kept by one of its two ranks, as remove_redundancy leaves it: here by the first, there by the
    second."""
    path = strategy_file(os.path.join(folder, "src.ckpt"),
                         {"table": ([4, 2], [1, -1], ROWS, 0, [40, 8]), "b": ([4, 2], [-1], None, 0, [3])})
    own = random_slices(rng, [(n, 8) for n in ROWS], "Float32")
    bias = random_value(rng, "Float32", (3,))
    for rank in range(8):
        kept = [("table", own[rank // 2])] if rank in (0, 3, 5, 6) else []
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), [("b", bias), *kept])
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
                [("b", bias), ("table", merged(path, "table", [own[rank // 2] for rank in range(8)]))])
    return Story({"src_strategy": path}, expected=os.path.join(folder, "expected"))


@story
def manual_split_with_columns_cut(rng, folder):
    """Rows 7 and 9, columns cut, too: one number a piece, as the compiler writes; the function wants one for
    each slice."""
    items = {"deep": ([2, 2], [1, 0], [7, 9], 0, [14, 8])}
    judge = {"deep": ([2, 2], [1, 0], [7, 7, 9, 9], 0, [14, 8])}
    return is_merged(rng, folder, items, {"deep": [(7, 4), (7, 4), (9, 4), (9, 4)]}, "json", judge, "Int32")


@story
def manual_split_of_each_slice(rng, folder):
    """The same with one number for each slice."""
    return is_merged(rng, folder, {"deep": ([2, 2], [1, 0], [7, 7, 9, 9], 0, [16, 8])},
                     {"deep": [(7, 4), (7, 4), (9, 4), (9, 4)]})


@story
def field_slicing_as_source(rng, folder):
    """The weight behind an embedding whose columns are cut: six fields over four ranks."""
    return is_merged(rng, folder, {"dense": ([4], [0, -1], None, 6, [48, 5])},
                     {"dense": [(12, 5)] * 4})


def compiled(form):
    return os.path.join(FOLDER, f"manual4.{form}")


WHOLE = {"table": (40, 8), "deep": (16, 8), "dense": (48, 5), "cross": (12, 8)}
SLICES = {"table": [(n, 8) for n in ROWS], "deep": [(7, 4), (7, 4), (9, 4), (9, 4)],
          "dense": [(12, 5)] * 4, "cross": [(12, 2)] * 4}


def judged(folder):
    """The compiler's manual4 as merge_sliced_parameter wants it: a number for each slice."""
    return strategy_file(os.path.join(folder, "judge.ckpt"), {
        "table": ([4], [0, -1], ROWS, 0, None), "deep": ([2, 2], [1, 0], [7, 7, 9, 9], 0, None),
        "dense": ([4], [0, -1], None, 6, None), "cross": ([4], [-1, 0], None, 0, None)})


@story
def manual_compiler_as_source(rng, folder):
    """The compiler's own strategy of manual splits and a field, in JSON with its wrong shapes: all merged."""
    held = {name: random_slices(rng, SLICES[name], "Float32") for name in WHOLE}
    write_ranks(folder, held)
    judge = judged(folder)
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
                [(name, merged(judge, name, held[name])) for name in WHOLE])
    return Story({"src_strategy": compiled("json")}, expected=os.path.join(folder, "expected"))


def cuts_into(fulls, judge):
    """A check that the files of the mount are slices which merge to the whole tensors."""
    import mindspore as ms

    def check(mount):
        files = [ms.load_checkpoint(os.path.join(mount, f"rank_{r}", f"checkpoint_{r}.ckpt"))
                 for r in range(4)]
        for name, full in fulls.items():
            got = [f[name] for f in files]
            assert [tuple(x.shape) for x in got] == SLICES[name], [x.shape for x in got]
            again = merged(judge, name, [Value("Float32", x.asnumpy()) for x in got])
            assert (again.data == full.data).all(), name
    return check


@story
def manual_compiler_as_target(rng, folder):
    """Whole tensors cut by it: merge_sliced_parameter makes the whole of the files."""
    fulls = {name: random_value(rng, "Float32", shape) for name, shape in WHOLE.items()}
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), list(fulls.items()))
    return Story({"dst_strategy": compiled("ckpt")}, check=cuts_into(fulls, judged(folder)))


@story
def manual_split_to_another(rng, folder):
    """Five slices of their own rows, a field slicing of three fields and an even cut, to the compiler's."""
    rows = [1, 20, 3, 15, 1]
    fulls = {name: random_value(rng, "Float32", shape) for name, shape in WHOLE.items()}
    src = strategy_file(os.path.join(folder, "src.json"), {
        "table": ([5], [0, -1], rows, 0, [5, 8]), "deep": ([5], [-1, -1], None, 0, [16, 8]),
        "dense": ([5], [-1, -1], None, 0, [48, 5]), "cross": ([5], [0, -1], [2, 2, 1, 1, 6], 0, [10, 8])},
        "json")
    at, cross = np.cumsum([0, *rows]), np.cumsum([0, 2, 2, 1, 1, 6])
    held = {name: [full] * 5 for name, full in fulls.items()}
    held["table"] = [fulls["table"].with_data(fulls["table"].data[a:b]) for a, b in zip(at, at[1:])]
    held["cross"] = [fulls["cross"].with_data(fulls["cross"].data[a:b]) for a, b in zip(cross, cross[1:])]
    write_ranks(folder, held)
    return Story({"src_strategy": src, "dst_strategy": compiled("ckpt")},
                 check=cuts_into(fulls, judged(folder)))


@story
def manual_split_into_equal_rows(rng, folder):
    """Equal rows are an even cut: byte for byte what transform_checkpoints writes."""
    items = {"table": ([4], [0, -1], [6, 6, 6, 6], 0, [24, 8])}
    src = strategy_file(os.path.join(folder, "src.ckpt"), items)
    dst = strategy_file(os.path.join(folder, "dst.ckpt"), {"table": ([2], [-1, 0], None, 0, [24, 8])})
    write_ranks(folder, {"table": random_slices(rng, [(6, 8)] * 4, "Float32")})
    out = os.path.join(folder, "expected")
    made = oracle.transform(os.path.join(folder, "src"), out, src, dst, "checkpoint_")
    assert not isinstance(made, Exception), made
    return Story({"src_strategy": src, "dst_strategy": dst}, expected=out)


@story
def field_slicing_transformed(rng, folder):
    """transform_checkpoints does not look at the field: silently wrong values, while the mount has those of
    merge_sliced_parameter."""
    out = is_merged(rng, folder, {"dense": ([4], [0, -1], None, 6, [48, 5])}, {"dense": [(12, 5)] * 4})
    made = oracle.transform(os.path.join(folder, "src"), os.path.join(folder, "out"),
                            out.options["src_strategy"], None, "checkpoint_")
    assert not isinstance(made, Exception), made
    assert all(mounting.same_file(path, os.path.join(out.expected, name)) for name, path in made.items())
    return out


@story
def manual_split_transformed(rng, folder):
    """transform_checkpoints takes the rows for equal ones: to two even slices it fails or is wrong, where the
    mount gives the halves of what merge_sliced_parameter makes."""
    items = {"table": ([4], [0, -1], ROWS, 0, [40, 8])}
    src = strategy_file(os.path.join(folder, "src.ckpt"), items)
    dst = strategy_file(os.path.join(folder, "dst.ckpt"), {"table": ([2], [0, -1], None, 0, [40, 8])})
    slices = random_slices(rng, [(n, 8) for n in ROWS], "Float32")
    write_ranks(folder, {"table": slices})
    whole = merged(src, "table", slices)
    out = os.path.join(folder, "expected")
    for rank, half in enumerate(np.split(whole.data, 2)):
        values.save(os.path.join(out, f"rank_{rank}", f"checkpoint_{rank}.ckpt"),
                    [("table", whole.with_data(half))])
    made = oracle.transform(os.path.join(folder, "src"), os.path.join(folder, "out"), src, dst, "checkpoint_")
    assert isinstance(made, Exception) or any(
        mounting.same_file(path, os.path.join(out, name)) for name, path in made.items())
    return Story({"src_strategy": src, "dst_strategy": dst}, expected=out)


# ---- bad inputs ----

def refusal(rng, folder, items, shapes, text):
    src = strategy_file(os.path.join(folder, "src.ckpt"), items)
    write_ranks(folder, {name: random_slices(rng, of, "Float32") for name, of in shapes.items()})
    return Story({"src_strategy": src}, refusal=text)


@story
def manual_split_of_other_rows(rng, folder):
    """The slices of two ranks are exchanged."""
    return refusal(rng, folder, {"table": ([4], [0, -1], ROWS, 0, [40, 8])},
                   {"table": [(n, 8) for n in (24, 10, 2, 4)]},
                   "but the strategy's param_split_shape gives this rank")


@story
def manual_split_of_wrong_sum(rng, folder):
    """A destination whose rows are not those of the tensor."""
    dst = strategy_file(os.path.join(folder, "dst.ckpt"), {"table": ([4], [0, -1], ROWS, 0, [40, 8])})
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"),
                [("table", random_value(rng, "Float32", (41, 8)))])
    return Story({"dst_strategy": dst}, refusal="makes 40 rows in all")


@story
def manual_split_of_wrong_count(rng, folder):
    """Three numbers for four slices: merge_sliced_parameter refuses, too."""
    return refusal(rng, folder, {"table": ([4], [0, -1], [10, 24, 6], 0, [40, 8])},
                   {"table": [(n, 8) for n in ROWS]}, "param_split_shape has 3 entries, but")


@story
def manual_split_of_negative_rows(rng, folder):
    """A slice of less than nothing."""
    return refusal(rng, folder, {"table": ([2], [0, -1], [44, -4], 0, [40, 8])},
                   {"table": [(44, 8), (4, 8)]}, "param_split_shape has a slice of -4 rows")


@story
def field_slicing_with_replicas(rng, folder):
    """A field over some of the devices only: nothing says what that means."""
    return refusal(rng, folder, {"dense": ([2, 2], [0, -1], None, 6, [24, 5])},
                   {"dense": [(12, 5)] * 4}, "it is not defined which rank holds which slice")


@story
def field_slicing_that_does_not_divide(rng, folder):
    """Slices of twelve rows and seven fields."""
    return refusal(rng, folder, {"dense": ([4], [0, -1], None, 7, [48, 5])}, {"dense": [(12, 5)] * 4},
                   "which 7 fields over 4 devices do not divide")
