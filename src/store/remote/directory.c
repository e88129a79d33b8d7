/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/directory.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/remote/hub.h"
#include "store/remote/listing.h"
#include "store/remote/retries.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

/* Most folders that are listed with one, and files that are asked for with one, of web servers. */
#define BESIDE 63
#define INODE_BITS 63 /* an inode of 0 or below is none to some programs */

/* ---- attributes ------------------------------------------------------------------------------ */

static bool set_attributes(struct rfs_attributes *out, uint64_t size, time_t modified,
                           const char *etag, const char *when)
{
    *out = (struct rfs_attributes){.size = size, .modified = modified};
    if (strlen(etag) >= sizeof out->etag || strlen(when) >= sizeof out->when)
        return false;
    memcpy(out->etag, etag, strlen(etag) + 1);
    memcpy(out->when, when, strlen(when) + 1);
    return rfs_http_etag_is_strong(etag) || (when[0] && modified != 0);
}

/* Hashes the server of a URL that does not name it: at another one, that is another object. */
static uint64_t origin_of(const struct rfs_account *account, const char *url)
{
    const char *server = strncmp(url, "s3://", 5) == 0   ? account->endpoint
                         : strncmp(url, "hf://", 5) == 0 ? account->hub_endpoint
                                                         : NULL;

    return server ? XXH3_64bits(server, strlen(server)) : 0;
}

/* Fills *ST with the attributes of URL. */
static void fill_stat(const struct rfs_account *account, const struct rfs_attributes *attributes,
                      const char *url, struct stat *st)
{
    const bool open = account->anonymous || strncmp(url, "http", 4) == 0;
    const mode_t who = open ? 0444 : 0400;

    *st = (struct stat){
        .st_dev = (dev_t)XXH3_64bits("objects", 7),
        .st_nlink = 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_mode = attributes->folder ? S_IFDIR | who | (who >> 2 & 0111) : S_IFREG | who,
        .st_size = (off_t)attributes->size,
        .st_blksize = 1 << 20,
        .st_blocks = (blkcnt_t)((attributes->size + 511) / 512),
        .st_mtim = {attributes->modified, 0},
        .st_ctim = {attributes->modified, 0},
        .st_atim = {attributes->modified, 0},
    };
    const uint64_t seed = XXH3_64bits_withSeed(url, strlen(url), origin_of(account, url));
    st->st_ino = (ino_t)(XXH3_64bits_withSeed(attributes->etag, strlen(attributes->etag), seed) >>
                         (64 - INODE_BITS)) |
                 1;
}

/*
 * Says whether an answer leads, or has led, to a name with a slash at its end: an index of a
 * folder.
 */
static bool leads_to_folder(const struct rfs_http *http)
{
    const size_t n = strcspn(http->location, "?#");
    return n > 0 && http->location[n - 1] == '/';
}

static int take_answer(const struct rfs_http *http, struct rfs_attributes *out)
{
    if (leads_to_folder(http)) {
        *out = (struct rfs_attributes){.folder = true};
        return 0;
    }
    if (http->status >= 300)
        return rfs_store_fail(-EIO, "status %ld leads to '%.200s', which is not followed",
                              http->status, http->location);
    if (http->length < 0)
        return rfs_store_fail(-ENOTSUP, "the server does not say how long it is");
    if (!set_attributes(out, (uint64_t)http->length, rfs_http_time(http->modified), http->etag,
                        http->modified))
        return rfs_store_fail(-ENOTSUP,
                              "the server gives neither a strong ETag nor the time of the last "
                              "change, so a change would not be noticed");
    return 0;
}

static int ask_server(const struct rfs_bucket *bucket, const char *url, struct rfs_attributes *out)
{
    struct rfs_remote_request request = {
        .bucket = bucket, .url = url, .key = bucket->key, .head = true};
    int rc = rfs_retries_make(&request, 1);

    if (rc == 0 && request.answer.http.status >= 300 && !leads_to_folder(&request.answer.http)) {
        rfs_retries_free(&request);
        request = (struct rfs_remote_request){
            .bucket = bucket, .url = url, .key = bucket->key, .head = true, .follow = true};
        rc = rfs_retries_make(&request, 1);
    }
    if (rc == 0)
        rc = take_answer(&request.answer.http, out);
    rfs_retries_free(&request);
    return rc;
}

/* ---- lists that were made -------------------------------------------------------------------- */

/* A list that was made. Only the count of its uses changes. */
struct listed {
    struct rfs_directory *directory; /* that has it */
    char *url;                       /* of the folder; owned */
    struct rfs_remote_listing listing;
    time_t newest; /* of its objects */
    unsigned uses; /* under the lock */
    struct listed *next;
};

/* A name that was asked for by itself. */
struct asked {
    char *url; /* owned */
    int rc;    /* -ENOENT, or 0 */
    struct rfs_attributes attributes;
};

struct rfs_directory {
    pthread_mutex_t lock; /* a leaf lock */
    struct listed *listed;
    RFS_VEC(struct asked) asked; /* in the order of their URLs */
    atomic_bool asking;          /* a thread asks for several files at once; others for one each */
};

struct rfs_directory *rfs_directory_new(void)
{
    struct rfs_directory *directory = calloc(1, sizeof *directory);

    if (directory)
        pthread_mutex_init(&directory->lock, NULL);
    return directory;
}

static void free_listed(struct listed *listed)
{
    rfs_remote_listing_free(&listed->listing);
    free(listed->url);
    free(listed);
}

static void give_listed(struct listed *const *listed)
{
    if (!*listed)
        return;
    struct rfs_directory *directory = (*listed)->directory;
    pthread_mutex_lock(&directory->lock);
    const bool last = --(*listed)->uses == 0;
    pthread_mutex_unlock(&directory->lock);
    if (last)
        free_listed(*listed);
}
#define GIVE_LISTED RFS_CLEANUP(give_listed)

/* Returns the part of URL below a folder: "" for itself; NULL when it is not below. */
static const char *below(const char *folder, const char *url)
{
    const size_t n = strlen(folder);

    if (strncmp(url, folder, n) != 0 || (url[n] && url[n] != '/'))
        return NULL;
    return url + n + (url[n] == '/');
}

/*
 * Returns the list that has URL: of a folder above, or (AS_FOLDER) of its own. The caller gives it
 * back.
 */
static struct listed *find_listed(struct rfs_directory *directory, const char *url, bool as_folder)
{
    struct listed *found = NULL;

    RFS_LOCKED(&directory->lock);
    for (struct listed *listed = directory->listed; listed && !found; listed = listed->next) {
        const char *rest = below(listed->url, url);
        if (!rest)
            continue;
        if (listed->listing.deep || (as_folder ? !*rest : !strchr(rest, '/')))
            found = listed;
    }
    if (found)
        found->uses++;
    return found;
}

/* Remembers the list, which it takes, with USES uses of callers. NULL when out of memory. */
static struct listed *keep_listed(struct rfs_remote_folder *folder, unsigned uses)
{
    struct rfs_directory *directory = folder->bucket.account->directory;
    struct listed *listed = calloc(1, sizeof *listed);

    if (!listed)
        return NULL;
    *listed = (struct listed){
        .directory = directory, .url = folder->url, .listing = folder->listing, .uses = uses + 1};
    folder->url = NULL;
    folder->listing = (struct rfs_remote_listing){0};
    for (size_t i = 0; i < listed->listing.n; i++)
        if (listed->listing.data[i].modified > listed->newest)
            listed->newest = listed->listing.data[i].modified;
    RFS_LOCKED(&directory->lock);
    listed->next = directory->listed;
    directory->listed = listed;
    return listed;
}

static void free_folders(struct rfs_remote_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(folders[i].url);
        rfs_bucket_free(&folders[i].bucket);
        rfs_remote_listing_free(&folders[i].listing);
    }
}

/* Says whether another folder beside URL is listed. */
static bool is_second(struct rfs_directory *directory, const char *parent, const char *url)
{
    bool found = false;

    RFS_LOCKED(&directory->lock);
    for (const struct listed *listed = directory->listed; listed && !found; listed = listed->next) {
        const char *rest = below(parent, listed->url);
        found = rest && *rest && !strchr(rest, '/') && strcmp(listed->url, url) != 0;
    }
    return found;
}

/*
 * Adds folders beside URL that are listed with it, as they are listed one after the other: from the
 * second on. Returns how many; fewer when out of memory.
 */
static size_t add_beside(struct rfs_account *account, const char *url,
                         struct rfs_remote_folder *out, size_t most)
{
    struct rfs_directory *directory = account->directory;
    RFS_FREE char *parent = rfs_store_parent(url);
    GIVE_LISTED struct listed *listed = parent ? find_listed(directory, parent, true) : NULL;
    size_t n = 0;

    if (!listed || listed->listing.deep || strcmp(listed->url, parent) != 0 ||
        !is_second(directory, parent, url))
        return 0;
    for (size_t i = 0; i < listed->listing.n && n < most; i++) {
        const struct rfs_remote_entry *entry = &listed->listing.data[i];
        RFS_FREE char *path = NULL;
        if (!entry->folder)
            continue;
        path = rfs_text_printf("%s/%s", parent, entry->name);
        if (!path)
            break;
        out[n] = (struct rfs_remote_folder){.url = rfs_store_without_slash(path)};
        GIVE_LISTED struct listed *there =
            out[n].url ? find_listed(directory, out[n].url, true) : NULL;
        if (!out[n].url || there || strcmp(out[n].url, url) == 0 ||
            rfs_bucket_of(account, out[n].url, &out[n].bucket) < 0)
            free_folders(&out[n], 1);
        else
            n++;
    }
    return n;
}

/*
 * Lists a folder, with others that will be needed. Failures to list the other folders are ignored.
 */
static int fetch_listed(struct rfs_remote_folder *folder)
{
    struct rfs_remote_folder folders[BESIDE + 1] = {*folder};
    const bool deep = folder->bucket.s3 || folder->bucket.hub;
    const size_t n =
        deep ? 0 : add_beside(folder->bucket.account, folder->url, folders + 1, BESIDE);
    int rc = n > 0 ? rfs_listing_fetch(folders, n + 1) : -EAGAIN;

    for (size_t i = 1; rc == 0 && i <= n; i++)
        keep_listed(&folders[i], 0);
    free_folders(folders + 1, n);
    if (rc < 0 && n > 0)
        rfs_remote_listing_free(&folders[0].listing);
    if (rc < 0)
        rc = rfs_listing_fetch(folders, 1);
    folder->listing = folders[0].listing;
    return rc;
}

/* Makes a list of a folder, and remembers it. */
static int make_listed(struct rfs_account *account, const char *url, struct listed **out)
{
    int rc = -EREMOTE;

    *out = NULL;
    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        struct rfs_remote_folder folder = {.url = strdup(url)};
        rc = folder.url ? rfs_bucket_of(account, url, &folder.bucket) : -ENOMEM;
        if (rc == 0)
            rc = fetch_listed(&folder);
        if (rc == 0 && !(*out = keep_listed(&folder, 1)))
            rc = -ENOMEM;
        free_folders(&folder, 1);
    }
    return rc == -EREMOTE ? -EIO : rc;
}

/* Returns the first entry whose name is not before NAME. */
static size_t find_name(const struct rfs_remote_listing *listing, const char *name)
{
    return RFS_BISECT(i, listing->n, strcmp(listing->data[i].name, name) >= 0);
}

/* Compares an entry with the N bytes of FOLDER and a slash: below 0 when it comes before. */
static int compare_in(const char *entry, const char *folder, size_t n)
{
    return strncmp(entry, folder, n) ?: (unsigned char)entry[n] - '/';
}

/* Returns the first entry in the folder NAME, without a slash at its end; n when there is none. */
static size_t first_in(const struct rfs_remote_listing *listing, const char *name)
{
    const size_t n = strlen(name);

    if (n == 0)
        return 0;
    const size_t at = RFS_BISECT(i, listing->n, compare_in(listing->data[i].name, name, n) >= 0);
    return at < listing->n && compare_in(listing->data[at].name, name, n) == 0 ? at : listing->n;
}

/* ---- attributes that were asked for ---------------------------------------------------------- */

/* Says whether URL was asked for; *at is its place, or where it belongs. The lock is held. */
static bool was_asked(const struct rfs_directory *directory, const char *url, size_t *at)
{
    *at = RFS_BISECT(i, directory->asked.n, strcmp(directory->asked.data[i].url, url) >= 0);
    return *at < directory->asked.n && strcmp(directory->asked.data[*at].url, url) == 0;
}

static bool find_asked(struct rfs_directory *directory, const char *url, int *rc,
                       struct rfs_attributes *out)
{
    pthread_mutex_lock(&directory->lock);
    size_t at;
    const bool found = was_asked(directory, url, &at);
    if (found) {
        *rc = directory->asked.data[at].rc;
        *out = directory->asked.data[at].attributes;
    }
    pthread_mutex_unlock(&directory->lock);
    if (found && *rc == -ENOENT)
        rfs_store_fail(-ENOENT, "there is no such object");
    return found;
}

static uint64_t asked_bytes(const char *url)
{
    return 2 * sizeof(struct asked) + strlen(url) + 32;
}

/* Remembers an answer. Where memory is short, the store is asked again. */
static void keep_asked(struct rfs_directory *directory, const char *url, int rc,
                       const struct rfs_attributes *attributes)
{
    struct asked asked = {NULL, rc, *attributes};

    if (!rfs_retries_take_memory(asked_bytes(url)))
        return;
    asked.url = strdup(url);
    pthread_mutex_lock(&directory->lock);
    size_t at;
    const bool there = was_asked(directory, url, &at);
    const bool kept = asked.url && !there && RFS_PUSH(&directory->asked, asked);
    if (kept) {
        struct asked *data = directory->asked.data;
        memmove(data + at + 1, data + at, (directory->asked.n - 1 - at) * sizeof *data);
        data[at] = asked;
    }
    pthread_mutex_unlock(&directory->lock);
    if (kept)
        return;
    rfs_retries_give_memory(asked_bytes(url));
    free(asked.url);
}

/*
 * Looks URL up in a listing: 1 if its entry is complete, 0 if the store has to be asked, or
 * -ENOENT.
 */
static int by_listing(const struct listed *listed, const char *url, struct rfs_attributes *out)
{
    const struct rfs_remote_listing *listing = &listed->listing;
    const char *name = below(listed->url, url);
    const size_t at = find_name(listing, name);
    const bool exact = at < listing->n && strcmp(listing->data[at].name, name) == 0;

    if (exact && !listing->data[at].folder) {
        const struct rfs_remote_entry *entry = &listing->data[at];
        return entry->known && set_attributes(out, entry->size, entry->modified, entry->etag, "");
    }
    /* A folder of S3 is there while something is in it. */
    if (!*name && listing->n == 0 && strncmp(url, "s3://", 5) == 0)
        return rfs_store_fail(-ENOENT, "there is no such object");
    if (!*name || exact || first_in(listing, name) < listing->n) {
        *out = (struct rfs_attributes){.folder = true, .modified = listed->newest};
        return 1;
    }
    if (!listing->deep) /* it may be hidden */
        return 0;
    return rfs_store_fail(-ENOENT, "there is no such object");
}

/* A file that is asked for with another one. */
struct beside {
    char *url; /* owned */
    struct rfs_bucket bucket;
};

static void free_beside(struct beside *beside, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(beside[i].url);
        rfs_bucket_free(&beside[i].bucket);
    }
}

/*
 * Adds files of a list whose names end like that of URL, unless they were asked for. The lock is
 * held.
 */
static size_t add_files(const struct rfs_directory *directory, const struct listed *listed,
                        const char *url, char **out, size_t most)
{
    const char *ending = strrchr(rfs_path_name(url), '.');
    size_t n = 0;

    for (size_t i = 0; ending && i < listed->listing.n && n < most; i++) {
        const struct rfs_remote_entry *entry = &listed->listing.data[i];
        if (entry->folder || entry->known || !rfs_text_ends(entry->name, ending))
            continue;
        char *file = rfs_text_printf("%s/%s", listed->url, entry->name);
        size_t at;
        if (!file || strcmp(file, url) == 0 || was_asked(directory, file, &at))
            free(file);
        else
            out[n++] = file;
    }
    return n;
}

/*
 * Lists files that a web server will probably be asked for after URL: those like it in its folder
 * and in the folders beside that, as ranks have one each. Returns how many.
 */
static size_t list_beside(struct rfs_account *account, const char *url, struct beside *out)
{
    struct rfs_directory *directory = account->directory;
    RFS_FREE char *folder = rfs_store_parent(url);
    RFS_FREE char *above = folder ? rfs_store_parent(folder) : NULL;
    char *urls[BESIDE];
    size_t n = 0, kept = 0;

    if (!above)
        return 0;
    pthread_mutex_lock(&directory->lock);
    for (const struct listed *listed = directory->listed; listed; listed = listed->next) {
        const char *rest = below(above, listed->url);
        if (!listed->listing.deep && rest && *rest && !strchr(rest, '/'))
            n += add_files(directory, listed, url, urls + n, BESIDE - n);
    }
    pthread_mutex_unlock(&directory->lock);
    for (size_t i = 0; i < n; i++) {
        out[kept] = (struct beside){.url = urls[i]};
        if (rfs_bucket_of(account, urls[i], &out[kept].bucket) < 0)
            free_beside(&out[kept], 1);
        else
            kept++;
    }
    return kept;
}

/*
 * Asks a web server for a file and N others, which are remembered. -EAGAIN: it is to be asked
 * alone.
 */
static int ask_together(const struct rfs_bucket *bucket, const char *url,
                        const struct beside *beside, size_t n, struct rfs_attributes *out)
{
    RFS_FREE struct rfs_remote_request *requests = calloc(n + 1, sizeof *requests);

    if (!requests)
        return -ENOMEM;
    requests[0] = (struct rfs_remote_request){
        .bucket = bucket, .url = url, .key = bucket->key, .head = true, .brief = true};
    for (size_t i = 0; i < n; i++)
        requests[i + 1] = (struct rfs_remote_request){.bucket = &beside[i].bucket,
                                                      .url = beside[i].url,
                                                      .key = beside[i].bucket.key,
                                                      .head = true,
                                                      .brief = true};
    int rc = rfs_retries_make(requests, n + 1) < 0 || requests[0].answer.http.status >= 300
                 ? -EAGAIN
                 : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct rfs_attributes attributes;
        if (requests[i + 1].answer.http.status < 300 &&
            take_answer(&requests[i + 1].answer.http, &attributes) == 0)
            keep_asked(bucket->account->directory, beside[i].url, 0, &attributes);
    }
    if (rc == 0)
        rc = take_answer(&requests[0].answer.http, out);
    for (size_t i = 0; i <= n; i++)
        rfs_retries_free(&requests[i]);
    return rc;
}

/* Asks a web server for a file, with others that will be needed. */
static int ask_web(const struct rfs_bucket *bucket, const char *url, struct rfs_attributes *out)
{
    struct rfs_directory *directory = bucket->account->directory;
    struct beside beside[BESIDE];
    int rc = -EAGAIN;

    if (!atomic_exchange(&directory->asking, true)) {
        const size_t n = list_beside(bucket->account, url, beside);
        rc = n > 0 ? ask_together(bucket, url, beside, n, out) : -EAGAIN;
        free_beside(beside, n);
        atomic_store(&directory->asking, false);
    }
    return rc == -EAGAIN ? ask_server(bucket, url, out) : rc;
}

/* Looks for a folder of S3: it is there while something is in it. */
static int look_below(struct rfs_account *account, const char *url, struct rfs_attributes *out)
{
    GIVE_LISTED struct listed *listed = NULL;
    const int rc = make_listed(account, url, &listed);

    if (rc < 0)
        return rc;
    *out = (struct rfs_attributes){.folder = true, .modified = listed->newest};
    return listed->listing.n > 0 ? 0 : rfs_store_fail(-ENOENT, "there is no such object");
}

/* Looks for a file or a folder of a commit, in the one list of all its files. */
static int look_in_commit(const char *url, const struct rfs_bucket *bucket,
                          struct rfs_attributes *out)
{
    RFS_FREE char *root = rfs_text_printf("hf://%s@%s", bucket->name, bucket->revision);
    GIVE_LISTED struct listed *listed = NULL;
    int rc = root ? make_listed(bucket->account, root, &listed) : -ENOMEM;

    if (rc == 0)
        rc = by_listing(listed, url, out);
    return rc == 1 ? 0 : rc == 0 ? -EIO : rc;
}

/* Asks the store. Stores also refuse requests for objects that do not exist. */
static int ask(struct rfs_account *account, const char *url, struct rfs_attributes *out)
{
    RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
    int rc = rfs_bucket_of(account, url, &bucket);

    if (rc < 0)
        return rc;
    if (bucket.hub)
        return look_in_commit(url, &bucket, out);
    if (bucket.s3 && !*bucket.key)
        return look_below(account, url, out);
    if (!bucket.s3)
        return ask_web(&bucket, url, out);
    rc = ask_server(&bucket, url, out);
    if (rc != -ENOENT && rc != -EACCES)
        return rc;
    return look_below(account, url, out);
}

static int find(struct rfs_account *account, const char *url, struct rfs_attributes *out)
{
    GIVE_LISTED struct listed *listed = find_listed(account->directory, url, false);
    int rc = listed ? by_listing(listed, url, out) : 0;

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (find_asked(account->directory, url, &rc, out))
        return rc;
    rc = ask(account, url, out);
    for (int tries = 0; rc == -EREMOTE && tries < 2; tries++)
        rc = ask(account, url, out);
    if (rc == 0 || (rc == -ENOENT && !rfs_store_has_remedy()))
        keep_asked(account->directory, url, rc, out);
    return rc == -EREMOTE ? -EIO : rc;
}

int rfs_directory_find(struct rfs_account *account, const char *url, struct rfs_attributes *out,
                       struct stat *st)
{
    const int rc = find(account, url, out);

    if (rc == 0)
        fill_stat(account, out, url, st);
    return rc;
}

static char *pin_url(struct rfs_store *store, const char *url)
{
    return rfs_hub_pin(rfs_account_of(store), url);
}

static int stat_url(struct rfs_store *store, const char *url, struct stat *st)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    struct rfs_attributes attributes = {0};

    return plain ? rfs_directory_find(account, plain, &attributes, st) : -errno;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int add_shown(struct rfs_store_names *out, const char *name, size_t n, bool folder)
{
    if (out->n > 0 && folder == out->data[out->n - 1].folder &&
        strncmp(out->data[out->n - 1].name, name, n) == 0 && !out->data[out->n - 1].name[n])
        return 0;
    struct rfs_store_name entry = {strndup(name, n), folder};
    if (entry.name && RFS_PUSH(out, entry))
        return 0;
    free(entry.name);
    return -ENOMEM;
}

static int list_url(struct rfs_store *store, const char *url, struct rfs_store_names *out)
{
    struct rfs_account *account = rfs_account_of(store);
    RFS_FREE char *plain = rfs_hub_pin(account, url);
    int rc = plain ? 0 : -errno;
    GIVE_LISTED struct listed *listed = plain ? find_listed(account->directory, plain, true) : NULL;
    struct rfs_attributes attributes = {0};

    *out = (struct rfs_store_names){0};
    if (rc == 0 && !listed)
        rc = find(account, plain, &attributes);
    if (rc == 0 && !listed && !attributes.folder)
        rc = rfs_store_fail(-ENOTDIR, "it is an object, not a folder");
    if (rc == 0 && !listed)
        /* Finding that out may have taken a listing. */
        listed = find_listed(account->directory, plain, true);
    if (rc == 0 && !listed)
        rc = make_listed(account, plain, &listed);
    if (rc < 0)
        return rc;
    const struct rfs_remote_listing *listing = &listed->listing;
    const char *folder = below(listed->url, plain);
    const size_t skip = *folder ? strlen(folder) + 1 : 0;
    const size_t first = first_in(listing, folder);
    if (first == listing->n && *folder)
        return by_listing(listed, plain, &attributes) == 1 && !attributes.folder
                   ? rfs_store_fail(-ENOTDIR, "it is an object, not a folder")
                   : rfs_store_fail(-ENOENT, "there is nothing below it");
    for (size_t i = first; rc == 0 && i < listing->n; i++) {
        const char *name = listing->data[i].name;
        if (skip > 0 && (strncmp(name, folder, skip - 1) != 0 || name[skip - 1] != '/'))
            break;
        const size_t n = strcspn(name + skip, "/");
        rc = add_shown(out, name + skip, n, listing->data[i].folder || name[skip + n] == '/');
    }
    return rc;
}

void rfs_directory_drop(struct rfs_directory *directory)
{
    pthread_mutex_lock(&directory->lock);
    struct listed *listed = directory->listed;
    struct asked *asked = directory->asked.data;
    const size_t n = directory->asked.n;
    directory->listed = NULL;
    directory->asked.data = NULL;
    directory->asked.n = directory->asked.cap = 0;
    pthread_mutex_unlock(&directory->lock);
    for (struct listed *next; listed; listed = next) {
        next = listed->next;
        give_listed(&listed);
    }
    for (size_t i = 0; i < n; i++) {
        rfs_retries_give_memory(asked_bytes(asked[i].url));
        free(asked[i].url);
    }
    free(asked);
}

static void forget(struct rfs_store *store)
{
    rfs_directory_drop(rfs_account_of(store)->directory);
    rfs_hub_forget(rfs_account_of(store)->hub);
}

void rfs_directory_free(struct rfs_directory *directory)
{
    if (!directory)
        return;
    rfs_directory_drop(directory);
    pthread_mutex_destroy(&directory->lock);
    free(directory);
}

const struct rfs_store_directory rfs_directory_calls = {
    .stat = stat_url,
    .list = list_url,
    .pin = pin_url,
    .forget = forget,
};
