/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/scheme.h"

#include "base/cleanup.h"
#include "base/json_tree.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"

#define MOST_BYTES ((size_t)16 << 20)
#define TREE_BYTES ((size_t)64 << 20)
#define REMEDY "the config.json of the model, as HuggingFace has it"
#define NOT_READ "without dequantize; or the model in bfloat16"
#define SIZE_MOST (INT64_C(1) << 31)

RFS_CLEANUP_OF(free_tree, cJSON *, cJSON_Delete)
RFS_CLEANUP_OF(free_scheme, struct rfs_quant_scheme *, rfs_quant_scheme_free)

void rfs_quant_scheme_free(struct rfs_quant_scheme *scheme)
{
    if (!scheme)
        return;
    for (size_t i = 0; i < scheme->n_groups; i++)
        rfs_quant_targets_free(&scheme->groups[i].targets);
    for (size_t i = 0; i < scheme->modules.n; i++)
        free(scheme->modules.data[i].name);
    free(scheme->modules.data);
    free(scheme->path);
    free(scheme->config);
    free(scheme);
}

/* A config that is being read. */
struct reading {
    struct rfs_quant_scheme *scheme;
    struct rfs_error *err;
};

/* ---- values ---------------------------------------------------------------------------------- */

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_IsObject(object) ? rfs_json_tree_member(object, name) : NULL;

    return value && !cJSON_IsNull(value) ? value : NULL;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *value = member(object, name);

    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* Programs that dequantize what is not read here, by the word for it. */
static const struct {
    const char *word, *remedy;
} elsewhere[] = {
    {"checkpoint_format", "without dequantize; GPTQModel can"},
    {"version", "without dequantize; GPTQModel can, or a copy in the version gemm"},
    {"mode", "without dequantize; mlx_lm.convert --dequantize can"},
    {"auto-round", "without dequantize; auto-round can"},
    {"bitsandbytes", "without dequantize; dequantize() of a model of transformers can"},
    {"higgs", "without dequantize; dequantize() of a model of transformers can"},
    {"hqq", "without dequantize; HQQLinear.dequantize() of hqq can"},
    {"torchao", "without dequantize; torchao can"},
    {"quark", "without dequantize; amd-quark can"},
    {"quant_algo", "without dequantize; nvidia-modelopt can"},
    {"format", "without dequantize; compressed-tensors can"},
    {"strategy", "without dequantize; compressed-tensors can"},
};

/* Refuses a kind of quantization that is not read. */
static int refuse(const struct reading *reading, const char *key, const char *word)
{
    const char *remedy = NOT_READ;

    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].word, word) == 0 || strcmp(elsewhere[i].word, key) == 0)
            remedy = elsewhere[i].remedy;
    return rfs_fail(reading->err, -ENOTSUP, RFS_IN(reading->scheme->path), remedy,
                    "option dequantize: %s '%.100s' is not read", key, word);
}

static int damaged(const struct reading *reading, const char *key, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->scheme->path), REMEDY,
                    "quantization_config: '%s' %s", key, what);
}

/* Reads a size of blocks or groups. */
static int take_size(const struct reading *reading, const char *key, const cJSON *value,
                     uint64_t *out)
{
    int64_t number = 0;

    if (!rfs_json_tree_integer(value, &number) || number < 1 || number > SIZE_MOST)
        return damaged(reading, key, "is no whole number from 1 to 2^31");
    *out = (uint64_t)number;
    return 0;
}

/* Reads a number of bits. */
static int take_bits(const struct reading *reading, const char *key, const cJSON *value,
                     uint32_t *bits)
{
    int64_t number = 0;

    if (!rfs_json_tree_integer(value, &number) || number < 1)
        return damaged(reading, key, "is no number of bits");
    *bits = number > 64 ? 64 : (uint32_t)number;
    if (*bits != 4 && *bits != 8)
        return rfs_fail(reading->err, -ENOTSUP, RFS_IN(reading->scheme->path), NOT_READ,
                        "option dequantize: weights of %u bits are not read", *bits);
    return 0;
}

/* Reads [ROWS, COLS]. */
static int take_block(const struct reading *reading, const char *key, const cJSON *value,
                      uint64_t *rows, uint64_t *cols)
{
    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2)
        return damaged(reading, key, "is no list of two numbers");
    return take_size(reading, key, cJSON_GetArrayItem(value, 0), rows)
               ?: take_size(reading, key, cJSON_GetArrayItem(value, 1), cols);
}

/* ---- fp8 ------------------------------------------------------------------------------------- */

static int read_fp8(const struct reading *reading, const cJSON *config)
{
    const cJSON *format = member(config, "fmt");
    const cJSON *block = member(config, "weight_block_size");

    if (format && (!cJSON_IsString(format) || (strcmp(format->valuestring, "e4m3") != 0 &&
                                               strcmp(format->valuestring, "float8_e4m3fn") != 0)))
        return refuse(reading, "fmt", cJSON_IsString(format) ? format->valuestring : "");
    return block ? take_block(reading, "weight_block_size", block, &reading->scheme->block_rows,
                              &reading->scheme->block_cols)
                 : 0;
}

/* ---- modelopt -------------------------------------------------------------------------------- */

/* Checks a quant_algo. Tensors tell apart those that are read. */
static int check_algo(const struct reading *reading, const cJSON *object)
{
    static const char *const known[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_NVFP4"};
    const char *algo = text_of(object, "quant_algo");

    for (size_t i = 0; algo && i < sizeof known / sizeof *known; i++)
        if (strcmp(algo, known[i]) == 0)
            return 0;
    return refuse(reading, "quant_algo", algo ?: "");
}

static int read_modelopt(const struct reading *reading, const cJSON *config)
{
    const cJSON *layers = member(config, "quantized_layers");
    const char *algo = text_of(config, "quant_algo");
    const cJSON *layer;
    int rc = 0;

    if (!algo || strcmp(algo, "MIXED_PRECISION") != 0)
        return check_algo(reading, config);
    if (!cJSON_IsObject(layers))
        return damaged(reading, "quantized_layers", "is no object");
    cJSON_ArrayForEach(layer, layers)
    {
        rc = check_algo(reading, layer);
        if (rc)
            break;
    }
    return rc;
}

/* ---- compressed-tensors ---------------------------------------------------------------------- */

/* Reads block_structure: [128, 128], or "128x128". */
static int take_structure(const struct reading *reading, const cJSON *value,
                          struct rfs_quant_group *group)
{
    unsigned long long rows = 0, cols = 0;
    char end;

    if (!cJSON_IsString(value))
        return take_block(reading, "block_structure", value, &group->block_rows,
                          &group->block_cols);
    if (sscanf(value->valuestring, "%10llux%10llu%c", &rows, &cols, &end) != 2 || rows < 1 ||
        cols < 1 || rows > SIZE_MOST || cols > SIZE_MOST)
        return damaged(reading, "block_structure", "is not like 128x128");
    group->block_rows = rows;
    group->block_cols = cols;
    return 0;
}

static int read_group(const struct reading *reading, const cJSON *weights)
{
    struct rfs_quant_scheme *scheme = reading->scheme;
    struct rfs_quant_group *group = &scheme->groups[scheme->n_groups];
    const char *strategy = text_of(weights, "strategy");
    const char *type = text_of(weights, "type");
    const cJSON *size = member(weights, "group_size");
    const cJSON *order = member(weights, "actorder");
    int64_t number = 0;
    int rc;

    if (scheme->n_groups == RFS_QUANT_GROUPS)
        return damaged(reading, "config_groups", "has more than 16 groups");
    if (order && (cJSON_IsTrue(order) ||
                  (cJSON_IsString(order) && (strcmp(order->valuestring, "group") == 0 ||
                                             strcmp(order->valuestring, "dynamic") == 0))))
        return refuse(reading, "actorder", cJSON_IsString(order) ? order->valuestring : "group");
    *group = (struct rfs_quant_group){.bits = 8, .symmetric = true};
    rc = member(weights, "num_bits")
             ? take_bits(reading, "num_bits", member(weights, "num_bits"), &group->bits)
             : 0;
    if (rc)
        return rc;
    group->is_float = type && strcmp(type, "float") == 0;
    if (type && !group->is_float && strcmp(type, "int") != 0)
        return refuse(reading, "type", type);
    group->symmetric =
        !member(weights, "symmetric") || !cJSON_IsFalse(member(weights, "symmetric"));
    /* group_size -1 stands for channels. */
    const bool grouped = size && !(rfs_json_tree_integer(size, &number) && number == -1);
    if (!strategy)
        strategy = grouped ? "group" : size ? "channel" : "tensor";
    if (strcmp(strategy, "tensor") == 0)
        group->strategy = RFS_QUANT_BY_TENSOR;
    else if (strcmp(strategy, "channel") == 0)
        group->strategy = RFS_QUANT_BY_CHANNEL;
    else if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0)
        group->strategy = RFS_QUANT_BY_GROUP;
    else if (strcmp(strategy, "block") == 0)
        group->strategy = RFS_QUANT_BY_BLOCK;
    else
        return refuse(reading, "strategy", strategy);
    if (group->strategy == RFS_QUANT_BY_GROUP)
        rc = size ? take_size(reading, "group_size", size, &group->group_size)
                  : damaged(reading, "group_size", "is missing");
    if (group->strategy == RFS_QUANT_BY_BLOCK)
        rc = take_structure(reading, member(weights, "block_structure"), group);
    scheme->n_groups += rc == 0;
    return rc;
}

/* Reads what the last group is for. */
static int read_targets(const struct reading *reading, const cJSON *object)
{
    struct rfs_quant_scheme *scheme = reading->scheme;
    struct rfs_quant_targets *targets = &scheme->groups[scheme->n_groups - 1].targets;

    return rfs_quant_targets_read(member(object, "targets"), targets)
               ? 0
               : rfs_fail_memory(reading->err);
}

/* Refuses formats by name. The tensors tell those apart that are read. */
static int check_format(const struct reading *reading, const cJSON *object)
{
    static const char *const known[] = {
        "pack-quantized",       "float-quantized",      "naive-quantized",
        "int-quantized",        "mxfp4-pack-quantized", "mxfp8-quantized",
        "nvfp4-pack-quantized", "mixed-precision",      "dense"};
    const char *format = text_of(object, "format");

    for (size_t i = 0; format && i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i]) == 0)
            return 0;
    return format ? refuse(reading, "format", format) : 0;
}

static int read_compressed(const struct reading *reading, const cJSON *config)
{
    const cJSON *groups = member(config, "config_groups");
    const cJSON *sparsity = member(config, "sparsity_config");
    const char *sparse = text_of(sparsity, "format");
    const cJSON *group;
    int rc = check_format(reading, config);

    if (rc == 0 && sparse && strcmp(sparse, "dense") != 0)
        rc = refuse(reading, "sparsity_config", sparse);
    if (rc == 0 && !cJSON_IsObject(groups))
        rc = damaged(reading, "config_groups", "is no object");
    if (rc)
        return rc;
    cJSON_ArrayForEach(group, groups)
    {
        rc = check_format(reading, group);
        if (rc == 0 && member(group, "weights"))
            rc = read_group(reading, member(group, "weights")) ?: read_targets(reading, group);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- gptq, awq and mlx ----------------------------------------------------------------------- */

static int read_sizes(const struct reading *reading, const cJSON *config, uint32_t *bits,
                      uint64_t *group_size)
{
    const cJSON *size = member(config, "group_size");
    int64_t number = 0;
    const int rc = take_bits(reading, "bits", member(config, "bits"), bits);

    *group_size = 0; /* as -1 stands for */
    if (rc || (rfs_json_tree_integer(size, &number) && number == -1))
        return rc;
    return take_size(reading, "group_size", size, group_size);
}

static int read_gptq(const struct reading *reading, const cJSON *config)
{
    struct rfs_quant_scheme *scheme = reading->scheme;
    const char *format =
        text_of(config, "checkpoint_format") ?: text_of(config, "format") ?: "gptq";
    const char *words = text_of(config, "pack_dtype");
    const cJSON *dynamic = member(config, "dynamic");

    scheme->less = strcasecmp(format, "gptq") == 0;
    scheme->mixed = cJSON_IsObject(dynamic) && cJSON_GetArraySize(dynamic) > 0;
    if (!scheme->less && strcasecmp(format, "gptq_v2") != 0)
        return refuse(reading, "checkpoint_format", format);
    if (cJSON_IsTrue(member(config, "is_marlin_format")))
        return refuse(reading, "checkpoint_format", "marlin");
    if (words && strcmp(words, "int32") != 0)
        return refuse(reading, "pack_dtype", words);
    return read_sizes(reading, config, &scheme->bits, &scheme->group_size);
}

static int read_awq(const struct reading *reading, const cJSON *config)
{
    struct rfs_quant_scheme *scheme = reading->scheme;
    const char *version = text_of(config, "version")
                              ?: text_of(config, "format")
                              ?: text_of(config, "checkpoint_format") ?: "gemm";

    if (strcasecmp(version, "gemm") != 0)
        return refuse(reading, "version", version);
    if (cJSON_IsFalse(member(config, "zero_point")))
        return refuse(reading, "zero_point", "false");
    return read_sizes(reading, config, &scheme->bits, &scheme->group_size);
}

RFS_COMPARE(by_name, struct rfs_quant_module, x, y, strcmp(x->name, y->name))

/* Adds what is said of one module: an object; true or false leave it to the tensors. */
static int add_module(const struct reading *reading, const cJSON *said)
{
    const char *mode = text_of(said, "mode");
    struct rfs_quant_module module = {0};

    if (mode && strcmp(mode, "affine") != 0)
        return refuse(reading, "mode", mode);
    const int rc = read_sizes(reading, said, &module.bits, &module.group_size);
    if (rc)
        return rc;
    RFS_FREE char *name = strdup(said->string);
    module.name = name;
    if (!name || !RFS_PUSH(&reading->scheme->modules, module))
        return rfs_fail_memory(reading->err);
    name = NULL;
    return 0;
}

static int read_mlx(const struct reading *reading, const cJSON *config)
{
    struct rfs_quant_scheme *scheme = reading->scheme;
    const char *mode = text_of(config, "mode");
    const cJSON *said;
    int rc = 0;

    if (mode && strcmp(mode, "affine") != 0)
        return refuse(reading, "mode", mode);
    rc = read_sizes(reading, config, &scheme->bits, &scheme->group_size);
    cJSON_ArrayForEach(said, config)
    {
        if (rc == 0 && cJSON_IsObject(said))
            rc = add_module(reading, said);
    }
    RFS_SORT_ALL(&scheme->modules, by_name);
    return rc;
}

static int read_metal(const struct reading *reading, const cJSON *config)
{
    reading->scheme->wide = true;
    return read_sizes(reading, config, &reading->scheme->bits, &reading->scheme->group_size);
}

const struct rfs_quant_module *rfs_quant_scheme_module(const struct rfs_quant_scheme *scheme,
                                                       const char *name, size_t length)
{
    size_t lo = 0;
    size_t hi = scheme->modules.n;

    while (lo < hi) {
        const size_t at = lo + (hi - lo) / 2;
        const struct rfs_quant_module *module = &scheme->modules.data[at];
        const int order = strncmp(module->name, name, length);
        if (order == 0 && !module->name[length])
            return module;
        if (order < 0)
            lo = at + 1;
        else
            hi = at;
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- */

/* Says whether an object has the members by which MLX says how it quantizes. */
static bool is_of_mlx(const cJSON *object)
{
    return member(object, "bits") && member(object, "group_size") &&
           !member(object, "quant_method");
}

/*
 * Returns the object that says how weights are quantized, or NULL. *method is the program, where
 * the file says it without a quant_method.
 */
static const cJSON *find(const cJSON *config, const char **method)
{
    const cJSON *found = member(config, "quantization_config")
                             ?: member(member(config, "text_config"), "quantization_config")
                             ?: member(config, "compression_config");
    /* that of hf_quant_config.json, or MLX's */
    const cJSON *other = member(config, "quantization");

    *method = NULL;
    if (is_of_mlx(other) || is_of_mlx(found)) {
        *method = "mlx";
        return is_of_mlx(other) ? other : found;
    }
    if (found || !text_of(other, "quant_algo"))
        return found;
    *method = "modelopt";
    return other;
}

static int read_method(struct reading *reading, const cJSON *config, const char *otherwise)
{
    static const struct {
        const char *word;
        enum rfs_quant_method method;
        int (*read)(const struct reading *reading, const cJSON *config);
    } known[] = {
        {"fp8", RFS_QUANT_FP8, read_fp8},
        {"modelopt", RFS_QUANT_MODELOPT, read_modelopt},
        {"compressed-tensors", RFS_QUANT_COMPRESSED, read_compressed},
        {"mxfp4", RFS_QUANT_MXFP4, NULL},
        {"gptq", RFS_QUANT_GPTQ, read_gptq},
        {"awq", RFS_QUANT_AWQ, read_awq},
        {"mlx", RFS_QUANT_MLX, read_mlx},
        {"metal", RFS_QUANT_MLX, read_metal},
    };

    if (!cJSON_IsObject(config))
        return damaged(reading, "quant_method", "is in no object");
    const char *method = text_of(config, "quant_method") ?: otherwise;
    if (!method && member(config, "config_groups"))
        method = "compressed-tensors";
    if (!method)
        return damaged(reading, "quant_method", "is missing");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i].word) == 0) {
            reading->scheme->method = known[i].method;
            return known[i].read ? known[i].read(reading, config) : 0;
        }
    return refuse(reading, "quant_method", method);
}

static struct rfs_quant_scheme *scheme_new(const char *path, enum rfs_dtype to)
{
    RFS_CLEANUP(free_scheme) struct rfs_quant_scheme *scheme = calloc(1, sizeof *scheme);

    if (!scheme || !(scheme->path = strdup(path)))
        return NULL;
    scheme->to = to;
    return RFS_STEAL(scheme);
}

struct rfs_quant_scheme *rfs_quant_scheme_blocks(const char *path, enum rfs_dtype to)
{
    struct rfs_quant_scheme *scheme = scheme_new(path, to);

    if (scheme)
        scheme->method = RFS_QUANT_BLOCKS;
    return scheme;
}

/* Reads a text of N bytes; PATH is for messages. *out is NULL if it says nothing of weights. */
static int read_text(const char *path, const char *text, size_t n, enum rfs_dtype to,
                     struct rfs_quant_scheme **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;
    const char *method;

    int rc = rfs_json_tree_parse(path, text, n, TREE_BYTES, REMEDY, &tree, err);
    if (rc)
        return rc;
    const cJSON *config = find(tree, &method);
    if (!config)
        return 0;
    RFS_CLEANUP(free_scheme) struct rfs_quant_scheme *scheme = scheme_new(path, to);
    if (!scheme)
        return rfs_fail_memory(err);
    struct reading reading = {scheme, err};
    rc = read_method(&reading, config, method);
    if (rc == 0)
        *out = RFS_STEAL(scheme);
    return rc;
}

static int read_file(struct rfs_store *store, const char *path, enum rfs_dtype to,
                     struct rfs_quant_scheme **out, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    return rfs_store_read_whole(store, path, MOST_BYTES, &text, &n, err)
               ?: read_text(path, text, n, to, out, err);
}

#define BESIDE "hf_quant_config.json"

bool rfs_quant_scheme_is_beside(struct rfs_store *store, const char *folder)
{
    RFS_FREE char *path = rfs_path_join(folder, BESIDE);

    return path && rfs_store_there(store, path);
}

/* Returns what two schemes say in another way, or NULL. Shapes prove the rest of them. */
static const char *find_difference(const struct rfs_quant_scheme *a,
                                   const struct rfs_quant_scheme *b)
{
    if (a->method != b->method)
        return "quant_method";
    if (a->less != b->less)
        return "checkpoint_format";
    if (a->bits != b->bits)
        return "bits";
    return a->group_size == b->group_size ? NULL : "group_size";
}

/* Refuses the config that a user gave if the folder's own config quantizes in another way. */
static int check_given(struct rfs_store *store, const char *folder,
                       const struct rfs_quant_scheme *given, struct rfs_error *err)
{
    RFS_CLEANUP(free_scheme) struct rfs_quant_scheme *own = NULL;
    RFS_FREE char *path = rfs_path_join(folder, "config.json");
    struct rfs_error unread; /* a reason to give another */

    if (!path)
        return rfs_fail_memory(err);
    if (!rfs_store_there(store, path) || read_file(store, path, given->to, &own, &unread) || !own)
        return 0;
    const char *other = find_difference(given, own);
    return other ? rfs_fail(err, -EINVAL, RFS_IN(given->path),
                            "leave hf_config out; or a source without the file that contradicts",
                            "'%s' of its quantization_config is another than in %s, which the "
                            "source has itself",
                            other, path)
                 : 0;
}

int rfs_quant_scheme_find(struct rfs_store *store, const char *folder, const char *given,
                          enum rfs_dtype to, struct rfs_quant_scheme **out, struct rfs_error *err)
{
    RFS_FREE char *config = given ? strdup(given) : rfs_path_join(folder, "config.json");
    RFS_FREE char *beside = rfs_path_join(folder, BESIDE);
    int rc = 0;

    *out = NULL;
    if (!config || !beside)
        return rfs_fail_memory_of(err, folder);
    const bool there = given || rfs_store_there(store, config);
    if (there)
        rc = read_file(store, config, to, out, err);
    const bool other = rc == 0 && !*out && rfs_store_there(store, beside);
    if (other)
        rc = read_file(store, beside, to, out, err);
    if (rc)
        return rc;
    if (*out) {
        (*out)->config = there ? RFS_STEAL(config) : NULL;
        return given ? check_given(store, folder, *out, err) : 0;
    }
    return there || other
               ? rfs_fail(err, -EINVAL, RFS_IN(there ? config : beside),
                          "hf_config= the config.json that was saved with quantized weights; if "
                          "none is, leave dequantize out",
                          "has no quantization_config, which would say how weights are quantized")
               : rfs_fail(err, -ENOENT, RFS_IN(folder), "hf_config=config.json",
                          "option dequantize needs the model's config.json, and the source has "
                          "none");
}
