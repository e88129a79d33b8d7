/* SPDX-License-Identifier: Apache-2.0 */
/* Under valgrind one thread runs at a time, and its own memory is among the process's. */
#ifndef TESTS_SUPPORT_VALGRIND_H
#define TESTS_SUPPORT_VALGRIND_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_under_valgrind(void)
{
    const char *loaded = getenv("LD_PRELOAD");

    return loaded && strstr(loaded, "vgpreload") != NULL;
}

#endif
