/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/saved/folder.h"

#include "base/cleanup.h"
#include "base/kept.h"
#include "base/order.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define DRAFT ".draft-"         /* names of files in the making begin so */
#define DRAFT_SECONDS (60 * 60) /* older ones are left by a process that was killed */

struct rfs_saved {
    struct rfs_kept folder;
    struct rfs_log *log;
    atomic_bool logged;
    atomic_uint drafts; /* begun so far */
};

struct rfs_saved *rfs_saved_open(const char *path, struct rfs_log *log)
{
    struct rfs_saved *saved = calloc(1, sizeof *saved);

    if (!saved || !rfs_kept_find(path, &saved->folder)) {
        free(saved);
        return NULL;
    }
    saved->log = log;
    return saved;
}

void rfs_saved_close(struct rfs_saved *saved)
{
    if (!saved)
        return;
    rfs_kept_free(&saved->folder);
    free(saved);
}

/* Whether no other user can have written it. */
static bool is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static void log_once(struct rfs_saved *saved, enum rfs_level level, const char *what)
{
    if (!atomic_exchange(&saved->logged, true))
        rfs_log(saved->log, level, "%s: no index is kept here: %s", saved->folder.path, what);
}

static const char not_ours[] = "other users may write there, or it belongs to one";

static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A descriptor of the folder, or -1. In a sandbox it is there, or cannot be made. */
static int open_folder(struct rfs_saved *saved, bool make)
{
    const char *path = saved->folder.path;
    struct stat st;

    if (!rfs_kept_reach(&saved->folder, make)) {
        log_once(saved, RFS_WARNING, not_ours);
        return -1;
    }
    int fd = open_path(path);
    if (fd < 0 && errno == ENOENT && make && rfs_kept_make(&saved->folder) == 0)
        fd = open_path(path);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENOTDIR)
            log_once(saved, RFS_WARNING, "it is not a folder");
        else if (errno != ENOENT || make)
            log_once(saved, RFS_INFO, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) == 0 && is_ours(&st))
        return fd;
    log_once(saved, RFS_WARNING, not_ours);
    close(fd);
    return -1;
}

const char *rfs_saved_make(struct rfs_saved *saved)
{
    RFS_CLOSE int fd = open_folder(saved, true);

    return fd < 0 ? NULL : saved->folder.path;
}

static const char *ending(enum rfs_saved_kind kind)
{
    return kind == RFS_SAVED_INDEX ? ".index" : ".sizes";
}

static void name_of(enum rfs_saved_kind kind, const char *key, char name[64])
{
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));

    snprintf(name, 64, "%016llx%016llx%s", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64, ending(kind));
}

bool rfs_saved_read(struct rfs_saved *saved, enum rfs_saved_kind kind, const char *key,
                    struct rfs_saved_file *file)
{
    RFS_CLOSE const int dir = saved ? open_folder(saved, false) : -1;
    struct stat st;
    char name[64];

    if (dir < 0)
        return false;
    name_of(kind, key, name);
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !is_ours(&st)) {
        close(fd);
        return false;
    }
    if (!rfs_saved_parse(kind, key, fd, NULL, (uint64_t)st.st_size, file))
        return false;
    (void)futimens(fd, NULL); /* used last now */
    return true;
}

/* Takes note of the first failure. */
static void fail(struct rfs_saved_draft *draft, int code)
{
    if (draft->failed == 0)
        draft->failed = code;
}

static void write_at(struct rfs_saved_draft *draft, const void *bytes, size_t n, uint64_t offset)
{
    const unsigned char *p = bytes;

    while (n > 0 && draft->failed == 0) {
        const ssize_t wrote = pwrite(draft->fd, p, n, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            fail(draft, wrote < 0 ? -errno : -EIO);
            return;
        }
        p += wrote;
        n -= (size_t)wrote;
        offset += (uint64_t)wrote;
    }
}

bool rfs_saved_begin(struct rfs_saved *saved, enum rfs_saved_kind kind, const char *key,
                     struct rfs_saved_draft *draft)
{
    if (!saved)
        return false;
    *draft = (struct rfs_saved_draft){saved, kind, key, -1, -1, 0, RFS_SAVED_START, ""};
    draft->dir = open_folder(saved, true);
    if (draft->dir < 0)
        return false;
    do {
        snprintf(draft->name, sizeof draft->name, DRAFT "%ld-%u", (long)getpid(),
                 atomic_fetch_add(&saved->drafts, 1));
        draft->fd = openat(draft->dir, draft->name,
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    } while (draft->fd < 0 &&
             errno == EEXIST); /* of a process of another machine, or of the past */
    if (draft->fd >= 0)
        return true;
    log_once(saved, RFS_INFO, strerror(errno));
    close(draft->dir);
    return false;
}

uint64_t rfs_saved_add(struct rfs_saved_draft *draft, const void *bytes, size_t n)
{
    const uint64_t at = draft->end;

    if (n > RFS_SAVED_BYTES - at) {
        fail(draft, -EFBIG);
        return at;
    }
    write_at(draft, bytes, n, at);
    draft->end += n;
    return at;
}

/* One file of the folder. */
struct kept {
    char name[64];
    uint64_t bytes;
    struct timespec used;
};

/* The latest first. */
RFS_COMPARE(by_use, struct kept, x, y,
            RFS_ORDER(y->used.tv_sec, x->used.tv_sec)
                ?: RFS_ORDER(y->used.tv_nsec, x->used.tv_nsec))

/* Whether a name is that of a file which we write, and not of any foreign file. */
static bool is_saved(const char *name)
{
    const size_t digits = strspn(name, "0123456789abcdef");

    return digits == 32 && (strcmp(name + digits, ending(RFS_SAVED_INDEX)) == 0 ||
                            strcmp(name + digits, ending(RFS_SAVED_SIZES)) == 0);
}

/* Removes the least recently used, until the rest is within bounds. */
static void trim(int dir)
{
    RFS_VEC(struct kept) list = {0};
    struct dirent *entry;
    struct stat st;
    uint64_t bytes = 0;
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);

    if (!stream) {
        if (copy >= 0)
            close(copy);
        return;
    }
    while ((entry = readdir(stream))) {
        const bool draft = strncmp(entry->d_name, DRAFT, strlen(DRAFT)) == 0;
        struct kept kept = {.name = ""};
        if ((!draft && !is_saved(entry->d_name)) ||
            fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (draft && st.st_mtime < time(NULL) - DRAFT_SECONDS)
            (void)unlinkat(dir, entry->d_name, 0);
        if (draft)
            continue;
        memcpy(kept.name, entry->d_name, strlen(entry->d_name) + 1); /* is_saved: it is short */
        kept.bytes = (uint64_t)st.st_size;
        kept.used = st.st_mtim;
        if (!RFS_PUSH(&list, kept))
            break;
    }
    closedir(stream);
    RFS_SORT_ALL(&list, by_use);
    for (size_t i = 0; i < list.n; i++) {
        bytes += list.data[i].bytes;
        if (i >= RFS_SAVED_FILES || (i > 0 && bytes > RFS_SAVED_BYTES))
            (void)unlinkat(dir, list.data[i].name, 0);
    }
    free(list.data);
}

static void add_table(struct rfs_saved_draft *draft, const struct rfs_bytes *rest)
{
    struct rfs_bytes table = {0};
    struct rfs_bytes start = {0};

    rfs_saved_put_text(&table, draft->key, strlen(draft->key));
    rfs_bytes_put(&table, rest->data, rest->n);
    if (table.n > RFS_SAVED_TABLE)
        fail(draft, -EFBIG);
    rfs_bytes_put(&start, rfs_saved_magic(draft->kind), 8);
    rfs_saved_put_u32(&start, RFS_SAVED_VERSION);
    rfs_saved_put_u32(&start, RFS_SAVED_MARK);
    rfs_saved_put_u64(&start, draft->end);
    rfs_saved_put_u64(&start, table.n);
    rfs_saved_put_u64(&start, XXH3_64bits(table.data, table.n));
    if (rest->failed || table.failed || start.failed)
        fail(draft, -ENOMEM);
    write_at(draft, table.data, table.n, draft->end);
    write_at(draft, start.data, start.n, 0);
    free(table.data);
    free(start.data);
}

void rfs_saved_drop(struct rfs_saved_draft *draft)
{
    close(draft->fd);
    (void)unlinkat(draft->dir, draft->name, 0);
    close(draft->dir);
}

bool rfs_saved_finish(struct rfs_saved_draft *draft, const struct rfs_bytes *table)
{
    char name[64];

    if (draft->failed == 0)
        add_table(draft, table);
    if (close(draft->fd) != 0) /* where some file systems report exceeded quotas */
        fail(draft, -errno);
    name_of(draft->kind, draft->key, name);
    if (draft->failed == 0 && renameat(draft->dir, draft->name, draft->dir, name) != 0)
        fail(draft, -errno);
    if (draft->failed != 0) {
        (void)unlinkat(draft->dir, draft->name, 0);
        log_once(draft->saved, RFS_INFO, strerror(-draft->failed));
    } else {
        trim(draft->dir);
    }
    close(draft->dir);
    return draft->failed == 0;
}
