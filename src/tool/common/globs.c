/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/globs.h"

#include "base/glob.h"
#include "base/suggest.h"
#include "base/text.h"

bool rfs_globs_match(const struct rfs_globs *globs, const char *name)
{
    for (size_t i = 0; i < globs->n; i++)
        if (rfs_glob_match(globs->data[i], name))
            return true;
    return globs->n == 0;
}

/* Edits from the SIZE bytes at TEXT to the whole of WORD. */
static unsigned edits_of(const char *word, const char *text, size_t size)
{
    char part[64];

    snprintf(part, sizeof part, "%.*s", (int)(size < sizeof part ? size : sizeof part), text);
    return rfs_suggest_distance(word, part);
}

/*
 * How far a name is from a pattern whose only stars are at its beginning or its end: edits of the
 * rest, against as much of the name, one more or one less. UINT_MAX for others.
 */
static unsigned distance(const char *pattern, const char *name)
{
    const bool open = *pattern == '*';
    const size_t n = strlen(pattern += open);
    const bool ends = n > 0 && pattern[n - 1] == '*';
    const size_t length = strlen(name);
    unsigned least = UINT_MAX;
    char word[64];

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

bool rfs_globs_take(struct rfs_globs *globs, const char *name)
{
    if (globs->matched || globs->n == 0)
        return rfs_globs_match(globs, name);
    globs->matched = rfs_globs_match(globs, name);
    for (size_t i = 0; !globs->matched && i < globs->n; i++) {
        const unsigned edits = distance(globs->data[i], name);
        if (*globs->nearest && edits >= globs->edits)
            continue;
        globs->edits = edits;
        rfs_text_printable(globs->nearest, sizeof globs->nearest, name);
    }
    return globs->matched;
}

int rfs_globs_check(const struct rfs_globs *globs, struct rfs_error *err)
{
    char remedy[sizeof globs->nearest + 16];

    if (globs->n == 0 || globs->matched)
        return 0;
    snprintf(remedy, sizeof remedy, "--name '%s'", globs->nearest);
    rfs_fail_usage(err, *globs->nearest ? remedy : "a checkpoint with tensors",
                   "no name is like '%s'%s", globs->data[0],
                   globs->n > 1 ? ", nor like those of the other options --name" : "");
    return -ENOENT;
}
