/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of rules: of strategies (layout/layout_rules.h) and of conversion (rules/rules.h).
 * Between them may be blanks, tabs and ends of lines. Words are letters, digits and '_'.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"

/* A statement of rules that is being read; all borrowed. */
struct rfs_lex {
    const char *file; /* its name, for messages */
    uint32_t line;    /* from 1 */
    unsigned level;   /* nesting; the parser's */
    const char *at, *end;
    struct rfs_arena *arena; /* memory; the parser's */
    struct rfs_error *err;
};

/* Skips blanks. */
void rfs_lex_skip(struct rfs_lex *lex);
/* Skips blanks. Returns whether nothing follows. */
bool rfs_lex_end(struct rfs_lex *lex);
/* Skips blanks. Returns the length of the word that is next, 0 for none. */
size_t rfs_lex_word(struct rfs_lex *lex);
/* Skips blanks. Returns whether the next word is WORD. */
bool rfs_lex_is(struct rfs_lex *lex, const char *word);
/* Skips blanks, and moves behind TEXT if that is next; else returns false. */
bool rfs_lex_take(struct rfs_lex *lex, const char *text);
/* Moves behind WORD if that is the next word; else returns false. */
bool rfs_lex_take_word(struct rfs_lex *lex, const char *word);

/*
 * Fails with -EINVAL and "FILE: line N: parameter 'PARAM': …"; LINE 0 and PARAM NULL: without it.
 */
int rfs_lex_fail(const char *file, uint32_t line, const char *param, const char *remedy,
                 struct rfs_error *err, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Fails at a statement. */
#define RFS_LEX_FAIL(lex, remedy, ...)                                                             \
    rfs_lex_fail((lex)->file, (lex)->line, NULL, remedy, (lex)->err, __VA_ARGS__)
