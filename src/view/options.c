/* SPDX-License-Identifier: Apache-2.0 */
#include "view/options.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MAX 200

/* The digits of a fraction beyond these are dropped; so many of a tebibyte still fit 64 bits. */
#define FRACTION_DIGITS 7

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes digits off the text. False when there is none, or they don't fit. */
static bool take_whole(const char **text, uint64_t *value)
{
    if (!is_digit(**text))
        return false;
    for (*value = 0; is_digit(**text); ++*text)
        if (!rfs_mul_u64(*value, 10, value) ||
            !rfs_add_u64(*value, (uint64_t)(**text - '0'), value))
            return false;
    return true;
}

/* Takes the digits behind a point off the text: *value of *parts. False when there is none. */
static bool take_fraction(const char **text, uint64_t *value, uint64_t *parts)
{
    if (!is_digit(**text))
        return false;
    for (unsigned i = 0; is_digit(**text); i++, ++*text) {
        if (i >= FRACTION_DIGITS)
            continue;
        *value = *value * 10 + (uint64_t)(**text - '0');
        *parts *= 10;
    }
    return true;
}

/* Takes a unit off the text: how many bytes it is, 1 for none, 0 for one that is not known. */
static uint64_t take_unit(const char **text)
{
    static const char units[] = "KMGT";

    if (!**text)
        return 1;
    const char unit = (char)(**text >= 'a' && **text <= 'z' ? **text - 'a' + 'A' : **text);
    const char *at = strchr(units, unit);
    if (!at)
        return 0;
    ++*text;
    *text += **text == 'i';
    *text += **text == 'B';
    return UINT64_C(1024) << 10 * (at - units);
}

/* By hand, as strtod would take the point from the locale. */
bool rfs_options_size(const char *text, uint64_t *bytes)
{
    uint64_t total;
    uint64_t fraction = 0;
    uint64_t parts = 1;

    if (!take_whole(&text, &total))
        return false;
    if (*text == '.') {
        text++;
        if (!take_fraction(&text, &fraction, &parts))
            return false;
    }
    const uint64_t unit = take_unit(&text);
    if (*text || unit == 0 || !rfs_mul_u64(total, unit, &total) ||
        !rfs_add_u64(total, fraction * unit / parts, &total) || total > INT64_MAX)
        return false;
    *bytes = total;
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

static bool has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static int set_prefix(struct rfs_options *out, const char *value, struct rfs_error *err)
{
    if (strchr(value, '/') || value[0] == '.' || strlen(value) > PREFIX_MAX || has_control(value))
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
