/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A JSON object whose values are texts, such as a map of files. Takes the file's bytes, 16 to 32 a
 * pair, and while it is read 11 to 21 more.
 */
#pragma once

#include "base/error.h"

struct rfs_beneath;
struct rfs_store;

/* A weight map of a million names fits. */
#define RFS_MAPFILE_BYTES ((size_t)128 << 20)

struct rfs_mapfile_pair {
    /* in the map's text; of a member, a path below its folder has no "." and no "//" */
    const char *key, *value;
};

struct rfs_mapfile {
    struct rfs_mapfile_pair *data; /* in the order of the file; each key once */
    size_t n, cap;
    char *text; /* that of the file; owned */
};

/* Where the map is in the object of a file. Zero: it is the object itself. */
struct rfs_mapfile_form {
    const char *member; /* it is the member of that name; its values are then paths of files */
    bool needed;        /* the object itself is none, if it lacks the member */
};

/*
 * Reads a map. BENEATH and STORE say where the file is opened (beneath.h). *out is to be freed in
 * any case.
 */
int rfs_mapfile_read(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     struct rfs_mapfile_form form, struct rfs_mapfile *out, struct rfs_error *err);
/*
 * Parses SIZE bytes of a map, which are taken over in any case (from malloc) and changed; messages
 * name PATH. Other files than mapfile.c call it for tests alone.
 */
int rfs_mapfile_parse(const char *path, char *data, size_t size, struct rfs_mapfile_form form,
                      struct rfs_mapfile *out, struct rfs_error *err);
void rfs_mapfile_free(struct rfs_mapfile *map);
