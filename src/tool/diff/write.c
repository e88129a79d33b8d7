/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/diff/diff.h"

#include "tool/common/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct rfs_column columns[] = {
    {"", false, false},      {"name", false, false}, {"dtype", false, false},
    {"shape", false, false}, {"differ", true, true}, {"max abs", true, true},
    {"max rel", true, true}, {"NaN", true, true},    {"cosine", true, true},
};
static const struct rfs_column json_columns[] = {
    {"name", false, false},       {"state", false, false},  {"dtype_a", true, false},
    {"dtype_b", true, false},     {"shape_a", true, false}, {"shape_b", true, false},
    {"bytes_equal", true, false}, {"count", true, true},    {"equal", true, true},
    {"beyond", true, true},       {"max_abs", true, true},  {"max_rel", true, true},
    {"nan_a", true, true},        {"nan_b", true, true},    {"cosine", true, true},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

struct counts {
    size_t same, different, only[2];
};

/* ---- for people ------------------------------------------------------------------------------ */

/* One value for both sides, or "A → B". */
static void add_both(struct rfs_table *table, const struct rfs_pair *pair, bool other,
                     const char *a, const char *b)
{
    if (other)
        rfs_table_add(table, "%s → %s", a, b);
    else
        rfs_table_add(table, "%s", pair->of[0] ? a : b);
}

static void add_headers(struct rfs_table *table, const struct rfs_pair *pair)
{
    const char *dtype[2] = {"", ""};
    char shape[2][RFS_SHAPE_TEXT] = {"", ""};

    for (int side = 0; side < 2; side++) {
        if (!pair->of[side])
            continue;
        dtype[side] = rfs_whole_dtype(pair->of[side]->type);
        rfs_whole_shape(pair->of[side]->type, shape[side]);
    }
    add_both(table, pair, pair->other_dtype, dtype[0], dtype[1]);
    add_both(table, pair, pair->other_shape, shape[0], shape[1]);
}

static void add_values(struct rfs_table *table, const struct rfs_pair *pair)
{
    const struct rfs_comparison *found = &pair->found;

    if (!pair->read || found->numbers == 0) {
        rfs_table_add(table, "%s", pair->other_bytes > 0 ? "bytes" : "");
        for (int i = 0; i < 4; i++)
            rfs_table_add(table, "%s", "");
        return;
    }
    rfs_table_add(table, "%" PRIu64, found->numbers - found->same);
    rfs_table_add(table, "%.3g", found->most);
    rfs_table_add(table, "%.3g", found->most_relative);
    if (found->nan_a == found->nan_b)
        rfs_table_add(table, "%" PRIu64, found->nan_a);
    else
        rfs_table_add(table, "%" PRIu64 " → %" PRIu64, found->nan_a, found->nan_b);
    const double cosine = rfs_compare_cosine(found);
    if (isnan(cosine))
        rfs_table_add(table, "-");
    else
        rfs_table_add(table, "%.9g", cosine);
}

static void add_row(struct rfs_table *table, const struct rfs_pair *pair, bool same)
{
    rfs_table_add(table, "%s", !pair->of[1] ? "-" : !pair->of[0] ? "+" : same ? "=" : "!");
    rfs_table_add(table, "%s", rfs_pair_name(pair));
    add_headers(table, pair);
    add_values(table, pair);
}

static void print_summary(const struct rfs_diff *diff, const struct counts *counts, bool rows)
{
    if (rows)
        putchar('\n');
    if (diff->parts)
        printf("note: of %s the models' tensors were compared, and nothing else\n", diff->parts);
    if (counts->different + counts->only[0] + counts->only[1] == 0)
        printf("%zu tensor%s the same\n", counts->same, counts->same == 1 ? " is" : "s are");
    else
        printf("the same: %zu, different: %zu, only in %s: %zu, only in %s: %zu\n", counts->same,
               counts->different, diff->options->path[0], counts->only[0], diff->options->path[1],
               counts->only[1]);
}

/* ---- for scripts ----------------------------------------------------------------------------- */

static void add_json_number(struct rfs_table *table, double value)
{
    if (isfinite(value))
        rfs_table_add(table, "%.17g", value);
    else
        rfs_table_add(table, "null");
}

static void add_json_row(struct rfs_table *table, const struct rfs_pair *pair, bool same)
{
    const struct rfs_comparison *found = &pair->found;
    const bool numbers = pair->read && found->numbers > 0;
    char shape[RFS_SHAPE_TEXT];

    rfs_table_add(table, "%s", rfs_pair_name(pair));
    rfs_table_add(table, "%s",
                  !pair->of[1]   ? "only_a"
                  : !pair->of[0] ? "only_b"
                  : same         ? "same"
                                 : "different");
    for (int side = 0; side < 2; side++)
        if (pair->of[side])
            rfs_table_add(table, "\"%s\"", rfs_whole_dtype(pair->of[side]->type));
        else
            rfs_table_add(table, "null");
    for (int side = 0; side < 2; side++)
        rfs_table_add(table, "%s",
                      pair->of[side] ? rfs_whole_shape(pair->of[side]->type, shape) : "null");
    rfs_table_add(table, "%s", !pair->read ? "null" : pair->other_bytes == 0 ? "true" : "false");
    if (!numbers) {
        for (int i = 0; i < 8; i++)
            rfs_table_add(table, "null");
        return;
    }
    rfs_table_add(table, "%" PRIu64, found->numbers);
    rfs_table_add(table, "%" PRIu64, found->same);
    rfs_table_add(table, "%" PRIu64, found->beyond);
    add_json_number(table, found->most);
    add_json_number(table, found->most_relative);
    rfs_table_add(table, "%" PRIu64, found->nan_a);
    rfs_table_add(table, "%" PRIu64, found->nan_b);
    add_json_number(table, rfs_compare_cosine(found));
}

static void print_json(const struct rfs_diff *diff, const struct rfs_table *table, bool same)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "a", diff->options->path[0]);
    rfs_json_put_text(&json, "b", diff->options->path[1]);
    rfs_json_put_bool(&json, "same", same);
    rfs_json_put_bool(&json, "models_only", diff->parts != NULL);
    rfs_table_put_json(table, &json, "rows");
    rfs_json_finish(&json);
}

/* ---- both ------------------------------------------------------------------------------------ */

void rfs_diff_write(const struct rfs_diff *diff)
{
    const bool json = diff->options->json;
    struct rfs_table table = {.columns = json ? json_columns : columns,
                              .n_columns = json ? COUNT(json_columns) : COUNT(columns)};
    struct counts counts = {0};

    for (size_t i = 0; i < diff->pairs.n; i++) {
        const struct rfs_pair *pair = &diff->pairs.data[i];
        const bool same = rfs_pair_is_same(diff->options, pair);
        counts.same += same;
        counts.different += !same && pair->of[0] && pair->of[1];
        counts.only[0] += !pair->of[1];
        counts.only[1] += !pair->of[0];
        if (json)
            add_json_row(&table, pair, same);
        else if (!same || diff->options->all)
            add_row(&table, pair, same);
    }
    const bool rows = table.cells.n > 0;
    if (json) {
        print_json(diff, &table, counts.same == diff->pairs.n);
    } else {
        if (rows)
            rfs_table_print(&table, stdout);
        print_summary(diff, &counts, rows);
    }
    rfs_table_free(&table);
}
