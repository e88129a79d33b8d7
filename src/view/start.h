/* SPDX-License-Identifier: Apache-2.0 */
/* Opening views in ways that reshard.h does not have. */
#pragma once

#include "base/error.h"
#include "base/settings.h"
#include "reshard.h"

/* The ways to open a view that is to be compared. */
struct rfs_view_how {
    bool late; /* slices of lost ranks are reported by the files that need them, not by opening */
    /*
     * The file of names= that the source was exported with, by whose keys its strategy or rules may
     * know it; or NULL. Borrowed.
     */
    const char *names;
};
/*
 * Opens a view as reshard_open does, with SETTINGS instead of the options in CONFIG. HOW may be
 * NULL.
 */
int rfs_view_start(const char *source, const struct rfs_settings *settings,
                   const reshard_config *config, const struct rfs_view_how *how,
                   struct reshard_view **out, struct rfs_error *err);
/* Returns whether SOURCE is a folder of hfai's parts, by its contents. */
bool rfs_view_has_parts(const char *source);
