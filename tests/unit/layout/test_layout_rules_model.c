/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random rules against a slow model. A rule is a list of steps, each of which halves, thirds, … the
 * tensor along one axis by a device axis's coordinate; an optimizer shard cuts what is left by each
 * rank's place among those that ended with the same box. The text is written from the steps, and
 * the model knows nothing of layouts.
 */
#include "support.h"

#include "layout/layout_rules.h"

#include <stdio.h>
#include <string.h>

#define CASES 3000
#define MAX_RANKS 72
#define MAX_DEV 5

struct world {
    uint32_t n_dev, ranks, ndim;
    uint32_t dev[MAX_DEV];
    /* Device axis order[k] cuts tensor axis axis[k]; in this order, so outer to inner. */
    uint32_t n_cuts;
    uint32_t order[MAX_DEV], axis[MAX_DEV];
    uint32_t opt; /* pieces; 0: none */
    bool opt_all; /* written without its number */
    uint64_t shape[4];
};

struct box {
    uint64_t at[4], size[4];
};

static uint32_t coordinate(const struct world *w, uint32_t p, uint32_t rank)
{
    for (uint32_t q = w->n_dev - 1; q > p; q--)
        rank /= w->dev[q];
    return rank % w->dev[p];
}

static bool same_box(const struct world *w, const struct box *a, const struct box *b)
{
    for (uint32_t i = 0; i < w->ndim; i++)
        if (a->at[i] != b->at[i] || a->size[i] != b->size[i])
            return false;
    return true;
}

static void model(const struct world *w, struct box *boxes)
{
    struct box cut[MAX_RANKS];

    for (uint32_t r = 0; r < w->ranks; r++) {
        struct box *box = &cut[r];
        memset(box, 0, sizeof *box);
        memcpy(box->size, w->shape, sizeof w->shape);
        for (uint32_t k = 0; k < w->n_cuts; k++) {
            const uint32_t p = w->order[k], i = w->axis[k];
            box->size[i] /= w->dev[p];
            box->at[i] += coordinate(w, p, r) * box->size[i];
        }
        boxes[r] = *box;
    }
    for (uint32_t r = 0; w->opt > 1 && r < w->ranks; r++) {
        uint32_t place = 0;
        for (uint32_t s = 0; s < r; s++)
            place += same_box(w, &cut[r], &cut[s]);
        boxes[r].size[0] /= w->opt;
        boxes[r].at[0] += place % w->opt * boxes[r].size[0];
    }
}

/* Sizes that whole free axes from the right, or those and a part of the next, can make. */
static void choose_optimizer(struct world *w, const bool *used)
{
    uint32_t sizes[64], n = 0, size = 1;

    for (uint32_t p = w->n_dev; p-- > 0;) {
        if (used[p])
            continue;
        for (uint32_t part = 2; part <= w->dev[p]; part++)
            if (w->dev[p] % part == 0)
                sizes[n++] = size * part;
        size *= w->dev[p];
    }
    w->opt = n > 0 && below(3) > 0 ? sizes[below(n)] : 0;
    w->opt_all = w->opt == size && w->opt > 0 && below(2);
}

static bool random_world(struct world *w)
{
    static const uint32_t extents[] = {1, 2, 2, 2, 3, 4, 6};
    bool used[MAX_DEV] = {false};

    *w = (struct world){.n_dev = 1 + below(MAX_DEV), .ranks = 1, .ndim = 1 + below(4)};
    for (uint32_t p = 0; p < w->n_dev; p++)
        w->ranks *= w->dev[p] = extents[below(sizeof extents / sizeof *extents)];
    if (w->ranks > MAX_RANKS)
        return false;
    for (uint32_t tries = below(7); tries > 0; tries--) {
        const uint32_t p = below(w->n_dev);
        if (used[p])
            continue;
        used[p] = true;
        w->order[w->n_cuts] = p;
        w->axis[w->n_cuts++] = below(w->ndim);
    }
    choose_optimizer(w, used);
    for (uint32_t i = 0; i < w->ndim; i++)
        w->shape[i] = 1 + below(3);
    for (uint32_t k = 0; k < w->n_cuts; k++)
        w->shape[w->axis[k]] *= w->dev[w->order[k]];
    w->shape[0] *= w->opt > 1 ? w->opt : 1;
    return true;
}

static const char *blank(void)
{
    static const char *const blanks[] = {" ", "  ", "\t", " \t "};

    return blanks[below(4)];
}

static const char *separator(bool first)
{
    return first ? "" : below(2) ? "," : " and ";
}

/* The rule, its cuts by tensor axis in a random order, each axis counted from either end. */
static void write_rule(const struct world *w, struct text *text)
{
    const uint32_t begin = below(4);
    bool first = true;

    if (w->opt > 0 && below(2)) {
        putf(text, w->opt_all ? "optimizer" : "optimizer%s%u", blank(), w->opt);
        first = false;
    }
    const bool written = !first;
    for (uint32_t turn = 0; turn < 4; turn++) {
        const uint32_t i = (begin + turn) % 4;
        bool any = false;
        for (uint32_t k = 0; k < w->n_cuts; k++) {
            if (w->axis[k] != i)
                continue;
            if (!any)
                putf(text, "%s%saxis%s%d%sover", separator(first), blank(), blank(),
                     below(2) ? (int)i : (int)i - (int)w->ndim, blank());
            putf(text, "%sd%u", blank(), w->order[k]);
            any = true;
            first = false;
        }
    }
    if (w->opt > 0 && !written) {
        putf(text, w->opt_all ? "%s optimizer" : "%s optimizer %u", separator(first), w->opt);
        first = false;
    }
    if (first)
        putf(text, "whole");
}

static void write_rules(const struct world *w, struct text *text)
{
    putf(text, "axes");
    for (uint32_t p = 0; p < w->n_dev; p++)
        putf(text, "%sd%u=%u", blank(), p, w->dev[p]);
    putf(text, "\n%s%s%s:%s", blank(), below(2) ? "p*" : "[o-q]?ram", blank(), blank());
    write_rule(w, text);
    putf(text, "%s# as it is\n", blank());
}

static void check(const struct world *w)
{
    static const char *const name = "param";
    const struct rfs_layout_rules_use use = {
        .names = &name, .n = 1, .ranks = w->ranks, .ranks_option = "src_ranks"};
    struct text text = {0};
    struct rfs_layout_rules *rules;
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};
    struct rfs_grid grid, again;
    struct box boxes[MAX_RANKS];
    uint64_t slice[4], whole[4];

    write_rules(w, &text);
    if (rfs_layout_rules_parse("r", text.data, text.n, &rules, &err) != 0 ||
        rfs_layout_rules_strategy(rules, &use, NULL, &strategy, &err) != 0 ||
        rfs_grid_resolve(rfs_strategy_layout(strategy, 0, 0), w->ndim, w->shape, RFS_DIMS_OF_WHOLE,
                         &grid, NULL, slice, RFS_NOWHERE, &err) != 0)
        fail_msg("%s: %s", text.data, err.text);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);
    assert_int_equal(rfs_grid_resolve(layout, w->ndim, slice, RFS_DIMS_OF_SLICE, &again, whole,
                                      NULL, RFS_NOWHERE, NULL),
                     0);
    assert_memory_equal(&again, &grid, sizeof again);
    assert_memory_equal(whole, w->shape, w->ndim * sizeof *whole);
    model(w, boxes);
    for (uint32_t r = 0; r < w->ranks; r++) {
        uint32_t cell[RFS_GRID_DIMS];
        rfs_grid_cell(&grid, r, cell);
        for (uint32_t i = 0; i < w->ndim; i++)
            if (slice[i] != boxes[r].size[i] || cell[i] * slice[i] != boxes[r].at[i])
                fail_msg("rank %u, axis %u of:\n%s", r, i, text.data);
        const uint32_t other = below(w->ranks);
        assert_int_equal(rfs_layout_slice(layout, r) == rfs_layout_slice(layout, other),
                         same_box(w, &boxes[r], &boxes[other]));
    }
    rfs_strategy_free(strategy);
    rfs_layout_rules_free(rules);
    text_free(&text);
}

static void rules_cut_as_the_model_does(void **unused)
{
    uint32_t made = 0, nested = 0, sharded = 0;

    (void)unused;
    seed_random();
    while (made < CASES) {
        struct world w;
        if (!random_world(&w))
            continue;
        check(&w);
        for (uint32_t k = 1; k < w.n_cuts; k++)
            nested += w.axis[k] == w.axis[0];
        sharded += w.opt > 1;
        made++;
    }
    printf("%u rules: %u nested, %u with an optimizer shard\n", made, nested, sharded);
    assert_true(nested > CASES / 10 && sharded > CASES / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_cut_as_the_model_does)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
