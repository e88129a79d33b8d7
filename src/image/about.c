/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON file beside a .npy file: an object with a member a line, in a fixed order. "numpy" is
 * the dtype that numpy reads, "really" the dtype of its elements if numpy has no such type. A
 * tensor that is not cut has no "whole", "pieces" and "boxes".
 */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "image/build.h"
#include "image/npy.h"

/* Names are UTF-8; they are given as they are, escapes are JSON's. */
static void put_name(struct rfs_json_write *json, const char *key, const char *name)
{
    json->escapes = RFS_JSON_UTF8;
    rfs_json_put_text(json, key, name);
    json->escapes = RFS_JSON_SHOWN;
}

static void put_type(struct rfs_json_write *json, const struct rfs_about *about)
{
    const struct rfs_type *type = about->type;
    struct rfs_npy npy;

    rfs_npy_describe(type, &npy);
    rfs_json_put_text(json, "dtype", rfs_dtype_name((enum rfs_dtype)type->dtype));
    if (type->dtype != about->source_type->dtype)
        rfs_json_put_text(json, "source_dtype",
                          rfs_dtype_name((enum rfs_dtype)about->source_type->dtype));
    rfs_json_put_text(json, "numpy", npy.descr);
    if (npy.really)
        rfs_json_put_text(json, "really", npy.really);
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, npy.dims, npy.ndim);
    rfs_json_put_u64(json, "bytes", type->bytes);
}

static void put_cut(struct rfs_json_write *json, const struct rfs_about *about)
{
    const uint64_t *range = about->boxes;

    rfs_json_put_u64s(json, "whole", RFS_JSON_SPACED, about->whole, about->ndim);
    rfs_json_put_u32s(json, "source_pieces", RFS_JSON_SPACED, about->source_pieces, about->ndim);
    rfs_json_put_u32s(json, "pieces", RFS_JSON_SPACED, about->pieces, about->ndim);
    rfs_json_array(json, "boxes", RFS_JSON_SPACED);
    for (size_t b = 0; b < about->n_boxes; b++) {
        rfs_json_array(json, NULL, RFS_JSON_SPACED);
        for (size_t i = 0; i < about->ndim; i++, range += 2)
            rfs_json_put_u64s(json, NULL, RFS_JSON_SPACED, range, 2);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

int rfs_image_about(const struct rfs_about *about, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_json_write json = {.bytes = &builder.literals, .indent = 2};

    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    put_name(&json, "name", about->name);
    if (strcmp(about->name, about->source_name) != 0)
        put_name(&json, "source_name", about->source_name);
    if (about->rank >= 0)
        rfs_json_put_i64(&json, "rank", about->rank);
    put_type(&json, about);
    if (about->ndim > 0)
        put_cut(&json, about);
    rfs_json_put_u32s(&json, "source_ranks", RFS_JSON_SPACED, about->ranks, about->n_ranks);
    rfs_json_array(&json, "source_files", RFS_JSON_LINES);
    for (size_t i = 0; i < about->n_files; i++)
        rfs_json_put_text(&json, NULL, about->files[i]);
    rfs_json_finish(&json);
    return rfs_image_finish(&builder, NULL, out);
}
