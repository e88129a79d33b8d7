/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/source.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/scan/scan.h"
#include "store/crypt/key.h"
#include "store/encrypted.h"
#include "store/remote/remote.h"
#include "tool/common/tool.h"
#include "view/internal.h"

#include <sys/stat.h>

void rfs_tool_log(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level == RESHARD_LOG_WARNING)
        rfs_tool_warn(line, NULL);
    else if (level == RESHARD_LOG_ERROR)
        rfs_tool_print_error(line);
}

/* Hardens the process if OPTIONS name a key. Returns 0, or -errno with *err filled. */
static int harden(const struct rfs_options *options, struct rfs_error *err)
{
    if (!rfs_options_keyed(options))
        return 0;
    const int rc = rfs_secret_harden(err);
    if (rc == 0)
        (void)reshard_guard_keys(); /* the first of two sources did it for both */
    return rc;
}

/* ---- views ----------------------------------------------------------------------------------- */

int rfs_tool_open(const char *source, const struct rfs_settings *options, reshard_log_fn *log,
                  void *log_ctx, const struct rfs_view_how *how, reshard_view **out,
                  struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    struct rfs_options parsed = {0};
    const int rc = rfs_view_options_take(options, &parsed, err) ?: harden(&parsed, err);
    const bool keyed = rfs_options_keyed(&parsed);

    *out = NULL;
    rfs_options_free(&parsed);
    if (rc)
        return rc;
    /* The user's cache= comes later, and counts. */
    if (rfs_settings_add(&all, "cache", keyed ? RFS_TOOL_CACHE_KEYED : RFS_TOOL_CACHE, NULL) ||
        rfs_settings_add_all(&all, options))
        return rfs_fail_memory(err);
    const reshard_config config = {
        .struct_size = sizeof config, .log = log ? log : rfs_tool_log, .log_ctx = log_ctx};
    return rfs_view_start(source, &all, &config, how, out, err);
}

static int add_store(struct rfs_settings *to, const struct rfs_settings *from)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < from->list.n; i++) {
        const struct rfs_setting *setting = &from->list.data[i];
        const struct rfs_option *option = rfs_option_find(setting->name);
        const bool counts = rfs_settings_last(from, setting->name) == setting;
        if (counts && option && option->flags & RFS_OPTION_OF_STORE &&
            !rfs_settings_last(to, setting->name))
            rc = rfs_settings_add(to, setting->name, setting->value, setting->origin);
    }
    return rc;
}

int rfs_tool_share_store(struct rfs_settings *one, struct rfs_settings *other)
{
    return add_store(one, other) ?: add_store(other, one);
}

int rfs_tool_objects(const struct rfs_options *options, const char *path, struct rfs_error *err)
{
    bool taken;

    return rfs_view_options_take_objects(options, path, &taken, err);
}

int rfs_tool_reach(const struct rfs_settings *options, const char *const *paths, size_t n,
                   struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_options parsed = {0};
    bool taken;
    const int rc = rfs_view_options_take(options ? options : &none, &parsed, err)
                       ?: rfs_remote_take(&parsed, paths, n, &taken, err);

    rfs_options_free(&parsed);
    return rc;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/*
 * Finds the checkpoint that counts in a rank's folder, when that is given and nothing says that it
 * is a tree: *OUT, malloc'ed, or NULL.
 */
static int find_rank_file(const char *path, const struct rfs_options *options, char **out,
                          struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_realpath(path);
    RFS_FREE char *name = NULL;
    const char *slash = folder ? strrchr(folder, '/') : NULL;
    struct stat st;

    *out = NULL;
    if (!slash || !rfs_scan_is_rank(slash + 1) || rfs_store_stat(folder, &st) != 0 ||
        !S_ISDIR(st.st_mode) || options->src_strategy || options->src_rules || options->file ||
        options->files || options->segmented || options->all_steps ||
        options->step != RFS_ANY_NUMBER || options->epoch != RFS_ANY_NUMBER)
        return 0;
    const int rc = rfs_scan_folder(folder, &name, err);
    if (rc || !name)
        return rc;
    *out = rfs_text_printf("%s/%s", folder, name);
    return *out ? 0 : rfs_fail_memory(err);
}

/* Opens the view whose tensors a command reads. */
static int open_view(const char *path, const struct rfs_settings *options,
                     const struct rfs_view_how *how, reshard_view **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    RFS_FREE char *file = NULL;
    struct rfs_options parsed;
    int rc = rfs_view_options_take(options, &parsed, err) ?: rfs_tool_objects(&parsed, path, err);

    /*
     * A view has an output format: by default that of most checkpoints; hfai's parts have no other
     * format.
     */
    if (rc == 0 && parsed.format < 0 && parsed.shown == RFS_SHOW_RANKS && !rfs_view_has_parts(path))
        rc = rfs_settings_add(&all, "format", "ckpt", NULL);
    if (rc == 0)
        rc = rfs_settings_add_all(&all, options);
    if (rc == -ENOMEM)
        rfs_fail_memory(err);
    if (rc == 0)
        rc = find_rank_file(path, &parsed, &file, err);
    rfs_options_free(&parsed);
    return rc ? rc : rfs_tool_open(file ? file : path, &all, NULL, NULL, how, out, err);
}

static bool take_name(void *globs, const char *name)
{
    return rfs_globs_take(globs, name);
}

int rfs_tool_tensors(const char *path, const struct rfs_settings *options, struct rfs_globs *globs,
                     const struct rfs_view_how *how, struct rfs_whole *whole, struct rfs_whole *cut,
                     struct rfs_error *err)
{
    const struct rfs_whole_names names = {take_name, globs};
    reshard_view *opened;
    const int rc = open_view(path, options, how, &opened, err);

    *whole = (struct rfs_whole){0};
    return rc ? rc : rfs_whole_open(path, opened, globs ? &names : NULL, whole, cut, err);
}

int rfs_tool_tensors_of_rank(const char *path, const struct rfs_settings *options, int64_t rank,
                             struct rfs_whole *whole, struct rfs_error *err)
{
    reshard_view *opened;
    const int rc = open_view(path, options, NULL, &opened, err);

    *whole = (struct rfs_whole){0};
    return rc ? rc : rfs_whole_open_rank(path, opened, rank, whole, err);
}

void rfs_tool_name_strategy(const char *flag, struct rfs_error *err)
{
    char *at = err->code ? strstr(err->text, "; try: " RFS_PLAN_NO_STRATEGY) : NULL;

    if (at)
        snprintf(at, sizeof err->text - (size_t)(at - err->text),
                 "; try: %s FILE, the strategy that says how they were cut", flag);
}

/* ---- a source alone -------------------------------------------------------------------------- */

/* Reading headers waits for disks and servers, not for processors. */
#define THREADS 8
/* Memory for decrypted blocks, each of 64 MiB; the threads wait for room. */
#define BUDGET (UINT64_C(192) << 20)

static void print_line(void *ctx, enum rfs_level level, const char *line)
{
    rfs_tool_log(ctx, (enum reshard_level)level, line);
}

static int load_key(struct rfs_tool_source *source, struct rfs_error *err)
{
    const struct rfs_options *options = &source->options;

    if (!rfs_options_keyed(options))
        return 0;
    int rc = harden(options, err) ?: rfs_view_options_key(options, &source->log, &source->key, err);
    if (rc)
        return rc;
    source->encrypted = rfs_encrypted_new(source->key, BUDGET, &source->log);
    return source->encrypted ? 0 : rfs_fail_memory(err);
}

int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_tool_source *out,
                            struct rfs_error *err)
{
    memset(out, 0, sizeof *out);
    rfs_log_init(&out->log, sink ? sink : print_line, ctx);
    int rc = rfs_view_options_take(options, &out->options, err)
            ?: load_key(out, err)
            ?: rfs_tool_objects(&out->options, path, err);
    if (rc)
        return rc;
    out->pool = rfs_pool_new(THREADS);
    if (out->pool && path && rfs_store_is_url(path))
        rfs_pool_expect_waits(out->pool);
    return out->pool ? 0 : rfs_fail_memory(err);
}

static struct rfs_source_spec make_spec(const struct rfs_tool_source *source, const char *path)
{
    struct rfs_source_spec spec = rfs_view_options_spec(&source->options, path);

    spec.encrypted = source->encrypted;
    return spec;
}

int rfs_tool_source_open(struct rfs_tool_source *source, const char *path, struct rfs_error *err)
{
    const struct rfs_source_spec spec = make_spec(source, path);

    return rfs_catalog_open(&spec, &source->log, source->pool, &source->catalog, err);
}

void rfs_tool_source_close(struct rfs_tool_source *source)
{
    if (source->pool)
        rfs_pool_free(source->pool); /* first: its jobs use the rest */
    rfs_catalog_close(source->catalog);
    rfs_encrypted_free(source->encrypted);
    rfs_key_free(source->key);
    rfs_options_free(&source->options);
    rfs_log_destroy(&source->log);
    memset(source, 0, sizeof *source);
}

/* ---- headers of all ranks -------------------------------------------------------------------- */

#define SAMPLES 12      /* headers of a rank's file */
#define READ_ALL 500000 /* headers, over all ranks, that are read without a thought */
#define LEADS 32        /* kinds that a rank is compared with, at most */

struct reading {
    struct rfs_headers *headers;
    bool all;
    struct rfs_progress *progress;
    pthread_mutex_t lock; /* guards the kinds, while they are found; a leaf lock */
    bool failed;          /* out of memory; under the lock */
};

static uint64_t bytes_of(struct rfs_catalog *catalog, uint32_t rank)
{
    struct rfs_files *files = rfs_catalog_files(catalog);
    const uint32_t first = rfs_catalog_file(catalog, rank);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < rfs_catalog_file_count(catalog, rank); i++) {
        struct stat st;
        if (rfs_files_stat(files, first + i, &st) == 0)
            bytes += (uint64_t)st.st_size;
    }
    return bytes;
}

/*
 * Lists the kinds that a rank of so many bytes may be of, the last found first; returns how many.
 */
static uint32_t candidates(struct reading *reading, uint64_t bytes, uint32_t *kinds)
{
    const struct rfs_headers *headers = reading->headers;
    uint32_t n = 0;

    pthread_mutex_lock(&reading->lock);
    for (size_t i = headers->kinds.n; i-- > 0 && n < LEADS;)
        if (headers->kinds.data[i].index->file_bytes == bytes)
            kinds[n++] = (uint32_t)i;
    if (n == 0 && headers->kinds.n > 0) /* an encrypted file is longer than its plain text */
        kinds[n++] = (uint32_t)headers->kinds.n - 1;
    pthread_mutex_unlock(&reading->lock);
    return n;
}

static uint32_t lead_of(struct reading *reading, uint32_t kind)
{
    pthread_mutex_lock(&reading->lock);
    const uint32_t lead = reading->headers->kinds.data[kind].lead;
    pthread_mutex_unlock(&reading->lock);
    return lead;
}

/* Returns the kind that has the index; adds one if there is none. */
static uint32_t kind_of(struct reading *reading, const struct rfs_index *index, uint32_t rank)
{
    struct rfs_headers *headers = reading->headers;
    uint32_t kind = 0;

    pthread_mutex_lock(&reading->lock);
    while (kind < headers->kinds.n && headers->kinds.data[kind].index != index)
        kind++;
    if (kind == headers->kinds.n &&
        !RFS_PUSH(&headers->kinds, (struct rfs_headers_kind){.index = index, .lead = rank})) {
        reading->failed = true;
        kind = RFS_NO_KIND;
    }
    pthread_mutex_unlock(&reading->lock);
    return kind;
}

static void read_rank(struct reading *reading, struct rfs_headers_rank *rank)
{
    struct rfs_catalog *catalog = reading->headers->catalog;
    const struct rfs_index *index;
    struct rfs_error err = {0};
    uint32_t kinds[LEADS];

    rank->bytes = bytes_of(catalog, rank->rank);
    const uint32_t n = candidates(reading, rank->bytes, kinds);
    for (uint32_t i = 0; !reading->all && i < n; i++)
        if (rfs_catalog_resembles(catalog, rank->rank, lead_of(reading, kinds[i]), SAMPLES) == 1) {
            rank->kind = kinds[i];
            rank->sampled = true;
            return;
        }
    rank->code = rfs_catalog_index(catalog, rank->rank,
                                   n > 0 ? lead_of(reading, kinds[0]) : RFS_NO_RANK, &index, &err);
    if (rank->code == 0) {
        rank->kind = kind_of(reading, index, rank->rank);
        return;
    }
    rank->empty = rfs_catalog_is_empty(catalog, rank->rank);
    rank->why = strdup(err.text);
}

static int read_one(void *ctx, size_t i)
{
    struct reading *reading = ctx;

    /* The first ones were read before. */
    if (reading->headers->ranks[i].kind == RFS_NO_KIND && reading->headers->ranks[i].code == 0)
        read_rank(reading, &reading->headers->ranks[i]);
    if (reading->progress) {
        rfs_progress_file(reading->progress);
        rfs_progress_tick(reading->progress);
    }
    return 0;
}

static bool same(const struct rfs_index *a, const struct rfs_index *b)
{
    return a->n == b->n && a->has_crc == b->has_crc &&
           a->redundancy_removed == b->redundancy_removed && a->file_bytes == b->file_bytes &&
           a->n_strided == 0 && b->n_strided == 0 && !a->part_of == !b->part_of &&
           memcmp(a->entries, b->entries, a->n * sizeof *a->entries) == 0;
}

/*
 * Unites kinds that are alike: ranks that were read at one time may have an index each. Orders
 * kinds by their leads.
 */
static int unite(struct rfs_headers *headers, struct rfs_error *err)
{
    const size_t n = headers->kinds.n;
    struct rfs_headers_kind *kinds = headers->kinds.data;
    uint32_t *to = malloc((n + 1) * sizeof *to);
    struct rfs_headers_kind *united = calloc(n + 1, sizeof *united);
    uint32_t n_united = 0;

    if (!to || !united) {
        free(to);
        free(united);
        return rfs_fail_memory(err);
    }
    for (size_t i = 0; i < n; i++)
        to[i] = RFS_NO_KIND;
    for (uint32_t r = 0; r < headers->n; r++) {
        struct rfs_headers_rank *rank = &headers->ranks[r];
        if (rank->kind == RFS_NO_KIND)
            continue;
        const struct rfs_headers_kind *kind = &kinds[rank->kind];
        uint32_t at = to[rank->kind];
        for (uint32_t k = 0; at == RFS_NO_KIND && k < n_united; k++)
            if (same(united[k].index, kind->index))
                at = k;
        if (at == RFS_NO_KIND) {
            at = n_united++;
            united[at] = (struct rfs_headers_kind){kind->index, rank->rank, 0};
        }
        to[rank->kind] = at;
        rank->kind = at;
        united[at].ranks++;
    }
    free(headers->kinds.data);
    free(to);
    headers->kinds.data = united;
    headers->kinds.n = n_united;
    headers->kinds.cap = n + 1;
    return 0;
}

/* Reads ranks until there is one that others can be compared with. */
static void read_first(struct reading *reading)
{
    struct rfs_headers *headers = reading->headers;

    for (uint32_t i = 0; i < headers->n && headers->kinds.n == 0 && !reading->failed; i++)
        read_rank(reading, &headers->ranks[i]);
}

int rfs_headers_read(struct rfs_catalog *catalog, struct rfs_pool *pool, bool all,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err)
{
    struct reading reading = {
        .headers = out, .all = all, .progress = progress, .lock = PTHREAD_MUTEX_INITIALIZER};

    *out = (struct rfs_headers){.catalog = catalog};
    out->ranks = calloc(rfs_catalog_present(catalog), sizeof *out->ranks);
    if (!out->ranks)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank < rfs_catalog_ranks(catalog); rank++)
        if (rfs_catalog_has(catalog, rank))
            out->ranks[out->n++] = (struct rfs_headers_rank){.rank = rank, .kind = RFS_NO_KIND};
    if (progress)
        rfs_progress_begin(progress, "reading headers", 0, out->n);
    read_first(&reading);
    if (out->kinds.n > 0 && (uint64_t)out->n * out->kinds.data[0].index->n <= READ_ALL)
        reading.all = true;
    rfs_pool_for(pool, out->n, read_one, &reading);
    if (progress)
        rfs_progress_end(progress);
    for (uint32_t i = 0; i < out->n; i++)
        out->sampled = out->sampled || out->ranks[i].sampled;
    return reading.failed ? rfs_fail_memory(err) : unite(out, err);
}

void rfs_headers_free(struct rfs_headers *headers)
{
    for (uint32_t i = 0; i < headers->n; i++)
        free(headers->ranks[i].why);
    free(headers->ranks);
    free(headers->kinds.data);
    *headers = (struct rfs_headers){0};
}

const struct rfs_headers_rank *rfs_headers_find(const struct rfs_headers *headers, uint32_t rank)
{
    const size_t at = RFS_BISECT(i, headers->n, headers->ranks[i].rank >= rank);
    return at < headers->n && headers->ranks[at].rank == rank ? &headers->ranks[at] : NULL;
}

const struct rfs_type *rfs_headers_type(const struct rfs_headers *headers,
                                        const struct rfs_headers_rank *rank, uint32_t name)
{
    const struct rfs_index *index = rank ? rfs_headers_index(headers, rank) : NULL;
    const struct rfs_entry *entry = index && name != RFS_NO_ID ? rfs_index_find(index, name) : NULL;

    return entry ? rfs_catalog_type(headers->catalog, entry->type) : NULL;
}
