/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each part is a dict:
 *
 *     "__nshards__": n, "__version__": "2.0.0",
 *     "model":     [ (OrderedDict name -> tensor,  dict name -> (torch.Size, piece)), … ]
 *     "optimizer": [ (state_dict() with its own entries of "state",
 *                     dict (k1, k2) -> (torch.Size, piece)), … ]
 *     and, in part 0 only, whatever else was given to save()
 *
 * Whole values are each in one part; part 0 has all buffers. Large tensors are flattened and cut in
 * n pieces, piece r in part r. All other keys of an optimizer's state_dict are the same in all
 * parts: where they differ, the parts are of different saves. Source: dist_ckpt of hfai, format
 * 2.0.0.
 */
#include "formats/hfai/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

#define WORK_KEY 64    /* a key that is looked up, besides its bytes */
#define WORK_READ 2048 /* a number that is read from the file */

#define GROWN 2 /* a list that grows takes so many times the memory of its items */

#define NO_PART UINT32_MAX

/* A part that is being read. */
struct reading {
    struct rfs_hfai *hfai;
    uint32_t part;
    const char *path;
    struct rfs_error *err;
};

bool rfs_hfai_is_own(const struct rfs_node *key)
{
    return rfs_pickle_is_text(key, "__nshards__") || rfs_pickle_is_text(key, "__version__") ||
           rfs_pickle_is_text(key, "model") || rfs_pickle_is_text(key, "optimizer");
}

static void free_states(struct rfs_hfai_state *states, size_t n)
{
    for (size_t i = 0; states && i < n; i++) {
        rfs_intern_free(states[i].keys);
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

/* ---- keys ------------------------------------------------------------------------------------ */

static bool is_pair(const struct rfs_node *key)
{
    return key->kind == RFS_NODE_TUPLE && key->of.items.n == 2 &&
           key->of.items.data[0]->kind != RFS_NODE_TUPLE &&
           key->of.items.data[1]->kind != RFS_NODE_TUPLE;
}

uint64_t rfs_hfai_key_bytes(const struct rfs_node *key)
{
    if (key->kind == RFS_NODE_TEXT)
        return WORK_KEY + (uint64_t)key->of.text.n;
    return is_pair(key) ? WORK_KEY + rfs_hfai_key_bytes(key->of.items.data[0]) +
                              rfs_hfai_key_bytes(key->of.items.data[1])
                        : WORK_KEY;
}

/* Makes N bytes of KIND and DATA. 0 or -ENOMEM. */
static int put_key(char kind, const void *data, size_t n, char **out, size_t *out_n)
{
    *out = malloc(n + 1);
    if (!*out)
        return -ENOMEM;
    **out = kind;
    memcpy(*out + 1, data, n);
    *out_n = n + 1;
    return 0;
}

/* Gives a key that is no pair. *out is NULL. */
static int make_plain_key(const struct rfs_node *key, char **out, size_t *n)
{
    if (key->kind == RFS_NODE_TEXT)
        return put_key('t', key->of.text.data, key->of.text.n, out, n);
    if (key->kind == RFS_NODE_INT)
        return put_key('i', &key->of.integer, sizeof key->of.integer, out, n);
    return -EINVAL;
}

/* Gives both keys of a pair, and how long the first is. */
static int pair_key(const struct rfs_node *key, char **out, size_t *n)
{
    RFS_FREE char *left = NULL;
    RFS_FREE char *right = NULL;
    size_t left_n;
    size_t right_n;

    int rc = make_plain_key(key->of.items.data[0], &left, &left_n)
                 ?: make_plain_key(key->of.items.data[1], &right, &right_n);
    if (rc)
        return rc;
    char *at = *out = malloc(1 + sizeof left_n + left_n + right_n);
    if (!at)
        return -ENOMEM;
    *at++ = 'p';
    at = (char *)mempcpy(at, &left_n, sizeof left_n);
    at = (char *)mempcpy(at, left, left_n);
    at = (char *)mempcpy(at, right, right_n);
    *n = (size_t)(at - *out);
    return 0;
}

/*
 * Gives a key, a text or an integer or a pair of such, as bytes by which equal keys are equal; *out
 * is malloc'ed. 0, -EINVAL for another one, or -ENOMEM.
 */
static int make_key(const struct rfs_node *key, char **out, size_t *n)
{
    *out = NULL;
    return is_pair(key) ? pair_key(key, out, n) : make_plain_key(key, out, n);
}

/* Returns words for a key that is no name. */
static const char *what_is(const struct rfs_node *key)
{
    switch ((enum rfs_node_kind)key->kind) {
    case RFS_NODE_NONE:
        return "None";
    case RFS_NODE_BOOL:
        return "a boolean";
    case RFS_NODE_LONG:
    case RFS_NODE_FLOAT:
        return "a number";
    case RFS_NODE_TUPLE:
        return "a tuple";
    default:
        return "an object";
    }
}

/* Writes a key for messages. */
static void show_key(const struct rfs_node *key, char *out, size_t cap)
{
    char left[96];
    char right[96];

    if (key->kind == RFS_NODE_TEXT) {
        snprintf(out, cap, "%.*s", (int)(key->of.text.n < 200 ? key->of.text.n : 200),
                 key->of.text.data);
    } else if (key->kind == RFS_NODE_INT) {
        snprintf(out, cap, "%lld", (long long)key->of.integer);
    } else if (is_pair(key)) {
        show_key(key->of.items.data[0], left, sizeof left);
        show_key(key->of.items.data[1], right, sizeof right);
        snprintf(out, cap, "%s.%s", left, right);
    } else {
        snprintf(out, cap, "(%s)", what_is(key));
    }
}

/* ---- the budget, and failures ---------------------------------------------------------------- */

int rfs_hfai_take(uint64_t *work, uint64_t units, const char *path, struct rfs_error *err)
{
    if (units <= *work) {
        *work -= units;
        return 0;
    }
    *work = 0;
    return rfs_fail(err, -EFBIG, RFS_IN(path), RFS_HFAI_REMEDY,
                    "the pickle in it uses the same values so often that reading it would take "
                    "more than %d times its bytes",
                    HFAI_WORK_TIMES);
}

/* Takes UNITS of the budget of the part that is being read: 0, or -EFBIG. */
static int spend(const struct reading *reading, uint64_t units)
{
    return rfs_hfai_take(&reading->hfai->parts[reading->part].work, units, reading->path,
                         reading->err);
}

/* Fails with -EINVAL, about the part. */
static int fail_part(const struct reading *reading, const char *what)
{
    return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path), RFS_HFAI_REMEDY, "%s", what);
}

/* Fails with -EINVAL, about the value of a key of the part. */
static int fail_key(const struct reading *reading, const struct rfs_node *key, const char *what)
{
    char name[256];

    show_key(key, name, sizeof name);
    return rfs_fail(reading->err, -EINVAL, RFS_OF(reading->path, name), RFS_HFAI_REMEDY, "%s",
                    what);
}

/* Takes memory for the values of the part: 0, or -EFBIG. */
static int pay(const struct reading *reading, uint64_t bytes)
{
    return rfs_budget_take(&reading->hfai->memory, bytes, reading->path, reading->err);
}

/* Gives a key as bytes, within the budget and with the error filled. */
static int canonical_key(const struct reading *reading, const struct rfs_node *key, char **out,
                         size_t *n)
{
    int rc = spend(reading, rfs_hfai_key_bytes(key));

    *out = NULL;
    if (rc)
        return rc;
    rc = make_key(key, out, n);
    return rc == -EINVAL ? fail_key(reading, key, "a key that is neither a text nor an integer")
           : rc < 0      ? rfs_fail_memory(reading->err)
                         : 0;
}

/* ---- whether two values are the same --------------------------------------------------------- */

/* Two graphs side by side. */
struct walk {
    const struct reading *reading;
    int rc; /* of the budget */
};

static bool same(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                 unsigned depth);

static bool same_items(struct walk *walk, const struct rfs_items *a, const struct rfs_items *b,
                       unsigned depth)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!same(walk, a->data[i], b->data[i], depth + 1))
            return false;
    return true;
}

/* Compares two values that may be NULL. */
static bool same_optional(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                          unsigned depth)
{
    return a && b ? same(walk, a, b, depth) : a == b;
}

static bool same_call(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                      unsigned depth)
{
    static const struct rfs_after none;
    const struct rfs_after *x = a->of.call.after ? a->of.call.after : &none;
    const struct rfs_after *y = b->of.call.after ? b->of.call.after : &none;

    return same(walk, a->of.call.callee, b->of.call.callee, depth + 1) &&
           same(walk, a->of.call.args, b->of.call.args, depth + 1) &&
           same_optional(walk, x->list, y->list, depth + 1) &&
           same_optional(walk, x->dict, y->dict, depth + 1) &&
           same_optional(walk, x->state, y->state, depth + 1);
}

static bool same_text(const struct rfs_node *a, const struct rfs_node *b)
{
    return a->of.text.n == b->of.text.n &&
           memcmp(a->of.text.data, b->of.text.data, a->of.text.n) == 0;
}

/*
 * Compares class and size of storages. Keys and locations are each file's own, and bytes are not
 * looked at.
 */
static bool same_storage(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                         unsigned depth)
{
    struct rfs_node *const *x = a->of.items.data;
    struct rfs_node *const *y = b->of.items.data;
    return same(walk, x[1], y[1], depth + 1) && same(walk, x[4], y[4], depth + 1);
}

static bool same_kind(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                      unsigned depth)
{
    switch ((enum rfs_node_kind)a->kind) {
    case RFS_NODE_NONE:
        return true;
    case RFS_NODE_BOOL:
        return a->of.truth == b->of.truth;
    case RFS_NODE_INT:
        return a->of.integer == b->of.integer;
    case RFS_NODE_FLOAT:
        return a->of.bits == b->of.bits;
    case RFS_NODE_LONG:
    case RFS_NODE_TEXT:
        return same_text(a, b);
    case RFS_NODE_TUPLE:
    case RFS_NODE_LIST:
    case RFS_NODE_DICT:
        return same_items(walk, &a->of.items, &b->of.items, depth);
    case RFS_NODE_GLOBAL:
        return rfs_pickle_same_name(a, b);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return same_call(walk, a, b, depth);
    case RFS_NODE_STORAGE:
        return same_storage(walk, a, b, depth);
    case RFS_NODE_OPAQUE:
        break; /* in no part */
    }
    return false;
}

/*
 * Returns where the node of part 0 is noted that a container of this part is equal to; NULL for
 * another value, or when out of memory.
 */
static const struct rfs_node **same_as(const struct walk *walk, const struct rfs_node *node)
{
    struct rfs_hfai_part *part = &walk->reading->hfai->parts[walk->reading->part];

    if (node->kind < RFS_NODE_TUPLE || node->kind == RFS_NODE_GLOBAL ||
        node->origin != walk->reading->part)
        return NULL;
    if (!part->same)
        part->same = calloc(part->torch.pickle.n_nodes, sizeof *part->same);
    return part->same ? &part->same[node->number] : NULL;
}

static bool same(struct walk *walk, const struct rfs_node *a, const struct rfs_node *b,
                 unsigned depth)
{
    const bool text = a != b && (a->kind == RFS_NODE_TEXT || a->kind == RFS_NODE_LONG);

    if (walk->rc == 0)
        walk->rc = spend(walk->reading, HFAI_WORK_NODE + (text ? a->of.text.n : 0));
    if (walk->rc)
        return false;
    if (a == b)
        return true;
    if (a->kind != b->kind || depth > RFS_PICKLE_DEPTH)
        return false;
    const struct rfs_node **known = same_as(walk, a);
    if (known && *known == b)
        return true;
    const bool is_same = same_kind(walk, a, b, depth);
    if (known && is_same)
        *known = b;
    return is_same;
}

/*
 * Says whether two graphs are equal but for the bytes of storages: A of the part that is being
 * read, B of part 0. 1, 0, or -errno with the error filled.
 */
static int is_equal(const struct reading *reading, const struct rfs_node *a,
                    const struct rfs_node *b)
{
    struct walk walk = {reading, 0};
    const bool is_same = same(&walk, a, b, 0);

    return walk.rc ? walk.rc : is_same;
}

/* ---- large tensors --------------------------------------------------------------------------- */

/*
 * Large tensors, with a piece in each part: their pieces are collected part by part, and proved at
 * the end.
 */

/* Reads the pair (torch.Size, piece) of one part. */
static int read_piece(const struct reading *reading, const struct rfs_node *key,
                      const struct rfs_node *value, struct rfs_torch_tensor *piece,
                      struct rfs_hfai_large *large)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;
    char name[256];

    show_key(key, name, sizeof name);
    if (value->kind != RFS_NODE_TUPLE || value->of.items.n != 2)
        return fail_key(reading, key, "a large tensor that is not a pair of size and piece");
    const struct rfs_node *size = value->of.items.data[0];
    if (size->kind == RFS_NODE_CALL && size->of.call.callee->callable == RFS_CALL_SIZE &&
        size->of.call.args->of.items.n == 1)
        size = size->of.call.args->of.items.data[0];
    if (size->kind != RFS_NODE_TUPLE || size->of.items.n > RFS_MAX_DIMS)
        return fail_key(reading, key, "a large tensor whose size is not a torch.Size");
    large->ndim = size->of.items.n;
    for (uint32_t i = 0; i < large->ndim; i++) {
        const struct rfs_node *extent = size->of.items.data[i];
        if (extent->kind != RFS_NODE_INT || extent->of.integer < 0)
            return fail_key(reading, key, "a large tensor whose size is not a torch.Size");
        large->dims[i] = (uint64_t)extent->of.integer;
    }
    const int rc =
        rfs_torch_tensor(torch, value->of.items.data[1], reading->path, name, piece, reading->err);
    if (rc == 1 && piece->ndim == 1 && piece->contiguous) {
        large->dtype = piece->dtype;
        return 0;
    }
    return rc < 0 ? rc : fail_key(reading, key, "a large tensor whose piece is not a flat tensor");
}

static bool same_large(const struct rfs_hfai_large *a, const struct rfs_hfai_large *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, a->ndim * sizeof *a->dims) == 0;
}

/* Takes this part's piece of a state's Ith large tensor, which part 0 begins. */
static int add_piece(const struct reading *reading, struct rfs_hfai_state *state, size_t i,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    struct rfs_hfai_large large = {
        .key = key, .next = HFAI_NONE, .first = i * reading->hfai->n_parts};
    struct rfs_torch_tensor piece;

    int rc = read_piece(reading, key, value, &piece, &large);
    if (rc == 0) /* ranges are copied once, when they are put in order */
        rc = pay(reading, (GROWN + 1) * sizeof(struct rfs_range));
    if (rc == 0 && reading->part == 0)
        rc = pay(reading, GROWN * sizeof large + rfs_hfai_key_bytes(key));
    if (rc)
        return rc;
    if (reading->part == 0 && !RFS_PUSH(&state->large, large))
        return rfs_fail_memory(reading->err);
    struct rfs_hfai_large *have = &state->large.data[i];
    const int is_same = is_equal(reading, key, have->key);
    if (is_same < 0)
        return is_same;
    if (!is_same || !same_large(have, &large))
        return fail_key(reading, key,
                        "a large tensor that differs from part 0's: the parts are of "
                        "different saves");
    const uint64_t item = rfs_dtype_bytes(large.dtype);
    const struct rfs_range range = {piece.record, piece.offset * item, piece.elements * item,
                                    (uint16_t)reading->part};
    return RFS_PUSH(&state->ranges, range) ? 0 : rfs_fail_memory(reading->err);
}

/*
 * Orders ranges, so that those of a tensor follow each other. Each part has paid for its own.
 * False when out of memory.
 */
static bool order_ranges(struct rfs_hfai_state *state, uint32_t n_parts)
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

/* Takes a part's pieces of a state's large tensors. 0 or -errno with the error filled. */
static int read_large(const struct reading *reading, struct rfs_hfai_state *state,
                      const struct rfs_items *pairs)
{
    if (reading->part > 0 && pairs->n / 2 != state->large.n)
        return fail_part(reading,
                         "it has pieces of other large tensors than part 0: the parts are of "
                         "different saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        const int rc = add_piece(reading, state, i / 2, pairs->data[i], pairs->data[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

/* Proves that the pieces of a large tensor are all of it. */
static int check_pieces(const struct reading *reading, struct rfs_hfai_state *state,
                        struct rfs_hfai_large *large)
{
    uint64_t bytes = rfs_dtype_bytes(large->dtype);
    uint64_t end = 0;

    for (uint32_t i = 0; i < large->ndim; i++)
        if (!rfs_mul_u64(bytes, large->dims[i], &bytes) || bytes > INT64_MAX / 16)
            return fail_key(reading, large->key, "a large tensor of an impossible size");
    for (uint32_t p = 0; p < reading->hfai->n_parts; p++) {
        /* Each piece is within its file, so the sum cannot overflow. */
        if (!rfs_add_u64(end, state->ranges.data[large->first + p].bytes, &end))
            return fail_key(reading, large->key, "a large tensor of an impossible size");
        state->ends[large->first + p] = end;
    }
    large->elements = bytes / rfs_dtype_bytes(large->dtype);
    if (bytes != end)
        return fail_key(reading, large->key,
                        "the pieces of the large tensor have another number of elements "
                        "than the whole: parts are missing, or of different saves");
    return rfs_torch_show(&reading->hfai->large, bytes, reading->path, NULL, reading->err);
}

/* Links a large tensor with the entry that it goes back into. */
static int find_owner(const struct reading *reading, struct rfs_hfai_state *state,
                      struct rfs_hfai_large *large)
{
    const struct rfs_node *key = large->key;
    RFS_FREE char *canonical = NULL;
    size_t n;

    if (key->kind != RFS_NODE_TUPLE || key->of.items.n != 2)
        return fail_key(reading, key, "a large tensor of an optimizer that has no pair of keys");
    const int rc = canonical_key(reading, key->of.items.data[0], &canonical, &n);
    if (rc)
        return rc;
    const uint32_t owner = rfs_intern_find(state->keys, canonical, n);
    if (owner == RFS_NO_ID)
        return fail_key(reading, key, "a large tensor of a state that no part has");
    struct rfs_hfai_entry *entry = &state->entries.data[owner];
    if (!rfs_pickle_pairs(entry->value))
        return fail_key(reading, key, "a large tensor of a state that is not a dict");
    large->inner = key->of.items.data[1];
    large->next = entry->first_large;
    entry->first_large = (uint32_t)(large - state->large.data);
    return 0;
}

/* Proves that a large tensor is there once, and that no part has the whole tensor. */
static int check_key(const struct reading *reading, struct rfs_hfai_state *state,
                     const struct rfs_hfai_large *large)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = canonical_key(reading, large->key, &canonical, &n);
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

static int check_state(const struct reading *reading, struct rfs_hfai_state *state, bool optimizer)
{
    int rc = 0;

    state->ends = calloc(state->ranges.n + 1, sizeof *state->ends);
    if (!state->ends || !order_ranges(state, reading->hfai->n_parts))
        return rfs_fail_memory(reading->err);
    for (size_t k = state->large.n; rc == 0 && k-- > 0;) { /* so that the owners' lists ascend */
        struct rfs_hfai_large *large = &state->large.data[k];
        rc = check_pieces(reading, state, large) ?: check_key(reading, state, large);
        if (rc == 0 && optimizer)
            rc = find_owner(reading, state, large);
    }
    return rc;
}

/* Proves the large tensors of N states once all parts are read, and finds their owners. */
static int check_large(const struct reading *reading, struct rfs_hfai_state *states, size_t n,
                       bool optimizer)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check_state(reading, &states[i], optimizer);
    return rc;
}

/* ---- step counts ----------------------------------------------------------------------------- */

/*
 * A save that was killed half-way leaves parts of two saves, and nothing in them shows it. But
 * optimizers count the steps of each parameter, and hfai spreads those over all parts. The
 * parameters of one group were trained together, as a rule: where each part has one count for all
 * of its parameters of a group, and two parts have different ones, they are of different saves.
 * Where some part by itself has several counts in a group, parameters were trained unevenly there
 * (some were frozen for a while, or are experts that few inputs reach), and the group proves
 * nothing.
 */

/* The step counts of the parts for one group of parameters. */
struct group {
    double count;     /* of the first part that has one */
    uint32_t part;    /* that part, or NO_PART */
    uint32_t other;   /* a part with another count, or NO_PART */
    uint32_t now;     /* the current part, once it has a count */
    double now_count; /* of the current part */
    bool uneven;      /* a part has several counts */
};

struct steps {
    struct rfs_hfai *hfai;
    const struct rfs_hfai_state *state;
    struct rfs_error *err;
    uint32_t *group_of;   /* by entry */
    uint32_t *by_part;    /* entries in the order of the parts that they came from */
    size_t *first;        /* [parts + 1] where each part begins in by_part */
    struct group *groups; /* the last one is for entries in no group */
    uint32_t n_groups;
};

/* Gives the number in a tensor of one element. False for types that count no steps. */
static bool to_number(enum rfs_dtype dtype, const unsigned char *bytes, double *number)
{
    int64_t whole;
    int32_t half;
    float single;

    switch (dtype) {
    case RFS_FLOAT64:
        memcpy(number, bytes, sizeof *number);
        return true;
    case RFS_FLOAT32:
        memcpy(&single, bytes, sizeof single);
        *number = (double)single;
        return true;
    case RFS_INT64:
        memcpy(&whole, bytes, sizeof whole);
        *number = (double)whole;
        return true;
    case RFS_INT32:
        memcpy(&half, bytes, sizeof half);
        *number = half;
        return true;
    default:
        return false;
    }
}

/* Returns the part of the current value, for its budget and for messages. */
static struct reading reading_of(const struct steps *steps, uint32_t part)
{
    return (struct reading){steps->hfai, part, rfs_hfai_path(steps->hfai, part), steps->err};
}

/* Reads a count: 1, 0 for another value, or -errno; *REPORTED is set if the error is filled. */
static int read_count(const struct steps *steps, uint32_t part, struct rfs_reading *reading,
                      const struct rfs_node *step, double *count, bool *reported)
{
    const struct rfs_hfai *hfai = steps->hfai;
    const struct reading spending = reading_of(steps, part);
    struct rfs_torch_tensor tensor;
    unsigned char bytes[8];

    if (step->kind == RFS_NODE_INT) {
        *count = (double)step->of.integer;
        return 1;
    }
    if (step->kind == RFS_NODE_FLOAT) {
        memcpy(count, &step->of.bits, sizeof *count);
        return 1;
    }
    if (step->origin != part ||
        rfs_torch_tensor(&hfai->parts[part].torch, step, "", "", &tensor, NULL) != 1 ||
        tensor.elements != 1 || rfs_dtype_bytes(tensor.dtype) > sizeof bytes)
        return 0;
    const size_t item = rfs_dtype_bytes(tensor.dtype);
    const int rc = spend(&spending, WORK_READ);
    *reported = rc != 0;
    return rc
               ?: rfs_reading_pread(reading, bytes, item,
                                    tensor.record->offset + tensor.offset * item)
               ?: to_number(tensor.dtype, bytes, count);
}

static void add_count(struct group *group, uint32_t part, double count)
{
    if (group->now == part) {
        group->uneven |= count != group->now_count;
        return;
    }
    group->now = part;
    group->now_count = count;
    if (group->part == NO_PART) {
        group->part = part;
        group->count = count;
    } else if (count != group->count && group->other == NO_PART) {
        group->other = part;
    }
}

/* Counts the steps of the entries that came from one part. */
static int count_entries(struct steps *steps, uint32_t part, struct rfs_reading *reading,
                         bool *reported)
{
    for (size_t k = steps->first[part]; k < steps->first[part + 1]; k++) {
        const uint32_t i = steps->by_part[k];
        const struct rfs_node *value = steps->state->entries.data[i].value;
        const struct rfs_node *step =
            rfs_pickle_pairs(value) ? rfs_pickle_get(value, "step") : NULL;
        double count;
        const int rc = step ? read_count(steps, part, reading, step, &count, reported) : 0;
        if (rc < 0)
            return rc;
        if (rc > 0)
            add_count(&steps->groups[steps->group_of[i]], part, count);
    }
    return 0;
}

static int count_part(struct steps *steps, uint32_t part)
{
    struct rfs_reading reading;
    bool reported = false;

    int rc = rfs_reading_begin(steps->hfai->files, steps->hfai->parts[part].file, &reading);
    if (rc == 0) {
        rc = count_entries(steps, part, &reading, &reported);
        const int ended = rfs_reading_end(&reading);
        rc = rc ? rc : ended;
    }
    return rc == 0 || reported ? rc
                               : rfs_files_fail(steps->err, rfs_hfai_path(steps->hfai, part), rc);
}

/* Notes which entries the "params" of a group name. */
static int take_group(struct steps *steps, uint32_t number, const struct rfs_node *group)
{
    const struct reading reading = reading_of(steps, 0);
    const struct rfs_items *pairs = rfs_pickle_pairs(group);
    int rc = spend(&reading, HFAI_WORK_NODE * (1 + (pairs ? (uint64_t)pairs->n : 0)));
    const struct rfs_node *params = pairs && rc == 0 ? rfs_pickle_get(group, "params") : NULL;

    for (uint32_t i = 0; params && params->kind == RFS_NODE_LIST && i < params->of.items.n; i++) {
        RFS_FREE char *canonical = NULL;
        size_t n;
        const struct rfs_node *key = params->of.items.data[i];
        rc = spend(&reading, rfs_hfai_key_bytes(key));
        if (rc)
            return rc;
        rc = make_key(key, &canonical, &n);
        if (rc == -ENOMEM)
            return rfs_fail_memory(steps->err);
        const uint32_t entry =
            rc == 0 ? rfs_intern_find(steps->state->keys, canonical, n) : RFS_NO_ID;
        if (entry != RFS_NO_ID)
            steps->group_of[entry] = number;
        rc = 0;
    }
    return rc;
}

static int make_groups(struct steps *steps)
{
    const struct rfs_node *list = rfs_pickle_get(steps->state->rest, "param_groups");
    const uint32_t n = list && list->kind == RFS_NODE_LIST ? list->of.items.n : 0;
    int rc = 0;

    steps->n_groups = n + 1;
    steps->groups = calloc(steps->n_groups, sizeof *steps->groups);
    steps->group_of = calloc(steps->state->entries.n + 1, sizeof *steps->group_of);
    if (!steps->groups || !steps->group_of)
        return rfs_fail_memory(steps->err);
    for (uint32_t g = 0; g <= n; g++)
        steps->groups[g] = (struct group){.part = NO_PART, .other = NO_PART, .now = NO_PART};
    for (size_t i = 0; i < steps->state->entries.n; i++)
        steps->group_of[i] = n;
    for (uint32_t g = 0; rc == 0 && g < n; g++)
        rc = take_group(steps, g, list->of.items.data[g]);
    return rc;
}

static int order_entries(struct steps *steps)
{
    const size_t n = steps->state->entries.n;
    const uint32_t n_parts = steps->hfai->n_parts;

    steps->by_part = calloc(n + 1, sizeof *steps->by_part);
    steps->first = calloc((size_t)n_parts + 2, sizeof *steps->first);
    if (!steps->by_part || !steps->first)
        return rfs_fail_memory(steps->err);
    /* A part begins where the one before it ends, once all entries before are counted. */
    for (size_t i = 0; i < n; i++)
        steps->first[steps->state->entries.data[i].part + 2]++;
    for (uint32_t p = 0; p < n_parts; p++)
        steps->first[p + 2] += steps->first[p + 1];
    for (uint32_t i = 0; i < n; i++)
        steps->by_part[steps->first[steps->state->entries.data[i].part + 1]++] = i;
    return 0;
}

static void free_steps(struct steps *steps)
{
    free(steps->by_part);
    free(steps->first);
    free(steps->groups);
    free(steps->group_of);
}

static int check_optimizer(struct rfs_hfai *hfai, const struct rfs_hfai_state *state,
                           struct rfs_error *err)
{
    RFS_CLEANUP(free_steps) struct steps steps = {.hfai = hfai, .state = state, .err = err};

    int rc = make_groups(&steps) ?: order_entries(&steps);
    for (uint32_t p = 0; rc == 0 && p < hfai->n_parts; p++)
        rc = count_part(&steps, p);
    for (uint32_t g = 0; rc == 0 && g < steps.n_groups; g++) {
        const struct group *group = &steps.groups[g];
        if (group->other != NO_PART && !group->uneven)
            return rfs_fail(err, -EINVAL, RFS_IN(rfs_hfai_path(hfai, group->other)),
                            RFS_HFAI_REMEDY ", or -o uneven_steps if that is how it was trained",
                            "its optimizer counts other steps than part %u's: the parts are of "
                            "different saves",
                            group->part);
    }
    return rc;
}

/* Compares the steps of the parts' optimizers. 0 or -errno with *err filled. */
static int check_steps(struct rfs_hfai *hfai, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && hfai->n_parts > 1 && i < hfai->n_optimizers; i++)
        rc = check_optimizer(hfai, &hfai->optimizers[i], err);
    return rc;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int open_part(const struct reading *reading)
{
    struct rfs_hfai_part *part = &reading->hfai->parts[reading->part];
    struct rfs_files *files = reading->hfai->files;
    struct rfs_reading source;

    int rc = rfs_reading_begin_quiet(files, part->file, &source);
    if (rc)
        return rfs_files_fail(reading->err, reading->path, rc);
    rc = rfs_torch_keep(RFS_READING_SOURCE(&source, reading->path), (uint16_t)reading->part,
                        &reading->hfai->memory, &part->torch, reading->err);
    part->open = rc == 0;
    if (rc == 0) /* for notes on its nodes: part->same, and known of a weigher */
        rc = pay(reading, part->torch.pickle.n_nodes * sizeof *part->same);
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

static int check_head(const struct reading *reading)
{
    const struct rfs_node *dict = root(reading->hfai, reading->part);
    const struct rfs_node *shards =
        dict->kind == RFS_NODE_DICT ? rfs_pickle_get(dict, "__nshards__") : NULL;

    if (!shards || shards->kind != RFS_NODE_INT)
        return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path),
                        "the folder that dist_ckpt.save wrote",
                        "the file is not a part of an hfai checkpoint: it has no __nshards__");
    if (!rfs_pickle_is_text(rfs_pickle_get(dict, "__version__"), RFS_HFAI_FORMAT))
        return rfs_fail(reading->err, -ENOTSUP, RFS_IN(reading->path),
                        "load and save it with a hfai that writes " RFS_HFAI_FORMAT,
                        "the part is not of format " RFS_HFAI_FORMAT);
    if (shards->of.integer != (int64_t)reading->hfai->n_parts)
        return rfs_fail(reading->err, -EINVAL, RFS_IN(reading->path), RFS_HFAI_REMEDY,
                        "the part is one of %lld, but the folder holds %u",
                        (long long)shards->of.integer, reading->hfai->n_parts);
    return 0;
}

/* Gives the list of models or optimizers, each a pair. */
static int get_list(const struct reading *reading, const char *what, const struct rfs_items **out)
{
    const struct rfs_node *list = rfs_pickle_get(root(reading->hfai, reading->part), what);

    if (!list || list->kind != RFS_NODE_LIST)
        return fail_part(reading, "the part has no list of models and optimizers");
    *out = &list->of.items;
    for (uint32_t i = 0; i < list->of.items.n; i++) {
        const struct rfs_node *pair = list->of.items.data[i];
        if (pair->kind != RFS_NODE_TUPLE || pair->of.items.n != 2 ||
            !rfs_pickle_pairs(pair->of.items.data[0]) || !rfs_pickle_pairs(pair->of.items.data[1]))
            return fail_part(reading, "a model or optimizer of the part is not a pair of dicts");
    }
    return 0;
}

/*
 * Adds an entry, or lets it take the place of another part's of the same key, as dict.update does.
 */
static int add_entry(const struct reading *reading, struct rfs_hfai_state *state,
                     const struct rfs_node *key, const struct rfs_node *value)
{
    RFS_FREE char *canonical = NULL;
    size_t n;

    const int rc = canonical_key(reading, key, &canonical, &n);
    if (rc)
        return rc;
    const uint32_t id = rfs_intern_add(state->keys, canonical, n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(reading->err);
    const struct rfs_hfai_entry entry = {key, value, reading->part, HFAI_NONE};
    if (id == state->entries.n) {
        const int paid = pay(reading, GROWN * sizeof entry + rfs_hfai_key_bytes(key));
        if (paid)
            return paid;
        return RFS_PUSH(&state->entries, entry) ? 0 : rfs_fail_memory(reading->err);
    }
    if (state->entries.data[id].part == reading->part)
        return fail_key(reading, key, "is twice in the part");
    state->entries.data[id].value = value;
    state->entries.data[id].part = reading->part;
    return 0;
}

static int read_model(const struct reading *reading, struct rfs_hfai_state *state,
                      const struct rfs_items *pairs)
{
    const struct rfs_torch *torch = &reading->hfai->parts[reading->part].torch;

    for (uint32_t i = 0; i < pairs->n; i += 2) {
        struct rfs_torch_tensor tensor;
        char name[256];
        if (pairs->data[i]->kind != RFS_NODE_TEXT)
            return fail_key(reading, pairs->data[i], "a parameter whose name is not a text");
        int rc = rfs_torch_tensor(torch, pairs->data[i + 1], "", "", &tensor, NULL);
        if (rc < 0) { /* again, for the error message */
            show_key(pairs->data[i], name, sizeof name);
            rc = rfs_torch_tensor(torch, pairs->data[i + 1], reading->path, name, &tensor,
                                  reading->err);
        }
        if (rc == 0)
            rc = fail_key(reading, pairs->data[i], "a parameter that is not a tensor");
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
static int spend_value(const struct reading *reading, const struct rfs_node *value)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(value);
    int rc = 0;

    for (uint32_t i = 1; pairs && rc == 0 && i < pairs->n; i += 2)
        rc = spend(reading,
                   pairs->data[i]->kind == RFS_NODE_CALL ? HFAI_WORK_TENSOR : HFAI_WORK_NODE);
    return rc;
}

/* Takes this part's share of "state"; all other keys must be equal to part 0's. */
static int read_optimizer(const struct reading *reading, struct rfs_hfai_state *state,
                          const struct rfs_node *dict)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(dict);
    const struct rfs_node *own = rfs_pickle_get(dict, "state");
    const struct rfs_items *entries = own ? rfs_pickle_pairs(own) : NULL;

    if (!entries)
        return fail_part(reading, "an optimizer of the part has no state");
    state->rest = state->rest ? state->rest : dict;
    const struct rfs_items *first = rfs_pickle_pairs(state->rest);
    if (first->n != pairs->n)
        return fail_part(reading,
                         "its optimizer has other keys than part 0's: the parts are of different "
                         "saves");
    for (uint32_t i = 0; i < pairs->n; i += 2) {
        if (rfs_pickle_is_text(pairs->data[i], "state"))
            continue;
        int same = is_equal(reading, pairs->data[i], first->data[i]);
        if (same == 1)
            same = is_equal(reading, pairs->data[i + 1], first->data[i + 1]);
        if (same < 0)
            return same;
        if (same == 0)
            return fail_key(reading, pairs->data[i],
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

static int make_states(const struct reading *reading, size_t n, size_t *count,
                       struct rfs_hfai_state **states)
{
    if (reading->part > 0)
        return n == *count
                   ? 0
                   : fail_part(reading, "it has another number of models or optimizers than part "
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

static int read_states(const struct reading *reading)
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
        rc = read_model(reading, &hfai->models[i], rfs_pickle_pairs(pair[0]))
                 ?: read_large(reading, &hfai->models[i], rfs_pickle_pairs(pair[1]));
    }
    for (uint32_t i = 0; rc == 0 && i < optimizers->n; i++) {
        struct rfs_node *const *pair = optimizers->data[i]->of.items.data;
        rc = read_optimizer(reading, &hfai->optimizers[i], pair[0])
                 ?: read_large(reading, &hfai->optimizers[i], rfs_pickle_pairs(pair[1]));
    }
    return rc;
}

static int read_part(const struct reading *reading)
{
    struct rfs_hfai_part *part = &reading->hfai->parts[reading->part];
    const int rc = read_states(reading);

    free(part->same);
    part->same = NULL;
    /* Last, as messages above name a parameter. */
    return rc ? rc : rfs_torch_check(&part->torch, reading->path, reading->err);
}

static int read_all(struct rfs_hfai *hfai, const struct rfs_chunks_parts *source,
                    struct rfs_error *err)
{
    struct reading reading = {.hfai = hfai, .err = err};
    int rc = 0;

    for (uint32_t p = 0; rc == 0 && p < hfai->n_parts; p++) {
        hfai->parts[p].file = source->part(source->ctx, p);
        if (hfai->parts[p].file == UINT32_MAX)
            return rfs_fail(err, -ENOENT, RFS_IN(source->folder), RFS_HFAI_REMEDY,
                            "PART_%03u.pt is missing", p);
        reading.part = p;
        reading.path = rfs_hfai_path(hfai, p);
        rc = read_part(&reading);
    }
    reading.part = 0;
    reading.path = rfs_hfai_path(hfai, 0);
    return rc
               ?: check_large(&reading, hfai->models, hfai->n_models, false)
               ?: check_large(&reading, hfai->optimizers, hfai->n_optimizers, true)
               ?: (source->uneven_steps ? 0 : check_steps(hfai, err));
}

int rfs_hfai_open(const struct rfs_chunks_parts *source, struct rfs_hfai **out,
                  struct rfs_error *err)
{
    struct rfs_hfai *hfai = calloc(1, sizeof *hfai);
    int rc = 0;

    *out = NULL;
    if (!hfai)
        return rfs_fail_memory(err);
    hfai->folder = source->folder;
    hfai->files = source->files;
    hfai->memory.most = source->most;
    hfai->n_parts = source->n_parts;
    hfai->parts = calloc(hfai->n_parts, sizeof *hfai->parts);
    if (!hfai->parts)
        rc = rfs_fail_memory(err);
    else if (hfai->n_parts > RFS_HFAI_PARTS)
        rc = rfs_fail(err, -EINVAL, RFS_IN(source->folder), NULL,
                      "has %u parts; at most %d are read", hfai->n_parts, RFS_HFAI_PARTS);
    else
        rc = read_all(hfai, source, err);
    if (rc) {
        rfs_hfai_free(hfai);
        return rc;
    }
    *out = hfai;
    return 0;
}
