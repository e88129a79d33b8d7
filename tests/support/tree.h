/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint trees for tests: temporary folders and .ckpt files encoded by hand. All fail the test.
 */
#ifndef TESTS_SUPPORT_TREE_H
#define TESTS_SUPPORT_TREE_H

#include <stddef.h>
#include <stdint.h>

struct bytes {
    unsigned char *data;
    size_t n, cap;
};

void bytes_add(struct bytes *bytes, const void *data, size_t n);
void bytes_varint(struct bytes *bytes, uint64_t value);
void bytes_free(struct bytes *bytes);

/* One Checkpoint message with one tensor value; the content follows the header when given. */
void ckpt_header(struct bytes *file, const char *name, const char *dtype, unsigned ndim,
                 const uint64_t *dims, uint64_t content_bytes);
void ckpt_tensor(struct bytes *file, const char *name, const char *dtype, unsigned ndim,
                 const uint64_t *dims, const void *content, uint64_t content_bytes);

/* A fresh temporary folder; tree_remove frees the name. */
char *tree_new(void);
void tree_remove(char *root);
/* Writes root/path (mode 0600), making the folders above it. */
void tree_write(const char *root, const char *path, const void *data, size_t n);
/* root/path, in a buffer of the function's own that the next call but three overwrites. */
const char *tree_path(const char *root, const char *path);

/* RFS_SEED, or the time; printed, so that a failure can be replayed. */
uint64_t test_seed(void);
/* The next number of a sequence that STATE keeps, below N. */
uint32_t test_below(uint64_t *state, uint32_t n);

#endif
