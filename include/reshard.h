/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard.h - reads a sharded checkpoint under another sharding strategy.
 *
 * A view is a read-only tree of virtual checkpoint files. reshard_open reads the two strategy files
 * and lists the source folders. It opens no source file: a source is opened at the first stat or
 * read of an entry that depends on it. The exceptions are view=huggingface, view=unified and
 * view=peft: their files depend on the sizes of all parameters, so reshard_open reads the headers.
 *
 * Threads: many threads may call functions on one view at once, except reshard_open and
 * reshard_close. Many threads may use one reader at once, until reshard_reader_close. Errors:
 * functions return 0 (or a byte count) or -errno. A reshard_error is filled on failure only, with
 * one line that names the file, the offset, the parameter and a remedy. NULL is allowed only where
 * the comment says so. Lifetimes: names, readers and loans of a view must not be used after
 * reshard_close. Close readers and give loans back first. A loan may outlive its reader. Growth:
 * structs start with their size. The caller sets it to sizeof; the library reads and writes only
 * that many bytes.
 *
 * Errors of a file, returned by every function that needs its attributes or content:
 *   -ENOENT   a source rank is missing, and no other rank is known to hold the same slice. (The
 *             entry exists, so the mount reports EIO.)
 *   -EINVAL   a source is damaged, or does not fit the strategies or the other sources; with a key,
 *             a source is not encrypted.
 *   -EBADMSG  the key does not decrypt a source: the key is wrong, or the file was changed.
 *   -ENOTSUP  a strategy cuts a tensor in an unsupported way, or OpenSSL lacks a cipher.
 *   -EFBIG    a source, or the file, exceeds the largest supported size.
 *   -EACCES   permission to open a source was denied; -EPERM likewise.
 *   -ESTALE   a source was changed, truncated, replaced or removed after its headers were read; if
 *             it is gone, after the view was opened.
 *   -ELOOP    the path of a source is a loop, or leads to a file system given to
 *             reshard_refuse_device.
 *   -EIO      reading a source failed.
 *   -ENOMEM, -EMFILE, -ENFILE: a limit of the process or the system is reached; a later call may
 *             succeed.
 *   -EINTR    the call was cancelled (reshard_cancel_set, reshard_cancel_all); the file is intact.
 * All errors but the last four stay until a new view is opened. -ESTALE, -EIO and -EBADMSG of a
 * source apply to every file that depends on it.
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

/* Owned by the caller. Zero it and set struct_size before the call; pass NULL for no text. */
typedef struct reshard_error {
    size_t struct_size;
    int code;           /* 0 or -errno */
    int usage;          /* 1: the options are wrong, not the input */
    char message[2048]; /* one line, no program name, no trailing newline */
} reshard_error;

enum reshard_level { RESHARD_LOG_ERROR, RESHARD_LOG_WARNING, RESHARD_LOG_INFO, RESHARD_LOG_DEBUG };

/*
 * Receives LINE: printable, without a newline, valid during the call. CTX is log_ctx. Several
 * threads may call it at once: callers of the view's functions, and the view's own threads until
 * reshard_close returns. It must not close the view.
 */
typedef void reshard_log_fn(void *ctx, enum reshard_level level, const char *line);

/* DONE of TOTAL steps are complete. CTX is the caller's. */
typedef void reshard_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* An option's name, such as "cache", and its value as text; NULL for a switch, such as "strict". */
typedef struct reshard_option {
    const char *name;
    const char *value;
} reshard_option;

/* Needed during reshard_open only, except the target of log_ctx. */
typedef struct reshard_config {
    size_t struct_size;
    /*
     * "key=value,key=value", as after -o. Accepted are the options of reshardfs(1) that select the
     * content and the form of the files: src_strategy, dst_strategy (a path, or several with ':'
     * between them), prefix, cache, strict and others. At least one must ask for something. Write a
     * comma inside a value as "\,", and a backslash before a comma or a backslash as "\\". When a
     * key comes twice, the last one counts. NULL is "". Programs should use "pairs" below.
     */
    const char *options;
    reshard_log_fn *log; /* NULL: no log */
    void *log_ctx;       /* the caller's; until reshard_close has returned */
    /*
     * NULL: no progress. If reshard_open reads headers, it calls this function in the calling
     * thread after each rank. Some of the ranks may not be needed.
     */
    reshard_progress_fn *progress;
    void *progress_ctx;
    /*
     * The view's files are shown to other users, too. Sources are then opened beneath SOURCE only,
     * as in a process of root: symbolic links out of it fail with -EXDEV, unless the option
     * follow_links is given. A folder above a source that denies search removes the permissions
     * from the modes. The hidden folder is for users that can read every source.
     */
    bool for_others;
    /* "pair_count" options, without escapes. They follow those of "options". */
    const reshard_option *pairs;
    size_t pair_count;
    /*
     * Seconds; 0: nothing is followed. The view has several saves (step=all), which come and go:
     * reshard_look below.
     */
    uint32_t follow;
} reshard_config;

/*
 * Opens a view of the checkpoint tree in SOURCE, the folder of rank_0 and so on. The view starts no
 * thread before the first stat or read, so a caller may fork in between and go on in one of the two
 * processes. A child may open views of its own, whatever the threads of its parent were doing. The
 * caller owns *out and closes it with reshard_close; it is NULL on failure.
 * CONFIG may be NULL, but the call then fails, because no strategy is given. ERR may be NULL.
 *
 * Returns 0, or -errno with *err filled:
 *   -EINVAL   with err->usage 1: the options are wrong; otherwise: strategies or a tree do not fit.
 *   -ENOENT   a source or a strategy does not exist, or a rank has no checkpoint and no other rank
 *             holds its slices.
 *   -ENOMEM, the system's error for a path, or an error of a file (above), if headers are read or a
 *             key is tried.
 *
 * Views of one process are independent, also in object storage: each reads by its own endpoint,
 * region, profile, path_style, anonymous, connections, tries and timeout. Variables of the
 * environment, with those of certificates and proxies, and the profile are those that the process
 * had when the view was opened, also when credentials are renewed. Views that agree on all of these
 * share their credentials, and count their connections together.
 *
 * With a key (key_file, key_fd or key_env; one of them) only the owner may read the files. The
 * descriptor is read to its end and closed. The variable is overwritten and removed from the
 * environment; no other thread may use the environment meanwhile. The key and decrypted content are
 * kept out of core files and, as far as the limits allow, out of swap, and are wiped. The caller
 * decides whether the process may be dumped or traced.
 */
RESHARD_API int reshard_open(const char *source, const reshard_config *config, reshard_view **out,
                             reshard_error *err);

/*
 * For programs, not for libraries. Call it at the start, before any use of OpenSSL. OpenSSL then
 * keeps key schedules in locked memory, outside of core files. The call replaces OpenSSL's
 * allocator in the whole process. Without it, key schedules lie in ordinary memory and are wiped
 * after each block. Returns 0, or -EALREADY when it is too late; nothing is changed then.
 */
RESHARD_API int reshard_guard_keys(void);

/*
 * Loads now what OpenSSL and libcurl load at their first use, such as modules that their
 * configuration names. For programs that give up the right to map code before they open a view, as
 * the sandbox of reshardfs does. Call it after reshard_guard_keys; it starts no thread.
 */
RESHARD_API void reshard_load_modules(void);

/*
 * Frees the view and ends its threads. No other call may be running. Readers must be closed and
 * loans given back. Does nothing with NULL.
 */
RESHARD_API void reshard_close(reshard_view *view);

#define RESHARD_ROOT UINT64_C(1)

/*
 * Entry ids are inode numbers: stable for one source tree and one pair of strategies. Folders have
 * the owner, the time and the permissions of SOURCE, at most 0555. A file has the latest time of
 * its sources, the read permissions that all of them grant, and their owner if they agree
 * (otherwise the process's).
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
    bool mapped;           /* several processes may map it at once (safetensors, .npy) */
    bool hidden;           /* RESHARD_CONTROL or an entry below it */
    bool passing; /* other attributes, or no entry of that name, may be there at any time */
} reshard_stat;

/*
 * The hidden folder in the root. reshard_lookup finds it; reshard_list leaves it out. Its folder
 * "tensors" has a folder rank_N for each rank and "full" with whole tensors. A view of several
 * saves has a folder for each save; hfai's parts have "full", or model_0 and so on. Each of these
 * folders has NAME.npy and NAME.json for every parameter. "%", "/", control characters, bytes that
 * are not UTF-8 and a leading "." are written as %XX. A longer name than 250 bytes is cut and ends
 * with "%~" and the XXH3-128 of the name.
 *
 * A view never uses ids from 2^62 on. They are free for the caller's own entries.
 */
#define RESHARD_CONTROL ".reshardfs"

/*
 * Finds NAME in folder PARENT and sets *id. ".." is the folder above; for the root it is the root.
 * Returns 0, -ENOENT when there is no such entry or no PARENT, or -ENOTDIR when PARENT is a file;
 * *id is untouched on failure. Opens no source file, except in a folder of tensors: it plans that
 * folder like the file of its rank. The call may then fail with the errors of a file, with -EIO
 * instead of -ENOENT; their text goes to the log.
 */
RESHARD_API int reshard_lookup(reshard_view *view, uint64_t parent, const char *name, uint64_t *id);

typedef struct reshard_dirent {
    size_t struct_size;
    uint64_t id;
    bool is_dir;
    const char *name; /* owned by the view, valid until reshard_close */
    uint64_t next;    /* the position behind it */
    bool is_link;
} reshard_dirent;

/*
 * The entry of folder DIR at POSITION (the first is 0; positions never change), or the next one
 * where a save has gone. Returns 1 with *out filled, 0 past the end, -ENOENT when there is no DIR,
 * or -ENOTDIR when it is a file. Opens source files for folders of tensors only, like
 * reshard_lookup. The entries of RESHARD_CONTROL appear in its own lists only.
 */
RESHARD_API int reshard_list(reshard_view *view, uint64_t dir, uint64_t position,
                             reshard_dirent *out);

/*
 * Attributes. The first call for a file reads the headers of the source ranks that it needs and
 * proves that the sources cover each of its bytes. The attributes are kept: later calls look at no
 * source and report no change. If an earlier view kept the size on disk (option index_cache), each
 * call compares the sources, and their headers are read together with the file. ERR may be NULL.
 * Returns 0, or -errno with *err filled: -ENOENT when there is no ID, or an error of a file
 * (above).
 */
RESHARD_API int reshard_getattr(reshard_view *view, uint64_t id, reshard_stat *out,
                                reshard_error *err);

/*
 * Returns true if the attributes of ID are known, or kept by an earlier view, so reshard_getattr
 * reads no headers. True for folders and for ids that do not exist. Never true for the JSON file of
 * a tensor, because each call generates it.
 */
RESHARD_API bool reshard_is_ready(reshard_view *view, uint64_t id);

/*
 * Follows a source. With "follow" in the config, the root has a folder for each save that is
 * complete, and RESHARD_LATEST, a symbolic link to the newest. A save is shown when the tracker
 * file of its kind names it or a later one, and all files of all its ranks are there and fit (each
 * file of the view is planned). If no file of it is newer than what its program writes at the end,
 * the tracker or the metadata, it is shown at once; else when nothing of it has changed for as many
 * seconds as the config says. Of a save that was removed or changed the folder goes, with all ids;
 * files that are open go on, with -ESTALE where a source did change. The root may be empty. Ids are
 * never used again. What a list of tensors gave is valid until the list is closed.
 *
 * reshard_look looks for saves that came or went: with RESHARD_LOOK_DUE if the kernel has reported
 * what may be the end of one, or that many seconds have passed since the last time, with
 * RESHARD_LOOK_FRESH also if one second has, with RESHARD_LOOK_NOW in any case, with
 * RESHARD_LOOK_LATER in a thread of the view's. It does nothing without "follow", and while another
 * thread looks. It costs listing the source (in object storage, all below it), a stat of each file
 * of the saves shown, and the headers of new saves. What it finds goes to the log. From any thread;
 * it can be cancelled.
 */
#define RESHARD_LATEST "latest"
enum reshard_looks {
    RESHARD_LOOK_DUE,
    RESHARD_LOOK_NOW,
    RESHARD_LOOK_LATER,
    RESHARD_LOOK_FRESH,
};
RESHARD_API void reshard_look(reshard_view *view, enum reshard_looks when);
/*
 * Copies the target of a symbolic link, with a NUL. Returns 0, -ENOENT when ID is none or it leads
 * nowhere at the moment, or -ERANGE.
 */
RESHARD_API int reshard_read_link(reshard_view *view, uint64_t id, char *target, size_t size);
/*
 * Says in JSON which saves there are, which one is the latest, and why others are not shown. The
 * caller frees the text; NULL without "follow", or when out of memory.
 */
RESHARD_API char *reshard_describe_saves(reshard_view *view);

/*
 * Reads up to SIZE bytes at OFFSET. Short only at the end of the file, 0 from there on. Plans the
 * file if that was not done yet. Returns the number of bytes, or -ENOENT when there is no ID,
 * -EISDIR when it is a folder, or an error of a file (above; reshard_getattr or the log has its
 * text). BUF may be overwritten on failure, too. BUF may be NULL when SIZE is 0.
 */
RESHARD_API ssize_t reshard_pread(reshard_view *view, uint64_t id, void *buf, size_t size,
                                  uint64_t offset);

/*
 * A reader remembers where its last read ended. Sequential reads are assembled ahead.
 * Use one per open file, from any number of threads. It must not outlive its view.
 */
typedef struct reshard_reader reshard_reader;

/*
 * The caller owns *out and closes it with reshard_reader_close; it is NULL on failure. Returns 0,
 * or -errno like reshard_pread.
 */
RESHARD_API int reshard_reader_open(reshard_view *view, uint64_t id, reshard_reader **out);

/* No other call on the reader may be running. Does nothing with NULL. Loans stay valid. */
RESHARD_API void reshard_reader_close(reshard_reader *reader);

/* reshard_pread for the reader's file. */
RESHARD_API ssize_t reshard_reader_pread(reshard_reader *reader, void *buf, size_t size,
                                         uint64_t offset);

/*
 * Lent bytes. They are read-only and do not change until the loan is given back, even if the reader
 * is closed before. A loan must not outlive its view; with "follow", nor its reader. Lent bytes
 * occupy the cache: give them back as soon as they are written.
 */
typedef struct reshard_loan reshard_loan;
#define RESHARD_SCRATCH_EXTRA 64 /* bytes */

/*
 * reshard_reader_pread without the last copy. Fills iov[0..] with at most IOV_MAX spans, in the
 * order of the bytes. They point into the cache or into SCRATCH. *loan keeps the cached ones alive;
 * it is NULL if all bytes are in SCRATCH. The caller owns SCRATCH, of SIZE + RESHARD_SCRATCH_EXTRA
 * bytes, and keeps it untouched as long as it uses the spans; then it gives the loan back with
 * reshard_return. Returns the number of bytes and sets *iov_count, both 0 at the end of the file.
 * On failure, *loan is NULL and -errno is that of reshard_reader_pread, or -EINVAL when IOV_MAX is
 * less than 1.
 */
RESHARD_API ssize_t reshard_reader_borrow(reshard_reader *reader, void *scratch, size_t size,
                                          uint64_t offset, struct iovec *iov, int iov_max,
                                          int *iov_count, reshard_loan **loan);

/* Gives lent bytes back, from any thread. Does nothing with NULL. */
RESHARD_API void reshard_return(reshard_loan *loan);

/*
 * The tensors of a rank, or of the whole checkpoint: a list, and functions that read tensors or
 * boxes of them straight into the caller's memory. Threads: all functions but close, on one list at
 * once. A list must not outlive its view.
 */
typedef struct reshard_tensors reshard_tensors;

/*
 * Opens the list of FOLDER, a folder of "tensors" in RESHARD_CONTROL: "full" for the whole tensors,
 * "rank_3" for those that the file of destination rank 3 has; of a view of several saves,
 * "1_100/full" and so on. Reads the headers that the file of that rank needs. The caller owns *out
 * and closes it with reshard_tensors_close; it is NULL on failure. Returns 0, -ENOENT when there is
 * no such folder, or an error of a file (above), with *err filled; ERR may be NULL.
 */
RESHARD_API int reshard_tensors_open(reshard_view *view, const char *folder, reshard_tensors **out,
                                     reshard_error *err);
/* No other call on the list may be running. Does nothing with NULL. */
RESHARD_API void reshard_tensors_close(reshard_tensors *tensors);

#define RESHARD_TENSOR_DIMS 16

typedef struct reshard_tensor {
    size_t struct_size;
    const char *name; /* owned by the view, valid until reshard_close */
    const char
        *dtype; /* "Float32", "BFloat16" and so on, as in the JSON file of a tensor; a constant */
    uint64_t bytes; /* of all elements */
    uint32_t ndim;  /* 0: a scalar, or a value that is not a tensor ("String", "Map") */
    uint64_t shape[RESHARD_TENSOR_DIMS]; /* elements along each axis, as this rank has them */
} reshard_tensor;

/* Returns the number of tensors. */
RESHARD_API size_t reshard_tensors_count(const reshard_tensors *tensors);
/*
 * Describes tensor I, from 0 on, in the order of the file. Returns 0, or -ENOENT behind the last.
 */
RESHARD_API int reshard_tensors_get(const reshard_tensors *tensors, size_t i, reshard_tensor *out);
/* Finds the tensor called NAME. Returns 0 with *i set, or -ENOENT. O(log n). */
RESHARD_API int reshard_tensors_find(const reshard_tensors *tensors, const char *name, size_t *i);

/* A tensor, or a box of it, and the memory that its elements go to. */
typedef struct reshard_load {
    size_t tensor; /* its number in the list */
    /*
     * [ndim] elements along each axis: the first one, and the one behind the last. Both NULL: all
     * of the tensor, which is the only way for a value without elements.
     */
    const uint64_t *begin, *end;
    void *to; /* room for the box, row by row, as in files; the caller's, no other load's */
} reshard_load;

/*
 * Reads N tensors or boxes. Only source bytes that belong to them are read, and short gaps between
 * these. The calls order the work by where the sources are, so it is best to request all that is
 * wanted by one call; the view's threads help. Memory: that of the caller, and what the view may
 * use anyway. A running call ends by reshard_cancel_use and reshard_cancel_set, with -EINTR.
 *
 * PROGRESS may be NULL. The calling thread calls it with bytes from time to time, and at the end.
 * ERR may be NULL. Returns 0; -EINVAL for a tensor or a box that does not exist, or if the memory
 * at "to" of two loads overlaps, also for equal boxes, and nothing is read then; or an error of a
 * file (above). *err names the tensor. The memory at "to" of all loads then has undefined bytes,
 * which must not be used.
 */
RESHARD_API int reshard_tensors_load(const reshard_tensors *tensors, const reshard_load *loads,
                                     size_t n, reshard_progress_fn *progress, void *ctx,
                                     reshard_error *err);

/*
 * Extended attributes, as in getxattr(2) and listxattr(2): texts without a NUL. Their names begin
 * with "user.reshardfs.". Attributes that do not apply are missing.
 *   root:    version, source (path), format, options (those in effect, as for reshard_open, without
 *            a key), ranks and parameters (counts), source_ranks
 *   file:    format, parameters, source_ranks (the ranks it depends on)
 *   tensor:  format, parameter (its name), dtype, source_ranks (the ranks that hold its bytes)
 * Ranks are written as "0-3,6".
 *
 * Returns the length, without writing when SIZE is 0, -ENODATA for an unknown attribute, -ERANGE
 * when it is longer than SIZE, -ENOENT when there is no ID, or -ENOMEM. A value, but not the list,
 * may need a plan, so it may fail with an error of a file (above).
 */
RESHARD_API ssize_t reshard_get_attribute(reshard_view *view, uint64_t id, const char *name,
                                          void *value, size_t size);
/* The names, each followed by a NUL. */
RESHARD_API ssize_t reshard_list_attributes(reshard_view *view, uint64_t id, char *names,
                                            size_t size);

/*
 * Lists the folders that the view reads or writes, absolute and without links. A program can then
 * give up access to all others, as the sandbox of reshardfs does. They are SOURCE, the targets of
 * links in it and of a map of files, the file of a token by which credentials of object storage are
 * renewed, and, with WRITTEN, the folder of the option index_cache; the call creates that one if it
 * is missing. Everything below a folder belongs to it. FN runs in the
 * calling thread, for some folders several times. If FN returns another value than 0, the call ends
 * and returns that value. Opens no source file. Returns 0, -ENOMEM, or the value of FN.
 */
typedef int reshard_folder_fn(void *ctx, const char *path, bool written);
RESHARD_API int reshard_folders(reshard_view *view, reshard_folder_fn *fn, void *ctx);

/*
 * For a program that serves a file system from this view: DEVICE is the st_dev of that file system.
 * From now on a source fails with -ELOOP if it is on that device or its path leads there, unless
 * the view has used it before. The view sends that file system no request. From any thread.
 */
RESHARD_API void reshard_refuse_device(reshard_view *view, dev_t device);

/*
 * Ends calls early. A cancelled call soon returns -EINTR, whether it plans, assembles, sums or
 * waits for another thread. Its unfinished work is dropped; other callers that wait for the same
 * work do it themselves. A system call on a source that hangs is not ended: the call returns after
 * it.
 */
typedef struct reshard_cancel reshard_cancel;

/*
 * The caller owns *out and frees it before VIEW is closed; it is NULL on failure. Returns 0 or
 * -ENOMEM.
 */
RESHARD_API int reshard_cancel_new(reshard_view *view, reshard_cancel **out);
/* No thread may be using it. Does nothing with NULL. */
RESHARD_API void reshard_cancel_free(reshard_cancel *cancel);
/*
 * From now on CANCEL ends the calls of the calling thread on its view. NULL: nothing ends them.
 * Several threads may use one.
 */
RESHARD_API void reshard_cancel_use(reshard_cancel *cancel);
/* True cancels the present and the following calls of its threads, until false. From any thread. */
RESHARD_API void reshard_cancel_set(reshard_cancel *cancel, bool cancelled);

/*
 * Cancels, for good, all calls on the view that a reshard_cancel can end, and the view's own work.
 * For a program that is about to close the view. From any thread, until reshard_close.
 */
RESHARD_API void reshard_cancel_all(reshard_view *view);

/* The size of the tree, known after reshard_open; it never changes. Ranks are the strategy's. */
typedef struct reshard_summary {
    size_t struct_size;
    uint32_t source_ranks;
    uint32_t source_stages;
    uint32_t target_ranks;
    uint32_t target_stages;
    uint64_t parameters; /* distinct names in the strategies */
    uint64_t entries;    /* files and folders shown, with the root */
    bool mapped;         /* some files are mapped: a mount should keep them in the page cache */
} reshard_summary;

/* Fills *out; never fails. */
RESHARD_API void reshard_summarize(reshard_view *view, reshard_summary *out);

/* Buckets of reshard_statistics.latency. */
#define RESHARD_LATENCIES 24

/* Counts since the view was opened. "bytes" in a name: bytes of memory or of files. */
typedef struct reshard_statistics {
    size_t struct_size;
    uint64_t reads; /* calls that returned at least one byte */
    uint64_t bytes_replied;
    uint64_t source_reads; /* read system calls on source files */
    uint64_t source_bytes; /* bytes they returned */
    uint64_t source_opens; /* open system calls on source files */
    uint64_t ranks_indexed;
    uint64_t ranks_predicted; /* part of ranks_indexed: verified against a predicted index */
    uint64_t index_bytes;     /* memory of the indexes */
    uint64_t cache_budget;    /* bytes for pieces, decrypted blocks and items: option cache= */
    uint64_t cache_bytes;     /* bytes in use now */
    uint64_t cache_hits;      /* pieces of up to 1 MiB, found in the cache or being made */
    uint64_t cache_misses;    /* pieces not found; the hit rate is hits / (hits + misses) */
    uint64_t cache_evictions; /* pieces dropped for others */
    uint64_t read_ahead_pieces;

    uint64_t bytes_asked;  /* by all calls, with bytes beyond the end and of failed calls */
    uint64_t reads_failed; /* calls that returned an error */
    /*
     * Source files found changed, damaged or unreadable, and calls on them that failed for lack of
     * memory or descriptors.
     */
    uint64_t source_errors;
    uint64_t decrypted_blocks;  /* blocks of encrypted source files that were decrypted */
    uint64_t cache_inserts;     /* pieces put into the cache, with those read ahead */
    uint64_t cache_regrets;     /* part of cache_misses: pieces dropped a short time before */
    uint64_t read_ahead_unread; /* pieces dropped before their first read */
    uint64_t latency_sum;       /* nanoseconds, over the calls in "reads" */
    /*
     * The calls in "reads" by duration: latency[0] has those of less than 1 microsecond, latency[k]
     * those from 2^(k-1) to less than 2^k microseconds; the last has all slower ones.
     */
    uint64_t latency[RESHARD_LATENCIES];
} reshard_statistics;

/* Fills *out; never fails. Each number is exact, but they are not all of the same moment. */
RESHARD_API void reshard_get_statistics(reshard_view *view, reshard_statistics *out);

/*
 * Plans every file, in order, as reshard_getattr does. Reads no content. If a file fails, the call
 * goes on with the next, and then reads the headers of every source. PROGRESS may be NULL; the
 * calling thread calls it after each file (a view of ranks has one file for each rank). ERR may be
 * NULL. Returns 0, or the -errno of the last error with *err filled. The log has the errors before
 * it, each text once. -ENOMEM, -EINTR and the hundredth error end the call.
 */
RESHARD_API int reshard_check(reshard_view *view, reshard_progress_fn *progress, void *ctx,
                              reshard_error *err);

/*
 * A quick look at the strategies. The call reads the headers of one rank of each pipeline stage of
 * the source. It fails if the strategies cannot cut the tensors in these headers, or if they know
 * none of their names. Files that are missing or damaged are no failure. If the view has several
 * saves, one that fits is enough. ERR may be NULL. Returns 0, or what reshard_getattr of a file
 * would, with *err filled.
 */
RESHARD_API int reshard_check_strategies(reshard_view *view, reshard_error *err);

/* The library's version, "1.0.0"; a constant. */
RESHARD_API const char *reshard_version(void);

/*
 * A text with the formats that the library reads and writes, its cipher library, and the code paths
 * that it uses on this processor; a constant.
 */
RESHARD_API const char *reshard_features(void);

#ifdef __cplusplus
}
#endif

#endif
