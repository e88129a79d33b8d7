/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion rules. What parses is applied to a small model of either side; what that makes must
 * have each element once.
 */
#include "rules/compile.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("tensors of the right side", "tensors of the left side", "a config that contradicts");

static const char config_text[] =
    "{\"model_type\": \"m\", \"hidden\": 4, \"heads\": 4, \"groups\": 2, \"head\": 2, \"ffn\": 6, "
    "\"layers\": 2, \"experts\": 2, \"tied\": false, \"text\": {\"word\": \"sigmoid\"}, \"kinds\": "
    "[\"s\", \"f\"], "
    "\"some\": [1, 3]}";

/* Of another model: what both say of heads or groups differs where it is a list or a number. */
static const char own_text[] = "{\"heads\": 4, \"groups\": 3, \"head\": [2], \"hidden\": 5}";

#define TENSOR(tensor, ...)                                                                        \
    {                                                                                              \
        tensor,                                                                                    \
        {                                                                                          \
            .dims = {__VA_ARGS__}, .ndim = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),   \
            .dtype = RFS_BFLOAT16, .kind = RFS_TENSOR                                              \
        }                                                                                          \
    }

struct named {
    const char *name;
    struct rfs_type type;
};
static struct named right[] = {TENSOR("q", 8, 4),    TENSOR("k", 4, 4),   TENSOR("v", 4, 4),
                               TENSOR("gate", 6, 4), TENSOR("up", 6, 4),  TENSOR("m.0.x", 3),
                               TENSOR("m.1.x", 3),   TENSOR("e.0", 6, 4), TENSOR("e.1", 6, 4)};
static struct named left[] = {TENSOR("qkv", 16, 4), TENSOR("fc1", 12, 4), TENSOR("l.0.a", 3),
                              TENSOR("l.1.a", 3), TENSOR("w", 8, 6)};

static void check_made(const struct rfs_rules_map *map, const struct named *source)
{
    for (size_t i = 0; i < map->made.n; i++) {
        const struct rfs_rules_made *made = &map->made.data[i];
        uint64_t elems = 0;
        for (size_t k = 0; k < made->n; k++) {
            const struct rfs_rules_link *link = &map->links.data[made->links + k];
            const struct rfs_type *types[2] = {&made->type, &source[link->source].type};
            struct rfs_rules_span all;
            uint64_t n = 1;
            rfs_rules_span_all(map, link, &all);
            for (uint32_t d = 0; d < link->n; d++)
                n *= all.end[d];
            elems += n;
            for (int side = 0; side < 2; side++) {
                uint64_t lo[RFS_MAX_DIMS];
                uint64_t hi[RFS_MAX_DIMS];
                rfs_rules_span_box(map, link, side, types[side]->ndim, &all, lo, hi);
                for (uint32_t a = 0; a < types[side]->ndim; a++)
                    REQUIRE(hi[a] <= types[side]->dims[a]);
            }
        }
        REQUIRE(elems * 2 == made->type.bytes);
    }
}

static void report(void *ctx, const struct rfs_error *err)
{
    REQUIRE(++*(size_t *)ctx <= RFS_RULES_ERRORS);
    require_refusal(err);
}

static void apply(const struct rfs_rules *rules, const struct rfs_hf_config *config,
                  struct named *named, size_t n, unsigned goal)
{
    struct rfs_rules_tensor tensors[16];
    size_t told = 0;
    struct rfs_rules_input input = {.config = config,
                                    .options = "way=b",
                                    .source = "source",
                                    .tensors = tensors,
                                    .n = n,
                                    .ctx = &told};
    struct rfs_rules_map *map;
    struct rfs_error err = {0};

    for (size_t i = 0; i < n; i++) {
        REQUIRE(rfs_type_bytes(&named[i].type, &named[i].type.bytes));
        tensors[i] = (struct rfs_rules_tensor){named[i].name, &named[i].type};
    }
    if (rfs_rules_compile(rules, &input, &map, &err) != 0) {
        require_refusal(&err);
        input.report = report;
        REQUIRE(rfs_rules_compile(rules, &input, &map, &err) != 0);
        require_refusal(&err);
        return;
    }
    check_made(map, named);
    fuzz_reached(goal);
    rfs_rules_map_free(map);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_rules *rules;
    struct rfs_hf_config *config;
    struct rfs_hf_config *own;
    struct rfs_error err = {0};

    if (rfs_rules_parse("f", (const char *)data, size, NULL, NULL, &rules, &err) != 0) {
        require_refusal(&err);
        return;
    }
    REQUIRE(rfs_hf_config_read("c", config_text, sizeof config_text - 1, &config, &err) == 0);
    REQUIRE(rfs_hf_config_read("o", own_text, sizeof own_text - 1, &own, &err) == 0);
    REQUIRE(rfs_hf_config_compare(config, own, &err) == 0);
    apply(rules, config, right, sizeof right / sizeof *right, 0);
    apply(rules, config, left, sizeof left / sizeof *left, 1);
    if (rfs_hf_config_check(config, &err) != 0) {
        require_refusal(&err);
        REQUIRE(strstr(err.text, "c: 'groups' is another than in o") == err.text);
        fuzz_reached(2);
    }
    rfs_hf_config_free(config);
    rfs_rules_free(rules);
}
