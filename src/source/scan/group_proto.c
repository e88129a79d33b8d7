/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group info in protobuf, as a rank saves it in the file named by GROUP_INFO_FILE:
 *
 *   0a n { 0a n name  12 n { 08 rank … } } …   communication groups, of no interest here
 *   12 n { 08 rank … }                         the ranks whose checkpoints equal that of the rank that wrote it
 *
 * The latter is empty when every rank holds data of its own. Sources: SaveGroupInfo of MindSpore's
 * compiler, _restore_group_info_list of MindSpore 2.10.
 */
#include "source/scan/group_proto.h"

#include "base/cleanup.h"
#include "base/proto_read.h"
#include "base/read_whole.h"
#include "source/scan/scan.h"

/* Thousands of groups of thousands of ranks. */
#define GROUP_BYTES ((size_t)8 << 20)

static const struct rfs_proto_shape ranks = {{{1, RFS_PROTO_NUMBERS, false, NULL}}};
static const struct rfs_proto_shape item = {{
    {1, RFS_PROTO_BYTES, true, NULL},
    {2, RFS_PROTO_MESSAGES, true, &ranks},
}};
static const struct rfs_proto_shape group_map = {{
    {1, RFS_PROTO_MESSAGES, false, &item},
    {2, RFS_PROTO_MESSAGES, true, &ranks},
}};

/* Notes the ranks of a list in a set of bits; a rank may come any number of times. */
static int note_ranks(const char *path, struct rfs_proto list, unsigned char *set,
                      struct rfs_error *err)
{
    struct rfs_proto_field field;
    uint64_t number;

    while (rfs_proto_next(&list, &field))
        while (field.number == 1 && rfs_proto_number(&field, &number)) {
            const uint32_t rank = (uint32_t)number;
            if (rank > RFS_MAX_RANK)
                return rfs_fail(err, -EINVAL, RFS_IN(path), NULL,
                                "it names rank %u: ranks above %u are not supported", rank,
                                RFS_MAX_RANK);
            set[rank / 8] = (unsigned char)(set[rank / 8] | 1u << rank % 8);
        }
    return 0;
}

static int copy_ranks(const char *path, struct rfs_proto list, struct rfs_group *out,
                      struct rfs_error *err)
{
    RFS_FREE unsigned char *set = calloc(RFS_MAX_RANK / 8 + 1, 1);
    size_t n = 0;

    const int rc = set ? note_ranks(path, list, set, err) : rfs_fail_memory(err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i <= RFS_MAX_RANK / 8; i++)
        n += (size_t)__builtin_popcount(set[i]);
    out->ranks = calloc(n > 0 ? n : 1, sizeof *out->ranks);
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
    struct rfs_proto map = rfs_proto_begin(data, size);
    struct rfs_proto list = {0};
    struct rfs_proto_field field;

    *out = (struct rfs_group){0};
    if (!rfs_proto_has_shape(map, &group_map))
        return rfs_fail(err, -EINVAL, RFS_IN(path),
                        "the file that MindSpore saved at GROUP_INFO_FILE",
                        "not a group info file");
    while (rfs_proto_next(&map, &field))
        if (field.number == 2)
            list = field.inside;
    return copy_ranks(path, list, out, err);
}

int rfs_group_read(const char *path, struct rfs_group *out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    *out = (struct rfs_group){0};
    const int rc = rfs_read_whole(path, GROUP_BYTES, &data, &size, err);
    return rc < 0 ? rc : rfs_group_parse(path, data, size, out, err);
}
