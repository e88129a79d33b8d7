/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of kept indexes, behind the key:
 *
 *   u32 n, names: u32 length, text
 *   u32 n, types: struct rfs_type
 *   u32 n, indexes: u64 offset, u64 bytes, u64 XXH3-64 of the bytes of one index
 *   u32 n, of ranks: u32 files; for each of them u32 index, or NONE; u32 index of all, or NONE
 *   u32 n, ranks, ascending: u32 rank, u32 number of the above, u32 files;
 *          for each of them u32 length, path, u64 inode, size, mtime, its ns, ctime, its ns
 *
 * One index, in the body of the file:
 *
 *   u64 n, extents, strided, file_bytes, crc, header_bytes, header_hash[2]
 *   u32 flags: 1 has_crc, 2 redundancy_removed, 4 of several files; u32 0
 *   n entries as in memory: u64 offset, u32 name, type, extent, extent_count
 *   extents: u64 offset, u64 bytes
 *   strided: u64 entry, u64 stride[16]
 *   of several files: n times u32, the number of the file
 *
 * Names and types are numbers in the table of the file. The order by name is made anew.
 */
#include "catalog/kept_index.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

#include <xxhash.h>

/* ---- one index ------------------------------------------------------------------------------- */

enum { HAS_CRC = 1, REDUNDANCY_REMOVED = 2, SEVERAL_FILES = 4, FLAGS = 7 };

/* Appends an index. */
static void put_index(struct rfs_bytes *out, const struct rfs_index *index,
                      const struct rfs_kept_numbers *numbers)
{
    const uint64_t words[] = {
        index->n,   index->n_extents,    index->n_strided,      index->file_bytes,
        index->crc, index->header_bytes, index->header_hash[0], index->header_hash[1]};

    rfs_bytes_put(out, words, sizeof words);
    rfs_kept_put_u32(out, (index->has_crc ? HAS_CRC : 0) |
                              (index->redundancy_removed ? REDUNDANCY_REMOVED : 0) |
                              (index->file_of ? SEVERAL_FILES : 0));
    rfs_kept_put_u32(out, 0);
    for (size_t i = 0; i < index->n; i++) {
        struct rfs_entry entry = index->entries[i];
        entry.name = numbers->names[entry.name];
        entry.type = numbers->types[entry.type];
        rfs_bytes_put(out, &entry, sizeof entry);
    }
    rfs_bytes_put(out, index->extents, index->n_extents * sizeof *index->extents);
    for (size_t i = 0; i < index->n_strided; i++) {
        rfs_kept_put_u64(out, index->strided[i].entry);
        rfs_bytes_put(out, index->strided[i].stride, sizeof index->strided[i].stride);
    }
    if (index->file_of)
        rfs_bytes_put(out, index->file_of, index->n * sizeof *index->file_of);
}

/* Says whether a type is one that a walker could have made. */
static bool is_type_sound(const struct rfs_type *type)
{
    static const uint8_t pad[sizeof type->pad];
    uint64_t bytes;

    if (type->ndim > RFS_MAX_DIMS || type->dtype >= RFS_DTYPE_COUNT || type->kind > RFS_MAP ||
        type->bytes > INT64_MAX || memcmp(type->pad, pad, sizeof pad) != 0 ||
        !rfs_type_bytes(type, &bytes))
        return false;
    for (unsigned i = type->ndim; i < RFS_MAX_DIMS; i++)
        if (type->dims[i] != 0)
            return false;
    if (type->kind == RFS_STRING)
        return type->dtype == RFS_STR && type->bytes % 4 == 0;
    return type->kind == RFS_MAP || type->bytes == bytes;
}

/* Says whether N bytes at OFFSET are in a file of SIZE bytes. */
static bool is_within(uint64_t offset, uint64_t n, uint64_t size)
{
    return offset <= size && n <= size - offset;
}

/* Says whether the elements of a strided entry are in a file of SIZE bytes. */
static bool is_strided_within(const struct rfs_entry *entry, const struct rfs_type *type,
                              const uint64_t *stride, uint64_t size)
{
    uint64_t last = 0;
    uint64_t step;

    if (type->bytes == 0)
        return true;
    for (unsigned i = 0; i < type->ndim; i++)
        if (!rfs_mul_u64(type->dims[i] - 1, stride[i], &step) || !rfs_add_u64(last, step, &last))
            return false;
    return rfs_add_u64(last, entry->offset, &last) &&
           is_within(last, rfs_dtype_bytes((enum rfs_dtype)type->dtype), size);
}

static bool is_entry_sound(const struct rfs_index *index, size_t i, const struct rfs_type *type,
                           uint64_t size)
{
    const struct rfs_entry *entry = &index->entries[i];
    const uint64_t *stride = rfs_index_strides(index, entry);
    uint64_t sum = 0;

    if (stride)
        return type->kind == RFS_TENSOR && entry->extent_count == 0 &&
               is_strided_within(entry, type, stride, size);
    if (entry->extent_count == 0)
        return is_within(entry->offset, type->bytes, size);
    if (entry->extent > index->n_extents || entry->extent_count > index->n_extents - entry->extent)
        return false;
    const struct rfs_extent *extent = &index->extents[entry->extent];
    if (extent->offset != entry->offset)
        return false;
    for (uint32_t k = 0; k < entry->extent_count; k++)
        if (!is_within(extent[k].offset, extent[k].bytes, size) ||
            !rfs_add_u64(sum, extent[k].bytes, &sum))
            return false;
    return sum == type->bytes;
}

/* Turns numbers into ids. False if anything is outside of the files. */
static bool settle(struct rfs_index *index, const struct rfs_kept_numbers *numbers,
                   const struct rfs_intern *types, const uint64_t *file_bytes, uint32_t n_files)
{
    size_t a;
    size_t b;

    for (size_t i = 0; i < index->n_strided; i++)
        if (index->strided[i].entry >= index->n ||
            (i > 0 && index->strided[i].entry <= index->strided[i - 1].entry))
            return false;
    for (size_t i = 0; i < index->n; i++) {
        struct rfs_entry *entry = &index->entries[i];
        const uint32_t file = index->file_of ? index->file_of[i] : 0;
        if (entry->name >= numbers->n_names || entry->type >= numbers->n_types || file >= n_files)
            return false;
        entry->name = numbers->names[entry->name];
        entry->type = numbers->types[entry->type];
        const struct rfs_type *type = rfs_intern_bytes(types, entry->type, NULL);
        if (!is_entry_sound(index, i, type, file_bytes[file]))
            return false;
    }
    return rfs_index_order_names(index, &a, &b) == 0;
}

/* Copies the next N items of SIZE bytes; NULL when they are not there, or there are none. */
static void *take_array(struct rfs_kept_in *in, uint64_t n, size_t size)
{
    size_t bytes;

    if (n > in->left || !rfs_mul_size((size_t)n, size, &bytes) || bytes > in->left) {
        in->bad = true;
        return NULL;
    }
    const void *from = rfs_kept_take(in, bytes);
    void *copy = from && bytes > 0 ? malloc(bytes) : NULL;
    if (copy)
        memcpy(copy, from, bytes);
    else
        in->bad |= bytes > 0;
    return copy;
}

static void take_strided(struct rfs_kept_in *in, struct rfs_index *index)
{
    if (index->n_strided > in->left / (sizeof(uint64_t) * (1 + RFS_MAX_DIMS))) {
        in->bad = true;
        return;
    }
    if (index->n_strided == 0)
        return;
    index->strided = calloc(index->n_strided, sizeof *index->strided);
    in->bad |= !index->strided;
    for (size_t i = 0; i < index->n_strided && !in->bad; i++) {
        const uint64_t entry = rfs_kept_take_u64(in);
        const void *stride = rfs_kept_take(in, sizeof index->strided[i].stride);
        index->strided[i].entry = entry < UINT32_MAX ? (uint32_t)entry : UINT32_MAX;
        if (stride)
            memcpy(index->strided[i].stride, stride, sizeof index->strided[i].stride);
    }
}

/* Fills an empty index. False for an invalid one. */
static bool take_index(struct rfs_kept_in *in, struct rfs_index *index, uint32_t n_files)
{
    index->n = rfs_kept_take_u64(in);
    index->n_extents = rfs_kept_take_u64(in);
    index->n_strided = rfs_kept_take_u64(in);
    index->file_bytes = rfs_kept_take_u64(in);
    index->crc = rfs_kept_take_u64(in);
    index->header_bytes = rfs_kept_take_u64(in);
    index->header_hash[0] = rfs_kept_take_u64(in);
    index->header_hash[1] = rfs_kept_take_u64(in);
    const uint32_t flags = rfs_kept_take_u32(in);
    if (rfs_kept_take_u32(in) != 0 || flags > FLAGS || index->n > UINT32_MAX || index->n == 0 ||
        !(flags & SEVERAL_FILES) != (n_files == 1))
        return false;
    index->has_crc = flags & HAS_CRC;
    index->redundancy_removed = flags & REDUNDANCY_REMOVED;
    index->entries = take_array(in, index->n, sizeof *index->entries);
    index->extents = take_array(in, index->n_extents, sizeof *index->extents);
    take_strided(in, index);
    if (flags & SEVERAL_FILES)
        index->file_of = take_array(in, index->n, sizeof *index->file_of);
    return !in->bad && in->left == 0;
}

struct rfs_index *rfs_kept_body_take(const void *bytes, size_t n,
                                     const struct rfs_kept_numbers *numbers,
                                     struct rfs_intern *types, const uint64_t *file_bytes,
                                     uint32_t n_files)
{
    struct rfs_kept_in in = {bytes, n, false};
    struct rfs_index *index = calloc(1, sizeof *index);

    if (index && take_index(&in, index, n_files) &&
        settle(index, numbers, types, file_bytes, n_files))
        return index;
    rfs_index_free(index);
    return NULL;
}

/* ---- reading the table ----------------------------------------------------------------------- */

static void no(struct rfs_kept_in *in, bool failed)
{
    in->bad |= failed;
}

static void take_names(struct rfs_kept_index *index, const struct rfs_tables *tables)
{
    struct rfs_kept_in *in = &index->file.in;
    const uint32_t n = rfs_kept_take_count(in, sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        size_t length;
        const char *text = rfs_kept_take_text(in, &length);
        const bool sound = text && length > 0 && !memchr(text, '\0', length);
        const uint32_t id = sound ? rfs_intern_add(tables->names, text, length) : RFS_NO_ID;
        no(in, id == RFS_NO_ID || !RFS_PUSH(&index->names, id));
    }
}

static void take_types(struct rfs_kept_index *index, const struct rfs_tables *tables)
{
    struct rfs_kept_in *in = &index->file.in;
    const uint32_t n = rfs_kept_take_count(in, sizeof(struct rfs_type));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_type type;
        const void *bytes = rfs_kept_take(in, sizeof type);
        if (!bytes)
            return;
        memcpy(&type, bytes, sizeof type);
        const bool sound = is_type_sound(&type);
        const uint32_t id = sound ? rfs_intern_add(tables->types, &type, sizeof type) : RFS_NO_ID;
        no(in, id == RFS_NO_ID || !RFS_PUSH(&index->types, id));
    }
}

static bool is_index(const struct rfs_kept_index *index, uint32_t number)
{
    return number < index->n_indexes || number == RFS_KEPT_NONE;
}

static void take_builts(struct rfs_kept_index *index)
{
    struct rfs_kept_in *in = &index->file.in;
    index->n_indexes = rfs_kept_take_count(in, RFS_KEPT_INDEX_BYTES);
    index->indexes = rfs_kept_take(in, (size_t)index->n_indexes * RFS_KEPT_INDEX_BYTES);
    const uint32_t n = rfs_kept_take_count(in, 3 * sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_kept_built built = {.first = index->of_files.n};
        built.n_files = rfs_kept_take_count(in, sizeof(uint32_t));
        for (uint32_t k = 0; k < built.n_files && !in->bad; k++) {
            const uint32_t number = rfs_kept_take_u32(in);
            no(in, !is_index(index, number) || !RFS_PUSH(&index->of_files, number));
        }
        built.merged = rfs_kept_take_u32(in);
        no(in, built.n_files == 0 || !is_index(index, built.merged) ||
                   !RFS_PUSH(&index->builts, built));
        /* Only a merged index shows the contents of several files. */
        no(in, !in->bad && built.merged == RFS_KEPT_NONE &&
                   (built.n_files > 1 || index->of_files.data[built.first] == RFS_KEPT_NONE));
    }
}

static void take_ranks(struct rfs_kept_index *index)
{
    struct rfs_kept_in *in = &index->file.in;
    const uint32_t n = rfs_kept_take_count(in, 3 * sizeof(uint32_t));

    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rfs_kept_rank rank = {.first = index->sources.n};
        rank.rank = rfs_kept_take_u32(in);
        rank.number = rfs_kept_take_u32(in);
        rank.n_files = rfs_kept_take_count(in, sizeof(struct rfs_kept_mark));
        for (uint32_t k = 0; k < rank.n_files && !in->bad; k++) {
            struct rfs_kept_source source;
            no(in, !rfs_kept_source_take(in, &source) || !RFS_PUSH(&index->sources, source));
        }
        no(in, rank.number >= index->builts.n ||
                   rank.n_files != index->builts.data[rank.number].n_files ||
                   (i > 0 && !in->bad && rank.rank <= index->ranks.data[i - 1].rank) ||
                   !RFS_PUSH(&index->ranks, rank));
    }
}

struct rfs_kept_index *rfs_kept_index_take(struct rfs_kept_file *file,
                                           const struct rfs_tables *tables)
{
    struct rfs_kept_index *index = calloc(1, sizeof *index);

    if (!index) {
        rfs_kept_end(file);
        return NULL;
    }
    index->file = *file;
    take_names(index, tables);
    take_types(index, tables);
    take_builts(index);
    take_ranks(index);
    if (!index->file.in.bad && index->file.in.left == 0)
        return index;
    rfs_kept_index_free(index);
    return NULL;
}

struct rfs_kept_index *rfs_kept_index_load(struct rfs_kept *kept, const char *key,
                                           const struct rfs_tables *tables)
{
    struct rfs_kept_file file;

    return rfs_kept_read(kept, RFS_KEPT_INDEX, key, &file) ? rfs_kept_index_take(&file, tables)
                                                           : NULL;
}

void rfs_kept_index_free(struct rfs_kept_index *index)
{
    if (!index)
        return;
    rfs_kept_end(&index->file);
    free(index->names.data);
    free(index->types.data);
    free(index->builts.data);
    free(index->of_files.data);
    free(index->ranks.data);
    free(index->sources.data);
    free(index);
}

static const struct rfs_kept_rank *find_rank(const struct rfs_kept_index *index, uint32_t rank)
{
    const size_t at = RFS_BISECT_KEY(i, index->ranks.n, index->ranks.data[i].rank, rank);

    return at < index->ranks.n ? &index->ranks.data[at] : NULL;
}

uint32_t rfs_kept_index_find(const struct rfs_kept_index *index, uint32_t rank,
                             struct rfs_files *files, uint32_t first, uint32_t n_files)
{
    const struct rfs_kept_rank *here = find_rank(index, rank);
    struct stat st;

    if (!here || here->n_files != n_files)
        return RFS_NO_ID;
    for (uint32_t k = 0; k < n_files; k++) {
        const struct rfs_kept_source *source = &index->sources.data[here->first + k];
        if (!rfs_kept_source_has_path(source, rfs_files_path(files, first + k)) ||
            rfs_files_stat(files, first + k, &st) != 0 || !rfs_kept_source_has_mark(source, &st))
            return RFS_NO_ID;
    }
    return here->number;
}

void *rfs_kept_index_read_body(const struct rfs_kept_index *index, uint32_t number, size_t *n)
{
    struct rfs_kept_in in = {index->indexes + (size_t)number * RFS_KEPT_INDEX_BYTES,
                             RFS_KEPT_INDEX_BYTES, false};
    const uint64_t offset = rfs_kept_take_u64(&in);
    const uint64_t bytes = rfs_kept_take_u64(&in);

    *n = (size_t)bytes;
    return rfs_kept_read_body(&index->file, offset, bytes, rfs_kept_take_u64(&in));
}

static struct rfs_index *read_index(const struct rfs_kept_index *index, uint32_t number,
                                    const struct rfs_tables *tables, const uint64_t *file_bytes,
                                    uint32_t n_files)
{
    const struct rfs_kept_numbers numbers = {(uint32_t)index->names.n, (uint32_t)index->types.n,
                                             index->names.data, index->types.data};
    size_t n;
    RFS_FREE void *bytes = rfs_kept_index_read_body(index, number, &n);

    return bytes ? rfs_kept_body_take(bytes, n, &numbers, tables->types, file_bytes, n_files)
                 : NULL;
}

RFS_CLEANUP_OF(free_built, struct rfs_built *, rfs_built_free)

struct rfs_built *rfs_kept_index_read(const struct rfs_kept_index *index, uint32_t number,
                                      const struct rfs_tables *tables, struct rfs_files *files,
                                      uint32_t first)
{
    const struct rfs_kept_built *from = &index->builts.data[number];
    const uint32_t n = from->n_files;
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
        const uint32_t of_file = index->of_files.data[from->first + k];
        if (of_file == RFS_KEPT_NONE)
            continue;
        built->files[k] = read_index(index, of_file, tables, &bytes[k], 1);
        if (!built->files[k] || built->files[k]->file_bytes != bytes[k])
            return NULL;
    }
    if (from->merged != RFS_KEPT_NONE) {
        built->merged = read_index(index, from->merged, tables, bytes, n);
        if (!built->merged)
            return NULL;
    }
    built->index = built->merged ? built->merged : built->files[0];
    return RFS_STEAL(built);
}

/* ---- writing --------------------------------------------------------------------------------- */

#define BODY_MOST (UINT64_C(256) << 20) /* no index is added to a file that is larger */

struct storing {
    const struct rfs_tables *tables;
    const struct rfs_kept_index *before;
    struct rfs_kept_draft draft;
    uint32_t *name_of, *type_of; /* numbers by id, or none */
    uint32_t n_names, n_types;   /* ids below these have one, or none */
    uint32_t names, types;       /* numbers given */
    uint32_t indexes, builts;
    uint32_t *copied; /* [builts of before] numbers that their copies got, or none */
    struct rfs_bytes name_bytes, type_bytes, index_bytes, built_bytes, rank_bytes;
    struct rfs_kept_device device;
    bool failed;
};

static uint32_t number_name(struct storing *s, uint32_t id)
{
    size_t length;

    if (id >= s->n_names) {
        s->failed = true;
        return 0;
    }
    if (s->name_of[id] == RFS_KEPT_NONE) {
        const char *text = rfs_intern_bytes(s->tables->names, id, &length);
        rfs_kept_put_text(&s->name_bytes, text, length);
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
    if (s->type_of[id] == RFS_KEPT_NONE) {
        rfs_bytes_put(&s->type_bytes, rfs_intern_bytes(s->tables->types, id, NULL),
                      sizeof(struct rfs_type));
        s->type_of[id] = s->types++;
    }
    return s->type_of[id];
}

static uint32_t store_body(struct storing *s, const void *bytes, size_t n)
{
    rfs_kept_put_u64(&s->index_bytes, rfs_kept_add(&s->draft, bytes, n));
    rfs_kept_put_u64(&s->index_bytes, n);
    rfs_kept_put_u64(&s->index_bytes, XXH3_64bits(bytes, n));
    return s->indexes++;
}

/* Returns the number of an index, which is stored when it comes for the first time. */
static uint32_t store_index(struct storing *s, struct rfs_index *index)
{
    struct rfs_bytes out = {0};

    if (!index)
        return RFS_KEPT_NONE;
    if (index->number != RFS_KEPT_NONE)
        return index->number;
    for (size_t i = 0; i < index->n; i++) {
        number_name(s, index->entries[i].name);
        number_type(s, index->entries[i].type);
    }
    const struct rfs_kept_numbers numbers = {s->n_names, s->n_types, s->name_of, s->type_of};
    if (!s->failed)
        put_index(&out, index, &numbers);
    s->failed |= out.failed;
    if (!s->failed)
        index->number = store_body(s, out.data, out.n);
    free(out.data);
    return index->number;
}

static uint32_t store_built(struct storing *s, struct rfs_built *built)
{
    if (built->number != RFS_KEPT_NONE)
        return built->number;
    rfs_kept_put_u32(&s->built_bytes, built->n_files);
    for (uint32_t k = 0; k < built->n_files; k++)
        rfs_kept_put_u32(&s->built_bytes, store_index(s, built->files[k]));
    rfs_kept_put_u32(&s->built_bytes, store_index(s, built->merged));
    built->number = s->builts++;
    return built->number;
}

/* Copies an index that was not read: names and types have the numbers that they had. */
static uint32_t copy_index(struct storing *s, uint32_t number)
{
    size_t n;
    RFS_FREE void *bytes =
        number == RFS_KEPT_NONE ? NULL : rfs_kept_index_read_body(s->before, number, &n);

    s->failed |= number != RFS_KEPT_NONE && !bytes;
    return bytes ? store_body(s, bytes, n) : RFS_KEPT_NONE;
}

static uint32_t copy_built(struct storing *s, uint32_t number)
{
    const struct rfs_kept_built *built = &s->before->builts.data[number];

    if (s->copied[number] != RFS_KEPT_NONE)
        return s->copied[number];
    rfs_kept_put_u32(&s->built_bytes, built->n_files);
    for (uint32_t k = 0; k < built->n_files; k++)
        rfs_kept_put_u32(&s->built_bytes,
                         copy_index(s, s->before->of_files.data[built->first + k]));
    rfs_kept_put_u32(&s->built_bytes, copy_index(s, built->merged));
    s->copied[number] = s->builts++;
    return s->copied[number];
}

static uint32_t *no_numbers(size_t n)
{
    uint32_t *numbers = malloc((n + 1) * sizeof *numbers);

    if (numbers)
        memset(numbers, 0xff, (n + 1) * sizeof *numbers);
    return numbers;
}

/* Numbers the names and types kept before. False when they cannot have the numbers they had. */
static bool number_before(struct storing *s)
{
    const struct rfs_kept_index *before = s->before;

    s->n_names = rfs_intern_count(s->tables->names);
    s->n_types = rfs_intern_count(s->tables->types);
    s->name_of = no_numbers(s->n_names);
    s->type_of = no_numbers(s->n_types);
    s->copied = no_numbers(before ? before->builts.n : 0);
    if (!s->name_of || !s->type_of || !s->copied)
        return false;
    for (size_t i = 0; before && i < before->names.n; i++)
        if (number_name(s, before->names.data[i]) != i)
            return false; /* a name is there twice */
    for (size_t i = 0; before && i < before->types.n; i++)
        if (number_type(s, before->types.data[i]) != i)
            return false;
    return true;
}

static void forget_numbers(struct rfs_built *built)
{
    built->number = RFS_KEPT_NONE;
    for (uint32_t k = 0; k < built->n_files; k++)
        if (built->files[k])
            built->files[k]->number = RFS_KEPT_NONE;
    if (built->merged)
        built->merged->number = RFS_KEPT_NONE;
}

/* Adds a rank, if its files are settled. Says whether they were. */
static uint32_t store_rank(struct storing *s, const struct rfs_keeping *rank,
                           struct rfs_files *files, struct timespec opened)
{
    struct rfs_bytes marks = {0};
    bool settled = true;

    for (uint32_t k = 0; settled && k < rank->n_files; k++) {
        struct stat st;
        settled = rfs_files_state(files, rank->first + k) == 0 &&
                  rfs_files_stat(files, rank->first + k, &st) == 0;
        if (!settled)
            break;
        const struct rfs_kept_mark mark = rfs_kept_mark_of(&st);
        settled = rfs_kept_mark_is_settled(&mark, opened) &&
                  rfs_kept_mark_tells(rfs_files_path(files, rank->first + k), &st, &s->device);
        rfs_kept_mark_put(&marks, rfs_files_path(files, rank->first + k), &mark);
    }
    if (settled) {
        const uint32_t number =
            rank->built ? store_built(s, rank->built) : copy_built(s, rank->before);
        rfs_kept_put_u32(&s->rank_bytes, rank->rank);
        rfs_kept_put_u32(&s->rank_bytes, number);
        rfs_kept_put_u32(&s->rank_bytes, rank->n_files);
        rfs_bytes_put(&s->rank_bytes, marks.data, marks.n);
    }
    s->failed |= marks.failed;
    free(marks.data);
    return settled;
}

static void put_list(struct rfs_bytes *table, uint32_t n, const struct rfs_bytes *list)
{
    rfs_kept_put_u32(table, n);
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
    const bool written = rfs_kept_finish(&s->draft, &table);
    free(table.data);
    return written;
}

bool rfs_kept_index_store(struct rfs_kept *kept, const char *key, const struct rfs_tables *tables,
                          struct rfs_files *files, struct timespec opened,
                          const struct rfs_kept_index *before, const struct rfs_keeping *ranks,
                          size_t n)
{
    struct storing s = {.tables = tables, .before = before};
    bool written = false;
    uint32_t n_written = 0;

    if (number_before(&s) && rfs_kept_begin(kept, RFS_KEPT_INDEX, key, &s.draft)) {
        for (size_t i = 0; i < n; i++)
            if (ranks[i].built)
                forget_numbers(ranks[i].built);
        for (size_t i = 0; i < n && !s.failed && s.draft.end < BODY_MOST; i++)
            n_written += store_rank(&s, &ranks[i], files, opened);
        if (n_written > 0)
            written = finish(&s, n_written);
        else
            (void)rfs_kept_finish(&s.draft, NULL);
    }
    free(s.name_of);
    free(s.type_of);
    free(s.copied);
    free(s.name_bytes.data);
    free(s.type_bytes.data);
    free(s.index_bytes.data);
    free(s.built_bytes.data);
    free(s.rank_bytes.data);
    return written;
}
