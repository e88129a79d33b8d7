/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For terminals: each layout's device matrix, a box for each device with its rank and its slice.
 * The last device axis runs across and the one before it down; others are blocks. A drawing that is
 * too wide for a line is continued below.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/layout/layout.h"

#define NAMES 6        /* of a layout's parameters that are listed */
#define RANKS_DRAWN 64 /* of a layout; all of them with --param */
#define NARROW 80      /* columns, where the terminal does not say */

struct strokes {
    const char *across, *down;
    const char *corner[3][3]; /* by row and column */
};

static const struct strokes boxes = {"─", "│", {{"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}}};
static const struct strokes ascii = {"-", "|", {{"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}}};

/* The slices of a group's ranks as text. */
struct labels {
    const struct rfs_group *group;
    char **text; /* [n] owned, each with its memory; may be NULL */
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
        rfs_put_slice(rfs_printed_begin(&label), labels->group, i);
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

/* Devices FIRST to FIRST + N - 1, side by side. */
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

/* Boxes of N devices in rows of PER_ROW; the lines between rows are drawn once. */
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
 * "device axis 2 = 0, device axis 3 = 1": where a block is in the outer axes. Axes count from the
 * right.
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

static void put_matrix(const struct rfs_layout_job *job, const struct rfs_group *group,
                       const struct strokes *strokes)
{
    const struct rfs_layout *layout = group->layout;
    const uint32_t across = layout->n_dev > 0 ? layout->dev[layout->n_dev - 1] : 1;
    const uint32_t down = layout->n_dev > 1 ? layout->dev[layout->n_dev - 2] : 1;
    const uint32_t block = across * down;
    const uint32_t most = job->param ? layout->devices : RANKS_DRAWN;
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

static void put_names(const struct rfs_layout_job *job, const struct rfs_group *group)
{
    fputs("  ", stdout);
    for (size_t i = 0; i < group->n && i < NAMES; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        rfs_text_put(stdout,
                     rfs_strategy_param(job->strategy, job->groups.params[group->first + i]));
    }
    if (group->n > NAMES)
        printf(" and %zu more", group->n - NAMES);
    putchar('\n');
}

static void put_group(const struct rfs_layout_job *job, const struct rfs_group *group,
                      const struct strokes *strokes)
{
    const struct rfs_layout *layout = group->layout;

    printf("\n%zu parameter%s: devices ", group->n, group->n == 1 ? "" : "s");
    rfs_put_matrix(stdout, layout);
    fputs(", map ", stdout);
    rfs_put_map(stdout, layout);
    if (layout->opt_size > 1)
        printf(", optimizer shard %" PRIu32, layout->opt_size);
    if (group->known) {
        fputs(", tensor ", stdout);
        rfs_put_dims(stdout, group->grid.ndim, group->whole);
    }
    fputs("\n  ", stdout);
    rfs_put_cuts(stdout, &group->grid);
    putchar('\n');
    put_names(job, group);
    put_matrix(job, group, strokes);
}

void rfs_layout_draw(const struct rfs_layout_job *job, bool utf8)
{
    const uint32_t stages = rfs_strategy_stages(job->strategy);
    const uint32_t devices = rfs_strategy_devices(job->strategy);
    uint32_t stage = UINT32_MAX;

    printf("%zu parameter%s in %zu layout%s, %" PRIu32 " stage%s of %" PRIu32 " device%s\n",
           rfs_strategy_count(job->strategy), rfs_strategy_count(job->strategy) == 1 ? "" : "s",
           rfs_strategy_layouts(job->strategy), rfs_strategy_layouts(job->strategy) == 1 ? "" : "s",
           stages, stages == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
    for (size_t i = 0; i < job->groups.n; i++) {
        const struct rfs_group *group = &job->groups.data[i];
        if (stages > 1 && group->stage != stage)
            printf("\nstage %" PRIu32 ": ranks %" PRIu32 " to %" PRIu32 "\n", group->stage,
                   group->stage * devices, (group->stage + 1) * devices - 1);
        stage = group->stage;
        put_group(job, group, utf8 ? &boxes : &ascii);
    }
}
