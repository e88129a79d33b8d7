/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/output.h"

#include "base/io.h"
#include "base/store.h"

#include <sys/stat.h>
#include <unistd.h>

struct rfs_output {
    const char *path; /* borrowed; "-": the standard output */
    char *temporary;  /* owned; the temporary name; NULL: there is none, or no more */
    int fd;           /* -1: none */
};

static int fail_write(const char *path, const char *what, int code, struct rfs_error *err)
{
    const bool url = rfs_store_is_url(path) || rfs_store_is_foreign(path);
    const char *remedy = url ? "a path; only reshard export writes to s3://"
                         : code == ENOSPC || code == EDQUOT ? "free some room, then the same again"
                         : code == EACCES || code == EROFS || code == ENOENT || code == ENOTDIR
                             ? "a folder that is there and that you may write to"
                             : NULL;
    return rfs_fail(err, -code, RFS_IN(path), remedy, "%s: %s", what, strerror(code));
}

static int fail_stdout(struct rfs_error *err)
{
    return rfs_fail(err, -EIO, RFS_NOWHERE, NULL, "cannot write to the standard output");
}

/* Refuses a PATH that is there and may not be replaced. */
static int check_path(const char *path, bool force, struct rfs_error *err)
{
    struct stat st;

    if (!force && lstat(path, &st) == 0)
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name, or --force to replace it",
                        "is there already");
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return rfs_fail(err, -EEXIST, RFS_IN(path), "another name", "exists, and is not a file");
    return 0;
}

static bool is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

static int begin(struct rfs_output *out, bool force, struct rfs_error *err)
{
    int rc = check_path(out->path, force, err);
    if (rc)
        return rc;
    rc = rfs_io_temporary_open(out->path, &out->temporary, &out->fd);
    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? fail_write(out->path, "cannot create", -rc, err)
                         : 0;
}

int rfs_output_add(struct rfs_output *out, const void *data, size_t size, struct rfs_error *err)
{
    const bool printed = is_stdout(out->path);
    const int rc = rfs_io_write_all(printed ? STDOUT_FILENO : out->fd, data, size);

    return rc == 0   ? 0
           : printed ? fail_stdout(err)
                     : fail_write(out->path, "cannot write", -rc, err);
}

static int end(struct rfs_output *out, bool force, struct rfs_error *err)
{
    const int rc = rfs_io_temporary_finish(&out->temporary, &out->fd, out->path, force);

    return rc ? fail_write(out->path, "cannot write", -rc, err) : 0;
}

int rfs_output_make(const char *path, bool force, rfs_output_fill_fn *fill, void *ctx,
                    struct rfs_error *err)
{
    struct rfs_output out = {.path = path, .fd = -1};

    if (is_stdout(path))
        return fill(ctx, &out, err);
    const int rc = begin(&out, force, err) ?: fill(ctx, &out, err) ?: end(&out, force, err);
    rfs_io_temporary_drop(&out.temporary, &out.fd);
    return rc;
}

/* The bytes of a file that is written in one go. */
struct whole {
    const void *data;
    size_t size;
};

static int fill_whole(void *ctx, struct rfs_output *out, struct rfs_error *err)
{
    const struct whole *whole = ctx;

    return rfs_output_add(out, whole->data, whole->size, err);
}

int rfs_output_write(const char *path, const void *data, size_t size, bool force,
                     struct rfs_error *err)
{
    struct whole whole = {data, size};

    if (is_stdout(path))
        return fwrite(data, 1, size, stdout) == size ? 0 : fail_stdout(err);
    return rfs_output_make(path, force, fill_whole, &whole, err);
}
