/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by files.c, identity.c and reading.c only. */
#pragma once

#include "base/store.h"
#include "base/vec.h"
#include "store/encrypted.h"
#include "store/fds.h"
#include "store/files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct rfs_identity {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct rfs_file {
    char *path;
    struct rfs_fd fd;
    bool is_object;                      /* the path is a URL: it has no descriptor */
    _Atomic(struct rfs_object *) object; /* the version that is read, from its first use on */
    _Atomic int failed;                  /* 0, or the -errno that stuck */
    _Atomic(char *) why;  /* the line that was logged of that; owned; set before it, or NULL */
    atomic_bool walked;   /* its path leads not home */
    atomic_bool recorded; /* set, with release, after id; id never changes then */
    struct rfs_identity id;
    _Atomic(struct rfs_cipher *) cipher; /* of an encrypted file, from its first use on; owned */
};

struct rfs_files {
    struct rfs_log *log;
    RFS_VEC(struct rfs_file *) list; /* by id; each owned */
    struct rfs_fds *fds;             /* own_fds, or lent */
    struct rfs_fds own_fds;
    const struct rfs_beneath *beneath; /* where they are opened; lent; NULL: links are followed */
    struct rfs_encrypted *encrypted;   /* opens encrypted files; lent; NULL: files are plain */
    pthread_mutex_t lock; /* of recording an identity; a leaf lock, no system call under it */
    bool for_others;
    struct rfs_access_above above;
    atomic_uint_fast64_t home; /* 1 + the device that no path may lead to; 0: none */
    atomic_uint_fast64_t opens, reads, bytes, checks, errors;
};

/* ---- identity.c ---- */

/*
 * Makes CODE stick, unless another failure did before; logs WHAT with a remedy then. Returns the
 * one that stuck.
 */
int rfs_file_stick(struct rfs_files *files, struct rfs_file *file, int code, const char *what);
/*
 * The same with a complete LINE, kept for rfs_files_reason. QUIET: the caller reports it, so it is
 * not logged.
 */
int rfs_file_stick_line(struct rfs_files *files, struct rfs_file *file, int code, const char *line,
                        bool quiet);
/* The system call CALL on the file failed with CODE, an errno: -errno, which may have stuck. */
int rfs_file_call_failed(struct rfs_files *files, struct rfs_file *file, const char *call,
                         int code);
/* NULL is fine. */
void rfs_file_let_go(struct rfs_object *object);
/* Compares with the identity that is recorded, or records it. 0, or the -errno that stuck. */
int rfs_file_compare(struct rfs_files *files, struct rfs_file *file, const struct stat *st);
