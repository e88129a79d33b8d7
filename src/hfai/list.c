/* SPDX-License-Identifier: Apache-2.0 */
/* The whole state as two lists, tensors and values, so that two divisions of it can be compared. */
#include "hfai/listing.h"

static int list_model(struct hfai_listing *listing, size_t model)
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
        rfs_hfai_step(listing, tensor.name, tensor.name_bytes);
        rc = rfs_hfai_keep_path(listing, HFAI_WORK_TENSOR, &listed.name);
        if (rc == 0 && !RFS_PUSH(&out->tensors, listed))
            rc = rfs_fail_memory(listing->err);
        if (rc)
            return rc;
        listing->path.n = before;
    }
    return rc;
}

static int list_models(struct hfai_listing *listing)
{
    const bool one = listing->hfai->n_models == 1;
    int rc = 0;

    for (size_t m = 0; rc == 0 && m < listing->hfai->n_models; m++) {
        if (!one) {
            rfs_hfai_step(listing, "model", 5);
            rfs_hfai_step_to(listing, (int64_t)m);
        }
        rc = list_model(listing, m);
        listing->path.n = 0;
    }
    listing->out->n_models = listing->out->tensors.n;
    return rc;
}

/* The large tensors go where they belong: at (k1, k2) below the state. */
static int list_state(struct hfai_listing *listing, const struct hfai_state *state)
{
    const size_t before = listing->path.n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < state->entries.n; i++) {
        listing->owner.item = (uint32_t)i;
        listing->cut = rfs_node_pairs(state->entries.data[i].value);
        rc = rfs_hfai_list_pair(listing, state->entries.data[i].key, state->entries.data[i].value,
                                0);
    }
    listing->cut = NULL;
    for (size_t i = 0; rc == 0 && i < state->large.n; i++) {
        const struct hfai_large *large = &state->large.data[i];
        const struct rfs_items *key = &large->key->of.items;
        listing->owner.item = (uint32_t)(state->entries.n + i);
        rc = rfs_hfai_step_by_key(listing, key->data[0], 0)
                ?: rfs_hfai_step_by_key(listing, key->data[1], 0)
                ?: rfs_hfai_list_large(listing, state, large);
        listing->path.n = before;
    }
    return rc;
}

static int list_optimizer(struct hfai_listing *listing, const struct hfai_state *state)
{
    const struct rfs_items *rest = rfs_node_pairs(state->rest);
    const size_t before = listing->path.n;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < rest->n; i += 2) {
        if (!rfs_node_is_text(rest->data[i], "state")) {
            rc = rfs_hfai_list_pair(listing, rest->data[i], rest->data[i + 1], 0);
            continue;
        }
        rfs_hfai_step(listing, "state", 5);
        rc = list_state(listing, state);
        listing->path.n = before;
        listing->owner.item = HFAI_NONE;
    }
    return rc;
}

static int list_optimizers(struct hfai_listing *listing)
{
    const struct rfs_hfai *hfai = listing->hfai;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < hfai->n_optimizers; i++) {
        rfs_hfai_step(listing, "optimizer", 9);
        if (hfai->n_optimizers > 1)
            rfs_hfai_step_to(listing, (int64_t)i);
        listing->owner = (struct rfs_hfai_owner){(uint32_t)(hfai->n_models + i), HFAI_NONE, NULL};
        rc = list_optimizer(listing, &hfai->optimizers[i]);
        listing->path.n = 0;
    }
    return rc;
}

/* The other values that were given to save(). */
static int list_others(struct hfai_listing *listing)
{
    const struct rfs_items *first = rfs_node_pairs(listing->hfai->parts[0].torch.pickle.root);
    int rc = 0;

    listing->owner = (struct rfs_hfai_owner){
        (uint32_t)(listing->hfai->n_models + listing->hfai->n_optimizers), HFAI_NONE, NULL};
    for (uint32_t i = 0; rc == 0 && i < first->n; i += 2)
        if (!rfs_hfai_is_own(first->data[i]))
            rc = rfs_hfai_list_pair(listing, first->data[i], first->data[i + 1], 0);
    return rc;
}

int rfs_hfai_list(const struct rfs_hfai *hfai, struct rfs_hfai_list *out, struct rfs_error *err)
{
    struct hfai_listing listing = {.hfai = hfai, .out = out, .work = HFAI_WORK_MORE, .err = err};

    *out = (struct rfs_hfai_list){0};
    for (uint32_t p = 0; p < hfai->n_parts; p++)
        listing.work += HFAI_WORK_TIMES * (uint64_t)hfai->parts[p].torch.pickle.n_bytes;
    int rc = list_models(&listing) ?: list_optimizers(&listing) ?: list_others(&listing);
    if (rc == 0 && listing.path.failed)
        rc = rfs_fail_memory(err);
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
