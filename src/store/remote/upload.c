/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/upload.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/vec.h"
#include "store/remote/markup.h"
#include "store/remote/retries.h"

#define ID_BYTES 2048
#define KEY_BYTES 4096
#define PAGES_MOST 1000u     /* of a list of open uploads, 1,000 in each */
#define UPLOADS_MOST 100000u /* open ones of the files that are written */
#define LOOKS 2              /* at an object that is not as expected */
#define ETAG_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\"-_+/=.:"

struct rfs_upload {
    struct rfs_store *store; /* borrowed */
    char *url, *id;          /* owned */
    uint64_t size;
    uint32_t parts;
    char (*md5s)[33]; /* [parts] of what was sent; owned, as the next */
    char **etags;     /* [parts] as the store gave them, with quotes; NULL: not yet sent */
    bool complete;
};

/* ---- requests -------------------------------------------------------------------------------- */

/* Reports what a store did that it must not do; returns CODE. */
static int fail(int code, const char *what)
{
    rfs_store_fail(code, "%s", what);
    rfs_store_fail_remedy("the same command again, once the store is well");
    return code;
}

/* Reports that another object is there than this process wrote. */
static int fail_other(void)
{
    rfs_store_fail(-EEXIST, "an object was written there meanwhile");
    rfs_store_fail_remedy("the same command again, once no other export writes there");
    return -EEXIST;
}

static int no_memory(void)
{
    return rfs_store_fail(-ENOMEM, "out of memory");
}

/* Makes the request for URL's key, or for its bucket alone; to be freed in any case. */
static int make(struct rfs_store *store, const char *url, bool of_bucket,
                const struct rfs_remote_request *wanted, struct rfs_remote_request *out)
{
    int rc = -EREMOTE;

    *out = *wanted;
    for (int tries = 0; rc == -EREMOTE && tries < 3; tries++) {
        RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
        rfs_retries_free(out);
        *out = *wanted;
        rc = rfs_bucket_of(rfs_account_of(store), url, &bucket);
        out->bucket = &bucket;
        out->url = url;
        out->key = of_bucket ? "" : bucket.key;
        if (rc == 0)
            rc = rfs_retries_make(out, 1);
        out->bucket = NULL;
        out->key = NULL;
    }
    return rc == -EREMOTE ? -EIO : rc;
}

/* Makes a request whose answer's text does not matter. */
static int make_alone(struct rfs_store *store, const char *url,
                      const struct rfs_remote_request *wanted)
{
    struct rfs_remote_request request;
    const int rc = make(store, url, false, wanted, &request);

    rfs_retries_free(&request);
    return rc;
}

static int sum(const struct iovec *spans, int count, struct rfs_sign_sums *out)
{
    const int rc = rfs_sign_sum(spans, count, out);

    return rc == -ENOTSUP ? rfs_store_fail(rc, "this OpenSSL has no MD5, by which stores compare")
           : rc           ? no_memory()
                          : 0;
}

static uint64_t bytes_of(const struct iovec *spans, int count)
{
    uint64_t n = 0;

    for (int i = 0; i < count; i++)
        n += spans[i].iov_len;
    return n;
}

/* An object as the store has it. */
struct there {
    uint64_t size;
    char etag[RFS_STORE_ETAG];
    bool has_md5, has_md5_of_parts;
};

static RFS_APART int look(struct rfs_store *store, const char *url, struct there *out)
{
    const struct rfs_remote_request wanted = {.head = true};
    struct rfs_remote_request request;
    int rc = make(store, url, false, &wanted, &request);

    if (rc == 0 && request.answer.http.length < 0)
        rc = fail(-EIO, "the store does not say how long the object is");
    if (rc == 0) {
        out->size = (uint64_t)request.answer.http.length;
        memcpy(out->etag, request.answer.http.etag, sizeof out->etag);
        out->has_md5 = rfs_retries_has_md5(&request.answer.http, false);
        out->has_md5_of_parts = rfs_retries_has_md5(&request.answer.http, true);
    }
    rfs_retries_free(&request);
    return rc;
}

/* Says whether two ETags are equal, with quotes or without; an empty one equals none. */
static bool is_etag(const char *a, const char *b)
{
    a += a[0] == '"';
    b += b[0] == '"';
    const size_t n = strcspn(a, "\"");

    return n > 0 && n == strcspn(b, "\"") && strncmp(a, b, n) == 0;
}

static int remove_object(struct rfs_store *store, const char *url)
{
    return make_alone(store, url, &(struct rfs_remote_request){.method = RFS_HTTP_DELETE});
}

/* Removes what has other bytes than were sent, so that nobody takes it for whole. */
static RFS_APART int remove_damaged(struct rfs_store *store, const char *url)
{
    remove_object(store, url);
    return fail(-EIO, "the store has other bytes than were sent; they were removed");
}

/* ---- in one request -------------------------------------------------------------------------- */

/*
 * Compares what is there with N bytes of this digest, which may be "". ETAG is that of the answer
 * to writing it, or "". 0, also where nothing tells them apart; -EBADMSG when the object of that
 * answer is another; -EEXIST for an object that is not of that answer; or another -errno.
 */
static int compare(struct rfs_store *store, const char *url, uint64_t n, const char *digest,
                   const char *etag, struct there *there)
{
    bool tells = false;

    for (int tries = 0; tries < LOOKS; tries++) {
        const int rc = look(store, url, there);
        if (rc)
            return rc;
        tells = *digest && (strchr(digest, '-') ? there->has_md5_of_parts : there->has_md5);
        if (there->size == n && tells && is_etag(there->etag, digest))
            return 0;
    }
    if (!is_etag(there->etag, etag))
        return fail_other();
    return there->size == n && !tells ? 0 : -EBADMSG;
}

static int put(struct rfs_store *store, const char *url, const struct iovec *spans, int count,
               const char *over, const struct rfs_sign_sums *sums, char etag[RFS_STORE_ETAG])
{
    const struct rfs_remote_request wanted = {
        .method = RFS_HTTP_PUT, .spans = spans, .count = count, .sums = sums, .over = over};
    struct rfs_remote_request request;
    struct there there;
    int rc = make(store, url, false, &wanted, &request);

    memcpy(etag, request.answer.http.etag, RFS_STORE_ETAG);
    const bool proved = rc == 0 && rfs_retries_has_md5(&request.answer.http, false);
    const bool damaged = request.answer.damaged;
    rfs_retries_free(&request);
    if (rc == -EIO && damaged)
        return remove_damaged(store, url);
    if (proved || (rc && rc != -EEXIST))
        return rc;
    /* What an earlier try has written, or another export, may be what was to be written. */
    const int found =
        compare(store, url, bytes_of(spans, count), sums->md5, rc ? "" : etag, &there);
    if (found == 0) {
        memcpy(etag, there.etag, RFS_STORE_ETAG);
        return 0;
    }
    if (rc)
        return fail_other();
    return found == -EBADMSG ? remove_damaged(store, url) : found;
}

/*
 * Says what a store without conditional writes may be asked for instead: -EEXIST when something
 * is there that must not be.
 */
static int look_before(struct rfs_store *store, const char *url, const char *over)
{
    struct there there;
    const int rc = look(store, url, &there);

    if (rc == -ENOENT)
        return *over ? fail_other() : 0;
    if (rc)
        return rc;
    return *over && is_etag(there.etag, over) ? 0 : fail_other();
}

static int put_object(struct rfs_store *store, const char *url, const struct iovec *spans,
                      int count, const char *over, char etag[RFS_STORE_ETAG])
{
    struct rfs_sign_sums sums;
    int rc = sum(spans, count, &sums);

    if (rc)
        return rc;
    RFS_FREE char *before = over ? strdup(over) : NULL; /* it may be ETAG */
    if (over && !before)
        return no_memory();
    rc = put(store, url, spans, count, before, &sums, etag);
    if (rc == -ENOTSUP && before)
        rc = look_before(store, url, before) ?: put(store, url, spans, count, NULL, &sums, etag);
    return rc;
}

/* ---- in parts -------------------------------------------------------------------------------- */

static void free_upload(struct rfs_upload *upload)
{
    for (uint32_t i = 0; upload->etags && i < upload->parts; i++)
        free(upload->etags[i]);
    free(upload->etags);
    free(upload->md5s);
    free(upload->id);
    free(upload->url);
    free(upload);
}

static struct rfs_upload *new_upload(struct rfs_store *store, const char *url, uint64_t size,
                                     uint32_t parts)
{
    struct rfs_upload *upload = calloc(1, sizeof *upload);

    if (!upload)
        return NULL;
    *upload = (struct rfs_upload){.store = store,
                                  .url = strdup(url),
                                  .size = size,
                                  .parts = parts,
                                  .md5s = calloc(parts, sizeof *upload->md5s),
                                  .etags = calloc(parts, sizeof *upload->etags)};
    if (upload->url && upload->md5s && upload->etags)
        return upload;
    free_upload(upload);
    return NULL;
}

/* Copies the encoded id of a new upload. */
static int read_id(const struct rfs_remote_request *request, char **id)
{
    const struct rfs_markup text = {request->answer.text ? request->answer.text : "",
                                    request->answer.text_n};
    char plain[ID_BYTES];

    if (!rfs_markup_find(&text, "UploadId", plain, sizeof plain) || !*plain)
        return fail(-EIO, "the store gives no id for an upload");
    *id = rfs_sign_encode(plain, false);
    return *id ? 0 : no_memory();
}

static int begin_parts(struct rfs_store *store, const char *url, uint64_t size, uint32_t parts,
                       struct rfs_upload **out)
{
    const struct rfs_remote_request wanted = {.method = RFS_HTTP_POST, .query = "uploads="};
    struct rfs_remote_request request;
    struct rfs_upload *upload = new_upload(store, url, size, parts);

    *out = NULL;
    if (!upload)
        return no_memory();
    int rc = make(store, url, false, &wanted, &request);
    if (rc == 0)
        rc = read_id(&request, &upload->id);
    rfs_retries_free(&request);
    if (rc) {
        free_upload(upload);
        return rc;
    }
    *out = upload;
    return 0;
}

static int send_part(struct rfs_upload *upload, uint32_t part, const struct iovec *spans, int count)
{
    struct rfs_sign_sums sums;
    struct rfs_remote_request request;
    RFS_FREE char *query =
        rfs_text_printf("partNumber=%" PRIu32 "&uploadId=%s", part + 1, upload->id);
    int rc = query ? sum(spans, count, &sums) : no_memory();

    if (rc)
        return rc;
    const struct rfs_remote_request wanted = {
        .method = RFS_HTTP_PUT, .query = query, .spans = spans, .count = count, .sums = &sums};
    rc = make(upload->store, upload->url, false, &wanted, &request);
    const char *etag = request.answer.http.etag;
    if (rc == 0 && (!*etag || etag[strspn(etag, ETAG_CHARACTERS)]))
        rc = fail(-EIO, "the store gives a part no ETag that can be sent back");
    if (rc == 0) {
        memcpy(upload->md5s[part], sums.md5, sizeof sums.md5);
        free(upload->etags[part]);
        upload->etags[part] = strdup(etag);
        rc = upload->etags[part] ? 0 : no_memory();
    }
    rfs_retries_free(&request);
    return rc;
}

/* Makes the list of the parts; malloc'ed, or NULL when out of memory. */
static char *list_parts(const struct rfs_upload *upload, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);

    if (!out)
        return NULL;
    fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", out);
    for (uint32_t i = 0; i < upload->parts; i++)
        fprintf(out, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>%s</ETag></Part>", i + 1,
                upload->etags[i]);
    fputs("</CompleteMultipartUpload>", out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

/* Writes the digest that the ETag of the whole has; "" when ETags are of something else. */
static int digest_parts(const struct rfs_upload *upload, char digest[64])
{
    char md5[33];

    *digest = '\0';
    for (uint32_t i = 0; i < upload->parts; i++)
        if (!is_etag(upload->etags[i], upload->md5s[i]))
            return 0;
    if (rfs_sign_sum_parts((const char(*)[33])upload->md5s, upload->parts, md5))
        return no_memory();
    snprintf(digest, 64, "%s-%" PRIu32, md5, upload->parts);
    return 0;
}

/* Has the store put the parts together; ETAG is that of its answer, or "". */
static int complete(const struct rfs_upload *upload, const char *over, char etag[RFS_STORE_ETAG])
{
    size_t size = 0;
    RFS_FREE char *text = list_parts(upload, &size);
    RFS_FREE char *query = rfs_text_printf("uploadId=%s", upload->id);
    const struct iovec span = {text, size};
    struct rfs_sign_sums sums;
    struct rfs_remote_request request;
    int rc = text && query ? sum(&span, 1, &sums) : no_memory();

    *etag = '\0';
    if (rc)
        return rc;
    const struct rfs_remote_request wanted = {.method = RFS_HTTP_POST,
                                              .query = query,
                                              .spans = &span,
                                              .count = 1,
                                              .sums = &sums,
                                              .over = over};
    rc = make(upload->store, upload->url, false, &wanted, &request);
    const struct rfs_markup answer = {request.answer.text ? request.answer.text : "",
                                      request.answer.text_n};
    if (rc == 0 && !rfs_markup_find(&answer, "ETag", etag, RFS_STORE_ETAG))
        *etag = '\0';
    rfs_retries_free(&request);
    return rc;
}

/*
 * Judges the object that is there, after an answer RC with ETAG to completing it. One that was lost
 * may have completed it.
 */
static int judge_whole(struct rfs_upload *upload, int rc, const char *etag)
{
    char digest[64];
    struct there there;
    int found = digest_parts(upload, digest);

    if (found)
        return found;
    RFS_FREE char *why = rc ? strdup(rfs_store_why(upload->url, rc)) : NULL;
    const char *remedy = rc ? rfs_store_remedy(upload->url, rc) : NULL;
    found = compare(upload->store, upload->url, upload->size, digest, etag, &there);
    upload->complete = rc == 0;
    if (found == 0 || rc == 0)
        return found == -EBADMSG ? remove_damaged(upload->store, upload->url) : found;
    if (rc == -EEXIST)
        return fail_other();
    rfs_store_fail(rc, "%s", why ? why : "out of memory");
    rfs_store_fail_remedy(remedy);
    return rc;
}

static int complete_parts(struct rfs_upload *upload, const char *over)
{
    char etag[RFS_STORE_ETAG];

    for (uint32_t i = 0; i < upload->parts; i++)
        if (!upload->etags[i])
            return rfs_store_fail(-EIO, "part %" PRIu32 " was not sent", i + 1);
    int rc = complete(upload, over, etag);
    if (rc == -ENOTSUP && over)
        rc = look_before(upload->store, upload->url, over) ?: complete(upload, NULL, etag);
    if (rc == 0 || rc == -EEXIST || rc == -ENOENT || rc == -EIO)
        rc = judge_whole(upload, rc, etag);
    return rc;
}

static int abort_one(struct rfs_store *store, const char *url, const char *id)
{
    RFS_FREE char *query = rfs_text_printf("uploadId=%s", id);

    return query ? make_alone(store, url,
                              &(struct rfs_remote_request){
                                  .method = RFS_HTTP_DELETE, .query = query, .brief = true})
                 : no_memory();
}

static void drop_upload(struct rfs_upload *upload)
{
    if (!upload)
        return;
    if (!upload->complete)
        abort_one(upload->store, upload->url, upload->id);
    free_upload(upload);
}

/* ---- uploads that nobody has ended ----------------------------------------------------------- */

struct open_upload {
    char *path; /* below the folder; owned, as the id */
    char *id;   /* encoded */
};
struct open_uploads {
    const char *prefix; /* of the keys in the folder */
    bool (*is_ours)(void *ctx, const char *path);
    void *ctx;
    char key[KEY_BYTES], id[ID_BYTES]; /* where the next page begins; "": nowhere */
    RFS_VEC(struct open_upload) list;
};

/* Adds those of a page that are ours. */
static RFS_APART int read_uploads(const struct rfs_remote_request *request,
                                  struct open_uploads *out)
{
    const struct rfs_markup page = {request->answer.text ? request->answer.text : "",
                                    request->answer.text_n};
    const size_t prefix = strlen(out->prefix);
    struct rfs_markup rest = page, one;
    char at[KEY_BYTES], plain[ID_BYTES], truncated[8];

    while (rfs_markup_next(&rest, "Upload", &one)) {
        if (!rfs_markup_find(&one, "Key", at, sizeof at) ||
            !rfs_markup_find(&one, "UploadId", plain, sizeof plain) ||
            strncmp(at, out->prefix, prefix) != 0 || !out->is_ours(out->ctx, at + prefix))
            continue;
        struct open_upload upload = {strdup(at + prefix), rfs_sign_encode(plain, false)};
        if (!upload.path || !upload.id || !RFS_PUSH(&out->list, upload)) {
            free(upload.path);
            free(upload.id);
            return no_memory();
        }
    }
    *out->key = *out->id = '\0';
    if (!rfs_markup_find(&page, "IsTruncated", truncated, sizeof truncated))
        return fail(-EIO, "the store's list of uploads is in an unknown form");
    if (strcmp(truncated, "true") == 0 &&
        (!rfs_markup_find(&page, "NextKeyMarker", out->key, KEY_BYTES) ||
         !rfs_markup_find(&page, "NextUploadIdMarker", out->id, ID_BYTES) || !*out->key))
        return fail(-EIO, "the store's list of uploads is in an unknown form");
    return 0;
}

static char *uploads_query(const struct open_uploads *uploads)
{
    const bool first = !*uploads->key;
    RFS_FREE char *coded = rfs_sign_encode(uploads->prefix, false);
    RFS_FREE char *key_coded = rfs_sign_encode(uploads->key, false);
    RFS_FREE char *id_coded = rfs_sign_encode(uploads->id, false);

    if (!coded || !key_coded || !id_coded)
        return NULL;
    return rfs_text_printf("%s%s%sprefix=%s%s%s&uploads=", first ? "" : "key-marker=", key_coded,
                           first ? "" : "&", coded, first ? "" : "&upload-id-marker=", id_coded);
}

/* Adds the uploads of the next page. */
static RFS_APART int fetch_uploads(struct rfs_store *store, const char *folder,
                                   struct open_uploads *out)
{
    RFS_FREE char *query = uploads_query(out);
    const struct rfs_remote_request wanted = {.query = query};
    struct rfs_remote_request request = {0};
    int rc = query ? make(store, folder, true, &wanted, &request) : no_memory();

    rc = rc ?: read_uploads(&request, out);
    rfs_retries_free(&request);
    return rc;
}

static int list_uploads(struct rfs_store *store, const char *folder, struct open_uploads *out)
{
    unsigned pages = 0;
    int rc;

    do {
        rc = fetch_uploads(store, folder, out);
    } while (rc == 0 && *out->key && out->list.n < UPLOADS_MOST && ++pages < PAGES_MOST);
    return rc == 0 && *out->key ? fail(-EFBIG, "the store's list of uploads is too long") : rc;
}

static int sweep_uploads(struct rfs_store *store, const char *folder,
                         bool (*is_ours)(void *ctx, const char *path), void *ctx)
{
    RFS_CLEANUP(rfs_bucket_free) struct rfs_bucket bucket = {0};
    struct open_uploads found = {.is_ours = is_ours, .ctx = ctx};
    int rc = rfs_bucket_of(rfs_account_of(store), folder, &bucket);
    RFS_FREE char *prefix =
        rc == 0 ? rfs_text_printf("%s%s", bucket.key, *bucket.key ? "/" : "") : NULL;

    found.prefix = prefix;
    if (rc == 0)
        rc = prefix ? list_uploads(store, folder, &found) : no_memory();
    for (size_t i = 0; i < found.list.n; i++) {
        RFS_FREE char *url = rfs_text_printf("%s/%s", folder, found.list.data[i].path);
        if (rc == 0)
            rc = url ? abort_one(store, url, found.list.data[i].id) : no_memory();
        if (rc == -ENOENT) /* it has ended meanwhile */
            rc = 0;
        free(found.list.data[i].path);
        free(found.list.data[i].id);
    }
    free(found.list.data);
    return rc;
}

const struct rfs_store_uploads rfs_upload_calls = {
    .put = put_object,
    .begin = begin_parts,
    .send = send_part,
    .complete = complete_parts,
    .drop = drop_upload,
    .remove = remove_object,
    .sweep = sweep_uploads,
};
