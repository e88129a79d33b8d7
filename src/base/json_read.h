/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON (RFC 8259) read from front to back, for texts of one fixed shape that may be large and
 * hostile: no tree is built, numbers are exact, nesting is bounded. Stricter than most: a string
 * with a NUL, with half a surrogate pair or that is not UTF-8 is wrong. The text is in memory, or
 * comes in blocks; one of them is in memory.
 *
 * Functions return false when the text is not of the requested form; then wrong is the reason,
 * rfs_json_read_place the place, and every later call returns false, too. Not thread-safe.
 */
#pragma once

#include "base/std.h"

#define RFS_JSON_DEPTH 64 /* of a value that is skipped */
#define RFS_JSON_BLOCK ((size_t)1 << 20)

/* Reads up to N bytes of the text from OFFSET on; *got is 0 at its end. 0 or -errno. */
typedef int rfs_json_fill(void *ctx, void *buf, size_t n, uint64_t offset, size_t *got);

struct rfs_json_read {
    const unsigned char *data; /* the text, or the block at hand */
    size_t n;
    size_t at;
    uint64_t base;       /* place of DATA in the text; 0 for one in memory */
    rfs_json_fill *fill; /* reads a block; NULL: the text is in memory */
    void *ctx;
    unsigned char *block; /* owned */
    int failed;           /* -errno of FILL, if that is the reason */
    const char *wrong;    /* the reason, a constant; NULL: nothing is wrong so far */
    bool no_memory;       /* lack of memory is the reason */
    bool passing;         /* values are skipped */
    char *text;           /* the string that was read last, with a NUL after it; owned */
    size_t text_n, text_cap;
};

/* Begins to read a text of N bytes, which is borrowed. Ends with rfs_json_read_free. */
struct rfs_json_read rfs_json_read_begin(const void *data, size_t n);
/* Begins to read a text that FILL gives, from OFFSET on. rfs_json_read_part is not for these. */
struct rfs_json_read rfs_json_read_begin_blocks(rfs_json_fill *fill, void *ctx, uint64_t offset);
void rfs_json_read_free(struct rfs_json_read *json);
/* Returns the place where reading is, or where the text is wrong. */
static inline uint64_t rfs_json_read_place(const struct rfs_json_read *json)
{
    return json->base + json->at;
}
/* Returns whether the string that was read last is this one. */
bool rfs_json_read_is(const struct rfs_json_read *json, const char *text);

/* Fails with this reason, at the place where reading is. Returns false. */
bool rfs_json_read_fail(struct rfs_json_read *json, const char *wrong);
/* Returns whether C comes next, after spaces. Never fails. */
bool rfs_json_read_peek(struct rfs_json_read *json, char c);
/* Passes C. */
bool rfs_json_read_take(struct rfs_json_read *json, char c);
/* Passes "null" if that is next, and returns whether it was. */
bool rfs_json_read_null(struct rfs_json_read *json);
/* Reads a string into text. */
bool rfs_json_read_string(struct rfs_json_read *json);
/* Reads a whole number from 0 to 2^64 - 1, without sign, fraction and exponent. */
bool rfs_json_read_u64(struct rfs_json_read *json, uint64_t *value);
/* Reads a whole number of 64 bits with or without a sign. */
bool rfs_json_read_i64(struct rfs_json_read *json, int64_t *value);
/* Passes any value. text stays as it is. */
bool rfs_json_read_skip(struct rfs_json_read *json);
/*
 * Goes to the value of the next member of an object, whose key is in text. *first is true before
 * the first call, which takes the brace. False at the end, which is passed, or when the text is
 * wrong.
 */
bool rfs_json_read_member(struct rfs_json_read *json, bool *first);
/* The place of a value's text. */
struct rfs_json_part {
    size_t at, n;
};
/* Passes a value by, to be read later. */
bool rfs_json_read_part(struct rfs_json_read *json, struct rfs_json_part *part);
/* Goes to the next element of an array. False at its end or when the text is wrong. */
bool rfs_json_read_element(struct rfs_json_read *json, bool *first);
/* Ends the text: nothing but spaces may be left. */
bool rfs_json_read_end(struct rfs_json_read *json);

/* A member of an object of one fixed shape, and the place of its value in a struct. */
struct rfs_json_field {
    const char *name;
    bool (*read)(struct rfs_json_read *json, void *at); /* reads the value */
    size_t offset;                                      /* place of AT in the struct */
    bool required;
};
/*
 * Reads an object by the table of its N fields, in any order, into the struct TO. Other members are
 * skipped. Fails with LACKS if a required one is missing.
 */
bool rfs_json_read_object(struct rfs_json_read *json, const struct rfs_json_field *fields, size_t n,
                          const char *lacks, void *to);
/* Read for tables: an uint64_t, an uint32_t, and a copy of a string in an owned char *. */
bool rfs_json_field_u64(struct rfs_json_read *json, void *at);
bool rfs_json_field_u32(struct rfs_json_read *json, void *at);
bool rfs_json_field_text(struct rfs_json_read *json, void *at);

/*
 * Reads a whole text that is one object. 0, -ENOMEM, or -EINVAL with the place in *at and the
 * reason, a constant, in *wrong.
 */
int rfs_json_read_whole(const char *text, size_t size, const struct rfs_json_field *fields,
                        size_t n, const char *lacks, void *to, uint64_t *at, const char **wrong);
