/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a list of whole tensors and their checksums. What is accepted is the same written
 * and read again.
 */
#include "tests/fuzz/fuzz.h"
#include "tool/verify/sums.h"

static bool parse(const char *text, size_t size, struct rfs_sums *sums)
{
    struct rfs_error err = {0};

    REQUIRE(rfs_sums_init(sums) == 0);
    return require_result(rfs_sums_parse("tensors.json", text, size, sums, &err), &err);
}

/* The list again: entries ascend by name then, so that each is looked for. */
static void check_again(const struct rfs_sums *sums)
{
    struct rfs_sums again;
    char *text, *twice;
    size_t size, size_twice;

    REQUIRE(rfs_sums_text(sums, &text, &size) == 0);
    REQUIRE(parse(text, size, &again));
    REQUIRE(again.entries.n == sums->entries.n);
    REQUIRE(rfs_sums_text(&again, &twice, &size_twice) == 0);
    REQUIRE(size == size_twice && memcmp(text, twice, size) == 0);
    rfs_sums_free(&again);
    free(text);
    free(twice);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_sums sums;
    char *text = fuzz_text(data, size);

    if (parse(text, size, &sums)) {
        for (uint32_t i = 0; i < sums.entries.n; i++)
            REQUIRE(sums.entries.data[i].ndim <= RFS_MAX_DIMS);
        check_again(&sums);
    }
    rfs_sums_free(&sums);
    free(text);
}
