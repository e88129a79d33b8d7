/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views whose files a planner plans: one for each destination rank, or in the root those of one
 * whole checkpoint, whose images are all made when the view is opened.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/formats.h"
#include "view/kinds.h"
#include "view/objects.h"
#include "view/rules_view.h"
#include "view/strategy_options.h"

/* ---- images ---------------------------------------------------------------------------------- */

struct ranks {
    /* Owned; shared by ranks: by parameter list, or NULL; under the view's lock. */
    RFS_VEC(struct rfs_image *) images;
    atomic_bool left_out; /* the log has the number of objects that are left out */
};

static void free_ranks(struct rfs_view *view)
{
    struct ranks *ranks = view->state;

    for (size_t i = 0; i < ranks->images.n; i++)
        rfs_image_free(ranks->images.data[i]);
    free(ranks->images.data);
    free(ranks);
}

/* A parameter list whose objects are added to a document. */
struct adding {
    struct rfs_view *view;
    const struct rfs_params *params;
    struct rfs_view_objects objects;
};

static int add_objects(void *ctx, struct rfs_document *document, struct rfs_error *err)
{
    struct adding *adding = ctx;
    struct ranks *ranks = adding->view->state;
    size_t left_out = 0;
    const int rc = rfs_view_objects_add(adding->view, adding->params, document, &adding->objects,
                                        &left_out, err);

    if (left_out > 0 && !atomic_exchange(&ranks->left_out, true))
        rfs_view_objects_log(adding->view, left_out);
    return rc;
}

static int encode(struct rfs_view *view, const struct rfs_params *params, struct rfs_image **out,
                  struct rfs_error *err)
{
    struct adding adding = {.view = view, .params = params};
    RFS_FREE struct rfs_image_tensor *tensors =
        rfs_view_list_tensors(view->catalog, params, NULL, params->n);
    const struct rfs_format_content content = {.tensors = tensors,
                                               .n = params->n,
                                               .path = rfs_catalog_path(view->catalog),
                                               .options = &view->options,
                                               .add = add_objects,
                                               .ctx = &adding};
    const int rc =
        tensors ? rfs_formats[rfs_view_options_format(&view->options)].encode(&content, out, err)
                : rfs_fail_memory(err);

    rfs_view_objects_end(&adding.objects);
    return rc;
}

/* Encodes the image of a parameter list once; the ranks that have that list share it. */
static int share_image(struct rfs_view *view, const struct rfs_params *params,
                       const struct rfs_image **out, struct rfs_error *err)
{
    struct ranks *ranks = view->state;
    struct rfs_image *fresh = NULL;
    const struct rfs_image *shared = NULL;
    int rc = 0;

    pthread_mutex_lock(&view->lock);
    if (params->id < ranks->images.n)
        shared = ranks->images.data[params->id];
    pthread_mutex_unlock(&view->lock);
    if (!shared)
        rc = encode(view, params, &fresh, err);
    *out = shared;
    if (shared || rc)
        return rc;

    pthread_mutex_lock(&view->lock);
    struct rfs_image **image = RFS_VEC_AT(&ranks->images, params->id, NULL);
    if (image && !*image)
        *image = RFS_STEAL(fresh);
    *out = image ? *image : NULL;
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

/* ---- files ----------------------------------------------------------------------------------- */

/* Shows rank_R/{prefix}R.ckpt, or rank_R/{prefix}R_part{stage}.ckpt by stage. */
static int show_rank(struct rfs_view *view, uint32_t rank, struct rfs_error *err)
{
    struct rfs_view_file *file = &view->files[rank];
    struct rfs_view_folder *folder = &view->folders[rank];
    const struct rfs_format_row *row = &rfs_formats[rfs_view_options_format(&view->options)];
    const int64_t part = rfs_planner_single_stage(view->planner);
    const char *prefix = view->options.prefix;
    char stage[32] = "";

    if (part >= 0)
        snprintf(stage, sizeof stage, "_part%lld", (long long)part);
    *file = (struct rfs_view_file){.rank = rank, .parameters = RFS_IN_PLAN, .mapped = row->mapped};
    *folder = (struct rfs_view_folder){.first = rank, .n = 1};
    folder->name = rfs_text_printf("rank_%u", rank);
    file->name = rfs_text_printf("%s%u%s%s", prefix, rank, stage, row->endings[0]);
    return folder->name && file->name ? 0 : rfs_fail_memory(err);
}

static int show_ranks(struct rfs_view *view, struct rfs_error *err)
{
    int rc = 0;

    view->state = calloc(1, sizeof(struct ranks));
    view->files = calloc(rfs_view_ranks(view), sizeof *view->files);
    view->folders = calloc(rfs_view_ranks(view), sizeof *view->folders);
    if (!view->state || !view->files || !view->folders)
        return rfs_fail_memory(err);
    view->n_files = view->n_folders = rfs_view_ranks(view);
    for (uint32_t r = 0; rc == 0 && r < rfs_view_ranks(view); r++)
        rc = show_rank(view, r, err);
    return rc;
}

const struct rfs_view_kind rfs_kind_ranks = {
    .by_rank = true, .open = show_ranks, .image = image_of, .free = free_ranks};

const struct rfs_view_kind *rfs_kind_of(const struct rfs_view *view)
{
    static const struct rfs_view_kind *const kinds[] = {
        [RFS_SHOW_RANKS] = &rfs_kind_ranks,
        [RFS_SHOW_HUGGINGFACE] = &rfs_kind_flat,
        [RFS_SHOW_UNIFIED] = &rfs_kind_flat,
        [RFS_SHOW_PEFT] = &rfs_kind_flat,
        [RFS_SHOW_DCP] = &rfs_kind_dcp,
        [RFS_SHOW_HYPER_PARALLEL] = &rfs_kind_dcp,
        [RFS_SHOW_MINDFORMERS] = &rfs_kind_mindformers,
    };

    return rfs_catalog_has_parts(view->source) ? &rfs_kind_parts : kinds[view->options.shown];
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Refuses options for sources or outputs of torch.save where there are none. */
static int check_torch_options(const struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    const struct rfs_option *unused =
        rfs_options_first(options, RFS_OPTION_OF_PARTS, RFS_OPTION_OF_RANKS);
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);
    const bool has_dicts =
        rfs_formats[rfs_catalog_format(view->source)].keyed || (chunked && chunked->format->keyed);

    if (unused)
        return rfs_fail_usage(err, "the folder that dist_ckpt.save wrote",
                              "option %s is for hfai's PART_000.pt and so on, which the source "
                              "does not have",
                              unused->name);
    if (options->entry && !has_dicts)
        return rfs_fail_usage(err, "leave entry out",
                              "option entry says where in a .pt file the tensors are, and the "
                              "source has none");
    if (options->zip_crc && rfs_view_options_format(options) != RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "-o format=pt", "option zip_crc is for .pt files");
    return 0;
}

uint64_t rfs_view_count_parameters(const struct rfs_view *view)
{
    uint64_t n = view->src ? rfs_strategy_count(view->src) : 0;

    for (size_t i = 0; view->dst && i < rfs_strategy_count(view->dst); i++)
        n += !view->src || rfs_strategy_find(view->src, rfs_strategy_param(view->dst, i)) < 0;
    return n;
}

int rfs_kind_plan(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    struct rfs_names_config names = {.names = options->names,
                                     .store = view->set->store,
                                     .only = options->only,
                                     .drop = options->drop,
                                     .dtype = options->dtype};
    int rc = rfs_view_take_strategies(view, err);

    names.weights =
        options->shown == RFS_SHOW_HUGGINGFACE && !options->names && !options->only && !view->rules;
    rc = rc ?: check_torch_options(view, err)
            ?: rfs_names_open(&names, &view->names, err)
            ?: rfs_view_objects_check_unread(view, err);

    if (rc)
        return rc;
    struct rfs_planner_config config = rfs_view_planning(view);
    config.dst = view->dst;
    config.keep_empty = !rfs_formats[rfs_view_options_format(options)].no_empty;
    config.names = view->names;
    config.lost = view->set->late ? RFS_LOST_REPORTED : RFS_LOST_REFUSED;
    config.by_rules = rfs_view_by_rules(view);
    rc = rfs_planner_new(&config, &view->planner, err);
    if (rc)
        return rc;
    rfs_planner_scale(view->planner, &view->scale);
    view->options.format = (int)rfs_view_options_format(options);
    rfs_view_objects_log_unshown(view);
    return 0;
}
