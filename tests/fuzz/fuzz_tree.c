/* SPDX-License-Identifier: Apache-2.0 */
/* Every byte of what is shown of a hostile tree is read. */
#include "tests/fuzz/forge_tree.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

FUZZ_GOALS(FORGE_OPTIONS);

void fuzz_one(const uint8_t *data, size_t size)
{
    struct forge_choices in = {data, size, 0};
    reshard_view *view = forge_tree(&in);

    if (view && walk_all(view))
        fuzz_reached(in.options);
    reshard_close(view);
}
