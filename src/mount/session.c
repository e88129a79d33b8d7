/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/session.h"

#include "base/log.h"
#include "mount/arguments.h"
#include "mount/capture.h"
#include "mount/channel.h"
#include "mount/ops.h"
#include "mount/readahead.h"
#include "mount/report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The loop runs in the main thread, which is also the one that signals wake. A second thread, the
 * herald, starts with the first request, stats the mount from outside as any user would, and passes on
 * that it answers. In the background it then waits for SIGHUP, which other servers take as a wish to read
 * something again: here it changes nothing, and the log says so. It ends before the session is destroyed.
 */
struct session {
    struct rfs_mount mount;
    const char *mountpoint;
    struct rfs_keeper *keeper;
    rfs_session_answers_fn *answers;
    void *answers_ctx;
    pthread_t main;
    pthread_t herald;
    bool
        heralded; /* the herald was started: main reads it after the loop, when all workers ended */
    atomic_bool ending; /* the herald's next SIGHUP is from main: it shall end */
    int answered; /* 0 once the mount has answered, else -errno; read after the herald has ended */
};

/* libfuse gives its lines no context. */
static struct rfs_log fuse_log_lines;

static void report_line(void *ctx, enum rfs_level level, const char *line)
{
    rfs_report_line(ctx, (enum reshard_level)level, line);
}

/* It has a line for each request that there is no thread or memory for. What debug asks for comes whole. */
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

/* SIGHUP is blocked in all threads of a mount in the background, and taken here. */
static void wait_for_hangups(struct session *s)
{
    sigset_t hangup;
    int number;

    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    while (sigwait(&hangup, &number) == 0 && !atomic_load(&s->ending))
        rfs_report_line(
            NULL, RESHARD_LOG_WARNING,
            "SIGHUP: nothing is read again while it is mounted; try: unmount and mount");
}

static void *herald(void *ctx)
{
    struct session *s = ctx;
    struct stat st;

    /* Where somebody else has mounted it, its place is not known. */
    s->answered = s->keeper->fd >= 0 && stat(s->mountpoint, &st) < 0 ? -errno : 0;
    if (s->answered == 0 && s->mount.cached && s->keeper->fd >= 0)
        rfs_readahead_tell(st.st_dev, rfs_keeper_raise(s->keeper));
    if (s->answered != 0 || s->answers(s->answers_ctx) != 0)
        pthread_kill(s->main, SIGTERM);
    else if (!s->mount.options->foreground)
        wait_for_hangups(s);
    return NULL;
}

/* The signals that end the session are for the main thread alone: only there do they end a wait. */
static void start_herald(void *ctx)
{
    struct session *s = ctx;
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&s->herald, NULL, herald, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->heralded = rc == 0;
    if (rc != 0) {
        s->answered = -rc;
        pthread_kill(s->main, SIGTERM);
    }
}

/* libfuse takes a descriptor that somebody else has mounted by this name. */
static int take_device(struct session *s, const char *name, struct rfs_error *err)
{
    struct rfs_capture capture;
    char said[512];
    int rc;

    rfs_capture_start(&capture);
    rc = fuse_session_mount(s->mount.session, name);
    rfs_capture_end(&capture, said, sizeof said);
    if (rc == 0)
        return 0;
    return rfs_fail(err, -EIO, RFS_IN(s->mountpoint), NULL, "cannot mount: %s",
                    said[0] ? said : "no reason was given");
}

static int mount_session(struct session *s, struct rfs_error *err)
{
    char name[32];
    int device;

    if (s->keeper->fd < 0)
        return take_device(s, s->mountpoint, err);
    const int rc = rfs_keeper_mount(s->keeper, s->mountpoint, &device, err);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "/dev/fd/%d", device);
    return take_device(s, name, err);
}

static int run_loop(struct session *s)
{
    struct fuse_loop_config *config;
    int rc;

    if (s->mount.options->single)
        return fuse_session_loop(s->mount.session);
    config = fuse_loop_cfg_create();
    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_max_threads(config, s->mount.options->max_threads);
    rc = fuse_session_loop_mt(s->mount.session, config);
    fuse_loop_cfg_destroy(config);
    return rc;
}

/* What a file system that nobody serves says to those who wait for it. The number stays taken, for libfuse to close. */
static void let_go_of_device(struct session *s)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return;
    dup3(null, fuse_session_fd(s->mount.session), O_CLOEXEC);
    close(null);
}

/* In this order: the herald may wait for an answer of the mount, or of the keeper. */
static void unmount_session(struct session *s)
{
    let_go_of_device(s);
    rfs_keeper_release(s->keeper);
    if (s->heralded) {
        atomic_store(&s->ending, true);
        if (!s->mount.options->foreground)
            pthread_kill(s->herald, SIGHUP);
        pthread_join(s->herald, NULL);
    }
    if (!rfs_keeper_wait(s->keeper))
        rfs_report_line(NULL, RESHARD_LOG_WARNING,
                        "the process that unmounts has ended before: the mount may be left");
}

static int mount_and_loop(struct session *s, struct rfs_error *err)
{
    int rc;

    rc = mount_session(s, err);
    if (rc < 0)
        return rc;
    rfs_log_init(&fuse_log_lines, report_line, NULL);
    fuse_set_log_func(fuse_line);
    rc = rfs_channel_open(s->mount.session);
    if (rc == 0)
        rc = run_loop(s);
    unmount_session(s);
    if (s->answered < 0)
        return rfs_fail(err, s->answered, RFS_IN(s->mountpoint), NULL,
                        "the mount does not answer: %s", strerror(-s->answered));
    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(s->mountpoint), NULL, "the mount broke: %s", strerror(-rc));
    return 0;
}

static void block_hangups(void)
{
    sigset_t hangup;

    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &hangup, NULL);
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
        .main = pthread_self(),
        .answered = -ECONNABORTED,
    };
    int rc = 0;

    if (!options->foreground)
        block_hangups();
    rfs_mount_init(&s.mount, view, options, mountpoint);
    s.mount.sandbox = sandbox;
    s.mount.started = start_herald;
    s.mount.started_ctx = &s;
    rfs_ops_fill(&ops);
    s.mount.session = rfs_arguments_session(options, &ops, &s.mount, mountpoint, err);
    if (!s.mount.session)
        rc = -EINVAL;
    if (rc == 0 && fuse_set_signal_handlers(s.mount.session) < 0)
        rc = rfs_fail(err, -EINVAL, RFS_NOWHERE, NULL, "signal handlers cannot be set");
    if (rc == 0) {
        rc = mount_and_loop(&s, err);
        fuse_remove_signal_handlers(s.mount.session);
    }
    if (s.mount.session)
        fuse_session_destroy(s.mount.session);
    rfs_mount_end(&s.mount);
    return rc;
}
