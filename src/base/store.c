/* SPDX-License-Identifier: Apache-2.0 */
#include "base/store.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/io.h"

#include <fcntl.h>

/* ---- kinds of paths -------------------------------------------------------------------------- */

bool rfs_store_is_foreign(const char *path)
{
    const size_t n =
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-");

    return n > 1 && strncmp(path + n, ":/", 2) == 0 && !rfs_store_is_url(path);
}

bool rfs_store_has_url(const char *text, const char *scheme)
{
    bool any = false;

    for (const char *at = text; at && !any; at = strchr(at + (*at == ':'), ':')) {
        const char *path = at + (at > text);
        any = rfs_store_is_url(path) && (!scheme || strncmp(path, scheme, strlen(scheme)) == 0);
    }
    return any;
}

/* ---- names and attributes -------------------------------------------------------------------- */

/* Fails for a URL where paths alone are read, as in the map of a source on a disk. */
static int no_store(void)
{
    return rfs_store_fail(-ENOTSUP, "a URL is read here only if the source or an option is one");
}

int rfs_store_stat(struct rfs_store *store, const char *path, struct stat *st)
{
    if (rfs_store_is_url(path))
        return store ? store->directory->stat(store, path, st) : no_store();
    return stat(path, st) == 0 ? 0 : -errno;
}

bool rfs_store_there(struct rfs_store *store, const char *path)
{
    struct stat st;

    return rfs_store_is_url(path) ? rfs_store_stat(store, path, &st) == 0 : access(path, F_OK) == 0;
}

int rfs_store_hold(struct rfs_store *store, const char *url, struct rfs_object **out,
                   struct stat *st)
{
    *out = NULL;
    return store ? store->objects->hold(store, url, out, st) : no_store();
}

char *rfs_store_without_slash(const char *url)
{
    size_t n = strlen(url);

    while (n > 0 && url[n - 1] == '/')
        n--;
    return strndup(url, n);
}

char *rfs_store_realpath(struct rfs_store *store, const char *path)
{
    if (!rfs_store_is_url(path))
        return realpath(path, NULL);
    return store ? store->directory->pin(store, path) : rfs_store_without_slash(path);
}

char *rfs_store_folder(const char *path)
{
    const char *slash = strrchr(path, '/');

    return !slash          ? strdup(".")
           : slash == path ? strdup("/")
                           : strndup(path, (size_t)(slash - path));
}

char *rfs_store_parent(const char *path)
{
    if (rfs_store_is_url(path))
        return rfs_store_folder(path);
    RFS_FREE char *parent = rfs_store_folder(path);
    errno = ENOMEM;
    return parent ? realpath(parent, NULL) : NULL;
}

/* ---- folders --------------------------------------------------------------------------------- */

int rfs_dir_open(struct rfs_store *store, const char *path, struct rfs_dir *out)
{
    *out = (struct rfs_dir){0};
    if (rfs_store_is_url(path))
        return store ? store->directory->list(store, path, &out->names) : no_store();
    out->dir = opendir(path);
    return out->dir ? 0 : -errno;
}

int rfs_dir_of(int fd, struct rfs_dir *out)
{
    *out = (struct rfs_dir){.dir = fdopendir(fd)};
    const int rc = out->dir ? 0 : -errno;
    if (rc < 0)
        close(fd);
    return rc;
}

const struct dirent *rfs_dir_next(struct rfs_dir *dir)
{
    errno = 0;
    if (dir->dir)
        return readdir(dir->dir);
    while (dir->at < dir->names.n) {
        const struct rfs_store_name *name = &dir->names.data[dir->at++];
        const size_t n = strlen(name->name);
        if (n >= sizeof dir->entry.d_name)
            continue;
        memcpy(dir->entry.d_name, name->name, n + 1);
        dir->entry.d_type = name->folder ? DT_DIR : DT_REG;
        return &dir->entry;
    }
    return NULL;
}

void rfs_dir_close(struct rfs_dir *dir)
{
    if (dir->dir)
        closedir(dir->dir);
    for (size_t i = 0; i < dir->names.n; i++)
        free(dir->names.data[i].name);
    free(dir->names.data);
    *dir = (struct rfs_dir){0};
}

/* ---- why ------------------------------------------------------------------------------------- */

static _Thread_local struct {
    int code;
    const char *remedy; /* or NULL */
    char text[768];
} last;

const char *rfs_store_why(const char *path, int code)
{
    code = code < 0 ? -code : code;
    if (code == ENOENT && rfs_store_is_foreign(path))
        return "it begins with none of s3://, hf://, https:// and http://";
    return last.code == code && code != 0 && rfs_store_is_url(path) ? last.text : strerror(code);
}

const char *rfs_store_remedy(const char *path, int code)
{
    code = code < 0 ? -code : code;
    if (rfs_store_is_url(path))
        return last.code == code && last.remedy ? last.remedy
               : code == ENOENT                 ? "check the path"
                                : "look at the store and at the network, then read again";
    if (code == ENOENT && strncmp(path, "gs://", 5) == 0)
        return "s3://BUCKET/PREFIX with endpoint=https://storage.googleapis.com and HMAC keys";
    if (code == ENOENT && rfs_store_is_foreign(path))
        return "one of these, or a path";
    return code == EIO ? "check the disk, then mount again"
                       : "check the permissions of the file and of its folders";
}

int rfs_store_fail_read(struct rfs_error *err, struct rfs_where where, int code)
{
    const char *path = where.file ? where.file : "";
    const bool url = rfs_store_is_url(path) && code == -EIO;

    return rfs_fail(err, code, where, url ? rfs_store_remedy(path, code) : NULL,
                    "cannot be read: %s", rfs_store_why(path, code));
}

void rfs_store_fail_remedy(const char *remedy)
{
    last.remedy = remedy;
}

bool rfs_store_has_remedy(void)
{
    return last.remedy != NULL;
}

int rfs_store_fail(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(last.text, sizeof last.text, fmt, args);
    va_end(args);
    last.code = code < 0 ? -code : code;
    last.remedy = NULL;
    return code;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static ssize_t object_head(struct rfs_store *store, const char *url, void *data, size_t size)
{
    struct rfs_object *object = NULL;
    struct stat st;
    int rc = rfs_store_hold(store, url, &object, &st);

    if (rc < 0)
        return rc;
    const size_t n = (uint64_t)st.st_size < size ? (size_t)st.st_size : size;
    struct iovec span = {data, n};
    if (n > 0)
        rc = store->objects->read(object, &span, 1, 0);
    store->objects->let_go(object);
    return rc < 0 ? rc : (ssize_t)n;
}

ssize_t rfs_store_head(struct rfs_store *store, const char *path, void *data, size_t size)
{
    if (rfs_store_is_url(path))
        return object_head(store, path, data, size);
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : rfs_io_read_most(fd, data, size);
}

static int fail_errno(struct rfs_error *err, const char *path, int code)
{
    const char *remedy = rfs_store_is_foreign(path) || rfs_store_is_url(path)
                             ? rfs_store_remedy(path, code)
                         : code == ENOENT || code == ENOTDIR ? "check the path"
                         : code == EACCES                    ? "check the file's permissions"
                                                             : NULL;
    return rfs_fail(err, -code, RFS_IN(path), remedy, "cannot be read: %s",
                    rfs_store_why(path, code));
}

static int fail_limit(struct rfs_error *err, const char *path, size_t limit)
{
    return rfs_fail(err, -EFBIG, RFS_IN(path), "check that it is the file you meant",
                    "the file is larger than %zu bytes", limit);
}

static int read_object(struct rfs_store *store, struct rfs_object *object, const struct stat *st,
                       const char *url, size_t limit, char **data, size_t *size,
                       struct rfs_error *err)
{
    if ((uint64_t)st->st_size > limit || limit >= SIZE_MAX - 1)
        return fail_limit(err, url, limit);
    const size_t n = (size_t)st->st_size;
    RFS_FREE char *buf = malloc(n + 1);
    if (!buf)
        return rfs_fail_memory_of(err, url);
    struct iovec span = {buf, n};
    const int rc = n > 0 ? store->objects->read(object, &span, 1, 0) : 0;
    if (rc < 0)
        // cppcheck-suppress memleak; RFS_FREE frees it
        return fail_errno(err, url, -rc);
    buf[n] = '\0';
    *data = RFS_STEAL(buf);
    *size = n;
    return 0;
}

static int read_url(struct rfs_store *store, const char *url, size_t limit, char **data,
                    size_t *size, struct rfs_error *err)
{
    struct rfs_object *object = NULL;
    struct stat st;
    int rc = rfs_store_hold(store, url, &object, &st);

    if (rc < 0)
        return fail_errno(err, url, -rc);
    rc = read_object(store, object, &st, url, limit, data, size, err);
    store->objects->let_go(object);
    return rc;
}

int rfs_store_read_fd(int fd, const char *path, size_t limit, char **data, size_t *size,
                      struct rfs_error *err)
{
    if (fd < 0)
        return fail_errno(err, path, -fd);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_errno(err, path, errno);
    if (S_ISDIR(st.st_mode))
        return rfs_fail(err, -EISDIR, RFS_IN(path), "name a file in it", "is a folder");
    if (!S_ISREG(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(path), "copy it to a file first",
                        "is not a regular file");
    if (st.st_size < 0 || (uint64_t)st.st_size > limit || limit >= SIZE_MAX - 1)
        return fail_limit(err, path, limit);

    /* One byte more than it should have, to see it grow. */
    const size_t cap = (size_t)st.st_size + 1;
    RFS_FREE char *buf = malloc(cap + 1);
    if (!buf)
        return rfs_fail_memory_of(err, path);
    const ssize_t n = rfs_io_read_most(fd, buf, cap);
    if (n < 0)
        return fail_errno(err, path, (int)-n);
    if (n != st.st_size)
        return rfs_fail(err, -ESTALE, RFS_IN(path), "try again once nobody writes it",
                        "the file changed while it was read");
    buf[n] = '\0';
    *data = RFS_STEAL(buf);
    *size = (size_t)n;
    return 0;
}

int rfs_store_read_whole(struct rfs_store *store, const char *path, size_t limit, char **data,
                         size_t *size, struct rfs_error *err)
{
    int fd;

    if (rfs_store_is_url(path))
        return read_url(store, path, limit, data, size, err);
    do
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR && !rfs_cancelled());
    RFS_CLOSE const int opened = fd < 0 ? -errno : fd;
    return rfs_store_read_fd(opened, path, limit, data, size, err);
}
