/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/known.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/remote/http.h"
#include "store/remote/listing.h"
#include "store/remote/make.h"
#include "store/remote/object.h"

#include <pthread.h>

#define BESIDE 63 /* folders that are listed with one, of a server that lists each by itself */

/* A listing that was made. Constant but for its uses. */
struct listed {
    char *url; /* of the folder; owned */
    struct rfs_remote_listing listing;
    time_t newest; /* of its objects */
    unsigned uses; /* under the lock */
    struct listed *next;
};

/* One name that was asked for by itself. */
struct asked {
    char *url; /* owned */
    int rc;    /* 0 or -ENOENT */
    struct rfs_attributes attributes;
};

static struct {
    pthread_mutex_t lock; /* a leaf lock */
    struct listed *listed;
    RFS_VEC(struct asked) asked; /* in the order of their URLs */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- listings -------------------------------------------------------------------------------- */

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
    pthread_mutex_lock(&all.lock);
    const bool last = --(*listed)->uses == 0;
    pthread_mutex_unlock(&all.lock);
    if (last)
        free_listed(*listed);
}
#define GIVE_LISTED RFS_CLEANUP(give_listed)

/* The part of URL below a folder: "" for itself; NULL when it is not below. */
static const char *below(const char *folder, const char *url)
{
    const size_t n = strlen(folder);

    if (strncmp(url, folder, n) != 0 || (url[n] && url[n] != '/'))
        return NULL;
    return url + n + (url[n] == '/');
}

/* The listing that has URL: of a folder above, or (AS_FOLDER) of its own. Used by the caller. */
static struct listed *find_listed(const char *url, bool as_folder)
{
    struct listed *found = NULL;

    pthread_mutex_lock(&all.lock);
    for (struct listed *listed = all.listed; listed && !found; listed = listed->next) {
        const char *rest = below(listed->url, url);
        if (!rest)
            continue;
        if (listed->listing.deep || (as_folder ? !*rest : !strchr(rest, '/')))
            found = listed;
    }
    if (found)
        found->uses++;
    pthread_mutex_unlock(&all.lock);
    return found;
}

/* Keeps the listing, which it takes, with USES uses of callers. NULL when out of memory. */
static struct listed *keep_listed(struct rfs_folder *folder, unsigned uses)
{
    struct listed *listed = calloc(1, sizeof *listed);

    if (!listed)
        return NULL;
    *listed = (struct listed){.url = folder->url, .listing = folder->listing, .uses = uses + 1};
    folder->url = NULL;
    folder->listing = (struct rfs_remote_listing){0};
    for (size_t i = 0; i < listed->listing.n; i++)
        if (listed->listing.data[i].modified > listed->newest)
            listed->newest = listed->listing.data[i].modified;
    pthread_mutex_lock(&all.lock);
    listed->next = all.listed;
    all.listed = listed;
    pthread_mutex_unlock(&all.lock);
    return listed;
}

static void free_folders(struct rfs_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(folders[i].url);
        rfs_place_free(&folders[i].place);
        rfs_remote_listing_free(&folders[i].listing);
    }
}

/* Whether another folder beside URL is listed. */
static bool is_second(const char *parent, const char *url)
{
    bool found = false;

    pthread_mutex_lock(&all.lock);
    for (const struct listed *listed = all.listed; listed && !found; listed = listed->next) {
        const char *rest = below(parent, listed->url);
        found = rest && *rest && !strchr(rest, '/') && strcmp(listed->url, url) != 0;
    }
    pthread_mutex_unlock(&all.lock);
    return found;
}

/*
 * Folders beside URL that are listed with it, as they are listed one after the other: from the
 * second on. How many; fewer when out of memory.
 */
static size_t add_beside(const char *url, struct rfs_folder *out, size_t most)
{
    RFS_FREE char *parent = rfs_store_parent(url);
    GIVE_LISTED struct listed *listed = parent ? find_listed(parent, true) : NULL;
    size_t n = 0;

    if (!listed || listed->listing.deep || strcmp(listed->url, parent) != 0 ||
        !is_second(parent, url))
        return 0;
    for (size_t i = 0; i < listed->listing.n && n < most; i++) {
        const struct rfs_remote_entry *entry = &listed->listing.data[i];
        RFS_FREE char *path = NULL;
        if (!entry->folder)
            continue;
        path = rfs_text_printf("%s/%s", parent, entry->name);
        if (!path)
            break;
        out[n] = (struct rfs_folder){.url = rfs_store_without_slash(path)};
        GIVE_LISTED struct listed *there = out[n].url ? find_listed(out[n].url, true) : NULL;
        if (!out[n].url || there || strcmp(out[n].url, url) == 0 ||
            rfs_place_of(out[n].url, &out[n].place) < 0)
            free_folders(&out[n], 1);
        else
            n++;
    }
    return n;
}

/* Lists a folder, with others that will be needed. A failure of these is nobody's. */
static int fetch_listed(struct rfs_folder *folder)
{
    struct rfs_folder folders[BESIDE + 1] = {*folder};
    const size_t n = folder->place.s3 ? 0 : add_beside(folder->url, folders + 1, BESIDE);
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

/* Makes a listing of a folder, and keeps it. */
static int make_listed(const char *url, struct listed **out)
{
    int rc = -EREMOTE;

    *out = NULL;
    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        struct rfs_folder folder = {.url = strdup(url)};
        rc = folder.url ? rfs_place_of(url, &folder.place) : -ENOMEM;
        if (rc == 0)
            rc = fetch_listed(&folder);
        if (rc == 0 && !(*out = keep_listed(&folder, 1)))
            rc = -ENOMEM;
        free_folders(&folder, 1);
    }
    return rc == -EREMOTE ? -EIO : rc;
}

/* The first entry whose name is not before NAME. */
static size_t place_in(const struct rfs_remote_listing *listing, const char *name)
{
    return RFS_BISECT(i, listing->n, strcmp(listing->data[i].name, name) >= 0);
}

/* The first entry in the folder NAME, without a slash at its end; n when there is none. */
static size_t first_in(const struct rfs_remote_listing *listing, const char *name)
{
    if (!*name)
        return 0;
    RFS_FREE char *prefix = rfs_text_printf("%s/", name);
    if (!prefix)
        return listing->n;
    const size_t at = place_in(listing, prefix);
    const bool in = at < listing->n && strncmp(listing->data[at].name, prefix, strlen(prefix)) == 0;
    return in ? at : listing->n;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static size_t place_of_asked(const char *url)
{
    return RFS_BISECT(i, all.asked.n, strcmp(all.asked.data[i].url, url) >= 0);
}

static bool find_asked(const char *url, int *rc, struct rfs_attributes *out)
{
    pthread_mutex_lock(&all.lock);
    const size_t at = place_of_asked(url);
    const bool found = at < all.asked.n && strcmp(all.asked.data[at].url, url) == 0;
    if (found) {
        *rc = all.asked.data[at].rc;
        *out = all.asked.data[at].attributes;
    }
    pthread_mutex_unlock(&all.lock);
    if (found && *rc == -ENOENT)
        rfs_store_fail(-ENOENT, "there is no such object");
    return found;
}

static uint64_t asked_bytes(const char *url)
{
    return 2 * sizeof(struct asked) + strlen(url) + 32;
}

/* Where memory is short, it is asked for again. */
static void keep_asked(const char *url, int rc, const struct rfs_attributes *attributes)
{
    struct asked asked = {NULL, rc, *attributes};

    if (!rfs_lists_take(asked_bytes(url)))
        return;
    asked.url = strdup(url);
    pthread_mutex_lock(&all.lock);
    const size_t at = place_of_asked(url);
    const bool there = at < all.asked.n && strcmp(all.asked.data[at].url, url) == 0;
    const bool kept = asked.url && !there && RFS_PUSH(&all.asked, asked);
    if (kept) {
        struct asked *data = all.asked.data;
        memmove(data + at + 1, data + at, (all.asked.n - 1 - at) * sizeof *data);
        data[at] = asked;
    }
    pthread_mutex_unlock(&all.lock);
    if (kept)
        return;
    rfs_lists_give(asked_bytes(url));
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
    const size_t at = place_in(listing, name);
    const bool exact = at < listing->n && strcmp(listing->data[at].name, name) == 0;

    if (exact && !listing->data[at].folder) {
        const struct rfs_remote_entry *entry = &listing->data[at];
        return entry->known &&
               rfs_attributes_set(out, entry->size, entry->modified, entry->etag, "");
    }
    if (!*name || exact || first_in(listing, name) < listing->n) {
        *out = (struct rfs_attributes){.folder = true, .modified = listed->newest};
        return 1;
    }
    if (!listing->deep) /* it may be hidden */
        return 0;
    return rfs_store_fail(-ENOENT, "there is no such object");
}

/* A folder of S3 is there while something is in it. */
static int look_below(const char *url, struct rfs_attributes *out)
{
    GIVE_LISTED struct listed *listed = NULL;
    const int rc = make_listed(url, &listed);

    if (rc < 0)
        return rc;
    *out = (struct rfs_attributes){.folder = true, .modified = listed->newest};
    return listed->listing.n > 0 ? 0 : rfs_store_fail(-ENOENT, "there is no such object");
}

/* Asks the store. Stores also refuse requests for objects that do not exist. */
static int ask(const char *url, struct rfs_attributes *out)
{
    RFS_CLEANUP(rfs_place_free) struct rfs_place place = {0};
    int rc = rfs_place_of(url, &place);

    if (rc < 0)
        return rc;
    if (place.s3 && !*place.key)
        return look_below(url, out);
    rc = rfs_object_ask(&place, url, out);
    if (!place.s3 || (rc != -ENOENT && rc != -EACCES))
        return rc;
    return look_below(url, out);
}

static int find_attributes(const char *url, struct rfs_attributes *out)
{
    GIVE_LISTED struct listed *listed = find_listed(url, false);
    int rc = listed ? by_listing(listed, url, out) : 0;

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (find_asked(url, &rc, out))
        return rc;
    rc = ask(url, out);
    for (int tries = 0; rc == -EREMOTE && tries < 2; tries++)
        rc = ask(url, out);
    if (rc == 0 || rc == -ENOENT)
        keep_asked(url, rc, out);
    return rc == -EREMOTE ? -EIO : rc;
}

static int store_stat(const char *url, struct stat *st)
{
    RFS_FREE char *plain = rfs_store_without_slash(url);
    struct rfs_attributes attributes = {0};
    const int rc = plain ? find_attributes(plain, &attributes) : -ENOMEM;

    if (rc == 0)
        rfs_attributes_stat(&attributes, plain, st);
    return rc;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int add_name(struct rfs_store_names *out, const char *name, size_t n, bool folder)
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

static int store_list(const char *url, struct rfs_store_names *out)
{
    RFS_FREE char *plain = rfs_store_without_slash(url);
    GIVE_LISTED struct listed *listed = plain ? find_listed(plain, true) : NULL;
    struct rfs_attributes attributes = {0};
    int rc = plain ? 0 : -ENOMEM;

    *out = (struct rfs_store_names){0};
    if (rc == 0 && !listed)
        rc = find_attributes(plain, &attributes);
    if (rc == 0 && !listed && !attributes.folder)
        rc = rfs_store_fail(-ENOTDIR, "it is an object, not a folder");
    if (rc == 0 && !listed)
        listed = find_listed(plain, true); /* finding that out may have taken a listing */
    if (rc == 0 && !listed)
        rc = make_listed(plain, &listed);
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
        rc = add_name(out, name + skip, n, listing->data[i].folder || name[skip + n] == '/');
    }
    return rc;
}

void rfs_known_forget(void)
{
    pthread_mutex_lock(&all.lock);
    struct listed *listed = all.listed;
    struct asked *asked = all.asked.data;
    const size_t n = all.asked.n;
    all.listed = NULL;
    all.asked.data = NULL;
    all.asked.n = all.asked.cap = 0;
    pthread_mutex_unlock(&all.lock);
    for (struct listed *next; listed; listed = next) {
        next = listed->next;
        give_listed(&listed);
    }
    for (size_t i = 0; i < n; i++) {
        rfs_lists_give(asked_bytes(asked[i].url));
        free(asked[i].url);
    }
    free(asked);
}

/* ---- the table ------------------------------------------------------------------------------- */

static int store_hold(const char *url, struct rfs_object **out, struct stat *st)
{
    struct rfs_attributes attributes = {0};
    int rc = find_attributes(url, &attributes);

    *out = NULL;
    if (rc == 0 && attributes.folder)
        rc = rfs_store_fail(-EISDIR, "it is a folder");
    if (rc == 0)
        rc = rfs_object_new(url, &attributes, out);
    if (rc == 0)
        rfs_attributes_stat(&attributes, url, st);
    return rc;
}

static int store_read(struct rfs_object *object, struct iovec *spans, int count, uint64_t offset)
{
    const int rc = rfs_object_read(object, spans, count, offset);

    if (rc == -ESTALE)
        rfs_known_forget(); /* the others may have changed with it */
    return rc;
}

static const struct rfs_store store = {store_stat, store_list,      rfs_known_forget,   store_hold,
                                       store_read, rfs_object_free, rfs_http_round_trip};

const struct rfs_store *rfs_known_store(void)
{
    return &store;
}
