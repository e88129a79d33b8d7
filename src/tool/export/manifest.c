/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/manifest.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/text.h"
#include "reshard.h"

#define MANIFEST_FORMAT "reshard-manifest"
#define MANIFEST_VERSION 1

int rfs_manifest_init(struct rfs_manifest *manifest)
{
    *manifest = (struct rfs_manifest){.tasks = 1, .paths = rfs_intern_new()};
    return manifest->paths ? 0 : -ENOMEM;
}

void rfs_manifest_free(struct rfs_manifest *manifest)
{
    free(manifest->source);
    free(manifest->options);
    if (manifest->paths)
        rfs_intern_free(manifest->paths);
    free(manifest->entries.data);
    *manifest = (struct rfs_manifest){0};
}

const struct rfs_manifest_entry *rfs_manifest_find(const struct rfs_manifest *manifest,
                                                   const char *path)
{
    const uint32_t id = rfs_intern_find(manifest->paths, path, strlen(path));
    return id == RFS_NO_ID ? NULL : &manifest->entries.data[id];
}

int rfs_manifest_put(struct rfs_manifest *manifest, const char *path,
                     const struct rfs_manifest_entry *entry)
{
    /* Room first, so that a path that is known always has an entry. */
    if (!RFS_PUSH(&manifest->entries, *entry))
        return -ENOMEM;
    manifest->entries.n--;
    const uint32_t id = rfs_intern_add(manifest->paths, path, strlen(path));
    if (id == RFS_NO_ID)
        return -ENOMEM;
    manifest->entries.n += id == manifest->entries.n;
    manifest->entries.data[id] = *entry;
    return 0;
}

bool rfs_manifest_takes(const char *path)
{
    RFS_FREE char *shown = rfs_text_printable_copy(path);

    return shown && *path && strcmp(shown, path) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_file(struct rfs_json_write *json, const char *path,
                     const struct rfs_manifest_entry *entry)
{
    char hash[RFS_HASH_TEXT];

    rfs_json_object(json, NULL, RFS_JSON_SPACED);
    rfs_json_put_text(json, "path", path);
    rfs_json_put_u64(json, "size", entry->size);
    rfs_json_put_text(json, "xxh3_128", rfs_hash_text(entry->hash, hash));
    rfs_json_put_text(json, "made_of", rfs_hash_text(entry->made_of, hash));
    rfs_json_put_u64(json, "written_ms", entry->written_ms);
    rfs_json_end(json);
}

static void put_all(FILE *out, const struct rfs_manifest *manifest)
{
    struct rfs_json_write json = {.file = out};
    char program[64];

    snprintf(program, sizeof program, "reshard %s", reshard_version());
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_text(&json, "format", MANIFEST_FORMAT);
    rfs_json_put_u64(&json, "version", MANIFEST_VERSION);
    rfs_json_put_text(&json, "program", program);
    rfs_json_put_text(&json, "source", manifest->source ? manifest->source : "");
    rfs_json_put_text(&json, "options", manifest->options ? manifest->options : "");
    rfs_json_put_u64(&json, "task", manifest->task);
    rfs_json_stay(&json);
    rfs_json_put_u64(&json, "tasks", manifest->tasks);
    rfs_json_put_u64(&json, "total_files", manifest->total_files);
    rfs_json_array(&json, "files", RFS_JSON_LINES);
    for (size_t i = 0; i < manifest->entries.n; i++)
        put_file(&json, rfs_intern_text(manifest->paths, (uint32_t)i), &manifest->entries.data[i]);
    rfs_json_finish(&json);
}

int rfs_manifest_text(const struct rfs_manifest *manifest, char **text, size_t *size)
{
    *text = NULL;
    FILE *out = open_memstream(text, size);

    if (!out)
        return -ENOMEM;
    put_all(out, manifest);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_hash(struct rfs_json_read *json, struct rfs_hash *out)
{
    return rfs_json_read_string(json) &&
           (rfs_hash_parse(json->text, json->text_n, out) ||
            rfs_json_read_fail(json, "a hash is not of 32 hexadecimal digits"));
}

/*
 * Below the folder, without "..", "." or an empty part, and nothing else that would lead out of it.
 */
static bool is_below(const char *path)
{
    for (;;) {
        const size_t n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && strncmp(path, "..", 2) == 0))
            return false;
        if (path[n] == '\0')
            return true;
        path += n + 1;
    }
}

/* Puts a copy of the text in the place of that in *slot. */
static bool read_text(struct rfs_json_read *json, char **slot)
{
    if (!rfs_json_read_string(json))
        return false;
    free(*slot);
    *slot = strdup(json->text);
    json->no_memory |= !*slot;
    return *slot || rfs_json_read_fail(json, "out of memory");
}

enum { HAS_PATH = 1, HAS_SIZE = 2, HAS_HASH = 4, HAS_MADE_OF = 8, HAS_ALL = 15 };

static bool read_member_of_file(struct rfs_json_read *json, char **path,
                                struct rfs_manifest_entry *entry, unsigned *has)
{
    if (strcmp(json->text, "path") == 0) {
        *has |= HAS_PATH;
        return read_text(json, path) &&
               (is_below(*path) || rfs_json_read_fail(json, "a path leads out of the folder"));
    }
    if (strcmp(json->text, "size") == 0) {
        *has |= HAS_SIZE;
        return rfs_json_read_u64(json, &entry->size);
    }
    if (strcmp(json->text, "xxh3_128") == 0) {
        *has |= HAS_HASH;
        return read_hash(json, &entry->hash);
    }
    if (strcmp(json->text, "made_of") == 0) {
        *has |= HAS_MADE_OF;
        return read_hash(json, &entry->made_of);
    }
    return strcmp(json->text, "written_ms") == 0 ? rfs_json_read_u64(json, &entry->written_ms)
                                                 : rfs_json_read_skip(json);
}

static bool read_file(struct rfs_json_read *json, struct rfs_manifest *manifest)
{
    RFS_FREE char *path = NULL;
    struct rfs_manifest_entry entry = {0};
    unsigned has = 0;
    bool first = true;

    while (rfs_json_read_member(json, &first))
        if (!read_member_of_file(json, &path, &entry, &has))
            return false;
    if (json->wrong)
        return false;
    if (has != HAS_ALL)
        return rfs_json_read_fail(json, "a file has no path, size, xxh3_128 or made_of");
    const struct rfs_manifest_entry *known = rfs_manifest_find(manifest, path);
    if (known && known->written_ms > entry.written_ms)
        return true;
    if (rfs_manifest_put(manifest, path, &entry) == 0)
        return true;
    json->no_memory = true;
    return rfs_json_read_fail(json, "out of memory");
}

static bool read_files(struct rfs_json_read *json, struct rfs_manifest *manifest)
{
    bool first = true;

    while (rfs_json_read_element(json, &first))
        if (!read_file(json, manifest))
            return false;
    return !json->wrong;
}

static bool read_small(struct rfs_json_read *json, uint32_t *out)
{
    uint64_t number;

    if (!rfs_json_read_u64(json, &number))
        return false;
    *out = (uint32_t)number;
    return number <= UINT32_MAX || rfs_json_read_fail(json, "a number is too large");
}

/* Of several manifests the largest counts. */
static bool read_most(struct rfs_json_read *json, uint64_t *most)
{
    uint64_t number;

    if (!rfs_json_read_u64(json, &number))
        return false;
    *most = number > *most ? number : *most;
    return true;
}

static bool read_member(struct rfs_json_read *json, struct rfs_manifest *manifest, bool *is_one)
{
    uint32_t version;

    if (strcmp(json->text, "format") == 0) {
        if (!rfs_json_read_string(json))
            return false;
        *is_one = strcmp(json->text, MANIFEST_FORMAT) == 0;
        return *is_one || rfs_json_read_fail(json, "not a manifest of reshard export");
    }
    if (strcmp(json->text, "version") == 0)
        return read_small(json, &version) &&
               (version == MANIFEST_VERSION ||
                rfs_json_read_fail(json, "of another version of reshard"));
    if (strcmp(json->text, "source") == 0)
        return read_text(json, &manifest->source);
    if (strcmp(json->text, "options") == 0)
        return read_text(json, &manifest->options);
    if (strcmp(json->text, "task") == 0)
        return read_small(json, &manifest->task);
    if (strcmp(json->text, "tasks") == 0)
        return read_small(json, &manifest->tasks);
    if (strcmp(json->text, "total_files") == 0)
        return read_most(json, &manifest->total_files);
    return strcmp(json->text, "files") == 0 ? read_files(json, manifest) : rfs_json_read_skip(json);
}

int rfs_manifest_parse(const char *name, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err)
{
    struct rfs_json_read json = rfs_json_read_begin(text, size);
    bool first = true;
    bool is_one = false;
    int rc = 0;

    while (rfs_json_read_member(&json, &first))
        if (!read_member(&json, manifest, &is_one))
            break;
    if (!json.wrong && rfs_json_read_end(&json) && !is_one)
        rfs_json_read_fail(&json, "not a manifest of reshard export");
    if (json.no_memory)
        rc = rfs_fail_memory(err);
    else if (json.wrong)
        rc = rfs_fail(err, -EINVAL, RFS_AT(name, json.at),
                      "another DST; or remove this file, and export with --force",
                      "not a manifest that can be read: %s", json.wrong);
    rfs_json_read_free(&json);
    return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

#define STEM "reshard-manifest"

char *rfs_manifest_name(uint32_t task, uint32_t tasks)
{
    return tasks < 2 ? strdup(RFS_MANIFEST_NAME) : rfs_text_printf(STEM ".%" PRIu32 ".json", task);
}

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
