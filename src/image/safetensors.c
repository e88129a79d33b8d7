/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a safetensors file as the safetensors library writes it (its tensor.rs, prepare
 * and serialize), with the metadata that save_checkpoint and transform_checkpoints of MindSpore
 * give it:
 *
 *     u64 LEN                    little-endian; of the header with its padding
 *     {"__metadata__":{"format":"ms"},"w":{"dtype":"F32","shape":[4,8],"data_offsets":[0,128]},…}
 *     spaces                     until LEN is a multiple of 8
 *     content…                   of the tensors, in the header's order, with nothing between them
 *
 * Tensors are in descending order of their dtype (that of the table below), then by the bytes of
 * their names. data_offsets begin after the header. A scalar's shape is []. Int4 is I8, and the
 * metadata says "name":"Int4". The library writes metadata of more than one key in an order of
 * chance; here they are sorted by their bytes.
 */
#include "image/image.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"

/* Readers take no longer header: the library's MAX_HEADER_SIZE, and MindSpore's. */
#define HEADER_MOST 100000000

#define METADATA "__metadata__"

/* The library's order of dtypes; others have no name there. */
static const unsigned char ranks[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = 1,        [RFS_UINT8] = 2,         [RFS_INT8] = 3,     [RFS_INT4] = 3,
    [RFS_FLOAT8_E5M2] = 4, [RFS_FLOAT8_E4M3FN] = 5, [RFS_INT16] = 6,    [RFS_UINT16] = 7,
    [RFS_FLOAT16] = 8,     [RFS_BFLOAT16] = 9,      [RFS_INT32] = 10,   [RFS_UINT32] = 11,
    [RFS_FLOAT32] = 12,    [RFS_COMPLEX64] = 13,    [RFS_FLOAT64] = 14, [RFS_INT64] = 15,
    [RFS_UINT64] = 16,
};

struct tensor {
    const char *name;
    size_t name_bytes;
    const struct rfs_type *type;
    uint32_t position; /* number in the parameter list */
};

RFS_COMPARE(by_name, struct tensor, x, y,
            rfs_order_bytes(x->name, x->name_bytes, y->name, y->name_bytes))
RFS_COMPARE(in_file, struct tensor, x, y,
            RFS_ORDER(ranks[y->type->dtype], ranks[x->type->dtype]) ?: by_name(x, y))

static bool is_text(const struct tensor *tensor, const char *text)
{
    return tensor->name_bytes == strlen(text) &&
           memcmp(tensor->name, text, tensor->name_bytes) == 0;
}

/* Refuses values that the format cannot hold. */
static int check_tensor(const struct rfs_catalog *catalog, const struct tensor *tensor, bool alone,
                        bool any_format, struct rfs_error *err)
{
    const struct rfs_where where = RFS_OF(rfs_catalog_path(catalog), tensor->name);
    const char *remedy =
        alone ? "a .npy file"
        : any_format
            ? "-o format=ckpt, or -o names= with a map that gives it null, which leaves it out"
            : "-o names= with a map that gives it null, which leaves it out";
    const enum rfs_dtype dtype = (enum rfs_dtype)tensor->type->dtype;

    if (tensor->type->kind != RFS_TENSOR)
        return rfs_fail(err, -EINVAL, where, remedy, "is a %s, which safetensors files cannot hold",
                        tensor->type->kind == RFS_STRING ? "string" : "map tensor");
    if (ranks[dtype] == 0)
        return rfs_fail(err, -EINVAL, where, remedy,
                        "is of type %s, which safetensors files cannot hold",
                        rfs_dtype_name(dtype));
    if (is_text(tensor, METADATA))
        return rfs_fail(err, -EINVAL, where,
                        alone ? "a .npy file" : "-o names= with a map that gives it another name",
                        "has a name that safetensors files reserve");
    return 0;
}

/* Lists the targets as tensors, in the order of the file. */
static int collect(struct rfs_catalog *catalog, const struct rfs_selection *selection, bool alone,
                   struct tensor **out, size_t *n, struct rfs_error *err)
{
    *n = selection->positions ? selection->n : selection->params->n;
    *out = calloc(*n + 1, sizeof **out);
    if (!*out)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < *n; i++) {
        const uint32_t position = selection->positions ? selection->positions[i] : (uint32_t)i;
        const struct rfs_target *target = &selection->params->targets[position];
        struct tensor *tensor = &(*out)[i];
        tensor->position = position;
        tensor->type = rfs_catalog_type(catalog, target->shown_type);
        tensor->name = rfs_intern_bytes(rfs_catalog_tables(catalog)->names, target->shown_name,
                                        &tensor->name_bytes);
        const int rc = check_tensor(catalog, tensor, alone, !selection->divide, err);
        if (rc)
            return rc;
    }
    RFS_SORT(*out, *n, in_file);
    return 0;
}

/*
 * Puts the format, if there is one, and the names of Int4 tensors; nothing if there is neither. A
 * tensor that is called "format" replaces the format, as in MindSpore.
 */
static bool put_metadata(struct rfs_json_write *json, const struct tensor *tensors, size_t n,
                         const char *format)
{
    RFS_FREE struct tensor *keys = calloc(n + 1, sizeof *keys); /* without a type: the format */
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
        keys[n_keys++] = (struct tensor){.name = "format", .name_bytes = strlen("format")};
    RFS_SORT(keys, n_keys, by_name);
    if (n_keys == 0)
        return true;
    rfs_json_object(json, METADATA, RFS_JSON_TIGHT);
    for (size_t i = 0; i < n_keys; i++) {
        rfs_json_put_key(json, keys[i].name, keys[i].name_bytes);
        rfs_json_put_text(json, NULL, keys[i].type ? "Int4" : format);
    }
    rfs_json_end(json);
    return true;
}

static void put_tensor(struct rfs_json_write *json, const struct tensor *tensor, uint64_t begin,
                       uint64_t end)
{
    const struct rfs_type *type = tensor->type;

    rfs_json_put_key(json, tensor->name, tensor->name_bytes);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "dtype", rfs_dtype_safetensors((enum rfs_dtype)type->dtype));
    rfs_json_put_u64s(json, "shape", RFS_JSON_TIGHT, type->dims, type->ndim);
    rfs_json_put_u64s(json, "data_offsets", RFS_JSON_TIGHT, (uint64_t[]){begin, end}, 2);
    rfs_json_end(json);
}

/* Puts the header with its length before it. */
static int put_header(const struct rfs_catalog *catalog, struct rfs_bytes *header,
                      const struct tensor *tensors, size_t n, const char *format,
                      const char *divide, struct rfs_error *err)
{
    static const unsigned char none[8] = {0};
    struct rfs_json_write json = {.bytes = header, .escapes = RFS_JSON_UTF8};
    uint64_t at = 0;

    rfs_bytes_put(header, none, sizeof none);
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    if (!put_metadata(&json, tensors, n, format))
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        uint64_t end;
        if (!rfs_add_u64(at, tensors[i].type->bytes, &end) || end > INT64_MAX / 2)
            return rfs_fail(err, -EFBIG, RFS_OF(rfs_catalog_path(catalog), tensors[i].name), NULL,
                            "with it, the file would be larger than a file can be");
        put_tensor(&json, &tensors[i], at, end);
        at = end;
    }
    rfs_json_end(&json);
    while (!header->failed && header->n % 8 != 0)
        rfs_bytes_put_text(header, " ");
    if (header->failed)
        return rfs_fail_memory(err);
    const uint64_t length = header->n - sizeof none;
    if (length > HEADER_MOST)
        return rfs_fail(err, -EFBIG, RFS_IN(rfs_catalog_path(catalog)),
                        divide ? divide : "-o format=ckpt",
                        "the header of a safetensors file would have %llu bytes, and its readers "
                        "take %d at most",
                        (unsigned long long)length, HEADER_MOST);
    for (unsigned i = 0; i < sizeof none; i++)
        header->data[i] = (unsigned char)(length >> 8 * i);
    return 0;
}

int rfs_image_safetensors(struct rfs_catalog *catalog, const struct rfs_selection *selection,
                          const char *format, struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_FREE struct tensor *tensors = NULL;
    size_t n;

    *out = NULL;
    int rc =
        collect(catalog, selection, !format, &tensors, &n, err)
            ?: put_header(catalog, &builder.literals, tensors, n, format, selection->divide, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        rfs_image_add(&builder, tensors[i].position, 0, tensors[i].type->bytes);
    return rfs_image_finish(&builder, selection->params, out) ? rfs_fail_memory(err) : 0;
}
