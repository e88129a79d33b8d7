/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layouts of a Checkpoint 2.0, and the ranks that held each tensor. metadata.json has one
 * layout of a tensor, also where several stages hold it; which do is known from the lists of ranks
 * alone.
 */
#include "formats/chunks/mindformers_internal.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

#define RANKS_MOST (UINT64_C(1) << 20)
#define REMEDY "--rules with --ranks"

static int fail(const struct rfs_mf *mf, const char *what)
{
    return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY, "%s", what);
}

static uint64_t devices_of(const struct rfs_mf_layout *layout)
{
    uint64_t devices = 1;

    for (uint32_t i = 0; i < layout->n_dev; i++)
        if (!rfs_mul_u64(devices, layout->dev[i], &devices))
            return 0;
    return devices;
}

static int check_layout(struct rfs_mf *mf, const struct rfs_mf_described *described)
{
    const uint64_t devices = devices_of(&described->layout);

    if (described->layout.n_dev == 0)
        return 0;
    if (devices == 0 || devices > RANKS_MOST)
        return fail(mf, "its device_matrix has no devices, or more than a million");
    if (described->n_ranks != devices || described->first_rank % devices != 0)
        return fail(mf, "its rank_list is not the ranks of a pipeline stage, one after the other");
    if (mf->layouts->devices == 0)
        mf->layouts->devices = devices;
    if (mf->layouts->devices != devices)
        return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                        "its layout is one of %" PRIu64 " ranks, and that of others of %" PRIu64,
                        devices, mf->layouts->devices);
    return 0;
}

int rfs_mf_note_layout(struct rfs_mf *mf, const struct rfs_mf_described *described)
{
    const int rc = check_layout(mf, described);
    const uint32_t id =
        rfs_intern_add(mf->layouts->distinct, &described->layout, sizeof described->layout);

    if (rc)
        return rc;
    return id != RFS_NO_ID && RFS_PUSH(&mf->layouts->of, id)
               ? 0
               : rfs_fail_memory_of(mf->err, mf->path);
}

/* The number of the slice that a rank holds: the device axes of tensor_map, as digits. */
static uint64_t slice_of(const struct rfs_mf_layout *layout, uint64_t rank)
{
    uint64_t at[RFS_MF_AXES];
    uint64_t number = 0;

    for (uint32_t i = layout->n_dev; i-- > 0; rank /= layout->dev[i])
        at[i] = rank % layout->dev[i];
    const uint64_t n =
        layout->n_dev > 0 && layout->n_axes > 0 ? layout->end[layout->n_axes - 1] : 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t by = layout->n_dev - 1 - (uint32_t)layout->map[i];
        if (layout->map[i] >= 0)
            number = number * layout->dev[by] + at[by];
    }
    return number;
}

/* Whether the rank was not yet found to hold the slice at hand; -ENOMEM. */
static int is_new(struct rfs_mf *mf, uint64_t rank)
{
    while (mf->seen.n <= rank)
        if (!RFS_PUSH(&mf->seen, 0))
            return rfs_fail_memory_of(mf->err, mf->path);
    if (mf->seen.data[rank] == mf->n_seen)
        return 0;
    mf->seen.data[rank] = mf->n_seen;
    return 1;
}

int rfs_mf_note_rank(struct rfs_mf *mf, uint64_t number, uint64_t rank)
{
    const struct rfs_chunked_tensor *found = rfs_chunks_find(mf->boxes, mf->name.data, mf->name.n);
    const size_t n = mf->layouts->held.n;
    struct rfs_mf_held *last = n > 0 ? &mf->layouts->held.data[n - 1] : NULL;

    if (!found || (size_t)(found - mf->boxes->tensors.data) >= mf->layouts->of.n)
        return fail(mf, "storage_data has slices of a tensor that is not in state_dict_metadata");
    if (rank >= RANKS_MOST)
        return fail(mf, "its ranks are more than a million");
    const int new = is_new(mf, rank);
    if (new != 1)
        return new;
    const uint32_t tensor = (uint32_t)(found - mf->boxes->tensors.data);
    const uint64_t devices = mf->layouts->devices;
    const struct rfs_mf_held held = {tensor, devices ? (uint32_t)(rank / devices) : 0, 1};
    if (slice_of(rfs_mf_layout_of(mf->layouts, tensor), rank) != number)
        return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                        "rank %" PRIu64 " holds slice %" PRIu64
                        " of it, and its layout gives that rank another",
                        rank, number);
    if (last && last->tensor == held.tensor && last->stage == held.stage) {
        last->ranks++;
        return 0;
    }
    return RFS_PUSH(&mf->layouts->held, held) ? 0 : rfs_fail_memory_of(mf->err, mf->path);
}

RFS_COMPARE(by_stage, struct rfs_mf_held, x, y,
            RFS_ORDER(x->stage, y->stage) ?: RFS_ORDER(x->tensor, y->tensor))

/* Of each tensor and stage one, that all ranks of the stage hold. */
static int join(struct rfs_mf *mf)
{
    struct rfs_mf_layouts *layouts = mf->layouts;
    struct rfs_mf_held *held = layouts->held.data;
    size_t n = 0;

    if (layouts->devices == 0)
        layouts->devices = mf->seen.n; /* no tensor has a layout: one stage */
    RFS_SORT(held, layouts->held.n, by_stage);
    for (size_t i = 0; i < layouts->held.n; i++)
        if (n > 0 && by_stage(&held[n - 1], &held[i]) == 0)
            held[n - 1].ranks += held[i].ranks;
        else
            held[n++] = held[i];
    layouts->held.n = n;
    for (size_t i = 0; i < n; i++)
        if (held[i].ranks != layouts->devices)
            return rfs_fail(mf->err, -EINVAL,
                            RFS_CHUNKS_OF(mf->boxes, &mf->boxes->tensors.data[held[i].tensor]),
                            REMEDY, "only %" PRIu64 " of the %" PRIu64 " ranks of stage %u hold it",
                            held[i].ranks, layouts->devices, held[i].stage);
    return 0;
}

int rfs_mindformers_layouts(struct rfs_chunks *boxes, struct rfs_mf_layouts *out,
                            struct rfs_error *err)
{
    RFS_CLEANUP(rfs_mf_end)
    struct rfs_mf mf = {.boxes = boxes,
                        .path = rfs_files_path(boxes->files, boxes->metadata),
                        .layouts = out,
                        .err = err};

    *out = (struct rfs_mf_layouts){.distinct = rfs_intern_new()};
    if (!out->distinct)
        return rfs_fail_memory(err);
    return rfs_mf_read(&mf) ?: join(&mf);
}

void rfs_mf_layouts_free(struct rfs_mf_layouts *layouts)
{
    rfs_intern_free(layouts->distinct);
    free(layouts->of.data);
    free(layouts->held.data);
}
