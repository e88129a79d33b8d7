/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delay_server SRC MNT [-d MICROSECONDS] [-r REQUEST_BYTES] [-t FILE] - a folder on slow storage.
 *
 * Mirrors SRC read-only. Each read of a file is answered so long after it came (2000 µs unless
 * given), whatever its size; any number of them wait at the same time, so that depth counts as it
 * does for a network file system or an object store: each read is one round trip, and the storage
 * behind it is as wide as one likes. That is a client of NFS or Lustre as far as it matters here:
 *   - its largest request (rsize, 1 MiB for both as they are set up mostly) is REQUEST_BYTES:
 *     longer reads are cut into several, one after the other;
 *   - no page cache and no read-ahead of the kernel (direct_io): what is measured is the reader's
 *     own work, and each pass over a file costs the same. A kernel's read-ahead would only hide the
 *     delay from who reads in sequence;
 *   - attributes and names stay in the kernel for a minute, as the attribute caches of both do for
 *     some seconds; opening costs nothing.
 *
 * FILE is made when the first read comes.
 *
 * Requests are taken by the session's thread, which only notes when they are due; ANSWERERS threads
 * wait for that time, in the order of arrival, and answer from a mapping of the file: one copy, to
 * leave as much of the processors as can be to who is measured.
 *
 * Stays in the foreground, so that its parent knows its id; ends on a signal or an unmount. For
 * trusted folders that nobody changes meanwhile.
 */
#define FUSE_USE_VERSION 314
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fuse_lowlevel.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_REQUEST = 1 << 20, ANSWERERS = 4, MOST_NODES = 1 << 16 };

/*
 * What was looked up; never forgotten, so that ids stay. Inode numbers are places in the table + 1.
 */
struct node {
    char *path;
    struct stat st;
    _Atomic(void *) data; /* the mapping of a file, made when it is first opened */
};

static struct node nodes[MOST_NODES];
static size_t n_nodes; /* changed by the session's thread alone */
static uint64_t delay_ns = 2000000;
static uint64_t request_bytes = MOST_REQUEST;
static const char *told; /* a file to make at the first read; NULL: none, or it is made */

/* A read that waits for its time. */
struct waiting {
    struct waiting *next;
    fuse_req_t req;
    const struct node *node;
    size_t size;
    off_t offset;
    struct timespec due;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct waiting *first, **last;
    int ending;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &queue.first, 0};

/* ---- answering ------------------------------------------------------------------------------- */

static void reply(const struct waiting *read)
{
    const uint64_t size = (uint64_t)read->node->st.st_size;
    const uint64_t begin = (uint64_t)read->offset < size ? (uint64_t)read->offset : size;
    const uint64_t left = size - begin;
    struct iovec iov = {(char *)atomic_load(&read->node->data) + begin,
                        read->size < left ? read->size : (size_t)left};

    fuse_reply_iov(read->req, &iov, 1);
}

static void *answer(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&queue.lock);
        while (!queue.first && !queue.ending)
            pthread_cond_wait(&queue.wake, &queue.lock);
        struct waiting *read = queue.first;
        if (read) {
            queue.first = read->next;
            if (!queue.first)
                queue.last = &queue.first;
        }
        pthread_mutex_unlock(&queue.lock);
        if (!read)
            return NULL;
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &read->due, NULL) == EINTR)
            continue;
        reply(read);
        free(read);
    }
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    struct waiting *read = malloc(sizeof *read);

    (void)fi;
    if (told)
        close(open(told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    told = NULL;
    if (!read) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *read = (struct waiting){NULL, req, &nodes[ino - 1], size, offset, {0}};
    clock_gettime(CLOCK_MONOTONIC, &read->due);
    const uint64_t ns = (uint64_t)read->due.tv_nsec + delay_ns;
    read->due.tv_sec += (time_t)(ns / 1000000000);
    read->due.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&queue.lock);
    *queue.last = read;
    queue.last = &read->next;
    pthread_cond_signal(&queue.wake);
    pthread_mutex_unlock(&queue.lock);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The node of a path, which becomes its own; 0 with errno when there is none. */
static fuse_ino_t node_of(char *path)
{
    struct stat st;

    if (!path || stat(path, &st) != 0) {
        free(path);
        return 0;
    }
    for (size_t i = 0; i < n_nodes; i++)
        if (strcmp(nodes[i].path, path) == 0) {
            free(path);
            return i + 1;
        }
    if (n_nodes == MOST_NODES) {
        free(path);
        errno = ENFILE;
        return 0;
    }
    nodes[n_nodes].path = path;
    nodes[n_nodes].st = st;
    nodes[n_nodes].st.st_ino = n_nodes + 1;
    return ++n_nodes;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {.attr_timeout = 60, .entry_timeout = 60};
    char *path = NULL;

    if (asprintf(&path, "%s/%s", nodes[parent - 1].path, name) < 0)
        path = NULL;
    entry.ino = node_of(path);
    if (entry.ino == 0) {
        fuse_reply_err(req, errno);
        return;
    }
    entry.attr = nodes[entry.ino - 1].st;
    fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    fuse_reply_attr(req, &nodes[ino - 1].st, 60);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    char buf[4096];
    size_t used = 0;
    const struct dirent *entry;
    DIR *dir = opendir(nodes[ino - 1].path);

    (void)fi;
    if (!dir) {
        fuse_reply_err(req, errno);
        return;
    }
    size = size < sizeof buf ? size : sizeof buf;
    for (off_t at = 0; (entry = readdir(dir)); at++) {
        const struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)entry->d_type << 12};
        if (at < offset)
            continue;
        const size_t n =
            fuse_add_direntry(req, buf + used, size - used, entry->d_name, &st, at + 1);
        if (n > size - used)
            break;
        used += n;
    }
    closedir(dir);
    fuse_reply_buf(req, buf, used);
}

/* Its pages are brought in now: what is delayed is the reads alone. */
static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct node *node = &nodes[ino - 1];

    if (!atomic_load(&node->data) && node->st.st_size > 0) {
        const int fd = open(node->path, O_RDONLY | O_CLOEXEC);
        void *data = fd < 0 ? MAP_FAILED
                            : mmap(NULL, (size_t)node->st.st_size, PROT_READ,
                                   MAP_SHARED | MAP_POPULATE, fd, 0);
        if (fd >= 0)
            close(fd);
        if (data == MAP_FAILED) {
            fuse_reply_err(req, EIO);
            return;
        }
        atomic_store(&node->data, data);
    }
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    conn->max_write = MOST_REQUEST;           /* libfuse derives the request's page limit from it */
    conn->max_read = (unsigned)request_bytes; /* the mount option says the same */
    conn->max_background = 256;
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .readdir = on_readdir,
    .open = on_open,
    .read = on_read,
};

/* ---- starting -------------------------------------------------------------------------------- */

static int serve(struct fuse_session *session, const char *mountpoint)
{
    pthread_t threads[ANSWERERS];
    int n = 0;
    int status = 1;

    if (fuse_set_signal_handlers(session) != 0)
        return 1;
    if (fuse_session_mount(session, mountpoint) == 0) {
        while (n < ANSWERERS && pthread_create(&threads[n], NULL, answer, NULL) == 0)
            n++;
        status = n == 0 || fuse_session_loop(session) < 0;
        pthread_mutex_lock(&queue.lock);
        queue.ending = 1;
        pthread_cond_broadcast(&queue.wake);
        pthread_mutex_unlock(&queue.lock);
        for (int i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
    return status;
}

/* False for what is no number of at most MOST. */
static int number(const char *text, uint64_t most, uint64_t *out)
{
    char *end = NULL;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *out <= most;
}

int main(int argc, char **argv)
{
    uint64_t us = 2000;
    char options[96];
    int fine = 1;
    int option;

    while ((option = getopt(argc, argv, "d:r:t:")) != -1) {
        told = option == 't' ? optarg : told;
        fine = fine && (option == 't' || (option == 'd' && number(optarg, 3600000000, &us)) ||
                        (option == 'r' && number(optarg, MOST_REQUEST, &request_bytes) &&
                         request_bytes >= 4096));
    }
    if (!fine || argc - optind != 2) {
        fprintf(stderr,
                "usage: delay_server [-d MICROSECONDS] [-r REQUEST_BYTES] [-t FILE] SRC MNT\n");
        return 2;
    }
    delay_ns = us * 1000;
    if (node_of(realpath(argv[optind], NULL)) == 0) {
        perror("delay_server: the folder");
        return 1;
    }
    snprintf(options, sizeof options, "-ofsname=delay,ro,max_read=%llu",
             (unsigned long long)request_bytes);
    char *fuse_argv[] = {argv[0], options, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    fuse_opt_free_args(&args); /* it was copied */
    if (!session)
        return 1;
    const int status = serve(session, argv[optind + 1]);
    fuse_session_destroy(session);
    return status;
}
