/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the view room share.
 *
 * Ids: the root is 1. In a view of ranks the folder of destination rank R is 2 + 2R and its file 3 + 2R; in
 * a flat view, whose files lie in the root, file F is 2 + F, and its only folder, if any, comes after the
 * last file. side.h tells those of several saves, control.h those of the hidden folder.
 */
#ifndef RFS_VIEW_INTERNAL_H
#define RFS_VIEW_INTERNAL_H

#include "assemble/assembler.h"
#include "base/vec.h"
#include "image/image.h"
#include "reshard.h"
#include "source/scan/scan.h"
#include "view/options.h"
#include "view/statistics.h"

#include <pthread.h>
#include <stdatomic.h>

/* A file that is shown. Its image is published once; the rest is constant once the view is open. */
struct shown_file {
    char *dir; /* of its folder, rank_R; NULL in a flat view */
    char *name;
    size_t
        parameters; /* in a flat view: tensors in it; 0: none, or it is no file of tensors alone */
    uint32_t rank; /* of the destination, whose plan tells its attributes and where its bytes are */
    _Atomic(const struct rfs_image *) image; /* NULL until it is ready */
    atomic_uint_least64_t told; /* a size that was told before it was planned, + 1; 0: none */
    enum { CRC_UNKNOWN, CRC_BEING_SUMMED, CRC_KNOWN } crc_state; /* under the view's lock, as crc */
    uint32_t crc; /* of the bytes before its trailer, if it has one */
    uint64_t *
        storage_crcs; /* owned; by target, 1 << 32 | checksum, or 0; under the view's lock; or NULL */
};

struct rfs_bundle;
struct rfs_sizes;

struct reshard_view {
    struct rfs_options options;
    reshard_config log_config; /* who gets the log */
    struct rfs_log log;
    struct rfs_strategy *src; /* NULL: unsharded */
    struct rfs_strategy *dst;
    struct rfs_key *key;          /* as what follows */
    struct rfs_encrypted *sealed; /* what opens encrypted sources; NULL: they are plain */
    bool key_fits;                /* it has opened one */
    bool late;                    /* lost ranks are told by plans */
    bool opened;                  /* all of it is: there may be something to save */
    struct rfs_beneath *beneath;  /* where sources are opened; NULL: links are followed */
    struct rfs_pool *pool;
    struct rfs_catalog *catalog;
    struct rfs_output_map *output_map; /* NULL: names and dtypes as they are */
    struct rfs_planner *planner;
    struct rfs_assembler *assembler;
    struct rfs_scale scale;
    uint32_t n_ranks;    /* of the destination */
    uint64_t parameters; /* distinct names in the strategies */

    struct rfs_bundle *bundle; /* of hfai's parts: there is no planner then; or NULL */

    bool flat;          /* the files lie in the root, not in a folder for each */
    const char *folder; /* but those from first_in_folder on, in a folder of this name; or NULL */
    size_t first_in_folder;
    struct shown_file *files; /* owned, with their names; file R is rank R's in a view of ranks */
    size_t n_files;

    /* Of the source folder, for the folders shown. */
    uint32_t dir_uid, dir_gid, dir_mode;
    struct timespec dir_mtime;

    struct rfs_params *params; /* owned; of a flat view that does not take the planner's, or NULL */

    pthread_mutex_t lock;  /* of images and checksums; a leaf lock */
    pthread_cond_t summed; /* a file is not CRC_BEING_SUMMED any more, or sizes not SIZES_LOADING */
    /* Owned; by parameter list id in a view of ranks, where it may hold NULL; else of a file each, in any order. */
    RFS_VEC(struct rfs_image *) images;

    struct rfs_counters counters;

    /* What is kept for the next view; saved_sizes.h. */
    struct rfs_saved *saved;           /* where; owned, but by a part; NULL: nowhere */
    _Atomic(struct rfs_sizes *) sizes; /* what was kept of this one; owned; NULL: nothing */
    enum {
        SIZES_UNKNOWN,
        SIZES_LOADING,
        SIZES_LOADED
    } sizes_state;           /* under the lock; awaited by summed */
    atomic_bool sizes_gone;  /* the source was changed: they say nothing any more */
    atomic_bool sizes_wrong; /* one of them: to be saved anew */
    size_t sizes_saved;      /* how many files were planned when they were saved; under the lock */
    atomic_size_t planned;   /* files */

    /* Of the hidden folder (control.h), made when somebody looks inside; owned. */
    struct {
        _Atomic(struct rfs_planner *) whole; /* of one whole checkpoint; NULL until then */
        struct rfs_intern *names;            /* of files; under the view's lock, as it is set */
        atomic_size_t last;                  /* target that was looked up: a hint */
        atomic_uint_least32_t mode; /* of the folder; 0 until it is known, after uid and gid */
        uint32_t uid, gid;          /* under the view's lock */
    } control;

    struct rfs_side *side; /* of several saves, which have views of their own; owned; or NULL */
    struct reshard_view
        *above; /* the view that this is of one save of, which owns the pool and the key; or NULL */
    uint64_t base; /* added to its ids */
};

/* What the view of one save of several takes from the whole. */
struct rfs_view_part {
    struct reshard_view *above;
    uint64_t base;
    struct rfs_save save;
    uint64_t cache; /* its share of the budget */
};

/*
 * As reshard_open. PART is NULL, but for a view of one save of several. LATE: what lost ranks held is told by the files
 * that need it, not here.
 */
int rfs_view_open(const char *source, const reshard_config *config,
                  const struct rfs_view_part *part, bool late, struct reshard_view **out,
                  struct rfs_error *err);
/* The same of a whole view, ready for threads. */
int rfs_view_start(const char *source, const reshard_config *config, bool late,
                   struct reshard_view **out, struct rfs_error *err);
/* Whether SOURCE is a folder of hfai's parts, by what is in it. */
bool rfs_view_has_parts(const char *source);
/* How the options say that SOURCE is to be read; borrows both. */
struct rfs_source_spec rfs_view_spec(const struct reshard_view *view, const char *source);

enum entry_kind { ENTRY_NONE, ENTRY_ROOT, ENTRY_DIR, ENTRY_FILE };
/* Sets *file for a file and for its folder. */
enum entry_kind rfs_view_entry(const struct reshard_view *view, uint64_t id, size_t *file);

/* The image of a file, planned and encoded at the first call. */
int rfs_view_image(struct reshard_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err);

/* Whether a file's readers map it. */
bool rfs_view_is_mapped(const struct reshard_view *view, size_t file);

/* Who may list and search the folders shown: those of the source at PATH, which is resolved. */
void rfs_view_take_folder(struct reshard_view *view, const char *path);
/* Of the hidden folder: who may read all sources, when others may come at all. */
void rfs_view_fill_hidden(struct reshard_view *view, reshard_stat *st);
/* The attributes of a folder of two links, and those of a file of BYTES that depends on what PLAN says. */
void rfs_view_fill_dir(const struct reshard_view *view, reshard_stat *st);
void rfs_view_fill_stat(const struct reshard_view *view, const struct rfs_rank_plan *plan,
                        uint64_t bytes, reshard_stat *st);

/* What a file depends on, once it is planned. */
const struct rfs_rank_plan *rfs_view_plan(const struct reshard_view *view, size_t file);
/* Where the bytes of a target come from; as rfs_planner_slice. */
int rfs_view_slice(struct reshard_view *view, size_t file, const struct rfs_image *image,
                   uint32_t target, struct rfs_slice *slice);

/* Whether a target leaves with other elements than its sources have, and then which. */
bool rfs_view_conversion(const struct reshard_view *view, const struct rfs_image *image,
                         uint32_t target, struct rfs_conversion *conversion);

/* The checksum of a file whose image has one, summed up at the first call; crc.c. 0 or -errno. */
int rfs_view_crc(struct reshard_view *view, size_t file, uint32_t *crc);
/* Somebody who has read the file's bytes tells it. */
void rfs_view_know_crc(struct reshard_view *view, size_t file, uint32_t crc);

/* The checksum of the bytes of a file's region, one of a target, summed up and remembered. 0 or -errno. */
int rfs_view_storage_crc(struct reshard_view *view, size_t file, const struct rfs_image *image,
                         size_t region, uint32_t *crc);

/* As reshard_reader_pread, for the view itself: not counted. */
ssize_t rfs_view_fetch(struct reshard_reader *reader, void *buf, size_t size, uint64_t offset);
/* The reader of a file by its number; to be closed by reshard_reader_close. 0 or -errno. */
int rfs_view_reader(struct reshard_view *view, size_t file, struct reshard_reader **out);

/* Its owner reads several ranges at once: nothing is to be read ahead. Before its first use. */
void rfs_view_scatter(struct reshard_reader *reader);

/* Fills a struct of the public API as far as its caller's size goes, and returns CODE. */
int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code);

/* A failure of which the caller gets the number alone: its text goes to the log. Returns RC. */
int rfs_view_log_failure(struct reshard_view *view, int rc, const struct rfs_error *err);

/* Copies SIZE bytes of FROM to TO, whose first member is its size as its owner knows it. */
void rfs_view_give(void *to, void *from, size_t size);

#endif
