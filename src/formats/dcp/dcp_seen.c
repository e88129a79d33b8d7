/* SPDX-License-Identifier: Apache-2.0 */
/* The names in a folder of torch.distributed.checkpoint, and what they mean. */
#include "base/glob.h"
#include "formats/dcp/dcp.h"

/* Bits of what is seen. */
enum {
    METADATA = RFS_SEEN_FILE << 1,
    DISTCP = RFS_SEEN_FILE << 2,
    TEMPORARY = RFS_SEEN_FILE << 3,      /* metadata of all ranks that is being written */
    RANK = RFS_SEEN_FILE << 4,           /* metadata of one rank, in a save without collectives */
    RANK_TEMPORARY = RFS_SEEN_FILE << 5, /* likewise, being written */
};

/* torch/distributed/checkpoint/filesystem.py of torch 2.9 to 2.15 */
static const struct rfs_seen_form ranks[] = {
    {"__", "_[0-9]*.distcp", RFS_SEEN_FILE, false},
    {"__", ".metadata", RFS_SEEN_FILE | RANK, true},
    {"__", ".metadata.tmp", RFS_SEEN_FILE | RANK_TEMPORARY, false},
    {.before = NULL},
};

static unsigned see(const char *name)
{
    uint32_t rank;
    const struct rfs_seen_form *form = rfs_seen_rank(ranks, name, &rank);

    return (form ? form->bits : 0) |
           (rfs_glob_match("*.distcp", name) ? RFS_SEEN_FILE | DISTCP : 0) |
           (strcmp(name, ".metadata") == 0 ? RFS_SEEN_FILE | METADATA : 0) |
           (strcmp(name, ".metadata.tmp") == 0 ? TEMPORARY : 0);
}

/*
 * torch's loader looks for the metadata of all ranks first. A temporary file stays there when a
 * save breaks off.
 */
static struct rfs_seen settle(unsigned bits)
{
    if (bits & METADATA)
        return (struct rfs_seen){.as = RFS_SEEN_METADATA,
                                 .doubt = bits & (RANK | RANK_TEMPORARY) ? RFS_DCP_DOUBT : NULL,
                                 .temporary = bits & TEMPORARY ? ".metadata.tmp" : NULL};
    if (bits & RANK)
        return (struct rfs_seen){
            .as = RFS_SEEN_RANKS,
            .doubt = bits & RANK_TEMPORARY
                         ? "'__N.metadata.tmp' is beside the metadata of single ranks: a later "
                           "save into the folder did not end, and may have replaced files"
                         : NULL};
    if (bits & DISTCP)
        return (struct rfs_seen){
            .as = RFS_SEEN_UNFINISHED,
            .what = "the folder has .distcp files and no '.metadata'",
            .remedy = "a save that has ended: torch.distributed.checkpoint writes .metadata last"};
    return (struct rfs_seen){.as = RFS_SEEN_NOTHING};
}

const struct rfs_seen_kind rfs_dcp_seen = {.ranks = ranks, .name = see, .settle = settle};
