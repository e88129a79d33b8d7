/* SPDX-License-Identifier: Apache-2.0 */
#include "view/model_files.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/store.h"
#include "base/text.h"
#include "rules/known.h"

RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)
RFS_CLEANUP_OF(free_known, struct rfs_known *, rfs_known_free)

/* ---- the config ------------------------------------------------------------------------------ */

/*
 * Takes over PATH, and returns it with its folder as it really is. The file itself may be a link,
 * beside which the other files are. NULL with *err filled.
 */
static char *in_its_folder(char *path, struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_parent(path);
    char *real = folder ? rfs_path_join(folder, rfs_path_name(path)) : NULL;

    if (!real)
        rfs_store_fail_read(err, RFS_IN(path), -errno);
    free(path);
    return real;
}

void rfs_view_model_config_end(struct rfs_view_model_config *model)
{
    free(model->config);
}

int rfs_view_model_find(const struct rfs_view *view, struct rfs_view_model_config *model,
                        struct rfs_error *err)
{
    const char *given = view->options.hf_config ?: rfs_catalog_quant_config(view->source);
    char *path =
        given ? strdup(given) : rfs_path_join(rfs_catalog_path(view->source), "config.json");

    if (!path)
        return rfs_fail_memory(err);
    if (!given && !rfs_store_there(view->set->store, path)) {
        free(path);
        return 0;
    }
    model->config = in_its_folder(path, err);
    return model->config ? 0 : err->code;
}

void rfs_view_model_cut(struct rfs_view *view, struct rfs_view_model_config *model,
                        const struct rfs_hf_config *config, const char *coded, enum rfs_dtype dtype)
{
    struct rfs_hf_cuts cuts;

    if (view->options.shown != RFS_SHOW_HUGGINGFACE || !rfs_hf_config_quantization(config, &cuts))
        return;
    if (coded && !view->options.dequantize)
        rfs_log(&view->log, RFS_WARNING,
                "config.json keeps its quantization_config, because '%s' is %s: it must fit the "
                "tensors of the view",
                coded, rfs_dtype_name(dtype));
    else {
        rfs_log(&view->log, RFS_INFO,
                "config.json is shown without its quantization_config: no tensor is quantized");
        model->cuts = cuts;
    }
}

/* ---- the names of the tensors ---------------------------------------------------------------- */

static const char *name_at(const struct rfs_view *view, const struct rfs_params *params, size_t i)
{
    return rfs_catalog_name(view->catalog, params->targets[i].shown_name);
}

/*
 * Returns the only dict of a list that has tensors of a model, NULL: there is not one. Their names
 * follow the first BYTES of each. *others is the number of dicts with other values.
 */
static const char *find_dict(const struct rfs_view *view, const struct rfs_path_list *dicts,
                             size_t bytes, size_t *others)
{
    const char *found = NULL;

    *others = 0;
    for (size_t i = 0; i < dicts->n; i++) {
        RFS_FREE char *like = rfs_text_printf("%s.", dicts->data[i] + bytes);
        const bool state = !like || rfs_names_is_state(view->names, like);
        *others += state;
        if (!state && found)
            return NULL;
        found = state ? found : dicts->data[i];
    }
    return found;
}

/* Returns the only dict of the source that has tensors of a model; NULL: there is not one. */
static const char *only_dict(const struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);
    size_t others = 0;

    if (!chunked)
        return NULL;
    const char *top = find_dict(view, &chunked->dicts, 0, &others);
    if (chunked->dicts.n != 1 || !top)
        return top;
    /* {"app": {"model": ..., "optim": ...}} */
    const char *inner = find_dict(view, &chunked->dicts_in_one, strlen(top) + 1, &others);
    return inner && others > 0 ? inner : top;
}

/* Warns if an entry that is no dict of the state leaves out what no training has beside weights. */
static void warn_beside(struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);

    for (size_t i = 0; chunked && i < chunked->beside.n; i++)
        if (!rfs_names_is_state(view->names, chunked->beside.data[i])) {
            rfs_log(&view->log, RFS_WARNING,
                    "entry=%s is no dict of the state, but the beginning of names: others are left "
                    "out, such as '%s'; try: without entry, if both are of the model",
                    view->options.entry, chunked->beside.data[i]);
            return;
        }
}

/* Takes what a loader would miss, MISSED: a warning, or with strict a refusal. 0 or -EINVAL. */
static int miss(struct rfs_view *view, const struct rfs_error *missed, struct rfs_error *err)
{
    if (view->options.strict) {
        *err = *missed;
        return missed->code;
    }
    rfs_log(&view->log, RFS_WARNING, "%s", missed->text);
    return 0;
}

/* Says whether a loader knows NAME only without the wrappers in it. -1: out of memory. */
static int is_wrapped(const struct rfs_known *known, const char *name)
{
    RFS_FREE char *bare = rfs_names_unwrap(name);

    if (!bare)
        return -1;
    return strcmp(bare, name) != 0 &&
           (known ? rfs_known_has(known, bare)
                  : strstr(name, "_wrapped_module.") || strstr(name, "_orig_mod."));
}

/* Counts the names that have wrappers in them. KNOWN: of the model's tensors, or NULL. */
static int check_wrappers(struct rfs_view *view, const struct rfs_params *params,
                          const struct rfs_known *known, size_t *found, struct rfs_error *err)
{
    const char *first = NULL;
    struct rfs_error missed = {0};
    size_t n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const int wrapped = is_wrapped(known, name_at(view, params, i));
        if (wrapped < 0)
            return rfs_fail_memory(err);
        n += (size_t)wrapped;
        first = wrapped && !first ? name_at(view, params, i) : first;
    }
    *found = n;
    if (n == 0)
        return 0;
    rfs_fail(&missed, -EINVAL, RFS_IN(rfs_catalog_path(view->source)), "names=unwrap",
             "%zu of %zu names have a wrapper's part in them, and a loader would make random "
             "weights in their place, such as '%s'",
             n, params->n, first);
    return miss(view, &missed, err);
}

/* Looks for tensors of the model that the view does not have. */
static int check_missing(struct rfs_view *view, const struct rfs_params *params,
                         const struct rfs_hf_config *config, const struct rfs_known *known,
                         struct rfs_error *err)
{
    RFS_FREE const char **names = calloc(params->n, sizeof *names);
    struct rfs_error missed = {0};

    if (!names)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < params->n; i++)
        names[i] = name_at(view, params, i);
    const int rc = rfs_known_find_missing(known, config, names, params->n,
                                          rfs_catalog_path(view->source), &missed);
    return rc < 0 ? rfs_fail_memory(err) : rc ? miss(view, &missed, err) : 0;
}

/*
 * Looks for tensors that the model's loader would miss, by the shipped rules for its type. Nothing
 * is known of other types. DICT is what all names begin with, or NULL.
 */
static int check_names(struct rfs_view *view, const struct rfs_view_model_config *model,
                       const struct rfs_hf_config *config, const struct rfs_params *params,
                       const char *dict, bool *known, struct rfs_error *err)
{
    const struct rfs_hf_value *type = rfs_hf_config_find(config, "model_type");
    RFS_CLEANUP(free_known) struct rfs_known *names = NULL;

    const bool whole = !view->options.only && !view->options.drop;
    struct rfs_error missed = {0};
    size_t wrapped = 0;
    const int rc = (type && type->text ? rfs_known_tensors(type->text, &names, err) : 0)
                       ?: check_wrappers(view, params, names, &wrapped, err);

    *known = names != NULL;
    if (rc || wrapped > 0)
        return rc;
    for (size_t i = 0; names && i < params->n; i++)
        if (rfs_known_has(names, name_at(view, params, i)))
            return whole ? check_missing(view, params, config, names, err) : 0;
    if (!names || params->n == 0)
        return 0;
    RFS_FREE char *remedy = dict ? rfs_text_printf("entry=%s", dict) : NULL;
    rfs_fail(&missed, -EINVAL, RFS_IN(model->config), dict ? remedy : "entry=, names= or convert=",
             "no tensor has the name of one of %s, such as '%s': a loader would make random "
             "weights; the first is '%s'",
             type->text, rfs_known_example(names), name_at(view, params, 0));
    return miss(view, &missed, err);
}

/* Cuts quantization_config if no tensor is quantized, neither in the source nor in the view. */
static void cut_config(struct rfs_view *view, struct rfs_view_model_config *model,
                       const struct rfs_hf_config *config, const struct rfs_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        const uint32_t types[] = {params->targets[i].type, params->targets[i].shown_type};
        for (unsigned k = 0; k < 2; k++) {
            const struct rfs_type *type = rfs_catalog_type(view->catalog, types[k]);
            const enum rfs_dtype dtype = (enum rfs_dtype)type->dtype;
            if (type->kind == RFS_TENSOR && !rfs_dtype_is_float_target(dtype)) {
                rfs_view_model_cut(view, model, config, name_at(view, params, i), dtype);
                return;
            }
        }
    }
    rfs_view_model_cut(view, model, config, NULL, RFS_FLOAT32);
}

int rfs_view_model_check(struct rfs_view *view, struct rfs_view_model_config *model,
                         const struct rfs_params *params, struct rfs_error *err)
{
    RFS_CLEANUP(free_config) struct rfs_hf_config *config = NULL;
    struct rfs_error own = {0};
    const char *dict = view->options.names ? NULL : only_dict(view);
    bool known = false;
    size_t wrapped;
    int rc;

    warn_beside(view);
    if (view->rules)
        return 0;
    if (model->config && rfs_hf_config_open(view->set->store, model->config, &config, &own) &&
        (view->options.hf_config || view->options.dequantize)) {
        *err = own;
        return own.code;
    }
    rc = config ? check_names(view, model, config, params, dict, &known, err)
                : check_wrappers(view, params, NULL, &wrapped, err);
    if (config && (view->options.hf_config || view->options.dequantize))
        cut_config(view, model, config, params);
    if (rc == 0 && !known && dict)
        rfs_log(&view->log, RFS_WARNING,
                "the names of the weights begin with '%s.', the dict of the state that has them: a "
                "loader may know them without it; try: entry=%s",
                dict, dict);
    return rc;
}

/* ---- the files beside it --------------------------------------------------------------------- */

int rfs_view_model_list(const struct rfs_view *view, const struct rfs_view_model_config *model,
                        struct rfs_path_list *names, struct rfs_error *err)
{
    static const char *const patterns[] = {"generation_config.json",
                                           "tokenizer*",
                                           "vocab.*",
                                           "merges.txt",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template*",
                                           "preprocessor_config.json",
                                           "*.tiktoken",
                                           "configuration_*.py",
                                           "modeling_*.py",
                                           "tokenization_*.py",
                                           NULL};
    RFS_CLOSE_DIR struct rfs_dir dir = {.dir = NULL};
    RFS_FREE char *folder = NULL;
    const int rc = model->config ? rfs_path_parent(model->config, &folder, NULL, err) : 0;

    if (rc || !folder || rfs_dir_open(view->set->store, folder, &dir) != 0)
        return rc;
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir));) {
        bool like = false;
        for (size_t i = 0; patterns[i] && entry->d_type != DT_DIR; i++)
            like = like || rfs_glob_match_file(patterns[i], entry->d_name);
        if (like && !rfs_path_list_add(names, strdup(entry->d_name)))
            return rfs_fail_memory(err);
    }
    rfs_path_list_sort(names);
    return 0;
}

int rfs_view_model_show(struct rfs_view *view, const struct rfs_view_model_config *model,
                        const struct rfs_path_list *names, struct rfs_error *err)
{
    const char *config = model->config;
    RFS_FREE char *folder = NULL;

    if (!config)
        return 0;
    if (rfs_files_are_encrypted(rfs_catalog_files(view->catalog))) {
        rfs_log(&view->log, RFS_INFO, "with a key, the files beside %s are not shown", config);
        return 0;
    }
    int rc =
        rfs_view_pass_on(view, config, "config.json", model->cuts.n > 0 ? &model->cuts : NULL, err)
            ?: rfs_path_parent(config, &folder, NULL, err);

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        RFS_FREE char *path = rfs_path_join(folder, names->data[i]);
        rc = rfs_view_pass_on(view, path, names->data[i], NULL, err);
    }
    return rc;
}
