/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save of DeepSpeed's ZeRO while it is opened: what its files say (zero.c), and the tensors that
 * are made of that (zero_tensors.c).
 */
#pragma once

#include "formats/zero/zero.h"

#define RFS_ZERO_REMEDY "all files of one save, as DeepSpeed wrote them"

/* What a name of the model stands for. */
enum rfs_zero_use {
    RFS_ZERO_NONE,
    RFS_ZERO_TRAINED,
    RFS_ZERO_FROZEN,
    RFS_ZERO_BUFFER,
    RFS_ZERO_SHARED
};

struct rfs_zero_param {
    uint32_t name; /* id in the tables */
    uint32_t type; /* shape, as a type without a dtype; id in the tables */
    uint64_t elems;
    uint64_t gap; /* elements behind it that are of no parameter */
};

struct rfs_zero_group {
    size_t first, n; /* parameters */
};

/* A row of elements in a rank's file. */
struct rfs_zero_part {
    uint64_t at, elems;
    uint32_t file;
    uint8_t dtype;
    bool there, is_scalar;
};

/*
 * The weights, or a state of the optimizer: parts of all flat tensors, rank by rank. A rank's file,
 * which lists them, pays for its parts: memory of ranks that were not read is not touched.
 */
struct rfs_zero_state {
    char *key;                   /* NULL: the weights; owned */
    struct rfs_zero_part *parts; /* [world * flats] */
};

/* A name for the data of another one. */
struct rfs_zero_alias {
    uint32_t name, of;
};

struct rfs_zero_opening {
    struct rfs_chunks *chunks;
    struct rfs_tables *tables;
    struct rfs_files *files;
    struct rfs_error *err;
    uint32_t n_models, world;
    bool stage3;
    bool universal;                        /* each parameter is a group of its own, with one part */
    bool by_rank;                          /* each rank has a part of each trained parameter */
    uint32_t n_pieces;                     /* pieces of a frozen parameter of stage 3 */
    RFS_VEC(struct rfs_zero_param) params; /* trained, then frozen ones of stage 3 */
    RFS_VEC(struct rfs_zero_group) groups;
    RFS_VEC(struct rfs_zero_alias) aliases;
    RFS_VEC(uint32_t) roles; /* by name id: a role, and a number of frozen ones times 8 */
    size_t n_trained;
    size_t n_flats;                        /* flat tensors of a rank: groups, or subgroups */
    RFS_VEC(struct rfs_zero_state) states; /* the weights first */
    struct rfs_zero_part *fragments;       /* [n_pieces * frozen]; as those of states */
    char version[32];                      /* of the first file that has it */
    double steps; /* of the optimizer, by the first file that counts them */
    bool counts;  /* one does */
    uint64_t global_steps,
        skipped_steps;   /* of the engine, by the first file of the model's states */
    bool engine_counts;  /* it does */
    uint64_t own_chunks; /* chunks of no alias */
    size_t left_out;
};

/* Returns what a name stands for, by its id. */
static inline enum rfs_zero_use rfs_zero_use_of(const struct rfs_zero_opening *opening,
                                                uint32_t name)
{
    return name < opening->roles.n ? (enum rfs_zero_use)(opening->roles.data[name] & 7)
                                   : RFS_ZERO_NONE;
}

/* Returns the text of a name, by its id. */
static inline const char *rfs_zero_text(const struct rfs_zero_opening *opening, uint32_t name)
{
    return rfs_intern_text(opening->tables->names, name);
}

/*
 * Declares the tensors, and where their elements are. 0, or -errno with the opening's error filled.
 */
int rfs_zero_declare(const struct rfs_zero_opening *opening);
