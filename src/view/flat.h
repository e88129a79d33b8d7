/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: views whose files lie in the root. One whole checkpoint is divided into parts, a
 * safetensors file each, and a JSON file maps parameters to files.
 */
#pragma once

#include "view/internal.h"

/* Filled in by the maker of a flat view; zero-initialise. */
struct flat_parts {
    const struct rfs_params *params;
    const char *format; /* for the metadata of the files */
    size_t n;           /* targets that are in some part */
    /* [n] owned; their positions in the parameter list, in the order of the JSON file */
    uint32_t *targets;
    uint32_t *part_of; /* [n] owned */
    uint32_t n_parts;
    char **names; /* [n_parts] owned; of the files */

    uint32_t *order; /* [n] owned; targets by part, in order: set by flat_group */
    size_t *ends;    /* [n_parts] owned; where each part ends in there */
};

/* Room for N targets. False when out of memory. */
bool flat_parts_init(struct flat_parts *parts, const struct rfs_params *params, size_t n);
void flat_parts_end(struct flat_parts *parts);

/* The bytes of a target as shown. */
uint64_t flat_bytes(const struct rfs_view *view, const struct rfs_target *target);

/*
 * Groups the targets by part and gives room for the names and for the files and MORE others. 0, or
 * -ENOMEM with *err filled.
 */
int flat_group(struct rfs_view *view, struct flat_parts *parts, size_t more, struct rfs_error *err);

/*
 * Shows an image, which it takes over in any case, of so many parameters. 0, or -ENOMEM with *err
 * filled.
 */
int flat_show(struct rfs_view *view, const char *name, size_t parameters, struct rfs_image *image,
              struct rfs_error *err);
/* Shows every part that has a target. 0 or -errno with *err filled. */
int flat_show_parts(struct rfs_view *view, const struct flat_parts *parts, struct rfs_error *err);
/* Shows where each target of the first N parts is. 0, or -ENOMEM with *err filled. */
int flat_show_map(struct rfs_view *view, const struct flat_parts *parts, uint32_t n,
                  const char *name, enum rfs_weight_map_style style, struct rfs_error *err);

/* The files of each kind of flat view; PARAMS are those of the whole checkpoint. 0 or -errno. */
int rfs_view_huggingface(struct rfs_view *view, const struct rfs_params *params,
                         struct rfs_error *err);
int rfs_view_unified(struct rfs_view *view, const struct rfs_params *params, struct rfs_error *err);
