/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON documents of bounded size as trees of cJSON. A document is read strictly first
 * (base/json_read.h), so a message has the reason and the place. Its values are counted before any
 * memory is taken: cJSON takes up to 41 times the bytes of a text.
 *
 * Cost: about 100 bytes for each value, besides texts. What grows with the checkpoint is for
 * base/json_read.h.
 */
#pragma once

#include "base/error.h"

#include <cJSON.h>

/*
 * Parses N bytes of TEXT, from the file FILE, which may take MOST bytes of memory. 0 with *out
 * owned by the caller (cJSON_Delete), or -errno with *err filled, and REMEDY in it.
 */
int rfs_json_tree_parse(const char *file, const char *text, size_t n, size_t most,
                        const char *remedy, cJSON **out, struct rfs_error *err);
/*
 * Parses a text that base/json_read.h has found valid. 0, -ENOMEM, or -EFBIG when it takes more
 * than MOST bytes.
 */
int rfs_json_tree_parse_valid(const char *text, size_t n, size_t most, cJSON **out);

/* Returns the last member of that name, which counts as in Python, or NULL. O(members). */
const cJSON *rfs_json_tree_member(const cJSON *object, const char *name);
/* Returns whether a value is a whole number up to 2^53, and gives it. NULL is none. */
bool rfs_json_tree_integer(const cJSON *value, int64_t *out);
