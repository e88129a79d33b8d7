/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names below a URL. Of S3 they are all keys with that prefix, by ListObjectsV2 in pages, with
 * the attributes of each. Other servers have an index of each folder: a JSON list of nginx
 * (autoindex_format json), or of names, or the HTML of nginx and Apache; attributes are asked for
 * one by one.
 *
 *     <ListBucketResult> <Contents><Key>a%2Fb</Key><LastModified>…</LastModified><ETag>"…"</ETag><Size>8</Size></Contents> …
 *       <IsTruncated>true</IsTruncated><NextContinuationToken>…</NextContinuationToken></ListBucketResult>
 *     [{"name": "rank_0", "type": "directory", …}, …]      ["rank_0/", "a.ckpt"]      <a href="rank_0/">rank_0/</a>
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "store/remote/place.h"

#include <time.h>

struct rfs_remote_entry {
    char *name;  /* below the folder, "rank_0/a.ckpt"; owned, with the ETag in the same block */
    bool folder; /* it ends there with a slash */
    bool known;  /* its attributes are: */
    uint64_t size;
    time_t modified;
    const char *etag; /* "" where there is none */
};

struct rfs_remote_listing {
    bool deep;                     /* all below, not the folder alone */
    struct rfs_remote_entry *data; /* in the byte order of their names, each once */
    size_t n, cap;
};

/* More keys below one prefix are refused, or more pages of them. */
#define RFS_LISTING_MOST 1000000u
#define RFS_LISTING_PAGES 10000u

/* A folder that is listed. */
struct rfs_folder {
    char *url; /* this and the next are the caller's */
    struct rfs_place place;
    struct rfs_remote_listing listing; /* to be freed in any case */
};

/*
 * Lists N folders of one server at once. 0, or -errno of one of them with rfs_store_fail; -EREMOTE
 * where the bucket's region became known, and it is to be asked again.
 */
int rfs_listing_fetch(struct rfs_folder *folders, size_t n);
void rfs_remote_listing_free(struct rfs_remote_listing *listing);

/*
 * One page of ListObjectsV2, of the keys that begin with PREFIX: 0, -EINVAL, -ENOMEM, or -EFBIG
 * when lists take too much memory (make.h).
 */
int rfs_listing_page(const char *text, size_t n, const char *prefix, struct rfs_remote_listing *out,
                     char *next, size_t cap);
/* The index of a folder, by its type. The same. */
int rfs_listing_index(const char *text, size_t n, bool json, struct rfs_remote_listing *out);
