/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/source.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/tool.h"
#include "view/inspect.h"

void rfs_tool_log(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level == RESHARD_LOG_WARNING)
        rfs_tool_warn(line, NULL);
    else if (level == RESHARD_LOG_ERROR)
        rfs_tool_print_error(line);
}

/* ---- views ----------------------------------------------------------------------------------- */

int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, const struct rfs_view_how *how, reshard_view **out,
                  struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    struct rfs_options parsed = {0};
    const int rc =
        rfs_view_options_take(options, &parsed, err) ?: rfs_view_options_harden(&parsed, err);
    const bool keyed = rfs_options_keyed(&parsed);

    *out = NULL;
    rfs_options_free(&parsed);
    if (rc)
        return rc;
    /* The user's cache= comes later, and counts. */
    if (rfs_settings_add(&all, "cache", keyed ? RFS_TOOL_CACHE_KEYED : RFS_TOOL_CACHE, NULL) ||
        rfs_settings_add_all(&all, options))
        return rfs_fail_memory(err);
    const reshard_config config = {
        .struct_size = sizeof config, .log = log ? log : rfs_tool_log, .log_ctx = log_ctx};
    return rfs_view_start(source, &all, &config, how, out, err);
}

static int add_store(struct rfs_settings *to, const struct rfs_settings *from)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < from->list.n; i++) {
        const struct rfs_setting *setting = &from->list.data[i];
        const struct rfs_option *option = rfs_option_find(setting->name);
        const bool counts = rfs_settings_last(from, setting->name) == setting;
        if (counts && option && option->flags & RFS_OPTION_OF_STORE &&
            !rfs_settings_last(to, setting->name))
            rc = rfs_settings_add(to, setting->name, setting->value, setting->origin);
    }
    return rc;
}

int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other)
{
    return add_store(one, other) ?: add_store(other, one);
}

int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_options parsed = {0};
    const int rc = rfs_view_options_take(options ? options : &none, &parsed, err)
                       ?: rfs_view_options_reach(&parsed, paths, n, err);

    rfs_options_free(&parsed);
    return rc;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Opens the view whose tensors a command reads. */
static int open_view(const char *path, const struct rfs_settings *options,
                     const struct rfs_view_how *how, reshard_view **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    RFS_FREE char *file = NULL;
    struct rfs_options parsed;
    bool taken; /* until the command ends */
    int rc = rfs_view_options_take(options, &parsed, err)
                 ?: rfs_view_options_take_objects(&parsed, path, &taken, err);

    /*
     * A view has an output format: by default that of most checkpoints; hfai's parts have no other
     * format.
     */
    if (rc == 0 && parsed.format < 0 && parsed.shown == RFS_SHOW_RANKS && !rfs_view_has_parts(path))
        rc = rfs_settings_add(&all, "format", "ckpt", NULL);
    if (rc == 0)
        rc = rfs_settings_add_all(&all, options);
    if (rc == -ENOMEM)
        rfs_fail_memory(err);
    if (rc == 0)
        rc = rfs_inspect_lone_rank(path, &parsed, &file, err);
    rfs_options_free(&parsed);
    return rc ? rc : rfs_tool_open(file ? file : path, &all, NULL, NULL, how, out, err);
}

static bool take_name(void *globs, const char *name)
{
    return rfs_globs_take(globs, name);
}

int rfs_tool_tensors(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                     const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                     struct rfs_error *err)
{
    const struct rfs_whole_names names = {take_name, globs};
    reshard_view *opened;
    const int rc = open_view(path, options, how, &opened, err);

    *whole = (struct rfs_whole){0};
    return rc ? rc : rfs_whole_open(path, opened, globs ? &names : NULL, whole, cut, err);
}

int rfs_tool_tensors_of_rank(const char *path, const struct rfs_settings *options, int64_t rank,
                             struct rfs_whole *whole, struct rfs_error *err)
{
    reshard_view *opened;
    const int rc = open_view(path, options, NULL, &opened, err);

    *whole = (struct rfs_whole){0};
    return rc ? rc : rfs_whole_open_rank(path, opened, rank, whole, err);
}

void rfs_tool_name_strategy(const char *flag, struct rfs_error *err)
{
    char *at = err->code ? strstr(err->text, "; try: " RFS_PLAN_NO_STRATEGY) : NULL;

    if (at)
        snprintf(at, sizeof err->text - (size_t)(at - err->text),
                 "; try: %s FILE, the strategy that says how they were cut", flag);
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
