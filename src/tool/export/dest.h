/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that is exported to. Files come into being under a temporary name beside their own and
 * are renamed when they are complete; exports that run at the same time, and those that were
 * killed, are distinguished by a lock on the temporary file. Links inside the folder are not
 * followed.
 *
 * Threads: rfs_dest_find, make and close from one; the others from any.
 */
#pragma once

#include "base/error.h"

#include <sys/stat.h>

struct rfs_dest {
    char *path; /* absolute and resolved; owned */
    int fd;     /* of the folder; -1: it is not there yet */
};
#define RFS_DEST_NONE ((struct rfs_dest){NULL, -1})

/*
 * Where GIVEN is, which need not be there, but its parent. SOURCE (NULL: none) must be neither in
 * it nor around it. Makes nothing. 0, or -errno with *err filled; to be closed in any case.
 */
int rfs_dest_find(const char *given, const char *source, struct rfs_dest *out,
                  struct rfs_error *err);
/* Makes the folder if it is not there. 0, or -errno with *err filled. */
int rfs_dest_make(struct rfs_dest *dest, struct rfs_error *err);
void rfs_dest_close(struct rfs_dest *dest);

/* Refuses when fewer than BYTES are free there. 0, or -errno with *err filled. */
int rfs_dest_room(const struct rfs_dest *dest, uint64_t bytes, struct rfs_error *err);

/* The attributes of PATH below the folder, of a link itself. 0 or -errno. */
int rfs_dest_stat(const struct rfs_dest *dest, const char *path, struct stat *st);
/* Opens a regular file for reading. A descriptor, or -errno. */
int rfs_dest_open(const struct rfs_dest *dest, const char *path);
/* Bytes on disk of the file's temporary, if there is one: of an export that runs, or was killed. */
uint64_t rfs_dest_partial_bytes(const struct rfs_dest *dest, const char *path);
/* Removes the file's temporary if nobody writes it. */
void rfs_dest_sweep(const struct rfs_dest *dest, const char *path);

/* Removes a regular file, and its folder if nothing else is in it. 0 or -errno. */
int rfs_dest_remove(const struct rfs_dest *dest, const char *path);

/* A file that is being written. */
struct rfs_partial {
    int folder, fd;
    bool made_folder;
    const char *path; /* borrowed; below the folder of the export */
    char *temporary;  /* its name in its folder; owned */
};
#define RFS_PARTIAL_NONE ((struct rfs_partial){-1, -1, false, NULL, NULL})

/* Begins PATH, with the folders above it. 0, or -errno with *err filled. */
int rfs_partial_begin(const struct rfs_dest *dest, const char *path, mode_t mode,
                      struct rfs_partial *out, struct rfs_error *err);
/*
 * Gives it its name, in the place of another file only if REPLACE; SYNC: so that it outlasts a
 * power failure. Ends it in any case. 0, or -errno with *err filled.
 */
int rfs_partial_finish(const struct rfs_dest *dest, struct rfs_partial *partial, bool replace,
                       bool sync, struct rfs_error *err);
/* Removes it. Does nothing with one that has ended. */
void rfs_partial_drop(struct rfs_partial *partial);

/* Writes a small file in one go, in the place of any other. 0, or -errno with *err filled. */
int rfs_dest_save(const struct rfs_dest *dest, const char *name, const void *data, size_t size,
                  bool sync, struct rfs_error *err);

/* The message for an errno of writing: -CODE with *err filled. */
int rfs_dest_failed(const struct rfs_dest *dest, const char *path, const char *what, int code,
                    struct rfs_error *err);
