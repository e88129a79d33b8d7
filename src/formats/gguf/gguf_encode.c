/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a GGUF file, which gguf.c draws, in version 3 and with alignment 32, as
 * gguf.GGUFWriter of llama.cpp writes it: padding stands behind each tensor, the last one, too.
 *
 * The values are those of a GGUF file, or those by which llama.cpp and transformers know the model,
 * from its config.json, without a tokenizer. There are none with neither.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_tree.h"
#include "base/json_write.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/gguf/gguf.h"

#define WRITTEN_VERSION 3
#define DIMS_MOST 4 /* as llama.cpp has it */
#define MOST_BYTES ((size_t)16 << 20)
#define TREE_BYTES ((size_t)64 << 20)
#define REMEDY_CONFIG "the config.json of the model, as HuggingFace has it"
#define REMEDY_TENSOR "-o drop= with its name, or another format="

RFS_CLEANUP_OF(free_tree, cJSON *, cJSON_Delete)

/* ---- values ---------------------------------------------------------------------------------- */

/* The model types of HuggingFace, and what llama.cpp calls them. */
static const struct {
    const char *type, *architecture;
} models[] = {{"llama", "llama"}, {"mistral", "llama"}, {"qwen3", "qwen3"}};

#define VOCABULARY 0 /* the first of the settings; llama.cpp counts the tokens without it */
/* Values of a model: keys behind the name of the architecture, and in the config. */
static const struct {
    const char *key, *config;
    bool fraction;
} settings[] = {
    {"vocab_size", "vocab_size", false},
    {"context_length", "max_position_embeddings", false},
    {"embedding_length", "hidden_size", false},
    {"block_count", "num_hidden_layers", false},
    {"feed_forward_length", "intermediate_size", false},
    {"attention.head_count", "num_attention_heads", false},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"attention.value_length", "head_dim", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"rope.dimension_count", "head_dim", false},
    {"rope.freq_base", "rope_theta", true},
};
#define N_SETTINGS (sizeof settings / sizeof *settings)

/* Values that are put together. */
struct values {
    struct rfs_bytes bytes;
    uint64_t n;
    const char *config; /* path, for messages */
    const char *architecture;
    const cJSON *tree;
    struct rfs_error *err;
};

static void put_text(struct rfs_bytes *out, const char *text, size_t n)
{
    rfs_image_put_little(out, n, 8);
    rfs_bytes_put(out, text, n);
}

static void put_key(struct values *values, const char *prefix, const char *key,
                    enum rfs_gguf_value type)
{
    const size_t n = strlen(prefix) + 1 + strlen(key);

    rfs_image_put_little(&values->bytes, n, 8);
    rfs_bytes_put_text(&values->bytes, prefix);
    rfs_bytes_put_text(&values->bytes, ".");
    rfs_bytes_put_text(&values->bytes, key);
    rfs_image_put_little(&values->bytes, type, 4);
    values->n++;
}

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_IsObject(object) ? rfs_json_tree_member(object, name) : NULL;

    return value && !cJSON_IsNull(value) ? value : NULL;
}

static int fail_config(const struct values *values, const char *key, const char *what)
{
    return rfs_fail(values->err, -EINVAL, RFS_IN(values->config), REMEDY_CONFIG, "'%s' %s", key,
                    what);
}

/* Returns the number that stands for a key that the config lacks; 0: there is none. */
static double default_of(const struct values *values, const char *key)
{
    const cJSON *heads = member(values->tree, "num_attention_heads");
    const cJSON *hidden = member(values->tree, "hidden_size");
    const cJSON *theta = member(member(values->tree, "rope_parameters"), "rope_theta");

    if (strcmp(key, "num_key_value_heads") == 0 && cJSON_IsNumber(heads))
        return heads->valuedouble;
    if (strcmp(key, "head_dim") == 0 && cJSON_IsNumber(heads) && cJSON_IsNumber(hidden) &&
        heads->valuedouble > 0)
        return hidden->valuedouble / heads->valuedouble;
    return strcmp(key, "rope_theta") == 0 && cJSON_IsNumber(theta) ? theta->valuedouble : 0;
}

static int put_setting(struct values *values, size_t i)
{
    const char *key = settings[i].config;
    const cJSON *value = member(values->tree, key);
    const double number = !value                  ? default_of(values, key)
                          : cJSON_IsNumber(value) ? value->valuedouble
                                                  : 0;
    const float narrow = (float)number;
    uint32_t bits;

    if (!(number > 0 && number <= UINT32_MAX))
        return fail_config(values, key, "is not there, or no number that a GGUF file has");
    if (!settings[i].fraction && number != (double)(uint32_t)number)
        return fail_config(values, key, "is no whole number");
    memcpy(&bits, &narrow, sizeof bits);
    put_key(values, values->architecture, settings[i].key,
            settings[i].fraction ? RFS_GGUF_FLOAT32 : RFS_GGUF_UINT32);
    rfs_image_put_little(&values->bytes, settings[i].fraction ? bits : (uint32_t)number, 4);
    return 0;
}

/* Refuses a scaled rotation, which is no value but a tensor of other numbers. */
static int check_rope(const struct values *values)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *rope = member(values->tree, keys[i]);
        const cJSON *type = member(rope, "rope_type");
        if (!type)
            type = member(rope, "type");
        if (type && (!cJSON_IsString(type) || strcmp(type->valuestring, "default") != 0))
            return rfs_fail(
                values->err, -ENOTSUP, RFS_IN(values->config),
                "without hf_config, and the program that reads the file knows the model",
                "format=gguf: its '%s' is scaled, which is not written here", keys[i]);
    }
    return 0;
}

static int put_model(struct values *values)
{
    const cJSON *type = member(values->tree, "model_type");
    int rc = 0;

    for (size_t i = 0; cJSON_IsString(type) && i < sizeof models / sizeof *models; i++)
        if (strcmp(type->valuestring, models[i].type) == 0)
            values->architecture = models[i].architecture;
    if (!values->architecture)
        return rfs_fail(values->err, -ENOTSUP, RFS_IN(values->config),
                        "without hf_config, for a file that does not describe its model",
                        "format=gguf: the values of model_type '%.100s' are not known here",
                        cJSON_IsString(type) ? type->valuestring : "");
    put_key(values, "general", "architecture", RFS_GGUF_STRING);
    put_text(&values->bytes, values->architecture, strlen(values->architecture));
    for (size_t i = 0; rc == 0 && i < N_SETTINGS; i++)
        rc = put_setting(values, i);
    return rc ?: check_rope(values);
}

/* Puts what the config says of the model. */
static int put_values(struct values *values, struct rfs_store *store)
{
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;
    RFS_FREE char *text = NULL;
    size_t n;
    int rc = rfs_store_read_whole(store, values->config, MOST_BYTES, &text, &n, values->err);

    if (rc == 0)
        rc = rfs_json_tree_parse(values->config, text, n, TREE_BYTES, REMEDY_CONFIG, &tree,
                                 values->err);
    values->tree = tree;
    rc = rc ?: put_model(values);
    values->tree = NULL;
    return rc;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Refuses values that the format cannot hold. */
static int check_tensor(const struct rfs_gguf_content *content,
                        const struct rfs_image_tensor *tensor, struct rfs_error *err)
{
    const struct rfs_where where = RFS_OF(content->path, tensor->name);
    const struct rfs_type *type = tensor->type;

    if (type->kind != RFS_TENSOR || rfs_gguf_type((enum rfs_dtype)type->dtype) < 0)
        return rfs_fail(
            err, -EINVAL, where, REMEDY_TENSOR, "is of type %s, which GGUF files cannot hold",
            type->kind == RFS_MAP ? "map" : rfs_dtype_name((enum rfs_dtype)type->dtype));
    if (type->ndim > DIMS_MOST)
        return rfs_fail(err, -EINVAL, where, REMEDY_TENSOR,
                        "has %u dimensions, and tensors of GGUF files have %d at most", type->ndim,
                        DIMS_MOST);
    if (!rfs_text_is_utf8(tensor->name, tensor->name_bytes))
        return rfs_fail(err, -EINVAL, where, "-o names= with a map that gives it another name",
                        "has a name that is not UTF-8, as those of GGUF files are");
    return 0;
}

/* Gives where a tensor behind one of BYTES at *AT begins. False when that is too far. */
static bool pass(uint64_t *at, uint64_t bytes)
{
    const uint64_t rest = bytes % RFS_GGUF_ALIGNMENT;

    return rfs_add_u64(*at, bytes, at) &&
           rfs_add_u64(*at, rest > 0 ? RFS_GGUF_ALIGNMENT - rest : 0, at) && *at <= INT64_MAX / 2;
}

static void put_tensor(struct rfs_bytes *out, const struct rfs_image_tensor *tensor, uint64_t at)
{
    const struct rfs_type *type = tensor->type;

    put_text(out, tensor->name, tensor->name_bytes);
    rfs_image_put_little(out, type->ndim, 4);
    for (unsigned i = type->ndim; i-- > 0;)
        rfs_image_put_little(out,
                             type->dims[i] * (i + 1U == type->ndim
                                                  ? rfs_dtype_packed((enum rfs_dtype)type->dtype)
                                                  : 1),
                             8);
    rfs_image_put_little(out, (uint64_t)rfs_gguf_type((enum rfs_dtype)type->dtype), 4);
    rfs_image_put_little(out, at, 8);
}

static void put_padding(struct rfs_image_builder *builder)
{
    static const char zeros[RFS_GGUF_ALIGNMENT];
    const uint64_t rest = rfs_image_here(builder) % RFS_GGUF_ALIGNMENT;

    if (rest > 0)
        rfs_bytes_put(&builder->literals, zeros, RFS_GGUF_ALIGNMENT - (size_t)rest);
}

static void free_values(struct values *values)
{
    rfs_bytes_free(&values->bytes);
}

int rfs_gguf_encode(const struct rfs_gguf_content *content, struct rfs_image **out,
                    struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_CLEANUP(free_values) struct values values = {.config = content->config, .err = err};
    struct rfs_bytes *head = &builder.literals;
    uint64_t at = 0;
    int rc = content->config ? put_values(&values, content->store)
             : content->like ? rfs_gguf_copy_values(content->like, content->plain, &values.bytes,
                                                    &values.n, err)
                             : 0;

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < content->n; i++)
        rc = check_tensor(content, &content->tensors[i], err);
    if (rc)
        return rc;
    rfs_bytes_put_text(head, "GGUF");
    rfs_image_put_little(head, WRITTEN_VERSION, 4);
    rfs_image_put_little(head, content->n, 8);
    rfs_image_put_little(head, values.n, 8);
    rfs_bytes_put(head, values.bytes.data, values.bytes.n);
    for (size_t i = 0; i < content->n; i++) {
        put_tensor(head, &content->tensors[i], at);
        if (!pass(&at, content->tensors[i].type->bytes))
            return rfs_fail(err, -EFBIG, RFS_OF(content->path, content->tensors[i].name), NULL,
                            "with it, the file would be larger than a file can be");
    }
    put_padding(&builder);
    for (size_t i = 0; i < content->n; i++) {
        rfs_image_add(&builder, content->tensors[i].target, content->tensors[i].at,
                      content->tensors[i].type->bytes);
        put_padding(&builder);
    }
    return values.bytes.failed || rfs_image_finish(&builder, out) ? rfs_fail_memory(err) : 0;
}

/* ---- the config of a file -------------------------------------------------------------------- */

/* The values of a file, as HuggingFace's config calls them. */
struct config {
    char *architecture; /* owned; NULL: not found yet */
    uint64_t tokens;    /* of the tokenizer; 0: there is none */
    struct rfs_json_write json;
    unsigned char
        times[N_SETTINGS]; /* how often each came; a second one contradicts, or does not */
};

static bool take_architecture(void *ctx, const struct rfs_format_value *value)
{
    struct config *config = ctx;

    if (!value->text && strcmp(value->name, "tokenizer.ggml.tokens") == 0)
        config->tokens = value->n;
    if (config->architecture || !value->text || strcmp(value->name, "general.architecture") != 0)
        return true;
    config->architecture = strdup(value->text);
    return config->architecture != NULL;
}

/* Says whether no setting before it has the same key in the config: a head has several widths. */
static bool is_first(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(settings[k].config, settings[i].config) == 0)
            return false;
    return true;
}

/* Takes a count. A list, of a count for each layer, becomes a text, so that nobody counts by it. */
static bool take_count(void *ctx, const struct rfs_format_value *value)
{
    struct config *config = ctx;
    const size_t n = strlen(config->architecture);

    if (strncmp(value->name, config->architecture, n) != 0 || value->name[n] != '.')
        return true;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (settings[i].fraction || strcmp(settings[i].key, value->name + n + 1) != 0 ||
            !is_first(i) || config->times[i] == 2)
            continue;
        config->times[i]++;
        if (value->text && !value->is_text)
            rfs_json_print(&config->json, settings[i].config, "%s", value->text);
        else
            rfs_json_put_text(&config->json, settings[i].config, value->type);
    }
    return !config->json.failed;
}

int rfs_gguf_config(const struct rfs_bytes_source *from, bool tied, struct rfs_bytes *out,
                    struct rfs_error *err)
{
    struct config config = {.json = {.bytes = out}};

    rfs_json_object(&config.json, NULL, RFS_JSON_TIGHT);
    int rc = rfs_gguf_values(from, take_architecture, &config, err);
    if (rc == 0 && config.architecture) {
        rfs_json_put_text(&config.json, "model_type", config.architecture);
        rfs_json_put_bool(&config.json, "tie_word_embeddings", tied);
        rc = rfs_gguf_values(from, take_count, &config, err);
    }
    if (config.tokens > 0 && config.times[VOCABULARY] == 0)
        rfs_json_put_u64(&config.json, settings[VOCABULARY].config, config.tokens);
    rfs_json_end(&config.json);
    free(config.architecture);
    return rc ?: config.json.failed ? rfs_fail_memory(err) : 0;
}
