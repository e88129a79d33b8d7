/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges of HTTP, by libcurl. A thread takes a lane, starts exchanges on it and waits for them;
 * lanes keep their connections for the next thread. All lanes together have at most as many
 * exchanges under way as the settings allow.
 *
 * Threads: all functions; a lane belongs to one thread at a time. The lock of the idle lanes is a
 * leaf lock, not held across any system call.
 */
#pragma once

#include "base/std.h"

#include <sys/types.h>
#include <time.h>

struct rfs_lane;

enum rfs_http_method { RFS_HTTP_GET, RFS_HTTP_HEAD, RFS_HTTP_PUT, RFS_HTTP_POST };

struct rfs_http {
    /* the request; borrowed until it is finished or stopped */
    const char *url;
    enum rfs_http_method method;
    const char *const *headers; /* "Name: value", to a NULL */
    const char *form;           /* of a POST, encoded */
    unsigned timeout;           /* seconds with less than 1 KiB each */
    bool direct;                /* past proxies: a metadata service */
    bool follow;                /* redirections; never with a signature */
    /* Takes a part of the body, once the headers are known. False ends the exchange. */
    bool (*body)(void *ctx, struct rfs_http *http, const char *data, size_t n);
    void *ctx;

    /* the answer */
    long status; /* 0: nothing was */
    char etag[256], modified[64], type[128], location[1024], region[64], range[96];
    int64_t length; /* -1: it was not said */
    unsigned retry_after;
    int failed;        /* 0, or -errno of an exchange without a whole answer */
    bool refused_tls;  /* that is because the server's certificate is not trusted */
    char problem[256]; /* of a failed one */

    void *handle; /* the lane's */
};

/* Loads what libcurl loads at its first use. */
void rfs_http_load(void);

/* NULL when out of memory. */
struct rfs_lane *rfs_lane_take(void);
/* Stops its exchanges. */
void rfs_lane_give(struct rfs_lane *lane);
/*
 * 0; -EAGAIN when too many exchanges are under way, of all lanes; or -ENOMEM. In the first case
 * with nothing of its own under way the caller may wait by rfs_lane_queue.
 */
int rfs_lane_start(struct rfs_lane *lane, struct rfs_http *http);
/* Until another exchange ends: 0, or -EINTR when the caller's work is cancelled. */
int rfs_lane_queue(void);
/* The next that is finished, or NULL after MS milliseconds, or some time before. */
struct rfs_http *rfs_lane_wait(struct rfs_lane *lane, int ms);
unsigned rfs_lane_busy(const struct rfs_lane *lane);

/* The shortest time from a request for a range to the first byte of its answer, in ns; 0: none. */
uint64_t rfs_http_round_trip(void);

/* The time of "Sun, 06 Nov 1994 08:49:37 GMT"; 0 when it is none. */
time_t rfs_http_time(const char *text);

/* "libcurl 8.5.0" */
const char *rfs_http_library(void);
/* Closes connections that nobody uses. */
void rfs_http_rest(void);
