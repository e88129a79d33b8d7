# SPDX-License-Identifier: Apache-2.0
"""Values of a checkpoint, the bytes of a .ckpt, and files written by the real save_checkpoint.

A Value is a dtype name as MindSpore writes it and a numpy array; bfloat16 (and Int4, which MindSpore
stores a byte an element) are kept as integers of their width, so that no bit is ever reinterpreted.

    file      = message*                     one value each, nothing between them
    message   = 0a LEN value                 Checkpoint.value
    value     = 0a LEN tag  12 LEN tensor    or 1a LEN map for a map tensor
    tensor    = (08 DIM)*  12 LEN type  1a LEN content
"""
import os

import numpy as np

CHUNK = 512 * 1024 * 1024

STORED = {
    "Bool": np.bool_, "Int8": np.int8, "UInt8": np.uint8, "Int16": np.int16, "UInt16": np.uint16,
    "Int32": np.int32, "UInt32": np.uint32, "Int64": np.int64, "UInt64": np.uint64,
    "Float16": np.float16, "Float32": np.float32, "Float64": np.float64, "BFloat16": np.uint16,
    "Int4": np.int8, "Complex64": np.complex64, "Complex128": np.complex128,
    "Float8E4M3FN": np.uint8, "Float8E5M2": np.uint8}
# Those that transform_checkpoints handles; it calls Int4 Int8 and cannot load complex numbers and float8.
TRANSFORMED = [d for d in STORED if d != "Int4" and not d.startswith(("Complex", "Float8"))]


class Value:
    def __init__(self, dtype, data):
        self.dtype = dtype
        self.data = data  # ndarray; str for dtype "str"; bytes of whole messages for "map"

    @property
    def shape(self):
        return self.data.shape

    def with_data(self, data):
        return Value(self.dtype, data)


def random_value(rng, dtype, shape):
    """Every bit pattern that survives MindSpore: no NaN, as it rewrites those of bfloat16."""
    if dtype == "Bool":
        return Value(dtype, rng.integers(0, 2, shape).astype(np.bool_))
    if dtype == "BFloat16":
        bits = rng.integers(0, 1 << 16, shape).astype(np.uint16)
        quiet = np.where((bits & 0x7F80) == 0x7F80, bits & 0x80FF, bits)
        return Value(dtype, quiet.astype(np.uint16))
    if dtype.startswith("Float") and not dtype.startswith("Float8"):
        return Value(dtype, np.asarray(rng.standard_normal(shape)).astype(STORED[dtype]))
    info = np.iinfo(STORED[dtype])
    return Value(dtype, np.asarray(
        rng.integers(info.min, info.max, shape, dtype=STORED[dtype], endpoint=True)))


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(tag, *parts):
    return [varint(tag << 3 | 2), varint(sum(map(len, parts))), *parts]


def encode_tensor(dims, dtype, content):
    head = b"".join(b"\x08" + varint(d) for d in dims)
    return [head, *field(2, dtype.encode()), *field(3, content)]


def encode(named):
    """The bytes of a .ckpt with these (name, Value), written independently of protobuf."""
    out = []
    for name, value in named:
        if value.dtype == "map":
            out.append(value.data)
            continue
        if value.dtype == "str":
            dims, content = [0], value.data.encode("utf-32-le")
        else:
            dims, content = value.shape, np.ascontiguousarray(value.data).tobytes()
        for at in range(0, len(content), CHUNK):
            tensor = encode_tensor(dims, value.dtype, content[at:at + CHUNK])
            out += field(1, *field(1, name.encode()), *field(2, *tensor))
    return b"".join(out)


def map_messages(name, pieces):
    """A map tensor as _write_mapparameter writes it; each piece: keys, values, status arrays."""
    from mindspore.train.checkpoint_pb2 import Checkpoint
    out = b""
    for piece in pieces:
        message = Checkpoint()
        entry = message.value.add()
        entry.tag = name
        for array in piece:
            tensor = entry.maptensor.tensor.add()
            tensor.dims.extend(array.shape)
            tensor.tensor_type = str(array.dtype)
            tensor.tensor_content = array.tobytes()
        out += message.SerializeToString()
    return Value("map", out)


def to_mindspore(name, value):
    import mindspore as ms
    from mindspore._c_expression import TensorPy
    if value.dtype == "str":
        return value.data
    kinds = {"Bool": ms.bool_, "BFloat16": ms.bfloat16, "Int4": ms.qint4x2,
             "Float8E4M3FN": ms.float8_e4m3fn, "Float8E5M2": ms.float8_e5m2}
    kind = kinds.get(value.dtype) or getattr(ms, value.dtype.lower())
    content = np.ascontiguousarray(value.data).tobytes()
    tensor = TensorPy.convert_bytes_to_tensor(content, tuple(value.shape), kind)
    return ms.Parameter(tensor, name=name)


NUMPY_NAMES = {"BFloat16": "bfloat16", "Float8E4M3FN": "float8_e4m3fn", "Float8E5M2": "float8_e5m2"}


def save_safetensors(path, named, crc=False, remove_redundancy=None):
    """Through ms.save_checkpoint, or the library itself for what MindSpore cannot save there: bfloat16
    (which wants another numpy), float8 and tensors without elements."""
    import mindspore as ms
    from safetensors import serialize_file
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not any(v.dtype in NUMPY_NAMES or v.data.size == 0 for _, v in named):
        ms.save_checkpoint({n: to_mindspore(n, v) for n, v in named}, path, format="safetensors",
                           crc_check=crc, remove_redundancy=remove_redundancy)
        return
    assert not crc
    metadata = {"format": "ms"}
    if remove_redundancy is not None:
        metadata["remove_redundancy"] = str(remove_redundancy)
    metadata.update({n: "Int4" for n, v in named if v.dtype == "Int4"})
    if os.path.exists(path):
        os.remove(path)
    serialize_file({n: {"dtype": NUMPY_NAMES.get(v.dtype, v.data.dtype.name), "shape": v.shape,
                        "data": np.ascontiguousarray(v.data).tobytes()} for n, v in named},
                   path, metadata)
    os.chmod(path, 0o400)


def save(path, named, crc=False, form="ckpt"):
    """Through ms.save_checkpoint, so that the file is what MindSpore writes; maps are put in place."""
    import mindspore as ms
    if form == "safetensors":
        save_safetensors(path, named, crc)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if any(value.dtype == "map" for _, value in named):
        parts = []
        for name, value in named:
            if value.dtype == "map":
                parts.append(value.data)
                continue
            ms.save_checkpoint({name: to_mindspore(name, value)}, path)
            with open(path, "rb") as f:
                parts.append(f.read())
        if os.path.exists(path):
            os.remove(path)
        with open(path, "wb") as f:
            f.write(b"".join(parts))
        os.chmod(path, 0o400)
        return
    ms.save_checkpoint({name: to_mindspore(name, value) for name, value in named}, path,
                       crc_check=crc)


def loaded_bytes(thing):
    """What load_checkpoint gave for one name, as (dtype name, shape, bytes)."""
    if isinstance(thing, str):
        return "str", (0,), thing.encode("utf-32-le")
    if isinstance(thing, list):
        return "map", (), b"".join(np.ascontiguousarray(a).tobytes() for a in thing)
    # get_bytes of an empty tensor fails; nothing saves one.
    return str(thing.dtype), tuple(thing.shape), thing.get_bytes()
