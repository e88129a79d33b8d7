/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/make.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/wait.h"
#include "store/remote/chain.h"
#include "store/remote/judge.h"
#include "store/remote/settings.h"
#include "store/remote/sign.h"

#include <stdatomic.h>
#include <sys/random.h>

#define FIRST_WAIT UINT64_C(100000000)  /* ns */
#define LAST_WAIT UINT64_C(20000000000) /* ns */
#define LOOK_MS 50                      /* how long a cancelled request may go on */
#define ERROR_MOST ((size_t)16 << 10)   /* of a store's message about a failure */
#define HEADERS 8

/* ---- memory of lists ------------------------------------------------------------------------- */

static atomic_uint_fast64_t lists_bytes;

bool rfs_lists_take(uint64_t bytes)
{
    const uint64_t before = atomic_fetch_add(&lists_bytes, bytes);

    if (before <= RFS_LISTS_BYTES && bytes <= RFS_LISTS_BYTES - before)
        return true;
    rfs_lists_give(bytes);
    return false;
}

void rfs_lists_give(uint64_t bytes)
{
    atomic_fetch_sub(&lists_bytes, bytes);
}

int rfs_lists_fail(void)
{
    return rfs_store_fail(-EFBIG,
                          "lists of objects would take more than %" PRIu64
                          " MiB of memory; try: a longer prefix, or files=MAP",
                          RFS_LISTS_BYTES >> 20);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void free_headers(struct rfs_request *request)
{
    for (size_t i = 0; request->headers && request->headers[i]; i++) {
        explicit_bzero(request->headers[i], strlen(request->headers[i]));
        free(request->headers[i]);
    }
    free(request->headers);
    request->headers = NULL;
    free(request->asked);
    request->asked = NULL;
}

void rfs_request_free(struct rfs_request *request)
{
    free_headers(request);
    free(request->text);
    request->text = NULL;
    rfs_lists_give(request->text_cap);
    request->text_cap = 0;
}

static bool add_header(struct rfs_request *request, const char *name, const char *value)
{
    size_t n = 0;

    while (request->headers[n])
        n++;
    if (n + 1 >= HEADERS)
        return false;
    request->headers[n] = rfs_text_printf("%s: %s", name, value);
    return request->headers[n] != NULL;
}

/* Headers that sign the request for the next minutes. */
static bool add_signature(struct rfs_request *request, const struct rfs_credentials *who,
                          const char *path)
{
    char time_text[32];
    const time_t now = time(NULL);
    struct tm utc;

    gmtime_r(&now, &utc);
    strftime(time_text, sizeof time_text, "%Y%m%dT%H%M%SZ", &utc);
    const struct rfs_signed_header headers[] = {
        {"host", request->place->host},
        {"x-amz-content-sha256", RFS_SIGN_NO_BODY},
        {"x-amz-date", time_text},
        {"x-amz-security-token", who->token},
    };
    const struct rfs_sign sign = {
        .key_id = who->key_id,
        .secret = who->secret,
        .region = request->place->region,
        .service = "s3",
        .time = time_text,
        .method = request->head ? "HEAD" : "GET",
        .path = path,
        .query = request->query ? request->query : "",
        .headers = headers,
        .n_headers = who->token[0] ? 4 : 3,
    };
    RFS_FREE char *signature = rfs_sign_authorization(&sign);
    return signature && add_header(request, "x-amz-content-sha256", RFS_SIGN_NO_BODY) &&
           add_header(request, "x-amz-date", time_text) &&
           (!who->token[0] || add_header(request, "x-amz-security-token", who->token)) &&
           add_header(request, "authorization", signature);
}

static int add_identity(struct rfs_request *request, const char *path)
{
    struct rfs_credentials who;
    const int rc = rfs_credentials_get(&who);

    if (rc)
        return rc;
    const bool added = add_signature(request, &who, path);
    rfs_wipe(&who, sizeof who);
    return added ? 0 : -ENOMEM;
}

/* The version and the range. */
static bool add_conditions(struct rfs_request *request)
{
    char range[64];
    const uint64_t from = request->from + request->done;

    if (request->n == 0)
        return true;
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, from,
             request->from + request->n - 1);
    if (!add_header(request, "Range", range))
        return false;
    if (request->etag && rfs_etag_is_strong(request->etag))
        return add_header(request, "If-Match", request->etag);
    return !request->modified || !request->modified[0] ||
           add_header(request, "If-Unmodified-Since", request->modified);
}

static int write_request(struct rfs_request *request)
{
    RFS_FREE char *path = rfs_place_path(request->place, request->key);

    free_headers(request);
    request->headers = calloc(HEADERS, sizeof *request->headers);
    if (!path || !request->headers || !add_conditions(request))
        return -ENOMEM;
    request->asked =
        rfs_text_printf("%s%s%s%s", request->place->base, path, request->query ? "?" : "",
                        request->query ? request->query : "");
    if (!request->asked)
        return -ENOMEM;
    return request->place->s3 && !rfs_remote_settings()->anonymous ? add_identity(request, path)
                                                                   : 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Copies to the spans, from AT bytes of them on; N bytes fit. */
static void put(const struct rfs_request *request, uint64_t at, const char *data, size_t n)
{
    for (int i = 0; i < request->count && n > 0; i++) {
        const struct iovec *span = &request->spans[i];
        if (at >= span->iov_len) {
            at -= span->iov_len;
            continue;
        }
        const size_t room = (size_t)rfs_min_u64(n, span->iov_len - at);
        memcpy((char *)span->iov_base + at, data, room);
        data += room;
        n -= room;
        at = 0;
    }
}

static bool take_text(struct rfs_request *request, const char *data, size_t n)
{
    if (request->http.status != 200 && n > ERROR_MOST - request->text_n)
        return true; /* that is enough of it */
    if (request->text_n + n + 1 > request->text_cap) {
        const size_t cap = 2 * (request->text_n + n) + 4096;
        request->over = !rfs_lists_take(cap - request->text_cap);
        if (request->over)
            return false;
        char *text = realloc(request->text, cap);
        if (!text) {
            rfs_lists_give(cap - request->text_cap);
            return false;
        }
        request->text = text;
        request->text_cap = cap;
    }
    memcpy(request->text + request->text_n, data, n);
    request->text_n += n;
    request->text[request->text_n] = '\0';
    return true;
}

/* A part of a body. False ends the exchange, which is tried again. */
static bool on_body(void *ctx, struct rfs_http *http, const char *data, size_t n)
{
    struct rfs_request *request = ctx;

    if (request->n == 0 || (http->status != 206 && http->status != 200))
        return take_text(request, data, n);
    if (!request->under_way) {
        request->under_way = true;
        request->wrong = !rfs_judge_range(request);
    }
    if (request->wrong)
        return false;
    if (n > request->n - request->done) {
        snprintf(http->problem, sizeof http->problem, "it sent more bytes than were asked for");
        return false;
    }
    put(request, request->skip + request->done, data, n);
    request->done += n;
    return true;
}

/* ---- trying ---------------------------------------------------------------------------------- */

static uint64_t at_random(uint64_t below)
{
    uint64_t value = 0;

    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != (ssize_t)sizeof value)
        value = rfs_wait_now();
    return below > 0 ? value % below : 0;
}

static void put_off(struct rfs_request *request)
{
    const unsigned doubled = request->tries - 1 < 10 ? request->tries - 1 : 10;
    uint64_t wait = rfs_min_u64(FIRST_WAIT << doubled, LAST_WAIT);

    wait -= at_random(wait / 2);
    const uint64_t asked = request->http.retry_after * UINT64_C(1000000000);
    request->due = rfs_wait_now() + rfs_max_u64(wait, rfs_min_u64(asked, LAST_WAIT));
}

static int start(struct rfs_lane *lane, struct rfs_request *request)
{
    int rc = write_request(request);

    if (rc < 0)
        return rc;
    request->http = (struct rfs_http){
        .url = request->asked,
        .method = request->head ? RFS_HTTP_HEAD : RFS_HTTP_GET,
        .headers = (const char *const *)request->headers,
        .timeout = rfs_remote_settings()->timeout,
        .follow = !request->place->s3 && (!request->head || request->follow),
        .body = on_body,
        .ctx = request,
    };
    request->text_n = 0;
    request->under_way = request->wrong = request->other = request->over = false;
    rc = rfs_lane_start(lane, &request->http);
    if (rc == 0)
        request->tries++;
    return rc;
}

/*
 * Starts all requests that are due. *soonest is the time of the next, or UINT64_MAX. 0 or -errno.
 */
static int start_due(struct rfs_lane *lane, struct rfs_request *requests, size_t n, bool *started,
                     uint64_t *soonest)
{
    const uint64_t now = rfs_wait_now();

    *soonest = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        struct rfs_request *request = &requests[i];
        if (request->ended || started[i])
            continue;
        if (request->due > now) {
            *soonest = rfs_min_u64(*soonest, request->due);
            continue;
        }
        const int rc = start(lane, request);
        if (rc == -EAGAIN && rfs_lane_busy(lane) > 0)
            return 0;
        if (rc == -EAGAIN) {
            *soonest = now;
            return rfs_lane_queue();
        }
        if (rc < 0)
            return rc;
        started[i] = true;
    }
    return 0;
}

/* Judges the answer: 0 when the request has ended or is to be tried again, or -errno. */
static int settle(struct rfs_request *request)
{
    const int rc = request->over ? rfs_lists_fail() : rfs_judge(request);

    if (rc != RFS_AGAIN) {
        request->ended = rc == 0;
        return rc;
    }
    if (request->tries >= rfs_remote_settings()->tries)
        return rfs_judge_fail(request, -EIO);
    put_off(request);
    return 0;
}

static int make_on(struct rfs_lane *lane, struct rfs_request *requests, size_t n, bool *started)
{
    size_t left = n;

    while (left > 0) {
        uint64_t soonest;
        int rc = rfs_cancelled() ? -EINTR : start_due(lane, requests, n, started, &soonest);
        if (rc < 0)
            return rc;
        const uint64_t now = rfs_wait_now();
        int ms = LOOK_MS;
        if (soonest != UINT64_MAX && soonest < now + LOOK_MS * UINT64_C(1000000))
            ms = soonest > now ? (int)((soonest - now) / 1000000) + 1 : 0;
        struct rfs_http *http = rfs_lane_wait(lane, ms);
        if (!http)
            continue;
        struct rfs_request *request = http->ctx;
        started[request - requests] = false;
        rc = settle(request);
        if (rc < 0)
            return rc;
        left -= request->ended;
    }
    return 0;
}

int rfs_requests_make(struct rfs_request *requests, size_t n)
{
    struct rfs_lane *lane = rfs_lane_take();
    RFS_FREE bool *started = calloc(n, sizeof *started);
    const int rc = lane && started ? make_on(lane, requests, n, started) : -ENOMEM;

    rfs_lane_give(lane);
    for (size_t i = 0; i < n; i++)
        free_headers(&requests[i]);
    return rc == -ENOMEM ? rfs_store_fail(rc, "out of memory") : rc;
}
