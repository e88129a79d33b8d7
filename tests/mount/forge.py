# SPDX-License-Identifier: Apache-2.0
"""Writes small checkpoints and strategies byte by byte, right and wrong, and the files to expect.

A tree is cut the simplest way, each parameter along one axis over all ranks or not at all, so that the
expected files are computed here by plain slicing; the tests of other rooms have the hard layouts.

    Checkpoint { 1 value { 1 tag, 2 tensor { 1 dims…, 2 tensor_type, 3 tensor_content } } }
    strategy: see proto/node_strategy.proto
"""
import os
import random
from collections import namedtuple

BYTES = {"Float32": 4, "Float16": 2, "Int32": 4, "Int8": 1, "Float64": 8, "Bool": 1}

# src, dst: the axis that is cut on that side, WHOLE, or ABSENT (not in that strategy).
Param = namedtuple("Param", "name shape src dst dtype", defaults=("Float32",))
WHOLE, ABSENT = -1, None


def varint(n):
    n &= 2**64 - 1
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def text(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def value(tag, dims, dtype, content):
    tensor = b"".join(number(1, d) for d in dims) + text(2, dtype) + text(3, content)
    return text(1, text(1, tag) + text(2, tensor))


def layout(name, dev, tensor_map, opt=(0, 0)):
    axes = b"".join(number(1, d) for d in dev)
    maps = b"".join(number(1, m) for m in tensor_map)
    body = text(1, axes) + text(2, maps) + text(3, b"") + text(4, b"")
    body += number(5, 0) + number(6, opt[0]) + number(7, opt[1])
    return text(3, text(1, name) + text(2, body))


def strategy(layouts, stage=0):
    item = text(1, "MatMul-op0") + text(2, number(1, stage) + text(2, number(1, 1)))
    return number(1, 2) + text(2, item) + b"".join(layouts)


def strategy_of(params, ranks, side):
    def tensor_map(p):
        return [0 if axis == getattr(p, side) else -1 for axis in range(len(p.shape))]

    return strategy(
        layout(p.name, [ranks], tensor_map(p)) for p in params if getattr(p, side) is not ABSENT
    )


def elements(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def content_of(p, version=0):
    """The full tensor: bytes that differ from place to place, name to name and version to version, the same each time."""
    return random.Random(f"{p.name} {version}").randbytes(elements(p.shape) * BYTES[p.dtype])


def cut(p, axis, ranks, rank, full):
    """(shape, bytes) of the rank's slice."""
    if axis in (WHOLE, ABSENT):
        return list(p.shape), full
    shape = list(p.shape)
    shape[axis] //= ranks
    inner = elements(p.shape[axis + 1 :]) * BYTES[p.dtype]
    row, part = p.shape[axis] * inner, shape[axis] * inner
    rows = elements(p.shape[:axis])
    return shape, b"".join(full[r * row + rank * part : r * row + (rank + 1) * part] for r in range(rows))


class Tree:
    """A source of src_n ranks and its two strategies under DIR."""

    def __init__(self, where, params, src_n, dst_n, version=0, content=content_of):
        self.dir, self.params, self.src_n, self.dst_n = where, params, src_n, dst_n
        self.src = os.path.join(where, "src")
        self.full = {p.name: content(p, version) for p in params}
        for rank in range(src_n):
            os.makedirs(os.path.join(self.src, f"rank_{rank}"))
            self.write(rank, self.source(rank))
        self.put_strategy("src_strategy.ckpt", strategy_of(params, src_n, "src"))
        self.put_strategy("dst_strategy.ckpt", strategy_of(params, dst_n, "dst"))

    def path(self, rank):
        return os.path.join(self.src, f"rank_{rank}", f"net-1_{rank}.ckpt")

    def one_save(self):
        """Renames the files so that their names are those of one save, whatever ranks there are."""
        for rank in range(self.src_n):
            os.rename(self.path(rank), os.path.join(self.src, f"rank_{rank}", "net-1_5.ckpt"))
        self.path = lambda rank: os.path.join(self.src, f"rank_{rank}", "net-1_5.ckpt")

    def write(self, rank, data):
        with open(self.path(rank), "wb") as file:
            file.write(data)
        os.chmod(self.path(rank), 0o600)

    def put_strategy(self, name, data):
        with open(os.path.join(self.dir, name), "wb") as file:
            file.write(data)

    def value(self, p, rank):
        shape, data = cut(p, p.src, self.src_n, rank, self.full[p.name])
        return value(p.name, shape, p.dtype, data)

    def source(self, rank):
        return b"".join(self.value(p, rank) for p in self.params)

    def expected(self, rank):
        """The destination file: parameters of both strategies first, in file order, then the rest."""
        both = [p for p in self.params if p.src is not ABSENT and p.dst is not ABSENT]
        out = b""
        for p in both + [p for p in self.params if p not in both]:
            if p in both:
                shape, data = cut(p, p.dst, self.dst_n, rank, self.full[p.name])
            else:
                local = rank % self.dst_n % self.src_n
                shape, data = cut(p, p.src, self.src_n, local, self.full[p.name])
            out += value(p.name, shape, p.dtype, data)
        return out

    def options(self, *more):
        files = [f"{s}_strategy={escape(os.path.join(self.dir, s + '_strategy.ckpt'))}" for s in ("src", "dst")]
        return ",".join(files + list(more))


def escape(path):
    return path.replace("\\", "\\\\").replace(",", "\\,")


def usual(scale=1):
    """One parameter of each kind; about 0.3 MB times SCALE over all ranks."""
    return [
        Param("rows", (64 * scale, 96), 0, 0),
        Param("cols", (64, 256 * scale), 1, 1),
        Param("turned", (64, 128 * scale), 0, 1),
        Param("bytes", (16, 4096 * scale), 1, 0, "Int8"),
        Param("bias", (24,), WHOLE, WHOLE),
        Param("moment", (40,), ABSENT, ABSENT, "Float64"),
    ]
