/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree, compared with its source and with itself. The steps:
 *
 *     ranks     index every rank of the tree; compare their lists with the source's view
 *     lost      which tensors of the tree, or of the source, are incomplete for want of a rank
 *     content   each tensor of the tree, every copy of it that ranks hold, against the source's or
 *               each other; its checksum. Values that no strategy knows have no whole: rank by rank
 *     objects   values of a torch.distributed.checkpoint that are not tensors, against the source's
 *     frames    the rest of the files, against those that the view of the source would show
 *     values    values of hfai's parts that are not tensors, against the source's
 *
 * Memory: 12 MiB a thread, the views' caches, 56 bytes a tensor, and the findings.
 */
#pragma once

#include "base/hash.h"
#include "base/progress.h"
#include "survey/verify/findings.h"
#include "survey/whole_tensors.h"

/* The caller's wishes. */
struct rfs_verify_wishes {
    bool (*match)(const void *ctx, const char *name); /* takes a tensor of that name */
    const void *match_ctx;
    bool some;        /* only some tensors are taken, so that files are not compared */
    bool wants_sums;  /* a manifest is compared or written, which has sums of whole tensors */
    bool no_replicas; /* copies are not compared */
    unsigned threads;
    void (*warn)(const char *line);
};

/* A tensor that is verified. */
struct rfs_verify_item {
    struct rfs_tensor tree; /* the tensor, or one of verify->lost */
    struct rfs_tensor src;  /* has the same type; none: nothing to compare with */
    bool by_rank;           /* the tensor has no whole, and is compared rank by rank */
    struct rfs_hash hash;
    void *state; /* XXH3_state_t, while it is read */
};

struct rfs_verify {
    struct rfs_verify_wishes wishes;
    struct rfs_whole tree;
    struct rfs_whole src;     /* no view: there is none */
    struct rfs_whole shown;   /* src as the tree should be; no view: there is no destination */
    struct rfs_whole cut;     /* shown of a tree that describes its cuts, and is read as a whole */
    struct rfs_tensors *cuts; /* [n_cuts] owned; what the first rank of each stage of cut has */
    uint32_t n_cuts;
    struct rfs_verify_item *items; /* the tree's tensors, in their order, then the lost */
    struct rfs_tensors lost; /* the tree's, by the types of the source; no slice of them is made */
    struct rfs_params *lost_params; /* owned; their list */
    bool damaged;                   /* some rank of the tree is damaged or missing */
    size_t values;                  /* compared values that are not tensors */
    struct rfs_findings findings;
    struct rfs_progress progress;
};

/* Initialises a zeroed verification with wishes. 0, or -ENOMEM with *err filled. */
int rfs_verify_begin(struct rfs_verify *verify, struct rfs_error *err);
/* Closes the checkpoints, and frees what the verification owns; call it in any case. */
void rfs_verify_end(struct rfs_verify *verify);

/* Verifies all, when the checkpoints are open. 0, or -errno with *err filled. */
int rfs_verify_all(struct rfs_verify *verify, struct rfs_error *err);
/*
 * Finds the missing and the damaged ones of hfai's parts, in a folder that cannot be opened.
 * Returns false when there are none.
 */
bool rfs_verify_parts(struct rfs_verify *verify, const char *folder, enum rfs_finding_kind kind);

/* Verifies the tensors: ranks, lost and content. 0, or -errno with *err filled. */
int rfs_verify_tensors(struct rfs_verify *verify, struct rfs_error *err);
/* Returns whether RANK has a file in the tree that could be indexed. */
bool rfs_verify_has_rank(const struct rfs_verify *verify, uint32_t rank);
