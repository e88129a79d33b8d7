/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of `reshard info` about a tree, and the parts of its output. Not thread-safe. */
#pragma once

#include "layout/layout_rules.h"
#include "tool/common/headers.h"
#include "tool/info/info.h"

/* A parameter over all ranks, by the id of its name. */
struct rfs_info_param {
    const struct rfs_type *type; /* of the first rank that has it; NULL: none has */
    uint64_t bytes;              /* over all ranks */
    uint32_t ranks;
    bool shapes, types; /* differ between ranks */
};

struct rfs_info_tree {
    struct rfs_info_args *args;
    struct rfs_report *report;
    struct rfs_catalog *catalog;
    struct rfs_headers headers;
    struct rfs_info_param *params; /* owned, as the next members */
    struct rfs_rows rows;
    struct rfs_strategy *strategy;
    struct rfs_fit fit;
    struct rfs_error *err;
};

/*
 * Adds up the headers, and lists the parameters that the filter lets pass. 0 or -errno with
 * tree->err filled.
 */
int rfs_info_tree_count(struct rfs_info_tree *tree);
/* The table of parameters; with a strategy, of whole tensors and how they are cut. */
void rfs_info_tree_params(struct rfs_info_tree *tree);
/*
 * Adds to the report's findings the missing and odd files that no strategy has named already;
 * READABLE: the headers were read. False when out of memory.
 */
bool rfs_info_tree_odd(struct rfs_info_tree *tree, bool readable);
