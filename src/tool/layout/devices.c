/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/layout/devices.h"

#include "base/order.h"

void rfs_groups_free(struct rfs_groups *groups)
{
    free(groups->data);
    free(groups->params);
    *groups = (struct rfs_groups){0};
}

/* A parameter in a stage. */
struct place {
    uint32_t stage, param;
    const struct rfs_layout *layout;
    uint32_t first; /* the first parameter of that layout in that stage */
};

struct places {
    struct place *data;
    size_t n, cap;
};

RFS_COMPARE(by_layout, struct place, x, y,
            RFS_ORDER(x->stage, y->stage)
                ?: RFS_ORDER(x->layout->id, y->layout->id)
                ?: RFS_ORDER(x->param, y->param))

RFS_COMPARE(by_first, struct place, x, y,
            RFS_ORDER(x->stage, y->stage)
                ?: RFS_ORDER(x->first, y->first)
                ?: RFS_ORDER(x->param, y->param))

static bool list_places(const struct rfs_groups_use *use, struct places *out)
{
    for (size_t i = 0; i < rfs_strategy_count(use->strategy); i++) {
        if (use->param && strcmp(use->param, rfs_strategy_param(use->strategy, i)) != 0)
            continue;
        for (uint32_t s = rfs_strategy_next_stage(use->strategy, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(use->strategy, i, s + 1)) {
            const struct place place = {.stage = s,
                                        .param = (uint32_t)i,
                                        .layout = rfs_strategy_layout(use->strategy, i, s)};
            if (!RFS_PUSH(out, place))
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

/* Dims that are the user's or the strategy's, or else some that the layout divides. */
static int set_grid(const struct rfs_groups_use *use, struct rfs_group *group, const char *param,
                    struct rfs_error *err)
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

static int add_group(const struct rfs_groups_use *use, struct rfs_groups *out,
                     const struct place *place, size_t at, struct rfs_error *err)
{
    const struct rfs_group group = {.stage = place->stage, .layout = place->layout, .first = at};

    return RFS_PUSH(out, group) ? set_grid(use, &out->data[out->n - 1],
                                           rfs_strategy_param(use->strategy, place->param), err)
                                : rfs_fail_memory(err);
}

int rfs_groups_make(const struct rfs_groups_use *use, struct rfs_groups *out, struct rfs_error *err)
{
    struct places places = {0};
    int rc = list_places(use, &places) ? 0 : rfs_fail_memory(err);

    if (rc == 0 && places.n == 0)
        rc = rfs_fail(err, -ENOENT, RFS_OF(rfs_strategy_name(use->strategy), use->param),
                      "reshard layout without --param, which lists the names",
                      "the strategy does not have it");
    out->params = calloc(places.n + 1, sizeof *out->params);
    if (rc == 0 && !out->params)
        rc = rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < places.n; i++) {
        const bool same = i > 0 && places.data[i - 1].stage == places.data[i].stage &&
                          places.data[i - 1].first == places.data[i].first;
        if (!same)
            rc = add_group(use, out, &places.data[i], i, err);
        if (rc == 0)
            out->data[out->n - 1].n++;
        out->params[i] = places.data[i].param;
    }
    free(places.data);
    return rc;
}

static void put_fraction(FILE *out, uint32_t piece, uint32_t pieces)
{
    if (piece == 0 || piece == pieces)
        fprintf(out, "%d", piece == 0 ? 0 : 1);
    else
        fprintf(out, "%" PRIu32 "/%" PRIu32, piece, pieces);
}

static void put_cell(FILE *out, const struct rfs_group *group, const uint32_t *cell)
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

void rfs_put_slice(FILE *out, const struct rfs_group *group, uint32_t rank)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};

    rfs_grid_cell(&group->grid, rank, cell);
    for (uint32_t k = 0; k < group->grid.rounds; k++) {
        fputs(k > 0 ? " + " : "", out);
        put_cell(out, group, cell);
        cell[0] += group->grid.pieces[0] / group->grid.rounds;
    }
}

uint32_t rfs_group_slice(const struct rfs_group *group, uint32_t rank)
{
    uint32_t cell[RFS_GRID_DIMS] = {0};
    uint32_t number = 0;

    rfs_grid_cell(&group->grid, rank, cell);
    for (uint32_t i = 0; i < group->grid.ndim; i++)
        number = number * (group->grid.pieces[i] / (i == 0 ? group->grid.rounds : 1)) + cell[i];
    return number;
}
