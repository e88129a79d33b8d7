/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of `reshard`, each defined in the folder of its name and listed in main.c, which
 * reads the command line into a request, runs the command, and says how it ended.
 */
#pragma once

#include "tool/common/args.h"

struct rfs_command {
    const char *name;
    const char *usage; /* the forms of the command, a line each: "reshard info [--json] PATH\n" */
    /* the line in the list of commands, without the name: "shows what …" */
    const char *summary;
    const struct rfs_argument *arguments; /* rows, to a row of zeros */
    const char *after;                    /* the end of --help; NULL: nothing */
    size_t request_bytes;                 /* the members of its arguments, and whatever it likes */
    const void *defaults;                 /* defaults of the request; NULL: zeros */
    int trouble;                          /* exit status of any failure; 0: the usual one */
    /* Takes the word before all arguments; or NULL. Returns 0, or -errno with *err filled. */
    int (*take_word)(void *request, const char *word, struct rfs_error *err);
    /*
     * Runs the command. Returns the exit status, or -errno with *err filled. The lists of the
     * arguments are not its to free.
     */
    int (*run)(void *request, struct rfs_error *err);
};

extern const struct rfs_command rfs_command_convert;
extern const struct rfs_command rfs_command_diff;
extern const struct rfs_command rfs_command_example;
extern const struct rfs_command rfs_command_explain;
extern const struct rfs_command rfs_command_export;
extern const struct rfs_command rfs_command_get;
extern const struct rfs_command rfs_command_info;
extern const struct rfs_command rfs_command_mounts;
extern const struct rfs_command rfs_command_ranks;
extern const struct rfs_command rfs_command_stats;
extern const struct rfs_command rfs_command_strategy;
extern const struct rfs_command rfs_command_suggest;
extern const struct rfs_command rfs_command_verify;
