/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   {"0": "a/rank_0.ckpt", "1": "…"}
 *   {"metadata": {…}, "MEMBER": {"w": "a.safetensors"}}
 *
 * Of keys given twice the last would count in Python; here they are refused.
 */
#include "store/mapfile.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/origin.h"
#include "base/vec.h"
#include "store/beneath.h"

#include <sys/random.h>
#include <xxhash.h>

/* A pair by its key. Keys of other hashes are not read: those of a large map are in no cache. */
struct cell {
    uint32_t pair; /* its number plus 1, or 0 */
    uint32_t hash; /* that of the key */
};

/*
 * A map being read. Texts lie where the file's bytes were: without quotes and escapes they are
 * shorter, with a NUL behind each.
 */
struct reader {
    struct rfs_mapfile *map;
    const char *path;
    struct rfs_mapfile_form form;
    struct rfs_error *err;
    size_t kept;        /* bytes of texts */
    struct cell *table; /* owned */
    size_t cap;         /* a power of two, or 0; at most 3/4 of it is used */
    uint64_t seed;      /* so that keys cannot be chosen to collide */
};

void rfs_mapfile_free(struct rfs_mapfile *map)
{
    free(map->text);
    free(map->data);
    *map = (struct rfs_mapfile){0};
}

static int fail(const struct reader *reader, const char *what)
{
    return rfs_fail(reader->err, -EINVAL, RFS_IN(reader->path), "the file as it was written", what,
                    reader->form.member);
}

static int fail_json(const struct reader *reader, const struct rfs_json_read *json)
{
    return json->no_memory ? rfs_fail_memory(reader->err)
                           : rfs_fail(reader->err, -EINVAL, RFS_AT(reader->path, json->at), NULL,
                                      "not valid JSON: %s", json->wrong);
}

static uint32_t hash_of(const struct reader *reader, const char *key, size_t length)
{
    return (uint32_t)XXH3_64bits_withSeed(key, length, reader->seed);
}

/* Finds the cell of a key, or the empty one where it belongs. */
static struct cell *cell_of(const struct reader *reader, const char *key, uint32_t hash)
{
    for (size_t at = hash;; at++) {
        struct cell *cell = &reader->table[at & (reader->cap - 1)];
        if (cell->pair == 0 ||
            (cell->hash == hash && strcmp(reader->map->data[cell->pair - 1].key, key) == 0))
            return cell;
    }
}

/* Puts a cell, whose key is not there, into a table of CAP. */
static void put_cell(struct cell *table, size_t cap, struct cell cell)
{
    size_t at = cell.hash & (cap - 1);

    while (table[at].pair != 0)
        at = (at + 1) & (cap - 1);
    table[at] = cell;
}

static bool grow(struct reader *reader)
{
    const size_t cap = reader->cap ? reader->cap * 2 : 256;
    struct cell *table = calloc(cap, sizeof *table);

    for (size_t i = 0; table && i < reader->cap; i++)
        if (reader->table[i].pair != 0)
            put_cell(table, cap, reader->table[i]);
    free(reader->table);
    reader->table = table;
    reader->cap = table ? cap : 0;
    return table != NULL;
}

/* Copies the text that was read last to the map's. */
static char *keep(struct reader *reader, const struct rfs_json_read *json)
{
    char *text = reader->map->text + reader->kept;

    memcpy(text, json->text, json->text_n + 1);
    reader->kept += json->text_n + 1;
    return text;
}

/* Makes the path below a folder that is "./a//./b" "a/b". */
static void shorten(char *path)
{
    char *to = path;

    for (const char *at = path; *at;) {
        const size_t n = strcspn(at, "/");
        const size_t slashes = strspn(at + n, "/");
        if (n != 1 || *at != '.') {
            memmove(to, at, n);
            to += n;
            if (slashes > 0)
                *to++ = '/';
        }
        at += n + slashes;
    }
    *to = '\0';
}

/* Reads the value of a key that was read. */
static int read_pair(struct reader *reader, struct rfs_json_read *json)
{
    struct rfs_mapfile *map = reader->map;
    const uint32_t hash = hash_of(reader, json->text, json->text_n);
    struct rfs_mapfile_pair pair = {.key = keep(reader, json)};

    if (map->n >= INT32_MAX || (map->n >= reader->cap / 4 * 3 && !grow(reader)))
        return rfs_fail_memory(reader->err);
    struct cell *cell = cell_of(reader, pair.key, hash);
    if (!rfs_json_read_peek(json, '"'))
        return rfs_fail(reader->err, -EINVAL, RFS_IN(reader->path), "the name of a file for each",
                        "the value of '%.200s' is not a text", pair.key);
    if (!rfs_json_read_string(json))
        return fail_json(reader, json);
    char *value = keep(reader, json);
    if (cell->pair != 0)
        return rfs_fail(reader->err, -EINVAL, RFS_IN(reader->path), "leave one of them out",
                        "the key '%.200s' comes twice, with '%.200s' and with '%.200s'", pair.key,
                        map->data[cell->pair - 1].value, value);
    if (reader->form.member && rfs_origin_stays(value))
        shorten(value);
    pair.value = value;
    if (!RFS_PUSH(map, pair))
        return rfs_fail_memory(reader->err);
    *cell = (struct cell){(uint32_t)map->n, hash};
    return 0;
}

static int read_pairs(struct reader *reader, struct rfs_json_part part)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(reader->map->text + part.at, part.n);
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&json, &first))
        rc = read_pair(reader, &json);
    return rc == 0 && json.wrong ? fail_json(reader, &json) : rc;
}

/* Finds the object that is the map; all around it is looked at as well. */
static int find_map(const struct reader *reader, size_t size, struct rfs_json_part *out)
{
    const char *member = reader->form.member;
    const size_t member_n = member ? strlen(member) : 0;
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read json = rfs_json_read_begin(reader->map->text, size);
    struct rfs_json_part part;
    size_t found = 0;
    bool first = true;

    const bool is_object = rfs_json_read_peek(&json, '{');
    *out = (struct rfs_json_part){json.at, size - json.at};
    while (is_object && rfs_json_read_member(&json, &first)) {
        const bool is_map =
            member && json.text_n == member_n && memcmp(json.text, member, member_n) == 0;
        if (!rfs_json_read_part(&json, &part))
            break;
        if (!is_map)
            continue;
        *out = part;
        found++;
    }
    if (!is_object)
        rfs_json_read_skip(&json);
    if (!rfs_json_read_end(&json))
        return fail_json(reader, &json);
    if (!is_object)
        return rfs_fail(reader->err, -EINVAL, RFS_IN(reader->path), "the file as it was written",
                        "not a JSON object");
    if (found > 1)
        return fail(reader, "%s comes twice");
    if (found == 0 && reader->form.needed)
        return fail(reader, "it has no %s, which says where each parameter is");
    return reader->map->text[out->at] == '{' ? 0 : fail(reader, "its %s is not an object");
}

int rfs_mapfile_parse(const char *path, char *data, size_t size, struct rfs_mapfile_form form,
                      struct rfs_mapfile *out, struct rfs_error *err)
{
    struct reader reader = {.map = out, .path = path, .form = form, .err = err};
    struct rfs_json_part part;

    *out = (struct rfs_mapfile){.text = data};
    if (getrandom(&reader.seed, sizeof reader.seed, GRND_NONBLOCK) != (ssize_t)sizeof reader.seed)
        reader.seed = (uintptr_t)data;
    int rc = find_map(&reader, size, &part) ?: read_pairs(&reader, part);
    free(reader.table);
    return rc;
}

int rfs_mapfile_read(const struct rfs_beneath *beneath, struct rfs_store *store, const char *path,
                     struct rfs_mapfile_form form, struct rfs_mapfile *out, struct rfs_error *err)
{
    char *data = NULL;
    size_t size;
    *out = (struct rfs_mapfile){0};
    const int rc = rfs_beneath_read(beneath, store, path, RFS_MAPFILE_BYTES, &data, &size, err);
    return rc < 0 ? rc : rfs_mapfile_parse(path, data, size, form, out, err);
}
