/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device matrix as a picture: a card for each device, in the colour of its slice, with a small
 * drawing of the tensor in which the slice is marked.
 */
#include "base/cleanup.h"
#include "base/path.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/common/svg.h"
#include "tool/layout/layout.h"

#define MARGIN 24.0
#define WIDE 880.0
#define CARD_HIGH 64.0
#define GAP 6.0
#define HEAD 56.0
#define TITLE 62.0
#define MOST 1024 /* cards of a picture */

struct cards {
    FILE *out;      /* NULL: only measured */
    uint32_t block; /* cards of the last two device axes: a gap comes after them */
    const struct rfs_group *group;
    uint32_t per_row;
    double width; /* of a card */
};

/*
 * The device axes after the first LEFT OUT; cards of one row are those of the last axis, or as many
 * as fit.
 */
static struct cards arrange(const struct rfs_group *group, FILE *out)
{
    const struct rfs_layout *layout = group->layout;
    uint32_t across = layout->n_dev > 0 ? layout->dev[layout->n_dev - 1] : 1;

    if (across == 1 || layout->n_dev == 0) /* an axis that says nothing */
        across = layout->devices;
    const uint32_t per_row = across > 8 ? 8 : across;
    double width = (WIDE - 2 * MARGIN + GAP) / per_row - GAP;

    return (struct cards){
        .out = out,
        .group = group,
        .block = per_row == across && layout->n_dev > 2 ? across * layout->dev[layout->n_dev - 2]
                                                        : layout->devices,
        .per_row = per_row,
        .width = width > 200 ? 200 : width,
    };
}

/* Where a card begins below the first, or all of them end. */
static double row_of(const struct cards *cards, uint32_t rank)
{
    return (rank + cards->per_row - 1) / cards->per_row * (CARD_HIGH + GAP) +
           rank / cards->block * GAP;
}

/* The slice marked in its tensor: axis 0 down, the last across; a single one across. */
static void draw_thumbnail(const struct cards *cards, uint32_t rank, double x, double y,
                           double size)
{
    const struct rfs_group *group = cards->group;
    const struct rfs_grid *grid = &group->grid;
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    rfs_svg_rect(cards->out, x, y, size, size, "q");
    for (uint32_t k = 0; k < grid->rounds; k++) {
        double at[2] = {0, 0};
        double length[2] = {1, 1};
        for (uint32_t side = 0; side < 2 && grid->ndim > side; side++) {
            const uint32_t axis = side == 0 || grid->ndim == 1 ? 0 : grid->ndim - 1;
            const uint32_t to = grid->ndim == 1 ? 1 : side;
            at[to] = (double)rfs_grid_begin(grid, group->whole, axis, cell[axis]) /
                     (double)group->whole[axis];
            length[to] = (double)rfs_grid_length(grid, group->whole, axis, cell[axis]) /
                         (double)group->whole[axis];
        }
        rfs_svg_rect(cards->out, x + size * at[1], y + size * at[0], size * length[1],
                     size * length[0], "d");
        cell[0] += grid->pieces[0] / grid->rounds;
    }
}

static void draw_card(const struct cards *cards, uint32_t rank, double x, double y)
{
    const struct rfs_group *group = cards->group;
    struct rfs_printed shown;

    rfs_put_slice(rfs_printed_begin(&shown), group, rank);
    RFS_FREE char *slice = rfs_printed_end(&shown);
    rfs_svg_fill(cards->out, x, y, cards->width, CARD_HIGH, rfs_group_slice(group, rank), false);
    rfs_svg_text(cards->out, x + 8, y + 17, "k", "rank %" PRIu32,
                 group->stage * group->grid.ranks + rank);
    draw_thumbnail(cards, rank, x + 8, y + 24, 32);
    /* A text that is too long is cut: the drawing shows the same. */
    if (rfs_svg_width(slice) < cards->width - 52)
        rfs_svg_text(cards->out, x + 48, y + 44, "k", "%s", slice);
    else
        rfs_svg_text(cards->out, x + 48, y + 44, "k", "slice %" PRIu32,
                     rfs_group_slice(group, rank));
}

static double draw_group(const struct rfs_layout_job *job, const struct rfs_group *group, FILE *out,
                         double top)
{
    const struct cards cards = arrange(group, out);
    const uint32_t n = group->grid.ranks;
    struct rfs_printed shown;

    if (!out)
        return TITLE + row_of(&cards, n) + 10;
    rfs_put_cuts(rfs_printed_begin(&shown), &group->grid);
    RFS_FREE char *cuts = rfs_printed_end(&shown);
    FILE *text = rfs_printed_begin(&shown);
    fputs("devices ", text);
    rfs_put_matrix(text, group->layout);
    fputs(", tensor map ", text);
    rfs_put_map(text, group->layout);
    if (group->layout->opt_size > 1)
        fprintf(text, ", optimizer shard %" PRIu32, group->layout->opt_size);
    if (rfs_strategy_stages(job->strategy) > 1)
        fprintf(text, ", stage %" PRIu32, group->stage);
    RFS_FREE char *what = rfs_printed_end(&shown);
    const char *first = rfs_strategy_param(job->strategy, job->groups.params[group->first]);
    if (group->n > 1)
        rfs_svg_text(out, MARGIN, top + 18, "t", "%.80s and %zu more", first, group->n - 1);
    else
        rfs_svg_text(out, MARGIN, top + 18, "t", "%.80s", first);
    rfs_svg_text(out, MARGIN, top + 34, "s", "%s", what);
    rfs_svg_text(out, MARGIN, top + 50, "s", "%s", cuts);
    for (uint32_t rank = 0; rank < n; rank++)
        draw_card(&cards, rank, MARGIN + rank % cards.per_row * (cards.width + GAP),
                  top + TITLE + row_of(&cards, rank - rank % cards.per_row));
    return TITLE + row_of(&cards, n) + 10;
}

int rfs_layout_picture(const struct rfs_layout_job *job, struct rfs_error *err)
{
    double height = HEAD;
    uint64_t cards = 0;
    FILE *out;

    for (size_t i = 0; i < job->groups.n; i++) {
        height += draw_group(job, &job->groups.data[i], NULL, 0);
        cards += job->groups.data[i].grid.ranks;
    }
    if (cards > MOST)
        return rfs_fail(
            err, -E2BIG, RFS_IN(job->file), job->param ? "the text, or --json" : "--param NAME",
            "its layouts have %" PRIu64 " devices together; at most %d can be drawn", cards, MOST);
    const int rc = rfs_svg_open(job->svg, &out, err);
    if (rc)
        return rc;
    const char *name = rfs_path_name(job->file);
    rfs_svg_begin(out, WIDE, height + 16, "reshard layout");
    rfs_svg_text(out, MARGIN, 32, "h", "%s", name);
    rfs_svg_text(out, MARGIN, 49, "s",
                 "%zu parameters, %" PRIu32 " stage%s of %" PRIu32
                 " devices. A colour is a slice: devices of one colour hold the same.",
                 rfs_strategy_count(job->strategy), rfs_strategy_stages(job->strategy),
                 rfs_strategy_stages(job->strategy) == 1 ? "" : "s",
                 rfs_strategy_devices(job->strategy));
    double top = HEAD;
    for (size_t i = 0; i < job->groups.n; i++)
        top += draw_group(job, &job->groups.data[i], out, top);
    rfs_svg_end(out);
    return rfs_svg_close(job->svg, out, err);
}
