/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes GGUF files of llama.cpp, which gguf.c draws. The index of one is built from its
 * headers: tensors are not read, and what describes the model is listed and copied apart.
 */
#pragma once

#include "base/error.h"
#include "formats/beside.h"
#include "formats/image.h"
#include "formats/index.h"
#include "formats/walker.h"

struct rfs_store;

/* Types of values that describe the model, by their numbers in files. */
enum rfs_gguf_value {
    RFS_GGUF_UINT8,
    RFS_GGUF_INT8,
    RFS_GGUF_UINT16,
    RFS_GGUF_INT16,
    RFS_GGUF_UINT32,
    RFS_GGUF_INT32,
    RFS_GGUF_FLOAT32,
    RFS_GGUF_BOOL,
    RFS_GGUF_STRING,
    RFS_GGUF_ARRAY,
    RFS_GGUF_UINT64,
    RFS_GGUF_INT64,
    RFS_GGUF_FLOAT64,
    RFS_GGUF_VALUES
};

/* Where tensors begin, unless a file says so otherwise, and in files that are written. */
#define RFS_GGUF_ALIGNMENT 32

/*
 * Reads the headers of a file. TABLES are filled as by rfs_ckpt_walk. Returns 0 with *out owned by
 * the caller, its entries in the order of the data, and with the number of *values beside them.
 * Else *out is NULL: -ENODATA for a file without tensors, which only a file of a split one may be,
 * -EINVAL for an invalid file or a part of a split one under another name, -ENOTSUP for types that
 * are not read, -ENOMEM, or a read's error, each with *err filled. Takes 20 KiB of memory for the
 * time of the call.
 */
int rfs_gguf_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                  struct rfs_index **out, size_t *values, struct rfs_error *err);

/* Calls EACH for the values of a file (rfs_format_values_fn). Takes 25 KiB for the time of it. */
int rfs_gguf_values(const struct rfs_bytes_source *from, rfs_format_value_fn *each, void *ctx,
                    struct rfs_error *err);
/*
 * Appends the values of a file as they are there, and adds their number to *N: but those of the
 * alignment and of the parts of a split file, and if tensors become PLAIN, of how they are
 * quantized. 0, or -errno with *err filled.
 */
int rfs_gguf_copy_values(const struct rfs_bytes_source *from, bool plain, struct rfs_bytes *out,
                         uint64_t *n, struct rfs_error *err);

/*
 * Appends what a file says of its model (rfs_format_config_fn). TIED: the embeddings are its
 * output, too.
 */
int rfs_gguf_config(const struct rfs_bytes_source *from, bool tied, struct rfs_bytes *out,
                    struct rfs_error *err);

/* The contents of a file. All is borrowed for the call. */
struct rfs_gguf_content {
    const struct rfs_image_tensor *tensors; /* [n], in the order of the file */
    size_t n;
    const char *path;   /* path of the source, for messages */
    const char *config; /* path of the model's config.json, or NULL */
    /* A file whose values are copied; both NULL: the file says nothing of the model. */
    const struct rfs_bytes_source *like;
    bool plain;              /* they are of quantized tensors, and these are not */
    struct rfs_store *store; /* reads the config if it is a URL; or NULL */
};
/*
 * Makes a file of version 3. 0, -ENOMEM, or -errno with *err filled: for what the format cannot
 * hold, or a config that does not give the values of its model.
 */
int rfs_gguf_encode(const struct rfs_gguf_content *content, struct rfs_image **out,
                    struct rfs_error *err);
/* Returns the number of a dtype in files, or -1: the format cannot hold it. */
int rfs_gguf_type(enum rfs_dtype dtype);
