# SPDX-License-Identifier: Apache-2.0
"""Files of other forms than .ckpt: their names and sizes, how they are opened, and that they can be mapped."""
import errno
import json
import mmap
import os
import struct
import zlib

from forge import BYTES, Param, Tree, WHOLE, cut, usual
from harness import *

ORDER = ["Bool", "Int8", "Float16", "Int32", "Float32", "Float64"]  # ascending; the file is the other way
SHORT = {"Bool": "BOOL", "Int8": "I8", "Float16": "F16", "Int32": "I32", "Float32": "F32", "Float64": "F64"}


def encode(values, metadata):
    """A safetensors file of (name, dtype, shape, bytes)."""
    values = sorted(values, key=lambda v: (-ORDER.index(v[1]), v[0].encode()))
    header, data = {"__metadata__": {"format": metadata}}, b""
    for name, dtype, shape, content in values:
        header[name] = {"dtype": SHORT[dtype], "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def of_rank(tree, rank):
    out = []
    for p in tree.params:
        local = rank if p.dst is not None else rank % tree.dst_n % tree.src_n
        axis, n = (p.dst, tree.dst_n) if p.dst is not None else (p.src, tree.src_n)
        shape, data = cut(p, axis, n, local, tree.full[p.name])
        out.append((p.name, p.dtype, shape, data))
    return out


def whole(tree, names=None):
    return [(p.name, p.dtype, p.shape, tree.full[p.name]) for p in tree.params if not names or p.name in names]


def path_of(m, rank):
    return os.path.join(m.mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors")


def source_only(tree, *more):
    return ",".join([tree.options().split(",")[0], *more])


def mapped(path, want):
    """Through a shared and a private mapping, from behind and at once."""
    with open(path, "rb") as file:
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as m:
                for at in range(len(want) & ~4095, -1, -40960):
                    same_bytes(m[at : at + 100], want[at : at + 100], f"at {at}")
                same_bytes(m[:], want, "all")


def test_safetensors():
    tree = Tree(folder("tree"), usual(8), 4, 2)
    for io in ("auto", "cached", "direct"):
        with Mount(tree.src, tree.options("format=safetensors", f"io={io}"), mnt=folder("mnt-" + io)) as m:
            equal(sorted(os.listdir(m.mnt)), ["rank_0", "rank_1"], "ls")
            for rank in (0, 1):
                want = encode(of_rank(tree, rank), "ms")
                path = path_of(m, rank)
                equal(os.listdir(os.path.dirname(path)), [os.path.basename(path)], "ls")
                equal(os.stat(path).st_size, len(want), "size")
                same_bytes(read_all(path), want, f"rank {rank}, io={io}")
                if io != "direct":
                    mapped(path, want)
            equal(os.statvfs(m.mnt).f_files, 5, "files and folders")


def test_ckpt_stay_out_of_the_page_cache():
    """auto: a .ckpt is read past the page cache, so its pages are not there to be shared."""
    tree = Tree(folder("tree"), usual(), 4, 2)
    with Mount(tree.src, tree.options()) as m, open(m.file(0), "rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ).close()
        except OSError as error:
            equal(errno.errorcode[error.errno], "ENODEV", "a shared mapping of what is opened directly")
        else:
            raise AssertionError("mapped, and shared")


def test_pages_are_kept_between_opens():
    """What is in the page cache is not read again by the next reader of the file."""
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Foreground(tree.src, tree.options("format=safetensors"), "--debug") as m:
        want = encode(of_rank(tree, 0), "ms")
        same_bytes(read_all(path_of(m, 0)), want, "first")
        before = m.log().count("READ (")
        same_bytes(read_all(path_of(m, 0)), want, "again")
        check(before > 0, "the log shows reads")
        equal(m.log().count("READ ("), before, "reads of the second time")


def test_mapped_files_of_changed_sources():
    """A source that changes: no page that is not in memory yet is made up, and the next open sees no old one."""
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Mount(tree.src, tree.options("format=safetensors")) as m:
        size = os.stat(path_of(m, 0)).st_size
        with open(path_of(m, 0), "rb") as file:
            equal(len(os.pread(file.fileno(), 4096, 0)), 4096, "first page")
            with open(tree.path(0), "r+b") as source:
                source.write(b"\x0b")
            try:
                os.pread(file.fileno(), size, size // 2)
            except OSError as error:
                check(error.errno in (errno.ESTALE, errno.EIO), str(error))
            else:
                raise AssertionError("read, though the source has changed")

        def fresh():
            try:
                read_all(path_of(m, 0))
            except OSError as error:
                return error.errno in (errno.ESTALE, errno.EIO)
            return False

        eventually(fresh, "pages of the old content are dropped")


def test_huggingface():
    params = [Param("\u6743", (64, 64), 0, WHOLE), Param("b", (64, 8), 1, WHOLE, "Float16"),
              Param("large", (128, 64), 0, WHOLE), Param("a", (8,), WHOLE, WHOLE, "Int32")]
    tree = Tree(folder("tree"), params, 4, 1)
    with Mount(tree.src, source_only(tree, "view=huggingface,file_size=17K")) as m:
        names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        equal(sorted(os.listdir(m.mnt)), names + ["model.safetensors.index.json"], "ls")
        equal(os.statvfs(m.mnt).f_files, 5, "files and the root")
        parts = ({"large"}, {"\u6743", "b"}, {"a"})
        for name, part in zip(names, parts):
            mapped(os.path.join(m.mnt, name), encode(whole(tree, part), "pt"))
        index = {"metadata": {"total_size": sum(len(tree.full[p.name]) for p in params)},
                 "weight_map": {n: name for name, part in zip(names, parts) for n in part}}
        equal(read_all(os.path.join(m.mnt, "model.safetensors.index.json")).decode(),
              json.dumps(index, indent=2, sort_keys=True) + "\n", "index")
    with Mount(tree.src, source_only(tree, "view=huggingface")) as m:
        equal(os.listdir(m.mnt), ["model.safetensors"], "ls")
        same_bytes(read_all(os.path.join(m.mnt, "model.safetensors")), encode(whole(tree), "pt"), "one file")


def test_damaged_source_of_a_flat_view():
    """Headers are read before anything is mounted: whoever mounts it learns what is wrong with which file."""
    tree = Tree(folder("tree"), [Param("w", (64, 64), 0, WHOLE)], 4, 1)
    path = tree.path(2)
    sound = read_all(path)
    mnt = folder("mnt")
    for damaged, line in (
        (sound[:200], "the file is truncated in a tensor"),
        (b"not a checkpoint", "the file is damaged, or not a checkpoint"),
    ):
        tree.write(2, damaged)
        for view in ("huggingface", "unified"):
            got = run(reshardfs, tree.src, mnt, "-o", source_only(tree, f"view={view}"))
            equal((got.returncode, got.stdout), (1, ""), "status, stdout")
            last = got.stderr.splitlines()[-1]
            check(last.startswith(f"reshardfs: error: {path}: offset ") and line in last, got.stderr)
            check(not os.path.ismount(mnt), "mounted all the same")


def test_unified():
    tree = Tree(folder("tree"), usual(), 4, 1)
    with Mount(tree.src, source_only(tree, "view=unified")) as m:
        equal(sorted(os.listdir(m.mnt)), ["hyper_param.safetensors", "param_name_map.json", "part0.safetensors"], "ls")
        both = {p.name for p in tree.params if p.src is not None}
        same_bytes(read_all(os.path.join(m.mnt, "part0.safetensors")), encode(whole(tree, both), "ms"), "part0")
        rest = {p.name for p in tree.params} - both
        same_bytes(read_all(os.path.join(m.mnt, "hyper_param.safetensors")), encode(whole(tree, rest), "ms"), "rest")
        told = json.loads(read_all(os.path.join(m.mnt, "param_name_map.json")))
        equal(set(told["weight_map"]), both, "names")


def test_flat_view_in_the_background():
    """It reads headers before it goes to the background, and answers from there."""
    tree = Tree(folder("tree"), usual(), 16, 1)
    with Mount(tree.src, source_only(tree, "view=huggingface,file_size=50K")) as m:
        names = [n for n in os.listdir(m.mnt) if n.endswith("safetensors")]
        check(len(names) > 2, str(names))
        for name in names:
            equal(len(read_all(os.path.join(m.mnt, name))), os.stat(os.path.join(m.mnt, name)).st_size, name)


def test_crc():
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Mount(tree.src, tree.options("crc")) as m:
        for rank in (0, 1):
            want = tree.expected(rank)
            want += b"crc_num" + zlib.crc32(want).to_bytes(10, "big")
            with open(m.file(rank), "rb") as file:
                equal(os.pread(file.fileno(), 100, len(want) - 4), want[-4:], "the tail alone")
            same_bytes(m.read(rank), want, f"rank {rank}")


def test_output_options_that_contradict():
    tree = Tree(folder("tree"), usual(), 4, 2)
    mnt = folder("mnt")
    for more, line in (
        ("file_size=1G", "option file_size divides one whole checkpoint into files, and a view of ranks has one for each "
         "rank; try: -o view=huggingface or -o view=unified"),
        ("view=unified", "view=unified shows one whole checkpoint, which no strategy cuts; try: leave the destination's "
         "strategy out"),
        ("format=ckpt,view=huggingface", "view=huggingface is made of safetensors files; try: leave format= out"),
        ("format=safetensors,crc", "option crc is for .ckpt files: in a safetensors file the checksum would stand before "
         "the data that it sums up; try: leave crc out, or -o format=ckpt"),
    ):
        fails(2, line, tree.src, mnt, "-o", tree.options(more))
    for view in ("huggingface", "unified"):
        fails(2, "option crc is for .ckpt files: in a safetensors file the checksum would stand before the data that it sums "
              "up; try: leave crc out", tree.src, mnt, "-o", source_only(tree, f"view={view},crc"))
