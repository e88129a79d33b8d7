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
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define MANIFEST "reshard-manifest"

/* What the names in a folder show. */
struct look {
    unsigned bits[RFS_ROWS]; /* of each format that describes itself (formats/seen.h) */
    bool manifest;
};

static int look(void *ctx, const struct dirent *entry)
{
    struct look *look = ctx;

    for (unsigned i = RFS_FORMAT_COUNT; i < RFS_ROWS; i++)
        look->bits[i] |= rfs_format_sees(&rfs_formats[i], entry->d_name);
    look->manifest |= strncmp(entry->d_name, MANIFEST, sizeof MANIFEST - 1) == 0;
    return 0;
}

/* ---- metadata of each rank, of a save without collectives ------------------------------------ */

/* The ranks that have metadata, ascending, and the highest that saved anything. */
struct ranks {
    uint32_t *data; /* owned */
    size_t n, cap;
    const struct rfs_seen_form *forms; /* of their names */
    const struct rfs_seen_form *form;  /* the form of their metadata, the last of two */
    const struct rfs_seen_form *other; /* the other of two; or NULL */
    uint32_t last;
    struct rfs_error *err;
};

static void ranks_end(struct ranks *ranks)
{
    free(ranks->data);
}

static int gather(void *ctx, const struct dirent *entry)
{
    struct ranks *ranks = ctx;
    uint32_t rank;
    const struct rfs_seen_form *form = rfs_seen_rank(ranks->forms, entry->d_name, &rank);

    if (!form)
        return 0;
    ranks->last = rank > ranks->last ? rank : ranks->last;
    if (!form->metadata)
        return 0;
    if (ranks->form && ranks->form != form)
        ranks->other = form < ranks->form ? form : ranks->form;
    if (!ranks->form || form > ranks->form)
        ranks->form = form;
    return RFS_PUSH(ranks, rank) ? 0 : rfs_fail_memory(ranks->err);
}

RFS_COMPARE(by_rank, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Names the metadata that is missing below the highest rank. */
static void note_lost(const struct ranks *ranks, struct rfs_scan *out)
{
    const size_t missing = (size_t)ranks->last + 1 - ranks->n;
    uint32_t first = 0;

    if (missing == 0)
        return;
    while (first < ranks->n && ranks->data[first] == first)
        first++;
    out->lost = missing == 1 ? rfs_text_printf("'%s%u%s' is", ranks->form->before, first,
                                               ranks->form->behind)
                             : rfs_text_printf("'%s%u%s' and %zu more are", ranks->form->before,
                                               first, ranks->form->behind, missing - 1);
    out->failed |= !out->lost;
}

/*
 * Takes the metadata of all ranks of a save, by the forms of its names; out->lost names what is
 * missing. There must be some.
 */
static int take_rank_metadata(const struct rfs_source_spec *spec, const struct rfs_seen_form *forms,
                              struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(ranks_end) struct ranks ranks = {.forms = forms, .err = err};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, gather, &ranks, err);

    if (rc)
        return rc;
    if (ranks.other)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), "move files of another save away",
                        "the folder has metadata of two saves, '%sN%s' and '%sN%s'",
                        ranks.other->before, ranks.other->behind, ranks.form->before,
                        ranks.form->behind);
    RFS_SORT_ALL(&ranks, by_rank);
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);
    for (size_t i = 0; i < ranks.n; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%u%s", ranks.form->before, ranks.data[i],
                 ranks.form->behind);
        rfs_scan_add_file(out, item, rfs_path_join(spec->path, name));
    }
    note_lost(&ranks, out);
    return 0;
}

/* ---- a folder -------------------------------------------------------------------------------- */

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

/* Notes why the metadata may be of another save than the files. */
static int note_doubt(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                      const struct rfs_seen *seen, struct rfs_scan *out, struct rfs_error *err)
{
    char temporary[RFS_TIME_TEXT];
    char metadata[RFS_TIME_TEXT];

    if (seen->doubt)
        out->doubt = strdup(seen->doubt);
    else if (!seen->temporary || time_of(spec, seen->temporary, temporary) ||
             time_of(spec, row->metadata, metadata))
        return 0;
    else
        out->doubt =
            rfs_text_printf("'%s' of %s is beside '%s' of %s: a later save into the folder did "
                            "not end, and may have replaced files",
                            seen->temporary, temporary, row->metadata, metadata);
    return out->doubt ? 0 : rfs_fail_memory(err);
}

static int take_metadata(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                         struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = check_options(spec, row->metadata, err);

    if (rc == 0)
        rfs_scan_add_file(out, rfs_scan_add(out, 0, NULL),
                          rfs_path_join(spec->path, row->metadata));
    return rc;
}

/* Takes files whose names count them: each describes its tensors, or is whole (WHOLE). */
static int take_numbered(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                         bool whole, struct rfs_log *log, struct rfs_scan *out,
                         struct rfs_error *err)
{
    struct rfs_options options = *spec->options;
    struct rfs_source_spec others = *spec;

    others.options = &options;
    options.file = NULL; /* chooses one of several saves */
    if (row->names->counts_parts)
        options.segmented = false; /* says that they are all of the save */
    if (whole)
        others.encrypted = NULL;
    return check_options(&others, "the names of its files", err)
               ?: rfs_scan_numbered(spec, row->names, log, out, err);
}

/* Takes a save of DeepSpeed. */
static int take_states(const struct rfs_source_spec *spec, struct rfs_scan *out,
                       struct rfs_error *err)
{
    if (spec->options->entry)
        return rfs_fail_usage(err, "the folder alone",
                              "option entry: a save of DeepSpeed is no single state dict");
    return check_options(spec, "the names of its files", err)
               ?: rfs_scan_zero_files(spec, out, err);
}

/* Takes the files of a folder as the format ROW has settled it. */
static int take(const struct rfs_source_spec *spec, const struct rfs_format_row *row,
                const struct rfs_seen *seen, struct rfs_log *log, struct rfs_scan *out,
                struct rfs_error *err)
{
    out->described = seen->as == RFS_SEEN_WHOLE ? NULL : row;
    out->format = row->files;
    out->whole = true;
    out->present = 1;
    switch (seen->as) {
    case RFS_SEEN_NOTHING:
        break;
    case RFS_SEEN_METADATA:
        return take_metadata(spec, row, out, err) ?: note_doubt(spec, row, seen, out, err);
    case RFS_SEEN_RANKS:
        return check_options(spec, "the metadata of each rank", err)
                   ?: take_rank_metadata(spec, row->seen->ranks, out, err)
                   ?: note_doubt(spec, row, seen, out, err);
    case RFS_SEEN_NAMES:
    case RFS_SEEN_WHOLE:
        return take_numbered(spec, row, seen->as == RFS_SEEN_WHOLE, log, out, err);
    case RFS_SEEN_STATES:
        return take_states(spec, out, err);
    case RFS_SEEN_UNFINISHED:
        out->unfinished = true;
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), seen->remedy, "%s", seen->what);
    }
    return 0;
}

int rfs_scan_described(const struct rfs_source_spec *spec, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err)
{
    struct look seen = {.manifest = false};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, look, &seen, err);

    if (rc)
        return rc;
    out->exported = seen.manifest;
    for (unsigned i = RFS_FORMAT_COUNT; i < RFS_ROWS; i++) {
        const struct rfs_seen settled = rfs_format_settle(&rfs_formats[i], seen.bits[i]);
        if (settled.as != RFS_SEEN_NOTHING)
            return take(spec, &rfs_formats[i], &settled, log, out, err);
    }
    return 0;
}
