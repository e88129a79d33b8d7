# SPDX-License-Identifier: Apache-2.0
"""Any source for torch.distributed.checkpoint.load.

    dcp.load(state_dict, storage_reader=reshard.torch.StorageReader("src", src_strategy="a.ckpt"))
"""
from __future__ import annotations

import os
from typing import Any, Union

import torch
from torch.distributed.checkpoint import StorageReader as Reader
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, TensorProperties,
                                                   TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.futures import Future

from .loading import Opened
from .tensors import Target, Tensor, Torch
from .view import Option

_MEMORY = Torch()


class StorageReader(Reader):
    """Gives dcp.load the whole tensors of a view of SOURCE; options are those of View, without a destination.

    Each process opens a view of its own and reads the boxes that it needs, straight into tensors in the memory of the
    processor. Values that are not tensors are not there, so dcp.load refuses a state dict that has some. It can be pickled,
    and used after a fork.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], **options: Option) -> None:
        self._opened = Opened(source, None, options)

    def reset(self, checkpoint_id: Any = None) -> None:
        """Called when a load begins. The source is given to the constructor."""
        if checkpoint_id is not None and os.fspath(checkpoint_id) != self._opened.source:
            raise ValueError(f"checkpoint_id is {checkpoint_id}, but the reader reads {self._opened.source}")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    def read_metadata(self, *_arguments: Any, **_named: Any) -> Metadata:
        """Each tensor as one chunk: a reader of boxes needs no other division."""
        state: dict[str, Any] = {}
        for tensor in self._opened.tensors.values():
            if tensor.kind == "str" or not hasattr(torch, tensor.dtype):
                continue
            size = torch.Size(tensor.shape)
            state[tensor.name] = TensorStorageMetadata(
                TensorProperties(dtype=_MEMORY.dtype(tensor)), size,
                [ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)])
        return Metadata(state)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_arguments: Any, **_named: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads all boxes of the plan by one call."""
        tensors = self._opened.tensors
        targets = []
        for item in plan.items:
            if item.type != LoadItemType.TENSOR:
                raise ValueError(f"{item.storage_index.fqn} is not a tensor in {self._opened.source}")
            tensor: Tensor = tensors[item.storage_index.fqn]
            target = planner.resolve_tensor(item).detach()
            begin = list(item.storage_offsets)
            box = begin, [a + n for a, n in zip(begin, item.lengths)]
            if tuple(target.shape) != tuple(item.lengths):
                raise ValueError(f"{tensor.name}: the place for it has the shape {list(target.shape)}, not {list(item.lengths)}")
            if target.device.type == "meta":
                raise ValueError(f"{item.dest_index.fqn} is on the device meta, without memory that could be filled; try: "
                                 "model.to_empty(device=\"cpu\") before")
            targets.append(Target(item.dest_index.fqn, tensor, box, target))
        tensors._fill_all(_MEMORY, targets)
        for item, target in zip(plan.items, targets):
            planner.commit_tensor(item, target.array)
        done: Future[None] = Future()
        done.set_result(None)
        return done
