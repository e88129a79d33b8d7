/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   container   GET http://169.254.170.2$AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or …_FULL_URI
 *   instance    PUT http://169.254.169.254/latest/api/token           a token for the next two
 *               GET …/latest/meta-data/iam/security-credentials/      the name of the role
 *               GET …/latest/meta-data/iam/security-credentials/ROLE
 */
#include "source/remote/metadata.h"

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/secret.h"
#include "base/store.h"
#include "source/remote/credentials.h"
#include "source/remote/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLE "/latest/meta-data/iam/security-credentials/"
#define SECONDS 2
#define TOKEN_BYTES 4096

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
static bool ask(enum rfs_http_method method, const char *url, const char *header,
                struct answer *out)
{
    const char *const headers[] = {header, NULL};
    struct rfs_http http = {
        .url = url,
        .method = method,
        .headers = headers,
        .timeout = SECONDS,
        .direct = true,
        .body = on_body,
        .ctx = out,
    };
    struct rfs_lane *lane = rfs_lane_take();
    bool ended = false;

    out->n = 0;
    out->text[0] = '\0';
    if (lane && rfs_lane_start(lane, &http) == 0)
        while (!ended && !rfs_cancelled())
            ended = rfs_lane_wait(lane, 50) != NULL;
    rfs_lane_give(lane);
    return ended && !http.failed && http.status == 200;
}

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);

    return value && *value ? value : NULL;
}

static bool is_line(const char *text)
{
    return *text && !strpbrk(text, "\r\n");
}

/* "Authorization: …" for a container, by a variable or a file; "" where it needs none. */
static bool container_header(char *out, size_t cap)
{
    const char *token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *path = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    RFS_FREE char *text = NULL;
    size_t n = 0;

    *out = '\0';
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

/* Over the network only by TLS: else from this machine, or the addresses that containers use. */
static bool is_trusted(const char *url)
{
    static const char *const known[] = {
        "https://",     "http://127.",           "http://localhost:",
        "http://[::1]", "http://169.254.170.2/", "http://169.254.170.23/"};
    bool found = false;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found |= strncmp(url, known[i], strlen(known[i])) == 0;
    return found;
}

static bool from_container(struct rfs_credentials *out)
{
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[1024], header[TOKEN_BYTES + 32];
    struct answer answer;

    if (!relative && !full)
        return false;
    snprintf(url, sizeof url, "%s%s", relative ? CONTAINER : "", relative ? relative : full);
    const bool found = is_trusted(url) && container_header(header, sizeof header) &&
                       ask(RFS_HTTP_GET, url, *header ? header : NULL, &answer) &&
                       rfs_credentials_parse(answer.text, answer.n, out);
    rfs_wipe(header, sizeof header);
    rfs_wipe(&answer, sizeof answer);
    return found;
}

static bool from_instance(struct rfs_credentials *out)
{
    const char *off = variable("AWS_EC2_METADATA_DISABLED");
    const char *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char url[1024], header[TOKEN_BYTES + 64], role[256];
    struct answer answer;

    if (off && strcasecmp(off, "true") == 0)
        return false;
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

int rfs_metadata_credentials(struct rfs_credentials *out)
{
    if (from_container(out) || from_instance(out))
        return 0;
    return rfs_store_told(-ENOKEY, "neither the environment, nor ~/.aws, nor a metadata service "
                                   "has some");
}
