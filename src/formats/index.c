/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/index.h"

#include "base/checked.h"
#include "base/order.h"

const struct rfs_entry *rfs_index_find(const struct rfs_index *index, uint32_t name)
{
    const size_t at = RFS_BISECT_KEY(i, index->n, index->entries[index->by_name[i]].name, name);

    return at < index->n ? &index->entries[index->by_name[at]] : NULL;
}

const uint64_t *rfs_index_strides(const struct rfs_index *index, const struct rfs_entry *entry)
{
    const size_t number = (size_t)(entry - index->entries);
    const size_t at = RFS_BISECT_KEY(i, index->n_strided, index->strided[i].entry, number);

    return at < index->n_strided ? index->strided[at].stride : NULL;
}

const struct rfs_quant *rfs_index_quant(const struct rfs_index *index,
                                        const struct rfs_entry *entry)
{
    const size_t number = (size_t)(entry - index->entries);
    const size_t at = RFS_BISECT_KEY(i, index->n_quantized, index->quantized[i].entry, number);

    return at < index->n_quantized ? index->quantized[at].quant : NULL;
}

bool rfs_type_bytes(const struct rfs_type *type, uint64_t *bytes)
{
    uint64_t product = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    bool none = false;

    for (unsigned i = 0; i < type->ndim; i++) {
        none |= type->dims[i] == 0;
        if (!rfs_mul_u64(product, rfs_max_u64(type->dims[i], 1), &product) || product > INT64_MAX)
            return false;
    }
    *bytes = none ? 0 : product;
    return true;
}

uint64_t rfs_type_number(const struct rfs_type *type, const uint64_t *place)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < type->ndim; i++)
        number = number * type->dims[i] + place[i];
    return number;
}

void rfs_type_place(const struct rfs_type *type, uint64_t number, uint64_t *place)
{
    for (uint32_t i = type->ndim; i-- > 0;) {
        const uint64_t dim = rfs_max_u64(type->dims[i], 1);
        place[i] = number % dim;
        number /= dim;
    }
}

size_t rfs_index_memory(const struct rfs_index *index)
{
    return sizeof *index + index->n * (sizeof *index->entries + sizeof *index->by_name) +
           index->n_extents * sizeof *index->extents + index->n_strided * sizeof *index->strided +
           index->n_quantized * sizeof *index->quantized +
           (index->file_of ? index->n * sizeof *index->file_of : 0);
}

struct rfs_index *rfs_index_share(struct rfs_index *index)
{
    atomic_fetch_add(&index->shares, 1);
    return index;
}

size_t rfs_index_free(struct rfs_index *index)
{
    if (!index || atomic_fetch_sub(&index->shares, 1) > 0)
        return 0;
    const size_t bytes = rfs_index_memory(index);
    free(index->entries);
    free(index->by_name);
    free(index->extents);
    free(index->file_of);
    free(index->strided);
    free(index->quantized);
    free(index);
    return bytes;
}

static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct rfs_entry *entries = ctx;
    const uint32_t i = *(const uint32_t *)a;
    const uint32_t j = *(const uint32_t *)b;
    if (entries[i].name != entries[j].name)
        return entries[i].name < entries[j].name ? -1 : 1;
    return i < j ? -1 : i > j;
}

int rfs_index_order_names(struct rfs_index *index, size_t *first, size_t *second)
{
    if (!index->by_name)
        index->by_name = malloc(index->n * sizeof *index->by_name + 1);
    if (!index->by_name)
        return -ENOMEM;
    for (size_t i = 0; i < index->n; i++)
        index->by_name[i] = (uint32_t)i;
    RFS_SORT_BY(index->by_name, index->n, compare_names, index->entries);
    *second = index->n;
    for (size_t i = 1; i < index->n; i++) {
        const uint32_t before = index->by_name[i - 1];
        const uint32_t at = index->by_name[i];
        if (at < *second && index->entries[before].name == index->entries[at].name) {
            *first = before;
            *second = at;
        }
    }
    return *second < index->n;
}
