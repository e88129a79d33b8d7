# SPDX-License-Identifier: Apache-2.0
"""The slow model: what each file of the target tree holds, said independently of MindSpore's code.

Tensors are cut with numpy one device axis after the other. Nothing here is clever; it is the
yardstick for MindSpore and for reshardfs alike.
"""
import math

import numpy as np


def cuts_of(layout, rank):
    """What RANK's coordinates do: ([(tensor axis, extent, piece)], outer to inner, [free digits])."""
    coordinate = []
    rest = rank
    for size in reversed(layout.dev):
        coordinate.insert(0, rest % size)
        rest //= size
    assert rest == 0, "rank is outside of the device matrix"
    cuts = []
    for axis, device_axes in enumerate(layout.axes):
        for d in device_axes:
            at = len(layout.dev) - 1 - d
            cuts.append((axis, layout.dev[at], coordinate[at]))
    shard, free = [], []
    wanted = layout.opt_pieces() if layout.opt else 1
    for at in reversed(layout.free_axes()):
        size, digit = layout.dev[at], coordinate[at]
        if wanted == 1:
            free.append(digit)
        elif wanted >= size:
            assert wanted % size == 0
            shard.insert(0, (0, size, digit))
            wanted //= size
        else:
            assert size % wanted == 0
            shard.insert(0, (0, wanted, digit % wanted))
            free.append(digit // wanted)
            wanted = 1
    assert wanted == 1, "the optimizer shard needs more repeats than there are"
    return cuts + shard, free


def cut(whole, layout, rank):
    cuts, _ = cuts_of(layout, rank)
    for axis, extent, piece in cuts:
        assert whole.shape[axis] % extent == 0, "the shape does not divide"
        whole = np.split(whole, extent, axis)[piece]
    return whole


def whole_shape(slice_shape, layout):
    pieces = layout.pieces()
    return tuple(s * p for s, p in zip(slice_shape, pieces))


def gather(slices, layout, like):
    """The whole tensor as the replicas with LIKE's free digits have it; slices: rank -> array."""
    _, free = cuts_of(layout, like)
    first = next(iter(slices.values()))
    shape = whole_shape(first.shape, layout)
    where = np.arange(math.prod(shape)).reshape(shape)
    out = np.empty(shape, first.dtype)
    filled = np.zeros(math.prod(shape), bool)
    for rank in range(layout.devices()):
        if cuts_of(layout, rank)[1] != free:
            continue
        if rank not in slices:  # a proven replica stands in
            same = cuts_of(layout, rank)[0]
            rank = min(r for r in slices if cuts_of(layout, r)[0] == same)
        index = cut(where, layout, rank)
        out.reshape(-1)[index] = slices[rank]
        filled[index.reshape(-1)] = True
    assert filled.all()
    return out


def by_stage(src, dst):
    """Whether transform_checkpoints goes the way of one source stage at a time."""
    if not src or not dst or src.stages > 1 or dst.stages > 1:
        return False
    states = ("accu_grads", "adam_v", "adam_m")
    ours = {n for n in src.names() if not n.startswith(states)}
    theirs = {n for n in dst.names() if not n.startswith(states)}
    return ours < theirs


def needed_stages(src, dst, stage):
    """The source stages whose files matter for the ranks of STAGE of the target."""
    if not src:
        return [0]
    needed = set()
    for item in src.items:
        stages = dst.stages_of(item.name) if dst else []
        if not stages or stage in stages:
            needed.add(item.stage)
    return sorted(needed)


class Target:
    """What the target tree of one case is. files: source rank -> [(name, Value)]."""

    def __init__(self, src, dst, files, prefix="checkpoint_", source_format="ckpt"):
        self.src, self.dst, self.files, self.prefix = src, dst, files, prefix
        self.part = source_format == "ckpt" and by_stage(src, dst)
        self.src_n = src.devices if src else 1
        self.dst_n = dst.devices if dst else 1
        self.ranks = self.dst_n * (dst.stages if dst else 1)

    def without_sources(self):
        """Whether a target stage takes nothing from any source stage."""
        return not self.part and any(
            not needed_stages(self.src, self.dst, r // self.dst_n) for r in range(self.ranks))

    def file_name(self, rank):
        part = f"_part{self.src.first_stage}" if self.part else ""
        return f"rank_{rank}/{self.prefix}{rank}{part}.ckpt"

    def sources(self, rank):
        """Source files for RANK as (stage, local rank, file), in the order in which they load."""
        if self.part:
            stages, backwards = [self.src.first_stage], False
        else:
            stages, backwards = needed_stages(self.src, self.dst, rank // self.dst_n), True
        ranks = [(s, i) for s in stages for i in range(self.src_n)]
        if backwards:
            ranks.reverse()
        return [(s, i, dict(self.files[s * self.src_n + i])) for s, i in ranks
                if s * self.src_n + i in self.files]

    def src_layout(self, name, stage):
        return self.src.layout(name, 0 if self.part else stage) if self.src else None

    def contents(self, rank):
        """[(name, Value)] of the target file of RANK."""
        stage, local = divmod(rank, self.dst_n)
        like = local % self.src_n
        sources = self.sources(rank)
        names = list(dict.fromkeys(n for _, _, values in sources for n in values))
        both, rest = [], []
        for name in names:
            in_dst = not self.dst or self.dst.layout(name, stage)
            elsewhere = self.dst and not in_dst and self.dst.stages_of(name)
            known = not self.src or self.src.stages_of(name)
            if elsewhere and known and not self.part:
                continue
            value = self.sliced(name, stage, local, like, sources) if in_dst and known else None
            if value is not None:
                both.append((name, value))
            else:
                rest.append((name, self.passed(name, like, sources)))
        return both + rest

    def sliced(self, name, stage, local, like, sources):
        """The slice, or None for a value that is not a tensor."""
        holders = sorted((s, i) for s, i, values in sources if name in values)
        lowest = holders[0][0]
        slices = {i: values[name] for s, i, values in sources if s == lowest and name in values}
        some = next(iter(slices.values()))
        if some.dtype in ("str", "map"):
            return None
        arrays = {i: v.data for i, v in slices.items()}
        layout = self.src_layout(name, lowest)
        whole = gather(arrays, layout, like) if layout else arrays[0]
        target = self.dst.layout(name, stage) if self.dst else None
        return some.with_data(cut(whole, target, local) if target else whole)

    def passed(self, name, like, sources):
        holders = sorted((s, i) for s, i, values in sources if name in values and i == like)
        stage, local = holders[0]
        return next(v[name] for s, i, v in sources if (s, i) == (stage, local))
