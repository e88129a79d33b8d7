/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - a sharded checkpoint, read under another sharding strategy.
 *
 * A view is a read-only tree of virtual checkpoint files. Opening one reads the two strategy files
 * and lists the source folders; the source files themselves are opened only when an entry that
 * depends on them is stat'ed or read.
 *
 * Threads: everything but reshard_open and reshard_close may be called from many threads at once.
 * Errors: functions return 0 (or a byte count) or -errno. Those that take a reshard_error fill it on
 * failure with one line that names the file, the offset, the parameter and a remedy.
 * Growth: structs start with their size, which the caller sets to sizeof; the library reads and
 * writes only that many bytes.
 */
#ifndef RESHARD_H
#define RESHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RESHARD_API __attribute__((visibility("default")))

typedef struct reshard_view reshard_view;

/* Owned by the caller; zero it and set struct_size before the call. */
typedef struct reshard_error {
    size_t struct_size;
    int code;           /* 0 or -errno */
    int usage;          /* 1 when the options are at fault rather than the input */
    char message[2048]; /* one line, no program name, no trailing newline */
} reshard_error;

enum reshard_level { RESHARD_LOG_ERROR, RESHARD_LOG_WARNING, RESHARD_LOG_INFO, RESHARD_LOG_DEBUG };

/* Receives one line at a time, possibly from several threads at once. */
typedef void reshard_log_fn(void *ctx, enum reshard_level level, const char *line);

typedef struct reshard_config {
    size_t struct_size;
    /* "key=value,key=value" as after -o; a comma inside a value is written "\,". May be NULL. */
    const char *options;
    reshard_log_fn *log; /* NULL: no log */
    void *log_ctx;
} reshard_config;

/*
 * Opens a view of the checkpoint tree in SOURCE. No thread is started before the first stat or read,
 * so that a caller may fork in between. *out is NULL on failure.
 * Returns 0, or -errno with *err filled.
 */
RESHARD_API int reshard_open(const char *source, const reshard_config *config, reshard_view **out,
                             reshard_error *err);

/* Frees the view. No other call may be running, and no lent bytes may be outstanding. NULL is fine. */
RESHARD_API void reshard_close(reshard_view *view);

#define RESHARD_ROOT UINT64_C(1)

/* Entry ids are inode numbers: stable for one source tree and one pair of strategies. */
typedef struct reshard_stat {
    size_t struct_size;
    uint64_t id;
    uint32_t mode; /* type and permission bits, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint64_t size; /* bytes */
    struct timespec mtime;
} reshard_stat;

/* Finds NAME in folder PARENT. -ENOENT when there is none. Opens no source file. */
RESHARD_API int reshard_lookup(reshard_view *view, uint64_t parent, const char *name, uint64_t *id);

/*
 * One entry of folder DIR at POSITION (0 is the first). name is valid until the view closes. Returns
 * 1 when there was one, 0 past the end, or -errno. Opens no source file.
 */
typedef struct reshard_dirent {
    size_t struct_size;
    uint64_t id;
    bool is_dir;
    const char *name;
} reshard_dirent;
RESHARD_API int reshard_list(reshard_view *view, uint64_t dir, uint64_t position,
                             reshard_dirent *out);

/*
 * Attributes. For a file this indexes the headers of the source ranks that it needs, and proves that
 * each of its bytes is covered; err may be NULL.
 */
RESHARD_API int reshard_getattr(reshard_view *view, uint64_t id, reshard_stat *out,
                                reshard_error *err);

/* Whether the attributes of ID are known already, so that reshard_getattr reads nothing. */
RESHARD_API bool reshard_is_ready(reshard_view *view, uint64_t id);

/*
 * Reads up to SIZE bytes at OFFSET; short only at the end of the file. -ESTALE when a source changed
 * since it was indexed, -EIO when one could not be read.
 */
RESHARD_API ssize_t reshard_pread(reshard_view *view, uint64_t id, void *buf, size_t size,
                                  uint64_t offset);

/*
 * A reader remembers where its last read ended, so that sequential reading is assembled ahead.
 * One per open file; its calls may come from many threads.
 */
typedef struct reshard_reader reshard_reader;
RESHARD_API int reshard_reader_open(reshard_view *view, uint64_t id, reshard_reader **out);
RESHARD_API void reshard_reader_close(reshard_reader *reader);
RESHARD_API ssize_t reshard_reader_pread(reshard_reader *reader, void *buf, size_t size,
                                         uint64_t offset);

/*
 * Like reshard_reader_pread, without the last copy: fills iov[0..] with at most IOV_MAX spans (1 or
 * more) that point, in the order of the bytes, into the cache or into SCRATCH, and *loan with what keeps
 * them alive. SCRATCH is the caller's, has SIZE + RESHARD_SCRATCH_EXTRA bytes and stays untouched until
 * the loan is given back by reshard_return, once the bytes are out. Returns the number of bytes and sets
 * *iov_count; on -errno, *loan is NULL.
 */
#define RESHARD_SCRATCH_EXTRA 64
typedef struct reshard_loan reshard_loan;
RESHARD_API ssize_t reshard_reader_borrow(reshard_reader *reader, void *scratch, size_t size,
                                          uint64_t offset, struct iovec *iov, int iov_max,
                                          int *iov_count, reshard_loan **loan);
RESHARD_API void reshard_return(reshard_loan *loan);

/* What the tree is, known right after opening. */
typedef struct reshard_summary {
    size_t struct_size;
    uint32_t source_ranks;
    uint32_t source_stages;
    uint32_t target_ranks;
    uint32_t target_stages;
    uint64_t
        parameters; /* distinct names in the strategies; 0 when it is not known without files */
} reshard_summary;
RESHARD_API void reshard_summarize(reshard_view *view, reshard_summary *out);

typedef struct reshard_statistics {
    size_t struct_size;
    uint64_t reads; /* calls answered */
    uint64_t bytes_replied;
    uint64_t source_reads; /* read system calls on source files */
    uint64_t source_bytes; /* bytes they returned */
    uint64_t source_opens; /* open system calls on source files */
    uint64_t ranks_indexed;
    uint64_t ranks_predicted; /* of those, how many were verified against a predicted index */
    uint64_t index_bytes;
    uint64_t cache_budget;
    uint64_t cache_bytes;
    uint64_t cache_hits;
    uint64_t cache_misses;
    uint64_t cache_evictions;
    uint64_t read_ahead_pieces;
} reshard_statistics;
RESHARD_API void reshard_get_statistics(reshard_view *view, reshard_statistics *out);

/*
 * Plans every target rank as a stat of each file would. progress may be NULL; it is called after each
 * rank. Returns the first failure.
 */
typedef void reshard_progress_fn(void *ctx, uint64_t done, uint64_t total);
RESHARD_API int reshard_check(reshard_view *view, reshard_progress_fn *progress, void *ctx,
                              reshard_error *err);

/* "1.0.0" */
RESHARD_API const char *reshard_version(void);

#ifdef __cplusplus
}
#endif

#endif
