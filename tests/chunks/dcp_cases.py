# SPDX-License-Identifier: Apache-2.0
"""The family "dcp": folders of torch.distributed.checkpoint, and what must be seen through views of them.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import json
import logging
import math
import os
import pickle
import random
import re
import resource
import shutil
import subprocess
import types

import torch
from torch.distributed.checkpoint.api import CheckpointException

import dcp_program as program
import safetensors_file
from chosen import Chosen
from dcp_program import Boxes, Listed, PerRank, Plain, Sharded, Staged, Strided
from tensor_bytes import bits

FIXED = {}
OLD = program.VERSION < (2, 2)  # saves no mesh of several axes, nor what is empty on some rank
MESHES = [(1,), (2,), (3,), (4,), (5,)]
if not OLD:
    MESHES += [(2, 2), (3, 2), (2, 3), (4, 2), (2, 2, 2)]
DTYPES = [name for name in ("float32", "float32", "bfloat16", "bfloat16", "float16", "float64", "int64", "int32", "int16",
                            "int8", "uint8", "bool", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
                            "complex64") if program.can_save(name)]
OBJECTS = [7, "text", 0.5, None, [1, 2, 3], ("a", 1), {"betas": (0.9, 0.95)}, b"bytes"]


def describe_tensor(tensor):
    return f"{str(tensor.dtype)[6:]} {list(tensor.shape)}"


def differ(what, name, have, want):
    if have.dtype != want.dtype or have.shape != want.shape:
        return f"{what}: {name} is {describe_tensor(have)}, not {describe_tensor(want)}"
    return None if bits(have) == bits(want) else f"{what}: {name} has other values"


class Case:
    def __init__(self, name, world, items, **options):
        self.name, self.world, self.items, self.options = name, world, items, options

    def describe(self):
        rows = [f"  torch {torch.__version__}, {self.world} rank(s), {self.options}"]
        for path, value in self.items.items():
            said = f"{describe_tensor(value.full)} {value.describe()}" if hasattr(value, "full") else repr(value)
            rows.append(f"    {path} {said}")
        return "\n".join(rows)

    def write(self, folder):
        """Returns the source, and the options that name the destination."""
        source = os.path.join(folder, "checkpoint")
        program.save(source, self.world, self.items, **self.options)
        return source, {}

    def whole(self):
        return {".".join(map(str, path)): v.full for path, v in self.items.items() if hasattr(v, "full")}

    def check_oracle(self, folder):
        """What torch itself reads."""
        have = program.load(os.path.join(folder, "checkpoint"), self.items)
        for path, value in self.items.items():
            if hasattr(value, "full") and (said := differ("torch", path, have[path], value.full)):
                return said
        return None

    def check_views(self, folder, source, _options):
        """What reshard writes of it: as HuggingFace's safetensors, as a file of torch.save, and as another such folder."""
        for name, options in (("pt", "format=pt"), ("hf", "view=huggingface")):
            said = check_export(source, os.path.join(folder, name), options, self.whole())
            if said:
                return said
        have, want = read_all(os.path.join(folder, "pt")), program.objects(source, self.items)
        if any(n not in have or have[n] != value for n, value in want.items()):
            return f"format=pt has other objects than {want}: {[n for n in have if n not in self.whole()]}"
        model = {path[1:]: v for path, v in self.items.items() if path[0] == "model" and len(path) > 1}
        said = check_part(folder, source, "model", model) if any(hasattr(v, "full") for v in model.values()) else None
        return said or self.check_chosen(folder, source) or self.check_folder(source, os.path.join(folder, "dcp"))

    def check_chosen(self, folder, source):
        """Some of it by other names, in files of torch.save; the case's name is the seed of what is chosen."""
        tensors, values = self.whole(), program.objects(source, self.items)
        names = [*tensors, *values]
        chosen = Chosen(random.Random(self.name), names)
        options, out = "format=pt" + chosen.options(folder), os.path.join(folder, "chosen")
        about = f"{options}, map {chosen.map}"
        if chosen.is_refused(names, tensors):
            return None if export(source, out, options) else f"{about}: not refused"
        if said := export(source, out, options):
            return f"{about}: {said}"
        have = read_all(out)
        want = {chosen.shown(n): v for n, v in {**tensors, **values}.items() if chosen.shown(n)}
        if sorted(have) != sorted(want):
            return f"{about}: shows {sorted(have)}, not {sorted(want)}"
        for name, value in want.items():
            if not isinstance(value, torch.Tensor):
                if have[name] != value:
                    return f"{about}: {name} is {have[name]!r}"
            elif said := differ(about, name, have[name], value):
                return said
        return None

    def check_folder(self, source, out, more=""):
        """Other ranks and other chunks; values that are not tensors must be the same."""
        options = f"view=dcp,dst_ranks={1 + len(self.items) % 4},chunk_size=100{more}"
        if said := export(source, out, options):
            return said
        have = program.load(out, self.items)
        for path, value in self.items.items():
            if not hasattr(value, "full"):
                if have[path] != value:
                    return f"{options}: {path} is {have[path]!r}"
            elif said := differ(options, path, have[path], value.full):
                return said
        return verify(out, "--against", source, "-o", options)


class Shards(Case):
    """The same as safetensors of each rank."""

    def __init__(self, name, world, items):
        super().__init__(name, world, {path: v for path, v in items.items() if hasattr(v, "full")},
                         writer=program.safetensors_writer)

    def check_oracle(self, folder):
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        have = program.load(os.path.join(folder, "checkpoint"), self.items, HuggingFaceStorageReader)
        return next((said for path, v in self.items.items() if (said := differ("torch", path, have[path], v.full))), None)

    def check_views(self, folder, source, _options):
        """A rank whose pieces are all saved by others writes no file: such a folder looks as if one were lost."""
        hf, more = os.path.join(folder, "hf"), ""
        if lacks_shards(source):
            said = export(source, hf, "view=huggingface")
            if not said or "missing, by the numbers in the names" not in said:
                return f"without a shard: {said}"
            more = ",segmented"
        said = check_export(source, hf, "view=huggingface" + more, self.whole())
        said = said or copies_differ(source, more[1:])
        return said or self.check_folder(source, os.path.join(folder, "dcp"), more)


class Alone(Case):
    """The same, with metadata of each rank: without collectives."""

    save = staticmethod(program.save_alone)

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        self.save(source, self.world, self.items, **self.options)
        return source, {}

    def check_oracle(self, folder):
        """Each rank reads its own, as torch has no other way."""
        for rank in range(self.world):
            for path, (have, want) in program.load_alone(os.path.join(folder, "checkpoint"), rank, self.world, self.items).items():
                if not isinstance(want, torch.Tensor):
                    if have != want:
                        return f"torch: rank {rank}: {path} is {have!r}"
                elif said := differ(f"torch: rank {rank}", path, have, want):
                    return said
        return None

    def check_views(self, folder, source, options):
        return copies_differ(source, "") or super().check_views(folder, source, options)


class Ranks(Case):
    """A file of torch.save for each rank, of DTensors and ShardedTensors."""

    def __init__(self, name, world, items, entry=None):
        super().__init__(name, world, items)
        self.entry = entry

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        program.save_ranks(source, self.world, self.items, self.entry)
        return source, {}

    def check_oracle(self, folder):
        for rank in range(self.world):
            have = program.load_rank(os.path.join(folder, "checkpoint"), rank, self.world, self.entry, self.count_groups())
            for path, v in self.items.items():
                if isinstance(v, Sharded) and have[".".join(path)][0] != v.full.shape:
                    return f"torch: rank {rank}: {path} is {have['.'.join(path)][0]}"
                if isinstance(v, Listed) and (said := self.check_pieces(rank, path, have[".".join(path)])):
                    return said
        return None

    def count_groups(self):
        """Groups of ranks of its ShardedTensors: one number for all, as torch loads no file with several."""
        return max((v.groups for v in self.items.values() if isinstance(v, Listed)), default=1)

    def check_pieces(self, rank, path, have):
        """A ShardedTensor as torch reads it: the pieces of a rank."""
        listed = self.items[path]
        if have.size() != listed.full.shape:
            return f"torch: rank {rank}: {path} is {have.size()}"
        return next((said for shard in have.local_shards()
                     if (said := differ(f"torch: rank {rank}", path, shard.tensor, listed.read(shard.metadata.shard_offsets)))), None)

    def check_views(self, folder, source, _options):
        entry = f",entry={self.entry}" if self.entry else ""
        said = (check_export(source, os.path.join(folder, "hf"), "view=huggingface" + entry, self.whole())
                if all(safetensors_can(v) for v in self.items.values()) else None)
        said = said or copies_differ(source, entry[1:])
        return said or check_export(source, os.path.join(folder, "pt"), "format=pt" + entry, self.whole())


def check_part(folder, source, entry, items):
    """A part of the state dict, {path: value}, as a file of torch.save: None, or what went wrong."""
    out = os.path.join(folder, "part-" + entry)
    want = {".".join(path): v.full for path, v in items.items() if hasattr(v, "full")}
    if said := check_export(source, out, f"format=pt,entry={entry}", want):
        return said
    have = {n: v for n, v in read_all(out).items() if n not in want}
    objects = {".".join(path): v for path, v in items.items() if not hasattr(v, "full")}
    return None if have == objects else f"entry={entry} has the objects {have}"


def lacks_shards(folder):
    shards = [int(found[1]) for name in os.listdir(folder) if (found := re.fullmatch(r"shard-(\d{5})-.*-of-00001.safetensors", name))]
    return sorted(shards) != list(range(1, len(shards) + 1))


def safetensors_can(value):
    return not hasattr(value, "full") or not value.full.is_complex()


def run(program_name, *arguments, **more):
    command = os.environ.get(program_name.upper()) or os.path.join(os.environ.get("top_builddir", "."), program_name)
    return subprocess.run([command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **more)


def export(source, out, options):
    """None, or what went wrong."""
    ran = run("reshard", "export", source, out, "-o", options)
    return f"reshard export -o {options}: {ran.stderr.strip()}" if ran.returncode else None


def one_at_a_time(source):
    """None, or what is said when one source may be open at a time: no thread may hold it and wait for another."""
    ran = run("reshardfs", "--check", source, "-o", "strict", timeout=60,
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (7, 7)))
    return f"reshardfs --check: exit {ran.returncode}: {ran.stdout}{ran.stderr}" if ran.returncode else None


def copies_differ(source, options):
    """None, or what verify says of copies that are not the same."""
    ran = run("reshard", "verify", source, *(["-o", options] if options else []))
    return f"reshard verify: {ran.stdout}{ran.stderr}" if ran.returncode else None


def verify(tree, *arguments, says=None):
    """None when the tree is right, or with SAYS when it is not or can't be read, and each of these is among what is said."""
    ran = run("reshard", "verify", tree, *arguments)
    told = ran.stdout + ran.stderr
    right = ran.returncode in ((1, 2) if says else (0,)) and all(part in told for part in says or ["the same as"])
    return None if right else f"reshard verify {' '.join(arguments)}: exit {ran.returncode}: {told.strip()}"


def check_export(source, out, options, want):
    if said := export(source, out, options):
        return said
    have = {n: v for n, v in read_all(out).items() if isinstance(v, torch.Tensor)}
    if sorted(have) != sorted(want):
        return f"{options}: shows {sorted(have)}"
    return next((said for n, t in want.items() if (said := differ(options, n, have[n], t))), None)


SAFETENSORS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
               "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
               "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"}


def read_safetensors(path):
    out = {}
    for name, kind, shape, data in safetensors_file.entries(path):
        dtype = getattr(torch, SAFETENSORS[kind])
        out[name] = torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape) if data else \
            torch.empty(shape, dtype=dtype)
    return out


def read_all(folder):
    """{name: tensor} of all files below."""
    out = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if name.endswith(".safetensors"):
                out.update(read_safetensors(path))
            elif name.endswith(".pt"):
                out.update(torch.load(path))
    return out


class Maker:
    def __init__(self, seed, number):
        self.rng = random.Random(f"{seed}/{number}")
        self.values = torch.Generator().manual_seed(self.rng.getrandbits(60))
        self.mesh = self.rng.choice(MESHES)
        self.world = math.prod(self.mesh)
        self.groups = self.rng.choice([n for n in range(1, self.world + 1) if self.world % n == 0])

    def full(self, shape, dtype):
        """Any bits, but in a bool."""
        item = torch.empty((), dtype=dtype).element_size()
        data = torch.randint(0, 2 if dtype == torch.bool else 256, (math.prod(shape) * item,), generator=self.values,
                             dtype=torch.uint8)
        return data.view(dtype).reshape(shape) if data.numel() else torch.empty(shape, dtype=dtype)

    def shape(self):
        rng = self.rng
        return [rng.choice([0, 1, 2, 3, 5, 7, 8, 12, 17][OLD:]) if rng.random() < 0.2 else rng.randint(1, 12)
                for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))]

    def sharded(self, full):
        if program.VERSION >= (2, 9) and full.dim() > 0 and len(self.mesh) > 1 and self.rng.random() < 0.3:
            axes = [*range(full.dim()), None]
            cuts = [self.rng.choice(axes) for _ in self.mesh]
            strided = Strided(full, self.mesh, cuts, self.rng.randint(0, len(self.mesh)))
            # torch 2.15 saves uneven ones into folders under offsets that are not theirs.
            if program.VERSION < (2, 10) or strided.is_even():
                return strided
        cuts = []
        for n in self.mesh:
            axes = [a for a in range(full.dim()) if (a not in cuts or self.may_cut_again(full, cuts, a, n)) and
                    not (OLD and full.shape[a] < n)]
            cuts.append(self.rng.choice(axes + [None]) if axes else None)
        return Sharded(full, self.mesh, cuts)

    def may_cut_again(self, full, cuts, axis, n):
        """Twice along one axis: evenly, as torch 2.3 refuses others."""
        before = math.prod(m for m, cut in zip(self.mesh, cuts) if cut == axis)
        return full.shape[axis] > 0 and full.shape[axis] % (before * n) == 0

    def boxes(self, full):
        """Cut across again and again."""
        boxes = [(tuple([0] * full.dim()), tuple(full.shape))]
        for _ in range(self.rng.randint(0, 6)):
            offset, sizes = boxes.pop(self.rng.randrange(len(boxes)))
            axes = [a for a, n in enumerate(sizes) if n > 1]
            if not axes:
                boxes.append((offset, sizes))
                continue
            axis = self.rng.choice(axes)
            first = self.rng.randint(1, sizes[axis] - 1)
            for begin, n in ((0, first), (first, sizes[axis] - first)):
                boxes.append((tuple(o + begin * (a == axis) for a, o in enumerate(offset)),
                              tuple(n if a == axis else s for a, s in enumerate(sizes))))
        self.rng.shuffle(boxes)
        return Boxes(full, boxes)

    def value(self):
        rng = self.rng
        full = self.full(self.shape(), getattr(torch, rng.choice(DTYPES)))
        kind = rng.choice(["sharded"] * 5 + ["plain"] + ["boxes"] * 2)
        if kind == "boxes" and full.numel() > 0:
            return self.boxes(full)
        return Plain(full) if kind == "plain" else self.sharded(full)

    def listed(self, boxes):
        """In groups of ranks, which may have more boxes than ranks, or fewer. A scalar cannot be one."""
        if boxes.full.dim() == 0:
            return Plain(boxes.full)
        return Listed(boxes.full, boxes.boxes, self.groups, self.rng.random() < 0.5)

    def path(self, number):
        middle = self.rng.choice([("layers", str(number)), (f"layers.{number}",), ("é", "a b", str(number))])
        return ("model", *middle, self.rng.choice(["weight", "bias", "w/o", "it's"]))

    def make(self, name):
        rng = self.rng
        items = {self.path(i): self.value() for i in range(rng.randint(1, 8))}
        for i in range(rng.randint(0, 3)):
            items[("extra", f"object{i}")] = rng.choice(OBJECTS)
        if rng.random() < 0.4:
            items[("optim", "param_groups")] = [{"lr": 0.1, "betas": (0.9, 0.95), "params": ["a", "b"]}]
        if not OLD and rng.random() < 0.3:
            return Ranks(name, self.world, {path: self.listed(v) if isinstance(v, Boxes) else v for path, v in items.items()})
        some = {path: v for path, v in items.items() if may_be_safetensors(v)}
        if program.VERSION >= (2, 9) and some and rng.random() < 0.3:
            return Shards(name, self.world, some)
        kind = Alone if program.VERSION >= (2, 9) and rng.random() < 0.4 else Case
        options = {"single_file_per_rank": rng.random() < 0.7, "thread_count": rng.randint(1, 3)}
        if program.VERSION >= (2, 9) and rng.random() < 0.3:
            options["_extensions"] = [program.Zstandard(rng.choice([-5, 1, 3, 12, 19, 22]), rng.random() < 0.5)]
        return kind(name, self.world, items, **options)


def may_be_safetensors(value):
    """Not every dtype can be, no two boxes of one rank, and torch 2.9 does not find a tensor again that no file has."""
    return (hasattr(value, "full") and not isinstance(value, Boxes) and value.full.numel() > 0 and
            not value.full.is_complex() and "uint" not in str(value.full.dtype))


def prepare():
    logging.disable(logging.INFO)


def make(seed, number):
    return Maker(seed, number).make(f"dcp-{seed}-{number}")


def fixed(function):
    FIXED["dcp-" + function.__name__.replace("_", "-")] = function
    return function


def fixed_since_2_2(function):
    return function if OLD else fixed(function)


def fixed_since_2_9(function):
    return function if program.VERSION < (2, 9) else fixed(function)


def numbered(*shape, dtype=torch.float32):
    return torch.arange(math.prod(shape)).reshape(shape).to(dtype)


@fixed_since_2_2
def documented(name):
    """Four ranks, a mesh of 2 x 2: both axes cut, one replicated, whole tensors, a scalar, an empty one, objects."""
    return Case(name, 4, {
        ("model", "w"): Sharded(numbered(10, 6), (2, 2), [0, 1]),
        ("model", "b"): Sharded(numbered(5), (2, 2), [0, None]),
        ("model", "whole"): Plain(numbered(7, dtype=torch.int64)),
        ("model", "scalar"): Plain(torch.tensor(3.5, dtype=torch.bfloat16)),
        ("model", "empty"): Plain(torch.zeros(0, 4)),
        ("step",): 7,
        ("optim", "groups"): [{"lr": 0.1}]})


class Parts(Case):
    """PARTS: {entry: the beginning of its paths}. Every one is a checkpoint of its own."""

    def __init__(self, name, world, items, parts):
        super().__init__(name, world, items)
        self.parts = parts

    def check_views(self, folder, source, _options):
        for entry, path in self.parts.items():
            part = {p[len(path):]: v for p, v in self.items.items() if p[:len(path)] == path and len(p) > len(path)}
            if said := check_part(folder, source, entry, part):
                return said
        said = export(source, os.path.join(folder, "none"), "view=huggingface,entry=mode") or ""
        return None if "nothing at entry=mode; try: the name of a dict in it: 'model', " in said else f"entry=mode: {said}"


@fixed_since_2_2
def parts_of_a_state(name):
    """entry= goes by the keys of dicts, some of which have dots, and not by the dots of names."""
    return Parts(name, 2, {
        ("model", "layers.0.w"): Sharded(numbered(5, 3), (2,), [0]),
        ("model", "layers", "1", "w"): Sharded(numbered(4, 3), (2,), [1]),
        ("model", "tag"): "run",
        ("model.ema", "w"): Plain(numbered(3)),
        ("optim", "state", "layers.0.w", "exp_avg"): Sharded(numbered(5, 3) / 2, (2,), [0]),
        ("optim", "groups", "lr"): 0.1,
        ("a", "b", "w"): Plain(numbered(2)),
        ("a.b", "v"): Plain(numbered(6)),
        ("step",): 7}, {
        "model": ("model",), "model.layers": ("model", "layers"), "model.ema": ("model.ema",), "optim": ("optim",),
        "optim.state": ("optim", "state"), "a.b": ("a.b",), "a": ("a",)})


@fixed_since_2_2
def uneven(name):
    """Five rows over four ranks are 2, 2, 1 and none."""
    return Case(name, 4, {("w",): Sharded(numbered(5, 3), (4,), [0]), ("one",): Sharded(numbered(1), (4,), [0])})


@fixed
def every_dtype(name):
    """Cut in two."""
    rng = Maker("dtypes", 0)
    return Case(name, 2, {(d,): Sharded(rng.full([6, 2], getattr(torch, d)), (2,), [0]) for d in sorted(set(DTYPES))})


def permuted():
    """Weights whose elements do not lie row by row: transposed, of the last axis, pieces of a DTensor."""
    images = numbered(2, 3, 4, 5).to(memory_format=torch.channels_last)
    return {("transposed",): Plain(numbered(6, 4, dtype=torch.bfloat16).t()), ("images",): Plain(images),
            ("cube",): Plain(numbered(3, 4, 5).permute(1, 2, 0)),
            ("w",): program.Permuted(numbered(10, 6), (2, 2), [0, 1]),
            ("rows",): Plain(numbered(5, 3))}


@fixed_since_2_2
def strides(name):
    """What lies in another order than row by row."""
    return Case(name, 4, permuted())


@fixed_since_2_2
def ranks_strides(name):
    """The same, in the file of each rank."""
    return Ranks(name, 4, permuted())


@fixed_since_2_2
def cut_twice(name):
    """Two axes of the mesh cut one axis of the tensor."""
    return Case(name, 6, {("w",): Sharded(numbered(12, 2), (2, 3), [0, 0])})


@fixed
def a_file_each(name):
    """One item in each file, by several threads."""
    return Case(name, 4, {(f"w{i}",): Sharded(numbered(8, 4) + i, (4,), [i % 2]) for i in range(6)},
                single_file_per_rank=False, thread_count=3)


@fixed
def many_chunks(name):
    """64 ranks, so that lists come in several pieces and numbers take several bytes."""
    return Case(name, 64, {(f"layers.{i}",): Sharded(numbered(128, 700) + i, (64,), [0]) for i in range(20)})


@fixed
def pinwheel(name):
    """Boxes that no cuts across the whole tensor make."""
    boxes = [((0, 0), (2, 3)), ((0, 3), (3, 2)), ((2, 0), (3, 2)), ((3, 2), (2, 3)), ((2, 2), (1, 1))]
    return Case(name, 3, {("w",): Boxes(numbered(5, 5), boxes)})


class Edited(Case):
    """Another .metadata; torch reads it, too, or refuses it, too."""

    def __init__(self, name, edit, said=None):
        super().__init__(name, 2, {(w,): Sharded(numbered(4, 2) + i, (2,), [0]) for i, w in enumerate("abc")})
        self.edit, self.said = edit, said

    def check_oracle(self, folder):
        path = os.path.join(folder, "checkpoint", ".metadata")
        with open(path, "rb") as file:
            metadata = pickle.load(file)
        self.edit(metadata)
        with open(path, "wb") as file:
            pickle.dump(metadata, file)
        if not self.said:
            return super().check_oracle(folder)
        try:
            super().check_oracle(folder)
        except CheckpointException:  # no Exception
            return None
        return "torch reads it"

    def check_views(self, folder, source, options):
        if not self.said:
            return super().check_views(folder, source, options)
        have = export(source, os.path.join(folder, "pt"), "format=pt")
        return None if have and self.said in have else f"{have!r} does not say {self.said!r}"


@fixed
def described_twice(name):
    """A chunk that is a copy of another."""
    def edit(metadata):
        chunks = metadata.state_dict_metadata["a"].chunks
        chunks.append(chunks[0])
    return Edited(name, edit)


@fixed
def stored_nowhere(name):
    """The message names its tensor."""
    def edit(metadata):
        del metadata.storage_data[next(index for index in metadata.storage_data if index.fqn == "a")]
    return Edited(name, edit, "'a': the metadata does not say where the chunk at [")


class Pipe(Case):
    """A FIFO in the place of a file."""

    def check_views(self, folder, source, options):
        path = os.path.join(source, "__1_0.distcp")
        os.remove(path)
        os.mkfifo(path)
        have = export(source, os.path.join(folder, "pt"), "format=pt")
        return None if have and have.count(path) == 1 and ": not a regular file" in have else have


@fixed
def fifo(name):
    """One line says so."""
    return Pipe(name, 2, {("w",): Sharded(numbered(4, 2), (2,), [0])})


@fixed_since_2_9
def safetensors(name):
    """Cut on two axes, unevenly, not at all, and a scalar: each rank's pieces in a safetensors file of its own."""
    return Shards(name, 4, {
        ("model", "w"): Sharded(numbered(10, 6), (2, 2), [0, 1]),
        ("model", "odd"): Sharded(numbered(5, 3, dtype=torch.bfloat16), (4,), [0]),
        ("it's", '"é"'): Sharded(numbered(5), (2, 2), [0, None]),
        ("scalar",): Plain(torch.tensor(3.5))})


@fixed_since_2_9
def safetensors_with_a_gap(name):
    """Ranks 1 and 3 have only copies, and save nothing."""
    return Shards(name, 4, {("w",): Sharded(numbered(4, 2), (2, 2), [0, None])})


def negative(items):
    """Other values in the same pieces."""
    return {path: Sharded(-v.full, v.mesh, v.cuts) for path, v in items.items()}


class Beside(Shards):
    """Copies of another save under names that are like those of the files, and sort before and behind them."""

    def check_views(self, folder, source, options):
        other = os.path.join(folder, "other")
        program.save(other, self.world, negative(self.items), writer=program.safetensors_writer)
        first = "shard-00001-model-00001-of-00001"
        for copy in (" (1)", "-old", ".bak", "a"):
            shutil.copy(os.path.join(other, first + ".safetensors"), os.path.join(source, first + copy + ".safetensors"))
        return super().check_views(folder, source, options)

    def check_oracle(self, folder):
        return None


@fixed_since_2_9
def safetensors_beside_copies(name):
    """torch itself reads every file of the folder."""
    return Beside(name, 2, {("w",): Sharded(numbered(4, 2) + 1, (2,), [0])})


@fixed_since_2_2
def ranks(name):
    """As FSDP saves them: cut along one axis, along both, twice along one, not at all; a scalar, and values that are not tensors."""
    return Ranks(name, 8, {
        ("one",): Sharded(numbered(10, 6), (2, 4), [None, 0]),
        ("both",): Sharded(numbered(5, 7, dtype=torch.bfloat16), (2, 4), [1, 0]),
        ("twice",): Sharded(numbered(16, 2), (2, 4), [0, 0]),
        ("few",): Sharded(numbered(3, 2), (2, 4), [None, 0]),
        ("copied",): Sharded(numbered(3, 2), (2, 4), [None, None]),
        ("scalar",): Plain(torch.tensor(7)), ("step",): 3})


class Changed(Case):
    """A view with objects, then changed: what torch reads of it, or does not, and what verify says."""

    def read(self, folder):
        """What torch reads, or None where it fails."""
        try:
            return program.load(folder, self.items)
        except CheckpointException:  # which is no Exception
            return None

    def check_views(self, folder, source, options):
        if said := super().check_views(folder, source, options):
            return said
        view = os.path.join(folder, "view")
        if said := export(source, view, "view=dcp,dst_ranks=2"):
            return said
        for number, (change, loads, says) in enumerate(CHANGES):
            tree = os.path.join(folder, f"changed{number}")
            shutil.copytree(view, tree)
            change(tree)
            have = self.read(tree)
            if (have and {k: v for k, v in have.items() if not hasattr(self.items[k], "full")}) != loads:
                return f"change {number}: torch reads {have}"
            said = verify(tree, "--against", source, "-o", "view=dcp,dst_ranks=2", says=says)
            if not said and says[0] in STEPS:
                said = self.check_source(tree, source, folder + f"/again{number}", says)
            if said:
                return f"change {number}: {said}"
        return None

    def check_source(self, tree, source, out, says):
        """The changed tree, by itself and as a source: verify tells each value, and nothing is exported."""
        if said := verify(tree, says=says):
            return said
        if says[0] != SHARED[0] and (said := verify(source, "--against", tree, says=["step cannot be compared: "])):
            return said
        reshardfs = os.environ.get("RESHARDFS") or os.path.join(os.environ.get("top_builddir", "."), "reshardfs")
        ran = subprocess.run([reshardfs, "--check", tree, "-o", "view=dcp"], capture_output=True, text=True, check=False)
        if ran.returncode != 1 or ("__0_1.distcp" not in ran.stderr and SHARED[0] not in ran.stderr):
            return f"reshardfs --check exits with {ran.returncode}: {ran.stderr}"
        said = export(tree, out, "view=dcp")
        refused = said and ("__0_1.distcp" in said or SHARED[0] in said) and not os.path.exists(out)
        return None if refused else f"it is exported: {said}"


SHARED = ["parameter 'name': the metadata stores it in the bytes of another value, 'step'"]
READ = ["step cannot be read: "]
STEPS = READ + SHARED  # what concerns the items alone
STEP, OTHER = pickle.dumps(7, 2), pickle.dumps(8, 2)


def rewrite(name, change):
    """A change of the bytes of a file, which a function gives."""
    def run(folder):
        path = os.path.join(folder, name)
        os.chmod(path, 0o600)
        with open(path, "rb") as file:
            data = change(file.read())
        with open(path, "wb") as file:
            file.write(data)
    return run


def without_sums(data):
    """The checksums of all zip directories are 0, which says that there are none."""
    data, at = bytearray(data), -1
    while (at := data.find(b"PK\1\2", at + 1)) >= 0:
        data[at + 16:at + 20] = bytes(4)
    return bytes(data)


def step_is_8(data):
    assert data.count(STEP) == 1
    return data.replace(STEP, OTHER)


def without_paths(data):
    """The metadata lacks the paths of its values in nested dicts."""
    described = pickle.loads(data)
    described.planner_data = None
    return pickle.dumps(described)


def in_one_place(data):
    """The item of step is also that of name."""
    described = pickle.loads(data)
    places = {index.fqn: place for index, place in described.storage_data.items()}
    for index in described.storage_data:
        if index.fqn == "name":
            described.storage_data[index] = places["step"]
    return pickle.dumps(described)


def remove(name):
    return lambda folder: os.remove(os.path.join(folder, name))


RIGHT = {("step",): 7, ("name",): "run"}
CHANGES = [
    (rewrite("__0_1.distcp", step_is_8), RIGHT | {("step",): 8}, READ + ["__0_1.distcp (item at 0, 'step')"]),
    (rewrite("__0_1.distcp", lambda data: without_sums(step_is_8(data))), RIGHT | {("step",): 8},
     ["step has other bytes than the source", "2 values"]),
    (remove("__0_1.distcp"), None, READ + ["name cannot be read: "]),
    (rewrite("__0_1.distcp", lambda data: bytes(len(data))), None, READ + ["name cannot be read: "]),
    (rewrite("__0_1.distcp", lambda data: data[:1000]), None, READ + ["has only 1000"]),
    (rewrite(".metadata", in_one_place), RIGHT | {("name",): 7}, SHARED),
    (rewrite(".metadata", without_paths), RIGHT, [".metadata: is of another size than in a mount"]),
    (rewrite("__1_0.distcp", lambda data: data[:-30] + b"x" + data[-29:]), None, ["__1_0.distcp"]),
]


@fixed_since_2_2
def changed_values(name):
    """Values that are not tensors, in items that were changed, cut, zeroed or lost."""
    return Changed(name, 2, {("w",): Sharded(numbered(8, 4), (2,), [0]), ("step",): 7, ("name",): "run"})


class Renamed(Case):
    """Views by a map of names, of values that are not tensors, too."""

    def check_views(self, folder, source, options):
        view, names = os.path.join(folder, "view"), os.path.join(folder, "names.json")
        given = f"view=dcp,names={names}"
        with open(names, "w", encoding="utf-8") as file:
            json.dump({"step": "count", "name": None, "w": "weight"}, file)
        if said := export(source, view, given) or verify(view, "--against", source, "-o", given):
            return said
        have = program.load(view, {("weight",): self.items[("w",)], ("count",): 0})
        if have[("count",)] != 7 or differ("names", "weight", have[("weight",)], self.items[("w",)].full):
            return f"torch reads {have}"
        says = ["count should not be there", "name is missing", "step is missing", "weight: should not be there"]
        if said := verify(view, "--against", source, "-o", "view=dcp", says=says):
            return said
        with open(names, "w", encoding="utf-8") as file:
            json.dump({"step": "name"}, file)
        for format in ("view=dcp", "format=pt"):
            said = export(source, os.path.join(folder, "twice"), f"{format},names={names}")
            if "parameter 'name': two values, of which one is no tensor, are both shown by this name" not in (said or ""):
                return f"{format}: {said}"
        return None


@fixed_since_2_2
def names_of_values(name):
    """One has another name, one is left out, then two have one name."""
    return Renamed(name, 2, {("w",): Sharded(numbered(8, 4), (2,), [0]), ("step",): 7, ("name",): "run"})


class Refused(Ranks):
    """Files that are not read, and what is said of them."""

    def __init__(self, name, world, items, said, damage=None):
        super().__init__(name, world, items)
        self.said, self.damage = said, damage

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        if self.damage:
            self.damage(source, self.world)
        for options in ("format=pt", "view=huggingface"):
            have = export(source, os.path.join(folder, "out"), options)
            if self.said not in (have or ""):
                return f"{have!r} does not say {self.said!r}"
        return None


@fixed_since_2_2
def ranks_of_objects(name):
    """Without a tensor no file can be shown."""
    return Refused(name, 2, {("step",): 3, ("groups",): [{"lr": 0.1}]}, "holds nothing that rank_0 of the destination takes")


@fixed_since_2_9
def ranks_of_parameters(name):
    """As a model's own parameters."""
    return Ranks(name, 2, {("w",): program.Parameter(numbered(5, 3), (2,), [0]),
                           ("copied",): program.Parameter(numbered(3), (2,), [None])})


@fixed_since_2_2
def ranks_below_a_key(name):
    """The state dict is an entry of the dict in each file."""
    return Ranks(name, 4, {("w",): Sharded(numbered(10, 6), (4,), [0]), ("scalar",): Plain(torch.tensor(7))}, "model")


class Unread(Case):
    """A tensor of a type that is not read, beside others: it is named, and names= leaves it out."""

    def __init__(self, name, dtype):
        items = {("w",): Sharded(numbered(5, 3), (2,), [0]), ("step",): 3,
                 ("scale",): Plain(torch.zeros(4, dtype=torch.uint8).view(getattr(torch, dtype)))}
        super().__init__(name, 2, items)
        self.dtype = dtype

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        said = f"parameter 'scale': is not read: its elements are torch.{self.dtype}"
        names = os.path.join(folder, "names.json")
        with open(names, "w") as file:
            file.write('{"scale": null}')
        want = {"w": self.items[("w",)].full}
        for options in ("format=pt", "view=huggingface", "view=dcp,dst_ranks=2"):
            if said not in (have := export(source, os.path.join(folder, "refused"), options) or ""):
                return f"{options}: {have!r} does not say {said!r}"
        for options in ("format=pt", "view=huggingface"):
            if have := check_export(source, os.path.join(folder, options[-2:]), f"{options},names={names}", want):
                return have
        told = run("reshard", "info", source)
        if told.returncode or f"'scale': its elements are torch.{self.dtype}" not in told.stdout:
            return f"info does not list it: {told.stdout} {told.stderr}"
        return None


@fixed_since_2_9
def unread_scales(name):
    return Unread(name, "float8_e4m3fnuz")


@fixed_since_2_9
def unread_pairs(name):
    return Unread(name, "float4_e2m1fn_x2")


@fixed_since_2_9
def unread_complex(name):
    return Unread(name, "complex32")


@fixed_since_2_9
def ranks_partial(name):
    """Sums that were not made."""
    from torch.distributed.tensor import Partial
    return Refused(name, 2, {("w",): Sharded(numbered(4, 2), (2,), [None], [Partial()])},
                   "placement_types.Partial, which is not read")


def lose(*ranks):
    def damage(folder, world):
        for rank in ranks:
            os.remove(program.file_of(folder, rank, world))
    return damage


@fixed_since_2_2
def ranks_missing(name):
    """The file of one rank."""
    return Refused(name, 4, {("w",): Sharded(numbered(4, 2), (4,), [0])},
                   "'w': is incomplete: 'model_world_size_4_rank_2.pt' is missing, by the numbers", lose(2))


@fixed_since_2_2
def ranks_missing_at_the_end(name):
    """Files that may have had parameters of their own."""
    return Refused(name, 4, {("w",): Sharded(numbered(4, 2), (4,), [None])},
                   "'model_world_size_4_rank_2.pt', 'model_world_size_4_rank_3.pt' are missing, by the numbers", lose(2, 3))


class Complete(Ranks):
    """Those parameters that are complete without a lost file, once names= leaves out the others."""

    def check_views(self, folder, source, _options):
        lose(3)(source, self.world)
        names = os.path.join(folder, "names.json")
        with open(names, "w", encoding="ascii") as file:
            file.write('{"cut": null}')
        for command in (("reshard", "info", source), ("reshard", "verify", source), ("reshard", "stats", source),
                        ("reshardfs", "--check", source, folder, "-o", "format=pt")):
            ran = run(*command)
            if (ran.returncode == 0) != ("info" in command) or "_rank_3.pt' is missing" not in ran.stdout + ran.stderr:
                return f"{command}: {ran.returncode}, {ran.stdout}{ran.stderr}"
        ran = run("reshard", "verify", source, "-o", f"names={names}")
        if ran.returncode or "is missing: parameters that no other file has are not shown" not in ran.stderr:
            return f"verify with names=: {ran.returncode}, {ran.stdout}{ran.stderr}"
        want = {n: v for n, v in self.whole().items() if n != "cut"}
        said = check_export(source, os.path.join(folder, "hf"), f"view=huggingface,names={names}", want)
        strict = export(source, os.path.join(folder, "strict"), f"view=huggingface,names={names},strict")
        said = said or (None if strict and "is missing" in strict else f"strict: {strict}")
        return said or self.check_converted(folder, source)

    def check_converted(self, folder, source):
        """With convert=, names= is of the names that are shown: the message says how to leave out others."""
        files = {"config.json": '{"model_type": "tiny"}', "tiny.rules":
                 "sides training model\nmodels tiny\ncut = model.cut [8, 2]\ncopied = model.copied [8, 2]\n"
                 "buffer = model.buffer [3]\n", "shown.json": '{"model.cut": null}'}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(text)
        have = export(source, os.path.join(folder, "converted"), f"view=huggingface,convert={folder}/tiny.rules,"
                      f"hf_config={folder}/config.json,names={folder}/shown.json")
        return None if have and "or convert= of an export without what is incomplete" in have else f"convert: {have}"


@fixed_since_2_2
def ranks_complete_without_one(name):
    """The other half of the mesh has what the lost rank had of one tensor, nobody what it had of another."""
    return Complete(name, 4, {("cut",): Sharded(numbered(8, 2), (2, 2), [0, 0]),
                              ("copied",): Sharded(numbered(8, 2), (2, 2), [None, 0]),
                              ("buffer",): Plain(numbered(3))})


class Two(Ranks):
    """Two saves in one folder."""

    def check_views(self, folder, source, options):
        program.save_ranks(source, 2, {path: Plain(-v.full) for path, v in self.items.items()})
        said = export(source, os.path.join(folder, "both"), "view=huggingface")
        if not said or "file='model_world_size_4_*'" not in said:
            return f"two saves: {said}"
        said = check_export(source, os.path.join(folder, "hf"), "view=huggingface,file=model_world_size_4_*", self.whole())
        minus = {n: -v for n, v in self.whole().items()}
        return said or check_export(source, os.path.join(folder, "hf2"), "view=huggingface,file=model_world_size_2_*", minus)


@fixed_since_2_2
def ranks_of_two_worlds(name):
    """file= chooses one of them."""
    return Two(name, 4, {("w",): Sharded(numbered(5, 2), (4,), [0])})


class Copied(Ranks):
    def check_views(self, folder, source, options):
        program.save_ranks(source + "2", self.world, negative(self.items))
        for copy in (" (copy)", ".bak", "x"):
            shutil.copy(program.file_of(source + "2", 0, self.world),
                        program.file_of(source, 0, self.world).replace(".pt", copy + ".pt"))
        return super().check_views(folder, source, options)


@fixed_since_2_2
def ranks_beside_copies(name):
    """Of other names."""
    return Copied(name, 2, {("w",): Sharded(numbered(5, 2), (2,), [0])})


@fixed_since_2_2
def ranks_of_two_saves(name):
    """One file is of a save with another shape."""
    def damage(folder, world):
        program.save_ranks(folder + "2", world, {("w",): Sharded(numbered(5, 2), (4,), [0])})
        os.replace(program.file_of(folder + "2", 3, world), program.file_of(folder, 3, world))
    return Refused(name, 4, {("w",): Sharded(numbered(4, 2), (4,), [0])},
                   "the shape of the whole tensor, differs between the files", damage)


@fixed_since_2_2
def ranks_placed_wrongly(name):
    """A piece of another shape than its placement gives."""
    return Refused(name, 2, {("w",): Sharded(numbered(4, 2), (2,), [1], [program.Shard(0)])},
                   "its tensor has another shape than its placements give it")


class Copies(Ranks):
    """Several files have the same boxes, and SAYS what is to be read about those that differ: {name: text}."""

    def __init__(self, name, world, items, says, damage=None):
        super().__init__(name, world, items)
        self.says, self.damage = says, damage

    def check_views(self, folder, source, _options):
        if self.damage:
            self.damage(source, self.world)
        said = check_export(source, os.path.join(folder, "hf"), "view=huggingface", self.whole())
        return said or self.check_log(source, folder) or self.check_strict(source, folder) or self.check_verify(source)

    def check_log(self, source, folder):
        said = run("reshard", "export", source, os.path.join(folder, "logged"), "-o", "view=huggingface").stderr
        lacking = [text for text in self.says.values() if text not in said]
        return f"not said: {lacking} but {said}" if lacking or not self.says and "warning" in said else None

    def check_strict(self, source, folder):
        have = export(source, os.path.join(folder, "strict"), "view=huggingface,strict")
        if not self.says:
            return have or one_at_a_time(source)
        named = have and any(f"parameter '{n}': has other bytes than its copy in" in have for n in self.says)
        return None if named else f"strict: {have}"

    def check_verify(self, source):
        ran = run("reshard", "verify", source)
        found = {line.split(":")[0] for line in ran.stdout.splitlines() if "has other bytes than the ranks" in line}
        if found != set(self.says) or ran.returncode != (1 if self.says else 0):
            return f"verify exits with {ran.returncode}: {ran.stdout}{ran.stderr}"
        return None


def between(rank, other):
    return f"(model_world_size_4_rank_{other}.pt has other bytes than model_world_size_4_rank_{rank}.pt)"


@fixed_since_2_2
def ranks_the_same(name):
    """Whole in every file, and DTensors that are replicated: nothing differs."""
    return Copies(name, 4, {("w",): Sharded(numbered(8, 6), (2, 2), [0, None]), ("buffer",): Plain(numbered(7)),
                            ("large",): Plain(numbered(40, 50)), ("step",): Plain(torch.tensor(3))}, {})


@fixed_since_2_2
def ranks_of_their_own(name):
    """Experts and steps of each rank under one name; rank 0 has what is shown."""
    return Copies(name, 4, {("expert.w",): PerRank([numbered(4, 3) + 100 * r for r in range(4)]),
                            ("seed",): PerRank([torch.tensor(r) for r in range(4)]), ("same",): Plain(numbered(7))},
                  {"expert.w": f"expert.w [4, 3] {between(0, 3)}", "seed": f"seed [] {between(0, 3)}"})


@fixed_since_2_2
def ranks_of_two_stages(name):
    """Each stage calls its layer the same, on a mesh of its own."""
    return Copies(name, 4, {("layers.0.w",): Staged([numbered(6, 2), numbered(6, 2) + 50])},
                  {"layers.0.w": f"layers.0.w [6, 2] {between(0, 2)}"})


def edit(rank, change):
    """A damage: CHANGE gets the dict of a rank's file, which is saved again."""
    def damage(folder, world):
        with program.As(rank, world):
            state = torch.load(program.file_of(folder, rank, world), weights_only=False)
            change(state)
            torch.save(state, program.file_of(folder, rank, world))
    return damage


@fixed_since_2_2
def ranks_replicas_differ(name):
    """One element of a replica, which its placements say to be the same."""
    def change(state):
        state["w"]._local_tensor[1, 1] += 1
    return Copies(name, 4, {("w",): Sharded(numbered(8, 6), (2, 2), [0, None]), ("same",): Plain(numbered(7))},
                  {"w": f"w [8, 6] {between(2, 3)}"}, edit(3, change))


@fixed_since_2_2
def ranks_differ_between_samples(name):
    """The log compares samples; strict and verify see every byte of what nothing proves."""
    def change(state):
        state["large"][700] += 1
    return Copies(name, 4, {("large",): Plain(numbered(9000))}, {"large": ""}, edit(2, change))


class Unlike(Ranks):
    """Copies that strict cannot compare, and verify can."""

    def check_views(self, folder, source, options):
        said = super().check_views(folder, source, options)
        strict = export(source, os.path.join(folder, "strict"), "view=huggingface,strict")
        if said or not strict or "'w': has other strides than its copy in" not in strict:
            return said or f"strict: {strict}"

        def change(state):
            state["w"][2, 3] += 1
        edit(3, change)(source, self.world)
        at = r"w: has other bytes than the ranks that hold the same, first at \[2, 3\], .*_rank_3\.pt"
        said = copies_differ(source, "")
        return None if said and re.search(at, said) else f"verify: {said}"


@fixed_since_2_2
def ranks_in_other_strides(name):
    """Transposed in memory in every other file."""
    full = numbered(4, 6)
    transposed = full.t().contiguous().t()
    return Unlike(name, 4, {("w",): PerRank([full, transposed, full, transposed])})


class Checked(Case):
    """check=crc finds a bit in each kind of file, of the one place that has WHAT."""

    def __init__(self, name, items, save, damaged, what=torch.tensor([7.5]).numpy().tobytes(), view="huggingface"):
        super().__init__(name, 2, items)
        self.save, self.damaged, self.what, self.view = save, damaged, what, "view=" + view

    def write(self, folder):
        self.save(os.path.join(folder, "checkpoint"), self.world, self.items)
        return os.path.join(folder, "checkpoint"), {}

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        options = self.view + ",check=crc"
        if said := export(source, os.path.join(folder, "good"), options):
            return said
        hits = [hit for name in os.listdir(source) if (hit := self.flip(os.path.join(source, name)))]
        have = export(source, os.path.join(folder, "bad"), options)
        plain = export(source, os.path.join(folder, "plain"), self.view)
        if len(hits) != 1 or plain:
            return f"changed: {hits}; without check=crc: {plain}"
        return None if have and self.damaged in have else f"not found: {have}"

    def flip(self, path):
        """Changes the last bit of WHAT's second byte, and leaves the file its times."""
        times = os.stat(path)
        with open(path, "r+b") as f:
            data = f.read()
            at = data.find(self.what)
            if at < 0:
                return None
            f.seek(at + 1)
            f.write(bytes([data[at + 1] ^ 1]))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return path


ONE = {("w",): Sharded(torch.arange(16.0).reshape(8, 2) + 0.5, (2,), [0]), ("step",): 3}


@fixed_since_2_2
def checked_items(name):
    """The records of each item."""
    return Checked(name, ONE, program.save, "archive/data/0': the archive's entry is damaged: its CRC-32 is")


@fixed_since_2_2
def checked_objects(name):
    """A tensor within a value, whose item a folder of the same kind passes on."""
    value = types.SimpleNamespace(scale=torch.tensor([1234.5]))
    return Checked(name, {**ONE, ("config",): value}, program.save,
                   "/data/0': the archive's entry is damaged: its CRC-32 is", value.scale.numpy().tobytes(), "dcp")


@fixed_since_2_2
def checked_ranks(name):
    """The records of each rank's file."""
    return Checked(name, ONE, program.save_ranks, "/data/0': the archive's entry is damaged: its CRC-32 is")


class Unchecked(Checked):
    """Files without checksums are read, and the log says so."""

    def check_views(self, folder, source, _options):
        ran = run("reshard", "export", source, os.path.join(folder, "hf"), "-o", "view=huggingface,check=crc")
        return None if ran.returncode == 0 and self.damaged in ran.stderr else f"exit {ran.returncode}: {ran.stderr!r}"


@fixed_since_2_9
def checked_without(name):
    """torch saves without checksums when it is asked to."""
    def save(folder, world, items):
        torch.serialization.set_crc32_options(False)
        try:
            program.save_ranks(folder, world, items)
        finally:
            torch.serialization.set_crc32_options(True)
    return Unchecked(name, ONE, save, "has records without a checksum, so check=crc does not verify these")


@fixed_since_2_9
def checked_shards(name):
    """Safetensors of torch have no checksum."""
    def save(folder, world, items):
        program.save(folder, world, {("w",): items[("w",)]}, writer=program.safetensors_writer)
    return Unchecked(name, ONE, save, "has no checksum, so check=crc does not verify this file")


import alone_cases  # noqa: E402,F401 - more cases, which are made of those above
import fsdp_cases  # noqa: E402,F401
import packed_cases  # noqa: E402,F401
