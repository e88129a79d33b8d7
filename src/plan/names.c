/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How outputs are named and typed. The file of names= leads from names in the source to those
 * shown:
 *
 *     {"model.embed.weight": "embedding_table", "old.scale": null, …}        null: left out
 *
 * as the name_map of ckpt_to_safetensors and safetensors_to_ckpt of MindSpore 2.10 has it (the
 * name_map of load_distributed_checkpoint goes the other way). Other parameters keep their names.
 * When a key is given twice, Python would take the last; here it is refused, and so are two
 * parameters that are shown by one name.
 *
 * The rules of dtype=:
 *
 *     RULES    RULE [ ; RULE ] …           spaces around a rule and around its = are dropped
 *     RULE     PATTERN = TO | TO           the one without a pattern is for all that no pattern is like
 *     TO       float16 | bfloat16 | float32 | float64 | keep          in any case; or F16, BF16, F32, F64
 *
 * PATTERN is as base/glob.h says, and may hold a = itself: the last one counts. The first pattern
 * that a name is like counts.
 */
#include "plan/names.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"

#include <stdatomic.h>
#include <strings.h>
#include <xxhash.h>

/* ---- dtype= ---------------------------------------------------------------------------------- */

#define DTYPE_REMEDY "dtype=bfloat16, or dtype=bfloat16;*.norm.*=float32;lm_head.*=keep"
#define KEEP RFS_DTYPE_COUNT

struct dtype_rule {
    const char *pattern; /* in text */
    enum rfs_dtype to;   /* or KEEP */
};

struct dtype_rules {
    char *text; /* owned; cut into rules */
    RFS_VEC(struct dtype_rule) rules;
    bool has_other; /* a rule without a pattern was there: */
    enum rfs_dtype other;
};

static void free_rules(struct dtype_rules *rules)
{
    if (!rules)
        return;
    free(rules->rules.data);
    free(rules->text);
    free(rules);
}

RFS_CLEANUP_OF(rules_cleanup, struct dtype_rules *, free_rules)

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

static int add_rule(struct dtype_rules *rules, char *text, struct rfs_error *err)
{
    char *equals = strrchr(text, '=');
    struct dtype_rule rule = {.pattern = NULL};

    if (equals) {
        *equals = '\0';
        rule.pattern = trim(text);
    }
    const char *to = trim(equals ? equals + 1 : text);
    if (!parse_target(to, &rule.to))
        return rfs_fail_usage(
            err, DTYPE_REMEDY,
            "option dtype: '%s' is not float16, bfloat16, float32, float64 or keep", to);
    if (rule.pattern && !*rule.pattern)
        return rfs_fail_usage(err, DTYPE_REMEDY,
                              "option dtype: a rule has no pattern before its =");
    if (rule.pattern)
        return RFS_PUSH(&rules->rules, rule) ? 0 : rfs_fail_memory(err);
    if (rules->has_other)
        return rfs_fail_usage(err, DTYPE_REMEDY, "option dtype: two rules are without a pattern");
    rules->has_other = true;
    rules->other = rule.to;
    return 0;
}

/* Parses rules. 0 with *out owned, or -EINVAL (a mistake of usage) or -ENOMEM with *err filled. */
static int parse_rules(const char *text, struct dtype_rules **out, struct rfs_error *err)
{
    RFS_CLEANUP(rules_cleanup) struct dtype_rules *rules = calloc(1, sizeof *rules);

    *out = NULL;
    if (!rules || !(rules->text = strdup(text)))
        return rfs_fail_memory(err);
    for (char *rest = rules->text; rest;) {
        char *rule = rest;
        rest = strchr(rule, ';');
        if (rest)
            *rest++ = '\0';
        const int rc = add_rule(rules, trim(rule), err);
        if (rc)
            return rc;
    }
    *out = RFS_STEAL(rules);
    return 0;
}

/* Returns the dtype of a parameter of that name: FROM where no rule says otherwise. */
static enum rfs_dtype find_dtype(const struct dtype_rules *rules, const char *name,
                                 enum rfs_dtype from)
{
    enum rfs_dtype to = rules->has_other ? rules->other : KEEP;

    for (size_t i = 0; i < rules->rules.n; i++)
        if (rfs_glob_match(rules->rules.data[i].pattern, name)) {
            to = rules->rules.data[i].to;
            break;
        }
    return to == KEEP ? from : to;
}

/* ---- names= ---------------------------------------------------------------------------------- */

#define NAMES_FILE_BYTES ((size_t)64 << 20) /* a hundred thousand names and more */
#define NAME_BYTES ((size_t)64 << 10)
#define REMEDY                                                                                     \
    "a JSON object such as {\"name in the source\": \"name shown\", \"name left out\": null}"
#define NAMES_TOLD 5

/* The map of names=. */
struct name_map {
    char *path;               /* owned */
    struct rfs_intern *from;  /* names in the source */
    struct rfs_intern *to;    /* names shown */
    RFS_VEC(uint32_t) shown;  /* by id in from: id in to, or RFS_NO_ID for one that is left out */
    RFS_VEC(uint32_t) source; /* by id in to: id in from */
    _Atomic unsigned char *used; /* by id in from: a parameter has that name */
};

struct rfs_names {
    struct name_map *map;      /* NULL: parameters keep their names */
    struct dtype_rules *rules; /* NULL: dtypes as they are */
};

static void free_map(struct name_map *map)
{
    if (!map)
        return;
    rfs_intern_free(map->from);
    rfs_intern_free(map->to);
    free(map->shown.data);
    free(map->source.data);
    free(map->used);
    free(map->path);
    free(map);
}

void rfs_names_free(struct rfs_names *names)
{
    if (!names)
        return;
    free_map(names->map);
    free_rules(names->rules);
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

static int check_name(const struct name_map *map, const char *key, const char *name,
                      struct rfs_error *err)
{
    const char *wrong = !*name                          ? "is empty"
                        : strlen(name) > NAME_BYTES     ? "has more than 64 KiB"
                        : has_control(name)             ? "has a control character"
                        : !strcmp(name, "__metadata__") ? "is __metadata__, which safetensors "
                                                          "keeps for itself"
                                                        : NULL;
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

/* Reads the value of KEY, the name that it is shown by. */
static int read_shown(struct name_map *map, struct rfs_json_read *json, const char *key,
                      uint32_t *to, struct rfs_error *err)
{
    *to = RFS_NO_ID;
    if (rfs_json_read_null(json))
        return 0;
    if (!rfs_json_read_peek(json, '"'))
        return rfs_fail(err, -EINVAL, RFS_OF(map->path, key), REMEDY,
                        "its value is neither a text nor null");
    if (!rfs_json_read_string(json))
        return fail_json(map, json, err);
    const int rc = check_name(map, key, json->text, err);
    return rc ? rc
              : add_once(map, map->to, key, json->text,
                         "another parameter is shown by the same name", to, err);
}

static int read_pairs(struct name_map *map, struct rfs_json_read *json, struct rfs_error *err)
{
    uint32_t from, to;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        int rc = check_name(map, json->text, json->text, err)
                ?: add_once(map, map->from, json->text, json->text, "it comes twice", &from,
                            err)
                ?: read_shown(map, json, rfs_intern_text(map->from, from), &to, err);
        if (!rc &&
            (!RFS_PUSH(&map->shown, to) || (to != RFS_NO_ID && !RFS_PUSH(&map->source, from))))
            rc = rfs_fail_memory(err);
        if (rc)
            return rc;
    }
    return rfs_json_read_end(json) ? 0 : fail_json(map, json, err);
}

static int read_map(struct name_map *map, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    int rc = rfs_store_read_whole(map->path, NAMES_FILE_BYTES, &data, &size, err);

    if (rc)
        return rc;
    struct rfs_json_read json = rfs_json_read_begin(data, size);
    rc = read_pairs(map, &json, err);
    rfs_json_read_free(&json);
    if (rc)
        return rc;
    map->used = calloc(map->shown.n + 1, sizeof *map->used);
    return map->used ? 0 : rfs_fail_memory(err);
}

static int open_map(const char *path, struct name_map **out, struct rfs_error *err)
{
    struct name_map *map = *out = calloc(1, sizeof *map);

    if (!map || !(map->path = strdup(path)) || !(map->from = rfs_intern_new()) ||
        !(map->to = rfs_intern_new()))
        return rfs_fail_memory(err);
    return read_map(map, err);
}

int rfs_names_open(const struct rfs_names_config *config, struct rfs_names **out,
                   struct rfs_error *err)
{
    *out = NULL;
    if (!config->names && !config->dtype)
        return 0;
    RFS_CLEANUP(names_cleanup) struct rfs_names *names = calloc(1, sizeof *names);
    int rc = names ? 0 : rfs_fail_memory(err);
    if (!rc && config->names)
        rc = open_map(config->names, &names->map, err);
    if (!rc && config->dtype)
        rc = parse_rules(config->dtype, &names->rules, err);
    if (!rc)
        *out = RFS_STEAL(names);
    return rc;
}

bool rfs_names_has_map(const struct rfs_names *names)
{
    return names && names->map;
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
    for (uint32_t id = 0; id < map->shown.n; id++) {
        const uint32_t shown = map->shown.data[id];
        const char *from = rfs_intern_text(map->from, id);
        const char *to = shown == RFS_NO_ID ? "" : rfs_intern_text(map->to, shown);
        const uint64_t words[] = {strlen(from), strlen(to), shown == RFS_NO_ID};
        XXH3_128bits_update(state, words, sizeof words);
        XXH3_128bits_update(state, from, strlen(from));
        XXH3_128bits_update(state, to, strlen(to));
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    digest[0] = hash.low64;
    digest[1] = hash.high64;
    return 0;
}

const char *rfs_names_shown(const struct rfs_names *names, const char *name)
{
    const struct name_map *map = names ? names->map : NULL;
    const uint32_t id = map ? rfs_intern_find(map->from, name, strlen(name)) : RFS_NO_ID;

    if (id == RFS_NO_ID)
        return name;
    atomic_store_explicit(&map->used[id], 1, memory_order_relaxed);
    const uint32_t shown = map->shown.data[id];
    return shown == RFS_NO_ID ? NULL : rfs_intern_text(map->to, shown);
}

const char *rfs_names_source(const struct rfs_names *names, const char *name)
{
    const struct name_map *map = names ? names->map : NULL;
    const uint32_t id = map ? rfs_intern_find(map->to, name, strlen(name)) : RFS_NO_ID;

    return id == RFS_NO_ID ? name : rfs_intern_text(map->from, map->source.data[id]);
}

enum rfs_dtype rfs_names_dtype(const struct rfs_names *names, const char *name, enum rfs_dtype from)
{
    return names && names->rules && rfs_dtype_is_float(from) ? find_dtype(names->rules, name, from)
                                                             : from;
}

bool rfs_names_unused(const struct rfs_names *names, char *out, size_t cap)
{
    const struct name_map *map = names ? names->map : NULL;
    struct rfs_text_names unused = {.n = 0};

    for (uint32_t id = 0; map && id < map->shown.n; id++)
        if (!atomic_load_explicit(&map->used[id], memory_order_relaxed))
            rfs_text_add_name(&unused, NAMES_TOLD, rfs_intern_text(map->from, id));
    if (unused.n > 0 && unused.n == map->shown.n)
        snprintf(out, cap,
                 "%s: none of its names is a parameter of the source; they go from the source's "
                 "names to those shown: %s",
                 map->path, unused.text);
    else if (unused.n > 0)
        snprintf(out, cap, "%s: %zu of its names are not parameters of the source: %s", map->path,
                 unused.n, unused.text);
    return unused.n > 0;
}
