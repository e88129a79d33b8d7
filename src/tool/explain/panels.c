/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two axes or more are cut: the tensor twice, left as the source and right as the destination cuts
 * it.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "tool/explain/picture.h"

#define PANEL 356.0
#define LEFT 44.0
#define RIGHT (PICTURE_WIDTH - 24.0 - PANEL)
#define TITLES 26.0
#define BELOW 22.0 /* a row's axis */
#define ROWS 24

struct panels {
    const struct picture *picture;
    FILE *out;
    uint32_t n_cut;
    uint32_t cut[RFS_MAX_DIMS]; /* the last two are drawn, the others folded */
    uint32_t down, across;      /* axes */
    double height;              /* of a panel */
    struct rfs_box row;         /* the interval along folded axes that is being drawn */
    double top;                 /* of the row */
};

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where the next cut of either side is, beyond AT. */
static uint64_t next_cut(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const uint32_t d = rfs_grid_piece(&picture->dst, picture->whole, axis, at);

    return rfs_min_u64(rfs_picture_source_end(picture, axis, at),
                       rfs_grid_begin(&picture->dst, picture->whole, axis, d) +
                           rfs_grid_length(&picture->dst, picture->whole, axis, d));
}

static void set_interval(struct panels *panels, uint32_t axis, uint64_t at)
{
    panels->row.at[axis] = at;
    panels->row.len[axis] = next_cut(panels->picture, axis, at) - at;
}

static void first_row(struct panels *panels)
{
    memcpy(panels->row.len, panels->picture->whole, sizeof panels->row.len);
    memset(panels->row.at, 0, sizeof panels->row.at);
    for (uint32_t i = 0; i + 2 < panels->n_cut; i++)
        set_interval(panels, panels->cut[i], 0);
}

/* The interval after this one; false after the last. */
static bool next_row(struct panels *panels)
{
    for (uint32_t i = panels->n_cut - 2; i-- > 0;) {
        const uint32_t axis = panels->cut[i];
        const uint64_t end = panels->row.at[axis] + panels->row.len[axis];
        if (end < panels->picture->whole[axis]) {
            set_interval(panels, axis, end);
            return true;
        }
        set_interval(panels, axis, 0);
    }
    return false;
}

/* Whether a box has a part in the row. */
static bool in_row(const struct panels *panels, const struct rfs_box *box)
{
    for (uint32_t i = 0; i + 2 < panels->n_cut; i++) {
        const uint32_t axis = panels->cut[i];
        if (box->at[axis] >= panels->row.at[axis] + panels->row.len[axis] ||
            panels->row.at[axis] >= box->at[axis] + box->len[axis])
            return false;
    }
    return true;
}

/* A row is drawn if the picture of one slice has something in it. */
static bool is_drawn(const struct panels *panels)
{
    bool any = !panels->picture->explain->one;

    for (size_t i = 0; !any && i < panels->picture->slices.n; i++)
        any = in_row(panels, &panels->picture->slices.data[i].box);
    return any;
}

/* ---- one panel ------------------------------------------------------------------------------- */

struct rectangle {
    double x, y, width, height;
};

static struct rectangle project(const struct panels *panels, const struct rfs_box *box, double x)
{
    const uint64_t *whole = panels->picture->whole;
    const double down = panels->height / (double)whole[panels->down];
    const double across = PANEL / (double)whole[panels->across];

    return (struct rectangle){x + across * (double)box->at[panels->across],
                              panels->top + down * (double)box->at[panels->down],
                              across * (double)box->len[panels->across],
                              down * (double)box->len[panels->down]};
}

static void draw_name(const struct panels *panels, const struct drawn *drawn,
                      const struct rectangle *at, bool source, const char *style)
{
    RFS_FREE char *list = rfs_ranks_text(drawn->ranks.data, drawn->ranks.n);
    char name[96], of[32] = "";

    rfs_picture_ranks(panels->picture, drawn, source, name, sizeof name);
    if (drawn->holders > 1)
        snprintf(of, sizeof of, " ×%" PRIu32, drawn->holders);
    if (at->height < 12)
        return;
    const double y = at->y + at->height / 2 + 4;
    const double x = at->x + at->width / 2;
    if (rfs_svg_width(name) + rfs_svg_width(of) + 6 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s%s", name, of);
    else if (rfs_svg_width(name) + 6 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s", name);
    else if (list && rfs_svg_width(list) + 4 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s", list);
}

static void draw_source(const struct panels *panels)
{
    const struct picture *picture = panels->picture;

    for (size_t i = 0; i < picture->cells.n; i++) {
        const struct drawn *cell = &picture->cells.data[i];
        if (!in_row(panels, &cell->box))
            continue;
        const struct rectangle at = project(panels, &cell->box, LEFT);
        rfs_svg_fill(panels->out, at.x, at.y, at.width, at.height, cell->colour, !cell->touched);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "o");
        draw_name(panels, cell, &at, true, cell->touched ? "k m" : "s m");
    }
    /* The parts that are taken. */
    for (size_t i = 0; picture->explain->one && i < picture->pieces.n; i++)
        if (in_row(panels, &picture->pieces.data[i].box)) {
            const struct rectangle at = project(panels, &picture->pieces.data[i].box, LEFT);
            rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "b");
        }
}

/* Cuts of the destination that the picture is not about. */
static void draw_other_cuts(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    const struct rfs_grid *grid = &picture->dst;

    for (uint32_t side = 0; side < 2; side++) {
        const uint32_t axis = side ? panels->across : panels->down;
        for (uint32_t k = 0; k < grid->pieces[axis] && grid->pieces[axis] <= 256; k++) {
            struct rfs_box box = {{0}, {0}};
            memcpy(box.len, picture->whole, sizeof box.len);
            box.at[axis] = rfs_grid_begin(grid, picture->whole, axis, k);
            box.len[axis] = rfs_grid_length(grid, picture->whole, axis, k);
            const struct rectangle at = project(panels, &box, RIGHT);
            rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "g");
        }
    }
}

static void draw_destination(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    struct rfs_box whole = {{0}, {0}};

    memcpy(whole.len, picture->whole, sizeof whole.len);
    const struct rectangle all = project(panels, &whole, RIGHT);
    rfs_svg_rect(panels->out, all.x, all.y, all.width, all.height, "f");
    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        if (!in_row(panels, &piece->box))
            continue;
        const struct rectangle at = project(panels, &piece->box, RIGHT);
        struct drawn from = picture->cells.data[piece->from];
        from.holders = 1; /* the other holders are on the left */
        rfs_svg_fill(panels->out, at.x, at.y, at.width, at.height,
                     picture->cells.data[piece->from].colour, false);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "g");
        if (picture->explain->one)
            draw_name(panels, &from, &at, true, "k m");
    }
    if (picture->explain->one)
        draw_other_cuts(panels);
    for (size_t i = 0; i < picture->slices.n; i++) {
        if (!in_row(panels, &picture->slices.data[i].box))
            continue;
        const struct rectangle at = project(panels, &picture->slices.data[i].box, RIGHT);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "b");
        if (!picture->explain->one)
            draw_name(panels, &picture->slices.data[i], &at, false, "n m");
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void draw_axes(const struct panels *panels)
{
    const uint64_t *whole = panels->picture->whole;
    const double y = panels->top + panels->height + 15;
    const double middle = panels->top + panels->height / 2;

    fprintf(panels->out, "<g transform=\"rotate(-90 %.0f %.0f)\">", LEFT - 8, middle);
    rfs_svg_text(panels->out, LEFT - 8, middle, "s m", "axis %" PRIu32 ": %" PRIu64, panels->down,
                 whole[panels->down]);
    fputs("</g>\n", panels->out);
    rfs_svg_text(panels->out, LEFT + PANEL / 2, y, "s m", "axis %" PRIu32 ": %" PRIu64,
                 panels->across, whole[panels->across]);
    rfs_svg_text(panels->out, (LEFT + PANEL + RIGHT) / 2, middle + 6, "h m", "→");
}

static void draw_row(struct panels *panels)
{
    if (panels->n_cut > 2) {
        double x = LEFT;
        for (uint32_t i = 0; i + 2 < panels->n_cut; i++) {
            const uint32_t axis = panels->cut[i];
            rfs_svg_text(panels->out, x, panels->top - 5, "t",
                         "axis %" PRIu32 ": %" PRIu64 ":%" PRIu64 " of %" PRIu64, axis,
                         panels->row.at[axis], panels->row.at[axis] + panels->row.len[axis],
                         panels->picture->whole[axis]);
            x += 180;
        }
    }
    draw_source(panels);
    draw_destination(panels);
    draw_axes(panels);
}

static double panel_height(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    const uint64_t *whole = picture->whole;
    const uint32_t s = rfs_picture_pieces(picture, panels->down);
    const uint32_t d = picture->dst.pieces[panels->down];
    const double least = (double)rfs_min_u64(s > d ? s : d, 64) * 15;
    double height = PANEL * (double)whole[panels->down] / (double)whole[panels->across];
    const double most = panels->n_cut > 2 ? 180 : 420;

    height = height > most ? most : height < 120 ? 120 : height;
    return height < least ? least : height;
}

double rfs_picture_panels(const struct picture *picture, FILE *out, double top)
{
    struct panels panels = {.picture = picture, .out = out};
    uint32_t rows = 0;
    uint32_t more = 0;

    panels.n_cut = rfs_picture_cut_axes(picture, panels.cut);
    panels.down = panels.cut[panels.n_cut - 2];
    panels.across = panels.cut[panels.n_cut - 1];
    panels.height = panel_height(&panels);
    if (out) {
        rfs_svg_text(out, LEFT, top + 14, "s", "%s", picture->source);
        rfs_svg_text(out, RIGHT, top + 14, "s", "%s", picture->destination);
    }
    const double step = panels.height + BELOW + (panels.n_cut > 2 ? 20 : 0);
    first_row(&panels);
    do {
        if (!is_drawn(&panels))
            continue;
        if (rows == ROWS) {
            more++;
            continue;
        }
        panels.top = top + TITLES + (panels.n_cut > 2 ? 16 : 0) + step * rows++;
        if (out)
            draw_row(&panels);
    } while (next_row(&panels));
    if (out && more > 0)
        rfs_svg_text(out, LEFT, top + TITLES + step * rows + 12, "t",
                     "and %" PRIu32 " more rows, which are not drawn", more);
    return TITLES + step * rows + (more > 0 ? 24 : 0) + 4;
}
