/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/keeper.h"

#include "base/cleanup.h"
#include "mount/descriptor.h"
#include "mount/fuse.h"
#include "mount/message.h"
#include "mount/mountpoint.h"
#include "mount/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum command { MOUNT = 'm', RAISE = 'r' };

struct reply {
    struct rfs_error err; /* code 0: done */
    dev_t number;         /* of the mount; 0: unknown */
};

/* The server's side of the conversation has this number in the keeper. */
enum { TALK = 3 };

#define WANTED_KIB "1024" /* of read-ahead */
#define LOOK 1000         /* milliseconds from one look at the server to the next */
#define ENDING 2000       /* milliseconds in which an unmount that has begun ends */

struct keeper {
    const struct rfs_mount_options *options;
    const char *mountpoint;
    pid_t server;
    struct fuse_session *session; /* mounted; or NULL */
    struct rfs_mounted mounted;
};

/* ---- in the keeper --------------------------------------------------------------------------- */

/* Finds the string of a list that begins at a place, or NULL. (getopt has changed the order.) */
static char *string_at(char **list, const char *at)
{
    for (size_t i = 0; list && list[i]; i++)
        if (list[i] == at)
            return list[i];
    return NULL;
}

/*
 * Sets the title that ps shows. The memory of the arguments and of the environment behind it is
 * wiped, because it may hold a key. PATH stays, because libfuse looks for fusermount3 there.
 */
static void retitle(char **argv, const char *mountpoint)
{
    const char *path = getenv("PATH");
    RFS_FREE char *kept = path ? strdup(path) : NULL;
    char *const begin = argv[0];
    char *end = begin;

    while (string_at(argv, end))
        end += strlen(end) + 1;
    const size_t room = (size_t)(end - begin);
    for (size_t i = 0; environ && environ[i]; i++)
        explicit_bzero(environ[i], strlen(environ[i]));
    clearenv();
    explicit_bzero(begin, room);
    snprintf(begin, room, RFS_PROGRAM "-keeper of %s", mountpoint);
    (void)prctl(PR_SET_NAME, RFS_PROGRAM "-keep", 0, 0, 0);
    if (kept)
        (void)setenv("PATH", kept, 1);
}

/*
 * Goes to FOLDER, the mount point. Keeps nothing else that the parent had open, and blocks the
 * signals that are meant for the server.
 */
static void leave_everything(int talk, int folder)
{
    const int null = open("/dev/null", O_RDWR);
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    if (fchdir(folder) != 0)
        _exit(1);
    for (int fd = 0; fd < TALK; fd++)
        dup2(null, fd);
    if (talk != TALK)
        dup2(talk, TALK);
    fcntl(TALK, F_SETFD, FD_CLOEXEC);
#ifdef SYS_close_range /* the C library has a function for it since 2.34 */
    const bool closed = syscall(SYS_close_range, TALK + 1, ~0U, 0) == 0;
#else
    const bool closed = false;
#endif
    if (!closed) /* Linux before 5.9 */
        for (long fd = TALK + 1; fd < sysconf(_SC_OPEN_MAX) && fd < 65536; fd++)
            close((int)fd);
}

static const char *remedy_for(const char *said)
{
    if (strstr(said, "user_allow_other"))
        return "a line user_allow_other in /etc/fuse.conf, or leave allow_other out";
    if (strstr(said, "failed to exec"))
        return "install fuse3, which has fusermount3";
    if (strstr(said, "modprobe") || strstr(said, "not found"))
        return "modprobe fuse";
    if (strstr(said, "not permitted") || strstr(said, "ermission denied"))
        return "a mount point of your own; in a container: --device /dev/fuse --cap-add SYS_ADMIN "
               "--security-opt apparmor=unconfined";
    return NULL;
}

/*
 * Finds the mount on the current folder, wherever that is now. Returns what
 * rfs_mountpoint_find_mount does.
 */
static int find_mount(struct rfs_mounted *out)
{
    RFS_FREE char *here = getcwd(NULL, 0);

    *out = (struct rfs_mounted){.id = 0};
    return here ? rfs_mountpoint_find_mount(here, out) : -ENOENT;
}

/* Returns whether the path still leads to the folder that was looked at. */
static bool is_in_place(const char *mountpoint)
{
    struct stat there, here;

    return stat(mountpoint, &there) == 0 && stat(".", &here) == 0 &&
           rfs_mountpoint_is_same(&there, &here);
}

/* Returns whether the kernel has ended the mount, or does so within PATIENCE milliseconds. */
static bool has_ended(struct fuse_session *session, int patience)
{
    struct pollfd device = {.fd = fuse_session_fd(session)};

    return poll(&device, 1, patience) == 1 && (device.revents & POLLERR);
}

static int mount_here(struct keeper *k, struct fuse_session *session, struct rfs_error *err)
{
    struct rfs_mounted before;
    char said[512];

    (void)find_mount(&before);
    const int rc = rfs_fuse_mount(session, ".", said, sizeof said);
    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(k->mountpoint), remedy_for(said), "cannot mount: %s", said);
    k->session = session;
    const bool found = find_mount(&k->mounted) == -EIO || k->mounted.id != before.id;
    /*
     * Root mounts on its folder. fusermount3 goes by the path. Either may be unmounted already: the
     * kernel takes a mount off its list, and ends it later, when nothing holds it.
     */
    if (!found && (geteuid() != 0 || k->options->set.auto_unmount) && !has_ended(session, ENDING)) {
        fuse_session_unmount(session);
        k->session = NULL;
        return rfs_mountpoint_fail_replaced(k->mountpoint, err);
    }
    if (!found) /* another mount may have been there before */
        k->mounted = (struct rfs_mounted){.id = 0};
    return 0;
}

/*
 * Detaches the mount, unless the kernel has ended it: what is there may be another one then. Calls
 * that wait get an error, because a killed server may still have the device open.
 */
static void detach(struct fuse_session *session)
{
    if (has_ended(session, 0))
        return;
    close(fuse_session_fd(session));
    (void)umount2(".", MNT_FORCE | MNT_DETACH);
}

/*
 * Detaches the mount by fusermount3, which ends no calls. /sys/fs/fuse/connections does, where that
 * file system is there. Its file is opened while the mount lasts: once it has ended, the kernel may
 * give its number to another mount.
 */
static void detach_as_user(const struct keeper *k)
{
    char path[64];

    snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", minor(k->mounted.device));
    const int fd = k->mounted.id ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    const bool ours = fd >= 0 && !has_ended(k->session, 0);
    fuse_session_unmount(k->session);
    if (ours)
        (void)!write(fd, "1", 1);
    if (fd >= 0)
        close(fd);
}

/*
 * Unmounts. Libfuse checks whether the kernel has ended the mount, and then unmounts any file
 * system at the mount point. After fusermount3 -uz that may be another one.
 */
static void unmount_it(struct keeper *k)
{
    struct rfs_mounted now;

    if (!k->session)
        return;
    if (k->mounted.id != 0 && find_mount(&now) != -EIO &&
        (now.id != k->mounted.id || now.device != k->mounted.device))
        return;
    if (geteuid() == 0)
        detach(k->session);
    else
        detach_as_user(k);
}

static int mount_it(struct keeper *k, struct rfs_error *err)
{
    const struct fuse_lowlevel_ops none = {0};

    if (k->session)
        return rfs_fail(err, -EBUSY, RFS_IN(k->mountpoint), NULL, "is mounted already");
    if (!is_in_place(k->mountpoint))
        return rfs_mountpoint_fail_replaced(k->mountpoint, err);
    struct fuse_session *session = rfs_fuse_session(k->options, &none, NULL, k->mountpoint, err);
    if (!session)
        return err->code;
    if (mount_here(k, session, err) < 0) {
        fuse_session_destroy(session);
        return err->code;
    }
    if (rfs_sandbox_enter_keeper((enum rfs_sandbox_mode)k->options->set.sandbox, err) == 0)
        return 0;
    unmount_it(k);
    k->session = NULL;
    return err->code;
}

/* Writes a text to a file. 0 or -errno. */
static int put_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n;
    int code;

    if (fd < 0)
        return -errno;
    n = write(fd, text, strlen(text));
    code = n < 0 ? -errno : 0;
    close(fd);
    return code;
}

static void name_setting(dev_t dev, char *path, size_t cap)
{
    snprintf(path, cap, "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
}

/*
 * Raises the read-ahead of the mount with device DEV, which the kernel otherwise holds at 128 KiB.
 * 0, or -errno where this process may not.
 */
static int raise_read_ahead(dev_t dev)
{
    char path[64];

    name_setting(dev, path, sizeof path);
    return put_text(path, WANTED_KIB);
}

static int send_reply(const struct reply *reply, int device)
{
    return rfs_descriptor_send(TALK, reply, sizeof *reply, device);
}

/*
 * Returns whether the server was killed. It keeps its end of the conversation open while one of its
 * threads waits in the kernel for storage that hangs. But its first thread ends at once, as it
 * reads no source once it is mounted. Nothing tells of that: the kernel's signal for it does not
 * leave Landlock, and descriptors of processes wait for all threads.
 */
static bool has_died(const struct keeper *k)
{
    char path[32], text[256];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)k->server);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") Z", 3) == 0;
}

/* Waits for the server's next word. False when the server was killed. */
static bool wait_for_word(const struct keeper *k)
{
    struct pollfd talk = {.fd = TALK, .events = POLLIN};

    while (poll(&talk, 1, LOOK) == 0)
        if (has_died(k))
            return false;
    return true;
}

/* Answers the next word. False when the conversation is over. */
static bool answer(struct keeper *k)
{
    struct reply reply = {0};
    unsigned char word;
    ssize_t n;
    int device = -1;

    do
        n = recv(TALK, &word, 1, 0);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        return false;
    switch (word) {
    case MOUNT:
        if (mount_it(k, &reply.err) == 0)
            device = fuse_session_fd(k->session);
        reply.number = k->mounted.device;
        break;
    case RAISE:
        reply.err.code = k->mounted.id ? raise_read_ahead(k->mounted.device) : -ENODEV;
        break;
    default:
        return false;
    }
    return send_reply(&reply, device) == 0;
}

static _Noreturn void keep(struct keeper *k)
{
    const struct reply done = {0};

    while (wait_for_word(k) && answer(k))
        continue;
    unmount_it(k);
    (void)send_reply(&done, -1);
    _exit(0);
}

/* ---- in the server --------------------------------------------------------------------------- */

int rfs_keeper_start(const struct rfs_mount_options *options, const char *mountpoint, int folder,
                     char **argv, struct rfs_keeper *out, struct rfs_error *err)
{
    struct keeper keeper = {.options = options, .mountpoint = mountpoint, .server = getpid()};
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL, "no socket to the mounting process: %s",
                        strerror(errno));
    fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) {
        const int code = errno;

        close(ends[0]);
        close(ends[1]);
        return rfs_fail(err, -code, RFS_NOWHERE, NULL, "no process to mount with: %s",
                        strerror(code));
    }
    if (pid == 0) {
        leave_everything(ends[1], folder);
        retitle(argv, mountpoint);
        keep(&keeper);
    }
    close(ends[1]);
    out->fd = ends[0];
    return 0;
}

/* Asks the keeper, and waits for its answer. 0 or -errno. */
static int ask(const struct rfs_keeper *keeper, enum command what, struct reply *reply, int *device)
{
    const unsigned char word = (unsigned char)what;

    if (send(keeper->fd, &word, 1, MSG_NOSIGNAL) != 1)
        return -errno;
    const ssize_t n = rfs_descriptor_receive(keeper->fd, reply, sizeof *reply, device);
    if (n != (ssize_t)sizeof *reply)
        return n < 0 ? (int)n : -ECONNRESET;
    return 0;
}

int rfs_keeper_mount(const struct rfs_keeper *keeper, const char *mountpoint, int *device,
                     dev_t *number, struct rfs_error *err)
{
    struct reply reply;
    const int rc = ask(keeper, MOUNT, &reply, device);

    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(mountpoint), NULL,
                        "cannot mount: the process that mounts has ended: %s", strerror(-rc));
    if (reply.err.code == 0 && *device < 0)
        return rfs_fail(err, -EIO, RFS_IN(mountpoint), "a higher ulimit -n",
                        "cannot mount: there is no room for a descriptor");
    *number = reply.number;
    *err = reply.err;
    return err->code;
}

/* Logs how root can raise the read-ahead, if RC says that it was not. */
static void report_read_ahead(dev_t dev, int rc)
{
    char path[64], line[256];

    if (rc == 0)
        return;
    name_setting(dev, path, sizeof path);
    snprintf(line, sizeof line,
             "read-ahead stays at the kernel's default (%s); as root: echo " WANTED_KIB " > %s",
             strerror(-rc), path);
    rfs_message_put(NULL, RESHARD_LOG_DEBUG, line);
}

void rfs_keeper_raise(const struct rfs_keeper *keeper, dev_t device)
{
    struct reply reply;
    int none;
    const int rc = ask(keeper, RAISE, &reply, &none);

    report_read_ahead(device, rc == 0 ? reply.err.code : rc);
}

void rfs_keeper_release(const struct rfs_keeper *keeper)
{
    if (keeper->fd >= 0)
        shutdown(keeper->fd, SHUT_WR);
}

void rfs_keeper_linger(const struct rfs_keeper *keeper, int milliseconds)
{
    struct pollfd answer = {.fd = keeper->fd, .events = POLLIN};

    if (keeper->fd >= 0)
        (void)poll(&answer, 1, milliseconds);
}

bool rfs_keeper_wait(struct rfs_keeper *keeper)
{
    struct reply done;
    ssize_t n;

    if (keeper->fd < 0)
        return true;
    do
        n = recv(keeper->fd, &done, sizeof done, 0);
    while (n < 0 && errno == EINTR);
    close(keeper->fd);
    *keeper = RFS_KEEPER_NONE;
    return n == (ssize_t)sizeof done;
}
