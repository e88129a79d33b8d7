/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The failure of several threads that work for one caller: that of the lowest call which failed, so
 * it is the same each time, whichever thread was faster. rfs_pool_for makes calls in ascending
 * order, and each that it makes ends.
 *
 *     struct rfs_first_error first = RFS_FIRST_ERROR;
 *     rc = rfs_first_error_take(&first, rfs_pool_for(pool, n, job, &ctx), err);
 */
#pragma once

#include "base/error.h"

#include <pthread.h>

struct rfs_first_error {
    pthread_mutex_t lock; /* a leaf lock, for the rest */
    int code;             /* 0: there is no failure so far */
    size_t at;            /* number of the call that has failed */
    struct rfs_error err;
};
#define RFS_FIRST_ERROR                                                                            \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* Notes that call I has failed with CODE (0: it has not). Returns CODE. From any thread. */
static inline int rfs_first_error_note(struct rfs_first_error *first, size_t i, int code,
                                       const struct rfs_error *err)
{
    if (code == 0)
        return 0;
    pthread_mutex_lock(&first->lock);
    if (first->code == 0 || i < first->at) {
        first->code = code;
        first->at = i;
        first->err = *err;
    }
    pthread_mutex_unlock(&first->lock);
    return code;
}

/*
 * Returns the first failure with *err, which may be NULL, once all threads have ended and their
 * loop gave CODE; CODE where it is 0, or no thread has failed.
 */
static inline int rfs_first_error_take(const struct rfs_first_error *first, int code,
                                       struct rfs_error *err)
{
    if (code == 0 || first->code == 0)
        return code;
    if (err)
        *err = first->err;
    return first->code;
}
