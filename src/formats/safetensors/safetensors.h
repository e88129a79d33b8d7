/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes safetensors files, which safetensors.c draws. The index of one is built from its
 * header: tensors are not read.
 */
#pragma once

#include "base/error.h"
#include "formats/image.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "formats/words.h"
#include "store/mapfile.h"

/* Bytes of the longest header that is read, as in the safetensors library and in MindSpore. */
#define RFS_SAFETENSORS_HEADER_MOST 100000000
/* The key of what is no tensor. */
#define RFS_SAFETENSORS_METADATA "__metadata__"

/*
 * Reads the header of a file. TABLES are filled as by rfs_ckpt_walk. LIKE (or NULL) is the index of
 * another file, as this function gave it: when the two headers are equal byte for byte, nothing is
 * built. Returns 0 with *out owned by the caller, its entries in the order of the data, or 1 when
 * LIKE is this file's index too; else *out is NULL: -ENODATA for one without tensors, -EINVAL for
 * an invalid safetensors file, -ENOMEM, or a read's error, each with *err filled. Takes as much
 * memory as the header, for the time of the call.
 */
int rfs_safetensors_walk(const struct rfs_bytes_source *from, struct rfs_tables *tables,
                         const struct rfs_index *like, struct rfs_index **out,
                         struct rfs_error *err);

/* The contents of a file. All is borrowed for the call. */
struct rfs_safetensors_content {
    struct rfs_image_tensor *tensors; /* [n], which are put into the order of the file */
    size_t n;
    const char *format; /* of the metadata; NULL: none, as the library's save_file has by itself */
    const char *path;   /* path of the source, for messages */
    /* option that makes more and smaller files, for a message; NULL: the format can be another */
    const char *divide;
    bool by_layers; /* in the order of rfs_safetensors_sort_layers */
};

/*
 * Makes the safetensors file that the library writes, or one in the order of layers. 0, -ENOMEM, or
 * -EINVAL or -EFBIG with *err filled for what the format cannot hold.
 */
int rfs_safetensors_encode(const struct rfs_safetensors_content *content, struct rfs_image **out,
                           struct rfs_error *err);

/*
 * Sorts tensors, whose names end with NUL, by layers, as layers.c draws it. With ALIGNED, each
 * begins at a multiple of its element's bytes if the first begins at 0; for this, of layers that
 * would move the next ones off, tensors go to the end. 0 or -ENOMEM. Takes O(n log n) time, and
 * about 100 bytes a tensor for the call.
 */
int rfs_safetensors_sort_layers(struct rfs_image_tensor *tensors, size_t n, bool aligned);

/* Styles of the JSON file with the file of each tensor, which weight_map.c draws. */
enum rfs_weight_map_style { RFS_WEIGHT_MAP_HUGGINGFACE, RFS_WEIGHT_MAP_MINDSPORE };
/* The name of MindSpore's. */
#define RFS_WEIGHT_MAP_MINDSPORE_NAME "param_name_map.json"
/* The forms of the file, by style. */
extern const struct rfs_mapfile_form rfs_weight_map_forms[];
/* Gives the style of such a file by its name. False: it is none. */
bool rfs_safetensors_map_style(const char *name, enum rfs_weight_map_style *style);
/* HuggingFace's name of one: FILE.index.json, or FILE.index.VARIANT.json. */
struct rfs_weight_map_name {
    size_t file_bytes;      /* of FILE, which would have all tensors: model.safetensors */
    enum rfs_format format; /* of its files; torch.save's, as transformers wrote them before */
    bool variant;
};
bool rfs_safetensors_map_name(const char *name, struct rfs_weight_map_name *out);
struct rfs_weight_map {
    enum rfs_weight_map_style style;
    uint64_t total_size; /* bytes of all tensors */
    size_t n;
    const uint32_t *names;    /* [n] ids in the tables' names */
    const char *const *files; /* [n] borrowed for the call */
};
/* Makes the JSON file with the file of each tensor. 0 or -ENOMEM. */
int rfs_safetensors_encode_map(const struct rfs_tables *tables, const struct rfs_weight_map *map,
                               struct rfs_image **out);
