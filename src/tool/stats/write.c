/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/stats/stats.h"

#include "tool/common/numbers.h"
#include "tool/common/table.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BARS 16 /* characters of a histogram, at most */

static const struct rfs_column columns[] = {
    {"name", false, false}, {"dtype", false, false},    {"shape", false, false},
    {"min", true, true},    {"max", true, true},        {"mean", true, true},
    {"std", true, true},    {"nan", true, true},        {"inf", true, true},
    {"zeros", true, true},  {"histogram", true, false},
};
static const struct rfs_column json_columns[] = {
    {"name", false, false},  {"dtype", false, false}, {"shape", true, false},
    {"bytes", true, true},   {"count", true, true},   {"rank_own", true, false},
    {"min", true, true},     {"max", true, true},     {"mean", true, true},
    {"std", true, true},     {"nan", true, true},     {"inf", true, true},
    {"neg_inf", true, true}, {"zeros", true, true},   {"histogram", true, false},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- cells ----------------------------------------------------------------------------------- */

static void add_number(struct rfs_table *table, bool json, double value)
{
    if (json && !isfinite(value))
        rfs_table_add(table, "null");
    else
        rfs_table_add(table, json ? "%.17g" : "%.4g", value);
}

/* The least or the greatest; integers as they are. */
static void add_extreme(struct rfs_table *table, bool json, const struct rfs_type *type,
                        const struct rfs_moments *moments, bool max)
{
    const double value = max ? moments->max : moments->min;

    if (type->dtype == RFS_INT64)
        rfs_table_add(table, "%" PRId64, max ? moments->long_max : moments->long_min);
    else if (type->dtype == RFS_UINT64)
        rfs_table_add(table, "%" PRIu64, max ? moments->ulong_max : moments->ulong_min);
    else if (rfs_numbers_are_integers(type))
        rfs_table_add(table, "%.0f", value);
    else
        add_number(table, json, value);
}

static void add_moments(struct rfs_table *table, bool json, const struct rfs_type *type,
                        const struct rfs_moments *moments)
{
    if (moments->finite == 0) {
        for (int i = 0; i < 4; i++)
            rfs_table_add(table, json ? "null" : "-");
    } else {
        add_extreme(table, json, type, moments, false);
        add_extreme(table, json, type, moments, true);
        add_number(table, json, moments->mean);
        add_number(table, json, rfs_moments_deviation(moments));
    }
    rfs_table_add(table, "%" PRIu64, moments->nan);
    if (json) {
        rfs_table_add(table, "%" PRIu64, moments->above);
        rfs_table_add(table, "%" PRIu64, moments->below);
    } else {
        rfs_table_add(table, "%" PRIu64, moments->above + moments->below);
    }
    rfs_table_add(table, "%" PRIu64, moments->zeros);
}

/* ---- histograms ------------------------------------------------------------------------------ */

static bool on_utf8(void)
{
    const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    const bool utf8 = locale && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;

    if (locale)
        freelocale(locale);
    return utf8;
}

/* From the bin of the least number to that of the greatest; what is not 0 is seen. */
static void add_bars(struct rfs_table *table, bool utf8, const struct rfs_moments *moments)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};
    uint64_t bars[BARS] = {0};
    uint64_t most = 1;
    size_t first = 0;
    size_t end = RFS_BINS;
    char text[BARS * 4 + 1] = "";

    while (first < end && moments->bins[first] == 0)
        first++;
    while (end > first && moments->bins[end - 1] == 0)
        end--;
    const size_t each = end > first ? (end - first + BARS - 1) / BARS : 1;
    for (size_t b = first; b < end; b++)
        bars[(b - first) / each] += moments->bins[b];
    for (size_t i = 0; i < BARS; i++)
        most = bars[i] > most ? bars[i] : most;
    for (size_t i = 0; i < (end - first + each - 1) / each; i++) {
        const double height = (double)bars[i] / (double)most;
        const size_t level = (size_t)ceil(height * 8);
        strcat(text, utf8 ? blocks[level] : plain[level]);
    }
    rfs_table_add(table, "%s", text);
}

static void add_bins(struct rfs_table *table, const struct rfs_moments *moments)
{
    const double edge = ldexp(1, moments->exponent);
    char counts[RFS_BINS * 21 + 1];
    size_t n = 0;

    for (size_t b = 0; b < RFS_BINS; b++)
        n += (size_t)snprintf(counts + n, sizeof counts - n, "%s%" PRIu64, b > 0 ? "," : "",
                              moments->bins[b]);
    rfs_table_add(table, "{\"from\":%.17g,\"to\":%.17g,\"counts\":[%s]}", -edge, edge, counts);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_tensor(struct rfs_table *table, bool json, bool utf8,
                       const struct rfs_whole_tensor *tensor, const struct rfs_moments *moments)
{
    const bool numbers = rfs_numbers_each(tensor->type) > 0;
    char shape[RFS_SHAPE_TEXT];

    rfs_table_add(table, "%s", tensor->name);
    rfs_table_add(table, "%s", rfs_whole_dtype(tensor->type));
    rfs_table_add(table, "%s", rfs_whole_shape(tensor->type, shape));
    if (json) {
        rfs_table_add(table, "%" PRIu64, tensor->type->bytes);
        rfs_table_add(table, "%" PRIu64, rfs_numbers_count(tensor->type));
        rfs_table_add(table, tensor->own ? "true" : "false");
    }
    if (numbers) {
        add_moments(table, json, tensor->type, moments);
    } else {
        const size_t cells = (json ? COUNT(json_columns) - 7 : COUNT(columns) - 4);
        for (size_t i = 0; i < cells; i++)
            rfs_table_add(table, json ? "null" : "-");
    }
    if (json && moments->finite > 0)
        add_bins(table, moments);
    else if (json)
        rfs_table_add(table, "null");
    else
        add_bars(table, utf8, moments);
}

static void print_summary(const struct rfs_whole *whole, const struct rfs_moments *moments)
{
    uint64_t numbers = 0;
    uint64_t nan = 0;
    uint64_t infinite = 0;

    for (size_t i = 0; i < whole->n; i++) {
        numbers += rfs_numbers_count(whole->tensors[i].type);
        nan += moments[i].nan;
        infinite += moments[i].above + moments[i].below;
    }
    printf("%s%zu tensor%s, %" PRIu64 " numbers: %" PRIu64 " NaN, %" PRIu64 " infinite\n",
           whole->n > 0 ? "\n" : "", whole->n, whole->n == 1 ? "" : "s", numbers, nan, infinite);
}

void rfs_stats_write(const struct rfs_whole *whole, const struct rfs_moments *moments, bool json)
{
    struct rfs_table table = {.columns = json ? json_columns : columns,
                              .n_columns = json ? COUNT(json_columns) : COUNT(columns)};
    const bool utf8 = !json && on_utf8();

    for (size_t i = 0; i < whole->n; i++)
        add_tensor(&table, json, utf8, &whole->tensors[i], &moments[i]);
    if (json) {
        struct rfs_json_write out = {.file = stdout};
        rfs_json_object(&out, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&out, "path", whole->path);
        rfs_table_put_json(&table, &out, "rows");
        rfs_json_finish(&out);
    } else {
        if (whole->n > 0)
            rfs_table_print(&table, stdout);
        print_summary(whole, moments);
    }
    rfs_table_free(&table);
}
