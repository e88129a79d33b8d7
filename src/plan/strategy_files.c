/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In a folder the strategies are the files that merge_pipeline_strategys of MindSpore takes, *.ckpt
 * and *.json; where there are none, all files are, as protobuf may have any name. Names that begin
 * with a dot never count, nor do folders.
 */
#include "plan/strategy_files.h"

#include "base/cleanup.h"
#include "base/settings.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/catalog.h"
#include "formats/formats.h"
#include "layout/stages.h"
#include "plan/own_config.h"
#include "rules/cuts.h"

#include <sys/stat.h>

#define REMEDY_FOLDER "the folder that the runs of all stages saved their strategies in"

RFS_CLEANUP_OF(merge_cleanup, struct rfs_stages *, rfs_stages_free)
RFS_CLEANUP_OF(free_rules, struct rfs_layout_rules *, rfs_layout_rules_free)

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_folder(struct rfs_store *store, const char *path)
{
    struct stat st;

    return rfs_store_stat(store, path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int fail_folder(const char *folder, int code, struct rfs_error *err)
{
    return rfs_fail(err, -code, RFS_IN(folder), NULL, "the folder cannot be listed: %s",
                    rfs_store_why(folder, code));
}

/* Lists a folder's files with the names that MindSpore takes, or with any. */
static int list_folder(struct rfs_store *store, const char *folder, bool any,
                       struct rfs_path_list *out, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(store, folder, &dir);

    if (failed)
        return fail_folder(folder, -failed, err);
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        struct stat st;
        const bool named =
            rfs_text_ends(entry->d_name, ".ckpt") || rfs_text_ends(entry->d_name, ".json");
        if (entry->d_name[0] == '.' || (!any && !named))
            continue;
        RFS_FREE char *path = rfs_text_printf("%s/%s", folder, entry->d_name);
        if (!path)
            return rfs_fail_memory(err);
        if (rfs_store_stat(store, path, &st) == 0 && !S_ISREG(st.st_mode))
            /* entries that cannot be examined are read, so that the failure is reported */
            continue;
        if (!rfs_path_list_add(out, RFS_STEAL(path)))
            return rfs_fail_memory(err);
    }
    return errno ? fail_folder(folder, errno, err) : 0;
}

int rfs_plan_list_strategies(struct rfs_store *store, const char *folder, struct rfs_path_list *out,
                             struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list found = {0};
    int rc = list_folder(store, folder, false, &found, err);

    if (rc == 0 && found.n == 0)
        rc = list_folder(store, folder, true, &found, err);
    if (rc)
        return rc;
    if (found.n == 0)
        return rfs_fail(err, -ENOENT, RFS_IN(folder), REMEDY_FOLDER,
                        "the folder holds no strategy files");
    rfs_path_list_sort(&found); /* messages about two files do not depend on the file system */
    for (size_t i = 0; i < found.n; i++)
        if (!rfs_path_list_add(out, RFS_STEAL(found.data[i])))
            return rfs_fail_memory(err);
    return 0;
}

/* Says after a failure RC to read a strategy that the file is a checkpoint, if so. Returns RC. */
static int blame_checkpoint(struct rfs_store *store, const char *path, int rc,
                            struct rfs_error *err)
{
    unsigned char head[RFS_FORMAT_HEAD];
    enum rfs_format format = RFS_FORMAT_CKPT; /* without a mark, but strategies begin otherwise */

    if (rc != -EINVAL && rc != -EFBIG)
        return rc;
    const ssize_t n = rfs_store_head(store, path, head, sizeof head);
    return n > 0 && (rfs_format_of_file("", head, (size_t)n, &format) || head[0] == 0x0a)
               ? rfs_fail(err, rc, RFS_IN(path),
                          "the file that MindSpore saved as strategy, or rules",
                          "is a checkpoint (%s), not a strategy", rfs_formats[format].name)
               : rc;
}

static int merge_file(struct rfs_store *store, struct rfs_stages *merge, const char *path,
                      struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = rfs_store_read_whole(store, path, RFS_STRATEGY_BYTES, &data, &size, err);

    return blame_checkpoint(store, path, rc ? rc : rfs_stages_add(merge, path, data, size, err),
                            err);
}

static int merge_files(struct rfs_store *store, const char *name, const struct rfs_path_list *files,
                       struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(merge_cleanup) struct rfs_stages *merge = NULL;
    int rc = rfs_stages_new(name, &merge, err);

    for (size_t i = 0; rc == 0 && i < files->n; i++)
        rc = merge_file(store, merge, files->data[i], err);
    return rc ? rc : rfs_stages_finish(merge, out, err);
}

static int read_single(struct rfs_store *store, const char *path, struct rfs_strategy **out,
                       struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = rfs_store_read_whole(store, path, RFS_STRATEGY_BYTES, &data, &size, err);

    return blame_checkpoint(store, path, rc ? rc : rfs_strategy_parse(path, data, size, out, err),
                            err);
}

int rfs_plan_read_strategy(struct rfs_store *store, const char *text, struct rfs_strategy **out,
                           struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list named = {0};
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};

    *out = NULL;
    if (rfs_path_list_split(text, &named))
        return rfs_fail_memory(err);
    if (named.n == 1 && !is_folder(store, text))
        return read_single(store, text, out, err);
    for (size_t i = 0; i < named.n; i++) {
        if (named.data[i][0] == '\0')
            return rfs_fail(err, -EINVAL, RFS_IN(text), "FILE:FILE",
                            "a path in the list of strategy files is empty");
        if (is_folder(store, named.data[i])) {
            const int rc = rfs_plan_list_strategies(store, named.data[i], &files, err);
            if (rc)
                return rc;
        } else if (!rfs_path_list_add(&files, RFS_STEAL(named.data[i]))) {
            return rfs_fail_memory(err);
        }
    }
    return merge_files(store, text, &files, out, err);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/*
 * Returns whether VALUE is rules rather than a path that does not exist: it has a colon, or several
 * lines, or begins with "like".
 */
static bool is_text(const char *value)
{
    return strpbrk(value, ":;\n") || strncmp(value, "like ", 5) == 0;
}

static int parse_text(const char *option, const char *value, struct rfs_layout_rules **out,
                      struct rfs_error *err)
{
    RFS_FREE char *lines = strdup(value);

    if (!lines)
        return rfs_fail_memory(err);
    for (char *c = lines; *c; c++)
        if (*c == ';')
            *c = '\n';
    return rfs_layout_rules_parse(option, lines, strlen(lines), out, err);
}

/*
 * Reads rules of layouts: VALUE is the path of their file, or the rules themselves with ';' between
 * lines; OPTION is their name in messages.
 */
static int read_rules(struct rfs_store *store, const char *option, const char *value,
                      struct rfs_layout_rules **out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    struct stat st;
    size_t size;

    if (rfs_store_stat(store, value, &st) != 0 && is_text(value))
        return parse_text(option, value, out, err);
    const int rc = rfs_store_read_whole(store, value, RFS_LAYOUT_RULES_BYTES, &data, &size, err);
    if (rc == -ENOENT && !strchr(value, '/'))
        return rfs_fail(err, rc, RFS_IN(value),
                        "a file of rules, or rules such as '*: axis 0 over all', or degrees such "
                        "as tp4",
                        "cannot be read: %s", strerror(ENOENT));
    return rc ? rc : rfs_layout_rules_parse(value, data, size, out, err);
}

/* Finds a key of the config. That of a model with images has those of its text in an object. */
static const struct rfs_hf_value *find_key(const struct rfs_hf_config *config, const char *key)
{
    const struct rfs_hf_value *value = rfs_hf_config_find(config, key);
    char inner[128];

    snprintf(inner, sizeof inner, "text_config.%s", key);
    return value ?: rfs_hf_config_find(config, inner);
}

static const struct rfs_hf_value *find_value(const struct rfs_hf_config *config, const char *key)
{
    /* A config may have another key for the same number. */
    static const char *const others[][2] = {
        {"num_key_value_heads", "num_attention_heads"},
        {"num_key_value_heads", "n_kv_heads"}, /* Meta's params.json */
        {"num_key_value_heads", "model.n_kv_heads"},
        {"num_key_value_heads", "n_heads"},
        {"num_key_value_heads", "model.n_heads"},
        {"num_attention_heads", "n_heads"},
        {"num_attention_heads", "model.n_heads"},
        {"num_experts", "n_routed_experts"},
        {"num_experts", "num_local_experts"},
    };
    const struct rfs_hf_value *value = find_key(config, key);

    for (size_t i = 0; i < sizeof others / sizeof *others && !value; i++)
        if (strcmp(others[i][0], key) == 0)
            value = find_key(config, others[i][1]);
    return value;
}

int rfs_plan_model_open(struct rfs_plan_model *model, struct rfs_error *err)
{
    if (model->config)
        return 0;
    if (model->hf_config)
        return rfs_plan_given_config(model->store, model->hf_config, model->source, model->catalog,
                                     &model->config, err);
    const int rc = rfs_plan_folder_config(model->store, model->source, &model->config, err);
    return rc || model->config || !model->catalog
               ? rc
               : rfs_plan_file_config(model->catalog, &model->config, err);
}

int rfs_plan_model_number(void *ctx, const char *key, uint64_t *number, struct rfs_error *err)
{
    struct rfs_plan_model *model = ctx;
    const int rc = rfs_plan_model_open(model, err);
    const struct rfs_hf_value *value = rc || !model->config ? NULL : find_value(model->config, key);

    if (rc || !value)
        return rc ? rc : -ENOENT;
    if (value->kind != RFS_HF_NUMBER || value->number < 0)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_hf_config_name(model->config)), NULL,
                        "%s is not a count", value->key);
    *number = (uint64_t)value->number;
    return rfs_hf_config_check(model->config, err);
}

void rfs_plan_model_end(struct rfs_plan_model *model)
{
    rfs_hf_config_free(model->config);
}

int rfs_plan_strategy_by_rules(struct rfs_store *store, const char *option, const char *value,
                               struct rfs_layout_rules_use *use, struct rfs_log *log,
                               struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;

    use->ready = rfs_settings_is_cuts(value);
    const int rc = use->ready ? rfs_cuts_rules(option, value, use, &rules, err)
                              : read_rules(store, option, value, &rules, err);
    return rc ? rc : rfs_layout_rules_strategy(rules, use, log, out, err);
}
