#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A small state in hfai's parts, as dist_ckpt.save writes it, made without PyTorch. Usage: save_parts.py FOLDER PARTS LARGE,
where tensors of more than LARGE bytes are cut over all parts.
"""
import io
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict


def named(module, name):
    """A callable that is pickled by this name."""
    made = type(name, (), {"__module__": module})
    setattr(sys.modules.setdefault(module, types.ModuleType(module)), name, made)
    return made


SIZE, FLOATS, REBUILD = named("torch", "Size"), named("torch", "FloatStorage"), named("torch._utils", "_rebuild_tensor_v2")


class Call:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


class Storage:
    def __init__(self, floats):
        self.floats = floats


class Pickler(pickle.Pickler):
    def __init__(self, out):
        super().__init__(out, 2)
        self.storages = []

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.storages.append(obj)
        return "storage", FLOATS, str(len(self.storages) - 1), "cpu", len(obj.floats)


def tensor(floats, *dims, strides=None):
    steps = [1]
    for extent in dims[:0:-1]:
        steps.insert(0, steps[0] * extent)
    return Call(REBUILD, Storage(floats), 0, dims, strides or tuple(steps[:len(dims)]), False, OrderedDict())


def piece(floats, part, n, *dims):
    each = -(-len(floats) // n)
    cut = floats[each * part:each * (part + 1)]
    return Call(SIZE, dims), tensor(cut, len(cut))


def shares(part, n, large):
    """What the part holds of a model, and of its optimizer: (whole, pieces) each."""
    model, cut, state, cut_state = OrderedDict(), {}, OrderedDict(), {}
    for i, (name, dims) in enumerate([("embed", (37, 9)), ("first.weight", (9, 9)), ("first.bias", (9,)), ("last", (9, 2))]):
        floats = [i + k / 1024 for k in range(dims[0] * (dims + (1,))[1])]
        is_cut = 4 * len(floats) > large
        if is_cut:
            cut[name] = cut_state[i, "exp_avg"] = piece(floats, part, n, *dims)
        if i % n == part:
            state[i] = {"step": 1} if is_cut else {"step": 1, "exp_avg": tensor(floats, *dims)}
            if not is_cut:  # the last one is transposed
                model[name] = tensor(floats, *dims, strides=(1, 9) if name == "last" else None)
    groups = [{"lr": tensor([0.1]), "params": [0, 1, 2, 3]}]
    return (model, cut), ({"state": state, "param_groups": groups}, cut_state)


def main(folder, n, large):
    os.makedirs(folder)
    for part in range(n):
        name, content = "PART_%03d" % part, io.BytesIO()
        model, optimizer = shares(part, n, large)
        pickler = Pickler(content)
        pickler.dump({"__nshards__": n, "__version__": "2.0.0", "model": [model], "optimizer": [optimizer],
                      **({"epoch": 7, "mask": tensor([1.0, 0.0], 2)} if part == 0 else {})})
        with zipfile.ZipFile(f"{folder}/{name}.pt", "w") as out:
            for path, data in [("data.pkl", content.getvalue()), ("version", b"3\n"),
                               *((f"data/{key}", struct.pack(f"<{len(s.floats)}f", *s.floats))
                                 for key, s in enumerate(pickler.storages))]:
                out.writestr(zipfile.ZipInfo(f"{name}/{path}"), data)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
