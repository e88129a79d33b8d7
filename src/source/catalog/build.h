/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: the index of a rank, built from its file or files, for the catalogue. */
#ifndef RFS_SOURCE_CATALOG_BUILD_H
#define RFS_SOURCE_CATALOG_BUILD_H

#include "base/log.h"
#include "source/ckpt/walk.h"
#include "source/io/files.h"
#include "source/spec.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What holds for all ranks. Borrowed, but for the flag; immutable, but for the flag. */
struct rfs_builder {
    struct rfs_files *files;
    struct rfs_tables *tables;
    struct rfs_pool *pool;
    struct rfs_log *log;
    enum rfs_format format;
    bool
        last_counts; /* of a name in several files of a rank, the last's value; else that is refused */
    const char *skip;  /* "a:b": without the names that begin so; or NULL */
    const char *entry; /* of torch's files: where the state dict is */
    bool check_crc;
    atomic_bool told_no_crc;   /* the log says it once, */
    atomic_bool told_left_out; /* and this */
};

/*
 * An index and what it was made of. Several may own an index of one file together. Once a rank of several files has
 * what they have together, what each has serves as a prediction of other ranks: of one rank, a rank that was built
 * without a prediction. Others let go of it.
 */
struct rfs_built {
    const struct rfs_index *index; /* merged, or the only piece */
    struct rfs_index *merged;      /* the index, if it was merged of pieces; owned */
    atomic_bool told; /* the log says something of its files, which the next view is to say again */
    uint32_t number;  /* used while indexes are saved; saved_store.c */
    uint32_t from;    /* the number under which it was saved before; RFS_NO_ID: it was not */
    uint64_t used;    /* as what follows, while room is made; catalog_room.c */
    bool dropped;
    uint32_t n_pieces;
    struct rfs_index *pieces[]; /* of one file each; owned; NULL: let go of */
};

/* With nothing but room for PIECES; NULL when out of memory. */
struct rfs_built *rfs_built_new(uint32_t pieces);
/*
 * Builds for a rank with PARTS files, with the ids from FILE on, and the weight map at that path (or NULL). LIKE
 * (or NULL) is what another rank has. *out is LIKE when its index is this rank's too,
 * else it is the caller's, to be freed by rfs_built_free. 0, or -errno with *err filled and *out NULL. From any
 * thread.
 */
int rfs_build(struct rfs_builder *builder, uint32_t file, uint32_t parts, const char *weight_map,
              struct rfs_built *template, struct rfs_built **out, struct rfs_error *err);
/*
 * Whether the rank with that file seems to have the index LIKE, by samples of its headers: 1; or 0, as when
 * only building can tell, or -errno.
 */
int rfs_build_resembles(struct rfs_builder *builder, uint32_t file,
                        const struct rfs_built *template, size_t samples);
/* How many bytes of indexes are free then. */
size_t rfs_built_free(struct rfs_built *built);
/* Bytes of memory that its indexes take, but for those that it owns together with others. */
size_t rfs_built_memory(const struct rfs_built *built);

#endif
