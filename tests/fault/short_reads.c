/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded: read, pread and preadv of regular files give fewer bytes than were asked for, as
 * signals, network file systems and nearly full pipes make them, and every third time EINTR
 * instead. tests/fault/run builds it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define TAKES_PART __attribute__((visibility("default")))

/* How many of N bytes this call may have; 0: none, it is interrupted. */
static size_t allowed(int fd, size_t n)
{
    static atomic_uint calls;
    struct stat st;

    if (n < 2 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return n;
    const unsigned call = atomic_fetch_add(&calls, 1);
    const size_t most = 1 + call * 7919u % 5000u;
    if (call % 3 == 2)
        return 0;
    return n < most ? (n + 1) / 2 : most;
}

TAKES_PART ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    const size_t part = allowed(fd, n);

    if (n > 0 && part == 0) {
        errno = EINTR;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    return real(fd, buf, part, offset);
}

TAKES_PART ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return pread64(fd, buf, n, offset);
}

TAKES_PART ssize_t read(int fd, void *buf, size_t n)
{
    static ssize_t (*real)(int, void *, size_t);
    const size_t part = allowed(fd, n);

    if (n > 0 && part == 0) {
        errno = EINTR;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "read");
    return real(fd, buf, part);
}

/* What the compiler makes of read and pread where it knows how long the buffer is. */
TAKES_PART ssize_t __read_chk(int fd, void *buf, size_t n, size_t known);
TAKES_PART ssize_t __read_chk(int fd, void *buf, size_t n, size_t known)
{
    (void)known;
    return read(fd, buf, n);
}

TAKES_PART ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t known);
TAKES_PART ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t known)
{
    (void)known;
    return pread64(fd, buf, n, offset);
}

TAKES_PART ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t offset, size_t known);
TAKES_PART ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t offset, size_t known)
{
    return __pread_chk(fd, buf, n, offset, known);
}

/* The first spans that are wholly allowed, or the beginning of the first. */
TAKES_PART ssize_t preadv64(int fd, const struct iovec *spans, int count, off_t offset)
{
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    size_t wanted = 0;
    int whole = 0;

    for (int i = 0; i < count; i++)
        wanted += spans[i].iov_len;
    size_t left = allowed(fd, wanted);
    if (wanted > 0 && left == 0) {
        errno = EINTR;
        return -1;
    }
    while (whole < count && spans[whole].iov_len <= left)
        left -= spans[whole++].iov_len;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "preadv64");
    const struct iovec first = {spans[0].iov_base, left};
    return whole > 0 ? real(fd, spans, whole, offset) : real(fd, &first, 1, offset);
}

TAKES_PART ssize_t preadv(int fd, const struct iovec *spans, int count, off_t offset)
{
    return preadv64(fd, spans, count, offset);
}
