/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The destination of an export. In each kind a file becomes visible when it is complete:
 *
 *     a folder      a file is written under a temporary name beside its own, and renamed; a lock on
 *                   the temporary tells an export that runs from one that was killed.
 *                   Links inside the folder are not followed. dest_folder.c
 *     s3://…        an object is uploaded in parts, which the store then puts together; a small one
 *                   is one request. There are no locks: of two exports that write at once, the
 *                   manifest's ETag stops one. dest_bucket.c
 *
 * Threads: find, make, close, list and sweep from one; save from one at a time; the others from
 * any.
 */
#pragma once

#include "base/error.h"
#include "base/store.h"
#include "survey/origins.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define RFS_DEST_SPANS 64                    /* of one write, at most */
#define RFS_DEST_PIECES (UINT64_C(64) << 20) /* bytes of all threads' pieces together */

struct rfs_dest {
    const struct rfs_dest_kind *kind;
    char *path;              /* of a folder, absolute and resolved; or a URL; owned */
    bool there;              /* there may be something in it */
    int fd;                  /* of a folder: its descriptor; else -1 */
    struct rfs_store *store; /* of a bucket, and of a source there, once it was found; or NULL */
    /* Members of a bucket. */
    bool listed;
    char etag[RFS_STORE_ETAG]; /* of the manifest that was saved last; "": none yet */
};
#define RFS_DEST_NONE ((struct rfs_dest){.fd = -1})

/* A file that is read. */
struct rfs_dest_file {
    uint64_t size;
    int fd;                  /* of a folder */
    struct rfs_store *store; /* of a bucket, as the next; borrowed */
    struct rfs_object *object;
};

/* A file that is being written. The caller sets the first members. */
struct rfs_dest_partial {
    const struct rfs_dest *dest; /* borrowed, as the path */
    const char *path;            /* path below the destination */
    uint64_t size;               /* bytes */
    uint64_t piece;              /* bytes of the pieces that it is written in, from 0 on */
    mode_t mode;
    bool replace; /* it may replace another file */
    bool sync;    /* on a disk: it outlasts a power failure once it is finished */
    bool begun;
    /* Members of a folder. */
    int folder, fd;
    bool made_folder;
    char *temporary; /* name in its folder; owned */
    /* Members of a bucket. */
    char *url;                 /* owned, as the next */
    struct rfs_upload *upload; /* NULL: it is one request */
    pthread_mutex_t lock;      /* guards the next; a leaf lock */
    unsigned char *part;       /* the one part that comes in several writes; owned */
    uint64_t part_size;        /* bytes of it */
    uint64_t part_bytes;       /* bytes of it that are there */
};

/* Functions return 0 or -errno; those with an error fill it. */
struct rfs_dest_kind {
    /* Finds what the user names, and makes nothing. *out is to be closed in any case. */
    int (*find)(const char *given, struct rfs_dest *out, struct rfs_error *err);
    /* Makes it, if it is not there. */
    int (*make)(struct rfs_dest *dest, struct rfs_error *err);
    /* Refuses when fewer than BYTES are free there. */
    int (*room)(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err);

    /* Lists its files and folders. */
    int (*list)(struct rfs_dest *dest, struct rfs_dir *out);
    /* Reads the attributes of PATH below it, of a link itself. */
    int (*stat)(const struct rfs_dest *dest, const char *path, struct stat *st);
    /* Opens a regular file for reading; *out is to be closed. */
    int (*open)(const struct rfs_dest *dest, const char *path, struct rfs_dest_file *out);
    /* Reads SIZE bytes; -ENODATA or -ESTALE when they are not there any more. */
    int (*read)(struct rfs_dest_file *file, void *data, size_t size, uint64_t offset);
    void (*close)(struct rfs_dest_file *file);
    /* Bytes of a read that is fast here. */
    size_t read_bytes;

    /* Returns the bytes on disk of the file's temporary, of a running or killed export. */
    uint64_t (*partial_bytes)(const struct rfs_dest *dest, const char *path);
    /* Removes all remains of N files that killed exports left, in the byte order of paths. */
    int (*sweep)(const struct rfs_dest *dest, const char *const *paths, size_t n,
                 struct rfs_error *err);
    /* Removes a regular file, and its folder if that is empty then. */
    int (*remove)(const struct rfs_dest *dest, const char *path);

    /* Returns the size of pieces for THREADS threads and files of up to LARGEST bytes. */
    uint64_t (*piece)(unsigned threads, uint64_t largest);
    /* Begins a file; it is to be finished or dropped. */
    int (*begin)(struct rfs_dest_partial *partial, struct rfs_error *err);
    /*
     * Writes bytes [from, to) of at most RFS_DEST_SPANS spans, which begin at OFFSET of the file.
     */
    int (*write)(struct rfs_dest_partial *partial, const struct iovec *spans, int count,
                 uint64_t from, uint64_t to, uint64_t offset);
    /* Gives a complete file its name. */
    int (*finish)(struct rfs_dest_partial *partial, struct rfs_error *err);
    /* Removes the incomplete file, and frees all that *partial owns. */
    void (*drop)(struct rfs_dest_partial *partial);
    /* Writes a small file in one go, and replaces any other, but not another export's. */
    int (*save)(struct rfs_dest *dest, const char *name, const void *data, size_t size, bool sync,
                struct rfs_error *err);
};

extern const struct rfs_dest_kind rfs_dest_folder, rfs_dest_bucket;

/*
 * Finds the folder or the bucket GIVEN; a folder's parent at least must exist. SOURCE (NULL: none)
 * must be neither in it nor around it. Makes nothing. 0, or -errno with *err filled; to be closed
 * in any case.
 */
int rfs_dest_find(const char *given, const char *source, struct rfs_dest *out,
                  struct rfs_error *err);
/* Frees what DEST owns. */
void rfs_dest_close(struct rfs_dest *dest);

/* Begins a file as *partial says: begin of the kind. */
int rfs_dest_begin(struct rfs_dest_partial *partial, struct rfs_error *err);
/* Names a file: finish of the kind. Ends *partial in any case. */
int rfs_dest_finish(struct rfs_dest_partial *partial, struct rfs_error *err);
/* Removes an incomplete file; does nothing if *partial has ended. */
void rfs_dest_drop(struct rfs_dest_partial *partial);

/* Sets OUT to bytes [from, to) of some spans; returns how many spans these are. */
int rfs_dest_cut(const struct iovec *spans, int count, uint64_t from, uint64_t to,
                 struct iovec out[RFS_DEST_SPANS]);

/* Fills *err with the message for an errno of writing. Returns -CODE. */
int rfs_dest_failed(const struct rfs_dest *dest, const char *path, const char *what, int code,
                    struct rfs_error *err);
/* Fails because two exports write the same. */
int rfs_dest_busy(const struct rfs_dest *dest, const char *path, struct rfs_error *err);

/* ---- bytes that the file system takes over --------------------------------------------------- */

/*
 * The file system itself takes over bytes from a source, where it can: as shared blocks (btrfs, XFS
 * and others, by FICLONERANGE), or as a copy on the server (NFS, SMB, Ceph, by copy_file_range).
 * Elsewhere copy_file_range would have the kernel copy pages, which costs as much as writing what
 * has been read already, since all is read for the checksum. The first refusal ends the tries.
 */

/* Bytes of the shortest range that is tried; shorter ones are written. */
#define RFS_DEST_COPY_LEAST (UINT64_C(1) << 20)

enum rfs_dest_copy_way { RFS_DEST_COPY_NOT, RFS_DEST_COPY_CLONE, RFS_DEST_COPY_SERVER };

struct rfs_dest_copier {
    atomic_int way; /* an rfs_dest_copy_way */
    uint64_t block; /* block size of the file system, bytes: whole blocks are shared */
    atomic_uint_least64_t bytes_taken; /* bytes taken over from sources */
};

/* Sets up a copier for files on the file system of FD. */
void rfs_dest_copier_init(struct rfs_dest_copier *copier, int fd);

/*
 * Takes as much of PLAIN as it can over from the descriptor SOURCE into the shown file that is
 * written to FD, whose offsets PLAIN's are. [*begin, *end) is the range that it took, maybe empty.
 * From any thread.
 */
void rfs_dest_copier_take(struct rfs_dest_copier *copier, int source,
                          const struct rfs_origins_run *plain, int fd, uint64_t *begin,
                          uint64_t *end);
