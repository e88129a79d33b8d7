/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of tensors, and where the bytes of each come from: those of a shown file, of a destination
 * rank, of a whole checkpoint, of hfai's parts, of what conversion rules make. Everything above the
 * plan that needs tensors takes them from such a list: readers of files, the hidden folder,
 * reshard_tensors_load, and all commands that compare, sum up and explain.
 *
 * A list is a few pointers, and may be copied. What it points to is the view's, unless its maker
 * says otherwise. Cost: none beside the plan. Thread-safe, as planners are.
 */
#pragma once

#include "assemble/assembler.h"
#include "plan/trace.h"

struct rfs_image;
struct rfs_view;

/* A name, for looking it up. */
struct rfs_tensors_name {
    uint32_t name; /* id in the catalogue's names */
    uint32_t i;
};

struct rfs_tensors {
    struct rfs_view *view;       /* the view that reads their bytes */
    const char *path;            /* path of the source, for messages */
    struct rfs_catalog *catalog; /* names and types are ids in its tables */
    struct rfs_planner *planner; /* the planner of rank RANK */
    uint32_t rank;
    const struct rfs_storages *storages; /* tensors in objects of torch.save; or NULL */
    const struct rfs_params *params;     /* NULL: targets are storages alone */
    const struct rfs_rank_plan *plan;
    struct rfs_tensors_name *by_name; /* ascending; NULL before rfs_tensors_sort_names */
};

/* A tensor of a list. */
struct rfs_tensor {
    const struct rfs_tensors *list; /* NULL: none */
    uint32_t i;
};

/* Returns the number of tensors or storages of a list; 0 of one that is zero. */
static inline size_t rfs_tensors_count(const struct rfs_tensors *tensors)
{
    return tensors->storages ? tensors->storages->items.n
           : tensors->params ? tensors->params->n
                             : 0;
}

/* Returns the target that tensor I is. */
static inline const struct rfs_target *rfs_tensors_target(const struct rfs_tensors *tensors,
                                                          size_t i)
{
    return &tensors->params->targets[i];
}

/* Returns the name that tensor I is shown by. */
static inline const char *rfs_tensors_name(const struct rfs_tensors *tensors, size_t i)
{
    return rfs_catalog_name(tensors->catalog, rfs_tensors_target(tensors, i)->shown_name);
}

/* Returns the dtype and the shape that tensor I is shown with. */
static inline const struct rfs_type *rfs_tensors_type(const struct rfs_tensors *tensors, size_t i)
{
    return rfs_catalog_type(tensors->catalog, rfs_tensors_target(tensors, i)->shown_type);
}

static inline const char *rfs_tensor_name(struct rfs_tensor tensor)
{
    return rfs_tensors_name(tensor.list, tensor.i);
}
static inline const struct rfs_type *rfs_tensor_type(struct rfs_tensor tensor)
{
    return rfs_tensors_type(tensor.list, tensor.i);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Returns the tensors of a shown file, whose image is ready. */
struct rfs_tensors rfs_tensors_of_file(struct rfs_view *view, size_t file,
                                       const struct rfs_image *image);
/*
 * Lists the tensors of a rank of a planner, which is planned at the first call. Returns 0, or
 * -errno with *err filled.
 */
int rfs_tensors_of_rank(struct rfs_view *view, struct rfs_planner *planner, uint32_t rank,
                        struct rfs_tensors *out, struct rfs_error *err);

/*
 * Sorts the names of a list, for rfs_tensors_find; the caller frees by_name. Returns 0 or -ENOMEM.
 * Costs 8 bytes a tensor.
 */
int rfs_tensors_sort_names(struct rfs_tensors *tensors);
/* Returns the tensor that is shown by that name, or none, as in an empty list. O(log n). */
struct rfs_tensor rfs_tensors_find(const struct rfs_tensors *tensors, const char *name);

/* ---- their bytes ----------------------------------------------------------------------------- */

/* Makes the slice of tensor or storage I; costs and returns what rfs_planner_slice does. */
int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t i, struct rfs_slice *slice);
/*
 * Finds the pieces of tensor I, or of a box of it, with their places in the tensor: explains what
 * rfs_tensors_slice makes. Costs and returns what rfs_planner_trace does.
 */
int rfs_tensors_pieces(const struct rfs_tensors *tensors, uint32_t i,
                       const struct rfs_plan_part *box, struct rfs_trace *out);
/*
 * Returns whether tensor or storage I is shown with another dtype than its sources have; sets *cast
 * then.
 */
bool rfs_tensors_is_cast(const struct rfs_tensors *tensors, uint32_t i, struct rfs_casting *cast);
/*
 * Reads bytes [begin, begin + size) of a tensor whose SLICE that is, or of another copy of it, as
 * shown. Returns 0, or -errno with *err filled.
 */
int rfs_tensor_read(struct rfs_tensor tensor, const struct rfs_slice *slice, uint64_t begin,
                    size_t size, void *buf, struct rfs_error *err);
