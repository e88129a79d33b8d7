# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save, made at random and damaged at random: what torch.load(weights_only=True) takes is taken here, with
the same tensors; what it refuses is refused, or has the tensors that the file had before it was damaged, or those of
Python's own pickle, which knows operations that weights_only does not.

What torch takes and is refused here is listed in exception().
"""
import collections
import io
import os
import pickle
import sys
import types
import warnings
import zipfile

import torch

import reshard
from cases import path, run, seeded

ROUNDS = 1000
DTYPES = [torch.float64, torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
          torch.float8_e4m3fn, torch.float8_e5m2]
NAMES = ["w", "model.layers.0.weight", "é", "", "a/b", "a b", "\U0001f600", "x" * 300, "state", "0", "__version__", "\n"]


# ---- files -------------------------------------------------------------------------------------------------------------

def some_tensor(rng, others):
    """Of any dtype and strides; some share the memory of another."""
    if others and rng.random() < .15:
        return rng.choice(others)
    shape = [rng.choice((0, 1, 1, 2, 3, 5, 8)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
    count = 1
    for size in shape:
        count *= size
    tensor = torch.frombuffer(bytearray(rng.randbytes(8 * max(count, 1))), dtype=torch.int64)[:count].reshape(shape)
    tensor = (tensor % 100).to(rng.choice(DTYPES))
    kind = rng.randrange(8)
    if kind == 0 and tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    elif kind == 1 and tensor.ndim:
        tensor = tensor[tensor.shape[0] // 2:]
    elif kind == 2 and tensor.ndim:
        tensor = tensor[..., ::2]
    elif kind == 3:
        tensor = tensor[None].expand(3, *tensor.shape)
    elif kind == 4 and tensor.is_floating_point() and tensor.dtype.itemsize > 1:
        tensor = torch.nn.Parameter(tensor, requires_grad=rng.random() < .5)
    others.append(tensor)
    return tensor


def some_value(rng, others, depth=0):
    kind = rng.randrange(12)
    if kind < 3 and depth < 3:
        return {some_name(rng): some_value(rng, others, depth + 1) for _ in range(rng.randrange(4))}
    if kind == 3 and depth < 3:
        return [some_value(rng, others, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 4:
        return some_tensor(rng, others)
    return rng.choice((None, True, 3, -2**40, 2**70, 1.5, float("nan"), "text", "é", (), (1, "a"), torch.Size([2, 3]), torch.float16,
                       torch.device("cpu"), {1, 2}, complex(1, 2), b"bytes", collections.OrderedDict(a=1)))


def some_name(rng):
    return rng.choice(NAMES) + str(rng.randrange(100))


def odd_tensor(rng):
    return rng.choice((lambda: torch.eye(3).to_sparse(), lambda: torch.zeros(2, 3, device="meta"),
                       lambda: torch.randn(3, dtype=torch.complex64).conj(),
                       lambda: torch.quantize_per_tensor(torch.randn(4), .1, 0, torch.qint8)))()


def some_state(rng):
    """What is saved: a dict of tensors and other values as a rule."""
    others = []
    out = collections.OrderedDict() if rng.random() < .5 else {}
    for _ in range(rng.choice((0, 1, 2, 3, 5, 9))):
        out[some_name(rng)] = some_tensor(rng, others)
    for _ in range(rng.choice((0, 0, 1, 3))):
        out[some_name(rng) if rng.random() < .9 else rng.randrange(9)] = some_value(rng, others)
    if rng.random() < .04:
        out["odd"] = odd_tensor(rng)
    if rng.random() < .04:
        return rng.choice((list(out.values()), some_tensor(rng, others), {"model": out}, 3))
    return out


def packed(entries, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as z:
        for name, content in entries:
            z.writestr(name, content)
    return buffer.getvalue()


def changed(rng, data):
    """Some bytes are others."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, kind = rng.randrange(len(data) or 1), rng.randrange(4)
        if kind == 0:
            data[at:at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del data[at:at + rng.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[at:at + rng.randrange(1, 30)]
        else:
            data[at:at] = rng.choice((b"N", b"0", b"\x8f", b")", b"}", b"(", b"t", b"u", b"s", b"Q", b"R", b"q\0", b"h\0", b".", b"K\1",
                                      b"cos\nsystem\n", b"ctorch\nload\n", b"\x80\2", b"2", b"1", b"a", b"e", b"b"))
    return bytes(data)


def damage(rng, data):
    """Changes the archive or the pickle in it."""
    if rng.random() < .1:
        return data[:rng.randrange(len(data))] if rng.random() < .5 else changed(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        entries = [(i.filename, z.read(i)) for i in z.infolist()]
    at, kind = rng.randrange(len(entries)), rng.randrange(10)
    name, content = entries[at]
    pickled = next(i for i, (each, _) in enumerate(entries) if each.endswith("/data.pkl"))
    if kind < 5:
        entries[pickled] = (entries[pickled][0], changed(rng, entries[pickled][1]))
    elif kind == 5:
        del entries[at]
    elif kind == 6:
        entries[at] = (name, content[:rng.randrange(len(content) + 1)] if rng.random() < .5 else content + bytes(8))
    elif kind == 7:
        entries = [(each.replace("/byteorder", "/order"), b"big" if each.endswith("/byteorder") and rng.random() < .5 else c)
                   for each, c in entries]
    elif kind == 8:
        return packed(entries, zipfile.ZIP_DEFLATED)
    else:
        entries[at] = (rng.choice(("x", "other/" + name, name + "x", name.partition("/")[2])), content)
    return packed(entries)


def some_file(rng):
    """(the state, the bytes of the file, whether they are damaged)"""
    state, buffer = some_state(rng), io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=rng.random() < .97)
    data = buffer.getvalue()
    if rng.random() < .5 and data[:2] == b"PK":
        return state, damage(rng, data), True
    return state, data, False


# ---- what both say -----------------------------------------------------------------------------------------------------

def tensors_of(state):
    """The tensors of the dict at the top, by name."""
    if not isinstance(state, dict):
        return {}
    return {key: value.detach() for key, value in state.items() if isinstance(key, str) and isinstance(value, torch.Tensor)}


def by_torch(file):
    """(state, None), or (None, why)"""
    try:
        return torch.load(file, weights_only=True), None
    except Exception as error:  # pylint: disable=broad-except
        return None, f"{type(error).__name__}: {error}"[:300]


class Tensors(pickle.Unpickler):
    """Python's own pickle, of files that may be damaged: it makes tensors and nothing else."""

    def find_class(self, module, name):
        if (module, name) not in {("collections", "OrderedDict"), ("torch._utils", "_rebuild_tensor_v2"),
                                  ("torch._utils", "_rebuild_tensor_v3"), ("torch._utils", "_rebuild_parameter")} and not (
                isinstance(getattr(torch, name, None), torch.dtype) or name.endswith("Storage")):
            raise pickle.UnpicklingError(f"{module}.{name} is not of a tensor")
        return super().find_class(module, name)


def by_pickle(file):
    """Its state; an empty one if pickle refuses it, too."""
    try:
        return torch.load(file, weights_only=False, pickle_module=types.SimpleNamespace(__name__="tensors", Unpickler=Tensors))
    except Exception:  # pylint: disable=broad-except
        return {}


def by_reshard(file):
    """(tensors by name, None), or (None, why)"""
    try:
        return reshard.load(file, framework="torch"), None
    except (OSError, ValueError, NotImplementedError) as error:
        return None, str(error)


def same(got, want):
    def bits(tensor):
        return torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.flatten()).view(torch.uint8).numpy().tobytes()

    return got.dtype == want.dtype and got.shape == want.shape and bits(got) == bits(want)


def same_tensors(got, want):
    return list(got) == list(want) and all(same(got[name], want[name]) for name in want)


def is_plain(tensor):
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu" and not tensor.is_conj()


def exception(data, state, why):
    """Why a file that torch takes may be refused here, or None."""
    if data[:2] != b"PK" and b"PK\5\6" not in data[-100:]:
        return "not an archive"
    if not isinstance(state, dict):
        return "no dict at the top"
    found = tensors_of(state)
    if not found:
        return "no tensors at the top"
    if not all(is_plain(tensor) for tensor in found.values()):
        return "a tensor that is not plain"
    if any("\0" in name for name in found):
        return "a NUL in a name"
    for reason, words in {"other archives than those of torch.save": ("zip", "archive", "entr", "record", "byteorder", "version"),
                          "other pickles than those of torch.save": ("pickle", "opcode"),
                          "other sizes of storages than torch.save writes": ("its storage has",),
                          }.items():
        if any(word in why for word in words):
            return reason
    return None


def judge(rng, file, counts):
    state, data, damaged = some_file(rng)
    with open(file, "wb") as out:
        out.write(data)
    theirs, refused = by_torch(file)
    ours, why = by_reshard(file)
    about = f"{'damaged ' if damaged else ''}{data if len(data) < 3000 else data[:1500]!r}; torch: {refused}; here: {why}"
    if theirs is not None and ours is None:
        reason = exception(data, theirs, why)
        assert reason, f"torch takes, and here is refused: {about}"
        assert damaged or not reason.startswith("other"), f"torch.save wrote, and here is refused: {about}"
        counts[reason] += 1
    elif ours is not None:
        good = same_tensors(ours, tensors_of(theirs if theirs is not None else state)) or (
            theirs is None and same_tensors(ours, tensors_of(by_pickle(file))))
        assert good, f"{list(ours)} are not the tensors: {about}"
        counts["both" if theirs is not None else "here alone, with the tensors that are in it"] += 1
    else:
        counts["neither"] += 1


def test_odd_files_are_those_of_torch():
    warnings.simplefilter("ignore")
    rng, counts = seeded(), collections.Counter()
    os.makedirs(path("odd"))
    for _ in range(int(os.environ.get("RFS_ODD_FILES") or ROUNDS)):
        judge(rng, path("odd", "model.pt"), counts)
    print(f"odd files: {dict(counts)}")
    assert counts["both"] > counts.total() // 3 and counts["neither"] > counts.total() // 10, "the files are not a mixture"


if __name__ == "__main__":
    sys.exit(run(globals(), lambda: None))
