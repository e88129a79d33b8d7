/* SPDX-License-Identifier: Apache-2.0 */
/* The names in a folder of HyperParallel, and what they mean beside those of torch. */
#include "base/glob.h"
#include "formats/dcp/dcp.h"
#include "formats/hyper_parallel/hyper_parallel.h"

/* Bits of what is seen. */
enum {
    TENSORS = RFS_SEEN_FILE << 1,
    RANK = RFS_SEEN_FILE << 2,     /* metadata of one rank, in a save without collectives */
    METADATA = RFS_SEEN_FILE << 3, /* it may be torch's, as the next */
    DISTCP = RFS_SEEN_FILE << 4,
};

/* https://github.com/mindspore-ai/hyper-parallel: filesystem_storage.py */
static const struct rfs_seen_form ranks[] = {
    {"_rank", "_.safetensors", RFS_SEEN_FILE | TENSORS, false},
    {"", ".metadata", RFS_SEEN_FILE | RANK, true},
    {".rank", "_metadata", RFS_SEEN_FILE | RANK, true}, /* before April 2026 */
    {.before = NULL},
};

static unsigned see(const char *name)
{
    uint32_t rank;
    const struct rfs_seen_form *form = rfs_seen_rank(ranks, name, &rank);

    return (form ? form->bits : 0) | (strcmp(name, ".metadata") == 0 ? METADATA : 0) |
           (rfs_glob_match("*.distcp", name) ? DISTCP : 0);
}

/* Its loader looks for the metadata of all ranks first. */
static struct rfs_seen settle(unsigned bits)
{
    const bool is = ((bits & TENSORS) && !(bits & DISTCP)) || ((bits & RANK) && !(bits & METADATA));

    if (!is)
        return (struct rfs_seen){.as = RFS_SEEN_NOTHING};
    if (bits & METADATA)
        return (struct rfs_seen){.as = RFS_SEEN_METADATA,
                                 .doubt = bits & RANK ? RFS_DCP_DOUBT : NULL};
    if (bits & RANK)
        return (struct rfs_seen){.as = RFS_SEEN_RANKS};
    return (struct rfs_seen){
        .as = RFS_SEEN_UNFINISHED,
        .what = "the folder has files of HyperParallel, '_rankN_.safetensors', and no metadata",
        .remedy = "a save that has ended: HyperParallel writes the metadata last"};
}

const struct rfs_seen_kind rfs_hyper_parallel_seen = {
    .ranks = ranks, .name = see, .settle = settle};
