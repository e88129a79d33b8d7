/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/session.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "mount/capture.h"
#include "mount/channel.h"
#include "mount/ops.h"
#include "mount/readahead.h"
#include "mount/report.h"
#include "mount/scratch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * The loop runs in the main thread, which is also the one that signals wake. A second thread, the
 * herald, starts with the first request, stats the mount from outside as any user would, and passes on
 * that it answers. In the background it then waits for SIGHUP, which other servers take as a wish to read
 * something again: here it changes nothing, and the log says so. It ends before the session is destroyed.
 */
struct session {
    struct rfs_mount mount;
    const char *mountpoint;
    rfs_session_answers_fn *answers;
    void *answers_ctx;
    pthread_t main;
    pthread_t herald;
    bool
        heralded; /* the herald was started: main reads it after the loop, when all workers ended */
    atomic_bool ending; /* the herald's next SIGHUP is from main: it shall end */
    int answered; /* 0 once the mount has answered, else -errno; read after the herald has ended */
};

static void fuse_line(enum fuse_log_level level, const char *fmt, va_list args)
{
    char line[512];

    vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    rfs_report_line(NULL,
                    level <= FUSE_LOG_ERR       ? RESHARD_LOG_ERROR
                    : level <= FUSE_LOG_WARNING ? RESHARD_LOG_WARNING
                    : level <= FUSE_LOG_INFO    ? RESHARD_LOG_INFO
                                                : RESHARD_LOG_DEBUG,
                    line);
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

    s->answered = stat(s->mountpoint, &st) < 0 ? -errno : 0;
    if (s->answered == 0 && s->mount.cached)
        rfs_readahead_raise(st.st_dev);
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

static int add_text(struct fuse_args *args, const char *name, const char *value)
{
    RFS_FREE char *escaped = rfs_text_option_value(value), *option = NULL;

    if (!escaped || asprintf(&option, "-o%s=%s", name, escaped) < 0)
        return -1;
    return fuse_opt_add_arg(args, option);
}

/* Always read-only, without devices and set-uid bits. */
static int make_args(const struct rfs_mount_options *o, struct fuse_args *args)
{
    const struct {
        bool on;
        const char *arg;
    } flags[] = {
        {true, RFS_PROGRAM},
        {true, "-oro,nosuid,nodev"},
        {o->noexec, "-onoexec"},
        {o->allow_other, "-oallow_other"},
        {o->allow_root, "-oallow_root"},
        {o->allow_other || o->allow_root || o->default_permissions, "-odefault_permissions"},
        {o->auto_unmount, "-oauto_unmount"},
        {o->debug, "-odebug"},
    };
    char max_read[32];

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].on && fuse_opt_add_arg(args, flags[i].arg) < 0)
            return -1;
    snprintf(max_read, sizeof max_read, "-omax_read=%zu", RFS_REQUEST_BYTES);
    if (fuse_opt_add_arg(args, max_read) < 0 ||
        add_text(args, "fsname", o->fsname ? o->fsname : o->source) < 0)
        return -1;
    return add_text(args, "subtype", o->subtype ? o->subtype : RFS_PROGRAM);
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

static int make_session(struct session *s, struct rfs_error *err)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_lowlevel_ops ops;
    struct rfs_capture capture;
    char said[512];

    rfs_ops_fill(&ops);
    rfs_capture_start(&capture);
    if (make_args(s->mount.options, &args) == 0)
        s->mount.session = fuse_session_new(&args, &ops, sizeof ops, &s->mount);
    fuse_opt_free_args(&args);
    rfs_capture_end(&capture, said, sizeof said);
    if (s->mount.session)
        return 0;
    return rfs_fail(err, -EINVAL, RFS_IN(s->mountpoint), NULL, "no FUSE session: %s",
                    said[0] ? said : "out of memory");
}

static int mount_session(struct session *s, struct rfs_error *err)
{
    struct rfs_capture capture;
    char said[512];
    int rc;

    rfs_capture_start(&capture);
    rc = fuse_session_mount(s->mount.session, s->mountpoint);
    rfs_capture_end(&capture, said, sizeof said);
    if (rc == 0)
        return 0;
    return rfs_fail(err, -EIO, RFS_IN(s->mountpoint), remedy_for(said), "cannot mount: %s",
                    said[0] ? said : "no reason was given");
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

static int mount_and_loop(struct session *s, struct rfs_error *err)
{
    int rc;

    rc = mount_session(s, err);
    if (rc < 0)
        return rc;
    fuse_set_log_func(fuse_line);
    rc = rfs_channel_open(s->mount.session);
    if (rc == 0)
        rc = run_loop(s);
    fuse_session_unmount(s->mount.session);
    if (s->heralded) {
        atomic_store(&s->ending, true);
        if (!s->mount.options->foreground)
            pthread_kill(s->herald, SIGHUP);
        pthread_join(s->herald, NULL);
    }
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
                    reshard_view *view, rfs_session_answers_fn *answers, void *ctx,
                    struct rfs_error *err)
{
    struct session s = {
        .mountpoint = mountpoint,
        .answers = answers,
        .answers_ctx = ctx,
        .main = pthread_self(),
        .answered = -ECONNABORTED,
    };
    int rc;

    if (!options->foreground)
        block_hangups();
    rfs_mount_init(&s.mount, view, options, mountpoint);
    s.mount.started = start_herald;
    s.mount.started_ctx = &s;
    rc = make_session(&s, err);
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
