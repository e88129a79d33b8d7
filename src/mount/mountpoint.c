/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/mountpoint.h"

#include "base/cleanup.h"
#include "base/mountinfo.h"
#include "base/path.h"
#include "base/text.h"
#include "mount/descriptor.h"
#include "mount/message.h"
#include "mount/mount_options.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE 60 /* seconds for a descriptor */
#define LOOK 100    /* milliseconds from one look for its socket to the next */
#define FUSE_DEVICE "/dev/fuse"
#define FUSE_MAJOR 10 /* its numbers, the same everywhere (the kernel's devices.txt) */
#define FUSE_MINOR 229

/* ---- the kernel's table of mounts ------------------------------------------------------------ */

struct search {
    const char *path;
    struct rfs_mounted *out;
};

/* Takes a mount at the path: the last one is on top. */
static bool take(void *ctx, const struct rfs_mountinfo *mount)
{
    const struct search *search = ctx;
    struct rfs_mounted *out = search->out;

    if (strcmp(mount->point, search->path) != 0)
        return true;
    out->id = mount->id;
    out->device = mount->device;
    out->ours = strcmp(mount->type, "fuse." RFS_PROGRAM) == 0;
    snprintf(out->source, sizeof out->source, "%s", out->ours ? mount->source : "");
    return true;
}

int rfs_mountpoint_find_mount(const char *path, struct rfs_mounted *out)
{
    struct search search = {path, out};

    *out = (struct rfs_mounted){.ours = false};
    return rfs_mountinfo_each(take, &search) ?: (out->id ? 0 : -ENOENT);
}

/* ---- what is there --------------------------------------------------------------------------- */

/* Returns whether a mount is dead. A server that is ending leaves the second for a moment. */
static bool is_dead(int code)
{
    return code == ENOTCONN || code == ECONNABORTED;
}

static int refuse_dead(const char *given, struct rfs_error *err)
{
    char remedy[PATH_MAX + 32];

    snprintf(remedy, sizeof remedy, "fusermount3 -u %s", given);
    return rfs_fail(err, -ENOTCONN, RFS_IN(given), remedy,
                    "a dead mount is there (%s): its server has ended", strerror(ENOTCONN));
}

/* The entries of a folder. */
struct held {
    bool filled;
    bool ranks; /* folders that are named as those of ranks */
};

static struct held look_into(DIR *dir)
{
    struct held held = {false, false};

    for (const struct dirent *e = readdir(dir); e && !held.ranks; e = readdir(dir)) {
        held.filled |= strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
        held.ranks =
            strncmp(e->d_name, "rank_", 5) == 0 && e->d_name[5] >= '0' && e->d_name[5] <= '9';
    }
    return held;
}

/*
 * Returns whether the source has nothing that could be shown: a folder made to be mounted on, or
 * one that is.
 */
static bool is_place_to_mount(const char *source)
{
    struct rfs_mounted mounted;
    DIR *dir = opendir(source);
    const bool empty = dir && !look_into(dir).filled;

    if (dir)
        closedir(dir);
    return empty || (rfs_mountpoint_find_mount(source, &mounted) == 0 && mounted.ours);
}

/* Refuses a mount point that is not empty, and names the probable mistake. */
static int fail_filled(const char *given, const char *resolved, const char *source,
                       const struct held *held, struct rfs_error *err)
{
    struct rfs_mounted mounted;
    RFS_FREE char *remedy = NULL;

    if (rfs_mountpoint_find_mount(resolved, &mounted) == 0 && mounted.ours) {
        remedy = rfs_text_printf("fusermount3 -u %s", given);
        return rfs_fail(err, -EBUSY, RFS_IN(given), remedy, RFS_PROGRAM " already shows %s here",
                        mounted.source);
    }
    if (held->ranks && is_place_to_mount(source)) {
        remedy = rfs_text_printf(RFS_PROGRAM " %s %s", given, source);
        return rfs_fail(err, -ENOTEMPTY, RFS_IN(given), remedy,
                        "the mount point holds folders of ranks, and the source %s is a place to "
                        "mount on: they look swapped",
                        source);
    }
    return rfs_fail(err, -ENOTEMPTY, RFS_IN(given),
                    "an empty folder, or -o nonempty to cover its content",
                    "the mount point is not empty");
}

/*
 * Refuses a folder that is not empty. It is listed even with nonempty, because the kernel's kept
 * attributes of a dead mount answer a stat.
 */
static int refuse_filled(const char *given, int folder, const char *resolved, const char *source,
                         bool nonempty, struct rfs_error *err)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && is_dead(errno))
        return refuse_dead(given, err);
    if (nonempty) {
        if (dir)
            closedir(dir);
        return 0;
    }
    if (!dir)
        return rfs_fail(err, -errno, RFS_IN(given), NULL, "the mount point cannot be listed: %s",
                        strerror(errno));
    const struct held held = look_into(dir);
    closedir(dir);
    return held.filled ? fail_filled(given, resolved, source, &held, err) : 0;
}

/* Returns N of "/dev/fd/N"; -1: it is something else. */
static int descriptor_of(const char *given)
{
    int fd, end = 0;

    return sscanf(given, "/dev/fd/%d%n", &fd, &end) == 1 && given[end] == '\0' ? fd : -1;
}

/*
 * Takes a descriptor of /dev/fuse that another process has mounted: gives "/dev/fd/N". GIVEN and
 * REMEDY are for the message.
 */
static int take_descriptor(int fd, const char *given, const char *remedy, char **out,
                           struct rfs_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return rfs_fail(err, -errno, RFS_IN(given), NULL,
                        "the descriptor of the mount cannot be used: %s", strerror(errno));
    if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(FUSE_MAJOR, FUSE_MINOR))
        return rfs_fail(err, -EINVAL, RFS_IN(given), remedy,
                        "the descriptor is not one of " FUSE_DEVICE);
    *out = rfs_text_printf("/dev/fd/%d", fd);
    return *out ? 0 : rfs_fail_memory(err);
}

/* Returns whether another look may find a socket that is listened to. */
static bool may_come(int code)
{
    return code == ENOENT || code == ECONNREFUSED || code == EINTR;
}

/* Connects, also to a socket that is yet to come. Returns it, or -errno. */
static int connect_to(const struct sockaddr_un *at)
{
    RFS_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    for (int looks = 0; connect(fd, (const struct sockaddr *)at, sizeof *at) != 0; looks++) {
        if (!may_come(errno) || looks == PATIENCE * 1000 / LOOK)
            return -errno;
        (void)poll(NULL, 0, LOOK);
    }
    return rfs_steal_fd(&fd);
}

/*
 * Connects to the socket at PATH and receives a descriptor there, which the caller closes; the text
 * with it is ignored. Waits up to a minute until there is such a socket, and as long for the
 * descriptor. 0, or -errno with *err filled.
 */
static int fetch_descriptor(const char *path, int *fd, struct rfs_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[4096];

    *fd = -1;
    if (strlen(path) >= sizeof at.sun_path)
        return rfs_fail(err, -ENAMETOOLONG, RFS_IN(path), "a shorter path",
                        "the path of a socket has at most %zu bytes", sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path));
    RFS_CLOSE int talk = connect_to(&at);
    if (talk < 0)
        return rfs_fail(err, talk, RFS_IN(path), "start the program that mounts",
                        "no connection to the socket: %s", strerror(-talk));
    struct pollfd message = {.fd = talk, .events = POLLIN};
    const int ready = poll(&message, 1, PATIENCE * 1000);
    const ssize_t n = ready > 0 ? rfs_descriptor_receive(talk, text, sizeof text, fd)
                                : (ready < 0 ? -errno : -ETIMEDOUT);
    if (n < 0)
        return rfs_fail(err, (int)n, RFS_IN(path), NULL, "no descriptor came over the socket: %s",
                        strerror((int)-n));
    return *fd >= 0 ? 0
                    : rfs_fail(err, -EPROTO, RFS_IN(path), "a program that sends it by SCM_RIGHTS",
                               "a message without a descriptor came over the socket");
}

/* Takes the descriptor that comes over the socket at PATH. */
static int fetch(const char *path, char **out, struct rfs_error *err)
{
    RFS_CLOSE int fd = -1;
    int rc = fetch_descriptor(path, &fd, err);

    if (rc == 0)
        rc =
            take_descriptor(fd, path, "a program that sends the one that it has mounted", out, err);
    if (rc == 0)
        (void)rfs_steal_fd(&fd);
    return rc;
}

/* Says why the mount point cannot be opened. */
static int fail_to_open(const char *given, int code, struct rfs_error *err)
{
    struct stat st;
    RFS_FREE char *make = code == ENOENT ? rfs_text_printf("mkdir -p %s", given) : NULL;

    if (is_dead(code))
        return refuse_dead(given, err);
    if (code == ENOTDIR && stat(given, &st) == 0)
        return rfs_fail(err, -ENOTDIR, RFS_IN(given), "a folder",
                        "the mount point is not a folder");
    return rfs_fail(err, -code, RFS_IN(given), make, "the mount point cannot be used: %s",
                    strerror(code));
}

int rfs_mountpoint_open(const struct rfs_mount_options *options, char **out, int *folder,
                        struct rfs_error *err)
{
    const char *given = options->mountpoint;
    const char *source = options->source;
    RFS_FREE char *resolved = NULL;
    struct stat st, now;
    int rc;

    *folder = -1;
    if (options->fd_socket)
        return fetch(options->fd_socket, out, err);
    if (descriptor_of(given) >= 0)
        return take_descriptor(descriptor_of(given), given, "a folder", out, err);
    RFS_CLOSE int fd = open(given, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_to_open(given, errno, err);
    resolved = realpath(given, NULL);
    if (!resolved || stat(resolved, &now) < 0)
        return rfs_fail(err, -errno, RFS_IN(given), NULL, "the mount point cannot be resolved: %s",
                        strerror(errno));
    if (!rfs_mountpoint_is_same(&st, &now))
        return rfs_mountpoint_fail_replaced(given, err);
    rc =
        rfs_path_refuse_overlap(resolved, source, "the mount point", "a mount point elsewhere", err)
            ?: refuse_filled(given, fd, resolved, source, options->set.nonempty, err);
    if (rc == 0 && faccessat(fd, ".", X_OK, AT_EACCESS) != 0) /* the keeper goes there */
        return fail_to_open(given, errno, err);
    if (rc == 0) {
        *out = RFS_STEAL(resolved);
        *folder = rfs_steal_fd(&fd);
    }
    return rc;
}

int rfs_mountpoint_fail_replaced(const char *mountpoint, struct rfs_error *err)
{
    return rfs_fail(err, -ESTALE, RFS_IN(mountpoint), "a mount point that only you can move",
                    "another folder took the place of the mount point");
}

int rfs_mountpoint_check_device(struct rfs_error *err)
{
    const char *remedy = NULL;
    const int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);
    const int code = errno;

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    if (code == ENOENT || code == ENODEV || code == ENXIO)
        remedy = "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN";
    else if (code == EACCES)
        remedy = "chmod 0666 " FUSE_DEVICE ", as udev does elsewhere";
    else if (code == EPERM)
        remedy = "in a container: --device /dev/fuse --cap-add SYS_ADMIN";
    return rfs_fail(err, -code, RFS_IN(FUSE_DEVICE), remedy, "FUSE cannot be used: %s",
                    strerror(code));
}
