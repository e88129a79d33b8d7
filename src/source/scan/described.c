/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that describe themselves: a folder of files, and one with the metadata of all tensors.
 *
 *   torch.distributed.checkpoint       .metadata, __0_0.distcp …
 *   MindSpore Transformers, 2.0        metadata.json, *-model-0000000-0000008.safetensors …
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "source/scan/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    bool dcp, distcp, alone, json, safetensors;
};

static int look(void *ctx, const struct dirent *entry)
{
    struct seen *seen = ctx;

    seen->dcp |= strcmp(entry->d_name, ".metadata") == 0;
    seen->json |= strcmp(entry->d_name, "metadata.json") == 0;
    seen->alone |= rfs_glob_match("__*.metadata", entry->d_name);
    seen->distcp |= rfs_glob_match("*.distcp", entry->d_name);
    seen->safetensors |= rfs_glob_match("*.safetensors", entry->d_name);
    return 0;
}

static int take(const struct rfs_source_spec *spec, enum rfs_described described, const char *name,
                struct rfs_scan *out, struct rfs_error *err)
{
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);

    if (spec->rank_dir || spec->file || spec->group_info || spec->segmented || spec->entry ||
        spec->sealed)
        return rfs_fail_usage(err, "the folder alone",
                              "the source describes itself by '%s', so that rank_dir, file, "
                              "group_info, segmented, entry and keys choose nothing",
                              name);
    out->described = described;
    out->format = described == RFS_DCP ? RFS_FORMAT_TORCH : RFS_FORMAT_SAFETENSORS;
    out->whole = true;
    out->present = 1;
    if (!item || !rfs_scan_add_file(item, rfs_path_join(spec->path, name)))
        return rfs_fail_memory(err);
    return 0;
}

int rfs_scan_described(const struct rfs_source_spec *spec, struct rfs_scan *out,
                       struct rfs_error *err)
{
    struct seen seen = {0};
    const int rc = rfs_entry_each(spec->path, look, &seen, err);

    if (rc)
        return rc;
    if (seen.dcp)
        return take(spec, RFS_DCP, ".metadata", out, err);
    if (seen.alone)
        return rfs_fail(err, -ENOTSUP, RFS_IN(spec->path),
                        "torch.distributed.checkpoint.save with use_collectives=True, its default",
                        "each rank was saved by itself, with metadata of its own "
                        "('__0.metadata'): such a checkpoint is not read");
    if (seen.distcp)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path),
                        "a save that has ended: torch.distributed.checkpoint writes .metadata last",
                        "the folder has .distcp files and no '.metadata'");
    if (seen.json && seen.safetensors)
        return take(spec, RFS_MINDFORMERS, "metadata.json", out, err);
    return 0;
}

bool rfs_scan_is_described(const char *path)
{
    const struct rfs_source_spec spec = {.path = path};
    struct rfs_scan scan = {0};
    struct rfs_error unused;
    const int rc = rfs_scan_described(&spec, &scan, &unused);
    const bool is = rc == -EINVAL || scan.n > 0;

    rfs_scan_free(&scan);
    return is;
}
