/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/unmount.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "mount/message.h"
#include "mount/mountpoint.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- who uses it ----------------------------------------------------------------------------- */

/* Processes that use a mount, as far as this user may see. */
struct users {
    const char *path; /* of the mount */
    unsigned n;       /* how many there are */
    char first[64];   /* "python3 (1234)" */
};

/* Returns whether the link NAME of a process leads into the mount. The target is not asked. */
static bool leads_there(const struct users *users, const char *name)
{
    char target[PATH_MAX];
    const ssize_t n = readlink(name, target, sizeof target - 1);

    target[n > 0 ? n : 0] = '\0';
    return n > 0 && rfs_path_within(target, users->path);
}

static bool has_open(const struct users *users, const char *folder)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    bool found = false;

    if (rfs_dir_open(NULL, folder, &dir))
        return false;
    for (const struct dirent *entry; !found && (entry = rfs_dir_next(&dir)) != NULL;) {
        RFS_FREE char *name = rfs_path_join(folder, entry->d_name);
        found = name && leads_there(users, name);
    }
    return found;
}

static bool is_user(const struct users *users, const char *process)
{
    static const char *const links[] = {"cwd", "root", "exe"};
    static const char *const folders[] = {"fd", "map_files"};
    bool found = false;

    for (size_t i = 0; !found && i < sizeof links / sizeof *links; i++) {
        RFS_FREE char *name = rfs_path_join(process, links[i]);
        found = name && leads_there(users, name);
    }
    for (size_t i = 0; !found && i < sizeof folders / sizeof *folders; i++) {
        RFS_FREE char *name = rfs_path_join(process, folders[i]);
        found = name && has_open(users, name);
    }
    return found;
}

/* Adds a process, unless it is a server or its keeper, which hold the folder below the mount. */
static void add_user(struct users *users, const char *number)
{
    RFS_FREE char *file = rfs_text_printf("/proc/%s/comm", number);
    RFS_CLOSE int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    char name[32] = "", shown[sizeof users->first - 16];
    const ssize_t n = fd >= 0 ? read(fd, name, sizeof name - 1) : 0;

    if (strncmp(name, RFS_PROGRAM, strlen(RFS_PROGRAM)) == 0 || users->n++ > 0)
        return;
    name[n > 0 ? n - 1 : 0] = '\0'; /* without the end of the line */
    rfs_text_printable(shown, sizeof shown, name);
    snprintf(users->first, sizeof users->first, "%s (%.10s)", shown, number);
}

static void find_users(struct users *users)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};

    if (rfs_dir_open(NULL, "/proc", &dir))
        return;
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir)) != NULL;) {
        RFS_FREE char *process = rfs_path_join("/proc", entry->d_name);
        if (process && isdigit((unsigned char)entry->d_name[0]) && is_user(users, process))
            add_user(users, entry->d_name);
    }
}

/* ---- unmounting ------------------------------------------------------------------------------ */

/* Runs fusermount3 in silence. Returns 0, or -errno: -EBUSY for any refusal. */
static int run_helper(const char *path, bool lazily)
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        const int nowhere = open("/dev/null", O_RDWR);
        if (nowhere >= 0)
            dup2(nowhere, STDERR_FILENO);
        execlp("fusermount3", "fusermount3", lazily ? "-uz" : "-u", "--", path, (char *)NULL);
        _exit(127);
    }
    if (child < 0)
        return -errno;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return !WIFEXITED(status) || WEXITSTATUS(status) == 127 ? -ENOENT
           : WEXITSTATUS(status)                            ? -EBUSY
                                                            : 0;
}

static int unmount(const char *path, bool lazily)
{
    if (geteuid() != 0)
        return run_helper(path, lazily);
    return umount2(path, UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0)) == 0 ? 0 : -errno;
}

static int fail(const char *path, int rc, struct rfs_error *err)
{
    const bool helper = geteuid() != 0;

    return rfs_fail(err, rc, RFS_IN(path),
                    helper && rc == -ENOENT ? "install fuse3, which has fusermount3"
                                            : "the user who mounted it, or root",
                    "cannot be unmounted: %s", helper ? "fusermount3 fails" : strerror(-rc));
}

/* Finds a mount of ours. Gives its place in *path, owned by the caller. Sends it no request. */
static int find(const char *given, char **path, struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    RFS_FREE char *name = NULL;
    struct rfs_mounted mounted;
    const int rc = rfs_path_parent(given, &folder, &name, err);

    *path = NULL;
    if (rc)
        return rc;
    *path = rfs_path_join(folder, name);
    if (!*path)
        return rfs_fail_memory(err);
    return rfs_mountpoint_find_mount(*path, &mounted) == 0 && mounted.ours
               ? 0
               : rfs_fail(err, -EINVAL, RFS_IN(given), "one of those that reshard mounts lists",
                          "no mount of reshardfs is there");
}

int rfs_unmount_path(const char *given, struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    struct users users = {0};
    int rc = find(given, &path, err);

    if (rc)
        return rc;
    rc = unmount(path, false);
    if (rc != -EBUSY)
        return rc ? fail(path, rc, err) : 0;
    users.path = path;
    find_users(&users);
    rc = unmount(path, true);
    if (rc)
        return fail(path, rc, err);
    char more[32] = "", text[PATH_MAX + 192];
    if (users.n > 1)
        snprintf(more, sizeof more, " and %u more", users.n - 1);
    snprintf(text, sizeof text, "%s: is unmounted, and ends when it is no longer used by %s%s",
             path, users.n > 0 ? users.first : "other processes", more);
    rfs_message_put(NULL, RESHARD_LOG_WARNING, text);
    return 0;
}
