/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies are read from files, or made by rules of layouts (layout/layout_rules.h) or by ready
 * cuts (rules/cuts.h).
 *
 * In a folder the strategies are the files that merge_pipeline_strategys of MindSpore takes, *.ckpt
 * and *.json; where there are none, all files are, as protobuf may have any name. Names that begin
 * with a dot never count, nor do folders.
 */
#include "view/strategy_options.h"

#include "base/cleanup.h"
#include "base/settings.h"
#include "base/store.h"
#include "base/text.h"
#include "formats/formats.h"
#include "formats/mindformers/mindformers.h"
#include "layout/stages.h"
#include "plan/geometry.h"
#include "rules/cuts.h"
#include "rules/hf_config.h"
#include "view/internal.h"
#include "view/rules_view.h"

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

int rfs_view_list_strategies(struct rfs_store *store, const char *folder, struct rfs_path_list *out,
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

int rfs_view_read_strategy(struct rfs_store *store, const char *text, struct rfs_strategy **out,
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
            const int rc = rfs_view_list_strategies(store, named.data[i], &files, err);
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

static const struct rfs_hf_value *find_value(const struct rfs_hf_config *config, const char *key)
{
    /* A config may have another key for the same number. */
    static const char *const others[][2] = {
        {"num_key_value_heads", "num_attention_heads"},
        {"num_experts", "n_routed_experts"},
        {"num_experts", "num_local_experts"},
    };
    const struct rfs_hf_value *value = rfs_hf_config_find(config, key);

    for (size_t i = 0; i < sizeof others / sizeof *others && !value; i++)
        if (strcmp(others[i][0], key) == 0)
            value = rfs_hf_config_find(config, others[i][1]);
    return value;
}

static int open_config(struct rfs_view_model *model, struct rfs_error *err)
{
    RFS_FREE char *beside = rfs_path_join(model->source, "config.json");
    const char *path = model->hf_config ? model->hf_config : beside;

    if (!path)
        return rfs_fail_memory(err);
    if (!model->config && (model->hf_config || rfs_store_there(model->store, path)))
        return rfs_hf_config_open(model->store, path, &model->config, err);
    return 0;
}

int rfs_view_model_number(void *ctx, const char *key, uint64_t *number, struct rfs_error *err)
{
    struct rfs_view_model *model = ctx;
    const int rc = open_config(model, err);
    const struct rfs_hf_value *value = rc || !model->config ? NULL : find_value(model->config, key);

    if (rc || !value)
        return rc ? rc : -ENOENT;
    if (value->kind != RFS_HF_NUMBER || value->number < 0)
        return rfs_fail(err, -EINVAL, RFS_IN(rfs_hf_config_name(model->config)), NULL,
                        "%s is not a count", value->key);
    *number = (uint64_t)value->number;
    return 0;
}

void rfs_view_model_end(struct rfs_view_model *model)
{
    rfs_hf_config_free(model->config);
}

int rfs_view_strategy_by_rules(struct rfs_store *store, const char *option, const char *value,
                               struct rfs_layout_rules_use *use, struct rfs_log *log,
                               struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;

    use->ready = rfs_settings_is_cuts(value);
    const int rc = use->ready ? rfs_cuts_rules(option, value, use, &rules, err)
                              : read_rules(store, option, value, &rules, err);
    return rc ? rc : rfs_layout_rules_strategy(rules, use, log, out, err);
}

/*
 * Names of the tensors of the files; those that were seen are marked by their ids in the catalogue.
 */
struct names {
    RFS_VEC(const char *) list;
    RFS_VEC(unsigned char) seen;
};

static void names_end(struct names *names)
{
    free(names->list.data);
    free(names->seen.data);
}

static bool add_names(struct rfs_catalog *catalog, const struct rfs_index *index,
                      struct names *names)
{
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        if (rfs_catalog_type(catalog, entry->type)->kind != RFS_TENSOR)
            continue;
        unsigned char *seen = RFS_VEC_AT(&names->seen, entry->name, 0);
        if (!seen || (!*seen && !RFS_PUSH(&names->list, rfs_catalog_name(catalog, entry->name))))
            return false;
        *seen = 1;
    }
    return true;
}

/*
 * Adds the names of one rank; sets whether they are all that there are, and all that there were
 * before. *ERR gets the last of the damaged files that a late view passes over.
 */
static int read_rank(const struct rfs_view *view, uint32_t rank, uint32_t lead, struct names *names,
                     bool *complete, struct rfs_error *err)
{
    struct rfs_catalog *catalog = view->catalog;
    const struct rfs_index *index;
    const size_t before = names->list.n;
    size_t tensors = 0;
    const int rc = rfs_catalog_index(catalog, rank, rank == lead ? RFS_NO_RANK : lead, &index, err);

    *complete = false;
    if (rc && rfs_catalog_is_empty(catalog, rank))
        return 0; /* redundancy was removed, and this rank keeps nothing */
    if (rc)
        return view->set->late && rc != -ENOMEM ? 0 : rc;
    for (size_t i = 0; i < index->n; i++)
        tensors += rfs_catalog_type(catalog, index->entries[i].type)->kind == RFS_TENSOR;
    if (!add_names(catalog, index, names))
        return rfs_fail_memory(err);
    *complete = !index->redundancy_removed && names->list.n == tensors &&
                (rank == lead || before == tensors);
    return 0;
}

/*
 * Reads the names of the first rank and of the last. If these list the same, so do all, as far as
 * can be known without reading them: planning refuses a tensor that turns up nevertheless. If they
 * differ, replicas were left out, and all ranks are read.
 */
static int read_names(const struct rfs_view *view, struct names *names, struct rfs_error *err)
{
    const uint32_t lead = rfs_catalog_lowest(view->catalog);
    const uint32_t last = rfs_catalog_ranks(view->catalog) - 1;
    bool first;
    bool complete = true;
    int rc = read_rank(view, lead, lead, names, &first, err);

    if (!rc && last > lead)
        rc = read_rank(view, last, lead, names, &complete, err);
    for (uint32_t rank = lead + 1; !rc && !(first && complete) && rank < last; rank++)
        if (rfs_catalog_has(view->catalog, rank)) {
            bool unused;
            rc = read_rank(view, rank, lead, names, &unused, err);
        }
    return !rc && names->list.n == 0 && view->set->late && err->code ? err->code : rc;
}

/*
 * Makes the strategy by rules for the parameters of use->source, or of the files if that is NULL.
 */
static int make_strategy(struct rfs_view *view, const char *option, const char *value,
                         const struct rfs_layout_rules_use *use, struct rfs_log *log,
                         struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(names_end) struct names names = {0};
    RFS_CLEANUP(rfs_view_model_end)
    struct rfs_view_model model = {view->set->store, view->options.hf_config,
                                   rfs_catalog_path(view->source), NULL};
    int rc = use->source ? 0 : read_names(view, &names, err);

    struct rfs_layout_rules_use named = *use;
    named.names = names.list.data;
    named.n = names.list.n;
    named.number = rfs_view_model_number;
    named.ctx = &model;
    return rc ? rc
              : rfs_view_strategy_by_rules(view->set->store, option, value, &named, log, out, err);
}

/* Returns the layout that rules give to a parameter, or NULL. */
static const struct rfs_layout *find_layout(const struct rfs_strategy *strategy, const char *param)
{
    const ptrdiff_t i = strategy && rfs_strategy_facts(strategy)->by_rules
                            ? rfs_strategy_find(strategy, param)
                            : -1;

    return i < 0 ? NULL : rfs_strategy_layout(strategy, (size_t)i, 0);
}

/* Returns whether rules had headers of the source read; otherwise planning compares shapes. */
static bool has_read_headers(const struct rfs_view *view)
{
    const struct rfs_strategy *rules = view->src ? view->src : view->dst;

    return rules && rfs_strategy_facts(rules)->by_rules;
}

/* Checks that the rules fit the tensors whose headers have been read by then. */
static int check_rules(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_catalog *catalog = view->catalog;
    const struct rfs_index *index =
        has_read_headers(view) ? rfs_catalog_ready(catalog, rfs_catalog_lowest(catalog)) : NULL;
    const char *src_name = view->src ? rfs_strategy_name(view->src) : NULL;
    const char *dst_name = view->dst ? rfs_strategy_name(view->dst) : NULL;
    struct rfs_geometry geometry;
    int rc = 0;

    for (size_t i = 0; index && !rc && i < index->n; i++) {
        const struct rfs_type *type = rfs_catalog_type(catalog, index->entries[i].type);
        const char *param = rfs_catalog_name(catalog, index->entries[i].name);
        if (type->kind == RFS_TENSOR && type->bytes > 0)
            rc = rfs_geometry_resolve(type, find_layout(view->src, param),
                                      find_layout(view->dst, param), src_name, dst_name, param,
                                      &geometry, err);
    }
    return rc;
}

/* ---- the strategies of a view ---------------------------------------------------------------- */

/*
 * Takes the strategy by the rules VALUE if they are given, or of the files that TEXT names, or
 * none.
 */
static int take_strategy(struct rfs_view *view, const char *text, const char *option,
                         const char *value, const struct rfs_layout_rules_use *use,
                         struct rfs_log *log, struct rfs_strategy **out, struct rfs_error *err)
{
    return value  ? make_strategy(view, option, value, use, log, out, err)
           : text ? rfs_view_read_strategy(view->set->store, text, out, err)
                  : 0;
}

/* Takes the strategy of the destination; that of the source is there. */
static int take_destination(struct rfs_view *view, struct rfs_log *log, struct rfs_strategy **out,
                            struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    const struct rfs_layout_rules_use use = {
        .source = view->src, .ranks = o->dst_ranks, .ranks_option = "dst_ranks"};

    return take_strategy(view, o->dst_strategy, "dst_rules", o->dst_rules, &use, log, out, err);
}

static const char *show_name(const void *ctx, const char *name)
{
    return rfs_names_shown(ctx, name);
}

/*
 * Takes the strategy of files that MAKER made: that of its destination, made again for the names
 * that its source has, some of which the files may lack, by the names that it shows.
 */
static int take_made(struct rfs_view *view, struct rfs_view *maker, struct rfs_error *err)
{
    const int rc = maker->dst && !rfs_options_describes(&maker->options)
                       ? take_destination(maker, NULL, &view->src, err)
                       : 0;

    if (rc == 0 && view->src && rfs_strategy_rename(view->src, show_name, maker->names))
        return rfs_fail_memory(err);
    return rc;
}

static int take_source(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    const struct rfs_layout_rules_use use = {.ranks = o->src_ranks, .ranks_option = "src_ranks"};

    return view->set->maker && !o->src_strategy && !o->src_rules
               ? take_made(view, view->set->maker, err)
               : take_strategy(view, o->src_strategy, "src_rules", o->src_rules, &use, &view->log,
                               &view->src, err);
}

int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err)
{
    const int rc = take_source(view, err)
                       ?: rfs_view_rules_open(view, err)
                       ?: take_destination(view, &view->log, &view->dst, err);

    return rc ? rc : check_rules(view, err);
}
