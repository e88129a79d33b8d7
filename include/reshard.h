/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - a sharded checkpoint, read under another sharding strategy.
 *
 * A view is a read-only tree of virtual checkpoint files. Opening one reads the two strategy files
 * and lists the source folders; the source files themselves are opened only when an entry that
 * depends on them is stat'ed or read. (But those of view=huggingface and view=unified, whose files depend on
 * the sizes of all parameters: the headers are read when the view is opened.)
 *
 * Threads: everything that takes a view may be called from many threads at once, but reshard_open and
 * reshard_close. A reader may be used by many threads at once, until reshard_reader_close.
 * Errors: functions return 0 (or a byte count) or -errno. Those that take a reshard_error fill it on
 * failure, and only then, with one line that names the file, the offset, the parameter and a remedy.
 * NULL is allowed only where that is said.
 * Lifetimes: what a view has given (names, readers, loans) must not be used after it is closed. Readers are
 * closed and loans given back before; a loan may outlive its reader.
 * Growth: structs start with their size, which the caller sets to sizeof; the library reads and
 * writes only that many bytes.
 *
 * The errors of a file, from every function that needs its attributes or content:
 *   -ENOENT   a source rank is missing, and no other rank is known to hold the same. (There is such an
 *             entry all the same, so the mount says EIO.)
 *   -EINVAL   a source is damaged, or not what the strategies or the other sources make it; with a key, one that
 *             is not encrypted.
 *   -EBADMSG  an encrypted source is not what the key makes of it: the key is wrong, or the file was changed.
 *   -ENOTSUP  a strategy cuts a tensor in a way that is not supported, or OpenSSL lacks a cipher.
 *   -EFBIG    a source, or the file, is larger than what can be.
 *   -EACCES   a source may not be opened; -EPERM likewise.
 *   -ESTALE   a source was changed, truncated, replaced or removed since its headers were read, or since the
 *             view was opened if it is gone.
 *   -ELOOP    the path of a source leads in circles, or to a file system that reshard_refuse_device names.
 *   -EIO      a source cannot be read.
 *   -ENOMEM, -EMFILE, -ENFILE: what the process may have is used up; a later call may succeed.
 *   -EINTR    the call was cancelled (reshard_cancel_set, reshard_cancel_all); nothing is wrong with the file.
 * All but the last four last until a new view is opened; -ESTALE, -EIO and -EBADMSG of a source hold for every
 * file that depends on it.
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

/*
 * Owned by the caller; zero it and set struct_size before the call. Whoever wants no text passes NULL
 * instead.
 */
typedef struct reshard_error {
    size_t struct_size;
    int code;           /* 0 or -errno */
    int usage;          /* 1 when the options are at fault rather than the input */
    char message[2048]; /* one line, no program name, no trailing newline */
} reshard_error;

enum reshard_level { RESHARD_LOG_ERROR, RESHARD_LOG_WARNING, RESHARD_LOG_INFO, RESHARD_LOG_DEBUG };

/*
 * Receives LINE (no newline, printable, valid during the call), possibly from several threads at once. CTX
 * is log_ctx. It is called while a function of the view works, or by the view's own threads until
 * reshard_close returns; it must not close the view.
 */
typedef void reshard_log_fn(void *ctx, enum reshard_level level, const char *line);

/* DONE of TOTAL are done. CTX is the caller's. */
typedef void reshard_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* An option by its name, such as "cache", and its value as text; NULL for a switch, such as "strict". */
typedef struct reshard_option {
    const char *name;
    const char *value;
} reshard_option;

/* Needed during reshard_open only, but for what log_ctx points to. */
typedef struct reshard_config {
    size_t struct_size;
    /*
     * "key=value,key=value" as after -o, of which these are the view's: src_strategy, dst_strategy (each a
     * path, or several with ':' between), prefix, cache, strict, and the others of reshardfs(1) that tell
     * what is read and shown. One that asks for something is needed. A comma inside a value is written
     * "\,", a backslash before a comma or a backslash "\\". Of a key that comes twice the last counts. NULL
     * is "". Programs are better served by "pairs", below.
     */
    const char *options;
    reshard_log_fn *log; /* NULL: no log */
    void *log_ctx;       /* the caller's; until reshard_close has returned */
    /*
     * NULL: nobody looks. Where headers are read when the view is opened, it is called by the calling thread after
     * each of the ranks' (of which not all may be needed).
     */
    reshard_progress_fn *progress;
    void *progress_ctx;
    /*
     * What is shown is for other users, too. As where the process is root's, sources are then opened beneath SOURCE
     * alone: symbolic links that lead out of it fail with -EXDEV, unless the option follow_links is given. Folders above
     * sources that deny search take it from the modes, and the hidden folder is for those who may read every source.
     */
    bool for_others;
    /* Options one by one, as they are, with nothing escaped: "pair_count" of them, after those of "options". */
    const reshard_option *pairs;
    size_t pair_count;
} reshard_config;

/*
 * Opens a view of the checkpoint tree in SOURCE, the folder that holds rank_0 and so on. No thread is
 * started before the first stat or read, so that a caller may fork in between and go on in one of the two
 * processes. *out is owned by the caller, to be closed by reshard_close; NULL on failure.
 * CONFIG may be NULL, which is always a failure: no strategy is given then. ERR may be NULL.
 * Returns 0, or -errno with *err filled: -EINVAL with err->usage 1 for the options, -EINVAL for strategies
 * or a tree that do not fit, -ENOENT for a source, a strategy or a rank's checkpoint that is not there and
 * whose slices no other rank holds, -ENOMEM, what the system said of a path, or an error of a file, as above,
 * where the headers are read, or a key is tried.
 *
 * With a key (key_file, key_fd or key_env; one of them) files are readable by their owner alone. The descriptor is
 * read to its end and closed, the variable overwritten and removed from the environment, which no other thread may
 * use meanwhile. The key and what is decrypted are kept from core files and from the swap, as far as the limits
 * allow, and wiped; whether the process may be dumped or traced is its own affair.
 */
RESHARD_API int reshard_open(const char *source, const reshard_config *config, reshard_view **out,
                             reshard_error *err);

/*
 * For programs, at their start, before anything has used OpenSSL: from then on, what OpenSSL makes of a key while it
 * decrypts lies in locked memory that is left out of core files. This takes the place of OpenSSL's allocator in the
 * process, so no library should do it. Without it such memory is ordinary, and wiped after each block. Returns 0, or
 * -EALREADY when it is too late, with nothing changed.
 */
RESHARD_API int reshard_guard_keys(void);

/*
 * Frees the view and ends its threads. No other call may be running; readers must be closed and loans given
 * back. Does nothing with NULL.
 */
RESHARD_API void reshard_close(reshard_view *view);

#define RESHARD_ROOT UINT64_C(1)

/*
 * Entry ids are inode numbers: stable for one source tree and one pair of strategies. Folders have the
 * owner, the time and the permissions of SOURCE, at most 0555; a file has the latest time of its sources, their owner if
 * they agree (else the process's), and the read permissions that all of them grant.
 */
typedef struct reshard_stat {
    size_t struct_size;
    uint64_t id;
    uint32_t mode; /* type and permission bits, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint64_t size;         /* bytes */
    struct timespec mtime; /* since the epoch */
    bool mapped; /* its readers map it, by several processes at once (safetensors, .npy) */
    bool hidden; /* it lies in RESHARD_CONTROL, or is that */
} reshard_stat;

/*
 * The hidden folder: found by that name in the root, and in no list of the root's. It has a folder "tensors"
 * with a folder rank_N for each rank and "full" with whole tensors (in a view of several saves, in a folder for
 * each; of hfai's parts there is "full", or model_0 and so on), and in these NAME.npy and NAME.json for each
 * parameter. "%", "/", control characters, what is not UTF-8 and a "." at the beginning of a name are %XX; one
 * that is longer than 250 bytes then is cut, and "%~" and the XXH3-128 of the name follow.
 *
 * Ids from 2^62 on are never a view's: whoever adds entries of his own has those for them.
 */
#define RESHARD_CONTROL ".reshardfs"

/*
 * Finds NAME in folder PARENT and sets *id; ".." is the folder above, which is the root for the root. Returns
 * 0, -ENOENT when it has no such entry or there is no PARENT, or -ENOTDIR when PARENT is a file; *id is untouched
 * then. Opens no source file, but in a folder of tensors, which is planned as a file of that rank would be: it may
 * fail with the errors of a file then, -EIO for -ENOENT, whose text goes to the log.
 */
RESHARD_API int reshard_lookup(reshard_view *view, uint64_t parent, const char *name, uint64_t *id);

typedef struct reshard_dirent {
    size_t struct_size;
    uint64_t id;
    bool is_dir;
    const char *name; /* the view's, until it is closed */
} reshard_dirent;

/*
 * One entry of folder DIR at POSITION (0 is the first; an entry's position never changes). Returns 1 with
 * *out filled, 0 past the end, -ENOENT when there is no DIR, or -ENOTDIR when it is a file. Opens no source
 * file, but of a folder of tensors, as reshard_lookup. What RESHARD_CONTROL has is in its own lists only.
 */
RESHARD_API int reshard_list(reshard_view *view, uint64_t dir, uint64_t position,
                             reshard_dirent *out);

/*
 * Attributes. For a file the first call indexes the headers of the source ranks that it needs, which takes
 * as long as reading them, and proves that each of its bytes is covered; err may be NULL. The attributes are
 * kept: later calls look at no source, and say nothing of one that has changed. Of a file whose size an earlier
 * view has kept on disk (the option index_cache), each call looks at the sources, whose headers are read when the
 * file is.
 * Returns 0, or -errno with *err filled: -ENOENT when there is no ID, or an error of a file, as above.
 */
RESHARD_API int reshard_getattr(reshard_view *view, uint64_t id, reshard_stat *out,
                                reshard_error *err);

/*
 * Whether the attributes of ID are known already, or kept by an earlier view, so that reshard_getattr reads nothing. True of folders,
 * and of ids that do not exist; never of the JSON file of a tensor, which is made at each call.
 */
RESHARD_API bool reshard_is_ready(reshard_view *view, uint64_t id);

/*
 * Reads up to SIZE bytes at OFFSET; short only at the end of the file, 0 from there on. Plans the file if
 * that was not done yet. Returns the number of bytes, or -ENOENT when there is no ID, -EISDIR when it is a
 * folder, or an error of a file, as above (its text: reshard_getattr, or the log); BUF may be overwritten
 * then all the same. BUF may be NULL when SIZE is 0.
 */
RESHARD_API ssize_t reshard_pread(reshard_view *view, uint64_t id, void *buf, size_t size,
                                  uint64_t offset);

/*
 * A reader remembers where its last read ended, so that sequential reading is assembled ahead.
 * One per open file; its calls may come from many threads. It must not outlive its view.
 */
typedef struct reshard_reader reshard_reader;

/*
 * *out is owned by the caller, to be closed by reshard_reader_close; NULL on failure. Returns 0, or -errno as
 * reshard_pread does.
 */
RESHARD_API int reshard_reader_open(reshard_view *view, uint64_t id, reshard_reader **out);

/* No other call on the reader may be running. Does nothing with NULL. Loans stay good. */
RESHARD_API void reshard_reader_close(reshard_reader *reader);

/* Like reshard_pread, of the reader's file. */
RESHARD_API ssize_t reshard_reader_pread(reshard_reader *reader, void *buf, size_t size,
                                         uint64_t offset);

/*
 * Lent bytes: they are read-only and stay as they are until the loan is given back, even if the reader is
 * closed before. A loan must not outlive its view. What is lent cannot leave the cache for something else:
 * give it back as soon as the bytes are out.
 */
typedef struct reshard_loan reshard_loan;
#define RESHARD_SCRATCH_EXTRA 64 /* bytes */

/*
 * Like reshard_reader_pread, without the last copy: fills iov[0..] with at most IOV_MAX spans that point, in
 * the order of the bytes, into the cache or into SCRATCH, and *loan with what keeps them alive: NULL when they
 * are all in SCRATCH. That is the caller's, has SIZE + RESHARD_SCRATCH_EXTRA bytes and stays untouched until the
 * spans are done with; a loan is to be given back then by reshard_return. Returns the number of bytes and sets
 * *iov_count, both 0 at the end of the file. On failure, *loan is NULL and -errno is as of reshard_reader_pread,
 * or -EINVAL when IOV_MAX is less than 1.
 */
RESHARD_API ssize_t reshard_reader_borrow(reshard_reader *reader, void *scratch, size_t size,
                                          uint64_t offset, struct iovec *iov, int iov_max,
                                          int *iov_count, reshard_loan **loan);

/* Gives lent bytes back, from any thread. Does nothing with NULL. */
RESHARD_API void reshard_return(reshard_loan *loan);

/*
 * Extended attributes, as getxattr(2) and listxattr(2) have them: texts without a NUL. Of the root:
 * user.reshardfs.version, .source (path), .format, .options (those in effect, as reshard_open takes them, no key
 * among them), .ranks and .parameters (counts), .source_ranks. Of a file: .format, .parameters, and .source_ranks,
 * which it depends on. Of a tensor's: .format, .parameter (its name), .dtype, .source_ranks, which have its bytes.
 * Ranks are written as "0-3,6". Those that do not apply are not there.
 *
 * Returns the length, without writing when SIZE is 0, -ENODATA for no such attribute, -ERANGE when it is longer
 * than SIZE, -ENOENT when there is no ID, -ENOMEM, or (not from the list) an error of a file, as above: values may
 * take a plan.
 */
RESHARD_API ssize_t reshard_get_attribute(reshard_view *view, uint64_t id, const char *name,
                                          void *value, size_t size);
/* The names, each with a NUL after it. */
RESHARD_API ssize_t reshard_list_attributes(reshard_view *view, uint64_t id, char *names,
                                            size_t size);

/*
 * The folders that the view will read or write, absolute and without links, for a program that gives up the right to all
 * others (the sandbox of reshardfs): SOURCE, what links in it and a map of files lead to, and, WRITTEN, the folder of
 * the option index_cache, which is made if it is missing. Everything beneath them counts. FN is called by the calling
 * thread, for a folder perhaps several times; what it returns, if not 0, is the result and ends it. Opens no source
 * file. 0, -ENOMEM, or what FN returned.
 */
typedef int reshard_folder_fn(void *ctx, const char *path, bool written);
RESHARD_API int reshard_folders(reshard_view *view, reshard_folder_fn *fn, void *ctx);

/*
 * Sources on file system DEVICE (st_dev), and those whose paths lead there, fail with -ELOOP from now on, unless they were looked at
 * before; that file system is not asked for anything. For a program that serves it, from this view. From any thread.
 */
RESHARD_API void reshard_refuse_device(reshard_view *view, dev_t device);

/*
 * Ending calls before they are done. A call that is cancelled ends with -EINTR soon, whatever it does: planning,
 * assembling, summing up, or waiting for another thread's work. What was cancelled is as if nobody had asked; others who
 * wait for the same do it themselves. One thing is not ended: a system call on a source that hangs. The call ends after it.
 */
typedef struct reshard_cancel reshard_cancel;

/* *out is owned by the caller, to be freed before the VIEW is closed; NULL on failure. Returns 0 or -ENOMEM. */
RESHARD_API int reshard_cancel_new(reshard_view *view, reshard_cancel **out);
/* No thread may be using it. Does nothing with NULL. */
RESHARD_API void reshard_cancel_free(reshard_cancel *cancel);
/* From now on CANCEL ends the calls of the calling thread on its view; NULL: nothing does. Several threads may use one. */
RESHARD_API void reshard_cancel_use(reshard_cancel *cancel);
/* True: calls that it ends, and those to come, are cancelled, until it is false again. From any thread. */
RESHARD_API void reshard_cancel_set(reshard_cancel *cancel, bool cancelled);

/*
 * Cancels, for good, all calls on the view that a reshard_cancel ends, and what the view does by itself: for a program
 * that is about to close it. From any thread, until reshard_close.
 */
RESHARD_API void reshard_cancel_all(reshard_view *view);

/* What the tree is, known right after opening; it never changes. Ranks are those that a strategy tells. */
typedef struct reshard_summary {
    size_t struct_size;
    uint32_t source_ranks;
    uint32_t source_stages;
    uint32_t target_ranks;
    uint32_t target_stages;
    uint64_t parameters; /* distinct names in the strategies */
    uint64_t entries;    /* files and folders shown, with the root */
    bool mapped;         /* some files are: a mount should keep those in the page cache */
} reshard_summary;

/* Fills *out; never fails. */
RESHARD_API void reshard_summarize(reshard_view *view, reshard_summary *out);

/* Buckets of reshard_statistics.latency. */
#define RESHARD_LATENCIES 24

/* Since the view was opened. Bytes are bytes of memory or of files; the rest are counts. */
typedef struct reshard_statistics {
    size_t struct_size;
    uint64_t reads; /* calls answered with at least one byte */
    uint64_t bytes_replied;
    uint64_t source_reads; /* read system calls on source files */
    uint64_t source_bytes; /* bytes they returned */
    uint64_t source_opens; /* open system calls on source files */
    uint64_t ranks_indexed;
    uint64_t ranks_predicted; /* of those, how many were verified against a predicted index */
    uint64_t index_bytes;     /* memory of the indexes */
    uint64_t cache_budget; /* what the cache may hold, with decrypted blocks: the option cache= */
    uint64_t cache_bytes;  /* what it holds now */
    uint64_t cache_hits;   /* pieces of up to 1 MiB that were there, or on their way */
    uint64_t cache_misses; /* pieces that were not; the hit rate is hits / (hits + misses) */
    uint64_t cache_evictions; /* pieces dropped for others */
    uint64_t read_ahead_pieces;

    uint64_t bytes_asked;  /* by all calls, with what lies beyond the end or was not given */
    uint64_t reads_failed; /* calls answered with an error */
    /* Source files found changed, damaged or unreadable, and calls on them that failed for lack of memory
     * or descriptors. */
    uint64_t source_errors;
    uint64_t decrypted_blocks; /* blocks of encrypted source files that were decrypted */
    uint64_t cache_inserts;    /* pieces that were put there, read ahead or not */
    uint64_t cache_regrets;    /* of the misses, pieces that were dropped for others not long ago */
    uint64_t read_ahead_unread; /* pieces that were dropped before anybody had read of them */
    uint64_t latency_sum;       /* nanoseconds that the calls took which "reads" counts */
    /*
     * How many of these took less than 1 microsecond, and then, in latency[k], from 2^(k-1) to less than
     * 2^k microseconds; all slower ones are in the last.
     */
    uint64_t latency[RESHARD_LATENCIES];
} reshard_statistics;

/* Fills *out; never fails. Each number is right by itself; together they are not of one moment. */
RESHARD_API void reshard_get_statistics(reshard_view *view, reshard_statistics *out);

/*
 * Plans every file, in order, as reshard_getattr of each would; reads no content. PROGRESS may be NULL; it
 * is called after each file (in a view of ranks each has one), by the calling thread. ERR may be NULL. Returns 0, or the -errno of the first
 * file that fails, with *err filled; those behind it are not looked at.
 */
RESHARD_API int reshard_check(reshard_view *view, reshard_progress_fn *progress, void *ctx,
                              reshard_error *err);

/* The library's version, "1.0.0"; a constant. */
RESHARD_API const char *reshard_version(void);

/*
 * What it reads and shows, the cipher library that it runs with, and which of its loops suit this processor, for
 * people; a constant.
 */
RESHARD_API const char *reshard_features(void);

#ifdef __cplusplus
}
#endif

#endif
