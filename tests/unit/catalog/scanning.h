/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of empty files, scanned in all ways. */
#ifndef TESTS_UNIT_SOURCE_SCANNING_H
#define TESTS_UNIT_SOURCE_SCANNING_H

#include "base/options.h"
#include "catalog/scan/scan.h"
#include "tests/unit/store/tree.h"

struct scanning {
    struct tree tree;
    struct lines lines;
    struct rfs_options options;
    struct rfs_source_spec spec; /* its path is the tree's root, and those are its options */
    struct rfs_scan scan;        /* what the last scanned() gave */
};

int scanning_setup(void **state);
int scanning_teardown(void **state);

/* An empty file; the folders above it are made. */
void put(const struct scanning *s, const char *name);
void put_text(const struct scanning *s, const char *name, const char *text);
/* Opens, which must succeed. */
void scanned(struct scanning *s);
/*
 * The rank's files, relative to the root, with a space between them; "-" for none, "" for no such
 * rank.
 */
const char *files_of(const struct scanning *s, uint32_t rank);
/* Opening fails with CODE; the message has all parts, up to a NULL. */
void scan_refused(struct scanning *s, int code, bool usage, const char *const *parts);
#define REFUSED(s, code, ...) scan_refused(s, code, false, (const char *const[]){__VA_ARGS__, NULL})
#define MISUSED(s, ...) scan_refused(s, -EINVAL, true, (const char *const[]){__VA_ARGS__, NULL})
/* Back to a specification that says nothing. */
void plain(struct scanning *s);

#endif
