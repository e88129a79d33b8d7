/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the format that index.c draws. */
#include "catalog/saved/index.h"

#include "base/cleanup.h"

#include <xxhash.h>

#define BODY_MOST (UINT64_C(256) << 20) /* no index is added to a file that is larger */

struct storing {
    const struct rfs_tables *tables;
    const struct rfs_saved_index *before;
    struct rfs_saved_draft draft;
    uint32_t *name_of, *type_of; /* numbers by id, or none */
    uint32_t n_names, n_types;   /* ids below these have one, or none */
    uint32_t names, types;       /* numbers given */
    uint32_t indexes, builts;
    uint32_t *kept; /* [builts of before] their numbers, or none */
    struct rfs_bytes name_bytes, type_bytes, index_bytes, built_bytes, rank_bytes;
    struct rfs_mark_place place;
    bool failed;
};

static uint32_t number_name(struct storing *s, uint32_t id)
{
    size_t length;

    if (id >= s->n_names) {
        s->failed = true;
        return 0;
    }
    if (s->name_of[id] == RFS_SAVED_NONE) {
        const char *text = rfs_intern_bytes(s->tables->names, id, &length);
        rfs_saved_put_text(&s->name_bytes, text, length);
        s->name_of[id] = s->names++;
    }
    return s->name_of[id];
}

static uint32_t number_type(struct storing *s, uint32_t id)
{
    if (id >= s->n_types) {
        s->failed = true;
        return 0;
    }
    if (s->type_of[id] == RFS_SAVED_NONE) {
        rfs_bytes_put(&s->type_bytes, rfs_intern_bytes(s->tables->types, id, NULL),
                      sizeof(struct rfs_type));
        s->type_of[id] = s->types++;
    }
    return s->type_of[id];
}

static uint32_t store_body(struct storing *s, const void *bytes, size_t n)
{
    rfs_saved_put_u64(&s->index_bytes, rfs_saved_add(&s->draft, bytes, n));
    rfs_saved_put_u64(&s->index_bytes, n);
    rfs_saved_put_u64(&s->index_bytes, XXH3_64bits(bytes, n));
    return s->indexes++;
}

/* The number of an index, which is stored when it comes for the first time. */
static uint32_t store_index(struct storing *s, struct rfs_index *index)
{
    struct rfs_bytes out = {0};

    if (!index)
        return RFS_SAVED_NONE;
    if (index->number != RFS_SAVED_NONE)
        return index->number;
    for (size_t i = 0; i < index->n; i++) {
        number_name(s, index->entries[i].name);
        number_type(s, index->entries[i].type);
    }
    const struct rfs_numbers numbers = {s->n_names, s->n_types, s->name_of, s->type_of};
    if (!s->failed)
        rfs_saved_body_put(&out, index, &numbers);
    s->failed |= out.failed;
    if (!s->failed)
        index->number = store_body(s, out.data, out.n);
    free(out.data);
    return index->number;
}

static uint32_t store_built(struct storing *s, struct rfs_built *built)
{
    if (built->number != RFS_SAVED_NONE)
        return built->number;
    rfs_saved_put_u32(&s->built_bytes, built->n_pieces);
    for (uint32_t k = 0; k < built->n_pieces; k++)
        rfs_saved_put_u32(&s->built_bytes, store_index(s, built->pieces[k]));
    rfs_saved_put_u32(&s->built_bytes, store_index(s, built->merged));
    built->number = s->builts++;
    return built->number;
}

/* Copies an index that was not read. Ids have the numbers that they had. */
static uint32_t keep_index(struct storing *s, uint32_t number)
{
    size_t n;
    RFS_FREE void *bytes =
        number == RFS_SAVED_NONE ? NULL : rfs_saved_index_body(s->before, number, &n);

    s->failed |= number != RFS_SAVED_NONE && !bytes;
    return bytes ? store_body(s, bytes, n) : RFS_SAVED_NONE;
}

static uint32_t keep_built(struct storing *s, uint32_t number)
{
    const struct rfs_saved_built *built = &s->before->builts.data[number];

    if (s->kept[number] != RFS_SAVED_NONE)
        return s->kept[number];
    rfs_saved_put_u32(&s->built_bytes, built->n_pieces);
    for (uint32_t k = 0; k < built->n_pieces; k++)
        rfs_saved_put_u32(&s->built_bytes, keep_index(s, s->before->pieces.data[built->first + k]));
    rfs_saved_put_u32(&s->built_bytes, keep_index(s, built->merged));
    s->kept[number] = s->builts++;
    return s->kept[number];
}

static uint32_t *no_numbers(size_t n)
{
    uint32_t *numbers = malloc((n + 1) * sizeof *numbers);

    if (numbers)
        memset(numbers, 0xff, (n + 1) * sizeof *numbers);
    return numbers;
}

/* Whether the data saved before keeps its numbers. */
static bool number_before(struct storing *s)
{
    const struct rfs_saved_index *before = s->before;

    s->n_names = rfs_intern_count(s->tables->names);
    s->n_types = rfs_intern_count(s->tables->types);
    s->name_of = no_numbers(s->n_names);
    s->type_of = no_numbers(s->n_types);
    s->kept = no_numbers(before ? before->builts.n : 0);
    if (!s->name_of || !s->type_of || !s->kept)
        return false;
    for (size_t i = 0; before && i < before->names.n; i++)
        if (number_name(s, before->names.data[i]) != i)
            return false; /* one comes twice */
    for (size_t i = 0; before && i < before->types.n; i++)
        if (number_type(s, before->types.data[i]) != i)
            return false;
    return true;
}

static void forget_numbers(struct rfs_built *built)
{
    built->number = RFS_SAVED_NONE;
    for (uint32_t k = 0; k < built->n_pieces; k++)
        if (built->pieces[k])
            built->pieces[k]->number = RFS_SAVED_NONE;
    if (built->merged)
        built->merged->number = RFS_SAVED_NONE;
}

/* Adds a rank, if its files are settled. How many were. */
static uint32_t store_rank(struct storing *s, const struct rfs_saving *rank,
                           struct rfs_files *files, struct timespec opened)
{
    struct rfs_bytes parts = {0};
    bool settled = true;

    for (uint32_t k = 0; settled && k < rank->parts; k++) {
        struct stat st;
        settled = rfs_files_state(files, rank->first + k) == 0 &&
                  rfs_files_stat(files, rank->first + k, &st) == 0;
        if (!settled)
            break;
        const struct rfs_mark mark = rfs_mark_of(&st);
        settled = rfs_mark_is_settled(&mark, opened) &&
                  rfs_mark_tells(rfs_files_path(files, rank->first + k), &st, &s->place);
        rfs_mark_put(&parts, rfs_files_path(files, rank->first + k), &mark);
    }
    if (settled) {
        const uint32_t number =
            rank->built ? store_built(s, rank->built) : keep_built(s, rank->before);
        rfs_saved_put_u32(&s->rank_bytes, rank->rank);
        rfs_saved_put_u32(&s->rank_bytes, number);
        rfs_saved_put_u32(&s->rank_bytes, rank->parts);
        rfs_bytes_put(&s->rank_bytes, parts.data, parts.n);
    }
    s->failed |= parts.failed;
    free(parts.data);
    return settled;
}

static void put_list(struct rfs_bytes *table, uint32_t n, const struct rfs_bytes *list)
{
    rfs_saved_put_u32(table, n);
    rfs_bytes_put(table, list->data, list->n);
    table->failed |= list->failed;
}

static bool finish(struct storing *s, uint32_t ranks)
{
    struct rfs_bytes table = {0};

    put_list(&table, s->names, &s->name_bytes);
    put_list(&table, s->types, &s->type_bytes);
    put_list(&table, s->indexes, &s->index_bytes);
    put_list(&table, s->builts, &s->built_bytes);
    put_list(&table, ranks, &s->rank_bytes);
    table.failed |= s->failed;
    const bool written = rfs_saved_finish(&s->draft, &table);
    free(table.data);
    return written;
}

bool rfs_saved_index_store(struct rfs_saved *saved, const char *key,
                           const struct rfs_tables *tables, struct rfs_files *files,
                           struct timespec opened, const struct rfs_saved_index *before,
                           const struct rfs_saving *ranks, size_t n)
{
    struct storing s = {.tables = tables, .before = before};
    bool written = false;
    uint32_t stored = 0;

    if (number_before(&s) && rfs_saved_begin(saved, RFS_SAVED_INDEX, key, &s.draft)) {
        for (size_t i = 0; i < n; i++)
            if (ranks[i].built)
                forget_numbers(ranks[i].built);
        for (size_t i = 0; i < n && !s.failed && s.draft.end < BODY_MOST; i++)
            stored += store_rank(&s, &ranks[i], files, opened);
        if (stored > 0)
            written = finish(&s, stored);
        else
            rfs_saved_drop(&s.draft);
    }
    free(s.name_of);
    free(s.type_of);
    free(s.kept);
    free(s.name_bytes.data);
    free(s.type_bytes.data);
    free(s.index_bytes.data);
    free(s.built_bytes.data);
    free(s.rank_bytes.data);
    return written;
}
