/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads work, as programs of many threads do. */
#pragma once

#include "base/std.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ /* its own allocator is not in order in children of threads */
#define FORKING_THREADS 0
#else
#define FORKING_THREADS 4
#endif

enum { FORKING_CHILDREN = 200, FORKING_SECONDS = 20 };

static pid_t forking_parent; /* of the children */

struct forking {
    bool (*work)(void *ctx); /* false: something was wrong */
    void *ctx;
    atomic_bool stop, wrong;
};

static inline void *forking_work(void *arg)
{
    struct forking *forking = arg;

    while (!atomic_load(&forking->stop))
        if (!forking->work(forking->ctx))
            atomic_store(&forking->wrong, true);
    return NULL;
}

/* Has many children work, too, while threads of the parent do. An alarm ends one that hangs. */
static inline void forking_test(bool (*work)(void *ctx), void *ctx)
{
    struct forking forking = {.work = work, .ctx = ctx};
    pthread_t threads[FORKING_THREADS + 1];
    int n_wrong = 0;

    forking_parent = getpid();
    for (int i = 0; i < FORKING_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, forking_work, &forking), 0);
    for (int i = 0; i < FORKING_CHILDREN && n_wrong == 0; i++) {
        int status;
        const pid_t child = fork();
        if (child == 0) {
            alarm(FORKING_SECONDS);
            _exit(work(ctx) && work(ctx) ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0)
            print_message("child %d of %d: status %#x\n", i, FORKING_CHILDREN, status);
        n_wrong += status != 0;
    }
    atomic_store(&forking.stop, true);
    for (int i = 0; i < FORKING_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_wrong, 0);
    assert_false(atomic_load(&forking.wrong));
}
