/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/listing.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/remote/hub.h"
#include "store/remote/markup.h"
#include "store/remote/retries.h"
#include "store/remote/sign.h"

#define KEY_BYTES 4096 /* of a key of 1,024 bytes, percent-encoded */
#define TOKEN_BYTES 4096
/* More keys below one prefix are refused, or more pages of them. */
#define KEYS_MOST 1000000u
#define PAGES_MOST 10000u

/* Returns the bytes that an entry takes, with its place in the list and the overhead of malloc. */
static uint64_t entry_bytes(size_t name, size_t etag)
{
    return 2 * sizeof(struct rfs_remote_entry) + name + etag + 32;
}

static void free_entry(struct rfs_remote_entry *entry)
{
    rfs_retries_give_memory(entry_bytes(strlen(entry->name), strlen(entry->etag)));
    free(entry->name);
}

void rfs_remote_listing_free(struct rfs_remote_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free_entry(&listing->data[i]);
    free(listing->data);
    *listing = (struct rfs_remote_listing){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Adds it, without the slash at its end; a name that no file could have is left out. */
static int add(struct rfs_remote_listing *out, const char *name,
               const struct rfs_remote_entry *attributes, const char *etag)
{
    struct rfs_remote_entry entry = *attributes;
    const size_t m = strlen(etag);
    size_t n = strlen(name);

    entry.folder = n > 0 && name[n - 1] == '/';
    n -= entry.folder;
    if (!rfs_origin_is_names(name, n))
        return 0;
    if (!rfs_retries_take_memory(entry_bytes(n, m)))
        return -EFBIG;
    entry.name = malloc(n + m + 2);
    if (entry.name) {
        memcpy(entry.name, name, n);
        entry.name[n] = '\0';
        entry.etag = memcpy(entry.name + n + 1, etag, m + 1);
        if (RFS_PUSH(out, entry))
            return 0;
        free(entry.name);
    }
    rfs_retries_give_memory(entry_bytes(n, m));
    return -ENOMEM;
}

RFS_COMPARE(compare, struct rfs_remote_entry, x, y, strcmp(x->name, y->name))

/* Sorts entries, each name once: a folder may have an object of its own beside those in it. */
static void put_in_order(struct rfs_remote_listing *listing)
{
    size_t n = 0;

    RFS_SORT_ALL(listing, compare);
    for (size_t i = 0; i < listing->n; i++) {
        struct rfs_remote_entry *entry = &listing->data[i];
        if (n > 0 && strcmp(listing->data[n - 1].name, entry->name) == 0) {
            free_entry(entry);
            continue;
        }
        listing->data[n++] = *entry;
    }
    listing->n = n;
}

/* ---- S3 -------------------------------------------------------------------------------------- */

/* Returns the time of 2009-10-12T17:50:30.000Z; 0 when it is none. */
static time_t time_of(const char *text)
{
    struct tm utc = {0};

    return strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) ? timegm(&utc) : 0;
}

static int add_object(const struct rfs_markup *object, const char *prefix,
                      struct rfs_remote_listing *out)
{
    char key[KEY_BYTES], etag[256], size[32], modified[64];
    struct rfs_remote_entry entry = {.known = true};
    char *end;

    if (!rfs_markup_find(object, "Key", key, sizeof key) || !rfs_sign_decode(key, true) ||
        !rfs_markup_find(object, "Size", size, sizeof size) ||
        !rfs_markup_find(object, "ETag", etag, sizeof etag) ||
        !rfs_markup_find(object, "LastModified", modified, sizeof modified))
        return -EINVAL;
    errno = 0;
    entry.size = strtoull(size, &end, 10);
    entry.modified = time_of(modified);
    if (errno || *end || size[0] < '0' || size[0] > '9' || entry.size > INT64_MAX || !etag[0])
        return -EINVAL;
    const size_t n = strlen(prefix);
    if (strncmp(key, prefix, n) != 0)
        return -EINVAL;
    return key[n] ? add(out, key + n, &entry, etag) : 0;
}

int rfs_listing_page(const char *text, size_t n, const char *prefix, struct rfs_remote_listing *out,
                     char *next, size_t cap)
{
    struct rfs_markup rest = {text, n}, object;
    const struct rfs_markup page = {text, n};
    char truncated[8];

    *next = '\0';
    if (!rfs_markup_find(&page, "IsTruncated", truncated, sizeof truncated))
        return -EINVAL;
    while (rfs_markup_next(&rest, "Contents", &object)) {
        const int rc = add_object(&object, prefix, out);
        if (rc < 0)
            return rc;
    }
    if (strcmp(truncated, "true") != 0)
        return 0;
    return rfs_markup_find(&page, "NextContinuationToken", next, cap) && *next ? 0 : -EINVAL;
}

static char *page_query(const char *prefix, const char *token)
{
    RFS_FREE char *coded = rfs_sign_encode(prefix, false);
    RFS_FREE char *next = rfs_sign_encode(token, false);

    if (!coded || !next)
        return NULL;
    return rfs_text_printf("%s%s%sencoding-type=url&list-type=2&prefix=%s",
                           *next ? "continuation-token=" : "", next, *next ? "&" : "", coded);
}

static int refuse(int rc, const char *what)
{
    return rc == -ENOMEM  ? rfs_store_fail(rc, "out of memory")
           : rc == -EFBIG ? rfs_retries_fail_memory()
                          : rfs_store_fail(-EIO, "%s", what);
}

static int fetch_page(const struct rfs_bucket *bucket, const char *url, const char *prefix,
                      struct rfs_remote_listing *out, char token[TOKEN_BYTES])
{
    RFS_FREE char *query = page_query(prefix, token);
    struct rfs_remote_request request = {.bucket = bucket, .url = url, .key = "", .query = query};

    if (!query)
        return refuse(-ENOMEM, NULL);
    int rc = rfs_retries_make(&request, 1);
    if (rc == 0) {
        rc = request.answer.text ? rfs_listing_page(request.answer.text, request.answer.text_n,
                                                    prefix, out, token, TOKEN_BYTES)
                                 : -EINVAL;
        if (rc < 0)
            rc = refuse(rc, "the store's list of objects is in an unknown form");
    }
    rfs_retries_free(&request);
    return rc;
}

static int fetch_keys(const struct rfs_bucket *bucket, const char *url,
                      struct rfs_remote_listing *out)
{
    char token[TOKEN_BYTES] = "", last[TOKEN_BYTES];
    unsigned pages = 0;
    int rc;

    RFS_FREE char *prefix = rfs_text_printf("%s%s", bucket->key, *bucket->key ? "/" : "");
    if (!prefix)
        return refuse(-ENOMEM, NULL);
    out->deep = true;
    do {
        memcpy(last, token, sizeof last);
        rc = fetch_page(bucket, url, prefix, out, token);
        if (rc == 0 && *token && strcmp(token, last) == 0)
            return refuse(-EINVAL, "the store's list of objects goes on with the same page");
    } while (rc == 0 && *token && out->n <= KEYS_MOST && ++pages < PAGES_MOST);
    if (rc == 0 && pages == PAGES_MOST)
        return rfs_store_fail(
            -EFBIG, "the list of objects has more than %u pages; try: a longer prefix", PAGES_MOST);
    if (rc == 0 && *token)
        return rfs_store_fail(
            -EFBIG, "there are more than %u objects below it; try: a longer prefix", KEYS_MOST);
    return rc;
}

/* ---- hubs ------------------------------------------------------------------------------------ */

#define ID_MOST 64 /* digits of a SHA-256 */

struct tree_entry {
    char type[16], id[ID_MOST + 1];
    char *path; /* owned */
    uint64_t size;
    bool sized;
};

/* Reads the id of a file's content: hexadecimal digits. */
static bool read_id(struct rfs_json_read *json, char id[ID_MOST + 1])
{
    if (!rfs_json_read_string(json) || json->text_n < 40 || json->text_n > ID_MOST ||
        strspn(json->text, "0123456789abcdef") != json->text_n)
        return false;
    memcpy(id, json->text, json->text_n + 1);
    return true;
}

/* Reads {"oid": …, "size": …, …} of a large file, whose entry has the same size. */
static bool read_large(struct rfs_json_read *json, char id[ID_MOST + 1], uint64_t *size)
{
    bool first = true, good = true;

    *id = '\0';
    while (good && rfs_json_read_member(json, &first))
        good = rfs_json_read_is(json, "oid")    ? read_id(json, id)
               : rfs_json_read_is(json, "size") ? rfs_json_read_u64(json, size)
                                                : rfs_json_read_skip(json);
    return good && !json->wrong && *id;
}

static bool read_tree_entry(struct rfs_json_read *json, struct tree_entry *out)
{
    char large[ID_MOST + 1] = "";
    uint64_t size = 0;
    bool first = true, good = true;

    while (good && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "type")) {
            good = rfs_json_read_string(json);
            snprintf(out->type, sizeof out->type, "%s", good ? json->text : "");
        } else if (rfs_json_read_is(json, "path")) {
            good = rfs_json_read_string(json) && strlen(json->text) == json->text_n;
            free(out->path);
            out->path = good ? strdup(json->text) : NULL;
        } else if (rfs_json_read_is(json, "size")) {
            out->sized = good = rfs_json_read_u64(json, &out->size);
        } else if (rfs_json_read_is(json, "oid")) {
            good = read_id(json, out->id);
        } else if (rfs_json_read_is(json, "lfs") && !rfs_json_read_null(json)) {
            good = read_large(json, large, &size);
        } else if (!rfs_json_read_is(json, "lfs")) {
            good = rfs_json_read_skip(json);
        }
    }
    if (!good || json->wrong || (*large && (!out->sized || size != out->size)))
        return false;
    if (*large)
        memcpy(out->id, large, sizeof large);
    return true;
}

/* Adds a file; folders are there while something is in them. */
static int add_tree_entry(const struct tree_entry *entry, struct rfs_remote_listing *out)
{
    const struct rfs_remote_entry known = {.known = true, .size = entry->size};
    char etag[ID_MOST + 3];

    if (strcmp(entry->type, "file") != 0)
        return 0;
    if (!entry->path || !entry->sized || !entry->id[0] || entry->size > INT64_MAX)
        return -EINVAL;
    const size_t n = strlen(entry->path);
    if (n == 0 || entry->path[n - 1] == '/')
        return -EINVAL;
    snprintf(etag, sizeof etag, "\"%s\"", entry->id);
    return add(out, entry->path, &known, etag);
}

int rfs_listing_tree(const char *text, size_t n, struct rfs_remote_listing *out)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(text, n);
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_element(&json, &first)) {
        struct tree_entry entry = {0};
        const bool good = read_tree_entry(&json, &entry);
        rc = good ? add_tree_entry(&entry, out) : json.no_memory ? -ENOMEM : -EINVAL;
        free(entry.path);
    }
    return rc ? rc : json.no_memory ? -ENOMEM : rfs_json_read_end(&json) ? 0 : -EINVAL;
}

bool rfs_listing_next(const char *link, char *out, size_t cap)
{
    *out = '\0';
    for (const char *at = strchr(link, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        const char *next = end ? strstr(end, "rel=\"next\"") : NULL;
        const char *other = end ? strchr(end, '<') : NULL;
        if (next && (!other || next < other) && (size_t)(end - at) <= cap) {
            memcpy(out, at + 1, (size_t)(end - at - 1));
            out[end - at - 1] = '\0';
            return *out != '\0';
        }
    }
    return !strcasestr(link, "next");
}

/* Says whether a list that is at the URL AT may go on at NEXT: at that server alone. */
static bool goes_on(const char *at, const char *next)
{
    const char *host = strstr(at, "://") + 3;
    RFS_FREE char *server = strndup(at, (size_t)(host - at) + strcspn(host, "/?#"));

    return server && rfs_origin_has(server, next);
}

/* Reads a page at *AT, and replaces that by the URL of the next one; NULL at the end. */
static int fetch_tree_page(const struct rfs_bucket *bucket, const char *url, char **at,
                           struct rfs_remote_listing *out)
{
    struct rfs_remote_request request = {0};
    char next[sizeof request.answer.http.link];

    int rc = rfs_hub_ask(bucket, url, at, &request);
    if (rc == 0) {
        rc = rfs_listing_tree(request.answer.text ? request.answer.text : "", request.answer.text_n,
                              out);
        if (rc < 0)
            rc = refuse(rc, "the hub's list of files is in an unknown form");
    }
    const bool good = rfs_listing_next(request.answer.http.link, next, sizeof next);
    RFS_FREE char *follows = rc == 0 && *next ? rfs_http_follow(*at, next) : NULL;
    rfs_retries_free(&request);
    if (rc == 0 && (!good || (*next && !follows)))
        rc = refuse(-EINVAL, "the hub's list of files is in an unknown form");
    if (rc == 0 && follows && strcmp(follows, *at) == 0)
        rc = refuse(-EINVAL, "the store's list of objects goes on with the same page");
    if (rc == 0 && follows && !goes_on(*at, follows))
        rc = refuse(-EINVAL, "the hub's list of files goes on at another server");
    free(*at);
    *at = RFS_STEAL(follows);
    return rc;
}

/* Lists all files of a commit. */
static int fetch_tree(const struct rfs_bucket *bucket, const char *url,
                      struct rfs_remote_listing *out)
{
    RFS_FREE char *at =
        rfs_text_printf("%s/tree/%s?recursive=true&expand=false", bucket->api, bucket->revision);
    unsigned pages = 0;
    int rc = at ? 0 : -ENOMEM;

    out->deep = true;
    while (rc == 0 && at && out->n <= KEYS_MOST && pages++ < PAGES_MOST)
        rc = fetch_tree_page(bucket, url, &at, out);
    if (rc == 0 && at)
        return rfs_store_fail(-EFBIG, "the model has more files than can be listed");
    return rc;
}

/* ---- other servers --------------------------------------------------------------------------- */

/* Adds a name of an index: of the folder itself, without a way out of it. */
static int add_name(struct rfs_remote_listing *out, const char *name, bool folder)
{
    const struct rfs_remote_entry unknown = {0};
    const size_t n = strlen(name);

    if (n == 0 || memchr(name, '/', n - 1) || (n == 1 && *name == '/'))
        return 0;
    RFS_FREE char *slashed = rfs_text_printf("%s%s", name, folder && name[n - 1] != '/' ? "/" : "");
    if (!slashed)
        return -ENOMEM;
    return add(out, slashed, &unknown, "");
}

static int add_links(const char *text, size_t n, struct rfs_remote_listing *out)
{
    struct rfs_markup rest = {text, n};
    char link[KEY_BYTES];

    while (rest.n > 0) {
        if (!rfs_markup_link(&rest, link, sizeof link) || strpbrk(link, "?#:"))
            continue;
        if (!rfs_sign_decode(link, false))
            continue;
        const char *name = strncmp(link, "./", 2) == 0 ? link + 2 : link;
        const int rc = add_name(out, name, false);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads {"name": …, "type": …, …} */
static bool read_item(struct rfs_json_read *json, char **name, bool *folder)
{
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        const bool is_name = rfs_json_read_is(json, "name");
        const bool is_type = rfs_json_read_is(json, "type");
        if (!is_name && !is_type) {
            rfs_json_read_skip(json);
            continue;
        }
        if (!rfs_json_read_string(json))
            return false;
        if (is_type)
            *folder = rfs_json_read_is(json, "directory");
        if (is_name) {
            free(*name);
            *name = strdup(json->text);
        }
    }
    return !json->wrong && *name;
}

static int add_items(const char *text, size_t n, struct rfs_remote_listing *out)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(text, n);
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_element(&json, &first)) {
        RFS_FREE char *name = NULL;
        bool folder = false;
        if (rfs_json_read_peek(&json, '{') ? !read_item(&json, &name, &folder)
                                           : !rfs_json_read_string(&json))
            return json.no_memory ? -ENOMEM : -EINVAL;
        rc = add_name(out, name ? name : json.text, folder);
    }
    return rc ? rc : json.no_memory ? -ENOMEM : rfs_json_read_end(&json) ? 0 : -EINVAL;
}

int rfs_listing_index(const char *text, size_t n, bool json, struct rfs_remote_listing *out)
{
    return json ? add_items(text, n, out) : add_links(text, n, out);
}

/* Looks for .metadata: servers do not list names that begin with a dot, and of these it matters. */
static int look_for_metadata(const struct rfs_bucket *bucket, const char *url, const char *folder,
                             struct rfs_remote_listing *out)
{
    bool chunks = false;

    for (size_t i = 0; i < out->n; i++) {
        const char *end = strrchr(out->data[i].name, '.');
        chunks |= end && strcmp(end, ".distcp") == 0;
    }
    if (!chunks)
        return 0;
    RFS_FREE char *key = rfs_text_printf("%s.metadata", folder);
    if (!key)
        return -ENOMEM;
    struct rfs_remote_request request = {.bucket = bucket, .url = url, .key = key, .head = true};
    const int rc = rfs_retries_make(&request, 1);
    rfs_retries_free(&request);
    if (rc == 0)
        return add_name(out, ".metadata", false);
    return rc == -ENOENT || rc == -EACCES ? 0 : rc;
}

static int read_index(const struct rfs_remote_request *request, struct rfs_remote_listing *out)
{
    const bool json = strncmp(request->answer.http.type, "application/json", 16) == 0;

    if (!json && strncmp(request->answer.http.type, "text/html", 9) != 0)
        return rfs_store_fail(-ENOTDIR, "the server gives no index of that folder; try: files=MAP");
    const int rc = rfs_listing_index(request->answer.text ? request->answer.text : "",
                                     request->answer.text_n, json, out);
    return rc < 0 ? refuse(rc, "the server's index of that folder is in an unknown form") : 0;
}

static int fetch_index(struct rfs_remote_folder *folders, struct rfs_remote_request *requests,
                       size_t n)
{
    int rc = rfs_retries_make(requests, n);

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_index(&requests[i], &folders[i].listing);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = look_for_metadata(&folders[i].bucket, folders[i].url, requests[i].key,
                               &folders[i].listing);
    return rc;
}

/* Lists folders by their indexes, at once. */
static int fetch_indexes(struct rfs_remote_folder *folders, size_t n)
{
    RFS_FREE struct rfs_remote_request *requests = calloc(n, sizeof *requests);
    int rc = requests ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *key = folders[i].bucket.key;
        requests[i] =
            (struct rfs_remote_request){.bucket = &folders[i].bucket,
                                        .url = folders[i].url,
                                        .key = rfs_text_printf("%s%s", key, *key ? "/" : "")};
        rc = requests[i].key ? 0 : -ENOMEM;
    }
    rc = rc < 0 ? refuse(rc, NULL) : fetch_index(folders, requests, n);
    for (size_t i = 0; requests && i < n; i++) {
        free((char *)(uintptr_t)requests[i].key);
        rfs_retries_free(&requests[i]);
    }
    return rc;
}

int rfs_listing_fetch(struct rfs_remote_folder *folders, size_t n)
{
    const bool deep = folders->bucket.s3 || folders->bucket.hub;
    int rc = deep ? 0 : fetch_indexes(folders, n);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (deep)
            rc = (folders->bucket.hub ? fetch_tree : fetch_keys)(&folders[i].bucket, folders[i].url,
                                                                 &folders[i].listing);
        put_in_order(&folders[i].listing);
    }
    return rc;
}
