/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/matrices.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/common/svg.h"
#include "tool/explain/ranges.h"

#define TIMES 32 /* groups of rows that are drawn one by one; of more, the hull has stripes */
#define MOST 4096
#define PLAIN (RFS_SVG_COLOURS / 2)

static void matrices_free(struct matrices *m)
{
    for (size_t i = 0; i < m->owned.n; i++)
        free(m->owned.data[i].ranks.data);
    free(m->owned.data);
    free(m->tensors.data);
    free(m->drawn.data);
    free(m->origins.data);
    free(m->title);
    free(m->subtitle);
}

/* ---- tensors as matrices --------------------------------------------------------------------- */

int rfs_matrix_line(const struct rfs_type *type, uint32_t axis)
{
    return type->ndim > 1 && axis == type->ndim - 1u ? COLS : ROWS;
}

uint64_t rfs_matrix_scale(const struct rfs_type *type, uint32_t axis)
{
    uint64_t rows = 1;

    for (uint32_t a = axis + 1; rfs_matrix_line(type, axis) == ROWS && a + 1 < type->ndim; a++)
        rows *= type->dims[a];
    return rows;
}

uint64_t rfs_matrix_size(const struct rfs_type *type, int line)
{
    uint64_t n = 1;

    for (uint32_t a = 0; a < type->ndim; a++)
        n *= rfs_matrix_line(type, a) == line ? type->dims[a] : 1;
    return n > 0 ? n : 1; /* empty tensors are drawn, too */
}

static struct region whole(const struct rfs_type *type)
{
    return (struct region){.to = {rfs_matrix_size(type, ROWS), rfs_matrix_size(type, COLS)}};
}

/* ---- parts as regions ------------------------------------------------------------------------ */

/* A digit of a part, above 1 in count, in the matrices of both sides. */
struct digit {
    uint64_t count, step[2], now;
    int line[2];
    bool dense; /* its steps leave no gap on either side */
};

struct digits {
    uint32_t n;
    struct digit data[RFS_RULES_DIGITS];
    struct region first[2];
};

static void read_digits(const struct matrices *m, const struct rfs_explained_part *part,
                        const struct rfs_type *const *types, struct digits *out)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(m->explain->plans.converted);

    *out = (struct digits){.n = 0};
    for (int side = 0; side < 2; side++)
        for (uint32_t a = 0; a < types[side]->ndim; a++)
            out->first[side].from[rfs_matrix_line(types[side], a)] +=
                map->ats.data[part->link->at[side] + a] * rfs_matrix_scale(types[side], a);
    for (uint32_t k = 0; k < part->link->n; k++) {
        const struct rfs_rules_digit *of = &map->digits.data[part->link->digits + k];
        struct digit digit = {.count = part->span.end[k] - part->span.first[k], .dense = true};
        for (int side = 0; side < 2; side++) {
            digit.line[side] = rfs_matrix_line(types[side], of->axis[side]);
            digit.step[side] = of->step[side] * rfs_matrix_scale(types[side], of->axis[side]);
            out->first[side].from[digit.line[side]] += part->span.first[k] * digit.step[side];
        }
        if (digit.count > 1)
            out->data[out->n++] = digit;
    }
}

/*
 * How many lines the dense digits of a side are, if those that are not dense stay where they are.
 */
static uint64_t extent(struct digits *digits, int side, int line, bool *changed)
{
    bool seen[RFS_RULES_DIGITS] = {false};
    uint64_t lines = 1;

    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < digits->n; k++) {
            const struct digit *digit = &digits->data[k];
            if (seen[k] || !digit->dense || digit->line[side] != line || digit->step[side] != lines)
                continue;
            lines *= digit->count;
            seen[k] = more = true;
        }
    }
    for (uint32_t k = 0; k < digits->n; k++)
        if (!seen[k] && digits->data[k].dense && digits->data[k].line[side] == line) {
            digits->data[k].dense = false;
            *changed = true;
        }
    return lines;
}

/* Sets the regions of one value of the other digits; ALL: of all their values. */
static void place(struct digits *digits, bool all, struct region *at)
{
    for (int side = 0; side < 2; side++) {
        at[side] = digits->first[side];
        for (int line = 0; line < 2; line++) {
            bool changed = false;
            at[side].to[line] = extent(digits, side, line, &changed);
        }
        for (uint32_t k = 0; k < digits->n; k++) {
            const struct digit *digit = &digits->data[k];
            if (digit->dense)
                continue;
            at[side].from[digit->line[side]] += digit->now * digit->step[side];
            if (all)
                at[side].to[digit->line[side]] += (digit->count - 1) * digit->step[side];
        }
        for (int line = 0; line < 2; line++)
            at[side].to[line] += at[side].from[line];
    }
}

static bool next(struct digits *digits)
{
    for (uint32_t k = 0; k < digits->n; k++) {
        if (digits->data[k].dense)
            continue;
        if (++digits->data[k].now < digits->data[k].count)
            return true;
        digits->data[k].now = 0;
    }
    return false;
}

/* ---- parts to be drawn ----------------------------------------------------------------------- */

static void put_line(FILE *out, const struct region *at, const struct region *all, int line)
{
    if (at->from[line] == 0 && at->to[line] == all->to[line])
        fputs(":", out);
    else
        fprintf(out, "%" PRIu64 ":%" PRIu64, at->from[line], at->to[line]);
}

static bool is_transposed(const struct digits *digits)
{
    bool any = false;

    for (uint32_t k = 0; k < digits->n; k++)
        any = any || digits->data[k].line[RFS_MADE] != digits->data[k].line[RFS_SOURCE];
    return any;
}

/* "rank 3 [0:16, :]", the place in the source; of rows that take turns, that of all. */
static void set_label(const struct matrices *m, const struct rfs_explained_part *part,
                      const struct rfs_type *type, bool turns, struct drawn *drawn)
{
    const struct region all = whole(type);
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fprintf(out, "%s %" PRIu32, m->explain->words->source, part->rank);
    fputs(type->ndim > 0 ? " [" : "", out);
    for (uint32_t a = 0; (turns || type->ndim > 2) && a < type->ndim; a++) {
        struct rfs_made_axis axis;
        rfs_made_axis(m->explain, part, RFS_SOURCE, a, &axis);
        fputs(a > 0 ? ", " : "", out);
        rfs_made_put_axis(out, &axis, type->dims[a]);
    }
    for (uint32_t a = 0; !turns && type->ndim <= 2 && a < type->ndim; a++) {
        fputs(a > 0 ? ", " : "", out);
        put_line(out, &drawn->at[RFS_SOURCE], &all, rfs_matrix_line(type, a));
    }
    fputs(type->ndim > 0 ? "]" : "", out);
    RFS_FREE char *text = rfs_printed_end(&shown);
    snprintf(drawn->label, sizeof drawn->label, "%s", text);
}

static size_t tensor_of(struct matrices *m, const struct rfs_explained_part *part)
{
    const struct rfs_target *target = rfs_made_source(m->explain, part);

    for (size_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.data[i].source == part->link->source)
            return i;
    const struct tensor tensor = {
        .source = part->link->source,
        .type = rfs_catalog_type(m->explain->plans.catalog, target->type),
    };
    return RFS_PUSH(&m->tensors, tensor) ? m->tensors.n - 1 : SIZE_MAX;
}

static bool colour_of(struct matrices *m, const struct rfs_explained_part *part, uint32_t *colour)
{
    const struct origin origin = {part->link->source, part->rank};

    for (*colour = 0; *colour < m->origins.n; ++*colour)
        if (memcmp(&m->origins.data[*colour], &origin, sizeof origin) == 0)
            return true;
    return RFS_PUSH(&m->origins, origin);
}

static int add_part(struct matrices *m, const struct rfs_explained_part *part,
                    struct rfs_error *err)
{
    struct drawn drawn = {.tensor = tensor_of(m, part)};
    struct digits digits;
    uint64_t times = 1;
    bool changed = true;

    if (drawn.tensor == SIZE_MAX || !colour_of(m, part, &drawn.colour))
        return rfs_fail_memory(err);
    const struct rfs_type *types[2] = {m->made, m->tensors.data[drawn.tensor].type};
    read_digits(m, part, types, &digits);
    while (changed) {
        changed = false;
        for (int side = 0; side < 2; side++)
            for (int line = 0; line < 2; line++)
                extent(&digits, side, line, &changed);
    }
    for (uint32_t k = 0; k < digits.n; k++)
        if (!digits.data[k].dense && !rfs_mul_u64(times, digits.data[k].count, &times))
            times = TIMES + 1;
    const bool turns = times > TIMES;
    m->turns = m->turns || turns;
    drawn.transposed = is_transposed(&digits);
    m->transposed = m->transposed || drawn.transposed;
    drawn.colour = drawn.colour % PLAIN + (turns ? PLAIN : 0);
    do {
        place(&digits, turns, drawn.at);
        set_label(m, part, types[RFS_SOURCE], turns, &drawn);
        if (!RFS_PUSH(&m->drawn, drawn))
            return rfs_fail_memory(err);
    } while (!turns && next(&digits));
    if (m->drawn.n <= MOST)
        return 0;
    return rfs_fail(
        err, -E2BIG, RFS_OF(rfs_catalog_path(m->explain->plans.catalog), m->explain->param),
        "the text, or --json", "has %zu pieces; at most %d can be drawn", m->drawn.n, MOST);
}

static void name(struct matrices *m, const struct rfs_explained *slice)
{
    const struct rfs_explain *explain = m->explain;
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    m->made = &slice->made->type;
    fputs(rfs_dtype_name((enum rfs_dtype)slice->type->dtype), out);
    if (slice->type->dtype != slice->shown->dtype)
        fprintf(out, " to %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    fputc(' ', out);
    rfs_put_dims(out, m->made->ndim, m->made->dims);
    fprintf(out, ", made by %s: line %" PRIu32 ", from %" PRIu32 " %s to %" PRIu32,
            rfs_path_name(slice->made->file), slice->made->line, explain->n_sources,
            explain->words->sources, explain->plans.n_ranks);
    if (explain->one)
        fprintf(out, "; the slice of %s %" PRIu32, explain->words->one, slice->rank);
    m->subtitle = rfs_printed_end(&shown);
    m->title = rfs_printed_memory(strdup(slice->shown_name));
}

/* The slice that is the box K of a rank; *IS_NEW: no rank before it has the same. */
static bool own(struct matrices *m, const struct rfs_explained *slice, size_t k, bool *is_new)
{
    struct rfs_box box = {.at = {0}};
    size_t i = 0;

    memcpy(box.len, m->made->dims, sizeof box.len);
    if (slice->boxes.n > 0)
        box = slice->boxes.data[k];
    while (i < m->owned.n && memcmp(&m->owned.data[i].box, &box, sizeof box) != 0)
        i++;
    *is_new = i == m->owned.n;
    if (*is_new && !RFS_PUSH(&m->owned, (struct owned){.box = box}))
        return false;
    return RFS_PUSH(&m->owned.data[i].ranks, slice->rank);
}

static int collect(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct matrices *m = ctx;
    bool any = false;
    int rc = 0;

    if (!m->title)
        name(m, slice);
    for (size_t k = 0; k < (slice->boxes.n > 0 ? slice->boxes.n : 1); k++) {
        bool is_new;
        if (!own(m, slice, k, &is_new))
            return rfs_fail_memory(err);
        any = any || is_new;
    }
    for (size_t i = 0; any && rc == 0 && i < slice->parts.n; i++) {
        m->bytes += rfs_block_source_bytes(&slice->parts.data[i].block);
        rc = add_part(m, &slice->parts.data[i], err);
    }
    return rc;
}

int rfs_explain_converted_picture(struct rfs_explain *explain, struct rfs_error *err)
{
    RFS_CLEANUP(matrices_free) struct matrices m = {.explain = explain};
    FILE *out;
    int rc = rfs_explain_each(explain, collect, &m, err) ?: rfs_svg_open(explain->svg, &out, err);

    if (rc)
        return rc;
    rfs_matrices_draw(&m, out);
    return rfs_svg_close(explain->svg, out, err);
}
