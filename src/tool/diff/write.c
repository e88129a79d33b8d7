/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/diff/diff.h"

#include "tool/common/table.h"

#include <math.h>

static const struct rfs_column columns[] = {
    {"", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"name", RFS_CELL_TEXT},
    {"state", RFS_CELL_TEXT | RFS_FOR_SCRIPTS},
    {"dtype", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"dtype_a", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"dtype_b", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"shape", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"shape_a", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"shape_b", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"bytes_equal", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"differ", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"count", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"equal", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"beyond", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"max abs", RFS_CELL_NUMBER},
    {"max rel", RFS_CELL_NUMBER},
    {"NaN", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"nan_a", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"nan_b", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"cosine", RFS_CELL_NUMBER},
};
enum { NUMBERS = 9 }; /* columns from count on */

struct counts {
    size_t same, different, only[2];
};

/* For people one value for both sides, or "A → B"; for scripts both, QUOTED as strings. */
static void add_both(struct rfs_table *table, const struct rfs_pair *pair, bool other,
                     const char *a, const char *b, bool quoted)
{
    const char *of[2] = {a, b};

    rfs_table_add(table, "%s%s%s", pair->of[0] ? a : b, other ? " → " : "", other ? b : "");
    for (int side = 0; side < 2; side++)
        if (pair->of[side])
            rfs_table_add(table, quoted ? "\"%s\"" : "%s", of[side]);
        else
            rfs_table_none(table, "");
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
    add_both(table, pair, pair->other_dtype, dtype[0], dtype[1], true);
    add_both(table, pair, pair->other_shape, shape[0], shape[1], false);
}

static void add_values(struct rfs_table *table, const struct rfs_pair *pair)
{
    const struct rfs_comparison *found = &pair->found;
    const bool numbers = pair->read && found->numbers > 0;
    const double cosine = rfs_compare_cosine(found);

    if (pair->read)
        rfs_table_bool(table, pair->other_bytes == 0);
    else
        rfs_table_none(table, "");
    if (numbers)
        rfs_table_u64(table, found->numbers - found->same);
    else
        rfs_table_text(table, pair->other_bytes > 0 ? "bytes" : "");
    for (int i = 0; !numbers && i < NUMBERS; i++)
        rfs_table_none(table, "");
    if (!numbers)
        return;
    rfs_table_u64(table, found->numbers);
    rfs_table_u64(table, found->same);
    rfs_table_u64(table, found->beyond);
    rfs_table_real(table, 3, found->most);
    rfs_table_real(table, 3, found->most_relative);
    if (found->nan_a == found->nan_b)
        rfs_table_u64(table, found->nan_a);
    else
        rfs_table_add(table, "%" PRIu64 " → %" PRIu64, found->nan_a, found->nan_b);
    rfs_table_u64(table, found->nan_a);
    rfs_table_u64(table, found->nan_b);
    if (isnan(cosine))
        rfs_table_none(table, "-");
    else
        rfs_table_real(table, 9, cosine);
}

static void add_row(struct rfs_table *table, const struct rfs_pair *pair, bool same)
{
    static const struct {
        const char *sign, *word;
    } states[] = {{"-", "only_a"}, {"+", "only_b"}, {"=", "same"}, {"!", "different"}};
    const int state = !pair->of[1] ? 0 : !pair->of[0] ? 1 : same ? 2 : 3;

    rfs_table_text(table, states[state].sign);
    rfs_table_text(table, rfs_pair_name(pair));
    rfs_table_text(table, states[state].word);
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

void rfs_diff_write(const struct rfs_diff *diff)
{
    const bool json = diff->options->json;
    struct rfs_table table = RFS_TABLE(columns, json);
    struct counts counts = {0};

    for (size_t i = 0; i < diff->pairs.n; i++) {
        const struct rfs_pair *pair = &diff->pairs.data[i];
        const bool same = rfs_pair_is_same(diff->options, pair);
        counts.same += same;
        counts.different += !same && pair->of[0] && pair->of[1];
        counts.only[0] += !pair->of[1];
        counts.only[1] += !pair->of[0];
        if (json || !same || diff->options->all)
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
