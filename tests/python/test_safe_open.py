# SPDX-License-Identifier: Apache-2.0
"""reshard.safe_open beside safetensors' own, on files that safetensors wrote."""
import json
import multiprocessing
import os
import struct
import subprocess
import sys

import numpy as np
import reshard
import reshard.safetensors
import safetensors
import safetensors.torch
import torch
from cases import path, place, raises, run, tool
from safetensors import SafetensorError

TENSORS = {
    "b": torch.arange(50, dtype=torch.float32).reshape(10, 5),
    "a": torch.tensor(3.5, dtype=torch.bfloat16),
    "none": torch.empty((0, 5), dtype=torch.float16),
    "eighths": torch.arange(8, dtype=torch.float32).to(torch.float8_e4m3fn),
    "pairs": torch.arange(6, dtype=torch.uint8).reshape(3, 2).view(torch.float4_e2m1fn_x2),
    "whether": torch.tensor([True, False, True]),
}
INDICES = [slice(None), (), ..., 3, -1, -10, np.int64(3), np.array(3), torch.tensor(3), slice(2, 5), slice(None, 10), slice(0, 0),
           slice(3, 3), slice(None, None, 3), slice(1, 9, 4), slice(np.int64(1), torch.tensor(3)), [], (2, slice(1, 3)), (slice(2, None), -1),
           (..., 1), (1, ...), (slice(None), ..., slice(2, 4)), (1, 2)]
REFUSED = [[0, 1], [True], [slice(0, 2)], np.array([1, 2]), np.array([], dtype=int), np.array([True] * 10), torch.tensor([1, 2]), 1.0, "b",
           range(2), ([0, 1], 0), (slice(None), []), (..., ...), (1, 1, 1), 10, -11, (slice(2, None), 20), slice(None, 20),
           (slice(None), slice(None, 20)), slice(11, None), slice(1, 20, 3), slice(0, 4, 0)]


def bits(array):
    if isinstance(array, np.ndarray):
        return array.dtype, array.shape, array.tobytes()
    return array.dtype, array.shape, bytes(array.contiguous().reshape(-1).view(torch.uint8).tolist())


def files():
    """Names of one file of all tensors, with and without an ending."""
    safetensors.torch.save_file(TENSORS, path("all.safetensors"), metadata={"format": "pt", "more": "of it"})
    os.link(path("all.safetensors"), path("blob"))
    os.symlink(path("all.safetensors"), path("link.bin"))
    safetensors.torch.save_file(TENSORS, path("plain.safetensors"))


def both(name="all.safetensors", **how):
    how = {"framework": "pt", **how}
    return safetensors.safe_open(path(name), **how), reshard.safe_open(path(name), **how)


def test_tensors():
    theirs = safetensors.safe_open(path("all.safetensors"), framework="pt")
    for name in "all.safetensors", "blob", "link.bin":
        for backend in "mmap", "pread":
            with reshard.safe_open(path(name), framework="pt", backend=backend) as ours:
                assert ours.keys() == theirs.keys() and ours.offset_keys() == theirs.offset_keys()
                every = ours.get_tensors()
                assert list(every) == list(theirs.get_tensors())
                for key in theirs.keys():
                    want = bits(theirs.get_tensor(key))
                    assert bits(ours.get_tensor(key)) == want and bits(every[key]) == want, key
                    one, other = ours.get_slice(key), theirs.get_slice(key)
                    assert (one.get_shape(), one.get_dtype()) == (other.get_shape(), other.get_dtype()), key


def test_order_of_the_file():
    """The header may name tensors in another order than their data have."""
    header = json.dumps({"x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]},
                         "y": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    with open(path("order.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + b"\x01\x02")
    theirs, ours = both("order.safetensors", framework="np")
    with theirs, ours:
        assert ours.offset_keys() == theirs.offset_keys() and ours.keys() == theirs.keys()
        assert ours.get_tensor("x") == theirs.get_tensor("x") == [2]


def test_metadata():
    for name in "all.safetensors", "blob", "plain.safetensors":
        theirs, ours = both(name)
        with theirs, ours:
            assert ours.metadata() == theirs.metadata(), name
    with reshard.safe_open(path("plain.safetensors")) as file:
        assert file.metadata() is None


def test_indices():
    for framework in "pt", "np":
        theirs, ours = both(framework=framework)
        with theirs, ours:
            want, got = theirs.get_slice("b"), ours.get_slice("b")
            for index in INDICES:
                assert bits(got[index]) == bits(want[index]), index
            # What numpy has, and they have not.
            assert bits(got[-3:, :-1]) == bits(want[7:, :4]) and got[10:].shape == (0, 5)
            assert bits(ours.get_slice("a")[()]) == bits(theirs.get_slice("a")[()]) if framework == "pt" else True


def test_refused_indices():
    theirs, ours = both(framework="np")
    with theirs, ours:
        want, got = theirs.get_slice("b"), ours.get_slice("b")
        for index in REFUSED:
            assert str(raises(SafetensorError, got.__getitem__, index)) == str(raises(SafetensorError, want.__getitem__, index)), index
            raises((IndexError, ValueError), got.__getitem__, index)
        raises(SafetensorError, got.__getitem__, True)  # which they take for 1


def test_refusals():
    """What they refuse, ours does, by the same class, and where it can be in the same words."""
    for how in ({"framework": "xx"}, {"backend": "other"}, {"device": "nowhere"}, {"device": -1}):
        one, other = (raises(SafetensorError, opener, path("all.safetensors"), **{"framework": "pt", **how})
                      for opener in (reshard.safe_open, safetensors.safe_open))
        assert str(one) == str(other), (one, other)
    raises(SafetensorError, reshard.safe_open, path("all.safetensors"), "np", device="cuda")
    theirs, ours = both()
    for call in "get_tensor", "get_slice":
        assert str(raises(SafetensorError, getattr(ours, call), "zz")) == str(raises(SafetensorError, getattr(theirs, call), "zz"))
    part = ours.get_slice("b")
    with ours, theirs:
        pass
    for call in "keys", "offset_keys", "metadata", "get_tensors":
        assert str(raises(SafetensorError, getattr(ours, call))) == str(raises(SafetensorError, getattr(theirs, call)))
    raises(SafetensorError, part.__getitem__, 0)
    raises(ValueError, ours.keys)


def test_wrong_files():
    one, other = (raises(FileNotFoundError, opener, "not/there", framework="pt") for opener in (reshard.safe_open, safetensors.safe_open))
    assert str(one) == str(other) and isinstance(one, SafetensorError) and isinstance(one, reshard.ReshardError)
    with open(path("all.safetensors"), "rb") as file:
        data = file.read()
    for name in "cut.safetensors", "cut":  # both are of safetensors, by the name or by the header
        with open(path(name), "wb") as file:
            file.write(data[:-7])
        raises(SafetensorError, safetensors.safe_open, path(name), framework="pt")
        why = raises(SafetensorError, reshard.safe_open, path(name), framework="pt")
        assert isinstance(why, reshard.ReshardError) and path(name) in str(why) and "reshard-" not in str(why).replace(place, ""), why


def test_devices():
    for device in "cpu", None, "meta", torch.device("cpu"):
        with reshard.safe_open(path("all.safetensors"), framework="pt", device=device) as file:
            want = "cpu" if device is None else torch.device(device).type
            assert file.get_tensor("b").device.type == file.get_slice("b")[:2].device.type == want
            assert all(tensor.device.type == want for tensor in file.get_tensors().values())
    with torch.device("meta"):  # as a model without memory is made
        theirs, ours = both()
        with theirs, ours:
            assert bits(ours.get_tensor("b")) == bits(theirs.get_tensor("b")) == bits(TENSORS["b"])
        assert bits(reshard.load(path("all.safetensors"), framework="torch")["b"]) == bits(TENSORS["b"])


def test_handles():
    for name in "all.safetensors", "blob":
        with open(path(name), "rb") as file:
            file.read(100)
            with reshard.safetensors._safe_open_handle(file, framework="np", device="cpu") as ours:
                assert ours.get_tensor("b").tobytes() == TENSORS["b"].numpy().tobytes()
    with open(path("moved"), "w+b") as file:
        os.rename(path("moved"), path("elsewhere"))
        raises(SafetensorError, reshard.safetensors._safe_open_handle, file, framework="np")


def read_in_child(file, out):
    out.put(bits(file.get_tensor("b"))[2])


def test_links_end():
    """Without an ending it is opened by a link, which each process that reads has, and takes away."""
    os.environ["TMPDIR"] = path()
    import tempfile

    tempfile.tempdir = None
    left = lambda: [name for name in os.listdir(path()) if name.startswith("reshard-") and not name.startswith("reshard-python-")]
    with reshard.safe_open(path("blob"), framework="pt") as file:
        assert len(left()) == 1
        for way in "fork", "spawn":
            context = multiprocessing.get_context(way)
            out = context.Queue()
            child = context.Process(target=read_in_child, args=(file, out))
            child.start()
            assert out.get(timeout=200) == bits(TENSORS["b"])[2]
            child.join()
            assert child.exitcode == 0 and bits(file.get_tensor("b")) == bits(TENSORS["b"])
    assert not left(), left()
    raises(reshard.ReshardError, reshard.safe_open, path("cut"))
    assert not left(), left()
    code = "import reshard, sys; file = reshard.safe_open(sys.argv[1], framework='np'); file.get_tensor('b')"
    got = subprocess.run([sys.executable, "-c", code, path("blob")], capture_output=True, text=True, check=True)
    assert (got.stdout, got.stderr, left()) == ("", "", []), got


def test_without_safetensors():
    code = """
import sys
sys.modules["safetensors"] = None
import reshard
for call in (lambda: reshard.safe_open(sys.argv[1], framework="xx"), lambda: reshard.safe_open("not/there", framework="np")):
    try:
        call()
    except Exception as why:
        print(type(why).__name__, why)
"""
    got = subprocess.run([sys.executable, "-c", code, path("all.safetensors")], capture_output=True, text=True, check=True)
    assert got.stdout == ("SafetensorError framework xx is invalid\n"
                          "ReshardFileNotFoundError No such file or directory: not/there\n"), got


if __name__ == "__main__":
    sys.exit(run(globals(), files))
