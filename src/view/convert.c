/* SPDX-License-Identifier: Apache-2.0 */
#include "view/convert.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "plan/converted.h"
#include "view/beside.h"
#include "view/copies.h"

int rfs_view_convert_rules(const char *value, struct rfs_rules **out, struct rfs_error *err)
{
    return strchr(value, '/') || rfs_text_ends(value, ".rules") ? rfs_rules_open(value, out, err)
                                                                : rfs_rules_named(value, out, err);
}

/* ---- the config ------------------------------------------------------------------------------ */

/*
 * The same path, taken over, with its folder as it really is; the file itself may be a link, beside
 * which the other files are. NULL with *err filled.
 */
static char *in_its_folder(char *path, struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_parent(path);
    char *real = folder ? rfs_path_join(folder, rfs_path_name(path)) : NULL;

    if (!real)
        rfs_fail_read(err, RFS_IN(path), -errno);
    free(path);
    return real;
}

/* That of the options, or of a source that has one. Owned; NULL with *err filled. */
static char *find_config(const struct rfs_view *view, struct rfs_error *err)
{
    const char *given = view->options.hf_config;
    char *path =
        given ? strdup(given) : rfs_path_join(rfs_catalog_path(view->stored), "config.json");

    if (!path)
        rfs_fail_memory(err);
    if (path && (given || rfs_store_there(path)))
        return in_its_folder(path, err);
    if (!path)
        return NULL;
    free(path);
    rfs_fail_usage(err, "hf_config=config.json",
                   "option convert needs the model's config.json, and the source has none");
    return NULL;
}

RFS_CLEANUP_OF(free_rules, struct rfs_rules *, rfs_rules_free)

RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)

/* The caller passes on the number alone. */
static int compare(void *ctx)
{
    struct rfs_error err = {0};
    const int rc = rfs_view_compare(ctx, &err);

    return rc ? rfs_view_log_failure(ctx, rc, &err) : 0;
}

/* The first made tensor whose elements are no plain floating-point numbers, or NULL. */
static const struct rfs_rules_made *find_coded(const struct rfs_rules_map *map)
{
    for (size_t i = 0; i < map->made.n; i++)
        if (!rfs_dtype_is_float_target(map->made.data[i].shown))
            return &map->made.data[i];
    return NULL;
}

/* Weights that are not quantized need a config that does not say so. */
static void cut_config(struct rfs_view *view, const struct rfs_hf_config *config)
{
    const struct rfs_rules_made *coded = find_coded(rfs_by_rules_map(view->convert.made));
    struct rfs_left_out cut;

    if (view->options.shown != RFS_SHOW_HUGGINGFACE ||
        !rfs_hf_config_quantization(config, &cut.from, &cut.to, &cut.bytes))
        return;
    if (coded)
        rfs_log(&view->log, RFS_WARNING,
                "config.json keeps its quantization_config, because '%s' is %s: it must fit the "
                "tensors of the view",
                coded->name, rfs_dtype_name(coded->shown));
    else {
        rfs_log(&view->log, RFS_INFO,
                "config.json is shown without its quantization_config: no tensor is quantized");
        view->convert.cut = cut;
    }
}

int rfs_view_convert(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    RFS_CLEANUP(free_rules) struct rfs_rules *rules = NULL;
    RFS_CLEANUP(free_config) struct rfs_hf_config *config = NULL;

    if (!options->convert)
        return 0;
    view->convert.config = find_config(view, err);
    if (!view->convert.config)
        return err->code;
    int rc = rfs_view_convert_rules(options->convert, &rules, err)
                 ?: rfs_hf_config_open(view->convert.config, &config, err);
    if (rc)
        return rc;
    const struct rfs_planner_config whole = {
        .catalog = view->stored,
        .src = view->src,
        .pool = view->set->pool,
        .log = &view->log,
        .strict = options->strict,
        .keep_empty = true,
        .incomplete = &view->convert.incomplete,
    };
    rc = rfs_planner_new(&whole, &view->convert.whole, err);
    if (rc)
        return rc;
    const struct rfs_by_rules_config converted = {
        .whole = view->convert.whole,
        .catalog = view->stored,
        .rules = rules,
        .hf_config = config,
        .options = options->convert_options,
        .log = &view->log,
        .compare = compare,
        .ctx = view,
    };
    rc = rfs_by_rules_new(&converted, &view->convert.made, err);
    if (rc)
        return rc;
    const struct rfs_rules_map *map = rfs_by_rules_map(view->convert.made);
    if (options->shown == RFS_SHOW_HUGGINGFACE && !map->from_left)
        return rfs_fail_usage(err, "view=unified or view=mindformers; or leave convert out",
                              "view=huggingface is for the names of %s, and of this source the "
                              "rules make those of %s",
                              map->side[1], map->side[0]);
    cut_config(view, config);
    view->catalog = rfs_by_rules_catalog(view->convert.made);
    view->convert.src = view->src;
    view->src = NULL;
    return 0;
}

void rfs_view_convert_free(struct rfs_view *view)
{
    rfs_by_rules_free(view->convert.made);
    rfs_planner_free(view->convert.whole);
    rfs_strategy_free(view->convert.src);
    free(view->convert.incomplete.damaged.data);
    free(view->convert.incomplete.from.data);
    free(view->convert.config);
}

/* ---- the files of the model ------------------------------------------------------------------ */

RFS_COMPARE(by_name, char *, x, y, strcmp(*x, *y))

/* Files of a folder that are like a pattern, sorted; nothing of a folder that is not there. */
static int list_files(const char *folder, const char *const *patterns, struct convert_files *files,
                      struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {.dir = NULL};
    const bool there = rfs_dir_open(folder, &dir) == 0;
    bool room = true;

    for (const struct dirent *entry; there && room && (entry = rfs_dir_next(&dir));) {
        bool like = false;
        for (size_t i = 0; patterns[i]; i++)
            like = like ||
                   (entry->d_type != DT_DIR && rfs_glob_match_file(patterns[i], entry->d_name));
        char *name = like ? strdup(entry->d_name) : NULL;
        room = !like || (name && RFS_PUSH(&files->names, name));
        if (!room)
            free(name);
    }
    RFS_SORT_ALL(&files->names, by_name);
    return room ? 0 : rfs_fail_memory(err);
}

void rfs_view_convert_files_end(struct convert_files *files)
{
    for (size_t i = 0; i < files->names.n; i++)
        free(files->names.data[i]);
    free(files->names.data);
    free(files->folder);
}

int rfs_view_convert_list(const struct rfs_view *view, struct convert_files *files,
                          struct rfs_error *err)
{
    static const char *const patterns[] = {"generation_config.json",
                                           "tokenizer*",
                                           "vocab.*",
                                           "merges.txt",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template*",
                                           "preprocessor_config.json",
                                           "*.tiktoken",
                                           "configuration_*.py",
                                           "modeling_*.py",
                                           "tokenization_*.py",
                                           NULL};

    if (!view->convert.config)
        return 0;
    const int rc = rfs_path_parent(view->convert.config, &files->folder, NULL, err);
    return rc ? rc : list_files(files->folder, patterns, files, err);
}

int rfs_view_convert_show(struct rfs_view *view, const struct convert_files *files,
                          struct rfs_error *err)
{
    if (view->convert.config && rfs_files_secret(rfs_catalog_files(view->catalog))) {
        rfs_log(&view->log, RFS_INFO, "with a key, the files beside %s are not shown",
                view->convert.config);
        return 0;
    }
    int rc = view->convert.config
                 ? rfs_view_pass_on(view, view->convert.config, "config.json",
                                    view->convert.cut.bytes > 0 ? &view->convert.cut : NULL, err)
                 : 0;

    for (size_t i = 0; i < files->names.n && rc == 0; i++) {
        RFS_FREE char *path = rfs_path_join(files->folder, files->names.data[i]);
        rc = path ? rfs_view_pass_on(view, path, files->names.data[i], NULL, err)
                  : rfs_fail_memory(err);
    }
    return rc;
}
