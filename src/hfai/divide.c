/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Division, as split_dict does it: values in descending order of their weight, each to the part
 * that has the least so far, the lowest of those. Among equals the parts' own order stays, which is
 * the reverse of the module's. Which tensors of part 0 are buffers is not written anywhere, so they
 * are divided as parameters are; load() does not care where a name is.
 *
 * It is made once for all parts: each of a thousand would have to divide everything to know its own
 * share.
 */
#include "hfai/internal.h"

#include "base/cleanup.h"
#include "base/order.h"

struct weighed {
    uint32_t item;
    uint32_t part;
    uint64_t weight;
};

struct dividing {
    const struct rfs_hfai_division *division;
    const struct hfai_state *state;
    bool optimizer;
    struct hfai_share *share;
    struct hfai_weigher *weigher;
    RFS_VEC(struct weighed) items;
};

static bool add_cut(struct dividing *dividing, uint32_t entry, uint32_t pair, uint32_t large)
{
    return RFS_PUSH(&dividing->share->cuts, (struct hfai_cut){entry, pair, large});
}

static bool add_item(struct dividing *dividing, size_t item, uint64_t weight)
{
    return !dividing->weigher->no_memory &&
           RFS_PUSH(&dividing->items, (struct weighed){(uint32_t)item, 0, weight});
}

static bool collect_model(struct dividing *dividing)
{
    const struct rfs_hfai_division *division = dividing->division;
    const struct hfai_state *state = dividing->state;
    struct rfs_torch_tensor tensor;
    bool ok = true;

    for (uint32_t i = 0; ok && i < state->entries.n; i++) {
        const struct rfs_node *value = state->entries.data[i].value;
        ok = rfs_hfai_is_cut(division->hfai, value, division->large, &tensor)
                 ? add_cut(dividing, i, HFAI_NONE, HFAI_NONE)
                 : add_item(dividing, i, rfs_hfai_weight(dividing->weigher, value));
    }
    for (uint32_t i = 0; ok && i < state->large.n; i++) {
        const uint64_t bytes = rfs_hfai_large_bytes(&state->large.data[i]);
        ok = bytes > division->large ? add_cut(dividing, HFAI_NONE, HFAI_NONE, i)
                                     : add_item(dividing, state->entries.n + i, bytes);
    }
    return ok;
}

/* An entry is weighed after its large tensors left it, and with those that come back into it. */
static bool collect_entry(struct dividing *dividing, uint32_t i)
{
    const struct rfs_hfai_division *division = dividing->division;
    const struct hfai_entry *entry = &dividing->state->entries.data[i];
    const struct rfs_items *pairs = rfs_node_pairs(entry->value);
    uint64_t weight = rfs_hfai_weight(dividing->weigher, entry->value);
    struct rfs_torch_tensor tensor;
    bool ok = true;

    for (uint32_t k = 0; ok && pairs && k < pairs->n; k += 2)
        if (rfs_hfai_is_cut(division->hfai, pairs->data[k + 1], division->large, &tensor)) {
            weight -= rfs_hfai_weight(dividing->weigher, pairs->data[k + 1]);
            ok = add_cut(dividing, i, k, HFAI_NONE);
        }
    for (uint32_t l = entry->first_large; ok && l != HFAI_NONE;
         l = dividing->state->large.data[l].next) {
        const uint64_t bytes = rfs_hfai_large_bytes(&dividing->state->large.data[l]);
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

/* The items in the order of their parts, each part's in theirs. */
static bool arrange(struct dividing *dividing)
{
    const uint32_t n = dividing->division->n;
    struct hfai_share *share = dividing->share;
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

static bool divide(const struct rfs_hfai_division *division, struct hfai_weigher *weigher,
                   const struct hfai_state *state, bool optimizer, struct hfai_share *share)
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

static void free_shares(struct hfai_share *shares, size_t n)
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
    struct hfai_weigher weigher = {.hfai = hfai};
    bool ok = division->models && division->optimizers;
    for (size_t i = 0; ok && i < hfai->n_models; i++)
        ok = divide(division, &weigher, &hfai->models[i], false, &division->models[i]);
    for (size_t i = 0; ok && i < hfai->n_optimizers; i++)
        ok = divide(division, &weigher, &hfai->optimizers[i], true, &division->optimizers[i]);
    rfs_hfai_weigher_end(&weigher);
    if (!ok) {
        rfs_hfai_division_free(division);
        return rfs_fail_memory(err);
    }
    *out = division;
    return 0;
}

void rfs_hfai_chunk(uint64_t elements, uint32_t n, uint32_t part, uint64_t *begin, uint64_t *end)
{
    const uint64_t each = elements / n + (elements % n != 0);

    *begin = each * part < elements ? each * part : elements;
    *end = *begin + each < elements ? *begin + each : elements;
}

/* ---- where each tensor is -------------------------------------------------------------------- */

/* The part of each item of a state: malloc'ed, NULL when out of memory. */
static uint32_t *parts_of(const struct rfs_hfai_division *division, const struct hfai_state *state,
                          const struct hfai_share *share)
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

static bool is_cut(const struct rfs_hfai_division *division, const struct rfs_hfai_listed *tensor)
{
    struct rfs_torch_tensor cut;

    if (tensor->in_pieces)
        return tensor->type.bytes > division->large;
    return tensor->owner.value &&
           rfs_hfai_is_cut(division->hfai, tensor->owner.value, division->large, &cut);
}

/* Of the tensors from *I on those of a state; PARTS is by tensor. */
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
        if (is_cut(division, tensor))
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
