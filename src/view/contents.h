/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a view is made of and shows, for the rooms above that ask about checkpoints. Its inside
 * (internal.h) stays in this room. Thread-safe.
 */
#pragma once

#include "formats/image.h"
#include "formats/safetensors/safetensors.h"
#include "plan/planner.h"
#include "reshard.h"
#include "view/tensors.h"

struct rfs_options;

/* Ids of a save's entries have its number, from 1 up, in the bits from here up. */
#define RFS_VIEW_SAVE_SHIFT 48
/* Ids of the entry that two saves have by one name differ by this in the bits below. */
#define RFS_VIEW_SAVE_STEP UINT64_C(256)

/*
 * Returns what is added to the ids of a save. Linux finds inodes by a hash to which the high bits
 * add nothing, so they alone would put the same file of all saves into one chain.
 */
static inline uint64_t rfs_view_save_base(uint64_t number)
{
    return number << RFS_VIEW_SAVE_SHIFT | number * RFS_VIEW_SAVE_STEP;
}

/* What a plain view is made of: all is the view's, and constant once it is open. */
struct rfs_view_contents {
    const struct rfs_options *options;
    struct rfs_catalog *source;  /* catalogue of the source's files */
    struct rfs_catalog *catalog; /* the catalogue that is planned: source, or made by rules */
    const struct rfs_strategy *src, *dst; /* of the planned catalogue, and of the destination */
    struct rfs_planner *planner;          /* NULL if the source has parts */
    const struct rfs_by_rules *by_rules;  /* NULL: rules make nothing */
    const struct rfs_names *names;        /* NULL: names and dtypes as they are */
    struct rfs_notes *notes;              /* notes of all planners; they become lines of the log */
    struct rfs_pool *pool;
    struct rfs_scale scale;        /* of the planner */
    struct rfs_scale source_scale; /* of the planner of the source, which rules may take apart */
    uint32_t n_ranks;              /* ranks of the destination */
    size_t n_files;                /* files that are shown */
    bool by_rank;                  /* each rank has a folder with one file */
    bool late;                     /* lost ranks are reported by plans */
    bool encrypted;                /* its sources are */
};

/* Returns the only plain view, or NULL of several saves. */
struct rfs_view *rfs_view_only(const struct reshard_view *set);
struct rfs_view_contents rfs_view_contents(struct rfs_view *view);

/*
 * Compares the copies that rules leave out with their originals, in all saves. Returns 0 or -errno
 * with *err filled.
 */
int rfs_view_compare_all_copies(struct reshard_view *set, struct rfs_error *err);

/* ---- files ----------------------------------------------------------------------------------- */

/* A shown file, by its number. */
struct rfs_view_shown {
    const char *name, *folder; /* the folder of its rank, in a view of ranks */
    uint32_t rank;             /* the destination rank whose plan it is made by */
};
struct rfs_view_shown rfs_view_shown(const struct rfs_view *view, size_t file);
/*
 * Finds a shown file by its id. Returns false when there is none. The view stays only if the source
 * is not followed.
 */
bool rfs_view_find_file(struct reshard_view *set, uint64_t id, struct rfs_view **view,
                        size_t *file);
/* Plans a file at the first call, and gives its bytes. 0 or -errno with *err filled. */
int rfs_view_plan_file(struct rfs_view *view, size_t file, uint64_t *bytes, struct rfs_error *err);
/*
 * Gives the image of a file, which is planned then. It is held: rfs_image_free lets it go. 0 or
 * -errno with *err filled.
 */
int rfs_view_image(struct rfs_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err);
/* Does so with a file that is planned; NULL: it is not, or the image cannot be made now. */
const struct rfs_image *rfs_view_ready_image(struct rfs_view *view, size_t file);
/* Sets the checksum of the bytes before a file's trailer, unless it is known or being computed. */
void rfs_view_set_crc(struct rfs_view *view, size_t file, uint32_t crc);
/*
 * Encodes CONTENT.n targets as a safetensors file: those at N POSITIONS, or with NULL the first N.
 * CONTENT's tensors and path are set here. 0 or -errno with *err filled.
 */
int rfs_view_encode_safetensors(struct rfs_catalog *catalog, const struct rfs_params *params,
                                const uint32_t *positions, struct rfs_safetensors_content content,
                                struct rfs_image **out, struct rfs_error *err);

/*
 * Opens the reader of a file by its number; reshard_reader_close closes it. Returns 0 or -errno.
 */
int rfs_view_reader_open(struct rfs_view *view, size_t file, struct reshard_reader **out);
/* Reads as reshard_reader_pread does, for the view itself: nothing is counted. */
ssize_t rfs_view_reader_read(struct reshard_reader *reader, void *buf, size_t size,
                             uint64_t offset);
/* Sets, before its first use, that a reader reads several ranges at once, so none is read ahead. */
void rfs_view_reader_scatter(struct reshard_reader *reader);

/* ---- values that are not tensors, of a source in chunks (planned.c, dcp.c) ------------------- */

/*
 * Says whether view=dcp, or hyper_parallel, has them: the source is a checkpoint of that program.
 */
bool rfs_view_objects_passed(const struct rfs_view *view);
/* Returns the file that has the objects, or 0 if the view has none or is of another kind. */
size_t rfs_view_dcp_objects_file(const struct rfs_view *view);
