/* SPDX-License-Identifier: Apache-2.0 */
/* Every byte of what is shown of a hostile tree is read. */
#include "tests/fuzz/forge_tree.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

void fuzz_one(const uint8_t *data, size_t size)
{
    reshard_view *view = forge_tree(&(struct forge_choices){data, size});

    if (view)
        walk_all(view);
    reshard_close(view);
}
