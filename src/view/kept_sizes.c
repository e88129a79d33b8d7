/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kept sizes, behind the key:
 *
 *   u32 n, source files by id: u32 length, path, u64 inode, size, mtime, its ns, ctime, its ns
 *   u32 n, files shown: u64 size, or UINT64_MAX for one that is not known; u32 sources; for each
 *                       u32 id
 */
#include "view/kept_sizes.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/once.h"
#include "base/store.h"
#include "catalog/kept_index.h"
#include "layout/strategy.h"

#include <xxhash.h>

#define UNKNOWN UINT64_MAX
#define BATCH 64        /* files looked at in one task */
#define FRESH_SECONDS 1 /* after which they are looked at again */

struct kept_source {
    const char *path; /* lies in the table */
    size_t length;
    struct rfs_kept_mark mark;
};

struct kept_file {
    uint64_t size;
    const unsigned char *sources; /* [n] u32, in the table */
    uint32_t n;
};

/* Kept sizes. Once they are loaded, only the time changes. */
struct rfs_view_sizes {
    struct rfs_kept_file table;
    RFS_VEC(struct kept_source) sources;
    RFS_VEC(struct kept_file) files;
    atomic_llong checked; /* when the sources were, in seconds of CLOCK_MONOTONIC */
};

static void sizes_free(struct rfs_view_sizes *sizes)
{
    if (!sizes)
        return;
    rfs_kept_end(&sizes->table);
    free(sizes->sources.data);
    free(sizes->files.data);
    free(sizes);
}

/*
 * Hashes the files of each rank of the source, which the list of all files lacks. False when out of
 * memory.
 */
static bool hash_ranks(const struct rfs_catalog *catalog, uint64_t *hash)
{
    struct rfs_bytes out = {0};

    for (uint32_t r = 0; r < rfs_catalog_ranks(catalog); r++) {
        rfs_kept_put_u32(&out, rfs_catalog_file(catalog, r));
        rfs_kept_put_u32(&out, rfs_catalog_file_count(catalog, r));
        rfs_kept_put_u32(&out, rfs_catalog_stands_in(catalog, r));
    }
    *hash = XXH3_64bits(out.data, out.n);
    free(out.data);
    return !out.failed;
}

/*
 * Makes the key of the sizes. It has everything that they depend on but for the files of the
 * source: digests of strategies and maps, and the options that change the contents of files. The
 * caller owns it; NULL when there is none.
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
        rfs_names_digest(view->names, digests + 4) || !hash_ranks(view->catalog, &ranks))
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

static bool take_files(struct rfs_view_sizes *sizes)
{
    struct rfs_kept_in *in = &sizes->table.in;
    uint32_t n = rfs_kept_take_count(in, sizeof(struct rfs_kept_mark));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct kept_source source;
        if (!rfs_kept_mark_take(in, &source.path, &source.length, &source.mark) ||
            !RFS_PUSH(&sizes->sources, source))
            return false;
    }
    n = rfs_kept_take_count(in, sizeof(uint64_t) + sizeof(uint32_t));
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct kept_file file = {.size = rfs_kept_take_u64(in)};
        file.n = rfs_kept_take_count(in, sizeof(uint32_t));
        file.sources = rfs_kept_take(in, (size_t)file.n * sizeof(uint32_t));
        const bool known = file.size != UNKNOWN;
        if (!file.sources || known != (file.n > 0) || (known && file.size > INT64_MAX) ||
            !RFS_PUSH(&sizes->files, file))
            return false;
        for (uint32_t k = 0; k < file.n; k++) {
            uint32_t id;
            memcpy(&id, file.sources + k * sizeof id, sizeof id);
            if (id >= sizes->sources.n)
                return false;
        }
    }
    return !in->bad && in->left == 0;
}

/* Examines files without recording their identities, as they are not read yet. */
struct looking {
    const struct rfs_view *view;
    const struct rfs_view_sizes *sizes;
    size_t batch; /* how many in one task */
};

static int look_at(void *ctx, size_t batch)
{
    const struct looking *looking = ctx;
    struct rfs_files *files = rfs_catalog_files(looking->view->catalog);
    const size_t n = looking->sizes->sources.n;

    for (size_t i = batch * looking->batch; i < n && i < (batch + 1) * looking->batch; i++) {
        const struct kept_source *source = &looking->sizes->sources.data[i];
        const char *path = rfs_files_path(files, (uint32_t)i);
        struct stat st;
        if (strlen(path) != source->length || memcmp(path, source->path, source->length) != 0 ||
            rfs_cancelled() || rfs_files_leads_home(files, (uint32_t)i) ||
            rfs_store_stat(rfs_files_store(files), path, &st) != 0)
            return -1;
        const struct rfs_kept_mark mark = rfs_kept_mark_of(&st);
        if (memcmp(&mark, &source->mark, sizeof mark) != 0)
            return -1;
    }
    return 0;
}

static long long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec;
}

/* Returns whether no file of the source had changed a moment ago. */
static bool is_unchanged(const struct rfs_view *view, struct rfs_view_sizes *sizes)
{
    const long long time = now();
    const size_t batch = rfs_pool_expects_waits(view->set->pool) ? 1 : BATCH;
    struct looking looking = {view, sizes, batch};

    if (time - atomic_load(&sizes->checked) <= FRESH_SECONDS)
        return true;
    if (rfs_pool_for(view->set->pool, (sizes->sources.n + batch - 1) / batch, look_at, &looking) !=
        0)
        return false;
    atomic_store(&sizes->checked, time);
    return true;
}

static struct rfs_view_sizes *load(const struct rfs_view *view)
{
    RFS_FREE char *key = make_key(view);
    struct rfs_kept_file table;

    if (!key || !rfs_kept_read(rfs_catalog_kept(view->catalog), RFS_KEPT_SIZES, key, &table))
        return NULL;
    struct rfs_view_sizes *sizes = calloc(1, sizeof *sizes);
    if (!sizes) {
        rfs_kept_end(&table);
        return NULL;
    }
    sizes->table = table;
    atomic_init(&sizes->checked, now() - FRESH_SECONDS - 1);
    if (take_files(sizes) && sizes->files.n == view->n_files &&
        sizes->sources.n == rfs_files_count_paths(rfs_catalog_files(view->catalog)) &&
        is_unchanged(view, sizes))
        return sizes;
    sizes_free(sizes);
    return NULL;
}

/* Returns the kept sizes, loaded at the first call; NULL when there are none that hold. */
static struct rfs_view_sizes *sizes_of(struct rfs_view *view)
{
    if (!view->catalog || !rfs_catalog_kept(view->catalog))
        return NULL;
    pthread_mutex_lock(&view->lock);
    if (rfs_once_begin(&view->kept.once, &view->made, &view->lock) == 1) {
        pthread_mutex_unlock(&view->lock);
        struct rfs_view_sizes *sizes = load(view);
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
    const struct rfs_view_sizes *sizes = RFS_PUBLISHED(&view->kept.loaded);

    return sizes && sizes->files.data[file].size != UNKNOWN &&
           !atomic_load_explicit(&view->kept.gone, memory_order_relaxed);
}

void rfs_view_sizes_refute(struct rfs_view *view)
{
    atomic_store_explicit(&view->kept.gone, true, memory_order_relaxed);
    atomic_store(&view->kept.wrong, true);
}

/* Takes the attributes of a file's sources; false if one has changed. */
static bool take_attributes(struct rfs_view *view, const struct rfs_view_sizes *sizes,
                            const struct kept_file *kept, struct rfs_rank_plan *plan)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);

    plan->mode = 0444;
    plan->sources = malloc(kept->n * sizeof *plan->sources);
    for (uint32_t k = 0; plan->sources && k < kept->n; k++) {
        uint32_t id;
        struct stat st;
        memcpy(&id, kept->sources + k * sizeof id, sizeof id);
        if (rfs_plan_add_file(files, id, plan, NULL) != 0 || rfs_files_stat(files, id, &st) != 0)
            return false;
        const struct rfs_kept_mark mark = rfs_kept_mark_of(&st);
        if (memcmp(&mark, &sizes->sources.data[id].mark, sizeof mark) != 0)
            return false;
    }
    return plan->sources != NULL;
}

bool rfs_view_sizes_find(struct rfs_view *view, size_t file, struct rfs_rank_plan *plan,
                         uint64_t *size)
{
    struct rfs_view_sizes *sizes = sizes_of(view);

    *plan = (struct rfs_rank_plan){0};
    if (!sizes || !rfs_view_sizes_known(view, file))
        return false;
    const struct kept_file *kept = &sizes->files.data[file];
    if (is_unchanged(view, sizes) && take_attributes(view, sizes, kept, plan)) {
        *size = kept->size;
        return true;
    }
    if (!rfs_cancelled()) /* else no check was made */
        atomic_store_explicit(&view->kept.gone, true, memory_order_relaxed);
    free(plan->sources);
    *plan = (struct rfs_rank_plan){0};
    return false;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/*
 * Puts the marks of all files of the source; false unless all were settled before the view was
 * opened, and those that were used are unchanged. Sets *sizes to NULL if the sizes that were kept
 * are of other files.
 */
static bool put_sources(const struct rfs_view *view, const struct rfs_view_sizes **sizes,
                        struct rfs_bytes *out)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    const uint32_t n = rfs_files_count_paths(files);
    struct rfs_kept_device place = {0};

    rfs_kept_put_u32(out, n);
    for (uint32_t id = 0; id < n; id++) {
        struct stat st;
        if (rfs_files_look(files, id, &st) != 0)
            return false;
        const struct rfs_kept_mark mark = rfs_kept_mark_of(&st);
        if (!rfs_kept_mark_is_settled(&mark, rfs_catalog_opened(view->catalog)) ||
            !rfs_kept_mark_tells(rfs_files_path(files, id), &st, &place))
            return false;
        if (*sizes && memcmp(&mark, &(*sizes)->sources.data[id].mark, sizeof mark) != 0)
            *sizes = NULL;
        rfs_kept_mark_put(out, rfs_files_path(files, id), &mark);
    }
    return true;
}

static void put_file(const struct rfs_view *view, size_t file, const struct rfs_view_sizes *sizes,
                     struct rfs_bytes *out)
{
    uint64_t bytes;
    const struct kept_file *kept = sizes ? &sizes->files.data[file] : NULL;

    if (rfs_view_is_planned(view, file, &bytes)) {
        const struct rfs_rank_plan *plan = rfs_view_plan(view, file);
        rfs_kept_put_u64(out, bytes);
        rfs_kept_put_u32(out, plan->n_sources);
        rfs_bytes_put(out, plan->sources, plan->n_sources * sizeof *plan->sources);
    } else {
        rfs_kept_put_u64(out, kept ? kept->size : UNKNOWN);
        rfs_kept_put_u32(out, kept ? kept->n : 0);
        if (kept)
            rfs_bytes_put(out, kept->sources, kept->n * sizeof(uint32_t));
    }
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
    const struct rfs_view_sizes *sizes =
        atomic_load_explicit(&view->kept.gone, memory_order_relaxed)
            ? NULL
            : RFS_PUBLISHED(&view->kept.loaded);
    RFS_FREE char *key = make_key(view);
    struct rfs_bytes table = {0};
    struct rfs_kept_draft draft;

    if (key && put_sources(view, &sizes, &table)) {
        rfs_kept_put_u32(&table, (uint32_t)view->n_files);
        for (size_t f = 0; f < view->n_files; f++)
            put_file(view, f, sizes, &table);
        if (rfs_kept_begin(rfs_catalog_kept(view->catalog), RFS_KEPT_SIZES, key, &draft))
            rfs_kept_finish(&draft, &table);
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
    sizes_free(atomic_load(&view->kept.loaded));
}
