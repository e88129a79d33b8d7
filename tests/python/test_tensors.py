# SPDX-License-Identifier: Apache-2.0
"""Tensors that the package loads: against .npy files and rank files of the same views, as numpy, MindSpore and torch
read them, and in torch.distributed.checkpoint."""
import gc
import importlib.util
import inspect
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

import numpy
import torch

import reshard
import reshard.torch
from cases import Skip, path, raises, run, seeded, strategies, tool, view


def npy(v, folder, name):
    with v.open(f".reshardfs/tensors/{folder}/{name}.npy") as file:
        return numpy.load(io.BytesIO(file.read()))


def test_lists():
    with view() as v:
        for rank, folder in [(None, "full"), *((r, f"rank_{r}") for r in range(4))]:
            tensors = v.tensors(rank)
            names = [n[:-4] for n in v.listdir(f".reshardfs/tensors/{folder}") if n.endswith(".npy")]
            assert list(tensors) == names and len(tensors) == len(names) == 15
            for name, tensor in tensors.items():
                want = npy(v, folder, name)
                assert tensor.name == name and tensor.shape == want.shape and tensor.dtype == str(want.dtype), tensor
                assert tensor.nbytes == want.nbytes and tensor.ndim == want.ndim
                got = tensor.numpy()
                assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
                assert tensor.torch().numpy().tobytes() == want.tobytes()
        assert "layer1.weight  float32" in repr(v.tensors()) and "layer1.weight float32" in repr(v.tensors()["layer1.weight"])
        assert raises(OSError, v.tensors, 4).errno == 2
        raises(KeyError, lambda: v.tensors(0)["nothing"])
        raises(TypeError, len, scalar(v))


def scalar(v):
    return next(t for t in v.tensors().values() if t.ndim == 0)


def draw(rng, shape):
    """A basic index of numpy."""
    parts = []
    for size in shape[:rng.randrange(len(shape) + 1)]:
        kind = rng.randrange(3)
        if kind == 0 and size:
            parts.append(rng.randrange(-size, size))
        elif kind == 1:
            parts.append(slice(*(rng.choice([None, rng.randrange(-size - 2, size + 3)]) for _ in range(2)),
                               rng.choice([None, 1, 2, 3, -1, -2])))
        else:
            parts.append(slice(None))
    if rng.random() < 0.3:
        parts.insert(rng.randrange(len(parts) + 1), Ellipsis)
    if rng.random() < 0.2:
        parts.insert(rng.randrange(len(parts) + 1), None)
    return parts[0] if len(parts) == 1 and rng.random() < 0.5 else tuple(parts)


def test_indices():
    rng = seeded()
    with view() as v:
        tensors = v.tensors(1)
        whole = {name: npy(v, "rank_1", name) for name in tensors}
        for _ in range(1000):
            name = rng.choice(list(tensors))
            index = draw(rng, tensors[name].shape)
            try:
                want = whole[name][index]
            except IndexError:
                raises(IndexError, lambda t=tensors[name], i=index: t[i])
                continue
            got = tensors[name][index]
            assert numpy.shape(got) == numpy.shape(want) and numpy.array_equal(got, want), (name, index)
        weight = tensors["layer1.weight"]
        raises(IndexError, lambda: weight[0, 0, 0])
        raises(IndexError, lambda: weight[192])
        raises(IndexError, lambda: weight[..., ...])
        raises(TypeError, lambda: weight["a"])


def test_reads_what_it_selects():
    with view() as v:
        tensor = v.tensors()["layer1.weight"]
        before = v.statistics()["source_bytes"]
        row = tensor[5]
        assert v.statistics()["source_bytes"] - before <= 1.1 * row.nbytes


def state_of(rank):
    with view(format="pt") as v, v.open(f"rank_{rank}/checkpoint_{rank}.pt") as file:
        return torch.load(file, weights_only=True)


def test_load():
    for rank in range(4):
        want = state_of(rank)
        got = reshard.load(path("e", "src"), rank=rank, framework="torch", **strategies())
        assert list(got) == list(want)
        for name, tensor in want.items():
            assert got[name].dtype == tensor.dtype and torch.equal(got[name], tensor), name
    with view() as v:
        only = v.load(2, names=["layer1.*", "layer3.bias"])
        assert list(only) == ["layer1.weight", "layer1.bias", "layer3.bias"], list(only)
        assert isinstance(only["layer1.bias"], numpy.ndarray)
        raises(KeyError, v.load, 2, names="layer9.*")
        raises(ValueError, v.load, 2, framework="jax")


def test_options_that_ask_for_nothing():
    folder = tempfile.mkdtemp()
    tool("export", path("e", "src"), folder + "/whole", "-o", "src_strategy=" + strategies()["src_strategy"])
    want = reshard.load(folder + "/whole")
    assert len(want) > 5
    got = reshard.load(folder + "/whole", cache="16M", index_cache=False, strict=True)
    assert list(got) == list(want) and all(numpy.array_equal(got[n], want[n]) for n in want)
    error = raises(reshard.ReshardError, reshard.load, folder + "/whole", cache="much")
    assert error.usage and "cache=much" in str(error), error
    error = raises(reshard.ReshardError, reshard.load, folder + "/whole", crc=True, cache="16M", format="pt")
    assert "crc" in str(error), error


def test_cast():
    with view(dtype="bfloat16") as v:
        got = v.load(1, "torch", names="layer*")
        for name, tensor in state_of(1).items():
            if name in got:
                assert got[name].dtype == torch.bfloat16 and torch.equal(got[name], tensor.to(torch.bfloat16)), name
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            assert "ml_dtypes" in str(raises(TypeError, v.tensors(1)["layer1.weight"].numpy))


ML_DTYPES = """
import sys, ml_dtypes, reshard
for name, array in reshard.load(sys.argv[1]).items():
    print(name, array.dtype, array.astype("float32").tolist())
"""


def test_types_that_numpy_lacks():
    state = {kind: torch.tensor([[0.5, -2.0], [448.0, 0.0]]).to(getattr(torch, kind))
             for kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
    torch.save(state, path("narrow.pt"))
    got = reshard.load(path("narrow.pt"), framework="torch")
    for kind, tensor in state.items():
        assert got[kind].dtype == tensor.dtype and torch.equal(got[kind].float(), tensor.float()), kind
    other = os.environ.get("RFS_NUMBERS_PYTHON", "")
    if not importlib.util.find_spec("ml_dtypes"):
        error = raises(TypeError, reshard.load, path("narrow.pt"))
        assert "bfloat16, which numpy does not have" in str(error) and "pip install ml_dtypes" in str(error), error
    if not os.access(other, os.X_OK):
        raise Skip("ml_dtypes is not installed; try: scripts/test numbers-packages")
    said = subprocess.run([other, "-c", ML_DTYPES, path("narrow.pt")], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.splitlines() == [f"{kind} {kind} {tensor.float().tolist()}" for kind, tensor in state.items()], said


def test_names_are_patterns():
    """Those of load; the option of a view is a file that maps names."""
    with open(path("map.json"), "w", encoding="ascii") as file:
        json.dump({"layer1.weight": "renamed", "layer1.bias": None}, file)
    error = raises(KeyError, reshard.load, path("e", "src"), names=path("map.json"), **strategies())
    assert "View(SOURCE, names=FILE)" in str(error), error
    with view(names=path("map.json")) as v:
        assert list(v.load(0, names="re*")) == ["renamed"]
        assert "layer1.bias" not in v.tensors(0)
    with reshard.safe_open(path("e", "src"), framework="np", rank=0, names=path("map.json"), **strategies()) as f:
        assert "renamed" in f.keys()


def test_ranks_that_are_not_there():
    """The error names those that are, or how to get some."""
    for rank in 4, 9:
        assert "ranks 0 to 3" in str(raises(FileNotFoundError, reshard.load, path("e", "src"), rank=rank, **strategies()))
    source = {"src_strategy": strategies()["src_strategy"]}
    assert 'dst_rules="like source" for the 8 ranks' in str(raises(FileNotFoundError, reshard.load, path("e", "src"), rank=3, **source))
    mine = reshard.load(path("e", "src"), rank=3, dst_rules="like source", **source)
    saved = reshard.load(path("e", "src", "rank_3", "checkpoint_3.ckpt"))
    assert set(mine) == set(saved) and mine["layer1.weight"].tobytes() == saved["layer1.weight"].tobytes()


def test_modules_when_they_are_asked_for():
    code = """
import reshard, sys
assert not {"torch", "numpy", "fsspec"} & set(sys.modules), "imported by itself"
print(reshard.torch.StorageReader.__name__, "torch" in sys.modules)
try:
    reshard.nothing
except AttributeError as why:
    print(why)
sys.modules["numpy"] = None
for name in [name for name in sys.modules if name.startswith("numpy.")]:
    del sys.modules[name]
try:
    reshard.load(sys.argv[1])
except ModuleNotFoundError as why:
    print(why)
"""
    got = subprocess.run([sys.executable, "-c", code, path("e", "src", "rank_0", "checkpoint_0.ckpt")], capture_output=True, text=True)
    assert got.stdout == ("StorageReader True\nmodule 'reshard' has no attribute 'nothing'\n"
                          "numpy is not installed; try: pip install numpy, or another framework=\n"), got


def test_help():
    """All that help() lists says what it does."""
    bare = []
    for kind in [getattr(reshard, name) for name in reshard.__all__] + [type(view().tensors()), reshard.torch.StorageReader]:
        for name, member in [("", kind), *vars(kind).items()] if isinstance(kind, type) else [("", kind)]:
            if not name.startswith("_") and (callable(member) or isinstance(member, property)) and not inspect.getdoc(member):
                bare.append(f"{kind.__name__}.{name}")
    assert not bare, bare


def test_into():
    want = state_of(3)
    with view() as v:
        model = {name: torch.zeros_like(tensor) for name, tensor in want.items() if name.startswith("layer")}
        places = {name: tensor.data_ptr() for name, tensor in model.items()}
        assert v.load(3, "torch", into=model) is model
        for name, tensor in model.items():
            assert tensor.data_ptr() == places[name] and torch.equal(tensor, want[name]), name
        # One that is not contiguous is filled as well, and numpy's arrays, too.
        other = {"layer1.weight": torch.zeros(48, 192).t()}
        v.load(3, "torch", into=other)
        assert torch.equal(other["layer1.weight"], want["layer1.weight"])
        arrays = {"layer1.weight": numpy.zeros((192, 96), numpy.float32)[:, ::2]}
        v.load(3, into=arrays)
        assert numpy.array_equal(arrays["layer1.weight"], want["layer1.weight"].numpy())
        # All are compared before the first is touched.
        bad = {"layer1.weight": torch.zeros(192, 48), "layer2.bias": torch.zeros(5)}
        assert "layer2.bias" in str(raises(ValueError, v.load, 3, "torch", into=bad))
        assert not bad["layer1.weight"].any()
        bad = {"layer1.weight": torch.zeros(192, 48, dtype=torch.float64)}
        assert "float64" in str(raises(ValueError, v.load, 3, "torch", into=bad))
        raises(KeyError, v.load, 3, "torch", into={"nothing": torch.zeros(1)})
        assert v.load(3, "torch", names="layer1.*", into={"nothing": torch.zeros(1)})["nothing"] == 0
        # Bytes of a tensor that shows its memory with other signs mean something else.
        signs = {"layer1.weight": torch._neg_view(torch.zeros(192, 48))}
        assert torch.equal(v.load(3, "torch", into=signs)["layer1.weight"], want["layer1.weight"])


def test_into_dtensors():
    """They have no memory, though they say that they are contiguous: refused before any is touched."""
    if not torch.distributed.is_available():
        raise Skip("torch has no torch.distributed")
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(os.path.join(folder, "store"), 1), rank=0,
                                             world_size=1)
        try:
            whole = DTensor.from_local(torch.zeros(192, 48), init_device_mesh("cpu", (1,)), [Replicate()])
            with view() as v:
                model = {"layer2.bias": torch.zeros(v.tensors(3)["layer2.bias"].shape), "layer1.weight": whole}
                assert "DTensor" in str(raises(ValueError, v.load, 3, "torch", into=model))
                assert not model["layer2.bias"].any() and not whole.to_local().any()
        finally:
            torch.distributed.destroy_process_group()


def test_boxes_of_other_axes():
    """The library reads as many bounds as the tensor has axes."""
    with view() as v:
        tensor = v.tensors()["layer1.weight"]
        for box in [((0,), (1,)), ((0, 0), (1,)), ((0,), (1, 1)), ((), ()), ((0, 0, 0), (1, 1, 1))]:
            raises(ValueError, tensor.read, "numpy", box)
        raises(IndexError, lambda: tensor[True])


class Wrapper(torch.Tensor):
    """As a DTensor, or a quantized weight of torchao: others are in it, and it has no memory."""

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_into_what_has_no_memory():
    want = state_of(3)["layer1.weight"]
    readonly = numpy.zeros((192, 48), numpy.float32)
    readonly.flags.writeable = False
    with view() as v:
        negative = {"layer1.weight": torch._neg_view(torch.zeros(192, 48))}  # its memory has the values' opposites
        assert torch.equal(v.load(3, "torch", into=negative)["layer1.weight"], want)
        for kind, array in ("torch", Wrapper((192, 48))), ("torch", torch.empty(192, 48, device="meta")), ("numpy", readonly):
            into = {"layer2.bias": state_of(3)["layer2.bias"] * 0, "layer1.weight": array}
            if kind == "numpy":
                into["layer2.bias"] = into["layer2.bias"].numpy()
            error = raises(ValueError, v.load, 3, kind, into=into)
            assert "layer1.weight is a" in str(error) and "StorageReader" in str(error), error
            assert not into["layer2.bias"].any()


def refused_untouched(kind, into, *said):
    """Nothing is written when memory is refused."""
    with view() as v:
        error = raises(ValueError, v.load, 3, kind, into=into)
        assert all(word in str(error) for word in (*said, "; try: ")), error
        assert all(not numpy.asarray(array).any() for array in into.values()), error


def test_into_memory_that_meets_itself():
    with view() as v:
        shape = v.tensors(3)["layer2.bias"].shape
    first = {"layer2.bias": torch.zeros(shape)}
    for array in (torch.zeros(1, 48).expand(192, 48), torch.zeros(192 * 48).as_strided((192, 48), (24, 1)),
                  torch.zeros(192 * 48).as_strided((192, 48), (1, 1))):
        refused_untouched("torch", {**first, "layer1.weight": array}, "layer1.weight", "same memory")
    first = {"layer2.bias": numpy.zeros(shape, numpy.float32)}
    rows = numpy.lib.stride_tricks.as_strided(numpy.zeros(192 * 48, numpy.float32), (192, 48), (96, 4))
    refused_untouched("numpy", {**first, "layer1.weight": rows}, "layer1.weight", "same memory")
    # A mask hides what is filled, a hard one keeps what was there.
    masked = numpy.ma.masked_array(numpy.zeros((192, 48), numpy.float32), mask=numpy.ones((192, 48), bool), hard_mask=True)
    with view() as v:
        into = {**first, "layer1.weight": masked}
        assert "MaskedArray" in str(raises(ValueError, v.load, 3, into=into)) and not first["layer2.bias"].any()
        assert not masked.data.any()
        # Storage that was freed or is too short cannot be written to.
        short = torch.zeros(192, 48)
        short.untyped_storage().resize_(100)
        assert "without memory" in str(raises(ValueError, v.load, 3, "torch", into={"layer1.weight": short}))


def test_into_one_memory_for_two():
    with view() as v:
        want = v.load(3, "torch")
        names = [name for name in want if want[name].dtype == torch.float32]
        shape = want["layer1.weight"].shape
        other = next(name for name in names if name != "layer1.weight" and want[name].shape == shape)
        assert not torch.equal(want[other], want["layer1.weight"])
        one = torch.zeros(shape)
        for two in (one, one.view(-1).view(shape), torch.nn.Parameter(one).data):
            refused_untouched("torch", {"layer1.weight": one, other: two}, "layer1.weight", other)
        base = torch.zeros(2 * one.numel())
        half = base[100:100 + one.numel()].view(shape)
        refused_untouched("torch", {"layer1.weight": base[:one.numel()].view(shape), other: half}, "layer1.weight", other, "mixture")
        array = numpy.zeros(shape, numpy.float32)
        refused_untouched("numpy", {"layer1.weight": array, other: array[:]}, "layer1.weight", other)
        # Neighbours, and columns between each other's, share no byte.
        wide = torch.zeros(shape[0], 2 * shape[1])
        for a, b in ((wide[:, :shape[1]], wide[:, shape[1]:]), (wide[:, ::2], wide[:, 1::2])):
            v.load(3, "torch", into={"layer1.weight": a, other: b})
            assert torch.equal(a, want["layer1.weight"]) and torch.equal(b, want[other])


def test_into_one_memory_that_is_taken_for_two():
    """The same bytes are other elements where torch takes them for conjugates or negatives, or for another type."""
    import torch.distributed.checkpoint as dcp
    numbers, real = torch.randn(4, 5, dtype=torch.complex64), torch.randn(4, 5)
    torch.save({"a": numbers, "b": numbers, "c": real, "d": real}, path("taken.pt"))
    base = torch.zeros(4, 5, dtype=torch.complex64)
    for into in ({"a": base, "b": base.conj()}, {"c": base.imag, "d": base.conj().imag}):
        error = raises(ValueError, reshard.load, path("taken.pt"), framework="torch", into=into)
        assert "lie in the same memory" in str(error) and not base.any(), error
    one = torch.zeros(4, 5)
    into = {"c": one, "d": one.view(torch.int32)}
    error = raises(BaseException, dcp.load, into, storage_reader=reshard.torch.StorageReader(path("taken.pt")))
    assert "lie in the same memory" in str(error) and not one.any(), error


def test_one_memory_for_thousands():
    """Contents are compared once for each name, not for each two."""
    from reshard.places import Place, judge
    one = Place("cpu", 4096, (64,), (4,), 4, "float32")
    asked = []

    class Counted(Place):
        def equals(self, other):
            asked.append(other)
            return super().equals(other)

    assert judge([(str(n), Counted(*one)) for n in range(10000)]) == [(0, n) for n in range(1, 10000)] and len(asked) == 9999


def test_into_a_tied_model():
    """Two names of one memory are fine if they have the same contents in the checkpoint."""
    weight = torch.arange(6 << 20, dtype=torch.float32).reshape(1 << 10, -1)
    untied = weight.clone()
    untied[-1, -1] = -1
    torch.save({"a": weight, "b": weight}, path("tied.pt"))
    torch.save({"a": weight, "b": untied, "c": torch.ones(3)}, path("untied.pt"))
    model = {"a": torch.zeros_like(weight)}
    model["b"] = model["a"]
    reshard.load(path("tied.pt"), framework="torch", into=model)
    assert torch.equal(model["a"], weight)
    model["a"].zero_()
    error = raises(ValueError, reshard.load, path("untied.pt"), framework="torch", into={"c": torch.zeros(3), **model})
    assert "a and b have the same memory" in str(error) and "; try: " in str(error) and not model["a"].any(), error
    reshard.load(path("untied.pt"), framework="torch", into=model, names="b")
    assert torch.equal(model["b"], untied)
    import torch.distributed.checkpoint as dcp
    for kind, want in (("tied", weight), ("untied", None)):
        model["a"].zero_()
        reader = reshard.torch.StorageReader(path(f"{kind}.pt"))
        if want is None:
            assert "have the same memory" in str(raises(BaseException, dcp.load, dict(model), storage_reader=reader))
            assert not model["a"].any()
        else:
            dcp.load(dict(model), storage_reader=reader)
            assert torch.equal(model["a"], want)


def test_a_backward_pass_notices():
    """torch's own error: the values that the pass needs were changed in place."""
    import torch.distributed.checkpoint as dcp

    with view() as v:
        for fill in (lambda state: v.load(3, "torch", into=state), lambda state: v.load(3, "torch", names="layer1.weight", into=state)):
            weight = torch.nn.Parameter(torch.ones(192, 48))
            loss = (weight * weight).sum()
            fill({"layer1.weight": weight.detach()})
            assert "modified by an inplace operation" in str(raises(RuntimeError, loss.backward))
        twin = torch.nn.Parameter(weight.data)  # which counts for itself
        torch.save({"weight": weight.data, "twin": weight.data}, path("twins.pt"))
        for needs in (weight, twin):
            loss = (needs * needs).sum()
            reshard.load(path("twins.pt"), framework="torch", into={"weight": weight.detach(), "twin": twin.detach()})
            assert "modified by an inplace operation" in str(raises(RuntimeError, loss.backward))
        whole = torch.nn.Parameter(torch.ones(v.tensors()["layer1.weight"].shape))
    loss = (whole * whole).sum()
    dcp.load({"layer1.weight": whole.detach()},
             storage_reader=reshard.torch.StorageReader(path("e", "src"), src_strategy=strategies()["src_strategy"]))
    assert "modified by an inplace operation" in str(raises(RuntimeError, loss.backward))
    with torch.inference_mode():
        inferred = {"layer1.weight": torch.zeros(192, 48)}
        turned = {"layer1.weight": torch.zeros(48, 192).t()}
    with view() as v:
        want = v.load(3, "torch", names="layer1.weight")["layer1.weight"]
        for state in (inferred, turned):
            assert torch.equal(v.load(3, "torch", into=state)["layer1.weight"], want)


def test_changed_source():
    subprocess.run(["cp", "-r", path("e"), path("changed")], check=True)
    with reshard.View(path("changed", "src"), **{k: v.replace("/e/", "/changed/") for k, v in strategies().items()}) as v:
        tensors = v.tensors()
        tensors["layer1.weight"].numpy()
        folder = path("changed", "src", "rank_0")
        name = os.path.join(folder, os.listdir(folder)[0])
        os.chmod(name, 0o600)
        with open(name, "r+b") as file:
            file.truncate(100)
        error = raises(reshard.ReshardError, tensors["layer1.weight"].numpy)
        assert "layer1.weight" in str(error) and name in str(error), error


def test_closed():
    v = view()
    tensors = v.tensors(0)
    tensor = tensors["layer1.weight"]
    v.close()
    raises(ValueError, tensor.numpy)
    tensors.close()


def test_collected_together():
    """The garbage collector ends a cycle in any order; files and lists are closed before their view all the same."""
    library, order = reshard._library.library(), []
    calls = {name: getattr(library, name) for name in ("reshard_close", "reshard_reader_close", "reshard_tensors_close")}

    def noting(name):
        return lambda pointer: (order.append(name), calls[name](pointer))

    for name in calls:
        setattr(library, name, noting(name))
    try:
        for first in range(3):
            made = [view()]
            made += [made[0].tensors(0), made[0].open("rank_0/checkpoint_0.ckpt")]
            holders = [types.SimpleNamespace(one=one) for one in made[first:] + made[:first]]
            for holder, after in zip(holders, holders[1:] + holders[:1]):
                holder.next = after
            del made, holders, holder, after
            order.clear()
            gc.collect()
            assert sorted(order) == sorted(calls) and order[-1] == "reshard_close", order
    finally:
        for name, call in calls.items():
            setattr(library, name, call)


def test_forked():
    with view() as v:
        tensors = v.tensors(1)
        tensors["layer1.weight"].numpy()
        child = os.fork()
        if child == 0:
            try:
                tensors["layer1.weight"].numpy()
            except RuntimeError as why:
                v.close()
                with view() as own:
                    own.load(1)
                os._exit(0 if "forked" in str(why) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        tensors["layer1.weight"].numpy()


def test_threads():
    with view() as v:
        tensors, wrong = v.tensors(1), []
        want = {name: npy(v, "rank_1", name).tobytes() for name in tensors}

        def read():
            for name, tensor in list(tensors.items()) * 10:
                if tensor.numpy().tobytes() != want[name]:
                    wrong.append(name)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def big():
    """A source of 256 MiB in one file, and the name of its tensor."""
    name = path("big.pt")
    if not os.path.exists(name):
        torch.save({"w": torch.arange(64 << 20, dtype=torch.int32).reshape(1 << 13, 1 << 13)}, name)
    return name


def test_progress():
    heard = []
    got = reshard.load(big(), progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (256 << 20, 256 << 20) and heard == sorted(heard), heard
    assert int(got["w"][-1, -1]) == (64 << 20) - 1

    def stop(_done, _total):
        raise RuntimeError("enough")

    raises(RuntimeError, reshard.load, big(), progress=stop)


INTERRUPTED = """
import sys, reshard
try:
    print("begun", flush=True)
    while True:
        reshard.load(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def hear_interrupts():
    """What runs behind a shell's & is not interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupted():
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, big()], stdout=subprocess.PIPE, text=True,
                          preexec_fn=hear_interrupts) as process:
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            assert process.communicate(timeout=60)[0] == "interrupted\n"
        finally:
            process.kill()
        assert process.returncode == 0


# The storage hangs until its end is asked for.
INTERRUPTED_TWICE = """
import sys, threading, reshard
view = reshard.View(sys.argv[1], format="pt")
load = view._library.reshard_tensors_load

def hang(*given):
    print("begun", flush=True)
    sys.stdin.readline()
    return load(*given)

view._library.reshard_tensors_load = hang
try:
    view.load()
except KeyboardInterrupt:
    print("alive" if any(t.name == "reshard load" for t in threading.enumerate()) else "ended", flush=True)
"""


def test_interrupted_twice():
    """The thread would write to memory that has been freed, if the second Ctrl-C did not wait for it, too."""
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED_TWICE, big()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, preexec_fn=hear_interrupts) as process:
        assert process.stdout.readline() == "begun\n"
        for _ in range(2):
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        try:
            assert process.communicate("go on\n", timeout=60)[0] == "ended\n"
        finally:
            process.kill()
        assert process.returncode == 0


def test_safe_open():
    want = {name: tensor.numpy() for name, tensor in state_of(1).items()}
    with reshard.safe_open(path("e", "src"), framework="pt", rank=1, **strategies()) as f:
        assert f.keys() == sorted(want) and f.offset_keys() == list(want)
        assert f.metadata() == {"format": "pt"}
        for name in f.keys():
            assert torch.equal(f.get_tensor(name), torch.from_numpy(want[name])), name
        part = f.get_slice("layer1.weight")
        assert part.get_shape() == [192, 48] and part.get_dtype() == "F32"
        assert torch.equal(part[10:20, ::3], torch.from_numpy(want["layer1.weight"][10:20, ::3]))
    with reshard.safe_open(path("e", "src"), framework="np", rank=1, **strategies()) as f:
        assert f.get_tensor("layer2.bias").tobytes() == want["layer2.bias"].tobytes()


# What workers of a DataLoader are given: a view of another process.
WORKERS = """
import sys, torch, reshard, reshard.torch, torch.distributed.checkpoint as dcp

class Rows(torch.utils.data.Dataset):
    def __init__(self, source, strategy):
        self.file = reshard.safe_open(source, framework="pt", src_strategy=strategy)
        self.reader = reshard.torch.StorageReader(source, src_strategy=strategy)

    def __len__(self):
        return self.file.get_slice("layer1.weight").get_shape()[0] // 100

    def __getitem__(self, i):
        state = {"layer1.weight": torch.zeros(self.file.get_slice("layer1.weight").get_shape())}
        dcp.load(state, storage_reader=self.reader)
        rows = self.file.get_slice("layer1.weight")[100 * i:100 * i + 100]
        assert torch.equal(rows, state["layer1.weight"][100 * i:100 * i + 100])
        return rows

if __name__ == "__main__":
    rows = Rows(*sys.argv[1:])
    whole = rows.file.get_tensor("layer1.weight")
    for way, workers in (("fork", 2), ("spawn", 1)):
        loaded = torch.utils.data.DataLoader(rows, batch_size=None, num_workers=workers, multiprocessing_context=way)
        assert torch.equal(torch.cat(list(loaded)), whole[:len(rows) * 100]), way
    print("equal")
"""


def test_workers():
    with open(path("workers.py"), "w", encoding="ascii") as file:
        file.write(WORKERS)
    got = subprocess.run([sys.executable, path("workers.py"), path("e", "src"), strategies()["src_strategy"]],
                         capture_output=True, text=True, check=False)
    assert got.stdout == "equal\n", got


def test_closed_in_a_fork():
    file = reshard.safe_open(path("e", "src"), framework="np", **strategies())
    with file:
        copy = pickle.loads(pickle.dumps(file))
        assert copy.get_tensor("layer1.bias").tobytes() == file.get_tensor("layer1.bias").tobytes()
    raises(ValueError, pickle.dumps, file)
    child = os.fork()
    if child == 0:
        try:
            file.get_tensor("layer1.bias")
        except (ValueError, RuntimeError):
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


MINDSPORE = """
import json, os, sys, numpy, mindspore as ms, reshard
source, exports = sys.argv[1], [json.loads(argument) for argument in sys.argv[2:]]
for folder, options, rank in ((*export, rank) for export in exports for rank in range(4)):
    want = ms.load_checkpoint(os.path.join(folder, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
    got = reshard.load(source, rank=rank, framework="mindspore", **options)
    assert list(got) == list(want), (list(got), list(want))
    for name, value in want.items():
        mine = got[name]
        assert type(mine) is type(value), (name, type(mine), type(value))
        if isinstance(value, str):
            assert mine == value
            continue
        assert mine.name == value.name and mine.dtype == value.dtype and mine.shape == value.shape, (mine, value)
        assert mine.requires_grad == value.requires_grad
        assert mine.get_bytes() == value.get_bytes(), name
    weight = want["layer1.weight"]
    if weight.dtype != ms.float32:
        continue
    net = ms.nn.Cell()
    zeros = ms.Tensor(numpy.zeros(weight.shape, numpy.float32))
    net.insert_param_to_cell("weight", ms.Parameter(zeros, name="layer1.weight"))
    left, _ = ms.load_param_into_net(net, got)
    assert left == [] and net.weight.asnumpy().tobytes() == weight.asnumpy().tobytes(), left
print("equal", len(exports))
"""


def test_mindspore():
    if os.environ.get("RFS_NO_MINDSPORE"):
        raise Skip(os.environ["RFS_NO_MINDSPORE"])
    exports = []
    for more in ({}, {"dtype": "bfloat16"}):
        out, options = path("exported" + "-".join(more.values())), {**strategies(), **more}
        tool("export", path("e", "src"), out, "-o", ",".join(f"{k}={v}" for k, v in options.items()))
        exports.append(json.dumps([out, options]))
    got = subprocess.run([os.environ["RFS_INTEROP_PYTHON"], "-c", MINDSPORE, path("e", "src"), *exports],
                         capture_output=True, text=True, check=False)
    assert "equal 2" in got.stdout, got.stdout + got.stderr


# ---- torch.distributed.checkpoint ----------------------------------------------------------------

def test_dcp_alone():
    import torch.distributed.checkpoint as dcp

    with view(format="pt") as v:
        want = v.load(framework="torch")
    state = {name: torch.zeros_like(tensor) for name, tensor in want.items()}
    state["layer1.weight"] = torch.zeros(48, 768).t()
    dcp.load(state, storage_reader=reshard.torch.StorageReader(path("e", "src"), src_strategy=strategies()["src_strategy"]))
    for name, tensor in want.items():
        assert torch.equal(state[name], tensor), name
    reader = reshard.torch.StorageReader(path("e", "src"), src_strategy=strategies()["src_strategy"])
    assert "nothing" in str(raises(BaseException, dcp.load, {"nothing": torch.zeros(1)}, storage_reader=reader))


# Groups of 1 to 4 processes, which are forked by one that has imported all. 3 make uneven shards, 4 meshes of two axes.
PROCESSES = """
import datetime, os, sys, traceback
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
try:
    from torch.distributed.tensor import DTensor, Replicate, Shard, zeros
except ImportError:  # torch 2.3
    from torch.distributed._tensor import DTensor, Replicate, Shard, zeros
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch 2.3
    fully_shard = None
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import reshard, reshard.torch

source, strategy, folder = sys.argv[1:]

def filled(state, want, what):
    dcp.load(state, storage_reader=reshard.torch.StorageReader(source, src_strategy=strategy))
    for name, tensor in state.items():
        got = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        assert torch.equal(got, want[name]), (name, what)
    return sum(isinstance(tensor, DTensor) for tensor in state.values())

def placed(mesh, way, want):
    state = {}
    for name, tensor in want.items():
        state[name] = (zeros(tensor.shape, dtype=tensor.dtype, device_mesh=mesh, placements=way) if tensor.ndim == 2
                       else torch.zeros_like(tensor))
    assert filled(state, want, way) > 0

def modelled(mesh, want):
    model = torch.nn.Module()
    for name in ("layer1", "layer2"):
        out, width = want[name + ".weight"].shape
        model.add_module(name, torch.nn.Linear(width, out, bias=False))
    if mesh.ndim == 2:
        parallelize_module(model, mesh["tp"], {"layer1": ColwiseParallel(), "layer2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    assert filled(model.state_dict(), want, mesh) > 1

def member(rank, world):
    dist.init_process_group("gloo", init_method=f"file://{folder}/{world}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(minutes=10))
    want = reshard.load(source, framework="torch", src_strategy=strategy)
    meshes = [init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))]
    for way in ([Shard(0)], [Shard(1)], [Replicate()])[:1 if world < 3 else 3]:
        placed(meshes[0], way, want)
    if world == 4:
        meshes.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")))
        for way in ([Shard(0), Shard(1)], [Shard(1), Shard(0)], [Replicate(), Shard(1)], [Shard(0), Replicate()]):
            placed(meshes[1], way, want)
    for mesh in meshes if fully_shard else []:
        modelled(mesh, want)
    dist.barrier()
    dist.destroy_process_group()

for world in range(1, 5):
    children = []
    for rank in range(world):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                member(rank, world)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    if any([os.waitpid(child, 0)[1] for child in children]):
        sys.exit(f"{world} processes failed")
print("equal", flush=True)
"""


def test_dcp_processes():
    os.makedirs(path("meetings"))
    got = subprocess.run([sys.executable, "-c", PROCESSES, path("e", "src"), strategies()["src_strategy"], path("meetings")],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert got.returncode == 0 and got.stdout.endswith("equal\n"), got.stdout


if __name__ == "__main__":
    sys.exit(run(globals(), lambda: tool("example", path("e"))))
