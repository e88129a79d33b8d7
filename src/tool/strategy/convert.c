/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy convert and merge: files as they are written, in another form or in one. */
#include "base/cleanup.h"
#include "base/pathlist.h"
#include "base/read_whole.h"
#include "layout/merge.h"
#include "tool/common/output.h"
#include "tool/strategy/strategy.h"
#include "view/strategy_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void free_strategy(struct rfs_strategy **strategy)
{
    rfs_strategy_free(*strategy);
}

static void free_merge(struct rfs_merge **merge)
{
    rfs_merge_free(*merge);
}

int rfs_strategy_form(const struct rfs_strategy_args *args, const char *out, bool input_is_json,
                      struct rfs_error *err)
{
    const bool named = strcmp(out, "-") != 0;
    const bool json = args->to ? strcmp(args->to, "json") == 0
                      : named  ? rfs_strategy_is_json(out)
                               : input_is_json;

    /* Its readers go by the name. */
    if (named && json != rfs_strategy_is_json(out))
        return rfs_fail_usage(err, json ? "a name that ends in .json" : "a name without .json",
                              "'%s' would be read as %s", out, json ? "protobuf" : "JSON");
    return json;
}

int rfs_strategy_write(const struct rfs_strategy_args *args, const char *out, bool json,
                       bool merged, const struct rfs_written *written, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int rc = json ? rfs_written_json(written, merged, &data, &size, err)
                        : rfs_written_protobuf(written, &data, &size, err);

    return rc ? rc : rfs_output_write(out, data, size, args->force, err);
}

/* The stage and the name of "1-w"; stage 0 without a prefix. */
static const char *split_name(const char *name, uint32_t *stage)
{
    const char *dash = strchr(name, '-');

    *stage = dash ? (uint32_t)strtoul(name, NULL, 10) : 0;
    return dash ? dash + 1 : name;
}

int rfs_strategy_shapes(const struct rfs_fit *fit, bool only_in_doubt, struct rfs_written *written,
                        struct rfs_error *err)
{
    for (size_t i = 0; i < written->params.n; i++) {
        const struct rfs_written_param *param = &written->params.data[i];
        struct rfs_fit_tensor tensor = {.slice = NULL};
        uint32_t stage;
        const char *name = split_name(param->name, &stage);
        const ptrdiff_t at = rfs_strategy_find(fit->strategy, name);
        if (only_in_doubt && !param->flat)
            continue;
        int rc = at < 0 ? 0 : rfs_fit_tensor(fit, (size_t)at, stage, &tensor, err);
        if (rc == 1)
            rc = rfs_written_shape(written, i, tensor.slice->ndim, tensor.whole, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_both(const char *path, struct rfs_written *written, struct rfs_strategy **strategy,
                     char **data, struct rfs_error *err)
{
    size_t size = 0;
    int rc = rfs_read_whole(path, RFS_STRATEGY_BYTES, data, &size, err);

    if (rc == 0)
        rc = rfs_strategy_parse(path, *data, size, strategy, err);
    return rc ? rc : rfs_written_read(path, *data, size, written, err);
}

int rfs_strategy_convert(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    const char *in = args->places.data[0];
    const char *out = args->places.data[1];
    RFS_CLEANUP(rfs_written_free) struct rfs_written written = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(rfs_strategy_tree_close) struct rfs_strategy_tree tree = {0};
    RFS_FREE char *data = NULL;
    const int json = rfs_strategy_form(args, out, !rfs_strategy_is_json(in), err);

    int rc = json < 0 ? json : read_both(in, &written, &strategy, &data, err);
    if (rc == 0)
        rc = rfs_strategy_tree_open(args->tree, args->options, &tree, err);
    if (rc == 0 && args->tree) {
        rfs_fit_begin(&tree.headers, strategy, &tree.fit);
        rc = rfs_fit_ranks(&tree.fit, err);
    }
    if (rc == 0 && args->tree)
        rc = rfs_strategy_shapes(&tree.fit, false, &written, err);
    return rc ? rc : rfs_strategy_write(args, out, json, false, &written, err);
}

/* ---- merge ---- */

struct merging {
    struct rfs_merge *checked;
    struct rfs_written *into;
    struct rfs_error *err;
};

static int merge_file(const struct merging *merging, const char *path)
{
    RFS_CLEANUP(rfs_written_free) struct rfs_written written = {0};
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const size_t stages = rfs_merge_stages(merging->checked);
    int rc = rfs_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, merging->err);

    if (rc == 0)
        rc = rfs_merge_add(merging->checked, path, data, size, merging->err);
    if (rc || rfs_merge_stages(merging->checked) == stages) /* a stage that is there already */
        return rc;
    rc = rfs_written_read(path, data, size, &written, merging->err);
    return rc ? rc : rfs_written_merge(merging->into, &written, merging->err);
}

/* The files that are given, and those of folders. */
static int list_files(const struct rfs_strategy_args *args, struct rfs_pathlist *files,
                      struct rfs_error *err)
{
    for (size_t i = 1; i < args->places.n; i++) {
        const char *place = args->places.data[i];
        struct stat st;
        int rc = 0;
        if (stat(place, &st) == 0 && S_ISDIR(st.st_mode))
            rc = rfs_view_list_strategies(place, files, err);
        else if (!rfs_pathlist_add(files, strdup(place)))
            rc = rfs_fail_memory(err);
        if (rc)
            return rc;
    }
    return 0;
}

int rfs_strategy_merge(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    const char *out = args->places.data[0];
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist files = {0};
    RFS_CLEANUP(rfs_written_free) struct rfs_written into = {.name = out};
    RFS_CLEANUP(free_merge) struct rfs_merge *checked = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    int rc = list_files(args, &files, err);
    const bool input_is_json = rc == 0 && rfs_strategy_is_json(files.data[0]);
    const int json = rc ? rc : rfs_strategy_form(args, out, input_is_json, err);

    if (json < 0)
        return json;
    rc = rfs_merge_new(args->places.n == 2 ? args->places.data[1] : out, &checked, err);
    const struct merging merging = {checked, &into, err};
    for (size_t i = 0; i < files.n && rc == 0; i++)
        rc = merge_file(&merging, files.data[i]);
    if (rc == 0)
        rc = rfs_merge_finish(checked, &strategy, err);
    return rc ? rc : rfs_strategy_write(args, out, json, true, &into, err);
}
