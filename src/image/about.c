/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON file beside a .npy file: an object with a member a line, in a fixed order. "numpy" is the dtype that
 * numpy reads, "really" what its elements are if it has no such type. What is not cut has no "whole", "pieces"
 * and "boxes".
 */
#include "image/npy.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Begins a member. */
static bool put_key(struct rfs_bytes *json, const char *key)
{
    return rfs_bytes_put_text(json, json->n > 0 ? ",\n  \"" : "{\n  \"") &&
           rfs_bytes_put_text(json, key) && rfs_bytes_put_text(json, "\": ");
}

/* Texts come from files: what is not printable is \xNN. */
static bool put_text(struct rfs_bytes *json, const char *text)
{
    const size_t room = 4 * strlen(text) + 2;
    RFS_FREE char *printable = malloc(room);

    return printable &&
           rfs_bytes_put_json(json, printable, rfs_text_printable(printable, room, text),
                              RFS_JSON_SERDE);
}

static bool put_member(struct rfs_bytes *json, const char *key, const char *text)
{
    return put_key(json, key) && put_text(json, text);
}

/* Names are UTF-8; they are given as they are, escapes are JSON's. */
static bool put_name(struct rfs_bytes *json, const char *key, const char *name)
{
    return put_key(json, key) && rfs_bytes_put_json(json, name, strlen(name), RFS_JSON_SERDE);
}

static bool put_between(struct rfs_bytes *json, size_t i)
{
    return i == 0 || rfs_bytes_put_text(json, ", ");
}

static bool put_dims(struct rfs_bytes *json, const uint64_t *dims, size_t n)
{
    bool ok = rfs_bytes_put_text(json, "[");

    for (size_t i = 0; ok && i < n; i++)
        ok = put_between(json, i) && rfs_bytes_put_number(json, dims[i]);
    return ok && rfs_bytes_put_text(json, "]");
}

static bool put_numbers(struct rfs_bytes *json, const uint32_t *numbers, size_t n)
{
    bool ok = rfs_bytes_put_text(json, "[");

    for (size_t i = 0; ok && i < n; i++)
        ok = put_between(json, i) && rfs_bytes_put_number(json, numbers[i]);
    return ok && rfs_bytes_put_text(json, "]");
}

static bool put_boxes(struct rfs_bytes *json, const struct rfs_about *about)
{
    bool ok = rfs_bytes_put_text(json, "[");

    for (size_t b = 0; ok && b < about->n_boxes; b++) {
        ok = put_between(json, b) && rfs_bytes_put_text(json, "[");
        for (size_t i = 0; ok && i < about->ndim; i++)
            ok =
                put_between(json, i) && put_dims(json, about->boxes + 2 * (b * about->ndim + i), 2);
        ok = ok && rfs_bytes_put_text(json, "]");
    }
    return ok && rfs_bytes_put_text(json, "]");
}

static bool put_cut(struct rfs_bytes *json, const struct rfs_about *about)
{
    return put_key(json, "whole") && put_dims(json, about->whole, about->ndim) &&
           put_key(json, "source_pieces") && put_numbers(json, about->source_pieces, about->ndim) &&
           put_key(json, "pieces") && put_numbers(json, about->pieces, about->ndim) &&
           put_key(json, "boxes") && put_boxes(json, about);
}

static bool put_sources(struct rfs_bytes *json, const struct rfs_about *about)
{
    bool ok = put_key(json, "source_ranks") && put_numbers(json, about->ranks, about->n_ranks) &&
              put_key(json, "source_files") && rfs_bytes_put_text(json, "[");

    for (size_t i = 0; ok && i < about->n_files; i++)
        ok = rfs_bytes_put_text(json, i == 0 ? "\n    " : ",\n    ") &&
             put_text(json, about->files[i]);
    return ok && rfs_bytes_put_text(json, about->n_files > 0 ? "\n  ]" : "]");
}

static bool put_type(struct rfs_bytes *json, const struct rfs_about *about)
{
    struct rfs_npy npy;

    rfs_npy_describe(about->type, &npy);
    return put_member(json, "dtype", rfs_dtype_name((enum rfs_dtype)about->type->dtype)) &&
           (about->type->dtype == about->source_type->dtype ||
            put_member(json, "source_dtype",
                       rfs_dtype_name((enum rfs_dtype)about->source_type->dtype))) &&
           put_member(json, "numpy", npy.descr) &&
           (!npy.really || put_member(json, "really", npy.really)) && put_key(json, "shape") &&
           put_dims(json, npy.dims, npy.ndim) && put_key(json, "bytes") &&
           rfs_bytes_put_number(json, about->type->bytes);
}

int rfs_image_about(const struct rfs_about *about, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_bytes *json = &builder.literals;

    *out = NULL;
    if (!put_name(json, "name", about->name) ||
        (strcmp(about->name, about->source_name) != 0 &&
         !put_name(json, "source_name", about->source_name)) ||
        (about->rank >= 0 &&
         !(put_key(json, "rank") && rfs_bytes_put_number(json, (uint64_t)about->rank))) ||
        !put_type(json, about) || (about->ndim > 0 && !put_cut(json, about)) ||
        !put_sources(json, about) || !rfs_bytes_put_text(json, "\n}\n") ||
        !rfs_image_add_literals(&builder, 0))
        return -ENOMEM;
    return rfs_image_finish(&builder, NULL, out);
}
