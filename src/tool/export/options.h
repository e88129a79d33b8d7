/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `reshard export`. */
#pragma once

#include "base/error.h"
#include "tool/common/args.h"
#include "tool/common/ranks.h"
#include "tool/export/task.h"

struct rfs_export_options {
    const char *source; /* the caller's; NULL: --verify against the manifest alone */
    const char *target;
    struct rfs_settings view; /* of those given twice, the later counts */
    struct rfs_ranks ranks;
    unsigned threads;
    bool no_fsync;
    bool verify;
    bool trust;
    bool json;
    bool force;
    struct rfs_task task; /* as --task says; count is 0 when it is not given */
};

extern const struct rfs_argument rfs_export_arguments[];
/* Checks the arguments together. 0, or -EINVAL with *err filled. */
int rfs_export_options_check(struct rfs_export_options *out, struct rfs_error *err);
