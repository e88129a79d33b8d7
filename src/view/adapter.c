/* SPDX-License-Identifier: Apache-2.0 */
#include "view/adapter.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"

/* Saved by MindSpore Transformers beside adapters. */
#define MANIFEST "mindformers_adapter_config.json"

RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)

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
    RFS_FREE char *known = beside(view, RFS_PEFT_CONFIG);

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

/* Weights of the model that the source has below the adapter. */
struct below {
    struct rfs_intern *names;
    RFS_VEC(struct rfs_peft_weight) weights;
};

static void free_below(struct below *below)
{
    rfs_intern_free(below->names);
    free(below->weights.data);
}

/* Adds a tensor of PEFT's model that may be a parameter of experts, once. */
static bool add_weight(struct below *below, const char *source_name, const struct rfs_type *type)
{
    const char *in_model = strstr(source_name, RFS_PEFT_PREFIX);

    if (!in_model || type->ndim != 3)
        return true;
    RFS_FREE char *name = rfs_names_unwrap(in_model);
    if (!name)
        return false;
    rfs_peft_strip(name);
    const uint32_t n = rfs_intern_count(below->names);
    const uint32_t id = rfs_intern_add(below->names, name, strlen(name));
    return id != RFS_NO_ID &&
           (id < n || RFS_PUSH(&below->weights,
                               (struct rfs_peft_weight){rfs_intern_text(below->names, id), type}));
}

/*
 * Lists the weights below the adapter, without the states of optimizers. With conversion rules
 * there are none: the names that rules make have no weights below.
 */
static bool list_below(struct rfs_view *view, struct below *below)
{
    below->names = rfs_intern_new();
    for (uint32_t r = 0; below->names && !view->rules && r < rfs_catalog_ranks(view->source); r++) {
        const struct rfs_index *index = rfs_catalog_ready(view->source, r);
        for (size_t i = 0; index && i < index->n; i++) {
            const char *name = rfs_catalog_name(view->source, index->entries[i].name);
            if (!rfs_names_is_state(view->names, name) &&
                !add_weight(below, name, rfs_catalog_type(view->source, index->entries[i].type)))
                return false;
        }
    }
    return below->names != NULL;
}

int rfs_view_adapter_config(struct rfs_view *view, const struct rfs_params *params,
                            struct rfs_image **out, struct rfs_error *err)
{
    RFS_FREE struct rfs_image_tensor *tensors =
        rfs_view_list_tensors(view->catalog, params, NULL, params->n);
    RFS_CLEANUP(rfs_peft_free) struct rfs_peft adapter = {.rank = 0};
    RFS_CLEANUP(free_below) struct below below = {.names = NULL};
    uint64_t alpha;

    if (!tensors || !list_below(view, &below))
        return rfs_fail_memory(err);
    const int rc = rfs_peft_read(tensors, params->n, below.weights.data, below.weights.n,
                                 rfs_catalog_path(view->source), &adapter, err)
                       ?: find_alpha(view, adapter.rank, &alpha, err);
    if (rc)
        return rc;
    return rfs_peft_encode(&adapter, alpha, out) ? rfs_fail_memory(err) : 0;
}
