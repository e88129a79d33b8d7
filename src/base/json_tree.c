/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_tree.h"

#include "base/cleanup.h"
#include "base/json_read.h"

/* A node, and the head of a block of memory; a key is a block, too. */
#define VALUE_BYTES (sizeof(cJSON) + 2 * 16)
#define EXACT ((double)((int64_t)1 << 53)) /* whole numbers up to here are exact */

/* Counts the values that a text may have: one before each comma, one in each bracket. */
static size_t count_values(const char *text, size_t n)
{
    size_t count = 1;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == ',' || c == '[' || c == '{'))
            count++;
    }
    return count;
}

int rfs_json_tree_parse_valid(const char *text, size_t n, size_t most, cJSON **out)
{
    *out = NULL;
    if (n > most || count_values(text, n) > (most - n) / VALUE_BYTES)
        return -EFBIG;
    *out = cJSON_ParseWithLength(text, n);
    return *out ? 0 : -ENOMEM;
}

int rfs_json_tree_parse(const char *file, const char *text, size_t n, size_t most,
                        const char *remedy, cJSON **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);

    *out = NULL;
    if (!rfs_json_read_skip(&json) || !rfs_json_read_end(&json))
        return json.no_memory ? rfs_fail_memory_of(err, file)
                              : rfs_fail(err, -EINVAL, RFS_AT(file, rfs_json_read_place(&json)),
                                         remedy, "not valid JSON: %s", json.wrong);
    const int rc = rfs_json_tree_parse_valid(text, n, most, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(file), remedy,
                        "reading it takes more than %zu MiB of memory", most >> 20);
    return rc ? rfs_fail_memory_of(err, file) : 0;
}

const cJSON *rfs_json_tree_member(const cJSON *object, const char *name)
{
    const cJSON *found = NULL;
    const cJSON *member;

    if (!cJSON_IsObject(object))
        return NULL;
    cJSON_ArrayForEach(member, object)
    {
        if (strcmp(member->string, name) == 0)
            found = member;
    }
    return found;
}

bool rfs_json_tree_integer(const cJSON *value, int64_t *out)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= -EXACT && value->valuedouble <= EXACT))
        return false;
    *out = (int64_t)value->valuedouble;
    return (double)*out == value->valuedouble;
}
