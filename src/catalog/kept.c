/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/kept.h"

#include "base/cleanup.h"
#include "base/home.h"
#include "base/io.h"
#include "base/order.h"
#include "base/store.h"
#include "base/vec.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the form of a file ---------------------------------------------------------------------- */

const char *rfs_kept_magic(enum rfs_kept_kind kind)
{
    return kind == RFS_KEPT_INDEX ? "rfsindex" : "rfssizes";
}

void rfs_kept_put_u32(struct rfs_bytes *out, uint32_t value)
{
    rfs_bytes_put(out, &value, sizeof value);
}

void rfs_kept_put_u64(struct rfs_bytes *out, uint64_t value)
{
    rfs_bytes_put(out, &value, sizeof value);
}

void rfs_kept_put_text(struct rfs_bytes *out, const char *text, size_t n)
{
    out->failed |= n > UINT32_MAX;
    rfs_kept_put_u32(out, (uint32_t)n);
    rfs_bytes_put(out, text, n);
}

const void *rfs_kept_take(struct rfs_kept_in *in, size_t n)
{
    const unsigned char *p = in->p;

    if (in->bad || n > in->left) {
        in->bad = true;
        return NULL;
    }
    in->p += n;
    in->left -= n;
    return p;
}

/* Copies the next N bytes. False, with *OUT unchanged, when they are missing. */
static bool take_into(struct rfs_kept_in *in, void *out, size_t n)
{
    const void *p = rfs_kept_take(in, n);

    if (p)
        memcpy(out, p, n);
    return p != NULL;
}

uint32_t rfs_kept_take_u32(struct rfs_kept_in *in)
{
    uint32_t value = 0;

    take_into(in, &value, sizeof value);
    return value;
}

uint64_t rfs_kept_take_u64(struct rfs_kept_in *in)
{
    uint64_t value = 0;

    take_into(in, &value, sizeof value);
    return value;
}

const char *rfs_kept_take_text(struct rfs_kept_in *in, size_t *n)
{
    *n = rfs_kept_take_u32(in);
    const char *text = rfs_kept_take(in, *n);

    *n = text ? *n : 0;
    return text;
}

uint32_t rfs_kept_take_count(struct rfs_kept_in *in, size_t least)
{
    const uint32_t n = rfs_kept_take_u32(in);

    if (n <= in->left / least)
        return n;
    in->bad = true;
    return 0;
}

/* Reads all of N bytes at OFFSET, or returns false. */
static bool read_at(const struct rfs_kept_file *file, void *buf, size_t n, uint64_t offset)
{
    if (offset > file->size || n > file->size - offset)
        return false;
    if (file->fd < 0) {
        memcpy(buf, file->memory + offset, n);
        return true;
    }
    return rfs_io_pread_all(file->fd, buf, n, offset) == 0;
}

void *rfs_kept_read_body(const struct rfs_kept_file *file, uint64_t offset, uint64_t n,
                         uint64_t hash)
{
    if (offset > file->size || n > file->size - offset)
        return NULL;
    RFS_FREE void *bytes = malloc((size_t)n + 1);
    if (!bytes || !read_at(file, bytes, (size_t)n, offset) || XXH3_64bits(bytes, (size_t)n) != hash)
        return NULL;
    return RFS_STEAL(bytes);
}

/* Reads the table, if its place in the header is valid. */
static bool read_table(enum rfs_kept_kind kind, struct rfs_kept_file *file)
{
    unsigned char start[RFS_KEPT_START];
    struct rfs_kept_in in = {start, sizeof start, false};

    if (!read_at(file, start, sizeof start, 0) ||
        memcmp(rfs_kept_take(&in, 8), rfs_kept_magic(kind), 8) != 0 ||
        rfs_kept_take_u32(&in) != RFS_KEPT_VERSION || rfs_kept_take_u32(&in) != RFS_KEPT_MARK)
        return false;
    const uint64_t offset = rfs_kept_take_u64(&in);
    const uint64_t bytes = rfs_kept_take_u64(&in);
    const uint64_t hash = rfs_kept_take_u64(&in);
    if (bytes > RFS_KEPT_TABLE)
        return false;
    file->table = rfs_kept_read_body(file, offset, bytes, hash);
    file->in = (struct rfs_kept_in){file->table, (size_t)bytes, false};
    return file->table != NULL;
}

bool rfs_kept_parse(enum rfs_kept_kind kind, const char *key, int fd, const void *memory,
                    uint64_t size, struct rfs_kept_file *file)
{
    *file = (struct rfs_kept_file){.fd = fd, .memory = memory, .size = size};
    size_t n;
    const char *text = read_table(kind, file) ? rfs_kept_take_text(&file->in, &n) : NULL;

    if (text && n == strlen(key) && memcmp(text, key, n) == 0)
        return true;
    rfs_kept_end(file);
    return false;
}

void rfs_kept_end(struct rfs_kept_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->table);
    *file = (struct rfs_kept_file){.fd = -1};
}

/* ---- marks of source files ------------------------------------------------------------------- */

#ifndef ROMFS_MAGIC
#define ROMFS_MAGIC 0x7275
#endif
#ifndef EXFAT_SUPER_MAGIC
#define EXFAT_SUPER_MAGIC 0x2011bab0
#endif
#ifndef EROFS_SUPER_MAGIC_V1
#define EROFS_SUPER_MAGIC_V1 0xe0f5e1e2
#endif

struct rfs_kept_mark rfs_kept_mark_of(const struct stat *st)
{
    return (struct rfs_kept_mark){st->st_ino,          st->st_size,        st->st_mtim.tv_sec,
                                  st->st_mtim.tv_nsec, st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
}

static bool is_before(int64_t sec, int64_t nsec, struct timespec limit)
{
    return sec < limit.tv_sec || (sec == limit.tv_sec && nsec < limit.tv_nsec);
}

bool rfs_kept_mark_is_settled(const struct rfs_kept_mark *mark, struct timespec opened)
{
    opened.tv_sec -= RFS_KEPT_TICK_SECONDS;
    return is_before(mark->mtime, mark->mtime_ns, opened) &&
           is_before(mark->ctime, mark->ctime_ns, opened);
}

bool rfs_kept_mark_tells(const char *path, const struct stat *st, struct rfs_kept_device *last)
{
    static const uint32_t not_these[] = {SQUASHFS_MAGIC,   EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC,
                                         CRAMFS_MAGIC,     ROMFS_MAGIC,          MSDOS_SUPER_MAGIC,
                                         EXFAT_SUPER_MAGIC};
    struct statfs fs;

    if (rfs_store_is_url(path)) /* the inode stands for the version */
        return true;
    if (last->known && last->dev == st->st_dev)
        return last->trusted;
    *last = (struct rfs_kept_device){st->st_dev, true, statfs(path, &fs) == 0};
    for (size_t i = 0; last->trusted && i < sizeof not_these / sizeof *not_these; i++)
        last->trusted = (uint32_t)fs.f_type != not_these[i];
    return last->trusted;
}

void rfs_kept_mark_put(struct rfs_bytes *out, const char *path, const struct rfs_kept_mark *mark)
{
    rfs_kept_put_text(out, path, strlen(path));
    rfs_bytes_put(out, mark, sizeof *mark);
}

bool rfs_kept_source_take(struct rfs_kept_in *in, struct rfs_kept_source *source)
{
    source->path = rfs_kept_take_text(in, &source->length);
    return take_into(in, &source->mark, sizeof source->mark);
}

bool rfs_kept_source_has_path(const struct rfs_kept_source *source, const char *path)
{
    return strlen(path) == source->length && memcmp(path, source->path, source->length) == 0;
}

bool rfs_kept_source_has_mark(const struct rfs_kept_source *source, const struct stat *st)
{
    const struct rfs_kept_mark mark = rfs_kept_mark_of(st);

    return memcmp(&mark, &source->mark, sizeof mark) == 0;
}

/* ---- the folder ------------------------------------------------------------------------------ */

#define DRAFT ".draft-"         /* names of files in the making begin so */
#define DRAFT_SECONDS (60 * 60) /* older ones are left by a process that was killed */

struct rfs_kept {
    struct rfs_home folder;
    struct rfs_log *log;
    atomic_bool logged;
    atomic_uint drafts; /* begun so far */
};

struct rfs_kept *rfs_kept_open(const char *path, struct rfs_log *log)
{
    struct rfs_kept *kept = calloc(1, sizeof *kept);

    if (!kept || !rfs_home_find(path, &kept->folder)) {
        free(kept);
        return NULL;
    }
    kept->log = log;
    return kept;
}

void rfs_kept_close(struct rfs_kept *kept)
{
    if (!kept)
        return;
    rfs_home_free(&kept->folder);
    free(kept);
}

/* Says whether no other user can have written a file. */
static bool is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static void log_once(struct rfs_kept *kept, enum rfs_level level, const char *what)
{
    if (!atomic_exchange(&kept->logged, true))
        rfs_log(kept->log, level, "%s: no index is kept here: %s", kept->folder.path, what);
}

static const char not_ours[] = "other users may write there, or it belongs to one";

static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens the folder, or returns -1. In a sandbox it is there, or cannot be made. */
static int open_folder(struct rfs_kept *kept, bool make)
{
    const char *path = kept->folder.path;
    struct stat st;

    if (!rfs_home_reach(&kept->folder, make)) {
        log_once(kept, RFS_WARNING, not_ours);
        return -1;
    }
    int fd = open_path(path);
    if (fd < 0 && errno == ENOENT && make && rfs_home_make(&kept->folder) == 0)
        fd = open_path(path);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENOTDIR)
            log_once(kept, RFS_WARNING, "it is not a folder");
        else if (errno != ENOENT || make)
            log_once(kept, RFS_INFO, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) == 0 && is_ours(&st))
        return fd;
    log_once(kept, RFS_WARNING, not_ours);
    close(fd);
    return -1;
}

const char *rfs_kept_make(struct rfs_kept *kept)
{
    RFS_CLOSE int fd = open_folder(kept, true);

    return fd < 0 ? NULL : kept->folder.path;
}

static const char *ending(enum rfs_kept_kind kind)
{
    return kind == RFS_KEPT_INDEX ? ".index" : ".sizes";
}

static void name_of(enum rfs_kept_kind kind, const char *key, char name[64])
{
    const XXH128_hash_t hash = XXH3_128bits(key, strlen(key));

    snprintf(name, 64, "%016llx%016llx%s", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64, ending(kind));
}

bool rfs_kept_read(struct rfs_kept *kept, enum rfs_kept_kind kind, const char *key,
                   struct rfs_kept_file *file)
{
    RFS_CLOSE const int dir = kept ? open_folder(kept, false) : -1;
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
    if (!rfs_kept_parse(kind, key, fd, NULL, (uint64_t)st.st_size, file))
        return false;
    (void)futimens(fd, NULL); /* used last now */
    return true;
}

/* Notes the first failure. */
static void fail(struct rfs_kept_draft *draft, int code)
{
    if (draft->failed == 0)
        draft->failed = code;
}

static void write_at(struct rfs_kept_draft *draft, const void *bytes, size_t n, uint64_t offset)
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

bool rfs_kept_begin(struct rfs_kept *kept, enum rfs_kept_kind kind, const char *key,
                    struct rfs_kept_draft *draft)
{
    if (!kept)
        return false;
    *draft = (struct rfs_kept_draft){kept, kind, key, -1, -1, 0, RFS_KEPT_START, ""};
    draft->dir = open_folder(kept, true);
    if (draft->dir < 0)
        return false;
    do {
        snprintf(draft->name, sizeof draft->name, DRAFT "%ld-%u", (long)getpid(),
                 atomic_fetch_add(&kept->drafts, 1));
        draft->fd = openat(draft->dir, draft->name,
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    } while (draft->fd < 0 &&
             errno == EEXIST); /* made by a process of another machine, or of the past */
    if (draft->fd >= 0)
        return true;
    log_once(kept, RFS_INFO, strerror(errno));
    close(draft->dir);
    return false;
}

uint64_t rfs_kept_add(struct rfs_kept_draft *draft, const void *bytes, size_t n)
{
    const uint64_t at = draft->end;

    if (n > RFS_KEPT_BYTES - at) {
        fail(draft, -EFBIG);
        return at;
    }
    write_at(draft, bytes, n, at);
    draft->end += n;
    return at;
}

/* A file of the folder. */
struct listed {
    char name[64];
    uint64_t bytes;
    struct timespec used;
};

/* Puts the latest first. */
RFS_COMPARE(by_use, struct listed, x, y,
            RFS_ORDER(y->used.tv_sec, x->used.tv_sec)
                ?: RFS_ORDER(y->used.tv_nsec, x->used.tv_nsec))

/* Says whether we write files with such a name. */
static bool is_kept(const char *name)
{
    const size_t digits = strspn(name, "0123456789abcdef");

    return digits == 32 && (strcmp(name + digits, ending(RFS_KEPT_INDEX)) == 0 ||
                            strcmp(name + digits, ending(RFS_KEPT_SIZES)) == 0);
}

/* Removes the files that were used least recently, until the rest is within bounds. */
static void trim(int dir)
{
    RFS_VEC(struct listed) list = {0};
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
        struct listed file = {.name = ""};
        if ((!draft && !is_kept(entry->d_name)) ||
            fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (draft && st.st_mtime < time(NULL) - DRAFT_SECONDS)
            (void)unlinkat(dir, entry->d_name, 0);
        if (draft)
            continue;
        memcpy(file.name, entry->d_name, strlen(entry->d_name) + 1); /* is_kept: it is short */
        file.bytes = (uint64_t)st.st_size;
        file.used = st.st_mtim;
        if (!RFS_PUSH(&list, file))
            break;
    }
    closedir(stream);
    RFS_SORT_ALL(&list, by_use);
    for (size_t i = 0; i < list.n; i++) {
        bytes += list.data[i].bytes;
        if (i >= RFS_KEPT_FILES || (i > 0 && bytes > RFS_KEPT_BYTES))
            (void)unlinkat(dir, list.data[i].name, 0);
    }
    free(list.data);
}

static void add_table(struct rfs_kept_draft *draft, const struct rfs_bytes *rest)
{
    struct rfs_bytes table = {0};
    struct rfs_bytes start = {0};

    rfs_kept_put_text(&table, draft->key, strlen(draft->key));
    rfs_bytes_put(&table, rest->data, rest->n);
    if (table.n > RFS_KEPT_TABLE)
        fail(draft, -EFBIG);
    rfs_bytes_put(&start, rfs_kept_magic(draft->kind), 8);
    rfs_kept_put_u32(&start, RFS_KEPT_VERSION);
    rfs_kept_put_u32(&start, RFS_KEPT_MARK);
    rfs_kept_put_u64(&start, draft->end);
    rfs_kept_put_u64(&start, table.n);
    rfs_kept_put_u64(&start, XXH3_64bits(table.data, table.n));
    if (rest->failed || table.failed || start.failed)
        fail(draft, -ENOMEM);
    write_at(draft, table.data, table.n, draft->end);
    write_at(draft, start.data, start.n, 0);
    free(table.data);
    free(start.data);
}

static void drop(struct rfs_kept_draft *draft)
{
    close(draft->fd);
    (void)unlinkat(draft->dir, draft->name, 0);
    close(draft->dir);
}

bool rfs_kept_finish(struct rfs_kept_draft *draft, const struct rfs_bytes *table)
{
    char name[64];

    if (!table) {
        drop(draft);
        return false;
    }
    if (draft->failed == 0)
        add_table(draft, table);
    if (close(draft->fd) != 0) /* where some file systems report exceeded quotas */
        fail(draft, -errno);
    name_of(draft->kind, draft->key, name);
    if (draft->failed == 0 && renameat(draft->dir, draft->name, draft->dir, name) != 0)
        fail(draft, -errno);
    if (draft->failed != 0) {
        (void)unlinkat(draft->dir, draft->name, 0);
        log_once(draft->kept, RFS_INFO, strerror(-draft->failed));
    } else {
        trim(draft->dir);
    }
    close(draft->dir);
    return draft->failed == 0;
}
