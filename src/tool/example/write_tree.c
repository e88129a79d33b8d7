/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/example/write_tree.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/first_error.h"
#include "base/path.h"
#include "base/pool.h"
#include "base/text.h"
#include "tool/common/tool.h"
#include "tool/example/write.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define MAX_THREADS 8

struct job {
    const char *dir;
    const struct rfs_net *net;
    uint64_t seed;
    atomic_uint_least64_t bytes;
    struct rfs_first_error first;
};

static int make_dir(const char *path, mode_t mode, struct rfs_error *err)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return rfs_fail(err, -errno, RFS_IN(path), "a folder that you may write to",
                        "cannot make the folder: %s", strerror(errno));
    return 0;
}

/* Whether NAME is PREFIX, a decimal number, SUFFIX. */
static bool is_numbered(const char *name, const char *prefix, const char *suffix)
{
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, suffix) == 0;
}

static int unlink_one(const char *path, bool is_dir, struct rfs_error *err)
{
    if ((is_dir ? rmdir(path) : unlink(path)) != 0 && errno != ENOENT)
        return rfs_fail(err, -errno, RFS_IN(path), "another DIR", "cannot remove: %s",
                        strerror(errno));
    return 0;
}

static int fail_list(const char *path, struct rfs_error *err)
{
    return rfs_fail(err, -errno, RFS_IN(path), "another DIR", "cannot list: %s", strerror(errno));
}

/*
 * Removes from FOLDER the example's entries of that pattern, folders of ranks or files, then FOLDER
 * itself.
 */
static int remove_folder(const char *folder, const char *prefix, const char *suffix, bool of_ranks,
                         struct rfs_error *err)
{
    DIR *dir = opendir(folder);
    int rc = 0;

    if (!dir)
        return errno == ENOENT ? 0 : fail_list(folder, err);
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_numbered(entry->d_name, prefix, suffix))
            continue;
        RFS_FREE char *path = rfs_path_join(folder, entry->d_name);
        rc = !path      ? rfs_fail_memory(err)
             : of_ranks ? remove_folder(path, "checkpoint_", ".ckpt", false, err)
                        : unlink_one(path, false, err);
    }
    closedir(dir);
    return rc == 0 ? unlink_one(folder, true, err) : rc;
}

static int remove_example(const char *dir, struct rfs_error *err)
{
    RFS_FREE char *src = rfs_path_join(dir, "src");
    RFS_FREE char *one = rfs_path_join(dir, "src_strategy.ckpt");
    RFS_FREE char *two = rfs_path_join(dir, "dst_strategy.ckpt");
    if (src == NULL || one == NULL || two == NULL)
        return rfs_fail_memory(err);
    int rc = remove_folder(src, "rank_", "", true, err) ?: unlink_one(one, false, err);
    return rc == 0 ? unlink_one(two, false, err) : rc;
}

static int require_empty(const char *path, struct rfs_error *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_list(path, err);
    bool empty = true;
    for (struct dirent *entry; empty && (entry = readdir(dir)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(dir);
    return empty ? 0
                 : rfs_fail(err, -ENOTEMPTY, RFS_IN(path),
                            "another DIR, or --force to replace an example", "not empty");
}

/* A new file with mode 0400: a descriptor, or -errno with *err filled. */
static int create(const char *path, struct rfs_error *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);

    return fd >= 0 ? fd
                   : rfs_fail(err, -errno, RFS_IN(path), "a folder that you may write to",
                              "cannot create: %s", strerror(errno));
}

/* Closes it, once writing it has given RC, or removes it again. *bytes is its size. */
static int finish(int fd, const char *path, int rc, uint64_t *bytes, struct rfs_error *err)
{
    struct stat st = {0};

    if (rc == 0 && fstat(fd, &st) != 0)
        rc = -errno;
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    *bytes = (uint64_t)st.st_size;
    if (rc == 0)
        return 0;
    unlink(path);
    return err->code ? rc
                     : rfs_fail(err, rc, RFS_IN(path), "a file system with more room",
                                "cannot write: %s", strerror(-rc));
}

static int write_rank(void *ctx, size_t i)
{
    struct job *job = ctx;
    struct rfs_error err = {0};
    uint64_t bytes = 0;
    RFS_FREE char *folder = rfs_text_printf("%s/src/rank_%zu", job->dir, i);
    RFS_FREE char *path = rfs_text_printf("%s/src/rank_%zu/checkpoint_%zu.ckpt", job->dir, i, i);
    const int made =
        folder == NULL || path == NULL ? rfs_fail_memory(&err) : make_dir(folder, 0700, &err);
    const int fd = made == 0 ? create(path, &err) : made;
    const int rc =
        fd < 0 ? fd
               : finish(fd, path, rfs_write_rank(job->net, job->seed, (uint32_t)i, fd, path, &err),
                        &bytes, &err);
    atomic_fetch_add(&job->bytes, bytes);
    return rfs_first_error_note(&job->first, rc, &err);
}

static int write_strategy(const struct job *job, unsigned side, struct rfs_error *err)
{
    RFS_FREE char *path =
        rfs_text_printf("%s/%s_strategy.ckpt", job->dir, side == 0 ? "src" : "dst");
    RFS_FREE char *data = NULL;
    size_t size = 0;
    uint64_t bytes;
    const int rc =
        path ? rfs_write_strategy(job->net, side, &data, &size, err) : rfs_fail_memory(err);
    const int fd = rc == 0 ? create(path, err) : rc;

    return fd < 0 ? fd : finish(fd, path, rfs_write_all(fd, data, size), &bytes, err);
}

static int write_ranks(struct job *job, struct rfs_error *err)
{
    struct rfs_pool *pool = rfs_pool_new(rfs_tool_processors(MAX_THREADS));
    if (pool == NULL)
        return rfs_fail_memory(err);
    const int rc = rfs_pool_for(pool, job->net->ranks[0], write_rank, job);
    rfs_pool_free(pool);
    return rfs_first_error_take(&job->first, rc, err);
}

int rfs_tree_write(const char *dir, const struct rfs_net *net, uint64_t seed, bool force,
                   uint64_t *bytes, struct rfs_error *err)
{
    struct job job = {.dir = dir, .net = net, .seed = seed, .first = RFS_FIRST_ERROR};
    RFS_FREE char *src = rfs_path_join(dir, "src");
    int rc = src == NULL ? rfs_fail_memory(err) : make_dir(dir, 0777, err);
    if (rc == 0 && force)
        rc = remove_example(dir, err);
    if (rc == 0)
        rc = require_empty(dir, err);
    if (rc)
        return rc;
    rc = make_dir(src, 0777, err) ?: write_ranks(&job, err);
    for (unsigned side = 0; rc == 0 && side < 2; side++)
        rc = write_strategy(&job, side, err);
    if (rc != 0)
        remove_example(dir, NULL);
    *bytes = atomic_load(&job.bytes);
    return rc;
}
