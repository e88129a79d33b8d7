/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/safetensors/peft.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/text.h"

/* ---- tensors --------------------------------------------------------------------------------- */

/* What the names of PEFT begin with, and those of A and of B end in. */
static const char prefix[] = RFS_PEFT_PREFIX;
static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};

/* Stands behind the name of what a wrapper wraps, once for each wrapper. */
static const char wrapped[] = ".base_layer";
/* The module of a layer that has all of its experts, in transformers. */
static const char experts[] = "experts";

/* One of the two tensors of a module. */
struct half {
    const char *name;
    size_t n;        /* characters of the name up to the end of the module's */
    size_t module_n; /* without the wrappers in the module */
    unsigned of;     /* 0: A, [rank, in]; 1: B, [out, rank] */
    const uint64_t *dims;
    uint64_t rank;
};

RFS_COMPARE(by_module, struct half, x, y,
            rfs_order_bytes(x->name, x->n, y->name, y->n) ?: RFS_ORDER(x->of, y->of))

/* Returns how many of N characters of a module's name are left without wrappers at their end. */
static size_t without_wrappers(const char *name, size_t n)
{
    const size_t more = strlen(wrapped);

    while (n > more && memcmp(name + n - more, wrapped, more) == 0)
        n -= more;
    return n;
}

/* Returns where the last part of a module's name begins. */
static const char *last_part(const char *name, size_t n)
{
    const char *dot = memrchr(name, '.', n);

    return dot ? dot + 1 : name;
}

/* Says whether the last part of a module's name is a word. */
static bool is_named(const char *name, size_t n, const char *word)
{
    const char *last = last_part(name, n);

    return n - (size_t)(last - name) == strlen(word) && memcmp(last, word, strlen(word)) == 0;
}

static int read_half(const struct rfs_image_tensor *tensor, const char *path, struct half *half,
                     struct rfs_error *err)
{
    const struct rfs_type *type = tensor->type;
    const char *name = tensor->name;

    half->name = name;
    half->of = rfs_text_ends(name, ends[1]);
    half->n = strlen(name) - strlen(ends[half->of]);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || !rfs_text_ends(name, ends[half->of]) ||
        half->n <= strlen(prefix))
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), "convert= with the rules for adapters",
                        "is no tensor of an adapter, which PEFT names %sMODULE%s or %s", prefix,
                        ends[0], ends[1]);
    if (type->kind != RFS_TENSOR || type->ndim != 2 || type->dims[half->of] == 0)
        return rfs_fail(err, -EINVAL, RFS_OF(path, name), NULL,
                        "has no rank: it is no matrix, or is empty");
    half->module_n = without_wrappers(name, half->n);
    half->dims = type->dims;
    half->rank = type->dims[half->of];
    return 0;
}

/* Checks that the halves, in order, are pairs. */
static int check_pairs(const char *path, const struct half *halves, size_t n, struct rfs_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct half *half = &halves[i];
        const struct half *other = half->of == 0 ? half + 1 : half - 1;
        const bool there = half->of == 0 ? i + 1 < n : i > 0;
        if (!there || other->of == half->of || other->n != half->n ||
            memcmp(other->name, half->name, half->n) != 0)
            return rfs_fail(err, -EINVAL, RFS_OF(path, half->name), "the whole save of the adapter",
                            "is half of a pair, and '%.*s%s' is not there", (int)half->n,
                            half->name, ends[!half->of]);
    }
    return 0;
}

static int check_ranks(const char *path, const struct half *halves, size_t n, struct rfs_error *err)
{
    for (size_t i = 1; i < n; i++)
        if (halves[i].rank != halves[0].rank)
            return rfs_fail(err, -EINVAL, RFS_OF(path, halves[i].name),
                            "only= for the tensors of each rank, in a view of its own",
                            "has rank %" PRIu64 ", and '%s' has rank %" PRIu64, halves[i].rank,
                            halves[0].name, halves[0].rank);
    return 0;
}

/* ---- weights below --------------------------------------------------------------------------- */

/* A parameter with three axes. */
struct below {
    const char *name;
    size_t module_n; /* characters of the module's name */
    const char *end; /* the last part of that and of the name: experts.down_proj */
    const uint64_t *dims;
    bool taken; /* an adapter is its */
};

RFS_COMPARE(by_name, struct below, x, y,
            rfs_order_bytes(x->name, x->module_n, y->name, y->module_n) ?: strcmp(x->end, y->end))

struct weights {
    struct below *data; /* by module and name */
    size_t n;
};

/* Keeps those that may be parameters of experts, sorted. There is room for all. */
static void take_weights(const struct rfs_peft_weight *from, size_t n, struct weights *weights)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = from[i].name;
        const char *dot = strrchr(name, '.');
        const size_t module_n = dot ? (size_t)(dot - name) : 0;
        if (module_n > 0 && from[i].type->kind == RFS_TENSOR && from[i].type->ndim == 3 &&
            from[i].type->dims[0] > 0)
            weights->data[weights->n++] = (struct below){.name = name,
                                                         .module_n = module_n,
                                                         .end = last_part(name, module_n),
                                                         .dims = from[i].type->dims};
    }
    RFS_SORT(weights->data, weights->n, by_name);
}

/* Returns the first of a module's, and their number in *n. */
static struct below *find_module(const struct weights *weights, const char *name, size_t name_n,
                                 size_t *n)
{
    const size_t first = RFS_BISECT(
        i, weights->n,
        rfs_order_bytes(weights->data[i].name, weights->data[i].module_n, name, name_n) >= 0);
    size_t end = first;

    while (end < weights->n && weights->data[end].module_n == name_n &&
           memcmp(weights->data[end].name, name, name_n) == 0)
        end++;
    *n = end - first;
    return weights->data + first;
}

/* Says whether A and B make a matrix for each expert of a parameter, in one order or the other. */
static bool fits(const struct below *below, const uint64_t *a, const uint64_t *b)
{
    const uint64_t *dims = below->dims;

    return !below->taken && a[0] == b[1] && a[0] % dims[0] == 0 &&
           ((dims[1] == b[0] && dims[2] == a[1]) || (dims[1] == a[1] && dims[2] == b[0]));
}

/*
 * Finds the parameter of experts that a pair is for, and with it the rank. Of a pair for a module
 * it stays.
 */
static int take_pair(const struct weights *weights, const char *path, struct half *pair,
                     struct rfs_error *err)
{
    const char *module = pair->name + strlen(prefix);
    const size_t n = pair->module_n - strlen(prefix);
    struct below *found = NULL;
    size_t of_module;
    struct below *first = find_module(weights, module, n, &of_module);

    for (size_t i = 0; i < of_module; i++)
        if (fits(&first[i], pair[0].dims, pair[1].dims)) {
            if (found)
                return rfs_fail(err, -EINVAL, RFS_OF(path, pair->name), NULL,
                                "may be for '%s' as well as for '%s'", found->name, first[i].name);
            found = &first[i];
        }
    if (!found && (of_module > 0 || pair->module_n < pair->n || is_named(module, n, experts)))
        return rfs_fail(err, -EINVAL, RFS_OF(path, pair->name), "a save of the whole model",
                        "is for a parameter of '%.*s', and the source has no weight of that "
                        "module with this shape",
                        (int)n, module);
    if (found) {
        found->taken = true;
        pair[0].rank = pair[1].rank = pair[0].rank / found->dims[0];
    }
    return 0;
}

/* ---- what they belong to --------------------------------------------------------------------- */

/* Adds a text once. */
static bool add(struct rfs_intern *to, const char *text, size_t n)
{
    return rfs_intern_add(to, text, n) != RFS_NO_ID;
}

/* Says whether a module chooses experts, and is no torch.nn.Linear then. */
static bool is_router(const struct weights *weights, const char *module, size_t n)
{
    const size_t parent = (size_t)(last_part(module, n) - module);
    RFS_FREE char *beside = rfs_text_printf("%.*s%s", (int)parent, module, experts);
    size_t of_module = 0;

    if (beside && (is_named(module, n, "gate") || is_named(module, n, "router")))
        find_module(weights, beside, strlen(beside), &of_module);
    return of_module > 0;
}

/* Adds the last part of the name of each module that is adapted, in their order. */
static bool add_modules(const struct weights *weights, const struct half *halves, size_t n,
                        struct rfs_peft *out)
{
    bool added = true;

    for (size_t i = 0; i < n && added; i++) {
        const char *module = halves[i].name + strlen(prefix);
        const size_t module_n = halves[i].module_n - strlen(prefix);
        const char *last = last_part(module, module_n);
        const size_t last_n = module_n - (size_t)(last - module);
        RFS_FREE char *weight = rfs_text_printf("%.*s.weight", (int)last_n, last);
        size_t of_module;
        find_module(weights, module, module_n, &of_module);
        if (of_module == 0)
            added = weight && (is_router(weights, module, module_n)
                                   ? add(out->parameters, weight, strlen(weight))
                                   : add(out->modules, last, last_n));
    }
    return added;
}

/*
 * Adds the parameters that are adapted. PEFT takes the end of a name, as "experts.down_proj", for
 * all parameters with that end: if one has no adapter, the others are added by their whole names.
 */
static bool add_parameters(const struct weights *weights, struct rfs_intern *to)
{
    struct rfs_intern *others = rfs_intern_new();
    bool added = others != NULL;

    for (size_t i = 0; i < weights->n && added; i++) {
        const struct below *below = &weights->data[i];
        added = below->taken || add(others, below->end, strlen(below->end));
    }
    for (size_t i = 0; i < weights->n && added; i++) {
        const struct below *below = &weights->data[i];
        const char *name = below->end;
        if (rfs_intern_find(others, name, strlen(name)) != RFS_NO_ID)
            name = below->name;
        added = !below->taken || add(to, name, strlen(name));
    }
    rfs_intern_free(others);
    return added;
}

int rfs_peft_read(const struct rfs_image_tensor *tensors, size_t n,
                  const struct rfs_peft_weight *weights, size_t n_weights, const char *path,
                  struct rfs_peft *out, struct rfs_error *err)
{
    RFS_FREE struct half *halves = calloc(n + 1, sizeof *halves);
    RFS_FREE struct below *below = calloc(n_weights + 1, sizeof *below);
    struct weights known = {.data = below};
    int rc = 0;

    *out = (struct rfs_peft){.modules = rfs_intern_new(), .parameters = rfs_intern_new()};
    if (!out->modules || !out->parameters || !halves || !below)
        return rfs_fail_memory(err);
    if (n == 0)
        rc = rfs_fail(err, -EINVAL, RFS_IN(path), NULL, "view=peft would show no tensor");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_half(&tensors[i], path, &halves[i], err);
    if (rc)
        return rc;
    take_weights(weights, n_weights, &known);
    if (!add_modules(&known, halves, n, out))
        return rfs_fail_memory(err);
    RFS_SORT(halves, n, by_module);
    rc = check_pairs(path, halves, n, err);
    for (size_t i = 0; i < n && rc == 0; i += 2)
        rc = take_pair(&known, path, &halves[i], err);
    rc = rc ?: check_ranks(path, halves, n, err);
    if (rc)
        return rc;
    out->rank = halves[0].rank;
    return add_parameters(&known, out->parameters) ? 0 : rfs_fail_memory(err);
}

void rfs_peft_strip(char *name)
{
    char *dot = strrchr(name, '.');
    const size_t n = dot ? without_wrappers(name, (size_t)(dot - name)) : 0;

    if (dot)
        memmove(name + n, dot, strlen(dot) + 1);
}

void rfs_peft_free(struct rfs_peft *adapter)
{
    rfs_intern_free(adapter->modules);
    rfs_intern_free(adapter->parameters);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_texts(struct rfs_json_write *json, const char *key, struct rfs_intern *texts)
{
    rfs_json_array(json, key, RFS_JSON_LINES);
    for (uint32_t i = 0; i < rfs_intern_count(texts); i++)
        rfs_json_put_text(json, NULL, rfs_intern_text(texts, i));
    rfs_json_end(json);
}

/* Puts the keys as PEFT sorts them. */
static void put_config(struct rfs_json_write *json, const struct rfs_peft *adapter, uint64_t alpha)
{
    rfs_json_object(json, NULL, RFS_JSON_LINES);
    rfs_json_put_null(json, "base_model_name_or_path");
    rfs_json_put_text(json, "bias", "none");
    rfs_json_put_bool(json, "fan_in_fan_out", false);
    rfs_json_put_bool(json, "inference_mode", true);
    rfs_json_put_u64(json, "lora_alpha", alpha);
    rfs_json_print(json, "lora_dropout", "0.0");
    rfs_json_put_text(json, "peft_type", "LORA");
    rfs_json_put_u64(json, "r", adapter->rank);
    put_texts(json, "target_modules", adapter->modules);
    if (rfs_intern_count(adapter->parameters) > 0)
        put_texts(json, "target_parameters", adapter->parameters);
    rfs_json_put_text(json, "task_type", "CAUSAL_LM");
    rfs_json_put_bool(json, "use_dora", false);
    rfs_json_put_bool(json, "use_rslora", false);
    rfs_json_end(json);
}

int rfs_peft_encode(const struct rfs_peft *adapter, uint64_t alpha, struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    struct rfs_json_write json = {
        .bytes = &builder.literals, .escapes = RFS_JSON_ASCII, .indent = 2};

    put_config(&json, adapter, alpha);
    return json.failed || rfs_image_finish(&builder, out) ? -ENOMEM : 0;
}
