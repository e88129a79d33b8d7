/* SPDX-License-Identifier: Apache-2.0 */
/* The description of one tensor: its cut, and the source ranks and files of its bytes. */
#include "base/cleanup.h"
#include "image/npy.h"
#include "plan/geometry.h"
#include "view/hidden.h"
#include "view/sources.h"

/* The boxes of a rank, one for each round; to be freed by the caller. NULL when out of memory. */
static uint64_t *make_boxes(const struct rfs_geometry *geometry, uint32_t local)
{
    const uint32_t rounds = geometry->dst.rounds;
    uint64_t *boxes = calloc((size_t)rounds * geometry->ndim, 2 * sizeof *boxes);
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];
    uint64_t *at = boxes;
    uint32_t round = UINT32_MAX;

    if (!boxes)
        return NULL;
    rfs_geometry_cells(geometry, local, &cells, cell);
    do {
        if (cells.round == round)
            continue;
        round = cells.round;
        for (uint32_t i = 0; i < geometry->ndim; i++) {
            *at++ = cells.lo[i];
            *at++ = cells.hi[i];
        }
    } while (rfs_cells_next(geometry, &cells, cell));
    return boxes;
}

/* How a target that has bytes is cut. 0 or -ENOMEM; *boxes is owned by the caller. */
static int tell_cut(const struct rfs_tensors *tensors, const struct rfs_target *target,
                    struct rfs_about *about, uint64_t **boxes)
{
    const struct rfs_geometry *geometry =
        tensors->planner ? rfs_planner_geometry(tensors->planner, target) : NULL;
    struct rfs_scale scale;

    if (!geometry || geometry->ndim == 0 || about->type->bytes == 0)
        return 0;
    rfs_planner_scale(tensors->planner, &scale);
    *boxes = make_boxes(geometry, tensors->rank % scale.dst_devices);
    about->ndim = geometry->ndim;
    about->whole = geometry->whole;
    about->source_pieces = geometry->src.pieces;
    about->pieces = geometry->dst.pieces;
    about->boxes = *boxes;
    about->n_boxes = geometry->dst.rounds;
    return *boxes ? 0 : -ENOMEM;
}

/* The paths of files, by id; to be freed, not each. NULL when out of memory. */
static const char **make_paths(struct rfs_view *view, const struct rfs_sources *sources)
{
    const struct rfs_files *files = rfs_catalog_files(view->catalog);
    const char **paths = calloc(sources->n_files + 1, sizeof *paths);

    for (size_t i = 0; paths && i < sources->n_files; i++)
        paths[i] = rfs_files_path(files, sources->files[i]);
    return paths;
}

static int make_about(struct rfs_view *view, const struct rfs_view_hidden_place *place,
                      const struct rfs_tensors *tensors, const struct rfs_sources *sources,
                      struct rfs_image **out)
{
    const struct rfs_target *target = &tensors->params->targets[place->target];
    RFS_FREE const char **paths = make_paths(view, sources);
    RFS_FREE uint64_t *boxes = NULL;
    struct rfs_about about = {
        .name = rfs_catalog_name(view->catalog, target->shown_name),
        .source_name = rfs_catalog_name(view->catalog, target->name),
        .type = rfs_catalog_type(view->catalog, target->shown_type),
        .source_type = rfs_catalog_type(view->catalog, target->type),
        .rank = place->group > 0 && tensors->planner ? (int64_t)place->group - 1 : -1,
        .n_ranks = sources->n_ranks,
        .ranks = sources->ranks,
        .n_files = sources->n_files,
        .files = paths,
    };

    const int rc = paths ? tell_cut(tensors, target, &about, &boxes) : -ENOMEM;
    return rc ? rc : rfs_image_about(&about, out);
}

int rfs_view_hidden_about(struct rfs_view *view, const struct rfs_view_hidden_place *place,
                          const struct rfs_tensors *tensors, struct rfs_image **out,
                          struct rfs_error *err)
{
    RFS_CLEANUP(rfs_sources_free) struct rfs_sources sources = {0};

    int rc = rfs_sources_of_target(view, tensors, place->target, &sources)
                 ?: make_about(view, place, tensors, &sources, out);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_fail(err, rc, RFS_IN(rfs_catalog_path(view->catalog)), NULL, "%s",
                                    strerror(-rc))
                         : 0;
}
