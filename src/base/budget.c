/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/forks.h"

int rfs_budget_take(struct rfs_budget *budget, uint64_t bytes, const char *file,
                    struct rfs_error *err)
{
    if (bytes > rfs_budget_rest(budget))
        return rfs_budget_fail(budget, file, err);
    budget->used += bytes;
    return 0;
}

int rfs_budget_fail(const struct rfs_budget *budget, const char *file, struct rfs_error *err)
{
    return rfs_fail(err, -EFBIG, RFS_IN(file), "a larger -o cache=: a quarter of it is the limit",
                    "the description of its tensors would take more than %" PRIu64
                    " bytes of memory",
                    budget->most);
}

/* The shares of all threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf lock; guards the rest */
static pthread_cond_t given;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* makes GIVEN */
static size_t used;

static void make_given(void)
{
    rfs_cancel_init_cond(&given);
}

/* Forgets the shares of threads that a child lacks. */
static void begin_anew(void)
{
    used = 0;
    make_given();
}

RFS_FORKS_WITH(lock, begin_anew)

int rfs_budget_share_take(size_t *share, size_t bytes)
{
    int rc = 0;

    pthread_once(&once, make_given);
    pthread_mutex_lock(&lock);
    while (rc == 0 && used > 0 &&
           (bytes > RFS_BUDGET_SHARE_BYTES || used > RFS_BUDGET_SHARE_BYTES - bytes))
        rc = rfs_cancel_wait(&given, &lock);
    if (rc == 0) {
        *share = bytes;
        used += bytes; /* one that is larger, or a sum that is not: no overflow */
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void rfs_budget_share_give(size_t *share)
{
    if (*share == 0)
        return;
    pthread_mutex_lock(&lock);
    used -= (size_t)rfs_min_u64(used, *share); /* one from before a fork is not counted */
    *share = 0;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}
