/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of memory. */
#ifndef TESTS_SUPPORT_SMAPS_H
#define TESTS_SUPPORT_SMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the mapping that holds AT has the flag (proc(5), VmFlags): "dd" not dumped, "lo" locked. */
static inline bool smaps_has(const void *at, const char *flag)
{
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    char word[8];
    bool inside = false;
    bool found = false;

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
