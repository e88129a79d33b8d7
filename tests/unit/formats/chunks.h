/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a checkpoint that describes itself, opened again and again by one reader of it. */
#ifndef TEST_CHUNKS_H
#define TEST_CHUNKS_H

#include "formats/chunks/chunks.h"
#include "tests/unit/store/tree.h"

#include <stdlib.h>

struct world {
    struct tree tree;
    struct lines lines;
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_chunks *chunks;
    struct rfs_error err;
    unsigned n; /* files, for the test's own use */
};

static inline int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);

    if (!w)
        return -1;
    tree_new(&w->tree);
    lines_init(&w->lines);
    *state = w;
    return 0;
}

static inline void world_end(struct world *w)
{
    rfs_chunks_free(w->chunks);
    w->chunks = NULL;
    if (!w->files)
        return;
    rfs_files_free(w->files);
    tables_free(&w->tables);
    w->files = NULL;
}

/* Then files are added, and opened. */
static inline void world_begin(struct world *w)
{
    world_end(w);
    w->files = rfs_files_new(NULL);
    w->tables = tables_new();
    w->err = (struct rfs_error){0};
}

static inline int world_teardown(void **state)
{
    struct world *w = *state;

    world_end(w);
    tree_remove(&w->tree);
    free(w);
    return 0;
}

#endif
