/* SPDX-License-Identifier: Apache-2.0 */
/* Rights that the process gives up before it reads a key. */
#pragma once

#include "base/error.h"

/*
 * Prevents core files, and access to its memory by other processes of the user, such as debuggers:
 * neither the process nor its children are dumpable. 0, or -errno with *err filled.
 */
int rfs_harden(struct rfs_error *err);
