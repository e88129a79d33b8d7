/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a HuggingFace config.json that says how the weights are quantized. */
#pragma once

#include "base/error.h"
#include "base/vec.h"
#include "formats/dtype.h"
#include "quant/targets.h"

struct rfs_store;

/* The programs that quantize, as quant_method names them. */
enum rfs_quant_method {
    RFS_QUANT_FP8,
    RFS_QUANT_MODELOPT,
    RFS_QUANT_COMPRESSED,
    RFS_QUANT_MXFP4,
    RFS_QUANT_GPTQ,
    RFS_QUANT_AWQ,
    RFS_QUANT_MLX,    /* also transformers' quant_method metal */
    RFS_QUANT_BLOCKS, /* no config, but the dtypes of the tensors */
};

enum rfs_quant_strategy {
    RFS_QUANT_BY_TENSOR,
    RFS_QUANT_BY_CHANNEL,
    RFS_QUANT_BY_GROUP, /* also tensor_group */
    RFS_QUANT_BY_BLOCK,
};

/* How some of the weights are quantized: a config group of compressed-tensors. */
struct rfs_quant_group {
    uint32_t bits;
    bool is_float;
    bool symmetric;
    enum rfs_quant_strategy strategy;
    uint64_t group_size;             /* by group */
    uint64_t block_rows, block_cols; /* by block */
    struct rfs_quant_targets targets;
};

/* How the weight of one module is quantized, where the config says so. */
struct rfs_quant_module {
    char *name; /* owned */
    uint32_t bits;
    uint64_t group_size;
};

#define RFS_QUANT_GROUPS 16
struct rfs_quant_scheme {
    char *path;   /* the file that says it, or that of BLOCKS, for messages; owned */
    char *config; /* the model's config.json; owned; NULL: it has none */
    enum rfs_quant_method method;
    /* fp8: the size of blocks; 0: there is one scale for each tensor, or for each row */
    uint64_t block_rows, block_cols;
    struct rfs_quant_group groups[RFS_QUANT_GROUPS]; /* compressed-tensors */
    size_t n_groups;
    uint32_t bits;       /* gptq, awq, mlx: 4 or 8 */
    uint64_t group_size; /* of these; 0: one group */
    bool mixed;          /* gptq: some weights have other bits and groups */
    bool less;           /* gptq: zero points are stored less 1 */
    bool wide;           /* mlx: products are not rounded before biases are added, as metal does */
    RFS_VEC(struct rfs_quant_module) modules; /* mlx; by name */
    enum rfs_dtype to;                        /* BFloat16 or Float32 */
};

/*
 * Reads how the weights of the model in FOLDER are quantized, and makes them TO: from the config
 * GIVEN, or its config.json; where that does not say it, from its hf_quant_config.json, which
 * ModelOpt writes. Paths may be URLs by STORE. 0 with *out owned by the caller, or -errno
 * with *err filled: no file says that anything is quantized, or how is not read.
 */
int rfs_quant_scheme_find(struct rfs_store *store, const char *folder, const char *given,
                          enum rfs_dtype to, struct rfs_quant_scheme **out, struct rfs_error *err);
/* Says whether FOLDER has the file of ModelOpt, beside a config.json that may say nothing. */
bool rfs_quant_scheme_is_beside(struct rfs_store *store, const char *folder);
/*
 * Makes the scheme of files whose dtypes say all; PATH is for messages. NULL when out of memory.
 */
struct rfs_quant_scheme *rfs_quant_scheme_blocks(const char *path, enum rfs_dtype to);
void rfs_quant_scheme_free(struct rfs_quant_scheme *scheme);
/* Returns what is said of the module of LENGTH characters alone, or NULL. O(log modules). */
const struct rfs_quant_module *rfs_quant_scheme_module(const struct rfs_quant_scheme *scheme,
                                                       const char *name, size_t length);
