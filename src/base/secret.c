/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <sys/mman.h>

void rfs_wipe(void *at, size_t bytes)
{
    if (bytes > 0)
        explicit_bzero(at, bytes);
}

bool rfs_secret_guard(struct rfs_secret *secret, void *at, size_t bytes)
{
    madvise(at, bytes, MADV_DONTDUMP); /* advice: it fails only for unmapped pages */
    if (mlock(at, bytes) == 0)
        return true;
    const int code = errno;
    if (!atomic_exchange(&secret->logged, true))
        rfs_log(secret->log, RFS_WARNING,
                "decrypted content cannot all be kept from the swap: locking %zu bytes: %s; try: a "
                "higher limit of locked memory (ulimit -l, or LimitMEMLOCK= of systemd)",
                bytes, strerror(code));
    return false;
}

void rfs_secret_release(void *at, size_t bytes)
{
    rfs_wipe(at, bytes);
    munlock(at, bytes);
}

void *rfs_secret_map(struct rfs_secret *secret, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_HUGEPAGE); /* where it is long enough; advice, too */
    rfs_secret_guard(secret, at, bytes);
    return at;
}

void rfs_secret_unmap(void *at, size_t bytes)
{
    if (!at)
        return;
    rfs_wipe(at, bytes);
    munmap(at, bytes);
}
