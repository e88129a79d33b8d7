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
 * -ENOTSUP). Items of a file may be compressed: reads return their plain bytes, and a damaged item
 * fails with its file (-EINVAL).
 *
 * Threads: all functions but new, sharing, set_encrypted, set_beneath, set_store, add, add_packed
 * and free. The locks are leaf locks and are not held across any system call.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "store/access.h"

#include <sys/stat.h>
#include <sys/uio.h>

#define RFS_MAX_OPEN 256

/* ---- descriptors ---- */

/*
 * A bounded set of open descriptors, each for one path. Idle ones stay open until another path
 * needs the room.
 */
struct rfs_fds {
    pthread_mutex_t lock; /* of all members; a leaf lock, not held across open or close */
    pthread_cond_t changed;
    unsigned limit;
    unsigned used; /* open, being opened or being closed; at most limit */
    unsigned waiters;
    struct rfs_fd *oldest, *newest; /* idle ones, by last use */
};

/* Prepares an empty set. 0 or -errno. */
int rfs_fds_init(struct rfs_fds *fds, unsigned limit);
/* Closes the idle descriptors; none may be pinned. */
void rfs_fds_destroy(struct rfs_fds *fds);

/* ---- files ---- */

struct rfs_files;
struct rfs_beneath;
struct rfs_blocks;
struct rfs_store;
struct rfs_encrypted;

/* Makes an empty list of files with descriptors of its own. NULL without memory. */
struct rfs_files *rfs_files_new(struct rfs_log *log);
/*
 * Makes an empty list of files that shares FDS with others (NULL: has its own). FDS must live
 * longer; its limit counts. NULL without memory.
 */
struct rfs_files *rfs_files_sharing(struct rfs_log *log, struct rfs_fds *fds);
void rfs_files_free(struct rfs_files *files);
/*
 * Makes all files encrypted ones, which ENCRYPTED opens: borrowed until the files are freed. To be
 * called before the first use of a file.
 */
void rfs_files_set_encrypted(struct rfs_files *files, struct rfs_encrypted *encrypted);
/*
 * Lets files be opened only beneath a folder, as beneath.h explains: borrowed until the files are
 * freed. To be called before the first use of a file.
 */
void rfs_files_set_beneath(struct rfs_files *files, const struct rfs_beneath *beneath);
const struct rfs_beneath *rfs_files_beneath(const struct rfs_files *files);
/*
 * Sets the store that URLs are read by (NULL: none are): borrowed until the files are freed. To be
 * called before the first use of a file.
 */
void rfs_files_set_store(struct rfs_files *files, struct rfs_store *store);
struct rfs_store *rfs_files_store(const struct rfs_files *files);
/*
 * Notes that data is served to other users, too: access then also depends on the folders above the
 * files.
 */
void rfs_files_set_for_others(struct rfs_files *files);
/*
 * Returns the rights to read a file. ST has its attributes, as rfs_files_stat or rfs_files_look
 * just returned them.
 */
struct rfs_access rfs_files_access(struct rfs_files *files, uint32_t id, const struct stat *st);
/*
 * Makes files fail with -ELOOP that lie on file system DEVICE, or whose paths lead through it:
 * rfs_beneath_leads_to. From any thread.
 */
void rfs_files_set_home(struct rfs_files *files, dev_t device);
/* Says whether a file fails for that. A path that does not lead there is looked at once. */
bool rfs_files_leads_home(struct rfs_files *files, uint32_t id);
/* Says whether files are encrypted. */
bool rfs_files_are_encrypted(const struct rfs_files *files);
/*
 * Adds an item of a file that is compressed by zstd, BYTES at offset STORED, with at most MOST > 0
 * plain bytes. All that is read of the file is in such items then (packed.h): *BEGIN is where the
 * plain bytes of this one begin. To be called before the first use of the file, for files that are
 * not encrypted. 0, or rfs_packed_add's -errno.
 */
int rfs_files_add_packed(struct rfs_files *files, uint32_t id, uint64_t stored, uint64_t bytes,
                         uint64_t most, uint64_t *begin);
/*
 * Returns the blocks of items of all files, whose budget is RFS_PACKED_BUDGET until the owner of
 * the files sets one; NULL: there are no such items.
 */
struct rfs_blocks *rfs_files_packed(const struct rfs_files *files);
#define RFS_PACKED_BUDGET (UINT64_C(64) << 20)
/* Says whether the items of a file are compressed. */
bool rfs_files_is_packed(const struct rfs_files *files, uint32_t id);
/* Returns the offset for messages of byte AT of a file: that of its item, if it is compressed. */
uint64_t rfs_files_offset(const struct rfs_files *files, uint32_t id, uint64_t at);
/* Says whether the bytes that are read are those of the files: not encrypted, nor compressed. */
bool rfs_files_are_raw(const struct rfs_files *files);
/*
 * Registers a path (copied) and returns its id, from 0 up in order; UINT32_MAX when out of memory.
 */
uint32_t rfs_files_add(struct rfs_files *files, const char *path);
/* Returns how many paths were registered. */
uint32_t rfs_files_count_paths(const struct rfs_files *files);
const char *rfs_files_path(const struct rfs_files *files, uint32_t id);
/*
 * Says whether a failure (-errno) is one that does not stick, as the next try may end otherwise:
 * the process is short of something, or may not read the file, or a store of objects is unwell.
 */
bool rfs_files_may_pass(const struct rfs_files *files, int code);
/* Returns 0, or -errno of the failure that stuck. Makes no system call. */
int rfs_files_state(const struct rfs_files *files, uint32_t id);
/*
 * Says whether CODE stuck for a reason that the errno does not express: an invalid encrypted file,
 * or a link that leads out of the source. *err (may be NULL) is filled then.
 */
bool rfs_files_reason(const struct rfs_files *files, uint32_t id, int code, struct rfs_error *err);
/*
 * Gets a file's attributes without opening it; records the identity if it is not recorded yet. 0 or
 * -errno.
 */
int rfs_files_stat(struct rfs_files *files, uint32_t id, struct stat *st);
/* Gets a file's attributes, but records no identity. 0 or -errno. */
int rfs_files_look(struct rfs_files *files, uint32_t id, struct stat *st);
/* Compares the identity now, without opening or reading. 0 or -errno. */
int rfs_files_check(struct rfs_files *files, uint32_t id);
/* Reports that a file could not be read, with a remedy; returns CODE, a -errno of the above. */
int rfs_files_fail(struct rfs_error *err, const char *path, int code);

struct rfs_files_counters {
    uint64_t opens, reads, bytes;
    uint64_t checks; /* comparisons of an identity by path, a system call each */
    uint64_t errors; /* failures that stuck, each once, and calls that failed for other reasons */
};
void rfs_files_count(struct rfs_files *files, struct rfs_files_counters *out);

/* Takes PATH, absolute and without links. A nonzero result ends the enumeration and is returned. */
typedef int rfs_files_outside_fn(void *ctx, const char *path);
/*
 * Gives FN the folders that files really are in, unless beneath ROOT (absolute, without links):
 * those that links lead to, and those of a map, for a sandbox that forbids all other places. A
 * folder may be given several times; files that do not exist are skipped. Opens no file: two system
 * calls for each that is in a folder of ROOT. 0, -ENOMEM, or the result of FN.
 */
int rfs_files_outside(const struct rfs_files *files, const char *root, rfs_files_outside_fn *fn,
                      void *ctx);

/* ---- reading ---- */

/* Bytes [from, to) of a file that are in memory already. */
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
    uint64_t size; /* of the file, as recorded; of its plain bytes, if they are made of others */
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
 * Begins to read a file. 0 or -errno. When 0, rfs_reading_end must follow, and the bytes read are
 * good only if it gives 0.
 */
int rfs_reading_begin(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * Begins to read for a caller that reports the text of rfs_files_reason itself, so that failures
 * are not logged.
 */
int rfs_reading_begin_quiet(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * Begins to read ahead: the identity is compared only when the file is opened, so the data is valid
 * only within another reading that ends well. Failures but those of that comparison do not stick.
 * rfs_reading_leave must follow.
 */
int rfs_reading_begin_ahead(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * Begins one of many reads. A file that is already open is used without a check: data is valid once
 * the identity compares afterwards, by rfs_reading_end or, for all data read until then, by one
 * rfs_files_check.
 */
int rfs_reading_take(struct rfs_files *files, uint32_t id, struct rfs_reading *reading);
/*
 * Refuses a file by what was read of it, with the code and the text of ERR, unless it has changed.
 * Returns -errno.
 */
int rfs_files_refuse(struct rfs_files *files, uint32_t id, int code, const struct rfs_error *err);
/* Compares the identity again and unpins. 0 or -errno. */
int rfs_reading_end(struct rfs_reading *reading);
/* Unpins without a comparison. */
void rfs_reading_leave(struct rfs_reading *reading);

/* Returns where SIZE bytes at OFFSET are held in one piece, or NULL. */
const unsigned char *rfs_reading_find(const struct rfs_reading *reading, size_t size,
                                      uint64_t offset);
/*
 * Reads all of SIZE bytes at OFFSET. 0 or -errno; -ESTALE beyond the recorded size. EINTR and short
 * reads are retried.
 */
int rfs_reading_pread(struct rfs_reading *reading, void *buf, size_t size, uint64_t offset);
/* Does what rfs_reading_pread does; an rfs_read_fn. */
int rfs_reading_read(void *reading, void *buf, size_t size, uint64_t offset);
/* Makes a source of the file, whose name in messages is FILE. */
#define RFS_READING_SOURCE(reading, file)                                                          \
    RFS_BYTES_SOURCE(rfs_reading_read, (reading), (reading)->size, (file))
/*
 * Gives how many plain bytes the compressed item has that begins at plain byte AT, which it
 * decompresses. In a file without such items *bytes stays as it is. 0, or -errno with *err filled.
 */
int rfs_reading_measure(struct rfs_reading *reading, uint64_t at, uint64_t *bytes,
                        struct rfs_error *err);
/* Reads to several spans, which it changes; of raw files, with nothing held. */
int rfs_reading_preadv(struct rfs_reading *reading, struct iovec *spans, int count,
                       uint64_t offset);
