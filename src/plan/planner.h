/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps a destination rank to the contents of its file and the sources of its bytes.
 *
 * Planning a rank indexes the headers of the source ranks that it needs, puts its parameters in
 * MindSpore's order (the parameter list) and proves that each of its bytes is covered. It reads no
 * tensor (except a few small values, when a lost rank is the only one that is known to hold them,
 * and samples of what ranks should have in common, by the strategy).
 *
 * Cost: a parameter list of 28 bytes a parameter, shared by all ranks of a stage whose parameters
 * have the same types; 64 bytes a planned rank and 4 for each of its sources; one geometry for each
 * distinct (source layout, destination layout, slice type); 16 bytes for each parameter of the
 * source strategy, and 16 to 32 for each name in the source, which is looked up in the strategies
 * once. Planning the first rank of a stage takes time in the parameters, and each other one in
 * those that are copied and in the source cells that its distinct geometries touch (sibling.c), not
 * in ranks times parameters, as long as the headers of a stage agree. Where
 * they do not (remove_redundancy), all ranks of the stage are indexed once, and each parameter is
 * looked up by itself: in 1,024 ranks with 10,000 parameters that is about 60 ms for a rank.
 *
 * Threads: all functions but new and free. The planner's lock is a leaf lock, held for table
 * look-ups only, never across I/O.
 */
#pragma once

#include "base/error.h"
#include "base/pool.h"
#include "base/vec.h"
#include "catalog/catalog.h"
#include "layout/strategy.h"
#include "plan/geometry.h"
#include "plan/names.h"
#include "plan/notes.h"
#include "plan/slice.h"

#include <time.h>

struct rfs_by_rules;
struct rfs_planner;

/*
 * The data that a planner is missing: files that cannot be read, and parameters with a part that no
 * other file has. Zero-initialise; the owner frees both lists.
 */
struct rfs_lacking {
    RFS_VEC(uint32_t) damaged; /* ranks, in no order */
    RFS_VEC(uint32_t) from; /* by name: 1 + a rank that should have such a part; 0: none is known */
};

/* Says whether a rank's file cannot be read. */
static inline bool rfs_lacking_file(const struct rfs_lacking *lacking, uint32_t rank)
{
    for (size_t i = 0; i < lacking->damaged.n; i++)
        if (lacking->damaged.data[i] == rank)
            return true;
    return false;
}

/* Says what a planner does where ranks contradict the strategy of the source (alike.c). */
enum rfs_unlike {
    RFS_UNLIKE_UNASKED, /* does not compare them */
    RFS_UNLIKE_TOLD,    /* makes a note */
    RFS_UNLIKE_JUDGED,  /* refuses the strategy if most of the weights do, else makes a note */
    RFS_UNLIKE_REFUSED, /* refuses the strategy */
};

/*
 * Says what a planner does where data is lost. The last two note it in a struct rfs_lacking, and
 * plan ranks one at a time.
 */
enum rfs_lost {
    RFS_LOST_REFUSED,  /* rfs_planner_new refuses it */
    RFS_LOST_REPORTED, /* plans that need it fail */
    RFS_LOST_LEFT_OUT, /* plans go on without the file, and lack its parameters */
    /* parameter lists have it, because they have its type, but no slice of it may be taken */
    RFS_LOST_LISTED,
};

struct rfs_planner_config {
    struct rfs_catalog *catalog;    /* borrowed, like all of these; they outlive the planner */
    const struct rfs_strategy *src; /* NULL: unsharded, one rank */
    const struct rfs_strategy *dst; /* NULL: unsharded, one rank */
    struct rfs_pool *pool;
    struct rfs_notes *notes; /* NULL: nobody wants notes */
    bool strict; /* refuse parameters that are copied without a proof that they are whole */
    enum rfs_unlike unlike;
    bool keep_empty; /* tensors without bytes stay: safetensors has them, a .ckpt does not */
    /* names and dtypes of the outputs; NULL: as in the source */
    const struct rfs_names *names;
    enum rfs_lost lost;
    struct rfs_lacking *lacking; /* for RFS_LOST_LEFT_OUT and RFS_LOST_LISTED; else NULL */
    /*
     * Result of conversion rules, which also made the catalogue. NULL: the catalogue is made of
     * files.
     */
    const struct rfs_by_rules *by_rules;
};

/* Checks the strategies against each other and against the rank folders; opens no source file. */
int rfs_planner_new(const struct rfs_planner_config *config, struct rfs_planner **out,
                    struct rfs_error *err);
/* The differences between a derived planner and its origin. */
struct rfs_planner_change {
    const struct rfs_strategy *dst; /* NULL: unsharded, one rank */
    struct rfs_notes *notes;        /* NULL: nobody wants notes */
    bool keep_empty;                /* tensors without bytes stay, too */
    struct rfs_lacking *lacking;    /* gets lost data, which is left out; NULL: refuse it */
};
/*
 * Makes another planner of the same source, to look at the output of FROM, which must outlive it.
 * It shares FROM's decision whether the source is one stage by itself, and is not strict.
 */
int rfs_planner_derive(const struct rfs_planner *from, const struct rfs_planner_change *change,
                       struct rfs_planner **out, struct rfs_error *err);
void rfs_planner_free(struct rfs_planner *planner);

/* Bytes of tensors in one destination file; more are refused. */
#define RFS_FILE_MOST (UINT64_C(1) << 50)

struct rfs_scale {
    uint32_t src_devices, src_stages; /* devices of one stage */
    uint32_t dst_devices, dst_stages;
    uint32_t src_base; /* the source rank that the first stage begins with */
};
void rfs_planner_scale(const struct rfs_planner *planner, struct rfs_scale *out);
/*
 * Returns the stage that the destination files are parts of (MindSpore's transformation by stage:
 * both strategies have one stage and the source's parameters are a part of the destination's; or
 * there is no destination, and the source strategy is of a later stage), or -1.
 */
int64_t rfs_planner_single_stage(const struct rfs_planner *planner);

/* A parameter of a destination file. No two in a file have one shown name. */
struct rfs_target {
    uint32_t name;
    uint32_t type;       /* of the destination slice; id in the catalogue's types */
    uint32_t stage;      /* the source stage whose files give it */
    uint32_t geometry;   /* of the planner's; RFS_NO_ID: copied unsliced */
    uint32_t shown_name; /* in the file; id in the catalogue's names */
    uint32_t shown_type; /* its type there; differs from type in the dtype and the bytes only */
    uint32_t lengths;    /* of a map tensor's messages; id of rfs_catalog_lengths; else RFS_NO_ID */
};

/*
 * The parameters of a destination file, in its order. Immutable; lives as long as the planner.
 * Ranks share it, so it names no rank: a list of tensors does (view/tensors.h).
 */
struct rfs_params {
    uint32_t id;    /* dense, from 0 */
    uint32_t stage; /* of the destination */
    size_t n;
    struct rfs_target targets[];
};

struct rfs_rank_plan {
    const struct rfs_params *params;
    struct timespec mtime; /* the latest of its sources */
    uint32_t mode;         /* permissions that hold for all of its sources, & 0444 */
    uint32_t uid, gid;     /* as rfs_access_both makes them of the sources' */
    uint32_t n_sources;
    uint32_t *sources; /* files that it depends on, ids in the catalogue's files; owned */
};

/*
 * Takes one more file into the attributes of a plan, whose mode begins as 0444 and whose sources
 * have room. 0 or -errno with *err filled.
 */
int rfs_plan_add_file(struct rfs_files *files, uint32_t file, struct rfs_rank_plan *plan,
                      struct rfs_error *err);

/* Gives the plan of a destination rank, made at the first call. 0, or -errno with *err filled. */
int rfs_planner_rank(struct rfs_planner *planner, uint32_t rank, const struct rfs_rank_plan **out,
                     struct rfs_error *err);
/*
 * Checks that the strategies fit the source's network: it indexes one rank of each source stage,
 * and compares samples of it with those of other ranks. Returns 0, or with *err filled the error of
 * planning a rank, or -EIO if object storage does not deliver a header.
 */
int rfs_planner_check_shapes(struct rfs_planner *planner, struct rfs_error *err);
/* Returns the plan of a rank if it is made already, else NULL. Lock-free. */
const struct rfs_rank_plan *rfs_planner_ready(const struct rfs_planner *planner, uint32_t rank);

/*
 * Sets the shown name and type of the caller's target. The name becomes RFS_NO_ID if the user
 * leaves the parameter out. Returns 0, or -ENOMEM with *err filled.
 */
int rfs_planner_show(struct rfs_planner *planner, struct rfs_target *target, struct rfs_error *err);

/* Says whether a cast of conversion rules, and not dtype= alone, chose a target's shown dtype. */
bool rfs_planner_casts(const struct rfs_planner *planner, const struct rfs_target *target);

/*
 * Returns the geometry of a target of a planned rank, which is the planner's, or NULL when it is
 * copied unsliced.
 */
const struct rfs_geometry *rfs_planner_geometry(struct rfs_planner *planner,
                                                const struct rfs_target *target);

/*
 * Finds the source of each byte of a target of a planned rank. The caller zero-initialises the
 * slice, may pass it again, and frees it by rfs_slice_free. A target without bytes gets a slice
 * without blocks. Returns 0, -ENOMEM, or the error of rebuilding an index that was dropped to save
 * memory (-ESTALE: a source was changed).
 */
int rfs_planner_slice(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                      struct rfs_slice *slice);
/*
 * Does what rfs_planner_slice does for a box of the target: from LO up to HI along each axis, in
 * elements. The slice has the bytes of the box alone, row by row. The caller ensures that LO <= HI
 * <= the target's dims.
 */
int rfs_planner_box(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                    const uint64_t *lo, const uint64_t *hi, struct rfs_slice *slice);

/* ---- copies ---------------------------------------------------------------------------------- */

/*
 * These functions give access to all copies of a target's data in the source, so that a caller can
 * compare them: replicas, and the files of other stages. They index ranks when needed. A rank that
 * cannot be indexed counts as one without the parameter.
 *
 * Copies have numbers. Copy 0 has the pieces that rfs_planner_slice takes. Each further copy takes
 * its pieces from the next rank that holds the same, so all copies together read every piece of
 * every rank once. In a checkpoint that describes itself, files count instead of ranks.
 */

/* Findings about a copy. */
struct rfs_copy {
    size_t others; /* blocks that are not those of copy 0; 0: it is copy 0 */
    /* a source rank that has another type there, so that its piece is left out, or RFS_NO_RANK */
    uint32_t odd;
};

/*
 * Looks for a target in source STAGE, for a destination rank. Returns 1 and fills *out, whose type
 * may differ; 0 if that stage has none; or -errno with *err filled. O(ranks of the stage) if most
 * lack it.
 */
int rfs_planner_twin(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t stage, struct rfs_target *out, struct rfs_error *err);

/*
 * Returns an upper bound of the number of copies: the source ranks that hold each piece, or all of
 * a stage if no strategy knows the parameter; in a checkpoint that describes itself, the most files
 * that hold one part.
 */
uint32_t rfs_planner_copies(struct rfs_planner *planner, const struct rfs_target *target);

/* Does what rfs_planner_slice does, for copy number COPY. Missing pieces come from copy 0. */
int rfs_planner_copy(struct rfs_planner *planner, uint32_t rank, const struct rfs_target *target,
                     uint32_t copy, struct rfs_slice *slice, struct rfs_copy *out);

/* A further copy of a chunk that cannot be compared. */
struct rfs_bad_copy {
    const char *file;            /* path; the catalogue's */
    const struct rfs_error *why; /* error of reading it; NULL: the file has something else there */
    const struct rfs_type *type; /* type of the data that is there instead; NULL: nothing is */
    uint64_t at;                 /* offset of that data in the file */
    const struct rfs_type *want; /* the chunk's */
    uint64_t begin;              /* where the chunk begins in the tensor, in bytes row by row */
};
typedef void rfs_bad_copy_fn(void *ctx, const struct rfs_bad_copy *bad);
/*
 * Calls EACH for every further copy of a target that rfs_planner_copy leaves out. Only a checkpoint
 * that describes itself has such copies. Returns 0 or -errno. O(copies).
 */
int rfs_planner_bad_copies(struct rfs_planner *planner, uint32_t rank,
                           const struct rfs_target *target, rfs_bad_copy_fn *each, void *ctx);
