# SPDX-License-Identifier: Apache-2.0
"""PyTorch loads safetensors files of MindSpore's checkpoints through a mount."""
import json
import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from forge import Param, Tree, WHOLE, cut
from harness import *

INDEX = "model.safetensors.index.json"
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
    with open(os.path.join(mnt, INDEX), encoding="utf-8") as f:
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


def layered():
    """Layers of every type, one with odd bytes that would move all that follows off its alignment."""
    params = [Param("lm_head.weight", (64, 16), 0, 1, "Float16"), Param("model.norm.weight", (16,), WHOLE, WHOLE)]
    for i in reversed(range(12)):
        params += [Param(f"model.layers.{i}.mlp.weight", (32, 16), i % 2, 0, "Float16"),
                   Param(f"model.layers.{i}.scale", (), WHOLE, WHOLE), Param(f"model.layers.{i}.zero", (1,), WHOLE, WHOLE),
                   Param(f"model.layers.{i}.count", (3 if i == 2 else 8,), WHOLE, WHOLE, "Int8"),
                   Param(f"model.layers.{i}.limits", (2,), WHOLE, WHOLE, "Float64")]
    return Tree(folder("tree"), params + [Param("model.embed_tokens.weight", (64, 16), 1, 0, "Float16")], 4, 2)


def names_in_file(path):
    """In the order of the data, of which each begins at a multiple of its element."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    header.pop("__metadata__")
    for name, tensor in header.items():
        equal(tensor["data_offsets"][0] % {"F64": 8, "F32": 4, "F16": 2, "I8": 1}[tensor["dtype"]], 0, name)
    equal(sorted(header, key=lambda name: header[name]["data_offsets"]), list(header), "the header's order")
    return list(header)


def in_layers():
    of_layer = ("limits", "scale", "zero", "mlp.weight", "count")
    return ["model.embed_tokens.weight", *(f"model.layers.{i}.{name}" for i in range(12) for name in of_layer),
            "model.norm.weight", "lm_head.weight"]


def with_late(names):
    """What would move others off their alignment is at the end."""
    late = [f"model.layers.2.{name}" for name in ("scale", "zero", "count")]
    return [name for name in names if name not in late] + [name for name in late if name in names]


def test_safetensors_by_layers():
    t = layered()
    with Mount(t.src, t.options("format=safetensors,order=layers")) as m:
        for rank in (0, 1):
            path = os.path.join(m.mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors")
            equal(names_in_file(path), with_late(in_layers()), "the order")
            compare(load_file(path), t, lambda p, rank=rank: cut(p, p.dst, 2, rank, t.full[p.name]))
    whole = t.options().split(",")[0]
    with Mount(t.src, f"{whole},view=huggingface,file_size=3K,order=layers") as m:
        look_at_parts(t, m.mnt)
        found = [names_in_file(os.path.join(m.mnt, name)) for name in sorted(os.listdir(m.mnt)) if name != INDEX]
    check(len(found) > 5, str(found))
    equal(sorted(found, key=lambda names: in_layers().index(names[0])), found, "the files")
    equal(sorted(sum(found, []), key=in_layers().index), in_layers(), "all")
    for one in found:
        check(one in (with_late(sorted(one, key=in_layers().index)), sorted(one, key=in_layers().index)), str(one))


def test_orders_have_the_same_tensors():
    t = layered()
    whole, places = t.options().split(",")[0], folder("both")
    for view in ("huggingface", "unified"):
        program, layers = (os.path.join(places, f"{view}-{order}") for order in ("program", "layers"))
        for order, place in (("program", program), ("layers", layers)):
            done = run(reshard, "export", t.src, place, "-o", f"{whole},view={view},file_size=9K,order={order}")
            equal(done.returncode, 0, done.stderr)
        loaded = [load_file(os.path.join(layers, name)) for name in os.listdir(layers) if name.endswith(".safetensors")]
        compare({n: x for one in loaded for n, x in one.items()}, t, lambda p: (p.shape, t.full[p.name]))
        for one, other in ((program, layers), (layers, program)):
            done = run(reshard, "verify", one, "--against", other)
            equal((done.returncode, done.stderr), (0, ""), done.stdout)


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
