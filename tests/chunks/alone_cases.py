# SPDX-License-Identifier: Apache-2.0
"""More cases of the family "dcp": saves without collectives, in which each rank has metadata of its own."""
import os
import shutil

import dcp_program as program
import torch
from dcp_cases import ONE, Alone, Checked, differ, export, fixed_since_2_9, negative, numbered, permuted, read_all, run
from dcp_program import PerRank, Plain, Sharded, edit, remove


class AtOnce(Alone):
    """By a process for each rank."""

    save = staticmethod(program.save_alone_at_once)


def several():
    """Both axes cut, one replicated, uneven, whole, a scalar, an empty one, objects."""
    return {("model", "w"): Sharded(numbered(10, 6), (2, 2), [0, 1]), ("model", "b"): Sharded(numbered(5), (2, 2), [0, None]),
            ("model", "odd"): Sharded(numbered(5, 3, dtype=torch.bfloat16), (4,), [0]),
            ("model", "copied"): Sharded(numbered(3, 2), (2, 2), [None, None]),
            ("model", "whole"): Plain(numbered(7, dtype=torch.int64)), ("model", "scalar"): Plain(torch.tensor(3.5)),
            ("model", "empty"): Plain(torch.zeros(0, 4)), ("step",): 7, ("optim", "groups"): [{"lr": 0.1}]}


@fixed_since_2_9
def alone(name):
    return AtOnce(name, 4, several())


@fixed_since_2_9
def alone_strides(name):
    """What lies in another order than row by row, and has copies."""
    return Alone(name, 4, permuted())


@fixed_since_2_9
def alone_of_1(name):
    """One metadata describes all."""
    return Alone(name, 1, {("w",): Sharded(numbered(8, 6), (1,), [0]), ("step",): 3})


@fixed_since_2_9
def alone_files_each(name):
    """An item in each file, by several threads."""
    return Alone(name, 4, several(), single_file_per_rank=False, thread_count=3)


@fixed_since_2_9
def alone_checked(name):
    """The records of each item."""
    return Checked(name, ONE, program.save_alone, "archive/data/0': the archive's entry is damaged: its CRC-32 is")


def rows():
    return {("w",): Sharded(numbered(8, 6), (4,), [0]), ("b",): Plain(numbered(5))}


class Damaged(Alone):
    """What is said of a folder after DAMAGE, by an export and by verify; with EXPORTS it is shown all the same."""

    def __init__(self, name, damage, said, exports=False, items=None):
        super().__init__(name, 4, items or rows())
        self.damage, self.said, self.exports = damage, said, exports

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        self.damage(source)
        for view in ("huggingface", "dcp"):
            out = os.path.join(folder, view)
            ran = run("reshard", "export", source, out, "-o", f"view={view}")
            if (ran.returncode == 0) != self.exports or self.said not in ran.stderr:
                return f"{self.said!r} is not in: exit {ran.returncode}, {ran.stderr}"
        if not self.exports:
            ran = run("reshard", "verify", source)
            return None if ran.returncode else f"verify: {ran.stdout}"
        said = export(source, os.path.join(folder, "strict"), "view=huggingface,strict") or ""
        if self.said not in said:
            return f"strict: {said!r}"
        have = read_all(os.path.join(folder, "huggingface"))
        return next((said for n, t in self.whole().items() if (said := differ("damaged", n, have[n], t))), None)


@fixed_since_2_9
def alone_missing_at_the_end(name):
    """Nothing says how many ranks there were, so the boxes must tell."""
    return Damaged(name, remove("__3.metadata", "__3_0.distcp"),
                   "__0.metadata: parameter 'w': the metadata has no chunk for [6:8, 0:6]; try: the metadata of all ranks; that "
                   "of 3 is here, '__0.metadata' to '__2.metadata'")


@fixed_since_2_9
def alone_missing_between(name):
    return Damaged(name, remove("__1.metadata", "__1_0.distcp"), "'w': is incomplete: '__1.metadata' is missing, by the numbers")


@fixed_since_2_9
def alone_missing_beside_tensors(name):
    """A rank whose save did not end."""
    return Damaged(name, remove("__0.metadata", "__3.metadata"), "'w': is incomplete: '__0.metadata' and 1 more are missing")


@fixed_since_2_9
def alone_missing_without_a_gap(name):
    """The rank may have had tensors of its own."""
    return Damaged(name, remove("__1.metadata", "__1_0.distcp"), "'__1.metadata' is missing, by the numbers",
                   items={("b",): Plain(numbered(5)), ("c",): Plain(numbered(2, 2))})


@fixed_since_2_9
def alone_tensors_missing(name):
    return Damaged(name, remove("__2_0.distcp"),
                   "__2_0.distcp: the metadata of the checkpoint names this file, but it is missing")


@fixed_since_2_9
def alone_sizes_that_differ(name):
    def change(metadata):
        metadata.state_dict_metadata["w"].size = torch.Size([9, 6])
    return Damaged(name, edit("__2.metadata", change),
                   "__2.metadata: parameter 'w': its type or its size differs between the files")


@fixed_since_2_9
def alone_values_and_tensors(name):
    """A name that is a tensor on one rank and a value on another."""
    def change(metadata):
        metadata.state_dict_metadata["w"] = metadata.state_dict_metadata["step"]
    return Damaged(name, edit("__2.metadata", change), "__2.metadata: parameter 'w': the metadata is damaged: it is a tensor in "
                   "some files only", items={**rows(), ("step",): 3})


@fixed_since_2_9
def alone_of_two_saves(name):
    """Two ranks save into a folder of four."""
    def damage(folder):
        items = {("w",): Sharded(-numbered(8, 6), (2,), [0])}
        program.save_alone(folder, 2, items)
    return Damaged(name, damage, "parameter 'w': two chunks of different shapes begin at the same element")


@fixed_since_2_9
def alone_broken_off(name):
    """A later save did not end."""
    def damage(folder):
        open(os.path.join(folder, "__2.metadata.tmp"), "wb").close()
    return Damaged(name, damage, "'__N.metadata.tmp' is beside the metadata of single ranks: a later save into the folder did "
                   "not end, and may have replaced files", exports=True)


@fixed_since_2_9
def alone_written_again(name):
    """A later save ended before any rank had its metadata: that of the rank tells, not the first one's."""
    def damage(folder):
        for rank in range(4):
            os.utime(os.path.join(folder, f"__{rank}.metadata"), (1e9 + rank, 1e9 + rank))
            os.utime(os.path.join(folder, f"__{rank}_0.distcp"), (1e9 + rank, 1e9 + rank))
        os.utime(os.path.join(folder, "__1_0.distcp"), (1e9 + 1.5, 1e9 + 1.5))
    return Damaged(name, damage, "__1_0.distcp: the file is of 2001-09-09 01:46:41.500 UTC, newer than '__1.metadata' of "
                   "2001-09-09 01:46:41.000 UTC, which is written last", exports=True)


class Whole(Alone):
    """Metadata of all ranks is there as well: torch reads that, and so does the mount."""

    def write(self, folder):
        source, options = super().write(folder)
        program.save(source, self.world, negative(self.items))
        return source, options

    def check_oracle(self, folder):
        have = program.load(os.path.join(folder, "checkpoint"), self.items)
        return next((said for path, v in self.items.items() if (said := differ("torch", path, have[path], -v.full))), None)

    def check_views(self, folder, source, _options):
        ran = run("reshard", "export", source, os.path.join(folder, "hf"), "-o", "view=huggingface")
        if ran.returncode or "metadata of single ranks is beside '.metadata'" not in ran.stderr:
            return f"exit {ran.returncode}: {ran.stderr}"
        have = read_all(os.path.join(folder, "hf"))
        return next((said for n, t in self.whole().items() if (said := differ("whole", n, have[n], -t))), None)


@fixed_since_2_9
def alone_beside_metadata_of_all(name):
    return Whole(name, 4, {("w",): Sharded(numbered(8, 6) + 1, (4,), [0])})


class Copies(Alone):
    """Ranks differ in what all have: the first one's values are shown, and it is said."""

    def check_views(self, folder, source, _options):
        ran = run("reshard", "verify", source)
        if ran.returncode != 1 or "expert" not in ran.stdout or "same" in ran.stdout.split("expert")[0]:
            return f"verify exits with {ran.returncode}: {ran.stdout}"
        said = export(source, os.path.join(folder, "strict"), "view=huggingface,strict") or ""
        if "parameter 'expert': has other bytes than its copy in" not in said:
            return f"strict: {said}"
        ran = run("reshard", "export", source, os.path.join(folder, "hf"), "-o", "view=huggingface")
        if ran.returncode or "expert [" not in ran.stderr or "__3_0.distcp has other bytes" not in ran.stderr:
            return f"exit {ran.returncode}: {ran.stderr}"
        have = read_all(os.path.join(folder, "hf"))
        return next((said for n, t in self.whole().items() if (said := differ("first", n, have[n], t))), None)


@fixed_since_2_9
def alone_ranks_of_their_own(name):
    return Copies(name, 4, {("expert",): PerRank([numbered(4, 3) + 100 * r for r in range(4)]), ("same",): Plain(numbered(7))})


class Objects(Alone):
    """Values of each rank that are no tensors: the first one's are shown."""

    def write(self, folder):
        source, options = super().write(folder)
        last = os.path.join(folder, "last")
        program.save_alone(last, self.world, {**self.items, ("step",): 8})
        for name in ("__3.metadata", "__3_0.distcp"):
            shutil.copy(os.path.join(last, name), source)
        return source, options

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        said = export(source, os.path.join(folder, "pt"), "format=pt")
        return said or (None if read_all(os.path.join(folder, "pt"))["step"] == 7 else "it is not the first rank's")


@fixed_since_2_9
def alone_objects(name):
    return Objects(name, 4, {**rows(), ("step",): 7})
