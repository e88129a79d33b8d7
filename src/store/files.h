/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source files, read in full or not at all.
 *
 * A file's device, inode, size, mtime and ctime are recorded at its first use and compared after
 * each read, and mostly before, by path. Once a comparison or a read fails, the failure sticks,
 * unless it may pass (rfs_files_may_pass): every later use of that file gives the same errno
 * (-ESTALE for a changed, truncated, replaced or removed file, -EIO for a read error), until the
 * view is opened again. Source files are never mapped, so reads cannot cause SIGBUS.
 *
 * At most RFS_MAX_OPEN descriptors are open, or fewer where the process may have few
 * (base/limits.h); the least recently used idle one is closed for the next. A caller that finds
 * them all pinned waits. As the limit may be 1, a thread must not begin a reading while it holds
 * another: this would deadlock.
 *
 * With a key, all files are encrypted, and reads return their plain text; cipher.h lists the modes.
 * A file that is not encrypted, or not with this key, fails permanently as well (-EINVAL, -EBADMSG,
 * -ENOTSUP).
 *
 * Threads: all functions but new, set_encrypted, add and free. The pool's lock is a leaf lock and
 * is not held across any system call.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "store/access.h"

#include <sys/stat.h>
#include <sys/uio.h>

#define RFS_MAX_OPEN 256

struct rfs_fds;
struct rfs_files;

struct rfs_files_counters {
    uint64_t opens, reads, bytes;
    uint64_t checks; /* comparisons of an identity by path, a system call each */
    uint64_t
        /* failures that stuck, each once, and failed system calls that are not the file's fault */
        errors;
};

struct rfs_beneath;
struct rfs_encrypted;
struct rfs_secret;

struct rfs_files *rfs_files_new(struct rfs_log *log);
/*
 * With descriptors that several share (NULL: its own), which outlive it; the limit is theirs then.
 */
struct rfs_files *rfs_files_sharing(struct rfs_log *log, struct rfs_fds *fds);
void rfs_files_free(struct rfs_files *files);
/*
 * Files are encrypted, and ENCRYPTED opens them: borrowed until they are freed. Before the first
 * use of a file.
 */
void rfs_files_set_encrypted(struct rfs_files *files, struct rfs_encrypted *encrypted);
/*
 * Files are opened beneath a folder, as beneath.h has it: borrowed until they are freed. Before the
 * first use of a file.
 */
void rfs_files_set_beneath(struct rfs_files *files, const struct rfs_beneath *beneath);
const struct rfs_beneath *rfs_files_beneath(const struct rfs_files *files);
/*
 * Data read from them is served to other users, too: access also depends on the folders above them.
 */
void rfs_files_set_for_others(struct rfs_files *files);
/*
 * Read access to a file with these attributes, as rfs_files_stat or rfs_files_look just returned
 * them.
 */
struct rfs_access rfs_files_access(struct rfs_files *files, uint32_t id, const struct stat *st);
/*
 * Files that lie on file system DEVICE, or whose paths lead through it, fail with -ELOOP: see
 * home.h. From any thread.
 */
void rfs_files_set_home(struct rfs_files *files, dev_t device);
/* Whether a file does. Looked at once for each, unless it does. */
bool rfs_files_leads_home(struct rfs_files *files, uint32_t id);
/* The owner of the guarded memory for plain text; NULL: files are plain anyway. */
struct rfs_secret *rfs_files_secret(const struct rfs_files *files);
/*
 * Registers a path (copied) and returns its id, from 0 up in order; UINT32_MAX when out of memory.
 */
uint32_t rfs_files_add(struct rfs_files *files, const char *path);
/* How many were registered. */
uint32_t rfs_files_count_paths(const struct rfs_files *files);
const char *rfs_files_path(const struct rfs_files *files, uint32_t id);
/*
 * Whether a failure (-errno) is one that does not stick, as the next try may end otherwise: the
 * process is short of something, or may not read the file.
 */
bool rfs_files_may_pass(int code);
/* 0, or -errno of the failure that stuck. Makes no system call. */
int rfs_files_state(const struct rfs_files *files, uint32_t id);
/*
 * Whether CODE stuck for a reason that the errno does not express: an invalid encrypted file, or a
 * link that leads out of the source. *err (may be NULL) is filled then.
 */
bool rfs_files_reason(const struct rfs_files *files, uint32_t id, int code, struct rfs_error *err);
/* Attributes without opening; records the identity if it is not recorded yet. 0 or -errno. */
int rfs_files_stat(struct rfs_files *files, uint32_t id, struct stat *st);
/* The same, but an identity that is not recorded yet stays so. */
int rfs_files_look(struct rfs_files *files, uint32_t id, struct stat *st);
/* Compares the identity now, without opening or reading. 0 or -errno. */
int rfs_files_check(struct rfs_files *files, uint32_t id);

/* Bytes [from, to) of a file, in memory. */
struct rfs_held {
    uint32_t file;
    uint64_t from, to;
    const unsigned char *data; /* where byte FROM is */
};

/* A file in use: its descriptor is pinned and its identity was as recorded when it was taken. */
struct rfs_reading {
    struct rfs_files *files;
    uint32_t id;
    int fd;
    uint64_t size; /* of the file, as recorded; of its plain text, if it is encrypted */
    bool quiet;    /* the caller reports the text of rfs_files_reason */
    /*
     * Read ahead: no request depends on the data yet, so a failed read neither sticks nor is
     * logged. May be set after rfs_reading_begin.
     */
    bool ahead;
    /*
     * Ranges that need not be read, of any file, in no order; borrowed. May be set after
     * rfs_reading_begin.
     */
    const struct rfs_held *held;
    size_t n_held;
};

/*
 * 0 or -errno. When 0, rfs_reading_end must follow, and the bytes read are good only if it gives 0.
 */
int rfs_reading_begin(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * The same, for a caller that reports the text of rfs_files_reason itself, so that failures are not
 * logged.
 */
int rfs_reading_begin_quiet(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * The same, to read ahead: the identity is compared only when the file is opened, so the data is
 * valid only within another reading that ends well. Failures but those of that comparison do not
 * stick. rfs_reading_leave must follow.
 */
int rfs_reading_begin_ahead(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/* Where SIZE bytes at OFFSET are held in one piece, or NULL. */
const unsigned char *rfs_reading_find(const struct rfs_reading *reading, size_t size,
                                      uint64_t offset);
/*
 * All of SIZE bytes at OFFSET, or -errno; beyond the recorded size is -ESTALE. EINTR and short
 * reads are retried.
 */
int rfs_reading_pread(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset);
/* The same as an rfs_read_fn. */
int rfs_reading_read(void *reading, void *buf, size_t size, uint64_t offset);
/* To several places, which it changes; of files that are not encrypted, nothing held. */
int rfs_reading_preadv(struct rfs_reading *reading, struct iovec *spans, int count,
                       uint64_t offset);
/* Compares the identity again and unpins. 0 or -errno. */
int rfs_reading_end(struct rfs_reading *reading);
/*
 * The same pair for frequent reads. A file that is already open is used without a check: data is
 * valid once the identity compares afterwards, by rfs_reading_end or, for all data read until then,
 * by one rfs_files_check.
 */
int rfs_reading_take(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
void rfs_reading_leave(struct rfs_reading *reading);

/* Reports that a file could not be read, with a remedy; returns CODE, a -errno of the above. */
int rfs_files_fail(struct rfs_error *err, const char *path, int code);

void rfs_files_count(struct rfs_files *files, struct rfs_files_counters *out);
