/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of formats that are not read, and what are no files of tensors at all: what each is, by its
 * name or its first bytes, and what to do. All commands name them by this table.
 */
#pragma once

#include "base/error.h"
#include "base/io.h"

#define RFS_FOREIGN_HEAD 4096 /* first bytes that are enough */

struct rfs_foreign;

/*
 * Finds what a file is by its NAME in a folder, or by N first bytes; NULL: none of the table's.
 * HEAD NULL: by the name alone, as far as that tells. NAME NULL: by the bytes alone.
 */
const struct rfs_foreign *rfs_foreign_find(const char *name, const unsigned char *head, size_t n);
/* Says whether the first bytes have to be read, too: the name alone says little. */
bool rfs_foreign_asks(const char *name);
/* Says whether A counts before B, where a folder has both; B may be NULL. */
bool rfs_foreign_counts(const struct rfs_foreign *a, const struct rfs_foreign *b);
/* Fails by saying what PATH is, as the file NAME (NULL: PATH's first bytes) shows. -ENOTSUP. */
int rfs_foreign_fail(const char *path, const struct rfs_foreign *row, const char *name,
                     struct rfs_error *err);
/*
 * Replaces the message of RC, with which reading the headers of FROM failed, if its first bytes
 * show what it is. Returns RC, or -ENOTSUP.
 */
int rfs_foreign_explain(const struct rfs_bytes_source *from, int rc, struct rfs_error *err);
