/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/std.h"

struct rfs_assembler;
struct rfs_slice;

/* The reader has reached the piece: cancels its job if it has not begun. */
void rfs_ahead_cancel(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      uint64_t number);

/* Drops the queued jobs. */
void rfs_ahead_drop(struct rfs_assembler *assembler);
/* The same, and waits until nothing is being made. */
void rfs_ahead_stop(struct rfs_assembler *assembler);
