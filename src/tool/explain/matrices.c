/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of what conversion rules make: left the source tensors, right the tensor that is made
 * of them, each as a matrix. Equal elements have one colour and label on both sides, also where a
 * rule transposes them. Axes before the last are one axis of rows.
 */
#include "tool/explain/picture.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "tool/common/show.h"
#include "tool/common/svg.h"
#include "tool/explain/source_bytes.h"

#define TIMES 32  /* groups of rows that are drawn one by one; of more, the hull has stripes */
#define MOST 4096 /* drawn pieces; more are refused */
#define PLAIN (RFS_SVG_COLOURS / 2)

#define WIDTH 880.0
#define MARGIN 24.0
#define HEAD 84.0
#define FOOT 58.0
#define LEFT_WIDTH 380.0
#define RIGHT 500.0
#define RIGHT_WIDTH 250.0
#define TITLE 20.0 /* above each source tensor */
#define TENSORS 8  /* of the source; more are not drawn */

/* Rows and columns of a tensor's matrix, from … to, exclusive. */
struct region {
    uint64_t from[2], to[2];
};
enum { ROWS, COLS };

/* A rectangle of elements that is in the matrices of both sides. */
struct drawn {
    size_t tensor; /* index in matrices.tensors */
    uint32_t colour;
    struct region at[2]; /* RFS_MADE, RFS_SOURCE */
    bool transposed;
    char label[96];
};

/* A source tensor. */
struct tensor {
    uint32_t source;
    const struct rfs_type *type;
    double top, height;
};

/* A slice of the destination, and the ranks that have it. */
struct owned {
    struct rfs_box box;
    RFS_VEC(uint32_t) ranks;
};

/* A tensor in one file, whose elements have one colour. */
struct source {
    uint32_t tensor, rank;
};

struct matrices {
    struct rfs_explain *explain;
    const struct rfs_type *made;
    RFS_VEC(struct tensor) tensors;
    RFS_VEC(struct drawn) drawn;
    RFS_VEC(struct owned) owned;
    RFS_VEC(struct source) sources;
    char *title, *subtitle; /* owned */
    uint64_t bytes;
    bool transposed; /* some elements are */
    bool turns;      /* some matrices have stripes */
    double height;   /* height of the made tensor */
};

static void matrices_free(struct matrices *m)
{
    for (size_t i = 0; i < m->owned.n; i++)
        free(m->owned.data[i].ranks.data);
    free(m->owned.data);
    free(m->tensors.data);
    free(m->drawn.data);
    free(m->sources.data);
    free(m->title);
    free(m->subtitle);
}

/* ---- tensors as matrices --------------------------------------------------------------------- */

/* Returns whether an axis is one of rows or of columns: ROWS or COLS. */
static int line_of(const struct rfs_type *type, uint32_t axis)
{
    return type->ndim > 1 && axis == type->ndim - 1u ? COLS : ROWS;
}

/* Returns how many rows, or columns, one step along an axis is. */
static uint64_t scale_of(const struct rfs_type *type, uint32_t axis)
{
    uint64_t rows = 1;

    for (uint32_t a = axis + 1; line_of(type, axis) == ROWS && a + 1 < type->ndim; a++)
        rows *= type->dims[a];
    return rows;
}

/* Returns the number of rows, or of columns. */
static uint64_t size_of(const struct rfs_type *type, int line)
{
    uint64_t n = 1;

    for (uint32_t a = 0; a < type->ndim; a++)
        n *= line_of(type, a) == line ? type->dims[a] : 1;
    return n > 0 ? n : 1; /* empty tensors are drawn, too */
}

static struct region whole(const struct rfs_type *type)
{
    return (struct region){.to = {size_of(type, ROWS), size_of(type, COLS)}};
}

/* ---- pieces as regions ----------------------------------------------------------------------- */

/* A digit of a piece, with a count above 1, in the matrices of both sides. */
struct step {
    uint64_t count, step[2], now;
    int line[2];
    bool dense; /* steps leave no gap on either side */
};

struct steps {
    uint32_t n;
    struct step data[RFS_RULES_DIGITS];
    struct region first[2];
};

static void read_digits(const struct matrices *m, const struct rfs_explained_piece *piece,
                        const struct rfs_type *const *types, struct steps *out)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(m->explain->plans.by_rules);

    *out = (struct steps){.n = 0};
    for (int side = 0; side < 2; side++)
        for (uint32_t a = 0; a < types[side]->ndim; a++)
            out->first[side].from[line_of(types[side], a)] +=
                map->ats.data[piece->link->at[side] + a] * scale_of(types[side], a);
    for (uint32_t k = 0; k < piece->link->n; k++) {
        const struct rfs_rules_digit *of = &map->digits.data[piece->link->digits + k];
        struct step digit = {.count = piece->span.end[k] - piece->span.first[k], .dense = true};
        for (int side = 0; side < 2; side++) {
            digit.line[side] = line_of(types[side], of->axis[side]);
            digit.step[side] = of->step[side] * scale_of(types[side], of->axis[side]);
            out->first[side].from[digit.line[side]] += piece->span.first[k] * digit.step[side];
        }
        if (digit.count > 1)
            out->data[out->n++] = digit;
    }
}

/*
 * Returns how many lines the dense digits of a side span; digits that leave gaps become not dense,
 * and set *changed.
 */
static uint64_t dense_lines(struct steps *digits, int side, int line, bool *changed)
{
    bool seen[RFS_RULES_DIGITS] = {false};
    uint64_t lines = 1;

    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < digits->n; k++) {
            const struct step *digit = &digits->data[k];
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

/* Sets the regions of the current value of the other digits; ALL: the hull of all their values. */
static void set_regions(struct steps *digits, bool all, struct region *at)
{
    for (int side = 0; side < 2; side++) {
        at[side] = digits->first[side];
        for (int line = 0; line < 2; line++) {
            bool changed = false;
            at[side].to[line] = dense_lines(digits, side, line, &changed);
        }
        for (uint32_t k = 0; k < digits->n; k++) {
            const struct step *digit = &digits->data[k];
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

/* Goes to the next value of the digits that are not dense; false after the last. */
static bool next_value(struct steps *digits)
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

/* ---- pieces to be drawn ---------------------------------------------------------------------- */

static void put_line(FILE *out, const struct region *at, const struct region *all, int line)
{
    if (at->from[line] == 0 && at->to[line] == all->to[line])
        fputs(":", out);
    else
        fprintf(out, "%" PRIu64 ":%" PRIu64, at->from[line], at->to[line]);
}

static bool is_transposed(const struct steps *digits)
{
    bool any = false;

    for (uint32_t k = 0; k < digits->n; k++)
        any = any || digits->data[k].line[RFS_MADE] != digits->data[k].line[RFS_SOURCE];
    return any;
}

/* Sets "rank 3 [0:16, :]", an index of the source; rows that take turns have one of all of them. */
static void set_label(const struct matrices *m, const struct rfs_explained_piece *piece,
                      const struct rfs_type *type, bool turns, struct drawn *drawn)
{
    const struct region all = whole(type);
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fprintf(out, "%s %" PRIu32, m->explain->words->source, piece->rank);
    fputs(type->ndim > 0 ? " [" : "", out);
    for (uint32_t a = 0; (turns || type->ndim > 2) && a < type->ndim; a++) {
        struct rfs_explained_axis axis;
        rfs_explained_axis(m->explain, piece, RFS_SOURCE, a, &axis);
        fputs(a > 0 ? ", " : "", out);
        rfs_explained_put_axis(out, &axis, type->dims[a]);
    }
    for (uint32_t a = 0; !turns && type->ndim <= 2 && a < type->ndim; a++) {
        fputs(a > 0 ? ", " : "", out);
        put_line(out, &drawn->at[RFS_SOURCE], &all, line_of(type, a));
    }
    fputs(type->ndim > 0 ? "]" : "", out);
    RFS_FREE char *text = rfs_printed_end(&shown);
    snprintf(drawn->label, sizeof drawn->label, "%s", text);
}

static size_t tensor_of(struct matrices *m, const struct rfs_explained_piece *piece)
{
    const struct rfs_target *target = rfs_explained_source(m->explain, piece);

    for (size_t i = 0; i < m->tensors.n; i++)
        if (m->tensors.data[i].source == piece->link->source)
            return i;
    const struct tensor tensor = {
        .source = piece->link->source,
        .type = rfs_catalog_type(m->explain->plans.catalog, target->type),
    };
    return RFS_PUSH(&m->tensors, tensor) ? m->tensors.n - 1 : SIZE_MAX;
}

static bool colour_of(struct matrices *m, const struct rfs_explained_piece *piece, uint32_t *colour)
{
    const struct source source = {piece->link->source, piece->rank};

    for (*colour = 0; *colour < m->sources.n; ++*colour)
        if (memcmp(&m->sources.data[*colour], &source, sizeof source) == 0)
            return true;
    return RFS_PUSH(&m->sources, source);
}

static int add_piece(struct matrices *m, const struct rfs_explained_piece *piece,
                     struct rfs_error *err)
{
    struct drawn drawn = {.tensor = tensor_of(m, piece)};
    struct steps digits;
    uint64_t times = 1;
    bool changed = true;

    if (drawn.tensor == SIZE_MAX || !colour_of(m, piece, &drawn.colour))
        return rfs_fail_memory(err);
    const struct rfs_type *types[2] = {m->made, m->tensors.data[drawn.tensor].type};
    read_digits(m, piece, types, &digits);
    while (changed) {
        changed = false;
        for (int side = 0; side < 2; side++)
            for (int line = 0; line < 2; line++)
                dense_lines(&digits, side, line, &changed);
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
        set_regions(&digits, turns, drawn.at);
        set_label(m, piece, types[RFS_SOURCE], turns, &drawn);
        if (!RFS_PUSH(&m->drawn, drawn))
            return rfs_fail_memory(err);
    } while (!turns && next_value(&digits));
    if (m->drawn.n <= MOST)
        return 0;
    return rfs_fail(
        err, -E2BIG, RFS_OF(rfs_catalog_path(m->explain->plans.catalog), m->explain->param),
        "the text, or --json", "has %zu pieces; at most %d can be drawn", m->drawn.n, MOST);
}

static void set_title(struct matrices *m, const struct rfs_explained *slice)
{
    const struct rfs_explain *explain = m->explain;
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    m->made = &slice->made->type;
    fputs(rfs_dtype_name((enum rfs_dtype)slice->type->dtype), out);
    if (slice->type->dtype != slice->shown->dtype)
        fprintf(out, " to %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    fputc(' ', out);
    rfs_show_dims(out, m->made->ndim, m->made->dims);
    fprintf(out, ", made by %s: line %" PRIu32 ", from %" PRIu32 " %s to %" PRIu32,
            rfs_path_name(slice->made->file), slice->made->line, explain->n_sources,
            explain->words->sources, explain->plans.n_ranks);
    if (explain->one)
        fprintf(out, "; the slice of %s %" PRIu32, explain->words->one, slice->rank);
    m->subtitle = rfs_printed_end(&shown);
    m->title = rfs_printed_memory(strdup(slice->shown_name));
}

/* Adds the rank to the slice that is its box K; *IS_NEW: no rank before it has that box. */
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
        set_title(m, slice);
    for (size_t k = 0; k < (slice->boxes.n > 0 ? slice->boxes.n : 1); k++) {
        bool is_new;
        if (!own(m, slice, k, &is_new))
            return rfs_fail_memory(err);
        any = any || is_new;
    }
    for (size_t i = 0; any && rc == 0 && i < slice->pieces.n; i++) {
        m->bytes += rfs_explain_block_bytes(&slice->pieces.data[i].block);
        rc = add_piece(m, &slice->pieces.data[i], err);
    }
    return rc;
}

/* ---- drawing --------------------------------------------------------------------------------- */

struct rectangle {
    double x, y, width, height;
};

static struct rectangle project(const struct region *at, const struct rfs_type *type,
                                const struct rectangle *into)
{
    const double across = into->width / (double)size_of(type, COLS);
    const double down = into->height / (double)size_of(type, ROWS);

    return (struct rectangle){into->x + across * (double)at->from[COLS],
                              into->y + down * (double)at->from[ROWS],
                              across * (double)(at->to[COLS] - at->from[COLS]),
                              down * (double)(at->to[ROWS] - at->from[ROWS])};
}

/* Returns where the matrix of a side is drawn. */
static struct rectangle frame(const struct matrices *m, const struct drawn *drawn, int side)
{
    if (side == RFS_MADE)
        return (struct rectangle){RIGHT, HEAD + TITLE, RIGHT_WIDTH, m->height};
    const struct tensor *tensor = &m->tensors.data[drawn->tensor];
    return (struct rectangle){MARGIN, tensor->top, LEFT_WIDTH, tensor->height};
}

/*
 * Sets the heights of tensors by their rows, so that fused tensors can be compared. Returns the
 * height of all.
 */
static double arrange(struct matrices *m)
{
    const size_t n = m->tensors.n < TENSORS ? m->tensors.n : TENSORS;
    const double rows = (double)size_of(m->made, ROWS);
    const double cols = (double)size_of(m->made, COLS);
    double at = HEAD;
    double all = 0;

    m->height = RIGHT_WIDTH * (rows > cols ? 1.6 : rows * 2 < cols ? 0.8 : 1.2);
    for (size_t i = 0; i < n; i++)
        all += (double)size_of(m->tensors.data[i].type, ROWS);
    for (size_t i = 0; i < n; i++) {
        struct tensor *tensor = &m->tensors.data[i];
        tensor->top = at + TITLE;
        tensor->height = m->height * (double)size_of(tensor->type, ROWS) / all;
        tensor->height = tensor->height < 40 ? 40 : tensor->height;
        at = tensor->top + tensor->height + 10;
    }
    at += m->tensors.n > n ? TITLE : 0;
    return at > HEAD + TITLE + m->height ? at : HEAD + TITLE + m->height;
}

static void draw_tensors(const struct matrices *m, FILE *out)
{
    struct rfs_catalog *catalog = m->explain->plans.catalog;
    double at = HEAD;

    for (size_t i = 0; i < m->tensors.n && i < TENSORS; i++) {
        const struct tensor *tensor = &m->tensors.data[i];
        const struct rfs_target *target =
            rfs_by_rules_target(m->explain->plans.by_rules, tensor->source);
        struct rfs_printed shown;
        rfs_show_dims(rfs_printed_begin(&shown), tensor->type->ndim, tensor->type->dims);
        RFS_FREE char *dims = rfs_printed_end(&shown);
        rfs_svg_text(out, MARGIN, tensor->top - 6, "s", "%s %s",
                     rfs_catalog_name(catalog, target->name), dims);
        rfs_svg_rect(out, MARGIN, tensor->top, LEFT_WIDTH, tensor->height, "f");
        at = tensor->top + tensor->height + 10;
    }
    if (m->tensors.n > TENSORS)
        rfs_svg_text(out, MARGIN, at + TITLE - 6, "s", "and %zu more", m->tensors.n - TENSORS);
    rfs_svg_rect(out, RIGHT, HEAD + TITLE, RIGHT_WIDTH, m->height, "f");
}

/* Draws bands of rows from one side to the other; transposed pieces have none. */
static void draw_bands(const struct matrices *m, FILE *out)
{
    for (size_t i = 0; i < m->drawn.n; i++) {
        const struct drawn *drawn = &m->drawn.data[i];
        struct rectangle at[2];
        bool wide = drawn->tensor < TENSORS;
        for (int side = 0; side < 2 && wide; side++) {
            const struct rectangle into = frame(m, drawn, side);
            at[side] =
                project(&drawn->at[side],
                        side == RFS_MADE ? m->made : m->tensors.data[drawn->tensor].type, &into);
            wide = at[side].width > into.width - 0.5;
        }
        if (wide)
            rfs_svg_band(out, MARGIN + LEFT_WIDTH, at[RFS_SOURCE].y,
                         at[RFS_SOURCE].y + at[RFS_SOURCE].height, RIGHT, at[RFS_MADE].y,
                         at[RFS_MADE].y + at[RFS_MADE].height, drawn->colour);
    }
}

static void draw_pieces(const struct matrices *m, FILE *out, int side)
{
    for (size_t i = 0; i < m->drawn.n; i++) {
        const struct drawn *drawn = &m->drawn.data[i];
        if (side == RFS_SOURCE && drawn->tensor >= TENSORS)
            continue;
        const struct rectangle into = frame(m, drawn, side);
        const struct rectangle at =
            project(&drawn->at[side],
                    side == RFS_MADE ? m->made : m->tensors.data[drawn->tensor].type, &into);
        rfs_svg_fill(out, at.x, at.y, at.width, at.height, drawn->colour, false);
        if (at.width > 3 && at.height > 3)
            rfs_svg_rect(out, at.x, at.y, at.width, at.height, "g");
        const char *more = side == RFS_MADE && drawn->transposed ? "ᵀ" : "";
        const double room = at.width - rfs_svg_width(drawn->label) - 4;
        if (at.height >= 12 && room > 0)
            rfs_svg_text(out, at.x + at.width / 2, at.y + at.height / 2 + 4, "k m", "%s%s",
                         drawn->label, room > rfs_svg_width(more) ? more : "");
    }
}

/* Draws the slices of the destination; labels of whole rows stand at the side, of columns below. */
static void draw_slices(const struct matrices *m, FILE *out)
{
    const struct rectangle into = frame(m, NULL, RFS_MADE);
    double last = 0;

    for (size_t i = 0; i < m->owned.n; i++) {
        const struct owned *owned = &m->owned.data[i];
        RFS_FREE char *list = rfs_ranks_text(owned->ranks.data, owned->ranks.n);
        struct region region = {.from = {0, 0}, .to = {1, 1}};
        for (uint32_t a = m->made->ndim; a-- > 0;) {
            const int line = line_of(m->made, a);
            region.from[line] += owned->box.at[a] * scale_of(m->made, a);
            region.to[line] +=
                (owned->box.at[a] + rfs_max_u64(owned->box.len[a], 1) - 1) * scale_of(m->made, a);
        }
        const struct rectangle at = project(&region, m->made, &into);
        rfs_svg_rect(out, at.x, at.y, at.width, at.height, "b");
        const char *one = owned->ranks.n > 1 ? m->explain->words->many : m->explain->words->one;
        if (at.width > into.width - 0.5 && at.y + at.height / 2 >= last + 12) {
            last = at.y + at.height / 2;
            rfs_svg_text(out, RIGHT + RIGHT_WIDTH + 10, last + 4, "t", "%s %s", one, list);
        } else if (at.width <= into.width - 0.5 && at.width > rfs_svg_width(list) + 40 &&
                   at.y + at.height > into.y + into.height - 0.5) {
            rfs_svg_text(out, at.x + at.width / 2, into.y + into.height + 16, "t m", "%s %s", one,
                         list);
        }
    }
}

static void draw(struct matrices *m, FILE *out)
{
    const double height = arrange(m) + FOOT;
    char size[RFS_SHOWN_BYTES];

    RFS_FREE char *about = rfs_text_printf("reshard explain: %s, %s", m->title, m->subtitle);
    rfs_svg_begin(out, WIDTH, height, about ? about : "reshard explain");
    rfs_svg_text(out, MARGIN, 30, "h", "%s", m->title);
    rfs_svg_text(out, MARGIN, 49, "t", "%s", m->subtitle);
    rfs_svg_text(out, MARGIN, 76, "s", "source");
    rfs_svg_text(out, RIGHT, 76, "s", "destination");
    draw_tensors(m, out);
    draw_bands(m, out);
    draw_pieces(m, out, RFS_SOURCE);
    draw_pieces(m, out, RFS_MADE);
    draw_slices(m, out);
    rfs_svg_text(out, MARGIN, height - 26, "s",
                 "The same elements have one colour and label on both sides: %s. Labels are places "
                 "in the source's tensors.",
                 rfs_show_bytes(m->bytes, size));
    rfs_svg_text(out, MARGIN, height - 10, "s", "%s%s",
                 m->turns ? "Stripes: rows or columns that take turns with others. " : "",
                 m->transposed ? "ᵀ: transposed." : "");
    rfs_svg_end(out);
}

int rfs_explain_matrices(struct rfs_explain *explain, struct rfs_error *err)
{
    RFS_CLEANUP(matrices_free) struct matrices m = {.explain = explain};
    FILE *out;
    int rc = rfs_explain_each(explain, collect, &m, err) ?: rfs_svg_open(explain->svg, &out, err);

    if (rc)
        return rc;
    draw(&m, out);
    return rfs_svg_close(explain->svg, out, err);
}
