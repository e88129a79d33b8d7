/* SPDX-License-Identifier: Apache-2.0 */
#include "view/hfai_view.h"

#include "base/cleanup.h"
#include "base/once.h"
#include "base/text.h"
#include "formats/torch/torch_encode.h"
#include "view/hidden.h"

#define FOLDER "merged"

/* A model: its tensors as a parameter list of its own, and where they are. */
struct model {
    struct rfs_params *params;
    struct rfs_storages *storages;
};

struct rfs_view_hfai {
    struct rfs_hfai *hfai;
    struct rfs_hfai_division *division; /* division among the parts shown */
    uint32_t n_shown;                   /* parts in the root; merged files follow */
    struct rfs_rank_plan plan;          /* plan of each file, with every part */
    size_t n_models;
    _Atomic(struct model *) *models; /* [n_models] owned; NULL until needed */
};

static void free_model(struct model *model)
{
    if (!model)
        return;
    if (model->storages)
        rfs_storages_free(model->storages);
    free(model->storages);
    free(model->params);
    free(model);
}

RFS_CLEANUP_OF(drop_model, struct model *, free_model)

void rfs_view_hfai_parts(const struct rfs_view *view, const struct rfs_hfai **hfai,
                         const struct rfs_hfai_division **division)
{
    *hfai = view->hfai->hfai;
    *division = view->hfai->division;
}

/* ---- the tensors that are shown -------------------------------------------------------------- */

static const struct rfs_rank_plan *plan_of(const struct rfs_view *view, size_t file)
{
    (void)file;
    return &view->hfai->plan;
}

static int collect_tensors(struct rfs_view *view, size_t number, struct model *model,
                           struct rfs_error *err)
{
    struct rfs_tables *tables = rfs_catalog_tables(view->catalog);
    struct rfs_hfai_tensor tensor;
    size_t cap = 0;
    int rc;

    for (size_t i = 0;
         (rc = rfs_hfai_tensor(view->hfai->hfai, number, i, model->storages, &tensor, err)) == 1;
         i++) {
        if (i >= cap) {
            cap = cap ? cap * 2 : 64;
            struct rfs_params *more =
                realloc(model->params, sizeof *more + cap * sizeof *more->targets);
            if (!more)
                return rfs_fail_memory(err);
            model->params = more;
        }
        struct rfs_target *target = &model->params->targets[i];
        *target = (struct rfs_target){
            .name = rfs_intern_add(tables->names, tensor.name, tensor.name_bytes),
            .type = rfs_intern_add(tables->types, &tensor.type, sizeof tensor.type)};
        if (target->name == RFS_NO_ID || target->type == RFS_NO_ID)
            return rfs_fail_memory(err);
        target->shown_name = target->name;
        target->shown_type = target->type;
        model->params->n = i + 1;
    }
    return rc;
}

/* Collects the tensors of a model; *out is to be freed in any case. */
static int collect_model(struct rfs_view *view, size_t number, struct model **out,
                         struct rfs_error *err)
{
    struct model *model = *out = calloc(1, sizeof *model);

    if (!model)
        return rfs_fail_memory(err);
    model->params = calloc(1, sizeof *model->params);
    model->storages = calloc(1, sizeof *model->storages);
    return model->params && model->storages ? collect_tensors(view, number, model, err)
                                            : rfs_fail_memory(err);
}

static int tensors_of(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                      struct rfs_error *err)
{
    struct model *model = RFS_PUBLISHED(&view->hfai->models[group]);

    if (!model) {
        const int rc = collect_model(view, group, &model, err);
        if (rc) {
            free_model(model);
            return rc;
        }
        model = RFS_PUBLISH(&view->hfai->models[group], model, free_model);
    }
    *out = (struct rfs_tensors){.catalog = view->catalog,
                                .storages = model->storages,
                                .params = model->params,
                                .plan = &view->hfai->plan};
    return 0;
}

static void name_group(const struct rfs_view *view, uint32_t group, char out[32])
{
    if (view->n_groups > 1)
        snprintf(out, 32, "model_%u", group);
    else
        snprintf(out, 32, "full");
}

static int make_document(const struct rfs_view_hfai *hfai, size_t file, struct rfs_document *out,
                         struct rfs_error *err)
{
    if (file < hfai->n_shown)
        return rfs_hfai_part(hfai->division, (uint32_t)file, out, err);
    file -= hfai->n_shown;
    if (file == 0)
        return rfs_hfai_whole(hfai->hfai, out, err);
    return file <= hfai->n_models
               ? rfs_hfai_model(hfai->hfai, file - 1, out, err)
               : rfs_hfai_optimizer(hfai->hfai, file - 1 - hfai->n_models, out, err);
}

/* Returns the files of the parts, which the caller frees; NULL when out of memory. */
static struct rfs_torch_origin *origins_of(const struct rfs_view *view)
{
    const struct rfs_files *files = rfs_catalog_files(view->catalog);
    const uint32_t n = rfs_hfai_parts(view->hfai->hfai);
    struct rfs_torch_origin *origins = calloc(n, sizeof *origins);

    for (uint32_t p = 0; origins && p < n; p++) {
        const uint32_t file = rfs_catalog_file(view->catalog, p);
        origins[p] = (struct rfs_torch_origin){rfs_hfai_torch(view->hfai->hfai, p),
                                               rfs_files_path(files, file), file};
    }
    return origins;
}

static int image_of(struct rfs_view *view, size_t file, const struct rfs_image **out,
                    struct rfs_error *err)
{
    struct rfs_document document = {0};
    struct rfs_image *fresh;

    RFS_FREE char *stem = strdup(view->files[file].name);
    RFS_FREE struct rfs_torch_origin *origins = origins_of(view);
    if (!stem || !origins)
        return rfs_fail_memory(err);
    stem[strlen(stem) - 3] = '\0'; /* without .pt */
    int rc = make_document(view->hfai, file, &document, err);
    const struct rfs_torch_content content = {
        .document = &document,
        .origins = origins,
        .stem = stem,
        .path = rfs_catalog_path(view->catalog),
        .crc = view->options.zip_crc,
    };
    if (rc == 0)
        rc = rfs_torch_encode(&content, &fresh, err);
    rfs_document_free(&document);
    if (rc == 0)
        *out = rfs_view_publish(&view->files[file], fresh);
    return rc;
}

static void free_hfai(struct rfs_view *view)
{
    struct rfs_view_hfai *hfai = view->hfai;

    if (!hfai)
        return;
    for (size_t i = 0; hfai->models && i < hfai->n_models; i++)
        free_model(atomic_load(&hfai->models[i]));
    free(hfai->models);
    rfs_hfai_division_free(hfai->division);
    rfs_hfai_free(hfai->hfai);
    free(hfai->plan.sources);
    free(hfai);
}

static const struct rfs_view_kind kind = {.image = image_of,
                                          .plan = plan_of,
                                          .tensors = tensors_of,
                                          .name_group = name_group,
                                          .free = free_hfai};

/* ---- which files there are ------------------------------------------------------------------- */

/* Takes the attributes of files that depend on every part. */
static int take_attributes(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_rank_plan *plan = &view->hfai->plan;
    const uint32_t n = rfs_catalog_ranks(view->catalog);
    int rc = 0;

    plan->mode = 0444;
    plan->sources = malloc(n * sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; rc == 0 && p < n; p++)
        rc = rfs_plan_add_file(rfs_catalog_files(view->catalog), rfs_catalog_file(view->catalog, p),
                               plan, err);
    return rc;
}

/* Shows "model.pt" by FORM "model%s.pt", or "model_0.pt" and so on when there are several. */
static struct rfs_view_file *show(struct rfs_view *view, const char *form, size_t number, size_t n,
                                  struct rfs_error *err)
{
    struct rfs_view_file *file = &view->files[view->n_files];
    char digits[24] = "";

    if (n > 1)
        snprintf(digits, sizeof digits, "_%zu", number);
    file->name = rfs_text_printf(form, digits);
    if (!file->name) {
        rfs_fail_memory(err);
        return NULL;
    }
    view->n_files++;
    return file;
}

/* Shows a model whose tensors fit safetensors; the log says why others are not shown. */
static int show_safetensors(struct rfs_view *view, size_t number, struct rfs_error *err)
{
    RFS_CLEANUP(drop_model) struct model *model = NULL;
    struct rfs_image *image = NULL;
    struct rfs_error failure = {0};
    struct rfs_view_file *file =
        show(view, "model%s.safetensors", number, view->hfai->n_models, &failure);

    int rc = file ? collect_model(view, number, &model, &failure) : -ENOMEM;
    const struct rfs_safetensors_content content = {.n = rc == 0 ? model->params->n : 0,
                                                    .format = "pt"};
    if (rc == 0)
        rc = rfs_view_encode_safetensors(view->catalog, model->params, NULL, content, &image,
                                         &failure);
    if (rc == -EINVAL || rc == -EFBIG) {
        rfs_log(&view->log, RFS_WARNING, FOLDER "/%s is left out: %s", file->name, failure.text);
        free(file->name);
        *file = (struct rfs_view_file){0};
        view->n_files--;
        return 0;
    }
    if (rc) {
        *err = failure;
        return rc;
    }
    image->storages = RFS_STEAL(model->storages);
    file->own = image;
    file->mapped = true;
    atomic_init(&file->image, image);
    return 0;
}

static int show_all(struct rfs_view *view, const char *form, size_t n, struct rfs_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!show(view, form, i, n, err))
            return -ENOMEM;
    return 0;
}

static int show_parts(struct rfs_view *view, struct rfs_error *err)
{
    for (uint32_t p = 0; p < view->hfai->n_shown; p++) {
        char form[32];
        snprintf(form, sizeof form, "PART_%03u%%s.pt", p);
        if (!show(view, form, 0, 1, err))
            return -ENOMEM;
    }
    return 0;
}

static int show_files(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_view_hfai *hfai = view->hfai;
    const size_t optimizers = rfs_hfai_optimizers(hfai->hfai);

    view->files = calloc(hfai->n_shown + 1 + 2 * hfai->n_models + optimizers, sizeof *view->files);
    view->folders = calloc(1, sizeof *view->folders);
    if (!view->files || !view->folders)
        return rfs_fail_memory(err);
    view->n_folders = 1;
    view->folders->name = strdup(FOLDER);
    int rc = (view->folders->name ? show_parts(view, err) : rfs_fail_memory(err))
            ?: show_all(view, "checkpoint%s.pt", 1, err)
            ?: show_all(view, "model%s.pt", hfai->n_models, err)
            ?: show_all(view, "optimizer%s.pt", optimizers, err);
    for (size_t i = 0; rc == 0 && i < hfai->n_models; i++)
        rc = show_safetensors(view, i, err);
    view->folders->first = hfai->n_shown;
    view->folders->n = view->n_files - hfai->n_shown;
    return rc;
}

/* Returns an option that is given and is for other sources, or NULL. */
static const char *unused_option(const struct rfs_options *options)
{
    const struct rfs_option *unused =
        rfs_options_first(options, RFS_OPTION_OF_RANKS, RFS_OPTION_OF_PARTS);

    if (!unused && options->format >= 0 && options->format != RFS_FORMAT_TORCH)
        return "format";
    return unused ? unused->name : NULL;
}

static int check_options(const struct rfs_options *options, struct rfs_error *err)
{
    const char *unused = unused_option(options);

    if (unused)
        return rfs_fail_usage(err, "nshards=, large_size= and zip_crc alone",
                              "option %s has no effect on a source in hfai's parts", unused);
    if (options->nshards > RFS_HFAI_PARTS)
        return rfs_fail_usage(err, "fewer parts", "option nshards=%u: at most %d parts are shown",
                              options->nshards, RFS_HFAI_PARTS);
    return 0;
}

int rfs_view_hfai_open(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    struct rfs_view_hfai *hfai;

    int rc = check_options(options, err);
    if (rc)
        return rc;
    view->kind = &kind;
    hfai = view->hfai = calloc(1, sizeof *view->hfai);
    if (!hfai)
        return rfs_fail_memory(err);
    rc = rfs_catalog_open_parts(view->catalog, options->uneven_steps, &hfai->hfai, err)
             ?: take_attributes(view, err);
    if (rc)
        return rc;
    const uint32_t parts = rfs_hfai_parts(hfai->hfai);
    hfai->n_shown = options->nshards > 0 ? options->nshards : parts;
    hfai->n_models = rfs_hfai_models(hfai->hfai);
    hfai->models = calloc(hfai->n_models + 1, sizeof *hfai->models);
    if (!hfai->models)
        return rfs_fail_memory(err);
    view->format = RFS_FORMAT_TORCH;
    view->scale = (struct rfs_scale){parts, 1, hfai->n_shown, 1, 0};
    view->n_ranks = hfai->n_shown;
    view->n_groups =
        hfai->n_models < RFS_HIDDEN_GROUPS ? (uint32_t)hfai->n_models : RFS_HIDDEN_GROUPS;
    rc = rfs_hfai_divide(hfai->hfai, hfai->n_shown,
                         options->large_size != RFS_NO_SIZE ? options->large_size : RFS_HFAI_LARGE,
                         &hfai->division, err);
    return rc ? rc : show_files(view, err);
}
