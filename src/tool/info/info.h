/* SPDX-License-Identifier: Apache-2.0 */
/* The three kinds of things that `reshard info` shows, each as a table and a line. */
#ifndef RFS_TOOL_INFO_H
#define RFS_TOOL_INFO_H

#include "base/error.h"
#include "tool/common/table.h"

struct rfs_report {
    const char *kind; /* "checkpoint", "encrypted", "tree", "strategy" */
    char *path;       /* owned; what was looked at in the end */
    struct rfs_table table;
    char summary[256]; /* one line for people */
};

/* Zero-initialise the report; the caller frees path and table. 0 or -errno with *err filled. */
int rfs_info_file(const char *path, struct rfs_report *report, struct rfs_error *err);
int rfs_info_tree(const char *path, struct rfs_report *report, struct rfs_error *err);
struct rfs_reading;
/* Whether a file is an encrypted checkpoint, by its first bytes; and what its headers say of it. */
bool rfs_info_is_encrypted(struct rfs_reading *reading);
int rfs_info_encrypted(struct rfs_reading *reading, const char *path, struct rfs_report *report,
                       struct rfs_error *err);
/* Whether it is a safetensors file, by its name. */
bool rfs_info_is_safetensors(const char *path);
int rfs_info_strategy(const char *path, struct rfs_report *report, struct rfs_error *err);

#endif
