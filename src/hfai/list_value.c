/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the contents of a value. Items of dicts are listed by their paths, because their order
 * differs between parts: the hash of a dict itself covers its class and attributes. The hash of any
 * other value covers its contents in turn; only tensors and dicts in it are listed by themselves.
 * All of it is charged to a budget, since a pickle can have a value again for two bytes.
 */
#include "hfai/listing.h"

#include "base/text.h"

#include <xxhash.h>

#define SAID ((size_t)16384) /* bytes of a value that are kept, and then hashed */
/*
 * Of the budget: a step of a path, something that is listed, and each byte of its name, which take
 * memory.
 */
#define WORK_STEP 128
#define WORK_LISTED 256
#define WORK_BYTE 8

static int take(struct hfai_listing *listing, uint64_t units)
{
    return rfs_hfai_take(&listing->work, units, rfs_catalog_path(listing->hfai->catalog),
                         listing->err);
}

static XXH128_hash_t hash_said(const struct hfai_listing *listing)
{
    return XXH3_128bits(listing->said.data + listing->value, listing->said.n - listing->value);
}

/* A long text is continued from its hash. */
static int say(struct hfai_listing *listing, const void *data, size_t n)
{
    const int rc = take(listing, n);

    if (rc)
        return rc;
    if (!rfs_bytes_put(&listing->said, data, n))
        return rfs_fail_memory(listing->err);
    if (listing->said.n - listing->value > SAID) {
        const XXH128_hash_t hash = hash_said(listing);
        listing->said.n = listing->value;
        rfs_bytes_put(&listing->said, &hash, sizeof hash);
    }
    return 0;
}

/* A text with its length, so that no two can be taken for another two. */
static int say_text(struct hfai_listing *listing, const char *data, uint32_t n)
{
    const int rc = say(listing, &n, sizeof n);

    return rc ? rc : say(listing, data, n);
}

static int visit(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth);

/* ---- paths ----------------------------------------------------------------------------------- */

void rfs_hfai_step(struct hfai_listing *listing, const char *name, size_t n)
{
    if (listing->path.n > 0)
        rfs_bytes_put(&listing->path, ".", 1);
    rfs_bytes_put(&listing->path, name, n);
}

void rfs_hfai_step_to(struct hfai_listing *listing, int64_t number)
{
    char digits[24];

    rfs_hfai_step(listing, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, number));
}

/* The hash of a value by itself. 1, 0 for a tensor, which has none, or -errno. */
static int hash_value(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth,
                      XXH128_hash_t *hash)
{
    const size_t outer = listing->value;

    listing->value = listing->said.n;
    const int rc = visit(listing, node, depth);
    const bool said = listing->said.n > listing->value;
    *hash = hash_said(listing);
    listing->said.n = listing->value;
    listing->value = outer;
    return rc ? rc : said;
}

/* By its hash, independent of its place in the dict. */
static int step_by_value(struct hfai_listing *listing, const struct rfs_node *key, unsigned depth)
{
    XXH128_hash_t hash;
    char name[20];
    const int rc = hash_value(listing, key, depth, &hash);

    if (rc >= 0)
        rfs_hfai_step(listing, name,
                      (size_t)snprintf(name, sizeof name, "#%016" PRIx64, hash.low64));
    return rc < 0 ? rc : 0;
}

int rfs_hfai_step_by_key(struct hfai_listing *listing, const struct rfs_node *key, unsigned depth)
{
    const int rc = take(listing, rfs_hfai_key_bytes(key));

    if (rc)
        return rc;
    if (key->kind == RFS_NODE_INT)
        rfs_hfai_step_to(listing, key->of.integer);
    else if (key->kind == RFS_NODE_TEXT && rfs_text_is_utf8(key->of.text.data, key->of.text.n))
        rfs_hfai_step(listing, key->of.text.data, key->of.text.n);
    else
        return step_by_value(listing, key, depth);
    return 0;
}

int rfs_hfai_keep_path(struct hfai_listing *listing, uint64_t units, const char **name)
{
    const int rc = take(listing, units + WORK_BYTE * (uint64_t)listing->path.n);

    if (rc)
        return rc;
    *name = rfs_arena_text(&listing->out->arena,
                           listing->path.n > 0 ? (const char *)listing->path.data : "",
                           listing->path.n);
    return *name && !listing->path.failed ? 0 : rfs_fail_memory(listing->err);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The item that the storages got last, if they did (OK). */
static int list_item(struct hfai_listing *listing, bool ok, struct rfs_hfai_listed *listed)
{
    struct rfs_hfai_list *out = listing->out;
    int rc = ok ? rfs_hfai_keep_path(listing, HFAI_WORK_TENSOR, &listed->name)
                : rfs_fail_memory(listing->err);

    if (rc == 0)
        rc = rfs_hfai_tensors_show(listing->hfai, &out->storages, listed->type.bytes, listing->err);
    if (rc)
        return rc;
    return RFS_PUSH(&out->tensors, *listed) ? 0 : rfs_fail_memory(listing->err);
}

/* VALUE is the tensor where it is cut by itself, if it is large; or NULL. */
static int list_tensor(struct hfai_listing *listing, const struct rfs_torch_tensor *tensor,
                       uint16_t origin, const struct rfs_node *value)
{
    struct rfs_hfai_listed listed = {.owner = listing->owner};

    listed.owner.value = value;
    return list_item(listing,
                     rfs_hfai_tensors_whole(listing->hfai, tensor, origin, &listing->out->storages,
                                            &listed.type),
                     &listed);
}

int rfs_hfai_list_large(struct hfai_listing *listing, const struct hfai_state *state,
                        const struct hfai_large *large)
{
    struct rfs_hfai_listed listed = {.in_pieces = true, .owner = listing->owner};
    const bool ok =
        rfs_hfai_tensors_large(listing->hfai, state, large, &listing->out->storages, &listed.type);

    return list_item(listing, ok, &listed);
}

/* A storage that is not a tensor's: its bytes. */
static int list_storage(struct hfai_listing *listing, const struct rfs_node *node)
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

/* ---- values ---------------------------------------------------------------------------------- */

/* A value by itself, at the path as it is. */
static int list_here(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth)
{
    struct rfs_hfai_value listed;
    XXH128_hash_t hash;
    int rc = hash_value(listing, node, depth, &hash);

    if (rc <= 0)
        return rc;
    rc = rfs_hfai_keep_path(listing, WORK_LISTED, &listed.name);
    listed.hash[0] = hash.high64;
    listed.hash[1] = hash.low64;
    if (rc == 0 && !RFS_PUSH(&listing->out->values, listed))
        rc = rfs_fail_memory(listing->err);
    return rc;
}

int rfs_hfai_list_pair(struct hfai_listing *listing, const struct rfs_node *key,
                       const struct rfs_node *value, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = rfs_hfai_step_by_key(listing, key, depth) ?: list_here(listing, value, depth);

    listing->path.n = before;
    return rc;
}

static int list_pairs(struct hfai_listing *listing, const struct rfs_items *pairs, unsigned depth)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < pairs->n; i += 2)
        rc = rfs_hfai_list_pair(listing, pairs->data[i], pairs->data[i + 1], depth + 1);
    return rc;
}

/* Below a step of the path, which ends at BEFORE. */
static int visit_below(struct hfai_listing *listing, size_t before, const struct rfs_node *node,
                       unsigned depth)
{
    const int rc = visit(listing, node, depth);

    listing->path.n = before;
    return rc;
}

static int visit_items(struct hfai_listing *listing, const struct rfs_items *items, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = say(listing, &items->n, sizeof items->n);

    for (uint32_t i = 0; rc == 0 && i < items->n; i++) {
        if (items->data[i]->kind >= RFS_NODE_TUPLE) /* scalars need no path */
            rfs_hfai_step_to(listing, i);
        rc = visit_below(listing, before, items->data[i], depth + 1);
    }
    return rc;
}

static int visit_after(struct hfai_listing *listing, const struct rfs_after *after, unsigned depth)
{
    const size_t before = listing->path.n;
    const char has[] = {after->list != NULL, after->dict != NULL, after->state != NULL};
    int rc = say(listing, has, sizeof has);

    if (rc == 0 && after->list)
        rc = visit(listing, after->list, depth + 1);
    if (rc == 0 && after->dict)
        rc = visit(listing, after->dict, depth + 1);
    if (rc || !after->state)
        return rc;
    rfs_hfai_step(listing, "__dict__", 8);
    return visit_below(listing, before, after->state, depth + 1);
}

static int visit_call(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth)
{
    static const struct rfs_after none;
    const struct rfs_after *after = node->of.call.after ? node->of.call.after : &none;
    const size_t before = listing->path.n;
    int rc = visit(listing, node->of.call.callee, depth + 1);

    if (rc)
        return rc;
    rfs_hfai_step(listing, "()", 2);
    rc = visit_below(listing, before, node->of.call.args, depth + 1);
    return rc ? rc : visit_after(listing, after, depth);
}

static int visit_global(struct hfai_listing *listing, const struct rfs_node *node)
{
    const int rc = say_text(listing, node->of.global.module, node->of.global.module_bytes);

    return rc ? rc : say_text(listing, rfs_node_global_name(node), node->of.global.name_bytes);
}

static int visit_kind(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth)
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

/* Hashes how many levels up NODE is, if it contains itself. 1, 0 if it does not, or -errno. */
static int say_ring(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth)
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

/*
 * Lists the tensors and dicts in it, and hashes everything else. A tensor by itself adds nothing to
 * the hash.
 */
static int visit(struct hfai_listing *listing, const struct rfs_node *node, unsigned depth)
{
    const char *path = rfs_catalog_path(listing->hfai->catalog);
    const bool is_call = node->kind == RFS_NODE_CALL;
    struct rfs_torch_tensor tensor;
    int rc = take(listing, HFAI_WORK_NODE + (node->kind < RFS_NODE_TUPLE ? 0 : WORK_STEP + depth));

    if (rc)
        return rc;
    if (depth >= HFAI_LIST_DEPTH)
        return rfs_fail(listing->err, -EFBIG, RFS_IN(path), RFS_HFAI_REMEDY,
                        "the content of its pickle is nested deeper than %d levels",
                        RFS_PICKLE_DEPTH);
    /* A lazily conjugate one is no tensor here, but the call that makes it. */
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
