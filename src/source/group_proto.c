/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group info in protobuf (proto/group_info.proto), as a rank saves it where GROUP_INFO_FILE says:
 *
 *   0a n { 0a n name  12 n { 08 rank … } } …   communication groups, of no interest here
 *   12 n { 08 rank … }                         the ranks whose checkpoints equal that of the rank that wrote it
 *
 * The latter is empty when every rank holds something of its own. Sources: SaveGroupInfo of MindSpore's
 * compiler, _restore_group_info_list of MindSpore 2.10.
 */
#include "source/group_proto.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "proto/group_info.pb-c.h"
#include "source/files.h"
#include "source/scan.h"

#include <errno.h>
#include <string.h>

typedef Mindspore__Straspb__ParallelGroupMap group_map;

/* Thousands of groups of thousands of ranks; protobuf-c may need 20 times that to unpack an odd one. */
#define GROUP_BYTES ((size_t)8 << 20)

struct memory {
    struct rfs_arena arena;
    bool exhausted; /* what protobuf-c does not tell from a message that is none */
};

static void *memory_alloc(void *ctx, size_t size)
{
    struct memory *memory = ctx;
    void *pointer = rfs_arena_alloc(&memory->arena, size > 0 ? size : 1);

    memory->exhausted |= pointer == NULL;
    return pointer;
}

static void memory_keep(void *ctx, void *pointer)
{
    (void)ctx;
    (void)pointer;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int copy_ranks(const char *path, const group_map *map, struct rfs_group *out,
                      struct rfs_error *err)
{
    const Mindspore__Straspb__ParallelGroupRanks *list = map->ckpt_restore_rank_list;
    const size_t n = list->n_dim;
    size_t unique = 0;
    out->ranks = calloc(n > 0 ? n : 1, sizeof *out->ranks);
    if (!out->ranks)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (list->dim[i] > RFS_MAX_RANK)
            return rfs_fail(err, -EINVAL, RFS_IN(path), NULL,
                            "it names rank %u: ranks above %u are not supported", list->dim[i],
                            RFS_MAX_RANK);
        out->ranks[i] = list->dim[i];
    }
    qsort(out->ranks, n, sizeof *out->ranks, compare_numbers);
    for (size_t i = 0; i < n; i++)
        if (unique == 0 || out->ranks[unique - 1] != out->ranks[i])
            out->ranks[unique++] = out->ranks[i];
    out->n = unique;
    return 0;
}

int rfs_group_parse(const char *path, const void *data, size_t size, struct rfs_group *out,
                    struct rfs_error *err)
{
    struct memory memory = {.exhausted = false};
    ProtobufCAllocator allocator = {memory_alloc, memory_keep, &memory};
    const group_map *map = mindspore__straspb__parallel_group_map__unpack(&allocator, size, data);
    int rc;

    *out = (struct rfs_group){0};
    if (map)
        rc = copy_ranks(path, map, out, err);
    else if (memory.exhausted)
        rc = rfs_fail_memory(err);
    else
        rc = rfs_fail(err, -EINVAL, RFS_IN(path),
                      "the file that MindSpore saved where GROUP_INFO_FILE said",
                      "not a group info file");
    rfs_arena_free(&memory.arena);
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
