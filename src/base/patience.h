/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a line on a terminal while a program waits for object storage. It uses SIGALRM, and is for
 * programs with one thread.
 */
#pragma once

/*
 * Prints "PROGRAM: waiting for URL" after two seconds, once, unless rfs_patience_end comes before,
 * or the standard error is no terminal.
 */
void rfs_patience_begin(const char *program, const char *url);
/* Ends the wait. Does nothing where none has begun. */
void rfs_patience_end(void);
