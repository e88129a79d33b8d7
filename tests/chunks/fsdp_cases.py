# SPDX-License-Identifier: Apache-2.0
"""More cases of the family "dcp": other writers of torch, what FSDP saves of a model, and placements that it makes."""
import copy
import math
import os
import shutil

import dcp_program as program
import torch
from dcp_cases import Case, Complete, Copies, Ranks, Refused, check_export, differ, export, fixed_since_2_9, lose, numbered
from dcp_program import Listed, Plain, Sharded, Strided


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


class Fsdp1Files(Ranks):
    """The same in a file for each rank, with ShardedTensors: the last ranks have nothing of small parameters."""

    def __init__(self, name, world, kind="SHARDED_STATE_DICT", original=False, groups=1):
        super().__init__(name, world, {})
        self.kind, self.original, self.groups = kind, original, groups

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        whole = program.save_fsdp1(source, self.world, self.kind, self.original, True, self.groups)
        self.items = {(name,): Plain(tensor) for name, tensor in whole.items()}
        return source, {}

    def count_groups(self):
        return self.groups

    def check_views(self, folder, source, options):
        said = super().check_views(folder, source, options)
        return said or self.check_kinds(source)

    def check_kinds(self, source):
        """The parameters are ShardedTensors, or this case proves nothing."""
        from torch.distributed._shard.sharded_tensor import ShardedTensor
        with program.As(0, self.world):
            state = program.load_file(source, 0, self.world, self.groups)
        return None if isinstance(state["0.weight"], ShardedTensor) else f"0.weight is {type(state['0.weight'])}"


@fixed_since_2_9
def ranks_fsdp1(name):
    """Five rows over four ranks are 2, 2, 1 and none; buffers, which are whole, beside them."""
    return Fsdp1Files(name, 4)


@fixed_since_2_9
def ranks_fsdp1_original(name):
    """The same with use_orig_params."""
    return Fsdp1Files(name, 3, original=True)


@fixed_since_2_9
def ranks_fsdp1_hybrid(name):
    """HYBRID_SHARD: two groups of ranks have all of it."""
    return Fsdp1Files(name, 4, groups=2)


class LocalFiles(Fsdp1Files):
    """LOCAL_STATE_DICT, of whose flat parameter nothing can be said."""

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        return Local.check_views(self, folder, source, _options)


@fixed_since_2_9
def ranks_fsdp1_local(name):
    return LocalFiles(name, 2, "LOCAL_STATE_DICT")


@fixed_since_2_9
def ranks_fsdp1_local_original(name):
    return LocalFiles(name, 2, "LOCAL_STATE_DICT", True)


class Trained(Ranks):
    """The state of the model and of its optimizer, after a step: entry= chooses what is read."""

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        program.save_fsdp1(source, self.world, "SHARDED_STATE_DICT", True, files=True, trained=True)
        return source, {}

    def check_oracle(self, folder):
        return None

    def check_views(self, folder, source, _options):
        state = program.load_whole(source, self.world)
        parts = {"model": state["model"], **{f"optim.state.{n}": v for n, v in state["optim"]["state"].items()}}
        if not all({"exp_avg", "exp_avg_sq", "step"} <= set(v) for n, v in parts.items() if n != "model"):
            return f"the optimizer has {parts}"
        return next((said for i, (entry, want) in enumerate(parts.items())
                     if (said := check_export(source, os.path.join(folder, str(i)), f"format=pt,entry={entry}", want))), None)


@fixed_since_2_9
def ranks_fsdp1_optimizer(name):
    return Trained(name, 2, {})


def listed(full, n, **options):
    return Listed(full, program.in_rows(full, n), **options)


@fixed_since_2_9
def ranks_listed(name):
    """ShardedTensors of several dtypes and boxes, beside DTensors and what is whole."""
    pinwheel = [((0, 0), (2, 3)), ((0, 3), (3, 2)), ((2, 0), (3, 2)), ((3, 2), (2, 3)), ((2, 2), (1, 1))]
    return Ranks(name, 4, {
        ("rows",): listed(numbered(10, 6), 4), ("few",): listed(numbered(2, 3, dtype=torch.bfloat16), 4),
        ("one",): listed(numbered(1), 4), ("pinwheel",): Listed(numbered(5, 5, dtype=torch.int64), pinwheel),
        ("fp8",): listed(numbered(9, 2).to(torch.float8_e4m3fn), 4), ("empty",): listed(numbered(0, 3), 4),
        ("dtensor",): Sharded(numbered(6, 4), (2, 2), [1, 0]), ("buffer",): Plain(numbered(3)), ("step",): 3})


@fixed_since_2_9
def ranks_listed_in_groups(name):
    """Lists with the ranks' numbers in the world, and in the group; one rank of each group has nothing of the last."""
    return Ranks(name, 6, {("world",): listed(numbered(7, 2), 3, groups=2), ("group",): listed(numbered(7, 2), 3, groups=2, in_group=True),
                           ("few",): listed(numbered(2), 3, groups=2, in_group=True)})


@fixed_since_2_9
def ranks_listed_below_a_key(name):
    return Ranks(name, 4, {("w",): listed(numbered(10, 6), 4), ("scalar",): Plain(torch.tensor(7))}, "model")


@fixed_since_2_9
def ranks_listed_differ(name):
    """Groups with other numbers, which strict and verify find."""
    def damage(folder, world):
        def change(state):
            state["w"].local_shards()[0].tensor.mul_(-1)
        program.change_rank(folder, 3, world, change, 2)
    return Copies(name, 4, {("w",): listed(numbered(8, 2), 2, groups=2), ("same",): listed(numbered(3), 2, groups=2)}, {"w": ""}, damage)


@fixed_since_2_9
def ranks_listed_on_trust(name):
    """No file says that groups have the same: stages of a pipeline look so, too. So strict reads all of both."""
    def damage(folder, world):
        def change(state):
            state["large"].local_shards()[0].tensor[0, 399] = -1
        program.change_rank(folder, 2, world, change, 2)
    return Copies(name, 4, {("large",): listed(numbered(64, 400), 2, groups=2), ("same",): listed(numbered(3), 2, groups=2)},
                  {"large": ""}, damage)


@fixed_since_2_9
def ranks_listed_complete_without_one(name):
    """The other group has what the lost rank had of one tensor, nobody what it had of another."""
    return Complete(name, 4, {("cut",): Sharded(numbered(8, 2), (4,), [0]), ("copied",): listed(numbered(8, 2), 2, groups=2),
                              ("buffer",): Plain(numbered(3))})


class Spoilt(Refused):
    """A ShardedTensor "w" that CHANGE spoils in the files of some ranks."""

    def __init__(self, name, said, change, ranks=(1,), groups=1):
        def damage(folder, world):
            for rank in ranks:
                program.change_rank(folder, rank, world, change, groups)
        super().__init__(name, 4, {("w",): listed(numbered(8, 4), 4 // groups, groups=groups)}, said, damage)


OTHER_LIST = "'w': its list of shards differs from those of the files before"
OTHER_SHARDS = "'w': the ShardedTensor is damaged: its shards are not those that its list gives to the rank"
NO_BOX = "'w': the ShardedTensor is damaged: its list has a shard without a rank, or outside of it"
OTHER_TENSOR = "'w': the ShardedTensor is damaged: a shard's tensor has another shape or dtype than its metadata"


def list_of(state):
    return state["w"]._metadata.shards_metadata


def own(state):
    return state["w"].local_shards()[0]


@fixed_since_2_9
def ranks_listed_others_moved(name):
    """In the list of one file the shards of two other ranks have changed places."""
    def change(state):
        one, two = list_of(state)[2:]
        one.shard_offsets, two.shard_offsets = two.shard_offsets, one.shard_offsets
    return Spoilt(name, OTHER_LIST, change)


@fixed_since_2_9
def ranks_listed_other_ranks(name):
    """The boxes of the list are the same, but in one file two are of each other's ranks."""
    def change(state):
        one, two = list_of(state)[2:]
        one.placement, two.placement = two.placement, one.placement
    return Spoilt(name, OTHER_LIST, change)


@fixed_since_2_9
def ranks_listed_own_moved(name):
    """A shard lies where another one does, by itself alone."""
    def change(state):
        own(state).metadata.shard_offsets = [0, 0]
    return Spoilt(name, OTHER_SHARDS, change)


@fixed_since_2_9
def ranks_listed_without_shards(name):
    return Spoilt(name, OTHER_SHARDS, lambda state: state["w"].local_shards().clear())


@fixed_since_2_9
def ranks_listed_more_shards(name):
    """A shard that the list gives to another rank."""
    def change(state):
        more = copy.deepcopy(own(state))
        more.metadata.shard_offsets = [0, 0]
        state["w"].local_shards().append(more)
    return Spoilt(name, OTHER_SHARDS, change)


@fixed_since_2_9
def ranks_listed_twice(name):
    """All lists have the shard of rank 1 twice, and that rank has it and another one."""
    def change(state):
        list_of(state).append(list_of(state)[1])
        if list_of(state)[1].placement == own(state).metadata.placement:
            state["w"].local_shards().append(copy.deepcopy(own(state)))
            state["w"].local_shards()[1].metadata.shard_offsets = [0, 0]
    return Spoilt(name, OTHER_SHARDS, change, range(4))


@fixed_since_2_9
def ranks_listed_moved_everywhere(name):
    """By all that the files say, rank 1 has the box of rank 0, and nobody its own."""
    def change(state):
        if list_of(state)[1].placement == own(state).metadata.placement:
            own(state).metadata.shard_offsets = [0, 0]
        list_of(state)[1].shard_offsets = [0, 0]
    return Spoilt(name, "'w': the metadata has no chunk for [2:4, 0:4]", change, range(4))


@fixed_since_2_9
def ranks_listed_nowhere(name):
    """No file has a shard, nor lists one: the tensor is missed."""
    def change(state):
        state["w"].local_shards().clear()
        list_of(state).clear()
        state["buffer"] = numbered(3)
    return Spoilt(name, "'w': the metadata has no chunk for any of its elements", change, range(4))


@fixed_since_2_9
def ranks_listed_groups_differ(name):
    """Each group of ranks is cut in its own way."""
    def change(state):
        rank = own(state).metadata.placement.rank()
        rows, begin = (5, 0) if rank == 2 else (3, 5)
        own(state).metadata.shard_offsets, own(state).metadata.shard_sizes = [begin, 0], [rows, 4]
        own(state).tensor = numbered(8, 4)[begin:begin + rows].clone()
        for shard, (at, n) in zip(list_of(state), ((0, 5), (5, 3))):
            shard.shard_offsets, shard.shard_sizes = [at, 0], [n, 4]
    return Spoilt(name, "'w': two chunks of different shapes begin at the same element", change, (2, 3), groups=2)


@fixed_since_2_9
def ranks_listed_beyond(name):
    """A shard of the list ends outside of the tensor."""
    def change(state):
        list_of(state)[3].shard_sizes = [3, 4]
    return Spoilt(name, NO_BOX, change)


@fixed_since_2_9
def ranks_listed_without_ranks(name):
    def change(state):
        for shard in list_of(state):
            shard.placement = None
    return Spoilt(name, NO_BOX, change)


@fixed_since_2_9
def ranks_listed_narrower(name):
    """The tensor of a shard has fewer columns than its metadata."""
    def change(state):
        own(state).tensor = own(state).tensor[:, :3].clone()
    return Spoilt(name, OTHER_TENSOR, change)


@fixed_since_2_9
def ranks_listed_of_another_dtype(name):
    def change(state):
        own(state).tensor = own(state).tensor.to(torch.int32)
    return Spoilt(name, OTHER_TENSOR, change)


@fixed_since_2_9
def ranks_listed_within_a_shard(name):
    """As torch 2.0 divides for two dimensions of parallelism."""
    def change(state):
        own(state).tensor = Sharded(numbered(2, 4), (4,), [None]).on(1, 4)
    return Spoilt(name, "'w': a shard of it is itself divided among ranks", change)


@fixed_since_2_9
def ranks_listed_in_some_files(name):
    """One file has all of it."""
    def change(state):
        state["w"] = numbered(8, 4)
    return Spoilt(name, "'w': it is a ShardedTensor in some files only", change)


@fixed_since_2_9
def ranks_listed_for_another_group(name):
    """The list of one rank gives a box to a rank of the other group."""
    def change(state):
        from torch.distributed.remote_device import _remote_device
        list_of(state)[0].placement = _remote_device("rank:2/cpu")
    return Spoilt(name, OTHER_LIST, change, groups=2)


@fixed_since_2_9
def ranks_listed_as_another_rank(name):
    """A file under the name of another one."""
    def damage(folder, world):
        shutil.copy(program.file_of(folder, 1, world), program.file_of(folder, 2, world))
    return Refused(name, 4, {("w",): listed(numbered(8, 4), 4)}, "'w': it is of rank 1 of 4, which the file's name is not", damage)


@fixed_since_2_9
def ranks_listed_of_two_saves(name):
    """One file is of a save with another shape."""
    def damage(folder, world):
        program.save_ranks(folder + "2", world, {("w",): listed(numbered(9, 4), 4)})
        shutil.copy(program.file_of(folder + "2", 3, world), program.file_of(folder, 3, world))
    return Refused(name, 4, {("w",): listed(numbered(8, 4), 4)}, OTHER_LIST, damage)


@fixed_since_2_9
def ranks_listed_missing(name):
    return Refused(name, 4, {("w",): listed(numbered(8, 4), 4)},
                   "'w': is incomplete: 'model_world_size_4_rank_2.pt' is missing, by the numbers", lose(2))


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
