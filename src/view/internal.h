/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the view room.
 *
 * A reshard_view is the public handle: the pool, the key, and one plain view (struct rfs_view), or
 * one for each of several saves. A plain view shows files of one checkpoint, in the root and in
 * folders of it; its kind decides their contents.
 *
 * Ids: the root of a plain view is 1. In a view of ranks the folder of destination rank R is 2 + 2R
 * and its file 3 + 2R; elsewhere file F is 2 + F, and folders come after the last file. hidden.h
 * describes those of the hidden folder. The base of a plain view is added to all of its ids. It is
 * 0 where there is one view; of several saves, whose folders EPOCH_STEP lie in the root, it has the
 * number of the save (rfs_view_save_base).
 */
#pragma once

#include "assemble/assembler.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "base/options.h"
#include "base/store.h"
#include "base/vec.h"
#include "catalog/scan/scan.h"
#include "plan/planner.h"
#include "reshard.h"
#include "rules/hf_config.h"
#include "store/files.h"
#include "view/contents.h"
#include "view/start.h"
#include "view/statistics.h"
#include "view/view_options.h"

#include <pthread.h>
#include <stdatomic.h>

struct rfs_view;
/*
 * Makes the image of a file that describes others, and adds to PLAN the sources that it depends on.
 * Returns 0, or -errno with *err filled.
 */
typedef int rfs_view_make_fn(struct rfs_view *view, struct rfs_rank_plan *plan,
                             struct rfs_image **out, struct rfs_error *err);

/* A file that is shown. It is planned once; the rest is constant once the view is open. */
struct rfs_view_file {
    const char *name;       /* in the view's memory */
    uint32_t rank;          /* the destination rank whose plan the file is made by */
    bool mapped;            /* readers map it */
    size_t parameters;      /* how many it has, or RFS_IN_PLAN; 0 if it has more than tensors */
    rfs_view_make_fn *make; /* makes it, if it describes others; or NULL */
    /* Owned; the image that it has for good; NULL: it is not made yet, or made of a listing. */
    _Atomic(const struct rfs_image *) own;
    struct rfs_rank_plan *plan; /* owned; its sources; NULL: as struct rfs_view_kind says */
    atomic_uint_least64_t size; /* 1 + its bytes; 0: it is not planned yet */
    atomic_uint key;            /* 1 + the key of its listing; 0: it was not needed yet */
    atomic_uint_least64_t
        reported;             /* 1 + a size that was given before the file was planned; 0: none */
    struct rfs_once crc_made; /* guarded by the view's lock, as crc */
    uint32_t crc;             /* checksum of the bytes before its trailer, if it has one */
    /* Owned, or NULL; by target, 1 << 32 | checksum, or 0; guarded by the view's lock. */
    uint64_t *storage_crcs;
};
#define RFS_IN_PLAN SIZE_MAX /* as many parameters as its plan has */

/* A folder with files FIRST to FIRST + N - 1. Files before the first folder's lie in the root. */
struct rfs_view_folder {
    const char *name; /* in the view's memory */
    size_t first, n;
};

/* A part of a target that a file has. */
struct rfs_view_piece {
    uint32_t target; /* number in the parameter list */
    uint32_t type;   /* type of the part; id in the catalogue's types */
    uint32_t name;   /* name that the file has for it; id in the catalogue's names */
    uint64_t at;     /* offset in the target's bytes */
};

/* What a file of tensors is made of: files with equal listings are equal. Zero-initialise. */
struct rfs_view_listing {
    const struct rfs_params *params;       /* a planner's */
    unsigned kind;                         /* files of another kind are made differently */
    bool whole;                            /* all targets of PARAMS are in it, and no pieces are */
    RFS_VEC(struct rfs_view_piece) pieces; /* owned; names follow from the rest */
    const struct rfs_format_row *row;      /* row with the encoder */
    const char *metadata, *divide;         /* see struct rfs_format_content */
};

struct rfs_follow;
struct rfs_format_content;
struct rfs_format_row;
struct rfs_view_image;
struct rfs_view_rules;
struct rfs_kept_sizes;

/* The kind of a plain view: how its files and those of the hidden folder are made. */
struct rfs_view_kind {
    bool by_rank; /* each destination rank has a folder with one file */
    /*
     * Shows the files. The planner is made, unless the source has parts. Returns 0 or -errno with
     * *err filled.
     */
    int (*open)(struct rfs_view *view, struct rfs_error *err);
    /* Plans a file that describes no others, and lists it. Returns 0 or -errno with *err filled. */
    int (*list)(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err);
    /* Encodes a file, and adds what is no tensor. NULL: the encoder of the row does. */
    int (*encode)(struct rfs_view *view, const struct rfs_view_listing *listing,
                  struct rfs_format_content *content, struct rfs_image **out,
                  struct rfs_error *err);
    /* Returns the plan of a file that is ready. NULL: it is the planner's, of its rank. */
    const struct rfs_rank_plan *(*plan)(const struct rfs_view *view, size_t file);
    /* Returns the parameter list of all files, or NULL: the plan's. NULL: it is always that. */
    const struct rfs_params *(*params)(const struct rfs_view *view);
    /*
     * Gives the tensors of a group of the hidden folder, which need no plan. Returns 0 or -errno
     * with *err filled. NULL: the planner's (hidden.h); the next two are NULL then, too.
     */
    int (*tensors)(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                   struct rfs_error *err);
    void (*name_group)(const struct rfs_view *view, uint32_t group, char out[32]);
    size_t (*count_groups)(const struct rfs_view *view);
    void (*free)(struct rfs_view *view); /* frees what view->state owns; NULL: nothing */
};

/* The save that a plain view shows, as one of its set's. */
struct rfs_view_save {
    uint64_t base;
    const char *name;    /* it lives as long as the set */
    char text[48];       /* EPOCH_STEP, before each line of its log; "": it is the only one */
    uint32_t n_files;    /* files of the save alone, the first of the catalogue's */
    unsigned users;      /* calls, readers and lists that need the view; under the set's lock */
    bool opened;         /* all of it is: there may be something to keep for the next view */
    atomic_bool gone;    /* it is not shown any more, and goes with its last user */
    atomic_bool quiet;   /* nothing of it is logged */
    atomic_bool doubted; /* a note said that files may be of another save */
    atomic_bool contradicted;          /* one said that ranks contradict the strategy */
    struct rfs_view_counters counters; /* of reads */
};

/* The sizes of files that were kept for this view, and those that will be for the next. */
struct rfs_view_kept {
    _Atomic(struct rfs_kept_sizes *) loaded; /* owned; NULL: nothing was kept */
    struct rfs_once once;                    /* guarded by the view's lock */
    atomic_bool gone;                        /* the source was changed: they are invalid */
    atomic_bool wrong;                       /* a size is wrong: to be kept anew */
    size_t kept;           /* how many files were planned when they were; guarded by the lock */
    atomic_size_t planned; /* files that are planned */
};

/* The images of listings (images.c). */
struct rfs_view_images {
    struct rfs_intern *keys;               /* owned; of listings; NULL: there are none yet */
    RFS_VEC(struct rfs_view_image) by_key; /* guarded by the view's lock, as CLOCK */
    uint64_t clock;
};
void rfs_view_images_end(struct rfs_view_images *images);

/* Objects of the hidden folder, made on demand. */
struct rfs_view_hidden {
    _Atomic(struct rfs_planner *) whole; /* planner of one whole checkpoint, or NULL; owned */
    struct rfs_intern *names;            /* names of files; set under the view's lock; owned */
    atomic_size_t last;                  /* target that was looked up: a hint */
};

struct rfs_view {
    struct reshard_view *set;
    struct rfs_view_save save;
    /* Options of the save; their texts are the set's, and the format is that of the files. */
    struct rfs_options options;
    struct rfs_log log;
    struct rfs_notes notes;      /* notes of all planners; they become lines of the log */
    struct rfs_strategy *src;    /* strategy of the planned catalogue; NULL: unsharded */
    struct rfs_strategy *dst;    /* strategy of the destination; NULL: unsharded */
    struct rfs_catalog *source;  /* catalogue of the source's files */
    struct rfs_catalog *catalog; /* the catalogue that is planned: the source's, or made by rules */
    struct rfs_view_rules *rules; /* owned; NULL without (rules_view.h) */
    struct rfs_names *names;      /* NULL: names and dtypes as they are */
    struct rfs_planner *planner;  /* NULL if the source has parts */
    struct rfs_assembler *assembler;
    struct rfs_scale scale; /* the planner's; of the destination, as it is shown */
    const struct rfs_view_kind *kind;
    void *state; /* what the kind alone uses; or NULL */

    struct rfs_arena memory;     /* what lives as long as the view; of the thread that opens it */
    struct rfs_view_file *files; /* file R is rank R's in a view of ranks */
    size_t n_files;
    RFS_VEC(struct rfs_view_folder) folders;

    pthread_mutex_t lock; /* guards images, checksums, sizes and names; a leaf lock */
    pthread_cond_t made;  /* a checksum, a comparison or the kept sizes are */
    struct rfs_view_images images;
    struct rfs_view_kept kept;     /* sizes.h */
    struct rfs_view_hidden hidden; /* hidden.h */
};

/* Returns the number of ranks of the destination. */
static inline uint32_t rfs_view_ranks(const struct rfs_view *view)
{
    return view->scale.dst_devices * view->scale.dst_stages;
}

struct reshard_view {
    struct rfs_store *store; /* reads URLs by the options; taken; NULL: there are none */
    struct rfs_options options;
    reshard_config config; /* has the log's receiver */
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* or NULL */
    struct rfs_encrypted *encrypted; /* opens encrypted sources; NULL: they are plain */
    bool key_fits;                   /* it has opened one */
    struct rfs_view_how how;         /* its maker is NULL once it is open */
    struct rfs_beneath *beneath;     /* where sources are opened; NULL: links are followed */
    struct rfs_kept *kept;           /* what is kept for the next view; NULL: nothing */
    struct rfs_fds fds;              /* descriptors of all saves */
    bool has_fds;

    reshard_statistics past;   /* of plain views that were freed; under the lock, as the next */
    uint64_t freed;            /* how many these are */
    struct rfs_follow *follow; /* follow.h; NULL: the saves are those that it was opened with */
    _Atomic uint64_t home;     /* 1 + the device of reshard_refuse_device, or 0 */
    bool several;              /* the root has a folder for each save */
    struct rfs_view **data;    /* the plain views, one at least once it is open; owned */
    size_t n;

    /* Attributes of the source folder, for the folders shown. */
    uint32_t dir_uid, dir_gid, dir_mode;
    struct timespec dir_mtime;

    /* Guards the access to the hidden folder and, of a source that is followed, the plain views. */
    pthread_mutex_t lock;
    uint32_t hidden_uid, hidden_gid;
    uint32_t hidden_mode; /* 0 while it is unknown */
};

/* ---- opening (view.c) ------------------------------------------------------------------------ */

/*
 * Returns the plain view that ID belongs to, which stays until rfs_view_leave; NULL for entries
 * above the saves, and for a save that has gone.
 */
struct rfs_view *rfs_view_take(struct reshard_view *set, uint64_t id);
/* Does nothing with NULL. */
void rfs_view_leave(struct rfs_view *view);
static inline void rfs_view_leave_at(struct rfs_view *const *view)
{
    rfs_view_leave(*view);
}
/* Leaves a plain view at the end of the block. */
#define RFS_VIEW_TAKEN RFS_CLEANUP(rfs_view_leave_at) struct rfs_view
/* Takes the plain view at *AT or behind it, and sets *AT behind that one; NULL at the end. */
struct rfs_view *rfs_view_next(struct reshard_view *set, size_t *at);
/*
 * Opens the plain view of a save of SAVES, which rfs_view_close frees; both NULL: the only one.
 * Returns 0 or -errno with *err filled.
 */
int rfs_view_open(struct reshard_view *set, const char *source, const struct rfs_saves *saves,
                  const struct rfs_save *save, uint64_t cache, bool quiet, struct rfs_view **out,
                  struct rfs_error *err);
/* Sets the budget of the cache of a plain view, which compressed items share. */
void rfs_view_limit(struct rfs_view *view, uint64_t cache);
/* Waits for reads ahead. NULL is fine. */
void rfs_view_close(struct rfs_view *view);
/* Returns what all planners of the view's catalogue, or of the source's, begin with. */
struct rfs_planner_config rfs_view_planning(struct rfs_view *view);
/* Refuses a view for which a note said that ranks contradict the strategy. 0 or -EINVAL. */
int rfs_view_check_alike(const struct rfs_view *view, struct rfs_error *err);
/* Writes EPOCH_STEP. */
static inline void rfs_view_name_save(const struct rfs_save *save, char out[48])
{
    snprintf(out, 48, "%" PRId64 "_%" PRId64, save->epoch, save->step);
}
/*
 * Makes the specification for reading SOURCE by OPTIONS, the set's or a save's; it borrows all
 * three.
 */
struct rfs_source_spec rfs_view_spec(const struct reshard_view *set,
                                     const struct rfs_options *options, const char *source);
/* Lists the saves at PATH, which is resolved, as rfs_scan_saves does; KNOWN may be NULL. */
int rfs_view_list_saves(struct reshard_view *set, const char *path,
                        const struct rfs_known_saves *known, struct rfs_saves *out,
                        struct rfs_error *err);

/* ---- a plain view (planned.c) ---------------------------------------------------------------- */

/* Returns how many distinct names the strategies have. */
uint64_t rfs_view_count_parameters(const struct rfs_view *view);

/* ---- results and errors (library.c) ---------------------------------------------------------- */

/* Copies SIZE bytes of FROM to TO, whose first member is its size as its owner knows it. */
void rfs_view_give(void *to, void *from, size_t size);
/* Fills a struct of the public API as far as its caller's size goes, and returns CODE. */
int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code);
/* Logs the text of a failure whose number alone goes to the caller. Returns RC. */
int rfs_view_log_failure(struct rfs_view *view, int rc, const struct rfs_error *err);

/* ---- shown files (shown.c) ------------------------------------------------------------------- */

enum rfs_view_entry_kind { RFS_ENTRY_NONE, RFS_ENTRY_ROOT, RFS_ENTRY_DIR, RFS_ENTRY_FILE };
/* Returns the kind of a listed entry, and sets *number of a file or of a folder. */
enum rfs_view_entry_kind rfs_view_entry(const struct rfs_view *view, uint64_t id, size_t *number);
/* Reports that no entry has an id: -ENOENT with *err filled. */
int rfs_view_no_entry(uint64_t id, struct rfs_error *err);
/* Fills the attributes of a folder of two links. */
void rfs_view_fill_dir(const struct reshard_view *set, reshard_stat *st);
/* Fills the attributes of a file of BYTES with the sources of PLAN. */
void rfs_view_fill_stat(const struct rfs_view *view, const struct rfs_rank_plan *plan,
                        uint64_t bytes, reshard_stat *st);

/* Makes room for N files. 0, or -ENOMEM with *err filled, also if memory was short before. */
int rfs_view_make_room(struct rfs_view *view, size_t n, struct rfs_error *err);
/*
 * Shows the next file, by a name as printf prints it. Out of memory it has none, and the opening of
 * the view fails in the end.
 */
struct rfs_view_file *rfs_view_show(struct rfs_view *view, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns the plan of a file that is ready: the sources that it depends on. */
static inline const struct rfs_rank_plan *rfs_view_plan(const struct rfs_view *view, size_t file)
{
    const struct rfs_view_file *shown = &view->files[file];

    return shown->plan        ? shown->plan
           : view->kind->plan ? view->kind->plan(view, file)
                              : rfs_planner_ready(view->planner, shown->rank);
}
/* Says whether a file is planned, and gives its bytes then. */
bool rfs_view_is_planned(const struct rfs_view *view, size_t file, uint64_t *bytes);
/* Gives a file, as it is shown, an image for good, which it takes over. */
void rfs_view_give_image(struct rfs_view_file *file, const struct rfs_image *image);
/*
 * Lists targets of a parameter list for encoders: those at N POSITIONS, or with NULL the first N.
 * Returns an array that the caller frees, or NULL when out of memory.
 */
struct rfs_image_tensor *rfs_view_list_tensors(struct rfs_catalog *catalog,
                                               const struct rfs_params *params,
                                               const uint32_t *positions, size_t n);
/* The source files, and their ranks, that something is made of. Zero-initialise. */
struct rfs_view_origins {
    uint32_t *files; /* owned; ids in the catalogue's files, ascending */
    size_t n_files;
    uint32_t *ranks; /* owned; ascending; without those that have another's files */
    size_t n_ranks;
};
void rfs_view_origins_free(struct rfs_view_origins *origins);
/*
 * Finds the ranks of N files, in any order; with FILES NULL all that have some. 0 or -ENOMEM. O(n
 * log n + ranks of the source).
 */
int rfs_view_origins_of_files(const struct rfs_view *view, const uint32_t *files, size_t n,
                              struct rfs_view_origins *out);
/* Finds the origins of all bytes of a target. Returns 0 or -errno. Costs its slice. */
int rfs_view_origins_of_target(const struct rfs_tensors *tensors, uint32_t target,
                               struct rfs_view_origins *out);

/* Has the image of a FILE that has MAKE made, and publishes it with its plan. 0 or -errno. */
int rfs_view_describe(struct rfs_view *view, size_t file, const struct rfs_image **out,
                      struct rfs_error *err);
/*
 * Adds the sources of all ranks of the destination to a plan, each once. Returns 0, or -errno with
 * *err filled.
 */
int rfs_view_take_sources(struct rfs_view *view, struct rfs_rank_plan *plan, struct rfs_error *err);

/*
 * Shows the file at PATH as it is, or without CUT, by the name NAME as the view's next file.
 * Nothing is shown if there is no such file. It is read when it is asked for, as sources are. PATH
 * may be NULL, for want of memory. Returns 0, or -errno with *err filled.
 */
int rfs_view_pass_on(struct rfs_view *view, const char *path, const char *name,
                     const struct rfs_hf_cuts *cuts, struct rfs_error *err);
/* Does so with the file of that name of a source in chunks. */
int rfs_view_pass_on_own(struct rfs_view *view, const char *name, struct rfs_error *err);

/* ---- readers inside of the view (read.c) ----------------------------------------------------- */

/*
 * Fails if a source of PLAN has failed, because headers of the files came from there, too. Returns
 * 0 or -errno.
 */
int rfs_view_check_sources(const struct rfs_view *view, const struct rfs_rank_plan *plan);
/*
 * Checks the metadata of a source in chunks: no read needs it again, and a change of it means that
 * all of the checkpoint is another. 0 or -errno.
 */
int rfs_view_check_metadata(const struct rfs_view *view);
