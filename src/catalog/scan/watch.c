/* SPDX-License-Identifier: Apache-2.0 */
#include "catalog/scan/watch.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/store.h"
#include "catalog/scan/internal.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define BYTES 16384   /* of events, that one read takes */
#define READS_MOST 64 /* at a time; the kernel keeps no more by its default */

/* A file is complete when its writer has closed it, or has given it its name. */
#define ENDS (IN_CLOSE_WRITE | IN_MOVED_TO)
#define COMES (IN_CREATE | IN_MOVED_TO)
#define GOES (IN_DELETE | IN_MOVED_FROM)
#define ROOT_GOES (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)

static void tell(struct rfs_watch *watch, int code)
{
    if (watch->told || code == ENOENT || code == ENOTDIR)
        return;
    watch->told = true;
    rfs_log(watch->log, RFS_WARNING,
            "%s: the kernel reports no changes in it (%s): new saves are seen when it is listed",
            watch->source, strerror(code));
}

/* Watches a folder of a save, in place of the one that came first where they are too many. */
static void add(struct rfs_watch *watch, const char *path)
{
    /* A link is not watched at its other end, which may be anywhere. */
    const int added = inotify_add_watch(watch->fd, path, ENDS | IN_ONLYDIR | IN_DONT_FOLLOW);

    if (added < 0) {
        tell(watch, errno);
        return;
    }
    for (size_t i = 0; i < RFS_WATCH_MOST; i++)
        if (watch->saves[i] == added)
            return;
    int *place = &watch->saves[watch->next];
    if (*place > 0)
        (void)inotify_rm_watch(watch->fd, *place); /* the folder may be gone */
    *place = added;
    watch->next = (watch->next + 1) % RFS_WATCH_MOST;
}

static int compare_names(const void *a, const void *b)
{
    return rfs_scan_name_compare(*(char *const *)a, *(char *const *)b);
}

/* Adds the paths of folders in PATH, of this machine, that may be saves, by their numbers. */
static void list_save_folders(const char *path, struct rfs_path_list *out)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;

    if (rfs_dir_open(NULL, path, &dir) < 0)
        return;
    while ((entry = rfs_dir_next(&dir)) != NULL)
        if ((entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) &&
            rfs_scan_step_of(entry->d_name) >= 0 &&
            !rfs_path_list_add(out, rfs_path_join(path, entry->d_name)))
            return;
    RFS_SORT_ALL(out, compare_names);
}

/* Watches the source, if that is another folder than before, or none was, and those in it. */
static void watch_root(struct rfs_watch *watch)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list folders = {0};

    watch->root = inotify_add_watch(
        watch->fd, watch->source, ENDS | COMES | GOES | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
    if (watch->root < 0) {
        tell(watch, errno);
        return;
    }
    list_save_folders(watch->source, &folders);
    for (size_t i = folders.n > RFS_WATCH_MOST ? folders.n - RFS_WATCH_MOST : 0; i < folders.n; i++)
        add(watch, folders.data[i]);
}

/* Takes an event. Says whether a save may have come, ended or gone. */
static bool hear(struct rfs_watch *watch, const struct inotify_event *event)
{
    const char *name = event->len > 0 ? event->name : "";
    const bool ends = event->mask & ENDS;

    if (event->mask & IN_Q_OVERFLOW) {
        watch->root = -1; /* also events of new folders are lost */
        return true;
    }
    if (event->wd != watch->root)
        return ends && rfs_scan_ends_save(name, true);
    if (event->mask & ROOT_GOES) {
        (void)inotify_rm_watch(watch->fd, watch->root);
        watch->root = -1;
        return true;
    }
    if (!(event->mask & IN_ISDIR))
        return ends && rfs_scan_ends_save(name, false);
    if (rfs_scan_step_of(name) < 0)
        return false;
    RFS_FREE char *path = event->mask & COMES ? rfs_path_join(watch->source, name) : NULL;
    if (path)
        add(watch, path);
    return true;
}

bool rfs_watch_take(struct rfs_watch *watch)
{
    _Alignas(struct inotify_event) char events[BYTES];
    bool news = false;

    for (unsigned i = 0; watch->fd >= 0 && i < READS_MOST; i++) {
        const ssize_t n = read(watch->fd, events, sizeof events);
        if (n <= 0)
            break;
        for (const char *at = events; at < events + n;) {
            const struct inotify_event *event = (const void *)at;
            news |= hear(watch, event);
            at += sizeof *event + event->len;
        }
    }
    if (watch->fd >= 0 && watch->root < 0)
        watch_root(watch);
    return news;
}

bool rfs_watch_rings(const struct rfs_watch *watch)
{
    struct pollfd wanted = {.fd = watch->fd, .events = POLLIN};

    return watch->fd >= 0 && poll(&wanted, 1, 0) > 0;
}

void rfs_watch_begin(struct rfs_watch *watch, const char *source, struct rfs_log *log)
{
    *watch = (struct rfs_watch){.fd = -1, .source = source, .log = log, .root = -1};
    if (rfs_store_is_url(source))
        return;
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->fd < 0)
        tell(watch, errno);
}

void rfs_watch_end(struct rfs_watch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
}
