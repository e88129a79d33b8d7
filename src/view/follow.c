/* SPDX-License-Identifier: Apache-2.0 */
#include "view/follow.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "base/wait.h"
#include "catalog/scan/spec.h"
#include "catalog/scan/watch.h"
#include "formats/chunks/chunks.h"

#include <time.h>

#define SECOND INT64_C(1000000000) /* ns */
/*
 * Files that are older by the clock of this machine have not changed for a while, even if the
 * clocks of their writers are behind by as much; ns.
 */
#define OLD (60 * SECOND)

/* A save that is there, or was. Other threads than the one that looks read only its name. */
struct followed {
    struct rfs_save save;
    char name[48];           /* constant */
    bool there;              /* at this look */
    bool same;               /* at this look: it is shown, and no file of it has changed */
    struct rfs_view *shown;  /* one of the set's; NULL: it is not shown */
    struct rfs_view *ready;  /* complete, and to be shown; owned; or NULL */
    int64_t since;           /* when it was; ns */
    struct rfs_view *before; /* shown until its files changed, and held; or NULL */
    char *why;               /* why it is not shown; owned; NULL: it is, or there is no memory */
    bool told;               /* the log has it */
};

struct rfs_follow {
    char *source;                      /* owned */
    struct rfs_watch watch;            /* of the source */
    int64_t every;                     /* ns; constant */
    int64_t began;                     /* when the look at hand began, or the last one; ns */
    _Atomic int64_t looked;            /* when the last look ended; ns */
    atomic_bool looking, asked;        /* a thread looks; another look is wanted */
    RFS_VEC(struct followed *) saves;  /* ascending; owned to the end: their names are given out */
    const struct rfs_saves *listed;    /* during a look: what it found */
    const struct rfs_format_row *kind; /* as struct rfs_saves has it, at the last look */
    int64_t tracked;           /* the last step that the tracker named; as in struct rfs_saves */
    char *trouble;             /* why the source cannot be listed, or has no save; or NULL */
    struct rfs_error *mistake; /* takes one in the options, while the view is opened; or NULL */
    /* Under the set's lock: */
    char latest[48]; /* name of the newest save that is shown; "": there is none */
    char *state;     /* for reshard_describe_saves; owned; or NULL */
};

static int64_t now_ns(void)
{
    return (int64_t)rfs_wait_now();
}

/* ---- one save -------------------------------------------------------------------------------- */

static void forget_why(struct followed *save)
{
    free(save->why);
    save->why = NULL;
}

/*
 * Notes why a save is not shown. The log has a reason once, if a later look finds it again: that
 * files are missing is no more than usual while a save is under way.
 */
static void set_why(struct reshard_view *set, struct followed *save, enum rfs_level level,
                    const char *text)
{
    const bool again = save->why && strcmp(save->why, text) == 0;

    if (again && !save->told)
        rfs_log(&set->log, level, "%s: is not shown: %s", save->name, text);
    save->told = again;
    if (again)
        return;
    free(save->why);
    save->why = strdup(text);
}

/*
 * What a file is, compared with what was recorded of it. FAILED: for another reason, which stays as
 * long as the view. UNKNOWN: it cannot be looked at for now.
 */
enum { SAME = 1, CHANGED = 2, FAILED = 4, UNKNOWN = 8 };

static unsigned compare(struct rfs_files *files, uint32_t id)
{
    const int rc = rfs_files_check(files, id);

    return rc == 0                                         ? SAME
           : rc == -ESTALE                                 ? CHANGED
           : rc == -EINTR || rfs_files_may_pass(files, rc) ? UNKNOWN
                                                           : FAILED;
}

/* Returns the path of the first of N files that is one of STATES, or NULL. */
static const char *find_file(const struct rfs_view *view, uint32_t n, unsigned states)
{
    struct rfs_files *files = rfs_catalog_files(view->source);

    for (uint32_t id = 0; id < n; id++)
        if (states & compare(files, id))
            return rfs_files_path(files, id);
    return NULL;
}

/* Says whether one of all files is one of STATES. */
static bool has_file(const struct rfs_view *view, unsigned states)
{
    return find_file(view, rfs_files_count_paths(rfs_catalog_files(view->source)), states);
}

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* Times of a save, by the clock of its files. */
struct times {
    struct timespec newest; /* the last change of a file */
    struct timespec ended;  /* the last change of what its program writes at the end; 0: nothing */
};

/*
 * Records what the files of a save are now, before anything is read of them, and the times of the
 * last changes.
 */
static int record(struct rfs_view *view, struct times *times, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->source);
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->source);
    const bool closes = chunks && chunks->named_by.n == 0 && chunks->written_last;

    for (uint32_t id = 0; id < rfs_files_count_paths(files); id++) {
        struct stat st;
        const int rc = rfs_files_stat(files, id, &st);
        if (rc)
            return rfs_files_fail(err, rfs_files_path(files, id), rc);
        if (is_later(&st.st_mtim, &times->newest))
            times->newest = st.st_mtim;
        if (is_later(&st.st_ctim, &times->newest))
            times->newest = st.st_ctim;
        if (closes && id == chunks->metadata)
            times->ended = st.st_ctim;
    }
    return 0;
}

/* Checks that no rank is missing, also one whose slices another rank has: it may be under way. */
static int check_ranks(const struct rfs_view *view, struct rfs_error *err)
{
    const uint32_t lacks = rfs_catalog_lacks(view->source);
    const uint64_t ranks = (uint64_t)view->scale.src_devices * view->scale.src_stages;

    if (lacks != RFS_NO_RANK)
        return rfs_fail(err, -ENOENT, RFS_IN(rfs_catalog_path(view->source)), NULL,
                        "rank %" PRIu32 " has no file of it: its save has not ended", lacks);
    if (rfs_catalog_present(view->source) < ranks)
        return rfs_fail(err, -ENOENT, RFS_IN(rfs_catalog_path(view->source)), NULL,
                        "%" PRIu64 " of %" PRIu64
                        " ranks have a file of it: its save has not ended",
                        (uint64_t)rfs_catalog_present(view->source), ranks);
    return 0;
}

/* Checks that a save is complete: each file is planned, from headers that fit all files. */
static int check_files(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->source);
    int rc = 0;

    for (size_t file = 0; rc == 0 && file < view->n_files; file++) {
        uint64_t bytes;
        rc = rfs_view_plan_file(view, file, &bytes, err);
    }
    if (rc == 0 && chunks && chunks->doubt)
        rc = rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(view->source)), NULL, "%s",
                      chunks->doubt);
    else if (rc == 0 && atomic_load(&view->save.doubted))
        rc = rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(view->source)),
                      "a save that has ended, copied with its times (cp -a)",
                      "the metadata may be of another save than the files");
    return rc;
}

/*
 * Says whether the writers of a complete save are done with it: what they write at the end is its
 * newest file, or all are old.
 */
static bool has_ended(const struct rfs_follow *follow, const struct times *times,
                      const struct timespec *now)
{
    const struct rfs_saves *saves = follow->listed;
    const struct timespec *ended =
        saves->tracked == RFS_TRACKED_ALWAYS ? &times->ended : &saves->tracked_at;

    if (ended->tv_sec > 0 && !is_later(&times->newest, ended))
        return true;
    /* An object that was uploaded in parts has the time when that began. */
    return !rfs_store_is_url(follow->source) &&
           times->newest.tv_sec < now->tv_sec - (follow->every + OLD) / SECOND;
}

/* Opens a save that is not shown, and notes why it is not complete. */
static void open_save(struct reshard_view *set, struct followed *save)
{
    struct rfs_follow *follow = set->follow;
    struct rfs_view *view = NULL;
    struct times times = {0};
    struct timespec now;
    struct rfs_error err = {0};
    char wait[96];

    clock_gettime(CLOCK_REALTIME, &now);
    const int rc = rfs_view_open(set, follow->source, follow->listed, &save->save,
                                 set->options.cache, save->told, &view, &err)
                       ?: check_ranks(view, &err)
                       ?: record(view, &times, &err)
                       ?: check_files(view, &err);
    if (rc) {
        rfs_view_close(view);
        if (err.usage && follow->mistake)
            *follow->mistake = err;
        if (rc != -EINTR)
            set_why(set, save, RFS_WARNING, err.text);
        return;
    }
    view->save.name = save->name;
    atomic_store(&view->save.quiet, true); /* its files may still change */
    save->ready = view;
    save->since = now_ns();
    if (has_ended(follow, &times, &now)) {
        save->since = follow->began - follow->every;
        return;
    }
    snprintf(wait, sizeof wait, "it is complete, and shown when nothing has changed for %d s",
             (int)(follow->every / SECOND));
    set_why(set, save, RFS_DEBUG, wait);
}

static void drop_ready(struct followed *save)
{
    rfs_view_close(save->ready);
    save->ready = NULL;
}

static void forget_before(struct followed *save)
{
    rfs_view_leave(save->before);
    save->before = NULL;
}

/* Takes a save off the list; its view is kept for KEEP, or freed when nobody uses it. */
static void hide(struct reshard_view *set, struct followed *save, struct rfs_view **keep)
{
    pthread_mutex_lock(&set->lock);
    save->shown->save.gone = true;
    save->shown->save.users += keep != NULL;
    pthread_mutex_unlock(&set->lock);
    if (keep)
        *keep = save->shown;
    save->shown = NULL;
}

/*
 * Shows a save, unless a file of it, or of the save before under this name, speaks against it. Its
 * ranks may contradict the strategy only because some are still of that one.
 */
static void show(struct reshard_view *set, struct followed *save)
{
    struct rfs_view *view = save->ready;
    const struct rfs_view *before = save->before;
    const char *old =
        before ? find_file(before, before->save.n_files, SAME | FAILED | UNKNOWN) : NULL;
    char text[PATH_MAX + 96];
    struct rfs_error err = {0};

    if (old) {
        snprintf(text, sizeof text, "%s has not changed since the save before of this number", old);
        set_why(set, save, RFS_WARNING, text);
        return;
    }
    if (rfs_view_check_alike(view, &err)) {
        set_why(set, save, RFS_WARNING, err.text);
        return;
    }
    if (has_file(view, CHANGED | FAILED | UNKNOWN))
        return; /* the next look says more */
    if (set->n == RFS_FOLLOW_MOST) {
        set_why(set, save, RFS_ERROR, "too many saves were shown; try: unmount and mount");
        return;
    }
    if (save->shown) /* it is of another run */
        hide(set, save, NULL);
    if (atomic_load(&set->home))
        rfs_files_set_home(rfs_catalog_files(view->source), (dev_t)(atomic_load(&set->home) - 1));
    pthread_mutex_lock(&set->lock);
    view->save.base = rfs_view_save_base(set->n + 1);
    set->data[set->n++] = view;
    set->hidden_mode = 0;
    pthread_mutex_unlock(&set->lock);
    save->shown = RFS_STEAL(save->ready);
    atomic_store(&view->save.quiet, false);
    forget_why(save);
    forget_before(save);
    rfs_log(&set->log, RFS_INFO, "%s: is shown", save->name);
}

/* Says whether the tracker lets a save be shown, and notes why it does not. */
static bool is_tracked(struct reshard_view *set, struct followed *save)
{
    const int64_t tracked = set->follow->tracked;
    char text[96];

    if (tracked == RFS_TRACKED_ALWAYS || (tracked >= 0 && save->save.step <= tracked))
        return true;
    snprintf(text, sizeof text,
             "the tracker file names no step from %" PRId64 " on: its save has not ended",
             save->save.step);
    set_why(set, save, RFS_DEBUG, text);
    return false;
}

/*
 * Returns the path of the first file of a save, malloc'ed; NULL where each save has a folder, ranks
 * have files of several runs, or there is no memory.
 */
static char *first_file(struct reshard_view *set, const struct rfs_save *save)
{
    struct rfs_options options = set->options;
    struct rfs_source_spec spec = rfs_view_spec(set, &options, set->follow->source);

    spec.saves = set->follow->listed;
    options.epoch = save->epoch;
    options.step = save->step;
    return rfs_scan_save_file(&spec);
}

/* Returns whether the files of a view have given way to those of another run with these numbers. */
static bool is_of_another_run(struct reshard_view *set, const struct followed *save,
                              const struct rfs_view *view)
{
    struct rfs_files *files = rfs_catalog_files(view->source);
    RFS_FREE char *path = first_file(set, &save->save);

    for (uint32_t id = 0; path && id < view->save.n_files; id++)
        if (strcmp(rfs_files_path(files, id), path) == 0)
            return false;
    return path;
}

static void consider(struct reshard_view *set, struct followed *save)
{
    const bool changed = save->shown && !save->same && has_file(save->shown, CHANGED);

    if (save->shown && !changed && !is_of_another_run(set, save, save->shown))
        return;
    if (changed) {
        forget_before(save);
        hide(set, save, &save->before);
        rfs_log(&set->log, RFS_WARNING, "%s: is not shown any more: its files have changed",
                save->name);
        atomic_store(&save->before->save.quiet, true); /* that its other files change, too */
    }
    if (save->ready &&
        (has_file(save->ready, CHANGED | FAILED) || is_of_another_run(set, save, save->ready)))
        drop_ready(save);
    if (!is_tracked(set, save))
        return;
    if (!save->ready)
        open_save(set, save);
    /* Objects are compared with a list of the look's beginning. */
    if (save->ready && set->follow->began - save->since >= set->follow->every)
        show(set, save);
}

/* Forgets a save that is not there any more. */
static void forget(struct reshard_view *set, struct followed *save)
{
    if (save->shown) {
        hide(set, save, NULL);
        rfs_log(&set->log, RFS_INFO, "%s: is not there any more", save->name);
    }
    drop_ready(save);
    forget_before(save);
    forget_why(save);
}

/* ---- all saves ------------------------------------------------------------------------------- */

static void note_trouble(struct reshard_view *set, const struct rfs_error *err)
{
    char **trouble = &set->follow->trouble;

    if (*trouble && err->text[0] && strcmp(*trouble, err->text) == 0)
        return;
    free(*trouble);
    *trouble = err->text[0] ? strdup(err->text) : NULL;
    if (err->text[0] && !set->follow->mistake) /* the view may be refused */
        rfs_log(&set->log, RFS_WARNING, "%s", err->text);
}

/* Finds what is known of a save, or NULL; *at, unless AT is NULL, is its place among the others. */
static struct followed *find_known(const struct rfs_follow *follow, const struct rfs_save *save,
                                   size_t *at)
{
    const size_t n = follow->saves.n;
    const size_t i =
        RFS_BISECT(k, n, rfs_scan_saves_compare(&follow->saves.data[k]->save, save) >= 0);
    struct followed *found = i < n ? follow->saves.data[i] : NULL;

    if (at)
        *at = i;
    return found && rfs_scan_saves_compare(&found->save, save) == 0 ? found : NULL;
}

/* Finds what is known of a save, or adds it; NULL when out of memory. */
static struct followed *find(struct rfs_follow *follow, const struct rfs_save *save)
{
    const size_t n = follow->saves.n;
    size_t at;
    struct followed *known = find_known(follow, save, &at);

    if (known)
        return known;
    struct followed *added = calloc(1, sizeof *added);
    if (!added || !RFS_PUSH(&follow->saves, added)) {
        free(added);
        return NULL;
    }
    struct followed **place = follow->saves.data + at;
    memmove(place + 1, place, (n - at) * sizeof *place); /* mostly there are none: saves ascend */
    *place = added;
    added->save = *save;
    rfs_view_name_save(save, added->name);
    return added;
}

/* Takes view I of the set, if it is not shown and has no users; NULL: it is, or there is none. */
static struct rfs_view *take_unused(struct reshard_view *set, size_t i)
{
    RFS_LOCKED(&set->lock);
    struct rfs_view *view = set->data[i];
    if (!view || !view->save.gone || view->save.users > 0)
        return NULL;
    view->save.users++;
    return view;
}

/* Takes a view off the set, whose past is then PAST, unless another user came. */
static bool take_off(struct reshard_view *set, size_t i, const reshard_statistics *past)
{
    RFS_LOCKED(&set->lock);
    if (--set->data[i]->save.users > 0)
        return false;
    set->data[i] = NULL;
    set->past = *past;
    set->freed++;
    return true;
}

/* Frees the views that are not shown and have no users. */
static void collect(struct reshard_view *set)
{
    for (size_t i = 0; i < set->n; i++) {
        struct rfs_view *view = take_unused(set, i);
        if (!view)
            continue;
        reshard_statistics past = set->past; /* this thread alone changes it */
        rfs_view_add_statistics(view, &past);
        past.index_bytes = past.cache_budget = past.cache_bytes = 0; /* of the moment */
        if (!take_off(set, i, &past))
            continue;
        rfs_view_close(view);
    }
}

/* Gives each view an equal part of the cache. */
static void share_cache(struct reshard_view *set)
{
    struct rfs_view *view;
    uint64_t n = 0;

    for (size_t i = 0; i < set->n; i++)
        n += set->data[i] != NULL; /* this thread alone changes them */
    for (size_t at = 0; (view = rfs_view_next(set, &at)); rfs_view_leave(view))
        rfs_view_limit(view, set->options.cache / n);
}

/* Chooses the newest save that is shown, and that the tracker does not say is too new. */
static void choose_latest(struct reshard_view *set)
{
    struct rfs_follow *follow = set->follow;
    const struct followed *newest = NULL;

    for (size_t i = 0; i < follow->saves.n; i++) {
        const struct followed *save = follow->saves.data[i];
        if (save->shown &&
            (follow->tracked == RFS_TRACKED_ALWAYS || save->save.step <= follow->tracked))
            newest = save; /* they ascend */
    }
    RFS_LOCKED(&set->lock);
    snprintf(follow->latest, sizeof follow->latest, "%s", newest ? newest->name : "");
}

/* Writes the state that reshard_describe_saves gives. */
static void describe(struct reshard_view *set)
{
    struct rfs_follow *follow = set->follow;
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    struct rfs_json_write json = {.file = out, .indent = 2};

    if (!out)
        return;
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_text(&json, "latest", follow->latest[0] ? follow->latest : NULL);
    if (follow->tracked >= 0)
        rfs_json_put_i64(&json, "tracked", follow->tracked);
    rfs_json_put_text(&json, "trouble", follow->trouble);
    rfs_json_array(&json, "saves", RFS_JSON_LINES);
    for (size_t i = 0; i < follow->saves.n; i++) {
        const struct followed *save = follow->saves.data[i];
        if (!save->there)
            continue;
        rfs_json_object(&json, NULL, RFS_JSON_SPACED);
        rfs_json_put_text(&json, "save", save->name);
        rfs_json_put_bool(&json, "shown", save->shown != NULL);
        if (!save->shown)
            rfs_json_put_text(&json, "why", save->why);
        rfs_json_end(&json);
    }
    rfs_json_finish(&json);
    if (fclose(out) != 0) {
        free(text);
        text = NULL;
    }
    pthread_mutex_lock(&set->lock);
    char *old = follow->state;
    follow->state = text;
    pthread_mutex_unlock(&set->lock);
    free(old);
}

/*
 * Says whether the save of that name is shown, and its files are as they were: then it is what it
 * was. So a look scans the saves that are new, and compares the files of the others.
 */
static bool is_known(void *ctx, const char *name, const struct rfs_save *named)
{
    struct rfs_follow *follow = ctx;
    struct followed *save = find_known(follow, named, NULL);
    const size_t n = strlen(follow->source);

    if (!save || !save->shown || save->shown->save.n_files == 0)
        return false;
    const char *path = rfs_files_path(rfs_catalog_files(save->shown->source), 0);
    if (strncmp(path, follow->source, n) != 0 || path[n] != '/')
        return false;
    const size_t in_it = strlen(name);
    path += n + 1;
    if (strncmp(path, name, in_it) != 0 || (path[in_it] != '/' && path[in_it] != '\0'))
        return false; /* it is another version of the save */
    save->same = !has_file(save->shown, CHANGED | FAILED | UNKNOWN);
    return save->same;
}

/* Looks at all saves. 0, or -errno with *err filled when they cannot be listed. */
static int look(struct reshard_view *set, struct rfs_error *err)
{
    struct rfs_follow *follow = set->follow;
    RFS_CLEANUP(rfs_scan_saves_free) struct rfs_saves saves = {0};

    follow->began = now_ns();
    for (size_t i = 0; i < follow->saves.n; i++)
        follow->saves.data[i]->same = false;
    int rc =
        rfs_view_list_saves(set, follow->source,
                            &(struct rfs_known_saves){follow->kind, is_known, follow}, &saves, err);

    follow->listed = &saves;
    follow->kind = saves.kind;
    collect(set);
    if (rc == 0 || rc == -ENOENT) { /* there may be none yet, or none any more */
        if (follow->tracked < 0 || saves.tracked >= 0)
            follow->tracked = saves.tracked;
        /* A folder that went while it was listed does not mean that all saves went. */
        for (size_t i = 0; i < follow->saves.n; i++)
            follow->saves.data[i]->there = rc && follow->saves.data[i]->shown &&
                                           !has_file(follow->saves.data[i]->shown, CHANGED);
        for (size_t i = 0; i < saves.n; i++) {
            struct followed *save = find(follow, &saves.data[i]);
            if (save) {
                save->there = true;
                consider(set, save);
            }
        }
        for (size_t i = 0; i < follow->saves.n; i++)
            if (!follow->saves.data[i]->there)
                forget(set, follow->saves.data[i]);
    }
    follow->listed = NULL;
    if (rc != -EINTR && (rc == 0 || rc == -ENOENT || !follow->mistake))
        note_trouble(set, err); /* others end the opening, whose caller has the message */
    share_cache(set);
    choose_latest(set);
    describe(set);
    return rc == -ENOENT ? 0 : rc;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Says whether it is time for a look: of callers who want what is fresh, each second. */
static bool is_due(const struct rfs_follow *follow, enum reshard_looks when)
{
    const int64_t every = when == RESHARD_LOOK_FRESH ? SECOND : follow->every;

    return now_ns() - atomic_load(&follow->looked) >= every;
}

static void look_later(void *set)
{
    reshard_look(set, RESHARD_LOOK_NOW);
}

void reshard_look(reshard_view *set, enum reshard_looks when)
{
    struct rfs_follow *follow = set->follow;
    const bool asks = when == RESHARD_LOOK_NOW || when == RESHARD_LOOK_LATER;
    struct rfs_error err = {0};

    if (!follow || (!asks && !atomic_load(&follow->asked) && !is_due(follow, when) &&
                    !rfs_watch_rings(&follow->watch)))
        return;
    if (asks)
        atomic_store(&follow->asked, true);
    if (when == RESHARD_LOOK_LATER) {
        (void)rfs_pool_submit_waiting(set->pool, look_later, set); /* else the next call looks */
        return;
    }
    if (atomic_exchange(&follow->looking, true))
        return;
    const bool asked = atomic_exchange(&follow->asked, false) || is_due(follow, when);
    if (!rfs_watch_take(&follow->watch) && !asked) {
        atomic_store(&follow->looking, false);
        return;
    }
    if (rfs_store_is_url(follow->source))
        set->store->directory->forget(set->store); /* each look lists it anew, once */
    if (look(set, &err) == -EINTR)
        atomic_store(&follow->asked, true);
    atomic_store(&follow->looked, now_ns());
    atomic_store(&follow->looking, false);
}

int reshard_read_link(reshard_view *set, uint64_t id, char *target, size_t size)
{
    char name[48];

    if (id != RFS_FOLLOW_LATEST || !rfs_follow_latest(set, name))
        return -ENOENT;
    return snprintf(target, size, "%s", name) < (int)size ? 0 : -ERANGE;
}

char *reshard_describe_saves(reshard_view *set)
{
    if (!set->follow)
        return NULL;
    RFS_LOCKED(&set->lock);
    return set->follow->state ? strdup(set->follow->state) : NULL;
}

bool rfs_follow_latest(struct reshard_view *set, char name[48])
{
    if (!set->follow)
        return false;
    RFS_LOCKED(&set->lock);
    memcpy(name, set->follow->latest, sizeof set->follow->latest);
    return name[0];
}

/* ---- beginning and end ----------------------------------------------------------------------- */

const char *rfs_follow_source(const struct rfs_follow *follow)
{
    return follow->source;
}

int rfs_follow_open(struct reshard_view *set, const char *source, struct rfs_error *err)
{
    struct rfs_follow *follow = set->follow = calloc(1, sizeof *follow);

    set->data = follow ? calloc(RFS_FOLLOW_MOST, sizeof(struct rfs_view *)) : NULL;
    if (follow)
        follow->watch.fd = -1;
    if (!set->data)
        return rfs_fail_memory(err);
    follow->every = (int64_t)set->config.follow * SECOND;
    follow->tracked = RFS_TRACKED_NOTHING;
    int rc = rfs_path_resolve(set->store, source, &follow->source, err);
    if (rc)
        return rc;
    rfs_watch_begin(&follow->watch, follow->source, &set->log);
    (void)rfs_watch_take(&follow->watch);
    struct rfs_error mistake = {0};
    follow->mistake = &mistake;
    rc = look(set, err);
    follow->mistake = NULL;
    atomic_store(&follow->looked, now_ns());
    if (rc == 0 && mistake.usage) {
        *err = mistake;
        rc = mistake.code;
    }
    if (rc || !follow->trouble)
        return rc;
    const struct rfs_source_spec spec = rfs_view_spec(set, &set->options, follow->source);
    rc = rfs_scan_saves_may_come(&spec, err);
    if (rc == 0)
        rfs_log(&set->log, RFS_WARNING, "%s", follow->trouble);
    return rc;
}

void rfs_follow_close(struct rfs_follow *follow)
{
    if (!follow)
        return;
    for (size_t i = 0; i < follow->saves.n; i++) {
        rfs_view_close(follow->saves.data[i]->ready);
        free(follow->saves.data[i]->why);
        free(follow->saves.data[i]);
    }
    rfs_watch_end(&follow->watch);
    free(follow->saves.data);
    free(follow->source);
    free(follow->trouble);
    free(follow->state);
    free(follow);
}
