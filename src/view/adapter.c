/* SPDX-License-Identifier: Apache-2.0 */
#include "view/adapter.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/store.h"
#include "base/text.h"

/* Saved by MindSpore Transformers beside adapters. */
#define MANIFEST "mindformers_adapter_config.json"

RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)
RFS_CLEANUP_OF(free_names, struct rfs_intern *, rfs_intern_free)

/* ---- tensors --------------------------------------------------------------------------------- */

/* What the names of PEFT begin with, and those of A and of B end in. */
static const char prefix[] = "base_model.model.";
static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};

/* One of the two tensors of a module. */
struct half {
    const char *name;
    size_t n;    /* characters of the name up to the end of the module's */
    unsigned of; /* 0: A, [rank, in]; 1: B, [out, rank] */
    uint64_t rank;
};

RFS_COMPARE(by_module, struct half, x, y,
            rfs_order_bytes(x->name, x->n, y->name, y->n) ?: RFS_ORDER(x->of, y->of))

static struct rfs_where where(const struct rfs_view *view, const char *name)
{
    return RFS_OF(rfs_catalog_path(view->source), name);
}

static int read_half(const struct rfs_view *view, const struct rfs_target *target,
                     struct half *half, struct rfs_error *err)
{
    const struct rfs_type *type = rfs_catalog_type(view->catalog, target->shown_type);
    const char *name = rfs_catalog_name(view->catalog, target->shown_name);

    half->name = name;
    half->of = rfs_text_ends(name, ends[1]);
    half->n = strlen(name) - strlen(ends[half->of]);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || !rfs_text_ends(name, ends[half->of]) ||
        half->n <= strlen(prefix))
        return rfs_fail(err, -EINVAL, where(view, name), "convert= with the rules for adapters",
                        "is no tensor of an adapter, which PEFT names %sMODULE%s or %s", prefix,
                        ends[0], ends[1]);
    if (type->kind != RFS_TENSOR || type->ndim != 2 || type->dims[half->of] == 0)
        return rfs_fail(err, -EINVAL, where(view, name), NULL,
                        "has no rank: it is no matrix, or is empty");
    half->rank = type->dims[half->of];
    return 0;
}

/* Checks that the halves, in order, are pairs of one rank. */
static int check_pairs(const struct rfs_view *view, const struct half *halves, size_t n,
                       struct rfs_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct half *half = &halves[i];
        const struct half *other = half->of == 0 ? half + 1 : half - 1;
        const bool there = half->of == 0 ? i + 1 < n : i > 0;
        if (!there || other->of == half->of || other->n != half->n ||
            memcmp(other->name, half->name, half->n) != 0)
            return rfs_fail(err, -EINVAL, where(view, half->name), "the whole save of the adapter",
                            "is half of a pair, and '%.*s%s' is not there", (int)half->n,
                            half->name, ends[!half->of]);
        if (half->rank != halves[0].rank)
            return rfs_fail(err, -EINVAL, where(view, half->name),
                            "only= for the tensors of each rank, in a view of its own",
                            "has rank %" PRIu64 ", and '%s' has rank %" PRIu64, half->rank,
                            halves[0].name, halves[0].rank);
    }
    return 0;
}

/* Adds the last part of the name of each module, once. */
static int take_modules(const struct half *halves, size_t n, struct rfs_intern *modules,
                        struct rfs_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *end = halves[i].name + halves[i].n;
        const char *begin = memrchr(halves[i].name, '.', halves[i].n) + 1; /* that of the prefix */
        if (rfs_intern_add(modules, begin, (size_t)(end - begin)) == RFS_NO_ID)
            return rfs_fail_memory(err);
    }
    return 0;
}

/* ---- alpha ----------------------------------------------------------------------------------- */

/* Returns the path of a file beside the tensors, malloc'ed; NULL: no memory. */
static char *beside(const struct rfs_view *view, const char *name)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);
    const struct rfs_files *files = rfs_catalog_files(view->source);

    if (chunked || rfs_files_count_paths(files) == 0)
        return rfs_path_join(chunked ? chunked->folder : rfs_catalog_path(view->source), name);
    const char *file = rfs_files_path(files, 0);
    return rfs_text_printf("%.*s%s", (int)(rfs_path_name(file) - file), file, name);
}

/*
 * Opens the file beside the source that says how the adapter was trained. *OUT is NULL without.
 * A file of PEFT there may say more than that, such as another scale for some modules.
 */
static int open_manifest(const struct rfs_view *view, struct rfs_hf_config **out,
                         struct rfs_error *err)
{
    struct rfs_store *store = view->set->store;
    RFS_FREE char *path = beside(view, MANIFEST);
    RFS_FREE char *known = beside(view, RFS_VIEW_ADAPTER);

    *out = NULL;
    if (!path || !known)
        return rfs_fail_memory(err);
    if (rfs_store_there(store, known))
        return rfs_fail(err, -EINVAL, RFS_IN(known), "that file, or a folder without it",
                        "is there already, and view=peft would show another one");
    return rfs_store_there(store, path) ? rfs_hf_config_open(store, path, out, err) : 0;
}

/* Reads a number of the file, which must be AGREED, if that is not 0. */
static int read_number(const struct rfs_hf_config *config, const char *key, uint64_t agreed,
                       uint64_t *number, struct rfs_error *err)
{
    const struct rfs_hf_value *value = rfs_hf_config_find(config, key);
    const char *file = rfs_hf_config_name(config);

    if (!value || value->kind != RFS_HF_NUMBER || value->number < 1)
        return rfs_fail(err, -EINVAL, RFS_IN(file), NULL, "has no positive whole number %s", key);
    *number = (uint64_t)value->number;
    if (agreed > 0 && agreed != *number)
        return rfs_fail(err, -EINVAL, RFS_IN(file), "the file that was saved with this adapter",
                        "has %s %" PRIu64 ", and the tensors or options have %" PRIu64, key,
                        *number, agreed);
    return 0;
}

static int find_alpha(const struct rfs_view *view, uint64_t rank, uint64_t *alpha,
                      struct rfs_error *err)
{
    RFS_CLEANUP(free_config) struct rfs_hf_config *config = NULL;
    uint64_t number;

    *alpha = view->options.lora_alpha;
    const int rc = open_manifest(view, &config, err);
    if (rc || (!config && *alpha > 0))
        return rc;
    if (!config)
        return rfs_fail_usage(err, "lora_alpha=N, as in the training",
                              "view=peft needs the lora_alpha of the adapter, which is in no "
                              "tensor, and the source has no mindformers_adapter_config.json");
    return read_number(config, "lora_config.lora_rank", rank, &number, err)
               ?: read_number(config, "lora_config.lora_alpha", *alpha, alpha, err);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Puts the keys as PEFT sorts them. */
static void put_config(struct rfs_json_write *json, uint64_t alpha, uint64_t rank,
                       struct rfs_intern *modules)
{
    rfs_json_object(json, NULL, RFS_JSON_LINES);
    rfs_json_put_null(json, "base_model_name_or_path");
    rfs_json_put_text(json, "bias", "none");
    rfs_json_put_bool(json, "fan_in_fan_out", false);
    rfs_json_put_bool(json, "inference_mode", true);
    rfs_json_put_u64(json, "lora_alpha", alpha);
    rfs_json_print(json, "lora_dropout", "0.0");
    rfs_json_put_text(json, "peft_type", "LORA");
    rfs_json_put_u64(json, "r", rank);
    rfs_json_array(json, "target_modules", RFS_JSON_LINES);
    for (uint32_t i = 0; i < rfs_intern_count(modules); i++)
        rfs_json_put_text(json, NULL, rfs_intern_text(modules, i));
    rfs_json_end(json);
    rfs_json_put_text(json, "task_type", "CAUSAL_LM");
    rfs_json_put_bool(json, "use_dora", false);
    rfs_json_put_bool(json, "use_rslora", false);
    rfs_json_end(json);
}

int rfs_view_adapter_config(struct rfs_view *view, const struct rfs_params *params,
                            struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_CLEANUP(free_names) struct rfs_intern *modules = rfs_intern_new();
    RFS_FREE struct half *halves = calloc(params->n + 1, sizeof *halves);
    struct rfs_json_write json = {
        .bytes = &builder.literals, .escapes = RFS_JSON_ASCII, .indent = 2};
    uint64_t alpha;
    int rc = 0;

    if (!modules || !halves)
        return rfs_fail_memory(err);
    if (params->n == 0)
        rc = rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(view->source)), NULL,
                      "view=peft would show no tensor");
    for (size_t i = 0; i < params->n && rc == 0; i++)
        rc = read_half(view, &params->targets[i], &halves[i], err);
    rc = rc ?: take_modules(halves, params->n, modules, err);
    if (rc)
        return rc;
    RFS_SORT(halves, params->n, by_module);
    rc = check_pairs(view, halves, params->n, err) ?: find_alpha(view, halves[0].rank, &alpha, err);
    if (rc)
        return rc;
    put_config(&json, alpha, halves[0].rank, modules);
    return json.failed || rfs_image_finish(&builder, out) ? rfs_fail_memory(err) : 0;
}
