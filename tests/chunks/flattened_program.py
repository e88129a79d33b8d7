# SPDX-License-Identifier: Apache-2.0
"""A Megatron-Core that flattens the state of its optimizer, as all did before 0.14: it saves and loads the format
torch_dist. Usage: flattened_program.py save|load FOLDER, with the tensors in JSON on the standard input:

    {NAME: {"shape": […], "front": axes in front, of which each rank has all, "pieces": [of each axis],
            "cuts": [where the elements of each piece are divided over ranks]}}

A tensor has numbers from 0 on as its values. Each rank is a process; load compares what each of them gets.
"""
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import sys
import tempfile
import traceback
import types
import warnings

warnings.filterwarnings("ignore")

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.checkpoint import filesystem  # noqa: E402

sys.path[:0] = [os.environ["RFS_FLATTENING_MEGATRON"], os.environ["RFS_MEGATRON"]]


def keep(old, **changes):
    """dataclasses.replace, but for Megatron's field of the metadata, which torch before 2.6 did not lose."""
    new = dataclasses.replace(old, **changes)
    if hasattr(old, "mcore_data"):
        new.mcore_data = old.mcore_data
    return new


def places(spec):
    """[(piece, range)] of the ranks: pieces along the axes behind those in front."""
    pieces = spec["pieces"][spec["front"]:]
    return [(own, r) for own in itertools.product(*map(range, pieces)) for r in range(len(spec["cuts"]) + 1)]


def sharded(name, spec, rank, empty):
    """{key: ShardedTensor} of a rank."""
    from megatron.core.dist_checkpointing import ShardedTensor
    front, counts = spec["front"], spec["pieces"]
    full = torch.arange(math.prod(spec["shape"]), dtype=torch.float32).reshape(spec["shape"])
    side = [n // parts for n, parts in zip(spec["shape"], counts)]
    out = {}
    for step in itertools.product(*map(range, counts[:front])):
        own, r = places(spec)[rank]
        at = step + own
        piece = full[tuple(slice(i * n, (i + 1) * n) for i, n in zip(at, side))].reshape(side[front:])
        ends = [0, *spec["cuts"], piece.numel()]
        data = piece.reshape(-1)[ends[r]:ends[r + 1]].clone()
        out[f"{name}/{step}"] = ShardedTensor.from_rank_offsets_flat(
            name, torch.zeros_like(data) if empty else data, tuple(piece.shape),
            *[(axis, i, n) for axis, (i, n) in enumerate(zip(at, counts)) if axis < front or n > 1],
            flattened_range=slice(ends[r], ends[r + 1]), prepend_axis_num=front)
    return out


def state(tensors, rank, empty):
    out = {}
    for name, spec in tensors.items():
        if rank < len(places(spec)):
            out.update(sharded(name, spec, rank, empty))
    return out


def as_rank(what, folder, tensors, rank, world, store):
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    with multiprocessing.get_context("fork").Manager() as manager:
        filesystem_async._results_queue = manager.Queue()
        dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
        if what == "save":
            if rank == 0:
                os.makedirs(folder)
            dist.barrier()
            dist_checkpointing.save({"iteration": 1, **state(tensors, rank, False)}, folder,
                                    validate_access_integrity=False)
        else:
            have = dist_checkpointing.load(state(tensors, rank, True), folder, validate_access_integrity=False)
            for key, value in state(tensors, rank, False).items():
                if not torch.equal(have[key], value.data):
                    sys.exit(f"rank {rank}: {key} is {have[key].tolist()}")
        dist.barrier()
        dist.destroy_process_group()


def main():
    what, folder = sys.argv[1:]
    tensors = json.load(sys.stdin)
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    numpy.product = numpy.prod  # of an older numpy
    filesystem.dataclasses = types.SimpleNamespace(**{**vars(dataclasses), "replace": keep})
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    filesystem_async._process_memory = lambda: 0
    world = max(len(places(spec)) for spec in tensors.values())
    failed = False
    with tempfile.TemporaryDirectory() as store:
        ranks = []
        for rank in range(world):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                status = 1
                try:
                    as_rank(what, folder, tensors, rank, world, os.path.join(store, "store"))
                    status = 0
                except BaseException:
                    traceback.print_exc()
                sys.stderr.flush()
                os._exit(status)
        for rank in ranks:
            failed |= os.waitpid(rank, 0)[1] != 0
    sys.exit(failed)


main()
