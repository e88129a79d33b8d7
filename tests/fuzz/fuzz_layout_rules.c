/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules. The first byte says for how many ranks; its highest bit, that there is a source strategy
 * to be like. What parses is applied to a few names, and the layouts are resolved on tensors of any
 * number of axes.
 */
#include "layout/grid.h"
#include "layout/layout_rules.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/strategies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a strategy", "a strategy like the source's", "a file of JSON", "a file of protobuf");

#define AXES 2u /* of tensors that are written */

static const char *const names[] = {"embed", "layers.0.q.weight", "layers.0.o.weight", "a-b", "é"};

#define LAYOUT(dev, map, shape, step, size)                                                        \
    "{\"dev_matrix\":" dev ",\"tensor_map\":" map ",\"tensor_shape\":" shape                       \
    ",\"field\":0,\"opt_weight_shard_step\":" step ",\"opt_weight_shard_size\":" size "}"

/* Two stages of eight devices: replicas, an optimizer shard over them, a nested map. */
static const char source_text[] =
    "{\"current_stage\":1,\"parallel_strategy_item\":{},\"parallel_layout_item\":{"
    "\"0-embed\":" LAYOUT("[4,2]", "[0,-1]", "[8,8]", "0",
                          "0") ","
                               "\"0-layers.0.q.weight\":" LAYOUT(
                                   "[4,2]", "[0,-1]", "[8,8]", "2",
                                   "4") ","
                                        "\"1-layers.0.o.weight\":" LAYOUT(
                                            "[2,2,2]", "[1,0,-1]", "[2,4,8]", "0",
                                            "0") ","
                                                 "\"1-a\":" LAYOUT("[8]", "[-1]", "[8]", "0",
                                                                   "0") "}}";

static void resolve(const struct rfs_layout *layout, uint32_t ndim, uint64_t extent)
{
    uint64_t dims[RFS_GRID_DIMS], whole[RFS_GRID_DIMS], slice[RFS_GRID_DIMS];
    uint32_t cell[RFS_GRID_DIMS];
    struct rfs_grid grid;
    struct rfs_error err = {0};

    for (uint32_t i = 0; i < ndim; i++)
        dims[i] = extent;
    for (int meaning = RFS_DIMS_OF_SLICE; meaning <= RFS_DIMS_OF_WHOLE; meaning++) {
        if (rfs_grid_resolve(layout, ndim, dims, (enum rfs_dims_of)meaning, &grid, whole, slice,
                             RFS_IN("f"), &err) != 0) {
            require_refusal(&err);
            continue;
        }
        for (uint32_t i = 0; i < ndim; i++)
            REQUIRE(slice[i] * (grid.pieces[i] / (i == 0 ? grid.rounds : 1)) == whole[i]);
        for (uint32_t rank = 0; rank < grid.ranks; rank += 1 + grid.ranks / 3) {
            rfs_grid_cell(&grid, rank, cell);
            for (uint32_t i = 0; i < ndim; i++)
                REQUIRE(cell[i] < grid.pieces[i]);
            REQUIRE(rfs_grid_holder(&grid, cell, rank) == rank);
        }
    }
}

static void check_strategy(const struct rfs_strategy *strategy, uint32_t ranks)
{
    REQUIRE(ranks == 0 || rfs_strategy_devices(strategy) * rfs_strategy_stages(strategy) == ranks);
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++)
        for (uint32_t s = rfs_strategy_next_stage(strategy, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(strategy, i, s + 1)) {
            const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, s);
            REQUIRE(layout->line > 0);
            for (uint32_t ndim = 0; ndim <= RFS_GRID_DIMS; ndim += ndim < 3 ? 1 : 5) {
                resolve(layout, ndim, 0);
                resolve(layout, ndim, 1);
                resolve(layout, ndim, (uint64_t)layout->devices * (1 + layout->field));
            }
        }
}

/* How a layout cuts a tensor of so many AXES over ranks. False when it cannot. */
static bool cut(const struct rfs_layout *layout, uint32_t axes, struct rfs_grid *grid)
{
    uint64_t dims[RFS_GRID_DIMS], whole[RFS_GRID_DIMS], slice[RFS_GRID_DIMS];
    struct rfs_error err = {0};

    for (uint32_t i = 0; i < axes; i++)
        dims[i] = (uint64_t)layout->devices * (1 + layout->field);
    return rfs_grid_resolve(layout, axes, dims, RFS_DIMS_OF_WHOLE, grid, whole, slice, RFS_IN("f"),
                            &err) == 0;
}

static void require_same_cut(const struct rfs_grid *a, const struct rfs_grid *b)
{
    uint32_t x[RFS_GRID_DIMS], y[RFS_GRID_DIMS];

    REQUIRE(a->ranks == b->ranks);
    for (uint32_t rank = 0; rank < a->ranks; rank += 1 + a->ranks / 3) {
        rfs_grid_cell(a, rank, x);
        rfs_grid_cell(b, rank, y);
        for (uint32_t i = 0; i < AXES; i++)
            REQUIRE(a->pieces[i] == b->pieces[i] && x[i] == y[i]);
    }
}

/* What is read again cuts tensors in the same way, where the file could say so. */
static void require_alike(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    struct rfs_grid x, y;

    REQUIRE(rfs_strategy_count(a) == rfs_strategy_count(b));
    for (size_t i = 0; i < rfs_strategy_count(a); i++) {
        const ptrdiff_t at = rfs_strategy_find(b, rfs_strategy_param(a, i));
        REQUIRE(at >= 0);
        for (uint32_t s = rfs_strategy_next_stage(a, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(a, i, s + 1)) {
            const struct rfs_layout *other = rfs_strategy_layout(b, (size_t)at, s);
            REQUIRE(other);
            if (cut(rfs_strategy_layout(a, i, s), AXES, &x) && cut(other, AXES, &y))
                require_same_cut(&x, &y);
        }
    }
}

static int axes_of(void *ctx, const char *param, uint32_t stage)
{
    (void)ctx;
    (void)param;
    (void)stage;
    return AXES;
}

/* As a file. */
static void write_file(const struct rfs_strategy *strategy, bool json)
{
    const struct rfs_strategy_doc_tensors tensors = {.ndim = axes_of};
    const struct strategy_form form = {json ? "s.json" : "s.ckpt", json};
    struct rfs_strategy *again = NULL;
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};

    rfs_strategy_doc_begin(&doc, form.name);
    if (require_result(rfs_strategy_doc_make(strategy, &tensors, &doc, &err), &err))
        again = strategy_again(&form, rfs_strategy_stages(strategy) > 1, &doc);
    if (again) {
        require_alike(strategy, again);
        fuzz_reached(json ? 2 : 3);
    }
    rfs_strategy_free(again);
    rfs_strategy_doc_free(&doc);
}

/* Numbers of a model; of a key with a "z" there is none. */
static int number(void *ctx, const char *key, uint64_t *value, struct rfs_error *err)
{
    (void)ctx;
    (void)err;
    *value = strlen(key) % 7;
    return strchr(key, 'z') ? -ENOENT : 0;
}

static void apply(const struct rfs_layout_rules *rules, const struct rfs_strategy *source,
                  uint32_t ranks)
{
    const struct rfs_layout_rules_use use = {
        .source = source,
        .names = names,
        .n = sizeof names / sizeof *names,
        .ranks = ranks,
        .ranks_option = "n",
        .number = number,
    };
    struct rfs_strategy *strategy;
    struct rfs_error err = {0};

    if (rfs_layout_rules_strategy(rules, &use, NULL, &strategy, &err) != 0) {
        require_refusal(&err);
        return;
    }
    check_strategy(strategy, ranks);
    fuzz_reached(source != NULL);
    write_file(strategy, true);
    write_file(strategy, false);
    rfs_strategy_free(strategy);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_strategy *source = NULL;
    struct rfs_layout_rules *rules;
    struct rfs_error err = {0};

    if (size == 0)
        return;
    if (rfs_layout_rules_parse("f", (const char *)data + 1, size - 1, &rules, &err) != 0) {
        require_refusal(&err);
        return;
    }
    if (data[0] & 128)
        REQUIRE(rfs_strategy_parse("s.json", source_text, sizeof source_text - 1, &source, NULL) ==
                0);
    apply(rules, source, data[0] % 128);
    rfs_strategy_free(source);
    rfs_layout_rules_free(rules);
}
