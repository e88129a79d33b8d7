/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that is exported to. A file is written under a temporary name beside its own, and
 * renamed when it is complete; a lock on the temporary file tells an export that runs from one that
 * was killed. Links inside the folder are not followed.
 *
 * Threads: rfs_dest_find, make and close from one; the others from any.
 */
#pragma once

#include "base/error.h"
#include "base/store.h"
#include "view/inspect.h"

#include <stdatomic.h>
#include <sys/stat.h>

struct rfs_dest {
    char *path; /* absolute and resolved; owned */
    int fd;     /* descriptor of the folder; -1: it is not there yet */
};
#define RFS_DEST_NONE ((struct rfs_dest){NULL, -1})

/*
 * Finds the folder GIVEN; its parent at least must exist. SOURCE (NULL: none) must be neither in it
 * nor around it. Makes nothing. 0, or -errno with *err filled; to be closed in any case.
 */
int rfs_dest_find(const char *given, const char *source, struct rfs_dest *out,
                  struct rfs_error *err);
/* Makes the folder if it does not exist. 0, or -errno with *err filled. */
int rfs_dest_make(struct rfs_dest *dest, struct rfs_error *err);
/* Closes the folder, and frees what DEST owns. */
void rfs_dest_close(struct rfs_dest *dest);

/* Refuses when fewer than BYTES are free there. 0, or -errno with *err filled. */
int rfs_dest_room(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err);

/* Lists the folder. 0 or -errno. */
int rfs_dest_list(const struct rfs_dest *dest, struct rfs_dir *out);
/* Reads the attributes of PATH below the folder, of a link itself. 0 or -errno. */
int rfs_dest_stat(const struct rfs_dest *dest, const char *path, struct stat *st);
/* Opens a regular file for reading. Returns a descriptor, or -errno. */
int rfs_dest_open(const struct rfs_dest *dest, const char *path);
/* Returns the bytes on disk of the file's temporary, which a running or killed export has made. */
uint64_t rfs_dest_partial_bytes(const struct rfs_dest *dest, const char *path);
/* Removes the file's temporary if no export is writing it. */
void rfs_dest_sweep(const struct rfs_dest *dest, const char *path);

/* Removes a regular file, and its folder if that is empty then. 0 or -errno. */
int rfs_dest_remove(const struct rfs_dest *dest, const char *path);

/* ---- files that are being written ------------------------------------------------------------ */

struct rfs_dest_partial {
    int folder, fd;
    bool made_folder;
    const struct rfs_dest *dest; /* borrowed, as the path */
    const char *path;            /* path below the folder of the export */
    char *temporary;             /* name in its folder; owned */
};
#define RFS_DEST_PARTIAL_NONE ((struct rfs_dest_partial){.folder = -1, .fd = -1})

/* Creates the temporary of PATH, and the folders above it. 0, or -errno with *err filled. */
int rfs_dest_partial_begin(const struct rfs_dest *dest, const char *path, mode_t mode,
                           struct rfs_dest_partial *out, struct rfs_error *err);
/*
 * Renames the temporary to its own name; replaces another file only if REPLACE. SYNC: the file then
 * outlasts a power failure. Ends *partial in any case. 0, or -errno with *err filled.
 */
int rfs_dest_partial_finish(struct rfs_dest_partial *partial, bool replace, bool sync,
                            struct rfs_error *err);
/* Removes the temporary; does nothing if *partial has ended. */
void rfs_dest_partial_drop(struct rfs_dest_partial *partial);

/* Writes a small file in one go, and replaces any other. 0, or -errno with *err filled. */
int rfs_dest_save(const struct rfs_dest *dest, const char *name, const void *data, size_t size,
                  bool sync, struct rfs_error *err);

/* Fills *err with the message for an errno of writing. Returns -CODE. */
int rfs_dest_failed(const struct rfs_dest *dest, const char *path, const char *what, int code,
                    struct rfs_error *err);

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
                          const struct rfs_view_run *plain, int fd, uint64_t *begin, uint64_t *end);
