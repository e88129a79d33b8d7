/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules made up at random, in both directions, against a model that moves each element by itself:
 * what links say of every element, and which of them lie in a box. The seed is printed, and
 * replayed from RFS_SEED.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rules/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_DIMS 6
#define MOST_LEAVES 1024
#define ROUNDS 1500

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % n);
}

struct dims {
    uint32_t n;
    uint64_t of[MOST_DIMS];
};

static uint64_t count(const struct dims *dims)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < dims->n; i++)
        n *= dims->of[i];
    return n;
}

/* ---- expressions ----------------------------------------------------------------------------- */

enum op { LEAF, CONCAT, GROUPS, STACK, TRANSPOSE, JOIN, SPLIT, PLUS, OPS };

struct expr {
    enum op op;
    struct dims dims;
    uint32_t axis;
    uint64_t n;      /* groups, values of a stack, and what is added */
    uint64_t factor; /* of a leaf in groups: the first of its size along the axis */
    uint32_t number; /* of a leaf, or of a stack's index */
    struct expr *kids[3];
    uint32_t n_kids;
};

static struct expr exprs[4096];
static uint32_t n_exprs, n_leaves, n_stacks;
static bool within_plus;

static struct expr *make(enum op op, const struct dims *dims)
{
    struct expr *e = &exprs[n_exprs++];

    assert_true(n_exprs < 4096);
    *e = (struct expr){.op = op, .dims = *dims};
    return e;
}

static struct expr *grow(const struct dims *dims, uint32_t depth);

static struct expr *leaf(const struct dims *dims)
{
    struct expr *e = make(LEAF, dims);

    e->number = n_leaves++;
    return e;
}

/* A divisor of N. */
static uint64_t divisor(uint64_t n)
{
    uint64_t d;

    do
        d = 1 + below((uint32_t)n);
    while (n % d != 0);
    return d;
}

static struct expr *grow_parts(const struct dims *dims, uint32_t depth, bool groups)
{
    struct expr *e = make(groups ? GROUPS : CONCAT, dims);
    struct dims part = *dims;

    e->axis = below(dims->n);
    e->n = groups ? divisor(dims->of[e->axis]) : 1;
    uint64_t left = dims->of[e->axis] / e->n;
    e->n_kids = 1 + below((uint32_t)(left > 3 ? 3 : left));
    for (uint32_t i = 0; i < e->n_kids; i++) {
        const uint64_t spare = left - (e->n_kids - i - 1);
        const uint64_t mine = i + 1 == e->n_kids ? left : 1 + below((uint32_t)spare);
        left -= mine;
        part.of[e->axis] = mine * e->n;
        e->kids[i] = groups || below(2) ? leaf(&part) : grow(&part, depth - 1);
        if (groups)
            e->kids[i]->factor = e->n;
    }
    return e;
}

static struct expr *grow_stack(const struct dims *dims, uint32_t depth)
{
    struct expr *e = make(STACK, dims);
    struct dims inner = *dims;

    e->axis = below(dims->n);
    e->n = dims->of[e->axis];
    e->number = n_stacks++;
    for (uint32_t i = e->axis; i + 1 < dims->n; i++)
        inner.of[i] = inner.of[i + 1];
    inner.n--;
    e->kids[0] = grow(&inner, depth - 1);
    e->n_kids = 1;
    return e;
}

static struct expr *grow(const struct dims *dims, uint32_t depth)
{
    struct dims inner = *dims;
    struct expr *e;

    if (depth == 0 || dims->n == 0)
        return leaf(dims);
    const enum op op = (enum op)below(OPS);
    switch (op) {
    case CONCAT:
    case GROUPS:
        return grow_parts(dims, depth, op == GROUPS);
    case STACK:
        return grow_stack(dims, depth);
    case TRANSPOSE:
        if (dims->n < 2)
            return leaf(dims);
        e = make(TRANSPOSE, dims);
        inner.of[dims->n - 1] = dims->of[dims->n - 2];
        inner.of[dims->n - 2] = dims->of[dims->n - 1];
        break;
    case JOIN:
        if (dims->n == MOST_DIMS)
            return leaf(dims);
        e = make(JOIN, dims);
        e->axis = below(dims->n);
        for (uint32_t i = inner.n++; i > e->axis; i--)
            inner.of[i] = inner.of[i - 1];
        inner.of[e->axis] = divisor(dims->of[e->axis]);
        inner.of[e->axis + 1] = dims->of[e->axis] / inner.of[e->axis];
        break;
    case SPLIT:
        if (dims->n < 2)
            return leaf(dims);
        e = make(SPLIT, dims);
        e->axis = below(dims->n - 1);
        e->n = dims->of[e->axis];
        inner.of[e->axis] *= inner.of[e->axis + 1];
        for (uint32_t i = e->axis + 1; i + 1 < dims->n; i++)
            inner.of[i] = inner.of[i + 1];
        inner.n--;
        break;
    case PLUS:
        if (within_plus)
            return leaf(dims);
        e = make(PLUS, dims);
        e->n = 1 + below(256);
        within_plus = true;
        break;
    default:
        return leaf(dims);
    }
    e->kids[0] = grow(&inner, depth - 1);
    within_plus &= op != PLUS;
    e->n_kids = 1;
    return e;
}

/* ---- as a text ------------------------------------------------------------------------------- */

static char text[1 << 16];
static size_t text_n;

#define PUT(...) (text_n += (size_t)snprintf(text + text_n, sizeof text - text_n, __VA_ARGS__))

/* Stacks that a leaf lies in, outermost first. */
struct within {
    const struct expr *stacks[8];
    uint32_t n;
};

static void write_leaf(const struct expr *e, const struct within *within, uint32_t parts_axis)
{
    PUT("t%u", e->number);
    for (uint32_t i = 0; i < within->n; i++)
        PUT(".{i%u}", within->stacks[i]->number);
    PUT(" [");
    for (uint32_t i = 0; i < e->dims.n; i++) {
        PUT("%s", i > 0 ? ", " : "");
        if (e->factor > 0 && i == parts_axis)
            PUT("%llu * %llu", (unsigned long long)e->factor,
                (unsigned long long)(e->dims.of[i] / e->factor));
        else
            PUT("%llu", (unsigned long long)e->dims.of[i]);
    }
    PUT("]");
}

static void write_expr(const struct expr *e, struct within *within, uint32_t parts_axis)
{
    switch (e->op) {
    case LEAF:
        write_leaf(e, within, parts_axis);
        return;
    case CONCAT:
        PUT("concat(%u, ", e->axis);
        break;
    case GROUPS:
        PUT("groups(%llu, %u, ", (unsigned long long)e->n, e->axis);
        break;
    case STACK:
        PUT("stack(i%u, %u, ", e->number, e->axis);
        within->stacks[within->n++] = e;
        break;
    case TRANSPOSE:
        PUT("transpose(");
        break;
    case PLUS:
        PUT("plus(%llu, ", (unsigned long long)e->n);
        break;
    case JOIN:
        PUT("join(%u, ", e->axis);
        break;
    default:
        PUT("split(%u, %llu, ", e->axis, (unsigned long long)e->n);
        break;
    }
    for (uint32_t i = 0; i < e->n_kids; i++) {
        PUT("%s", i > 0 ? ",\n    " : "");
        write_expr(e->kids[i], within, e->axis);
    }
    within->n -= e->op == STACK;
    PUT(")");
}

/* ---- the model ------------------------------------------------------------------------------- */

/*
 * The right tensors as they come up, and what each element of an expression is: tensor and place.
 */
struct tensor {
    char name[96];
    struct rfs_type type;
};
static struct tensor tensors[MOST_LEAVES];
static uint32_t n_tensors;

struct element {
    uint32_t tensor;
    uint64_t at;
    int64_t plus;
};

static void type_of(const struct dims *dims, struct rfs_type *type)
{
    *type = (struct rfs_type){.ndim = (uint8_t)dims->n, .dtype = RFS_BFLOAT16, .kind = RFS_TENSOR};
    memcpy(type->dims, dims->of, dims->n * sizeof *dims->of);
    type->bytes = 2 * count(dims);
}

static void unflatten(const struct dims *dims, uint64_t flat, uint64_t *at)
{
    for (uint32_t i = dims->n; i-- > 0;) {
        at[i] = flat % dims->of[i];
        flat /= dims->of[i];
    }
}

static uint64_t flatten(const struct dims *dims, const uint64_t *at)
{
    uint64_t flat = 0;

    for (uint32_t i = 0; i < dims->n; i++)
        flat = flat * dims->of[i] + at[i];
    return flat;
}

static uint32_t find_tensor(const char *name, const struct dims *dims)
{
    uint32_t i = 0;

    while (i < n_tensors && strcmp(tensors[i].name, name) != 0)
        i++;
    if (i < n_tensors)
        return i;
    assert_true(n_tensors < MOST_LEAVES);
    snprintf(tensors[i].name, sizeof tensors[i].name, "%s", name);
    type_of(dims, &tensors[i].type);
    return n_tensors++;
}

/* The element of the expression at AT; STACKED has the values of the stacks around it. */
static struct element element_at(const struct expr *e, const uint64_t *at, const char *stacked)
{
    uint64_t to[MOST_DIMS + 1];
    char name[96];

    memcpy(to, at, sizeof(uint64_t) * MOST_DIMS);
    switch (e->op) {
    case LEAF:
        snprintf(name, sizeof name, "t%u%s", e->number, stacked);
        return (struct element){find_tensor(name, &e->dims), flatten(&e->dims, at), 0};
    case PLUS: {
        struct element element = element_at(e->kids[0], to, stacked);
        element.plus += (int64_t)e->n;
        return element;
    }
    case CONCAT:
    case GROUPS: {
        const uint64_t unit = e->dims.of[e->axis] / e->n;
        const uint64_t group = at[e->axis] / unit;
        uint64_t within = at[e->axis] % unit;
        uint32_t i = 0;
        while (within >= e->kids[i]->dims.of[e->axis] / e->n)
            within -= e->kids[i++]->dims.of[e->axis] / e->n;
        to[e->axis] = group * (e->kids[i]->dims.of[e->axis] / e->n) + within;
        return element_at(e->kids[i], to, stacked);
    }
    case STACK:
        snprintf(name, sizeof name, "%s.%llu", stacked, (unsigned long long)at[e->axis]);
        for (uint32_t i = e->axis; i + 1 < e->dims.n; i++)
            to[i] = to[i + 1];
        return element_at(e->kids[0], to, name);
    case TRANSPOSE:
        to[e->dims.n - 1] = at[e->dims.n - 2];
        to[e->dims.n - 2] = at[e->dims.n - 1];
        return element_at(e->kids[0], to, stacked);
    default: /* axes joined or split: the same elements in the same order */
        unflatten(&e->kids[0]->dims, flatten(&e->dims, at), to);
        return element_at(e->kids[0], to, stacked);
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The elements of a link, one after the other: for each, its flat places. */
typedef void each_fn(void *ctx, uint64_t made, uint64_t source);

static void each_of(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                    const struct rfs_rules_span *span, const struct rfs_type *made,
                    const struct rfs_type *source, each_fn *each, void *ctx)
{
    uint64_t d[RFS_RULES_DIGITS];
    const struct rfs_type *types[2] = {made, source};

    for (uint32_t k = 0; k < link->n; k++) {
        d[k] = span->first[k];
        if (span->first[k] >= span->end[k])
            return;
    }
    for (;;) {
        uint64_t flat[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            uint64_t at[RFS_MAX_DIMS];
            memcpy(at, &map->ats.data[link->at[side]], types[side]->ndim * sizeof *at);
            for (uint32_t k = 0; k < link->n; k++) {
                const struct rfs_rules_digit *digit = &map->digits.data[link->digits + k];
                at[digit->axis[side]] += d[k] * digit->step[side];
            }
            for (uint32_t a = 0; a < types[side]->ndim; a++) {
                assert_true(at[a] < types[side]->dims[a]);
                flat[side] = flat[side] * types[side]->dims[a] + at[a];
            }
        }
        each(ctx, flat[0], flat[1]);
        uint32_t k = link->n;
        while (k > 0 && ++d[k - 1] == span->end[k - 1]) {
            d[k - 1] = span->first[k - 1];
            k--;
        }
        if (k == 0)
            return;
    }
}

/* Elements of a made tensor by their places: tensor and place, and how often they are made. */
struct seen {
    struct element *of;
    uint32_t *times;
    uint32_t tensor;
    int64_t plus; /* of the link */
};

static void note(void *ctx, uint64_t made, uint64_t source)
{
    struct seen *seen = ctx;

    seen->of[made] = (struct element){seen->tensor, source, seen->plus};
    seen->times[made]++;
}

/* The spans of a random box have the elements in it, each once. */
static void check_box(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                      const struct rfs_type *types[2])
{
    struct rfs_rules_span all;
    struct rfs_rules_spans spans = {0};
    uint64_t lo[RFS_MAX_DIMS] = {0};
    uint64_t hi[RFS_MAX_DIMS] = {0};
    const int side = (int)below(2);
    uint64_t elems = 1;

    for (uint32_t a = 0; a < types[side]->ndim; a++) {
        lo[a] = below((uint32_t)types[side]->dims[a]);
        hi[a] = lo[a] + 1 + below((uint32_t)(types[side]->dims[a] - lo[a]));
        elems *= types[side]->dims[a];
    }
    assert_int_equal(rfs_rules_spans_in(map, link, side, types[side]->ndim, lo, hi, NULL, &spans),
                     0);
    struct seen in = {calloc(elems, sizeof *in.of), calloc(elems, sizeof *in.times), 0, 0};
    struct seen wanted = {calloc(elems, sizeof *in.of), calloc(elems, sizeof *in.times), 0, 0};
    for (size_t i = 0; i < spans.n; i++) {
        if (side == RFS_MADE)
            each_of(map, link, &spans.data[i], types[0], types[1], note, &in);
        else { /* the other way round, by a link that is turned */
            struct rfs_rules_map turned = *map;
            struct rfs_rules_link other = *link;
            struct rfs_rules_digit digits[RFS_RULES_DIGITS];
            for (uint32_t k = 0; k < link->n; k++) {
                const struct rfs_rules_digit *d = &map->digits.data[link->digits + k];
                digits[k] = (struct rfs_rules_digit){
                    d->count, {d->step[1], d->step[0]}, {d->axis[1], d->axis[0]}};
            }
            turned.digits.data = digits;
            other.digits = 0;
            other.at[0] = link->at[1];
            other.at[1] = link->at[0];
            each_of(&turned, &other, &spans.data[i], types[1], types[0], note, &in);
        }
    }
    rfs_rules_span_all(map, link, &all);
    if (side == RFS_MADE)
        each_of(map, link, &all, types[0], types[1], note, &wanted);
    for (uint64_t i = 0; side == RFS_MADE && i < elems; i++) {
        uint64_t at = i;
        bool inside = true;
        for (uint32_t a = types[0]->ndim; a-- > 0; at /= types[0]->dims[a])
            inside &= at % types[0]->dims[a] >= lo[a] && at % types[0]->dims[a] < hi[a];
        assert_int_equal(in.times[i], inside ? wanted.times[i] : 0);
        if (in.times[i])
            assert_int_equal(in.of[i].at, wanted.of[i].at);
    }
    for (uint64_t i = 0; side == RFS_SOURCE && i < elems; i++) {
        uint64_t at = i;
        for (uint32_t a = types[1]->ndim; a-- > 0; at /= types[1]->dims[a])
            if (in.times[i])
                assert_true(at % types[1]->dims[a] >= lo[a] && at % types[1]->dims[a] < hi[a]);
        assert_true(in.times[i] <= 1);
    }
    free(in.of);
    free(in.times);
    free(wanted.of);
    free(wanted.times);
    free(spans.data);
}

/* Whether every element of what is made is what the model says. */
static void check_map(const struct rfs_rules_map *map, const struct rfs_rules_tensor *source,
                      const struct expr *e, bool from_left)
{
    const struct dims *dims = &e->dims;
    const uint64_t elems = count(dims);

    assert_int_equal(map->from_left, from_left);
    for (size_t m = 0; m < map->made.n; m++) {
        const struct rfs_rules_made *made = &map->made.data[m];
        const uint64_t n = made->type.bytes / 2;
        struct seen seen = {calloc(n + 1, sizeof *seen.of), calloc(n + 1, sizeof *seen.times), 0,
                            0};
        for (size_t i = 0; i < made->n; i++) {
            const struct rfs_rules_link *link = &map->links.data[made->links + i];
            const struct rfs_type *types[2] = {&made->type, source[link->source].type};
            struct rfs_rules_span all;
            assert_int_equal(link->made, m);
            seen.tensor = link->source;
            seen.plus = link->plus;
            rfs_rules_span_all(map, link, &all);
            each_of(map, link, &all, types[0], types[1], note, &seen);
            check_box(map, link, types);
        }
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(seen.times[i], 1);
        for (uint64_t i = 0; i < elems; i++) {
            uint64_t at[MOST_DIMS];
            unflatten(dims, i, at);
            const struct element right = element_at(e, at, "");
            if (!from_left) {
                assert_string_equal(source[seen.of[i].tensor].name, tensors[right.tensor].name);
                assert_int_equal(seen.of[i].at, right.at);
                assert_int_equal(seen.of[i].plus, right.plus);
            } else if (strcmp(tensors[right.tensor].name, made->name) == 0) {
                assert_int_equal(seen.of[right.at].at, i);
                assert_int_equal(seen.of[right.at].plus, -right.plus);
            }
        }
        free(seen.of);
        free(seen.times);
    }
}

static bool round_of(uint32_t depth)
{
    struct dims dims = {.n = 1 + below(3)};
    struct within within = {.n = 0};
    struct rfs_rules *rules;
    struct rfs_hf_config *config;
    struct rfs_rules_map *map;
    struct rfs_error err = {0};
    static struct rfs_rules_tensor source[MOST_LEAVES];
    static char rule[1 << 15];

    n_exprs = n_leaves = n_stacks = n_tensors = 0;
    for (uint32_t i = 0; i < dims.n; i++)
        dims.of[i] = 1 + below(4) * (1 + below(3));
    const struct expr *e = grow(&dims, depth);
    text_n = 0;
    write_expr(e, &within, 0);
    strcpy(rule, text);
    text_n = 0;
    PUT("sides made right\n");
    for (uint32_t i = 0; i < n_exprs; i++)
        if (exprs[i].op == STACK)
            PUT("index i%u = 0 .. %llu\n", exprs[i].number, (unsigned long long)exprs[i].n);
    PUT("whole = %s\n", rule);
    assert_int_equal(rfs_hf_config_read("config.json", "{}", 2, &config, &err), 0);
    if (rfs_rules_parse("rules", text, text_n, NULL, NULL, &rules, &err))
        fail_msg("%s\n%s", err.text, text);

    for (uint64_t i = 0; i < count(&dims); i++) { /* finds all right tensors */
        uint64_t at[MOST_DIMS];
        unflatten(&dims, i, at);
        element_at(e, at, "");
    }
    for (uint32_t i = 0; i < n_tensors; i++)
        source[i] = (struct rfs_rules_tensor){tensors[i].name, &tensors[i].type};
    const struct rfs_rules_input right = {
        .config = config, .source = "source", .tensors = source, .n = n_tensors};
    int rc = rfs_rules_compile(rules, &right, &map, &err);
    const bool cut = rc && strstr(err.text, "inside of one of its parts");
    if (rc && !cut)
        fail_msg("%s\n%s", err.text, text);
    if (!rc) {
        check_map(map, source, e, false);
        rfs_rules_map_free(map);
    }
    struct rfs_type whole;
    type_of(&dims, &whole);
    source[0] = (struct rfs_rules_tensor){"whole", &whole};
    const struct rfs_rules_input left = {
        .config = config, .source = "source", .tensors = source, .n = 1};
    rc = rfs_rules_compile(rules, &left, &map, &err);
    if (rc && !cut)
        fail_msg("%s\n%s", err.text, text);
    if (!rc) {
        assert_int_equal(map->made.n, n_tensors);
        check_map(map, source, e, true);
        rfs_rules_map_free(map);
    }
    rfs_hf_config_free(config);
    rfs_rules_free(rules);
    return !cut;
}

static void test_random_rules(void **ctx)
{
    const char *given = getenv("RFS_SEED");
    uint32_t good = 0;
    (void)ctx;

    state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    printf("RFS_SEED=%llu\n", (unsigned long long)state);
    for (uint32_t i = 0; i < ROUNDS; i++)
        good += round_of(1 + i % 4);
    printf("%u of %u rules could be said by links\n", good, ROUNDS);
    assert_true(good > ROUNDS * 3 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
