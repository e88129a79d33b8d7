/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fake_curl.h"

#include "base/wait.h"
#include "tests/fuzz/fuzz.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdarg.h>
#include <strings.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define REDIRECTIONS 5
#define REQUESTS_MOST 4096 /* of an input, which has fewer answers by far */

/* ---- the clock ------------------------------------------------------------------------------- */

static uint64_t now_ns = UINT64_C(1) << 40;

uint64_t rfs_wait_now(void)
{
    return now_ns += 1000;
}

void rfs_wait_begin(struct rfs_wait *wait)
{
    wait->begin = now_ns;
}

uint64_t rfs_wait_end(struct rfs_wait *wait, uint64_t least)
{
    (void)wait;
    (void)least;
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

typedef size_t data_fn(char *data, size_t size, size_t n, void *ctx);

/* A request, with what the options of libcurl say of it. */
struct easy {
    char *url; /* owned */
    struct curl_slist *headers;
    void *private;
    char *error;
    data_fn *on_header, *on_body, *on_send;
    void *header_ctx, *body_ctx, *send_ctx;
    const char *custom;
    uint64_t sends; /* bytes */
    bool nobody, follows, puts, posts;
    long status;
    struct easy *next; /* of the multi handle's */
    bool done;
    CURLcode code;
};

struct multi {
    struct easy *first;
    CURLMsg message;
};

static struct {
    const char *at, *end;
    void (*look)(const struct fake_request *request);
    unsigned requests;
} input;

void fake_curl_begin(const uint8_t *answers, size_t size,
                     void (*look)(const struct fake_request *request))
{
    input.at = (const char *)answers;
    input.end = input.at + size;
    input.look = look;
    input.requests = 0;
}

/* Gives the next answer. False when there is none. */
static bool next_answer(const char **answer, size_t *n)
{
    if (input.at == input.end)
        return false;
    const char *end = memchr(input.at, 0, (size_t)(input.end - input.at));
    *answer = input.at;
    *n = (size_t)((end ? end : input.end) - input.at);
    input.at = end ? end + 1 : input.end;
    return true;
}

/* Passes a part on in a buffer of its size, so that a sanitizer sees a read past it. */
static bool pass(data_fn *to, void *ctx, const char *data, size_t n)
{
    char *copy = malloc(n + (n == 0));

    REQUIRE(copy);
    memcpy(copy, data, n);
    const bool taken = n == 0 || to(copy, 1, n, ctx) == n;
    free(copy);
    return taken;
}

/* Reads the number of at most three digits that is SKIP bytes behind AT; 0: there is none. */
static int number_at(const char *at, const char *end, size_t skip)
{
    int number = 0;

    for (size_t i = skip; i < skip + 3 && i < (size_t)(end - at); i++)
        if (at[i] >= '0' && at[i] <= '9')
            number = number * 10 + (at[i] - '0');
    return number;
}

/* Passes the headers of an answer on. Returns where its body begins; *LEADS: it has a location. */
static const char *pass_headers(struct easy *easy, const char *at, const char *end, bool *leads)
{
    *leads = false;
    for (bool first = true; at < end; first = false) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        if (first)
            easy->status = number_at(at, next, 9);
        *leads |= next - at > 9 && strncasecmp(at, "location:", 9) == 0;
        REQUIRE(pass(easy->on_header, easy->header_ctx, at, (size_t)(next - at)));
        const bool empty = stop == at;
        at = next;
        if (empty)
            break;
    }
    return at;
}

/* Passes the body on in two parts, the first of which ends where it may be in the way. */
static CURLcode pass_body(struct easy *easy, const char *body, size_t n)
{
    const size_t first = n / 3;

    if (easy->nobody)
        return CURLE_OK;
    return pass(easy->on_body, easy->body_ctx, body, first) &&
                   pass(easy->on_body, easy->body_ctx, body + first, n - first)
               ? CURLE_OK
               : CURLE_WRITE_ERROR;
}

static CURLcode answer_by(struct easy *easy, const char *answer, size_t n, bool *leads)
{
    *leads = false;
    if (n > 0 && answer[0] == '!') {
        const int code = number_at(answer, answer + n, 1);
        if (easy->error)
            snprintf(easy->error, CURL_ERROR_SIZE, "%s", n > 4 ? "SSL routines" : "");
        return code > 0 && code < CURL_LAST ? (CURLcode)code : CURLE_COULDNT_CONNECT;
    }
    const char *body = pass_headers(easy, answer, answer + n, leads);
    *leads &= easy->follows && easy->status >= 300 && easy->status < 400;
    return *leads ? CURLE_OK : pass_body(easy, body, (size_t)(answer + n - body));
}

/* Takes all bytes that the request sends. */
static void take_sent(const struct easy *easy)
{
    char data[100];
    uint64_t sent = 0;
    size_t n;

    while (easy->on_send && (n = easy->on_send(data, 1, sizeof data, easy->send_ctx)) > 0)
        sent += n;
    REQUIRE(!easy->on_send || sent == easy->sends);
}

/* Shows the request to who looks at them. */
static void show(const struct easy *easy)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL;
    struct fake_request request = {.method = easy->custom   ? easy->custom
                                             : easy->nobody ? "HEAD"
                                             : easy->puts   ? "PUT"
                                             : easy->posts  ? "POST"
                                                            : "GET",
                                   .follows = easy->follows};

    for (const struct curl_slist *line = easy->headers; line; line = line->next) {
        REQUIRE(!strpbrk(line->data, "\r\n"));
        if (strncasecmp(line->data, "authorization: ", 15) == 0)
            request.authorization = line->data + 15;
    }
    if (curl_url_set(parts, CURLUPART_URL, easy->url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        request.scheme = scheme;
        request.host = host;
        input.look(&request);
    }
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
}

static void exchange(struct easy *easy)
{
    const char *answer = NULL;
    size_t n = 0;
    bool leads = false;

    REQUIRE(++input.requests < REQUESTS_MOST);
    show(easy);
    take_sent(easy);
    easy->status = 0;
    easy->done = true;
    for (unsigned i = 0; i <= REDIRECTIONS; i++) {
        if (!next_answer(&answer, &n)) {
            easy->code = CURLE_COULDNT_CONNECT;
            return;
        }
        easy->code = answer_by(easy, answer, n, &leads);
        if (!leads)
            return;
    }
    easy->code = CURLE_TOO_MANY_REDIRECTS;
}

/* ---- libcurl's functions --------------------------------------------------------------------- */

CURL *curl_easy_init(void)
{
    return calloc(1, sizeof(struct easy));
}

void curl_easy_reset(CURL *handle)
{
    struct easy *easy = handle;

    free(easy->url);
    *easy = (struct easy){0};
}

void curl_easy_cleanup(CURL *handle)
{
    curl_easy_reset(handle);
    free(handle);
}

CURLcode curl_easy_setopt(CURL *handle, CURLoption option, ...)
{
    struct easy *easy = handle;
    va_list args;

    va_start(args, option);
    if (option == CURLOPT_URL) {
        free(easy->url);
        easy->url = strdup(va_arg(args, const char *));
    } else if (option == CURLOPT_HTTPHEADER) {
        easy->headers = va_arg(args, struct curl_slist *);
    } else if (option == CURLOPT_PRIVATE) {
        easy->private = va_arg(args, void *);
    } else if (option == CURLOPT_ERRORBUFFER) {
        easy->error = va_arg(args, char *);
    } else if (option == CURLOPT_HEADERFUNCTION) {
        easy->on_header = va_arg(args, data_fn *);
    } else if (option == CURLOPT_HEADERDATA) {
        easy->header_ctx = va_arg(args, void *);
    } else if (option == CURLOPT_WRITEFUNCTION) {
        easy->on_body = va_arg(args, data_fn *);
    } else if (option == CURLOPT_WRITEDATA) {
        easy->body_ctx = va_arg(args, void *);
    } else if (option == CURLOPT_READFUNCTION) {
        easy->on_send = va_arg(args, data_fn *);
    } else if (option == CURLOPT_READDATA) {
        easy->send_ctx = va_arg(args, void *);
    } else if (option == CURLOPT_CUSTOMREQUEST) {
        easy->custom = va_arg(args, const char *);
    } else if (option == CURLOPT_INFILESIZE_LARGE || option == CURLOPT_POSTFIELDSIZE_LARGE) {
        easy->sends = (uint64_t)va_arg(args, curl_off_t);
    } else if (option == CURLOPT_NOBODY) {
        easy->nobody = va_arg(args, long) != 0;
    } else if (option == CURLOPT_UPLOAD) {
        easy->puts = va_arg(args, long) != 0;
    } else if (option == CURLOPT_POSTFIELDS || option == CURLOPT_POST) {
        easy->posts = true;
    } else if (option == CURLOPT_FOLLOWLOCATION) {
        easy->follows = va_arg(args, long) != 0;
    }
    va_end(args);
    return CURLE_OK;
}

CURLcode curl_easy_getinfo(CURL *handle, CURLINFO info, ...)
{
    const struct easy *easy = handle;
    va_list args;

    va_start(args, info);
    if (info == CURLINFO_RESPONSE_CODE)
        *va_arg(args, long *) = easy->status;
    else if (info == CURLINFO_PRIVATE)
        *va_arg(args, char **) = easy->private;
    else if (info == CURLINFO_STARTTRANSFER_TIME_T)
        *va_arg(args, curl_off_t *) = 1000;
    va_end(args);
    return CURLE_OK;
}

CURLM *curl_multi_init(void)
{
    return calloc(1, sizeof(struct multi));
}

CURLMcode curl_multi_cleanup(CURLM *handle)
{
    free(handle);
    return CURLM_OK;
}

CURLMcode curl_multi_setopt(CURLM *handle, CURLMoption option, ...)
{
    (void)handle;
    (void)option;
    return CURLM_OK;
}

CURLMcode curl_multi_add_handle(CURLM *handle, CURL *added)
{
    struct multi *multi = handle;
    struct easy *easy = added;

    easy->done = false;
    easy->next = multi->first;
    multi->first = easy;
    return CURLM_OK;
}

CURLMcode curl_multi_remove_handle(CURLM *handle, CURL *removed)
{
    struct multi *multi = handle;

    for (struct easy **at = &multi->first; *at; at = &(*at)->next)
        if (*at == removed) {
            *at = (*at)->next;
            break;
        }
    return CURLM_OK;
}

CURLMcode curl_multi_perform(CURLM *handle, int *running)
{
    struct multi *multi = handle;

    *running = 0;
    for (struct easy *easy = multi->first; easy; easy = easy->next)
        if (!easy->done)
            exchange(easy);
    return CURLM_OK;
}

CURLMcode curl_multi_poll(CURLM *handle, struct curl_waitfd *more, unsigned n, int ms, int *ready)
{
    (void)handle;
    (void)more;
    (void)n;
    (void)ready;
    now_ns += (uint64_t)ms * 1000000;
    return CURLM_OK;
}

CURLMsg *curl_multi_info_read(CURLM *handle, int *left)
{
    struct multi *multi = handle;

    *left = 0;
    for (struct easy *easy = multi->first; easy; easy = easy->next)
        if (easy->done) {
            multi->message =
                (CURLMsg){.msg = CURLMSG_DONE, .easy_handle = easy, .data.result = easy->code};
            return &multi->message;
        }
    return NULL;
}
