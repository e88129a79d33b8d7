/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of memory. */
#ifndef TESTS_SUPPORT_SMAPS_H
#define TESTS_SUPPORT_SMAPS_H

#include "tests/support/valgrind.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers make nothing of mlock; theirs and valgrind's memory is too much to search. */
#ifdef __has_feature
#define SMAPS_FEATURE(x) __has_feature(x)
#else
#define SMAPS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    SMAPS_FEATURE(address_sanitizer) || SMAPS_FEATURE(thread_sanitizer) ||                         \
    SMAPS_FEATURE(memory_sanitizer)
#define SMAPS_NO_LOCKS 1
#else
#define SMAPS_NO_LOCKS is_under_valgrind()
#endif

/*
 * Whether the mapping that holds AT has the flag (proc(5), VmFlags): "dd" not dumped, "lo" locked,
 * "hg" advised to use huge pages.
 */
static inline bool smaps_has(const void *at, const char *flag)
{
    FILE *maps;
    char line[512];
    char word[8];
    bool inside = false;
    bool found = false;

    if (SMAPS_NO_LOCKS && strcmp(flag, "lo") == 0)
        return true;
    maps = fopen("/proc/self/smaps", "re");
    if (!maps)
        abort();
    snprintf(word, sizeof word, " %s", flag);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from;
        unsigned long to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)at >= from && (uintptr_t)at < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, word) != NULL;
    }
    fclose(maps);
    return found;
}

#endif
