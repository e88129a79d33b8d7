/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/sums.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/text.h"
#include "base/write_whole.h"
#include "tool/common/whole.h"

#define FORMAT "reshard-tensors"
#define FORMAT_VERSION 1

int rfs_sums_init(struct rfs_sums *sums)
{
    *sums = (struct rfs_sums){.names = rfs_intern_new()};
    return sums->names ? 0 : -ENOMEM;
}

void rfs_sums_free(struct rfs_sums *sums)
{
    if (sums->names)
        rfs_intern_free(sums->names);
    free(sums->entries.data);
    *sums = (struct rfs_sums){0};
}

static int put_entry(struct rfs_sums *sums, const char *shown, const struct rfs_sum_entry *entry)
{
    if (rfs_intern_find(sums->names, shown, strlen(shown)) != RFS_NO_ID)
        return -EEXIST;
    if (!RFS_PUSH(&sums->entries, *entry))
        return -ENOMEM;
    if (rfs_intern_add(sums->names, shown, strlen(shown)) != RFS_NO_ID)
        return 0;
    sums->entries.n--;
    return -ENOMEM;
}

int rfs_sums_put(struct rfs_sums *sums, const char *name, const struct rfs_type *type,
                 struct rfs_hash hash)
{
    RFS_FREE char *shown = rfs_text_printable_copy(name);
    struct rfs_sum_entry entry = {.ndim = type->ndim, .hash = hash};

    if (!shown)
        return -ENOMEM;
    memcpy(entry.dims, type->dims, sizeof entry.dims);
    snprintf(entry.dtype, sizeof entry.dtype, "%s", rfs_whole_dtype(type));
    return put_entry(sums, shown, &entry);
}

struct rfs_sum_entry *rfs_sums_find(const struct rfs_sums *sums, const char *name)
{
    RFS_FREE char *shown = rfs_text_printable_copy(name);
    const uint32_t id =
        shown ? rfs_intern_find(sums->names, shown, strlen(shown)) : (uint32_t)RFS_NO_ID;

    return id == RFS_NO_ID ? NULL : &sums->entries.data[id];
}

bool rfs_sums_fit(const struct rfs_sum_entry *entry, const struct rfs_type *type)
{
    return entry->ndim == type->ndim && memcmp(entry->dims, type->dims, sizeof entry->dims) == 0 &&
           strcmp(entry->dtype, rfs_whole_dtype(type)) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *ctx)
{
    const struct rfs_sums *sums = ctx;

    return strcmp(rfs_intern_text(sums->names, *(const uint32_t *)a),
                  rfs_intern_text(sums->names, *(const uint32_t *)b));
}

static void put_all(FILE *out, const struct rfs_sums *sums, const uint32_t *order)
{
    /* Names are read again: bytes that SHOWN would change stay as they are. */
    struct rfs_json_write json = {.file = out, .escapes = RFS_JSON_UTF8};
    char hash[RFS_HASH_TEXT];

    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_text(&json, "format", FORMAT);
    rfs_json_put_u64(&json, "version", FORMAT_VERSION);
    rfs_json_array(&json, "tensors", RFS_JSON_LINES);
    for (size_t i = 0; i < sums->entries.n; i++) {
        const struct rfs_sum_entry *entry = &sums->entries.data[order[i]];
        rfs_json_object(&json, NULL, RFS_JSON_SPACED);
        rfs_json_put_text(&json, "name", rfs_intern_text(sums->names, order[i]));
        rfs_json_put_text(&json, "dtype", entry->dtype);
        rfs_json_put_u64s(&json, "shape", RFS_JSON_SPACED, entry->dims, entry->ndim);
        rfs_json_put_text(&json, "xxh3_128", rfs_hash_text(entry->hash, hash));
        rfs_json_end(&json);
    }
    rfs_json_finish(&json);
}

int rfs_sums_text(const struct rfs_sums *sums, char **text, size_t *size)
{
    const size_t n = sums->entries.n;
    RFS_FREE uint32_t *order = calloc(n + 1, sizeof *order);

    *text = NULL;
    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof *order, by_name, (void *)(uintptr_t)sums);
    FILE *out = open_memstream(text, size);
    if (!out)
        return -ENOMEM;
    put_all(out, sums, order);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

int rfs_sums_save(const struct rfs_sums *sums, const char *path, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    const char *what;
    size_t size = 0;

    if (rfs_sums_text(sums, &text, &size))
        return rfs_fail_memory(err);
    const int rc = rfs_write_whole(path, text, size, true, &what);
    return rc ? rfs_fail(err, rc, RFS_IN(path), "a folder that you may write to",
                         "cannot be written: %s", strerror(-rc))
              : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

#define DTYPE_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
enum { HAS_NAME = 1, HAS_DTYPE = 2, HAS_SHAPE = 4, HAS_HASH = 8, HAS_ALL = 15 };

static bool read_shape(struct rfs_json_read *json, struct rfs_sum_entry *entry)
{
    bool first = true;

    entry->ndim = 0;
    while (rfs_json_read_element(json, &first)) {
        if (entry->ndim == RFS_MAX_DIMS)
            return rfs_json_read_fail(json, "a shape has more than 16 dimensions");
        if (!rfs_json_read_u64(json, &entry->dims[entry->ndim++]))
            return false;
    }
    return !json->wrong;
}

static bool read_member(struct rfs_json_read *json, char **name, struct rfs_sum_entry *entry,
                        unsigned *has)
{
    if (strcmp(json->text, "shape") == 0) {
        *has |= HAS_SHAPE;
        return read_shape(json, entry);
    }
    const unsigned what = strcmp(json->text, "name") == 0       ? HAS_NAME
                          : strcmp(json->text, "dtype") == 0    ? HAS_DTYPE
                          : strcmp(json->text, "xxh3_128") == 0 ? HAS_HASH
                                                                : 0;
    if (what == 0)
        return rfs_json_read_skip(json);
    *has |= what;
    if (!rfs_json_read_string(json))
        return false;
    if (what == HAS_HASH)
        return rfs_hash_parse(json->text, json->text_n, &entry->hash) ||
               rfs_json_read_fail(json, "a hash is not of 32 hexadecimal digits");
    if (what == HAS_DTYPE) {
        const size_t n = strspn(json->text, DTYPE_CHARACTERS);
        if (n == 0 || n != json->text_n || n >= sizeof entry->dtype)
            return rfs_json_read_fail(json, "a dtype is none");
        snprintf(entry->dtype, sizeof entry->dtype, "%s", json->text);
        return true;
    }
    free(*name);
    *name = strdup(json->text);
    json->no_memory |= !*name;
    return *name || rfs_json_read_fail(json, "out of memory");
}

static bool read_tensor(struct rfs_json_read *json, struct rfs_sums *sums)
{
    RFS_FREE char *name = NULL;
    struct rfs_sum_entry entry = {0};
    unsigned has = 0;
    bool first = true;

    while (rfs_json_read_member(json, &first))
        if (!read_member(json, &name, &entry, &has))
            return false;
    if (json->wrong)
        return false;
    if (has != HAS_ALL)
        return rfs_json_read_fail(json, "a tensor has no name, dtype, shape or xxh3_128");
    const int rc = put_entry(sums, name, &entry);
    json->no_memory |= rc == -ENOMEM;
    return rc == 0 ||
           rfs_json_read_fail(json, rc == -EEXIST ? "a name comes twice" : "out of memory");
}

static bool read_top(struct rfs_json_read *json, struct rfs_sums *sums, bool *is_one)
{
    uint64_t version;
    bool first = true;

    if (strcmp(json->text, "format") == 0) {
        if (!rfs_json_read_string(json))
            return false;
        *is_one = strcmp(json->text, FORMAT) == 0;
        return *is_one || rfs_json_read_fail(json, "not a manifest of reshard verify");
    }
    if (strcmp(json->text, "version") == 0)
        return rfs_json_read_u64(json, &version) &&
               (version == FORMAT_VERSION ||
                rfs_json_read_fail(json, "of another version of reshard"));
    if (strcmp(json->text, "tensors") != 0)
        return rfs_json_read_skip(json);
    while (rfs_json_read_element(json, &first))
        if (!read_tensor(json, sums))
            return false;
    return !json->wrong;
}

int rfs_sums_parse(const char *file, const char *text, size_t size, struct rfs_sums *sums,
                   struct rfs_error *err)
{
    struct rfs_json_read json = rfs_json_read_begin(text, size);
    bool first = true;
    bool is_one = false;
    int rc = 0;

    while (rfs_json_read_member(&json, &first))
        if (!read_top(&json, sums, &is_one))
            break;
    if (!json.wrong && rfs_json_read_end(&json) && !is_one)
        rfs_json_read_fail(&json, "not a manifest of reshard verify");
    if (json.no_memory)
        rc = rfs_fail_memory(err);
    else if (json.wrong)
        rc = rfs_fail(err, -EINVAL, RFS_AT(file, json.at), "another FILE, or --write to replace it",
                      "not a manifest that can be read: %s", json.wrong);
    rfs_json_read_free(&json);
    return rc;
}
