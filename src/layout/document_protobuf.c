/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy documents written as protobuf; read_protobuf.c draws the format. Fields are in the order
 * of their numbers and numbers are not packed, as Python's protobuf writes them. A message is
 * written from its end to its beginning, so that its length is known when it is to be written.
 */
#include "base/cleanup.h"
#include "layout/builder.h"
#include "layout/document.h"
#include "layout/strategy_proto.h"

enum { VARINT = 0, BYTES = 2 };

/* ---- limits of protobuf ---- */

static int fail_range(const struct rfs_strategy_doc *doc, const char *name, const char *what,
                      struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(doc->name, name), "--to json",
                    "%s is too large for protobuf", what);
}

static int check_node(const struct rfs_strategy_doc *doc, struct rfs_doc_item node,
                      struct rfs_error *err)
{
    const struct rfs_doc_numbers numbers = rfs_strategy_doc_numbers(doc, node.value);

    for (size_t at = 2; at < numbers.n; at += 1 + (size_t)numbers.data[at])
        for (int64_t i = 1; i <= numbers.data[at]; i++)
            if (numbers.data[at + (size_t)i] < 0 || numbers.data[at + (size_t)i] > UINT32_MAX)
                return fail_range(doc, rfs_intern_text(doc->pool, node.name),
                                  "a number of the operator's strategy", err);
    return 0;
}

/*
 * Whether a map as JSON has it may be a nested one: two entries side by side may be of one axis if
 * the first has as many elements as its device axis has devices.
 */
static bool may_be_nested(const struct rfs_strategy_doc *doc, const struct rfs_doc_layout *param)
{
    const struct rfs_layout *layout = &param->layout;

    if (!param->flat || !param->has_shape || rfs_strategy_doc_numbers(doc, param->split).n > 0)
        return false;
    for (uint32_t i = 0; i + 1 < layout->n_axes; i++)
        if (layout->map[i] >= 0 && layout->map[i + 1] >= 0 &&
            layout->dev[rfs_layout_position(layout, layout->map[i])] == layout->expanded[i])
            return true;
    return false;
}

static int check_param(const struct rfs_strategy_doc *doc, size_t i, struct rfs_error *err)
{
    const struct rfs_doc_layout *param = rfs_strategy_doc_layout(doc, i);
    const char *name = rfs_strategy_doc_param(doc, i);

    if (may_be_nested(doc, param))
        return rfs_fail(err, -EINVAL, RFS_OF(doc->name, name),
                        "--tree SRC with the checkpoint, which has it",
                        "several device axes may cut one of its axes: protobuf has to say so, and "
                        "JSON does not");
    if (param->field > INT32_MAX || param->opt_step > INT32_MAX || param->opt_size > INT32_MAX)
        return fail_range(doc, name, "field, opt_weight_shard_step or _size", err);
    return 0;
}

static int check(const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    int rc = 0;

    if (doc->current_stage < 0 || doc->current_stage > UINT32_MAX)
        return fail_range(doc, NULL, "current_stage", err);
    for (size_t i = 0; rc == 0 && i < doc->nodes.n; i++)
        rc = check_node(doc, doc->nodes.data[i], err);
    for (size_t i = 0; rc == 0 && i < doc->params.n; i++)
        rc = check_param(doc, i, err);
    return rc;
}

/* ---- writing ---- */

/* The last used bytes of data are written. */
struct packing {
    const struct rfs_strategy_doc *doc;
    unsigned char *data;
    size_t cap, used;
    bool failed; /* out of memory */
};

/* Where the next N bytes go, before those that are written; NULL when out of memory. */
static unsigned char *room(struct packing *out, size_t n)
{
    if (out->cap - out->used < n && !out->failed) {
        const size_t cap = 2 * out->cap + n + 4096;
        unsigned char *data = malloc(cap);
        out->failed = !data;
        if (data && out->used > 0)
            memcpy(data + cap - out->used, out->data + out->cap - out->used, out->used);
        if (data) {
            free(out->data);
            out->data = data;
            out->cap = cap;
        }
    }
    if (out->failed)
        return NULL;
    out->used += n;
    return out->data + out->cap - out->used;
}

static void put_varint(struct packing *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;

    do {
        bytes[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    unsigned char *to = room(out, n);
    if (to)
        memcpy(to, bytes, n);
}

static void put_number(struct packing *out, uint32_t number, int64_t value)
{
    put_varint(out, (uint64_t)value);
    put_varint(out, number << 3 | VARINT);
}

/* Makes a message of the bytes written since there were END of them. */
static void put_message(struct packing *out, uint32_t number, size_t end)
{
    put_varint(out, out->used - end);
    put_varint(out, number << 3 | BYTES);
}

static void put_name(struct packing *out, uint32_t number, uint32_t id)
{
    const size_t end = out->used;
    size_t n;
    const void *name = rfs_intern_bytes(out->doc->pool, id, &n);
    unsigned char *to = room(out, n);

    if (to)
        memcpy(to, name, n);
    put_message(out, number, end);
}

/* A message of dims: N numbers of any type. */
#define PUT_DIMS(out, number, list, n)                                                             \
    do {                                                                                           \
        const size_t dims_end = (out)->used;                                                       \
        for (size_t dims_i = (n); dims_i-- > 0;)                                                   \
            put_number(out, RFS_DIMS_DIM, (int64_t)(list)[dims_i]);                                \
        put_message(out, number, dims_end);                                                        \
    } while (0)

static void put_node(struct packing *out, struct rfs_doc_item node)
{
    const struct rfs_doc_numbers numbers = rfs_strategy_doc_numbers(out->doc, node.value);
    const size_t n = (size_t)numbers.data[1];
    const size_t end = out->used;
    RFS_FREE size_t *inputs = malloc((n + 1) * sizeof *inputs);

    out->failed |= !inputs;
    for (size_t i = 0, at = 2; inputs && i < n; i++, at += 1 + (size_t)numbers.data[at])
        inputs[i] = at;
    for (size_t i = n; inputs && i-- > 0;)
        PUT_DIMS(out, RFS_STRATEGYS_CUTS, numbers.data + inputs[i] + 1,
                 (size_t)numbers.data[inputs[i]]);
    put_number(out, RFS_STRATEGYS_STAGE, numbers.data[0]);
    put_message(out, RFS_ITEM_VALUE, end);
    put_name(out, RFS_ITEM_NAME, node.name);
    put_message(out, RFS_STRATEGY_NODES, end);
}

/* A nested map is more than one message: one axis gets an empty one after it. */
static void put_maps(struct packing *out, const struct rfs_doc_layout *param)
{
    const struct rfs_layout *layout = &param->layout;

    if (!param->per_axis) {
        PUT_DIMS(out, RFS_LAYOUTS_MAP, layout->map, rfs_layout_cuts(layout));
        return;
    }
    if (layout->n_axes < 2)
        PUT_DIMS(out, RFS_LAYOUTS_MAP, layout->map, 0);
    for (uint32_t i = layout->n_axes; i-- > 0;)
        PUT_DIMS(out, RFS_LAYOUTS_MAP, layout->map + layout->start[i],
                 layout->start[i + 1] - layout->start[i]);
}

static void put_param(struct packing *out, struct rfs_doc_item item)
{
    const struct rfs_doc_layout *param = rfs_intern_bytes(out->doc->pool, item.value, NULL);
    const struct rfs_doc_numbers split = rfs_strategy_doc_numbers(out->doc, param->split);
    const struct rfs_doc_numbers offsets = rfs_strategy_doc_numbers(out->doc, param->offsets);
    const size_t end = out->used;

    put_number(out, RFS_LAYOUTS_SIZE, param->opt_size);
    put_number(out, RFS_LAYOUTS_STEP, param->opt_step);
    put_number(out, RFS_LAYOUTS_FIELD, param->field);
    PUT_DIMS(out, RFS_LAYOUTS_OFFSETS, offsets.data, offsets.n);
    PUT_DIMS(out, RFS_LAYOUTS_SPLIT, split.data, split.n);
    put_maps(out, param);
    PUT_DIMS(out, RFS_LAYOUTS_DEV, param->layout.dev, param->layout.n_dev);
    put_message(out, RFS_ITEM_VALUE, end);
    put_name(out, RFS_ITEM_NAME, item.name);
    put_message(out, RFS_STRATEGY_PARAMS, end);
}

int rfs_strategy_doc_protobuf(const struct rfs_strategy_doc *doc, char **data, size_t *size,
                              struct rfs_error *err)
{
    struct packing out = {.doc = doc};
    const int rc = check(doc, err);

    *data = NULL;
    if (rc)
        return rc;
    for (size_t i = doc->params.n; i-- > 0;)
        put_param(&out, doc->params.data[i]);
    for (size_t i = doc->nodes.n; i-- > 0;)
        put_node(&out, doc->nodes.data[i]);
    put_number(&out, RFS_STRATEGY_STAGE, doc->current_stage);
    if (out.failed) {
        free(out.data);
        return rfs_fail_memory(err);
    }
    memmove(out.data, out.data + out.cap - out.used, out.used);
    *data = (char *)out.data;
    *size = out.used;
    return 0;
}
