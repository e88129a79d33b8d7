/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a .ckpt file as save_checkpoint of MindSpore 2.10 writes it
 * (train/serialization.py, _exec_save and _write_parameter_bytes_data): one Checkpoint message for each
 * 512 MiB of each tensor, in protobuf's wire format:
 *
 *     0a LEN                      Checkpoint.value
 *        0a LEN name              Value.tag
 *        12 LEN                   Value.tensor
 *           08 DIM …              TensorProto.dims, one each; none for a scalar
 *           12 LEN type           TensorProto.tensor_type
 *           1a LEN | content      TensorProto.tensor_content
 *
 * What stands before the bar is literal, what follows is the tensor's. All chunks of a tensor repeat
 * the whole dims. A string value has dims [0]. Map tensors are copied message by message.
 */
#include "image/image.h"

#include "base/cleanup.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (UINT64_C(512) << 20)

struct encoder {
    struct rfs_catalog *catalog;
    uint64_t offset; /* in the file, of what is added next */
    RFS_VEC(struct rfs_region) regions;
    RFS_VEC(unsigned char) literals;
};

static void encoder_end(struct encoder *encoder)
{
    free(encoder->regions.data);
    free(encoder->literals.data);
}

static size_t varint_length(uint64_t value)
{
    size_t n = 1;
    while (value >= 0x80) {
        value >>= 7;
        n++;
    }
    return n;
}

static bool put_byte(struct encoder *encoder, unsigned char byte)
{
    return RFS_PUSH(&encoder->literals, byte);
}

static bool put_varint(struct encoder *encoder, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        if (!put_byte(encoder, (unsigned char)(value | 0x80)))
            return false;
    return put_byte(encoder, (unsigned char)value);
}

static bool put_text(struct encoder *encoder, unsigned char tag, const char *text, size_t length)
{
    if (!put_byte(encoder, tag) || !put_varint(encoder, length))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!put_byte(encoder, (unsigned char)text[i]))
            return false;
    return true;
}

/* Bytes of a length-delimited field: its tag, its length and itself. */
static uint64_t field_length(uint64_t length)
{
    return 1 + varint_length(length) + length;
}

static bool add_region(struct encoder *encoder, uint32_t target, uint64_t at, uint64_t bytes)
{
    const struct rfs_region region = {encoder->offset, at, target};

    encoder->offset += bytes;
    return bytes == 0 || RFS_PUSH(&encoder->regions, region);
}

/* The literal bytes from AT on, continuing the region before when that is literal too. */
static bool add_literal(struct encoder *encoder, size_t at)
{
    const uint64_t bytes = encoder->literals.n - at;

    if (encoder->regions.n > 0 &&
        encoder->regions.data[encoder->regions.n - 1].target == RFS_LITERAL) {
        encoder->offset += bytes;
        return true;
    }
    return add_region(encoder, RFS_LITERAL, at, bytes);
}

/* The dims as stored: a string's are [0]. */
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

static bool put_header(struct encoder *encoder, const char *name, size_t name_bytes,
                       const struct rfs_type *type, uint64_t content)
{
    const uint64_t *dims;
    const uint32_t n_dims = stored_dims(type, &dims);
    const char *dtype = rfs_dtype_name((enum rfs_dtype)type->dtype);
    const size_t dtype_bytes = strlen(dtype);
    uint64_t tensor = field_length(dtype_bytes) + field_length(content);

    for (uint32_t i = 0; i < n_dims; i++)
        tensor += 1 + varint_length(dims[i]);
    const uint64_t value = field_length(name_bytes) + field_length(tensor);
    bool ok = put_byte(encoder, 0x0a) && put_varint(encoder, value) &&
              put_text(encoder, 0x0a, name, name_bytes) && put_byte(encoder, 0x12) &&
              put_varint(encoder, tensor);
    for (uint32_t i = 0; ok && i < n_dims; i++)
        ok = put_byte(encoder, 0x08) && put_varint(encoder, dims[i]);
    return ok && put_text(encoder, 0x12, dtype, dtype_bytes) && put_byte(encoder, 0x1a) &&
           put_varint(encoder, content);
}

static bool add_target(struct encoder *encoder, const struct rfs_roster *roster, uint32_t i)
{
    const struct rfs_target *target = &roster->targets[i];
    const struct rfs_type *type = rfs_catalog_type(encoder->catalog, target->shown_type);
    size_t name_bytes;
    const char *name = rfs_intern_bytes(rfs_catalog_tables(encoder->catalog)->names,
                                        target->shown_name, &name_bytes);
    uint64_t done = 0;

    if (type->kind == RFS_MAP)
        return add_region(encoder, i, 0, type->bytes);
    do {
        const size_t at = encoder->literals.n;
        const uint64_t left = type->bytes - done;
        const uint64_t content = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (!put_header(encoder, name, name_bytes, type, content) || !add_literal(encoder, at) ||
            !add_region(encoder, i, done, content))
            return false;
        done += content;
    } while (done < type->bytes);
    return true;
}

int rfs_image_ckpt(struct rfs_catalog *catalog, const struct rfs_roster *roster,
                   struct rfs_image **out)
{
    RFS_CLEANUP(encoder_end) struct encoder encoder = {.catalog = catalog};
    struct rfs_image *image;

    *out = NULL;
    for (size_t i = 0; i < roster->n; i++)
        if (!add_target(&encoder, roster, (uint32_t)i))
            return -ENOMEM;
    image = calloc(1, sizeof *image);
    if (!image)
        return -ENOMEM;
    image->roster = roster;
    image->bytes = encoder.offset;
    image->n = encoder.regions.n;
    image->literal_bytes = encoder.literals.n;
    image->regions = RFS_STEAL(encoder.regions.data);
    image->literals = RFS_STEAL(encoder.literals.data);
    *out = image;
    return 0;
}
