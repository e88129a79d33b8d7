/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How stores of objects are reached, for all views of this process that have a source there. Views
 * that are open at the same time agree on it (remote.h).
 *
 * Threads: all functions; rfs_remote_adopt while nothing is read.
 */
#pragma once

#include "base/options.h"

#define RFS_TRIES 10
#define RFS_TIMEOUT 30 /* seconds */
#define RFS_CONNECTIONS 64

struct rfs_remote_settings {
    char *endpoint; /* "https://host:port", or NULL: that of AWS; owned */
    char *region;   /* or NULL; owned */
    char *profile;  /* or NULL; owned */
    bool path_style, anonymous;
    unsigned tries, timeout /* seconds */, connections;
};

/* Those in effect, which change only while no view is open. */
const struct rfs_remote_settings *rfs_remote_settings(void);
/* Whether the options name the same store and the same credentials. */
bool rfs_remote_agrees(const struct rfs_options *options);
/* 0 or -ENOMEM. */
int rfs_remote_adopt(const struct rfs_options *options);
