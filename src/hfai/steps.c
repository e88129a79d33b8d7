/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that was killed half-way leaves parts of two saves, and nothing in them shows it. But
 * optimizers count the steps of each parameter, and hfai spreads those over all parts. The
 * parameters of one group were trained together, as a rule: where each part has one count for all
 * of its parameters of a group, and two parts have different ones, they are of different saves.
 * Where some part by itself has several counts in a group, parameters were trained unevenly there
 * (some were frozen for a while, or are experts that few inputs reach), and the group proves
 * nothing.
 */
#include "hfai/internal.h"

#include "base/cleanup.h"

#define NO_PART UINT32_MAX

/* The step counts of the parts for one group of parameters. */
struct group {
    double count;     /* of the first part that has one */
    uint32_t part;    /* that part, or NO_PART */
    uint32_t other;   /* a part with another one, or NO_PART */
    uint32_t now;     /* the current part, once it has a count */
    double now_count; /* its count */
    bool uneven;      /* a part has several */
};

struct steps {
    struct rfs_hfai *hfai;
    const struct hfai_state *state;
    struct rfs_error *err;
    uint32_t *group_of;   /* by entry */
    uint32_t *by_part;    /* entries in the order of the parts that they came from */
    size_t *first;        /* [parts + 1] of each part in by_part */
    struct group *groups; /* the last one is of entries in no group */
    uint32_t n_groups;
};

/* The number in a tensor of one element. False for types that count no steps. */
static bool to_number(enum rfs_dtype dtype, const unsigned char *bytes, double *number)
{
    int64_t whole;
    int32_t half;
    float single;

    switch (dtype) {
    case RFS_FLOAT64:
        memcpy(number, bytes, sizeof *number);
        return true;
    case RFS_FLOAT32:
        memcpy(&single, bytes, sizeof single);
        *number = (double)single;
        return true;
    case RFS_INT64:
        memcpy(&whole, bytes, sizeof whole);
        *number = (double)whole;
        return true;
    case RFS_INT32:
        memcpy(&half, bytes, sizeof half);
        *number = half;
        return true;
    default:
        return false;
    }
}

/* The part of the current value, for its budget and for messages. */
static struct hfai_reading reading_of(const struct steps *steps, uint32_t part)
{
    return (struct hfai_reading){steps->hfai, part, rfs_hfai_path(steps->hfai, part), steps->err};
}

/* Reads a count: 1, 0 for another value, or -errno; *REPORTED is set if the error is filled. */
static int read_count(const struct steps *steps, uint32_t part, struct rfs_reading *reading,
                      const struct rfs_node *step, double *count, bool *reported)
{
    const struct rfs_hfai *hfai = steps->hfai;
    const struct hfai_reading spending = reading_of(steps, part);
    struct rfs_torch_tensor tensor;
    unsigned char bytes[8];

    if (step->kind == RFS_NODE_INT) {
        *count = (double)step->of.integer;
        return 1;
    }
    if (step->kind == RFS_NODE_FLOAT) {
        memcpy(count, &step->of.bits, sizeof *count);
        return 1;
    }
    if (step->origin != part ||
        rfs_torch_tensor(&hfai->parts[part].torch, step, "", "", &tensor, NULL) != 1 ||
        tensor.elements != 1 || rfs_dtype_bytes(tensor.dtype) > sizeof bytes)
        return 0;
    const size_t item = rfs_dtype_bytes(tensor.dtype);
    int rc = rfs_hfai_spend(&spending, HFAI_WORK_READ);
    *reported = rc != 0;
    if (rc == 0)
        rc = rfs_reading_pread(reading, bytes, item, tensor.record->offset + tensor.offset * item);
    return rc ? rc : to_number(tensor.dtype, bytes, count);
}

static void add_count(struct group *group, uint32_t part, double count)
{
    if (group->now == part) {
        group->uneven |= count != group->now_count;
        return;
    }
    group->now = part;
    group->now_count = count;
    if (group->part == NO_PART) {
        group->part = part;
        group->count = count;
    } else if (count != group->count && group->other == NO_PART) {
        group->other = part;
    }
}

/* The entries that came from one part. */
static int collect(struct steps *steps, uint32_t part, struct rfs_reading *reading, bool *reported)
{
    for (size_t k = steps->first[part]; k < steps->first[part + 1]; k++) {
        const uint32_t i = steps->by_part[k];
        const struct rfs_node *value = steps->state->entries.data[i].value;
        const struct rfs_node *step = rfs_node_pairs(value) ? rfs_node_get(value, "step") : NULL;
        double count;
        const int rc = step ? read_count(steps, part, reading, step, &count, reported) : 0;
        if (rc < 0)
            return rc;
        if (rc > 0)
            add_count(&steps->groups[steps->group_of[i]], part, count);
    }
    return 0;
}

static int collect_part(struct steps *steps, uint32_t part)
{
    struct rfs_reading reading;
    bool reported = false;

    int rc = rfs_reading_begin(rfs_catalog_files(steps->hfai->catalog),
                               steps->hfai->parts[part].file, &reading);
    if (rc == 0) {
        rc = collect(steps, part, &reading, &reported);
        const int ended = rfs_reading_end(&reading);
        rc = rc ? rc : ended;
    }
    return rc == 0 || reported ? rc
                               : rfs_files_fail(steps->err, rfs_hfai_path(steps->hfai, part), rc);
}

/* Notes which entries the "params" of a group name. */
static int take_group(struct steps *steps, uint32_t number, const struct rfs_node *group)
{
    const struct hfai_reading reading = reading_of(steps, 0);
    const struct rfs_items *pairs = rfs_node_pairs(group);
    int rc = rfs_hfai_spend(&reading, HFAI_WORK_NODE * (1 + (pairs ? (uint64_t)pairs->n : 0)));
    const struct rfs_node *params = pairs && rc == 0 ? rfs_node_get(group, "params") : NULL;

    for (uint32_t i = 0; params && params->kind == RFS_NODE_LIST && i < params->of.items.n; i++) {
        RFS_FREE char *canonical = NULL;
        size_t n;
        const struct rfs_node *key = params->of.items.data[i];
        rc = rfs_hfai_spend(&reading, rfs_hfai_key_bytes(key));
        if (rc)
            return rc;
        rc = rfs_hfai_key(key, &canonical, &n);
        if (rc == -ENOMEM)
            return rfs_fail_memory(steps->err);
        const uint32_t entry =
            rc == 0 ? rfs_intern_find(steps->state->keys, canonical, n) : RFS_NO_ID;
        if (entry != RFS_NO_ID)
            steps->group_of[entry] = number;
        rc = 0;
    }
    return rc;
}

static int make_groups(struct steps *steps)
{
    const struct rfs_node *list = rfs_node_get(steps->state->rest, "param_groups");
    const uint32_t n = list && list->kind == RFS_NODE_LIST ? list->of.items.n : 0;
    int rc = 0;

    steps->n_groups = n + 1;
    steps->groups = calloc(steps->n_groups, sizeof *steps->groups);
    steps->group_of = calloc(steps->state->entries.n + 1, sizeof *steps->group_of);
    if (!steps->groups || !steps->group_of)
        return rfs_fail_memory(steps->err);
    for (uint32_t g = 0; g <= n; g++)
        steps->groups[g] = (struct group){.part = NO_PART, .other = NO_PART, .now = NO_PART};
    for (size_t i = 0; i < steps->state->entries.n; i++)
        steps->group_of[i] = n;
    for (uint32_t g = 0; rc == 0 && g < n; g++)
        rc = take_group(steps, g, list->of.items.data[g]);
    return rc;
}

static int order_entries(struct steps *steps)
{
    const size_t n = steps->state->entries.n;
    const uint32_t n_parts = steps->hfai->n_parts;

    steps->by_part = calloc(n + 1, sizeof *steps->by_part);
    steps->first = calloc((size_t)n_parts + 2, sizeof *steps->first);
    if (!steps->by_part || !steps->first)
        return rfs_fail_memory(steps->err);
    /* Each part's place is where the one before it ends, once all that come before are in. */
    for (size_t i = 0; i < n; i++)
        steps->first[steps->state->entries.data[i].part + 2]++;
    for (uint32_t p = 0; p < n_parts; p++)
        steps->first[p + 2] += steps->first[p + 1];
    for (uint32_t i = 0; i < n; i++)
        steps->by_part[steps->first[steps->state->entries.data[i].part + 1]++] = i;
    return 0;
}

static void free_steps(struct steps *steps)
{
    free(steps->by_part);
    free(steps->first);
    free(steps->groups);
    free(steps->group_of);
}

static int check_optimizer(struct rfs_hfai *hfai, const struct hfai_state *state,
                           struct rfs_error *err)
{
    RFS_CLEANUP(free_steps) struct steps steps = {.hfai = hfai, .state = state, .err = err};

    int rc = make_groups(&steps) ?: order_entries(&steps);
    for (uint32_t p = 0; rc == 0 && p < hfai->n_parts; p++)
        rc = collect_part(&steps, p);
    for (uint32_t g = 0; rc == 0 && g < steps.n_groups; g++) {
        const struct group *group = &steps.groups[g];
        if (group->other != NO_PART && !group->uneven)
            return rfs_fail(err, -EINVAL, RFS_IN(rfs_hfai_path(hfai, group->other)),
                            RFS_HFAI_REMEDY ", or -o uneven_steps if that is how it was trained",
                            "its optimizer counts other steps than part %u's: the parts are of "
                            "different saves",
                            group->part);
    }
    return rc;
}

int rfs_hfai_check_steps(struct rfs_hfai *hfai, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && hfai->n_parts > 1 && i < hfai->n_optimizers; i++)
        rc = check_optimizer(hfai, &hfai->optimizers[i], err);
    return rc;
}
