/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line, as a user types it and as mount(8) passes it: reshardfs SRC MNT -o a,b=c,…
 *
 * Options come from there, the environment and a file (settings.h); which there are, base/options.h
 * says.
 */
#pragma once

#include "base/options.h"

#define RFS_PROGRAM_HELP "reshardfs --help"

enum rfs_action {
    RFS_ACTION_MOUNT,
    RFS_ACTION_CHECK,
    RFS_ACTION_HELP,
    RFS_ACTION_HELP_ALL,
    RFS_ACTION_VERSION,
};

struct rfs_mount_options {
    enum rfs_action action;
    bool foreground;
    bool single;      /* one thread answers all requests */
    char *source;     /* absolute once rfs_mount_options_parse is done, where it exists */
    char *mountpoint; /* as given; NULL only for --check */
    struct rfs_options set;
    struct rfs_settings view; /* the view's among them, for reshard_open; paths absolute */
};

/* 0, or -errno with *err filled. Free *out in either case. */
int rfs_mount_options_parse(int argc, char **argv, struct rfs_mount_options *out,
                            struct rfs_error *err);
void rfs_mount_options_free(struct rfs_mount_options *options);

/* The names of the options, on a screen of 80 columns; and each with an explanation. */
void rfs_mount_options_help(void);
void rfs_mount_options_help_all(void);

/* Whether the source, or a file that an option names, is in object storage. */
bool rfs_mount_options_objects(const struct rfs_mount_options *options);
