/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/hub.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/remote/sign.h"

#include <pthread.h>

#define HOPS 5
#define COMMIT 40 /* digits */

/* ---- where an answer leads ------------------------------------------------------------------- */

/* Counts the characters of a URL for messages: those before a signature. */
static int shown(const char *url)
{
    return (int)rfs_min_u64(strcspn(url, "?"), 200);
}

/* Replaces *AT by where the answer leads; never from TLS to none. */
static int follow(const struct rfs_bucket *bucket, const struct rfs_http *http, char **at)
{
    RFS_FREE char *next = rfs_http_follow(*at, http->location);

    if (!next)
        return rfs_store_fail(-EIO, "status %ld leads nowhere that can be read", http->status);
    if ((strncmp(next, "https://", 8) != 0 && strncmp(next, "http://", 7) != 0) ||
        (strncmp(*at, "https:", 6) == 0 && strncmp(next, "https:", 6) != 0))
        return rfs_credentials_fail(bucket->account->credentials, -EIO,
                                    "status %ld leads to '%.*s', which is not followed",
                                    http->status, shown(next), next);
    free(*at);
    *at = RFS_STEAL(next);
    return 0;
}

/*
 * Asks at *AT, and where that leads; with HEAD up to a redirection to another host by an answer
 * that names its commit.
 */
static int ask(const struct rfs_bucket *bucket, const char *url, char **at, bool head,
               struct rfs_remote_request *request)
{
    for (int hops = 0; hops < HOPS; hops++) {
        rfs_retries_free(request);
        *request = (struct rfs_remote_request){
            .bucket = bucket, .url = url, .key = "", .at = *at, .head = head};
        int rc = rfs_retries_make(request, 1);
        request->at = NULL;
        if (rc < 0 || request->answer.http.status < 300)
            return rc;
        rc = follow(bucket, &request->answer.http, at);
        if (rc < 0 || (head && request->answer.http.commit[0] && !rfs_bucket_has(bucket, *at)))
            return rc;
    }
    return rfs_credentials_fail(bucket->account->credentials, -EIO,
                                "more than %d redirections, the last to '%.*s'", HOPS, shown(*at),
                                *at);
}

int rfs_hub_ask(const struct rfs_bucket *bucket, const char *url, char **at,
                struct rfs_remote_request *request)
{
    return ask(bucket, url, at, false, request);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Compares what the hub says of a file with its commit and with the list of files. */
static int compare(const struct rfs_bucket *bucket, const struct rfs_http *http, const char *etag,
                   uint64_t size)
{
    struct rfs_credentials_chain *credentials = bucket->account->credentials;
    const char *tag = http->linked_etag[0] ? http->linked_etag : http->etag;
    const char *commit = http->commit;
    char length[32];

    snprintf(length, sizeof length, "%" PRIu64, size);
    if (!commit[0])
        return rfs_store_fail(-ESTALE, "the hub does not say which commit its answer is of");
    if (strcmp(commit, bucket->revision) != 0)
        return rfs_credentials_fail(credentials, -ESTALE, "the hub answered for commit %.40s",
                                    commit);
    if (!rfs_http_same_etag(etag, tag))
        return rfs_credentials_fail(credentials, -ESTALE,
                                    "the hub's answer has the ETag %.80s, and its list %.80s",
                                    *tag ? tag : "(none)", etag);
    if (http->linked_size[0] ? strcmp(http->linked_size, length) != 0
                             : http->status == 200 && http->length != (int64_t)size)
        return rfs_store_fail(-ESTALE, "the hub's answer has another size than its list");
    return 0;
}

int rfs_hub_locate(const struct rfs_bucket *bucket, const char *url, const char *etag,
                   uint64_t size, char **out)
{
    RFS_FREE char *path = rfs_bucket_path(bucket, bucket->key);
    RFS_FREE char *at = path ? rfs_text_printf("%s%s", bucket->base, path) : NULL;
    struct rfs_remote_request request = {0};

    *out = NULL;
    if (!at)
        return -ENOMEM;
    int rc = ask(bucket, url, &at, true, &request);
    if (rc == -EINVAL)
        rc = rfs_store_fail(-ESTALE, "the object was removed while in use");
    if (rc == 0)
        rc = compare(bucket, &request.answer.http, etag, size);
    rfs_retries_free(&request);
    if (rc == 0)
        *out = RFS_STEAL(at);
    return rc;
}

/* ---- revisions ------------------------------------------------------------------------------- */

/* A revision that was asked for. */
struct revision {
    char *api, *name; /* owned; the second as the user wrote it */
    char commit[COMMIT + 1];
};

struct rfs_hub_known {
    pthread_mutex_t lock; /* a leaf lock */
    RFS_VEC(struct revision) revisions;
};

struct rfs_hub_known *rfs_hub_new(void)
{
    struct rfs_hub_known *known = calloc(1, sizeof *known);

    if (known)
        pthread_mutex_init(&known->lock, NULL);
    return known;
}

void rfs_hub_free(struct rfs_hub_known *known)
{
    if (!known)
        return;
    rfs_hub_forget(known);
    pthread_mutex_destroy(&known->lock);
    free(known);
}

void rfs_hub_forget(struct rfs_hub_known *known)
{
    RFS_LOCKED(&known->lock);
    for (size_t i = 0; i < known->revisions.n; i++) {
        free(known->revisions.data[i].api);
        free(known->revisions.data[i].name);
    }
    free(known->revisions.data);
    known->revisions.data = NULL;
    known->revisions.n = known->revisions.cap = 0;
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT && strspn(text, "0123456789abcdef") == COMMIT;
}

/* Copies the commit of a revision that was asked for, or gives false. Under the lock. */
static bool find_known(const struct rfs_bucket *bucket, char commit[COMMIT + 1])
{
    const struct rfs_hub_known *known = bucket->account->hub;

    for (size_t i = 0; i < known->revisions.n; i++) {
        const struct revision *revision = &known->revisions.data[i];
        if (strcmp(revision->api, bucket->api) == 0 &&
            strcmp(revision->name, bucket->revision) == 0) {
            memcpy(commit, revision->commit, COMMIT + 1);
            return true;
        }
    }
    return false;
}

/* Remembers the commit, unless another thread did: then that one counts. */
static int keep(const struct rfs_bucket *bucket, char commit[COMMIT + 1])
{
    struct rfs_hub_known *known = bucket->account->hub;
    struct revision revision = {strdup(bucket->api), strdup(bucket->revision), ""};

    memcpy(revision.commit, commit, COMMIT + 1);
    RFS_LOCKED(&known->lock);
    const bool other = find_known(bucket, commit);
    if (!other && revision.api && revision.name && RFS_PUSH(&known->revisions, revision))
        return 0;
    free(revision.api);
    free(revision.name);
    return other ? 0 : -ENOMEM;
}

/* Reads {"sha": COMMIT, …} */
static bool read_commit(const char *text, size_t n, char commit[COMMIT + 1])
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(text, n);
    bool first = true, found = false;

    while (rfs_json_read_member(&json, &first)) {
        if (!rfs_json_read_is(&json, "sha")) {
            rfs_json_read_skip(&json);
            continue;
        }
        found = rfs_json_read_string(&json) && is_commit(json.text);
        if (!found)
            return false;
        memcpy(commit, json.text, COMMIT + 1);
    }
    return found && !json.wrong;
}

static int ask_commit(const struct rfs_bucket *bucket, const char *url, char commit[COMMIT + 1])
{
    RFS_FREE char *coded = rfs_sign_encode(bucket->revision, false);
    RFS_FREE char *at = coded ? rfs_text_printf("%s/revision/%s", bucket->api, coded) : NULL;
    struct rfs_remote_request request = {0};

    int rc = at ? rfs_hub_ask(bucket, url, &at, &request) : -ENOMEM;
    if (rc == 0 &&
        (!request.answer.text || !read_commit(request.answer.text, request.answer.text_n, commit)))
        rc =
            rfs_store_fail(-EIO, "the hub does not say which commit '%.100s' is", bucket->revision);
    rfs_retries_free(&request);
    return rc;
}

static int find_commit(const struct rfs_bucket *bucket, const char *url, char commit[COMMIT + 1])
{
    if (is_commit(bucket->revision)) {
        memcpy(commit, bucket->revision, COMMIT + 1);
        return 0;
    }
    struct rfs_hub_known *known = bucket->account->hub;
    pthread_mutex_lock(&known->lock);
    const bool found = find_known(bucket, commit);
    pthread_mutex_unlock(&known->lock);
    if (found)
        return 0;
    return ask_commit(bucket, url, commit) ?: keep(bucket, commit);
}

char *rfs_hub_pin(struct rfs_account *account, const char *url)
{
    RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
    char commit[COMMIT + 1];

    if (strncmp(url, "hf://", 5) != 0)
        return rfs_store_without_slash(url);
    const int rc = rfs_bucket_of(account, url, &bucket) ?: find_commit(&bucket, url, commit);
    char *pinned = rc ? NULL
                      : rfs_text_printf("hf://%s@%s%s%s", bucket.name, commit,
                                        *bucket.key ? "/" : "", bucket.key);
    errno = rc ? -rc : pinned ? 0 : ENOMEM;
    return pinned;
}
