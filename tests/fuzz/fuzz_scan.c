/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tells which files a source has: by the first byte a map in JSON, a group info file, or
 * names, in lines.
 */
#include "catalog/scan/group.h"
#include "catalog/scan/internal.h"
#include "store/mapfile.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a map", "a weight map", "a weight map or a map", "ranks of a group", "a save's name",
           "a rank's name");

static void try_map(const char *text, size_t size, unsigned kind)
{
    static const struct rfs_mapfile_form forms[] = {
        {0}, {"weight_map", true}, {"weight_map", false}};
    struct rfs_mapfile map;
    struct rfs_error err = {0};
    char *copy = fuzz_text((const uint8_t *)text, size);

    if (require_result(rfs_mapfile_parse("map.json", copy, size, forms[kind], &map, &err), &err))
        for (size_t i = 0; i < map.n; i++) {
            REQUIRE(strlen(map.data[i].key) + strlen(map.data[i].value) < size);
            fuzz_reached(kind);
        }
    rfs_mapfile_free(&map);
}

static void try_group(const char *data, size_t size)
{
    struct rfs_group group;
    struct rfs_error err = {0};

    if (require_result(rfs_scan_group_parse("group.pb", data, size, &group, &err), &err))
        for (size_t i = 0; i < group.n; i++) {
            REQUIRE(group.ranks[i] <= RFS_MAX_RANK &&
                    (i == 0 || group.ranks[i - 1] < group.ranks[i]));
            fuzz_reached(3);
        }
    free(group.ranks);
}

/* The first line is a pattern of rank folders. */
static void try_names(char *text)
{
    const char *pattern = strsep(&text, "\n");
    const char *last = "";

    for (const char *name; (name = strsep(&text, "\n"));) {
        struct rfs_save save = {0};
        uint32_t rank = 0;
        enum rfs_format format;
        const int order = rfs_scan_name_compare(name, last);
        const int back = rfs_scan_name_compare(last, name);
        REQUIRE((order > 0) == (back < 0) && (order == 0) == (back == 0));
        REQUIRE(rfs_scan_name_compare(name, name) == 0);
        if (rfs_scan_name_save(name, &save)) {
            REQUIRE(save.epoch >= 0 && save.step >= 0 && rfs_format_of_name(name, &format));
            fuzz_reached(4);
        }
        if (rfs_scan_name_is_pattern(pattern) && rfs_scan_name_rank(pattern, name, &rank)) {
            REQUIRE(rank <= RFS_MAX_RANK || rank == UINT32_MAX);
            fuzz_reached(5);
        }
        struct rfs_scan_part part;
        if (rfs_scan_name_part(name, &part))
            REQUIRE(part.count > 0 && part.begin + part.digits < part.end &&
                    part.end < strlen(name));
        if (rfs_numbered_decimal(name, &rank))
            REQUIRE(rank <= RFS_MAX_RANK);
        last = name;
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    if (size == 0)
        return;
    char *text = fuzz_text(data + 1, size - 1);
    switch (data[0] % 5) {
    case 0:
    case 1:
    case 2:
        try_map(text, size - 1, data[0] % 5);
        break;
    case 3:
        try_group(text, size - 1);
        break;
    default:
        try_names(text);
    }
    free(text);
}
