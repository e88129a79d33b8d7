/* SPDX-License-Identifier: Apache-2.0 */
#include "view/hfai_view.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "formats/formats.h"
#include "formats/torch/torch_encode.h"
#include "view/kinds.h"

#define FOLDER "merged"

/* The state of the view. */
struct parts {
    struct rfs_hfai *hfai;
    struct rfs_hfai_division *division; /* division among the parts shown */
    uint32_t n_shown;                   /* parts in the root; merged files follow */
    struct rfs_rank_plan plan;          /* plan of each file, with every part */
    size_t n_models;
    struct rfs_view_hfai_list models; /* list of the models' tensors */
    struct rfs_params **params;       /* [n_models] each model's part of it, by own names */
    struct rfs_error failure;         /* why there is no such list; code 0: there is one */
};

static struct parts *parts_of(const struct rfs_view *view)
{
    return view->state;
}

/* ---- the tensors of the state ---------------------------------------------------------------- */

int rfs_view_hfai_list(struct rfs_view *view, enum rfs_view_hfai_what what,
                       struct rfs_view_hfai_list *out, struct rfs_error *err)
{
    static const struct rfs_params none;
    const struct rfs_hfai_listing how = {
        .models = what == RFS_VIEW_HFAI_MODELS,
        .rows = what == RFS_VIEW_HFAI_ROWS ? parts_of(view)->division : NULL};
    struct rfs_tensors *tensors = &out->tensors;

    *out = (struct rfs_view_hfai_list){.division = parts_of(view)->division};
    int rc = rfs_catalog_list_parts(view->catalog, parts_of(view)->hfai, how, &out->state,
                                    &tensors->catalog, err);
    const struct rfs_planner_config config = {
        .catalog = tensors->catalog, .pool = view->set->pool, .keep_empty = true};
    tensors->view = view;
    tensors->path = rfs_catalog_path(view->catalog);
    tensors->params = &none;
    if (rc || out->state.tensors.n == 0) /* the planner refuses to plan nothing */
        return rc;
    rc = rfs_planner_new(&config, &tensors->planner, err)
             ?: rfs_planner_rank(tensors->planner, 0, &tensors->plan, err);
    if (rc == 0)
        tensors->params = tensors->plan->params;
    return rc;
}

void rfs_view_hfai_list_free(struct rfs_view_hfai_list *list)
{
    rfs_planner_free(list->tensors.planner);
    rfs_catalog_close(list->tensors.catalog);
    rfs_hfai_list_free(&list->state);
    *list = (struct rfs_view_hfai_list){0};
}

/* ---- the tensors that are shown -------------------------------------------------------------- */

static const struct rfs_rank_plan *plan_of(const struct rfs_view *view, size_t file)
{
    (void)file;
    return &parts_of(view)->plan;
}

/* Takes the targets of model NUMBER from *AT on, by their names in the model. */
static int take_model(struct rfs_view *view, uint32_t number, size_t *at, struct rfs_error *err)
{
    struct parts *hfai = view->state;
    const struct rfs_hfai_list *list = &hfai->models.state;
    const struct rfs_params *all = hfai->models.tensors.params;
    struct rfs_intern *names = rfs_catalog_tables(hfai->models.tensors.catalog)->names;
    const int prefix = hfai->n_models > 1 ? snprintf(NULL, 0, "model.%" PRIu32 ".", number) : 0;
    const size_t first = *at;

    while (*at < all->n && list->tensors.data[*at].owner.state == number)
        ++*at;
    const size_t n = *at - first;
    struct rfs_params *params = hfai->params[number] =
        rfs_arena_zeros(&view->memory, 1, sizeof *params + n * sizeof *params->targets);
    if (!params)
        return rfs_fail_memory(err);
    params->n = n;
    for (size_t i = 0; i < n; i++) {
        struct rfs_target *target = &params->targets[i];
        size_t length;
        *target = all->targets[first + i];
        const char *path = rfs_intern_bytes(names, target->name, &length);
        target->shown_name = rfs_intern_add(names, path + prefix, length - (size_t)prefix);
        if (target->shown_name == RFS_NO_ID)
            return rfs_fail_memory(err);
    }
    return 0;
}

/* Lists the models. What they have may fit no list: then the parts are shown all the same. */
static int list_models(struct rfs_view *view, struct rfs_error *err)
{
    struct parts *hfai = parts_of(view);
    size_t at = 0;

    hfai->params = rfs_arena_zeros(&view->memory, hfai->n_models + 1, sizeof *hfai->params);
    int rc = hfai->params
                 ? rfs_view_hfai_list(view, RFS_VIEW_HFAI_MODELS, &hfai->models, &hfai->failure)
                 : rfs_fail_memory(&hfai->failure);
    for (uint32_t m = 0; rc == 0 && m < hfai->n_models; m++)
        rc = take_model(view, m, &at, &hfai->failure);
    if (rc == 0 || rc == -EINVAL || rc == -EFBIG)
        return 0;
    *err = hfai->failure;
    return rc;
}

static int tensors_of(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                      struct rfs_error *err)
{
    const struct parts *hfai = parts_of(view);

    if (hfai->failure.code) {
        if (err)
            *err = hfai->failure;
        return hfai->failure.code;
    }
    *out = hfai->models.tensors;
    out->params = hfai->params[group];
    out->plan = &hfai->plan;
    return 0;
}

static size_t count_groups(const struct rfs_view *view)
{
    return parts_of(view)->n_models;
}

static void name_group(const struct rfs_view *view, uint32_t group, char out[32])
{
    if (count_groups(view) > 1)
        snprintf(out, 32, "model_%u", group);
    else
        snprintf(out, 32, "full");
}

static int make_document(const struct parts *hfai, size_t file, struct rfs_document *out,
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
    const uint32_t n = rfs_hfai_parts(parts_of(view)->hfai);
    struct rfs_torch_origin *origins = calloc(n, sizeof *origins);

    for (uint32_t p = 0; origins && p < n; p++) {
        const uint32_t file = rfs_catalog_file(view->catalog, p);
        origins[p] = (struct rfs_torch_origin){rfs_hfai_torch(parts_of(view)->hfai, p),
                                               rfs_files_path(files, file), file};
    }
    return origins;
}

/* Lists a file of a document, which is no tensors, or of the tensors of a model. */
static int list(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err)
{
    static const struct rfs_params none;
    const struct rfs_view_file *shown = &view->files[file];

    (void)err;
    out->params = shown->mapped ? parts_of(view)->params[shown->rank] : &none;
    out->row = &rfs_formats[shown->mapped ? RFS_FORMAT_SAFETENSORS : RFS_FORMAT_TORCH];
    out->kind = (unsigned)file;
    out->whole = true;
    out->metadata = "pt";
    return 0;
}

static int encode(struct rfs_view *view, const struct rfs_view_listing *listing,
                  struct rfs_format_content *content, struct rfs_image **out, struct rfs_error *err)
{
    struct rfs_document document = {0};

    if (listing->row != &rfs_formats[RFS_FORMAT_TORCH])
        return listing->row->encode(content, out, err);
    RFS_FREE char *stem = strdup(view->files[listing->kind].name);
    RFS_FREE struct rfs_torch_origin *origins = origins_of(view);
    if (!stem || !origins)
        return rfs_fail_memory(err);
    stem[strlen(stem) - 3] = '\0'; /* without .pt */
    const struct rfs_torch_content torch = {.document = &document,
                                            .origins = origins,
                                            .stem = stem,
                                            .path = content->path,
                                            .crc = view->options.zip_crc};
    const int rc = make_document(parts_of(view), listing->kind, &document, err)
                       ?: rfs_torch_encode(&torch, out, err);
    rfs_document_free(&document);
    return rc;
}

static void free_hfai(struct rfs_view *view)
{
    struct parts *hfai = parts_of(view);

    rfs_view_hfai_list_free(&hfai->models);
    rfs_hfai_division_free(hfai->division);
    rfs_hfai_free(hfai->hfai);
}

/* ---- which files there are ------------------------------------------------------------------- */

/* Takes the attributes of files that depend on every part. */
static int take_attributes(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_rank_plan *plan = &parts_of(view)->plan;
    const uint32_t n = rfs_catalog_ranks(view->catalog);
    int rc = 0;

    plan->mode = 0444;
    plan->sources = rfs_arena_zeros(&view->memory, n, sizeof *plan->sources);
    if (!plan->sources)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; rc == 0 && p < n; p++)
        rc = rfs_plan_add_file(rfs_catalog_files(view->catalog), rfs_catalog_file(view->catalog, p),
                               plan, err);
    return rc;
}

/* Shows "model.pt" by FORM "model%s.pt", or "model_0.pt" and so on when there are several. */
static struct rfs_view_file *show(struct rfs_view *view, const char *form, size_t number, size_t n)
{
    char digits[24] = "";

    if (n > 1)
        snprintf(digits, sizeof digits, "_%zu", number);
    return rfs_view_show(view, form, digits);
}

/* Shows a model whose tensors fit safetensors; the log says why others are not shown. */
static int show_safetensors(struct rfs_view *view, uint32_t number, struct rfs_error *err)
{
    struct rfs_error failure = parts_of(view)->failure;
    struct rfs_view_file *file =
        show(view, "model%s.safetensors", number, parts_of(view)->n_models);
    uint64_t bytes;

    file->rank = number;
    file->mapped = true;
    const int rc = failure.code ?: rfs_view_plan_file(view, view->n_files - 1, &bytes, &failure);
    if (rc == -EINVAL || rc == -EFBIG) {
        rfs_log(&view->log, RFS_WARNING, FOLDER "/%s is left out: %s", file->name, failure.text);
        *file = (struct rfs_view_file){0};
        view->n_files--;
        return 0;
    }
    if (rc)
        *err = failure;
    return rc;
}

static void show_all(struct rfs_view *view, const char *form, size_t n)
{
    for (size_t i = 0; i < n; i++)
        show(view, form, i, n);
}

static int show_files(struct rfs_view *view, struct rfs_error *err)
{
    const struct parts *hfai = parts_of(view);
    const size_t optimizers = rfs_hfai_optimizers(hfai->hfai);
    struct rfs_view_folder folder = {.name = FOLDER, .first = hfai->n_shown};
    int rc = rfs_view_make_room(view, hfai->n_shown + 1 + 2 * hfai->n_models + optimizers, err);

    if (rc)
        return rc;
    for (uint32_t p = 0; p < hfai->n_shown; p++)
        rfs_view_show(view, "PART_%03u.pt", p);
    show_all(view, "checkpoint%s.pt", 1);
    show_all(view, "model%s.pt", hfai->n_models);
    show_all(view, "optimizer%s.pt", optimizers);
    for (uint32_t i = 0; rc == 0 && i < hfai->n_models; i++)
        rc = show_safetensors(view, i, err);
    folder.n = view->n_files - hfai->n_shown;
    RFS_ADD(&view->memory, &view->folders, folder);
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

static int open_parts(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    struct parts *hfai;

    int rc = check_options(options, err);
    if (rc)
        return rc;
    view->state = hfai = rfs_arena_zeros(&view->memory, 1, sizeof *hfai);
    if (!hfai)
        return rfs_fail_memory(err);
    rc = rfs_catalog_open_parts(view->catalog, options->uneven_steps, &hfai->hfai, err)
             ?: take_attributes(view, err);
    if (rc)
        return rc;
    const uint32_t parts = rfs_hfai_parts(hfai->hfai);
    hfai->n_shown = options->nshards > 0 ? options->nshards : parts;
    hfai->n_models = rfs_hfai_models(hfai->hfai);
    view->options.format = RFS_FORMAT_TORCH;
    view->scale = (struct rfs_scale){parts, 1, hfai->n_shown, 1, 0};
    rc = rfs_hfai_divide(hfai->hfai, hfai->n_shown,
                         options->large_size != RFS_NO_SIZE ? options->large_size : RFS_HFAI_LARGE,
                         &hfai->division, err)
             ?: list_models(view, err);
    return rc ? rc : show_files(view, err);
}

const struct rfs_view_kind rfs_kind_parts = {.open = open_parts,
                                             .list = list,
                                             .encode = encode,
                                             .plan = plan_of,
                                             .tensors = tensors_of,
                                             .name_group = name_group,
                                             .count_groups = count_groups,
                                             .free = free_hfai};
