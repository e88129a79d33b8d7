/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the kind of a source, and has the functions that all kinds share. */
#include "catalog/scan/scan.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"
#include "formats/safetensors/safetensors.h"

void rfs_scan_free(struct rfs_scan *scan)
{
    for (size_t i = 0; i < scan->n; i++) {
        struct rfs_scanned *item = &scan->data[i];
        for (size_t k = 0; k < item->n_files; k++)
            free(item->files[k]);
        free(item->files);
        free(item->folder);
        free(item->weight_map);
    }
    free(scan->data);
    rfs_aside_free(&scan->aside);
    rfs_mapfile_free(&scan->map);
    free(scan->lost);
    free(scan->doubt);
    *scan = (struct rfs_scan){0};
}

struct rfs_scanned *rfs_scan_add(struct rfs_scan *scan, uint32_t rank, const char *folder)
{
    struct rfs_scanned item = {.rank = rank, .folder = folder ? strdup(folder) : NULL};
    if ((folder && !item.folder) || !RFS_PUSH(scan, item)) {
        free(item.folder);
        scan->failed = true;
        return NULL;
    }
    return &scan->data[scan->n - 1];
}

void rfs_scan_add_file(struct rfs_scan *scan, struct rfs_scanned *item, char *path)
{
    char **files =
        item && path ? reallocarray(item->files, item->n_files + 1, sizeof *files) : NULL;
    if (!files) {
        free(path);
        scan->failed = true;
        return;
    }
    item->files = files;
    item->files[item->n_files++] = path;
}

int rfs_scan_saves_compare(const void *a, const void *b)
{
    const struct rfs_save *x = a, *y = b;
    return RFS_ORDER(x->epoch, y->epoch) ?: RFS_ORDER(x->step, y->step);
}

bool rfs_scan_is_rank(const char *name)
{
    uint32_t rank;
    return rfs_scan_name_rank(RFS_RANK_DIR, name, &rank);
}

void rfs_scan_saves_free(struct rfs_saves *saves)
{
    for (size_t i = 0; saves->names && i < saves->n; i++)
        free(saves->names[i]);
    free(saves->names);
    free(saves->data);
    rfs_scan_tree_free(saves->tree);
    *saves = (struct rfs_saves){.tracked = RFS_TRACKED_ALWAYS};
}

int rfs_scan_folder(struct rfs_store *store, const char *folder, char **file, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    size_t n = 0, chosen;
    *file = NULL;
    const struct rfs_source_spec spec = {.store = store, .options = &rfs_options_defaults};
    int rc = rfs_scan_listing_read(&spec, folder, NULL, &listing, err);
    struct rfs_scan_formats of;
    rfs_aside_drop_states(&listing, NULL);
    const struct rfs_scan_found *model =
        rfs_scan_is_rank(rfs_path_name(folder)) ? NULL : rfs_scan_model(&listing);
    if (rc == 0 && model) {
        *file = strdup(model->name);
        return *file ? 0 : rfs_fail_memory(err);
    }
    if (rc == 0)
        rfs_scan_settle(&listing, 1, &of);
    if (rc == 0 && of.rival < RFS_FORMAT_COUNT)
        rc = rfs_fail(err, -EINVAL, RFS_IN(folder), "name one of its files",
                      "the folder holds both %s files (%s) and %s files (%s)",
                      rfs_formats[of.first].endings[0], of.names[of.first],
                      rfs_formats[of.rival].endings[0], of.names[of.rival]);
    if (rc != 0 || of.first == RFS_FORMAT_COUNT)
        return rc;
    RFS_FREE const struct rfs_scan_found **files = calloc(listing.n + 1, sizeof *files);
    if (!files)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < listing.n; i++)
        if (listing.data[i].format == of.first)
            files[n++] = &listing.data[i];
    rc = rfs_scan_choose(files, n, folder, of.first, &chosen, err);
    if (rc != 0 || chosen == SIZE_MAX)
        return rc < 0 ? rc : 0;
    *file = strdup(files[chosen]->name);
    return *file ? 0 : rfs_fail_memory(err);
}

/* Refuses options that are wrong for any source. */
static int check_spec(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    if (spec->options->rank_dir && !rfs_scan_name_is_pattern(spec->options->rank_dir))
        return rfs_fail_usage(err, "a name with one %d for the rank, such as rank_dir=node%d",
                              "option rank_dir=%s: not the name of rank folders",
                              spec->options->rank_dir);
    if (spec->options->file && strchr(spec->options->file, '/'))
        return rfs_fail_usage(err, "a pattern of names such as file=*_1.ckpt",
                              "option file=%s: not the name of a file in a folder",
                              spec->options->file);
    if (spec->options->files && (spec->options->rank_dir || spec->options->file ||
                                 rfs_scan_asks_save(spec) || spec->options->segmented))
        return rfs_fail_usage(err, "files= alone",
                              "the map of files= names the file of each rank: rank_dir, file, "
                              "step, epoch and segmented have no effect");
    return 0;
}

/* Scans a folder: rank folders, else one checkpoint. SAVES may be NULL. */
static int scan_folders(const struct rfs_source_spec *spec, struct rfs_log *log,
                        struct rfs_scan *out, struct rfs_saves *saves, struct rfs_error *err)
{
    int rc = rfs_scan_described(spec, log, out, err);
    if (rc == 0 && out->n == 0)
        rc = rfs_scan_steps(spec, log, out, saves, err);
    if (rc < 0 || out->n > 0 || (saves && saves->n > 0))
        return rc;
    if (!saves)
        rc = rfs_scan_parts(spec, out, err);
    if (rc == 0 && out->n == 0)
        rc = rfs_scan_tree(spec, log, out, saves, err);
    if (rc == 0 && out->n == 0 && (!saves || saves->n == 0))
        rc = rfs_scan_series(spec, log, out, saves, err);
    if (rc < 0 || out->n > 0 || (saves && saves->n > 0))
        return rc;
    if (saves || spec->options->segmented || spec->options->file || rfs_scan_asks_save(spec))
        return rfs_scan_flat(spec, log, out, saves, err);
    return rfs_scan_whole(spec, out, err);
}

static int scan_any(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                    struct rfs_saves *saves, struct rfs_error *err)
{
    struct stat st;
    const int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    if (spec->options->files)
        return rfs_scan_map(spec, out, err);
    if (spec->saves)
        return spec->saves->tree ? rfs_scan_tree_save(spec, log, out, err)
                                 : rfs_scan_step(spec, log, out, err);
    if (rfs_store_stat(spec->store, spec->path, &st) == 0 && !S_ISDIR(st.st_mode))
        return rfs_scan_file(spec, log, out, err);
    return scan_folders(spec, log, out, saves, err);
}

static int scan(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                struct rfs_saves *saves, struct rfs_error *err)
{
    const int rc = scan_any(spec, log, out, saves, err);

    return out->failed ? rfs_fail_memory(err) : rc;
}

int rfs_scan_source(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                    struct rfs_error *err)
{
    return scan(spec, log, out, NULL, err);
}

int rfs_scan_open(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err)
{
    *out = (struct rfs_scan){0};
    int rc = scan(spec, log, out, NULL, err);
    if (rc == 0 && spec->options->group_info)
        rc = rfs_scan_groups(spec, log, out, err);
    if (rc == 0)
        rc = rfs_aside_find(spec, out, &out->aside, err);
    if (rc < 0)
        rfs_scan_free(out);
    return rc;
}

int rfs_scan_saves(const struct rfs_source_spec *spec, struct rfs_saves *out, struct rfs_error *err)
{
    struct rfs_scan unused = {0};
    *out = (struct rfs_saves){.tracked = RFS_TRACKED_ALWAYS};
    int rc = scan(spec, NULL, &unused, out, err);
    if (rc == 0 && out->n == 0)
        rc = rfs_fail_usage(err, "a source with several checkpoints in a folder",
                            "option step=all: the source is one checkpoint");
    rfs_scan_free(&unused);
    return rc;
}

static int look_for_part(void *ctx, const struct dirent *entry)
{
    bool *found = ctx;
    struct rfs_scan_part part;
    struct rfs_weight_map_name map;
    enum rfs_format format;
    uint32_t rank;
    const char *name = entry->d_name;

    *found |=
        name[0] != '.' && (rfs_safetensors_map_name(name, &map) ||
                           (rfs_scan_name_model_parallel(name, &rank) && rank > 0) ||
                           (rfs_scan_name_part(name, &part) && rfs_format_of_name(name, &format)));
    return 0;
}

bool rfs_scan_is_divided(struct rfs_store *store, const char *path)
{
    bool found = false;

    return rfs_scan_entry_each(store, path, look_for_part, &found, NULL) == 0 && found;
}

/* Scans a folder without options for a checkpoint that describes itself, or a save. */
static int scan_plain(struct rfs_store *store, const char *path, struct rfs_scan *out)
{
    const struct rfs_source_spec spec = {
        .path = path, .store = store, .options = &rfs_options_defaults};
    struct rfs_error unused;
    const int rc = rfs_scan_described(&spec, NULL, out, &unused);

    return rc == 0 && out->n == 0 ? rfs_scan_steps(&spec, NULL, out, NULL, &unused) : rc;
}

bool rfs_scan_is_described(struct rfs_store *store, const char *path)
{
    struct rfs_scan scan = {0};
    const int rc = scan_plain(store, path, &scan);
    /* A checkpoint of a single rank is as any other file. */
    const bool is = rc == -EINVAL || rc == -ENOTSUP || scan.described;

    rfs_scan_free(&scan);
    return is;
}

/* Says whether the files of a folder are one checkpoint, or as RANKS tells, ranks of one. */
static bool is_by_files(struct rfs_store *store, const char *path, bool ranks)
{
    const struct rfs_source_spec spec = {
        .path = path, .store = store, .options = &rfs_options_defaults};
    struct rfs_scan scan = {0};
    struct rfs_error unused;
    const bool is = rfs_scan_whole(&spec, &scan, &unused) == 0 && (!ranks || scan.n > 1);

    rfs_scan_free(&scan);
    return is;
}

bool rfs_scan_is_whole(struct rfs_store *store, const char *path)
{
    return is_by_files(store, path, false);
}

bool rfs_scan_is_model_parallel(struct rfs_store *store, const char *path)
{
    return is_by_files(store, path, true);
}

static int look_for_rank(void *ctx, const struct dirent *entry)
{
    bool *found = ctx;

    *found |= rfs_scan_is_rank(entry->d_name);
    return 0;
}

bool rfs_scan_is_any(struct rfs_store *store, const char *path)
{
    const struct rfs_source_spec spec = {
        .path = path, .store = store, .options = &rfs_options_defaults};
    struct rfs_scan scan = {0};
    bool ranks = false;
    int rc = scan_plain(store, path, &scan);

    if (rc == 0 && scan.n == 0)
        rc = rfs_scan_entry_each(store, path, look_for_rank, &ranks, NULL);
    if (rc == 0 && scan.n == 0 && !ranks)
        rc = rfs_scan_parts(&spec, &scan, NULL);
    if (rc == 0 && scan.n == 0 && !ranks)
        rc = rfs_scan_whole(&spec, &scan, NULL);
    const bool is = rc == 0 && (ranks || scan.n > 0);
    rfs_scan_free(&scan);
    return is;
}

bool rfs_scan_is_of_one_rank(struct rfs_store *store, const char *path)
{
    struct rfs_scan scan = {0};
    const int rc = scan_plain(store, path, &scan);
    const bool is = rc == 0 && scan.n == 1 && !scan.described;

    rfs_scan_free(&scan);
    return is;
}
