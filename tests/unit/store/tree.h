/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders and files below a temporary folder, for tests. Paths are relative to it; failures abort.
 */
#ifndef TESTS_UNIT_SOURCE_TREE_H
#define TESTS_UNIT_SOURCE_TREE_H

#include "base/log.h"
#include "writer.h"

struct tree {
    char root[64];
};

void tree_new(struct tree *tree);
void tree_remove(struct tree *tree);
/* Its path; one of eight buffers in turn. */
const char *tree_path(const struct tree *tree, const char *name);
void tree_folder(const struct tree *tree, const char *name);
void tree_file(const struct tree *tree, const char *name, const void *data, size_t n);
/* A checkpoint of one parameter "w" of n int8s, whose content is BYTE. */
void tree_ckpt(const struct tree *tree, const char *name, const char *param, size_t n, int byte);
/* Sets the modification time. */
void tree_touch(const struct tree *tree, const char *name, long seconds, long nanoseconds);

/* A log that remembers its last line and counts. */
struct lines {
    struct rfs_log log;
    unsigned n;
    char last[1024];
};
void lines_init(struct lines *lines);

#endif
