/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For messages: what a folder has that is not read. Files are listed, and none is opened but
 * metadata.json.
 *
 * Checkpoints in folders below, such as:
 *
 *   Trainer      checkpoint-500/model.safetensors, checkpoint-1000/…
 *   the hub      refs/main, which names snapshots/REVISION
 *   diffusers    transformer/, vae/, text_encoder/
 *   torchtitan   checkpoint/step-1000/.metadata
 *   Accelerate   pytorch_model_fsdp_0/.metadata, optimizer_0/.metadata; checkpoint-500/… of Trainer
 *   verl         global_step_100/actor/model_world_size_8_rank_0.pt, global_step_100/critic/…
 *   NeMo         NAME-step=100-last/weights/.metadata
 *
 * Files of other formats: formats/foreign.h.
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"
#include "formats/foreign.h"

/* ---- folders below --------------------------------------------------------------------------- */

/*
 * Where the names of folders differ in the numbers alone, the last one counts. The search goes a
 * few levels down, and ends when it has listed some folders.
 */
#define LEVELS 3
#define LISTED_MOST 64
#define NAMED_MOST 3

struct folders {
    char **data; /* paths; owned, as each */
    size_t n, cap;
};

static void free_folders(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++)
        free(folders->data[i]);
    free(folders->data);
}

/* Takes the next character of a name, where each run of digits is one character. */
static char next_of(const char **at)
{
    const size_t digits = strspn(*at, "0123456789");

    *at += digits > 0 ? digits : 1;
    return digits > 0 ? '0' : (*at)[-1];
}

/* Compares paths without the numbers in them: <0, 0 or >0. */
static int compare_series(const char *a, const char *b)
{
    char x;
    char y;

    do {
        x = next_of(&a);
        y = next_of(&b);
    } while (x == y && x != '\0');
    return (unsigned char)x - (unsigned char)y;
}

/* Puts the last of a series first. */
static int compare(const void *a, const void *b)
{
    const char *x = *(char *const *)a;
    const char *y = *(char *const *)b;

    return compare_series(x, y) ?: rfs_scan_name_compare(y, x);
}

/* Says whether the name at the end of a path has the number STEP. */
static bool has_step(const char *path, int64_t step)
{
    for (const char *at = rfs_path_name(path); *at; at++) {
        char *end;
        if (*at < '0' || *at > '9')
            continue;
        if (strtoll(at, &end, 10) == step)
            return true;
        at = end - 1;
    }
    return false;
}

/* Puts the folder of a step first, if there is one. */
static void prefer(struct folders *folders, int64_t step)
{
    for (size_t i = 0; step != RFS_ANY_NUMBER && i < folders->n; i++)
        if (has_step(folders->data[i], step)) {
            char *path = folders->data[i];
            memmove(folders->data + 1, folders->data, i * sizeof path);
            folders->data[0] = path;
            return;
        }
}

/* Lists the folders in PATH, without links, sorted. False when it cannot be listed. */
static bool list(struct rfs_store *store, const char *path, struct folders *out)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;

    if (rfs_dir_open(store, path, &dir) < 0)
        return false;
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        char *folder = rfs_path_join(path, entry->d_name);
        if (!folder || !RFS_PUSH(out, folder)) {
            free(folder);
            return false;
        }
    }
    RFS_SORT_ALL(out, compare);
    return true;
}

/* Returns a number for the beginning of a name: the greatest is wanted most. */
static int wanted(const struct rfs_scan_found *file)
{
    static const char *const stems[] = {"model", "last"};
    const size_t n = rfs_format_stem(file->name, file->format);
    int found = 0;

    for (int i = 0; i < 2; i++)
        if (n == strlen(stems[i]) && strncmp(file->name, stems[i], n) == 0)
            found = i + 1;
    return found;
}

/* Adds the path of FILE in the folder PATH. False: there are enough. */
static bool add_file(const char *path, const struct rfs_scan_found *file, struct rfs_path_list *out)
{
    return rfs_path_list_add(out, rfs_path_join(path, file->name)) && out->n < RFS_SCAN_INSIDE_MOST;
}

void rfs_scan_likely(struct rfs_store *store, const char *path, struct rfs_path_list *out)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    const struct rfs_source_spec spec = {.store = store, .options = &rfs_options_defaults};
    struct rfs_error unused;
    bool several = false;

    if (rfs_scan_is_divided(store, path) ||
        rfs_scan_listing_read(&spec, path, NULL, &listing, &unused) || listing.n == 0)
        return;
    rfs_aside_drop_states(&listing, NULL);
    const struct rfs_scan_found *newest = listing.data;
    for (size_t i = 1; i < listing.n; i++) {
        const struct rfs_scan_found *file = &listing.data[i];
        if ((wanted(file) - wanted(newest) ?: rfs_scan_name_compare(file->name, newest->name)) >= 0)
            newest = file;
    }
    RFS_FREE const char **names = calloc(listing.n, sizeof *names);
    if (!names)
        return;
    for (size_t i = 0; i < listing.n; i++) {
        names[i] = listing.data[i].name;
        several |= compare_series(names[i], newest->name) != 0;
    }
    several = wanted(newest) == 0 &&
              (several || rfs_scan_division_of(names, listing.n) != RFS_SCAN_UNDIVIDED);
    if (!several)
        add_file(path, newest, out);
    for (size_t i = 0; i < listing.n && several; i++)
        several = add_file(path, &listing.data[i], out);
}

/*
 * Says whether a folder has files of tensors and no folders: each is a checkpoint by itself, or
 * some of their parts are missing.
 */
static bool is_of_files(struct rfs_store *store, const char *path)
{
    RFS_CLEANUP(free_folders) struct folders folders = {.n = 0};
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};

    if (!list(store, path, &folders) || folders.n > 0)
        return false;
    rfs_scan_likely(store, path, &files);
    return files.n > 0 || rfs_scan_is_divided(store, path);
}

struct search {
    struct rfs_store *store;
    int64_t step;              /* the folder of this one counts, else the last */
    unsigned left;             /* folders that may be listed */
    bool files;                /* folders of files that are checkpoints each are looked for */
    struct rfs_path_list *out; /* checkpoints that were found */
};

/* Adds a checkpoint. False: there are enough. */
static bool add(struct search *search, const char *path)
{
    return rfs_path_list_add(search->out, strdup(path)) && search->out->n < RFS_SCAN_INSIDE_MOST;
}

/* Says whether the one of FOLDERS that is first of a series stands for all: they are saves. */
static bool is_of_saves(const struct folders *folders, size_t first)
{
    RFS_FREE const char **names = calloc(folders->n, sizeof *names);
    size_t n = 0;

    for (size_t i = first; names && i < folders->n; i++)
        if (compare_series(folders->data[first], folders->data[i]) == 0)
            names[n++] = rfs_path_name(folders->data[i]);
    return n <= 1 || rfs_scan_division_of(names, n) == RFS_SCAN_UNDIVIDED;
}

/* Names the checkpoints among folders: of each series of saves the last. */
static void name_checkpoints(struct search *search, const struct folders *folders)
{
    const char *named = NULL;

    for (size_t i = 0; i < folders->n && search->left > 0; i++) {
        const char *path = folders->data[i];
        if (named && compare_series(named, path) == 0)
            continue;
        search->left--;
        if (rfs_scan_is_rank(rfs_path_name(path)) ||
            rfs_foreign_find(rfs_path_name(path), NULL, 0) ||
            !(search->files ? is_of_files : rfs_scan_is_any)(search->store, path))
            continue;
        named = search->step != RFS_ANY_NUMBER || is_of_saves(folders, i) ? path : named;
        if (!add(search, path))
            return;
    }
}

/* Names the revision in a folder of the hub's cache that its reference names. */
static bool name_revision(struct search *search, const char *path)
{
    RFS_FREE char *reference = rfs_store_is_url(path) ? NULL : rfs_path_join(path, "refs/main");
    char name[65];
    const ssize_t n =
        reference ? rfs_store_head(search->store, reference, name, sizeof name - 1) : 0;

    if (n <= 0)
        return false;
    name[n] = '\0';
    name[strcspn(name, "\r\n/.")] = '\0';
    RFS_FREE char *revision = rfs_text_printf("%s/snapshots/%s", path, name);
    if (!*name || !revision || !rfs_scan_is_any(search->store, revision))
        return false;
    (void)add(search, revision);
    return true;
}

static void look_into(struct search *search, const char *path, unsigned levels)
{
    RFS_CLEANUP(free_folders) struct folders folders = {.n = 0};

    if (levels == 0 || search->left == 0 || !list(search->store, path, &folders))
        return;
    search->left--;
    if (name_revision(search, path))
        return;
    prefer(&folders, search->step);
    name_checkpoints(search, &folders);
    if (search->out->n > 0)
        return;
    /* The last of each series that has some counts. */
    for (size_t i = 0, named = SIZE_MAX; i < folders.n; i++) {
        const size_t before = search->out->n;
        if (named != SIZE_MAX && compare_series(folders.data[named], folders.data[i]) == 0)
            continue;
        look_into(search, folders.data[i], levels - 1);
        named = search->out->n > before && is_of_saves(&folders, i) ? i : named;
    }
}

void rfs_scan_inside(struct rfs_store *store, const char *path, int64_t step, bool files,
                     struct rfs_path_list *out)
{
    struct search search = {.store = store, .step = step, .left = LISTED_MOST, .out = out};

    look_into(&search, path, LEVELS);
    if (out->n > 0 || !files)
        return;
    search.files = true;
    search.left = LISTED_MOST;
    look_into(&search, path, LEVELS);
}

char *rfs_scan_later(struct rfs_store *store, const char *path)
{
    RFS_CLEANUP(free_folders) struct folders folders = {.n = 0};
    RFS_FREE char *above = rfs_store_folder(path);

    if (!above || !list(store, above, &folders))
        return NULL;
    for (size_t i = 0; i < folders.n; i++) /* the first of its series has the greatest numbers */
        if (compare_series(rfs_path_name(folders.data[i]), rfs_path_name(path)) == 0)
            return rfs_scan_name_compare(folders.data[i], path) > 0 ? strdup(folders.data[i])
                                                                    : NULL;
    return NULL;
}

/* ---- ranks by other names than rank_N -------------------------------------------------------- */

void rfs_scan_ranked_free(struct rfs_scan_ranked *ranked)
{
    free(ranked->first);
    free(ranked->pattern);
    *ranked = (struct rfs_scan_ranked){0};
}

/* Adds the folders or the files of tensors in PATH, by series. False: it cannot be listed. */
static bool list_names(struct rfs_store *store, const char *path, bool files, struct folders *out)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    const struct rfs_source_spec spec = {.store = store, .options = &rfs_options_defaults};
    struct rfs_error unused;

    if (!files)
        return list(store, path, out);
    if (rfs_scan_listing_read(&spec, path, NULL, &listing, &unused))
        return false;
    rfs_aside_drop_states(&listing, NULL);
    for (size_t i = 0; i < listing.n; i++) {
        char *file = rfs_path_join(path, listing.data[i].name);
        if (!file || !RFS_PUSH(out, file)) {
            free(file);
            return false;
        }
    }
    RFS_SORT_ALL(out, compare);
    return true;
}

/* Says whether a folder has files of tensors, as that of a rank has, or a checkpoint. */
static bool has_tensors(struct rfs_store *store, const char *path)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};

    rfs_scan_likely(store, path, &files);
    return files.n > 0 || rfs_scan_is_divided(store, path);
}

/* Takes N paths of one series, if their names count ranks or parts, or if they may. */
static void take_ranked(char *const *paths, size_t n, bool files, struct rfs_scan_ranked *out)
{
    RFS_FREE const char **names = calloc(n, sizeof *names);
    struct rfs_scan_counted at;
    struct rfs_scan_counted lowest = {.number = UINT32_MAX};
    size_t first = 0;

    for (size_t i = 0; names && i < n; i++)
        names[i] = rfs_path_name(paths[i]);
    const enum rfs_scan_division is = names ? rfs_scan_division_of(names, n) : RFS_SCAN_UNDIVIDED;
    if (is == RFS_SCAN_UNDIVIDED || (is == RFS_SCAN_PARTS && !files))
        return;
    for (size_t i = 0; i < n; i++) {
        if (!rfs_scan_number_of(names, n, i, &at))
            return;
        first = at.number < lowest.number ? i : first;
        lowest = at.number < lowest.number ? at : lowest;
    }
    out->first = strdup(paths[first]);
    out->pattern = rfs_text_printf("%.*s%%d%s", (int)lowest.begin, names[first],
                                   names[first] + lowest.begin + lowest.digits);
    if (!out->first || !out->pattern) {
        rfs_scan_ranked_free(out);
        return;
    }
    out->n = n;
    out->files = files;
    out->parts = is == RFS_SCAN_PARTS;
    out->doubtful = is == RFS_SCAN_DOUBTFUL;
}

/* Looks at one series of names, and keeps what is found unless something surer was found before. */
static void look_at_series(struct rfs_store *store, char *const *paths, size_t n, bool files,
                           struct rfs_scan_ranked *out)
{
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked found = {.n = 0};

    take_ranked(paths, n, files, &found);
    if (found.n == 0 || (out->n > 0 && (found.doubtful || !out->doubtful)) ||
        (!files && !has_tensors(store, found.first)))
        return;
    rfs_scan_ranked_free(out);
    *out = found;
    found = (struct rfs_scan_ranked){.n = 0};
}

void rfs_scan_ranked(struct rfs_store *store, const char *path, struct rfs_scan_ranked *out)
{
    *out = (struct rfs_scan_ranked){.n = 0};
    for (int files = 0; files < 2; files++) {
        RFS_CLEANUP(free_folders) struct folders names = {.n = 0};
        if (!list_names(store, path, files == 1, &names))
            return;
        for (size_t i = 0, end; i < names.n; i = end) {
            for (end = i + 1; end < names.n; end++)
                if (compare_series(names.data[i], names.data[end]) != 0)
                    break;
            look_at_series(store, names.data + i, end - i, files == 1, out);
        }
    }
}

char *rfs_scan_named(struct rfs_store *store, const char *path, int64_t step)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list found = {0};
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked ranked;
    char *text = NULL;

    rfs_scan_ranked(store, path, &ranked);
    if (ranked.n > 0 && !ranked.files && !ranked.doubtful)
        return rfs_text_printf("rank_dir=%s, as these folders are of ranks by their names",
                               ranked.pattern);
    rfs_scan_inside(store, path, step, false, &found);
    for (size_t i = 0; i < found.n && i < NAMED_MOST; i++) {
        char *longer =
            text ? rfs_text_printf("%s or %s", text, found.data[i]) : strdup(found.data[i]);
        free(text);
        text = longer;
    }
    return text;
}

/* ---- other formats --------------------------------------------------------------------------- */

/* Finds what a file is by its NAME in FOLDER (NULL: the source is PATH, that file). */
static const struct rfs_foreign *find(struct rfs_store *store, const char *folder, const char *name,
                                      const char *path)
{
    const bool reads = !folder || rfs_foreign_asks(name);
    RFS_FREE unsigned char *head = reads ? malloc(RFS_FOREIGN_HEAD) : NULL;
    RFS_FREE char *inside = folder && reads ? rfs_path_join(folder, name) : NULL;
    const char *file = folder ? inside : path;
    const ssize_t n = head && file ? rfs_store_head(store, file, head, RFS_FOREIGN_HEAD) : -1;

    return rfs_foreign_find(name, n > 0 ? head : NULL, n > 0 ? (size_t)n : 0);
}

int rfs_scan_foreign(struct rfs_store *store, const char *path, int rc, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    RFS_FREE char *name = NULL;
    const struct rfs_foreign *found = NULL;
    const struct dirent *entry;

    if (rc >= 0 || !err || err->usage || rc == -ENOMEM)
        return rc;
    const int failed = rfs_dir_open(store, path, &dir);
    if (failed < 0) {
        const char *base = rfs_path_name(path);
        found = failed == -ENOTDIR ? find(store, NULL, base, path) : NULL;
        return found ? rfs_foreign_fail(path, found, base, err) : rc;
    }
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        const struct rfs_foreign *row = find(store, path, entry->d_name, NULL);
        if (rfs_scan_is_rank(entry->d_name))
            return rc;
        if (!row || !rfs_foreign_counts(row, found))
            continue;
        found = row;
        free(name);
        name = strdup(entry->d_name);
    }
    if (!found || !name)
        return rc;
    return rfs_foreign_fail(path, found, name, err);
}
