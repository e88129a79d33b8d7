/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The networks that `reshard example` writes: parameters with their shapes, and how each is cut on
 * the two sides. Nothing here reads or writes files.
 */
#pragma once

#include "base/error.h"
#include "base/vec.h"
#include "formats/dtype.h"

enum { RFS_NET_DIMS = 2, RFS_NET_AXES = 3 };

/* A layout as a strategy file has it. */
struct rfs_cut {
    uint32_t n_dev;
    uint32_t dev[RFS_NET_AXES]; /* device matrix, outermost axis first; its product is the ranks */
    int32_t map[RFS_NET_DIMS];  /* per tensor axis: a device axis from the right, or -1 */
    bool opt;                   /* axis 0 is cut further over all device axes that map leaves out */
};

struct rfs_net_param {
    char name[96];
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_NET_DIMS];
    bool shared;           /* in both strategies; otherwise in none, and whole on each rank */
    bool per_rank;         /* content differs from rank to rank (only when not shared) */
    bool moment;           /* an optimizer state */
    struct rfs_cut cut[2]; /* source, destination */
};

enum rfs_net_kind {
    RFS_NET_TP,       /* transformer, tensor parallel over all ranks */
    RFS_NET_MIXED,    /* transformer, data parallel and tensor parallel */
    RFS_NET_OPT,      /* as MIXED, and optimizer shards in the source */
    RFS_NET_COLS,     /* matrices cut along the last axis, wanted along the first */
    RFS_NET_ROWS,     /* matrices cut along the first axis on both sides */
    RFS_NET_TUTORIAL, /* three dense layers */
};

struct rfs_net_options {
    enum rfs_net_kind kind;
    uint32_t ranks[2];  /* source, destination */
    uint32_t layers;    /* 0: the default */
    uint64_t hidden;    /* 0: the default; rounded up until every cut divides */
    uint64_t size;      /* bytes of the whole tensors to aim at; 0: as layers and hidden give */
    uint64_t run_bytes; /* COLS: bytes of a row in one source rank; 0: the default */
    enum rfs_dtype dtype;
};

struct rfs_net {
    RFS_VEC(struct rfs_net_param) params; /* in the order of the source files */
    uint32_t ranks[2];
    uint64_t bytes; /* of the whole tensors, each counted once */
};

/* 0 with *net to be freed by the caller, or -errno with *err filled. */
int rfs_net_make(const struct rfs_net_options *options, struct rfs_net *net, struct rfs_error *err);
void rfs_net_free(struct rfs_net *net);

/* Pieces of each axis under a cut; axis 0 includes the optimizer shard. */
void rfs_cut_pieces(const struct rfs_cut *cut, uint32_t ndim, uint32_t *pieces);
/* Which piece of each axis RANK holds. */
void rfs_cut_cell(const struct rfs_cut *cut, uint32_t ndim, uint32_t rank, uint32_t *cell);
/*
 * Optimizer shard as strategy files have it: how many pieces, and their stride in ranks; 0 and 0.
 */
void rfs_cut_shard(const struct rfs_cut *cut, uint32_t ndim, uint32_t *size, uint32_t *step);
