#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshard verify, stats, diff and get against what numpy, ml_dtypes and xxhash say of the same whole arrays, and headers
of safetensors files against the library (headers.py).

Arrays of every element type are cut here over four ranks (two that cut, two that repeat) and written as safetensors
files by hand, because the library's numpy side knows no float8 and no bfloat16.
"""
import io
import json
import os
import random
import struct
import sys
import time
import warnings

import ml_dtypes
import numpy as np
import xxhash

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(here), folder) for folder in ("mount", "support")]

import harness
import headers
from harness import check, equal, folder, run

DTYPES = {
    "BOOL": np.bool_, "I8": np.int8, "U8": np.uint8, "I16": np.int16, "U16": np.uint16, "I32": np.int32,
    "U32": np.uint32, "I64": np.int64, "U64": np.uint64, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F32": np.float32, "F64": np.float64, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
}
FLOATS = [name for name in DTYPES if "F" in name]
RULES = "axes dp=2 tp=2;*.rows: axis 0 over tp;*.columns: axis 1 over tp;*.both: axis 0 over dp and axis 1 over tp;*: whole"
TREE = ["-o", "src_ranks=4,src_rules=" + RULES.replace(",", "\\,")]

seed = int(os.environ.get("RFS_SEED") or time.time())
rng = np.random.default_rng(seed)
chance = random.Random(seed)


def array(dtype, shape):
    """Values of all sizes; floats with every kind of special ones."""
    kind = DTYPES[dtype]
    n = int(np.prod(shape))
    if dtype == "BOOL":
        return rng.integers(0, 2, n).astype(kind).reshape(shape)
    if dtype not in FLOATS:
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, n, dtype=kind, endpoint=True).reshape(shape)
    values = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 2, n)).astype(kind)
    if n > 20 and chance.random() < 0.7:
        values[rng.integers(0, n, 5)] = np.nan
        values[rng.integers(0, n, 5)] = 0
        values[rng.integers(0, n, 3)] = np.inf
        values[rng.integers(0, n, 3)] = -np.inf
    return values.reshape(shape)


def write(path, arrays, dtypes):
    header, data = {}, b""
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    for name in names:
        raw = np.ascontiguousarray(arrays[name]).tobytes()
        header[name] = {"dtype": dtypes[name], "shape": list(arrays[name].shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def piece(name, whole, rank):
    """A rank's slice, as the rules above have it: rank = 2 * dp + tp."""
    dp, tp = divmod(rank, 2)
    kind = name.rsplit(".", 1)[1]
    if kind == "rows":
        return np.split(whole, 2, 0)[tp]
    if kind == "columns":
        return np.split(whole, 2, 1)[tp]
    if kind == "both":
        return np.split(np.split(whole, 2, 0)[dp], 2, 1)[tp]
    return whole


def model():
    """Names, whole arrays, element types."""
    arrays, dtypes = {}, {}
    shapes = {"rows": (32, 17), "columns": (9, 64), "both": (20, 12), "all": (7, 5)}
    for dtype in DTYPES:
        for kind, shape in shapes.items():
            name = f"{dtype.lower()}.{kind}"
            arrays[name], dtypes[name] = array(dtype, shape), dtype
    for dtype in ("F32", "BF16", "F8_E4M3", "U8"):  # of several pieces
        name = f"large.{dtype.lower()}.columns"
        arrays[name], dtypes[name] = array(dtype, (3000, 1602)), dtype
    return arrays, dtypes


def write_tree(path, arrays, dtypes):
    for rank in range(4):
        write(f"{path}/rank_{rank}/net.safetensors", {n: piece(n, a, rank) for n, a in arrays.items()}, dtypes)


def ask(*arguments, status=0):
    got = run(harness.reshard, *arguments)
    check(got.returncode == status, f"{arguments}: exit {got.returncode}: {got.stderr[:500]}{got.stdout[:500]}")
    return got.stdout


def near(got, want, scale, what):
    if want is None or not np.isfinite(want):
        return
    check(got is not None and abs(got - float(want)) <= 1e-12 * float(scale), f"{what}: {got}, numpy {want!r}")


def test_checksums_are_those_of_tobytes():
    arrays, dtypes = model()
    tree, whole = folder("tree"), folder("whole")
    write_tree(tree, arrays, dtypes)
    write(whole + "/model.safetensors", arrays, dtypes)
    want = {name: xxhash.xxh3_128_hexdigest(np.ascontiguousarray(a).tobytes()) for name, a in arrays.items()}
    for arguments in ([tree, *TREE], [whole], [tree, *TREE, "-j", "1", "--no-replicas"]):
        lines = ask("verify", *arguments, "--list").splitlines()[:len(arrays)]
        equal({name: hash_ for hash_, name in (line.split("  ") for line in lines)}, want, f"hashes of {arguments[0]}")
    manifest = harness.place + "/manifest.json"
    ask("verify", tree, *TREE, "--manifest", manifest)
    with open(manifest, encoding="utf-8") as file:
        listed = json.load(file)["tensors"]
    equal({t["name"]: t["xxh3_128"] for t in listed}, want, "the manifest")
    equal({t["name"]: t["shape"] for t in listed}, {n: list(a.shape) for n, a in arrays.items()}, "shapes")
    ask("verify", whole, "--manifest", manifest)
    got = json.loads(ask("verify", tree, "--against", whole, "--tree-options",
                         TREE[1], "--json"))
    equal((got["equal"], got["differences"]), (True, []), "the tree against the whole")


def test_each_flipped_bit_is_found_where_it_is():
    arrays, dtypes = model()
    arrays = {name: a for name, a in arrays.items() if a.size < 5000}
    dtypes = {name: dtypes[name] for name in arrays}
    tree, whole = folder("tree"), folder("whole")
    write_tree(tree, arrays, dtypes)
    write(whole + "/model.safetensors", arrays, dtypes)
    for _ in range(12):
        rank = chance.randrange(4)
        name = chance.choice(sorted(arrays))
        path = f"{tree}/rank_{rank}/net.safetensors"
        with open(path, "rb") as file:
            before = file.read()
        header_bytes = struct.unpack("<Q", before[:8])[0]
        begin, end = json.loads(before[8:8 + header_bytes])[name]["data_offsets"]
        at = 8 + header_bytes + begin + chance.randrange(end - begin)
        with open(path, "wb") as file:
            file.write(before[:at] + bytes([before[at] ^ 1 << chance.randrange(8)]) + before[at + 1:])
        size = arrays[name].dtype.itemsize
        got = json.loads(ask("verify", tree, "--against", whole, "--tree-options", TREE[1], "--json", status=1))
        check(len(got["differences"]) == 1, f"{name} in rank {rank}: {got['differences']}")
        found = got["differences"][0]
        # The offset is that of the byte, and the index that of the element in the whole array.
        local = (at - 8 - header_bytes - begin) // size
        numbers = np.arange(arrays[name].size).reshape(arrays[name].shape)
        index = np.unravel_index(piece(name, numbers, rank).ravel()[local], arrays[name].shape)
        equal((found["what"], found["name"], found["rank"], found["file"], found["offset"], found["index"]),
              ("bytes", name, rank, os.path.realpath(path), at, [int(i) for i in index]), "the difference")
        alone = json.loads(ask("verify", tree, *TREE, "--json", status=0 if name.endswith(".both") else 1))
        check(name.endswith(".both") or alone["differences"][0]["what"] == "replica", "replicas among themselves")
        with open(path, "wb") as file:
            file.write(before)
    ask("verify", tree, "--against", whole, "--tree-options", TREE[1])


def test_stats_are_numpys():
    arrays, dtypes = model()
    tree = folder("tree")
    write_tree(tree, arrays, dtypes)
    rows = {row["name"]: row for row in json.loads(ask("stats", tree, *TREE, "--json"))["rows"]}
    equal(set(rows), set(arrays), "names")
    equal(ask("stats", tree, *TREE, "--json", "-j", "1"), ask("stats", tree, *TREE, "--json", "-j", "7"), "threads")
    for name, a in arrays.items():
        row = rows[name]
        values = a.astype(np.longdouble).ravel()
        finite = values[np.isfinite(values)]
        equal((row["count"], row["nan"], row["inf"], row["neg_inf"], row["zeros"]),
              (a.size, int(np.isnan(values).sum()), int(np.isposinf(values).sum()), int(np.isneginf(values).sum()),
               int((values == 0).sum())), f"counts of {name}")
        if dtypes[name] in FLOATS or dtypes[name] == "BOOL":
            equal((row["min"], row["max"]), (float(finite.min()), float(finite.max())), f"extremes of {name}")
        else:
            equal((row["min"], row["max"]), (int(a.min()), int(a.max())), f"extremes of {name}")
        scale = np.abs(finite).max()
        near(row["mean"], finite.mean(), scale, f"mean of {name}")
        near(row["std"], finite.std(), scale, f"std of {name}")


def perturbed(name, a, dtype):
    """Something near, and what type it is of."""
    if dtype not in FLOATS:
        b = a.copy()
        b.ravel()[rng.integers(0, a.size, 3)] ^= np.array(1, a.dtype) if dtype != "BOOL" else np.True_
        return b, dtype
    to = chance.choice(FLOATS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (a.astype(np.float64) * (1 + rng.standard_normal(a.shape) * 1e-3)).astype(DTYPES[to]), to


def test_differences_are_numpys():
    arrays, dtypes = model()
    tree, whole = folder("tree"), folder("whole")
    write_tree(tree, arrays, dtypes)
    others = {name: perturbed(name, a, dtypes[name]) for name, a in arrays.items()}
    write(whole + "/model.safetensors", {n: b for n, (b, _) in others.items()}, {n: t for n, (_, t) in others.items()})
    rtol, atol = 2e-3, 1e-4
    got = json.loads(ask("diff", tree, whole, *TREE, "--json", "--rtol", str(rtol), "--atol", str(atol), "--any-dtype",
                         status=1))
    for row in got["rows"]:
        name = row["name"]
        long = dtypes[name] in ("I64", "U64")
        a = arrays[name].ravel().astype(object if long else np.float64)
        b = others[name][0].ravel().astype(object if long else np.float64)
        if long:
            far = [abs(int(x) - int(y)) for x, y in zip(a, b)]
            equal(row["equal"], sum(f == 0 for f in far), f"equal of {name}")
            equal(row["max_abs"], float(max(far)), f"difference of {name}")
            continue
        equal((row["nan_a"], row["nan_b"]), (int(np.isnan(a).sum()), int(np.isnan(b).sum())), f"NaN of {name}")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        equal((row["equal"], row["beyond"]), (int(same.sum()), int((~close).sum())), f"counts of {name}")
        equal((row["inf_a"], row["inf_b"]), (int(np.isinf(a).sum()), int(np.isinf(b).sum())), f"infinities of {name}")
        pairs = np.isfinite(a) & np.isfinite(b)
        x, y = a[pairs], b[pairs]
        far = np.abs(x - y)
        with np.errstate(all="ignore"):
            apart = np.isinf(np.abs(a - b)[~pairs & ~same]).any()  # JSON has no infinity
        equal(row["max_abs"], None if apart else float(far.max(initial=0)), f"difference of {name}")
        equal(row["max_rel"], None if apart else float((far[y != 0] / np.abs(y[y != 0])).max(initial=0)),
              f"relative difference of {name}")
        wide = [v.astype(np.longdouble) for v in (x, y)]
        size = np.sqrt((wide[0] ** 2).sum()) * np.sqrt((wide[1] ** 2).sum())
        if not same[~pairs].all():
            equal(row["cosine"], None, f"cosine of {name}")
        elif size > 0:
            near(row["cosine"], (wide[0] * wide[1]).sum() / size, 1, f"cosine of {name}")
        equal(row["state"], "same" if close.all() else "different", f"state of {name}")


def saved(array):
    """The file of numpy.save."""
    out = io.BytesIO()
    np.save(out, array.copy(order="C"))
    return out.getvalue()


def test_get_is_numpys_save():
    arrays, dtypes = model()
    arrays["f32.one.all"], dtypes["f32.one.all"] = array("F32", ()), "F32"
    tree, out = folder("tree"), harness.place + "/tensor.npy"
    write_tree(tree, arrays, dtypes)
    ranks = ["-o", TREE[1] + ",dst_ranks=2,dst_rules=*.rows: axis 0 over all;*.columns: axis 1 over all;*: whole"]
    for name, whole in arrays.items():
        kind, rank = name.rsplit(".", 1)[1], chance.randrange(2)
        part = np.split(whole, 2, "rows columns".split().index(kind))[rank] if kind in ("rows", "columns") else whole
        for arguments, want in ([*TREE, "-j", "3"], whole), ([*ranks, "--rank", str(rank)], part):
            ask("get", tree, name, out, "--force", *arguments)
            with open(out, "rb") as file:
                got = file.read()
            if dtypes[name] == "F8_E5M2":  # numpy takes it for a type of its own there, which it does not have
                got, want = got[-want.size:] if want.size else b"", want.tobytes()
            check(got == (want if isinstance(want, bytes) else saved(want)), f"{name} of {arguments}")


def test_headers_of_safetensors():
    headers.compare_views(*headers.compare_with_library(seed))


def main():
    tests = [("numbers_" + n[5:], f) for n, f in globals().items() if n.startswith("test_")]
    if "--list" in sys.argv:
        print(*(name for name, _ in tests), sep="\n")
        return 0
    print(f"RFS_SEED={seed}")
    return harness.run_all(tests, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
