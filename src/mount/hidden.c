/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/hidden.h"

#include "mount/ring.h"
#include "mount/scratch.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATTRIBUTES "user.reshardfs."

static int log_text(const struct rfs_mount *m, char **text, size_t *bytes)
{
    (void)m;
    *text = rfs_ring_copy(bytes);
    return *text ? 0 : -ENOMEM;
}

/* By id, from RFS_OWN_IDS on. */
static const struct {
    const char *name;
    int (*text)(const struct rfs_mount *m, char **text, size_t *bytes);
} files[] = {
    {"stats.json", rfs_hidden_stats},
    {"config.json", rfs_hidden_config},
    {"log", log_text},
};

enum { N_FILES = sizeof files / sizeof *files };

int rfs_hidden_lookup(const struct rfs_mount *m, uint64_t parent, const char *name, uint64_t *id)
{
    if (m->options->set.control == RFS_HIDDEN_NOT && parent == RESHARD_ROOT &&
        strcmp(name, RESHARD_CONTROL) == 0)
        return -ENOENT;
    for (size_t i = 0; parent == m->hidden && i < N_FILES; i++)
        if (strcmp(name, files[i].name) == 0) {
            *id = RFS_OWN_IDS + i;
            return 0;
        }
    return reshard_lookup(m->view, parent, name, id);
}

int rfs_hidden_list(const struct rfs_mount *m, uint64_t dir, uint64_t position, reshard_dirent *out)
{
    const bool shows = dir == RESHARD_ROOT && m->options->set.control == RFS_HIDDEN_LISTED;
    const uint64_t before = dir == m->hidden ? N_FILES : shows;

    if (position >= before)
        return reshard_list(m->view, dir, position - before, out);
    *out = (reshard_dirent){
        .struct_size = sizeof *out,
        .id = shows ? m->hidden : RFS_OWN_IDS + position,
        .is_dir = shows,
        .name = shows ? RESHARD_CONTROL : files[position].name,
    };
    return 1;
}

int rfs_hidden_text(const struct rfs_mount *m, uint64_t id, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    return id - RFS_OWN_IDS < N_FILES ? files[id - RFS_OWN_IDS].text(m, text, bytes) : -ENOENT;
}

int rfs_hidden_stat(const struct rfs_mount *m, uint64_t id, struct stat *st)
{
    struct timespec now;
    char *text;
    size_t bytes;

    const int rc = rfs_hidden_text(m, id, &text, &bytes);
    if (rc)
        return rc;
    free(text);
    clock_gettime(CLOCK_REALTIME, &now);
    *st = (struct stat){
        .st_ino = id,
        .st_mode = S_IFREG | (rfs_options_keyed(&m->options->set) ? 0400 : 0444),
        .st_nlink = 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_size = (off_t)bytes,
        .st_atim = now,
        .st_mtim = now,
        .st_ctim = now,
    };
    return 0;
}

/* Replies as the system calls do: a length for size 0. */
static void reply(fuse_req_t req, const char *value, ssize_t n, size_t size)
{
    if (n < 0)
        fuse_reply_err(req, n == -ENOENT ? EIO : (int)-n);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, value, (size_t)n);
}

/* Without attributes: the kernel does not ask again. */
static bool has_none(const struct rfs_mount *m)
{
    return m->options->set.control == RFS_HIDDEN_NOT;
}

/*
 * Whether the caller may have attributes. For files, the kernel checks the permission to read.
 * Attributes of folders describe all sources, so they follow the rule of the hidden folder. Of the
 * caller's groups only the first is known here.
 */
static bool may_ask(const struct rfs_mount *m, fuse_req_t req, uint64_t id)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    reshard_stat st = {.struct_size = sizeof st};

    if ((!m->options->set.allow_other && !m->options->set.allow_root) || caller->uid == 0 ||
        caller->uid == geteuid() || !reshard_is_ready(m->view, id) ||
        reshard_getattr(m->view, id, &st, NULL) != 0 || !S_ISDIR(st.mode))
        return true;
    if (reshard_getattr(m->view, m->hidden, &st, NULL) != 0)
        return false;
    if (caller->uid == st.uid)
        return st.mode & S_IRUSR;
    return (st.mode & S_IRGRP) && (caller->gid == st.gid || (st.mode & S_IROTH));
}

void rfs_hidden_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct rfs_mount *m = fuse_req_userdata(req);

    if (has_none(m)) {
        fuse_reply_err(req, ENOSYS);
        return;
    }
    if (!may_ask(m, req, ino)) {
        fuse_reply_err(req, EACCES);
        return;
    }
    if (rfs_hidden_is_own(ino) || strncmp(name, ATTRIBUTES, strlen(ATTRIBUTES)) != 0) {
        fuse_reply_err(req, ENODATA);
        return;
    }
    if (rfs_guard_is_me()) { /* it may take a plan */
        rfs_guard_defer(req);
        return;
    }
    char *buf = size > 0 ? rfs_scratch_get(size) : NULL;
    if (size > 0 && !buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    struct rfs_request *request = rfs_request_begin(req);
    const ssize_t n = reshard_get_attribute(m->view, ino, name, buf, size);
    if (rfs_request_end(request, req))
        reply(req, buf, n, size);
}

void rfs_hidden_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct rfs_mount *m = fuse_req_userdata(req);
    char *buf = size > 0 ? rfs_scratch_get(size) : NULL;

    if (has_none(m))
        fuse_reply_err(req, ENOSYS);
    else if (size > 0 && !buf)
        fuse_reply_err(req, ENOMEM);
    else
        reply(req, buf,
              rfs_hidden_is_own(ino) ? 0 : reshard_list_attributes(m->view, ino, buf, size), size);
}
