/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a mount since it began, as the hidden folder's files have them.
 *
 * Threads: all functions.
 */
#pragma once

#include "mount/internal.h"

/* Writes stats.json. 0. */
int rfs_counters_json(const struct rfs_mount *m, FILE *out);
/*
 * Writes the same in Prometheus' text format, version 0.0.4: names begin with reshardfs_, those of
 * counters end in _total, the duration of reads is a histogram in seconds, and each sample has the
 * mount point as a label, so that those of several mounts can stand in one file. 0 or -ENOMEM.
 */
int rfs_counters_metrics(const struct rfs_mount *m, FILE *out);
