/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of a verification (inspect.h), for the view. */
#pragma once

#include "view/inspect.h"

/* Initialises zeroed findings. 0 or -ENOMEM; to be freed in any case. */
int rfs_findings_init(struct rfs_findings *findings);
/* Frees what the findings own. */
void rfs_findings_free(struct rfs_findings *findings);

/*
 * Adds a finding; copies detail. Findings of one kind, name, rank and detail are one, at the first
 * byte; without a rank, one in each file. From any thread, before they are sorted.
 */
void rfs_findings_add(struct rfs_findings *findings, const struct rfs_finding *finding);
