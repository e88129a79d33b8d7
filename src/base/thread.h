/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts threads: with a stack of one size, whatever the shell's limit is (ulimit -s), and without
 * signals, which are for the program's own threads.
 */
#pragma once

#include "base/std.h"

#include <pthread.h>

/*
 * The stack of a thread, in bytes. Calls that do not recurse take up to 64 KiB; those that do
 * follow documents and expressions, whose depths are bounded.
 */
#define RFS_THREAD_STACK ((size_t)1 << 20)

/*
 * Keeps the large frame of a function apart from that of its caller, which goes on to call others.
 */
#define RFS_APART __attribute__((noinline))

/* Starts a thread that runs fn(arg). 0 or an errno, as pthread_create. */
int rfs_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg);
