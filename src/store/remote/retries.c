/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/retries.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/wait.h"
#include "store/remote/markup.h"
#include "store/remote/sign.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <xxhash.h>

#define AGAIN 1        /* the request is to be tried again */
#define LASTING_MOST 2 /* tries of what hardly ever gets better */
#define CHANGED "the object was changed while in use"
/*
 * Bytes of an object that may come whole instead of a range. The headers of larger ones are read in
 * parts, so a server without ranges is refused before they are shown.
 */
#define SMALL_WHOLE (UINT64_C(256) << 10)

/* What each kind of store does in its own way. */
struct kind {
    bool redirects;          /* a redirection of what is no range is an answer */
    const char *permissions; /* remedy for what it does not permit to read */
    /* Returns the URL that is asked, malloc'ed; NULL when out of memory. */
    char *(*url)(const struct rfs_remote_request *request);
    /* Adds which version is meant to a request for a range, or NULL. False when out of memory. */
    bool (*add_version)(struct rfs_remote_request *request);
    /* Adds who asks, or NULL. 0 or -errno. */
    int (*identify)(struct rfs_remote_request *request);
    /* Says whether libcurl follows redirections: never with a signature or a token. */
    bool (*follows)(const struct rfs_remote_request *request);
    /* Says why an answer with bytes is not of the version that is asked for; NULL: it is. */
    const char *(*other)(struct rfs_remote_request *request);
    /* Reads the store's own code and message. */
    void (*read_error)(const struct rfs_remote_request *request, char *code, size_t code_cap,
                       char *text, size_t text_cap);
    /* Returns the remedy for a failure, or NULL. */
    const char *(*remedy)(const struct rfs_remote_request *request, const char *code);
    /*
     * Looks whether what was refused may be had elsewhere or by other credentials, or NULL. 0: not
     * so; AGAIN; or -EREMOTE with rfs_store_fail.
     */
    int (*elsewhere)(struct rfs_remote_request *request, const char *code);
    /* Fails because of a refusal that lasts. -errno with rfs_store_fail. */
    int (*refuse)(const struct rfs_remote_request *request);
};

static const struct kind *kind_of(const struct rfs_remote_request *request);

static uint64_t hash_server(const struct rfs_remote_request *request)
{
    return XXH3_64bits(request->bucket->base, strlen(request->bucket->base)) | 1;
}

/* Notes what the server has shown that it can do. */
static void note_server(const struct rfs_remote_request *request)
{
    struct rfs_account *account = request->bucket->account;
    const uint64_t server = hash_server(request);

    if (request->answer.http.status > 0)
        atomic_store_explicit(&account->answering, server, memory_order_relaxed);
    if (request->answer.http.status == 206 && request->tries.done > 0)
        atomic_store_explicit(&account->ranging, server, memory_order_relaxed);
}

/*
 * Says whether a failure is one of a server's name, port, protocol or abilities, which another try
 * hardly ever changes: if the server did better before, it is a passing one.
 */
static bool is_lasting(const struct rfs_remote_request *request)
{
    const struct rfs_account *account = request->bucket->account;
    const uint64_t server = hash_server(request);

    return ((request->answer.http.no_host || request->answer.http.no_listener ||
             request->answer.http.no_tls) &&
            atomic_load_explicit(&account->answering, memory_order_relaxed) != server) ||
           (request->answer.unranged &&
            atomic_load_explicit(&account->ranging, memory_order_relaxed) != server);
}

/* Reads <Error><Code>…</Code><Message>…</Message>… */
static void read_body(const struct rfs_remote_request *request, char *code, size_t code_cap,
                      char *text, size_t text_cap)
{
    const char *body = request->answer.text_n > 0 ? request->answer.text : "";

    if (!rfs_markup_text(body, "Code", code, code_cap))
        *code = '\0';
    if (!rfs_markup_text(body, "Message", text, text_cap))
        *text = '\0';
}

static bool is_write(const struct rfs_remote_request *request)
{
    return request->method != RFS_HTTP_GET;
}

static const char *remedy_of(const struct rfs_remote_request *request, const char *code)
{
    const long status = request->answer.http.status;

    if (strcmp(code, "RequestTimeTooSkewed") == 0)
        return "set this machine's clock";
    if ((status >= 300 && status < 400) || strcmp(code, "AuthorizationHeaderMalformed") == 0)
        return "region= and endpoint= of the bucket";
    if (strcmp(code, "NoSuchBucket") == 0)
        return "the name of a bucket that is there";
    if (strcmp(code, "NoSuchUpload") == 0)
        return "the same command again, once no other export writes there";
    if ((status == 401 || status == 403) && is_write(request))
        return "credentials that may write and delete there, and list uploads";
    if (status == 401 || status == 403)
        return kind_of(request)->permissions;
    if (status == 200 && request->n > 0)
        return "a server that answers requests for ranges";
    if (status == 429 || status == 503)
        return "fewer connections=, or later";
    if (request->answer.http.no_tls)
        return "http://, or the port of the server's TLS";
    if (status == 0)
        return "check endpoint= and the network";
    if (is_write(request))
        return "the same command again, once the store is well";
    return NULL;
}

/* Reports the store's last answer by rfs_store_fail; returns CODE. */
static int fail(const struct rfs_remote_request *request, int code)
{
    const struct rfs_http *http = &request->answer.http;
    const char *problem = http->problem;
    char name[64], text[256], status[48] = "";

    kind_of(request)->read_error(request, name, sizeof name, text, sizeof text);
    const char *remedy = http->refused_tls ? "the certificate of its issuer in CURL_CA_BUNDLE"
                                           : kind_of(request)->remedy(request, name);
    if (http->status > 0)
        snprintf(status, sizeof status, "status %ld", http->status);
    const char *base = request->at ? request->at : request->bucket->base;
    const int host = (int)(strstr(base, "://") + 3 - base);
    rfs_credentials_fail(request->bucket->account->credentials, code,
                         "%s%s%s%s%s%s%s (tried %u time%s, at %.*s)", status, *name ? ", " : "",
                         name, *text ? ": " : "", text, *problem && *status ? ", " : "", problem,
                         request->tries.n, request->tries.n == 1 ? "" : "s",
                         host + (int)rfs_min_u64(strcspn(base + host, "/"), 200), base);
    rfs_store_fail_remedy(remedy);
    return code;
}

static bool is_text(const char *text, const char *of)
{
    return text && strcmp(text, of) == 0;
}

/*
 * A strong ETag says alone which version an answer is of; else the time of the last change must be
 * equal as a text, and what there is of an ETag. What the version has and the answer lacks is a
 * difference.
 */
static const char *other_version(struct rfs_remote_request *request)
{
    const struct rfs_http *http = &request->answer.http;
    const char *etag = request->etag ? request->etag : "";

    if (!http->etag[0] && !http->modified[0])
        return "an answer has neither an ETag nor the time of the last change: it may be of "
               "another version";
    if (*etag && strcmp(etag, http->etag) != 0)
        return CHANGED;
    return rfs_http_etag_is_strong(etag) ||
                   (http->modified[0] && is_text(request->modified, http->modified))
               ? NULL
               : CHANGED;
}

/* Says whether the body that begins is the requested range; else http.problem has the reason. */
static bool is_range(struct rfs_remote_request *request)
{
    struct rfs_http *http = &request->answer.http;
    const uint64_t from = request->from + request->tries.done;
    const uint64_t last = request->from + request->n - 1;
    uint64_t a, b, size;

    request->answer.other = kind_of(request)->other(request);
    if (request->answer.other)
        return false;
    if (http->status == 200) {
        const bool whole = http->length == (int64_t)request->size;
        if (whole && (request->n == request->size || request->size <= SMALL_WHOLE)) {
            request->answer.passed = from;
            return true;
        }
        request->answer.unranged = true;
        snprintf(http->problem, sizeof http->problem, "the whole was sent instead of a range");
        return false;
    }
    if (sscanf(http->range, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &a, &b, &size) == 3 &&
        a == from && b == last && size == request->size)
        return true;
    snprintf(http->problem, sizeof http->problem, "the wrong range was sent: '%.60s'", http->range);
    return false;
}

static int fail_removed(void)
{
    return rfs_store_fail(-ESTALE, "the object was removed while in use");
}

/* Fails because of what a store, or a web server, refuses. */
static int refuse(const struct rfs_remote_request *request)
{
    const long status = request->answer.http.status;

    if (request->n > 0 && status == 404)
        return fail_removed();
    return fail(request, status == 404 || status == 410   ? -ENOENT
                         : status == 401 || status == 403 ? -EACCES
                                                          : -EIO);
}

/* Says whether an error names another region of the bucket, which is noted then. */
static bool moves(struct rfs_remote_request *request, const char *code)
{
    const struct rfs_http *http = &request->answer.http;
    /* A HEAD is answered without a code. */
    const bool elsewhere = http->status == 301 || http->status == 307 ||
                           (http->status == 400 && request->head) ||
                           strcmp(code, "AuthorizationHeaderMalformed") == 0 ||
                           strcmp(code, "IllegalLocationConstraintException") == 0;

    if (!elsewhere || !http->region[0] || strcmp(http->region, request->bucket->region) == 0)
        return false;
    rfs_bucket_learn(request->bucket->account, request->bucket->name, http->region);
    return true;
}

/*
 * Asks again for credentials that have ended, once, of the kind that gave them. Says whether that
 * may help.
 */
static bool renews(struct rfs_remote_request *request, const char *code)
{
    if (request->tries.renewed ||
        (strcmp(code, "ExpiredToken") != 0 && strcmp(code, "TokenRefreshRequired") != 0 &&
         strcmp(code, "InvalidToken") != 0))
        return false;
    request->tries.renewed = true;
    return rfs_credentials_renew(request->bucket->account->credentials);
}

/* Looks whether the bucket is in another region or at another host, or credentials have ended. */
static int find_bucket_elsewhere(struct rfs_remote_request *request, const char *code)
{
    struct rfs_http *http = &request->answer.http;

    if (moves(request, code))
        return rfs_credentials_fail(request->bucket->account->credentials, -EREMOTE,
                                    "the bucket is in region %s", http->region);
    if (http->location[0] && (http->status == 301 || http->status == 302 || http->status == 307 ||
                              http->status == 308)) {
        if (rfs_bucket_move(request->bucket, http->location))
            return rfs_credentials_fail(request->bucket->account->credentials, -EREMOTE,
                                        "the bucket is at %.200s", http->location);
        snprintf(http->problem, sizeof http->problem,
                 "it leads to %.200s, where no signature is sent", http->location);
    }
    return renews(request, code) ? AGAIN : 0;
}

/* Judges a refusal of what may be there already: -EEXIST, -ENOTSUP, or 0 for none. */
static int judge_condition(const struct rfs_remote_request *request)
{
    const long status = request->answer.http.status;

    if (request->over && (status == 412 || status == 304 || (status == 404 && *request->over)))
        return rfs_store_fail(-EEXIST, "there is not what it may replace");
    if (request->over && status == 501)
        return rfs_store_fail(-ENOTSUP, "the store has no conditional writes");
    return 0;
}

/* Says whether an error is that the bytes were not those that were sent. */
static bool is_damage(const char *code)
{
    return strcmp(code, "BadDigest") == 0 || strcmp(code, "XAmzContentSHA256Mismatch") == 0 ||
           strcmp(code, "IncompleteBody") == 0;
}

static int judge_refusal(struct rfs_remote_request *request)
{
    const long status = request->answer.http.status;
    char code[64], text[64];
    const int condition = judge_condition(request);

    if (condition)
        return condition;
    kind_of(request)->read_error(request, code, sizeof code, text, sizeof text);
    const int elsewhere =
        kind_of(request)->elsewhere ? kind_of(request)->elsewhere(request, code) : 0;
    if (elsewhere)
        return elsewhere;
    if (strcmp(code, "RequestTimeout") == 0 || status == 408 || status == 429 || status >= 500 ||
        (status == 409 && *code) || is_damage(code))
        return AGAIN;
    if (request->n > 0 && status == 412)
        return rfs_store_fail(-ESTALE, CHANGED);
    if (request->n > 0 && status == 416)
        return rfs_store_fail(-ESTALE, "the object was cut short while in use");
    return kind_of(request)->refuse(request);
}

bool rfs_retries_has_md5(const struct rfs_http *http, bool parts)
{
    const char *digits = http->etag + (http->etag[0] == '"');
    const char *end = digits + strspn(digits, "0123456789abcdef");

    /* With keys of a service, ETags are of the encrypted bytes. */
    return end == digits + 32 && (*end == '-') == parts && !strstr(http->encryption, "kms");
}

/* Judges the answer to a write that succeeded: 0 or AGAIN. */
static int judge_write(struct rfs_remote_request *request)
{
    struct rfs_http *http = &request->answer.http;
    char code[64], text[64];

    /* A store that completes an upload begins its answer before it knows the end. */
    kind_of(request)->read_error(request, code, sizeof code, text, sizeof text);
    if (*code)
        return AGAIN;
    request->answer.damaged = request->method == RFS_HTTP_PUT && request->sums &&
                              rfs_retries_has_md5(http, false) &&
                              !strstr(http->etag, request->sums->md5);
    if (!request->answer.damaged)
        return 0;
    snprintf(http->problem, sizeof http->problem,
             "the store has other bytes than were sent: their MD5 is %.48s, not %s", http->etag,
             request->sums->md5);
    request->over = NULL; /* what is there by now is of this request */
    return AGAIN;
}

/*
 * Judges an answer. 0: it is right; AGAIN: it may be better the next time; or -errno with
 * rfs_store_fail.
 */
static int judge(struct rfs_remote_request *request)
{
    struct rfs_http *http = &request->answer.http;
    const long status = http->status;

    if (http->failed == -ENOMEM)
        return -ENOMEM;
    if (request->answer.other)
        return rfs_store_fail(-ESTALE, "%s", request->answer.other);
    if (http->refused_tls)
        return fail(request, -EIO);
    if (http->failed)
        return AGAIN;
    if (request->n > 0 && (status == 206 || status == 200)) {
        if (request->tries.done == request->n)
            return 0;
        if (!http->problem[0])
            snprintf(http->problem, sizeof http->problem, "fewer bytes were sent than asked for");
        return AGAIN;
    }
    const bool leads = status >= 300 && status < 400;
    if (is_write(request) && (status == 200 || status == 204))
        return judge_write(request);
    if (status == 200 || (leads && kind_of(request)->redirects && request->n == 0))
        return 0;
    return judge_refusal(request);
}

#define FIRST_WAIT UINT64_C(100000000)    /* ns */
#define LAST_WAIT UINT64_C(20000000000)   /* ns */
#define LASTING_WAIT UINT64_C(1000000000) /* ns; a moment without it is over by then */
#define LOOK_MS 50                        /* how long a cancelled request may go on */
#define ERROR_MOST ((size_t)16 << 10)     /* of a store's message about a failure */
#define HEADERS 12

/* ---- memory of lists ------------------------------------------------------------------------- */

static atomic_uint_fast64_t lists_bytes;

bool rfs_retries_take_memory(uint64_t bytes)
{
    const uint64_t before = atomic_fetch_add(&lists_bytes, bytes);

    if (before <= RFS_RETRIES_MEMORY && bytes <= RFS_RETRIES_MEMORY - before)
        return true;
    rfs_retries_give_memory(bytes);
    return false;
}

void rfs_retries_give_memory(uint64_t bytes)
{
    atomic_fetch_sub(&lists_bytes, bytes);
}

int rfs_retries_fail_memory(void)
{
    return rfs_store_fail(-EFBIG,
                          "lists of objects would take more than %" PRIu64
                          " MiB of memory; try: a longer prefix, or files=MAP",
                          RFS_RETRIES_MEMORY >> 20);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void free_headers(struct rfs_remote_request *request)
{
    for (size_t i = 0; request->tries.headers && request->tries.headers[i]; i++) {
        explicit_bzero(request->tries.headers[i], strlen(request->tries.headers[i]));
        free(request->tries.headers[i]);
    }
    free(request->tries.headers);
    request->tries.headers = NULL;
    free(request->tries.asked);
    request->tries.asked = NULL;
}

void rfs_retries_free(struct rfs_remote_request *request)
{
    free_headers(request);
    free(request->answer.text);
    request->answer.text = NULL;
    rfs_retries_give_memory(request->answer.text_cap);
    request->answer.text_cap = 0;
}

static bool add_header(struct rfs_remote_request *request, const char *name, const char *value)
{
    size_t n = 0;

    while (request->tries.headers[n])
        n++;
    if (n + 1 >= HEADERS)
        return false;
    request->tries.headers[n] = rfs_text_printf("%s: %s", name, value);
    return request->tries.headers[n] != NULL;
}

static const char *const methods[] = {
    [RFS_HTTP_GET] = "GET",   [RFS_HTTP_HEAD] = "HEAD",     [RFS_HTTP_PUT] = "PUT",
    [RFS_HTTP_POST] = "POST", [RFS_HTTP_DELETE] = "DELETE",
};

/* Adds headers that sign the request for the next minutes. */
static bool add_signature(struct rfs_remote_request *request, const struct rfs_credentials *who,
                          const char *path)
{
    char time_text[32];
    const time_t now = time(NULL);
    struct tm utc;

    gmtime_r(&now, &utc);
    strftime(time_text, sizeof time_text, "%Y%m%dT%H%M%SZ", &utc);
    const struct rfs_sign_sums *sums = request->sums;
    const char *body = sums ? sums->sha256 : RFS_SIGN_NO_BODY;
    const struct rfs_sign_header headers[] = {
        {"content-md5", sums ? sums->md5_base64 : ""},
        {"host", request->bucket->host},
        {"x-amz-content-sha256", body},
        {"x-amz-date", time_text},
        {"x-amz-security-token", who->token},
    };
    const struct rfs_sign sign = {
        .key_id = who->key_id,
        .secret = who->secret,
        .region = request->bucket->region,
        .service = "s3",
        .time = time_text,
        .method = request->head ? "HEAD" : methods[request->method],
        .path = path,
        .query = request->query ? request->query : "",
        .headers = headers + !sums,
        .n_headers = 3U + (who->token[0] != '\0') + (sums != NULL),
        .body = body,
    };
    RFS_FREE char *signature = rfs_sign_authorization(&sign);
    return signature && add_header(request, "x-amz-content-sha256", body) &&
           add_header(request, "x-amz-date", time_text) &&
           (!who->token[0] || add_header(request, "x-amz-security-token", who->token)) &&
           add_header(request, "authorization", signature);
}

/* Adds the signature, unless nobody asks. */
static int add_identity(struct rfs_remote_request *request)
{
    struct rfs_credentials who;

    if (request->bucket->account->anonymous)
        return 0;
    RFS_FREE char *path = rfs_bucket_path(request->bucket, request->key);
    const int rc = rfs_credentials_get(request->bucket->account->credentials, &who);

    if (rc)
        return rc;
    const bool added = path && add_signature(request, &who, path);
    rfs_secret_wipe(&who, sizeof who);
    return added ? 0 : -ENOMEM;
}

/* Adds what is said of the bytes that are sent, and what they may replace. */
static bool add_write(struct rfs_remote_request *request)
{
    const char *over = request->over;

    /*
     * Without a type curl would say that it is a form; Expect would wait for a word of the store.
     */
    if (!add_header(request, "Content-Type", "application/octet-stream") ||
        !add_header(request, "Expect", "") ||
        (request->sums && !add_header(request, "Content-MD5", request->sums->md5_base64)))
        return false;
    return !over || (*over ? add_header(request, "If-Match", over)
                           : add_header(request, "If-None-Match", "*"));
}

/* Adds the version and the range, or what a write needs. */
static bool add_conditions(struct rfs_remote_request *request)
{
    char range[64];
    const uint64_t from = request->from + request->tries.done;

    if (is_write(request))
        return add_write(request);
    if (request->n == 0)
        return true;
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, from,
             request->from + request->n - 1);
    return add_header(request, "Range", range) &&
           (!kind_of(request)->add_version || kind_of(request)->add_version(request));
}

/* Adds that the version is the one whose attributes are known. */
static bool add_version(struct rfs_remote_request *request)
{
    if (request->etag && rfs_http_etag_is_strong(request->etag))
        return add_header(request, "If-Match", request->etag);
    return !request->modified || !request->modified[0] ||
           add_header(request, "If-Unmodified-Since", request->modified);
}

static char *url_in_bucket(const struct rfs_remote_request *request)
{
    RFS_FREE char *path = rfs_bucket_path(request->bucket, request->key);

    return path ? rfs_text_printf("%s%s%s%s", request->bucket->base, path,
                                  request->query ? "?" : "", request->query ? request->query : "")
                : NULL;
}

static int write_request(struct rfs_remote_request *request)
{
    const struct kind *kind = kind_of(request);

    free_headers(request);
    request->tries.headers = calloc(HEADERS, sizeof *request->tries.headers);
    request->tries.asked = kind->url(request);
    if (!request->tries.headers || !request->tries.asked || !add_conditions(request))
        return -ENOMEM;
    return kind->identify ? kind->identify(request) : 0;
}

static bool follows_never(const struct rfs_remote_request *request)
{
    (void)request;
    return false;
}

static bool follows_on_web(const struct rfs_remote_request *request)
{
    return !request->head || request->follow;
}

/* ---- hubs ------------------------------------------------------------------------------------ */

/* Says whether a request is for the hub's own host. */
static bool is_own(const struct rfs_remote_request *request)
{
    return rfs_bucket_has(request->bucket, request->at);
}

/* Says whether a request carries the hub's token, which no proxy sees. */
static bool sends_token(const struct rfs_remote_request *request)
{
    return request->bucket->hub && is_own(request) && rfs_credentials_trusts(request->at);
}

static char *url_at_hub(const struct rfs_remote_request *request)
{
    return strdup(request->at);
}

static void read_headers(const struct rfs_remote_request *request, char *code, size_t code_cap,
                         char *text, size_t text_cap)
{
    snprintf(code, code_cap, "%s", request->answer.http.error);
    snprintf(text, text_cap, "%s", request->answer.http.error_text);
}

/* Returns the remedy for what the hub itself refuses, or NULL. */
static const char *remedy_of_own(const struct rfs_remote_request *request, const char *code)
{
    const long status = request->answer.http.status;

    if (strcmp(code, "GatedRepo") == 0)
        return "ask for access on the model's page, then HF_TOKEN of that account";
    if (strcmp(code, "RevisionNotFound") == 0)
        return "a branch, a tag or a commit of that model";
    if (status == 401 || status == 403 || status == 404)
        return rfs_credentials_trusts(request->bucket->base)
                   ? "check the name of the model, and HF_TOKEN: its account must be allowed to "
                     "read it"
                   : "HF_ENDPOINT=https://HOST, as no token is sent without TLS";
    if (status == 429)
        return "HF_TOKEN for a higher limit, fewer connections=, or later";
    if (status == 0)
        return "check HF_ENDPOINT and the network";
    return NULL;
}

static const char *remedy_of_hub(const struct rfs_remote_request *request, const char *code)
{
    const long status = request->answer.http.status;

    if (is_own(request) && status != 200 && !request->answer.http.no_tls)
        return remedy_of_own(request, code);
    return status >= 400 && status < 500 ? "later: the hub names a place of the file that refuses"
                                         : remedy_of(request, code);
}

/* Adds what we are, and the hub's token, unless the request is for another host. */
static int introduce(struct rfs_remote_request *request)
{
    char token[RFS_CREDENTIALS_BEARER];

    if (!add_header(request, "user-agent", "reshardfs"))
        return -ENOMEM;
    if (request->bucket->account->anonymous || !sends_token(request))
        return 0;
    int rc = rfs_credentials_bearer(request->bucket->account->credentials, token);
    if (rc == 0 && *token && !add_header(request, "authorization", token))
        rc = -ENOMEM;
    rfs_secret_wipe(token, sizeof token);
    return rc;
}

static bool follows_from_hub(const struct rfs_remote_request *request)
{
    return request->n > 0 && !is_own(request);
}

/* Compares the commit of an answer from a hub, and the ETag of one from where it leads. */
static const char *other_commit(struct rfs_remote_request *request)
{
    const struct rfs_http *http = &request->answer.http;
    const char *tag = http->linked_etag[0] ? http->linked_etag : http->etag;

    if (http->commit[0] && strcmp(http->commit, request->bucket->revision) != 0)
        return CHANGED;
    if (request->tag[0])
        return rfs_http_same_etag(request->tag, tag) ? NULL : CHANGED;
    snprintf(request->tag, sizeof request->tag, "%s", tag);
    return NULL;
}

/*
 * Fails because of what a hub, or a host that it leads to, refuses. A file's URL at another host
 * ends after an hour or so.
 */
static int refuse_of_hub(const struct rfs_remote_request *request)
{
    const long status = request->answer.http.status;

    if (request->n > 0 && status == 404 && is_own(request))
        return fail_removed();
    if (request->n > 0 && (!is_own(request) || status < 400)) {
        fail(request, -EACCES);
        return -EREMOTE;
    }
    return fail(request, status == 404 ? -EINVAL : status == 401 || status == 403 ? -EACCES : -EIO);
}

/* ---- kinds of stores ------------------------------------------------------------------------- */

static const struct kind *kind_of(const struct rfs_remote_request *request)
{
    static const struct kind s3 = {
        .permissions = "credentials that may list and read it",
        .url = url_in_bucket,
        .add_version = add_version,
        .identify = add_identity,
        .follows = follows_never,
        .other = other_version,
        .read_error = read_body,
        .remedy = remedy_of,
        .elsewhere = find_bucket_elsewhere,
        .refuse = refuse,
    };
    static const struct kind web = {
        .redirects = true,
        .permissions = "check its read permissions",
        .url = url_in_bucket,
        .add_version = add_version,
        .follows = follows_on_web,
        .other = other_version,
        .read_error = read_body,
        .remedy = remedy_of,
        .refuse = refuse,
    };
    static const struct kind hub = {
        .redirects = true,
        .permissions = "check its read permissions",
        .url = url_at_hub,
        .identify = introduce, /* its commit says which version is meant */
        .follows = follows_from_hub,
        .other = other_commit,
        .read_error = read_headers,
        .remedy = remedy_of_hub,
        .refuse = refuse_of_hub,
    };

    return request->bucket->hub ? &hub : request->bucket->s3 ? &s3 : &web;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Copies to the spans, from AT bytes of them on; N bytes fit. */
static void put(const struct rfs_remote_request *request, uint64_t at, const char *data, size_t n)
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

static bool take_text(struct rfs_remote_request *request, const char *data, size_t n)
{
    if (request->answer.http.status != 200 && n > ERROR_MOST - request->answer.text_n)
        return true; /* that is enough of it */
    if (request->answer.text_n + n + 1 > request->answer.text_cap) {
        const size_t cap = 2 * (request->answer.text_n + n) + 4096;
        request->answer.large = !rfs_retries_take_memory(cap - request->answer.text_cap);
        if (request->answer.large)
            return false;
        char *text = realloc(request->answer.text, cap);
        if (!text) {
            rfs_retries_give_memory(cap - request->answer.text_cap);
            return false;
        }
        request->answer.text = text;
        request->answer.text_cap = cap;
    }
    memcpy(request->answer.text + request->answer.text_n, data, n);
    request->answer.text_n += n;
    request->answer.text[request->answer.text_n] = '\0';
    return true;
}

/* Takes a part of a body. False ends the exchange, which is tried again. */
static bool on_body(void *ctx, struct rfs_http *http, const char *data, size_t n)
{
    struct rfs_remote_request *request = ctx;

    if (request->n == 0 || (http->status != 206 && http->status != 200))
        return take_text(request, data, n);
    if (!request->answer.under_way) {
        request->answer.under_way = true;
        request->answer.wrong = !is_range(request);
    }
    if (request->answer.wrong)
        return false;
    const size_t passed = (size_t)rfs_min_u64(request->answer.passed, n);
    request->answer.passed -= passed;
    data += passed;
    n -= passed;
    if (http->status == 200) /* the rest of the object */
        n = (size_t)rfs_min_u64(n, request->n - request->tries.done);
    if (n > request->n - request->tries.done) {
        snprintf(http->problem, sizeof http->problem, "it sent more bytes than were asked for");
        return false;
    }
    put(request, request->skip + request->tries.done, data, n);
    request->tries.done += n;
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

static void put_off(struct rfs_remote_request *request)
{
    const unsigned doubled = request->tries.n - 1 < 10 ? request->tries.n - 1 : 10;
    uint64_t wait = rfs_min_u64(FIRST_WAIT << doubled, LAST_WAIT);

    wait -= at_random(wait / 2);
    if (request->answer.http.no_host || request->answer.http.no_listener)
        wait = rfs_max_u64(wait, LASTING_WAIT);
    const uint64_t asked = request->answer.http.retry_after * UINT64_C(1000000000);
    request->tries.due = rfs_wait_now() + rfs_max_u64(wait, rfs_min_u64(asked, LAST_WAIT));
}

static uint64_t spans_bytes(const struct rfs_remote_request *request)
{
    uint64_t n = 0;

    for (int i = 0; i < request->count; i++)
        n += request->spans[i].iov_len;
    return n;
}

static int start(struct rfs_http_lane *lane, struct rfs_remote_request *request)
{
    struct rfs_account *account = request->bucket->account;
    int rc = write_request(request);

    if (rc < 0)
        return rc;
    request->answer.http = (struct rfs_http){
        .client = &account->client,
        .environment = account->environment,
        .url = request->tries.asked,
        .method = request->head ? RFS_HTTP_HEAD : request->method,
        .headers = (const char *const *)request->tries.headers,
        .form = "",
        .spans = request->sums ? request->spans : NULL,
        .count = request->count,
        .n = request->sums ? spans_bytes(request) : 0,
        /* A store may take long to put parts together. */
        .timeout = account->timeout * (request->method == RFS_HTTP_POST ? 10 : 1),
        .follow = kind_of(request)->follows(request),
        .direct = sends_token(request) && strncmp(request->at, "http:", 5) == 0,
        .body = on_body,
        .ctx = request,
    };
    request->answer.text_n = 0;
    request->answer.under_way = request->answer.wrong = request->answer.large = false;
    request->answer.other = NULL;
    request->answer.unranged = false;
    request->answer.passed = 0;
    rc = rfs_http_start(lane, &request->answer.http);
    if (rc == 0)
        request->tries.n++;
    return rc;
}

/*
 * Starts all requests that are due. *soonest is the time of the next, or UINT64_MAX. 0 or -errno.
 */
static int start_due(struct rfs_http_lane *lane, struct rfs_remote_request *requests, size_t n,
                     bool *started, uint64_t *soonest)
{
    const uint64_t now = rfs_wait_now();

    *soonest = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        struct rfs_remote_request *request = &requests[i];
        if (request->tries.ended || started[i])
            continue;
        if (request->tries.due > now) {
            *soonest = rfs_min_u64(*soonest, request->tries.due);
            continue;
        }
        const int rc = start(lane, request);
        if (rc == -EAGAIN && rfs_http_busy(lane) > 0)
            return 0;
        if (rc == -EAGAIN) {
            *soonest = now;
            return rfs_http_queue(&request->bucket->account->client);
        }
        if (rc < 0)
            return rc;
        started[i] = true;
    }
    return 0;
}

/* Judges the answer: 0 when the request has ended or is to be tried again, or -errno. */
static int settle(struct rfs_remote_request *request)
{
    note_server(request);
    const int rc = request->answer.large ? rfs_retries_fail_memory() : judge(request);
    const unsigned tries = request->bucket->account->tries;

    if (rc != AGAIN) {
        request->tries.ended = rc == 0;
        return rc;
    }
    if (request->tries.n >= tries ||
        (request->tries.n >= LASTING_MOST && (request->brief || is_lasting(request))))
        return fail(request, -EIO);
    put_off(request);
    return 0;
}

static int make_on(struct rfs_http_lane *lane, struct rfs_remote_request *requests, size_t n,
                   bool *started)
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
        struct rfs_http *http = rfs_http_wait(lane, ms);
        if (!http)
            continue;
        struct rfs_remote_request *request = http->ctx;
        started[request - requests] = false;
        rc = settle(request);
        if (rc < 0)
            return rc;
        left -= request->tries.ended;
    }
    return 0;
}

int rfs_retries_make(struct rfs_remote_request *requests, size_t n)
{
    struct rfs_http_lane *lane = rfs_http_take_lane();
    RFS_FREE bool *started = calloc(n, sizeof *started);
    const int rc = lane && started ? make_on(lane, requests, n, started) : -ENOMEM;

    rfs_http_give_lane(lane);
    for (size_t i = 0; i < n; i++)
        free_headers(&requests[i]);
    return rc == -ENOMEM ? rfs_store_fail(rc, "out of memory") : rc;
}
