/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a view, together (base/options.h has a row for each). */
#pragma once

#include "base/error.h"
#include "base/settings.h"
#include "catalog/scan/spec.h"
#include "formats/formats.h"

struct rfs_key;
struct rfs_log;
struct rfs_options;

/*
 * Makes the specification for reading the source at PATH by OPTIONS alone, a URL by STORE; it
 * borrows all three.
 */
struct rfs_source_spec rfs_view_options_spec(const struct rfs_options *options,
                                             struct rfs_store *store, const char *path);

/*
 * Prepares for reading SOURCE and the files that the options name from object storage, as far as
 * they are URLs: *OUT is NULL or to be given back (rfs_remote_take). Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_options_take_store(const struct rfs_options *options, const char *source,
                                struct rfs_store **out, struct rfs_error *err);

/*
 * Reads the key that OPTIONS name: *OUT, owned by the caller. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_options_key(const struct rfs_options *options, struct rfs_log *log,
                         struct rfs_key **out, struct rfs_error *err);

/*
 * Hardens the process if OPTIONS name a key, and guards the keys. Returns 0, or -errno with *err
 * filled.
 */
int rfs_view_options_harden(const struct rfs_options *options, struct rfs_error *err);

/*
 * Returns the format of the files shown: the requested one, else the default of the kind of view;
 * with a file for each rank what the source GIVES, which is RFS_FORMAT_COUNT until that is known.
 */
enum rfs_format rfs_view_options_format(const struct rfs_options *options, enum rfs_format gives);

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
