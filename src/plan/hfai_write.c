/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state in other files: what dist_ckpt.save would write from another number of ranks, and what
 * dist_ckpt.load returns, whole.
 *
 * Division (split_dict): values in descending order of their weight, each to the part that has the least so
 * far, the lowest of those. Among equals the parts' own order stays, which is the reverse of the module's.
 * Which tensors of part 0 are buffers is not written anywhere, so they are divided as parameters are;
 * load() does not care where a name is.
 */
#include "plan/hfai_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct writing {
    const struct rfs_hfai *hfai;
    struct rfs_document *document;
    uint32_t part, n;
    uint64_t large; /* bytes; more than that is cut */
    struct rfs_error *err;
};

static uint64_t large_bytes(const struct hfai_large *large)
{
    return large->elements * rfs_dtype_bytes(large->dtype);
}

/* The tensor of a value, if it is to be cut; whole values that do not lie in a row are left whole. */
static bool is_cut(const struct writing *writing, const struct rfs_node *value,
                   struct rfs_torch_tensor *tensor)
{
    return value->origin < writing->hfai->n_parts &&
           rfs_torch_tensor(&writing->hfai->parts[value->origin].torch, value, "", "", tensor,
                            NULL) == 1 &&
           tensor->contiguous && tensor->elements * rfs_dtype_bytes(tensor->dtype) > writing->large;
}

/* Adds bytes [begin, end) of what the ranges make together to the storage that was begun last. */
static bool add_ranges(struct rfs_document *document, const struct rfs_range *ranges, size_t n,
                       uint64_t begin, uint64_t end)
{
    uint64_t at = 0;

    for (size_t i = 0; i < n && at < end; i++) {
        const uint64_t from = begin > at ? begin - at : 0;
        const uint64_t to = end - at < ranges[i].bytes ? end - at : ranges[i].bytes;
        at += ranges[i].bytes;
        if (from >= to)
            continue;
        struct rfs_range range = ranges[i];
        range.offset += from;
        range.bytes = to - from;
        if (!rfs_document_range(document, &range))
            return false;
    }
    return true;
}

/* What torch.chunk gives: bytes [*begin, *end) of BYTES for this part; later parts may get nothing. */
static void cut(const struct writing *writing, uint64_t elements, uint64_t item, uint64_t *begin,
                uint64_t *end)
{
    const uint64_t chunk = elements / writing->n + (elements % writing->n != 0);

    *begin = chunk * writing->part < elements ? chunk * writing->part : elements;
    *end = *begin + chunk < elements ? *begin + chunk : elements;
    *begin *= item;
    *end *= item;
}

/* (torch.Size, piece) */
static struct rfs_node *make_piece(const struct writing *writing, enum rfs_dtype dtype,
                                   uint32_t ndim, const uint64_t *dims, uint64_t elements,
                                   const struct rfs_range *ranges, size_t n)
{
    struct rfs_document *document = writing->document;
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    const uint64_t item = rfs_dtype_bytes(dtype);
    uint64_t begin;
    uint64_t end;

    cut(writing, elements, item, &begin, &end);
    const uint64_t length = (end - begin) / item;
    const bool ok =
        rfs_document_begin(document) && add_ranges(document, ranges, n, begin, end) &&
        rfs_document_add(document, pair, rfs_document_size(document, ndim, dims)) &&
        rfs_document_add(document, pair, rfs_document_tensor(document, dtype, 1, &length));
    return ok ? pair : NULL;
}

static struct rfs_range range_of(const struct rfs_torch_tensor *tensor, uint16_t origin)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    return (struct rfs_range){tensor->record, tensor->offset * item, tensor->elements * item,
                              origin};
}

/* A piece of a value that was whole. */
static struct rfs_node *cut_value(const struct writing *writing, const struct rfs_node *value,
                                  const struct rfs_torch_tensor *tensor)
{
    const struct rfs_range range = range_of(tensor, value->origin);
    return make_piece(writing, tensor->dtype, tensor->ndim, tensor->dims, tensor->elements, &range,
                      1);
}

/* A large tensor as one. */
static struct rfs_node *join(struct rfs_document *document, const struct hfai_state *state,
                             const struct hfai_large *large, uint32_t n_parts)
{
    const bool ok =
        rfs_document_begin(document) &&
        add_ranges(document, &state->ranges.data[large->first], n_parts, 0, large_bytes(large));
    return ok ? rfs_document_tensor(document, large->dtype, large->ndim, large->dims) : NULL;
}

static bool add_pair(struct rfs_document *document, struct rfs_node *dict,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    return rfs_document_add(document, dict, key) && rfs_document_add(document, dict, value);
}

/* What one file is to hold of a state: whole values, still to be divided, and pieces. */
struct share {
    RFS_VEC(struct hfai_entry) whole;
    struct rfs_node *pieces; /* a DICT */
};

/* A large tensor under the new threshold: a piece again, or a whole value. */
static bool place_large(const struct writing *writing, const struct hfai_state *state,
                        const struct hfai_large *large, struct share *share, struct rfs_node *dict)
{
    struct rfs_document *document = writing->document;
    const uint32_t n_parts = writing->hfai->n_parts;

    if (large_bytes(large) > writing->large) {
        struct rfs_node *piece =
            make_piece(writing, large->dtype, large->ndim, large->dims, large->elements,
                       &state->ranges.data[large->first], n_parts);
        return add_pair(document, share->pieces, large->key, piece);
    }
    struct rfs_node *whole = join(document, state, large, n_parts);
    if (dict)
        return add_pair(document, dict, large->inner, whole);
    return whole && RFS_PUSH(&share->whole, (struct hfai_entry){large->key, whole});
}

static bool share_model(const struct writing *writing, const struct hfai_state *state,
                        struct share *share)
{
    bool ok = share->pieces != NULL;

    for (size_t i = 0; ok && i < state->entries.n; i++) {
        const struct hfai_entry *entry = &state->entries.data[i];
        struct rfs_torch_tensor tensor;
        ok = is_cut(writing, entry->value, &tensor)
                 ? add_pair(writing->document, share->pieces, entry->key,
                            cut_value(writing, entry->value, &tensor))
                 : RFS_PUSH(&share->whole, *entry);
    }
    for (size_t i = 0; ok && i < state->large.n; i++)
        ok = place_large(writing, state, &state->large.data[i], share, NULL);
    return ok;
}

/* (k1, k2) */
static struct rfs_node *pair_key(struct rfs_document *document, const struct rfs_node *outer,
                                 const struct rfs_node *inner)
{
    struct rfs_node *key = rfs_document_container(document, RFS_NODE_TUPLE);
    return rfs_document_add(document, key, outer) && rfs_document_add(document, key, inner) ? key
                                                                                            : NULL;
}

static bool has_large(const struct hfai_state *state, size_t entry)
{
    for (size_t i = 0; i < state->large.n; i++)
        if (state->large.data[i].owner == entry)
            return true;
    return false;
}

/* An entry whose dict changes: large values go out of it, and come in, at its end. */
static const struct rfs_node *change_entry(const struct writing *writing,
                                           const struct hfai_state *state, size_t i,
                                           struct share *share)
{
    struct rfs_document *document = writing->document;
    const struct hfai_entry *entry = &state->entries.data[i];
    const struct rfs_items *pairs = rfs_node_pairs(entry->value);
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);
    bool ok = dict != NULL;

    for (uint32_t k = 0; ok && k < pairs->n; k += 2) {
        struct rfs_torch_tensor tensor;
        ok = is_cut(writing, pairs->data[k + 1], &tensor)
                 ? add_pair(document, share->pieces, pair_key(document, entry->key, pairs->data[k]),
                            cut_value(writing, pairs->data[k + 1], &tensor))
                 : add_pair(document, dict, pairs->data[k], pairs->data[k + 1]);
    }
    for (size_t k = 0; ok && k < state->large.n; k++)
        if (state->large.data[k].owner == i)
            ok = place_large(writing, state, &state->large.data[k], share, dict);
    return ok ? dict : NULL;
}

static bool holds_cut(const struct writing *writing, const struct rfs_node *value)
{
    const struct rfs_items *pairs = rfs_node_pairs(value);
    struct rfs_torch_tensor tensor;

    for (uint32_t k = 1; pairs && k < pairs->n; k += 2)
        if (is_cut(writing, pairs->data[k], &tensor))
            return true;
    return false;
}

static bool share_optimizer(const struct writing *writing, const struct hfai_state *state,
                            struct share *share)
{
    bool ok = share->pieces != NULL;

    for (size_t i = 0; ok && i < state->entries.n; i++) {
        struct hfai_entry entry = state->entries.data[i];
        if (has_large(state, i) || holds_cut(writing, entry.value))
            entry.value = change_entry(writing, state, i, share);
        ok = entry.value && RFS_PUSH(&share->whole, entry);
    }
    return ok;
}

struct weighed {
    size_t entry;
    uint64_t weight;
};

static int heavier(const void *a, const void *b)
{
    const struct weighed *x = a;
    const struct weighed *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->entry < y->entry ? -1 : 1;
}

/* Adds this part's values to PAIRS. */
static bool divide(const struct writing *writing, const struct share *share, struct rfs_node *pairs)
{
    RFS_FREE struct weighed *order = malloc((share->whole.n + 1) * sizeof *order);
    RFS_FREE uint64_t *sums = calloc(writing->n, sizeof *sums);
    bool ok = order && sums && pairs;

    for (size_t i = 0; ok && i < share->whole.n; i++)
        order[i] = (struct weighed){i, rfs_hfai_weight(writing->hfai, share->whole.data[i].value)};
    if (ok && share->whole.n > 0)
        qsort(order, share->whole.n, sizeof *order, heavier);
    for (size_t i = 0; ok && i < share->whole.n; i++) {
        const struct hfai_entry *entry = &share->whole.data[order[i].entry];
        uint32_t least = 0;
        for (uint32_t p = 1; p < writing->n; p++)
            least = sums[p] < sums[least] ? p : least;
        sums[least] += order[i].weight;
        ok = least != writing->part || add_pair(writing->document, pairs, entry->key, entry->value);
    }
    return ok;
}

/* An optimizer's dict as part 0 has it, with another "state". */
static struct rfs_node *with_state(struct rfs_document *document, const struct hfai_state *state,
                                   struct rfs_node *entries)
{
    const struct rfs_items *rest = rfs_node_pairs(state->rest);
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);
    bool ok = dict && entries;

    for (uint32_t i = 0; ok && i < rest->n; i += 2)
        ok = add_pair(document, dict, rest->data[i],
                      rfs_node_is_text(rest->data[i], "state") ? entries : rest->data[i + 1]);
    return ok ? dict : NULL;
}

/* The pair of one model or optimizer in this part. */
static struct rfs_node *share_state(const struct writing *writing, const struct hfai_state *state)
{
    struct rfs_document *document = writing->document;
    const bool optimizer = state->rest != NULL;
    struct share share = {.pieces = rfs_document_container(document, RFS_NODE_DICT)};
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    struct rfs_node *pairs = rfs_document_container(document, RFS_NODE_DICT);

    bool ok =
        optimizer ? share_optimizer(writing, state, &share) : share_model(writing, state, &share);
    ok = ok && divide(writing, &share, pairs);
    free(share.whole.data);
    struct rfs_node *whole = ok ? rfs_document_ordered(document, pairs) : NULL;
    if (optimizer)
        whole = with_state(document, state, whole);
    return rfs_document_add(document, pair, whole) && rfs_document_add(document, pair, share.pieces)
               ? pair
               : NULL;
}

static struct rfs_node *share_states(const struct writing *writing, const struct hfai_state *states,
                                     size_t n)
{
    struct rfs_node *list = rfs_document_container(writing->document, RFS_NODE_LIST);

    for (size_t i = 0; i < n; i++)
        if (!rfs_document_add(writing->document, list, share_state(writing, &states[i])))
            return NULL;
    return list;
}

static const struct rfs_items *first_pairs(const struct rfs_hfai *hfai)
{
    return rfs_node_pairs(hfai->parts[0].torch.pickle.root);
}

static bool is_own(const struct rfs_node *key)
{
    return rfs_node_is_text(key, "__nshards__") || rfs_node_is_text(key, "__version__") ||
           rfs_node_is_text(key, "model") || rfs_node_is_text(key, "optimizer");
}

static int finish(struct rfs_document *document, struct rfs_node *root, struct rfs_error *err)
{
    document->root = root;
    return root ? 0 : rfs_fail_memory(err);
}

int rfs_hfai_part(const struct rfs_hfai *hfai, uint32_t part, uint32_t n, uint64_t large,
                  struct rfs_document *out, struct rfs_error *err)
{
    const struct writing writing = {hfai, out, part, n, large, err};
    const struct rfs_items *first = first_pairs(hfai);

    *out = (struct rfs_document){0};
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    bool ok =
        dict &&
        add_pair(out, dict, rfs_document_text(out, "__nshards__"), rfs_document_int(out, n)) &&
        add_pair(out, dict, rfs_document_text(out, "__version__"),
                 rfs_document_text(out, "2.0.0")) &&
        add_pair(out, dict, rfs_document_text(out, "model"),
                 share_states(&writing, hfai->models, hfai->n_models)) &&
        add_pair(out, dict, rfs_document_text(out, "optimizer"),
                 share_states(&writing, hfai->optimizers, hfai->n_optimizers));
    for (uint32_t i = 0; ok && part == 0 && i < first->n; i += 2)
        ok = is_own(first->data[i]) || add_pair(out, dict, first->data[i], first->data[i + 1]);
    return finish(out, ok ? dict : NULL, err);
}

/* name -> tensor, whole ones in the order of the parts, then large ones. */
static struct rfs_node *whole_model(const struct rfs_hfai *hfai, const struct hfai_state *state,
                                    struct rfs_document *out)
{
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    bool ok = dict != NULL;

    for (size_t i = 0; ok && i < state->entries.n; i++)
        ok = add_pair(out, dict, state->entries.data[i].key, state->entries.data[i].value);
    for (size_t i = 0; ok && i < state->large.n; i++)
        ok = add_pair(out, dict, state->large.data[i].key,
                      join(out, state, &state->large.data[i], hfai->n_parts));
    return ok ? dict : NULL;
}

static struct rfs_node *whole_optimizer(const struct rfs_hfai *hfai, const struct hfai_state *state,
                                        struct rfs_document *out)
{
    /* Nothing is more than this, so that all is joined. */
    const struct writing writing = {hfai, out, 0, 1, UINT64_MAX, NULL};
    struct share share = {.pieces = rfs_document_container(out, RFS_NODE_DICT)};
    struct rfs_node *pairs = rfs_document_container(out, RFS_NODE_DICT);

    bool ok = pairs && share_optimizer(&writing, state, &share);
    for (size_t i = 0; ok && i < share.whole.n; i++)
        ok = add_pair(out, pairs, share.whole.data[i].key, share.whole.data[i].value);
    free(share.whole.data);
    return ok ? with_state(out, state, rfs_document_ordered(out, pairs)) : NULL;
}

/* One of them as itself, two and more as a list, none as an empty list. */
static struct rfs_node *whole_states(const struct rfs_hfai *hfai, struct rfs_document *out,
                                     bool optimizers)
{
    const size_t n = optimizers ? hfai->n_optimizers : hfai->n_models;
    struct rfs_node *list = rfs_document_container(out, RFS_NODE_LIST);
    struct rfs_node *one = NULL;

    for (size_t i = 0; i < n; i++) {
        one = optimizers ? whole_optimizer(hfai, &hfai->optimizers[i], out)
                         : whole_model(hfai, &hfai->models[i], out);
        if (!rfs_document_add(out, list, one))
            return NULL;
    }
    return n == 1 ? one : list;
}

int rfs_hfai_whole(const struct rfs_hfai *hfai, struct rfs_document *out, struct rfs_error *err)
{
    const struct rfs_items *first = first_pairs(hfai);

    *out = (struct rfs_document){0};
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    bool ok = dict != NULL;
    for (uint32_t i = 0; ok && i < first->n; i += 2) {
        const struct rfs_node *key = first->data[i];
        const struct rfs_node *value = first->data[i + 1];
        if (rfs_node_is_text(key, "model"))
            value = whole_states(hfai, out, false);
        else if (rfs_node_is_text(key, "optimizer"))
            value = whole_states(hfai, out, true);
        ok = add_pair(out, dict, key, value);
    }
    return finish(out, ok ? dict : NULL, err);
}

int rfs_hfai_model(const struct rfs_hfai *hfai, size_t model, struct rfs_document *out,
                   struct rfs_error *err)
{
    *out = (struct rfs_document){0};
    return finish(out, whole_model(hfai, &hfai->models[model], out), err);
}

int rfs_hfai_optimizer(const struct rfs_hfai *hfai, size_t optimizer, struct rfs_document *out,
                       struct rfs_error *err)
{
    *out = (struct rfs_document){0};
    return finish(out, whole_optimizer(hfai, &hfai->optimizers[optimizer], out), err);
}
