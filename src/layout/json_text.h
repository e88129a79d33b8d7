/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room only: the members of a JSON object as pieces of its text, without a tree of it all.
 * Only where a piece ends is found here; whether it is valid is for whoever parses it.
 */
#ifndef RFS_LAYOUT_JSON_TEXT_H
#define RFS_LAYOUT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct rfs_json_text {
    const char *data;
    size_t n;
};

struct rfs_json_walk {
    const char *at;
    const char *end;
    bool first;
    bool wrong; /* not the text of an object; at says where */
};

/* Whether the text begins as an object does. */
bool rfs_json_is_object(struct rfs_json_text text);
/* TEXT must begin as an object; spaces may surround it. */
struct rfs_json_walk rfs_json_walk_begin(struct rfs_json_text text);
/* The next member, key with its quotes. False at the end of the object or when it is wrong. */
bool rfs_json_walk_next(struct rfs_json_walk *walk, struct rfs_json_text *key,
                        struct rfs_json_text *value);

#endif
