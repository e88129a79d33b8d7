/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/hf_config.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_tree.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/vec.h"

#include <stdatomic.h>

#define MOST_BYTES ((size_t)16 << 20)
#define TREE_BYTES ((size_t)64 << 20)
#define MOST_LEVELS 8 /* nesting of objects */
#define REMEDY "the config.json of the model, as HuggingFace has it"

/* What a config is compared with. */
struct against {
    struct rfs_hf_config *own;
    _Atomic(const struct rfs_hf_value *) given, had; /* the first values that differ; or NULL */
};

struct rfs_hf_config {
    struct rfs_arena arena; /* that of all texts and lists */
    const char *name;
    RFS_VEC(struct rfs_hf_value) values; /* by key, each once */
    struct rfs_hf_cuts quantization;
    struct against *against; /* owned; or NULL */
};

void rfs_hf_config_free(struct rfs_hf_config *config)
{
    if (!config)
        return;
    if (config->against)
        rfs_hf_config_free(config->against->own);
    free(config->against);
    rfs_arena_free(&config->arena);
    free(config);
}

RFS_CLEANUP_OF(config_cleanup, struct rfs_hf_config *, rfs_hf_config_free)

RFS_CLEANUP_OF(free_tree, cJSON *, cJSON_Delete)

/* ---- values ---------------------------------------------------------------------------------- */

/* Joins the key of a member to those of the objects around it. */
static const char *join_key(struct rfs_hf_config *config, const char *prefix, const char *key)
{
    const size_t before = strlen(prefix), length = strlen(key);
    char *joined = rfs_arena_alloc(&config->arena, before + length + 2);

    if (!joined)
        return NULL;
    memcpy(joined, prefix, before);
    if (before > 0)
        joined[before] = '.';
    memcpy(joined + before + (before > 0), key, length + 1);
    return joined;
}

/* Reads a value that is no object, no list and no null. */
static void read_plain(struct rfs_hf_config *config, const cJSON *item, struct rfs_hf_value *value)
{
    if (cJSON_IsString(item)) {
        value->kind = RFS_HF_TEXT;
        value->n = strlen(item->valuestring);
        value->text = rfs_arena_text(&config->arena, item->valuestring, value->n);
    } else if (cJSON_IsBool(item) || rfs_json_tree_integer(item, &value->number)) {
        value->kind = RFS_HF_NUMBER;
    }
    if (cJSON_IsNumber(item))
        value->real = item->valuedouble;
    if (cJSON_IsTrue(item))
        value->number = 1;
}

static void read_list(struct rfs_hf_config *config, const cJSON *list, struct rfs_hf_value *value)
{
    struct rfs_hf_value *entries = NULL;
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, list) n++;
    if (n > 0 && !(entries = rfs_arena_alloc(&config->arena, n * sizeof *entries)))
        return;
    value->kind = RFS_HF_LIST;
    value->list = entries;
    cJSON_ArrayForEach(item, list)
    {
        struct rfs_hf_value *entry = &entries[value->n++];
        *entry = (struct rfs_hf_value){.kind = RFS_HF_OTHER};
        read_plain(config, item, entry);
    }
}

/*
 * Adds the members of an object, itself and nulls included, and of objects in it down to
 * MOST_LEVELS.
 */
static void add_object(struct rfs_hf_config *config, const cJSON *object, const char *prefix,
                       unsigned level)
{
    const cJSON *member;

    cJSON_ArrayForEach(member, object)
    {
        struct rfs_hf_value value = {.key = join_key(config, prefix, member->string),
                                     .kind = RFS_HF_OTHER};
        if (cJSON_IsObject(member) || cJSON_IsNull(member))
            value.kind = RFS_HF_NOTHING;
        else if (cJSON_IsArray(member))
            read_list(config, member, &value);
        else
            read_plain(config, member, &value);
        RFS_ADD(&config->arena, &config->values, value);
        if (!config->arena.failed && cJSON_IsObject(member) && level < MOST_LEVELS)
            add_object(config, member, value.key, level + 1);
    }
}

/* ---- what says how it is quantized ----------------------------------------------------------- */

static void add_cut(struct rfs_hf_config *config, size_t from, size_t to)
{
    struct rfs_hf_cuts *cuts = &config->quantization;

    if (cuts->n > 0 && cuts->cut[cuts->n - 1].to == from) {
        cuts->cut[cuts->n - 1].to = to;
        return;
    }
    if (cuts->n == RFS_HF_CUTS) /* members that come twice; refused soon */
        return;
    cuts->cut[cuts->n].from = from;
    cuts->cut[cuts->n++].to = to;
}

/* Finds the members in the object at [BEGIN, BEGIN + N) of the text, the whole one if OUTER. */
static void find_quantization(struct rfs_hf_config *config, const char *text, size_t begin,
                              size_t n, bool outer)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(text + begin, n);
    struct rfs_json_part part;
    bool first = true;
    bool kept = false;
    size_t before = rfs_json_read_peek(&json, '{') ? json.at + 1 : 0;

    while (rfs_json_read_member(&json, &first)) {
        const bool found = rfs_json_read_is(&json, "quantization_config");
        const bool other = outer && (rfs_json_read_is(&json, "compression_config") ||
                                     rfs_json_read_is(&json, "quantization"));
        const bool inner = outer && rfs_json_read_is(&json, "text_config");
        if (!rfs_json_read_part(&json, &part))
            break;
        size_t end = json.at;
        if ((found || other) && text[begin + part.at] != 'n') { /* null says nothing */
            /* from where the member before it ends, or from the brace */
            if (!kept && rfs_json_read_peek(&json, ','))
                end = json.at + 1;
            add_cut(config, begin + before, begin + end);
        } else {
            kept = true;
            if (inner && text[begin + part.at] == '{')
                find_quantization(config, text, begin + part.at, part.n, false);
        }
        before = end;
    }
    config->arena.failed |= json.no_memory;
}

/* ---------------------------------------------------------------------------------------------- */

RFS_COMPARE(by_key, struct rfs_hf_value, x, y, strcmp(x->key, y->key))

static bool are_equal(const struct rfs_hf_value *a, const struct rfs_hf_value *b)
{
    return a->kind == b->kind && ((a->kind == RFS_HF_NUMBER && a->number == b->number) ||
                                  (a->kind == RFS_HF_TEXT && strcmp(a->text, b->text) == 0));
}

/*
 * Sorts the values, and leaves out nulls and objects. Programs differ in which value of a key
 * counts that is there twice, so these must be equal.
 */
static int sort_values(struct rfs_hf_config *config, struct rfs_error *err)
{
    struct rfs_hf_value *values = config->values.data;
    size_t n = 0;

    RFS_SORT_ALL(&config->values, by_key);
    for (size_t i = 0; i < config->values.n; i++) {
        const bool again = i > 0 && strcmp(values[i].key, values[i - 1].key) == 0;
        if (again && !are_equal(&values[i], &values[i - 1]))
            return rfs_fail(err, -EINVAL, RFS_IN(config->name), "one of them only",
                            "has the key '%s' twice, with different values", values[i].key);
    }
    for (size_t i = 0; i < config->values.n; i++)
        if (values[i].kind != RFS_HF_NOTHING)
            values[n++] = values[i];
    config->values.n = n;
    return 0;
}

int rfs_hf_config_read(const char *name, const char *text, size_t n, struct rfs_hf_config **out,
                       struct rfs_error *err)
{
    RFS_CLEANUP(config_cleanup) struct rfs_hf_config *config = calloc(1, sizeof *config);
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;

    *out = NULL;
    if (!config)
        return rfs_fail_memory(err);
    config->quantization.bytes = n;
    config->name = rfs_arena_text(&config->arena, name, strlen(name));
    const int rc = rfs_json_tree_parse(name, text, n, TREE_BYTES, REMEDY, &tree, err);
    if (rc)
        return rc;
    if (!cJSON_IsObject(tree))
        return rfs_fail(err, -EINVAL, RFS_AT(name, 0), REMEDY, "is not a JSON object");
    add_object(config, tree, "", 0);
    find_quantization(config, text, 0, n, true);
    if (config->arena.failed)
        return rfs_fail_memory(err);
    const int sorted = sort_values(config, err);
    if (sorted == 0)
        *out = RFS_STEAL(config);
    return sorted;
}

int rfs_hf_config_open(struct rfs_store *store, const char *path, struct rfs_hf_config **out,
                       struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    *out = NULL;
    const int rc = rfs_store_read_whole(store, path, MOST_BYTES, &text, &n, err);
    if (rc == -EISDIR) {
        RFS_FREE char *inside = rfs_path_join(path, "config.json");
        return rfs_fail(err, rc, RFS_IN(path), inside, "is a folder");
    }
    return rc ? rc : rfs_hf_config_read(path, text, n, out, err);
}

bool rfs_hf_config_quantization(const struct rfs_hf_config *config, struct rfs_hf_cuts *cuts)
{
    *cuts = config->quantization;
    return cuts->n > 0;
}

const char *rfs_hf_config_name(const struct rfs_hf_config *config)
{
    return config->name;
}

static const struct rfs_hf_value *find(const struct rfs_hf_config *config, const char *key)
{
    const struct rfs_hf_value *values = config->values.data;
    const size_t at = RFS_BISECT(i, config->values.n, strcmp(values[i].key, key) >= 0);

    return at < config->values.n && strcmp(values[at].key, key) == 0 ? &values[at] : NULL;
}

/* ---- two configs ----------------------------------------------------------------------------- */

/* Finds what a source has itself for a key, also by the name in params.json of Meta. */
static const struct rfs_hf_value *find_own(const struct rfs_hf_config *own, const char *key)
{
    static const char *const meta[][2] = {
        {"num_attention_heads", "n_heads"},
        {"num_key_value_heads", "n_kv_heads"},
    };
    static const char text[] = "text_config.";
    const struct rfs_hf_value *value = find(own, key);

    if (!value && strncmp(key, text, sizeof text - 1) == 0)
        value = find(own, key + sizeof text - 1);
    for (size_t i = 0; i < sizeof meta / sizeof *meta && !value; i++)
        if (strcmp(meta[i][0], key) == 0)
            value = find(own, meta[i][1]);
    return value;
}

/* Says whether numbers, or lists of them, differ. -1 is no count. */
static bool differs(const struct rfs_hf_value *a, const struct rfs_hf_value *b)
{
    bool other = a->kind == RFS_HF_LIST && b->kind == RFS_HF_LIST && a->n != b->n;

    if (a->kind == RFS_HF_NUMBER && b->kind == RFS_HF_NUMBER)
        return a->number != b->number && a->number >= 0 && b->number >= 0;
    for (size_t i = 0; !other && a->kind == RFS_HF_LIST && b->kind == RFS_HF_LIST && i < a->n; i++)
        other = differs(&a->list[i], &b->list[i]);
    return other;
}

/*
 * Compares counts and widths of heads and groups, which the tensors' shapes don't prove. A user may
 * have a reason to give another model_type or tie_word_embeddings.
 */
static void compare(struct against *against, const char *key, const struct rfs_hf_value *given)
{
    const bool counts = strstr(key, "head") || strstr(key, "group");
    const struct rfs_hf_value *had = counts ? find_own(against->own, key) : NULL;

    if (had && differs(given, had) && !atomic_load(&against->had)) {
        atomic_store(&against->given, given);
        atomic_store(&against->had, had);
    }
}

int rfs_hf_config_compare(struct rfs_hf_config *config, struct rfs_hf_config *own,
                          struct rfs_error *err)
{
    config->against = calloc(1, sizeof *config->against);
    if (!config->against) {
        rfs_hf_config_free(own);
        return rfs_fail_memory(err);
    }
    config->against->own = own;
    return 0;
}

int rfs_hf_config_check(const struct rfs_hf_config *config, struct rfs_error *err)
{
    const struct against *against = config->against;
    const struct rfs_hf_value *had = against ? atomic_load(&against->had) : NULL;
    const struct rfs_hf_value *given = had ? atomic_load(&against->given) : NULL;
    char values[96] = "";

    if (!had)
        return 0;
    if (had->kind == RFS_HF_NUMBER)
        snprintf(values, sizeof values, ": %lld and %lld", (long long)given->number,
                 (long long)had->number);
    return rfs_fail(err, -EINVAL, RFS_IN(config->name),
                    "the config.json of this model; or a source without the file that contradicts",
                    "'%s' is another than in %s, which the source has itself%s", given->key,
                    against->own->name, values);
}

const struct rfs_hf_value *rfs_hf_config_find(const struct rfs_hf_config *config, const char *key)
{
    const struct rfs_hf_value *value = find(config, key);

    if (value && config->against)
        compare(config->against, key, value);
    return value;
}

const struct rfs_hf_value *rfs_hf_config_at(const struct rfs_hf_config *config, size_t i)
{
    return i < config->values.n ? &config->values.data[i] : NULL;
}
