/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tree.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

void bytes_add(struct bytes *bytes, const void *data, size_t n)
{
    while (bytes->n + n > bytes->cap) {
        bytes->cap = bytes->cap ? bytes->cap * 2 : 256;
        bytes->data = realloc(bytes->data, bytes->cap);
        assert_non_null(bytes->data);
    }
    if (n > 0)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
}

void bytes_varint(struct bytes *bytes, uint64_t value)
{
    do {
        const unsigned char low = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        bytes_add(bytes, &low, 1);
        value >>= 7;
    } while (value > 0);
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

static void add_field(struct bytes *bytes, unsigned char tag, const void *data, size_t n)
{
    bytes_add(bytes, &tag, 1);
    bytes_varint(bytes, n);
    if (data)
        bytes_add(bytes, data, n);
}

void ckpt_header(struct bytes *file, const char *name, const char *dtype, unsigned ndim,
                 const uint64_t *dims, uint64_t content_bytes)
{
    struct bytes tensor = {0};
    struct bytes value = {0};

    for (unsigned i = 0; i < ndim; i++) {
        bytes_add(&tensor, "\x08", 1);
        bytes_varint(&tensor, dims[i]);
    }
    add_field(&tensor, 0x12, dtype, strlen(dtype));
    add_field(&tensor, 0x1a, NULL, content_bytes);
    add_field(&value, 0x0a, name, strlen(name));
    add_field(&value, 0x12, NULL, tensor.n + content_bytes);
    bytes_add(&value, tensor.data, tensor.n);
    add_field(file, 0x0a, NULL, value.n + content_bytes);
    bytes_add(file, value.data, value.n);
    bytes_free(&tensor);
    bytes_free(&value);
}

void ckpt_tensor(struct bytes *file, const char *name, const char *dtype, unsigned ndim,
                 const uint64_t *dims, const void *content, uint64_t content_bytes)
{
    ckpt_header(file, name, dtype, ndim, dims, content_bytes);
    bytes_add(file, content, content_bytes);
}

char *tree_new(void)
{
    const char *base = getenv("TMPDIR");
    char *root = NULL;

    assert_true(asprintf(&root, "%s/reshard-test-XXXXXX", base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(root));
    return root;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void tree_remove(char *root)
{
    assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(root);
}

const char *tree_path(const char *root, const char *path)
{
    static char names[4][4096];
    static unsigned next;
    char *name = names[next++ % 4];

    snprintf(name, sizeof names[0], "%s/%s", root, path);
    return name;
}

void tree_write(const char *root, const char *path, const void *data, size_t n)
{
    char name[4096];

    snprintf(name, sizeof name, "%s/%s", root, path);
    for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(mkdir(name, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_true(n == 0 || fwrite(data, 1, n, file) == n);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(name, 0600), 0);
}

uint64_t test_seed(void)
{
    const char *text = getenv("RFS_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

    print_message("RFS_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

uint32_t test_below(uint64_t *state, uint32_t n)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % n);
}
