/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two files that run the pickle of a .metadata only. */
#pragma once

#include "base/error.h"
#include "formats/chunks/dcp_names.h"
#include "formats/walker.h"

#define RFS_DCP_REMEDY_SAVE "save it with torch.distributed.checkpoint.save of torch 2.1 or later"

enum {
    RFS_DCP_WINDOW = 1 << 17,
    RFS_DCP_EMPTY_TUPLE = 1,                             /* its place */
    RFS_DCP_NUMBER_MOST = 1 << (32 - RFS_DCP_KIND_BITS), /* of a value's bits */
};

struct rfs_dcp_machine {
    struct rfs_dcp_pickle *pickle;
    rfs_read_fn *read;
    void *ctx;
    uint64_t size;
    const char *file;
    struct rfs_error *err;
    size_t most;       /* bytes of memory */
    size_t text_bytes; /* of it, for texts */
    RFS_VEC(uint32_t) stack;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    RFS_VEC(uint32_t) memo;
    uint64_t op; /* where the opcode at hand is in the file */
    uint64_t at; /* where the window is */
    size_t p, n; /* in the window: the next byte, how many there are */
    unsigned char window[RFS_DCP_WINDOW];
};

/* Functions that return an int: 0, or -errno with the error filled. */

/* ---- errors (dcp_pickle.c) ---- */

struct rfs_where rfs_dcp_here(const struct rfs_dcp_machine *machine);
int rfs_dcp_damaged(const struct rfs_dcp_machine *machine, const char *what);
int rfs_dcp_too_large(const struct rfs_dcp_machine *machine);

/* ---- the stack, and operations on its values (dcp_make.c) ---- */

/* How many values lie above the last mark (or the bottom): only those may be taken. */
size_t rfs_dcp_above_mark(const struct rfs_dcp_machine *machine);
int rfs_dcp_push(struct rfs_dcp_machine *machine, uint32_t value);
int rfs_dcp_pop(struct rfs_dcp_machine *machine, uint32_t *value);
/* N words, zeroes; *place is where. */
int rfs_dcp_new_words(struct rfs_dcp_machine *machine, size_t n, uint32_t *place);
/* A tuple of the last N. */
int rfs_dcp_make_tuple(struct rfs_dcp_machine *machine, size_t n);
int rfs_dcp_make_empty(struct rfs_dcp_machine *machine, enum rfs_dcp_kind kind);
/* Adds the last N to the list or dict below them. */
int rfs_dcp_add(struct rfs_dcp_machine *machine, size_t n, enum rfs_dcp_kind kind);
/* One of the two for the values above the last mark, which is taken off. */
int rfs_dcp_to_mark(struct rfs_dcp_machine *machine, enum rfs_dcp_kind kind);
int rfs_dcp_find_name(struct rfs_dcp_machine *machine);
int rfs_dcp_call(struct rfs_dcp_machine *machine);
int rfs_dcp_make_object(struct rfs_dcp_machine *machine);
int rfs_dcp_build(struct rfs_dcp_machine *machine);
