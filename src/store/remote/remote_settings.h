/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings by which stores of objects are reached, for all views of this process that have a
 * source there. Views that are open together agree on them (remote.h).
 *
 * Threads: all functions; rfs_remote_adopt while nothing is read.
 */
#pragma once

#include "base/options.h"

struct rfs_remote_settings {
    char *endpoint; /* "https://host:port", or NULL: that of AWS; owned */
    char *region;   /* or NULL; owned */
    char *profile;  /* or NULL; owned */
    bool path_style, anonymous;
    unsigned tries, timeout /* seconds */, connections;
};

/* Returns the settings in effect, which change only while no view is open. */
const struct rfs_remote_settings *rfs_remote_settings(void);
/* Says whether the options name the store and the credentials of the settings. */
bool rfs_remote_agrees(const struct rfs_options *options);
/* Takes the settings from options. 0 or -ENOMEM. */
int rfs_remote_adopt(const struct rfs_options *options);
