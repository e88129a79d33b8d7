/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a .ckpt file, which ckpt.c draws, as save_checkpoint of MindSpore 2.10 writes it
 * (train/serialization.py, _exec_save and _write_parameter_bytes_data): fields in the order of
 * their numbers, dims one by one, a value for each 512 MiB of a tensor. All but contents is
 * literal. The three tensors of a map are copied as they are.
 *
 * load_checkpoint checks the trailer. (save_checkpoint leaves map tensors out of its sum, so that
 * MindSpore refuses its own file; here they count.)
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "formats/ckpt/ckpt.h"

static size_t varint_length(uint64_t value)
{
    size_t n = 1;
    while (value >= 0x80) {
        value >>= 7;
        n++;
    }
    return n;
}

static void put_varint(struct rfs_bytes *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    rfs_bytes_put(out, bytes, n);
}

static void put_tag(struct rfs_bytes *out, unsigned char tag, uint64_t value)
{
    rfs_bytes_put(out, &tag, 1);
    put_varint(out, value);
}

static void put_text(struct rfs_bytes *out, unsigned char tag, const char *text, size_t length)
{
    put_tag(out, tag, length);
    rfs_bytes_put(out, text, length);
}

/* Returns the bytes of a length-delimited field: its tag, its length and itself. */
static uint64_t field_length(uint64_t length)
{
    return 1 + varint_length(length) + length;
}

/* Returns the number of dims as stored, and the dims: a string's are [0]. */
static uint32_t stored_dims(const struct rfs_type *type, const uint64_t **dims)
{
    static const uint64_t none[1] = {0};

    if (type->kind == RFS_STRING) {
        *dims = none;
        return 1;
    }
    *dims = type->dims;
    return type->ndim;
}

bool rfs_ckpt_put_head(struct rfs_bytes *out, const char *name, size_t name_bytes,
                       const struct rfs_type *type, uint64_t content)
{
    const uint64_t *dims;
    const uint32_t n_dims = stored_dims(type, &dims);
    const char *dtype = rfs_dtype_name((enum rfs_dtype)type->dtype);
    const size_t dtype_bytes = strlen(dtype);
    uint64_t tensor = field_length(dtype_bytes) + field_length(content);

    for (uint32_t i = 0; i < n_dims; i++)
        tensor += 1 + varint_length(dims[i]);
    put_tag(out, 0x0a, field_length(name_bytes) + field_length(tensor));
    put_text(out, 0x0a, name, name_bytes);
    put_tag(out, 0x12, tensor);
    for (uint32_t i = 0; i < n_dims; i++)
        put_tag(out, 0x08, dims[i]);
    put_text(out, 0x12, dtype, dtype_bytes);
    put_tag(out, 0x1a, content);
    return !out->failed;
}

/* Adds the messages of a map tensor, each as long as in the source. */
static void add_map(struct rfs_image_builder *builder, const struct rfs_image_tensor *tensor)
{
    uint64_t done = 0;

    for (size_t k = 0; k < tensor->n_lengths; done += tensor->lengths[k++]) {
        const uint64_t length = tensor->lengths[k];
        put_tag(&builder->literals, 0x0a, field_length(tensor->name_bytes) + field_length(length));
        put_text(&builder->literals, 0x0a, tensor->name, tensor->name_bytes);
        put_tag(&builder->literals, 0x1a, length);
        rfs_image_add(builder, tensor->target, done, length);
    }
}

static void add_tensor(struct rfs_image_builder *builder, const struct rfs_image_tensor *tensor)
{
    uint64_t done = 0;

    do {
        const uint64_t content = rfs_min_u64(tensor->type->bytes - done, RFS_CKPT_CHUNK);
        rfs_ckpt_put_head(&builder->literals, tensor->name, tensor->name_bytes, tensor->type,
                          content);
        rfs_image_add(builder, tensor->target, done, content);
        done += content;
    } while (done < tensor->type->bytes);
}

int rfs_ckpt_encode(const struct rfs_image_tensor *tensors, size_t n, bool crc,
                    struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};

    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].type->kind == RFS_MAP)
            add_map(&builder, &tensors[i]);
        else
            add_tensor(&builder, &tensors[i]);
        if (builder.failed || builder.literals.failed)
            return -ENOMEM;
    }
    if (crc) {
        rfs_bytes_put(&builder.literals, "crc_num\0\0\0\0\0\0", RFS_CRC_TRAILER - RFS_CRC_BYTES);
        rfs_image_add(&builder, RFS_CRC, 0, RFS_CRC_BYTES);
    }
    return rfs_image_finish(&builder, out);
}
