/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes. Where the right side is the source, all are known from its tensors; else they come from
 * the left tensor and from the sizes in the rules.
 */
#include "rules/compile_internal.h"

#include "base/checked.h"

/* The characters of a right-hand side that a message shows. */
#define MOST_SHOWN 400
#define REMEDY_CONFIG "the config.json that belongs to these tensors"

struct shape_text rfs_rules_show(const struct shape *shape)
{
    struct shape_text out;
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

int rfs_rules_unify(struct compiling *c, const char *name, const struct shape *want,
                    struct shape *shape)
{
    if (!want->known)
        return 0;
    if (shape->known && !agree(want, shape)) {
        const char *rule = c->statement->text;
        return CONVERT_FAIL(c, name, REMEDY_CONFIG, "has shape %s, but the rule makes %s: %.*s%s",
                            rfs_rules_show(want).text, rfs_rules_show(shape).text, MOST_SHOWN, rule,
                            strlen(rule) > MOST_SHOWN ? "…" : "");
    }
    if (!shape->known)
        *shape = *want;
    for (uint32_t i = 0; i < shape->ndim; i++)
        shape->dims[i] = shape->dims[i] == ANY_SIZE ? want->dims[i] : shape->dims[i];
    return 0;
}

int rfs_rules_axis(struct compiling *c, const struct number *number, uint32_t ndim, uint32_t *axis)
{
    int64_t value;
    const int rc = rfs_rules_number(c, number, &value);

    if (!rc && (value >= (int64_t)ndim || value < -(int64_t)ndim))
        return CONVERT_FAIL(c, NULL, NULL, "there is no axis %lld of %u", (long long)value, ndim);
    *axis = (uint32_t)(value < 0 ? value + (int64_t)ndim : value);
    return rc;
}

const char *rfs_rules_leaf_name(struct compiling *c, const struct node *node)
{
    while (node->kids)
        node = node->kids;
    return rfs_rules_spell(c, node->name) ? "" : c->text.data;
}

int rfs_rules_annotated(struct compiling *c, const struct node *node, struct shape *shape)
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

/* The sizes as they are written, for a message. */
static void show_sizes(const struct node *node, char *out, size_t cap)
{
    size_t n = 0;

    for (const struct size *size = node->sizes; size && n < cap; size = size->next)
        n +=
            (size_t)snprintf(out + n, cap - n, "%s%s", size == node->sizes ? "" : ", ", size->text);
}

int rfs_rules_leaf(struct compiling *c, const struct node *node, uint32_t *tensor)
{
    int rc = rfs_rules_spell(c, node->name);

    if (rc)
        return rc;
    if (c->source == SIDE_RIGHT)
        return rfs_rules_need(c, c->text.data, tensor);
    *tensor = rfs_rules_tensor_add(c, SIDE_RIGHT, c->text.data);
    return *tensor == NO_TENSOR ? -EINVAL : 0;
}

static int leaf_shape(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t tensor;
    int rc = rfs_rules_annotated(c, node, shape);

    if (rc || c->source != SIDE_RIGHT)
        return rc;
    rc = rfs_rules_leaf(c, node, &tensor);
    if (rc)
        return rc;
    const struct shape *real = &c->sides[SIDE_RIGHT].tensors.data[tensor].shape;
    if (shape->known && !agree(real, shape)) {
        char written[256] = "";
        show_sizes(node, written, sizeof written);
        return CONVERT_FAIL(c, c->text.data, REMEDY_CONFIG,
                            "has shape %s, but the rule says [%s], which is %s by %s",
                            rfs_rules_show(real).text, written, rfs_rules_show(shape).text,
                            rfs_hf_config_name(c->input->config));
    }
    *shape = *real;
    return 0;
}

/* concat and groups: the parts agree in all axes but one, in which they add up. */
static int shape_of_parts(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis = 0;
    uint64_t sum = 0;

    *shape = (struct shape){.known = false};
    for (const struct node *kid = node->kids; kid; kid = kid->next) {
        struct shape part;
        int rc = rfs_rules_shape(c, kid, &part);
        if (rc)
            return rc;
        if (!part.known) {
            sum = ANY_SIZE;
            continue;
        }
        rc = rfs_rules_axis(c, node->axis, part.ndim, &axis);
        if (rc)
            return rc;
        const uint64_t along = part.dims[axis];
        part.dims[axis] = ANY_SIZE;
        const char *name = rfs_rules_leaf_name(c, kid);
        if (along == ANY_SIZE || sum == ANY_SIZE)
            sum = ANY_SIZE;
        else if (!rfs_add_u64(sum, along, &sum))
            return CONVERT_FAIL(c, name, NULL, "is too large");
        rc = rfs_rules_unify(c, name, &part, shape);
        if (rc)
            return rc;
    }
    if (shape->known)
        shape->dims[axis] = sum;
    return 0;
}

static int insert_axis(struct compiling *c, struct shape *shape, uint32_t axis, uint64_t size)
{
    if (shape->ndim == RFS_MAX_DIMS)
        return CONVERT_FAIL(c, NULL, NULL, "a tensor would have more than %d axes", RFS_MAX_DIMS);
    memmove(&shape->dims[axis + 1], &shape->dims[axis], (shape->ndim - axis) * sizeof *shape->dims);
    shape->dims[axis] = size;
    shape->ndim++;
    return 0;
}

static int shape_of_stack(struct compiling *c, const struct node *node, struct shape *shape)
{
    struct known *index = rfs_rules_known(c, node->index);
    uint32_t axis;

    if (!index || index->kind != KNOWN_INDEX || index->bound)
        return CONVERT_FAIL(c, NULL, "index NAME = 0 .. N",
                            index && index->bound ? "index '%s' has a value already"
                                                  : "there is no index '%s'",
                            node->index);
    if (index->from >= index->to)
        return CONVERT_FAIL(c, NULL, NULL, "index '%s' has no value to stack", node->index);
    index->bound = true;
    index->value = index->from;
    int rc = rfs_rules_shape(c, node->kids, shape);
    index->bound = false;
    if (rc || !shape->known)
        return rc;
    rc = rfs_rules_axis(c, node->axis, shape->ndim + 1, &axis);
    return rc ? rc : insert_axis(c, shape, axis, (uint64_t)(index->to - index->from));
}

static int shape_of_transpose(struct compiling *c, struct shape *shape)
{
    if (shape->ndim < 2)
        return CONVERT_FAIL(c, NULL, NULL, "a tensor of %u axes cannot be transposed", shape->ndim);
    const uint64_t last = shape->dims[shape->ndim - 1];
    shape->dims[shape->ndim - 1] = shape->dims[shape->ndim - 2];
    shape->dims[shape->ndim - 2] = last;
    return 0;
}

static int shape_of_join(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    const int rc = rfs_rules_axis(c, node->axis, shape->ndim - (shape->ndim > 0), &axis);

    if (rc)
        return rc;
    uint64_t *dims = shape->dims;
    if (dims[axis] == ANY_SIZE || dims[axis + 1] == ANY_SIZE)
        dims[axis] = ANY_SIZE;
    else if (!rfs_mul_u64(dims[axis], dims[axis + 1], &dims[axis]))
        return CONVERT_FAIL(c, NULL, NULL, "a tensor would have more than 2^63 elements");
    memmove(&dims[axis + 1], &dims[axis + 2], (shape->ndim - axis - 2) * sizeof *dims);
    shape->dims[--shape->ndim] = 0;
    return 0;
}

static int shape_of_split(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    uint64_t n;
    int rc = rfs_rules_axis(c, node->axis, shape->ndim, &axis);

    if (!rc)
        rc = rfs_rules_count(c, node->n, "the number of parts", 1, &n);
    if (rc)
        return rc;
    const uint64_t size = shape->dims[axis];
    if (size != ANY_SIZE && size % n != 0)
        return CONVERT_FAIL(c, rfs_rules_leaf_name(c, node), REMEDY_CONFIG,
                            "axis %u of %llu cannot be split in %llu parts", axis,
                            (unsigned long long)size, (unsigned long long)n);
    shape->dims[axis] = size == ANY_SIZE ? ANY_SIZE : size / n;
    return insert_axis(c, shape, axis, n);
}

static int shape_of_rows(struct compiling *c, const struct node *node, struct shape *shape)
{
    uint32_t axis;
    const int rc = rfs_rules_axis(c, node->axis, shape->ndim, &axis);

    return rc ? rc : rfs_rules_count(c, node->n, "the number of rows", 1, &shape->dims[axis]);
}

int rfs_rules_shape(struct compiling *c, const struct node *node, struct shape *shape)
{
    if (node->kind == NODE_TENSOR)
        return leaf_shape(c, node, shape);
    if (node->kind == NODE_CONCAT || node->kind == NODE_GROUPS)
        return shape_of_parts(c, node, shape);
    if (node->kind == NODE_STACK)
        return shape_of_stack(c, node, shape);
    const int rc = rfs_rules_shape(c, node->kids, shape);
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
    default:
        return 0;
    }
}
