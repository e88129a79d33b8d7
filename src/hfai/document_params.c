/* SPDX-License-Identifier: Apache-2.0 */
#include "hfai/document.h"
#include "plan/planner.h"

static int fail_target(struct rfs_catalog *catalog, const struct rfs_target *target,
                       const struct rfs_type *type, struct rfs_error *err)
{
    const char *what = type->kind == RFS_STRING ? "a string"
                       : type->kind == RFS_MAP  ? "a map tensor"
                                                : rfs_dtype_name((enum rfs_dtype)type->dtype);
    return rfs_fail(err, -EINVAL,
                    RFS_OF(rfs_catalog_path(catalog), rfs_catalog_name(catalog, target->name)),
                    "format=ckpt, or names= mapping it to null to leave it out",
                    "is %s, and torch has no tensors of that type", what);
}

int rfs_document_params(struct rfs_document *document, struct rfs_catalog *catalog,
                        const struct rfs_params *params, struct rfs_error *err)
{
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);
    bool ok = dict != NULL;

    for (size_t i = 0; ok && i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        const struct rfs_type *type = rfs_catalog_type(catalog, target->shown_type);
        const enum rfs_dtype dtype = (enum rfs_dtype)type->dtype;
        if (type->kind != RFS_TENSOR || !rfs_torch_dtype_name(dtype))
            return fail_target(catalog, target, type, err);
        ok = rfs_document_reserve(document, type->bytes) &&
             rfs_document_add(
                 document, dict,
                 rfs_document_text(document, rfs_catalog_name(catalog, target->shown_name))) &&
             rfs_document_add(document, dict,
                              rfs_document_tensor(document, dtype, type->ndim, type->dims));
    }
    document->root = dict;
    return ok ? 0 : rfs_fail_memory(err);
}
