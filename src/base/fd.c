/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <unistd.h>

int rfs_pread_all(int fd, void *buf, size_t n, uint64_t offset)
{
    for (char *to = buf; n > 0;) {
        const ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        to += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

ssize_t rfs_read_most(int fd, void *buf, size_t n)
{
    size_t done = 0;

    while (done < n) {
        const ssize_t got = read(fd, (char *)buf + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int rfs_write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        const ssize_t n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            return -errno;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}
