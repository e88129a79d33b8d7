/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a mount: from the command line, as a user types it and as mount(8) passes it, from the
 * environment, and from a file. base/options.h says which there are.
 *
 *     reshardfs SRC MNT -o cache=2G,strict      a comma inside a value is "\,", a backslash before
 *                                               either "\\"
 *
 *     RESHARDFS_CACHE=2G RESHARDFS_STRICT=yes   the name in capitals; a switch is yes, true, on or
 *                                               1, or left alone by no, false, off, 0 or an empty
 *                                               value
 *
 *     # a file: of lines
 *     [reshardfs]                               may be left out; no other section
 *     cache = 2G                                blanks around name and value don't count, nor do
 *     prefix = "my "                            one pair of double quotes around the value
 *     strict                                    or strict = yes, as in the environment
 *
 *     {"cache": "2G", "strict": true}           or of JSON: texts, whole numbers up to 2^53, true
 *                                               and false; a list of texts for options with several
 *                                               paths
 *
 * Paths in a file are looked for from the folder of the file. Not thread-safe.
 */
#pragma once

#include "base/options.h"

#define RFS_PROGRAM_HELP "reshardfs --help"
#define RFS_MOUNT_OPTIONS_FILE_BYTES ((size_t)1 << 20)  /* larger files are refused */
#define RFS_MOUNT_OPTIONS_TREE_BYTES ((size_t)16 << 20) /* memory that JSON may take */

enum rfs_action {
    RFS_ACTION_MOUNT,
    RFS_ACTION_CHECK,
    RFS_ACTION_UNMOUNT,
    RFS_ACTION_HELP,
    RFS_ACTION_HELP_ALL,
    RFS_ACTION_VERSION,
};

struct rfs_mount_options {
    enum rfs_action action;
    bool foreground;
    bool single;              /* one thread answers all requests */
    char *source;             /* the source; absolute where it exists */
    char *mountpoint;         /* the mount point as given; NULL only for --check */
    const char *fd_socket;    /* the socket that the mount's descriptor comes over; or NULL */
    struct rfs_options set;   /* values of all options */
    struct rfs_settings view; /* options of the view, for reshard_open; paths absolute */
    bool objects;             /* the source, or a file of an option, is in object storage */
};

/*
 * Reads the command line, the environment and the file. 0, or -errno with *err filled. Free *out.
 */
int rfs_mount_options_parse(int argc, char **argv, struct rfs_mount_options *out,
                            struct rfs_error *err);
void rfs_mount_options_free(struct rfs_mount_options *options);

/* Prints the names of the options, for 80 columns; ALL: each with an explanation. */
void rfs_mount_options_help(bool all);

/*
 * Adds the settings of ENVIRONMENT (a list of "NAME=value" that ends with NULL). 0 or -ENOMEM.
 * Other files than mount_options.c call it for tests alone.
 */
int rfs_mount_options_add_environment(struct rfs_settings *settings, char *const *environment);
/*
 * Adds the settings of a file. 0, or -errno with *err filled. Other files than mount_options.c call
 * it for tests alone.
 */
int rfs_mount_options_add_file(struct rfs_settings *settings, const char *path,
                               struct rfs_error *err);
