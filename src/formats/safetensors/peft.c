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

/* One of the two tensors of a module. */
struct half {
    const char *name;
    size_t n;    /* characters of the name up to the end of the module's */
    unsigned of; /* 0: A, [rank, in]; 1: B, [out, rank] */
    uint64_t rank;
};

RFS_COMPARE(by_module, struct half, x, y,
            rfs_order_bytes(x->name, x->n, y->name, y->n) ?: RFS_ORDER(x->of, y->of))

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
    half->rank = type->dims[half->of];
    return 0;
}

/* Checks that the halves, in order, are pairs of one rank. */
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
        if (half->rank != halves[0].rank)
            return rfs_fail(err, -EINVAL, RFS_OF(path, half->name),
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

int rfs_peft_read(const struct rfs_image_tensor *tensors, size_t n, const char *path,
                  struct rfs_peft *out, struct rfs_error *err)
{
    RFS_FREE struct half *halves = calloc(n + 1, sizeof *halves);
    int rc = 0;

    *out = (struct rfs_peft){.modules = rfs_intern_new()};
    if (!out->modules || !halves)
        return rfs_fail_memory(err);
    if (n == 0)
        rc = rfs_fail(err, -EINVAL, RFS_IN(path), NULL, "view=peft would show no tensor");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_half(&tensors[i], path, &halves[i], err);
    rc = rc ?: take_modules(halves, n, out->modules, err);
    if (rc)
        return rc;
    RFS_SORT(halves, n, by_module);
    out->rank = halves[0].rank;
    return check_pairs(path, halves, n, err);
}

void rfs_peft_free(struct rfs_peft *adapter)
{
    rfs_intern_free(adapter->modules);
}

/* ---- the file -------------------------------------------------------------------------------- */

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
    rfs_json_array(json, "target_modules", RFS_JSON_LINES);
    for (uint32_t i = 0; i < rfs_intern_count(adapter->modules); i++)
        rfs_json_put_text(json, NULL, rfs_intern_text(adapter->modules, i));
    rfs_json_end(json);
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
