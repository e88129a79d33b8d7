/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state in other files: as dist_ckpt.save would write it from another number of ranks, and
 * whole, as dist_ckpt.load returns it.
 *
 * Division is done as split_dict does it: values in descending order of their weight, each to the
 * part that has the least so far, the lowest of those. Among equals the parts' own order stays,
 * which is the reverse of the module's. Which tensors of part 0 are buffers is not written
 * anywhere, so they are divided as parameters are; load() does not care where a name is.
 *
 * A division is made once for all parts: each of a thousand would have to divide everything to know
 * its own share.
 */
#include "formats/hfai/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

/* Ranges that follow each other: the bytes of one tensor. */
struct row {
    const struct rfs_range *ranges;
    const uint64_t *ends; /* [n] where each range ends in the tensor */
    size_t n;
};

/* A value of which each part holds a piece. */
struct cut {
    uint32_t entry; /* the value itself, or */
    uint32_t pair;  /* unless HFAI_NONE, that one of the entry's dict */
    uint32_t large; /* or, unless HFAI_NONE, a large tensor, and no entry at all */
};

/* The division of a state into parts. */
struct share {
    RFS_VEC(struct cut) cuts; /* all parts, a piece each */
    /*
     * by part, in its order: an entry, or (of a model) entries.n + a large tensor that is joined;
     * owned
     */
    uint32_t *items;
    size_t *first; /* [n + 1] where each part begins in items; owned */
};

struct rfs_hfai_division {
    const struct rfs_hfai *hfai;
    uint32_t n;
    uint64_t large; /* bytes; more than that is cut */
    struct share *models;
    struct share *optimizers;
};

static uint64_t large_bytes(const struct rfs_hfai_large *large)
{
    return large->elements * rfs_dtype_bytes(large->dtype);
}

/*
 * Says whether a value is to be cut: a tensor larger than LARGE bytes, and its bytes are one range.
 */
static bool is_cut(const struct rfs_hfai *hfai, const struct rfs_node *value, uint64_t large,
                   struct rfs_torch_tensor *tensor)
{
    return large < UINT64_MAX && value->kind == RFS_NODE_CALL &&
           rfs_torch_tensor(&hfai->parts[value->origin].torch, value, "", "", tensor, NULL) == 1 &&
           tensor->contiguous && tensor->elements * rfs_dtype_bytes(tensor->dtype) > large;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Weights of values; zero-initialised but for hfai. */
struct weigher {
    const struct rfs_hfai *hfai;
    uint64_t **known; /* [parts][nodes] weight + 1 of containers; owned */
    bool no_memory;
};

/* Returns where the weight of a container is noted; NULL for another value, or without memory. */
static uint64_t *known_of(struct weigher *weigher, const struct rfs_node *node)
{
    const struct rfs_hfai *hfai = weigher->hfai;

    if (node->kind < RFS_NODE_TUPLE || node->origin >= hfai->n_parts)
        return NULL;
    if (!weigher->known)
        weigher->known = calloc(hfai->n_parts, sizeof *weigher->known);
    uint64_t **nodes = weigher->known ? &weigher->known[node->origin] : NULL;
    if (nodes && !*nodes)
        *nodes = calloc(hfai->parts[node->origin].torch.pickle.n_nodes, sizeof **nodes);
    weigher->no_memory |= !nodes || !*nodes;
    return weigher->no_memory ? NULL : *nodes + node->number;
}

static void weigher_end(struct weigher *weigher)
{
    for (uint32_t p = 0; weigher->known && p < weigher->hfai->n_parts; p++)
        free(weigher->known[p]);
    free(weigher->known);
}

static uint64_t weigh(struct weigher *weigher, const struct rfs_node *value, unsigned depth);

/* Weighs every STEPth item, from FIRST on. */
static uint64_t weigh_items(struct weigher *weigher, const struct rfs_items *items, uint32_t first,
                            uint32_t step, unsigned depth)
{
    uint64_t sum = 0;

    for (uint32_t i = first; i < items->n; i += step)
        if (!rfs_add_u64(sum, weigh(weigher, items->data[i], depth + 1), &sum))
            sum = UINT64_MAX - 1;
    return sum;
}

static uint64_t weigh_container(struct weigher *weigher, const struct rfs_node *value,
                                unsigned depth)
{
    const struct rfs_torch *torch = &weigher->hfai->parts[value->origin].torch;
    const struct rfs_items *pairs = rfs_pickle_pairs(value);
    struct rfs_torch_tensor tensor;

    if (value->kind == RFS_NODE_LIST || value->kind == RFS_NODE_TUPLE)
        return weigh_items(weigher, &value->of.items, 0, 1, depth);
    if (pairs)
        return weigh_items(weigher, pairs, 1, 2, depth);
    /* Tensors are sound; one that is lazily conjugate has a size, too. */
    return rfs_torch_tensor(torch, value, "", "", &tensor, NULL) == 0
               ? 0
               : tensor.elements * rfs_dtype_bytes(tensor.dtype);
}

static uint64_t weigh(struct weigher *weigher, const struct rfs_node *value, unsigned depth)
{
    if (value->kind == RFS_NODE_INT || value->kind == RFS_NODE_LONG ||
        value->kind == RFS_NODE_FLOAT || value->kind == RFS_NODE_BOOL)
        return 8;
    uint64_t *known = depth > RFS_PICKLE_DEPTH ? NULL : known_of(weigher, value);
    if (!known)
        return 0;
    if (*known == 0) {
        *known = 1; /* a container in itself weighs nothing there */
        *known = weigh_container(weigher, value, depth) + 1;
    }
    return *known - 1;
}

/*
 * Returns the bytes by which a value is weighed when it is divided, as split_dict does; 0 when out
 * of memory. All values together cost O(nodes), however often they share some.
 */
static uint64_t weight_of(struct weigher *weigher, const struct rfs_node *value)
{
    return weigh(weigher, value, 0);
}

/* ---- the division ---------------------------------------------------------------------------- */

struct weighed {
    uint32_t item;
    uint32_t part;
    uint64_t weight;
};

struct dividing {
    const struct rfs_hfai_division *division;
    const struct rfs_hfai_state *state;
    bool optimizer;
    struct share *share;
    struct weigher *weigher;
    RFS_VEC(struct weighed) items;
};

static bool add_cut(struct dividing *dividing, uint32_t entry, uint32_t pair, uint32_t large)
{
    return RFS_PUSH(&dividing->share->cuts, (struct cut){entry, pair, large});
}

static bool add_item(struct dividing *dividing, size_t item, uint64_t weight)
{
    return !dividing->weigher->no_memory &&
           RFS_PUSH(&dividing->items, (struct weighed){(uint32_t)item, 0, weight});
}

static bool collect_model(struct dividing *dividing)
{
    const struct rfs_hfai_division *division = dividing->division;
    const struct rfs_hfai_state *state = dividing->state;
    struct rfs_torch_tensor tensor;
    bool ok = true;

    for (uint32_t i = 0; ok && i < state->entries.n; i++) {
        const struct rfs_node *value = state->entries.data[i].value;
        ok = is_cut(division->hfai, value, division->large, &tensor)
                 ? add_cut(dividing, i, HFAI_NONE, HFAI_NONE)
                 : add_item(dividing, i, weight_of(dividing->weigher, value));
    }
    for (uint32_t i = 0; ok && i < state->large.n; i++) {
        const uint64_t bytes = large_bytes(&state->large.data[i]);
        ok = bytes > division->large ? add_cut(dividing, HFAI_NONE, HFAI_NONE, i)
                                     : add_item(dividing, state->entries.n + i, bytes);
    }
    return ok;
}

/*
 * Collects an entry. It is weighed after its large tensors left it, and with those that come back
 * into it.
 */
static bool collect_entry(struct dividing *dividing, uint32_t i)
{
    const struct rfs_hfai_division *division = dividing->division;
    const struct rfs_hfai_entry *entry = &dividing->state->entries.data[i];
    const struct rfs_items *pairs = rfs_pickle_pairs(entry->value);
    uint64_t weight = weight_of(dividing->weigher, entry->value);
    struct rfs_torch_tensor tensor;
    bool ok = true;

    for (uint32_t k = 0; ok && pairs && k < pairs->n; k += 2)
        if (is_cut(division->hfai, pairs->data[k + 1], division->large, &tensor)) {
            weight -= weight_of(dividing->weigher, pairs->data[k + 1]);
            ok = add_cut(dividing, i, k, HFAI_NONE);
        }
    for (uint32_t l = entry->first_large; ok && l != HFAI_NONE;
         l = dividing->state->large.data[l].next) {
        const uint64_t bytes = large_bytes(&dividing->state->large.data[l]);
        if (bytes > division->large)
            ok = add_cut(dividing, HFAI_NONE, HFAI_NONE, l);
        else
            weight += bytes;
    }
    return ok && add_item(dividing, i, weight);
}

static bool collect(struct dividing *dividing)
{
    if (!dividing->optimizer)
        return collect_model(dividing);
    for (uint32_t i = 0; i < dividing->state->entries.n; i++)
        if (!collect_entry(dividing, i))
            return false;
    return true;
}

RFS_COMPARE(heavier, struct weighed, x, y,
            RFS_ORDER(y->weight, x->weight) ?: RFS_ORDER(x->item, y->item))

/* A part and its bytes so far; in a heap, the one with the fewest on top. */
struct load {
    uint64_t sum;
    uint32_t part;
};

static bool is_less(const struct load *a, const struct load *b)
{
    return a->sum != b->sum ? a->sum < b->sum : a->part < b->part;
}

/* Puts the top, which has become more, where it belongs. */
static void sink(struct load *heap, uint32_t n)
{
    const struct load moved = heap[0];
    size_t at = 0;

    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && is_less(&heap[child + 1], &heap[child]))
            child++;
        if (!is_less(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Gives each item its part. */
static bool deal(struct dividing *dividing)
{
    const uint32_t n = dividing->division->n;
    RFS_FREE struct load *heap = calloc(n, sizeof *heap);

    if (!heap)
        return false;
    for (uint32_t p = 0; p < n; p++)
        heap[p].part = p;
    RFS_SORT_ALL(&dividing->items, heavier);
    for (size_t i = 0; i < dividing->items.n; i++) {
        dividing->items.data[i].part = heap[0].part;
        heap[0].sum += dividing->items.data[i].weight;
        sink(heap, n);
    }
    return true;
}

/* Puts the items in the order of their parts, and of their weights in a part. */
static bool arrange(struct dividing *dividing)
{
    const uint32_t n = dividing->division->n;
    struct share *share = dividing->share;
    const size_t n_items = dividing->items.n;
    RFS_FREE size_t *at = calloc((size_t)n + 1, sizeof *at);

    share->first = calloc((size_t)n + 1, sizeof *share->first);
    share->items = calloc(n_items + 1, sizeof *share->items);
    if (!at || !share->first || !share->items)
        return false;
    for (size_t i = 0; i < n_items; i++)
        share->first[dividing->items.data[i].part + 1]++;
    for (uint32_t p = 0; p < n; p++)
        share->first[p + 1] += share->first[p];
    memcpy(at, share->first, n * sizeof *at);
    for (size_t i = 0; i < n_items; i++)
        share->items[at[dividing->items.data[i].part]++] = dividing->items.data[i].item;
    return true;
}

static bool divide(const struct rfs_hfai_division *division, struct weigher *weigher,
                   const struct rfs_hfai_state *state, bool optimizer, struct share *share)
{
    struct dividing dividing = {.division = division,
                                .state = state,
                                .optimizer = optimizer,
                                .share = share,
                                .weigher = weigher};

    const bool ok = collect(&dividing) && deal(&dividing) && arrange(&dividing);
    free(dividing.items.data);
    return ok;
}

static void free_shares(struct share *shares, size_t n)
{
    for (size_t i = 0; shares && i < n; i++) {
        free(shares[i].cuts.data);
        free(shares[i].items);
        free(shares[i].first);
    }
    free(shares);
}

void rfs_hfai_division_free(struct rfs_hfai_division *division)
{
    if (!division)
        return;
    free_shares(division->models, division->hfai->n_models);
    free_shares(division->optimizers, division->hfai->n_optimizers);
    free(division);
}

int rfs_hfai_divide(const struct rfs_hfai *hfai, uint32_t n, uint64_t large,
                    struct rfs_hfai_division **out, struct rfs_error *err)
{
    struct rfs_hfai_division *division = calloc(1, sizeof *division);

    *out = NULL;
    if (!division)
        return rfs_fail_memory(err);
    *division = (struct rfs_hfai_division){.hfai = hfai, .n = n, .large = large};
    division->models = calloc(hfai->n_models + 1, sizeof *division->models);
    division->optimizers = calloc(hfai->n_optimizers + 1, sizeof *division->optimizers);
    struct weigher weigher = {.hfai = hfai};
    bool ok = division->models && division->optimizers;
    for (size_t i = 0; ok && i < hfai->n_models; i++)
        ok = divide(division, &weigher, &hfai->models[i], false, &division->models[i]);
    for (size_t i = 0; ok && i < hfai->n_optimizers; i++)
        ok = divide(division, &weigher, &hfai->optimizers[i], true, &division->optimizers[i]);
    weigher_end(&weigher);
    if (!ok) {
        rfs_hfai_division_free(division);
        return rfs_fail_memory(err);
    }
    *out = division;
    return 0;
}

void rfs_hfai_chunk(uint64_t elements, uint32_t n, uint32_t part, uint64_t *begin, uint64_t *end)
{
    const uint64_t each = rfs_ceil_u64(elements, n);

    *begin = each * part < elements ? each * part : elements;
    *end = *begin + each < elements ? *begin + each : elements;
}

/* ---- where each tensor is -------------------------------------------------------------------- */

/* Returns the part of each item of a state: malloc'ed, NULL when out of memory. */
static uint32_t *parts_of(const struct rfs_hfai_division *division,
                          const struct rfs_hfai_state *state, const struct share *share)
{
    uint32_t *parts = calloc(state->entries.n + state->large.n + 1, sizeof *parts);

    for (uint32_t p = 0; parts && p < division->n; p++)
        for (size_t i = share->first[p]; i < share->first[p + 1]; i++)
            parts[share->items[i]] = p;
    /* An optimizer's large tensors go back into their entries. */
    for (size_t i = 0; parts && state->rest && i < state->entries.n; i++)
        for (uint32_t l = state->entries.data[i].first_large; l != HFAI_NONE;
             l = state->large.data[l].next)
            parts[state->entries.n + l] = parts[i];
    return parts;
}

bool rfs_hfai_is_cut(const struct rfs_hfai_division *division, const struct rfs_hfai_listed *tensor)
{
    struct rfs_torch_tensor cut;

    if (tensor->in_pieces)
        return tensor->type.bytes > division->large;
    return tensor->owner.value &&
           is_cut(division->hfai, tensor->owner.value, division->large, &cut);
}

/* Sets the parts of a state's tensors, which are listed from *I on. False when out of memory. */
static bool hold_state(const struct rfs_hfai_division *division, const struct rfs_hfai_list *list,
                       uint32_t number, size_t *i, uint32_t *parts)
{
    const struct rfs_hfai *hfai = division->hfai;
    const bool model = number < hfai->n_models;
    const size_t k = model ? number : number - hfai->n_models;
    RFS_FREE uint32_t *of_items =
        parts_of(division, model ? &hfai->models[k] : &hfai->optimizers[k],
                 model ? &division->models[k] : &division->optimizers[k]);

    for (; of_items && *i < list->tensors.n && list->tensors.data[*i].owner.state == number; ++*i) {
        const struct rfs_hfai_listed *tensor = &list->tensors.data[*i];
        if (rfs_hfai_is_cut(division, tensor))
            parts[*i] = RFS_HFAI_PIECES;
        else
            parts[*i] =
                tensor->owner.item == HFAI_NONE ? RFS_HFAI_EVERY : of_items[tensor->owner.item];
    }
    return of_items != NULL;
}

int rfs_hfai_hold(const struct rfs_hfai_division *division, const struct rfs_hfai_list *list,
                  uint32_t *parts, struct rfs_error *err)
{
    const size_t states = division->hfai->n_models + division->hfai->n_optimizers;
    size_t i = 0;

    for (uint32_t s = 0; s < states; s++)
        if (!hold_state(division, list, s, &i, parts))
            return rfs_fail_memory(err);
    for (; i < list->tensors.n; i++)
        parts[i] = 0;
    return 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* A document that is being made. */
struct writing {
    const struct rfs_hfai *hfai;
    struct rfs_document *document;
    uint32_t part, n;
    uint64_t large; /* bytes; more than that is cut */
};

static struct row row_of(const struct rfs_hfai *hfai, const struct rfs_hfai_state *state,
                         const struct rfs_hfai_large *large)
{
    return (struct row){&state->ranges.data[large->first], &state->ends[large->first],
                        hfai->n_parts};
}

/* Adds bytes [begin, end) of a row to the storage that was begun last. */
static void add_ranges(struct rfs_document *document, const struct row *row, uint64_t begin,
                       uint64_t end)
{
    for (size_t i = RFS_BISECT(k, row->n, row->ends[k] > begin); i < row->n && begin < end; i++) {
        const uint64_t start = row->ends[i] - row->ranges[i].bytes;
        const uint64_t stop = row->ends[i] < end ? row->ends[i] : end;
        struct rfs_range range = row->ranges[i];
        range.offset += begin - start;
        range.bytes = stop - begin;
        rfs_document_range(document, &range);
        begin = stop;
    }
}

/* A tensor that is cut, and its bytes. */
struct whole {
    enum rfs_dtype dtype;
    uint32_t ndim;
    const uint64_t *dims;
    uint64_t elements;
    struct row row;
};

/* Makes the pair (torch.Size, piece). */
static struct rfs_node *make_piece(const struct writing *writing, const struct whole *whole)
{
    struct rfs_document *document = writing->document;
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    const uint64_t item = rfs_dtype_bytes(whole->dtype);
    uint64_t begin;
    uint64_t end;

    rfs_hfai_chunk(whole->elements, writing->n, writing->part, &begin, &end);
    const uint64_t length = end - begin;
    rfs_document_reserve(document, 0);
    add_ranges(document, &whole->row, begin * item, end * item);
    rfs_document_add(document, pair, rfs_document_size(document, whole->ndim, whole->dims));
    rfs_document_add(document, pair, rfs_document_tensor(document, whole->dtype, 1, &length));
    return pair;
}

/* Makes a piece of a value that was whole. */
static struct rfs_node *cut_value(const struct writing *writing, const struct rfs_node *value)
{
    struct rfs_torch_tensor tensor;

    if (!is_cut(writing->hfai, value, writing->large, &tensor))
        return NULL; /* cannot happen: checked before */
    const uint64_t item = rfs_dtype_bytes(tensor.dtype);
    const uint64_t bytes = tensor.elements * item;
    const struct rfs_range range = {tensor.record, tensor.offset * item, bytes, value->origin};
    const struct whole whole = {
        tensor.dtype, tensor.ndim, tensor.dims, tensor.elements, {&range, &bytes, 1}};
    return make_piece(writing, &whole);
}

static struct rfs_node *cut_large(const struct writing *writing, const struct rfs_hfai_state *state,
                                  const struct rfs_hfai_large *large)
{
    const struct whole whole = {large->dtype, large->ndim, large->dims, large->elements,
                                row_of(writing->hfai, state, large)};
    return make_piece(writing, &whole);
}

/* Makes one tensor of a large one. */
static struct rfs_node *join(const struct writing *writing, const struct rfs_hfai_state *state,
                             const struct rfs_hfai_large *large)
{
    struct rfs_document *document = writing->document;
    const struct row row = row_of(writing->hfai, state, large);
    rfs_document_reserve(document, 0);
    add_ranges(document, &row, 0, large_bytes(large));
    return rfs_document_tensor(document, large->dtype, large->ndim, large->dims);
}

static void add_pair(struct rfs_document *document, struct rfs_node *dict,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    rfs_document_add(document, dict, key);
    rfs_document_add(document, dict, value);
}

/* Makes the key (k1, k2). */
static struct rfs_node *pair_key(struct rfs_document *document, const struct rfs_node *outer,
                                 const struct rfs_node *inner)
{
    struct rfs_node *key = rfs_document_container(document, RFS_NODE_TUPLE);
    add_pair(document, key, outer, inner);
    return key;
}

/* Adds this part's piece of a value. */
static void add_piece(const struct writing *writing, const struct rfs_hfai_state *state,
                      const struct cut *cut, struct rfs_node *pieces)
{
    struct rfs_document *document = writing->document;

    if (cut->large != HFAI_NONE) {
        const struct rfs_hfai_large *large = &state->large.data[cut->large];
        add_pair(document, pieces, large->key, cut_large(writing, state, large));
        return;
    }
    const struct rfs_hfai_entry *entry = &state->entries.data[cut->entry];
    if (cut->pair == HFAI_NONE) {
        add_pair(document, pieces, entry->key, cut_value(writing, entry->value));
        return;
    }
    struct rfs_node *const *pair = &rfs_pickle_pairs(entry->value)->data[cut->pair];
    add_pair(document, pieces, pair_key(document, entry->key, pair[0]),
             cut_value(writing, pair[1]));
}

/*
 * Makes a dict of PAIRS that is of the class of LIKE, a plain one or an OrderedDict, with its
 * attributes.
 */
static struct rfs_node *dict_like(struct rfs_document *document, const struct rfs_node *like,
                                  struct rfs_node *pairs)
{
    if (like->kind != RFS_NODE_CALL)
        return pairs;
    struct rfs_node *dict = rfs_document_ordered(document, pairs);
    if (dict && like->of.call.after)
        dict->of.call.after->state = like->of.call.after->state;
    return dict;
}

static bool is_changed(const struct writing *writing, const struct rfs_hfai_entry *entry)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(entry->value);
    struct rfs_torch_tensor tensor;
    bool changed = entry->first_large != HFAI_NONE;

    for (uint32_t k = 1; !changed && pairs && k < pairs->n; k += 2)
        changed = is_cut(writing->hfai, pairs->data[k], writing->large, &tensor);
    return changed;
}

/* Makes an entry of an optimizer: large values leave its dict, or come in at its end. */
static const struct rfs_node *write_entry(const struct writing *writing,
                                          const struct rfs_hfai_state *state,
                                          const struct rfs_hfai_entry *entry)
{
    struct rfs_document *document = writing->document;
    struct rfs_torch_tensor tensor;

    if (!is_changed(writing, entry))
        return entry->value;
    const struct rfs_items *pairs = rfs_pickle_pairs(entry->value);
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);
    for (uint32_t k = 0; k < pairs->n; k += 2)
        if (!is_cut(writing->hfai, pairs->data[k + 1], writing->large, &tensor))
            add_pair(document, dict, pairs->data[k], pairs->data[k + 1]);
    for (uint32_t l = entry->first_large; l != HFAI_NONE; l = state->large.data[l].next) {
        const struct rfs_hfai_large *large = &state->large.data[l];
        if (large_bytes(large) <= writing->large)
            add_pair(document, dict, large->inner, join(writing, state, large));
    }
    return dict_like(document, entry->value, dict);
}

/* Adds a value that is whole: an entry or (by a number behind those) a large tensor. */
static void write_item(const struct writing *writing, const struct rfs_hfai_state *state,
                       size_t item, struct rfs_node *pairs)
{
    if (item >= state->entries.n) {
        const struct rfs_hfai_large *large = &state->large.data[item - state->entries.n];
        add_pair(writing->document, pairs, large->key, join(writing, state, large));
        return;
    }
    const struct rfs_hfai_entry *entry = &state->entries.data[item];
    add_pair(writing->document, pairs, entry->key,
             state->rest ? write_entry(writing, state, entry) : entry->value);
}

/* Makes an optimizer's dict: part 0's with another "state". */
static struct rfs_node *with_state(struct rfs_document *document,
                                   const struct rfs_hfai_state *state, struct rfs_node *entries)
{
    const struct rfs_items *rest = rfs_pickle_pairs(state->rest);
    struct rfs_node *dict = rfs_document_container(document, RFS_NODE_DICT);

    for (uint32_t i = 0; i < rest->n; i += 2)
        add_pair(document, dict, rest->data[i],
                 rfs_pickle_is_text(rest->data[i], "state") ? entries : rest->data[i + 1]);
    return dict_like(document, state->rest, dict);
}

/* Makes the pair of one model or optimizer in this part. */
static struct rfs_node *write_state(const struct writing *writing,
                                    const struct rfs_hfai_state *state, const struct share *share)
{
    struct rfs_document *document = writing->document;
    struct rfs_node *pair = rfs_document_container(document, RFS_NODE_TUPLE);
    struct rfs_node *pieces = rfs_document_container(document, RFS_NODE_DICT);
    struct rfs_node *pairs = rfs_document_container(document, RFS_NODE_DICT);

    for (size_t i = share->first[writing->part]; i < share->first[writing->part + 1]; i++)
        write_item(writing, state, share->items[i], pairs);
    for (size_t i = 0; i < share->cuts.n; i++)
        add_piece(writing, state, &share->cuts.data[i], pieces);
    struct rfs_node *whole = rfs_document_ordered(document, pairs);
    if (state->rest)
        whole = with_state(document, state, whole);
    add_pair(document, pair, whole, pieces);
    return pair;
}

static struct rfs_node *write_states(const struct writing *writing,
                                     const struct rfs_hfai_state *states,
                                     const struct share *shares, size_t n)
{
    struct rfs_node *list = rfs_document_container(writing->document, RFS_NODE_LIST);

    for (size_t i = 0; i < n; i++)
        rfs_document_add(writing->document, list, write_state(writing, &states[i], &shares[i]));
    return list;
}

static const struct rfs_items *first_pairs(const struct rfs_hfai *hfai)
{
    return rfs_pickle_pairs(hfai->parts[0].torch.pickle.root);
}

static int finish(struct rfs_document *document, struct rfs_node *root, struct rfs_error *err)
{
    document->root = root;
    return document->failed ? rfs_fail_memory(err) : 0;
}

int rfs_hfai_part(const struct rfs_hfai_division *division, uint32_t part, struct rfs_document *out,
                  struct rfs_error *err)
{
    const struct rfs_hfai *hfai = division->hfai;
    const struct writing writing = {hfai, out, part, division->n, division->large};
    const struct rfs_items *first = first_pairs(hfai);

    *out = (struct rfs_document){0};
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    add_pair(out, dict, rfs_document_text(out, "__nshards__"), rfs_document_int(out, division->n));
    add_pair(out, dict, rfs_document_text(out, "__version__"),
             rfs_document_text(out, RFS_HFAI_FORMAT));
    add_pair(out, dict, rfs_document_text(out, "model"),
             write_states(&writing, hfai->models, division->models, hfai->n_models));
    add_pair(out, dict, rfs_document_text(out, "optimizer"),
             write_states(&writing, hfai->optimizers, division->optimizers, hfai->n_optimizers));
    for (uint32_t i = 0; part == 0 && i < first->n; i += 2)
        if (!rfs_hfai_is_own(first->data[i]))
            add_pair(out, dict, first->data[i], first->data[i + 1]);
    return finish(out, dict, err);
}

/*
 * Makes one whole model or optimizer: entries in the order of the parts, then a model's large
 * tensors.
 */
static struct rfs_node *whole_state(const struct rfs_hfai *hfai, const struct rfs_hfai_state *state,
                                    struct rfs_document *out)
{
    /* No tensor is larger than this, so all are joined. */
    const struct writing writing = {hfai, out, 0, 1, UINT64_MAX};
    const size_t n = state->entries.n + (state->rest ? 0 : state->large.n);
    struct rfs_node *pairs = rfs_document_container(out, RFS_NODE_DICT);

    for (size_t i = 0; i < n; i++)
        write_item(&writing, state, i, pairs);
    if (!state->rest)
        return pairs;
    return with_state(out, state, rfs_document_ordered(out, pairs));
}

/* Makes all models, or optimizers: one as itself, two and more as a list, none as an empty list. */
static struct rfs_node *whole_states(const struct rfs_hfai *hfai, struct rfs_document *out,
                                     bool optimizers)
{
    const size_t n = optimizers ? hfai->n_optimizers : hfai->n_models;
    struct rfs_node *list = rfs_document_container(out, RFS_NODE_LIST);
    struct rfs_node *one = NULL;

    for (size_t i = 0; i < n; i++) {
        one = whole_state(hfai, optimizers ? &hfai->optimizers[i] : &hfai->models[i], out);
        rfs_document_add(out, list, one);
    }
    return n == 1 ? one : list;
}

int rfs_hfai_whole(const struct rfs_hfai *hfai, struct rfs_document *out, struct rfs_error *err)
{
    const struct rfs_items *first = first_pairs(hfai);

    *out = (struct rfs_document){0};
    struct rfs_node *dict = rfs_document_container(out, RFS_NODE_DICT);
    for (uint32_t i = 0; i < first->n; i += 2) {
        const struct rfs_node *key = first->data[i];
        const struct rfs_node *value = first->data[i + 1];
        if (rfs_pickle_is_text(key, "model"))
            value = whole_states(hfai, out, false);
        else if (rfs_pickle_is_text(key, "optimizer"))
            value = whole_states(hfai, out, true);
        add_pair(out, dict, key, value);
    }
    return finish(out, dict, err);
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
