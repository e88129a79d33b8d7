/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of formats: a format is a folder beside this file, and a row. Rows that describe a
 * checkpoint by itself have OPEN. Each file of the first RFS_FORMAT_COUNT rows has an index, so
 * they have INDEX, VERIFY and ENCODE. A test compares the table with the options, --version, the
 * folders and the fuzz targets.
 */
#pragma once

#include "base/options.h"
#include "formats/chunks/chunks.h"
#include "formats/image.h"
#include "formats/numbered.h"

/* Rows; those before them are of enum rfs_format. */
enum rfs_format_row_number {
    RFS_ROW_DCP = RFS_FORMAT_COUNT,
    RFS_ROW_MINDFORMERS,
    RFS_ROW_SHARDS,
    RFS_ROW_FSDP,
    RFS_ROW_ZERO,
    RFS_ROW_HYPER_PARALLEL,
#ifdef HAVE_HFAI
    RFS_ROW_HFAI,
#endif
    RFS_ROWS
};

struct rfs_document;

/* A file whose headers are read. All is borrowed for the call. */
struct rfs_format_file {
    const struct rfs_bytes_source *from;
    struct rfs_tables *tables;
    struct rfs_pool *pool; /* or NULL */
    const char *entry;     /* where the state dict is in files of torch.save; NULL: it is all */
    size_t left_out;       /* values that are not tensors; set by INDEX */
};
/*
 * Makes the index of a file from its headers. LIKE (or NULL) is the index of another file. Returns
 * 0 with *out owned by the caller, 1 when LIKE is this file's index too, or -errno with *err
 * filled:
 * -ENODATA for a file without tensors.
 */
typedef int rfs_format_index_fn(struct rfs_format_file *file, const struct rfs_index *like,
                                struct rfs_index **out, struct rfs_error *err);
/*
 * Reads a whole file and compares its checksums. Returns 0, 1 when there are none, or -errno with
 * *err filled.
 */
typedef int rfs_format_verify_fn(const struct rfs_format_file *file, const struct rfs_index *index,
                                 struct rfs_error *err);

/* The contents of a rank's file. All is borrowed for the call. */
struct rfs_format_content {
    struct rfs_image_tensor *tensors; /* [n], which may be put into another order */
    size_t n;
    const char *path; /* path of the source, for messages */
    const struct rfs_options *options;
    /* Adds values that are not tensors to a document, for files that can hold them. 0 or -errno. */
    int (*add)(void *ctx, struct rfs_document *document, struct rfs_error *err);
    void *ctx;
};
/* Makes a rank's file. Returns 0 with *out owned by the caller, or -errno with *err filled. */
typedef int rfs_format_encode_fn(const struct rfs_format_content *content, struct rfs_image **out,
                                 struct rfs_error *err);

struct rfs_format_row {
    const char *folder;    /* its fuzz target is fuzz_FOLDER */
    const char *word;      /* word of option format=, or else of view=; NULL: it is not written */
    enum rfs_format files; /* format of its files */
    const char *metadata;  /* name of the file that describes the checkpoint, or NULL */
    const struct rfs_numbered_form *names; /* names with numbers, or NULL */
    rfs_chunks_open_fn *open;              /* NULL: it does not describe itself */
    rfs_format_index_fn *index;            /* this and the next are NULL behind RFS_FORMAT_COUNT */
    rfs_format_verify_fn *verify;
    rfs_format_encode_fn *encode;
};

extern const struct rfs_format_row rfs_formats[RFS_ROWS];
