# SPDX-License-Identifier: Apache-2.0
"""Casts of conversion rules, and dtype=, with tensor.to() as the judge.

Of numbers PyTorch has one result. Of NaNs it has several, by version, processor and strides of the tensor: as bfloat16,
its vectors of float32 make 0xffff, and its single elements 0x7fc0, as BFloat16.h says. Float16 as float32 gives
0x7fffffff where a vector's elements end. So elements that lie apart are the judge.
"""
import os
import random
import time

import numpy as np
import safetensors_file
import torch
from harness import *

FLOATS = {"float16": ("F16", 10, 5), "bfloat16": ("BF16", 7, 8), "float32": ("F32", 23, 8), "float64": ("F64", 52, 11)}
SMALL = {"float8_e4m3fn": ("F8_E4M3", 3, 4), "float8_e5m2": ("F8_E5M2", 2, 5)}
KINDS = FLOATS | {name: kind for name, kind in SMALL.items() if hasattr(torch, name)}
BITS = {1: (np.uint8, torch.uint8), 2: (np.uint16, torch.int16), 4: (np.uint32, torch.int32), 8: (np.uint64, torch.int64)}
PAIRS = [(a, b) for a in KINDS for b in FLOATS if a != b]
ODD = 13  # so many elements too many for vectors

seed = int(os.environ.get("RFS_SEED") or time.time())


def width(kind):
    return (1 + KINDS[kind][1] + KINDS[kind][2]) // 8


def is_nan(kind, bits):
    _, fraction, exponent = KINDS[kind]
    magnitude = bits.astype(np.uint64) & np.uint64((1 << fraction + exponent) - 1)
    infinite = np.uint64(((1 << exponent) - 1) << fraction)
    return magnitude == 0x7f if kind == "float8_e4m3fn" else magnitude > infinite


def edges(kind):
    """Around each power of two, the ties of all narrower types, and NaNs of one bit."""
    _, fraction, exponent = KINDS[kind]
    patterns = set()
    for e in range(1 << exponent):
        if kind == "float64" and 40 < e < 860 or 1170 < e < 2040:
            continue
        for bit in [None, *range(fraction)]:
            at = e << fraction | (0 if bit is None else 1 << bit)
            patterns.update((at, at + 1, max(at - 1, 0)))
            if bit is not None:
                patterns.update((e << fraction | (1 << bit) - 1, e << fraction | (1 << fraction) - (1 << bit)))
                patterns.update((at | 1 << fraction - 1, at | 1, at | (1 << fraction - 1) + 1))
    patterns = {p & (1 << fraction + exponent) - 1 for p in patterns}
    return sorted(patterns | {p | 1 << fraction + exponent for p in patterns})


def halves_away(rng, count):
    """Float64 that Float32 rounds to the middle between two values of 16 bits, so that they are rounded twice."""
    middles = []
    for dropped in (13, 16):  # for float16, for bfloat16
        bits = rng.integers(0, 1 << 32, count, np.uint32) >> dropped << dropped | np.uint32(1 << dropped - 1)
        middles.append(bits)
    with np.errstate(all="ignore"):
        wide = np.concatenate(middles).view(np.float32).astype(np.float64).view(np.uint64)
    return np.concatenate([wide + np.uint64(1), wide - np.uint64(1), wide])


def patterns(kind, rng):
    size = width(kind)
    if size <= 2:
        every = np.arange(1 << 8 * size).astype(BITS[size][0])
        return np.concatenate([every, every[-ODD:]])
    some = [np.array(edges(kind), BITS[size][0]), rng.integers(0, 1 << 8 * size, 200_000, BITS[size][0])]
    fraction, exponent = KINDS[kind][1:]
    nans = rng.integers(0, 1 << 8 * size, 20_000, BITS[size][0])
    some.append(nans | BITS[size][0](((1 << exponent) - 1) << fraction))
    if kind == "float64":
        some.append(halves_away(rng, 50_000))
        with np.errstate(all="ignore"):
            some.append(some[1].astype(np.uint32).view(np.float32).astype(np.float64).view(np.uint64))
    whole = np.concatenate(some)
    return whole[:len(whole) // 32 * 32 + ODD - 32]


def bits_of(tensor):
    size = tensor.element_size()
    return tensor.contiguous().view(BITS[size][1]).numpy().view(BITS[size][0])


def by_torch(kind, to, bits):
    """As one block, and as every second element of another."""
    ints = torch.from_numpy(bits.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[width(kind)]).copy())
    block = ints.view(getattr(torch, kind))
    apart = torch.stack([ints, ints], 1).view(getattr(torch, kind))[:, 0]
    return bits_of(block.to(getattr(torch, to))), bits_of(apart.to(getattr(torch, to)))


def with_half_instructions():
    """Whether this PyTorch converts to float16 by the processor's instructions, always."""
    known = getattr(torch.backends.cpu, "get_cpu_capability", None) if hasattr(torch.backends, "cpu") else None
    return known is not None and known() in ("AVX2", "AVX512")


def look_at(kind, to, bits, got):
    block, apart = by_torch(kind, to, bits)
    nan, what = is_nan(kind, bits), f"{kind} as {to}"
    first = [int(i) for i in np.nonzero((got != block) & ~nan)[0][:1]]
    equal([(hex(bits[i]), hex(got[i]), hex(block[i])) for i in first], [], f"{what}: pattern, here, in PyTorch")
    check((block == apart)[~nan].all(), f"{what}: PyTorch has two results")
    check(is_nan(to, got)[nan].all() and is_nan(to, block)[nan].all(), f"{what}: NaNs")
    if to == "float16" and not with_half_instructions():
        check(((got ^ block) >> 15 == 0)[nan].all() or kind == "float32", f"{what}: the signs of NaNs")
        return
    first = [int(i) for i in np.nonzero((got != apart) & nan)[0][:1]]
    equal([(hex(bits[i]), hex(got[i]), hex(apart[i])) for i in first], [], f"{what}: a NaN, here, in PyTorch")


def sources(rng):
    """A folder with a tensor of each type, and what is in them."""
    place, bits = folder("floats"), {kind: patterns(kind, rng) for kind in KINDS}
    safetensors_file.write(os.path.join(place, "model.safetensors"), [
        (f"in.{kind}.{to}", KINDS[kind][0], bits[kind].shape, bits[kind].tobytes()) for kind, to in PAIRS])
    return place, bits


def compare(path, bits, name, skip=()):
    for got_name, dtype, shape, data in safetensors_file.entries(path):
        _, kind, to = got_name.split(".")
        equal((got_name.split(".")[0], dtype, shape), (name, FLOATS[to][0], [len(bits[kind])]), got_name)
        if (kind, to) not in skip:
            look_at(kind, to, bits[kind], np.frombuffer(bytes(data), BITS[width(to)][0]))


def rules_of(place, left, right, word):
    """One rule for each pair of types; WORD takes the type on the side that is shown."""
    path = os.path.join(place, "casts.rules")
    with open(path, "w", encoding="utf-8") as file:
        file.write("sides one other\n")
        file.writelines(f"{left}.{kind}.{to} = cast({word.format(to)}, {right}.{kind}.{to} [_])\n" for kind, to in PAIRS)
    with open(os.path.join(place, "config.json"), "w", encoding="utf-8") as file:
        file.write("{}")
    return f"convert={path},hf_config={place}/config.json,view=unified"


def test_casts_of_rules():
    """In both directions; every pattern of 16 bits and fewer, and many of the others."""
    print(f"RFS_SEED={seed}")
    place, bits = sources(np.random.default_rng(seed))
    for left, right, word in (("in", "out", "same, {}"), ("out", "in", "{}, same")):
        with Mount(place, rules_of(folder("rules"), left, right, word)) as m:
            compare(os.path.join(m.mnt, "part0.safetensors"), bits, "out")


def test_other_element_types():
    """dtype=, but for Float64 as 16 bits: these it rounds once, and PyTorch twice."""
    print(f"RFS_SEED={seed}")
    place, bits = sources(np.random.default_rng(seed))
    with Mount(place, "view=huggingface,dtype=" + ";".join(f"*.{to}={to}" for to in FLOATS)) as m:
        compare(os.path.join(m.mnt, "model.safetensors"), bits, "in", {("float64", "float16"), ("float64", "bfloat16")})


def test_a_cast_and_another_element_type():
    """Where dtype= names another type than the cast, the source's elements are rounded, once."""
    place = folder("both")
    value = np.array([0x3ff0100000000001], np.uint64)  # 1 + 2^-8 + 2^-52
    safetensors_file.write(os.path.join(place, "model.safetensors"), [("in.float64.bfloat16", "F64", [1], value.tobytes())])
    with open(os.path.join(place, "one.rules"), "w", encoding="utf-8") as file:
        file.write("sides one other\nin.float64.bfloat16 = cast(same, bfloat16, out [_])\n")
    with open(os.path.join(place, "config.json"), "w", encoding="utf-8") as file:
        file.write("{}")
    options = f"convert={place}/one.rules,hf_config={place}/config.json,view=huggingface"
    for more, dtype, want in (("", "BF16", 0x3f80), (",dtype=bfloat16", "BF16", 0x3f80), (",dtype=float16", "F16", 0x3c04),
                              (",dtype=keep", "BF16", 0x3f80), (",dtype=float32", "F32", 0x3f808000)):
        with Mount(place, options + more) as m:
            ((_, got, _, data),) = safetensors_file.entries(os.path.join(m.mnt, "model.safetensors"))
            equal((got, hex(int.from_bytes(data, "little"))), (dtype, hex(want)), more or "the cast alone")
