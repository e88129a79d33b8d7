/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of a verification. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"

#include <pthread.h>

enum rfs_finding_kind {
    RFS_FOUND_RANK,        /* a rank has no file, or one that cannot be read; detail says why */
    RFS_FOUND_SOURCE_RANK, /* a rank of the source, likewise; detail says why */
    RFS_FOUND_PARTIAL,     /* a tensor is incomplete; detail says why */
    RFS_FOUND_UNCOMPARED,  /* a tensor of the source is incomplete; detail says why */
    RFS_FOUND_MISSING,     /* a tensor is not there */
    RFS_FOUND_EXTRA,       /* a tensor is there, and should not be */
    RFS_FOUND_TYPE,        /* a tensor has another dtype or shape; detail says which */
    RFS_FOUND_BYTES,       /* a tensor has not the source's bytes */
    RFS_FOUND_MANIFEST,    /* a tensor is not as the manifest says; detail says how */
    RFS_FOUND_REPLICA,     /* a copy has not the bytes of the other ranks that hold it */
    RFS_FOUND_FRAME,       /* what is in a file beside tensors is not what a mount shows */
    RFS_FOUND_FILE,        /* a file is missing, of another size, or unreadable; detail says it */
    RFS_FOUND_VALUE,       /* a value that is no tensor is not the source's; detail says how */
    /*
     * The others are notes. A rank has bytes of its own, but no strategy says that it should not.
     */
    RFS_FOUND_OWN,
    /* a rank has what a mount would show, but ranks of the source that should agree differ */
    RFS_FOUND_SOURCE,
    RFS_FOUND_MODELS, /* only the models of hfai's parts were compared; detail names the side */
    /* a file is of another size or order than a mount's: its tensors alone were compared */
    RFS_FOUND_OTHERWISE,
};

/* Returns whether findings of a kind are faults, not notes. */
static inline bool rfs_finding_is_fault(enum rfs_finding_kind kind)
{
    return kind < RFS_FOUND_OWN;
}

#define RFS_FOUND_NOWHERE UINT64_MAX /* no byte of a tensor */

struct rfs_finding {
    enum rfs_finding_kind kind;
    const char *name;   /* name of the tensor; NULL: a rank or a file as a whole; borrowed */
    uint32_t rank;      /* RFS_NO_RANK: none */
    const char *detail; /* more text, or NULL; owned by the findings */
    const char *file;   /* path of the file with the first difference, or NULL; borrowed */
    uint64_t offset;    /* offset of the first difference in that file */
    uint64_t at;        /* byte of the whole tensor that differs; or RFS_FOUND_NOWHERE */
    /*
     * Sorted: the end of the group that begins here, in the list. A group is findings of one name,
     * kind and detail; without ranks, also of one file.
     */
    size_t group;
};

struct rfs_findings {
    pthread_mutex_t lock; /* guards the rest; a leaf lock */
    /* keys of findings, so that each exists once; ids are indexes in list */
    struct rfs_intern *keys;
    RFS_VEC(struct rfs_finding) list;
    struct rfs_arena arena; /* holds details */
    bool failed;            /* out of memory */
};

/* Adds a finding that is in no file; arguments are members of struct rfs_finding. */
void rfs_findings_add_plain(struct rfs_findings *findings, enum rfs_finding_kind kind,
                            const char *name, uint32_t rank, const char *detail);
/* Sorts by name, kind, detail, file where there is no rank, and rank; sets the groups. */
void rfs_findings_sort(struct rfs_findings *findings);
/* Returns whether a tensor, or anything (NULL), has a fault; sorted or not. */
bool rfs_findings_fault(const struct rfs_findings *findings, const char *name);

/* Initialises zeroed findings. 0 or -ENOMEM; to be freed in any case. */
int rfs_findings_init(struct rfs_findings *findings);
/* Frees what the findings own. */
void rfs_findings_free(struct rfs_findings *findings);

/*
 * Adds a finding; copies detail. Findings of one kind, name, rank and detail are one, at the first
 * byte; without a rank, one in each file. From any thread, before they are sorted.
 */
void rfs_findings_add(struct rfs_findings *findings, const struct rfs_finding *finding);
