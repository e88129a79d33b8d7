/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON file that says in which of several safetensors files each tensor is, byte for byte as json.dumps
 * of Python writes it:
 *
 *     {"metadata": {"total_size": N}, "weight_map": {"w": "part0.safetensors", …}}
 *
 * model.safetensors.index.json of huggingface_hub and transformers: indent 2, keys sorted, a newline at the
 * end. param_name_map.json of MindSpore's unified_safetensors: indent 4, in the order given, no newline.
 */
#include "image/build.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

struct placed {
    const char *name;
    size_t name_bytes;
    const char *file;
};

/* UTF-8 sorts as the code points do, by which Python compares. */
static int by_name(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    const size_t n = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
    const int order = memcmp(x->name, y->name, n);

    return order ? order : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

static bool put_line(struct rfs_bytes *json, unsigned indent)
{
    bool ok = rfs_bytes_put_text(json, "\n");

    for (unsigned i = 0; ok && i < indent; i++)
        ok = rfs_bytes_put_text(json, " ");
    return ok;
}

static bool put_map(struct rfs_bytes *json, const struct placed *placed, size_t n, unsigned indent)
{
    bool ok = put_line(json, indent) && rfs_bytes_put_text(json, "\"weight_map\": {");

    for (size_t i = 0; ok && i < n; i++)
        ok = (i == 0 || rfs_bytes_put_text(json, ",")) && put_line(json, 2 * indent) &&
             rfs_bytes_put_json(json, placed[i].name, placed[i].name_bytes, RFS_JSON_PYTHON) &&
             rfs_bytes_put_text(json, ": ") &&
             rfs_bytes_put_json(json, placed[i].file, strlen(placed[i].file), RFS_JSON_PYTHON);
    /* An empty dict is {} on one line. */
    return ok && (n == 0 || put_line(json, indent)) && rfs_bytes_put_text(json, "}");
}

static bool put_all(struct rfs_bytes *json, const struct placed *placed, size_t n,
                    uint64_t total_size, unsigned indent)
{
    return rfs_bytes_put_text(json, "{") && put_line(json, indent) &&
           rfs_bytes_put_text(json, "\"metadata\": {") && put_line(json, 2 * indent) &&
           rfs_bytes_put_text(json, "\"total_size\": ") && rfs_bytes_put_number(json, total_size) &&
           put_line(json, indent) && rfs_bytes_put_text(json, "},") &&
           put_map(json, placed, n, indent) && put_line(json, 0) && rfs_bytes_put_text(json, "}");
}

int rfs_image_weight_map(struct rfs_catalog *catalog, const struct rfs_weight_map *map,
                         struct rfs_image **out)
{
    const struct rfs_intern *names = rfs_catalog_tables(catalog)->names;
    const bool sorted = map->style == RFS_WEIGHT_MAP_HUGGINGFACE;
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_FREE struct placed *placed = calloc(map->n + 1, sizeof *placed);

    *out = NULL;
    if (!placed)
        return -ENOMEM;
    for (size_t i = 0; i < map->n; i++) {
        placed[i].name = rfs_intern_bytes(names, map->names[i], &placed[i].name_bytes);
        placed[i].file = map->files[i];
    }
    if (sorted)
        qsort(placed, map->n, sizeof *placed, by_name);
    if (!put_all(&builder.literals, placed, map->n, map->total_size, sorted ? 2 : 4) ||
        (sorted && !rfs_bytes_put_text(&builder.literals, "\n")) ||
        !rfs_image_add_literals(&builder, 0))
        return -ENOMEM;
    return rfs_image_finish(&builder, NULL, out);
}
