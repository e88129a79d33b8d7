/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of names=, from names in the source to those shown:
 *
 *     {"model.embed.weight": "embedding_table", "old.scale": null, …}        null: left out
 *
 * as the name_map of ckpt_to_safetensors and safetensors_to_ckpt of MindSpore 2.10 has it (the
 * name_map of load_distributed_checkpoint goes the other way). Other parameters keep their names.
 * Of keys given twice Python would take the last; here they are refused, like two that are shown by
 * one name.
 */
#include "plan/output_map.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/json_read.h"
#include "base/read_whole.h"
#include "base/vec.h"
#include "plan/dtype_rules.h"

#include <stdatomic.h>
#include <xxhash.h>

#define NAMES_FILE_BYTES ((size_t)64 << 20) /* a hundred thousand names and more */
#define NAME_BYTES ((size_t)64 << 10)
#define REMEDY                                                                                     \
    "a JSON object such as {\"name in the source\": \"name shown\", \"name left out\": null}"
#define NAMES_TOLD 5

struct names {
    char *path;               /* owned */
    struct rfs_intern *from;  /* names in the source */
    struct rfs_intern *to;    /* names shown */
    RFS_VEC(uint32_t) shown;  /* by id in from: id in to, or RFS_NO_ID for one that is left out */
    RFS_VEC(uint32_t) source; /* by id in to: id in from */
    _Atomic unsigned char *used; /* by id in from: a parameter has that name */
    atomic_bool reported;        /* which are not used */
};

struct rfs_output_map {
    struct names *names;           /* NULL: all are shown by their own */
    struct rfs_dtype_rules *rules; /* NULL: dtypes as they are */
};

static void free_names(struct names *names)
{
    if (!names)
        return;
    rfs_intern_free(names->from);
    rfs_intern_free(names->to);
    free(names->shown.data);
    free(names->source.data);
    free(names->used);
    free(names->path);
    free(names);
}

void rfs_output_map_free(struct rfs_output_map *output_map)
{
    if (!output_map)
        return;
    free_names(output_map->names);
    rfs_dtype_rules_free(output_map->rules);
    free(output_map);
}

RFS_CLEANUP_OF(end_output_map, struct rfs_output_map *, rfs_output_map_free)

static bool has_control(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            return true;
    return false;
}

static int check_name(const struct names *names, const char *key, const char *name,
                      struct rfs_error *err)
{
    const char *wrong = !*name                          ? "is empty"
                        : strlen(name) > NAME_BYTES     ? "has more than 64 KiB"
                        : has_control(name)             ? "has a control character"
                        : !strcmp(name, "__metadata__") ? "is __metadata__, which safetensors "
                                                          "keeps for itself"
                                                        : NULL;
    return wrong ? rfs_fail(err, -EINVAL, RFS_OF(names->path, key), REMEDY, "the name %s", wrong)
                 : 0;
}

/* Adds a key that must not be in the table yet. */
static int add_once(const struct names *names, struct rfs_intern *table, const char *key,
                    const char *name, const char *wrong, uint32_t *id, struct rfs_error *err)
{
    const uint32_t before = rfs_intern_count(table);

    *id = rfs_intern_add(table, name, strlen(name));
    if (*id == RFS_NO_ID)
        return rfs_fail_memory(err);
    return *id == before ? 0
                         : rfs_fail(err, -EINVAL, RFS_OF(names->path, key), "leave one of them out",
                                    "%s", wrong);
}

static int fail_json(const struct names *names, const struct rfs_json_read *json,
                     struct rfs_error *err)
{
    return json->no_memory ? rfs_fail_memory(err)
                           : rfs_fail(err, -EINVAL, RFS_AT(names->path, json->at), REMEDY,
                                      "the names cannot be read: %s", json->wrong);
}

/* The value of KEY: the name that it is shown as. */
static int read_shown(struct names *names, struct rfs_json_read *json, const char *key,
                      uint32_t *to, struct rfs_error *err)
{
    *to = RFS_NO_ID;
    if (rfs_json_read_null(json))
        return 0;
    if (!rfs_json_read_peek(json, '"'))
        return rfs_fail(err, -EINVAL, RFS_OF(names->path, key), REMEDY,
                        "its value is neither a text nor null");
    if (!rfs_json_read_string(json))
        return fail_json(names, json, err);
    const int rc = check_name(names, key, json->text, err);
    return rc ? rc
              : add_once(names, names->to, key, json->text,
                         "another parameter is shown by the same name", to, err);
}

static int read_pairs(struct names *names, struct rfs_json_read *json, struct rfs_error *err)
{
    uint32_t from, to;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        int rc = check_name(names, json->text, json->text, err)
                ?: add_once(names, names->from, json->text, json->text, "it comes twice", &from,
                            err)
                ?: read_shown(names, json, rfs_intern_text(names->from, from), &to, err);
        if (!rc &&
            (!RFS_PUSH(&names->shown, to) || (to != RFS_NO_ID && !RFS_PUSH(&names->source, from))))
            rc = rfs_fail_memory(err);
        if (rc)
            return rc;
    }
    return rfs_json_read_end(json) ? 0 : fail_json(names, json, err);
}

static int read_names(struct names *names, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    int rc = rfs_read_whole(names->path, NAMES_FILE_BYTES, &data, &size, err);

    if (rc)
        return rc;
    struct rfs_json_read json = rfs_json_read_begin(data, size);
    rc = read_pairs(names, &json, err);
    rfs_json_read_free(&json);
    if (rc)
        return rc;
    names->used = calloc(names->shown.n + 1, sizeof *names->used);
    return names->used ? 0 : rfs_fail_memory(err);
}

static int open_names(const char *path, struct names **out, struct rfs_error *err)
{
    struct names *names = *out = calloc(1, sizeof *names);

    if (!names || !(names->path = strdup(path)) || !(names->from = rfs_intern_new()) ||
        !(names->to = rfs_intern_new()))
        return rfs_fail_memory(err);
    return read_names(names, err);
}

int rfs_output_map_open(const struct rfs_output_map_config *config, struct rfs_output_map **out,
                        struct rfs_error *err)
{
    *out = NULL;
    if (!config->names && !config->dtype)
        return 0;
    RFS_CLEANUP(end_output_map) struct rfs_output_map *output_map = calloc(1, sizeof *output_map);
    int rc = output_map ? 0 : rfs_fail_memory(err);
    if (!rc && config->names)
        rc = open_names(config->names, &output_map->names, err);
    if (!rc && config->dtype)
        rc = rfs_dtype_rules_parse(config->dtype, &output_map->rules, err);
    if (!rc)
        *out = RFS_STEAL(output_map);
    return rc;
}

bool rfs_output_map_has_names(const struct rfs_output_map *output_map)
{
    return output_map && output_map->names;
}

int rfs_output_map_digest(const struct rfs_output_map *output_map, uint64_t digest[2])
{
    const struct names *names = output_map ? output_map->names : NULL;

    digest[0] = digest[1] = 0;
    if (!names)
        return 0;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -1;
    XXH3_128bits_reset(state);
    for (uint32_t id = 0; id < names->shown.n; id++) {
        const uint32_t shown = names->shown.data[id];
        const char *from = rfs_intern_text(names->from, id);
        const char *to = shown == RFS_NO_ID ? "" : rfs_intern_text(names->to, shown);
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

const char *rfs_output_map_name(const struct rfs_output_map *output_map, const char *name)
{
    const struct names *names = output_map ? output_map->names : NULL;
    const uint32_t id = names ? rfs_intern_find(names->from, name, strlen(name)) : RFS_NO_ID;

    if (id == RFS_NO_ID)
        return name;
    atomic_store_explicit(&names->used[id], 1, memory_order_relaxed);
    const uint32_t shown = names->shown.data[id];
    return shown == RFS_NO_ID ? NULL : rfs_intern_text(names->to, shown);
}

const char *rfs_output_map_source(const struct rfs_output_map *output_map, const char *name)
{
    const struct names *names = output_map ? output_map->names : NULL;
    const uint32_t id = names ? rfs_intern_find(names->to, name, strlen(name)) : RFS_NO_ID;

    return id == RFS_NO_ID ? name : rfs_intern_text(names->from, names->source.data[id]);
}

enum rfs_dtype rfs_output_map_dtype(const struct rfs_output_map *output_map, const char *name,
                                    enum rfs_dtype from)
{
    return output_map && output_map->rules && rfs_dtype_is_float(from)
               ? rfs_dtype_rules_find(output_map->rules, name, from)
               : from;
}

/* The names that no parameter has, the first few of them in TEXT; how many they are. */
static size_t list_unused(const struct names *names, char *text, size_t cap)
{
    size_t n = 0, used = 0;

    text[0] = '\0';
    for (uint32_t id = 0; id < names->shown.n; id++) {
        if (atomic_load_explicit(&names->used[id], memory_order_relaxed))
            continue;
        const char *name = n < NAMES_TOLD    ? rfs_intern_text(names->from, id)
                           : n == NAMES_TOLD ? "…"
                                             : NULL;
        const int wrote =
            name && used < cap ? snprintf(text + used, cap - used, "%s%s", n ? ", " : "", name) : 0;
        used += wrote > 0 ? (size_t)wrote : 0;
        n++;
    }
    return n;
}

void rfs_output_map_report(const struct rfs_output_map *output_map, struct rfs_log *log)
{
    struct names *names = output_map ? output_map->names : NULL;
    char text[400];

    if (!names || atomic_exchange(&names->reported, true))
        return;
    const size_t n = list_unused(names, text, sizeof text);
    if (n > 0 && n == names->shown.n)
        rfs_log(log, RFS_WARNING,
                "%s: none of its names is a parameter of the source; they go from the source's "
                "names to those shown: %s",
                names->path, text);
    else if (n > 0)
        rfs_log(log, RFS_WARNING, "%s: %zu of its names are not parameters of the source: %s",
                names->path, n, text);
}
