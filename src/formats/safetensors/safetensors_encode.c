/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a safetensors file, which safetensors.c draws, as the library writes it (its
 * tensor.rs, prepare and serialize), with the metadata that save_checkpoint and
 * transform_checkpoints of MindSpore give it. The JSON has no spaces; those behind it make the
 * header's length a multiple of 8.
 *
 * Tensors are in descending order of their dtype (that of the table below), then by the bytes of
 * their names, or as layers.c draws it. A scalar's shape is []. The library writes metadata of more
 * than one key in an order of chance; here they are sorted by their bytes.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "formats/safetensors/safetensors.h"

/* The order of dtypes of the library, version 0.8; others have no name there. */
static const unsigned char ranks[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = 1,
    [RFS_FLOAT4_E2M1_X2] = 2,
    [RFS_FLOAT6_E2M3_X4] = 3,
    [RFS_FLOAT6_E3M2_X4] = 4,
    [RFS_UINT8] = 5,
    [RFS_INT8] = 6,
    [RFS_INT4] = 6,
    [RFS_FLOAT8_E5M2] = 7,
    [RFS_FLOAT8_E4M3FN] = 8,
    [RFS_FLOAT8_E8M0] = 9,
    [RFS_FLOAT8_E4M3FNUZ] = 10,
    [RFS_FLOAT8_E5M2FNUZ] = 11,
    [RFS_INT16] = 12,
    [RFS_UINT16] = 13,
    [RFS_FLOAT16] = 14,
    [RFS_BFLOAT16] = 15,
    [RFS_INT32] = 16,
    [RFS_UINT32] = 17,
    [RFS_FLOAT32] = 18,
    [RFS_COMPLEX64] = 19,
    [RFS_FLOAT64] = 20,
    [RFS_INT64] = 21,
    [RFS_UINT64] = 22,
};

RFS_COMPARE(by_name, struct rfs_image_tensor, x, y,
            rfs_order_bytes(x->name, x->name_bytes, y->name, y->name_bytes))
RFS_COMPARE(in_file, struct rfs_image_tensor, x, y,
            RFS_ORDER(ranks[y->type->dtype], ranks[x->type->dtype]) ?: by_name(x, y))

static bool is_text(const struct rfs_image_tensor *tensor, const char *text)
{
    return tensor->name_bytes == strlen(text) &&
           memcmp(tensor->name, text, tensor->name_bytes) == 0;
}

/* Refuses values that the format cannot hold. */
static int check_tensor(const struct rfs_safetensors_content *content,
                        const struct rfs_image_tensor *tensor, struct rfs_error *err)
{
    const struct rfs_where where = RFS_OF(content->path, tensor->name);
    const bool alone = !content->format;
    const enum rfs_dtype dtype = (enum rfs_dtype)tensor->type->dtype;
    const char *remedy =
        rfs_dtype_is_block(dtype) ? RFS_DTYPE_DEQUANTIZE
        : alone                   ? "a .npy file"
        : !content->divide
            ? "-o format=ckpt, or -o names= with a map that gives it null, which leaves it out"
            : "-o names= with a map that gives it null, which leaves it out";

    if (tensor->type->kind != RFS_TENSOR)
        return rfs_fail(err, -EINVAL, where, remedy, "is a %s, which safetensors files cannot hold",
                        tensor->type->kind == RFS_STRING ? "string" : "map tensor");
    if (ranks[dtype] == 0)
        return rfs_fail(err, -EINVAL, where, remedy,
                        "is of type %s, which safetensors files cannot hold",
                        rfs_dtype_name(dtype));
    if (is_text(tensor, RFS_SAFETENSORS_METADATA))
        return rfs_fail(err, -EINVAL, where,
                        alone ? "a .npy file" : "-o names= with a map that gives it another name",
                        "has a name that safetensors files reserve");
    return 0;
}

/*
 * Puts the format, if there is one, and the names of Int4 tensors; nothing if there is neither. A
 * tensor that is called "format" replaces the format, as in MindSpore.
 */
static bool put_metadata(struct rfs_json_write *json, const struct rfs_image_tensor *tensors,
                         size_t n, const char *format)
{
    RFS_FREE struct rfs_image_tensor *keys =
        calloc(n + 1, sizeof *keys); /* without a type: the format */
    size_t n_keys = 0;
    bool has_format = !format;

    if (!keys)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].type->dtype != RFS_INT4)
            continue;
        keys[n_keys++] = tensors[i];
        has_format = has_format || is_text(&tensors[i], "format");
    }
    if (!has_format)
        keys[n_keys++] =
            (struct rfs_image_tensor){.name = "format", .name_bytes = strlen("format")};
    RFS_SORT(keys, n_keys, by_name);
    if (n_keys == 0)
        return true;
    rfs_json_object(json, RFS_SAFETENSORS_METADATA, RFS_JSON_TIGHT);
    for (size_t i = 0; i < n_keys; i++) {
        rfs_json_put_key(json, keys[i].name, keys[i].name_bytes);
        rfs_json_put_text(json, NULL, keys[i].type ? "Int4" : format);
    }
    rfs_json_end(json);
    return true;
}

static void put_tensor(struct rfs_json_write *json, const struct rfs_image_tensor *tensor,
                       uint64_t begin, uint64_t end)
{
    const struct rfs_type *type = tensor->type;
    uint64_t shape[RFS_MAX_DIMS];

    memcpy(shape, type->dims, sizeof shape);
    if (type->ndim > 0)
        shape[type->ndim - 1] *= rfs_dtype_packed((enum rfs_dtype)type->dtype);
    rfs_json_put_key(json, tensor->name, tensor->name_bytes);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "dtype", rfs_dtype_safetensors((enum rfs_dtype)type->dtype));
    rfs_json_put_u64s(json, "shape", RFS_JSON_TIGHT, shape, type->ndim);
    rfs_json_put_u64s(json, "data_offsets", RFS_JSON_TIGHT, (uint64_t[]){begin, end}, 2);
    rfs_json_end(json);
}

/* Puts the header with its length before it. */
static int put_header(const struct rfs_safetensors_content *content, struct rfs_bytes *header,
                      struct rfs_error *err)
{
    static const unsigned char none[8] = {0};
    struct rfs_json_write json = {.bytes = header, .escapes = RFS_JSON_UTF8};
    uint64_t at = 0;

    rfs_bytes_put(header, none, sizeof none);
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    if (!put_metadata(&json, content->tensors, content->n, content->format))
        return rfs_fail_memory(err);
    for (size_t i = 0; i < content->n; i++) {
        const struct rfs_image_tensor *tensor = &content->tensors[i];
        uint64_t end;
        if (!rfs_add_u64(at, tensor->type->bytes, &end) || end > INT64_MAX / 2)
            return rfs_fail(err, -EFBIG, RFS_OF(content->path, tensor->name), NULL,
                            "with it, the file would be larger than a file can be");
        put_tensor(&json, tensor, at, end);
        at = end;
    }
    rfs_json_end(&json);
    while (!header->failed && header->n % 8 != 0)
        rfs_bytes_put_text(header, " ");
    if (header->failed)
        return rfs_fail_memory(err);
    const uint64_t length = header->n - sizeof none;
    if (length > RFS_SAFETENSORS_HEADER_MOST)
        return rfs_fail(err, -EFBIG, RFS_IN(content->path),
                        content->divide ? content->divide : "-o format=ckpt",
                        "the header of a safetensors file would have %llu bytes, and its readers "
                        "take %d at most",
                        (unsigned long long)length, RFS_SAFETENSORS_HEADER_MOST);
    for (unsigned i = 0; i < sizeof none; i++)
        header->data[i] = (unsigned char)(length >> 8 * i);
    return 0;
}

int rfs_safetensors_encode(const struct rfs_safetensors_content *content, struct rfs_image **out,
                           struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    int rc = 0;

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < content->n; i++)
        rc = check_tensor(content, &content->tensors[i], err);
    if (rc)
        return rc;
    if (!content->by_layers)
        RFS_SORT(content->tensors, content->n, in_file);
    else if (rfs_safetensors_sort_layers(content->tensors, content->n, true))
        return rfs_fail_memory(err);
    rc = put_header(content, &builder.literals, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < content->n; i++)
        rfs_image_add(&builder, content->tensors[i].target, content->tensors[i].at,
                      content->tensors[i].type->bytes);
    return rfs_image_finish(&builder, out) ? rfs_fail_memory(err) : 0;
}
