/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/tensor_file.h"

#include "base/cleanup.h"
#include "formats/ckpt/ckpt.h"
#include "formats/npy/npy.h"
#include "view/contents.h"

RFS_CLEANUP_OF(free_image, struct rfs_image *, rfs_image_free)

int rfs_inspect_head(struct rfs_tensor tensor, bool safetensors, struct rfs_bytes *out,
                     struct rfs_error *err)
{
    const struct rfs_tensors *list = tensor.list;
    const struct rfs_safetensors_content alone = {.n = 1};
    RFS_CLEANUP(free_image) struct rfs_image *image = NULL;
    int rc;

    *out = (struct rfs_bytes){0};
    if (safetensors)
        rc =
            rfs_view_encode_safetensors(list->catalog, list->params, &tensor.i, alone, &image, err);
    else if ((rc = rfs_npy_encode(rfs_tensor_type(tensor), tensor.i, &image)) != 0)
        rc = rc == -ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, rc, RFS_OF(list->path, rfs_tensor_name(tensor)), NULL,
                                      "the file would be too large");
    if (rc)
        return rc;
    rfs_bytes_put(out, image->literals, image->literal_bytes);
    return out->failed ? rfs_fail_memory(err) : 0;
}

_Static_assert(RFS_INSPECT_CKPT_CHUNK == RFS_CKPT_CHUNK, "the tool writes as the encoder does");

bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content)
{
    return rfs_ckpt_put_head(out, name, strlen(name), type, content);
}
