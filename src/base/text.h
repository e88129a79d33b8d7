/* SPDX-License-Identifier: Apache-2.0 */
/* Texts. Those from a file are made fit for a terminal and a log of one line per message. */
#pragma once

#include "base/std.h"

#include <time.h>

/* Print to a text that is malloc'ed, as asprintf does; NULL when out of memory. */
char *rfs_text_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *rfs_text_vprintf(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));

/* Writes a time as "2026-08-22 07:44:10.123 UTC". Returns OUT. */
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
/* Copies all of a text so, malloc'ed; NULL when out of memory. */
char *rfs_text_printable_copy(const char *text);
/* Writes all of a text so. */
void rfs_text_put(FILE *out, const char *text);
/* Counts the columns of a terminal that printable text takes, near enough: characters. */
size_t rfs_text_width(const char *text);

/*
 * Counts the bytes of the UTF-8 character that TEXT begins with; 0 when it is a control character,
 * a NUL or not UTF-8.
 */
size_t rfs_text_shown_length(const char *text);

/* Returns whether N bytes are well-formed UTF-8 (no overlong forms, no surrogates) without NUL. */
bool rfs_text_is_utf8(const char *text, size_t n);
/* Returns whether N bytes are a text of Python's: UTF-8, but NULs and surrogates may be in it. */
bool rfs_text_is_python(const char *text, size_t n);

/*
 * Writes dims as texts have them: "[768, 48]"; cut to CAP. Returns OUT. Of N dims RFS_DIMS_TEXT(N)
 * bytes are enough.
 */
#define RFS_DIMS_TEXT(n) ((n)*22 + 3)
const char *rfs_text_dims(char *out, size_t cap, uint32_t n, const uint64_t *dims);

/* Names in a message: the first few, and how many there are in all. Zero-initialise. */
struct rfs_text_names {
    size_t n;
    size_t used;
    char text[400];
};
/* Adds a name; in place of all after the first MOST stands one "…". */
void rfs_text_add_name(struct rfs_text_names *names, size_t most, const char *name);

/* Writes N ascending ranks, as all programs and files show them: "0-3,6". */
void rfs_text_ranks(FILE *out, const uint32_t *ranks, size_t n);

/*
 * Copies VALUE as it is written in a list of options "key=value,key=value": with "," and "\"
 * escaped. malloc'ed, or NULL.
 */
char *rfs_text_option_value(const char *value);

/*
 * Return "error: " and "warning: ", in their colours where FD is a terminal that is not "dumb", and
 * the user has not set NO_COLOR to anything (no-color.org). Constants.
 */
const char *rfs_text_error_label(int fd);
const char *rfs_text_warning_label(int fd);
/* Returns the columns of the terminal FD; 0: it is none, or does not say. */
unsigned rfs_text_columns(int fd);

#define RFS_TEXT_DIGITS 21
/*
 * Writes a number in decimal; returns its first digit, which is somewhere in OUT. For texts with
 * very many numbers, where printf takes most of the time.
 */
const char *rfs_text_digits(uint64_t number, char out[RFS_TEXT_DIGITS]);

#define RFS_TEXT_AMOUNT 32

/* Writes "1.4 GiB"; returns OUT. */
const char *rfs_text_amount(uint64_t bytes, char out[RFS_TEXT_AMOUNT]);
/* Writes "2:05" or "1:02:05", hours beyond 99 as "99:59:59"; returns OUT. */
const char *rfs_text_duration(double seconds, char out[RFS_TEXT_AMOUNT]);
