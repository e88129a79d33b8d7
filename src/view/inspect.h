/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall between the view and the tool: what commands need that reshard.h does not have. Tensors
 * and their pieces, the sources of shown files, needed ranks, and the findings of rules. A command
 * sees no planner, catalogue or format.
 *
 * Threads: all functions, unless a header says otherwise.
 */
#pragma once

#include "view/explained.h"
#include "view/fit.h"
#include "view/ranges.h"
#include "view/rank_headers.h"
#include "view/start.h"
#include "view/strategy_options.h"
#include "view/sweep.h"
#include "view/verify.h"
#include "view/view_options.h"
#include "view/whole_tensors.h"

/* ---- files and folders by themselves --------------------------------------------------------- */

enum rfs_inspect_kind {
    RFS_INSPECT_CKPT,
    RFS_INSPECT_SAFETENSORS,
    RFS_INSPECT_TORCH,
    RFS_INSPECT_ENCRYPTED,
    RFS_INSPECT_STRATEGY,
    RFS_INSPECT_GROUP,
    RFS_INSPECT_RULES,
    RFS_INSPECT_WEIGHT_MAP,
    RFS_INSPECT_MANIFEST,
    RFS_INSPECT_TREE,
    RFS_INSPECT_PARTS,
    RFS_INSPECT_CHUNKS,     /* a folder whose checkpoint describes itself */
    RFS_INSPECT_RANK,       /* a folder of checkpoints of one rank */
    RFS_INSPECT_STRATEGIES, /* a folder of strategies */
};
/*
 * Detects the kind of PATH, by its first bytes or the names in it. KEYED: there is a key, so that
 * what is no other kind is encrypted. 0, or -errno with *err filled.
 */
int rfs_inspect_detect(const char *path, bool keyed, enum rfs_inspect_kind *kind,
                       struct rfs_error *err);
/*
 * Finds the checkpoint that counts in the folder of a rank: *OUT, its path, owned by the caller. 0,
 * or -errno with *err filled.
 */
int rfs_inspect_rank_file(const char *folder, char **out, struct rfs_error *err);

/*
 * Finds the checkpoint that counts in the folder of a rank, when PATH is one and no option says that
 * it is a tree: *OUT, owned by the caller, or NULL. 0, or -errno with *err filled.
 */
int rfs_inspect_lone_rank(const char *path, const struct rfs_options *options, char **out,
                          struct rfs_error *err);

/* A file of one checkpoint. */
struct rfs_inspect_file {
    uint64_t bytes;
    size_t others; /* values that are not tensors */
    bool has_crc, redundancy_removed;
    const char *mode; /* of an encrypted file, without a key; else NULL. It has no tensors then */
    uint32_t blocks;  /* encrypted blocks */
};
/*
 * Takes a tensor: NAME and TYPE last for the call, OFFSET is that of its bytes in the file. False
 * when out of memory.
 */
typedef bool rfs_inspect_tensor_fn(void *ctx, const char *name, const struct rfs_type *type,
                                   uint64_t offset);
/*
 * Reads the headers of a file of KIND, up to RFS_INSPECT_ENCRYPTED, by the options of SOURCE, and
 * calls EACH for its tensors. 0, or -errno with *err filled.
 */
int rfs_inspect_file(const struct rfs_headers_source *source, const char *path,
                     enum rfs_inspect_kind kind, rfs_inspect_tensor_fn *each, void *ctx,
                     struct rfs_inspect_file *out, struct rfs_error *err);
/* Reads group info: the ranks with equal checkpoints, owned by the caller. 0 or -errno. */
int rfs_inspect_group(const char *path, uint32_t **ranks, size_t *n, struct rfs_error *err);
/* Returns the path of a checkpoint somewhere below a folder, for a remedy, or NULL; malloc'ed. */
char *rfs_inspect_below(const char *folder);
/* Reads and checks rules of layouts; *text is owned by the caller. 0 or -errno. */
int rfs_inspect_layout_rules(const char *path, char **text, struct rfs_error *err);

/* ---- sources that describe themselves, and hfai's parts --------------------------------------- */

/* A source of chunks, opened by rfs_headers_open. All is the source's. */
struct rfs_inspect_chunks {
    const char *format;
    size_t tensors, chunks;
    size_t unread; /* tensors that can't be shown */
    uint32_t files;
    const char *lost; /* files that are lost, for a message; or NULL */
};
void rfs_inspect_chunks(const struct rfs_headers_source *source, struct rfs_inspect_chunks *out);
/* A tensor of such a source. */
struct rfs_inspect_chunked {
    const char *name;
    const struct rfs_type *type;
    uint32_t chunks;
    bool incomplete;
    uint64_t pieces[RFS_MAX_DIMS]; /* pieces that each axis is cut into */
};
/* Gives tensor I. */
void rfs_inspect_chunked(const struct rfs_headers_source *source, size_t i,
                         struct rfs_inspect_chunked *out);
/* A file of such a source. */
struct rfs_inspect_chunk_file {
    const char *name; /* path within the source's folder */
    uint64_t chunks;
    uint64_t content; /* bytes of tensors */
    uint64_t bytes;   /* 0, if it is not there */
    bool is_there;
};
/* Lists the files, owned by the caller. 0, or -ENOMEM with *err filled. */
int rfs_inspect_chunk_files(const struct rfs_headers_source *source,
                            struct rfs_inspect_chunk_file **out, uint32_t *n,
                            struct rfs_error *err);
/* Gives the name of a tensor that can't be shown, number I, and the reason. */
void rfs_inspect_unread(const struct rfs_headers_source *source, size_t i, const char **name,
                        const char **why);

/* The state in hfai's parts. */
struct rfs_inspect_parts {
    size_t models, optimizers;
};
/*
 * Calls EACH for the tensors of the models in hfai's parts, opened by rfs_headers_open; offsets are
 * 0. 0, or -errno with *err filled.
 */
int rfs_inspect_parts(const struct rfs_headers_source *source, rfs_inspect_tensor_fn *each,
                      void *ctx, struct rfs_inspect_parts *out, struct rfs_error *err);

/* Says whether a source, opened by rfs_headers_open, is hfai's parts. */
bool rfs_inspect_has_parts(const struct rfs_headers_source *source);
/*
 * Makes the strategy of the training that saved a Checkpoint 2.0, which describes it. NAME is for
 * messages. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_derive(const struct rfs_headers_source *source, const char *name,
                       struct rfs_strategy **out, struct rfs_error *err);

/* ---- needed ranks ---------------------------------------------------------------------------- */

/* Two strategies, and which ranks of one need which of the other (plan/needed.h). */
struct rfs_inspect_ranks;

/*
 * Reads the strategies that SRC and DST name (view/strategy_options.h); a side that is NULL is one
 * whole checkpoint. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_ranks_open(const char *src, const char *dst, struct rfs_inspect_ranks **out,
                           struct rfs_error *err);
/* Frees them; NULL is allowed. */
void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks);
/* Gives the number of ranks of the source and of the destination. */
void rfs_inspect_ranks_count(const struct rfs_inspect_ranks *ranks, uint32_t *sources,
                             uint32_t *destinations);
/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno with *err filled. One thread at a time.
 */
int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err);

/* ---- conversion rules ------------------------------------------------------------------------ */

/* A tensor that rules make; all is the view's. */
struct rfs_inspect_made {
    const char *name;
    const struct rfs_type *type; /* with the dtype of its sources */
    enum rfs_dtype shown;        /* after a cast */
    size_t sources;              /* tensors of the source that it is made of */
    const char *file;            /* where the rule is */
    uint32_t line;
};

/* The result of the rules of a view. */
struct rfs_inspect_rules {
    const char *from, *to; /* names of the two sides */
    size_t sources, dropped, made;
    size_t incomplete; /* made tensors that need a lost part of the source */
};
/*
 * Gives the result of a view's rules, whose copies are compared first. 0, or -errno with *err
 * filled: a copy differs; the source cannot be converted; several saves are shown.
 */
int rfs_inspect_rules(reshard_view *view, struct rfs_inspect_rules *out, struct rfs_error *err);
/* Gives made tensor I, below out->made, of a view for which rfs_inspect_rules gave 0. */
void rfs_inspect_made(reshard_view *view, size_t i, struct rfs_inspect_made *out);

/*
 * Compares the copies that rules leave out with their originals, in all saves of a view. 0, or
 * -errno with *err filled: one differs.
 */
int rfs_inspect_compare_copies(reshard_view *view, struct rfs_error *err);

/* ---- one tensor as a file -------------------------------------------------------------------- */

/*
 * Makes the bytes that stand before those of a tensor, in a .npy file or with SAFETENSORS in a file
 * of that format. 0 with OUT owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_head(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                     bool safetensors, struct rfs_bytes *out, struct rfs_error *err);
/* Bytes of a tensor that one message of a .ckpt file has at most. */
#define RFS_INSPECT_CKPT_CHUNK (UINT64_C(512) << 20)
/*
 * Appends the bytes that a .ckpt file has before CONTENT bytes of a tensor, or of a part of one; TYPE
 * has the dims of the whole tensor. False when out of memory.
 */
bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content);
/* Returns the name that a tensor has in the source. */
const char *rfs_inspect_source_name(const struct rfs_whole *whole,
                                    const struct rfs_whole_tensor *tensor);
/*
 * Finds the lowest destination rank whose strategy has a parameter of that name, and its stage.
 * False if there is none, or no strategy.
 */
bool rfs_inspect_rank_with(const struct rfs_whole *whole, const char *name, uint32_t *rank,
                           uint32_t *stage);
/* Casts N elements to Float32; FROM is a type for which rfs_dtype_is_float. */
void rfs_inspect_floats(enum rfs_dtype from, const void *src, float *out, size_t n);
