/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of ranks as they are written: "0-63,70". */
#pragma once

#include "base/error.h"
#include "base/vec.h"

/* Which ranks: "0-63,70". None at all: every one. */
struct rfs_ranks {
    struct rfs_rank_range {
        uint32_t first, last;
    } * data;
    size_t n, cap;
};

/* TEXT is one list, appended to *out. 0, -EINVAL or -ENOMEM. */
int rfs_ranks_parse(const char *text, struct rfs_ranks *out);
void rfs_ranks_free(struct rfs_ranks *ranks);
/*
 * Refuses those that are not among N: "BEFOREthere is no rank 9 of 4", where BEFORE names the
 * option, if that is not plain. A mistake of usage.
 */
int rfs_ranks_check(const struct rfs_ranks *ranks, uint32_t n, const char *before,
                    struct rfs_error *err);
/* Whether RANK is in the list. */
bool rfs_ranks_has(const struct rfs_ranks *ranks, uint32_t rank);

/* N ascending ranks as such a list, malloc'ed; all of them. */
char *rfs_ranks_text(const uint32_t *ranks, size_t n);
