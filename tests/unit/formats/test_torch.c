/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch.save: tensors, what lies out of its storage, and state dicts as checkpoints. */
#include "base/intern.h"
#include "catalog/merge.h"
#include "formats/torch/torch.h"
#include "tests/support/torch_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIMS(...)                                                                                  \
    .ndim = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dims = (const int64_t[])                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define STRIDES(...)                                                                               \
    .strides = (const int64_t[])                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define BIG (INT64_C(1) << 40)

static int memory_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *file = ctx;
    assert_true(offset <= file->n && n <= file->n - offset);
    memcpy(buf, file->data + offset, n);
    return 0;
}

/* A dict of one tensor "w" and the storage "0" of BYTES bytes. */
static void make(struct torch_file *file, const struct torch_tensor *tensor, size_t bytes)
{
    static const unsigned char content[4096];
    torch_ops(file, "}");
    torch_text(file, "w");
    torch_tensor(file, tensor);
    torch_ops(file, "s");
    torch_storage(file, "0", content, bytes);
}

static int look(struct torch_file *file, struct rfs_torch_tensor *out, struct rfs_error *err)
{
    const struct bytes *bytes = torch_end(file);
    struct rfs_torch torch;
    assert_int_equal(
        rfs_torch_open(RFS_BYTES_SOURCE(memory_read, (void *)(uintptr_t)bytes, bytes->n, "a.pt"), 0,
                       &torch, err),
        0);
    const struct rfs_node *w = rfs_pickle_get(torch.pickle.root, "w");
    const int rc = rfs_torch_tensor(&torch, w, "a.pt", "w", out, err);
    assert_int_equal(rfs_torch_check(&torch, "a.pt", NULL), rc < 0 ? rc : 0);
    rfs_torch_free(&torch);
    torch_free(file);
    return rc;
}

static void is_tensor(const struct torch_tensor *tensor, size_t bytes, uint64_t elements,
                      bool contiguous)
{
    struct torch_file file = {0};
    struct rfs_torch_tensor out;
    struct rfs_error err = {0};
    make(&file, tensor, bytes);
    if (look(&file, &out, &err) != 1)
        fail_msg("%s", err.text);
    assert_int_equal(out.elements, elements);
    assert_int_equal(out.contiguous, contiguous);
}
#define TENSOR(...) (&(struct torch_tensor){.class = "FloatStorage", .key = "0", __VA_ARGS__})

static void test_tensors(void **state)
{
    (void)state;
    is_tensor(TENSOR(.elements = 6, DIMS(2, 3)), 24, 6, true);
    is_tensor(TENSOR(.elements = 6, .offset = 3, DIMS(3)), 24, 3, true);
    is_tensor(TENSOR(.elements = 6, DIMS(3, 2), STRIDES(1, 3)), 24, 6, false);
    is_tensor(TENSOR(.elements = 1, DIMS(5, 7), STRIDES(0, 0)), 4, 35, false);
    is_tensor(TENSOR(.elements = 6, DIMS(1, 6, 1), STRIDES(INT64_MAX, 1, 99)), 24, 6, true);
    is_tensor(TENSOR(.elements = 4, DIMS(3, 2), STRIDES(1, 1)), 16, 6, false); /* overlapping */
    is_tensor(TENSOR(.elements = 0, DIMS(0, 4)), 0, 0, true);
    is_tensor(TENSOR(.elements = 0, .offset = BIG, DIMS(4, 0), STRIDES(INT64_MAX, 7)), 0, 0, true);
    is_tensor(TENSOR(.elements = 1, DIMS(BIG, 1024), STRIDES(0, 0)), 4, 1024 * (uint64_t)BIG,
              false);
}

static void refused(const struct torch_tensor *tensor, size_t bytes, const char *part)
{
    struct torch_file file = {0};
    struct rfs_torch_tensor out;
    struct rfs_error err = {0};
    make(&file, tensor, bytes);
    assert_int_equal(look(&file, &out, &err), -EINVAL);
    if (!strstr(err.text, part) || strncmp(err.text, "a.pt: parameter 'w': ", 21) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
}

static void test_impossible(void **state)
{
    (void)state;
    const char *out_of = "it reaches out of its storage";
    const char *impossible = "its size is impossible";
    refused(TENSOR(.elements = 6, DIMS(7)), 24, out_of);
    refused(TENSOR(.elements = 6, .offset = 1, DIMS(2, 3)), 24, out_of);
    refused(TENSOR(.elements = 6, DIMS(2, 3), STRIDES(4, 1)), 24, out_of);
    refused(TENSOR(.elements = 0, DIMS(1)), 0, out_of);
    refused(TENSOR(.elements = 6, .offset = INT64_MAX, DIMS(2), STRIDES(INT64_MAX)), 24, out_of);
    refused(TENSOR(.elements = 6, .offset = INT64_MAX, DIMS(3), STRIDES(INT64_MAX)), 24,
            impossible);
    refused(TENSOR(.elements = 6, DIMS(BIG, BIG), STRIDES(0, 0)), 24, impossible);
    refused(TENSOR(.elements = 6, DIMS(BIG, BIG, 0), STRIDES(0, 0, 0)), 24, impossible);
    refused(TENSOR(.elements = 6, DIMS(0, BIG, BIG), STRIDES(0, 0, 0)), 24, impossible);
    refused(TENSOR(.elements = 6, DIMS(6)), 20, "its storage has 20 bytes in the file, and not 6");
    refused(TENSOR(.elements = 6, DIMS(6)), 28, "its storage has 28 bytes in the file, and not 6");
    refused(TENSOR(.elements = INT64_MAX, DIMS(6)), 24, "its storage has 24 bytes in the file");
    refused(&(struct torch_tensor){.class = "FloatStorage", .key = "1", .elements = 1, DIMS(1)}, 4,
            "its storage is not in the file");
}

/* What nobody asks for is looked at all the same: it would be shown again. */
static void test_check_goes_everywhere(void **state)
{
    (void)state;
    struct torch_file file = {0};
    struct rfs_torch torch;
    struct rfs_error err = {0};
    torch_ops(&file, "}(");
    torch_text(&file, "others");
    torch_ops(&file, "ccollections\nOrderedDict\n)R"); /* its state is a dict */
    torch_ops(&file, "}");
    torch_int(&file, 7);
    torch_ops(&file, "](N");
    torch_tensor(&file, TENSOR(.elements = 6, DIMS(7)));
    torch_ops(&file, "esbu");
    torch_storage(&file, "0", "123456781234567812345678", 24);
    const struct bytes *bytes = torch_end(&file);
    assert_int_equal(
        rfs_torch_open(RFS_BYTES_SOURCE(memory_read, (void *)(uintptr_t)bytes, bytes->n, "a.pt"), 0,
                       &torch, &err),
        0);
    assert_int_equal(rfs_torch_check(&torch, "a.pt", &err), -EINVAL);
    assert_non_null(strstr(err.text, "a.pt: parameter 'others.7': it reaches out of its storage"));
    rfs_torch_free(&torch);
    torch_free(&file);
}

static void nested(unsigned depth, int code)
{
    struct torch_file file = {0};
    struct rfs_torch torch;
    struct rfs_error err = {0};
    for (unsigned i = 0; i < depth; i++)
        torch_ops(&file, "]");
    for (unsigned i = 1; i < depth; i++)
        torch_ops(&file, "a");
    const struct bytes *bytes = torch_end(&file);
    assert_int_equal(
        rfs_torch_open(RFS_BYTES_SOURCE(memory_read, (void *)(uintptr_t)bytes, bytes->n, "a.pt"), 0,
                       &torch, &err),
        0);
    assert_int_equal(rfs_torch_check(&torch, "a.pt", &err), code);
    if (code)
        assert_non_null(strstr(err.text, "a.pt: a value in it is nested deeper than 64 levels"));
    rfs_torch_free(&torch);
    torch_free(&file);
}

static void test_depth(void **state)
{
    (void)state;
    nested(64, 0);
    nested(65, -EINVAL);
    nested(2000, -EINVAL);
}

/* ---- state dicts as checkpoints -------------------------------------------------------------- */

static struct rfs_index *walk(struct torch_file *file, const char *entry, struct rfs_tables *tables,
                              int code, const char *part)
{
    const struct bytes *bytes = torch_end(file);
    struct rfs_index *index;
    struct rfs_error err = {0};
    size_t left_out;
    assert_int_equal(
        rfs_torch_walk(RFS_BYTES_SOURCE(memory_read, (void *)(uintptr_t)bytes, bytes->n, "a.pt"),
                       entry, tables, &index, &left_out, NULL, &err),
        code);
    if (part && !strstr(err.text, part))
        fail_msg("no '%s' in: %s", part, err.text);
    torch_free(file);
    return index;
}

static struct rfs_tables tables_new(void)
{
    return (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
}

static void tables_free(struct rfs_tables *tables)
{
    rfs_intern_free(tables->names);
    rfs_intern_free(tables->types);
}

static void test_refused_dicts(void **state)
{
    (void)state;
    struct rfs_tables tables = tables_new();
    struct torch_file file = {0};
    torch_ops(&file, "]");
    walk(&file, NULL, &tables, -EINVAL, "its content is not a dict of tensors");
    torch_ops(&file, "}");
    walk(&file, NULL, &tables, -EINVAL, "the dict in it has no tensors");
    make(&file, TENSOR(.elements = 1, DIMS(1)), 4);
    walk(&file, "a.b", &tables, -EINVAL, "it has nothing at entry=a.b");
    make(&file, TENSOR(.elements = 1, DIMS(BIG), STRIDES(0)), 4);
    walk(&file, NULL, &tables, -EFBIG,
         "tensors that are expanded or share storages have more than 64 times the");
    torch_ops(&file, "}");
    torch_text(&file, "\xed\xa0\x80");
    torch_tensor(&file, TENSOR(.elements = 1, DIMS(1)));
    torch_ops(&file, "s");
    torch_storage(&file, "0", "1234", 4);
    walk(&file, NULL, &tables, -EINVAL, "parameter '\\xed\\xa0\\x80': the name is not UTF-8");
    tables_free(&tables);
}

/* The names that an entry has in a file with flat keys at the top, and others in a dict. */
static void has_names(const char *entry, const char *want, size_t outside, const char *first)
{
    struct rfs_tables tables = tables_new();
    struct rfs_outside left = {.n = 0};
    struct torch_file file = {0};
    struct rfs_index *index;
    struct rfs_error err = {0};
    char have[200] = "";
    size_t left_out;
    static const char *const flat[] = {"model.a", "model.b.c", "lm_head.w", "model.", "model"};

    torch_ops(&file, "}(");
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
        torch_text(&file, flat[i]);
        torch_tensor(&file, TENSOR(.elements = 1, DIMS(1)));
    }
    torch_text(&file, "state");
    torch_ops(&file, "}(");
    torch_text(&file, "net.w");
    torch_tensor(&file, TENSOR(.elements = 1, DIMS(1)));
    torch_text(&file, "net.step");
    torch_ops(&file, "K\1");
    torch_ops(&file, "uu");
    torch_storage(&file, "0", "1234", 4);
    const struct bytes *bytes = torch_end(&file);
    const int rc =
        rfs_torch_walk(RFS_BYTES_SOURCE(memory_read, (void *)(uintptr_t)bytes, bytes->n, "a.pt"),
                       entry, &tables, &index, &left_out, &left, &err);
    assert_int_equal(rc, want ? 0 : -EINVAL);
    for (size_t i = 0; rc == 0 && i < index->n; i++) {
        strcat(have, rfs_intern_text(tables.names, index->entries[i].name));
        strcat(have, " ");
    }
    if (want)
        assert_string_equal(have, want);
    assert_int_equal(left.n, outside);
    assert_string_equal(left.first, first);
    rfs_index_free(index);
    torch_free(&file);
    tables_free(&tables);
}

/* Where no dict is, keys begin with the entry; of those that don't, tensors are noted. */
static void test_flat_entries(void **state)
{
    (void)state;
    has_names("model.b", "c ", 4, "model.a");
    has_names("model", "a b.c ", 3, "lm_head.w");
    has_names("lm_head", "w ", 4, "model.a");
    has_names("state", "net.w ", 0, "");
    has_names("state.net", "w ", 0, "");
    has_names("mod", NULL, 0, "");
    has_names("state.ne", NULL, 0, "");
    has_names("model.b.c", NULL, 0, "");
}

/* Strides go along when several files' values are put together. */
static void test_strides_are_merged(void **state)
{
    (void)state;
    static const char *const files[] = {"0.pt", "1.pt"};
    struct rfs_tables tables = tables_new();
    const struct rfs_index *indexes[2];
    struct rfs_index *merged;
    for (unsigned i = 0; i < 2; i++) {
        struct torch_file file = {0};
        torch_ops(&file, "}(");
        torch_text(&file, i == 0 ? "a" : "b");
        torch_tensor(&file, TENSOR(.elements = 6, DIMS(6)));
        torch_text(&file, i == 0 ? "c" : "d");
        torch_tensor(&file, TENSOR(.elements = 6, DIMS(3, 2), STRIDES(1, 3)));
        torch_ops(&file, "u");
        torch_storage(&file, "0", "123456781234567812345678", 24);
        indexes[i] = walk(&file, NULL, &tables, 0, NULL);
    }
    const struct rfs_merge merge = {.files = files, .indexes = indexes, .n = 2, .tables = &tables};
    assert_int_equal(rfs_merge(&merge, &merged, NULL), 0);
    assert_int_equal(merged->n, 4);
    for (size_t i = 0; i < 4; i++) {
        const uint64_t *strides = rfs_index_strides(merged, &merged->entries[i]);
        assert_int_equal(strides != NULL, i % 2);
        assert_true(!strides || (strides[0] == 4 && strides[1] == 12));
    }
    rfs_index_free(merged);
    for (unsigned i = 0; i < 2; i++)
        rfs_index_free((struct rfs_index *)(uintptr_t)indexes[i]);
    tables_free(&tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_check_goes_everywhere),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_refused_dicts),
        cmocka_unit_test(test_flat_entries),
        cmocka_unit_test(test_strides_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
