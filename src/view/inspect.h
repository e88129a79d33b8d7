/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall between the view and the tool: what commands need that reshard.h does not have. Tensors
 * and their pieces, the sources of shown files, needed ranks, and the findings of rules. A command
 * sees no planner, catalogue or format; members of structs that are pointers to such are the view's.
 *
 * Threads: all functions, unless a comment says otherwise.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/options.h"
#include "base/path.h"
#include "base/progress.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/vec.h"
#include "formats/index.h"
#include "layout/grid.h"
#include "layout/layout_rules.h"
#include "layout/strategy.h"
#include "reshard.h"

#include <pthread.h>
#include <sys/stat.h>

struct rfs_catalog;
struct rfs_encrypted;
struct rfs_key;
struct rfs_lacking;
struct rfs_needed;
struct rfs_params;
struct rfs_planner;
struct rfs_pool;
struct rfs_rules_made;
struct rfs_slice;
struct rfs_store;
struct rfs_target;
struct rfs_trace;
struct rfs_view;
struct rfs_view_hfai_list;

/* ---- opening views --------------------------------------------------------------------------- */

/* The way in which a command opens a view. */
struct rfs_view_how {
    reshard_log_fn *log; /* as in reshard_config; or NULL */
    void *log_ctx;
    bool late; /* slices of lost ranks are reported by the files that need them, not by opening */
    /*
     * The tensors are wanted, in whatever files they would be shown: where no option chooses a
     * format, one is chosen, and the folder of a rank is that rank's file.
     */
    bool tensors;
    /*
     * The view that the source was exported by, whose destination says how it is cut, unless an
     * option does; or NULL. Borrowed.
     */
    struct rfs_view *maker;
    /* All errors of conversion rules are found, up to 20; those before the last go to the log. */
    bool all_errors;
    bool wary; /* a strategy that any rank contradicts is refused, not only where most do */
};
/*
 * Opens a view for a command as reshard_open does, after hardening the process if the options name
 * a key. The default of cache= is RFS_VIEW_CACHE, or with a key, so that blocks of 64 MiB fit,
 * RFS_VIEW_CACHE_KEYED. Returns 0, or -errno with *err filled; *out is the caller's, NULL on
 * failure.
 */
#define RFS_VIEW_CACHE "128M"
#define RFS_VIEW_CACHE_KEYED "256M"
int rfs_view_start(const char *source, const struct rfs_settings *settings,
                   const struct rfs_view_how *how, struct reshard_view **out,
                   struct rfs_error *err);

/*
 * Reads the values of SETTINGS in their order, and checks what does not depend on the source.
 * Returns 0, -ENOMEM, or -EINVAL with *err filled as a mistake of usage; *out is to be freed in any
 * case.
 */
int rfs_view_options_take(const struct rfs_settings *settings, struct rfs_options *out,
                          struct rfs_error *err);

/*
 * Prepares for reading N PATHS, each NULL or read without a view, as far as they are URLs: *OUT
 * reads them until the process ends; NULL if none is. Returns 0, or -errno with *err filled.
 */
int rfs_view_options_reach(const struct rfs_options *options, const char *const *paths, size_t n,
                           struct rfs_store **out, struct rfs_error *err);

/* ---- whole tensors --------------------------------------------------------------------------- */
/*
 * A checkpoint as its whole tensors, however it is sharded and in whatever format: what the
 * commands read that compare and measure. Opening one reads the headers that a view of one rank
 * needs.
 *
 * Memory: 48 bytes a tensor beside the view's. Threads: all functions but open and close.
 */

struct rfs_whole_tensor {
    const char *name;            /* the shown name; owned by the view, as the next members are */
    const struct rfs_type *type; /* the shown type, which option dtype may set */
    const struct rfs_target *target;
    bool own; /* no strategy of several ranks knows it: this is the first rank's */
    const struct rfs_whole *cut; /* NULL, or a slice of its rank RANK stands for the tensor */
    uint32_t rank;
};

struct rfs_whole {
    const char *path;            /* the path as it was given; borrowed */
    reshard_view *opened;        /* owned, but by a cut */
    struct rfs_view *view;       /* the only one in there; set once all is well */
    bool is_cut;                 /* it has slices of a destination, and its view is another's */
    struct rfs_planner *planner; /* owned; with parts, theirs */
    struct rfs_view_hfai_list *parts; /* owned; hfai's parts; or NULL */
    struct rfs_catalog *catalog;
    struct rfs_lacking *lacking;     /* owned; what damaged ranks lack, if there may be any */
    uint32_t first, ranks, stages;   /* ranks of its strategy, from the first on, and stages */
    const struct rfs_params *params; /* the list of the targets */
    uint32_t rank;                   /* rank of the destination whose slices they are */
    bool of_rank;                    /* that rank was asked for */
    size_t n;
    struct rfs_whole_tensor *tensors; /* [n] owned; in the order of the files */
    uint32_t *by_name;                /* [n] owned; positions, by the names' bytes */
};

/* The names that a caller wants: TAKE says so of each name that there is. */
struct rfs_whole_names {
    bool (*take)(void *ctx, const char *name);
    void *ctx;
};

/*
 * Lists the tensors of OPENED, a view of PATH, and takes the view over in any case. Tensors of
 * hfai's parts are those of all that dist_ckpt.load returns (hfai/hfai.h). Tensors whose names are
 * not taken are dropped; NAMES may be NULL. PATH is borrowed.
 *
 * If the view has a destination, *CUT (else without a view) is this checkpoint by this view, but
 * its tensors are those of destination rank 0, as that has them. For others, make a tensor of a
 * target of the rank's plan, and its slice by rfs_planner_slice. CUT NULL: a destination is
 * refused.
 *
 * If the view is late (struct rfs_view_how), ranks may be missing or damaged. A tensor that cannot
 * be read without them is left out, and rfs_whole_lost names it; plans are made one at a time.
 *
 * Returns 0, or -errno with *err filled; both are to be closed in any case, CUT first.
 */
int rfs_whole_open(const char *path, reshard_view *opened, const struct rfs_whole_names *names,
                   struct rfs_whole *whole, struct rfs_whole *cut, struct rfs_error *err);
void rfs_whole_close(struct rfs_whole *whole);

/*
 * Lists the slices of destination rank RANK of a view, as it has them, or whole tensors for -1,
 * whatever the destination. With hfai's parts, and without a destination, there is rank 0 alone,
 * which has all whole. Takes the view over. Returns 0, or -errno with *err filled; to be closed in
 * any case.
 */
int rfs_whole_open_rank(const char *path, reshard_view *opened, int64_t rank,
                        struct rfs_whole *whole, struct rfs_error *err);

/*
 * Prepares two checkpoints to be compared; B without a view is none. If one is hfai's parts and the
 * other is not, drops all tensors of the parts but those of models, and returns the path of the
 * parts; else NULL.
 */
const char *rfs_whole_match(struct rfs_whole *a, struct rfs_whole *b);

/*
 * Sets *OUT to the tensor that is shown, or else stored, by that name. 0, or -ENOENT with *err
 * filled, which names another.
 */
int rfs_whole_choose(const struct rfs_whole *whole, const char *name,
                     const struct rfs_whole_tensor **out, struct rfs_error *err);
/* Returns the tensor of that name, or NULL. O(log n). */
const struct rfs_whole_tensor *rfs_whole_find(const struct rfs_whole *whole, const char *name);

/* Returns whether NAME is a tensor that lost ranks had alone, as far as plans that were made tell. */
bool rfs_whole_lacks(const struct rfs_whole *whole, const char *name);

#define RFS_SHAPE_TEXT RFS_DIMS_TEXT(RFS_MAX_DIMS) /* bytes of a shape as text */
/* Returns "Float32" and the like, or "map". */
const char *rfs_whole_dtype(const struct rfs_type *type);

/* ---- sweeps ---------------------------------------------------------------------------------- */
/*
 * Tensors of one checkpoint or of several beside each other, each from its first byte to its last,
 * in pieces by several threads: pieces are worked on at once, and their results are folded into
 * their item in order (turns.h). So the result does not depend on the number of threads, and a hash
 * of an item can be folded that others help to read.
 *
 * Memory: 8 bytes an item, and each thread's worker.
 */

#define RFS_SWEEP_PIECE ((uint64_t)4 << 20) /* bytes; a multiple of the assembler's pieces */
#define RFS_SWEEP_SIDES 3

/* Units BEGIN to BEGIN + N - 1 of an item. */
struct rfs_sweep_piece {
    size_t item;
    uint64_t begin, n; /* N is 0 for the one piece of an item without any */
    bool last;
};

/* The buffers and slices of a thread. */
struct rfs_sweep_worker {
    /* Buffers of RFS_SWEEP_PIECE: the bytes of each side, and spare ones. */
    unsigned char *bytes[RFS_SWEEP_SIDES];
    struct rfs_slice *slice; /* [RFS_SWEEP_SIDES] slices of item OF, on the sides that are read */
    size_t of;               /* SIZE_MAX: none */
    void *own;               /* OWN_BYTES, zero before each piece */
};

struct rfs_sweep {
    void *ctx;
    size_t n; /* items */
    /* The checkpoints that are read; NULL or without a view: a spare buffer. */
    const struct rfs_whole *whole[RFS_SWEEP_SIDES];
    unsigned sides; /* how many, with spare ones */
    size_t own_bytes;
    /* Returns the tensor of an item on a side; NULL: none. */
    const struct rfs_whole_tensor *(*tensor)(void *ctx, size_t item, unsigned side);
    uint64_t (*units)(void *ctx, size_t item);               /* how long an item is */
    uint64_t (*unit)(void *ctx, size_t item, unsigned side); /* bytes of a unit; NULL: 1 */
    /*
     * Work on any pieces at once, and fold those of an item in order. Return 0, or -errno with *err
     * filled, which ends it all.
     */
    int (*work)(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    int (*fold)(void *ctx, struct rfs_sweep_worker *worker, const struct rfs_sweep_piece *piece,
                struct rfs_error *err);
    struct rfs_progress *progress; /* the sweep begins and ends it */
    const char *phase;
};

/*
 * Sweeps over all items. Returns 0, or -errno with *err filled: the error of a piece that failed,
 * or -ENOMEM.
 */
int rfs_sweep_run(const struct rfs_sweep *sweep, unsigned threads, struct rfs_error *err);

/* ---- verifications --------------------------------------------------------------------------- */

enum rfs_finding_kind {
    RFS_FOUND_RANK,        /* a rank has no file, or one that cannot be read; detail says why */
    RFS_FOUND_SOURCE_RANK, /* a rank of the source, likewise; detail says why */
    RFS_FOUND_PARTIAL,     /* a tensor is incomplete; detail says why */
    RFS_FOUND_UNCOMPARED,  /* a tensor of the source is incomplete; detail says why */
    RFS_FOUND_MISSING,     /* a tensor is not there */
    RFS_FOUND_EXTRA,       /* a tensor is there, and should not be */
    RFS_FOUND_TYPE,        /* a tensor has another dtype or shape; detail says which */
    RFS_FOUND_BYTES,       /* a tensor has not the source's bytes */
    RFS_FOUND_MANIFEST,    /* a tensor is not as the manifest says; detail says how */
    RFS_FOUND_REPLICA,     /* a copy has not the bytes of the other ranks that hold it */
    RFS_FOUND_FRAME,       /* what is in a file beside tensors is not what a mount shows */
    RFS_FOUND_FILE,        /* a file is missing, of another size, or unreadable; detail says it */
    RFS_FOUND_VALUE,       /* a value that is no tensor is not the source's; detail says how */
    /*
     * The others are notes. A rank has bytes of its own, but no strategy says that it should not.
     */
    RFS_FOUND_OWN,
    /* a rank has what a mount would show, but ranks of the source that should agree differ */
    RFS_FOUND_SOURCE,
    RFS_FOUND_MODELS, /* only the models of hfai's parts were compared; detail names the side */
    /* a file is of another size or order than a mount's: its tensors alone were compared */
    RFS_FOUND_OTHERWISE,
};

/* Returns whether findings of a kind are faults, not notes. */
static inline bool rfs_finding_is_fault(enum rfs_finding_kind kind)
{
    return kind < RFS_FOUND_OWN;
}

#define RFS_FOUND_NOWHERE UINT64_MAX /* no byte of a tensor */

struct rfs_finding {
    enum rfs_finding_kind kind;
    const char *name;   /* name of the tensor; NULL: a rank or a file as a whole; borrowed */
    uint32_t rank;      /* RFS_NO_RANK: none */
    const char *detail; /* more text, or NULL; owned by the findings */
    const char *file;   /* path of the file with the first difference, or NULL; borrowed */
    uint64_t offset;    /* offset of the first difference in that file */
    uint64_t at;        /* byte of the whole tensor that differs; or RFS_FOUND_NOWHERE */
    /*
     * Sorted: the end of the group that begins here, in the list. A group is findings of one name,
     * kind and detail; without ranks, also of one file.
     */
    size_t group;
};

struct rfs_findings {
    pthread_mutex_t lock; /* guards the rest; a leaf lock */
    /* keys of findings, so that each exists once; ids are indexes in list */
    struct rfs_intern *keys;
    RFS_VEC(struct rfs_finding) list;
    struct rfs_arena arena; /* holds details */
    bool failed;            /* out of memory */
};

/* Adds a finding that is in no file; arguments are members of struct rfs_finding. */
void rfs_findings_add_plain(struct rfs_findings *findings, enum rfs_finding_kind kind,
                            const char *name, uint32_t rank, const char *detail);
/* Sorts by name, kind, detail, file where there is no rank, and rank; sets the groups. */
void rfs_findings_sort(struct rfs_findings *findings);
/* Returns whether a tensor, or anything (NULL), has a fault; sorted or not. */
bool rfs_findings_fault(const struct rfs_findings *findings, const char *name);

/* The caller's wishes. */
struct rfs_verify_wishes {
    bool (*match)(const void *ctx, const char *name); /* takes a tensor of that name */
    const void *match_ctx;
    bool some;        /* only some tensors are taken, so that files are not compared */
    bool wants_sums;  /* a manifest is compared or written, which has sums of whole tensors */
    bool no_replicas; /* copies are not compared */
    unsigned threads;
    void (*warn)(const char *line);
};

/* A tensor that is verified. */
struct rfs_verify_item {
    const struct rfs_whole_tensor *tree;
    const struct rfs_whole_tensor *src; /* has the same type; NULL: nothing to compare with */
    bool lost;                          /* the tensor is one of verify->lost */
    bool by_rank;                       /* the tensor has no whole, and is compared rank by rank */
    struct rfs_hash hash;
    void *state; /* XXH3_state_t, while it is read */
};

struct rfs_verify {
    struct rfs_verify_wishes wishes;
    struct rfs_whole tree;
    struct rfs_whole src;   /* view NULL: there is none */
    struct rfs_whole shown; /* src as the tree should be; view NULL: there is no destination */
    struct rfs_whole cut;   /* shown of a tree that describes its cuts, and is read as a whole */
    struct rfs_verify_item *items; /* the tree's tensors, in their order, then the lost */
    struct rfs_whole_tensor *lost; /* [n_lost] tensors of the tree, without a target */
    size_t n_lost;
    bool damaged;  /* some rank of the tree is damaged or missing */
    size_t values; /* compared values that are not tensors */
    struct rfs_findings findings;
    struct rfs_progress progress;
};

/* Initialises a zeroed verification with wishes. 0, or -ENOMEM with *err filled. */
int rfs_verify_begin(struct rfs_verify *verify, struct rfs_error *err);
/* Closes the checkpoints, and frees what the verification owns; call it in any case. */
void rfs_verify_end(struct rfs_verify *verify);

/* Verifies all, when the checkpoints are open. 0, or -errno with *err filled. */
int rfs_verify_all(struct rfs_verify *verify, struct rfs_error *err);
/*
 * Finds the missing and the damaged ones of hfai's parts, in a folder that cannot be opened.
 * Returns false when there are none.
 */
bool rfs_verify_parts(struct rfs_verify *verify, const char *folder, enum rfs_finding_kind kind);

/* ---- explanations ---------------------------------------------------------------------------- */
/*
 * Where the bytes of destination slices come from, for reshard explain: a slice has one list of
 * pieces, whatever the source is. Headers are read, and no tensor.
 *
 * One slice at a time is in memory. Not thread-safe.
 */

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
    struct rfs_explained_parts *parts;
    const struct rfs_params *params; /* the parameter list that was searched last, for param */
    const struct rfs_target *target; /* target of param in that list; NULL: none */
    size_t tensor;                   /* number of param in the parts; SIZE_MAX: they lack it */
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

    const struct rfs_target *target; /* this and the next members are for the view alone */
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
 * Plans the selected ranks. If a parameter is asked for, one of the ranks must have it. 0, or -errno
 * with *err filled by the lowest refused rank that was tried.
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
 * Cost: 32 bytes for each pair of a rank and a file that gives it something; and of one parameter at
 * a time the boxes of all ranks, 280 bytes each.
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
 * Calls FN for the slice of the parameter of each selected rank that has it, when that is in TOTALS,
 * which are complete at the end; TOTALS may be NULL, else it is to be freed in any case. 0, the
 * result of FN if that is not 0, or -errno with *err filled.
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
 * extents. They have the order of the elements, or where rules give the piece, that of the file. The
 * caller owns out->data. False when out of memory.
 */
bool rfs_explained_piece_ranges(const struct rfs_explained_view *view,
                                const struct rfs_explained *slice, size_t i,
                                struct rfs_explained_ranges *out);

/* ---- files that are written ------------------------------------------------------------------ */
/*
 * The sources of shown files' bytes, for writing whole files (reshard export). Files are named by
 * the ids that reshard_list gives. Unless documented otherwise they must be planned:
 * rfs_view_plan_file has succeeded. (A successful reshard_getattr is not enough: it may use sizes
 * that an earlier view saved.)
 *
 * Threads: all functions.
 */

/* Bytes of a shown file that lie in one piece in one source file. */
struct rfs_view_run {
    uint64_t begin, end; /* range in the shown file */
    uint32_t file;       /* id among the source files */
    uint64_t source;     /* offset of byte BEGIN in the source file */
    uint64_t id;         /* of the shown file */
};

/*
 * Finds the first run of at least LEAST bytes (1 or more) within [BEGIN, END) of a file. Decrypted,
 * cast or computed bytes do not count. Returns 1 with *out filled, 0 when there is none, or -errno.
 * Costs the slices of the parameters in between.
 */
int rfs_view_find_run(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                      uint64_t least, struct rfs_view_run *out);

/*
 * Calls USE with a descriptor of the source file of a run, unless that file is shorter. It is
 * valid during the call, and its offset is not the caller's. Returns 0, or -errno when the source
 * cannot be used, or has changed by the end of the call.
 */
typedef void rfs_view_use_fn(void *ctx, int fd);
int rfs_view_lend(struct reshard_view *view, const struct rfs_view_run *run, rfs_view_use_fn *use,
                  void *ctx);

/*
 * Makes a name for the sources of bytes [BEGIN, END) of a file: ranges with equal keys have equal
 * bytes as long as the sources stay as they are, in this view or in a later one of these source
 * files. A checksum that is computed has a key of its own file. Returns 0, -ENOMEM or -EIO. Costs
 * the slices of the parameters in between.
 */
int rfs_view_key(struct reshard_view *view, uint64_t id, uint64_t begin, uint64_t end,
                 uint64_t key[2]);

/*
 * Plans a file, unless it is planned: its attributes may be known from an earlier view without
 * that. All functions above and the next need it. Returns 0, or -errno with *err filled.
 */
int rfs_view_plan_file(struct reshard_view *view, uint64_t id, struct rfs_error *err);

/*
 * Gives source file I of a file: its resolved path, which is the view's, and its attributes as they
 * were recorded; ST may be NULL. Returns 1, 0 when the file has no more sources, or -errno.
 */
int rfs_view_source(struct reshard_view *view, uint64_t id, uint32_t i, const char **path,
                    struct stat *st);
/*
 * Tells why a call for the file, shown as PATH, failed with CODE: the error of its first source
 * that cannot be read. Returns CODE with *err filled.
 */
int rfs_view_source_failed(struct reshard_view *view, uint64_t id, const char *path, int code,
                           struct rfs_error *err);

/* What is known of a file beside its attributes. */
struct rfs_view_about {
    const char *source; /* resolved path of the source that it is made from; the view's */
    uint32_t rank;      /* its destination rank; RFS_NO_RANK where files are of no rank alone */
    /* Files that probably have one size, as those of a pipeline stage's ranks, share this number. */
    uint64_t kin;
    bool has_crc;     /* a computed checksum of the bytes before its trailer ends the file */
    uint64_t trailer; /* offset of the trailer */
};
/* Describes a file, planned or not; one that is not planned has no checksum yet. */
void rfs_view_about(struct reshard_view *view, uint64_t id, struct rfs_view_about *out);
/* Sets a file's checksum, for a caller that has the bytes, so that they are not read again for it. */
void rfs_view_set_crc(struct reshard_view *view, uint64_t id, uint32_t crc);

/*
 * Opens a reader as reshard_reader_open does, but nothing is read ahead: the caller requests
 * several ranges at once.
 */
int rfs_view_reader_open_scattered(struct reshard_view *view, uint64_t id,
                                   struct reshard_reader **out);

/* ---- headers --------------------------------------------------------------------------------- */

/* A source as the options of a view say that it is to be read, without a view of it. */
struct rfs_headers_source {
    struct rfs_options options;
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* opens encrypted sources; NULL: they are plain */
    struct rfs_encrypted *encrypted; /* NULL: sources are plain */
    struct rfs_store *store;         /* reads URLs; NULL: the source is none */
    struct rfs_catalog *catalog;     /* NULL before rfs_headers_open */
    bool parts;                      /* the source is hfai's parts, once it is open */
    const char *encryption; /* mode of files that no key is given for, once it is open; or NULL */
};

/*
 * Takes OPTIONS for PATH (may be NULL), and reads the key if they name one, after hardening the
 * process. Returns 0, or -errno with *err filled; to be closed in any case.
 */
int rfs_headers_prepare(const struct rfs_settings *options, const char *path, rfs_log_sink *sink,
                        void *ctx, struct rfs_headers_source *out, struct rfs_error *err);
/* Lists the source. */
int rfs_headers_open(struct rfs_headers_source *source, const char *path, struct rfs_error *err);
/* Closes a source, also one that is zero. */
void rfs_headers_close(struct rfs_headers_source *source);

/*
 * The headers of all ranks of a source, and which ranks have equal ones.
 *
 * Every rank's headers are read, in parallel, or of a large tree the first of each kind and samples
 * of the others (rfs_catalog_resembles): then a rank of 10,000 parameters costs a dozen small
 * reads. Costs 64 bytes a rank beside the indexes; ranks that are alike share one.
 */
#define RFS_NO_KIND UINT32_MAX

struct rfs_headers_rank {
    uint32_t rank;
    uint32_t kind;    /* which of the kinds; RFS_NO_KIND: none, for the reason below */
    uint64_t bytes;   /* size of its files, as they are on disk */
    uint32_t files;   /* number of its files */
    const char *path; /* path of the first of them; the catalogue's */
    bool sampled;     /* the kind was found by samples */
    bool empty;       /* the file holds no parameters */
    int code;         /* why it could not be read; 0 */
    char *why;        /* the message; owned */
};

/* Ranks with equal indexes. */
struct rfs_headers_kind {
    const struct rfs_index *index; /* the catalogue's */
    size_t n;                      /* its parameters */
    uint32_t lead;                 /* the lowest of them that was read */
    uint32_t ranks;                /* how many they are */
};

/* A parameter over all ranks. */
struct rfs_headers_parameter {
    const char *name;
    const struct rfs_type *type; /* in the first kind that has it, as the next member is */
    uint64_t offset;             /* offset in the file */
    uint64_t bytes;              /* over all ranks */
    uint32_t ranks;              /* how many have it */
    uint32_t id;                 /* id of the name in the catalogue */
    bool shapes, types;          /* shapes, types differ between ranks */
};

struct rfs_headers {
    const struct rfs_headers_source *source; /* borrowed, like its catalogue */
    struct rfs_catalog *catalog;
    const char *format;             /* name of the source's format */
    uint32_t end;                   /* one more than the highest rank; some below have no files */
    struct rfs_headers_rank *ranks; /* [n] owned; those that have files, ascending */
    uint32_t n;
    RFS_VEC(struct rfs_headers_kind) kinds; /* ordered by their leads */
    bool sampled;                           /* some ranks are */
    /* parameters of all kinds, each once, in the order of the files */
    RFS_VEC(struct rfs_headers_parameter) parameters;
    uint32_t *by_id; /* owned; one more than the parameter's index, by the id of its name; or 0 */
    struct rfs_error failure; /* failure of the first rank that cannot be read; code 0: none */
};

enum rfs_headers_depth {
    RFS_HEADERS_LISTED,  /* ranks that have files alone; bytes is the size of the first file */
    RFS_HEADERS_SAMPLED, /* also headers; samples of a large tree */
    RFS_HEADERS_ALL,     /* also headers; samples are never enough */
};

/*
 * Reads the headers. PROGRESS may be NULL. Returns 0 or -ENOMEM with *err filled: ranks that cannot
 * be read have their own messages. To be freed in any case.
 */
int rfs_headers_read(const struct rfs_headers_source *source, enum rfs_headers_depth depth,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err);
void rfs_headers_free(struct rfs_headers *headers);

/* Returns the parameter of that name, or NULL. */
const struct rfs_headers_parameter *rfs_headers_parameter(const struct rfs_headers *headers,
                                                          const char *name);
/* Returns the type of the parameter with that id in a kind, or NULL. */
const struct rfs_type *rfs_headers_type_in(const struct rfs_headers *headers,
                                           const struct rfs_headers_kind *kind, uint32_t id);

/* ---- strategies ------------------------------------------------------------------------------ */

/*
 * Reads the strategy that TEXT names: the path of a strategy file, of a folder of the files of a
 * pipeline's stages, or several of either with ':' between. Several files are merged in memory.
 * Returns 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_view_read_strategy(struct rfs_store *store, const char *text, struct rfs_strategy **out,
                           struct rfs_error *err);

/*
 * Appends the paths of the strategy files in a folder, sorted. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_list_strategies(struct rfs_store *store, const char *folder, struct rfs_path_list *out,
                             struct rfs_error *err);

/*
 * Compares a strategy with a tree: each parameter's whole shape, from the slices and the cuts, and
 * all that does not go together.
 *
 * A strategy of one stage whose operators are of a later one is that part of a pipeline: its ranks
 * are counted from there, as a mount does.
 */

struct rfs_fit {
    const struct rfs_headers *headers;
    const struct rfs_strategy *strategy;
    uint32_t stages, devices;
    uint32_t base; /* the rank of device 0 of stage 0 */
    /* The comparison that says how the tree is cut; NULL: the strategy does, or WHOLE. */
    const struct rfs_fit *source;
    bool whole; /* the tensors of the tree are not cut at all */
    bool bytes; /* samples of ranks are compared with what the strategy says that they hold */
};

/* Sets how a strategy is compared with a tree; it borrows both. */
void rfs_fit_begin(const struct rfs_headers *headers, const struct rfs_strategy *strategy,
                   struct rfs_fit *out);

/*
 * Proves that the last rank of the tree is the strategy's: shapes of a tree of other ranks are
 * wrong. Nothing is proved of parameters that this strategy does not cut. Returns 0, or -EINVAL
 * with *err filled.
 */
int rfs_fit_ranks(const struct rfs_fit *fit, struct rfs_error *err);

/* A parameter on a stage. */
struct rfs_fit_tensor {
    const struct rfs_layout *layout;
    const struct rfs_type *slice; /* type that the tree holds in RANK */
    uint32_t rank;
    struct rfs_grid grid; /* it borrows the layout */
    uint64_t whole[RFS_MAX_DIMS];
};

/*
 * Finds a parameter on a stage. Returns 1 with *out filled, 0 when the tree does not hold it there,
 * or -EINVAL with *err filled when it does not fit.
 */
int rfs_fit_tensor(const struct rfs_fit *fit, size_t param, uint32_t stage,
                   struct rfs_fit_tensor *out, struct rfs_error *err);

/*
 * Finds a parameter on the first stage that the tree holds it on. Returns as rfs_fit_tensor does; 0
 * also when the strategy does not have it.
 */
int rfs_fit_find(const struct rfs_fit *fit, const char *param, struct rfs_fit_tensor *out,
                 struct rfs_error *err);

/* The place of a contradiction. */
struct rfs_fit_place {
    const char *param;   /* NULL: all parameters */
    int64_t stage, rank; /* -1: all of them */
};
#define RFS_FIT_AT(param, stage, rank) ((struct rfs_fit_place){param, stage, rank})
#define RFS_FIT_ALL RFS_FIT_AT(NULL, -1, -1)

/* A contradiction; texts are in the arena of the list. */
struct rfs_fit_finding {
    /*
     * "ranks", "unreadable", "no parameters", "shape", "type", "hole", "only in the strategy",
     * "only in the tree", "bytes"
     */
    const char *kind;
    bool bad; /* else it is worth knowing, and no reason to refuse */
    struct rfs_fit_place at;
    const char *text;
};

struct rfs_fit_findings {
    struct rfs_arena arena;
    RFS_VEC(struct rfs_fit_finding) list;
    size_t bad;
    bool failed; /* out of memory: some are missing */
};
void rfs_fit_findings_free(struct rfs_fit_findings *findings);
/* Adds a finding with a text; KIND is a constant. */
void rfs_fit_findings_add(struct rfs_fit_findings *findings, const char *kind, bool bad,
                          struct rfs_fit_place at, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/*
 * Adds all findings: of ranks that the tree does not have, or that could not be read or have no
 * parameters; and without a strategy no others. Bytes are compared where none is a reason to refuse.
 * Returns 0, or -ENOMEM or -EINTR with *err filled. O(parameters x (kinds + ranks)).
 */
int rfs_fit_check(const struct rfs_fit *fit, struct rfs_fit_findings *findings,
                  struct rfs_error *err);

/* ---- files and folders by themselves --------------------------------------------------------- */

enum rfs_inspect_kind {
    RFS_INSPECT_CKPT,
    RFS_INSPECT_SAFETENSORS,
    RFS_INSPECT_TORCH,
    RFS_INSPECT_ENCRYPTED,
    RFS_INSPECT_STRATEGY,
    RFS_INSPECT_GROUP,
    RFS_INSPECT_RULES,
    RFS_INSPECT_WEIGHT_MAP,
    RFS_INSPECT_MANIFEST,
    RFS_INSPECT_TREE,
    RFS_INSPECT_PARTS,
    RFS_INSPECT_CHUNKS,     /* a folder whose checkpoint describes itself */
    RFS_INSPECT_RANK,       /* a folder of checkpoints of one rank */
    RFS_INSPECT_STRATEGIES, /* a folder of strategies */
};
/*
 * Detects the kind of PATH, by its first bytes or the names in it. KEYED: there is a key, so that
 * what is no other kind is encrypted. 0, or -errno with *err filled.
 */
int rfs_inspect_detect(struct rfs_store *store, const char *path, bool keyed,
                       enum rfs_inspect_kind *kind, struct rfs_error *err);
/*
 * Finds the checkpoint that counts in the folder of a rank: *OUT, its path, owned by the caller. 0,
 * or -errno with *err filled.
 */
int rfs_inspect_rank_file(struct rfs_store *store, const char *folder, char **out,
                          struct rfs_error *err);

/* A file of one checkpoint. */
struct rfs_inspect_file {
    uint64_t bytes;
    size_t others; /* values that are not tensors */
    bool has_crc, redundancy_removed;
    const char *mode; /* of an encrypted file, without a key; else NULL. It has no tensors then */
    uint32_t blocks;  /* encrypted blocks */
};
/*
 * Takes a tensor: NAME and TYPE last for the call, OFFSET is that of its bytes in the file. False
 * when out of memory.
 */
typedef bool rfs_inspect_tensor_fn(void *ctx, const char *name, const struct rfs_type *type,
                                   uint64_t offset);
/*
 * Reads the headers of a file of KIND, up to RFS_INSPECT_ENCRYPTED, by the options of SOURCE, and
 * calls EACH for its tensors. 0, or -errno with *err filled.
 */
int rfs_inspect_file(const struct rfs_headers_source *source, const char *path,
                     enum rfs_inspect_kind kind, rfs_inspect_tensor_fn *each, void *ctx,
                     struct rfs_inspect_file *out, struct rfs_error *err);
/* Reads group info: the ranks with equal checkpoints, owned by the caller. 0 or -errno. */
int rfs_inspect_group(struct rfs_store *store, const char *path, uint32_t **ranks, size_t *n,
                      struct rfs_error *err);
/* Returns the path of a checkpoint somewhere below a folder, for a remedy, or NULL; malloc'ed. */
char *rfs_inspect_below(struct rfs_store *store, const char *folder);

/* ---- sources that describe themselves, and hfai's parts --------------------------------------- */

/* A source of chunks, opened by rfs_headers_open. All but the list of files is the source's. */
struct rfs_inspect_chunks {
    const char *format;
    size_t tensors, chunks;
    size_t unread;    /* tensors that can't be shown; their numbers follow those of the others */
    const char *lost; /* files that are lost, for a message; or NULL */
    /* Words of entry=, if all tensors are in dicts: those at the top, and those in the only one. */
    const struct rfs_path_list *dicts, *inner_dicts;
    uint32_t n_files;
    struct rfs_inspect_chunk_file {
        const char *name; /* path within the source's folder */
        uint64_t chunks;
        uint64_t content; /* bytes of tensors */
        uint64_t bytes;   /* 0, if it is not there */
        bool is_there;
    } * files; /* [n_files] owned by the caller, also after a failure */
};
/* Describes such a source. 0, or -ENOMEM with *err filled. */
int rfs_inspect_chunks(const struct rfs_headers_source *source, struct rfs_inspect_chunks *out,
                       struct rfs_error *err);
/* A tensor of such a source. */
struct rfs_inspect_chunked {
    const char *name;
    const char *why; /* reason why it can't be shown, and the rest is zero; or NULL */
    const struct rfs_type *type;
    uint32_t chunks;
    bool incomplete;
    uint64_t pieces[RFS_MAX_DIMS]; /* pieces that each axis is cut into */
};
/* Gives tensor I, below tensors + unread. */
void rfs_inspect_chunked(const struct rfs_headers_source *source, size_t i,
                         struct rfs_inspect_chunked *out);

/* The state in hfai's parts. */
struct rfs_inspect_parts {
    size_t models, optimizers;
};
/*
 * Calls EACH for the tensors of the models in hfai's parts, opened by rfs_headers_open; offsets are
 * 0. 0, or -errno with *err filled.
 */
int rfs_inspect_parts(const struct rfs_headers_source *source, rfs_inspect_tensor_fn *each,
                      void *ctx, struct rfs_inspect_parts *out, struct rfs_error *err);

/*
 * Makes a strategy for the tensors of a source by rules (layout_rules.h), whose numbers the model in
 * PATH (NULL: in the working folder) may give; RULES NULL: that of the training that saved a
 * Checkpoint 2.0, which describes it. USE has what is asked for, but tensors and numbers. 0 with
 * *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_strategy(struct rfs_headers_source *source, const char *path,
                         const struct rfs_headers *headers, const char *rules,
                         const struct rfs_layout_rules_use *use, struct rfs_strategy **out,
                         struct rfs_error *err);

/* ---- needed ranks ---------------------------------------------------------------------------- */

/* Two strategies, and which ranks of one need which of the other (plan/needed.h). */
struct rfs_inspect_ranks {
    uint32_t sources, destinations; /* numbers of ranks */
    struct rfs_strategy *src, *dst; /* this and the next are the view's; NULL: unsharded */
    struct rfs_needed *needed;
};

/*
 * Reads the strategies that SRC and DST name (rfs_view_read_strategy); a side that is NULL is one
 * whole checkpoint. 0 with *out owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_ranks_open(struct rfs_store *store, const char *src, const char *dst,
                           struct rfs_inspect_ranks **out, struct rfs_error *err);
/* Frees them; NULL is allowed. */
void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks);
/*
 * Sets wanted[R] for each source rank R that destination rank RANK needs; clears the others. 0 or
 * -errno with *err filled. One thread at a time.
 */
int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err);

/* ---- conversion rules ------------------------------------------------------------------------ */

/* Rules that are shipped. The texts last for the call; words have blanks between. */
struct rfs_inspect_shipped {
    const char *name; /* as convert= takes it */
    const char *sides[2];
    const char *models;  /* each a model_type of config.json */
    const char *options; /* each as "NAME=WORD|WORD", the default first */
};
/*
 * Calls EACH for all shipped rules, by name, until it gives an error. 0, or -errno with *err filled.
 */
int rfs_inspect_shipped(int (*each)(void *ctx, const struct rfs_inspect_shipped *rules,
                                    struct rfs_error *err),
                        void *ctx, struct rfs_error *err);

/* A tensor that rules make; all is the view's. */
struct rfs_inspect_made {
    const char *name;
    const struct rfs_type *type; /* with the dtype of its sources */
    enum rfs_dtype shown;        /* after a cast */
    size_t sources;              /* tensors of the source that it is made of */
    const char *file;            /* where the rule is */
    uint32_t line;
};

/* The result of the rules of a view. */
struct rfs_inspect_rules {
    const char *from, *to; /* names of the two sides */
    size_t sources, dropped, made;
    size_t incomplete; /* made tensors that need a lost part of the source */
};
/*
 * Compares the copies that a view's rules leave out with their originals, in all saves. Then gives
 * the result of the rules, unless OUT is NULL. 0, or -errno with *err filled: a copy differs; with
 * OUT, the source cannot be converted, or several saves are shown.
 */
int rfs_inspect_rules(reshard_view *view, struct rfs_inspect_rules *out, struct rfs_error *err);
/* Gives made tensor I, below out->made, of a view for which rfs_inspect_rules gave 0. */
void rfs_inspect_made(reshard_view *view, size_t i, struct rfs_inspect_made *out);

/* ---- one tensor as a file -------------------------------------------------------------------- */

/*
 * Makes the bytes that stand before those of a tensor, in a .npy file or with SAFETENSORS in a file
 * of that format. 0 with OUT owned by the caller, or -errno with *err filled.
 */
int rfs_inspect_head(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                     bool safetensors, struct rfs_bytes *out, struct rfs_error *err);
/* Bytes of a tensor that one message of a .ckpt file has at most. */
#define RFS_INSPECT_CKPT_CHUNK (UINT64_C(512) << 20)
/*
 * Appends the bytes that a .ckpt file has before CONTENT bytes of a tensor, or of a part of one; TYPE
 * has the dims of the whole tensor. False when out of memory.
 */
bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content);
/* Casts N elements to Float32; FROM is a type for which rfs_dtype_is_float. */
void rfs_inspect_floats(enum rfs_dtype from, const void *src, float *out, size_t n);
