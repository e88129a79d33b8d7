/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How outputs are named, chosen and typed. The file of names= leads from names in the source to
 * those shown:
 *
 *     {"model.embed.weight": "embedding_table", "old.scale": null, …}        null: left out
 *
 * as the name_map of ckpt_to_safetensors and safetensors_to_ckpt of MindSpore 2.10 has it (the
 * name_map of load_distributed_checkpoint goes the other way). Other parameters keep their names.
 * When a key is given twice, Python would take the last; here it is refused, and so are two
 * parameters that are shown by one name.
 *
 * A key with a * is for all names that it is like, and only the * is special in it:
 *
 *     {"model.*": "*", "*.gamma": "*.weight", "optimizer.*": null}
 *
 * The value has as many stars, filled in order with what those of the key stand for: each but the
 * last for as little as possible. A key without a * counts before all with one, and of those the
 * first that the name is like.
 *
 * names=unwrap takes off what wrappers of modules put before names, in any place:
 *
 *     module.model.layers.0._orig_mod.mlp.weight    ->    model.layers.0.mlp.weight
 *
 * The rules of dtype=:
 *
 *     RULES    RULE [ ; RULE ] …           spaces around a rule and around its = are dropped
 *     RULE     PATTERN = TO | TO           one without a pattern is for all that no pattern is like
 *     TO       float16 | bfloat16 | float32 | float64 | keep   in any case; or F16, BF16, F32, F64
 *
 * PATTERN is as base/glob.h says, and may hold a = itself: the last one counts. The first pattern
 * that a name is like counts.
 *
 * The patterns of only= and drop= stand so, too: PATTERN [ ; PATTERN ] … A name is shown if it is
 * like one of only= and like none of drop=.
 */
#include "plan/names.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "formats/safetensors/peft.h"
#include "rules/known.h"

#include <stdatomic.h>
#include <strings.h>
#include <xxhash.h>

/* ---- lists with a ; between ------------------------------------------------------------------ */

/* Removes the spaces around a text. */
static char *trim(char *text)
{
    size_t n;

    while (*text == ' ')
        text++;
    for (n = strlen(text); n > 0 && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
    return text;
}

/* Takes the next part off a list, which is NULL after the last. */
static char *take_part(char **list)
{
    char *part = *list;

    *list = strchr(part, ';');
    if (*list)
        *(*list)++ = '\0';
    return trim(part);
}

/* ---- patterns -------------------------------------------------------------------------------- */

#define PATTERNS_MOST 1024 /* each name is compared with all */

/* The patterns of only=, drop= or dtype=. */
struct choice {
    char *text; /* cut into patterns; NULL: the option is not given */
    RFS_VEC(const char *) patterns;
    _Atomic unsigned char *used; /* [patterns] a name that was looked up is like it */
};

static int add_to_choice(const char *option, const char *pattern, struct rfs_arena *memory,
                         struct choice *choice, struct rfs_error *err)
{
    if (choice->patterns.n == PATTERNS_MOST)
        return rfs_fail_usage(err, "a shorter pattern with a *",
                              "option %s has more than %d patterns", option, PATTERNS_MOST);
    RFS_ADD(memory, &choice->patterns, pattern);
    return 0;
}

/* Ends the patterns. 0 or -ENOMEM. */
static int end_choice(struct rfs_arena *memory, struct choice *choice, struct rfs_error *err)
{
    choice->used = rfs_arena_zeros(memory, choice->patterns.n, sizeof *choice->used);
    return memory->failed ? rfs_fail_memory(err) : 0;
}

static int parse_choice(const char *option, const char *text, struct rfs_arena *memory,
                        struct choice *out, struct rfs_error *err)
{
    if (!text)
        return 0;
    out->text = rfs_arena_text(memory, text, strlen(text));
    for (char *rest = out->text; rest;) {
        const char *pattern = take_part(&rest);
        if (!*pattern)
            return rfs_fail_usage(err, "patterns with one ; between, such as 'model.*;lm_head.*'",
                                  "option %s: a pattern is empty", option);
        const int rc = add_to_choice(option, pattern, memory, out, err);
        if (rc)
            return rc;
    }
    return end_choice(memory, out, err);
}

/* Marks pattern I; threads that find it marked don't write into the line that others read. */
static void mark_used(const struct choice *choice, size_t i)
{
    if (!atomic_load_explicit(&choice->used[i], memory_order_relaxed))
        atomic_store_explicit(&choice->used[i], 1, memory_order_relaxed);
}

/* Returns whether a name is like a pattern, and marks each pattern that it is like. */
static bool is_chosen(const struct choice *choice, const char *name)
{
    bool any = false;

    for (size_t i = 0; i < choice->patterns.n; i++)
        if (rfs_glob_match(choice->patterns.data[i], name)) {
            mark_used(choice, i);
            any = true;
        }
    return any;
}

/* Finds the first pattern from FROM on that no name was like; the number of patterns: none. */
static size_t find_unused(const struct choice *choice, size_t from)
{
    while (from < choice->patterns.n &&
           atomic_load_explicit(&choice->used[from], memory_order_relaxed))
        from++;
    return from;
}

/* Returns the first pattern if no name was like any; NULL: one was, or there are none. */
static const char *none_used(const struct choice *choice)
{
    for (size_t i = 0; i < choice->patterns.n; i++)
        if (find_unused(choice, i) != i)
            return NULL;
    return choice->patterns.n > 0 ? choice->patterns.data[0] : NULL;
}

/* ---- dtype= ---------------------------------------------------------------------------------- */

#define DTYPE_REMEDY "dtype=bfloat16, or dtype=bfloat16;*.norm.*=float32;lm_head.*=keep"
#define KEEP RFS_DTYPE_COUNT

struct dtype_rules {
    struct choice names;        /* a pattern is used if it is the first that a name is like */
    RFS_VEC(enum rfs_dtype) to; /* [names.patterns] or KEEP */
    bool has_other;             /* a rule without a pattern was there: */
    enum rfs_dtype other;
};

static bool parse_target(const char *text, enum rfs_dtype *to)
{
    if (strcasecmp(text, "keep") == 0) {
        *to = KEEP;
        return true;
    }
    for (unsigned d = 0; d < RFS_DTYPE_COUNT; d++) {
        *to = (enum rfs_dtype)d;
        if (rfs_dtype_is_float_target(*to) && (strcasecmp(text, rfs_dtype_name(*to)) == 0 ||
                                               strcasecmp(text, rfs_dtype_safetensors(*to)) == 0))
            return true;
    }
    return false;
}

static int add_rule(struct dtype_rules *rules, char *text, struct rfs_arena *memory,
                    struct rfs_error *err)
{
    char *equals = strrchr(text, '=');
    const char *pattern = NULL;
    enum rfs_dtype type;

    if (equals) {
        *equals = '\0';
        pattern = trim(text);
    }
    const char *to = trim(equals ? equals + 1 : text);
    if (!parse_target(to, &type))
        return rfs_fail_usage(
            err, DTYPE_REMEDY,
            "option dtype: '%s' is not float16, bfloat16, float32, float64 or keep", to);
    if (pattern && !*pattern)
        return rfs_fail_usage(err, DTYPE_REMEDY,
                              "option dtype: a rule has no pattern before its =");
    if (!pattern && rules->has_other)
        return rfs_fail_usage(err, DTYPE_REMEDY, "option dtype: two rules are without a pattern");
    if (pattern) {
        RFS_ADD(memory, &rules->to, type);
        return add_to_choice("dtype", pattern, memory, &rules->names, err);
    }
    rules->has_other = true;
    rules->other = type;
    return 0;
}

/* Parses rules. 0 with *out in MEMORY, or -EINVAL (a mistake of usage) or -ENOMEM, *err filled. */
static int parse_rules(const char *text, struct rfs_arena *memory, struct dtype_rules **out,
                       struct rfs_error *err)
{
    struct dtype_rules *rules = *out = rfs_arena_zeros(memory, 1, sizeof *rules);
    char *rest = rfs_arena_text(memory, text, strlen(text));

    while (!memory->failed && rest) {
        const int rc = add_rule(rules, take_part(&rest), memory, err);
        if (rc)
            return rc;
    }
    return memory->failed ? rfs_fail_memory(err) : end_choice(memory, &rules->names, err);
}

bool rfs_names_dtype_is(const char *text, enum rfs_dtype dtype)
{
    RFS_CLEANUP(rfs_arena_free) struct rfs_arena memory = {0};
    struct dtype_rules *rules;
    struct rfs_error err;

    return parse_rules(text, &memory, &rules, &err) == 0 && rules->to.n == 0 && rules->has_other &&
           rules->other == dtype;
}

/*
 * Returns the dtype of a parameter of that name, FROM where no rule says otherwise, and marks the
 * pattern that counts.
 */
static enum rfs_dtype find_dtype(const struct dtype_rules *rules, const char *name,
                                 enum rfs_dtype from)
{
    enum rfs_dtype to = rules->has_other ? rules->other : KEEP;
    size_t i = 0;

    while (i < rules->to.n && !rfs_glob_match(rules->names.patterns.data[i], name))
        i++;
    if (i < rules->to.n) {
        mark_used(&rules->names, i);
        to = rules->to.data[i];
    }
    return to == KEEP ? from : to;
}

/* ---- names= ---------------------------------------------------------------------------------- */

#define NAMES_FILE_BYTES ((size_t)64 << 20) /* a hundred thousand names and more */
#define NAME_BYTES ((size_t)64 << 10)
#define REMEDY                                                                                     \
    "a JSON object such as {\"name in the source\": \"name shown\", \"name left out\": null}"
#define NAMES_TOLD 5

#define STARS_MOST 16
#define NO_MEMORY "is out of memory" /* a name that was not made */

/* A key with stars. */
struct name_pattern {
    uint32_t key;      /* id in from */
    const char *value; /* in made; NULL: names like it are left out */
};

/* The map of names=. */
struct name_map {
    struct rfs_arena *memory; /* that of the names */
    const char *path;
    enum { BY_FILE, BY_UNWRAP, BY_ADAPTER } by; /* what makes names; BY_FILE: the keys */
    const char *adapter;                        /* the name of PEFT's that is shown; NULL: each */
    struct rfs_intern *from;                    /* keys */
    struct rfs_intern *to;                      /* names shown by keys without a star */
    RFS_VEC(uint32_t) shown; /* by id in from: id in to, or RFS_NO_ID for one that is left out */
    RFS_VEC(struct name_pattern) patterns; /* keys with a star, which are left out in shown */
    struct rfs_intern *made;               /* names that patterns made, and the values of these */
    _Atomic unsigned char *used;           /* by id in from: a parameter has that name */
    atomic_bool met;                       /* one of them is */
    _Atomic(const char *) wrong;    /* what is wrong with a name that was made; NULL: nothing */
    _Atomic(const char *) wrong_of; /* in from or made: the name in the source */
};

struct rfs_names {
    struct rfs_arena memory;   /* that of all below but the tables */
    struct name_map *map;      /* NULL: parameters keep their names */
    struct choice only, drop;  /* those that are shown */
    struct dtype_rules *rules; /* NULL: dtypes as they are */
    const char *drop_option;   /* the option that drop is of */
    struct rfs_known *states;  /* names that are not shown; or NULL */
};

void rfs_names_free(struct rfs_names *names)
{
    if (!names)
        return;
    if (names->map) {
        rfs_intern_free(names->map->from);
        rfs_intern_free(names->map->to);
        rfs_intern_free(names->map->made);
    }
    rfs_known_free(names->states);
    rfs_arena_free(&names->memory);
    free(names);
}

RFS_CLEANUP_OF(names_cleanup, struct rfs_names *, rfs_names_free)

static bool has_control(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            return true;
    return false;
}

/* Returns what is wrong with a name, or NULL. */
static const char *wrong_with(const char *name)
{
    return !*name                          ? "is empty"
           : strlen(name) > NAME_BYTES     ? "has more than 64 KiB"
           : has_control(name)             ? "has a control character"
           : !strcmp(name, "__metadata__") ? "is __metadata__, which safetensors keeps for itself"
                                           : NULL;
}

static int check_name(const struct name_map *map, const char *key, const char *name,
                      struct rfs_error *err)
{
    const char *wrong = wrong_with(name);

    return wrong ? rfs_fail(err, -EINVAL, RFS_OF(map->path, key), REMEDY, "the name %s", wrong) : 0;
}

/* Adds a name that must not be in the table yet. KEY and WRONG are for the message. */
static int add_once(const struct name_map *map, struct rfs_intern *table, const char *key,
                    const char *name, const char *wrong, uint32_t *id, struct rfs_error *err)
{
    const uint32_t before = rfs_intern_count(table);

    *id = rfs_intern_add(table, name, strlen(name));
    if (*id == RFS_NO_ID)
        return rfs_fail_memory(err);
    return *id == before ? 0
                         : rfs_fail(err, -EINVAL, RFS_OF(map->path, key), "leave one of them out",
                                    "%s", wrong);
}

static int fail_json(const struct name_map *map, const struct rfs_json_read *json,
                     struct rfs_error *err)
{
    return json->no_memory ? rfs_fail_memory(err)
                           : rfs_fail(err, -EINVAL, RFS_AT(map->path, json->at), REMEDY,
                                      "the names cannot be read: %s", json->wrong);
}

static size_t count_stars(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '*';
    return n;
}

/* Adds a key with stars, and its VALUE, which is NULL for names that are left out. */
static int add_pattern(struct name_map *map, uint32_t key, const char *value, struct rfs_error *err)
{
    const char *text = rfs_intern_text(map->from, key);
    const size_t stars = count_stars(text);
    struct name_pattern pattern = {.key = key};

    if (value && count_stars(value) != stars)
        return rfs_fail(err, -EINVAL, RFS_OF(map->path, text), "{\"model.*\": \"*\"}",
                        "its value has not as many * as the name");
    if (stars > STARS_MOST)
        return rfs_fail(err, -EINVAL, RFS_OF(map->path, text), NULL, "the name has more than %d *",
                        STARS_MOST);
    if (map->patterns.n == PATTERNS_MOST)
        return rfs_fail(err, -EINVAL, RFS_OF(map->path, text), "shorter names with a *",
                        "more than %d names have a *", PATTERNS_MOST);
    const uint32_t id = value ? rfs_intern_add(map->made, value, strlen(value)) : RFS_NO_ID;
    if (value && id != RFS_NO_ID)
        pattern.value = rfs_intern_text(map->made, id);
    if (value && !pattern.value)
        return rfs_fail_memory(err);
    RFS_ADD(map->memory, &map->patterns, pattern);
    return 0;
}

/* Reads the value of a key, the name that it is shown by. */
static int read_shown(struct name_map *map, struct rfs_json_read *json, uint32_t from, uint32_t *to,
                      struct rfs_error *err)
{
    const char *key = rfs_intern_text(map->from, from);
    const bool pattern = strchr(key, '*');

    *to = RFS_NO_ID;
    if (rfs_json_read_null(json))
        return pattern ? add_pattern(map, from, NULL, err) : 0;
    if (!rfs_json_read_peek(json, '"'))
        return rfs_fail(err, -EINVAL, RFS_OF(map->path, key), REMEDY,
                        "its value is neither a text nor null");
    if (!rfs_json_read_string(json))
        return fail_json(map, json, err);
    const int rc = check_name(map, key, json->text, err);
    return rc ? rc
           : pattern || count_stars(json->text) > 0
               ? add_pattern(map, from, json->text, err)
               : add_once(map, map->to, key, json->text,
                          "another parameter is shown by the same name", to, err);
}

static int read_pairs(struct name_map *map, struct rfs_json_read *json, struct rfs_error *err)
{
    uint32_t from, to;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        const int rc = check_name(map, json->text, json->text, err)
                ?: add_once(map, map->from, json->text, json->text, "it comes twice", &from,
                            err)
                ?: read_shown(map, json, from, &to, err);
        if (rc)
            return rc;
        RFS_ADD(map->memory, &map->shown, to);
    }
    return rfs_json_read_end(json) ? 0 : fail_json(map, json, err);
}

static int read_map(struct name_map *map, struct rfs_store *store, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    int rc = rfs_store_read_whole(store, map->path, NAMES_FILE_BYTES, &data, &size, err);

    if (rc)
        return rc;
    struct rfs_json_read json = rfs_json_read_begin(data, size);
    rc = read_pairs(map, &json, err);
    rfs_json_read_free(&json);
    if (rc)
        return rc;
    map->met = map->shown.n == 0;
    map->used = rfs_arena_zeros(map->memory, map->shown.n, sizeof *map->used);
    return map->memory->failed ? rfs_fail_memory(err) : 0;
}

/* ---- wrappers -------------------------------------------------------------------------------- */

char *rfs_names_unwrap(const char *name)
{
    /* Put there by torch.compile, checkpoints of activations, FSDP, PEFT and DDP. */
    static const char *const wrappers[] = {"_orig_mod.", "_checkpoint_wrapped_module.",
                                           "_fsdp_wrapped_module.", RFS_PEFT_PREFIX, "module."};
    char *out = strdup(name);
    char *to = out;

    for (const char *at = name; out && *at;) {
        size_t n = 0;
        for (size_t i = 0; n == 0 && i < sizeof wrappers / sizeof *wrappers; i++)
            n = strncmp(at, wrappers[i], strlen(wrappers[i])) == 0 ? strlen(wrappers[i]) : 0;
        at += n;
        if (n > 0)
            continue;
        n = strcspn(at, ".");
        n += at[n] == '.';
        memcpy(to, at, n);
        to += n;
        at += n;
    }
    if (out)
        *to = '\0';
    return out;
}

/*
 * Returns where the name of the adapter is in a tensor's name, or NULL: it is none of an adapter.
 *
 *     q_proj.lora_A.default.weight    lm_head.modules_to_save.default.weight
 */
static char *find_adapter(const char *name)
{
    static const char *const parts[] = {".lora_", ".modules_to_save"};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *part = strstr(name, parts[i]);
        const char *dot = part ? strchr(part + strlen(parts[i]), '.') : NULL;
        if (dot)
            return (char *)dot + 1;
    }
    return NULL;
}

/* Takes the name of the adapter off A and B: lora_A.default.weight becomes lora_A.weight. */
static void drop_adapter_name(char *name)
{
    char *adapter = find_adapter(name);
    char *rest = adapter ? strchr(adapter, '.') : NULL;

    if (rest && (strstr(name, ".lora_A.") || strstr(name, ".lora_B.")))
        memmove(adapter, rest + 1, strlen(rest + 1) + 1);
}

/*
 * Returns the name by which PEFT's files have a tensor of its model's state dict, wherever that is;
 * owned. Empty for weights below the adapter, and for adapters other than CHOSEN, if that is not
 * NULL. NULL when out of memory.
 *
 *     model.base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight
 *     ->    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
 */
static char *adapter_name(const char *name, const char *chosen)
{
    const char *model = strstr(name, RFS_PEFT_PREFIX);
    const char *adapter = find_adapter(name);

    if (!adapter || !model)
        return strdup(model ? "" : name);
    if (chosen && (strncmp(adapter, chosen, strlen(chosen)) != 0 ||
                   (adapter[strlen(chosen)] != '.' && adapter[strlen(chosen)] != '\0')))
        return strdup("");
    RFS_FREE char *bare = rfs_names_unwrap(model);
    char *out = bare ? rfs_text_printf("%s%s", RFS_PEFT_PREFIX, bare) : NULL;
    if (out)
        drop_adapter_name(out);
    return out;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_map(const struct rfs_names_config *config, struct rfs_names *names,
                    struct rfs_error *err)
{
    struct name_map *map = names->map = rfs_arena_zeros(&names->memory, 1, sizeof *map);

    if (!map)
        return rfs_fail_memory(err);
    map->memory = &names->memory;
    map->path = rfs_arena_text(&names->memory, config->names, strlen(config->names));
    map->from = rfs_intern_new();
    map->to = rfs_intern_new();
    map->made = rfs_intern_new();
    if (!map->path || !map->from || !map->to || !map->made)
        return rfs_fail_memory(err);
    map->by = config->adapters                       ? BY_ADAPTER
              : strcmp(config->names, "unwrap") == 0 ? BY_UNWRAP
                                                     : BY_FILE;
    if (config->adapter) {
        map->adapter = rfs_arena_text(&names->memory, config->adapter, strlen(config->adapter));
        if (!map->adapter)
            return rfs_fail_memory(err);
    }
    map->met = map->by != BY_FILE;
    return map->by != BY_FILE ? 0 : read_map(map, config->store, err);
}

int rfs_names_open(const struct rfs_names_config *config, struct rfs_names **out,
                   struct rfs_error *err)
{
    *out = NULL;
    if (!config->names && !config->only && !config->drop && !config->dtype && !config->weights)
        return 0;
    RFS_CLEANUP(names_cleanup) struct rfs_names *names = calloc(1, sizeof *names);
    int rc = names ? 0 : rfs_fail_memory(err);
    if (names)
        names->drop_option = config->drop_option ? config->drop_option : "drop";
    if (!rc && config->names)
        rc = open_map(config, names, err);
    if (!rc)
        rc = parse_choice("only", config->only, &names->memory, &names->only, err)
                 ?: parse_choice(names->drop_option, config->drop, &names->memory, &names->drop,
                                 err);
    if (!rc && config->dtype)
        rc = parse_rules(config->dtype, &names->memory, &names->rules, err);
    if (!rc && config->weights)
        rc = rfs_known_states(&names->states, err);
    if (!rc)
        *out = RFS_STEAL(names);
    return rc;
}

bool rfs_names_leave_out(const struct rfs_names *names)
{
    return names && (names->map || names->only.text || names->drop.text);
}

int rfs_names_digest(const struct rfs_names *names, uint64_t digest[2])
{
    const struct name_map *map = names ? names->map : NULL;

    digest[0] = digest[1] = 0;
    if (!map)
        return 0;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -1;
    XXH3_128bits_reset(state);
    const unsigned char by = (unsigned char)map->by;
    XXH3_128bits_update(state, &by, sizeof by);
    for (uint32_t id = 0; id < map->shown.n; id++) {
        const uint32_t shown = map->shown.data[id];
        const char *from = rfs_intern_text(map->from, id);
        const char *to = shown == RFS_NO_ID ? "" : rfs_intern_text(map->to, shown);
        const uint64_t words[] = {strlen(from), strlen(to), shown == RFS_NO_ID};
        XXH3_128bits_update(state, words, sizeof words);
        XXH3_128bits_update(state, from, strlen(from));
        XXH3_128bits_update(state, to, strlen(to));
    }
    for (size_t i = 0; i < map->patterns.n; i++) {
        const char *value = map->patterns.data[i].value;
        const uint64_t length = value ? strlen(value) : UINT64_MAX;
        XXH3_128bits_update(state, &length, sizeof length);
        XXH3_128bits_update(state, value, value ? strlen(value) : 0);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    digest[0] = hash.low64;
    digest[1] = hash.high64;
    return 0;
}

/* ---- names that patterns make ---------------------------------------------------------------- */

/* Part of a name that a star stands for. */
struct part {
    const char *at;
    size_t n;
};

/*
 * Compares a name with a pattern. If they are alike, gets what the stars stand for: each but the
 * last as little as possible.
 */
static bool take_parts(const char *pattern, const char *name, struct part parts[STARS_MOST])
{
    size_t n = strcspn(pattern, "*");
    const char *end = name + strlen(name);

    if (strncmp(name, pattern, n) != 0)
        return false;
    name += n;
    for (size_t i = 0; *(pattern += n); i++) {
        n = strcspn(++pattern, "*");
        const size_t left = (size_t)(end - name);
        const char *at = n > left                           ? NULL
                         : pattern[n]                       ? memmem(name, left, pattern, n)
                         : memcmp(end - n, pattern, n) == 0 ? end - n
                                                            : NULL;
        if (!at)
            return false;
        parts[i] = (struct part){name, (size_t)(at - name)};
        name = at + n;
    }
    return name == end;
}

/* Fills the stars of a text; malloc'ed, or NULL when out of memory. */
static char *fill(const char *text, const struct part *parts)
{
    char *out;
    size_t size;
    FILE *stream = open_memstream(&out, &size);

    for (; stream && *text; text++)
        if (*text == '*') {
            fwrite(parts->at, 1, parts->n, stream);
            parts++;
        } else {
            fputc(*text, stream);
        }
    if (!stream)
        return NULL;
    const bool bad = ferror(stream) != 0;
    if (fclose(stream) == 0 && !bad)
        return out;
    free(out);
    return NULL;
}

/* Fills the stars of a text, as a name that the map owns. NULL when out of memory. */
static const char *make_name(struct name_map *map, const char *text, const struct part *parts)
{
    RFS_FREE char *name = fill(text, parts);
    const uint32_t id = name ? rfs_intern_add(map->made, name, strlen(name)) : RFS_NO_ID;

    return id == RFS_NO_ID ? NULL : rfs_intern_text(map->made, id);
}

/*
 * Finds the first pattern that a name is like, and what its stars stand for. NULL: there is none.
 */
static const struct name_pattern *find_pattern(const struct name_map *map, const char *name,
                                               struct part parts[STARS_MOST])
{
    for (size_t i = 0; i < map->patterns.n; i++)
        if (take_parts(rfs_intern_text(map->from, map->patterns.data[i].key), name, parts))
            return &map->patterns.data[i];
    return NULL;
}

/* Marks a key that a parameter has. */
static void mark(struct name_map *map, uint32_t key)
{
    atomic_store_explicit(&map->used[key], 1, memory_order_relaxed);
    atomic_store_explicit(&map->met, true, memory_order_relaxed);
}

/*
 * Returns the name that the patterns give. One that can't be made stays, and is remembered for
 * rfs_names_check.
 */
static const char *rename_by_patterns(struct name_map *map, const char *name)
{
    struct part parts[STARS_MOST];
    const struct name_pattern *pattern = find_pattern(map, name, parts);

    if (!pattern)
        return name;
    mark(map, pattern->key);
    if (!pattern->value)
        return NULL;
    const char *made = make_name(map, pattern->value, parts);
    const char *wrong = made ? wrong_with(made) : NO_MEMORY;
    if (!wrong)
        return strcmp(made, name) == 0 ? name : made;
    atomic_store(&map->wrong_of, rfs_intern_text(map->from, pattern->key));
    atomic_store(&map->wrong, wrong);
    return name;
}

bool rfs_names_is_state(const struct rfs_names *names, const char *name)
{
    return names && rfs_known_has(names->states, name);
}

/*
 * Returns the name that is made without a file, as the map owns it; NULL: it is left out. One that
 * can't be made stays.
 */
static const char *rename_without_file(struct name_map *map, const char *name)
{
    RFS_FREE char *bare =
        map->by == BY_ADAPTER ? adapter_name(name, map->adapter) : rfs_names_unwrap(name);

    if (bare && strcmp(bare, name) == 0)
        return name;
    if (bare && !*bare && map->by == BY_ADAPTER)
        return NULL;
    const uint32_t id = bare ? rfs_intern_add(map->made, bare, strlen(bare)) : RFS_NO_ID;
    const char *made = id == RFS_NO_ID ? NULL : rfs_intern_text(map->made, id);
    const char *wrong = made ? wrong_with(made) : NO_MEMORY;
    if (!wrong)
        return made;
    atomic_store(&map->wrong_of, made);
    atomic_store(&map->wrong, wrong);
    return name;
}

const char *rfs_names_renamed(const struct rfs_names *names, const char *name)
{
    struct name_map *map = names ? names->map : NULL;

    if (map && map->by != BY_FILE) /* BY_ADAPTER knows the names of an optimizer's state */
        return rfs_names_is_state(names, name) ? NULL : rename_without_file(map, name);
    const uint32_t id =
        map && !strchr(name, '*') ? rfs_intern_find(map->from, name, strlen(name)) : RFS_NO_ID;

    if (id == RFS_NO_ID)
        return map && map->patterns.n > 0 ? rename_by_patterns(map, name) : name;
    mark(map, id);
    const uint32_t shown = map->shown.data[id];
    return shown == RFS_NO_ID ? NULL : rfs_intern_text(map->to, shown);
}

int rfs_names_check(const struct rfs_names *names, struct rfs_error *err)
{
    struct name_map *map = names ? names->map : NULL;
    const char *wrong = map ? atomic_load(&map->wrong) : NULL;

    if (!wrong)
        return 0;
    return strcmp(wrong, NO_MEMORY) == 0
               ? rfs_fail_memory(err)
               : rfs_fail(err, -EINVAL, RFS_OF(map->path, atomic_load(&map->wrong_of)), REMEDY,
                          "a name that it makes %s", wrong);
}

bool rfs_names_of_adapters(const struct rfs_names *names)
{
    return names && names->map && names->map->by == BY_ADAPTER;
}

bool rfs_names_has(const struct rfs_names *names, const char *renamed)
{
    if (!names || !renamed)
        return renamed;
    const bool dropped = is_chosen(&names->drop, renamed);
    return (!names->only.text || is_chosen(&names->only, renamed)) && !dropped &&
           !rfs_names_is_state(names, renamed);
}

const char *rfs_names_shown(const struct rfs_names *names, const char *name)
{
    const char *renamed = rfs_names_renamed(names, name);

    return rfs_names_has(names, renamed) ? renamed : NULL;
}

void rfs_names_look(const struct rfs_names *names, const char *name)
{
    const char *renamed = rfs_names_renamed(names, name);

    rfs_names_has(names, renamed);
    if (names && names->rules && renamed)
        find_dtype(names->rules, renamed, KEEP);
}

enum rfs_dtype rfs_names_dtype(const struct rfs_names *names, const char *name, enum rfs_dtype from)
{
    return names && names->rules && rfs_dtype_is_float(from) ? find_dtype(names->rules, name, from)
                                                             : from;
}

/* Lists the keys that no parameter has. */
static struct rfs_text_names list_unused(const struct name_map *map)
{
    struct rfs_text_names unused = {.n = 0};

    for (uint32_t id = 0; map && id < map->shown.n; id++)
        if (!atomic_load_explicit(&map->used[id], memory_order_relaxed))
            rfs_text_add_name(&unused, NAMES_TOLD, rfs_intern_text(map->from, id));
    return unused;
}

static bool tell_unmapped(const struct rfs_names *names, char *out, size_t cap)
{
    const struct rfs_text_names unused = list_unused(names ? names->map : NULL);

    if (unused.n > 0)
        snprintf(out, cap, "%s: %zu of its names are not parameters of the source: %s",
                 names->map->path, unused.n, unused.text);
    return unused.n > 0;
}

static bool tell_unlike(const struct choice *choice, const char *option, const char *why, char *out,
                        size_t cap)
{
    struct rfs_text_names unused = {.n = 0};

    for (size_t i = 0; (i = find_unused(choice, i)) < choice->patterns.n; i++)
        rfs_text_add_name(&unused, NAMES_TOLD, choice->patterns.data[i]);
    if (unused.n > 0)
        snprintf(out, cap, "option %s: no name %s %s", option, why, unused.text);
    return unused.n > 0;
}

bool rfs_names_unused(const struct rfs_names *names, enum rfs_names_part part, char *out,
                      size_t cap)
{
    switch (part) {
    case RFS_NAMES_MAP:
        return tell_unmapped(names, out, cap);
    case RFS_NAMES_DROP:
        return names && tell_unlike(&names->drop, names->drop_option, "is like", out, cap);
    case RFS_NAMES_DTYPE:
        break;
    }
    return names && names->rules &&
           tell_unlike(&names->rules->names, "dtype", "is left for", out, cap);
}

int rfs_names_fail_unmet(const struct rfs_names *names, struct rfs_error *err)
{
    const struct rfs_text_names unused = list_unused(names->map);

    return rfs_fail(err, -EINVAL, RFS_IN(names->map->path),
                    "a map from the source's names to those shown",
                    "none of its names is a parameter of the source: %s", unused.text);
}

const char *rfs_names_unmet(const struct rfs_names *names, const char **option)
{
    *option = "names";
    if (!names)
        return NULL;
    if (names->map && !atomic_load_explicit(&names->map->met, memory_order_relaxed))
        return names->map->path;
    const struct choice *only = &names->only;
    const size_t i = find_unused(only, 0);
    *option = "only";
    if (i < only->patterns.n)
        return only->patterns.data[i];
    *option = names->drop_option;
    const char *undropped = none_used(&names->drop);
    if (undropped)
        return undropped;
    *option = "dtype";
    return names->rules ? none_used(&names->rules->names) : NULL;
}
