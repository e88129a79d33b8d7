/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include "base/suggest.h"

enum {
    VIEW = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_RANKS,
    PARTS = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_PARTS,
    BOTH = VIEW | PARTS,
    ASKS = RFS_OPTION_ASKS,
    INDEX = RFS_OPTION_INDEX,
    CONTENT = RFS_OPTION_CONTENT,
    STORE = RFS_OPTION_OF_VIEW | RFS_OPTION_OF_RANKS | RFS_OPTION_OF_PARTS | RFS_OPTION_OF_STORE,
};

static const char *const formats[] = {"ckpt", "safetensors", "pt", NULL};
static const char *const ciphers[] = {"AES-GCM", "AES-CBC", "SM4-CBC", "AES-GCM-untagged", NULL};
static const char *const checks[] = {"crc", NULL};
static const char *const shown[] = {"ranks", "huggingface", "unified", "dcp", "mindformers", NULL};
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

/*
 * The order is that of --help. Strategies, maps of names and rules are in the keys of kept data by
 * digests of their own. dev and suid are ignored because the mount is always nodev and nosuid.
 */
static const struct rfs_option options[] = {
    ROW(src_strategy, PATHS, VIEW | ASKS, .help = "the strategy of SRC; none: one whole checkpoint",
        .heading = "strategies"),
    ROW(dst_strategy, PATHS, VIEW | ASKS,
        .help = "the strategy to show; none: one whole checkpoint"),
    ROW(src_rules, RULES, VIEW | ASKS, .help = "rules instead of a strategy of SRC"),
    ROW(dst_rules, RULES, VIEW | ASKS, .help = "rules instead of a strategy to show"),
    ROW(src_ranks, COUNT, VIEW, .example = "8", .help = "the number of ranks for src_rules"),
    ROW(dst_ranks, COUNT, VIEW, .example = "4",
        .help = "the number of ranks for dst_rules, or of files for view=dcp"),

    ROW(convert, RULES, VIEW | ASKS, .help = "rules between a training's names and HuggingFace's",
        .heading = "conversion"),
    ROW(hf_config, PATH, VIEW, .help = "the model's config.json"),
    ROW(convert_options, TEXT, VIEW, .help = "options of the rules, as NAME=WORD:NAME=WORD"),

    ROW(rank_dir, TEXT, VIEW | INDEX, .help = "the name of rank folders, with one %d",
        .heading = "source"),
    ROW(file, TEXT, VIEW | INDEX, .help = "use only files with matching names"),
    ROW(files, PATH, BOTH | ASKS | INDEX, .help = "a map from ranks to files, instead of folders"),
    ROW(group_info, PATH, VIEW | INDEX,
        .help = "files that name equal ranks, to replace lost ones"),
    ROW(step, STEP, VIEW | INDEX, .example = "1000, or step=all",
        .help = "choose this save, or show each in a folder"),
    ROW(epoch, NUMBER, VIEW | INDEX, .example = "3", .help = "choose the save of this epoch"),
    ROW(entry, TEXT, VIEW | ASKS | INDEX, .help = "the place of the dict of tensors in .pt files"),
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
    ROW(file_size, SIZE, VIEW, .example = "5G",
        .help = "bytes of tensors in each file of a whole checkpoint", .least = 1),
    ROW(chunk_size, SIZE, VIEW, .example = "256M",
        .help = "bytes of tensors in each chunk of view=dcp", .least = 1),
    ROW(format, WORD, BOTH | ASKS | CONTENT, .words = formats, .help = "the format of the files"),
    ROW(names, PATH, VIEW | ASKS, .help = "a map from names in SRC to names shown"),
    ROW(dtype, TEXT, VIEW | ASKS | CONTENT, .help = "bfloat16, or rules such as *.norm.*=float32"),
    ROW(crc, SWITCH, VIEW | ASKS | CONTENT, .help = "add checksums to .ckpt files"),
    ROW(nshards, COUNT, PARTS | ASKS, .example = "4", .help = "the number of hfai's parts to show"),
    ROW(large_size, SIZE, PARTS, .example = "256M",
        .help = "divide larger tensors over hfai's parts"),
    ROW(uneven_steps, SWITCH, PARTS, .help = "accept parts with different counts of steps"),
    ROW(zip_crc, SWITCH, BOTH | CONTENT, .help = "add checksums to .pt files"),
    ROW(prefix, FILE_NAME, VIEW, .example = RFS_PREFIX, .help = "the beginning of file names"),

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

enum { N_OPTIONS = sizeof options / sizeof *options };

const struct rfs_option *rfs_option_at(size_t i)
{
    return i < N_OPTIONS ? &options[i] : NULL;
}

const struct rfs_option *rfs_option_find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

const char *rfs_option_word(const char *name, int number)
{
    const struct rfs_option *option = rfs_option_find(name);

    for (int i = 0; option && option->words && i <= number; i++)
        if (!option->words[i] || i == number)
            return option->words[i];
    return NULL;
}

const char *rfs_option_takes(const struct rfs_option *option, char *out, size_t cap)
{
    static const char *const kinds[] = {
        [RFS_OPTION_SWITCH] = "",          [RFS_OPTION_TEXT] = "TEXT",
        [RFS_OPTION_PATH] = "FILE",        [RFS_OPTION_PATHS] = "FILE[:FILE]",
        [RFS_OPTION_RULES] = "RULES|FILE", [RFS_OPTION_FOLDER] = "FOLDER|no",
        [RFS_OPTION_FILE_NAME] = "NAME",   [RFS_OPTION_SIZE] = "SIZE",
        [RFS_OPTION_COUNT] = "N",          [RFS_OPTION_NUMBER] = "N",
        [RFS_OPTION_STEP] = "N|all",       [RFS_OPTION_DESCRIPTOR] = "N",
        [RFS_OPTION_IGNORED] = "",
    };
    size_t n = 0;

    snprintf(out, cap, "%s", option->words ? "" : kinds[option->kind]);
    for (size_t i = 0; option->words && option->words[i] && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i > 0 ? "|" : "", option->words[i]);
    return out;
}

/* The option that was probably meant, or NULL. */
static const struct rfs_option *nearest_option(const char *name, unsigned flags)
{
    const struct rfs_option *nearest = NULL;
    struct rfs_suggest suggest = rfs_suggest_begin(name, RFS_SUGGEST_WORD);

    /* Options without an effect have no help. */
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].help && (options[i].flags & flags) == flags &&
            rfs_suggest_offer(&suggest, options[i].name))
            nearest = &options[i];
    return nearest;
}

int rfs_option_refuse(const char *name, unsigned flags, struct rfs_error *err)
{
    const struct rfs_option *nearest = nearest_option(name, flags);
    char remedy[96] = "reshardfs --help";

    if (nearest)
        snprintf(remedy, sizeof remedy, "%s%s", nearest->name,
                 rfs_option_is_valued(nearest) ? "=VALUE" : "");
    return rfs_fail_usage(err, remedy, "unknown option '%s'", name);
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
