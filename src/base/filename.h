/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of parameters as names of files, and back.
 *
 * "%", "/", control characters, bytes that are not UTF-8 and a "." at the beginning are written as
 * %XX, with the byte in capital hexadecimal digits; the empty name is "%". A name that takes more
 * than RFS_FILENAME_STEM bytes then is shortened: as much of it as fits, "%~", and the XXH3-128 of
 * the whole name in 32 hexadecimal digits. So each name has one file name, and each file name,
 * unless it is shortened, one name.
 */
#pragma once

#include "base/std.h"

#define RFS_FILENAME_STEM 250 /* bytes; file systems allow 255, and ".json" takes 5 */

/* Writes the file name of a parameter, without an ending, and a NUL. Returns its length. */
size_t rfs_filename_make(const char *name, char out[RFS_FILENAME_STEM + 1]);
/*
 * Writes the parameter of a file name of N bytes, and a NUL. False when rfs_filename_make makes no
 * such file name, or only as a shortened one.
 */
bool rfs_filename_read(const char *stem, size_t n, char out[RFS_FILENAME_STEM + 1]);
/*
 * Returns whether a file name looks shortened: it can only be resolved by comparing it with all
 * names.
 */
bool rfs_filename_is_short(const char *stem, size_t n);
