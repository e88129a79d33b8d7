/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds quantized weights by their names and dtypes; the lists of modules in a config count only
 * where several of its groups fit, because a weight with its scales speaks for itself. A config
 * says how many elements share a scale. That never follows from the shape of the scales alone.
 *
 *                   weight                        scales              beside them
 *     fp8           X.weight   F8_E4M3 [M, N]     X.weight_scale_inv  X.activation_scale,
 *                   or I8 [M, N/2]                or X.weight_scale   X.input_scale
 *                                                 or X.scale
 *     modelopt      X.weight   F8_E4M3 [M, N]     X.weight_scale      X.input_scale
 *                   X.weight   U8 [M, N/2]        X.weight_scale      X.weight_scale_2
 *     compressed-   X.weight   F8_E4M3, I8 [M, N] X.weight_scale      X.weight_zero_point,
 *     tensors                                                         X.input_scale
 *                   X.weight_packed I32           X.weight_scale      X.weight_zero_point,
 *                                                                     X.weight_shape
 *                   X.weight_packed U8 [M, N/2]   X.weight_scale      X.weight_global_scale,
 *                                                                     X.input_global_scale
 *     mxfp4         P_blocks U8 [E, O, I/32, 16]  P_scales
 *     gptq          X.qweight  I32 [I·b/32, O]    X.scales [G, O]     X.qzeros, X.g_idx
 *     awq           X.qweight  I32 [I, O·b/32]    X.scales [I/g, O]   X.qzeros
 *     mlx           X.weight   U32 [M, N·b/32]    X.scales [M, N/g]   X.biases; metal: X.qbiases
 *     blocks        Q4_K and so on, any name      in it
 */
#include "quant/quant.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/text.h"
#include "base/vec.h"

#include <assert.h>

#define REMEDY_SAVE "the files of one save; or without dequantize"
#define REMEDY_CONFIG "hf_config= with the config.json of this checkpoint; or without dequantize"
#define NOT_READ "without dequantize; or the model in bfloat16"
#define SHAPE_TEXT RFS_DIMS_TEXT(RFS_MAX_DIMS)
#define TAIL_MOST 32 /* bytes of a tail that is looked for */
#define MX_GROUP 32
#define NV_GROUP 16

/* What an entry of the index becomes. */
struct fate {
    bool gone;      /* it belongs to a weight */
    bool strided;   /* it is shown transposed on its last two axes */
    uint32_t quant; /* of a weight; RFS_NO_ID: it is shown as it is */
    uint32_t name, type;
};

/* A name that only a part of a quantized weight has, in some program. */
struct part {
    const char *tail;   /* the end of the name */
    const char *weight; /* what the weight's name has there */
    bool activation;    /* it is for activations: a plain weight may have it, too */
    bool bytes;         /* it counts only as UInt8 */
};
static const struct part parts[] = {
    {"_scale_inv", "", false, false},
    {".qscale_weight", ".weight", false, false},
    {".weight_packed", ".weight", false, false},
    {".weight_scale", ".weight", false, false},
    {".weight_scale_2", ".weight", false, false},
    {".weight_global_scale", ".weight", false, false},
    {".weight_zero_point", ".weight", false, false},
    {".weight_shape", ".weight", false, false},
    {".weight_g_idx", ".weight", false, false},
    {"_weight_scale", "", false, false},
    {"_weight_scale_2", "", false, false},
    {".pre_quant_scale", ".weight", false, false},
    {".qweight", ".weight", false, false},
    {".qzeros", ".weight", false, false},
    {".g_idx", ".weight", false, false},
    {"_blocks", "", false, true},
    {"_scales", "", false, true},
    {".activation_scale", ".weight", true, false},
    {".input_scale", ".weight", true, false},
    {".input_global_scale", ".weight", true, false},
    {".input_zero_point", ".weight", true, false},
    {".output_scale", ".weight", true, false},
    {".output_global_scale", ".weight", true, false},
    {".output_zero_point", ".weight", true, false},
};
#define N_PARTS (sizeof parts / sizeof *parts)

/* A small tensor whose content counts for the plan. */
struct value {
    uint32_t entry;
    unsigned char bytes[16];
};

struct pairing {
    const struct rfs_quant_source *source;
    const struct rfs_index *index;
    struct rfs_error *err;
    struct fate *fates;           /* [index->n] */
    char *name;                   /* room for the longest name with another tail */
    RFS_VEC(struct value) values; /* by entry */
    size_t weights;
};

static void pairing_end(struct pairing *pairing)
{
    free(pairing->fates);
    free(pairing->name);
    free(pairing->values.data);
}

/* ---- entries --------------------------------------------------------------------------------- */

static const char *name_of(const struct pairing *p, const struct rfs_entry *entry)
{
    return rfs_intern_text(p->source->tables->names, entry->name);
}

static const struct rfs_type *type_of(const struct pairing *p, const struct rfs_entry *entry)
{
    return rfs_intern_bytes(p->source->tables->types, entry->type, NULL);
}

static uint32_t file_of(const struct pairing *p, const struct rfs_entry *entry)
{
    const struct rfs_index *index = p->index;

    return p->source->first_file + (index->file_of ? index->file_of[entry - index->entries] : 0);
}

static struct rfs_where where_of(const struct pairing *p, const struct rfs_entry *entry)
{
    return RFS_OF(rfs_files_path(p->source->files, file_of(p, entry)), name_of(p, entry));
}

static struct fate *fate_of(const struct pairing *p, const struct rfs_entry *entry)
{
    return &p->fates[entry - p->index->entries];
}

/* Returns the length of NAME without TAIL at its end, or 0. */
static size_t stem_of(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);

    return n > m && strcmp(name + n - m, tail) == 0 ? n - m : 0;
}

/* Makes the room for names with other tails. */
static bool make_room(struct pairing *p)
{
    size_t most = 0;

    for (size_t i = 0; i < p->index->n; i++) {
        const size_t length = strlen(name_of(p, &p->index->entries[i]));
        most = length > most ? length : most;
    }
    p->name = malloc(most + TAIL_MOST);
    return p->name != NULL;
}

/* Returns the entry with a name of the same STEM characters as NAME, and TAIL behind them. */
static const struct rfs_entry *beside(const struct pairing *p, const char *name, size_t stem,
                                      const char *tail)
{
    const size_t length = strlen(tail);

    assert(length <= TAIL_MOST);
    memcpy(p->name, name, stem);
    memcpy(p->name + stem, tail, length);
    const uint32_t id = rfs_intern_find(p->source->tables->names, p->name, stem + length);
    return id == RFS_NO_ID ? NULL : rfs_index_find(p->index, id);
}

static void consume(const struct pairing *p, const char *name, size_t stem, const char *tail)
{
    const struct rfs_entry *entry = beside(p, name, stem, tail);

    if (entry)
        fate_of(p, entry)->gone = true;
}

static int fail_type(const struct pairing *p, const struct rfs_entry *entry)
{
    return rfs_fail(p->err, -ENOTSUP, where_of(p, entry), NOT_READ,
                    "option dequantize: it is quantized as %s, which is not read here",
                    rfs_dtype_name((enum rfs_dtype)type_of(p, entry)->dtype));
}

static int fail_missing(const struct pairing *p, const struct rfs_entry *entry, size_t stem,
                        const char *tail)
{
    const char *name = name_of(p, entry);

    return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_SAVE,
                    "is quantized, and '%.*s%s', which belongs to it, is missing", (int)stem, name,
                    tail);
}

static int fail_shape(const struct pairing *p, const struct rfs_entry *entry,
                      const struct rfs_entry *weight)
{
    char shapes[2][SHAPE_TEXT];
    const struct rfs_type *type = type_of(p, entry);
    const struct rfs_type *of = type_of(p, weight);

    return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_CONFIG,
                    "is %s %s, which does not fit '%s', %s %s, by %s",
                    rfs_dtype_name((enum rfs_dtype)type->dtype),
                    rfs_text_dims(shapes[0], SHAPE_TEXT, type->ndim, type->dims),
                    name_of(p, weight), rfs_dtype_name((enum rfs_dtype)of->dtype),
                    rfs_text_dims(shapes[1], SHAPE_TEXT, of->ndim, of->dims),
                    p->source->scheme->path);
}

static bool has_shape(const struct rfs_type *type, uint64_t rows, uint64_t cols)
{
    return type->ndim == 2 && type->dims[0] == rows && type->dims[1] == cols;
}

static bool is_scalar(const struct rfs_type *type)
{
    bool one = true;

    for (uint32_t i = 0; i < type->ndim; i++)
        one = one && type->dims[i] == 1;
    return one && type->ndim < 2;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* A weight that is being put together. */
struct weight {
    const struct rfs_entry *codes, *scales, *zeros;
    struct rfs_quant quant;
    size_t stem; /* length of the name up to "weight" */
};

static struct weight begin_weight(const struct pairing *p, const struct rfs_entry *codes,
                                  size_t stem)
{
    struct weight weight = {.codes = codes, .stem = stem};

    memset(&weight.quant, 0, sizeof weight.quant);
    weight.quant.to = (uint8_t)p->source->scheme->to;
    weight.quant.round = RFS_FLOAT32;
    return weight;
}

/* Sets the size of the weight and the place of its codes' rows. */
static void set_size(struct weight *weight, uint64_t rows, uint64_t cols, uint64_t row_bytes)
{
    weight->quant.rows = rows;
    weight->quant.cols = cols;
    weight->quant.row_bytes = row_bytes;
}

/* Sets the kind of the scales by their dtype. False if it is another. */
static bool set_scale(const struct pairing *p, struct weight *weight)
{
    switch (type_of(p, weight->scales)->dtype) {
    case RFS_FLOAT32:
        weight->quant.scale = RFS_QUANT_S_F32;
        return true;
    case RFS_BFLOAT16:
        weight->quant.scale = RFS_QUANT_S_BF16;
        return true;
    case RFS_FLOAT16:
        weight->quant.scale = RFS_QUANT_S_F16;
        return true;
    default:
        return false;
    }
}

/* Leaves out what belongs to a weight and is for activations. */
static void consume_activations(const struct pairing *p, const struct weight *weight)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (parts[i].activation)
            consume(p, name_of(p, weight->codes), weight->stem, parts[i].tail + 1);
}

/* Adds a weight that is complete, as tensor NAME of that shape. */
static int add_shaped(struct pairing *p, struct weight *weight, const char *name, size_t length,
                      uint32_t ndim, const uint64_t *dims)
{
    struct fate *fate = fate_of(p, weight->codes);
    struct rfs_type type;

    memset(&type, 0, sizeof type);
    type.ndim = (uint8_t)ndim;
    type.dtype = (uint8_t)p->source->scheme->to;
    memcpy(type.dims, dims, ndim * sizeof *dims);
    if (!rfs_type_bytes(&type, &type.bytes))
        return rfs_fail(p->err, -EFBIG, where_of(p, weight->codes), NULL,
                        "is too large once it is dequantized");
    weight->quant.scale_file = file_of(p, weight->scales ? weight->scales : weight->codes);
    if (weight->scales)
        weight->quant.scales = weight->scales->offset;
    if (weight->zeros) {
        weight->quant.zeros = weight->zeros->offset;
        weight->quant.zero_file = file_of(p, weight->zeros);
    }
    fate->name = rfs_intern_add(p->source->tables->names, name, length);
    fate->type = rfs_intern_add(p->source->tables->types, &type, sizeof type);
    fate->quant = rfs_intern_add(p->source->quants, &weight->quant, sizeof weight->quant);
    if (fate->name == RFS_NO_ID || fate->type == RFS_NO_ID || fate->quant == RFS_NO_ID)
        return rfs_fail_memory(p->err);
    if (weight->scales)
        fate_of(p, weight->scales)->gone = true;
    if (weight->zeros)
        fate_of(p, weight->zeros)->gone = true;
    p->weights++;
    return 0;
}

/* Adds a weight that is complete, of two axes. */
static int add_weight(struct pairing *p, struct weight *weight)
{
    const char *name = name_of(p, weight->codes);
    const uint64_t dims[] = {weight->quant.rows, weight->quant.cols};
    RFS_FREE char *shown = rfs_text_printf("%.*sweight", (int)weight->stem, name);

    consume(p, name, weight->stem, "weight_shape");
    consume_activations(p, weight);
    return shown ? add_shaped(p, weight, shown, strlen(shown), 2, dims) : rfs_fail_memory(p->err);
}

/* Returns what was read of an entry, or NULL. */
static const unsigned char *value_of(const struct pairing *p, const struct rfs_entry *entry)
{
    const size_t number = (size_t)(entry - p->index->entries);
    size_t lo = 0;
    size_t hi = p->values.n;

    while (lo < hi) {
        const size_t at = lo + (hi - lo) / 2;
        if (p->values.data[at].entry < number)
            lo = at + 1;
        else
            hi = at;
    }
    return lo < p->values.n && p->values.data[lo].entry == number ? p->values.data[lo].bytes : NULL;
}

/* Sets the blocks of a weight as a group of the config has them. False if the scales do not fit. */
static bool set_blocks(const struct pairing *p, const struct rfs_quant_group *group,
                       struct weight *weight)
{
    struct rfs_quant *quant = &weight->quant;
    const struct rfs_type *scales = type_of(p, weight->scales);
    const uint64_t rows = quant->rows;
    const uint64_t cols = quant->cols;

    quant->block_rows = 1;
    quant->block_cols = rfs_max_u64(cols, 1);
    quant->grid_cols = 1;
    switch (group->strategy) {
    case RFS_QUANT_BY_TENSOR:
        quant->block_rows = rfs_max_u64(rows, 1);
        return is_scalar(scales);
    case RFS_QUANT_BY_CHANNEL:
        return has_shape(scales, rows, 1) || (scales->ndim == 1 && scales->dims[0] == rows);
    case RFS_QUANT_BY_GROUP:
        quant->block_cols = group->group_size;
        break;
    case RFS_QUANT_BY_BLOCK:
        quant->block_rows = group->block_rows;
        quant->block_cols = group->block_cols;
    }
    quant->grid_cols = rfs_ceil_u64(cols, quant->block_cols);
    return (group->strategy == RFS_QUANT_BY_BLOCK || cols % quant->block_cols == 0) &&
           has_shape(scales, rfs_ceil_u64(rows, quant->block_rows), quant->grid_cols);
}

/* Leaves out a scale of the cache of keys and values. */
static void skip_of_cache(const struct pairing *p, const struct rfs_entry *entry)
{
    const char *name = name_of(p, entry);

    if (stem_of(name, ".k_scale") || stem_of(name, ".v_scale") || stem_of(name, ".q_scale"))
        fate_of(p, entry)->gone = true;
}

/* ---- two codes in each byte ------------------------------------------------------------------ */

/* Adds codes of 4 bits, two in each byte, with a scale for each GROUP of a row. */
static int add_pairs(struct pairing *p, struct weight *weight, uint64_t group)
{
    const struct rfs_type *type = type_of(p, weight->codes);
    uint64_t cols;

    if (type->ndim != 2)
        return fail_type(p, weight->codes);
    if (!rfs_mul_u64(type->dims[1], 2, &cols) || cols % group != 0 ||
        !has_shape(type_of(p, weight->scales), type->dims[0], cols / group))
        return fail_shape(p, weight->scales, weight->codes);
    weight->quant.block_rows = 1;
    weight->quant.block_cols = group;
    weight->quant.grid_cols = cols / group;
    set_size(weight, type->dims[0], cols, type->dims[1]);
    return add_weight(p, weight);
}

/* Adds such codes whose scales need that of the whole weight, too: WHOLE, or NULL, named TAIL. */
static int add_nvfp4(struct pairing *p, struct weight *weight, const struct rfs_entry *whole,
                     const char *tail)
{
    const unsigned char *value = whole ? value_of(p, whole) : NULL;

    if (!whole)
        return fail_missing(p, weight->codes, weight->stem, tail);
    if (!value)
        return fail_shape(p, whole, weight->codes);
    memcpy(&weight->quant.whole, value, sizeof weight->quant.whole);
    const int rc = add_pairs(p, weight, NV_GROUP);
    if (rc == 0)
        fate_of(p, whole)->gone = true;
    return rc;
}

/* ---- fp8 and modelopt ------------------------------------------------------------------------ */

/* Adds FP4 with an exponent for 32 codes: experts of DeepSeek-V4. */
static int add_fp4(struct pairing *p, struct weight *weight)
{
    if (type_of(p, weight->scales)->dtype != RFS_FLOAT8_E8M0)
        return fail_type(p, weight->scales);
    weight->quant.code = RFS_QUANT_E2M1;
    weight->quant.scale = RFS_QUANT_S_E8M0;
    return add_pairs(p, weight, MX_GROUP);
}

/* Adds FP4 of ModelOpt. */
static int add_modelopt(struct pairing *p, struct weight *weight)
{
    const char *name = name_of(p, weight->codes);

    weight->scales = beside(p, name, weight->stem, "weight_scale");
    if (!weight->scales)
        return fail_missing(p, weight->codes, weight->stem, "weight_scale");
    if (type_of(p, weight->scales)->dtype != RFS_FLOAT8_E4M3FN)
        return fail_type(p, weight->scales);
    weight->quant.code = RFS_QUANT_E2M1_0;
    weight->quant.scale = RFS_QUANT_S_E4M3_BY;
    return add_nvfp4(p, weight, beside(p, name, weight->stem, "weight_scale_2"), "weight_scale_2");
}

/* Adds codes of 8 bits: in the config's blocks; without any, with a scale for all or each row. */
static int add_fp8(struct pairing *p, struct weight *weight)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;
    const struct rfs_type *type = type_of(p, weight->codes);
    const struct rfs_type *scales = type_of(p, weight->scales);
    const struct rfs_quant_group group = {
        .strategy = scheme->block_rows  ? RFS_QUANT_BY_BLOCK
                    : is_scalar(scales) ? RFS_QUANT_BY_TENSOR
                                        : RFS_QUANT_BY_CHANNEL,
        .block_rows = scheme->block_rows,
        .block_cols = scheme->block_cols,
    };

    if (scales->dtype == RFS_FLOAT8_E8M0)
        weight->quant.scale = RFS_QUANT_S_E8M0;
    else if (scales->dtype == RFS_UINT8)
        weight->quant.scale = RFS_QUANT_S_EXPONENT;
    else if (!set_scale(p, weight))
        return fail_type(p, weight->scales);
    weight->quant.code = RFS_QUANT_E4M3;
    set_size(weight, type->dims[0], type->dims[1], type->dims[1]);
    return set_blocks(p, &group, weight) ? add_weight(p, weight)
                                         : fail_shape(p, weight->scales, weight->codes);
}

static int pair_fp8(struct pairing *p, const struct rfs_entry *entry)
{
    const char *name = name_of(p, entry);
    const struct rfs_type *type = type_of(p, entry);
    const size_t tail = stem_of(name, ".weight");
    struct weight weight = begin_weight(p, entry, tail + 1);

    if (tail == 0 || rfs_dtype_is_float_target((enum rfs_dtype)type->dtype))
        return 0;
    if (type->dtype == RFS_UINT8 && beside(p, name, weight.stem, "weight_scale_2"))
        return add_modelopt(p, &weight);
    if (type->dtype != RFS_FLOAT8_E4M3FN && type->dtype != RFS_INT8)
        return fail_type(p, entry);
    weight.scales = beside(p, name, weight.stem, "weight_scale_inv")
                        ?: beside(p, name, weight.stem, "weight_scale");
    if (!weight.scales || type->dtype == RFS_INT8)
        weight.scales = beside(p, name, weight.stem, "scale") ?: weight.scales;
    if (!weight.scales)
        return fail_missing(p, entry, weight.stem,
                            p->source->scheme->method == RFS_QUANT_MODELOPT ? "weight_scale"
                                                                            : "weight_scale_inv");
    if (type->ndim != 2)
        return fail_type(p, entry);
    return type->dtype == RFS_INT8 ? add_fp4(p, &weight) : add_fp8(p, &weight);
}

static int pair_modelopt(struct pairing *p, const struct rfs_entry *entry)
{
    skip_of_cache(p, entry);
    return pair_fp8(p, entry);
}

/* ---- compressed-tensors ---------------------------------------------------------------------- */

/*
 * Says whether the zero points of a weight fit its blocks, and sets their kind. A weight without
 * any fits, too, where the group has some: they may be lost.
 */
static bool set_zeros(const struct pairing *p, const struct rfs_quant_group *group,
                      struct weight *weight)
{
    struct rfs_quant *quant = &weight->quant;
    const struct rfs_type *zeros = weight->zeros ? type_of(p, weight->zeros) : NULL;
    const struct rfs_type *scales = type_of(p, weight->scales);

    quant->zero = RFS_QUANT_Z_NONE;
    if (group->symmetric)
        return !zeros;
    quant->zero = quant->code == RFS_QUANT_UINT4   ? RFS_QUANT_Z_UINT4
                  : quant->code == RFS_QUANT_UINT8 ? RFS_QUANT_Z_UINT8
                                                   : RFS_QUANT_Z_INT8;
    if (!zeros)
        return true;
    if (quant->code == RFS_QUANT_INT8)
        return zeros->dtype == RFS_INT8 && zeros->ndim == scales->ndim &&
               memcmp(zeros->dims, scales->dims, sizeof zeros->dims) == 0;
    return quant->code != RFS_QUANT_E4M3 && zeros->dtype == RFS_INT32 && scales->ndim == 2 &&
           has_shape(zeros, rfs_ceil_u64(scales->dims[0], 32 / group->bits), scales->dims[1]);
}

/* Says whether two weights have one number for each code. */
static bool is_same(const struct rfs_quant *a, const struct rfs_quant *b)
{
    return a->code == b->code && a->zero == b->zero && a->cols == b->cols &&
           rfs_min_u64(a->block_rows, a->rows) == rfs_min_u64(b->block_rows, b->rows) &&
           rfs_min_u64(a->block_cols, a->cols) == rfs_min_u64(b->block_cols, b->cols);
}

/*
 * Sets what a group says of a weight whose codes and size are set, unless it does not fit. Codes of
 * 4 bits in words have their size set here.
 */
static bool fit_group(const struct pairing *p, const struct rfs_quant_group *group,
                      struct weight *weight, bool packed)
{
    const struct rfs_type *type = type_of(p, weight->codes);
    struct rfs_quant *quant = &weight->quant;
    uint64_t bits;

    if (packed) {
        if (group->is_float || type->dims[0] != quant->rows ||
            !rfs_mul_u64(quant->cols, group->bits, &bits) ||
            type->dims[1] != rfs_ceil_u64(bits, 32))
            return false;
        quant->code = group->bits == 4 ? RFS_QUANT_UINT4 : RFS_QUANT_UINT8;
        quant->row_bytes = type->dims[1] * 4;
    } else if (group->is_float != (quant->code == RFS_QUANT_E4M3) || group->bits != 8)
        return false;
    return set_blocks(p, group, weight) && set_zeros(p, group, weight);
}

/* A group of the config that a weight fits. */
struct fitting {
    const struct rfs_quant_group *group;
    struct weight weight; /* as the group says */
    struct rfs_quant_named named;
};

/* Says whether all of N say the same of a weight. */
static bool are_same(const struct fitting *fitting, size_t n)
{
    size_t i = 1;

    while (i < n && is_same(&fitting[0].weight.quant, &fitting[i].weight.quant))
        i++;
    return i >= n;
}

/*
 * Finds the one of N groups that names the module of LENGTH characters more strongly than any other
 * that says something else may. NULL: there is none.
 */
static const struct fitting *find_named(struct fitting *fitting, size_t n, const char *module,
                                        size_t length)
{
    for (size_t i = 0; i < n; i++)
        fitting[i].named = rfs_quant_targets_name(&fitting[i].group->targets, module, length);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < n && (is_same(&fitting[i].weight.quant, &fitting[k].weight.quant) ||
                         fitting[i].named.surely < fitting[k].named.perhaps))
            k++;
        if (k == n)
            return &fitting[i];
    }
    return NULL;
}

/*
 * Finds the group of the config that fits. Where several do that do not say the same, their targets
 * decide.
 */
static int choose_group(struct pairing *p, struct weight *weight, bool packed)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;
    struct fitting fitting[RFS_QUANT_GROUPS];
    size_t n = 0;

    for (size_t i = 0; i < scheme->n_groups; i++) {
        fitting[n] = (struct fitting){.weight = *weight, .group = &scheme->groups[i]};
        n += fit_group(p, fitting[n].group, &fitting[n].weight, packed);
    }
    if (n == 0)
        return fail_shape(p, weight->scales, weight->codes);
    const struct fitting *found =
        are_same(fitting, n) ? fitting
                             : find_named(fitting, n, name_of(p, weight->codes), weight->stem - 1);
    if (!found)
        return rfs_fail(p->err, -EINVAL, where_of(p, weight->codes), REMEDY_CONFIG,
                        "is quantized as two of the config_groups of %s say", scheme->path);
    if (found->weight.quant.zero != RFS_QUANT_Z_NONE && !weight->zeros)
        return fail_missing(p, weight->codes, weight->stem, "weight_zero_point");
    *weight = found->weight;
    return 0;
}

/* Adds codes of 8 bits, each in a byte. */
static int add_bytes(struct pairing *p, struct weight *weight)
{
    const struct rfs_type *type = type_of(p, weight->codes);
    const struct rfs_type *scales = type_of(p, weight->scales);

    if (type->ndim != 2)
        return fail_type(p, weight->codes);
    set_size(weight, type->dims[0], type->dims[1], type->dims[1]);
    weight->quant.code = type->dtype == RFS_INT8 ? RFS_QUANT_INT8 : RFS_QUANT_E4M3;
    if (type->dtype == RFS_FLOAT8_E4M3FN && scales->dtype == RFS_UINT8) { /* mxfp8-quantized */
        weight->quant.scale = RFS_QUANT_S_EXPONENT;
        weight->quant.round = RFS_BFLOAT16;
    } else if (set_scale(p, weight))
        weight->quant.round = scales->dtype;
    else
        return fail_type(p, weight->scales);
    return choose_group(p, weight, false) ?: add_weight(p, weight);
}

/* Sets the size of a weight in words of 32 bits, as weight_shape has it. */
static int take_shape(struct pairing *p, struct weight *weight)
{
    const char *name = name_of(p, weight->codes);
    const struct rfs_entry *shape = beside(p, name, weight->stem, "weight_shape");
    const unsigned char *bytes = shape ? value_of(p, shape) : NULL;
    int64_t size[2];

    if (!shape)
        return fail_missing(p, weight->codes, weight->stem, "weight_shape");
    if (!bytes)
        return fail_shape(p, shape, weight->codes);
    if (type_of(p, shape)->dtype == RFS_INT64)
        memcpy(size, bytes, sizeof size);
    else
        for (unsigned i = 0; i < 2; i++) {
            int32_t narrow;
            memcpy(&narrow, bytes + i * sizeof narrow, sizeof narrow);
            size[i] = narrow;
        }
    if (size[0] < 0 || size[1] < 0 || (uint64_t)size[0] != type_of(p, weight->codes)->dims[0])
        return rfs_fail(p->err, -EINVAL, where_of(p, shape), REMEDY_SAVE,
                        "says [%" PRId64 ", %" PRId64 "], which does not fit '%s'", size[0],
                        size[1], name);
    set_size(weight, (uint64_t)size[0], (uint64_t)size[1], 0);
    return 0;
}

/* Adds codes of 4 or 8 bits in words of 32 bits. */
static int add_words(struct pairing *p, struct weight *weight)
{
    if (type_of(p, weight->codes)->ndim != 2)
        return fail_type(p, weight->codes);
    if (!set_scale(p, weight))
        return fail_type(p, weight->scales);
    weight->quant.round = type_of(p, weight->scales)->dtype;
    return take_shape(p, weight) ?: choose_group(p, weight, true) ?: add_weight(p, weight);
}

/* Says whether the config has a group of 4 bits of that size. */
static bool has_group(const struct pairing *p, uint64_t size)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;

    for (size_t i = 0; i < scheme->n_groups; i++) {
        const struct rfs_quant_group *group = &scheme->groups[i];
        if (group->is_float && group->bits == 4 && group->symmetric &&
            group->strategy == RFS_QUANT_BY_GROUP && group->group_size == size)
            return true;
    }
    return false;
}

/* Adds two codes of 4 bits in each byte, of mxfp4-pack-quantized or nvfp4-pack-quantized. */
static int add_halves(struct pairing *p, struct weight *weight)
{
    const struct rfs_entry *global =
        beside(p, name_of(p, weight->codes), weight->stem, "weight_global_scale");
    const bool nv = type_of(p, weight->scales)->dtype == RFS_FLOAT8_E4M3FN;
    const uint64_t group = nv ? NV_GROUP : MX_GROUP;

    if (weight->zeros)
        return fail_shape(p, weight->zeros, weight->codes);
    if (!has_group(p, group))
        return fail_shape(p, weight->scales, weight->codes);
    weight->quant.code = RFS_QUANT_E2M1;
    weight->quant.round = RFS_BFLOAT16;
    if (nv) {
        weight->quant.scale = RFS_QUANT_S_E4M3;
        return add_nvfp4(p, weight, global, "weight_global_scale");
    }
    weight->quant.scale = RFS_QUANT_S_EXPONENT;
    if (type_of(p, weight->scales)->dtype != RFS_UINT8)
        return fail_type(p, weight->scales);
    return global ? fail_shape(p, global, weight->codes) : add_pairs(p, weight, group);
}

/* Finds the scales of a weight of compressed-tensors, and refuses forms that are not read. */
static int begin_compressed(struct pairing *p, struct weight *weight)
{
    const char *name = name_of(p, weight->codes);
    const struct rfs_entry *order = beside(p, name, weight->stem, "weight_g_idx");

    weight->scales = beside(p, name, weight->stem, "weight_scale");
    weight->zeros = beside(p, name, weight->stem, "weight_zero_point");
    if (!weight->scales)
        return fail_missing(p, weight->codes, weight->stem, "weight_scale");
    if (order)
        return rfs_fail(p->err, -ENOTSUP, where_of(p, order), NOT_READ,
                        "option dequantize: columns in another order (g_idx) are not read");
    return 0;
}

static int pair_compressed(struct pairing *p, const struct rfs_entry *entry)
{
    const char *name = name_of(p, entry);
    const struct rfs_type *type = type_of(p, entry);
    const size_t packed = stem_of(name, ".weight_packed");
    const size_t plain = stem_of(name, ".weight");
    struct weight weight = begin_weight(p, entry, (packed ? packed : plain) + 1);

    skip_of_cache(p, entry);
    if (!packed && (!plain || rfs_dtype_is_float_target((enum rfs_dtype)type->dtype)))
        return 0;
    if (packed && beside(p, name, weight.stem, "weight"))
        return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_SAVE,
                        "the plain '%.*sweight' is there, too", (int)weight.stem, name);
    if (packed ? type->dtype != RFS_INT32 && type->dtype != RFS_UINT8
               : type->dtype != RFS_INT8 && type->dtype != RFS_FLOAT8_E4M3FN)
        return fail_type(p, entry);
    const int rc = begin_compressed(p, &weight);
    if (rc)
        return rc;
    return !packed                    ? add_bytes(p, &weight)
           : type->dtype == RFS_INT32 ? add_words(p, &weight)
                                      : add_halves(p, &weight);
}

/* ---- mxfp4 ----------------------------------------------------------------------------------- */

static int pair_mxfp4(struct pairing *p, const struct rfs_entry *entry)
{
    const char *name = name_of(p, entry);
    const struct rfs_type *type = type_of(p, entry);
    const size_t stem = stem_of(name, "_blocks");
    struct weight weight = begin_weight(p, entry, stem);
    uint64_t rows;
    uint64_t cols;

    if (stem == 0 || type->dtype != RFS_UINT8)
        return 0;
    weight.scales = beside(p, name, stem, "_scales");
    if (!weight.scales)
        return fail_missing(p, entry, stem, "_scales");
    if (beside(p, name, stem, ""))
        return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_SAVE,
                        "the plain '%.*s' is there, too", (int)stem, name);
    const struct rfs_type *scales = type_of(p, weight.scales);
    if (type->ndim != 4 || type->dims[3] != MX_GROUP / 2 || scales->dtype != RFS_UINT8 ||
        scales->ndim != 3 || memcmp(type->dims, scales->dims, 3 * sizeof *type->dims) != 0 ||
        !rfs_mul_u64(type->dims[0], type->dims[1], &rows) ||
        !rfs_mul_u64(type->dims[2], MX_GROUP, &cols))
        return fail_shape(p, weight.scales, entry);
    weight.quant.code = RFS_QUANT_E2M1_2;
    weight.quant.scale = RFS_QUANT_S_HALF;
    weight.quant.block_rows = 1;
    weight.quant.block_cols = MX_GROUP;
    weight.quant.grid_cols = type->dims[2];
    set_size(&weight, rows, cols, cols / 2);
    fate_of(p, entry)->strided = true;
    const uint64_t dims[] = {type->dims[0], cols, type->dims[1]};
    return add_shaped(p, &weight, name, stem, 3, dims);
}

/* ---- gptq and awq ---------------------------------------------------------------------------- */

static bool is_words(const struct rfs_type *type, uint64_t rows, uint64_t cols)
{
    return type->dtype == RFS_INT32 && has_shape(type, rows, cols);
}

/*
 * Sets codes of BITS bits in ROWS rows. Each column has a scale and a zero point for each group of
 * rows. False if they do not fit.
 */
static bool set_columns(const struct pairing *p, struct weight *weight, uint32_t bits,
                        uint64_t rows)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;
    const struct rfs_type *codes = type_of(p, weight->codes);
    const struct rfs_type *scales = type_of(p, weight->scales);
    const uint64_t groups = scales->dims[0];
    const uint64_t cols = scales->dims[1];
    const uint64_t each = 32 / bits;
    const bool down = scheme->method == RFS_QUANT_GPTQ;
    const uint64_t size = scheme->group_size ? scheme->group_size : rfs_max_u64(rows, 1);

    if (scales->ndim != 2 || codes->ndim != 2 ||
        !is_words(type_of(p, weight->zeros), groups, rfs_ceil_u64(cols, each)) ||
        !(down ? is_words(codes, rfs_ceil_u64(rows, each), cols)
               : is_words(codes, rows, rfs_ceil_u64(cols, each))) ||
        (!scheme->mixed && groups != rfs_ceil_u64(rows, size)) ||
        (!down && (rows % size != 0 || (bits == 4 && cols % each != 0))))
        return false;
    weight->quant.code = bits == 4 ? RFS_QUANT_PLAIN4 : RFS_QUANT_PLAIN8;
    weight->quant.zero = scheme->less ? RFS_QUANT_Z_WORDS_1 : RFS_QUANT_Z_WORDS;
    weight->quant.order = down ? RFS_QUANT_O_DOWN : RFS_QUANT_O_AWQ;
    weight->quant.block_rows = size;
    weight->quant.block_cols = 1;
    weight->quant.grid_cols = cols;
    set_size(weight, rows, cols, codes->dims[1] * 4);
    return true;
}

/* Begins a weight of either, or of neither: then its stem is 0. */
static int begin_columns(struct pairing *p, const struct rfs_entry *entry, struct weight *weight)
{
    const char *name = name_of(p, entry);
    const size_t stem = stem_of(name, ".qweight");

    *weight = begin_weight(p, entry, stem ? stem + 1 : 0);
    if (stem == 0)
        return 0;
    weight->scales = beside(p, name, weight->stem, "scales");
    weight->zeros = beside(p, name, weight->stem, "qzeros");
    if (!weight->scales || !weight->zeros)
        return fail_missing(p, entry, weight->stem, weight->scales ? "qzeros" : "scales");
    if (beside(p, name, weight->stem, "weight"))
        return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_SAVE,
                        "the plain '%.*sweight' is there, too", (int)weight->stem, name);
    if (!set_scale(p, weight))
        return fail_type(p, weight->scales);
    weight->quant.round = type_of(p, weight->scales)->dtype;
    return 0;
}

/* Adds a weight of either, which is shown transposed. */
static int add_columns(struct pairing *p, struct weight *weight)
{
    const uint64_t dims[] = {weight->quant.cols, weight->quant.rows};
    RFS_FREE char *shown =
        rfs_text_printf("%.*sweight", (int)weight->stem, name_of(p, weight->codes));

    consume_activations(p, weight);
    fate_of(p, weight->codes)->strided = true;
    return shown ? add_shaped(p, weight, shown, strlen(shown), 2, dims) : rfs_fail_memory(p->err);
}

static int pair_gptq(struct pairing *p, const struct rfs_entry *entry)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;
    struct weight weight;
    const int rc = begin_columns(p, entry, &weight);

    if (rc || weight.stem == 0)
        return rc;
    const struct rfs_entry *indices = beside(p, name_of(p, entry), weight.stem, "g_idx");
    if (!indices)
        return fail_missing(p, entry, weight.stem, "g_idx");
    const struct rfs_type *type = type_of(p, indices);
    if (type->ndim != 1 || type->dtype != RFS_INT32)
        return fail_shape(p, indices, entry);
    if (!set_columns(p, &weight, scheme->bits, type->dims[0]) &&
        !(scheme->mixed && set_columns(p, &weight, scheme->bits ^ 12, type->dims[0])))
        return fail_shape(p, weight.scales, entry);
    weight.quant.grid_rows = type_of(p, weight.scales)->dims[0];
    weight.quant.indices = indices->offset;
    weight.quant.index_file = file_of(p, indices);
    fate_of(p, indices)->gone = true;
    return add_columns(p, &weight);
}

static int pair_awq(struct pairing *p, const struct rfs_entry *entry)
{
    struct weight weight;
    const int rc = begin_columns(p, entry, &weight);

    if (rc || weight.stem == 0)
        return rc;
    return set_columns(p, &weight, p->source->scheme->bits, type_of(p, entry)->dims[0])
               ? add_columns(p, &weight)
               : fail_shape(p, weight.scales, entry);
}

/* ---- mlx ------------------------------------------------------------------------------------- */

/* Sets the codes of a weight and their groups. False if the scales or the biases do not fit. */
static bool set_affine(const struct pairing *p, struct weight *weight, uint32_t bits,
                       uint64_t group, uint64_t *dims)
{
    const struct rfs_type *codes = type_of(p, weight->codes);
    const struct rfs_type *scales = type_of(p, weight->scales);
    const struct rfs_type *plus = type_of(p, weight->zeros);
    const uint32_t axes = codes->ndim - 1U;
    uint64_t rows = 1;

    memcpy(dims, codes->dims, codes->ndim * sizeof *dims);
    for (uint32_t i = 0; i < axes; i++)
        if (!rfs_mul_u64(rows, dims[i], &rows))
            return false;
    if (!rfs_mul_u64(dims[axes], 32 / bits, &dims[axes]) || group == 0 || dims[axes] % group != 0 ||
        scales->ndim != codes->ndim || memcmp(scales->dims, dims, axes * sizeof *dims) != 0 ||
        scales->dims[axes] != dims[axes] / group || plus->ndim != scales->ndim ||
        plus->dtype != scales->dtype || memcmp(plus->dims, scales->dims, sizeof plus->dims) != 0)
        return false;
    weight->quant.code = bits == 4 ? RFS_QUANT_PLAIN4 : RFS_QUANT_PLAIN8;
    weight->quant.zero = p->source->scheme->wide ? RFS_QUANT_Z_PLUS_WIDE : RFS_QUANT_Z_PLUS;
    weight->quant.round = scales->dtype;
    weight->quant.block_rows = 1;
    weight->quant.block_cols = group;
    weight->quant.grid_cols = scales->dims[axes];
    set_size(weight, rows, dims[axes], codes->dims[axes] * 4);
    return true;
}

static int pair_mlx(struct pairing *p, const struct rfs_entry *entry)
{
    const struct rfs_quant_scheme *scheme = p->source->scheme;
    const char *plus = scheme->wide ? "qbiases" : "biases";
    const char *name = name_of(p, entry);
    const size_t stem = stem_of(name, ".weight");
    struct weight weight = begin_weight(p, entry, stem + 1);
    uint64_t dims[RFS_MAX_DIMS];

    if (stem == 0 || rfs_dtype_is_float_target((enum rfs_dtype)type_of(p, entry)->dtype))
        return 0;
    if (type_of(p, entry)->dtype != RFS_UINT32 || type_of(p, entry)->ndim < 2)
        return fail_type(p, entry);
    weight.scales = beside(p, name, weight.stem, "scales");
    weight.zeros = beside(p, name, weight.stem, plus);
    if (!weight.scales || !weight.zeros)
        return fail_missing(p, entry, weight.stem, weight.scales ? plus : "scales");
    if (!set_scale(p, &weight))
        return fail_type(p, weight.scales);
    const struct rfs_quant_module *said = rfs_quant_scheme_module(scheme, name, stem);
    if (!set_affine(p, &weight, said ? said->bits : scheme->bits,
                    said ? said->group_size : scheme->group_size, dims))
        return fail_shape(p, weight.scales, entry);
    consume_activations(p, &weight);
    return add_shaped(p, &weight, name, strlen(name), type_of(p, entry)->ndim, dims);
}

/* ---- blocks with the scales in them ---------------------------------------------------------- */

static int pair_blocks(struct pairing *p, const struct rfs_entry *entry)
{
    const struct rfs_type *type = type_of(p, entry);
    const enum rfs_dtype dtype = (enum rfs_dtype)type->dtype;
    struct weight weight = begin_weight(p, entry, 0);
    const char *name = name_of(p, entry);
    uint64_t dims[RFS_MAX_DIMS];

    if (type->kind != RFS_TENSOR || !rfs_dtype_is_block(dtype) || type->ndim == 0)
        return 0;
    memcpy(dims, type->dims, sizeof dims);
    uint64_t *cols = &dims[type->ndim - 1];
    weight.quant.block = (uint8_t)dtype;
    weight.quant.block_rows = 1;
    weight.quant.block_cols = rfs_dtype_packed(dtype);
    if (!rfs_mul_u64(*cols, weight.quant.block_cols, cols))
        *cols = UINT64_MAX; /* too large */
    return add_shaped(p, &weight, name, strlen(name), type->ndim, dims);
}

/* ---- contents that count --------------------------------------------------------------------- */

static int read_value(void *ctx, size_t i)
{
    const struct pairing *p = ctx;
    struct value *value = &p->values.data[i];
    const struct rfs_entry *entry = &p->index->entries[value->entry];
    struct rfs_reading reading;
    int rc = rfs_reading_begin(p->source->files, file_of(p, entry), &reading);

    if (rc < 0)
        return rc;
    rc = rfs_reading_pread(&reading, value->bytes, (size_t)type_of(p, entry)->bytes, entry->offset);
    const int ended = rfs_reading_end(&reading);
    return rc < 0 ? rc : ended;
}

/* Reads the shapes of weights in words, and the scales of whole weights. */
static int read_values(struct pairing *p)
{
    const struct rfs_index *index = p->index;

    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = type_of(p, entry);
        const bool shape = stem_of(name_of(p, entry), ".weight_shape") && type->ndim == 1 &&
                           type->dims[0] == 2 &&
                           (type->dtype == RFS_INT64 || type->dtype == RFS_INT32);
        const bool whole = (stem_of(name_of(p, entry), ".weight_global_scale") ||
                            stem_of(name_of(p, entry), ".weight_scale_2")) &&
                           type->dtype == RFS_FLOAT32 && is_scalar(type);
        if ((shape || whole) && !RFS_PUSH(&p->values, ((struct value){.entry = (uint32_t)i})))
            return rfs_fail_memory(p->err);
    }
    const int rc = rfs_pool_for(p->source->pool, p->values.n, read_value, p);
    return rc == 0 ? 0
                   : rfs_fail(p->err, rc, RFS_IN(p->source->scheme->path), NULL,
                              "the shapes of quantized weights cannot be read: %s", strerror(-rc));
}

/* ---- the index ------------------------------------------------------------------------------- */

/* Sets the strides of a tensor that is stored with its last two axes exchanged. */
static void set_strides(const struct pairing *p, const struct rfs_quant *quant,
                        const struct rfs_type *type, struct rfs_strided *strided)
{
    const uint64_t item = rfs_dtype_bytes(p->source->scheme->to);
    const uint32_t last = type->ndim - 1U;

    if (last == 2)
        strided->stride[0] = type->dims[2] * quant->cols * item;
    strided->stride[last - 1] = item;
    strided->stride[last] = quant->cols * item;
}

static struct rfs_index *allocate(const struct pairing *p)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    const size_t n = p->index->n;

    if (!index)
        return NULL;
    index->entries = malloc(n * sizeof *index->entries + 1);
    index->quantized = malloc(p->weights * sizeof *index->quantized + 1);
    index->strided = calloc(p->weights + 1, sizeof *index->strided);
    index->file_of = p->index->file_of ? malloc(n * sizeof *index->file_of + 1) : NULL;
    if (index->entries && index->quantized && index->strided &&
        (index->file_of || !p->index->file_of))
        return index;
    rfs_index_free(index);
    return NULL;
}

/* Appends entry I of the index that was there. */
static void append(const struct pairing *p, size_t i, struct rfs_index *to)
{
    const struct fate *fate = &p->fates[i];
    struct rfs_entry *entry = &to->entries[to->n];

    *entry = p->index->entries[i];
    if (to->file_of)
        to->file_of[to->n] = p->index->file_of[i];
    if (fate->quant != RFS_NO_ID) {
        const struct rfs_quant *quant = rfs_intern_bytes(p->source->quants, fate->quant, NULL);
        entry->name = fate->name;
        entry->type = fate->type;
        to->quantized[to->n_quantized++] = (struct rfs_quantized){(uint32_t)to->n, quant};
        if (fate->strided) {
            struct rfs_strided *strided = &to->strided[to->n_strided++];
            strided->entry = (uint32_t)to->n;
            set_strides(p, quant, type_of(p, entry), strided);
        }
    }
    to->n++;
}

static int make_index(const struct pairing *p, struct rfs_index **out)
{
    struct rfs_index *index = allocate(p);
    size_t first, second;

    if (!index)
        return rfs_fail_memory(p->err);
    for (size_t i = 0; i < p->index->n; i++)
        if (!p->fates[i].gone)
            append(p, i, index);
    index->file_bytes = p->index->file_bytes;
    index->has_crc = p->index->has_crc;
    index->redundancy_removed = p->index->redundancy_removed;
    const int rc = rfs_index_order_names(index, &first, &second);
    if (rc == 0) {
        *out = index;
        return 0;
    }
    const struct rfs_where where =
        rc > 0 ? RFS_OF(p->source->scheme->path,
                        rfs_intern_text(p->source->tables->names, index->entries[first].name))
               : RFS_NOWHERE;
    rfs_index_free(index);
    return rc < 0 ? rfs_fail_memory(p->err)
                  : rfs_fail(p->err, -EINVAL, where, REMEDY_SAVE,
                             "two quantized weights have that name");
}

/* Returns the part of weights that an entry is by its name, or NULL. */
static const struct part *part_of(const char *name, bool bytes)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if ((bytes || !parts[i].bytes) && stem_of(name, parts[i].tail))
            return &parts[i];
    return NULL;
}

bool rfs_quant_is_part(const char *name)
{
    return part_of(name, false) != NULL;
}

bool rfs_quant_weight_of(const char *name, size_t *stem, const char **tail)
{
    const struct part *part = part_of(name, false);

    *stem = part ? stem_of(name, part->tail) : 0;
    *tail = part ? part->weight : "";
    return part;
}

/* Refuses a part that no weight uses; that would be the STEM characters of its name, and TAIL. */
static int fail_unused(const struct pairing *p, const struct rfs_entry *entry, size_t stem,
                       const char *tail)
{
    return rfs_fail(p->err, -EINVAL, where_of(p, entry), REMEDY_SAVE,
                    "option dequantize: it is named as a part of a quantized '%.*s%s', and no such "
                    "weight uses it",
                    (int)stem, name_of(p, entry), tail);
}

/*
 * Says whether a tensor of fp8 named .scale, which others than weights have as well, is one of a
 * weight: it has the type or the axes of scales, or lies beside a weight with other scales.
 */
static bool is_scale(const struct pairing *p, const struct rfs_entry *entry, size_t stem)
{
    const struct rfs_entry *weight = beside(p, name_of(p, entry), stem, ".weight");
    const struct rfs_type *type = type_of(p, entry);

    return type->dtype == RFS_FLOAT8_E8M0 ||
           (p->source->scheme->block_rows > 0 && type->ndim == 2) ||
           (weight && fate_of(p, weight)->quant != RFS_NO_ID);
}

/* Returns the length of the name before what only the method's own parts have, or 0. */
static size_t own_part(const struct pairing *p, const struct rfs_entry *entry)
{
    const enum rfs_quant_method method = p->source->scheme->method;
    const char *name = name_of(p, entry);

    if (method == RFS_QUANT_GPTQ || method == RFS_QUANT_AWQ)
        return stem_of(name, ".scales");
    if (method == RFS_QUANT_MLX)
        return stem_of(name, ".scales") ?: stem_of(name, ".biases") ?: stem_of(name, ".qbiases");
    const size_t stem = method == RFS_QUANT_FP8 ? stem_of(name, ".scale") : 0;
    return stem && is_scale(p, entry, stem) ? stem : 0;
}

/* Refuses an entry that is shown as it is, if it is codes without scales, or the reverse. */
static int check_plain(const struct pairing *p, const struct rfs_entry *entry)
{
    const unsigned dtype = type_of(p, entry)->dtype;
    const char *name = name_of(p, entry);
    const struct part *part = part_of(name, dtype == RFS_UINT8);
    const size_t stem = part ? stem_of(name, part->tail) : own_part(p, entry);

    if (part && !(part->activation && beside(p, name, stem, part->weight)))
        return fail_unused(p, entry, stem, part->weight);
    if (!part && stem)
        return fail_unused(p, entry, stem, ".weight");
    if (dtype == RFS_FLOAT8_E8M0)
        return rfs_fail(p->err, -EINVAL, where_of(p, entry), NOT_READ,
                        "option dequantize: it is %s, as scales are, and no quantized weight uses "
                        "it",
                        rfs_dtype_name((enum rfs_dtype)dtype));
    if (dtype == RFS_FLOAT8_E4M3FN || dtype == RFS_FLOAT8_E5M2)
        return rfs_fail(p->err, -EINVAL, where_of(p, entry), NOT_READ,
                        "option dequantize: it is %s, and by its name it has no scales that %s "
                        "tells of",
                        rfs_dtype_name((enum rfs_dtype)dtype), p->source->scheme->path);
    return 0;
}

/* Checks all that no weight has taken. Blocks leave nothing to names. */
static int check_rest(const struct pairing *p)
{
    const bool named = p->source->scheme->method != RFS_QUANT_BLOCKS;
    int rc = 0;

    for (size_t i = 0; named && rc == 0 && i < p->index->n; i++)
        if (!p->fates[i].gone && p->fates[i].quant == RFS_NO_ID)
            rc = check_plain(p, &p->index->entries[i]);
    return rc;
}

int rfs_quant_pair(const struct rfs_quant_source *source, const struct rfs_index *index,
                   struct rfs_index **out, struct rfs_error *err)
{
    static int (*const pair[])(struct pairing *, const struct rfs_entry *) = {
        [RFS_QUANT_FP8] = pair_fp8,
        [RFS_QUANT_MODELOPT] = pair_modelopt,
        [RFS_QUANT_COMPRESSED] = pair_compressed,
        [RFS_QUANT_MXFP4] = pair_mxfp4,
        [RFS_QUANT_GPTQ] = pair_gptq,
        [RFS_QUANT_AWQ] = pair_awq,
        [RFS_QUANT_MLX] = pair_mlx,
        [RFS_QUANT_BLOCKS] = pair_blocks};
    RFS_CLEANUP(pairing_end) struct pairing p = {.source = source, .index = index, .err = err};
    int rc = 0;

    *out = NULL;
    p.fates = calloc(index->n + 1, sizeof *p.fates);
    if (!p.fates || !make_room(&p))
        return rfs_fail_memory(err);
    for (size_t i = 0; i < index->n; i++)
        p.fates[i].quant = RFS_NO_ID;
    if (source->scheme->method != RFS_QUANT_BLOCKS)
        rc = read_values(&p);
    for (size_t i = 0; rc == 0 && i < index->n; i++)
        rc = pair[source->scheme->method](&p, &index->entries[i]);
    return rc ?: check_rest(&p) ?: make_index(&p, out);
}
