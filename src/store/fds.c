/* SPDX-License-Identifier: Apache-2.0 */
#include "store/fds.h"

#include "base/cancel.h"

#include <fcntl.h>
#include <unistd.h>

int rfs_fds_init(struct rfs_fds *fds, unsigned limit)
{
    *fds = (struct rfs_fds){.limit = limit};
    int rc = pthread_mutex_init(&fds->lock, NULL);
    if (rc != 0)
        return -rc;
    rc = rfs_cancel_init_cond(&fds->changed);
    if (rc != 0)
        pthread_mutex_destroy(&fds->lock);
    return rc;
}

static void idle_remove(struct rfs_fds *fds, struct rfs_fd *entry)
{
    *(entry->older ? &entry->older->newer : &fds->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &fds->newest) = entry->older;
    entry->older = entry->newer = NULL;
}

static void idle_append(struct rfs_fds *fds, struct rfs_fd *entry)
{
    entry->older = fds->newest;
    entry->newer = NULL;
    *(fds->newest ? &fds->newest->newer : &fds->oldest) = entry;
    fds->newest = entry;
}

/* The descriptor of the least recently used idle entry, now closed as far as others see; or -1. */
static int idle_steal(struct rfs_fds *fds)
{
    struct rfs_fd *victim = fds->oldest;
    if (!victim)
        return -1;
    idle_remove(fds, victim);
    const int fd = victim->fd;
    victim->fd = -1;
    return fd;
}

static void wake(struct rfs_fds *fds)
{
    if (fds->waiters > 0)
        pthread_cond_broadcast(&fds->changed);
}

void rfs_fds_destroy(struct rfs_fds *fds)
{
    for (int fd = idle_steal(fds); fd >= 0; fd = idle_steal(fds))
        close(fd);
    pthread_cond_destroy(&fds->changed);
    pthread_mutex_destroy(&fds->lock);
}

/* The second half of closing an entry: its descriptor is out of everybody's sight already. */
static void close_counted(struct rfs_fds *fds, int fd)
{
    if (fd < 0)
        return;
    close(fd);
    pthread_mutex_lock(&fds->lock);
    fds->used--;
    wake(fds);
    pthread_mutex_unlock(&fds->lock);
}

/* Opens without the lock; when the process has no descriptor left, gives up idle ones for it. */
static int open_path(struct rfs_fds *fds, const struct rfs_beneath *beneath, const char *path)
{
    for (;;) {
        const int fd = rfs_beneath_file(beneath, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd != -EMFILE && fd != -ENFILE)
            return fd;
        pthread_mutex_lock(&fds->lock);
        const int victim = idle_steal(fds);
        pthread_mutex_unlock(&fds->lock);
        if (victim < 0)
            return fd;
        close_counted(fds, victim);
    }
}

int rfs_fds_take(struct rfs_fds *fds, struct rfs_fd *entry, const struct rfs_beneath *beneath,
                 const char *path, int *fd, bool *fresh)
{
    int victim = -1;
    pthread_mutex_lock(&fds->lock);
    while (entry->fd < 0) {
        if (!entry->opening && fds->used < fds->limit) {
            fds->used++;
            break;
        }
        if (!entry->opening && (victim = idle_steal(fds)) >= 0)
            break; /* its room is ours */
        fds->waiters++;
        const int rc = rfs_cancel_wait(&fds->changed, &fds->lock);
        fds->waiters--;
        if (rc < 0) {
            pthread_mutex_unlock(&fds->lock);
            return rc;
        }
    }
    *fresh = entry->fd < 0;
    if (!*fresh) {
        if (entry->pins++ == 0)
            idle_remove(fds, entry);
        *fd = entry->fd;
        pthread_mutex_unlock(&fds->lock);
        return 0;
    }
    entry->opening = true;
    pthread_mutex_unlock(&fds->lock);

    if (victim >= 0)
        close(victim);
    const int opened = open_path(fds, beneath, path);

    pthread_mutex_lock(&fds->lock);
    entry->opening = false;
    if (opened >= 0) {
        entry->fd = *fd = opened;
        entry->pins = 1;
    } else {
        fds->used--;
    }
    wake(fds);
    pthread_mutex_unlock(&fds->lock);
    return opened >= 0 ? 0 : opened;
}

bool rfs_fds_is_open(struct rfs_fds *fds, const struct rfs_fd *entry)
{
    pthread_mutex_lock(&fds->lock);
    const bool open = entry->fd >= 0;
    pthread_mutex_unlock(&fds->lock);
    return open;
}

void rfs_fds_give(struct rfs_fds *fds, struct rfs_fd *entry, bool drop)
{
    int dropped = -1;
    pthread_mutex_lock(&fds->lock);
    if (--entry->pins == 0) {
        if (drop) {
            dropped = entry->fd;
            entry->fd = -1;
        } else {
            idle_append(fds, entry);
        }
        wake(fds);
    }
    pthread_mutex_unlock(&fds->lock);
    close_counted(fds, dropped);
}

void rfs_fds_drop(struct rfs_fds *fds, struct rfs_fd *entry)
{
    int dropped = -1;
    pthread_mutex_lock(&fds->lock);
    if (entry->fd >= 0 && entry->pins == 0) {
        idle_remove(fds, entry);
        dropped = entry->fd;
        entry->fd = -1;
    }
    pthread_mutex_unlock(&fds->lock);
    close_counted(fds, dropped);
}
