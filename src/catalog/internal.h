/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the catalogue only. */
#pragma once

#include "base/once.h"
#include "base/vec.h"
#include "catalog/build.h"
#include "catalog/catalog.h"
#include "catalog/saved/index.h"

#include <pthread.h>
#include <stdatomic.h>

struct catalog_rank {
    uint32_t file;           /* id of its first file, UINT32_MAX: none */
    uint32_t parts;          /* how many files it has; their ids follow each other */
    bool stands_in;          /* they are another rank's */
    char *weight_map;        /* path of the file that maps parameters to files, or NULL; owned */
    struct rfs_built *built; /* set before index; in catalog->owned */
    _Atomic(const struct rfs_index *) index; /* that of built; NULL: it is not there */
    atomic_uint_least64_t used;              /* number of uses begun when it was last requested */
    bool busy;                               /* a thread is indexing it; under the lock */
    int failed; /* 0, or the -errno of the failure that is remembered; under the lock */
    bool empty; /* that failure is that its file holds no parameters; under the lock */
    char *text; /* of that failure; owned; NULL when there was no memory for it */
};

struct rfs_catalog {
    const struct rfs_catalog *from; /* owns the files and tables of a derived one; or NULL */
    char *path;
    struct rfs_log *log; /* borrowed, as the pool */
    struct rfs_pool *pool;
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_builder builder;
    uint32_t n_ranks;
    uint32_t present;
    struct catalog_rank *ranks; /* [n_ranks] */
    pthread_mutex_t lock;       /* a leaf lock, not held while indexing */
    pthread_cond_t done;
    RFS_VEC(struct rfs_built *) owned; /* under the lock */
    atomic_uint_fast64_t indexed, predicted, from_disk, index_bytes, dropped;
    void (*indexed_fn)(const void *ctx, uint64_t done, uint64_t total); /* as of the spec */
    const void *indexed_ctx;
    bool has_parts;
    struct rfs_chunks *boxes;   /* owned; NULL: the ranks' own headers describe their values */
    struct rfs_index *wholes;   /* owned; of the boxes: rank 0's, which is never dropped */
    struct rfs_intern *extents; /* of content in several pieces, for blocks */
    struct rfs_intern *lengths; /* of the messages of map tensors */
    uint64_t serials;           /* given to indexes; under the lock */

    /* Uses, the oldest first; under the lock. */
    struct rfs_use *first, *last;
    atomic_uint_least64_t uses; /* begun so far */
    uint64_t most;              /* bytes of indexes; 0: any */
    /* NULL but in tests: called after a thread read the mark of a use, before it may set it. */
    void (*marking)(void *ctx);
    void *marking_ctx;

    struct timespec opened;          /* before anything of the source was looked at */
    struct rfs_saved *saved;         /* borrowed; NULL: nothing is saved */
    char *key;                       /* of the saved indexes; owned */
    struct rfs_once loading;         /* of saved indexes; under the lock */
    struct rfs_saved_index *on_disk; /* saved earlier, once they are loaded; or NULL; owned */
    /* [numbers of on_disk] those that are in memory; under the lock */
    struct rfs_built **from_saved;
    bool unsaved; /* there are indexes that are not on disk; under the lock */
    bool saving;  /* a thread is writing; under the lock */
};

/* A catalogue of nothing yet. NULL when out of memory. */
struct rfs_catalog *rfs_catalog_new(struct rfs_log *log, struct rfs_pool *pool);
/*
 * Makes rank 0's index of ENTRIES, malloc'ed and taken over in any case, which have no place in a
 * file. False when out of memory, also for ENTRIES of NULL.
 */
bool rfs_catalog_set_wholes(struct rfs_catalog *catalog, struct rfs_entry *entries, size_t n);
/* Marks the rank as requested by the uses that have begun. */
void rfs_catalog_mark(const struct rfs_catalog *catalog, struct catalog_rank *rank);
/*
 * Loads the saved indexes, once. Called with the lock held, which is released meanwhile. 0 or
 * -EINTR.
 */
int rfs_catalog_load(struct rfs_catalog *catalog);
/* Sets the key by which a source is known again. 0 or -ENOMEM. */
int rfs_catalog_set_key(struct rfs_catalog *catalog, const struct rfs_source_spec *spec);
