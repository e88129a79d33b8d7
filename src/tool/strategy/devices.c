/* SPDX-License-Identifier: Apache-2.0 */
/* How a strategy spreads a tensor over its devices. */
#include "tool/strategy/devices.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/text.h"
#include "tool/common/show.h"

#include <langinfo.h>
#include <locale.h>
#include <unistd.h>

/* A parameter in a stage. */
struct part {
    uint32_t stage;
    const struct rfs_layout *layout; /* the strategy's */
    struct rfs_grid grid;
    bool known; /* the strategy, the tree or the user gives the dims; else only proportions */
    uint64_t whole[RFS_GRID_DIMS]; /* dims of the whole tensor */
};

struct parts {
    struct part *data;
    size_t n, cap;
};

static void parts_free(struct parts *parts)
{
    free(parts->data);
}

/* Sets the dims to the user's or the strategy's, or else to some that the layout divides. */
static int set_grid(const struct rfs_devices *devices, struct part *part, struct rfs_error *err)
{
    const struct rfs_layout *layout = part->layout;
    const struct rfs_where where = RFS_OF(rfs_strategy_name(devices->strategy), devices->param);
    const uint32_t ndim = devices->shape ? devices->n_shape : layout->n_axes;
    const uint64_t field = layout->field > 0 ? layout->field : 1;

    if (ndim > RFS_GRID_DIMS)
        return rfs_fail(err, -EINVAL, where, NULL, "a tensor with %" PRIu32 " axes", ndim);
    part->known = devices->shape != NULL || layout->n_expanded > 0 || ndim == 0;
    for (uint32_t i = 0; i < ndim; i++)
        part->whole[i] = devices->shape           ? devices->shape[i]
                         : layout->n_expanded > 0 ? layout->expanded[i]
                                                  : layout->devices * field * field;
    if (!devices->shape && layout->edge && ndim > 0)
        part->whole[0] = layout->edge[layout->n_edges - 1];
    const int rc = rfs_grid_resolve(layout, ndim, part->whole, RFS_DIMS_OF_WHOLE, &part->grid, NULL,
                                    NULL, where, err);
    return rc == -EINVAL && devices->shape
               ? rfs_fail(err, rc, where, "the dims of the whole tensor, each divided by its cuts",
                          "its layout does not cut a tensor of this --shape")
               : rc;
}

/* Adds the parameter's part in a stage, with the dims of the tree if that has them. */
static int add_part(const struct rfs_devices *devices, size_t param, uint32_t stage,
                    struct parts *parts, struct rfs_error *err)
{
    struct part part = {.stage = stage,
                        .layout = rfs_strategy_layout(devices->strategy, param, stage)};
    struct rfs_fit_tensor tensor;
    int rc = devices->fit && !devices->shape
                 ? rfs_fit_tensor(devices->fit, param, stage, &tensor, err)
                 : 0;

    if (rc == 1) {
        part.known = true;
        part.grid = tensor.grid;
        memcpy(part.whole, tensor.whole, sizeof tensor.whole);
    } else if (rc == 0) {
        rc = set_grid(devices, &part, err);
    }
    return rc < 0 ? rc : RFS_PUSH(parts, part) ? 0 : rfs_fail_memory(err);
}

static int list_parts(const struct rfs_devices *devices, struct parts *parts, struct rfs_error *err)
{
    const ptrdiff_t at = rfs_strategy_find(devices->strategy, devices->param);
    int rc = 0;

    if (at < 0)
        return rfs_fail(err, -ENOENT, RFS_OF(rfs_strategy_name(devices->strategy), devices->param),
                        "reshard strategy show without NAME, which lists the names",
                        "the strategy does not have it");
    for (uint32_t stage = rfs_strategy_next_stage(devices->strategy, (size_t)at, 0);
         rc == 0 && stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(devices->strategy, (size_t)at, stage + 1))
        rc = add_part(devices, (size_t)at, stage, parts, err);
    return rc;
}

/* ---- text for a terminal --------------------------------------------------------------------- */

/*
 * Draws the device matrix, a box for each device with its rank and its slice. The last device axis
 * runs across and the one before it down; others are blocks. A drawing that is too wide for a line
 * is continued below.
 */
#define NARROW 80 /* columns, where the terminal does not say */

struct strokes {
    const char *across, *down;
    const char *corner[3][3]; /* [row][column] */
};

static const struct strokes lines = {"─", "│", {{"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}}};
static const struct strokes ascii = {"-", "|", {{"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}}};

struct drawing {
    const struct part *part;
    const struct strokes *strokes;
    uint32_t base; /* the first rank of the stage */
    int width;     /* columns of a box's text */
};

static void put_fraction(FILE *out, uint32_t piece, uint32_t pieces)
{
    if (piece == 0 || piece == pieces)
        fprintf(out, "%d", piece == 0 ? 0 : 1);
    else
        fprintf(out, "%" PRIu32 "/%" PRIu32, piece, pieces);
}

static void put_cell(FILE *out, const struct part *part, const uint32_t *cell)
{
    const struct rfs_grid *grid = &part->grid;

    fputc('[', out);
    for (uint32_t i = 0; i < grid->ndim; i++) {
        const uint64_t at = rfs_grid_begin(grid, part->whole, i, cell[i]);
        fputs(i > 0 ? ", " : "", out);
        if (grid->pieces[i] == 1) {
            fputc(':', out);
        } else if (part->known || (i == 0 && grid->edge)) {
            fprintf(out, "%" PRIu64 ":%" PRIu64, at,
                    at + rfs_grid_length(grid, part->whole, i, cell[i]));
        } else {
            put_fraction(out, cell[i], grid->pieces[i]);
            fputc(':', out);
            put_fraction(out, cell[i] + 1, grid->pieces[i]);
        }
    }
    fputc(']', out);
}

/*
 * Returns the slice of a device, malloc'ed: "[0:256, :]", or where dims are not known in fractions
 * of the axes, "[0:1/4, :]". Cells of a field slicing are joined by " + ".
 */
static char *slice_text(const struct part *part, uint32_t device)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};
    struct rfs_printed text;
    FILE *out = rfs_printed_begin(&text);

    rfs_grid_cell(&part->grid, device, cell);
    for (uint32_t k = 0; k < part->grid.rounds; k++) {
        fputs(k > 0 ? " + " : "", out);
        put_cell(out, part, cell);
        cell[part->grid.round_axis] += part->grid.pieces[part->grid.round_axis] / part->grid.rounds;
    }
    return rfs_printed_end(&text);
}

static int text_width(const struct part *part, uint32_t base)
{
    int width = snprintf(NULL, 0, "rank %" PRIu32, base + part->grid.ranks - 1);

    for (uint32_t i = 0; i < part->grid.ranks; i++) {
        RFS_FREE char *slice = slice_text(part, i);
        if ((int)strlen(slice) > width)
            width = (int)strlen(slice);
    }
    return width;
}

static void put_line(const struct drawing *drawing, int row, uint32_t n)
{
    const char *const *corner = drawing->strokes->corner[row];

    printf("  %s", corner[0]);
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < drawing->width + 2; k++)
            fputs(drawing->strokes->across, stdout);
        fputs(corner[i + 1 < n ? 1 : 2], stdout);
    }
    putchar('\n');
}

/* Draws devices FIRST to FIRST + N - 1, side by side. */
static void put_devices(const struct drawing *drawing, uint32_t first, uint32_t n)
{
    const char *down = drawing->strokes->down;

    printf("  %s", down);
    for (uint32_t i = first; i < first + n; i++)
        printf(" rank %-*" PRIu32 " %s", drawing->width - 5, drawing->base + i, down);
    printf("\n  %s", down);
    for (uint32_t i = first; i < first + n; i++) {
        RFS_FREE char *slice = slice_text(drawing->part, i);
        printf(" %-*s %s", drawing->width, slice, down);
    }
    putchar('\n');
}

static uint32_t columns(void)
{
    const char *text = getenv("COLUMNS");
    const unsigned long n = text ? strtoul(text, NULL, 10) : 0;

    const unsigned terminal = rfs_text_columns(STDOUT_FILENO);

    return n >= 20 && n < 10000 ? (uint32_t)n : terminal >= 20 ? terminal : NARROW;
}

/* Draws N devices in rows of PER_ROW; the lines between rows are drawn once. */
static void put_block(const struct drawing *drawing, uint32_t first, uint32_t n, uint32_t per_row)
{
    const uint32_t fit = (columns() - 3) / (uint32_t)(drawing->width + 3);
    const uint32_t wide = fit < 1 ? 1 : fit < per_row ? fit : per_row;

    for (uint32_t at = 0; at < n;) {
        const uint32_t left = per_row - at % per_row;
        const uint32_t now = left < wide ? left : wide;
        /* The line above is as long as the longer of its neighbours. */
        put_line(drawing, at == 0 ? 0 : 1, at == 0 ? now : wide);
        put_devices(drawing, first + at, now);
        at += now;
        if (at >= n)
            put_line(drawing, 2, now);
    }
}

/*
 * Says where a block is in the outer axes: "device axis 2 at 0, device axis 3 at 1". Axes count
 * from the right.
 */
static void put_where(const struct rfs_layout *layout, uint32_t device)
{
    uint32_t stride = layout->devices;

    fputs("  ", stdout);
    for (uint32_t p = 0; p + 2 < layout->n_dev; p++) {
        stride /= layout->dev[p];
        printf("%sdevice axis %" PRIu32 " at %" PRIu32, p > 0 ? ", " : "", layout->n_dev - 1 - p,
               device / stride % layout->dev[p]);
    }
    fputs(":\n", stdout);
}

static void put_part(const struct rfs_devices *devices, const struct part *part, bool utf8)
{
    const struct rfs_layout *layout = part->layout;
    const uint32_t across = layout->n_dev > 0 ? layout->dev[layout->n_dev - 1] : 1;
    const uint32_t down = layout->n_dev > 1 ? layout->dev[layout->n_dev - 2] : 1;
    const uint32_t base = part->stage * layout->devices;
    const struct drawing drawing = {part, utf8 ? &lines : &ascii, base, text_width(part, base)};

    fputs("\n1 parameter: devices ", stdout);
    rfs_show_matrix(stdout, layout);
    fputs(", map ", stdout);
    rfs_show_map(stdout, layout);
    if (layout->opt_size > 1)
        printf(", optimizer shard %" PRIu32, layout->opt_size);
    if (part->known) {
        fputs(", tensor ", stdout);
        rfs_show_dims(stdout, part->grid.ndim, part->whole);
    }
    fputs("\n  ", stdout);
    rfs_show_cuts(stdout, &part->grid);
    fputs("\n  ", stdout);
    rfs_text_put(stdout, devices->param);
    putchar('\n');
    for (uint32_t at = 0; at < layout->devices; at += across * down) {
        if (across * down < layout->devices)
            put_where(layout, at);
        put_block(&drawing, at, across * down, across);
    }
}

static void draw(const struct rfs_devices *devices, const struct parts *parts)
{
    const uint32_t stages = rfs_strategy_stages(devices->strategy);
    const uint32_t n = rfs_strategy_devices(devices->strategy);
    const size_t params = rfs_strategy_count(devices->strategy);
    const size_t layouts = rfs_strategy_layouts(devices->strategy);

    setlocale(LC_CTYPE, "");
    printf("%zu parameter%s in %zu layout%s, %" PRIu32 " stage%s of %" PRIu32 " device%s\n", params,
           params == 1 ? "" : "s", layouts, layouts == 1 ? "" : "s", stages, stages == 1 ? "" : "s",
           n, n == 1 ? "" : "s");
    for (size_t i = 0; i < parts->n; i++) {
        const uint32_t stage = parts->data[i].stage;
        if (stages > 1)
            printf("\nstage %" PRIu32 ": ranks %" PRIu32 " to %" PRIu32 "\n", stage, stage * n,
                   (stage + 1) * n - 1);
        put_part(devices, &parts->data[i], strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
    }
}

/* ---- JSON for scripts; reshard(1) has the keys ----------------------------------------------- */

static void put_boxes(struct rfs_json_write *json, const struct part *part, uint32_t *cell)
{
    const struct rfs_grid *grid = &part->grid;

    rfs_json_array(json, "boxes", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < grid->rounds; k++) {
        rfs_json_array(json, NULL, RFS_JSON_TIGHT);
        for (uint32_t i = 0; i < grid->ndim; i++) {
            const uint64_t at = rfs_grid_begin(grid, part->whole, i, cell[i]);
            const uint64_t ends[] = {at, at + rfs_grid_length(grid, part->whole, i, cell[i])};
            rfs_json_put_u64s(json, NULL, RFS_JSON_TIGHT, ends, 2);
        }
        rfs_json_end(json);
        cell[grid->round_axis] += grid->pieces[grid->round_axis] / grid->rounds;
    }
    rfs_json_end(json);
}

static void put_rank(struct rfs_json_write *json, const struct part *part, uint32_t device)
{
    const struct rfs_grid *grid = &part->grid;
    uint32_t cell[RFS_GRID_DIMS] = {0};
    uint64_t slice = 0;

    rfs_grid_cell(grid, device, cell);
    for (uint32_t i = 0; i < grid->ndim; i++)
        slice = slice * (grid->pieces[i] / (i == grid->round_axis ? grid->rounds : 1)) + cell[i];
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "rank", part->stage * grid->ranks + device);
    rfs_json_put_u64(json, "slice", slice);
    rfs_json_put_u32s(json, "pieces", RFS_JSON_TIGHT, cell, grid->ndim);
    if (part->known)
        put_boxes(json, part, cell);
    rfs_json_end(json);
}

static void put_layout(struct rfs_json_write *json, const struct rfs_devices *devices,
                       const struct part *part)
{
    const struct rfs_layout *layout = part->layout;
    struct rfs_printed shown;

    rfs_show_map(rfs_printed_begin(&shown), layout);
    RFS_FREE char *map = rfs_printed_end(&shown);
    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "stage", part->stage);
    rfs_json_put_u32s(json, "device_matrix", RFS_JSON_SPACED, layout->dev, layout->n_dev);
    rfs_json_print(json, "tensor_map", "%s", map);
    rfs_json_put_u64(json, "optimizer_shard", layout->opt_size);
    if (part->known)
        rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, part->whole, part->grid.ndim);
    else
        rfs_json_put_null(json, "shape");
    rfs_json_put_u32s(json, "cuts", RFS_JSON_TIGHT, part->grid.pieces, part->grid.ndim);
    rfs_json_put_u64(json, "replicas", part->grid.replicas);
    rfs_json_put_u64(json, "fields", part->grid.rounds);
    rfs_json_array(json, "parameters", RFS_JSON_TIGHT);
    rfs_json_put_text(json, NULL, devices->param);
    rfs_json_end(json);
    rfs_json_array(json, "ranks", RFS_JSON_TIGHT);
    for (uint32_t i = 0; i < part->grid.ranks; i++)
        put_rank(json, part, i);
    rfs_json_end(json);
    rfs_json_end(json);
}

static void print_json(const struct rfs_devices *devices, const struct parts *parts)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "file", devices->path);
    rfs_json_put_u64(&json, "stages", rfs_strategy_stages(devices->strategy));
    rfs_json_put_u64(&json, "devices", rfs_strategy_devices(devices->strategy));
    rfs_json_array(&json, "layouts", RFS_JSON_TIGHT);
    for (size_t i = 0; i < parts->n; i++)
        put_layout(&json, devices, &parts->data[i]);
    rfs_json_finish(&json);
}

int rfs_devices_print(const struct rfs_devices *devices, bool json, struct rfs_error *err)
{
    RFS_CLEANUP(parts_free) struct parts parts = {0};
    const int rc = list_parts(devices, &parts, err);

    if (rc == 0)
        (json ? print_json : draw)(devices, &parts);
    return rc;
}
