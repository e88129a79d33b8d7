/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/open.h"

#include "base/cleanup.h"
#include "base/harden.h"
#include "store/remote/remote.h"
#include "tool/common/tool.h"
#include "view/internal.h"

void rfs_tool_log(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level == RESHARD_LOG_WARNING)
        rfs_tool_warn(line, NULL);
    else if (level == RESHARD_LOG_ERROR)
        rfs_tool_print_error(line);
}

int rfs_tool_harden(const struct rfs_options *options, struct rfs_error *err)
{
    if (!rfs_options_keyed(options))
        return 0;
    const int rc = rfs_harden(err);
    if (rc == 0)
        (void)reshard_guard_keys(); /* the first of two sources did it for both */
    return rc;
}

int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, const struct rfs_view_how *how, reshard_view **out,
                  struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    struct rfs_options parsed = {0};
    int rc = rfs_options_take(options, &parsed, err);
    const bool keyed = rfs_options_keyed(&parsed);

    *out = NULL;
    if (rc == 0)
        rc = rfs_tool_harden(&parsed, err);
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

int rfs_tool_objects(const struct rfs_options *options, const char *path, struct rfs_error *err)
{
    bool taken;

    return rfs_options_take_objects(options, path, &taken, err);
}

int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_options parsed = {0};
    bool taken;
    const int rc = rfs_options_take(options ? options : &none, &parsed, err)
                       ?: rfs_remote_take(&parsed, paths, n, &taken, err);

    rfs_options_free(&parsed);
    return rc;
}
