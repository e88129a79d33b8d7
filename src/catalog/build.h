/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: the index of a rank, built from its file or files, for the catalogue. */
#pragma once

#include "base/log.h"
#include "base/pool.h"
#include "catalog/saved/built.h"
#include "catalog/scan/spec.h"
#include "store/files.h"

#include <stdatomic.h>

/* Shared by all ranks. Borrowed and immutable, but for the flags. */
struct rfs_builder {
    struct rfs_files *files;
    struct rfs_tables *tables;
    struct rfs_pool *pool;
    struct rfs_log *log;
    enum rfs_format format;
    /* of a name in several files of a rank, the last's value; else that is refused */
    bool last_counts;
    const char *skip;  /* "a:b": without the names that begin so; or NULL */
    const char *entry; /* of torch's files: where the state dict is */
    bool check_crc;
    atomic_bool warned_no_crc;   /* the log says it once, */
    atomic_bool warned_left_out; /* and this */
};

/*
 * Builds for a rank with PARTS files, with the ids from FILE on, and the weight map at that path
 * (or NULL). TEMPLATE (or NULL) is another rank's result. *out is TEMPLATE when both ranks have the
 * same index; else the caller owns it and frees it by rfs_built_free. 0, or -errno with *err filled
 * and *out NULL. From any thread.
 */
int rfs_build(struct rfs_builder *builder, uint32_t file, uint32_t parts, const char *weight_map,
              struct rfs_built *template, struct rfs_built **out, struct rfs_error *err);
/*
 * Whether the rank with that file seems to have the index TEMPLATE, by samples of its headers: 1;
 * or 0, as when only building can say, or -errno.
 */
int rfs_build_resembles(struct rfs_builder *builder, uint32_t file,
                        const struct rfs_built *template, size_t samples);
