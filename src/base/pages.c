/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include "base/secret.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* For an older C library. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define EXPECT_PAGES 8 /* fewer are not worth the calls */

static atomic_bool wipes;

void rfs_pages_wipe_all(void)
{
    atomic_store(&wipes, true);
}

/*
 * Returns whether the system's huge pages, each as much as one page of addresses maps, have
 * RFS_HUGE_PAGE bytes or fewer. With pages of 64 KiB they have 512 MiB: a byte would cost as much.
 */
static bool has_small_huge_pages(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return page * (page / sizeof(uint64_t)) <= RFS_HUGE_PAGE;
}

void *rfs_pages_alloc(size_t bytes)
{
    void *at = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    /* Both are advice. A core dump is for our own state, not for the checkpoint's content. */
    madvise(at, bytes, MADV_DONTDUMP);
    if (bytes >= RFS_HUGE_PAGE && has_small_huge_pages())
        madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static void wipe(void *at, size_t bytes)
{
    if (atomic_load(&wipes))
        rfs_secret_wipe(at, bytes);
}

void rfs_pages_release(void *at, size_t bytes)
{
    wipe(at, bytes);
    madvise(at, bytes, MADV_DONTNEED);
}

/* Says whether the page at that address is not there yet. */
static bool is_absent(uintptr_t at, size_t page)
{
    unsigned char there = 1;

    return mincore((void *)at, page, &there) == 0 && !(there & 1);
}

void rfs_pages_expect(void *at, size_t bytes)
{
    static atomic_bool refused;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)at + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)at + bytes) / page * page;

    if (end < begin + EXPECT_PAGES * page || atomic_load(&refused) || !is_absent(begin, page) ||
        !is_absent(begin + (end - begin) / page / 2 * page, page) || !is_absent(end - page, page))
        return;
    /* Pages that are there already would cost half as much as reading into them. */
    if (madvise((void *)begin, end - begin, MADV_POPULATE_WRITE) && errno == EINVAL)
        atomic_store(&refused, true);
}

void rfs_pages_free(void *at, size_t bytes)
{
    if (!at)
        return;
    wipe(at, bytes);
    munmap(at, bytes > 0 ? bytes : 1);
}
