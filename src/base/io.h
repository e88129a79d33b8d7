/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes of descriptors that go on after a signal and after a part; and files that are
 * there whole or not at all: written under another name, brought to the disk, renamed. And bytes
 * that are read at any place, wherever they are.
 */
#pragma once

#include "base/std.h"

#include <sys/types.h>

/* Reads N whole bytes from OFFSET. Returns 0, or -errno, which its caller passes on. */
typedef int rfs_read_fn(void *ctx, void *buf, size_t n, uint64_t offset);

/* A file, or a part of one that stands for a file. All is borrowed for a call. */
struct rfs_bytes_source {
    rfs_read_fn *read;
    void *ctx;
    uint64_t size;
    const char *file; /* its name in messages; NULL where none is made */
};

static inline int rfs_bytes_source_read(const struct rfs_bytes_source *from, void *buf, size_t n,
                                        uint64_t offset)
{
    return from->read(from->ctx, buf, n, offset);
}

/* Makes a pointer to a source that is there until the end of the block. */
#define RFS_BYTES_SOURCE(read, ctx, size, file)                                                    \
    (&(const struct rfs_bytes_source){(read), (ctx), (size), (file)})

/* Reads all of N bytes at OFFSET. 0, -errno, or -ENODATA when the file ends before. */
int rfs_io_pread_all(int fd, void *buf, size_t n, uint64_t offset);

/* Reads N bytes, or fewer at the end: their number, or -errno. */
ssize_t rfs_io_read_most(int fd, void *buf, size_t n);

/* Writes all of SIZE bytes, from where FD is. 0 or -errno. */
int rfs_io_write_all(int fd, const void *data, size_t size);

/*
 * Gives the file FROM in FOLDER (AT_FDCWD: paths) the name TO. Unless REPLACE, an existing file is
 * kept (-EEXIST), as far as the file system supports that. 0 or -errno.
 */
int rfs_io_rename(int folder, const char *from, const char *to, bool replace);

/*
 * Makes a new file beside PATH, with the permissions that the process gives to new files, which is
 * to get that name: *NAME (owned) and *FD. FINISH brings it to the disk and renames it. DROP, in
 * any case, closes it and removes a file that has not got its name. 0 or -errno.
 */
int rfs_io_temporary_open(const char *path, char **name, int *fd);
int rfs_io_temporary_finish(char **name, int *fd, const char *path, bool replace);
void rfs_io_temporary_drop(char **name, int *fd);

/*
 * Writes PATH, with the permissions that the process gives to new files. 0, or -errno with *what
 * "cannot create" or "cannot write", and nothing is left behind.
 */
int rfs_io_write_whole(const char *path, const void *data, size_t size, bool replace,
                       const char **what);
