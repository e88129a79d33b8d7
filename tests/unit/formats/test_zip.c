/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a zip archive: what it tells, and what is refused. */
#include "formats/torch/zip.h"
#include "tests/support/archive.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct memory {
    const unsigned char *data;
    size_t n;
    unsigned reads;
};

static int memory_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct memory *memory = ctx;
    assert_true(offset <= memory->n && n <= memory->n - offset);
    memcpy(buf, memory->data + offset, n);
    memory->reads++;
    return 0;
}

static const void *filler(size_t n)
{
    static unsigned char data[8000];
    assert_true(n <= sizeof data);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 167 + (i >> 8) * 13);
    return data;
}

static int open_archive(const struct archive *archive, struct rfs_zip *zip, struct rfs_error *err)
{
    struct memory memory = {.data = archive->file.data, .n = archive->file.n};
    return rfs_zip_open(RFS_BYTES_SOURCE(memory_read, &memory, memory.n, "a.pt"), NULL, zip, err);
}

static void has(const struct archive *archive, const char *name, uint64_t offset, uint64_t bytes)
{
    struct rfs_zip zip;
    struct rfs_error err = {0};
    if (open_archive(archive, &zip, &err))
        fail_msg("%s", err.text);
    const struct rfs_zip_entry *entry = rfs_zip_find(&zip, name, strlen(name));
    assert_non_null(entry);
    assert_int_equal(entry->offset, offset);
    assert_int_equal(entry->bytes, bytes);
    assert_null(rfs_zip_find(&zip, name, strlen(name) - 1));
    rfs_zip_free(&zip);
}

static void refused(struct archive *archive, int code, const char *part)
{
    struct rfs_zip zip;
    struct rfs_error err = {0};
    assert_int_equal(open_archive(archive, &zip, &err), code);
    if (!strstr(err.text, part) || strncmp(err.text, "a.pt: ", 6) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
    assert_int_equal(open_archive(archive, &zip, NULL), code);
    assert_null(zip.entries);
    archive_free(archive);
}

static void test_finds_entries(void **state)
{
    (void)state;
    for (enum archive_end end = END_PLAIN; end <= END_COMMENT; end++) {
        if (end != END_PLAIN && end != END_WIDE && end != END_COMMENT)
            continue;
        struct archive a = {0};
        uint64_t at[4];
        at[0] = archive_put(&a, "b", filler(70), 70);
        at[1] = archive_add(&a, &(struct member){.name = "x/a", .fill = 60});
        at[2] = archive_add(
            &a, &(struct member){.name = "x/c", .content = filler(9), .n = 9, .local_sizes = true});
        at[3] = archive_add(
            &a, &(struct member){.name = "x/d", .content = filler(8000), .n = 8000, .wide = true});
        archive_end(&a, end);
        has(&a, "x/b", at[0], 70);
        has(&a, "x/a", at[1], 0);
        has(&a, "x/c", at[2], 9);
        has(&a, "x/d", at[3], 8000);
        archive_free(&a);
    }
}

/* Small entries lie near together, so that one read serves many local headers. */
static void test_reads_little(void **state)
{
    (void)state;
    struct archive a = {0};
    struct rfs_zip zip;
    for (unsigned i = 0; i < 1000; i++) {
        char name[24];
        snprintf(name, sizeof name, "data/%u", i);
        archive_put(&a, name, "1234", 4);
    }
    archive_end(&a, END_WIDE);
    struct memory memory = {.data = a.file.data, .n = a.file.n};
    assert_int_equal(
        rfs_zip_open(RFS_BYTES_SOURCE(memory_read, &memory, memory.n, "a.pt"), NULL, &zip, NULL),
        0);
    assert_int_equal(zip.n, 1000);
    assert_true(memory.reads < 50);
    rfs_zip_free(&zip);
    archive_free(&a);
}

#define REFUSED(code, part, ...)                                                                   \
    do {                                                                                           \
        struct archive a = {0};                                                                    \
        archive_put(&a, "before", filler(100), 100);                                               \
        archive_add(&a, &(struct member){.content = filler(50), .n = 50, __VA_ARGS__});            \
        archive_end(&a, END_PLAIN);                                                                \
        refused(&a, code, part);                                                                   \
    } while (0)

static void test_refuses_entries(void **state)
{
    (void)state;
    static char long_name[2000];
    memset(long_name, 'n', sizeof long_name - 1);
    REFUSED(-ENOTSUP, "'x/e': the archive's entry is encrypted", .name = "x/e", .flags = 1);
    REFUSED(-ENOTSUP, "'x/e': the archive's entry is compressed (method 8)", .name = "x/e",
            .method = 8);
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e",
            .local_method = 8);
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e",
            .local_name = "x/f");
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e",
            .local_name = "x/e2");
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e",
            .local_sizes = true, .local_says = 1);
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e", .shift = 1);
    REFUSED(-EINVAL, "'x/e': the archive's entry has another header", .name = "x/e", .shift = -1,
            .wide = true);
    REFUSED(-EINVAL, "'x/e': the archive's entry does not lie before", .name = "x/e",
            .shift = 1000);
    REFUSED(-EINVAL, "'x/e': the archive's entry does not lie before", .name = "x/e",
            .shift = INT64_MAX / 2, .wide = true);
    REFUSED(-EINVAL, "'x/e': the archive's entry runs into its directory", .name = "x/e",
            .says = 100);
    REFUSED(-EINVAL, "'x/e': the archive's entry runs into its directory", .name = "x/e",
            .says = UINT32_MAX - 50, .wide = true);
    REFUSED(-EINVAL, "a stored entry has two sizes", .name = "x/e", .csays = 1);
    REFUSED(-EINVAL, "'x/before': the archive has two entries of this name", .name = "x/before");
    REFUSED(-EINVAL, "no proper name", .name = "");
    REFUSED(-EINVAL, "no proper name", .name = long_name);
    /* Names may be anything, but a message is one line of text. */
    REFUSED(-ENOTSUP, "'x/\\x1b[0m\\xff\\x0a': the", .name = "x/\033[0m\xff\n", .flags = 1);
}

/*
 * The local header of an entry is the content of the one before, its own content lies behind that.
 */
static void test_refuses_overlap(void **state)
{
    (void)state;
    for (size_t fill = 0; fill <= 60; fill += 20) {
        struct archive hidden = {0};
        struct archive a = {0};
        archive_add(&hidden, &(struct member){.name = "x/in", .fill = fill});
        const uint64_t at = archive_put(&a, "out", hidden.file.data, 34);
        bytes_add(&a.file, filler(200), 200);
        archive_free(&hidden);
        archive_add(&hidden, &(struct member){.name = "x/in", .shift = (int64_t)at});
        bytes_add(&a.directory, hidden.directory.data, hidden.directory.n);
        a.n++;
        archive_end(&a, END_PLAIN);
        refused(&a, -EINVAL, "'x/in': the archive's entry overlaps another, 'x/out'");
        archive_free(&hidden);
    }
}

static void test_refuses_ends(void **state)
{
    (void)state;
    static const struct {
        enum archive_end end;
        const char *part;
    } ends[] = {{END_DIFFERS, "the archive has two ends that differ"},
                {END_SPLIT, "the archive is split over several files"},
                {END_MORE, "the archive's directory has an impossible size"},
                {END_FEWER, "the zip directory has more than its entries"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct archive a = {0};
        archive_put(&a, "a", "1", 1);
        archive_put(&a, "b", "1", 1);
        archive_end(&a, ends[i].end);
        refused(&a, -EINVAL, ends[i].part);
    }
}

static void test_refuses_cuts(void **state)
{
    (void)state;
    struct archive a = {0};
    archive_put(&a, "a", filler(300), 300);
    archive_put(&a, "b", filler(300), 300);
    archive_end(&a, END_WIDE);
    for (size_t n = 0; n < a.file.n; n++) {
        struct memory memory = {.data = a.file.data, .n = n};
        struct rfs_zip zip;
        struct rfs_error err = {0};
        assert_int_equal(
            rfs_zip_open(RFS_BYTES_SOURCE(memory_read, &memory, n, "a.pt"), NULL, &zip, &err),
            -EINVAL);
        assert_null(zip.entries);
    }
    archive_free(&a);
}

static int verify(const struct archive *archive, struct rfs_error *err)
{
    struct memory memory = {.data = archive->file.data, .n = archive->file.n};

    return rfs_zip_verify(RFS_BYTES_SOURCE(memory_read, &memory, memory.n, "a.pt"), err);
}

/* Each bit of an entry's content counts, in each entry that has a checksum. */
static void test_checksums(void **state)
{
    (void)state;
    for (unsigned lacking = 0; lacking < 2; lacking++) {
        struct archive a = {0};
        struct rfs_error err = {0};
        char where[64];
        const uint64_t first = archive_put(&a, "a", filler(70), 70);
        const uint64_t second = archive_add(
            &a, &(struct member){.name = "x/b", .content = filler(40), .n = 40, .no_crc = lacking});
        archive_add(&a, &(struct member){.name = "x/empty", .no_crc = true});
        archive_end(&a, END_PLAIN);
        assert_int_equal(verify(&a, &err), lacking);
        for (unsigned bit = 0; bit < 70 * 8; bit++) {
            a.file.data[first + bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_int_equal(verify(&a, &err), -EINVAL);
            a.file.data[first + bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        snprintf(where, sizeof where, "a.pt: offset %llu: parameter 'x/a': the archive's entry is",
                 (unsigned long long)first);
        assert_int_equal(strncmp(err.text, where, strlen(where)), 0);
        a.file.data[second]++;
        assert_int_equal(verify(&a, &err), lacking ? 1 : -EINVAL);
        archive_free(&a);
    }
}

/* Whatever stands in it, an archive is opened or refused, and what it tells lies in the file. */
static void test_random_damage(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (unsigned round = 0; round < 20000; round++) {
        struct archive a = {0};
        archive_put(&a, "a", filler(30), 30);
        archive_add(&a,
                    &(struct member){.name = "x/b", .content = filler(3), .n = 3, .wide = true});
        const size_t contents = a.file.n;
        archive_end(&a, test_below(&random, 2) ? END_WIDE : END_PLAIN);
        for (uint32_t i = test_below(&random, 4) + 1; i > 0; i--) {
            const size_t from = test_below(&random, 3) ? contents : 0;
            a.file.data[from + test_below(&random, (uint32_t)(a.file.n - from))] =
                (unsigned char)(test_below(&random, 2) ? test_below(&random, 256) : 255);
        }
        struct rfs_zip zip;
        struct rfs_error err = {0};
        if (open_archive(&a, &zip, &err) == 0) {
            for (size_t i = 0; i < zip.n; i++)
                assert_true(zip.entries[i].offset + zip.entries[i].bytes <= a.file.n);
            rfs_zip_free(&zip);
        } else {
            assert_true(err.text[0] != '\0');
        }
        archive_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_entries),   cmocka_unit_test(test_reads_little),
        cmocka_unit_test(test_refuses_entries), cmocka_unit_test(test_refuses_overlap),
        cmocka_unit_test(test_refuses_ends),    cmocka_unit_test(test_refuses_cuts),
        cmocka_unit_test(test_checksums),       cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
