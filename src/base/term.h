/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of terminals. Threads: any. */
#pragma once

#include "base/std.h"

/*
 * Whether text for FD may be coloured: it is a terminal that is not "dumb", and the user has not
 * set NO_COLOR to anything (no-color.org).
 */
bool rfs_term_has_colours(int fd);

/* A label such as "error: " in the colour of its kind for FD, or as it is. Constants. */
const char *rfs_term_error(int fd);
const char *rfs_term_warning(int fd);
