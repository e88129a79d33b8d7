# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint as any number of ranks: its own planner and writer, one rank after the other in one
process, with torch's fake process group in place of a cluster. torch 2.1 or later.
"""
import contextlib
import dataclasses
import inspect
import io
import math
import os
import pickle
import tempfile
import traceback
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import metadata, planner  # noqa: E402
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:
    from torch.distributed._tensor import DTensor, Replicate, Shard
try:
    from torch.distributed.device_mesh import DeviceMesh
except ImportError:
    from torch.distributed._tensor.device_mesh import DeviceMesh

VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2])
if VERSION >= (2, 9):
    import zstandard
    from torch.distributed.checkpoint import _extension


def can_save(dtype):
    """Not every version saves each dtype that it has."""
    try:
        torch.save(torch.zeros(1, dtype=getattr(torch, dtype)), io.BytesIO())
    except (AttributeError, KeyError):
        return False
    return True


def piece(tensor, axis, n, i):
    """The part of rank i of n: torch.chunk, which may give fewer parts than ranks."""
    parts = torch.chunk(tensor, n, dim=axis)
    return parts[i] if i < len(parts) else tensor.narrow(axis, 0, 0)


class Sharded:
    """A DTensor: MESH, ranks of each mesh axis, and for each of them the axis that is cut, or None."""

    def __init__(self, full, mesh, cuts, places=None):
        self.full, self.mesh, self.cuts, self.places = full, mesh, cuts, places

    def describe(self):
        return f"mesh {self.mesh} cuts {self.cuts}"

    def on(self, rank, world):
        mesh = DeviceMesh("cpu", torch.arange(world).reshape(self.mesh))
        places = self.places or [self.place(i) for i in range(len(self.cuts))]
        # In memory of its own, as after a training: torch 2.15 cannot save a DTensor of a part of some memory.
        local = self.in_memory(self.local(rank))
        if VERSION < (2, 3):
            return DTensor(local, mesh, places, shape=self.full.shape, dtype=self.full.dtype,
                           requires_grad=False, stride=self.full.stride())
        return DTensor.from_local(local, mesh, places, run_check=False, shape=self.full.shape,
                                  stride=self.full.stride())

    def place(self, i):
        return Replicate() if self.cuts[i] is None else Shard(self.cuts[i])

    def order(self):
        return range(len(self.mesh))

    def local(self, rank):
        local, left = self.full, rank
        at = []
        for n in reversed(self.mesh):
            at.insert(0, left % n)
            left //= n
        for i in self.order():
            local = local if self.cuts[i] is None else piece(local, self.cuts[i], self.mesh[i], at[i])
        return local

    def is_even(self):
        sizes = list(self.full.shape)
        for n, axis in zip(self.mesh, self.cuts):
            if axis is not None and sizes[axis] % n:
                return False
            sizes[axis or 0] //= n if axis is not None else 1
        return True

    def in_memory(self, local):
        return local.clone(memory_format=torch.contiguous_format)


class Permuted(Sharded):
    """The same, but in memory the pieces have their axes in the reverse order, as a transposed weight has."""

    def in_memory(self, local):
        reverse = list(reversed(range(local.dim())))
        return local.permute(reverse).clone(memory_format=torch.contiguous_format).permute(reverse)


class Strided(Sharded):
    """The same, but behind the first PLAIN mesh axes the last one cuts first, as FSDP2 cuts what others have cut."""

    def __init__(self, full, mesh, cuts, plain=0):
        super().__init__(full, mesh, cuts)
        self.plain = plain

    def describe(self):
        return f"{super().describe()} strided from {self.plain}"

    def place(self, i):
        from torch.distributed.tensor.placement_types import _StridedShard
        later = [n for n, axis in zip(self.mesh[i + 1:], self.cuts[i + 1:]) if axis == self.cuts[i]]
        if self.cuts[i] is None or not later or i < self.plain:
            return super().place(i)
        return _StridedShard(self.cuts[i], split_factor=math.prod(later))

    def order(self):
        n = len(self.mesh)
        return [*range(self.plain), *reversed(range(self.plain, n))]


class Parameter(Sharded):
    """The same as a parameter of a model."""

    def on(self, rank, world):
        tensor = super().on(rank, world)
        parameter = torch.nn.Parameter(tensor)
        parameter._spec = tensor._spec  # torch takes the first rank's from a cache, as all are of one process here
        return parameter


class Boxes:
    """A tensor in boxes, [(offset, sizes)], of any form; rank r saves every WORLD-th of them."""

    def __init__(self, full, boxes):
        self.full, self.boxes = full, boxes

    def describe(self):
        return f"boxes {self.boxes}"

    def of(self, rank, world):
        return self.boxes[rank::world]

    def write_item(self, fqn, offset, sizes):
        properties = metadata.TensorProperties.create_from_tensor(self.full)
        chunk = metadata.ChunkStorageMetadata(torch.Size(offset), torch.Size(sizes))
        data = planner.TensorWriteData(chunk=chunk, properties=properties, size=self.full.size())
        return planner.WriteItem(index=metadata.MetadataIndex(fqn, torch.Size(offset)),
                                 type=planner.WriteItemType.SHARD, tensor_data=data)

    def read(self, offset):
        sizes = dict(self.boxes)[tuple(offset)]
        return self.full[tuple(slice(a, a + n) for a, n in zip(offset, sizes))]


def group_of(rank, world, groups):
    """The process group that a rank is in, of so many; None: that of all ranks."""
    n = world // groups
    return None if groups == 1 else [dist.new_group(range(g, g + n), backend="fake") for g in range(0, world, n)][rank // n]


class Listed(Boxes):
    """
    The same as a ShardedTensor, as FSDP1 has them: every rank lists the boxes of all. GROUPS of ranks have all of them each, and
    number their ranks in the world or, with IN_GROUP, in the group.
    """

    def __init__(self, full, boxes, groups=1, in_group=False):
        super().__init__(full, boxes)
        self.groups, self.in_group = groups, in_group

    def describe(self):
        return f"{super().describe()} in {self.groups} group(s), numbered in {'the group' if self.in_group else 'the world'}"

    def on(self, rank, world):
        from torch.distributed._shard.metadata import ShardMetadata
        from torch.distributed._shard.sharded_tensor import Shard as Piece
        from torch.distributed._shard.sharded_tensor import ShardedTensor, ShardedTensorMetadata, TensorProperties
        n = world // self.groups
        first = rank - rank % n
        group = group_of(rank, world, self.groups)

        def described(place, base):
            offset, sizes = self.boxes[place]
            return ShardMetadata(list(offset), list(sizes), f"rank:{base + place % n}/cpu")

        places = range(len(self.boxes))
        pieces = [Piece(self.read(self.boxes[i][0]).clone(memory_format=torch.contiguous_format), described(i, first))
                  for i in places if i % n == rank - first]
        whole = ShardedTensorMetadata([described(i, first) for i in places], self.full.size(), TensorProperties(dtype=self.full.dtype))
        tensor = ShardedTensor._init_from_local_shards_and_global_metadata(pieces, whole, process_group=group)
        if self.in_group:  # as torch before 2.2 has them
            tensor._metadata.shards_metadata = [described(i, 0) for i in places]
        return tensor


def in_rows(full, n):
    """The boxes that FSDP1 cuts a tensor in, for N ranks: the last ones may have none."""
    boxes, begin = [], 0
    for part in torch.chunk(full, n):
        boxes.append(((begin, *[0] * (full.dim() - 1)), tuple(part.shape)))
        begin += len(part)
    return boxes


class Plain:
    """A tensor that every rank has whole."""

    def __init__(self, full):
        self.full = full

    def describe(self):
        return "whole"

    def on(self, _rank, _world):
        return self.full


class PerRank:
    """A tensor that every rank has whole, and each with values of its own."""

    def __init__(self, values):
        self.values, self.full = values, values[0]

    def describe(self):
        return "of each rank"

    def on(self, rank, _world):
        return self.values[rank]


class Staged:
    """DTensors of one name on a mesh for each pipeline stage, cut along axis 0: VALUES has a tensor for each stage."""

    def __init__(self, values):
        self.values, self.full = values, values[0]

    def describe(self):
        return f"{len(self.values)} meshes"

    def on(self, rank, world):
        n = world // len(self.values)
        stage = rank // n
        mesh = DeviceMesh("cpu", torch.arange(stage * n, (stage + 1) * n))
        local = piece(self.values[stage], 0, n, rank % n).clone()
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=self.full.shape,
                                  stride=self.full.stride())


class Planner(DefaultSavePlanner):
    """Adds those boxes to what torch plans, which knows no tensor that is divided like that."""

    def of_rank(self, items, rank, world):
        self.boxes = {".".join(path): (path, v) for path, v in items.items() if isinstance(v, Boxes)}
        self.rank, self.world = rank, world
        return self

    def create_local_plan(self):
        plan = super().create_local_plan()
        more = [v.write_item(fqn, *box) for fqn, (_, v) in self.boxes.items() for box in v.of(self.rank, self.world)]
        paths = {fqn: path for fqn, (path, _) in self.boxes.items()}
        self.plan = dataclasses.replace(plan, items=plan.items + more, planner_data={**plan.planner_data, **paths})
        return self.plan

    def lookup_object(self, index):
        if index.fqn in self.boxes:
            return self.boxes[index.fqn][1].read(index.offset)
        return super().lookup_object(index)


def nested(items):
    """{path: value} as dicts in dicts."""
    out = {}
    for path, value in items.items():
        at = out
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = value
    return out


def through(value):
    """As it is after another rank has sent it."""
    return pickle.loads(pickle.dumps(value))


def safetensors_writer(folder, save_distributed=True, **options):
    """Each rank's pieces in a safetensors file."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    return HuggingFaceStorageWriter(folder, save_distributed=save_distributed, **options)


class Zstandard(_extension.ZStandard if VERSION >= (2, 9) else object):
    """torch's own extension, which asks for no level."""

    def __init__(self, level=3, checksum=False, descriptor="stream.zstd/1"):
        super().__init__()
        self.level, self.checksum, self.descriptor = level, checksum, descriptor

    def __repr__(self):
        return f"zstd at level {self.level}{', with checksums' * self.checksum}"

    def get_descriptor(self):
        return self.descriptor

    def transform_to(self, output):
        return zstandard.ZstdCompressor(level=self.level, write_checksum=self.checksum).stream_writer(output)


class Rank:
    def __init__(self, folder, rank, world, items, options, writer):
        dist.init_process_group("fake", rank=rank, world_size=world, store=fake_pg.FakeStore())
        try:
            state = nested({path: v.on(rank, world) if hasattr(v, "on") else v for path, v in items.items()
                            if not isinstance(v, Boxes)})
            self.planner = Planner().of_rank(items, rank, world)
            self.writer = writer(folder, **options)
            try:
                self.planner.set_up_planner(state, None, rank == 0)
            except TypeError:
                self.planner.set_up_planner(state, rank == 0)
            self.writer.set_up_storage_writer(rank == 0)
            self.plan = through(self.writer.prepare_local_plan(self.planner.create_local_plan()))
        finally:
            dist.destroy_process_group()

    def write(self, plan):
        return through(self.writer.write_data(self.planner.finish_plan(through(plan)), self.planner).wait())


def save(folder, world, items, writer=dcp.FileSystemWriter, **options):
    """ITEMS: {path of keys: Sharded, Boxes, Plain, or any other value}."""
    os.makedirs(folder, exist_ok=True)
    ranks = [Rank(folder, r, world, items, options, writer) for r in range(world)]
    plans, whole = ranks[0].planner.create_global_plan([r.plan for r in ranks])
    plans = ranks[0].writer.prepare_global_plan(plans)
    ranks[0].writer.finish(whole, [r.write(p) for r, p in zip(ranks, plans)])


def blank(value):
    """Of the same form, without its values: lists and dicts are saved entry by entry."""
    if isinstance(value, dict):
        return {k: blank(v) for k, v in value.items()}
    return [blank(v) for v in value] if isinstance(value, list) else None


def load(folder, items, reader=dcp.FileSystemReader):
    """{path: value}, as torch reads them."""
    into = nested({path: torch.empty_like(v.full) if hasattr(v, "full") else blank(v) for path, v in items.items()})
    reader = reader(folder)
    if "no_dist" in inspect.signature(getattr(dcp, "load", load)).parameters:
        dcp.load(into, storage_reader=reader, no_dist=True)
    else:
        dcp.load_state_dict(into, reader, no_dist=True)
    out = {}
    for path in items:
        out[path] = into
        for key in path:
            out[path] = out[path][key]
    return out


def objects(folder, items):
    """{name: value} of values that are not tensors, by the names that torch gave them."""
    rank = {} if os.path.exists(os.path.join(folder, ".metadata")) else {"rank": 0}
    described = dcp.FileSystemReader(folder).read_metadata(**rank)
    out = {}
    for name, value in described.state_dict_metadata.items():
        if isinstance(value, metadata.BytesStorageMetadata):
            out[name] = nested(items)
            for key in described.planner_data[name]:
                out[name] = out[name][key]
    return out


class As:
    """This process as a rank of a world."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    def __enter__(self):
        dist.init_process_group("fake", rank=self.rank, world_size=self.world, store=fake_pg.FakeStore())

    def __exit__(self, *_):
        dist.destroy_process_group()


def file_of(folder, rank, world):
    return os.path.join(folder, f"model_world_size_{world}_rank_{rank}.pt")


def save_ranks(folder, world, items, entry=None):
    """A file of torch.save for each rank, with DTensors as FSDP's state dicts have them; ENTRY: below that key."""
    os.makedirs(folder, exist_ok=True)
    for rank in range(world):
        with As(rank, world):
            state = {".".join(path): v.on(rank, world) if hasattr(v, "on") else v for path, v in items.items()}
            torch.save({entry: state, "epoch": 1} if entry else state, file_of(folder, rank, world))


def load_file(folder, rank, world, groups):
    """The object in the file of a rank, which this process is. GROUPS are those of its ShardedTensors."""
    from torch.distributed._shard import load_with_process_group
    group = group_of(rank, world, groups)
    with load_with_process_group(group) if group else contextlib.nullcontext():
        return torch.load(file_of(folder, rank, world), weights_only=False)


def load_rank(folder, rank, world, entry=None, groups=1):
    """{name: (shape of the whole, the piece)}; of other values the value."""
    with As(rank, world):
        state = load_file(folder, rank, world, groups)
        state = state[entry] if entry else state
        return {n: (v.shape, v.to_local()) if isinstance(v, DTensor) else v for n, v in state.items()}


def change_rank(folder, rank, world, change, groups=1):
    """Loads the file of a rank and saves it again, when CHANGE has changed the dict in it."""
    with As(rank, world):
        state = load_file(folder, rank, world, groups)
        change(state)
        torch.save(state, file_of(folder, rank, world))


def save_fsdp2(folder, mesh, rows):
    """Two layers in tensor parallelism and FSDP2 on a mesh of two axes, a file for each rank. Returns the whole ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def model():
        torch.manual_seed(rows)
        return torch.nn.Sequential(torch.nn.Linear(6, rows), torch.nn.Linear(rows, 5))

    def save_rank(rank, world):
        with As(rank, world):
            axes = init_device_mesh("cpu", mesh, mesh_dim_names=("dp", "tp"))
            one = parallelize_module(model(), axes["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()},
                                     src_data_rank=None)
            torch.save(fully_shard(one, mesh=axes["dp"]).state_dict(), file_of(folder, rank, world))

    os.makedirs(folder)
    world = math.prod(mesh)
    in_children([lambda rank=rank: save_rank(rank, world) for rank in range(world)])
    return model().state_dict()


def save_fsdp1(folder, world, kind, original, files=False, groups=1, trained=False):
    """
    A model in FSDP1 by real processes: its state dict of that KIND in a folder or, with FILES, in a file for each rank.
    ORIGINAL is use_orig_params; GROUPS of ranks have all of it each (HYBRID_SHARD). TRAINED: a dict of the model's state and
    the optimizer's, after a step. Returns the state of the model before it.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, StateDictType

    def model():
        torch.manual_seed(world)
        return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 5), torch.nn.BatchNorm1d(5))

    def hybrid(rank):
        n = world // groups
        shards = [dist.new_group(range(g, g + n)) for g in range(0, world, n)]
        copies = [dist.new_group(range(r, world, n)) for r in range(n)]
        return {"process_group": (shards[rank // n], copies[rank % n]), "sharding_strategy": ShardingStrategy.HYBRID_SHARD}

    def train(one):
        optimizer = torch.optim.Adam(one.parameters(), lr=0.1)
        one(torch.arange(24.0).reshape(4, 6)).square().sum().backward()
        optimizer.step()
        return optimizer

    def save_rank(rank, store):
        os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world)})
        dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
        one = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=original,
                                       **(hybrid(rank) if groups > 1 else {}))
        optimizer = train(one) if trained else None
        with FullyShardedDataParallel.state_dict_type(one, StateDictType[kind]):
            state = one.state_dict()
            if trained:
                state = {"model": state, "optim": FullyShardedDataParallel.optim_state_dict(one, optimizer)}
        if files:
            torch.save(state, file_of(folder, rank, world))
        else:
            dcp.save(state, checkpoint_id=folder)
        dist.barrier()

    os.makedirs(folder)
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        in_children([lambda rank=rank: save_rank(rank, store) for rank in range(world)])
    return model().state_dict()


def put_together(files):
    """The dict of all ranks' files, by dicts with their pieces of ShardedTensors."""
    first = files[0]
    if isinstance(first, dict):
        return {key: put_together([one[key] for one in files]) for key in first}
    if not hasattr(first, "local_shards"):
        return first
    whole = torch.empty(first.size(), dtype=first.dtype)
    for shard in [shard for one in files for shard in one.local_shards()]:
        box = shard.metadata
        whole[tuple(slice(a, a + n) for a, n in zip(box.shard_offsets, box.shard_sizes))] = shard.tensor
    return whole


def load_whole(folder, world):
    """What the files of all ranks have together."""
    files = []
    for rank in range(world):
        with As(rank, world):
            files.append(load_file(folder, rank, world, 1))
    return put_together(files)


def on_rank(items, rank, world):
    """The state dict of a rank. (torch plans no boxes.)"""
    return nested({path: v.on(rank, world) if hasattr(v, "on") else v for path, v in items.items() if not isinstance(v, Boxes)})


def save_alone(folder, world, items, **options):
    """Each rank saves by itself, without a word to the others."""
    for rank in range(world):
        with As(rank, world):
            dcp.save(on_rank(items, rank, world), storage_writer=dcp.FileSystemWriter(folder, **options),
                     planner=Planner().of_rank(items, rank, world), use_collectives=False)


def at(state, path):
    for key in path:
        state = state[key]
    return state


def load_alone(folder, rank, world, items):
    """Of a rank {path: (what torch reads, what it saved)}: values, or what the rank has of tensors."""
    items = {path: v for path, v in items.items() if not isinstance(v, Boxes)}

    def local(value):
        return value.to_local() if isinstance(value, DTensor) else value

    with As(rank, world):
        into, saved = [on_rank(items, rank, world) for _ in range(2)]
        for path, value in items.items():
            if isinstance(at(into, path), DTensor):
                local(at(into, path)).zero_()
            elif hasattr(value, "full"):
                at(into, path[:-1])[path[-1]] = torch.zeros_like(value.full)
        reader, planner = dcp.FileSystemReader(folder), dcp.DefaultLoadPlanner()
        described = reader.read_metadata(rank=rank)
        planner.set_up_planner(into, described, rank == 0)
        reader.set_up_storage_reader(described, rank == 0, rank=rank, use_collectives=False)
        plans = planner.create_global_plan([reader.prepare_local_plan(planner.create_local_plan())])
        reader.read_data(planner.finish_plan(plans[0]), planner).wait()
        return {path: (local(at(into, path)), local(at(saved, path))) for path in items}


def save_alone_at_once(folder, world, items):
    """The same in a process for each rank."""
    def save_rank(rank, store):
        dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
        dcp.save(on_rank(items, rank, world), storage_writer=dcp.FileSystemWriter(folder), use_collectives=False)
        dist.barrier()

    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        in_children([lambda rank=rank: save_rank(rank, store) for rank in range(world)])


def in_children(functions):
    """Calls functions in processes of their own, at once: a rank each. FSDP caches what it knows of its rank."""
    children = []
    for function in functions:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                torch.set_num_threads(1)  # those of the parent are not in its child, which would wait for them
                function()
                code = 0
            except BaseException:  # noqa: BLE001 - a child must not go on in its parent's code
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    if any([os.waitpid(child, 0)[1] for child in children]):
        raise RuntimeError("a rank failed")


def remove(*names):
    """A damage: files that are lost."""
    return lambda folder: [os.remove(os.path.join(folder, name)) for name in names]


def edit(name, change):
    """A damage: CHANGE gets the object in a file of metadata."""
    def damage(folder):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            metadata = pickle.load(file)
        change(metadata)
        with open(path, "wb") as file:
            pickle.dump(metadata, file)
    return damage
