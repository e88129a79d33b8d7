/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exchanges of HTTP, a request and its answer, by libcurl. A thread takes a lane, starts exchanges
 * on it and waits for them. Lanes keep their connections for the next thread, of any client.
 *
 * A server learns an identity from the headers of a request alone: libcurl sends no cookies, user
 * names or client certificates here, and reads no variables of the process. The first URL chooses
 * the proxy, also for redirections. Each client limits its exchanges under way. Nothing is tried
 * again here; retries.h does that.
 *
 * Threads: all functions; a lane belongs to one thread at a time. The lock of the idle lanes is a
 * leaf lock, not held across any system call.
 */
#pragma once

#include "base/std.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct rfs_environment;
struct rfs_http_lane;

/* A limit that several callers share. Zero-initialise all members except MOST. */
struct rfs_http_client {
    unsigned most;      /* exchanges under way at once */
    unsigned under_way; /* under the lock of the lanes, as the next */
    pid_t process;      /* the process that started them; after a fork, the child has none */
    /* The shortest time from a request for a range to the first byte of its answer, ns; 0: none. */
    atomic_uint_fast64_t round_trip;
};

enum rfs_http_method { RFS_HTTP_GET, RFS_HTTP_HEAD, RFS_HTTP_PUT, RFS_HTTP_POST, RFS_HTTP_DELETE };

struct rfs_http {
    /* the request; borrowed until it is finished or stopped */
    struct rfs_http_client *client; /* NULL: no limit, for short requests between others */
    const struct rfs_environment *environment; /* has the proxies and the certificates to trust */
    const char *url;
    enum rfs_http_method method;
    const char *const *headers; /* "Name: value", to a NULL */
    const char *form;           /* of a POST, encoded */
    const struct iovec *spans;  /* bytes that a PUT or a POST sends; NULL: none */
    int count;                  /* spans */
    uint64_t n;                 /* bytes of the spans */
    unsigned timeout;           /* seconds with less than 1 KiB each */
    bool direct;                /* past proxies: a metadata service */
    bool follow;                /* redirections; never with a signature */
    /* Takes a part of the body, once the headers are known. False ends the exchange. */
    bool (*body)(void *ctx, struct rfs_http *http, const char *data, size_t n);
    void *ctx;

    /* the answer */
    long status; /* of the answer; 0: no answer came */
    char etag[256], modified[64], type[128], location[8192], region[64], range[96];
    /* from a hub: the commit, the redirection's file, the next page, the reason of a refusal */
    char commit[64], linked_etag[256], linked_size[32], link[4096], error[64], error_text[256];
    char encryption[32]; /* the store's encryption of the object; "": the answer has none */
    int64_t length;      /* -1: the answer has none */
    unsigned retry_after;
    int failed;        /* the -errno of an exchange without a whole answer, or 0 */
    bool refused_tls;  /* the failure: the server's certificate is not trusted */
    bool no_host;      /* the failure: nobody knows its name, or the proxy's */
    bool no_listener;  /* the failure: nothing listens at the port */
    bool no_tls;       /* the failure: the server speaks no TLS, or no version that we know */
    char problem[256]; /* text of the failure */

    void *handle;  /* the lane's */
    uint64_t sent; /* bytes of the spans that were sent */
};

/* Loads everything that libcurl would load at its first use. */
void rfs_http_load(void);

/* Returns an idle lane, or a new one; NULL when out of memory. */
struct rfs_http_lane *rfs_http_take_lane(void);
/* Stops the lane's exchanges, and gives it to the next thread. */
void rfs_http_give_lane(struct rfs_http_lane *lane);
/*
 * Starts an exchange. Returns 0, -ENOMEM, or -EAGAIN if its client has too many under way, on all
 * lanes together. After -EAGAIN, a caller with nothing under way may wait by rfs_http_queue.
 */
int rfs_http_start(struct rfs_http_lane *lane, struct rfs_http *http);
/* Waits until another exchange ends: 0, or -EINTR when the caller's work is cancelled. */
int rfs_http_queue(struct rfs_http_client *client);
/* Returns the next exchange that is finished, or NULL after at most MS milliseconds. */
struct rfs_http *rfs_http_wait(struct rfs_http_lane *lane, int ms);
/* Returns how many exchanges of the lane are under way. */
unsigned rfs_http_busy(const struct rfs_http_lane *lane);

/* Resolves the header Location of an answer from URL. Malloc'ed; NULL if it is no URL. */
char *rfs_http_follow(const char *url, const char *location);

/* Returns the time of "Sun, 06 Nov 1994 08:49:37 GMT"; 0 when it is none. */
time_t rfs_http_time(const char *text);
/* Says whether N characters can be in a header: there are some, and none of them ends the line. */
static inline bool rfs_http_is_line(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && (unsigned char)text[i] >= ' ' && text[i] != 0x7f)
        i++;
    return n > 0 && i == n;
}

/* Says whether an ETag identifies bytes. Weak ones do not, and servers refuse them in If-Match. */
static inline bool rfs_http_etag_is_strong(const char *etag)
{
    return rfs_http_is_line(etag, strlen(etag)) && strncmp(etag, "W/", 2) != 0;
}

/* Says whether two ETags are equal, weak or strong. */
static inline bool rfs_http_same_etag(const char *a, const char *b)
{
    a += strncmp(a, "W/", 2) == 0 ? 2 : 0;
    b += strncmp(b, "W/", 2) == 0 ? 2 : 0;
    return *a && strcmp(a, b) == 0;
}

/* Returns the name and version of the library: "libcurl 8.5.0". */
const char *rfs_http_library(void);
/* Closes connections that nobody uses. */
void rfs_http_close_idle(void);
