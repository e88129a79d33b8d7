/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/sums.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/text.h"
#include "view/whole_tensors.h"

#define FORMAT "reshard-tensors"
#define FORMAT_VERSION 1

int rfs_sums_init(struct rfs_sums *sums)
{
    *sums = (struct rfs_sums){.names = rfs_intern_new()};
    return sums->names ? 0 : -ENOMEM;
}

void rfs_sums_free(struct rfs_sums *sums)
{
    rfs_intern_free(sums->names);
    free(sums->entries.data);
    *sums = (struct rfs_sums){0};
}

static int put_entry(struct rfs_sums *sums, const char *shown, const struct rfs_sums_entry *entry)
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
    struct rfs_sums_entry entry = {.ndim = type->ndim, .hash = hash};

    if (!shown)
        return -ENOMEM;
    memcpy(entry.dims, type->dims, sizeof entry.dims);
    snprintf(entry.dtype, sizeof entry.dtype, "%s", rfs_whole_dtype(type));
    return put_entry(sums, shown, &entry);
}

struct rfs_sums_entry *rfs_sums_find(const struct rfs_sums *sums, const char *name)
{
    RFS_FREE char *shown = rfs_text_printable_copy(name);
    const uint32_t id =
        shown ? rfs_intern_find(sums->names, shown, strlen(shown)) : (uint32_t)RFS_NO_ID;

    return id == RFS_NO_ID ? NULL : &sums->entries.data[id];
}

bool rfs_sums_fit(const struct rfs_sums_entry *entry, const struct rfs_type *type)
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
        const struct rfs_sums_entry *entry = &sums->entries.data[order[i]];
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
    const int rc = rfs_io_write_whole(path, text, size, true, &what);
    return rc ? rfs_fail(err, rc, RFS_IN(path), "a folder that you may write to",
                         "cannot be written: %s", strerror(-rc))
              : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

#define DTYPE_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
#define NOT_ONE "not a manifest of reshard verify"

/* A tensor of the list, as it is read. */
struct tensor {
    char *name; /* owned */
    struct rfs_sums_entry entry;
};

static bool read_dtype(struct rfs_json_read *json, void *at)
{
    if (!rfs_json_read_string(json))
        return false;
    const size_t n = strspn(json->text, DTYPE_CHARACTERS);
    if (n == 0 || n != json->text_n || n >= RFS_SUMS_DTYPE)
        return rfs_json_read_fail(json, "a dtype is none");
    memcpy(at, json->text, n + 1);
    return true;
}

static bool read_shape(struct rfs_json_read *json, void *at)
{
    struct rfs_sums_entry *entry = at;
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

static const struct rfs_json_field fields_of_tensor[] = {
    {"name", rfs_json_field_text, offsetof(struct tensor, name), true},
    {"dtype", read_dtype, offsetof(struct tensor, entry.dtype), true},
    {"shape", read_shape, offsetof(struct tensor, entry), true},
    {"xxh3_128", rfs_hash_read, offsetof(struct tensor, entry.hash), true},
};

static bool read_tensor(struct rfs_json_read *json, struct rfs_sums *sums, struct tensor *tensor)
{
    if (!rfs_json_read_object(json, fields_of_tensor,
                              sizeof fields_of_tensor / sizeof *fields_of_tensor,
                              "a tensor has no name, dtype, shape or xxh3_128", tensor))
        return false;
    const int rc = put_entry(sums, tensor->name, &tensor->entry);
    json->no_memory |= rc == -ENOMEM;
    return rc == 0 ||
           rfs_json_read_fail(json, rc == -EEXIST ? "a name comes twice" : "out of memory");
}

static bool read_tensors(struct rfs_json_read *json, void *sums)
{
    bool first = true, good = true;

    while (good && rfs_json_read_element(json, &first)) {
        struct tensor tensor = {.name = NULL};
        good = read_tensor(json, sums, &tensor);
        free(tensor.name);
    }
    return good && !json->wrong;
}

static bool read_format(struct rfs_json_read *json, void *at)
{
    (void)at;
    return rfs_json_read_string(json) &&
           (rfs_json_read_is(json, FORMAT) || rfs_json_read_fail(json, NOT_ONE));
}

static bool read_version(struct rfs_json_read *json, void *at)
{
    uint64_t version;

    (void)at;
    return rfs_json_read_u64(json, &version) &&
           (version == FORMAT_VERSION || rfs_json_read_fail(json, "of another version of reshard"));
}

static const struct rfs_json_field fields[] = {
    {"format", read_format, 0, true},
    {"version", read_version, 0, false},
    {"tensors", read_tensors, 0, false},
};

int rfs_sums_parse(const char *file, const char *text, size_t size, struct rfs_sums *sums,
                   struct rfs_error *err)
{
    const char *wrong;
    uint64_t at;
    const int rc = rfs_json_read_whole(text, size, fields, sizeof fields / sizeof *fields, NOT_ONE,
                                       sums, &at, &wrong);

    if (rc == -EINVAL)
        return rfs_fail(err, rc, RFS_AT(file, at), "another FILE, or --write to replace it",
                        "not a manifest that can be read: %s", wrong);
    return rc ? rfs_fail_memory(err) : 0;
}
