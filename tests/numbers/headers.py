# SPDX-License-Identifier: Apache-2.0
"""Headers of safetensors files, made at random and damaged at random: what the library takes is taken here, with the
same tensors at the same places, and what it refuses is refused.

check_headers reads each header; some files also go through a whole view, which must write what the library writes.
What it takes and we refuse is listed in exception().
"""
import ctypes
import json
import math
import os
import random
import struct
import subprocess

from safetensors import SafetensorError, TensorSpec, deserialize, serialize

import harness
import loading
from harness import check, equal

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
        "C64": 64, "F64": 64, "I64": 64, "U64": 64}
PACKED = {"F4": 2, "F6_E2M3": 4, "F6_E3M2": 4}
DIMS_MOST = 16
ROUNDS = 5000
WHOLE = 40  # of the headers that are taken also go through a view
# In torch's words, for those that the library writes from Python.
WORDS = {"BOOL": "bool", "F4": "float4_e2m1fn_x2", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
         "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
         "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
         "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64",
         "U64": "uint64"}


# ---- headers -----------------------------------------------------------------------------------------------------------

def some_shape(chance, dtype):
    shape = [chance.choice((0, 1, 1, 2, 2, 3, 4, 5, 8)) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4)))]
    if dtype in PACKED and chance.random() < .8:
        shape = shape[:-1] + [PACKED[dtype] * chance.randrange(4)]
    return shape


def some_name(chance):
    return chance.choice(("w", "model.layers.0.mlp", "é", "\U0001f600", "", "a b", "\"", "\\", "/", "\n", "dtype", "__metadata",
                          "x" * 300, "\x7f", "\u2028")) + str(chance.randrange(1000))


def some_tensors(chance):
    """A valid header and the bytes of data that it describes: {name: [dtype, shape, begin, end]}"""
    out, at = {}, 0
    for _ in range(chance.choice((1, 1, 2, 3, 5, 9))):
        dtype = chance.choice(list(BITS))
        shape = some_shape(chance, dtype)
        bits = BITS[dtype]
        for dim in shape:
            bits *= dim
        size = -(-bits // 8)  # of a part of a byte, which is refused
        out.setdefault(some_name(chance), [dtype, shape, at, at + size])
        at = max(end for *_, end in out.values())
    return out, at


def move(chance, tensors):
    """Changes the places or the form of tensors; most of that is wrong."""
    name = chance.choice(list(tensors))
    entry = tensors[name]
    kind = chance.randrange(8)
    if kind < 3:
        entry[2 + kind % 2] += chance.choice((-1, 1, -4, 8, 2**63, 2**64))
    elif kind == 3:
        other = tensors[chance.choice(list(tensors))]
        entry[2:], other[2:] = other[2:], entry[2:]
    elif kind == 4:
        entry[0] = chance.choice([*BITS, "F4", "f32", "F5", "I4", "U4", "C128", "F8", "", "BF16 "])
    elif kind == 5:
        entry[1] = [*entry[1], chance.choice((0, 1, 2, 2**32, 2**63, 2**64, -1, 1.0, "1", None))]
    elif kind == 6:
        entry[1] = [1] * chance.choice((DIMS_MOST - 1, DIMS_MOST, DIMS_MOST + 1, 40)) + entry[1]
    else:
        entry[2:] = [entry[2], entry[2]]


def described(chance, entry):
    """The description of a tensor; some have other members, forms or orders."""
    dtype, shape, begin, end = entry
    items = [("dtype", dtype), ("shape", shape), ("data_offsets", [begin, end])]
    odd = chance.random() * 1.5
    if odd < .2:
        chance.shuffle(items)
    elif odd < .25:
        items.pop(chance.randrange(3))
    elif odd < .3:
        items.insert(chance.randrange(4), ("more", chance.choice(([{"a": [1e3, None]}], {}, "text", -1.5, True))))
    elif odd < .32:
        items.append((chance.choice(items)[0], None))
    elif odd < .34:
        return json.dumps([value for _, value in items])
    elif odd < .36:
        return json.dumps(chance.choice((None, [], {}, "F32", 1, [items])))
    elif odd < .38:
        items[2] = ("data_offsets",
                    chance.choice(([begin], [begin, end, end], {"0": begin}, [float(begin), end], str(begin), None)))
    elif odd < .4:
        items[1] = ("shape", chance.choice(({}, None, "1", [[1]], 1)))
    return "{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in items) + "}"


def some_metadata(chance):
    return chance.choice(('{"format":"pt"}', "{}", "null", '{"a":"b","c":"é"}', '{"a":1}', '{"a":null}', '{"a":{"b":"c"}}', "[]",
                          '"text"', "1", '{"":""}', '{"a":"x","a":"y"}', '{"total":"1","\\u0041":"\\ud83d\\ude00"}'))


def some_header(chance):
    """(header in bytes, bytes of data)"""
    tensors, size = some_tensors(chance)
    if chance.random() < .25:
        move(chance, tensors)
    names = list(tensors)
    if chance.random() < .5:
        chance.shuffle(names)
    members = []
    for name in names:
        plain = name if chance.random() < .5 else json.loads(json.dumps(name))
        members.append(json.dumps(plain, ensure_ascii=chance.random() < .5) + ":" + described(chance, tensors[name]))
    if chance.random() < .5:
        members.insert(chance.randrange(len(members) + 1), '"__metadata__":' + some_metadata(chance))
    if chance.random() < .03:
        members.append(chance.choice(members))
    comma = chance.choice((",", ",", ", ", " ,\n\t"))
    return ("{" + comma.join(members) + "}" + chance.choice(("", " ", "   ", "\n", "\t\r"))).encode(), size


def damage(chance, header):
    """Changes some bytes of the text."""
    at, kind = chance.randrange(len(header) + 1), chance.randrange(6)
    if kind == 0:
        return header[:at] + bytes([chance.randrange(256)]) + header[at + 1:]
    if kind == 1:
        return header[:at] + header[at + chance.randrange(1, 9):]
    if kind == 2:
        end = at + chance.randrange(1, 30)
        return header[:end] + header[at:]
    if kind == 3:
        pieces = (b" ", b",", b"{", b"}", b"[", b"]", b"0", b"-", b".0", b"e1", b"\\u0000", b"\\ud800", b"\\x", b"\0", b"\xff", b"null")
        return header[:at] + chance.choice(pieces) + header[at:]
    if kind == 4:
        depth = chance.choice((10, 60, 70, 126, 130, 500))
        return header.replace(b"{\"dtype\"", b"{\"deep\":" + b"[" * depth + b"]" * depth + b",\"dtype\"", 1)
    return chance.choice((b" ", b"\xef\xbb\xbf", b"\n", b"[")) + header


def some_file(chance):
    header, size = some_header(chance)
    if chance.random() < .2:
        header = damage(chance, header)
    length, odd = len(header), chance.random()
    if odd < .03:
        length += chance.choice((-1, 1, 8, -length, 10**8, 2**63))
        length = max(0, length)
    elif odd < .06:
        size = max(0, size + chance.choice((-1, 1, 8)))
    return struct.pack("<Q", length) + header + chance.randbytes(size)


# ---- what both say -----------------------------------------------------------------------------------------------------

def by_library(data):
    """The tensors, by name, or None and the reason."""
    try:
        return {name: (entry["dtype"], list(entry["shape"]), bytes(entry["data"])) for name, entry in deserialize(data)}, None
    except SafetensorError as error:
        return None, str(error)


def by_reshard(data, line):
    """The tensors, by name, or None, as check_headers says."""
    word, _, rest = line.partition(" ")
    if word == "no":
        return None
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    out, end = {}, 0
    for one in rest.split():
        name, dtype, shape, first, last = one.split(":")
        check(int(first) == end, f"{one} is not behind the one before it, in {line}")
        end = int(last)
        out[bytes.fromhex(name).decode()] = (dtype, [int(dim) for dim in shape.split(",") if dim], data[begin + int(first):begin + end])
    return out


def depth_of(text):
    most = depth = 0
    for char in text:
        depth += (char in "[{") - (char in "]}")
        most = max(most, depth)
    return most


def exception(data, tensors):
    """Why a file that the library takes may be refused here, or None."""
    text = data[8:8 + struct.unpack("<Q", data[:8])[0]].decode()
    twice = []

    def look(pairs):
        twice.extend(key for i, (key, _) in enumerate(pairs) if key in [other for other, _ in pairs[:i]])
        return dict(pairs)

    json.loads(text, object_pairs_hook=look)
    if text[0] != "{":
        return "space before the brace, with which a header must begin"
    if twice:
        return "a key comes twice"
    if depth_of(text) > 60:
        return "deep nesting"
    if not tensors:
        return "no tensors"
    if any("\0" in name for name in tensors) or "\\u0000" in text:
        return "a NUL in a text"
    if any(len(shape) > DIMS_MOST for _, shape, _ in tensors.values()):
        return f"more than {DIMS_MOST} dimensions"
    if any(0 in shape and math.prod(max(dim, 1) for dim in shape) * BITS[dtype] // 8 >= 2**63
           for dtype, shape, _ in tensors.values()):
        return "dimensions beside a 0 that multiply to more than 2^63 bytes"
    if any(dtype in PACKED and (not shape or shape[-1] % PACKED[dtype]) for dtype, shape, _ in tensors.values()):
        return "numbers below a byte that do not fill bytes along the last dimension"
    return None


def compare_with_library(seed):
    chance = random.Random(seed)
    files = [some_file(chance) for _ in range(ROUNDS)]
    done = subprocess.run([loading.program("tests/support/check_headers")], stdout=subprocess.PIPE, timeout=300, check=True,
                          input=b"".join(struct.pack("=Q", len(file)) + file for file in files))
    lines = done.stdout.decode(errors="replace").split("\n")
    equal(len(lines), ROUNDS + 1, "lines of check_headers")
    taken, excepted = [], {}
    for file, line in zip(files, lines):
        theirs, why = by_library(file)
        ours = by_reshard(file, line)
        if theirs is not None and ours is None:
            reason = exception(file, theirs)
            check(reason is not None, f"safetensors takes {file[:2000]!r}, and here: {line}")
            excepted[reason] = excepted.get(reason, 0) + 1
            continue
        check(ours is None or theirs is not None, f"safetensors refuses {file[:2000]!r}: {why}; here: {line[:500]}")
        equal(ours, theirs, f"tensors of {file[:2000]!r}")
        if ours is not None:
            taken.append((file, ours))
    print(f"{len(taken)} of {ROUNDS} headers are taken; exceptions: {excepted}")
    check(len(taken) > ROUNDS // 5 and len(taken) < ROUNDS * 4 // 5, "the headers are not a mixture")
    return chance, taken


# ---- whole views -------------------------------------------------------------------------------------------------------

def written(tensors):
    """What the library writes from Python. None: of a type that it cannot be given."""
    specs, kept = {}, []
    for name, (dtype, shape, data) in tensors.items():
        if dtype not in WORDS:
            return None
        kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        if dtype == "F4":  # a shape of torch
            shape = shape[:-1] + [shape[-1] // 2]
        specs[name] = TensorSpec(dtype=WORDS[dtype], shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data))
    return serialize(specs, {"format": "pt"})


def compare_views(chance, taken):
    """A view writes the files again, byte for byte as the library does, whatever the order of their headers was."""
    compared = 0
    folder = harness.folder("headers")
    source, out = os.path.join(folder, "x.safetensors"), os.path.join(folder, "out")
    for file, tensors in chance.sample(taken, WHOLE):
        want = written(tensors)
        if want is None:
            continue
        with open(source, "wb") as f:
            f.write(file)
        done = harness.run(harness.reshard, "export", source, out, "--force", "-o", "view=huggingface")
        equal(done.returncode, 0, f"export of {file[:1000]!r}: {done.stderr}")
        with open(os.path.join(out, "model.safetensors"), "rb") as f:
            check(f.read() == want, f"{file[:1000]!r} is written in another way")
        compared += 1
    check(compared > WHOLE // 2, f"{compared} files were compared")
