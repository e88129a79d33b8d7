/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading: tensors and boxes of them, straight into the caller's memory. The loads of a call are
 * ordered by where their sources begin, and divided into tasks of TASK bytes, which the pool's
 * threads take. Slow sources are read ahead over the bounds of tasks.
 *
 * Memory: 24 bytes a load and 24 a task, the slice of each task under way, and a scratch for each
 * thread.
 */
#include "assemble/sequential.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/order.h"
#include "base/pages.h"
#include "base/store.h"
#include "base/wait.h"
#include "plan/by_rules.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/rules_view.h"

#define TASK (16 * RFS_PIECE)

_Static_assert(RESHARD_TENSOR_DIMS == RFS_MAX_DIMS, "a tensor of ours fits into theirs");

struct reshard_tensors {
    struct rfs_tensors list; /* its view is taken */
};

/* ---- lists ----------------------------------------------------------------------------------- */

/* Refuses a folder that is not there, and names those that are. */
static int fail_folder(reshard_view *set, const char *folder, struct rfs_error *err)
{
    reshard_summary about = {.struct_size = sizeof about};
    char remedy[96] = "full, or rank_0";

    reshard_summarize(set, &about);
    if (about.target_ranks > 1)
        snprintf(remedy, sizeof remedy, "full, or one of the ranks 0 to %" PRIu32,
                 about.target_ranks - 1);
    else if (about.source_ranks > 1)
        snprintf(remedy, sizeof remedy,
                 "full, or dst_rules=\"like source\" for the %" PRIu32 " ranks of the source",
                 about.source_ranks);
    return rfs_fail(err, -ENOENT, RFS_NOWHERE, remedy, "there is no folder '%s' of tensors",
                    folder);
}

/* Finds a folder of tensors by its path below "tensors". */
static int find_folder(reshard_view *set, const char *folder, uint64_t *id, struct rfs_error *err)
{
    RFS_FREE char *path = strdup(folder);
    char *rest = path;
    int rc = 0;

    if (!path)
        return rfs_fail_memory(err);
    *id = RFS_HIDDEN_TENSORS;
    while (rc == 0 && rest) {
        const char *name = strsep(&rest, "/");
        rc = strcmp(name, "..") == 0 ? -ENOENT : reshard_lookup(set, *id, name, id);
    }
    RFS_VIEW_TAKEN *view = rc == 0 ? rfs_view_take(set, *id) : NULL;
    if (view && rfs_view_hidden_owns(view, *id) &&
        rfs_view_hidden_find(view, *id).kind == RFS_VIEW_HIDDEN_GROUP)
        return 0;
    if (rc == 0 || rc == -ENOENT || rc == -ENOTDIR)
        return fail_folder(set, folder, err);
    return rc == -ENOMEM ? rfs_fail_memory(err)
                         : rfs_fail(err, rc, RFS_NOWHERE, NULL, "%s: %s", folder, strerror(-rc));
}

/* Opens the list of a folder. */
static int open_list(reshard_view *set, const char *folder, reshard_tensors *tensors,
                     struct rfs_error *err)
{
    uint64_t id;
    int rc = find_folder(set, folder, &id, err);

    if (rc)
        return rc;
    struct rfs_view *view = rfs_view_take(set, id);
    if (!view) /* its save has gone since */
        return rfs_fail(err, -ESTALE, RFS_NOWHERE, NULL, "%s: %s", folder, strerror(ESTALE));
    rc = rfs_view_hidden_tensors(view, rfs_view_hidden_find(view, id).group, &tensors->list, err);
    tensors->list.view = view; /* also of a list that failed */
    return rc ? rc : rfs_tensors_sort_names(&tensors->list) ? rfs_fail_memory(err) : 0;
}

int reshard_tensors_open(reshard_view *view, const char *folder, reshard_tensors **out,
                         reshard_error *err)
{
    reshard_tensors *tensors = calloc(1, sizeof *tensors);
    struct rfs_error own = {0};

    *out = NULL;
    const int rc = tensors ? open_list(view, folder, tensors, &own) : rfs_fail_memory(&own);
    if (rc)
        reshard_tensors_close(tensors);
    else
        *out = tensors;
    return rfs_view_report(err, &own, rc);
}

void reshard_tensors_close(reshard_tensors *tensors)
{
    if (!tensors)
        return;
    rfs_view_leave(tensors->list.view);
    free(tensors->list.by_name);
    free(tensors);
}

size_t reshard_tensors_count(const reshard_tensors *tensors)
{
    return rfs_tensors_count(&tensors->list);
}

/* Says whether a value is a tensor with elements, so that a box of it can be loaded. */
static bool has_elements(const struct rfs_type *type)
{
    uint64_t bytes;

    return type->kind == RFS_TENSOR && rfs_type_bytes(type, &bytes) && bytes == type->bytes;
}

int reshard_tensors_get(const reshard_tensors *tensors, size_t i, reshard_tensor *out)
{
    if (i >= reshard_tensors_count(tensors))
        return -ENOENT;
    const struct rfs_type *type = rfs_tensors_type(&tensors->list, i);
    reshard_tensor full = {
        .name = rfs_tensors_name(&tensors->list, i),
        .dtype = type->kind == RFS_MAP ? "Map" : rfs_dtype_name((enum rfs_dtype)type->dtype),
        .bytes = type->bytes,
        .ndim = type->kind == RFS_TENSOR ? type->ndim : 0,
    };

    if (full.ndim > 0)
        memcpy(full.shape, type->dims, full.ndim * sizeof *full.shape);
    rfs_view_give(out, &full, sizeof full);
    return 0;
}

int reshard_tensors_find(const reshard_tensors *tensors, const char *name, size_t *i)
{
    const struct rfs_tensor found = rfs_tensors_find(&tensors->list, name);

    if (!found.list)
        return -ENOENT;
    *i = found.i;
    return 0;
}

/* ---- loads ----------------------------------------------------------------------------------- */

/* A load of the caller, and where its first byte comes from. */
struct item {
    const reshard_load *load;
    uint64_t bytes; /* as shown */
    uint64_t from;
    uint32_t file;
};

/* Bytes of a load. */
struct task {
    const struct item *item;
    uint64_t begin, end;
};

struct run {
    const reshard_tensors *tensors;
    struct item *items; /* [n] owned; in the order of work */
    size_t n;
    struct task *tasks; /* owned */
    size_t n_tasks;
    uint64_t bytes;
    atomic_uint_least64_t done; /* bytes */
    atomic_size_t staged;       /* tasks whose sources are read ahead */
    struct rfs_first_error first;
    pthread_t caller;
    reshard_progress_fn *progress; /* NULL: none */
    void *progress_ctx;
};

static void run_end(struct run *run)
{
    free(run->items);
    free(run->tasks);
}

static int fail_load(const struct run *run, const reshard_load *load, int rc,
                     const struct rfs_slice *slice, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(run->tensors->list.catalog);
    const char *name = rfs_tensors_name(&run->tensors->list, load->tensor);

    if (rc == -ENOMEM)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < slice->n; i++)
        if (rfs_files_state(files, slice->blocks[i].file) == rc) {
            struct rfs_error why = {0};
            rfs_files_fail(&why, rfs_files_path(files, slice->blocks[i].file), rc);
            return rfs_fail(err, rc, RFS_OF(NULL, name), NULL, "%s", why.text);
        }
    return rfs_fail(err, rc, RFS_OF(run->tensors->list.path, name), NULL, "cannot be read: %s",
                    strerror(-rc));
}

/* Checks a load, and sets the bytes that it takes. */
static int check_load(const struct run *run, const reshard_load *load, uint64_t *bytes,
                      struct rfs_error *err)
{
    const struct rfs_tensors *list = &run->tensors->list;

    if (load->tensor >= rfs_tensors_count(list))
        return rfs_fail(err, -EINVAL, RFS_NOWHERE, NULL, "there is no tensor number %zu",
                        load->tensor);
    const struct rfs_type *type = rfs_tensors_type(list, load->tensor);
    const struct rfs_where where = RFS_OF(NULL, rfs_tensors_name(list, load->tensor));
    *bytes = type->bytes;
    if (!load->begin != !load->end)
        return rfs_fail(err, -EINVAL, where, NULL, "a box has a begin and an end");
    if (!load->begin)
        return 0;
    if (!has_elements(type))
        return rfs_fail(err, -EINVAL, where, "all of it", "it has no elements to take a box of");
    *bytes = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    for (uint32_t i = 0; i < type->ndim; i++) {
        if (load->begin[i] > load->end[i] || load->end[i] > type->dims[i])
            return rfs_fail(err, -EINVAL, where, NULL,
                            "axis %u has no elements %" PRIu64 " to %" PRIu64 ", but %" PRIu64, i,
                            load->begin[i], load->end[i], type->dims[i]);
        *bytes *= load->end[i] - load->begin[i];
    }
    return 0;
}

/* Makes the slice of a load, to be freed by the caller in any case. */
static int slice_load(const struct run *run, const reshard_load *load, struct rfs_slice *slice)
{
    const struct rfs_tensors *list = &run->tensors->list;

    return load->begin
               ? rfs_planner_box(list->planner, list->rank, rfs_tensors_target(list, load->tensor),
                                 load->begin, load->end, slice)
               : rfs_tensors_slice(list, (uint32_t)load->tensor, slice);
}

RFS_COMPARE(compare_places, struct item, x, y,
            RFS_ORDER((uintptr_t)x->load->to, (uintptr_t)y->load->to)
                ?: RFS_ORDER(x->load, y->load))

/* Refuses two loads that would write to the same memory: their threads do it in any order. */
static int check_places(struct run *run, struct rfs_error *err)
{
    const struct rfs_tensors *list = &run->tensors->list;
    const struct item *last = NULL; /* reaches behind all before it */

    RFS_SORT(run->items, run->n, compare_places);
    for (size_t i = 0; i < run->n; i++) {
        const struct item *item = &run->items[i];
        if (item->bytes == 0)
            continue;
        if (last && (uintptr_t)item->load->to - (uintptr_t)last->load->to < last->bytes)
            return rfs_fail(err, -EINVAL, RFS_OF(NULL, rfs_tensors_name(list, item->load->tensor)),
                            "memory of its own for each load",
                            "its memory overlaps that of '%s' in the same call",
                            rfs_tensors_name(list, last->load->tensor));
        last = item;
    }
    return 0;
}

RFS_COMPARE(compare_items, struct item, x, y,
            RFS_ORDER(x->file, y->file) ?: RFS_ORDER(x->from, y->from)
                                               ?: RFS_ORDER(x->load, y->load))

/* Checks all loads, and orders them by their sources. */
static int list_items(struct run *run, const reshard_load *loads, size_t n, struct rfs_error *err)
{
    struct rfs_view *view = run->tensors->list.view;
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice slice = {0};

    run->items = calloc(n + 1, sizeof *run->items);
    if (!run->items)
        return rfs_fail_memory(err);
    for (run->n = 0; run->n < n; run->n++) {
        const reshard_load *load = &loads[run->n];
        struct item *item = &run->items[run->n];
        item->load = load;
        int rc = check_load(run, load, &item->bytes, err);
        if (rc)
            return rc;
        if (view->rules &&
            rfs_by_rules_is_compared(view->rules->made,
                                     rfs_tensors_target(&run->tensors->list, load->tensor)->name) &&
            (rc = rfs_view_compare_copies(view, err)) != 0)
            return rc;
        rc = rfs_cancelled() ? -EINTR : slice_load(run, load, &slice);
        if (rc)
            return fail_load(run, load, rc, &slice, err);
        if (slice.n > 0) {
            item->file = slice.blocks[0].file;
            item->from = rfs_catalog_content_offset(&slice.blocks[0].content, slice.blocks[0].src);
        }
        run->n_tasks += (size_t)(item->bytes / TASK + (item->bytes % TASK > 0));
        run->bytes += item->bytes;
    }
    const int rc = check_places(run, err);
    RFS_SORT(run->items, n, compare_items);
    return rc;
}

static int list_tasks(struct run *run, struct rfs_error *err)
{
    run->tasks = calloc(run->n_tasks + 1, sizeof *run->tasks);
    if (!run->tasks)
        return rfs_fail_memory(err);
    struct task *task = run->tasks;
    for (size_t i = 0; i < run->n; i++)
        for (uint64_t at = 0; at < run->items[i].bytes; at += TASK)
            *task++ =
                (struct task){&run->items[i], at, rfs_min_u64(at + TASK, run->items[i].bytes)};
    return 0;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Notes the source ranges of a task. */
static int note_task(const struct run *run, const struct task *task,
                     struct rfs_gather_ranges *ranges)
{
    const reshard_load *load = task->item->load;
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice slice = {0};
    struct rfs_casting cast;
    uint64_t begin = task->begin;
    uint64_t end = task->end;

    if (rfs_tensors_is_cast(&run->tensors->list, (uint32_t)load->tensor, &cast))
        rfs_assemble_uncast(&cast, &begin, &end);
    return slice_load(run, load, &slice) ?: rfs_gather_note(&slice, begin, end, ranges);
}

/* Has slow sources of the tasks from FIRST on read ahead, as far as that is worth it. */
static void stage(struct run *run, size_t first)
{
    struct rfs_view *view = run->tensors->list.view;
    uint64_t reach = rfs_assemble_reach(view->assembler);
    struct rfs_gather_ranges ranges = {0};
    int rc = 0;

    if (reach == 0)
        return;
    reach *= rfs_store_is_url(rfs_catalog_path(view->catalog)) ? RFS_REMOTE_TIMES : 1;
    for (size_t i = first; rc == 0 && i < run->n_tasks; i++) {
        const struct task *task = &run->tasks[i];
        size_t staged = atomic_load(&run->staged);
        /* One thread stages a task. Those before it are under way: sources may have become slow. */
        if (staged <= i && atomic_compare_exchange_strong(&run->staged, &staged, i + 1))
            rc = note_task(run, task, &ranges);
        if (task->end - task->begin >= reach)
            break;
        reach -= task->end - task->begin;
    }
    (void)rfs_assemble_prefetch(view->assembler, &ranges); /* else each task reads its own */
    free(ranges.data);
}

static int do_task(const struct run *run, const struct task *task, struct rfs_error *err)
{
    const reshard_load *load = task->item->load;
    struct rfs_view *view = run->tensors->list.view;
    RFS_CLEANUP(rfs_slice_free) struct rfs_slice slice = {0};
    struct rfs_casting cast;
    const bool is_cast = rfs_tensors_is_cast(&run->tensors->list, (uint32_t)load->tensor, &cast);
    const uint64_t since = rfs_wait_now();
    const size_t size = (size_t)(task->end - task->begin);

    rfs_pages_expect((unsigned char *)load->to + task->begin, size);
    const int rc = rfs_view_check_sources(view, run->tensors->list.plan)
                       ?: slice_load(run, load, &slice)
                       ?: rfs_assemble_once(view->assembler, &slice, is_cast ? &cast : NULL,
                                            task->begin, size,
                                            (unsigned char *)load->to + task->begin);
    rfs_view_count_read(&view->save.counters, size, rc ? rc : (ssize_t)size,
                        rfs_wait_now() - since);
    return rc ? fail_load(run, load, rc, &slice, err) : 0;
}

static int run_task(void *ctx, size_t i)
{
    struct run *run = ctx;
    struct rfs_error err = {0};

    stage(run, i);
    const int rc = do_task(run, &run->tasks[i], &err);
    if (rc)
        return rfs_first_error_note(&run->first, i, rc, &err);
    const uint64_t size = run->tasks[i].end - run->tasks[i].begin;
    const uint64_t done = atomic_fetch_add(&run->done, size) + size;
    if (run->progress && done < run->bytes && pthread_equal(pthread_self(), run->caller))
        run->progress(run->progress_ctx, done, run->bytes);
    return 0;
}

static int load_all(struct run *run, const reshard_load *loads, size_t n, struct rfs_error *err)
{
    struct rfs_view *view = run->tensors->list.view;
    int rc = rfs_view_check_metadata(view);

    if (rc)
        return rfs_fail(err, rc, RFS_IN(rfs_catalog_path(view->catalog)), NULL,
                        "the source was changed since it was opened");
    rc = list_items(run, loads, n, err) ?: list_tasks(run, err);
    if (rc)
        return rc;
    rc = rfs_pool_for(view->set->pool, run->n_tasks, run_task, run);
    if (rc) {
        rfs_fail(err, rc, RFS_NOWHERE, NULL, "loading tensors failed: %s", strerror(-rc));
        return rfs_first_error_take(&run->first, rc, err);
    }
    if (run->progress && run->bytes > 0)
        run->progress(run->progress_ctx, run->bytes, run->bytes);
    return 0;
}

int reshard_tensors_load(const reshard_tensors *tensors, const reshard_load *loads, size_t n,
                         reshard_progress_fn *progress, void *ctx, reshard_error *err)
{
    RFS_CLEANUP(run_end)
    struct run run = {.tensors = tensors,
                      .first = RFS_FIRST_ERROR,
                      .caller = pthread_self(),
                      .progress = progress,
                      .progress_ctx = ctx};
    struct rfs_error own = {0};

    return rfs_view_report(err, &own, load_all(&run, loads, n, &own));
}
