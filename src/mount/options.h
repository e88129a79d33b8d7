/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line, as a user types it and as mount(8) passes it: reshardfs SRC MNT -o a,b=c,…
 *
 * Options (settings.h says where they come from, known.h which there are) are of three kinds: the mount's own, taken
 * out here; the view's, passed on in one string; and those that mount(8) adds or that mean something to it alone,
 * accepted and forgotten.
 */
#ifndef RFS_MOUNT_OPTIONS_H
#define RFS_MOUNT_OPTIONS_H

#include "base/error.h"
#include "reshard.h"

#include <stdbool.h>

enum rfs_io {
    RFS_IO_AUTO,   /* what suits the readers of each kind of file */
    RFS_IO_DIRECT, /* past the page cache */
    RFS_IO_CACHED, /* through the page cache */
};

/* The hidden folder .reshardfs. */
enum rfs_control {
    RFS_CONTROL_HIDE, /* found by name, not listed */
    RFS_CONTROL_SHOW, /* listed, too */
    RFS_CONTROL_NO,   /* not there, nor are extended attributes */
};

/* What the server gives up: sandbox.h. */
enum rfs_sandbox_mode {
    RFS_SANDBOX_AUTO, /* what can be had */
    RFS_SANDBOX_ON,   /* all of it, or no mount */
    RFS_SANDBOX_LOG, /* system calls are not refused, but told of in the kernel's log; files are not looked at */
    RFS_SANDBOX_OFF,
};

/* What is done where the option is not given: builds for tests look at what the sandbox would hide. */
#ifdef SANDBOX_OFF
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_OFF
#else
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_AUTO
#endif

enum rfs_action { RFS_ACTION_MOUNT, RFS_ACTION_CHECK, RFS_ACTION_HELP, RFS_ACTION_VERSION };

struct rfs_mount_options {
    enum rfs_action action;
    bool foreground;
    bool debug;
    bool single;      /* one thread answers all requests */
    char *source;     /* absolute once rfs_mount_options_parse is done, where it exists */
    char *mountpoint; /* as given; NULL only for --check */
    char *view;       /* "key=value,…" for reshard_open, paths in it absolute; NULL: none */

    enum rfs_io io;
    enum rfs_control control;
    enum rfs_sandbox_mode sandbox;
    bool nonempty;
    bool allow_other;
    bool allow_root;
    bool allow_decrypted; /* asks a second time for one of those, with a key */
    bool keyed;           /* the view is given a key */
    bool default_permissions;
    bool auto_unmount;
    bool noexec;
    unsigned max_threads;
    char *fsname;                 /* NULL: the source's path */
    char *subtype;                /* NULL: the program's name */
    enum reshard_level log_level; /* what is less urgent is dropped */
    bool writable;                /* rw was asked for */
};

/* 0, or -errno with *err filled. Free *out in either case. */
int rfs_mount_options_parse(int argc, char **argv, struct rfs_mount_options *out,
                            struct rfs_error *err);
void rfs_mount_options_free(struct rfs_mount_options *options);

void rfs_mount_options_help(void);

#endif
