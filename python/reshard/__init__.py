# SPDX-License-Identifier: Apache-2.0
"""Sharded checkpoints, read under another sharding strategy, without a mount.

    with reshard.View("src", src_strategy="a.ckpt", dst_strategy="b.ckpt") as view:
        with reshard.open(view, "rank_3/checkpoint_3.ckpt") as file:
            data = file.read()

View opens a checkpoint, reshard.open a file of it. ReshardError is an OSError whose text says what to do. For
fsspec there is the protocol "reshard" (reshard.filesystem).
"""
from ._library import ReshardError, features, library_version
from .view import Entry, File, RawFile, Stat, Summary, View, open

__all__ = ["Entry", "File", "RawFile", "ReshardError", "Stat", "Summary", "View", "features", "library_version", "open"]
__version__ = "1.0.0"
