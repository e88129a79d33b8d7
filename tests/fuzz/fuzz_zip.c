/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a zip archive: what the directory gives lies in the file and apart, and every name is found. */
#include "source/torch/zip.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t size;
};

static int read_input(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct input *input = ctx;
    REQUIRE(offset <= input->size && n <= input->size - offset);
    memcpy(buf, input->data + offset, n);
    return 0;
}

static void check_entry(const struct rfs_zip *zip, size_t i, const struct input *input)
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
    struct input input = {data, size};
    struct rfs_zip zip;
    struct rfs_error err = {0};

    const int rc = rfs_zip_open(read_input, &input, size, "x.pt", &zip, &err);
    REQUIRE(rc == 0 ? err.code == 0 : err.code == rc && err.text[0] && !strchr(err.text, '\n'));
    REQUIRE(rc == 0 || rc == -EINVAL || rc == -ENOTSUP);
    for (size_t i = 0; rc == 0 && i < zip.n; i++)
        check_entry(&zip, i, &input);
    rfs_zip_free(&zip);
    REQUIRE(rfs_zip_open(read_input, &input, size, "x.pt", &zip, NULL) == rc);
    rfs_zip_free(&zip);
}
