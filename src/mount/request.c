/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/request.h"

#include "base/cleanup.h"
#include "base/thread.h"
#include "mount/internal.h"
#include "mount/message.h"
#include "mount/mount_options.h"
#include "mount/request_buffer.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TICK 100  /* milliseconds, of the guard */
#define QUIET 20u /* ticks without anything to look after, until the guard sleeps */

/*
 * The number of threads that watch. On two processors, 4 gave a tenth to a seventh more than
 * read(2) to one reader of gathered bytes, 2 nothing, and 16 less than 4.
 */
#define WATCHERS 4

/* A request that no thread was free for. */
struct rfs_held_request {
    struct rfs_held_request *next;
    int64_t signalled; /* when its caller got a signal, in milliseconds; 0: it did not */
    size_t size;
    struct fuse_in_header bytes[]; /* SIZE bytes: the header and what follows it */
};

/*
 * The guard: one in a process, which outlives the mount, because it may have to end the process
 * while that is taken down.
 */
struct guard {
    const struct rfs_mount_options *options; /* borrowed; constant */
    int signals;                             /* descriptor of the signals that it takes */
    int bell;                                /* event descriptor that wakes it */
    atomic_bool asleep;                      /* there is nothing to watch */
    atomic_bool ending;                      /* the mount is to end */
    atomic_bool resting;                     /* nothing can hang any more */

    pthread_mutex_t lock; /* held while it looks at the mount, over system calls that do not wait */
    struct rfs_mount *mount; /* borrowed; NULL: it is being taken down */
    bool ends;               /* the end of the mount has begun */
    unsigned patience;       /* ticks at which all others sleep, until it ends the process */

    /* The thread's own. */
    int takes;      /* descriptor of the kernel's requests, while it takes them; or -1 */
    bool refused;   /* that it could take none was told */
    bool deferred;  /* the request at hand may wait */
    uint64_t turns; /* of the requests, at the last tick */
    unsigned quiet; /* ticks without anything to look after */
};

static _Thread_local bool is_guard;

static struct guard the_guard = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .patience = RFS_GUARD_PATIENCE / TICK,
};

/* ---- waking the guard ------------------------------------------------------------------------ */

/* Returns the milliseconds of a clock that never goes back. */
static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Makes the guard look at requests, or ends its sleep. */
static void wake_guard(void)
{
    eventfd_write(the_guard.bell, 1);
}

/* Ends the guard's sleep; makes no system call if it is awake. */
static void rouse_guard(void)
{
    if (atomic_exchange(&the_guard.asleep, false))
        wake_guard();
}

void rfs_guard_end(void)
{
    if (!atomic_exchange(&the_guard.ending, true))
        wake_guard();
}

/* ---- the requests of threads ----------------------------------------------------------------- */

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

/* Lets another thread take the slot of one that ends. */
static void leave(void *p)
{
    struct rfs_request *request = p;

    reshard_cancel_use(NULL);
    atomic_store(&request->taken, false);
}

static void make_key(void)
{
    key_error = pthread_key_create(&key, leave);
}

static struct rfs_request *make(struct rfs_mount *m)
{
    struct rfs_request *request = calloc(1, sizeof *request);

    if (!request || reshard_cancel_new(m->view, &request->cancel) < 0) {
        free(request);
        return NULL;
    }
    pthread_mutex_init(&request->lock, NULL);
    atomic_init(&request->taken, true);
    request->next = atomic_load(&m->requests.first);
    while (!atomic_compare_exchange_weak(&m->requests.first, &request->next, request))
        continue;
    return request;
}

/* Returns the calling thread's own request, made at the first call; NULL: out of memory. */
static struct rfs_request *mine(struct rfs_mount *m)
{
    struct rfs_request *request;

    pthread_once(&once, make_key);
    if (key_error)
        return NULL;
    request = pthread_getspecific(key);
    if (request)
        return request;
    request = atomic_load(&m->requests.first);
    while (request && atomic_exchange(&request->taken, true))
        request = request->next;
    if (!request)
        request = make(m);
    if (!request)
        return NULL;
    if (pthread_setspecific(key, request) != 0) {
        atomic_store(&request->taken, false);
        return NULL;
    }
    reshard_cancel_use(request->cancel);
    return request;
}

/* ---- the callers ----------------------------------------------------------------------------- */

/* Reads the number behind NAME in TEXT, of base 16; 0 when it is not there. */
static unsigned long long mask_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

static unsigned long long bit(int number)
{
    return 1ULL << (number - 1);
}

/*
 * Returns whether the process or thread PID has a signal that ends it: 1, 0, or -1 when that can't
 * be seen.
 */
static int is_dying(pid_t pid)
{
    char path[64], text[4096];
    ssize_t n;
    int fd;

    if (pid <= 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    if (!strstr(text, "\nSigPnd:\t"))
        return -1;
    const unsigned long long pending = mask_of(text, "\nSigPnd:\t") | mask_of(text, "\nShdPnd:\t");
    const unsigned long long harmless =
        mask_of(text, "\nSigBlk:\t") | mask_of(text, "\nSigIgn:\t") | mask_of(text, "\nSigCgt:\t") |
        bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGSTOP) | bit(SIGTSTP) |
        bit(SIGTTIN) | bit(SIGTTOU);
    return (pending & ~harmless) != 0;
}

/*
 * Returns whether a request is to be given up whose caller PID got a signal at SIGNALLED, in
 * milliseconds: the caller is about to end by it, or can't be seen and has waited long enough.
 */
static bool is_over(pid_t pid, int64_t signalled)
{
    const int dying = is_dying(pid);

    return dying > 0 || (dying < 0 && now_ms() - signalled >= RFS_REQUEST_GRACE);
}

/* ---- one request ----------------------------------------------------------------------------- */

/* Answers a request by CODE, and cancels its work. The caller has the lock. */
static void give_up(struct rfs_request *request, int code)
{
    const fuse_req_t req = request->req;

    request->req = request->about = NULL;
    request->pages = 0;
    reshard_cancel_set(request->cancel, true);
    fuse_reply_err(req, code);
}

/*
 * Notes a signal to the caller of REQ. Runs in the thread that gets the kernel's note of a signal,
 * while the one that works on REQ goes on; or, if the signal came first, in rfs_request_begin,
 * where nothing may be given up yet.
 */
static void on_signal(fuse_req_t req, void *data)
{
    struct rfs_request *request = data;
    bool watch = false;

    pthread_mutex_lock(&request->lock);
    if (request->about == req) {
        request->signalled = now_ms();
        watch = !request->req || !is_over(request->pid, request->signalled);
        if (!watch)
            give_up(request, EINTR);
    }
    pthread_mutex_unlock(&request->lock);
    if (watch)
        wake_guard();
}

/* Notes that the caller of the request that this thread is about to begin got a signal. */
static void note_signalled(struct rfs_mount *mount, int64_t signalled)
{
    struct rfs_request *request = mine(mount);

    if (request)
        request->inherited = signalled;
}

struct rfs_request *rfs_request_begin(fuse_req_t req)
{
    struct rfs_request *request = mine(fuse_req_userdata(req));

    if (!request)
        return NULL;
    reshard_cancel_set(request->cancel, false);
    pthread_mutex_lock(&request->lock);
    request->about = req;
    request->pid = fuse_req_ctx(req)->pid;
    request->signalled = request->inherited;
    pthread_mutex_unlock(&request->lock);
    request->inherited = 0;
    fuse_req_interrupt_func(req, on_signal, request);
    RFS_LOCKED(&request->lock);
    request->req = req;
    return request;
}

bool rfs_request_end(struct rfs_request *request, fuse_req_t req)
{
    if (!request)
        return true;
    pthread_mutex_lock(&request->lock);
    const bool ours = request->req != NULL;
    request->req = request->about = NULL;
    request->pages = 0;
    pthread_mutex_unlock(&request->lock);
    /* Waits for an on_signal that has begun: the next request is none of its business. */
    if (ours)
        fuse_req_interrupt_func(req, NULL, NULL);
    return ours;
}

void rfs_request_locks_pages(struct rfs_request *request, fuse_ino_t ino)
{
    if (!request)
        return;
    RFS_LOCKED(&request->lock);
    if (request->req)
        request->pages = ino;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/*
 * Gives up requests whose callers are about to end. Returns whether there are others whose callers
 * got a signal.
 */
static bool look_at_requests(struct rfs_requests *all)
{
    bool left = false;

    for (struct rfs_request *request = atomic_load(&all->first); request; request = request->next) {
        RFS_LOCKED(&request->lock);
        const bool signalled = request->about && request->signalled;
        const bool over = signalled && is_over(request->pid, request->signalled);
        left |= signalled && !(over && request->req);
        if (over && request->req)
            give_up(request, EINTR);
    }
    return left;
}

bool rfs_requests_lock_pages(struct rfs_requests *all, fuse_ino_t ino)
{
    bool found = false;

    for (struct rfs_request *request = atomic_load(&all->first); request && !found;
         request = request->next) {
        RFS_LOCKED(&request->lock);
        found = request->pages == ino;
    }
    return found;
}

/* Gives up all requests, as CODE, an errno. */
static void give_up_all(struct rfs_requests *all, int code)
{
    for (struct rfs_request *request = atomic_load(&all->first); request; request = request->next) {
        RFS_LOCKED(&request->lock);
        if (request->req)
            give_up(request, code);
    }
}

int rfs_requests_init(struct rfs_requests *all)
{
    *all = (struct rfs_requests){.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    all->last = &all->held;
    pthread_mutex_init(&all->lock, NULL);
    sem_init(&all->turn, 0, 0);
    return all->wake < 0 ? -errno : 0;
}

void rfs_requests_end(struct rfs_requests *all)
{
    reshard_cancel_use(NULL);
    if (!key_error && atomic_load(&all->first))
        pthread_setspecific(key, NULL);
    for (struct rfs_request *request = atomic_exchange(&all->first, NULL); request;) {
        struct rfs_request *next = request->next;

        reshard_cancel_free(request->cancel);
        pthread_mutex_destroy(&request->lock);
        free(request);
        request = next;
    }
    while (all->held) {
        struct rfs_held_request *held = all->held;

        all->held = held->next;
        free(held);
    }
    if (all->room)
        munmap(all->room, all->room_bytes);
    if (all->wake >= 0)
        close(all->wake);
    sem_destroy(&all->turn);
    pthread_mutex_destroy(&all->lock);
}

/* ---- threads that wait for requests ---------------------------------------------------------- */

/* Returns when the calling thread is a watcher: at once, or when another thread made it one. */
static void watch(struct rfs_requests *all)
{
    pthread_mutex_lock(&all->lock);
    const bool park = all->watchers == WATCHERS;
    *(park ? &all->parked : &all->watchers) += 1;
    all->turns++;
    pthread_mutex_unlock(&all->lock);
    while (park && sem_wait(&all->turn) < 0)
        continue;
}

/* Ends the calling thread's watch. Returns whether another thread watches now. */
static bool turn_away(struct rfs_requests *all)
{
    pthread_mutex_lock(&all->lock);
    const bool last = --all->watchers == 0;
    const bool next = last && all->parked > 0;
    all->parked -= next;
    all->watchers += next;
    pthread_mutex_unlock(&all->lock);
    if (next)
        sem_post(&all->turn);
    return next || !last;
}

/* Returns whether no thread waits for requests now, and (unless NULL) how often one came so far. */
static bool is_unwatched(struct rfs_requests *all, uint64_t *turns)
{
    RFS_LOCKED(&all->lock);
    const bool unwatched = all->watchers == 0 && all->parked == 0;
    if (turns)
        *turns = all->turns;
    return unwatched;
}

/* Makes no thread wait any more: as if each had got a signal. */
static void close_requests(struct rfs_requests *all)
{
    pthread_mutex_lock(&all->lock);
    all->closed = true;
    pthread_mutex_unlock(&all->lock);
    eventfd_write(all->wake, 1);
}

/* ---- requests that are held ------------------------------------------------------------------ */

/* Takes the first held request; NULL when there is none. The caller has the lock. */
static struct rfs_held_request *take_held(struct rfs_requests *all)
{
    struct rfs_held_request *held = all->held;

    if (!held)
        return NULL;
    all->held = held->next;
    if (!all->held)
        all->last = &all->held;
    return held;
}

/*
 * Receives the first request that is held, as if it had just been read; -1 with EAGAIN for none,
 * with EINTR once all is closed. Watchers are woken again if there is more to report.
 */
static ssize_t receive_held(struct rfs_mount *m, void *buf, size_t size)
{
    struct rfs_requests *all = &m->requests;
    eventfd_t rings;
    ssize_t n = -1;

    eventfd_read(all->wake, &rings);
    pthread_mutex_lock(&all->lock);
    struct rfs_held_request *held = take_held(all);
    const bool closed = all->closed;
    const bool more = all->held || closed;
    pthread_mutex_unlock(&all->lock);
    if (more)
        eventfd_write(all->wake, 1);
    if (held && held->size <= size) {
        memcpy(buf, held->bytes, held->size);
        n = (ssize_t)held->size;
        note_signalled(m, held->signalled);
    }
    free(held);
    if (n < 0)
        errno = closed ? EINTR : EAGAIN;
    return n;
}

/*
 * Reads a request of the kernel. An unmount that meets a request on its way fails that read with
 * ECONNABORTED, and the next ones with ENODEV: here all have ENODEV.
 */
static ssize_t read_request(int fd, void *buf, size_t size)
{
    const ssize_t n = read(fd, buf, size);

    if (n < 0 && errno == ECONNABORTED)
        errno = ENODEV;
    return n;
}

/* Answers a request that nothing has been done about by ERROR, an errno. */
static void refuse(struct fuse_session *session, const struct fuse_in_header *in, int error)
{
    const struct fuse_out_header out = {sizeof out, -error, in->unique};

    if (write(fuse_session_fd(session), &out, sizeof out) < 0)
        return; /* the mount and its callers are gone */
}

/* Notes that a caller got a signal. Returns whether its request is held. */
static bool note_signal(struct rfs_requests *all, const struct fuse_interrupt_in *about)
{
    RFS_LOCKED(&all->lock);
    struct rfs_held_request *held = all->held;
    while (held && held->bytes->unique != about->unique)
        held = held->next;
    if (held)
        held->signalled = now_ms();
    return held;
}

/*
 * Makes the guard's memory as large as the threads' own: the kernel wants room for the largest
 * request, a write of what was agreed on, even if none is ever sent. 0 or -errno.
 */
static int make_room(struct rfs_requests *all)
{
    const size_t wanted = atomic_load(&all->wanted_bytes);

    if (wanted <= all->room_bytes)
        return 0;
    void *room = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return -errno;
    if (all->room)
        munmap(all->room, all->room_bytes);
    all->room = room;
    all->room_bytes = wanted;
    return 0;
}

/* Returns whether a read gives no request, and all is well: nobody asks, or does so no longer. */
static bool is_nothing(int error)
{
    return error == EAGAIN || error == EINTR || error == ENOENT;
}

/*
 * Takes one request of the kernel, if there is any while no thread waits. Notes signals to the
 * callers of held requests. *buf is the memory of ALL, until the next call. 1, 0 for none, or
 * -errno: -ENODEV when the mount is gone.
 */
static int take_request(struct rfs_requests *all, struct fuse_session *session,
                        struct fuse_buf *buf)
{
    const int rc = make_room(all);

    if (rc < 0)
        return rc;
    while (is_unwatched(all, NULL)) {
        const struct fuse_in_header *in = all->room;
        const ssize_t n = read_request(fuse_session_fd(session), all->room, all->room_bytes);

        if (n < (ssize_t)sizeof *in)
            return n >= 0 ? -EIO : is_nothing(errno) ? 0 : -errno;
        if (in->opcode == FUSE_INTERRUPT &&
            (size_t)n >= sizeof *in + sizeof(struct fuse_interrupt_in) &&
            note_signal(all, (const struct fuse_interrupt_in *)(in + 1)))
            continue;
        *buf = (struct fuse_buf){.mem = all->room, .size = (size_t)n};
        return 1;
    }
    return 0;
}

/* Holds the request that was taken last. */
static void hold_request(struct rfs_requests *all, struct fuse_session *session,
                         const struct fuse_buf *buf)
{
    struct rfs_held_request *held = malloc(sizeof *held + buf->size);

    if (!held) {
        refuse(session, buf->mem, ENOMEM);
        return;
    }
    *held = (struct rfs_held_request){.size = buf->size};
    memcpy(held->bytes, buf->mem, buf->size);
    pthread_mutex_lock(&all->lock);
    *all->last = held;
    all->last = &held->next;
    pthread_mutex_unlock(&all->lock);
    eventfd_write(all->wake, 1);
}

/*
 * Moves held requests that are to be given up to *OUT. Returns whether others are left whose
 * callers got a signal. The caller has the lock.
 */
static bool sort_out(struct rfs_requests *all, struct rfs_held_request **out)
{
    bool left = false;

    all->last = &all->held;
    while (*all->last) {
        struct rfs_held_request *held = *all->last;

        if (held->signalled && is_over((pid_t)held->bytes->pid, held->signalled)) {
            *all->last = held->next;
            held->next = *out;
            *out = held;
        } else {
            left |= held->signalled != 0;
            all->last = &held->next;
        }
    }
    return left;
}

/*
 * Gives up held requests whose callers are about to end. Returns whether there are others whose
 * callers got a signal.
 */
static bool look_at_held(struct rfs_requests *all, struct fuse_session *session)
{
    struct rfs_held_request *over = NULL;

    pthread_mutex_lock(&all->lock);
    const bool left = sort_out(all, &over);
    pthread_mutex_unlock(&all->lock);
    while (over) {
        struct rfs_held_request *held = over;

        over = held->next;
        refuse(session, held->bytes, EINTR);
        free(held);
    }
    return left;
}

/* ---- receiving and answering ----------------------------------------------------------------- */

/*
 * Receives a request. The session's end cancels threads, here in sem_wait, poll or read: the counts
 * don't matter any more then.
 */
static ssize_t receive(int fd, void *buf, size_t size, void *userdata)
{
    struct rfs_mount *m = userdata;
    struct rfs_requests *all = &m->requests;
    struct pollfd wanted[] = {{.fd = fd, .events = POLLIN}, {.fd = all->wake, .events = POLLIN}};
    ssize_t n;

    atomic_store_explicit(&all->wanted_bytes, size, memory_order_relaxed);
    watch(all);
    do
        n = poll(wanted, 2, -1) < 0  ? -1
            : wanted[1].revents != 0 ? receive_held(m, buf, size)
                                     : read_request(fd, buf, size);
    while (n < 0 && errno == EAGAIN);
    const int code = errno;
    if (!turn_away(all))
        rouse_guard();
    if (n < 0 && code == ENODEV)
        rfs_guard_end();
    errno = code;
    return n;
}

/*
 * Libfuse before 3.16 does not pass this wish of op_init on. Without it, one lookup blocks all
 * other lookups in the same folder, and nothing wakes those.
 */
static void allow_parallel_lookups(const struct iovec *iov, int count)
{
    struct fuse_init_out *out = count > 1 ? iov[1].iov_base : NULL;

    if (out && iov[1].iov_len >= offsetof(struct fuse_init_out, flags) + sizeof out->flags)
        out->flags |= FUSE_PARALLEL_DIROPS;
}

static ssize_t answer(int fd, struct iovec *iov, int count, void *userdata)
{
    struct rfs_mount *m = userdata;
    atomic_bool *begun = &m->requests.begun;

    if (atomic_load_explicit(begun, memory_order_relaxed) || atomic_exchange(begun, true))
        return writev(fd, iov, count);
    allow_parallel_lookups(iov, count);
    const ssize_t n = writev(fd, iov, count);
    if (n >= 0)
        m->started(m->started_ctx);
    return n;
}

int rfs_requests_open(struct fuse_session *session)
{
    const struct fuse_custom_io io = {.writev = answer, .read = receive};
    const int fd = fuse_session_fd(session);
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return fuse_session_custom_io(session, &io, fd);
}

/* ---- signals that end a mount ---------------------------------------------------------------- */

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static bool ends_by_hangup(const struct rfs_mount_options *options)
{
    return options->foreground && !options->set.follow;
}

/*
 * Signals that were ignored when the program started stay so; but a SIGHUP that does not end the
 * mount does something else.
 */
static void fill_signals(sigset_t *set, const struct rfs_mount_options *options)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((numbers[i] == SIGHUP && !ends_by_hangup(options)) || !is_ignored(numbers[i]))
            sigaddset(set, numbers[i]);
}

void rfs_guard_block_signals(const struct rfs_mount_options *options)
{
    sigset_t set;

    fill_signals(&set, options);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Opens the descriptor that tells of these signals. It, or -1 with errno. */
static int open_signals(const struct rfs_mount_options *options)
{
    sigset_t set;

    fill_signals(&set, options);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* What signals ask for. */
enum { ASKS_END = 1, ASKS_LOOK = 2 };

/* Takes the signals that have come. Returns what they ask for: that the mount ends, or looks. */
static unsigned take_signals(int fd, const struct rfs_mount_options *options)
{
    struct signalfd_siginfo info;
    unsigned asked = 0;

    while (read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP && options->set.follow)
            asked |= ASKS_LOOK;
        else if (info.ssi_signo == SIGHUP && !options->foreground)
            rfs_message_put(
                NULL, RESHARD_LOG_WARNING,
                "SIGHUP: nothing is read again while it is mounted; try: unmount and mount");
        else
            asked |= ASKS_END;
    }
    return asked;
}

/* ---- the guard's thread ---------------------------------------------------------------------- */

/* Ends the session and all requests. The caller has the lock. */
static void begin_to_end(struct guard *g)
{
    g->ends = true;
    fuse_session_exit(g->mount->session);
    reshard_cancel_all(g->mount->view);
    give_up_all(&g->mount->requests, ENOTCONN);
    close_requests(&g->mount->requests);
}

/* Returns whether a thread, by its folder in TASKS, waits in a system call (or has ended). */
static bool sleeps(DIR *tasks, const char *thread)
{
    char path[64], text[256];

    snprintf(path, sizeof path, "%.20s/stat", thread);
    RFS_CLOSE const int fd = openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return true;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && strchr("SDZX", name_end[2]);
}

/*
 * Returns whether all other threads wait in system calls. One that runs, or waits for a processor,
 * comes to its end by itself, on a machine however busy. True where /proc does not tell.
 */
static bool others_sleep(void)
{
    const long me = syscall(SYS_gettid);
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    bool sleep = true;

    while (tasks && sleep && (task = readdir(tasks)))
        if (task->d_name[0] != '.' && strtol(task->d_name, NULL, 10) != me)
            sleep = sleeps(tasks, task->d_name);
    if (tasks)
        closedir(tasks);
    return sleep;
}

/* Ends the process, in which calls on sources hang. */
static void end_process(struct guard *g)
{
    if (atomic_load(&g->resting))
        return;
    rfs_message_put(NULL, RESHARD_LOG_WARNING,
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

/* Takes nothing until the next tick, because it could not, and says so once. */
static void refrain(struct guard *g, int rc)
{
    char line[128];

    g->takes = -1;
    if (g->refused)
        return;
    g->refused = true;
    snprintf(line, sizeof line,
             "requests that find no free thread wait, as no other can take them: %s",
             strerror(-rc));
    rfs_message_put(NULL, RESHARD_LOG_WARNING, line);
}

/* Takes requests while no other thread takes them. The caller has the lock. */
static void take_requests(struct guard *g)
{
    struct rfs_requests *all = &g->mount->requests;
    struct fuse_buf buf = {.mem = NULL};
    int rc;

    while ((rc = take_request(all, g->mount->session, &buf)) > 0) {
        g->deferred = false;
        fuse_session_process_buf(g->mount->session, &buf);
        if (g->deferred)
            hold_request(all, g->mount->session, &buf);
    }
    if (rc == -ENODEV)
        atomic_store(&g->ending, true);
    else if (rc < 0)
        refrain(g, rc);
}

/* Looks after requests, at each tick. The caller has the lock. */
static void look(struct guard *g)
{
    struct rfs_mount *m = g->mount;
    /* Both are looked at, whatever the first one says. */
    const bool asked = look_at_requests(&m->requests);
    const bool signalled = look_at_held(&m->requests, m->session) || asked;
    uint64_t turns;
    const bool unwatched = is_unwatched(&m->requests, &turns);

    /* Before the first thread came, nobody knows how long a read of a request has to be. */
    g->takes = unwatched && turns > 0 && turns == g->turns ? fuse_session_fd(m->session) : -1;
    g->turns = turns;
    g->quiet = signalled || unwatched ? 0 : g->quiet + 1;
}

static void *run(void *arg)
{
    struct guard *g = arg;
    int64_t tick = now_ms() + TICK;

    is_guard = true;
    for (;;) {
        struct pollfd wanted[] = {{.fd = g->signals, .events = POLLIN},
                                  {.fd = g->bell, .events = POLLIN},
                                  {.fd = g->takes, .events = POLLIN}};
        eventfd_t rings;
        const int64_t now = now_ms();

        poll(wanted, 3, atomic_load(&g->asleep) ? -1 : tick > now ? (int)(tick - now) : 0);
        const unsigned asked = wanted[0].revents ? take_signals(g->signals, g->options) : 0;
        if (asked & ASKS_END)
            atomic_store(&g->ending, true);
        if (wanted[1].revents) {
            eventfd_read(g->bell, &rings);
            atomic_store(&g->asleep, false);
            g->quiet = 0;
        }
        pthread_mutex_lock(&g->lock);
        if (atomic_load(&g->ending) && !g->ends)
            begin_to_end(g);
        const bool looks = g->mount && !g->ends;
        if (looks && wanted[2].revents)
            take_requests(g);
        if (looks && asked & ASKS_LOOK)
            reshard_look(g->mount->view, RESHARD_LOOK_LATER);
        if (now_ms() >= tick) {
            if (looks)
                look(g);
            else if (g->patience > 0 && others_sleep())
                g->patience--;
            tick = now_ms() + TICK;
        }
        if (!looks)
            g->takes = -1;
        /* The last thread that waited wakes the guard later, or is seen here. */
        atomic_store(&g->asleep, g->quiet >= QUIET && !g->ends);
        if (looks && is_unwatched(&g->mount->requests, NULL))
            atomic_store(&g->asleep, false);
        const bool late = g->patience == 0;
        pthread_mutex_unlock(&g->lock);
        if (late)
            end_process(g);
    }
    return NULL;
}

/* ---- the guard, for the others --------------------------------------------------------------- */

static int start_thread(struct guard *g)
{
    pthread_t thread;
    const int rc = rfs_thread_start(&thread, run, g);

    return rc != 0 ? rc : pthread_detach(thread);
}

int rfs_guard_start(struct rfs_mount *mount, struct rfs_error *err)
{
    struct guard *g = &the_guard;
    int rc;

    g->mount = mount;
    g->takes = -1;
    g->options = mount->options;
    g->signals = open_signals(mount->options);
    g->bell = g->signals < 0 ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = g->bell < 0 ? errno : 0;
    if (rc == 0)
        rc = start_thread(g);
    if (rc == 0)
        return 0;
    return rfs_fail(err, -rc, RFS_NOWHERE, "a higher limit of descriptors and threads",
                    "no thread for signals: %s", strerror(rc));
}

void rfs_guard_leave(void)
{
    struct guard *g = &the_guard;

    RFS_LOCKED(&g->lock);
    if (!g->ends)
        begin_to_end(g);
    g->mount = NULL;
    g->patience += (RFS_GUARD_SAVING + RFS_GUARD_KEEPER) / TICK;
}

void rfs_guard_unmounted(void)
{
    struct guard *g = &the_guard;
    const unsigned least = (RFS_GUARD_PATIENCE + RFS_GUARD_SAVING) / TICK;

    RFS_LOCKED(&g->lock);
    g->patience = g->patience < least ? g->patience : least;
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
