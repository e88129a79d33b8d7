/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/request.h"

#include "mount/bell.h"
#include "mount/internal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

/* A thread ends: another thread may take its slot. */
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

/* The calling thread's own. */
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
}

/* ---- the callers ----------------------------------------------------------------------------- */

/* The number behind NAME in TEXT of base 16; 0 when it is not there. */
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
 * Whether the process or thread PID has a signal that ends it: 1, 0, or -1 when that can't be seen.
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

bool rfs_request_is_over(pid_t pid, int64_t signalled)
{
    const int dying = is_dying(pid);

    return dying > 0 || (dying < 0 && rfs_bell_now() - signalled >= RFS_REQUEST_GRACE);
}

/* ---- one request ----------------------------------------------------------------------------- */

/* The caller has the lock. */
static void give_up(struct rfs_request *request, int code)
{
    const fuse_req_t req = request->req;

    request->req = request->about = NULL;
    request->pages = 0;
    reshard_cancel_set(request->cancel, true);
    fuse_reply_err(req, code);
}

/*
 * Runs in the thread that gets the kernel's note of a signal, while the one that works on REQ goes
 * on; or, if the signal came first, in rfs_request_begin, where nothing may be given up yet.
 */
static void on_signal(fuse_req_t req, void *data)
{
    struct rfs_request *request = data;
    struct rfs_mount *m = fuse_req_userdata(req);
    bool watch = false;

    pthread_mutex_lock(&request->lock);
    if (request->about == req) {
        request->signalled = rfs_bell_now();
        watch = !request->req || !rfs_request_is_over(request->pid, request->signalled);
        if (!watch)
            give_up(request, EINTR);
    }
    pthread_mutex_unlock(&request->lock);
    if (watch)
        rfs_bell_ring(m->bell);
}

void rfs_request_was_signalled(struct rfs_mount *mount, int64_t signalled)
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
    pthread_mutex_lock(&request->lock);
    request->req = req;
    pthread_mutex_unlock(&request->lock);
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
    pthread_mutex_lock(&request->lock);
    if (request->req)
        request->pages = ino;
    pthread_mutex_unlock(&request->lock);
}

bool rfs_request_is_own(fuse_req_t req)
{
    const pid_t pid = fuse_req_ctx(req)->pid;

    return pid > 0 && syscall(SYS_tgkill, getpid(), pid, 0) == 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

bool rfs_requests_look(struct rfs_requests *all)
{
    bool left = false;

    for (struct rfs_request *request = atomic_load(&all->first); request; request = request->next) {
        pthread_mutex_lock(&request->lock);
        const bool signalled = request->about && request->signalled;
        const bool over = signalled && rfs_request_is_over(request->pid, request->signalled);
        left |= signalled && !(over && request->req);
        if (over && request->req)
            give_up(request, EINTR);
        pthread_mutex_unlock(&request->lock);
    }
    return left;
}

bool rfs_requests_lock_pages(struct rfs_requests *all, fuse_ino_t ino)
{
    bool found = false;

    for (struct rfs_request *request = atomic_load(&all->first); request && !found;
         request = request->next) {
        pthread_mutex_lock(&request->lock);
        found = request->pages == ino;
        pthread_mutex_unlock(&request->lock);
    }
    return found;
}

void rfs_requests_give_up(struct rfs_requests *all, int code)
{
    for (struct rfs_request *request = atomic_load(&all->first); request; request = request->next) {
        pthread_mutex_lock(&request->lock);
        if (request->req)
            give_up(request, code);
        pthread_mutex_unlock(&request->lock);
    }
}
