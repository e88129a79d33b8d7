# SPDX-License-Identifier: Apache-2.0
"""The family "hyper": folders of HyperParallel's distributed checkpoint, of both of its generations, with and without
collectives, and what must be seen through views of them. Where HyperParallel is there, its loader reads the same folder.
"""
import errno
import os
import re
import shutil
import subprocess

import torch

import dcp_cases
import hyper_program as program
from dcp_cases import check_export, check_part, copies_differ, differ, export, numbered, run, verify
from dcp_program import Boxes, PerRank, Plain, Sharded, edit, remove
from hyper_program import NEW, OLD, Options

FIXED = {}
SAVED = {getattr(torch, name) for name in dcp_cases.DTYPES if not re.fullmatch("uint(16|32|64)|complex.*", name)}


def fixed(function):
    FIXED["hyper-" + function.__name__.replace("_", "-")] = function
    return function


class Case(dcp_cases.Case):
    def __init__(self, name, world, items, **options):
        super().__init__(name, world, items, **options)
        self.options = Options(**options)

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        program.save(source, self.world, self.items, self.options, self.name)
        return source, {}

    def check_oracle(self, folder):
        """What HyperParallel reads, where it is there. Without collectives it has no file for another number of ranks."""
        if not program.SOURCE or not self.options.collectives:
            return None
        have = program.load_by_program(os.path.join(folder, "checkpoint"), self.items)
        for path, value in self.items.items():
            if hasattr(value, "full"):
                if said := differ("HyperParallel", path, have[path], value.full):
                    return said
            elif have[path] != value:
                return f"HyperParallel: {path} is {have[path]!r}"
        return None

    def check_views(self, folder, source, _options):
        for name, options in (("pt", "format=pt"), ("hf", "view=huggingface"), ("dcp", "format=pt,check=crc")):
            said = check_export(source, os.path.join(folder, name), options, self.whole())
            if said:
                return said
        return (self.check_part(folder, source) or copies_differ(source, "") or self.check_dcp(folder, source) or
                self.check_again(folder, source))

    def check_part(self, folder, source):
        if self.options.generation == OLD or not any(hasattr(v, "full") for v in self.items.values()):
            return None
        model = {path[1:]: v for path, v in self.items.items() if path[0] == "model" and hasattr(v, "full")}
        return check_part(folder, source, "model", model) if model else None

    def check_dcp(self, folder, source):
        """As a checkpoint of torch."""
        out = os.path.join(folder, "torch")
        if said := export(source, out, f"view=dcp,dst_ranks={1 + len(self.items) % 3}"):
            return said
        tensors = {path: v for path, v in self.items.items() if hasattr(v, "full")}
        have = dcp_cases.program.load(out, tensors)
        return next((said for path, v in tensors.items() if (said := differ("view=dcp", path, have[path], v.full))), None)


    def check_again(self, folder, source):
        """As HyperParallel's own, for other ranks; objects are passed on as they are."""
        if not all(dcp_cases.safetensors_can(v) for v in self.items.values()):
            return None
        rules = os.path.join(folder, "rules.txt")
        with open(rules, "w", encoding="utf-8") as file:
            file.write("axes a=2 b=2\n" + "".join(f"{rule_for(n, t.shape)}\n" for n, t in self.whole().items()) + "*: whole\n")
        for number, options in enumerate((f"dst_ranks={1 + len(self.items) % 3}", f"dst_ranks=4,dst_rules={rules}")):
            out, options = os.path.join(folder, f"again{number}"), "view=hyper_parallel," + options
            said = export(source, out, options) or verify(out, "--against", source, "-o", options) or self.check_files(out)
            said = said or (self.check_processes(out) if program.SOURCE else None)
            said = said or check_export(out, os.path.join(folder, f"back{number}"), "format=pt", self.whole())
            if said:
                return f"{options}: {said}"
        return None

    def check_files(self, out):
        """What is in the files, by the metadata."""
        have = program.read(out)
        for path, value in self.items.items():
            name = ".".join(map(str, path))
            if hasattr(value, "full"):
                if said := differ("view=hyper_parallel", name, have[name], value.full):
                    return said
            elif have[name] != value:
                return f"view=hyper_parallel: {name} is {have[name]!r}"
        return None if len(have) == len(self.items) else f"view=hyper_parallel has {sorted(have)}"

    def check_processes(self, out):
        """What HyperParallel's loader reads of it, as one, two and four ranks."""
        for world in (1, 2, 4):
            have = program.load_by_program(out, self.items, world)
            for path, value in self.items.items():
                if hasattr(value, "full") and (said := differ(f"{world} ranks", path, have[path], value.full)):
                    return said
        return None


def rule_for(name, shape):
    """A rule that cuts a tensor of that shape over two axes of devices as far as it can be; of a name without odd characters."""
    pattern = re.sub(r"[^\w.]", "?", name)
    even = [axis for axis, n in enumerate(shape) if n > 0 and n % 2 == 0]
    over = {axis: ["a", "b"][i] for i, axis in enumerate(even[:2])}
    if len(even) == 1 and shape[even[0]] % 4 == 0:
        over[even[0]] = "b a"
    return f"{pattern}: " + (", ".join(f"axis {axis} over {by}" for axis, by in over.items()) or "whole")


class Maker(dcp_cases.Maker):
    def make(self, name):
        rng = self.rng
        options = Options(generation=rng.choice([OLD, NEW, NEW]), collectives=rng.random() < 0.7,
                          redundant=rng.random() < 0.3, mindspore=rng.random() < 0.3, sizes=rng.random() < 0.5)
        options.zips = options.generation == OLD and not options.mindspore
        items = {}
        for i in range(rng.randint(1, 8)):
            value = self.value()
            if options.generation == OLD and isinstance(value, Boxes):
                value = Plain(value.full)
            if options.zips or value.full.dtype in SAVED:
                items[self.path(i)] = value
        items = items or {("model", "w"): self.sharded(numbered(12, 6))}
        for i in range(rng.randint(0, 3)):
            items[("extra", f"object{i}")] = rng.choice(dcp_cases.OBJECTS)
        return Case(name, self.world, items, **vars(options))


def prepare():
    dcp_cases.prepare()


def make(seed, number):
    return Maker(seed, number).make(f"hyper-{seed}-{number}")


def documented():
    return {("model", "w"): Sharded(numbered(8, 6), (2, 2), [0, 1]), ("model", "b"): Sharded(numbered(4), (2, 2), [0, None]),
            ("model", "whole"): Plain(numbered(7, dtype=torch.int64)),
            ("model", "half"): Sharded(numbered(6, 4, dtype=torch.bfloat16), (2, 2), [None, 1]),
            ("model", "scalar"): Plain(torch.tensor(3.5)), ("step",): 7, ("groups",): [{"lr": 0.1}]}


@fixed
def later(name):
    """Four ranks, a mesh of 2 x 2: both axes cut, one replicated, whole tensors, a scalar, objects."""
    return Case(name, 4, documented())


@fixed
def earlier(name):
    """The same before April 2026 with PyTorch: files of torch.save, whose tensors are parts of larger ones."""
    return Case(name, 4, documented(), generation=OLD, zips=True)


@fixed
def earlier_of_mindspore(name):
    """The same with MindSpore: its names of element types, and safetensors."""
    return Case(name, 4, documented(), generation=OLD, mindspore=True, sizes=False)


@fixed
def later_without_collectives(name):
    """Metadata of each rank."""
    return Case(name, 4, documented(), collectives=False)


@fixed
def earlier_without_collectives(name):
    return Case(name, 4, documented(), generation=OLD, zips=True, collectives=False)


@fixed
def copies(name):
    """Each rank saves all that it has: the metadata has equal boxes several times."""
    return Case(name, 4, documented(), redundant=True)


@fixed
def chunks_of_one_rank(name):
    """Several boxes of a tensor in one file, under numbered names, of which another tensor has one."""
    boxes = [((0, 0), (2, 3)), ((0, 3), (3, 2)), ((2, 0), (3, 2)), ((3, 2), (2, 3)), ((2, 2), (1, 1))]
    return Case(name, 2, {("w",): Boxes(numbered(5, 5), boxes), ("w.__dcp_chunk_0",): Plain(numbered(3)),
                          ("model", "w"): Plain(numbered(2) + 9)})


class Damaged(Case):
    """What is said of a folder after DAMAGE, by an export and by verify."""

    def __init__(self, name, world, items, damage, said, exports=False, **options):
        super().__init__(name, world, items, **options)
        self.damage, self.said, self.exports = damage, said, exports

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        self.damage(source)
        out = os.path.join(folder, "out")
        ran = run("reshard", "export", source, out, "-o", "view=huggingface")
        if (ran.returncode == 0) != self.exports or self.said not in ran.stderr:
            return f"{self.said!r} is not in: exit {ran.returncode}, {ran.stderr}"
        if self.exports:
            have = dcp_cases.read_all(out)
            return next((said for n, t in self.whole().items() if (said := differ("damaged", n, have[n], t))), None)
        ran = run("reshard", "verify", source)
        return None if ran.returncode else f"verify: {ran.stdout}"


def rewrite(name, change):
    def damage(folder):
        path = os.path.join(folder, name)
        state = program.load_file(path)
        change(state)
        program.save_file(state, path)
    return damage


def rows():
    return {("w",): Sharded(numbered(8, 6), (4,), [0]), ("b",): Plain(numbered(5))}


@fixed
def metadata_missing_at_the_end(name):
    """Nothing says how many ranks there are, so the boxes must tell."""
    return Damaged(name, 4, rows(), remove("3.metadata", "_rank3_.safetensors"),
                   "0.metadata: parameter 'w': the metadata has no chunk for [6:8, 0:6]; try: the metadata of all ranks; that "
                   "of 3 is here, '0.metadata' to '2.metadata'", collectives=False)


@fixed
def metadata_missing_between(name):
    return Damaged(name, 4, rows(), remove("1.metadata", "_rank1_.safetensors"),
                   "'w': is incomplete: '1.metadata' is missing, by the numbers", collectives=False)


@fixed
def metadata_missing_beside_tensors(name):
    return Damaged(name, 4, rows(), remove("3.metadata", "1.metadata"), "'w': is incomplete: '1.metadata' and 1 more are missing",
                   collectives=False)


@fixed
def metadata_of_the_whole_missing(name):
    return Damaged(name, 4, rows(), remove(".metadata"), "the folder has files of HyperParallel, '_rankN_.safetensors', and no "
                   "metadata; try: a save that has ended")


@fixed
def tensors_missing(name):
    return Damaged(name, 4, rows(), remove("_rank2_.safetensors"),
                   "_rank2_.safetensors: the metadata of the checkpoint names this file, but it is missing")


@fixed
def key_missing(name):
    return Damaged(name, 4, rows(), rewrite("_rank2_.safetensors", lambda state: state.pop("w")),
                   "_rank2_.safetensors: parameter 'w': the metadata stores a slice of it in this file, which has none",
                   redundant=True)


@fixed
def another_type(name):
    return Damaged(name, 4, rows(), rewrite("_rank2_.safetensors", lambda state: state.update(w=state["w"].to(torch.float16))),
                   "the metadata describes its slice as Float32[2, 6], the file has Float16[2, 6]")


@fixed
def another_shape(name):
    return Damaged(name, 4, rows(), rewrite("_rank2_.safetensors", lambda state: state.update(w=state["w"].reshape(6, 2))),
                   "the metadata describes its slice as Float32[2, 6], the file has Float32[6, 2]")


@fixed
def a_torn_file_with_copies(name):
    """Another rank's copy is read in its place."""
    def tear(folder):
        with open(os.path.join(folder, "_rank0_.safetensors"), "r+b") as file:
            file.truncate(100)
    return Damaged(name, 4, {("w",): Plain(numbered(6, 4)), ("b",): Plain(numbered(5))}, tear,
                   "_rank0_.safetensors: slices come from copies in other files, such as '_rank1_.safetensors'", exports=True,
                   redundant=True)


@fixed
def sizes_that_differ(name):
    """Metadata of two saves, by the size of a tensor."""
    def change(metadata):
        metadata.state_dict_metadata["w"].size = (9, 6)
    return Damaged(name, 4, rows(), edit("2.metadata", change),
                   "2.metadata: parameter 'w': its type or its size differs between the files", collectives=False)


@fixed
def boxes_that_overlap(name):
    def change(metadata):
        del metadata.state_dict_metadata["w"].chunks[:]
        for index, place in list(metadata.storage_data.items()):
            if index.fqn == "w":
                del metadata.storage_data[index]
                metadata.storage_data[type(index)("w", (3, 0), 0)] = place
        metadata.state_dict_metadata["w"].chunks.append(program.classes(NEW).ChunkStorageMetadata((3, 0), (2, 6)))
    return Damaged(name, 4, rows(), edit("2.metadata", change), "two chunks of the metadata overlap in [3:4, 0:6]",
                   collectives=False)


@fixed
def another_version(name):
    def change(metadata):
        metadata.version = "3.0"
    return Damaged(name, 4, rows(), edit(".metadata", change), "the metadata is of version 3.0; version 1.0 or 2.0 is read")


@fixed
def version_2(name):
    """Nothing else changes."""
    class Migrated(Case):
        def write(self, folder):
            source, options = super().write(folder)

            def change(metadata):
                metadata.version = "2.0"
            edit(".metadata", change)(source)
            return source, options
    return Migrated(name, 4, documented())


@fixed
def unknown_type(name):
    """It is named, and names= leaves it out."""
    def change(metadata):
        properties = program.classes(NEW).TensorProperties(dtype="unknown")
        known = metadata.state_dict_metadata["w"]
        metadata.state_dict_metadata["w"] = type(known)(properties, known.size, known.chunks)
    return Damaged(name, 4, rows(), edit(".metadata", change), "parameter 'w': is not read: its element type is not one")


@fixed
def metadata_of_torch(name):
    """Another program's metadata in the folder."""
    def damage(folder):
        dcp_cases.program.save(folder + "/../torch", 2, {("w",): Sharded(numbered(8, 6), (2,), [0])})
        shutil.copy(folder + "/../torch/.metadata", folder)
    return Damaged(name, 4, rows(), damage, ".metadata: it is metadata of torch.distributed.checkpoint, and the names of the files")


@fixed
def beside_torch(name):
    """Its metadata in a folder of torch."""
    def damage(folder):
        dcp_cases.program.save(folder + "/../torch", 2, {("w",): Sharded(numbered(8, 6), (2,), [0])})
        shutil.copy(folder + "/../torch/__0_0.distcp", folder)
    return Damaged(name, 4, rows(), damage, ".metadata: it is metadata of HyperParallel, and the names of the files")


class Changed(Case):
    """A source that changes under a mount, and one with a file that is newer than its metadata."""

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        path, mount = os.path.join(source, "_rank2_.safetensors"), os.path.join(folder, "mount")
        if not os.environ.get("RFS_NO_FUSE"):
            os.makedirs(mount)
            ran = run("reshardfs", source, mount, "-o", "view=huggingface")
            if ran.returncode:
                return f"reshardfs: {ran.stderr}"
            try:
                os.stat(os.path.join(mount, "model.safetensors"))
                self.change(path)
                with open(os.path.join(mount, "model.safetensors"), "rb") as file:
                    file.read()
                return "the changed source is read"
            except OSError as error:
                if error.errno != errno.ESTALE:
                    return f"the changed source: {error}"
            finally:
                subprocess.run(["fusermount3", "-uz", mount], check=False)
        else:
            self.change(path)
        newer = "newer than '.metadata' of "
        said = run("reshard", "export", source, os.path.join(folder, "hf"), "-o", "view=huggingface")
        if said.returncode or newer not in said.stderr:
            return f"a newer file: {said.stderr}"
        said = export(source, os.path.join(folder, "strict"), "view=huggingface,strict")
        return None if said and newer in said else f"strict: {said}"

    def change(self, path):
        state = program.load_file(path)
        state["w"] = state["w"] + 1
        program.save_file(state, path)
        os.utime(path, (2e9, 2e9))


@fixed
def changed_source(name):
    return Changed(name, 4, {("w",): Sharded(numbered(8, 6), (4,), [0])})


class Copies(Case):
    """Ranks differ in what several have: DIFFER names it. Without collectives nothing proves that they are the same."""

    def __init__(self, name, world, items, differ, **options):
        super().__init__(name, world, items, **options)
        self.differ = differ

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        ran = run("reshard", "verify", source)
        found = {line.split(":")[0] for line in ran.stdout.splitlines() if "has other bytes than the ranks" in line}
        if found != set(self.differ) or ran.returncode != 1:
            return f"verify exits with {ran.returncode}: {ran.stdout}"
        said = export(source, os.path.join(folder, "strict"), "view=huggingface,strict") or ""
        if not any(f"parameter '{n}': has other bytes than its copy in" in said for n in self.differ):
            return f"strict: {said}"
        ran = run("reshard", "export", source, os.path.join(folder, "hf"), "-o", "view=huggingface")
        lacking = [n for n in self.differ if f"{n} [" not in ran.stderr or "_rank3_.safetensors has other bytes" not in ran.stderr]
        said = f"not said of {lacking}: {ran.stderr}" if lacking or ran.returncode else None
        have = dcp_cases.read_all(os.path.join(folder, "hf"))
        return said or next((said for n, t in self.whole().items() if (said := differ("first", n, have[n], t))), None)


@fixed
def ranks_of_their_own(name):
    """Without collectives, values of each rank under one name; rank 0 has what is shown."""
    return Copies(name, 4, {("expert",): PerRank([numbered(4, 3) + 100 * r for r in range(4)]), ("same",): Plain(numbered(7))},
                  ["expert"], collectives=False)


@fixed
def copies_that_differ(name):
    """With collectives the metadata says that they are copies."""
    return Copies(name, 4, {("expert",): PerRank([numbered(4, 3) + 100 * r for r in range(4)]), ("same",): Plain(numbered(7))},
                  ["expert"], redundant=True)


class Steps(Case):
    """A folder of saves: the tracker, step= and step=all choose."""

    def write(self, folder):
        root = os.path.join(folder, "root")
        for step in (10, 20, 100):
            items = {("w",): Sharded(numbered(8, 6) + step, (4,), [0])}
            program.save(os.path.join(root, f"global_step_{step}"), 4, items, self.options, self.name)
        os.makedirs(os.path.join(root, "global_step_20", "extra_state"))
        with open(os.path.join(root, "latest_checkpoint_iteration.txt"), "w", encoding="ascii") as file:
            file.write("20")
        return root, {}

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        for options, step in (("view=huggingface", 20), ("view=huggingface,step=100", 100), ("view=huggingface,step=10", 10)):
            out = os.path.join(folder, f"step{step}")
            if said := check_export(source, out, options, {"w": numbered(8, 6) + step}):
                return said
        said = export(source, os.path.join(folder, "none"), "view=huggingface,step=30") or ""
        if "no iteration 30 in it; there are 3, and the last is global_step_100" not in said:
            return f"step=30: {said}"
        os.remove(os.path.join(source, "global_step_20", ".metadata"))
        said = export(source, os.path.join(folder, "torn"), "view=huggingface") or ""
        return None if "global_step_20 has no '.metadata' of HyperParallel: its save has not ended; try: step=10" in said else said


@fixed
def steps(name):
    return Steps(name, 4, {})
