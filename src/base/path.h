/* SPDX-License-Identifier: Apache-2.0 */
/* Paths compared as texts. */
#ifndef RFS_BASE_PATH_H
#define RFS_BASE_PATH_H

#include <stdbool.h>
#include <string.h>

/* Whether INNER is OUTER or lies below it. Both absolute and resolved. */
static inline bool rfs_path_within(const char *inner, const char *outer)
{
    const size_t n = strlen(outer);

    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, n) == 0 && (inner[n] == '\0' || inner[n] == '/');
}

#endif
