/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a store, signed, their answers judged, and tried again where that may help: after
 * broken and stalled connections, short bodies, wrong ranges, 408, 429 and 5xx, with waits that
 * grow from 0.1 s to 20 s and are shortened at random by up to a half. Bytes of a range that
 * arrived stay: the next try asks for the rest. All of that is of one version of the object, or the
 * request fails. A host that is not found, refuses connections, speaks no TLS or sends no ranges
 * gets two tries, unless it did better before. A redirect to another region or host of a bucket is
 * noted (bucket.h), and ends the request with -EREMOTE: the caller finds the bucket anew.
 *
 * Requests to a hub carry its token while they are for its own host, by TLS or on this machine;
 * nothing else does. Their redirections are the caller's (hub.h). Where a file's bytes come from
 * another host, a refusal of that host (403 and others) is -EREMOTE, too: its URLs expire.
 *
 * What a request sends has its MD5 with it, by which the store refuses other bytes. The ETag of the
 * answer is compared with it, unless it is none, and the request is tried again if the store has
 * other bytes.
 *
 * Threads: all functions; a request belongs to one thread.
 */
#pragma once

#include "store/remote/bucket.h"
#include "store/remote/http.h"
#include "store/remote/sign.h"

#include <sys/uio.h>

/* The answer to the last try. */
struct rfs_remote_answer {
    struct rfs_http http;
    char *text; /* with a NUL behind it; owned */
    size_t text_n, text_cap;
    bool under_way;    /* its bytes have begun */
    bool wrong;        /* it is not what was asked for */
    bool unranged;     /* it is the whole object instead of a range */
    uint64_t passed;   /* bytes of a small whole object that are still passed over */
    const char *other; /* why it is of another version of the object; NULL: it is not */
    bool large;        /* it would take more memory than lists may */
    bool damaged;      /* the store has other bytes than were sent */
};

/* What retries.c knows of the tries. */
struct rfs_remote_tries {
    unsigned n;
    uint64_t done; /* bytes of the range that are there */
    uint64_t due;  /* when it is tried again, ns */
    bool ended, renewed;
    char *asked, **headers; /* owned */
};

/* A request to a store. */
struct rfs_remote_request {
    /* what is asked: borrowed */
    const struct rfs_bucket *bucket;
    const char *url;   /* the user's, for messages */
    const char *key;   /* in the bucket */
    const char *query; /* encoded and sorted; NULL: none */
    const char *at;    /* of a hub: the whole URL that is asked, instead of KEY and QUERY */
    bool head;
    bool follow; /* a redirection of this HEAD; those of a web server's other answers always are */
    /*
     * Bytes [from, from + n) of an object of SIZE bytes go to the spans, from SKIP bytes of them
     * on; n == 0: the whole answer goes to TEXT.
     */
    uint64_t from, n, size;
    const struct iovec *spans;
    int count;
    uint64_t skip;
    const char *etag;     /* of the object's version, for ranges; "" or NULL: it has none */
    const char *modified; /* time of its last change, as the store wrote it; likewise */
    /*
     * ETag that answers of a hub with ranges must have; "": the first of them is noted. A hub's own
     * host gives that of the list, others give one of their own, or none.
     */
    char tag[256];
    enum rfs_http_method method;      /* one that writes; GET: none */
    const struct rfs_sign_sums *sums; /* of the bytes in the spans, which it sends; NULL: none */
    const char *over; /* ETag of what it may replace; "": nothing may be there; NULL: anything */
    bool brief;       /* it gets two tries */

    struct rfs_remote_answer answer;
    struct rfs_remote_tries tries;
};

/*
 * Makes all N requests at once. 0, or the -errno of the first that failed, with rfs_store_fail;
 * then the others were stopped. -ENOENT and -EACCES as the store answers; -EINVAL where a hub knows
 * no such model or revision; -ESTALE for another version; -EEXIST when there is not what it may
 * replace; -ENOTSUP from a store that compares no such thing; -EINTR when the caller's work is
 * cancelled; -EIO after the last try.
 */
int rfs_retries_make(struct rfs_remote_request *requests, size_t n);
/* Says whether the ETag of an answer is the MD5 of the bytes; PARTS: that of its parts' MD5s. */
bool rfs_retries_has_md5(const struct rfs_http *http, bool parts);
/* Frees what the request owns. */
void rfs_retries_free(struct rfs_remote_request *request);

/* The most memory for lists of objects: answers without a range, and what stays of them. */
#define RFS_RETRIES_MEMORY ((uint64_t)256 << 20)
/* Takes BYTES more of that memory. True when they are to be had; they must be given back. */
bool rfs_retries_take_memory(uint64_t bytes);
void rfs_retries_give_memory(uint64_t bytes);
/* Reports that lists take too much memory, by rfs_store_fail. -EFBIG. */
int rfs_retries_fail_memory(void);
