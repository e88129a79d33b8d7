/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/bucket.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "store/remote/sign.h"

#include <ctype.h>
#include <strings.h>

#define DEFAULT_REGION "us-east-1"
#define HUB_NAME_MOST 96 /* characters of an organization, or of a model without it */

/* Returns what ACCOUNT learnt about the bucket NAME; NULL: nothing. Under the lock. */
static struct rfs_account_bucket *find_learnt(struct rfs_account *account, const char *name)
{
    for (size_t i = 0; i < RFS_ACCOUNT_BUCKETS; i++)
        if (strcmp(account->learnt.of[i].name, name) == 0)
            return &account->learnt.of[i];
    return NULL;
}

/* Notes REGION and ENDPOINT of the bucket NAME. */
static void learn(struct rfs_account *account, const char *name, const char *region,
                  const char *endpoint)
{
    RFS_LOCKED(&account->learnt.lock);
    struct rfs_account_bucket *bucket = find_learnt(account, name);
    if (!bucket)
        bucket = &account->learnt.of[account->learnt.next++ % RFS_ACCOUNT_BUCKETS];
    snprintf(bucket->name, sizeof bucket->name, "%s", name);
    snprintf(bucket->region, sizeof bucket->region, "%s", region);
    snprintf(bucket->endpoint, sizeof bucket->endpoint, "%s", endpoint);
}

void rfs_bucket_learn(struct rfs_account *account, const char *name, const char *region)
{
    /* The region becomes a part of a host's name. */
    if (region[strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")])
        return;
    learn(account, name, region, "");
}

/*
 * Copies what ACCOUNT knows of the bucket NAME: where it has learnt nothing, by its settings; NULL
 * where there is none, or no memory.
 */
static char *known_region(struct rfs_account *account, const char *name)
{
    RFS_LOCKED(&account->learnt.lock);
    const struct rfs_account_bucket *bucket = find_learnt(account, name);
    char *copied = strdup(bucket            ? bucket->region
                          : account->region ? account->region
                                            : DEFAULT_REGION);
    return copied;
}

static char *known_endpoint(struct rfs_account *account, const char *name)
{
    RFS_LOCKED(&account->learnt.lock);
    const struct rfs_account_bucket *bucket = find_learnt(account, name);
    const char *text = bucket && *bucket->endpoint ? bucket->endpoint : account->endpoint;
    char *copied = text ? strdup(text) : NULL;
    return copied;
}

static bool is_http(const char *url)
{
    return strncmp(url, "https://", 8) == 0 || strncmp(url, "http://", 7) == 0;
}

bool rfs_bucket_has(const struct rfs_bucket *bucket, const char *url)
{
    const size_t n = strlen(bucket->base);

    return strncmp(url, bucket->base, n) == 0 && (url[n] == '/' || url[n] == '\0');
}

/* ---- where a signature may go ---------------------------------------------------------------- */

#define HOST_MOST 253 /* characters of a name */

/* A URL's host and port: "bucket.s3.eu-west-1.amazonaws.com" and ":443", or "". */
struct authority {
    char host[HOST_MOST + 1], port[8];
};

/*
 * Reads them from a URL of HTTP: in small letters, without the dot that a complete name may end
 * with. False for anything that two readers could take for different hosts.
 */
static bool read_authority(const char *url, struct authority *out)
{
    const char *at = strstr(url, "://") + 3;
    const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-");
    const size_t digits = at[n] == ':' ? strspn(at + n + 1, "0123456789") : 0;
    const size_t port = digits > 0 ? digits + 1 : 0;
    size_t length = n - (n > 0 && at[n - 1] == '.');

    if (length == 0 || length > HOST_MOST || port >= sizeof out->port ||
        (at[n + port] && !strchr("/?#", at[n + port])))
        return false;
    for (size_t i = 0; i < length; i++)
        out->host[i] = (char)tolower((unsigned char)at[i]);
    out->host[length] = '\0';
    memcpy(out->port, at + n, port);
    out->port[port] = '\0';
    return out->host[0] != '.' && !strstr(out->host, "..");
}

/* Says whether HOST is NAME, or a name below it. */
static bool is_below(const char *host, const char *name)
{
    const size_t n = strlen(host), m = strlen(name);

    return n >= m && strcmp(host + n - m, name) == 0 && (n == m || host[n - m - 1] == '.');
}

/* Returns the part of AWS that a host is in, or NULL. */
static const char *part_of_aws(const char *host)
{
    return is_below(host, "amazonaws.com.cn") ? "amazonaws.com.cn"
           : is_below(host, "amazonaws.com")  ? "amazonaws.com"
                                              : NULL;
}

/*
 * Says whether a host of AWS is one of S3: s3.eu-west-1, s3.dualstack.eu-west-1, s3-us-west-2, s3.
 * Others belong to customers, who choose a part of the name.
 */
static bool is_s3_of_aws(const char *host, const char *aws)
{
    const char *end = host + strlen(host) - strlen(aws);
    const char *rest = strchr(host, '.');

    if (end == host || (strncmp(host, "s3.", 3) != 0 && strncmp(host, "s3-", 3) != 0))
        return false;
    if (strncmp(rest, ".dualstack.", 11) == 0)
        rest += 10;
    rest++;
    return rest >= end || strchr(rest, '.') + 1 == end;
}

/* Says whether what is signed for the host OLD may be signed for NEW, too. */
static bool may_lead(const char *old, const char *new)
{
    const char *aws = part_of_aws(old);
    const char *last = strrchr(old, '.');
    /* There is nothing of one owner below an address, or a name without a dot. */
    const bool is_name = last && !isdigit((unsigned char)last[1]);

    return (is_name && is_below(new, old)) || (aws && is_below(new, aws) && is_s3_of_aws(new, aws));
}

/* Returns HOST without "BUCKET." in front of it, or NULL. */
static char *without_bucket(char *host, const char *bucket)
{
    const size_t n = strlen(bucket);

    return strncasecmp(host, bucket, n) == 0 && host[n] == '.' && host[n + 1] ? host + n + 1 : NULL;
}

bool rfs_bucket_move(const struct rfs_bucket *bucket, const char *location)
{
    const bool tls = strncmp(location, "https://", 8) == 0;
    struct authority old, new;

    if (!is_http(location) || (!tls && strncmp(bucket->base, "https:", 6) == 0) ||
        !read_authority(bucket->base, &old) || !read_authority(location, &new))
        return false;
    /* The bucket is in front of the old name unless it is in the path. */
    const char *from = *bucket->root ? old.host : without_bucket(old.host, bucket->name);
    const char *to = without_bucket(new.host, bucket->name);
    if (!to || !from || !may_lead(from, to))
        to = new.host;
    if (!from || !may_lead(from, to))
        return false;
    char endpoint[sizeof(struct rfs_account_bucket){0}.endpoint];
    snprintf(endpoint, sizeof endpoint, "%s%s%s", tls ? "https://" : "http://", to, new.port);
    learn(bucket->account, bucket->name, bucket->region, endpoint);
    return true;
}

/* ---- buckets --------------------------------------------------------------------------------- */

static int fail_url(const char *url, const char *why)
{
    return rfs_store_fail(-EINVAL, "'%.200s' is not a URL of object storage: %s", url, why);
}

/*
 * Says whether a bucket's name can stand before the host's: not before an address, nor a bare name.
 */
static bool takes_buckets(const char *host, const char *bucket)
{
    const size_t n = strcspn(host, ":");
    bool letters = false;

    for (size_t i = 0; i < n; i++)
        letters |= isalpha((unsigned char)host[i]) != 0;
    return letters && host[0] != '[' && memchr(host, '.', n) && !strchr(bucket, '.');
}

static int find_host(const char *url, struct rfs_bucket *out)
{
    struct rfs_account *account = out->account;
    RFS_FREE char *endpoint = known_endpoint(account, out->name);

    if (!endpoint && !account->endpoint)
        endpoint = rfs_text_printf("https://s3.%s.amazonaws.com", out->region);
    if (!endpoint)
        return -ENOMEM;
    const char *host = strstr(endpoint, "://");
    if (!host || !is_http(endpoint) || !host[3])
        return fail_url(endpoint, "an endpoint is https://HOST or http://HOST:PORT");
    host += 3;
    const int n = (int)strcspn(host, "/?#@");
    const bool named = !account->path_style && takes_buckets(host, out->name);
    const int scheme = (int)(host - endpoint);
    if (host[n] && host[n + 1])
        return fail_url(url, "its endpoint has more than a host and a port");
    out->host = rfs_text_printf("%s%s%.*s", named ? out->name : "", named ? "." : "", n, host);
    out->base = rfs_text_printf("%.*s%s", scheme, endpoint, out->host ? out->host : "");
    out->root = rfs_text_printf("%s%s", named ? "" : "/", named ? "" : out->name);
    return out->host && out->base && out->root ? 0 : -ENOMEM;
}

static int find_s3(const char *url, struct rfs_bucket *out)
{
    const char *bucket = url + strlen("s3://");
    const size_t n = strcspn(bucket, "/");

    out->s3 = true;
    out->name = strndup(bucket, n);
    out->key = strdup(bucket[n] ? bucket + n + 1 : "");
    if (!out->name || !out->key)
        return -ENOMEM;
    if (n == 0 || n > 63 ||
        strspn(out->name, "abcdefghijklmnopqrstuvwxyz0123456789.-_"
                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != n)
        return fail_url(url, "it names no bucket: s3://BUCKET/PREFIX");
    out->region = known_region(out->account, out->name);
    return out->region ? find_host(url, out) : -ENOMEM;
}

/* ---- hubs ------------------------------------------------------------------------------------ */

/* Finds the hub's address, and what stands before all its paths: "", or "/PREFIX". */
static int find_hub(const char *url, struct rfs_bucket *out, char **prefix)
{
    const char *endpoint = out->account->hub_endpoint;
    const char *host = is_http(endpoint) ? strstr(endpoint, "://") + 3 : "";
    const size_t n = strcspn(host, "/");
    if (n == 0 || strpbrk(host, "?#@\\ "))
        return fail_url(url, "HF_ENDPOINT is https://HOST or http://HOST:PORT");
    out->host = strndup(host, n);
    out->base = strndup(endpoint, (size_t)(host - endpoint) + n);
    *prefix = strdup(host + n);
    return out->host && out->base && *prefix ? 0 : -ENOMEM;
}

/* Counts the characters at AT of one part of a model's name; 0: it is none. */
static size_t hub_name(const char *at)
{
    const size_t n =
        strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n <= HUB_NAME_MOST && at[0] != '.' ? n : 0;
}

/* Counts the characters of a revision: up to a slash, but some names of the hub's have two. */
static size_t hub_revision(const char *at)
{
    const bool is_ref = strncmp(at, "refs/pr/", 8) == 0 || strncmp(at, "refs/convert/", 13) == 0;
    const size_t skip = is_ref ? (size_t)(strchr(at + 5, '/') + 1 - at) : 0;

    return skip + strcspn(at + skip, "/");
}

/* Reads ORG/MODEL[@REVISION][/KEY]. */
static int read_hub(const char *url, const char *at, const char *kind, struct rfs_bucket *out)
{
    const size_t org = hub_name(at);
    const size_t model = org > 0 && at[org] == '/' ? hub_name(at + org + 1) : 0;
    const char *end = at + org + 1 + model;

    if (model == 0 || (*end && *end != '/' && *end != '@'))
        return fail_url(url, "it names no model: hf://ORG/MODEL@REVISION/PATH");
    const size_t n = *end == '@' ? hub_revision(end + 1) : 0;
    if (*end == '@' && n == 0)
        return fail_url(url, "there is no revision behind '@'");
    out->name = rfs_text_printf("%s%.*s", kind, (int)(end - at), at);
    out->revision = n > 0 ? strndup(end + 1, n) : strdup("main");
    end += n > 0 ? n + 1 : 0;
    out->key = rfs_store_without_slash(end + strspn(end, "/"));
    if (out->revision && !rfs_sign_decode(out->revision, false))
        return fail_url(url, "its revision is not encoded as in '@a%2Fb'");
    return out->name && out->revision && out->key ? 0 : -ENOMEM;
}

static int find_model(const char *url, struct rfs_bucket *out)
{
    static const char *const others[] = {"spaces/", "kernels/", "buckets/"};
    const char *at = url + strlen("hf://");
    const bool data = strncmp(at, "datasets/", 9) == 0;
    RFS_FREE char *prefix = NULL;

    out->hub = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(at, others[i], strlen(others[i])) == 0)
            return fail_url(url, "of a hub, models and datasets are read");
    at += data ? 9 : strncmp(at, "models/", 7) == 0 ? 7 : 0;
    const int rc = read_hub(url, at, data ? "datasets/" : "", out) ?: find_hub(url, out, &prefix);
    if (rc)
        return rc;
    RFS_FREE char *coded = rfs_sign_encode(out->revision, false);
    out->root = rfs_text_printf("%s/%s/resolve/%s", prefix, out->name, coded ? coded : "");
    out->api =
        rfs_text_printf("%s%s/api/%s%s", out->base, prefix, data ? "" : "models/", out->name);
    out->region = strdup("");
    return coded && out->root && out->api && out->region ? 0 : -ENOMEM;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

int rfs_bucket_of(struct rfs_account *account, const char *url, struct rfs_bucket *out)
{
    *out = (struct rfs_bucket){.account = account};
    for (const unsigned char *c = (const unsigned char *)url; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            return fail_url(url, "it has control characters");
    if (strncmp(url, "s3://", 5) == 0)
        return find_s3(url, out);
    if (strncmp(url, "hf://", 5) == 0)
        return find_model(url, out);
    const char *host = strstr(url, "://") + 3;
    const size_t n = strcspn(host, "/?#");
    if (n == 0 || host[n] == '?' || host[n] == '#' || memchr(host, '@', n))
        return fail_url(url, "https://HOST/PATH is, without a user's name");
    out->base = strndup(url, (size_t)(host - url) + n);
    out->host = strndup(host, n);
    out->root = strdup("");
    out->name = strdup("");
    out->key = strdup(host[n] ? host + n + 1 : "");
    out->region = strdup("");
    return out->base && out->host && out->root && out->name && out->key && out->region ? 0
                                                                                       : -ENOMEM;
}

void rfs_bucket_free(struct rfs_bucket *bucket)
{
    free(bucket->base);
    free(bucket->host);
    free(bucket->root);
    free(bucket->name);
    free(bucket->key);
    free(bucket->region);
    free(bucket->api);
    free(bucket->revision);
    *bucket = (struct rfs_bucket){0};
}

char *rfs_bucket_path(const struct rfs_bucket *bucket, const char *key)
{
    RFS_FREE char *coded = rfs_sign_encode(key, true);

    return coded ? rfs_text_printf("%s/%s", bucket->root, coded) : NULL;
}
