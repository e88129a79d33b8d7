/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the last star met can be wrong about how much it took: those before it took the least, which leaves
 * the most to what follows. So there is one place to go back to, and no recursion.
 */
#include "base/glob.h"

#include <stddef.h>
#include <string.h>

/* Bytes of the character at a text that is not at its end. */
static size_t character(const char *text)
{
    size_t n = 1;
    if ((unsigned char)*text >= 0xC0)
        while (n < 4 && ((unsigned char)text[n] & 0xC0) == 0x80)
            n++;
    return n;
}

/* The bracket that closes a set, or NULL. One that comes first is of the set. */
static const char *set_end(const char *set)
{
    const char *first = set + 1 + (set[1] == '!');
    return *first ? strchr(first + 1, ']') : NULL;
}

static bool in_set(const char *set, const char *end, unsigned char byte)
{
    const bool inverted = set[1] == '!';
    bool found = false;
    for (const char *at = set + 1 + inverted; at < end; at++) {
        const unsigned char low = (unsigned char)*at;
        const bool range = at[1] == '-' && at + 2 < end;
        const unsigned char high = range ? (unsigned char)at[2] : low;
        found = found || (byte >= low && byte <= high);
        at += range ? 2 : 0;
    }
    return found != inverted;
}

/* Passes one character of the text if the pattern's next element, not a star, is like it. */
static bool step(const char **pattern, const char **text)
{
    const char *p = *pattern;
    const char *end = *p == '[' ? set_end(p) : NULL;

    if (end ? !in_set(p, end, (unsigned char)**text) : *p != '?' && *p != **text)
        return false;
    *pattern = end ? end + 1 : p + 1;
    *text += !end && *p == '?' ? character(*text) : 1;
    return true;
}

bool rfs_glob_match(const char *pattern, const char *text)
{
    const char *after_star = NULL; /* in the pattern */
    const char *taken = NULL;      /* what the star has taken ends here */

    while (*text) {
        if (*pattern == '*') {
            after_star = ++pattern;
            taken = text;
        } else if (!*pattern || !step(&pattern, &text)) {
            if (!after_star)
                return false;
            taken += character(taken);
            pattern = after_star;
            text = taken;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool rfs_glob_is_pattern(const char *text)
{
    return strpbrk(text, "*?[") != NULL;
}
