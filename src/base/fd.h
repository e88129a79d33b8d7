/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of descriptors that go on after a signal and after a part. */
#pragma once

#include "base/std.h"

#include <sys/types.h>

/* All of N bytes at OFFSET. 0, -errno, or -ENODATA when the file ends before. */
int rfs_pread_all(int fd, void *buf, size_t n, uint64_t offset);

/* Reads N bytes, or fewer at the end: their number, or -errno. */
ssize_t rfs_read_most(int fd, void *buf, size_t n);

/* All of SIZE bytes, from where FD is. 0 or -errno. */
int rfs_write_all(int fd, const void *data, size_t size);
