/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose items are compressed by zstd: what is read of them is what was compressed, each item
 * is decompressed once while there is room, and damaged ones fail with one line.
 */
#include "store/files.h"
#include "store/packed.h"
#include "tree.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#define N_ITEMS 12
#define ITEM_MOST 20000u
#define AROUND 512u /* bytes that an item may have more */

struct item {
    unsigned char plain[ITEM_MOST];
    size_t n;
    uint64_t stored, bytes; /* in the file */
    uint64_t begin;         /* where its plain bytes begin */
};

struct fixture {
    struct tree tree;
    struct lines lines;
    struct bytes file;
    struct item items[N_ITEMS];
    struct rfs_files *files;
};

/* Appends a frame. CHECKSUM: it ends with one. */
static void add_frame(struct bytes *file, const void *plain, size_t n, int level, bool checksum)
{
    const size_t most = ZSTD_compressBound(n);
    void *frame = malloc(most);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_true(frame && context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, n % 2 == 0);
    const size_t got = ZSTD_compress2(context, frame, most, plain, n);
    assert_false(ZSTD_isError(got));
    bytes_add(file, frame, got);
    ZSTD_freeCCtx(context);
    free(frame);
}

/* Writes the file, and opens it as one with these items. */
static void open_file(struct fixture *f)
{
    tree_file(&f->tree, "file", f->file.p, f->file.n);
    rfs_files_free(f->files);
    f->files = rfs_files_new(&f->lines.log);
    assert_int_equal(rfs_files_add(f->files, tree_path(&f->tree, "file")), 0);
    for (unsigned i = 0; i < N_ITEMS; i++)
        assert_int_equal(rfs_files_add_packed(f->files, 0, f->items[i].stored, f->items[i].bytes,
                                              f->items[i].n + AROUND, &f->items[i].begin),
                         0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct random random = {7};
    assert_non_null(f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        struct item *item = &f->items[i];
        item->n = 1 + random_next(&random) % ITEM_MOST;
        for (size_t k = 0; k < item->n; k++) /* some of it compresses well */
            item->plain[k] = (unsigned char)(i % 3 == 0 ? i : random_next(&random) % (1 + i * 20));
        bytes_add(&f->file, filler(i * 13 % 7), i * 13 % 7);
        item->stored = f->file.n;
        add_frame(&f->file, item->plain, item->n, 1 + (int)i % 19, true);
        item->bytes = f->file.n - item->stored;
    }
    open_file(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rfs_files_free(f->files);
    bytes_free(&f->file);
    tree_remove(&f->tree);
    free(f);
    return 0;
}

/* Reads bytes of an item; those that it should have, or the result is not 0. */
static int read_item(struct fixture *f, unsigned number, size_t from, size_t n)
{
    const struct item *item = &f->items[number];
    unsigned char *got = malloc(n + 1);
    struct rfs_reading reading;
    int rc = rfs_reading_begin(f->files, 0, &reading);
    if (rc == 0) {
        rc = rfs_reading_pread(&reading, got, n, item->begin + from);
        const int ended = rfs_reading_end(&reading);
        rc = ended ? ended : rc;
    }
    if (rc == 0)
        assert_memory_equal(got, item->plain + from, n);
    free(got);
    return rc;
}

static struct rfs_blocks_counters counted(const struct fixture *f)
{
    struct rfs_blocks_counters blocks;
    rfs_blocks_count(rfs_files_packed(f->files), &blocks);
    return blocks;
}

/* Returns the memory of a block of so many bytes. */
static uint64_t in_pages(uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static uint64_t bytes_read(const struct fixture *f)
{
    struct rfs_files_counters counters;
    rfs_files_count(f->files, &counters);
    return counters.bytes;
}

static void read_anywhere(struct fixture *f, uint64_t seed, unsigned times)
{
    struct random random = {seed};
    for (unsigned i = 0; i < times; i++) {
        const unsigned number = (unsigned)(random_next(&random) % N_ITEMS);
        const size_t from = random_next(&random) % f->items[number].n;
        const size_t n = 1 + random_next(&random) % (f->items[number].n - from);
        assert_int_equal(read_item(f, number, from, n), 0);
    }
}

/* With room for all, the file is read once; with room for the largest, within that. */
static void test_ranges(void **state)
{
    struct fixture *f = *state;
    uint64_t stored = 0;
    for (unsigned i = 0; i < N_ITEMS; i++)
        stored += f->items[i].bytes;
    read_anywhere(f, 1, 400);
    assert_int_equal(counted(f).made, N_ITEMS);
    assert_int_equal(bytes_read(f), stored);
    const uint64_t room = 2 * in_pages(ITEM_MOST + AROUND); /* an item's, and of its stored bytes */
    rfs_blocks_limit(rfs_files_packed(f->files), room);
    for (unsigned i = 0; i < 100; i++) {
        read_anywhere(f, i, 5);
        assert_true(counted(f).bytes <= room);
    }
    assert_true(counted(f).made > N_ITEMS);
    assert_int_equal(f->lines.n, 0);
}

static void test_measure(void **state)
{
    struct fixture *f = *state;
    struct rfs_reading reading;
    struct rfs_error err = {0};
    assert_false(rfs_files_are_raw(f->files));
    assert_int_equal(rfs_reading_begin(f->files, 0, &reading), 0);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        uint64_t bytes = 0;
        unsigned char byte;
        assert_int_equal(rfs_reading_measure(&reading, f->items[i].begin, &bytes, &err), 0);
        assert_int_equal(bytes, f->items[i].n);
        assert_int_equal(rfs_files_offset(f->files, 0, f->items[i].begin + 5), f->items[i].stored);
        /* Behind its end nothing is made up. */
        assert_int_equal(rfs_reading_pread(&reading, &byte, 1, f->items[i].begin + bytes), -ESTALE);
        assert_int_equal(rfs_reading_pread(&reading, &byte, 0, f->items[i].begin + bytes), 0);
    }
    assert_int_equal(reading.size, f->items[N_ITEMS - 1].begin + f->items[N_ITEMS - 1].n + AROUND);
    assert_int_equal(rfs_reading_end(&reading), 0);
    assert_int_equal(rfs_reading_begin_ahead(f->files, 0, &reading), -EAGAIN);
}

static void *read_in_thread(void *ctx)
{
    read_anywhere(ctx, 5, 200);
    return NULL;
}

static void test_threads(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[6];
    const uint64_t room = in_pages(4 * ITEM_MOST);
    rfs_blocks_limit(rfs_files_packed(f->files), room);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_thread, f), 0);
    for (unsigned i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    assert_true(counted(f).bytes <= room);
}

/* Puts BYTES in the place of item 3, at the end of the file. */
static void replace(struct fixture *f, const struct bytes *bytes)
{
    f->items[3].stored = f->file.n;
    f->items[3].bytes = bytes->n;
    bytes_add(&f->file, bytes->p, bytes->n);
    open_file(f);
}

/* Programs write an item as one frame, or as several; between them others may be skipped. */
static void test_frames(void **state)
{
    struct fixture *f = *state;
    static const unsigned char skipped[] = {0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3};
    const struct item *item = &f->items[3];
    struct bytes b = {0};
    for (size_t at = 0; at < item->n; at += 1000) {
        add_frame(&b, item->plain + at, item->n - at < 1000 ? item->n - at : 1000, 3, at % 3000);
        bytes_add(&b, skipped, sizeof skipped);
    }
    replace(f, &b);
    bytes_free(&b);
    read_anywhere(f, 3, 100);
}

/* Item 3 fails with WHAT, in one line, and then everything of its file without a try. */
static void expect_damaged(struct fixture *f, const char *what)
{
    struct rfs_error err = {0};
    char offset[64];
    f->lines.n = 0;
    assert_int_equal(read_item(f, 0, 0, 1), 0);
    assert_int_equal(read_item(f, 3, 0, 1), -EINVAL);
    assert_int_equal(f->lines.n, 1);
    snprintf(offset, sizeof offset, "offset %llu", (unsigned long long)f->items[3].stored);
    if (!strstr(f->lines.last, what) || !strstr(f->lines.last, offset) ||
        !strstr(f->lines.last, tree_path(&f->tree, "file")))
        fail_msg("'%s' lacks '%s', '%s' or the path", f->lines.last, what, offset);
    const uint64_t bytes = bytes_read(f);
    assert_int_equal(read_item(f, 3, 0, 1), -EINVAL);
    assert_int_equal(read_item(f, 0, 0, 1), -EINVAL);
    assert_int_equal(bytes_read(f), bytes);
    assert_int_equal(f->lines.n, 1);
    assert_true(rfs_files_reason(f->files, 0, -EINVAL, &err));
    assert_non_null(strstr(err.text, what));
    assert_int_equal(counted(f).bytes, in_pages(f->items[0].n));
}

static void test_damaged(void **state)
{
    struct fixture *f = *state;
    struct item *item = &f->items[3];
    struct bytes b = {0};
    item->bytes--;
    open_file(f);
    expect_damaged(f, "is damaged: ");
    item->bytes += 5; /* the next one's, or what is between */
    open_file(f);
    expect_damaged(f, "is damaged: ");
    item->bytes -= 4;
    item->n -= AROUND + 1;
    open_file(f);
    expect_damaged(f, "is damaged: it has more bytes than it may have");
    item->n += AROUND + 1;
    item->stored = f->file.n - item->bytes + 1;
    open_file(f);
    expect_damaged(f, "is damaged: the file ends before it");
    add_frame(&b, "", 0, 3, true);
    replace(f, &b);
    expect_damaged(f, "is damaged: it is empty");
    b.n = 0;
    replace(f, &b);
    expect_damaged(f, "is damaged: it is empty");
    bytes_free(&b);
}

static void test_dictionary(void **state)
{
    struct fixture *f = *state;
    static const unsigned char dictionary[] = {0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 1, 9, 0, 0};
    struct bytes b = {0}; /* a frame that names dictionary 7 */
    bytes_add(&b, dictionary, sizeof dictionary);
    replace(f, &b);
    bytes_free(&b);
    expect_damaged(f, "is damaged: Dictionary mismatch");
}

/* Frames of version 0.7 alone, and behind one of today's. */
static void test_old_version(void **state)
{
    struct fixture *f = *state;
    static const unsigned char old[] = {0x27, 0xb5, 0x2f, 0xfd, 0x24, 1, 0, 0, 0, 0, 0, 0};
    struct bytes b = {0};
    bytes_add(&b, old, sizeof old);
    replace(f, &b);
    expect_damaged(f, "is damaged: it is not of zstd, or of a version before 1");
    b.n = 0;
    add_frame(&b, "plain", 5, 3, true);
    bytes_add(&b, old, sizeof old);
    replace(f, &b);
    expect_damaged(f, "is damaged: it is not of zstd, or of a version before 1");
    bytes_free(&b);
}

/* Any changed byte: an error, or the same bytes, where it means nothing. */
static void test_bits(void **state)
{
    struct fixture *f = *state;
    struct random random = {3};
    unsigned found = 0;
    for (unsigned i = 0; i < 300; i++) {
        const struct item *item = &f->items[3];
        const uint64_t at = item->stored + random_next(&random) % item->bytes;
        const unsigned char bit = (unsigned char)(1u << random_next(&random) % 8);
        f->file.p[at] ^= bit;
        open_file(f);
        const int rc = read_item(f, 3, 0, item->n);
        assert_true(rc == 0 || rc == -EINVAL || (rc == -ESTALE && at < item->stored + 8));
        found += rc != 0;
        f->file.p[at] ^= bit;
    }
    assert_true(found > 250);
}

/* What has no room does not stick: with more it can be read. */
static void test_room(void **state)
{
    struct fixture *f = *state;
    unsigned largest = 0;
    for (unsigned i = 0; i < N_ITEMS; i++)
        if (f->items[i].n + f->items[i].bytes > f->items[largest].n + f->items[largest].bytes)
            largest = i;
    rfs_blocks_limit(rfs_files_packed(f->files), 4096 * 4);
    assert_int_equal(read_item(f, largest, 0, 1), -EFBIG);
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, "try: a larger cache="));
    rfs_blocks_limit(rfs_files_packed(f->files), 4096 * 16);
    assert_int_equal(read_item(f, largest, 0, f->items[largest].n), 0);
}

/* An item that may have more than there is room for: what it really has counts. */
static void test_unknown(void **state)
{
    struct fixture *f = *state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const struct item *item = &f->items[4];
    uint64_t begin;
    assert_int_equal(rfs_files_add_packed(f->files, 0, item->stored, item->bytes, 1u << 20, &begin),
                     0);
    for (uint64_t more = 0; more < page;
         more += page / 4 - 1) { /* also budgets of no whole pages */
        struct rfs_reading reading;
        struct rfs_error err = {0};
        uint64_t bytes = 0;
        rfs_blocks_limit(rfs_files_packed(f->files), 0);
        rfs_blocks_limit(rfs_files_packed(f->files), 4096 * 16 + more);
        assert_int_equal(rfs_reading_begin(f->files, 0, &reading), 0);
        assert_int_equal(rfs_reading_measure(&reading, begin, &bytes, &err), 0);
        assert_int_equal(bytes, item->n);
        assert_int_equal(rfs_reading_end(&reading), 0);
    }
}

static void test_changed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(read_item(f, 3, 0, 1), 0);
    tree_touch(&f->tree, "file", 12345, 0);
    assert_int_equal(read_item(f, 3, 0, 1), -ESTALE);
    assert_int_equal(f->lines.n, 1);
}

static void test_bound(void **state)
{
    struct rfs_packed packed = {0};
    uint64_t begin;
    (void)state;
    assert_int_equal(rfs_packed_bound(1000), ZSTD_compressBound(1000));
    assert_int_equal(rfs_packed_bound(UINT64_MAX), UINT64_MAX);
    assert_int_equal(rfs_packed_add(&packed, 0, 1, INT64_MAX, &begin), 0);
    assert_int_equal(rfs_packed_add(&packed, 0, 1, 1, &begin), -EFBIG);
    free(packed.items.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_measure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dictionary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
