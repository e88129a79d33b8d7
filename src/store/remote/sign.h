/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of AWS, version 4, and the checksums of what requests send:
 *
 *   canonical    METHOD \n PATH \n QUERY \n name:value \n … \n \n names \n sha256 of the body
 *   to sign      AWS4-HMAC-SHA256 \n TIME \n DATE/REGION/SERVICE/aws4_request \n sha256 of
 *                canonical
 *   key          HMAC(HMAC(HMAC(HMAC("AWS4" + secret, DATE), REGION), SERVICE), "aws4_request")
 *
 * Threads: all functions; they keep nothing.
 */
#pragma once

#include "base/std.h"

#include <sys/uio.h>

/* The SHA-256 of an empty body. */
#define RFS_SIGN_NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct rfs_sign_header {
    const char *name; /* in small letters */
    const char *value;
};

struct rfs_sign {
    const char *key_id, *secret, *region, *service;
    const char *time;                      /* such as 20130524T000000Z */
    const char *method;                    /* "GET" */
    const char *path;                      /* percent-encoded, as in the request; begins with '/' */
    const char *query;                     /* percent-encoded, with sorted parts; or "" */
    const struct rfs_sign_header *headers; /* sorted by name; all that are signed */
    size_t n_headers;
    const char *body; /* SHA-256 of the body, in hexadecimal digits; NULL: there is none */
};

/* Checksums of the bytes that a request sends. */
struct rfs_sign_sums {
    char sha256[65]; /* for the signature */
    char md5[33];    /* as ETags have it */
    char md5_base64[25];
};

/* Sums up the bytes of the spans. 0; -ENOTSUP when this OpenSSL has no MD5; or -ENOMEM. */
int rfs_sign_sum(const struct iovec *spans, int count, struct rfs_sign_sums *out);
/*
 * Sets OUT to the MD5 of N concatenated MD5s, given in hexadecimal digits: the ETag of an upload in
 * parts. Returns what rfs_sign_sum returns.
 */
int rfs_sign_sum_parts(const char (*md5s)[33], size_t n, char out[33]);

/* Returns the value of the header Authorization, malloc'ed; NULL when out of memory. */
char *rfs_sign_authorization(const struct rfs_sign *sign);

/*
 * Returns TEXT with all bytes but letters, digits and "-._~" (and '/', with SLASHES) as %XX,
 * malloc'ed; NULL when out of memory.
 */
char *rfs_sign_encode(const char *text, bool slashes);
/*
 * Decodes TEXT in place; with PLUS, '+' is a space. Returns false for an encoded NUL, or an
 * incomplete %XX.
 */
bool rfs_sign_decode(char *text, bool plus);
