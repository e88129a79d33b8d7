/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean …": the known word that takes the fewest edits to reach. */
#ifndef RFS_BASE_SUGGEST_H
#define RFS_BASE_SUGGEST_H

#include <stddef.h>

/*
 * Edits (insert, delete, replace, swap neighbours) from a to b; words over 63 bytes count as far.
 */
unsigned rfs_suggest_distance(const char *a, const char *b);

#endif
