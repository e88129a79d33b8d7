/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/saved/built.h"

#include "base/intern.h"

struct rfs_built *rfs_built_new(uint32_t pieces)
{
    struct rfs_built *built = calloc(1, sizeof *built + pieces * sizeof *built->pieces);

    if (built) {
        built->n_pieces = pieces;
        built->from = RFS_NO_ID;
    }
    return built;
}

size_t rfs_built_free(struct rfs_built *built)
{
    size_t bytes = 0;

    if (!built)
        return 0;
    for (uint32_t i = 0; i < built->n_pieces; i++)
        bytes += rfs_index_free(built->pieces[i]);
    bytes += rfs_index_free(built->merged);
    free(built);
    return bytes;
}

size_t rfs_built_memory(const struct rfs_built *built)
{
    size_t bytes = built->merged ? rfs_index_memory(built->merged) : 0;
    for (uint32_t i = 0; i < built->n_pieces; i++)
        if (built->pieces[i] && atomic_load(&built->pieces[i]->shares) == 0)
            bytes += rfs_index_memory(built->pieces[i]);
    return bytes;
}
