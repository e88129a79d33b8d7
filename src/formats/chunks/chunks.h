/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that describes itself: tensors with their full shapes, each stored as chunks. A
 * chunk is a box of elements with a place in some file; the chunks of a tensor tile it. Beside them
 * there may be objects, which are passed on as they are.
 *
 * A reader of a format (dcp.h, mindformers.h) declares every tensor with its chunks, then sets
 * where each chunk is stored. rfs_chunks_finish proves that the chunks tile their tensors: no gap,
 * no overlap, all of them stored. After that the boxes do not change. Only the places within files
 * are added, when they are first needed.
 *
 * The chunks of a tensor are found by the grid of all their borders: each cell of the grid lies in
 * one chunk. So a box finds the chunks that it touches in the time of the cells that it touches.
 *
 * A tensor may be stored flattened (flat.c draws it): its chunks then are boxes of another tensor,
 * and ranges of elements in its own. The elements of a chunk need not lie row by row in the file.
 *
 * Several files may have the same chunk. One of them is read. The others are its further copies,
 * which are kept as lists of files: chunks with the same list share it. In formats that look chunks
 * up in headers (Checkpoint 2.0), a chunk whose file turns out to be damaged is located in a copy.
 * It stays there: file and place are published once, together.
 *
 * Cost: 40 bytes a chunk, 4 for each cell of a grid (as many as chunks, where the chunks themselves
 * are a grid), 8 for each border; 64 a tensor; 136 for a chunk whose elements do not lie row by row.
 * Where chunks have further copies, 12 more for each chunk, 4 for each file of each distinct list,
 * and 8 for each further copy whose place is known from the start (FSDP's files and shards, but not
 * Checkpoint 2.0). So 1,024 ranks that save 10,000 tensors in 32 slices each take 3.8 MB for their
 * 10 million copies.
 *
 * Threads: rfs_chunks_locate and all that reads, from any thread; the rest while they are built.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "store/files.h"

#include <pthread.h>
#include <stdatomic.h>

#define RFS_NOT_LOCATED UINT64_MAX

struct rfs_chunk {
    uint64_t corner; /* the number of its first element in the whole tensor, row by row */
    uint64_t item;   /* where its item begins in the file, in formats that have items */
    uint64_t item_bytes;
    /* where its elements begin in the file, row by row, or a value of rfs_chunks_strided */
    atomic_uint_least64_t at;
    uint32_t type; /* its shape and dtype; id in the tables' types */
    /* RFS_NO_ID: not stored yet. rfs_chunks_file_of has the one that is read. */
    uint32_t file;
};

/* The grid of a tensor's chunks; NULL where one chunk is the whole tensor. */
struct rfs_chunk_grid {
    uint32_t pieces[RFS_MAX_DIMS];
    const uint64_t *edge[RFS_MAX_DIMS]; /* piece k of axis i is edge[i][k] … edge[i][k + 1] */
    uint32_t *cells;                    /* chunks, from the tensor's first */
};

/* The further copies of a chunk. */
struct rfs_chunk_copies {
    uint32_t list;  /* of their files: id in copy_lists; RFS_NO_ID: there are none */
    uint32_t first; /* number of the first one's place in copy_places, if that has places */
    /* The file that is read, as the chunk's own is damaged; RFS_NO_ID: its own. Set before its at */
    atomic_uint_least32_t instead;
};

/* A further copy of a chunk, once it is located. */
struct rfs_chunked_copy {
    uint32_t file;
    uint32_t type; /* of what the file has in its place; RFS_NO_ID: nothing */
    uint64_t at;   /* where its elements begin in the file, row by row */
};

struct rfs_chunked_tensor {
    uint32_t name; /* ids in the tables */
    uint32_t type;
    uint32_t stored;   /* the type that its chunks are boxes of: another one if it was flattened */
    uint32_t first, n; /* its chunks */
    struct rfs_chunk_grid *grid; /* of the stored type */
    bool incomplete; /* files that are lost had some of its chunks: no element of it may be read */
    bool on_trust;   /* more files have a chunk of it than the files say */
};

/* A value that is not a tensor: its item's bytes are all that is known of it. */
struct rfs_chunked_object {
    uint32_t name; /* id in the tables; no tensor has it */
    uint32_t file; /* RFS_NO_ID: not stored yet */
    uint64_t item, item_bytes;
};

/* A tensor of the metadata that can't be shown. */
struct rfs_chunked_unread {
    uint32_t name; /* id in the tables */
    uint32_t why;  /* id in the tables' names: "its elements are torch.qint8" */
};

/* Where a chunk's elements begin in its file, and their strides in bytes. */
struct rfs_strided_chunk {
    uint64_t at;
    uint64_t stride[RFS_MAX_DIMS];
};

struct rfs_chunks;

/* The functions of a format. */
struct rfs_chunks_format {
    const char *name; /* for messages: "torch.distributed.checkpoint" */
    /*
     * Sets CHUNK's at, and may set those of other chunks of its file. From any thread. 0, or -errno
     * with *err filled, naming file, offset and tensor.
     */
    int (*locate)(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_error *err);
    /*
     * Finds what OUT's file has in the place of CHUNK. NULL: copy_places has the places. From any
     * thread. 0, or -errno with *err filled, which is of the whole file.
     */
    int (*locate_copy)(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_chunked_copy *out,
                       struct rfs_error *err);
    /*
     * Reads a file and compares its checksums: 0, 1 when it lacks some, or -errno with *err filled.
     * NULL: locate does so by itself, if BOXES have checks. From any thread.
     */
    int (*check)(struct rfs_chunks *boxes, uint32_t file, struct rfs_error *err);
    void (*free)(void *own);
};

struct rfs_chunks {
    const struct rfs_chunks_format *format;
    void *own; /* of the format */
    char *folder;
    struct rfs_files *files; /* borrowed, as the tables and the log */
    struct rfs_tables *tables;
    struct rfs_log *log;
    uint32_t metadata; /* the file that describes it, which everything depends on */
    bool mcore_data;   /* which has a dict of Megatron-Core for each tensor */
    RFS_VEC(struct rfs_chunked_tensor) tensors; /* in the order of the metadata */
    RFS_VEC(struct rfs_chunk) chunks;           /* by tensor, then by corner */
    RFS_VEC(struct rfs_chunked_object) objects; /* in the order of the metadata */
    RFS_VEC(struct rfs_chunked_unread) unread;  /* in the order of the metadata */
    RFS_VEC(uint32_t) by_name;                  /* by name id; for rfs_chunks_find */
    struct rfs_intern *paths;                   /* of files, while it is built: id + first_file */
    uint32_t first_file, n_files;               /* that chunks and objects are read from */
    /*
     * Files of the save that are lost, for messages: "'a' is"; NULL: none. Set before they are
     * finished, it lets tensors be incomplete. Owned.
     */
    char *lost;
    char *doubt;      /* whether the metadata is of the files, for messages; NULL: none. Owned */
    bool times_tell;  /* the metadata was written last, so that a newer file is of another save */
    atomic_bool told; /* the log has a line about such a file */
    pthread_mutex_t lock;                      /* a leaf; of the next member */
    RFS_VEC(struct rfs_strided_chunk) strided; /* in the order in which they were found */
    /* Further copies. */
    struct rfs_chunk_copies *copies;  /* [chunks]; NULL: no chunk has any */
    struct rfs_intern *copy_lists;    /* lists of numbers in copy_files */
    RFS_VEC(uint64_t) copy_places;    /* in formats that know them from the start */
    RFS_VEC(uint32_t) copy_files;     /* file ids; empty: the numbers are the ids */
    struct rfs_intern *copy_names;    /* while it is built: names of copy_files, or NULL */
    uint32_t n_all_files;             /* with those that have nothing but copies */
    struct rfs_chunks_checks *checks; /* of files; owned; NULL: none is checked */
};

/*
 * The checkpoint in FOLDER, absolute and resolved, whose metadata is in the file of that id. The
 * caller has registered that file, and registers no other before rfs_chunks_finish. NULL when out of
 * memory.
 */
struct rfs_chunks *rfs_chunks_new(const struct rfs_chunks_format *format, const char *folder,
                                  uint32_t metadata, struct rfs_files *files,
                                  struct rfs_tables *tables, struct rfs_log *log);
void rfs_chunks_free(struct rfs_chunks *boxes);

/*
 * A tensor of a name that does not occur yet; the chunks that follow are its. TYPE has dims, ndim
 * and dtype; its bytes are set here. 0, or -errno with *err filled.
 */
int rfs_chunks_tensor(struct rfs_chunks *boxes, const char *name, size_t length,
                      struct rfs_type *type, struct rfs_error *err);
/*
 * A chunk of the last tensor, in elements along each axis. A chunk without elements, or with the
 * box of another, is ignored. 0, or -errno with *err filled (outside the tensor, no memory).
 */
int rfs_chunks_chunk(struct rfs_chunks *boxes, const uint64_t *offset, const uint64_t *size,
                     struct rfs_error *err);
/*
 * A value that is not a tensor, of a name that does not occur yet. 0, or -errno with *err filled.
 */
int rfs_chunks_object(struct rfs_chunks *boxes, const char *name, size_t length,
                      struct rfs_error *err);
/*
 * A tensor that can't be shown, WHY: its chunks are not declared, and where they are stored is of
 * no interest. A tensor that is declared may become one, too. 0, or -errno with *err filled.
 */
int rfs_chunks_unread(struct rfs_chunks *boxes, const char *name, size_t length, const char *why,
                      struct rfs_error *err);
/* Whether that name is one of them, and is not declared. O(1). */
bool rfs_chunks_is_unread(const struct rfs_chunks *boxes, const char *name, size_t length);
/* Ends the declarations. 0, or -EINVAL with *err filled: two chunks begin at the same element. */
int rfs_chunks_declared(struct rfs_chunks *boxes, struct rfs_error *err);

/*
 * The id of a file by its path within the folder. RFS_NO_ID with *err filled: it leads out of it.
 */
uint32_t rfs_chunks_file(struct rfs_chunks *boxes, const char *path, size_t length,
                         struct rfs_error *err);
/* The tensor of that name, or NULL. O(1). */
const struct rfs_chunked_tensor *rfs_chunks_find(const struct rfs_chunks *boxes, const char *name,
                                                 size_t length);
/*
 * Says where the chunk of a tensor that begins at OFFSET is stored: its item is those bytes of a
 * file. A chunk without elements is ignored. 0, or -errno with *err filled: there is no such chunk,
 * or it is stored already. After rfs_chunks_declared; O(log chunks of the tensor).
 */
int rfs_chunks_store(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                     const uint64_t *offset, uint32_t file, uint64_t item, uint64_t item_bytes,
                     struct rfs_error *err);
/* Says where the object of that name is stored. 0, or -errno with *err filled, as above. */
int rfs_chunks_store_object(struct rfs_chunks *boxes, const char *name, size_t length,
                            uint32_t file, uint64_t item, uint64_t item_bytes,
                            struct rfs_error *err);

/*
 * Says that FILES[0 … N), numbers by rfs_chunks_copy_file or file ids, have further copies of a
 * chunk that is stored. PLACES (or NULL: the format finds them) are where their elements begin. 0
 * or -ENOMEM with *err filled. Cost: as rfs_chunks_store, and O(N).
 */
int rfs_chunks_store_copies(struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                            const uint64_t *offset, const uint32_t *files, const uint64_t *places,
                            size_t n, struct rfs_error *err);
/*
 * The number of a file that may have nothing but copies, by its path within the folder. It gets an
 * id when the boxes are finished, behind all others. RFS_NO_ID with *err filled: no memory.
 */
uint32_t rfs_chunks_copy_file(struct rfs_chunks *boxes, const char *path, size_t length,
                              struct rfs_error *err);

/*
 * Proves that all objects and chunks are stored, and that these tile their tensors. 0, or -errno
 * with *err filled: the tensor and the box. A gap is no failure where files are lost.
 */
int rfs_chunks_finish(struct rfs_chunks *boxes, struct rfs_error *err);

/*
 * Once they are finished: a tensor is stored flattened, and has another shape, of NDIM DIMS. Its
 * chunks are boxes of a tensor with these axes in pieces, and behind them one axis for the elements
 * of each piece. 0, or -errno with *err filled: it cannot be of that shape.
 */
int rfs_chunks_unflatten(struct rfs_chunks *boxes, const char *name, size_t length, uint32_t ndim,
                         const uint64_t *dims, struct rfs_error *err);

/* Whether a tensor may be one of another's shape (but not of its dtype) that was flattened. */
bool rfs_chunks_may_be_flat(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                            const struct rfs_chunked_tensor *whole);

/* ---- once they are finished ------------------------------------------------------------------ */

/* Whether a tensor is stored flattened. */
static inline bool rfs_chunked_is_flat(const struct rfs_chunked_tensor *tensor)
{
    return tensor->stored != tensor->type;
}
static inline const struct rfs_type *rfs_chunks_type(const struct rfs_chunks *boxes, uint32_t type)
{
    return (const struct rfs_type *)rfs_intern_bytes(boxes->tables->types, type, NULL);
}
/* The tensor that a chunk is of. O(log tensors). */
const struct rfs_chunked_tensor *rfs_chunks_tensor_of(const struct rfs_chunks *boxes,
                                                      uint32_t chunk);
/* The name of that tensor. */
const char *rfs_chunks_name_of(const struct rfs_chunks *boxes, uint32_t chunk);
/* Where a chunk begins in its tensor as that is stored, in elements along each axis. */
void rfs_chunks_corner(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                       uint32_t chunk, uint64_t *offset);

/*
 * From now on no chunk or copy is located before the checksums of its file (or of its item) are
 * found to be right. To be called before any is located. 0 or -ENOMEM.
 */
int rfs_chunks_set_checked(struct rfs_chunks *boxes);
/* How many further copies a chunk has. */
uint32_t rfs_chunks_copies(const struct rfs_chunks *boxes, uint32_t chunk);
/*
 * Finds further copy COPY of a chunk, from 0 on. If that one is read instead of the chunk's own
 * file, it is the own file that is found. 0 with *out filled, whose type may differ from the
 * chunk's; or -errno with *err and out's file filled: that file cannot be used. Headers that are
 * read for this are kept; copies with equal headers share them.
 */
int rfs_chunks_locate_copy(struct rfs_chunks *boxes, uint32_t chunk, uint32_t copy,
                           struct rfs_chunked_copy *out, struct rfs_error *err);

/*
 * Looks up where a chunk's elements are, at the first call: in its file, or in a copy if that file
 * is damaged, which the log says. 0, or -errno with *err filled.
 */
int rfs_chunks_locate(struct rfs_chunks *boxes, uint32_t chunk, struct rfs_error *err);
/* The file that a located chunk is read from; of others, its own. Below first_file + n_all_files. */
static inline uint32_t rfs_chunks_file_of(const struct rfs_chunks *boxes, uint32_t chunk)
{
    const uint32_t instead =
        boxes->copies ? atomic_load_explicit(&boxes->copies[chunk].instead, memory_order_relaxed)
                      : RFS_NO_ID;

    return instead == RFS_NO_ID ? boxes->chunks.data[chunk].file : instead;
}
/*
 * The value of a chunk's at whose elements have strides, in bytes; RFS_NOT_LOCATED: no memory. From
 * any thread.
 */
uint64_t rfs_chunks_strided(struct rfs_chunks *boxes, uint64_t at, uint32_t ndim,
                            const uint64_t *stride);

/* A box of a tensor that one chunk has: the chunk itself, or a part of one that was flattened. */
struct rfs_chunk_part {
    uint32_t chunk;
    bool flat;
    uint64_t at[RFS_MAX_DIMS]; /* in the tensor */
    uint64_t size[RFS_MAX_DIMS];
    uint64_t first;              /* the number of its first element in the chunk */
    uint64_t step[RFS_MAX_DIMS]; /* elements of the chunk, from one to the next along each axis */
};
/* Where the elements of a part are. */
struct rfs_stored_part {
    uint32_t file;
    uint64_t at;                   /* of the first, in the file */
    uint64_t stride[RFS_MAX_DIMS]; /* in bytes */
    bool strided;                  /* they are not those of a row-major box */
};
/* Gives where a part is in FILE, by the value of at of its chunk or of a copy. */
void rfs_chunks_place_part(struct rfs_chunks *boxes, const struct rfs_chunk_part *part,
                           uint32_t file, uint64_t at, struct rfs_stored_part *out);
/*
 * Tells whether the elements of a chunk of TYPE and of its copy, with these values of at, lie in
 * one order without gaps, so that their bytes can be compared; and gives where both begin.
 */
bool rfs_chunks_alike(struct rfs_chunks *boxes, const struct rfs_type *type, uint64_t a, uint64_t b,
                      uint64_t begin[2]);
/* Locates the part's chunk. 0, or -errno with *err filled. */
int rfs_chunks_locate_part(struct rfs_chunks *boxes, const struct rfs_chunk_part *part,
                           struct rfs_stored_part *out, struct rfs_error *err);

/* A walk over the cells of a grid, in the box of a tensor as it is stored. */
struct rfs_grid_walk {
    uint32_t ndim;
    uint32_t first[RFS_MAX_DIMS], last[RFS_MAX_DIMS], cell[RFS_MAX_DIMS];
    bool ended;
};

/* The parts of chunks that the box from LO to HI (exclusive, not empty) of a tensor touches. */
struct rfs_chunk_walk {
    const struct rfs_chunks *boxes;
    const struct rfs_chunked_tensor *tensor;
    struct rfs_grid_walk cells;
    /* The box, the present piece, and the rest of a chunk, if the tensor was flattened. */
    uint64_t lo[RFS_MAX_DIMS], hi[RFS_MAX_DIMS];
    uint64_t side[RFS_MAX_DIMS]; /* of a piece */
    uint64_t piece[RFS_MAX_DIMS];
    uint32_t chunk;
    uint64_t begin, next, end; /* numbers of elements in the piece: the chunk's first, … */
};
void rfs_chunk_walk_begin(const struct rfs_chunks *boxes, const struct rfs_chunked_tensor *tensor,
                          const uint64_t *lo, const uint64_t *hi, struct rfs_chunk_walk *walk);
/* The next part, each once; false at the end. */
bool rfs_chunk_walk_next(struct rfs_chunk_walk *walk, struct rfs_chunk_part *part);
