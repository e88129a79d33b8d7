/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All tensors of a file of torch.save, in whatever dicts and lists they are, each named by the keys
 * on the way to it. A shared value is shown where it is met first.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/torch/torch.h"

struct torch_listing {
    const struct rfs_torch *torch;
    const char *path;
    rfs_index_each_fn *each;
    void *ctx;
    bool *seen; /* [number] containers that were visited */
    size_t others;
    struct rfs_error *err;
};

/* Writes a key that is no tuple. Returns its length, as far as it fits. */
static size_t put_key(const struct rfs_node *key, char *out, size_t size)
{
    int n;

    if (key->kind == RFS_NODE_TEXT)
        n = snprintf(out, size, "%.*s", (int)rfs_min_u64(key->of.text.n, size), key->of.text.data);
    else if (key->kind == RFS_NODE_INT)
        n = snprintf(out, size, "%" PRId64, key->of.integer);
    else
        n = snprintf(out, size, "?");
    return n < 0 ? 0 : rfs_min_u64((uint64_t)n, size - 1);
}

/* Writes a key; hfai's are tuples of a name and a number. Returns OUT. */
static const char *key_text(const struct rfs_node *key, char *out, size_t size)
{
    const struct rfs_items *items = key->kind == RFS_NODE_TUPLE ? &key->of.items : NULL;
    size_t at = items ? 0 : put_key(key, out, size);

    for (uint32_t i = 0; items && i < items->n; i++) {
        at += i > 0 && at + 1 < size ? (size_t)snprintf(out + at, size - at, ",") : 0;
        at += put_key(items->data[i], out + at, size - at);
    }
    if (at == 0)
        snprintf(out, size, "?");
    return out;
}

static int take_tensor(struct torch_listing *listing, const char *name,
                       const struct rfs_torch_tensor *tensor)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {.bytes = tensor->elements * item,
                            .ndim = (uint8_t)tensor->ndim,
                            .dtype = (uint8_t)tensor->dtype,
                            .kind = RFS_TENSOR};

    memcpy(type.dims, tensor->dims, tensor->ndim * sizeof *type.dims);
    return listing->each(listing->ctx, name, &type, tensor->record->offset + tensor->offset * item)
               ? 0
               : rfs_fail_memory(listing->err);
}

static int visit(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                 unsigned depth);

static int visit_below(struct torch_listing *listing, const struct rfs_node *node,
                       const char *above, const char *key, unsigned depth)
{
    RFS_FREE char *name = rfs_text_printf("%s%s%s", above, *above ? "." : "", key);
    if (!name)
        return rfs_fail_memory(listing->err);
    return visit(listing, node, name, depth + 1);
}

static int visit_items(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                       unsigned depth)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);
    const struct rfs_items *items = pairs ? pairs : &node->of.items;
    const uint32_t step = pairs ? 2 : 1;
    char key[512];
    int rc = 0;

    for (uint32_t i = 0; i + step <= items->n && rc == 0; i += step) {
        if (pairs)
            key_text(items->data[i], key, sizeof key);
        else
            snprintf(key, sizeof key, "%" PRIu32, i);
        rc = visit_below(listing, items->data[i + step - 1], name, key, depth);
    }
    return rc;
}

static int visit(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                 unsigned depth)
{
    struct rfs_torch_tensor tensor;
    const int rc =
        rfs_torch_tensor(listing->torch, node, listing->path, name, &tensor, listing->err);

    if (rc < 0)
        return rc;
    if (rc == 1)
        return take_tensor(listing, name, &tensor);
    if (!rfs_pickle_pairs(node) && node->kind != RFS_NODE_LIST && node->kind != RFS_NODE_TUPLE) {
        listing->others++;
        return 0;
    }
    if (depth >= RFS_PICKLE_DEPTH || listing->seen[node->number])
        return 0;
    listing->seen[node->number] = true;
    return visit_items(listing, node, name, depth);
}

int rfs_torch_list(const struct rfs_bytes_source *from, rfs_index_each_fn *each, void *each_ctx,
                   size_t *others, struct rfs_error *err)
{
    struct rfs_torch torch;
    int rc = rfs_torch_open(from, 0, &torch, err);

    if (rc)
        return rc;
    struct torch_listing listing = {
        .torch = &torch,
        .path = from->file,
        .each = each,
        .ctx = each_ctx,
        .seen = calloc((size_t)torch.pickle.n_nodes + 1, sizeof *listing.seen),
        .err = err};
    rc = listing.seen ? visit(&listing, torch.pickle.root, "", 0) : rfs_fail_memory(err);
    *others = listing.others;
    free(listing.seen);
    rfs_torch_free(&torch);
    return rc;
}
