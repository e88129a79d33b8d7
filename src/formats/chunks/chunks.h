/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint that describes itself: tensors with their full shapes, each stored as chunks. A
 * chunk is a box of elements with a place in some file; the chunks of a tensor tile it. Objects
 * beside them are passed on unchanged.
 *
 * A reader of a format (dcp.h, mindformers.h) declares every tensor with its chunks, then sets
 * where each chunk is stored. rfs_chunks_finish proves that the chunks tile their tensors: no gap,
 * no overlap, all of them stored. After that nothing changes. Only the places within files are
 * added, when they are first needed.
 *
 * The borders of a tensor's chunks make a grid, and each cell of the grid lies in one chunk. So
 * finding the chunks that a box touches costs as much as the cells that it touches.
 *
 * A tensor may be stored flattened (boxes.c draws it): its chunks then are boxes of another tensor,
 * and ranges of elements in its own. The elements of a chunk need not lie row by row in the file.
 *
 * Several files may have the same chunk. One of them is read; the others are its further copies,
 * kept as a list of files that chunks with equal lists share. In formats that look chunks up in
 * headers (Checkpoint 2.0), a chunk moves to a copy if its file turns out to be damaged. It stays
 * there: file and place are published once, together.
 *
 * Cost: 40 bytes a chunk, 4 for each cell of a grid (as many as chunks, where the chunks themselves
 * are a grid), 8 for each border; 64 a tensor; 136 for a chunk whose elements do not lie row by
 * row. Where chunks have further copies, 12 more for each chunk, 4 for each file of each distinct
 * list, and 8 for each further copy whose place is known from the start (FSDP's files and shards,
 * but not Checkpoint 2.0), or 32 for one that is an item (torch.distributed.checkpoint). So 1,024
 * ranks that save 10,000 tensors in 32 slices each take 3.8 MB for their 10 million copies.
 *
 * Threads: rfs_chunks_locate and all that reads, from any thread; the rest while they are built.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/vec.h"
#include "formats/index.h"
#include "formats/walker.h"
#include "store/files.h"

#include <pthread.h>
#include <stdatomic.h>

#define RFS_NOT_LOCATED UINT64_MAX

struct rfs_chunk {
    uint64_t corner; /* number of the first element in the whole tensor, row by row */
    /* Where the item begins in the file, in formats that have items, and its bytes at most. */
    uint64_t item;
    uint64_t item_bytes;
    /* Where the elements begin in the file, row by row, or a value of rfs_chunks_add_strided. */
    atomic_uint_least64_t at;
    uint32_t type; /* shape and dtype; id in the tables' types */
    uint32_t file; /* RFS_NO_ID: not stored yet. rfs_chunks_file_of has the one that is read */
};

/* The grid of a tensor's chunks; NULL where one chunk is the whole tensor. */
struct rfs_chunk_grid {
    uint32_t pieces[RFS_MAX_DIMS];
    const uint64_t *edge[RFS_MAX_DIMS]; /* piece k of axis i is edge[i][k] … edge[i][k + 1] */
    uint32_t *cells;                    /* chunks, from the tensor's first */
};

/* The further copies of a chunk. */
struct rfs_chunk_copies {
    uint32_t list;  /* list of files: id in copy_lists; RFS_NO_ID: there are none */
    uint32_t first; /* position of the first copy's place in copy_places, if that has places */
    /* File that is read, as the chunk's own is damaged; RFS_NO_ID: its own. Set before its at. */
    atomic_uint_least32_t instead;
};

/* A chunk that is stored again. */
struct rfs_chunk_again {
    uint32_t chunk, file;
    uint64_t item, item_bytes;
};

/* The item of a further copy. */
struct rfs_copy_item {
    uint64_t item, item_bytes;
    atomic_uint_least64_t at; /* as that of a chunk */
};

/* A further copy of a chunk, once it is located. */
struct rfs_chunked_copy {
    uint32_t file;
    uint32_t type; /* type of the data in its place; RFS_NO_ID: there is none */
    uint64_t at;   /* where the elements begin in the file, row by row */
};

struct rfs_chunked_tensor {
    uint32_t name; /* ids in the tables */
    uint32_t type;
    /*
     * type of the tensor that the chunks tile: another one if this tensor was flattened, by
     * rfs_chunks_unflatten or, as one tile, by a reader that sets its type when it adds it
     */
    uint32_t stored;
    uint32_t first, n;           /* range of chunks */
    struct rfs_chunk_grid *grid; /* grid of the stored type */
    bool incomplete; /* files that are lost had some of its chunks: no element of it may be read */
    bool on_trust;   /* more files have a chunk of it than the files say */
};

/* A value that is not a tensor: nothing but its item's bytes is known. */
struct rfs_chunked_object {
    uint32_t name; /* id in the tables; no tensor has it */
    uint32_t file; /* RFS_NO_ID: not stored yet */
    uint64_t item, item_bytes;
};

/* A tensor of the metadata that can't be shown. */
struct rfs_chunked_unread {
    uint32_t name; /* id in the tables */
    uint32_t why;  /* reason; id in the tables' names: "its elements are torch.qint8" */
};

/* Elements of a chunk that do not lie row by row: where they begin, and their strides in bytes. */
struct rfs_strided_chunk {
    uint64_t at;
    uint64_t stride[RFS_MAX_DIMS];
};

struct rfs_chunks;

/* The functions of a format. */
struct rfs_chunks_format {
    const char *name; /* for messages: "torch.distributed.checkpoint" */
    /*
     * The item of a chunk is a key: the id, in the tables' names, under which its file has it. The
     * file is safetensors or of torch.save.
     */
    bool keyed;
    /* A chunk may be stored again: those are its copies. Of objects the first one counts. */
    bool again;
    /*
     * Sets CHUNK's at, and may set those of other chunks of its file. From any thread. 0, or -errno
     * with *err filled, naming file, offset and tensor.
     */
    int (*locate)(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err);
    /*
     * Finds the data in OUT's file in place of CHUNK, from any thread. Returns 0, or -errno with
     * *err filled, an error of the whole file. NULL: copy_places has the places.
     */
    int (*locate_copy)(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_chunked_copy *out,
                       struct rfs_error *err);
    /*
     * Reads a file and compares its checksums: 0, 1 when it lacks some, or -errno with *err filled.
     * NULL: locate does so by itself, if CHUNKS have checks. From any thread.
     */
    int (*check)(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err);
    /*
     * Proves that the bytes of an object are in its file, and of an item of torch.save what
     * rfs_torch_prove says, with ALL; a checkpoint that is checked (rfs_chunks_set_checked) always
     * adds that. 0, or -errno with *err filled. From any thread. NULL: there are no objects.
     */
    int (*prove)(struct rfs_chunks *chunks, const struct rfs_chunked_object *object, bool all,
                 struct rfs_error *err);
    void (*free)(void *own);
};

struct rfs_chunks {
    const struct rfs_chunks_format *format;
    void *own; /* data of the format; owned, freed by its free */
    char *folder;
    struct rfs_files *files; /* borrowed, like the tables and the log */
    struct rfs_tables *tables;
    struct rfs_log *log;
    uint32_t metadata; /* file that describes the checkpoint, which everything depends on */
    bool mcore_data;   /* the metadata has a dict of Megatron-Core for each tensor */
    const char *entry; /* while it is built: the part of the state dict that it has; or NULL */
    /*
     * Words of entry=: the state dict's dicts, if all tensors are in one of a few; if there is one,
     * those in it as well. Owned.
     */
    struct rfs_path_list dicts, dicts_in_one;
    /*
     * Tensors that are left out because their names do not begin with the entry, which no path has:
     * one for each first word, up to some. Owned.
     */
    struct rfs_path_list beside;
    RFS_VEC(struct rfs_chunked_tensor) tensors; /* tensors in the order of the metadata */
    RFS_VEC(struct rfs_chunk) chunks;           /* sorted by tensor, then by corner */
    RFS_VEC(struct rfs_chunked_object) objects; /* objects in the order of the metadata */
    RFS_VEC(struct rfs_chunked_unread) unread;  /* tensors that can't be shown */
    RFS_VEC(uint32_t) by_name;                  /* numbers by name id; for rfs_chunks_find */
    struct rfs_intern *paths;     /* while it is built: paths of files from first_file */
    uint32_t first_file, n_files; /* files that chunks and objects are read from */
    /*
     * Memory that reading the largest compressed item of a tensor takes, or that and its copy, and
     * the tensor's name; 0: none is compressed.
     */
    uint64_t unpacking;
    uint32_t unpacking_name;
    /*
     * Files of the save that are lost, for messages: "'a' is"; NULL: none. If set before
     * rfs_chunks_finish, tensors may be incomplete. Owned.
     */
    char *lost;
    char *doubt;       /* why the metadata may be of other files, for messages; or NULL. Owned */
    char *remedy;      /* remedy for a tensor with a gap; or NULL. Owned */
    bool written_last; /* the metadata was, by the program that saved the files */
    bool times_tell;   /* so that a newer file is of another save */
    /*
     * The files of metadata that name the files from first_file on, ascending; empty: one names
     * all. A file that several name is the first one's.
     */
    RFS_VEC(uint32_t) named_by;
    pthread_mutex_t lock;                      /* a leaf; guards the next member */
    RFS_VEC(struct rfs_strided_chunk) strided; /* places with strides, in the order of finding */
    /* Further copies. */
    struct rfs_chunk_copies *copies; /* [chunks]; NULL: no chunk has any */
    struct rfs_intern *copy_lists;   /* lists of numbers in copy_files */
    /* Places of copies, in formats that know them from the start, their keys, or their items. */
    RFS_VEC(uint64_t) copy_places;
    RFS_VEC(struct rfs_copy_item) copy_items; /* for formats with items: places are positions */
    RFS_VEC(uint32_t) copy_files;             /* file ids; empty: the numbers are the ids */
    struct rfs_intern *copy_names;            /* while it is built: names of copy_files, or NULL */
    RFS_VEC(struct rfs_chunk_again) again;    /* while it is built: chunks that are stored again */
    uint32_t n_all_files;                     /* files, also those that have nothing but copies */
    struct rfs_chunks_checks *checks;         /* checks of files; owned; NULL: none is checked */
};

/* A folder with such a checkpoint. All is borrowed; files, tables and log outlive the chunks. */
struct rfs_chunks_source {
    const char *folder;      /* absolute and resolved */
    struct rfs_files *files; /* file 0 describes the checkpoint, or all do so together */
    struct rfs_tables *tables;
    struct rfs_log *log;
    const char *entry; /* the dict whose tensors it has, as for rfs_torch_walk; NULL: all */
    const char *lost;  /* NULL, or rfs_chunks.lost, where files describe themselves */
};
/*
 * Opens a checkpoint. 0 with *out owned by the caller, or: -EINVAL for metadata that is damaged or
 * contradicts itself, -ENOTSUP for a kind that is not read, -EFBIG for a file that would take too
 * much memory, -ENOMEM, or a read's error, each with *err filled.
 */
typedef int rfs_chunks_open_fn(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                               struct rfs_error *err);

/*
 * Begins a checkpoint. The caller has registered file 0, and registers no other before
 * rfs_chunks_finish. NULL when out of memory.
 */
struct rfs_chunks *rfs_chunks_new(const struct rfs_chunks_format *format,
                                  const struct rfs_chunks_source *source);
void rfs_chunks_free(struct rfs_chunks *chunks);

/*
 * Adds a tensor of a name that does not occur yet; the chunks that are added next are its. TYPE has
 * dims, ndim and dtype; its bytes are set here. 0, or -errno with *err filled.
 */
int rfs_chunks_add_tensor(struct rfs_chunks *chunks, const char *name, size_t length,
                          struct rfs_type *type, struct rfs_error *err);
/*
 * Adds a chunk of the last tensor, in elements along each axis. A chunk without elements, or with
 * the box of another, is ignored. 0, or -errno with *err filled (outside the tensor, no memory).
 */
int rfs_chunks_add_chunk(struct rfs_chunks *chunks, const uint64_t *offset, const uint64_t *size,
                         struct rfs_error *err);
/* Adds an object of a name that does not occur yet. 0, or -errno with *err filled. */
int rfs_chunks_add_object(struct rfs_chunks *chunks, const char *name, size_t length,
                          struct rfs_error *err);
/*
 * Adds a tensor that can't be shown, with the reason WHY: its chunks are not added, and where they
 * are stored is of no interest. A tensor that was added may become one, too. 0, or -errno with *err
 * filled.
 */
int rfs_chunks_add_unread(struct rfs_chunks *chunks, const char *name, size_t length,
                          const char *why, struct rfs_error *err);
/* Says whether that name was only added as that of a tensor that can't be shown. O(1). */
bool rfs_chunks_is_unread(const struct rfs_chunks *chunks, const char *name, size_t length);
/* Sorts the chunks when all are added. 0, or -EINVAL with *err filled: two begin at one element. */
int rfs_chunks_sort(struct rfs_chunks *chunks, struct rfs_error *err);

/*
 * Returns the id of a file by its path within the folder, and registers it at the first call.
 * RFS_NO_ID with *err filled: the path leads out of the folder.
 */
uint32_t rfs_chunks_add_file(struct rfs_chunks *chunks, const char *path, size_t length,
                             struct rfs_error *err);
/* Returns the tensor of that name, or NULL. O(1). */
const struct rfs_chunked_tensor *rfs_chunks_find(const struct rfs_chunks *chunks, const char *name,
                                                 size_t length);
/*
 * Sets where the chunk of a tensor that begins at OFFSET is stored: ITEM_BYTES of FILE from ITEM
 * on. A chunk without elements is ignored. 0; 1 for one that is stored already, which gets a copy;
 * or -errno with *err filled: there is no such chunk, or it is stored twice in a format without
 * again. After rfs_chunks_sort; O(log chunks of the tensor).
 */
int rfs_chunks_store(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                     const uint64_t *offset, uint32_t file, uint64_t item, uint64_t item_bytes,
                     struct rfs_error *err);
/*
 * Sets where the object of that name is stored; in a format with again the first place counts. 0,
 * or -errno with *err filled.
 */
int rfs_chunks_store_object(struct rfs_chunks *chunks, const char *name, size_t length,
                            uint32_t file, uint64_t item, uint64_t item_bytes,
                            struct rfs_error *err);

/*
 * Sets the further copies of a chunk that is stored: they are in FILES[0 … N), numbers by
 * rfs_chunks_add_copy_file or file ids. PLACES (or NULL: the format finds them) are where their
 * elements begin. 0 or -ENOMEM with *err filled. O(N + log chunks of the tensor).
 */
int rfs_chunks_store_copies(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor,
                            const uint64_t *offset, const uint32_t *files, const uint64_t *places,
                            size_t n, struct rfs_error *err);
/*
 * Returns the number of a file that may have nothing but copies, by its path within the folder. It
 * gets an id in rfs_chunks_finish, behind all others. RFS_NO_ID with *err filled: no memory.
 */
uint32_t rfs_chunks_add_copy_file(struct rfs_chunks *chunks, const char *path, size_t length,
                                  struct rfs_error *err);

/*
 * Proves that all objects and chunks are stored, and that these tile their tensors. 0, or -errno
 * with *err filled: the tensor and the box. A gap is no failure where files are lost.
 */
int rfs_chunks_finish(struct rfs_chunks *chunks, struct rfs_error *err);

/*
 * Gives a tensor that is stored flattened its shape, NDIM DIMS, after rfs_chunks_finish. Its chunks
 * are boxes of a tensor with these axes in tiles, and behind them one axis for the elements of each
 * tile. 0, or -errno with *err filled: it cannot be of that shape.
 */
int rfs_chunks_unflatten(struct rfs_chunks *chunks, const char *name, size_t length, uint32_t ndim,
                         const uint64_t *dims, struct rfs_error *err);

/* Says whether a tensor may be a flattened one with WHOLE's shape, whatever its dtype. */
bool rfs_chunks_may_be_flat(const struct rfs_chunks *chunks,
                            const struct rfs_chunked_tensor *tensor,
                            const struct rfs_chunked_tensor *whole);

/* ---- once they are finished ------------------------------------------------------------------ */

/* Says whether a tensor is stored flattened. */
static inline bool rfs_chunks_is_flat(const struct rfs_chunked_tensor *tensor)
{
    return tensor->stored != tensor->type;
}
/* Returns the type with that id. */
static inline const struct rfs_type *rfs_chunks_type(const struct rfs_chunks *chunks, uint32_t type)
{
    return (const struct rfs_type *)rfs_intern_bytes(chunks->tables->types, type, NULL);
}
/*
 * Returns the number of pieces that an axis of a tensor is cut in: 1 if the tensor was flattened as
 * a whole, because its chunks are ranges of elements then.
 */
static inline uint32_t rfs_chunks_pieces(const struct rfs_chunks *chunks,
                                         const struct rfs_chunked_tensor *tensor, uint32_t axis)
{
    const bool is_row =
        rfs_chunks_is_flat(tensor) && rfs_chunks_type(chunks, tensor->stored)->ndim == 1;

    return tensor->grid && !is_row ? tensor->grid->pieces[axis] : 1;
}
/* Returns the type of a chunk. */
static inline const struct rfs_type *rfs_chunks_type_of(const struct rfs_chunks *chunks,
                                                        uint32_t chunk)
{
    return rfs_chunks_type(chunks, chunks->chunks.data[chunk].type);
}
/* Returns the tensor that a chunk belongs to. O(log tensors). */
const struct rfs_chunked_tensor *rfs_chunks_tensor_of(const struct rfs_chunks *chunks,
                                                      uint32_t chunk);
/* Returns the name of the tensor that a chunk belongs to. */
const char *rfs_chunks_name_of(const struct rfs_chunks *chunks, uint32_t chunk);
/* Gives where a chunk begins in its tensor as that is stored, in elements along each axis. */
static inline void rfs_chunks_corner(const struct rfs_chunks *chunks,
                                     const struct rfs_chunked_tensor *tensor, uint32_t chunk,
                                     uint64_t *offset)
{
    rfs_type_place(rfs_chunks_type(chunks, tensor->stored), chunks->chunks.data[chunk].corner,
                   offset);
}

/*
 * Sets that no chunk or copy is located before the checksums of its file (or of its item) are found
 * to be right. To be called before any is located. 0 or -ENOMEM.
 */
int rfs_chunks_set_checked(struct rfs_chunks *chunks);
/*
 * Gives how many bytes an object has. A compressed one is decompressed: as its item_bytes are the
 * most that it may have. 0, or -errno with *err filled. From any thread.
 */
int rfs_chunks_object_bytes(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                            uint64_t *bytes, struct rfs_error *err);
/* Returns how many further copies a chunk has. */
uint32_t rfs_chunks_count_copies(const struct rfs_chunks *chunks, uint32_t chunk);
/*
 * Finds further copy COPY of a chunk, from 0 on. If that one is read instead of the chunk's own
 * file, it is the own file that is found. 0 with *out filled, whose type may differ from the
 * chunk's; or -errno with *err and out's file filled: that file cannot be used. The headers that
 * are read stay in memory; copies with equal headers share them.
 */
int rfs_chunks_locate_copy(struct rfs_chunks *chunks, uint32_t chunk, uint32_t copy,
                           struct rfs_chunked_copy *out, struct rfs_error *err);

/*
 * Looks up where a chunk's elements are, at the first call: in its file, or in a copy if that file
 * is damaged, which is logged. 0, or -errno with *err filled.
 */
int rfs_chunks_locate(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err);
/* Returns the file that a chunk is read from once it is located, else its own. */
static inline uint32_t rfs_chunks_file_of(const struct rfs_chunks *chunks, uint32_t chunk)
{
    const uint32_t instead =
        chunks->copies ? atomic_load_explicit(&chunks->copies[chunk].instead, memory_order_relaxed)
                       : RFS_NO_ID;

    return instead == RFS_NO_ID ? chunks->chunks.data[chunk].file : instead;
}
/*
 * Returns a value for rfs_chunk.at, for elements that begin at AT of the file and have strides, in
 * bytes; RFS_NOT_LOCATED: no memory. From any thread.
 */
uint64_t rfs_chunks_add_strided(struct rfs_chunks *chunks, uint64_t at, uint32_t ndim,
                                const uint64_t *stride);
