/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of `reshard`, each defined in the folder of its name and listed in main.c. */
#ifndef RFS_TOOL_COMMON_COMMAND_H
#define RFS_TOOL_COMMON_COMMAND_H

#include "tool/common/args.h"

struct rfs_command {
    const char *name;
    const char *usage; /* its forms, a line each: "reshard info [--json] PATH\n" */
    /* one line of the list of commands: "info shows what …\n" less the name */
    const char *summary;
    const struct rfs_argument *arguments; /* to a row of zeros */
    const char *after;                    /* what --help says after them; NULL: nothing */
    /* ARGV[0] is the name. Gives the exit code. */
    int (*run)(int argc, char **argv);
};

extern const struct rfs_command rfs_command_diff;
extern const struct rfs_command rfs_command_example;
extern const struct rfs_command rfs_command_explain;
extern const struct rfs_command rfs_command_export;
extern const struct rfs_command rfs_command_get;
extern const struct rfs_command rfs_command_info;
extern const struct rfs_command rfs_command_layout;
extern const struct rfs_command rfs_command_ranks;
extern const struct rfs_command rfs_command_stats;
extern const struct rfs_command rfs_command_strategy;
extern const struct rfs_command rfs_command_verify;

#endif
