/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of sweeps (inspect.h), for the view. */
#pragma once

#include "plan/slice.h"
#include "view/inspect.h"

/* Makes a worker for other work on a sweep's items. NULL when out of memory. */
struct rfs_sweep_worker *rfs_sweep_worker_new(const struct rfs_sweep *sweep);
void rfs_sweep_worker_free(const struct rfs_sweep *sweep, struct rfs_sweep_worker *worker);
