/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .npy file, version 1.0 (NEP 1; numpy/lib/format.py):
 *
 *     "\x93NUMPY" 1 0
 *     u16 LEN              little-endian; of what follows up to the data
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (4, 8), }
 *     spaces               room for the first axis to become 21 digits long; then one to 64, so
 *     "\n"                 that the data begin at a multiple of 64
 *     data                 row by row
 *
 * The shape of a scalar is (), which cannot grow, that of one axis (4,). How many spaces is up to
 * the writer; these are numpy's since 1.23.
 *
 * The JSON file beside it is an object with a member a line, in a fixed order. "numpy" is the dtype
 * that numpy reads, "really" the dtype of its elements if numpy has no such type. A tensor that is
 * not cut has no "whole", "pieces" and "boxes".
 */
#include "formats/npy/npy.h"

#include "base/cleanup.h"
#include "base/json_write.h"

#define MAGIC "\x93NUMPY\x01\x00"
#define PREFIX (sizeof MAGIC - 1 + 2)
#define ALIGN 64
#define GROWTH_DIGITS 21
#define CODE_POINT 4 /* bytes */

/* Names of element types in numpy, and their real names where numpy lacks the type. */
static const struct {
    const char *descr;
    const char *really;
} types[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = {"|b1", NULL},
    [RFS_INT4] = {"|i1", "int4"},
    [RFS_INT8] = {"|i1", NULL},
    [RFS_UINT8] = {"|u1", NULL},
    [RFS_INT16] = {"<i2", NULL},
    [RFS_UINT16] = {"<u2", NULL},
    [RFS_INT32] = {"<i4", NULL},
    [RFS_UINT32] = {"<u4", NULL},
    [RFS_INT64] = {"<i8", NULL},
    [RFS_UINT64] = {"<u8", NULL},
    [RFS_FLOAT16] = {"<f2", NULL},
    [RFS_BFLOAT16] = {"<V2", "bfloat16"},
    [RFS_FLOAT32] = {"<f4", NULL},
    [RFS_FLOAT64] = {"<f8", NULL},
    [RFS_COMPLEX64] = {"<c8", NULL},
    [RFS_COMPLEX128] = {"<c16", NULL},
    [RFS_FLOAT8_E4M3FN] = {"<V1", "float8_e4m3fn"},
    [RFS_FLOAT8_E5M2] = {"<V1", "float8_e5m2"},
    [RFS_FLOAT8_E8M0] = {"<V1", "float8_e8m0fnu"},
    [RFS_HIFLOAT8] = {"<V1", "hifloat8"},
    [RFS_FLOAT8_E4M3FNUZ] = {"<V1", "float8_e4m3fnuz"},
    [RFS_FLOAT8_E5M2FNUZ] = {"<V1", "float8_e5m2fnuz"},
    [RFS_FLOAT4_E2M1_X2] = {"<V1", "float4_e2m1fn_x2"},
    [RFS_FLOAT6_E2M3_X4] = {"<V3", "four float6_e2m3fn"},
    [RFS_FLOAT6_E3M2_X4] = {"<V3", "four float6_e3m2fn"},
    [RFS_Q4_0] = {"<V18", "32 numbers of Q4_0"},
    [RFS_Q8_0] = {"<V34", "32 numbers of Q8_0"},
    [RFS_Q4_K] = {"<V144", "256 numbers of Q4_K"},
    [RFS_Q5_K] = {"<V176", "256 numbers of Q5_K"},
    [RFS_Q6_K] = {"<V210", "256 numbers of Q6_K"},
};

void rfs_npy_describe(const struct rfs_type *type, struct rfs_npy *out)
{
    *out = (struct rfs_npy){.ndim = type->ndim};
    memcpy(out->dims, type->dims, sizeof out->dims);
    if (type->kind == RFS_TENSOR && types[type->dtype].descr) {
        snprintf(out->descr, sizeof out->descr, "%s", types[type->dtype].descr);
        out->really = types[type->dtype].really;
    } else if (type->dtype == RFS_STR && type->bytes % CODE_POINT == 0 &&
               type->bytes <= INT32_MAX) {
        out->ndim = 0;
        snprintf(out->descr, sizeof out->descr, "<U%u", (unsigned)(type->bytes / CODE_POINT));
    } else {
        out->ndim = 1;
        out->dims[0] = type->bytes;
        out->really = type->kind == RFS_MAP ? "map tensor" : "UTF-32 text";
        snprintf(out->descr, sizeof out->descr, "|u1");
    }
}

static void put_shape(struct rfs_bytes *out, const struct rfs_npy *npy)
{
    rfs_bytes_put_text(out, "(");
    for (uint32_t i = 0; i < npy->ndim; i++) {
        rfs_bytes_put_text(out, i == 0 ? "" : ", ");
        rfs_bytes_put_number(out, npy->dims[i]);
    }
    rfs_bytes_put_text(out, npy->ndim == 1 ? ",)" : ")");
}

static void put_spaces(struct rfs_bytes *out, size_t n)
{
    for (; n > 0; n--)
        rfs_bytes_put_text(out, " ");
}

bool rfs_npy_header(const struct rfs_npy *npy, struct rfs_bytes *out)
{
    const size_t begin = out->n;

    rfs_bytes_put(out, MAGIC "\0\0", PREFIX);
    rfs_bytes_put_text(out, "{'descr': '");
    rfs_bytes_put_text(out, npy->descr);
    rfs_bytes_put_text(out, "', 'fortran_order': False, 'shape': ");
    put_shape(out, npy);
    rfs_bytes_put_text(out, ", }");
    if (npy->ndim > 0)
        put_spaces(out, GROWTH_DIGITS - (size_t)snprintf(NULL, 0, "%" PRIu64, npy->dims[0]));
    put_spaces(out, ALIGN - (out->n - begin + 1) % ALIGN);
    rfs_bytes_put_text(out, "\n");
    if (out->failed)
        return false;
    const size_t length = out->n - begin - PREFIX; /* 16 axes of 20 digits: never over 64 KiB */
    out->data[begin + PREFIX - 2] = (unsigned char)length;
    out->data[begin + PREFIX - 1] = (unsigned char)(length >> 8);
    return true;
}

int rfs_npy_encode(const struct rfs_type *type, uint32_t target, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_npy npy;

    rfs_npy_describe(type, &npy);
    rfs_npy_header(&npy, &builder.literals);
    rfs_image_add(&builder, target, 0, type->bytes);
    return rfs_image_finish(&builder, out);
}

/* ---- the JSON file beside it ----------------------------------------------------------------- */

/* Puts a name, which is UTF-8, as it is; escapes are JSON's. */
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

int rfs_npy_encode_about(const struct rfs_about *about, struct rfs_image **out)
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
    return rfs_image_finish(&builder, out);
}
