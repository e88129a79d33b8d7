/* SPDX-License-Identifier: Apache-2.0 */
/* One axis is cut, or none: two bars, and bands between them. */
#include "tool/common/show.h"
#include "tool/explain/picture.h"

#define LEFT 232.0
#define RIGHT 592.0
#define BAR 56.0
#define TITLES 26.0
#define LABEL 12.0 /* from one to the next */

struct flow {
    const struct picture *picture;
    FILE *out;
    uint32_t axis;
    double top, height; /* of the axis, without the gaps */
    double gap;         /* between two nodes of a side */
    uint64_t lo, hi;    /* the window of the axis that is shown */
};

/* How much of the axis is drawn: a slice among very many cells is, and its neighbours. */
static void set_window(struct flow *flow)
{
    const struct picture *picture = flow->picture;
    const uint64_t whole = picture->ndim > 0 ? picture->whole[flow->axis] : 1;
    uint64_t lo = whole;
    uint64_t hi = 0;

    flow->lo = 0;
    flow->hi = whole;
    if (!picture->explain->one || picture->copied ||
        picture->cells.n + picture->dst.pieces[flow->axis] < 65)
        return;
    for (size_t i = 0; i < picture->cells.n; i++) {
        const struct drawn *cell = &picture->cells.data[i];
        const uint64_t at = cell->box.at[flow->axis];
        if (!cell->touched)
            continue;
        lo = at < lo ? at : lo;
        hi = at + cell->box.len[flow->axis] > hi ? at + cell->box.len[flow->axis] : hi;
    }
    if (hi <= lo)
        return;
    const uint64_t room = (hi - lo) / 2 + 1;
    flow->lo = lo > room ? lo - room : 0;
    flow->hi = whole - hi > room ? hi + room : whole;
}

/* Where place AT of the axis is; a place outside of the window is at its edge. */
static double place(const struct flow *flow, uint64_t at)
{
    const uint64_t in = at < flow->lo ? flow->lo : at > flow->hi ? flow->hi : at;
    return flow->top + flow->height * (double)(in - flow->lo) / (double)(flow->hi - flow->lo);
}

/*
 * How much further down node I of N begins, for the gaps above it; both sides have the same middle.
 */
static double shift(const struct flow *flow, size_t i, size_t n)
{
    const struct picture *picture = flow->picture;
    const size_t most = picture->cells.n > picture->slices.n ? picture->cells.n : picture->slices.n;

    return flow->gap * ((double)i + (double)(most - n) / 2);
}

/*
 * The part of node I of N that BOX of the tensor is; copied tensors have nodes one below the other.
 */
static void extent(const struct flow *flow, const struct rfs_box *box, size_t i, size_t n,
                   double *from, double *to)
{
    const double down = shift(flow, i, n);

    if (flow->picture->copied || flow->picture->ndim == 0) {
        *from = flow->top + down + flow->height * (double)i / (double)n;
        *to = flow->top + down + flow->height * (double)(i + 1) / (double)n;
    } else {
        *from = place(flow, box->at[flow->axis]) + down;
        *to = place(flow, box->at[flow->axis] + box->len[flow->axis]) + down;
    }
}

static void draw_label(const struct flow *flow, const struct drawn *drawn, double y, bool left)
{
    char ranks[96], range[64], of[32] = "";
    const double x = left ? LEFT - 10 : RIGHT + BAR + 10;

    rfs_picture_ranks(flow->picture, drawn, left, ranks, sizeof ranks);
    rfs_picture_range(flow->picture, &drawn->box, flow->axis, range, sizeof range);
    if (left && drawn->holders > 1)
        snprintf(of, sizeof of, " ×%" PRIu32, drawn->holders);
    rfs_svg_text(flow->out, x, y + 4, left ? "e" : "t", "%s%s · %s", ranks, of, range);
}

/* One side's nodes; LABELS: of those that the picture is about. */
static void draw_nodes(const struct flow *flow, const struct drawn *nodes, size_t n, bool left)
{
    const double x = left ? LEFT : RIGHT;
    double last = -LABEL;

    for (size_t i = 0; i < n; i++) {
        double from, to;
        extent(flow, &nodes[i].box, i, n, &from, &to);
        if (to - from < 0.05)
            continue;
        if (left)
            rfs_svg_fill(flow->out, x, from, BAR, to - from, nodes[i].colour, !nodes[i].touched);
        if (!left || to - from > 4)
            rfs_svg_rect(flow->out, x, from, BAR, to - from, left && !nodes[i].touched ? "g" : "o");
        const double middle = (from + to) / 2;
        if (middle - last < LABEL ||
            (flow->picture->explain->one && !nodes[i].touched && to - from < LABEL))
            continue;
        draw_label(flow, &nodes[i], middle, left);
        last = middle;
    }
}

/* The cuts of the destination that the picture is not about. */
static void draw_others(const struct flow *flow)
{
    const struct picture *picture = flow->picture;

    if (picture->copied || picture->ndim == 0 || !picture->explain->one)
        return;
    rfs_svg_rect(flow->out, RIGHT, flow->top, BAR, flow->height, "f");
    for (uint32_t k = 0; k < picture->dst.pieces[flow->axis]; k++) {
        const uint64_t at = rfs_grid_begin(&picture->dst, picture->whole, flow->axis, k);
        const uint64_t end = at + rfs_grid_length(&picture->dst, picture->whole, flow->axis, k);
        const double from = place(flow, at);
        const double to = place(flow, end);
        if (to - from >= 1)
            rfs_svg_rect(flow->out, RIGHT, from, BAR, to - from, "g");
    }
}

static void draw_bands(const struct flow *flow)
{
    const struct picture *picture = flow->picture;

    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        const struct drawn *cell = &picture->cells.data[piece->from];
        double from0, to0, from1, to1;

        extent(flow, &piece->box, piece->from, picture->cells.n, &from0, &to0);
        extent(flow, &piece->box, piece->to, picture->slices.n, &from1, &to1);
        rfs_svg_band(flow->out, LEFT + BAR, from0, to0, RIGHT, from1, to1, cell->colour);
        rfs_svg_fill(flow->out, RIGHT, from1, BAR, to1 - from1, cell->colour, false);
    }
    if (!picture->explain->one)
        return;
    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        char size[RFS_SHOWN_BYTES];
        double from0, to0, from1, to1;

        extent(flow, &piece->box, piece->from, picture->cells.n, &from0, &to0);
        extent(flow, &piece->box, piece->to, picture->slices.n, &from1, &to1);
        if (to0 - from0 >= LABEL)
            rfs_svg_text(flow->out, (LEFT + BAR + RIGHT) / 2, (from0 + to0 + from1 + to1) / 4 + 4,
                         "k m", "%s", rfs_show_bytes(piece->bytes, size));
    }
}

static void draw_heading(const struct flow *flow, bool left)
{
    const struct picture *picture = flow->picture;

    rfs_svg_text(flow->out, left ? LEFT + BAR : RIGHT, flow->top - 10, left ? "s e" : "s", "%s",
                 left ? picture->source : picture->destination);
}

double rfs_picture_flow(const struct picture *picture, uint32_t axis, FILE *out, double top)
{
    const size_t n = picture->cells.n > picture->slices.n ? picture->cells.n : picture->slices.n;
    struct flow flow = {.picture = picture, .out = out, .axis = axis, .top = top + TITLES};

    set_window(&flow);
    const bool all = picture->ndim == 0 || (flow.lo == 0 && flow.hi == picture->whole[axis]);
    flow.height = !all || n < 6 ? 156 : n > 64 ? 1280 : (double)n * (n > 32 ? 17 : 24);
    /* Of one slice all is drawn to scale, the cuts of the others as well. */
    flow.gap = (picture->explain->one && !picture->copied) || n > 128 ? 0 : n > 16 ? 3 : 6;
    if (!out)
        return TITLES + flow.height + flow.gap * (double)(n - 1) + (all ? 8 : 24);
    draw_heading(&flow, true);
    draw_heading(&flow, false);
    draw_others(&flow);
    draw_bands(&flow);
    draw_nodes(&flow, picture->cells.data, picture->cells.n, true);
    draw_nodes(&flow, picture->slices.data, picture->slices.n, false);
    if (!all)
        rfs_svg_text(out, LEFT, flow.top + flow.height + 18, "s",
                     "%" PRIu64 ":%" PRIu64 " of the %" PRIu64 " along axis %" PRIu32, flow.lo,
                     flow.hi, picture->whole[axis], axis);
    return 0;
}
