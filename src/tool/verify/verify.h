/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard verify`: a tree against its source, against a manifest, and against itself. The steps:
 *
 *     ranks     index every rank of the tree; compare their lists with the source's view
 *     lost      which tensors of the tree, or of the source, are incomplete for want of a rank
 *     content   each tensor of the tree, every copy of it that ranks hold, against the source's or each other; its
 *               checksum. Values that no strategy knows have no whole: rank by rank, own.c
 *     objects   of a torch.distributed.checkpoint: values that are not tensors, against the source's
 *     frames    the rest of the files, against those that the view of the source would show
 *     values    of hfai's parts: values that are not tensors in them, against the source's, parts.c
 *     manifest  the checksums against it, or into it
 *
 * Memory: 12 MiB a thread, the views' caches, 56 bytes a tensor, and the findings.
 */
#pragma once

#include "tool/common/args.h"
#include "tool/common/progress.h"
#include "tool/common/whole.h"
#include "tool/verify/findings.h"
#include "tool/verify/sums.h"

struct rfs_verify_options {
    const char *tree;
    const char *against;                     /* NULL: no source */
    struct rfs_settings tree_view, src_view; /* options of views; owned, as the next ones */
    char *names;    /* the file of names= among the options that made the tree, or NULL; owned */
    bool described; /* the tree was made by an option view whose files describe their cuts */
    const char *manifest; /* NULL: none */
    struct rfs_globs globs;
    bool write, no_replicas, list, json;
    unsigned threads;
    /* The views as they were given: -s and -d, NULL: none; -o and --tree-options. */
    struct {
        const char *strategy[2];
        struct rfs_settings view, tree_view;
    } given;
};

struct rfs_verify_item {
    const struct rfs_whole_tensor *tree;
    const struct rfs_whole_tensor *src; /* of the same type; NULL: nothing to compare with */
    bool lost;                          /* it is of verify->lost */
    bool by_rank; /* it has no whole, and is compared rank by rank with the view */
    struct rfs_hash hash;
    void *state; /* XXH3_state_t, while it is read */
};

struct rfs_verify {
    struct rfs_verify_options *options;
    struct rfs_whole tree;
    struct rfs_whole src;   /* view NULL: there is none */
    struct rfs_whole shown; /* src as the tree should be; view NULL: there is no destination */
    struct rfs_whole cut; /* likewise, where the tree describes its cuts, and is read as a whole */
    struct rfs_verify_item *items; /* of the tree's tensors, in their order, and then of lost */
    struct rfs_whole_tensor *lost; /* [n_lost] of the tree, without a target */
    size_t n_lost;
    bool damaged;         /* a rank of the tree is, or is missing */
    size_t values;        /* that were compared beside the tensors */
    struct rfs_sums sums; /* of the manifest that is there */
    bool has_sums;
    struct rfs_findings findings;
    struct rfs_progress progress;
};

/* ---- the command line ------------------------------------------------------------------------ */

extern const struct rfs_argument rfs_verify_arguments[];
/*
 * Makes the views' options of those given; to be freed in any case. 0, or -errno with *err filled.
 */
int rfs_verify_settle(struct rfs_verify_options *options, struct rfs_error *err);
void rfs_verify_views_free(struct rfs_verify_options *options);

/* ---- the steps: 0, or -errno with *err filled ------------------------------------------------ */

int rfs_verify_ranks(struct rfs_verify *verify, struct rfs_error *err);
/*
 * Of a folder of hfai's parts that cannot be opened: finds those that are missing or damaged by
 * themselves. False when there are none.
 */
bool rfs_verify_parts(struct rfs_verify *verify, const char *folder, enum rfs_finding_kind kind);
/* Reports the tensors that damaged ranks leave uncompared. */
int rfs_verify_lost(struct rfs_verify *verify, struct rfs_error *err);
int rfs_verify_content(struct rfs_verify *verify, struct rfs_error *err);
int rfs_verify_objects(struct rfs_verify *verify, struct rfs_error *err);
int rfs_verify_frames(struct rfs_verify *verify, struct rfs_error *err);
/* Compares values that are not tensors, where both are hfai's parts. Cannot fail. */
void rfs_verify_values(struct rfs_verify *verify);
/* Prints to the standard output. */
int rfs_verify_write(struct rfs_verify *verify, struct rfs_error *err);

/* ---- for all steps --------------------------------------------------------------------------- */

/*
 * Finds that bytes [begin, begin + n) of a tensor, which GOT are, should be WANTED: one finding of
 * KIND for each rank whose bytes differ. SLICE says whose they are. Up to 4,096 runs are looked up.
 */
void rfs_verify_compare(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                        const struct rfs_slice *slice, enum rfs_finding_kind kind, uint64_t begin,
                        const unsigned char *got, const unsigned char *wanted, size_t n);

/* Whether a rank of the tree has a file, and one that could be indexed. */
bool rfs_verify_has_rank(const struct rfs_verify *verify, uint32_t rank);

/* A tensor that is compared rank by rank, from byte BEGIN on, by way of two buffers of N bytes. */
int rfs_verify_own(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor, uint64_t begin,
                   size_t n, unsigned char *got, unsigned char *wanted, struct rfs_error *err);
/*
 * Whether all that a rank has of a tensor has the bytes that would be shown there: 1, 0 or -errno;
 * by way of the same.
 */
int rfs_verify_is_shown(struct rfs_verify *verify, const struct rfs_whole_tensor *tensor,
                        uint32_t rank, size_t n, unsigned char *got, unsigned char *wanted,
                        struct rfs_error *err);

/*
 * A finding of no place: of a tensor (NULL: none), of RANK (or RFS_NO_RANK); DETAIL as
 * rfs_findings_add has it.
 */
void rfs_verify_find(struct rfs_verify *verify, enum rfs_finding_kind kind, const char *name,
                     uint32_t rank, const char *detail);
