/* SPDX-License-Identifier: Apache-2.0 */
/*
 * null_server [-c] MNT SIZE_BYTES - the speed limit of any FUSE server here.
 *
 * One file, `null`, of SIZE_BYTES bytes. Each read is answered with fuse_reply_iov from one
 * pre-faulted buffer of 1 MiB, opened direct_io (-c: through the page cache), with reads of 1 MiB
 * and splicing off: nothing is read, gathered or remembered, so what is left is the cost of the
 * request, the reply's copy and the wake-ups. The benchmarks give every other rate as a share of
 * this one, measured in the same run.
 *
 * Stays in the foreground, so that its parent knows its id; ends on a signal or an unmount.
 */
#define FUSE_USE_VERSION 314
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fuse_lowlevel.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { BUFFER_BYTES = 1 << 20, NULL_INODE = 2 };

static unsigned char *buffer; /* BUFFER_BYTES, never written after main's start */
static uint64_t file_bytes;
static bool cached; /* through the page cache */

static void on_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    conn->max_readahead = BUFFER_BYTES;
    conn->max_write = BUFFER_BYTES; /* libfuse derives the request's page limit from it */
}

static void fill_stat(fuse_ino_t ino, struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_ino = ino;
    st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0555 : S_IFREG | 0444;
    st->st_nlink = ino == FUSE_ROOT_ID ? 2 : 1;
    st->st_size = ino == FUSE_ROOT_ID ? 0 : (off_t)file_bytes;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (parent != FUSE_ROOT_ID || strcmp(name, "null") != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.ino = NULL_INODE, .attr_timeout = 60, .entry_timeout = 60};
    fill_stat(NULL_INODE, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;

    (void)fi;
    fill_stat(ino, &st);
    fuse_reply_attr(req, &st, 60);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (ino != NULL_INODE) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    fi->direct_io = !cached;
    fuse_reply_open(req, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    uint64_t begin = (uint64_t)off < file_bytes ? (uint64_t)off : file_bytes;
    uint64_t left = file_bytes - begin;
    if (size > left) {
        size = (size_t)left;
    }
    if (size > BUFFER_BYTES) {
        size = BUFFER_BYTES;
    }
    struct iovec iov = {.iov_base = buffer, .iov_len = size};
    fuse_reply_iov(req, &iov, 1);
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .open = on_open,
    .read = on_read,
};

static int serve(struct fuse_session *session, const char *mountpoint)
{
    int status = 1;

    if (fuse_set_signal_handlers(session) != 0) {
        return 1;
    }
    if (fuse_session_mount(session, mountpoint) == 0) {
        struct fuse_loop_config *config = fuse_loop_cfg_create();
        if (config != NULL) {
            status = fuse_session_loop_mt(session, config) < 0;
            fuse_loop_cfg_destroy(config);
        }
        fuse_session_unmount(session);
    }
    fuse_remove_signal_handlers(session);
    return status;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    char *fuse_argv[] = {argv[0], (char[]){"-ofsname=null,ro"}, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);

    if (argc == 4 && strcmp(argv[1], "-c") == 0) {
        cached = true;
        argv++;
        argc--;
    }
    if (argc == 3) {
        errno = 0;
        file_bytes = strtoull(argv[2], &end, 10);
    }
    if (argc != 3 || errno != 0 || end == argv[2] || *end != '\0' || file_bytes > INT64_MAX) {
        fprintf(stderr, "usage: null_server [-c] MNT SIZE_BYTES\n");
        return 2;
    }
    buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) {
        perror("null_server: mmap");
        return 1;
    }
    memset(buffer, 'n', BUFFER_BYTES);

    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (session == NULL) {
        return 1;
    }
    int status = serve(session, argv[1]);
    fuse_session_destroy(session);
    munmap(buffer, BUFFER_BYTES);
    return status;
}
