/* SPDX-License-Identifier: Apache-2.0 */
/* The view's options (base/options.h), together. */
#pragma once

#include "base/options.h"
#include "catalog/scan/spec.h"

/*
 * The values of SETTINGS, in order. 0, -ENOMEM, or -EINVAL with *err filled as a mistake of usage;
 * *out is to be freed in any case.
 */
int rfs_options_take(const struct rfs_settings *settings, struct rfs_options *out,
                     struct rfs_error *err);

/* The specification for reading the source at PATH by OPTIONS alone; borrows both. */
struct rfs_source_spec rfs_options_spec(const struct rfs_options *options, const char *path);

/* An eighth of the smaller of the machine's memory and the limits of the process's cgroups. */
uint64_t rfs_options_default_cache(void);

/*
 * Prepares for reading SOURCE and the files that the options name from object storage, as far as
 * they are URLs: rfs_remote_take. 0, or -errno with *err filled.
 */
int rfs_options_take_objects(const struct rfs_options *options, const char *source, bool *taken,
                             struct rfs_error *err);
