/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a run: saves in folders whose names end in their steps, and which of them is taken.
 *
 *   latest_checkpointed_iteration.txt     "20", written last, but not at once: it may be empty
 *   iteration_00000010/                   of MindSpore Transformers: metadata.json,
 *   iteration_00000020/                   CKP-model-0000000-0000008.safetensors …
 *
 *   iter_0000020/                         Megatron's: .metadata, __0_0.distcp, common.pt …
 *   release/                              a model that was converted, if the tracker says "release"
 *
 *   latest_checkpoint_iteration.txt       HyperParallel's
 *   global_step_20/                       .metadata, _rank0_.safetensors …
 *
 *   step-20/                              torchtitan's: .metadata, __0_0.distcp …; no tracker says
 *                                         which counts, so one is taken only if it is asked for
 *
 *   latest                                DeepSpeed's: "global_step20", written last
 *   global_step20/                        mp_rank_00_model_states.pt …
 *   global_step20_universal/              what ds_to_universal makes of it (zero.c)
 *
 * Megatron's tracker names steps, and DeepSpeed's folders: global_step and a number is the default
 * there. transformers' Trainer has such folders in its own; where there are safetensors as well,
 * those are the source.
 *
 * A save without its metadata is one that has not ended, unless MindSpore Transformers saved it of
 * one rank.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define MEGATRON "latest_checkpointed_iteration.txt"
#define RELEASE "release"
#define SCRIPT "zero_to_fp32.py"
#define TRACKER_MOST 4096
#define DIGITS_MOST 18
#define STEP_NAME 48
#define NONE INT64_C(-1)
#define REMEDY_STEP "step=N, or the folder of a save as the source"

struct layout {
    const char *begin; /* of the names, before the step */
    int digits;        /* at least so many follow */
    const char *lacks; /* a file that only a save that has ended has; NULL: all saves have */
    /* A file that names the save that counts by its step, or with TAGGED by its folder; or NULL. */
    const char *tracker;
    bool tagged;
    const char *other; /* a folder without a step that the tracker may name instead; or NULL */
    /* Only folders with a file of this format count; NULL: the names tell. */
    const struct rfs_format_row *holds;
};

#define DISTRIBUTED(name)                                                                          \
    {                                                                                              \
        .begin = (name), .digits = 1, .lacks = "'.metadata' of torch.distributed.checkpoint",      \
        .holds = &rfs_formats[RFS_ROW_DCP]                                                         \
    }

#define LAYOUTS 7

/* The first that gives a save is the source's. */
static const struct layout layouts[LAYOUTS] = {
    /* MindSpore Transformers, and Megatron */
    {.begin = "iteration_",
     .digits = 8,
     .lacks = "'metadata.json' with safetensors files",
     .tracker = MEGATRON},
    {.begin = "iter_",
     .digits = 7,
     .lacks = "'.metadata' of the format torch_dist",
     .tracker = MEGATRON,
     .other = RELEASE},
    {.begin = "global_step_",
     .digits = 1,
     .lacks = "'.metadata' of HyperParallel",
     .tracker = "latest_checkpoint_iteration.txt",
     .holds = &rfs_formats[RFS_ROW_HYPER_PARALLEL]},
    /* torchtitan, and others that save by torch.distributed.checkpoint */
    DISTRIBUTED("step-"),
    DISTRIBUTED("step_"),
    DISTRIBUTED("checkpoint-"),
    /* DeepSpeed */
    {.begin = "global_step",
     .digits = 1,
     .tracker = "latest",
     .tagged = true,
     .holds = &rfs_formats[RFS_ROW_ZERO]},
};

/* What is in the source's folder. */
struct run {
    const struct rfs_source_spec *spec;
    struct rfs_error *err;
    bool asked;                      /* for a step, or all */
    struct rfs_saves found[LAYOUTS]; /* by names */
    bool tracked[LAYOUTS];           /* its tracker is there */
    bool other, script, safetensors; /* RELEASE, SCRIPT, files of safetensors are there */
    const struct layout *layout;     /* the one that is tried */
    struct rfs_saves *saves;         /* its own, ascending */
};

static void free_run(struct run *run)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        rfs_scan_saves_free(&run->found[i]);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t read_step(const char *text)
{
    const size_t n = strspn(text, "0123456789");

    return n > 0 && n <= DIGITS_MOST && text[n] == '\0' ? strtoll(text, NULL, 10) : NONE;
}

static void put_name(const struct rfs_saves *all, int64_t step, char out[STEP_NAME])
{
    snprintf(out, STEP_NAME, "%s%0*" PRId64, all->folder, all->digits, step);
}

/* Returns the step of a folder's name, NONE for one of another layout. */
static int64_t step_of(const struct rfs_saves *all, const char *name)
{
    const size_t begin = strlen(all->folder);
    const int64_t step = strncmp(name, all->folder, begin) == 0 ? read_step(name + begin) : NONE;
    char expected[STEP_NAME];

    put_name(all, step, expected);
    return step != NONE && strcmp(name, expected) == 0 ? step : NONE;
}

static bool has(const struct rfs_saves *all, int64_t step)
{
    const struct rfs_save save = {0, step};

    return all->n > 0 &&
           bsearch(&save, all->data, all->n, sizeof save, rfs_scan_saves_compare) != NULL;
}

bool rfs_scan_ends_save(const char *name, bool in_save)
{
    for (size_t i = 0; !in_save && i < LAYOUTS; i++)
        if (layouts[i].tracker && strcmp(name, layouts[i].tracker) == 0)
            return true;
    for (size_t i = 0; in_save && i < RFS_ROWS; i++)
        if (rfs_formats[i].metadata && strcmp(name, rfs_formats[i].metadata) == 0)
            return true;
    return false;
}

/* ---- the layout of the source ---------------------------------------------------------------- */

static int add(void *ctx, const struct dirent *entry)
{
    struct run *run = ctx;
    const char *name = entry->d_name;

    run->other |= strcmp(name, RELEASE) == 0;
    run->script |= strcmp(name, SCRIPT) == 0;
    run->safetensors |= rfs_text_ends(name, ".safetensors");
    for (size_t i = 0; i < LAYOUTS; i++) {
        const struct rfs_save save = {0, step_of(&run->found[i], name)};
        const char *tracker = layouts[i].tracker;

        run->tracked[i] |= tracker && strcmp(name, tracker) == 0;
        if (save.step == NONE || !(tracker || run->asked))
            continue;
        const int is = rfs_scan_entry_is(run->spec, run->spec->path, entry, S_IFDIR, run->err);
        if (is < 0)
            return is;
        if (is > 0 && !RFS_PUSH(&run->found[i], save))
            return rfs_fail_memory(run->err);
    }
    return 0;
}

struct having {
    const struct rfs_format_row *row;
    bool found;
};

static int look_for_file(void *ctx, const struct dirent *entry)
{
    struct having *having = ctx;

    having->found |= rfs_format_sees(having->row, entry->d_name) & RFS_SEEN_FILE;
    return 0;
}

static bool has_files(struct rfs_store *store, const char *path, const struct rfs_format_row *row)
{
    struct having having = {.row = row};

    return rfs_scan_entry_each(store, path, look_for_file, &having, NULL) == 0 && having.found;
}

/* Says whether a folder of the source has files of a format. */
static bool holds(const struct run *run, const char *name, const struct rfs_format_row *row)
{
    RFS_FREE char *path = rfs_path_join(run->spec->path, name);

    return path && has_files(run->spec->store, path, row);
}

/* Takes away the folders that have no file of the layout's format, and sorts the others. */
static void keep_saves(const struct run *run, const struct layout *layout, struct rfs_saves *all)
{
    char name[STEP_NAME];
    size_t n = 0;

    for (size_t i = 0; i < all->n; i++) {
        put_name(all, all->data[i].step, name);
        if (!layout->holds || holds(run, name, layout->holds))
            all->data[n++] = all->data[i];
    }
    all->n = n;
    RFS_SORT_ALL(all, rfs_scan_saves_compare);
}

/* Says whether the source has saves of a layout; BY_TRACKER: a tracker that may name others. */
static bool has_layout(struct run *run, size_t i, bool by_tracker)
{
    const struct layout *layout = &layouts[i];

    if (layout->tagged && run->safetensors)
        return false;
    if (by_tracker)
        return run->tracked[i] && !run->asked && (layout->tagged || (layout->other && run->other));
    keep_saves(run, layout, &run->found[i]);
    return run->found[i].n > 0;
}

/* Looks at the names in the source. 0 or -errno. */
static int look(struct run *run)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        run->found[i].folder = layouts[i].begin;
        run->found[i].digits = layouts[i].digits;
    }
    return rfs_scan_entry_each(run->spec->store, run->spec->path, add, run, run->err);
}

/* ---- one save -------------------------------------------------------------------------------- */

static int fail_lost(const struct rfs_source_spec *spec, const char *name, struct rfs_error *err)
{
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), "a save that is there",
                    "%s has no checkpoint any more", name);
}

int rfs_scan_step(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err)
{
    const struct rfs_saves *saves = spec->saves;
    const struct rfs_save save = {spec->options->epoch, spec->options->step};
    char name[STEP_NAME];

    if (saves->names) {
        const struct rfs_save *at =
            bsearch(&save, saves->data, saves->n, sizeof save, rfs_scan_saves_compare);
        return at ? rfs_scan_by_name(spec, saves->names[at - saves->data], rfs_scan_source, log,
                                     out, err)
                  : rfs_fail(err, -ENOENT, RFS_IN(spec->path), NULL, "the save is not there");
    }
    put_name(saves, save.step, name);
    const int rc = rfs_scan_by_name(spec, name, rfs_scan_described, log, out, err);
    return rc || out->n > 0 ? rc : fail_lost(spec, name, err);
}

static bool is_finished(const struct run *run, int64_t step)
{
    struct rfs_scan scan = {0};
    char name[STEP_NAME];

    if (!run->layout->lacks)
        return true;
    put_name(run->saves, step, name);
    const int rc = rfs_scan_by_name(run->spec, name, rfs_scan_described, NULL, &scan, NULL);
    /* take has messages of other failures */
    const bool finished = (rc || scan.n > 0) && !scan.unfinished;
    rfs_scan_free(&scan);
    return finished;
}

/* Returns the newest finished save below LIMIT, or NONE. */
static int64_t newest(const struct run *run, int64_t limit)
{
    for (size_t i = run->saves->n; i-- > 0;)
        if (run->saves->data[i].step < limit && is_finished(run, run->saves->data[i].step))
            return run->saves->data[i].step;
    return NONE;
}

/* Refuses the folder NAME, for the format of its files or as one whose save has not ended. */
static int fail_unfinished(const struct run *run, const char *name)
{
    const int64_t step = step_of(run->saves, name);
    const int64_t before = step == NONE ? NONE : newest(run, step);
    RFS_FREE char *path = rfs_path_join(run->spec->path, name);
    char remedy[80] = "the folder of another save";
    int rc;

    if (before != NONE)
        snprintf(remedy, sizeof remedy, "step=%" PRId64 ", the last before it that is whole",
                 before);
    if (step == NONE)
        rc = rfs_fail(run->err, -EINVAL, RFS_IN(run->spec->path), "step=N, an iteration",
                      "'%s' names the folder '%s', which has no %s", run->layout->tracker, name,
                      run->layout->lacks);
    else
        rc = rfs_fail(run->err, -EINVAL, RFS_IN(run->spec->path), remedy,
                      "%s has no %s: its save has not ended", name, run->layout->lacks);
    return path ? rfs_scan_foreign(run->spec->store, path, rc, run->err) : rc;
}

static int take(const struct run *run, const char *name, struct rfs_log *log, struct rfs_scan *out)
{
    struct rfs_error why = {0};
    const int rc = rfs_scan_by_name(run->spec, name, rfs_scan_described, log, out, &why);

    if (run->layout->lacks && (out->unfinished || (rc == 0 && out->n == 0)))
        return fail_unfinished(run, name);
    if (rc < 0 && run->err)
        *run->err = why;
    return rc || out->n > 0 ? rc : fail_lost(run->spec, name, run->err);
}

/* ---- which one ------------------------------------------------------------------------------- */

/* Gives the text of the tracker, malloc'ed: a number, or with TAGGED a name. 0 or -errno. */
static int read_tracker(const struct run *run, char **text, struct rfs_error *err)
{
    RFS_FREE char *path = rfs_path_join(run->spec->path, run->layout->tracker);
    RFS_FREE char *whole = NULL;
    size_t n;

    if (!path)
        return rfs_fail_memory(err);
    const int rc =
        rfs_beneath_read(run->spec->beneath, run->spec->store, path, TRACKER_MOST, &whole, &n, err);
    if (rc)
        return rc;
    const char *begin = whole + strspn(whole, " \t\r\n");
    *text = strndup(begin, strcspn(begin, run->layout->tagged ? "\r\n" : " \t\r\n"));
    return *text ? 0 : rfs_fail_memory(err);
}

/* Returns when the tracker was written; 0: that cannot be seen. */
static struct timespec tracker_time(const struct run *run)
{
    RFS_FREE char *path = rfs_path_join(run->spec->path, run->layout->tracker);
    struct stat st = {0};

    if (!path || rfs_beneath_stat(run->spec->beneath, run->spec->store, path, &st))
        return (struct timespec){0};
    return st.st_ctim;
}

/* Returns the step that the text of the tracker means, NONE if no save has it. */
static int64_t step_by(const struct run *run, const char *text)
{
    const int64_t step = run->layout->tagged ? step_of(run->saves, text) : read_step(text);

    return step != NONE && has(run->saves, step) ? step : NONE;
}

/* Gives the name of the folder of a step, malloc'ed. 0 or -ENOMEM. */
static int name_step(const struct run *run, int64_t step, char **name)
{
    char text[STEP_NAME];

    put_name(run->saves, step, text);
    *name = strdup(text);
    return *name ? 0 : rfs_fail_memory(run->err);
}

/* Gives the folder that DeepSpeed's tracker names, or the only one. */
static int choose_tagged(const struct run *run, char **name)
{
    const bool ours = run->script || run->saves->n > 0;
    RFS_FREE char *path = rfs_path_join(run->spec->path, run->layout->tracker);
    RFS_FREE char *tag = NULL;
    struct rfs_error why = {0};

    if (!path)
        return rfs_fail_memory(run->err);
    if (!run->tracked[run->layout - layouts]) {
        if (run->saves->n == 1)
            return name_step(run, run->saves->data[0].step, name);
        return rfs_fail(run->err, -EINVAL, RFS_IN(run->spec->path), "step=N, one of those",
                        "it has %zu saves of DeepSpeed and no file '%s' that names one",
                        run->saves->n, run->layout->tracker);
    }
    const int rc = read_tracker(run, &tag, &why);
    if (rc && ours && run->err)
        *run->err = why;
    if (rc)
        return ours ? rc : 0;
    if (!strchr(tag, '/') && rfs_origin_is_names(tag, strlen(tag)) &&
        holds(run, tag, run->layout->holds))
        *name = RFS_STEAL(tag);
    if (*name || !ours)
        return 0;
    if (!*tag)
        return rfs_fail(run->err, -EINVAL, RFS_IN(path), REMEDY_STEP,
                        "it is empty: the save of DeepSpeed has not ended");
    return rfs_fail(run->err, -EINVAL, RFS_IN(path), REMEDY_STEP,
                    "it names '%s', which is no folder with a save of DeepSpeed", tag);
}

/* Gives the folder of the step that the tracker names, or of the newest, or RELEASE. */
static int choose_numbered(const struct run *run, struct rfs_log *log, char **name)
{
    RFS_FREE char *text = NULL;
    struct rfs_error why = {0};
    const int rc = read_tracker(run, &text, &why);

    if (rc && rc != -ENOENT) {
        if (run->err)
            *run->err = why;
        return rc;
    }
    if (text && run->other && run->layout->other && strcmp(text, run->layout->other) == 0) {
        *name = RFS_STEAL(text);
        return 0;
    }
    if (run->saves->n == 0)
        return 0;
    const int64_t named = text ? step_by(run, text) : NONE;
    if (named != NONE)
        return name_step(run, named, name);
    const int64_t last = run->saves->data[run->saves->n - 1].step;
    const int64_t whole = newest(run, INT64_MAX);
    if (whole != NONE)
        rfs_log(log, RFS_WARNING,
                "%s: '%s' names no iteration that is there: iteration %" PRId64 " is read%s",
                run->spec->path, run->layout->tracker, whole,
                whole == last ? "" : ", the last whose save has ended");
    return name_step(run, whole != NONE ? whole : last, name); /* take has the message */
}

/*
 * Gives the folder of the save that counts, malloc'ed, or NULL if the folders are another
 * program's: the step that is asked for, or what the tracker names, or what takes its place. 0, or
 * -errno with the message.
 */
static int choose(const struct run *run, struct rfs_log *log, char **name)
{
    const int64_t asked = run->spec->options->step;

    *name = NULL;
    return asked != RFS_ANY_NUMBER ? name_step(run, asked, name)
           : run->layout->tagged   ? choose_tagged(run, name)
                                   : choose_numbered(run, log, name);
}

/* Takes the save that counts; n stays 0 where there is none. */
static int take_chosen(const struct run *run, struct rfs_log *log, struct rfs_scan *out)
{
    RFS_FREE char *name = NULL;
    const int rc = choose(run, log, &name);

    return rc || !name ? rc : take(run, name, log, out);
}

/* Refuses epoch=, and a step= that has no folder. */
static int check_asked(const struct run *run)
{
    const int64_t asked = run->spec->options->step;
    char last[STEP_NAME];

    if (run->saves->n == 0)
        return 0;
    if (run->spec->options->epoch != RFS_ANY_NUMBER && run->spec->options->epoch != 0)
        return rfs_fail_usage(run->err, "step=N", "option epoch: iterations have none");
    if (asked == RFS_ANY_NUMBER || has(run->saves, asked))
        return 0;
    put_name(run->saves, run->saves->data[run->saves->n - 1].step, last);
    return rfs_fail(run->err, -ENOENT, RFS_IN(run->spec->path), "one of those",
                    "no %s%" PRId64 " in it; there are %zu, and the last is %s",
                    run->layout->tagged ? "save global_step" : "iteration ", asked, run->saves->n,
                    last);
}

/* Lists the saves that have ended and that SPEC lets through, and what the tracker names. */
static int list_saves(const struct run *run, struct rfs_saves *out)
{
    RFS_FREE char *text = NULL;
    const struct rfs_saves *all = run->saves;

    if (run->layout->tracker) {
        /* one that cannot be read names nothing */
        const struct timespec written = tracker_time(run);
        const bool is_read = read_tracker(run, &text, NULL) == 0;
        const int64_t step = is_read ? step_by(run, text) : NONE;
        out->tracked = step == NONE ? RFS_TRACKED_NOTHING : step;
        if (step != NONE)
            out->tracked_at = written;
    }
    out->folder = all->folder;
    out->digits = all->digits;
    for (size_t i = 0; i < all->n; i++)
        if (rfs_scan_lets(run->spec->options, &all->data[i]) &&
            is_finished(run, all->data[i].step) && !RFS_PUSH(out, all->data[i]))
            return rfs_fail_memory(run->err);
    return 0;
}

int rfs_scan_steps(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                   struct rfs_saves *saves, struct rfs_error *err)
{
    RFS_CLEANUP(free_run)
    struct run run = {
        .spec = spec, .err = err, .asked = saves || spec->options->step != RFS_ANY_NUMBER};
    int rc = look(&run);

    for (size_t k = 0; k < (size_t)2 * LAYOUTS; k++) {
        if (rc || out->n > 0 || (saves && saves->n > 0))
            break;
        if (!has_layout(&run, k % LAYOUTS, k >= LAYOUTS))
            continue;
        run.layout = &layouts[k % LAYOUTS];
        run.saves = &run.found[k % LAYOUTS];
        rc = check_asked(&run) ?: (saves ? list_saves(&run, saves) : take_chosen(&run, log, out));
    }
    return rc;
}

int rfs_scan_saves_may_come(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    RFS_FREE char *inside = rfs_scan_named(spec->store, spec->path, RFS_ANY_NUMBER);
    char names[LAYOUTS * STEP_NAME];
    size_t n = 0;

    if (!inside && rfs_scan_is_whole(spec->store, spec->path))
        return rfs_fail(err, -ENOENT, RFS_IN(spec->path), "the folder of a run",
                        "option follow: the source is one checkpoint, and no save comes beside it");
    if (!inside)
        return 0;
    for (size_t i = 0; i < LAYOUTS; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%sN", i > 0 ? ", " : "",
                              layouts[i].begin);
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), inside,
                    "option follow: it has checkpoints in folders below, and no save by a name "
                    "that is known: %s, other folders of one kind that end in a number, "
                    "epoch=E-step=S.ckpt, or PREFIX-EPOCH_STEP of rank folders",
                    names);
}
