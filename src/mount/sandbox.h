/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server gives up rights, so that the author of a file gains little by a mistake in a parser.
 * It does so in two steps, because maps and links must be read to find all sources.
 *
 *     rfs_sandbox_enter   before any file of the source is read: new privileges, capabilities,
 *                         limits, system calls
 *     rfs_sandbox_close   before the mount can be read: files, by Landlock
 *
 * A part that the kernel or the build lacks is left out, with a line in the log; with
 * RFS_SANDBOX_ON it is an error. Call both before any thread starts: only new threads inherit the
 * sandbox of their creator.
 */
#pragma once

#include "base/error.h"
#include "mount/mount_options.h"
#include "reshard.h"

enum rfs_sandbox_filter {
    RFS_FILTER_NONE,
    RFS_FILTER_LOG,  /* the kernel logs system calls that are not allowed */
    RFS_FILTER_KILL, /* the kernel ends a process that makes one */
};

/* The parts in effect, or possible. Zero-initialise. */
struct rfs_sandbox {
    bool entered;    /* no new privileges */
    bool few_rights; /* no capabilities but those that reading takes */
    uint64_t kept;   /* the capabilities that are left: bit N is number N */
    enum rfs_sandbox_filter filter;
    int landlock; /* version of Landlock; 0: none */
    bool network; /* connections may be made */
};

/*
 * Takes the first step. NETWORK: a source is in object storage, so that connections may be made. 0,
 * or -errno with *err filled.
 */
int rfs_sandbox_enter(enum rfs_sandbox_mode mode, bool network, struct rfs_sandbox *out,
                      struct rfs_error *err);
/* Takes the second step, for the files of VIEW; logs the parts in effect. 0 or -errno. */
int rfs_sandbox_close(enum rfs_sandbox_mode mode, reshard_view *view, struct rfs_sandbox *out,
                      struct rfs_error *err);
/*
 * Gives up, in the keeper of root once it has mounted, all capabilities but that of unmounting, and
 * all system calls that it makes no more. The keeper of an ordinary user runs fusermount3, with the
 * rights of that. 0, or -errno with *err filled.
 */
int rfs_sandbox_enter_keeper(enum rfs_sandbox_mode mode, struct rfs_error *err);
/* Finds the parts that this build and this kernel have; nothing is given up. */
void rfs_sandbox_look(struct rfs_sandbox *out);
/* Writes "no new privileges, no capabilities, ...", or "off". */
void rfs_sandbox_describe(const struct rfs_sandbox *sandbox, char *out, size_t cap);
