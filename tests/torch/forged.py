# SPDX-License-Identifier: Apache-2.0
"""Files that torch.save would not write: archives and pickles put together by hand."""
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import torch
from harness import folder


def head(n=1, **more):
    return {"__nshards__": n, "__version__": "2.0.0", "model": [], "optimizer": [], **more}


def archive(pickled, records=(), version=b"3\n", more=(), method=zipfile.ZIP_STORED, prefix="PART_000"):
    """The bytes of an archive; RECORDS are (key, content), MORE (name, content)."""
    buffer = io.BytesIO()
    entries = [("data.pkl", pickled), *((f"data/{k}", v) for k, v in records), *more]
    if version is not None:
        entries.append(("version", version))
    with zipfile.ZipFile(buffer, "w", method) as z:
        for name, content in entries:
            z.writestr(f"{prefix}/{name}", content)
    return buffer.getvalue()


def put(*contents):
    """A folder of these parts: bytes."""
    where = folder(f"forged-{put.count}")
    put.count += 1
    for i, content in enumerate(contents):
        with open(os.path.join(where, "PART_%03d.pt" % i), "wb") as f:
            f.write(content)
    return where


put.count = 0


def saved(value, **how):
    buffer = io.BytesIO()
    torch.save(value, buffer, **how)
    return buffer.getvalue()


class Call:
    """Pickles as a call of a name, whatever it is."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Tensors(pickle.Pickler):
    """Knows Storage, by persistent ids."""

    def persistent_id(self, obj):
        return obj.id if isinstance(obj, Storage) else None


class Storage:
    def __init__(self, kind, key, elements, location="cpu"):
        self.id = "storage", kind, key, location, elements


def dumps(value, protocol=2):
    buffer = io.BytesIO()
    Tensors(buffer, protocol).dump(value)
    return buffer.getvalue()


def tensor(storage, offset, size, stride, *more):
    return Call(torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, OrderedDict(), *more)


def one_tensor(value, content, **more):
    """A part whose model is that one tensor over storage 0."""
    return archive(dumps(head(model=[({"w": value}, {})])), [("0", content)], **more)


def after_head(*opcodes):
    """A part whose dict gets one more value, made by these opcodes."""
    body = dumps(head())
    assert body.endswith(b".")
    return archive(body[:-1] + b"X\x01\x00\x00\x00x" + b"".join(opcodes) + b"s.")


def word(number):
    return struct.pack("<I", number)
