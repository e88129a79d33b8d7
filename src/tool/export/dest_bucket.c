/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/dest.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/pages.h"
#include "base/store.h"
#include "base/text.h"

/* Limits of stores: the bytes of a part, other than the last one, and the number of parts. */
#define PART_LEAST (UINT64_C(5) << 20)
#define PARTS_MOST 10000u
#define PART_USUAL (UINT64_C(8) << 20)
#define PART_MOST (UINT64_C(2) << 30)
#define BLOCK (UINT64_C(64) << 10) /* parts are multiples of this */

/* ---- the bucket ------------------------------------------------------------------------------ */

static int find(const char *given, struct rfs_dest *out, struct rfs_error *err)
{
    out->path = rfs_store_without_slash(given);
    if (!out->path)
        return rfs_fail_memory(err);
    out->there = true;
    return strncmp(given, "s3://", 5) == 0
               ? 0
               : rfs_fail(err, -EINVAL, RFS_IN(given), "s3://BUCKET/PREFIX, or a folder",
                          "a web server cannot be written to");
}

static int make(struct rfs_dest *dest, struct rfs_error *err)
{
    (void)dest;
    (void)err;
    return 0;
}

static int room(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err)
{
    (void)dest;
    (void)bytes;
    (void)err;
    return 0;
}

static char *url_of(const struct rfs_dest *dest, const char *path)
{
    return rfs_text_printf("%s/%s", dest->path, path);
}

/* ---- its contents ---------------------------------------------------------------------------- */

static int list(struct rfs_dest *dest, struct rfs_dir *out)
{
    if (dest->listed) /* tasks have gone on meanwhile */
        dest->store->directory->forget(dest->store);
    dest->listed = true;
    *out = (struct rfs_dir){0};
    const int rc = rfs_dir_open(dest->store, dest->path, out);
    return rc == -ENOENT ? 0 : rc; /* there is nothing yet */
}

static int look(const struct rfs_dest *dest, const char *path, struct stat *st)
{
    RFS_FREE char *url = url_of(dest, path);

    return url ? rfs_store_stat(dest->store, url, st) : -ENOMEM;
}

static int open_object(const struct rfs_dest *dest, const char *path, struct rfs_dest_file *out)
{
    RFS_FREE char *url = url_of(dest, path);
    struct stat st;
    const int rc = url ? rfs_store_hold(dest->store, url, &out->object, &st) : -ENOMEM;

    out->store = dest->store;
    if (rc == 0)
        out->size = (uint64_t)st.st_size;
    return rc;
}

static int read_object(struct rfs_dest_file *file, void *data, size_t size, uint64_t offset)
{
    struct iovec span = {data, size};

    return file->store->objects->read(file->object, &span, 1, offset);
}

static void close_object(struct rfs_dest_file *file)
{
    file->store->objects->let_go(file->object);
}

static uint64_t partial_bytes(const struct rfs_dest *dest, const char *path)
{
    (void)dest;
    (void)path;
    return 0;
}

struct paths {
    const char *const *at;
    size_t n;
};

static bool is_ours(void *ctx, const char *path)
{
    const struct paths *paths = ctx;
    const size_t at = RFS_BISECT(i, paths->n, strcmp(paths->at[i], path) >= 0);

    return at < paths->n && strcmp(paths->at[at], path) == 0;
}

static int sweep(const struct rfs_dest *dest, const char *const *paths, size_t n,
                 struct rfs_error *err)
{
    struct paths ours = {paths, n};
    const int rc = dest->store->uploads->sweep(dest->store, dest->path, is_ours, &ours);

    return rc ? rfs_dest_failed(dest, "", "unfinished uploads cannot be removed", -rc, err) : 0;
}

static int remove_object(const struct rfs_dest *dest, const char *path)
{
    RFS_FREE char *url = url_of(dest, path);

    return url ? dest->store->uploads->remove(dest->store, url) : -ENOMEM;
}

/* ---- writing --------------------------------------------------------------------------------- */

static uint64_t piece(unsigned threads, uint64_t largest)
{
    const uint64_t usual =
        rfs_max_u64(PART_LEAST, rfs_min_u64(PART_USUAL, RFS_DEST_PIECES / threads) & ~(BLOCK - 1));
    const uint64_t needed = rfs_ceil_u64(rfs_ceil_u64(largest, PARTS_MOST), BLOCK) * BLOCK;

    return rfs_min_u64(PART_MOST, rfs_max_u64(usual, needed));
}

static uint64_t parts_of(const struct rfs_dest_partial *partial)
{
    return rfs_ceil_u64(partial->size, partial->piece);
}

static int begin(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    struct rfs_store *store = partial->dest->store;
    const uint64_t parts = parts_of(partial);
    int rc = 0;

    pthread_mutex_init(&partial->lock, NULL);
    partial->url = url_of(partial->dest, partial->path);
    if (!partial->url)
        return rfs_fail_memory(err);
    if (parts > PARTS_MOST)
        return rfs_fail(err, -EFBIG, RFS_IN(partial->url),
                        "a folder, or smaller files by -o file_size=",
                        "it would be more than 10000 parts of 2 GiB");
    if (parts > 1)
        rc = store->uploads->begin(store, partial->url, partial->size, (uint32_t)parts,
                                   &partial->upload);
    return rc ? rfs_dest_failed(partial->dest, partial->path, "cannot begin an upload", -rc, err)
              : 0;
}

/* Sends a whole part, or a whole object that is no larger than one. */
static int send_part(struct rfs_dest_partial *partial, uint64_t part, const struct iovec *spans,
                     int count)
{
    struct rfs_store *store = partial->dest->store;
    char etag[RFS_STORE_ETAG];

    return partial->upload ? store->uploads->send(partial->upload, (uint32_t)part, spans, count)
                           : store->uploads->put(store, partial->url, spans, count,
                                                 partial->replace ? NULL : "", etag);
}

/* Returns memory for the one part that comes in several writes, as the file's trailer ends it. */
static unsigned char *gather_in(struct rfs_dest_partial *partial, uint64_t size)
{
    RFS_LOCKED(&partial->lock);
    partial->part_size = size;
    if (!partial->part)
        partial->part = rfs_pages_alloc((size_t)size);
    return partial->part;
}

/* Counts bytes of that part. Returns whether they are all there. */
static bool count_bytes(struct rfs_dest_partial *partial, uint64_t n, uint64_t size)
{
    RFS_LOCKED(&partial->lock);
    partial->part_bytes += n;
    return partial->part_bytes == size;
}

/* Keeps bytes until their part is whole, and sends it then. */
static int gather(struct rfs_dest_partial *partial, uint64_t part, uint64_t size, uint64_t at,
                  const struct iovec *spans, int count)
{
    unsigned char *bytes = gather_in(partial, size);
    uint64_t n = 0;

    if (!bytes)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        memcpy(bytes + at + n, spans[i].iov_base, spans[i].iov_len);
        n += spans[i].iov_len;
    }
    if (!count_bytes(partial, n, size))
        return 0;
    return send_part(partial, part, &(struct iovec){bytes, (size_t)size}, 1);
}

static int write_spans(struct rfs_dest_partial *partial, const struct iovec *spans, int count,
                       uint64_t from, uint64_t to, uint64_t offset)
{
    int rc = 0;

    while (rc == 0 && from < to) {
        struct iovec some[RFS_DEST_SPANS];
        const uint64_t part = (offset + from) / partial->piece;
        const uint64_t begin = part * partial->piece;
        const uint64_t size = rfs_min_u64(partial->piece, partial->size - begin);
        const uint64_t stop = rfs_min_u64(to, begin + size - offset);
        const int n = rfs_dest_cut(spans, count, from, stop, some);
        rc = stop - from == size ? send_part(partial, part, some, n)
                                 : gather(partial, part, size, offset + from - begin, some, n);
        from = stop;
    }
    return rc;
}

static int finish(struct rfs_dest_partial *partial, struct rfs_error *err)
{
    int rc = 0;

    if (partial->upload)
        rc = partial->dest->store->uploads->complete(partial->upload, partial->replace ? NULL : "");
    else if (partial->size == 0)
        rc = send_part(partial, 0, &(struct iovec){(char[]){""}, 0}, 1);
    return rc ? rfs_dest_failed(partial->dest, partial->path, "cannot be completed", -rc, err) : 0;
}

static void drop(struct rfs_dest_partial *partial)
{
    partial->dest->store->uploads->drop(partial->upload);
    free(partial->url);
    rfs_pages_free(partial->part, (size_t)partial->part_size);
    pthread_mutex_destroy(&partial->lock);
}

static int save(struct rfs_dest *dest, const char *name, const void *data, size_t size, bool sync,
                struct rfs_error *err)
{
    RFS_FREE char *url = url_of(dest, name);
    const struct iovec span = {(void *)(uintptr_t)data, size};
    char etag[RFS_STORE_ETAG];
    struct stat st;

    (void)sync;
    if (!url)
        return rfs_fail_memory(err);
    /* The first takes the manifest over from an export that has ended. */
    const char *over = dest->etag[0] ? dest->etag : look(dest, name, &st) == 0 ? NULL : "";
    const int rc = dest->store->uploads->put(dest->store, url, &span, 1, over, etag);
    if (rc == 0)
        memcpy(dest->etag, etag, sizeof etag);
    return rc == -EEXIST ? rfs_dest_busy(dest, name, err)
           : rc          ? rfs_dest_failed(dest, name, "cannot write", -rc, err)
                         : 0;
}

const struct rfs_dest_kind rfs_dest_bucket = {
    .find = find,
    .make = make,
    .room = room,
    .list = list,
    .stat = look,
    .open = open_object,
    .read = read_object,
    .close = close_object,
    .read_bytes = (size_t)8 << 20,
    .partial_bytes = partial_bytes,
    .sweep = sweep,
    .remove = remove_object,
    .piece = piece,
    .begin = begin,
    .write = write_spans,
    .finish = finish,
    .drop = drop,
    .save = save,
};
