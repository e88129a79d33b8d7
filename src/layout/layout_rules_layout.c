/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts that rules give: of a rule, and of a source's layout with another number of replicas.
 */
#include "layout/layout_rules_internal.h"

#define REMEDY_LIKE "a rule for this parameter alone"

/*
 * The stride in ranks of the rightmost device axis that is left for an optimizer shard; 0: there is
 * none.
 */
static uint32_t free_stride(const struct rfs_layout *layout)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t stride = 1;

    for (uint32_t p = layout->n_dev; p-- > 0; stride *= layout->dev[p])
        if (layout->dev[p] > 1 && !(used >> p & 1))
            return stride;
    return 0;
}

/* Devices that hold the same slice, optimizer shards aside. */
static uint32_t repeats(const struct rfs_layout *layout)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t devices = 1;

    for (uint32_t p = 0; p < layout->n_dev; p++)
        devices *= used >> p & 1 ? 1 : layout->dev[p];
    return devices;
}

/* Makes the map entries of the tensor axis that the rule calls AXIS. */
static void add_axis(const struct rule *rule, int axis, struct rfs_layout *out)
{
    uint32_t end = out->start[out->n_axes];

    for (uint32_t k = 0; k < rule->n_cuts; k++)
        if (rule->axis[k] == axis)
            out->map[end++] = (int32_t)(out->n_dev - 1 - rule->by[k]);
    out->start[++out->n_axes] = end;
}

static int set_optimizer(const struct rfs_layout_rules *rules, const struct rule *rule,
                         struct rfs_layout *out, struct rfs_error *err)
{
    const uint32_t most = repeats(out);
    const uint32_t size = rule->optimizer == RULES_REST ? most : rule->optimizer;
    uint32_t part[RFS_MAX_DEVICE_AXES];

    if (rule->optimizer == RULES_REST && most == 1)
        return rfs_layout_rules_fail(rules, rule->line, NULL, NULL, err,
                                     "no device axis is left for an optimizer shard");
    if (size > most || !rfs_layout_opt_parts(out, size, part))
        return rfs_layout_rules_fail(
            rules, rule->line, NULL, NULL, err,
            "an optimizer shard of %u does not fit the device axes that are left "
            "for it, %u devices in all",
            size, most);
    if (size > 1) {
        out->opt_size = size;
        out->opt_step = free_stride(out);
    }
    return 0;
}

int rfs_layout_rules_layout(const struct rfs_layout_rules *rules, const struct rule *rule,
                            const uint32_t *dev, struct rfs_layout *out, struct rfs_error *err)
{
    int head = 0, tail = 0;

    memset(out, 0, sizeof *out);
    out->open = true;
    out->line = rule->line;
    out->n_dev = rules->n_dev;
    out->devices = 1;
    for (uint32_t p = 0; p < rules->n_dev; p++) {
        out->dev[p] = dev[p];
        out->devices *= dev[p];
    }
    for (uint32_t k = 0; k < rule->n_cuts; k++) {
        head = rule->axis[k] >= head ? rule->axis[k] + 1 : head;
        tail = -rule->axis[k] > tail ? -rule->axis[k] : tail;
    }
    for (int axis = 0; axis < head; axis++)
        add_axis(rule, axis, out);
    for (int axis = -tail; axis < 0; axis++)
        add_axis(rule, axis, out);
    out->n_tail = (uint32_t)tail;
    return rule->optimizer > 0 ? set_optimizer(rules, rule, out, err) : 0;
}

#define FAIL(rules, param, err, ...)                                                               \
    rfs_layout_rules_fail(rules, (rules)->like_line, param, REMEDY_LIKE, err, __VA_ARGS__)

/* Whether the tensor is the same in all devices, or cut by an optimizer shard over all of them. */
static bool is_alike(const struct rfs_layout *layout)
{
    return repeats(layout) == layout->devices &&
           (layout->opt_size <= 1 || layout->opt_size == layout->devices);
}

static int put_outermost(const struct rfs_layout_rules *rules, const char *param, uint32_t extent,
                         struct rfs_layout *out, struct rfs_error *err)
{
    if (out->n_dev == RFS_MAX_DEVICE_AXES)
        return FAIL(rules, param, err, "its device matrix has no room for one more axis");
    memmove(out->dev + 1, out->dev, out->n_dev * sizeof *out->dev);
    out->dev[0] = extent;
    out->n_dev++;
    return 0;
}

/*
 * All that matters is the number of devices, not how they are arranged. The map still names axes of
 * one.
 */
static int scale_alike(const struct rfs_layout_rules *rules, const char *param,
                       struct rfs_layout *out, struct rfs_error *err)
{
    const uint64_t devices = (uint64_t)out->devices * rules->to;

    if (devices % rules->from != 0)
        return FAIL(rules, param, err, "its %u devices cannot become %u/%u of them", out->devices,
                    rules->to, rules->from);
    if (out->opt_size > 1)
        out->opt_size = (uint32_t)(devices / rules->from);
    for (uint32_t p = 0; p < out->n_dev; p++)
        out->dev[p] = 1;
    for (uint32_t p = 0; p < out->n_dev; p++)
        if (!(rfs_layout_used(out) >> p & 1)) {
            out->dev[p] = (uint32_t)(devices / rules->from);
            return 0;
        }
    return put_outermost(rules, param, (uint32_t)(devices / rules->from), out, err);
}

/* The position of the axis of replicas, n_dev when there is none. */
static int find_replicas(const struct rfs_layout_rules *rules, const struct rfs_layout *layout,
                         const char *param, uint32_t *at, struct rfs_error *err)
{
    const uint32_t used = rfs_layout_used(layout);
    uint32_t found = 0;
    bool cut_between = false, matters = layout->opt_size > 1;

    *at = layout->n_dev;
    for (uint32_t p = 0; p < layout->n_dev; p++) {
        if (used >> p & 1) {
            cut_between |= found > 0 && layout->dev[p] > 1;
        } else if (layout->dev[p] == rules->from) {
            *at = found == 0 ? p : *at;
            matters |= found > 0 && cut_between;
            found++;
        }
    }
    if (found > 1 && matters)
        return FAIL(rules, param, err,
                    "%u of its device axes have %u devices and cut no axis of the tensor, and the "
                    "choice between them matters",
                    found, rules->from);
    return 0;
}

/* PART of the axis at AT is cut by the optimizer shard. */
static int scale_axis(const struct rfs_layout_rules *rules, const char *param, uint32_t at,
                      uint32_t part, struct rfs_layout *out, struct rfs_error *err)
{
    out->dev[at] = rules->to;
    if (part == rules->from)
        out->opt_size = out->opt_size / rules->from * rules->to;
    else if (rules->to % part != 0)
        return FAIL(rules, param, err,
                    "%u of the %u devices along that axis cut it as an optimizer shard, which %u "
                    "devices cannot",
                    part, rules->from, rules->to);
    return 0;
}

static int change_replicas(const struct rfs_layout_rules *rules, const char *param,
                           struct rfs_layout *out, struct rfs_error *err)
{
    uint32_t part[RFS_MAX_DEVICE_AXES];
    uint32_t at;
    int rc;

    if (out->field > 0)
        return FAIL(rules, param, err,
                    "it is cut by field over all devices, so none of them are replicas");
    if (is_alike(out))
        return scale_alike(rules, param, out, err);
    if (rules->from == 1)
        return put_outermost(rules, param, rules->to, out, err);
    rc = find_replicas(rules, out, param, &at, err);
    if (rc != 0)
        return rc;
    if (at == out->n_dev)
        return FAIL(rules, param, err,
                    "none of its device axes has %u devices and cuts no axis of the tensor",
                    rules->from);
    rfs_layout_opt_parts(out, out->opt_size, part);
    return scale_axis(rules, param, at, part[at], out, err);
}

int rfs_layout_rules_like(const struct rfs_layout_rules *rules, const struct rfs_layout *source,
                          const char *param, struct rfs_layout *out, struct rfs_error *err)
{
    int rc;

    *out = *source;
    out->line = rules->like_line;
    if (rules->from == rules->to)
        return 0;
    const uint64_t devices = (uint64_t)source->devices * rules->to / rules->from;
    if (devices > RFS_MAX_DEVICES)
        return FAIL(rules, param, err, "its device matrix would have more than %u devices",
                    RFS_MAX_DEVICES);
    rc = change_replicas(rules, param, out, err);
    if (rc != 0)
        return rc;
    out->devices = (uint32_t)devices;
    if (out->opt_size <= 1)
        out->opt_size = 0;
    out->opt_step = out->opt_size > 0 ? free_stride(out) : 0;
    return 0;
}
