/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/common/svg.h"
#include "tool/explain/matrices.h"

#define WIDTH 880.0
#define MARGIN 24.0
#define HEAD 84.0
#define FOOT 58.0
#define LEFT_WIDTH 380.0
#define RIGHT 500.0
#define RIGHT_WIDTH 250.0
#define TITLE 20.0 /* above each source tensor */
#define TENSORS 8  /* of the source; more are not drawn */

struct rectangle {
    double x, y, width, height;
};

static struct rectangle project(const struct region *at, const struct rfs_type *type,
                                const struct rectangle *into)
{
    const double across = into->width / (double)rfs_matrix_size(type, COLS);
    const double down = into->height / (double)rfs_matrix_size(type, ROWS);

    return (struct rectangle){into->x + across * (double)at->from[COLS],
                              into->y + down * (double)at->from[ROWS],
                              across * (double)(at->to[COLS] - at->from[COLS]),
                              down * (double)(at->to[ROWS] - at->from[ROWS])};
}

static struct rectangle frame(const struct matrices *m, const struct drawn *drawn, int side)
{
    if (side == RFS_MADE)
        return (struct rectangle){RIGHT, HEAD + TITLE, RIGHT_WIDTH, m->height};
    const struct tensor *tensor = &m->tensors.data[drawn->tensor];
    return (struct rectangle){MARGIN, tensor->top, LEFT_WIDTH, tensor->height};
}

/* Heights by rows, so that fused tensors can be compared. Returns the height of all. */
static double arrange(struct matrices *m)
{
    const size_t n = m->tensors.n < TENSORS ? m->tensors.n : TENSORS;
    const double rows = (double)rfs_matrix_size(m->made, ROWS);
    const double cols = (double)rfs_matrix_size(m->made, COLS);
    double at = HEAD;
    double all = 0;

    m->height = RIGHT_WIDTH * (rows > cols ? 1.6 : rows * 2 < cols ? 0.8 : 1.2);
    for (size_t i = 0; i < n; i++)
        all += (double)rfs_matrix_size(m->tensors.data[i].type, ROWS);
    for (size_t i = 0; i < n; i++) {
        struct tensor *tensor = &m->tensors.data[i];
        tensor->top = at + TITLE;
        tensor->height = m->height * (double)rfs_matrix_size(tensor->type, ROWS) / all;
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
            rfs_by_rules_target(m->explain->plans.converted, tensor->source);
        struct rfs_printed shown;
        rfs_put_dims(rfs_printed_begin(&shown), tensor->type->ndim, tensor->type->dims);
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

/* Rows from the one side to the other; transposed parts have none. */
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

static void draw_parts(const struct matrices *m, FILE *out, int side)
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

/*
 * Where the slices of the destination are: at the side those of whole rows, below those of columns.
 */
static void draw_slices(const struct matrices *m, FILE *out)
{
    const struct rectangle into = frame(m, NULL, RFS_MADE);
    double last = 0;

    for (size_t i = 0; i < m->owned.n; i++) {
        const struct owned *owned = &m->owned.data[i];
        RFS_FREE char *list = rfs_ranks_text(owned->ranks.data, owned->ranks.n);
        struct region region = {.from = {0, 0}, .to = {1, 1}};
        for (uint32_t a = m->made->ndim; a-- > 0;) {
            const int line = rfs_matrix_line(m->made, a);
            region.from[line] += owned->box.at[a] * rfs_matrix_scale(m->made, a);
            region.to[line] += (owned->box.at[a] + rfs_max_u64(owned->box.len[a], 1) - 1) *
                               rfs_matrix_scale(m->made, a);
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

void rfs_matrices_draw(struct matrices *m, FILE *out)
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
    draw_parts(m, out, RFS_SOURCE);
    draw_parts(m, out, RFS_MADE);
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
