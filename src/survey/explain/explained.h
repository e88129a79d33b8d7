/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of destination slices come from, for reshard explain: a slice has one list of
 * pieces, whatever the source is. Headers are read, and no tensor.
 *
 * One slice at a time is in memory. Not thread-safe.
 */
#pragma once

#include "base/error.h"
#include "base/progress.h"
#include "base/vec.h"
#include "formats/index.h"
#include "layout/grid.h"
#include "layout/strategy.h"
#include "plan/trace.h"
#include "reshard.h"
#include "view/contents.h"

struct rfs_params;
struct rfs_rules_made;
struct rfs_target;
struct rfs_trace;
struct rfs_view;

/* The nouns for members of the source and of the destination. */
struct rfs_explained_words {
    const char *one, *many;       /* "rank", "ranks" of the destination */
    const char *source, *sources; /* "rank", "ranks"; or "file", "files" of a chunked source */
    const char *from, *from_many; /* "from rank", "from ranks" */
};

struct rfs_explained_parts;

/* A view, and what is asked about it. */
struct rfs_explained_view {
    const char *path; /* path of the source; the view's */
    const struct rfs_explained_words *words;
    uint32_t n_sources;  /* number of ranks, parts or files of the source */
    uint32_t n_ranks;    /* ranks of the destination */
    const char *offsets; /* what offsets are, if they are not places in the files; or NULL */
    bool chunked;        /* a file may have several chunks of a tensor */
    bool by_rules;       /* conversion rules make the tensors */
    bool in_parts;       /* hfai's parts */

    const uint32_t *selected; /* [n_selected] destination ranks, ascending; set by the caller */
    size_t n_selected;
    bool some, one;                /* they were chosen; as the only one */
    const char *param;             /* the parameter that is asked for; set by the caller, or NULL */
    struct rfs_progress *progress; /* progress of plans and counts; set by the caller */

    struct rfs_view *view; /* this and the rest are for explained.c alone */
    struct rfs_view_contents of;
    struct rfs_explained_parts *parts;
    const struct rfs_params *params; /* the parameter list that was searched last, for param */
    uint32_t found;                  /* number of param in that list; RFS_NO_ID: none */
};

/* The cuts of the parameter in the source, or in the destination. */
struct rfs_explained_side {
    const char *words;               /* a sentence instead of a grid; or NULL */
    const struct rfs_layout *layout; /* NULL: no strategy has the parameter */
    const struct rfs_grid *grid;     /* NULL: the parameter is copied */
    const uint64_t *slice;           /* dims of a slice; NULL: they differ, or there is no grid */
};

/* The slice of one destination rank. */
struct rfs_explained {
    uint32_t rank;
    size_t position; /* index of rank in the view's selected ranks */
    size_t n;        /* pieces */

    const struct rfs_target *target; /* this and the next members are for explained.c alone */
    struct rfs_trace *trace;
    const struct rfs_rules_made *by;

    const struct rfs_type *type;  /* dims and axes as boxes have them */
    const struct rfs_type *shown; /* dims and axes as the file has them */

    /* The rest is set by rfs_explained_each alone. */
    const char *name, *shown_name;
    const uint64_t *whole; /* [type->ndim] dims of the tensor that the boxes lie in */
    bool copied;           /* no strategy cuts the tensor: the boxes of pieces are all of it */
    bool made;             /* conversion rules make the tensor */
    const char *rule_file; /* file of the rule that makes it; NULL: it stays as it is */
    uint32_t rule_line;
    uint32_t n_dims;
    /* [n_dims] dims as users know them, also where the whole is a row of hfai's parts */
    const uint64_t *dims;
    struct rfs_explained_side source, destination;
    char chunks[256];              /* "21 chunks, axis 0 in 21" */
    RFS_VEC(struct rfs_box) boxes; /* boxes of the whole; none: the tensor is copied */
    char *path;                    /* file that shows the slice, or NULL; owned */
    uint64_t offset;               /* offset in that file, bytes */
};

/*
 * Opens what can be asked about OPENED, a view of one save. 0, or -errno with *err filled; *out is
 * to be closed in any case, before the view is.
 */
int rfs_explained_open(reshard_view *opened, struct rfs_explained_view *out, struct rfs_error *err);
void rfs_explained_close(struct rfs_explained_view *view);

/*
 * Plans the selected ranks. If a parameter is asked for, one of the ranks must have it. 0, or
 * -errno with *err filled by the lowest refused rank that was tried.
 */
int rfs_explained_plan(struct rfs_explained_view *view, struct rfs_error *err);

/* -- sums -- */

/* The bytes that are taken from a source file. */
struct rfs_explained_source {
    uint32_t file;    /* number among the source files */
    uint32_t rank;    /* source rank that the file belongs to */
    const char *path; /* path below the source's folder; the view's */
    uint64_t bytes;
};
struct rfs_explained_sources {
    struct rfs_explained_source *data; /* ascending by file */
    size_t n, cap;
    uint64_t bytes; /* bytes of all */
};

/*
 * Bytes that destination ranks take from source files: sums for each rank, and for all of them
 * together with each byte counted once, as on a node that keeps what it has read.
 *
 * Cost: 32 bytes for each pair of a rank and a file that gives it something; and of one parameter
 * at a time the boxes of all ranks, 280 bytes each.
 */
struct rfs_explained_totals {
    size_t n_ranks;
    struct rfs_explained_rank {
        struct rfs_explained_sources sources;
        uint64_t parameters, shown_bytes;  /* bytes as shown */
        uint32_t files;                    /* files that the rank depends on */
    } * ranks;                             /* [n_ranks] by position in the view's selected ranks */
    struct rfs_explained_sources together; /* each byte of a file once */
};
void rfs_explained_totals_free(struct rfs_explained_totals *totals);

/*
 * Calls FN for the slice of the parameter of each selected rank that has it, when that is in
 * TOTALS, which are complete at the end; TOTALS may be NULL, else it is to be freed in any case. 0,
 * the result of FN if that is not 0, or -errno with *err filled.
 */
typedef int rfs_explained_fn(void *ctx, const struct rfs_explained *slice, struct rfs_error *err);
int rfs_explained_each(struct rfs_explained_view *view, struct rfs_explained_totals *totals,
                       rfs_explained_fn *fn, void *ctx, struct rfs_error *err);
/*
 * Sums up the slices of all parameters of the selected ranks, which are planned; parameters of the
 * same geometries are counted once, where all files list the same. 0, or -errno with *err filled;
 * TOTALS are to be freed in any case.
 */
int rfs_explained_all(struct rfs_explained_view *view, struct rfs_explained_totals *totals,
                      struct rfs_error *err);

/* -- pieces -- */

enum {
    RFS_EXPLAINED_MADE,
    RFS_EXPLAINED_SOURCE
}; /* sides of a piece: the tensor that is shown, and the source's */
#define RFS_EXPLAINED_STEPS 12

/*
 * A piece of a slice. Rules give it by steps: its elements are those at BEGIN + Σ i_k * step[k] for
 * all i_k below count[k], along axis[k], in both tensors. Otherwise it is a box.
 */
struct rfs_explained_piece {
    uint32_t rank, first; /* source rank that gives it, and the one that it replaces, if another */
    const char *path;     /* source file, below the source's folder; the view's */
    const char *name;     /* source tensor; the view's */
    uint64_t bytes;       /* bytes of the file, each counted once */
    int plus;             /* rules add it to each element */
    bool zeros;           /* rules fill it with zeros, and take nothing of the file */
    /* boxes in the whole tensor, in the file's and in the destination's slice; NULL: steps */
    const struct rfs_box *whole, *source, *target;
    struct {
        uint32_t ndim;
        const uint64_t *dims; /* dims of the whole tensor; of a source with boxes, the file's */
        uint64_t begin[RFS_MAX_DIMS];
    } side[2];
    uint32_t n; /* steps; counts are above 1 */
    struct {
        uint64_t count, step[2];
        uint32_t axis[2];
    } steps[RFS_EXPLAINED_STEPS];
};
/* Describes piece I of a slice; it borrows from the slice. */
void rfs_explained_piece(const struct rfs_explained_view *view, const struct rfs_explained *slice,
                         size_t i, struct rfs_explained_piece *out);

/* How another source rank has a piece. */
enum rfs_explained_holding {
    RFS_EXPLAINED_SAME,     /* its file has the same slice */
    RFS_EXPLAINED_LEFT_OUT, /* its file leaves the slice out */
    RFS_EXPLAINED_LOST,     /* its file is not there */
};
/*
 * Returns the other source ranks that have piece I of a slice in that way, ascending, owned by the
 * caller; hfai's parts have none. NULL when out of memory.
 */
uint32_t *rfs_explained_holders(const struct rfs_explained_view *view,
                                const struct rfs_explained *slice, size_t i,
                                enum rfs_explained_holding holding, size_t *n);

/*
 * RUN bytes at OFFSET + Σ i_k * loop[k].stride for all i_k below loop[k].count, outermost loop
 * first. Strides are 0 where the same bytes are taken over and over, as of a tensor that torch
 * expanded.
 */
struct rfs_explained_range {
    uint64_t offset; /* offset in the file, bytes; that of the item, if it is compressed */
    uint64_t run;
    uint32_t n_loops;
    struct {
        uint64_t count, stride;
    } loop[RFS_MAX_DIMS];
};
struct rfs_explained_ranges {
    struct rfs_explained_range *data;
    size_t n, cap;
};
/*
 * Sets *OUT to the ranges of piece I of a slice in its file: one, unless the tensor is in several
 * extents. They have the order of the elements, or where rules give the piece, that of the file.
 * The caller owns out->data. False when out of memory.
 */
bool rfs_explained_piece_ranges(const struct rfs_explained_view *view,
                                const struct rfs_explained *slice, size_t i,
                                struct rfs_explained_ranges *out);

/* ---- ranges of bytes, and the elements of boxes together (explained_bytes.c) ---------------- */

/*
 * Appends the ranges of a block: none for zeros, else one, unless the tensor lies in several
 * extents (a .ckpt has one for each 512 MiB): then up to one a loop for each extent, and one more
 * for each boundary. Their runs have the order of the block's elements. False when out of memory.
 * Other files than explained_bytes.c call it for tests alone, as the next.
 */
bool rfs_explained_ranges_add(const struct rfs_block *block, struct rfs_explained_ranges *out);
/* Sorts loops by stride, largest first, which is the order of the file; joins adjacent runs. */
void rfs_explained_range_sort(struct rfs_explained_range *range);

/* Returns the bytes in the file that make BYTES of a content: fewer if it is stored as codes. */
uint64_t rfs_explained_stored_bytes(const struct rfs_quant *quant, uint64_t bytes);
/* Returns the bytes of the file that a block takes, each counted once; of codes, without scales. */
uint64_t rfs_explained_block_bytes(const struct rfs_block *block);

struct rfs_explained_boxes {
    struct rfs_box *data;
    size_t n, cap;
};

/*
 * Sets *VOLUME to the elements that boxes of NDIM axes cover together, each counted once. The boxes
 * may overlap in any way, lie in a tensor of fewer than 2^64 elements, and are reordered.
 * O(n log n) an axis for the cells of a grid, however often each comes; n² at worst. False when
 * out of memory.
 */
bool rfs_explained_boxes_volume(struct rfs_explained_boxes *boxes, uint32_t ndim, uint64_t *volume);
