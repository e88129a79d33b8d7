/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hubs of models, as Hugging Face's: what a revision is, and where the files of a commit are.
 *
 *     GET  /api/models/ORG/MODEL/revision/REVISION   {"sha": COMMIT, …}
 *     GET  /api/models/ORG/MODEL/tree/COMMIT?…       a list of files (listing.h)
 *     HEAD /ORG/MODEL/resolve/COMMIT/PATH            302, Location: a URL elsewhere that ends soon,
 *                                                    X-Repo-Commit, X-Linked-Etag, X-Linked-Size
 *
 * Redirections are followed here, so that the token goes to the hub's own host alone (retries.h).
 *
 * Threads: all functions. The lock of the revisions is a leaf lock, not held across any request.
 */
#pragma once

#include "store/remote/retries.h"

/* The commits of revisions, as an account knows them. */
struct rfs_hub_known;
/* Makes one that knows none; NULL when out of memory. */
struct rfs_hub_known *rfs_hub_new(void);
/* Does nothing with NULL. */
void rfs_hub_free(struct rfs_hub_known *known);

/*
 * Returns URL with the commit of its revision, in the one form that names this file; other URLs
 * only lose the slashes at their end. malloc'ed; NULL with errno and rfs_store_fail. A revision is
 * asked for once, until rfs_hub_forget.
 */
char *rfs_hub_pin(struct rfs_account *account, const char *url);
/* Forgets the commits of revisions. */
void rfs_hub_forget(struct rfs_hub_known *known);

/*
 * Asks a hub at *AT, a URL that is malloc'ed, and where that leads. *REQUEST is to be freed in any
 * case. 0 with a whole answer, or -errno with rfs_store_fail.
 */
int rfs_hub_ask(const struct rfs_bucket *bucket, const char *url, char **at,
                struct rfs_remote_request *request);
/*
 * Finds where the bytes of a file are now, after the hub said that they are of the commit, and have
 * that ETag and size: *OUT, malloc'ed. 0; -ESTALE when they are others; or another -errno.
 */
int rfs_hub_locate(const struct rfs_bucket *bucket, const char *url, const char *etag,
                   uint64_t size, char **out);
