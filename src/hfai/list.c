/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole state as two lists, tensors and values, so that two divisions of it can be compared.
 *
 * What dicts hold is listed by its path, because parts have it in another order: a dict itself says its class and
 * attributes. Everything else says what it holds in turn; only tensors and dicts in it are listed by themselves. All of
 * it is charged to a budget, since a pickle can have a value again for two bytes.
 */
#include "hfai/internal.h"

#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef RFS_VEC(char) text;

/* Levels that are visited: the pickle's, of which a call is several. */
#define DEPTH (4 * RFS_PICKLE_DEPTH)
#define SAID ((size_t)16384) /* bytes of a value that are kept, and then hashed */
/* Of the budget: a step of a path, something that is listed, and each byte of its name, which take memory. */
#define WORK_STEP 128
#define WORK_LISTED 256
#define WORK_BYTE 8

struct listing {
    const struct rfs_hfai *hfai;
    struct rfs_hfai_list *out;
    uint64_t work;
    text path;                           /* of what is being looked at */
    text said;                           /* of values that are not complete, the outermost first; */
    size_t value;                        /* of the innermost one, from here on */
    const struct rfs_node *above[DEPTH]; /* what is being visited, by depth */
    struct rfs_hfai_owner owner;         /* of the tensors that are listed */
    const struct rfs_items *cut;         /* whose tensors are cut by themselves; or NULL */
    struct rfs_error *err;
};

static bool append(text *to, const void *data, size_t n)
{
    while (to->cap - to->n < n)
        if (!rfs_vec_grow((void **)&to->data, &to->cap, to->cap, 1))
            return false;
    if (n > 0)
        memcpy(to->data + to->n, data, n);
    to->n += n;
    return true;
}

static int take(struct listing *listing, uint64_t units)
{
    return rfs_hfai_take(&listing->work, units, rfs_catalog_path(listing->hfai->catalog),
                         listing->err);
}

static XXH128_hash_t hash_said(const struct listing *listing)
{
    return XXH3_128bits(listing->said.data + listing->value, listing->said.n - listing->value);
}

/* What is long goes on from its hash. */
static int say(struct listing *listing, const void *data, size_t n)
{
    int rc = take(listing, n);

    if (rc == 0 && !append(&listing->said, data, n))
        rc = rfs_fail_memory(listing->err);
    if (rc == 0 && listing->said.n - listing->value > SAID) {
        const XXH128_hash_t hash = hash_said(listing);
        listing->said.n = listing->value;
        append(&listing->said, &hash, sizeof hash);
    }
    return rc;
}

/* A text with its length, so that no two can be taken for another two. */
static int say_text(struct listing *listing, const char *data, uint32_t n)
{
    const int rc = say(listing, &n, sizeof n);

    return rc ? rc : say(listing, data, n);
}

static int visit(struct listing *listing, const struct rfs_node *node, unsigned depth);

/* ---- paths ------------------------------------------------------------------------------------------ */

/* Goes a step down; the caller takes path.n back. */
static bool step(struct listing *listing, const char *name, size_t n)
{
    return (listing->path.n == 0 || append(&listing->path, ".", 1)) &&
           append(&listing->path, name, n);
}

static bool step_to(struct listing *listing, int64_t number)
{
    char digits[24];

    return step(listing, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, number));
}

/* By what it says, wherever in its dict it is. */
static int step_by_value(struct listing *listing, const struct rfs_node *key, unsigned depth)
{
    const size_t value = listing->value;
    char name[20];

    listing->value = listing->said.n;
    const int rc = visit(listing, key, depth);
    const uint64_t hash = rc == 0 ? hash_said(listing).low64 : 0;
    listing->said.n = listing->value;
    listing->value = value;
    if (rc)
        return rc;
    return step(listing, name, (size_t)snprintf(name, sizeof name, "#%016" PRIx64, hash))
               ? 0
               : rfs_fail_memory(listing->err);
}

static int step_by_key(struct listing *listing, const struct rfs_node *key, unsigned depth)
{
    const int rc = take(listing, rfs_hfai_key_bytes(key));
    bool ok;

    if (rc)
        return rc;
    if (key->kind == RFS_NODE_INT)
        ok = step_to(listing, key->of.integer);
    else if (key->kind == RFS_NODE_TEXT && rfs_text_is_utf8(key->of.text.data, key->of.text.n))
        ok = step(listing, key->of.text.data, key->of.text.n);
    else
        return step_by_value(listing, key, depth);
    return ok ? 0 : rfs_fail_memory(listing->err);
}

/* As a name that stays, of something that takes UNITS. */
static int keep_path(struct listing *listing, uint64_t units, const char **name)
{
    const int rc = take(listing, units + WORK_BYTE * (uint64_t)listing->path.n);

    if (rc)
        return rc;
    *name = rfs_arena_text(&listing->out->arena, listing->path.data ? listing->path.data : "",
                           listing->path.n);
    return *name ? 0 : rfs_fail_memory(listing->err);
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

/* The item that the storages got last, if they did (OK). */
static int list_item(struct listing *listing, bool ok, struct rfs_hfai_listed *listed)
{
    struct rfs_hfai_list *out = listing->out;
    int rc =
        ok ? keep_path(listing, HFAI_WORK_TENSOR, &listed->name) : rfs_fail_memory(listing->err);

    if (rc == 0)
        rc = rfs_hfai_tensors_show(listing->hfai, &out->storages, listed->type.bytes, listing->err);
    if (rc)
        return rc;
    return RFS_PUSH(&out->tensors, *listed) ? 0 : rfs_fail_memory(listing->err);
}

/* VALUE is the tensor where it is cut by itself, if it is large; or NULL. */
static int list_tensor(struct listing *listing, const struct rfs_torch_tensor *tensor,
                       uint16_t origin, const struct rfs_node *value)
{
    struct rfs_hfai_listed listed = {.owner = listing->owner};
    const bool ok = rfs_hfai_tensors_whole(listing->hfai, tensor, origin, &listing->out->storages,
                                           &listed.type);

    listed.owner.value = value;
    return list_item(listing, ok, &listed);
}

static int list_large(struct listing *listing, const struct hfai_state *state,
                      const struct hfai_large *large)
{
    struct rfs_hfai_listed listed = {.in_pieces = true, .owner = listing->owner};
    const bool ok =
        rfs_hfai_tensors_large(listing->hfai, state, large, &listing->out->storages, &listed.type);

    return list_item(listing, ok, &listed);
}

/* A storage that is not a tensor's: its bytes. */
static int list_storage(struct listing *listing, const struct rfs_node *node)
{
    const struct rfs_hfai *hfai = listing->hfai;
    struct rfs_torch_tensor bytes = {.dtype = RFS_UINT8, .ndim = 1, .contiguous = true};
    const int rc =
        rfs_torch_record(&hfai->parts[node->origin].torch, node, rfs_hfai_path(hfai, node->origin),
                         "", &bytes.record, listing->err);

    if (rc)
        return rc;
    bytes.dims[0] = bytes.elements = bytes.record->bytes;
    bytes.strides[0] = 1;
    return list_tensor(listing, &bytes, node->origin, NULL);
}

/* ---- values ----------------------------------------------------------------------------------------- */

/* What stands by itself, at the path as it is. */
static int list_here(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    const size_t value = listing->value;
    struct rfs_hfai_value listed;

    listing->value = listing->said.n;
    int rc = visit(listing, node, depth);
    if (rc == 0 && listing->said.n > listing->value) { /* else it is a tensor */
        const XXH128_hash_t hash = hash_said(listing);
        rc = keep_path(listing, WORK_LISTED, &listed.name);
        listed.hash[0] = hash.high64;
        listed.hash[1] = hash.low64;
        if (rc == 0 && !RFS_PUSH(&listing->out->values, listed))
            rc = rfs_fail_memory(listing->err);
    }
    listing->said.n = listing->value;
    listing->value = value;
    return rc;
}

/* A value of a dict. */
static int list_pair(struct listing *listing, const struct rfs_node *key,
                     const struct rfs_node *value, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = step_by_key(listing, key, depth);

    if (rc == 0)
        rc = list_here(listing, value, depth);
    listing->path.n = before;
    return rc;
}

static int list_pairs(struct listing *listing, const struct rfs_items *pairs, unsigned depth)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < pairs->n; i += 2)
        rc = list_pair(listing, pairs->data[i], pairs->data[i + 1], depth + 1);
    return rc;
}

/* Below a step of the path. */
static int visit_below(struct listing *listing, bool ok, size_t before, const struct rfs_node *node,
                       unsigned depth)
{
    const int rc = ok ? visit(listing, node, depth) : rfs_fail_memory(listing->err);

    listing->path.n = before;
    return rc;
}

static int visit_items(struct listing *listing, const struct rfs_items *items, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = say(listing, &items->n, sizeof items->n);

    for (uint32_t i = 0; rc == 0 && i < items->n; i++) {
        /* What holds nothing needs no path. */
        const bool ok = items->data[i]->kind < RFS_NODE_TUPLE || step_to(listing, i);
        rc = visit_below(listing, ok, before, items->data[i], depth + 1);
    }
    return rc;
}

static int visit_after(struct listing *listing, const struct rfs_after *after, unsigned depth)
{
    const size_t before = listing->path.n;
    const char has[] = {after->list != NULL, after->dict != NULL, after->state != NULL};
    int rc = say(listing, has, sizeof has);

    if (rc == 0 && after->list)
        rc = visit(listing, after->list, depth + 1);
    if (rc == 0 && after->dict)
        rc = visit(listing, after->dict, depth + 1);
    if (rc == 0 && after->state)
        rc = visit_below(listing, step(listing, "__dict__", 8), before, after->state, depth + 1);
    return rc;
}

static int visit_call(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    static const struct rfs_after none;
    const struct rfs_after *after = node->of.call.after ? node->of.call.after : &none;
    const size_t before = listing->path.n;
    int rc = visit(listing, node->of.call.callee, depth + 1);

    if (rc == 0)
        rc = visit_below(listing, step(listing, "()", 2), before, node->of.call.args, depth + 1);
    return rc ? rc : visit_after(listing, after, depth);
}

static int visit_global(struct listing *listing, const struct rfs_node *node)
{
    const int rc = say_text(listing, node->of.global.module, node->of.global.module_bytes);

    return rc ? rc : say_text(listing, rfs_node_global_name(node), node->of.global.name_bytes);
}

static int visit_kind(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_NONE:
        return 0;
    case RFS_NODE_BOOL:
        return say(listing, &node->of.truth, sizeof node->of.truth);
    case RFS_NODE_INT:
        return say(listing, &node->of.integer, sizeof node->of.integer);
    case RFS_NODE_FLOAT:
        return say(listing, &node->of.bits, sizeof node->of.bits);
    case RFS_NODE_LONG:
    case RFS_NODE_TEXT:
        return say_text(listing, node->of.text.data, node->of.text.n);
    case RFS_NODE_TUPLE:
    case RFS_NODE_LIST:
        return visit_items(listing, &node->of.items, depth);
    case RFS_NODE_DICT:
        return list_pairs(listing, &node->of.items, depth);
    case RFS_NODE_GLOBAL:
        return visit_global(listing, node);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return visit_call(listing, node, depth);
    case RFS_NODE_STORAGE: {
        const int rc = visit(listing, node->of.items.data[1], depth + 1);
        return rc ? rc : list_storage(listing, node);
    }
    }
    return 0;
}

/* Says how many levels up NODE is, which contains itself. 1, 0 if it does not, or -errno. */
static int say_ring(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    for (unsigned up = 1; node->kind >= RFS_NODE_TUPLE && up <= depth; up++)
        if (listing->above[depth - up] == node) {
            const unsigned char said[] = {UINT8_MAX, (unsigned char)(up & 255),
                                          (unsigned char)(up >> 8)};
            const int rc = say(listing, said, sizeof said);
            return rc ? rc : 1;
        }
    return 0;
}

/* Lists the tensors and dicts in it, and says all else. A tensor by itself says nothing. */
static int visit(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    const char *path = rfs_catalog_path(listing->hfai->catalog);
    const bool is_call = node->kind == RFS_NODE_CALL;
    struct rfs_torch_tensor tensor;
    int rc = take(listing, HFAI_WORK_NODE + (node->kind < RFS_NODE_TUPLE ? 0 : WORK_STEP + depth));

    if (rc)
        return rc;
    if (depth >= DEPTH)
        return rfs_fail(listing->err, -EFBIG, RFS_IN(path), RFS_HFAI_REMEDY,
                        "what the pickle in it holds is nested deeper than %d levels",
                        RFS_PICKLE_DEPTH);
    /* One that is lazily conjugate is no tensor here, but what it is made of. */
    if (is_call && rfs_torch_tensor(&listing->hfai->parts[node->origin].torch, node, "", "",
                                    &tensor, NULL) == 1) {
        const bool cut =
            listing->cut && depth > 0 && &listing->above[depth - 1]->of.items == listing->cut;
        return list_tensor(listing, &tensor, node->origin, cut ? node : NULL);
    }
    rc = say_ring(listing, node, depth);
    if (rc)
        return rc < 0 ? rc : 0;
    listing->above[depth] = node;
    rc = say(listing, &node->kind, sizeof node->kind);
    return rc ? rc : visit_kind(listing, node, depth);
}

/* ---- models, optimizers, the rest ------------------------------------------------------------------- */

static int list_model(struct listing *listing, size_t model)
{
    const struct hfai_state *state = &listing->hfai->models[model];
    struct rfs_hfai_list *out = listing->out;
    const size_t before = listing->path.n;
    struct rfs_hfai_tensor tensor;
    int rc;

    for (size_t i = 0; (rc = rfs_hfai_tensor(listing->hfai, model, i, &out->storages, &tensor,
                                             listing->err)) == 1;
         i++) {
        struct rfs_hfai_listed listed = {
            .type = tensor.type,
            .in_pieces = i >= state->entries.n,
            .owner = {(uint32_t)model, (uint32_t)i,
                      i < state->entries.n ? state->entries.data[i].value : NULL}};
        if (!step(listing, tensor.name, tensor.name_bytes))
            return rfs_fail_memory(listing->err);
        rc = keep_path(listing, HFAI_WORK_TENSOR, &listed.name);
        if (rc == 0 && !RFS_PUSH(&out->tensors, listed))
            rc = rfs_fail_memory(listing->err);
        if (rc)
            return rc;
        listing->path.n = before;
    }
    return rc;
}

static int list_models(struct listing *listing)
{
    const bool one = listing->hfai->n_models == 1;
    int rc = 0;

    for (size_t m = 0; rc == 0 && m < listing->hfai->n_models; m++) {
        const bool ok = one || (step(listing, "model", 5) && step_to(listing, (int64_t)m));
        rc = ok ? list_model(listing, m) : rfs_fail_memory(listing->err);
        listing->path.n = 0;
    }
    listing->out->n_models = listing->out->tensors.n;
    return rc;
}

/* The large tensors go where they belong: at (k1, k2) below the state. */
static int list_state(struct listing *listing, const struct hfai_state *state)
{
    const size_t before = listing->path.n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < state->entries.n; i++) {
        listing->owner.item = (uint32_t)i;
        listing->cut = rfs_node_pairs(state->entries.data[i].value);
        rc = list_pair(listing, state->entries.data[i].key, state->entries.data[i].value, 0);
    }
    listing->cut = NULL;
    for (size_t i = 0; rc == 0 && i < state->large.n; i++) {
        const struct hfai_large *large = &state->large.data[i];
        const struct rfs_items *key = &large->key->of.items;
        listing->owner.item = (uint32_t)(state->entries.n + i);
        rc = step_by_key(listing, key->data[0], 0);
        if (rc == 0)
            rc = step_by_key(listing, key->data[1], 0);
        if (rc == 0)
            rc = list_large(listing, state, large);
        listing->path.n = before;
    }
    return rc;
}

static int list_optimizer(struct listing *listing, const struct hfai_state *state)
{
    const struct rfs_items *rest = rfs_node_pairs(state->rest);
    const size_t before = listing->path.n;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < rest->n; i += 2) {
        if (!rfs_node_is_text(rest->data[i], "state")) {
            rc = list_pair(listing, rest->data[i], rest->data[i + 1], 0);
            continue;
        }
        rc = step(listing, "state", 5) ? list_state(listing, state) : rfs_fail_memory(listing->err);
        listing->path.n = before;
        listing->owner.item = HFAI_NONE;
    }
    return rc;
}

static int list_optimizers(struct listing *listing)
{
    const struct rfs_hfai *hfai = listing->hfai;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < hfai->n_optimizers; i++) {
        const bool ok = step(listing, "optimizer", 9) &&
                        (hfai->n_optimizers == 1 || step_to(listing, (int64_t)i));
        listing->owner = (struct rfs_hfai_owner){(uint32_t)(hfai->n_models + i), HFAI_NONE, NULL};
        rc = ok ? list_optimizer(listing, &hfai->optimizers[i]) : rfs_fail_memory(listing->err);
        listing->path.n = 0;
    }
    return rc;
}

/* What else was given to save(). */
static int list_others(struct listing *listing)
{
    const struct rfs_items *first = rfs_node_pairs(listing->hfai->parts[0].torch.pickle.root);
    int rc = 0;

    listing->owner = (struct rfs_hfai_owner){
        (uint32_t)(listing->hfai->n_models + listing->hfai->n_optimizers), HFAI_NONE, NULL};
    for (uint32_t i = 0; rc == 0 && i < first->n; i += 2)
        if (!rfs_hfai_is_own(first->data[i]))
            rc = list_pair(listing, first->data[i], first->data[i + 1], 0);
    return rc;
}

int rfs_hfai_list(const struct rfs_hfai *hfai, struct rfs_hfai_list *out, struct rfs_error *err)
{
    struct listing listing = {.hfai = hfai, .out = out, .work = HFAI_WORK_MORE, .err = err};

    *out = (struct rfs_hfai_list){0};
    for (uint32_t p = 0; p < hfai->n_parts; p++)
        listing.work += HFAI_WORK_TIMES * (uint64_t)hfai->parts[p].torch.pickle.n_bytes;
    int rc = list_models(&listing);
    if (rc == 0)
        rc = list_optimizers(&listing);
    if (rc == 0)
        rc = list_others(&listing);
    free(listing.path.data);
    free(listing.said.data);
    return rc;
}

void rfs_hfai_list_free(struct rfs_hfai_list *list)
{
    rfs_storages_free(&list->storages);
    free(list->tensors.data);
    free(list->values.data);
    rfs_arena_free(&list->arena);
    *list = (struct rfs_hfai_list){0};
}
