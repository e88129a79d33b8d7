/* SPDX-License-Identifier: Apache-2.0 */
/* From the pieces of a rule to links, and from links to made tensors. */
#include "rules/compile_internal.h"

#include "base/cleanup.h"
#include "base/order.h"

RFS_COMPARE(by_step, struct rfs_rules_digit, x, y,
            RFS_ORDER(x->axis[RFS_MADE], y->axis[RFS_MADE])
                ?: RFS_ORDER(y->step[RFS_MADE], x->step[RFS_MADE]))

static int push_ats(struct rfs_rules_map *map, const uint64_t *at, uint32_t n, size_t *first)
{
    *first = map->ats.n;
    for (uint32_t a = 0; a < n; a++)
        if (!RFS_PUSH(&map->ats, at[a]))
            return -ENOMEM;
    return RFS_PUSH(&map->ats, 0) ? 0 : -ENOMEM; /* so that one without axes has a place, too */
}

/* The digits and the place of a piece on the left, in its tensor. */
static void place_left(const struct piece *piece, const struct left_rows *rows, uint32_t n_rows,
                       uint64_t *at, uint64_t *steps)
{
    memcpy(at, piece->at, sizeof piece->at);
    for (uint32_t k = 0; k < piece->n; k++)
        steps[k] = piece->digits[k].step;
    for (uint32_t r = 0; r < n_rows; r++) {
        at[rows[r].axis] = rows[r].first + at[rows[r].axis] * rows[r].step;
        for (uint32_t k = 0; k < piece->n; k++)
            if (piece->digits[k].axis == rows[r].axis)
                steps[k] *= rows[r].step;
    }
}

static int link_piece(struct compiling *c, uint32_t left, const struct left_rows *rows,
                      uint32_t n_rows, const struct piece *piece)
{
    struct rfs_rules_map *map = c->map;
    const int of_left = c->source == SIDE_LEFT ? RFS_SOURCE : RFS_MADE;
    const int of_right = !of_left;
    struct rfs_rules_link link = {.digits = (uint32_t)map->digits.n, .n = piece->n};
    uint64_t at[RFS_MAX_DIMS];
    uint64_t steps[RFS_RULES_DIGITS];

    place_left(piece, rows, n_rows, at, steps);
    link.made = of_left == RFS_MADE ? left : piece->tensor;
    link.source = of_left == RFS_MADE ? piece->tensor : left;
    for (uint32_t k = 0; k < piece->n; k++) {
        const struct digit *digit = &piece->digits[k];
        struct rfs_rules_digit made = {.count = digit->count};
        made.step[of_left] = steps[k];
        made.axis[of_left] = digit->axis;
        made.step[of_right] = digit->leaf_step;
        made.axis[of_right] = digit->leaf_axis;
        if (!RFS_PUSH(&map->digits, made))
            return rfs_fail_memory(c->err);
    }
    if (piece->n > 0) /* those of a scalar may be none at all */
        RFS_SORT(&map->digits.data[link.digits], piece->n, by_step);
    const uint32_t left_ndim = c->sides[SIDE_LEFT].tensors.data[left].shape.ndim;
    const uint32_t right_ndim = c->sides[SIDE_RIGHT].tensors.data[piece->tensor].shape.ndim;
    if (push_ats(map, at, left_ndim, &link.at[of_left]) ||
        push_ats(map, piece->leaf_at, right_ndim, &link.at[of_right]) ||
        !RFS_PUSH(&map->links, link))
        return rfs_fail_memory(c->err);
    return 0;
}

/* The elements of a made tensor, by one source of it. */
static int set_dtypes(struct compiling *c, uint32_t made, uint32_t source, const bool *casts,
                      const enum rfs_dtype *dtypes)
{
    const int side = !c->source;
    struct side_tensor *to = &c->sides[side].tensors.data[made];
    const struct side_tensor *from = &c->sides[c->source].tensors.data[source];
    const enum rfs_dtype dtype = (enum rfs_dtype)from->dtype;
    const uint8_t shown = casts[side] ? (uint8_t)dtypes[side] : from->dtype;
    const char *name = rfs_rules_tensor_name(c, side, made);

    if (shown != from->dtype && !rfs_dtype_is_float(dtype))
        return CONVERT_FAIL(c, rfs_rules_tensor_name(c, c->source, source), NULL,
                            "has dtype %s, and cast converts floating-point numbers only",
                            rfs_dtype_name(dtype));
    if (to->there && (to->dtype != from->dtype || to->kind != shown))
        return CONVERT_FAIL(c, name, "one dtype for all of its parts",
                            "is made of parts of %s and %s",
                            rfs_dtype_name((enum rfs_dtype)to->dtype), rfs_dtype_name(dtype));
    to->there = true;
    to->dtype = from->dtype;
    to->kind = shown; /* all made values are tensors */
    return 0;
}

int rfs_rules_link(struct compiling *c, uint32_t left, const struct left_rows *rows,
                   uint32_t n_rows, const struct shape *shape)
{
    struct side_tensor *of = &c->sides[SIDE_LEFT].tensors.data[left];
    int rc = 0;

    if (c->source == SIDE_RIGHT)
        of->shape = *shape;
    for (size_t i = 0; i < c->pieces.n && rc == 0; i++) {
        const struct piece *piece = &c->pieces.data[i];
        const uint32_t made = c->source == SIDE_RIGHT ? left : piece->tensor;
        rc = set_dtypes(c, made, c->source == SIDE_RIGHT ? piece->tensor : left, piece->casts,
                        piece->dtypes);
        if (rc == 0)
            rc = link_piece(c, left, rows, n_rows, piece);
    }
    return rc;
}

int rfs_rules_link_same(struct compiling *c, uint32_t source, const char *name)
{
    static const bool no_casts[2] = {false, false};
    static const enum rfs_dtype none[2] = {0, 0};
    const struct side_tensor *from = &c->sides[c->source].tensors.data[source];
    const int side = !c->source;
    const uint32_t made = rfs_rules_tensor_add(c, side, name);
    struct piece piece = {.n = 0};

    if (made == NO_TENSOR)
        return -EINVAL;
    int rc = rfs_rules_take_all(c, side, made);
    if (rc == 0)
        rc = set_dtypes(c, made, source, no_casts, none);
    if (rc)
        return rc;
    from = &c->sides[c->source].tensors.data[source];
    c->sides[side].tensors.data[made].shape = from->shape;
    for (uint32_t a = 0; a < from->shape.ndim; a++) {
        const uint64_t count = from->shape.dims[a];
        if (count == 0)
            return 0;
        if (piece.n == RFS_RULES_DIGITS)
            return CONVERT_FAIL(c, name, NULL, "has more than %d axes", RFS_RULES_DIGITS);
        piece.digits[piece.n++] = (struct digit){count, 1, 1, (uint8_t)a, (uint8_t)a};
    }
    piece.tensor = c->source == SIDE_RIGHT ? source : made;
    return link_piece(c, c->source == SIDE_RIGHT ? made : source, NULL, 0, &piece);
}

/* ---- made tensors ---------------------------------------------------------------------------- */

/* A tensor to be made: in the order of the first source tensor that it is made of. */
struct order {
    uint32_t made, source;
};

RFS_COMPARE(by_source, struct order, x, y,
            RFS_ORDER(x->source, y->source) ?: RFS_ORDER(x->made, y->made))

RFS_COMPARE(by_made, struct rfs_rules_link, x, y,
            RFS_ORDER(x->made, y->made) ?: RFS_ORDER(x->digits, y->digits))

static int add_made(struct compiling *c, uint32_t tensor)
{
    struct rfs_rules_map *map = c->map;
    const int side = !c->source;
    const struct side_tensor *of = &c->sides[side].tensors.data[tensor];
    const char *name = rfs_rules_tensor_name(c, side, tensor);
    struct rfs_rules_made made = {
        .shown = (enum rfs_dtype)of->kind, .file = of->taken->file, .line = of->taken->line};

    c->statement = of->taken;
    made.name = rfs_arena_text(&map->arena, name, strlen(name));
    made.file = rfs_arena_text(&map->arena, made.file, strlen(made.file));
    made.type.ndim = (uint8_t)of->shape.ndim;
    made.type.dtype = of->dtype;
    made.type.kind = RFS_TENSOR;
    memcpy(made.type.dims, of->shape.dims, of->shape.ndim * sizeof *of->shape.dims);
    if (!rfs_type_bytes(&made.type, &made.type.bytes))
        return CONVERT_FAIL(c, name, NULL, "would have more than 2^63 bytes");
    return made.name && made.file && RFS_PUSH(&map->made, made) ? 0 : rfs_fail_memory(c->err);
}

int rfs_rules_link_finish(struct compiling *c)
{
    struct rfs_rules_map *map = c->map;
    const size_t n = c->sides[!c->source].tensors.n;
    RFS_FREE struct order *order = calloc(n + 1, sizeof *order);
    RFS_FREE uint32_t *place = calloc(n + 1, sizeof *place);
    size_t used = 0;

    if (!order || !place)
        return rfs_fail_memory(c->err);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (struct order){i, UINT32_MAX};
    for (size_t i = 0; i < map->links.n; i++) {
        struct order *of = &order[map->links.data[i].made];
        if (map->links.data[i].source < of->source)
            of->source = map->links.data[i].source;
    }
    RFS_SORT(order, n, by_source);
    for (size_t i = 0; i < n; i++) {
        if (!c->sides[!c->source].tensors.data[order[i].made].there)
            continue;
        place[order[i].made] = (uint32_t)used++;
        const int rc = add_made(c, order[i].made);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < map->links.n; i++)
        map->links.data[i].made = place[map->links.data[i].made];
    RFS_SORT_ALL(&map->links, by_made);
    for (size_t i = 0; i < map->links.n; i++) {
        struct rfs_rules_made *made = &map->made.data[map->links.data[i].made];
        made->links = made->n++ == 0 ? i : made->links;
        made->compared |= c->sides[c->source].tensors.data[map->links.data[i].source].original;
    }
    return 0;
}
