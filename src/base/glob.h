/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of parameter names. */
#ifndef RFS_BASE_GLOB_H
#define RFS_BASE_GLOB_H

#include <stdbool.h>

/*
 * Whether all of TEXT is like PATTERN: `*` is any run of characters, dots and slashes too, `?` any one
 * character, [abc], [a-z] and [!a-z] one of those or none of those. There is no way to escape one, but [*].
 * A `[` that nothing closes is itself. Unlike fnmatch it is the same in any locale (characters are UTF-8's;
 * a byte that is not part of one counts as one, and brackets know bytes), never fails for lack of memory and
 * never takes exponential time.
 */
bool rfs_glob_match(const char *pattern, const char *text);
/* Whether the pattern has any of those. */
bool rfs_glob_is_pattern(const char *text);

#endif
