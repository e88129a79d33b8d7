/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: the members of a strategy. */
#pragma once

#include "base/intern.h"
#include "layout/strategy.h"

/* A parameter in a stage. While reading, seq is its place in the file. */
struct rfs_placement {
    uint32_t param;
    uint32_t stage;
    uint32_t layout;
    uint32_t seq;
};

struct rfs_strategy {
    char *name;
    struct rfs_intern *params; /* id = position */
    struct rfs_intern *edges;  /* of manual splits */
    size_t n_params;
    uint32_t *first; /* parameter i's placements are first[i] … first[i+1]-1, ascending by stage */
    struct rfs_placement *placements;
    struct rfs_layout *layouts;
    size_t n_layouts;
    uint32_t stages;
    uint32_t devices;
    uint32_t first_item_stage;
    bool has_items; /* strategy items; the first is in first_item_stage */
    bool prefixed;  /* a name had a stage before it */
    bool by_rules;
};
