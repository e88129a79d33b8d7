/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the manifest of an export. What is accepted lies below the folder, and is the same
 * written and read again.
 */
#include "tests/fuzz/fuzz.h"
#include "tool/common/manifest.h"

FUZZ_GOALS("a file of a manifest");

static bool parse(const char *text, size_t size, struct rfs_manifest *manifest)
{
    struct rfs_error err = {0};

    REQUIRE(rfs_manifest_init(manifest, RFS_MANIFEST_FILES) == 0);
    return require_result(rfs_manifest_parse("reshard-manifest.json", text, size, manifest, &err),
                          &err);
}

static void check_paths(const struct rfs_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->entries.n; i++) {
        const char *path = rfs_intern_text(manifest->names, i);

        REQUIRE(path[0] != '\0' && path[0] != '/' && path[strlen(path) - 1] != '/');
        REQUIRE(strncmp(path, "../", 3) != 0 && strcmp(path, "..") != 0);
        REQUIRE(!strstr(path, "/../") && !strstr(path, "//"));
        REQUIRE(rfs_manifest_find(manifest, path) == &manifest->entries.data[i]);
    }
}

static void check_again(const struct rfs_manifest *manifest)
{
    struct rfs_manifest again;
    char *text;
    size_t size;

    REQUIRE(rfs_manifest_text(manifest, NULL, &text, &size) == 0);
    REQUIRE(parse(text, size, &again));
    REQUIRE(again.entries.n == manifest->entries.n && again.task == manifest->task);
    REQUIRE(again.tasks == manifest->tasks && again.total_files == manifest->total_files);
    for (uint32_t i = 0; i < again.entries.n; i++) {
        const struct rfs_manifest_entry *a = &manifest->entries.data[i];
        const struct rfs_manifest_entry *b =
            rfs_manifest_find(&again, rfs_intern_text(manifest->names, i)); /* in another order */

        REQUIRE(b && a->size == b->size && a->written_ms == b->written_ms);
        REQUIRE(rfs_hash_equal(a->hash, b->hash) && rfs_hash_equal(a->made_of, b->made_of));
    }
    rfs_manifest_free(&again);
    free(text);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_manifest manifest;
    char *text = fuzz_text(data, size);

    if (parse(text, size, &manifest)) {
        check_paths(&manifest);
        check_again(&manifest);
        if (manifest.entries.n > 0)
            fuzz_reached(0);
    }
    rfs_manifest_free(&manifest);
    free(text);
}
