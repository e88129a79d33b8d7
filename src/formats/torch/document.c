/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/torch/document.h"

void rfs_document_free(struct rfs_document *document)
{
    rfs_arena_free(&document->arena);
    free(document->names.data);
    free(document->ranges.data);
    free(document->made.data);
    *document = (struct rfs_document){0};
}

/* Allocates of the document's memory; NULL once that has failed. */
static void *allocate(struct rfs_document *document, size_t size)
{
    void *block = document->failed ? NULL : rfs_arena_alloc(&document->arena, size);

    document->failed = !block;
    return block;
}

static struct rfs_node *new_node(struct rfs_document *document, enum rfs_node_kind kind)
{
    struct rfs_node *node = allocate(document, sizeof *node);
    if (node) {
        memset(node, 0, sizeof *node);
        node->kind = (uint8_t)kind;
        node->origin = RFS_ORIGIN_MADE;
    }
    return node;
}

/* Makes a container with room for N items, which it does not exceed. */
static struct rfs_node *new_items(struct rfs_document *document, enum rfs_node_kind kind,
                                  uint32_t n)
{
    struct rfs_node *node = new_node(document, kind);

    if (node && n > 0) {
        node->of.items.data = allocate(document, n * sizeof *node->of.items.data);
        node->of.items.cap = n;
    }
    return document->failed ? NULL : node;
}

/* Makes a text that the document borrows. */
static struct rfs_node *new_text(struct rfs_document *document, const char *text)
{
    struct rfs_node *node = text ? new_node(document, RFS_NODE_TEXT) : NULL;

    document->failed |= !node;
    if (node) {
        node->of.text.n = (uint32_t)strlen(text);
        node->of.text.data = text;
    }
    return node;
}

struct rfs_node *rfs_document_text(struct rfs_document *document, const char *text)
{
    return new_text(document,
                    document->failed ? NULL : rfs_arena_text(&document->arena, text, strlen(text)));
}

/* No pickle tells equal numbers apart, so most tensors share them. */
struct rfs_node *rfs_document_int(struct rfs_document *document, int64_t value)
{
    struct rfs_node **known = &document->ints[(uint64_t)value % RFS_DOCUMENT_INTS];
    struct rfs_node *node = *known;

    if (node && node->of.integer == value)
        return node;
    node = *known = new_node(document, RFS_NODE_INT);
    if (node)
        node->of.integer = value;
    return node;
}

struct rfs_node *rfs_document_container(struct rfs_document *document, enum rfs_node_kind kind)
{
    return new_node(document, kind);
}

static bool is_name(const struct rfs_node *node, const char *module, const char *name)
{
    return node->of.global.module_bytes == strlen(module) &&
           memcmp(node->of.global.module, module, strlen(module)) == 0 &&
           node->of.global.name_bytes == strlen(name) &&
           memcmp(rfs_pickle_global_name(node), name, strlen(name)) == 0;
}

static struct rfs_node *global(struct rfs_document *document, enum rfs_callable callable,
                               const char *module, const char *name)
{
    char both[256];

    for (size_t i = 0; i < document->names.n; i++)
        if (is_name(document->names.data[i], module, name))
            return document->names.data[i];
    snprintf(both, sizeof both, "%s\n%s", module, name); /* names of ours, which fit */
    struct rfs_node *node = new_node(document, RFS_NODE_GLOBAL);
    if (!node)
        return NULL;
    node->callable = (uint8_t)callable;
    node->of.global.module = rfs_arena_text(&document->arena, both, strlen(both));
    node->of.global.module_bytes = (uint16_t)strlen(module);
    node->of.global.name_bytes = (uint16_t)strlen(name);
    document->failed = !node->of.global.module || !RFS_PUSH(&document->names, node);
    return node;
}

static struct rfs_node *new_call(struct rfs_document *document, struct rfs_node *callee,
                                 struct rfs_node *args)
{
    struct rfs_node *node = callee && args ? new_node(document, RFS_NODE_CALL) : NULL;
    if (node) {
        node->of.call.callee = callee;
        node->of.call.args = args;
    }
    return node;
}

void rfs_document_add(struct rfs_document *document, struct rfs_node *container,
                      const struct rfs_node *item)
{
    /* A node must not change once it is in a container. */
    struct rfs_node *added = (struct rfs_node *)(uintptr_t)item;

    document->failed = document->failed || !container || !item ||
                       !rfs_pickle_add_items(&document->arena, &container->of.items, &added, 1);
}

struct rfs_node *rfs_document_ordered(struct rfs_document *document, struct rfs_node *pairs)
{
    struct rfs_node *class = global(document, RFS_CALL_ORDERED_DICT, "collections", "OrderedDict");

    if (!document->empty)
        document->empty = new_node(document, RFS_NODE_TUPLE);
    struct rfs_node *node = new_call(document, class, document->empty);
    struct rfs_after *after =
        pairs && pairs->of.items.n > 0 ? allocate(document, sizeof *after) : NULL;

    if (!node || !after)
        return document->failed ? NULL : node;
    *after = (struct rfs_after){.dict = pairs};
    node->of.call.after = after;
    return node;
}

static struct rfs_node *numbers(struct rfs_document *document, uint32_t n, const uint64_t *values)
{
    struct rfs_node *tuple = new_items(document, RFS_NODE_TUPLE, n);

    for (uint32_t i = 0; i < n; i++)
        rfs_document_add(document, tuple, rfs_document_int(document, (int64_t)values[i]));
    return tuple;
}

struct rfs_node *rfs_document_size(struct rfs_document *document, uint32_t ndim,
                                   const uint64_t *dims)
{
    struct rfs_node *args = new_node(document, RFS_NODE_TUPLE);

    rfs_document_add(document, args, numbers(document, ndim, dims));
    return new_call(document, global(document, RFS_CALL_SIZE, "torch", "Size"), args);
}

void rfs_document_reserve(struct rfs_document *document, uint64_t bytes)
{
    const struct rfs_made_storage fresh = {document->ranges.n, 0, bytes};

    document->failed = document->failed || !RFS_PUSH(&document->made, fresh);
}

void rfs_document_range(struct rfs_document *document, const struct rfs_range *range)
{
    if (range->bytes > 0)
        document->failed = document->failed || !RFS_PUSH(&document->ranges, *range);
    if (document->failed) /* there may be no storage */
        return;
    struct rfs_made_storage *made = &document->made.data[document->made.n - 1];
    made->n += range->bytes > 0;
    made->bytes += range->bytes;
}

/* Makes the persistent id of the storage begun last; its number is that of the made storage. */
static struct rfs_node *storage(struct rfs_document *document, enum rfs_dtype dtype)
{
    const char *class = rfs_torch_storage_class(dtype);
    const uint64_t item = class ? rfs_dtype_bytes(dtype) : 1;
    struct rfs_node *node = new_items(document, RFS_NODE_STORAGE, 5);

    if (!node)
        return NULL;
    const uint64_t bytes = document->made.data[document->made.n - 1].bytes;
    node->number = (uint32_t)document->made.n - 1;
    if (!document->storage_text)
        document->storage_text = rfs_document_text(document, "storage");
    rfs_document_add(document, node, document->storage_text);
    rfs_document_add(document, node,
                     global(document, RFS_CALL_STORAGE_CLASS, class ? "torch" : "torch.storage",
                            class ? class : "UntypedStorage"));
    rfs_document_add(document, node, document->storage_text); /* key and location: */
    rfs_document_add(document, node, document->storage_text); /* set by the writer */
    rfs_document_add(document, node, rfs_document_int(document, (int64_t)(bytes / item)));
    return node;
}

struct rfs_node *rfs_document_tensor(struct rfs_document *document, enum rfs_dtype dtype,
                                     uint32_t ndim, const uint64_t *dims)
{
    const bool typed = rfs_torch_storage_class(dtype) != NULL;
    struct rfs_node *args = new_items(document, RFS_NODE_TUPLE, typed ? 6 : 7);
    uint64_t strides[RFS_MAX_DIMS];
    uint64_t step = 1;

    for (uint32_t i = ndim; i-- > 0; step *= dims[i] > 0 ? dims[i] : 1)
        strides[i] = step;
    if (!document->untrue)
        document->untrue = new_node(document, RFS_NODE_BOOL);
    struct rfs_node *hooks = rfs_document_ordered(document, NULL);
    rfs_document_add(document, args, storage(document, dtype));
    rfs_document_add(document, args, rfs_document_int(document, 0));
    rfs_document_add(document, args, numbers(document, ndim, dims));
    rfs_document_add(document, args, numbers(document, ndim, strides));
    rfs_document_add(document, args, document->untrue);
    rfs_document_add(document, args, hooks);
    if (!typed)
        rfs_document_add(document, args,
                         global(document, RFS_CALL_DTYPE, "torch", rfs_torch_dtype_name(dtype)));
    return new_call(document,
                    global(document, typed ? RFS_CALL_TENSOR : RFS_CALL_TENSOR_V3, "torch._utils",
                           typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3"),
                    args);
}

static int fail_type(const struct rfs_image_tensor *tensor, const char *path, struct rfs_error *err)
{
    const struct rfs_type *type = tensor->type;
    const char *what = type->kind == RFS_STRING ? "a string"
                       : type->kind == RFS_MAP  ? "a map tensor"
                                                : rfs_dtype_name((enum rfs_dtype)type->dtype);
    return rfs_fail(err, -EINVAL, RFS_OF(path, tensor->source_name),
                    rfs_dtype_is_block((enum rfs_dtype)type->dtype)
                        ? RFS_DTYPE_DEQUANTIZE
                        : "format=ckpt, or names= mapping it to null to leave it out",
                    "is %s, and torch has no tensors of that type", what);
}

int rfs_document_dict(struct rfs_document *document, const struct rfs_image_tensor *tensors,
                      size_t n, const char *path, struct rfs_error *err)
{
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);

    for (size_t i = 0; i < n; i++) {
        const struct rfs_type *type = tensors[i].type;
        const enum rfs_dtype dtype = (enum rfs_dtype)type->dtype;
        if (type->kind != RFS_TENSOR || !rfs_torch_dtype_name(dtype))
            return fail_type(&tensors[i], path, err);
        rfs_document_reserve(document, type->bytes);
        rfs_document_add(document, dict, new_text(document, tensors[i].name));
        rfs_document_add(document, dict,
                         rfs_document_tensor(document, dtype, type->ndim, type->dims));
    }
    document->root = dict;
    return document->failed ? rfs_fail_memory(err) : 0;
}
