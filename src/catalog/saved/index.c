/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of saved indexes, behind the key:
 *
 *   u32 n, names: u32 length, text
 *   u32 n, types: struct rfs_type
 *   u32 n, indexes: u64 offset, u64 bytes, u64 XXH3-64 of the bytes that body.c draws
 *   u32 n, of ranks: u32 files; for each of them u32 index, or NONE; u32 index of all, or NONE
 *   u32 n, ranks, ascending: u32 rank, u32 number of the above, u32 files;
 *          for each of them u32 length, path, u64 inode, size, mtime, its ns, ctime, its ns
 */
#include "catalog/saved/index.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/store.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#ifndef ROMFS_MAGIC
#define ROMFS_MAGIC 0x7275
#endif
#ifndef EXFAT_SUPER_MAGIC
#define EXFAT_SUPER_MAGIC 0x2011bab0
#endif
#ifndef EROFS_SUPER_MAGIC_V1
#define EROFS_SUPER_MAGIC_V1 0xe0f5e1e2
#endif

struct rfs_mark rfs_mark_of(const struct stat *st)
{
    return (struct rfs_mark){st->st_ino,          st->st_size,        st->st_mtim.tv_sec,
                             st->st_mtim.tv_nsec, st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
}

static bool is_before(int64_t sec, int64_t nsec, struct timespec limit)
{
    return sec < limit.tv_sec || (sec == limit.tv_sec && nsec < limit.tv_nsec);
}

bool rfs_mark_is_settled(const struct rfs_mark *mark, struct timespec opened)
{
    opened.tv_sec -= RFS_TICK_SECONDS;
    return is_before(mark->mtime, mark->mtime_ns, opened) &&
           is_before(mark->ctime, mark->ctime_ns, opened);
}

bool rfs_mark_tells(const char *path, const struct stat *st, struct rfs_mark_place *last)
{
    static const uint32_t not_these[] = {SQUASHFS_MAGIC,   EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC,
                                         CRAMFS_MAGIC,     ROMFS_MAGIC,          MSDOS_SUPER_MAGIC,
                                         EXFAT_SUPER_MAGIC};
    struct statfs fs;

    if (rfs_is_url(path)) /* the inode stands for the version */
        return true;
    if (last->known && last->dev == st->st_dev)
        return last->trusted;
    *last = (struct rfs_mark_place){st->st_dev, true, statfs(path, &fs) == 0};
    for (size_t i = 0; last->trusted && i < sizeof not_these / sizeof *not_these; i++)
        last->trusted = (uint32_t)fs.f_type != not_these[i];
    return last->trusted;
}

void rfs_mark_put(struct rfs_bytes *out, const char *path, const struct rfs_mark *mark)
{
    rfs_saved_put_text(out, path, strlen(path));
    rfs_bytes_put(out, mark, sizeof *mark);
}

bool rfs_mark_take(struct rfs_saved_in *in, const char **path, size_t *length,
                   struct rfs_mark *mark)
{
    *path = rfs_saved_take_text(in, length);
    const void *bytes = rfs_saved_take(in, sizeof *mark);

    if (!bytes)
        return false;
    memcpy(mark, bytes, sizeof *mark);
    return true;
}

static void no(struct rfs_saved_in *in, bool failed)
{
    in->bad |= failed;
}

static void take_names(struct rfs_saved_index *index, const struct rfs_tables *tables)
{
    struct rfs_saved_in *in = &index->file.in;
    const uint32_t n = rfs_saved_take_count(in, sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        size_t length;
        const char *text = rfs_saved_take_text(in, &length);
        const bool sound = text && length > 0 && !memchr(text, '\0', length);
        const uint32_t id = sound ? rfs_intern_add(tables->names, text, length) : RFS_NO_ID;
        no(in, id == RFS_NO_ID || !RFS_PUSH(&index->names, id));
    }
}

static void take_types(struct rfs_saved_index *index, const struct rfs_tables *tables)
{
    struct rfs_saved_in *in = &index->file.in;
    const uint32_t n = rfs_saved_take_count(in, sizeof(struct rfs_type));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_type type;
        const void *bytes = rfs_saved_take(in, sizeof type);
        if (!bytes)
            return;
        memcpy(&type, bytes, sizeof type);
        const bool sound = rfs_saved_type_is_sound(&type);
        const uint32_t id = sound ? rfs_intern_add(tables->types, &type, sizeof type) : RFS_NO_ID;
        no(in, id == RFS_NO_ID || !RFS_PUSH(&index->types, id));
    }
}

static bool is_index(const struct rfs_saved_index *index, uint32_t number)
{
    return number < index->n_indexes || number == RFS_SAVED_NONE;
}

static void take_builts(struct rfs_saved_index *index)
{
    struct rfs_saved_in *in = &index->file.in;
    index->n_indexes = rfs_saved_take_count(in, RFS_SAVED_INDEX_BYTES);
    index->indexes = rfs_saved_take(in, (size_t)index->n_indexes * RFS_SAVED_INDEX_BYTES);
    const uint32_t n = rfs_saved_take_count(in, 3 * sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_saved_built built = {.first = index->pieces.n};
        built.n_pieces = rfs_saved_take_count(in, sizeof(uint32_t));
        for (uint32_t k = 0; k < built.n_pieces && !in->bad; k++) {
            const uint32_t piece = rfs_saved_take_u32(in);
            no(in, !is_index(index, piece) || !RFS_PUSH(&index->pieces, piece));
        }
        built.merged = rfs_saved_take_u32(in);
        no(in, built.n_pieces == 0 || !is_index(index, built.merged) ||
                   !RFS_PUSH(&index->builts, built));
        /* Nothing else shows the merged contents of several files. */
        no(in, !in->bad && built.merged == RFS_SAVED_NONE &&
                   (built.n_pieces > 1 || index->pieces.data[built.first] == RFS_SAVED_NONE));
    }
}

static void take_ranks(struct rfs_saved_index *index)
{
    struct rfs_saved_in *in = &index->file.in;
    const uint32_t n = rfs_saved_take_count(in, 3 * sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_saved_rank rank = {.first = index->parts.n};
        rank.rank = rfs_saved_take_u32(in);
        rank.number = rfs_saved_take_u32(in);
        rank.parts = rfs_saved_take_count(in, sizeof(struct rfs_mark));
        for (uint32_t k = 0; k < rank.parts && !in->bad; k++) {
            struct rfs_saved_part part;
            no(in, !rfs_mark_take(in, &part.path, &part.length, &part.mark) ||
                       !RFS_PUSH(&index->parts, part));
        }
        no(in, rank.number >= index->builts.n ||
                   rank.parts != index->builts.data[rank.number].n_pieces ||
                   (i > 0 && !in->bad && rank.rank <= index->ranks.data[i - 1].rank) ||
                   !RFS_PUSH(&index->ranks, rank));
    }
}

struct rfs_saved_index *rfs_saved_index_take(struct rfs_saved_file *file,
                                             const struct rfs_tables *tables)
{
    struct rfs_saved_index *index = calloc(1, sizeof *index);

    if (!index) {
        rfs_saved_end(file);
        return NULL;
    }
    index->file = *file;
    take_names(index, tables);
    take_types(index, tables);
    take_builts(index);
    take_ranks(index);
    if (!index->file.in.bad && index->file.in.left == 0)
        return index;
    rfs_saved_index_free(index);
    return NULL;
}

struct rfs_saved_index *rfs_saved_index_load(struct rfs_saved *saved, const char *key,
                                             const struct rfs_tables *tables)
{
    struct rfs_saved_file file;

    return rfs_saved_read(saved, RFS_SAVED_INDEX, key, &file) ? rfs_saved_index_take(&file, tables)
                                                              : NULL;
}

void rfs_saved_index_free(struct rfs_saved_index *index)
{
    if (!index)
        return;
    rfs_saved_end(&index->file);
    free(index->names.data);
    free(index->types.data);
    free(index->builts.data);
    free(index->pieces.data);
    free(index->ranks.data);
    free(index->parts.data);
    free(index);
}

static const struct rfs_saved_rank *find_rank(const struct rfs_saved_index *index, uint32_t rank)
{
    const size_t at = RFS_BISECT(i, index->ranks.n, index->ranks.data[i].rank >= rank);
    const struct rfs_saved_rank *found = at < index->ranks.n ? &index->ranks.data[at] : NULL;

    return found && found->rank == rank ? found : NULL;
}

uint32_t rfs_saved_index_find(const struct rfs_saved_index *index, uint32_t rank,
                              struct rfs_files *files, uint32_t first, uint32_t parts)
{
    const struct rfs_saved_rank *here = find_rank(index, rank);
    struct stat st;

    if (!here || here->parts != parts)
        return RFS_NO_ID;
    for (uint32_t k = 0; k < parts; k++) {
        const struct rfs_saved_part *part = &index->parts.data[here->first + k];
        const char *path = rfs_files_path(files, first + k);
        if (strlen(path) != part->length || memcmp(path, part->path, part->length) != 0 ||
            rfs_files_stat(files, first + k, &st) != 0)
            return RFS_NO_ID;
        const struct rfs_mark mark = rfs_mark_of(&st);
        if (memcmp(&mark, &part->mark, sizeof mark) != 0)
            return RFS_NO_ID;
    }
    return here->number;
}

uint32_t rfs_saved_index_count(const struct rfs_saved_index *index)
{
    return (uint32_t)index->builts.n;
}

void *rfs_saved_index_body(const struct rfs_saved_index *index, uint32_t number, size_t *n)
{
    struct rfs_saved_in in = {index->indexes + (size_t)number * RFS_SAVED_INDEX_BYTES,
                              RFS_SAVED_INDEX_BYTES, false};
    const uint64_t offset = rfs_saved_take_u64(&in);
    const uint64_t bytes = rfs_saved_take_u64(&in);

    *n = (size_t)bytes;
    return rfs_saved_body(&index->file, offset, bytes, rfs_saved_take_u64(&in));
}

static struct rfs_index *read_index(const struct rfs_saved_index *index, uint32_t number,
                                    const struct rfs_tables *tables, const uint64_t *file_bytes,
                                    uint32_t parts)
{
    const struct rfs_numbers numbers = {(uint32_t)index->names.n, (uint32_t)index->types.n,
                                        index->names.data, index->types.data};
    size_t n;
    RFS_FREE void *bytes = rfs_saved_index_body(index, number, &n);

    return bytes ? rfs_saved_body_take(bytes, n, &numbers, tables->types, file_bytes, parts) : NULL;
}

RFS_CLEANUP_OF(free_built, struct rfs_built *, rfs_built_free)

struct rfs_built *rfs_saved_index_read(const struct rfs_saved_index *index, uint32_t number,
                                       const struct rfs_tables *tables, struct rfs_files *files,
                                       uint32_t first)
{
    const struct rfs_saved_built *from = &index->builts.data[number];
    const uint32_t n = from->n_pieces;
    RFS_CLEANUP(free_built) struct rfs_built *built = rfs_built_new(n);
    RFS_FREE uint64_t *bytes = malloc(n * sizeof *bytes);
    struct stat st;

    if (!built || !bytes)
        return NULL;
    for (uint32_t k = 0; k < n; k++) {
        if (rfs_files_stat(files, first + k, &st) != 0)
            return NULL;
        bytes[k] = (uint64_t)st.st_size;
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t piece = index->pieces.data[from->first + k];
        if (piece == RFS_SAVED_NONE)
            continue;
        built->pieces[k] = read_index(index, piece, tables, &bytes[k], 1);
        if (!built->pieces[k] || built->pieces[k]->file_bytes != bytes[k])
            return NULL;
    }
    if (from->merged != RFS_SAVED_NONE) {
        built->merged = read_index(index, from->merged, tables, bytes, n);
        if (!built->merged)
            return NULL;
    }
    built->index = built->merged ? built->merged : built->pieces[0];
    return RFS_STEAL(built);
}
