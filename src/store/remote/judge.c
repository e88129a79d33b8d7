/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/judge.h"

#include "base/store.h"
#include "store/remote/chain.h"
#include "store/remote/markup.h"

/* The store's own code and message: <Error><Code>…</Code><Message>…</Message>… */
static void read_error(const struct rfs_request *request, char *code, size_t code_cap, char *text,
                       size_t text_cap)
{
    const char *body = request->text_n > 0 ? request->text : "";

    if (!rfs_markup_text(body, "Code", code, code_cap))
        *code = '\0';
    if (!rfs_markup_text(body, "Message", text, text_cap))
        *text = '\0';
}

static const char *remedy_of(const struct rfs_request *request, const char *code)
{
    const long status = request->http.status;

    if (request->http.refused_tls)
        return "the certificate of its issuer in CURL_CA_BUNDLE";
    if (strcmp(code, "RequestTimeTooSkewed") == 0)
        return "set this machine's clock";
    if ((status >= 300 && status < 400) || strcmp(code, "AuthorizationHeaderMalformed") == 0)
        return "region= and endpoint= of the bucket";
    if (status == 401 || status == 403)
        return request->place->s3 ? "credentials that may list and read it"
                                  : "check its read permissions";
    if (status == 200 && request->n > 0)
        return "a server that answers requests for ranges";
    if (status == 429 || status == 503)
        return "fewer connections=, or later";
    if (status == 0)
        return "check endpoint= and the network";
    return NULL;
}

int rfs_judge_fail(const struct rfs_request *request, int code)
{
    const struct rfs_http *http = &request->http;
    char name[64], text[256], problem[sizeof http->problem], status[48] = "";

    read_error(request, name, sizeof name, text, sizeof text);
    snprintf(problem, sizeof problem, "%s", http->problem);
    /* A store knows the token, and may repeat it. */
    rfs_credentials_blank(name);
    rfs_credentials_blank(text);
    rfs_credentials_blank(problem);
    const char *remedy = remedy_of(request, name);
    if (http->status > 0)
        snprintf(status, sizeof status, "status %ld", http->status);
    rfs_store_fail(code, "%s%s%s%s%s%s%s (tried %u time%s, at %.200s)", status, *name ? ", " : "",
                   name, *text ? ": " : "", text, *problem && *status ? ", " : "", problem,
                   request->tries, request->tries == 1 ? "" : "s", request->place->base);
    rfs_store_fail_remedy(remedy);
    return code;
}

static bool is_text(const char *text, const char *of)
{
    return text && strcmp(text, of) == 0;
}

/*
 * Whether an answer is of the version that is asked for. A strong ETag says that alone; else the
 * time of the last change must be the same text, and what there is of an ETag. What the version has
 * and the answer lacks is not the same.
 */
static bool is_of_version(const struct rfs_request *request)
{
    const struct rfs_http *http = &request->http;
    const char *etag = request->etag ? request->etag : "";

    if (*etag && strcmp(etag, http->etag) != 0)
        return false;
    return rfs_etag_is_strong(etag) ||
           (http->modified[0] && is_text(request->modified, http->modified));
}

bool rfs_judge_range(struct rfs_request *request)
{
    struct rfs_http *http = &request->http;
    const uint64_t from = request->from + request->done;
    const uint64_t last = request->from + request->n - 1;
    uint64_t a, b, size;

    request->other = !is_of_version(request);
    if (request->other)
        return false;
    if (http->status == 200) {
        if (from == 0 && request->n == request->size && http->length == (int64_t)request->size)
            return true;
        snprintf(http->problem, sizeof http->problem, "the whole was sent instead of a range");
        return false;
    }
    if (sscanf(http->range, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &a, &b, &size) == 3 &&
        a == from && b == last && size == request->size)
        return true;
    snprintf(http->problem, sizeof http->problem, "the wrong range was sent: '%.60s'", http->range);
    return false;
}

static int changed(const char *how)
{
    return rfs_store_fail(-ESTALE, "the object was %s while in use", how);
}

/* Whether an error names another region of the bucket, which is kept then. */
static bool moves(struct rfs_request *request, const char *code)
{
    const struct rfs_http *http = &request->http;
    /* A HEAD is answered without a code. */
    const bool elsewhere = http->status == 301 || http->status == 307 ||
                           (http->status == 400 && request->head) ||
                           strcmp(code, "AuthorizationHeaderMalformed") == 0 ||
                           strcmp(code, "IllegalLocationConstraintException") == 0;

    if (!request->place->s3 || !elsewhere || !http->region[0] ||
        strcmp(http->region, request->place->region) == 0)
        return false;
    rfs_place_learn(request->place->bucket, http->region);
    return true;
}

/* Credentials that have ended are asked for again, once, of the kind that gave them. */
static bool renews(struct rfs_request *request, const char *code)
{
    if (request->renewed || !request->place->s3 ||
        (strcmp(code, "ExpiredToken") != 0 && strcmp(code, "TokenRefreshRequired") != 0 &&
         strcmp(code, "InvalidToken") != 0))
        return false;
    request->renewed = true;
    return rfs_credentials_renew();
}

static int judge_refusal(struct rfs_request *request)
{
    const long status = request->http.status;
    char code[64], text[64];

    read_error(request, code, sizeof code, text, sizeof text);
    if (moves(request, code))
        return rfs_store_fail(-EREMOTE, "the bucket is in region %s", request->http.region);
    if (request->place->s3 && request->http.location[0] &&
        (status == 301 || status == 302 || status == 307 || status == 308)) {
        if (rfs_place_move(request->place, request->http.location))
            return rfs_store_fail(-EREMOTE, "the bucket is at %.200s", request->http.location);
        snprintf(request->http.problem, sizeof request->http.problem,
                 "it leads to %.200s, where no signature is sent", request->http.location);
    }
    if (renews(request, code) || strcmp(code, "RequestTimeout") == 0 || status == 408 ||
        status == 429 || status >= 500 || (status == 409 && *code))
        return RFS_AGAIN;
    if (request->n > 0 && status == 412)
        return changed("changed");
    if (request->n > 0 && status == 416)
        return changed("cut short");
    if (request->n > 0 && status == 404)
        return changed("removed");
    if (status == 404 || status == 410)
        return rfs_judge_fail(request, -ENOENT);
    if (status == 401 || status == 403)
        return rfs_judge_fail(request, -EACCES);
    return rfs_judge_fail(request, -EIO);
}

int rfs_judge(struct rfs_request *request)
{
    struct rfs_http *http = &request->http;
    const long status = http->status;

    if (http->failed == -ENOMEM)
        return -ENOMEM;
    if (request->other && !http->etag[0] && !http->modified[0])
        return rfs_store_fail(-ESTALE, "an answer has neither an ETag nor the time of the last "
                                       "change: it may be of another version");
    if (request->other)
        return changed("changed");
    if (http->refused_tls)
        return rfs_judge_fail(request, -EIO);
    if (http->failed)
        return RFS_AGAIN;
    if (request->n > 0 && (status == 206 || status == 200)) {
        if (request->done == request->n)
            return 0;
        if (!http->problem[0])
            snprintf(http->problem, sizeof http->problem, "fewer bytes were sent than asked for");
        return RFS_AGAIN;
    }
    if (status == 200 || (status >= 300 && status < 400 && !request->place->s3))
        return 0;
    return judge_refusal(request);
}
