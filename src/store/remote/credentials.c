/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services that give credentials for some hours:
 *
 *   web         POST https://sts.REGION.amazonaws.com
 *               Action=AssumeRoleWithWebIdentity&…, answered by XML
 *   container   GET http://169.254.170.2$AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or …_FULL_URI
 *   instance    PUT http://169.254.169.254/latest/api/token           a token for the next two
 *               GET …/latest/meta-data/iam/security-credentials/      the name of the role
 *               GET …/latest/meta-data/iam/security-credentials/ROLE
 */
#include "store/remote/credentials.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/thread.h"
#include "store/remote/environment.h"
#include "store/remote/http.h"
#include "store/remote/markup.h"
#include "store/remote/sign.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLE "/latest/meta-data/iam/security-credentials/"
#define SECONDS 2
#define TOKEN_BYTES 4096
#define BEFORE_END 300 /* seconds */
#define BEARER "Bearer "

/* There are no credentials of a kind because nothing asks for that kind. */
#define UNASKED 1

struct rfs_credentials_chain {
    const struct rfs_environment *environment; /* borrowed */
    unsigned timeout;                          /* seconds */
    pthread_mutex_t lock;                      /* of the rest but the last; credentials.h */
    struct rfs_credentials *found;             /* in guarded memory, as the text; NULL: none yet */
    const struct kind *kind;                   /* that gave them */
    bool renew;
    char *bearer; /* "Bearer TOKEN", or "" for none; NULL: it was not looked for */
    /* The file of the token that gave the last credentials; NULL: they took none. */
    _Atomic(const char *) token_file;
};

/* ---- texts that hold them -------------------------------------------------------------------- */

/* Reads "2026-01-01T00:00:00Z"; false when it is none. */
static bool read_time(const char *text, time_t *out)
{
    struct tm utc = {0};

    if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &utc))
        return false;
    *out = timegm(&utc);
    return true;
}

/*
 * Reads a member of {"AccessKeyId": …, "SecretAccessKey": …, "Token": …, "Expiration":
 * "2026-01-01T00:00:00Z", …}
 */
static bool take_member(struct rfs_json_read *json, struct rfs_credentials *out)
{
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } texts[] = {
        {"AccessKeyId", out->key_id, sizeof out->key_id},
        {"SecretAccessKey", out->secret, sizeof out->secret},
        {"Token", out->token, sizeof out->token},
        {"SessionToken", out->token, sizeof out->token},
    };
    const bool ends = rfs_json_read_is(json, "Expiration");

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!rfs_json_read_is(json, texts[i].name))
            continue;
        if (!rfs_json_read_string(json) || json->text_n >= texts[i].cap)
            return false;
        memcpy(texts[i].to, json->text, json->text_n + 1);
        rfs_secret_wipe(json->text, json->text_n);
        return true;
    }
    if (!ends)
        return rfs_json_read_skip(json);
    return rfs_json_read_string(json) && read_time(json->text, &out->ends);
}

bool rfs_credentials_parse(const char *json, size_t n, struct rfs_credentials *out)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read read = rfs_json_read_begin(json, n);
    bool first = true;

    *out = (struct rfs_credentials){0};
    while (rfs_json_read_member(&read, &first))
        if (!take_member(&read, out))
            return false;
    return !read.wrong && out->key_id[0] && out->secret[0];
}

/* ---- services that give them for some hours -------------------------------------------------- */

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

/* Makes a request. True with the whole answer when it was granted. */
static bool make(struct rfs_http *http, struct answer *out)
{
    struct rfs_http_lane *lane = rfs_http_take_lane();
    bool ended = false;

    http->body = on_body;
    http->ctx = out;
    out->n = 0;
    out->text[0] = '\0';
    if (lane && rfs_http_start(lane, http) == 0)
        while (!ended && !rfs_cancelled())
            ended = rfs_http_wait(lane, 50) != NULL;
    rfs_http_give_lane(lane);
    return ended && !http->failed && http->status == 200;
}

static RFS_APART bool ask(const struct rfs_credentials_chain *chain, enum rfs_http_method method,
                          const char *url, const char *header, struct answer *out)
{
    const char *const headers[] = {header, NULL};
    struct rfs_http http = {.environment = chain->environment,
                            .url = url,
                            .method = method,
                            .headers = headers,
                            .timeout = SECONDS,
                            .direct = true};

    return make(&http, out);
}

static bool is_line(const char *text)
{
    return rfs_http_is_line(text, strlen(text));
}

static const char *variable(const struct rfs_credentials_chain *chain, const char *name)
{
    return rfs_environment_get(chain->environment, name);
}

/* Writes "Authorization: …" for a container, by a variable or a file; "" where it needs none. */
static bool container_header(const struct rfs_credentials_chain *chain, char *out, size_t cap)
{
    const char *token = variable(chain, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = variable(chain, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    RFS_FREE char *text = NULL;
    size_t n = 0;

    *out = '\0';
    if (path && rfs_store_read_whole(NULL, path, TOKEN_BYTES, &text, &n, NULL) == 0) {
        text[strcspn(text, "\r\n")] = '\0';
        token = text;
    }
    const bool good =
        !token || (is_line(token) && (size_t)snprintf(out, cap, "Authorization: %s", token) < cap);
    if (text)
        rfs_secret_wipe(text, n);
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

bool rfs_credentials_trusts(const char *url)
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

/* Reports that the service of a kind gave none. */
static int fail_service(const char *why)
{
    return rfs_store_fail(rfs_cancelled() ? -EINTR : -ENOKEY, "%s", why);
}

static int from_container(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const char *relative = variable(chain, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = variable(chain, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[1024], header[TOKEN_BYTES + 32];
    struct answer answer;

    if (!relative && !full)
        return UNASKED;
    snprintf(url, sizeof url, "%s%s", relative ? CONTAINER : "", relative ? relative : full);
    const bool found = rfs_credentials_trusts(url) &&
                       container_header(chain, header, sizeof header) &&
                       ask(chain, RFS_HTTP_GET, url, *header ? header : NULL, &answer) &&
                       rfs_credentials_parse(answer.text, answer.n, out);
    chain->token_file = found ? variable(chain, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") : NULL;
    rfs_secret_wipe(header, sizeof header);
    rfs_secret_wipe(&answer, sizeof answer);
    return found ? 0
                 : fail_service("the container's service, which the environment names, gave none");
}

static bool read_instance(const struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const char *base = variable(chain, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char url[1024], header[TOKEN_BYTES + 64], role[256];
    struct answer answer;

    base = base ? base : INSTANCE;
    snprintf(url, sizeof url, "%s/latest/api/token", base);
    if (!ask(chain, RFS_HTTP_PUT, url, "X-aws-ec2-metadata-token-ttl-seconds: 300", &answer) ||
        !is_line(answer.text) ||
        (size_t)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", answer.text) >=
            sizeof header)
        return false;
    snprintf(url, sizeof url, "%s" ROLE, base);
    if (!ask(chain, RFS_HTTP_GET, url, header, &answer) ||
        (size_t)snprintf(role, sizeof role, "%.*s", (int)strcspn(answer.text, "\r\n"),
                         answer.text) >= sizeof role)
        return false;
    snprintf(url, sizeof url, "%s" ROLE "%s", base, role);
    const bool found = ask(chain, RFS_HTTP_GET, url, header, &answer) &&
                       rfs_credentials_parse(answer.text, answer.n, out);
    rfs_secret_wipe(header, sizeof header);
    rfs_secret_wipe(&answer, sizeof answer);
    return found;
}

static int from_instance(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const char *off = variable(chain, "AWS_EC2_METADATA_DISABLED");

    if (off && strcasecmp(off, "true") == 0)
        return UNASKED;
    return read_instance(chain, out) ? 0
                                     : fail_service("the instance's metadata service gave none");
}

/* Exchanges a file's token for a role's credentials, as Kubernetes has it for its pods. */
static bool read_web_identity(const struct rfs_credentials_chain *chain, struct answer *answer,
                              const char *role, const char *token)
{
    const char *name = variable(chain, "AWS_ROLE_SESSION_NAME");
    const char *endpoint = variable(chain, "AWS_ENDPOINT_URL_STS");
    const char *region = variable(chain, "AWS_REGION");
    RFS_FREE char *coded_role = rfs_sign_encode(role, false);
    RFS_FREE char *coded_name = rfs_sign_encode(name ? name : "reshardfs", false);
    RFS_FREE char *coded_token = rfs_sign_encode(token, false);
    RFS_FREE char *form = NULL;
    char url[512];

    region = region ? region : variable(chain, "AWS_DEFAULT_REGION");
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
    struct rfs_http http = {.environment = chain->environment,
                            .url = url,
                            .method = RFS_HTTP_POST,
                            .form = form,
                            .timeout = chain->timeout};
    const bool answered =
        (size_t)n < sizeof url && rfs_credentials_trusts(url) && make(&http, answer);
    rfs_secret_wipe(form, strlen(form));
    rfs_secret_wipe(coded_token, strlen(coded_token));
    return answered;
}

static int from_web_identity(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const char *path = variable(chain, "AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = variable(chain, "AWS_ROLE_ARN");
    RFS_FREE char *token = NULL;
    struct answer answer;
    char ends[64];
    size_t n = 0;

    *out = (struct rfs_credentials){0};
    if (rfs_profile_of(chain->environment).by_option || !path)
        return UNASKED;
    if (!role)
        return fail_service("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
    if (rfs_store_read_whole(NULL, path, TOKEN_BYTES, &token, &n, NULL) != 0)
        return fail_service("the file of AWS_WEB_IDENTITY_TOKEN_FILE cannot be read");
    token[strcspn(token, "\r\n")] = '\0';
    const bool found =
        read_web_identity(chain, &answer, role, token) &&
        rfs_markup_text(answer.text, "AccessKeyId", out->key_id, sizeof out->key_id) &&
        rfs_markup_text(answer.text, "SecretAccessKey", out->secret, sizeof out->secret) &&
        rfs_markup_text(answer.text, "SessionToken", out->token, sizeof out->token) &&
        rfs_markup_text(answer.text, "Expiration", ends, sizeof ends) &&
        read_time(ends, &out->ends);
    chain->token_file = found ? path : NULL;
    rfs_secret_wipe(token, n);
    rfs_secret_wipe(&answer, sizeof answer);
    return found ? 0 : fail_service("AWS_ROLE_ARN was not given to AWS_WEB_IDENTITY_TOKEN_FILE");
}

/* ---- the chain ------------------------------------------------------------------------------- */

static bool copy(char *out, size_t cap, const char *value)
{
    const size_t n = strlen(value);

    if (n >= cap)
        return false;
    memcpy(out, value, n + 1);
    return true;
}

/* Reports that a kind which was asked for has none. */
static int fail(const char *why)
{
    return rfs_store_fail(-ENOKEY, "%s", why);
}

static int from_environment(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const char *id = variable(chain, "AWS_ACCESS_KEY_ID");
    const char *secret = variable(chain, "AWS_SECRET_ACCESS_KEY");
    const char *token = variable(chain, "AWS_SESSION_TOKEN");

    if (rfs_profile_of(chain->environment).by_option || !id)
        return UNASKED;
    if (!secret)
        return fail("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not");
    return copy(out->key_id, sizeof out->key_id, id) &&
                   copy(out->secret, sizeof out->secret, secret) &&
                   copy(out->token, sizeof out->token, token ? token : "")
               ? 0
               : fail("those of the environment are too long");
}

/* Returns the setting of a profile that other tools go by instead of keys, or NULL. */
static const char *other_way(const struct rfs_environment *environment, enum rfs_profile_file file)
{
    static const char *const ways[] = {"role_arn", "credential_process", "sso_session",
                                       "sso_start_url", "login_session"};
    char value[512];

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (rfs_profile_get(environment, file, ways[i], value, sizeof value))
            return ways[i];
    return NULL;
}

static int from_file(const struct rfs_environment *environment, enum rfs_profile_file file,
                     struct rfs_credentials *out)
{
    const char *name = rfs_profile_of(environment).name;

    if (!rfs_profile_get(environment, file, "aws_access_key_id", out->key_id, sizeof out->key_id)) {
        const char *way = other_way(environment, file);
        return way ? rfs_store_fail(-ENOKEY, "the profile '%.100s' has %s, which is not read", name,
                                    way)
                   : UNASKED;
    }
    if (!rfs_profile_get(environment, file, "aws_secret_access_key", out->secret,
                         sizeof out->secret))
        return rfs_store_fail(-ENOKEY,
                              "the profile '%.100s' has aws_access_key_id and no "
                              "aws_secret_access_key",
                              name);
    if (!rfs_profile_get(environment, file, "aws_session_token", out->token, sizeof out->token))
        out->token[0] = '\0';
    return 0;
}

static int from_profile(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const struct rfs_environment *environment = chain->environment;
    int rc = from_file(environment, RFS_PROFILE_CREDENTIALS, out);

    if (rc == UNASKED)
        rc = from_file(environment, RFS_PROFILE_CONFIG, out);
    if (rc == UNASKED && rfs_profile_of(environment).named)
        rc = rfs_store_fail(-ENOKEY, "the profile '%.100s' has none in ~/.aws/credentials",
                            rfs_profile_of(environment).name);
    return rc;
}

/* The kinds of credentials, in the order in which they are looked for. */
static const struct kind {
    /* Gives 0, UNASKED, or -errno with rfs_store_fail. */
    int (*get)(struct rfs_credentials_chain *chain, struct rfs_credentials *out);
    bool ends;
} kinds[] = {
    {from_environment, false}, {from_web_identity, true}, {from_profile, false},
    {from_container, true},    {from_instance, true},
};

/*
 * Gets credentials of the kind that gave those at hand, or (NULL) of the first that is asked for.
 */
static int look(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const size_t n = sizeof kinds / sizeof *kinds;
    int rc = UNASKED;

    *out = (struct rfs_credentials){0};
    if (chain->kind)
        return chain->kind->get(chain, out);
    for (size_t i = 0; rc == UNASKED && i < n; i++) {
        rc = kinds[i].get(chain, out);
        chain->kind = rc == 0 ? &kinds[i] : NULL;
        /* An instance is asked for by nothing but that all others are not. */
        if (rc == -ENOKEY && i == n - 1)
            rc = UNASKED;
    }
    if (rc == UNASKED)
        return fail("neither the environment, nor ~/.aws, nor a metadata service has some");
    if (rc == 0 && (!is_line(out->key_id) || (out->token[0] && !is_line(out->token))))
        return fail("a key or a token has a control character");
    return rc;
}

/* ---- those at hand --------------------------------------------------------------------------- */

struct rfs_credentials_chain *rfs_credentials_new(const struct rfs_environment *environment,
                                                  unsigned timeout)
{
    struct rfs_credentials_chain *chain = calloc(1, sizeof *chain);

    if (!chain)
        return NULL;
    chain->environment = environment;
    chain->timeout = timeout;
    pthread_mutex_init(&chain->lock, NULL);
    return chain;
}

void rfs_credentials_free(struct rfs_credentials_chain *chain)
{
    if (!chain)
        return;
    rfs_secret_unmap(chain->found, sizeof *chain->found);
    rfs_secret_unmap(chain->bearer, RFS_CREDENTIALS_BEARER);
    pthread_mutex_destroy(&chain->lock);
    free(chain);
}

static bool is_valid(const struct rfs_credentials_chain *chain)
{
    const struct rfs_credentials *found = chain->found;

    return !chain->renew && found->key_id[0] &&
           (found->ends == 0 || time(NULL) + BEFORE_END < found->ends);
}

/* Looks for others than those at hand. */
static int renew(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    const int rc = look(chain, out);
    const struct rfs_credentials *found = chain->found;
    /* Credentials that have not ended yet serve while no others are to be had. */
    const bool serves = found->key_id[0] && (found->ends == 0 || found->ends > time(NULL));

    if (rc == 0)
        *chain->found = *out;
    chain->renew = false;
    return serves ? 0 : rc;
}

int rfs_credentials_get(struct rfs_credentials_chain *chain, struct rfs_credentials *out)
{
    int rc = 0;

    RFS_LOCKED(&chain->lock);
    if (!chain->found)
        chain->found = rfs_secret_map(sizeof *chain->found);
    if (!chain->found)
        rc = rfs_store_fail(-ENOMEM, "out of memory");
    else if (!is_valid(chain))
        rc = renew(chain, out);
    if (rc == 0)
        *out = *chain->found;
    else
        rfs_secret_wipe(out, sizeof *out);
    return rc;
}

/* ---- the token of a hub ---------------------------------------------------------------------- */

/* Writes a token to the guarded memory, without the spaces around it. */
static int take_bearer(const char *text, const char *from, char *bearer)
{
    static const char spaces[] = " \t\r\n";
    const char *token = text + strspn(text, spaces);
    size_t n = strlen(token);

    while (n > 0 && strchr(spaces, token[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] >= 0x7f)
            return rfs_store_fail(-EINVAL, "%.200s has no token of a hub", from);
    if (n + sizeof BEARER > RFS_CREDENTIALS_BEARER)
        return rfs_store_fail(-EINVAL, "%.200s has no token of a hub", from);
    if (n > 0)
        snprintf(bearer, RFS_CREDENTIALS_BEARER, BEARER "%.*s", (int)n, token);
    return 0;
}

static int find_bearer(const struct rfs_environment *environment, char *bearer)
{
    const char *text, *from;
    const int rc = rfs_environment_hub_token(environment, &text, &from);

    if (rc < 0)
        return rfs_store_fail(rc, "the file %.200s cannot be read: %s", from, strerror(-rc));
    return text ? take_bearer(text, from, bearer) : 0;
}

int rfs_credentials_bearer(struct rfs_credentials_chain *chain, char out[RFS_CREDENTIALS_BEARER])
{
    int rc = 0;

    RFS_LOCKED(&chain->lock);
    if (!chain->bearer) {
        chain->bearer = rfs_secret_map(RFS_CREDENTIALS_BEARER);
        rc = chain->bearer ? find_bearer(chain->environment, chain->bearer)
                           : rfs_store_fail(-ENOMEM, "out of memory");
        if (rc < 0) {
            rfs_secret_unmap(chain->bearer, RFS_CREDENTIALS_BEARER);
            chain->bearer = NULL;
        }
    }
    const char *bearer = chain->bearer ? chain->bearer : "";
    memcpy(out, bearer, strlen(bearer) + 1);
    return rc;
}

const char *rfs_credentials_token_file(const struct rfs_credentials_chain *chain)
{
    return chain->token_file;
}

bool rfs_credentials_renew(struct rfs_credentials_chain *chain)
{
    RFS_LOCKED(&chain->lock);
    chain->renew = chain->kind && chain->kind->ends;
    const bool renews = chain->renew;
    return renews;
}

/* ---- in messages ----------------------------------------------------------------------------- */

#define TELLING 8 /* characters: so many in a row are no accident */
#define MESSAGE_BYTES 1024

/* Counts the characters at AT that are a part of SECRET. */
static size_t part_of(const char *at, const char *secret)
{
    size_t longest = 0;

    for (; *secret; secret++) {
        size_t n = 0;

        while (at[n] && at[n] == secret[n])
            n++;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* Overwrites parts of secrets in TEXT. */
static void blank(struct rfs_credentials_chain *chain, char *text)
{
    RFS_LOCKED(&chain->lock);
    const struct rfs_credentials *found = chain->found;
    const char *bearer = chain->bearer;
    const char *secrets[] = {found ? found->secret : "", found ? found->token : "",
                             bearer && *bearer ? bearer + strlen(BEARER) : ""};
    for (char *at = text; *at; at++) {
        size_t n = 0;

        for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
            const size_t part = part_of(at, secrets[i]);
            n = part > n ? part : n;
        }
        if (n >= TELLING) {
            memset(at, '*', n);
            at += n - 1;
        }
    }
}

int rfs_credentials_fail(struct rfs_credentials_chain *chain, int code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        *text = '\0'; /* asked for, else gcc warns with -fsanitize=undefined of a format NULL */
    va_end(args);
    blank(chain, text);
    return rfs_store_fail(code, "%s", text);
}
