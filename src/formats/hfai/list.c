/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole state as two lists, tensors and values, so that two divisions of it can be compared.
 * The tensors are those of a checkpoint that describes itself (chunks.h), and read as such.
 *
 * A whole tensor is one chunk. One in pieces is flattened (formats/chunks/boxes.c draws that), with
 * a chunk for each part.
 *
 * Items of dicts are listed by their paths, because their order differs between parts: the hash of
 * a dict itself covers its class and attributes. The hash of any other value covers its contents in
 * turn; only tensors and dicts in it are listed by themselves. All of it is charged to a budget,
 * since a pickle can have a value again for two bytes.
 */
#include "formats/hfai/internal.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"

#include <xxhash.h>

/* ---- the list in the making ------------------------------------------------------------------ */

#define SAID ((size_t)16384) /* bytes of a value that are collected before they are hashed */
/* Units of the budget for what takes memory. */
#define WORK_STEP 128   /* a step of a path */
#define WORK_LISTED 256 /* something that is listed */
#define WORK_BYTE 8     /* a byte of its name */

/* Levels that are visited: the pickle's; a call counts as several. */
#define LIST_DEPTH (4 * RFS_PICKLE_DEPTH)

/* A list in the making. Functions that take it return 0, or -errno with the error filled. */
struct listing {
    const struct rfs_hfai *hfai;
    const struct rfs_hfai_listing *how;
    struct rfs_hfai_list *out;
    uint64_t work;
    struct rfs_torch_shown shown; /* bytes of the tensors so far */
    struct rfs_bytes path;        /* of the current node */
    struct rfs_bytes said;        /* of values that are not complete, the outermost first */
    size_t value;                 /* where the innermost one begins in said */
    const struct rfs_node *above[LIST_DEPTH]; /* the visited nodes, by depth */
    struct rfs_hfai_owner owner;              /* of the tensors that are listed */
    const struct rfs_items *cut;              /* its tensors are cut by themselves; or NULL */
    struct rfs_error *err;
};

static int take(struct listing *listing, uint64_t units)
{
    return rfs_hfai_take(&listing->work, units, listing->hfai->folder, listing->err);
}

static XXH128_hash_t hash_said(const struct listing *listing)
{
    return XXH3_128bits(listing->said.data + listing->value, listing->said.n - listing->value);
}

/* Adds bytes to the value that is hashed. A long value goes on from its hash. */
static int say(struct listing *listing, const void *data, size_t n)
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

/* Adds a text with its length, so that no two texts can be taken for another two. */
static int say_text(struct listing *listing, const char *data, uint32_t n)
{
    return say(listing, &n, sizeof n) ?: say(listing, data, n);
}

static int visit(struct listing *listing, const struct rfs_node *node, unsigned depth);

/* ---- paths ----------------------------------------------------------------------------------- */

/*
 * Goes a step down; the caller restores path.n. A lack of memory is reported where the path is
 * used.
 */
static void step(struct listing *listing, const char *name, size_t n)
{
    if (listing->path.n > 0)
        rfs_bytes_put(&listing->path, ".", 1);
    rfs_bytes_put(&listing->path, name, n);
}

static void step_to(struct listing *listing, int64_t number)
{
    char digits[24];

    step(listing, digits, (size_t)snprintf(digits, sizeof digits, "%" PRId64, number));
}

/* Gives the hash of a value by itself. 1, 0 for a tensor, which has none, or -errno. */
static int hash_value(struct listing *listing, const struct rfs_node *node, unsigned depth,
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

/* Goes a step down by the hash of a key, which does not depend on its place in the dict. */
static int step_by_value(struct listing *listing, const struct rfs_node *key, unsigned depth)
{
    XXH128_hash_t hash;
    char name[20];
    const int rc = hash_value(listing, key, depth, &hash);

    if (rc >= 0)
        step(listing, name, (size_t)snprintf(name, sizeof name, "#%016" PRIx64, hash.low64));
    return rc < 0 ? rc : 0;
}

static int step_by_key(struct listing *listing, const struct rfs_node *key, unsigned depth)
{
    const int rc = take(listing, rfs_hfai_key_bytes(key));

    if (rc)
        return rc;
    if (key->kind == RFS_NODE_INT)
        step_to(listing, key->of.integer);
    else if (key->kind == RFS_NODE_TEXT && rfs_text_is_utf8(key->of.text.data, key->of.text.n))
        step(listing, key->of.text.data, key->of.text.n);
    else
        return step_by_value(listing, key, depth);
    return 0;
}

/* Gives the path as a name that stays. */
static int save_path(struct listing *listing, const char **name)
{
    const int rc = take(listing, WORK_LISTED + WORK_BYTE * (uint64_t)listing->path.n);

    if (rc)
        return rc;
    *name = rfs_arena_text(&listing->out->arena,
                           listing->path.n > 0 ? (const char *)listing->path.data : "",
                           listing->path.n);
    return *name && !listing->path.failed ? 0 : rfs_fail_memory(listing->err);
}

/* ---- tensors as chunks ----------------------------------------------------------------------- */

static struct rfs_type make_type(enum rfs_dtype dtype, uint32_t ndim, const uint64_t *dims)
{
    struct rfs_type type = {.ndim = (uint8_t)ndim, .dtype = (uint8_t)dtype, .kind = RFS_TENSOR};

    memcpy(type.dims, dims, ndim * sizeof *dims);
    rfs_type_bytes(&type, &type.bytes); /* no overflow: it was checked when the part was read */
    return type;
}

/* Says whether a tensor is listed as a row of its elements, which both sides cut anywhere. */
static bool is_row(const struct listing *listing, const struct rfs_hfai_listed *listed)
{
    return listing->how->rows && (listed->in_pieces || rfs_hfai_is_cut(listing->how->rows, listed));
}

/* Begins the tensor at the present path. */
static int begin_tensor(struct listing *listing, const struct rfs_hfai_listed *listed)
{
    const char *folder = listing->hfai->folder;
    const char *path = listing->path.n > 0 ? (const char *)listing->path.data : "";
    struct rfs_chunks *chunks = listing->out->chunks;
    const bool row = is_row(listing, listed);
    struct rfs_type type = listed->type;
    int rc = take(listing, HFAI_WORK_TENSOR + WORK_BYTE * (uint64_t)listing->path.n);

    if (rc)
        return rc;
    if (listing->path.failed)
        return rfs_fail_memory(listing->err);
    rc = rfs_torch_show(&listing->shown, type.bytes, folder, NULL, listing->err);
    if (rc)
        return rc;
    if (rfs_chunks_find(chunks, path, listing->path.n)) {
        RFS_FREE char *name = strndup(path, listing->path.n);
        return rfs_fail(listing->err, -ENOTSUP, RFS_OF(folder, name ? name : "?"),
                        "a mount or an export of it, whose folder merged has the whole state",
                        "two tensors of the state have this path in it");
    }
    if (listed->in_pieces || row) {
        const uint64_t elements = type.bytes / rfs_dtype_bytes((enum rfs_dtype)type.dtype);
        type = make_type((enum rfs_dtype)type.dtype, 1, &elements);
    }
    rc = rfs_chunks_add_tensor(chunks, path, listing->path.n, &type, listing->err);
    if (rc)
        return rc;
    struct rfs_chunked_tensor *added = &chunks->tensors.data[chunks->tensors.n - 1];
    if (!row)
        added->type = rfs_intern_add(chunks->tables->types, &listed->type, sizeof listed->type);
    return added->type != RFS_NO_ID && RFS_PUSH(&listing->out->tensors, *listed)
               ? 0
               : rfs_fail_memory(listing->err);
}

/* Adds a chunk of the last tensor, behind its others: SIZE elements from AT of a part's file on. */
static int add_chunk(struct listing *listing, const uint64_t *corner, const uint64_t *size,
                     uint32_t part, uint64_t at)
{
    struct rfs_chunks *chunks = listing->out->chunks;
    const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[chunks->tensors.n - 1];

    return rfs_chunks_add_chunk(chunks, corner, size, listing->err)
               ?: rfs_chunks_store(chunks, tensor, corner, listing->hfai->parts[part].file, at, 0,
                                   listing->err);
}

/* Lists a whole tensor. VALUE is its node if it is cut by itself when it is large; or NULL. */
static int list_tensor(struct listing *listing, const struct rfs_torch_tensor *tensor,
                       uint16_t origin, const struct rfs_node *value)
{
    static const uint64_t corner[RFS_MAX_DIMS];
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_hfai_listed listed = {.type = make_type(tensor->dtype, tensor->ndim, tensor->dims),
                                     .owner = listing->owner};
    struct rfs_chunks *chunks = listing->out->chunks;
    uint64_t strides[RFS_MAX_DIMS];

    listed.owner.value = value;
    const int rc = begin_tensor(listing, &listed);
    if (rc || listed.type.bytes == 0)
        return rc;
    uint64_t at = tensor->record->offset + tensor->offset * item;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        strides[i] = tensor->strides[i] * item;
    if (!tensor->contiguous)
        at = rfs_chunks_add_strided(chunks, at, tensor->ndim, strides);
    if (at == RFS_NOT_LOCATED)
        return rfs_fail_memory(listing->err);
    const struct rfs_type *type =
        rfs_chunks_type(chunks, chunks->tensors.data[chunks->tensors.n - 1].stored);
    return add_chunk(listing, corner, type->dims, origin, at);
}

static int list_large(struct listing *listing, const struct rfs_hfai_state *state,
                      const struct rfs_hfai_large *large)
{
    const struct rfs_hfai_listed listed = {.type =
                                               make_type(large->dtype, large->ndim, large->dims),
                                           .in_pieces = true,
                                           .owner = listing->owner};
    const uint64_t item = rfs_dtype_bytes(large->dtype);
    uint64_t corner = 0;
    int rc = begin_tensor(listing, &listed);

    for (uint32_t p = 0; rc == 0 && p < listing->hfai->n_parts; p++) {
        const struct rfs_range *range = &state->ranges.data[large->first + p];
        const uint64_t size = range->bytes / item;
        if (size > 0)
            rc = add_chunk(listing, &corner, &size, p, range->record->offset + range->offset);
        corner += size;
    }
    return rc;
}

/* Lists the bytes of a storage that is not a tensor's. */
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

/* ---- values ---------------------------------------------------------------------------------- */

/* Lists a value by itself, at the present path. */
static int list_here(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    struct rfs_hfai_value listed;
    XXH128_hash_t hash;
    int rc = hash_value(listing, node, depth, &hash);

    if (rc <= 0)
        return rc;
    rc = save_path(listing, &listed.name);
    listed.hash[0] = hash.high64;
    listed.hash[1] = hash.low64;
    if (rc == 0 && !RFS_PUSH(&listing->out->values, listed))
        rc = rfs_fail_memory(listing->err);
    return rc;
}

/* Lists a value of a dict, with all that is in it. */
static int list_pair(struct listing *listing, const struct rfs_node *key,
                     const struct rfs_node *value, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = step_by_key(listing, key, depth) ?: list_here(listing, value, depth);

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

/* Visits a node below a step of the path, and goes back to BEFORE, its end above that step. */
static int visit_below(struct listing *listing, size_t before, const struct rfs_node *node,
                       unsigned depth)
{
    const int rc = visit(listing, node, depth);

    listing->path.n = before;
    return rc;
}

static int visit_items(struct listing *listing, const struct rfs_items *items, unsigned depth)
{
    const size_t before = listing->path.n;
    int rc = say(listing, &items->n, sizeof items->n);

    for (uint32_t i = 0; rc == 0 && i < items->n; i++) {
        if (items->data[i]->kind >= RFS_NODE_TUPLE) /* scalars need no path */
            step_to(listing, i);
        rc = visit_below(listing, before, items->data[i], depth + 1);
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
    if (rc || !after->state)
        return rc;
    step(listing, "__dict__", 8);
    return visit_below(listing, before, after->state, depth + 1);
}

static int visit_call(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    static const struct rfs_after none;
    const struct rfs_after *after = node->of.call.after ? node->of.call.after : &none;
    const size_t before = listing->path.n;
    const int rc = visit(listing, node->of.call.callee, depth + 1);

    if (rc)
        return rc;
    step(listing, "()", 2);
    return visit_below(listing, before, node->of.call.args, depth + 1)
               ?: visit_after(listing, after, depth);
}

static int visit_global(struct listing *listing, const struct rfs_node *node)
{
    return say_text(listing, node->of.global.module, node->of.global.module_bytes)
               ?: say_text(listing, rfs_pickle_global_name(node), node->of.global.name_bytes);
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
    case RFS_NODE_STORAGE:
        return visit(listing, node->of.items.data[1], depth + 1) ?: list_storage(listing, node);
    case RFS_NODE_OPAQUE:
        break; /* in no part */
    }
    return 0;
}

/* Hashes how many levels up NODE is, if it contains itself. 1, 0 if it does not, or -errno. */
static int say_ring(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    for (unsigned up = 1; node->kind >= RFS_NODE_TUPLE && up <= depth; up++)
        if (listing->above[depth - up] == node) {
            const unsigned char said[] = {UINT8_MAX, (unsigned char)(up & 255),
                                          (unsigned char)(up >> 8)};
            return say(listing, said, sizeof said) ?: 1;
        }
    return 0;
}

/*
 * Lists the tensors and dicts in a node, and hashes everything else. A tensor by itself adds
 * nothing to the hash.
 */
static int visit(struct listing *listing, const struct rfs_node *node, unsigned depth)
{
    const char *path = listing->hfai->folder;
    const bool is_call = node->kind == RFS_NODE_CALL;
    struct rfs_torch_tensor tensor;
    int rc = take(listing, HFAI_WORK_NODE + (node->kind < RFS_NODE_TUPLE ? 0 : WORK_STEP + depth));

    if (rc)
        return rc;
    if (depth >= LIST_DEPTH)
        return rfs_fail(listing->err, -EFBIG, RFS_IN(path), RFS_HFAI_REMEDY,
                        "the content of its pickle is nested deeper than %d levels",
                        RFS_PICKLE_DEPTH);
    /* A lazily conjugate tensor is none here, but the call that makes it. */
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
    return say(listing, &node->kind, sizeof node->kind) ?: visit_kind(listing, node, depth);
}

/* ---- the state ------------------------------------------------------------------------------- */

static int list_entry(struct listing *listing, const struct rfs_node *value)
{
    const struct rfs_hfai *hfai = listing->hfai;
    struct rfs_torch_tensor tensor;
    const int rc = rfs_torch_tensor(&hfai->parts[value->origin].torch, value,
                                    rfs_hfai_path(hfai, value->origin), "", &tensor, listing->err);

    return rc < 0 ? rc : list_tensor(listing, &tensor, value->origin, value);
}

static int list_model(struct listing *listing, size_t model)
{
    const struct rfs_hfai_state *state = &listing->hfai->models[model];
    const size_t n = state->entries.n;
    const size_t before = listing->path.n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n + state->large.n; i++) {
        const struct rfs_hfai_entry *entry = i < n ? &state->entries.data[i] : NULL;
        const struct rfs_hfai_large *large = entry ? NULL : &state->large.data[i - n];
        const struct rfs_node *key = entry ? entry->key : large->key;
        listing->owner = (struct rfs_hfai_owner){(uint32_t)model, (uint32_t)i, NULL};
        if (!rfs_text_is_utf8(key->of.text.data, key->of.text.n))
            return rfs_fail(listing->err, -EINVAL, RFS_IN(listing->hfai->folder), NULL,
                            "the name of a parameter is not UTF-8 text without NULs");
        step(listing, key->of.text.data, key->of.text.n);
        rc = entry ? list_entry(listing, entry->value) : list_large(listing, state, large);
        listing->path.n = before;
    }
    return rc;
}

static int list_models(struct listing *listing)
{
    const bool one = listing->hfai->n_models == 1;
    int rc = 0;

    for (size_t m = 0; rc == 0 && m < listing->hfai->n_models; m++) {
        if (!one) {
            step(listing, "model", 5);
            step_to(listing, (int64_t)m);
        }
        rc = list_model(listing, m);
        listing->path.n = 0;
    }
    listing->out->n_models = listing->out->tensors.n;
    return rc;
}

/* Lists a state. Its large tensors go where they belong: at (k1, k2) below the state. */
static int list_state(struct listing *listing, const struct rfs_hfai_state *state)
{
    const size_t before = listing->path.n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < state->entries.n; i++) {
        listing->owner.item = (uint32_t)i;
        listing->cut = rfs_pickle_pairs(state->entries.data[i].value);
        rc = list_pair(listing, state->entries.data[i].key, state->entries.data[i].value, 0);
    }
    listing->cut = NULL;
    for (size_t i = 0; rc == 0 && i < state->large.n; i++) {
        const struct rfs_hfai_large *large = &state->large.data[i];
        const struct rfs_items *key = &large->key->of.items;
        listing->owner.item = (uint32_t)(state->entries.n + i);
        rc = step_by_key(listing, key->data[0], 0)
                ?: step_by_key(listing, key->data[1], 0)
                ?: list_large(listing, state, large);
        listing->path.n = before;
    }
    return rc;
}

static int list_optimizer(struct listing *listing, const struct rfs_hfai_state *state)
{
    const struct rfs_items *rest = rfs_pickle_pairs(state->rest);
    const size_t before = listing->path.n;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < rest->n; i += 2) {
        if (!rfs_pickle_is_text(rest->data[i], "state")) {
            rc = list_pair(listing, rest->data[i], rest->data[i + 1], 0);
            continue;
        }
        step(listing, "state", 5);
        rc = list_state(listing, state);
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
        step(listing, "optimizer", 9);
        if (hfai->n_optimizers > 1)
            step_to(listing, (int64_t)i);
        listing->owner = (struct rfs_hfai_owner){(uint32_t)(hfai->n_models + i), HFAI_NONE, NULL};
        rc = list_optimizer(listing, &hfai->optimizers[i]);
        listing->path.n = 0;
    }
    return rc;
}

/* Lists the other values that were given to save(). */
static int list_others(struct listing *listing)
{
    const struct rfs_items *first = rfs_pickle_pairs(listing->hfai->parts[0].torch.pickle.root);
    int rc = 0;

    listing->owner = (struct rfs_hfai_owner){
        (uint32_t)(listing->hfai->n_models + listing->hfai->n_optimizers), HFAI_NONE, NULL};
    for (uint32_t i = 0; rc == 0 && i < first->n; i += 2)
        if (!rfs_hfai_is_own(first->data[i]))
            rc = list_pair(listing, first->data[i], first->data[i + 1], 0);
    return rc;
}

int rfs_hfai_list(const struct rfs_hfai *hfai, const struct rfs_hfai_listing *how,
                  struct rfs_hfai_list *out, struct rfs_error *err)
{
    static const struct rfs_chunks_format format = {.name = "hfai's parts"};
    struct listing listing = {.hfai = hfai,
                              .how = how,
                              .out = out,
                              .work = HFAI_WORK_MORE,
                              .shown = {.file_bytes = hfai->large.file_bytes},
                              .err = err};

    *out = (struct rfs_hfai_list){.chunks = rfs_chunks_new(&format, &how->to)};
    if (!out->chunks)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; p < hfai->n_parts; p++)
        listing.work += HFAI_WORK_TIMES * (uint64_t)hfai->parts[p].torch.pickle.n_bytes;
    int rc = list_models(&listing);
    if (rc == 0 && !how->models)
        rc = list_optimizers(&listing) ?: list_others(&listing);
    if (rc == 0)
        rc = listing.path.failed ? rfs_fail_memory(err) : rfs_chunks_finish(out->chunks, err);
    for (size_t i = 0; i < out->chunks->chunks.n; i++)
        atomic_init(&out->chunks->chunks.data[i].at, out->chunks->chunks.data[i].item);
    out->chunks->metadata = out->chunks->first_file = hfai->parts[0].file;
    out->chunks->n_files = out->chunks->n_all_files = hfai->n_parts;
    free(listing.path.data);
    free(listing.said.data);
    return rc;
}

void rfs_hfai_list_free(struct rfs_hfai_list *list)
{
    rfs_chunks_free(list->chunks);
    free(list->tensors.data);
    free(list->values.data);
    rfs_arena_free(&list->arena);
    *list = (struct rfs_hfai_list){0};
}

int rfs_hfai_state(const struct rfs_chunks_parts *parts, const struct rfs_chunks_source *to,
                   rfs_index_each_fn *each, void *ctx,
                   struct rfs_chunks_state out[RFS_CHUNKS_STATE], struct rfs_error *err)
{
    RFS_CLEANUP(rfs_hfai_list_free) struct rfs_hfai_list list = {.n_models = 0};
    struct rfs_hfai *hfai;
    int rc = rfs_hfai_open(parts, &hfai, err);

    if (rc)
        return rc;
    const size_t several = hfai->n_models > 1 ? strlen("model.") : 0;
    out[0] = (struct rfs_chunks_state){"model", hfai->n_models};
    out[1] = (struct rfs_chunks_state){"optimizer", hfai->n_optimizers};
    rc = rfs_hfai_list(hfai, &(struct rfs_hfai_listing){.to = *to, .models = true}, &list, err);
    for (size_t i = 0; rc == 0 && i < list.chunks->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &list.chunks->tensors.data[i];
        const char *path = rfs_intern_text(to->tables->names, tensor->name);
        if (!each(ctx, path + several, rfs_chunks_type(list.chunks, tensor->type), 0))
            rc = rfs_fail_memory(err);
    }
    rfs_hfai_free(hfai);
    return rc;
}
