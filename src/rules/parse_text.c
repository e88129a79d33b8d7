/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parsers of rules: blanks, words, failures. */
#include "rules/internal.h"

int rfs_rules_fail(const char *file, uint32_t line, const char *param, const char *remedy,
                   struct rfs_error *err, const char *fmt, ...)
{
    char place[1024];
    char text[1200];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (line > 0)
        snprintf(place, sizeof place, "%s: line %u", file, line);
    else
        snprintf(place, sizeof place, "%s", file);
    return rfs_fail(err, -EINVAL, RFS_OF(place, param), remedy, "%s", text);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void rfs_rules_skip_blanks(struct convert_parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r' || *p->at == '\n'))
        p->at++;
}

bool rfs_rules_accept(struct convert_parser *p, const char *text)
{
    const size_t n = strlen(text);

    rfs_rules_skip_blanks(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

size_t rfs_rules_word_length(struct convert_parser *p)
{
    size_t n = 0;

    rfs_rules_skip_blanks(p);
    while (p->at + n < p->end && is_word(p->at[n]))
        n++;
    return n;
}

bool rfs_rules_accept_word(struct convert_parser *p, const char *word)
{
    return rfs_rules_word_length(p) == strlen(word) && rfs_rules_accept(p, word);
}

const char *rfs_rules_copy_text(struct convert_parser *p, const char *text, size_t n)
{
    const char *copy = rfs_arena_text(&p->rules->arena, text, n);

    if (!copy)
        rfs_fail_memory(p->err);
    return copy;
}

void *rfs_rules_alloc(struct convert_parser *p, size_t size)
{
    void *fresh = rfs_arena_alloc(&p->rules->arena, size);

    if (!fresh)
        rfs_fail_memory(p->err);
    else
        memset(fresh, 0, size);
    return fresh;
}

void *rfs_rules_expected(struct convert_parser *p, const char *something)
{
    rfs_rules_skip_blanks(p);
    const size_t left = (size_t)(p->end - p->at);

    if (left == 0)
        rfs_rules_fail(p->file, p->line, NULL, NULL, p->err,
                       "the statement ends where %s should be", something);
    else
        rfs_rules_fail(p->file, p->line, NULL, NULL, p->err, "'%.*s%s' stands where %s should be",
                       (int)(left < 40 ? left : 40), p->at, left > 40 ? "…" : "", something);
    return NULL;
}

const char *rfs_rules_parse_word(struct convert_parser *p, const char *what)
{
    const size_t n = rfs_rules_word_length(p);

    if (n == 0 || (*p->at >= '0' && *p->at <= '9'))
        return rfs_rules_expected(p, what);
    const char *name = rfs_rules_copy_text(p, p->at, n);
    p->at += n;
    return name;
}

bool rfs_rules_nest(struct convert_parser *p)
{
    if (p->level == CONVERT_LEVELS)
        rfs_rules_fail(p->file, p->line, NULL, NULL, p->err,
                       "expressions are nested more than %d times", CONVERT_LEVELS);
    return p->level++ < CONVERT_LEVELS;
}
