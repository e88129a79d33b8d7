# SPDX-License-Identifier: Apache-2.0
"""Folders as HyperParallel's distributed checkpoint writes them, of any number of ranks.

The writer here makes the files of both generations, with classes of its own under HyperParallel's names where
HyperParallel is not there. RFS_HYPER_PARALLEL names a folder with its source, if there is one: then its own planners
and its own writer make folders, too, one rank after the other in one process, and its own loader reads them.
"""
import collections
import dataclasses
import importlib
import json
import math
import os
import pickle
import random
import socket
import subprocess
import sys
import types

import torch
from safetensors.torch import load_file, save_file

from dcp_program import As, Boxes, Sharded, piece

SOURCE = os.environ.get("RFS_HYPER_PARALLEL")
OLD, NEW = "checkpoint", "distributed_checkpoint"
if SOURCE:
    sys.path.append(SOURCE)
    os.environ["HYPER_PARALLEL_PLATFORM"] = "torch"


def make(module, name, **fields):
    """A dataclass of a module that is not there; FIELDS: {name: default or ...}, in their order."""
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        if (above := ".".join(parts[:i])) not in sys.modules:
            sys.modules[above] = types.ModuleType(above)
            sys.modules[above].__path__ = []
    rows = [(n, object) if d is ... else (n, object, dataclasses.field(default=d)) for n, d in fields.items()]
    made = dataclasses.make_dataclass(name, rows, frozen="Index" in name)
    made.__module__ = module
    setattr(sys.modules[module], name, made)
    return made


def classes(package):
    """HyperParallel's classes, or ones of the same names and fields."""
    base = f"hyper_parallel.core.{package}"
    try:
        metadata, storage = (importlib.import_module(f"{base}.{m}") for m in ("metadata", "storage"))
        return types.SimpleNamespace(**{**vars(metadata), "StorageInfo": storage.StorageInfo})
    except ImportError:
        pass
    metadata, key = f"{base}.metadata", {"tensor_key": None} if package == NEW else {}
    return types.SimpleNamespace(
        Metadata=make(metadata, "Metadata", state_dict_metadata=..., planner_data=None, storage_data=None, version="1.0"),
        TensorStorageMetadata=make(metadata, "TensorStorageMetadata", properties=..., size=..., chunks=...),
        TensorProperties=make(metadata, "TensorProperties", dtype=..., requires_grad=False, memory_format=None),
        ChunkStorageMetadata=make(metadata, "ChunkStorageMetadata", offsets=..., sizes=...),
        BytesStorageMetadata=make(metadata, "BytesStorageMetadata"),
        MetadataIndex=make(metadata, "MetadataIndex", fqn=..., offset=(), index=None),
        StorageInfo=make(f"{base}.storage", "StorageInfo", relative_path=..., offset=..., length=..., **key))


def boxes_of(value, rank, world):
    """[(offset, tensor)] that a rank has."""
    if isinstance(value, Boxes):
        return [(offset, value.read(offset)) for offset, _ in value.of(rank, world)]
    if not isinstance(value, Sharded):
        return [((0,) * value.full.dim(), value.on(rank, world))]
    local, offset, left, at = value.full, [0] * value.full.dim(), rank, []
    for n in reversed(value.mesh):
        at.insert(0, left % n)
        left //= n
    for n, i, axis in zip(value.mesh, at, value.cuts):
        if axis is not None:
            each = math.ceil(local.shape[axis] / n)
            offset[axis] += min(each * i, local.shape[axis])
            local = piece(local, axis, n, i)
    # HyperParallel cuts evenly. An empty box within the tensor would have the corner of another rank's.
    within = all(o < n for o, n in zip(offset, value.full.shape))
    return [] if within and value.full.numel() and not local.numel() else [(tuple(offset), local)]


MINDSPORE = {"torch.bfloat16": "BFloat16", "torch.uint8": "UInt8", "torch.float8_e4m3fn": "Float8E4M3FN",
             "torch.float8_e5m2": "Float8E5M2"}


@dataclasses.dataclass
class Options:
    generation: str = NEW
    collectives: bool = True
    redundant: bool = False  # all ranks save their copies
    zips: bool = False  # files of torch.save, with pieces that are views of whole tensors
    mindspore: bool = False  # names of element types
    sizes: bool = True  # torch.Size in some places, else tuples

    def dtype(self, tensor):
        name = str(tensor.dtype)
        return MINDSPORE.get(name, name.split(".")[1].capitalize()) if self.mindspore else name


class Rank:
    """What a rank plans, and then its files."""

    def __init__(self, rank, world, items, options, made):
        self.rank, self.options, self.made = rank, options, made
        self.tensors = [(fqn, value, offset, tensor) for fqn, value in items if hasattr(value, "full")
                        for offset, tensor in boxes_of(value, rank, world)]
        self.objects = [(fqn, value) for fqn, value in items if not hasattr(value, "full")]

    def shape(self, numbers):
        return torch.Size(numbers) if self.options.sizes else tuple(numbers)

    def describe(self, whole):
        """Adds to Metadata.state_dict_metadata; returns the index of each tensor."""
        out = []
        for fqn, value, offset, tensor in self.tensors:
            properties = self.made.TensorProperties(dtype=self.options.dtype(value.full))
            known = whole.setdefault(fqn, self.made.TensorStorageMetadata(properties, self.shape(value.full.shape), []))
            known.chunks.append(self.made.ChunkStorageMetadata(tuple(offset), self.shape(tensor.shape)))
            out.append(self.made.MetadataIndex(fqn, tuple(offset), len(known.chunks) - 1))
        for fqn, _ in self.objects:
            whole[fqn] = self.made.BytesStorageMetadata()
        return out

    def keys(self):
        """The names in the file: chunks of one name are numbered."""
        counts = collections.Counter(fqn for fqn, *_ in self.tensors)
        used, numbers = set(), collections.Counter()
        for fqn, *_ in self.tensors:
            key = fqn
            if counts[fqn] > 1:
                key = f"{fqn}.__dcp_chunk_{numbers[fqn]}"
                numbers[fqn] += 1
                while key in counts or key in used:
                    key += "_"
            used.add(key)
            yield key

    def write(self, folder, indexes):
        """Returns {index: place}."""
        name, out, keys = f"_rank{self.rank}_.safetensors", {}, list(self.keys())
        assert self.options.generation == NEW or keys == [fqn for fqn, *_ in self.tensors]
        content = {key: tensor if self.options.zips else tensor.contiguous().clone()
                   for key, (_, _, _, tensor) in zip(keys, self.tensors)}
        if content and self.options.zips:
            torch.save(content, os.path.join(folder, name))
        elif content:
            save_file(content, os.path.join(folder, name))
        for key, index in zip(keys, indexes):
            more = {"tensor_key": key} if self.options.generation == NEW else {}
            out[index] = self.made.StorageInfo(name, 0, -1, **more)
        for place, data, fqn in self.bytes_items():
            with open(os.path.join(folder, place.relative_path), "ab") as file:
                file.write(data)
            out[self.made.MetadataIndex(fqn)] = place
        return out

    def bytes_items(self):
        at = 0
        for fqn, value in self.objects:
            data = pickle.dumps(value)
            name = f"_rank{self.rank}_.bytes" if self.options.generation == NEW else f"{fqn}_rank{self.rank}.bytes"
            yield self.made.StorageInfo(name, at if self.options.generation == NEW else 0, len(data)), data, fqn
            at += len(data)


def without_copies(ranks, rng):
    """Each box stays with one of the ranks that have it: the lowest, or any."""
    lowest = rng.random() < 0.5
    for which, key in (("tensors", lambda t: (t[0], t[2])), ("objects", lambda o: o[0])):
        holders = collections.defaultdict(list)
        for rank in ranks:
            for item in getattr(rank, which):
                holders[key(item)].append(rank.rank)
        kept = {k: held[0] if lowest else rng.choice(held) for k, held in holders.items()}
        for rank in ranks:
            setattr(rank, which, [i for i in getattr(rank, which) if kept[key(i)] == rank.rank])


def dump(folder, name, made, whole, places, paths):
    with open(os.path.join(folder, name), "wb") as file:
        pickle.dump(made.Metadata(whole, paths, places), file)


def save(folder, world, items, options, seed=""):
    """ITEMS: {path of keys: Sharded, Boxes, Plain, PerRank, or any other value}."""
    os.makedirs(folder, exist_ok=True)
    made, new = classes(options.generation), options.generation == NEW
    named = [(".".join(map(str, path)), value) for path, value in items.items()]
    paths = {fqn: path for (fqn, _), path in zip(named, items)} if new else None
    ranks = [Rank(r, world, named, options, made) for r in range(world)]
    if options.collectives and not options.redundant:
        without_copies(ranks, random.Random(seed))
    whole, places = {}, {}
    for rank in ranks:
        if not options.collectives:
            whole, places = {}, {}
        places.update(rank.write(folder, rank.describe(whole)))
        if not options.collectives:
            dump(folder, f"{rank.rank}.metadata" if new else f".rank{rank.rank}_metadata", made, whole, places, paths)
    if options.collectives:
        dump(folder, ".metadata", made, whole, places, paths)


def read(folder):
    """{name: whole tensor, or object}, of files with metadata of all ranks."""
    classes(NEW)
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        metadata = pickle.load(file)
    files, out = {}, {}
    for fqn, known in metadata.state_dict_metadata.items():
        if hasattr(known, "chunks"):
            dtype = getattr(torch, known.properties.dtype.split(".")[1])
            out[fqn] = torch.zeros(known.size, dtype=dtype)
            assert metadata.planner_data[fqn] == (fqn,) and metadata.version == "1.0"
    for index, place in metadata.storage_data.items():
        path = os.path.join(folder, place.relative_path)
        if index.fqn not in out:
            with open(path, "rb") as file:
                file.seek(place.offset)
                out[index.fqn] = pickle.loads(file.read(place.length))
            continue
        chunk = metadata.state_dict_metadata[index.fqn].chunks[index.index]
        if path not in files:
            files[path] = load_file(path)
        tensor = files[path].pop(place.tensor_key)
        assert (chunk.offsets, chunk.sizes, place.length) == (index.offset, tuple(tensor.shape), -1)
        out[index.fqn][tuple(slice(a, a + n) for a, n in zip(chunk.offsets, chunk.sizes))] = tensor
    assert not any(files.values()), "tensors that the metadata lacks"
    return out


# ---- HyperParallel itself ----


class AnyModule(pickle.Unpickler):
    """Finds classes of the package that this version does not have in the one that it has."""

    def find_class(self, module, name):
        return super().find_class(module.replace(f".{NEW}.", f".{OLD}."), name)


def reader(folder):
    """Its FileSystemReader; files of safetensors are read by their keys, as its later versions read them."""
    from hyper_parallel.core.checkpoint import filesystem_storage as storage
    from hyper_parallel.core.checkpoint.util import narrow_tensor_by_index

    class Reader(storage.FileSystemReader):
        def load_metadata(self, **given):
            rank = given.get("rank")
            if rank is not None:
                return super().load_metadata(**given)
            with open(os.path.join(folder, ".metadata"), "rb") as file:
                return AnyModule(file).load()

        def execute_read(self, plan, planner):
            for item in plan.items:
                info = self.storage_data[item.storage_index]
                path = os.path.join(folder, info.relative_path)
                if path.endswith(".bytes"):
                    with open(path, "rb") as file:
                        file.seek(info.offset)
                        planner.apply_bytes(item, file.read(info.length))
                    continue
                with open(path, "rb") as file:
                    zips = file.read(4) == b"PK\3\4"
                content = torch.load(path) if zips else load_file(path)
                tensor = content[getattr(info, "tensor_key", None) or item.storage_index.fqn]
                target = planner.acquire_tensor(item)
                target.copy_(narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths))

    return Reader(folder)


def placed(full, mesh, cuts, rank):
    """A DTensor of its, cut evenly."""
    from hyper_parallel import DTensor
    from hyper_parallel.core import device_mesh as meshes
    from hyper_parallel.core.placement_types import Replicate, Shard
    from hyper_parallel.platform import platform as groups
    for known in (meshes._DEVICE_MESH_MAP, meshes._group_map, groups.EXISTING_COMM_GROUPS):
        known.clear()  # of the rank before, which was in this process, too
    names = tuple(f"axis{i}" for i in range(len(mesh)))
    device_mesh = meshes.init_device_mesh(device_type="cpu", mesh_shape=tuple(mesh), mesh_dim_names=names)
    (_, local), = boxes_of(Sharded(full, mesh, cuts), rank, math.prod(mesh))
    return DTensor.from_local(local.contiguous().clone(), device_mesh,
                              [Replicate() if axis is None else Shard(axis) for axis in cuts])


def state(items, rank, world):
    return {".".join(path): placed(v.full, v.mesh, v.cuts, rank) if isinstance(v, Sharded) else
            v.on(rank, world).clone() if hasattr(v, "full") else v for path, v in items.items()}


def save_by_program(folder, world, items, redundant=False, minimum=False):
    """Its planners and its writer, as save() of its calls them, but rank after rank."""
    from hyper_parallel.core.checkpoint.filesystem_storage import FileSystemWriter
    from hyper_parallel.core.checkpoint.standard_planner import StandardSavePlanner
    ranks, plans = [], []
    for rank in range(world):
        with As(rank, world):
            planner, writer = StandardSavePlanner(), FileSystemWriter(folder)
            planner.configure_planner(state_dict=state(items, rank, world), is_coordinator=rank == 0, rank=rank,
                                      remove_redundancy=not redundant, save_to_minimum_rank=minimum)
            writer.configure_writer(is_coordinator=rank == 0, rank=rank, use_collectives=True)
            plans.append(planner.build_local_plan())
            ranks.append((planner, writer))
    plans, metadata = ranks[0][0].build_global_plan(plans)
    results = [writer.execute_write(planner.finalize_plan(plan), planner) for plan, (planner, writer) in zip(plans, ranks)]
    ranks[0][1].finalize_checkpoint(metadata, results)


def load_by_program(folder, items, world=1):
    """{path: tensor or value} that its loader reads as WORLD ranks, which cut axis 0 where that can be, put together."""
    out = {}
    for rank in range(world):
        with As(rank, world):
            into = blank(items, rank, world)
            load_as_rank(into, folder, rank)
            collect(out, into)
    return joined(out, items)


def blank(items, rank, world):
    """What is to be loaded by a rank."""
    out = {}
    for path, v in items.items():
        zeros = torch.zeros_like(v.full) if hasattr(v, "full") else None
        cut = world > 1 and zeros is not None and zeros.dim() > 0 and zeros.shape[0] % world == 0
        out[".".join(path)] = placed(zeros, (world,), [0], rank) if cut else zeros
    return out


def collect(out, loaded):
    """Adds what a rank has loaded to {name: list of pieces, or a value}."""
    for fqn, value in loaded.items():
        if hasattr(value, "to_local"):
            out.setdefault(fqn, []).append(value.to_local())
        else:
            out[fqn] = value


def joined(out, items):
    return {path: torch.cat(have) if isinstance(have := out[".".join(path)], list) and hasattr(v, "full") else have
            for path, v in items.items()}


def load_as_rank(into, folder, rank):
    """Its load(), without the exchange of plans, which changes none."""
    from hyper_parallel.core.checkpoint.standard_planner import StandardLoadPlanner
    planner, read = StandardLoadPlanner(), reader(folder)
    metadata = read.load_metadata()
    planner.configure_planner(state_dict=into, metadata=metadata, is_coordinator=rank == 0, rank=rank)
    read.configure_reader(metadata=metadata, is_coordinator=rank == 0, rank=rank, use_collectives=True)
    read.execute_read(planner.finalize_plan(planner.build_local_plan()), planner)


# ---- in a process for each rank ----


def be_rank(world, port, verb, folder, file, options, rank):
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from hyper_parallel.core.checkpoint import load, save as save_all
    items = torch.load(file, weights_only=False)
    if verb == "save":
        save_all(state(items, rank, world), checkpoint_id=folder, **options)
    else:
        into = blank(items, rank, world)
        load(into, checkpoint_id=folder, storage_reader=reader(folder))
        out = {}
        collect(out, into)
        torch.save(out, f"{file}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


def in_processes(verb, folder, world, items, scratch, **options):
    """Its save() or load() in WORLD processes. Returns what was loaded."""
    file = os.path.join(scratch, "items.pt")
    torch.save(items, file)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-B", __file__, str(world), str(port), verb, folder, file, json.dumps(options)]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(world)]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"{verb} in {world} processes: {said}")
    out = {}
    for rank in range(world if verb == "load" else 0):
        for fqn, value in torch.load(f"{file}.{rank}", weights_only=False).items():
            if isinstance(value, list):
                out.setdefault(fqn, []).extend(value)
            else:
                out[fqn] = value
    return joined(out, items) if verb == "load" else None


if __name__ == "__main__":
    be_rank(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6], json.loads(sys.argv[6]), int(sys.argv[7]))
