/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each part is a dict:
 *
 *     "__nshards__": n, "__version__": "2.0.0",
 *     "model":     [ (OrderedDict name -> tensor,  dict name -> (torch.Size, piece)), … ]
 *     "optimizer": [ (state_dict() with its own entries of "state", dict (k1, k2) -> (torch.Size, piece)), … ]
 *     and, in part 0 only, whatever else was given to save()
 *
 * Whole values are each in one part; part 0 has all buffers. Large tensors are flattened and cut in n
 * pieces, piece r in part r. All other keys of an optimizer's state_dict are the same in all parts: where
 * they differ, the parts are of different saves. Source: dist_ckpt of hfai, format 2.0.0.
 */
#include "plan/hfai_internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct rfs_hfai *hfai;
    uint32_t part;
    const char *path;
    struct rfs_error *err;
};

static int fail(const struct reading *reading, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path), RFS_HFAI_REMEDY, "%s", what);
}

static int fail_key(const struct reading *reading, const struct rfs_node *key, const char *what)
{
    char name[256];

    rfs_hfai_show_key(key, name, sizeof name);
    return rfs_fail(reading->err, -EINVAL, RFS_OF(reading->path, name), RFS_HFAI_REMEDY, "%s",
                    what);
}

static int read_source(void *ctx, void *buf, size_t n, uint64_t offset)
{
    return rfs_reading_pread(ctx, buf, n, offset);
}

static int open_part(const struct reading *reading)
{
    struct hfai_part *part = &reading->hfai->parts[reading->part];
    struct rfs_files *files = rfs_catalog_files(reading->hfai->catalog);
    struct rfs_reading source;

    int rc = rfs_reading_begin(files, part->file, &source);
    if (rc)
        return rfs_fail(reading->err, rc, RFS_IN(reading->path), NULL,
                        "the file cannot be read: %s", strerror(-rc));
    rc = rfs_torch_open(read_source, &source, source.size, (uint16_t)reading->part, reading->path,
                        &part->torch, reading->err);
    part->open = rc == 0;
    const int ended = rfs_reading_end(&source);
    if (rc == 0 && ended)
        rc =
            rfs_fail(reading->err, ended, RFS_IN(reading->path),
                     "mount again once nobody writes it", "the file was changed while it was read");
    return rc;
}

static const struct rfs_node *root(const struct rfs_hfai *hfai, uint32_t part)
{
    return hfai->parts[part].torch.pickle.root;
}

static int check_head(const struct reading *reading)
{
    const struct rfs_node *dict = root(reading->hfai, reading->part);
    const struct rfs_node *shards =
        dict->kind == RFS_NODE_DICT ? rfs_node_get(dict, "__nshards__") : NULL;

    if (!shards || shards->kind != RFS_NODE_INT)
        return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path),
                        "the folder that dist_ckpt.save wrote",
                        "the file is not a part of an hfai checkpoint: it has no __nshards__");
    if (!rfs_node_is_text(rfs_node_get(dict, "__version__"), RFS_HFAI_FORMAT))
        return rfs_fail(reading->err, -ENOTSUP, RFS_IN(reading->path),
                        "load and save it with a hfai that writes " RFS_HFAI_FORMAT,
                        "the part is not of format " RFS_HFAI_FORMAT);
    if (shards->of.integer != (int64_t)reading->hfai->n_parts)
        return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path), RFS_HFAI_REMEDY,
                        "the part is one of %lld, but the folder holds %u",
                        (long long)shards->of.integer, reading->hfai->n_parts);
    return 0;
}

/* The list of models or optimizers, each a pair. */
static int get_list(const struct reading *reading, const char *what, const struct rfs_items **out)
{
    const struct rfs_node *list = rfs_node_get(root(reading->hfai, reading->part), what);

    if (!list || list->kind != RFS_NODE_LIST)
        return fail(reading, "the part has no list of models and optimizers");
    *out = &list->of.items;
    for (uint32_t i = 0; i < list->of.items.n; i++) {
        const struct rfs_node *pair = list->of.items.data[i];
        if (pair->kind != RFS_NODE_TUPLE || pair->of.items.n != 2 ||
            !rfs_node_pairs(pair->of.items.data[0]) || !rfs_node_pairs(pair->of.items.data[1]))
            return fail(reading, "a model or optimizer of the part is not a pair of dicts");
    }
    return 0;
}

/* The canonical form of a key. */
static int get_key(const struct reading *reading, const struct rfs_node *key, char **out, size_t *n)
{
    const int rc = rfs_hfai_key(key, out, n);

    return rc == -EINVAL ? fail_key(reading, key, "a key that is neither a text nor an integer")
           : rc < 0      ? rfs_fail_memory(reading->err)
                         : 0;
}

/* Adds an entry, or lets it take the place of an earlier one of the same key, as dict.update does. */
static int add_entry(const struct reading *reading, struct hfai_state *state,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = get_key(reading, key, &canonical, &n);
    if (rc)
        return rc;
    const uint32_t id = rfs_intern_add(state->keys, canonical, n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(reading->err);
    if (id < state->entries.n) {
        state->entries.data[id].value = value;
        return 0;
    }
    return RFS_PUSH(&state->entries, (struct hfai_entry){key, value, HFAI_NONE})
               ? 0
               : rfs_fail_memory(reading->err);
}

static int read_model(const struct reading *reading, struct hfai_state *state,
                      const struct rfs_items *pairs)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;

    for (uint32_t i = 0; i < pairs->n; i += 2) {
        struct rfs_torch_tensor tensor;
        char name[256];
        if (pairs->data[i]->kind != RFS_NODE_TEXT)
            return fail_key(reading, pairs->data[i], "a parameter whose name is no text");
        rfs_hfai_show_key(pairs->data[i], name, sizeof name);
        int rc =
            rfs_torch_tensor(torch, pairs->data[i + 1], reading->path, name, &tensor, reading->err);
        if (rc == 0)
            rc = fail_key(reading, pairs->data[i], "a parameter that is no tensor");
        if (rc == 1)
            rc = add_entry(reading, state, pairs->data[i], pairs->data[i + 1]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* "state" of part P's share, and everything else the same as in part 0. */
static int read_optimizer(const struct reading *reading, struct hfai_state *state,
                          const struct rfs_node *dict)
{
    const struct rfs_items *pairs = rfs_node_pairs(dict);
    const struct rfs_node *own = rfs_node_get(dict, "state");
    const struct rfs_items *entries = own ? rfs_node_pairs(own) : NULL;

    if (!entries)
        return fail(reading, "an optimizer of the part has no state");
    state->rest = state->rest ? state->rest : dict;
    const struct rfs_items *first = rfs_node_pairs(state->rest);
    if (first->n != pairs->n)
        return fail(reading,
                    "its optimizer has other keys than part 0's: the parts are of different "
                    "saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        if (rfs_node_is_text(pairs->data[i], "state"))
            continue;
        if (!rfs_hfai_same(pairs->data[i], first->data[i]) ||
            !rfs_hfai_same(pairs->data[i + 1], first->data[i + 1]))
            return fail_key(reading, pairs->data[i],
                            "differs from part 0's: the parts are of different saves");
    }
    for (uint32_t i = 0; i < entries->n; i += 2) {
        const int rc = add_entry(reading, state, entries->data[i], entries->data[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

/* (torch.Size, piece) of one part. */
static int read_piece(const struct reading *reading, const struct rfs_node *key,
                      const struct rfs_node *value, struct rfs_torch_tensor *piece,
                      struct hfai_large *large)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;
    char name[256];

    rfs_hfai_show_key(key, name, sizeof name);
    if (value->kind != RFS_NODE_TUPLE || value->of.items.n != 2)
        return fail_key(reading, key, "a large tensor that is not a pair of size and piece");
    const struct rfs_node *size = value->of.items.data[0];
    if (size->kind == RFS_NODE_CALL && size->of.call.callee->callable == RFS_CALL_SIZE &&
        size->of.call.args->of.items.n == 1)
        size = size->of.call.args->of.items.data[0];
    if (size->kind != RFS_NODE_TUPLE || size->of.items.n > RFS_MAX_DIMS)
        return fail_key(reading, key, "a large tensor whose size is no torch.Size");
    large->ndim = size->of.items.n;
    for (uint32_t i = 0; i < large->ndim; i++) {
        const struct rfs_node *extent = size->of.items.data[i];
        if (extent->kind != RFS_NODE_INT || extent->of.integer < 0)
            return fail_key(reading, key, "a large tensor whose size is no torch.Size");
        large->dims[i] = (uint64_t)extent->of.integer;
    }
    const int rc =
        rfs_torch_tensor(torch, value->of.items.data[1], reading->path, name, piece, reading->err);
    if (rc == 1 && piece->ndim == 1 && piece->contiguous) {
        large->dtype = piece->dtype;
        return 0;
    }
    return rc < 0 ? rc : fail_key(reading, key, "a large tensor whose piece is no flat tensor");
}

static bool same_large(const struct hfai_large *a, const struct hfai_large *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, a->ndim * sizeof *a->dims) == 0;
}

/* The Ith large tensor of a state in this part: begun by part 0, and continued by the others. */
static int add_piece(const struct reading *reading, struct hfai_state *state, size_t i,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    struct hfai_large large = {.key = key, .next = HFAI_NONE, .first = i * reading->hfai->n_parts};
    struct rfs_torch_tensor piece;

    const int rc = read_piece(reading, key, value, &piece, &large);
    if (rc)
        return rc;
    if (reading->part == 0) {
        if (!RFS_PUSH(&state->large, large))
            return rfs_fail_memory(reading->err);
        for (uint32_t p = 0; p < reading->hfai->n_parts; p++)
            if (!RFS_PUSH(&state->ranges, (struct rfs_range){0}))
                return rfs_fail_memory(reading->err);
    }
    struct hfai_large *have = &state->large.data[i];
    if (!rfs_hfai_same(have->key, key) || !same_large(have, &large))
        return fail_key(reading, key,
                        "a large tensor that differs from part 0's: the parts are of "
                        "different saves");
    const uint64_t item = rfs_dtype_bytes(large.dtype);
    state->ranges.data[have->first + reading->part] = (struct rfs_range){
        piece.record, piece.offset * item, piece.elements * item, (uint16_t)reading->part};
    return 0;
}

static int read_large(const struct reading *reading, struct hfai_state *state,
                      const struct rfs_items *pairs)
{
    if (reading->part > 0 && pairs->n / 2 != state->large.n)
        return fail(reading, "it has pieces of other large tensors than part 0: the parts are of "
                             "different saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        const int rc = add_piece(reading, state, i / 2, pairs->data[i], pairs->data[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

static int make_states(const struct reading *reading, size_t n, size_t *count,
                       struct hfai_state **states)
{
    if (reading->part > 0)
        return n == *count
                   ? 0
                   : fail(reading, "it has another number of models or optimizers than part "
                                   "0: the parts are of different saves");
    *states = calloc(n + 1, sizeof **states);
    if (!*states)
        return rfs_fail_memory(reading->err);
    *count = n;
    for (size_t i = 0; i < n; i++) {
        (*states)[i].keys = rfs_intern_new();
        (*states)[i].large_keys = rfs_intern_new();
        if (!(*states)[i].keys || !(*states)[i].large_keys)
            return rfs_fail_memory(reading->err);
    }
    return 0;
}

static int read_part(const struct reading *reading)
{
    struct rfs_hfai *hfai = reading->hfai;
    const struct rfs_items *models = NULL;
    const struct rfs_items *optimizers = NULL;

    int rc = open_part(reading);
    if (rc == 0)
        rc = check_head(reading);
    if (rc == 0)
        rc = get_list(reading, "model", &models);
    if (rc == 0)
        rc = get_list(reading, "optimizer", &optimizers);
    if (rc == 0)
        rc = make_states(reading, models->n, &hfai->n_models, &hfai->models);
    if (rc == 0)
        rc = make_states(reading, optimizers->n, &hfai->n_optimizers, &hfai->optimizers);
    for (uint32_t i = 0; rc == 0 && i < models->n; i++) {
        struct rfs_node *const *pair = models->data[i]->of.items.data;
        rc = read_model(reading, &hfai->models[i], rfs_node_pairs(pair[0]));
        if (rc == 0)
            rc = read_large(reading, &hfai->models[i], rfs_node_pairs(pair[1]));
    }
    for (uint32_t i = 0; rc == 0 && i < optimizers->n; i++) {
        struct rfs_node *const *pair = optimizers->data[i]->of.items.data;
        rc = read_optimizer(reading, &hfai->optimizers[i], pair[0]);
        if (rc == 0)
            rc = read_large(reading, &hfai->optimizers[i], rfs_node_pairs(pair[1]));
    }
    /* Last, as what is above names a parameter by its own name. */
    return rc ? rc
              : rfs_torch_check(&hfai->parts[reading->part].torch, reading->path, reading->err);
}

/* The pieces of a large tensor are all of it. */
static int check_pieces(const struct reading *reading, struct hfai_state *state,
                        struct hfai_large *large)
{
    uint64_t bytes = rfs_dtype_bytes(large->dtype);
    uint64_t end = 0;

    for (uint32_t i = 0; i < large->ndim; i++)
        if (!rfs_mul_u64(bytes, large->dims[i], &bytes) || bytes > INT64_MAX / 16)
            return fail_key(reading, large->key, "a large tensor of an impossible size");
    for (uint32_t p = 0; p < reading->hfai->n_parts; p++) {
        /* Each is within its file: so many cannot be more than a number holds. */
        if (!rfs_add_u64(end, state->ranges.data[large->first + p].bytes, &end))
            return fail_key(reading, large->key, "a large tensor of an impossible size");
        state->ends[large->first + p] = end;
    }
    large->elements = bytes / rfs_dtype_bytes(large->dtype);
    return bytes == end ? 0
                        : fail_key(reading, large->key,
                                   "the pieces of the large tensor have another number of elements "
                                   "than the whole: parts are missing, or of different saves");
}

/* Links a large tensor with the entry that it goes back into. */
static int find_owner(const struct reading *reading, struct hfai_state *state,
                      struct hfai_large *large)
{
    const struct rfs_node *key = large->key;
    RFS_FREE char *canonical = NULL;
    size_t n;

    if (key->kind != RFS_NODE_TUPLE || key->of.items.n != 2)
        return fail_key(reading, key, "a large tensor of an optimizer that has no pair of keys");
    const int rc = get_key(reading, key->of.items.data[0], &canonical, &n);
    if (rc)
        return rc;
    const uint32_t owner = rfs_intern_find(state->keys, canonical, n);
    if (owner == RFS_NO_ID)
        return fail_key(reading, key, "a large tensor of a state that no part has");
    struct hfai_entry *entry = &state->entries.data[owner];
    if (!rfs_node_pairs(entry->value))
        return fail_key(reading, key, "a large tensor of a state that is no dict");
    large->inner = key->of.items.data[1];
    large->next = entry->first_large;
    entry->first_large = (uint32_t)(large - state->large.data);
    return 0;
}

/* It is there once, and nowhere whole. */
static int check_key(const struct reading *reading, struct hfai_state *state,
                     const struct hfai_large *large)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = get_key(reading, large->key, &canonical, &n);
    if (rc)
        return rc;
    const uint32_t before = rfs_intern_count(state->large_keys);
    const uint32_t id = rfs_intern_add(state->large_keys, canonical, n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(reading->err);
    if (id < before)
        return fail_key(reading, large->key, "is in pieces twice");
    return rfs_intern_find(state->keys, canonical, n) == RFS_NO_ID
               ? 0
               : fail_key(reading, large->key, "is both whole and in pieces");
}

static int check_state(const struct reading *reading, struct hfai_state *state, bool optimizer)
{
    int rc = 0;

    state->ends = calloc(state->ranges.n + 1, sizeof *state->ends);
    if (!state->ends)
        return rfs_fail_memory(reading->err);
    for (size_t k = state->large.n; rc == 0 && k-- > 0;) { /* so that lists are in order */
        struct hfai_large *large = &state->large.data[k];
        rc = check_pieces(reading, state, large);
        if (rc == 0)
            rc = check_key(reading, state, large);
        if (rc == 0 && optimizer)
            rc = find_owner(reading, state, large);
    }
    return rc;
}

static int check_states(const struct reading *reading, struct hfai_state *states, size_t n,
                        bool optimizer)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check_state(reading, &states[i], optimizer);
    return rc;
}

const char *rfs_hfai_path(const struct rfs_hfai *hfai, uint32_t part)
{
    return rfs_files_path(rfs_catalog_files(hfai->catalog), hfai->parts[part].file);
}

static int read_all(struct rfs_hfai *hfai, bool uneven_steps, struct rfs_error *err)
{
    struct reading reading = {.hfai = hfai, .err = err};
    int rc = 0;

    for (uint32_t p = 0; rc == 0 && p < hfai->n_parts; p++) {
        hfai->parts[p].file = rfs_catalog_file(hfai->catalog, p);
        if (!rfs_catalog_has(hfai->catalog, p))
            return rfs_fail(err, -ENOENT, RFS_IN(rfs_catalog_path(hfai->catalog)), RFS_HFAI_REMEDY,
                            "PART_%03u.pt is missing", p);
        reading.part = p;
        reading.path = rfs_hfai_path(hfai, p);
        rc = read_part(&reading);
    }
    reading.part = 0;
    reading.path = rfs_hfai_path(hfai, 0);
    if (rc == 0)
        rc = check_states(&reading, hfai->models, hfai->n_models, false);
    if (rc == 0)
        rc = check_states(&reading, hfai->optimizers, hfai->n_optimizers, true);
    return rc || uneven_steps ? rc : rfs_hfai_check_steps(hfai, err);
}

int rfs_hfai_open(struct rfs_catalog *catalog, bool uneven_steps, struct rfs_hfai **out,
                  struct rfs_error *err)
{
    struct rfs_hfai *hfai = calloc(1, sizeof *hfai);
    int rc = 0;

    *out = NULL;
    if (!hfai)
        return rfs_fail_memory(err);
    hfai->catalog = catalog;
    hfai->n_parts = rfs_catalog_ranks(catalog);
    hfai->parts = calloc(hfai->n_parts, sizeof *hfai->parts);
    if (!hfai->parts)
        rc = rfs_fail_memory(err);
    else if (hfai->n_parts > RFS_HFAI_PARTS)
        rc = rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(catalog)), NULL,
                      "has %u parts; at most %d are read", hfai->n_parts, RFS_HFAI_PARTS);
    else
        rc = read_all(hfai, uneven_steps, err);
    if (rc) {
        rfs_hfai_free(hfai);
        return rc;
    }
    *out = hfai;
    return 0;
}

static void free_states(struct hfai_state *states, size_t n)
{
    for (size_t i = 0; states && i < n; i++) {
        if (states[i].keys)
            rfs_intern_free(states[i].keys);
        if (states[i].large_keys)
            rfs_intern_free(states[i].large_keys);
        free(states[i].entries.data);
        free(states[i].large.data);
        free(states[i].ranges.data);
        free(states[i].ends);
    }
    free(states);
}

void rfs_hfai_free(struct rfs_hfai *hfai)
{
    if (!hfai)
        return;
    free_states(hfai->models, hfai->n_models);
    free_states(hfai->optimizers, hfai->n_optimizers);
    for (uint32_t p = 0; hfai->parts && p < hfai->n_parts; p++)
        if (hfai->parts[p].open)
            rfs_torch_free(&hfai->parts[p].torch);
    free(hfai->parts);
    free(hfai);
}

uint32_t rfs_hfai_parts(const struct rfs_hfai *hfai)
{
    return hfai->n_parts;
}

size_t rfs_hfai_models(const struct rfs_hfai *hfai)
{
    return hfai->n_models;
}

size_t rfs_hfai_optimizers(const struct rfs_hfai *hfai)
{
    return hfai->n_optimizers;
}

const struct rfs_torch *rfs_hfai_torch(const struct rfs_hfai *hfai, uint32_t part)
{
    return &hfai->parts[part].torch;
}
