/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/manifest.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/store.h"
#include "base/text.h"
#include "reshard.h"
#include "survey/whole_tensors.h"

#include <time.h>

#define MOST_BYTES ((size_t)256 << 20) /* larger ones are refused: 65,536 files take 16 MiB */
#define FORMAT_VERSION 1
#define DTYPE 24 /* bytes of a dtype's name, with its NUL */
#define TYPE (DTYPE + RFS_SHAPE_TEXT)

int rfs_manifest_init(struct rfs_manifest *manifest, enum rfs_manifest_of of)
{
    *manifest = (struct rfs_manifest){
        .of = of, .tasks = 1, .names = rfs_intern_new(), .types = rfs_intern_new()};
    return manifest->names && manifest->types ? 0 : -ENOMEM;
}

void rfs_manifest_free(struct rfs_manifest *manifest)
{
    free(manifest->source);
    free(manifest->options);
    rfs_intern_free(manifest->names);
    rfs_intern_free(manifest->types);
    free(manifest->entries.data);
    *manifest = (struct rfs_manifest){0};
}

static struct rfs_manifest_entry *find(const struct rfs_manifest *manifest, const char *name)
{
    const uint32_t id = rfs_intern_find(manifest->names, name, strlen(name));

    return id == RFS_NO_ID ? NULL : &manifest->entries.data[id];
}

struct rfs_manifest_entry *rfs_manifest_find(const struct rfs_manifest *manifest, const char *name)
{
    RFS_FREE char *shown =
        manifest->of == RFS_MANIFEST_TENSORS ? rfs_text_printable_copy(name) : NULL;

    return find(manifest, shown ? shown : name);
}

int rfs_manifest_put(struct rfs_manifest *manifest, const char *name,
                     const struct rfs_manifest_entry *entry)
{
    /* Room first, so that a name that is known always has an entry. */
    if (!RFS_PUSH(&manifest->entries, *entry))
        return -ENOMEM;
    manifest->entries.n--;
    const uint32_t id = rfs_intern_add(manifest->names, name, strlen(name));
    if (id == RFS_NO_ID)
        return -ENOMEM;
    manifest->entries.n += id == manifest->entries.n;
    manifest->entries.data[id] = *entry;
    return 0;
}

/* Writes "Float32 [768, 48]"; returns OUT. */
static const char *put_type(char out[TYPE], const char *dtype, uint32_t ndim, const uint64_t *dims)
{
    char shape[RFS_SHAPE_TEXT];

    snprintf(out, TYPE, "%s %s", dtype, rfs_text_dims(shape, sizeof shape, ndim, dims));
    return out;
}

/* Adds a tensor of a new name. 0, -ENOMEM, or -EEXIST. */
static int put_new(struct rfs_manifest *manifest, const char *name, const char *type,
                   struct rfs_hash hash)
{
    struct rfs_manifest_entry entry = {.hash = hash};

    if (find(manifest, name))
        return -EEXIST;
    entry.type = rfs_intern_add(manifest->types, type, strlen(type));
    return entry.type == RFS_NO_ID ? -ENOMEM : rfs_manifest_put(manifest, name, &entry);
}

int rfs_manifest_put_tensor(struct rfs_manifest *manifest, const char *name,
                            const struct rfs_type *type, struct rfs_hash hash)
{
    RFS_FREE char *shown = rfs_text_printable_copy(name);
    char text[TYPE];

    return shown ? put_new(manifest, shown,
                           put_type(text, rfs_whole_dtype(type), type->ndim, type->dims), hash)
                 : -ENOMEM;
}

bool rfs_manifest_fits(const struct rfs_manifest *manifest, const struct rfs_manifest_entry *entry,
                       const struct rfs_type *type)
{
    char text[TYPE];

    return strcmp(put_type(text, rfs_whole_dtype(type), type->ndim, type->dims),
                  rfs_intern_text(manifest->types, entry->type)) == 0;
}

bool rfs_manifest_takes(const char *path)
{
    RFS_FREE char *shown = rfs_text_printable_copy(path);

    return shown && *path && strcmp(shown, path) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_entry(struct rfs_json_write *json, const struct rfs_manifest *manifest, uint32_t id)
{
    const struct rfs_manifest_entry *entry = &manifest->entries.data[id];
    const char *name = rfs_intern_text(manifest->names, id);
    char hash[RFS_HASH_TEXT];

    rfs_json_object(json, NULL, RFS_JSON_SPACED);
    if (manifest->of == RFS_MANIFEST_FILES) {
        rfs_json_put_text(json, "path", name);
        rfs_json_put_u64(json, "size", entry->size);
    } else {
        char dtype[TYPE];
        snprintf(dtype, sizeof dtype, "%s", rfs_intern_text(manifest->types, entry->type));
        char *shape = strchr(dtype, ' ');
        *shape++ = '\0';
        rfs_json_put_text(json, "name", name);
        rfs_json_put_text(json, "dtype", dtype);
        rfs_json_print(json, "shape", "%s", shape);
    }
    rfs_json_put_text(json, "xxh3_128", rfs_hash_text(entry->hash, hash));
    if (manifest->of == RFS_MANIFEST_FILES) {
        rfs_json_put_text(json, "made_of", rfs_hash_text(entry->made_of, hash));
        rfs_json_put_u64(json, "written_ms", entry->written_ms);
    }
    rfs_json_end(json);
}

/* What tells the two kinds apart, and is said of a file that is none. */
static const struct {
    const char *format, *list, *not_one, *remedy;
} kinds[] = {
    [RFS_MANIFEST_FILES] = {"reshard-manifest", "files", "not a manifest of reshard export",
                            "another DST; or remove this file, and export with --force"},
    [RFS_MANIFEST_TENSORS] = {"reshard-tensors", "tensors", "not a manifest of reshard verify",
                              "another FILE, or --write to replace it"},
};

static void put_all(FILE *out, const struct rfs_manifest *manifest, const uint32_t *order)
{
    /* Names of tensors are read again: bytes that SHOWN would change stay as they are. */
    struct rfs_json_write json = {
        .file = out, .escapes = manifest->of == RFS_MANIFEST_TENSORS ? RFS_JSON_UTF8 : 0};
    char program[64];

    snprintf(program, sizeof program, "reshard %s", reshard_version());
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_text(&json, "format", kinds[manifest->of].format);
    rfs_json_put_u64(&json, "version", FORMAT_VERSION);
    if (manifest->of == RFS_MANIFEST_FILES) {
        rfs_json_put_text(&json, "program", program);
        rfs_json_put_text(&json, "source", manifest->source ? manifest->source : "");
        rfs_json_put_text(&json, "options", manifest->options ? manifest->options : "");
        rfs_json_put_u64(&json, "task", manifest->task);
        rfs_json_stay(&json);
        rfs_json_put_u64(&json, "tasks", manifest->tasks);
        rfs_json_put_u64(&json, "total_files", manifest->total_files);
    }
    rfs_json_array(&json, kinds[manifest->of].list, RFS_JSON_LINES);
    for (size_t i = 0; i < manifest->entries.n; i++)
        put_entry(&json, manifest, order[i]);
    rfs_json_finish(&json);
}

static int by_name(const void *a, const void *b, void *names)
{
    return strcmp(rfs_intern_text(names, *(const uint32_t *)a),
                  rfs_intern_text(names, *(const uint32_t *)b));
}

/*
 * Makes the text with the entries in the order of their names, for which ORDER has room. 0 with
 * *TEXT owned, or -ENOMEM.
 */
static int make_text(const struct rfs_manifest *manifest, uint32_t *order, char **text,
                     size_t *size)
{
    const size_t n = manifest->entries.n;
    FILE *out = open_memstream(text, size);

    if (!out)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    RFS_SORT_BY(order, n, by_name, manifest->names);
    put_all(out, manifest, order);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

#define STEM "reshard-manifest"

/* Returns the name of the manifest of a task, malloc'ed, or NULL when out of memory. */
static char *name_of(uint32_t task, uint32_t tasks)
{
    return tasks < 2 ? strdup(RFS_MANIFEST_NAME) : rfs_text_printf(STEM ".%" PRIu32 ".json", task);
}

int rfs_manifest_text(const struct rfs_manifest *manifest, char **name, char **text, size_t *size)
{
    RFS_FREE uint32_t *order = calloc(manifest->entries.n + 1, sizeof *order);

    int rc = order ? 0 : -ENOMEM;

    *text = NULL;
    if (name)
        *name = name_of(manifest->task, manifest->tasks);
    if (name && !*name)
        rc = -ENOMEM;
    return rc ? rc : make_text(manifest, order, text, size);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* An element of the list, as it is read. */
struct listed {
    char *name; /* owned */
    char dtype[DTYPE];
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    struct rfs_manifest_entry entry;
};

static bool read_path(struct rfs_json_read *json, void *at)
{
    if (!rfs_json_field_text(json, at))
        return false;
    const char *path = *(char **)at;
    if (!rfs_origin_is_names(path, strlen(path)))
        return rfs_json_read_fail(json, "a path leads out of the folder");
    return rfs_manifest_takes(path) ||
           rfs_json_read_fail(json, "a path has characters that no export writes");
}

static bool read_dtype(struct rfs_json_read *json, void *at)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

    if (!rfs_json_read_string(json))
        return false;
    const size_t n = strspn(json->text, characters);
    if (n == 0 || n != json->text_n || n >= DTYPE)
        return rfs_json_read_fail(json, "a dtype is none");
    memcpy(at, json->text, n + 1);
    return true;
}

static bool read_shape(struct rfs_json_read *json, void *at)
{
    struct listed *listed = at;
    bool first = true;

    listed->ndim = 0;
    while (rfs_json_read_element(json, &first)) {
        if (listed->ndim == RFS_MAX_DIMS)
            return rfs_json_read_fail(json, "a shape has more than 16 dimensions");
        if (!rfs_json_read_u64(json, &listed->dims[listed->ndim++]))
            return false;
    }
    return !json->wrong;
}

static const struct rfs_json_field fields_of_file[] = {
    {"path", read_path, offsetof(struct listed, name), true},
    {"size", rfs_json_field_u64, offsetof(struct listed, entry.size), true},
    {"xxh3_128", rfs_hash_read, offsetof(struct listed, entry.hash), true},
    {"made_of", rfs_hash_read, offsetof(struct listed, entry.made_of), true},
    {"written_ms", rfs_json_field_u64, offsetof(struct listed, entry.written_ms), false},
};

static const struct rfs_json_field fields_of_tensor[] = {
    {"name", rfs_json_field_text, offsetof(struct listed, name), true},
    {"dtype", read_dtype, offsetof(struct listed, dtype), true},
    {"shape", read_shape, 0, true},
    {"xxh3_128", rfs_hash_read, offsetof(struct listed, entry.hash), true},
};

static int add_file(struct rfs_manifest *manifest, const struct listed *listed)
{
    const struct rfs_manifest_entry *known = find(manifest, listed->name);

    return known && known->written_ms > listed->entry.written_ms
               ? 0
               : rfs_manifest_put(manifest, listed->name, &listed->entry);
}

static int add_tensor(struct rfs_manifest *manifest, const struct listed *listed)
{
    char type[TYPE];

    return put_new(manifest, listed->name,
                   put_type(type, listed->dtype, listed->ndim, listed->dims), listed->entry.hash);
}

static bool read_listed(struct rfs_json_read *json, struct rfs_manifest *manifest,
                        struct listed *listed)
{
    const bool files = manifest->of == RFS_MANIFEST_FILES;

    if (!rfs_json_read_object(json, files ? fields_of_file : fields_of_tensor,
                              files ? sizeof fields_of_file / sizeof *fields_of_file
                                    : sizeof fields_of_tensor / sizeof *fields_of_tensor,
                              files ? "a file has no path, size, xxh3_128 or made_of"
                                    : "a tensor has no name, dtype, shape or xxh3_128",
                              listed))
        return false;
    const int rc = files ? add_file(manifest, listed) : add_tensor(manifest, listed);
    json->no_memory |= rc == -ENOMEM;
    return rc == 0 ||
           rfs_json_read_fail(json, rc == -EEXIST ? "a name comes twice" : "out of memory");
}

static bool read_list(struct rfs_json_read *json, void *manifest)
{
    bool first = true, good = true;

    while (good && rfs_json_read_element(json, &first)) {
        struct listed listed = {.name = NULL};
        good = read_listed(json, manifest, &listed);
        free(listed.name);
    }
    return good && !json->wrong;
}

static bool read_format(struct rfs_json_read *json, void *at)
{
    const struct rfs_manifest *manifest = at;

    return rfs_json_read_string(json) && (rfs_json_read_is(json, kinds[manifest->of].format) ||
                                          rfs_json_read_fail(json, kinds[manifest->of].not_one));
}

static bool read_version(struct rfs_json_read *json, void *at)
{
    uint64_t version;

    (void)at;
    return rfs_json_read_u64(json, &version) &&
           (version == FORMAT_VERSION || rfs_json_read_fail(json, "of another version of reshard"));
}

/* Reads a number; the largest of several manifests counts. */
static bool read_most(struct rfs_json_read *json, void *at)
{
    uint64_t *most = at;
    uint64_t number;

    if (!rfs_json_read_u64(json, &number))
        return false;
    *most = number > *most ? number : *most;
    return true;
}

/* The members of a manifest of files, and behind them that of one of tensors. */
static const struct rfs_json_field fields[] = {
    {"format", read_format, 0, true},
    {"version", read_version, 0, false},
    {"source", rfs_json_field_text, offsetof(struct rfs_manifest, source), false},
    {"options", rfs_json_field_text, offsetof(struct rfs_manifest, options), false},
    {"task", rfs_json_field_u32, offsetof(struct rfs_manifest, task), false},
    {"tasks", rfs_json_field_u32, offsetof(struct rfs_manifest, tasks), false},
    {"total_files", read_most, offsetof(struct rfs_manifest, total_files), false},
    {"files", read_list, 0, false},
};
static const struct rfs_json_field fields_with_tensors[] = {
    {"format", read_format, 0, true},
    {"version", read_version, 0, false},
    {"tensors", read_list, 0, false},
};

int rfs_manifest_parse(const char *file, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err)
{
    const bool files = manifest->of == RFS_MANIFEST_FILES;
    const char *wrong;
    uint64_t at;
    const int rc = rfs_json_read_whole(text, size, files ? fields : fields_with_tensors,
                                       files ? sizeof fields / sizeof *fields
                                             : sizeof fields_with_tensors / sizeof *fields,
                                       kinds[manifest->of].not_one, manifest, &at, &wrong);

    if (rc == -EINVAL)
        return rfs_fail(err, rc, RFS_AT(file, at), kinds[manifest->of].remedy,
                        "not a manifest that can be read: %s", wrong);
    return rc ? rfs_fail_memory(err) : 0;
}

int rfs_manifest_read(struct rfs_store *store, const char *path, struct rfs_manifest *manifest,
                      struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;

    return rfs_store_read_whole(store, path, MOST_BYTES, &text, &size, err)
               ?: rfs_manifest_parse(path, text, size, manifest, err);
}

/* ---- names ----------------------------------------------------------------------------------- */

bool rfs_manifest_is_name(const char *name)
{
    if (strcmp(name, RFS_MANIFEST_NAME) == 0)
        return true;
    if (strncmp(name, STEM ".", sizeof STEM) != 0)
        return false;
    name += sizeof STEM;
    const size_t digits = strspn(name, "0123456789");
    return digits > 0 && strcmp(name + digits, ".json") == 0;
}

uint64_t rfs_manifest_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
