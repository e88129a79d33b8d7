/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user probably meant: the known word that takes the fewest edits to reach, and an argument
 * that the shell took apart, in one piece.
 */
#pragma once

#include "base/std.h"

/*
 * Counts the edits (insert, delete, replace, swap neighbours) from A to B; words over 63 bytes
 * count as far.
 */
unsigned rfs_suggest_distance(const char *a, const char *b);

/*
 * Counts the edits from a pattern whose only stars are at its beginning or its end (base/glob.h) to
 * NAME: those of the rest, against as much of the name, one more or one less. UINT_MAX for other
 * patterns.
 */
unsigned rfs_suggest_pattern_distance(const char *pattern, const char *name);

/*
 * The word that NAME was probably meant to be: of those that were offered, at least half is right.
 */
struct rfs_suggest {
    const char *name, *nearest; /* borrowed; NULL: none so far */
    unsigned within;            /* edits; only words with fewer count */
};
#define RFS_SUGGEST_WORD 3 /* edits of a short word; longer ones may take any number */
struct rfs_suggest rfs_suggest_begin(const char *name, unsigned most_edits);
/* Offers a word. Returns whether it is the nearest so far. */
bool rfs_suggest_offer(struct rfs_suggest *suggest, const char *word);

/*
 * Returns whether the shell divided one of the N arguments at a blank: the parts are the name of a
 * file that exists, or one ends in the comma of a list of options. OUT is then the remedy.
 */
bool rfs_suggest_quotes(int n, char **args, char *out, size_t cap);
