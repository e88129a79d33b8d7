/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of HyperParallel's distributed checkpoint, MindSpore's library for dynamic graphs, which
 * also runs on PyTorch:
 *
 *     .metadata             the pickle that formats/dcp/dcp_metadata.c draws, or, of a save without
 *     0.metadata            collectives, one of each rank; before April 2026 .rank0_metadata
 *     _rank0_.safetensors   the tensors that a rank saved, under their keys: a safetensors file or,
 *                           from PyTorch before April 2026, a file of torch.save
 *     _rank0_.bytes         pickles of values that are no tensors, end to end; before April 2026 a
 *                           file for each, NAME_rank0.bytes. No such value is read.
 *
 * A box that several ranks saved is read from one of them, and the others are its further copies.
 *
 * Cost of opening: that of dcp.h, for all files of metadata together. Locating a chunk reads the
 * header of its file, for all chunks of that file at once.
 */
#pragma once

#include "formats/chunks/chunks.h"
#include "formats/seen.h"

/* Opens a folder whose files of metadata are the files that are registered. */
rfs_chunks_open_fn rfs_hyper_parallel_open;
/* The names in such a folder, and what they mean (seen.h). */
extern const struct rfs_seen_kind rfs_hyper_parallel_seen;

/* Says whether a checkpoint is of this format. */
bool rfs_hyper_parallel_owns(const struct rfs_chunks *chunks);
