/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank folders, and in each the checkpoint that counts: of all ranks those of one format and, where
 * the names have numbers, of one save. SRC itself is read in the same way as if it were a rank's
 * folder where it has none.
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define LISTED 8 /* saves that a message lists */
#define TRIED 64 /* saves, from the last on, among which one is looked for that all ranks have */

/* The ranks' folders, and the files that are considered, of one format. */
struct rfs_scan_tree {
    struct rfs_scan ranks;             /* without files */
    struct rfs_scan_listing *listings; /* [n_listings] files of ranks.data[i] */
    size_t n_listings;
    const struct rfs_scan_found **files; /* by rank and name; of several saves, by save first */
    size_t n_files;
    size_t *begins; /* [saves + 1] where those of each begin; or NULL */
};

/* A look at a tree. */
struct tree {
    const struct rfs_source_spec *spec;
    struct rfs_scan_tree *all;
    struct rfs_log *log;
    struct rfs_error *err; /* or NULL */
};

void rfs_scan_tree_free(struct rfs_scan_tree *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n_listings; i++)
        rfs_scan_listing_free(&all->listings[i]);
    free(all->listings);
    free(all->files);
    free(all->begins);
    rfs_scan_free(&all->ranks);
    free(all);
}

RFS_CLEANUP_OF(free_all, struct rfs_scan_tree *, rfs_scan_tree_free)

static void free_saves(struct rfs_saves *saves)
{
    free(saves->data);
}

/* Returns the path of a rank's folder, malloc'ed. */
static char *folder_path(const struct tree *tree, size_t i)
{
    const char *folder = tree->all->ranks.data[i].folder;
    return folder ? rfs_path_join(tree->spec->path, folder) : strdup(tree->spec->path);
}

/* Shows the pattern as messages have it: rank_N. */
static void show_pattern(const struct rfs_source_spec *spec, char *out, size_t size)
{
    const char *pattern = spec->options->rank_dir ? spec->options->rank_dir : RFS_RANK_DIR;
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
    if (!rfs_scan_name_rank(spec->options->rank_dir ? spec->options->rank_dir : RFS_RANK_DIR,
                            entry->d_name, &rank))
        return rfs_aside_note(spec, entry, &tree->all->ranks.aside) ? 0
                                                                    : rfs_fail_memory(tree->err);
    const int rc = rfs_scan_entry_is(spec, spec->path, entry, S_IFDIR, tree->err);
    if (rc <= 0)
        return rc;
    if (rank > RFS_MAX_RANK)
        return rfs_fail(tree->err, -EINVAL, RFS_IN(spec->path), "rename or move that folder",
                        "folder '%s': ranks above %u are not supported", entry->d_name,
                        RFS_MAX_RANK);
    rfs_scan_add(&tree->all->ranks, rank, entry->d_name);
    return 0;
}

static int list_ranks(struct tree *tree)
{
    const char *root = tree->spec->path;
    struct rfs_scan *scan = &tree->all->ranks;
    const int rc = rfs_scan_entry_each(tree->spec->store, root, add_folder, tree, tree->err);
    if (rc < 0)
        return rc;
    if (scan->failed)
        return rfs_fail_memory(tree->err);
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
    struct rfs_scan_tree *all = tree->all;
    RFS_FREE char *first = NULL;
    size_t states = 0;

    all->listings = calloc(all->ranks.n, sizeof *all->listings);
    if (!all->listings)
        return rfs_fail_memory(tree->err);
    all->n_listings = all->ranks.n;
    for (size_t i = 0; i < all->ranks.n; i++) {
        struct rfs_scan_listing *listing = &all->listings[i];
        RFS_FREE char *path = folder_path(tree, i);
        if (!path)
            return rfs_fail_memory(tree->err);
        const int rc =
            rfs_scan_listing_read(tree->spec, path, tree->spec->options->file, listing, tree->err);
        if (rc < 0)
            return rc;
        if (!tree->spec->options->file)
            states += rfs_aside_drop_states(listing, &first);
        for (size_t k = 0; k < listing->n; k++)
            listing->data[k].at = (uint32_t)i;
    }
    if (first)
        rfs_log(tree->log, RFS_WARNING,
                "%s: %zu file%s beside those of the model %s not read, such as '%s': a state of "
                "the training, by the name",
                tree->spec->path, states, states == 1 ? "" : "s", states == 1 ? "is" : "are",
                first);
    return 0;
}

/* ---- one format ------------------------------------------------------------------------------ */

/* Shows the first file of that format, "rank_0/a.ckpt". */
static void show_first(const struct tree *tree, const struct rfs_scan_formats *of,
                       enum rfs_format format, char *out, size_t size)
{
    const char *folder = tree->all->ranks.data[of->at[format]].folder;

    snprintf(out, size, "%s%s%s", folder ? folder : "", folder ? "/" : "", of->names[format]);
}

static int fail_empty(const struct tree *tree)
{
    const struct rfs_source_spec *spec = tree->spec;
    RFS_FREE char *elsewhere = tree->all->ranks.whole
                                   ? rfs_scan_named(spec->store, spec->path, spec->options->step)
                                   : NULL;
    char ranks[300];
    char matching[300] = "";
    char endings[RFS_FORMAT_ENDINGS_TEXT];
    show_pattern(spec, ranks, sizeof ranks);
    if (spec->options->file)
        snprintf(matching, sizeof matching, " that matches '%s'", spec->options->file);
    if (tree->all->ranks.whole)
        return rfs_fail(tree->err, -ENOENT, RFS_IN(spec->path),
                        elsewhere ? elsewhere : "give the folder that holds them",
                        "the folder has no %s file%s", rfs_format_endings(true, endings), matching);
    return rfs_fail(tree->err, -ENOENT, RFS_IN(spec->path),
                    "give the folder that holds rank_0, rank_1 and so on",
                    "no %s folder in it has a %s file%s", ranks, rfs_format_endings(true, endings),
                    matching);
}

static int fail_formats(const struct tree *tree, const struct rfs_scan_formats *of)
{
    const char *ending = rfs_formats[of->first].endings[0];
    char one[600];
    char other[600];
    char remedy[120];

    show_first(tree, of, of->first, one, sizeof one);
    show_first(tree, of, of->rival, other, sizeof other);
    snprintf(remedy, sizeof remedy, "move one kind to another folder, or choose one by file=*%s",
             ending);
    return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path), remedy,
                    "the tree holds both %s files (%s) and %s files (%s)", ending, one,
                    rfs_formats[of->rival].endings[0], other);
}

static int settle_format(const struct tree *tree)
{
    struct rfs_scan_formats of;

    rfs_scan_settle(tree->all->listings, tree->all->n_listings, &of);
    if (of.rival < RFS_FORMAT_COUNT)
        return fail_formats(tree, &of);
    if (of.first == RFS_FORMAT_COUNT)
        return fail_empty(tree);
    tree->all->ranks.format = of.first;
    return 0;
}

/* Drops files of other formats, such as .pt files beside those of MindSpore. */
static void drop_others(const struct tree *tree)
{
    for (size_t i = 0; i < tree->all->n_listings; i++) {
        struct rfs_scan_listing *listing = &tree->all->listings[i];
        size_t n = 0;
        for (size_t k = 0; k < listing->n; k++)
            if (listing->data[k].format == tree->all->ranks.format)
                listing->data[n++] = listing->data[k];
            else
                free(listing->data[k].name);
        listing->n = n;
    }
}

/* ---- saves by their numbers ------------------------------------------------------------------ */

/* Finds the saves that BY lets through; with NULL all files. */
static int find_files(const struct tree *tree, const struct rfs_options *by)
{
    struct rfs_scan_tree *all = tree->all;
    size_t n = 0;

    for (size_t i = 0; i < all->n_listings; i++)
        n += all->listings[i].n;
    free(all->files);
    all->n_files = 0;
    all->files = calloc(n > 0 ? n : 1, sizeof *all->files);
    if (!all->files)
        return rfs_fail_memory(tree->err);
    for (size_t i = 0; i < all->n_listings; i++)
        for (size_t k = 0; k < all->listings[i].n; k++) {
            const struct rfs_scan_found *found = &all->listings[i].data[k];
            if (!by || (found->saved && rfs_scan_lets(by, &found->save)))
                all->files[all->n_files++] = found;
        }
    return 0;
}

RFS_COMPARE(by_save, const struct rfs_scan_found *, x, y,
            rfs_scan_saves_compare(&(*x)->save, &(*y)->save) ?: RFS_ORDER((*x)->at, (*y)->at)
            ?: strcmp((*x)->name, (*y)->name))

/* Lists the saves that BY lets through, and orders the files by them. */
static int find_saves(const struct tree *tree, const struct rfs_options *by, struct rfs_saves *out)
{
    struct rfs_scan_tree *all = tree->all;
    const int rc = find_files(tree, by);

    if (rc < 0)
        return rc;
    RFS_SORT(all->files, all->n_files, by_save);
    free(all->begins);
    all->begins = calloc(all->n_files + 1, sizeof *all->begins);
    if (!all->begins)
        return rfs_fail_memory(tree->err);
    for (size_t i = 0; i < all->n_files; i++) {
        const struct rfs_save *save = &all->files[i]->save;
        if (out->n > 0 && rfs_scan_saves_compare(&out->data[out->n - 1], save) == 0)
            continue;
        all->begins[out->n] = i;
        if (!RFS_PUSH(out, *save))
            return rfs_fail_memory(tree->err);
    }
    all->begins[out->n] = all->n_files;
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
    if (spec->options->epoch != RFS_ANY_NUMBER)
        snprintf(epoch, sizeof epoch, "epoch %" PRId64, spec->options->epoch);
    if (spec->options->step != RFS_ANY_NUMBER)
        snprintf(step, sizeof step, "step %" PRId64, spec->options->step);
    snprintf(out, size, "%s%s%s", epoch, *epoch && *step ? ", " : "", step);
}

static int fail_no_save(const struct tree *tree)
{
    RFS_CLEANUP(free_saves) struct rfs_saves saves = {0};
    const struct rfs_source_spec *spec = tree->spec;
    RFS_FREE char *elsewhere = tree->all->ranks.whole
                                   ? rfs_scan_named(spec->store, spec->path, spec->options->step)
                                   : NULL;
    char asked[100];
    char list[LISTED * 48 + 32];
    const int rc = find_saves(tree, &rfs_options_defaults, &saves);
    if (rc < 0)
        return rc;
    show_asked(tree->spec, asked, sizeof asked);
    show_saves(&saves, list, sizeof list);
    if (saves.n == 0)
        return rfs_fail(
            tree->err, -ENOENT, RFS_IN(tree->spec->path),
            elsewhere ? elsewhere : "file=GLOB to choose by name",
            "no checkpoint in it is named PREFIX-EPOCH_STEP, so step= and epoch= select none");
    if (!*asked)
        return 0;
    return rfs_fail(tree->err, -ENOENT, RFS_IN(tree->spec->path), "one of those",
                    "no checkpoint of %s; the saves here (epoch_step) are %s", asked, list);
}

/* Finds the files of the one save that step= and epoch= mean. */
static int find_asked(const struct tree *tree)
{
    RFS_CLEANUP(free_saves) struct rfs_saves asked = {0};
    char text[100];
    char list[LISTED * 48 + 32];
    const int rc = find_saves(tree, tree->spec->options, &asked);
    if (rc < 0 || asked.n == 1)
        return rc;
    if (asked.n == 0)
        return fail_no_save(tree);
    show_asked(tree->spec, text, sizeof text);
    show_saves(&asked, list, sizeof list);
    return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path),
                    "both step= and epoch=", "several checkpoints are of %s (epoch_step): %s", text,
                    list);
}

/* ---- files of one save ----------------------------------------------------------------------- */

/* Files that are considered, by rank and name, and what was chosen of them. */
struct choice {
    const struct rfs_scan_found *const *files;
    size_t n;
    bool asked; /* they are what step= and epoch= mean */
    const struct rfs_scan_found *
        *chosen; /* [ranks] NULL: there is none; where several are taken, the first */
    const struct rfs_scan_found *one, *other; /* two files that are not of one save; or NULL */
    bool rivals;                              /* these are beside each other */
};

/* Returns the end of the files of one rank that begin at FROM. */
static size_t end_of_rank(const struct choice *choice, size_t from)
{
    size_t end = from + 1;

    while (end < choice->n && choice->files[end]->at == choice->files[from]->at)
        end++;
    return end;
}

static uint32_t rank_of(const struct tree *tree, const struct rfs_scan_found *found)
{
    return tree->all->ranks.data[found->at].rank;
}

/* Chooses the file of each rank that counts. */
static int choose_last(const struct tree *tree, struct choice *choice)
{
    for (size_t i = 0, end; i < choice->n; i = end) {
        size_t k = 0;
        end = end_of_rank(choice, i);
        RFS_FREE char *folder = folder_path(tree, choice->files[i]->at);
        if (!folder)
            return rfs_fail_memory(tree->err);
        const int rc =
            tree->spec->options->segmented
                ? rfs_scan_found_divided(folder, choice->files + i, end - i, true, tree->err)
                : rfs_scan_choose(choice->files + i, end - i, folder, tree->all->ranks.format, &k,
                                  tree->err);
        if (rc < 0)
            return rc;
        choice->chosen[choice->files[i]->at] = choice->files[i + k];
    }
    return 0;
}

/* Looks for a file beside a chosen one that makes the rank's number in that name doubtful. */
static void find_rival(const struct rfs_scan_same *same, struct choice *choice)
{
    for (size_t i = 0; i < choice->n && !choice->other; i++) {
        const struct rfs_scan_found *chosen = choice->chosen[choice->files[i]->at];
        if (chosen == choice->files[i] ||
            !rfs_scan_same_rival(same, chosen->name, choice->files[i]->name))
            continue;
        choice->one = chosen;
        choice->other = choice->files[i];
        choice->rivals = true;
    }
}

/* Looks for two chosen files that are not of one save. */
static int compare_chosen(const struct tree *tree, struct choice *choice)
{
    RFS_CLEANUP(rfs_scan_same_free) struct rfs_scan_same same = {0};
    const struct rfs_scan_found *differs = NULL; /* from the first */

    for (size_t i = 0; i < tree->all->ranks.n && !choice->other; i++) {
        const struct rfs_scan_found *found = choice->chosen[i];
        if (!found)
            continue;
        const int rc = rfs_scan_same_add(&same, found->name, rank_of(tree, found));
        if (rc < 0)
            return rfs_fail_memory(tree->err);
        choice->one = choice->one ? choice->one : found;
        choice->other = rc == 0 ? found : NULL;
        if (!differs && strcmp(found->name, choice->one->name) != 0)
            differs = found;
    }
    if (choice->other || !same.name)
        return 0;
    if (!rfs_scan_same_counts_ranks(&same))
        choice->other = differs;
    else
        find_rival(&same, choice);
    return 0;
}

/* The names that all ranks' files have, in their order, where each rank has several. */
struct series {
    RFS_VEC(struct rfs_scan_same) names;
};

static void free_series(struct series *series)
{
    for (size_t i = 0; i < series->names.n; i++)
        rfs_scan_same_free(&series->names.data[i]);
    free(series->names.data);
}

/*
 * Adds a file of RANK, with the name that the file before it had, *AT counted from 1, or the next
 * one, which the FIRST rank adds. 1, 0 when the name is none of these, or -ENOMEM.
 */
static int add_to_series(struct series *series, const char *name, uint32_t rank, bool first,
                         size_t *at)
{
    const struct rfs_scan_same fresh = {.any_part = true};
    int rc = *at > 0 ? rfs_scan_same_add(&series->names.data[*at - 1], name, rank) : 0;

    if (rc != 0)
        return rc;
    if (first && !RFS_PUSH(&series->names, fresh))
        return -ENOMEM;
    if (*at == series->names.n)
        return 0;
    return rfs_scan_same_add(&series->names.data[(*at)++], name, rank);
}

/*
 * Looks for two files that are not of one save where all of a rank's are taken: then each rank has
 * files of the same names, and only the numbers of parts differ. What step= means is one name.
 */
static int compare_all(const struct tree *tree, struct choice *choice)
{
    RFS_CLEANUP(free_series) struct series series = {0};

    for (size_t i = 0, end; i < choice->n && !choice->other; i = end) {
        size_t at = 0;
        int rc = 1;
        end = end_of_rank(choice, i);
        for (size_t k = i; k < end && rc == 1; k++) {
            choice->other = choice->files[k];
            rc = add_to_series(&series, choice->files[k]->name, rank_of(tree, choice->files[k]),
                               i == 0, &at);
        }
        if (rc < 0)
            return rfs_fail_memory(tree->err);
        choice->one = choice->files[0];
        for (size_t k = 0; rc == 1 && at < series.names.n && k < end; k++)
            if (choice->files[k]->name == series.names.data[at].name) /* the rank lacks it */
                choice->one = choice->files[k];
        if (rc == 1 && at == series.names.n && !(choice->asked && at > 1))
            choice->other = NULL;
    }
    return 0;
}

/* Chooses files, and looks for two that are not of one save. */
static int choose(const struct tree *tree, struct choice *choice)
{
    choice->chosen = calloc(tree->all->ranks.n, sizeof *choice->chosen);
    if (!choice->chosen)
        return rfs_fail_memory(tree->err);
    return choose_last(tree, choice)
               ?: (tree->spec->options->segmented ? compare_all : compare_chosen)(tree, choice);
}

static void free_choice(struct choice *choice)
{
    free(choice->chosen);
}

/* ---- what to do about two saves -------------------------------------------------------------- */

/* Returns the first rank that has files, and none that was chosen; NULL: there is none. */
static const struct rfs_scanned *find_lost(const struct tree *tree, const struct choice *choice)
{
    for (size_t i = 0; i < tree->all->ranks.n; i++)
        if (tree->all->listings[i].n > 0 && !choice->chosen[i])
            return &tree->all->ranks.data[i];
    return NULL;
}

/* Finds the last save that all ranks have. Returns whether there is one. */
static bool find_whole(const struct tree *tree, struct rfs_save *save)
{
    RFS_CLEANUP(free_saves) struct rfs_saves saves = {0};
    struct rfs_scan_tree all = *tree->all; /* with files of its own: the caller uses the others */
    const struct tree quiet = {.spec = tree->spec, .all = &all};
    bool found = false;

    all.files = NULL;
    all.begins = NULL;
    const int rc = find_saves(&quiet, &rfs_options_defaults, &saves);
    for (size_t i = saves.n; rc == 0 && i-- > 0 && saves.n - i <= TRIED && !found;) {
        RFS_CLEANUP(free_choice)
        struct choice choice = {.files = all.files + all.begins[i],
                                .n = all.begins[i + 1] - all.begins[i],
                                .asked = true};
        found = choose(&quiet, &choice) == 0 && !choice.other && !find_lost(&quiet, &choice);
        *save = saves.data[i];
    }
    free(all.files);
    free(all.begins);
    return found;
}

/* Says whether each rank with files has one checkpoint like PATTERN, and one only. */
static bool is_choice(const struct choice *choice, const char *pattern)
{
    for (size_t i = 0, end; i < choice->n; i = end) {
        size_t n = 0;
        end = end_of_rank(choice, i);
        for (size_t k = i; k < end; k++)
            n += rfs_glob_match_file(pattern, choice->files[k]->name) &&
                 !(n > 0 && choice->files[k]->part);
        if (n != 1)
            return false;
    }
    return true;
}

/* Adds, of each rank, a file that may be of the same save. Returns whether all have one. */
static bool gather_same(const struct tree *tree, const struct choice *choice,
                        struct rfs_scan_same *same)
{
    for (size_t i = 0, end; i < choice->n; i = end) {
        bool has = false;
        end = end_of_rank(choice, i);
        for (size_t k = i; k < end && !has; k++)
            has = rfs_scan_same_add(same, choice->files[k]->name,
                                    rank_of(tree, choice->files[k])) == 1;
        if (!has)
            return false;
    }
    return rfs_scan_same_counts_ranks(same);
}

/* Returns a pattern that chooses a file of one name in all ranks, malloc'ed, or NULL. */
static char *find_pattern(const struct tree *tree, const struct choice *choice)
{
    const size_t end = end_of_rank(choice, 0);

    for (size_t i = end; i-- > 0 && end - i <= TRIED;) {
        RFS_CLEANUP(rfs_scan_same_free) struct rfs_scan_same same = {0};
        if (rfs_scan_same_add(&same, choice->files[i]->name, rank_of(tree, choice->files[i])) !=
                1 ||
            !gather_same(tree, choice, &same))
            continue;
        RFS_FREE char *pattern = rfs_scan_same_pattern(&same);
        if (pattern && is_choice(choice, pattern))
            return RFS_STEAL(pattern);
    }
    return NULL;
}

/* Returns what to do, malloc'ed, or NULL when out of memory. */
static char *remedy_of(const struct tree *tree, const struct choice *choice)
{
    RFS_FREE char *pattern = tree->spec->options->segmented ? NULL : find_pattern(tree, choice);
    struct rfs_save save;

    if (!choice->asked && find_whole(tree, &save))
        return rfs_text_printf("epoch=%" PRId64 ",step=%" PRId64 ", the last that all ranks have",
                               save.epoch, save.step);
    if (pattern)
        return rfs_text_printf("file='%s', which all ranks have, if these are of one run", pattern);
    bool saved = false;
    bool several = false;
    for (size_t i = 0; i < choice->n; i++) {
        saved |= choice->files[i]->saved;
        several |= i > 0 && choice->files[i]->at == choice->files[i - 1]->at;
    }
    return strdup(
        saved && !choice->asked
            ? "step= and epoch= of one save, or files=MAP if the names mean something else"
        : several ? "file=GLOB that matches one file of each rank, or files=MAP"
                  : "files=MAP, which names the file of each rank, if these are of one save");
}

/* Shows a file as "rank_3/net-2_4.ckpt", malloc'ed. */
static char *show_file(const struct tree *tree, const struct rfs_scan_found *found)
{
    const char *folder = tree->all->ranks.data[found->at].folder;

    return rfs_text_printf("%s%s%s", folder ? folder : "", folder ? "/" : "", found->name);
}

static int fail_mixed(const struct tree *tree, const struct choice *choice)
{
    RFS_FREE char *one = show_file(tree, choice->one);
    RFS_FREE char *other = show_file(tree, choice->other);
    RFS_FREE char *remedy = remedy_of(tree, choice);
    char asked[100];

    if (!one || !other || !remedy)
        return rfs_fail_memory(tree->err);
    show_asked(tree->spec, asked, sizeof asked);
    if (choice->rivals)
        return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path), remedy,
                        "%s and %s differ in a number that may be the rank's or a save's, so the "
                        "ranks' checkpoints may be of different saves",
                        one, other);
    return rfs_fail(tree->err, -EINVAL, RFS_IN(tree->spec->path), remedy,
                    "the ranks' %scheckpoints%s%s are of different saves: %s and %s",
                    *asked || tree->spec->options->segmented ? "" : "last ", *asked ? " of " : "",
                    asked, one, other);
}

/* Tells that ranks with other checkpoints have none of the save: strict refuses it. */
static int tell_lost(const struct tree *tree, const struct choice *choice)
{
    const struct rfs_scanned *lost = find_lost(tree, choice);
    char asked[100];

    if (!lost || tree->spec->options->group_info) /* whose reader tells which rank stands in */
        return 0;
    show_asked(tree->spec, asked, sizeof asked);
    if (tree->spec->options->strict)
        return rfs_fail(
            tree->err, -ENOENT, RFS_IN(tree->spec->path),
            "a save that all ranks have; or without -o strict, if others hold its slices",
            "%s has no checkpoint of %s, though it has others", lost->folder, asked);
    rfs_log(tree->log, RFS_WARNING,
            "%s: %s has no checkpoint of %s, though it has others: it counts as lost",
            tree->spec->path, lost->folder, asked);
    return 0;
}

/* Tells that a file of another run has the numbers of the save, too. */
static void tell_others(const struct tree *tree, const struct choice *choice)
{
    const size_t end =
        choice->asked && !tree->spec->options->segmented ? end_of_rank(choice, 0) : 0;

    for (size_t i = 0; i < end; i++) {
        const struct rfs_scan_found *other = choice->files[i];
        const struct rfs_scan_found *chosen = choice->chosen[other->at];
        if (other == chosen)
            continue;
        rfs_log(tree->log, tree->spec->saves ? RFS_INFO : RFS_WARNING,
                "%s: '%s' is read, the last of epoch %" PRId64 ", step %" PRId64
                "; '%s' is of another save with these numbers, which file= chooses",
                tree->spec->path, chosen->name, chosen->save.epoch, chosen->save.step, other->name);
        return;
    }
}

/* ---- the files ------------------------------------------------------------------------------- */

static void add_file(const struct tree *tree, const struct rfs_scan_found *found,
                     struct rfs_scan *out, struct rfs_scanned *item)
{
    RFS_FREE char *folder = folder_path(tree, found->at);

    rfs_scan_add_file(out, item, folder ? rfs_path_join(folder, found->name) : NULL);
}

/*
 * Says whether a file of a rank is taken. Parts are chosen where all files are of one checkpoint.
 */
static bool is_taken(const struct tree *tree, const struct rfs_scan_found *chosen,
                     const struct rfs_scan_found *file)
{
    return tree->spec->options->segmented || file == chosen || chosen->part;
}

/* Adds the ranks to OUT, with what was chosen. */
static void add_ranks(const struct tree *tree, const struct choice *choice, struct rfs_scan *out)
{
    const struct rfs_scan *ranks = &tree->all->ranks;
    size_t next = 0;

    for (size_t i = 0; i < ranks->n; i++) {
        struct rfs_scanned *item = rfs_scan_add(out, ranks->data[i].rank, ranks->data[i].folder);
        for (; next < choice->n && choice->files[next]->at == i; next++)
            if (is_taken(tree, choice->chosen[i], choice->files[next]))
                add_file(tree, choice->files[next], out, item);
        out->present += item && item->n_files > 0;
    }
    out->format = ranks->format;
    out->whole = ranks->whole;
}

/* Takes one checkpoint of each rank, all of one save, out of FILES. */
static int take_files(const struct tree *tree, const struct rfs_scan_found *const *files, size_t n,
                      bool asked, struct rfs_scan *out)
{
    RFS_CLEANUP(free_choice) struct choice choice = {.files = files, .n = n, .asked = asked};
    int rc = choose(tree, &choice);

    if (rc < 0)
        return rc;
    if (choice.other)
        return fail_mixed(tree, &choice);
    tell_others(tree, &choice);
    rc = tell_lost(tree, &choice);
    if (rc == 0)
        add_ranks(tree, &choice, out);
    return rc;
}

/* Returns the files of SPEC's save, by rank and name. */
static struct choice files_of_save(const struct rfs_source_spec *spec)
{
    const struct rfs_saves *saves = spec->saves;
    const struct rfs_save save = {spec->options->epoch, spec->options->step};
    const size_t i = RFS_BISECT(k, saves->n, rfs_scan_saves_compare(&saves->data[k], &save) >= 0);
    const size_t *begins = &saves->tree->begins[i];

    return (struct choice){
        .files = saves->tree->files + begins[0], .n = begins[1] - begins[0], .asked = true};
}

int rfs_scan_tree_save(const struct rfs_source_spec *spec, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err)
{
    const struct tree tree = {.spec = spec, .all = spec->saves->tree, .log = log, .err = err};
    const struct choice save = files_of_save(spec);

    return take_files(&tree, save.files, save.n, true, out);
}

char *rfs_scan_save_file(const struct rfs_source_spec *spec)
{
    const struct tree tree = {.spec = spec, .all = spec->saves->tree};

    if (!tree.all)
        return NULL;
    RFS_CLEANUP(free_choice) struct choice choice = files_of_save(spec);
    if (choose(&tree, &choice) < 0 || choice.other)
        return NULL;
    const struct rfs_scan_found *first = choice.chosen[choice.files[0]->at];
    RFS_FREE char *folder = folder_path(&tree, first->at);
    return folder ? rfs_path_join(folder, first->name) : NULL;
}

/* Finds the files of the ranks that were found, or the saves that they have. */
static int look_into_folders(struct tree *tree, struct rfs_scan *out, struct rfs_saves *saves)
{
    const bool asked = rfs_scan_asks_save(tree->spec);
    int rc = list_files(tree) ?: settle_format(tree);

    if (rc < 0)
        return rc;
    drop_others(tree);
    if (saves) {
        rc = find_saves(tree, tree->spec->options, saves);
        return rc < 0 || saves->n > 0 ? rc : fail_no_save(tree);
    }
    rc = asked ? find_asked(tree) : find_files(tree, NULL);
    return rc < 0 ? rc : take_files(tree, tree->all->files, tree->all->n_files, asked, out);
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

int rfs_scan_tree(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_saves *saves, struct rfs_error *err)
{
    RFS_CLEANUP(free_all) struct rfs_scan_tree *all = calloc(1, sizeof *all);
    struct tree tree = {.spec = spec, .all = all, .log = log, .err = err};
    char ranks[300];
    int rc = all ? list_ranks(&tree) : rfs_fail_memory(err);
    if (rc < 0)
        return rc;
    if (all->ranks.n > 0) {
        rc = check_finished(spec, err) ?: look_into_folders(&tree, out, saves);
        rfs_aside_sort(&all->ranks.aside);
        out->aside = all->ranks.aside;
        all->ranks.aside = (struct rfs_aside){0};
        if (rc == 0 && saves)
            saves->tree = RFS_STEAL(all);
        return rc;
    }
    show_pattern(spec, ranks, sizeof ranks);
    return !spec->options->rank_dir
               ? 0
               : rfs_fail(err, -ENOENT, RFS_IN(spec->path), "give the folder that holds them",
                          "the folder has no %s folder in it", ranks);
}

int rfs_scan_flat(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_saves *saves, struct rfs_error *err)
{
    RFS_CLEANUP(free_all) struct rfs_scan_tree *all = calloc(1, sizeof *all);
    struct tree tree = {.spec = spec, .all = all, .log = log, .err = err};
    if (!all || !rfs_scan_add(&all->ranks, 0, NULL))
        return rfs_fail_memory(err);
    all->ranks.whole = true;
    const int rc = look_into_folders(&tree, out, saves);
    if (rc == 0 && saves)
        saves->tree = RFS_STEAL(all);
    return rc;
}
