/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of both sides, and the rules that use them: each once, and all of it. */
#include "rules/compile_internal.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "quant/quant.h"

#define MOST_ROWS (UINT64_C(1) << 26) /* entries of an axis that rules take rows from, at most */

const struct shape *rfs_rules_keep_shape(struct compiling *c, const struct shape *shape)
{
    struct shape kept;

    memset(&kept, 0, sizeof kept); /* with the bytes between members */
    kept.known = shape->known;
    kept.ndim = shape->ndim;
    memcpy(kept.dims, shape->dims, shape->ndim * sizeof *shape->dims);
    return rfs_intern_bytes(c->shapes, rfs_intern_add(c->shapes, &kept, sizeof kept), NULL);
}

uint32_t rfs_rules_tensor_add(struct compiling *c, int side, const char *name)
{
    struct side *of = &c->sides[side];
    static const struct shape unknown = {.known = false};
    const struct side_tensor fresh = {.shape = &unknown};
    const uint32_t id = rfs_intern_add(of->names, name, strlen(name));

    if (id == RFS_NO_ID || id >= RULES_MOST_TENSORS) {
        if (id == RFS_NO_ID)
            rfs_fail_memory(c->err);
        else
            RULES_FAIL(c, name, NULL, "is one of more than %zu tensors", RULES_MOST_TENSORS);
        return NO_TENSOR;
    }
    if (RFS_VEC_AT(&of->tensors, id, fresh))
        return id;
    rfs_fail_memory(c->err);
    return NO_TENSOR;
}

uint32_t rfs_rules_tensor_find(struct compiling *c, int side, const char *name)
{
    struct side *of = &c->sides[side];
    const size_t n = strlen(name);
    size_t last_n;
    const char *last = rfs_intern_bytes(of->names, of->last, &last_n);

    if (last && last_n == n && memcmp(last, name, n) == 0 && of->last < of->tensors.n)
        return of->last;
    const uint32_t id = rfs_intern_find(of->names, name, n);
    if (id >= of->tensors.n)
        return NO_TENSOR;
    of->last = id;
    return id;
}

const char *rfs_rules_tensor_name(const struct compiling *c, int side, uint32_t tensor)
{
    return rfs_intern_text(c->sides[side].names, tensor);
}

/* Counts the characters that two names have in common, at their beginnings and ends. */
static size_t likeness(const char *a, const char *b)
{
    const size_t of_a = strlen(a);
    const size_t of_b = strlen(b);
    const size_t most = of_a < of_b ? of_a : of_b;
    size_t before = 0;
    size_t behind = 0;

    while (before < most && a[before] == b[before])
        before++;
    while (behind < most - before && a[of_a - 1 - behind] == b[of_b - 1 - behind])
        behind++;
    return before + behind;
}

/*
 * Returns the name of a tensor of the side that is most like NAME, by more than half of either; ""
 * without. TAKEN: a rule takes the tensor, or none does.
 */
static const char *closest(const struct compiling *c, int side, const char *name, bool taken)
{
    const char *best = "";
    size_t most = 0;

    for (uint32_t i = 0; i < c->sides[side].tensors.n; i++) {
        const struct side_tensor *tensor = &c->sides[side].tensors.data[i];
        const char *other = rfs_rules_tensor_name(c, side, i);
        const size_t like = likeness(name, other);
        if (like > most && 2 * like > strlen(name) && 2 * like > strlen(other) &&
            strcmp(name, other) != 0 && (tensor->taken != NULL) == taken) {
            most = like;
            best = other;
        }
    }
    return best;
}

int rfs_rules_need(struct compiling *c, const char *name, uint32_t *tensor)
{
    *tensor = rfs_rules_tensor_find(c, c->source, name);
    if (*tensor == NO_TENSOR) {
        const char *like = closest(c, c->source, name, false);
        return RULES_FAIL(c, name,
                          "the config.json that belongs to these tensors, or other rules: reshard "
                          "suggest SRC -o hf_config=FILE",
                          "is not in %s%s%s%s", c->input->source, *like ? ", which has '" : "",
                          like, *like ? "'" : "");
    }
    if (c->sides[c->source].tensors.data[*tensor].kind != RFS_TENSOR)
        return RULES_FAIL(c, name, "drop, for values that are not tensors", "is not a tensor");
    return 0;
}

static int taken_twice(struct compiling *c, int side, uint32_t tensor, const struct statement *by)
{
    const char *name = rfs_rules_tensor_name(c, side, tensor);

    return RULES_FAIL(c, name, NULL,
                      side == c->source ? "is used a second time, after %s: line %u"
                                        : "is made a second time, after %s: line %u",
                      by->file, by->line);
}

int rfs_rules_take_all(struct compiling *c, int side, uint32_t tensor)
{
    struct side_tensor *of = &c->sides[side].tensors.data[tensor];

    if (of->taken)
        return taken_twice(c, side, tensor, of->taken);
    of->taken = c->statement;
    return 0;
}

/* Returns a selection of rows that is kept: 1 + its place; NULL for 0. */
static struct rfs_rules_rows *taking_at(struct compiling *c, uint32_t at)
{
    return at ? &c->takings.data[at - 1] : NULL;
}

/* Says whether a kept selection, or none, is along the axes of N others, the last of them first. */
static bool is_along(struct compiling *c, uint32_t taking, const struct rfs_rules_rows *rows,
                     uint32_t n)
{
    for (; taking && n > 0 && taking_at(c, taking)->axis == rows[n - 1].axis; n--)
        taking = taking_at(c, taking)->inner;
    return taking == 0 && n == 0;
}

int rfs_rules_take_rows(struct compiling *c, int side, uint32_t tensor,
                        const struct rfs_rules_rows *rows, uint32_t n)
{
    struct side_tensor *of = &c->sides[side].tensors.data[tensor];
    uint32_t inner = 0;

    if (of->taken && !is_along(c, of->takings, rows, n))
        return taken_twice(c, side, tensor, of->taken);
    of->taken = c->statement;
    for (uint32_t k = 0; k < n; k++) {
        struct rfs_rules_rows fresh = rows[k];
        fresh.inner = inner;
        fresh.next = k + 1 == n ? of->takings : 0;
        RULES_PUSH(c, &c->takings, fresh);
        inner = (uint32_t)c->takings.n;
    }
    of->takings = inner;
    return 0;
}

/* Marks the rows of a selection as seen, of ROWS of the tensor NAME; none may be seen already. */
static int mark_rows(struct compiling *c, const char *name, const struct rfs_rules_rows *taking,
                     uint64_t rows, unsigned char *seen)
{
    const uint64_t count = taking->count * taking->parts; /* a size of a tensor */
    const int rc = rfs_rules_work(c, count);

    for (uint64_t k = 0; rc == 0 && k < count; k++) {
        const uint64_t row =
            taking->first + k % taking->count * taking->step + k / taking->count * taking->part;
        if (row >= rows || seen[row])
            return RULES_FAIL(c, name, NULL,
                              row < rows ? "has row %llu taken twice along axis %u"
                                         : "has no row %llu, which a rule takes along axis %u",
                              (unsigned long long)row, taking->axis);
        seen[row] = 1;
    }
    return rc;
}

/* Finds the first selection of a list of the same rows as one of it, which may be that itself. */
static int find_same(struct compiling *c, uint32_t list, uint32_t of, uint32_t *same)
{
    const struct rfs_rules_rows *a = taking_at(c, of);
    uint64_t steps = 1;

    for (*same = list; *same != of; *same = taking_at(c, *same)->next, steps++) {
        const struct rfs_rules_rows *b = taking_at(c, *same);
        if (a->first == b->first && a->count == b->count && a->step == b->step &&
            a->parts == b->parts)
            break;
    }
    return rfs_rules_work(c, steps);
}

/*
 * Puts the inner selections of those of a list that select the same rows together, into the list of
 * the first of them; the others have none then.
 */
static int gather_same(struct compiling *c, uint32_t list)
{
    uint32_t same;
    int rc = 0;

    for (uint32_t i = list; i && rc == 0; i = taking_at(c, i)->next) {
        rc = find_same(c, list, i, &same);
        if (rc || same == i)
            continue;
        struct rfs_rules_rows *from = taking_at(c, i);
        taking_at(c, from->inner)->next = taking_at(c, same)->inner;
        taking_at(c, same)->inner = from->inner;
        from->inner = 0;
    }
    return rc;
}

/*
 * Proves that the selections of a list are all rows of an axis of that shape, and none twice; and
 * so the inner selections of each.
 */
static int prove_list(struct compiling *c, const char *name, const struct shape *shape, bool loose,
                      uint32_t list)
{
    const uint32_t axis = taking_at(c, list)->axis;
    const bool nested = taking_at(c, list)->inner != 0;
    const uint64_t rows = shape->dims[axis];
    uint64_t sum = 0;

    if (rows > MOST_ROWS)
        return RULES_FAIL(c, name, NULL, "has %llu rows; rules can take parts of at most %llu",
                          (unsigned long long)rows, (unsigned long long)MOST_ROWS);
    RFS_FREE unsigned char *seen = calloc((size_t)rows + 1, 1);
    if (!seen)
        return rfs_fail_memory(c->err);
    int rc = nested ? gather_same(c, list) : 0;
    for (uint32_t i = list; i && rc == 0; i = taking_at(c, i)->next) {
        const struct rfs_rules_rows taking = *taking_at(c, i);
        if (nested && !taking.inner)
            continue; /* the same as another */
        rc = mark_rows(c, name, &taking, rows, seen);
        if (rc == 0 && nested)
            rc = prove_list(c, name, shape, loose, taking.inner);
        sum += taking.count * taking.parts;
    }
    if (rc == 0 && sum != rows && !loose)
        return RULES_FAIL(c, name, NULL, "has %llu rows that no rule takes along axis %u",
                          (unsigned long long)(rows - sum), axis);
    return rc;
}

/* Proves that the rows of a tensor that rules take are all of it, and none is taken twice. */
static int prove_rows(struct compiling *c, int side, uint32_t tensor)
{
    const struct side_tensor *of = &c->sides[side].tensors.data[tensor];

    c->statement = of->taken;
    return prove_list(c, rfs_rules_tensor_name(c, side, tensor), of->shape, of->loose, of->takings);
}

/* Says whether TEXT is the name with numbers in its holes. */
static bool is_like(const struct name_part *name, const char *text)
{
    for (; name; name = name->next) {
        if (strncmp(text, name->text, name->n) != 0)
            return false;
        text += name->n;
        const size_t digits = name->hole ? strspn(text, "0123456789") : 0;
        if (name->hole && digits == 0)
            return false;
        text += digits;
    }
    return *text == '\0';
}

static bool has_leaf(const struct node *node, const char *name)
{
    for (const struct node *of = node; node->kind == NODE_TENSOR && of; of = of->also)
        if (is_like(of->name, name))
            return true;
    for (const struct node *kid = node->kids; kid; kid = kid->next)
        if (has_leaf(kid, name))
            return true;
    return false;
}

bool rfs_rules_has_name(const struct statement *statement, int side, const char *name)
{
    if (statement->kind == STATEMENT_RULE)
        return has_leaf(side == SIDE_LEFT ? statement->left : statement->right, name);
    return statement->names[0] && statement->side == side && is_like(statement->names[0], name);
}

bool rfs_rules_is_named(const struct compiling *c, const char *name)
{
    for (size_t i = 0; i < c->applied.n; i++)
        if (rfs_rules_has_name(c->applied.data[i], c->source, name))
            return true;
    for (size_t i = 0; i < c->waiting.n; i++)
        if (rfs_rules_has_name(c->waiting.data[i].statement, c->source, name))
            return true;
    return false;
}

static bool is_unused(const struct compiling *c, uint32_t tensor)
{
    const struct side_tensor *of = &c->sides[c->source].tensors.data[tensor];

    return of->there && !of->taken && !of->dropped;
}

/* Says whether two names differ in numbers alone. */
static bool differ_in_numbers(const char *a, const char *b)
{
    static const char digits[] = "0123456789";

    for (;;) {
        const size_t n = strspn(a, digits);
        const size_t m = strspn(b, digits);
        a += n;
        b += m;
        if ((n == 0) != (m == 0) || *a != *b)
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

/* Counts the unused tensors behind this one whose names differ from its name in numbers alone. */
static size_t count_like(const struct compiling *c, uint32_t tensor)
{
    const char *name = rfs_rules_tensor_name(c, c->source, tensor);
    size_t n = 0;

    for (uint32_t i = tensor + 1; i < c->sides[c->source].tensors.n; i++)
        n += is_unused(c, i) && differ_in_numbers(name, rfs_rules_tensor_name(c, c->source, i));
    return n;
}

/* Says whether an unused tensor was reported whose name differs in numbers alone. */
static bool is_told(const struct compiling *c, const char *name)
{
    for (size_t i = 0; c->failures && i < c->failures->n_unused; i++)
        if (differ_in_numbers(name, rfs_rules_tensor_name(c, c->source, c->failures->unused[i])))
            return true;
    return false;
}

static int fail_unused(struct compiling *c, uint32_t tensor)
{
    const char *name = rfs_rules_tensor_name(c, c->source, tensor);
    const char *rules = c->rules->name;
    const char *like = closest(c, c->source, name, true);
    char text[512] = "";

    if (rfs_quant_is_part(name))
        return rfs_lex_fail(c->input->source, 0, name,
                            "-o dequantize, which shows them as bfloat16", c->err,
                            "is taken by no rule of %s: the weights are quantized, and "
                            "without it they have other values",
                            rules);
    const size_t others = c->failures ? count_like(c, tensor) : 0;
    size_t n = *like ? (size_t)snprintf(text, sizeof text, "; rules take '%s'", like) : 0;
    n = n < sizeof text ? n : sizeof text - 1;
    if (others > 0)
        snprintf(text + n, sizeof text - n, "; and %zu more with other numbers", others);
    if (rfs_rules_is_named(c, name))
        return rfs_lex_fail(c->input->source, 0, name,
                            "the config.json that belongs to these tensors", c->err,
                            "is taken by no rule of %s, as by %s there are fewer of its "
                            "kind%s",
                            rules, rfs_hf_config_name(c->input->config), text);
    return rfs_lex_fail(c->input->source, 0, name,
                        "drop_source=NAME, or drop in the rules, if it is not part of the model",
                        c->err, "is taken by no rule of %s%s", rules, text);
}

/* Fails for a tensor of the source that no rule takes, unless the reason is reported already. */
static int prove_used(struct compiling *c, uint32_t tensor)
{
    const char *name = rfs_rules_tensor_name(c, c->source, tensor);

    if (!is_unused(c, tensor) || c->doubt || is_told(c, name) ||
        rfs_rules_is_blamed(c, c->source, name))
        return 0;
    if (c->failures && c->failures->n < RFS_RULES_ERRORS)
        c->failures->unused[c->failures->n_unused++] = tensor;
    c->statement = NULL;
    return rfs_rules_survive(c, fail_unused(c, tensor));
}

int rfs_rules_prove(struct compiling *c)
{
    int rc = 0;

    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; rc == 0 && i < c->sides[side].tensors.n; i++) {
            const struct side_tensor *tensor = &c->sides[side].tensors.data[i];
            if (tensor->takings > 0 &&
                !rfs_rules_is_blamed(c, side, rfs_rules_tensor_name(c, side, i)))
                rc = rfs_rules_survive(c, prove_rows(c, side, i));
            if (rc == 0 && side == c->source)
                rc = prove_used(c, i);
        }
    return rc;
}
