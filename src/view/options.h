/* SPDX-License-Identifier: Apache-2.0 */
/* The view's options: "key=value,key=value", "\," for a comma inside a value and "\\" for a backslash. */
#ifndef RFS_VIEW_OPTIONS_H
#define RFS_VIEW_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rfs_options {
    char *src_strategy; /* paths; NULL when not given */
    char *dst_strategy;
    char *prefix;   /* never NULL once parsed */
    uint64_t cache; /* bytes */
    bool strict;
};

/*
 * TEXT may be NULL. Of a key that comes twice the last counts, as with mount(8). 0, -ENOMEM, or -EINVAL
 * with *err filled as a mistake of usage; *out is to be freed in any case.
 */
int rfs_options_parse(const char *text, struct rfs_options *out, struct rfs_error *err);
void rfs_options_free(struct rfs_options *options);

/*
 * "64", "512K", "2G", "1.5GiB" → bytes, in powers of 1,024, the same under any locale. False when it is
 * not a size, or over 2^63 - 1 bytes.
 */
bool rfs_options_size(const char *text, uint64_t *bytes);

/* An eighth of the smaller of the machine's memory and the limits of the process's cgroups. */
uint64_t rfs_options_default_cache(void);

#endif
