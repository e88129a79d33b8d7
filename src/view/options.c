/* SPDX-License-Identifier: Apache-2.0 */
#include "view/options.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MAX 200

bool rfs_options_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    const double number = strtod(text, &end);
    double scale = 1;
    if (*end) {
        const char unit = (char)(*end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end);
        const char *at = strchr(units, unit);
        if (!at)
            return false;
        for (const char *u = units; u <= at; u++)
            scale *= 1024;
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    if (*end || !(number * scale < 9.0e18))
        return false;
    *bytes = (uint64_t)(number * scale);
    return true;
}

/* Takes one "key=value" off the text: unescapes it in place and ends it with a NUL. */
static char *next_option(char **rest)
{
    char *start = *rest;
    char *out = start;
    char *in = start;

    if (!start)
        return NULL;
    for (; *in && *in != ','; in++) {
        if (*in == '\\' && (in[1] == ',' || in[1] == '\\'))
            in++;
        *out++ = *in;
    }
    *rest = *in ? in + 1 : NULL;
    *out = '\0';
    return start;
}

static int set_text(char **slot, const char *value, struct rfs_error *err)
{
    free(*slot);
    *slot = strdup(value);
    return *slot ? 0 : rfs_fail_memory(err);
}

static int set_prefix(struct rfs_options *out, const char *value, struct rfs_error *err)
{
    if (strchr(value, '/') || value[0] == '.' || strlen(value) > PREFIX_MAX)
        return rfs_fail_usage(err, "a name such as prefix=checkpoint_",
                              "option prefix=%s: not the beginning of a file name", value);
    return set_text(&out->prefix, value, err);
}

static int set_option(struct rfs_options *out, const char *key, const char *value,
                      struct rfs_error *err)
{
    if (strcmp(key, "strict") == 0 && !value) {
        out->strict = true;
        return 0;
    }
    const bool known = strcmp(key, "src_strategy") == 0 || strcmp(key, "dst_strategy") == 0 ||
                       strcmp(key, "prefix") == 0 || strcmp(key, "cache") == 0;
    if (!known)
        return rfs_fail_usage(err, "reshardfs --help", "unknown option '%s'", key);
    if (!value || (!*value && strcmp(key, "prefix") != 0))
        return rfs_fail_usage(err, "reshardfs --help", "option %s needs a value", key);
    if (strcmp(key, "src_strategy") == 0)
        return set_text(&out->src_strategy, value, err);
    if (strcmp(key, "dst_strategy") == 0)
        return set_text(&out->dst_strategy, value, err);
    if (strcmp(key, "prefix") == 0)
        return set_prefix(out, value, err);
    if (!rfs_options_size(value, &out->cache))
        return rfs_fail_usage(err, "a size such as cache=2G", "option cache=%s: not a size", value);
    return 0;
}

int rfs_options_parse(const char *text, struct rfs_options *out, struct rfs_error *err)
{
    RFS_FREE char *copy = strdup(text ? text : "");
    char *rest = copy;

    *out = (struct rfs_options){.cache = rfs_options_default_cache()};
    if (!copy || !(out->prefix = strdup("checkpoint_")))
        return rfs_fail_memory(err);
    for (char *option; (option = next_option(&rest));) {
        if (!*option)
            continue;
        char *value = strchr(option, '=');
        if (value)
            *value++ = '\0';
        const int rc = set_option(out, option, value, err);
        if (rc)
            return rc;
    }
    return 0;
}

void rfs_options_free(struct rfs_options *options)
{
    free(options->src_strategy);
    free(options->dst_strategy);
    free(options->prefix);
}
