/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded: the RFS_FAIL_AT-th call of a kind fails, and writes a byte to RFS_FAIL_MARK;
 * RFS_FAIL_KIND names the kind. Calls are counted from the start of main, as what runs before it is
 * not the program's own.
 *
 *     malloc   also calloc, realloc, posix_memalign and aligned_alloc: ENOMEM
 *     read     also pread and preadv, of regular files: EIO
 *     open     also openat and openat2, for reading: EMFILE
 *
 * With RFS_FAIL_AT 0 nothing fails, and the number of calls is written to RFS_FAIL_MARK at the end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define TAKES_PART __attribute__((visibility("default")))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static enum { NONE, MALLOC, READ, OPEN } kind;
static long at;
static atomic_long calls;
static int mark = -1;

static void tell(const char *text, size_t n)
{
    const ssize_t written = syscall(SYS_write, mark, text, n);
    (void)written;
}

static void at_end(void)
{
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld", atomic_load(&calls));

    if (at == 0)
        tell(text, (size_t)n);
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("RFS_FAIL_KIND");
    const char *number = getenv("RFS_FAIL_AT");
    const char *path = getenv("RFS_FAIL_MARK");

    if (!name || !number || !path)
        return;
    mark =
        (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* Out of the way of programs that count their descriptors, or close the first ones. */
    if (mark >= 0 && mark < 100)
        mark = fcntl(mark, F_DUPFD_CLOEXEC, 100);
    at = atol(number);
    unsetenv("LD_PRELOAD");
    atexit(at_end);
    kind = strcmp(name, "malloc") == 0 ? MALLOC : strcmp(name, "read") == 0 ? READ : OPEN;
}

static bool fails(int which, int error)
{
    if (kind != (typeof(kind))which || atomic_fetch_add(&calls, 1) + 1 != at)
        return false;
    tell("x", 1);
    errno = error;
    return true;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

TAKES_PART void *malloc(size_t size)
{
    return fails(MALLOC, ENOMEM) ? NULL : __libc_malloc(size);
}

TAKES_PART void *calloc(size_t n, size_t size)
{
    return fails(MALLOC, ENOMEM) ? NULL : __libc_calloc(n, size);
}

TAKES_PART void *realloc(void *old, size_t size)
{
    return fails(MALLOC, ENOMEM) ? NULL : __libc_realloc(old, size);
}

TAKES_PART void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(MALLOC, ENOMEM) ? NULL : __libc_memalign(alignment, size);
}

TAKES_PART int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails(MALLOC, ENOMEM))
        return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}

static bool is_regular(int fd)
{
    struct stat st;

    return kind == READ && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

TAKES_PART ssize_t read(int fd, void *buf, size_t n)
{
    return is_regular(fd) && fails(READ, EIO) ? -1 : syscall(SYS_read, fd, buf, n);
}

TAKES_PART ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    return is_regular(fd) && fails(READ, EIO) ? -1 : syscall(SYS_pread64, fd, buf, n, offset);
}

TAKES_PART ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return pread64(fd, buf, n, offset);
}

TAKES_PART ssize_t preadv64(int fd, const struct iovec *spans, int count, off_t offset)
{
    return is_regular(fd) && fails(READ, EIO)
               ? -1
               : syscall(SYS_preadv, fd, spans, (long)count, offset, 0L);
}

TAKES_PART ssize_t preadv(int fd, const struct iovec *spans, int count, off_t offset)
{
    return preadv64(fd, spans, count, offset);
}

static bool open_fails(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && fails(OPEN, EMFILE);
}

TAKES_PART int openat64(int dir, const char *path, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_fails(flags) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

TAKES_PART int open64(const char *path, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return openat64(AT_FDCWD, path, flags, mode);
}

TAKES_PART int open(const char *path, int flags, ...) __attribute__((alias("open64")));
TAKES_PART int openat(int dir, const char *path, int flags, ...) __attribute__((alias("openat64")));

/* openat2 has no function of its own in libc. */
TAKES_PART long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (!real)
        *(void **)&real = next("syscall");
    if (number == SYS_openat2 && fails(OPEN, EMFILE))
        return -1;
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
