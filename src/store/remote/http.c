/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/http.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/forks.h"
#include "store/remote/environment.h"

#include <curl/curl.h>
#include <pthread.h>
#include <strings.h>
#include <unistd.h>

#define KEPT 32 /* idle lanes, the rest is closed */
#define CONNECT_SECONDS 10
/* Below the size from which malloc asks the system for memory each time (mount/main.c). */
#define BUFFER_BYTES (120L << 10)
#define CONNECTIONS_KEPT 32L /* of a lane */
#define LEAST_RATE 1024L     /* bytes a second; a connection that gives fewer is stalled */

/* A request in the hands of curl. */
struct handle {
    CURL *easy;
    struct curl_slist *headers; /* owned */
    struct rfs_http *http;      /* the exchange under way; NULL: none */
    char why[CURL_ERROR_SIZE];
    struct handle *next; /* of the idle ones, or of those that are under way */
};

struct rfs_http_lane {
    CURLM *multi;
    struct handle *idle, *busy;
    unsigned n_busy;
    pid_t process;
    struct rfs_http_lane *next;
};

static struct {
    pthread_mutex_t lock; /* of the rest; a leaf lock */
    bool begun;
    pthread_cond_t ended; /* an exchange did */
    struct rfs_http_lane *idle;
    unsigned n_idle;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Forgets the lanes of the parent: a word on their connections would confuse its servers. */
static void begin_anew(void)
{
    rfs_cancel_init_cond(&all.ended);
    all.idle = NULL;
    all.n_idle = 0;
}

RFS_FORKS_WITH(all.lock, begin_anew)

void rfs_http_load(void)
{
    RFS_LOCKED(&all.lock); /* no fork comes in between, whose child would lack what libcurl began */
    if (all.begun)
        return;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    rfs_cancel_init_cond(&all.ended);
    all.begun = true;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void free_handle(struct handle *handle)
{
    curl_easy_cleanup(handle->easy);
    curl_slist_free_all(handle->headers);
    free(handle);
}

static void free_lane(struct rfs_http_lane *lane)
{
    for (struct handle *handle = lane->idle, *next; handle; handle = next) {
        next = handle->next;
        free_handle(handle);
    }
    curl_multi_cleanup(lane->multi);
    free(lane);
}

static struct rfs_http_lane *new_lane(void)
{
    struct rfs_http_lane *lane = calloc(1, sizeof *lane);

    if (!lane)
        return NULL;
    lane->process = getpid();
    /* Both kinds of handles are made under the lock: libcurl spins on one of its own there, which a
     * fork would leave taken in the child. */
    pthread_mutex_lock(&all.lock);
    lane->multi = curl_multi_init();
    pthread_mutex_unlock(&all.lock);
    if (lane->multi) {
        curl_multi_setopt(lane->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_KEPT);
        return lane;
    }
    free(lane);
    return NULL;
}

struct rfs_http_lane *rfs_http_take_lane(void)
{
    rfs_http_load();
    pthread_mutex_lock(&all.lock);
    struct rfs_http_lane *lane = all.idle;
    if (lane) {
        all.idle = lane->next;
        all.n_idle--;
    }
    pthread_mutex_unlock(&all.lock);
    return lane ? lane : new_lane();
}

/* Returns how many exchanges of the client are under way in this process. Under the lock. */
static unsigned *under_way(struct rfs_http_client *client)
{
    if (client->process != getpid()) {
        client->process = getpid();
        client->under_way = 0;
    }
    return &client->under_way;
}

/* Counts an exchange as under way, unless there are too many. */
static bool take_turn(struct rfs_http_client *client)
{
    if (!client)
        return true;
    RFS_LOCKED(&all.lock);
    unsigned *count = under_way(client);
    const bool mine = *count < client->most;
    *count += mine;
    return mine;
}

static void give_turn(struct rfs_http_client *client)
{
    if (!client)
        return;
    RFS_LOCKED(&all.lock);
    unsigned *count = under_way(client);
    *count -= *count > 0;
    pthread_cond_broadcast(&all.ended);
}

int rfs_http_queue(struct rfs_http_client *client)
{
    int rc = 0;

    pthread_mutex_lock(&all.lock);
    if (*under_way(client) >= client->most)
        rc = rfs_cancel_wait(&all.ended, &all.lock);
    pthread_mutex_unlock(&all.lock);
    return rc;
}

/* Ends an exchange that is over, or was given up: its handle is for the next. */
static void retire(struct rfs_http_lane *lane, struct handle *handle)
{
    struct handle **at = &lane->busy;

    curl_multi_remove_handle(lane->multi, handle->easy);
    while (*at != handle)
        at = &(*at)->next;
    *at = handle->next;
    handle->next = lane->idle;
    lane->idle = handle;
    struct rfs_http_client *client = handle->http->client;
    handle->http = NULL;
    lane->n_busy--;
    for (struct curl_slist *line = handle->headers; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(handle->headers);
    handle->headers = NULL;
    curl_easy_reset(handle->easy); /* connections stay */
    give_turn(client);
}

void rfs_http_give_lane(struct rfs_http_lane *lane)
{
    if (!lane)
        return;
    while (lane->busy)
        retire(lane, lane->busy);
    const bool own = lane->process == getpid();
    pthread_mutex_lock(&all.lock);
    const bool keep = own && all.n_idle < KEPT;
    if (keep) {
        lane->next = all.idle;
        all.idle = lane;
        all.n_idle++;
    }
    pthread_mutex_unlock(&all.lock);
    if (!keep)
        free_lane(lane);
}

void rfs_http_close_idle(void)
{
    pthread_mutex_lock(&all.lock);
    struct rfs_http_lane *lane = all.idle;
    all.idle = NULL;
    all.n_idle = 0;
    pthread_mutex_unlock(&all.lock);
    for (struct rfs_http_lane *next; lane; lane = next) {
        next = lane->next;
        free_lane(lane);
    }
}

unsigned rfs_http_busy(const struct rfs_http_lane *lane)
{
    return lane->n_busy;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_text(char *out, size_t cap, const char *value, size_t n)
{
    if (n >= cap)
        n = 0; /* cut, it would be another */
    memcpy(out, value, n);
    out[n] = '\0';
}

static void take_number(const char *value, int64_t *out)
{
    char *end;
    const long long number = strtoll(value, &end, 10);

    if (end != value && number >= 0)
        *out = number;
}

/* Forgets headers of an earlier answer, such as a redirection. Only its location stays. */
static void forget_answer(struct rfs_http *http)
{
    http->etag[0] = http->modified[0] = http->type[0] = '\0';
    http->region[0] = http->range[0] = http->encryption[0] = http->commit[0] =
        http->linked_etag[0] = '\0';
    http->linked_size[0] = http->link[0] = http->error[0] = http->error_text[0] = '\0';
    http->length = -1;
    http->retry_after = 0;
}

/* Adds a header Link to those before it. What has no room must not look like a list's last page. */
static void take_link(struct rfs_http *http, const char *value, size_t n)
{
    const size_t have = strlen(http->link);

    if (n + 2 < sizeof http->link - have)
        snprintf(http->link + have, sizeof http->link - have, ", %.*s", (int)n, value);
    else
        snprintf(http->link, sizeof http->link, "next");
}

static void take_header(struct rfs_http *http, const char *name, size_t n, const char *value,
                        size_t m)
{
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } texts[] = {
        {"etag", http->etag, sizeof http->etag},
        {"last-modified", http->modified, sizeof http->modified},
        {"content-type", http->type, sizeof http->type},
        {"location", http->location, sizeof http->location},
        {"x-amz-bucket-region", http->region, sizeof http->region},
        {"content-range", http->range, sizeof http->range},
        {"x-repo-commit", http->commit, sizeof http->commit},
        {"x-linked-etag", http->linked_etag, sizeof http->linked_etag},
        {"x-linked-size", http->linked_size, sizeof http->linked_size},
        {"x-error-code", http->error, sizeof http->error},
        {"x-error-message", http->error_text, sizeof http->error_text},
        {"x-amz-server-side-encryption", http->encryption, sizeof http->encryption},
        {"x-obs-server-side-encryption", http->encryption, sizeof http->encryption},
    };
    int64_t number = -1;
    char digits[32];

    if (n == strlen("link") && strncasecmp(name, "link", n) == 0)
        take_link(http, value, m);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i].name) == n && strncasecmp(name, texts[i].name, n) == 0)
            take_text(texts[i].to, texts[i].cap, value, m);
    take_text(digits, sizeof digits, value, m);
    if (n == strlen("content-length") && strncasecmp(name, "content-length", n) == 0)
        take_number(digits, &http->length);
    if (n == strlen("retry-after") && strncasecmp(name, "retry-after", n) == 0) {
        take_number(digits, &number);
        http->retry_after = number > 0 && number < 3600 ? (unsigned)number : 0;
    }
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct rfs_http *http = ctx;
    const char *end = line + size * n;
    const char *colon = memchr(line, ':', size * n);

    if (size * n > 5 && strncasecmp(line, "HTTP/", 5) == 0)
        forget_answer(http);
    if (!colon)
        return size * n;
    const char *value = colon + 1;
    while (value < end && strchr(" \t", *value))
        value++;
    while (end > value && strchr(" \t\r\n", end[-1]))
        end--;
    if (rfs_http_is_line(value, (size_t)(end - value))) /* others are as if they were not there */
        take_header(http, line, (size_t)(colon - line), value, (size_t)(end - value));
    return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct handle *handle = ctx;
    struct rfs_http *http = handle->http;

    curl_easy_getinfo(handle->easy, CURLINFO_RESPONSE_CODE, &http->status);
    return http->body && !http->body(http->ctx, http, data, size * n) ? 0 : size * n;
}

/* ---- bytes that are sent --------------------------------------------------------------------- */

/* Gives the next bytes of the spans. */
static size_t on_send(char *data, size_t size, size_t n, void *ctx)
{
    struct rfs_http *http = ctx;
    uint64_t skip = http->sent;
    size_t done = 0;

    for (int i = 0; i < http->count && done < size * n; i++) {
        const struct iovec *span = &http->spans[i];
        if (skip >= span->iov_len) {
            skip -= span->iov_len;
            continue;
        }
        const size_t take = (size_t)rfs_min_u64(size * n - done, span->iov_len - skip);
        memcpy(data + done, (const char *)span->iov_base + skip, take);
        done += take;
        skip = 0;
    }
    http->sent += done;
    return done;
}

/* Goes back, when a connection that was kept has turned out to be closed. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    struct rfs_http *http = ctx;

    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > http->n)
        return CURL_SEEKFUNC_FAIL;
    http->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static void set_sent(CURL *easy, struct rfs_http *http)
{
    if (http->method == RFS_HTTP_PUT) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)http->n);
    } else {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)http->n);
    }
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(easy, CURLOPT_READDATA, http);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, http);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void set_safety(CURL *easy, const struct rfs_http *http)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR,
                     strncmp(http->url, "https:", 6) == 0 ? "https" : "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS,
                     (long)(strncmp(http->url, "https:", 6) == 0
                                ? CURLPROTO_HTTPS
                                : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, http->follow ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 5L);
}

static const char *found_certificates; /* by find_certificates */

/*
 * Finds the bundle of the system's certificates. There is none where libcurl knows its own. A
 * libcurl that was built for many systems has none, and one that was built for another system has a
 * path that is not here.
 */
static void find_certificates(void)
{
    static const char *const bundles[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL, openEuler */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, since 2025 */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",                                 /* Alpine */
    };
#if LIBCURL_VERSION_NUM >= 0x074600 /* from this one on it says what it was built with */
    const curl_version_info_data *built = curl_version_info(CURLVERSION_NOW);

    if ((built->cainfo && access(built->cainfo, R_OK) == 0) ||
        (built->capath && access(built->capath, R_OK) == 0))
        return;
#endif
    for (size_t i = 0; i < sizeof bundles / sizeof *bundles && !found_certificates; i++)
        if (access(bundles[i], R_OK) == 0)
            found_certificates = bundles[i];
}

/* Returns that bundle, which is looked for once, or NULL. */
static const char *system_certificates(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_certificates);
    return found_certificates;
}

/* Sets what libcurl would find in the process's environment. */
static void set_surroundings(CURL *easy, const struct rfs_http *http)
{
    const struct rfs_environment_way way = rfs_environment_way_to(http->environment, http->url);
    const char *of_system = way.certificates ? NULL : system_certificates();

    if (way.certificates) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, way.certificates);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* or the system's count, too */
    } else if (of_system) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, of_system);
    }
    curl_easy_setopt(easy, CURLOPT_PROXY, way.proxy);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, http->direct ? "*" : way.no_proxy);
}

static bool set_headers(struct handle *handle, const char *const *headers)
{
    for (; headers && *headers; headers++) {
        struct curl_slist *more = curl_slist_append(handle->headers, *headers);
        if (!more)
            return false;
        handle->headers = more;
    }
    return true;
}

static bool set_up(struct handle *handle, struct rfs_http *http)
{
    CURL *easy = handle->easy;
    const bool set = set_headers(handle, http->headers) &&
                     curl_easy_setopt(easy, CURLOPT_URL, http->url) == CURLE_OK &&
                     curl_easy_setopt(easy, CURLOPT_HTTPHEADER, handle->headers) == CURLE_OK;

    handle->why[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_PRIVATE, handle);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, handle->why);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
                     (long)(http->timeout < CONNECT_SECONDS ? http->timeout : CONNECT_SECONDS));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, LEAST_RATE);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)http->timeout);
    if (http->method == RFS_HTTP_HEAD)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (http->spans)
        set_sent(easy, http);
    else if (http->method == RFS_HTTP_PUT || http->method == RFS_HTTP_DELETE)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST,
                         http->method == RFS_HTTP_PUT ? "PUT" : "DELETE");
    else if (http->method == RFS_HTTP_POST)
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, http->form);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, http);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, handle);
    set_safety(easy, http);
    set_surroundings(easy, http);
    return set;
}

static struct handle *idle_handle(struct rfs_http_lane *lane)
{
    struct handle *handle = lane->idle;

    if (handle) {
        lane->idle = handle->next;
        return handle;
    }
    handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    pthread_mutex_lock(&all.lock);
    handle->easy = curl_easy_init();
    pthread_mutex_unlock(&all.lock);
    if (handle->easy)
        return handle;
    free(handle);
    return NULL;
}

int rfs_http_start(struct rfs_http_lane *lane, struct rfs_http *http)
{
    if (!take_turn(http->client))
        return -EAGAIN;
    struct handle *handle = idle_handle(lane);
    if (!handle) {
        give_turn(http->client);
        return -ENOMEM;
    }
    http->status = 0;
    http->failed = 0;
    http->sent = 0;
    http->refused_tls = http->no_host = http->no_listener = http->no_tls = false;
    http->problem[0] = http->location[0] = '\0';
    forget_answer(http);
    handle->http = http;
    handle->next = lane->busy;
    lane->busy = handle;
    lane->n_busy++;
    if (set_up(handle, http) && curl_multi_add_handle(lane->multi, handle->easy) == CURLM_OK)
        return 0;
    retire(lane, handle);
    return -ENOMEM;
}

/*
 * Says whether TLS failed for what the server sent, as a server without TLS does. A connection that
 * breaks in between gives the same code, and may be better the next time.
 */
static bool speaks_no_tls(CURLcode code, const char *why)
{
    return code == CURLE_SSL_CONNECT_ERROR && !strstr(why, "eof") &&
           (strstr(why, "SSL routines") /* OpenSSL */ || strstr(why, "TLS packet") /* GnuTLS */);
}

/* Says whether a connection was refused, which a host does where nothing listens. */
static bool is_refused(const struct handle *handle, CURLcode code)
{
    long number = 0;

    return code == CURLE_COULDNT_CONNECT &&
           curl_easy_getinfo(handle->easy, CURLINFO_OS_ERRNO, &number) == CURLE_OK &&
           number == ECONNREFUSED;
}

static void note_failure(struct rfs_http *http, const struct handle *handle, CURLcode code)
{
    http->failed = code == CURLE_OK ? 0 : code == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EIO;
    http->refused_tls = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    http->no_host = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY;
    http->no_listener = is_refused(handle, code);
    http->no_tls = speaks_no_tls(code, handle->why);
    if (code != CURLE_OK && !http->problem[0])
        snprintf(http->problem, sizeof http->problem, "%s",
                 handle->why[0] ? handle->why : curl_easy_strerror(code));
}

static void note_round_trip(const struct handle *handle, struct rfs_http_client *client)
{
    curl_off_t us = 0;

    if (!client)
        return;

    curl_easy_getinfo(handle->easy, CURLINFO_STARTTRANSFER_TIME_T, &us);
    const uint64_t ns = us > 0 ? (uint64_t)us * 1000 : 0;
    const uint64_t least = atomic_load_explicit(&client->round_trip, memory_order_relaxed);
    /* If another thread's is lost, a later one comes. */
    if (ns > 0 && (least == 0 || ns < least))
        atomic_store_explicit(&client->round_trip, ns, memory_order_relaxed);
}

static struct rfs_http *finished(struct rfs_http_lane *lane)
{
    struct CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(lane->multi, &left))) {
        struct handle *handle = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        const CURLcode code = message->data.result;
        char *mine = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &mine);
        handle = (struct handle *)(void *)mine;
        struct rfs_http *http = handle->http;
        curl_easy_getinfo(handle->easy, CURLINFO_RESPONSE_CODE, &http->status);
        note_failure(http, handle, code);
        if (code == CURLE_OK && http->status == 206)
            note_round_trip(handle, http->client);
        retire(lane, handle);
        return http;
    }
    return NULL;
}

struct rfs_http *rfs_http_wait(struct rfs_http_lane *lane, int ms)
{
    int running = 0;
    struct rfs_http *http = finished(lane);

    if (http)
        return http;
    curl_multi_perform(lane->multi, &running);
    http = finished(lane);
    if (http)
        return http;
    curl_multi_poll(lane->multi, NULL, 0, ms, NULL);
    curl_multi_perform(lane->multi, &running);
    return finished(lane);
}

char *rfs_http_follow(const char *url, const char *location)
{
    CURLU *parts = curl_url();
    char *found = NULL;
    RFS_FREE char *out = NULL;

    /* A URL that is set before another makes that one relative to it. */
    if (parts && *location && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_set(parts, CURLUPART_URL, location, CURLU_URLENCODE) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_URL, &found, 0) == CURLUE_OK)
        out = strdup(found);
    curl_free(found);
    curl_url_cleanup(parts);
    return RFS_STEAL(out);
}

time_t rfs_http_time(const char *text)
{
    const time_t time = text && *text ? curl_getdate(text, NULL) : -1;

    return time < 0 ? 0 : time;
}

const char *rfs_http_library(void)
{
    static char text[64]; /* whoever asks writes one text */

    snprintf(text, sizeof text, "libcurl %s", curl_version_info(CURLVERSION_NOW)->version);
    return text;
}
