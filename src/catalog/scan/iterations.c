/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that MindSpore Transformers, Megatron and HyperParallel save to: iterations, each a
 * checkpoint that describes itself.
 *
 *   latest_checkpointed_iteration.txt     "20", written last, but not at once: it may be empty
 *   iteration_00000010/
 *   iteration_00000020/                   metadata.json, CKP-model-0000000-0000008.safetensors …
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
 * An iteration without its metadata is one whose save has not ended, unless MindSpore Transformers
 * saved it of one rank.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define TRACKER "latest_checkpointed_iteration.txt" /* Megatron's */
#define TRACKER_MOST 4096
#define RELEASE "release"
#define NONE INT64_C(-1)

struct iterations {
    const struct rfs_source_spec *spec;
    const struct rfs_step_layout *layout;
    struct rfs_error *err;
    struct rfs_saves saves; /* ascending */
    bool tracker, release;  /* what else the folder has */
};

static void free_iterations(struct iterations *all)
{
    rfs_scan_saves_free(&all->saves);
}

static int add(void *ctx, const struct dirent *entry)
{
    struct iterations *all = ctx;

    all->tracker |= strcmp(entry->d_name, TRACKER) == 0;
    all->release |= strcmp(entry->d_name, RELEASE) == 0;
    return rfs_scan_step_add(all->spec, all->layout, entry, &all->saves, all->err);
}

static bool has(const struct iterations *all, int64_t number)
{
    const struct rfs_save save = {0, number};

    return all->saves.n > 0 && bsearch(&save, all->saves.data, all->saves.n, sizeof save,
                                       rfs_scan_saves_compare) != NULL;
}

/* Gives the iteration that the tracker names, NONE where it has no folder. 0 or -errno. */
static int read_tracker(const struct iterations *all, const char *tracker, int64_t *number,
                        bool *release)
{
    RFS_FREE char *path = rfs_path_join(all->spec->path, tracker);
    RFS_FREE char *text = NULL;
    struct rfs_error why = {0};
    size_t n;

    *number = NONE;
    *release = false;
    if (!path)
        return rfs_fail_memory(all->err);
    const int rc =
        rfs_beneath_read(all->spec->beneath, all->spec->store, path, TRACKER_MOST, &text, &n, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc && all->err)
        *all->err = why;
    if (rc)
        return rc;
    char *begin = text + strspn(text, " \t\r\n");
    begin[strcspn(begin, " \t\r\n")] = '\0';
    const int64_t step = rfs_scan_step_read(begin);
    if (has(all, step))
        *number = step;
    *release = strcmp(begin, RELEASE) == 0;
    return 0;
}

/* ---- one iteration --------------------------------------------------------------------------- */

/* Scans a folder as rfs_scan_described does; 1 when it is of no kind that is known. */
static int scan_folder(const struct iterations *all, const char *name, struct rfs_log *log,
                       struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = rfs_scan_step_folder(all->spec, name, log, out, err);

    return rc < 0 ? rc : out->n == 0;
}

static int scan_one(const struct iterations *all, int64_t number, struct rfs_log *log,
                    struct rfs_scan *out, struct rfs_error *err)
{
    char name[RFS_STEP_NAME];

    rfs_scan_step_name(&all->saves, number, name);
    return scan_folder(all, name, log, out, err);
}

static bool is_finished(const void *ctx, int64_t number)
{
    const struct iterations *all = ctx;
    struct rfs_scan scan = {0};
    const int rc = scan_one(all, number, NULL, &scan, NULL);
    const bool finished = rc != 1 && !scan.unfinished; /* take has messages of other failures */

    rfs_scan_free(&scan);
    return finished;
}

/* Returns the newest finished iteration below LIMIT, or NONE. */
static int64_t newest(const struct iterations *all, int64_t limit)
{
    for (size_t i = all->saves.n; i-- > 0;)
        if (all->saves.data[i].step < limit && is_finished(all, all->saves.data[i].step))
            return all->saves.data[i].step;
    return NONE;
}

/* Replaces the message of RC where the files of a folder are of a format that is not read. */
static int explain(const struct iterations *all, const char *name, int rc)
{
    RFS_FREE char *path = rfs_path_join(all->spec->path, name);

    return path ? rfs_scan_foreign(all->spec->store, path, rc, all->err) : rc;
}

static int fail_unfinished(const struct iterations *all, int64_t number)
{
    const int64_t before = newest(all, number);
    char name[RFS_STEP_NAME];
    char remedy[80] = "the folder of another save";

    rfs_scan_step_name(&all->saves, number, name);
    if (before != NONE)
        snprintf(remedy, sizeof remedy, "step=%" PRId64 ", the last before it that is whole",
                 before);
    const int rc = rfs_fail(all->err, -EINVAL, RFS_IN(all->spec->path), remedy,
                            "%s has no %s: its save has not ended", name, all->layout->lacks);
    return explain(all, name, rc);
}

static int take(const struct iterations *all, int64_t number, struct rfs_log *log,
                struct rfs_scan *out)
{
    struct rfs_error why = {0};
    const int rc = scan_one(all, number, log, out, &why);

    if (out->unfinished || rc == 1)
        return fail_unfinished(all, number);
    if (rc < 0 && all->err)
        *all->err = why;
    return rc;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* Takes Megatron's folder of a converted model, if the tracker names it; else n stays 0. */
static int take_release(const struct iterations *all, struct rfs_log *log, struct rfs_scan *out)
{
    struct rfs_error why = {0};
    int64_t number;
    bool named = false;
    int rc = read_tracker(all, TRACKER, &number, &named);

    if (rc || !named)
        return rc;
    rc = scan_folder(all, RELEASE, log, out, &why);
    if (rc < 0 && all->err)
        *all->err = why;
    if (rc == 1)
        rc = rfs_fail(
            all->err, -EINVAL, RFS_IN(all->spec->path), "step=N, an iteration",
            "'%s' names the folder 'release', which has no '.metadata' of the format torch_dist",
            TRACKER);
    return rc < 0 ? explain(all, RELEASE, rc) : rc;
}

static int choose(const struct iterations *all, struct rfs_log *log, int64_t *number)
{
    bool release;
    const int64_t last = all->saves.data[all->saves.n - 1].step;

    *number = all->spec->options->step;
    if (*number != RFS_ANY_NUMBER)
        return 0;
    const int rc = read_tracker(all, all->layout->tracker, number, &release);
    if (rc || *number != NONE)
        return rc;
    *number = newest(all, INT64_MAX);
    if (*number == NONE) {
        *number = last; /* take has the message */
        return 0;
    }
    rfs_log(log, RFS_WARNING,
            "%s: '%s' names no iteration that is there: iteration %" PRId64 " is read%s",
            all->spec->path, all->layout->tracker, *number,
            *number == last ? "" : ", the last whose save has ended");
    return 0;
}

static int list_saves(const struct iterations *all, struct rfs_saves *saves)
{
    struct iterations quiet = *all;
    bool release;

    quiet.err = NULL;
    if (all->layout->tracker &&
        (read_tracker(&quiet, all->layout->tracker, &saves->tracked, &release) != 0 ||
         saves->tracked == NONE))
        saves->tracked = RFS_TRACKED_NOTHING;
    return rfs_scan_steps_list(all->spec, &all->saves, is_finished, all, saves, all->err);
}

int rfs_scan_iterations(const struct rfs_source_spec *spec, struct rfs_log *log,
                        struct rfs_scan *out, struct rfs_saves *saves, struct rfs_error *err)
{
    RFS_CLEANUP(free_iterations) struct iterations all = {.spec = spec, .err = err};
    const bool asked = saves || spec->options->step != RFS_ANY_NUMBER;
    int64_t number;
    int rc = 0;

    for (size_t i = 0; rc == 0 && all.saves.n == 0 && i < RFS_STEP_LAYOUTS; i++) {
        all.layout = &rfs_step_layouts[i];
        if (!all.layout->tagged && (asked || all.layout->tracker))
            rc = rfs_scan_entry_each(spec->store, spec->path, add, &all, err);
    }
    RFS_SORT_ALL(&all.saves, rfs_scan_saves_compare);
    if (rc == 0 && all.tracker && all.release && !asked)
        rc = take_release(&all, log, out);
    if (rc || out->n > 0 || all.saves.n == 0)
        return rc;
    rc = rfs_scan_step_check(spec, &all.saves, "iteration ", err);
    if (rc == 0 && saves)
        return list_saves(&all, saves);
    return rc ?: choose(&all, log, &number) ?: take(&all, number, log, out);
}
