/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the last star met can be wrong about how much it took: those before it took the least, which
 * leaves the most to the rest of the pattern. So there is one place to go back to, and no
 * recursion.
 */
#include "base/glob.h"

#include <ctype.h>

/* Counts the bytes of the character at a text that is not at its end. */
static size_t character(const char *text)
{
    size_t n = 1;
    if ((unsigned char)*text >= 0xC0)
        while (n < 4 && ((unsigned char)text[n] & 0xC0) == 0x80)
            n++;
    return n;
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* Returns whether a byte of ASCII is of a class of POSIX, which has the name of N bytes. */
static bool in_class(const char *name, size_t n, unsigned char byte)
{
    static const struct {
        const char *name;
        int (*has)(int c);
    } classes[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank},
                   {"cntrl", iscntrl}, {"digit", isdigit}, {"graph", isgraph},
                   {"lower", islower}, {"print", isprint}, {"punct", ispunct},
                   {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == n && memcmp(classes[i].name, name, n) == 0)
            return byte < 0x80 && classes[i].has(byte);
    return false;
}

/* Finds the last bracket of a class [:NAME:] that begins here, or NULL. */
static const char *class_end(const char *at)
{
    const char *end = at[0] == '[' && at[1] == ':' ? at + 2 : NULL;

    while (end && *end >= 'a' && *end <= 'z')
        end++;
    return end && end[0] == ':' && end[1] == ']' ? end + 1 : NULL;
}

static bool is_inverted(const char *set)
{
    return set[1] == '!' || set[1] == '^';
}

/* Reads one byte of a set, which may have a backslash before it; *at goes to the last of it. */
static unsigned char member(const char **at)
{
    if (**at == '\\' && (*at)[1])
        ++*at;
    return (unsigned char)**at;
}

/* Finds the bracket that closes a set, or NULL. One that comes first is of the set. */
static const char *set_end(const char *set)
{
    const char *first = set + 1 + is_inverted(set);

    for (const char *at = first; *at; at++) {
        const char *class = class_end(at);
        if (*at == ']' && at > first)
            return at;
        if (class)
            at = class;
        else
            member(&at);
    }
    return NULL;
}

static bool in_set(const char *set, const char *end, unsigned char byte)
{
    const bool inverted = is_inverted(set);
    bool found = false;

    for (const char *at = set + 1 + inverted; at < end; at++) {
        const char *class = class_end(at);
        if (class) {
            found = found || in_class(at + 2, (size_t)(class - at) - 3, byte);
            at = class;
            continue;
        }
        const unsigned char low = member(&at);
        unsigned char high = low;
        if (at[1] == '-' && at + 2 < end) {
            at += 2;
            high = member(&at);
        }
        found = found || (byte >= low && byte <= high);
    }
    return found != inverted;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Passes one character of the text if the pattern's next element, not a star, is like it. */
static bool step(const char **pattern, const char **text)
{
    const char *p = *pattern;
    const char *end = *p == '[' ? set_end(p) : NULL;
    const bool any = *p == '?';

    if (*p == '\\' && p[1])
        p++;
    if (end ? !in_set(p, end, (unsigned char)**text) : !any && *p != **text)
        return false;
    *pattern = end ? end + 1 : p + 1;
    *text += any ? character(*text) : 1;
    return true;
}

bool rfs_glob_match(const char *pattern, const char *text)
{
    const char *after_star = NULL; /* in the pattern */
    const char *taken = NULL;      /* end of the characters that the star has taken */

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

bool rfs_glob_match_file(const char *pattern, const char *name)
{
    const bool hidden = pattern[pattern[0] == '\\'] == '.';

    return (name[0] != '.' || hidden) && rfs_glob_match(pattern, name);
}

bool rfs_glob_is_pattern(const char *text)
{
    return strpbrk(text, "*?[\\") != NULL;
}
