/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/manifest.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/progress.h"

#include <time.h>

#define MANIFEST_FORMAT "reshard-manifest"
#define MANIFEST_VERSION 1
#define NOT_ONE "not a manifest of reshard export"

int rfs_manifest_init(struct rfs_manifest *manifest)
{
    *manifest = (struct rfs_manifest){.tasks = 1, .paths = rfs_intern_new()};
    return manifest->paths ? 0 : -ENOMEM;
}

void rfs_manifest_free(struct rfs_manifest *manifest)
{
    free(manifest->source);
    free(manifest->options);
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

/* Returns whether a path stays below the folder: no component is empty, "." or "..". */
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

/* A file of the list, as it is read. */
struct file {
    char *path; /* owned */
    struct rfs_manifest_entry entry;
};

static bool read_path(struct rfs_json_read *json, void *at)
{
    return rfs_json_field_text(json, at) &&
           (is_below(*(char **)at) || rfs_json_read_fail(json, "a path leads out of the folder"));
}

static const struct rfs_json_field fields_of_file[] = {
    {"path", read_path, offsetof(struct file, path), true},
    {"size", rfs_json_field_u64, offsetof(struct file, entry.size), true},
    {"xxh3_128", rfs_hash_read, offsetof(struct file, entry.hash), true},
    {"made_of", rfs_hash_read, offsetof(struct file, entry.made_of), true},
    {"written_ms", rfs_json_field_u64, offsetof(struct file, entry.written_ms), false},
};

static bool read_file(struct rfs_json_read *json, struct rfs_manifest *manifest, struct file *file)
{
    if (!rfs_json_read_object(json, fields_of_file, sizeof fields_of_file / sizeof *fields_of_file,
                              "a file has no path, size, xxh3_128 or made_of", file))
        return false;
    const struct rfs_manifest_entry *known = rfs_manifest_find(manifest, file->path);
    if (known && known->written_ms > file->entry.written_ms)
        return true;
    if (rfs_manifest_put(manifest, file->path, &file->entry) == 0)
        return true;
    json->no_memory = true;
    return rfs_json_read_fail(json, "out of memory");
}

static bool read_files(struct rfs_json_read *json, void *manifest)
{
    bool first = true, good = true;

    while (good && rfs_json_read_element(json, &first)) {
        struct file file = {.path = NULL};
        good = read_file(json, manifest, &file);
        free(file.path);
    }
    return good && !json->wrong;
}

static bool read_format(struct rfs_json_read *json, void *at)
{
    (void)at;
    return rfs_json_read_string(json) &&
           (rfs_json_read_is(json, MANIFEST_FORMAT) || rfs_json_read_fail(json, NOT_ONE));
}

static bool read_version(struct rfs_json_read *json, void *at)
{
    uint32_t version;

    (void)at;
    return rfs_json_field_u32(json, &version) &&
           (version == MANIFEST_VERSION ||
            rfs_json_read_fail(json, "of another version of reshard"));
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

static const struct rfs_json_field fields[] = {
    {"format", read_format, 0, true},
    {"version", read_version, 0, false},
    {"source", rfs_json_field_text, offsetof(struct rfs_manifest, source), false},
    {"options", rfs_json_field_text, offsetof(struct rfs_manifest, options), false},
    {"task", rfs_json_field_u32, offsetof(struct rfs_manifest, task), false},
    {"tasks", rfs_json_field_u32, offsetof(struct rfs_manifest, tasks), false},
    {"total_files", read_most, offsetof(struct rfs_manifest, total_files), false},
    {"files", read_files, 0, false},
};

int rfs_manifest_parse(const char *name, const char *text, size_t size,
                       struct rfs_manifest *manifest, struct rfs_error *err)
{
    const char *wrong;
    uint64_t at;
    const int rc = rfs_json_read_whole(text, size, fields, sizeof fields / sizeof *fields, NOT_ONE,
                                       manifest, &at, &wrong);

    if (rc == -EINVAL)
        return rfs_fail(err, rc, RFS_AT(name, at),
                        "another DST; or remove this file, and export with --force",
                        "not a manifest that can be read: %s", wrong);
    return rc ? rfs_fail_memory(err) : 0;
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

/* ---- the manifest of this task --------------------------------------------------------------- */

#define SAVE_EVERY 1.0 /* seconds between two saves, at least */
#define SAVE_SHARE 20  /* times as long as a save took, at least */

int rfs_manifest_saver_init(struct rfs_manifest_saver *saver, const struct rfs_dest *dest,
                            bool sync)
{
    *saver = (struct rfs_manifest_saver){.dest = dest, .sync = sync};
    pthread_mutex_init(&saver->lock, NULL);
    return rfs_manifest_init(&saver->manifest);
}

void rfs_manifest_saver_destroy(struct rfs_manifest_saver *saver)
{
    rfs_manifest_free(&saver->manifest);
    pthread_mutex_destroy(&saver->lock);
}

uint64_t rfs_manifest_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Saves the manifest. The caller has the lock and set saving; the lock is released meanwhile. */
static int save_locked(struct rfs_manifest_saver *saver, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    int rc = rfs_manifest_text(&saver->manifest, &text, &size);
    RFS_FREE char *name = rfs_manifest_name(saver->manifest.task, saver->manifest.tasks);

    pthread_mutex_unlock(&saver->lock);
    const double begun = rfs_progress_now();
    rc = rc || !name ? rfs_fail_memory(err)
                     : rfs_dest_save(saver->dest, name, text, size, saver->sync, err);
    const double took = rfs_progress_now() - begun;
    pthread_mutex_lock(&saver->lock);
    saver->due = begun + took + (took * SAVE_SHARE > SAVE_EVERY ? took * SAVE_SHARE : SAVE_EVERY);
    saver->saving = false;
    return rc;
}

int rfs_manifest_saver_add(struct rfs_manifest_saver *saver, const char *path,
                           const struct rfs_manifest_entry *entry, struct rfs_error *err)
{
    pthread_mutex_lock(&saver->lock);
    int rc = rfs_manifest_put(&saver->manifest, path, entry);
    const bool save = rc == 0 && !saver->saving && rfs_progress_now() >= saver->due;
    if (save) {
        saver->saving = true;
        rc = save_locked(saver, err);
    } else if (rc) {
        rfs_fail_memory(err);
    }
    pthread_mutex_unlock(&saver->lock);
    return rc;
}

int rfs_manifest_saver_save(struct rfs_manifest_saver *saver, struct rfs_error *err)
{
    pthread_mutex_lock(&saver->lock);
    saver->saving = true;
    const int rc = save_locked(saver, err);
    pthread_mutex_unlock(&saver->lock);
    return rc;
}
