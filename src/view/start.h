/* SPDX-License-Identifier: Apache-2.0 */
/* Opens views for commands. */
#pragma once

#include "base/error.h"
#include "base/settings.h"
#include "reshard.h"

struct rfs_view;

/* The way in which a command opens a view. */
struct rfs_view_how {
    reshard_log_fn *log; /* as in reshard_config; or NULL */
    void *log_ctx;
    bool late; /* slices of lost ranks are reported by the files that need them, not by opening */
    /*
     * The tensors are wanted, in whatever files they would be shown: where no option chooses a
     * format, one is chosen, unless FILES are wanted, too; and the folder of a rank is that rank's
     * file.
     */
    bool tensors, files;
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
