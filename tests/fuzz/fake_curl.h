/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcurl without a network, and a clock that goes on by itself: the input answers each request,
 * in order. A target with fake_curl.c has these instead of the true ones; only parsers of URLs and
 * times are libcurl's own. For one thread.
 *
 * Answers are apart by a NUL. One is a status line, headers, an empty line and the body; or '!' and
 * a number, a CURLcode. Behind the last, no server can be reached.
 *
 *     HTTP/1.1 206 Partial Content
 *     ETag: "1"
 *     Content-Range: bytes 0-3/4
 *
 *     abcd
 */
#ifndef TESTS_FUZZ_FAKE_CURL_H
#define TESTS_FUZZ_FAKE_CURL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A request as libcurl would send it. */
struct fake_request {
    const char *method;
    const char *scheme, *host; /* as libcurl reads the URL */
    const char *authorization; /* value of that header, or NULL */
    bool follows;              /* redirections, wherever they lead */
};

/* Sets what the next requests get, and who looks at each of them. */
void fake_curl_begin(const uint8_t *answers, size_t size,
                     void (*look)(const struct fake_request *request));

#endif
