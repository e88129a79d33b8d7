/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: what encoders put images together with. False means out of memory. */
#ifndef RFS_IMAGE_BUILD_H
#define RFS_IMAGE_BUILD_H

#include "base/bytes.h"
#include "base/vec.h"
#include "image/image.h"

enum rfs_json_style {
    RFS_JSON_SERDE,  /* as the safetensors library writes: UTF-8 as it is */
    RFS_JSON_PYTHON, /* as json.dumps does: ASCII only, the rest as UTF-16 in \uNNNN */
};
/* TEXT, which is UTF-8, as a JSON string with its quotes. */
bool rfs_bytes_put_json(struct rfs_bytes *bytes, const char *text, size_t n,
                        enum rfs_json_style style);

/* Zero-initialise; rfs_image_builder_end frees what was not taken over. */
struct rfs_image_builder {
    uint64_t offset; /* in the file, of what is added next */
    struct rfs_bytes literals;
    RFS_VEC(struct rfs_region) regions;
    bool too_large; /* the file would be larger than a file can be */
};

/* A region of a target's bytes, or RFS_CRC; none when BYTES is 0. */
bool rfs_image_add(struct rfs_image_builder *builder, uint32_t target, uint64_t at, uint64_t bytes);
/* The literals from AT on; they continue the region before when that is literal too. */
bool rfs_image_add_literals(struct rfs_image_builder *builder, size_t at);
/* The image, which takes the builder's arrays over. 0, -ENOMEM, or -EFBIG when it is larger than a file can be. */
int rfs_image_finish(struct rfs_image_builder *builder, const struct rfs_params *params,
                     struct rfs_image **out);
void rfs_image_builder_end(struct rfs_image_builder *builder);

#endif
