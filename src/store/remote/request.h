/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a store, and its answer. make.h makes requests, judge.h judges answers. */
#pragma once

#include "store/remote/http.h"
#include "store/remote/place.h"

#include <sys/uio.h>

/*
 * Whether an ETag stands for bytes: weak ones stand for a meaning, and no server takes them here.
 */
static inline bool rfs_etag_is_strong(const char *etag)
{
    return *etag && strncmp(etag, "W/", 2) != 0;
}

struct rfs_request {
    /* the request: borrowed */
    const struct rfs_place *place;
    const char *url;   /* the user's, for messages */
    const char *key;   /* in the place */
    const char *query; /* encoded and sorted; NULL: none */
    bool head;
    bool follow; /* a redirection of this HEAD; those of a web server's other answers always are */
    /*
     * Bytes [from, from + n) of an object of SIZE bytes go to the spans, from SKIP bytes of them on;
     * n == 0: the whole answer goes to TEXT.
     */
    uint64_t from, n, size;
    const struct iovec *spans;
    int count;
    uint64_t skip;
    const char *etag;     /* of the object's version, for ranges; "" or NULL: it has none */
    const char *modified; /* when that was last modified, as the store wrote it; likewise */

    /* the answer */
    struct rfs_http http;
    char *text; /* with a NUL behind it; owned */
    size_t text_n, text_cap;

    /* of make.c */
    uint64_t done; /* bytes of the range that are there */
    unsigned tries;
    uint64_t due; /* when it is tried again, ns */
    bool under_way, ended, renewed;
    bool wrong; /* the answer is not what was asked for; and if it is not of that version: */
    bool other;
    bool over;              /* it would take more memory than lists may */
    char *asked, **headers; /* owned */
};
