/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are named by numbers (formats/numbered.h): all of one save, none lost. */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

/* Adds the name that the writer gives the file of those numbers, in the save of FILE. */
static void add_missing(struct rfs_scan_names *names, const struct rfs_numbered_form *form,
                        const struct rfs_numbered_name *file, const uint32_t *of)
{
    char name[300];
    int used = snprintf(name, sizeof name, "%.*s", (int)file->prefix, file->name);

    for (unsigned i = 0; i <= RFS_NUMBERED_ROLES && form->words[i]; i++) {
        used += snprintf(name + used, sizeof name - (size_t)used, "%s", form->words[i]);
        if (i < RFS_NUMBERED_ROLES && form->words[i + 1])
            used += snprintf(name + used, sizeof name - (size_t)used, "%0*" PRIu32,
                             (int)form->digits, of[form->roles[i]]);
    }
    rfs_scan_names_add(names, name);
}

/* ---- the files of a folder ------------------------------------------------------------------- */

struct gathering {
    const struct rfs_source_spec *spec;
    const struct rfs_numbered_form *forms;
    struct rfs_log *log;
    struct rfs_error *err;
    RFS_VEC(struct rfs_numbered_name) files; /* those that count, sorted */
    struct rfs_scan_names similar;           /* files that are left out */
};

static void gathering_end(struct gathering *g)
{
    for (size_t i = 0; i < g->files.n; i++)
        free(g->files.data[i].name);
    free(g->files.data);
}

static int order_of_save(const struct rfs_numbered_name *x, const struct rfs_numbered_name *y)
{
    const size_t n = x->prefix < y->prefix ? x->prefix : y->prefix;

    return RFS_ORDER(x->of[RFS_NUMBERED_COUNT], y->of[RFS_NUMBERED_COUNT])
           ?: memcmp(x->name, y->name, n)
           ?: RFS_ORDER(x->prefix, y->prefix);
}

static int order_of_rank(const struct rfs_numbered_name *x, const struct rfs_numbered_name *y)
{
    return RFS_ORDER(x->of[RFS_NUMBERED_RANK], y->of[RFS_NUMBERED_RANK])
               ?: RFS_ORDER(x->of[RFS_NUMBERED_PART], y->of[RFS_NUMBERED_PART]);
}

RFS_COMPARE(compare, struct rfs_numbered_name, x, y,
            order_of_save(x, y) ?: order_of_rank(x, y)
            ?: RFS_ORDER(y->exact, x->exact)
            ?: strcmp(x->name, y->name))

static int gather(struct gathering *g)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    const int rc =
        rfs_scan_listing_read(g->spec, g->spec->path, g->spec->options->file, &listing, g->err);

    for (size_t i = 0; rc == 0 && i < listing.n; i++) {
        struct rfs_numbered_name file;
        if (!rfs_numbered_read(g->forms, listing.data[i].name, &file)) {
            if (rfs_numbered_like(g->forms, listing.data[i].name))
                rfs_scan_names_add(&g->similar, listing.data[i].name);
            continue;
        }
        file.name = listing.data[i].name;
        if (!RFS_PUSH(&g->files, file))
            return rfs_fail_memory(g->err);
        listing.data[i].name = NULL;
    }
    RFS_SORT_ALL(&g->files, compare);
    return rc;
}

/*
 * Leaves out names that are only similar. Refuses two with equal numbers: one is a renamed copy,
 * and which of them is not known.
 */
static int settle_spellings(struct gathering *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->files.n; i++) {
        struct rfs_numbered_name *file = &g->files.data[i];
        const struct rfs_numbered_name *last = n > 0 ? &g->files.data[n - 1] : NULL;
        if (last && order_of_save(last, file) == 0 && order_of_rank(last, file) == 0)
            return rfs_fail(g->err, -EINVAL, RFS_IN(g->spec->path), "move one of them away",
                            "'%s' and '%s' have the numbers of one piece", last->name, file->name);
        if (file->exact) {
            const struct rfs_numbered_name good = *file;
            *file = g->files.data[n];
            g->files.data[n++] = good;
            continue;
        }
        rfs_scan_names_add(&g->similar, file->name);
    }
    for (size_t i = n; i < g->files.n; i++)
        free(g->files.data[i].name);
    g->files.n = n;
    return 0;
}

static int fail_none(struct gathering *g)
{
    if (g->similar.n > 0)
        return rfs_fail(g->err, -EINVAL, RFS_IN(g->spec->path),
                        "the names that the files had when they were saved",
                        "no file has the name of a file of a save; %s %s like it",
                        rfs_scan_names_end(&g->similar), g->similar.n == 1 ? "is" : "are");
    return rfs_fail(g->err, -ENOENT, RFS_IN(g->spec->path), "a pattern that names files of a save",
                    "no file of a save in it matches '%s'",
                    g->spec->options->file ? g->spec->options->file : "*");
}

/* Shows a pattern that the files of one save match, and those of another don't. */
static void show_choice(const struct rfs_numbered_name *file, char *out, size_t size)
{
    const struct rfs_numbered_form *form = file->form;

    if (form->prefixed)
        snprintf(out, size, "file='%.*s%s'", (int)file->prefix, file->name, form->choice[0]);
    else
        snprintf(out, size, "file='%s%0*" PRIu32 "%s'", form->choice[0], (int)form->digits,
                 file->of[RFS_NUMBERED_COUNT], form->choice[1]);
}

static int check_one_save(const struct gathering *g)
{
    const struct rfs_numbered_name *first = &g->files.data[0];
    const struct rfs_numbered_name *last = &g->files.data[g->files.n - 1];
    char choices[2][300];
    char remedy[640];

    if (order_of_save(first, last) == 0)
        return 0;
    show_choice(first, choices[0], sizeof choices[0]);
    show_choice(last, choices[1], sizeof choices[1]);
    snprintf(remedy, sizeof remedy, "%s or %s", choices[0], choices[1]);
    return rfs_fail(g->err, -EINVAL, RFS_IN(g->spec->path), remedy,
                    "the folder has files of two saves, '%s' and '%s'", first->name, last->name);
}

/* ---- what is missing ------------------------------------------------------------------------- */

/* Names the numbers between two files, in the order of the pieces and parts up to PARTS. */
static void note_gap(const struct gathering *g, uint32_t parts, uint64_t from, uint64_t to,
                     struct rfs_scan_names *missing)
{
    const struct rfs_numbered_name *file = &g->files.data[0];
    const uint32_t first = file->form->first;

    for (; from < to && missing->n < RFS_SCAN_NAMES_SHOWN; from++) {
        const uint32_t of[RFS_NUMBERED_ROLES] = {
            [RFS_NUMBERED_RANK] = first + (uint32_t)(from / parts),
            [RFS_NUMBERED_PART] = first + (uint32_t)(from % parts),
            [RFS_NUMBERED_COUNT] = file->of[RFS_NUMBERED_COUNT]};
        add_missing(missing, file->form, file, of);
    }
    missing->n += to - from;
}

/* If parts are counted, there are pieces up to the highest, each in all parts. */
static void find_missing(const struct gathering *g, struct rfs_scan_names *missing)
{
    const struct rfs_numbered_name *files = g->files.data;
    const struct rfs_numbered_name *last = &files[g->files.n - 1];
    const uint32_t first = last->form->first;
    const bool in_parts = last->form->counts_parts;
    const uint32_t parts = in_parts ? last->of[RFS_NUMBERED_COUNT] : 1;
    uint64_t next = 0;

    if (g->forms->next) { /* one rank's metadata: its first form is needed */
        if (files[0].form != g->forms)
            add_missing(missing, g->forms, files, files[0].of);
        return;
    }
    for (size_t i = 0; i < g->files.n; i++) {
        const uint64_t at = (uint64_t)(files[i].of[RFS_NUMBERED_RANK] - first) * parts +
                            (in_parts ? files[i].of[RFS_NUMBERED_PART] - first : 0);
        note_gap(g, parts, next, at, missing);
        next = at + 1;
    }
    note_gap(g, parts, next,
             in_parts ? (uint64_t)(last->of[RFS_NUMBERED_RANK] - first + 1) * parts
                      : last->of[RFS_NUMBERED_COUNT],
             missing);
}

static int settle_missing(const struct gathering *g, struct rfs_scan *out)
{
    struct rfs_scan_names missing = {.n = 0};

    find_missing(g, &missing);
    if (missing.n == 0)
        return 0;
    const char *list = rfs_scan_names_end(&missing);
    const char *are = missing.n == 1 ? "is" : "are";
    if (g->forms->opens_less) {
        out->lost = rfs_text_printf("%s %s", list, are);
        out->failed |= !out->lost;
        return 0;
    }
    if (!g->spec->options->segmented)
        return rfs_fail(g->err, -EINVAL, RFS_IN(g->spec->path),
                        g->forms->counts_parts
                            ? "all files of the save; or segmented, if the ranks saved no others"
                            : "all files of the save",
                        "%s %s missing, by the numbers in the names of the other files", list, are);
    rfs_log(g->log, RFS_WARNING,
            "%s: %s %s not there; as segmented says, the other files are all of the checkpoint",
            g->spec->path, list, are);
    return 0;
}

int rfs_scan_numbered(const struct rfs_source_spec *spec, const struct rfs_numbered_form *forms,
                      struct rfs_log *log, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(gathering_end)
    struct gathering g = {.spec = spec, .forms = forms, .log = log, .err = err};
    int rc = gather(&g) ?: settle_spellings(&g);

    if (rc == 0)
        rc = g.files.n == 0 ? fail_none(&g) : check_one_save(&g) ?: settle_missing(&g, out);
    if (rc)
        return rc;
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);
    for (size_t i = 0; i < g.files.n; i++)
        rfs_scan_add_file(out, item, rfs_path_join(spec->path, g.files.data[i].name));
    if (g.similar.n > 0)
        rfs_log(log, RFS_WARNING, "%s: %s %s left out: no file of the save has such a name",
                spec->path, rfs_scan_names_end(&g.similar), g.similar.n == 1 ? "is" : "are");
    return 0;
}
