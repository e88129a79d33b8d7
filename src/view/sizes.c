/* SPDX-License-Identifier: Apache-2.0 */
#include "view/sizes.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "catalog/kept_sizes.h"
#include "layout/strategy.h"

/*
 * Makes the key of the sizes: digests of strategies and maps, and the options that change the
 * contents of files. The files of the source are not in it; the table has their marks. The caller
 * owns the key; NULL when there is none.
 */
static char *make_key(const struct rfs_view *view)
{
    uint64_t digests[6] = {0};
    uint64_t ranks;
    char *key;
    size_t n;

    if (!view->kind->by_rank || !rfs_catalog_key(view->catalog) ||
        (view->src && rfs_strategy_digest(view->src, digests)) ||
        (view->dst && rfs_strategy_digest(view->dst, digests + 2)) ||
        rfs_names_digest(view->names, digests + 4) || !rfs_kept_sizes_ranks(view->catalog, &ranks))
        return NULL;
    FILE *out = open_memstream(&key, &n);
    if (!out)
        return NULL;
    fprintf(out, "%s\n%d ", rfs_catalog_key(view->catalog),
            (view->src != NULL) + 2 * (view->dst != NULL));
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++)
        fprintf(out, "%016" PRIx64, digests[i]);
    fprintf(out, " %016" PRIx64 "\n", ranks);
    rfs_options_write(&view->options, RFS_OPTION_CONTENT, out);
    const bool bad = ferror(out) != 0;
    if (fclose(out) == 0 && !bad)
        return key;
    free(key);
    return NULL;
}

/* Returns the kept sizes, loaded at the first call; NULL when there are none that hold. */
static struct rfs_kept_sizes *sizes_of(struct rfs_view *view)
{
    if (!view->catalog || !rfs_catalog_kept(view->catalog))
        return NULL;
    pthread_mutex_lock(&view->lock);
    if (rfs_once_begin(&view->kept.once, &view->made, &view->lock) == 1) {
        pthread_mutex_unlock(&view->lock);
        RFS_FREE char *key = make_key(view);
        struct rfs_kept_sizes *sizes =
            key ? rfs_kept_sizes_load(view->catalog, view->set->pool, key, view->n_files) : NULL;
        pthread_mutex_lock(&view->lock);
        /* RFS_PUBLISHED acquires it, also where the lock is not taken. */
        atomic_store_explicit(&view->kept.loaded, sizes, memory_order_release);
        rfs_once_end(&view->kept.once, &view->made, sizes || !rfs_cancelled());
    }
    pthread_mutex_unlock(&view->lock);
    return RFS_PUBLISHED(&view->kept.loaded);
}

bool rfs_view_sizes_known(const struct rfs_view *view, size_t file)
{
    const struct rfs_kept_sizes *sizes = RFS_PUBLISHED(&view->kept.loaded);

    return sizes && rfs_kept_sizes_file(sizes, file).size != RFS_KEPT_UNKNOWN &&
           !atomic_load_explicit(&view->kept.gone, memory_order_relaxed);
}

void rfs_view_sizes_refute(struct rfs_view *view)
{
    atomic_store_explicit(&view->kept.gone, true, memory_order_relaxed);
    atomic_store(&view->kept.wrong, true);
}

/* Takes the attributes of a file's sources; false if one has changed. */
static bool take_attributes(struct rfs_view *view, const struct rfs_kept_sizes *sizes,
                            const struct rfs_kept_size *kept, struct rfs_rank_plan *plan)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);

    plan->mode = 0444;
    plan->sources = malloc(kept->n * sizeof *plan->sources);
    for (uint32_t k = 0; plan->sources && k < kept->n; k++) {
        uint32_t id;
        struct stat st;
        memcpy(&id, kept->sources + k * sizeof id, sizeof id);
        if (rfs_plan_add_file(files, id, plan, NULL) != 0 || rfs_files_stat(files, id, &st) != 0 ||
            !rfs_kept_sizes_mark_is(sizes, id, &st))
            return false;
    }
    return plan->sources != NULL;
}

bool rfs_view_sizes_find(struct rfs_view *view, size_t file, struct rfs_rank_plan *plan,
                         uint64_t *size)
{
    struct rfs_kept_sizes *sizes = sizes_of(view);

    *plan = (struct rfs_rank_plan){0};
    if (!sizes || !rfs_view_sizes_known(view, file))
        return false;
    const struct rfs_kept_size kept = rfs_kept_sizes_file(sizes, file);
    if (rfs_kept_sizes_hold(sizes) && take_attributes(view, sizes, &kept, plan)) {
        *size = kept.size;
        return true;
    }
    if (!rfs_cancelled()) /* else no check was made */
        atomic_store_explicit(&view->kept.gone, true, memory_order_relaxed);
    free(plan->sources);
    *plan = (struct rfs_rank_plan){0};
    return false;
}

/* ---- keeping --------------------------------------------------------------------------------- */

static void put_file(const struct rfs_view *view, size_t file, const struct rfs_kept_sizes *before,
                     struct rfs_bytes *table)
{
    struct rfs_kept_size kept = {.size = RFS_KEPT_UNKNOWN};
    uint64_t bytes;

    if (rfs_view_is_planned(view, file, &bytes)) {
        const struct rfs_rank_plan *plan = rfs_view_plan(view, file);
        rfs_kept_sizes_put(table, bytes, plan->sources, plan->n_sources);
        return;
    }
    if (before)
        kept = rfs_kept_sizes_file(before, file);
    rfs_kept_sizes_put(table, kept.size, kept.sources, kept.n);
}

/* Returns how many files are planned. */
static size_t count_planned(const struct rfs_view *view)
{
    uint64_t bytes;
    size_t n = 0;

    for (size_t f = 0; f < view->n_files; f++)
        n += rfs_view_is_planned(view, f, &bytes);
    return n;
}

static void save_sizes(struct rfs_view *view)
{
    const struct rfs_kept_sizes *sizes =
        atomic_load_explicit(&view->kept.gone, memory_order_relaxed)
            ? NULL
            : RFS_PUBLISHED(&view->kept.loaded);
    RFS_FREE char *key = make_key(view);
    struct rfs_bytes table = {0};

    if (key && rfs_kept_sizes_begin(view->catalog, &sizes, view->n_files, &table)) {
        for (size_t f = 0; f < view->n_files; f++)
            put_file(view, f, sizes, &table);
        rfs_kept_sizes_finish(view->catalog, key, &table);
    }
    free(table.data);
}

static void keep(struct rfs_view *view)
{
    if (!view->source || !rfs_catalog_kept(view->source) || view->n_files == 0)
        return;
    rfs_catalog_keep(view->source);
    const size_t planned = count_planned(view);
    pthread_mutex_lock(&view->lock);
    const bool more = atomic_exchange(&view->kept.wrong, false) || (planned > view->kept.kept);
    if (more)
        view->kept.kept = planned;
    pthread_mutex_unlock(&view->lock);
    if (more)
        save_sizes(view);
}

/* Keeps them, also if the view's other work is given up: this would not be begun again. */
static void save_later(void *arg)
{
    const struct rfs_cancel *before = rfs_cancel_enter(NULL);

    keep(arg);
    rfs_cancel_enter(before);
}

void rfs_view_sizes_planned(struct rfs_view *view)
{
    if (atomic_fetch_add(&view->kept.planned, 1) + 1 == view->n_files &&
        !view->set->follow && /* a job could outlast the view, which keeps them when it is closed */
        rfs_catalog_kept(view->source))
        rfs_pool_submit(view->set->pool, save_later, view, 1024);
}

void rfs_view_sizes_close(struct rfs_view *view)
{
    if (view->save.opened)
        keep(view);
    rfs_kept_sizes_free(atomic_load(&view->kept.loaded));
}
