/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules are those of transform_checkpoints: folders named rank_ and digits, the number read as
 * int() does; in each the last name, in byte order, of the regular files *.ckpt (or links to such);
 * names with a leading dot don't count, as glob passes over them.
 */
#include "source/scan.h"

#include "base/cleanup.h"
#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define REMEDY_ROOT "give the folder that holds rank_0, rank_1 and so on"

static void close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define CLOSE_DIR RFS_CLEANUP(close_dir)

void rfs_scan_free(struct rfs_scan *scan)
{
    for (size_t i = 0; i < scan->n; i++) {
        struct rfs_scanned *item = &scan->data[i];
        for (size_t k = 0; k < item->n_files; k++)
            free(item->files[k]);
        free(item->files);
        free(item->folder);
        free(item->weight_map);
    }
    free(scan->data);
    *scan = (struct rfs_scan){0};
}

/*
 * Of a file type, by the listing if it says, else by stat, which follows links: 1, 0 (as a link to nothing), or
 * -errno. What cannot be looked at is not passed over, as another file would be taken instead.
 */
static int is_type(int dir, const struct dirent *entry, unsigned char listed, mode_t type)
{
    struct stat st;
    int failed;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == listed;
    while ((failed = fstatat(dir, entry->d_name, &st, 0)) != 0 && errno == EINTR)
        continue;
    if (failed == 0)
        return (st.st_mode & S_IFMT) == type;
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name);
    const size_t k = strlen(suffix);
    return n >= k && memcmp(name + n - k, suffix, k) == 0;
}

/* True for rank_ and digits; a number too large becomes UINT32_MAX. */
static bool parse_rank(const char *name, uint32_t *rank)
{
    if (strncmp(name, "rank_", 5) != 0 || name[5] == '\0')
        return false;
    uint64_t number = 0;
    for (const char *p = name + 5; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        number = number * 10 + (uint64_t)(*p - '0');
        if (number > RFS_MAX_RANK)
            number = UINT32_MAX / 10 - 1; /* stays too large, whatever follows */
    }
    *rank = number > RFS_MAX_RANK ? UINT32_MAX : (uint32_t)number;
    return true;
}

static int fail_folder(struct rfs_error *err, const char *root, const char *folder, int code)
{
    char path[PATH_MAX + 512];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    return rfs_fail(err, -code, RFS_IN(path), code == EACCES ? "check its permissions" : NULL,
                    "the folder cannot be listed: %s", strerror(code));
}

static int fail_entry(struct rfs_error *err, const char *root, const char *folder, const char *name,
                      int code)
{
    char path[PATH_MAX + 512];
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    return rfs_fail(err, -code, RFS_IN(path), code == EACCES ? "check its permissions" : NULL,
                    "cannot be looked at: %s", strerror(code));
}

/* *file becomes the folder's checkpoint, or NULL; *other the name of a safetensors file, if any. */
static int scan_folder(const char *root, int root_fd, const char *folder, char **file, char **other,
                       struct rfs_error *err)
{
    RFS_CLOSE int fd = openat(root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_folder(err, root, folder, errno);
    CLOSE_DIR DIR *dir = fdopendir(fd);
    if (!dir)
        return fail_folder(err, root, folder, errno);
    const int dir_fd = rfs_steal_fd(&fd);
    RFS_FREE char *best = NULL;
    RFS_FREE char *strange = NULL;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            return fail_folder(err, root, folder, errno);
        if (!entry)
            break;
        const char *name = entry->d_name;
        const bool ckpt = ends_with(name, ".ckpt");
        char **slot = ckpt ? &best : &strange;
        if (name[0] == '.' || (!ckpt && !ends_with(name, ".safetensors")) ||
            (*slot && strcmp(name, *slot) <= 0))
            continue;
        const int is_file = is_type(dir_fd, entry, DT_REG, S_IFREG);
        if (is_file < 0)
            return fail_entry(err, root, folder, name, -is_file);
        if (!is_file)
            continue;
        char *copy = strdup(name);
        if (!copy)
            return rfs_fail(err, -ENOMEM, RFS_IN(root), NULL, "out of memory");
        free(*slot);
        *slot = copy;
    }
    *file = RFS_STEAL(best);
    *other = RFS_STEAL(strange);
    return 0;
}

bool rfs_scan_is_rank(const char *name)
{
    uint32_t rank;
    return parse_rank(name, &rank);
}

int rfs_scan_folder(const char *folder, char **file, struct rfs_error *err)
{
    RFS_FREE char *other = NULL;
    RFS_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *file = NULL;
    if (fd < 0)
        return rfs_fail(err, -errno, RFS_IN(folder), NULL, "the folder cannot be listed: %s",
                        strerror(errno));
    return scan_folder(folder, fd, ".", file, &other, err);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct rfs_scanned *x = a;
    const struct rfs_scanned *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return strcmp(x->folder, y->folder);
}

/* Lists the rank folders. */
static int scan_root(const char *root, DIR *dir, struct rfs_scan *scan, struct rfs_error *err)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno != 0)
            return rfs_fail(err, -errno, RFS_IN(root), NULL, "the folder cannot be listed: %s",
                            strerror(errno));
        if (!entry)
            break;
        uint32_t rank;
        if (!parse_rank(entry->d_name, &rank))
            continue;
        const int is_folder = is_type(dirfd(dir), entry, DT_DIR, S_IFDIR);
        if (is_folder < 0)
            return fail_folder(err, root, entry->d_name, -is_folder);
        if (!is_folder)
            continue;
        if (rank > RFS_MAX_RANK)
            return rfs_fail(err, -EINVAL, RFS_IN(root), "rename or move that folder",
                            "folder '%s': ranks above %u are not supported", entry->d_name,
                            RFS_MAX_RANK);
        struct rfs_scanned item = {.rank = rank, .folder = strdup(entry->d_name)};
        if (!item.folder || !RFS_PUSH(scan, item)) {
            free(item.folder);
            return rfs_fail(err, -ENOMEM, RFS_IN(root), NULL, "out of memory");
        }
    }
    if (scan->n > 0)
        qsort(scan->data, scan->n, sizeof *scan->data, compare_ranks);
    for (size_t i = 1; i < scan->n; i++)
        if (scan->data[i].rank == scan->data[i - 1].rank)
            return rfs_fail(err, -EINVAL, RFS_IN(root), "move one of them away",
                            "folders '%s' and '%s' are both of rank %u", scan->data[i - 1].folder,
                            scan->data[i].folder, scan->data[i].rank);
    return 0;
}

static int fail_kinds(const char *root, const struct rfs_scan *scan, const char *other,
                      struct rfs_error *err)
{
    for (size_t i = 0; i < scan->n; i++) {
        if (scan->data[i].n_files == 0)
            continue;
        return rfs_fail(err, -EINVAL, RFS_IN(root), "move one kind to another folder",
                        "the tree holds both .ckpt files (%s) and .safetensors files (%s)",
                        scan->data[i].files[0] + strlen(root) + 1, other);
    }
    return rfs_fail(err, -EINVAL, RFS_IN(root), "convert them with mindspore.safetensors_to_ckpt",
                    "the tree holds .safetensors files (%s) and no .ckpt file; safetensors are not "
                    "supported as a source",
                    other);
}

/* Makes ROOT/folder/FILE the rank's only file. False when out of memory. */
static bool set_file(struct rfs_scanned *item, const char *root, const char *file)
{
    const char *slash = strcmp(root, "/") == 0 ? "" : "/";

    item->files = calloc(1, sizeof *item->files);
    if (!item->files || asprintf(&item->files[0], "%s%s%s/%s", root, slash, item->folder, file) < 0)
        return false;
    item->n_files = 1;
    return true;
}

static int scan_folders(const char *root, int root_fd, struct rfs_scan *scan, struct rfs_error *err)
{
    RFS_FREE char *other = NULL; /* folder/name of some safetensors file */
    for (size_t i = 0; i < scan->n; i++) {
        struct rfs_scanned *item = &scan->data[i];
        RFS_FREE char *strange = NULL;
        RFS_FREE char *file = NULL;
        const int rc = scan_folder(root, root_fd, item->folder, &file, &strange, err);
        if (rc < 0)
            return rc;
        if (file && !set_file(item, root, file))
            return rfs_fail_memory(err);
        scan->present += file != NULL;
        if (strange && !other && asprintf(&other, "%s/%s", item->folder, strange) < 0) {
            other = NULL;
            return rfs_fail(err, -ENOMEM, RFS_IN(root), NULL, "out of memory");
        }
    }
    if (other)
        return fail_kinds(root, scan, other, err);
    if (scan->n == 0)
        return rfs_fail(err, -ENOENT, RFS_IN(root), REMEDY_ROOT,
                        "the folder has no rank_N folder in it");
    if (scan->present == 0)
        return rfs_fail(err, -ENOENT, RFS_IN(root), REMEDY_ROOT,
                        "no rank_N folder in it has a .ckpt file");
    return 0;
}

int rfs_scan_open(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err)
{
    const char *root = spec->path;
    *out = (struct rfs_scan){0};
    CLOSE_DIR DIR *dir = opendir(root);
    if (!dir && errno == ENOTDIR)
        return rfs_fail(err, -ENOTDIR, RFS_IN(root), REMEDY_ROOT, "the source is not a folder");
    if (!dir)
        return rfs_fail(err, -errno, RFS_IN(root), "check the folder's permissions",
                        "the source cannot be listed: %s", strerror(errno));
    int rc = scan_root(root, dir, out, err);
    if (rc == 0)
        rc = scan_folders(root, dirfd(dir), out, err);
    if (rc < 0)
        rfs_scan_free(out);
    return rc;
}
