/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder in memory for targets of functions that read files themselves. It is made at the first
 * call and removed when the process ends; after a crash it stays, as what the crash was about. Not
 * thread-safe.
 */
#ifndef TESTS_FUZZ_FOLDER_H
#define TESTS_FUZZ_FOLDER_H

#include <stddef.h>

/* Its path. */
const char *fuzz_folder(void);
/*
 * Writes a file, and the folders above it, or replaces it. Returns its path, in a buffer of the
 * function's own that the next call overwrites.
 */
const char *fuzz_file(const char *name, const void *data, size_t size);
/* Removes all that is in a folder below it ("" for the folder itself). */
void fuzz_folder_clear(const char *name);

#endif
