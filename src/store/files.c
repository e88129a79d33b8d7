/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a source: their properties that need no reading. */
#include "store/files_internal.h"

#include "base/cleanup.h"
#include "base/limits.h"

struct rfs_files *rfs_files_new(struct rfs_log *log)
{
    return rfs_files_sharing(log, NULL);
}

struct rfs_files *rfs_files_sharing(struct rfs_log *log, struct rfs_fds *fds)
{
    struct rfs_files *files = calloc(1, sizeof *files);
    if (!files)
        return NULL;
    files->log = log;
    files->fds = fds ? fds : &files->own_fds;
    if (!fds && rfs_fds_init(&files->own_fds, rfs_limits_files(RFS_MAX_OPEN)) != 0) {
        free(files);
        return NULL;
    }
    pthread_mutex_init(&files->above.lock, NULL);
    if (pthread_mutex_init(&files->lock, NULL) != 0) {
        if (!fds)
            rfs_fds_destroy(&files->own_fds);
        free(files);
        return NULL;
    }
    return files;
}

void rfs_files_free(struct rfs_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->list.n; i++) {
        rfs_fds_drop(files->fds, &files->list.data[i]->fd);
        free(files->list.data[i]->path);
        free(atomic_load(&files->list.data[i]->why));
        free(atomic_load(&files->list.data[i]->cipher));
        rfs_file_let_go(atomic_load(&files->list.data[i]->object));
        free(files->list.data[i]);
    }
    if (files->fds == &files->own_fds)
        rfs_fds_destroy(&files->own_fds);
    pthread_mutex_destroy(&files->lock);
    pthread_mutex_destroy(&files->above.lock);
    free(files->above.path);
    free(files->list.data);
    free(files);
}

void rfs_files_set_encrypted(struct rfs_files *files, struct rfs_encrypted *encrypted)
{
    files->encrypted = encrypted;
}

void rfs_files_set_beneath(struct rfs_files *files, const struct rfs_beneath *beneath)
{
    files->beneath = beneath;
}

const struct rfs_beneath *rfs_files_beneath(const struct rfs_files *files)
{
    return files->beneath;
}

void rfs_files_set_for_others(struct rfs_files *files)
{
    files->for_others = true;
}

struct rfs_access rfs_files_access(struct rfs_files *files, uint32_t id, const struct stat *st)
{
    const char *path = files->list.data[id]->path;
    const struct rfs_access access = rfs_access_of(path, st, RFS_MAY_READ);
    struct stat now;
    if (!files->for_others || rfs_is_url(path))
        return access;
    RFS_FREE char *real = realpath(path, NULL);
    if (!real)
        return rfs_access_own();
    const struct rfs_access above = rfs_access_above(&files->above, real);
    return rfs_beneath_stat(files->beneath, path, &now) == 0 && rfs_access_is_of(st, &now)
               ? rfs_access_below(above, access)
               : rfs_access_own();
}

struct rfs_secret *rfs_files_secret(const struct rfs_files *files)
{
    return files->encrypted ? rfs_encrypted_secret(files->encrypted) : NULL;
}

uint32_t rfs_files_add(struct rfs_files *files, const char *path)
{
    struct rfs_file *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    if (!file || !copy || files->list.n >= UINT32_MAX || !RFS_PUSH(&files->list, file)) {
        free(file);
        free(copy);
        return UINT32_MAX;
    }
    file->path = copy;
    file->is_object = rfs_is_url(copy);
    file->fd = RFS_FD_CLOSED;
    // cppcheck-suppress memleak; the list has it
    return (uint32_t)files->list.n - 1;
}

uint32_t rfs_files_count_paths(const struct rfs_files *files)
{
    return (uint32_t)files->list.n;
}

const char *rfs_files_path(const struct rfs_files *files, uint32_t id)
{
    return files->list.data[id]->path;
}

int rfs_files_state(const struct rfs_files *files, uint32_t id)
{
    return atomic_load_explicit(&files->list.data[id]->failed, memory_order_acquire);
}

bool rfs_files_reason(const struct rfs_files *files, uint32_t id, int code, struct rfs_error *err)
{
    const struct rfs_file *file = files->list.data[id];
    const char *why = rfs_files_state(files, id) == code
                          ? atomic_load_explicit(&file->why, memory_order_acquire)
                          : NULL;
    if (why && err) {
        *err = (struct rfs_error){.code = code};
        snprintf(err->text, sizeof err->text, "%s", why);
    }
    return why != NULL;
}

void rfs_files_set_home(struct rfs_files *files, dev_t device)
{
    atomic_store(&files->home, (uint64_t)device + 1);
}

void rfs_files_count(struct rfs_files *files, struct rfs_files_counters *out)
{
    out->opens = atomic_load_explicit(&files->opens, memory_order_relaxed);
    out->reads = atomic_load_explicit(&files->reads, memory_order_relaxed);
    out->checks = atomic_load_explicit(&files->checks, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&files->bytes, memory_order_relaxed);
    out->errors = atomic_load_explicit(&files->errors, memory_order_relaxed);
}

int rfs_files_fail(struct rfs_error *err, const char *path, int code)
{
    if (code == -ESTALE)
        return rfs_fail(err, code, RFS_IN(path), "mount again once nobody writes it",
                        "the file was changed or removed while in use");
    if (code == -EXDEV)
        return rfs_beneath_fail(err, path);
    return rfs_fail(err, code, RFS_IN(path),
                    code == -EACCES || code == -EPERM || code == -EIO ? rfs_store_remedy(path, code)
                                                                      : NULL,
                    "the file cannot be read: %s", rfs_store_why(path, code));
}
