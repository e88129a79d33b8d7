# SPDX-License-Identifier: Apache-2.0
"""PyTorch loads safetensors files of MindSpore's checkpoints through a mount."""
import json
import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from forge import Param, Tree, WHOLE, cut
from harness import *

KINDS = {"Float32": torch.float32, "Float16": torch.float16, "Int32": torch.int32, "Int8": torch.int8,
         "Float64": torch.float64}


def tree():
    """Of every type that both sides have, several MiB."""
    params = [Param(f"model.{dtype.lower()}", (256, 1024), i % 2, (i + 1) % 2, dtype)
              for i, dtype in enumerate(KINDS)]
    return Tree(folder("tree"), params + [Param("bias", (24,), WHOLE, WHOLE)], 4, 2)


def bytes_of(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b""


def compare(loaded, t, slices):
    equal(sorted(loaded), sorted(p.name for p in t.params), "names")
    for p in t.params:
        shape, data = slices(p)
        equal((list(loaded[p.name].shape), loaded[p.name].dtype), (list(shape), KINDS[p.dtype]), p.name)
        same_bytes(bytes_of(loaded[p.name]), data, p.name)


# What was loaded keeps its file mapped, so it must be gone before the mount can be.
def look_at_rank(t, path, rank):
    def of_rank(p):
        return cut(p, p.dst, 2, rank, t.full[p.name])

    whole = load_file(path)
    compare(whole, t, of_rank)
    with safe_open(path, framework="pt") as f:
        compare({name: f.get_tensor(name) for name in f.keys()}, t, of_rank)
        part = f.get_slice("model.float32")[100:200, 7:9]
    want = whole["model.float32"][100:200, 7:9]
    same_bytes(bytes_of(part), bytes_of(want), "a slice")


def test_safetensors_of_ranks():
    t = tree()
    with Mount(t.src, t.options("format=safetensors")) as m:
        for rank in (0, 1):
            look_at_rank(t, os.path.join(m.mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors"), rank)


def look_at_parts(t, mnt):
    with open(os.path.join(mnt, "model.safetensors.index.json"), encoding="utf-8") as f:
        index = json.load(f)["weight_map"]
    check(len(set(index.values())) > 1, str(index))
    loaded = {}
    for name in sorted(set(index.values())):
        loaded.update(load_file(os.path.join(mnt, name)))
    compare(loaded, t, lambda p: (p.shape, t.full[p.name]))


def test_safetensors_of_huggingface():
    t = tree()
    options = ",".join([t.options().split(",")[0], "view=huggingface,file_size=2M"])
    with Mount(t.src, options) as m:
        look_at_parts(t, m.mnt)


def test_got_is_what_save_file_writes():
    """One tensor by reshard get, of every type and of odd shapes and names: the bytes of the library's save_file."""
    torch.manual_seed(1)
    tensors = {f"of.{dtype}": torch.randint(0, 2, (3, 5)).to(getattr(torch, dtype)) for dtype in
               ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool",
                "float8_e4m3fn", "float8_e5m2") if hasattr(torch, dtype)}
    tensors |= {"scalar": torch.tensor(1.5), "none": torch.zeros(0, 4), "a\u00e9 \"b\"/\\c": torch.arange(7),
                "large": torch.randn(1500, 2001)}
    place = folder("one")
    save_file(tensors, os.path.join(place, "all.safetensors"), metadata={"format": "pt"})
    for name, tensor in tensors.items():
        want, got = os.path.join(place, "want"), os.path.join(place, "got.safetensors")
        save_file({name: tensor}, want)
        done = run(reshard, "get", os.path.join(place, "all.safetensors"), name, got, "--force")
        equal((done.returncode, done.stderr), (0, ""), f"the exit status of {name}")
        with open(want, "rb") as a, open(got, "rb") as b:
            same_bytes(b.read(), a.read(), name)
