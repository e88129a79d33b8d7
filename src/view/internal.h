/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the view room.
 *
 * A reshard_view is the public handle: the pool, the key, and one plain view (struct rfs_view), or
 * one for each of several saves (saves.h). A plain view shows files of one checkpoint, in the root
 * and in folders of it; its kind decides their contents.
 *
 * Ids: the root of a plain view is 1. In a view of ranks the folder of destination rank R is 2 + 2R
 * and its file 3 + 2R; elsewhere file F is 2 + F, and folders come after the last file. The base of
 * a plain view is added to all of its ids, and is not 0 where there are several (saves.h). hidden.h
 * describes those of the hidden folder.
 */
#pragma once

#include "assemble/assembler.h"
#include "base/once.h"
#include "base/vec.h"
#include "catalog/scan/scan.h"
#include "image/image.h"
#include "reshard.h"
#include "store/fds.h"
#include "view/counters.h"
#include "view/options.h"
#include "view/tensors.h"

#include <pthread.h>
#include <stdatomic.h>

/* A file that is shown. Its image is published once; the rest is constant once the view is open. */
struct shown_file {
    char *name;        /* owned */
    uint32_t rank;     /* the destination rank whose plan the file is made by */
    bool mapped;       /* its readers map it */
    size_t parameters; /* or RFS_IN_PLAN; 0: it is not made of tensors alone */
    _Atomic(const struct rfs_image *) image; /* NULL until it is ready */
    struct rfs_image *own;      /* owned; its image, if no other file has it; else NULL */
    struct rfs_rank_plan *plan; /* owned; that it depends on; NULL: as struct rfs_view_kind says */
    atomic_uint_least64_t
        reported;             /* a size that was given before the file was planned, + 1; 0: none */
    struct rfs_once crc_made; /* under the view's lock, as crc */
    uint32_t crc;             /* of the bytes before its trailer, if it has one */
    /* Owned; by target, 1 << 32 | checksum, or 0; under the view's lock; or NULL. */
    uint64_t *storage_crcs;
};
#define RFS_IN_PLAN SIZE_MAX /* as many parameters as its image has */

/* Files FIRST to FIRST + N - 1 lie in it. Those before the first folder's lie in the root. */
struct shown_folder {
    char *name; /* owned */
    size_t first, n;
};

struct rfs_view;
struct rfs_dcp_view;
struct rfs_mf_view;
struct rfs_hfai_view;
struct rfs_sizes;

/* The kind of a plain view: how its files and those of the hidden folder are made. */
struct rfs_view_kind {
    bool by_rank; /* each destination rank has a folder with one file */
    /* The image of a file that is not ready. 0 or -errno with *err filled. */
    int (*image)(struct rfs_view *view, size_t file, const struct rfs_image **out,
                 struct rfs_error *err);
    /* The plan of a file that is ready. NULL: the planner's, of its rank. */
    const struct rfs_rank_plan *(*plan)(const struct rfs_view *view, size_t file);
    /*
     * The tensors of a group of the hidden folder, planned at the first call. 0 or -errno with *err
     * filled.
     */
    int (*tensors)(struct rfs_view *view, uint32_t group, struct rfs_tensors *out,
                   struct rfs_error *err);
    bool (*tensors_are_ready)(struct rfs_view *view, uint32_t group);
    void (*name_group)(const struct rfs_view *view, uint32_t group, char out[32]);
};

/* Bytes [from, to) that are not shown of a file, neither the first nor the last of its BYTES. */
struct rfs_left_out {
    size_t from, to, bytes;
};

struct rfs_view {
    struct reshard_view *set;
    uint64_t base;
    char save[48]; /* EPOCH_STEP, before each line of its log; "": it is the only one */
    struct rfs_options options; /* of the save alone; the texts are the set's */
    struct rfs_log log;
    bool opened;                 /* all of it is: there may be something to save */
    atomic_bool logged_left_out; /* values that no output has */
    struct rfs_strategy *src;    /* of the planned catalogue; NULL: unsharded */
    struct rfs_strategy *dst;
    struct rfs_catalog *stored;  /* of the source's files */
    struct rfs_catalog *catalog; /* that is planned: the same, or that of the converted tensors */
    struct {                     /* convert.h; all owned; NULL without rules */
        struct rfs_planner *whole;
        struct rfs_by_rules *made;
        struct rfs_lacking incomplete; /* source tensors with a part that no file has */
        struct rfs_strategy *src;      /* of the source */
        char *config;                  /* the path of the model's config.json */
        struct rfs_left_out cut;       /* of the config; bytes 0: none */
        struct rfs_once compared;      /* copies.h; under the lock, as the next */
        struct rfs_error differs;      /* code 0: no copy does */
    } convert;
    struct rfs_output_map *output_map; /* NULL: names and dtypes as they are */
    struct rfs_planner *planner;       /* NULL with hfai */
    struct rfs_hfai_view *hfai;        /* NULL with planner */
    struct rfs_dcp_view *dcp;          /* NULL but with view=dcp */
    struct rfs_mf_view *mf;            /* NULL but with view=mindformers */
    struct rfs_assembler *assembler;
    struct rfs_scale scale;
    uint32_t n_ranks;    /* of the destination */
    uint64_t parameters; /* distinct names in the strategies */
    const struct rfs_view_kind *kind;
    enum rfs_format format; /* of the files, as option format= has it */
    uint32_t n_groups;      /* of tensors in the hidden folder */

    struct shown_file *files; /* owned; file R is rank R's in a view of ranks */
    size_t n_files;
    struct shown_folder *folders; /* owned */
    size_t n_folders;
    struct rfs_params *params; /* owned; of a flat view that does not take the planner's, or NULL */

    pthread_mutex_t lock;               /* of images, checksums, sizes and names; a leaf lock */
    pthread_cond_t made;                /* a checksum, or the sizes that were kept */
    RFS_VEC(struct rfs_image *) images; /* owned; shared by ranks: by parameter list, or NULL */

    struct rfs_counters counters;

    struct {                                /* saved_sizes.h */
        _Atomic(struct rfs_sizes *) loaded; /* owned; NULL: nothing was kept */
        struct rfs_once once;               /* under the lock */
        atomic_bool gone;                   /* the source was changed: they are invalid */
        atomic_bool wrong;                  /* one of them: to be saved anew */
        size_t saved; /* how many files were planned when they were saved; under the lock */
        atomic_size_t planned; /* files */
    } sizes;

    struct {                                 /* hidden.h; made on demand; owned */
        _Atomic(struct rfs_planner *) whole; /* of one whole checkpoint; NULL until then */
        struct rfs_intern *names;            /* of files; under the lock, as it is set */
        atomic_size_t last;                  /* target that was looked up: a hint */
    } hidden;
};

struct reshard_view {
    bool objects; /* some of its files are in object storage */
    struct rfs_options options;
    reshard_config config; /* has the log's receiver */
    struct rfs_log log;
    struct rfs_pool *pool;
    struct rfs_key *key;             /* or NULL */
    struct rfs_encrypted *encrypted; /* opens encrypted sources; NULL: they are plain */
    bool key_fits;                   /* it has opened one */
    bool late;                       /* lost ranks are reported by plans */
    const char *exported_names;      /* while it is opened: names of struct rfs_view_how */
    struct rfs_beneath *beneath;     /* where sources are opened; NULL: links are followed */
    struct rfs_saved *saved;         /* where something is kept for the next view; NULL: nowhere */
    struct rfs_fds fds;              /* of all saves */
    bool has_fds;

    bool several;           /* the root has a folder for each save */
    struct rfs_view **data; /* the plain views, one at least once it is open; owned */
    size_t n;

    /* Of the source folder, for the folders shown. */
    uint32_t dir_uid, dir_gid, dir_mode;
    struct timespec dir_mtime;

    pthread_mutex_t lock; /* guards the access to the hidden folder; a leaf lock */
    uint32_t hidden_uid, hidden_gid;
    uint32_t hidden_mode; /* 0 until it is known */
};

/* How a view is opened to be compared. */
struct rfs_view_how {
    bool late; /* slices of lost ranks are reported by the files that need them, not by opening */
    /*
     * The file of names= that the source was exported with, by whose keys its strategy or rules may
     * know it; or NULL. Borrowed.
     */
    const char *names;
};
/*
 * As reshard_open, with SETTINGS instead of the options in CONFIG. HOW may be NULL.
 */
int rfs_view_start(const char *source, const struct rfs_settings *settings,
                   const reshard_config *config, const struct rfs_view_how *how,
                   struct reshard_view **out, struct rfs_error *err);
/*
 * Opens a plain view in the next place of a set, which stays free when that fails; SAVE NULL: the
 * only one. 0, or -errno with *err filled.
 */
int rfs_view_add(struct reshard_view *set, const char *source, const struct rfs_save *save,
                 uint64_t cache, struct rfs_error *err);
/* The only plain view, NULL of several saves. */
static inline struct rfs_view *rfs_view_only(const struct reshard_view *set)
{
    return set->several ? NULL : set->data[0];
}
/* Whether SOURCE is a folder of hfai's parts, by its contents. */
bool rfs_view_has_parts(const char *source);
/* The specification for reading SOURCE by OPTIONS, the set's or a save's; borrows all three. */
struct rfs_source_spec rfs_view_spec(const struct reshard_view *set,
                                     const struct rfs_options *options, const char *source);

enum entry_kind { ENTRY_NONE, ENTRY_ROOT, ENTRY_DIR, ENTRY_FILE };
/* Sets *number of a file or of a folder. */
enum entry_kind rfs_view_entry(const struct rfs_view *view, uint64_t id, size_t *number);

/* The plan of a file that is ready: the sources that it depends on. */
static inline const struct rfs_rank_plan *rfs_view_plan(const struct rfs_view *view, size_t file)
{
    const struct shown_file *shown = &view->files[file];

    return shown->plan        ? shown->plan
           : view->kind->plan ? view->kind->plan(view, file)
                              : rfs_planner_ready(view->planner, shown->rank);
}
/* The image of a file, planned and encoded at the first call. 0 or -errno with *err filled. */
int rfs_view_image(struct rfs_view *view, size_t file, const struct rfs_image **out,
                   struct rfs_error *err);
/*
 * Publishes FRESH, which it takes over, as a file's own; if another thread was faster, that
 * thread's is returned.
 */
const struct rfs_image *rfs_view_publish(struct shown_file *file, struct rfs_image *fresh);
/* The targets of a file, whose image is ready. */
struct rfs_tensors rfs_view_tensors(const struct rfs_view *view, size_t file,
                                    const struct rfs_image *image);

/* Access to the folders shown: as for those of the source at PATH, which is resolved. */
void rfs_view_take_folder(struct reshard_view *set, const char *path);
/* Access to the hidden folder: as for reading all sources, if other users are allowed at all. */
void rfs_view_fill_hidden(struct reshard_view *set, reshard_stat *st);
/*
 * The attributes of a folder of two links, and those of a file of BYTES with the sources of PLAN.
 */
void rfs_view_fill_dir(const struct reshard_view *set, reshard_stat *st);
void rfs_view_fill_stat(const struct rfs_view *view, const struct rfs_rank_plan *plan,
                        uint64_t bytes, reshard_stat *st);

/* Whether a target leaves with other elements than its sources have, and then which. */
bool rfs_target_conversion(const struct rfs_view *view, const struct rfs_target *target,
                           struct rfs_conversion *conversion);
/* That of a target by its number in an image. */
bool rfs_view_conversion(const struct rfs_view *view, const struct rfs_image *image,
                         uint32_t target, struct rfs_conversion *conversion);

/* The checksum of a file whose image has one, summed up at the first call; crc.c. 0 or -errno. */
int rfs_view_crc(struct rfs_view *view, size_t file, uint32_t *crc);
/* Sets it, for callers that have read all of the file's bytes. */
void rfs_view_know_crc(struct rfs_view *view, size_t file, uint32_t crc);

/*
 * The checksum of the bytes of a file's region, one of a target, summed up and remembered. 0 or
 * -errno.
 */
int rfs_view_storage_crc(struct rfs_view *view, size_t file, const struct rfs_image *image,
                         size_t region, uint32_t *crc);

/* As reshard_reader_pread, for the view itself: not counted. */
ssize_t rfs_view_fetch(struct reshard_reader *reader, void *buf, size_t size, uint64_t offset);
/* The reader of a file by its number; to be closed by reshard_reader_close. 0 or -errno. */
int rfs_view_reader(struct rfs_view *view, size_t file, struct reshard_reader **out);

/* Its owner reads several ranges at once: nothing is to be read ahead. Before its first use. */
void rfs_view_scatter(struct reshard_reader *reader);

/* Fills a struct of the public API as far as its caller's size goes, and returns CODE. */
int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code);

/* There is no such entry: -ENOENT with *err filled. */
int rfs_view_no_entry(uint64_t id, struct rfs_error *err);

/* A failure that is returned as a number only: its text goes to the log. Returns RC. */
int rfs_view_log_failure(struct rfs_view *view, int rc, const struct rfs_error *err);

/* Copies SIZE bytes of FROM to TO, whose first member is its size as its owner knows it. */
void rfs_view_give(void *to, void *from, size_t size);
