/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files in JSON, to be written again; strategy_json.c draws the format. */
#include "layout/written.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/text.h"
#include "layout/json_text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REMEDY "the file that MindSpore saved as strategy"

/* A double holds every integer up to here. */
#define EXACT ((int64_t)1 << 53)

/* ---- reading ---- */

static void free_json(cJSON **json)
{
    cJSON_Delete(*json);
}

static void free_names(struct rfs_intern **names)
{
    if (*names)
        rfs_intern_free(*names);
}

static int parse(const struct rfs_written *out, struct rfs_json_text text, cJSON **json,
                 struct rfs_error *err)
{
    cJSON_Delete(*json);
    errno = 0;
    *json = cJSON_ParseWithLength(text.data, text.n);
    if (*json)
        return 0;
    return errno == ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, -EINVAL, RFS_IN(out->name), REMEDY, "not valid JSON");
}

static int fail_item(const struct rfs_written *out, const char *name, const char *key,
                     const char *what, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(out->name, name), REMEDY, "'%s' %s", key, what);
}

static int fail_lost(const struct rfs_written *out, const char *name, const char *key,
                     struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(out->name, name), "the file without it",
                    "'%s' is not known to this program, and would be lost", key);
}

static bool integer(const cJSON *json, int64_t *value)
{
    if (!cJSON_IsNumber(json) || !(json->valuedouble >= (double)-EXACT) ||
        !(json->valuedouble <= (double)EXACT))
        return false;
    *value = (int64_t)json->valuedouble;
    return (double)*value >= json->valuedouble && (double)*value <= json->valuedouble;
}

static int take_list(struct rfs_written *out, const char *name, const cJSON *list,
                     struct rfs_numbers *numbers, struct rfs_error *err)
{
    const cJSON *child;
    uint32_t n = 0;

    if (!cJSON_IsArray(list))
        return fail_item(out, name, list->string ? list->string : "parallel_strategy",
                         "is not a list of integers", err);
    cJSON_ArrayForEach(child, list) n++;
    if (!rfs_numbers_new(&out->arena, n, numbers))
        return rfs_fail_memory(err);
    n = 0;
    cJSON_ArrayForEach(child, list) if (!integer(child, &numbers->data[n++])) return fail_item(
        out, name, list->string ? list->string : "parallel_strategy", "is not a list of integers",
        err);
    return 0;
}

static int take_integer(struct rfs_written *out, const char *name, const cJSON *json, int64_t *to,
                        struct rfs_error *err)
{
    return integer(json, to) ? 0 : fail_item(out, name, json->string, "is not an integer", err);
}

static int take_cuts(struct rfs_written *out, struct rfs_written_node *node, const cJSON *list,
                     struct rfs_error *err)
{
    const cJSON *child;
    uint32_t n = 0;
    int rc = 0;

    if (!cJSON_IsArray(list))
        return fail_item(out, node->name, list->string, "is not a list", err);
    cJSON_ArrayForEach(child, list) n++;
    node->cuts = rfs_arena_alloc(&out->arena, (n > 0 ? n : 1) * sizeof *node->cuts);
    if (!node->cuts)
        return rfs_fail_memory(err);
    node->n_cuts = 0;
    cJSON_ArrayForEach(child, list)
    {
        rc = take_list(out, node->name, child, &node->cuts[node->n_cuts], err);
        if (rc)
            break;
        node->n_cuts++;
    }
    return rc;
}

static int take_node(struct rfs_written *out, const cJSON *item, struct rfs_written_node *node,
                     struct rfs_error *err)
{
    const cJSON *child;
    int64_t stage = -1;
    int rc = 0;

    cJSON_ArrayForEach(child, item)
    {
        if (strcmp(child->string, "stage") == 0)
            rc = take_integer(out, node->name, child, &stage, err);
        else if (strcmp(child->string, "parallel_strategy") == 0)
            rc = take_cuts(out, node, child, err);
        else
            rc = fail_lost(out, node->name, child->string, err);
        if (rc)
            return rc;
    }
    if (!cJSON_IsObject(item) || stage < 0 || stage > UINT32_MAX)
        return fail_item(out, node->name, "stage", "is not there, or is not a stage", err);
    node->stage = (uint32_t)stage;
    return 0;
}

static int take_member(struct rfs_written *out, const cJSON *json, struct rfs_written_param *param,
                       struct rfs_error *err)
{
    const struct {
        const char *key;
        struct rfs_numbers *numbers;
        int64_t *number;
    } members[] = {
        {"dev_matrix", &param->dev, NULL},
        {"tensor_map", &param->maps[0], NULL},
        {"tensor_shape", &param->shape, NULL},
        {"param_split_shape", &param->split, NULL},
        {"indices_offset", &param->offsets, NULL},
        {"field", NULL, &param->field},
        {"opt_weight_shard_step", NULL, &param->opt_step},
        {"opt_weight_shard_size", NULL, &param->opt_size},
    };

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(members[i].key, json->string) != 0)
            continue;
        param->has_shape = param->has_shape || members[i].numbers == &param->shape;
        return members[i].number ? take_integer(out, param->name, json, members[i].number, err)
                                 : take_list(out, param->name, json, members[i].numbers, err);
    }
    return fail_lost(out, param->name, json->string, err);
}

/* What parsing the strategy has seen to is there, and of the right type. */
static int take_param(struct rfs_written *out, const cJSON *item, struct rfs_written_param *param,
                      struct rfs_error *err)
{
    const cJSON *child;
    int rc = 0;

    param->flat = true;
    param->n_maps = 1;
    param->maps = rfs_arena_alloc(&out->arena, sizeof *param->maps);
    if (!param->maps)
        return rfs_fail_memory(err);
    *param->maps = (struct rfs_numbers){0};
    cJSON_ArrayForEach(child, item)
    {
        rc = take_member(out, child, param, err);
        if (rc)
            break;
    }
    return rc;
}

/* The key as it means, in the arena. */
static int take_key(struct rfs_written *out, struct rfs_json_text quoted, const char **key,
                    struct rfs_error *err)
{
    cJSON *json RFS_CLEANUP(free_json) = NULL;

    *key = NULL;
    if (!memchr(quoted.data, '\\', quoted.n)) {
        *key = rfs_arena_text(&out->arena, quoted.data + 1, quoted.n - 2);
    } else {
        const int rc = parse(out, quoted, &json, err);
        if (rc)
            return rc;
        *key = rfs_arena_text(&out->arena, json->valuestring, strlen(json->valuestring));
    }
    return *key ? 0 : rfs_fail_memory(err);
}

/* The place of a name among those seen: that of the first, of several. */
static int place_of(struct rfs_intern *names, const char *name, uint32_t *at, struct rfs_error *err)
{
    *at = rfs_intern_add(names, name, strlen(name));
    return *at == RFS_NO_ID ? rfs_fail_memory(err) : 0;
}

static int read_nodes(struct rfs_written *out, struct rfs_json_text items, struct rfs_error *err)
{
    RFS_CLEANUP(free_names) struct rfs_intern *names = rfs_intern_new();
    struct rfs_json_walk walk = rfs_json_walk_begin(items);
    struct rfs_json_text key, value;
    cJSON *json RFS_CLEANUP(free_json) = NULL;
    int rc = names ? 0 : rfs_fail_memory(err);

    while (rc == 0 && rfs_json_walk_next(&walk, &key, &value)) {
        struct rfs_written_node node = {0};
        uint32_t at = 0;
        if ((rc = take_key(out, key, &node.name, err)) != 0 ||
            (rc = place_of(names, node.name, &at, err)) != 0 ||
            (rc = parse(out, value, &json, err)) != 0 ||
            (rc = take_node(out, json, &node, err)) != 0)
            break;
        if (at < out->nodes.n)
            out->nodes.data[at] = node;
        else if (!RFS_PUSH(&out->nodes, node))
            rc = rfs_fail_memory(err);
    }
    return rc;
}

static int read_params(struct rfs_written *out, struct rfs_json_text items, struct rfs_error *err)
{
    RFS_CLEANUP(free_names) struct rfs_intern *names = rfs_intern_new();
    struct rfs_json_walk walk = rfs_json_walk_begin(items);
    struct rfs_json_text key, value;
    cJSON *json RFS_CLEANUP(free_json) = NULL;
    int rc = names ? 0 : rfs_fail_memory(err);

    while (rc == 0 && rfs_json_walk_next(&walk, &key, &value)) {
        struct rfs_written_param param = {0};
        uint32_t at = 0;
        if ((rc = take_key(out, key, &param.name, err)) != 0 ||
            (rc = place_of(names, param.name, &at, err)) != 0 ||
            (rc = parse(out, value, &json, err)) != 0 ||
            (rc = take_param(out, json, &param, err)) != 0)
            break;
        if (at < out->params.n)
            out->params.data[at] = param;
        else if (!RFS_PUSH(&out->params, param))
            rc = rfs_fail_memory(err);
    }
    return rc;
}

int rfs_written_read_json(const char *data, size_t size, struct rfs_written *out,
                          struct rfs_error *err)
{
    struct rfs_json_walk walk = rfs_json_walk_begin((struct rfs_json_text){data, size});
    struct rfs_json_text key, value, nodes = {0}, params = {0};
    cJSON *json RFS_CLEANUP(free_json) = NULL;
    int rc = 0;

    out->current_stage = 1;
    while (rc == 0 && rfs_json_walk_next(&walk, &key, &value)) {
        const char *name;
        rc = take_key(out, key, &name, err);
        if (rc)
            break;
        if (strcmp(name, "parallel_strategy_item") == 0)
            nodes = value;
        else if (strcmp(name, "parallel_layout_item") == 0)
            params = value;
        else if (strcmp(name, "current_stage") != 0)
            rc = fail_lost(out, NULL, name, err);
        else if ((rc = parse(out, value, &json, err)) == 0 && !integer(json, &out->current_stage))
            rc = fail_item(out, NULL, name, "is not an integer", err);
    }
    if (rc == 0 && nodes.n > 0)
        rc = read_nodes(out, nodes, err);
    return rc == 0 && params.n > 0 ? read_params(out, params, err) : rc;
}

/* ---- writing ---- */

/* Text being written, in one of two styles. */
struct text {
    FILE *out;
    const char *comma, *colon;
    bool ascii; /* as Python writes, else UTF-8 as it is */
};

static void put_unit(const struct text *text, uint32_t unit)
{
    fprintf(text->out, "\\u%04" PRIx32, unit);
}

/* The character at *AT, which is well-formed UTF-8. */
static uint32_t decode(const unsigned char **at)
{
    const unsigned char first = *(*at)++;
    const unsigned more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t c = more == 0 ? first : first & (0x3fu >> more);

    for (unsigned i = 0; i < more && **at; i++)
        c = c << 6 | (*(*at)++ & 0x3fu);
    return c;
}

static void put_character(const struct text *text, uint32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *escape = c < 0x80 && c > 0 ? strchr(from, (int)c) : NULL;

    if (escape)
        fprintf(text->out, "\\%c", to[escape - from]);
    else if (c >= 0x10000) {
        put_unit(text, 0xd800 + ((c - 0x10000) >> 10));
        put_unit(text, 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else if (c < 0x20 || c >= 0x7f)
        put_unit(text, c);
    else
        fputc((int)c, text->out);
}

static void put_string(const struct text *text, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;

    fputc('"', text->out);
    while (*at) {
        const unsigned char *begin = at;
        const uint32_t c = decode(&at);
        /* Python escapes DEL no more than the compiler does. */
        if ((c >= 0x80 && !text->ascii) || c == 0x7f)
            fwrite(begin, 1, (size_t)(at - begin), text->out);
        else
            put_character(text, c);
    }
    fputc('"', text->out);
}

static void put_numbers(const struct text *text, const struct rfs_numbers *numbers)
{
    for (uint32_t i = 0; i < numbers->n; i++)
        fprintf(text->out, "%s%" PRId64, i > 0 ? text->comma : "", numbers->data[i]);
}

static void put_key(const struct text *text, const char *key, bool first)
{
    fputs(first ? "" : text->comma, text->out);
    put_string(text, key);
    fputs(text->colon, text->out);
}

static void put_list(const struct text *text, const char *key, bool first,
                     const struct rfs_numbers *numbers)
{
    put_key(text, key, first);
    fputc('[', text->out);
    put_numbers(text, numbers);
    fputc(']', text->out);
}

static void put_number(const struct text *text, const char *key, int64_t number)
{
    put_key(text, key, false);
    fprintf(text->out, "%" PRId64, number);
}

/* Members in the order of their names, which is the compiler's. */
static void put_param(const struct text *text, const struct rfs_written_param *param)
{
    fputc('{', text->out);
    put_list(text, "dev_matrix", true, &param->dev);
    put_number(text, "field", param->field);
    if (param->offsets.n > 0)
        put_list(text, "indices_offset", false, &param->offsets);
    put_number(text, "opt_weight_shard_size", param->opt_size);
    put_number(text, "opt_weight_shard_step", param->opt_step);
    if (param->split.n > 0)
        put_list(text, "param_split_shape", false, &param->split);
    put_key(text, "tensor_map", false);
    fputc('[', text->out);
    bool first = true;
    for (uint32_t i = 0; i < param->n_maps; i++) {
        if (param->maps[i].n == 0)
            continue;
        fputs(first ? "" : text->comma, text->out);
        put_numbers(text, &param->maps[i]);
        first = false;
    }
    fputc(']', text->out);
    if (param->has_shape)
        put_list(text, "tensor_shape", false, &param->shape);
    fputc('}', text->out);
}

static void put_node(const struct text *text, const struct rfs_written_node *node)
{
    fputc('{', text->out);
    put_key(text, "parallel_strategy", true);
    fputc('[', text->out);
    for (uint32_t i = 0; i < node->n_cuts; i++) {
        fputs(i > 0 ? text->comma : "", text->out);
        fputc('[', text->out);
        put_numbers(text, &node->cuts[i]);
        fputc(']', text->out);
    }
    fputc(']', text->out);
    put_number(text, "stage", node->stage);
    fputc('}', text->out);
}

/* A name, and where its item is; of equal names the later item counts. */
struct named {
    const char *name;
    size_t at;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a;
    const struct named *y = b;
    const int order = strcmp(x->name, y->name);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Of N names in LIST, those that count, sorted if SORTED, else where the first of their name is. */
static size_t choose(struct named *list, size_t n, bool sorted, struct rfs_intern *names)
{
    size_t kept = 0;

    if (sorted && n > 0)
        qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = rfs_intern_add(names, list[i].name, strlen(list[i].name));
        if (id == RFS_NO_ID)
            return SIZE_MAX;
        list[id] = list[i];
        kept = id >= kept ? id + 1 : kept;
    }
    return kept;
}

static int put_items(const struct text *text, const struct rfs_written *written, bool nodes,
                     bool sorted, struct rfs_error *err)
{
    RFS_CLEANUP(free_names) struct rfs_intern *names = rfs_intern_new();
    const size_t n = nodes ? written->nodes.n : written->params.n;
    RFS_FREE struct named *list = calloc(n + 1, sizeof *list);

    if (!names || !list)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        list[i] =
            (struct named){nodes ? written->nodes.data[i].name : written->params.data[i].name, i};
    const size_t kept = choose(list, n, sorted, names);
    if (kept == SIZE_MAX)
        return rfs_fail_memory(err);
    put_key(text, nodes ? "parallel_strategy_item" : "parallel_layout_item", false);
    fputc('{', text->out);
    for (size_t i = 0; i < kept; i++) {
        put_key(text, list[i].name, i == 0);
        if (nodes)
            put_node(text, &written->nodes.data[list[i].at]);
        else
            put_param(text, &written->params.data[list[i].at]);
    }
    fputc('}', text->out);
    return 0;
}

static int check_name(const struct rfs_written *written, const char *name, struct rfs_error *err)
{
    return rfs_text_is_utf8(name, strlen(name))
               ? 0
               : rfs_fail(err, -EINVAL, RFS_OF(written->name, name),
                          "a protobuf file, which holds any name",
                          "its name is not UTF-8, so that JSON cannot hold it");
}

static int check_names(const struct rfs_written *written, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < written->params.n; i++)
        rc = check_name(written, written->params.data[i].name, err);
    for (size_t i = 0; rc == 0 && i < written->nodes.n; i++)
        rc = check_name(written, written->nodes.data[i].name, err);
    return rc;
}

static int check_nesting(const struct rfs_written *written, struct rfs_error *err)
{
    for (size_t i = 0; i < written->params.n; i++)
        if (rfs_written_is_nested(&written->params.data[i]) && !written->params.data[i].has_shape)
            return rfs_fail(err, -EINVAL, RFS_OF(written->name, written->params.data[i].name),
                            "--tree SRC with the checkpoint, which tells",
                            "it has an axis that several device axes cut: JSON has to have the "
                            "tensor's shape then, which protobuf does not tell");
    return 0;
}

int rfs_written_json(const struct rfs_written *written, bool merged, char **data, size_t *size,
                     struct rfs_error *err)
{
    struct text text = {NULL, merged ? ", " : ",", merged ? ": " : ":", merged};
    int rc = check_names(written, err);

    *data = NULL;
    if (rc == 0)
        rc = check_nesting(written, err);
    if (rc)
        return rc;
    text.out = open_memstream(data, size);
    if (!text.out)
        return rfs_fail_memory(err);
    fputc('{', text.out);
    put_key(&text, "current_stage", true);
    fprintf(text.out, "%" PRId64, written->current_stage);
    rc = put_items(&text, written, merged, !merged, err);
    if (rc == 0)
        rc = put_items(&text, written, !merged, !merged, err);
    fputc('}', text.out);
    const bool failed = ferror(text.out) != 0;
    if (fclose(text.out) != 0 || failed)
        rc = rc ? rc : rfs_fail_memory(err);
    if (rc) {
        free(*data);
        *data = NULL;
    }
    return rc;
}
