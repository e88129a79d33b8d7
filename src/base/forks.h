/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks of the whole process, and forks. A child has only the thread that forked: a lock that
 * another one held would never be given back there, and what it guards may be half changed. So the
 * thread that forks takes all of these locks first, and gives them back in both processes. They
 * are leaf locks, so their order does not matter; nothing under them may fork.
 *
 *     static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
 *
 *     static void begin_anew(void)
 *     {
 *         ... forgets, in the child, what threads of the parent wait for or have taken ...
 *     }
 *
 *     RFS_FORKS_WITH(lock, begin_anew)
 *
 * Conditions must be made anew: they count the threads of the parent that wait, and a broadcast may
 * wait for these.
 */
#pragma once

#include <pthread.h>

/* Defines what a fork does with a lock, from the time on at which the library is loaded. */
#define RFS_FORKS_WITH(lock, begin_anew)                                                           \
    static void forks_take(void)                                                                   \
    {                                                                                              \
        pthread_mutex_lock(&(lock));                                                               \
    }                                                                                              \
    static void forks_give(void)                                                                   \
    {                                                                                              \
        pthread_mutex_unlock(&(lock));                                                             \
    }                                                                                              \
    static void forks_begin(void)                                                                  \
    {                                                                                              \
        begin_anew();                                                                              \
        pthread_mutex_unlock(&(lock));                                                             \
    }                                                                                              \
    __attribute__((constructor)) static void forks_register(void)                                  \
    {                                                                                              \
        /* It fails only without memory, which a program that is loaded has. */                    \
        (void)pthread_atfork(forks_take, forks_give, forks_begin);                                 \
    }

/* For a lock whose data are right in a child, too. */
static inline void rfs_forks_nothing(void)
{
}
