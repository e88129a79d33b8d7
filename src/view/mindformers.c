/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that save_checkpoint of MindSpore Transformers writes for an iteration, without
 * redundancy:
 *
 *     metadata.json
 *     common.json                           that of the source, if it has one beside its files
 *     model-0000000-0000004.safetensors …   of the ranks that store something of the model
 *     opt-0000000-0000004.safetensors …     of those that store some of the optimizer's state
 *
 * A slice that several ranks hold is stored by the lowest. A tensor is the optimizer's when its
 * name is that of another tensor behind a word ("adam_m.layer.weight"), or has no dot at all
 * ("global_step"): the modules of a model have names.
 */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "formats/formats.h"
#include "formats/mindformers/mindformers_encode.h"
#include "view/kinds.h"

#define COMMON "common.json"

enum kind_of_file { MODEL, OPTIMIZER, N_KINDS };

/* A tensor, and the stage of the destination that stores it. */
struct stored {
    const struct rfs_target *target; /* target of the first rank of the stage */
    uint32_t stage;
    enum kind_of_file kind;
};

/* The state of the view. */
struct mindformers {
    RFS_VEC(struct stored) tensors;
    RFS_VEC(uint32_t) by_name;   /* by name id: 1 + the tensor, or 0 */
    const char **files[N_KINDS]; /* [ranks shown] names of the shown files, or NULL */
};

static struct mindformers *mindformers_of(const struct rfs_view *view)
{
    return view->state;
}

/* ---- which tensors there are ----------------------------------------------------------------- */

static const struct stored *find(const struct mindformers *mf, uint32_t name)
{
    const uint32_t number = name < mf->by_name.n ? mf->by_name.data[name] : 0;

    return number ? &mf->tensors.data[number - 1] : NULL;
}

static int check_target(struct rfs_view *view, const struct rfs_target *target,
                        struct rfs_error *err)
{
    const struct rfs_geometry *geometry = rfs_planner_geometry(view->planner, target);
    const struct rfs_type *type = rfs_catalog_type(view->catalog, target->shown_type);
    const char *name = rfs_catalog_name(view->catalog, target->shown_name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(view->catalog), name);

    if (type->kind != RFS_TENSOR)
        return rfs_fail(err, -EINVAL, where, "names= mapping it to null to leave it out",
                        "is not a tensor, and view=mindformers has only tensors");
    if (strpbrk(name, ",'\"\\"))
        return rfs_fail(err, -EINVAL, where, "names= with another name",
                        "MindSpore Transformers cannot read names with commas or quotes");
    if (geometry && (geometry->dst.edge || geometry->dst.rounds > 1))
        return rfs_fail(err, -ENOTSUP, where, "view=dcp",
                        "has slices of different sizes or fields, which a Checkpoint 2.0 cannot "
                        "describe");
    return 0;
}

static int add_stage(struct rfs_view *view, uint32_t stage, struct rfs_error *err)
{
    struct mindformers *mf = view->state;
    const struct rfs_rank_plan *plan;
    int rc = rfs_planner_rank(view->planner, stage * view->scale.dst_devices, &plan, err);

    for (size_t i = 0; rc == 0 && i < plan->params->n; i++) {
        const struct rfs_target *target = &plan->params->targets[i];
        if (find(mf, target->shown_name))
            continue; /* a lower stage stores it */
        rc = check_target(view, target, err);
        uint32_t *number = RFS_ADD_AT(&view->memory, &mf->by_name, target->shown_name, 0);
        RFS_ADD(&view->memory, &mf->tensors, (struct stored){target, stage, MODEL});
        if (number)
            *number = (uint32_t)mf->tensors.n;
    }
    return rc;
}

static void set_kinds(struct rfs_view *view)
{
    struct mindformers *mf = view->state;
    struct rfs_intern *names = rfs_catalog_tables(view->catalog)->names;

    for (size_t i = 0; i < mf->tensors.n; i++) {
        struct stored *stored = &mf->tensors.data[i];
        const char *name = rfs_catalog_name(view->catalog, stored->target->shown_name);
        const char *dot = strchr(name, '.');
        if (!dot || find(mf, rfs_intern_find(names, dot + 1, strlen(dot + 1))))
            stored->kind = OPTIMIZER;
    }
}

/* Returns whether a local rank of a tensor's stage stores something of it. */
static bool owns(struct rfs_view *view, const struct rfs_target *target, uint32_t local)
{
    const struct rfs_geometry *geometry = rfs_planner_geometry(view->planner, target);

    return geometry ? rfs_grid_replica(&geometry->dst, local, 0) == local : local == 0;
}

/* ---- the files ------------------------------------------------------------------------------- */

/* Marks the ranks that store something of a kind; returns how many they are. */
static uint32_t mark_owners(struct rfs_view *view, enum kind_of_file kind, unsigned char *owners)
{
    const struct mindformers *mf = mindformers_of(view);
    const uint32_t devices = view->scale.dst_devices;
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < rfs_view_ranks(view); rank++) {
        owners[rank] = 0;
        for (size_t i = 0; !owners[rank] && i < mf->tensors.n; i++) {
            const struct stored *stored = &mf->tensors.data[i];
            owners[rank] = stored->kind == kind && stored->stage == rank / devices &&
                           owns(view, stored->target, rank % devices);
        }
        n += owners[rank];
    }
    return n;
}

static int show_kind(struct rfs_view *view, enum kind_of_file kind, struct rfs_error *err)
{
    RFS_FREE unsigned char *owners = malloc(rfs_view_ranks(view));
    const char **files = mindformers_of(view)->files[kind] =
        rfs_arena_zeros(&view->memory, rfs_view_ranks(view), sizeof *files);
    uint32_t number = 0;

    if (!owners || !files)
        return rfs_fail_memory(err);
    const uint32_t n = mark_owners(view, kind, owners);
    for (uint32_t rank = 0; rank < rfs_view_ranks(view); rank++) {
        if (!owners[rank])
            continue;
        struct rfs_view_file *file = rfs_view_show(view, "%s-%07u-%07u.safetensors",
                                                   kind == MODEL ? "model" : "opt", number++, n);
        file->rank = rank;
        file->mapped = true;
        file->parameters = RFS_IN_PLAN;
        files[rank] = file->name;
    }
    return 0;
}

/* Returns the kind of a rank's file. */
static enum kind_of_file kind_of(const struct rfs_view *view, size_t file)
{
    return mindformers_of(view)->files[MODEL][view->files[file].rank] == view->files[file].name
               ? MODEL
               : OPTIMIZER;
}

static int list(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err)
{
    const uint32_t rank = view->files[file].rank;
    const enum kind_of_file kind = kind_of(view, file);
    const struct rfs_rank_plan *plan;
    const int rc = rfs_planner_rank(view->planner, rank, &plan, err);

    if (rc)
        return rc;
    out->params = plan->params;
    out->kind = kind;
    out->row = &rfs_formats[RFS_ROW_MINDFORMERS];
    out->metadata = "ms";
    out->divide = "a strategy of more ranks";
    for (uint32_t i = 0; i < plan->params->n; i++) {
        const struct rfs_target *target = &plan->params->targets[i];
        const struct stored *stored = find(mindformers_of(view), target->shown_name);
        if (stored && stored->kind == kind && stored->stage == rank / view->scale.dst_devices &&
            owns(view, target, rank % view->scale.dst_devices) &&
            !RFS_PUSH(&out->pieces,
                      (struct rfs_view_piece){i, target->shown_type, target->shown_name, 0}))
            return rfs_fail_memory(err);
    }
    return 0;
}

/* ---- metadata.json --------------------------------------------------------------------------- */

static int make_metadata(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_image **out,
                         struct rfs_error *err)
{
    const struct mindformers *mf = view->state;
    const uint32_t devices = view->scale.dst_devices;
    const int rc = rfs_view_take_sources(view, plan, err);

    if (rc)
        return rc;
    RFS_FREE struct rfs_mindformers_tensor *tensors = calloc(mf->tensors.n + 1, sizeof *tensors);
    if (!tensors)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < mf->tensors.n; i++) {
        const struct stored *stored = &mf->tensors.data[i];
        const struct rfs_geometry *geometry = rfs_planner_geometry(view->planner, stored->target);
        const bool cut = geometry && geometry->dst.ranks > 1;
        tensors[i] = (struct rfs_mindformers_tensor){
            .name = stored->target->shown_name,
            .type = stored->target->shown_type,
            .whole = geometry ? geometry->whole
                              : rfs_catalog_type(view->catalog, stored->target->shown_type)->dims,
            .grid = cut ? &geometry->dst : NULL,
            .base = stored->stage * devices,
            .ranks = devices,
            .files = mf->files[stored->kind] + (size_t)stored->stage * devices};
    }
    return rfs_mindformers_encode_metadata(rfs_catalog_tables(view->catalog), tensors,
                                           mf->tensors.n, out)
               ? rfs_fail_memory(err)
               : 0;
}

/* ---- the kind of view ------------------------------------------------------------------------ */

/* Shows common.json, which a save of a single card has, too, without metadata.json. */
static int pass_on_common(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->source);

    if (rfs_catalog_chunks(view->source) || rfs_files_count_paths(files) == 0)
        return rfs_view_pass_on_own(view, COMMON, err);
    const char *file = rfs_files_path(files, 0);
    RFS_FREE char *path = rfs_text_printf("%.*s" COMMON, (int)(rfs_path_name(file) - file), file);
    return rfs_view_pass_on(view, path, COMMON, NULL, err);
}

static int open_mindformers(struct rfs_view *view, struct rfs_error *err)
{
    view->state = rfs_arena_zeros(&view->memory, 1, sizeof(struct mindformers));
    int rc = rfs_view_make_room(view, 2 * (size_t)rfs_view_ranks(view) + 2, err);

    if (rc)
        return rc;
    rfs_view_show(view, "%s", rfs_formats[RFS_ROW_MINDFORMERS].metadata)->make = make_metadata;
    rc = pass_on_common(view, err);
    for (uint32_t s = 0; rc == 0 && s < view->scale.dst_stages; s++)
        rc = add_stage(view, s, err);
    set_kinds(view);
    for (int k = 0; rc == 0 && k < N_KINDS; k++)
        rc = show_kind(view, (enum kind_of_file)k, err);
    return rc;
}

const struct rfs_view_kind rfs_kind_mindformers = {.open = open_mindformers, .list = list};
