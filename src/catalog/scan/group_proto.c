/* SPDX-License-Identifier: Apache-2.0 */
/* Group info files: ParallelGroupMap of proto/node_strategy.proto. */
#include "catalog/scan/group_proto.h"

#include "base/cleanup.h"
#include "base/read_whole.h"
#include "catalog/scan/scan.h"

#include "proto/node_strategy.pb-c.h"

/* Thousands of groups of thousands of ranks. */
#define GROUP_BYTES ((size_t)8 << 20)
/* They take this much as messages; a file that takes more has groups without ranks. */
#define MESSAGE_BYTES ((size_t)15 << 20)

/* A block of memory for messages, with its size. */
struct block {
    size_t bytes;
    max_align_t data[];
};

struct room {
    size_t left;
    int refused; /* -ENOMEM, or -EFBIG: a block did not fit */
};

static void *take(void *ctx, size_t bytes)
{
    struct room *room = ctx;
    const bool fits = bytes < room->left;
    struct block *block = fits ? malloc(sizeof *block + bytes) : NULL;

    if (!block) {
        room->refused = fits ? -ENOMEM : -EFBIG;
        return NULL;
    }
    block->bytes = bytes;
    room->left -= bytes;
    return block->data;
}

static void give_back(void *ctx, void *data)
{
    struct room *room = ctx;
    struct block *block = (struct block *)((char *)data - offsetof(struct block, data));

    if (!data)
        return;
    room->left += block->bytes;
    free(block);
}

/* Copies the ranks of a list, which may have one any number of times. */
static int copy_ranks(const char *path, const Straspb__ParallelGroupRanks *list,
                      struct rfs_group *out, struct rfs_error *err)
{
    RFS_FREE unsigned char *set = calloc(RFS_MAX_RANK / 8 + 1, 1);
    size_t n = 0;

    for (size_t i = 0; set && i < list->n_dim; i++) {
        const uint32_t rank = list->dim[i];
        if (rank > RFS_MAX_RANK)
            return rfs_fail(err, -EINVAL, RFS_IN(path), NULL,
                            "it names rank %u: ranks above %u are not supported", rank,
                            RFS_MAX_RANK);
        n += !(set[rank / 8] >> rank % 8 & 1);
        set[rank / 8] = (unsigned char)(set[rank / 8] | 1u << rank % 8);
    }
    out->ranks = set ? calloc(n > 0 ? n : 1, sizeof *out->ranks) : NULL;
    if (!out->ranks)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank <= RFS_MAX_RANK; rank++)
        if (set[rank / 8] >> rank % 8 & 1)
            out->ranks[out->n++] = rank;
    return 0;
}

int rfs_group_parse(const char *path, const void *data, size_t size, struct rfs_group *out,
                    struct rfs_error *err)
{
    struct room room = {.left = MESSAGE_BYTES};
    ProtobufCAllocator allocator = {take, give_back, &room};
    Straspb__ParallelGroupMap *map = straspb__parallel_group_map__unpack(&allocator, size, data);

    *out = (struct rfs_group){0};
    if (!map && room.refused == -ENOMEM)
        return rfs_fail_memory(err);
    if (!map && room.refused)
        return rfs_fail(err, -EFBIG, RFS_IN(path),
                        "the file that MindSpore saved at GROUP_INFO_FILE",
                        "reading it takes more than %zu MiB of memory", MESSAGE_BYTES >> 20);
    if (!map)
        return rfs_fail(err, -EINVAL, RFS_IN(path),
                        "the file that MindSpore saved at GROUP_INFO_FILE",
                        "not a group info file");
    const int rc = copy_ranks(path, map->ckpt_restore_rank_list, out, err);
    straspb__parallel_group_map__free_unpacked(map, &allocator);
    return rc;
}

int rfs_group_read(const char *path, struct rfs_group *out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    *out = (struct rfs_group){0};
    const int rc = rfs_read_whole(path, GROUP_BYTES, &data, &size, err);
    return rc < 0 ? rc : rfs_group_parse(path, data, size, out, err);
}
