# SPDX-License-Identifier: Apache-2.0
"""Stories of the outputs: safetensors files, the HuggingFace and the unified view, and crc trailers."""
import hashlib
import json
import mmap
import os
import shutil

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


def between(name, doc, rows, to, kinds=None, extras=()):
    """A safetensors tree to another, against transform_checkpoints(output_format="safetensors")."""
    def make(rng, folder):
        import mindspore as ms
        dtypes = dict(zip((r[0] for r in rows), kinds)) if kinds else "Float32"
        world = World(rng, folder, strategy(rows), strategy(to) if to else None, dtypes,
                      [(n, lambda d=d, s=s: random_value(rng, d, s)) for n, d, s in extras], "safetensors")
        for rank, named in world.files.items():
            library_save(world.path("src", f"rank_{rank}", "net.safetensors"), named, {"format": "ms"})
        ms.transform_checkpoints(world.path("src"), world.path("expected"), "checkpoint_",
                                 world.options["src_strategy"], world.options.get("dst_strategy"),
                                 output_format="safetensors")
        model = world.target.contents(0)
        one = world.path("model", "0.safetensors")
        library_save(one, model, {"format": "ms"})
        with open(one, "rb") as f, open(world.path("expected", "rank_0", "checkpoint_0.safetensors"),
                                        "rb") as g:
            assert f.read() == g.read(), "MindSpore and the model disagree"
        return Story({**world.options, "format": "safetensors"}, expected=world.path("expected"),
                     check=loads_everywhere(world))

    make.__name__, make.__doc__ = f"safetensors_from_safetensors_{name}", doc
    story(make)


NO_BFLOAT16 = [d for d in values.TRANSFORMED if d != "BFloat16"]  # MindSpore fails on it here
between("dtypes", "Every dtype that MindSpore takes, values in no strategy.",
        [(f"p.{d}", (8, 6), Layout([4], [0, -1])) for d in NO_BFLOAT16],
        [(f"p.{d}", (8, 6), Layout([2], [-1, 0])) for d in NO_BFLOAT16], NO_BFLOAT16,
        [("lr", "Float64", ()), ("step", "Int32", (1,)), ("none", "Float16", (0, 3))])
between("merged", "To one whole checkpoint.",
        [("w", (8, 6), Layout([4], [0, -1])), ("b", (6,), Layout([4], [-1]))], None)
between("shards", "Optimizer shards on both sides.",
        [("w", (16, 6), Layout([2, 2], [0, -1], -1)), ("b", (8,), Layout([4], [-1], 2))],
        [("w", (16, 6), Layout([8], [-1, -1], 4)), ("b", (8,), Layout([8], [0]))])
between("no_part", "What would be a part by stage, had it come from .ckpt files.",
        [("w", (8, 4), Layout([2], [0, -1]))],
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


def refuse(what, value, fragment):
    def make(rng, folder):
        world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32", extras=[("odd", value)])
        out = world.story(format="safetensors")
        out.refusal = fragment
        return out

    make.__name__ = f"safetensors_refuses_{what}"
    make.__doc__ = f"A {what} value, which safetensors cannot hold."
    story(make)


refuse("string", lambda: Value("str", "phase"), "parameter 'odd': is a string")
refuse("complex128", lambda: Value("Complex128", np.ones(2, np.complex128)),
       "parameter 'odd': is of type Complex128")
refuse("map", lambda: values.map_messages("odd", [(np.zeros(2, np.int32), np.zeros((2, 2), np.float32),
                                                  np.zeros(2, np.int32))]),
       "parameter 'odd': is a map tensor")


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


def expect_huggingface(world, limit):
    """What transformers writes, with the real huggingface_hub to say which tensor goes where."""
    from huggingface_hub.serialization._base import split_state_dict_into_shards_factory as split
    named = dict(world.target.contents(0))
    split = split(named, get_storage_size=lambda v: v.data.nbytes, max_shard_size=limit,
                  filename_pattern="model{suffix}.safetensors")
    for name, held in split.filename_to_tensors.items():
        library_save(world.path("expected", name), [(n, named[n]) for n in held], {"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        with open(world.path("expected", "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return len(split.filename_to_tensors)


def huggingface(name, limit, option, files, doc):
    def make(rng, folder):
        shapes = {"model.embed.weight": (64, 32), "a": (8, 4), "\u6743\u91cd\U0001F600\"": (4, 4),
                  "big": (256, 16), "z\uffff": (4,), "b": (4, 256), "c": (16, 64), "d": (4, 8)}
        kinds = ["Float32", "BFloat16", "Int64", "Float16", "Bool", "Float32", "Int8", "Float64"]
        world = whole(rng, folder, shapes, dict(zip(shapes, kinds)),
                      extras=[("lr", lambda: random_value(rng, "Float32", ()))])
        made = expect_huggingface(world, limit)
        assert made == files, made
        return world.story(view="huggingface", **({"file_size": option} if option else {}))

    make.__name__, make.__doc__ = name, doc
    story(make)


huggingface("huggingface_one_file", 5 * 10**9, None, 1, "All fits into one file.")
huggingface("huggingface_shards", 8192, "8K", 4, "Shards, tensors that fill one exactly or need one alone.")
huggingface("huggingface_tiny_shards", 1, "1", 9, "Every tensor has a shard of its own.")


@story
def huggingface_of_destination(rng, folder):
    """A sharded destination is not what that view shows."""
    world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32")
    out = world.story(view="huggingface")
    out.refusal, out.exit_code = "no strategy cuts", 2
    return out


def unify(world, limit=None, metadata=None):
    """unified_safetensors, run on the same tree as safetensors files; the .ckpt files get their order."""
    import mindspore as ms
    from mindspore.parallel import transform_safetensors as its
    for rank, named in world.files.items():
        twin = world.path("twin", f"rank_{rank}", "net.safetensors")
        library_save(twin, named, {"format": "ms", **(metadata or {})})
        order = list(read_header(twin)[0])
        named.sort(key=lambda pair: order.index(pair[0]))
    real = its.math
    if limit:
        class Shim:  # the size of a part is a constant of its code: 1024 * 1024 * 1024 * 3
            prod = staticmethod(real.prod)

            @staticmethod
            def ceil(x):
                return real.ceil(x * (3 << 30) / limit)
        its.math = Shim
    try:
        ms.unified_safetensors(world.path("twin"), world.options["src_strategy"],
                               world.path("expected"), max_process_num=1)
    finally:
        its.math = real


def unified(name, limit, rows, kinds, extras, doc, parts):
    def make(rng, folder):
        src = strategy(rows)
        world = World(rng, folder, src, None, dict(zip((r[0] for r in rows), kinds)),
                      extras=[(n, lambda d=d, s=s: random_value(rng, d, s)) for n, d, s in extras])
        unify(world, limit)
        made = [n for n in os.listdir(world.path("expected")) if n.startswith("part")]
        assert len([n for n in made if n != "param_name_map.json"]) == parts, made
        return world.story(view="unified", **({"file_size": limit} if limit else {}))

    make.__name__, make.__doc__ = name, doc
    story(make)


ROWS = [("w", (8, 4), Layout([4], [0, -1])), ("v", (16, 4), Layout([4], [-1, 0])),
        ("b", (6,), Layout([4], [-1])), ("accu_grads.w", (8, 4), Layout([4], [0, -1])),
        ("\u6743\"\x01", (4, 4), Layout([4], [0, -1])), ("o", (16, 4), Layout([4], [-1, -1], -1))]
KINDS = ["Float32", "Int16", "Int64", "Float32", "Bool", "Float64"]
EXTRAS = [("lr", "Float64", ()), ("step", "Int32", (1,))]
unified("unified_one_part", None, ROWS, KINDS, EXTRAS,
        "unified_safetensors: one part, and rank 0's accu_grads among the hyper parameters.", 1)
unified("unified_parts", 256, ROWS, KINDS, EXTRAS,
        "Several parts, filled by size; two tensors of the same size.", 4)
unified("unified_without_hyper_parameters", 300, ROWS[:3], KINDS[:3], [],
        "No hyper_param.safetensors when rank 0 has nothing else.", 2)
unified("unified_many", 1000,
        [(f"layer{i}.weight", (4, 4 + i % 5), Layout([4], [0, -1])) for i in range(60)],
        ["Float32"] * 60, EXTRAS, "Sixty tensors of five sizes.", 6)


@story
def unified_from_safetensors(rng, folder):
    """The same tree of safetensors files as source; an empty tensor stays."""
    extras = EXTRAS + [("none", "Float16", (0, 3))]
    world = World(rng, folder, strategy(ROWS), None, dict(zip((r[0] for r in ROWS), KINDS)),
                  extras=[(n, lambda d=d, s=s: random_value(rng, d, s)) for n, d, s in extras])
    unify(world, 256)
    return Story({**world.options, "view": "unified", "file_size": "256"}, source=world.path("twin"),
                 expected=world.path("expected"))


@story
def unified_of_removed_redundancy(rng, folder):
    """What remove_redundancy left: the same tensors; MindSpore's metadata of two keys has no fixed order."""
    rows = [("w", (8, 4), Layout([4], [0, -1])), ("v", (16, 4), Layout([2, 2], [0, -1])),
            ("b", (6,), Layout([4], [-1]))]
    world = World(rng, folder, strategy(rows), None)
    for rank, names in enumerate((["w", "v", "b"], ["w", "v"], ["w"], ["w"])):
        world.files[rank] = [pair for pair in world.files[rank] if pair[0] in names]
    unify(world, 200, {"remove_redundancy": "True"})

    def check(mnt):
        made, got = (sorted(os.listdir(x)) for x in (world.path("expected"), mnt))
        assert made == got, (made, got)
        for name in got:
            mine, theirs = os.path.join(mnt, name), world.path("expected", name)
            if name.endswith("json"):
                with open(mine, "rb") as a, open(theirs, "rb") as b:
                    assert a.read() == b.read()
                continue
            (mine_head, at), (their_head, their_at) = read_header(mine), read_header(theirs)
            assert mine_head.pop("__metadata__") == {"format": "ms"}
            assert their_head.pop("__metadata__") == {"format": "ms", "remove_redundancy": "False"}
            assert list(mine_head.items()) == list(their_head.items())
            with open(mine, "rb") as a, open(theirs, "rb") as b:
                a.seek(at)
                b.seek(their_at)
                assert a.read() == b.read()
    return Story({**world.options, "view": "unified", "file_size": "200"}, source=world.path("twin"),
                 check=check)


@story
def unified_stages(rng, folder):
    """Pipeline stages: what only the second has, and a rank 0 that lacks it. (No two sizes are the same: MindSpore
    takes those of one size in the order in which the file system lists the folders.)"""
    rows = [("w", (8, 4), Layout([2], [0, -1]), 0), ("v", (16, 4), Layout([2], [-1, 0]), 1),
            ("u", (16,), Layout([2], [0]), 1), ("accu_grads.v", (16, 4), Layout([2], [-1, 0]), 1)]
    world = World(rng, folder, strategy(rows), None,
                  extras=[("lr", lambda: Value("Float32", np.float32(1).reshape(())))])
    for rank in (2, 3):
        world.files[rank].append(("only", Value("Float64", np.float64(rank).reshape(()))))
    unify(world, 100)
    out = world.story(view="unified", file_size="100")
    out.says = ("1 value that rank_0 lacks is left out: 'only'",)
    return out


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
