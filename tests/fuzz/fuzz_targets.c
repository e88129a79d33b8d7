/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets of a quantization config: a list in JSON up to the first NUL, and the name of a module
 * behind it.
 */
#include "base/json_tree.h"
#include "quant/targets.h"
#include "tests/fuzz/fuzz.h"

FUZZ_GOALS("by name", "by pattern", "by class", "by nothing");

void fuzz_one(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    struct rfs_quant_targets targets;
    struct rfs_error err = {0};
    cJSON *list = NULL;

    if (!end)
        return;
    const size_t n = (size_t)(end - data);
    if (rfs_json_tree_parse("list", (const char *)data, n, 1 << 20, NULL, &list, &err)) {
        require_refusal(&err);
        return;
    }
    REQUIRE(rfs_quant_targets_read(list, &targets));
    const struct rfs_quant_named named =
        rfs_quant_targets_name(&targets, (const char *)end + 1, size - n - 1);
    REQUIRE(named.perhaps <= named.surely);
    fuzz_reached(named.surely);
    rfs_quant_targets_free(&targets);
    cJSON_Delete(list);
}
