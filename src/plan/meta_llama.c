/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/meta_llama.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/text.h"
#include "catalog/catalog.h"
#include "plan/geometry.h"
#include "rules/hf_config.h"

#define REMEDY "all files consolidated.*.pth of one model beside its params.json; or src_rules="

/* The sizes that the axes of its tensors have. */
enum width { DIM, HEADS, GROUPS, FFN, VOCABULARY, HALF, SIZES };
static const char *const size_names[] = {
    "the width of the model",        "the width of all heads",     "the width of keys and values",
    "the width of the feed-forward", "the size of the vocabulary", "half the width of a head"};

static const struct tensor {
    const char *like; /* a pattern of its name */
    unsigned ndim;
    enum width axes[2];
} tensors[] = {
    {"tok_embeddings.weight", 2, {VOCABULARY, DIM}},
    {"norm.weight", 1, {DIM}},
    {"output.weight", 2, {VOCABULARY, DIM}},
    {"layers.*.attention_norm.weight", 1, {DIM}},
    {"layers.*.ffn_norm.weight", 1, {DIM}},
    {"layers.*.attention.wq.weight", 2, {HEADS, DIM}},
    {"layers.*.attention.wk.weight", 2, {GROUPS, DIM}},
    {"layers.*.attention.wv.weight", 2, {GROUPS, DIM}},
    {"layers.*.attention.wo.weight", 2, {DIM, HEADS}},
    {"layers.*.feed_forward.w1.weight", 2, {FFN, DIM}},
    {"layers.*.feed_forward.w3.weight", 2, {FFN, DIM}},
    {"layers.*.feed_forward.w2.weight", 2, {DIM, FFN}},
    {"rope.freqs", 1, {HALF}},
};

/* What is known of the sizes. */
struct proof {
    struct rfs_catalog *source;
    const struct rfs_strategy *src;
    const struct rfs_hf_config *config;
    uint64_t size[SIZES];  /* 0: not known yet */
    const char *by[SIZES]; /* the name of what says so */
    uint64_t layers;       /* by the config; 0: not known */
    struct rfs_error *err;
};

/* ---- the config ------------------------------------------------------------------------------ */

/* Returns the value that has one of two keys in params.json and config.json, or NULL. */
static const struct rfs_hf_value *find(const struct proof *proof, const char *meta, const char *hf)
{
    RFS_FREE char *inside = rfs_text_printf("model.%s", meta);
    const char *const keys[] = {meta, inside, hf};
    const struct rfs_hf_value *value = NULL;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && !value; i++)
        if (keys[i])
            value = rfs_hf_config_find(proof->config, keys[i]);
    return value;
}

/* Returns a count; 0: it is missing, -1 as in Llama 2's vocab_size, or out of all bounds. */
static uint64_t count(const struct proof *proof, const char *meta, const char *hf)
{
    const struct rfs_hf_value *value = find(proof, meta, hf);

    return value && value->kind == RFS_HF_NUMBER && value->number > 0 && value->number <= INT32_MAX
               ? (uint64_t)value->number
               : 0;
}

/* Returns the width of the feed-forward as Meta's model computes it, or 0. */
static uint64_t find_ffn(const struct proof *proof)
{
    const struct rfs_hf_value *factor = find(proof, "ffn_dim_multiplier", "");
    const uint64_t multiple = count(proof, "multiple_of", "");
    const uint64_t given = count(proof, "hidden_dim", "intermediate_size");
    uint64_t ffn = proof->size[DIM] * 8 / 3;

    if (given || multiple == 0 || ffn == 0)
        return given;
    if (factor && factor->real > 0 && factor->real <= INT16_MAX)
        ffn = (uint64_t)(factor->real * (double)ffn);
    return (ffn + multiple - 1) / multiple * multiple;
}

static void read_config(struct proof *proof)
{
    const uint64_t heads = count(proof, "n_heads", "num_attention_heads");
    const uint64_t given = count(proof, "n_kv_heads", "num_key_value_heads");
    const uint64_t groups = given ? given : heads;
    uint64_t head = count(proof, "head_dim", "head_dim");

    proof->size[DIM] = count(proof, "dim", "hidden_size");
    if (head == 0 && heads > 0 && proof->size[DIM] % heads == 0)
        head = proof->size[DIM] / heads;
    proof->size[HEADS] = heads * head;
    proof->size[GROUPS] = groups * head;
    proof->size[HALF] = head / 2;
    proof->size[FFN] = find_ffn(proof);
    proof->size[VOCABULARY] = count(proof, "vocab_size", "vocab_size");
    proof->layers = count(proof, "n_layers", "num_hidden_layers");
    for (unsigned i = 0; i < SIZES; i++)
        if (proof->size[i] > 0)
            proof->by[i] = rfs_hf_config_name(proof->config);
}

/* ---- the tensors ----------------------------------------------------------------------------- */

static const struct tensor *find_tensor(const char *name)
{
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (rfs_glob_match(tensors[i].like, name))
            return &tensors[i];
    return NULL;
}

static int fail(const struct proof *proof, const char *param, const char *what, uint64_t is,
                uint64_t ought, const char *by)
{
    const uint32_t ranks = rfs_catalog_ranks(proof->source);

    return rfs_fail(proof->err, -EINVAL, RFS_OF(rfs_catalog_path(proof->source), param), REMEDY,
                    "by the file%s of %" PRIu32 " rank%s, %s is %" PRIu64
                    ", and by %s it is %" PRIu64,
                    ranks == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", what, is, by, ought);
}

static int check_size(struct proof *proof, enum width of, uint64_t is, const char *param)
{
    if (proof->size[of] == 0) {
        proof->size[of] = is;
        proof->by[of] = param;
    }
    return is == proof->size[of]
               ? 0
               : fail(proof, param, size_names[of], is, proof->size[of], proof->by[of]);
}

static int check_tensor(struct proof *proof, const struct rfs_type *type, const char *param)
{
    const struct rfs_strategy *src = proof->src;
    const struct tensor *tensor = find_tensor(param);
    const ptrdiff_t at = src ? rfs_strategy_find(src, param) : -1;
    struct rfs_geometry geometry;

    if (!tensor)
        return 0;
    int rc = rfs_geometry_resolve(type, at < 0 ? NULL : rfs_strategy_layout(src, (size_t)at, 0),
                                  NULL, at < 0 ? NULL : rfs_strategy_name(src), NULL, param,
                                  &geometry, proof->err);
    if (rc == 0 && geometry.ndim != tensor->ndim)
        rc = fail(proof, param, "the number of its axes", geometry.ndim, tensor->ndim,
                  "Meta's model");
    for (unsigned i = 0; rc == 0 && i < tensor->ndim; i++)
        rc = check_size(proof, tensor->axes[i], geometry.whole[i], param);
    return rc;
}

int rfs_plan_meta_prove(struct rfs_catalog *source, const struct rfs_strategy *src,
                        const struct rfs_index *index, const struct rfs_hf_config *config,
                        struct rfs_error *err)
{
    struct proof proof = {.source = source, .src = src, .config = config, .err = err};
    uint64_t layers = 0;
    int rc = 0;

    if (config)
        read_config(&proof);
    for (size_t i = 0; rc == 0 && i < index->n; i++) {
        const struct rfs_type *type = rfs_catalog_type(source, index->entries[i].type);
        const char *param = rfs_catalog_name(source, index->entries[i].name);
        layers += rfs_glob_match("layers.*.ffn_norm.weight", param);
        if (type->kind == RFS_TENSOR)
            rc = check_tensor(&proof, type, param);
    }
    if (rc == 0 && layers > 0 && proof.layers > 0 && layers != proof.layers)
        rc = fail(&proof, "layers", "the number of layers", layers, proof.layers,
                  rfs_hf_config_name(config));
    if (rc == 0 && !config && proof.size[HEADS] != proof.size[DIM])
        rc = fail(&proof, "layers", size_names[HEADS], proof.size[HEADS], proof.size[DIM],
                  proof.by[DIM]);
    return rc;
}

bool rfs_plan_meta_by_columns(struct rfs_catalog *source)
{
    const struct rfs_index *index = rfs_catalog_ready(source, rfs_catalog_lowest(source));
    uint64_t width = 0;   /* of the model */
    uint64_t columns = 0; /* of the embedding */

    for (size_t i = 0; index && i < index->n; i++) {
        const struct rfs_type *type = rfs_catalog_type(source, index->entries[i].type);
        const char *param = rfs_catalog_name(source, index->entries[i].name);
        if (strcmp(param, "norm.weight") == 0 && type->ndim == 1)
            width = type->dims[0];
        if (strcmp(param, "tok_embeddings.weight") == 0 && type->ndim == 2)
            columns = type->dims[1];
    }
    return columns > 0 && columns < width;
}
