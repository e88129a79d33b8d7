/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "mount/settings.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MOST 9007199254740992.0 /* 2^53: larger ones are not kept exactly */

/* A list of texts, with ':' between. NULL with errno ENOMEM, or EINVAL for anything else. */
static char *joined(const cJSON *list)
{
    size_t bytes = 1;
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item)) {
            errno = EINVAL;
            return NULL;
        }
        bytes += strlen(item->valuestring) + 1;
    }
    char *out = malloc(bytes), *to = out;
    if (!out)
        return NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (to > out)
            *to++ = ':';
        to = stpcpy(to, item->valuestring);
    }
    *to = '\0';
    return out;
}

/* As text, malloc'ed; NULL with errno ENOMEM, or EINVAL for what is no value. */
static char *value_of(const cJSON *item)
{
    char number[32];

    if (cJSON_IsString(item))
        return strdup(item->valuestring);
    if (cJSON_IsBool(item))
        return strdup(cJSON_IsTrue(item) ? "yes" : "no");
    if (cJSON_IsArray(item))
        return joined(item);
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > WHOLE_MOST ||
        item->valuedouble != (double)(uint64_t)item->valuedouble) {
        errno = EINVAL;
        return NULL;
    }
    snprintf(number, sizeof number, "%.0f", item->valuedouble);
    return strdup(number);
}

static int add_members(struct rfs_settings *settings, const char *path, const cJSON *object,
                       struct rfs_error *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, object)
    {
        RFS_FREE char *value = value_of(item);

        if (!value && errno == EINVAL)
            return rfs_fail_usage(err, "a text, a whole number, true, false or a list of texts",
                                  "%s: the value of '%s' is none of an option", path, item->string);
        if (!value || rfs_settings_add(settings, item->string, value, path))
            return -ENOMEM;
    }
    return 0;
}

int rfs_settings_add_json(struct rfs_settings *settings, const char *path, const char *text,
                          struct rfs_error *err)
{
    const char *end = NULL;
    int rc;

    if (strstr(text, "\\u0000")) /* where cJSON would end the text */
        return rfs_fail_usage(err, "config=FILE with a file of options", "%s: holds a NUL byte",
                              path);
    cJSON *object = cJSON_ParseWithOpts(text, &end, true);
    if (!object)
        return rfs_fail_usage(err, "{\"cache\": \"2G\"}, or lines such as cache = 2G",
                              "%s: offset %zu: not JSON", path, end ? (size_t)(end - text) : 0);
    rc = add_members(settings, path, object, err);
    cJSON_Delete(object);
    return rc;
}
