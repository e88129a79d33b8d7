/* SPDX-License-Identifier: Apache-2.0 */
#include "source/index.h"

#include <stdlib.h>

const struct rfs_entry *rfs_index_find(const struct rfs_index *index, uint32_t name)
{
    size_t low = 0;
    size_t high = index->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const struct rfs_entry *entry = &index->entries[index->by_name[mid]];
        if (entry->name == name)
            return entry;
        if (entry->name < name)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

size_t rfs_index_memory(const struct rfs_index *index)
{
    return sizeof *index + index->n * (sizeof *index->entries + sizeof *index->by_name) +
           index->n_extents * sizeof *index->extents +
           (index->part_of ? index->n * sizeof *index->part_of : 0);
}

void rfs_index_free(struct rfs_index *index)
{
    if (!index)
        return;
    free(index->entries);
    free(index->by_name);
    free(index->extents);
    free(index->part_of);
    free(index);
}
