/* SPDX-License-Identifier: Apache-2.0 */
#include "view/options.h"

#include "base/checked.h"
#include "store/remote/remote.h"

#define INDEX_LEAST (UINT64_C(64) << 20) /* bytes of memory for indexes */

/* Rules take the place of a strategy file, and need the number of ranks. */
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
    if (!rc && !o->convert && (o->hf_config || o->convert_options))
        return rfs_fail_usage(err, "convert=NAME as well",
                              "option %s is for conversion rules, and none are given",
                              o->hf_config ? "hf_config" : "convert_options");
    if (!rc && o->shown == RFS_SHOW_DCP && !o->dst_rules && !o->dst_strategy)
        return 0; /* dst_ranks alone says how many files there are */
    return rc ? rc : check_rules("dst", o->dst_strategy, o->dst_rules, o->dst_ranks, err);
}

int rfs_options_take(const struct rfs_settings *settings, struct rfs_options *out,
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
        out->cache = rfs_options_default_cache();
    return rc ? rc : check_together(out, err);
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
        .check_crc = options->check >= 0,
        .options = options,
        .index_most = rfs_max_u64(options->cache / 4, INDEX_LEAST),
    };
}

int rfs_options_take_objects(const struct rfs_options *options, const char *source, bool *taken,
                             struct rfs_error *err)
{
    const char *const paths[] = {
        source,
        options->src_strategy,
        options->dst_strategy,
        options->src_rules,
        options->dst_rules,
        options->files,
        options->group_info,
        options->names,
    };

    return rfs_remote_take(options, paths, sizeof paths / sizeof *paths, taken, err);
}
