/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of writing: the run, its waves and their files. A thread takes the next item of the wave,
 * has the view assemble it, writes it to each file that it is for, and adds it to each file's
 * checksum when all before it has been added. Items are taken in order, so whoever waits for its
 * turn waits for a thread that works.
 */
#pragma once

#include "tool/export/copy.h"
#include "tool/export/export.h"
#include "tool/export/wave.h"

#include <pthread.h>
#include <xxhash.h>

/* Memory of all threads' pieces together, and the most and the least of one. */
#define RFS_EXPORT_PIECES (UINT64_C(64) << 20)
#define RFS_EXPORT_PIECE_MOST (UINT64_C(4) << 20)
#define RFS_EXPORT_PIECE_LEAST (UINT64_C(256) << 10)
/*
 * Bytes of one write, which ends at a multiple of this in the file. Larger ones make the kernel
 * keep them in pages of 2 MiB, which on virtual machines are just those that are given back to the
 * host when they are free: the next write waits for the host then, and took up to five times as
 * long.
 */
#define RFS_EXPORT_AT_ONCE (UINT64_C(1) << 20)

/* A file of a wave while it is written. */
struct rfs_writing {
    struct rfs_export_file *file;
    reshard_reader *reader; /* owned */
    struct rfs_partial partial;
    bool has_crc; /* its last bytes are a checksum, from trailer on */
    uint64_t trailer;
    /* Of the thread that has the turn: its item begins at hashed. */
    XXH3_state_t *hash; /* owned */
    uint32_t crc;       /* of the bytes before the trailer */
    /* Under the run's lock. */
    uint64_t hashed; /* bytes in the checksum so far */
    uint64_t left;   /* pieces that are not done */
};

struct rfs_wave {
    size_t n;
    struct rfs_writing *files;
    struct rfs_wave_plan plan;
    size_t next;   /* item; under the run's lock */
    unsigned refs; /* threads at work, and the run; under its lock */
};

struct rfs_writing_run {
    struct rfs_export *export;
    struct rfs_copier copier;
    uint64_t piece; /* bytes */
    bool flat;
    struct rfs_wave_file *order; /* [n] owned, with their sources; to be written */
    size_t n;
    int wake; /* a byte for the main thread: the last worker has ended */

    pthread_mutex_t lock;   /* of the next members; a leaf lock */
    pthread_cond_t changed; /* somebody's turn has come, there is a wave, or it is over */
    size_t begun;           /* files that are in a wave, or were */
    struct rfs_wave *wave;  /* NULL: all are begun */
    bool preparing;
    unsigned workers;
    int failed; /* the first -errno */
    struct rfs_error err;
};

/* The next wave, its files begun: *out, or NULL when all are. 0, or -errno with *err filled. */
int rfs_wave_begin(struct rfs_writing_run *run, struct rfs_wave **out, struct rfs_error *err);
/* Also removes files that are not complete. No thread works on it any more. */
void rfs_wave_free(struct rfs_wave *wave);

/*
 * Writes an item, with RUN->piece + RESHARD_SCRATCH_EXTRA bytes of memory for it, and finishes the
 * files that end with it. 0, or -errno with *err filled; also 0 when another thread has failed
 * meanwhile.
 */
int rfs_wave_write(struct rfs_writing_run *run, struct rfs_wave *wave,
                   const struct rfs_wave_item *item, void *scratch, struct rfs_error *err);

/* All its pieces are written and in the checksum. 0, or -errno with *err filled. */
int rfs_writing_finish(struct rfs_writing_run *run, struct rfs_writing *writing,
                       struct rfs_error *err);
