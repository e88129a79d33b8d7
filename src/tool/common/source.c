/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/source.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/patience.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/tool.h"
#include "view/view_options.h"

/* ---- views ----------------------------------------------------------------------------------- */

int rfs_tool_open(const char *source, const struct rfs_settings *options,
                  const struct rfs_view_how *how, reshard_view **out, struct rfs_error *err)
{
    struct rfs_view_how full = how ? *how : (struct rfs_view_how){0};

    if (!full.log)
        full.log = rfs_tool_log;
    const int rc = rfs_view_start(source, options, &full, out, err);
    rfs_patience_end();
    return rc;
}

static bool is_of_store(const struct rfs_setting *setting)
{
    const struct rfs_option *option = rfs_option_find(setting->name);

    return option && option->flags & RFS_OPTION_OF_STORE;
}

static int add_store(struct rfs_settings *to, const struct rfs_settings *from)
{
    int rc = 0;

    for (size_t i = 0; i < to->list.n; i++)
        if (is_of_store(&to->list.data[i]))
            return 0;
    for (size_t i = 0; rc == 0 && i < from->list.n; i++) {
        const struct rfs_setting *setting = &from->list.data[i];
        if (is_of_store(setting))
            rc = rfs_settings_add(to, setting->name, setting->value, setting->origin);
    }
    return rc;
}

int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other)
{
    return add_store(one, other) ?: add_store(other, one);
}

int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_store **out, struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_options parsed = {0};
    const int rc = rfs_view_options_take(options ? options : &none, &parsed, err)
                       ?: rfs_view_options_reach(&parsed, paths, n, out, err);

    rfs_options_free(&parsed);
    return rc;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool take_name(void *globs, const char *name)
{
    return rfs_globs_take(globs, name);
}

int rfs_tool_tensors(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                     const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                     struct rfs_error *err)
{
    const struct rfs_whole_names names = {take_name, globs};
    struct rfs_view_how full = how ? *how : (struct rfs_view_how){0};
    reshard_view *opened;

    full.tensors = true;
    const int rc = rfs_tool_open(path, options, &full, &opened, err);
    *whole = (struct rfs_whole){0};
    return rc ? rc : rfs_whole_open(path, opened, globs ? &names : NULL, whole, cut, err);
}

void rfs_tool_name_strategy(const char *flag, struct rfs_error *err)
{
    static const char remedy[] = "; try: " RFS_STRATEGY_WANTED;
    char *at = err->code ? strstr(err->text, remedy) : NULL;
    RFS_FREE char *others = at ? strdup(at + strlen(remedy)) : NULL;

    if (at)
        snprintf(at, sizeof err->text - (size_t)(at - err->text),
                 "; try: %s FILE, the strategy that says how they were cut%s", flag,
                 others ? others : "");
}

/* ---- a source alone -------------------------------------------------------------------------- */

static void print_line(void *ctx, enum rfs_level level, const char *line)
{
    rfs_tool_log(ctx, (enum reshard_level)level, line);
}

int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_headers_source *out,
                            struct rfs_error *err)
{
    return rfs_headers_prepare(options, path, sink ? sink : print_line, ctx, out, err);
}
