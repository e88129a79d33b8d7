/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: an index is another file's only if a walk of that file would give the same one. */
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASES 60
#define FLIPS 300

static struct rfs_index *walked(const struct bytes *file, struct rfs_tables *tables)
{
    struct rfs_index *index = NULL;
    struct memory memory = {.p = file->p, .n = file->n};
    rfs_ckpt_walk(RFS_BYTES_SOURCE(memory_read, &memory, file->n, "f"), tables, &index, NULL);
    return index;
}

static int matches(const struct bytes *file, const struct rfs_index *index,
                   struct rfs_tables *tables, struct rfs_pool *pool)
{
    struct memory memory = {.p = file->p, .n = file->n};
    return rfs_ckpt_matches(RFS_BYTES_SOURCE(memory_read, &memory, file->n, NULL), index, tables,
                            pool);
}

static int resembles(const struct bytes *file, const struct rfs_index *index,
                     struct rfs_tables *tables, size_t samples)
{
    struct memory memory = {.p = file->p, .n = file->n};
    return rfs_ckpt_resembles(RFS_BYTES_SOURCE(memory_read, &memory, file->n, NULL), index, tables,
                              samples);
}

static bool same_index(const struct rfs_index *a, const struct rfs_index *b)
{
    return b && a->n == b->n && a->n_extents == b->n_extents && a->has_crc == b->has_crc &&
           a->file_bytes == b->file_bytes &&
           memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0 &&
           (a->n_extents == 0 ||
            memcmp(a->extents, b->extents, a->n_extents * sizeof *a->extents) == 0);
}

static struct bytes random_file(struct random *random)
{
    static const char *const dtypes[] = {"Float32", "BFloat16", "Int64", "str"};
    static const size_t sizes[] = {4, 2, 8, 4};
    struct bytes file = {0};
    const unsigned n = 1 + (unsigned)random_below(random, 200);
    for (unsigned i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%u.w", i);
        const unsigned pick = (unsigned)random_below(random, 4);
        const unsigned ndim = pick == 3 ? 1 : (unsigned)random_below(random, 4);
        const int64_t big = random_below(random, 30) ? 20 : 2000;
        int64_t dims[3] = {0};
        size_t bytes = sizes[pick];
        for (unsigned k = 0; k < ndim && pick != 3; k++) {
            dims[k] = 1 + (int64_t)random_below(random, k == 0 ? (uint64_t)big : 8);
            bytes *= (size_t)dims[k];
        }
        /* A scalar may have one dimension that is 0. */
        const unsigned zero = ndim == 0 && random_below(random, 2);
        const size_t cut = pick != 3 && ndim > 0 && random_below(random, 10) == 0 ? bytes / 3 : 0;
        if (cut > 0)
            put_tensor(&file, name, dims, ndim, dtypes[pick], filler(cut), cut);
        put_tensor(&file, name, dims, ndim + zero, dtypes[pick], filler(bytes), bytes - cut);
    }
    if (random_below(random, 2))
        bytes_add(&file, "crc_num\0\0\0\0\0\0\1\2\3\4", 17);
    return file;
}

static bool in_content(const struct rfs_index *index, struct rfs_tables *tables, size_t at)
{
    for (size_t i = 0; i < index->n_extents; i++)
        if (at >= index->extents[i].offset &&
            at - index->extents[i].offset < index->extents[i].bytes)
            return true;
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
        if (entry->extent_count == 0 && at >= entry->offset && at - entry->offset < type->bytes)
            return true;
    }
    return false;
}

/*
 * One bit changed. In a content that is nothing to a prediction; elsewhere it may hold only if the
 * walk finds the same. (It need not: 08 00, a scalar's dim, may become an unknown field.)
 */
static void flip(struct random *random, struct bytes *file, const struct rfs_index *index,
                 struct rfs_tables *tables, unsigned *hits, unsigned *misses)
{
    const size_t at = (size_t)random_below(random, file->n);
    const unsigned char bit = (unsigned char)(1u << random_below(random, 8));
    file->p[at] ^= bit;
    const int rc = matches(file, index, tables, NULL);
    struct rfs_index *truth = walked(file, tables);
    assert_true(rc == 0 || rc == 1);
    if (rc == 1)
        assert_true(same_index(index, truth));
    if (in_content(index, tables, at))
        assert_int_equal(rc, 1);
    /*
     * Samples find nothing that is not there, and of every header they find all but chunks between.
     */
    const int few = resembles(file, index, tables, 2 + (size_t)random_below(random, 10));
    const int all = resembles(file, index, tables, index->n > 2 ? index->n : 2);
    assert_true(few == 1 || rc == 0);
    assert_true(all == rc || (all == 1 && index->n_extents > 0));
    *(rc ? hits : misses) += 1;
    rfs_index_free(truth);
    file->p[at] ^= bit;
}

static void test_flips(void **state)
{
    (void)state;
    struct random random = {random_seed()};
    struct rfs_pool *pool = rfs_pool_new(3);
    assert_non_null(pool);
    unsigned hits = 0;
    unsigned misses = 0;
    for (unsigned i = 0; i < CASES; i++) {
        struct rfs_tables tables = tables_new();
        struct bytes file = random_file(&random);
        struct rfs_index *index = walked(&file, &tables);
        assert_non_null(index);
        assert_int_equal(matches(&file, index, &tables, NULL), 1);
        assert_int_equal(matches(&file, index, &tables, pool), 1);
        for (unsigned k = 0; k < FLIPS; k++)
            flip(&random, &file, index, &tables, &hits, &misses);
        bytes_add(&file, "x", 1);
        assert_int_equal(matches(&file, index, &tables, pool), 0);
        file.n -= 2;
        assert_int_equal(matches(&file, index, &tables, pool), 0);
        rfs_index_free(index);
        bytes_free(&file);
        tables_free(&tables);
    }
    assert_true(hits > 0 && misses > 0);
    rfs_pool_free(pool);
}

/* Right files that are written in another way than MindSpore's: the walk's business. */
static void test_unusual(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3};
    struct rfs_tables tables = tables_new();
    struct bytes tensor = tensor_message(dims, 2, "Int8", filler(6), 6);
    struct bytes value = {0};
    struct bytes file = {0};
    put_tensor(&file, "first", dims, 2, "Int8", filler(6), 6);
    bytes_field(&value, 2, tensor.p, tensor.n); /* the tag comes last */
    bytes_field(&value, 1, "second", 6);
    put_value(&file, &value);
    put_tensor(&file, "third", dims, 2, "Int8", filler(6), 6);
    struct rfs_index *index = walked(&file, &tables);
    assert_int_equal(index->n, 3);
    assert_int_equal(matches(&file, index, &tables, NULL), 0);
    rfs_index_free(index);

    file.n = 0; /* an unknown field at the end */
    put_tensor(&file, "first", dims, 2, "Int8", filler(6), 6);
    bytes_number(&file, 9, 1);
    index = walked(&file, &tables);
    assert_int_equal(index->n, 1);
    assert_int_equal(matches(&file, index, &tables, NULL), 0);
    rfs_index_free(index);
    bytes_free(&file);
    bytes_free(&value);
    bytes_free(&tensor);
    tables_free(&tables);
}

/* A piece of a scalar with dims [0] is refused by the walk, so it must not match one without. */
static void test_scalar_pieces(void **state)
{
    (void)state;
    const int64_t zero[] = {0};
    struct rfs_tables tables = tables_new();
    struct bytes file = {0};
    put_tensor(&file, "s", NULL, 0, "Int32", filler(4), 4);
    struct rfs_index *plain = walked(&file, &tables);
    file.n = 0;
    put_tensor(&file, "s", zero, 1, "Int32", filler(4), 4);
    struct rfs_index *zeroed = walked(&file, &tables);
    assert_int_equal(plain->entries[0].type, zeroed->entries[0].type);
    assert_int_equal(matches(&file, zeroed, &tables, NULL), 1);
    assert_int_equal(matches(&file, plain, &tables, NULL), 0);
    rfs_index_free(plain);
    rfs_index_free(zeroed);
    bytes_free(&file);
    tables_free(&tables);
}

/* What lies near is read at once, what is far is jumped over. */
static void test_reads(void **state)
{
    (void)state;
    struct rfs_tables tables = tables_new();
    struct bytes file = {0};
    const int64_t small[] = {100};
    const int64_t large[] = {100000};
    for (unsigned i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%u", i);
        const bool far = i % 16 == 15;
        put_tensor(&file, name, far ? large : small, 1, "Int8", filler(100000), far ? 100000 : 100);
    }
    struct rfs_index *index = walked(&file, &tables);
    assert_non_null(index);
    struct memory memory = {.p = file.p, .n = file.n};
    assert_int_equal(rfs_ckpt_matches(RFS_BYTES_SOURCE(memory_read, &memory, file.n, NULL), index,
                                      &tables, NULL),
                     1);
    assert_int_equal(memory.reads, 4);
    assert_true(memory.bytes < 64 * 200);
    rfs_index_free(index);
    bytes_free(&file);
    tables_free(&tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_unusual),
        cmocka_unit_test(test_scalar_pieces),
        cmocka_unit_test(test_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
