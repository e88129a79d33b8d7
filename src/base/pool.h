/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads, started at the first use (so that a process may fork before), joined at the end.
 * The queue's lock is a leaf lock.
 *
 * Besides the threads that it was made with, for work that computes, a pool starts up to
 * RFS_POOL_WAITERS more for work that waits for storage: those sleep most of the time.
 */
#pragma once

#include "base/cancel.h"

struct rfs_pool;

#define RFS_POOL_WAITERS 64u

/* Makes a pool; with 0 THREADS it never has one. NULL when out of memory. */
struct rfs_pool *rfs_pool_new(unsigned threads);
/*
 * Announces, before the first use, that calls of rfs_pool_for wait for storage that is far away:
 * all threads that the pool may have join from the first call on, rather than one for each that
 * waited.
 */
void rfs_pool_expect_waits(struct rfs_pool *pool);
bool rfs_pool_expects_waits(const struct rfs_pool *pool);
/* Runs the queued jobs, then joins the threads. */
void rfs_pool_free(struct rfs_pool *pool);

/*
 * Holds a pool: no job is queued until it is let go, so no thread is started, and rfs_pool_for does
 * all in its caller's thread. For its owner, while no other thread uses it.
 */
void rfs_pool_hold(struct rfs_pool *pool, bool held);

/*
 * Returns what the pool's threads work for, unless they help a caller of rfs_pool_for: it is
 * cancelled once the pool's work is not wanted any more. Lives as long as the pool.
 */
struct rfs_cancel *rfs_pool_cancel(struct rfs_pool *pool);

/*
 * Queues fn(arg). False (and nothing queued) when LIMIT jobs already wait, when no thread could
 * be started, or when it is held; the caller keeps arg then.
 */
bool rfs_pool_submit(struct rfs_pool *pool, void (*fn)(void *arg), void *arg, size_t limit);

/*
 * Queues fn(arg), which waits rather than computes: it gets a thread of its own. False also when
 * there are RFS_POOL_WAITERS such jobs already.
 */
bool rfs_pool_submit_waiting(struct rfs_pool *pool, void (*fn)(void *arg), void *arg);

/*
 * Calls fn(ctx, i) for i in [0, n) from the workers and from the caller, or with POOL NULL from the
 * caller alone: calls begin in ascending order, and it returns when all are done. Where calls turn
 * out to wait (for storage, by the thread's voluntary context switches), more threads join, one for
 * each call that waited, up to RFS_POOL_WAITERS. Safe to call from a worker (the caller does the
 * work then, if no other thread helps). Stops handing out indices once fn returns non-zero; returns
 * what it returned for the lowest such index, else 0. Calls work for the caller's struct rfs_cancel
 * (cancel.h); once that is cancelled no index is handed out any more, and it returns -EINTR.
 */
int rfs_pool_for(struct rfs_pool *pool, size_t n, int (*fn)(void *ctx, size_t i), void *ctx);
