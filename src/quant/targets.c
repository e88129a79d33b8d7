/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/targets.h"

#include "base/json_tree.h"

#include <ctype.h>

#define TARGETS_MOST 1024
#define PATTERN_MOST 128 /* characters */
#define PLACES (PATTERN_MOST + 3)
#define PREFIX "re:"

/* ---- reading --------------------------------------------------------------------------------- */

void rfs_quant_targets_free(struct rfs_quant_targets *targets)
{
    for (size_t i = 0; i < targets->n; i++)
        free(targets->data[i]);
    free(targets->data);
    *targets = (struct rfs_quant_targets){0};
}

bool rfs_quant_targets_read(const struct cJSON *list, struct rfs_quant_targets *out)
{
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    const cJSON *item;

    *out = (struct rfs_quant_targets){0};
    if (n == 0 || n > TARGETS_MOST)
        return true;
    out->data = calloc((size_t)n, sizeof *out->data);
    if (!out->data)
        return false;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item)) {
            rfs_quant_targets_free(out);
            return true;
        }
        out->data[out->n] = strdup(item->valuestring);
        if (!out->data[out->n++])
            return false;
    }
    return true;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/*
 * A pattern is read if it has nothing but characters, '.', \d, \ and a sign, [a-z], *, + or ?
 * behind one of these, groups that no repetition is behind, | and $. A place is an index of it.
 */

/* Counts the characters of a class at AT, "[…]"; 0: it is none that is read. */
static size_t class_length(const char *at)
{
    const size_t skip = at[1] == '^' ? 2 : 1;
    const size_t n = strcspn(at + skip, "][\\");

    return n > 0 && at[skip + n] == ']' ? skip + n + 1 : 0;
}

/* Counts the characters at AT that match one character; 0: they do not. */
static size_t atom_length(const char *at)
{
    if (*at == '\\')
        return at[1] == 'd' || ispunct((unsigned char)at[1]) ? 2 : 0;
    return *at == '[' ? class_length(at) : !*at || strchr("()|*+?{}^$]", *at) ? 0 : 1;
}

/* Says whether the class of N characters at AT has C. */
static bool class_has(const char *at, size_t n, char c)
{
    const bool other = at[1] == '^';
    bool found = false;

    for (size_t i = other ? 2 : 1; i + 1 < n && !found; i++) {
        const bool range = at[i + 1] == '-' && i + 3 < n;
        found = range ? c >= at[i] && c <= at[i + 2] : c == at[i];
        i += range ? 2 : 0;
    }
    return found != other;
}

static bool atom_takes(const char *at, size_t n, char c)
{
    return *at == '\\'  ? (at[1] == 'd' ? isdigit((unsigned char)c) != 0 : c == at[1])
           : *at == '[' ? class_has(at, n, c)
                        : *at == '.' || c == *at;
}

static bool is_repeat(char c)
{
    return c && strchr("*+?", c);
}

/* Counts the characters of "(" or "(?:" at AT. */
static size_t open_length(const char *at)
{
    return strncmp(at, "(?:", 3) == 0 ? 3 : 1;
}

/* Says whether a text is of characters of ASCII that are seen, whose bytes are its characters. */
static bool is_plain(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && text[i] > ' ' && text[i] <= '~')
        i++;
    return i == n;
}

/* Says whether a pattern is read. */
static bool is_read(const char *pattern)
{
    size_t depth = 0;

    for (const char *at = pattern; *at;) {
        const size_t n = atom_length(at);
        if (n > 0)
            at += n + is_repeat(at[n]);
        else if (*at == '(') {
            depth++;
            at += open_length(at);
        } else if (*at == ')' && depth > 0 && !is_repeat(at[1]) && at[1] != '{') {
            depth--;
            at++;
        } else if (*at == '|' || (*at == '$' && (!at[1] || strchr(")|", at[1]))))
            at++;
        else
            return false;
    }
    return depth == 0;
}

/* Counts the characters at AT that belong together: a place is never within them. */
static size_t step_length(const char *at)
{
    const size_t n = atom_length(at);

    return n > 0 ? n : *at == '(' ? open_length(at) : 1;
}

/* Returns the next "|", or the ")", of the group that AT is in. */
static size_t next_part(const char *pattern, size_t at)
{
    for (size_t depth = 0; depth > 0 || !strchr("|)", pattern[at]);) {
        depth += pattern[at] == '(';
        depth -= pattern[at] == ')';
        at += step_length(pattern + at);
    }
    return at;
}

/* Notes that the pattern may go on at AT, and wherever that leads without a character. */
static void reach(const char *pattern, size_t at, bool ended, bool *on)
{
    const size_t n = atom_length(pattern + at);

    if (on[at])
        return;
    on[at] = true;
    if (n > 0 && (pattern[at + n] == '*' || pattern[at + n] == '?'))
        reach(pattern, at + n + 1, ended, on);
    else if (pattern[at] == ')' || (pattern[at] == '$' && ended))
        reach(pattern, at + 1, ended, on);
    else if (pattern[at] == '|') {
        while (pattern[at] == '|')
            at = next_part(pattern, at + 1);
        reach(pattern, at, ended, on);
    } else if (pattern[at] == '(') {
        for (at += open_length(pattern + at); pattern[at - 1] != ')';) {
            reach(pattern, at, ended, on);
            at = next_part(pattern, at) + 1;
        }
    }
}

/* Notes all places where a pattern may stand after some characters that have not ended it. */
static void begin_anywhere(const char *pattern, size_t end, bool *on)
{
    for (size_t at = 0; at < end; at += step_length(pattern + at)) {
        bool ends[PLACES] = {false};
        reach(pattern, at, false, ends);
        on[at] = !ends[end];
    }
}

/*
 * Says whether a pattern in parentheses matches the first of N characters; with BEHIND, whether it
 * may with others before them.
 */
static bool matches(const char *pattern, const char *name, size_t n, bool behind)
{
    const size_t end = strlen(pattern);
    bool on[PLACES] = {false};

    if (behind)
        begin_anywhere(pattern, end, on);
    else
        reach(pattern, 0, n == 0, on);
    for (size_t i = 0; i < n && !on[end]; i++) {
        bool next[PLACES] = {false};
        for (size_t at = 0; at < end; at++) {
            const size_t m = on[at] ? atom_length(pattern + at) : 0;
            if (m == 0 || !atom_takes(pattern + at, m, name[i]))
                continue;
            if (pattern[at + m] == '*' || pattern[at + m] == '+')
                reach(pattern, at, i + 1 == n, next);
            reach(pattern, at + m + is_repeat(pattern[at + m]), i + 1 == n, next);
        }
        memcpy(on, next, sizeof on);
    }
    return on[end];
}

static struct rfs_quant_named name_by_pattern(const char *pattern, const char *name, size_t n)
{
    struct rfs_quant_named named = {RFS_QUANT_BY_NOTHING, RFS_QUANT_BY_PATTERN};
    char whole[PLACES];

    if (strlen(pattern) > PATTERN_MOST || !is_read(pattern) ||
        !is_plain(pattern, strlen(pattern)) || !is_plain(name, n))
        return named;
    snprintf(whole, sizeof whole, "(%s)", pattern);
    const bool floats = strncmp(pattern, ".*", 2) == 0 && whole[next_part(whole, 1)] == ')';
    if (matches(whole, name, n, false))
        named.surely = RFS_QUANT_BY_PATTERN;
    else if (floats && !matches(whole, name, n, true))
        named.perhaps = RFS_QUANT_BY_NOTHING; /* whatever stands before the name */
    return named;
}

/* ---- names ----------------------------------------------------------------------------------- */

/*
 * Returns the part of a name that programs agree on: from its first number on, or behind its last
 * dot.
 */
static size_t tail_at(const char *name, size_t n)
{
    size_t begin = 0;

    for (size_t i = 0; i < n; i++) {
        if (i == begin && isdigit((unsigned char)name[i]))
            return begin;
        begin = name[i] == '.' ? i + 1 : begin;
    }
    return begin;
}

static struct rfs_quant_named name_by_name(const char *target, const char *name, size_t n)
{
    const size_t m = strlen(target);
    const size_t i = tail_at(target, m);
    const size_t k = tail_at(name, n);

    if (m == n && memcmp(target, name, n) == 0)
        return (struct rfs_quant_named){RFS_QUANT_BY_NAME, RFS_QUANT_BY_NAME};
    if (isupper((unsigned char)target[0]) && !strchr(target, '.'))
        return (struct rfs_quant_named){RFS_QUANT_BY_CLASS, RFS_QUANT_BY_CLASS};
    return (struct rfs_quant_named){RFS_QUANT_BY_NOTHING,
                                    m - i == n - k && memcmp(target + i, name + k, n - k) == 0
                                        ? RFS_QUANT_BY_NAME
                                        : RFS_QUANT_BY_NOTHING};
}

struct rfs_quant_named rfs_quant_targets_name(const struct rfs_quant_targets *targets,
                                              const char *name, size_t n)
{
    struct rfs_quant_named named = {RFS_QUANT_BY_NOTHING, RFS_QUANT_BY_NOTHING};

    if (targets->n == 0)
        named.perhaps = RFS_QUANT_BY_NAME;
    for (size_t i = 0; i < targets->n; i++) {
        const char *target = targets->data[i];
        const bool pattern = strncmp(target, PREFIX, strlen(PREFIX)) == 0;
        const struct rfs_quant_named one = pattern
                                               ? name_by_pattern(target + strlen(PREFIX), name, n)
                                               : name_by_name(target, name, n);
        named.surely = one.surely < named.surely ? one.surely : named.surely;
        named.perhaps = one.perhaps < named.perhaps ? one.perhaps : named.perhaps;
    }
    return named;
}
