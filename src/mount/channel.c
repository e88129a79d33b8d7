/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/channel.h"

#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * On two processors, 4 gave a tenth to a seventh more than read(2) to one reader of gathered bytes, 2 nothing, and
 * 16 less than 4.
 */
#define WATCHERS 4

void rfs_channel_init(struct rfs_channel *channel)
{
    *channel = (struct rfs_channel){0};
    pthread_mutex_init(&channel->lock, NULL);
    sem_init(&channel->turn, 0, 0);
}

void rfs_channel_destroy(struct rfs_channel *channel)
{
    sem_destroy(&channel->turn);
    pthread_mutex_destroy(&channel->lock);
}

/* Returns when the calling thread is a watcher: at once, or when somebody made it one. */
static void watch(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const bool park = channel->watchers == WATCHERS;
    *(park ? &channel->parked : &channel->watchers) += 1;
    pthread_mutex_unlock(&channel->lock);
    while (park && sem_wait(&channel->turn) < 0)
        continue;
}

/* The calling thread is a watcher no more; one stays, if there is anybody. */
static void turn_away(struct rfs_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    const bool next = --channel->watchers == 0 && channel->parked > 0;
    channel->parked -= next;
    channel->watchers += next;
    pthread_mutex_unlock(&channel->lock);
    if (next)
        sem_post(&channel->turn);
}

/*
 * The session's end cancels threads, here in sem_wait, poll or read: the counts don't matter any more then. A signal
 * ends the wait of the main thread with EINTR.
 */
static ssize_t receive(int fd, void *buf, size_t size, void *userdata)
{
    struct rfs_channel *channel = &((struct rfs_mount *)userdata)->channel;
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    ssize_t n;

    watch(channel);
    do
        n = poll(&wanted, 1, -1) < 0 ? -1 : read(fd, buf, size);
    while (n < 0 && errno == EAGAIN);
    const int code = errno;
    turn_away(channel);
    errno = code;
    return n;
}

static ssize_t answer(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    return writev(fd, iov, count);
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
