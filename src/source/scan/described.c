/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that describe themselves: a folder of files, and one with the metadata of all
 * tensors.
 *
 *   torch.distributed.checkpoint       .metadata, __0_0.distcp …
 *   the same of Megatron, torch_dist   common.pt and metadata.json beside these
 *   the same in safetensors            shard-00001-model-00001-of-00001.safetensors …
 *   PyTorch's FSDP, rank by rank       model_world_size_8_rank_0.pt …
 *   MindSpore Transformers, 2.0        metadata.json, CKP-model-0000000-0000008.safetensors …
 *   the same, of one rank              CKP-model-0000000-0000001.safetensors, CKP-opt-0000000-0000001.…
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "source/scan/internal.h"

#define SHARDS "shard-*-model-*-of-*.safetensors"
#define FSDP "model_world_size_*_rank_*.pt"
#define DIGITS 7 /* of the numbers in the names of MindSpore Transformers */

struct seen {
    bool dcp, distcp, alone, json, safetensors, shards, fsdp;
    bool one_rank, many_ranks; /* files that MindSpore Transformers saved */
};

/*
 * The number of files of a save by the name of one, [PREFIX-]model-0000000-0000008; 0: it is none.
 */
static uint64_t files_of_save(const char *name)
{
    static const char *const patterns[] = {"model-*-*.safetensors", "*-model-*-*.safetensors",
                                           "opt-*-*.safetensors", "*-opt-*-*.safetensors"};
    const char *last = strrchr(name, '-');
    bool known = false;

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        known |= rfs_glob_match(patterns[i], name);
    if (!known || strspn(last + 1, "0123456789") != DIGITS ||
        strcmp(last + 1 + DIGITS, ".safetensors") != 0 || last - name <= DIGITS ||
        last[-DIGITS - 1] != '-' || strspn(last - DIGITS, "0123456789") != DIGITS)
        return 0;
    return strtoull(last + 1, NULL, 10);
}

static int look(void *ctx, const struct dirent *entry)
{
    struct seen *seen = ctx;

    seen->dcp |= strcmp(entry->d_name, ".metadata") == 0;
    seen->json |= strcmp(entry->d_name, "metadata.json") == 0;
    seen->alone |= rfs_glob_match("__*.metadata", entry->d_name);
    seen->distcp |= rfs_glob_match("*.distcp", entry->d_name);
    seen->fsdp |= rfs_glob_match(FSDP, entry->d_name);
    seen->shards |= rfs_glob_match(SHARDS, entry->d_name);
    seen->safetensors |= rfs_glob_match("*.safetensors", entry->d_name);
    const uint64_t files = files_of_save(entry->d_name);
    seen->one_rank |= files == 1;
    seen->many_ranks |= files > 1;
    return 0;
}

/* Options that choose files have nothing to choose from. */
static int check_options(const struct rfs_source_spec *spec, const char *by, struct rfs_error *err)
{
    if (spec->rank_dir || spec->file || spec->group_info || spec->segmented || spec->entry ||
        spec->encrypted)
        return rfs_fail_usage(err, "the folder alone",
                              "the source describes itself by '%s': rank_dir, file, "
                              "group_info, segmented, entry and keys have no effect",
                              by);
    return 0;
}

static void set(struct rfs_scan *out, enum rfs_described described, enum rfs_format format)
{
    out->described = described;
    out->format = format;
    out->whole = true;
    out->present = 1;
}

static int take(const struct rfs_source_spec *spec, enum rfs_described described, const char *name,
                struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = check_options(spec, name, err);
    struct rfs_scanned *item = rc ? NULL : rfs_scan_add(out, 0, NULL);

    set(out, described, described == RFS_DCP ? RFS_FORMAT_TORCH : RFS_FORMAT_SAFETENSORS);
    if (rc == 0 && (!item || !rfs_scan_add_file(item, rfs_path_join(spec->path, name))))
        return rfs_fail_memory(err);
    return rc;
}

/* All files of the folder that a pattern names are rank 0's. */
static int take_all(const struct rfs_source_spec *spec, const char *pattern, struct rfs_scan *out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(rfs_listing_free) struct rfs_listing listing = {0};
    const int rc = rfs_listing_read(spec->beneath, spec->path, pattern, &listing, err);
    struct rfs_scanned *item = rc ? NULL : rfs_scan_add(out, 0, NULL);

    if (rc)
        return rc;
    for (size_t i = 0; item && i < listing.n; i++)
        if (!rfs_scan_add_file(item, rfs_path_join(spec->path, listing.data[i].name)))
            item = NULL;
    return item ? 0 : rfs_fail_memory(err);
}

/* Files that each describe their part of the whole. */
static int take_each(const struct rfs_source_spec *spec, enum rfs_described described,
                     const char *pattern, struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = check_options(spec, pattern, err);

    set(out, described, described == RFS_FSDP ? RFS_FORMAT_TORCH : RFS_FORMAT_SAFETENSORS);
    return rc ? rc : take_all(spec, pattern, out, err);
}

/* Of one rank there is no metadata: each file has whole tensors. */
static int take_one_rank(const struct rfs_source_spec *spec, struct rfs_scan *out,
                         struct rfs_error *err)
{
    set(out, RFS_NOT_DESCRIBED, RFS_FORMAT_SAFETENSORS);
    return take_all(spec, "*.safetensors", out, err);
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
    if (seen.shards)
        return take_each(spec, RFS_SHARDS, SHARDS, out, err);
    if (seen.fsdp)
        return take_each(spec, RFS_FSDP, FSDP, out, err);
    if (seen.json && seen.safetensors)
        return take(spec, RFS_MINDFORMERS, "metadata.json", out, err);
    if (seen.many_ranks)
        return rfs_fail(
            err, -EINVAL, RFS_IN(spec->path),
            "another iteration: MindSpore Transformers writes metadata.json when all "
            "files are there",
            "the folder has the files of several ranks and no 'metadata.json': its save "
            "has not ended");
    return seen.one_rank ? take_one_rank(spec, out, err) : 0;
}

/* As scanning a folder without options: the checkpoint, or the iteration, that it is of. */
static int scan_plain(const char *path, struct rfs_scan *out)
{
    const struct rfs_source_spec spec = {
        .path = path, .step = RFS_ANY_NUMBER, .epoch = RFS_ANY_NUMBER};
    struct rfs_error unused;
    const int rc = rfs_scan_described(&spec, out, &unused);

    return rc == 0 && out->n == 0 ? rfs_scan_iterations(&spec, NULL, out, NULL, &unused) : rc;
}

bool rfs_scan_is_described(const char *path)
{
    struct rfs_scan scan = {0};
    const int rc = scan_plain(path, &scan);
    /* One of a single rank is as any other file. */
    const bool is = rc == -EINVAL || rc == -ENOTSUP || scan.described != RFS_NOT_DESCRIBED;

    rfs_scan_free(&scan);
    return is;
}

bool rfs_scan_is_of_one_rank(const char *path)
{
    struct rfs_scan scan = {0};
    const int rc = scan_plain(path, &scan);
    const bool is = rc == 0 && scan.n == 1 && scan.described == RFS_NOT_DESCRIBED;

    rfs_scan_free(&scan);
    return is;
}
