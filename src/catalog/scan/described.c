/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that describe themselves: a folder of files, and one with the metadata of all
 * tensors.
 *
 *   torch.distributed.checkpoint      .metadata, __0_0.distcp …
 *   the same, rank by rank            __0.metadata, __0_0.distcp …
 *   Megatron, torch_dist              .metadata, __0_0.distcp …, common.pt, metadata.json
 *   torch's, in safetensors           shard-00001-model-00001-of-00001.safetensors …
 *   PyTorch's FSDP, rank by rank      model_world_size_8_rank_0.pt …
 *   DeepSpeed's ZeRO                  mp_rank_00_model_states.pt,
 *                                     zero_pp_rank_0_mp_rank_00_optim_states.pt …
 *   MindSpore Transformers, 2.0       metadata.json, CKP-model-0000000-0000008.safetensors …
 *   MindSpore Transformers, one rank  CKP-model-0000000-0000001.safetensors, CKP-opt-….safetensors
 *   HyperParallel                     .metadata, _rank0_.safetensors, _rank0_.bytes …
 *   HyperParallel, rank by rank       0.metadata, _rank0_.safetensors, _rank0_.bytes …
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "catalog/scan/internal.h"
#include "formats/fsdp/fsdp.h"
#include "formats/mindformers/mindformers.h"
#include "formats/shards/shards.h"
#include "formats/zero/zero.h"

#define MANIFEST "reshard-manifest"

struct seen {
    bool dcp, distcp, json, safetensors, shards, fsdp, zero;
    bool one_rank, many_ranks; /* files that MindSpore Transformers saved */
    bool temporary, manifest;
    bool hyper, local;  /* tensors, and metadata, of one rank of HyperParallel */
    bool alone, broken; /* metadata of one rank of torch, written and being written */
};

static void look_for_rank(struct seen *seen, const char *name)
{
    enum rfs_scan_rank_file kind;
    uint32_t rank;

    if (!rfs_scan_rank_file(name, &kind, &rank))
        return;
    seen->hyper |= kind == RFS_SCAN_HYPER_TENSORS;
    seen->local |= kind == RFS_SCAN_HYPER_METADATA || kind == RFS_SCAN_HYPER_OLD_METADATA;
    seen->alone |= kind == RFS_SCAN_TORCH_METADATA;
    seen->broken |= kind == RFS_SCAN_TORCH_TEMPORARY;
}

static int look(void *ctx, const struct dirent *entry)
{
    struct seen *seen = ctx;
    const char *name = entry->d_name;
    const uint32_t ranks = rfs_numbered_count(&rfs_mindformers_names, name);
    struct rfs_zero_name zero;

    seen->dcp |= strcmp(name, ".metadata") == 0;
    seen->temporary |= strcmp(name, ".metadata.tmp") == 0;
    seen->manifest |= strncmp(name, MANIFEST, sizeof MANIFEST - 1) == 0;
    seen->json |= strcmp(name, "metadata.json") == 0;
    seen->distcp |= rfs_glob_match("*.distcp", name);
    seen->fsdp |= rfs_numbered_like(&rfs_fsdp_names, name);
    seen->zero |= rfs_zero_read_name(name, &zero);
    seen->shards |= rfs_numbered_like(&rfs_shards_names, name);
    seen->safetensors |= rfs_glob_match("*.safetensors", name);
    seen->one_rank |= ranks == 1;
    seen->many_ranks |= ranks > 1;
    look_for_rank(seen, name);
    return 0;
}

/* Refuses options that choose files: they have nothing to choose from. */
static int check_options(const struct rfs_source_spec *spec, const char *by, struct rfs_error *err)
{
    if (spec->options->rank_dir || spec->options->file || spec->options->group_info ||
        spec->options->segmented || spec->options->segmented_skip || spec->encrypted ||
        rfs_scan_asks_save(spec))
        return rfs_fail_usage(err, "the folder alone",
                              "the source describes itself by '%s': rank_dir, file, group_info, "
                              "segmented, step, epoch and keys have no effect",
                              by);
    return 0;
}

static void set(struct rfs_scan *out, const struct rfs_format_row *row)
{
    out->described = row;
    out->format = row->files;
    out->whole = true;
    out->present = 1;
}

static int take(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = check_options(spec, row->metadata, err);
    struct rfs_scanned *item = rc ? NULL : rfs_scan_add(out, 0, NULL);

    set(out, row);
    if (rc == 0 && (!item || !rfs_scan_add_file(item, rfs_path_join(spec->path, row->metadata))))
        return rfs_fail_memory(err);
    return rc;
}

/* Formats the time of a file of the folder. 0 or -errno. */
static int time_of(const struct rfs_source_spec *spec, const char *name, char out[RFS_TIME_TEXT])
{
    RFS_FREE char *path = rfs_path_join(spec->path, name);
    struct stat st;
    const int rc = path ? rfs_beneath_stat(spec->beneath, spec->store, path, &st) : -ENOMEM;

    if (rc == 0)
        rfs_text_time(out, st.st_mtim);
    return rc;
}

/* Notes a save of the other kind in the folder, if there is metadata of single ranks (HAVE). */
static int doubt_ranks(bool have, struct rfs_scan *out, struct rfs_error *err)
{
    if (!have)
        return 0;
    out->doubt = strdup("metadata of single ranks is beside '.metadata': another save into the "
                        "folder may have replaced files");
    return out->doubt ? 0 : rfs_fail_memory(err);
}

/* Takes the metadata of each rank of torch, or of HyperParallel. */
static int take_ranks(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                      struct rfs_scan *out, struct rfs_error *err)
{
    set(out, row);
    return check_options(spec, "the metadata of each rank", err)
               ?: rfs_scan_rank_metadata(spec, row == &rfs_formats[RFS_ROW_DCP], out, err);
}

/* Takes a save of torch without collectives. */
static int take_dcp_ranks(const struct rfs_source_spec *spec, const struct seen *seen,
                          struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = take_ranks(spec, &rfs_formats[RFS_ROW_DCP], out, err);

    if (rc || !seen->broken)
        return rc;
    out->doubt = strdup("'__N.metadata.tmp' is beside the metadata of single ranks: a later save "
                        "into the folder did not end, and may have replaced files");
    return out->doubt ? 0 : rfs_fail_memory(err);
}

/*
 * Takes a checkpoint of torch, whose loader looks for the metadata of all ranks first. A temporary
 * file stays there when a save breaks off.
 */
static int take_dcp(const struct rfs_source_spec *spec, const struct seen *seen,
                    struct rfs_scan *out, struct rfs_error *err)
{
    char temporary[RFS_TIME_TEXT];
    char metadata[RFS_TIME_TEXT];
    const int rc = take(spec, &rfs_formats[RFS_ROW_DCP], out, err);

    out->exported = seen->manifest;
    if (rc || seen->alone || seen->broken)
        return rc ?: doubt_ranks(true, out, err);
    if (!seen->temporary || time_of(spec, ".metadata.tmp", temporary) ||
        time_of(spec, ".metadata", metadata))
        return rc;
    out->doubt = rfs_text_printf("'.metadata.tmp' of %s is beside '.metadata' of %s: a later save "
                                 "into the folder did not end, and may have replaced files",
                                 temporary, metadata);
    return out->doubt ? 0 : rfs_fail_memory(err);
}

/* Takes files of ROW, whose names count them: each describes its tensors, or is whole (WHOLE). */
static int take_numbered(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                         bool whole, struct rfs_log *log, struct rfs_scan *out,
                         struct rfs_error *err)
{
    struct rfs_options options = *spec->options;
    struct rfs_source_spec others = *spec;

    others.options = &options;
    options.file = NULL; /* chooses one of several saves */
    if (row->names == &rfs_shards_names)
        options.segmented = false; /* says that they are all of the save */
    if (whole)
        others.encrypted = NULL;
    const int rc = check_options(&others, "the names of its files", err);

    set(out, row);
    if (whole)
        out->described = NULL;
    return rc ? rc : rfs_scan_numbered(spec, row->names, log, out, err);
}

/* Takes a save of DeepSpeed. */
static int take_zero(const struct rfs_source_spec *spec, struct rfs_scan *out,
                     struct rfs_error *err)
{
    if (spec->options->entry)
        return rfs_fail_usage(err, "the folder alone",
                              "option entry: a save of DeepSpeed is no single state dict");
    set(out, &rfs_formats[RFS_ROW_ZERO]);
    return check_options(spec, "the names of its files", err)
               ?: rfs_scan_zero_files(spec, out, err);
}

/* Refuses a save that has not ended. */
static int fail_unfinished(const struct rfs_source_spec *spec, struct rfs_scan *out,
                           const char *remedy, const char *what, struct rfs_error *err)
{
    out->unfinished = true;
    return rfs_fail(err, -EINVAL, RFS_IN(spec->path), remedy, "%s", what);
}

/* Takes a save of HyperParallel. Its loader looks for the metadata of all ranks first. */
static int take_hyper(const struct rfs_source_spec *spec, const struct seen *seen,
                      struct rfs_scan *out, struct rfs_error *err)
{
    const struct rfs_format_row *row = &rfs_formats[RFS_ROW_HYPER_PARALLEL];

    out->exported = seen->manifest;
    if (!seen->dcp && !seen->local)
        return fail_unfinished(spec, out,
                               "a save that has ended: HyperParallel writes the metadata last",
                               "the folder has files of HyperParallel, '_rankN_.safetensors', and "
                               "no metadata",
                               err);
    if (!seen->dcp)
        return take_ranks(spec, row, out, err);
    return take(spec, row, out, err) ?: doubt_ranks(seen->local, out, err);
}

int rfs_scan_described(const struct rfs_source_spec *spec, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err)
{
    struct seen seen = {0};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, look, &seen, err);

    if (rc)
        return rc;
    if ((seen.hyper && !seen.distcp) || (seen.local && !seen.dcp))
        return take_hyper(spec, &seen, out, err);
    if (seen.dcp)
        return take_dcp(spec, &seen, out, err);
    if (seen.alone)
        return take_dcp_ranks(spec, &seen, out, err);
    if (seen.distcp)
        return fail_unfinished(
            spec, out, "a save that has ended: torch.distributed.checkpoint writes .metadata last",
            "the folder has .distcp files and no '.metadata'", err);
    if (seen.zero)
        return take_zero(spec, out, err);
    if (seen.shards)
        return take_numbered(spec, &rfs_formats[RFS_ROW_SHARDS], false, log, out, err);
    if (seen.fsdp)
        return take_numbered(spec, &rfs_formats[RFS_ROW_FSDP], false, log, out, err);
    if (seen.json && seen.safetensors)
        return take(spec, &rfs_formats[RFS_ROW_MINDFORMERS], out, err);
    if (seen.many_ranks)
        return fail_unfinished(spec, out,
                               "another iteration: MindSpore Transformers writes metadata.json "
                               "when all files are there",
                               "the folder has the files of several ranks and no "
                               "'metadata.json': its save has not ended",
                               err);
    return seen.one_rank
               ? take_numbered(spec, &rfs_formats[RFS_ROW_MINDFORMERS], true, log, out, err)
               : 0;
}
