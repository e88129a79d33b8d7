/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The networks that `reshard example` writes, and their files: parameters with their shapes, how
 * each is cut on the two sides, the content of its tensors, source ranks and strategies. All is
 * exported for tests.
 */
#pragma once

#include "base/error.h"
#include "base/progress.h"
#include "base/vec.h"
#include "formats/index.h"

/* ---- networks -------------------------------------------------------------------------------- */

enum { RFS_NET_DIMS = 2, RFS_NET_AXES = 3 };

/* A layout, as a strategy file has it. */
struct rfs_net_cut {
    uint32_t n_dev;
    uint32_t dev[RFS_NET_AXES]; /* device matrix, outermost axis first; its product is the ranks */
    int32_t map[RFS_NET_DIMS];  /* device axis of each tensor axis, from the right, or -1 */
    bool opt;                   /* axis 0 is cut further over all device axes that map leaves out */
};

struct rfs_net_param {
    char name[96];
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_NET_DIMS];
    bool shared;               /* in both strategies; else in none, and whole on each rank */
    bool per_rank;             /* content differs from rank to rank (only when not shared) */
    bool moment;               /* an optimizer state */
    struct rfs_net_cut cut[2]; /* source, destination */
};

enum rfs_net_kind {
    RFS_NET_TP,       /* transformer, tensor parallel over all ranks */
    RFS_NET_MIXED,    /* transformer, data parallel and tensor parallel */
    RFS_NET_OPT,      /* MIXED with optimizer shards in the source */
    RFS_NET_COLS,     /* matrices cut along the last axis, wanted along the first */
    RFS_NET_ROWS,     /* matrices cut along the first axis on both sides */
    RFS_NET_TUTORIAL, /* three dense layers */
};

struct rfs_net_options {
    enum rfs_net_kind kind;
    uint32_t ranks[2];  /* source, destination */
    uint32_t layers;    /* number of layers; 0: the default */
    uint32_t experts;   /* number of experts of each layer of a transformer; 0: it has an MLP */
    uint64_t hidden;    /* width; 0: the default; rounded up until every cut divides */
    uint64_t size;      /* bytes of the whole tensors to aim at; 0: what layers and hidden give */
    uint64_t run_bytes; /* COLS: bytes of a row in one source rank; 0: the default */
    enum rfs_dtype dtype;
};

struct rfs_net {
    RFS_VEC(struct rfs_net_param) params; /* parameters in the order of the source files */
    uint32_t ranks[2];
    uint64_t bytes; /* bytes of the whole tensors, each counted once */
};

/* Makes a network, to be freed by the caller. 0 or -errno with *err filled. */
int rfs_net_make(const struct rfs_net_options *options, struct rfs_net *net, struct rfs_error *err);
void rfs_net_free(struct rfs_net *net);

/* Sets how many pieces a cut makes of each axis; axis 0 includes the optimizer shard. */
void rfs_net_cut_pieces(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t *pieces);
/* Sets which piece of each axis RANK holds. */
void rfs_net_cut_cell(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t rank, uint32_t *cell);
/*
 * Sets the optimizer shard as strategy files have it: how many pieces, and their stride in ranks; 0
 * and 0 for none.
 */
void rfs_net_cut_shard(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t *size,
                       uint32_t *step);

/*
 * The content of an example's tensors is a pure function of the seed, the parameter's name and the
 * element's place in the whole tensor, so that any slice can be computed by anybody, alone.
 * scripts/check-example computes it independently.
 *
 *     mix(z)   = SplitMix64's finaliser: z ^= z >> 30, z *= 0xbf58476d1ce4e5b9, z ^= z >> 27,
 *                z *= 0x94d049bb133111eb, z ^= z >> 31, all modulo 2^64
 *     key      = mix(FNV-1a-64(name) ^ mix(seed))
 *     word(j)  = mix(key + (j + 1) * 0x9e3779b97f4a7c15), j = 0, 1, …
 *
 * FNV-1a-64 begins at 0xcbf29ce484222325 and multiplies by 0x100000001b3. The words, little-endian,
 * one after the other, are a stream of bytes. Element i (row-major, of the whole tensor) of s bytes
 * is the stream's bytes [i * s, i * s + s) as a little-endian integer, with these masks applied:
 *
 *     dtype       AND                 OR
 *     Float16     0x9bff              0x2000
 *     BFloat16    0x837f              0x3c00
 *     Float32     0x837fffff          0x3c000000
 *     Float64     0x806fffffffffffff  0x3f80000000000000
 *     Bool        0x01                0x00
 *     integers    all ones            0
 *
 * So a floating-point number is normal and below 1 in magnitude. The name of rng_state on source
 * rank r counts as rng_state@r, in decimal.
 */
uint64_t rfs_net_value_key(uint64_t seed, const char *name);

/*
 * Writes COUNT elements from element FIRST on to OUT. rfs_net_value_bytes of DTYPE must not be 0.
 */
void rfs_net_value_fill(uint64_t key, enum rfs_dtype dtype, uint64_t first, uint64_t count,
                        void *out);

/* Returns the bytes of an element, or 0 when no content is defined for the dtype. */
uint32_t rfs_net_value_bytes(enum rfs_dtype dtype);

/* ---- files ----------------------------------------------------------------------------------- */

/*
 * Makes the strategy of SIDE (0 source, 1 destination): the bytes of a protobuf strategy file,
 * malloc'ed. 0 or -errno with *err filled.
 */
int rfs_example_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                               struct rfs_error *err);

/*
 * Writes the .ckpt file of one source rank to FD, with memory of about a MiB whatever its size.
 * PATH is for messages. Bytes are added to PROGRESS, unless it is NULL. 0 or -errno with *err
 * filled.
 */
int rfs_example_write_rank(const struct rfs_net *net, uint64_t seed, uint32_t rank, int fd,
                           const char *path, struct rfs_progress *progress, struct rfs_error *err);
