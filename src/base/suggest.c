/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

#include "base/glob.h"

#include <unistd.h>

enum { WORD_MAX = 64, PARTS_MOST = 8 };

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned rfs_suggest_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    unsigned d[WORD_MAX][WORD_MAX];

    if (n >= WORD_MAX || m >= WORD_MAX)
        return UINT_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            const unsigned replace = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            d[i][j] = min2(replace, min2(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min2(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[n][m];
}

/* Returns the edits from the SIZE bytes at TEXT to the whole of WORD. */
static unsigned edits_of(const char *word, const char *text, size_t size)
{
    char part[WORD_MAX];

    snprintf(part, sizeof part, "%.*s", (int)(size < sizeof part ? size : sizeof part), text);
    return rfs_suggest_distance(word, part);
}

unsigned rfs_suggest_pattern_distance(const char *pattern, const char *name)
{
    const bool open = *pattern == '*';
    const size_t n = strlen(pattern += open);
    const bool ends = n > 0 && pattern[n - 1] == '*';
    const size_t length = strlen(name);
    unsigned least = UINT_MAX;
    char word[WORD_MAX];

    if (n - ends >= sizeof word)
        return UINT_MAX;
    snprintf(word, sizeof word, "%.*s", (int)(n - ends), pattern);
    if (rfs_glob_is_pattern(word) || open + ends == 2)
        return UINT_MAX;
    if (!open && !ends)
        return edits_of(word, name, length);
    for (size_t size = n > 1 + (size_t)ends ? n - ends - 1 : 0; size <= n - ends + 1; size++) {
        const size_t part = size < length ? size : length;
        const unsigned edits = edits_of(word, open ? name + length - part : name, part);
        least = edits < least ? edits : least;
    }
    return least;
}

struct rfs_suggest rfs_suggest_begin(const char *name, unsigned most_edits)
{
    const size_t half = strlen(name) / 2;

    return (struct rfs_suggest){
        .name = name, .within = 1 + min2(most_edits, half < WORD_MAX ? (unsigned)half : WORD_MAX)};
}

bool rfs_suggest_offer(struct rfs_suggest *suggest, const char *word)
{
    const unsigned edits = rfs_suggest_distance(suggest->name, word);

    if (edits >= suggest->within)
        return false;
    suggest->within = edits;
    suggest->nearest = word;
    return true;
}

/*
 * Returns whether PATH, or what follows the last '=' or ':' in it, is there, with or without its
 * list.
 */
static bool is_there(const char *path)
{
    char text[PATH_MAX];

    for (const char *from = path; from; from = strpbrk(from, "=:")) {
        from += from > path;
        if (snprintf(text, sizeof text, "%s", from) >= (int)sizeof text)
            return false;
        if (access(text, F_OK) == 0)
            return true;
        text[strcspn(text, ",:")] = '\0';
        if (strchr(text, ' ') && access(text, F_OK) == 0)
            return true;
    }
    return false;
}

/* Joins the arguments that are the name of one file with blanks in it. False when none is. */
static bool join(int n, char **args, char *out, size_t cap)
{
    size_t used = strlen(args[0]);

    if (used >= cap)
        return false;
    memcpy(out, args[0], used + 1);
    for (int i = 1; i < n && i < PARTS_MOST && args[i][0] != '-'; i++) {
        const int more = snprintf(out + used, cap - used, " %s", args[i]);
        if (more < 0 || (size_t)more >= cap - used)
            return false;
        used += (size_t)more;
        if (is_there(out))
            return true;
    }
    return false;
}

bool rfs_suggest_quotes(int n, char **args, char *out, size_t cap)
{
    char joined[PATH_MAX];

    for (int i = 0; i + 1 < n; i++) {
        const bool is_flag = args[i][0] == '-' && !strchr(args[i], '=');
        const size_t length = strlen(args[i]);

        if (strchr(args[i], '=') && args[i][length - 1] == ',' && strchr(args[i + 1], '='))
            snprintf(out, cap, "%s%s, without a blank", args[i], args[i + 1]);
        else if (!is_flag && join(n - i, args + i, joined, sizeof joined) && !strchr(joined, '\''))
            snprintf(out, cap, "'%s', in quotes", joined);
        else
            continue;
        return true;
    }
    return false;
}
