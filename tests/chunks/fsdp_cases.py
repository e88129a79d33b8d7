# SPDX-License-Identifier: Apache-2.0
"""More cases of the family "dcp": other writers of torch, what FSDP saves of a model, and placements that it makes."""
import math
import os

import dcp_program as program
import torch
from dcp_cases import Case, Ranks, Refused, check_export, differ, export, fixed_since_2_9, numbered
from dcp_program import Plain, Sharded, Strided


class Unread(Case):
    """Items in another form."""

    def __init__(self, name, says, **options):
        super().__init__(name, 2, {("w",): Sharded(numbered(8, 4), (2,), [0])}, **options)
        self.says = says

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        out = os.path.join(folder, "out")
        have = export(source, out, "format=pt") or ""
        return None if self.says in have and not os.path.exists(out) else f"{have!r} does not say {self.says!r}"


@fixed_since_2_9
def items_compressed(name):
    """By one of torch's extensions: each would have to be decompressed as a whole."""
    return Unread(name, "is stored by the extension stream.zstd/1 of torch's writer, which is not read; try: dcp.load and",
                  _extensions=[program.compressing()])


@fixed_since_2_9
def items_as_safetensors(name):
    """torch cannot read these itself."""
    from torch.distributed.checkpoint.filesystem import SerializationFormat
    return Unread(name, "is stored as safetensors in the checkpoint's file (SerializationFormat.SAFETENSORS)",
                  serialization_format=SerializationFormat.SAFETENSORS)


class Consolidated(Case):
    """What HuggingFaceStorageWriter makes of all ranks' pieces, or writes at once."""

    def __init__(self, name, world, writer):
        # No scalar: torch 2.9 to 2.15 consolidates it to 0.
        items = {("a", "w"): Sharded(numbered(10, 6), (world,), [0]), ("odd",): Plain(numbered(5, 3, dtype=torch.bfloat16))}
        super().__init__(name, world, items, writer=writer)

    def check_oracle(self, folder):
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        have = program.load(os.path.join(folder, "checkpoint"), self.items, HuggingFaceStorageReader)
        return next((said for path, v in self.items.items() if (said := differ("torch", path, have[path], v.full))), None)

    def check_views(self, folder, source, _options):
        return next((said for options in ("view=huggingface", "format=pt")
                     if (said := check_export(source, os.path.join(folder, options[-2:]), options, self.whole()))), None)


@fixed_since_2_9
def safetensors_consolidated(name):
    """Whole files; the pieces are in a folder below."""
    return Consolidated(name, 4, lambda folder: program.safetensors_writer(folder, enable_consolidation=True))


@fixed_since_2_9
def safetensors_at_once(name):
    """Of one process."""
    return Consolidated(name, 1, lambda folder: program.safetensors_writer(folder, save_distributed=False))


class Fsdp2(Ranks):
    """A model's own state dict, by FSDP2 on top of tensor parallelism."""

    def __init__(self, name, mesh, rows):
        super().__init__(name, math.prod(mesh), {})
        self.mesh, self.rows = mesh, rows

    def write(self, folder):
        whole = program.save_fsdp2(os.path.join(folder, "checkpoint"), self.mesh, self.rows)
        self.items = {(name,): Plain(tensor) for name, tensor in whole.items()}
        return os.path.join(folder, "checkpoint"), {}


@fixed_since_2_9
def ranks_fsdp2(name):
    """Ten rows over 2 and 2 are 3 and 2 of each half."""
    return Fsdp2(name, (2, 2), 10)


@fixed_since_2_9
def ranks_fsdp2_uneven(name):
    """Seven rows over 3 and 2: the last rank has none."""
    return Fsdp2(name, (3, 2), 7)


class Fsdp1(Case):
    """A model's own state dict, by FSDP1."""

    def __init__(self, name, kind, original):
        super().__init__(name, 2, {})
        self.kind, self.original = kind, original

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        whole = program.save_fsdp1(source, self.world, self.kind, self.original)
        self.items = {(name,): Plain(tensor) for name, tensor in whole.items()}
        return source, {}


@fixed_since_2_9
def fsdp1(name):
    """SHARDED_STATE_DICT, of flat parameters."""
    return Fsdp1(name, "SHARDED_STATE_DICT", False)


@fixed_since_2_9
def fsdp1_original(name):
    """The same with use_orig_params."""
    return Fsdp1(name, "SHARDED_STATE_DICT", True)


class Local(Fsdp1):
    """LOCAL_STATE_DICT: beside the flat parameter there may be what a rank has of a parameter, by the name of all of it."""

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        have = export(source, os.path.join(folder, "out"), "format=pt") or ""
        want = "parameter '_flat_param': it is FSDP's LOCAL_STATE_DICT: nothing says which parameters lie in it"
        return None if want in have else f"{have!r} does not say {want!r}"


@fixed_since_2_9
def fsdp1_local(name):
    return Local(name, "LOCAL_STATE_DICT", False)


@fixed_since_2_9
def fsdp1_local_original(name):
    return Local(name, "LOCAL_STATE_DICT", True)


class Fsdp1Files(Refused):
    """Files with ShardedTensors, which came before DTensors."""

    def write(self, folder):
        program.save_fsdp1(os.path.join(folder, "checkpoint"), self.world, "SHARDED_STATE_DICT", True, files=True)
        return os.path.join(folder, "checkpoint"), {}


@fixed_since_2_9
def ranks_fsdp1(name):
    return Fsdp1Files(name, 2, {}, "sharded_tensor.api.ShardedTensor, which is not read; nothing was executed; try: FSDP's "
                      "SHARDED_STATE_DICT in a folder of torch.distributed.checkpoint, or FULL_STATE_DICT")


def strided(rows, more):
    """Two mesh axes and three, with replicas, behind a plain cut, and of different axes."""
    return {("w",): Strided(numbered(rows, 3), (2, 2, 2), [None, 0, 0]), ("three",): Strided(numbered(2 * rows), (2, 2, 2), [0, 0, 0]),
            ("behind",): Strided(numbered(rows + more, 2), (2, 2, 2), [0, 0, 0], plain=1),
            ("across",): Strided(numbered(rows, 6 + more), (2, 2, 2), [0, 1, 0])}


@fixed_since_2_9
def ranks_strided(name):
    """FSDP2 on top of tensor parallelism: the axis that cuts last is the first one of the mesh."""
    return Ranks(name, 8, strided(9, 2))


@fixed_since_2_9
def items_strided(name):
    """Even ones in a folder, which has plain boxes."""
    return Case(name, 8, strided(8, 0))


def strided_by(factor):
    from torch.distributed.tensor import placement_types
    return placement_types._StridedShard(0, split_factor=factor)


@fixed_since_2_9
def ranks_strided_alone(name):
    """Each rank has every second row."""
    return Refused(name, 2, {("w",): Sharded(numbered(4, 2), (2,), [0], [strided_by(2)])},
                   "its _StridedShards leave each rank rows that do not follow one another")


@fixed_since_2_9
def ranks_strided_otherwise(name):
    """A factor that is not the number of pieces before."""
    return Refused(name, 4, {("w",): Sharded(numbered(8, 2), (2, 2), [0, 0], [strided_by(4), program.Shard(0)])},
                   "its _StridedShards leave each rank rows that do not follow one another")


@fixed_since_2_9
def ranks_strided_and_cut(name):
    """Cut once more behind the Shard that it waits for."""
    places = [strided_by(2), program.Shard(0), program.Shard(0)]
    return Refused(name, 8, {("w",): Sharded(numbered(8, 2), (2, 2, 2), [0, 0, 0], places)},
                   "its _StridedShards leave each rank rows that do not follow one another")
