/* SPDX-License-Identifier: Apache-2.0 */
#include "view/sources.h"

#include "base/cleanup.h"
#include "base/order.h"

void rfs_sources_free(struct rfs_sources *sources)
{
    free(sources->files);
    free(sources->ranks);
    *sources = (struct rfs_sources){0};
}

RFS_COMPARE(compare, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Whether one of the ids [FIRST, FIRST + N) is among the files. */
static bool has_any(const struct rfs_sources *sources, uint32_t first, uint32_t n)
{
    const size_t at = RFS_BISECT(i, sources->n_files, sources->files[i] >= first);

    return at < sources->n_files && sources->files[at] - first < n;
}

static int name_ranks(const struct rfs_view *view, struct rfs_sources *sources)
{
    const uint32_t n = rfs_catalog_ranks(view->stored);

    sources->ranks = malloc(((size_t)n + 1) * sizeof *sources->ranks);
    if (!sources->ranks)
        return -ENOMEM;
    for (uint32_t r = 0; r < n; r++)
        if (rfs_catalog_has(view->stored, r) && !rfs_catalog_stands_in(view->stored, r) &&
            has_any(sources, rfs_catalog_file(view->stored, r), rfs_catalog_parts(view->stored, r)))
            sources->ranks[sources->n_ranks++] = r;
    return 0;
}

int rfs_sources_of_files(const struct rfs_view *view, const uint32_t *files, size_t n,
                         struct rfs_sources *out)
{
    out->files = malloc((n + 1) * sizeof *out->files);
    if (!out->files)
        return -ENOMEM;
    if (n > 0)
        memcpy(out->files, files, n * sizeof *files);
    RFS_SORT(out->files, n, compare);
    for (size_t i = 0; i < n; i++)
        if (out->n_files == 0 || out->files[out->n_files - 1] != out->files[i])
            out->files[out->n_files++] = out->files[i];
    return name_ranks(view, out);
}

int rfs_sources_of_target(const struct rfs_view *view, const struct rfs_tensors *tensors,
                          uint32_t target, struct rfs_sources *out)
{
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice slice = {0};
    RFS_FREE uint32_t *files = NULL;

    const int rc = rfs_tensors_slice(tensors, target, &slice);
    if (rc)
        return rc;
    files = malloc((slice.n + 1) * sizeof *files);
    if (!files)
        return -ENOMEM;
    for (size_t i = 0; i < slice.n; i++)
        files[i] = slice.blocks[i].file;
    return rfs_sources_of_files(view, files, slice.n, out);
}

int rfs_sources_of_all(const struct rfs_view *view, struct rfs_sources *out)
{
    const uint32_t n = rfs_catalog_ranks(view->stored);

    out->ranks = malloc(((size_t)n + 1) * sizeof *out->ranks);
    if (!out->ranks)
        return -ENOMEM;
    for (uint32_t r = 0; r < n; r++)
        if (rfs_catalog_has(view->stored, r))
            out->ranks[out->n_ranks++] = r;
    return 0;
}
