/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of objects, which object.c remembers. Of S3 a list has all keys with a prefix, by
 * ListObjectsV2 in pages, with the attributes of each. Other servers have an index of each folder:
 * a JSON list of nginx (autoindex_format json), or of names, or the HTML of nginx and Apache;
 * attributes are asked for one by one. A hub's list has all files of a commit, in pages, with the
 * SHA-256 of large ones and git's id of others, which are their ETags.
 *
 *     <ListBucketResult>
 *       <Contents><Key>a%2Fb</Key><LastModified>…</LastModified><ETag>"…"</ETag><Size>8</Size>
 *       </Contents> …
 *       <IsTruncated>true</IsTruncated><NextContinuationToken>…</NextContinuationToken>
 *     </ListBucketResult>
 *
 *     [{"name": "rank_0", "type": "directory", …}, …]
 *     ["rank_0/", "a.ckpt"]
 *     <a href="rank_0/">rank_0/</a>
 *
 *     Link: <https://…>; rel="next"
 *     [{"type": "file", "path": "a/b", "size": 8, "oid": "…", "lfs": {"oid": "…", "size": 8}}, …]
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "store/remote/bucket.h"

#include <time.h>

/* An object or a folder of a list. */
struct rfs_remote_entry {
    char *name;  /* below the folder, "rank_0/a.ckpt"; owned, with the ETag in the same block */
    bool folder; /* the name ended with a slash */
    bool known;  /* its attributes below are known */
    uint64_t size;
    time_t modified;
    const char *etag; /* "" where there is none */
};

struct rfs_remote_listing {
    bool deep;                     /* all below, not the folder alone */
    struct rfs_remote_entry *data; /* in the byte order of their names, each once */
    size_t n, cap;
};

/* A folder that is listed. */
struct rfs_remote_folder {
    char *url; /* this and the next are the caller's */
    struct rfs_bucket bucket;
    struct rfs_remote_listing listing; /* to be freed in any case */
};

/*
 * Lists N folders of one server at once. 0, or -errno of one of them with rfs_store_fail; -EREMOTE
 * where the bucket's region became known, and it is to be asked again.
 */
int rfs_listing_fetch(struct rfs_remote_folder *folders, size_t n);
void rfs_remote_listing_free(struct rfs_remote_listing *listing);
/*
 * Reads one page of ListObjectsV2, of the keys that begin with PREFIX. 0, -EINVAL, -ENOMEM, or
 * -EFBIG when lists take too much memory (retries.h). Other files than listing.c call it for tests
 * alone.
 */
int rfs_listing_page(const char *text, size_t n, const char *prefix, struct rfs_remote_listing *out,
                     char *next, size_t cap);
/*
 * Reads a page of a hub's list. Fails as rfs_listing_page does. Other files than listing.c call it
 * for tests alone.
 */
int rfs_listing_tree(const char *text, size_t n, struct rfs_remote_listing *out);
/*
 * Writes the URL of the next page by the header Link to OUT; "" where there is none. False where
 * there is one that cannot be read. Other files than listing.c call it for tests alone.
 */
bool rfs_listing_next(const char *link, char *out, size_t cap);
/*
 * Reads the index of a folder, in JSON or HTML. Fails as rfs_listing_page does. Other files than
 * listing.c call it for tests alone.
 */
int rfs_listing_index(const char *text, size_t n, bool json, struct rfs_remote_listing *out);
