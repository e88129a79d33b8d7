/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large tensors, with a piece in each part: their pieces are collected part by part, and proved at
 * the end.
 */
#include "hfai/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

/* (torch.Size, piece) of one part. */
static int read_piece(const struct hfai_reading *reading, const struct rfs_node *key,
                      const struct rfs_node *value, struct rfs_torch_tensor *piece,
                      struct hfai_large *large)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;
    char name[256];

    rfs_hfai_show_key(key, name, sizeof name);
    if (value->kind != RFS_NODE_TUPLE || value->of.items.n != 2)
        return rfs_hfai_fail_key(reading, key,
                                 "a large tensor that is not a pair of size and piece");
    const struct rfs_node *size = value->of.items.data[0];
    if (size->kind == RFS_NODE_CALL && size->of.call.callee->callable == RFS_CALL_SIZE &&
        size->of.call.args->of.items.n == 1)
        size = size->of.call.args->of.items.data[0];
    if (size->kind != RFS_NODE_TUPLE || size->of.items.n > RFS_MAX_DIMS)
        return rfs_hfai_fail_key(reading, key, "a large tensor whose size is not a torch.Size");
    large->ndim = size->of.items.n;
    for (uint32_t i = 0; i < large->ndim; i++) {
        const struct rfs_node *extent = size->of.items.data[i];
        if (extent->kind != RFS_NODE_INT || extent->of.integer < 0)
            return rfs_hfai_fail_key(reading, key, "a large tensor whose size is not a torch.Size");
        large->dims[i] = (uint64_t)extent->of.integer;
    }
    const int rc =
        rfs_torch_tensor(torch, value->of.items.data[1], reading->path, name, piece, reading->err);
    if (rc == 1 && piece->ndim == 1 && piece->contiguous) {
        large->dtype = piece->dtype;
        return 0;
    }
    return rc < 0
               ? rc
               : rfs_hfai_fail_key(reading, key, "a large tensor whose piece is not a flat tensor");
}

static bool same_large(const struct hfai_large *a, const struct hfai_large *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, a->ndim * sizeof *a->dims) == 0;
}

/* The Ith large tensor of a state in this part: begun by part 0, and continued by the others. */
static int add_piece(const struct hfai_reading *reading, struct hfai_state *state, size_t i,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    struct hfai_large large = {.key = key, .next = HFAI_NONE, .first = i * reading->hfai->n_parts};
    struct rfs_torch_tensor piece;

    int rc = read_piece(reading, key, value, &piece, &large);
    if (rc == 0) /* they are copied once, when they are put in order */
        rc = rfs_hfai_pay(reading, (HFAI_GROWN + 1) * sizeof(struct rfs_range));
    if (rc == 0 && reading->part == 0)
        rc = rfs_hfai_pay(reading, HFAI_GROWN * sizeof large + rfs_hfai_key_bytes(key));
    if (rc)
        return rc;
    if (reading->part == 0) {
        if (!RFS_PUSH(&state->large, large))
            return rfs_fail_memory(reading->err);
    }
    struct hfai_large *have = &state->large.data[i];
    const int is_same = rfs_hfai_same(reading, key, have->key);
    if (is_same < 0)
        return is_same;
    if (!is_same || !same_large(have, &large))
        return rfs_hfai_fail_key(reading, key,
                                 "a large tensor that differs from part 0's: the parts are of "
                                 "different saves");
    const uint64_t item = rfs_dtype_bytes(large.dtype);
    const struct rfs_range range = {piece.record, piece.offset * item, piece.elements * item,
                                    (uint16_t)reading->part};
    return RFS_PUSH(&state->ranges, range) ? 0 : rfs_fail_memory(reading->err);
}

/* Each part has paid for its own ranges; now those of a tensor follow each other. */
static bool order_ranges(struct hfai_state *state, uint32_t n_parts)
{
    const size_t n = state->large.n;
    struct rfs_range *ordered = calloc(state->ranges.n + 1, sizeof *ordered);

    if (!ordered)
        return false;
    for (uint32_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < n; i++)
            ordered[i * n_parts + p] = state->ranges.data[p * n + i];
    free(state->ranges.data);
    state->ranges.data = ordered;
    state->ranges.cap = state->ranges.n + 1;
    return true;
}

int rfs_hfai_read_large(const struct hfai_reading *reading, struct hfai_state *state,
                        const struct rfs_items *pairs)
{
    if (reading->part > 0 && pairs->n / 2 != state->large.n)
        return rfs_hfai_fail(reading,
                             "it has pieces of other large tensors than part 0: the parts are of "
                             "different saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        const int rc = add_piece(reading, state, i / 2, pairs->data[i], pairs->data[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

/* The pieces of a large tensor are all of it. */
static int check_pieces(const struct hfai_reading *reading, struct hfai_state *state,
                        struct hfai_large *large)
{
    uint64_t bytes = rfs_dtype_bytes(large->dtype);
    uint64_t end = 0;

    for (uint32_t i = 0; i < large->ndim; i++)
        if (!rfs_mul_u64(bytes, large->dims[i], &bytes) || bytes > INT64_MAX / 16)
            return rfs_hfai_fail_key(reading, large->key, "a large tensor of an impossible size");
    for (uint32_t p = 0; p < reading->hfai->n_parts; p++) {
        /* Each is within its file: so many cannot be more than a number holds. */
        if (!rfs_add_u64(end, state->ranges.data[large->first + p].bytes, &end))
            return rfs_hfai_fail_key(reading, large->key, "a large tensor of an impossible size");
        state->ends[large->first + p] = end;
    }
    large->elements = bytes / rfs_dtype_bytes(large->dtype);
    if (bytes != end)
        return rfs_hfai_fail_key(reading, large->key,
                                 "the pieces of the large tensor have another number of elements "
                                 "than the whole: parts are missing, or of different saves");
    return rfs_torch_show(&reading->hfai->large, bytes, reading->path, NULL, reading->err);
}

/* Links a large tensor with the entry that it goes back into. */
static int find_owner(const struct hfai_reading *reading, struct hfai_state *state,
                      struct hfai_large *large)
{
    const struct rfs_node *key = large->key;
    RFS_FREE char *canonical = NULL;
    size_t n;

    if (key->kind != RFS_NODE_TUPLE || key->of.items.n != 2)
        return rfs_hfai_fail_key(reading, key,
                                 "a large tensor of an optimizer that has no pair of keys");
    const int rc = rfs_hfai_canonical(reading, key->of.items.data[0], &canonical, &n);
    if (rc)
        return rc;
    const uint32_t owner = rfs_intern_find(state->keys, canonical, n);
    if (owner == RFS_NO_ID)
        return rfs_hfai_fail_key(reading, key, "a large tensor of a state that no part has");
    struct hfai_entry *entry = &state->entries.data[owner];
    if (!rfs_node_pairs(entry->value))
        return rfs_hfai_fail_key(reading, key, "a large tensor of a state that is not a dict");
    large->inner = key->of.items.data[1];
    large->next = entry->first_large;
    entry->first_large = (uint32_t)(large - state->large.data);
    return 0;
}

/* It is there once, and nowhere whole. */
static int check_key(const struct hfai_reading *reading, struct hfai_state *state,
                     const struct hfai_large *large)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = rfs_hfai_canonical(reading, large->key, &canonical, &n);
    if (rc)
        return rc;
    const uint32_t before = rfs_intern_count(state->large_keys);
    const uint32_t id = rfs_intern_add(state->large_keys, canonical, n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(reading->err);
    if (id < before)
        return rfs_hfai_fail_key(reading, large->key, "is in pieces twice");
    return rfs_intern_find(state->keys, canonical, n) == RFS_NO_ID
               ? 0
               : rfs_hfai_fail_key(reading, large->key, "is both whole and in pieces");
}

static int check_state(const struct hfai_reading *reading, struct hfai_state *state, bool optimizer)
{
    int rc = 0;

    state->ends = calloc(state->ranges.n + 1, sizeof *state->ends);
    if (!state->ends || !order_ranges(state, reading->hfai->n_parts))
        return rfs_fail_memory(reading->err);
    for (size_t k = state->large.n; rc == 0 && k-- > 0;) { /* so that lists are in order */
        struct hfai_large *large = &state->large.data[k];
        rc = check_pieces(reading, state, large) ?: check_key(reading, state, large);
        if (rc == 0 && optimizer)
            rc = find_owner(reading, state, large);
    }
    return rc;
}

int rfs_hfai_check_large(const struct hfai_reading *reading, struct hfai_state *states, size_t n,
                         bool optimizer)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check_state(reading, &states[i], optimizer);
    return rc;
}
