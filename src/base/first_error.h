/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first failure of several threads that work for one caller. Its text and its code stay
 * together: rfs_pool_for may return the code of another failure.
 *
 *     struct rfs_first_error first = RFS_FIRST_ERROR;
 *     rc = rfs_first_error_take(&first, rfs_pool_for(pool, n, job, &ctx), err);
 */
#pragma once

#include "base/error.h"

#include <pthread.h>

struct rfs_first_error {
    pthread_mutex_t lock; /* a leaf lock, for the rest */
    int code;             /* the first failure; 0: none so far */
    struct rfs_error err;
};
#define RFS_FIRST_ERROR                                                                            \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* Notes that a thread has failed with CODE (0: it has not). Returns CODE. From any thread. */
static inline int rfs_first_error_note(struct rfs_first_error *first, int code,
                                       const struct rfs_error *err)
{
    if (code == 0)
        return 0;
    pthread_mutex_lock(&first->lock);
    if (first->code == 0) {
        first->code = code;
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
