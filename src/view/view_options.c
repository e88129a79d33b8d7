/* SPDX-License-Identifier: Apache-2.0 */
#include "view/view_options.h"

#include "base/checked.h"
#include "base/limits.h"
#include "base/memory_limit.h"
#include "base/options.h"
#include "base/secret.h"
#include "formats/formats.h"
#include "plan/names.h"
#include "reshard.h"
#include "store/crypt/key.h"
#include "store/remote/remote.h"

#include <unistd.h>

#define INDEX_LEAST (UINT64_C(64) << 20) /* bytes of memory for indexes */

/*
 * Checks the options of one SIDE: rules of layouts stand in for a strategy file. They may say the
 * number of ranks.
 */
static int check_rules(const char *side, const char *strategy, const char *rules, uint32_t ranks,
                       struct rfs_error *err)
{
    char remedy[96];

    snprintf(remedy, sizeof remedy,
             "%s_rules=FILE, or %s_rules=tp%" PRIu32 " for the models of "
             "convert=",
             side, side, ranks);
    if (ranks && !rules)
        return rfs_fail_usage(err, remedy, "option %s_ranks needs %s_rules as well", side, side);
    if (rules && strategy)
        return rfs_fail_usage(err, "only one of them", "both %s_strategy and %s_rules are given",
                              side, side);
    return 0;
}

/* Says whether the files are of a format that describes the model. */
static bool is_modelled(const struct rfs_options *options)
{
    const enum rfs_format format = rfs_view_options_format(options, RFS_FORMAT_COUNT);

    return format < RFS_FORMAT_COUNT && rfs_formats[format].modelled;
}

static int check_together(const struct rfs_options *o, struct rfs_error *err)
{
    const int rc = check_rules("src", o->src_strategy, o->src_rules, o->src_ranks, err);

    if (!rc && o->segmented_skip && !o->segmented)
        return rfs_fail_usage(err, "segmented as well, or names= with null for each",
                              "option segmented_skip leaves out parameters of segmented "
                              "checkpoints only");
    if (!rc && !o->convert && o->experts < 0 && o->drop_source)
        return rfs_fail_usage(err, "drop=PATTERN, for names as they are shown",
                              "option drop_source is for conversion rules, and none are given");
    if (!rc && !o->convert && o->convert_options)
        return rfs_fail_usage(err, "convert=NAME as well",
                              "option convert_options is for conversion rules, and none are given");
    if (!rc && o->hf_config && !o->convert && o->experts < 0 && !o->src_rules && !o->dst_rules &&
        !o->dequantize && o->shown != RFS_SHOW_HUGGINGFACE && !is_modelled(o))
        return rfs_fail_usage(err, "convert=NAME, dequantize, or view=huggingface",
                              "option hf_config is for rules, dequantize, view=huggingface and "
                              "GGUF files");
    if (!rc && (o->shown == RFS_SHOW_DCP || o->shown == RFS_SHOW_HYPER_PARALLEL) && !o->dst_rules &&
        !o->dst_strategy)
        return 0; /* dst_ranks alone says how many files there are */
    return rc ? rc : check_rules("dst", o->dst_strategy, o->dst_rules, o->dst_ranks, err);
}

/*
 * Returns an eighth of the smaller of the machine's memory and the limits of its cgroups, in bytes.
 */
static uint64_t default_cache(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    const uint64_t machine =
        pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
    const struct rfs_memory_limits limits = {
        .machine = rfs_min_u64(rfs_limits_addresses(), machine),
        .cgroups = "/sys/fs/cgroup",
        .self = "/proc/self/cgroup",
    };

    return rfs_memory_limit(&limits) / 8;
}

int rfs_view_options_take(const struct rfs_settings *settings, struct rfs_options *out,
                          struct rfs_error *err)
{
    int rc = rfs_options_init(out) ? rfs_fail_memory(err) : rfs_options_take_environment(out, err);

    for (size_t i = 0; rc == 0 && i < settings->list.n; i++) {
        rc = rfs_options_set(out, RFS_OPTION_OF_VIEW, settings->list.data[i].name,
                             settings->list.data[i].value, err);
        if (rc == -EINVAL)
            rfs_options_hint_comma(settings, i, err);
    }
    out->cache_given = out->cache != RFS_NO_SIZE;
    if (!out->cache_given)
        out->cache = default_cache();
    return rc ? rc : check_together(out, err);
}

/* Returns whether option dtype asks for more than the dtype that weights become by themselves. */
static bool is_wide(const struct rfs_options *options)
{
    return options->dtype && !rfs_names_dtype_is(options->dtype, RFS_BFLOAT16);
}

struct rfs_source_spec rfs_view_options_spec(const struct rfs_options *options,
                                             struct rfs_store *store, const char *path)
{
    return (struct rfs_source_spec){
        .path = path,
        .store = store,
        .options = options,
        .wide = is_wide(options),
        .index_most = rfs_max_u64(options->cache / 4, INDEX_LEAST),
    };
}

int rfs_view_options_take_store(const struct rfs_options *options, const char *source,
                                struct rfs_store **out, struct rfs_error *err)
{
    const char *const paths[] = {
        source,
        options->src_strategy,
        options->dst_strategy,
        options->src_rules,
        options->dst_rules,
        options->files,
        options->origins,
        options->group_info,
        options->names,
    };

    return rfs_remote_take(options, paths, sizeof paths / sizeof *paths, out, err);
}

int rfs_view_options_key(const struct rfs_options *options, struct rfs_log *log,
                         struct rfs_key **out, struct rfs_error *err)
{
    const struct rfs_key_config config = {options->key_file, options->key_env, options->key_fd,
                                          (enum rfs_cipher_mode)(options->key_mode + 1)};

    return rfs_key_load(&config, log, out, err);
}

enum rfs_format rfs_view_options_format(const struct rfs_options *options, enum rfs_format gives)
{
    if (options->format >= 0)
        return (enum rfs_format)options->format;
    if (options->shown == RFS_SHOW_RANKS)
        return gives;
    const char *view = rfs_options_shown(options);
    for (unsigned i = 0; i < RFS_ROWS; i++)
        if (strcmp(rfs_formats[i].name, view) == 0)
            return rfs_formats[i].files;
    return RFS_FORMAT_SAFETENSORS; /* of the views of HuggingFace's and MindSpore's programs */
}

int rfs_view_options_harden(const struct rfs_options *options, struct rfs_error *err)
{
    if (!rfs_options_keyed(options))
        return 0;
    const int rc = rfs_secret_harden(err);
    if (rc == 0)
        (void)reshard_guard_keys(); /* the first of two sources did it for both */
    return rc;
}

int rfs_view_options_reach(const struct rfs_options *options, const char *const *paths, size_t n,
                           struct rfs_store **out, struct rfs_error *err)
{
    return rfs_remote_take(options, paths, n, out, err);
}
