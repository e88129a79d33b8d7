# SPDX-License-Identifier: Apache-2.0
"""Sharded checkpoints, read under another sharding strategy, without a mount.

    with reshard.View("src", src_strategy="a.ckpt", dst_strategy="b.ckpt") as view:
        with reshard.open(view, "rank_3/checkpoint_3.ckpt") as file:
            data = file.read()

    state = reshard.load("src", rank=3, framework="torch", src_strategy="a.ckpt", dst_strategy="b.ckpt")

View opens a checkpoint, reshard.open a file of it; view.tensors and reshard.load read its tensors, and safe_open has the
interface of safetensors. reshard.torch has a StorageReader for torch.distributed.checkpoint, reshard.filesystem the
protocol "reshard" of fsspec. ReshardError is an OSError whose text says what to do.
"""
import importlib
from typing import Any

from ._library import ReshardError, features, library_version
from .loading import load
from .safetensors import safe_open
from .view import Entry, File, RawFile, Stat, Summary, View, open

__all__ = ["Entry", "File", "RawFile", "ReshardError", "Stat", "Summary", "View", "features", "library_version", "load",
           "open", "safe_open"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """The modules that import torch and fsspec, when they are asked for."""
    if name in ("filesystem", "torch"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
