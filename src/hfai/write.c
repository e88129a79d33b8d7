/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state in other files: as dist_ckpt.save would write it from another number of ranks (divided
 * by divide.c), and whole, as dist_ckpt.load returns it.
 */
#include "hfai/internal.h"

/* A document at work. */
struct writing {
    const struct rfs_hfai *hfai;
    struct rfs_document *document;
    uint32_t part, n;
    uint64_t large; /* bytes; more than that is cut */
};

/* Adds bytes [begin, end) of a row to the storage that was begun last. */
static bool add_ranges(struct rfs_document *document, const struct hfai_row *row, uint64_t begin,
                       uint64_t end)
{
    size_t i = 0;

    for (size_t high = row->n; i < high;) { /* the first that ends behind BEGIN */
        const size_t middle = i + (high - i) / 2;
        if (row->ends[middle] > begin)
            high = middle;
        else
            i = middle + 1;
    }
    for (; i < row->n && begin < end; i++) {
        const uint64_t start = row->ends[i] - row->ranges[i].bytes;
        const uint64_t stop = row->ends[i] < end ? row->ends[i] : end;
        struct rfs_range range = row->ranges[i];
        range.offset += begin - start;
        range.bytes = stop - begin;
        if (!rfs_document_range(document, &range))
            return false;
        begin = stop;
    }
    return true;
}

/* The tensor that is cut, and its bytes. */
struct whole {
    enum rfs_dtype dtype;
    uint32_t ndim;
    const uint64_t *dims;
    uint64_t elements;
    struct hfai_row row;
};

/* (torch.Size, piece) */
static struct rfs_node *make_piece(const struct writing *writing, const struct whole *whole)
{
    struct rfs_document *document = writing->document;
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    const uint64_t item = rfs_dtype_bytes(whole->dtype);
    uint64_t begin;
    uint64_t end;

    rfs_hfai_chunk(whole->elements, writing->n, writing->part, &begin, &end);
    const uint64_t length = end - begin;
    const bool ok =
        rfs_document_begin(document) &&
        add_ranges(document, &whole->row, begin * item, end * item) &&
        rfs_document_add(document, pair, rfs_document_size(document, whole->ndim, whole->dims)) &&
        rfs_document_add(document, pair, rfs_document_tensor(document, whole->dtype, 1, &length));
    return ok ? pair : NULL;
}

/* A piece of a value that was whole. */
static struct rfs_node *cut_value(const struct writing *writing, const struct rfs_node *value)
{
    struct rfs_torch_tensor tensor;

    if (!rfs_hfai_is_cut(writing->hfai, value, writing->large, &tensor))
        return NULL; /* cannot happen: checked before */
    const uint64_t item = rfs_dtype_bytes(tensor.dtype);
    const uint64_t bytes = tensor.elements * item;
    const struct rfs_range range = {tensor.record, tensor.offset * item, bytes, value->origin};
    const struct whole whole = {
        tensor.dtype, tensor.ndim, tensor.dims, tensor.elements, {&range, &bytes, 1}};
    return make_piece(writing, &whole);
}

static struct rfs_node *cut_large(const struct writing *writing, const struct hfai_state *state,
                                  const struct hfai_large *large)
{
    const struct whole whole = {large->dtype, large->ndim, large->dims, large->elements,
                                rfs_hfai_row(writing->hfai, state, large)};
    return make_piece(writing, &whole);
}

/* A large tensor as one. */
static struct rfs_node *join(const struct writing *writing, const struct hfai_state *state,
                             const struct hfai_large *large)
{
    struct rfs_document *document = writing->document;
    const struct hfai_row row = rfs_hfai_row(writing->hfai, state, large);
    const bool ok =
        rfs_document_begin(document) && add_ranges(document, &row, 0, rfs_hfai_large_bytes(large));
    return ok ? rfs_document_tensor(document, large->dtype, large->ndim, large->dims) : NULL;
}

static bool add_pair(struct rfs_document *document, struct rfs_node *dict,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    return rfs_document_add(document, dict, key) && rfs_document_add(document, dict, value);
}

/* (k1, k2) */
static struct rfs_node *pair_key(struct rfs_document *document, const struct rfs_node *outer,
                                 const struct rfs_node *inner)
{
    struct rfs_node *key = rfs_document_container(document, RFS_NODE_TUPLE);
    return rfs_document_add(document, key, outer) && rfs_document_add(document, key, inner) ? key
                                                                                            : NULL;
}

/* Adds this part's piece of a value. */
static bool add_piece(const struct writing *writing, const struct hfai_state *state,
                      const struct hfai_cut *cut, struct rfs_node *pieces)
{
    struct rfs_document *document = writing->document;

    if (cut->large != HFAI_NONE) {
        const struct hfai_large *large = &state->large.data[cut->large];
        return add_pair(document, pieces, large->key, cut_large(writing, state, large));
    }
    const struct hfai_entry *entry = &state->entries.data[cut->entry];
    if (cut->pair == HFAI_NONE)
        return add_pair(document, pieces, entry->key, cut_value(writing, entry->value));
    struct rfs_node *const *pair = &rfs_node_pairs(entry->value)->data[cut->pair];
    return add_pair(document, pieces, pair_key(document, entry->key, pair[0]),
                    cut_value(writing, pair[1]));
}

/*
 * A dict of PAIRS that is of the class of LIKE, with its attributes: a plain one, or an
 * OrderedDict.
 */
static struct rfs_node *dict_like(struct rfs_document *document, const struct rfs_node *like,
                                  struct rfs_node *pairs)
{
    if (like->kind != RFS_NODE_CALL)
        return pairs;
    struct rfs_node *dict = pairs ? rfs_document_ordered(document, pairs) : NULL;
    if (dict && like->of.call.after)
        dict->of.call.after->state = like->of.call.after->state;
    return dict;
}

static bool is_changed(const struct writing *writing, const struct hfai_entry *entry)
{
    const struct rfs_items *pairs = rfs_node_pairs(entry->value);
    struct rfs_torch_tensor tensor;
    bool changed = entry->first_large != HFAI_NONE;

    for (uint32_t k = 1; !changed && pairs && k < pairs->n; k += 2)
        changed = rfs_hfai_is_cut(writing->hfai, pairs->data[k], writing->large, &tensor);
    return changed;
}

/* An entry of an optimizer: large values go out of its dict, and come in, at its end. */
static const struct rfs_node *write_entry(const struct writing *writing,
                                          const struct hfai_state *state,
                                          const struct hfai_entry *entry)
{
    struct rfs_document *document = writing->document;
    struct rfs_torch_tensor tensor;

    if (!is_changed(writing, entry))
        return entry->value;
    const struct rfs_items *pairs = rfs_node_pairs(entry->value);
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);
    bool ok = dict != NULL;
    for (uint32_t k = 0; ok && k < pairs->n; k += 2)
        ok = rfs_hfai_is_cut(writing->hfai, pairs->data[k + 1], writing->large, &tensor) ||
             add_pair(document, dict, pairs->data[k], pairs->data[k + 1]);
    for (uint32_t l = entry->first_large; ok && l != HFAI_NONE; l = state->large.data[l].next) {
        const struct hfai_large *large = &state->large.data[l];
        ok = rfs_hfai_large_bytes(large) > writing->large ||
             add_pair(document, dict, large->inner, join(writing, state, large));
    }
    return ok ? dict_like(document, entry->value, dict) : NULL;
}

/* Adds a value that is whole: an entry or (by a number behind those) a large tensor. */
static bool add_item(const struct writing *writing, const struct hfai_state *state, size_t item,
                     struct rfs_node *pairs)
{
    if (item >= state->entries.n) {
        const struct hfai_large *large = &state->large.data[item - state->entries.n];
        return add_pair(writing->document, pairs, large->key, join(writing, state, large));
    }
    const struct hfai_entry *entry = &state->entries.data[item];
    return add_pair(writing->document, pairs, entry->key,
                    state->rest ? write_entry(writing, state, entry) : entry->value);
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
    return ok ? dict_like(document, state->rest, dict) : NULL;
}

/* The pair of one model or optimizer in this part. */
static struct rfs_node *write_state(const struct writing *writing, const struct hfai_state *state,
                                    const struct hfai_share *share)
{
    struct rfs_document *document = writing->document;
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    struct rfs_node *pieces = rfs_document_container(document, RFS_NODE_DICT);
    struct rfs_node *pairs = rfs_document_container(document, RFS_NODE_DICT);
    bool ok = pair && pieces && pairs;

    for (size_t i = share->first[writing->part]; ok && i < share->first[writing->part + 1]; i++)
        ok = add_item(writing, state, share->items[i], pairs);
    for (size_t i = 0; ok && i < share->cuts.n; i++)
        ok = add_piece(writing, state, &share->cuts.data[i], pieces);
    struct rfs_node *whole = ok ? rfs_document_ordered(document, pairs) : NULL;
    if (state->rest)
        whole = with_state(document, state, whole);
    return rfs_document_add(document, pair, whole) && rfs_document_add(document, pair, pieces)
               ? pair
               : NULL;
}

static struct rfs_node *write_states(const struct writing *writing, const struct hfai_state *states,
                                     const struct hfai_share *shares, size_t n)
{
    struct rfs_node *list = rfs_document_container(writing->document, RFS_NODE_LIST);

    for (size_t i = 0; i < n; i++)
        if (!rfs_document_add(writing->document, list,
                              write_state(writing, &states[i], &shares[i])))
            return NULL;
    return list;
}

static const struct rfs_items *first_pairs(const struct rfs_hfai *hfai)
{
    return rfs_node_pairs(hfai->parts[0].torch.pickle.root);
}

bool rfs_hfai_is_own(const struct rfs_node *key)
{
    return rfs_node_is_text(key, "__nshards__") || rfs_node_is_text(key, "__version__") ||
           rfs_node_is_text(key, "model") || rfs_node_is_text(key, "optimizer");
}

static int finish(struct rfs_document *document, struct rfs_node *root, struct rfs_error *err)
{
    document->root = root;
    return root ? 0 : rfs_fail_memory(err);
}

int rfs_hfai_part(const struct rfs_hfai_division *division, uint32_t part, struct rfs_document *out,
                  struct rfs_error *err)
{
    const struct rfs_hfai *hfai = division->hfai;
    const struct writing writing = {hfai, out, part, division->n, division->large};
    const struct rfs_items *first = first_pairs(hfai);

    *out = (struct rfs_document){0};
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    bool ok = dict &&
              add_pair(out, dict, rfs_document_text(out, "__nshards__"),
                       rfs_document_int(out, division->n)) &&
              add_pair(out, dict, rfs_document_text(out, "__version__"),
                       rfs_document_text(out, RFS_HFAI_FORMAT)) &&
              add_pair(out, dict, rfs_document_text(out, "model"),
                       write_states(&writing, hfai->models, division->models, hfai->n_models)) &&
              add_pair(out, dict, rfs_document_text(out, "optimizer"),
                       write_states(&writing, hfai->optimizers, division->optimizers,
                                    hfai->n_optimizers));
    for (uint32_t i = 0; ok && part == 0 && i < first->n; i += 2)
        ok = rfs_hfai_is_own(first->data[i]) ||
             add_pair(out, dict, first->data[i], first->data[i + 1]);
    return finish(out, ok ? dict : NULL, err);
}

/*
 * One model or optimizer, whole: entries in the order of the parts, then a model's large tensors.
 */
static struct rfs_node *whole_state(const struct rfs_hfai *hfai, const struct hfai_state *state,
                                    struct rfs_document *out)
{
    /* Nothing is more than this, so that all is joined. */
    const struct writing writing = {hfai, out, 0, 1, UINT64_MAX};
    const size_t n = state->entries.n + (state->rest ? 0 : state->large.n);
    struct rfs_node *pairs = rfs_document_container(out, RFS_NODE_DICT);
    bool ok = pairs != NULL;

    for (size_t i = 0; ok && i < n; i++)
        ok = add_item(&writing, state, i, pairs);
    if (!ok || !state->rest)
        return ok ? pairs : NULL;
    return with_state(out, state, rfs_document_ordered(out, pairs));
}

/* One of them as itself, two and more as a list, none as an empty list. */
static struct rfs_node *whole_states(const struct rfs_hfai *hfai, struct rfs_document *out,
                                     bool optimizers)
{
    const size_t n = optimizers ? hfai->n_optimizers : hfai->n_models;
    struct rfs_node *list = rfs_document_container(out, RFS_NODE_LIST);
    struct rfs_node *one = NULL;

    for (size_t i = 0; i < n; i++) {
        one = whole_state(hfai, optimizers ? &hfai->optimizers[i] : &hfai->models[i], out);
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
    return finish(out, whole_state(hfai, &hfai->models[model], out), err);
}

int rfs_hfai_optimizer(const struct rfs_hfai *hfai, size_t optimizer, struct rfs_document *out,
                       struct rfs_error *err)
{
    *out = (struct rfs_document){0};
    return finish(out, whole_state(hfai, &hfai->optimizers[optimizer], out), err);
}
