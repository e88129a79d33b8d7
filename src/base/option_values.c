/* SPDX-License-Identifier: Apache-2.0 */
/* The values of options: read from text, and written. */
#include "base/checked.h"
#include "base/options.h"
#include "base/variables.h"

#include <strings.h>

#define FILE_NAME_MOST 200 /* bytes */

/* The digits of a fraction beyond these are dropped; so many of a tebibyte still fit 64 bits. */
#define FRACTION_DIGITS 7

/* ---- numbers --------------------------------------------------------------------------------- */

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
bool rfs_option_size(const char *text, uint64_t *bytes)
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

/* ---- reading --------------------------------------------------------------------------------- */

static char default_prefix[] = RFS_PREFIX;
static const struct rfs_options defaults = {
    .step = RFS_ANY_NUMBER,
    .epoch = RFS_ANY_NUMBER,
    .check = -1,
    .key_fd = -1,
    .key_mode = -1,
    .format = -1,
    .large_size = RFS_NO_SIZE,
    .prefix = default_prefix,
    .cache = RFS_NO_SIZE,
    .sandbox = RFS_SANDBOX_DEFAULT,
    .max_threads = 16,
    .log_level = RFS_INFO,
};

int rfs_options_init(struct rfs_options *out)
{
    *out = defaults;
    out->prefix = strdup(RFS_PREFIX);
    return out->prefix ? 0 : rfs_fail_memory(NULL);
}

void rfs_options_free(struct rfs_options *options)
{
    const struct rfs_option *option;

    for (size_t i = 0; (option = rfs_option_at(i)); i++)
        if (rfs_option_is_text(option))
            free(*(char **)((char *)options + option->member));
    *options = (struct rfs_options){0};
}

int rfs_option_switch(const char *value)
{
    static const char *const on[] = {"yes", "true", "on", "1"};
    static const char *const off[] = {"no", "false", "off", "0", ""};

    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (strcasecmp(value, on[i]) == 0)
            return 1;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0)
            return 0;
    return -1;
}

int rfs_option_refuse_switch(const char *name, const char *value, struct rfs_error *err)
{
    return rfs_fail_usage(err, "yes or no", "option %s is on or off, not '%s'", name, value);
}

/* One option by its variable, which the message names. */
static int take_variable(struct rfs_options *out, const struct rfs_option *option,
                         struct rfs_error *err)
{
    char name[64], text[sizeof err->text];
    int rc = 0;

    snprintf(name, sizeof name, RFS_OPTIONS_VARIABLE "%s", option->name);
    for (char *c = name; *c; c++)
        if (*c >= 'a' && *c <= 'z') /* in any locale */
            *c = (char)(*c - 'a' + 'A');
    const char *value = rfs_variable(name);
    if (!value)
        return 0;
    if (rfs_option_is_valued(option))
        rc = rfs_options_set(out, RFS_OPTION_OF_VIEW, option->name, value, err);
    else if (rfs_option_switch(value) > 0)
        rc = rfs_options_set(out, RFS_OPTION_OF_VIEW, option->name, NULL, err);
    else if (rfs_option_switch(value) < 0)
        rc = rfs_option_refuse_switch(option->name, value, err);
    if (rc != -EINVAL)
        return rc;
    memcpy(text, err->text, sizeof text);
    return rfs_fail_usage(err, NULL, "%s: %s", name, text);
}

int rfs_options_take_environment(struct rfs_options *out, struct rfs_error *err)
{
    const struct rfs_option *option;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (option = rfs_option_at(i)); i++)
        if (option->flags & RFS_OPTION_OF_STORE)
            rc = take_variable(out, option, err);
    return rc;
}

/* The greatest number of the kind. */
static uint64_t most_of(const struct rfs_option *option)
{
    return option->most                            ? option->most
           : option->kind == RFS_OPTION_COUNT      ? UINT32_MAX
           : option->kind == RFS_OPTION_DESCRIPTOR ? INT32_MAX
                                                   : INT64_MAX;
}

static uint64_t least_of(const struct rfs_option *option)
{
    return option->kind == RFS_OPTION_COUNT ? 1 : option->least;
}

/* "io=auto, direct or cached" */
static void list_words(const struct rfs_option *option, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s=", option->name);

    for (size_t i = 0; option->words[i] && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s",
                              i == 0                 ? ""
                              : option->words[i + 1] ? ", "
                                                     : " or ",
                              option->words[i]);
}

static int refuse_value(const struct rfs_option *option, const char *value, struct rfs_error *err)
{
    char remedy[128];

    if (option->words)
        list_words(option, remedy, sizeof remedy);
    else
        snprintf(remedy, sizeof remedy, "%s=%s", option->name, option->example);
    if (option->words || option->kind == RFS_OPTION_SIZE || option->kind == RFS_OPTION_FILE_NAME)
        return rfs_fail_usage(err, remedy, "option %s=%s: not %s", option->name, value,
                              option->words                     ? "one that is known"
                              : option->kind == RFS_OPTION_SIZE ? "a size"
                                                                : "the beginning of a file name");
    return rfs_fail_usage(err, remedy, "option %s=%s: not a number from %" PRIu64 " to %" PRIu64,
                          option->name, value, least_of(option), most_of(option));
}

static bool is_file_name(const char *text)
{
    if (text[0] == '.' || strlen(text) > FILE_NAME_MOST)
        return false;
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f || *text == '/')
            return false;
    return true;
}

static int set_text(char **member, const char *value, struct rfs_error *err)
{
    char *copy = strdup(value);

    if (!copy)
        return rfs_fail_memory(err);
    free(*member);
    *member = copy;
    return 0;
}

/* Sets a number of any size. False when the value is none, or out of range. */
static bool set_number(void *member, const struct rfs_option *option, const char *value)
{
    uint64_t number;

    if (option->kind == RFS_OPTION_SIZE ? !rfs_option_size(value, &number)
                                        : (!take_whole(&value, &number) || *value))
        return false;
    if (number < least_of(option) || number > most_of(option))
        return false;
    if (option->kind == RFS_OPTION_SIZE)
        *(uint64_t *)member = number;
    else if (option->kind == RFS_OPTION_COUNT)
        *(uint32_t *)member = (uint32_t)number;
    else if (option->kind == RFS_OPTION_DESCRIPTOR)
        *(int *)member = (int)number;
    else
        *(int64_t *)member = (int64_t)number;
    return true;
}

static bool set_word(int *member, const char *const *words, const char *value)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(value, words[i]) == 0) {
            *member = i;
            return true;
        }
    return false;
}

static int set_value(struct rfs_options *out, const struct rfs_option *option, const char *value,
                     struct rfs_error *err)
{
    void *member = (char *)out + option->member;
    bool good;

    switch (option->kind) {
    case RFS_OPTION_WORD:
        good = set_word(member, option->words, value);
        break;
    case RFS_OPTION_STEP:
        out->all_steps = strcmp(value, "all") == 0;
        if (out->all_steps)
            out->step = RFS_ANY_NUMBER;
        good = out->all_steps || set_number(member, option, value);
        break;
    case RFS_OPTION_FILE_NAME:
        if (is_file_name(value))
            return set_text(member, value, err);
        good = false;
        break;
    default:
        if (rfs_option_is_text(option))
            return set_text(member, value, err);
        good = set_number(member, option, value);
    }
    return good ? 0 : refuse_value(option, value, err);
}

int rfs_options_set(struct rfs_options *out, unsigned flags, const char *name, const char *value,
                    struct rfs_error *err)
{
    const struct rfs_option *option = rfs_option_find(name);
    const bool valued =
        option && option->kind != RFS_OPTION_SWITCH && option->kind != RFS_OPTION_IGNORED;

    if (strcmp(name, "key") == 0) /* its value is secret, and must not appear in the message */
        return rfs_fail_usage(err, "-o key_file=FILE, key_env=NAME or key_fd=N",
                              "a key cannot be given on a command line, where other users see it");
    if (!option || (option->flags & flags) != flags)
        return rfs_option_refuse(name, flags, err);
    if (!valued && value)
        return rfs_fail_usage(err, name, "option %s takes no value", name);
    if (valued && (!value || (!*value && option->kind != RFS_OPTION_FILE_NAME)))
        return rfs_fail_usage(err, "reshardfs --help", "option %s needs a value", name);
    if (valued)
        return set_value(out, option, value, err);
    if (option->kind == RFS_OPTION_SWITCH)
        *(bool *)((char *)out + option->member) = true;
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

const char *rfs_options_value(const struct rfs_options *options, const struct rfs_option *option,
                              char out[RFS_OPTION_BYTES])
{
    const void *member = (const char *)options + option->member;
    int64_t number = -1;

    switch (option->kind) {
    case RFS_OPTION_IGNORED:
        return NULL;
    case RFS_OPTION_SWITCH:
        return *(const bool *)member ? "" : NULL;
    case RFS_OPTION_WORD:
        return *(const int *)member < 0 ? NULL : option->words[*(const int *)member];
    case RFS_OPTION_SIZE:
        number = (int64_t) * (const uint64_t *)member; /* RFS_NO_SIZE is -1 */
        break;
    case RFS_OPTION_COUNT:
        number = *(const uint32_t *)member;
        break;
    case RFS_OPTION_DESCRIPTOR:
        number = *(const int *)member;
        break;
    case RFS_OPTION_STEP:
        if (options->all_steps)
            return "all";
        number = options->step;
        break;
    case RFS_OPTION_NUMBER:
        number = *(const int64_t *)member;
        break;
    default:
        return *(char *const *)member;
    }
    snprintf(out, RFS_OPTION_BYTES, "%" PRId64, number);
    return number >= 0 && (uint64_t)number >= least_of(option) ? out : NULL;
}

bool rfs_options_differs(const struct rfs_options *options, const struct rfs_option *option)
{
    char value[RFS_OPTION_BYTES];
    char other[RFS_OPTION_BYTES];
    const char *set = rfs_options_value(options, option, value);
    const char *usual = rfs_options_value(&defaults, option, other);

    return set && (!usual || strcmp(set, usual) != 0);
}

const struct rfs_option *rfs_options_first(const struct rfs_options *options, unsigned with,
                                           unsigned without)
{
    const struct rfs_option *option;

    for (size_t i = 0; (option = rfs_option_at(i)); i++)
        if ((option->flags & with) && !(option->flags & without) &&
            rfs_options_differs(options, option))
            return option;
    return NULL;
}

void rfs_options_write(const struct rfs_options *options, unsigned flags, FILE *out)
{
    const struct rfs_option *option;
    const char *between = "";

    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        char text[RFS_OPTION_BYTES];
        const char *value = option->flags & flags ? rfs_options_value(options, option, text) : NULL;
        if (!value)
            continue;
        fputs(between, out);
        rfs_setting_write(out, option->name, option->kind == RFS_OPTION_SWITCH ? NULL : value);
        between = ",";
    }
}
