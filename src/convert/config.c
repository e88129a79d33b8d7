/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/config.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/order.h"
#include "base/read_whole.h"
#include "base/vec.h"

#define MOST_BYTES ((size_t)16 << 20)
#define MOST_LEVELS 8 /* of objects in objects */
#define REMEDY "the config.json of the model, as HuggingFace has it"

struct rfs_hf_config {
    struct rfs_arena arena; /* of all texts */
    const char *name;
    RFS_VEC(struct rfs_hf_value) values; /* by key; of equal ones the last counts */
    size_t bytes;                        /* of the text */
    struct {                             /* the member quantization_config, with a comma */
        size_t from, to;
        unsigned n; /* how many there are */
    } quantization;
};

/* While it is read. */
struct reading {
    struct rfs_hf_config *config;
    struct rfs_json_read json;
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

static void reading_end(struct reading *reading)
{
    rfs_json_read_free(&reading->json);
}

static bool fail_memory(struct reading *reading)
{
    rfs_json_read_fail(&reading->json, "out of memory");
    reading->json.no_memory = true;
    return false;
}

/* Adds the exponent that TEXT ends with to *scale. */
static bool take_exponent(const char *text, long *scale)
{
    char *end;
    const long exponent = strtol(text, &end, 10);

    *scale += exponent;
    return end != text && !*end && exponent > -1000 && exponent < 1000;
}

/* A whole number, also with a fraction of zeros or an exponent; strtod would follow the locale. */
static bool take_whole(const char *text, int64_t *number)
{
    const bool negative = *text == '-';
    bool fraction = false;
    int64_t value = 0;
    long scale = 0; /* in powers of ten */

    for (text += negative; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.' && !fraction) {
            fraction = true;
            continue;
        }
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *text - '0', &value)) /* below 0 there is room for all */
            return false;
        scale -= fraction;
    }
    if (*text && !take_exponent(text + 1, &scale))
        return false;
    for (; scale < 0; scale++, value /= 10)
        if (value % 10 != 0)
            return false;
    for (; scale > 0 && value != 0; scale--)
        if (__builtin_mul_overflow(value, 10, &value))
            return false;
    *number = value;
    return negative || !__builtin_sub_overflow(0, value, number);
}

/* A number, a word or anything else that is neither text nor object; a null adds nothing. */
static bool read_plain(struct reading *reading, struct rfs_hf_value *value, bool *is_null)
{
    struct rfs_json_part part;

    if (!rfs_json_read_part(&reading->json, &part))
        return false;
    const char *text = (const char *)reading->json.data + part.at;
    char number[24] = "";
    *is_null = part.n == 4 && memcmp(text, "null", 4) == 0;
    value->kind = RFS_HF_NUMBER;
    if (part.n == 4 && memcmp(text, "true", 4) == 0) {
        value->number = 1;
        return true;
    }
    if (part.n == 5 && memcmp(text, "false", 5) == 0)
        return true;
    if (part.n < sizeof number)
        memcpy(number, text, part.n);
    if (!take_whole(number, &value->number))
        *value = (struct rfs_hf_value){.key = value->key, .kind = RFS_HF_OTHER};
    return true;
}

static const char *join_key(struct reading *reading, const char *prefix)
{
    const size_t before = strlen(prefix);
    char *key = rfs_arena_alloc(&reading->config->arena, before + reading->json.text_n + 2);

    if (!key)
        return NULL;
    memcpy(key, prefix, before);
    if (before > 0)
        key[before] = '.';
    memcpy(key + before + (before > 0), reading->json.text, reading->json.text_n + 1);
    return key;
}

static bool read_object(struct reading *reading, const char *prefix, unsigned level);

/* The value of the key that was read last, which has those of the objects around it before it. */
static bool read_value(struct reading *reading, const char *prefix, unsigned level)
{
    struct rfs_json_read *json = &reading->json;
    struct rfs_hf_value value = {.key = join_key(reading, prefix), .kind = RFS_HF_TEXT};
    bool is_null = false;

    if (!value.key)
        return fail_memory(reading);
    if (rfs_json_read_peek(json, '{'))
        return level == MOST_LEVELS ? rfs_json_read_skip(json)
                                    : read_object(reading, value.key, level + 1);
    if (rfs_json_read_peek(json, '"')) {
        if (!rfs_json_read_string(json))
            return false;
        value.text = rfs_arena_text(&reading->config->arena, json->text, json->text_n);
        if (!value.text)
            return fail_memory(reading);
    } else if (!read_plain(reading, &value, &is_null)) {
        return false;
    }
    return is_null || RFS_PUSH(&reading->config->values, value) || fail_memory(reading);
}

/* Notes a member that ends here; BEFORE is where the one before it ends, or the brace. */
static void note_quantization(struct reading *reading, size_t before, bool is_first)
{
    struct rfs_json_read *json = &reading->json;

    reading->config->quantization.from = before;
    reading->config->quantization.to = json->at;
    reading->config->quantization.n++;
    if (is_first && rfs_json_read_peek(json, ','))
        reading->config->quantization.to = json->at + 1;
}

static bool read_object(struct reading *reading, const char *prefix, unsigned level)
{
    struct rfs_json_read *json = &reading->json;
    bool is_first = true;
    size_t before = rfs_json_read_peek(json, '{') ? json->at + 1 : 0;

    for (bool first = true; rfs_json_read_member(json, &first); is_first = false) {
        const bool found = level == 0 && rfs_json_read_is(json, "quantization_config");
        if (!read_value(reading, prefix, level))
            return false;
        const size_t end = json->at;
        if (found)
            note_quantization(reading, before, is_first);
        before = end;
    }
    return !json->wrong;
}

RFS_COMPARE(by_key, struct rfs_hf_value, x, y, strcmp(x->key, y->key))

int rfs_hf_config_read(const char *name, const char *text, size_t n, struct rfs_hf_config **out,
                       struct rfs_error *err)
{
    RFS_CLEANUP(config_cleanup) struct rfs_hf_config *config = calloc(1, sizeof *config);

    *out = NULL;
    if (!config)
        return rfs_fail_memory(err);
    config->bytes = n;
    config->name = rfs_arena_text(&config->arena, name, strlen(name));
    RFS_CLEANUP(reading_end)
    struct reading reading = {.config = config, .json = rfs_json_read_begin(text, n)};
    const bool good =
        config->name && read_object(&reading, "", 0) && rfs_json_read_end(&reading.json);
    if (!config->name || reading.json.no_memory)
        return rfs_fail_memory(err);
    if (!good)
        return rfs_fail(err, -EINVAL, RFS_AT(name, rfs_json_read_place(&reading.json)), REMEDY,
                        "is not a JSON object: %s", reading.json.wrong);
    RFS_SORT_ALL(&config->values, by_key);
    *out = RFS_STEAL(config);
    return 0;
}

int rfs_hf_config_open(const char *path, struct rfs_hf_config **out, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    *out = NULL;
    const int rc = rfs_read_whole(path, MOST_BYTES, &text, &n, err);
    return rc ? rc : rfs_hf_config_read(path, text, n, out, err);
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
