/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as it is written, to be written again: with the operators' strategies and the stage, which a
 * strategy (strategy.h) does not keep, and with all that MindSpore reads back. What is read was parsed as a strategy
 * before, so that what it holds is sound.
 *
 * Two things are in one form only. Protobuf says which axes of a tensor are cut by several device axes (a nested
 * tensor map), JSON has that flattened; JSON has the tensor's shape, expanded likewise, protobuf has none. Who knows
 * the tensor tells it by rfs_written_shape. What would be lost otherwise is refused by the writers, and so is what
 * the readers do not know.
 *
 * Costs about 200 bytes a parameter, 60 an operator, the names and 8 for each number. Not thread-safe.
 */
#ifndef RFS_LAYOUT_WRITTEN_H
#define RFS_LAYOUT_WRITTEN_H

#include "base/arena.h"
#include "base/vec.h"
#include "layout/strategy.h"

struct rfs_numbers {
    int64_t *data; /* in the arena */
    uint32_t n;
};

/* How an operator cuts its inputs. */
struct rfs_written_node {
    const char *name; /* in the arena, as below */
    uint32_t stage;
    uint32_t n_cuts;
    struct rfs_numbers *cuts; /* of each input */
};

struct rfs_written_param {
    const char *name; /* with its stage before it, in merged files */
    struct rfs_numbers dev;
    uint32_t n_maps;
    struct rfs_numbers *maps; /* one for all axes of the tensor, or one for each */
    bool flat;                /* as JSON has it: it may be a nested map */
    bool has_shape;
    struct rfs_numbers shape;          /* of the whole tensor, expanded as the map is */
    struct rfs_numbers split, offsets; /* of a manual split */
    int64_t field, opt_step, opt_size;
};

struct rfs_written {
    const char *name; /* of the file, for messages; borrowed */
    struct rfs_arena arena;
    int64_t current_stage; /* MindSpore's counter, not a pipeline stage; 1 in merged files */
    RFS_VEC(struct rfs_written_node) nodes;
    RFS_VEC(struct rfs_written_param) params;
};

/* Zero-initialise it. */
void rfs_written_free(struct rfs_written *written);

/*
 * Reads the bytes of a file that rfs_strategy_parse has taken; NAME (borrowed) decides between protobuf and JSON, as
 * there. Of names that a JSON file has twice the last counts, in the place of the first. 0, -ENOMEM, or -EINVAL with
 * *err filled for what would be lost.
 */
int rfs_written_read(const char *name, const void *data, size_t size, struct rfs_written *out,
                     struct rfs_error *err);

/* The whole shape of the tensor of parameter I. -EINVAL with *err filled when it is not that of the file's layout. */
int rfs_written_shape(struct rfs_written *written, size_t i, uint32_t ndim, const uint64_t *whole,
                      struct rfs_error *err);

/*
 * A strategy made by rules (layouts that are open need NDIM, see below), or any other of which no file is at hand.
 * Names get their stage if there are several. Each stage gets one operator of no inputs, as MindSpore refuses to
 * merge or to transform by files without operators.
 */
struct rfs_written_tensors {
    /* The tensor's number of axes; -1 when the tensor is not known. */
    int (*ndim)(void *ctx, const char *param, uint32_t stage);
    void *ctx;
};
int rfs_written_make(const struct rfs_strategy *strategy, const struct rfs_written_tensors *tensors,
                     struct rfs_written *out, struct rfs_error *err);

/*
 * Appends the file of a pipeline's stage as merge_pipeline_strategys does: parameters get the stage of the first
 * operator before their names.
 */
int rfs_written_merge(struct rfs_written *into, const struct rfs_written *stage,
                      struct rfs_error *err);

/* The bytes of a file, malloc'ed. 0, -ENOMEM, or -EINVAL with *err filled for what the form cannot hold. */
int rfs_written_protobuf(const struct rfs_written *written, char **data, size_t *size,
                         struct rfs_error *err);
/*
 * MERGED: as merge_pipeline_strategys writes (Python's json.dump, in the order at hand), else as the compiler does
 * (names in byte order, no spaces). Of what has one name the last counts, in the place of the first.
 */
int rfs_written_json(const struct rfs_written *written, bool merged, char **data, size_t *size,
                     struct rfs_error *err);

/* ---- inside the room ---- */

int rfs_written_read_protobuf(const void *data, size_t size, struct rfs_written *out,
                              struct rfs_error *err);
int rfs_written_read_json(const char *data, size_t size, struct rfs_written *out,
                          struct rfs_error *err);
/* Room for N numbers; false when out of memory. */
bool rfs_numbers_new(struct rfs_arena *arena, size_t n, struct rfs_numbers *out);
/* Whether any axis has several device axes. */
bool rfs_written_is_nested(const struct rfs_written_param *param);

#endif
