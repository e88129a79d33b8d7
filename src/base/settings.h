/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options as given, before they are interpreted: names and values, in their order. A text such as
 * after -o, "cache=2G,strict", is parsed once, where it enters: a comma inside a value is "\,", a
 * backslash before a comma or a backslash "\\", and any other backslash stands for itself. Not
 * thread-safe.
 */
#pragma once

#include "base/vec.h"

struct rfs_setting {
    char *name;   /* owned */
    char *value;  /* owned; NULL for a switch, which is on */
    char *origin; /* place for messages, "FILE: line 3"; owned; NULL: the command line, a program */
};

/* Zero-initialise. */
struct rfs_settings {
    RFS_VEC(struct rfs_setting) list;
};

void rfs_settings_free(struct rfs_settings *settings);

/* Appends copies; VALUE and ORIGIN may be NULL. 0 or -ENOMEM. */
int rfs_settings_add(struct rfs_settings *settings, const char *name, const char *value,
                     const char *origin);
/*
 * Appends the settings of a text; NULL is "". A comma between words of ready cuts, in the value of
 * src_rules or dst_rules, needs no backslash. 0 or -ENOMEM.
 */
int rfs_settings_add_text(struct rfs_settings *settings, const char *text);
/* Appends copies of all of MORE. 0 or -ENOMEM. */
int rfs_settings_add_all(struct rfs_settings *settings, const struct rfs_settings *more);

/* Finds the last setting of NAME, or NULL. */
const struct rfs_setting *rfs_settings_last(const struct rfs_settings *settings, const char *name);

/* Writes all settings as a text, malloc'ed; NULL when out of memory. */
char *rfs_settings_text(const struct rfs_settings *settings);
/* Writes a setting as it stands in a text. */
void rfs_settings_write(FILE *out, const char *name, const char *value);

/* Returns the length of the word of ready cuts at TEXT, such as tp2; 0 if there is none. */
size_t rfs_settings_cut_word(const char *text);
/* Returns whether a value is such words, with commas or blanks between them (rules/cuts.h). */
bool rfs_settings_is_cuts(const char *value);
