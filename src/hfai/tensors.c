/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model one by one, for formats that are not torch's: row-major, and none shared.
 */
#include "hfai/internal.h"

#include "base/text.h"

static void set_type(struct rfs_type *type, enum rfs_dtype dtype, uint32_t ndim,
                     const uint64_t *dims)
{
    *type = (struct rfs_type){.bytes = rfs_dtype_bytes(dtype),
                              .ndim = (uint8_t)ndim,
                              .dtype = (uint8_t)dtype,
                              .kind = RFS_TENSOR};
    for (uint32_t i = 0; i < ndim; i++) {
        type->dims[i] = dims[i];
        type->bytes *= dims[i];
    }
}

/* The part of a storage from a tensor's first element on; a row-major one's is just itself. */
static struct rfs_range range_of(const struct rfs_torch_tensor *tensor, uint64_t bytes,
                                 uint16_t origin)
{
    const uint64_t offset = tensor->offset * rfs_dtype_bytes(tensor->dtype);
    const uint64_t rest = tensor->record->bytes - offset;
    return (struct rfs_range){tensor->record, offset, tensor->contiguous ? bytes : rest, origin};
}

bool rfs_hfai_tensors_whole(const struct rfs_hfai *hfai, const struct rfs_torch_tensor *tensor,
                            uint16_t origin, struct rfs_storages *storages, struct rfs_type *type)
{
    uint64_t strides[RFS_MAX_DIMS];

    set_type(type, tensor->dtype, tensor->ndim, tensor->dims);
    if (!rfs_storages_begin(storages))
        return false;
    if (type->bytes == 0)
        return true;
    const struct rfs_range range = range_of(tensor, type->bytes, origin);
    if (!rfs_storages_add(storages, hfai->parts[origin].file, &range))
        return false;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        strides[i] = tensor->strides[i] * rfs_dtype_bytes(tensor->dtype);
    return tensor->contiguous || rfs_storages_set_strided(storages, type, strides);
}

bool rfs_hfai_tensors_large(const struct rfs_hfai *hfai, const struct hfai_state *state,
                            const struct hfai_large *large, struct rfs_storages *storages,
                            struct rfs_type *type)
{
    set_type(type, large->dtype, large->ndim, large->dims);
    if (!rfs_storages_begin(storages))
        return false;
    for (uint32_t p = 0; p < hfai->n_parts; p++)
        if (!rfs_storages_add(storages, hfai->parts[p].file, &state->ranges.data[large->first + p]))
            return false;
    return true;
}

int rfs_hfai_tensors_show(const struct rfs_hfai *hfai, struct rfs_storages *storages,
                          uint64_t bytes, struct rfs_error *err)
{
    struct rfs_torch_shown shown = {storages->shown, hfai->large.file_bytes};
    const int rc = rfs_torch_show(&shown, bytes, rfs_catalog_path(hfai->catalog), NULL, err);

    storages->shown = shown.bytes;
    return rc;
}

int rfs_hfai_tensor(const struct rfs_hfai *hfai, size_t model, size_t i,
                    struct rfs_storages *storages, struct rfs_hfai_tensor *out,
                    struct rfs_error *err)
{
    const struct hfai_state *state = &hfai->models[model];
    const struct rfs_node *key;
    int rc;
    bool ok;

    if (i < state->entries.n) {
        const struct rfs_node *value = state->entries.data[i].value;
        struct rfs_torch_tensor tensor;
        key = state->entries.data[i].key;
        rc = rfs_torch_tensor(&hfai->parts[value->origin].torch, value,
                              rfs_hfai_path(hfai, value->origin), "", &tensor, err);
        if (rc < 0)
            return rc;
        ok = rfs_hfai_tensors_whole(hfai, &tensor, value->origin, storages, &out->type);
    } else {
        if (i - state->entries.n >= state->large.n)
            return 0;
        const struct hfai_large *large = &state->large.data[i - state->entries.n];
        key = large->key;
        ok = rfs_hfai_tensors_large(hfai, state, large, storages, &out->type);
    }
    if (!rfs_text_is_utf8(key->of.text.data, key->of.text.n))
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(hfai->catalog)), NULL,
                        "the name of a parameter is not UTF-8 text without NULs");
    out->name = key->of.text.data;
    out->name_bytes = key->of.text.n;
    rc = rfs_hfai_tensors_show(hfai, storages, out->type.bytes, err);
    if (rc)
        return rc;
    return ok ? 1 : rfs_fail_memory(err);
}
