/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are copies of others of their side. */
#include "convert/compile_internal.h"

/* The tensor NAME of the made side gets the links of another. */
static int repeat_links(struct compiling *c, uint32_t from, const char *name)
{
    struct rfs_convert_map *map = c->map;
    const int side = !c->source;
    const uint32_t to = rfs_convert_tensor_add(c, side, name);

    if (to == NO_TENSOR)
        return -EINVAL;
    struct side_tensor *tensors = c->sides[side].tensors.data;
    if (tensors[to].taken)
        return rfs_convert_take_all(c, side, to);
    tensors[to] = tensors[from];
    tensors[to].takings = 0;
    tensors[to].taken = c->statement;
    const size_t n = map->links.n;
    for (size_t i = 0; i < n; i++) {
        struct rfs_convert_link link = map->links.data[i];
        if (link.made != from)
            continue;
        link.made = to;
        if (!RFS_PUSH(&map->links, link))
            return rfs_fail_memory(c->err);
    }
    return 0;
}

static int repeat_one(struct compiling *c)
{
    const struct statement *statement = c->statement;
    int rc = rfs_convert_spell(c, statement->names[1]);

    if (rc)
        return rc;
    const uint32_t from = rfs_convert_tensor_find(c, statement->side, c->text.data);
    if (from == NO_TENSOR || !c->sides[statement->side].tensors.data[from].taken)
        return CONVERT_FAIL(c, c->text.data, NULL, "is repeated, but no rule %s it",
                            statement->side == c->source ? "uses" : "makes");
    rc = rfs_convert_spell(c, statement->names[0]);
    if (rc)
        return rc;
    if (statement->side != c->source)
        return repeat_links(c, from, c->text.data);
    const uint32_t copy = rfs_convert_tensor_find(c, c->source, c->text.data);
    if (copy != NO_TENSOR && !c->sides[c->source].tensors.data[copy].taken)
        rfs_convert_drop(c, copy);
    return 0;
}

int rfs_convert_repeat(struct compiling *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->patterns.n && rc == 0; i++) {
        struct turns turns;
        c->statement = c->patterns.data[i];
        if (c->statement->kind != STATEMENT_REPEAT)
            continue;
        rc = rfs_convert_turns_of_name(c, c->statement->names[0], &turns);
        while (rc == 0 && rfs_convert_turns_next(&turns))
            rc = repeat_one(c);
        rfs_convert_turns_end(&turns);
    }
    return rc;
}
