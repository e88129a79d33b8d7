/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as all that stores of objects answer: of S3, of a web server and of a hub. The first
 * byte chooses what is asked of them, the second one options; behind a line break are the answers
 * (fake_curl.h). What is signed, and the hub's token, go to no other host.
 */
#include "base/options.h"
#include "store/remote/remote.h"
#include "tests/fuzz/fake_curl.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <strings.h>

#define OWN "store.example.org"
#define HUB "huggingface.co"
#define SECRET "SECRETSECRETSECRET"
#define TOKEN "hf_token"
#define OBJECT "s3://bucket/a/b.ckpt"
#define PAGE "http://web.example.org/a"
#define MODEL "hf://org/model@main"

enum { PART = 5, READ_MOST = 4096, KINDS = 8 };
enum option { PATH_STYLE = 1, OWN_ENDPOINT = 2, NOTHING_THERE = 4, REPLACES = 8, ANONYMOUS = 16 };

enum goal {
    PUT,
    PUT_OVER,
    COMPLETE,
    COMPLETE_OVER,
    SWEPT,
    LISTED,
    READ,
    WEB_LISTED,
    WEB_READ,
    PINNED,
    HUB_LISTED,
    HUB_READ,
    CONTAINER,
    IDENTITY,
    INSTANCE,
    SIGNED,
    WITH_TOKEN,
    MOVED,
};
FUZZ_GOALS("an object that is written", "an object that is replaced", "an upload that is complete",
           "an upload that replaces", "uploads that are dropped", "a list of S3", "bytes of S3",
           "a list of a web server", "bytes of a web server", "a commit of a hub",
           "a list of a hub", "bytes of a hub", "credentials of a container",
           "credentials of a web identity", "credentials of an instance", "a signed request",
           "a request with a token", "a bucket at another host");

/* ---- where secrets go ------------------------------------------------------------------------ */

static char first_host[256]; /* of the signed requests */
static bool own_endpoint;

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcasecmp(text + n - m, end) == 0;
}

/* What may be asked with a signature: the endpoint, hosts below it, and S3 of AWS for AWS. */
static void check_signed(const struct fake_request *request)
{
    const char *host = request->host;
    const size_t bucket = strncasecmp(host, "bucket.", 7) == 0 ? 7 : 0;

    REQUIRE(!request->follows && strcmp(request->scheme, "https") == 0);
    if (own_endpoint)
        REQUIRE(strcasecmp(host, OWN) == 0 || ends_with(host, "." OWN));
    else
        REQUIRE(strncasecmp(host + bucket, "s3", 2) == 0 &&
                (ends_with(host, ".amazonaws.com") || ends_with(host, ".amazonaws.com.cn")));
    fuzz_reached(SIGNED);
    if (!first_host[0])
        snprintf(first_host, sizeof first_host, "%s", host);
    if (strcmp(first_host, host) != 0)
        fuzz_reached(MOVED);
}

static void look(const struct fake_request *request)
{
    const char *authorization = request->authorization;

    if (!authorization)
        return;
    if (strncmp(authorization, "AWS4-HMAC-SHA256 ", 17) == 0) {
        check_signed(request);
        return;
    }
    if (strcmp(authorization, "Bearer " TOKEN) != 0)
        return; /* of a container */
    REQUIRE(strcasecmp(request->host, HUB) == 0 && strcmp(request->scheme, "https") == 0);
    REQUIRE(!request->follows);
    fuzz_reached(WITH_TOKEN);
}

/* ---- what is asked --------------------------------------------------------------------------- */

static struct rfs_store *store;
static bool has_key, has_token; /* those of this file, which no answer has */

/* Whether a call succeeded, with RC. If not, the message for URL is one line without secrets. */
static bool finish(const char *url, int rc)
{
    struct rfs_error err = {0};

    REQUIRE(rc <= 0);
    if (rc == 0)
        return true;
    rfs_store_fail_read(&err, RFS_IN(url), rc);
    require_refusal(&err);
    REQUIRE(!has_key || !strstr(err.text, SECRET));
    REQUIRE(!has_token || !strstr(err.text, TOKEN));
    return false;
}

/* The ETag of what is replaced, which is the last one's. */
static const char *over(uint8_t options)
{
    return options & REPLACES        ? "\"0123456789abcdef0123456789abcdef\""
           : options & NOTHING_THERE ? ""
                                     : NULL;
}

static void put_object(uint8_t options)
{
    char first[] = "hel", second[] = "lo";
    const struct iovec spans[] = {{first, 3}, {second, 0}, {second, 2}};
    char etag[RFS_STORE_ETAG] = "";

    if (finish(OBJECT, store->uploads->put(store, OBJECT, spans, 3, over(options), etag)))
        fuzz_reached(over(options) ? PUT_OVER : PUT);
    REQUIRE(memchr(etag, '\0', sizeof etag));
    finish(OBJECT, store->uploads->remove(store, OBJECT));
}

static void upload(uint8_t options)
{
    char part[] = "hello";
    const struct iovec span = {part, PART};
    struct rfs_upload *upload;
    bool sent = true;

    if (!finish(OBJECT, store->uploads->begin(store, OBJECT, 2 * PART, 2, &upload)))
        return;
    for (uint32_t i = 0; i < 2; i++)
        sent &= finish(OBJECT, store->uploads->send(upload, i, &span, 1));
    const bool complete = finish(OBJECT, store->uploads->complete(upload, over(options)));
    REQUIRE(sent || !complete);
    if (complete)
        fuzz_reached(over(options) ? COMPLETE_OVER : COMPLETE);
    store->uploads->drop(upload);
}

static bool is_ours(void *ctx, const char *path)
{
    (*(unsigned *)ctx)++;
    return path[0] != 'x';
}

static void sweep(void)
{
    unsigned seen = 0;

    if (finish(OBJECT, store->uploads->sweep(store, "s3://bucket/a", is_ours, &seen)) && seen > 0)
        fuzz_reached(SWEPT);
}

static void list(const char *url, enum goal goal)
{
    struct rfs_dir dir = {0};
    const struct dirent *entry;

    if (rfs_dir_open(store, url, &dir) == 0)
        while ((entry = rfs_dir_next(&dir))) {
            REQUIRE(entry->d_name[0] && !strchr(entry->d_name, '/'));
            fuzz_reached(goal);
        }
    rfs_dir_close(&dir);
}

static void read_at(const char *url, struct rfs_object *object, uint64_t size, uint64_t offset,
                    enum goal goal)
{
    const size_t n = size - offset < READ_MOST ? (size_t)(size - offset) : READ_MOST;
    char *one = malloc(n / 2 + 1), *two = malloc(n - n / 2 + 1);
    struct iovec spans[] = {{one, n / 2}, {two, n - n / 2}};

    REQUIRE(one && two);
    if (n > 0 && finish(url, store->objects->read(object, spans, 2, offset)))
        fuzz_reached(goal);
    free(one);
    free(two);
}

static void read_object(const char *url, enum goal goal)
{
    struct rfs_object *object;
    struct stat st;

    finish(url, store->directory->stat(store, url, &st));
    if (!finish(url, store->objects->hold(store, url, &object, &st)))
        return;
    REQUIRE(st.st_size >= 0);
    read_at(url, object, (uint64_t)st.st_size, 0, goal);
    if (st.st_size > READ_MOST)
        read_at(url, object, (uint64_t)st.st_size, (uint64_t)st.st_size - READ_MOST, goal);
    store->objects->let_go(object);
    REQUIRE(store->objects->round_trip(store) < UINT64_MAX);
}

static void read_hub(void)
{
    char *pinned = rfs_store_realpath(store, MODEL);
    char url[512];

    if (!pinned)
        return;
    fuzz_reached(PINNED);
    list(pinned, HUB_LISTED);
    snprintf(url, sizeof url, "%.400s/a.ckpt", pinned);
    read_object(url, HUB_READ);
    free(pinned);
}

static void ask(unsigned kind, uint8_t options)
{
    switch (kind) {
    case 0:
        put_object(options);
        break;
    case 1:
        upload(options);
        break;
    case 2:
        sweep();
        break;
    case 3:
        list("s3://bucket/a", LISTED);
        read_object(OBJECT, READ);
        break;
    case 4:
        list(PAGE, WEB_LISTED);
        read_object(PAGE "/b.ckpt", WEB_READ);
        break;
    case 5:
        read_hub();
        break;
    default:
        read_object(OBJECT, READ);
    }
}

/* ---- who asks -------------------------------------------------------------------------------- */

static char token_file[4096];

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY",       "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_ROLE_ARN",        "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE",
    "AWS_REGION",          "AWS_DEFAULT_REGION",          "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN",           "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "HF_ENDPOINT",         "AWS_EC2_METADATA_DISABLED",   "AWS_CONTAINER_AUTHORIZATION_TOKEN",
};

void fuzz_prepare(void)
{
    snprintf(token_file, sizeof token_file, "%s", fuzz_file("token", "web_token\n", 10));
    REQUIRE(setenv("HOME", fuzz_folder(), 1) == 0 && setenv("HF_TOKEN", TOKEN, 1) == 0);
}

/* Kinds 0 to 5 have a key; the others ask a service for one. Returns what the service reaches. */
static enum goal set_identity(unsigned kind, uint8_t options)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    if (kind < 6) {
        setenv("AWS_ACCESS_KEY_ID", "KEY", 1);
        setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
        return SIGNED;
    }
    if (kind == 6) {
        setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/role", 1);
        return CONTAINER;
    }
    if (!(options & NOTHING_THERE))
        return INSTANCE;
    setenv("AWS_ROLE_ARN", "arn", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token_file, 1);
    return IDENTITY;
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const char *paths[] = {OBJECT, PAGE, MODEL};
    struct rfs_options options;
    struct rfs_error err = {0};

    if (size < 3)
        return;
    const unsigned kind = data[0] % KINDS;
    const enum goal identity = set_identity(kind, data[1]);
    first_host[0] = '\0';
    own_endpoint = data[1] & OWN_ENDPOINT;
    const bool reads_others = kind == 4 || kind == 5;
    has_key = kind < 6 && !(data[1] & ANONYMOUS) && !memmem(data, size, SECRET, strlen(SECRET));
    has_token = reads_others && !(data[1] & ANONYMOUS) && !memmem(data, size, TOKEN, strlen(TOKEN));
    fake_curl_begin(data + 3, size - 3, look);
    REQUIRE(rfs_options_init(&options) == 0);
    options.path_style = data[1] & PATH_STYLE;
    options.anonymous = data[1] & ANONYMOUS;
    options.tries = 3;
    options.endpoint = own_endpoint ? strdup("https://" OWN) : NULL;
    const int rc = rfs_remote_take(&options, paths, reads_others ? 3 : 1, &store, &err);
    if (require_result(rc, &err)) {
        fuzz_reached(identity);
        ask(kind, data[1]);
        rfs_remote_give(&store);
    }
    rfs_options_free(&options);
}
