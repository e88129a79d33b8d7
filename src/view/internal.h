/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the view room share.
 *
 * Ids: the root is 1, the folder of destination rank R is 2 + 2R and its file 3 + 2R.
 */
#ifndef RFS_VIEW_INTERNAL_H
#define RFS_VIEW_INTERNAL_H

#include "assemble/assembler.h"
#include "base/vec.h"
#include "image/image.h"
#include "reshard.h"
#include "view/options.h"

#include <pthread.h>
#include <stdatomic.h>

struct file_names {
    char *dir;  /* rank_R */
    char *file; /* {prefix}R.ckpt */
};

struct reshard_view {
    struct rfs_options options;
    reshard_config log_config; /* who gets the log */
    struct rfs_log log;
    struct rfs_strategy *src; /* NULL: unsharded */
    struct rfs_strategy *dst;
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_outward *outward; /* NULL: names and dtypes as they are */
    struct rfs_planner *planner;
    struct rfs_assembler *assembler;
    struct rfs_scale scale;
    uint32_t n_ranks; /* of the destination */
    struct file_names *names;
    uint64_t parameters; /* distinct names in the strategies */

    /* Of the source folder, for the folders shown. */
    uint32_t dir_uid, dir_gid;
    struct timespec dir_mtime;

    pthread_mutex_t lock;                     /* of images; a leaf lock */
    RFS_VEC(struct rfs_image *) images;       /* by roster id; owned; may hold NULL */
    _Atomic(const struct rfs_image *) *files; /* [n_ranks]; NULL until ready */

    atomic_uint_least64_t reads, bytes_replied;
};

enum entry_kind { ENTRY_NONE, ENTRY_ROOT, ENTRY_DIR, ENTRY_FILE };
enum entry_kind rfs_view_entry(const struct reshard_view *view, uint64_t id, uint32_t *rank);

/* The image of a rank's file, planned and encoded at the first call. */
int rfs_view_image(struct reshard_view *view, uint32_t rank, const struct rfs_image **out,
                   struct rfs_error *err);

/* Fills a struct of the public API as far as its caller's size goes, and returns CODE. */
int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code);

/* Copies SIZE bytes of FROM to TO, whose first member is its size as its owner knows it. */
void rfs_view_give(void *to, void *from, size_t size);

#endif
