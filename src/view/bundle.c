/* SPDX-License-Identifier: Apache-2.0 */
#include "view/bundle.h"

#include "base/cleanup.h"
#include "image/pt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "merged"

struct rfs_bundle {
    struct rfs_hfai *hfai;
    struct rfs_hfai_division *division; /* of the parts shown */
    uint32_t n_shown;                   /* parts in the root; what is merged follows */
    size_t
        n_archives; /* files of torch.save; safetensors files, ready from the beginning, follow */
    struct rfs_rank_plan plan;
    /* [models] owned; under the view's lock until it is set, then constant */
    struct bundle_model {
        struct rfs_params *params;
        struct rfs_storages *storages;
    } * models;
};

static void free_model(struct bundle_model *model)
{
    if (model->storages)
        rfs_storages_free(model->storages);
    free(model->storages);
    free(model->params);
    *model = (struct bundle_model){0};
}

const struct rfs_hfai *rfs_view_bundle_hfai(const struct rfs_bundle *bundle)
{
    return bundle->hfai;
}

const struct rfs_hfai_division *rfs_view_bundle_division(const struct rfs_bundle *bundle)
{
    return bundle->division;
}

size_t rfs_view_bundle_models(const struct rfs_bundle *bundle)
{
    return rfs_hfai_models(bundle->hfai);
}

void rfs_view_bundle_free(struct rfs_bundle *bundle)
{
    if (!bundle)
        return;
    for (size_t i = 0; bundle->models && i < rfs_hfai_models(bundle->hfai); i++)
        free_model(&bundle->models[i]);
    free(bundle->models);
    rfs_hfai_division_free(bundle->division);
    rfs_hfai_free(bundle->hfai);
    free(bundle->plan.sources);
    free(bundle);
}

const struct rfs_rank_plan *rfs_view_bundle_plan(const struct rfs_bundle *bundle)
{
    return &bundle->plan;
}

/* Attributes as of a file that depends on every part. */
static int take_attributes(struct reshard_view *view, struct rfs_error *err)
{
    struct rfs_rank_plan *plan = &view->bundle->plan;
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    const uint32_t n = rfs_catalog_ranks(view->catalog);

    plan->mode = 0444;
    plan->sources = malloc(n * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; p < n; p++) {
        const int rc = rfs_plan_add_file(files, rfs_catalog_file(view->catalog, p), plan, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int show(struct reshard_view *view, bool in_folder, char *name, struct rfs_error *err)
{
    struct shown_file *file = &view->files[view->n_files];

    file->name = name;
    file->dir = in_folder && name ? strdup(FOLDER) : NULL;
    view->n_files += name != NULL;
    return name && (!in_folder || file->dir) ? 0 : rfs_fail_memory(err);
}

/* "model.pt", or "model_0.pt" and so on when there are several. */
static int show_each(struct reshard_view *view, const char *what, size_t n, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *name;
        const int length =
            n == 1 ? asprintf(&name, "%s.pt", what) : asprintf(&name, "%s_%zu.pt", what, i);
        rc = show(view, true, length < 0 ? NULL : name, err);
    }
    return rc;
}

static const struct rfs_torch *torch_of(void *ctx, uint16_t origin)
{
    const struct rfs_bundle *bundle = ctx;
    return rfs_hfai_torch(bundle->hfai, origin);
}

static int make_document(const struct reshard_view *view, size_t file, struct rfs_document *out,
                         struct rfs_error *err)
{
    const struct rfs_bundle *bundle = view->bundle;
    const size_t models = rfs_hfai_models(bundle->hfai);

    if (file < bundle->n_shown)
        return rfs_hfai_part(bundle->division, (uint32_t)file, out, err);
    file -= bundle->n_shown;
    if (file == 0)
        return rfs_hfai_whole(bundle->hfai, out, err);
    return file <= models ? rfs_hfai_model(bundle->hfai, file - 1, out, err)
                          : rfs_hfai_optimizer(bundle->hfai, file - 1 - models, out, err);
}

/* A model's tensors as a parameter list of its own, and where they are. */
static int collect_tensors(struct reshard_view *view, size_t model, struct rfs_params **params,
                           struct rfs_storages *storages, struct rfs_error *err)
{
    struct rfs_tables *tables = rfs_catalog_tables(view->catalog);
    struct rfs_hfai_tensor tensor;
    size_t cap = 0;
    int rc;

    for (size_t i = 0;
         (rc = rfs_hfai_tensor(view->bundle->hfai, model, i, storages, &tensor, err)) == 1; i++) {
        if (i >= cap) {
            cap = cap ? cap * 2 : 64;
            struct rfs_params *more = realloc(*params, sizeof *more + cap * sizeof *more->targets);
            if (!more)
                return rfs_fail_memory(err);
            *params = more;
        }
        struct rfs_target *target = &(*params)->targets[i];
        *target = (struct rfs_target){
            .name = rfs_intern_add(tables->names, tensor.name, tensor.name_bytes),
            .type = rfs_intern_add(tables->types, &tensor.type, sizeof tensor.type)};
        if (target->name == RFS_NO_ID || target->type == RFS_NO_ID)
            return rfs_fail_memory(err);
        target->shown_name = target->name;
        target->shown_type = target->type;
        (*params)->n = i + 1;
    }
    return rc;
}

/* The tensors of a model: *out is to be freed in any case. */
static int collect_model(struct reshard_view *view, size_t model, struct bundle_model *out,
                         struct rfs_error *err)
{
    out->params = calloc(1, sizeof *out->params);
    out->storages = calloc(1, sizeof *out->storages);
    return out->params && out->storages
               ? collect_tensors(view, model, &out->params, out->storages, err)
               : rfs_fail_memory(err);
}

int rfs_view_bundle_tensors(struct reshard_view *view, size_t model,
                            const struct rfs_params **params, const struct rfs_storages **storages,
                            struct rfs_error *err)
{
    struct bundle_model *kept = &view->bundle->models[model];
    RFS_CLEANUP(free_model) struct bundle_model fresh = {0};
    int rc = 0;

    pthread_mutex_lock(&view->lock);
    bool is_made = kept->params != NULL;
    pthread_mutex_unlock(&view->lock);
    if (!is_made)
        rc = collect_model(view, model, &fresh, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    if (!kept->params) { /* else another thread was faster */
        *kept = fresh;
        fresh = (struct bundle_model){0};
    }
    pthread_mutex_unlock(&view->lock);
    *params = kept->params;
    *storages = kept->storages;
    return 0;
}

static int safetensors_image(struct reshard_view *view, size_t model, struct rfs_image **out,
                             struct rfs_error *err)
{
    RFS_CLEANUP(free_model) struct bundle_model made = {0};

    int rc = collect_model(view, model, &made, err);
    const struct rfs_selection all = {.params = made.params};
    if (rc == 0)
        rc = rfs_image_safetensors(view->catalog, &all, "pt", out, err);
    if (rc)
        return rc;
    (*out)->params = NULL;
    (*out)->storages = RFS_STEAL(made.storages);
    return 0;
}

bool rfs_view_bundle_is_mapped(const struct reshard_view *view, size_t file)
{
    return file >= view->bundle->n_archives;
}

int rfs_view_bundle_image(struct reshard_view *view, size_t file, struct rfs_image **out,
                          struct rfs_error *err)
{
    struct rfs_document document = {0};

    *out = NULL;
    RFS_FREE char *stem = strdup(view->files[file].name);
    if (!stem)
        return rfs_fail_memory(err);
    stem[strlen(stem) - 3] = '\0'; /* without .pt */
    int rc = make_document(view, file, &document, err);
    const struct rfs_pt_config config = {
        .catalog = view->catalog,
        .document = &document,
        .torch = torch_of,
        .ctx = view->bundle,
        .stem = stem,
        .crc = view->options.zip_crc,
    };
    if (rc == 0)
        rc = rfs_image_pt(&config, out, err);
    rfs_document_free(&document);
    return rc;
}

/* A model whose tensors fit that format; of another, a line in the log says why it is not shown. */
static int show_safetensors(struct reshard_view *view, size_t model, struct rfs_error *err)
{
    struct rfs_image *image = NULL;
    struct rfs_error failure = {0};
    char *name;

    const int length = rfs_hfai_models(view->bundle->hfai) == 1
                           ? asprintf(&name, "model.safetensors")
                           : asprintf(&name, "model_%zu.safetensors", model);
    if (length < 0)
        return rfs_fail_memory(err);
    int rc = safetensors_image(view, model, &image, &failure);
    if (rc == 0 && !RFS_PUSH(&view->images, image)) {
        rfs_image_free(image);
        rc = rfs_fail_memory(&failure);
    }
    if (rc == 0) {
        atomic_init(&view->files[view->n_files].image, image);
        return show(view, true, name, err);
    }
    if (rc == -EINVAL || rc == -EFBIG) {
        rfs_log(&view->log, RFS_WARNING, FOLDER "/%s is left out: %s", name, failure.text);
        rc = 0;
    } else {
        *err = failure;
    }
    free(name);
    return rc;
}

static int list_files(struct reshard_view *view, struct rfs_error *err)
{
    struct rfs_bundle *bundle = view->bundle;
    const size_t models = rfs_hfai_models(bundle->hfai);
    const size_t optimizers = rfs_hfai_optimizers(bundle->hfai);
    int rc = 0;

    view->flat = true;
    view->folder = FOLDER;
    view->first_in_folder = bundle->n_shown;
    view->files = calloc(bundle->n_shown + 1 + 2 * models + optimizers, sizeof *view->files);
    if (!view->files)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; rc == 0 && p < bundle->n_shown; p++) {
        char *name;
        rc = show(view, false, asprintf(&name, "PART_%03u.pt", p) < 0 ? NULL : name, err);
    }
    if (rc == 0)
        rc = show(view, true, strdup("checkpoint.pt"), err);
    if (rc == 0)
        rc = show_each(view, "model", models, err);
    if (rc == 0)
        rc = show_each(view, "optimizer", optimizers, err);
    bundle->n_archives = view->n_files;
    for (size_t i = 0; rc == 0 && i < models; i++)
        rc = show_safetensors(view, i, err);
    return rc;
}

/* An option that is given, and is for other sources. */
static const char *unused_option(const struct rfs_options *o)
{
    const struct {
        bool given;
        const char *name;
    } others[] = {
        {o->src_strategy != NULL, "src_strategy"},
        {o->dst_strategy != NULL, "dst_strategy"},
        {o->src_rules != NULL, "src_rules"},
        {o->dst_rules != NULL, "dst_rules"},
        {o->rank_dir != NULL, "rank_dir"},
        {o->file != NULL, "file"},
        {o->group_info != NULL, "group_info"},
        {o->step != RFS_ANY_NUMBER, "step"},
        {o->epoch != RFS_ANY_NUMBER, "epoch"},
        {o->segmented, "segmented"},
        {o->entry != NULL, "entry"},
        {o->segmented_skip != NULL, "segmented_skip"},
        {o->check_crc, "check"},
        {o->key_file || o->key_env || o->key_fd >= 0, "key_file, key_env or key_fd"},
        {o->format_given && o->format != RFS_FORMAT_TORCH, "format"},
        {o->shown != RFS_SHOW_RANKS, "view"},
        {o->names != NULL, "names"},
        {o->dtype != NULL, "dtype"},
        {o->crc, "crc"},
        {strcmp(o->prefix, RFS_PREFIX) != 0, "prefix"},
        {o->strict, "strict"},
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return others[i].name;
    return NULL;
}

int rfs_view_bundle_open(struct reshard_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;

    const char *unused = unused_option(options);
    if (unused)
        return rfs_fail_usage(err, "nshards=, large_size= and zip_crc alone",
                              "the source is in hfai's parts, for which option %s does nothing",
                              unused);
    if (options->nshards > RFS_HFAI_PARTS)
        return rfs_fail_usage(err, "fewer parts", "option nshards=%u: at most %d parts are shown",
                              options->nshards, RFS_HFAI_PARTS);
    view->bundle = calloc(1, sizeof *view->bundle);
    if (!view->bundle)
        return rfs_fail_memory(err);
    int rc = rfs_hfai_open(view->catalog, options->uneven_steps, &view->bundle->hfai, err);
    if (rc == 0)
        rc = take_attributes(view, err);
    if (rc)
        return rc;
    view->bundle->n_shown =
        options->nshards > 0 ? options->nshards : rfs_hfai_parts(view->bundle->hfai);
    view->scale =
        (struct rfs_scale){rfs_hfai_parts(view->bundle->hfai), 1, view->bundle->n_shown, 1, 0};
    view->n_ranks = view->bundle->n_shown;
    view->bundle->models =
        calloc(rfs_hfai_models(view->bundle->hfai) + 1, sizeof *view->bundle->models);
    if (!view->bundle->models)
        return rfs_fail_memory(err);
    rc = rfs_hfai_divide(view->bundle->hfai, view->bundle->n_shown,
                         options->large_size != RFS_NO_SIZE ? options->large_size : RFS_HFAI_LARGE,
                         &view->bundle->division, err);
    return rc ? rc : list_files(view, err);
}
