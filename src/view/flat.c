/* SPDX-License-Identifier: Apache-2.0 */
#include "view/flat.h"

#include "base/cleanup.h"

bool flat_parts_init(struct flat_parts *parts, const struct rfs_params *params, size_t n)
{
    parts->params = params;
    parts->targets = calloc(n + 1, sizeof *parts->targets);
    parts->part_of = calloc(n + 1, sizeof *parts->part_of);
    return parts->targets && parts->part_of;
}

void flat_parts_end(struct flat_parts *parts)
{
    for (uint32_t i = 0; parts->names && i < parts->n_parts; i++)
        free(parts->names[i]);
    free(parts->names);
    free(parts->targets);
    free(parts->part_of);
    free(parts->order);
    free(parts->ends);
}

uint64_t flat_bytes(const struct rfs_view *view, const struct rfs_target *target)
{
    return rfs_catalog_type(view->catalog, target->shown_type)->bytes;
}

int flat_group(struct rfs_view *view, struct flat_parts *parts, size_t more, struct rfs_error *err)
{
    parts->names = calloc(parts->n_parts + 1, sizeof *parts->names);
    parts->order = calloc(parts->n + 1, sizeof *parts->order);
    parts->ends = calloc(parts->n_parts + 1, sizeof *parts->ends);
    view->files = calloc((size_t)parts->n_parts + more, sizeof *view->files);
    if (!parts->names || !parts->order || !parts->ends || !view->files)
        return rfs_fail_memory(err);
    /* Ends are begins first: each moves on with the targets that are put there. */
    for (size_t i = 0; i < parts->n; i++)
        parts->ends[parts->part_of[i] + 1]++;
    for (uint32_t p = 1; p <= parts->n_parts; p++)
        parts->ends[p] += parts->ends[p - 1];
    for (size_t i = 0; i < parts->n; i++)
        parts->order[parts->ends[parts->part_of[i]]++] = parts->targets[i];
    return 0;
}

int flat_show(struct rfs_view *view, const char *name, size_t parameters, struct rfs_image *image,
              struct rfs_error *err)
{
    struct shown_file *file = &view->files[view->n_files++];

    file->own = image;
    file->mapped = true;
    file->parameters = parameters;
    atomic_init(&file->image, image);
    file->name = strdup(name);
    return file->name ? 0 : rfs_fail_memory(err);
}

int flat_show_parts(struct rfs_view *view, const struct flat_parts *parts, struct rfs_error *err)
{
    size_t begin = 0;

    for (uint32_t p = 0; p < parts->n_parts; p++) {
        const struct rfs_selection selection = {parts->params, parts->order + begin,
                                                parts->ends[p] - begin, "-o file_size="};
        struct rfs_image *image;
        begin = parts->ends[p];
        if (selection.n == 0)
            continue;
        int rc = rfs_image_safetensors(view->catalog, &selection, parts->format, &image, err)
                     ?: flat_show(view, parts->names[p], selection.n, image, err);
        if (rc)
            return rc;
    }
    return 0;
}

int flat_show_map(struct rfs_view *view, const struct flat_parts *parts, uint32_t n,
                  const char *name, enum rfs_weight_map_style style, struct rfs_error *err)
{
    RFS_FREE uint32_t *names = calloc(parts->n + 1, sizeof *names);
    RFS_FREE const char **files = calloc(parts->n + 1, sizeof *files);
    struct rfs_weight_map map = {.style = style, .names = names, .files = files};
    struct rfs_image *image;
    size_t at = 0;

    if (!names || !files)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; p < n; p++)
        for (; at < parts->ends[p]; at++) {
            const struct rfs_target *target = &parts->params->targets[parts->order[at]];
            names[at] = target->shown_name;
            files[at] = parts->names[p];
            map.total_size += flat_bytes(view, target);
        }
    map.n = at;
    if (rfs_image_weight_map(view->catalog, &map, &image))
        return rfs_fail_memory(err);
    return flat_show(view, name, 0, image, err);
}
