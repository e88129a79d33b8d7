/* SPDX-License-Identifier: Apache-2.0 */
#include "image/build.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The letter of a short escape, or 0. */
static char short_escape(unsigned char c)
{
    static const char letters[] = "btn\0fr"; /* of 0x08 to 0x0d */

    if (c == '"' || c == '\\')
        return (char)c;
    return c >= 0x08 && c <= 0x0d ? letters[c - 0x08] : 0;
}

static bool put_unit(struct rfs_bytes *bytes, uint32_t unit)
{
    char text[8];

    snprintf(text, sizeof text, "\\u%04x", unit & 0xffff);
    return rfs_bytes_put_text(bytes, text);
}

/* A character beyond ASCII as one unit of UTF-16 or two. */
static bool put_character(struct rfs_bytes *bytes, uint32_t character)
{
    if (character < 0x10000)
        return put_unit(bytes, character);
    character -= 0x10000;
    return put_unit(bytes, 0xd800 + (character >> 10)) &&
           put_unit(bytes, 0xdc00 + (character & 0x3ff));
}

/* The character at TEXT, which is valid UTF-8 and has LEFT bytes, and its length. */
static uint32_t decode(const unsigned char *text, size_t left, size_t *length)
{
    const unsigned char c = text[0];

    *length = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (*length > left)
        *length = left;
    uint32_t character = *length == 1 ? c : c & (0xffu >> (*length + 1));
    for (size_t i = 1; i < *length; i++)
        character = character << 6 | (text[i] & 0x3fu);
    return character;
}

bool rfs_bytes_put_json(struct rfs_bytes *bytes, const char *text, size_t n,
                        enum rfs_json_style style)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length;
    bool ok = rfs_bytes_put(bytes, "\"", 1);

    for (size_t i = 0; ok && i < n; i += length) {
        const char letter = short_escape(at[i]);
        const uint32_t character = decode(at + i, n - i, &length);
        if (letter)
            ok = rfs_bytes_put(bytes, "\\", 1) && rfs_bytes_put(bytes, &letter, 1);
        else if (character < 0x20 || (style == RFS_JSON_PYTHON && character > 0x7e))
            ok = put_character(bytes, character);
        else
            ok = rfs_bytes_put(bytes, at + i, length);
    }
    return ok && rfs_bytes_put(bytes, "\"", 1);
}

bool rfs_image_add(struct rfs_image_builder *builder, uint32_t target, uint64_t at, uint64_t bytes)
{
    const struct rfs_region region = {builder->offset, at, target};

    if (!rfs_add_u64(builder->offset, bytes, &builder->offset) || builder->offset > INT64_MAX)
        builder->too_large = true;
    return bytes == 0 || RFS_PUSH(&builder->regions, region);
}

bool rfs_image_add_literals(struct rfs_image_builder *builder, size_t at)
{
    const uint64_t bytes = builder->literals.n - at;

    if (builder->regions.n > 0 &&
        builder->regions.data[builder->regions.n - 1].target == RFS_LITERAL) {
        builder->offset += bytes;
        return true;
    }
    return rfs_image_add(builder, RFS_LITERAL, at, bytes);
}

int rfs_image_finish(struct rfs_image_builder *builder, const struct rfs_params *params,
                     struct rfs_image **out)
{
    struct rfs_image *image = builder->too_large ? NULL : calloc(1, sizeof *image);

    *out = image;
    if (builder->too_large)
        return -EFBIG;
    if (!image)
        return -ENOMEM;
    image->params = params;
    image->bytes = builder->offset;
    image->n = builder->regions.n;
    image->literal_bytes = builder->literals.n;
    image->regions = RFS_STEAL(builder->regions.data);
    image->literals = RFS_STEAL(builder->literals.data);
    return 0;
}

void rfs_image_builder_end(struct rfs_image_builder *builder)
{
    free(builder->regions.data);
    free(builder->literals.data);
}
