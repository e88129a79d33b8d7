/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the scan: folders, and a function for each kind of source. */
#pragma once

#include "base/options.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/scan/scan.h"
#include "store/beneath.h"

#include <sys/stat.h>

/* ---- numbers in names (folder.c) ------------------------------------------------------------- */

/* Reads the numbers of …-EPOCH_STEP.ckpt, or .safetensors, as ModelCheckpoint names files. */
bool rfs_scan_name_save(const char *name, struct rfs_save *save);
/* Says whether a pattern of rank folders has one %d, no other % and no /. */
bool rfs_scan_name_is_pattern(const char *pattern);
/* Matches the pattern, with digits for %d; a number too large becomes UINT32_MAX. */
bool rfs_scan_name_rank(const char *pattern, const char *name, uint32_t *rank);
/* Compares paths by their last two runs of digits, as numbers of any length: <0, 0 or >0. */
int rfs_scan_name_compare(const char *a, const char *b);

/* ---- folders (folder.c) ---------------------------------------------------------------------- */

/* Gives the next entry, NULL at the end. 0, or -errno with a message about PATH. */
int rfs_scan_entry_next(struct rfs_dir *dir, const char *path, const struct dirent **entry,
                        struct rfs_error *err);
/* Calls EACH, until one fails, for all entries of the source's folder PATH. */
typedef int rfs_scan_entry_fn(void *ctx, const struct dirent *entry);
int rfs_scan_entry_each(struct rfs_store *store, const char *path, rfs_scan_entry_fn *each,
                        void *ctx, struct rfs_error *err);
/*
 * Says whether an entry of the folder PATH is of a type (S_IFREG, S_IFDIR), by the listing if it
 * has the type, else by stat, which follows links, as far as SPEC->beneath lets them lead
 * (NULL: anywhere): 1, 0 (also for a link to nothing), or -errno with a message. An entry that
 * cannot be examined is an error: skipping it could select another file instead.
 */
int rfs_scan_entry_is(const struct rfs_source_spec *spec, const char *path,
                      const struct dirent *entry, mode_t type, struct rfs_error *err);

/* A checkpoint file by its name. */
struct rfs_scan_found {
    char *name; /* owned */
    enum rfs_format format;
    uint32_t at; /* of a rank's: the rank's position in the tree */
    bool saved;  /* the name contains the save's numbers */
    bool part;   /* the name is that of a part of a checkpoint (divided.c) */
    struct rfs_save save;
};

/* The checkpoints of a folder, in the byte order of their names. */
struct rfs_scan_listing {
    struct rfs_scan_found *data;
    size_t n, cap;
};

void rfs_scan_listing_free(struct rfs_scan_listing *listing);
/*
 * Lists PATH by SPEC's store and beneath; it is absolute if that is not NULL, and links are
 * followed as far as that lets them lead. GLOB (or NULL) chooses names; without one those with a
 * leading dot are left out.
 */
int rfs_scan_listing_read(const struct rfs_source_spec *spec, const char *path, const char *glob,
                          struct rfs_scan_listing *out, struct rfs_error *err);
/*
 * The format of the files that count: the first by precedence. RFS_FORMAT_COUNT when there is none.
 * RIVAL, else that, is another that has files and does not stand aside.
 */
struct rfs_scan_formats {
    enum rfs_format first, rival;
    const char *names[RFS_FORMAT_COUNT]; /* the last file of each in a folder; NULL: none */
    size_t at[RFS_FORMAT_COUNT];         /* the folder of that file */
};
/* Settles the format of N folders' files. */
void rfs_scan_settle(const struct rfs_scan_listing *listings, size_t n,
                     struct rfs_scan_formats *out);
/*
 * Chooses the checkpoint of the folder PATH that counts: *out is its position among the N files,
 * which are of one FORMAT and in the order of their names; SIZE_MAX when there is none. Returns 0;
 * 1, where all N files are one checkpoint, and *out is the first; or -errno with *err filled.
 */
int rfs_scan_choose(const struct rfs_scan_found *const *files, size_t n, const char *path,
                    enum rfs_format format, size_t *out, struct rfs_error *err);
/* Does what rfs_scan_divided does for files that were found. */
int rfs_scan_found_divided(const char *path, const struct rfs_scan_found *const *files, size_t n,
                           bool several, struct rfs_error *err);

/* ---- lists of names, for messages (folder.c) ------------------------------------------------- */

#define RFS_SCAN_NAMES_SHOWN 3

/* Names of files for a message, which shows the first ones. Zero-initialise. */
struct rfs_scan_names {
    char text[RFS_SCAN_NAMES_SHOWN * 264 + 40];
    size_t used;
    uint64_t n;
};

void rfs_scan_names_add(struct rfs_scan_names *names, const char *name);
/* Ends the list and returns its text: "'a', 'b', 'c' and 4 more". */
const char *rfs_scan_names_end(struct rfs_scan_names *names);

/* ---- one checkpoint in several files (divided.c) --------------------------------------------- */

/* The numbers in a name such as model-00001-of-00002.safetensors. */
struct rfs_scan_part {
    size_t begin, end; /* places of the first digit, and behind the last */
    unsigned digits;   /* of the part's number */
    uint32_t number, count;
};

/* Reads the numbers of a part of a checkpoint. False: NAME is of none. */
bool rfs_scan_name_part(const char *name, struct rfs_scan_part *out);
/* Says whether two names are of parts of one checkpoint: they differ in the part's number alone. */
bool rfs_scan_same_parts(const char *one, const char *other);
/* Reads the rank of a file as Meta names it, by f"consolidated.{rank:02d}.pth". */
bool rfs_scan_name_model_parallel(const char *name, uint32_t *rank);
#define RFS_SCAN_SECOND_RANK "consolidated.01.pth"
/* Returns a pattern for file= that all parts match, malloc'ed, or NULL when out of memory. */
char *rfs_scan_part_pattern(const char *name, const struct rfs_scan_part *part);
/*
 * Says whether N names, of files in PATH, are parts: all of one checkpoint, and none is missing; or
 * with SEVERAL, of several checkpoints and beside other files, where some are. 1, 0: none is a
 * part, or -errno with *err filled.
 */
int rfs_scan_divided(const char *path, const char *const *names, size_t n, bool several,
                     struct rfs_error *err);

/* ---- names that count what a save is divided into (counted.c) -------------------------------- */

/* How many of the numbers that differ between two names count what, and the last in the first. */
struct rfs_scan_counted {
    unsigned ranks, parts, saves, others;
    size_t begin, digits;
    uint32_t number; /* UINT32_MAX: it is larger */
};

/* Compares two names. False: more than numbers differs between them. */
bool rfs_scan_count(const char *one, const char *other, struct rfs_scan_counted *counted);
/* Gives the number at the one place where the name I of N differs; false: there are several. */
bool rfs_scan_number_of(const char *const *names, size_t n, size_t i, struct rfs_scan_counted *at);
/* Says whether the numbers of ranks and parts alone differ between two names. */
bool rfs_scan_is_divided_by(const char *one, const char *other, struct rfs_scan_counted *counted);
/* Says whether a NAME ends in the number of a rank, behind a word for it: rank0, tp_1, device_7. */
bool rfs_scan_name_counts_ranks(const char *name);
/* What N names are, which differ in numbers. */
enum rfs_scan_division {
    RFS_SCAN_UNDIVIDED, /* saves beside each other, or they differ in more */
    RFS_SCAN_RANKS,     /* shards of ranks, which a word counts, all of them */
    RFS_SCAN_PARTS,     /* parts of one checkpoint, likewise */
    RFS_SCAN_DOUBTFUL,  /* one of these, or saves: from 0 without a gap, or some are missing */
};
enum rfs_scan_division rfs_scan_division_of(const char *const *names, size_t n);

/* ---- names of one save (same.c) -------------------------------------------------------------- */

/* A run of digits in names of one save. */
struct rfs_scan_place {
    uint64_t ranks; /* divides each rank less its number; 0: all are equal */
    uint64_t most;  /* of the numbers */
    bool zero;      /* one of them is 0 */
    unsigned char meanings;
};

/*
 * Names of files of ranks that may be of one save. Zero-initialise; to be freed in any case. With
 * ANY_PART the numbers of parts, "_part0", may differ, also in one rank.
 */
struct rfs_scan_same {
    const char *name;              /* the first; borrowed; NULL: none */
    struct rfs_scan_place *places; /* owned */
    bool any_part;
};

void rfs_scan_same_free(struct rfs_scan_same *same);
/* Adds the NAME of a file of RANK, which outlives SAME: 1; 0: it is of another save; or -ENOMEM. */
int rfs_scan_same_add(struct rfs_scan_same *same, const char *name, uint32_t rank);
/* Says whether numbers that differ are surely the ranks', and no epochs, steps or runs. */
bool rfs_scan_same_counts_ranks(const struct rfs_scan_same *same);
/*
 * Says whether NAME, beside the CHOSEN one in a folder, differs from it in the rank's number alone:
 * then that may count something else.
 */
bool rfs_scan_same_rival(const struct rfs_scan_same *same, const char *chosen, const char *name);
/* Returns a pattern for file= that all names match, malloc'ed, or NULL when out of memory. */
char *rfs_scan_same_pattern(const struct rfs_scan_same *same);

/* ---- what is found (scan.c) ------------------------------------------------------------------ */

static inline bool rfs_scan_asks_save(const struct rfs_source_spec *spec)
{
    return spec->options->step != RFS_ANY_NUMBER || spec->options->epoch != RFS_ANY_NUMBER;
}

/* Says whether step= and epoch= let a save through. */
static inline bool rfs_scan_lets(const struct rfs_options *options, const struct rfs_save *save)
{
    return (options->step == RFS_ANY_NUMBER || options->step == save->step) &&
           (options->epoch == RFS_ANY_NUMBER || options->epoch == save->epoch);
}

/*
 * Add to a scan. When out of memory they add nothing, and FAILED stays set, which rfs_scan_source
 * and rfs_scan_open look at in the end. The first appends a rank without files and returns it, or
 * NULL; FOLDER is copied. The second appends a file to one, which may be NULL, as may be the path,
 * which is taken over.
 */
struct rfs_scanned *rfs_scan_add(struct rfs_scan *scan, uint32_t rank, const char *folder);
void rfs_scan_add_file(struct rfs_scan *scan, struct rfs_scanned *item, char *path);

/* ---- kinds of sources ------------------------------------------------------------------------ */

/*
 * Takes the rank folders of SRC (tree.c); n stays 0 where there is none. With SAVES (or NULL) all
 * saves are listed instead, and what they were listed from is kept in it.
 */
int rfs_scan_tree(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_saves *saves, struct rfs_error *err);
/* Takes the checkpoints in SRC itself, chosen as in a rank folder (tree.c). */
int rfs_scan_flat(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_saves *saves, struct rfs_error *err);
/* Takes the save of SPEC's numbers, one of SPEC->saves, without listing folders again. */
int rfs_scan_tree_save(const struct rfs_source_spec *spec, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err);
void rfs_scan_tree_free(struct rfs_scan_tree *all);
/* Takes the files that a map names (map.c). */
int rfs_scan_map(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err);
/* Takes one file, or a folder that is one unsharded checkpoint by its own files (whole.c). */
int rfs_scan_file(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err);
int rfs_scan_whole(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err);
/* Returns the file of a folder that is a whole model by its name, or NULL. */
const struct rfs_scan_found *rfs_scan_model(const struct rfs_scan_listing *listing);
/*
 * Takes a folder whose checkpoint describes itself (described.c): out->n is 1, or 0 when it is of
 * another kind. 0, or -errno with *err filled.
 */
int rfs_scan_described(const struct rfs_source_spec *spec, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err);

/*
 * Takes the files of the one save in SPEC->path as rank 0's, in the order of their numbers
 * (numbered_save.c). SPEC->file chooses names. Refuses two saves, two files with the numbers of one
 * and missing files, but: out->lost names those of FSDP, and with SPEC->segmented the log those of
 * shards. LOG (may be NULL) hears the names that are only similar. 0, or -errno with *err filled.
 */
int rfs_scan_numbered(const struct rfs_source_spec *spec, const struct rfs_numbered_form *forms,
                      struct rfs_log *log, struct rfs_scan *out, struct rfs_error *err);
/*
 * Takes a save out of the folder of a run, where the name of its folder ends in its step (steps.c):
 * the one that SPEC asks for, or what the run's tracker names, or the last; n stays 0 where there
 * is none. With SAVES (or NULL) all of them are listed instead.
 */
int rfs_scan_steps(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                   struct rfs_saves *saves, struct rfs_error *err);
/*
 * Takes the save that SPEC asks for, if its folder or file is one of a series of names that
 * rfs_scan_steps does not know (series.c); n stays 0 where there is none. SAVES as above.
 */
int rfs_scan_series(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                    struct rfs_saves *saves, struct rfs_error *err);
/* Takes what a source is, or finds nothing: n of OUT stays 0. 0, or -errno with *err filled. */
typedef int rfs_scan_fn(const struct rfs_source_spec *spec, struct rfs_log *log,
                        struct rfs_scan *out, struct rfs_error *err);
/* Takes what a source is by itself, which may be of any kind. */
int rfs_scan_source(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                    struct rfs_error *err);
/* Scans the folder or file NAME in SPEC's source by SCAN. step= and epoch= have chosen it. */
int rfs_scan_by_name(const struct rfs_source_spec *spec, const char *name, rfs_scan_fn *scan,
                     struct rfs_log *log, struct rfs_scan *out, struct rfs_error *err);
/*
 * Takes the folder of SPEC's step, one of SPEC->saves, without listing folders again. One that has
 * lost its files since it was listed is refused.
 */
int rfs_scan_step(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err);
/* Takes the files of a save of DeepSpeed: those of models, then those of optimizers, by rank. */
int rfs_scan_zero_files(const struct rfs_source_spec *spec, struct rfs_scan *out,
                        struct rfs_error *err);
/* Takes the parts of hfai's dist_ckpt in SRC (parts.c); n stays 0 where there is none. */
int rfs_scan_parts(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err);
/* Gives ranks without a checkpoint those of their groups (group.c). */
int rfs_scan_groups(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *scan,
                    struct rfs_error *err);
