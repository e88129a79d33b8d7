/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   web         POST https://sts.REGION.amazonaws.com   Action=AssumeRoleWithWebIdentity&…, answered by XML
 *   container   GET http://169.254.170.2$AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or …_FULL_URI
 *   instance    PUT http://169.254.169.254/latest/api/token           a token for the next two
 *               GET …/latest/meta-data/iam/security-credentials/      the name of the role
 *               GET …/latest/meta-data/iam/security-credentials/ROLE
 */
#include "store/remote/metadata.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/variables.h"
#include "store/remote/credentials.h"
#include "store/remote/http.h"
#include "store/remote/markup.h"
#include "store/remote/settings.h"
#include "store/remote/sign.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdatomic.h>
#include <strings.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLE "/latest/meta-data/iam/security-credentials/"
#define SECONDS 2
#define TOKEN_BYTES 4096

static struct rfs_secret owner;
/*
 * AWS_CONTAINER_AUTHORIZATION_TOKEN, from its first use on: a mount wipes it from its environment.
 */
static char *container_token; /* in guarded memory; under the lock of the chain */

struct answer {
    char text[16384];
    size_t n;
};

static bool on_body(void *ctx, struct rfs_http *http, const char *data, size_t n)
{
    struct answer *answer = ctx;

    (void)http;
    if (n >= sizeof answer->text - answer->n)
        return false;
    memcpy(answer->text + answer->n, data, n);
    answer->n += n;
    answer->text[answer->n] = '\0';
    return true;
}

/* True with the whole answer of a request that was granted. */
static bool make(struct rfs_http *http, struct answer *out)
{
    struct rfs_lane *lane = rfs_lane_take();
    bool ended = false;

    http->body = on_body;
    http->ctx = out;
    out->n = 0;
    out->text[0] = '\0';
    if (lane && rfs_lane_start(lane, http) == 0)
        while (!ended && !rfs_cancelled())
            ended = rfs_lane_wait(lane, 50) != NULL;
    rfs_lane_give(lane);
    return ended && !http->failed && http->status == 200;
}

static bool ask(enum rfs_http_method method, const char *url, const char *header,
                struct answer *out)
{
    const char *const headers[] = {header, NULL};
    struct rfs_http http = {
        .url = url, .method = method, .headers = headers, .timeout = SECONDS, .direct = true};

    return make(&http, out);
}

static bool is_line(const char *text)
{
    return *text && !strpbrk(text, "\r\n");
}

/* The file of the token that gave the last credentials; NULL: they took none. */
static _Atomic(const char *) token_file;

/* "Authorization: …" for a container, by a variable or a file; "" where it needs none. */
static bool container_header(char *out, size_t cap)
{
    const char *given = rfs_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = rfs_variable(RFS_AWS_CONTAINER_TOKEN);
    RFS_FREE char *text = NULL;
    size_t n = 0;

    *out = '\0';
    if (given && !container_token && strlen(given) < TOKEN_BYTES &&
        (container_token = rfs_secret_map(&owner, TOKEN_BYTES)))
        memcpy(container_token, given, strlen(given) + 1);
    const char *token = given ? given : container_token;
    if (path && rfs_read_whole(path, TOKEN_BYTES, &text, &n, NULL) == 0) {
        text[strcspn(text, "\r\n")] = '\0';
        token = text;
    }
    const bool good =
        !token || (is_line(token) && (size_t)snprintf(out, cap, "Authorization: %s", token) < cap);
    if (text)
        rfs_wipe(text, n);
    return good;
}

/* Returns whether HOST is this machine, or an address that containers use. */
static bool is_near(const char *host)
{
    static const char *const known[] = {"169.254.170.2", "169.254.170.23", "::1", "fd00:ec2::23"};
    const size_t n = strlen(host);
    const bool bracket = n > 2 && host[0] == '[' && host[n - 1] == ']';
    RFS_FREE char *name = bracket ? strndup(host + 1, n - 2) : strdup(host);
    struct in_addr address;
    bool found = name && strcasecmp(name, "localhost") == 0;

    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        found |= strcasecmp(name, known[i]) == 0;
    return found ||
           (name && inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

bool rfs_metadata_trusts(const char *url)
{
    /* The parser is that of the requests: no text is one host here and another there. */
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *user = NULL;
    bool trusts = false;

    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_NO_USER &&
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        trusts = strcmp(scheme, "https") == 0 || (strcmp(scheme, "http") == 0 && is_near(host));
    curl_free(user);
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
    return trusts;
}

/* The kind that was asked for gave none. */
static int fail(const char *why)
{
    return rfs_store_fail(rfs_cancelled() ? -EINTR : -ENOKEY, "%s", why);
}

int rfs_metadata_container(struct rfs_credentials *out)
{
    const char *relative = rfs_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = rfs_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[1024], header[TOKEN_BYTES + 32];
    struct answer answer;

    if (!relative && !full)
        return RFS_CREDENTIALS_UNASKED;
    snprintf(url, sizeof url, "%s%s", relative ? CONTAINER : "", relative ? relative : full);
    const bool found = rfs_metadata_trusts(url) && container_header(header, sizeof header) &&
                       ask(RFS_HTTP_GET, url, *header ? header : NULL, &answer) &&
                       rfs_credentials_parse(answer.text, answer.n, out);
    token_file = found ? rfs_variable(RFS_AWS_CONTAINER_TOKEN) : NULL;
    rfs_wipe(header, sizeof header);
    rfs_wipe(&answer, sizeof answer);
    return found ? 0 : fail("the container's service, which the environment names, gave none");
}

static bool from_instance(struct rfs_credentials *out)
{
    const char *base = rfs_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char url[1024], header[TOKEN_BYTES + 64], role[256];
    struct answer answer;

    base = base ? base : INSTANCE;
    snprintf(url, sizeof url, "%s/latest/api/token", base);
    if (!ask(RFS_HTTP_PUT, url, "X-aws-ec2-metadata-token-ttl-seconds: 300", &answer) ||
        !is_line(answer.text) ||
        (size_t)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", answer.text) >=
            sizeof header)
        return false;
    snprintf(url, sizeof url, "%s" ROLE, base);
    if (!ask(RFS_HTTP_GET, url, header, &answer) ||
        (size_t)snprintf(role, sizeof role, "%.*s", (int)strcspn(answer.text, "\r\n"),
                         answer.text) >= sizeof role)
        return false;
    snprintf(url, sizeof url, "%s" ROLE "%s", base, role);
    const bool found = ask(RFS_HTTP_GET, url, header, &answer) &&
                       rfs_credentials_parse(answer.text, answer.n, out);
    rfs_wipe(header, sizeof header);
    rfs_wipe(&answer, sizeof answer);
    return found;
}

int rfs_metadata_instance(struct rfs_credentials *out)
{
    const char *off = rfs_variable("AWS_EC2_METADATA_DISABLED");

    if (off && strcasecmp(off, "true") == 0)
        return RFS_CREDENTIALS_UNASKED;
    return from_instance(out) ? 0 : fail("the instance's metadata service gave none");
}

/* A file's token for a role, as Kubernetes has it for its pods. */
static bool read_web_identity(struct answer *answer, const char *role, const char *token)
{
    const char *name = rfs_variable("AWS_ROLE_SESSION_NAME");
    const char *endpoint = rfs_variable("AWS_ENDPOINT_URL_STS");
    const char *region = rfs_variable("AWS_REGION");
    RFS_FREE char *coded_role = rfs_sign_encode(role, false);
    RFS_FREE char *coded_name = rfs_sign_encode(name ? name : "reshardfs", false);
    RFS_FREE char *coded_token = rfs_sign_encode(token, false);
    RFS_FREE char *form = NULL;
    char url[512];

    region = region ? region : rfs_variable("AWS_DEFAULT_REGION");
    const int n = endpoint ? snprintf(url, sizeof url, "%s", endpoint)
                           : snprintf(url, sizeof url, "https://sts.%s%samazonaws.com",
                                      region ? region : "", region ? "." : "");
    if (!coded_role || !coded_name || !coded_token ||
        asprintf(&form,
                 "Action=AssumeRoleWithWebIdentity&RoleArn=%s&RoleSessionName=%s"
                 "&Version=2011-06-15&WebIdentityToken=%s",
                 coded_role, coded_name, coded_token) < 0) {
        form = NULL;
        return false;
    }
    struct rfs_http http = {.url = url,
                            .method = RFS_HTTP_POST,
                            .form = form,
                            .timeout = rfs_remote_settings()->timeout};
    const bool answered = (size_t)n < sizeof url && rfs_metadata_trusts(url) && make(&http, answer);
    rfs_wipe(form, strlen(form));
    rfs_wipe(coded_token, strlen(coded_token));
    return answered;
}

int rfs_metadata_web_identity(struct rfs_credentials *out)
{
    const char *path = rfs_variable(RFS_AWS_WEB_TOKEN);
    const char *role = rfs_variable("AWS_ROLE_ARN");
    RFS_FREE char *token = NULL;
    struct answer answer;
    char ends[64];
    size_t n = 0;

    *out = (struct rfs_credentials){0};
    if (!path)
        return RFS_CREDENTIALS_UNASKED;
    if (!role)
        return fail("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
    if (rfs_read_whole(path, TOKEN_BYTES, &token, &n, NULL) != 0)
        return fail("the file of AWS_WEB_IDENTITY_TOKEN_FILE cannot be read");
    token[strcspn(token, "\r\n")] = '\0';
    const bool found =
        read_web_identity(&answer, role, token) &&
        rfs_markup_text(answer.text, "AccessKeyId", out->key_id, sizeof out->key_id) &&
        rfs_markup_text(answer.text, "SecretAccessKey", out->secret, sizeof out->secret) &&
        rfs_markup_text(answer.text, "SessionToken", out->token, sizeof out->token) &&
        rfs_markup_text(answer.text, "Expiration", ends, sizeof ends) &&
        rfs_credentials_time(ends, &out->ends);
    token_file = found ? path : NULL;
    rfs_wipe(token, n);
    rfs_wipe(&answer, sizeof answer);
    return found ? 0 : fail("AWS_ROLE_ARN was not given to AWS_WEB_IDENTITY_TOKEN_FILE");
}

const char *rfs_metadata_token_file(void)
{
    return token_file;
}

void rfs_metadata_forget(void)
{
    token_file = NULL;
    rfs_secret_unmap(container_token, TOKEN_BYTES);
    container_token = NULL;
}
