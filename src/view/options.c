/* SPDX-License-Identifier: Apache-2.0 */
#include "view/options.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
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

static bool has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

/* How the value of a key is read, and the member that it goes to. */
enum form { TEXT, NAME_PART, FLAG, SIZE, COUNT, NUMBER, STEP, DESCRIPTOR, FORMAT, SHOWN, CHECK };

struct key {
    const char *name;
    enum form form;
    size_t member;
    const char *remedy; /* an example of what it takes */
};

#define KEY(name, form, remedy)                                                                    \
    {                                                                                              \
#name, form, offsetof(struct rfs_options, name), remedy                                    \
    }

static const struct key keys[] = {
    KEY(src_strategy, TEXT, NULL),
    KEY(dst_strategy, TEXT, NULL),
    KEY(src_rules, TEXT, NULL),
    KEY(dst_rules, TEXT, NULL),
    KEY(src_ranks, COUNT, "a number of ranks such as src_ranks=8"),
    KEY(dst_ranks, COUNT, "a number of ranks such as dst_ranks=4"),
    KEY(rank_dir, TEXT, NULL),
    KEY(file, TEXT, NULL),
    KEY(files, TEXT, NULL),
    KEY(group_info, TEXT, NULL),
    KEY(step, STEP, "a step such as step=1000, or step=all"),
    KEY(epoch, NUMBER, "an epoch such as epoch=3"),
    KEY(entry, TEXT, NULL),
    KEY(segmented, FLAG, NULL),
    KEY(segmented_skip, TEXT, NULL),
    {"check", CHECK, offsetof(struct rfs_options, check_crc), "check=crc"},
    KEY(follow_links, FLAG, NULL),
    KEY(key_file, TEXT, NULL),
    KEY(key_env, TEXT, NULL),
    KEY(key_mode, TEXT, NULL),
    KEY(key_fd, DESCRIPTOR, "an open file descriptor such as key_fd=3"),
    KEY(format, FORMAT, "format=ckpt, format=safetensors or format=pt"),
    {"view", SHOWN, offsetof(struct rfs_options, shown),
     "view=ranks, view=huggingface or view=unified"},
    KEY(file_size, SIZE, "a size such as file_size=5G"),
    KEY(names, TEXT, NULL),
    KEY(dtype, TEXT, NULL),
    KEY(crc, FLAG, NULL),
    KEY(nshards, COUNT, "a number of parts such as nshards=4"),
    KEY(large_size, SIZE, "a size such as large_size=256M"),
    KEY(uneven_steps, FLAG, NULL),
    KEY(zip_crc, FLAG, NULL),
    KEY(prefix, NAME_PART, "a name such as prefix=checkpoint_"),
    KEY(index_cache, TEXT, NULL),
    KEY(cache, SIZE, "a size such as cache=2G"),
    KEY(strict, FLAG, NULL),
};

/* A whole number up to MOST. False when it is not one. */
static bool parse_number(const char *text, uint64_t most, uint64_t *number)
{
    return take_whole(&text, number) && !*text && *number <= most;
}

static int set_text(void *member, const char *value, struct rfs_error *err)
{
    char **slot = member;
    free(*slot);
    *slot = strdup(value);
    return *slot ? 0 : rfs_fail_memory(err);
}

/* VALUE as the number of WORDS that it is, or -1. */
static int find_word(const char *value, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(value, words[i]) == 0)
            return i;
    return -1;
}

static bool set_format(struct rfs_options *out, const char *value)
{
    static const char *const words[] = {"ckpt", "safetensors", "pt"};
    const int word = find_word(value, words, 3);

    out->format_given = true;
    out->format = word < 0 ? RFS_FORMAT_CKPT : (enum rfs_format)word;
    return word >= 0;
}

static bool set_shown(struct rfs_options *out, const char *value)
{
    static const char *const words[] = {"ranks", "huggingface", "unified"};
    const int word = find_word(value, words, 3);

    out->shown = word < 0 ? RFS_SHOW_RANKS : (enum rfs_shown)word;
    return word >= 0;
}

static bool set_step(struct rfs_options *out, const char *value)
{
    uint64_t number = 0;

    out->all_steps = strcmp(value, "all") == 0;
    if (!out->all_steps && !parse_number(value, INT64_MAX, &number))
        return false;
    out->step = out->all_steps ? RFS_ANY_NUMBER : (int64_t)number;
    return true;
}

/* Sets a member that is not a text. False when the value is not of its form. */
static bool set_parsed(struct rfs_options *out, const struct key *key, const char *value)
{
    void *member = (char *)out + key->member;
    uint64_t number = 0;

    switch (key->form) {
    case SIZE:
        out->cache_given |= member == &out->cache;
        return rfs_options_size(value, member) &&
               (out->file_size > 0 || key->member != offsetof(struct rfs_options, file_size));
    case COUNT:
        if (!parse_number(value, UINT32_MAX, &number) || number == 0)
            return false;
        *(uint32_t *)member = (uint32_t)number;
        return true;
    case NUMBER:
        if (!parse_number(value, INT64_MAX, &number))
            return false;
        *(int64_t *)member = (int64_t)number;
        return true;
    case DESCRIPTOR:
        if (!parse_number(value, INT32_MAX, &number))
            return false;
        *(int *)member = (int)number;
        return true;
    case STEP:
        return set_step(out, value);
    case FORMAT:
        return set_format(out, value);
    case SHOWN:
        return set_shown(out, value);
    case CHECK:
        *(bool *)member = strcmp(value, "crc") == 0;
        return *(bool *)member;
    default:
        return false;
    }
}

/* What a key of that form takes, in words. */
static const char *taken(enum form form)
{
    return form == SIZE                     ? "a size"
           : form == FORMAT                 ? "a format"
           : form == SHOWN || form == CHECK ? "one that is known"
                                            : "a number that it takes";
}

static int set_option(struct rfs_options *out, const char *name, const char *value,
                      struct rfs_error *err)
{
    const struct key *key = NULL;

    if (strcmp(name, "key") == 0) /* what follows it is not shown to anybody else */
        return rfs_fail_usage(err, "key_file=FILE, key_env=NAME or key_fd=N",
                              "a key is not taken from a command line, which everybody sees");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0)
            key = &keys[i];
    if (!key || (key->form == FLAG && value))
        return rfs_fail_usage(err, "reshardfs --help",
                              key ? "option %s takes no value" : "unknown option '%s'", name);
    void *member = (char *)out + key->member;
    if (key->form == FLAG) {
        *(bool *)member = true;
        return 0;
    }
    if (!value || (!*value && key->form != NAME_PART))
        return rfs_fail_usage(err, "reshardfs --help", "option %s needs a value", name);
    if (key->form == TEXT)
        return set_text(member, value, err);
    if (key->form == NAME_PART) {
        if (strchr(value, '/') || value[0] == '.' || strlen(value) > PREFIX_MAX ||
            has_control(value))
            return rfs_fail_usage(err, key->remedy,
                                  "option %s=%s: not the beginning of a file name", name, value);
        return set_text(member, value, err);
    }
    if (set_parsed(out, key, value))
        return 0;
    return rfs_fail_usage(err, key->remedy, "option %s=%s: not %s", name, value, taken(key->form));
}

/* Rules stand for a strategy file, and need to know for how many ranks. */
static int check_rules(const char *side, const char *strategy, const char *rules, uint32_t ranks,
                       struct rfs_error *err)
{
    char remedy[32];

    snprintf(remedy, sizeof remedy, rules ? "%s_ranks=8" : "%s_rules=FILE", side);
    if (!rules != !ranks)
        return rfs_fail_usage(err, remedy, "option %s_%s needs %s_%s as well", side,
                              rules ? "rules" : "ranks", side, rules ? "ranks" : "rules");
    if (rules && strategy)
        return rfs_fail_usage(err, "only one of them", "both %s_strategy and %s_rules are given",
                              side, side);
    return 0;
}

static int check_together(const struct rfs_options *o, struct rfs_error *err)
{
    const int rc = check_rules("src", o->src_strategy, o->src_rules, o->src_ranks, err);

    if (!rc && o->segmented_skip && !o->segmented)
        return rfs_fail_usage(err, "segmented as well, or names= with null for each",
                              "option segmented_skip leaves out parameters of segmented "
                              "checkpoints only");
    return rc ? rc : check_rules("dst", o->dst_strategy, o->dst_rules, o->dst_ranks, err);
}

int rfs_options_parse(const char *text, struct rfs_options *out, struct rfs_error *err)
{
    RFS_FREE char *copy = strdup(text ? text : "");
    char *rest = copy;

    *out = (struct rfs_options){.cache = rfs_options_default_cache(),
                                .step = RFS_ANY_NUMBER,
                                .epoch = RFS_ANY_NUMBER,
                                .key_fd = -1,
                                .large_size = RFS_NO_SIZE};
    if (!copy || !(out->prefix = strdup(RFS_PREFIX)))
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
    return check_together(out, err);
}

/* The value of a number, or of a word, as it is written. False when it is the one that does nothing. */
static bool write_value(const struct rfs_options *options, const struct key *key,
                        const char *format, char out[32])
{
    static const char *const shown[] = {"ranks", "huggingface", "unified"};
    const void *member = (const char *)options + key->member;
    int64_t number = RFS_ANY_NUMBER;

    switch (key->form) {
    case SIZE: {
        const uint64_t size = *(const uint64_t *)member;
        snprintf(out, 32, "%" PRIu64, size);
        return size != RFS_NO_SIZE && (member != &options->file_size || size > 0);
    }
    case COUNT:
        snprintf(out, 32, "%" PRIu32, *(const uint32_t *)member);
        return *(const uint32_t *)member > 0;
    case STEP:
    case NUMBER:
        number = *(const int64_t *)member;
        snprintf(out, 32, "%" PRId64, number);
        if (key->form == STEP && options->all_steps)
            snprintf(out, 32, "all");
        return number != RFS_ANY_NUMBER || (key->form == STEP && options->all_steps);
    case DESCRIPTOR:
        snprintf(out, 32, "%d", *(const int *)member);
        return *(const int *)member >= 0;
    case FORMAT:
        snprintf(out, 32, "%s", format);
        return true;
    case SHOWN:
        snprintf(out, 32, "%s", shown[options->shown]);
        return true;
    case CHECK:
        snprintf(out, 32, "crc");
        return *(const bool *)member;
    default:
        return false;
    }
}

void rfs_options_write(const struct rfs_options *options, const char *format, FILE *out)
{
    const char *between = "";

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct key *key = &keys[i];
        const void *member = (const char *)options + key->member;
        char value[32];
        if (key->form == TEXT || key->form == NAME_PART) {
            RFS_FREE char *text = NULL;
            if (!*(char *const *)member)
                continue;
            text = rfs_text_option_value(*(char *const *)member);
            fprintf(out, "%s%s=%s", between, key->name, text ? text : "");
        } else if (key->form == FLAG) {
            if (!*(const bool *)member)
                continue;
            fprintf(out, "%s%s", between, key->name);
        } else if (write_value(options, key, format, value)) {
            fprintf(out, "%s%s=%s", between, key->name, value);
        } else {
            continue;
        }
        between = ",";
    }
}

void rfs_options_free(struct rfs_options *options)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].form == TEXT || keys[i].form == NAME_PART)
            free(*(char **)((char *)options + keys[i].member));
}

struct rfs_source_spec rfs_options_spec(const struct rfs_options *options, const char *path)
{
    return (struct rfs_source_spec){
        .path = path,
        .rank_dir = options->rank_dir,
        .file = options->file,
        .files = options->files,
        .group_info = options->group_info,
        .step = options->step,
        .epoch = options->epoch,
        .entry = options->entry,
        .segmented = options->segmented,
        .segmented_skip = options->segmented_skip,
        .check_crc = options->check_crc,
    };
}
