/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layouts apply to a parameter, and so whether it is cut, copied or left out. All of it
 * follows from the two strategies and the user's map. The source strategy knows a parameter by its
 * name, the destination's by the name that it is shown by, or else by its own.
 *
 * The rules are those of transform_checkpoints in MindSpore 2.10 (parallel/checkpoint_transform.py
 * and parallel/_parallel_serialization.py), described in doc/SEMANTICS.md. Thread-safe. O(1) each;
 * rfs_role_look_up_all O(parameters).
 */
#pragma once

#include "base/intern.h"
#include "layout/strategy.h"
#include "plan/names.h"

/* The strategies and the map, borrowed. NULL: a side that is not sharded; names as they are. */
struct rfs_role_rules {
    const struct rfs_strategy *src, *dst;
    const struct rfs_names *names;
};

enum rfs_role_kind { RFS_ROLE_SLICED, RFS_ROLE_COPIED, RFS_ROLE_DROPPED };

/*
 * A parameter that the user's map leaves out has the role that it would have otherwise: stages,
 * ranks and the order are as if it were there, so that the rest of the file does not depend on it.
 * But nothing of it has to be right: it may be damaged, lost, or not fit the strategies.
 */
struct rfs_role {
    enum rfs_role_kind kind;
    const char *shown;   /* the name in the destination's file; NULL: left out by the user's map */
    bool in_src, in_dst; /* that strategy has it at all */
    const struct rfs_layout *src, *dst; /* the strategies' */
};

/*
 * A name in the source, as the strategies and the map know it. It is looked up once: the functions
 * that take it look up no name.
 */
struct rfs_role_name {
    /* as rfs_role.shown; the pointer of the name itself if it is shown by its own */
    const char *shown;
    /* positions in the strategies; RFS_NO_ID: it is not there, or there is no strategy */
    uint32_t src, dst;
};
/*
 * Looks up the parameters of the source strategy, by their positions in it; *out is the caller's to
 * free. Refuses two strategies without a common parameter. 0, -ENOMEM, or -EINVAL with *err filled.
 */
int rfs_role_look_up_all(const struct rfs_role_rules *rules, struct rfs_role_name **out,
                         struct rfs_error *err);

/* Returns the role of a parameter of a source stage's files in those of a destination stage. */
struct rfs_role rfs_role_of(const struct rfs_role_rules *rules, const struct rfs_role_name *name,
                            uint32_t src_stage, uint32_t dst_stage);
/*
 * Returns the layout of a parameter in a source stage, or in the lowest that has one; NULL when the
 * strategy does not know it.
 */
const struct rfs_layout *rfs_role_source_layout(const struct rfs_role_rules *rules,
                                                const struct rfs_role_name *name,
                                                uint32_t src_stage);
/*
 * Says whether a destination stage takes a parameter of the source strategy from each source stage
 * that has it.
 */
bool rfs_role_is_needed(const struct rfs_role_rules *rules, const struct rfs_role_name *name,
                        uint32_t dst_stage);
