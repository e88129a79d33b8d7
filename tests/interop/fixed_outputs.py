# SPDX-License-Identifier: Apache-2.0
"""Stories of the outputs: safetensors files, and crc trailers."""
import hashlib
import json
import mmap
import os

import numpy as np

import values
from fixed_layouts import strategy
from build import full_tensors, source_files
from layouts import Item, Layout
from model import Target
from registry import story
from story import Story
from values import Value, random_value

LIBRARY = {"Bool": "bool", "BFloat16": "bfloat16", "Int4": "int8"}


def library_save(path, named, metadata):
    """Through the safetensors library, whose serialize_file takes bytes as they are."""
    from safetensors import serialize_file
    os.makedirs(os.path.dirname(path), exist_ok=True)
    serialize_file({n: {"dtype": LIBRARY.get(v.dtype, v.dtype.lower()), "shape": list(v.shape),
                        "data": np.ascontiguousarray(v.data).tobytes()} for n, v in named},
                   path, metadata=metadata)


def read_header(path):
    """The header's object, in order, and where the data begins."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        return json.loads(f.read(n)), 8 + n


def made_by(rng, extras):
    """(name, dtype, shape) as source_files wants values that each rank has its own of."""
    return [(n, lambda d=d, s=s: random_value(rng, d, s)) for n, d, s in extras]


class World:
    """A tree of .ckpt files from one strategy, and what it is under another; None: unsharded."""

    def __init__(self, rng, folder, src, dst, dtypes="Float32", extras=(), source_format="ckpt"):
        self.folder = folder
        shapes = {i.name: i.shape for i in (src or dst).items}
        kinds = dtypes if isinstance(dtypes, dict) else {n: dtypes for n in shapes}
        self.fulls = full_tensors(rng, shapes, kinds)
        self.files = source_files(rng, src, self.fulls, extras)
        self.src, self.dst = src, dst
        self.options = {}
        for side, one in (("src", src), ("dst", dst)):
            if one:
                self.options[f"{side}_strategy"] = self.path(f"{side}.{one.form}")
                one.write(self.path(f"{side}.{one.form}"))
        self.target = Target(src, dst, self.files, "checkpoint_", source_format)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, crc=False):
        for rank, named in self.files.items():
            values.save(self.path("src", f"rank_{rank}", f"net_{rank}.ckpt"), named, crc)

    def expect_library(self, metadata):
        for rank in range(self.target.ranks):
            name = self.target.file_name(rank).replace(".ckpt", ".safetensors")
            library_save(self.path("expected", name), self.target.contents(rank), metadata)

    def story(self, check=None, **options):
        self.write()
        return Story({**self.options, **options}, check=check,
                     expected=self.path("expected") if os.path.isdir(self.path("expected")) else "")


def rows_to_columns(rng, folder, shapes, dtypes, n=4, m=2, **more):
    src = strategy([(x, s, Layout([n], [0] + [-1] * (len(s) - 1))) for x, s in shapes.items()])
    dst = strategy([(x, s, Layout([m], [-1] * (len(s) - 1) + [0])) for x, s in shapes.items()])
    return World(rng, folder, src, dst, dtypes, **more)


def whole(rng, folder, shapes, dtypes, n=4, **more):
    src = strategy([(x, s, Layout([n], [0] + [-1] * (len(s) - 1))) for x, s in shapes.items()])
    return World(rng, folder, src, None, dtypes, **more)


def loads_everywhere(world, skip=()):
    """Checks that MindSpore and the library give what the model says, the library from a mapped file."""
    def check(mnt):
        import mindspore as ms
        from safetensors import safe_open
        from safetensors.numpy import load_file
        for rank in range(world.target.ranks):
            path = os.path.join(mnt, world.target.file_name(rank).replace(".ckpt", ".safetensors"))
            want = dict(world.target.contents(rank))
            loaded = ms.load_checkpoint(path, format="safetensors")
            assert sorted(loaded) == sorted(want), list(loaded)
            for name, value in want.items():
                dtype, shape, content = values.loaded_bytes(loaded[name])
                assert (dtype, shape) == (value.dtype, tuple(value.shape)), (name, dtype, shape)
                assert content == value.data.tobytes(), name
            if skip:
                continue
            arrays = load_file(path)
            with safe_open(path, framework="np") as f:
                assert f.metadata() == {"format": "ms"}
                assert sorted(f.keys()) == sorted(want)
                for name, value in want.items():
                    assert f.get_tensor(name).tobytes() == value.data.tobytes(), name
                    assert arrays[name].tobytes() == value.data.tobytes(), name
    return check


@story
def safetensors_by_mindspore(rng, folder):
    """format=safetensors against transform_checkpoints followed by ckpt_to_safetensors."""
    import mindspore as ms
    kinds = [d for d in values.TRANSFORMED if d != "BFloat16"]  # which ckpt_to_safetensors fails on
    shapes = {f"p.{d.lower()}": (8, 6) for d in kinds}
    world = rows_to_columns(rng, folder, shapes, dict(zip(shapes, kinds)), extras=[
        ("lr", lambda: random_value(rng, "Float64", ())),
        ("step", lambda: random_value(rng, "Int32", (1,)))])
    world.write()
    ms.transform_checkpoints(world.path("src"), world.path("made"), "checkpoint_",
                             world.options["src_strategy"], world.options["dst_strategy"])
    ms.ckpt_to_safetensors(world.path("made"), world.path("expected"))
    return Story({**world.options, "format": "safetensors"}, expected=world.path("expected"),
                 check=loads_everywhere(world))


@story
def safetensors_by_stage(rng, folder):
    """The parts that MindSpore makes by stage keep their names when ckpt_to_safetensors converts them."""
    import mindspore as ms
    src = strategy([("w", (8, 4), Layout([2], [0, -1]))])
    dst = strategy([("w", (8, 4), Layout([2], [-1, 0])), ("v", (4,), Layout([2], [0]))])
    world = World(rng, folder, src, dst)
    world.write()
    ms.transform_checkpoints(world.path("src"), world.path("made"), "checkpoint_",
                             world.options["src_strategy"], world.options["dst_strategy"])
    ms.ckpt_to_safetensors(world.path("made"), world.path("expected"))
    assert os.listdir(world.path("expected", "rank_1")) == ["checkpoint_1_part0.safetensors"]
    return Story({**world.options, "format": "safetensors"}, expected=world.path("expected"))


@story
def safetensors_every_dtype(rng, folder):
    """Every element type that the library writes, scalars and stages, against the library."""
    kinds = values.TRANSFORMED
    rows = [(f"p.{d.lower()}", (8, 6), Layout([4], [0, -1]), i % 2) for i, d in enumerate(kinds)]
    src = strategy(rows)
    dst = strategy([(n, s, Layout([2], [-1, 0])) for n, s, _, _ in rows])
    world = World(rng, folder, src, dst, {r[0]: d for r, d in zip(rows, kinds)},
                  extras=[("lr", lambda: Value("Float32", np.float32(0.5).reshape(())))])
    world.expect_library({"format": "ms"})
    return world.story(format="safetensors")


@story
def safetensors_unusual_names(rng, folder):
    """Names that JSON escapes, and others that it does not; the order of names is that of their bytes."""
    names = ["a b", 'q"u\\o', "x/y", "\u6743\u91cd.\u03bb", "\U0001F600", "\uffee", "tab\t\x01\x1f\x7f", "nl\n\r\b\f",
             "a", "a.", "A", "n" * 300, "0"]
    world = rows_to_columns(rng, folder, {n: (4, 4) for n in names}, "Int16")
    world.expect_library({"format": "ms"})
    return world.story(check=loads_everywhere(world), format="safetensors")


def between(rng, folder, rows, to, kinds=None, extras=()):
    """A safetensors tree to another, against transform_checkpoints(output_format="safetensors")."""
    import mindspore as ms
    dtypes = dict(zip((r[0] for r in rows), kinds)) if kinds else "Float32"
    world = World(rng, folder, strategy(rows), strategy(to) if to else None, dtypes,
                  made_by(rng, extras), "safetensors")
    for rank, named in world.files.items():
        library_save(world.path("src", f"rank_{rank}", "net.safetensors"), named, {"format": "ms"})
    ms.transform_checkpoints(world.path("src"), world.path("expected"), "checkpoint_",
                             world.options["src_strategy"], world.options.get("dst_strategy"),
                             output_format="safetensors")
    one = world.path("model", "0.safetensors")
    library_save(one, world.target.contents(0), {"format": "ms"})
    with open(one, "rb") as f, open(world.path("expected", "rank_0", "checkpoint_0.safetensors"),
                                    "rb") as g:
        assert f.read() == g.read(), "MindSpore and the model disagree"
    return Story({**world.options, "format": "safetensors"}, expected=world.path("expected"),
                 check=loads_everywhere(world))


NO_BFLOAT16 = [d for d in values.TRANSFORMED if d != "BFloat16"]  # MindSpore fails on it here
@story
def safetensors_from_safetensors_dtypes(rng, folder):
    """Every dtype that MindSpore takes, values in no strategy, an empty one."""
    return between(rng, folder, [(f"p.{d}", (8, 6), Layout([4], [0, -1])) for d in NO_BFLOAT16],
                   [(f"p.{d}", (8, 6), Layout([2], [-1, 0])) for d in NO_BFLOAT16], NO_BFLOAT16,
                   [("lr", "Float64", ()), ("step", "Int32", (1,)), ("none", "Float16", (0, 3))])


@story
def safetensors_from_safetensors_merged(rng, folder):
    """To one whole checkpoint."""
    return between(rng, folder, [("w", (8, 6), Layout([4], [0, -1])), ("b", (6,), Layout([4], [-1]))],
                   None)


@story
def safetensors_from_safetensors_shards(rng, folder):
    """Optimizer shards on both sides."""
    return between(rng, folder,
                   [("w", (16, 6), Layout([2, 2], [0, -1], -1)), ("b", (8,), Layout([4], [-1], 2))],
                   [("w", (16, 6), Layout([8], [-1, -1], 4)), ("b", (8,), Layout([8], [0]))])


@story
def safetensors_from_safetensors_no_part(rng, folder):
    """What would be a part by stage, had it come from .ckpt files."""
    return between(rng, folder, [("w", (8, 4), Layout([2], [0, -1]))],
                   [("w", (8, 4), Layout([2], [-1, 0])), ("v", (4,), Layout([2], [0]))])


@story
def safetensors_int4(rng, folder):
    """Int4 is I8, and the metadata says so; the library writes such metadata in any order, here it is sorted."""
    world = rows_to_columns(rng, folder, {"w": (8, 4), "a": (8, 4), "z": (8, 4)},
                            {"w": "Int4", "a": "Int4", "z": "Int8"})

    def check(mnt):
        loads_everywhere(world, skip=True)(mnt)
        for rank in range(2):
            got = os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors")
            made = world.path("made", f"{rank}.safetensors")
            named = world.target.contents(rank)
            import mindspore as ms
            os.makedirs(os.path.dirname(made), exist_ok=True)
            ms.save_checkpoint({n: values.to_mindspore(n, v) for n, v in named}, made,
                               format="safetensors")
            (mine, begin), (theirs, also) = read_header(got), read_header(made)
            assert mine == theirs and begin == also
            assert list(mine["__metadata__"].items()) == [("a", "Int4"), ("format", "ms"),
                                                          ("w", "Int4")]
            with open(got, "rb") as a, open(made, "rb") as b:
                a.seek(begin)
                b.seek(begin)
                assert a.read() == b.read()
    return world.story(check=check, format="safetensors")


def refuse(rng, folder, value, fragment):
    world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32", extras=[("odd", lambda: value)])
    out = world.story(format="safetensors")
    out.refusal = f"parameter 'odd': is {fragment}, which safetensors files cannot hold"
    return out


@story
def safetensors_refuses_string(rng, folder):
    """A string in the source."""
    return refuse(rng, folder, Value("str", "phase"), "a string")


@story
def safetensors_refuses_map(rng, folder):
    """A map tensor in the source."""
    pieces = [(np.zeros(2, np.int32), np.zeros((2, 2), np.float32), np.zeros(2, np.int32))]
    return refuse(rng, folder, values.map_messages("odd", pieces), "a map tensor")


@story
def safetensors_refuses_complex128(rng, folder):
    """A type that the format does not have."""
    return refuse(rng, folder, Value("Complex128", np.ones(2, np.complex128)), "of type Complex128")


@story
def safetensors_mapped(rng, folder):
    """A file of several MiB is mapped, shared and privately, and read page by page from behind."""
    world = rows_to_columns(rng, folder, {"w": (2048, 1024), "v": (1024, 512)}, "Float32")
    world.expect_library({"format": "ms"})

    def check(mnt):
        for rank in range(2):
            name = os.path.join(f"rank_{rank}", f"checkpoint_{rank}.safetensors")
            with open(world.path("expected", name), "rb") as f:
                want = f.read()
            with open(os.path.join(mnt, name), "rb") as f:
                for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                    with mmap.mmap(f.fileno(), 0, flags, mmap.PROT_READ) as m:
                        for at in range(len(want) - len(want) % 4096, -1, -1 << 16):
                            assert m[at:at + 5000] == want[at:at + 5000], at
                        assert hashlib.sha256(m).digest() == hashlib.sha256(want).digest()
    return world.story(check=check, format="safetensors")


@story
def crc_outputs(rng, folder):
    """-o crc: outputs are what save_checkpoint(crc_check=True) writes, and load with crc_check."""
    world = rows_to_columns(rng, folder, {"w": (8, 4), "v": (520, 1030)}, {"w": "Float32", "v": "Int16"},
                            extras=[("note", lambda: Value("str", "a \u2200"))])
    for rank in range(world.target.ranks):
        values.save(world.path("expected", world.target.file_name(rank)), world.target.contents(rank),
                    crc=True)

    def check(mnt):
        import mindspore as ms
        for rank in range(world.target.ranks):
            path = os.path.join(mnt, world.target.file_name(rank))
            ms.load_checkpoint(path, crc_check=True)
            with open(path, "rb") as f:
                f.seek(-4, os.SEEK_END)
                tail = f.read()
            with open(world.path("expected", world.target.file_name(rank)), "rb") as f:
                assert f.read()[-4:] == tail
    return world.story(check=check, crc=None)


@story
def crc_over_map_tensors(rng, folder):
    """Map tensors count, so that load_checkpoint(crc_check=True) takes the file; MindSpore's own it refuses."""
    world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32")
    table = values.map_messages("table", [(rng.integers(0, 99, 3).astype(np.int32),
                                           rng.random((3, 4)).astype(np.float32), np.zeros(3, np.int32))])
    for named in world.files.values():
        named.append(("table", table))

    def check(mnt):
        import binascii
        for rank in range(world.target.ranks):
            with open(os.path.join(mnt, world.target.file_name(rank)), "rb") as f:
                content = f.read()
            assert content[-17:] == b"crc_num" + binascii.crc32(content[:-17]).to_bytes(10, "big")
            assert content[:-17] == values.encode(world.target.contents(rank))
    return world.story(check=check, crc=None)


@story
def crc_of_safetensors(rng, folder):
    """The checksum of a safetensors file would stand before its data: refused."""
    world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32")
    out = world.story(crc=None, format="safetensors")
    out.refusal, out.exit_code = "option crc is for .ckpt files", 2
    return out
