/* SPDX-License-Identifier: Apache-2.0 */
/* Texts. Those from a file are made fit for a terminal and a log of one line per message. */
#pragma once

#include "base/std.h"

#include <time.h>

/* As asprintf and vasprintf: malloc'ed, or NULL when out of memory. */
char *rfs_text_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *rfs_text_vprintf(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));

/* A time as "2026-08-22 07:44:10.123 UTC". Returns OUT. */
#define RFS_TIME_TEXT 64
const char *rfs_text_time(char out[RFS_TIME_TEXT], struct timespec time);

static inline bool rfs_text_ends(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && memcmp(text + n - m, end, m) == 0;
}

/*
 * Copies text to out (cap bytes with the NUL, cap > 0), control characters and bytes that are not
 * UTF-8 as \xNN. Cuts before a character that does not fit. Returns the length of the written text.
 */
size_t rfs_text_printable(char *out, size_t cap, const char *text);
/* All of it so, malloc'ed; NULL when out of memory. */
char *rfs_text_printable_copy(const char *text);
/* Writes all of it so. */
void rfs_text_put(FILE *out, const char *text);
/* Columns of a terminal that printable text takes, near enough: characters. */
size_t rfs_text_width(const char *text);

/*
 * Bytes of the UTF-8 character that TEXT begins with, or 0 when it is a control character, a NUL or
 * not UTF-8.
 */
size_t rfs_text_shown_length(const char *text);

/* Whether all N bytes are well-formed UTF-8 (no overlong forms, no surrogates) without a NUL. */
bool rfs_text_is_utf8(const char *text, size_t n);
/* The same, but NULs and lone surrogates may be in it, as in a text of Python's. */
bool rfs_text_is_python(const char *text, size_t n);

/*
 * Dims as texts have them: "[768, 48]"; cut to CAP. Returns OUT. Of N dims RFS_DIMS_TEXT(N) bytes
 * are enough.
 */
#define RFS_DIMS_TEXT(n) ((n)*22 + 3)
const char *rfs_text_dims(char *out, size_t cap, uint32_t n, const uint64_t *dims);

/* N ascending ranks, as all programs and files show them: "0-3,6". */
void rfs_text_ranks(FILE *out, const uint32_t *ranks, size_t n);

/*
 * VALUE as it is written in a list of options "key=value,key=value": with "," and "\" escaped.
 * malloc'ed, or NULL.
 */
char *rfs_text_option_value(const char *value);
