/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves beside each other whose program is none of those that steps.c knows: folders whose names
 * end in a number, and files and folders whose names have a step as Lightning writes it.
 *
 *   checkpoint-500/model.safetensors          transformers' Trainer
 *   ckpt_100/.metadata
 *   ttp_saved_checkpoints-step_10/rank_0/…    MindSpore's TrainFaultTolerance
 *   epoch=3-step=400.ckpt, …-v1.ckpt          Lightning; the last version of a step counts
 *
 * No tracker says which counts, so one is taken only if it is asked for. Names that begin alike are
 * a series, and what they name are checkpoints of one kind. Two series are none: they may be the
 * parts of one checkpoint, as model_0 and optimizer_0 are.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define DIGITS "0123456789"
#define DIGITS_MOST 18

/* A name with a step. */
struct named {
    char *name; /* owned */
    struct rfs_save save;
    size_t begin; /* the length of what the names of its series begin with; 0: it has STEP */
};

struct series {
    const struct rfs_source_spec *spec;
    struct rfs_error *err;
    RFS_VEC(struct named) all;
    bool files;                        /* the folder has saves of ModelCheckpoint, which count */
    size_t from, n;                    /* the part of ALL that is the series */
    const struct rfs_format_row *kind; /* of the series */
};

static void free_series(struct series *series)
{
    for (size_t i = 0; i < series->all.n; i++)
        free(series->all.data[i].name);
    free(series->all.data);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Reads the number behind KEY in a name. */
static bool read_key(const char *name, const char *key, int64_t *number)
{
    const char *at = strstr(name, key);
    const char *digits = at ? at + strlen(key) : "";
    const size_t n = strspn(digits, DIGITS);

    if (n == 0 || n > DIGITS_MOST || (at > name && at[-1] != '-' && at[-1] != '_'))
        return false;
    *number = strtoll(digits, NULL, 10);
    return true;
}

/* Reads the numbers of a name into OUT, which borrows it. False: it has no step. */
static bool read_name(const char *name, struct named *out)
{
    size_t begin = strlen(name);

    *out = (struct named){.name = (char *)name};
    if (name[0] == '.' || strstr(name, "tmp")) /* a save gets its name at the end */
        return false;
    if (read_key(name, "step=", &out->save.step)) {
        (void)read_key(name, "epoch=", &out->save.epoch);
        return true;
    }
    while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9')
        begin--;
    const size_t digits = strlen(name + begin);
    out->begin = begin + 1; /* a name may be all digits */
    out->save.step = strtoll(name + begin, NULL, 10);
    return digits > 0 && digits <= DIGITS_MOST && !rfs_scan_name_counts_ranks(name);
}

int64_t rfs_scan_step_of(const char *name)
{
    struct named named;

    return read_name(name, &named) ? named.save.step : -1;
}

static int compare_series(const struct named *x, const struct named *y)
{
    return RFS_ORDER(x->begin, y->begin)
               ?: (x->begin > 0 ? memcmp(x->name, y->name, x->begin - 1) : 0);
}

/* Puts the last version of a save behind the others. */
RFS_COMPARE(compare, struct named, x, y,
            compare_series(x, y) ?: rfs_scan_saves_compare(&x->save, &y->save)
            ?: RFS_ORDER(strlen(x->name), strlen(y->name))
            ?: strcmp(x->name, y->name))

/* ---- the folder ------------------------------------------------------------------------------ */

static int add(void *ctx, const struct dirent *entry)
{
    struct series *series = ctx;
    const struct rfs_source_spec *spec = series->spec;
    struct named named;
    struct rfs_save unused;
    enum rfs_format format;

    series->files |= rfs_scan_name_save(entry->d_name, &unused);
    if (!read_name(entry->d_name, &named))
        return 0;
    int is = rfs_scan_entry_is(spec, spec->path, entry, S_IFDIR, series->err);
    if (is == 0 && named.begin == 0 && rfs_format_of_name(entry->d_name, &format))
        is = rfs_scan_entry_is(spec, spec->path, entry, S_IFREG, series->err);
    if (is <= 0)
        return is;
    RFS_FREE char *name = strdup(entry->d_name);
    named.name = name;
    if (!name || !RFS_PUSH(&series->all, named))
        return rfs_fail_memory(series->err);
    name = NULL;
    return 0;
}

int rfs_scan_by_name(const struct rfs_source_spec *spec, const char *name, rfs_scan_fn *scan,
                     struct rfs_log *log, struct rfs_scan *out, struct rfs_error *err)
{
    struct rfs_options options = *spec->options;
    struct rfs_source_spec inner = *spec;
    RFS_FREE char *path = rfs_path_join(spec->path, name);

    if (!path)
        return rfs_fail_memory(err);
    options.step = options.epoch = RFS_ANY_NUMBER; /* they have chosen it */
    options.all_steps = false;
    inner.path = path;
    inner.options = &options;
    inner.saves = NULL;
    inner.known = NULL;
    return scan(&inner, log, out, err);
}

/* Returns the format of the checkpoint of a name, NULL if there is none. */
static const struct rfs_format_row *kind_of(const struct series *series, const struct named *named)
{
    const struct rfs_known_saves *known = series->spec->known;
    struct rfs_scan scan = {0};

    if (known && known->kind && known->is_known(known->ctx, named->name, &named->save))
        return known->kind;
    const int rc = rfs_scan_by_name(series->spec, named->name, rfs_scan_source, NULL, &scan, NULL);
    const struct rfs_format_row *row = rc || scan.n == 0 ? NULL
                                       : scan.described  ? scan.described
                                                         : &rfs_formats[scan.format];

    rfs_scan_free(&scan);
    return row;
}

/* Moves the checkpoints of one kind, of names from AT to END, to the front of these; *out is it. */
static size_t keep_kind(struct series *series, size_t at, size_t end,
                        const struct rfs_format_row **out)
{
    const struct rfs_format_row *kind = NULL;
    size_t n = 0;

    for (size_t i = at; i < end; i++) {
        struct named *named = &series->all.data[i];
        const struct rfs_format_row *row = kind_of(series, named);
        const bool again =
            n > 0 && rfs_scan_saves_compare(&series->all.data[at + n - 1].save, &named->save) == 0;
        kind = kind ? kind : row;
        if (!row || row != kind)
            continue;
        n += !again;
        const struct named kept = *named;
        *named = series->all.data[at + n - 1];
        series->all.data[at + n - 1] = kept;
    }
    *out = kind;
    return n;
}

/* Finds the one series of checkpoints; N stays 0 where there is none, or several. */
static void find_series(struct series *series)
{
    struct named *all = series->all.data;

    RFS_SORT_ALL(&series->all, compare);
    for (size_t at = 0, end = 0; at < series->all.n; at = end) {
        while (end < series->all.n && compare_series(&all[at], &all[end]) == 0)
            end++;
        const struct rfs_format_row *kind;
        const size_t n = keep_kind(series, at, end, &kind);
        if (n > 0 && series->n > 0) {
            series->n = 0;
            return;
        }
        if (n > 0) {
            series->from = at;
            series->n = n;
            series->kind = kind;
        }
    }
}

/* ---- saves ----------------------------------------------------------------------------------- */

/* Takes the save that is asked for, of several epochs the last. */
static int take(const struct series *series, struct rfs_log *log, struct rfs_scan *out)
{
    const struct named *saves = series->all.data + series->from;
    const struct rfs_options *options = series->spec->options;

    for (size_t i = series->n; i-- > 0;)
        if (rfs_scan_lets(options, &saves[i].save))
            return rfs_scan_by_name(series->spec, saves[i].name, rfs_scan_source, log, out,
                                    series->err);
    return rfs_fail(series->err, -ENOENT, RFS_IN(series->spec->path), "one of those",
                    "no save of these numbers in it; there are %zu, and the last is %s", series->n,
                    saves[series->n - 1].name);
}

static int list_saves(const struct series *series, struct rfs_saves *out)
{
    const struct named *saves = series->all.data + series->from;

    out->kind = series->kind;
    out->names = calloc(series->n, sizeof *out->names);
    if (!out->names)
        return rfs_fail_memory(series->err);
    for (size_t i = 0; i < series->n; i++) {
        if (!rfs_scan_lets(series->spec->options, &saves[i].save))
            continue;
        char *name = strdup(saves[i].name);
        if (!name || !RFS_PUSH(out, saves[i].save)) {
            free(name);
            return rfs_fail_memory(series->err);
        }
        out->names[out->n - 1] = name;
    }
    return 0;
}

int rfs_scan_series(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                    struct rfs_saves *saves, struct rfs_error *err)
{
    RFS_CLEANUP(free_series) struct series series = {.spec = spec, .err = err};

    if ((!saves && !rfs_scan_asks_save(spec)) || spec->options->rank_dir || spec->options->file)
        return 0;
    const int rc = rfs_scan_entry_each(spec->store, spec->path, add, &series, err);
    if (rc < 0)
        return rc;
    if (!series.files)
        find_series(&series);
    return series.n == 0 ? 0 : saves ? list_saves(&series, saves) : take(&series, log, out);
}
