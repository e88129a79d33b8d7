/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: where a URL of the user's is asked for.
 *
 *   s3://BUCKET/KEY    https://BUCKET.s3.REGION.amazonaws.com/KEY, or below another endpoint; with
 *                      path_style, or where the endpoint's host has no name that a bucket's could
 *                      stand before, https://HOST/BUCKET/KEY
 *   https://HOST/PATH  as it is, with characters encoded where HTTP needs that
 *   hf://ORG/MODEL[@REVISION][/PATH], hf://datasets/ORG/NAME…
 *                      https://huggingface.co/ORG/MODEL/resolve/REVISION/PATH, or below HF_ENDPOINT
 *
 * Threads: all functions.
 */
#pragma once

#include "store/remote/account.h"

/* A bucket of S3 or another server, and an object in it. */
struct rfs_bucket {
    struct rfs_account *account; /* that reaches it; borrowed */
    bool s3, hub;
    char *base;     /* "https://host:port"; this and the next seven are owned */
    char *host;     /* "host:port" */
    char *root;     /* of the bucket: "" or "/BUCKET"; "" of another server; of a hub's files */
    char *name;     /* "" of another server; "ORG/MODEL" or "datasets/ORG/NAME" */
    char *key;      /* of the object, without a slash in front; "" for the bucket itself */
    char *region;   /* for the signature */
    char *api;      /* of a hub: "https://huggingface.co/api/models/ORG/MODEL"; else NULL */
    char *revision; /* of a hub: a commit, or as the user wrote it; else NULL */
};

/* Says whether URL is of the server itself, by the same scheme and port. */
bool rfs_bucket_has(const struct rfs_bucket *bucket, const char *url);

/*
 * Finds the bucket of a URL, as ACCOUNT reaches it. 0; -EINVAL with rfs_store_fail for a URL that
 * is none; or -ENOMEM. *out is to be freed in any case.
 */
int rfs_bucket_of(struct rfs_account *account, const char *url, struct rfs_bucket *out);
void rfs_bucket_free(struct rfs_bucket *bucket);
/* Returns the path as it is sent, of KEY in the bucket; malloc'ed. */
char *rfs_bucket_path(const struct rfs_bucket *bucket, const char *key);

/* Notes the region of bucket NAME, as an answer of the store gave it; only names count. */
void rfs_bucket_learn(struct rfs_account *account, const char *name, const char *region);
/*
 * Follows a redirect of the store to LOCATION, a URL. True if requests for the bucket go there from
 * now on: to the endpoint's host or one below it, or from AWS to a host of its S3, by as safe a
 * scheme. Signatures and tokens go nowhere else.
 */
bool rfs_bucket_move(const struct rfs_bucket *bucket, const char *location);
