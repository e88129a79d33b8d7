/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines that a shell takes as they are meant. */
#pragma once

#include "base/settings.h"

/*
 * Returns "PROGRAM PATH PLACE OPTIONS", malloc'ed: each word is one that a shell has again and that
 * no terminal obeys, and no program takes the path for an option. PLACE may be NULL.
 */
char *rfs_shell_command(const char *program, const char *path, const char *place,
                        const struct rfs_settings *options);
