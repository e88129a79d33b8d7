/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/markup.h"

#include <strings.h>

#define TAG_BYTES 16384 /* a tag that is longer is no link */

/* Returns what is behind "<NAME>" or "</NAME>" in [at, end), or NULL. */
static const char *find_tag(const char *at, const char *end, const char *name, bool closing,
                            const char **before)
{
    const size_t n = strlen(name);

    while (at < end && (at = memchr(at, '<', (size_t)(end - at)))) {
        const char *inner = at + 1 + closing;
        if ((size_t)(end - at) > n + 1 + closing && (!closing || at[1] == '/') &&
            memcmp(inner, name, n) == 0 && inner[n] == '>') {
            *before = at;
            return inner + n + 1;
        }
        at++;
    }
    return NULL;
}

bool rfs_markup_next(struct rfs_markup *rest, const char *name, struct rfs_markup *inside)
{
    const char *end = rest->at + rest->n;
    const char *before;
    const char *from = find_tag(rest->at, end, name, false, &before);
    const char *behind = from ? find_tag(from, end, name, true, &before) : NULL;

    if (!behind)
        return false;
    *inside = (struct rfs_markup){from, (size_t)(before - from)};
    *rest = (struct rfs_markup){behind, (size_t)(end - behind)};
    return true;
}

/*
 * Returns the character that an entity at [at, end) stands for; 0 where it is none, or not a byte.
 */
static char entity(const char *at, const char *end, size_t *used)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                 {"&quot;", '"'}, {"&apos;", '\''}, {"&#34;", '"'},
                 {"&#39;", '\''}, {"&#x27;", '\''}, {"&#43;", '+'}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *used = strlen(known[i].name);
        if ((size_t)(end - at) >= *used && memcmp(at, known[i].name, *used) == 0)
            return known[i].c;
    }
    return 0;
}

/* Copies as much as fits; returns whether that is all. */
static bool plain(struct rfs_markup in, char *out, size_t cap)
{
    const char *end = in.at + in.n;
    size_t n = 0;

    for (const char *at = in.at; at < end; n++) {
        size_t used = 1;
        const char c = *at == '&' ? entity(at, end, &used) : *at;
        if (n + 1 >= cap) {
            out[n] = '\0';
            return false;
        }
        out[n] = c ? c : '&';
        at += c ? used : 1;
    }
    out[n] = '\0';
    return true;
}

bool rfs_markup_find(const struct rfs_markup *in, const char *name, char *out, size_t cap)
{
    struct rfs_markup rest = *in, inside;

    return rfs_markup_next(&rest, name, &inside) && !memchr(inside.at, '\0', inside.n) &&
           plain(inside, out, cap);
}

bool rfs_markup_text(const char *text, const char *name, char *out, size_t cap)
{
    struct rfs_markup rest = {text, strlen(text)}, inside;

    if (!rfs_markup_next(&rest, name, &inside))
        return false;
    (void)plain(inside, out, cap);
    for (unsigned char *c = (unsigned char *)out; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            *c = ' ';
    return true;
}

/* Finds the value of the attribute href of a tag, in quotes; false when it has none. */
static bool find_href(const char *tag, const char *close, struct rfs_markup *value)
{
    const char *href = tag;

    while (close - href > 6 && strncasecmp(href, "href=", 5) != 0)
        href++;
    const char quote = close - href > 6 ? href[5] : 0;
    const char *from = href + 6;
    const char *to =
        quote == '"' || quote == '\'' ? memchr(from, quote, (size_t)(close - from)) : NULL;
    if (to)
        *value = (struct rfs_markup){from, (size_t)(to - from)};
    return to != NULL;
}

bool rfs_markup_link(struct rfs_markup *rest, char *out, size_t cap)
{
    const char *end = rest->at + rest->n;
    const char *at = rest->at;
    struct rfs_markup value = {.n = 0};
    bool found = false;

    while (!found && (at = memchr(at, '<', (size_t)(end - at)))) {
        if (end - at < 4 || strncasecmp(at, "<a", 2) != 0 || !memchr(" \t\r\n", at[2], 4)) {
            at++;
            continue;
        }
        /* Each byte is in one tag: what follows is behind it. */
        const char *close = memchr(at, '>', (size_t)(end - at));
        if (!close) {
            at = NULL;
            break;
        }
        found = close - at <= TAG_BYTES && find_href(at, close, &value);
        at = close;
    }
    at = at ? at : end;
    *rest = (struct rfs_markup){at, (size_t)(end - at)};
    return found && !memchr(value.at, '\0', value.n) && plain(value, out, cap);
}
