/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line for a user at a terminal who waits for object storage. It is for programs that have one
 * thread, and uses SIGALRM.
 */
#pragma once

/*
 * Prints "PROGRAM: waiting for URL" after two seconds, once, unless rfs_patience_end comes before,
 * or the standard error is no terminal.
 */
void rfs_patience_begin(const char *program, const char *url);
/* Ends the wait. Does nothing where none has begun. */
void rfs_patience_end(void);
