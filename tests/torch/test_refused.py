# SPDX-License-Identifier: Apache-2.0
"""What is refused, each with one line and before anything is mounted; and that nothing is ever executed."""
import builtins
import codecs
import datetime
import functools
import os
import shutil
import struct
import zipfile
from collections import OrderedDict

import hfai
import numpy
import states
import torch
from forged import *
from harness import *
from test_parts import saved as saved_state


def refused(src, fragment, options="nshards=2", status=1):
    got = run(reshardfs, "--check", src, "-o", options)
    lines = got.stderr.splitlines()
    equal((got.returncode, len(lines)), (status, 1), f"status and lines, which should say '{fragment}', of {got.stderr!r}")
    check(lines[0].startswith("reshardfs: error: ") and fragment in lines[0], f"'{fragment}' is not in: {lines[0]}")
    if status == 1:
        check("PART_" in lines[0] or src in lines[0], f"no file is named: {lines[0]}")


def taken(src, options="nshards=2"):
    got = run(reshardfs, "--check", src, "-o", options)
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")


def test_refused_names():
    """Calls of anything but what is listed; none is executed, by us."""
    marker = os.path.join(folder("marker"), "made")
    for name, call in [
        ("posix.system", Call(os.system, f"touch {marker}")),
        ("__builtin__.eval", Call(builtins.eval, f"open({marker!r}, 'w')")),
        ("__builtin__.getattr", Call(getattr, "a", "b")),
        ("functools.partial", Call(functools.partial, print)),
        ("datetime.date", datetime.date(2026, 1, 1)),
        ("torch.serialization.load", Call(torch.load, marker)),
        (f"{open.__module__}.open", Call(open, marker, "w")),
    ]:
        refused(put(archive(dumps(head(x=call)))), f"names {name}, which is not read; nothing was executed")
    refused(put(archive(dumps(Call(os.system, f"touch {marker}")))), "names posix.system")
    check(not os.path.exists(marker), "something was executed")


def test_refused_calls():
    """Names that are listed, used for what they are not: who loads what is shown must not run into it."""
    for call, name in [(Call(torch.FloatStorage, 3), "torch.FloatStorage"), (Call(bytes, 10**12), "__builtin__.bytes"),
                       (Call(codecs.encode, "x", "zlib"), "_codecs.encode"), (Call(set, "ab"), "__builtin__.set"),
                       (Call(torch.Size, 3), "torch.Size"), (Call(OrderedDict, {}), "collections.OrderedDict"),
                       (Call(numpy.dtype, "O", False, True), "numpy.dtype"), (Call(int, "3"), "__builtin__."),
                       (Call(torch._utils._rebuild_parameter, 1, True, OrderedDict()), "_rebuild_parameter")]:
        refused(put(archive(dumps(head(x=call)))), "the pickle in it uses ")
        refused(put(archive(dumps(head(x=call)))), name)
    damaged = "the pickle in it is damaged: "
    refused(put(after_head(b"K\x01)R")), damaged + "a call of something that is not callable")
    refused(put(after_head(b"(K\x01K\x02tQ")), damaged + "a persistent id that is not a storage")
    refused(put(after_head(b"X\x01\x00\x00\x00aQ")), damaged + "a persistent id that is not a storage")


def test_refused_opcodes():
    damaged = "the pickle in it is damaged: "
    for opcodes, what in [
        (b"\x93", "has the opcode 0x93"), (b"P1\n", "has the opcode 0x50"), (b"c", "a name without an end"),
        (b"X" + word(2**32 - 1), "it ends within a text"), (b"\x8b" + word(2**31), "it ends within a number"),
        (b"\x8a\xff", "it ends within a number"), (b"G", "it ends within a number"), (b"h\xff", "was never set"),
        (b"j" + word(2**32 - 1), "was never set"), (b"Nr" + word(2**32 - 1), "a memo number out of order"),
        (b"Nr" + word(10**6), "a memo number out of order"), (b"t", "no mark is set"), (b"u", "no mark is set"),
        (b"(K\x01u", "a key without a value"), (b"}(K\x01K\x02K\x03d", "a key without a value"),
        (b"a", "items are added to something that is not a list"), (b"N" * 3, "items are set on something that is not a dict"), (b"\x80\x02", "a protocol number"),
        (b"0000", "nothing to drop"), (b"(", "items without a container"), (b"\x87", "too few values"),
        (b"U\x01\xff", "that is not ASCII"),
    ]:
        refused(put(after_head(opcodes)), what)
    refused(put(archive(dumps(head())[:-1])), damaged + "it has no end")
    refused(put(archive(dumps(head()) + b"N.")), damaged + "something follows its end")
    refused(put(archive(b"\x80\x02NN.")), damaged + "it ends with values left over, or with none")
    refused(put(archive(b"")), damaged + "it has no end")


def test_refused_protocols():
    for protocol in (3, 4, 5):
        refused(put(saved(head(), pickle_protocol=protocol)), f"is of protocol {protocol}; protocol 2 is read")
    refused(put(archive(b"\x80\xff.")), "is of protocol 255")


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def test_nesting():
    """64 levels are more than any training has; what is nested deeper is refused, and no stack overflows."""
    taken(put(archive(dumps(head(x=deep(50))))))
    for levels in (70, 300):
        refused(put(archive(dumps(head(x=deep(levels))))), "nested deeper than 64 levels")
    refused(put(after_head(b"]" * 2000 + b"a" * 1999)), "nested deeper than 64 levels")
    refused(put(after_head(b"]" * 100000 + b"a" * 99999)), "bytes of memory")
    refused(put(after_head(b"N" + b"\x85" * 1000000)), "bytes of memory")
    deep_key = b"N" + b"\x85" * 1000
    refused(put(after_head(b"}" + deep_key + b"Ns")), "nested deeper than 64 levels")


def test_cycles():
    """What contains itself is no reason to refuse it, and none to hang."""
    ring = []
    ring.append(ring)
    value = {"in": {}}
    value["in"]["again"] = value
    group = {"params": [0], "lr": 0.1}
    group["self"] = group
    optimizer = ({"state": OrderedDict([(0, value), (1, {"list": ring})]), "param_groups": [group]}, {})
    part = [saved(head(2, optimizer=[optimizer], **({"ring": ring} if rank == 0 else {}))) for rank in (0, 1)]
    taken(put(part[0].replace(b"K\x02X", b"K\x01X", 1) if False else saved(head(optimizer=[optimizer], ring=ring))))
    refused(put(*part), "differs from part 0's: the parts are of different saves")
    refused(put(archive(dumps(ring))), "is not a part of an hfai checkpoint")
    model = []
    model.append(model)
    refused(put(archive(dumps(head(model=model)))), "is not a pair of dicts")


def laughs(levels, width=10):
    value = ["ha"] * width
    for _ in range(levels):
        value = [value] * width
    return value


def test_what_is_shared_many_times():
    """10^30 strings in a few bytes: looked at once, and written as small as they came."""
    bomb = laughs(29)
    src = put(archive(dumps(head(x=bomb))))
    with Mount(src, "nshards=1") as m:
        check(os.stat(os.path.join(m.mnt, "PART_000.pt")).st_size < 10000, "a large file")
    optimizer = ({"state": {i: {"momentum": bomb} for i in range(30)}, "param_groups": [{"x": bomb}]}, {})
    taken(put(archive(dumps(head(optimizer=[optimizer])))))
    taken(put(*(archive(dumps(head(2, optimizer=[optimizer], model=[]))) for _ in range(2))))


def test_refused_formats():
    refused(put(saved(head(), _use_new_zipfile_serialization=False)), "is of torch.save's format before 1.6")
    where = put()
    torch.jit.script(torch.nn.Linear(2, 2)).save(os.path.join(where, "PART_000.pt"))
    refused(where, "the archive's entry is compressed")
    refused(put(archive(dumps(head()), more=[("constants.pkl", dumps(()))])), "the file is a TorchScript archive")
    refused(put(b""), "the file is truncated, or not written by torch.save")
    refused(put(b"not a checkpoint" * 10), "the file is not written by torch.save")
    refused(put(archive(dumps(head()), version=None)), "the file's version is not one of 1 to 10")
    refused(put(archive(dumps(head()), version=b"11\n")), "the file's version is not one of 1 to 10")
    refused(put(archive(dumps(head()), version=b"-1\n")), "the file's version is not one of 1 to 10")
    refused(put(archive(dumps(head()), version=b"3" * 100)), "version': the archive's entry is too long")
    for order in (b"big", b"middle"):
        refused(put(archive(dumps(head()), more=[("byteorder", order)])), "byte order is not little-endian")
    taken(put(archive(dumps(head()), more=[("byteorder", b"little")])))
    refused(put(archive(dumps(head())).replace(b"data.pkl", b"other.pk")), "the archive has no data.pkl")
    refused(put(archive(dumps(head())).replace(b"PART_000/v", b"another__v")), "are not all in one folder")


def good():
    return one_tensor(tensor(Storage(torch.FloatStorage, "0", 6), 0, (2, 3), (3, 1)), bytes(24))


def test_truncated_files():
    data = good()
    taken(put(data))
    for size in {*range(0, len(data), 37), *range(len(data) - 60, len(data))}:
        refused(put(data[:size]), "")
    refused(put(data + bytes(70000)), "the file has no zip directory")


def entries_of(data):
    """Offsets of the directory's entries, by name."""
    at, out = zipfile.ZipFile(io.BytesIO(data)).start_dir, {}
    while data[at:at + 4] == b"PK\1\2":
        name, extra = struct.unpack("<HH", data[at + 28:at + 32])
        out[data[at + 46:at + 46 + name].decode().split("/", 1)[1]] = at
        at += 46 + name + extra
    return out


def patched(data, at, form, value):
    data = bytearray(data)
    struct.pack_into("<" + form, data, at, value)
    return bytes(data)


def test_refused_archives():
    data = good()
    at = entries_of(data)
    where = struct.unpack("<I", data[at["data/0"] + 42:at["data/0"] + 46])[0]
    refused(put(one_tensor(tensor(Storage(torch.FloatStorage, "0", 60), 0, (2, 3), (3, 1)), bytes(240),
                           method=zipfile.ZIP_DEFLATED)), "the archive's entry is compressed (method 8)")
    refused(put(patched(data, at["data/0"] + 8, "H", 1)), "the archive's entry is encrypted")
    refused(put(patched(data, at["data/0"] + 8, "H", 0x2000)), "the archive's entry is encrypted")
    refused(put(patched(data, where + 6, "H", 1)), "has another header than its directory says")
    refused(put(patched(data, where + 8, "H", 8)), "has another header than its directory says")
    refused(put(patched(data, where, "I", 0)), "has another header than its directory says")
    refused(put(patched(data, at["data/0"] + 20, "I", 23)), "a stored entry has two sizes")
    refused(put(patched(data, at["data/0"] + 42, "I", 0)), "has another header than its directory says")
    refused(put(patched(data, at["data/0"] + 42, "I", 2**31)), "does not lie before its directory")
    refused(put(patched(data, at["data/0"] + 42, "I", 2**32 - 1)), "a size of more than 4 GiB is missing")
    huge = patched(patched(data, at["data/0"] + 20, "I", 2**31), at["data/0"] + 24, "I", 2**31)
    huge = patched(patched(huge, where + 18, "I", 2**31), where + 22, "I", 2**31)
    refused(put(huge), "the archive's entry runs into its directory")
    longer = patched(patched(data, at["data/0"] + 20, "I", 30), at["data/0"] + 24, "I", 30)
    longer = patched(patched(longer, where + 18, "I", 30), where + 22, "I", 30)
    refused(put(longer), "overlaps another")
    twice = data.replace(b"PART_000/version", b"PART_000/data/0" + b"0")
    refused(put(twice), "the file's version is not one of 1 to 10")
    same = archive(dumps(head()), [("0", b"a"), ("1", b"b")]).replace(b"data/1", b"data/0")
    refused(put(same), "the archive has two entries of this name")
    end = data.rindex(b"PK\5\6")
    refused(put(patched(data, end + 10, "H", 60000)), "")
    refused(put(patched(patched(data, end + 10, "H", 60000), end + 8, "H", 60000)), "impossible size")
    refused(put(patched(data, end + 4, "H", 1)), "split over several files")
    refused(put(patched(data, end + 12, "I", 2**31)), "the archive's directory lies beyond its end")
    refused(put(patched(data, end + 16, "I", end - 10)), "")


def test_refused_tensors():
    def with_tensor(kind, elements, content, *rest, key="0"):
        return put(one_tensor(tensor(Storage(kind, key, elements), *rest), content))

    f = torch.FloatStorage
    taken(with_tensor(f, 6, bytes(24), 0, (2, 3), (3, 1)))
    taken(with_tensor(f, 6, bytes(24), 5, (1, 1), (2**40, 7)))
    taken(with_tensor(f, 0, b"", 0, (0, 2**40), (2**40, 1)))
    for size in (0, 23, 25, 20):
        refused(with_tensor(f, 6, bytes(size), 0, (2, 3), (3, 1)), f"its storage has {size} bytes in the file, and not "
                "6 elements of 4")
    refused(with_tensor(f, 2**62, bytes(24), 0, (2, 3), (3, 1)), "and not 4611686018427387904 elements of 4")
    refused(with_tensor(f, -1, bytes(24), 0, (2, 3), (3, 1)), "a persistent id that is not a storage")
    refused(with_tensor(f, 2**64, bytes(24), 0, (2, 3), (3, 1)), "a persistent id that is not a storage")
    refused(with_tensor(f, 6, bytes(24), 0, (2, 3), (3, 1), key="7"), "its storage is not in the file")
    refused(with_tensor(f, 6, bytes(24), 0, (2, 3), (3, 1), key="x" * 1000), "a storage's key is too long")
    for rest in [(1, (2, 3), (3, 1)), (0, (2, 3), (4, 1)), (0, (7,), (1,)), (6, (1,), (1,)), (0, (2, 2), (5, 1))]:
        refused(with_tensor(f, 6, bytes(24), *rest), "parameter 'w': it reaches out of its storage")
    for rest in [(0, (2**62, 8), (1, 1)), (0, (2,), (2**63 - 1,)), (2**62, (3, 3), (2**62, 2**62)),
                 (0, (2**40, 2**40), (0, 0))]:
        refused(with_tensor(f, 6, bytes(24), *rest), "parameter 'w': it")
    for rest in [(-1, (2, 3), (3, 1)), (0, (2, -3), (3, 1)), (0, (2, 3), (-3, 1)), (0, (2, 3), (1,)), (0, 6, 1),
                 (0, (1,) * 17, (1,) * 17), (0, ("2",), (1,)), (0, (2**64,), (1,))]:
        refused(with_tensor(f, 6, bytes(24), *rest), "")
    refused(with_tensor(f, 6, bytes(24), 0, (2, 3), (3, 1), {"conj": True}), "is a lazy conjugate or negative")
    taken(with_tensor(f, 6, bytes(24), 0, (2, 3), (3, 1), {}))
    refused(put(archive(dumps(head(model=[({"w": 3}, {})])))), "'w': a parameter that is not a tensor")
    refused(put(archive(dumps(head(model=[({3: 3}, {})])))), "a parameter whose name is not a text")


def test_refused_kinds_of_tensors():
    """Sparse and quantized ones, and those with attributes."""
    refused(put(saved(head(x=torch.eye(3).to_sparse()))), "names torch._utils._rebuild_sparse_tensor")
    refused(put(saved(head(x=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)))), "names torch.")
    noted = torch.ones(3)
    noted.note = 1
    if b"_rebuild_from_type_v2" in saved(noted):  # torch before 2 forgets them
        refused(put(saved(head(x=noted))), "names torch._tensor._rebuild_from_type_v2")


def changed(src, number, change):
    """One part of a state loaded, changed, and saved again."""
    path = os.path.join(src, "PART_%03d.pt" % number)
    value = hfai.torch_load(path)
    change(value)
    torch.save(value, path)
    return src


def copy(name="adam", n=3, large=hfai.LARGE):
    copy.count += 1
    where = os.path.join(folder("copies"), str(copy.count))
    return shutil.copytree(saved_state(name, n, large), where)


copy.count = 0
SAVES = "the parts are of different saves"


def steps_as(*counts):
    """Sets the steps of a part's parameters, in turn."""
    def change(part):
        for i, value in enumerate(part["optimizer"][0][0]["state"].values()):
            value["step"] = torch.tensor(float(counts[i % len(counts)]))
    return change


def test_parts_of_different_saves():
    refused(changed(copy(), 1, lambda p: p["optimizer"][0][0]["param_groups"][0].update(lr=7)),
            f"PART_001.pt: parameter 'param_groups': differs from part 0's: {SAVES}")
    refused(changed(copy(), 2, lambda p: p["optimizer"][0][0].update(more=1)), f"other keys than part 0's: {SAVES}")
    refused(changed(copy(), 2, steps_as(5)), f"PART_002.pt: its optimizer counts other steps than part 0's: {SAVES}")
    refused(changed(copy(), 0, steps_as(5)), f"its optimizer counts other steps than part 0's: {SAVES}")
    refused(changed(copy(), 1, lambda p: p["model"].append(p["model"][0])), "another number of models or optimizers")
    refused(changed(copy(), 1, lambda p: p.update(optimizer=[])), "another number of models or optimizers")
    refused(changed(copy("odd", 3, 300), 1, lambda p: p["model"][0][1].popitem()), f"than part 0: {SAVES}")
    refused(changed(copy("odd", 3, 300), 1, lambda p: p["optimizer"][0][1].popitem()), f"than part 0: {SAVES}")
    src = copy("odd", 3, 300)
    shutil.copy(os.path.join(saved_state("odd", 3, 1000), "PART_001.pt"), src)
    refused(src, SAVES)


def test_uneven_steps():
    """Where one part has several counts, so may the others; and a count of its own in another group is none."""
    taken(changed(changed(copy(), 1, steps_as(5, 2)), 2, steps_as(7)))
    taken(changed(copy(), 2, steps_as(5)), "uneven_steps")
    src = folder("groups")
    model = states.make("adam")[0][0]
    old, new = list(model.layers.parameters()), [model.scale]
    optimizer = torch.optim.Adam(old)
    states.train(model, optimizer)
    optimizer.add_param_group({"params": new})
    states.train(model, optimizer)
    hfai.save(os.path.join(src, "8"), [model], [optimizer], {}, 8)
    taken(os.path.join(src, "8"))


def pieces(part):
    return part["model"][0][1]


def test_refused_pieces():
    def cut_short(part):
        size, flat = pieces(part)["2"]
        pieces(part)["2"] = size, flat[:-1].clone()

    def another(change):
        return lambda part: pieces(part).update({"2": change(*pieces(part)["2"])})

    src = functools.partial(copy, "odd", 3, 300)
    refused(changed(src(), 1, cut_short), "another number of elements than the whole: parts are missing")
    refused(changed(src(), 1, another(lambda size, flat: (size, flat.half()))), f"differs from part 0's: {SAVES}")
    refused(changed(src(), 1, another(lambda size, flat: (torch.Size([31, 17]), flat))), f"differs from part 0's: {SAVES}")
    refused(changed(src(), 1, another(lambda size, flat: (size, flat.view(1, -1)))), "whose piece is not a flat tensor")
    refused(changed(src(), 1, another(lambda size, flat: (size, 3))), "whose piece is not a flat tensor")
    refused(changed(src(), 1, another(lambda size, flat: (7, flat))), "whose size is not a torch.Size")
    refused(changed(src(), 1, another(lambda size, flat: flat)), "not a pair of size and piece")
    refused(changed(src(), 1, lambda p: p["model"][0][0].update({"2": torch.ones(1)})), "is both whole and in pieces")
    def drop_states(part):
        part["optimizer"][0][0]["state"].clear()
    all_dropped = src()
    for rank in range(3):
        changed(all_dropped, rank, drop_states)
    refused(all_dropped, "a large tensor of a state that no part has")


def test_refused_folders():
    src = copy()
    os.rename(os.path.join(src, "PART_002.pt"), os.path.join(src, "PART_003.pt"))
    refused(src, "'PART_003.pt' is none of PART_000.pt to PART_002.pt")
    src = copy()
    os.unlink(os.path.join(src, "PART_002.pt"))
    refused(src, "PART_000.pt: the part is one of 3, but the folder holds 2")
    src = copy()
    shutil.copy(os.path.join(src, "PART_002.pt"), os.path.join(src, "PART_003.pt"))
    refused(src, "PART_000.pt: the part is one of 3, but the folder holds 4")
    src = copy()
    shutil.copy(os.path.join(src, "PART_002.pt"), os.path.join(src, "PART_merged.pt"))
    refused(src, "'PART_merged.pt' is none of PART_000.pt to PART_003.pt")
    src = copy()
    os.unlink(os.path.join(src, "PART_000.pt"))
    refused(src, "'PART_002.pt' is none of PART_000.pt to PART_001.pt")


def test_refused_heads():
    for change, what in [
        (lambda p: p.pop("__nshards__"), "it has no __nshards__"),
        (lambda p: p.pop("__version__"), "the part is not of format 2.0.0"),
        (lambda p: p.update(__version__="2.1.0"), "the part is not of format 2.0.0"),
        (lambda p: p.update(__nshards__=4), "the part is one of 4, but the folder holds 3"),
        (lambda p: p.update(__nshards__=-1), "the part is one of -1, but the folder holds 3"),
        (lambda p: p.update(__nshards__="3"), "it has no __nshards__"),
        (lambda p: p.pop("model"), "the part has no list of models and optimizers"),
        (lambda p: p.update(optimizer=None), "the part has no list of models and optimizers"),
        (lambda p: p.update(model=[{}]), "is not a pair of dicts"),
        (lambda p: p["optimizer"][0][0].pop("state"), "an optimizer of the part has no state"),
    ]:
        refused(changed(copy(), 0, change), what)
    refused(put(saved([1, 2])), "is not a part of an hfai checkpoint")
    refused(put(saved(torch.ones(3))), "is not a part of an hfai checkpoint")


def test_refused_options():
    src = copy()
    for option, value in [("src_strategy", "x"), ("dst_rules", "*: whole,dst_ranks=2"), ("dtype", "bfloat16"),
                          ("names", "x"), ("format", "ckpt"), ("format", "safetensors"), ("view", "unified"),
                          ("prefix", "x"), ("entry", "model"), ("step", "3"), ("epoch", "1"), ("file", "*"),
                          ("check", "crc"), ("rank_dir", "r%d")]:
        refused(src, f"option {option} has no effect", f"nshards=2,{option}={value}", 2)
    for flag in ("crc", "strict", "segmented"):
        refused(src, f"option {flag} has no effect", f"nshards=2,{flag}", 2)
    taken(src, "nshards=2,format=pt")
    for value in ("0", "-1", "x", ""):
        refused(src, "option nshards", f"nshards={value}", 2)
    refused(src, "option nshards=4097: at most 4096 parts are shown", "nshards=4097", 2)
    tree = folder("tree")
    os.makedirs(os.path.join(tree, "rank_0"))
    torch.save({"w": torch.ones(3)}, os.path.join(tree, "rank_0", "a.pt"))
    for option in ("nshards=2", "large_size=3", "uneven_steps"):
        refused(tree, f"option {option.split('=')[0]} is for hfai's", option + ",format=ckpt", 2)
    refused(tree, "option zip_crc is for .pt files", "zip_crc,format=ckpt", 2)


def test_damaged_bytes():
    """Whatever byte of a part's pickle or directory changes: one line, or a mount that is sound; never a crash."""
    src = saved_state("odd", 1, 300)
    with open(os.path.join(src, "PART_000.pt"), "rb") as f:
        data = f.read()
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    for at in [*range(64, 2700, 61), *range(start, len(data), 37)]:
        where = put(patched(data, at, "B", data[at] ^ 0xff))
        got = run(reshardfs, "--check", where, "-o", "nshards=2")
        check(got.returncode in (0, 1) and len(got.stderr.splitlines()) == got.returncode,
              f"byte {at}: {got.returncode}, {got.stderr!r}")
