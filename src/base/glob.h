/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of names, of parameters and of files: one kind for all options. */
#pragma once

#include "base/std.h"

/*
 * Returns whether all of TEXT is like PATTERN: `*` is any run of characters, dots and slashes too,
 * `?` any one character, [abc], [a-z] and [!a-z] or [^a-z] one of those or none of those, and in
 * brackets [:digit:] and the other classes of POSIX those of ASCII. A backslash takes its meaning
 * from the character behind it, and is itself at the end. A `[` that nothing closes is itself. As
 * fnmatch, but it is the same in any locale (characters are UTF-8's; a byte that is not part of one
 * counts as one, and brackets know bytes), never fails for lack of memory and never takes
 * exponential time.
 */
bool rfs_glob_match(const char *pattern, const char *text);
/*
 * Returns whether the name of a file is like PATTERN: a dot at its beginning is like a dot at the
 * beginning only, as in a shell.
 */
bool rfs_glob_match_file(const char *pattern, const char *name);
/* Returns whether a text has any of these characters. */
bool rfs_glob_is_pattern(const char *text);
