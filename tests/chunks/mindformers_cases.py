# SPDX-License-Identifier: Apache-2.0
"""The family "mindformers": folders of Checkpoint 2.0, and what must be seen through views of them.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import dataclasses
import glob
import json
import os
import random

import numpy as np

import oracle

oracle.quiet()

import compared  # noqa: E402
import mindformers_program  # noqa: E402
import mindformers_saves as saves  # noqa: E402
import random_cases  # noqa: E402
import values  # noqa: E402
from layouts import Layout, Strategy, Item  # noqa: E402
from mindformers_saves import Checkpoint, Tensor  # noqa: E402
from model import cut  # noqa: E402

COUNTS = [1, 2, 2, 3, 4, 4, 6, 8, 8, 12]
DTYPES = ["Float32"] * 3 + ["BFloat16"] * 3 + ["Float16", "Int8", "UInt8", "Bool", "Int32", "Int64", "Float64"]
PROGRAMS = {}
FIXED = {}


def program(version):
    if version not in PROGRAMS:
        PROGRAMS[version] = mindformers_program.Program(os.environ["RFS_MINDFORMERS"], version)
    return PROGRAMS[version]


class Case:
    """A checkpoint, and the layouts of another count of ranks. Ranks of the destination are of one stage."""

    def __init__(self, name, checkpoint, devices=1, target=None):
        self.name, self.checkpoint = name, checkpoint
        self.devices = devices
        self.target = target or {}  # name -> layouts.Layout
        self.damage = None          # called with the folder of the iteration, after it was read by its own program
        self.says = ""              # what an export must print
        self.refusal = ""           # instead of all that it may not do
        self.status = 1             # with which it is refused
        self.options = {}           # more of them

    def describe(self):
        rows = [self.checkpoint.describe(), f"  to {self.devices} rank(s)"]
        return "\n".join(rows + [f"    {n} {layout}" for n, layout in self.target.items()])

    def write(self, folder):
        """Returns the source, and the options that name the destination."""
        source = os.path.join(folder, "checkpoint")
        self.iteration = saves.write(program(self.checkpoint.version), self.checkpoint, source)
        if not self.target:
            return source, {}
        path = os.path.join(folder, "dst.ckpt")
        Strategy([Item(t.name, self.target[t.name], t.value.shape) for t in self.checkpoint.tensors
                  if t.name in self.target]).write(path)
        return source, {"dst_strategy": path}

    def wanted(self, rank):
        """name -> Value of a rank of the destination."""
        return {t.name: t.value.with_data(cut(t.value.data, self.target[t.name], rank))
                if t.name in self.target else t.value for t in self.checkpoint.tensors}

    def whole(self):
        return {t.name: t.value for t in self.checkpoint.tensors}

    def check_oracle(self, folder):
        """What MindSpore Transformers itself reads from the folder; None, or how it differs from the model."""
        del folder
        real = program(self.checkpoint.version)
        for rank in range(self.devices):
            named = saves.infos(self.readable(), range(self.devices), lambda t: self.target.get(t.name))
            loaded = real.load(self.iteration, rank, self.devices, named)
            wanted = self.wanted(rank)
            if sorted(loaded) != sorted(named):
                return f"rank {rank}: mindformers loads {sorted(loaded)}"
            for name, parameter in loaded.items():
                dtype, shape, content = values.loaded_bytes(parameter)
                want = wanted[name]
                if (dtype, shape, content) != (want.dtype, tuple(want.shape), want.data.tobytes()):
                    return f"rank {rank}: mindformers loads another {name}"
        return self.check_areas(real, self.iteration)

    def check_views(self, folder, source, options):
        """What reshard writes of it; None, or how it differs from the model."""
        problem = compared.check(self, folder, source, options)
        if problem or self.refusal:
            return problem
        problem = self.check_shown(folder, source, options) or self.check_derived(folder, source)
        return problem or (None if self.damage else compared.reshard("verify", source))

    def check_derived(self, folder, source):
        """The strategy that metadata.json tells gives each rank what that rank had when it saved."""
        if self.checkpoint.ranks == 1 or any("-" in t.name for t in self.checkpoint.tensors):
            return None
        path = os.path.join(folder, f"derived.{'json' if len(self.checkpoint.tensors) % 2 else 'ckpt'}")
        problem = compared.reshard("strategy", "new", path, "--tree", source)
        devices = self.checkpoint.devices
        stages = [s for s in range(self.checkpoint.stages) if self.checkpoint.held(s * devices)]
        if stages != list(range(len(stages))):  # of empty stages behind all others metadata.json has no trace
            return None if "but no stage" in (problem or "") else f"strategy new: a stage that holds nothing: {problem}"
        if not problem:
            problem = compared.export(self, source, folder + "/derived", {"dst_strategy": path})
        for rank in range(len(stages) * devices):
            held = {t.name: self.checkpoint.slice(t, rank) for t in self.checkpoint.held(rank)}
            problem = problem or compared.rank_differs(folder + "/derived", rank, held)
        return problem and f"strategy new: {problem}"

    def check_shown(self, folder, source, options):
        """view=mindformers: mindformers itself and reshard read it again."""
        if any(set(t.name) & set(",'\"\\") for t in self.checkpoint.tensors):
            return None  # its reader does not take such names
        os.mkdir(folder + "/again")
        shown = os.path.join(folder, "shown")
        problem = compared.export(self, source, shown, {"view": "mindformers", **options})
        self.says = ""  # which is of the source alone
        problem = problem or compared.check_whole(self, shown, folder + "/again")
        iteration = os.path.join(source, f"iteration_{self.checkpoint.iteration:08d}")
        if not problem:
            with open(os.path.join(iteration, "common.json"), "rb") as a, open(shown + "/common.json", "rb") as b:
                problem = "another common.json" if a.read() != b.read() else None
        problem = problem or self.check_verified(shown, source, {"view": "mindformers", **options})
        real = program("2.1.0")
        for ranks, layout_of in ((1, lambda t: None), (self.devices, lambda t: self.target.get(t.name))):
            named = saves.infos(self.checkpoint.tensors, range(ranks), layout_of)
            for rank in range(ranks):
                problem = problem or self.check_loaded(
                    real.load(shown, rank, ranks, named), self.whole() if ranks == 1 else self.wanted(rank))
        return problem and f"view=mindformers: {problem}"

    def check_verified(self, shown, source, options, says=None):
        """reshard verify of the view: None when it says that all is the same, or that it is not because of SAYS."""
        given = ",".join(f"{k}={v}" for k, v in options.items())
        done = compared.run("verify", shown, "--against", source, "-o", given)
        right = done.returncode == (1 if says else 0) and (says or "the same as") in done.stdout
        return None if right else f"verify exits with {done.returncode}: {done.stdout.strip()}"

    def check_loaded(self, loaded, wanted):
        if sorted(loaded) != sorted(wanted):
            return f"mindformers loads {sorted(loaded)}"
        for name, want in wanted.items():
            if values.loaded_bytes(loaded[name]) != (want.dtype, tuple(want.shape), want.data.tobytes()):
                return f"mindformers loads another {name}"
        return None

    def check_areas(self, real, folder):
        """The parts that it takes from each slice are those that the model cuts there."""
        if self.checkpoint.ranks == 1:
            return None
        for t in self.checkpoint.tensors:
            if t.layout is None or t.name not in self.target:
                continue
            where = np.arange(t.value.data.size).reshape(t.value.shape)
            target = saves.real_layout(self.target[t.name], range(self.devices))
            first = t.stages[0] * self.checkpoint.devices
            for rank in range(self.devices):
                wanted = set(cut(where, self.target[t.name], rank).reshape(-1))
                for source, area in real.areas(folder, t.name, target, rank).items():
                    part = where[tuple(slice(a, b) for a, b in area)].reshape(-1)
                    held = cut(where, t.layout, source - first).reshape(-1)
                    if not set(part) == set(held) & wanted:
                        return f"{t.name}: mindformers takes another part from rank {source} to {rank}"
        return None

    def readable(self):
        """Those that its reader takes: 2.0.0 looks in rank 0 alone for a tensor without a layout."""
        late = {t.name for t in self.checkpoint.tensors if t.layout is None and 0 not in t.stages}
        old = self.checkpoint.version == "2.0.0"
        return [t for t in self.checkpoint.tensors
                if not (old and t.name in late)]


class Maker:
    def __init__(self, seed, number):
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.data = np.random.default_rng(rng.getrandbits(64))
        stages = rng.choice([1, 1, 1, 2, 3])
        self.devices = rng.choice(COUNTS if stages == 1 else COUNTS[:7])
        self.to = rng.choice(COUNTS)
        balanced = rng.random() < 0.5 and stages * self.devices > 1
        self.checkpoint = Checkpoint(
            rng.choice(mindformers_program.VERSIONS), self.devices, stages, balanced=balanced,
            prefix=rng.choice(["CKP", "checkpoint", "my-opt-7b", None]), iteration=rng.choice([1, 20, 123456789]))
        self.target = {}

    def parameter(self, number):
        rng = self.rng
        name = f"decoder.layers.{number}.{rng.choice(['weight', 'linear_fc1.weight', 'bias'])}"
        ndim = rng.choice([1, 1, 2, 2, 2, 3])
        ours = self.layout(self.devices, ndim)
        theirs = self.layout(self.to, ndim)
        shape = random_cases.shape_for(rng, [ours, theirs], ndim, 1)
        stages = tuple(random_cases.pick_stages(rng, self.checkpoint.stages))
        self.add(name, rng.choice(DTYPES), shape, ours, theirs, stages)
        if rng.random() < 0.5:
            for state in ("adam_m", "adam_v")[:rng.randint(1, 2)]:
                self.add(f"{state}.{name}", "Float32", shape, ours, theirs, stages, "opt")

    def layout(self, devices, ndim):
        layout = random_cases.random_layout(self.rng, devices, ndim)
        layout.opt = 0
        return layout

    def add(self, name, dtype, shape, ours, theirs, stages, kind="model"):
        value = values.random_value(self.data, dtype, shape)
        self.checkpoint.tensors.append(Tensor(name, value, ours, stages, kind))
        if theirs:
            self.target[name] = theirs

    def make(self, name):
        rng = self.rng
        for number in range(rng.randint(2, 6)):
            self.parameter(number)
        everywhere = tuple(range(self.checkpoint.stages))
        if rng.random() < 0.6:
            self.add("global_step", "Int32", (1,), None, None, everywhere, "opt")
        if rng.random() < 0.3:
            self.add("scale_sense", "Float32", (), None, None, everywhere, "opt")
        if rng.random() < 0.3:
            late = (self.checkpoint.stages - 1,)
            self.add("rope.table", rng.choice(DTYPES), (3, 5), None, None, late)
        return Case(name, self.checkpoint, self.to, self.target)


def prepare():
    oracle.ignore_free_memory()


def make(seed, number):
    return Maker(seed, number).make(f"mindformers-{seed}-{number}")


def fixed(function):
    FIXED["mindformers-" + function.__name__.replace("_", "-")] = function
    return function


def numbered(rng, shape, dtype="Float32"):
    """Each element is its place, for a failure that tells where its bytes come from."""
    del rng
    return values.Value(dtype, np.arange(int(np.prod(shape)), dtype=values.STORED[dtype]).reshape(shape))


def one(name, layout, shape, target, **more):
    """One matrix, to four ranks."""
    checkpoint = Checkpoint(more.pop("version", "2.1.0"), layout.devices(), prefix="CKP", **more)
    checkpoint.tensors.append(Tensor("w", numbered(None, shape), layout))
    return Case(name, checkpoint, target.devices(), {"w": target})


@fixed
def documented(name):
    """The example of the format's description: 8 ranks, device matrix [2,2,2], tensor map [0,2] of [8,6]."""
    return one(name, Layout([2, 2, 2], [0, 2]), (8, 6), Layout([4], [-1, -1]))


class Followed(compared.Followed, Case):
    of_mount = {"only": "*"}

    def check_saves(self, folder, source, mnt):
        first = self.checkpoint.tensors
        for step in (10, 20, 30):
            self.checkpoint.iteration = step
            self.checkpoint.tensors = [dataclasses.replace(t, value=t.value.with_data(t.value.data + t.value.data.dtype.type(step))) for t in first]
            saves.write(program(self.checkpoint.version), self.checkpoint, source)
            copy = f"{folder}/{step}.safetensors"
            problem = compared.take_latest(mnt, f"0_{step}", copy) or compared.differs(copy, self.whole())
            if problem:
                return f"step {step}: {problem}"
        return None


@fixed
def followed(name):
    """With follow. 2.0.0 writes metadata.json for the model, and anew when the optimizer is saved; then the tracker."""
    case = one(name, Layout([2, 2], [1, 0]), (8, 6), Layout([1], [-1, -1]), version="2.0.0", balanced=True)
    case.checkpoint.tensors.append(Tensor("adam_m.w", numbered(None, (8, 6)), Layout([2, 2], [1, 0]), kind="opt"))
    return Followed(name, case.checkpoint)


class Resumed(Case):
    """No tensor has the step: load_checkpoint makes it of common.json, from the save and from a view of it."""

    def check_shown(self, folder, source, options):
        shown, options = folder + "/shown", {"view": "mindformers", **options}
        problem = super().check_shown(folder, source, options)
        for where in (self.iteration, shown):
            problem = problem or self.check_resumed(where, self.checkpoint.iteration)
        for name, old, new, says in (("common.json", b"1234", b"1235", "common.json offset "),
                                     ("common.json", b"1235", b"99999", "common.json: is of another size"),
                                     ("metadata.json", b"}", b" }", "metadata.json: is of another size")):
            rewrite(os.path.join(shown, name), old, new)
            if name == "common.json":
                problem = problem or self.check_resumed(shown, int(new))
            problem = problem or self.check_verified(shown, source, options, says)
        os.remove(shown + "/common.json")
        return problem or self.check_verified(shown, source, options, "common.json: is missing")

    def check_resumed(self, folder, iteration):
        named = saves.infos(self.checkpoint.tensors, range(1), lambda t: None)
        have = program(self.checkpoint.version).resumed(folder, named)
        step = {n: values.loaded_bytes(v) for n, v in have.items()}.get("global_step")
        return None if step == ("Int32", (1,), np.int32(iteration).tobytes()) else f"{folder}: it resumes with {step}"


def rewrite(path, old, new):
    os.chmod(path, 0o600)
    with open(path, "rb") as file:
        data = file.read()
    assert old in data
    with open(path, "wb") as file:
        file.write(data.replace(old, new))


@fixed
def step_in_common_json(name, version="2.1.0"):
    """Of the optimizer's state, and none of it is the step."""
    case = one(name, Layout([2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]), iteration=1234, version=version)
    case.checkpoint.tensors.append(Tensor("adam_m.w", numbered(None, (8, 6)), Layout([2, 2], [0, -1]), kind="opt"))
    return Resumed(name, case.checkpoint, case.devices, case.target)


@fixed
def step_in_common_json_2_0(name):
    """The same of 2.0.0."""
    return step_in_common_json(name, "2.0.0")


@fixed
def nested(name):
    """Two device axes cut one axis, the last of them in the other order."""
    return one(name, Layout([2, 3, 2], [[0, 2], 1]), (8, 6), Layout([2, 2], [0, 1]), balanced=True)


@fixed
def uncut(name):
    """A layout that cuts nothing: every rank has all of it."""
    return one(name, Layout([2, 2], [-1, -1]), (8, 6), Layout([4], [0, -1]))


@fixed
def quoted(name):
    """Names with quotes, backslashes and commas, as Python writes them in keys."""
    case = one(name, Layout([2], [0, -1]), (4, 2), Layout([2], [-1, 0]))
    for odd in ("it's", 'a "b"', "c\\d", "e, (0,)", "both ' and \"", "\u00e9\u4e2d"):
        case.checkpoint.tensors.append(Tensor(odd, numbered(None, (4, 2)), Layout([2], [0, -1])))
        case.target[odd] = Layout([2], [-1, 0])
    return case


@fixed
def single_card(name):
    """No metadata.json: each file has whole tensors."""
    case = one(name, Layout([1], [-1, -1]), (4, 4), Layout([2, 2], [0, 1]))
    case.checkpoint.tensors.append(Tensor("adam_m.w", numbered(None, (4, 4)), Layout([1], [-1, -1]), kind="opt"))
    return case


def without(pattern):
    """A damage: files are missing."""
    def damage(folder):
        gone = glob.glob(os.path.join(folder, pattern))
        assert gone
        for path in gone:
            os.remove(path)
    return damage


@fixed
def missing_copies(name):
    """Every rank saved its slices, and the files of half of them are gone: the others have the same."""
    case = one(name, Layout([2, 2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]))
    case.damage = without("CKP-model-000000[014]-*")
    case.says = "slices come from copies in other files: 'CKP-model-0000000-0000008.safetensors' and another file are missing"
    return case


@fixed
def dangling_copies(name):
    """Links to files that are gone are no files."""
    case = one(name, Layout([2, 2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]))

    def damage(folder):
        path = os.path.join(folder, "CKP-model-0000000-0000008.safetensors")
        os.remove(path)
        os.symlink("nowhere", path)
    case.damage = damage
    case.says = "from copies in other files: 'CKP-model-0000000-0000008.safetensors' is missing"
    return case


@fixed
def truncated_copies(name):
    """A file is cut short in its data, and one in its header."""
    case = one(name, Layout([2, 2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]))
    path = "CKP-model-000000{}-0000008.safetensors".format

    def damage(folder):
        os.truncate(os.path.join(folder, path(0)), os.path.getsize(os.path.join(folder, path(0))) - 1)
        os.truncate(os.path.join(folder, path(1)), 20)
    case.damage = damage
    case.says = f"{path(0)}: slices come from copies in other files, such as '{path(2)}', as this one is damaged: "
    return case


@fixed
def missing_slices(name):
    """One copy of each slice was saved, and a file is gone."""
    case = one(name, Layout([2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]), balanced=True)
    case.damage = without("CKP-model-0000001-*")
    case.refusal = "in 'CKP-model-0000001-0000002.safetensors', which is missing, and in no other file"
    return case


@fixed
def unfinished(name):
    """metadata.json is written when all files are there."""
    case = one(name, Layout([2, 2], [0, -1]), (8, 6), Layout([4], [-1, -1]))
    case.damage = without("metadata.json")
    case.refusal = "iteration_00000001 has no 'metadata.json' with safetensors files: its save has not ended"
    return case


@fixed
def two_saves(name):
    """A file of another save, in which the tensor had another shape."""
    case = one(name, Layout([2], [0, -1]), (8, 6), Layout([4], [-1, -1]))
    case.damage = lambda folder: saves.save_file(
        os.path.join(folder, "CKP-model-0000001-0000002.safetensors"), [("w", numbered(None, (2, 6)))])
    case.refusal = "the metadata describes its slice as Float32[4, 6], the file has Float32[2, 6]"
    return case


@fixed
def metadata_of_the_model_alone(name):
    """2.0.0 writes metadata.json for the model, and anew when the optimizer is saved: here it broke off between the two."""
    case = one(name, Layout([2], [0, -1]), (8, 6), Layout([4], [-1, -1]))
    case.checkpoint.tensors.append(Tensor("adam_m.w", numbered(None, (8, 6)), Layout([2], [0, -1]), kind="opt"))

    def damage(folder):
        path = os.path.join(folder, "metadata.json")
        with open(path, encoding="utf-8") as file:
            metadata = json.load(file)
        for part in metadata.values():
            for key in [key for key in part if "adam_m.w" in key]:
                del part[key]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(metadata, file)
        case.checkpoint.tensors.pop()
        case.damage = None  # once
    case.damage = damage
    case.says = "metadata.json: 2 files of the save are not named in it, such as 'CKP-opt-0000000-0000002.safetensors'"
    return case


@fixed
def tensors_that_the_metadata_lacks(name):
    """Two in each file, the same ones."""
    case = one(name, Layout([2], [0, -1]), (8, 6), Layout([4], [-1, -1]))

    def damage(folder):
        whole = numbered(None, (8, 6)).data
        for rank in range(2):
            path = os.path.join(folder, f"CKP-model-000000{rank}-0000002.safetensors")
            saves.save_file(path, [("w", values.Value("Float32", whole[4 * rank:4 * rank + 4])),
                                   ("a", numbered(None, (2,))), ("b", numbered(None, (3,)))])
    case.damage = damage
    case.says = "2 tensors in it are not in the metadata, such as"
    return case


class Verified(Case):
    """What verify says of a folder in which every rank saved its slices: before DAMAGE nothing, after it these LINES."""

    def __init__(self, name, damage, lines):
        w = Tensor("w", numbered(None, (8, 6)), Layout([2, 2, 2], [0, -1]))
        whole = Tensor("whole", numbered(None, (3, 5), "Float16"), None)
        super().__init__(name, Checkpoint("2.1.0", 8, prefix="CKP", tensors=[w, whole]))
        self.hurt, self.lines = damage, lines

    def path(self, rank):
        return os.path.join(self.iteration, f"CKP-model-{rank:07d}-0000008.safetensors")

    def check_views(self, folder, source, _options):
        if problem := compared.reshard("verify", source):
            return problem
        told = self.hurt(self)
        ran = compared.run("verify", source)
        lines = [line.format(*told) for line in self.lines]
        if ran.returncode != 1 or any(line not in ran.stdout.splitlines() for line in lines):
            return f"verify exits with {ran.returncode} and not {lines}: {ran.stdout}"
        return None


def flip(path, name, byte):
    """Changes a byte of a tensor; returns where it is in the file."""
    with open(path, "r+b") as f:
        size = int.from_bytes(f.read(8), "little")
        at = 8 + size + json.loads(f.read(size))[name]["data_offsets"][0] + byte
        f.seek(at)
        old = f.read(1)[0]
        f.seek(at)
        f.write(bytes([old ^ 1]))
    return at


OTHER = "has other bytes than the ranks that hold the same, first at"


@fixed
def flipped_copies(name):
    """A bit in two of the four copies of a slice, and in one of a tensor that all ranks have."""
    def damage(case):
        return [value for rank, of, byte in ((2, "w", 4), (7, "w", 25), (5, "whole", 2))
                for value in (case.path(rank), flip(case.path(rank), of, byte))]
    return Verified(name, damage, [f"w: {OTHER} [0, 1], {{0}} offset {{1}}", f"w: {OTHER} [5, 0], {{2}} offset {{3}}",
                                   f"whole: {OTHER} [0, 1], {{4}} offset {{5}}"])


@fixed
def flipped_first_copy(name):
    """The one that is shown: all others differ from it."""
    def damage(case):
        at = flip(case.path(0), "w", 4)
        return [value for rank in (2, 4, 6) for value in (case.path(rank), at)]
    return Verified(name, damage, [f"w: {OTHER} [0, 1], {{{i}}} offset {{{i + 1}}}" for i in (0, 2, 4)])


def save_anew(path, named, **more):
    os.remove(path)
    saves.save_file(path, named, **more)


@fixed
def copy_of_another_shape(name):
    """A copy with more columns, and a file that lacks the tensor."""
    def damage(case):
        save_anew(case.path(3), [("w", numbered(None, (4, 7))), ("whole", case.whole()["whole"])])
        save_anew(case.path(4), [("whole", case.whole()["whole"])])
        with open(case.path(3), "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            begin = 8 + size + json.loads(f.read(size))["w"]["data_offsets"][0]
        return [case.path(3), begin, case.path(4)]
    return Verified(name, damage, [
        "w: has another dtype or shape: a copy of its slice is Float32 [4, 7], not Float32 [4, 6], first at [4, 0], "
        "{0} offset {1}",
        "w: has another dtype or shape: there is no copy of its slice, first at [0, 0], {2} offset 0"])


@fixed
def copies_that_are_no_files(name):
    """One missing, one cut short: each is one finding, whatever it should hold."""
    def damage(case):
        os.remove(case.path(6))
        os.truncate(case.path(7), 40)
        return [case.path(6)]
    return Verified(name, damage, ["{0}: the metadata of the checkpoint names this file, but it is missing; "
                                   "try: copy it there, and mount again"])


@fixed
def first_copy_that_is_no_file(name):
    """The one that would be shown: the others are compared with each other, and it is named."""
    def damage(case):
        with open(case.path(0), "r+b") as f:
            header = int.from_bytes(f.read(8), "little")
            f.truncate(40)
        return [case.path(0), header, case.path(6), flip(case.path(6), "w", 4)]
    return Verified(name, damage, [
        "{0}: the file is truncated in its header: it has 40 bytes, the header {1}; try: compare the file with its "
        "original, or save it again", f"w: {OTHER} [0, 1], {{2}} offset {{3}}"])


class Checked(Verified):
    """crc_num in each file: of one that a view reads, and of one that has nothing but copies."""

    def check_views(self, folder, source, _options):
        self.hurt(self)
        options = ("-o", "view=huggingface,check=crc")
        done = compared.run("export", source, folder + "/good", *options)
        if done.returncode or "has no checksum" in done.stdout:
            return f"export exits with {done.returncode}: {done.stdout}"
        for rank, command in ((5, ("verify", source, "-o", "check=crc")), (0, ("export", source, folder + "/bad", *options))):
            flip(self.path(rank), "whole", 2)
            done = compared.run(*command)
            if done.returncode != 1 or f"{self.path(rank)}: {self.lines[0]}" not in done.stdout:
                return f"{command[0]} exits with {done.returncode}: {done.stdout}"
        return None


@fixed
def checked(name):
    """Files that MindSpore saves with crc_check=True, which it cannot do with bfloat16."""
    def save_again(case):
        for rank in range(8):
            save_anew(case.path(rank), [(t.name, case.checkpoint.slice(t, rank)) for t in case.checkpoint.tensors], crc=True)
    return Checked(name, save_again, ["the file is damaged: it says that its crc_num is"])
