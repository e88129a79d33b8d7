/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules and cuts that are shipped, as texts in the library: they are there wherever it is, and
 * of its version. convert/local.mk makes shipped.c of the files. Inside the room only.
 */
#pragma once

#include "base/std.h"

struct rfs_rules_file {
    const char *name, *text;
};

/* The name of their folder in messages. */
#define RFS_SHIPPED_FOLDER "share/reshardfs/convert/"

/* Ascending by name; the last one has no name. */
extern const struct rfs_rules_file rfs_rules_shipped[];
extern const struct rfs_rules_file rfs_cuts_shipped[];
