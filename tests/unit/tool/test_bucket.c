/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket that is exported to, with a store in memory: parts, in whatever order their pieces come,
 * and what may be replaced. tests/objects has real stores.
 */
#include "tests/support/tree.h"
#include "tool/export/dest.h"
#include "tool/export/export.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096 /* of a file, at most */

static uint64_t state_of_random;

static uint64_t next(void)
{
    return test_below(&state_of_random, UINT32_MAX);
}

/* ---- the store ------------------------------------------------------------------------------- */

struct rfs_upload {
    uint64_t size;
    uint32_t parts;
};

static struct {
    unsigned char bytes[BYTES];
    uint64_t n; /* of the object */
    bool seen[BYTES];
    uint32_t sent, whole, open;
    uint64_t part_bytes; /* that all parts must have but for the last */
    bool known, there;   /* a manifest was, when it was asked for; and is */
    char etag[RFS_STORE_ETAG], over[RFS_STORE_ETAG];
    bool anything; /* the last object might replace anything */
} store;

static uint64_t copy(unsigned char *to, const struct iovec *spans, int count)
{
    uint64_t n = 0;

    for (int i = 0; i < count; i++) {
        memcpy(to + n, spans[i].iov_base, spans[i].iov_len);
        n += spans[i].iov_len;
    }
    return n;
}

static int store_put(struct rfs_store *self, const char *url, const struct iovec *spans, int count,
                     const char *over, char etag[RFS_STORE_ETAG])
{
    (void)self;
    assert_non_null(strstr(url, "s3://b/p/"));
    store.anything = !over;
    snprintf(store.over, sizeof store.over, "%s", over ? over : "");
    if (over && (*over ? strcmp(over, store.etag) != 0 : store.there))
        return -EEXIST;
    store.n = copy(store.bytes, spans, count);
    store.whole++;
    snprintf(store.etag, sizeof store.etag, "\"%u\"", store.whole);
    memcpy(etag, store.etag, sizeof store.etag);
    return 0;
}

static int store_begin(struct rfs_store *self, const char *url, uint64_t size, uint32_t parts,
                       struct rfs_upload **out)
{
    (void)self;
    assert_string_equal(url, "s3://b/p/rank_0/a");
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    **out = (struct rfs_upload){size, parts};
    store.open++;
    return 0;
}

static int store_send(struct rfs_upload *upload, uint32_t part, const struct iovec *spans,
                      int count)
{
    assert_true(part < upload->parts && !store.seen[part]);
    store.seen[part] = true;
    store.sent++;
    const uint64_t n = copy(store.bytes + part * store.part_bytes, spans, count);
    assert_int_equal(n, part + 1 < upload->parts ? store.part_bytes
                                                 : upload->size - part * store.part_bytes);
    store.n += n;
    return 0;
}

static int store_complete(struct rfs_upload *upload, const char *over)
{
    assert_int_equal(store.sent, upload->parts);
    store.anything = !over;
    store.whole++;
    return 0;
}

static void store_drop(struct rfs_upload *upload)
{
    store.open -= upload != NULL;
    free(upload);
}

static int store_stat(struct rfs_store *self, const char *url, struct stat *st)
{
    (void)self;
    (void)url;
    *st = (struct stat){.st_mode = S_IFREG};
    return store.known ? 0 : -ENOENT;
}

static const struct rfs_store_directory directory = {.stat = store_stat};
static const struct rfs_store_uploads uploads = {
    .put = store_put,
    .begin = store_begin,
    .send = store_send,
    .complete = store_complete,
    .drop = store_drop,
};
static struct rfs_store in_memory = {.directory = &directory, .uploads = &uploads};

static int set_up(void **state)
{
    static struct rfs_dest dest;
    struct rfs_error err = {0};

    memset(&store, 0, sizeof store);
    *state = &dest;
    const int rc = rfs_dest_find("s3://b/p//", "/a/source", &dest, &err);
    dest.store = &in_memory;
    return rc;
}

static int tear_down(void **state)
{
    rfs_dest_close(*state);
    return 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

struct piece {
    uint64_t offset, size;
};

/* Writes a file in the pieces of an export, in any order, each as one to three spans. */
static void write_file(struct rfs_dest *dest, uint64_t size, uint64_t piece, uint64_t cut,
                       bool replace)
{
    const struct rfs_wave_file file = {.size = size, .cut = cut};
    struct rfs_dest_partial partial = {
        .dest = dest, .path = "rank_0/a", .size = size, .piece = piece, .replace = replace};
    const uint64_t n = rfs_wave_pieces(&file, piece);
    static struct piece pieces[BYTES];
    static unsigned char bytes[BYTES + 1];
    struct rfs_error err = {0};

    memset(&store, 0, sizeof store);
    store.part_bytes = piece;
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)next();
    for (uint64_t i = 0; i < n; i++)
        rfs_wave_piece(&file, piece, i, &pieces[i].offset, &pieces[i].size);
    assert_int_equal(rfs_dest_begin(&partial, &err), 0);
    for (uint64_t left = n; left > 0; left--) {
        const uint64_t i = next() % left;
        const struct piece at = pieces[i];
        const uint64_t first = next() % (at.size + 1);
        const uint64_t skip = at.offset > 2 ? 2 : 0;
        const struct iovec spans[] = {{(char[]){"??"}, (size_t)skip},
                                      {bytes + at.offset, (size_t)first},
                                      {bytes + at.offset + first, (size_t)(at.size - first)}};
        pieces[i] = pieces[left - 1];
        assert_int_equal(
            dest->kind->write(&partial, spans, 3, skip, skip + at.size, at.offset - skip), 0);
        assert_true(partial.upload || store.whole == (left == 1));
    }
    assert_int_equal(rfs_dest_finish(&partial, &err), 0);
    assert_int_equal(store.whole, 1);
    assert_int_equal(store.open, 0);
    assert_int_equal(store.n, size);
    assert_memory_equal(store.bytes, bytes, size);
    assert_int_equal(store.anything, replace);
}

static void parts_are_whole_however_pieces_come(void **state)
{
    for (int i = 0; i < 3000; i++) {
        const uint64_t size = next() % 3 ? next() % BYTES : next() % 20;
        const uint64_t piece = next() % 500 + 2;
        /* A trailer is shorter than a part. */
        const uint64_t trailer = next() % piece;
        const uint64_t cut = next() % 2 && trailer < size ? size - trailer : 0;
        write_file(*state, size, piece, cut, next() % 2);
    }
}

static void sizes_of_parts(void **state)
{
    const struct rfs_dest *dest = *state;
    const uint64_t mib = 1 << 20;
    assert_int_equal(dest->kind->piece(1, 0), 8 * mib);
    assert_int_equal(dest->kind->piece(8, mib), 8 * mib);
    assert_true(dest->kind->piece(11, mib) * 11 <= 64 * mib);
    assert_int_equal(dest->kind->piece(500, mib), 5 * mib);
    /* At most 10,000 parts. */
    for (uint64_t size = 1; size < UINT64_C(15) << 40; size = size * 3 + 1) {
        const uint64_t piece = dest->kind->piece(2, size);
        assert_true(piece >= 5 * mib && (size + piece - 1) / piece <= 10000);
        assert_true(piece <= UINT32_MAX);
    }
    struct rfs_dest_partial partial = {
        .dest = dest, .path = "a", .size = UINT64_MAX, .piece = dest->kind->piece(2, UINT64_MAX)};
    struct rfs_error err = {0};
    assert_int_equal(rfs_dest_begin(&partial, &err), -EFBIG);
    assert_string_equal(err.text, "s3://b/p/a: it would be more than 10000 parts of 2 GiB; try: "
                                  "a folder, or smaller files by -o file_size=");
}

/* ---- the manifest ---------------------------------------------------------------------------- */

static int save(struct rfs_dest *dest, struct rfs_error *err)
{
    return dest->kind->save(dest, "m", "text", 4, true, err);
}

static void a_manifest_replaces_its_own_alone(void **state)
{
    struct rfs_dest *dest = *state;
    struct rfs_error err = {0};

    assert_int_equal(save(dest, &err), 0);
    assert_false(store.anything);
    assert_string_equal(store.over, ""); /* none was there */
    assert_int_equal(save(dest, &err), 0);
    assert_string_equal(store.over, "\"1\"");
    strcpy(store.etag, "\"of another\"");
    for (int i = 0; i < 2; i++) {
        err = (struct rfs_error){0};
        assert_int_equal(save(dest, &err), -EBUSY);
        assert_string_equal(err.text, "m: another export to s3://b/p is writing it; try: once that "
                                      "has ended");
        assert_string_equal(store.over, "\"2\"");
    }
    rfs_dest_close(dest);
    store.known = store.there = true; /* of an export that has ended */
    assert_int_equal(rfs_dest_find("s3://b/p", NULL, dest, &err), 0);
    dest->store = &in_memory;
    assert_int_equal(save(dest, &err), 0);
    assert_true(store.anything);
    assert_int_equal(save(dest, &err), 0);
    assert_string_equal(store.over, "\"3\"");
}

static void a_manifest_that_appears_meanwhile_stays(void **state)
{
    struct rfs_dest *dest = *state;
    struct rfs_error err = {0};

    store.there = true;
    assert_int_equal(save(dest, &err), -EBUSY);
    assert_int_equal(save(dest, &err), -EBUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_are_whole_however_pieces_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sizes_of_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_manifest_replaces_its_own_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_manifest_that_appears_meanwhile_stays, set_up, tear_down),
    };
    state_of_random = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
