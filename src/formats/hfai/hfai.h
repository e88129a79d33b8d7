/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that hfai's dist_ckpt.save wrote in parts, PART_000.pt to PART_{n-1}.pt (format 2.0.0),
 * and the same state in another number of parts, or whole. state.c draws the format.
 *
 * Opening reads the pickles of all parts, and of tensors only the step counts of optimizers. It
 * proves that the parts belong together. Cost: the pickles (which list each optimizer's parameters
 * in every part) as graphs (formats/torch/pickle.h) with 8 bytes more for each node, 128 for each
 * tensor or state entry, and 96 for each piece of a large tensor; all is linear in these, and
 * within the source's most. Immutable once open, so any thread may use it.
 */
#pragma once

#include "base/error.h"
#include "formats/chunks/chunks.h"
#include "formats/chunks/state_parts.h"
#include "formats/torch/document.h"
#include "store/files.h"

#define RFS_HFAI_LARGE UINT64_C(268435456) /* bytes; hfai calls larger tensors large */
#define RFS_HFAI_PARTS 4096                /* more parts are refused, and not shown */
#define RFS_HFAI_FIRST "PART_000.pt"

struct rfs_hfai;

/*
 * Opens a state. 0 with *out owned by the caller; -EINVAL for parts that are damaged or not of one
 * save, -ENOENT for a missing one, -EFBIG for those that need more memory than that, errors of
 * rfs_torch_open and of reads, -ENOMEM; each with *err filled.
 */
int rfs_hfai_open(const struct rfs_chunks_parts *source, struct rfs_hfai **out,
                  struct rfs_error *err);
void rfs_hfai_free(struct rfs_hfai *hfai);

uint32_t rfs_hfai_parts(const struct rfs_hfai *hfai);
size_t rfs_hfai_models(const struct rfs_hfai *hfai);
size_t rfs_hfai_optimizers(const struct rfs_hfai *hfai);
/* Returns the opened file of a part. */
const struct rfs_torch *rfs_hfai_torch(const struct rfs_hfai *hfai, uint32_t part);

/*
 * Divides the state into N parts, with tensors of more than LARGE bytes cut over all of them. 0
 * with *out owned by the caller, which does not outlive HFAI, or -ENOMEM with *err filled. O(e log
 * e) for e entries; 4 bytes for each, 12 for each tensor that is cut.
 */
struct rfs_hfai_division;
int rfs_hfai_divide(const struct rfs_hfai *hfai, uint32_t n, uint64_t large,
                    struct rfs_hfai_division **out, struct rfs_error *err);
void rfs_hfai_division_free(struct rfs_hfai_division *division);

/*
 * The next four functions make files, as documents that the caller frees (rfs_document_free)
 * in any case. 0, -ENOMEM or -EINVAL, with *err filled.
 */
/* Makes one part, with a piece of each tensor that is cut. O(its values). */
int rfs_hfai_part(const struct rfs_hfai_division *division, uint32_t part, struct rfs_document *out,
                  struct rfs_error *err);
/* Makes a file of all that dist_ckpt.load returns. */
int rfs_hfai_whole(const struct rfs_hfai *hfai, struct rfs_document *out, struct rfs_error *err);
/* Make a file of the state dict of one model, and of one optimizer. */
int rfs_hfai_model(const struct rfs_hfai *hfai, size_t model, struct rfs_document *out,
                   struct rfs_error *err);
int rfs_hfai_optimizer(const struct rfs_hfai *hfai, size_t optimizer, struct rfs_document *out,
                       struct rfs_error *err);
/* The item that a tensor goes with when the state is divided; for rfs_hfai_hold. */
struct rfs_hfai_owner {
    uint32_t state; /* a model, or models + an optimizer; models + optimizers: none */
    uint32_t item;  /* of that state: an entry, or entries + a large tensor; or UINT32_MAX */
    const struct rfs_node *value; /* a value that is cut by itself if it is large; or NULL */
};
struct rfs_hfai_listed {
    struct rfs_type type;
    bool in_pieces; /* each part of the source has a piece of it */
    struct rfs_hfai_owner owner;
};
struct rfs_hfai_value {
    const char *name;
    uint64_t hash[2]; /* XXH3-128 of the value's data in the pickle */
};
/*
 * List of all that dist_ckpt.load returns but the number of parts and the format, by its path
 * there: "optimizer.state.0.exp_avg", "ema.2.weight"; entries of the only model by their own names.
 * Only the order of the list depends on the number of parts.
 */
struct rfs_hfai_list {
    struct rfs_arena arena;
    struct rfs_chunks *chunks; /* owned; the tensors, in the order of the next member */
    RFS_VEC(struct rfs_hfai_listed) tensors;
    size_t n_models; /* number of the first tensors, which are the models' */
    RFS_VEC(struct rfs_hfai_value)
    values; /* values other than tensors; containers, too, without their items */
};
/* Options of a list. */
struct rfs_hfai_listing {
    struct rfs_chunks_source to; /* files, tables and log for the chunks */
    bool models;                 /* only the models */
    /* NULL, or a division: a tensor that this or the source cuts is listed as a row of elements */
    const struct rfs_hfai_division *rows;
};
/*
 * Lists the state. 0, -EFBIG for pickles whose list takes more than 64 times their bytes, -EINVAL
 * for a parameter whose name is no text, -ENOTSUP for two tensors of one path, or -ENOMEM, with
 * *err filled. The caller frees *out in any case.
 *
 * Cost: that of chunks, one for each whole tensor and for each piece, and 200 bytes a tensor.
 */
int rfs_hfai_list(const struct rfs_hfai *hfai, const struct rfs_hfai_listing *how,
                  struct rfs_hfai_list *out, struct rfs_error *err);
void rfs_hfai_list_free(struct rfs_hfai_list *list);
/* Says what is in the parts of a state: models, with their tensors, and optimizers. */
rfs_chunks_state_fn rfs_hfai_state;

/* Values that stand for several parts. */
#define RFS_HFAI_PIECES UINT32_MAX /* each part has a piece of the tensor */
#define RFS_HFAI_EVERY                                                                             \
    (UINT32_MAX - 1) /* each part has the whole tensor of an optimizer, outside of its state */
/*
 * Sets PARTS[i] to the part of the division that holds tensor I of the list. O(tensors). 0 or
 * -ENOMEM with *err filled.
 */
int rfs_hfai_hold(const struct rfs_hfai_division *division, const struct rfs_hfai_list *list,
                  uint32_t *parts, struct rfs_error *err);
/*
 * Gives the piece that torch.chunk makes of a tensor that is cut over N parts: elements [*begin,
 * *end) for this part; later parts may get nothing.
 */
void rfs_hfai_chunk(uint64_t elements, uint32_t n, uint32_t part, uint64_t *begin, uint64_t *end);
