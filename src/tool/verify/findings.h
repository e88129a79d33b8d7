/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings of a verification: a fault of a rank, or of the whole. Several of one kind and name
 * become one with many ranks.
 */
#pragma once

#include "base/arena.h"
#include "base/intern.h"
#include "base/vec.h"
#include "catalog/catalog.h"

#include <pthread.h>

enum rfs_finding_kind {
    RFS_FOUND_RANK,        /* a rank has no file, or one that cannot be read; detail says why */
    RFS_FOUND_SOURCE_RANK, /* likewise, of the source; detail says why */
    RFS_FOUND_PARTIAL,     /* a tensor is incomplete; detail says why */
    RFS_FOUND_UNCOMPARED,  /* nor that of the source, to be compared with; detail says why */
    RFS_FOUND_MISSING,     /* a tensor is not there */
    RFS_FOUND_EXTRA,       /* or is, and should not be */
    RFS_FOUND_TYPE,        /* of another dtype or shape; detail says which */
    RFS_FOUND_BYTES,       /* not the source's */
    RFS_FOUND_MANIFEST,    /* not the manifest's */
    RFS_FOUND_REPLICA,     /* not what the other ranks have that hold the same */
    RFS_FOUND_FRAME,       /* what is in a file beside tensors is not what a mount shows */
    RFS_FOUND_FILE,        /* a file is missing, of another size, or unreadable; detail says it */
    RFS_FOUND_VALUE,       /* a value that is no tensor is not the source's; detail says how */
    RFS_FOUND_OWN, /* likewise, but no strategy says that they do: no fault, as what follows */
    /* what a mount would show, which is not in all ranks of the source the same */
    RFS_FOUND_SOURCE,
    RFS_FOUND_MODELS, /* only the models of hfai's parts were compared; detail names the side */
    /* a file is of another size or order than a mount's: its tensors alone were compared */
    RFS_FOUND_OTHERWISE,
};
static inline bool rfs_finding_is_fault(enum rfs_finding_kind kind)
{
    return kind < RFS_FOUND_OWN;
}

#define RFS_NOWHERE_AT UINT64_MAX

struct rfs_finding {
    enum rfs_finding_kind kind;
    const char *name;   /* of the tensor; NULL: of a rank as a whole; borrowed */
    uint32_t rank;      /* or RFS_NO_RANK */
    const char *detail; /* or NULL; the findings' */
    const char *file;   /* where the first difference is, or NULL; borrowed */
    uint64_t offset;    /* in there, if there is a file */
    uint64_t at;        /* the same, in bytes of the whole tensor; or RFS_NOWHERE_AT */
};

/* Zero-initialise, then rfs_findings_init. */
struct rfs_findings {
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    /* of findings, so that each is there once: their ids are the places in the list */
    struct rfs_intern *keys;
    RFS_VEC(struct rfs_finding) list;
    struct rfs_arena arena; /* of details */
    bool failed;            /* out of memory */
};

/* 0 or -ENOMEM. To be freed in any case. */
int rfs_findings_init(struct rfs_findings *findings);
void rfs_findings_free(struct rfs_findings *findings);

/*
 * Adds one; copies detail. Of one kind, name, rank and detail the first place counts; without a
 * rank, the first one in each file. From any thread, before they are sorted.
 */
void rfs_findings_add(struct rfs_findings *findings, const struct rfs_finding *finding);
/* By name, kind, detail, file where there is no rank, and rank. */
void rfs_findings_sort(struct rfs_findings *findings);
/*
 * Where those end, in the sorted list, that are of the same name, kind and detail as the one at
 * FIRST; without ranks, also of the same file.
 */
size_t rfs_findings_group(const struct rfs_findings *findings, size_t first);
/* Whether a tensor, or any (NULL), has one that is a fault; sorted or not. */
bool rfs_findings_fault(const struct rfs_findings *findings, const char *name);

/*
 * "rank 3", "ranks 0-5, 7" of findings [first, end), malloc'ed; "" if they are of no rank; NULL: no
 * memory.
 */
char *rfs_findings_ranks(const struct rfs_findings *findings, size_t first, size_t end);
