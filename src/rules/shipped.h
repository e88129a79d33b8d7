/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room: the rules that are shipped, as texts in the library. So they are there wherever
 * it is, and of its version. rules/local.mk makes shipped.c of the files.
 */
#pragma once

#include "base/std.h"

struct rfs_rules_file {
    const char *name, *text;
};

/* Ascending by name; the last one has no name. */
extern const struct rfs_rules_file rfs_rules_shipped[];
