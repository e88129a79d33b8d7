/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where right tensors lie in the tensor that a rule makes of them: a piece for each, whose digits
 * each operation changes. Pieces are made from the inside out.
 */
#include "rules/compile_internal.h"
#include "rules/reshape.h"

#include "base/checked.h"

static void remove_axis(struct shape *shape, uint32_t axis)
{
    memmove(&shape->dims[axis], &shape->dims[axis + 1],
            (shape->ndim - axis - 1) * sizeof *shape->dims);
    shape->dims[--shape->ndim] = 0;
}

static void insert_axis(struct shape *shape, uint32_t axis, uint64_t size)
{
    memmove(&shape->dims[axis + 1], &shape->dims[axis], (shape->ndim - axis) * sizeof *shape->dims);
    shape->dims[axis] = size;
    shape->ndim++;
}

/* ---- a tensor -------------------------------------------------------------------------------- */

/* The rows that are taken of a tensor; COUNT 0: all. */
struct rows {
    uint32_t axis;
    uint64_t first, count, step;
};

static int take(struct compiling *c, uint32_t tensor, const struct rows *rows)
{
    const struct taking taking = {rows->axis, rows->first, rows->count, rows->step, 0};

    return rows->count > 0 ? rfs_rules_take_rows(c, SIDE_RIGHT, tensor, &taking)
                           : rfs_rules_take_all(c, SIDE_RIGHT, tensor);
}

static int push_piece(struct compiling *c, uint32_t tensor, const struct shape *shape,
                      const struct rows *rows)
{
    struct piece piece = {.tensor = tensor};

    for (uint32_t a = 0; a < shape->ndim; a++) {
        const bool some = rows->count > 0 && rows->axis == a;
        const uint64_t count = some ? rows->count : shape->dims[a];
        piece.leaf_at[a] = some ? rows->first : 0;
        if (count == 0)
            return 0;
        if (count == 1)
            continue;
        if (piece.n == RFS_RULES_DIGITS)
            return CONVERT_FAIL(c, c->text.data, NULL, "has more than %d axes", RFS_RULES_DIGITS);
        piece.digits[piece.n++] =
            (struct digit){count, 1, some ? rows->step : 1, (uint8_t)a, (uint8_t)a};
    }
    if (c->map->links.n + c->pieces.n >= CONVERT_MOST_LINKS)
        return CONVERT_FAIL(c, c->text.data, NULL, "is one of more than %zu parts of tensors",
                            CONVERT_MOST_LINKS);
    return RFS_PUSH(&c->pieces, piece) ? 0 : rfs_fail_memory(c->err);
}

/* WANT is the shape of the whole right tensor, as far as it is known. */
static int pieces_of_tensor(struct compiling *c, const struct node *node, const struct shape *want,
                            const struct rows *rows)
{
    struct shape shape;
    uint32_t tensor;

    int rc = rfs_rules_shape(c, node, &shape);
    if (!rc)
        rc = rfs_rules_leaf(c, node, &tensor);
    if (!rc)
        rc = rfs_rules_unify(c, c->text.data, want, &shape);
    if (rc)
        return rc;
    for (uint32_t a = 0; a < shape.ndim; a++)
        if (shape.dims[a] == ANY_SIZE)
            return CONVERT_FAIL(c, c->text.data, "a number in place of _",
                                "has a size that neither the rule nor the other tensors give");
    struct side_tensor *right = &c->sides[SIDE_RIGHT].tensors.data[tensor];
    if (c->source != SIDE_RIGHT) {
        rc = rfs_rules_unify(c, c->text.data, &right->shape, &shape);
        if (rc)
            return rc;
        right->shape = shape;
    }
    rc = take(c, tensor, rows);
    return rc ? rc : push_piece(c, tensor, &shape, rows);
}

static int pieces_of_rows(struct compiling *c, const struct node *node, const struct shape *want)
{
    struct rows rows = {.step = 1};
    struct shape whole = *want;
    struct shape real;

    if (node->kids->kind != NODE_TENSOR)
        return CONVERT_FAIL(c, NULL, "rows(…, NAME)",
                            "takes rows of something that is not a tensor");
    int rc = rfs_rules_axis(c, node->axis, want->ndim, &rows.axis);
    if (!rc)
        rc = rfs_rules_count(c, node->first, "the first row", 0, &rows.first);
    if (!rc)
        rc = rfs_rules_count(c, node->n, "the number of rows", 1, &rows.count);
    if (!rc && node->step)
        rc = rfs_rules_count(c, node->step, "the step from row to row", 1, &rows.step);
    if (!rc)
        rc = rfs_rules_shape(c, node->kids, &real);
    if (rc)
        return rc;
    uint64_t last;
    whole.dims[rows.axis] = real.known ? real.dims[rows.axis] : ANY_SIZE;
    if (whole.dims[rows.axis] != ANY_SIZE &&
        (!rfs_mul_u64(rows.count - 1, rows.step, &last) || !rfs_add_u64(last, rows.first, &last) ||
         last >= whole.dims[rows.axis]))
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), NULL,
                            "has %llu rows, fewer than the rule takes",
                            (unsigned long long)whole.dims[rows.axis]);
    return pieces_of_tensor(c, node->kids, &whole, &rows);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The first factor of a tensor's size along the axis, as it is written. 0: there is none. */
static int first_factor(struct compiling *c, const struct node *node, uint32_t axis,
                        uint64_t *factor)
{
    const struct size *size = node->kind == NODE_TENSOR ? node->sizes : NULL;

    *factor = 0;
    while (size && axis-- > 0)
        size = size->next;
    if (!size || !size->number)
        return 0;
    const struct number *number = size->number;
    while (number->kind == NUMBER_MULTIPLY)
        number = number->a;
    return rfs_rules_count(c, number, size->text, 0, factor);
}

/* Groups are cut at the first factor of sizes: a wrong number of them is found by that. */
static int check_groups(struct compiling *c, const struct node *node, uint32_t axis, uint64_t n)
{
    bool any = false;
    bool all = true;
    uint64_t factor;

    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        const int rc = first_factor(c, kid, axis, &factor);
        if (rc)
            return rc;
        if (factor % n != 0)
            return CONVERT_FAIL(c, rfs_rules_leaf_name(c, kid), NULL,
                                "is cut in %llu groups, which do not divide the first factor of "
                                "its size, %llu",
                                (unsigned long long)n, (unsigned long long)factor);
        any |= factor == n;
        all &= factor > 0;
    }
    if (all && !any)
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), NULL,
                            "is cut in %llu groups, and no part's size has that for its first "
                            "factor",
                            (unsigned long long)n);
    return 0;
}

/* Completes the shapes of parts along the axis: one at most may be unknown. */
static int complete_part(struct compiling *c, const struct node *node, const struct node *of,
                         uint32_t axis, const struct shape *want, struct shape *part)
{
    uint64_t left = want->dims[axis];

    int rc = rfs_rules_shape(c, of, part);
    if (rc)
        return rc;
    struct shape others = *want;
    others.dims[axis] = ANY_SIZE;
    rc = rfs_rules_unify(c, rfs_rules_leaf_name(c, of), &others, part);
    if (rc || part->dims[axis] != ANY_SIZE)
        return rc;
    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        struct shape other;
        if (kid == of)
            continue;
        rc = rfs_rules_shape(c, kid, &other);
        if (rc)
            return rc;
        if (!other.known || other.dims[axis] == ANY_SIZE || other.dims[axis] > left)
            return CONVERT_FAIL(c, rfs_rules_leaf_name(c, of),
                                "the sizes of all parts but one, as in NAME [heads * head, _]",
                                "has a size that neither the rule nor the other tensors give");
        left -= other.dims[axis];
    }
    part->dims[axis] = left;
    return 0;
}

static int fail_cut(struct compiling *c, const struct node *node)
{
    return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), NULL, "is cut inside of one of its parts");
}

/* Moves the pieces from FIRST on behind those of other parts. */
static void shift(struct compiling *c, size_t first, uint32_t axis, uint64_t base)
{
    for (size_t i = first; i < c->pieces.n; i++)
        c->pieces.data[i].at[axis] += base;
}

/* Moves the pieces from FIRST on to their groups: of SIZE, beginning at BASE, one each STRIDE. */
static int spread(struct compiling *c, const struct node *kid, size_t first, uint32_t axis,
                  uint64_t size, uint64_t base, uint64_t stride)
{
    for (size_t i = first; i < c->pieces.n; i++) {
        struct piece *piece = &c->pieces.data[i];
        if (!rfs_rules_divide(piece, axis, size))
            return fail_cut(c, kid);
        for (uint32_t k = 0; k < piece->n; k++)
            if (piece->digits[k].axis == axis && piece->digits[k].step % size == 0)
                piece->digits[k].step = piece->digits[k].step / size * stride;
        piece->at[axis] = piece->at[axis] / size * stride + base + piece->at[axis] % size;
    }
    return 0;
}

static int pieces_of_parts(struct compiling *c, const struct node *node, const struct shape *want)
{
    uint32_t axis;
    uint64_t n = 1;
    uint64_t sum = 0;
    int rc = rfs_rules_axis(c, node->axis, want->ndim, &axis);

    if (!rc && node->kind == NODE_GROUPS)
        rc = rfs_rules_count(c, node->n, "the number of groups", 1, &n);
    if (!rc && node->kind == NODE_GROUPS)
        rc = check_groups(c, node, axis, n);
    for (const struct node *kid = node->kids; kid && !rc; kid = kid->next) {
        const size_t first = c->pieces.n;
        struct shape part;
        rc = complete_part(c, node, kid, axis, want, &part);
        if (rc)
            return rc;
        const uint64_t size = part.dims[axis];
        if (size % n != 0)
            return CONVERT_FAIL(c, rfs_rules_leaf_name(c, kid), NULL,
                                "has %llu entries along axis %u, which cannot be cut in %llu "
                                "groups",
                                (unsigned long long)size, axis, (unsigned long long)n);
        rc = rfs_rules_pieces(c, kid, &part);
        if (!rc && n == 1)
            shift(c, first, axis, sum);
        else if (!rc && size > 0)
            rc = spread(c, kid, first, axis, size / n, sum, want->dims[axis] / n);
        if (!rc && !rfs_add_u64(sum, size / n, &sum))
            return -EINVAL;
    }
    if (!rc && sum * n != want->dims[axis])
        return CONVERT_FAIL(
            c, rfs_rules_leaf_name(c, node), "the config.json that belongs to these tensors",
            "and its other parts have %llu entries along axis %u, not %llu",
            (unsigned long long)(sum * n), axis, (unsigned long long)want->dims[axis]);
    return rc;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static int pieces_of_stack(struct compiling *c, const struct node *node, const struct shape *want)
{
    const struct known *found = rfs_rules_known(c, node->index); /* shapes.c has proved it */
    const size_t place = (size_t)(found - c->known.data);
    const int64_t from = found->from;
    struct shape inner = *want;
    uint32_t axis;
    int rc = rfs_rules_axis(c, node->axis, want->ndim, &axis);

    if (rc)
        return rc;
    remove_axis(&inner, axis);
    for (int64_t value = from; !rc && value < found->to; value++) {
        const size_t first = c->pieces.n;
        c->known.data[place].bound = true;
        c->known.data[place].value = value;
        rc = rfs_rules_pieces(c, node->kids, &inner);
        for (size_t i = first; i < c->pieces.n; i++)
            rfs_rules_insert(&c->pieces.data[i], axis, (uint64_t)(value - from));
    }
    c->known.data[place].bound = false;
    return rc;
}

static int pieces_of_transpose(struct compiling *c, const struct node *node,
                               const struct shape *want)
{
    const uint32_t last = want->ndim - 1;
    const size_t first = c->pieces.n;
    struct shape inner = *want;

    inner.dims[last] = want->dims[last - 1];
    inner.dims[last - 1] = want->dims[last];
    const int rc = rfs_rules_pieces(c, node->kids, &inner);
    for (size_t i = first; i < c->pieces.n; i++)
        rfs_rules_swap(&c->pieces.data[i], last);
    return rc;
}

static int pieces_of_join(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    struct shape inner;
    uint32_t axis;
    int rc = rfs_rules_axis(c, node->axis, want->ndim, &axis);

    if (!rc)
        rc = rfs_rules_shape(c, node->kids, &inner);
    if (rc)
        return rc;
    if (!inner.known || (inner.dims[axis] == ANY_SIZE && inner.dims[axis + 1] == ANY_SIZE))
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), "a number in place of _",
                            "has a size that neither the rule nor the other tensors give");
    const uint32_t given = inner.dims[axis] == ANY_SIZE ? axis + 1 : axis;
    const uint64_t size = inner.dims[given];
    struct shape whole = *want;
    if (size == 0 || whole.dims[axis] % size != 0)
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node),
                            "the config.json that belongs to these tensors",
                            "is joined to %llu entries, which are not a multiple of %llu",
                            (unsigned long long)whole.dims[axis], (unsigned long long)size);
    const uint64_t other = whole.dims[axis] / size;
    insert_axis(&whole, axis, given == axis ? size : other);
    whole.dims[axis + 1] = given == axis ? other : size;
    rc = rfs_rules_pieces(c, node->kids, &whole);
    for (size_t i = first; i < c->pieces.n; i++)
        rfs_rules_join(&c->pieces.data[i], axis, whole.dims[axis + 1]);
    return rc;
}

static int pieces_of_split(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    struct shape whole = *want;
    uint32_t axis;
    int rc = rfs_rules_axis(c, node->axis, want->ndim - 1, &axis);

    if (rc)
        return rc;
    const uint64_t inner = want->dims[axis + 1];
    remove_axis(&whole, axis + 1);
    if (!rfs_mul_u64(want->dims[axis], inner, &whole.dims[axis]))
        return CONVERT_FAIL(c, NULL, NULL, "a tensor would have more than 2^63 elements");
    rc = rfs_rules_pieces(c, node->kids, &whole);
    for (size_t i = first; !rc && i < c->pieces.n; i++)
        if (!rfs_rules_split(&c->pieces.data[i], axis, inner))
            rc = fail_cut(c, node);
    return rc;
}

static int pieces_of_cast(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    const int rc = rfs_rules_pieces(c, node->kids, want);

    for (size_t i = first; !rc && i < c->pieces.n; i++) {
        struct piece *piece = &c->pieces.data[i];
        if (piece->casts[0] || piece->casts[1])
            return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), NULL,
                                "has a cast inside of a cast");
        memcpy(piece->casts, node->casts, sizeof piece->casts);
        memcpy(piece->dtypes, node->dtypes, sizeof piece->dtypes);
    }
    return rc;
}

int rfs_rules_pieces(struct compiling *c, const struct node *node, const struct shape *want)
{
    static const struct rows all = {0};

    switch (node->kind) {
    case NODE_TENSOR:
        return pieces_of_tensor(c, node, want, &all);
    case NODE_CONCAT:
    case NODE_GROUPS:
        return pieces_of_parts(c, node, want);
    case NODE_STACK:
        return pieces_of_stack(c, node, want);
    case NODE_TRANSPOSE:
        return pieces_of_transpose(c, node, want);
    case NODE_JOIN:
        return pieces_of_join(c, node, want);
    case NODE_SPLIT:
        return pieces_of_split(c, node, want);
    case NODE_ROWS:
        return pieces_of_rows(c, node, want);
    default:
        return pieces_of_cast(c, node, want);
    }
}
