/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last lines of the log, to be read later. Older lines make room.
 *
 * Threads: all functions; the ring has a leaf lock. Cost: RFS_RING_BYTES; unused pages take no
 * memory.
 */
#pragma once

#include "base/std.h"
#include "reshard.h"

#define RFS_RING_BYTES (256u << 10)

/* Adds "2026-01-31T12:00:00Z warning: LINE". */
void rfs_ring_add(enum reshard_level level, const char *line);
/*
 * All whole lines that are there, each with its newline: owned by the caller. NULL when out of
 * memory.
 */
char *rfs_ring_copy(size_t *bytes);
