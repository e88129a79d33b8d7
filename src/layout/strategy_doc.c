/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy documents: their memory, the protobuf form, strategies of them, shapes and merging. */
#include "layout/strategy_doc.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "layout/grid.h"

#define MERGED_STAGE 1   /* current_stage, as merge_pipeline_strategys writes */
#define COMPILED_STAGE 2 /* as the compiler does at the first compilation */
#define REMEDY_FILE "the file that MindSpore saved as strategy; JSON strategies have names in .json"

/* ---- memory ---- */

void rfs_strategy_doc_begin(struct rfs_strategy_doc *doc, const char *name)
{
    *doc = (struct rfs_strategy_doc){.name = name, .budget = {.most = RFS_STRATEGY_DOC_BYTES}};
    straspb__parallel_strategy_map__init(&doc->map);
    doc->map.current_stage = MERGED_STAGE;
}

void rfs_strategy_doc_free(struct rfs_strategy_doc *doc)
{
    rfs_arena_free(&doc->arena);
    *doc = (struct rfs_strategy_doc){0};
}

void *rfs_strategy_doc_alloc(struct rfs_strategy_doc *doc, size_t bytes)
{
    /* A NUL follows each block, so that names are texts. */
    const bool fits = bytes < rfs_budget_rest(&doc->budget);
    char *block = fits ? rfs_arena_alloc(&doc->arena, bytes + 1) : NULL;

    if (!block) {
        doc->no_room = fits ? -ENOMEM : -EFBIG;
        return NULL;
    }
    memset(block, 0, bytes + 1);
    doc->budget.used = doc->arena.bytes < doc->budget.most ? doc->arena.bytes : doc->budget.most;
    return block;
}

static void *alloc_unpacked(void *doc, size_t bytes)
{
    return rfs_strategy_doc_alloc(doc, bytes);
}

/* Frees nothing: the arena frees all of a message together. */
static void keep_unpacked(void *doc, void *block)
{
    (void)doc;
    (void)block;
}

static int fail_room(const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    if (doc->no_room != -EFBIG)
        return rfs_fail_memory_of(err, doc->name);
    return rfs_fail(err, -EFBIG, RFS_IN(doc->name), "the file that MindSpore saved as strategy",
                    "reading it takes more than %zu MiB of memory", RFS_STRATEGY_DOC_BYTES >> 20);
}

const char *rfs_strategy_doc_text(ProtobufCBinaryData name)
{
    return name.data ? (const char *)name.data : "";
}

/* Makes an initialized message. NULL without memory. */
static void *new_message(struct rfs_strategy_doc *doc, const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = rfs_strategy_doc_alloc(doc, descriptor->sizeof_message);

    if (message)
        protobuf_c_message_init(descriptor, message);
    return message;
}

#define NEW(doc, type) new_message(doc, &straspb__##type##__descriptor)

/* ---- what makers add ---- */

bool rfs_strategy_doc_reserve(struct rfs_strategy_doc *doc, size_t nodes, size_t params)
{
    Straspb__ParallelStrategyMap *map = &doc->map;
    const size_t old_nodes = map->n_parallel_strategy_item;
    const size_t old_params = map->n_parallel_layout_item;
    const size_t all = RFS_STRATEGY_DOC_BYTES / sizeof(void *);

    if (nodes > all || params > all)
        return false;
    void *node =
        rfs_strategy_doc_alloc(doc, (old_nodes + nodes) * sizeof *map->parallel_strategy_item);
    void *param =
        rfs_strategy_doc_alloc(doc, (old_params + params) * sizeof *map->parallel_layout_item);
    void *shape = rfs_strategy_doc_alloc(doc, (old_params + params) * sizeof *doc->shapes);
    if (!node || !param || !shape)
        return false;
    if (old_nodes > 0)
        memcpy(node, map->parallel_strategy_item, old_nodes * sizeof(void *));
    if (old_params > 0) {
        memcpy(param, map->parallel_layout_item, old_params * sizeof(void *));
        memcpy(shape, doc->shapes, old_params * sizeof *doc->shapes);
    }
    map->parallel_strategy_item = node;
    map->parallel_layout_item = param;
    doc->shapes = shape;
    doc->most_nodes = old_nodes + nodes;
    doc->most_params = old_params + params;
    return true;
}

static bool set_name(struct rfs_strategy_doc *doc, ProtobufCBinaryData *out, const char *name,
                     size_t length)
{
    out->len = length;
    out->data = rfs_strategy_doc_alloc(doc, length);
    if (out->data && length > 0)
        memcpy(out->data, name, length);
    return out->data != NULL;
}

Straspb__ParallelStrategys *rfs_strategy_doc_add_node(struct rfs_strategy_doc *doc,
                                                      const char *name, size_t length,
                                                      uint32_t stage)
{
    Straspb__ParallelStrategyItem *item = NEW(doc, parallel_strategy_item);

    assert(doc->map.n_parallel_strategy_item < doc->most_nodes);
    if (!item || !set_name(doc, &item->node_name, name, length))
        return NULL;
    item->parallel_strategys = NEW(doc, parallel_strategys);
    if (!item->parallel_strategys)
        return NULL;
    item->parallel_strategys->stage = stage;
    doc->map.parallel_strategy_item[doc->map.n_parallel_strategy_item++] = item;
    return item->parallel_strategys;
}

bool rfs_strategy_doc_add_input(struct rfs_strategy_doc *doc, Straspb__ParallelStrategys *node,
                                const uint32_t *cuts, size_t n)
{
    const size_t inputs = node->n_parallel_strategy;
    Straspb__ParallelStrategy *input = NEW(doc, parallel_strategy);

    if (!input || !(input->dim = rfs_strategy_doc_alloc(doc, n * sizeof *cuts)))
        return false;
    input->n_dim = n;
    if (n > 0)
        memcpy(input->dim, cuts, n * sizeof *cuts);
    /* The list doubles when it is full: at each power of two. */
    if ((inputs & (inputs - 1)) == 0) {
        Straspb__ParallelStrategy **list =
            rfs_strategy_doc_alloc(doc, (inputs > 0 ? 2 * inputs : 1) * sizeof *list);
        if (!list)
            return false;
        if (inputs > 0)
            memcpy(list, node->parallel_strategy, inputs * sizeof *list);
        node->parallel_strategy = list;
    }
    node->parallel_strategy[node->n_parallel_strategy++] = input;
    return true;
}

Straspb__ParallelLayouts *rfs_strategy_doc_add_param(struct rfs_strategy_doc *doc, const char *name,
                                                     size_t length)
{
    Straspb__ParallelLayoutItem *item = NEW(doc, parallel_layout_item);

    assert(doc->map.n_parallel_layout_item < doc->most_params);
    if (!item || !set_name(doc, &item->param_name, name, length))
        return NULL;
    item->parallel_layouts = NEW(doc, parallel_layouts);
    if (item->parallel_layouts)
        doc->map.parallel_layout_item[doc->map.n_parallel_layout_item++] = item;
    return item->parallel_layouts;
}

/* Appends a message with N numbers to the list at LIST, of COUNT messages. */
#define ADD_LIST(doc, type, list, count, numbers, n)                                               \
    do {                                                                                           \
        __typeof__(*(list)) message = NEW(doc, type);                                              \
        __typeof__(list) more = rfs_strategy_doc_alloc(doc, ((count) + 1) * sizeof *more);         \
        if (!message || !more ||                                                                   \
            !(message->dim = rfs_strategy_doc_alloc(doc, (n) * sizeof *message->dim)))             \
            return false;                                                                          \
        for (message->n_dim = 0; message->n_dim < (n); message->n_dim++)                           \
            message->dim[message->n_dim] = (__typeof__(*message->dim))(numbers)[message->n_dim];   \
        if ((count) > 0)                                                                           \
            memcpy(more, list, (count) * sizeof *more);                                            \
        more[(count)++] = message;                                                                 \
        (list) = more;                                                                             \
    } while (0)

bool rfs_strategy_doc_add_list(struct rfs_strategy_doc *doc, Straspb__ParallelLayouts *to,
                               enum rfs_strategy_doc_list list, const int64_t *numbers, size_t n)
{
    switch (list) {
    case RFS_STRATEGY_DOC_DEV:
        ADD_LIST(doc, dev_matrix, to->dev_matrix, to->n_dev_matrix, numbers, n);
        break;
    case RFS_STRATEGY_DOC_MAP:
        ADD_LIST(doc, tensor_map, to->tensor_map, to->n_tensor_map, numbers, n);
        break;
    case RFS_STRATEGY_DOC_SPLIT:
        ADD_LIST(doc, param_split_shape, to->param_split_shape, to->n_param_split_shape, numbers,
                 n);
        break;
    case RFS_STRATEGY_DOC_OFFSETS:
        ADD_LIST(doc, indices_offset, to->indices_offset, to->n_indices_offset, numbers, n);
        break;
    }
    return true;
}

/* Adds a map for each of N axes; END[i] is the entry behind those of axis i. */
static bool add_maps(struct rfs_strategy_doc *doc, Straspb__ParallelLayouts *to,
                     const int64_t *cuts, uint32_t n, const uint32_t *end)
{
    bool ok = true;

    for (uint32_t i = 0, begin = 0; ok && i < n; begin = end[i++])
        ok = rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_MAP, cuts + begin, end[i] - begin);
    /* A nested map is more than one message: one axis gets an empty one after it. */
    return ok && (n > 1 || rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_MAP, cuts, 0));
}

/* ---- the protobuf form ---- */

/* Notes a message whose unknown fields JSON would lose. */
static void note_unknown(struct rfs_strategy_doc *doc, const char *name,
                         const ProtobufCMessage *message)
{
    if (message->n_unknown_fields > 0)
        rfs_fail(rfs_strategy_doc_lost(doc), -EINVAL, RFS_OF(doc->name, name), NULL,
                 "it has a field that this program does not know, and would lose");
}

static void note_losses(struct rfs_strategy_doc *doc)
{
    const Straspb__ParallelStrategyMap *map = &doc->map;

    note_unknown(doc, NULL, &map->base);
    for (size_t i = 0; i < map->n_parallel_strategy_item; i++) {
        const Straspb__ParallelStrategyItem *item = map->parallel_strategy_item[i];
        const char *name = rfs_strategy_doc_text(item->node_name);
        if (!rfs_text_is_utf8(name, item->node_name.len))
            rfs_fail(rfs_strategy_doc_lost(doc), -EINVAL, RFS_OF(doc->name, name), NULL,
                     "the operator's name is not UTF-8 text without NULs");
        note_unknown(doc, name, &item->base);
        note_unknown(doc, name, &item->parallel_strategys->base);
    }
    for (size_t i = 0; i < map->n_parallel_layout_item; i++) {
        const Straspb__ParallelLayoutItem *item = map->parallel_layout_item[i];
        note_unknown(doc, rfs_strategy_doc_text(item->param_name), &item->base);
        note_unknown(doc, rfs_strategy_doc_text(item->param_name), &item->parallel_layouts->base);
    }
}

static int parse_protobuf(struct rfs_strategy_doc *doc, const void *data, size_t size,
                          struct rfs_error *err)
{
    ProtobufCAllocator allocator = {alloc_unpacked, keep_unpacked, doc};
    const Straspb__ParallelStrategyMap *map =
        straspb__parallel_strategy_map__unpack(&allocator, size, data);

    if (!map && doc->no_room)
        return fail_room(doc, err);
    if (!map)
        return rfs_fail(err, -EINVAL, RFS_IN(doc->name), REMEDY_FILE, "not a strategy in protobuf");
    doc->map = *map;
    doc->shapes = rfs_strategy_doc_alloc(doc, map->n_parallel_layout_item * sizeof *doc->shapes);
    if (!doc->shapes)
        return fail_room(doc, err);
    note_losses(doc);
    return 0;
}

int rfs_strategy_doc_parse(struct rfs_strategy_doc *doc, const void *data, size_t size,
                           struct rfs_error *err)
{
    if (size == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(doc->name), NULL, "the strategy file is empty");
    if (!rfs_strategy_is_json(doc->name))
        return parse_protobuf(doc, data, size, err);
    const int rc = rfs_strategy_doc_parse_json(doc, data, size, err);
    return rc == -ENOMEM ? fail_room(doc, err) : rc;
}

static uint32_t cuts_of(const Straspb__ParallelLayouts *layouts)
{
    size_t cuts = 0;

    for (size_t i = 0; i < layouts->n_tensor_map; i++)
        cuts += layouts->tensor_map[i]->n_dim;
    return (uint32_t)cuts;
}

/* Returns the device axis of entry I of the tensor map, over all tensor axes. */
static int32_t cut_at(const Straspb__ParallelLayouts *layouts, size_t i)
{
    size_t axis = 0;

    while (i >= layouts->tensor_map[axis]->n_dim)
        i -= layouts->tensor_map[axis++]->n_dim;
    return layouts->tensor_map[axis]->dim[i];
}

static uint32_t extent_of(const Straspb__ParallelLayouts *layouts, int32_t device_axis)
{
    const Straspb__DevMatrix *dev = layouts->dev_matrix[0];

    return device_axis < 0 ? 1 : dev->dim[dev->n_dim - 1 - (size_t)device_axis];
}

/*
 * Says whether a map as JSON has it may be a nested one: two entries side by side may be of one
 * axis if the first has as many elements as its device axis has devices.
 */
static bool may_be_nested(const Straspb__ParallelLayouts *layouts,
                          const struct rfs_strategy_doc_shape *shape)
{
    const uint32_t n = cuts_of(layouts);
    const bool split = layouts->n_param_split_shape > 0 && layouts->param_split_shape[0]->n_dim > 0;

    if (!shape->flat || !shape->known || split)
        return false;
    for (uint32_t i = 0; i + 1 < n && i < shape->n; i++) {
        const int32_t axis = cut_at(layouts, i);
        if (axis >= 0 && cut_at(layouts, i + 1) >= 0 &&
            extent_of(layouts, axis) == (uint64_t)shape->dims[i])
            return true;
    }
    return false;
}

int rfs_strategy_doc_protobuf(const struct rfs_strategy_doc *doc, char **data, size_t *size,
                              struct rfs_error *err)
{
    const Straspb__ParallelStrategyMap *map = &doc->map;
    const int rc = rfs_strategy_doc_check_lost(doc, err);

    *data = NULL;
    if (rc)
        return rc;
    for (size_t i = 0; i < map->n_parallel_layout_item; i++) {
        const Straspb__ParallelLayoutItem *item = map->parallel_layout_item[i];
        if (may_be_nested(item->parallel_layouts, &doc->shapes[i]))
            return rfs_fail(err, -EINVAL,
                            RFS_OF(doc->name, rfs_strategy_doc_text(item->param_name)),
                            "--tree SRC with the checkpoint, which has it",
                            "several device axes may cut one of its axes: protobuf has to say so, "
                            "and JSON does not");
    }
    *size = straspb__parallel_strategy_map__get_packed_size(map);
    *data = malloc(*size + 1);
    if (!*data)
        return rfs_fail_memory(err);
    straspb__parallel_strategy_map__pack(map, (uint8_t *)*data);
    return 0;
}

/* ---- strategies ---- */

/* Calls ADD for each number of a message. */
#define ADD_EACH(rc, item, message, add)                                                           \
    for (size_t each_i = 0; rc == 0 && each_i < (message)->n_dim; each_i++)                        \
    rc = add(item, (message)->dim[each_i])

static int add_axis(struct rfs_layout_builder *item, int64_t device_axis)
{
    return rfs_layout_add_axis(item) ?: rfs_layout_add_cut(item, device_axis);
}

static int add_map(struct rfs_layout_builder *item, const Straspb__ParallelLayouts *from)
{
    int rc = 0;

    if (from->n_tensor_map == 0)
        return rfs_layout_fail(item, NULL, "it has no tensor map");
    if (from->n_tensor_map == 1)
        ADD_EACH(rc, item, from->tensor_map[0], add_axis);
    for (size_t i = 0; rc == 0 && from->n_tensor_map > 1 && i < from->n_tensor_map; i++) {
        if (from->tensor_map[i]->n_dim > 0)
            rc = rfs_layout_add_axis(item);
        ADD_EACH(rc, item, from->tensor_map[i], rfs_layout_add_cut);
    }
    return rc;
}

/* Checks the numbers of messages: MindSpore reads the first of each kind only, and writes one. */
static int check_counts(struct rfs_layout_builder *item, const Straspb__ParallelLayouts *from)
{
    if (from->n_dev_matrix > 1)
        return rfs_layout_fail(item, NULL, "it has %zu device matrices", from->n_dev_matrix);
    if (from->n_param_split_shape > 1 || from->n_indices_offset > 1)
        return rfs_layout_fail(item, NULL, "it has %zu param_split_shape and %zu indices_offset",
                               from->n_param_split_shape, from->n_indices_offset);
    return 0;
}

/* Adds the next entry of a JSON tensor_shape. */
static int add_expanded(struct rfs_layout_builder *item, int64_t extent)
{
    struct rfs_layout *layout = &item->layout;

    if (layout->n_expanded == RFS_MAX_CUTS)
        return rfs_layout_fail(item, NULL, "tensor_shape has more than %d entries", RFS_MAX_CUTS);
    if (extent < 0)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY, "tensor_shape has a negative entry, %lld",
                               (long long)extent);
    layout->expanded[layout->n_expanded++] = (uint64_t)extent;
    return 0;
}

/* Adds the rows of the next slice of a manual split. */
static int add_rows(struct rfs_layout_builder *item, int64_t rows)
{
    if (rows < 1)
        return rfs_layout_fail(item, RFS_LAYOUT_REMEDY,
                               "param_split_shape has a slice of %lld rows", (long long)rows);
    if (item->rows.n >= RFS_MAX_DEVICES)
        return rfs_layout_fail(item, NULL, "param_split_shape has more than %u entries",
                               RFS_MAX_DEVICES);
    return RFS_PUSH(&item->rows, (uint64_t)rows) ? 0 : rfs_fail_memory(item->err);
}

/* Adds the next entry of the manual split's indices_offset. */
static int add_offset(struct rfs_layout_builder *item, int64_t offset)
{
    if (item->offsets.n >= RFS_MAX_DEVICES)
        return rfs_layout_fail(item, NULL, "indices_offset has more than %u entries",
                               RFS_MAX_DEVICES);
    return RFS_PUSH(&item->offsets, offset) ? 0 : rfs_fail_memory(item->err);
}

static int fill_layout(struct rfs_layout_builder *item, const Straspb__ParallelLayouts *from,
                       const struct rfs_strategy_doc_shape *shape)
{
    int rc = check_counts(item, from);

    if (from->n_dev_matrix > 0)
        ADD_EACH(rc, item, from->dev_matrix[0], rfs_layout_add_dev);
    if (rc == 0)
        rc = add_map(item, from);
    for (uint32_t i = 0; rc == 0 && i < shape->n; i++)
        rc = add_expanded(item, shape->dims[i]);
    if (from->n_param_split_shape > 0)
        ADD_EACH(rc, item, from->param_split_shape[0], add_rows);
    if (from->n_indices_offset > 0)
        ADD_EACH(rc, item, from->indices_offset[0], add_offset);
    item->field = from->field;
    item->opt_step = from->opt_weight_shard_step;
    item->opt_size = from->opt_weight_shard_size;
    return rc;
}

int rfs_strategy_doc_build(const struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                           struct rfs_error *err)
{
    const Straspb__ParallelStrategyMap *map = &doc->map;
    struct rfs_strategy_facts facts = {.has_items = map->n_parallel_strategy_item > 0};
    RFS_CLEANUP(rfs_strategy_builder_cleanup) struct rfs_strategy_builder *builder = NULL;
    RFS_CLEANUP(rfs_layout_end) struct rfs_layout_builder item = {.file = doc->name, .err = err};
    int rc = 0;

    *out = NULL;
    if (facts.has_items)
        facts.first_item_stage = map->parallel_strategy_item[0]->parallel_strategys->stage;
    builder = rfs_strategy_builder_new(doc->name, &facts);
    if (!builder)
        return rfs_fail_memory(err);
    for (size_t i = 0; rc == 0 && i < map->n_parallel_layout_item; i++) {
        const Straspb__ParallelLayoutItem *from = map->parallel_layout_item[i];
        rfs_layout_begin(&item, rfs_strategy_doc_text(from->param_name), from->param_name.len);
        rc = fill_layout(&item, from->parallel_layouts, &doc->shapes[i])
                 ?: rfs_strategy_builder_add(builder, &item);
    }
    return rc ? rc : rfs_strategy_builder_finish(builder, out, err);
}

int rfs_strategy_parse(const char *name, const void *data, size_t size, struct rfs_strategy **out,
                       struct rfs_error *err)
{
    RFS_CLEANUP(rfs_strategy_doc_free) struct rfs_strategy_doc doc;

    *out = NULL;
    rfs_strategy_doc_begin(&doc, name);
    return rfs_strategy_doc_parse(&doc, data, size, err) ?: rfs_strategy_doc_build(&doc, out, err);
}

/* ---- shapes ---- */

/*
 * Gives the entries of a flat map to axes: their parts of the expanded shape multiply to the axis.
 * Entries of 1, of device axes of one device, may fall to either side: they cut nothing. END[i] is
 * the entry behind those of axis i.
 */
static bool nest(const struct rfs_strategy_doc_shape *shape, uint32_t ndim, const uint64_t *whole,
                 uint32_t *end)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < ndim; i++) {
        const uint32_t begin = at;
        uint64_t product = 1;
        while (at < shape->n && (at == begin || product < whole[i] || i + 1 == ndim))
            if (__builtin_mul_overflow(product, (uint64_t)shape->dims[at++], &product))
                return false;
        if (at == begin || product != whole[i])
            return false;
        end[i] = at;
    }
    return at == shape->n;
}

/* Replaces the one map of a layout by one for each axis. */
static bool divide_map(struct rfs_strategy_doc *doc, Straspb__ParallelLayouts *layouts,
                       uint32_t ndim, const uint32_t *end)
{
    const Straspb__TensorMap *flat = layouts->tensor_map[0];
    int64_t cuts[RFS_MAX_CUTS];

    for (size_t i = 0; i < flat->n_dim; i++)
        cuts[i] = flat->dim[i];
    layouts->n_tensor_map = 0;
    return add_maps(doc, layouts, cuts, ndim, end);
}

/* Returns the number of axes that the maps of a layout are of; empty maps count for none. */
static uint32_t axes_of(const Straspb__ParallelLayouts *layouts, uint32_t *end)
{
    uint32_t axes = 0, at = 0;

    for (size_t i = 0; i < layouts->n_tensor_map; i++) {
        const size_t n = layouts->tensor_map[i]->n_dim;
        for (size_t k = 0; k < n; k++) {
            at++;
            if (layouts->n_tensor_map == 1 || k + 1 == n)
                end[axes++] = at;
        }
    }
    return axes;
}

/* Sets the whole shape, each axis that several device axes cut as their extents and the rest. */
static bool expand(struct rfs_strategy_doc *doc, const Straspb__ParallelLayouts *layouts,
                   const uint64_t *whole, struct rfs_strategy_doc_shape *shape)
{
    uint32_t end[RFS_MAX_CUTS];
    const uint32_t axes = axes_of(layouts, end);

    *shape = (struct rfs_strategy_doc_shape){.known = true, .n = cuts_of(layouts)};
    shape->dims = rfs_strategy_doc_alloc(doc, shape->n * sizeof *shape->dims);
    for (uint32_t i = 0, e = 0; shape->dims && i < axes; i++) {
        uint64_t rest = whole[i];
        for (; e < end[i]; e++) {
            const uint64_t extent = extent_of(layouts, cut_at(layouts, e));
            shape->dims[e] = (int64_t)(e + 1 < end[i] ? extent : rest);
            rest /= extent;
        }
    }
    return shape->dims != NULL;
}

int rfs_strategy_doc_set_shape(struct rfs_strategy_doc *doc, size_t i, uint32_t ndim,
                               const uint64_t *whole, struct rfs_error *err)
{
    const Straspb__ParallelLayoutItem *item = doc->map.parallel_layout_item[i];
    struct rfs_strategy_doc_shape *shape = &doc->shapes[i];
    uint32_t end[RFS_MAX_CUTS];
    const uint32_t axes = axes_of(item->parallel_layouts, end);
    bool fits = axes == ndim, ok = true;

    if (shape->flat && axes > ndim && shape->known) {
        fits = nest(shape, ndim, whole, end);
        ok = !fits || divide_map(doc, item->parallel_layouts, ndim, end);
    }
    if (!fits)
        return rfs_fail(err, -EINVAL, RFS_OF(doc->name, rfs_strategy_doc_text(item->param_name)),
                        "the tree that was saved under this strategy",
                        "its tensor map does not go with the shape of the tensor");
    return ok && expand(doc, item->parallel_layouts, whole, shape) ? 0 : fail_room(doc, err);
}

/* ---- merging ---- */

/* Gives a parameter's message another name, with the stage before it. */
static bool prefix(struct rfs_strategy_doc *doc, uint32_t stage, ProtobufCBinaryData from,
                   ProtobufCBinaryData *to)
{
    RFS_FREE char *text = rfs_text_printf("%" PRIu32 "-%s", stage, rfs_strategy_doc_text(from));

    return text && set_name(doc, to, text, strlen(text));
}

bool rfs_strategy_doc_append(struct rfs_strategy_doc *into, const struct rfs_strategy_doc *from,
                             uint32_t stage)
{
    Straspb__ParallelStrategyMap *map = &into->map;
    const size_t n = from->map.n_parallel_layout_item;

    if (!rfs_strategy_doc_reserve(into, from->map.n_parallel_strategy_item, n))
        return false;
    for (size_t i = 0; i < from->map.n_parallel_strategy_item; i++)
        map->parallel_strategy_item[map->n_parallel_strategy_item++] =
            from->map.parallel_strategy_item[i];
    for (size_t i = 0; i < n; i++) {
        const Straspb__ParallelLayoutItem *item = from->map.parallel_layout_item[i];
        Straspb__ParallelLayoutItem *copy = NEW(into, parallel_layout_item);
        if (!copy || !prefix(into, stage, item->param_name, &copy->param_name))
            return false;
        copy->parallel_layouts = item->parallel_layouts;
        into->shapes[map->n_parallel_layout_item] = from->shapes[i];
        map->parallel_layout_item[map->n_parallel_layout_item++] = copy;
    }
    return true;
}

/* ---- from a strategy ---- */

/*
 * Adds the tensor map: one list, or one for each axis if any axis has several device axes. Axes
 * that nothing cuts are -1, as files have them.
 */
static bool make_map(struct rfs_strategy_doc *doc, const struct rfs_layout *from,
                     Straspb__ParallelLayouts *to)
{
    int64_t cuts[2 * RFS_MAX_CUTS];
    uint32_t end[RFS_MAX_CUTS], n = 0;
    bool nested = false;

    for (uint32_t i = 0; i < from->n_axes; i++) {
        nested |= from->start[i + 1] - from->start[i] > 1;
        for (uint32_t e = from->start[i]; e < from->start[i + 1]; e++)
            cuts[n++] = from->map[e];
        if (from->start[i] == from->start[i + 1])
            cuts[n++] = -1;
        end[i] = n;
    }
    return nested ? add_maps(doc, to, cuts, from->n_axes, end)
                  : rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_MAP, cuts, n);
}

static bool make_split(struct rfs_strategy_doc *doc, const struct rfs_layout *from,
                       Straspb__ParallelLayouts *to)
{
    const uint32_t n = from->n_edges > 0 ? from->n_edges - 1 : 0;
    RFS_FREE int64_t *rows = malloc((2 * (size_t)n + 1) * sizeof *rows);

    if (!rows)
        return false;
    for (uint32_t k = 0; k < n; k++) {
        rows[k] = (int64_t)(from->edge[k + 1] - from->edge[k]);
        rows[n + k] = (int64_t)from->edge[k];
    }
    return rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_SPLIT, rows, n) &&
           rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_OFFSETS, rows + n, n);
}

static bool make_shape(struct rfs_strategy_doc *doc, const struct rfs_layout *from,
                       struct rfs_strategy_doc_shape *shape)
{
    shape->flat = shape->known = from->n_expanded > 0;
    shape->n = from->n_expanded;
    shape->dims = rfs_strategy_doc_alloc(doc, shape->n * sizeof *shape->dims);
    for (uint32_t i = 0; shape->dims && i < shape->n; i++)
        shape->dims[i] = (int64_t)from->expanded[i];
    return shape->dims != NULL;
}

bool rfs_strategy_doc_make_layout(struct rfs_strategy_doc *doc, const char *name,
                                  const struct rfs_layout *from)
{
    const size_t i = doc->map.n_parallel_layout_item;
    Straspb__ParallelLayouts *to = rfs_strategy_doc_add_param(doc, name, strlen(name));
    int64_t dev[RFS_MAX_DEVICE_AXES];

    for (uint32_t p = 0; p < from->n_dev; p++)
        dev[p] = from->dev[p];
    if (!to || !rfs_strategy_doc_add_list(doc, to, RFS_STRATEGY_DOC_DEV, dev, from->n_dev) ||
        !make_map(doc, from, to) || !make_split(doc, from, to) ||
        !make_shape(doc, from, &doc->shapes[i]))
        return false;
    to->field = (int32_t)from->field;
    to->opt_weight_shard_step = (int32_t)from->opt_step;
    to->opt_weight_shard_size = (int32_t)from->opt_size;
    return true;
}

static int make_param(const struct rfs_strategy *strategy, size_t i, uint32_t stage,
                      const struct rfs_strategy_doc_tensors *tensors, struct rfs_strategy_doc *doc,
                      struct rfs_error *err)
{
    const char *param = rfs_strategy_param(strategy, i);
    const struct rfs_where where = RFS_OF(rfs_strategy_name(strategy), param);
    struct rfs_layout layout = *rfs_strategy_layout(strategy, i, stage);
    int rc = 0;

    if (strchr(param, '-'))
        return rfs_fail(err, -EINVAL, where, "names= in -o with another name",
                        "its name has a \"-\", and strategy files have stages before that");
    if (layout.unclear != RFS_CLEAR)
        return rfs_fail(err, -EINVAL, where, NULL, "it is not clear what its layout means: %s",
                        rfs_layout_unclear(&layout));
    if (layout.open) {
        const int ndim = tensors ? tensors->ndim(tensors->ctx, param, stage) : -1;
        const struct rfs_layout open = layout;
        if (ndim < 0 || ndim > RFS_GRID_DIMS)
            return rfs_fail(err, -EINVAL, where, "--tree SRC with the checkpoint",
                            "a rule says how it is cut, but not how many axes it has");
        rc = rfs_layout_close(&open, (uint32_t)ndim, &layout, where, err);
    }
    if (rc)
        return rc;
    /* Elsewhere a file's field means something else (tensor_layout.c). */
    if (layout.field > 0 &&
        (layout.field_axis != 0 || layout.n_axes != 2 || layout.start[1] != 1 ||
         layout.dev[rfs_layout_position(&layout, layout.map[0])] != layout.devices))
        return rfs_fail(err, -EINVAL, where, "the rules instead of a file",
                        "a strategy file has fields of a matrix that all devices cut only");
    RFS_FREE char *name = rfs_strategy_stages(strategy) > 1
                              ? rfs_text_printf("%" PRIu32 "-%s", stage, param)
                              : strdup(param);
    return name && rfs_strategy_doc_make_layout(doc, name, &layout) ? 0 : fail_room(doc, err);
}

int rfs_strategy_doc_make(const struct rfs_strategy *strategy,
                          const struct rfs_strategy_doc_tensors *tensors,
                          struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    const size_t n = rfs_strategy_count(strategy);
    size_t params = 0;
    char name[32];
    int rc = 0;

    rfs_strategy_doc_begin(doc, rfs_strategy_name(strategy));
    doc->map.current_stage = stages > 1 ? MERGED_STAGE : COMPILED_STAGE;
    for (size_t i = 0; i < n; i++)
        for (uint32_t stage = 0; stage < stages; stage++)
            params += rfs_strategy_layout(strategy, i, stage) != NULL;
    if (!rfs_strategy_doc_reserve(doc, stages, params))
        return fail_room(doc, err);
    for (uint32_t stage = 0; stage < stages; stage++) {
        snprintf(name, sizeof name, "Stage%" PRIu32, stage);
        if (!rfs_strategy_doc_add_node(doc, name, strlen(name), stage))
            return fail_room(doc, err);
    }
    for (uint32_t stage = 0; stage < stages; stage++)
        for (size_t i = 0; i < n && rc == 0; i++)
            if (rfs_strategy_layout(strategy, i, stage))
                rc = make_param(strategy, i, stage, tensors, doc, err);
    return rc;
}
