/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/headers/rank_headers.h"

#include "base/options.h"
#include "base/order.h"
#include "base/store.h"
#include "store/crypt/cipher.h"
#include "store/crypt/key.h"
#include "store/encrypted.h"
#include "store/remote/remote.h"
#include "view/view_options.h"

#include <sys/stat.h>

/* ---- a source alone -------------------------------------------------------------------------- */

/* Reading headers waits for disks and servers, not for processors. */
#define THREADS 8
/* Memory for decrypted blocks, each of 64 MiB; the threads wait for room. */
#define BUDGET (UINT64_C(192) << 20)

static int load_key(struct rfs_headers_source *source, struct rfs_error *err)
{
    const struct rfs_options *options = source->options;

    if (!rfs_options_keyed(options))
        return 0;
    int rc = rfs_view_options_harden(options, err)
                 ?: rfs_view_options_key(options, &source->log, &source->key, err);
    if (rc)
        return rc;
    source->encrypted = rfs_encrypted_new(source->key, BUDGET, &source->log);
    return source->encrypted ? 0 : rfs_fail_memory(err);
}

int rfs_headers_prepare(const struct rfs_settings *options, const char *path, rfs_log_sink *sink,
                        void *ctx, struct rfs_headers_source *out, struct rfs_error *err)
{
    memset(out, 0, sizeof *out);
    rfs_log_init(&out->log, sink, ctx);
    out->options = malloc(sizeof *out->options);
    if (!out->options)
        return rfs_fail_memory(err);
    int rc = rfs_view_options_take(options, out->options, err)
            ?: load_key(out, err)
            ?: rfs_view_options_take_store(out->options, path, &out->store, err);
    if (rc)
        return rc;
    out->pool = rfs_pool_new(THREADS);
    if (out->pool && path && rfs_store_is_url(path))
        rfs_pool_expect_waits(out->pool);
    return out->pool ? 0 : rfs_fail_memory(err);
}

static struct rfs_source_spec make_spec(const struct rfs_headers_source *source, const char *path)
{
    struct rfs_source_spec spec = rfs_view_options_spec(source->options, source->store, path);

    spec.encrypted = source->encrypted;
    return spec;
}

const char *rfs_headers_file(const struct rfs_headers_source *source)
{
    struct rfs_catalog *catalog = source->catalog;

    return rfs_files_path(rfs_catalog_files(catalog),
                          rfs_catalog_file(catalog, rfs_catalog_lowest(catalog)));
}

bool rfs_headers_have_model(const struct rfs_headers_source *source)
{
    return !rfs_catalog_chunks(source->catalog) &&
           rfs_formats[rfs_catalog_format(source->catalog)].config != NULL;
}

/* Returns the mode in which files are encrypted, where no key is given; else NULL. */
static const char *encryption(const struct rfs_headers_source *source)
{
    const char *path = rfs_headers_file(source);
    unsigned char head[4];

    if (source->encrypted || rfs_store_head(source->store, path, head, sizeof head) != sizeof head)
        return NULL;
    const enum rfs_cipher_mode mode = rfs_cipher_detect(head);
    return mode == RFS_NOT_ENCRYPTED ? NULL : rfs_cipher_name(mode);
}

int rfs_headers_open(struct rfs_headers_source *source, const char *path, struct rfs_error *err)
{
    const struct rfs_source_spec spec = make_spec(source, path);

    const int rc = rfs_catalog_open(&spec, &source->log, source->pool, &source->catalog, err);

    source->parts = rc == 0 && rfs_catalog_has_parts(source->catalog);
    source->encryption = rc == 0 ? encryption(source) : NULL;
    return rc;
}

int rfs_headers_aside(const struct rfs_headers_source *source, const struct rfs_aside **out,
                      struct rfs_error *err)
{
    *out = rfs_catalog_aside(source->catalog);
    return source->encryption ? 0 : rfs_catalog_weigh_aside(source->catalog, err);
}

bool rfs_headers_begin(const struct rfs_headers_source *source, const char *word)
{
    struct rfs_catalog *catalog = source->catalog;
    const size_t n = strlen(word);
    const struct rfs_index *index = NULL;
    struct rfs_error unused;
    bool found = false;

    if (rfs_catalog_index(catalog, rfs_catalog_lowest(catalog), RFS_NO_RANK, &index, &unused))
        return false;
    for (size_t i = 0; i < index->n && !found; i++) {
        const char *name = rfs_catalog_name(catalog, index->entries[i].name);
        found = strncmp(name, word, n) == 0 && name[n] == '.';
    }
    return found;
}

void rfs_headers_close(struct rfs_headers_source *source)
{
    if (source->pool)
        rfs_pool_free(source->pool); /* first: its jobs use the rest */
    rfs_catalog_close(source->catalog);
    rfs_encrypted_free(source->encrypted);
    rfs_key_free(source->key);
    rfs_remote_give(&source->store);
    if (source->options)
        rfs_options_free(source->options);
    free(source->options);
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

/* Returns the bytes of the first N files of a rank. */
static uint64_t bytes_of(struct rfs_catalog *catalog, uint32_t rank, uint32_t n)
{
    struct rfs_files *files = rfs_catalog_files(catalog);
    const uint32_t first = rfs_catalog_file(catalog, rank);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
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
        !RFS_PUSH(&headers->kinds,
                  (struct rfs_headers_kind){.index = index, .n = index->n, .lead = rank})) {
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

    rank->bytes = bytes_of(catalog, rank->rank, rank->files);
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
           a->n_strided == 0 && b->n_strided == 0 && !a->file_of == !b->file_of &&
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
            united[at] = (struct rfs_headers_kind){kind->index, kind->n, rank->rank, 0};
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

/* Lists the parameters of all kinds. False when out of memory. */
static bool list_parameters(struct rfs_headers *headers)
{
    const uint32_t ids = rfs_intern_count(rfs_catalog_tables(headers->catalog)->names);

    headers->by_id = calloc((size_t)ids + 1, sizeof *headers->by_id);
    for (size_t k = 0; headers->by_id && k < headers->kinds.n; k++) {
        const struct rfs_headers_kind *kind = &headers->kinds.data[k];
        for (size_t e = 0; e < kind->n; e++) {
            const struct rfs_entry *entry = &kind->index->entries[e];
            const struct rfs_type *type = rfs_catalog_type(headers->catalog, entry->type);
            uint32_t *at = &headers->by_id[entry->name];
            if (*at == 0 && !RFS_PUSH(&headers->parameters,
                                      (struct rfs_headers_parameter){
                                          .name = rfs_catalog_name(headers->catalog, entry->name),
                                          .type = type,
                                          .offset = entry->offset,
                                          .id = entry->name}))
                return false;
            if (*at == 0)
                *at = (uint32_t)headers->parameters.n;
            struct rfs_headers_parameter *parameter = &headers->parameters.data[*at - 1];
            const struct rfs_type *first = parameter->type;
            parameter->ranks += kind->ranks;
            parameter->bytes += type->bytes * kind->ranks;
            parameter->types |= type->dtype != first->dtype || type->kind != first->kind;
            parameter->shapes |= type->ndim != first->ndim ||
                                 memcmp(type->dims, first->dims, sizeof type->dims) != 0;
        }
    }
    return headers->by_id != NULL;
}

/* Reads ranks until there is one that others can be compared with. */
static void read_first(struct reading *reading)
{
    struct rfs_headers *headers = reading->headers;

    for (uint32_t i = 0; i < headers->n && headers->kinds.n == 0 && !reading->failed; i++)
        read_rank(reading, &headers->ranks[i]);
}

/* Lists the ranks that have files. */
static int list_ranks(struct rfs_catalog *catalog, struct rfs_headers *out, struct rfs_error *err)
{
    *out = (struct rfs_headers){.catalog = catalog,
                                .format = rfs_formats[rfs_catalog_format(catalog)].name,
                                .end = rfs_catalog_ranks(catalog)};
    out->ranks = calloc(rfs_catalog_present(catalog), sizeof *out->ranks);
    if (!out->ranks)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank < rfs_catalog_ranks(catalog); rank++)
        if (rfs_catalog_has(catalog, rank))
            out->ranks[out->n++] =
                (struct rfs_headers_rank){.rank = rank,
                                          .kind = RFS_NO_KIND,
                                          .files = rfs_catalog_file_count(catalog, rank),
                                          .path = rfs_files_path(rfs_catalog_files(catalog),
                                                                 rfs_catalog_file(catalog, rank))};
    return 0;
}

/* Sets the failure of the first rank that cannot be read. */
static void note_failure(struct rfs_headers *headers)
{
    for (uint32_t i = 0; i < headers->n; i++)
        if (headers->ranks[i].code && !headers->ranks[i].empty) {
            headers->failure.code = headers->ranks[i].code;
            snprintf(headers->failure.text, sizeof headers->failure.text, "%s",
                     headers->ranks[i].why ? headers->ranks[i].why : "out of memory");
            return;
        }
}

int rfs_headers_read(const struct rfs_headers_source *source, enum rfs_headers_depth depth,
                     struct rfs_progress *progress, struct rfs_headers *out, struct rfs_error *err)
{
    struct reading reading = {.headers = out,
                              .all = depth == RFS_HEADERS_ALL,
                              .progress = progress,
                              .lock = PTHREAD_MUTEX_INITIALIZER};

    const int rc = list_ranks(source->catalog, out, err);
    if (rc)
        return rc;
    out->source = source;
    if (depth == RFS_HEADERS_LISTED) {
        for (uint32_t i = 0; i < out->n; i++)
            out->ranks[i].bytes = bytes_of(source->catalog, out->ranks[i].rank, 1);
        return 0;
    }
    if (progress)
        rfs_progress_begin(progress, "reading headers", 0, out->n);
    read_first(&reading);
    if (out->kinds.n > 0 && (uint64_t)out->n * out->kinds.data[0].index->n <= READ_ALL)
        reading.all = true;
    rfs_pool_for(source->pool, out->n, read_one, &reading);
    if (progress)
        rfs_progress_end(progress);
    for (uint32_t i = 0; i < out->n; i++)
        out->sampled = out->sampled || out->ranks[i].sampled;
    note_failure(out);
    if (reading.failed)
        return rfs_fail_memory(err);
    return unite(out, err) ?: (list_parameters(out) ? 0 : rfs_fail_memory(err));
}

void rfs_headers_free(struct rfs_headers *headers)
{
    for (uint32_t i = 0; i < headers->n; i++)
        free(headers->ranks[i].why);
    free(headers->ranks);
    free(headers->kinds.data);
    free(headers->parameters.data);
    free(headers->by_id);
    *headers = (struct rfs_headers){0};
}

const struct rfs_headers_parameter *rfs_headers_parameter(const struct rfs_headers *headers,
                                                          const char *name)
{
    const uint32_t id =
        headers->by_id
            ? rfs_intern_find(rfs_catalog_tables(headers->catalog)->names, name, strlen(name))
            : RFS_NO_ID;
    const uint32_t at = id == RFS_NO_ID ? 0 : headers->by_id[id];

    return at > 0 ? &headers->parameters.data[at - 1] : NULL;
}

const struct rfs_type *rfs_headers_type_in(const struct rfs_headers *headers,
                                           const struct rfs_headers_kind *kind, uint32_t id)
{
    const struct rfs_entry *entry = rfs_index_find(kind->index, id);

    return entry ? rfs_catalog_type(headers->catalog, entry->type) : NULL;
}
