/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a URL of the user's is asked for:
 *
 *   s3://BUCKET/KEY    https://BUCKET.s3.REGION.amazonaws.com/KEY, or below another endpoint; with path_style, or where the
 *                      endpoint's host has no name that a bucket's could stand before, https://HOST/BUCKET/KEY
 *   https://HOST/PATH  as it is, with characters encoded where HTTP needs that
 */
#pragma once

#include "base/std.h"

struct rfs_place {
    bool s3;
    char *base; /* "https://host:port"; this and the next four are owned */
    char *host; /* "host:port" */
    char *root; /* of the bucket: "" or "/BUCKET"; "" of another server */
    char *bucket;
    char *key;    /* as it is, without a slash in front; "" for the bucket itself */
    char *region; /* for the signature */
};

/*
 * 0; -EINVAL for a URL that is none, with rfs_store_fail; or -ENOMEM. *out is to be freed in any
 * case.
 */
int rfs_place_of(const char *url, struct rfs_place *out);
void rfs_place_free(struct rfs_place *place);
/* The path as it is sent, of KEY in the same place; malloc'ed. */
char *rfs_place_path(const struct rfs_place *place, const char *key);

/* The bucket's region, as an answer of the store gave it; others than names do not count. */
void rfs_place_learn(const char *bucket, const char *region);
/*
 * The store redirects PLACE to LOCATION, a URL. True if requests for the bucket go there from now
 * on: to the endpoint's host or one below it, or from AWS to a host of its S3, by as safe a scheme.
 * Signatures and tokens go nowhere else.
 */
bool rfs_place_move(const struct rfs_place *place, const char *location);
