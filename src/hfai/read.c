/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each part is a dict:
 *
 *     "__nshards__": n, "__version__": "2.0.0",
 *     "model":     [ (OrderedDict name -> tensor,  dict name -> (torch.Size, piece)), … ]
 *     "optimizer": [ (state_dict() with its own entries of "state", dict (k1, k2) -> (torch.Size, piece)), … ]
 *     and, in part 0 only, whatever else was given to save()
 *
 * Whole values are each in one part; part 0 has all buffers. Large tensors are flattened and cut in
 * n pieces, piece r in part r. All other keys of an optimizer's state_dict are the same in all
 * parts: where they differ, the parts are of different saves. Source: dist_ckpt of hfai, format
 * 2.0.0.
 */
#include "hfai/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

int rfs_hfai_fail(const struct hfai_reading *reading, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path), RFS_HFAI_REMEDY, "%s", what);
}

int rfs_hfai_fail_key(const struct hfai_reading *reading, const struct rfs_node *key,
                      const char *what)
{
    char name[256];

    rfs_hfai_show_key(key, name, sizeof name);
    return rfs_fail(reading->err, -EINVAL, RFS_OF(reading->path, name), RFS_HFAI_REMEDY, "%s",
                    what);
}

int rfs_hfai_pay(const struct hfai_reading *reading, uint64_t bytes)
{
    return rfs_budget_take(&reading->hfai->memory, bytes, reading->path, reading->err);
}

int rfs_hfai_canonical(const struct hfai_reading *reading, const struct rfs_node *key, char **out,
                       size_t *n)
{
    int rc = rfs_hfai_spend(reading, rfs_hfai_key_bytes(key));

    *out = NULL;
    if (rc)
        return rc;
    rc = rfs_hfai_key(key, out, n);
    return rc == -EINVAL
               ? rfs_hfai_fail_key(reading, key, "a key that is neither a text nor an integer")
           : rc < 0 ? rfs_fail_memory(reading->err)
                    : 0;
}

static int open_part(const struct hfai_reading *reading)
{
    struct hfai_part *part = &reading->hfai->parts[reading->part];
    struct rfs_files *files = rfs_catalog_files(reading->hfai->catalog);
    struct rfs_reading source;

    int rc = rfs_reading_begin_quiet(files, part->file, &source);
    if (rc)
        return rfs_files_fail(reading->err, reading->path, rc);
    rc = rfs_torch_keep(rfs_reading_read, &source, source.size, (uint16_t)reading->part,
                        reading->path, &reading->hfai->memory, &part->torch, reading->err);
    part->open = rc == 0;
    if (rc == 0) /* for notes on its nodes: part->same, and known of weighers */
        rc = rfs_hfai_pay(reading, part->torch.pickle.n_nodes * sizeof *part->same);
    part->work = HFAI_WORK_MORE;
    if (rc == 0)
        part->work += HFAI_WORK_TIMES * (uint64_t)part->torch.pickle.n_bytes;
    uint64_t *all = &reading->hfai->large.file_bytes;
    if (!rfs_add_u64(*all, source.size, all))
        *all = UINT64_MAX;
    const int ended = rfs_reading_end(&source);
    if (ended)
        rc = rfs_files_fail(reading->err, reading->path, ended);
    return rc;
}

static const struct rfs_node *root(const struct rfs_hfai *hfai, uint32_t part)
{
    return hfai->parts[part].torch.pickle.root;
}

static int check_head(const struct hfai_reading *reading)
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
static int get_list(const struct hfai_reading *reading, const char *what,
                    const struct rfs_items **out)
{
    const struct rfs_node *list = rfs_node_get(root(reading->hfai, reading->part), what);

    if (!list || list->kind != RFS_NODE_LIST)
        return rfs_hfai_fail(reading, "the part has no list of models and optimizers");
    *out = &list->of.items;
    for (uint32_t i = 0; i < list->of.items.n; i++) {
        const struct rfs_node *pair = list->of.items.data[i];
        if (pair->kind != RFS_NODE_TUPLE || pair->of.items.n != 2 ||
            !rfs_node_pairs(pair->of.items.data[0]) || !rfs_node_pairs(pair->of.items.data[1]))
            return rfs_hfai_fail(reading,
                                 "a model or optimizer of the part is not a pair of dicts");
    }
    return 0;
}

/*
 * Adds an entry, or lets it take the place of another part's of the same key, as dict.update does.
 */
static int add_entry(const struct hfai_reading *reading, struct hfai_state *state,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = rfs_hfai_canonical(reading, key, &canonical, &n);
    if (rc)
        return rc;
    const uint32_t id = rfs_intern_add(state->keys, canonical, n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(reading->err);
    const struct hfai_entry entry = {key, value, reading->part, HFAI_NONE};
    if (id == state->entries.n) {
        const int paid = rfs_hfai_pay(reading, HFAI_GROWN * sizeof entry + rfs_hfai_key_bytes(key));
        if (paid)
            return paid;
        return RFS_PUSH(&state->entries, entry) ? 0 : rfs_fail_memory(reading->err);
    }
    if (state->entries.data[id].part == reading->part)
        return rfs_hfai_fail_key(reading, key, "is twice in the part");
    state->entries.data[id].value = value;
    state->entries.data[id].part = reading->part;
    return 0;
}

static int read_model(const struct hfai_reading *reading, struct hfai_state *state,
                      const struct rfs_items *pairs)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;

    for (uint32_t i = 0; i < pairs->n; i += 2) {
        struct rfs_torch_tensor tensor;
        char name[256];
        if (pairs->data[i]->kind != RFS_NODE_TEXT)
            return rfs_hfai_fail_key(reading, pairs->data[i],
                                     "a parameter whose name is not a text");
        int rc = rfs_torch_tensor(torch, pairs->data[i + 1], "", "", &tensor, NULL);
        if (rc < 0) { /* again, for the error message */
            rfs_hfai_show_key(pairs->data[i], name, sizeof name);
            rc = rfs_torch_tensor(torch, pairs->data[i + 1], reading->path, name, &tensor,
                                  reading->err);
        }
        if (rc == 0)
            rc = rfs_hfai_fail_key(reading, pairs->data[i], "a parameter that is not a tensor");
        if (rc == 1)
            rc = add_entry(reading, state, pairs->data[i], pairs->data[i + 1]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/*
 * Takes the cost of each walk through the state of a parameter from the budget, however many
 * parameters share it.
 */
static int spend_value(const struct hfai_reading *reading, const struct rfs_node *value)
{
    const struct rfs_items *pairs = rfs_node_pairs(value);
    int rc = 0;

    for (uint32_t i = 1; pairs && rc == 0 && i < pairs->n; i += 2)
        rc = rfs_hfai_spend(reading, pairs->data[i]->kind == RFS_NODE_CALL ? HFAI_WORK_TENSOR
                                                                           : HFAI_WORK_NODE);
    return rc;
}

/* "state" of part P's share, and everything else the same as in part 0. */
static int read_optimizer(const struct hfai_reading *reading, struct hfai_state *state,
                          const struct rfs_node *dict)
{
    const struct rfs_items *pairs = rfs_node_pairs(dict);
    const struct rfs_node *own = rfs_node_get(dict, "state");
    const struct rfs_items *entries = own ? rfs_node_pairs(own) : NULL;

    if (!entries)
        return rfs_hfai_fail(reading, "an optimizer of the part has no state");
    state->rest = state->rest ? state->rest : dict;
    const struct rfs_items *first = rfs_node_pairs(state->rest);
    if (first->n != pairs->n)
        return rfs_hfai_fail(
            reading, "its optimizer has other keys than part 0's: the parts are of different "
                     "saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        if (rfs_node_is_text(pairs->data[i], "state"))
            continue;
        int same = rfs_hfai_same(reading, pairs->data[i], first->data[i]);
        if (same == 1)
            same = rfs_hfai_same(reading, pairs->data[i + 1], first->data[i + 1]);
        if (same < 0)
            return same;
        if (same == 0)
            return rfs_hfai_fail_key(reading, pairs->data[i],
                                     "differs from part 0's: the parts are of different saves");
    }
    for (uint32_t i = 0; i < entries->n; i += 2) {
        int rc = spend_value(reading, entries->data[i + 1])
                     ?: add_entry(reading, state, entries->data[i], entries->data[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

static int make_states(const struct hfai_reading *reading, size_t n, size_t *count,
                       struct hfai_state **states)
{
    if (reading->part > 0)
        return n == *count
                   ? 0
                   : rfs_hfai_fail(reading,
                                   "it has another number of models or optimizers than part "
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

static int read_states(const struct hfai_reading *reading)
{
    struct rfs_hfai *hfai = reading->hfai;
    const struct rfs_items *models = NULL;
    const struct rfs_items *optimizers = NULL;

    int rc = open_part(reading)
            ?: check_head(reading)
            ?: get_list(reading, "model", &models)
            ?: get_list(reading, "optimizer", &optimizers)
            ?: make_states(reading, models->n, &hfai->n_models, &hfai->models)
            ?: make_states(reading, optimizers->n, &hfai->n_optimizers, &hfai->optimizers);
    for (uint32_t i = 0; rc == 0 && i < models->n; i++) {
        struct rfs_node *const *pair = models->data[i]->of.items.data;
        rc = read_model(reading, &hfai->models[i], rfs_node_pairs(pair[0]))
                 ?: rfs_hfai_read_large(reading, &hfai->models[i], rfs_node_pairs(pair[1]));
    }
    for (uint32_t i = 0; rc == 0 && i < optimizers->n; i++) {
        struct rfs_node *const *pair = optimizers->data[i]->of.items.data;
        rc = read_optimizer(reading, &hfai->optimizers[i], pair[0])
                 ?: rfs_hfai_read_large(reading, &hfai->optimizers[i], rfs_node_pairs(pair[1]));
    }
    return rc;
}

static int read_part(const struct hfai_reading *reading)
{
    struct hfai_part *part = &reading->hfai->parts[reading->part];
    const int rc = read_states(reading);

    free(part->same);
    part->same = NULL;
    /* Last, as the code above uses a parameter's own name. */
    return rc ? rc : rfs_torch_check(&part->torch, reading->path, reading->err);
}

const char *rfs_hfai_path(const struct rfs_hfai *hfai, uint32_t part)
{
    return rfs_files_path(rfs_catalog_files(hfai->catalog), hfai->parts[part].file);
}

static int read_all(struct rfs_hfai *hfai, bool uneven_steps, struct rfs_error *err)
{
    struct hfai_reading reading = {.hfai = hfai, .err = err};
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
        rc = rfs_hfai_check_large(&reading, hfai->models, hfai->n_models, false);
    if (rc == 0)
        rc = rfs_hfai_check_large(&reading, hfai->optimizers, hfai->n_optimizers, true);
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
    hfai->memory.most = rfs_catalog_index_most(catalog);
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
