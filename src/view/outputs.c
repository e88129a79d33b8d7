/* SPDX-License-Identifier: Apache-2.0 */
#include "view/outputs.h"

#include "image/pt.h"
#include "view/flat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rfs_format rfs_view_format(const struct rfs_options *options)
{
    return options->format_given              ? options->format
           : options->shown == RFS_SHOW_RANKS ? RFS_FORMAT_CKPT
                                              : RFS_FORMAT_SAFETENSORS;
}

const char *rfs_view_format_name(enum rfs_format format)
{
    static const char *const names[] = {"ckpt", "safetensors", "pt"};

    return names[format];
}

int rfs_view_check_outputs(const struct rfs_options *options, struct rfs_error *err)
{
    const char *shown = options->shown == RFS_SHOW_HUGGINGFACE ? "huggingface" : "unified";
    const bool safetensors = rfs_view_format(options) == RFS_FORMAT_SAFETENSORS;

    if (options->shown == RFS_SHOW_RANKS && options->file_size > 0)
        return rfs_fail_usage(
            err, "-o view=huggingface or -o view=unified",
            "option file_size divides one whole checkpoint into files, and a view "
            "of ranks has one for each rank");
    if (options->shown != RFS_SHOW_RANKS && strcmp(options->prefix, RFS_PREFIX) != 0)
        return rfs_fail_usage(err, "leave prefix= out",
                              "view=%s has names of its own, which no prefix begins", shown);
    if (options->shown != RFS_SHOW_RANKS && !safetensors)
        return rfs_fail_usage(err, "leave format= out", "view=%s is made of safetensors files",
                              shown);
    if (options->shown != RFS_SHOW_RANKS && (options->dst_strategy || options->dst_rules))
        return rfs_fail_usage(err, "leave the destination's strategy out",
                              "view=%s shows one whole checkpoint, which no strategy cuts", shown);
    if (options->crc && rfs_view_format(options) == RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "-o zip_crc", "option crc is for .ckpt files");
    if (options->crc && safetensors)
        return rfs_fail_usage(
            err, "leave crc out, or -o format=ckpt",
            "option crc is for .ckpt files: in a safetensors file the checksum would "
            "stand before the data that it sums up");
    return 0;
}

/* A dict of tensors, as torch.save writes it. */
static int encode_torch(struct reshard_view *view, const struct rfs_params *params,
                        struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_document document = {0};
    const struct rfs_pt_config config = {
        .catalog = view->catalog,
        .document = &document,
        .params = params,
        .stem = "archive",
        .crc = view->options.zip_crc,
    };

    int rc = rfs_document_params(&document, view->catalog, params, err);
    if (rc == 0)
        rc = rfs_image_pt(&config, out, err);
    rfs_document_free(&document);
    return rc;
}

int rfs_view_encode(struct reshard_view *view, const struct rfs_params *params,
                    struct rfs_image **out, struct rfs_error *err)
{
    const struct rfs_selection all = {.params = params};

    if (rfs_view_format(&view->options) == RFS_FORMAT_SAFETENSORS)
        return rfs_image_safetensors(view->catalog, &all, "ms", out, err);
    if (rfs_view_format(&view->options) == RFS_FORMAT_TORCH)
        return encode_torch(view, params, out, err);
    const int rc = rfs_image_ckpt(view->catalog, params, view->options.crc, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(rfs_catalog_path(view->catalog)), NULL,
                        "a rank's file would be larger than a file can be");
    return rc ? rfs_fail_memory(err) : 0;
}

/* rank_R/{prefix}R.ckpt, or rank_R/{prefix}R_part{stage}.ckpt by stage. */
static int name_rank(const struct reshard_view *view, uint32_t rank, struct shown_file *file)
{
    const char *ending = rfs_view_format_name(rfs_view_format(&view->options));
    const int64_t part = rfs_planner_part(view->planner);
    const char *prefix = view->options.prefix;

    file->rank = rank;
    if (asprintf(&file->dir, "rank_%u", rank) < 0)
        file->dir = NULL;
    const int n =
        part < 0 ? asprintf(&file->name, "%s%u.%s", prefix, rank, ending)
                 : asprintf(&file->name, "%s%u_part%lld.%s", prefix, rank, (long long)part, ending);
    if (n < 0)
        file->name = NULL;
    return file->dir && file->name ? 0 : -ENOMEM;
}

static int list_ranks(struct reshard_view *view, struct rfs_error *err)
{
    view->files = calloc(view->n_ranks, sizeof *view->files);
    if (!view->files)
        return rfs_fail_memory(err);
    view->n_files = view->n_ranks;
    for (uint32_t r = 0; r < view->n_ranks; r++)
        if (name_rank(view, r, &view->files[r]))
            return rfs_fail_memory(err);
    return 0;
}

int rfs_view_list_files(struct reshard_view *view, struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;

    if (view->options.shown == RFS_SHOW_RANKS)
        return list_ranks(view, err);
    view->flat = true;
    const int rc = rfs_planner_rank(view->planner, 0, &plan, err);
    if (rc)
        return rc;
    return view->options.shown == RFS_SHOW_HUGGINGFACE
               ? rfs_view_huggingface(view, plan->params, err)
               : rfs_view_unified(view, plan->params, err);
}
