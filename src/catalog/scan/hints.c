/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For messages: what a folder has that is not read. Files are listed, and none is opened but
 * metadata.json.
 *
 * Checkpoints that describe themselves, in folders below:
 *
 *   torchtitan   checkpoint/step-1000/.metadata
 *   Accelerate   pytorch_model_fsdp_0/.metadata, optimizer_0/.metadata; checkpoint-500/… of Trainer
 *   verl         global_step_100/actor/model_world_size_8_rank_0.pt, global_step_100/critic/…
 *   NeMo         NAME-step=100-last/weights/.metadata
 *
 * Checkpoints of formats that are not read, by the names of their files, with a remedy for each:
 *
 *   Orbax (JAX)                        _CHECKPOINT_METADATA, manifest.ocdbt
 *   Megatron, format torch             iter_0000020/mp_rank_00/model_optim_rng.pt, mp_rank_00_001 …
 *   Megatron, format zarr              iter_0000020/{metadata.json, a folder for each tensor}
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/path.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

/* ---- folders below --------------------------------------------------------------------------- */

static bool holds_ranks(struct rfs_store *store, const char *path)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(store, path, &dir);

    while (failed == 0 && (entry = rfs_dir_next(&dir)) != NULL)
        if (rfs_scan_is_rank(entry->d_name))
            return true;
    return false;
}

char *rfs_scan_below(struct rfs_store *store, const char *path)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    char *found = NULL;
    const int failed = rfs_dir_open(store, path, &dir);

    while (failed == 0 && (entry = rfs_dir_next(&dir)) != NULL) {
        RFS_FREE char *folder = entry->d_name[0] == '.' ? NULL : rfs_path_join(path, entry->d_name);
        if (!folder || (found && strcmp(found, folder) <= 0) || !holds_ranks(store, folder))
            continue;
        free(found);
        found = RFS_STEAL(folder);
    }
    return found;
}

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
    if (out->n > 1)
        qsort(out->data, out->n, sizeof *out->data, compare);
    return true;
}

static bool is_checkpoint(struct rfs_store *store, const char *path)
{
    const struct rfs_source_spec spec = {
        .path = path, .store = store, .options = &rfs_options_defaults};
    struct rfs_scan scan = {0};
    struct rfs_error unused;
    const bool is = rfs_scan_described(&spec, NULL, &scan, &unused) == 0 && scan.n > 0;

    rfs_scan_free(&scan);
    return is;
}

struct search {
    struct rfs_store *store;
    int64_t step;   /* the folder of this one counts, else the last */
    unsigned left;  /* folders that may be listed */
    char *text;     /* the checkpoints that were found; owned */
    unsigned named; /* paths in text */
};

static bool add(struct search *search, const char *path)
{
    char *text = search->text ? rfs_text_printf("%s or %s", search->text, path) : strdup(path);

    if (!text)
        return false;
    free(search->text);
    search->text = text;
    return ++search->named < NAMED_MOST;
}

/* Names the checkpoints among folders: of each series the last. */
static void name_checkpoints(struct search *search, const struct folders *folders)
{
    const char *named = NULL;

    for (size_t i = 0; i < folders->n && search->left > 0; i++) {
        const char *path = folders->data[i];
        if (named && compare_series(named, path) == 0)
            continue;
        search->left--;
        if (!is_checkpoint(search->store, path))
            continue;
        named = path;
        if (!add(search, path))
            return;
    }
}

static void look_into(struct search *search, const char *path, unsigned levels)
{
    RFS_CLEANUP(free_folders) struct folders folders = {.n = 0};

    if (levels == 0 || search->left == 0 || !list(search->store, path, &folders))
        return;
    search->left--;
    prefer(&folders, search->step);
    name_checkpoints(search, &folders);
    for (size_t i = 0; i < folders.n && !search->text; i++)
        look_into(search, folders.data[i], levels - 1);
}

char *rfs_scan_inside(struct rfs_store *store, const char *path, int64_t step)
{
    struct search search = {.store = store, .step = step, .left = LISTED_MOST};

    look_into(&search, path, LEVELS);
    return search.text;
}

char *rfs_scan_elsewhere(const struct rfs_source_spec *spec)
{
    char *below = rfs_scan_below(spec->store, spec->path);

    return below ? below : rfs_scan_inside(spec->store, spec->path, spec->options->step);
}

/* ---- other formats --------------------------------------------------------------------------- */

static const struct foreign {
    const char *name; /* a pattern */
    const char *what, *remedy;
    const char *holds; /* a text in that file; NULL: any */
} known[] = {
    {.name = "_CHECKPOINT_METADATA", .what = "Orbax"},
    {.name = "manifest.ocdbt",
     .what = "Orbax",
     .remedy = "Orbax to load it, and save_file of safetensors to save it"},
    {.name = "mp_rank_[0-9][0-9]_*",
     .what = "Megatron's format torch",
     .remedy = "Megatron to load it and to save it with --ckpt-format torch_dist"},
    {.name = "mp_rank_[0-9][0-9]*",
     .what = "Megatron's format torch",
     .remedy = "-o rank_dir=mp_rank_%d,file=model_optim_rng.pt,entry=model,src_rules=tpN,"
               "hf_config=FILE, where N is the number of these folders; or Megatron to load it and "
               "to save it with --ckpt-format torch_dist"},
    {.name = "metadata.json",
     .what = "Megatron's format zarr",
     .remedy = "Megatron to load it and to save it with --ckpt-format torch_dist",
     .holds = "\"zarr\""},
};

/* Consecutive rows of one format share the remedy of the last. */
static int fail_foreign(const char *path, const struct foreign *row, const char *name,
                        struct rfs_error *err)
{
    const struct foreign *last = row;

    while (!last->remedy)
        last++;
    return rfs_fail(err, -ENOTSUP, RFS_IN(path), last->remedy,
                    "this is a checkpoint of %s, as '%s' shows; this format is not read", row->what,
                    name);
}

/* Says whether the head of a file has a text. */
static bool holds(struct rfs_store *store, const char *folder, const char *name, const char *text)
{
    RFS_FREE char *path = rfs_path_join(folder, name);
    char head[4096];
    const ssize_t n = path ? rfs_store_head(store, path, head, sizeof head) : 0;

    return n > 0 && memmem(head, (size_t)n, text, strlen(text));
}

/* Finds the row of a name in FOLDER (NULL: the source is that file itself). */
static const struct foreign *find(struct rfs_store *store, const char *folder, const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rfs_glob_match(known[i].name, name) &&
            (!known[i].holds || (folder && holds(store, folder, name, known[i].holds))))
            return &known[i];
    return NULL;
}

int rfs_scan_foreign(struct rfs_store *store, const char *path, int rc, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    RFS_FREE char *name = NULL;
    const struct foreign *found = NULL;
    const struct dirent *entry;

    if (rc >= 0 || !err || err->usage || rc == -ENOMEM)
        return rc;
    const int failed = rfs_dir_open(store, path, &dir);
    if (failed < 0) {
        const char *base = rfs_path_name(path);
        found = failed == -ENOTDIR ? find(store, NULL, base) : NULL;
        return found ? fail_foreign(path, found, base, err) : rc;
    }
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        const struct foreign *row = find(store, path, entry->d_name);
        if (rfs_scan_is_rank(entry->d_name))
            return rc;
        if (!row || (found && found <= row))
            continue;
        found = row;
        free(name);
        name = strdup(entry->d_name);
    }
    if (!found || !name)
        return rc;
    return fail_foreign(path, found, name, err);
}
