/* SPDX-License-Identifier: Apache-2.0 */
/* The names in a folder of MindSpore Transformers. A save of one rank has no metadata. */
#include "base/glob.h"
#include "formats/mindformers/mindformers.h"

enum {
    METADATA = RFS_SEEN_FILE << 1,
    SAFETENSORS = RFS_SEEN_FILE << 2, /* by any name */
    ONE_RANK = RFS_SEEN_FILE << 3,
    MANY_RANKS = RFS_SEEN_FILE << 4,
};

static unsigned see(const char *name)
{
    const uint32_t ranks = rfs_numbered_count(&rfs_mindformers_names, name);

    return (ranks == 1  ? RFS_SEEN_FILE | ONE_RANK
            : ranks > 1 ? RFS_SEEN_FILE | MANY_RANKS
                        : 0) |
           (strcmp(name, "metadata.json") == 0 ? METADATA : 0) |
           (rfs_glob_match("*.safetensors", name) ? SAFETENSORS : 0);
}

static struct rfs_seen settle(unsigned bits)
{
    if ((bits & METADATA) && (bits & SAFETENSORS))
        return (struct rfs_seen){.as = RFS_SEEN_METADATA};
    if (bits & MANY_RANKS)
        return (struct rfs_seen){
            .as = RFS_SEEN_UNFINISHED,
            .what = "the folder has the files of several ranks and no 'metadata.json': its save "
                    "has not ended",
            .remedy = "another iteration: MindSpore Transformers writes metadata.json when all "
                      "files are there"};
    return (struct rfs_seen){.as = bits & ONE_RANK ? RFS_SEEN_WHOLE : RFS_SEEN_NOTHING};
}

const struct rfs_seen_kind rfs_mindformers_seen = {.name = see, .settle = settle};
