/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/layout_text.h"

#include "base/text.h"

void rfs_put_dims(FILE *out, uint32_t ndim, const uint64_t *dims)
{
    char text[RFS_DIMS_TEXT(RFS_GRID_DIMS)];

    fputs(rfs_text_dims(text, sizeof text, ndim, dims), out);
}

void rfs_put_matrix(FILE *out, const struct rfs_layout *layout)
{
    fputc('[', out);
    for (uint32_t i = 0; i < layout->n_dev; i++)
        fprintf(out, "%s%" PRIu32, i > 0 ? ", " : "", layout->dev[i]);
    fputc(']', out);
}

void rfs_put_map(FILE *out, const struct rfs_layout *layout)
{
    fputc('[', out);
    for (uint32_t axis = 0; axis < layout->n_axes; axis++) {
        const uint32_t begin = layout->start[axis];
        const uint32_t end = layout->start[axis + 1];
        const bool one = end == begin + 1;

        fprintf(out, "%s%s", axis > 0 ? ", " : "", one ? "" : "[");
        for (uint32_t i = begin; i < end; i++)
            fprintf(out, "%s%" PRId32, i > begin ? ", " : "", layout->map[i]);
        fputs(one ? "" : "]", out);
    }
    fputc(']', out);
}

void rfs_table_layout(struct rfs_table *table, const struct rfs_layout *layout)
{
    rfs_put_matrix(rfs_table_cell(table), layout);
    rfs_table_cell_end(table);
    rfs_put_map(rfs_table_cell(table), layout);
    rfs_table_cell_end(table);
    rfs_table_u64(table, layout->opt_size);
}

void rfs_put_box(FILE *out, uint32_t ndim, const uint64_t *whole, const uint64_t *at,
                 const uint64_t *len)
{
    fputc('[', out);
    for (uint32_t i = 0; i < ndim; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (at[i] == 0 && len[i] == whole[i])
            fputc(':', out);
        else
            fprintf(out, "%" PRIu64 ":%" PRIu64, at[i], at[i] + len[i]);
    }
    fputc(']', out);
}

void rfs_put_cuts(FILE *out, const struct rfs_grid *grid)
{
    uint32_t cut = 0;

    for (uint32_t i = 0; i < grid->ndim; i++)
        if (grid->pieces[i] > 1)
            fprintf(out, "%saxis %" PRIu32 " in %" PRIu32, cut++ > 0 ? ", " : "", i,
                    grid->pieces[i]);
    if (grid->edge)
        fputs(" uneven pieces", out);
    if (grid->rounds > 1)
        fprintf(out, ", %" PRIu32 " of them in each slice", grid->rounds);
    if (cut == 0)
        fprintf(out, grid->ranks > 1 ? "whole on each of %" PRIu32 " devices" : "whole",
                grid->ranks);
    else if (grid->replicas > 1)
        fprintf(out, ", on %" PRIu32 " ranks each", grid->replicas);
}
