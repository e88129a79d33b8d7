/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects in .metadata of torch.distributed.checkpoint:
 *
 *     Metadata               state_dict_metadata {name: TensorStorageMetadata or
 *                            BytesStorageMetadata}, storage_data {MetadataIndex: _StorageInfo},
 *                            version "1.0.0" or none; planner_data {name: (key, …)}, the keys that
 *                            lead to a value, texts and the numbers of items of lists;
 *                            storage_meta: ignored; mcore_data of Megatron-Core:
 *                            {name: {"nd_reformulated_orig_global_shape": shape} or an empty dict},
 *                            and all_local_plans, not looked at
 *     TensorStorageMetadata  properties, size, chunks [ChunkStorageMetadata]
 *     TensorProperties       (dtype, layout, …) or, by name, dtype, layout, …
 *     ChunkStorageMetadata   offsets, sizes
 *     MetadataIndex          fqn, offset of a chunk or none, index: a hint that is not needed
 *     _StorageInfo           relative_path, offset, length, transform_descriptors or none: what its
 *                            item went through, the last first; ["stream.zstd/1"]: a frame of zstd
 *
 * HyperParallel has the same objects, but:
 *
 *     Metadata          version "1.0", "2.0" or none
 *     TensorProperties  by name; dtype is a text: "torch.float32", or "Float32" with MindSpore
 *     MetadataIndex     offset () for bytes
 *     StorageInfo       relative_path, offset, length, tensor_key or none: the name of the tensor
 *                       in the file, and the place in the file counts for bytes only
 *
 * Offsets and sizes are tuples as well as torch.Size. A save without collectives, of either
 * program, has such a file for each rank, which describes the chunks of that rank.
 *
 * Source: torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.1 to 2.15;
 * hyper_parallel/core/checkpoint of 2026-03, and core/distributed_checkpoint behind it.
 */
#include "formats/dcp/dcp_pickle.h"

#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/dcp/dcp.h"
#include "formats/torch/torch.h"
#include "store/packed.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"
#define CHUNKS_BEYOND 1000 /* chunks that are described, and may be stored nowhere */
/* Plain bytes that a compressed item may have: torch.save puts less than this around a tensor's. */
#define AROUND_MOST (UINT64_C(64) << 10)
#define OBJECT_MOST (UINT64_C(256) << 20) /* of an object; nothing tells its size */

/* A file of metadata. */
struct metadata {
    struct rfs_dcp_pickle pickle;
    const char *file; /* its path */
    uint32_t number;  /* its id among the files */
    struct rfs_chunks *chunks;
    struct rfs_error *err;
    size_t n_stored; /* entries of storage_data */
    size_t n_chunks; /* declared so far */
    uint32_t *paths; /* by text id: the keys that lead to that name, or None; owned */
    /* The part of the state dict that entry= names. */
    size_t part_bytes;  /* bytes of its name; 0: it is all of it */
    uint32_t part_keys; /* keys that lead to it; 0: no path does, and the names tell */
    bool in_part;       /* it has values of that part */
};

/* The metadata of a checkpoint: a file, or one of each rank. */
struct description {
    struct metadata *files;
    uint32_t n;
    struct rfs_chunks *chunks;
    struct rfs_error *err;
    RFS_VEC(unsigned char) forms; /* enum form of each file that has items; owned */
};

/* What a file has under a name. */
struct described {
    uint32_t name; /* number of the name, in the order of first appearance */
    uint32_t file, key, value;
};

static int fail(const struct metadata *metadata, const char *param, const char *what)
{
    return rfs_fail(metadata->err, -EINVAL, RFS_OF(metadata->file, param), REMEDY_COPY,
                    "the metadata is damaged: %s", what);
}

static bool is_none(uint32_t value)
{
    return value == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

/* Gives the numbers of an offset or a size. False when it is none. */
static bool take_shape(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n,
                       uint64_t *out)
{
    const uint32_t *items = rfs_dcp_tuple(pickle, value, n);

    if (!items || *n > RFS_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        int64_t number;
        if (!rfs_dcp_integer(pickle, items[i], &number) || number < 0)
            return false;
        out[i] = (uint64_t)number;
    }
    return true;
}

/* Finds an element type by the name that HyperParallel has from torch or from MindSpore. */
static bool find_type(const char *name, size_t n, enum rfs_dtype *dtype)
{
    static const char torch[] = "torch.";
    const size_t bytes = sizeof torch - 1;

    if (strlen(name) != n || strncmp(name, torch, bytes) != 0)
        return rfs_dtype_parse(name, n, dtype) && *dtype != RFS_STR;
    for (unsigned i = 0; i < RFS_DTYPE_COUNT; i++) {
        const char *known = rfs_torch_dtype_name((enum rfs_dtype)i);
        if (known && strcmp(known, name + bytes) == 0) {
            *dtype = (enum rfs_dtype)i;
            return true;
        }
    }
    return false;
}

/* Reads HyperParallel's TensorProperties, as read_properties does. */
static int read_named(const struct metadata *metadata, const char *name, uint32_t properties,
                      struct rfs_type *type, const char **why)
{
    enum rfs_dtype dtype = RFS_BOOL;
    size_t n = 0;
    const char *text = rfs_dcp_text(
        &metadata->pickle, rfs_dcp_field(&metadata->pickle, properties, RFS_DCP_DTYPE), &n);

    if (rfs_dcp_class(&metadata->pickle, properties) != RFS_DCP_TENSOR_PROPERTIES || !text)
        return fail(metadata, name, "a tensor without a dtype");
    *why = find_type(text, n, &dtype) ? NULL : "its element type is not one that is read";
    type->dtype = (uint8_t)dtype;
    return 0;
}

/*
 * Reads TensorProperties, whose state is a tuple, or the fields by name. *WHY is set for a tensor
 * that is not read, and else NULL.
 */
static int read_properties(const struct metadata *metadata, const char *name, uint32_t properties,
                           struct rfs_type *type, const char **why)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    uint32_t n = 0;
    const uint32_t *items = rfs_dcp_tuple(pickle, rfs_dcp_state(pickle, properties), &n);
    const uint32_t named = n >= 2 ? items[0] : rfs_dcp_field(pickle, properties, RFS_DCP_DTYPE);
    const uint32_t layout = n >= 2 ? items[1] : rfs_dcp_field(pickle, properties, RFS_DCP_LAYOUT);
    enum rfs_dtype dtype = RFS_BOOL;

    if (metadata->chunks->format->keyed)
        return read_named(metadata, name, properties, type, why);
    if (!rfs_dcp_dtype(named, &dtype, why) ||
        rfs_dcp_class(pickle, properties) != RFS_DCP_TENSOR_PROPERTIES ||
        rfs_dcp_kind(layout) != RFS_DCP_TEXT)
        return fail(metadata, name, "a tensor without a dtype or a layout");
    type->dtype = (uint8_t)dtype;
    if (!rfs_dcp_is_word(layout, RFS_DCP_STRIDED))
        *why = "its layout is not torch.strided";
    return 0;
}

/* ---- the part of the state dict that entry= names -------------------------------------------- */

#define DICTS_MOST 16 /* dicts of tensors that are noted; with more, none is */

/* Returns the keys that lead to a name; NULL: none are known. */
static const uint32_t *keys_of(const struct metadata *metadata, uint32_t key, uint32_t *n)
{
    *n = 0;
    return rfs_dcp_kind(key) == RFS_DCP_TEXT
               ? rfs_dcp_tuple(&metadata->pickle, metadata->paths[rfs_dcp_number(key)], n)
               : NULL;
}

/* Notes the paths of names. */
static int read_paths(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    struct rfs_dcp_each each =
        rfs_dcp_each(pickle, rfs_dcp_field(pickle, pickle->root, RFS_DCP_PLANNER_DATA));
    uint32_t key;
    uint32_t value;

    metadata->paths = calloc((size_t)rfs_intern_count(pickle->texts) + 1, sizeof(uint32_t));
    if (!metadata->paths)
        return rfs_fail_memory(metadata->err);
    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        if (rfs_dcp_kind(key) == RFS_DCP_TEXT)
            metadata->paths[rfs_dcp_number(key)] = value;
    return 0;
}

/*
 * Passes a key at the beginning of REST, a part of the entry. Returns what is behind it; NULL when
 * REST does not begin so.
 */
static const char *pass_key(const struct metadata *metadata, uint32_t key, const char *rest)
{
    size_t bytes = 0;
    const char *text = rfs_dcp_text(&metadata->pickle, key, &bytes);

    return text && strlen(rest) >= bytes && memcmp(rest, text, bytes) == 0 ? rest + bytes : NULL;
}

/*
 * Returns how many keys of a name's path lead to the entry; 0: it is elsewhere. A key with dots is
 * found as a whole, as in rfs_torch_find_dict.
 */
static uint32_t keys_to_part(const struct metadata *metadata, uint32_t key)
{
    const char *rest = metadata->chunks->entry;
    uint32_t n;
    const uint32_t *keys = keys_of(metadata, key, &n);

    for (uint32_t i = 0; keys && i + 1 < n; i++) {
        const char *behind = pass_key(metadata, keys[i], rest);
        if (behind && !*behind)
            return i + 1;
        if (behind != rest + strcspn(rest, "."))
            return 0;
        rest = behind + 1;
    }
    return 0;
}

/* Says whether a name begins as those in the entry do. */
static bool begins_with_part(const struct metadata *metadata, const char *name, size_t n)
{
    const size_t part = metadata->part_bytes;

    return n > part + 1 && memcmp(name, metadata->chunks->entry, part) == 0 && name[part] == '.';
}

/* Says whether all keys above a value's own lead towards the entry, which no dict is. */
static bool is_above_part(const struct metadata *metadata, uint32_t key)
{
    const char *rest = metadata->chunks->entry;
    uint32_t n;
    const uint32_t *keys = keys_of(metadata, key, &n);

    for (uint32_t i = 0; keys && i + 1 < n; i++) {
        rest = pass_key(metadata, keys[i], rest);
        if (!rest || *rest++ != '.')
            return false;
    }
    return true;
}

/* Says whether a value is in the part, whose number of keys is known. */
static bool is_in_part(const struct metadata *metadata, uint32_t key)
{
    size_t n = 0;
    const char *name = rfs_dcp_text(&metadata->pickle, key, &n);

    if (!name || !begins_with_part(metadata, name, n))
        return false;
    if (metadata->part_keys > 0)
        return keys_to_part(metadata, key) == metadata->part_keys;
    return is_above_part(metadata, key);
}

/* Returns the name by which the checkpoint has a value; NULL: it is outside of the part. */
static const char *name_in_part(const struct metadata *metadata, uint32_t key, size_t *n)
{
    const char *name = rfs_dcp_text(&metadata->pickle, key, n);

    if (metadata->part_bytes == 0)
        return name;
    if (!is_in_part(metadata, key))
        return NULL;
    *n -= metadata->part_bytes + 1;
    return name + metadata->part_bytes + 1;
}

/*
 * Returns the key of the dict at the top that a value is in; without a path, what its name begins
 * with. NULL: it is in none, or the text is one of SEEN, a mark for each id.
 */
static const char *dict_of(const struct metadata *metadata, uint32_t key, unsigned char *seen,
                           size_t *bytes)
{
    uint32_t n;
    const uint32_t *keys = keys_of(metadata, key, &n);
    const uint32_t text = n > 1 ? keys[0] : key;
    const char *name = rfs_dcp_text(&metadata->pickle, text, bytes);

    if (!name || seen[rfs_dcp_number(text)])
        return NULL;
    seen[rfs_dcp_number(text)] = 1;
    const char *dot = n > 1 ? NULL : memchr(name, '.', *bytes);
    if (dot)
        *bytes = (size_t)(dot - name);
    return n > 1 || dot ? name : NULL;
}

/* Reports that nothing is at the entry, with the dicts at the top. */
static int fail_entry(const struct metadata *metadata, uint32_t names)
{
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names);
    RFS_FREE unsigned char *seen = calloc((size_t)rfs_intern_count(metadata->pickle.texts) + 1, 1);
    struct rfs_intern *told = rfs_intern_new();
    struct rfs_text_names dicts = {0};
    uint32_t key;
    uint32_t value;

    while (seen && told && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        char shown[RFS_TORCH_ENTRY_SHOWN];
        size_t n = 0;
        const char *dict = dict_of(metadata, key, seen, &n);
        if (!dict || !rfs_intern_is_new(told, dict, n))
            continue;
        snprintf(shown, sizeof shown, "'%.*s'", (int)rfs_min_u64(n, sizeof shown), dict);
        rfs_text_add_name(&dicts, RFS_TORCH_ENTRIES_SHOWN, shown);
    }
    rfs_intern_free(told);
    return seen && told
               ? rfs_torch_no_entry(metadata->file, metadata->chunks->entry, &dicts, metadata->err)
               : rfs_fail_memory(metadata->err);
}

/* Returns state_dict_metadata. */
static uint32_t names_of(const struct metadata *metadata)
{
    return rfs_dcp_field(&metadata->pickle, metadata->pickle.root, RFS_DCP_STATE_DICT_METADATA);
}

/* Finds the rule that tells the entry's values from others: their keys, or their names. */
static void find_part(struct metadata *metadata)
{
    const char *entry = metadata->chunks->entry;
    const uint32_t names = names_of(metadata);
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names);
    uint32_t key;
    uint32_t value;

    metadata->in_part = !entry || !*entry;
    if (metadata->in_part)
        return;
    metadata->part_bytes = strlen(entry);
    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        const uint32_t keys = keys_to_part(metadata, key);
        if (keys > 0 && (metadata->part_keys == 0 || keys < metadata->part_keys))
            metadata->part_keys = keys;
    }
    each = rfs_dcp_each(&metadata->pickle, names);
    while (!metadata->in_part && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        metadata->in_part = is_in_part(metadata, key);
}

/*
 * Lists the dicts that have tensors, DEPTH keys below the top. The dicts above are the same for
 * all. Lists none if a tensor is in no dict there, or if there are many.
 */
static int list_dicts(const struct metadata *metadata, uint32_t depth, const char *above,
                      struct rfs_path_list *list)
{
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names_of(metadata));
    uint32_t found[DICTS_MOST];
    size_t n_found = 0;
    uint32_t key;
    uint32_t value;

    while (rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value)) {
        uint32_t n;
        const uint32_t *keys = keys_of(metadata, key, &n);
        size_t at = 0;
        if (rfs_dcp_class(&metadata->pickle, value) != RFS_DCP_TENSOR)
            continue;
        while (n > depth + 1 && at < n_found && found[at] != keys[depth])
            at++;
        if (n <= depth + 1 || at == DICTS_MOST ||
            !rfs_dcp_text(&metadata->pickle, keys[depth], NULL))
            return 0;
        found[at] = keys[depth];
        n_found += at == n_found;
    }
    for (size_t i = 0; i < n_found; i++)
        if (!rfs_path_list_add(list,
                               rfs_text_printf("%s%s%s", above, *above ? "." : "",
                                               rfs_dcp_text(&metadata->pickle, found[i], NULL))))
            return rfs_fail_memory(metadata->err);
    return 0;
}

/* Notes the dicts at the top that have tensors, and those in the only one. */
static int note_dicts(const struct metadata *metadata)
{
    struct rfs_chunks *chunks = metadata->chunks;
    const int rc = list_dicts(metadata, 0, "", &chunks->dicts);

    return rc || chunks->dicts.n != 1
               ? rc
               : list_dicts(metadata, 1, chunks->dicts.data[0], &chunks->dicts_in_one);
}

/* ---- tensors and objects --------------------------------------------------------------------- */

static int declare_chunk(struct metadata *metadata, const char *name, const struct rfs_type *type,
                         uint32_t chunk)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    uint64_t corner[RFS_MAX_DIMS];
    uint64_t sizes[RFS_MAX_DIMS];
    uint32_t n[2] = {0, 0};

    if (rfs_dcp_class(pickle, chunk) != RFS_DCP_CHUNK ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_OFFSETS), &n[0], corner) ||
        !take_shape(pickle, rfs_dcp_field(pickle, chunk, RFS_DCP_SIZES), &n[1], sizes) ||
        n[0] != type->ndim || n[1] != type->ndim)
        return fail(metadata, name, "a chunk without offsets and sizes");
    /*
     * A few bytes can name a long list of chunks again and again. Of a few too many, the one that
     * is described twice is a copy, and one that is stored nowhere is found, with its tensor,
     * later.
     */
    if (++metadata->n_chunks > metadata->n_stored + CHUNKS_BEYOND)
        return fail(metadata, NULL, "it stores fewer chunks than it describes");
    return rfs_chunks_add_chunk(metadata->chunks, corner, sizes, metadata->err);
}

/* Gives the type of a tensor; *WHY is as in read_properties. */
static int read_type(const struct metadata *metadata, const char *name, uint32_t value,
                     struct rfs_type *type, const char **why)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    uint32_t ndim = 0;

    *type = (struct rfs_type){.kind = RFS_TENSOR};
    if (!take_shape(pickle, rfs_dcp_field(pickle, value, RFS_DCP_SIZE), &ndim, type->dims) ||
        rfs_dcp_kind(rfs_dcp_field(pickle, value, RFS_DCP_CHUNKS)) != RFS_DCP_LIST)
        return fail(metadata, name, "a tensor without a size or chunks");
    type->ndim = (uint8_t)ndim;
    return read_properties(metadata, name, rfs_dcp_field(pickle, value, RFS_DCP_PROPERTIES), type,
                           why);
}

/* Declares the chunks that a file describes of a tensor of TYPE, which other files have, too. */
static int declare_chunks(struct metadata *metadata, const char *name, uint32_t value,
                          const struct rfs_type *type)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    struct rfs_dcp_each each = rfs_dcp_each(pickle, rfs_dcp_field(pickle, value, RFS_DCP_CHUNKS));
    struct rfs_type own;
    const char *why;
    uint32_t chunk;
    int rc = read_type(metadata, name, value, &own, &why);

    if (rc == 0 && (why || own.dtype != type->dtype || own.ndim != type->ndim ||
                    memcmp(own.dims, type->dims, sizeof own.dims) != 0))
        return rfs_fail(metadata->err, -EINVAL, RFS_OF(metadata->file, name),
                        "files of one save that has ended",
                        "its type or its size differs between the files");
    while (rc == 0 && rfs_dcp_next(&each, &chunk))
        rc = declare_chunk(metadata, name, type, chunk);
    return rc;
}

/* Declares what N files have under one name. */
static int declare(const struct description *d, const struct described *described, size_t n)
{
    struct metadata *first = &d->files[described->file];
    struct rfs_type type;
    size_t length = 0;
    const char *name = name_in_part(first, described->key, &length);
    const char *why;
    const enum rfs_dcp_class class = rfs_dcp_class(&first->pickle, described->value);

    for (size_t i = 1; i < n; i++)
        if (rfs_dcp_class(&d->files[described[i].file].pickle, described[i].value) != class)
            return fail(&d->files[described[i].file], name, "it is a tensor in some files only");
    if (class == RFS_DCP_BYTES)
        return rfs_chunks_add_object(d->chunks, name, length, d->err);
    if (class != RFS_DCP_TENSOR)
        return fail(first, name, "it is neither a tensor nor an object");
    int rc = rfs_chunks_check_flat(first->file, name, length, d->err)
                 ?: read_type(first, name, described->value, &type, &why);
    if (rc == 0 && why)
        return rfs_chunks_add_unread(d->chunks, name, length, why, d->err);
    if (rc == 0)
        rc = rfs_chunks_add_tensor(d->chunks, name, length, &type, d->err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = declare_chunks(&d->files[described[i].file], name, described[i].value, &type);
    return rc;
}

RFS_COMPARE(by_name, struct described, x, y,
            RFS_ORDER(x->name, y->name) ?: RFS_ORDER(x->file, y->file))

/* The values of all files. */
struct all_described {
    RFS_VEC(struct described) list;
    struct rfs_intern *names;
};

static void all_end(struct all_described *all)
{
    free(all->list.data);
    rfs_intern_free(all->names);
}

/*
 * Notes a tensor that is left out though nothing but its name says that it is outside of the entry.
 */
static int note_beside(const struct metadata *metadata, const char *name, uint32_t value)
{
    struct rfs_path_list *beside = &metadata->chunks->beside;
    const size_t word = strcspn(name, ".");

    if (metadata->part_keys > 0 || rfs_dcp_class(&metadata->pickle, value) != RFS_DCP_TENSOR ||
        beside->n == DICTS_MOST)
        return 0;
    for (size_t i = 0; i < beside->n; i++)
        if (strcspn(beside->data[i], ".") == word && memcmp(beside->data[i], name, word) == 0)
            return 0;
    return rfs_path_list_add(beside, strdup(name)) ? 0 : rfs_fail_memory(metadata->err);
}

/* Declares what a file has, at once if it is the only file, else into ALL. */
static int declare_file(const struct description *d, uint32_t file, struct all_described *all)
{
    const struct metadata *metadata = &d->files[file];
    struct rfs_dcp_each each = rfs_dcp_each(&metadata->pickle, names_of(metadata));
    struct described described = {.file = file};
    int rc = 0;

    while (rc == 0 && rfs_dcp_next(&each, &described.key) &&
           rfs_dcp_next(&each, &described.value)) {
        size_t n = 0;
        const char *name = rfs_dcp_text(&metadata->pickle, described.key, &n);
        if (!name || n == 0 || !rfs_text_is_utf8(name, n))
            return fail(metadata, NULL, "a name that is not UTF-8 text without NULs");
        const char *whole = name;
        name = name_in_part(metadata, described.key, &n);
        if (!name) {
            rc = note_beside(metadata, whole, described.value);
            continue;
        }
        if (d->n == 1) {
            rc = declare(d, &described, 1);
            continue;
        }
        described.name = rfs_intern_add(all->names, name, n);
        if (described.name == RFS_NO_ID || !RFS_PUSH(&all->list, described))
            return rfs_fail_memory(d->err);
    }
    return rc;
}

/* Declares what several files have, name by name. */
static int declare_joined(const struct description *d, struct all_described *all)
{
    const struct described *list = all->list.data;
    int rc = 0;

    RFS_SORT_ALL(&all->list, by_name);
    for (size_t i = 0, end; rc == 0 && i < all->list.n; i = end) {
        for (end = i + 1; end < all->list.n && list[end].name == list[i].name; end++)
            if (list[end].file == list[end - 1].file)
                return fail(&d->files[list[end].file], rfs_intern_text(all->names, list[end].name),
                            "it is there twice");
        rc = declare(d, &list[i], end - i);
    }
    return rc;
}

static int declare_all(const struct description *d)
{
    RFS_CLEANUP(all_end) struct all_described all = {.names = rfs_intern_new()};
    bool in_part = false;
    int rc = all.names ? 0 : rfs_fail_memory(d->err);

    for (uint32_t i = 0; rc == 0 && i < d->n; i++) {
        if (rfs_dcp_kind(names_of(&d->files[i])) != RFS_DCP_DICT)
            return fail(&d->files[i], NULL, "it has no state_dict_metadata");
        rc = read_paths(&d->files[i]);
        if (rc == 0)
            find_part(&d->files[i]);
        in_part |= d->files[i].in_part;
    }
    if (rc == 0 && !in_part)
        return fail_entry(d->files, names_of(d->files));
    if (rc == 0 && d->n == 1 && d->files->part_bytes == 0)
        rc = note_dicts(d->files);
    for (uint32_t i = 0; rc == 0 && i < d->n; i++)
        rc = declare_file(d, i, &all);
    if (rc == 0)
        rc = declare_joined(d, &all);
    if (rc == 0 && d->files->part_bytes > 0 && d->chunks->tensors.n == 0 &&
        d->chunks->unread.n == 0)
        rc = rfs_fail(d->err, -EINVAL, RFS_IN(d->files->file),
                      "-o entry=NAME, which says where in it the state dict is",
                      "the dict in it has no tensors");
    return rc ? rc : rfs_chunks_sort(d->chunks, d->err);
}

/* The form of the items of a file. */
enum form { UNKNOWN, PLAIN, PACKED };

/* The bytes of an item: the file, and the range in it. */
struct stored {
    uint32_t file;
    enum form form;
    uint64_t offset, bytes;
};

/* Gives the id of a file, and notes which of several files of metadata names it. 0 or -errno. */
static int name_file(const struct metadata *metadata, const char *path, size_t n, uint32_t *file)
{
    struct rfs_chunks *chunks = metadata->chunks;

    *file = rfs_chunks_add_file(chunks, path, n, metadata->err);
    if (*file == RFS_NO_ID)
        return metadata->err ? metadata->err->code : -EINVAL;
    const bool is_new = *file - chunks->first_file == chunks->named_by.n;
    return chunks->first_file == 1 || !is_new || RFS_PUSH(&chunks->named_by, metadata->number)
               ? 0
               : rfs_fail_memory(metadata->err);
}

/* Finds out by what an item went through which form it has. */
static int read_form(const struct metadata *metadata, const char *name, uint32_t transforms,
                     enum form *out)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    struct rfs_dcp_each each = rfs_dcp_each(pickle, transforms);
    const size_t n = each.n;
    uint32_t first = 0;

    *out = n > 0 ? PACKED : PLAIN;
    if (n == 0)
        return 0;
    rfs_dcp_next(&each, &first);
    const char *extension = rfs_dcp_text(pickle, first, NULL);
    if (n == 1 && extension && strcmp(extension, "stream.zstd/1") == 0 &&
        !metadata->chunks->format->keyed)
        return 0;
    return rfs_fail(metadata->err, -ENOTSUP, RFS_OF(metadata->file, name),
                    "dcp.load and dcp.save of torch, with a FileSystemWriter without _extensions",
                    "is stored by the extension %s of torch's writer%s, which is not read",
                    extension ? extension : "(without a name)", n > 1 ? ", and by others" : "");
}

static int read_stored(const struct metadata *metadata, const char *name, uint32_t info,
                       bool is_keyed, struct stored *out)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    int64_t offset = -1;
    int64_t bytes = -1;
    size_t n = 0;
    const char *path = rfs_dcp_text(pickle, rfs_dcp_field(pickle, info, RFS_DCP_RELATIVE_PATH), &n);

    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_OFFSET), &offset);
    rfs_dcp_integer(pickle, rfs_dcp_field(pickle, info, RFS_DCP_LENGTH), &bytes);
    if (!path || (!is_keyed && (offset < 0 || bytes < 0 || bytes > INT64_MAX - offset)))
        return fail(metadata, name, "it is stored without a file, an offset or a length");
    *out = (struct stored){.offset = (uint64_t)offset, .bytes = (uint64_t)bytes};
    return read_form(metadata, name, rfs_dcp_field(pickle, info, RFS_DCP_TRANSFORMS), &out->form)
               ?: name_file(metadata, path, n, &out->file);
}

/* Sets the name by which a file of HyperParallel has a chunk; without one it is the tensor's. */
static int read_key(const struct metadata *metadata, const char *name, uint32_t index,
                    uint32_t info, struct stored *out)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t own = rfs_dcp_field(pickle, info, RFS_DCP_TENSOR_KEY);
    size_t n = 0;
    const char *key =
        rfs_dcp_text(pickle, is_none(own) ? rfs_dcp_field(pickle, index, RFS_DCP_FQN) : own, &n);
    const uint32_t id = key ? rfs_intern_add(metadata->chunks->tables->names, key, n) : RFS_NO_ID;

    if (!key)
        return fail(metadata, name, "a tensor_key that is no text");
    out->offset = id;
    out->bytes = 0;
    return id != RFS_NO_ID ? 0 : rfs_fail_memory(metadata->err);
}

/* Stores a chunk. If several files of metadata have it, it is taken on trust. */
static int store_chunk(const struct description *d, const struct metadata *metadata,
                       const struct rfs_chunked_tensor *tensor, const char *name, uint32_t offset,
                       const struct stored *stored)
{
    struct rfs_chunks *chunks = d->chunks;
    uint64_t corner[RFS_MAX_DIMS];
    uint32_t ndim = 0;

    if (!tensor || !take_shape(&metadata->pickle, offset, &ndim, corner) ||
        ndim != rfs_chunks_type(chunks, tensor->type)->ndim)
        return fail(metadata, name, "it stores a chunk of a tensor that it does not describe");
    const int rc = rfs_chunks_store(chunks, tensor, corner, stored->file, stored->offset,
                                    stored->bytes, metadata->err);
    if (rc == 1 && d->n > 1)
        chunks->tensors.data[tensor - chunks->tensors.data].on_trust = true;
    return rc < 0 ? rc : 0;
}

/* Stores a chunk of HyperParallel. */
static int store_keyed(const struct description *d, const struct metadata *metadata,
                       const char *name, size_t n, uint32_t index, uint32_t info)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(d->chunks, name, n);
    const uint32_t offset = rfs_dcp_field(&metadata->pickle, index, RFS_DCP_OFFSET);
    struct stored stored = {.file = RFS_NO_ID};

    return read_stored(metadata, name, info, true, &stored)
               ?: read_key(metadata, name, index, info, &stored)
               ?: store_chunk(d, metadata, tensor, name, offset, &stored);
}

/* Notes the form of the items of a file: all are of one. */
static int note_form(struct description *d, const struct metadata *metadata, const char *name,
                     const struct stored *stored)
{
    const size_t number = stored->file - d->chunks->first_file;

    unsigned char *form = RFS_VEC_AT(&d->forms, number, UNKNOWN);

    if (!form)
        return rfs_fail_memory(d->err);
    if (*form == UNKNOWN)
        *form = (unsigned char)stored->form;
    return *form == stored->form
               ? 0
               : fail(metadata, name, "its file has compressed items, and others");
}

static int store(struct description *d, const struct metadata *metadata, uint32_t index,
                 uint32_t info)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t offset = rfs_dcp_field(pickle, index, RFS_DCP_OFFSET);
    struct stored stored = {.file = RFS_NO_ID};
    size_t n = 0;
    const uint32_t key = rfs_dcp_field(pickle, index, RFS_DCP_FQN);

    if (rfs_dcp_class(pickle, index) != RFS_DCP_INDEX ||
        rfs_dcp_class(pickle, info) != RFS_DCP_STORAGE_INFO || !rfs_dcp_text(pickle, key, NULL))
        return fail(metadata, NULL, "its storage_data has something else than places");
    const char *name = name_in_part(metadata, key, &n);
    if (!name)
        return 0;
    if (rfs_chunks_is_unread(d->chunks, name, n))
        return 0;
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(d->chunks, name, n);
    if (tensor && d->chunks->format->keyed)
        return store_keyed(d, metadata, name, n, index, info);
    const int rc =
        read_stored(metadata, name, info, false, &stored) ?: note_form(d, metadata, name, &stored);
    if (rc)
        return rc;
    if (!is_none(offset) && !d->chunks->format->keyed)
        return store_chunk(d, metadata, tensor, name, offset, &stored);
    if (tensor)
        return fail(metadata, name, "it stores a chunk without an offset");
    return rfs_chunks_store_object(d->chunks, name, n, stored.file, stored.offset, stored.bytes,
                                   d->err);
}

/* ---- items that are compressed --------------------------------------------------------------- */

/* Adds numbers of bytes; UINT64_MAX: more than that. */
static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t both;

    return rfs_add_u64(a, b, &both) ? both : UINT64_MAX;
}

/*
 * Counts the place of an item in plain bytes, at most MOST of them, if its file has compressed
 * items. *MEMORY is what reading it takes then, and else 0.
 */
static int pack(const struct description *d, uint32_t name, uint32_t file, uint64_t most,
                uint64_t *item, uint64_t *bytes, uint64_t *memory)
{
    struct rfs_chunks *chunks = d->chunks;
    const size_t number = file == RFS_NO_ID ? SIZE_MAX : file - chunks->first_file;

    *memory = 0;
    if (number >= d->forms.n || d->forms.data[number] != PACKED)
        return 0;
    if (*bytes > rfs_packed_bound(most))
        return fail(d->files, rfs_intern_text(chunks->tables->names, name),
                    "it is stored with more bytes than zstd makes of it");
    *memory = sum(most, *bytes);
    const int rc = rfs_files_add_packed(chunks->files, file, *item, *bytes, most, item);
    *bytes = most;
    return rc == 0         ? 0
           : rc == -ENOMEM ? rfs_fail_memory(d->err)
                           : rfs_fail(d->err, rc, RFS_IN(rfs_files_path(chunks->files, file)), NULL,
                                      "its items would be larger than a file can be");
}

/* Counts the places of a chunk and of its copies. */
static int pack_chunk(const struct description *d, uint32_t name, uint32_t number)
{
    struct rfs_chunks *chunks = d->chunks;
    struct rfs_chunk *chunk = &chunks->chunks.data[number];
    const uint32_t copies = rfs_chunks_count_copies(chunks, number);
    const uint64_t most = sum(rfs_chunks_type(chunks, chunk->type)->bytes, AROUND_MOST);
    uint64_t own;
    int rc = pack(d, name, chunk->file, most, &chunk->item, &chunk->item_bytes, &own);
    uint64_t memory = own;
    for (uint32_t i = 0; rc == 0 && i < copies; i++) {
        struct rfs_chunked_copy copy;
        rfs_chunks_copy_at(chunks, number, i, &copy);
        struct rfs_copy_item *item = &chunks->copy_items.data[copy.at];
        uint64_t other;
        rc = pack(d, name, copy.file, most, &item->item, &item->item_bytes, &other);
        memory = rfs_max_u64(memory, sum(own, other)); /* both are compared side by side */
    }
    if (memory > chunks->unpacking) {
        chunks->unpacking = memory;
        chunks->unpacking_name = name;
    }
    return rc;
}

/* Counts the places of compressed items in plain bytes, once everything is stored. */
static int pack_all(const struct description *d)
{
    struct rfs_chunks *chunks = d->chunks;
    uint64_t memory;

    if (!memchr(d->forms.data ?: (const unsigned char *)"", PACKED, d->forms.n))
        return 0;
    int rc = rfs_dcp_objects_apart(chunks, d->err);
    for (size_t i = 0; rc == 0 && i < chunks->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
        for (uint32_t c = 0; rc == 0 && c < tensor->n; c++)
            rc = pack_chunk(d, tensor->name, tensor->first + c);
    }
    for (size_t i = 0; rc == 0 && i < chunks->objects.n; i++) {
        struct rfs_chunked_object *object = &chunks->objects.data[i];
        rc = pack(d, object->name, object->file, OBJECT_MOST, &object->item, &object->item_bytes,
                  &memory);
    }
    return rc;
}

static int store_all(struct description *d)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < d->n; i++) {
        const struct metadata *metadata = &d->files[i];
        const struct rfs_dcp_pickle *pickle = &metadata->pickle;
        struct rfs_dcp_each each =
            rfs_dcp_each(pickle, rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA));
        uint32_t key;
        uint32_t value;
        while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
            rc = store(d, metadata, key, value);
    }
    return rc ? rc : rfs_chunks_finish(d->chunks, d->err) ?: pack_all(d);
}

static int unflatten(const struct metadata *metadata, uint32_t key, uint32_t value)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t shape = rfs_dcp_get(pickle, value, RFS_DCP_ORIGINAL_SHAPE);
    uint64_t dims[RFS_MAX_DIMS];
    uint32_t ndim = 0;
    size_t n = 0;
    const char *name = rfs_dcp_text(pickle, key, &n);

    if (is_none(shape))
        return 0;
    if (name && metadata->part_bytes > 0 && !(name = name_in_part(metadata, key, &n)))
        return 0;
    return name && take_shape(pickle, shape, &ndim, dims)
               ? rfs_chunks_unflatten(metadata->chunks, name, n, ndim, dims, metadata->err)
               : fail(metadata, name, "a shape in mcore_data that is none");
}

/*
 * Checks a tensor when there is no mcore_data, which some versions of torch lose. A tensor that is
 * the state of another one, and may have been flattened, was: its order is not known for certain.
 */
static int check_state(const struct description *d, const struct rfs_chunked_tensor *tensor)
{
    static const char state[] = "optimizer.state.";
    struct rfs_chunks *chunks = d->chunks;
    const char *name = rfs_intern_text(chunks->tables->names, tensor->name);
    const char *part = d->files->part_bytes > 0 ? chunks->entry : "";
    RFS_FREE char *full = rfs_text_printf("%s%s%s", part, *part ? "." : "", name);
    const char *kind = full ? strstr(full, state) : NULL;
    const char *dot = kind ? strchr(kind + strlen(state), '.') : NULL;
    const struct rfs_chunked_tensor *of =
        dot ? rfs_chunks_find(chunks, dot + 1, strlen(dot + 1)) : NULL;
    /* The other tensor may be outside of the part: its shape is not known then. */
    bool outside = false;

    if (!full)
        return rfs_fail_memory(d->err);
    for (uint32_t i = 0; dot && *part && i < d->n; i++)
        outside |= rfs_intern_find(d->files[i].pickle.texts, dot + 1, strlen(dot + 1)) != RFS_NO_ID;
    if (!outside && (!of || !rfs_chunks_may_be_flat(chunks, tensor, of)))
        return 0;
    return rfs_chunks_add_unread(chunks, name, strlen(name),
                                 "Megatron-Core flattened it, and the metadata lacks its shape "
                                 "(mcore_data)",
                                 d->err);
}

static int unflatten_file(const struct description *d, const struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_MCORE_DATA);
    struct rfs_dcp_each each = rfs_dcp_each(pickle, data);
    uint32_t key;
    uint32_t value;
    int rc = 0;

    if (rfs_dcp_kind(data) != RFS_DCP_DICT)
        return 0;
    if (d->n > 1)
        return fail(metadata, NULL, "Megatron-Core has one such file for all ranks");
    d->chunks->mcore_data = true;
    while (rc == 0 && rfs_dcp_next(&each, &key) && rfs_dcp_next(&each, &value))
        rc = unflatten(metadata, key, value);
    return rc;
}

static int unflatten_all(const struct description *d)
{
    const struct rfs_chunks *chunks = d->chunks;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < d->n; i++)
        rc = unflatten_file(d, &d->files[i]);
    for (size_t i = 0; rc == 0 && !chunks->mcore_data && i < chunks->tensors.n; i++)
        rc = check_state(d, &chunks->tensors.data[i]);
    return rc;
}

static int check_root(struct metadata *metadata)
{
    const struct rfs_dcp_pickle *pickle = &metadata->pickle;
    const uint32_t version = rfs_dcp_field(pickle, pickle->root, RFS_DCP_VERSION);
    const uint32_t data = rfs_dcp_field(pickle, pickle->root, RFS_DCP_STORAGE_DATA);
    const bool is_keyed = metadata->chunks->format->keyed;
    const char *text = rfs_dcp_text(pickle, version, NULL);

    if (pickle->programs[is_keyed ? RFS_DCP_TORCH : RFS_DCP_HYPER])
        return rfs_fail(metadata->err, -EINVAL, RFS_IN(metadata->file),
                        "a folder with all files of one save, and none of another",
                        "it is metadata of %s, and the names of the files beside it are not",
                        is_keyed ? "torch.distributed.checkpoint" : "HyperParallel");
    if (rfs_dcp_class(pickle, pickle->root) != RFS_DCP_METADATA)
        return fail(metadata, NULL, "it is another object");
    if (!is_none(version) &&
        (!text || (is_keyed ? strcmp(text, "1.0") != 0 && strcmp(text, "2.0") != 0
                            : strncmp(text, "1.", 2) != 0)))
        return rfs_fail(metadata->err, -ENOTSUP, RFS_IN(metadata->file), NULL,
                        "the metadata is of version %s; version %s is read",
                        text ? text : "unknown", is_keyed ? "1.0 or 2.0" : "1");
    if (rfs_dcp_kind(data) != RFS_DCP_DICT)
        return fail(metadata, NULL, "it has no storage_data");
    metadata->n_stored = rfs_dcp_each(pickle, data).n / 2;
    return 0;
}

/* Describes the checkpoint by files that are read. */
static int describe(struct description *d)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < d->n; i++)
        rc = check_root(&d->files[i]);
    return rc ? rc
              : declare_all(d) ?: store_all(d)
              ?: (d->chunks->format->keyed ? 0 : unflatten_all(d));
}

static void metadata_end(struct metadata *metadata)
{
    rfs_dcp_pickle_free(&metadata->pickle);
    free(metadata->paths);
}

int rfs_dcp_describe(const struct rfs_bytes_source *from, struct rfs_chunks *chunks,
                     struct rfs_error *err)
{
    RFS_CLEANUP(metadata_end)
    struct metadata metadata = {.file = from->file, .chunks = chunks, .err = err};
    struct description d = {.files = &metadata, .n = 1, .chunks = chunks, .err = err};
    RFS_BUDGET_SHARE share = 0;

    const int rc = rfs_budget_share_take(&share, rfs_dcp_memory(from->size));
    if (rc < 0)
        return rfs_files_fail(err, metadata.file, rc);
    const int described = rfs_dcp_pickle_read(from, &metadata.pickle, err) ?: describe(&d);
    free(d.forms.data);
    return described;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void description_end(struct description *d)
{
    for (uint32_t i = 0; d->files && i < d->n; i++)
        metadata_end(&d->files[i]);
    free(d->files);
    free(d->forms.data);
}

/* Reads the pickle of file FILE; with PICKLE NULL, gives its size only. */
static int read_file(const struct description *d, uint32_t file, struct rfs_dcp_pickle *pickle,
                     uint64_t *size)
{
    struct rfs_files *files = d->chunks->files;
    const char *path = rfs_files_path(files, file);
    struct rfs_reading reading;

    int rc = rfs_reading_begin_quiet(files, file, &reading);
    if (rc == 0) {
        *size = reading.size;
        rc = pickle ? rfs_dcp_pickle_read(RFS_READING_SOURCE(&reading, path), pickle, d->err) : 0;
        const int ended = rfs_reading_end(&reading);
        if (ended < 0)
            rc = rfs_files_fail(d->err, path, ended);
    } else {
        rfs_files_fail(d->err, path, rc);
    }
    if (rc < 0)
        rfs_files_reason(files, file, rc, d->err);
    return rc;
}

/* Reads all files, whose memory SHARE pays for. */
static int read_files(struct description *d, size_t *share)
{
    uint64_t all = 0;
    uint64_t size;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < d->n; i++) {
        rc = read_file(d, i, NULL, &size);
        if (rc == 0 && (size > RFS_DCP_MOST || (all += size) > RFS_DCP_MOST))
            return rfs_fail(d->err, -EFBIG, RFS_IN(rfs_files_path(d->chunks->files, i)), NULL,
                            d->n == 1 ? "the file has more than %llu bytes"
                                      : "the files of metadata have more than %llu bytes together",
                            (unsigned long long)RFS_DCP_MOST);
    }
    /* Joining several files takes a struct described for each name, which has 4 bytes and more. */
    if (rc == 0 && (rc = rfs_budget_share_take(share, rfs_dcp_memory(all) +
                                                          (d->n > 1 ? 6 * (size_t)all : 0))) < 0)
        rfs_files_fail(d->err, rfs_files_path(d->chunks->files, 0), rc);
    for (uint32_t i = 0; rc == 0 && i < d->n; i++)
        rc = read_file(d, i, &d->files[i].pickle, &size);
    return rc;
}

/* Says of a gap that nothing tells how many ranks saved. False when out of memory. */
static bool set_remedy(struct rfs_chunks *chunks, uint32_t n)
{
    const char *first = rfs_path_name(rfs_files_path(chunks->files, 0));

    if (strcmp(first, ".metadata") == 0)
        return true;
    chunks->remedy = rfs_text_printf("the metadata of all ranks; that of %u is here, '%s' to '%s'",
                                     n, first, rfs_path_name(rfs_files_path(chunks->files, n - 1)));
    return chunks->remedy != NULL;
}

int rfs_dcp_describe_files(struct rfs_chunks *chunks, const struct rfs_chunks_source *source,
                           struct rfs_error *err)
{
    const uint32_t n = rfs_files_count_paths(source->files);
    RFS_BUDGET_SHARE share = 0;
    RFS_CLEANUP(description_end)
    struct description d = {
        .files = calloc(n, sizeof *d.files), .n = n, .chunks = chunks, .err = err};

    chunks->lost = source->lost ? strdup(source->lost) : NULL;
    if (!d.files || (source->lost && !chunks->lost) || !set_remedy(chunks, n))
        return rfs_fail_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        d.files[i].file = rfs_files_path(chunks->files, i);
        d.files[i].number = i;
        d.files[i].chunks = chunks;
        d.files[i].err = err;
    }
    return read_files(&d, &share) ?: describe(&d);
}
