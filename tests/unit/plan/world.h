/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds in which files of one stage list different parameters, ranks are lost, and no two
 * ranks hold the same bytes, and a slow model that says what each destination file holds. The model
 * looks at one element after the other and knows nothing of the code that it judges.
 */
#ifndef TESTS_UNIT_PLAN_WORLD_H
#define TESTS_UNIT_PLAN_WORLD_H

#include "tests/support/tree.h"

#include <stdbool.h>

#define PARAMS 8 /* the last three are in no source strategy */
#define EXTRA 5
#define STAGES 3
#define DEVICES 12
#define RANKS (STAGES * DEVICES)

/* A layout of one parameter in one stage. */
struct lay {
    bool has;
    uint32_t dev[3];
    int map[2];   /* device axis, from the right, or -1 */
    uint32_t opt; /* pieces of the optimizer shard */
};

struct side {
    bool any; /* false: no strategy */
    uint32_t devices, stages;
    struct lay lay[PARAMS][STAGES];
};

struct world {
    uint64_t random;
    struct side src, dst;
    uint32_t dims[PARAMS][2]; /* 0: no such axis */
    bool same[PARAMS];        /* all ranks have the same bytes (of what no strategy knows) */
    uint32_t order[STAGES][PARAMS];
    bool lost[RANKS];
    bool has[RANKS][PARAMS]; /* in the file of a source rank, lost or not */
};

/* One parameter of an expected file. */
struct wanted {
    uint32_t param;
    uint64_t dims[2];
    unsigned char bytes[48 * 24];
    size_t n;
};

struct box {
    uint32_t lo[2], len[2];
    uint32_t free; /* tells replicas apart */
};
struct box world_box(const struct world *world, const struct lay *lay, uint32_t param,
                     uint32_t rank);

void world_make(struct world *world, uint64_t seed);
/*
 * False when files that list different parameters are of one size: nothing shows that they differ.
 */
bool world_is_plain(const struct world *world);
/* Writes rank_N/net-1_1.ckpt for the ranks that are not lost, in ROOT/src. */
void world_write(const struct world *world, const char *root);
/* The JSON text of a strategy, to be freed. */
char *world_strategy(const struct world *world, const struct side *side);
/* Whether some slice is lost with all its ranks, so that nothing is mounted. */
bool world_is_lost(const struct world *world);
bool world_is_part(const struct world *world);
/*
 * What the file of a destination rank holds, in order; how many, or -1 when it cannot be made.
 */
int world_file(const struct world *world, uint32_t rank, struct wanted *out);

#endif
