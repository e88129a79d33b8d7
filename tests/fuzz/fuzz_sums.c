/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a list of whole tensors and their checksums. What is accepted is the same written
 * and read again.
 */
#include "tests/fuzz/fuzz.h"
#include "tool/common/manifest.h"

FUZZ_GOALS("a tensor of a list");

static bool parse(const char *text, size_t size, struct rfs_manifest *sums)
{
    struct rfs_error err = {0};

    REQUIRE(rfs_manifest_init(sums, RFS_MANIFEST_TENSORS) == 0);
    return require_result(rfs_manifest_parse("tensors.json", text, size, sums, &err), &err);
}

/* The list again: entries ascend by name then, so that each is looked for. */
static void check_again(const struct rfs_manifest *sums)
{
    struct rfs_manifest again;
    char *text, *twice;
    size_t size, size_twice;

    REQUIRE(rfs_manifest_text(sums, NULL, &text, &size) == 0);
    REQUIRE(parse(text, size, &again));
    REQUIRE(again.entries.n == sums->entries.n);
    REQUIRE(rfs_manifest_text(&again, NULL, &twice, &size_twice) == 0);
    REQUIRE(size == size_twice && memcmp(text, twice, size) == 0);
    rfs_manifest_free(&again);
    free(text);
    free(twice);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_manifest sums;
    char *text = fuzz_text(data, size);

    if (parse(text, size, &sums)) {
        check_again(&sums);
        if (sums.entries.n > 0)
            fuzz_reached(0);
    }
    rfs_manifest_free(&sums);
    free(text);
}
