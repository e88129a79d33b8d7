/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/session.h"

#include "base/log.h"
#include "mount/internal.h"
#include "mount/message.h"
#include "mount/ops.h"
#include "mount/request_buffer.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

/* ---- the session ----------------------------------------------------------------------------- */

/* The loop runs in the main thread. Beside the session's threads there is the guard (request.h). */
struct session {
    struct rfs_mount mount;
    const char *mountpoint;
    struct rfs_keeper *keeper;
    rfs_session_answers_fn *answers;
    void *answers_ctx;
    dev_t device; /* device of the mount; 0: unknown */
};

/* libfuse gives its lines no context. */
static struct rfs_log fuse_log_lines;

static void report_line(void *ctx, enum rfs_level level, const char *line)
{
    rfs_message_put(ctx, (enum reshard_level)level, line);
}

/*
 * Logs a line of libfuse. It has one for each request that there is no thread or memory for. Lines
 * of debug come whole.
 */
static void fuse_line(enum fuse_log_level level, const char *fmt, va_list args)
{
    char line[512];

    vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    if (level >= FUSE_LOG_DEBUG)
        rfs_log(&fuse_log_lines, RFS_DEBUG, "%s", line);
    else
        rfs_log_limited(&fuse_log_lines,
                        level <= FUSE_LOG_ERR       ? RFS_ERROR
                        : level <= FUSE_LOG_WARNING ? RFS_WARNING
                                                    : RFS_INFO,
                        "%s", line);
}

/*
 * Greets once INIT was answered: the mount is ready, and the kernel has set its read-ahead. Nothing
 * looks at the mount from outside to find that out, because an unmount during such a look would
 * fail with EBUSY.
 */
static void ready(void *ctx)
{
    struct session *s = ctx;

    if (s->mount.cached && s->keeper->fd >= 0)
        rfs_keeper_raise(s->keeper, s->device);
    if (s->answers(s->answers_ctx) != 0)
        rfs_guard_end();
}

/* Gives libfuse a mounted descriptor, by its name. */
static int take_device(struct session *s, const char *name, struct rfs_error *err)
{
    char said[512];
    const int rc = rfs_fuse_mount(s->mount.session, name, said, sizeof said);

    return rc == 0 ? 0 : rfs_fail(err, rc, RFS_IN(s->mountpoint), NULL, "cannot mount: %s", said);
}

static int mount_session(struct session *s, struct rfs_error *err)
{
    char name[32];
    int device;

    if (s->keeper->fd < 0)
        return take_device(s, s->mountpoint, err);
    const int rc = rfs_keeper_mount(s->keeper, s->mountpoint, &device, &s->device, err);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "/dev/fd/%d", device);
    return take_device(s, name, err);
}

/*
 * Runs the loop. The calling thread answers no request, also where one thread alone does. So it
 * never waits for sources, and ends at once if the process is killed (keeper.c).
 */
static int run_loop(struct session *s)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc;

    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_max_threads(config, s->mount.options->set.max_threads);
    rc = fuse_session_loop_mt(s->mount.session, config);
    fuse_loop_cfg_destroy(config);
    return rc;
}

/* Closes the device; its number stays taken, for libfuse to close. */
void rfs_mount_let_go(struct rfs_mount *mount)
{
    if (atomic_exchange(&mount->gone, true))
        return;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup3(null, fuse_session_fd(mount->session), O_CLOEXEC);
        close(null);
    }
    rfs_keeper_release(mount->keeper);
}

static void unmount_session(struct session *s)
{
    rfs_mount_let_go(&s->mount);
    if (!rfs_keeper_wait(s->keeper))
        rfs_message_put(NULL, RESHARD_LOG_WARNING,
                        "the process that unmounts has ended before: the mount may be left");
}

static int mount_and_loop(struct session *s, struct rfs_error *err)
{
    int rc;

    rc = mount_session(s, err);
    if (rc < 0)
        return rc;
    /* Until here, a signal ends the process, even if it hangs. */
    rfs_guard_block_signals(s->mount.options);
    rfs_log_init(&fuse_log_lines, report_line, NULL);
    fuse_set_log_func(fuse_line);
    if (s->device)
        reshard_refuse_device(s->mount.view, s->device);
    rc = rfs_guard_start(&s->mount, err);
    if (rc < 0) {
        unmount_session(s);
        return rc;
    }
    rc = rfs_requests_open(s->mount.session) ?: run_loop(s);
    rfs_guard_leave();
    unmount_session(s);
    rfs_guard_unmounted();
    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(s->mountpoint), NULL, "the mount broke: %s", strerror(-rc));
    return 0;
}

/* Fills in a mount, which borrows all. 0 or -errno; it is to be ended all the same. */
static int mount_init(struct rfs_mount *mount, reshard_view *view,
                      const struct rfs_mount_options *options, const char *mountpoint)
{
    reshard_summary sum = {.struct_size = sizeof sum};
    struct timespec now, made;

    reshard_summarize(view, &sum);
    clock_gettime(CLOCK_MONOTONIC, &now);
    clock_gettime(CLOCK_REALTIME, &made);
    *mount = (struct rfs_mount){
        .view = view,
        .options = options,
        .mountpoint = mountpoint,
        .since = now.tv_sec,
        .made = made,
    };
    (void)reshard_lookup(view, RESHARD_ROOT, RESHARD_CONTROL, &mount->hidden);
    /*
     * auto: programs read a .ckpt or .pt whole and once. They map other files, and several of them
     * read the same pages.
     */
    mount->by_file = options->set.io == RFS_IO_AUTO;
    /* No cache that outlives this process may keep decrypted content. */
    mount->cached =
        !rfs_options_keyed(&options->set) &&
        (options->set.io == RFS_IO_CACHED || (options->set.io == RFS_IO_AUTO && sum.mapped));
    pthread_mutex_init(&mount->handles_lock, NULL);
    const int rc = rfs_requests_init(&mount->requests);
    rfs_log_init(&mount->log, report_line, NULL);
    return rc;
}

/* Closes the files that are still open. No request may be running. */
static void mount_end(struct rfs_mount *mount)
{
    while (mount->handles)
        rfs_ops_leave_handle(mount, mount->handles);
    free(mount->drops.data);
    rfs_requests_end(&mount->requests);
    rfs_request_buffer_drop();
    rfs_log_destroy(&mount->log);
    pthread_mutex_destroy(&mount->handles_lock);
}

int rfs_session_run(const struct rfs_mount_options *options, const char *mountpoint,
                    struct rfs_keeper *keeper, const struct rfs_sandbox *sandbox,
                    reshard_view *view, rfs_session_answers_fn *answers, void *ctx,
                    struct rfs_error *err)
{
    struct fuse_lowlevel_ops ops;
    struct session s = {
        .mountpoint = mountpoint,
        .keeper = keeper,
        .answers = answers,
        .answers_ctx = ctx,
    };
    int rc = 0;

    rc = mount_init(&s.mount, view, options, options->fd_socket ? options->mountpoint : mountpoint);
    s.mount.sandbox = sandbox;
    s.mount.keeper = keeper;
    s.mount.started = ready;
    s.mount.started_ctx = &s;
    rfs_ops_fill(&ops);
    if (rc < 0)
        rc = rfs_fail(err, rc, RFS_NOWHERE, NULL, "no mount: %s", strerror(-rc));
    else if (!(s.mount.session = rfs_fuse_session(options, &ops, &s.mount, mountpoint, err)))
        rc = -EINVAL;
    if (rc == 0)
        rc = mount_and_loop(&s, err);
    if (s.mount.session)
        fuse_session_destroy(s.mount.session);
    mount_end(&s.mount);
    return rc;
}
