/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that end a command which has something to clean up first: SIGINT, SIGTERM and SIGHUP.
 * There is one state for the whole process, because a signal handler has nothing else to know it
 * by.
 */
#pragma once

#include "base/std.h"

/*
 * From now on they are only noted. A second one of a kind ends the process; an ignored one stays
 * so.
 */
void rfs_stop_catch(void);

/* The signal that asked to stop, or 0. Any thread. */
int rfs_stopped(void);

/* A byte is written to FD then, which is not blocking; -1: none. */
void rfs_stop_wake(int fd);

/*
 * Ends the process as if nobody had caught the signal, for processes that wait for it. Does nothing
 * before one came.
 */
void rfs_stop_end(void);
