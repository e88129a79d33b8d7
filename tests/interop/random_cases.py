# SPDX-License-Identifier: Apache-2.0
"""Random cases: device matrices of mixed factors, maps, nesting, optimizer shards, stages, M to N.

A case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import math
import random

import numpy as np

from build import Case, full_tensors, source_files
from layouts import Item, Layout, Strategy
from model import by_stage
from values import random_value

LARGE = 60000  # elements of the largest tensors
COUNTS = [1, 1, 2, 2, 3, 4, 4, 6, 8, 8, 8, 9, 12, 16]
DTYPES = ["Float32"] * 4 + ["Float16", "BFloat16", "BFloat16", "Int8", "Bool", "Int64", "UInt16",
                            "Float64"]


def device_matrix(rng, devices):
    factors = []
    for prime in (2, 3, 5, 7):
        while devices % prime == 0:
            factors.append(prime)
            devices //= prime
    assert devices == 1
    rng.shuffle(factors)
    dev = []
    for f in factors:
        if dev and rng.random() < 0.35 and dev[-1] * f <= 12:
            dev[-1] *= f
        else:
            dev.append(f)
    if rng.random() < 0.15 or not dev:
        dev.insert(rng.randrange(len(dev) + 1), 1)
    return dev


def random_layout(rng, devices, ndim):
    dev = device_matrix(rng, devices)
    nested = rng.random() < 0.2
    axes = [[] for _ in range(ndim)]
    for d in rng.sample(range(len(dev)), len(dev)):
        if ndim == 0 or rng.random() < 0.4 or (layout_extent(dev, d) == 1 and rng.random() < 0.8):
            continue
        axis = rng.randrange(ndim)
        if nested or not axes[axis]:
            axes[axis].append(d)
    layout = Layout(dev, axes, 0, nested and any(axes))
    free = layout.free_axes()
    if ndim and free and rng.random() < 0.4:
        layout.opt = random_shard(rng, [dev[k] for k in free])
    return layout


def layout_extent(dev, d):
    return dev[len(dev) - 1 - d]


def random_shard(rng, sizes):
    """-1, or a size that takes some axes from the right, the last of them perhaps in part."""
    if rng.random() < 0.5:
        return -1
    size = 1
    for extent in reversed(sizes):
        parts = [p for p in range(2, extent + 1) if extent % p == 0]
        take = rng.choice(parts)
        size *= take
        if take < extent or rng.random() < 0.5:
            break
    return size


def pick_counts(rng):
    while True:
        a, b = rng.choice(COUNTS), rng.choice(COUNTS)
        if max(a, b) % min(a, b) == 0 or rng.random() < 0.15:
            return a, b


def pick_stages(rng, count):
    """One stage mostly; a few for parameters that stages share."""
    if count == 1 or rng.random() < 0.85:
        return [rng.randrange(count)]
    return sorted(rng.sample(range(count), rng.randrange(2, count + 1)))


def shape_for(rng, layouts, ndim, floor):
    """A shape that every layout divides, mostly small."""
    shape = []
    for axis in range(ndim):
        unit = math.lcm(*[x.pieces()[axis] for x in layouts]) if layouts else 1
        shape.append(unit * rng.choice([floor, floor, 2, 3]))
    room = LARGE // math.prod(shape)
    if ndim and room > 1 and rng.random() < 0.15:  # some fill more than one read
        shape[rng.randrange(ndim)] *= rng.randint(2, room)
    return tuple(shape)


class Maker:
    def __init__(self, seed, number):
        self.rng = random.Random(f"{seed}/{number}")
        self.data = np.random.default_rng(self.rng.getrandbits(64))
        self.name = f"random-{seed}-{number}"
        rng = self.rng
        self.counts = pick_counts(rng)
        self.stages = [1 if rng.random() < 0.6 or n > 8 else rng.choice([2, 2, 3])
                       for n in self.counts]
        self.sides = rng.choices(["both", "src", "dst"], [88, 6, 6])[0]

    def case(self):
        rng = self.rng
        items = ([], [])
        shapes, dtypes, extra = {}, {}, []
        covered = [set(), set()]
        for number in range(rng.randrange(3, 7)):
            self.parameter(f"layer{number}.w", items, shapes, dtypes, extra, covered)
        for side in (0, 1):
            self.cover(side, items, shapes, dtypes, covered)
        strategies = []
        for side in (0, 1):
            if self.sides in ("both", "src" if side == 0 else "dst"):
                strategies.append(self.strategy(items[side]))
            else:
                strategies.append(None)
        src, dst = strategies
        fulls = full_tensors(self.data, shapes, dtypes)
        noise = rng.random() < 0.25
        files = source_files(self.data, src, fulls, self.extras(shapes, extra), noise, rng)
        part = by_stage(src, dst)
        if part:
            first = src.first_stage * src.devices
            files = {first + r: named for r, named in files.items()}
        crc = rng.random() < 0.1
        form = "safetensors" if rng.random() < 0.25 else "ckpt"
        if form == "safetensors":
            if part:
                files = {r - first: named for r, named in files.items()}
            if rng.random() < 0.75:  # MindSpore cannot read bfloat16 there
                for value in {id(v): v for named in [fulls.items(), *files.values()]
                              for _, v in named}.values():
                    value.dtype = "UInt16" if value.dtype == "BFloat16" else value.dtype
        return Case(self.name, src, dst, files, fulls=None if noise else fulls, noise=noise,
                    crc=crc and form == "ckpt", source_format=form)

    def parameter(self, name, items, shapes, dtypes, extra, covered):
        rng = self.rng
        ndim = rng.choice([0, 1, 1, 2, 2, 2, 3])
        where = rng.choices(["both", "src", "dst", "file"], [70, 12, 12, 6])[0]
        layouts = []
        for side in (0, 1):
            if where not in ("both", "src" if side == 0 else "dst"):
                continue
            stages = pick_stages(rng, self.stages[side])
            one = random_layout(rng, self.counts[side], ndim)
            for stage in stages:
                layout = one
                if len(stages) > 1 and rng.random() < 0.15:
                    layout = random_layout(rng, self.counts[side], ndim)
                layouts.append(layout)
                items[side].append(Item(name, layout, (), stage))
                covered[side].add(stage)
        shapes[name] = shape_for(rng, layouts, ndim, 2 if any(x.nested for x in layouts) else 1)
        dtypes[name] = rng.choice(DTYPES)
        for side in (0, 1):
            for item in items[side]:
                if item.name == name:
                    item.shape = shapes[name]
        if where in ("dst", "file"):
            extra.append(name)
            dtypes.pop(name)

    def cover(self, side, items, shapes, dtypes, covered):
        """Each stage has a parameter at least."""
        for stage in range(self.stages[side]):
            if stage in covered[side]:
                continue
            name = f"norm{side}{stage}.gamma"
            layouts = (random_layout(self.rng, self.counts[0], 1),
                       random_layout(self.rng, self.counts[1], 1))
            shapes[name] = shape_for(self.rng, layouts, 1, 2)
            dtypes[name] = "Float32"
            for s in (0, 1):
                at = stage if s == side else self.rng.randrange(self.stages[s])
                items[s].append(Item(name, layouts[s], shapes[name], at))
                covered[s].add(at)

    def strategy(self, items):
        self.rng.shuffle(items)
        form = "json" if self.rng.random() < 0.35 else "ckpt"
        out = Strategy(items, form)
        if out.stages > 1 and self.rng.random() < 0.5:
            out.parts = self.rng.choice(["folder", "list", "ranks"])
        if out.stages == 1 and self.rng.random() < 0.3:
            out.merged = True  # "0-name" is the same as "name"
        elif out.stages == 1 and self.rng.random() < 0.1:
            out.first_stage = self.rng.randrange(1, 3)
        return out

    def extras(self, shapes, names):
        """Values that no strategy shards: the same in every rank's file, or each rank's own."""
        rng = self.rng
        out = []
        for name in names:
            dtype = rng.choice(DTYPES)
            out.append((name, lambda d=dtype, s=shapes[name]: random_value(self.data, d, s)))
        if rng.random() < 0.6:
            out.append(("learning_rate", lambda: random_value(self.data, "Float32", ())))
        if rng.random() < 0.5:
            out.append(("global_step", lambda: random_value(self.data, "Int32", ())))
        if rng.random() < 0.3:
            out.append(("accu_grads.x", lambda: random_value(self.data, "Float16", (2, 3))))
        return out


def make(seed, number):
    return Maker(seed, number).case()
