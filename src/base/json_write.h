/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON: commas, nesting, line breaks and escapes are kept track of here. The sink is a FILE
 * or a growing buffer.
 *
 *     struct rfs_json_write json = {.file = stdout};
 *     rfs_json_object(&json, NULL, RFS_JSON_TIGHT);            {
 *     rfs_json_put_text(&json, "path", path);                  "path":"a\\x0ab",
 *     rfs_json_array(&json, "ranks", RFS_JSON_SPACED);         "ranks":[
 *     rfs_json_put_u64(&json, NULL, 0);                        0, 1
 *     rfs_json_put_u64(&json, NULL, 1);
 *     rfs_json_end(&json);                                     ]
 *     rfs_json_finish(&json);                                  }\n
 *
 * KEY is the member's name in an object, and NULL in an array, at the top, and after
 * rfs_json_put_key. Nothing is allocated but in the buffer. Not thread-safe.
 */
#pragma once

#include "base/vec.h"

#define RFS_JSON_LEVELS 12 /* objects and arrays in each other, at most */

/* The form in which members or elements are set. An empty object or array is {} or []. */
enum rfs_json_form {
    RFS_JSON_TIGHT,  /* {"a":1,"b":2} */
    RFS_JSON_SPACED, /* {"a": 1, "b": 2} */
    RFS_JSON_ROWS,   /* tight, and all but the first begin a line */
    RFS_JSON_LINES,  /* spaced, and all begin a line, indented; so does the closing bracket */
};

/* The characters of texts that are escaped, beside \" and \\. */
enum rfs_json_escapes {
    /* from any source: bytes that are not printable UTF-8 become \xNN in its value (base/text.h) */
    RFS_JSON_SHOWN,
    /* UTF-8: control characters alone are escaped, as the safetensors library does */
    RFS_JSON_UTF8,
    RFS_JSON_ASCII, /* UTF-8: the rest as UTF-16 in \uNNNN, as json.dumps of Python does */
};

struct rfs_json_write {
    FILE *file;              /* borrowed; or */
    struct rfs_bytes *bytes; /* borrowed */
    enum rfs_json_escapes escapes;
    unsigned indent; /* spaces a level, of lines */
    /* The state: */
    bool failed; /* the buffer is out of memory; for a file, check ferror */
    bool keyed;
    enum { RFS_JSON_BY_FORM, RFS_JSON_BREAK, RFS_JSON_STAY } next;
    unsigned depth;
    struct {
        enum rfs_json_form form;
        bool array, any;
    } levels[RFS_JSON_LEVELS];
};

void rfs_json_object(struct rfs_json_write *json, const char *key, enum rfs_json_form form);
void rfs_json_array(struct rfs_json_write *json, const char *key, enum rfs_json_form form);
/* Closes the innermost object or array. */
void rfs_json_end(struct rfs_json_write *json);
/* Closes all that are open, and ends the line. */
void rfs_json_finish(struct rfs_json_write *json);

/* Begin a line with the next member or element, or stay in the line, whatever the form is. */
void rfs_json_break(struct rfs_json_write *json);
void rfs_json_stay(struct rfs_json_write *json);

/* Puts a key of N bytes; its value is put next. */
void rfs_json_put_key(struct rfs_json_write *json, const char *key, size_t n);
/* Puts a string; NULL: null. */
void rfs_json_put_text(struct rfs_json_write *json, const char *key, const char *text);
void rfs_json_put_u64(struct rfs_json_write *json, const char *key, uint64_t number);
void rfs_json_put_i64(struct rfs_json_write *json, const char *key, int64_t number);
void rfs_json_put_bool(struct rfs_json_write *json, const char *key, bool value);
void rfs_json_put_null(struct rfs_json_write *json, const char *key);
/* Prints text that is JSON already, such as a number of some format. */
void rfs_json_print(struct rfs_json_write *json, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put arrays of numbers. */
void rfs_json_put_u64s(struct rfs_json_write *json, const char *key, enum rfs_json_form form,
                       const uint64_t *numbers, size_t n);
void rfs_json_put_u32s(struct rfs_json_write *json, const char *key, enum rfs_json_form form,
                       const uint32_t *numbers, size_t n);
