/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies are read from files, or made by rules of layouts (layout/layout_rules.h).
 *
 * In a folder the strategies are the files that merge_pipeline_strategys of MindSpore takes, *.ckpt
 * and *.json; where there are none, all files are, as protobuf may have any name. Names that begin
 * with a dot never count, nor do folders.
 */
#include "view/strategy_options.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "layout/stages.h"
#include "plan/geometry.h"
#include "view/internal.h"
#include "view/rules_view.h"

#include <sys/stat.h>

#define REMEDY_FOLDER "the folder that the runs of all stages saved their strategies in"

RFS_CLEANUP_OF(merge_cleanup, struct rfs_stages *, rfs_stages_free)
RFS_CLEANUP_OF(free_rules, struct rfs_layout_rules *, rfs_layout_rules_free)
RFS_CLEANUP_OF(free_map, struct rfs_names *, rfs_names_free)

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
    struct stat st;

    return rfs_store_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int fail_folder(const char *folder, int code, struct rfs_error *err)
{
    return rfs_fail(err, -code, RFS_IN(folder), NULL, "the folder cannot be listed: %s",
                    rfs_store_why(folder, code));
}

/* Lists a folder's files with the names that MindSpore takes, or with any. */
static int list_folder(const char *folder, bool any, struct rfs_path_list *out,
                       struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(folder, &dir);

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
        if (rfs_store_stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            /* entries that cannot be examined are read, so that the failure is reported */
            continue;
        if (!rfs_path_list_add(out, RFS_STEAL(path)))
            return rfs_fail_memory(err);
    }
    return errno ? fail_folder(folder, errno, err) : 0;
}

int rfs_view_list_strategies(const char *folder, struct rfs_path_list *out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list found = {0};
    int rc = list_folder(folder, false, &found, err);

    if (rc == 0 && found.n == 0)
        rc = list_folder(folder, true, &found, err);
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

static int merge_file(struct rfs_stages *merge, const char *path, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = rfs_store_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, err);

    return rc ? rc : rfs_stages_add(merge, path, data, size, err);
}

static int merge_files(const char *name, const struct rfs_path_list *files,
                       struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(merge_cleanup) struct rfs_stages *merge = NULL;
    int rc = rfs_stages_new(name, &merge, err);

    for (size_t i = 0; rc == 0 && i < files->n; i++)
        rc = merge_file(merge, files->data[i], err);
    return rc ? rc : rfs_stages_finish(merge, out, err);
}

static int read_single(const char *path, struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    const int rc = rfs_store_read_whole(path, RFS_STRATEGY_BYTES, &data, &size, err);

    return rc ? rc : rfs_strategy_parse(path, data, size, out, err);
}

int rfs_view_read_strategy(const char *text, struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list named = {0};
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};

    *out = NULL;
    if (rfs_path_list_split(text, &named))
        return rfs_fail_memory(err);
    if (named.n == 1 && !is_folder(text))
        return read_single(text, out, err);
    for (size_t i = 0; i < named.n; i++) {
        if (named.data[i][0] == '\0')
            return rfs_fail(err, -EINVAL, RFS_IN(text), "FILE:FILE",
                            "a path in the list of strategy files is empty");
        if (is_folder(named.data[i])) {
            const int rc = rfs_view_list_strategies(named.data[i], &files, err);
            if (rc)
                return rc;
        } else if (!rfs_path_list_add(&files, RFS_STEAL(named.data[i]))) {
            return rfs_fail_memory(err);
        }
    }
    return merge_files(text, &files, out, err);
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

int rfs_view_read_layout_rules(const char *option, const char *value, struct rfs_layout_rules **out,
                               struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    struct stat st;
    size_t size;

    if (rfs_store_stat(value, &st) != 0 && is_text(value))
        return parse_text(option, value, out, err);
    const int rc = rfs_store_read_whole(value, RFS_LAYOUT_RULES_BYTES, &data, &size, err);
    return rc ? rc : rfs_layout_rules_parse(value, data, size, out, err);
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
        while (names->seen.n <= entry->name)
            if (!RFS_PUSH(&names->seen, 0))
                return false;
        if (!names->seen.data[entry->name] &&
            !RFS_PUSH(&names->list, rfs_catalog_name(catalog, entry->name)))
            return false;
        names->seen.data[entry->name] = 1;
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
 * Makes the strategy by rules for the parameters of use->source, or of the files if that is NULL,
 * by the names that these had before they were EXPORTED.
 */
static int make_strategy(struct rfs_view *view, const char *option, const char *value,
                         const struct rfs_names *exported, struct rfs_layout_rules_use *use,
                         struct rfs_strategy **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;
    RFS_CLEANUP(names_end) struct names names = {0};
    int rc = rfs_view_read_layout_rules(option, value, &rules, err);

    if (!rc && !use->source)
        rc = read_names(view, &names, err);
    for (size_t i = 0; i < names.list.n; i++)
        names.list.data[i] = rfs_names_source(exported, names.list.data[i]);
    use->names = names.list.data;
    use->n = names.list.n;
    return rc ? rc : rfs_layout_rules_strategy(rules, use, &view->log, out, err);
}

/* Returns the layout that rules give to a parameter, or NULL. */
static const struct rfs_layout *find_layout(const struct rfs_strategy *strategy, const char *param)
{
    const ptrdiff_t i =
        strategy && rfs_strategy_by_rules(strategy) ? rfs_strategy_find(strategy, param) : -1;

    return i < 0 ? NULL : rfs_strategy_layout(strategy, (size_t)i, 0);
}

/* Returns whether rules had headers of the source read; otherwise planning compares shapes. */
static bool has_read_headers(const struct rfs_view *view)
{
    const struct rfs_strategy *rules = view->src ? view->src : view->dst;

    return rules && rfs_strategy_by_rules(rules);
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
                         const char *value, const struct rfs_names *exported,
                         struct rfs_layout_rules_use *use, struct rfs_strategy **out,
                         struct rfs_error *err)
{
    return value  ? make_strategy(view, option, value, exported, use, out, err)
           : text ? rfs_view_read_strategy(text, out, err)
                  : 0;
}

static const char *show_name(const void *ctx, const char *name)
{
    return rfs_names_shown(ctx, name);
}

/* Takes the strategy of the source, which may know the names of before its export, too. */
static int take_source(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    RFS_CLEANUP(free_map) struct rfs_names *names = NULL;
    struct rfs_layout_rules_use use = {.ranks = o->src_ranks, .ranks_option = "src_ranks"};
    const struct rfs_names_config config = {.names = view->set->exported_names};

    int rc = rfs_names_open(&config, &names, err)
                 ?: take_strategy(view, o->src_strategy, "src_rules", o->src_rules, names, &use,
                                  &view->src, err);
    if (rc == 0 && names && view->src && rfs_strategy_rename(view->src, show_name, names))
        rc = rfs_fail_memory(err);
    return rc;
}

int rfs_view_take_strategies(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *o = &view->options;
    struct rfs_layout_rules_use dst = {.ranks = o->dst_ranks, .ranks_option = "dst_ranks"};

    int rc = take_source(view, err) ?: rfs_view_rules_open(view, err);
    dst.source = view->src;
    if (rc == 0)
        rc = take_strategy(view, o->dst_strategy, "dst_rules", o->dst_rules, NULL, &dst, &view->dst,
                           err);
    return rc ? rc : check_rules(view, err);
}
