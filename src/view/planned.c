/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a planner plans: one for each destination rank, or in the root those of one whole
 * checkpoint, whose images are all made when the view is opened.
 */
#include "view/planned.h"

#include "base/text.h"
#include "image/pt.h"
#include "view/dcp.h"
#include "view/flat.h"
#include "view/groups.h"
#include "view/mindformers.h"
#include "view/objects.h"
#include "view/outputs.h"

/* A dict of tensors and objects, as torch.save writes it. */
static int encode_torch(struct rfs_view *view, const struct rfs_params *params,
                        struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_document document = {0};
    struct rfs_objects objects = {.open = {0}};
    const struct rfs_pt_config config = {
        .catalog = view->catalog,
        .document = &document,
        .params = params,
        .stem = "archive",
        .crc = view->options.zip_crc,
    };

    int rc = rfs_document_params(&document, view->catalog, params, err)
            ?: rfs_objects_add(view, params, &document, &objects, err)
            ?: rfs_image_pt(&config, out, err);
    rfs_document_free(&document);
    rfs_objects_end(&objects);
    return rc;
}

static int encode(struct rfs_view *view, const struct rfs_params *params, struct rfs_image **out,
                  struct rfs_error *err)
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

/*
 * The image of a parameter list, encoded once and shared by the ranks that have that parameter
 * list.
 */
static int share_image(struct rfs_view *view, const struct rfs_params *params,
                       const struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_image *fresh = NULL;
    const struct rfs_image *shared = NULL;
    int rc = 0;

    pthread_mutex_lock(&view->lock);
    if (params->id < view->images.n)
        shared = view->images.data[params->id];
    pthread_mutex_unlock(&view->lock);
    if (!shared)
        rc = encode(view, params, &fresh, err);
    *out = shared;
    if (shared || rc)
        return rc;

    bool room = true;
    pthread_mutex_lock(&view->lock);
    while (room && view->images.n <= params->id)
        room = RFS_PUSH(&view->images, NULL);
    if (room && !view->images.data[params->id]) {
        view->images.data[params->id] = fresh;
        fresh = NULL;
    }
    *out = room ? view->images.data[params->id] : NULL;
    pthread_mutex_unlock(&view->lock);
    rfs_image_free(fresh);
    return *out ? 0 : rfs_fail_memory(err);
}

static int image_of(struct rfs_view *view, size_t file, const struct rfs_image **out,
                    struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    const int rc = rfs_planner_rank(view->planner, view->files[file].rank, &plan, err);

    return rc ? rc : share_image(view, plan->params, out, err);
}

/* ---- the kinds ------------------------------------------------------------------------------- */

static const struct rfs_view_kind ranks = {.by_rank = true, .image = image_of, RFS_GROUPS};
/* Its image_of is never called: all are ready. */
static const struct rfs_view_kind flat = {.image = image_of, RFS_GROUPS};

/* ---- the files ------------------------------------------------------------------------------- */

/* rank_R/{prefix}R.ckpt, or rank_R/{prefix}R_part{stage}.ckpt by stage. */
static int show_rank(struct rfs_view *view, uint32_t rank, struct rfs_error *err)
{
    struct shown_file *file = &view->files[rank];
    struct shown_folder *folder = &view->folders[rank];
    const int64_t part = rfs_planner_part(view->planner);
    const char *prefix = view->options.prefix;
    char stage[32] = "";

    if (part >= 0)
        snprintf(stage, sizeof stage, "_part%lld", (long long)part);
    *file =
        (struct shown_file){.rank = rank,
                            .parameters = RFS_IN_PLAN,
                            .mapped = rfs_view_format(&view->options) == RFS_FORMAT_SAFETENSORS};
    *folder = (struct shown_folder){.first = rank, .n = 1};
    folder->name = rfs_text_printf("rank_%u", rank);
    file->name = rfs_text_printf("%s%u%s.%s", prefix, rank, stage, rfs_format_name(view->format));
    return folder->name && file->name ? 0 : rfs_fail_memory(err);
}

static int show_ranks(struct rfs_view *view, struct rfs_error *err)
{
    int rc = 0;

    view->kind = &ranks;
    view->n_groups = rfs_groups_count(view);
    view->files = calloc(view->n_ranks, sizeof *view->files);
    view->folders = calloc(view->n_ranks, sizeof *view->folders);
    if (!view->files || !view->folders)
        return rfs_fail_memory(err);
    view->n_files = view->n_folders = view->n_ranks;
    for (uint32_t r = 0; rc == 0 && r < view->n_ranks; r++)
        rc = show_rank(view, r, err);
    return rc;
}

int rfs_view_show_planned(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;

    view->format = rfs_view_format(&view->options);
    rfs_objects_tell(view);
    if (view->options.shown == RFS_SHOW_RANKS)
        return show_ranks(view, err);
    if (view->options.shown == RFS_SHOW_DCP)
        return rfs_view_dcp(view, err);
    if (view->options.shown == RFS_SHOW_MINDFORMERS)
        return rfs_view_mindformers(view, err);
    view->kind = &flat;
    view->n_groups = 1;
    const int rc = rfs_planner_rank(view->planner, 0, &plan, err);
    if (rc)
        return rc;
    return view->options.shown == RFS_SHOW_HUGGINGFACE
               ? rfs_view_huggingface(view, plan->params, err)
               : rfs_view_unified(view, plan->params, err);
}
