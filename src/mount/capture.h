/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libfuse and fusermount3 print while they mount, caught, so that a failure is told once and
 * in our form. Only while the process has one thread.
 */
#ifndef RFS_MOUNT_CAPTURE_H
#define RFS_MOUNT_CAPTURE_H

#include <stddef.h>

struct rfs_capture {
    int saved; /* the real stderr */
    int file;  /* in memory */
};

/* Where it cannot be caught, output goes to stderr as ever. */
void rfs_capture_start(struct rfs_capture *capture);
/*
 * Ends it and gives the first line that was printed, without the name of the program; "" for none.
 */
void rfs_capture_end(struct rfs_capture *capture, char *line, size_t cap);

#endif
