/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/stats/stats.h"

#include "tool/common/numbers.h"
#include "tool/common/table.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>

#define BARS 16 /* characters of a histogram, at most */

static const struct rfs_column columns[] = {
    {"name", RFS_CELL_TEXT},
    {"dtype", RFS_CELL_TEXT},
    {"shape", RFS_CELL_JSON},
    {"bytes", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"count", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"rank_own", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
    {"min", RFS_CELL_NUMBER},
    {"max", RFS_CELL_NUMBER},
    {"mean", RFS_CELL_NUMBER},
    {"std", RFS_CELL_NUMBER},
    {"nan", RFS_CELL_NUMBER},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_PEOPLE},
    {"inf", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"neg_inf", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS},
    {"zeros", RFS_CELL_NUMBER},
    {"histogram", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"histogram", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
};
enum { NUMBERS = 9 }; /* columns from min on to zeros */

/* ---- cells ----------------------------------------------------------------------------------- */

/* The least or the greatest; integers as they are. */
static void add_extreme(struct rfs_table *table, const struct rfs_type *type,
                        const struct rfs_moments *moments, bool max)
{
    const double value = max ? moments->max : moments->min;

    if (type->dtype == RFS_INT64)
        rfs_table_add(table, "%" PRId64, max ? moments->long_max : moments->long_min);
    else if (type->dtype == RFS_UINT64)
        rfs_table_u64(table, max ? moments->ulong_max : moments->ulong_min);
    else if (rfs_numbers_are_integers(type))
        rfs_table_add(table, "%.0f", value);
    else
        rfs_table_real(table, 4, value);
}

static void add_moments(struct rfs_table *table, const struct rfs_type *type,
                        const struct rfs_moments *moments)
{
    if (moments->finite == 0) {
        for (int i = 0; i < 4; i++)
            rfs_table_none(table, "-");
    } else {
        add_extreme(table, type, moments, false);
        add_extreme(table, type, moments, true);
        rfs_table_real(table, 4, moments->mean);
        rfs_table_real(table, 4, rfs_moments_deviation(moments));
    }
    rfs_table_u64(table, moments->nan);
    rfs_table_u64(table, moments->above + moments->below);
    rfs_table_u64(table, moments->above);
    rfs_table_u64(table, moments->below);
    rfs_table_u64(table, moments->zeros);
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

/* From the bin of the least number to that of the greatest; a count above 0 is visible. */
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
    rfs_table_text(table, text);
}

static void add_bins(struct rfs_table *table, const struct rfs_moments *moments)
{
    const double edge = ldexp(1, moments->exponent);

    if (moments->finite == 0) {
        rfs_table_none(table, "");
        return;
    }
    FILE *out = rfs_table_cell(table);
    fprintf(out, "{\"from\":%.17g,\"to\":%.17g,\"counts\":[", -edge, edge);
    for (size_t b = 0; b < RFS_BINS; b++)
        fprintf(out, "%s%" PRIu64, b > 0 ? "," : "", moments->bins[b]);
    fputs("]}", out);
    rfs_table_cell_end(table);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_tensor(struct rfs_table *table, bool utf8, const struct rfs_whole_tensor *tensor,
                       const struct rfs_moments *moments)
{
    const struct rfs_type *type = tensor->type;

    rfs_table_text(table, tensor->name);
    rfs_table_text(table, rfs_whole_dtype(type));
    rfs_table_dims(table, type->ndim, type->dims);
    rfs_table_u64(table, type->bytes);
    rfs_table_u64(table, rfs_numbers_count(type));
    rfs_table_bool(table, tensor->own);
    if (rfs_numbers_each(type) > 0)
        add_moments(table, type, moments);
    else
        for (int i = 0; i < NUMBERS; i++)
            rfs_table_none(table, "-");
    add_bars(table, utf8, moments);
    add_bins(table, moments);
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
    struct rfs_table table = RFS_TABLE(columns, json);
    const bool utf8 = !json && on_utf8();

    for (size_t i = 0; i < whole->n; i++)
        add_tensor(&table, utf8, &whole->tensors[i], &moments[i]);
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
