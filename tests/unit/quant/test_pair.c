/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with quantized weights: what they show, and what is refused. */
#include "base/options.h"
#include "catalog/catalog.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof *(a))
#define FP8(block)                                                                                 \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":" block "}}"
#define GROUP(weights) "{\"weights\":{" weights "}}"
#define CT(groups)                                                                                 \
    "{\"compression_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{" groups  \
    "}}}"
#define WEIGHTS "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32"
#define INT4                                                                                       \
    "\"a\":" GROUP("\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32")
#define MODELOPT(algo)                                                                             \
    "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"" algo "\"}}"
#define SIZES(of, more) "{\"quantization_config\":{" of "\"bits\":4,\"group_size\":8" more "}}"
#define GPTQ(more) SIZES("\"quant_method\":\"gptq\",", more)
#define AWQ(more) SIZES("\"quant_method\":\"awq\",", more)
#define MLX(more) "{\"quantization\":{\"bits\":4,\"group_size\":32" more "}}"
#define MXFP4 "{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"

/* A tensor: its name, dtype, shape as text, and bytes, which are all B where DATA is NULL. */
struct tensor {
    const char *name, *dtype, *shape;
    size_t bytes;
    const void *data;
    unsigned char b;
};

static void put_file(const char *root, const char *name, const struct tensor *tensors, size_t n)
{
    struct bytes file = {0};
    char *header = NULL;
    size_t length = 0;
    size_t at = 0;
    FILE *out = open_memstream(&header, &length);

    for (size_t i = 0; i < n; at += tensors[i++].bytes)
        fprintf(out, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                i ? ',' : '{', tensors[i].name, tensors[i].dtype, tensors[i].shape, at,
                at + tensors[i].bytes);
    fputc('}', out);
    fclose(out);
    const uint64_t size = length;
    bytes_add(&file, &size, sizeof size);
    bytes_add(&file, header, length);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tensors[i].bytes; k++)
            bytes_add(&file,
                      tensors[i].data ? (const unsigned char *)tensors[i].data + k : &tensors[i].b,
                      1);
    tree_write(root, name, file.data, file.n);
    bytes_free(&file);
    free(header);
}

/* A folder that is open, or not: then ERR says why. */
struct opened {
    char *root;
    struct rfs_catalog *catalog;
    const struct rfs_index *index;
    struct rfs_error err;
    int rc;
};

static struct opened open_folder(const char *config, const struct tensor *tensors, size_t n,
                                 bool wide)
{
    struct opened o = {.root = tree_new()};

    if (config)
        tree_write(o.root, "config.json", config, strlen(config));
    put_file(o.root, "model.safetensors", tensors, n);
    struct rfs_options options = rfs_options_defaults;
    options.dequantize = true;
    const struct rfs_source_spec spec = {.path = o.root, .options = &options, .wide = wide};
    o.rc = rfs_catalog_open(&spec, NULL, NULL, &o.catalog, &o.err);
    if (o.rc == 0)
        o.rc = rfs_catalog_index(o.catalog, 0, RFS_NO_RANK, &o.index, &o.err);
    return o;
}

static void end(struct opened *o)
{
    rfs_catalog_close(o->catalog);
    tree_remove(o->root);
}

/* What is wrong with a folder. */
struct wrong {
    const char *config;
    struct tensor tensors[5];
    const char *said;
    int code;
};

#define F8(name, shape, n)                                                                         \
    {                                                                                              \
        name, "F8_E4M3", shape, n, NULL, 0x38                                                      \
    }
#define U8(name, shape, n)                                                                         \
    {                                                                                              \
        name, "U8", shape, n, NULL, 0x38                                                           \
    }
#define F32(name, shape, n)                                                                        \
    {                                                                                              \
        name, "F32", shape, n, NULL, 0                                                             \
    }
#define PACKED(rows)                                                                               \
    {                                                                                              \
        "m.weight_packed", "I32", "[" rows ",8]", 128, NULL, 0                                     \
    }
#define SCALE                                                                                      \
    {                                                                                              \
        "m.weight_scale", "BF16", "[4,2]", 16, NULL, 0                                             \
    }

static const int64_t shape_good[] = {4, 64}, shape_rows[] = {5, 64}, shape_negative[] = {4, -64};
static const int64_t shape_zero[] = {4, 0}, shape_huge[] = {4, INT64_C(1) << 62};
static const int64_t shape_large[] = {4, INT64_C(1) << 40}, shape_less[] = {4, 63};
#define SHAPE(data)                                                                                \
    {                                                                                              \
        "m.weight_shape", "I64", "[2]", 16, data, 0                                                \
    }

#define QWEIGHT                                                                                    \
    {                                                                                              \
        "a.qweight", "I32", "[1,2]", 8, NULL, 0                                                    \
    }
#define SCALES(shape, n)                                                                           \
    {                                                                                              \
        "a.scales", "F16", shape, n, NULL, 0                                                       \
    }
#define BIASES(shape, n)                                                                           \
    {                                                                                              \
        "a.biases", "F16", shape, n, NULL, 0                                                       \
    }
#define QZEROS(shape, n)                                                                           \
    {                                                                                              \
        "a.qzeros", "I32", shape, n, NULL, 0                                                       \
    }
#define G_IDX(shape, n)                                                                            \
    {                                                                                              \
        "a.g_idx", "I32", shape, n, NULL, 0                                                        \
    }
#define U32                                                                                        \
    {                                                                                              \
        "a.weight", "U32", "[2,4]", 32, NULL, 0                                                    \
    }

#define UNUSED(weight) "a part of a quantized '" weight "', and no such weight uses it"

static const struct wrong wrongs[] = {
    {NULL, {F8("a.weight", "[2,2]", 4)}, "needs the model's config.json", -ENOENT},
    {"{}", {F8("a.weight", "[2,2]", 4)}, "no quantization_config", -EINVAL},
    {"{", {F8("a.weight", "[2,2]", 4)}, "config.json", -EINVAL},
    {GPTQ(""), {F8("a.weight", "[2,2]", 4)}, "has no scales", -EINVAL},
    {GPTQ(",\"checkpoint_format\":\"marlin\""),
     {QWEIGHT},
     "checkpoint_format 'marlin' is not read; try: without dequantize; GPTQModel can",
     -ENOTSUP},
    {GPTQ(",\"pack_dtype\":\"int16\""), {QWEIGHT}, "pack_dtype 'int16' is not read", -ENOTSUP},
    {GPTQ(""), {QWEIGHT, QZEROS("[1,1]", 4), G_IDX("[8]", 32)}, "'a.scales', which", -EINVAL},
    {GPTQ(""), {QWEIGHT, SCALES("[1,2]", 4), G_IDX("[8]", 32)}, "'a.qzeros', which", -EINVAL},
    {GPTQ(""), {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,1]", 4)}, "'a.g_idx', which", -EINVAL},
    {GPTQ(""),
     {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,1]", 4), G_IDX("[9]", 36)},
     "'a.scales': is Float16 [1, 2], which does not fit 'a.qweight'",
     -EINVAL},
    {GPTQ(""),
     {QWEIGHT, SCALES("[2,2]", 8), QZEROS("[2,1]", 8), G_IDX("[8]", 32)},
     "which does not fit",
     -EINVAL},
    {GPTQ(""),
     {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,2]", 8), G_IDX("[8]", 32)},
     "which does not fit",
     -EINVAL},
    {GPTQ(""),
     {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,1]", 4), F32("a.g_idx", "[8]", 32)},
     "'a.g_idx': is Float32 [8], which does not fit",
     -EINVAL},
    {GPTQ(""),
     {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,1]", 4), G_IDX("[8]", 32), F32("a.weight", "[1]", 4)},
     "the plain 'a.weight' is there, too",
     -EINVAL},
    {GPTQ(""), {SCALES("[1,2]", 4)}, UNUSED("a.weight"), -EINVAL},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":8}}",
     {QWEIGHT},
     "weights of 3 bits are not read",
     -ENOTSUP},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"group_size\":8}}",
     {QWEIGHT},
     "'bits' is no number of bits",
     -EINVAL},
    {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}}",
     {QWEIGHT},
     "'group_size' is no whole number",
     -EINVAL},
    {AWQ(",\"version\":\"gemv\""), {QWEIGHT}, "version 'gemv' is not read", -ENOTSUP},
    {AWQ(",\"zero_point\":false"), {QWEIGHT}, "zero_point 'false' is not read", -ENOTSUP},
    {AWQ(""), {QWEIGHT, SCALES("[1,16]", 32)}, "'a.qzeros', which belongs to it", -EINVAL},
    {AWQ(""),
     {{"a.qweight", "I32", "[9,2]", 72, NULL, 0}, SCALES("[2,16]", 64), QZEROS("[2,2]", 16)},
     "which does not fit 'a.qweight'",
     -EINVAL},
    {AWQ(""),
     {{"a.qweight", "I32", "[8,2]", 64, NULL, 0}, SCALES("[1,15]", 30), QZEROS("[1,2]", 8)},
     "which does not fit 'a.qweight'",
     -EINVAL},
    {MLX(""), {U32, SCALES("[2,1]", 4)}, "'a.biases', which belongs to it, is missing", -EINVAL},
    {MLX(""), {U32, BIASES("[2,1]", 4)}, "'a.scales', which belongs to it, is missing", -EINVAL},
    {MLX(""), {SCALES("[2,1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {MLX(""), {BIASES("[2,1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {MLX(""), {U32, SCALES("[2,2]", 8), BIASES("[2,2]", 8)}, "which does not fit", -EINVAL},
    {MLX(""), {U32, SCALES("[2,1]", 4), BIASES("[1,1]", 2)}, "which does not fit", -EINVAL},
    {MLX(""), {U32, SCALES("[2,1]", 4), F32("a.biases", "[2,1]", 8)}, "does not fit", -EINVAL},
    {MLX(",\"a\":{\"bits\":8,\"group_size\":32}"),
     {U32, SCALES("[2,1]", 4), BIASES("[2,1]", 4)},
     "which does not fit",
     -EINVAL},
    {MLX(",\"b\":{\"bits\":5,\"group_size\":32}"), {U32}, "weights of 5 bits", -ENOTSUP},
    {MLX(",\"mode\":\"mxfp4\""),
     {U32},
     "mode 'mxfp4' is not read; try: without dequantize; mlx_lm.convert --dequantize can",
     -ENOTSUP},
    {MODELOPT("NVFP4_SVD"), {F8("a.weight", "[2,2]", 4)}, "'NVFP4_SVD' is not read", -ENOTSUP},
    {MODELOPT("MIXED_PRECISION"), {F8("a.weight", "[2,2]", 4)}, "'quantized_layers'", -EINVAL},
    {"{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":"
     "\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":\"FP8\"},"
     "\"b\":{\"quant_algo\":\"W4A8_AWQ\"}}}}",
     {F8("a.weight", "[2,2]", 4)},
     "'W4A8_AWQ' is not read; try: without dequantize; nvidia-modelopt can",
     -ENOTSUP},
    {MODELOPT("FP8"),
     {F8("a.weight", "[2,2]", 4)},
     "'a.weight_scale', which belongs to it, is missing",
     -EINVAL},
    {MODELOPT("FP8"),
     {F8("a.weight", "[2,2]", 4), F32("a.weight_scale", "[3]", 12)},
     "'a.weight_scale': is Float32 [3], which does not fit",
     -EINVAL},
    {MODELOPT("NVFP4"),
     {U8("a.weight", "[2,8]", 16), F8("a.weight_scale", "[2,1]", 2)},
     "it is quantized as UInt8",
     -ENOTSUP},
    {MODELOPT("NVFP4"),
     {U8("a.weight", "[2,8]", 16), F32("a.weight_scale_2", "[]", 4)},
     "'a.weight_scale', which belongs to it, is missing",
     -EINVAL},
    {MODELOPT("NVFP4"),
     {U8("a.weight", "[2,8]", 16), F8("a.weight_scale", "[2,2]", 4),
      F32("a.weight_scale_2", "[]", 4)},
     "does not fit 'a.weight'",
     -EINVAL},
    {MODELOPT("NVFP4"),
     {U8("a.weight", "[2,8]", 16), F8("a.weight_scale", "[2,1]", 2),
      F32("a.weight_scale_2", "[2]", 8)},
     "'a.weight_scale_2': is Float32 [2], which does not fit",
     -EINVAL},
    {MODELOPT("NVFP4"),
     {U8("e.gate_up_proj", "[1,2,8]", 16), F8("e.gate_up_proj_weight_scale", "[1,2,1]", 2)},
     UNUSED("e.gate_up_proj"),
     -EINVAL},
    {MODELOPT("FP8"),
     {F8("a.weight", "[2,2]", 4), F32("a.weight_scale", "[]", 4),
      F32("a.pre_quant_scale", "[2]", 8)},
     UNUSED("a.weight"),
     -EINVAL},
    {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}",
     {F8("a.weight", "[2,2]", 4)},
     "fmt 'e5m2' is not read",
     -ENOTSUP},
    {"{\"quantization_config\":{}}",
     {F8("a.weight", "[2,2]", 4)},
     "'quant_method' is missing",
     -EINVAL},
    {FP8("[0,2]"), {F8("a.weight", "[2,2]", 4)}, "no whole number from 1 to 2^31", -EINVAL},
    {FP8("[2,4294967296]"),
     {F8("a.weight", "[2,2]", 4)},
     "no whole number from 1 to 2^31",
     -EINVAL},
    {FP8("[2.5,2]"), {F8("a.weight", "[2,2]", 4)}, "no whole number from 1 to 2^31", -EINVAL},
    {FP8("[2]"), {F8("a.weight", "[2,2]", 4)}, "is no list of two numbers", -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[2,2]", 4)},
     "'a.weight_scale_inv', which belongs to it, is "
     "missing",
     -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[3,2]", 6), F32("a.weight_scale_inv", "[1,1]", 4)},
     "which does not fit 'a.weight'",
     -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[4,2]", 8), F32("a.weight_scale_inv", "[2]", 8)},
     "which does not fit 'a.weight'",
     -EINVAL},
    {FP8("null"),
     {F8("a.weight", "[4,2]", 8), F32("a.weight_scale_inv", "[2,1]", 8)},
     "which does not fit 'a.weight'",
     -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[2,2,2]", 8), F32("a.weight_scale_inv", "[2,1,1]", 8)},
     "which is not read here",
     -ENOTSUP},
    {FP8("[2,2]"),
     {F8("a.weight", "[2,2]", 4), {"a.weight_scale_inv", "F64", "[1,1]", 8, NULL, 0}},
     "quantized as Float64",
     -ENOTSUP},
    {FP8("[2,2]"),
     {F32("a.weight_scale_inv", "[1,1]", 4), {"a.weight", "I32", "[2,2]", 16, NULL, 0}},
     "quantized as Int32",
     -ENOTSUP},
    {FP8("[2,2]"), {F8("experts.gate_up_proj", "[2,2,2]", 8)}, "has no scales", -EINVAL},
    {FP8("[2,2]"),
     {{"b", "F8_E5M2", "[2]", 2, NULL, 0}, F32("w", "[1]", 4)},
     "has no scales",
     -EINVAL},
    {CT(INT4),
     {PACKED("4"), SCALE, SHAPE(shape_rows)},
     "says [5, 64], which does not fit",
     -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE, SHAPE(shape_negative)}, "says [4, -64]", -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE, SHAPE(shape_zero)}, "which does not fit", -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE, SHAPE(shape_huge)}, "which does not fit", -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE, SHAPE(shape_large)}, "which does not fit", -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE, SHAPE(shape_less)}, "which does not fit", -EINVAL},
    {CT(INT4), {PACKED("4"), SCALE}, "'m.weight_shape', which belongs to it, is missing", -EINVAL},
    {CT(INT4), {PACKED("4"), SHAPE(shape_good)}, "'m.weight_scale', which belongs to it", -EINVAL},
    {CT(INT4),
     {PACKED("4"), SCALE, SHAPE(shape_good), F32("m.weight", "[1]", 4)},
     "the plain 'm.weight' is there, too",
     -EINVAL},
    {CT(INT4),
     {PACKED("4"), SCALE, SHAPE(shape_good), {"m.weight_g_idx", "I32", "[2]", 8, NULL, 0}},
     "g_idx",
     -ENOTSUP},
    {CT(INT4),
     {PACKED("4"), SCALE, SHAPE(shape_good), {"m.weight_zero_point", "I32", "[1,2]", 8, NULL, 0}},
     "which does not fit",
     -EINVAL},
    {CT("\"a\":" GROUP("\"num_bits\":4,\"symmetric\":false,\"group_size\":32")),
     {PACKED("4"), SCALE, SHAPE(shape_good)},
     "'m.weight_zero_point', which belongs to it",
     -EINVAL},
    {CT("\"a\":" GROUP("\"num_bits\":3,\"group_size\":32")),
     {PACKED("4")},
     "weights of 3 bits are not read",
     -ENOTSUP},
    {CT("\"a\":" GROUP("\"num_bits\":4,\"group_size\":32,\"actorder\":\"group\"")),
     {PACKED("4")},
     "actorder 'group' is not read",
     -ENOTSUP},
    {"{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}}",
     {PACKED("4")},
     "format 'marlin-24' is not read",
     -ENOTSUP},
    {MXFP4,
     {{"p_blocks", "U8", "[2,3,1,16]", 96, NULL, 0}},
     "'p_scales', which belongs to it",
     -EINVAL},
    {MXFP4,
     {{"p_blocks", "U8", "[2,3,1,16]", 96, NULL, 0}, {"p_scales", "U8", "[2,2,1]", 4, NULL, 0}},
     "which does not fit 'p_blocks'",
     -EINVAL},
    {MXFP4,
     {{"p_blocks", "U8", "[2,3,1,16]", 96, NULL, 0},
      {"p_scales", "U8", "[2,3,1]", 6, NULL, 0},
      F32("p", "[1]", 4)},
     "the plain 'p' is there, too",
     -EINVAL},
    /* Parts without their weight, or beside one that is plain or has others. */
    {FP8("[2,2]"), {F32("a.weight_scale_inv", "[1,1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {FP8("[2,2]"),
     {F32("a.weight", "[2,2]", 16), F32("a.weight_scale_inv", "[1,1]", 4)},
     UNUSED("a.weight"),
     -EINVAL},
    {FP8("[2,2]"),
     {F32("experts.up_proj_scale_inv", "[2,1,1]", 8)},
     UNUSED("experts.up_proj"),
     -EINVAL},
    {FP8("[2,2]"), {F32("a.scale", "[1,1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {FP8("[2,2]"), {{"a.scale", "F8_E8M0", "[1]", 1, NULL, 127}}, UNUSED("a.weight"), -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[2,2]", 4), F32("a.weight_scale_inv", "[1,1]", 4), F32("a.scale", "[1]", 4)},
     UNUSED("a.weight"),
     -EINVAL},
    {FP8("[2,2]"),
     {F8("a.weight", "[2,2]", 4), F32("a.weight_scale_inv", "[1,1]", 4),
      F32("a.weight_scale", "[1]", 4)},
     UNUSED("a.weight"),
     -EINVAL},
    {FP8("[2,2]"), {F32("a.activation_scale", "[1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {FP8("[2,2]"), {F32("a.qscale_weight", "[1]", 4)}, UNUSED("a.weight"), -EINVAL},
    {FP8("[2,2]"),
     {{"b", "F8_E8M0", "[2]", 2, NULL, 0}},
     "it is Float8E8M0FNU, as scales are, and no quantized weight uses it",
     -EINVAL},
    {FP8("[2,2]"), {PACKED("4")}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {SCALE, F32("m.weight", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {SCALE}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {SHAPE(shape_good)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {F32("m.weight_zero_point", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {F32("m.weight_global_scale", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {F32("m.weight_g_idx", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {F32("m.input_global_scale", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4), {F32("m.output_zero_point", "[1]", 4)}, UNUSED("m.weight"), -EINVAL},
    {CT(INT4),
     {PACKED("4"), SCALE, SHAPE(shape_good), F32("m.weight_global_scale", "[1]", 4)},
     UNUSED("m.weight"),
     -EINVAL},
    {MXFP4, {{"p_scales", "U8", "[2,3,1]", 6, NULL, 0}}, UNUSED("p"), -EINVAL},
    /* Zero points that may be lost: by one of the groups there are some. */
    {CT(INT4 ",\"b\":" GROUP("\"num_bits\":4,\"type\":\"int\",\"symmetric\":false,\"strategy\":"
                             "\"group\",\"group_size\":32")),
     {PACKED("4"), SCALE, SHAPE(shape_good)},
     "is quantized as two of the config_groups",
     -EINVAL},
    {CT("\"a\":" GROUP(
         "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16")),
     {{"m.weight_packed", "U8", "[4,8]", 32, NULL, 0},
      F8("m.weight_scale", "[4,1]", 4),
      F32("m.weight_global_scale", "[1]", 4),
      F8("m.weight_zero_point", "[4,1]", 4)},
     "which does not fit 'm.weight_packed'",
     -EINVAL},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrongs); i++) {
        size_t n = 0;
        while (n < ARRAY_SIZE(wrongs[i].tensors) && wrongs[i].tensors[n].name)
            n++;
        struct opened o = open_folder(wrongs[i].config, wrongs[i].tensors, n, false);
        if (o.rc != wrongs[i].code || !strstr(o.err.text, wrongs[i].said))
            fail_msg("%zu: %d, %s; not %s", i, o.rc, o.err.text, wrongs[i].said);
        end(&o);
    }
}

/*
 * Names that are parts of weights elsewhere: other types, a plain weight with activations, norms.
 */
static void test_legal_names(void **state)
{
    static const struct {
        const char *config;
        struct tensor tensors[5];
        size_t shown;
    } legal[] = {
        {FP8("[2,2]"),
         {F32("q_l2_clip.scale", "[1]", 4), F32("norm.scale", "[8]", 32),
          F32("hc_attn_scale", "[3]", 12), F32("attn.k_scale", "[1]", 4)},
         4},
        {FP8("null"), {F32("softmax_scaling.scale", "[2,2]", 16)}, 1},
        {FP8("[2,2]"), {F32("a.weight", "[1]", 4), F32("a.activation_scale", "[1]", 4)}, 2},
        {CT(INT4),
         {F32("m.weight", "[1]", 4), F32("m.input_scale", "[1]", 4),
          F32("m.output_scale", "[1]", 4), F32("m.scale", "[2,2]", 16)},
         4},
        {CT(INT4),
         {PACKED("4"), SCALE, SHAPE(shape_good), F32("m.output_scale", "[1]", 4),
          F32("attn.k_scale", "[1]", 4)},
         1},
        {MXFP4, {F32("loss_scales", "[2]", 8), F32("res_blocks", "[2]", 8)}, 2},
        {GPTQ(""),
         {QWEIGHT, SCALES("[1,2]", 4), QZEROS("[1,1]", 4), G_IDX("[8]", 32),
          F32("a.bias", "[2]", 8)},
         2},
        {AWQ(""),
         {{"a.qweight", "I32", "[16,2]", 128, NULL, 0}, SCALES("[2,16]", 64), QZEROS("[2,2]", 16)},
         1},
        {MLX(""), {U32, SCALES("[2,1]", 4), BIASES("[2,1]", 4), F32("b.weight", "[1]", 4)}, 2},
        {MLX(",\"a\":{\"bits\":8,\"group_size\":16}"),
         {U32, SCALES("[2,1]", 4), BIASES("[2,1]", 4)},
         1},
        {"{\"quantization_config\":{\"quant_method\":\"metal\",\"bits\":4,\"group_size\":32}}",
         {U32, SCALES("[2,1]", 4), {"a.qbiases", "F16", "[2,1]", 4, NULL, 0}},
         1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(legal); i++) {
        size_t n = 0;
        while (n < ARRAY_SIZE(legal[i].tensors) && legal[i].tensors[n].name)
            n++;
        struct opened o = open_folder(legal[i].config, legal[i].tensors, n, false);
        if (o.rc || o.index->n != legal[i].shown)
            fail_msg("%zu: %d, %s", i, o.rc, o.rc ? o.err.text : "");
        end(&o);
    }
}

/*
 * Groups that differ in symmetric alone: weights without zero points are one's, or have lost them.
 */
static void test_targets(void **state)
{
    enum { EVEN, LOST, EITHER };
    static const struct {
        const char *even, *odd; /* the targets of the symmetric group, and of the other */
        const char *module;
        unsigned want;
    } cases[] = {
        /* a name, a pattern, a class */
        {"\"Linear\"", "\"re:.*down_proj\"", "m.0.q_proj", EVEN},
        {"\"Linear\"", "\"re:.*down_proj\"", "m.0.down_proj", LOST},
        {"\"re:.*q_proj$\"", "\"Linear\"", "m.0.q_proj", EVEN},
        {"\"re:.*q_proj$\"", "\"Linear\"", "m.0.q_projs", LOST},
        {"\"re:.*q_proj\"", "\"Linear\"", "m.0.q_projs", EVEN},
        {"\"re:.*q_proj\"", "\"m.0.q_proj\"", "m.0.q_proj", LOST},
        {"\"m.0.q_proj\"", "\"re:.*q_proj\"", "m.0.q_proj", EVEN},
        {"\"a\",\"m.0.q_proj\",\"Linear\"", "\"re:.*q_proj\"", "m.0.q_proj", EVEN},
        {"\"Linear\"", "\"lm_head\"", "m.0.q_proj", EVEN},
        {"\"Linear\"", "\"lm_head\"", "lm_head", LOST},
        {"\"Linear\"", "\"m.1.q_proj\"", "m.0.q_proj", EVEN},
        /* patterns */
        {"\"re:.*[.](q|k|v)_proj\"", "\"re:.*mlp.*\"", "m.0.attn.k_proj", EVEN},
        {"\"re:.*[.](q|k|v)_proj\"", "\"re:.*mlp.*\"", "m.0.mlp.up", LOST},
        {"\"re:.*\\\\.(?:up|(gate|do(wn))_)$\"", "\"Linear\"", "m.down_", EVEN},
        {"\"re:.*\\\\.(?:up|(gate|do(wn))_)$\"", "\"Linear\"", "m.dowm_", LOST},
        {"\"re:m\\\\.\\\\d+\\\\.x?q[_a-c]*proj\"", "\"Linear\"", "m.12.q_caproj", EVEN},
        {"\"re:.*layers[.][^02-9][.].*\"", "\"Linear\"", "layers.1.q", EVEN},
        {"\"re:.*layers[.][^02-9][.].*\"", "\"Linear\"", "layers.3.q", LOST},
        {"\"re:.*(|z)q$|x\"", "\"Linear\"", "a.q", EVEN},
        {"\"re:q_proj\"", "\"re:.*q_proj\"", "q_proj", EITHER},
        /* what may name it, if the program adds to its name, or is not read */
        {"\"Linear\"", "\"re:model[.]0[.].*\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*x|m[.]1.*\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*text[.].*q_proj\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"model.m.0.q_proj\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*(?!q)_proj\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*(a)*x\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*a{2}\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*\\\\wx\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*(x\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"re:.*[x\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"Linear\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "\"Embedding\"", "m.0.q_proj", EITHER},
        {"\"Linear\"", "", "m.0.q_proj", EITHER},
        {"\"Linear\"", "1", "m.0.q_proj", EITHER},
        {"\"re:.*a\"", "\"re:.*b\"", "m.0.q_proj", EITHER},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char config[1024], names[3][64];
        const char *const tails[] = {"packed", "scale", "shape"};
        snprintf(config, sizeof config,
                 CT("\"a\":{\"targets\":[%s],\"weights\":{" WEIGHTS ",\"symmetric\":true}},"
                    "\"b\":{\"targets\":[%s],\"weights\":{" WEIGHTS ",\"symmetric\":false}}"),
                 cases[i].even, cases[i].odd);
        struct tensor tensors[] = {PACKED("4"), SCALE, SHAPE(shape_good)};
        for (size_t k = 0; k < 3; k++) {
            snprintf(names[k], sizeof names[k], "%s.weight_%s", cases[i].module, tails[k]);
            tensors[k].name = names[k];
        }
        struct opened o = open_folder(config, tensors, 3, false);
        const char *said = cases[i].want == LOST ? "weight_zero_point', which belongs to it"
                                                 : "is quantized as two of the config_groups";
        if (cases[i].want == EVEN ? o.rc != 0 : o.rc != -EINVAL || !strstr(o.err.text, said))
            fail_msg("%zu: %d, %s", i, o.rc, o.rc ? o.err.text : "");
        end(&o);
    }
}

static const struct rfs_entry *find(const struct opened *o, const char *name)
{
    struct rfs_tables *tables = rfs_catalog_tables(o->catalog);
    const uint32_t id = rfs_intern_find(tables->names, name, strlen(name));

    return id == RFS_NO_ID ? NULL : rfs_index_find(o->index, id);
}

static void read_at(const struct opened *o, const char *name, void *buf, size_t n, uint64_t at)
{
    const struct rfs_entry *entry = find(o, name);
    struct rfs_quant_scales scales = {0};
    struct rfs_reading reading;

    assert_non_null(entry);
    const struct rfs_content content = rfs_catalog_content_of(o->index, entry);
    assert_int_equal(rfs_reading_begin(rfs_catalog_files(o->catalog), 0, &reading), 0);
    assert_int_equal(rfs_catalog_content_pread(&reading, &content, &scales, buf, n, at), 0);
    rfs_quant_scales_end(&scales);
    assert_int_equal(rfs_reading_end(&reading), 0);
}

/*
 * Blocks of 2 x 3 over 5 x 7: every range is that of the whole, and scales are those of its blocks.
 */
static void test_ragged_blocks(void **state)
{
    float scales[9];
    struct tensor tensors[] = {F8("a.weight", "[5,7]", 35),
                               {"a.weight_scale_inv", "F32", "[3,3]", 36, scales, 0},
                               F32("a.bias", "[1]", 4)};
    unsigned char whole[5 * 7 * 4];
    unsigned char part[sizeof whole];

    (void)state;
    for (unsigned i = 0; i < 9; i++)
        scales[i] = (float)(i + 1);
    for (unsigned wide = 0; wide < 2; wide++) {
        struct opened o = open_folder(FP8("[2,3]"), tensors, ARRAY_SIZE(tensors), wide);
        const size_t item = wide ? 4 : 2;
        assert_int_equal(o.rc, 0);
        assert_int_equal(o.index->n, 2);
        assert_non_null(find(&o, "a.bias"));
        assert_null(find(&o, "a.weight_scale_inv"));
        read_at(&o, "a.weight", whole, 35 * item, 0);
        for (unsigned i = 0; i < 35; i++) {
            uint32_t bits = 0;
            float value;
            memcpy((unsigned char *)&bits + 4 - item, whole + i * item, item);
            memcpy(&value, &bits, sizeof value);
            assert_true(value == scales[i / 7 / 2 * 3 + i % 7 / 3]);
        }
        for (size_t at = 0; at < 35 * item; at++)
            for (size_t n = 1; at + n <= 35 * item; n++) {
                read_at(&o, "a.weight", part, n, at);
                assert_memory_equal(part, whole + at, n);
            }
        end(&o);
    }
}

/* Blocks of gpt-oss are shown with their last two axes exchanged. */
static void test_transposed(void **state)
{
    const struct tensor tensors[] = {{"p_blocks", "U8", "[2,3,1,16]", 96, NULL, 0x42},
                                     {"p_scales", "U8", "[2,3,1]", 6, NULL, 127}};
    struct opened o = open_folder(MXFP4, tensors, ARRAY_SIZE(tensors), false);
    uint16_t numbers[2 * 3 * 32];

    (void)state;
    assert_int_equal(o.rc, 0);
    assert_int_equal(o.index->n, 1);
    const struct rfs_entry *entry = find(&o, "p");
    assert_non_null(entry);
    const struct rfs_type *type = rfs_catalog_type(o.catalog, entry->type);
    assert_int_equal(type->ndim, 3);
    assert_int_equal(type->dims[1], 32);
    assert_int_equal(type->dims[2], 3);
    const uint64_t *strides = rfs_index_strides(o.index, entry);
    assert_non_null(strides);
    assert_int_equal(strides[0], 2 * 3 * 32);
    assert_int_equal(strides[1], 2);
    assert_int_equal(strides[2], 2 * 32);
    read_at(&o, "p", numbers, sizeof numbers, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++)
        assert_int_equal(numbers[i], i % 2 ? 0x4000 : 0x3f80); /* 2 and 1 */
    end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_legal_names),
        cmocka_unit_test(test_targets),    cmocka_unit_test(test_ragged_blocks),
        cmocka_unit_test(test_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
