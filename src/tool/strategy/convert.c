/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy convert and merge: files as they are written, in another form or in one. */
#include "base/cleanup.h"
#include "base/pathlist.h"
#include "base/read_whole.h"
#include "base/store.h"
#include "layout/merge.h"
#include "tool/common/output.h"
#include "tool/strategy/strategy.h"
#include "view/strategy_files.h"

#include <sys/stat.h>

RFS_CLEANUP_OF(free_strategy, struct rfs_strategy *, rfs_strategy_free)

RFS_CLEANUP_OF(free_merge, struct rfs_merge *, rfs_merge_free)

int rfs_strategy_form(const struct rfs_strategy_args *args, const char *out, bool input_is_json,
                      struct rfs_error *err)
{
    const bool named = strcmp(out, "-") != 0;
    const bool json = args->to != RFS_FORM_BY_NAME ? args->to == RFS_FORM_JSON
                      : named                      ? rfs_strategy_is_json(out)
                                                   : input_is_json;

    /* Its readers go by the name. */
    if (named && json != rfs_strategy_is_json(out))
        return rfs_fail_usage(err, json ? "a name that ends in .json" : "a name without .json",
                              "'%s' would be read as %s", out, json ? "protobuf" : "JSON");
    return json;
}

int rfs_strategy_write(const struct rfs_strategy_args *args, const char *out, bool json,
                       bool merged, const struct rfs_doc *doc, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int rc = json ? rfs_doc_json(doc, merged, &data, &size, err)
                        : rfs_doc_protobuf(doc, &data, &size, err);

    return rc ? rc : rfs_output_write(out, data, size, args->force, err);
}

/* The stage and the name of "1-w"; stage 0 without a prefix. */
static const char *split_name(const char *name, uint32_t *stage)
{
    const char *dash = strchr(name, '-');

    *stage = dash ? (uint32_t)strtoul(name, NULL, 10) : 0;
    return dash ? dash + 1 : name;
}

int rfs_strategy_shapes(const struct rfs_fit *fit, struct rfs_doc *doc, struct rfs_error *err)
{
    for (size_t i = 0; i < doc->map.n_parallel_layout_item; i++) {
        struct rfs_fit_tensor tensor = {.slice = NULL};
        uint32_t stage;
        const char *name =
            split_name(rfs_doc_text(doc->map.parallel_layout_item[i]->param_name), &stage);
        const ptrdiff_t at = rfs_strategy_find(fit->strategy, name);
        int rc = at < 0 ? 0 : rfs_fit_tensor(fit, (size_t)at, stage, &tensor, err);
        if (rc == 1)
            rc = rfs_doc_set_shape(doc, i, tensor.slice->ndim, tensor.whole, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int rfs_strategy_convert(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    const char *in = args->places.data[0];
    const char *out = args->places.data[1];
    RFS_CLEANUP(rfs_doc_free) struct rfs_doc doc = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(rfs_strategy_tree_close) struct rfs_strategy_tree tree = {0};
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int json = rfs_strategy_form(args, out, !rfs_strategy_is_json(in), err);

    int rc = json < 0 ? json : rfs_read_whole(in, RFS_STRATEGY_BYTES, &data, &size, err);
    rfs_doc_begin(&doc, in);
    if (rc == 0)
        rc = rfs_doc_parse(&doc, data, size, err) ?: rfs_doc_strategy(&doc, &strategy, err);
    if (rc == 0)
        rc = rfs_strategy_tree_open(args->tree, &args->options, &tree, err);
    if (rc == 0 && args->tree) {
        rfs_fit_begin(&tree.headers, strategy, &tree.fit);
        rc = rfs_fit_ranks(&tree.fit, err);
    }
    if (rc == 0 && args->tree)
        rc = rfs_strategy_shapes(&tree.fit, &doc, err);
    return rc ? rc : rfs_strategy_write(args, out, json, false, &doc, err);
}

/* ---- merge ---- */

static int merge_file(struct rfs_merge *merge, const char *path, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int rc = rfs_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, err);

    return rc ? rc : rfs_merge_add(merge, path, data, size, err);
}

/* The files that are given, and those of folders. */
static int list_files(const struct rfs_strategy_args *args, struct rfs_pathlist *files,
                      struct rfs_error *err)
{
    for (size_t i = 1; i < args->places.n; i++) {
        const char *place = args->places.data[i];
        struct stat st;
        int rc = 0;
        if (rfs_store_stat(place, &st) == 0 && S_ISDIR(st.st_mode))
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
    RFS_CLEANUP(free_merge) struct rfs_merge *merge = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    int rc = list_files(args, &files, err);
    const bool input_is_json = rc == 0 && rfs_strategy_is_json(files.data[0]);
    const int json = rc ? rc : rfs_strategy_form(args, out, input_is_json, err);

    if (json < 0)
        return json;
    rc = rfs_merge_new(args->places.n == 2 ? args->places.data[1] : out, &merge, err);
    for (size_t i = 0; i < files.n && rc == 0; i++)
        rc = merge_file(merge, files.data[i], err);
    if (rc == 0)
        rc = rfs_merge_finish(merge, &strategy, err);
    return rc ? rc : rfs_strategy_write(args, out, json, true, rfs_merge_document(merge), err);
}
