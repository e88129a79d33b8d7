/* SPDX-License-Identifier: Apache-2.0 */
/* Values beside the tensors of a file, such as those that describe the model of a GGUF file. */
#pragma once

#include "base/error.h"
#include "base/io.h"

/* A value beside the tensors of a file, by its name. All is borrowed for the call. */
struct rfs_format_value {
    const char *name; /* at most 1 KiB of it */
    const char *type; /* its name in the format; that of the elements of a list */
    const char *text; /* at most 4 KiB; a number or a switch as JSON has it; NULL: a list */
    bool is_text;     /* it is a text, or a number that JSON does not have */
    uint64_t n;       /* bytes of the whole text, or elements of the list */
};
/* Takes a value. False when out of memory. */
typedef bool rfs_format_value_fn(void *ctx, const struct rfs_format_value *value);
/* Calls EACH for the values of a file. 0, or -errno with *err filled. */
typedef int rfs_format_values_fn(const struct rfs_bytes_source *from, rfs_format_value_fn *each,
                                 void *ctx, struct rfs_error *err);
