/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/hf_config.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_tree.h"
#include "base/order.h"
#include "base/store.h"
#include "base/vec.h"

#define MOST_BYTES ((size_t)16 << 20)
#define TREE_BYTES ((size_t)64 << 20)
#define MOST_LEVELS 8 /* nesting of objects */
#define REMEDY "the config.json of the model, as HuggingFace has it"

struct rfs_hf_config {
    struct rfs_arena arena; /* owns all texts */
    const char *name;
    RFS_VEC(struct rfs_hf_value) values; /* by key; of equal ones the last counts */
    size_t bytes;                        /* length of the text */
    struct {                             /* the member quantization_config, with a comma */
        size_t from, to;
        unsigned n; /* how many there are */
    } quantization;
};

void rfs_hf_config_free(struct rfs_hf_config *config)
{
    if (!config)
        return;
    free(config->values.data);
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

static bool add_text(struct rfs_hf_config *config, const char *text, struct rfs_hf_value *value)
{
    value->kind = RFS_HF_TEXT;
    value->text = rfs_arena_text(&config->arena, text, strlen(text));
    return value->text != NULL;
}

/* Adds the members of an object, and of objects in it down to MOST_LEVELS. */
static bool add_object(struct rfs_hf_config *config, const cJSON *object, const char *prefix,
                       unsigned level)
{
    const cJSON *member;
    bool ok = true;

    cJSON_ArrayForEach(member, object)
    {
        struct rfs_hf_value value = {.key = join_key(config, prefix, member->string),
                                     .kind = RFS_HF_OTHER};
        ok = value.key != NULL;
        if (ok && cJSON_IsObject(member)) {
            ok = level == MOST_LEVELS || add_object(config, member, value.key, level + 1);
        } else if (ok && !cJSON_IsNull(member)) {
            if (cJSON_IsString(member))
                ok = add_text(config, member->valuestring, &value);
            else if (cJSON_IsBool(member) || rfs_json_tree_integer(member, &value.number))
                value.kind = RFS_HF_NUMBER;
            if (cJSON_IsTrue(member))
                value.number = 1;
            ok = ok && RFS_PUSH(&config->values, value);
        }
        if (!ok)
            break;
    }
    return ok;
}

/* ---- where quantization_config is ------------------------------------------------------------ */

/* Finds the member in a text that is an object. False without memory. */
static bool find_quantization(struct rfs_hf_config *config, const char *text, size_t n)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);
    struct rfs_json_part part;
    bool first = true;
    size_t before = rfs_json_read_peek(&json, '{') ? json.at + 1 : 0;

    for (bool is_first = true; rfs_json_read_member(&json, &first); is_first = false) {
        const bool found = rfs_json_read_is(&json, "quantization_config");
        if (!rfs_json_read_part(&json, &part))
            break;
        const size_t end = json.at;
        if (found) {
            config->quantization.from = before; /* where the member before it ends, or the brace */
            config->quantization.to =
                is_first && rfs_json_read_peek(&json, ',') ? json.at + 1 : end;
            config->quantization.n++;
        }
        before = end;
    }
    return !json.no_memory;
}

/* ---------------------------------------------------------------------------------------------- */

RFS_COMPARE(by_key, struct rfs_hf_value, x, y, strcmp(x->key, y->key))

int rfs_hf_config_read(const char *name, const char *text, size_t n, struct rfs_hf_config **out,
                       struct rfs_error *err)
{
    RFS_CLEANUP(config_cleanup) struct rfs_hf_config *config = calloc(1, sizeof *config);
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;

    *out = NULL;
    if (!config)
        return rfs_fail_memory(err);
    config->bytes = n;
    config->name = rfs_arena_text(&config->arena, name, strlen(name));
    const int rc = rfs_json_tree_parse(name, text, n, TREE_BYTES, REMEDY, &tree, err);
    if (rc)
        return rc;
    if (!cJSON_IsObject(tree))
        return rfs_fail(err, -EINVAL, RFS_AT(name, 0), REMEDY, "is not a JSON object");
    if (!config->name || !add_object(config, tree, "", 0) || !find_quantization(config, text, n))
        return rfs_fail_memory(err);
    RFS_SORT_ALL(&config->values, by_key);
    *out = RFS_STEAL(config);
    return 0;
}

int rfs_hf_config_open(const char *path, struct rfs_hf_config **out, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    *out = NULL;
    return rfs_store_read_whole(path, MOST_BYTES, &text, &n, err)
               ?: rfs_hf_config_read(path, text, n, out, err);
}

bool rfs_hf_config_quantization(const struct rfs_hf_config *config, size_t *from, size_t *to,
                                size_t *bytes)
{
    *from = config->quantization.from;
    *to = config->quantization.to;
    *bytes = config->bytes;
    return config->quantization.n == 1;
}

const char *rfs_hf_config_name(const struct rfs_hf_config *config)
{
    return config->name;
}

const struct rfs_hf_value *rfs_hf_config_find(const struct rfs_hf_config *config, const char *key)
{
    const struct rfs_hf_value *values = config->values.data;
    const size_t at = RFS_BISECT(i, config->values.n, strcmp(values[i].key, key) >= 0);

    return at < config->values.n && strcmp(values[at].key, key) == 0 ? &values[at] : NULL;
}
