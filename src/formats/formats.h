/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of formats: a format is a folder beside this file, and a row, which says all that
 * others need to know of it. Rows that describe a checkpoint by itself have OPEN. The first
 * RFS_FORMAT_COUNT rows are formats of files: each such file has an index. A test compares the
 * table with the options, the folders, the fuzz targets and the documents.
 */
#pragma once

#include "formats/beside.h"
#include "formats/chunks/chunks.h"
#include "formats/chunks/state_parts.h"
#include "formats/image.h"
#include "formats/numbered.h"
#include "formats/seen.h"
#include "formats/words.h"

/*
 * Rows of formats that describe themselves, behind those of enum rfs_format. The first that takes a
 * folder has it.
 */
enum rfs_format_row_number {
    RFS_ROW_HYPER_PARALLEL = RFS_FORMAT_COUNT,
    RFS_ROW_DCP,
    RFS_ROW_ZERO,
    RFS_ROW_SHARDS,
    RFS_ROW_FSDP,
    RFS_ROW_MINDFORMERS,
    RFS_ROW_HFAI,
    RFS_ROWS
};

/* ---- formats of files ------------------------------------------------------------------------ */

struct rfs_document;
struct rfs_options;

/* Which of a folder's files counts: of those of one format, the last. */
enum rfs_format_last {
    RFS_LAST_NONE,    /* there is no rule */
    RFS_LAST_NAME,    /* by the bytes of the names */
    RFS_LAST_NUMBERS, /* by the last two numbers of the paths */
};

#define RFS_FORMAT_HEAD 16   /* bytes that are enough for a mark, */
#define RFS_FORMAT_WRITER 64 /* and for that of a program */
/* Says by the first bytes of a file, its mark, whether it is of the format. */
typedef bool rfs_format_is_fn(const unsigned char *head, size_t n);

/* A file whose headers are read. All is borrowed for the call. */
struct rfs_format_file {
    const struct rfs_bytes_source *from;
    struct rfs_tables *tables;
    struct rfs_pool *pool; /* or NULL */
    const char *entry;     /* where the state dict is in files of torch.save; NULL: it is all */
    size_t left_out;       /* values that are not tensors; set by INDEX and LIST */
    struct rfs_outside outside; /* set by INDEX of formats that are KEYED */
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

/*
 * Compares SAMPLES of a file's headers with those of PREDICTION. Returns 1 when they are alike, 0
 * when not, or -errno.
 */
typedef int rfs_format_resembles_fn(const struct rfs_bytes_source *from,
                                    const struct rfs_index *prediction, struct rfs_tables *tables,
                                    size_t samples);

/*
 * Calls EACH for the tensors of a file wherever they are in it, and sets LEFT_OUT. 0, or -errno
 * with *err filled.
 */
typedef int rfs_format_list_fn(struct rfs_format_file *file, rfs_index_each_fn *each, void *ctx,
                               struct rfs_error *err);

/*
 * Appends what a file says of its model, such as the counts of heads, to *OUT: JSON, by the keys of
 * HuggingFace's config.json. INDEX has all tensors of the checkpoint. 0, or -errno with *err
 * filled.
 */
typedef int rfs_format_config_fn(const struct rfs_format_file *file, const struct rfs_index *index,
                                 struct rfs_bytes *out, struct rfs_error *err);

/* The contents of a file of tensors. All is borrowed for the call. */
struct rfs_format_content {
    struct rfs_image_tensor *tensors; /* [n], which may be put into another order */
    size_t n;
    const char *path;     /* path of the source, for messages */
    const char *metadata; /* text that says whose file it is, "ms" or "pt"; safetensors only */
    const char *divide;   /* option that makes more and smaller files, for a message; or NULL */
    const struct rfs_options *options;
    const struct rfs_bytes_source *like; /* a file of the format whose values it has; or NULL */
    struct rfs_store *store;             /* reads the files that options name; or NULL */
    /* Adds values that are not tensors to a document, for files that can hold them. 0 or -errno. */
    int (*add)(void *ctx, struct rfs_document *document, struct rfs_error *err);
    void *ctx;
};
/* Makes a rank's file. Returns 0 with *out owned by the caller, or -errno with *err filled. */
typedef int rfs_format_encode_fn(const struct rfs_format_content *content, struct rfs_image **out,
                                 struct rfs_error *err);

/* ---- the table ------------------------------------------------------------------------------- */

#define RFS_FORMAT_ENDINGS 4

struct rfs_format_row {
    const char *folder; /* its fuzz target is fuzz_FOLDER */
    /* its name in messages and reports: the word of option format= or view= if there is one */
    const char *name;
    enum rfs_format files; /* format of its files */
    enum rfs_format gives; /* of the files of ranks that are made of it, if no option says more */

    /* Formats of files have these; they are zero for others. */
    const char *endings[RFS_FORMAT_ENDINGS]; /* of names, written files have the first; or NULL */
    rfs_format_is_fn *is; /* NULL: its files have no mark, and are what no other format is */
    enum rfs_format_last last;
    bool renamed;  /* programs give its files endings of formats without a mark, too */
    bool alone;    /* one file alone in a folder is a whole checkpoint */
    bool divided;  /* files whose names count them are one without an index; the first stands for
                      all */
    bool beside;   /* its files do not count where there are some of a format above */
    bool keyed;    /* tensors lie in dicts, which option entry= names */
    bool by_name;  /* an index has the order of names, not of offsets */
    bool mapped;   /* programs map its files, and read parts of them */
    bool no_empty; /* tensors without bytes are left out */
    bool records;  /* each record has a checksum, or has none */
    bool spread;   /* headers of tensors lie all over a file */
    bool strided;  /* tensors may have strides of their own */
    bool blocks;   /* numbers may be in blocks with their scales: rfs_dtype_is_block */
    bool coded;    /* numbers may be codes, which the config beside the files explains */
    bool by_stage; /* MindSpore transforms its files by stage, where it can */
    bool objects;  /* files that are written hold values other than tensors, too */
    bool modelled; /* files that are written describe their model, by its config */
    /* Says by the first bytes whether MindSpore wrote a file. NULL: it writes all, or none. */
    rfs_format_is_fn *by_mindspore;
    rfs_format_index_fn *index;
    rfs_format_resembles_fn *resembles; /* NULL: headers are compared as a whole */
    rfs_format_list_fn *list;           /* NULL: INDEX finds all tensors */
    rfs_format_values_fn *values; /* NULL: values beside tensors have no names, and are not kept */
    rfs_format_config_fn *config; /* NULL: its files do not describe their model */
    rfs_format_verify_fn *verify; /* NULL: its files have no checksums */
    rfs_format_encode_fn *encode; /* NULL: it is only read */

    /* Formats that describe themselves have these; their ENCODE makes the files of view=NAME. */
    const char *metadata; /* name of the file that describes the checkpoint, or NULL */
    const struct rfs_numbered_form *names; /* names with numbers of a save, or NULL */
    const struct rfs_seen_kind *seen;      /* NULL: files by NAMES are the checkpoint */
    rfs_chunks_open_fn *open;

    /* Formats whose files divide one state have these. */
    const char *first_part; /* name of the first file */
    rfs_chunks_state_fn *state;
};

extern const struct rfs_format_row rfs_formats[RFS_ROWS];

/* Return what a format that describes itself sees in a name, and makes of a folder (seen.h). */
unsigned rfs_format_sees(const struct rfs_format_row *row, const char *name);
struct rfs_seen rfs_format_settle(const struct rfs_format_row *row, unsigned bits);

/* Gives the format of a file by the ending of its name. False: it has that of none. */
bool rfs_format_of_name(const char *name, enum rfs_format *format);
/* Returns the length of a name with an ending of FORMAT, without it. */
size_t rfs_format_stem(const char *name, enum rfs_format format);
/*
 * Gives the format of one file by its name and, where that says little, its first N bytes. False:
 * it may be of the format without a mark.
 */
bool rfs_format_of_file(const char *name, const unsigned char *head, size_t n,
                        enum rfs_format *format);
/* Says whether the ending of a file of FORMAT says little, so that its first bytes decide. */
bool rfs_format_is_vague(enum rfs_format format);
/*
 * Replaces the message of RC, with which reading the headers of FROM as a file of ROW failed, if
 * its first bytes show that it is of another format, or what else it is. Returns RC, or -ENOTSUP.
 */
int rfs_format_explain(const struct rfs_format_row *row, const struct rfs_bytes_source *from,
                       int rc, struct rfs_error *err);
/* Writes a list of first endings, "A, B or C": of ALL formats, or of those that are not BESIDE. */
#define RFS_FORMAT_ENDINGS_TEXT 160
const char *rfs_format_endings(bool all, char out[RFS_FORMAT_ENDINGS_TEXT]);
