/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options (base/settings.h) from the environment and from a file, beside those after -o.
 *
 *     reshardfs SRC MNT -o cache=2G,strict        a comma inside a value is "\,", a backslash before either "\\"
 *
 *     RESHARDFS_CACHE=2G RESHARDFS_STRICT=yes     the name in capitals; a switch is yes, true, on or 1, or left
 *                                                 alone by no, false, off, 0 or an empty value
 *
 *     # a file: of lines
 *     [reshardfs]                                 may be left out; no other section
 *     cache = 2G                                  blanks around name and value don't count, nor do one pair of
 *     prefix = "my "                              double quotes around the value
 *     strict                                      or strict = yes, as in the environment
 *
 *     {"cache": "2G", "strict": true}             or of JSON: texts, whole numbers, true and false; a list of
 *                                                 texts for options with several paths
 *
 * Paths in a file are looked for from the folder of the file. Not thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/options.h"
#include "base/settings.h"

#define RFS_SETTINGS_FILE_BYTES ((size_t)1 << 20) /* larger ones are refused */

/* Those of ENVIRONMENT (a list of "NAME=value" that ends with NULL). 0 or -ENOMEM. */
int rfs_settings_add_environment(struct rfs_settings *settings, char *const *environment);

/* Those of a file. 0, or -errno with *err filled. */
int rfs_settings_add_file(struct rfs_settings *settings, const char *path, struct rfs_error *err);
