/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the map from parameters to files: HuggingFace's or MindSpore's. An odd first byte
 * means MindSpore's.
 */
#include "catalog/merge.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

FUZZ_GOALS("a file of HuggingFace's map", "a file of MindSpore's map");

static void check_map(const struct rfs_merge_map *map, const struct rfs_tables *tables,
                      size_t n_files, bool mindspore)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct rfs_merge_mapped *mapped = &map->data[i];

        REQUIRE(mapped->name < rfs_intern_count(tables->names) && mapped->file < n_files);
        REQUIRE(rfs_merge_map_find(map, mapped->name) == mapped);
        REQUIRE(i == 0 || map->data[map->by_name[i - 1]].name < map->data[map->by_name[i]].name);
        fuzz_reached(mindspore);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"a", "b.safetensors", "model-00001-of-00002.safetensors"};
    const size_t n = sizeof files / sizeof *files;
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_merge_map map = {0};
    struct rfs_error err = {0};

    REQUIRE(tables.names && tables.types);
    const bool mindspore = size > 0 && data[0] % 2;
    const char *name = mindspore ? "param_name_map.json" : "model.safetensors.index.json";
    const struct rfs_merge merge = {.weight_map =
                                        fuzz_file(name, data + (size > 0), size - (size > 0)),
                                    .files = files,
                                    .n = n,
                                    .tables = &tables};
    if (require_result(rfs_merge_map_read(&merge, &map, &err), &err))
        check_map(&map, &tables, n, mindspore);
    rfs_merge_map_free(&map);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
