/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   check_loads SOURCE OPTIONS SEED
 *
 * Opens a view and compares all of its tensors, and random boxes of them, as reshard_tensors_load
 * reads them, with the files that the view shows (loads.h). The suites of whole programs start it
 * where they compare these files with the truth. It prints its counts, or the first difference and
 * the seed that replays it.
 */
#include "tests/support/loads.h"

#include <stdio.h>
#include <stdlib.h>

static int check(const char *source, const char *options, const char *seed)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;
    struct loads loads;

    if (reshard_open(source, &config, &view, &err)) {
        printf("%s\n", err.message);
        return 2;
    }
    loads_check(view, strtoull(seed, NULL, 10), false, &loads);
    reshard_close(view);
    if (loads.why[0]) {
        printf("%s (seed %s)\n", loads.why, seed);
        return 1;
    }
    printf("%u tensors, %u boxes, %u cannot be read\n", loads.tensors, loads.boxes, loads.failed);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "check_loads SOURCE OPTIONS SEED\n");
        return 2;
    }
    return check(argv[1], argv[2], argv[3]);
}
