# SPDX-License-Identifier: Apache-2.0
"""The family "hyperprogram": folders that HyperParallel itself has written, rank after rank in one process, or in a
process for each rank.
"""
import os

import hyper_cases
import hyper_program as program
from dcp_cases import differ, export, numbered
from dcp_program import Plain, Sharded
from hyper_cases import Case

FIXED = {}


def fixed(function):
    FIXED["hyperprogram-" + function.__name__.replace("_", "-")] = function
    return function


class Program(Case):
    """Its planners and its writer."""

    def __init__(self, name, world, items, **given):
        super().__init__(name, world, items, generation=program.OLD, zips=True, redundant=given.get("redundant", False))
        self.given = given

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        program.save_by_program(source, self.world, self.items, **self.given)
        return source, {}


class Processes(Case):
    """Its save() in a process for each rank, and its load() of a view of it in LOADS numbers of processes."""

    def __init__(self, name, world, items, loads, **given):
        super().__init__(name, world, items, generation=program.OLD, zips=True,
                         collectives=given.get("use_collectives", True))
        self.loads, self.given = loads, given

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        program.in_processes("save", source, self.world, self.items, folder, **self.given)
        return source, {}

    def check_views(self, folder, source, options):
        """And what other numbers of processes load of a view of it."""
        said, out = super().check_views(folder, source, options), os.path.join(folder, "loaded")
        said = said or export(source, out, "view=hyper_parallel,dst_ranks=3")
        return said or self.check_loads(out, folder)

    def check_loads(self, source, folder):
        for world in self.loads:
            have = program.in_processes("load", source, world, self.items, folder)
            for path, value in self.items.items():
                if hasattr(value, "full") and (said := differ(f"{world} processes", path, have[path], value.full)):
                    return said
        return None


class Maker(hyper_cases.Maker):
    def even(self, full):
        """Cut evenly, each axis once, as it does."""
        cuts = []
        for n in self.mesh:
            axes = [a for a in range(full.dim()) if a not in cuts and full.shape[a] > 0 and full.shape[a] % n == 0]
            cuts.append(self.rng.choice(axes + [None]))
        return Sharded(full, self.mesh, cuts)

    def make(self, name):
        rng = self.rng
        items = {}
        for i in range(rng.randint(1, 8)):
            full = self.full([n * rng.choice([1, 2, 4]) for n in self.shape()], getattr(program.torch, rng.choice(hyper_cases.dcp_cases.DTYPES)))
            items[("model", f"w{i}")] = self.even(full) if full.dim() and rng.random() < 0.8 else Plain(full)
        for i in range(rng.randint(0, 2)):
            items[("extra", f"object{i}")] = rng.choice(hyper_cases.dcp_cases.OBJECTS[:-1])  # it cannot load bytes
        return Program(name, self.world, items, redundant=rng.random() < 0.3, minimum=rng.random() < 0.5)


def prepare():
    hyper_cases.prepare()


def make(seed, number):
    return Maker(seed, number).make(f"hyperprogram-{seed}-{number}")


def documented():
    return {("model", "w"): Sharded(numbered(8, 6), (2, 2), [0, 1]), ("model", "b"): Sharded(numbered(4), (2, 2), [0, None]),
            ("model", "whole"): Plain(numbered(7)), ("scalar",): Plain(program.torch.tensor(3.5)), ("step",): 7}


@fixed
def processes(name):
    """Four processes save; one, two and four load a view of it."""
    return Processes(name, 4, documented(), (1, 2, 4))


@fixed
def processes_without_collectives(name):
    """Each of four processes writes its own metadata."""
    return Processes(name, 4, documented(), (), use_collectives=False)


@fixed
def processes_with_copies(name):
    return Processes(name, 4, documented(), (), remove_redundancy=False)
