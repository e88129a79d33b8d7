/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both strategy parsers: an odd first byte means JSON, an even one protobuf. What parses is
 * resolved against tensors that its own layouts suggest, and the grid's promises are checked. It is
 * merged, too.
 */
#include "layout/grid.h"
#include "layout/stages.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

FUZZ_GOALS("a strategy of protobuf", "a strategy of JSON");

static void check_grid(const struct rfs_grid *grid)
{
    uint32_t cell[RFS_GRID_DIMS], again[RFS_GRID_DIMS];
    const uint32_t ranks[] = {0, grid->ranks / 3, grid->ranks - 1};

    for (unsigned k = 0; k < sizeof ranks / sizeof *ranks; k++) {
        rfs_grid_cell(grid, ranks[k], cell);
        for (uint32_t i = 0; i < grid->ndim; i++)
            REQUIRE(cell[i] < grid->pieces[i]);
        REQUIRE(rfs_grid_holder(grid, cell, ranks[k]) == ranks[k]);
        const uint32_t other = rfs_grid_replica(grid, ranks[k], grid->replicas - 1);
        REQUIRE(other < grid->ranks);
        rfs_grid_cell(grid, other, again);
        for (uint32_t i = 0; i < grid->ndim; i++)
            REQUIRE(again[i] == cell[i]);
    }
}

/* The pieces of axis 0 lie one after the other, and a manual split's are what the layout says. */
static void check_rows(const struct rfs_layout *layout, const struct rfs_grid *grid,
                       const uint64_t *whole)
{
    uint64_t at = 0, dims[RFS_GRID_DIMS];
    const uint32_t ranks[] = {0, grid->ranks / 3, grid->ranks - 1};

    if (grid->ndim == 0 || whole[0] == 0)
        return;
    for (uint32_t k = 0; k < grid->pieces[0] && k < 1000; k++) {
        REQUIRE(rfs_grid_begin(grid, whole, 0, k) == at);
        REQUIRE(rfs_grid_piece(grid, whole, 0, at) == k);
        at += rfs_grid_length(grid, whole, 0, k);
        REQUIRE(rfs_grid_piece(grid, whole, 0, at - 1) == k);
    }
    REQUIRE(grid->pieces[0] > 1000 || at == whole[0]);
    for (unsigned k = 0; layout->edge != NULL && k < sizeof ranks / sizeof *ranks; k++) {
        rfs_grid_slice(grid, whole, ranks[k], dims);
        REQUIRE(dims[0] == rfs_layout_rows(layout, ranks[k]));
    }
}

static void resolve(const struct rfs_layout *layout, uint32_t ndim, uint64_t extent)
{
    uint64_t dims[RFS_GRID_DIMS], whole[RFS_GRID_DIMS], slice[RFS_GRID_DIMS];
    struct rfs_grid grid;
    struct rfs_error err = {0};

    for (uint32_t i = 0; i < ndim; i++)
        dims[i] = i < layout->n_expanded && extent == 0 ? layout->expanded[i] : extent;
    for (int meaning = RFS_DIMS_OF_SLICE; meaning <= RFS_DIMS_OF_WHOLE; meaning++) {
        if (rfs_grid_resolve(layout, ndim, dims, (enum rfs_dims_of)meaning, &grid, whole, slice,
                             RFS_NOWHERE, &err) != 0)
            continue;
        for (uint32_t i = 0; i < ndim; i++) {
            const bool split = i == 0 && grid.edge != NULL;
            REQUIRE(split || slice[i] * (grid.pieces[i] / (i == 0 ? grid.rounds : 1)) == whole[i]);
            REQUIRE(split || dims[i] == (meaning == RFS_DIMS_OF_SLICE ? slice[i] : whole[i]));
        }
        check_grid(&grid);
        check_rows(layout, &grid, whole);
    }
}

/*
 * The file alone, as one of several: refused, or the same parameters in as many stages as there
 * were.
 */
static void merge_alone(const char *name, const uint8_t *data, size_t size,
                        const struct rfs_strategy *strategy)
{
    struct rfs_stages *merge;
    struct rfs_strategy *merged = NULL;
    struct rfs_error err = {0};

    REQUIRE(rfs_stages_new("folder", &merge, &err) == 0);
    if (rfs_stages_add(merge, name, data, size, &err) == 0 &&
        rfs_stages_add(merge, name, data, size, &err) == 0 &&
        rfs_stages_finish(merge, &merged, &err) == 0) {
        REQUIRE(rfs_strategy_stages(merged) == 1 && rfs_strategy_stages(strategy) == 1);
        REQUIRE(rfs_strategy_count(merged) == rfs_strategy_count(strategy));
        REQUIRE(rfs_strategy_layouts(merged) <= rfs_strategy_layouts(strategy));
    }
    rfs_strategy_free(merged);
    rfs_stages_free(merge);
}

/* Every other name is shown by another, and none is lost by that. */
static const char *shown(const void *ctx, const char *name)
{
    (void)ctx;
    return strlen(name) % 2 ? name : name + 1;
}

/* Read once more it is the same, by its digest; and what is renamed is found by its new name. */
static void check_digest(const char *name, const uint8_t *data, size_t size,
                         const struct rfs_strategy *strategy)
{
    struct rfs_strategy *again;
    uint64_t digests[2][2];

    REQUIRE(rfs_strategy_parse(name, data, size, &again, NULL) == 0);
    REQUIRE(rfs_strategy_digest(strategy, digests[0]) == 0);
    REQUIRE(rfs_strategy_digest(again, digests[1]) == 0);
    REQUIRE(memcmp(digests[0], digests[1], sizeof digests[0]) == 0);
    REQUIRE(rfs_strategy_rename(again, shown, NULL) == 0);
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++)
        REQUIRE(rfs_strategy_find(again, shown(NULL, rfs_strategy_param(strategy, i))) >= 0);
    rfs_strategy_free(again);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_strategy *strategy;
    struct rfs_error err = {0};

    if (size == 0)
        return;
    const char *name = data[0] % 2 ? "s.json" : "s.ckpt";
    if (rfs_strategy_parse(name, data + 1, size - 1, &strategy, &err) != 0)
        return;
    merge_alone(name, data + 1, size - 1, strategy);
    check_digest(name, data + 1, size - 1, strategy);
    REQUIRE(rfs_strategy_stages(strategy) > 0 && rfs_strategy_devices(strategy) > 0);
    fuzz_reached(data[0] % 2);
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++) {
        bool found = false;
        REQUIRE(rfs_strategy_find(strategy, rfs_strategy_param(strategy, i)) == (ptrdiff_t)i);
        for (uint32_t stage = 0; stage < rfs_strategy_stages(strategy) && stage < 8; stage++) {
            const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, stage);
            if (layout == NULL)
                continue;
            found = true;
            REQUIRE(layout->devices == rfs_strategy_devices(strategy));
            for (uint32_t ndim = 0; ndim <= layout->n_axes && ndim <= RFS_GRID_DIMS; ndim++) {
                resolve(layout, ndim, 0);
                resolve(layout, ndim, 1);
                resolve(layout, ndim, layout->devices);
                if (layout->edge != NULL)
                    resolve(layout, ndim, layout->edge[layout->n_edges - 1]);
                if (layout->field > 0)
                    resolve(layout, ndim, (uint64_t)layout->field * layout->devices);
            }
        }
        REQUIRE(found || rfs_strategy_stages(strategy) > 8);
    }
    rfs_strategy_free(strategy);
}
