/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a zip archive: what the directory gives lies in the file and apart, and every name
 * is found.
 */
#include "formats/torch/zip.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("an entry");

static void check_entry(const struct rfs_zip *zip, size_t i, const struct fuzz_input *input)
{
    const struct rfs_zip_entry *entry = &zip->entries[i];

    REQUIRE(entry->name_bytes > 0 && entry->name_bytes <= RFS_ZIP_NAME_MOST);
    REQUIRE(strlen(entry->name) == entry->name_bytes);
    REQUIRE(entry->header < entry->offset && entry->offset <= input->size);
    REQUIRE(entry->bytes <= input->size - entry->offset);
    REQUIRE(memcmp(input->data + entry->header, "PK\3\4", 4) == 0);
    REQUIRE(rfs_zip_find(zip, entry->name, entry->name_bytes) == entry);
    for (size_t k = 0; k < zip->n && k < 50; k++) {
        const struct rfs_zip_entry *other = &zip->entries[k];
        REQUIRE(k == i || other->offset + other->bytes <= entry->header ||
                entry->offset + entry->bytes <= other->header);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rfs_zip zip;
    struct rfs_error err = {0};

    const int rc =
        rfs_zip_open(RFS_BYTES_SOURCE(fuzz_read, &input, size, "x.pt"), NULL, &zip, &err);
    require_result(rc, &err);
    REQUIRE(rc == 0 || rc == -EINVAL || rc == -ENOTSUP);
    for (size_t i = 0; rc == 0 && i < zip.n; i++) {
        check_entry(&zip, i, &input);
        fuzz_reached(0);
    }
    rfs_zip_free(&zip);
    REQUIRE(rfs_zip_open(RFS_BYTES_SOURCE(fuzz_read, &input, size, "x.pt"), NULL, &zip, NULL) ==
            rc);
    rfs_zip_free(&zip);
}
