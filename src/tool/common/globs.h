/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The patterns of --name, and whether any name was like one of them: if none was, they are hardly
 * what was meant.
 */
#pragma once

#include "base/error.h"
#include "base/vec.h"

/* Patterns (base/glob.h); one must match a name. Without any, all names match. Zero-initialise. */
struct rfs_globs {
    const char **data; /* owned; the patterns are borrowed */
    size_t n, cap;
    bool matched;      /* a name that was taken; until then */
    char nearest[192]; /* that which is most like a pattern; "" if there was none */
    unsigned edits;
};

bool rfs_globs_match(const struct rfs_globs *globs, const char *name);
/* The same, and remembers it for rfs_globs_check. From one thread. */
bool rfs_globs_take(struct rfs_globs *globs, const char *name);
/*
 * Whether all names that were taken were unlike them: -ENOENT with *err filled as a mistake of
 * usage; or 0.
 */
int rfs_globs_check(const struct rfs_globs *globs, struct rfs_error *err);
