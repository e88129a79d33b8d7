/* SPDX-License-Identifier: Apache-2.0 */
/* The view's options: "key=value,key=value", "\," for a comma inside a value and "\\" for a backslash. */
#ifndef RFS_VIEW_OPTIONS_H
#define RFS_VIEW_OPTIONS_H

#include "base/error.h"
#include "source/spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define RFS_PREFIX "checkpoint_" /* of the names of files, unless another is given */

#define RFS_NO_SIZE UINT64_MAX /* of large_size: not given, hfai's own */

enum rfs_shown { RFS_SHOW_RANKS, RFS_SHOW_HUGGINGFACE, RFS_SHOW_UNIFIED };

/* Texts are NULL when not given. */
struct rfs_options {
    char *src_strategy; /* a path, a folder of them, or several with ':' between */
    char *dst_strategy;
    char *src_rules; /* instead of a strategy: rules, or the path of a file of them */
    char *dst_rules;
    uint32_t src_ranks; /* that the rules are for; 0 when not given */
    uint32_t dst_ranks;

    char *rank_dir; /* source/spec.h says what these mean */
    char *file;
    char *files;
    char *group_info;
    int64_t step, epoch;
    bool all_steps; /* step=all: each checkpoint in a folder of its own */
    char *entry;
    bool segmented;
    char *segmented_skip;
    bool check_crc;
    bool follow_links; /* out of the source, too, where others might read what they lead to */
    char *key_file;    /* a path */
    char *key_env;     /* the name of an environment variable */
    int key_fd;        /* -1 when not given */
    char *key_mode;    /* which encryption all files must have */

    bool format_given;
    enum rfs_format format; /* of the outputs; if not given, ckpt or what the shown kind needs */
    enum rfs_shown shown;
    uint64_t file_size; /* bytes of tensors in one file of an unsharded view; 0: by its kind */
    char *names;        /* a path */
    char *dtype;
    bool crc;
    uint32_t nshards;    /* of the parts shown of an hfai checkpoint; 0: as many as it has */
    uint64_t large_size; /* bytes; larger tensors are cut over those parts; or RFS_NO_SIZE */
    bool uneven_steps;   /* take parts for those of one save whatever steps they count */
    bool zip_crc;        /* compute the checksums of archives that take reading */
    char *index_cache;   /* a folder, or "no"; NULL: the user's */
    char *prefix;        /* never NULL once parsed */
    bool cache_given;
    uint64_t cache; /* bytes */
    bool strict;
};

/*
 * TEXT may be NULL. Of a key that comes twice the last counts, as with mount(8). 0, -ENOMEM, or -EINVAL
 * with *err filled as a mistake of usage; *out is to be freed in any case.
 */
int rfs_options_parse(const char *text, struct rfs_options *out, struct rfs_error *err);
void rfs_options_free(struct rfs_options *options);

/* How the source at PATH is to be read by what OPTIONS say alone; borrows their texts, and PATH. */
struct rfs_source_spec rfs_options_spec(const struct rfs_options *options, const char *path);

/*
 * All options in effect but those that do nothing, as rfs_options_parse takes them; the format is FORMAT, which
 * the kind of view may have chosen. No key is among them, only where it came from.
 */
void rfs_options_write(const struct rfs_options *options, const char *format, FILE *out);

/*
 * "64", "512K", "2G", "1.5GiB" → bytes, in powers of 1,024, the same under any locale. False when it is
 * not a size, or over 2^63 - 1 bytes.
 */
bool rfs_options_size(const char *text, uint64_t *bytes);

/* An eighth of the smaller of the machine's memory and the limits of the process's cgroups. */
uint64_t rfs_options_default_cache(void);

#endif
