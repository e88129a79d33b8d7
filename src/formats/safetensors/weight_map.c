/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON file that maps each tensor to one of several safetensors files, byte for byte as
 * json.dumps of Python writes it:
 *
 *     {"metadata": {"total_size": N}, "weight_map": {"w": "part0.safetensors", …}}
 *
 * model.safetensors.index.json of huggingface_hub and transformers: indent 2, keys sorted, a
 * newline at the end. pytorch_model.bin.index.json is like it, and names files of torch.save;
 * model.safetensors.index.fp16.json is that of a variant: both are only read. param_name_map.json
 * of MindSpore's unified_safetensors: indent 4, in the order given, no newline. Before 2.5 it was
 * the map itself, and _load_parallel_checkpoint takes the whole object where there is no
 * weight_map.
 */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/text.h"
#include "formats/safetensors/safetensors.h"

const struct rfs_mapfile_form rfs_weight_map_forms[] = {
    [RFS_WEIGHT_MAP_HUGGINGFACE] = {"weight_map", true},
    [RFS_WEIGHT_MAP_MINDSPORE] = {"weight_map", false},
};

/* Says whether the N bytes of a name end in ENDING. */
static bool ends(const char *name, size_t n, const char *ending)
{
    const size_t bytes = strlen(ending);

    return n >= bytes && memcmp(name + n - bytes, ending, bytes) == 0;
}

bool rfs_safetensors_map_name(const char *name, struct rfs_weight_map_name *out)
{
    const char *json = name + strlen(name) - (rfs_text_ends(name, ".json") ? strlen(".json") : 0);

    for (const char *at = name; (at = strstr(at, ".index.")) != NULL; at++) {
        const char *variant = at + strlen(".index");
        const size_t n = (size_t)(at - name);
        const bool torch = ends(name, n, ".bin");
        *out = (struct rfs_weight_map_name){n, torch ? RFS_FORMAT_TORCH : RFS_FORMAT_SAFETENSORS,
                                            variant < json};
        if ((torch || ends(name, n, ".safetensors")) && *json && variant <= json &&
            !memchr(variant + out->variant, '.', (size_t)(json - variant - out->variant)))
            return true;
    }
    return false;
}

bool rfs_safetensors_map_style(const char *name, enum rfs_weight_map_style *style)
{
    struct rfs_weight_map_name unused;

    *style = strcmp(name, RFS_WEIGHT_MAP_MINDSPORE_NAME) == 0 ? RFS_WEIGHT_MAP_MINDSPORE
                                                              : RFS_WEIGHT_MAP_HUGGINGFACE;
    return *style == RFS_WEIGHT_MAP_MINDSPORE || rfs_safetensors_map_name(name, &unused);
}

/* An entry of the map. */
struct row {
    const char *name;
    size_t name_bytes;
    const char *file;
};

/* UTF-8 sorts as the code points do, by which Python compares. */
RFS_COMPARE(by_name, struct row, x, y,
            rfs_order_bytes(x->name, x->name_bytes, y->name, y->name_bytes))

static void put_map(struct rfs_json_write *json, const struct row *rows,
                    const struct rfs_weight_map *map)
{
    rfs_json_object(json, NULL, RFS_JSON_LINES);
    rfs_json_object(json, "metadata", RFS_JSON_LINES);
    rfs_json_put_u64(json, "total_size", map->total_size);
    rfs_json_end(json);
    rfs_json_object(json, "weight_map", RFS_JSON_LINES);
    for (size_t i = 0; i < map->n; i++) {
        rfs_json_put_key(json, rows[i].name, rows[i].name_bytes);
        rfs_json_put_text(json, NULL, rows[i].file);
    }
    rfs_json_end(json);
    rfs_json_end(json);
}

int rfs_safetensors_encode_map(const struct rfs_tables *tables, const struct rfs_weight_map *map,
                               struct rfs_image **out)
{
    const bool sorted = map->style == RFS_WEIGHT_MAP_HUGGINGFACE;
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_FREE struct row *rows = calloc(map->n + 1, sizeof *rows);
    struct rfs_json_write json = {
        .bytes = &builder.literals, .escapes = RFS_JSON_ASCII, .indent = sorted ? 2 : 4};

    *out = NULL;
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < map->n; i++) {
        rows[i].name = rfs_intern_bytes(tables->names, map->names[i], &rows[i].name_bytes);
        rows[i].file = map->files[i];
    }
    if (sorted)
        RFS_SORT(rows, map->n, by_name);
    put_map(&json, rows, map);
    if (sorted)
        rfs_bytes_put_text(&builder.literals, "\n");
    return rfs_image_finish(&builder, out);
}
