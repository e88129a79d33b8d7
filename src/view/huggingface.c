/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that save_torch_state_dict of huggingface_hub and save_pretrained of transformers make:
 * model.safetensors, or model-00001-of-0000N.safetensors and so on with
 * model.safetensors.index.json. They are filled in the order of the parameters
 * (split_state_dict_into_shards_factory): one that is larger than a file may be has a file for
 * itself, one that the file at hand has no room for begins the next.
 */
#include "view/convert.h"
#include "view/flat.h"

#include "base/cleanup.h"
#include "base/text.h"

#define FILE_BYTES UINT64_C(5000000000) /* the 5GB that both have for a default */
#define NO_PART UINT32_MAX

/* Gives the targets from *first on that have no part one of their own, if there is any. */
static void close_part(struct flat_parts *parts, size_t *first, size_t end)
{
    bool any = false;

    for (; *first < end; ++*first)
        if (parts->part_of[*first] == NO_PART) {
            parts->part_of[*first] = parts->n_parts;
            any = true;
        }
    parts->n_parts += any;
}

static void divide(const struct rfs_view *view, struct flat_parts *parts, uint64_t most)
{
    uint64_t filled = 0;
    size_t first = 0;

    parts->n = parts->params->n;
    for (size_t i = 0; i < parts->n; i++) {
        const uint64_t bytes = flat_bytes(view, &parts->params->targets[i]);
        parts->targets[i] = (uint32_t)i;
        parts->part_of[i] = NO_PART;
        if (bytes > most) {
            parts->part_of[i] = parts->n_parts++;
            continue;
        }
        if (bytes > most - filled) {
            close_part(parts, &first, i);
            filled = 0;
        }
        filled += bytes;
    }
    close_part(parts, &first, parts->n);
}

int rfs_view_huggingface(struct rfs_view *view, const struct rfs_params *params,
                         struct rfs_error *err)
{
    const uint64_t most = view->options.file_size ? view->options.file_size : FILE_BYTES;
    RFS_CLEANUP(flat_parts_end) struct flat_parts parts = {.format = "pt"};
    RFS_CLEANUP(rfs_view_convert_files_end) struct convert_files files = {.folder = NULL};

    if (!flat_parts_init(&parts, params, params->n))
        return rfs_fail_memory(err);
    divide(view, &parts, most);
    int rc = rfs_view_convert_list(view, &files, err)
                 ?: flat_group(view, &parts, 2 + files.names.n, err);
    for (uint32_t p = 0; !rc && p < parts.n_parts; p++) {
        parts.names[p] = parts.n_parts == 1 ? strdup("model.safetensors")
                                            : rfs_text_printf("model-%05u-of-%05u.safetensors",
                                                              p + 1, parts.n_parts);
        if (!parts.names[p])
            rc = rfs_fail_memory(err);
    }
    if (!rc)
        rc = flat_show_parts(view, &parts, err);
    if (!rc && parts.n_parts > 1)
        rc = flat_show_map(view, &parts, parts.n_parts, "model.safetensors.index.json",
                           RFS_WEIGHT_MAP_HUGGINGFACE, err);
    return rc ? rc : rfs_view_convert_show(view, &files, err);
}
