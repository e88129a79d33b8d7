/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/channel.h"

#include "mount/bell.h"
#include "mount/internal.h"
#include "mount/scratch.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * On two processors, 4 gave a tenth to a seventh more than read(2) to one reader of gathered bytes,
 * 2 nothing, and 16 less than 4.
 */
#define WATCHERS 4

/* The kernel wants room for the largest request, a write of so much, even if none is ever sent. */
#define ROOM (RFS_REQUEST_BYTES + (64 << 10))

/* A request that no thread was free for. */
struct rfs_held_request {
    struct rfs_held_request *next;
    int64_t signalled; /* when its caller got a signal, in milliseconds; 0: it did not */
    size_t size;
    struct fuse_in_header bytes[]; /* SIZE bytes: the header and what follows it */
};

int rfs_channel_init(struct rfs_channel *channel)
{
    *channel = (struct rfs_channel){.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    channel->last = &channel->first;
    pthread_mutex_init(&channel->lock, NULL);
    sem_init(&channel->turn, 0, 0);
    return channel->bell < 0 ? -errno : 0;
}

void rfs_channel_destroy(struct rfs_channel *channel)
{
    while (channel->first) {
        struct rfs_held_request *held = channel->first;

        channel->first = held->next;
        free(held);
    }
    if (channel->room)
        munmap(channel->room, ROOM);
    if (channel->bell >= 0)
        close(channel->bell);
    sem_destroy(&channel->turn);
    pthread_mutex_destroy(&channel->lock);
}

/* Returns when the calling thread is a watcher: at once, or when another thread made it one. */
static void watch(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const bool park = channel->watchers == WATCHERS;
    *(park ? &channel->parked : &channel->watchers) += 1;
    channel->turns++;
    pthread_mutex_unlock(&channel->lock);
    while (park && sem_wait(&channel->turn) < 0)
        continue;
}

/* The calling thread is a watcher no more. False when no other thread is one now. */
static bool turn_away(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const bool last = --channel->watchers == 0;
    const bool next = last && channel->parked > 0;
    channel->parked -= next;
    channel->watchers += next;
    pthread_mutex_unlock(&channel->lock);
    if (next)
        sem_post(&channel->turn);
    return next || !last;
}

/* ---- requests that are held ---------------------------------------------------------------- */

/* Takes the first; NULL when there is none. The caller has the lock. */
static struct rfs_held_request *take_held(struct rfs_channel *channel)
{
    struct rfs_held_request *held = channel->first;

    if (!held)
        return NULL;
    channel->first = held->next;
    if (!channel->first)
        channel->last = &channel->first;
    return held;
}

/*
 * The first request that is held, as if it had just been read; -1 with EAGAIN for none, with EINTR
 * once it is closed. The bell is silenced before, and rung again if there is more to report.
 */
static ssize_t receive_held(struct rfs_mount *m, void *buf, size_t size)
{
    struct rfs_channel *channel = &m->channel;
    eventfd_t rings;
    ssize_t n = -1;

    eventfd_read(channel->bell, &rings);
    pthread_mutex_lock(&channel->lock);
    struct rfs_held_request *held = take_held(channel);
    const bool closed = channel->closed;
    const bool more = channel->first || closed;
    pthread_mutex_unlock(&channel->lock);
    if (more)
        eventfd_write(channel->bell, 1);
    if (held && held->size <= size) {
        memcpy(buf, held->bytes, held->size);
        n = (ssize_t)held->size;
        rfs_request_was_signalled(m, held->signalled);
    }
    free(held);
    if (n < 0)
        errno = closed ? EINTR : EAGAIN;
    return n;
}

/* A request that nothing has been done about is answered, by ERROR, an errno. */
static void refuse(struct fuse_session *session, const struct fuse_in_header *in, int error)
{
    const struct fuse_out_header out = {sizeof out, -error, in->unique};

    if (write(fuse_session_fd(session), &out, sizeof out) < 0)
        return; /* the mount and its callers are gone */
}

/* A caller got a signal. Returns whether its request is held. */
static bool note_signal(struct rfs_channel *channel, const struct fuse_interrupt_in *about)
{
    pthread_mutex_lock(&channel->lock);
    struct rfs_held_request *held = channel->first;
    while (held && held->bytes->unique != about->unique)
        held = held->next;
    if (held)
        held->signalled = rfs_bell_now();
    pthread_mutex_unlock(&channel->lock);
    return held;
}

int rfs_channel_take(struct rfs_channel *channel, struct fuse_session *session,
                     struct fuse_buf *buf)
{
    if (!channel->room) {
        void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        channel->room = room == MAP_FAILED ? NULL : room;
    }
    while (channel->room && rfs_channel_is_unwatched(channel)) {
        const struct fuse_in_header *in = channel->room;
        const ssize_t n = read(fuse_session_fd(session), channel->room, ROOM);

        if (n < (ssize_t)sizeof *in)
            return n < 0 && errno == ENODEV ? -ENODEV : 0;
        if (in->opcode == FUSE_INTERRUPT &&
            (size_t)n >= sizeof *in + sizeof(struct fuse_interrupt_in) &&
            note_signal(channel, (const struct fuse_interrupt_in *)(in + 1)))
            continue;
        *buf = (struct fuse_buf){.mem = channel->room, .size = (size_t)n};
        return 1;
    }
    return 0;
}

void rfs_channel_hold(struct rfs_channel *channel, struct fuse_session *session,
                      const struct fuse_buf *buf)
{
    struct rfs_held_request *held = malloc(sizeof *held + buf->size);

    if (!held) {
        refuse(session, buf->mem, ENOMEM);
        return;
    }
    *held = (struct rfs_held_request){.size = buf->size};
    memcpy(held->bytes, buf->mem, buf->size);
    pthread_mutex_lock(&channel->lock);
    *channel->last = held;
    channel->last = &held->next;
    pthread_mutex_unlock(&channel->lock);
    eventfd_write(channel->bell, 1);
}

/*
 * Moves those that are to be given up to *OUT. Whether others are left whose callers got a signal.
 * The caller has the lock.
 */
static bool sort_out(struct rfs_channel *channel, struct rfs_held_request **out)
{
    bool left = false;

    channel->last = &channel->first;
    while (*channel->last) {
        struct rfs_held_request *held = *channel->last;

        if (held->signalled && rfs_request_is_over((pid_t)held->bytes->pid, held->signalled)) {
            *channel->last = held->next;
            held->next = *out;
            *out = held;
        } else {
            left |= held->signalled != 0;
            channel->last = &held->next;
        }
    }
    return left;
}

bool rfs_channel_look(struct rfs_channel *channel, struct fuse_session *session)
{
    struct rfs_held_request *over = NULL;

    pthread_mutex_lock(&channel->lock);
    const bool left = sort_out(channel, &over);
    pthread_mutex_unlock(&channel->lock);
    while (over) {
        struct rfs_held_request *held = over;

        over = held->next;
        refuse(session, held->bytes, EINTR);
        free(held);
    }
    return left;
}

/* ---- for all threads ------------------------------------------------------------------------- */

uint64_t rfs_channel_turns(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const uint64_t turns = channel->turns;
    pthread_mutex_unlock(&channel->lock);
    return turns;
}

bool rfs_channel_is_unwatched(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const bool unwatched = channel->watchers == 0 && channel->parked == 0;
    pthread_mutex_unlock(&channel->lock);
    return unwatched;
}

void rfs_channel_close(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->closed = true;
    pthread_mutex_unlock(&channel->lock);
    eventfd_write(channel->bell, 1);
}

/*
 * The session's end cancels threads, here in sem_wait, poll or read: the counts don't matter any
 * more then.
 */
static ssize_t receive(int fd, void *buf, size_t size, void *userdata)
{
    struct rfs_mount *m = userdata;
    struct rfs_channel *channel = &m->channel;
    struct pollfd wanted[] = {{.fd = fd, .events = POLLIN},
                              {.fd = channel->bell, .events = POLLIN}};
    ssize_t n;

    watch(channel);
    do
        n = poll(wanted, 2, -1) < 0  ? -1
            : wanted[1].revents != 0 ? receive_held(m, buf, size)
                                     : read(fd, buf, size);
    while (n < 0 && errno == EAGAIN);
    const int code = errno;
    if (!turn_away(channel))
        rfs_bell_rouse(m->bell);
    if (n < 0 && code == ENODEV)
        rfs_bell_end(m->bell);
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
    atomic_bool *begun = &m->channel.begun;

    if (atomic_load_explicit(begun, memory_order_relaxed) || atomic_exchange(begun, true))
        return writev(fd, iov, count);
    allow_parallel_lookups(iov, count);
    const ssize_t n = writev(fd, iov, count);
    if (n >= 0)
        m->started(m->started_ctx);
    return n;
}

int rfs_channel_open(struct fuse_session *session)
{
    const struct fuse_custom_io io = {.writev = answer, .read = receive};
    const int fd = fuse_session_fd(session);
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return fuse_session_custom_io(session, &io, fd);
}
