# SPDX-License-Identifier: Apache-2.0
"""Cases over sources in safetensors: trees that save_checkpoint writes, folders of HuggingFace's kind that the
library writes, those of unified_safetensors, segmented folders, checksums."""
import json
import os
import shutil

import numpy as np

import oracle
import values
from fixed_files import rows_to_columns
from fixed_layouts import build, matmuls, strategy
from layouts import Layout
from model import Target
from registry import case, story
from story import Story
from values import Value, random_value

SAFE = {"source_format": "safetensors"}


@case
def from_safetensors_every_dtype(rng):
    """Every element type that MindSpore reads there."""
    kinds = [d for d in values.TRANSFORMED if d != "BFloat16"]
    shapes = {f"p.{d.lower()}": (8, 6) for d in kinds}
    return rows_to_columns(rng, shapes, dict(zip(shapes, kinds)), expect="transform", **SAFE)


@case
def from_safetensors_bfloat16(rng):
    """bfloat16, which MindSpore 2.10 cannot read there with numpy 2.4."""
    return rows_to_columns(rng, {"w": (8, 4)}, "BFloat16", expect="model", **SAFE)


@case
def from_safetensors_float8(rng):
    """float8, which the library knows; MindSpore does not load what it saves of it."""
    kinds = {"a": "Float8E4M3FN", "b": "Float8E5M2"}
    return rows_to_columns(rng, {n: (8, 4) for n in kinds}, kinds, expect="model", loadable=False,
                           **SAFE)


@case
def from_safetensors_int4(rng):
    """Int4, which only the metadata tells from Int8; MindSpore forgets it."""
    step = [("scale", lambda: random_value(rng, "Int4", (3,)))]
    shapes = {"w": (8, 4), "v": (4, 4)}
    return rows_to_columns(rng, shapes, {"w": "Int4", "v": "Int8"}, extras=step, expect="model",
                           **SAFE)


@case
def from_safetensors_order(rng):
    """The header's order (by dtype, then name) is not the one that MindSpore gets, which is by name."""
    kinds = {"z": "Float64", "a": "Float32", "m": "Int8", "q": "Int64", "B": "Float16", "é": "Bool"}
    extras = [("zz.step", lambda: random_value(rng, "Int32", ())),
              ("aa.rate", lambda: random_value(rng, "Float32", ())),
              ("mm.state", lambda: random_value(rng, "Int16", (3,)))]
    return rows_to_columns(rng, {n: (8, 4) for n in kinds}, kinds, extras=extras,
                           expect="transform", **SAFE)


@case
def from_safetensors_empty_tensors(rng):
    """Tensors without elements: in the source's files, not in .ckpt files."""
    extras = [("nothing", lambda: random_value(rng, "Float32", (0, 3))),
              ("step", lambda: random_value(rng, "Int64", ()))]
    return matmuls(rng, 4, 2, "transform", extras=extras, **SAFE)


@case
def from_safetensors_merged(rng):
    """No destination strategy."""
    out = rows_to_columns(rng, {"w": (8, 4), "v": (4, 2)}, "Float32", expect="transform", **SAFE)
    out.dst = None
    return out


@case
def from_safetensors_cut(rng):
    """No source strategy."""
    dst = strategy([("w", (8, 4), Layout([4], [0, -1])), ("v", (4, 2), Layout([2, 2], [1, 0]))])
    return build(rng, None, dst, expect="transform", **SAFE)


@case
def from_safetensors_optimizer_shard(rng):
    """An optimizer shard in safetensors."""
    src = strategy([("w", (24, 16), Layout([2, 4], [1, -1], -1)), ("b", (4,), Layout([2, 4], [-1]))])
    dst = strategy([("w", (24, 16), Layout([4], [-1, 0])), ("b", (4,), Layout([4], [0]))])
    return build(rng, src, dst, expect="transform", **SAFE)


@case
def from_safetensors_no_part(rng):
    """Fewer parameters in the source strategy: a stage of its own for .ckpt, nothing special here."""
    src = strategy([("w", (8, 4), Layout([2], [0, -1]))])
    dst = strategy([("w", (8, 4), Layout([2], [-1, 0])), ("v", (8, 4), Layout([2], [-1, 0]))])
    return build(rng, src, dst, expect="transform", **SAFE)


@case
def from_safetensors_pipeline(rng):
    """Two stages to two others."""
    rows = [("w", (8, 4), 0), ("v", (4, 8), 1), ("u", (4, 4), 0), ("t", (8, 8), 1)]
    src = strategy([(n, s, Layout([2], [0, -1]), k) for n, s, k in rows])
    dst = strategy([(n, s, Layout([4], [-1, 0]), k) for n, s, k in rows])
    return build(rng, src, dst, **SAFE)


@case
def from_safetensors_last_by_numbers(rng):
    """Of several files the one whose name ends with the greatest numbers."""
    out = matmuls(rng, 2, 2, "transform", source_names=lambda rank: "net-10_2.safetensors", **SAFE)

    def prepare(folder):
        for rank in out.files:
            other = [(n, random_value(rng, v.dtype, v.shape)) for n, v in out.files[rank]]
            values.save_safetensors(os.path.join(folder, f"rank_{rank}", "net-9_2.safetensors"), other)

    out.prepare = prepare
    return out


# ---- checksums ----

def steps(rng):
    """Scalars of which the checksum counts something else than their bytes, and some of which it does not."""
    return [("global_step", lambda: Value("Int32", np.array(1000, np.int32))),
            ("epoch", lambda: Value("UInt8", np.array(3, np.uint8))),
            ("far", lambda: Value("Int64", np.array(123456789, np.int64))),
            ("none", lambda: Value("Int64", np.array(0, np.int64))),
            ("rate", lambda: random_value(rng, "Float32", ())),
            ("on", lambda: Value("Bool", np.array(True))),
            ("one", lambda: Value("Int32", np.array([7], np.int32)))]


@case
def from_safetensors_crc(rng):
    """Checksums in the metadata, which are verified first."""
    kinds = {"w": "Float32", "v": "Int8", "Z": "Float16", "ü": "Int64"}
    return rows_to_columns(rng, {n: (8, 4) for n in kinds}, kinds, extras=steps(rng), crc=True,
                           options={"check": "crc"}, expect="transform", **SAFE)


@case
def ckpt_crc(rng):
    """Checksums in trailers, which are verified first; one file is longer than what is read at once."""
    out = rows_to_columns(rng, {"w": (8, 4), "v": (1024, 1024)}, {"w": "Float32", "v": "Int32"},
                          extras=steps(rng), crc=True, expect="transform")
    out.options = {"check": "crc"}
    return out


def damaged(rng, form):
    out = matmuls(rng, 2, 2, "refuse", crc=True, source_format=form, options={"check": "crc"},
                  refusal="the file is damaged: it says that its crc_num is ")

    def prepare(folder):
        path = os.path.join(folder, "rank_1", f"net_1.{form}")
        os.chmod(path, 0o600)
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) - 100)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 1]))

    out.prepare = prepare
    return out


@case
def ckpt_crc_wrong(rng):
    """A byte of a .ckpt file was changed after its checksum was made."""
    return damaged(rng, "ckpt")


@case
def safetensors_crc_wrong(rng):
    """The same of a safetensors file."""
    return damaged(rng, "safetensors")


@story
def crc_of_files_without(rng, folder):
    """Files without a checksum: MindSpore warns, and so does the log."""
    named = [("w", random_value(rng, "Float32", (4, 8)))]
    values.save_safetensors(os.path.join(folder, "src", "rank_0", "net.safetensors"), named)
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"), named)
    return Story({"format": "ckpt", "check": "crc"}, expected=os.path.join(folder, "expected"),
                 says=("has no checksum, so check=crc does not verify this file",))


# ---- unsharded folders ----

def write_expected(folder, src, dst, named, prefix="checkpoint_"):
    """The model's files of an unsharded source with these values in this order."""
    target = Target(src, dst, {0: named}, prefix, "safetensors")
    for rank in range(target.ranks):
        values.save(os.path.join(folder, "expected", target.file_name(rank)), target.contents(rank))
    dst.write(os.path.join(folder, "dst.ckpt"))
    return Story({"dst_strategy": os.path.join(folder, "dst.ckpt")},
                 expected=os.path.join(folder, "expected"))


def model_values(rng):
    kinds = {"model.embed": "Float32", "lm_head": "BFloat16", "model.layers.1.w": "Float16",
             "model.layers.0.w": "BFloat16", "model.layers.0.norm": "Float32"}
    return [(n, random_value(rng, d, (8, 4))) for n, d in kinds.items()]


def model_strategy(named):
    return strategy([(n, v.shape, Layout([2], [0, -1] if i % 2 else [-1, 0]))
                     for i, (n, v) in enumerate(named)])


def write_library(path, named, metadata=None):
    """By the real library, as transformers does."""
    from safetensors import serialize_file
    os.makedirs(os.path.dirname(path), exist_ok=True)
    serialize_file({n: {"dtype": values.NUMPY_NAMES.get(v.dtype, v.data.dtype.name), "shape": v.shape,
                        "data": v.data.tobytes()} for n, v in named}, path, metadata or {"format": "pt"})


def by_name(named):
    return sorted(named, key=lambda x: x[0])


@story
def from_huggingface_one_file(rng, folder):
    """model.safetensors."""
    named = model_values(rng)
    write_library(os.path.join(folder, "src", "model.safetensors"), named)
    with open(os.path.join(folder, "src", "config.json"), "w") as f:
        f.write("{}")
    out = write_expected(folder, None, model_strategy(named), by_name(named))
    out.options["format"] = "ckpt"
    return out


def write_huggingface(folder, named, parts=3, index="model.safetensors.index.json"):
    """As save_pretrained does: parts in the order of the model, the index sorted."""
    weight_map = {}
    for k in range(parts):
        name = f"model-{k + 1:05}-of-{parts:05}.safetensors"
        write_library(os.path.join(folder, name), named[k::parts])
        weight_map.update({n: name for n, _ in named[k::parts]})
    body = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    with open(os.path.join(folder, index), "w") as f:
        f.write(json.dumps(body, indent=2, sort_keys=True) + "\n")
    return weight_map


@story
def from_huggingface_parts(rng, folder):
    """model-0000x-of-0000y.safetensors with an index, in whose order the parameters are."""
    named = model_values(rng)
    write_huggingface(os.path.join(folder, "src"), named)
    out = write_expected(folder, None, model_strategy(named), by_name(named))
    out.options["format"] = "ckpt"
    return out


@story
def from_huggingface_tensor_missing(rng, folder):
    """The index names a file that does not have the parameter."""
    named = model_values(rng)
    src = os.path.join(folder, "src")
    write_huggingface(src, named)
    write_library(os.path.join(src, "model-00002-of-00003.safetensors"), named[4:])
    out = write_expected(folder, None, model_strategy(named), by_name(named))
    out.refusal, out.expected = "model-00002-of-00003.safetensors, but is not", ""
    return out


@story
def from_huggingface_tensor_twice(rng, folder):
    """A parameter in two parts."""
    named = model_values(rng)
    src = os.path.join(folder, "src")
    write_huggingface(src, named)
    write_library(os.path.join(src, "model-00002-of-00003.safetensors"), named[0:1] + named[1::3])
    out = write_expected(folder, None, model_strategy(named), by_name(named))
    out.refusal, out.expected = "only one of the two can count", ""
    return out


# ---- unified_safetensors ----

def write_unified(rng, folder, parts, kinds=None):
    """The real unified_safetensors of a tree; parts: as many files, which it makes of 3 GiB each, so that it is
    told other sizes. The values by name."""
    from mindspore.parallel import transform_safetensors as module
    kinds = kinds or {"z.w": "Float64", "a.w": "Float32", "m.w": "Int8", "b.w": "Float32"}
    extras = [("step", lambda: Value("Int32", np.array(5, np.int32))),
              ("accu_grads.w", lambda: random_value(rng, "Float32", (4,))),
              ("rate", lambda: Value("Float32", np.array(.5, np.float32)))]
    tree = rows_to_columns(rng, {n: (8, 4) for n in kinds}, kinds, n=2, extras=extras, **SAFE)
    for rank, named in tree.files.items():
        values.save_safetensors(os.path.join(folder, "tree", f"rank_{rank}", "net.safetensors"), named)
    tree.src.write(os.path.join(folder, "src.ckpt"))
    real = module._cal_param_size
    module._cal_param_size = lambda shape, dtype: 3 * parts * (1 << 30) // len(kinds)
    try:
        with oracle.silence():
            module.unified_safetensors(os.path.join(folder, "tree"), os.path.join(folder, "src.ckpt"),
                                       os.path.join(folder, "src"))
    finally:
        module._cal_param_size = real
    found = sorted(f for f in os.listdir(os.path.join(folder, "src")) if f.startswith("part"))
    assert len(found) == parts, found
    shutil.rmtree(os.path.join(folder, "tree"))
    whole = dict(tree.fulls)
    whole.update({n: v for n, v in tree.files[0] if n in ("step", "rate", "accu_grads.w")})
    return whole


def load_distributed(folder, dst, ranks, form="ckpt"):
    """What load_distributed_checkpoint writes of a unified folder."""
    import mindspore as ms
    for rank in range(ranks):
        with oracle.silence():
            ms.load_distributed_checkpoint(
                None, predict_strategy=dst, format="safetensors",
                unified_safetensors_dir=os.path.join(folder, "src"),
                dst_safetensors_dir=os.path.join(folder, "out"), rank_id=rank, output_format=form)


def moved(folder, ranks, form="ckpt"):
    for rank in range(ranks):
        os.makedirs(os.path.join(folder, "expected", f"rank_{rank}"))
        os.rename(os.path.join(folder, "out", f"rank_{rank}", f"net.{form}"),
                  os.path.join(folder, "expected", f"rank_{rank}", f"checkpoint_{rank}.{form}"))
    return os.path.join(folder, "expected")


@story
def from_unified_as_it_is(rng, folder):
    """Three parts and hyper_param.safetensors, without a strategy: what load_distributed_checkpoint writes."""
    write_unified(rng, folder, 3)
    load_distributed(folder, None, 1)
    return Story({"format": "ckpt"}, expected=moved(folder, 1))


@story
def from_unified_one_part(rng, folder):
    """One part, which makes two files with hyper_param.safetensors."""
    write_unified(rng, folder, 1)
    load_distributed(folder, None, 1)
    return Story({"format": "ckpt"}, expected=moved(folder, 1))


@story
def from_unified_cut(rng, folder):
    """Cut for four ranks. MindSpore lists the parameters as its strategy does, so that values are compared."""
    import mindspore as ms
    whole = write_unified(rng, folder, 2)
    names = ["b.w", "z.w", "m.w", "a.w"]
    dst = strategy([(n, (8, 4), Layout([2, 2], [1, 0])) for n in names])
    dst.write(os.path.join(folder, "dst.ckpt"))
    load_distributed(folder, os.path.join(folder, "dst.ckpt"), 4)
    assert set(whole) == set(names) | {"step", "rate", "accu_grads.w"}

    def check(path):
        for rank in range(4):
            got = ms.load_checkpoint(os.path.join(path, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
            want = ms.load_checkpoint(os.path.join(folder, "out", f"rank_{rank}", "net.ckpt"))
            assert {n: values.loaded_bytes(v) for n, v in got.items()} == \
                {n: values.loaded_bytes(v) for n, v in want.items()}, rank

    return Story({"dst_strategy": os.path.join(folder, "dst.ckpt")}, check=check)


@story
def from_unified_unlisted(rng, folder):
    """A tensor that param_name_map.json does not list is not read, by MindSpore and here; the log says so."""
    write_unified(rng, folder, 2)
    path = os.path.join(folder, "src", "param_name_map.json")
    with open(path) as f:
        body = json.load(f)
    del body["weight_map"]["a.w"]
    with open(path, "w") as f:
        json.dump(body, f)
    load_distributed(folder, None, 1)
    return Story({"format": "ckpt"}, expected=moved(folder, 1), says=("left out, as MindSpore",))


# ---- segmented folders ----

def write_segments(rng, folder, names):
    """rank_0 and rank_1 of parts; names: the parameters of each."""
    for rank in (0, 1):
        for k, part in enumerate(names):
            named = [(n, random_value(rng, "Float32", (4, 4))) for n in part]
            values.save(os.path.join(folder, "src", f"rank_{rank}", f"net_{rank}_part{k}.ckpt"), named)
    src = strategy([(n, (8, 4), Layout([2], [0, -1])) for part in names for n in part])
    src.write(os.path.join(folder, "src.ckpt"))


def same_as_loaded(folder, **more):
    """Each file through the mount has what load_segmented_checkpoints gives. (It lists the folder in any
    order.)"""
    import mindspore as ms

    def check(path):
        for rank in (0, 1):
            got = ms.load_checkpoint(os.path.join(path, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
            want = ms.load_segmented_checkpoints(os.path.join(folder, "src", f"rank_{rank}"), **more)
            assert {n: values.loaded_bytes(v) for n, v in got.items()} == \
                {n: values.loaded_bytes(v) for n, v in want.items()}, rank

    return check


@story
def segments(rng, folder):
    """Sub-network checkpoints of one folder, and the union that MindSpore loads."""
    write_segments(rng, folder, [["a.w", "b.w"], ["c.w"], ["d.w", "e.w"]])
    same = os.path.join(folder, "src.ckpt")
    return Story({"src_strategy": same, "dst_strategy": same, "segmented": None},
                 check=same_as_loaded(folder))


@story
def segments_without(rng, folder):
    """The same with prefixes left out, as by filter_prefix."""
    write_segments(rng, folder, [["a.w", "b.w"], ["c.w"], ["d.w", "adam.e", "e.w"]])
    same = os.path.join(folder, "src.ckpt")
    return Story({"src_strategy": same, "dst_strategy": same, "segmented": None,
                  "segmented_skip": "b.:adam"}, check=same_as_loaded(folder, filter_prefix=["b.", "adam"]))
