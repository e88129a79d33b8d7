/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/guard.h"

#include "mount/bell.h"
#include "mount/channel.h"
#include "mount/internal.h"
#include "mount/report.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TICK 100  /* milliseconds */
#define QUIET 20u /* ticks without anything to look after, until it sleeps */

/*
 * One in a process, which outlives the mount: it may have to end the process while that is taken
 * down.
 */
struct guard {
    int signals; /* descriptor of those that it takes */
    struct rfs_bell bell;
    atomic_bool resting; /* nothing can hang any more */

    pthread_mutex_t lock; /* held while it looks at the mount, over system calls that do not wait */
    struct rfs_mount *mount; /* NULL: it is being taken down */
    int64_t ends;            /* when it ends the process; 0: the mount does not end */

    /* The thread's own. */
    bool foreground;
    int takes;      /* descriptor of the kernel's requests, when it takes them; or -1 */
    bool deferred;  /* the request at hand may wait */
    uint64_t turns; /* of the channel, at the last tick */
    unsigned quiet; /* ticks */
};

static _Thread_local bool is_guard;

static struct guard the_guard = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- signals --------------------------------------------------------------------------------- */

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/*
 * Signals that were ignored when the program started stay so; but a mount in the background logs
 * each SIGHUP.
 */
static void fill(sigset_t *set, bool foreground)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((numbers[i] == SIGHUP && !foreground) || !is_ignored(numbers[i]))
            sigaddset(set, numbers[i]);
}

void rfs_guard_block(bool foreground)
{
    sigset_t set;

    fill(&set, foreground);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void take_signals(struct guard *g)
{
    struct signalfd_siginfo info;

    while (read(g->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP && !g->foreground)
            rfs_report_line(
                NULL, RESHARD_LOG_WARNING,
                "SIGHUP: nothing is read again while it is mounted; try: unmount and mount");
        else
            atomic_store(&g->bell.ending, true);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The caller has the lock. */
static void begin_to_end(struct guard *g)
{
    g->ends = rfs_bell_now() + RFS_GUARD_PATIENCE;
    if (!g->mount)
        return;
    fuse_session_exit(g->mount->session);
    reshard_cancel_all(g->mount->view);
    rfs_requests_give_up(&g->mount->requests, ENOTCONN);
    rfs_channel_close(&g->mount->channel);
}

static void end_process(struct guard *g)
{
    if (atomic_load(&g->resting))
        return;
    rfs_report_line(NULL, RESHARD_LOG_WARNING,
                    "it ends while calls on its sources are under way: they have not returned");
    pthread_mutex_lock(&g->lock);
    if (g->mount) {
        rfs_mount_let_go(g->mount);
        /* A caller that waits for the process may mount at the same place at once. */
        rfs_keeper_linger(g->mount->keeper, RFS_GUARD_PATIENCE);
    }
    /* Threads stop in the middle of their work; no exit handler may see that. */
    syscall(SYS_exit_group, 0);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Takes requests while no other thread takes them. The caller has the lock. */
static void take_requests(struct guard *g)
{
    struct rfs_channel *channel = &g->mount->channel;
    struct fuse_buf buf = {.mem = NULL};
    int rc;

    while ((rc = rfs_channel_take(channel, g->mount->session, &buf)) > 0) {
        g->deferred = false;
        fuse_session_process_buf(g->mount->session, &buf);
        if (g->deferred)
            rfs_channel_hold(channel, g->mount->session, &buf);
    }
    if (rc == -ENODEV)
        atomic_store(&g->bell.ending, true);
}

/* At each tick. The caller has the lock. */
static void look(struct guard *g)
{
    struct rfs_mount *m = g->mount;
    /* Both are looked at, whatever the first one says. */
    const bool asked = rfs_requests_look(&m->requests);
    const bool signalled = rfs_channel_look(&m->channel, m->session) || asked;
    const uint64_t turns = rfs_channel_turns(&m->channel);
    const bool unwatched = rfs_channel_is_unwatched(&m->channel);

    g->takes = unwatched && turns == g->turns ? fuse_session_fd(m->session) : -1;
    g->turns = turns;
    g->quiet = signalled || unwatched ? 0 : g->quiet + 1;
}

static void *run(void *arg)
{
    struct guard *g = arg;
    int64_t tick = rfs_bell_now() + TICK;

    is_guard = true;
    for (;;) {
        struct pollfd wanted[] = {{.fd = g->signals, .events = POLLIN},
                                  {.fd = g->bell.fd, .events = POLLIN},
                                  {.fd = g->takes, .events = POLLIN}};
        eventfd_t rings;
        const int64_t now = rfs_bell_now();

        poll(wanted, 3, atomic_load(&g->bell.asleep) ? -1 : tick > now ? (int)(tick - now) : 0);
        if (wanted[0].revents)
            take_signals(g);
        if (wanted[1].revents) {
            eventfd_read(g->bell.fd, &rings);
            atomic_store(&g->bell.asleep, false);
            g->quiet = 0;
        }
        pthread_mutex_lock(&g->lock);
        if (atomic_load(&g->bell.ending) && g->ends == 0)
            begin_to_end(g);
        const bool looks = g->mount && g->ends == 0;
        if (looks && wanted[2].revents)
            take_requests(g);
        if (rfs_bell_now() >= tick) {
            if (looks)
                look(g);
            tick = rfs_bell_now() + TICK;
        }
        if (!looks)
            g->takes = -1;
        /* The last thread that leaves the channel wakes the guard later, or is seen here. */
        atomic_store(&g->bell.asleep, g->quiet >= QUIET && g->ends == 0);
        if (looks && rfs_channel_is_unwatched(&g->mount->channel))
            atomic_store(&g->bell.asleep, false);
        const bool late = g->ends && rfs_bell_now() >= g->ends;
        pthread_mutex_unlock(&g->lock);
        if (late)
            end_process(g);
    }
    return NULL;
}

/* ---- for the others -------------------------------------------------------------------------- */

static int start_thread(struct guard *g)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attributes, run, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc;
}

int rfs_guard_start(struct rfs_mount *mount, struct rfs_error *err)
{
    struct guard *g = &the_guard;
    sigset_t set;
    int rc;

    g->mount = mount;
    g->takes = -1;
    g->foreground = mount->options->foreground;
    fill(&set, g->foreground);
    g->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    g->bell.fd = g->signals < 0 ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = g->bell.fd < 0 ? errno : 0;
    mount->bell = &g->bell;
    if (rc == 0)
        rc = start_thread(g);
    if (rc == 0)
        return 0;
    mount->bell = NULL;
    return rfs_fail(err, -rc, RFS_NOWHERE, "a higher limit of descriptors and threads",
                    "no thread for signals: %s", strerror(rc));
}

void rfs_guard_leave(void)
{
    struct guard *g = &the_guard;

    pthread_mutex_lock(&g->lock);
    g->mount = NULL;
    if (g->ends)
        g->ends += RFS_GUARD_SAVING;
    pthread_mutex_unlock(&g->lock);
}

void rfs_guard_rest(void)
{
    atomic_store(&the_guard.resting, true);
}

bool rfs_guard_is_me(void)
{
    return is_guard;
}

void rfs_guard_defer(fuse_req_t req)
{
    the_guard.deferred = true;
    fuse_reply_none(req);
}
