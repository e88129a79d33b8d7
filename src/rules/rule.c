/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule: the shapes of its expressions, the pieces that they are made of, and the links of its
 * tensors.
 *
 * Where the right side is the source, all shapes are known from its tensors; else they come from
 * the left tensor and from the sizes in the rules. A piece says where a right tensor lies in the
 * tensor that a rule makes of it. Pieces are made from the inside out: each operation changes their
 * digits.
 */
#include "rules/compile_internal.h"

#include "base/checked.h"
#include "base/order.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

#define MOST_LINKS ((size_t)1 << 23) /* a config may have hostile numbers */
#define MOST_SHOWN 400               /* characters of a right-hand side that a message shows */
#define REMEDY_CONFIG "the config.json that belongs to these tensors"

struct rfs_rules_shape_text rfs_rules_show(const struct shape *shape)
{
    struct rfs_rules_shape_text out;
    size_t n = 1;

    strcpy(out.text, "[");
    for (uint32_t i = 0; i < shape->ndim && n < sizeof out.text; i++) {
        char dim[24] = "_";
        if (shape->dims[i] != ANY_SIZE)
            snprintf(dim, sizeof dim, "%llu", (unsigned long long)shape->dims[i]);
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, "%s%s", i > 0 ? ", " : "", dim);
    }
    if (n < sizeof out.text - 1)
        strcpy(out.text + n, "]");
    return out;
}

static bool agree(const struct shape *a, const struct shape *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i] && a->dims[i] != ANY_SIZE && b->dims[i] != ANY_SIZE)
            return false;
    return true;
}

/* Completes SHAPE by WANT, axis by axis; they must agree. NAME is for messages. */
static int unify(struct compiling *c, const char *name, const struct shape *want,
                 struct shape *shape)
{
    if (!want->known)
        return 0;
    if (shape->known && !agree(want, shape)) {
        const char *rule = c->statement->text;
        return RULES_FAIL(c, name, REMEDY_CONFIG, "has shape %s, but the rule makes %s: %.*s%s",
                          rfs_rules_show(want).text, rfs_rules_show(shape).text, MOST_SHOWN, rule,
                          strlen(rule) > MOST_SHOWN ? "…" : "");
    }
    if (!shape->known)
        *shape = *want;
    for (uint32_t i = 0; i < shape->ndim; i++)
        shape->dims[i] = shape->dims[i] == ANY_SIZE ? want->dims[i] : shape->dims[i];
    return 0;
}

/* Gives the number of an axis of NDIM. */
static int read_axis(struct compiling *c, const struct number *number, uint32_t ndim,
                     uint32_t *axis)
{
    int64_t value;
    const int rc = rfs_rules_number(c, number, &value);

    if (!rc && (value >= (int64_t)ndim || value < -(int64_t)ndim))
        return RULES_FAIL(c, NULL, NULL, "there is no axis %lld of %u", (long long)value, ndim);
    *axis = (uint32_t)(value < 0 ? value + (int64_t)ndim : value);
    return rc;
}

/* Spells the first leaf's name in c->text, for messages. */
static const char *leaf_name(struct compiling *c, const struct node *node)
{
    while (node->kids)
        node = node->kids;
    return rfs_rules_spell(c, node->name) ? "" : c->text.data;
}

/* Gives the sizes that are written behind a name. */
static int read_annotation(struct compiling *c, const struct node *node, struct shape *shape)
{
    int rc = 0;

    *shape = (struct shape){.known = node->sized};
    for (const struct size *size = node->sizes; size && rc == 0; size = size->next) {
        uint64_t *dim = &shape->dims[shape->ndim++];
        *dim = ANY_SIZE;
        if (size->number)
            rc = rfs_rules_count(c, size->number, size->text, 0, dim);
    }
    return rc;
}

/* Shows the sizes as they are written, for a message. */
static void show_sizes(const struct node *node, char *out, size_t cap)
{
    size_t n = 0;

    for (const struct size *size = node->sizes; size && n < cap; size = size->next)
        n +=
            (size_t)snprintf(out + n, cap - n, "%s%s", size == node->sizes ? "" : ", ", size->text);
}

/*
 * Spells the name of a tensor of that side in c->text: of several names the one that the source
 * has, or the first.
 */
static int spell_tensor(struct compiling *c, const struct node *node, int side)
{
    const struct name_part *found = NULL;
    int rc = 0;

    for (const struct node *of = node; rc == 0 && side == c->source && node->also && of;
         of = of->also) {
        rc = rfs_rules_spell(c, of->name);
        if (rc || rfs_rules_tensor_find(c, side, c->text.data) == NO_TENSOR)
            continue;
        if (found)
            return RULES_FAIL(c, c->text.data, NULL,
                              "is in %s, and so is another name of the same tensor",
                              c->input->source);
        found = of->name;
    }
    return rc ?: rfs_rules_spell(c, found ? found : node->name);
}

/* Gives the right tensor of a leaf; its name is in c->text. */
static int read_leaf(struct compiling *c, const struct node *node, uint32_t *tensor)
{
    int rc = spell_tensor(c, node, SIDE_RIGHT);

    if (rc)
        return rc;
    if (c->source == SIDE_RIGHT)
        return rfs_rules_need(c, c->text.data, tensor);
    *tensor = rfs_rules_tensor_add(c, SIDE_RIGHT, c->text.data);
    return *tensor == NO_TENSOR ? c->err->code : 0;
}

static int leaf_shape(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t tensor;
    int rc = read_annotation(c, node, shape);

    if (rc || c->source != SIDE_RIGHT)
        return rc;
    rc = read_leaf(c, node, &tensor);
    if (rc)
        return rc;
    const struct shape *real = c->sides[SIDE_RIGHT].tensors.data[tensor].shape;
    if (shape->known && !agree(real, shape)) {
        char written[256] = "";
        show_sizes(node, written, sizeof written);
        return RULES_FAIL(c, c->text.data, REMEDY_CONFIG,
                          "has shape %s, but the rule says [%s], which is %s by %s",
                          rfs_rules_show(real).text, written, rfs_rules_show(shape).text,
                          rfs_hf_config_name(c->input->config));
    }
    *shape = *real;
    return 0;
}

static int shape_of(struct compiling *c, const struct node *node, struct shape *shape);

/* Adds up concat and groups: the parts agree in all axes but one. */
static int shape_of_parts(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis = 0;
    uint64_t sum = 0;

    *shape = (struct shape){.known = false};
    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        struct shape part;
        int rc = shape_of(c, kid, &part);
        if (rc)
            return rc;
        if (!part.known) {
            sum = ANY_SIZE;
            continue;
        }
        rc = read_axis(c, node->axis, part.ndim, &axis);
        if (rc)
            return rc;
        const uint64_t along = part.dims[axis];
        part.dims[axis] = ANY_SIZE;
        const char *name = leaf_name(c, kid);
        if (along == ANY_SIZE || sum == ANY_SIZE)
            sum = ANY_SIZE;
        else if (!rfs_add_u64(sum, along, &sum))
            return RULES_FAIL(c, name, NULL, "is too large");
        rc = unify(c, name, &part, shape);
        if (rc)
            return rc;
    }
    if (shape->known)
        shape->dims[axis] = sum;
    return 0;
}

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

static int add_axis(struct compiling *c, struct shape *shape, uint32_t axis, uint64_t size)
{
    if (shape->ndim == RFS_MAX_DIMS)
        return RULES_FAIL(c, NULL, NULL, "a tensor would have more than %d axes", RFS_MAX_DIMS);
    insert_axis(shape, axis, size);
    return 0;
}

static int shape_of_stack(struct compiling *c, const struct node *node, struct shape *shape)
{
    struct rfs_rules_known *index = rfs_rules_known(c, node->index);
    uint32_t axis;

    c->follows |= index && index->kind == KNOWN_FAILED;
    if (!index || index->kind != KNOWN_INDEX || index->bound)
        return RULES_FAIL(c, NULL, "index NAME = 0 .. N",
                          index && index->bound ? "index '%s' has a value already"
                                                : "there is no index '%s'",
                          node->index);
    if (rfs_rules_values(index) == 0)
        return RULES_FAIL(c, NULL, NULL, "index '%s' has no value to stack", node->index);
    rfs_rules_bind(index, 0);
    int rc = shape_of(c, node->kids, shape);
    index->bound = false;
    if (rc || !shape->known)
        return rc;
    return read_axis(c, node->axis, shape->ndim + 1, &axis)
               ?: add_axis(c, shape, axis, rfs_rules_values(index));
}

static int shape_of_transpose(struct compiling *c, struct shape *shape)
{
    if (shape->ndim < 2)
        return RULES_FAIL(c, NULL, NULL, "a tensor of %u axes cannot be transposed", shape->ndim);
    const uint64_t last = shape->dims[shape->ndim - 1];
    shape->dims[shape->ndim - 1] = shape->dims[shape->ndim - 2];
    shape->dims[shape->ndim - 2] = last;
    return 0;
}

static int shape_of_join(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    const int rc = read_axis(c, node->axis, shape->ndim - (shape->ndim > 0), &axis);

    if (rc)
        return rc;
    uint64_t *dims = shape->dims;
    if (dims[axis] == ANY_SIZE || dims[axis + 1] == ANY_SIZE)
        dims[axis] = ANY_SIZE;
    else if (!rfs_mul_u64(dims[axis], dims[axis + 1], &dims[axis]))
        return RULES_FAIL(c, NULL, NULL, "a tensor would have more than 2^63 elements");
    remove_axis(shape, axis + 1);
    return 0;
}

static int shape_of_split(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    uint64_t n;
    const int rc = read_axis(c, node->axis, shape->ndim, &axis)
                       ?: rfs_rules_count(c, node->n, "the number of parts", 1, &n);

    if (rc)
        return rc;
    const uint64_t size = shape->dims[axis];
    if (size != ANY_SIZE && size % n != 0)
        return RULES_FAIL(c, leaf_name(c, node), REMEDY_CONFIG,
                          "axis %u of %llu cannot be split in %llu parts", axis,
                          (unsigned long long)size, (unsigned long long)n);
    shape->dims[axis] = size == ANY_SIZE ? ANY_SIZE : size / n;
    return add_axis(c, shape, axis, n);
}

static int shape_of_rows(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    uint64_t parts = 1;
    int rc = read_axis(c, node->axis, shape->ndim, &axis)
                 ?: rfs_rules_count(c, node->n, "the number of rows", 1, &shape->dims[axis]);

    if (rc == 0 && node->parts)
        rc = rfs_rules_count(c, node->parts, "the number of parts", 1, &parts);
    if (rc == 0 && !rfs_mul_u64(shape->dims[axis], parts, &shape->dims[axis]))
        rc = RULES_FAIL(c, leaf_name(c, node), NULL, "has too many rows");
    return rc;
}

/* Gives the shape of a padded tensor: by the rule where it is made, else by the tensor itself. */
static int shape_of_pad(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    uint64_t size;
    int rc = read_axis(c, node->axis, shape->ndim, &axis);

    if (rc)
        return rc;
    if (node != c->statement->right)
        return RULES_FAIL(c, leaf_name(c, node), NULL, "has a pad inside of something else");
    if (c->source == SIDE_LEFT) {
        shape->dims[axis] = ANY_SIZE;
        return 0;
    }
    rc = rfs_rules_count(c, node->n, "the size of a pad", 0, &size);
    if (!rc && shape->dims[axis] > size)
        return RULES_FAIL(
            c, leaf_name(c, node), NULL,
            "has %llu entries along axis %u, more than the %llu that pad makes of them",
            (unsigned long long)shape->dims[axis], axis, (unsigned long long)size);
    shape->dims[axis] = size;
    return rc;
}

/* Gives the shape of an expression, as far as its operands have one. */
static int shape_of(struct compiling *c, const struct node *node, struct shape *shape)
{
    if (node->kind == NODE_TENSOR)
        return leaf_shape(c, node, shape);
    if (node->kind == NODE_CONCAT || node->kind == NODE_GROUPS)
        return shape_of_parts(c, node, shape);
    if (node->kind == NODE_STACK)
        return shape_of_stack(c, node, shape);
    const int rc = shape_of(c, node->kids, shape);
    if (rc || !shape->known)
        return rc;
    switch (node->kind) {
    case NODE_TRANSPOSE:
        return shape_of_transpose(c, shape);
    case NODE_JOIN:
        return shape_of_join(c, node, shape);
    case NODE_SPLIT:
        return shape_of_split(c, node, shape);
    case NODE_ROWS:
        return shape_of_rows(c, node, shape);
    case NODE_PAD:
        return shape_of_pad(c, node, shape);
    default:
        return 0;
    }
}

/* A digit of the link in the making. */
struct digit {
    uint64_t count, step; /* along the axis of the tensor in the making */
    uint64_t leaf_step;
    uint8_t axis, leaf_axis;
};

/* Says where a right tensor lies in the tensor in the making. */
struct rfs_rules_piece {
    uint32_t tensor;
    uint32_t n;
    uint64_t at[RFS_MAX_DIMS];
    uint64_t leaf_at[RFS_MAX_DIMS];
    struct digit digits[RFS_RULES_DIGITS];
    bool casts[2];
    enum rfs_dtype dtypes[2];
    int16_t plus; /* what the left tensor has more */
    bool zeros;   /* the left tensor has zeros there */
};

/* ---- axes of a piece ------------------------------------------------------------------------- */

/*
 * Makes every digit of the axis count either whole blocks of SIZE or entries within one. False when
 * that cannot be done.
 */
static bool divide_digits(struct rfs_rules_piece *piece, uint32_t axis, uint64_t size)
{
    uint64_t last = piece->at[axis] % size; /* within a block */

    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis != axis || digit->step % size == 0)
            continue;
        if (digit->step > size || size % digit->step != 0)
            return false;
        const uint64_t inner = size / digit->step;
        if (digit->count > inner) {
            if (digit->count % inner != 0 || piece->n == RFS_RULES_DIGITS)
                return false;
            piece->digits[piece->n] = *digit;
            piece->digits[piece->n].count = digit->count / inner;
            piece->digits[piece->n].step = size;
            piece->digits[piece->n++].leaf_step = digit->leaf_step * inner;
            digit->count = inner;
        }
        last += (digit->count - 1) * digit->step;
    }
    return last < size;
}

/* Inserts an axis, in which the piece is at AT. */
static void insert_piece_axis(struct rfs_rules_piece *piece, uint32_t axis, uint64_t at)
{
    memmove(&piece->at[axis + 1], &piece->at[axis], (RFS_MAX_DIMS - axis - 1) * sizeof *piece->at);
    piece->at[axis] = at;
    for (uint32_t k = 0; k < piece->n; k++)
        piece->digits[k].axis = (uint8_t)(piece->digits[k].axis + (piece->digits[k].axis >= axis));
}

/* Swaps axis LAST and the one before it. */
static void swap_piece_axes(struct rfs_rules_piece *piece, uint32_t last)
{
    const uint64_t at = piece->at[last];

    piece->at[last] = piece->at[last - 1];
    piece->at[last - 1] = at;
    for (uint32_t k = 0; k < piece->n; k++) {
        uint8_t *axis = &piece->digits[k].axis;
        if (*axis + 1 >= (int)last && *axis <= last)
            *axis = (uint8_t)(*axis == last ? last - 1 : last);
    }
}

/* Joins the axis and the one behind it, of INNER entries. */
static void join_piece_axes(struct rfs_rules_piece *piece, uint32_t axis, uint64_t inner)
{
    piece->at[axis] = piece->at[axis] * inner + piece->at[axis + 1];
    memmove(&piece->at[axis + 1], &piece->at[axis + 2],
            (RFS_MAX_DIMS - axis - 2) * sizeof *piece->at);
    piece->at[RFS_MAX_DIMS - 1] = 0;
    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis == axis)
            digit->step *= inner;
        digit->axis = (uint8_t)(digit->axis - (digit->axis > axis));
    }
}

/* Splits an axis in two, the second of INNER entries. False when that cannot be done. */
static bool split_piece_axis(struct rfs_rules_piece *piece, uint32_t axis, uint64_t inner)
{
    if (!divide_digits(piece, axis, inner))
        return false;
    const uint64_t at = piece->at[axis];
    insert_piece_axis(piece, axis, at / inner); /* the former axis is behind it now */
    piece->at[axis + 1] = at % inner;
    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis == axis + 1 && digit->step % inner == 0) {
            digit->axis = (uint8_t)axis;
            digit->step /= inner;
        }
    }
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Reads the rows that an expression takes of a tensor with NDIM axes. */
static int read_rows(struct compiling *c, const struct node *node, uint32_t ndim,
                     struct rfs_rules_rows *rows)
{
    *rows = (struct rfs_rules_rows){.step = 1, .parts = 1};
    const int rc = read_axis(c, node->axis, ndim, &rows->axis)
                   ?: rfs_rules_count(c, node->first, "the first row", 0, &rows->first)
                   ?: rfs_rules_count(c, node->n, "the number of rows", 1, &rows->count);

    if (rc || (!node->step && !node->parts))
        return rc;
    return node->step ? rfs_rules_count(c, node->step, "the step from row to row", 1, &rows->step)
                      : rfs_rules_count(c, node->parts, "the number of parts", 1, &rows->parts);
}

/* Adds a digit of an axis to a piece that begins, unless it counts one entry. */
static int push_digit(struct compiling *c, struct rfs_rules_piece *piece, struct digit digit)
{
    if (digit.count == 1)
        return 0;
    if (piece->n == RFS_RULES_DIGITS)
        return RULES_FAIL(c, c->text.data, NULL, "has more than %d axes", RFS_RULES_DIGITS);
    piece->digits[piece->n++] = digit;
    return 0;
}

/* Returns the rows that are taken along an axis, or NULL for all of it. */
static const struct rfs_rules_rows *rows_along(const struct rfs_rules_rows *rows, uint32_t n,
                                               uint32_t axis)
{
    for (uint32_t k = 0; k < n; k++)
        if (rows[k].axis == axis)
            return &rows[k];
    return NULL;
}

/* Adds the piece of a right tensor, or of the rows of it along N of its axes. */
static int push_piece(struct compiling *c, uint32_t tensor, const struct shape *shape,
                      const struct rfs_rules_rows *rows, uint32_t n)
{
    struct rfs_rules_piece piece = {.tensor = tensor};

    for (uint32_t a = 0; a < shape->ndim; a++) {
        const struct rfs_rules_rows *some = rows_along(rows, n, a);
        const uint64_t count = some ? some->count : shape->dims[a];
        piece.leaf_at[a] = some ? some->first : 0;
        if (count == 0)
            return 0;
        const uint8_t axis = (uint8_t)a;
        const struct digit parts = {some ? some->parts : 1, count, some ? some->part : 0, axis,
                                    axis};
        const struct digit one = {count, 1, some ? some->step : 1, axis, axis};
        const int rc = push_digit(c, &piece, parts) ?: push_digit(c, &piece, one);
        if (rc)
            return rc;
    }
    if (c->map->links.n + c->pieces.n >= MOST_LINKS)
        return RULES_FAIL(c, c->text.data, NULL, "is one of more than %zu parts of tensors",
                          MOST_LINKS);
    return RFS_PUSH(&c->pieces, piece) ? 0 : rfs_fail_memory(c->err);
}

/*
 * Adds the piece of a right tensor, or of the rows of it along N of its axes. WANT is its whole
 * shape, as far as it is known.
 */
static int pieces_of_tensor(struct compiling *c, const struct node *node, const struct shape *want,
                            const struct rfs_rules_rows *rows, uint32_t n)
{
    struct shape shape;
    uint32_t tensor;

    int rc = shape_of(c, node, &shape)
             ?: read_leaf(c, node, &tensor)
             ?: unify(c, c->text.data, want, &shape);
    if (rc)
        return rc;
    for (uint32_t a = 0; a < shape.ndim; a++)
        if (shape.dims[a] == ANY_SIZE)
            return RULES_FAIL(c, c->text.data, "a number in place of _",
                              "has a size that neither the rule nor the other tensors give");
    struct side_tensor *right = &c->sides[SIDE_RIGHT].tensors.data[tensor];
    if (c->source != SIDE_RIGHT) {
        rc = unify(c, c->text.data, right->shape, &shape);
        if (rc)
            return rc;
        right->shape = rfs_rules_keep_shape(c, &shape);
        if (!right->shape)
            return rfs_fail_memory(c->err);
    }
    rc = n > 0 ? rfs_rules_take_rows(c, SIDE_RIGHT, tensor, rows, n)
               : rfs_rules_take_all(c, SIDE_RIGHT, tensor);
    return rc ? rc : push_piece(c, tensor, &shape, rows, n);
}

/*
 * Checks the rows that are taken of a tensor along an axis of SIZE entries (ANY_SIZE: not known),
 * and completes them.
 */
static int check_rows(struct compiling *c, const struct node *node, uint64_t size,
                      struct rfs_rules_rows *rows)
{
    uint64_t last;

    if (rows->parts > 1 && (size == ANY_SIZE || size % rows->parts != 0))
        return RULES_FAIL(c, leaf_name(c, node), REMEDY_CONFIG,
                          "has an axis that the rule cannot cut in %llu equal parts",
                          (unsigned long long)rows->parts);
    rows->part = rows->parts > 1 ? size / rows->parts : 0;
    if (size != ANY_SIZE && (!rfs_mul_u64(rows->count - 1, rows->step, &last) ||
                             !rfs_add_u64(last, rows->first, &last) || last >= size / rows->parts))
        return RULES_FAIL(c, leaf_name(c, node), NULL, "has %llu rows, fewer than the rule takes",
                          (unsigned long long)(size / rows->parts));
    return 0;
}

/* Adds the piece of rows of a tensor, or of rows of rows of it along other axes. */
static int pieces_of_rows(struct compiling *c, const struct node *node, const struct shape *want)
{
    struct rfs_rules_rows rows[RFS_MAX_DIMS];
    struct shape whole = *want;
    struct shape real;
    const struct node *leaf = node;
    uint32_t n = 0;

    while (leaf->kind == NODE_ROWS)
        leaf = leaf->kids;
    if (leaf->kind != NODE_TENSOR)
        return RULES_FAIL(c, NULL, "rows(…, NAME)", "takes rows of something that is not a tensor");
    int rc = shape_of(c, leaf, &real);
    for (const struct node *of = node; rc == 0 && of != leaf; of = of->kids) {
        struct rfs_rules_rows some;
        rc = read_rows(c, of, want->ndim, &some);
        if (rc)
            return rc;
        if (rows_along(rows, n, some.axis))
            return RULES_FAIL(c, leaf_name(c, leaf), NULL, "has rows of rows along axis %u taken",
                              some.axis);
        whole.dims[some.axis] = real.known ? real.dims[some.axis] : ANY_SIZE;
        rc = check_rows(c, leaf, whole.dims[some.axis], &some);
        rows[n++] = some; /* no axis twice, so there is room */
    }
    return rc ? rc : pieces_of_tensor(c, leaf, &whole, rows, n);
}

/* Gives the first factor of a number, as it is written; 0 for none. */
static int factor_of(struct compiling *c, const struct number *number, uint64_t *factor)
{
    while (number && number->kind == NUMBER_MULTIPLY)
        number = number->a;
    return number ? rfs_rules_count(c, number, "the first factor", 0, factor) : 0;
}

/* Gives the first factor of a tensor's size along the axis, or of the number of its rows. */
static int first_factor(struct compiling *c, const struct node *node, uint32_t ndim, uint32_t axis,
                        uint64_t *factor)
{
    uint32_t cut = 0;

    while (node->kind == NODE_CAST || node->kind == NODE_PLUS)
        node = node->kids;
    *factor = 0;
    for (; node->kind == NODE_ROWS; node = node->kids) {
        const int rc = read_axis(c, node->axis, ndim, &cut);
        if (rc || cut == axis)
            return rc ?: factor_of(c, node->parts ?: node->n, factor);
    }
    const struct size *size = node->kind == NODE_TENSOR ? node->sizes : NULL;
    while (size && axis-- > 0)
        size = size->next;
    return size ? factor_of(c, size->number, factor) : 0;
}

/* Checks the number of groups: they are cut at the first factor of sizes. */
static int check_groups(struct compiling *c, const struct node *node, uint32_t ndim, uint32_t axis,
                        uint64_t n)
{
    bool any = false;
    bool all = true;
    uint64_t factor;

    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        const int rc = first_factor(c, kid, ndim, axis, &factor);
        if (rc)
            return rc;
        if (factor % n != 0)
            return RULES_FAIL(c, leaf_name(c, kid), NULL,
                              "is cut in %llu groups, which do not divide the first factor of "
                              "its size, %llu",
                              (unsigned long long)n, (unsigned long long)factor);
        any |= factor == n;
        all &= factor > 0;
    }
    if (all && !any)
        return RULES_FAIL(c, leaf_name(c, node), NULL,
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

    int rc = shape_of(c, of, part);
    if (rc)
        return rc;
    struct shape others = *want;
    others.dims[axis] = ANY_SIZE;
    rc = unify(c, leaf_name(c, of), &others, part);
    if (rc || part->dims[axis] != ANY_SIZE)
        return rc;
    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        struct shape other;
        if (kid == of)
            continue;
        rc = shape_of(c, kid, &other);
        if (rc)
            return rc;
        if (!other.known || other.dims[axis] == ANY_SIZE || other.dims[axis] > left)
            return RULES_FAIL(c, leaf_name(c, of),
                              "the sizes of all parts but one, as in NAME [heads * head, _]",
                              "has a size that neither the rule nor the other tensors give");
        left -= other.dims[axis];
    }
    part->dims[axis] = left;
    return 0;
}

static int fail_cut(struct compiling *c, const struct node *node)
{
    return RULES_FAIL(c, leaf_name(c, node), NULL, "is cut inside of one of its parts");
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
        struct rfs_rules_piece *piece = &c->pieces.data[i];
        if (!divide_digits(piece, axis, size))
            return fail_cut(c, kid);
        for (uint32_t k = 0; k < piece->n; k++)
            if (piece->digits[k].axis == axis && piece->digits[k].step % size == 0)
                piece->digits[k].step = piece->digits[k].step / size * stride;
        piece->at[axis] = piece->at[axis] / size * stride + base + piece->at[axis] % size;
    }
    return 0;
}

static int pieces_of(struct compiling *c, const struct node *node, const struct shape *want);

static int pieces_of_parts(struct compiling *c, const struct node *node, const struct shape *want)
{
    uint32_t axis;
    uint64_t n = 1;
    uint64_t sum = 0;
    int rc = read_axis(c, node->axis, want->ndim, &axis);

    if (!rc && node->kind == NODE_GROUPS)
        rc = rfs_rules_count(c, node->n, "the number of groups", 1, &n);
    if (!rc && node->kind == NODE_GROUPS)
        rc = check_groups(c, node, want->ndim, axis, n);
    for (const struct node *kid = node->kids; kid && !rc; kid = kid->next) {
        const size_t first = c->pieces.n;
        struct shape part;
        rc = complete_part(c, node, kid, axis, want, &part);
        if (rc)
            return rc;
        const uint64_t size = part.dims[axis];
        if (size % n != 0)
            return RULES_FAIL(c, leaf_name(c, kid), NULL,
                              "has %llu entries along axis %u, which cannot be cut in %llu "
                              "groups",
                              (unsigned long long)size, axis, (unsigned long long)n);
        rc = pieces_of(c, kid, &part);
        if (!rc && n == 1)
            shift(c, first, axis, sum);
        else if (!rc && size > 0)
            rc = spread(c, kid, first, axis, size / n, sum, want->dims[axis] / n);
        if (!rc && !rfs_add_u64(sum, size / n, &sum))
            return -EINVAL;
    }
    if (!rc && sum * n != want->dims[axis])
        return RULES_FAIL(c, leaf_name(c, node), REMEDY_CONFIG,
                          "and its other parts have %llu entries along axis %u, not %llu",
                          (unsigned long long)(sum * n), axis,
                          (unsigned long long)want->dims[axis]);
    return rc;
}

static int pieces_of_stack(struct compiling *c, const struct node *node, const struct shape *want)
{
    struct rfs_rules_known *index = rfs_rules_known(c, node->index); /* shape_of has found it */
    struct shape inner = *want;
    uint32_t axis;
    int rc =
        read_axis(c, node->axis, want->ndim, &axis) ?: rfs_rules_room(c, rfs_rules_values(index));

    if (rc)
        return rc;
    remove_axis(&inner, axis);
    for (uint64_t at = 0; !rc && at < rfs_rules_values(index); at++) {
        const size_t first = c->pieces.n;
        rfs_rules_bind(index, at);
        rc = pieces_of(c, node->kids, &inner);
        for (size_t i = first; i < c->pieces.n; i++)
            insert_piece_axis(&c->pieces.data[i], axis, at);
    }
    index->bound = false;
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
    const int rc = pieces_of(c, node->kids, &inner);
    for (size_t i = first; i < c->pieces.n; i++)
        swap_piece_axes(&c->pieces.data[i], last);
    return rc;
}

static int pieces_of_join(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    struct shape inner;
    uint32_t axis;
    int rc = read_axis(c, node->axis, want->ndim, &axis) ?: shape_of(c, node->kids, &inner);

    if (rc)
        return rc;
    if (!inner.known || (inner.dims[axis] == ANY_SIZE && inner.dims[axis + 1] == ANY_SIZE))
        return RULES_FAIL(c, leaf_name(c, node), "a number in place of _",
                          "has a size that neither the rule nor the other tensors give");
    const uint32_t given = inner.dims[axis] == ANY_SIZE ? axis + 1 : axis;
    const uint64_t size = inner.dims[given];
    struct shape whole = *want;
    if (size == 0 || whole.dims[axis] % size != 0)
        return RULES_FAIL(c, leaf_name(c, node), REMEDY_CONFIG,
                          "is joined to %llu entries, which are not a multiple of %llu",
                          (unsigned long long)whole.dims[axis], (unsigned long long)size);
    const uint64_t other = whole.dims[axis] / size;
    insert_axis(&whole, axis, given == axis ? size : other);
    whole.dims[axis + 1] = given == axis ? other : size;
    rc = pieces_of(c, node->kids, &whole);
    for (size_t i = first; i < c->pieces.n; i++)
        join_piece_axes(&c->pieces.data[i], axis, whole.dims[axis + 1]);
    return rc;
}

static int pieces_of_split(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    struct shape whole = *want;
    uint32_t axis;
    int rc = read_axis(c, node->axis, want->ndim - 1, &axis);

    if (rc)
        return rc;
    const uint64_t inner = want->dims[axis + 1];
    remove_axis(&whole, axis + 1);
    if (!rfs_mul_u64(want->dims[axis], inner, &whole.dims[axis]))
        return RULES_FAIL(c, NULL, NULL, "a tensor would have more than 2^63 elements");
    rc = pieces_of(c, node->kids, &whole);
    for (size_t i = first; !rc && i < c->pieces.n; i++)
        if (!split_piece_axis(&c->pieces.data[i], axis, inner))
            rc = fail_cut(c, node);
    return rc;
}

static int pieces_of_cast(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    const int rc = pieces_of(c, node->kids, want);

    for (size_t i = first; !rc && i < c->pieces.n; i++) {
        struct rfs_rules_piece *piece = &c->pieces.data[i];
        if (piece->casts[0] || piece->casts[1])
            return RULES_FAIL(c, leaf_name(c, node), NULL, "has a cast inside of a cast");
        memcpy(piece->casts, node->casts, sizeof piece->casts);
        memcpy(piece->dtypes, node->dtypes, sizeof piece->dtypes);
    }
    return rc;
}

#define MOST_PLUS 256 /* every whole number up to this is one of bfloat16 */

static int pieces_of_plus(struct compiling *c, const struct node *node, const struct shape *want)
{
    const size_t first = c->pieces.n;
    int64_t plus;
    int rc = rfs_rules_number(c, node->n, &plus);

    if (!rc && (plus < -MOST_PLUS || plus > MOST_PLUS))
        return RULES_FAIL(c, leaf_name(c, node), NULL,
                          "has %lld added, not a number from -%d to %d", (long long)plus, MOST_PLUS,
                          MOST_PLUS);
    rc = rc ?: pieces_of(c, node->kids, want);
    for (size_t i = first; !rc && i < c->pieces.n; i++) {
        if (c->pieces.data[i].plus != 0)
            return RULES_FAIL(c, leaf_name(c, node), NULL, "has a plus inside of a plus");
        c->pieces.data[i].plus = (int16_t)plus;
    }
    return rc;
}

/* Adds the piece of the zeros that fill SHAPE, from entry AT of the axis on. */
static int push_zeros(struct compiling *c, const struct shape *shape, uint32_t axis, uint64_t at)
{
    const struct rfs_rules_piece like = c->pieces.data[0];
    const size_t n = c->pieces.n;
    const int rc = push_piece(c, like.tensor, shape, NULL, 0);

    if (rc || c->pieces.n == n)
        return rc;
    struct rfs_rules_piece *piece = &c->pieces.data[n];
    piece->zeros = true;
    piece->at[axis] = at;
    memcpy(piece->casts, like.casts, sizeof piece->casts);
    memcpy(piece->dtypes, like.dtypes, sizeof piece->dtypes);
    for (uint32_t k = 0; k < piece->n; k++) {
        piece->digits[k].leaf_axis = 0;
        piece->digits[k].leaf_step = 0;
    }
    return 0;
}

static int pieces_of_pad(struct compiling *c, const struct node *node, const struct shape *want)
{
    struct shape inner = *want;
    struct shape real;
    uint32_t axis;
    int rc = read_axis(c, node->axis, want->ndim, &axis) ?: shape_of(c, node->kids, &real);

    if (rc)
        return rc;
    if (!real.known || real.ndim != want->ndim || real.dims[axis] == ANY_SIZE)
        return RULES_FAIL(c, leaf_name(c, node), "a number in place of _",
                          "has a size that neither the rule nor the other tensors give");
    if (real.dims[axis] > want->dims[axis])
        return RULES_FAIL(c, leaf_name(c, node), REMEDY_CONFIG,
                          "is padded to %llu entries along axis %u, and has %llu by itself",
                          (unsigned long long)want->dims[axis], axis,
                          (unsigned long long)real.dims[axis]);
    inner.dims[axis] = real.dims[axis];
    rc = pieces_of(c, node->kids, &inner);
    if (rc || c->source == SIDE_LEFT)
        return rc; /* what is behind it is left out */
    if (c->pieces.n == 0)
        return RULES_FAIL(c, leaf_name(c, node), NULL, "has no entries that could be padded");
    inner.dims[axis] = want->dims[axis] - real.dims[axis];
    return push_zeros(c, &inner, axis, real.dims[axis]);
}

/* Adds the pieces of an expression of that shape, which is complete. */
static int pieces_of(struct compiling *c, const struct node *node, const struct shape *want)
{
    switch (node->kind) {
    case NODE_TENSOR:
        return pieces_of_tensor(c, node, want, NULL, 0);
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
    case NODE_PLUS:
        return pieces_of_plus(c, node, want);
    case NODE_PAD:
        return pieces_of_pad(c, node, want);
    default:
        return pieces_of_cast(c, node, want);
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

RFS_COMPARE(by_step, struct rfs_rules_digit, x, y,
            RFS_ORDER(x->axis[RFS_MADE], y->axis[RFS_MADE])
                ?: RFS_ORDER(y->step[RFS_MADE], x->step[RFS_MADE]))

/*
 * Finds where a list of SIZE bytes begins. *FRESH: it is a new one, which is to begin at END.
 * -ENOMEM is the only failure.
 */
static int find_list(struct lists *lists, const void *list, size_t size, size_t end, bool *fresh,
                     size_t *first)
{
    const uint32_t id = rfs_intern_add(lists->known, list, size);

    *fresh = id == lists->first.n;
    if (id == RFS_NO_ID || (*fresh && !RFS_PUSH(&lists->first, end)))
        return -ENOMEM;
    *first = lists->first.data[id];
    return 0;
}

static int push_ats(struct compiling *c, const uint64_t *at, uint32_t n, size_t *first)
{
    struct rfs_rules_map *map = c->map;
    uint64_t list[RFS_MAX_DIMS + 1] = {0}; /* a tensor without axes has an at, too */
    bool fresh;

    memcpy(list, at, n * sizeof *at);
    int rc = find_list(&c->ats, list, (n + 1) * sizeof *list, map->ats.n, &fresh, first);
    for (uint32_t a = 0; a <= n && rc == 0 && fresh; a++)
        rc = RFS_PUSH(&map->ats, list[a]) ? 0 : -ENOMEM;
    return rc;
}

static int push_digits(struct compiling *c, const struct rfs_rules_digit *digits, uint32_t n,
                       uint32_t *first)
{
    struct rfs_rules_map *map = c->map;
    size_t at;
    bool fresh;

    int rc = find_list(&c->digits, digits, n * sizeof *digits, map->digits.n, &fresh, &at);
    if (rc == 0)
        *first = (uint32_t)at;
    for (uint32_t k = 0; k < n && rc == 0 && fresh; k++)
        rc = RFS_PUSH(&map->digits, digits[k]) ? 0 : -ENOMEM;
    return rc;
}

/* Gives the digits and the position of a piece in its left tensor, or in ROWS of that (or NULL). */
static void locate_left(const struct rfs_rules_piece *piece, const struct rfs_rules_rows *rows,
                        uint64_t *at, uint64_t *steps)
{
    memcpy(at, piece->at, sizeof piece->at);
    if (rows)
        at[rows->axis] = rows->first + at[rows->axis] * rows->step;
    for (uint32_t k = 0; k < piece->n; k++)
        steps[k] =
            piece->digits[k].step * (rows && piece->digits[k].axis == rows->axis ? rows->step : 1);
}

static int link_piece(struct compiling *c, uint32_t left, const struct rfs_rules_rows *rows,
                      const struct rfs_rules_piece *piece)
{
    struct rfs_rules_map *map = c->map;
    const int of_left = c->source == SIDE_LEFT ? RFS_SOURCE : RFS_MADE;
    const int of_right = !of_left;
    struct rfs_rules_link link = {.n = piece->n};
    struct rfs_rules_digit digits[RFS_RULES_DIGITS];
    uint64_t at[RFS_MAX_DIMS];
    uint64_t steps[RFS_RULES_DIGITS];

    locate_left(piece, rows, at, steps);
    memset(digits, 0, sizeof digits); /* with the bytes behind members: lists are compared */
    link.made = of_left == RFS_MADE ? left : piece->tensor;
    link.source = of_left == RFS_MADE ? piece->tensor : left;
    link.zeros = piece->zeros;
    link.plus = (int16_t)(of_left == RFS_MADE ? piece->plus : -piece->plus);
    for (uint32_t k = 0; k < piece->n; k++) {
        const struct digit *digit = &piece->digits[k];
        digits[k].count = digit->count;
        digits[k].step[of_left] = steps[k];
        digits[k].axis[of_left] = digit->axis;
        digits[k].step[of_right] = digit->leaf_step;
        digits[k].axis[of_right] = digit->leaf_axis;
    }
    RFS_SORT(digits, piece->n, by_step);
    const uint32_t left_ndim = c->sides[SIDE_LEFT].tensors.data[left].shape->ndim;
    const uint32_t right_ndim = c->sides[SIDE_RIGHT].tensors.data[piece->tensor].shape->ndim;
    if (push_digits(c, digits, piece->n, &link.digits) ||
        push_ats(c, at, left_ndim, &link.at[of_left]) ||
        push_ats(c, piece->leaf_at, right_ndim, &link.at[of_right]) || !RFS_PUSH(&map->links, link))
        return rfs_fail_memory(c->err);
    return 0;
}

/* Sets the dtypes of a made tensor, by a piece of it that comes from SOURCE. */
static int set_dtypes(struct compiling *c, uint32_t made, uint32_t source,
                      const struct rfs_rules_piece *piece)
{
    const int side = !c->source;
    struct side_tensor *to = &c->sides[side].tensors.data[made];
    const struct side_tensor *from = &c->sides[c->source].tensors.data[source];
    const enum rfs_dtype dtype = (enum rfs_dtype)from->dtype;
    const uint8_t shown = piece->casts[side] ? (uint8_t)piece->dtypes[side] : from->dtype;
    const char *name = rfs_rules_tensor_name(c, side, made);

    if (shown != from->dtype && !rfs_dtype_is_float(dtype))
        return RULES_FAIL(c, rfs_rules_tensor_name(c, c->source, source), NULL,
                          "has dtype %s, and cast converts floating-point numbers only",
                          rfs_dtype_name(dtype));
    if (piece->plus != 0 && !rfs_dtype_is_float_target(dtype))
        return RULES_FAIL(c, rfs_rules_tensor_name(c, c->source, source), NULL,
                          "has dtype %s, and plus is for float16, bfloat16, float32 and float64",
                          rfs_dtype_name(dtype));
    if (to->there && (to->dtype != from->dtype || to->kind != shown))
        return RULES_FAIL(c, name, "one dtype for all of its parts",
                          "is made of parts of %s and %s",
                          rfs_dtype_name((enum rfs_dtype)to->dtype), rfs_dtype_name(dtype));
    to->there = true;
    to->dtype = from->dtype;
    to->kind = shown; /* all made values are tensors */
    return 0;
}

/* Links the left tensor by the pieces of the present rule. */
static int link_rule(struct compiling *c, uint32_t left, const struct rfs_rules_rows *rows,
                     const struct shape *shape)
{
    struct side_tensor *of = &c->sides[SIDE_LEFT].tensors.data[left];
    int rc = 0;

    if (c->source == SIDE_RIGHT)
        of->shape = rfs_rules_keep_shape(c, shape);
    if (!of->shape)
        return rfs_fail_memory(c->err);
    for (size_t i = 0; i < c->pieces.n && rc == 0; i++) {
        const struct rfs_rules_piece *piece = &c->pieces.data[i];
        rc = (c->source == SIDE_RIGHT ? set_dtypes(c, left, piece->tensor, piece)
                                      : set_dtypes(c, piece->tensor, left, piece))
                 ?: link_piece(c, left, rows, piece);
    }
    return rc;
}

int rfs_rules_link_same(struct compiling *c, uint32_t source, const char *name)
{
    const int side = !c->source;
    const uint32_t made = rfs_rules_tensor_add(c, side, name);
    struct rfs_rules_piece piece = {.n = 0};

    if (made == NO_TENSOR)
        return c->err->code;
    const int rc = rfs_rules_take_all(c, side, made) ?: set_dtypes(c, made, source, &piece);
    if (rc)
        return rc;
    const struct side_tensor *from = &c->sides[c->source].tensors.data[source];
    c->sides[side].tensors.data[made].shape = from->shape;
    for (uint32_t a = 0; a < from->shape->ndim; a++) {
        const uint64_t count = from->shape->dims[a];
        if (count == 0)
            return 0;
        if (piece.n == RFS_RULES_DIGITS)
            return RULES_FAIL(c, name, NULL, "has more than %d axes", RFS_RULES_DIGITS);
        piece.digits[piece.n++] = (struct digit){count, 1, 1, (uint8_t)a, (uint8_t)a};
    }
    piece.tensor = c->source == SIDE_RIGHT ? source : made;
    return link_piece(c, c->source == SIDE_RIGHT ? made : source, NULL, &piece);
}

/* ---- a rule ---------------------------------------------------------------------------------- */

/*
 * Finds the shape that an expression makes. A tensor of the source may have the axes that the rule
 * joins or splits in the end: its elements are in the same order.
 */
static int find_shape(struct compiling *c, const struct node **right, uint32_t ndim,
                      struct shape *shape)
{
    int rc = shape_of(c, *right, shape);

    while (rc == 0 && shape->known &&
           (((*right)->kind == NODE_JOIN && ndim > shape->ndim) ||
            ((*right)->kind == NODE_SPLIT && ndim < shape->ndim))) {
        *right = (*right)->kids;
        rc = shape_of(c, *right, shape);
    }
    return rc;
}

/* Links from the left: its tensor is of the source and has the shape that the rule makes. */
static int make_from_left(struct compiling *c, const struct node *left, const struct node *leaf)
{
    const struct node *right = c->statement->right;
    const bool some = left != leaf;
    struct rfs_rules_rows rows;
    struct shape shape;
    uint32_t tensor;

    int rc = spell_tensor(c, leaf, SIDE_LEFT) ?: rfs_rules_need(c, c->text.data, &tensor);
    if (rc)
        return rc;
    const char *name = rfs_rules_tensor_name(c, SIDE_LEFT, tensor);
    struct side_tensor *of = &c->sides[SIDE_LEFT].tensors.data[tensor];
    struct shape want = *of->shape;
    rc = read_annotation(c, leaf, &shape) ?: unify(c, name, &want, &shape);
    if (!rc && some && left->kids != leaf)
        rc = RULES_FAIL(c, name, NULL, "takes rows of rows");
    if (!rc && some) {
        of->loose = true;
        rc = read_rows(c, left, want.ndim, &rows);
    }
    if (rc)
        return rc;
    if (some)
        want.dims[rows.axis] = rows.count;
    rc = some ? rfs_rules_take_rows(c, SIDE_LEFT, tensor, &rows, 1)
              : rfs_rules_take_all(c, SIDE_LEFT, tensor);
    return rc ?: find_shape(c, &right, want.ndim, &shape)
              ?: unify(c, name, &want, &shape)
              ?: pieces_of(c, right, &shape)
              ?: link_rule(c, tensor, some ? &rows : NULL, &want);
}

/* Links from the right: its tensors are of the source. */
static int make_from_right(struct compiling *c, const struct node *left)
{
    struct shape shape;
    struct shape annotated;

    if (left->kind == NODE_ROWS)
        return RULES_FAIL(c, leaf_name(c, left), "the other direction",
                          "is made of rows alone: this rule cannot be inverted");
    const int rc = shape_of(c, c->statement->right, &shape)
                   ?: read_annotation(c, left, &annotated)
                   ?: rfs_rules_spell(c, left->name);
    if (rc)
        return rc;
    const uint32_t tensor = rfs_rules_tensor_add(c, SIDE_LEFT, c->text.data);
    if (tensor == NO_TENSOR)
        return c->err->code;
    return unify(c, rfs_rules_tensor_name(c, SIDE_LEFT, tensor), &annotated, &shape)
           ?: rfs_rules_take_all(c, SIDE_LEFT, tensor)
           ?: pieces_of(c, c->statement->right, &shape)
           ?: link_rule(c, tensor, NULL, &shape);
}

int rfs_rules_make(struct compiling *c)
{
    const struct node *left = c->statement->left;
    const struct node *tensor = rfs_rules_left_tensor(left);
    struct turns turns;
    int rc = rfs_rules_turns_begin(c, tensor->name, &turns);

    while (rc == 0 && rfs_rules_turns_next(&turns)) {
        c->pieces.n = 0;
        rc = c->source == SIDE_LEFT ? make_from_left(c, left, tensor) : make_from_right(c, left);
    }
    rfs_rules_turns_end(&turns);
    return rc;
}
