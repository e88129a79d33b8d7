/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/draft.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"

#define MOST_HOLES 4      /* numbers in a name that become indexes; others stay */
#define MOST_DIGITS 6     /* of such a number */
#define MOST_RUNS 12      /* of numbers one after the other, in a condition */
#define MOST_LAYERS 4096  /* that a condition is tried for */
#define MOST_LEFT 20      /* names without a rule that are listed */
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

struct sizes {
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
static void name_keys(struct sizes *s)
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

static void multiply(struct sizes *s)
{
    for (size_t i = 0; i < s->keys.n; i++)
        for (size_t k = 0; k < s->keys.n && s->products.n < MOST_PRODUCTS; k++) {
            struct key *count = &s->keys.data[i], *width = &s->keys.data[k];
            uint64_t value;
            if (belong(count, width) && !__builtin_mul_overflow(count->value, width->value, &value))
                RFS_ADD(s->arena, &s->products, (struct product){value, count, width});
        }
}

/*
 * Makes the table of a config, in ARENA; both are borrowed. NULL when out of memory. Keys that the
 * language of rules cannot say are left out.
 */
static struct sizes *new_sizes(struct rfs_arena *arena, const struct rfs_hf_config *config)
{
    struct sizes *s = rfs_arena_zeros(arena, 1, sizeof *s);
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
static void fits(struct sizes *s, struct key *const *used, size_t n, const char *text)
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

static void try_keys(struct sizes *s, uint64_t size)
{
    for (size_t i = 0; i < s->keys.n; i++) {
        struct key *key = &s->keys.data[i];
        if (key->value == size && is_shape(key))
            fits(s, &key, 1, key->name);
    }
}

static void try_products(struct sizes *s, uint64_t times, uint64_t size)
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

static void try_times(struct sizes *s, uint64_t size)
{
    for (uint64_t times = 2; times <= 4; times++)
        for (size_t i = 0; i < s->keys.n; i++) {
            struct key *key = &s->keys.data[i];
            if (size % times == 0 && key->value == size / times && key->kind < COUNT)
                fits(s, &key, 1, rfs_arena_printf(s->arena, "%" PRIu64 " * %s", times, key->name));
        }
}

/* Tries sums of two widths, and with a count their product. */
static void try_sums(struct sizes *s, bool counted, uint64_t size)
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
static void try_fused(struct sizes *s, uint64_t size)
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
static struct key *find_count(struct sizes *s, const char *word, size_t n, uint64_t value)
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

static const struct known_size *search_size(struct sizes *s, uint64_t size)
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

/* Returns the text of a size; what it names counts as used. */
static const char *size_text(struct sizes *s, uint64_t size)
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

/* Returns the name of the first value of an index, or NULL: none fits. */
static const char *begin_text(struct sizes *s, uint64_t begin)
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

/* Returns the name of the end of an index that counts NOUN, as "layers", or NULL: none fits. */
static const char *end_text(struct sizes *s, uint64_t end, const char *noun)
{
    const size_t n = strlen(noun) - (strlen(noun) > 1 && noun[strlen(noun) - 1] == 's');
    struct key *key = find_count(s, noun, n, end) ?: find_count(s, "layer", 5, end);

    if (!key)
        return begin_text(s, end); /* of the layers before the others */
    key->used = true;
    return key->name;
}

/*
 * Returns the name of the number of layers for a condition on them, and sets *LAYERS to it; NULL:
 * the config has none.
 */
static const char *layers_text(struct sizes *s, uint64_t *layers)
{
    struct key *key = find_count(s, "hidden_layers", strlen("hidden_layers"), 0);

    key = key ?: find_count(s, "n_layer", strlen("n_layer"), 0);
    if (!key)
        return NULL;
    *layers = key->value;
    key->used = true;
    return key->name;
}

/* Prints a "let" for each value that is used, and the sizes that other values fit, too. */
static void print_lets(const struct sizes *s, FILE *out)
{
    for (size_t i = 0; i < s->sizes.n; i++)
        if (s->sizes.data[i].others)
            fprintf(out, "# %" PRIu64 " is %s here. Other values that fit: %s.\n",
                    s->sizes.data[i].size, s->sizes.data[i].text, s->sizes.data[i].others);
    for (size_t i = 0; i < s->keys.n; i++)
        if (s->keys.data[i].used)
            fprintf(out, "let %s = config.%s\n", s->keys.data[i].name, s->keys.data[i].key);
}

static const char letters[] = "ijkmnpqrstuvwxyzabcdefgh";

/* A tensor. Tensors with one pattern and one shape may be of one rule. */
struct tensor {
    const char *name;
    const struct rfs_type *type;
    const char *pattern; /* its name with "*" in place of numbers */
    uint32_t number[MOST_HOLES];
    unsigned holes;
    size_t order;
};

/* Ascending numbers that a hole has; NOUN is the word before it. */
struct set {
    uint32_t *numbers;
    size_t n;
    const char *noun;
    unsigned hole; /* two holes of one name have indexes of their own */
    const char *text;
};

struct rule {
    size_t order; /* of its first tensor */
    const char *name, *shape;
    size_t tensors;
};

struct rfs_draft {
    struct rfs_arena arena;
    RFS_VEC(struct tensor) tensors;
    RFS_VEC(const char *) left; /* names that rules cannot say */
    RFS_VEC(struct set) sets;
    RFS_VEC(struct rule) rules;
    struct sizes *sizes;
    const struct rfs_hf_config *config;
};

struct rfs_draft *rfs_draft_new(void)
{
    return calloc(1, sizeof(struct rfs_draft));
}

void rfs_draft_free(struct rfs_draft *draft)
{
    if (!draft)
        return;
    rfs_arena_free(&draft->arena);
    free(draft);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns the digits of the number that is all of the part of a name at TEXT, or 0. */
static size_t number_at(const char *name, const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    const bool whole = (text == name || text[-1] == '.') && (!text[digits] || text[digits] == '.');

    return whole && digits <= MOST_DIGITS && (digits < 2 || *text != '0') ? digits : 0;
}

/* Sets the pattern of a tensor, with "*" for its first numbers, MOST at most. */
static void fold(struct rfs_draft *draft, struct tensor *tensor, unsigned most)
{
    char *out = rfs_arena_alloc(&draft->arena, strlen(tensor->name) + 1);

    tensor->pattern = out;
    tensor->holes = 0;
    for (const char *at = tensor->name; out && *at;) {
        const size_t digits = tensor->holes < most ? number_at(tensor->name, at) : 0;
        if (digits > 0)
            tensor->number[tensor->holes++] = (uint32_t)strtoul(at, NULL, 10);
        *out++ = digits > 0 ? '*' : *at;
        at += digits > 0 ? digits : 1;
    }
    if (out)
        *out = '\0';
}

void rfs_draft_add(struct rfs_draft *draft, const char *name, const struct rfs_type *type)
{
    struct tensor tensor = {.name = name, .type = type, .order = draft->tensors.n};
    bool said = type->kind == RFS_TENSOR && *name;

    for (const char *at = name; *at; at++)
        said = said && *at > ' ' && *at < 127 && !strchr(",()[]={}*|#\"'", *at);
    if (said) {
        fold(draft, &tensor, MOST_HOLES);
        RFS_ADD(&draft->arena, &draft->tensors, tensor);
    } else {
        RFS_ADD(&draft->arena, &draft->left, name);
    }
}

static int order_shapes(const struct rfs_type *a, const struct rfs_type *b)
{
    int order = RFS_ORDER(a->ndim, b->ndim);

    for (unsigned i = 0; i < a->ndim && order == 0; i++)
        order = RFS_ORDER(a->dims[i], b->dims[i]);
    return order;
}

RFS_COMPARE(by_pattern, struct tensor, x, y,
            strcmp(x->pattern, y->pattern) ?: order_shapes(x->type, y->type)
                                               ?: RFS_ORDER(x->order, y->order))
RFS_COMPARE(by_order, struct rule, x, y, RFS_ORDER(x->order, y->order))
RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* ---- indexes --------------------------------------------------------------------------------- */

static bool set_has(const struct set *set, uint64_t number)
{
    const size_t at = RFS_BISECT(i, set->n, set->numbers[i] >= number);

    return at < set->n && set->numbers[at] == number;
}

static bool is_word(const char *text)
{
    return *text &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
               strlen(text);
}

/* Returns whether a list of the config has NUMBER as an entry. */
static bool list_has(const struct rfs_hf_value *list, uint64_t number)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->list[i].kind == RFS_HF_NUMBER && list->list[i].number >= 0 &&
            (uint64_t)list->list[i].number == number)
            return true;
    return false;
}

/* Returns the word that a list has at the numbers of a set alone, or NULL. */
static const char *word_of(const struct rfs_hf_value *list, const struct set *set, uint64_t end)
{
    const struct rfs_hf_value *first =
        set->numbers[0] < list->n ? &list->list[set->numbers[0]] : NULL;
    bool same = first && list->n >= end && first->kind == RFS_HF_TEXT && is_word(first->text);

    for (uint64_t i = 0; i < end && same; i++)
        same = set_has(set, i) ==
               (list->list[i].kind == RFS_HF_TEXT && strcmp(list->list[i].text, first->text) == 0);
    return same ? first->text : NULL;
}

/* Returns the condition by which a list of the config chooses the numbers of a set, or NULL. */
static const char *by_list(struct rfs_draft *draft, const struct set *set, char name, uint64_t end)
{
    const struct rfs_hf_value *value;

    for (size_t v = 0; (value = rfs_hf_config_at(draft->config, v)); v++) {
        if (value->kind != RFS_HF_LIST || value->n == 0 || value->n > MOST_LAYERS ||
            strpbrk(value->key, " -[]()=,#"))
            continue;
        const char *word = word_of(value, set, end);
        bool in = true, out = true;
        for (uint64_t i = 0; i < end && (in || out) && !word; i++) {
            const bool there = list_has(value, i);
            in &= there == set_has(set, i);
            out &= there != set_has(set, i);
        }
        if (word)
            return rfs_arena_printf(&draft->arena, "config.%s[%c] is %s", value->key, name, word);
        if (in || out)
            return rfs_arena_printf(&draft->arena, in ? "%c in config.%s" : "not (%c in config.%s)",
                                    name, value->key);
    }
    return NULL;
}

/* Returns the condition of every STEP-th number, or NULL. */
static const char *by_step(struct rfs_draft *draft, const struct set *set, char name, uint64_t end)
{
    const uint32_t step = set->n > 1 ? set->numbers[1] - set->numbers[0] : 0;

    if (step < 2 || set->numbers[0] >= step || set->numbers[set->n - 1] + step < end)
        return NULL;
    for (size_t i = 1; i < set->n; i++)
        if (set->numbers[i] - set->numbers[i - 1] != step)
            return NULL;
    return rfs_arena_printf(&draft->arena, "%c %% %" PRIu32 " == %" PRIu32, name, step,
                            set->numbers[0]);
}

/* Returns the condition that names all runs, or NULL: there are too many. */
static const char *by_runs(struct rfs_draft *draft, const struct set *set, char name)
{
    const char *text = "";
    unsigned runs = 0;

    for (size_t i = 0, next; i < set->n && text; i = next) {
        for (next = i + 1; next < set->n && set->numbers[next] == set->numbers[next - 1] + 1;)
            next++;
        const char *or_ = runs > 0 ? " or " : "";
        if (runs++ == MOST_RUNS)
            return NULL;
        text =
            next - i == 1
                ? rfs_arena_printf(&draft->arena, "%s%s%c == %" PRIu32, text, or_, name,
                                   set->numbers[i])
                : rfs_arena_printf(&draft->arena, "%s%s(%c >= %" PRIu32 " and %c <= %" PRIu32 ")",
                                   text, or_, name, set->numbers[i], name, set->numbers[next - 1]);
    }
    return text;
}

static const char *write_number(struct rfs_draft *draft, uint64_t number)
{
    return rfs_arena_printf(&draft->arena, "%" PRIu64, number);
}

/* Writes the range of a set without gaps; NAMED: only by names of the config, or NULL. */
static const char *write_range(struct rfs_draft *draft, const struct set *set, bool named)
{
    const uint32_t first = set->numbers[0];
    const uint64_t end = (uint64_t)set->numbers[set->n - 1] + 1;
    const char *from = first > 0 ? begin_text(draft->sizes, first) : "0";
    const char *to = end_text(draft->sizes, end, set->noun);

    if (end - first != set->n || (named && !(from && to)))
        return NULL;
    return rfs_arena_printf(&draft->arena, "%s .. %s", from ?: write_number(draft, first),
                            to ?: write_number(draft, end));
}

/* Writes the values of a set's index. False: it has none. */
static bool write_index(struct rfs_draft *draft, struct set *set, char name)
{
    const uint32_t last = set->numbers[set->n - 1];
    uint64_t layers = 0;
    const char *end = layers_text(draft->sizes, &layers);
    const char *where;

    if (!end || layers <= last || layers > MOST_LAYERS) {
        layers = (uint64_t)last + 1;
        end = write_number(draft, layers);
    }
    set->text = write_range(draft, set, true);
    where = !set->text && layers <= MOST_LAYERS ? by_list(draft, set, name, layers) : NULL;
    if (!set->text && !where)
        set->text = write_range(draft, set, false);
    if (!set->text && !where)
        where = by_step(draft, set, name, layers) ?: by_runs(draft, set, name);
    if (where)
        set->text = rfs_arena_printf(&draft->arena, "0 .. %s where %s", end, where);
    return set->text;
}

/* Returns the letter of the index of a set, which is made at the first call; 0: it has none. */
static char find_index(struct rfs_draft *draft, const struct set *set)
{
    size_t i = 0;

    while (i < draft->sets.n &&
           !(draft->sets.data[i].hole == set->hole && draft->sets.data[i].n == set->n &&
             memcmp(draft->sets.data[i].numbers, set->numbers, set->n * sizeof *set->numbers) == 0))
        i++;
    if (i == draft->sets.n) {
        struct set own = *set;
        if (i == strlen(letters) || !write_index(draft, &own, letters[i]))
            return '\0';
        RFS_ADD(&draft->arena, &draft->sets, own);
    }
    return letters[i];
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Gives the numbers in a hole of N tensors, each once. */
static void take_set(struct rfs_draft *draft, const struct tensor *tensors, size_t n, unsigned hole,
                     struct set *out)
{
    uint32_t *numbers = rfs_arena_alloc(&draft->arena, n * sizeof *numbers);

    *out = (struct set){.numbers = numbers, .hole = hole};
    if (!numbers)
        return;
    for (size_t i = 0; i < n; i++)
        numbers[i] = tensors[i].number[hole];
    RFS_SORT(numbers, n, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || numbers[i] != numbers[i - 1])
            numbers[out->n++] = numbers[i];
}

/* Returns the part of a name that ends before AT, a dot behind it. */
static const char *noun_before(struct rfs_draft *draft, const char *name, const char *at)
{
    const char *end = at > name ? at - 1 : at, *begin = end;

    while (begin > name && begin[-1] != '.')
        begin--;
    return rfs_arena_text(&draft->arena, begin, (size_t)(end - begin)) ?: "";
}

/* Returns the pattern with an index in each hole; NULL: the tensors are not all of its names. */
static const char *index_name(struct rfs_draft *draft, const struct tensor *tensors, size_t n)
{
    const char *pattern = tensors->pattern;
    const char *text = "";
    size_t names = 1;
    unsigned hole = 0;
    struct set sets[MOST_HOLES];

    for (unsigned i = 0; i < tensors->holes; i++) {
        take_set(draft, tensors, n, i, &sets[i]);
        if (sets[i].n == 0 || __builtin_mul_overflow(names, sets[i].n, &names))
            return NULL;
    }
    if (names != n)
        return NULL;
    for (const char *at = pattern; *at && text; hole++) {
        const char *next = strchrnul(at, '*');
        if (!*next)
            return rfs_arena_printf(&draft->arena, "%s%s", text, at);
        if (sets[hole].n == 1) { /* a number like another part of the name */
            text = rfs_arena_printf(&draft->arena, "%s%.*s%" PRIu32, text, (int)(next - at), at,
                                    sets[hole].numbers[0]);
            at = next + 1;
            continue;
        }
        sets[hole].noun = noun_before(draft, pattern, next);
        const char letter = find_index(draft, &sets[hole]);
        if (!letter)
            return NULL;
        text = rfs_arena_printf(&draft->arena, "%s%.*s{%c}", text, (int)(next - at), at, letter);
        at = next + 1;
    }
    return text;
}

static const char *write_shape(struct rfs_draft *draft, const struct rfs_type *type)
{
    const char *text = "";

    for (unsigned i = 0; i < type->ndim && text; i++)
        text = rfs_arena_printf(&draft->arena, "%s%s%s", text, i > 0 ? ", " : "",
                                size_text(draft->sizes, type->dims[i]));
    return text;
}

static void group(struct rfs_draft *draft, struct tensor *tensors, size_t n);

/* Adds the rule of N tensors of one pattern and shape, or several: these are not all its names. */
static void add_rule(struct rfs_draft *draft, struct tensor *tensors, size_t n)
{
    const char *name = tensors->holes > 0 ? index_name(draft, tensors, n) : tensors->name;

    if (name) {
        RFS_ADD(&draft->arena, &draft->rules,
                (struct rule){tensors->order, name, write_shape(draft, tensors->type), n});
    } else if (!draft->arena.failed) {
        const unsigned most = tensors->holes - 1;
        for (size_t i = 0; i < n; i++)
            fold(draft, &tensors[i], most);
        group(draft, tensors, n);
    }
}

/* Adds the rules of N tensors. They nest as deep as names have holes. */
static void group(struct rfs_draft *draft, struct tensor *tensors, size_t n)
{
    if (draft->arena.failed)
        return;
    RFS_SORT(tensors, n, by_pattern);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && strcmp(tensors[next].pattern, tensors[i].pattern) == 0 &&
                           order_shapes(tensors[next].type, tensors[i].type) == 0;)
            next++;
        add_rule(draft, &tensors[i], next - i);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static void print_left(const struct rfs_draft *draft, FILE *out)
{
    for (size_t i = 0; i < draft->left.n && i < MOST_LEFT; i++) {
        fputs("# no rule can name ", out);
        rfs_text_put(out, draft->left.data[i]);
        fputc('\n', out);
    }
    if (draft->left.n > MOST_LEFT)
        fprintf(out, "# and %zu more\n", draft->left.n - MOST_LEFT);
}

static void print_head(const struct rfs_draft *draft, bool right, FILE *out)
{
    const struct rfs_hf_value *type = rfs_hf_config_find(draft->config, "model_type");

    fprintf(out,
            "# A draft: %zu tensors in %zu rules, each with a name of its own to the %s. Put the "
            "names of the\n# other side there, and what is joined into one tensor into one rule.\n"
            "sides training huggingface\n",
            draft->tensors.n, draft->rules.n, right ? "left" : "right");
    if (type && type->kind == RFS_HF_TEXT && is_word(type->text))
        fprintf(out, "models %s\n", type->text);
    fputc('\n', out);
}

int rfs_draft_print(struct rfs_draft *draft, const struct rfs_hf_config *config, bool right,
                    FILE *out, struct rfs_error *err)
{
    draft->config = config;
    draft->sizes = new_sizes(&draft->arena, config);
    if (!draft->sizes || draft->arena.failed)
        return rfs_fail_memory(err);
    group(draft, draft->tensors.data, draft->tensors.n);
    RFS_SORT_ALL(&draft->rules, by_order);
    if (draft->arena.failed)
        return rfs_fail_memory(err);
    print_head(draft, right, out);
    print_lets(draft->sizes, out);
    for (size_t i = 0; i < draft->sets.n; i++)
        fprintf(out, "index %c = %s\n", letters[i], draft->sets.data[i].text);
    fputc('\n', out);
    for (size_t i = 0; i < draft->rules.n; i++) {
        const struct rule *rule = &draft->rules.data[i];
        fprintf(out, "%s%s = %s%s [%s]\n", right ? "training." : "", rule->name,
                right ? "" : "huggingface.", rule->name, rule->shape);
    }
    print_left(draft, out);
    return 0;
}
