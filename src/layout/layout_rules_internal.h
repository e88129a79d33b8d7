/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: parsed rules, and the layouts made from them. */
#pragma once

#include "base/arena.h"
#include "base/intern.h"
#include "base/vec.h"
#include "layout/builder.h"
#include "layout/grid.h"
#include "layout/layout_rules.h"

#define RULES_ALL "all" /* the device axis when no others are named */
#define RULES_AXIS_NAME 32

/* Pieces of an optimizer shard over all that is left. */
#define RULES_REST UINT32_MAX

struct rule {
    const char *pattern;
    uint32_t line;
    bool literal; /* no character in it means anything but itself */
    /*
     * Tensor axis axis[k] is cut by device axis by[k], a position in the matrix; outer to inner
     * where an axis comes several times.
     */
    uint8_t n_cuts;
    int8_t axis[RFS_MAX_DEVICE_AXES];
    uint8_t by[RFS_MAX_DEVICE_AXES];
    uint32_t optimizer; /* pieces; 0: none */
};

struct rfs_layout_rules {
    char *name;
    struct rfs_arena arena;       /* of patterns */
    struct rfs_intern *literals;  /* literal patterns */
    RFS_VEC(uint32_t) literal_at; /* the first rule of each, a position in rules */

    uint32_t axes_line; /* 0: there is none */
    uint32_t n_dev;     /* 1 without an axes line */
    struct {
        char name[RULES_AXIS_NAME];
        uint32_t extent; /* 0: all ranks */
    } dev[RFS_MAX_DEVICE_AXES];

    uint32_t like_line; /* 0: there is none */
    uint32_t from, to;  /* replicas; 0: they stay */

    RFS_VEC(struct rule) rules;
};

/* -EINVAL with *err filled, about a line of the rules. */
int rfs_layout_rules_fail(const struct rfs_layout_rules *rules, uint32_t line, const char *param,
                          const char *remedy, struct rfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* The layout that a rule gives; DEV is the device matrix with rules->n_dev axes. */
int rfs_layout_rules_layout(const struct rfs_layout_rules *rules, const struct rule *rule,
                            const uint32_t *dev, struct rfs_layout *out, struct rfs_error *err);
/*
 * The layout of the line "like source" for PARAM, which the source strategy gives the layout
 * SOURCE.
 */
int rfs_layout_rules_like(const struct rfs_layout_rules *rules, const struct rfs_layout *source,
                          const char *param, struct rfs_layout *out, struct rfs_error *err);
