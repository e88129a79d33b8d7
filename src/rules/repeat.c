/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are copies of others of their side. */
#include "rules/compile_internal.h"

#include "base/cleanup.h"
#include "base/text.h"

/* The tensor NAME of the made side gets the links of another. */
static int repeat_links(struct compiling *c, uint32_t from, const char *name)
{
    struct rfs_rules_map *map = c->map;
    const int side = !c->source;
    const uint32_t to = rfs_rules_tensor_add(c, side, name);

    if (to == NO_TENSOR)
        return -EINVAL;
    struct side_tensor *tensors = c->sides[side].tensors.data;
    if (tensors[to].taken)
        return rfs_rules_take_all(c, side, to);
    tensors[to] = tensors[from];
    tensors[to].takings = 0;
    tensors[to].taken = c->statement;
    const size_t n = map->links.n;
    for (size_t i = 0; i < n; i++) {
        struct rfs_rules_link link = map->links.data[i];
        if (link.made != from)
            continue;
        link.made = to;
        if (!RFS_PUSH(&map->links, link))
            return rfs_fail_memory(c->err);
    }
    return 0;
}

/* How the bytes of a copy can be made to agree, in the map's arena. */
static const char *remedy_of(struct compiling *c, bool tied)
{
    RFS_FREE char *text =
        tied ? rfs_text_printf("\"tie_word_embeddings\": false in %s, if the model's output has "
                               "weights of its own",
                               rfs_hf_config_name(c->input->config))
             : strdup("rules of your own that make a tensor of each");

    return text ? rfs_arena_text(&c->map->arena, text, strlen(text)) : NULL;
}

/* Leaves out a tensor of the source that should be a copy of another. */
static int leave_out(struct compiling *c, uint32_t original, uint32_t copy, bool tied)
{
    const struct side_tensor *of = &c->sides[c->source].tensors.data[original];
    const struct side_tensor *like = &c->sides[c->source].tensors.data[copy];
    struct rfs_rules_copy found = {.copy = copy, .original = original, .line = c->statement->line};

    found.remedy = remedy_of(c, tied);
    found.file = rfs_arena_text(&c->map->arena, c->statement->file, strlen(c->statement->file));
    if (!found.file || !found.remedy)
        return rfs_fail_memory(c->err);
    if (like->kind != of->kind || like->dtype != of->dtype || like->shape.ndim != of->shape.ndim ||
        memcmp(like->shape.dims, of->shape.dims, sizeof of->shape.dims) != 0)
        return CONVERT_FAIL(
            c, rfs_rules_tensor_name(c, c->source, copy), found.remedy,
            "is %s %s, and '%s', of which it should be a copy, is %s %s",
            rfs_dtype_name((enum rfs_dtype)like->dtype), rfs_rules_show(&like->shape).text,
            rfs_rules_tensor_name(c, c->source, original),
            rfs_dtype_name((enum rfs_dtype)of->dtype), rfs_rules_show(&of->shape).text);
    rfs_rules_drop(c, copy);
    c->sides[c->source].tensors.data[original].original = true;
    return RFS_PUSH(&c->map->copies, found) ? 0 : rfs_fail_memory(c->err);
}

static int repeat_one(struct compiling *c, bool tied)
{
    const struct statement *statement = c->statement;
    int rc = rfs_rules_spell(c, statement->names[1]);

    if (rc)
        return rc;
    const uint32_t from = rfs_rules_tensor_find(c, statement->side, c->text.data);
    if (from == NO_TENSOR || !c->sides[statement->side].tensors.data[from].taken)
        return CONVERT_FAIL(c, c->text.data, NULL, "is repeated, but no rule %s it",
                            statement->side == c->source ? "uses" : "makes");
    rc = rfs_rules_spell(c, statement->names[0]);
    if (rc)
        return rc;
    if (statement->side != c->source)
        return statement->kind == STATEMENT_COPY ? 0 : repeat_links(c, from, c->text.data);
    const uint32_t copy = rfs_rules_tensor_find(c, c->source, c->text.data);
    if (copy == NO_TENSOR || c->sides[c->source].tensors.data[copy].taken ||
        c->sides[c->source].tensors.data[copy].dropped)
        return 0;
    return leave_out(c, from, copy, tied);
}

int rfs_rules_repeat(struct compiling *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->waiting.n && rc == 0; i++) {
        struct turns turns;
        c->statement = c->waiting.data[i].statement;
        if (c->statement->kind != STATEMENT_REPEAT && c->statement->kind != STATEMENT_COPY)
            continue;
        rc = rfs_rules_turns_of_name(c, c->statement->names[0], &turns);
        while (rc == 0 && rfs_rules_turns_next(&turns))
            rc = repeat_one(c, c->waiting.data[i].tied);
        rfs_rules_turns_end(&turns);
    }
    return rc;
}
