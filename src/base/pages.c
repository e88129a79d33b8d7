/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include "base/secret.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

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

void rfs_pages_free(void *at, size_t bytes)
{
    if (!at)
        return;
    wipe(at, bytes);
    munmap(at, bytes > 0 ? bytes : 1);
}
