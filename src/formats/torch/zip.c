/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip archive, all numbers little-endian (APPNOTE.TXT of PKWARE, 6.3):
 *
 *     for each entry:  50 4b 03 04 | version 2 | flags 2 | method 2 | time 4 | crc 4 | csize 4
 *                      | size 4 | name_len 2 | extra_len 2 | name | extra | content
 *                      | descriptor, if flag 3
 *     the directory:   50 4b 01 02 | made 2 | version 2 | flags 2 | method 2 | time 4 | crc 4
 *                      | csize 4 | size 4 | name_len 2 | extra_len 2 | comment_len 2 | disk 2
 *                      | attributes 2 + 4 | offset 4 | name | extra | comment    … for each entry
 *     zip64 end:       50 4b 06 06 | length 8 | made 2 | version 2 | disk 4 | disk 4 | entries 8
 *                      | entries 8 | directory size 8 | directory offset 8
 *     its locator:     50 4b 06 07 | disk 4 | zip64 end's offset 8 | disks 4
 *     the end:         50 4b 05 06 | disk 2 | disk 2 | entries 2 | entries 2 | directory size 4
 *                      | directory offset 4 | comment_len 2 | comment
 *
 * Where a 4-byte size or offset is ffffffff, the extra field 0001 has it in 8 bytes: size, csize,
 * offset, those that overflow, in this order. torch writes sizes and checksums in the directory
 * only, and an extra field of the local header that makes the content begin at a multiple of 64: so
 * where a content begins is known from its local header alone.
 */
#include "formats/torch/zip.h"

#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/store.h"
#include "store/files.h"

#include <zlib.h>

enum {
    END_BYTES = 22,
    END_MOST = END_BYTES + 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    CENTRAL_BYTES = 46,
};

#define FLAG_ENCRYPTED 0x2041u /* bits 0, 6 and 13 */
#define FLAG_DESCRIPTOR 0x0008u
#define REMEDY_COPY "compare the file with its original, or save it again"
#define REMEDY_SAVE "save it again with torch.save"

/* Local headers of small entries lie near together: a read for one serves the next. */
enum { WINDOW_BYTES = 4096, HEADER_MOST = RFS_ZIP_LOCAL_BYTES + RFS_ZIP_NAME_MOST };
_Static_assert(HEADER_MOST <= WINDOW_BYTES, "a local header fits the window");

struct source {
    const struct rfs_bytes_source *from;
    struct rfs_budget *budget; /* or NULL */
    struct rfs_error *err;
    uint64_t window_offset;
    size_t window_bytes; /* bytes in the window; 0: nothing was read yet */
    unsigned char window[WINDOW_BYTES];
};

struct directory {
    uint64_t offset, bytes, entries;
};

static uint32_t get16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const unsigned char *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static uint64_t get64(const unsigned char *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static int fail_at(const struct source *source, uint64_t offset, const char *what)
{
    return rfs_fail(source->err, -EINVAL, RFS_AT(source->from->file, offset), REMEDY_COPY, "%s",
                    what);
}

static int fetch(const struct source *source, void *buf, size_t n, uint64_t offset)
{
    if (offset > source->from->size || n > source->from->size - offset)
        return fail_at(source, source->from->size,
                       "the archive is truncated: its directory points beyond its end");
    const int rc = rfs_bytes_source_read(source->from, buf, n, offset);
    return rc < 0 ? rfs_store_fail_read(source->err, RFS_AT(source->from->file, offset), rc) : 0;
}

/*
 * Reads the zip64 end that the locator before END (an offset) points to, if there is one: 1, 0 or
 * -errno.
 */
static int find_end64(const struct source *source, uint64_t end, struct directory *out)
{
    unsigned char locator[LOCATOR_BYTES];
    unsigned char record[END64_BYTES];

    if (end < LOCATOR_BYTES)
        return 0;
    int rc = fetch(source, locator, sizeof locator, end - LOCATOR_BYTES);
    if (rc)
        return rc;
    if (get32(locator) != 0x07064b50)
        return 0;
    const uint64_t at = get64(locator + 8);
    if (at > end - LOCATOR_BYTES || end - LOCATOR_BYTES - at < END64_BYTES)
        return fail_at(source, end - LOCATOR_BYTES, "the zip64 end of the archive is not there");
    rc = fetch(source, record, sizeof record, at);
    if (rc)
        return rc;
    if (get32(record) != 0x06064b50)
        return fail_at(source, at, "the zip64 end of the archive is not there");
    *out = (struct directory){get64(record + 48), get64(record + 40), get64(record + 32)};
    if (get32(record + 16) != 0 || get32(record + 20) != 0 || get64(record + 24) != out->entries)
        return fail_at(source, at, "the archive is split over several files");
    return 1;
}

/*
 * Copies the end record, which is in the last N bytes, to RECORD. Returns its offset, 0 when there
 * is none, or -errno.
 */
static int64_t find_end(const struct source *source, size_t n, unsigned char *record)
{
    RFS_FREE unsigned char *tail = malloc(n + 1);

    if (!tail)
        return rfs_fail_memory(source->err);
    const int rc = fetch(source, tail, n, source->from->size - n);
    if (rc)
        return rc;
    for (size_t at = n < END_BYTES ? 0 : n - END_BYTES + 1; at-- > 0;)
        if (get32(tail + at) == 0x06054b50 && get16(tail + at + 20) == n - at - END_BYTES) {
            memcpy(record, tail + at, END_BYTES);
            return (int64_t)(source->from->size - n + at);
        }
    return 0;
}

/* Says whether a number of the end record is that of the zip64 end, as far as it fits there. */
static bool fits(uint64_t number, uint64_t wide, uint64_t most)
{
    return number == most || number == wide;
}

/* Finds the end of the archive and, by it, the directory. */
static int find_directory(const struct source *source, struct directory *out)
{
    unsigned char end[END_BYTES] = {0};
    int64_t found = 0;

    /* Nearly no archive has a comment behind the end. */
    for (size_t n = 1024; found == 0 && n <= END_MOST; n += END_MOST - 1024)
        found = find_end(source, (size_t)rfs_min_u64(source->from->size, n), end);
    if (found < 0)
        return (int)found;
    if (found == 0)
        return rfs_fail(source->err, -EINVAL, RFS_IN(source->from->file), REMEDY_COPY,
                        "the file has no zip directory: it is truncated, or not written by "
                        "torch.save");
    const uint64_t at = (uint64_t)found;
    const struct directory narrow = {get32(end + 16), get32(end + 12), get16(end + 10)};
    const int wide = find_end64(source, at, out);
    if (wide < 0)
        return wide;
    if (wide == 0)
        *out = narrow;
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != narrow.entries)
        return fail_at(source, at, "the archive is split over several files");
    if (!fits(narrow.offset, out->offset, UINT32_MAX) ||
        !fits(narrow.bytes, out->bytes, UINT32_MAX) ||
        !fits(narrow.entries, out->entries, UINT16_MAX))
        return fail_at(source, at, "the archive has two ends that differ");
    if (out->offset > at || out->bytes > at - out->offset)
        return fail_at(source, at, "the archive's directory lies beyond its end");
    if (out->bytes > RFS_ZIP_DIRECTORY_MOST || out->entries > out->bytes / CENTRAL_BYTES)
        return fail_at(source, at, "the archive's directory has an impossible size");
    return 0;
}

/* Takes the numbers that overflowed from the zip64 extra field. False when it is not there. */
static bool take_extra64(const unsigned char *extra, size_t n, uint64_t *size, uint64_t *csize,
                         uint64_t *offset)
{
    uint64_t *wanted[3] = {size, csize, offset};
    bool all = true;

    for (size_t i = 0; i < 3; i++)
        all = all && *wanted[i] != UINT32_MAX;
    if (all)
        return true;
    while (n >= 4 && get16(extra) != 1) {
        const size_t skip = 4 + (size_t)get16(extra + 2);
        if (skip > n)
            return false;
        extra += skip;
        n -= skip;
    }
    if (n < 4 || get16(extra + 2) > n - 4)
        return false;
    size_t left = get16(extra + 2);
    extra += 4;
    for (size_t i = 0; i < 3; i++) {
        if (*wanted[i] != UINT32_MAX)
            continue;
        if (left < 8)
            return false;
        *wanted[i] = get64(extra);
        extra += 8;
        left -= 8;
    }
    return true;
}

/* Reads all of an entry but where its content begins. */
static int read_central(const struct source *source, const struct directory *directory,
                        const unsigned char *bytes, uint64_t at, struct rfs_zip_entry *entry,
                        char **names, size_t *used)
{
    const unsigned char *p = bytes + at;
    const uint64_t left = directory->bytes - at;
    const uint64_t where = directory->offset + at;

    if (left < CENTRAL_BYTES || get32(p) != 0x02014b50)
        return fail_at(source, where, "not an entry of a zip directory");
    const size_t name_bytes = get16(p + 28);
    const size_t extra_bytes = get16(p + 30);
    const size_t all = CENTRAL_BYTES + name_bytes + extra_bytes + get16(p + 32);
    if (all > left)
        return fail_at(source, where, "an entry runs over the end of the zip directory");
    uint64_t csize = get32(p + 20);
    *entry = (struct rfs_zip_entry){.name = *names,
                                    .name_bytes = (uint32_t)name_bytes,
                                    .crc = get32(p + 16),
                                    .header = get32(p + 42),
                                    .bytes = get32(p + 24)};
    if (!take_extra64(p + CENTRAL_BYTES + name_bytes, extra_bytes, &entry->bytes, &csize,
                      &entry->header))
        return fail_at(source, where, "a size of more than 4 GiB is missing in the zip directory");
    memcpy(*names, p + CENTRAL_BYTES, name_bytes);
    (*names)[name_bytes] = '\0';
    if (name_bytes == 0 || name_bytes > RFS_ZIP_NAME_MOST || memchr(*names, '\0', name_bytes))
        return fail_at(source, where, "an entry has no proper name");
    if (get16(p + 8) & FLAG_ENCRYPTED)
        return rfs_fail(source->err, -ENOTSUP, RFS_OF(source->from->file, *names), REMEDY_SAVE,
                        "the archive's entry is encrypted");
    if (get16(p + 10) != 0)
        return rfs_fail(source->err, -ENOTSUP, RFS_OF(source->from->file, *names), REMEDY_SAVE,
                        "the archive's entry is compressed (method %u)", get16(p + 10));
    if (csize != entry->bytes)
        return fail_at(source, where, "a stored entry has two sizes");
    *names += name_bytes + 1;
    *used = all;
    return 0;
}

/* Gives N bytes of the file, valid until the next call; *bytes is NULL on failure. */
static int look(struct source *source, size_t n, uint64_t offset, const unsigned char **bytes)
{
    *bytes = NULL;
    if (offset < source->window_offset || offset - source->window_offset > source->window_bytes ||
        source->window_bytes - (size_t)(offset - source->window_offset) < n) {
        const size_t left = (size_t)rfs_min_u64(source->from->size - offset, WINDOW_BYTES);
        source->window_bytes = 0;
        const int rc = fetch(source, source->window, left, offset);
        if (rc)
            return rc;
        source->window_offset = offset;
        source->window_bytes = left;
    }
    *bytes = source->window + (offset - source->window_offset);
    return 0;
}

/* Says whether the local header agrees with the directory; it may leave out sizes. */
static bool agrees(const unsigned char *header, const struct rfs_zip_entry *entry)
{
    const uint32_t flags = get16(header + 6);
    const uint32_t csize = get32(header + 18);
    const uint32_t size = get32(header + 22);
    const bool stated = !(flags & FLAG_DESCRIPTOR) && csize != UINT32_MAX && size != UINT32_MAX;

    return get32(header) == 0x04034b50 && get16(header + 8) == 0 && !(flags & FLAG_ENCRYPTED) &&
           get16(header + 26) == entry->name_bytes &&
           memcmp(header + RFS_ZIP_LOCAL_BYTES, entry->name, entry->name_bytes) == 0 &&
           (!stated || (csize == entry->bytes && size == entry->bytes));
}

/* Finds where the content begins, which only the local header has. */
static int read_local(struct source *source, const struct directory *directory,
                      struct rfs_zip_entry *entry)
{
    const struct rfs_where where = RFS_OF(source->from->file, entry->name);
    const size_t take = RFS_ZIP_LOCAL_BYTES + entry->name_bytes;
    const unsigned char *header;

    if (entry->header > directory->offset || directory->offset - entry->header < take)
        return rfs_fail(source->err, -EINVAL, where, REMEDY_COPY,
                        "the archive's entry does not lie before its directory");
    const int rc = look(source, take, entry->header, &header);
    if (rc)
        return rc;
    if (!agrees(header, entry))
        return rfs_fail(source->err, -EINVAL, where, REMEDY_COPY,
                        "the archive's entry has another header than its directory says");
    entry->offset = entry->header + take + get16(header + 28);
    if (entry->offset > directory->offset || entry->bytes > directory->offset - entry->offset)
        return rfs_fail(source->err, -EINVAL, where, REMEDY_COPY,
                        "the archive's entry runs into its directory");
    return 0;
}

RFS_COMPARE(by_place, struct rfs_zip_entry, x, y, RFS_ORDER(x->header, y->header))

RFS_COMPARE(by_name, struct rfs_zip_entry, x, y,
            rfs_order_bytes(x->name, x->name_bytes, y->name, y->name_bytes))

/*
 * Checks that no entries, headers included, share bytes, and none have one name: such a file would
 * show different things to different readers.
 */
static int check_apart(const struct source *source, struct rfs_zip *zip)
{
    RFS_SORT(zip->entries, zip->n, by_place);
    for (size_t i = 1; i < zip->n; i++) {
        const struct rfs_zip_entry *before = &zip->entries[i - 1];
        const struct rfs_zip_entry *entry = &zip->entries[i];
        if (entry->header < before->offset + before->bytes)
            return rfs_fail(source->err, -EINVAL, RFS_OF(source->from->file, entry->name),
                            REMEDY_COPY, "the archive's entry overlaps another, '%s'",
                            before->name);
    }
    RFS_SORT(zip->entries, zip->n, by_name);
    for (size_t i = 1; i < zip->n; i++)
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return rfs_fail(source->err, -EINVAL, RFS_OF(source->from->file, zip->entries[i].name),
                            REMEDY_COPY, "the archive has two entries of this name");
    return 0;
}

static int read_directory(struct source *source, const struct directory *directory,
                          struct rfs_zip *zip)
{
    const uint64_t owned = directory->bytes + directory->entries * (sizeof *zip->entries + 1);
    RFS_BUDGET_SHARE share = 0;

    int rc = source->budget
                 ? rfs_budget_take(source->budget, owned, source->from->file, source->err)
                 : 0;
    if (rc)
        return rc;
    rc = rfs_budget_share_take(&share, (size_t)(directory->bytes + owned));
    if (rc)
        return rfs_files_fail(source->err, source->from->file, rc);
    RFS_FREE unsigned char *bytes = malloc((size_t)directory->bytes + 1);
    zip->entries = calloc((size_t)directory->entries + 1, sizeof *zip->entries);
    zip->names = malloc((size_t)(directory->bytes + directory->entries + 1));
    if (!bytes || !zip->entries || !zip->names)
        return rfs_fail_memory(source->err);
    rc = fetch(source, bytes, (size_t)directory->bytes, directory->offset);
    char *names = zip->names;
    uint64_t at = 0;
    while (rc == 0 && zip->n < directory->entries) {
        size_t used = 0;
        struct rfs_zip_entry *entry = &zip->entries[zip->n];
        rc = read_central(source, directory, bytes, at, entry, &names, &used)
                 ?: read_local(source, directory, entry);
        zip->n++;
        at += used;
    }
    if (rc == 0 && at != directory->bytes)
        rc = fail_at(source, directory->offset + at, "the zip directory has more than its entries");
    return rc;
}

int rfs_zip_open(const struct rfs_bytes_source *from, struct rfs_budget *budget,
                 struct rfs_zip *out, struct rfs_error *err)
{
    struct source source = {.from = from, .budget = budget, .err = err};
    struct directory directory = {0, 0, 0};

    *out = (struct rfs_zip){0};
    int rc = find_directory(&source, &directory)
            ?: read_directory(&source, &directory, out)
            ?: check_apart(&source, out);
    if (rc < 0)
        rfs_zip_free(out);
    return rc;
}

void rfs_zip_free(struct rfs_zip *zip)
{
    free(zip->entries);
    free(zip->names);
    *zip = (struct rfs_zip){0};
}

const struct rfs_zip_entry *rfs_zip_find(const struct rfs_zip *zip, const char *name, size_t length)
{
    const struct rfs_zip_entry *const list = zip->entries;
    const size_t at =
        RFS_BISECT(i, zip->n, rfs_order_bytes(name, length, list[i].name, list[i].name_bytes) <= 0);

    return at < zip->n && rfs_order_bytes(name, length, list[at].name, list[at].name_bytes) == 0
               ? &list[at]
               : NULL;
}

/* ---- contents -------------------------------------------------------------------------------- */

#define CONTENT_BYTES ((size_t)1 << 20)

/* Compares the CRC-32 of an entry: 0, 1 when there is content and no CRC-32, or -errno. */
static int verify_entry(const struct source *source, const struct rfs_zip_entry *entry)
{
    const size_t most = (size_t)rfs_min_u64(entry->bytes, CONTENT_BYTES);
    uLong crc = crc32_z(0, NULL, 0);
    size_t n;

    if (entry->crc == 0 && entry->bytes > 0)
        return 1;
    RFS_FREE unsigned char *buf = malloc(most + 1);
    if (!buf)
        return rfs_fail_memory_of(source->err, source->from->file);
    for (uint64_t at = 0; at < entry->bytes; at += n) {
        n = (size_t)rfs_min_u64(entry->bytes - at, most);
        const int rc = fetch(source, buf, n, entry->offset + at);
        if (rc)
            return rc;
        crc = crc32_z(crc, buf, n);
    }
    if (crc == entry->crc)
        return 0;
    return rfs_fail(
        source->err, -EINVAL,
        (struct rfs_where){source->from->file, (int64_t)entry->offset, entry->name},
        "copy the file again from where it is whole",
        "the archive's entry is damaged: its CRC-32 is %08x, but its content makes it %08lx",
        entry->crc, crc);
}

int rfs_zip_verify_entries(const struct rfs_bytes_source *from, const struct rfs_zip_entry *entries,
                           size_t n, struct rfs_error *err)
{
    const struct source source = {.from = from, .err = err};
    bool lacks = false;
    int rc = 0;

    for (size_t i = 0; rc >= 0 && i < n; i++) {
        rc = verify_entry(&source, &entries[i]);
        lacks |= rc == 1;
    }
    return rc < 0 ? rc : lacks;
}

int rfs_zip_verify(const struct rfs_bytes_source *from, struct rfs_error *err)
{
    struct rfs_zip zip;
    const int rc = rfs_zip_open(from, NULL, &zip, err)
                       ?: rfs_zip_verify_entries(from, zip.entries, zip.n, err);

    rfs_zip_free(&zip);
    return rc;
}
