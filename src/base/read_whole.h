/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, read whole: strategies, maps, manifests. */
#pragma once

#include "base/error.h"

/*
 * The bytes of the regular file at PATH, malloc'ed, with a NUL behind them that *SIZE does not
 * count. 0, or -errno with *err filled: -EFBIG when it has more than LIMIT bytes, -EISDIR, -EINVAL
 * when it is no file, -ESTALE when it changes meanwhile, -EINTR when the caller's work was given
 * up.
 */
int rfs_read_whole(const char *path, size_t limit, char **data, size_t *size,
                   struct rfs_error *err);
/*
 * The same of a file that is open as FD; messages name PATH. -errno in place of a descriptor is
 * what opening it gave.
 */
int rfs_read_whole_fd(int fd, const char *path, size_t limit, char **data, size_t *size,
                      struct rfs_error *err);
