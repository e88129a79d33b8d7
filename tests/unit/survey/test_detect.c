/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind of a file stays what it is when the file is damaged: cut anywhere, or with another bit.
 */
#include "formats/formats.h"
#include "survey/headers/inspect_file.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define TEXT(text) text, sizeof text - 1
#define FLIPPED 64 /* bytes at the beginning whose bits are flipped, one after the other */

/* Kinds: what a path is, and the format of files of tensors. */
enum {
    CKPT = RFS_FORMAT_CKPT,
    SAFETENSORS = RFS_FORMAT_SAFETENSORS,
    TORCH = RFS_FORMAT_TORCH,
    OTHERS = RFS_FORMAT_COUNT,
    STRATEGY = OTHERS + RFS_INSPECT_STRATEGY,
    GROUP = OTHERS + RFS_INSPECT_GROUP,
    RULES = OTHERS + RFS_INSPECT_RULES,
    WEIGHT_MAP = OTHERS + RFS_INSPECT_WEIGHT_MAP,
    MANIFEST = OTHERS + RFS_INSPECT_MANIFEST,
    REFUSED = -1,
};

/* A file of a kind, and one that a damaged one may be taken for: it then has no content. */
struct file {
    const char *name;
    int kind, damaged;
    const char *data;
    size_t n;
};

static const struct file files[] = {
    {"r.ckpt", CKPT, CKPT,
     TEXT("\x0a\x1b\x0a\x05layer\x12\x12\x0a\x01\x02\x12\x07"
          "Float32\x1a\x04\0\0\0\0")},
    {"s.ckpt", STRATEGY, CKPT,
     TEXT("\x08\x01\x12\x0c\x0a\x01w\x12\x07\x0a\x02\x08\x02\x12\x01\x08")},
    {"m.safetensors", SAFETENSORS, SAFETENSORS,
     TEXT("\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}")},
    {"m.pt", TORCH, TORCH, TEXT("PK\3\4\0\0\0\0\0\0\0\0\0\0")},
    {"group.pb", GROUP, CKPT, TEXT("\x12\x08\x08\x00\x08\x02\x08\x04\x08\x06")},
    {"s.json", STRATEGY, STRATEGY, TEXT("{\"current_stage\":0,\"parallel_strategy_item\":[]}")},
    {"model.safetensors.index.json", WEIGHT_MAP, WEIGHT_MAP,
     TEXT("{\"weight_map\":{\"w\":\"m.safetensors\"}}")},
    {"reshard-manifest.json", MANIFEST, MANIFEST,
     TEXT("{\"format\":\"reshard-manifest\",\"files\":[]}")},
    {"rules.txt", RULES, CKPT, TEXT("axes tp=2\n*: axis 0 over tp\n")},
};

static int detect(const char *root, const char *name, const void *data, size_t n)
{
    struct rfs_inspect_kind kind;
    struct rfs_error err;

    tree_write(root, name, data, n);
    const int rc = rfs_inspect_detect(NULL, tree_path(root, name), false, &kind, &err);
    if (rc) { /* JSON of no kind */
        assert_int_equal(rc, -EINVAL);
        return REFUSED;
    }
    assert_true(!kind.row == (kind.what != RFS_INSPECT_FILE));
    return kind.row ? (int)(kind.row - rfs_formats) : OTHERS + (int)kind.what;
}

static void expect(const char *root, const struct file *file, const char *data, size_t n, size_t at)
{
    const int kind = detect(root, file->name, data, n);

    const bool json = strstr(file->name, ".json") != NULL;

    if (kind != file->kind && kind != file->damaged && !(json && kind == REFUSED))
        fail_msg("%s, %zu bytes, damaged at %zu: %d", file->name, n, at, kind);
}

static void test_damaged_files(void **state)
{
    char *root = tree_new();

    (void)state;
    for (size_t f = 0; f < ARRAY_SIZE(files); f++) {
        const struct file *file = &files[f];
        char *data = malloc(file->n);
        assert_non_null(data);
        memcpy(data, file->data, file->n);
        assert_int_equal(detect(root, file->name, data, file->n), file->kind);
        for (size_t n = 0; n < file->n; n++)
            expect(root, file, data, n, n);
        for (size_t bit = 0; bit < 8 * FLIPPED && bit / 8 < file->n; bit++) {
            data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
            expect(root, file, data, file->n, bit / 8);
            data[bit / 8] = (char)(data[bit / 8] ^ 1 << bit % 8);
        }
        free(data);
    }
    tree_remove(root);
}

/* What is group info by its bytes alone is a checkpoint by its name. */
static void test_names_count(void **state)
{
    char *root = tree_new();

    (void)state;
    assert_int_equal(detect(root, "r.ckpt", TEXT("\x12\x08\x08\x00\x08\x02\x08\x04\x08\x06")),
                     CKPT);
    assert_int_equal(detect(root, "r.ckpt", TEXT("\x0a\x00")), CKPT);
    assert_int_equal(detect(root, "group", TEXT("\x12\x02\x08\x00")), GROUP);
    tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_names_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
