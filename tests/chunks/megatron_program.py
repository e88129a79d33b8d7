# SPDX-License-Identifier: Apache-2.0
"""Megatron's dist_checkpointing, which saves and loads the format torch_dist, in one process or several with torch's gloo.
Only what it asks of a graphics card is answered here.
"""
import os
import queue
import random
import sys
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

sys.path.insert(0, os.environ["RFS_MEGATRON"])


def start(store=None, rank=0, ranks=1):
    """Once for all cases, or as one of several processes with a STORE."""
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store or dist.HashStore(), timeout=timedelta(seconds=60))
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    # Its writer asks for a process that passes results on, and for psutil to log how much memory it takes.
    filesystem_async._process_memory = lambda: 0
    filesystem_async._results_queue = queue.Queue()


class Layers:
    """A weight of several layers, FULL with an axis in front of it for them, and how the others are cut: {axis: parts}."""

    def __init__(self, full, cuts):
        self.full, self.cuts = full, cuts

    def describe(self):
        return f"layers, cuts {self.cuts}"

    def pieces(self):
        """(its bytes, where it lies), one for each place."""
        boxes = [([], self.full[layer]) for layer in range(self.full.shape[0])]
        places = [[(0, layer, self.full.shape[0])] for layer in range(self.full.shape[0])]
        parts = [box for _, box in boxes]
        for axis, n in self.cuts.items():
            parts, places = ([p for part in parts for p in torch.chunk(part, n, dim=axis)],
                             [place + [(axis + 1, i, n)] for place in places for i in range(n)])
        return list(zip(parts, places))


class Object:
    """A value of each layer that is not a tensor."""

    def __init__(self, values):
        self.values = values

    def describe(self):
        return f"objects {self.values}"


def sharded(items, empty):
    """The state dict that is saved, or with EMPTY tensors the one that is loaded into."""
    from megatron.core.dist_checkpointing import ShardedTensor
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    out = {}
    for key, value in items.items():
        if isinstance(value, Layers):
            for i, (part, place) in enumerate(value.pieces()):
                data = torch.zeros_like(part) if empty else part.clone()
                out[f"{key}/{i}"] = ShardedTensor.from_rank_offsets(key, data.contiguous(), *place, prepend_axis_num=1)
        elif isinstance(value, Object):
            for i, one in enumerate(value.values):
                out[f"{key}/{i}"] = ShardedObject(key, None if empty else one, (len(value.values),), (i,))
        elif not empty:
            out[key] = value  # for common.pt
    return out


def save(root, iteration, items):
    from megatron.core import dist_checkpointing
    folder = os.path.join(root, f"iter_{iteration:07d}")
    os.makedirs(folder)
    dist_checkpointing.save(sharded(items, False), folder)
    with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write(str(iteration))
    return folder


def load(folder, items):
    """What it reads as the pieces of ITEMS, and what is in common.pt: both by key."""
    from megatron.core import dist_checkpointing
    return dist_checkpointing.load(sharded(items, True), folder)


def save_legacy(root, iteration, whole, tp):
    """
    As --ckpt-format torch saves it: a folder of each tensor-parallel rank. {name: (tensor, cut)}, where CUT is an axis, "gated"
    or None.
    """
    import argparse
    from megatron.core.enums import ModelType
    from megatron.core.transformer.enums import AttnBackend

    args = argparse.Namespace(tensor_model_parallel_size=tp, model_type=ModelType.encoder_or_decoder,
                              attention_backend=AttnBackend.auto, params_dtype=torch.float32)
    folder = os.path.join(root, f"iter_{iteration:07d}")
    for rank in range(tp):
        model = {name: part(tensor, cut, rank, tp).clone() for name, (tensor, cut) in whole.items()}
        at = os.path.join(folder, f"mp_rank_{rank:02d}")
        os.makedirs(at)
        state = {"args": args, "checkpoint_version": 3.0, "iteration": iteration, "model": {**model, "layer._extra_state": None},
                 "rng_state": [{"random_rng_state": random.getstate(), "rng_tracker_states": {}}]}
        torch.save(state, os.path.join(at, "model_optim_rng.pt"))
        torch.save({0: {torch.float32: [{"param": torch.zeros(3)}]}}, os.path.join(at, "distrib_optim.pt"))
    with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write(str(iteration))


def part(tensor, cut, rank, tp):
    """A rank's part; of gate and up, one behind the other, that of each."""
    if cut == "gated":
        return torch.cat([half.chunk(tp)[rank] for half in tensor.chunk(2)])
    return tensor if cut is None else tensor.chunk(tp, dim=cut)[rank]
