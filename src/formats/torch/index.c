/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/torch/index.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"

#define REMEDY_ENTRY "-o entry=NAME, which says where in it the state dict is"

struct walk {
    const struct rfs_torch *torch;
    const char *file;
    struct rfs_tables *tables;
    struct rfs_error *err;
    RFS_VEC(struct rfs_entry) entries;
    RFS_VEC(struct rfs_strided) strided;
    struct rfs_torch_shown shown;
    unsigned char *met; /* a bit for each node that was a key */
    size_t left_out;
};

/* The value of a dict by a key of N bytes. */
static const struct rfs_node *member(const struct rfs_node *node, const char *key, size_t n)
{
    const struct rfs_items *pairs = rfs_node_pairs(node);

    for (uint32_t i = 0; pairs && i < pairs->n; i += 2)
        if (pairs->data[i]->kind == RFS_NODE_TEXT && pairs->data[i]->of.text.n == n &&
            memcmp(pairs->data[i]->of.text.data, key, n) == 0)
            return pairs->data[i + 1];
    return NULL;
}

/* Follows "a.b" from the root; a name with dots in it is found if it is there as a whole. */
int rfs_torch_find_dict(const struct rfs_torch *torch, const char *file, const char *entry,
                        const struct rfs_node **out, struct rfs_error *err)
{
    const struct rfs_node *node = torch->pickle.root;
    const char *rest = entry;

    while (rest && *rest) {
        const struct rfs_node *next = member(node, rest, strlen(rest));
        const size_t n = next ? strlen(rest) : strcspn(rest, ".");
        next = next ? next : member(node, rest, n);
        if (!next)
            return rfs_fail(err, -EINVAL, RFS_IN(file), "the name of a dict in it",
                            "it has nothing at entry=%s", entry);
        node = next;
        rest += n;
        rest += *rest == '.';
    }
    *out = node;
    return rfs_node_pairs(node) ? 0
                                : rfs_fail(err, -EINVAL, RFS_IN(file), REMEDY_ENTRY,
                                           "its content is not a dict of tensors");
}

static int take_tensor(struct walk *walk, uint32_t name, const struct rfs_torch_tensor *tensor)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {.bytes = tensor->elements * item,
                            .ndim = (uint8_t)tensor->ndim,
                            .dtype = (uint8_t)tensor->dtype,
                            .kind = RFS_TENSOR};
    struct rfs_strided strided = {.entry = (uint32_t)walk->entries.n};

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        type.dims[i] = tensor->dims[i];
        strided.stride[i] = tensor->strides[i] * item;
    }
    const struct rfs_entry entry = {
        .offset = tensor->record->offset + tensor->offset * item,
        .name = name,
        .type = rfs_intern_add(walk->tables->types, &type, sizeof type),
    };
    const bool ok = entry.name != RFS_NO_ID && entry.type != RFS_NO_ID &&
                    RFS_PUSH(&walk->entries, entry) &&
                    (tensor->contiguous || type.bytes == 0 || RFS_PUSH(&walk->strided, strided));
    return ok ? 0 : rfs_fail_memory(walk->err);
}

static int fail_twice(const struct walk *walk, const char *name)
{
    return rfs_fail(walk->err, -EINVAL, RFS_OF(walk->file, name), "save it again",
                    "is twice in the file");
}

/* A text can be had again for two bytes, so it is looked at as a key no more than once. */
static bool was_met(struct walk *walk, const struct rfs_node *key)
{
    unsigned char *byte = &walk->met[key->number / 8];
    const unsigned char bit = (unsigned char)(1u << key->number % 8);
    const bool met = *byte & bit;

    *byte |= bit;
    return met;
}

static int take_pair(struct walk *walk, const struct rfs_node *key, const struct rfs_node *value)
{
    struct rfs_torch_tensor tensor;
    char name[256];

    if (key->kind != RFS_NODE_TEXT || key->of.text.n == 0) {
        walk->left_out++;
        return 0;
    }
    const size_t named = key->of.text.n < sizeof name ? key->of.text.n : sizeof name - 1;
    memcpy(name, key->of.text.data, named);
    name[named] = '\0';
    if (was_met(walk, key))
        return fail_twice(walk, name);
    if (!rfs_text_is_utf8(key->of.text.data, key->of.text.n))
        return rfs_fail(walk->err, -EINVAL, RFS_OF(walk->file, name), "give it another name",
                        "the name is not UTF-8 text without NULs");
    int rc = rfs_torch_tensor(walk->torch, value, walk->file, name, &tensor, walk->err);
    walk->left_out += rc == 0;
    if (rc == 1)
        rc = rfs_torch_show(&walk->shown, tensor.elements * rfs_dtype_bytes(tensor.dtype),
                            walk->file, name, walk->err);
    else
        return rc;
    if (rc)
        return rc;
    return take_tensor(walk, rfs_intern_add(walk->tables->names, key->of.text.data, key->of.text.n),
                       &tensor);
}

static int finish(struct walk *walk, uint64_t size, struct rfs_index **out)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t first;
    size_t second;

    if (!index)
        return rfs_fail_memory(walk->err);
    index->n = walk->entries.n;
    index->entries = walk->entries.data;
    index->n_strided = walk->strided.n;
    index->strided = walk->strided.data;
    index->file_bytes = size;
    walk->entries.data = NULL;
    walk->strided.data = NULL;
    const int rc = rfs_index_order_names(index, &first, &second);
    if (rc == 0) {
        *out = index;
        return 0;
    }
    const char *name =
        rc == 1 ? rfs_intern_text(walk->tables->names, index->entries[first].name) : "";
    const int failed = rc < 0 ? rfs_fail_memory(walk->err) : fail_twice(walk, name);
    rfs_index_free(index);
    return failed;
}

static int walk_dict(struct walk *walk, const char *entry, uint64_t size, struct rfs_index **out)
{
    const struct rfs_node *dict = NULL;

    int rc = rfs_torch_find_dict(walk->torch, walk->file, entry, &dict, walk->err);
    const struct rfs_items *pairs = rc == 0 ? rfs_node_pairs(dict) : NULL;
    for (uint32_t i = 0; pairs && rc == 0 && i < pairs->n; i += 2)
        rc = take_pair(walk, pairs->data[i], pairs->data[i + 1]);
    if (rc == 0 && walk->entries.n == 0)
        rc = rfs_fail(walk->err, -EINVAL, RFS_IN(walk->file), REMEDY_ENTRY,
                      "the dict in it has no tensors");
    return rc ? rc : finish(walk, size, out);
}

int rfs_torch_walk(rfs_read_fn *read, void *ctx, uint64_t size, const char *file, const char *entry,
                   struct rfs_tables *tables, struct rfs_index **out, size_t *left_out,
                   struct rfs_error *err)
{
    struct rfs_torch torch;

    *out = NULL;
    *left_out = 0;
    int rc = rfs_torch_open(read, ctx, size, 0, file, &torch, err);
    if (rc)
        return rc;
    RFS_FREE unsigned char *met = calloc((size_t)torch.pickle.n_nodes / 8 + 1, 1);
    struct walk walk = {.torch = &torch,
                        .file = file,
                        .tables = tables,
                        .err = err,
                        .shown = {.file_bytes = size},
                        .met = met};
    rc = met ? walk_dict(&walk, entry, size, out) : rfs_fail_memory(err);
    *left_out = walk.left_out;
    free(walk.entries.data);
    free(walk.strided.data);
    rfs_torch_free(&torch);
    return rc;
}
