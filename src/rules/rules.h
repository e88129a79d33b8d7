/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion rules: how the tensors of a training program are made of those of HuggingFace, and
 * these of those. doc/CONVERT.md has the language for its users.
 *
 *     file      = { [ statement ] newline }
 *     statement = "sides" NAME NAME | "models" NAME { NAME }
 *               | "include" NAME [ "with" NAME "=" TEXT { NAME "=" TEXT } ]
 *               | "let" NAME "=" number | "option" NAME "=" ( NAME { "|" NAME } | INTEGER )
 *               | "index" NAME "=" number ".." number [ "where" number ] | "stacked" NAME
 *               | ( "repeat" | "copy" ) side name "=" name | "keep" PATTERN { PATTERN }
 *               | "drop" side PATTERN { PATTERN } | "require" number
 *               | "hint" TEXT                                for the next statement
 *               | "if" number | "else" [ "if" number ] | "end"
 *               | tensor "=" tensor                          to the left a name, or rows of one
 *     side      = "left" | "right"
 *     tensor    = name { "|" name } [ "[" size { "," size } "]" ]
 *               | FUNCTION "(" argument { "," argument } ")"
 *     size      = "_" | number
 *     name      = text with holes "{" number "}"
 *     number    = either { "??" either }                     a default for a key that config lacks
 *     either    = both { "or" both }     both = negation { "and" negation }
 *     negation  = [ "not" ] compared [ "in" "config." KEY ]
 *     compared  = sum [ ( "==" "!=" "<" "<=" ">" ">=" ) sum ]
 *     sum       = product { ( "+" "-" ) product }     product = unary { ( "*" "/" "%" ) unary }
 *     unary     = [ "-" ] ( INTEGER | "true" | "false" | NAME [ "is" WORD ]
 *                 | "config." KEY [ ( "is" | "has" ) WORD ]
 *                 | "config." KEY "[" number "]" [ "is" WORD ]
 *                 | "count(" "config." KEY ")" | "has(" PATTERN ")"  the source has such a tensor
 *                 | "(" number ")" )
 *
 * A statement goes on in the next line while a bracket is open, or after "=" or ",". "#" at the
 * beginning or after a blank begins a comment.
 *
 * Parsing reads no config and no tensor; compile.h applies rules to those. Immutable once parsed,
 * so any thread may use them. Cost: a few times the text.
 */
#pragma once

#include "base/error.h"

struct rfs_rules;
struct rfs_store;

/* Gives the text of an included file and its full name, for messages; the caller owns both. */
typedef int rfs_rules_include(void *ctx, const char *from, const char *name, char **full,
                              char **text, size_t *n, struct rfs_error *err);

/*
 * Reads the rules in the file at PATH, a URL by STORE. An included file lies beside the one that
 * includes it, or is shipped. 0 with *out owned by the caller, or -errno with *err filled: "PATH:
 * line N".
 */
int rfs_rules_open(struct rfs_store *store, const char *path, struct rfs_rules **out,
                   struct rfs_error *err);
/* Reads shipped rules, by their name: "qwen3". */
int rfs_rules_named(const char *name, struct rfs_rules **out, struct rfs_error *err);
/*
 * Reads the rules in a text; without INCLUDE no file can be included. Other files than parse.c call
 * it for tests alone.
 */
int rfs_rules_parse(const char *name, const char *text, size_t n, rfs_rules_include *include,
                    void *ctx, struct rfs_rules **out, struct rfs_error *err);
void rfs_rules_free(struct rfs_rules *rules);

/* Returns the name of shipped rules, from 0 on, malloc'ed; NULL beyond the last, or no memory. */
char *rfs_rules_name_at(size_t i);
/* Returns the name of a side, 0 left or 1 right. The rules own it. */
const char *rfs_rules_side(const struct rfs_rules *rules, int side);
/* A word of a list in rules, which own it. */
struct rfs_rules_word {
    const char *text;
    const struct rfs_rules_word *next;
};
/*
 * Calls TAKE for the words of each statement "models", with OPTION NULL, and of each statement
 * "option", in their order; both may stand in a branch that a config does not take.
 */
void rfs_rules_each_words(const struct rfs_rules *rules,
                          void (*take)(void *ctx, const char *option,
                                       const struct rfs_rules_word *words),
                          void *ctx);
