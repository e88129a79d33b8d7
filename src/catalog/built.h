/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a rank, built from its file or files, for the catalogue and for kept indexes. */
#pragma once

#include "base/log.h"
#include "base/pool.h"
#include "formats/formats.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "quant/quant.h"
#include "store/files.h"

#include <stdatomic.h>

struct rfs_mapfile;

/*
 * The index of a rank with those of its files. Several ranks may own the index of one file
 * together. A rank of several files has one that is merged of theirs; then the indexes of the files
 * serve only as predictions for other ranks. So a rank that was built without a prediction has
 * them, and the others let go of them.
 */
struct rfs_built {
    const struct rfs_index *index; /* merged, or that of the only file */
    struct rfs_index *merged;      /* NULL if there is one file and nothing to merge; owned */
    atomic_bool warned; /* its files caused log messages, which the next view must repeat */
    uint32_t number;    /* the one in a file that is being written; kept_index.c sets it */
    uint32_t from;      /* number in the file that it was loaded from, or RFS_NO_ID */
    uint64_t used;      /* highest mark of its ranks; set while catalog.c makes room */
    bool dropped;       /* set while catalog.c makes room: it is to be freed */
    uint32_t n_files;
    struct rfs_index *files[]; /* by file; owned; NULL: let go of */
};

/* Returns one without indexes, with room for N_FILES, or NULL when out of memory. */
struct rfs_built *rfs_built_new(uint32_t n_files);
/* Frees it, and returns how many bytes of indexes are free then. NULL is fine. */
size_t rfs_built_free(struct rfs_built *built);

/* What builds the indexes of all ranks. Borrowed and immutable, except for the flags. */
struct rfs_builder {
    struct rfs_files *files;
    struct rfs_tables *tables;
    struct rfs_pool *pool;
    struct rfs_log *log;
    enum rfs_format format;
    bool last_counts;  /* a name in several files has the last one's value; else it is refused */
    const char *skip;  /* "a:b": names that begin so are left out; or NULL */
    const char *entry; /* where the state dict is in torch's files; NULL: it is all of the file */
    bool check_crc;
    const struct rfs_quant_scheme
        *scheme;                 /* weights are quantized by it; NULL: shown as they are */
    struct rfs_intern *quants;   /* keeps what is found of them */
    atomic_bool warned_no_crc;   /* the log has the line about files without a checksum, */
    atomic_bool warned_outside;  /* the line about names outside of the entry was logged */
    atomic_bool warned_left_out; /* and the one about values that are left out, or none is */
};

/*
 * Builds the index of a rank with N_FILES files, whose ids begin at FILE, and the weight map at
 * that path (or NULL). MAP is what that says, and is freed once it was used; if it is empty, it is
 * read. PREDICTION (or NULL) is another rank's result. *out is PREDICTION when both ranks have
 * equal indexes; else the caller owns it. 0, or -errno with *err filled and *out NULL. Any thread
 * may call it.
 */
int rfs_built_make(struct rfs_builder *builder, uint32_t file, uint32_t n_files,
                   const char *weight_map, struct rfs_mapfile *map, struct rfs_built *prediction,
                   struct rfs_built **out, struct rfs_error *err);
