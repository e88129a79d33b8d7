/* SPDX-License-Identifier: Apache-2.0 */
/* One layout as written, and its properties that do not depend on the tensor. */
#include "layout/builder.h"

#define REMEDY_FILE "the strategy file that MindSpore saved for this checkpoint"

int rfs_layout_fail(const struct rfs_layout_builder *item, const char *remedy, const char *fmt, ...)
{
    char text[1024];
    char name[256];
    const size_t shown = item->name_bytes < sizeof name - 1 ? item->name_bytes : sizeof name - 1;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (shown > 0)
        memcpy(name, item->name, shown);
    name[shown] = '\0';
    return rfs_fail(item->err, -EINVAL, RFS_OF(item->file, name), remedy, "%s", text);
}

void rfs_layout_begin(struct rfs_layout_builder *item, const char *name, size_t bytes)
{
    item->name = name;
    item->name_bytes = bytes;
    item->opt_step = 0;
    item->opt_size = 0;
    item->field = 0;
    item->rows.n = 0;
    item->offsets.n = 0;
    memset(&item->layout, 0, sizeof item->layout);
}

void rfs_layout_end(struct rfs_layout_builder *item)
{
    free(item->rows.data);
    free(item->offsets.data);
}

int rfs_layout_add_dev(struct rfs_layout_builder *item, int64_t extent)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_dev == RFS_MAX_DEVICE_AXES)
        return rfs_layout_fail(item, NULL, "the device matrix has more than %d axes",
                               RFS_MAX_DEVICE_AXES);
    if (extent < 1 || extent > (int64_t)RFS_MAX_DEVICES)
        return rfs_layout_fail(item, REMEDY_FILE, "the device matrix has an axis of %lld devices",
                               (long long)extent);
    layout->dev[layout->n_dev++] = (uint32_t)extent;
    return 0;
}

int rfs_layout_add_axis(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_axes == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "the tensor map has more than %d axes", RFS_MAX_CUTS);
    layout->n_axes++;
    layout->start[layout->n_axes] = layout->start[layout->n_axes - 1];
    return 0;
}

int rfs_layout_add_cut(struct rfs_layout_builder *item, int64_t device_axis)
{
    struct rfs_layout *layout = &item->layout;
    uint32_t *end = &layout->start[layout->n_axes];

    if (*end == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "the tensor map has more than %d entries", RFS_MAX_CUTS);
    /* Here only the range of an int32_t is checked; that of the device matrix is checked later. */
    if (device_axis < -1 || device_axis >= RFS_MAX_DEVICE_AXES)
        return rfs_layout_fail(item, REMEDY_FILE,
                               "the tensor map names device axis %lld, which does not exist",
                               (long long)device_axis);
    layout->map[(*end)++] = (int32_t)device_axis;
    return 0;
}

int rfs_layout_add_expanded(struct rfs_layout_builder *item, int64_t extent)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_expanded == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "tensor_shape has more than %d entries", RFS_MAX_CUTS);
    if (extent < 0)
        return rfs_layout_fail(item, REMEDY_FILE, "tensor_shape has a negative entry, %lld",
                               (long long)extent);
    layout->expanded[layout->n_expanded++] = (uint64_t)extent;
    return 0;
}

uint32_t rfs_layout_used(const struct rfs_layout *layout)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++)
        if (layout->map[i] >= 0)
            used |= UINT32_C(1) << rfs_layout_position(layout, layout->map[i]);
    return used;
}

bool rfs_layout_opt_parts(const struct rfs_layout *layout, uint64_t size, uint32_t *part)
{
    const uint32_t used = rfs_layout_used(layout);

    for (uint32_t p = 0; p < layout->n_dev; p++)
        part[p] = 1;
    for (uint32_t p = layout->n_dev; p-- > 0 && size > 1;) {
        const uint32_t extent = layout->dev[p];
        if (extent == 1 || (used >> p & 1))
            continue;
        part[p] = size < extent ? (uint32_t)size : extent;
        if (extent % part[p] != 0 || size % part[p] != 0)
            return false;
        size /= part[p];
    }
    return size <= 1;
}

static int check_devices(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;
    uint64_t devices = 1;

    if (layout->n_dev == 0)
        return rfs_layout_fail(item, "a strategy with tensor or data parallelism",
                               "it has no device matrix; a strategy of pipeline parallelism alone "
                               "says nothing about how tensors are cut");
    for (uint32_t p = 0; p < layout->n_dev; p++) {
        devices *= layout->dev[p]; /* at most 2^20 * 2^20 */
        if (devices > RFS_MAX_DEVICES)
            return rfs_layout_fail(item, NULL, "the device matrix has more than %u devices",
                                   RFS_MAX_DEVICES);
    }
    layout->devices = (uint32_t)devices;
    return 0;
}

static int check_map(struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;
    uint32_t used = 0;

    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++) {
        const int32_t axis = layout->map[i];
        if (axis < 0)
            continue;
        if ((uint32_t)axis >= layout->n_dev)
            return rfs_layout_fail(
                item, REMEDY_FILE,
                "the tensor map names device axis %d, but the device matrix has %u axes", axis,
                layout->n_dev);
        if (used >> axis & 1)
            return rfs_layout_fail(item, REMEDY_FILE, "the tensor map uses device axis %d twice",
                                   axis);
        used |= UINT32_C(1) << axis;
    }
    return 0;
}

static int check_expanded(struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;

    if (layout->n_expanded == 0)
        return 0;
    if (layout->n_expanded != layout->n_axes)
        return rfs_layout_fail(item, REMEDY_FILE,
                               "tensor_shape has %u entries and tensor_map %u; they must agree",
                               layout->n_expanded, layout->n_axes);
    for (uint32_t i = 0; i < layout->n_axes; i++) {
        const int32_t axis = layout->map[i];
        if (axis < 0 || (i == 0 && item->rows.n > 0))
            continue; /* manual.c explains why the rows are not compared */
        const uint32_t extent = layout->dev[rfs_layout_position(layout, axis)];
        if (layout->expanded[i] % extent != 0)
            return rfs_layout_fail(item, REMEDY_FILE,
                                   "%llu in tensor_shape is not divisible by the %u devices "
                                   "that cut it",
                                   (unsigned long long)layout->expanded[i], extent);
    }
    return 0;
}

/*
 * With one repeated axis MindSpore refuses any other step than the stride of that axis; with
 * several it does not look at the step.
 */
static int check_step(const struct rfs_layout_builder *item)
{
    const struct rfs_layout *layout = &item->layout;
    const uint32_t used = rfs_layout_used(layout);
    uint32_t stride = 1, repeated = 0, expected = 0;

    for (uint32_t p = layout->n_dev; p-- > 0; stride *= layout->dev[p])
        if (layout->dev[p] > 1 && !(used >> p & 1)) {
            expected = stride;
            repeated++;
        }
    if (repeated == 1 && item->opt_step != expected)
        return rfs_layout_fail(item, REMEDY_FILE,
                               "the optimizer shard has step %lld, but the device axis that is "
                               "left for it has stride %u",
                               (long long)item->opt_step, expected);
    return 0;
}

static int check_optimizer(struct rfs_layout_builder *item)
{
    struct rfs_layout *layout = &item->layout;
    uint32_t repeats = layout->devices, part[RFS_MAX_DEVICE_AXES];
    int64_t size = item->opt_size;

    if (item->opt_step < 0 || size < -1)
        return rfs_layout_fail(item, REMEDY_FILE, "the optimizer shard has step %lld and size %lld",
                               (long long)item->opt_step, (long long)size);
    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++)
        if (layout->map[i] >= 0)
            repeats /= layout->dev[rfs_layout_position(layout, layout->map[i])];
    if (size == -1)
        size = repeats;
    if (item->opt_step == 0 || size <= 1)
        return 0;
    if (layout->n_axes == 0)
        return rfs_layout_fail(item, REMEDY_FILE,
                               "a scalar cannot be cut by an optimizer shard of %lld",
                               (long long)size);
    if (size > repeats || !rfs_layout_opt_parts(layout, (uint64_t)size, part))
        return rfs_layout_fail(item, REMEDY_FILE,
                               "an optimizer shard of %lld does not fit the repeated device axes, "
                               "%u devices in all",
                               (long long)size, repeats);
    layout->opt_size = (uint32_t)size;
    layout->opt_step = (uint32_t)item->opt_step;
    return check_step(item);
}

int rfs_layout_check(struct rfs_layout_builder *item)
{
    int rc = check_devices(item)
            ?: check_map(item)
            ?: check_expanded(item)
            ?: check_optimizer(item);

    return rc == 0 ? rfs_layout_check_manual(item) : rc;
}
