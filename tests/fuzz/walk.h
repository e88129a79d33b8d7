/* SPDX-License-Identifier: Apache-2.0 */
/* Reading all of a view, whatever is in it. */
#ifndef TESTS_FUZZ_WALK_H
#define TESTS_FUZZ_WALK_H

#include "reshard.h"

#include <stdbool.h>

/*
 * Opens a view of SOURCE, a name below the fuzz folder, where it is. NULL when it is refused, for a
 * reason that is one printable line. Its log goes nowhere.
 */
reshard_view *walk_open(const char *source, const char *options);
/*
 * Every byte of every file, the hidden folder's included, twice and in pieces of other sizes: each
 * piece is refused both times or the same both times. Of files beyond 1 MiB the beginning and the
 * end are read. Returns whether there were any bytes.
 */
bool walk_all(reshard_view *view);

#endif
