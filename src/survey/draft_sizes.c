/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/draft_sizes.h"

#include "base/glob.h"
#include "base/order.h"
#include "base/vec.h"

#define MOST_KEYS 96      /* keys of a config that count */
#define MOST_SIZES 512    /* different sizes that are written by names; others are numbers */
#define MOST_PRODUCTS 512 /* of a count and a width */
#define MOST_OTHERS 3     /* that are said of a size */

/* Kinds of values, in the order in which they are tried; a key is of the first that it is like. */
enum kind { NONE, MAIN, WIDTH, COUNT, LATE, FIRST };

static const struct {
    const char *pattern;
    enum kind kind;
} kinds[] = {
    {"*first_k_dense_replace", FIRST}, /* of the layers with experts */
    {"*first_*_layer*", FIRST},
    /* What says nothing about shapes, though its name is like that of a size. */
    {"*token_id", NONE},
    {"*max_*", NONE},
    {"*window*", NONE},
    {"*chunk*", NONE},
    {"*per_tok*", NONE},
    {"*topk*", NONE},
    {"*interval*", NONE},
    {"*_step*", NONE},
    {"*_freq*", NONE},
    {"*rope_theta*", NONE},
    {"*position*", NONE},
    {"*use_*", NONE},
    {"*_bias", NONE},
    {"*pretraining*", NONE},
    {"*quantization*", NONE},
    {"*version*", NONE},
    {"*n_group", NONE},
    {"*kernel*", LATE},
    {"*conv*", LATE},
    {"hidden_size", MAIN},
    {"*.hidden_size", MAIN},
    {"d_model", MAIN},
    {"n_embd", MAIN},
    {"*num_*", COUNT},
    {"n_*", COUNT},
    {"*heads", COUNT},
    {"*experts", COUNT},
    {"*groups", COUNT},
    {"*size*", WIDTH},
    {"*dim*", WIDTH},
    {"*rank*", WIDTH},
    {"*hidden*", WIDTH},
    {"*inner*", WIDTH},
    {"*width*", WIDTH},
    {"*ffn*", WIDTH},
    {"*d_ff*", WIDTH},
    {"*channels*", WIDTH},
};

/* Words of the language of rules. */
static const char *const reserved[] = {"and", "config", "count", "false", "has",  "in",
                                       "is",  "not",    "or",    "true",  "where"};

struct key {
    const char *key, *name; /* in the config, and in the rules */
    uint64_t value;
    enum kind kind;
    bool used;
};

/* A product of a count and a width. */
struct product {
    uint64_t value;
    struct key *count, *width;
};

/* A size that was asked for. */
struct known_size {
    uint64_t size;
    const char *text, *others; /* others: NULL, or the texts that fit, too */
};

struct rfs_draft_sizes {
    struct rfs_arena *arena;
    RFS_VEC(struct key) keys;
    RFS_VEC(struct product) products;
    RFS_VEC(struct known_size) sizes;
    /* The search under way. */
    const char *text;
    struct key *used[4];
    size_t n_used, n_others;
    const char *others;
};

/* ---- the keys -------------------------------------------------------------------------------- */

static enum kind kind_of(const char *key)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (rfs_glob_match(kinds[i].pattern, key))
            return kinds[i].kind;
    return NONE;
}

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot ? dot + 1 : key;
}

/* Returns whether rules can say a key, and its last part is a name. */
static bool can_say(const char *key)
{
    const char *name = last_part(key);

    if (strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") !=
            strlen(key) ||
        strlen(key) > 100 || !strchr("abcdefghijklmnopqrstuvwxyz", *name) || strlen(name) < 2)
        return false;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0)
            return false;
    return true;
}

/* Gives each key a name: its last part, or all of it when another key ends so. */
static void name_keys(struct rfs_draft_sizes *s)
{
    for (size_t i = 0; i < s->keys.n; i++) {
        struct key *key = &s->keys.data[i];
        bool again = false;
        for (size_t k = 0; k < s->keys.n; k++)
            again |= k != i && strcmp(last_part(s->keys.data[k].key), last_part(key->key)) == 0;
        char *name = rfs_arena_printf(s->arena, "%s", again ? key->key : last_part(key->key));
        for (char *at = name; at && *at; at++)
            *at = *at == '.' ? '_' : *at;
        key->name = name;
    }
}

RFS_COMPARE(by_kind, struct key, x, y, RFS_ORDER(x->kind, y->kind) ?: strcmp(x->key, y->key))

static bool is_shape(const struct key *key)
{
    return key->kind != FIRST && (key->kind != COUNT || !strstr(key->key, "layers"));
}

/* Returns whether the first word of a name is in another name, or is a plain one. */
static bool shares_first(const char *name, const char *other)
{
    const size_t n = strcspn(name, "_");

    return n < 4 || strncmp(name, "head", n) == 0 || memmem(other, strlen(other), name, n);
}

/* Returns whether a count is that of heads, or groups, with a width. */
static bool belong(const struct key *count, const struct key *width)
{
    const char *a = last_part(count->key), *b = last_part(width->key);
    const bool crossed = (strstr(a, "key_heads") && strstr(b, "value")) ||
                         (strstr(a, "value_heads") && strstr(b, "key"));

    return count->kind == COUNT && (strstr(a, "head") || strstr(a, "group")) &&
           width->kind == WIDTH &&
           (strstr(b, "dim") || strstr(b, "state") || strstr(b, "head_size")) && !crossed &&
           shares_first(a, b) && shares_first(b, a);
}

static void multiply(struct rfs_draft_sizes *s)
{
    for (size_t i = 0; i < s->keys.n; i++)
        for (size_t k = 0; k < s->keys.n && s->products.n < MOST_PRODUCTS; k++) {
            struct key *count = &s->keys.data[i], *width = &s->keys.data[k];
            uint64_t value;
            if (belong(count, width) && !__builtin_mul_overflow(count->value, width->value, &value))
                RFS_ADD(s->arena, &s->products, (struct product){value, count, width});
        }
}

struct rfs_draft_sizes *rfs_draft_sizes_new(struct rfs_arena *arena,
                                            const struct rfs_hf_config *config)
{
    struct rfs_draft_sizes *s = rfs_arena_zeros(arena, 1, sizeof *s);
    const struct rfs_hf_value *value;

    if (!s)
        return NULL;
    s->arena = arena;
    for (size_t i = 0; (value = rfs_hf_config_at(config, i)) && s->keys.n < MOST_KEYS; i++) {
        const enum kind kind = value->kind == RFS_HF_NUMBER ? kind_of(value->key) : NONE;
        if (kind != NONE && value->number > (kind != FIRST) && can_say(value->key))
            RFS_ADD(arena, &s->keys,
                    (struct key){value->key, NULL, (uint64_t)value->number, kind, false});
    }
    RFS_SORT_ALL(&s->keys, by_kind);
    name_keys(s);
    multiply(s);
    return arena->failed ? NULL : s;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Takes a text that fits, and the values in it: the first is the size's, others are said. */
static void fits(struct rfs_draft_sizes *s, struct key *const *used, size_t n, const char *text)
{
    if (!text)
        return;
    if (!s->text) {
        s->text = text;
        s->n_used = n;
        memcpy(s->used, used, n * sizeof *used);
    } else if (s->n_others < MOST_OTHERS) {
        s->others = s->others ? rfs_arena_printf(s->arena, "%s, %s", s->others, text) : text;
        s->n_others++;
    }
}

static void try_keys(struct rfs_draft_sizes *s, uint64_t size)
{
    for (size_t i = 0; i < s->keys.n; i++) {
        struct key *key = &s->keys.data[i];
        if (key->value == size && is_shape(key))
            fits(s, &key, 1, key->name);
    }
}

static void try_products(struct rfs_draft_sizes *s, uint64_t times, uint64_t size)
{
    for (size_t i = 0; i < s->products.n; i++) {
        const struct product *p = &s->products.data[i];
        if (size % times == 0 && p->value == size / times)
            fits(s, (struct key *[]){p->count, p->width}, 2,
                 times == 1 ? rfs_arena_printf(s->arena, "%s * %s", p->count->name, p->width->name)
                            : rfs_arena_printf(s->arena, "%" PRIu64 " * %s * %s", times,
                                               p->count->name, p->width->name));
    }
}

static void try_times(struct rfs_draft_sizes *s, uint64_t size)
{
    for (uint64_t times = 2; times <= 4; times++)
        for (size_t i = 0; i < s->keys.n; i++) {
            struct key *key = &s->keys.data[i];
            if (size % times == 0 && key->value == size / times && key->kind < COUNT)
                fits(s, &key, 1, rfs_arena_printf(s->arena, "%" PRIu64 " * %s", times, key->name));
        }
}

/* Tries sums of two widths, and with a count their product. */
static void try_sums(struct rfs_draft_sizes *s, bool counted, uint64_t size)
{
    for (size_t c = 0; c < (counted ? s->keys.n : 1); c++)
        for (size_t i = 0; i < s->keys.n; i++)
            for (size_t k = i + 1; k < s->keys.n; k++) {
                struct key *count = &s->keys.data[c], *a = &s->keys.data[i], *b = &s->keys.data[k];
                uint64_t sum;
                if (a->kind != WIDTH || b->kind != WIDTH ||
                    __builtin_add_overflow(a->value, b->value, &sum) ||
                    (counted &&
                     (!belong(count, a) || !belong(count, b) || size % count->value != 0)) ||
                    sum != (counted ? size / count->value : size))
                    continue;
                if (counted)
                    fits(s, (struct key *[]){count, a, b}, 3,
                         rfs_arena_printf(s->arena, "%s * (%s + %s)", count->name, a->name,
                                          b->name));
                else
                    fits(s, (struct key *[]){a, b}, 2,
                         rfs_arena_printf(s->arena, "%s + %s", a->name, b->name));
            }
}

/* Tries sums of two products, each once or twice: projections that are fused. */
static void try_fused(struct rfs_draft_sizes *s, uint64_t size)
{
    for (unsigned twice = 0; twice < 3; twice++)
        for (size_t i = 0; i < s->products.n && !s->text; i++)
            for (size_t k = 0; k < s->products.n && !s->text; k++) {
                const struct product *a = &s->products.data[i], *b = &s->products.data[k];
                if (i == k || a->value > size || b->value > size ||
                    (twice > 0 ? 2 : 1) * a->value + (twice > 1 ? 2 : 1) * b->value != size)
                    continue;
                fits(s, (struct key *[]){a->count, a->width, b->count, b->width}, 4,
                     rfs_arena_printf(s->arena, "%s%s * %s + %s%s * %s", twice > 0 ? "2 * " : "",
                                      a->count->name, a->width->name, twice > 1 ? "2 * " : "",
                                      b->count->name, b->width->name));
            }
}

/* Finds a count with a word in its key; VALUE 0: whatever its value. */
static struct key *find_count(struct rfs_draft_sizes *s, const char *word, size_t n, uint64_t value)
{
    for (size_t i = 0; i < s->keys.n && n > 0; i++) {
        struct key *key = &s->keys.data[i];
        const char *name = last_part(key->key);
        if (key->kind == COUNT && (value == 0 || key->value == value) &&
            memmem(name, strlen(name), word, n))
            return key;
    }
    return NULL;
}

static const struct known_size *search_size(struct rfs_draft_sizes *s, uint64_t size)
{
    struct key *layers;

    s->text = s->others = NULL;
    s->n_used = s->n_others = 0;
    try_keys(s, size);
    try_products(s, 1, size);
    if (!s->text)
        try_times(s, size);
    if (!s->text)
        try_sums(s, false, size);
    if (!s->text)
        try_sums(s, true, size);
    if (!s->text)
        try_products(s, 2, size);
    if (!s->text)
        try_fused(s, size);
    if (!s->text && (layers = find_count(s, "layer", strlen("layer"), size)))
        fits(s, &layers, 1, layers->name);
    for (size_t i = 0; i < s->n_used; i++)
        s->used[i]->used = true;
    RFS_ADD(s->arena, &s->sizes,
            (struct known_size){
                size, s->text ? s->text : rfs_arena_printf(s->arena, "%" PRIu64, size), s->others});
    return s->arena->failed ? NULL : &s->sizes.data[s->sizes.n - 1];
}

const char *rfs_draft_size(struct rfs_draft_sizes *s, uint64_t size)
{
    const struct known_size *found = NULL;

    for (size_t i = 0; i < s->sizes.n && !found; i++)
        if (s->sizes.data[i].size == size)
            found = &s->sizes.data[i];
    if (!found && size > 1 && s->sizes.n < MOST_SIZES)
        found = search_size(s, size);
    return found ? found->text : rfs_arena_printf(s->arena, "%" PRIu64, size);
}

/* ---- indexes --------------------------------------------------------------------------------- */

const char *rfs_draft_begin(struct rfs_draft_sizes *s, uint64_t begin)
{
    for (size_t i = 0; i < s->keys.n; i++) {
        struct key *key = &s->keys.data[i];
        if (key->kind == FIRST && key->value == begin) {
            key->used = true;
            return key->name;
        }
    }
    return NULL;
}

const char *rfs_draft_end(struct rfs_draft_sizes *s, uint64_t end, const char *noun)
{
    const size_t n = strlen(noun) - (strlen(noun) > 1 && noun[strlen(noun) - 1] == 's');
    struct key *key = find_count(s, noun, n, end) ?: find_count(s, "layer", 5, end);

    if (!key)
        return rfs_draft_begin(s, end); /* of the layers before the others */
    key->used = true;
    return key->name;
}

const char *rfs_draft_layers(struct rfs_draft_sizes *s, uint64_t *layers)
{
    struct key *key = find_count(s, "hidden_layers", strlen("hidden_layers"), 0);

    key = key ?: find_count(s, "n_layer", strlen("n_layer"), 0);
    if (!key)
        return NULL;
    *layers = key->value;
    key->used = true;
    return key->name;
}

void rfs_draft_print_lets(const struct rfs_draft_sizes *s, FILE *out)
{
    for (size_t i = 0; i < s->sizes.n; i++)
        if (s->sizes.data[i].others)
            fprintf(out, "# %" PRIu64 " is %s here. Other values that fit: %s.\n",
                    s->sizes.data[i].size, s->sizes.data[i].text, s->sizes.data[i].others);
    for (size_t i = 0; i < s->keys.n; i++)
        if (s->keys.data[i].used)
            fprintf(out, "let %s = config.%s\n", s->keys.data[i].name, s->keys.data[i].key);
}
