/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/wrap.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 6, HEADERS = 4096 };

struct entry {
    const char *name;
    const uint8_t *content;
    size_t size;
};

static void put(struct wrapped *out, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(out->data + out->size, bytes, n);
    out->size += n;
}

static void put_number(struct wrapped *out, uint64_t number, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        out->data[out->size++] = (uint8_t)number;
        number >>= 8;
    }
}

/* What a local header and an entry of the directory have in common. */
static void put_common(struct wrapped *out, const struct entry *entry)
{
    put_number(out, 0, 2 + 2 + 2 + 4); /* version, flags, method, time */
    put_number(out, 0x12345678, 4);
    put_number(out, entry->size, 4);
    put_number(out, entry->size, 4);
    put_number(out, strlen(entry->name), 2);
    put_number(out, 0, 2);
}

static void put_archive(struct wrapped *out, const struct entry *entries)
{
    size_t at[ENTRIES];

    for (unsigned i = 0; i < ENTRIES; i++) {
        at[i] = out->size;
        put(out, "PK\3\4", 4);
        put_common(out, &entries[i]);
        put(out, entries[i].name, strlen(entries[i].name));
        put(out, entries[i].content, entries[i].size);
    }
    const size_t directory = out->size;
    for (unsigned i = 0; i < ENTRIES; i++) {
        put(out, "PK\1\2\0\0", 6);
        put_common(out, &entries[i]);
        put_number(out, 0, 2 + 2 + 2);
        put_number(out, 0, 4);
        put_number(out, at[i], 4);
        put(out, entries[i].name, strlen(entries[i].name));
    }
    const size_t end = out->size;
    put(out, "PK\5\6\0\0\0\0", 8);
    put_number(out, ENTRIES, 2);
    put_number(out, ENTRIES, 2);
    put_number(out, end - directory, 4);
    put_number(out, directory, 4);
    put_number(out, 0, 2);
}

struct wrapped wrap_torch(const uint8_t *data, size_t size)
{
    static const uint8_t numbers[64] = {0, 0, 128, 63, 7, 9, 0, 0, 5};
    const struct entry entries[ENTRIES] = {
        {"x/data.pkl", data, size}, {"x/data/0", numbers, 24},
        {"x/data/1", numbers, 64},  {"x/data/2", numbers, 0},
        {"x/data/3", numbers, 1},   {"x/version", (const uint8_t *)"3\n", 2},
    };
    struct wrapped out = {malloc(size + HEADERS), 0};

    if (!out.data)
        abort();
    if (size >= 2 && data[0] == 0x80 && data[1] == 2)
        put_archive(&out, entries);
    else
        put(&out, data, size);
    /* In a buffer of exactly its size, so that a sanitizer sees a read past the end. */
    struct wrapped tight = {malloc(out.size + 1), out.size};
    if (!tight.data)
        abort();
    memcpy(tight.data, out.data, out.size);
    free(out.data);
    return tight;
}
