/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and folders of the machine and of object stores. A path says which, and all that reads
 * sources goes through here or through store/files.h: paths of the machine make the system
 * calls that they would make without it, URLs go to the caller's store of objects. Both give names,
 * attributes and bytes of the same kind, so that nothing above has to know.
 *
 * Threads: all functions.
 */
#pragma once

#include "base/error.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Returns whether a path names something in an object store. */
static inline bool rfs_store_is_url(const char *path)
{
    return strncmp(path, "s3://", 5) == 0 || strncmp(path, "hf://", 5) == 0 ||
           strncmp(path, "https://", 8) == 0 || strncmp(path, "http://", 7) == 0;
}

/*
 * Returns whether a path looks like a URL and is none: "gs://bucket", "s3:/bucket". There may be a
 * file of that name.
 */
bool rfs_store_is_foreign(const char *path);
/* Returns whether TEXT, a path or several with ':' between them, has a URL, or one of SCHEME. */
bool rfs_store_has_url(const char *text, const char *scheme);

/* A version of one object; all of its bytes are of that version. Belongs to its store. */
struct rfs_object;

/* An object that is being written in parts. Belongs to its store. */
struct rfs_upload;

#define RFS_STORE_ETAG 256 /* bytes of an ETag, with its NUL */

/* The entries of a folder of objects. */
struct rfs_store_names {
    struct rfs_store_name {
        char *name; /* owned */
        bool folder;
    } * data;
    size_t n, cap;
};

/*
 * Objects as one view reaches them: by its endpoint, its credentials, and what it knows of them.
 * store/remote/remote.h gives it, and more is behind it there. Where a function takes one, NULL
 * reads paths alone: a URL fails with -ENOTSUP.
 */
struct rfs_store {
    const struct rfs_store_directory *directory;
    const struct rfs_store_objects *objects;
    const struct rfs_store_uploads *uploads;
};

/*
 * What a store of objects does with names. Here and below paths are URLs; functions return 0 or
 * -errno, and note the details of a failure by rfs_store_fail.
 */
struct rfs_store_directory {
    /* Looks at an object or a folder, as stat(2). A folder exists while something is in it. */
    int (*stat)(struct rfs_store *store, const char *url, struct stat *st);
    /* Lists the entries of a folder, to be freed in any case. */
    int (*list)(struct rfs_store *store, const char *url, struct rfs_store_names *out);
    /*
     * Returns the URL that will name the same as this one does now, without the slashes at its end:
     * with a commit instead of a branch. malloc'ed; NULL with errno.
     */
    char *(*pin)(struct rfs_store *store, const char *url);
    /* Forgets all that was learned, as a source is opened anew. */
    void (*forget)(struct rfs_store *store);
};

/* What a store of objects does with versions of objects. */
struct rfs_store_objects {
    /* Finds the object's present version and its attributes; to be given back by let_go. */
    int (*hold)(struct rfs_store *store, const char *url, struct rfs_object **out, struct stat *st);
    /* Fills all spans, which it changes, from OFFSET on; -ESTALE once it is another version. */
    int (*read)(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset);
    void (*let_go)(struct rfs_object *object);
    /* Returns the shortest time until an answer with bytes of an object began, in ns; 0: none. */
    uint64_t (*round_trip)(struct rfs_store *store);
};

/*
 * How a store of objects writes. Nobody sees a part of an object. What the directory remembers
 * stays as it was, until it is forgotten. OVER is what an object may replace, in stores with
 * conditional writes: an object with that ETag; "": none; NULL: any. Else -EEXIST, unless the same
 * bytes are there.
 */
struct rfs_store_uploads {
    /* Writes an object of the spans in one request, and gives its ETag, which may be at OVER. */
    int (*put)(struct rfs_store *store, const char *url, const struct iovec *spans, int count,
               const char *over, char etag[RFS_STORE_ETAG]);
    /*
     * Begins an object of SIZE bytes in PARTS of one length, the last one shorter; to be dropped.
     */
    int (*begin)(struct rfs_store *store, const char *url, uint64_t size, uint32_t parts,
                 struct rfs_upload **out);
    /* Sends a part, from 0 on. Parts may be sent at once, by several threads. */
    int (*send)(struct rfs_upload *upload, uint32_t part, const struct iovec *spans, int count);
    /* Makes an object of all parts, once they have been sent. */
    int (*complete)(struct rfs_upload *upload, const char *over);
    /* Frees an upload; removes its parts unless it is complete. */
    void (*drop)(struct rfs_upload *upload);
    int (*remove)(struct rfs_store *store, const char *url);
    /* Drops the uploads of objects below a folder that IS_OURS takes, of any process. */
    int (*sweep)(struct rfs_store *store, const char *folder,
                 bool (*is_ours)(void *ctx, const char *path), void *ctx);
};

/* Looks at a path, as stat(2): 0 or -errno. It is not tried again after a signal. */
int rfs_store_stat(struct rfs_store *store, const char *path, struct stat *st);
/* Returns whether there is something of that name. */
bool rfs_store_there(struct rfs_store *store, const char *path);
/* Holds the present version of an object, as the store's call does. Fails without a store. */
int rfs_store_hold(struct rfs_store *store, const char *url, struct rfs_object **out,
                   struct stat *st);
/*
 * Resolves a path, as realpath(3). A URL loses the slashes at its end, and one of a hub gets the
 * commit of its revision.
 */
char *rfs_store_realpath(struct rfs_store *store, const char *path);
/* Copies a URL without the slashes at its end; malloc'ed. */
char *rfs_store_without_slash(const char *url);
/* Returns FOLDER of FOLDER/NAME, or "."; malloc'ed. */
char *rfs_store_folder(const char *path);
/* Returns that folder as realpath(3) gives it, or NULL with errno. */
char *rfs_store_parent(const char *path);

/*
 * A folder that is listed. Zero-initialise; a failed open needs no close, but may have one. Names
 * of objects that no file could have are left out.
 */
struct rfs_dir {
    DIR *dir;
    struct rfs_store_names names;
    size_t at;
    struct dirent entry;
};
/* Opens a folder. 0 or -errno. */
int rfs_dir_open(struct rfs_store *store, const char *path, struct rfs_dir *out);
/* Opens the folder of a descriptor, which belongs to *out afterwards, or is closed. 0 or -errno. */
int rfs_dir_of(int fd, struct rfs_dir *out);
/* Returns the next entry, until the next call; NULL at the end, with errno where that failed. */
const struct dirent *rfs_dir_next(struct rfs_dir *dir);
void rfs_dir_close(struct rfs_dir *dir);
#define RFS_CLOSE_DIR RFS_CLEANUP(rfs_dir_close)

/* Reads the first SIZE bytes, or fewer at the end: their number, or -errno. */
ssize_t rfs_store_head(struct rfs_store *store, const char *path, void *data, size_t size);
/*
 * Reads a small file at once, such as a strategy, a map or a manifest: the bytes of the regular
 * file at PATH, malloc'ed, with a NUL behind them that *SIZE does not count. 0, or -errno with *err
 * filled: -EFBIG when it has more than LIMIT bytes, -EISDIR, -EINVAL when it is no file, -ESTALE
 * when it changes meanwhile, -EINTR when the caller's work was given up.
 */
int rfs_store_read_whole(struct rfs_store *store, const char *path, size_t limit, char **data,
                         size_t *size, struct rfs_error *err);
/*
 * Reads a file of this machine in the same way, from its open descriptor FD, or -errno if opening
 * it failed; messages name PATH.
 */
int rfs_store_read_fd(int fd, const char *path, size_t limit, char **data, size_t *size,
                      struct rfs_error *err);

/*
 * Returns the text of an errno, positive or negative, as strerror has it; for a URL, where the
 * calling thread's last call to the store failed so, the text of the store. ENOENT of what looks
 * like a URL has a text of its own.
 */
const char *rfs_store_why(const char *path, int code);
/*
 * Returns the remedy when reading PATH gave EIO or EACCES, or ENOENT for a URL or what looks like
 * one.
 */
const char *rfs_store_remedy(const char *path, int code);
/* Fails with CODE, a -errno that reading a file gave at WHERE, for the reason that is known. */
int rfs_store_fail_read(struct rfs_error *err, struct rfs_where where, int code);
/* Sets the remedy, a constant, of the last failure. For stores. */
void rfs_store_fail_remedy(const char *remedy);
/* Returns whether the calling thread's last failure has a remedy of its own. For stores. */
bool rfs_store_has_remedy(void);
/* Notes the details of a failure with CODE, which it returns. For stores. */
int rfs_store_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
