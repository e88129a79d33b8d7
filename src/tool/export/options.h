/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `reshard export`. */
#ifndef RFS_TOOL_EXPORT_OPTIONS_H
#define RFS_TOOL_EXPORT_OPTIONS_H

#include "base/error.h"
#include "tool/common/args.h"
#include "tool/common/ranks.h"
#include "tool/export/task.h"

#include <stdbool.h>
#include <stdint.h>

struct rfs_export_options {
    const char *source; /* the caller's; NULL: --verify of what the manifest says, and no more */
    const char *target;
    char *view; /* owned; "key=value,…" for reshard_open; what is given later counts */
    struct rfs_ranks ranks;
    unsigned threads; /* 0: as many as there are processors */
    bool no_fsync;
    bool verify;
    bool trust;
    bool json;
    bool force;
    struct rfs_task task; /* as --task says; count is 0 when it is not given */
};

extern const struct rfs_argument rfs_export_arguments[];
/* ARGV[0] is the command's name. 0, or -errno with *err filled; *out is to be freed in any case. */
int rfs_export_options_parse(int argc, char **argv, struct rfs_export_options *out,
                             struct rfs_error *err);
void rfs_export_options_free(struct rfs_export_options *options);

#endif
