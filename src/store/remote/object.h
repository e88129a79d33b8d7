/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One object: its attributes, and the bytes of a version. known.h explains how they belong
 * together.
 *
 * Threads: all functions.
 */
#pragma once

#include "base/store.h"
#include "store/remote/place.h"

#include <time.h>

#define RFS_PART_BYTES ((uint64_t)8 << 20)

struct rfs_attributes {
    bool folder;
    uint64_t size;
    time_t modified;
    char etag[256], when[64]; /* "" where there is none; the second as the server wrote it */
};

/* False when they do not distinguish versions: by a strong ETag, or by the text WHEN. */
bool rfs_attributes_set(struct rfs_attributes *out, uint64_t size, time_t modified,
                        const char *etag, const char *when);
/* As stat(2): the inode stands for the version. */
void rfs_attributes_stat(const struct rfs_attributes *attributes, const char *url, struct stat *st);

/* Asks the store for them. 0 or -errno; -EREMOTE: to be asked again, with the place found anew. */
int rfs_object_ask(const struct rfs_place *place, const char *url, struct rfs_attributes *out);

/* The version with these attributes. 0 or -errno. */
int rfs_object_new(const char *url, const struct rfs_attributes *attributes,
                   struct rfs_object **out);
void rfs_object_free(struct rfs_object *object);
/* As in base/store.h. */
int rfs_object_read(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset);
