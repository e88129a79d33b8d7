/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that describe themselves in folders below the one that was given, for a message.
 *
 *   torchtitan    checkpoint/step-1000/.metadata
 *   Accelerate    pytorch_model_fsdp_0/.metadata, optimizer_0/.metadata; checkpoint-500/… of Trainer
 *   verl          global_step_100/actor/model_world_size_8_rank_0.pt, global_step_100/critic/…
 *   NeMo          NAME-step=100-last/weights/.metadata
 *
 * Where the names of folders differ in the numbers alone, the last one counts. The search goes a
 * few levels down, and ends when it has listed some folders.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

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

/* The next character of a name, where each run of digits is one character. */
static char next_of(const char **at)
{
    const size_t digits = strspn(*at, "0123456789");

    *at += digits > 0 ? digits : 1;
    return digits > 0 ? '0' : (*at)[-1];
}

/* Paths but for the numbers in them: <0, 0 or >0. */
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

    return compare_series(x, y) ?: rfs_name_compare(y, x);
}

/* The folders in PATH, without links, sorted. False when it cannot be listed. */
static bool list(const char *path, struct folders *out)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;

    if (rfs_dir_open(path, &dir) < 0)
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

static bool is_checkpoint(const char *path)
{
    const struct rfs_source_spec spec = {
        .path = path, .step = RFS_ANY_NUMBER, .epoch = RFS_ANY_NUMBER};
    struct rfs_scan scan = {0};
    struct rfs_error unused;
    const bool is = rfs_scan_described(&spec, NULL, &scan, &unused) == 0 && scan.n > 0;

    rfs_scan_free(&scan);
    return is;
}

struct search {
    unsigned left;  /* folders that may be listed */
    char *text;     /* what was found; owned */
    unsigned named; /* paths in it */
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
        if (!is_checkpoint(path))
            continue;
        named = path;
        if (!add(search, path))
            return;
    }
}

static void look_into(struct search *search, const char *path, unsigned levels)
{
    RFS_CLEANUP(free_folders) struct folders folders = {.n = 0};

    if (levels == 0 || search->left == 0 || !list(path, &folders))
        return;
    search->left--;
    name_checkpoints(search, &folders);
    for (size_t i = 0; i < folders.n && !search->text; i++)
        look_into(search, folders.data[i], levels - 1);
}

char *rfs_scan_inside(const char *path)
{
    struct search search = {.left = LISTED_MOST};

    look_into(&search, path, LEVELS);
    return search.text;
}
