/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard layout`: how a strategy spreads tensors over its devices. No checkpoint is looked at. */
#include "tool/layout/devices.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/common/svg.h"
#include "tool/common/tool.h"
#include "view/strategy_options.h"

#include <langinfo.h>
#include <locale.h>

/* ---- parameters by stage and layout ---------------------------------------------------------- */

void rfs_devices_free(struct rfs_devices *groups)
{
    free(groups->data);
    free(groups->params);
    *groups = (struct rfs_devices){0};
}

/* A parameter in a stage. */
struct staged {
    uint32_t stage, param;
    const struct rfs_layout *layout;
    uint32_t first; /* first parameter of that layout in that stage */
};

struct staged_list {
    struct staged *data;
    size_t n, cap;
};

RFS_COMPARE(by_layout, struct staged, x, y,
            RFS_ORDER(x->stage, y->stage)
                ?: RFS_ORDER(x->layout->id, y->layout->id)
                ?: RFS_ORDER(x->param, y->param))

RFS_COMPARE(by_first, struct staged, x, y,
            RFS_ORDER(x->stage, y->stage)
                ?: RFS_ORDER(x->first, y->first)
                ?: RFS_ORDER(x->param, y->param))

static bool list_staged(const struct rfs_devices_use *use, struct staged_list *out)
{
    for (size_t i = 0; i < rfs_strategy_count(use->strategy); i++) {
        if (use->param && strcmp(use->param, rfs_strategy_param(use->strategy, i)) != 0)
            continue;
        for (uint32_t s = rfs_strategy_next_stage(use->strategy, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(use->strategy, i, s + 1)) {
            const struct staged found = {.stage = s,
                                         .param = (uint32_t)i,
                                         .layout = rfs_strategy_layout(use->strategy, i, s)};
            if (!RFS_PUSH(out, found))
                return false;
        }
    }
    RFS_SORT_ALL(out, by_layout);
    for (size_t i = 0; i < out->n; i++) {
        const bool same = i > 0 && out->data[i - 1].stage == out->data[i].stage &&
                          out->data[i - 1].layout == out->data[i].layout;
        out->data[i].first = same ? out->data[i - 1].first : out->data[i].param;
    }
    RFS_SORT_ALL(out, by_first);
    return true;
}

/* Sets the dims to the user's or the strategy's, or else to some that the layout divides. */
static int set_grid(const struct rfs_devices_use *use, struct rfs_devices_group *group,
                    const char *param, struct rfs_error *err)
{
    const struct rfs_layout *layout = group->layout;
    const struct rfs_where where = RFS_OF(rfs_strategy_name(use->strategy), param);
    const uint32_t ndim = use->shape ? use->n_shape : layout->n_axes;

    if (ndim > RFS_GRID_DIMS)
        return rfs_fail(err, -EINVAL, where, NULL, "a tensor with %" PRIu32 " axes", ndim);
    group->known = use->shape != NULL || layout->n_expanded > 0 || ndim == 0;
    for (uint32_t i = 0; i < ndim; i++)
        group->whole[i] = use->shape               ? use->shape[i]
                          : layout->n_expanded > 0 ? layout->expanded[i]
                                                   : (uint64_t)layout->devices *
                                                         (layout->field > 0 ? layout->field : 1) *
                                                         (layout->field > 0 ? layout->field : 1);
    if (!use->shape && layout->edge && ndim > 0)
        group->whole[0] = layout->edge[layout->n_edges - 1];
    const int rc = rfs_grid_resolve(layout, ndim, group->whole, RFS_DIMS_OF_WHOLE, &group->grid,
                                    NULL, NULL, where, err);
    return rc == -EINVAL && use->shape
               ? rfs_fail(err, rc, where, "the dims of the whole tensor, each divided by its cuts",
                          "its layout does not cut a tensor of this --shape")
               : rc;
}

static int add_group(const struct rfs_devices_use *use, struct rfs_devices *out,
                     const struct staged *first, size_t at, struct rfs_error *err)
{
    const struct rfs_devices_group group = {
        .stage = first->stage, .layout = first->layout, .first = at};

    return RFS_PUSH(out, group) ? set_grid(use, &out->data[out->n - 1],
                                           rfs_strategy_param(use->strategy, first->param), err)
                                : rfs_fail_memory(err);
}

int rfs_devices_make(const struct rfs_devices_use *use, struct rfs_devices *out,
                     struct rfs_error *err)
{
    struct staged_list list = {0};
    int rc = list_staged(use, &list) ? 0 : rfs_fail_memory(err);

    if (rc == 0 && list.n == 0)
        rc = rfs_fail(err, -ENOENT, RFS_OF(rfs_strategy_name(use->strategy), use->param),
                      "reshard layout without --param, which lists the names",
                      "the strategy does not have it");
    out->params = calloc(list.n + 1, sizeof *out->params);
    if (rc == 0 && !out->params)
        rc = rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        const bool same = i > 0 && list.data[i - 1].stage == list.data[i].stage &&
                          list.data[i - 1].first == list.data[i].first;
        if (!same)
            rc = add_group(use, out, &list.data[i], i, err);
        if (rc == 0)
            out->data[out->n - 1].n++;
        out->params[i] = list.data[i].param;
    }
    free(list.data);
    return rc;
}

static void put_fraction(FILE *out, uint32_t piece, uint32_t pieces)
{
    if (piece == 0 || piece == pieces)
        fprintf(out, "%d", piece == 0 ? 0 : 1);
    else
        fprintf(out, "%" PRIu32 "/%" PRIu32, piece, pieces);
}

static void put_cell(FILE *out, const struct rfs_devices_group *group, const uint32_t *cell)
{
    const struct rfs_grid *grid = &group->grid;

    fputc('[', out);
    for (uint32_t i = 0; i < grid->ndim; i++) {
        const uint64_t at = rfs_grid_begin(grid, group->whole, i, cell[i]);
        fputs(i > 0 ? ", " : "", out);
        if (grid->pieces[i] == 1) {
            fputc(':', out);
        } else if (group->known || (i == 0 && grid->edge)) {
            fprintf(out, "%" PRIu64 ":%" PRIu64, at,
                    at + rfs_grid_length(grid, group->whole, i, cell[i]));
        } else {
            put_fraction(out, cell[i], grid->pieces[i]);
            fputc(':', out);
            put_fraction(out, cell[i] + 1, grid->pieces[i]);
        }
    }
    fputc(']', out);
}

void rfs_devices_put_slice(FILE *out, const struct rfs_devices_group *group, uint32_t rank)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(&group->grid, rank, cell);
    for (uint32_t k = 0; k < group->grid.rounds; k++) {
        fputs(k > 0 ? " + " : "", out);
        put_cell(out, group, cell);
        cell[0] += group->grid.pieces[0] / group->grid.rounds;
    }
}

uint32_t rfs_devices_slice(const struct rfs_devices_group *group, uint32_t rank)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};
    uint32_t number = 0;

    rfs_grid_cell(&group->grid, rank, cell);
    for (uint32_t i = 0; i < group->grid.ndim; i++)
        number = number * (group->grid.pieces[i] / (i == 0 ? group->grid.rounds : 1)) + cell[i];
    return number;
}

struct request {
    const char *file, *param, *svg; /* the caller's; the last two may be NULL */
    bool json;
    bool has_shape;
    uint32_t n_shape;
    uint64_t shape[RFS_GRID_DIMS];

    struct rfs_strategy *strategy;
    struct rfs_devices groups;
};

/* ---- text for a terminal --------------------------------------------------------------------- */

/*
 * Draws each layout's device matrix, a box for each device with its rank and its slice.
 * The last device axis runs across and the one before it down; others are blocks. A drawing that is
 * too wide for a line is continued below.
 */
#define NAMES_LISTED 6 /* parameters of a layout */
#define RANKS_DRAWN 64 /* ranks of a layout; all of them with --param */
#define NARROW 80      /* columns, where the terminal does not say */

struct strokes {
    const char *across, *down;
    const char *corner[3][3]; /* [row][column] */
};

static const struct strokes lines = {"─", "│", {{"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}}};
static const struct strokes ascii = {"-", "|", {{"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}}};

/* The slices of a group's ranks, as text. */
struct labels {
    const struct rfs_devices_group *group;
    char **text; /* [n] owned, as its elements are; either may be NULL */
    uint32_t n, base;
    int width;
};

static void labels_free(struct labels *labels)
{
    for (uint32_t i = 0; labels->text && i < labels->n; i++)
        free(labels->text[i]);
    free(labels->text);
}

static void make_labels(struct labels *labels)
{
    labels->text = rfs_printed_memory(calloc(labels->n, sizeof *labels->text));
    labels->width = snprintf(NULL, 0, "rank %" PRIu32, labels->base + labels->n - 1);
    for (uint32_t i = 0; i < labels->n; i++) {
        struct rfs_printed label;
        rfs_devices_put_slice(rfs_printed_begin(&label), labels->group, i);
        labels->text[i] = rfs_printed_end(&label);
        if ((int)label.size > labels->width)
            labels->width = (int)label.size;
    }
}

static void put_line(const struct strokes *strokes, int row, uint32_t n, int width)
{
    printf("  %s", strokes->corner[row][0]);
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < width + 2; k++)
            fputs(strokes->across, stdout);
        fputs(strokes->corner[row][i + 1 < n ? 1 : 2], stdout);
    }
    putchar('\n');
}

/* Draws devices FIRST to FIRST + N - 1, side by side. */
static void put_devices(const struct labels *labels, const struct strokes *strokes, uint32_t first,
                        uint32_t n)
{
    printf("  %s", strokes->down);
    for (uint32_t i = first; i < first + n; i++)
        printf(" rank %-*" PRIu32 " %s", labels->width - 5, labels->base + i, strokes->down);
    printf("\n  %s", strokes->down);
    for (uint32_t i = first; i < first + n; i++)
        printf(" %-*s %s", labels->width, labels->text && labels->text[i] ? labels->text[i] : "",
               strokes->down);
    putchar('\n');
}

static uint32_t columns(void)
{
    const char *text = getenv("COLUMNS");
    const unsigned long n = text ? strtoul(text, NULL, 10) : 0;

    return n >= 20 && n < 10000 ? (uint32_t)n : NARROW;
}

/* Draws N devices in rows of PER_ROW; the lines between rows are drawn once. */
static void put_block(const struct labels *labels, const struct strokes *strokes, uint32_t first,
                      uint32_t n, uint32_t per_row)
{
    const uint32_t fit = (columns() - 3) / (uint32_t)(labels->width + 3);
    const uint32_t wide = fit < 1 ? 1 : fit < per_row ? fit : per_row;

    for (uint32_t at = 0; at < n;) {
        const uint32_t left = per_row - at % per_row;
        const uint32_t now = left < wide ? left : wide;
        /* The line above is as long as the longer of its neighbours. */
        if (at == 0)
            put_line(strokes, 0, now, labels->width);
        else
            put_line(strokes, 1, wide, labels->width);
        put_devices(labels, strokes, first + at, now);
        at += now;
        if (at >= n)
            put_line(strokes, 2, now, labels->width);
    }
}

/*
 * Says where a block is in the outer axes: "device axis 2 at 0, device axis 3 at 1". Axes count
 * from the right.
 */
static void put_where(const struct rfs_layout *layout, uint32_t rank)
{
    uint32_t stride = layout->devices;

    fputs("  ", stdout);
    for (uint32_t p = 0; p + 2 < layout->n_dev; p++) {
        stride /= layout->dev[p];
        printf("%sdevice axis %" PRIu32 " at %" PRIu32, p > 0 ? ", " : "", layout->n_dev - 1 - p,
               rank / stride % layout->dev[p]);
    }
    fputs(":\n", stdout);
}

static void put_matrix(const struct request *request, const struct rfs_devices_group *group,
                       const struct strokes *strokes)
{
    const struct rfs_layout *layout = group->layout;
    const uint32_t across = layout->n_dev > 0 ? layout->dev[layout->n_dev - 1] : 1;
    const uint32_t down = layout->n_dev > 1 ? layout->dev[layout->n_dev - 2] : 1;
    const uint32_t block = across * down;
    const uint32_t most = request->param ? layout->devices : RANKS_DRAWN;
    RFS_CLEANUP(labels_free)
    struct labels labels = {.group = group,
                            .n = layout->devices < most ? layout->devices : most,
                            .base = group->stage * layout->devices};

    make_labels(&labels);
    for (uint32_t at = 0; at < labels.n; at += block) {
        if (block < layout->devices)
            put_where(layout, at);
        put_block(&labels, strokes, at, labels.n - at < block ? labels.n - at : block, across);
    }
    if (labels.n < layout->devices)
        printf("  and ranks %" PRIu32 " to %" PRIu32 "; --param draws all of a parameter\n",
               labels.base + labels.n, labels.base + layout->devices - 1);
}

static void put_names(const struct request *request, const struct rfs_devices_group *group)
{
    fputs("  ", stdout);
    for (size_t i = 0; i < group->n && i < NAMES_LISTED; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        rfs_text_put(stdout, rfs_strategy_param(request->strategy,
                                                request->groups.params[group->first + i]));
    }
    if (group->n > NAMES_LISTED)
        printf(" and %zu more", group->n - NAMES_LISTED);
    putchar('\n');
}

static void put_group(const struct request *request, const struct rfs_devices_group *group,
                      const struct strokes *strokes)
{
    const struct rfs_layout *layout = group->layout;

    printf("\n%zu parameter%s: devices ", group->n, group->n == 1 ? "" : "s");
    rfs_show_matrix(stdout, layout);
    fputs(", map ", stdout);
    rfs_show_map(stdout, layout);
    if (layout->opt_size > 1)
        printf(", optimizer shard %" PRIu32, layout->opt_size);
    if (group->known) {
        fputs(", tensor ", stdout);
        rfs_show_dims(stdout, group->grid.ndim, group->whole);
    }
    fputs("\n  ", stdout);
    rfs_show_cuts(stdout, &group->grid);
    putchar('\n');
    put_names(request, group);
    put_matrix(request, group, strokes);
}

/* Draws for a terminal. UTF8: with box characters, else ASCII. */
static void draw(const struct request *request, bool utf8)
{
    const uint32_t stages = rfs_strategy_stages(request->strategy);
    const uint32_t devices = rfs_strategy_devices(request->strategy);
    uint32_t stage = UINT32_MAX;

    printf("%zu parameter%s in %zu layout%s, %" PRIu32 " stage%s of %" PRIu32 " device%s\n",
           rfs_strategy_count(request->strategy),
           rfs_strategy_count(request->strategy) == 1 ? "" : "s",
           rfs_strategy_layouts(request->strategy),
           rfs_strategy_layouts(request->strategy) == 1 ? "" : "s", stages, stages == 1 ? "" : "s",
           devices, devices == 1 ? "" : "s");
    for (size_t i = 0; i < request->groups.n; i++) {
        const struct rfs_devices_group *group = &request->groups.data[i];
        if (stages > 1 && group->stage != stage)
            printf("\nstage %" PRIu32 ": ranks %" PRIu32 " to %" PRIu32 "\n", group->stage,
                   group->stage * devices, (group->stage + 1) * devices - 1);
        stage = group->stage;
        put_group(request, group, utf8 ? &lines : &ascii);
    }
}

/* ---- a picture ------------------------------------------------------------------------------- */

/*
 * The device matrix as a picture: a card for each device, in the colour of its slice, with a small
 * drawing of the tensor in which the slice is marked.
 */
#define MARGIN 24.0
#define WIDE 880.0
#define CARD_HIGH 64.0
#define GAP 6.0
#define HEAD 56.0
#define TITLE 62.0
#define MOST 1024 /* most cards of a picture */

struct cards {
    FILE *out;      /* NULL: the cards are only measured */
    uint32_t block; /* number of cards of the last two device axes, after which there is a gap */
    const struct rfs_devices_group *group;
    uint32_t per_row;
    double width; /* width of a card */
};

/* Arranges the cards of a group: a row has those of the last device axis, or as many as fit. */
static struct cards arrange(const struct rfs_devices_group *group, FILE *out)
{
    const struct rfs_layout *layout = group->layout;
    uint32_t across = layout->n_dev > 0 ? layout->dev[layout->n_dev - 1] : 1;

    if (across == 1 || layout->n_dev == 0) /* such an axis says nothing */
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

/* Returns how far a card begins below the first one, or where all cards end. */
static double row_of(const struct cards *cards, uint32_t rank)
{
    return (rank + cards->per_row - 1) / cards->per_row * (CARD_HIGH + GAP) +
           rank / cards->block * GAP;
}

/* Draws the slice marked in its tensor: axis 0 down, the last across; a single one across. */
static void draw_thumbnail(const struct cards *cards, uint32_t rank, double x, double y,
                           double size)
{
    const struct rfs_devices_group *group = cards->group;
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
    const struct rfs_devices_group *group = cards->group;
    struct rfs_printed shown;

    rfs_devices_put_slice(rfs_printed_begin(&shown), group, rank);
    RFS_FREE char *slice = rfs_printed_end(&shown);
    rfs_svg_fill(cards->out, x, y, cards->width, CARD_HIGH, rfs_devices_slice(group, rank), false);
    rfs_svg_text(cards->out, x + 8, y + 17, "k", "rank %" PRIu32,
                 group->stage * group->grid.ranks + rank);
    draw_thumbnail(cards, rank, x + 8, y + 24, 32);
    /* A text that is too long is cut: the drawing shows the same. */
    if (rfs_svg_width(slice) < cards->width - 52)
        rfs_svg_text(cards->out, x + 48, y + 44, "k", "%s", slice);
    else
        rfs_svg_text(cards->out, x + 48, y + 44, "k", "slice %" PRIu32,
                     rfs_devices_slice(group, rank));
}

static double draw_group(const struct request *request, const struct rfs_devices_group *group,
                         FILE *out, double top)
{
    const struct cards cards = arrange(group, out);
    const uint32_t n = group->grid.ranks;
    struct rfs_printed shown;

    if (!out)
        return TITLE + row_of(&cards, n) + 10;
    rfs_show_cuts(rfs_printed_begin(&shown), &group->grid);
    RFS_FREE char *cuts = rfs_printed_end(&shown);
    FILE *text = rfs_printed_begin(&shown);
    fputs("devices ", text);
    rfs_show_matrix(text, group->layout);
    fputs(", tensor map ", text);
    rfs_show_map(text, group->layout);
    if (group->layout->opt_size > 1)
        fprintf(text, ", optimizer shard %" PRIu32, group->layout->opt_size);
    if (rfs_strategy_stages(request->strategy) > 1)
        fprintf(text, ", stage %" PRIu32, group->stage);
    RFS_FREE char *what = rfs_printed_end(&shown);
    const char *first = rfs_strategy_param(request->strategy, request->groups.params[group->first]);
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

/* Writes request->svg. 0 or -errno with *err filled. */
static int draw_picture(const struct request *request, struct rfs_error *err)
{
    double height = HEAD;
    uint64_t cards = 0;
    FILE *out;

    for (size_t i = 0; i < request->groups.n; i++) {
        height += draw_group(request, &request->groups.data[i], NULL, 0);
        cards += request->groups.data[i].grid.ranks;
    }
    if (cards > MOST)
        return rfs_fail(err, -E2BIG, RFS_IN(request->file),
                        request->param ? "the text, or --json" : "--param NAME",
                        "its layouts have %" PRIu64 " devices together; at most %d can be drawn",
                        cards, MOST);
    const int rc = rfs_svg_open(request->svg, &out, err);
    if (rc)
        return rc;
    const char *name = rfs_path_name(request->file);
    rfs_svg_begin(out, WIDE, height + 16, "reshard layout");
    rfs_svg_text(out, MARGIN, 32, "h", "%s", name);
    rfs_svg_text(out, MARGIN, 49, "s",
                 "%zu parameters, %" PRIu32 " stage%s of %" PRIu32
                 " devices. A colour is a slice: devices of one colour hold the same.",
                 rfs_strategy_count(request->strategy), rfs_strategy_stages(request->strategy),
                 rfs_strategy_stages(request->strategy) == 1 ? "" : "s",
                 rfs_strategy_devices(request->strategy));
    double top = HEAD;
    for (size_t i = 0; i < request->groups.n; i++)
        top += draw_group(request, &request->groups.data[i], out, top);
    rfs_svg_end(out);
    return rfs_svg_close(request->svg, out, err);
}

/* ---- JSON for scripts; reshard(1) has the keys ----------------------------------------------- */

static void json_boxes(struct rfs_json_write *json, const struct rfs_devices_group *group,
                       uint32_t *cell)
{
    const struct rfs_grid *grid = &group->grid;

    rfs_json_array(json, "boxes", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < grid->rounds; k++) {
        rfs_json_array(json, NULL, RFS_JSON_TIGHT);
        for (uint32_t i = 0; i < grid->ndim; i++) {
            const uint64_t at = rfs_grid_begin(grid, group->whole, i, cell[i]);
            const uint64_t ends[] = {at, at + rfs_grid_length(grid, group->whole, i, cell[i])};
            rfs_json_put_u64s(json, NULL, RFS_JSON_TIGHT, ends, 2);
        }
        rfs_json_end(json);
        cell[0] += grid->pieces[0] / grid->rounds;
    }
    rfs_json_end(json);
}

static void json_rank(struct rfs_json_write *json, const struct rfs_devices_group *group,
                      uint32_t rank)
{
    const struct rfs_grid *grid = &group->grid;
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(grid, rank, cell);
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", group->stage * grid->ranks + rank);
    rfs_json_put_u64(json, "slice", rfs_devices_slice(group, rank));
    rfs_json_put_u32s(json, "pieces", RFS_JSON_TIGHT, cell, grid->ndim);
    if (group->known)
        json_boxes(json, group, cell);
    rfs_json_end(json);
}

static void json_group(struct rfs_json_write *json, const struct request *request,
                       const struct rfs_devices_group *group)
{
    const struct rfs_layout *layout = group->layout;
    struct rfs_printed shown;

    rfs_show_map(rfs_printed_begin(&shown), layout);
    RFS_FREE char *map = rfs_printed_end(&shown);
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "stage", group->stage);
    rfs_json_put_u32s(json, "device_matrix", RFS_JSON_SPACED, layout->dev, layout->n_dev);
    rfs_json_print(json, "tensor_map", "%s", map);
    rfs_json_put_u64(json, "optimizer_shard", layout->opt_size);
    if (group->known)
        rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, group->whole, group->grid.ndim);
    else
        rfs_json_put_null(json, "shape");
    rfs_json_put_u32s(json, "cuts", RFS_JSON_TIGHT, group->grid.pieces, group->grid.ndim);
    rfs_json_put_u64(json, "replicas", group->grid.replicas);
    rfs_json_put_u64(json, "fields", group->grid.rounds);
    rfs_json_array(json, "parameters", RFS_JSON_TIGHT);
    for (size_t i = 0; i < group->n; i++)
        rfs_json_put_text(
            json, NULL,
            rfs_strategy_param(request->strategy, request->groups.params[group->first + i]));
    rfs_json_end(json);
    rfs_json_array(json, "ranks", RFS_JSON_TIGHT);
    for (uint32_t rank = 0; rank < group->grid.ranks; rank++)
        json_rank(json, group, rank);
    rfs_json_end(json);
    rfs_json_end(json);
}

static void print_json(const struct request *request)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "file", request->file);
    rfs_json_put_u64(&json, "stages", rfs_strategy_stages(request->strategy));
    rfs_json_put_u64(&json, "devices", rfs_strategy_devices(request->strategy));
    rfs_json_array(&json, "layouts", RFS_JSON_TIGHT);
    for (size_t i = 0; i < request->groups.n; i++)
        json_group(&json, request, &request->groups.data[i]);
    rfs_json_finish(&json);
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Parses dims such as "1024,512"; "" are those of a scalar. */
static bool parse_shape(const char *text, struct request *out)
{
    RFS_FREE char *copy = strdup(text);
    uint64_t extent = 0;

    out->has_shape = true;
    out->n_shape = 0;
    for (char *part = copy && *copy ? copy : NULL, *next; part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (out->n_shape == RFS_GRID_DIMS || !rfs_tool_number(part, false, 1, INT64_MAX, &extent))
            return false;
        out->shape[out->n_shape++] = extent;
    }
    return copy != NULL;
}

static int take_shape(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    return parse_shape(given->value, request)
               ? 0
               : rfs_args_refuse(given, "a tensor's dims, such as --shape 1024,512", err);
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("FILE", struct request, file, "one FILE"),
    RFS_ARG_TEXT("param", "NAME", struct request, param, "one parameter"),
    RFS_ARG_OWN("shape", "N,N,...", take_shape,
                "the dims of its whole tensor, for slices in elements; else\nthey are fractions of "
                "the axes"),
    RFS_ARG_TEXT("svg", "FILE", struct request, svg, "also a picture; - for the standard output"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

static int show(struct request *request, struct rfs_error *err)
{
    if (!request->file)
        return rfs_fail_usage(err, "reshard layout FILE", "layout takes a strategy file");
    if (request->has_shape && !request->param)
        return rfs_fail_usage(err, "--param NAME", "--shape is that of one parameter");
    int rc = rfs_tool_reach(NULL, &request->file, 1, err)
                 ?: rfs_view_read_strategy(request->file, &request->strategy, err);
    if (rc)
        return rc;
    const struct rfs_devices_use use = {.strategy = request->strategy,
                                        .param = request->param,
                                        .shape = request->has_shape ? request->shape : NULL,
                                        .n_shape = request->n_shape};
    rc = rfs_devices_make(&use, &request->groups, err);
    if (rc == 0 && request->svg)
        rc = draw_picture(request, err);
    if (rc == 0 && request->json)
        print_json(request);
    else if (rc == 0 && (!request->svg || strcmp(request->svg, "-") != 0))
        draw(request, strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    return rc;
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;

    setlocale(LC_CTYPE, "");
    const int rc = show(request, err);
    rfs_devices_free(&request->groups);
    rfs_strategy_free(request->strategy);
    return rc;
}

const struct rfs_command rfs_command_layout = {
    .name = "layout",
    .usage = "reshard layout FILE [--param NAME [--shape N,...]] [--svg FILE] [--json]\n",
    .summary = "draws how a strategy spreads tensors over its devices",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .run = run,
};
