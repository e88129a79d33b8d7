/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/variables.h"

#include <strings.h>

#define FILE_NAME_MOST 200 /* bytes */

/* The digits of a fraction beyond these are dropped; so many of a tebibyte still fit 64 bits. */
#define FRACTION_DIGITS 7

/* ---- the table ------------------------------------------------------------------------------- */

enum {
    VIEW = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_RANKS,
    PARTS = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_PARTS,
    BOTH = VIEW | PARTS,
    ASKS = RFS_OPTION_ASKS,
    INDEX = RFS_OPTION_INDEX,
    CONTENT = RFS_OPTION_CONTENT,
    STORE = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_RANKS | RFS_OPTION_OF_PARTS | RFS_OPTION_OF_STORE,
};

static const char *const ciphers[] = {"AES-GCM", "AES-CBC", "SM4-CBC", "AES-GCM-untagged", NULL};
static const char *const checks[] = {"crc", NULL};
static const char *const shown[] = {"ranks", "huggingface", "unified",
                                    "dcp",   "mindformers", "hyper_parallel",
                                    "peft",  "gguf",        NULL};
static const char *const unwrap[] = {"unwrap", NULL};
static const char *const experts[] = {"each", "fused", NULL};
static const char *const orders[] = {"program", "layers", NULL};
static const char *const ways[] = {"auto", "direct", "cached", NULL};
static const char *const hidden[] = {"hide", "show", "no", NULL};
static const char *const sandboxes[] = {"auto", "on", "log", "off", NULL};
static const char *const levels[] = {"error", "warning", "info", "debug", NULL};

#define ROW(name, kind, flags, ...) MEMBER(#name, name, kind, flags, __VA_ARGS__)
#define MEMBER(name, member, kind, flags, ...)                                                     \
    {                                                                                              \
        name, RFS_OPTION_##kind, offsetof(struct rfs_options, member), flags, __VA_ARGS__          \
    }
#define IGNORED(word)                                                                              \
    {                                                                                              \
        .name = (word), .kind = RFS_OPTION_IGNORED                                                 \
    }

#define SHOWS(view) (1U << RFS_SHOW_##view)
enum {
    /* Views of files with parts of one whole checkpoint. */
    WHOLE = SHOWS(HUGGINGFACE) | SHOWS(UNIFIED) | SHOWS(PEFT) | SHOWS(GGUF),
    /* Views with one file of tensors. */
    ONE = SHOWS(PEFT) | SHOWS(GGUF),
    /* Views that describe how they cut tensors. */
    CUT = SHOWS(DCP) | SHOWS(MINDFORMERS) | SHOWS(HYPER_PARALLEL),
    ALL = WHOLE | CUT | SHOWS(RANKS),
};

static const struct rfs_option_limit of_dst[] = {
    {WHOLE, NULL, NULL, "view=%s shows one whole checkpoint, which no strategy cuts",
     "leave the destination's strategy out"},
    {0}};
static const char order_limit[] =
    "option order=layers is for safetensors files of ranks or of a whole model";
static const char order_remedy[] = "-o format=safetensors, -o view=huggingface or -o view=unified";
static const struct rfs_option_limit of_order[] = {
    {ALL, NULL, "safetensors", order_limit, order_remedy},
    {CUT | ONE, NULL, NULL, order_limit, order_remedy},
    {0}};
static const struct rfs_option_limit of_file_size[] = {
    {ALL & ~WHOLE, NULL, NULL,
     "option file_size divides one whole checkpoint into files, and a view of ranks has one for "
     "each rank",
     "-o view=huggingface or -o view=unified"},
    {SHOWS(PEFT), NULL, NULL, "PEFT reads one file of tensors, which file_size would divide",
     "leave file_size out"},
    {SHOWS(GGUF), NULL, NULL, "view=%s has one file, which file_size would divide",
     "leave file_size out"},
    {0}};
static const struct rfs_option_limit of_chunk_size[] = {
    {ALL & ~SHOWS(DCP), NULL, NULL, "option chunk_size is for view=dcp", "-o view=dcp"}, {0}};
static const struct rfs_option_limit of_lora_alpha[] = {
    {ALL & ~SHOWS(PEFT), NULL, NULL, "option lora_alpha is for view=peft", "-o view=peft"}, {0}};
static const struct rfs_option_limit of_adapter[] = {
    {ALL & ~SHOWS(PEFT), NULL, NULL, "option adapter is for view=peft", "-o view=peft"}, {0}};
static const struct rfs_option_limit of_format[] = {
    {SHOWS(DCP), NULL, NULL, "view=%s is made of the files of torch.distributed.checkpoint",
     "leave format= out"},
    {SHOWS(GGUF), NULL, "gguf", "view=%s is made of a GGUF file", "leave format= out"},
    {(WHOLE & ~SHOWS(GGUF)) | CUT, NULL, "safetensors", "view=%s is made of safetensors files",
     "leave format= out"},
    {0}};
static const char crc_limit[] =
    "option crc is for .ckpt files: in a safetensors file the checksum would stand before the "
    "data that it sums up";
static const struct rfs_option_limit of_crc[] = {
    {ALL, "pt", NULL, "option crc is for .ckpt files", "-o zip_crc"},
    {SHOWS(RANKS), "safetensors", NULL, crc_limit, "leave crc out, or -o format=ckpt"},
    {ALL, "safetensors", NULL, crc_limit, "leave crc out"},
    {ALL, NULL, "ckpt", "option crc is for .ckpt files", "leave crc out"},
    {0}};
static const char zip_crc_limit[] = "option zip_crc is for .pt files";
static const struct rfs_option_limit of_zip_crc[] = {
    {SHOWS(RANKS), NULL, "pt", zip_crc_limit, "-o format=pt"},
    {ALL, NULL, "pt", zip_crc_limit, "leave zip_crc out"},
    {0}};
static const struct rfs_option_limit of_prefix[] = {
    {ALL & ~SHOWS(RANKS), NULL, NULL, "view=%s has file names of its own, without a prefix",
     "leave prefix= out"},
    {0}};

/*
 * The order is that of --help. Strategies, maps of names and rules are in the keys of kept data by
 * digests of their own. dev and suid are ignored because the mount is always nodev and nosuid.
 */
static const struct rfs_option table[] = {
    ROW(src_strategy, PATHS, VIEW | ASKS, .help = "the strategy of SRC; none: one whole checkpoint",
        .heading = "strategies"),
    ROW(dst_strategy, PATHS, VIEW | ASKS,
        .help = "the strategy to show; none: one whole checkpoint", .limits = of_dst),
    ROW(src_rules, RULES, VIEW | ASKS, .help = "rules instead of a strategy of SRC, or tp4"),
    ROW(dst_rules, RULES, VIEW | ASKS, .help = "rules instead of a strategy to show, or tp4",
        .limits = of_dst),
    ROW(src_ranks, COUNT, VIEW, .example = "8", .help = "the number of ranks for src_rules"),
    ROW(dst_ranks, COUNT, VIEW, .example = "4",
        .help = "the number of ranks for dst_rules, or of files for view=dcp or hyper_parallel"),

    ROW(convert, RULES, VIEW | ASKS, .help = "rules between a training's names and HuggingFace's",
        .heading = "conversion"),
    ROW(hf_config, PATH, VIEW, .help = "the model's config.json"),
    ROW(drop_source, TEXT, VIEW | CONTENT,
        .help = "leave out names of SRC that match, before the rules"),
    ROW(convert_options, TEXT, VIEW, .help = "options of the rules, as NAME=WORD:NAME=WORD"),
    ROW(experts, WORD, VIEW | ASKS | CONTENT, .words = experts,
        .help = "a tensor for each of HuggingFace's experts, or one for all of a layer"),

    ROW(rank_dir, TEXT, VIEW | INDEX, .help = "the name of rank folders, with one %d",
        .heading = "source"),
    ROW(file, TEXT, VIEW | INDEX, .help = "use only files with matching names"),
    ROW(files, PATH, BOTH | ASKS | INDEX, .help = "a map from ranks to files, instead of folders"),
    ROW(origins, PATHS, BOTH, .help = "where the map of files= may lead beside its folder"),
    ROW(group_info, PATH, VIEW | INDEX,
        .help = "files that name equal ranks, to replace lost ones"),
    ROW(step, STEP, VIEW | INDEX | ASKS, .example = "1000, or step=all",
        .help = "choose this save, or show each in a folder"),
    ROW(epoch, NUMBER, VIEW | INDEX | ASKS, .example = "3",
        .help = "choose the save of this epoch"),
    ROW(entry, TEXT, VIEW | ASKS | INDEX,
        .help = "the dict of tensors in a state of torch, as model"),
    ROW(segmented, SWITCH, VIEW | ASKS | INDEX, .help = "all files of a folder are one checkpoint"),
    ROW(segmented_skip, TEXT, VIEW | INDEX,
        .help = "leave out parameters with these prefixes, as A:B"),
    ROW(check, WORD, VIEW, .words = checks, .help = "verify checksums before files are used"),
    ROW(follow_links, SWITCH, BOTH, .help = "follow links out of SRC, too"),

    ROW(key_file, PATH, VIEW | ASKS, .help = "the file with the key", .heading = "key"),
    ROW(key_env, TEXT, VIEW | ASKS, .help = "the variable with the key"),
    ROW(key_fd, DESCRIPTOR, VIEW | ASKS, .example = "3",
        .help = "the descriptor to read the key from"),
    ROW(key_mode, WORD, VIEW, .words = ciphers, .help = "the cipher"),

    MEMBER("view", shown, WORD, VIEW | ASKS, .words = shown,
           .help = "a file for each rank, or another layout", .heading = "output"),
    ROW(order, WORD, VIEW | ASKS | CONTENT, .words = orders,
        .help = "the order of tensors in safetensors files", .limits = of_order),
    ROW(file_size, SIZE, VIEW, .example = "5G",
        .help = "bytes of tensors in each file of a whole checkpoint", .least = 1,
        .limits = of_file_size),
    ROW(chunk_size, SIZE, VIEW, .example = "256M",
        .help = "bytes of tensors in each chunk of view=dcp", .least = 1, .limits = of_chunk_size),
    ROW(adapter, TEXT, VIEW | CONTENT, .help = "the adapter of several that view=peft shows",
        .limits = of_adapter),
    ROW(lora_alpha, COUNT, VIEW | CONTENT, .example = "32",
        .help = "the lora_alpha of the adapter that view=peft shows", .limits = of_lora_alpha),
    ROW(format, WORD, BOTH | ASKS | CONTENT, .words = rfs_format_words,
        .help = "the format of the files", .limits = of_format),
    ROW(names, PATH, VIEW | ASKS, .words = unwrap,
        .help = "a map from names in SRC to names shown; or without wrappers"),
    ROW(only, TEXT, VIEW | ASKS | CONTENT,
        .help = "show only names that match, as model.*;lm_head.*"),
    ROW(drop, TEXT, VIEW | ASKS | CONTENT, .help = "leave out names that match"),
    ROW(dequantize, SWITCH, VIEW | ASKS | INDEX | CONTENT,
        .help = "show quantized weights as bfloat16, or as dtype= says"),
    ROW(dtype, TEXT, VIEW | ASKS | CONTENT, .help = "bfloat16, or rules such as *.norm.*=float32"),
    ROW(crc, SWITCH, VIEW | ASKS | CONTENT, .help = "add checksums to .ckpt files",
        .limits = of_crc),
    ROW(nshards, COUNT, PARTS | ASKS, .example = "4", .help = "the number of hfai's parts to show"),
    ROW(large_size, SIZE, PARTS, .example = "256M",
        .help = "divide larger tensors over hfai's parts"),
    ROW(uneven_steps, SWITCH, PARTS, .help = "accept parts with different counts of steps"),
    ROW(zip_crc, SWITCH, BOTH | CONTENT, .help = "add checksums to .pt files",
        .limits = of_zip_crc),
    ROW(prefix, FILE_NAME, VIEW, .example = RFS_PREFIX, .help = "the beginning of file names",
        .limits = of_prefix),

    ROW(endpoint, TEXT, STORE | INDEX, .help = "the address of the store of s3://",
        .heading = "object storage"),
    ROW(region, TEXT, STORE, .help = "the region of the bucket"),
    ROW(profile, TEXT, STORE, .help = "the profile in ~/.aws"),
    ROW(path_style, SWITCH, STORE, .help = "the bucket is in the path, not in the host's name"),
    ROW(anonymous, SWITCH, STORE, .help = "read public objects without credentials"),
    ROW(connections, COUNT, STORE, .example = "64", .help = "requests under way at once",
        .most = 256),
    ROW(tries, COUNT, STORE, .example = "10", .help = "attempts of a request that fails",
        .most = 100),
    ROW(timeout, COUNT, STORE, .example = "30",
        .help = "seconds below 1 KiB/s before another attempt", .most = 3600),

    ROW(index_cache, FOLDER, BOTH, .help = "the folder that keeps headers for the next mount",
        .heading = "caches, checks"),
    ROW(cache, SIZE, BOTH, .example = "2G", .help = "memory for tensor slices (an eighth of all)"),
    ROW(strict, SWITCH, VIEW | CONTENT,
        .help = "refuse parameters that one of the strategies lacks"),
    ROW(trust_strategy, SWITCH, VIEW | CONTENT,
        .help = "go on though ranks contradict the strategy of SRC"),

    ROW(io, WORD, 0, .words = ways, .help = "bypass the page cache, use it, or decide by format",
        .heading = "mount"),
    ROW(control, WORD, 0, .words = hidden, .help = "the folder .reshardfs"),
    ROW(sandbox, WORD, 0, .words = sandboxes, .help = "rights that the server gives up"),
    ROW(max_threads, COUNT, 0, .example = "16", .help = "threads that answer requests",
        .most = 256),
    ROW(allow_other, SWITCH, 0, .help = "let other users in"),
    ROW(allow_root, SWITCH, 0, .help = "let root in"),
    ROW(allow_decrypted, SWITCH, 0, .help = "let them read decrypted files, too"),
    ROW(default_permissions, SWITCH, 0, .help = "the kernel checks modes and owners"),
    ROW(check_first, SWITCH, 0, .help = "plan every rank before the mount"),
    ROW(follow, COUNT, 0, .example = "10", .alone = "5", .most = 86400,
        .help = "show saves as they come, after so many seconds"),
    ROW(nonempty, SWITCH, 0, .help = "mount over a folder that is not empty"),
    ROW(auto_unmount, SWITCH, 0, .help = "unmount when the server ends"),
    ROW(noexec, SWITCH, 0, .help = "run no programs from it"),
    ROW(fsname, TEXT, 0, .help = "shown by mount(8) instead of SRC"),
    ROW(subtype, TEXT, 0, .help = "shown by mount(8) instead of reshardfs"),

    ROW(config, PATH, 0, .help = "a file of more options", .heading = "general"),
    ROW(log_level, WORD, 0, .words = levels, .help = "the least urgent messages to log"),
    ROW(debug, SWITCH, 0, .help = "like --debug: stay in the foreground, print requests"),
    ROW(rw, SWITCH, 0, .help = NULL),

    IGNORED("ro"),
    IGNORED("dev"),
    IGNORED("nodev"),
    IGNORED("suid"),
    IGNORED("nosuid"),
    IGNORED("exec"),
    IGNORED("async"),
    IGNORED("sync"),
    IGNORED("dirsync"),
    IGNORED("atime"),
    IGNORED("noatime"),
    IGNORED("diratime"),
    IGNORED("nodiratime"),
    IGNORED("relatime"),
    IGNORED("norelatime"),
    IGNORED("strictatime"),
    IGNORED("nostrictatime"),
    IGNORED("lazytime"),
    IGNORED("nolazytime"),
    IGNORED("auto"),
    IGNORED("noauto"),
    IGNORED("nouser"),
    IGNORED("users"),
    IGNORED("owner"),
    IGNORED("group"),
    IGNORED("nofail"),
    IGNORED("defaults"),
    IGNORED("_netdev"),
};

enum { N_OPTIONS = sizeof table / sizeof *table };

const struct rfs_option *rfs_option_at(size_t i)
{
    return i < N_OPTIONS ? &table[i] : NULL;
}

const struct rfs_option *rfs_option_find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

char *rfs_option_typed(const char *argument)
{
    const bool flag = strncmp(argument, "--", 2) == 0;
    const char *text = flag ? argument + 2 : argument;
    const size_t n = strcspn(text, "=");
    RFS_FREE char *name = strndup(text, n);

    for (char *at = name; at && *at; at++)
        *at = *at == '-' ? '_' : *at;
    const struct rfs_option *option = name && (flag || text[n]) ? rfs_option_find(name) : NULL;
    if (!option)
        return NULL;
    return rfs_text_printf("-o %s%s", name,
                           text[n]                        ? text + n
                           : rfs_option_is_valued(option) ? "=VALUE"
                                                          : "");
}

const char *rfs_option_word(const char *name, int number)
{
    const struct rfs_option *option = rfs_option_find(name);

    for (int i = 0; option && option->words && i <= number; i++)
        if (!option->words[i] || i == number)
            return option->words[i];
    return NULL;
}

/* Writes the form of an option's value for --help: "FILE", "N", "ckpt|safetensors|pt". */
static const char *write_form(const struct rfs_option *option, char *out, size_t cap)
{
    static const char *const kinds[] = {
        [RFS_OPTION_SWITCH] = "",          [RFS_OPTION_TEXT] = "TEXT",
        [RFS_OPTION_PATH] = "FILE",        [RFS_OPTION_PATHS] = "FILE[:FILE]",
        [RFS_OPTION_RULES] = "RULES|FILE", [RFS_OPTION_FOLDER] = "FOLDER|no",
        [RFS_OPTION_FILE_NAME] = "NAME",   [RFS_OPTION_SIZE] = "SIZE",
        [RFS_OPTION_COUNT] = "N",          [RFS_OPTION_NUMBER] = "N",
        [RFS_OPTION_STEP] = "N|all",       [RFS_OPTION_DESCRIPTOR] = "N",
        [RFS_OPTION_IGNORED] = "",         [RFS_OPTION_WORD] = "",
    };
    size_t n;

    n = (size_t)snprintf(out, cap, "%s", kinds[option->kind]);
    for (size_t i = 0; option->words && option->words[i] && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", n > 0 ? "|" : "", option->words[i]);
    return out;
}

enum { HELP_COLUMN = 28 }; /* of the explanations */

void rfs_options_help(unsigned flags, FILE *out)
{
    const char *heading = NULL;

    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct rfs_option *option = &table[i];
        char takes[256];
        heading = option->heading ? option->heading : heading;
        if (!option->help || (option->flags & flags) != flags)
            continue;
        if (heading)
            fprintf(out, "\n%s:\n", heading);
        heading = NULL;
        const int n =
            fprintf(out, "  %s%s%s  ", option->name, rfs_option_is_valued(option) ? "=" : "",
                    write_form(option, takes, sizeof takes));
        fprintf(out, "%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 0, "", option->help);
    }
}

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

/* Reads a size by hand, as strtod would take the point from the locale. */
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
const struct rfs_options rfs_options_defaults = {
    .step = RFS_ANY_NUMBER,
    .epoch = RFS_ANY_NUMBER,
    .experts = -1,
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
    *out = rfs_options_defaults;
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

/* Returns the greatest number that an option takes. */
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

/* Lists the words of an option: "io=auto, direct or cached". */
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

bool rfs_option_is_path(const struct rfs_option *option, const char *value)
{
    int word;

    return option->kind == RFS_OPTION_PATH &&
           !(option->words && set_word(&word, option->words, value));
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

/* Finds the option that was probably meant, or NULL. */
static const struct rfs_option *nearest_option(const char *name, unsigned flags)
{
    const struct rfs_option *nearest = NULL;
    struct rfs_suggest suggest = rfs_suggest_begin(name, RFS_SUGGEST_WORD);

    /* Options without an effect have no help. */
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (table[i].help && (table[i].flags & flags) == flags &&
            rfs_suggest_offer(&suggest, table[i].name))
            nearest = &table[i];
    return nearest;
}

/* Refuses NAME, which is no option with all of FLAGS; perhaps another was meant. -EINVAL. */
static int refuse_name(const char *name, unsigned flags, struct rfs_error *err)
{
    const struct rfs_option *nearest = nearest_option(name, flags);
    char remedy[96] = "reshardfs --help";

    if (nearest)
        snprintf(remedy, sizeof remedy, "%s%s", nearest->name,
                 rfs_option_is_valued(nearest) ? "=VALUE" : "");
    return rfs_fail_usage(err, remedy, "unknown option '%s'", name);
}

int rfs_options_set(struct rfs_options *out, unsigned flags, const char *name, const char *value,
                    struct rfs_error *err)
{
    const struct rfs_option *option = rfs_option_find(name);
    const bool valued = option && rfs_option_is_valued(option);

    if (strcmp(name, "key") == 0) /* its value is secret, and must not appear in the message */
        return rfs_fail_usage(err, "-o key_file=FILE, key_env=NAME or key_fd=N",
                              "a key cannot be given on a command line, where other users see it");
    if (!option || (option->flags & flags) != flags)
        return refuse_name(name, flags, err);
    if (!valued && value)
        return rfs_fail_usage(err, name, "option %s takes no value", name);
    value = valued && !value ? option->alone : value;
    if (valued && (!value || (!*value && option->kind != RFS_OPTION_FILE_NAME)))
        return rfs_fail_usage(err, "reshardfs --help", "option %s needs a value", name);
    if (valued)
        return set_value(out, option, value, err);
    if (option->kind == RFS_OPTION_SWITCH)
        *(bool *)((char *)out + option->member) = true;
    return 0;
}

/* Takes one option from its variable, which the message names. */
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

void rfs_options_hint_comma(const struct rfs_settings *settings, size_t at, struct rfs_error *err)
{
    const struct rfs_setting *setting = &settings->list.data[at];
    const struct rfs_option *before =
        at > 0 && setting->name[0] ? rfs_option_find(setting[-1].name) : NULL;
    char remedy[512];

    if (!before || !rfs_option_is_text(before) || !setting[-1].value || setting->value ||
        rfs_option_find(setting->name) || !strpbrk(setting->name, "./"))
        return;
    snprintf(remedy, sizeof remedy, "%s='%s\\,%s', if it is part of that value", before->name,
             setting[-1].value, setting->name);
    rfs_fail_usage(err, remedy, "unknown option '%s'", setting->name);
}

int rfs_options_check_twice(const struct rfs_settings *settings, struct rfs_error *err)
{
    for (size_t i = 0; i < settings->list.n; i++) {
        const struct rfs_setting *setting = &settings->list.data[i];
        const struct rfs_setting *last = rfs_settings_last(settings, setting->name);
        const struct rfs_option *option = rfs_option_find(setting->name);
        if (!option || !setting->value || !last->value || strcmp(setting->value, last->value) == 0)
            continue; /* a missing or needless value is refused elsewhere */
        return rfs_fail_usage(
            err,
            rfs_text_ends(option->name, "_strategy") ? "one of them; -s and -d are strategies, too"
                                                     : "one of them",
            "%s%soption %s is given twice, as '%s' and as '%s'", last->origin ? last->origin : "",
            last->origin ? ": " : "", option->name, setting->value, last->value);
    }
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
    const char *usual = rfs_options_value(&rfs_options_defaults, option, other);

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

static bool fits(const struct rfs_option_limit *limit, unsigned view, const char *format)
{
    if (!(limit->views & view))
        return false;
    if (!format)
        return !limit->format && !limit->but;
    return (!limit->format || strcmp(limit->format, format) == 0) &&
           (!limit->but || strcmp(limit->but, format) != 0);
}

/* Options of the output come before those of the strategies. */
int rfs_options_check_limits(const struct rfs_options *options, const char *format,
                             struct rfs_error *err)
{
    const unsigned view = 1U << options->shown;

    for (size_t i = N_OPTIONS; i-- > 0;) {
        const struct rfs_option_limit *limit = table[i].limits;
        if (!limit || !rfs_options_differs(options, &table[i]))
            continue;
        for (; limit->views; limit++)
            if (fits(limit, view, format))
                return rfs_fail_usage(err, limit->remedy, limit->text, shown[options->shown]);
    }
    return 0;
}

const char *rfs_options_shown(const struct rfs_options *options)
{
    return shown[options->shown];
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
        rfs_settings_write(out, option->name, option->kind == RFS_OPTION_SWITCH ? NULL : value);
        between = ",";
    }
}
