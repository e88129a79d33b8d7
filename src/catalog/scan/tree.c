/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank folders, and in each the checkpoint that counts: of all ranks those of one format and, where
 * the names have numbers, of one save. SRC itself is read in the same way as if it were a rank's
 * folder where it has none.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define LISTED 8 /* saves that a message lists */
#define TRIED 64 /* saves, from the last on, among which one is looked for that all ranks have */

/* The listed files, and those chosen from them. */
struct tree {
    const struct rfs_source_spec *spec;
    struct rfs_scan *scan;
    struct rfs_scan_listing *listings; /* [n_listings] files of scan->data[i] */
    size_t n_listings;
    struct rfs_error *err;
};

static void free_tree(struct tree *tree)
{
    for (size_t i = 0; i < tree->n_listings; i++)
        rfs_scan_listing_free(&tree->listings[i]);
    free(tree->listings);
}

static void free_saves(struct rfs_saves *saves)
{
    free(saves->data);
}

/* Returns the path of a rank's folder, malloc'ed. */
static char *folder_path(const struct tree *tree, size_t i)
{
    const char *folder = tree->scan->data[i].folder;
    return folder ? rfs_path_join(tree->spec->path, folder) : strdup(tree->spec->path);
}

/* Shows the pattern as messages have it: rank_N. */
static void show_pattern(const struct rfs_source_spec *spec, char *out, size_t size)
{
    const char *pattern = spec->rank_dir ? spec->rank_dir : RFS_RANK_DIR;
    const int before = (int)(strchr(pattern, '%') - pattern);
    snprintf(out, size, "%.*sN%s", before, pattern, pattern + before + 2);
}

/* ---- listing --------------------------------------------------------------------------------- */

RFS_COMPARE(compare_ranks, struct rfs_scanned, x, y,
            RFS_ORDER(x->rank, y->rank) ?: strcmp(x->folder, y->folder))

/* Adds the entry if it is a rank's folder. */
static int add_folder(void *ctx, const struct dirent *entry)
{
    const struct tree *tree = ctx;
    const struct rfs_source_spec *spec = tree->spec;
    uint32_t rank;
    if (!rfs_scan_name_rank(spec->rank_dir ? spec->rank_dir : RFS_RANK_DIR, entry->d_name, &rank))
        return 0;
    const int rc = rfs_scan_entry_is(spec, spec->path, entry, S_IFDIR, tree->err);
    if (rc <= 0)
        return rc;
    if (rank > RFS_MAX_RANK)
        return rfs_fail(tree->err, -EINVAL, RFS_IN(spec->path), "rename or move that folder",
                        "folder '%s': ranks above %u are not supported", entry->d_name,
                        RFS_MAX_RANK);
    return rfs_scan_add(tree->scan, rank, entry->d_name) ? 0 : rfs_fail_memory(tree->err);
}

static int list_ranks(struct tree *tree)
{
    const char *root = tree->spec->path;
    struct rfs_scan *scan = tree->scan;
    const int rc = rfs_scan_entry_each(tree->spec->store, root, add_folder, tree, tree->err);
    if (rc < 0)
        return rc;
    RFS_SORT_ALL(scan, compare_ranks);
    for (size_t i = 1; i < scan->n; i++)
        if (scan->data[i].rank == scan->data[i - 1].rank)
            return rfs_fail(tree->err, -EINVAL, RFS_IN(root), "move one of them away",
                            "folders '%s' and '%s' are both of rank %u", scan->data[i - 1].folder,
                            scan->data[i].folder, scan->data[i].rank);
    return 0;
}

static int list_files(struct tree *tree)
{
    tree->listings = calloc(tree->scan->n, sizeof *tree->listings);
    if (!tree->listings)
        return rfs_fail_memory(tree->err);
    tree->n_listings = tree->scan->n;
    for (size_t i = 0; i < tree->scan->n; i++) {
        RFS_FREE char *path = folder_path(tree, i);
        if (!path)
            return rfs_fail_memory(tree->err);
        const int rc = rfs_scan_listing_read(tree->spec, path, tree->spec->file, &tree->listings[i],
                                             tree->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- one format ------------------------------------------------------------------------------ */

/* Shows the first file of that format, "rank_0/a.ckpt"; nothing when there is none. */
static void show_first(const struct tree *tree, enum rfs_format format, char *out, size_t size)
{
    *out = '\0';
    for (size_t i = 0; i < tree->n_listings && !*out; i++) {
        const char *name = rfs_scan_listing_has(&tree->listings[i], format);
        const char *folder = tree->scan->data[i].folder;
        if (name)
            snprintf(out, size, "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
    }
}

static int fail_empty(const struct tree *tree)
{
    const struct rfs_source_spec *spec = tree->spec;
    char ranks[300];
    char matching[300] = "";
    show_pattern(spec, ranks, sizeof ranks);
    if (spec->file)
        snprintf(matching, sizeof matching, " that matches '%s'", spec->file);
    if (tree->scan->whole)
        return rfs_fail(tree->err, -ENOENT, RFS_IN(spec->path), "give the folder that holds them",
                        "the folder has no .ckpt, .safetensors or .pt file%s", matching);
    return rfs_fail(tree->err, -ENOENT, RFS_IN(spec->path),
                    "give the folder that holds rank_0, rank_1 and so on",
                    "no %s folder in it has a .ckpt, .safetensors or .pt file%s", ranks, matching);
}

static int settle_format(const struct tree *tree)
{
    char ckpt[600];
    char safetensors[600];
    char torch[600];
    show_first(tree, RFS_FORMAT_TORCH, torch, sizeof torch);
    show_first(tree, RFS_FORMAT_CKPT, ckpt, sizeof ckpt);
    show_first(tree, RFS_FORMAT_SAFETENSORS, safetensors, sizeof safetensors);
    if (*ckpt && *safetensors)
        return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path),
                        "move one kind to another folder, or choose one by file=*.ckpt",
                        "the tree holds both .ckpt files (%s) and .safetensors files (%s)", ckpt,
                        safetensors);
    if (!*ckpt && !*safetensors && !*torch)
        return fail_empty(tree);
    /* MindSpore ignores .pt files, so they do not matter to it. */
    tree->scan->format = *ckpt          ? RFS_FORMAT_CKPT
                         : *safetensors ? RFS_FORMAT_SAFETENSORS
                                        : RFS_FORMAT_TORCH;
    return 0;
}

/* Drops files of other formats, such as .pt files beside those of MindSpore. */
static void drop_others(const struct tree *tree)
{
    for (size_t i = 0; i < tree->n_listings; i++) {
        struct rfs_scan_listing *listing = &tree->listings[i];
        size_t n = 0;
        for (size_t k = 0; k < listing->n; k++)
            if (listing->data[k].format == tree->scan->format)
                listing->data[n++] = listing->data[k];
            else
                free(listing->data[k].name);
        listing->n = n;
    }
}

/* ---- one save -------------------------------------------------------------------------------- */

static bool is_asked(const struct rfs_source_spec *spec, const struct rfs_scan_found *found)
{
    return found->saved && (spec->step == RFS_ANY_NUMBER || spec->step == found->save.step) &&
           (spec->epoch == RFS_ANY_NUMBER || spec->epoch == found->save.epoch);
}

/* Collects all saves by their names, or only the requested ones. */
static int collect_saves(const struct tree *tree, bool only_asked, struct rfs_saves *out)
{
    for (size_t i = 0; i < tree->n_listings; i++)
        for (size_t k = 0; k < tree->listings[i].n; k++) {
            const struct rfs_scan_found *found = &tree->listings[i].data[k];
            if (only_asked ? !is_asked(tree->spec, found) : !found->saved)
                continue;
            if (!RFS_PUSH(out, found->save))
                return rfs_fail_memory(tree->err);
        }
    RFS_SORT_ALL(out, rfs_scan_saves_compare);
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++)
        if (n == 0 || rfs_scan_saves_compare(&out->data[n - 1], &out->data[i]) != 0)
            out->data[n++] = out->data[i];
    out->n = n;
    return 0;
}

/* Shows "3_1000, 4_1000 and 2 more". */
static void show_saves(const struct rfs_saves *saves, char *out, size_t size)
{
    size_t at = 0;
    *out = '\0';
    for (size_t i = 0; i < saves->n && i < LISTED; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRId64 "_%" PRId64, i > 0 ? ", " : "",
                               saves->data[i].epoch, saves->data[i].step);
    if (saves->n > LISTED)
        snprintf(out + at, size - at, " and %zu more", saves->n - LISTED);
}

/* Shows "epoch 3, step 1000". */
static void show_asked(const struct rfs_source_spec *spec, char *out, size_t size)
{
    char epoch[40] = "";
    char step[40] = "";
    if (spec->epoch != RFS_ANY_NUMBER)
        snprintf(epoch, sizeof epoch, "epoch %" PRId64, spec->epoch);
    if (spec->step != RFS_ANY_NUMBER)
        snprintf(step, sizeof step, "step %" PRId64, spec->step);
    snprintf(out, size, "%s%s%s", epoch, *epoch && *step ? ", " : "", step);
}

static int fail_no_save(const struct tree *tree)
{
    RFS_CLEANUP(free_saves) struct rfs_saves all = {0};
    char asked[100];
    char list[LISTED * 48 + 32];
    const int rc = collect_saves(tree, false, &all);
    if (rc < 0)
        return rc;
    show_asked(tree->spec, asked, sizeof asked);
    show_saves(&all, list, sizeof list);
    if (all.n == 0)
        return rfs_fail(
            tree->err, -ENOENT, RFS_IN(tree->spec->path), "file=GLOB to choose by name",
            "no checkpoint in it is named PREFIX-EPOCH_STEP, so step= and epoch= select none");
    if (!*asked)
        return 0;
    return rfs_fail(tree->err, -ENOENT, RFS_IN(tree->spec->path), "one of those",
                    "no checkpoint of %s; the saves here (epoch_step) are %s", asked, list);
}

/* Finds the one save that step= and epoch= mean. */
static int settle_save(const struct tree *tree, struct rfs_save *save)
{
    RFS_CLEANUP(free_saves) struct rfs_saves asked = {0};
    char text[100];
    char list[LISTED * 48 + 32];
    const int rc = collect_saves(tree, true, &asked);
    if (rc < 0)
        return rc;
    if (asked.n == 0)
        return fail_no_save(tree);
    *save = asked.data[0];
    if (asked.n == 1)
        return 0;
    show_asked(tree->spec, text, sizeof text);
    show_saves(&asked, list, sizeof list);
    return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path),
                    "both step= and epoch=", "several checkpoints are of %s (epoch_step): %s", text,
                    list);
}

/* Says whether all ranks that have a checkpoint have one of that save. */
static bool all_have(const struct tree *tree, const struct rfs_save *save)
{
    for (size_t i = 0; i < tree->n_listings; i++) {
        const struct rfs_scan_listing *listing = &tree->listings[i];
        bool has = listing->n == 0;
        for (size_t k = 0; k < listing->n && !has; k++)
            has =
                listing->data[k].saved && rfs_scan_saves_compare(&listing->data[k].save, save) == 0;
        if (!has)
            return false;
    }
    return true;
}

static int fail_mixed(const struct tree *tree, size_t a, const char *in_a, size_t b,
                      const char *in_b)
{
    RFS_CLEANUP(free_saves) struct rfs_saves saves = {0};
    char remedy[200] =
        "step= and epoch= of one save, or files=MAP if the names mean something else";
    const struct rfs_scanned *ranks = tree->scan->data;
    const int rc = collect_saves(tree, false, &saves);
    if (rc < 0)
        return rc;
    for (size_t i = saves.n; i-- > 0 && saves.n - i <= TRIED;)
        if (all_have(tree, &saves.data[i])) {
            snprintf(remedy, sizeof remedy,
                     "epoch=%" PRId64 ",step=%" PRId64 ", the last that all ranks have",
                     saves.data[i].epoch, saves.data[i].step);
            break;
        }
    return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path), remedy,
                    "the ranks' last checkpoints are of different saves: %s/%s and %s/%s",
                    ranks[a].folder, in_a, ranks[b].folder, in_b);
}

/*
 * Checks that no output is made of two saves. A name that ends like a save's but counts the ranks,
 * part-0_8 for rank 0 to part-7_8 for rank 7, is none.
 */
static int check_one_save(const struct tree *tree, const size_t *chosen)
{
    const struct rfs_scan *scan = tree->scan;
    size_t first = SIZE_MAX;
    size_t other = SIZE_MAX;
    bool epochs_are_ranks = true;
    bool steps_are_ranks = true;
    for (size_t i = 0; i < scan->n; i++) {
        if (chosen[i] == SIZE_MAX || !tree->listings[i].data[chosen[i]].saved)
            continue;
        const struct rfs_save *save = &tree->listings[i].data[chosen[i]].save;
        epochs_are_ranks = epochs_are_ranks && save->epoch == scan->data[i].rank;
        steps_are_ranks = steps_are_ranks && save->step == scan->data[i].rank;
        if (first == SIZE_MAX)
            first = i;
        else if (other == SIZE_MAX &&
                 rfs_scan_saves_compare(&tree->listings[first].data[chosen[first]].save, save) != 0)
            other = i;
    }
    if (other == SIZE_MAX || epochs_are_ranks || steps_are_ranks)
        return 0;
    return fail_mixed(tree, first, tree->listings[first].data[chosen[first]].name, other,
                      tree->listings[other].data[chosen[other]].name);
}

/* ---- the files ------------------------------------------------------------------------------- */

static int add_file(const struct tree *tree, size_t i, const char *folder, size_t file)
{
    char *path = rfs_path_join(folder, tree->listings[i].data[file].name);
    return rfs_scan_add_file(&tree->scan->data[i], path) ? 0 : rfs_fail_memory(tree->err);
}

/* Takes all of the folder's files, or those of the save. */
static int take_all(const struct tree *tree, size_t i, const char *folder,
                    const struct rfs_save *save)
{
    const struct rfs_scan_listing *listing = &tree->listings[i];
    for (size_t k = 0; k < listing->n; k++) {
        const struct rfs_scan_found *found = &listing->data[k];
        if (save && (!found->saved || rfs_scan_saves_compare(&found->save, save) != 0))
            continue;
        const int rc = add_file(tree, i, folder, k);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_files(const struct tree *tree, const struct rfs_save *save, size_t *chosen)
{
    struct rfs_scan *scan = tree->scan;
    for (size_t i = 0; i < scan->n; i++) {
        RFS_FREE char *folder = folder_path(tree, i);
        if (!folder)
            return rfs_fail_memory(tree->err);
        chosen[i] = SIZE_MAX;
        int rc = tree->spec->segmented
                     ? take_all(tree, i, folder, save)
                     : rfs_scan_listing_choose(&tree->listings[i], folder, scan->format, save,
                                               &chosen[i], tree->err);
        if (rc == 0 && chosen[i] != SIZE_MAX)
            rc = add_file(tree, i, folder, chosen[i]);
        if (rc < 0)
            return rc;
        scan->present += scan->data[i].n_files > 0;
    }
    return 0;
}

static int choose_files(const struct tree *tree)
{
    struct rfs_save save;
    const bool asked = rfs_scan_asks_save(tree->spec);
    RFS_FREE size_t *chosen = calloc(tree->scan->n, sizeof *chosen);
    if (!chosen)
        return rfs_fail_memory(tree->err);
    int rc = asked ? settle_save(tree, &save) : 0;
    if (rc == 0)
        rc = take_files(tree, asked ? &save : NULL, chosen);
    if (rc == 0 && !asked)
        rc = check_one_save(tree, chosen);
    return rc;
}

/* Finds the files of the ranks that were found, or the saves that they have. */
static int look_into_folders(struct tree *tree, struct rfs_saves *saves)
{
    int rc = list_files(tree) ?: settle_format(tree);
    if (rc < 0)
        return rc;
    drop_others(tree);
    if (!saves)
        return choose_files(tree);
    rc = collect_saves(tree, true, saves);
    return rc < 0 || saves->n > 0 ? rc : fail_no_save(tree);
}

/*
 * Refuses what MindSpore's TrainFaultTolerance saves at a failure until all ranks are done, when it
 * drops the end of the folder's name (train/callback/_train_fault_tolerance.py).
 */
static int check_finished(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    static const char begin[] = "ttp_saved_checkpoints-step_";
    const char *slash = strrchr(spec->path, '/');
    const char *name = slash ? slash + 1 : spec->path;

    if (strncmp(name, begin, strlen(begin)) != 0 || !rfs_text_ends(name, "_tmp"))
        return 0;
    return rfs_fail(err, -EINVAL, RFS_IN(spec->path),
                    "an earlier save, or the name without _tmp if you know that no rank is missing",
                    "the save of TrainFaultTolerance did not end: _tmp is in its name until all "
                    "ranks are written");
}

int rfs_scan_tree(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_saves *saves,
                  struct rfs_error *err)
{
    RFS_CLEANUP(free_tree) struct tree tree = {.spec = spec, .scan = out, .err = err};
    char ranks[300];
    const int rc = list_ranks(&tree);
    if (rc < 0)
        return rc;
    if (out->n > 0)
        return check_finished(spec, err) ?: look_into_folders(&tree, saves);
    show_pattern(spec, ranks, sizeof ranks);
    return !spec->rank_dir
               ? 0
               : rfs_fail(err, -ENOENT, RFS_IN(spec->path), "give the folder that holds them",
                          "the folder has no %s folder in it", ranks);
}

int rfs_scan_flat(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_saves *saves,
                  struct rfs_error *err)
{
    RFS_CLEANUP(free_tree) struct tree tree = {.spec = spec, .scan = out, .err = err};
    out->whole = true;
    return rfs_scan_add(out, 0, NULL) ? look_into_folders(&tree, saves) : rfs_fail_memory(err);
}
