/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lex.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void rfs_lex_skip(struct rfs_lex *lex)
{
    while (lex->at < lex->end &&
           (*lex->at == ' ' || *lex->at == '\t' || *lex->at == '\r' || *lex->at == '\n'))
        lex->at++;
}

bool rfs_lex_end(struct rfs_lex *lex)
{
    rfs_lex_skip(lex);
    return lex->at == lex->end;
}

size_t rfs_lex_word(struct rfs_lex *lex)
{
    size_t n = 0;

    rfs_lex_skip(lex);
    while (lex->at + n < lex->end && is_word(lex->at[n]))
        n++;
    return n;
}

bool rfs_lex_is(struct rfs_lex *lex, const char *word)
{
    const size_t n = rfs_lex_word(lex);

    return n == strlen(word) && memcmp(lex->at, word, n) == 0;
}

bool rfs_lex_take(struct rfs_lex *lex, const char *text)
{
    const size_t n = strlen(text);

    rfs_lex_skip(lex);
    if ((size_t)(lex->end - lex->at) < n || memcmp(lex->at, text, n) != 0)
        return false;
    lex->at += n;
    return true;
}

bool rfs_lex_take_word(struct rfs_lex *lex, const char *word)
{
    return rfs_lex_is(lex, word) && rfs_lex_take(lex, word);
}

int rfs_lex_fail(const char *file, uint32_t line, const char *param, const char *remedy,
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
