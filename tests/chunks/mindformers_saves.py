# SPDX-License-Identifier: Apache-2.0
"""Checkpoints 2.0: what they hold, by a model of our own, and folders of them, by the real program.

A Checkpoint knows each tensor whole. Slices are cut by tests/interop/model.py, which has nothing of
MindSpore's code; metadata.json and all names of files come from MindSpore Transformers.
"""
import os
from dataclasses import dataclass, field

import values
from model import cut


@dataclass
class Tensor:
    name: str
    value: values.Value           # whole
    layout: object = None         # layouts.Layout; None: every rank of its stages has all of it
    stages: tuple = (0,)
    kind: str = "model"           # or opt


@dataclass
class Checkpoint:
    version: str
    devices: int                  # of a stage
    stages: int = 1
    tensors: list = field(default_factory=list)
    balanced: bool = False        # each slice in one file only
    prefix: str = None
    iteration: int = 1

    @property
    def ranks(self):
        return self.devices * self.stages

    def held(self, rank):
        return [t for t in self.tensors if rank // self.devices in t.stages]

    def slice(self, tensor, rank):
        if tensor.layout is None:
            return tensor.value
        return tensor.value.with_data(cut(tensor.value.data, tensor.layout, rank % self.devices))

    def describe(self):
        way = "one copy of each slice" if self.balanced else "every rank's slices"
        rows = [f"  mindformers {self.version}, {self.stages} stage(s) of {self.devices}, {way}"]
        rows += [f"    {t.kind} {t.name} {t.value.dtype}{list(t.value.shape)} in {list(t.stages)} {t.layout or ''}"
                 for t in self.tensors]
        return "\n".join(rows)


def real_layout(layout, ranks):
    """A layouts.Layout as MindSpore's, of these ranks."""
    from mindspore.parallel import Layout

    names = [f"axis{i}" for i in range(len(layout.dev))]
    called = [names[len(names) - 1 - d] for d in range(len(names))]
    axes = [tuple(called[d] for d in a) if len(a) > 1 else called[a[0]] if a else "None" for a in layout.axes]
    return Layout(tuple(layout.dev), tuple(names), list(ranks))(*axes)


def real_dtype(name):
    from mindspore.common.dtype import all_types

    return next(d for d in all_types if str(d) == name)


def infos(tensors, ranks, layout_of=lambda t: t.layout):
    """What MindSpore tells of tensors: name -> [Layout, dtype, shape]."""
    out = {}
    for t in tensors:
        layout = layout_of(t)
        out[t.name] = [real_layout(layout, ranks) if layout else None, real_dtype(t.value.dtype),
                       tuple(t.value.shape)]
    return out


def stage_ranks(checkpoint, stage):
    return range(stage * checkpoint.devices, (stage + 1) * checkpoint.devices)


def all_shards(program, checkpoint):
    by_stage = [infos([t for t in checkpoint.tensors if s in t.stages], stage_ranks(checkpoint, s))
                for s in range(checkpoint.stages)]
    return {r: program.shards(r, by_stage[r // checkpoint.devices]) for r in range(checkpoint.ranks)}


def save_file(path, named, crc=False):
    import mindspore as ms

    ms.save_checkpoint({n: values.to_mindspore(n, v) for n, v in named}, path, format="safetensors", crc_check=crc)


def write(program, checkpoint, root):
    """Writes the iteration below ROOT, the tracker last; returns the iteration's folder."""
    folder = os.path.join(root, f"iteration_{checkpoint.iteration:08d}")
    os.makedirs(folder)
    tensors = {t.name: t for t in checkpoint.tensors}

    def save(path, rank, names):
        if names:  # save_checkpoint refuses to write none
            save_file(path, [(n, checkpoint.slice(tensors[n], rank)) for n in names])

    kinds = [(k, {t.name for t in checkpoint.tensors if t.kind == k}) for k in ("model", "opt")]
    kinds = [(kind, names) for kind, names in kinds if names]
    metas = all_shards(program, checkpoint)
    if checkpoint.balanced:
        program.save_balanced(root, checkpoint.iteration, metas, checkpoint.prefix, kinds, save)
    else:
        for kind, names in kinds:
            for rank in range(checkpoint.ranks):
                name = program.file_name(checkpoint.prefix, rank, checkpoint.ranks, kind)
                save(os.path.join(folder, name), rank, [n for n in metas[rank] if n in names])
        if checkpoint.ranks > 1:
            program.save_full(folder, metas, checkpoint.prefix, dict(kinds).get("model", set()))
    program.save_common(os.path.join(folder, "common.json"), epoch_num=1, step_num=checkpoint.iteration,
                        global_step=checkpoint.iteration, loss_scale=1.0, global_batch_size=8,
                        consumed_samples=8 * checkpoint.iteration)
    with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as f:
        f.write(str(checkpoint.iteration))
    return folder
