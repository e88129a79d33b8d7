/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules are those of the readers of such checkpoints.
 *
 * load_segmented_checkpoints of MindSpore updates one dict by file after file: a name has the last
 * file's value and the first one's place. Names with a prefix of filter_prefix are left out of
 * each. unified_safetensors' output is read by its map (_load_parallel_checkpoint): a tensor that
 * the map does not list is not read, but those of hyper_param.safetensors, which the map does not
 * name, all are. Readers of HuggingFace's files read all that is in them.
 */
#include "catalog/merge.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/vec.h"
#include "formats/safetensors/safetensors.h"

#define REMEDY_SAVE "copy the folder again, or save the checkpoint again"

/* ---- the map --------------------------------------------------------------------------------- */

/* A map that is being read. */
struct mapping {
    struct rfs_merge_map *map;
    const struct rfs_merge *merge;
    struct rfs_intern *tails; /* the files' paths below the map's folder; owned, as the next two */
    uint32_t *file_of;        /* [ids of tails] numbers of the first files that have them */
    size_t *next;             /* [merge->n] the entry of each file that the next pair may name */
    const char *last;         /* the file of the last pair, and its number; or NULL */
    uint32_t last_file;
    struct rfs_error *err;
};

static int fail_map_memory(const struct mapping *m)
{
    return rfs_fail_memory_of(m->err, m->map->path);
}

/* Returns a file's path as the map has it. */
static const char *tail_of(const struct mapping *m, const char *file)
{
    const size_t folder = (size_t)(rfs_path_name(m->map->path) - m->map->path);

    return strncmp(file, m->map->path, folder) == 0 ? file + folder : rfs_path_name(file);
}

static int index_files(struct mapping *m)
{
    m->tails = rfs_intern_new();
    m->file_of = calloc(m->merge->n + 1, sizeof *m->file_of);
    m->next = calloc(m->merge->n + 1, sizeof *m->next);
    if (!m->tails || !m->file_of || !m->next)
        return fail_map_memory(m);
    for (size_t i = 0; i < m->merge->n; i++) {
        const char *tail = tail_of(m, m->merge->files[i]);
        const uint32_t before = rfs_intern_count(m->tails);
        const uint32_t id = rfs_intern_add(m->tails, tail, strlen(tail));
        if (id == RFS_NO_ID)
            return fail_map_memory(m);
        if (id == before)
            m->file_of[id] = (uint32_t)i;
    }
    return 0;
}

/* Finds the file that a pair names: most name that of the pair before. */
static int find_file(struct mapping *m, const struct rfs_mapfile_pair *pair, uint32_t *file)
{
    if (!m->last || strcmp(m->last, pair->value) != 0) {
        const uint32_t id = rfs_intern_find(m->tails, pair->value, strlen(pair->value));
        if (id == RFS_NO_ID)
            return rfs_fail(m->err, -ENOENT, RFS_OF(m->map->path, pair->key), REMEDY_SAVE,
                            "should be in '%.200s', and that file is missing", pair->value);
        m->last = pair->value;
        m->last_file = m->file_of[id];
    }
    *file = m->last_file;
    return 0;
}

/*
 * Finds the id of a name in a file, or RFS_NO_ID. Maps mostly have the names of a file in the
 * file's order: then comparing finds the id, where a look-up would read a line of a large table.
 */
static uint32_t find_name(struct mapping *m, const char *name, uint32_t file)
{
    struct rfs_intern *names = m->merge->tables->names;
    const struct rfs_index *index = m->merge->indexes ? m->merge->indexes[file] : NULL;
    const size_t n = strlen(name);
    const struct rfs_entry *entry = NULL;
    size_t bytes;

    if (index && m->next[file] < index->n) {
        entry = &index->entries[m->next[file]];
        const char *text = rfs_intern_bytes(names, entry->name, &bytes);
        if (bytes == n && memcmp(text, name, n) == 0) {
            m->next[file]++;
            return entry->name;
        }
    }
    const uint32_t id = rfs_intern_add(names, name, n);
    entry = index ? rfs_index_find(index, id) : NULL;
    if (entry)
        m->next[file] = (size_t)(entry - index->entries) + 1;
    return id;
}

static int add_pair(struct mapping *m, const struct rfs_mapfile_pair *pair)
{
    struct rfs_merge_mapped mapped = {0};
    const int rc = find_file(m, pair, &mapped.file);
    if (rc)
        return rc;
    mapped.name = find_name(m, pair->key, mapped.file);
    if (mapped.name == RFS_NO_ID || m->map->n >= UINT32_MAX || !RFS_PUSH(m->map, mapped))
        return fail_map_memory(m);
    return 0;
}

static int by_mapped_name(const void *a, const void *b, void *ctx)
{
    const struct rfs_merge_mapped *list = ctx;
    const uint32_t x = list[*(const uint32_t *)a].name;
    const uint32_t y = list[*(const uint32_t *)b].name;
    return x < y ? -1 : x > y;
}

static int order_names(struct mapping *m)
{
    struct rfs_merge_map *map = m->map;
    map->by_name = malloc(map->n * sizeof *map->by_name + 1);
    if (!map->by_name)
        return fail_map_memory(m);
    for (size_t i = 0; i < map->n; i++)
        map->by_name[i] = (uint32_t)i;
    RFS_SORT_BY(map->by_name, map->n, by_mapped_name, map->data);
    return 0;
}

int rfs_merge_map_read(const struct rfs_merge *merge, struct rfs_merge_map *out,
                       struct rfs_error *err)
{
    const char *path = merge->weight_map;
    struct mapping m = {.map = out, .merge = merge, .err = err};
    struct rfs_mapfile own = {0};
    struct rfs_mapfile *pairs = merge->map ? merge->map : &own;
    enum rfs_weight_map_style style;
    int rc = 0;

    *out = (struct rfs_merge_map){.path = strdup(path)};
    if (!out->path)
        return rfs_fail_memory_of(err, path);
    (void)rfs_safetensors_map_style(rfs_path_name(path), &style);
    out->closed = style == RFS_WEIGHT_MAP_MINDSPORE && merge->n > 1;
    if (pairs->n == 0)
        rc = rfs_mapfile_read(merge->beneath, merge->store, path, rfs_weight_map_forms[style],
                              pairs, err);
    if (rc == 0)
        rc = index_files(&m);
    for (size_t i = 0; rc == 0 && i < pairs->n; i++)
        rc = add_pair(&m, &pairs->data[i]);
    if (rc == 0)
        rc = order_names(&m);
    rfs_mapfile_free(pairs);
    rfs_intern_free(m.tails);
    free(m.file_of);
    free(m.next);
    return rc;
}

void rfs_merge_map_free(struct rfs_merge_map *map)
{
    free(map->data);
    free(map->by_name);
    free(map->path);
    *map = (struct rfs_merge_map){0};
}

const struct rfs_merge_mapped *rfs_merge_map_find(const struct rfs_merge_map *map, uint32_t name)
{
    const size_t at = RFS_BISECT_KEY(i, map->n, map->data[map->by_name[i]].name, name);

    return at < map->n ? &map->data[map->by_name[at]] : NULL;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* A value that may get into the index. */
struct candidate {
    uint64_t order; /* ascending in the result */
    const struct rfs_entry *entry;
    uint32_t file;
};

struct work {
    const struct rfs_merge *merge;
    struct rfs_merge_map map; /* without a path if there is none; owned */
    struct rfs_error *err;
    struct candidate *list; /* owned */
    size_t n;
    bool *named; /* [merge->n] whether the map names the file; owned */
    size_t unlisted;
};

static void free_work(struct work *work)
{
    free(work->list);
    free(work->named);
    rfs_merge_map_free(&work->map);
}

static int fail_memory(const struct work *work)
{
    return rfs_fail_memory_of(work->err, work->merge->files[0]);
}

static const char *name_text(const struct work *work, uint32_t name)
{
    return rfs_intern_text(work->merge->tables->names, name);
}

/* Takes the next of the prefixes "a:b" off *LIST; N is its length. NULL: there is none. */
static const char *take_prefix(const char **list, size_t *n)
{
    const char *prefix = *list ? *list + strspn(*list, ":") : "";

    *n = strcspn(prefix, ":");
    *list = prefix + *n;
    return *n > 0 ? prefix : NULL;
}

static bool is_skipped(const char *skip, const char *name)
{
    const char *prefix;
    size_t n;

    while ((prefix = take_prefix(&skip, &n)) != NULL)
        if (strncmp(name, prefix, n) == 0)
            return true;
    return false;
}

static bool begins_a_name(const struct work *work, const char *prefix, size_t n)
{
    const struct rfs_merge *merge = work->merge;

    for (size_t i = 0; i < merge->n; i++)
        for (size_t k = 0; k < merge->indexes[i]->n; k++)
            if (strncmp(name_text(work, merge->indexes[i]->entries[k].name), prefix, n) == 0)
                return true;
    return false;
}

/* Warns of prefixes that begin no name: what they should leave out stays. */
static void tell_unskipped(const struct work *work)
{
    const char *rest = work->merge->skip;
    const char *prefix;
    size_t n;

    while ((prefix = take_prefix(&rest, &n)) != NULL)
        if (!begins_a_name(work, prefix, n))
            rfs_log(work->merge->log, RFS_WARNING,
                    "%s: option segmented_skip: no name in its folder begins with '%.*s'",
                    work->merge->files[0], (int)n, prefix);
}

/* Checks that every entry of the map is in its file. */
static int check_map(const struct work *work)
{
    const struct rfs_merge *merge = work->merge;
    for (size_t i = 0; i < work->map.n; i++) {
        const struct rfs_merge_mapped *mapped = &work->map.data[i];
        work->named[mapped->file] = true;
        if (!rfs_index_find(merge->indexes[mapped->file], mapped->name))
            return rfs_fail(work->err, -EINVAL,
                            RFS_OF(work->map.path, name_text(work, mapped->name)), REMEDY_SAVE,
                            "should be in %s, but is not", merge->files[mapped->file]);
    }
    return 0;
}

static void add(struct work *work, uint32_t file, const struct rfs_entry *entry)
{
    const struct rfs_merge_mapped *mapped = rfs_merge_map_find(&work->map, entry->name);
    uint64_t order = work->map.n + work->n;
    if (is_skipped(work->merge->skip, name_text(work, entry->name)))
        return;
    if (mapped && mapped->file == file)
        order = (uint64_t)(mapped - work->map.data);
    else if (work->map.closed && work->named[file]) {
        work->unlisted++;
        return;
    }
    work->list[work->n++] = (struct candidate){order, entry, file};
}

RFS_COMPARE(compare_names, struct candidate, x, y,
            RFS_ORDER(x->entry->name, y->entry->name) ?: RFS_ORDER(x->file, y->file))

RFS_COMPARE(compare_orders, struct candidate, x, y, RFS_ORDER(x->order, y->order))

static int fail_twice(const struct work *work, const struct candidate *twice)
{
    const struct rfs_merge *merge = work->merge;

    return rfs_fail(work->err, -EINVAL,
                    RFS_OF(merge->files[twice[1].file], name_text(work, twice[1].entry->name)),
                    "remove the file that does not belong there",
                    "is in %s, too, and only one of the two can count",
                    merge->files[twice[0].file]);
}

/* Leaves each name once. Of those that may not come twice the first that does is reported. */
static int settle_names(struct work *work)
{
    struct candidate twice[2] = {{.entry = NULL}};
    size_t n = 0;
    RFS_SORT(work->list, work->n, compare_names);
    for (size_t i = 0; i < work->n; i++) {
        const struct candidate *one = &work->list[i];
        struct candidate *last = n > 0 ? &work->list[n - 1] : NULL;
        if (!last || last->entry->name != one->entry->name) {
            work->list[n++] = *one;
            continue;
        }
        if (!work->merge->last_counts && (!twice[1].entry || one->order < twice[1].order)) {
            twice[0] = *last;
            twice[1] = *one;
        }
        last->order = rfs_min_u64(last->order, one->order);
        last->entry = one->entry;
        last->file = one->file;
    }
    if (twice[1].entry)
        return fail_twice(work, twice);
    work->n = n;
    RFS_SORT(work->list, work->n, compare_orders);
    return 0;
}

static struct rfs_index *allocate(const struct work *work)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t extents = 0;
    size_t strided = 0;
    if (!index)
        return NULL;
    for (size_t i = 0; i < work->merge->n; i++) {
        extents += work->merge->indexes[i]->n_extents;
        strided += work->merge->indexes[i]->n_strided;
    }
    index->entries = malloc(work->n * sizeof *index->entries);
    index->extents = extents > 0 ? malloc(extents * sizeof *index->extents) : NULL;
    index->strided = strided > 0 ? malloc(strided * sizeof *index->strided) : NULL;
    index->file_of = work->merge->n > 1 ? malloc(work->n * sizeof *index->file_of) : NULL;
    if (index->entries && (index->extents || extents == 0) && (index->strided || strided == 0) &&
        (index->file_of || work->merge->n == 1))
        return index;
    rfs_index_free(index);
    return NULL;
}

/* Appends an entry with all that belongs to it; there is room. False for too many extents. */
static bool take(struct rfs_index *index, const struct candidate *one, const struct rfs_index *from)
{
    const uint64_t *strides = rfs_index_strides(from, one->entry);
    struct rfs_entry *to = &index->entries[index->n];

    *to = *one->entry;
    if (to->extent_count > 0) {
        if (index->n_extents > UINT32_MAX - to->extent_count)
            return false;
        memcpy(index->extents + index->n_extents, from->extents + to->extent,
               to->extent_count * sizeof *index->extents);
        to->extent = (uint32_t)index->n_extents;
        index->n_extents += to->extent_count;
    }
    if (strides) {
        struct rfs_strided *strided = &index->strided[index->n_strided++];
        strided->entry = (uint32_t)index->n;
        memcpy(strided->stride, strides, sizeof strided->stride);
    }
    if (index->file_of)
        index->file_of[index->n] = one->file;
    index->n++;
    return true;
}

static int fill(const struct work *work, struct rfs_index *index)
{
    const struct rfs_merge *merge = work->merge;
    for (size_t i = 0; i < work->n; i++)
        if (!take(index, &work->list[i], merge->indexes[work->list[i].file]))
            return -ENOMEM;
    for (size_t i = 0; i < merge->n; i++) {
        if (!rfs_add_u64(index->file_bytes, merge->indexes[i]->file_bytes, &index->file_bytes))
            index->file_bytes = UINT64_MAX;
        index->has_crc |= merge->indexes[i]->has_crc;
        index->redundancy_removed |= merge->indexes[i]->redundancy_removed;
    }
    size_t a;
    size_t b;
    return rfs_index_order_names(index, &a, &b);
}

static int collect(struct work *work)
{
    const struct rfs_merge *merge = work->merge;
    size_t most = 0;
    for (size_t i = 0; i < merge->n; i++)
        most += merge->indexes[i]->n;
    work->list = malloc(most * sizeof *work->list + 1);
    work->named = calloc(merge->n, sizeof *work->named);
    if (!work->list || !work->named)
        return fail_memory(work);
    const int rc = check_map(work);
    for (size_t i = 0; rc == 0 && i < merge->n; i++)
        for (size_t k = 0; k < merge->indexes[i]->n; k++)
            add(work, (uint32_t)i, &merge->indexes[i]->entries[k]);
    return rc;
}

int rfs_merge(const struct rfs_merge *merge, struct rfs_index **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_work) struct work work = {.merge = merge, .err = err};
    int rc = 0;
    *out = NULL;
    if (merge->weight_map)
        rc = rfs_merge_map_read(merge, &work.map, err);
    if (rc == 0)
        rc = collect(&work) ?: settle_names(&work);
    if (rc)
        return rc;
    tell_unskipped(&work);
    if (work.n == 0 || work.n > UINT32_MAX)
        return rfs_fail(err, -EINVAL, RFS_IN(merge->files[0]),
                        merge->skip ? "fewer prefixes in segmented_skip" : REMEDY_SAVE,
                        work.n == 0 ? "no parameter is left" : "too many parameters");
    struct rfs_index *index = allocate(&work);
    if (!index || fill(&work, index) != 0) {
        rfs_index_free(index);
        return fail_memory(&work);
    }
    if (work.unlisted > 0)
        rfs_log(merge->log, RFS_WARNING,
                "%s: lists %zu of the parameters fewer than the files have; "
                "they are left out, as MindSpore leaves them",
                work.map.path, work.unlisted);
    *out = index;
    return 0;
}
