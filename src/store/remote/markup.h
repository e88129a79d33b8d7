/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads as much of XML and HTML as lists of objects need: elements and attributes are found by
 * their names, in order. Whatever the text is, nothing is read outside of it, and the time grows
 * only with its length.
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "base/std.h"

/* The inside of an element: bytes of the text that is read. */
struct rfs_markup {
    const char *at;
    size_t n;
};

/*
 * Finds the next element NAME of *rest, which goes on behind it; it has no element of that name
 * inside. False when there is none.
 */
bool rfs_markup_next(struct rfs_markup *rest, const char *name, struct rfs_markup *inside);
/*
 * Copies the text of the first element NAME in a text that ends with a NUL, without entities and
 * control characters, cut to CAP; false when there is none.
 */
bool rfs_markup_text(const char *text, const char *name, char *out, size_t cap);
/*
 * Copies the text of the first element NAME of a part; false when there is none, or OUT is too
 * small.
 */
bool rfs_markup_find(const struct rfs_markup *in, const char *name, char *out, size_t cap);
/* Copies the value of the next attribute href of an element a; false when there is none. */
bool rfs_markup_link(struct rfs_markup *rest, char *out, size_t cap);
