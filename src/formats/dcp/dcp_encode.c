/* SPDX-License-Identifier: Apache-2.0 */
/*
 * __R_0.distcp: items end to end, each a complete zip archive as torch.save writes it for a bare
 * tensor. An archive may begin anywhere; its offsets and its padding count from its own beginning.
 *
 * .metadata, which dcp_metadata.c draws: a pickle of protocol 4, without frames. Objects are made
 * as pickle makes them: NEWOBJ, and BUILD with a dict of the fields; TensorProperties have a tuple.
 * A MetadataIndex of bytes has None for offset and index; storage_meta is None.
 *
 * HyperParallel's has plain tuples in place of torch.Size, so that it can be loaded without torch;
 * the fields of TensorProperties by name, an empty offset for bytes, no storage_meta, and for a
 * tensor the length -1 and its key.
 */
#include "formats/dcp/dcp_encode.h"

#include "base/cleanup.h"
#include "formats/dcp/dcp_pickle.h"
#include "formats/torch/torch.h"
#include "formats/torch/torch_encode.h"

#include <endian.h>

/* ---- items ----------------------------------------------------------------------------------- */

/* The regions of the first item of a type. */
struct form {
    size_t first, end;
};

/* The items that are put into a file, and the forms of their types. */
struct items {
    struct rfs_image_builder builder;
    struct rfs_intern *types;
    RFS_VEC(struct form) forms; /* by type: id in TYPES */
};

static void items_end(struct items *items)
{
    rfs_image_builder_end(&items->builder);
    rfs_intern_free(items->types);
    free(items->forms.data);
}

static int put_archive(struct items *items, const struct rfs_torch_item *item,
                       struct rfs_error *err)
{
    const uint32_t id = rfs_intern_add(items->types, item->type, sizeof *item->type);
    struct form form;

    if (id == RFS_NO_ID)
        return rfs_fail_memory(err);
    if (id < items->forms.n) {
        form = items->forms.data[id];
        rfs_image_repeat(&items->builder, form.first, form.end, item->target, item->at);
        return 0;
    }
    form.first = rfs_image_cut(&items->builder);
    const int rc = rfs_torch_encode_item(&items->builder, item, err);
    form.end = rfs_image_cut(&items->builder);
    return rc ? rc : RFS_PUSH(&items->forms, form) ? 0 : rfs_fail_memory(err);
}

int rfs_dcp_encode_items(const struct rfs_image_tensor *items, size_t n, bool crc, const char *path,
                         struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(items_end) struct items all = {.types = rfs_intern_new()};
    int rc = all.types ? 0 : rfs_fail_memory(err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = put_archive(
            &all,
            &(struct rfs_torch_item){
                .target = items[i].target, .at = items[i].at, .type = items[i].type, .crc = crc},
            err);
    if (rc)
        return rc;
    rc = rfs_image_finish(&all.builder, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(path), NULL,
                        "a .distcp file would be larger than a file can be");
    return rc ? rfs_fail_memory(err) : 0;
}

int rfs_dcp_item_bytes(const struct rfs_type *type, uint64_t *out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    const int rc = rfs_torch_encode_item(&builder, &(struct rfs_torch_item){.type = type}, err);

    *out = rfs_image_here(&builder);
    return rc == 0 && (builder.failed || builder.literals.failed) ? rfs_fail_memory(err) : rc;
}

/* ---- .metadata ------------------------------------------------------------------------------- */

#define SIZE RFS_DCP_NO_CLASS /* torch.Size, among the classes */

struct pickler {
    const struct rfs_tables *tables;
    enum rfs_dcp_program program;
    struct rfs_bytes *out;
    uint32_t memo; /* next memo number */
    /* memo numbers + 1; 0: not written yet */
    uint32_t class_memo[SIZE + 1];
    uint32_t word_memo[RFS_DCP_WORDS];
    uint32_t properties[RFS_DTYPE_COUNT]; /* properties of each dtype */
};

static void put(struct pickler *p, char op)
{
    rfs_bytes_put(p->out, &op, 1);
}

/* Puts an opcode and a number of BYTES. */
static inline void put_little(struct pickler *p, char op, uint64_t number, unsigned bytes)
{
    const uint64_t little = htole64(number);
    char both[1 + sizeof little];

    both[0] = op;
    memcpy(both + 1, &little, sizeof little);
    rfs_bytes_put(p->out, both, 1 + bytes);
}

static void put_int(struct pickler *p, uint64_t number)
{
    if (number <= INT32_MAX) {
        put_little(p, 'J', number, 4);
        return;
    }
    put(p, '\x8a'); /* LONG1 of 8 bytes; numbers are below 2^63 */
    put_little(p, 8, number, 8);
}

static void put_text(struct pickler *p, const char *text)
{
    const size_t n = strlen(text);

    put_little(p, 'X', n, 4);
    rfs_bytes_put(p->out, text, n);
}

/* Numbers the object on the stack (MEMOIZE). Returns the number + 1. */
static uint32_t memoize(struct pickler *p)
{
    put(p, '\x94');
    return ++p->memo;
}

/* Puts the object with MEMO on the stack again; returns false when MEMO is not set. */
static bool recall(struct pickler *p, uint32_t memo)
{
    if (memo > 0)
        put_little(p, 'j', memo - 1, 4);
    return memo > 0;
}

static void put_global(struct pickler *p, const char *module, const char *name)
{
    put_text(p, module);
    put_text(p, name);
    put(p, '\x93'); /* STACK_GLOBAL */
}

static void put_class(struct pickler *p, enum rfs_dcp_class class)
{
    const char *module = "torch";
    const char *name = "Size";

    if (recall(p, p->class_memo[class]))
        return;
    if (class != SIZE)
        rfs_dcp_class_name(p->program, class, &module, &name);
    put_global(p, module, name);
    p->class_memo[class] = memoize(p);
}

static void put_field(struct pickler *p, enum rfs_dcp_word field)
{
    if (recall(p, p->word_memo[field]))
        return;
    put_text(p, rfs_dcp_words[field]);
    p->word_memo[field] = memoize(p);
}

/* Begins an object of a class, and the dict of its fields, which end_object sets. */
static void begin_object(struct pickler *p, enum rfs_dcp_class class)
{
    put_class(p, class);
    rfs_bytes_put_text(p->out, ")\x81}("); /* EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK */
}

static void end_object(struct pickler *p)
{
    rfs_bytes_put_text(p->out, "ub"); /* SETITEMS BUILD */
}

/* Puts a tuple of numbers. */
static void put_numbers(struct pickler *p, uint32_t n, const uint64_t *numbers)
{
    put(p, '(');
    for (uint32_t i = 0; i < n; i++)
        put_int(p, numbers[i]);
    put(p, 't');
}

static void put_size(struct pickler *p, uint32_t ndim, const uint64_t *dims)
{
    if (p->program == RFS_DCP_TORCH)
        put_class(p, SIZE);
    put_numbers(p, ndim, dims);
    if (p->program == RFS_DCP_TORCH)
        rfs_bytes_put_text(p->out, "\x85R"); /* TUPLE1 REDUCE */
}

/* Puts HyperParallel's TensorProperties. */
static void put_named(struct pickler *p, enum rfs_dtype dtype)
{
    char name[64];

    snprintf(name, sizeof name, "torch.%s", rfs_torch_dtype_name(dtype));
    begin_object(p, RFS_DCP_TENSOR_PROPERTIES);
    put_field(p, RFS_DCP_DTYPE);
    put_text(p, name);
    put_text(p, "requires_grad");
    put(p, '\x89'); /* NEWFALSE */
    put_text(p, "memory_format");
    put(p, 'N');
    end_object(p);
    p->properties[dtype] = memoize(p);
}

/* Puts (dtype, layout, requires_grad, memory_format, pin_memory). */
static void put_properties(struct pickler *p, enum rfs_dtype dtype)
{
    if (recall(p, p->properties[dtype]))
        return;
    if (p->program == RFS_DCP_HYPER) {
        put_named(p, dtype);
        return;
    }
    put_class(p, RFS_DCP_TENSOR_PROPERTIES);
    rfs_bytes_put_text(p->out, ")\x81(");
    put_global(p, "torch", rfs_torch_dtype_name(dtype));
    put_global(p, "torch.serialization", "_get_layout");
    put_text(p, rfs_dcp_words[RFS_DCP_STRIDED]);
    rfs_bytes_put_text(p->out, "\x85R\x89"); /* TUPLE1 REDUCE NEWFALSE */
    put_global(p, "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING");
    put_little(p, 'K', 0, 1);                  /* torch_contiguous_format */
    rfs_bytes_put_text(p->out, "\x85R\x89tb"); /* and NEWFALSE TUPLE BUILD */
    p->properties[dtype] = memoize(p);
}

static const struct rfs_type *type_of(const struct pickler *p, uint32_t type)
{
    return rfs_intern_bytes(p->tables->types, type, NULL);
}

/* Puts the TensorStorageMetadata of a tensor. */
static void put_tensor(struct pickler *p, const struct rfs_dcp_listed_tensor *tensor)
{
    const struct rfs_type *whole = type_of(p, tensor->whole);
    uint64_t at[RFS_MAX_DIMS];

    begin_object(p, RFS_DCP_TENSOR);
    put_field(p, RFS_DCP_PROPERTIES);
    put_properties(p, (enum rfs_dtype)whole->dtype);
    put_field(p, RFS_DCP_SIZE);
    put_size(p, whole->ndim, whole->dims);
    put_field(p, RFS_DCP_CHUNKS);
    rfs_bytes_put_text(p->out, "](");
    for (size_t i = 0; i < tensor->n; i++) {
        rfs_type_place(whole, tensor->items[i].corner, at);
        begin_object(p, RFS_DCP_CHUNK);
        put_field(p, RFS_DCP_OFFSETS);
        put_size(p, whole->ndim, at);
        put_field(p, RFS_DCP_SIZES);
        put_size(p, whole->ndim, type_of(p, tensor->items[i].type)->dims);
        end_object(p);
    }
    put(p, 'e');
    end_object(p);
}

/* Puts a MetadataIndex: of a value that is no tensor when WHOLE is NULL. */
static void put_index(struct pickler *p, uint32_t name, const struct rfs_type *whole,
                      const uint64_t *at, uint64_t number)
{
    begin_object(p, RFS_DCP_INDEX);
    put_field(p, RFS_DCP_FQN);
    recall(p, name);
    put_field(p, RFS_DCP_OFFSET);
    if (whole)
        put_size(p, whole->ndim, at);
    else
        put(p, p->program == RFS_DCP_TORCH ? 'N' : ')');
    put_field(p, RFS_DCP_INDEX_HINT);
    if (whole)
        put_int(p, number);
    else
        put(p, 'N');
    end_object(p);
}

/* KEY: id of the name of HyperParallel's tensor; RFS_NO_ID of all else. */
static void put_info(struct pickler *p, const char *path, uint64_t begin, uint64_t bytes,
                     uint32_t key)
{
    begin_object(p, RFS_DCP_STORAGE_INFO);
    put_field(p, RFS_DCP_RELATIVE_PATH);
    put_text(p, path);
    put_field(p, RFS_DCP_OFFSET);
    put_int(p, begin);
    put_field(p, RFS_DCP_LENGTH);
    if (key == RFS_NO_ID) {
        put_int(p, bytes);
    } else {
        put_little(p, 'J', UINT32_MAX, 4); /* -1 */
        put_field(p, RFS_DCP_TENSOR_KEY);
        put_text(p, rfs_intern_text(p->tables->names, key));
    }
    end_object(p);
}

/* Puts the MetadataIndex and the _StorageInfo of each item of a tensor. */
static void put_items(struct pickler *p, const struct rfs_dcp_listed_tensor *tensor, uint32_t name)
{
    const struct rfs_type *whole = type_of(p, tensor->whole);
    const bool hyper = p->program == RFS_DCP_HYPER;
    uint64_t at[RFS_MAX_DIMS];
    char path[48];

    for (size_t i = 0; i < tensor->n; i++) {
        const struct rfs_dcp_listed_item *item = &tensor->items[i];
        rfs_type_place(whole, item->corner, at);
        snprintf(path, sizeof path, hyper ? "_rank%u_.safetensors" : "__%u_0.distcp", item->file);
        put_index(p, name, whole, at, i);
        if (hyper)
            put_info(p, path, 0, 0, item->at.key);
        else
            put_info(p, path, item->at.begin, item->at.bytes, RFS_NO_ID);
    }
}

/* Puts a name as the key of the value that follows. Returns its memo number. */
static uint32_t put_name(struct pickler *p, uint32_t name)
{
    put_text(p, rfs_intern_text(p->tables->names, name));
    return memoize(p);
}

/* What is known of a name that was put. */
struct put_name {
    uint32_t memo;  /* its memo number */
    uint32_t shape; /* as in struct rfs_dcp_listed_tensor */
};

/* Puts state_dict_metadata, and fills NAMES. */
static int put_values(struct pickler *p, const struct rfs_dcp_listing *listing,
                      struct put_name *names, struct rfs_error *err)
{
    struct rfs_dcp_listed_tensor tensor;

    for (size_t i = 0; i < listing->n; i++) {
        const int rc = listing->list(listing->ctx, i, &tensor, err);
        if (rc)
            return rc;
        names[i] = (struct put_name){put_name(p, tensor.name), tensor.shape};
        put_tensor(p, &tensor);
    }
    for (size_t i = 0; i < listing->n_objects; i++) {
        names[listing->n + i].memo = put_name(p, listing->objects[i].name);
        put_class(p, RFS_DCP_BYTES);
        rfs_bytes_put_text(p->out, ")\x81"); /* EMPTY_TUPLE NEWOBJ */
    }
    return 0;
}

/* Puts storage_data. */
static int put_infos(struct pickler *p, const struct rfs_dcp_listing *listing,
                     const struct put_name *names, struct rfs_error *err)
{
    struct rfs_dcp_listed_tensor tensor;

    for (size_t i = 0; i < listing->n; i++) {
        const int rc = listing->list(listing->ctx, i, &tensor, err);
        if (rc)
            return rc;
        put_items(p, &tensor, names[i].memo);
    }
    for (size_t i = 0; i < listing->n_objects; i++) {
        put_index(p, names[listing->n + i].memo, NULL, NULL, 0);
        put_info(p, listing->objects_file, listing->objects[i].begin, listing->objects[i].bytes,
                 RFS_NO_ID);
    }
    return 0;
}

/* Puts mcore_data. */
static void put_shapes(struct pickler *p, const struct rfs_dcp_listing *listing,
                       const struct put_name *names)
{
    put_text(p, rfs_dcp_words[RFS_DCP_MCORE_DATA]);
    rfs_bytes_put_text(p->out, "}(");
    for (size_t i = 0; i < listing->n; i++) {
        const uint32_t shape = names[i].shape;
        recall(p, names[i].memo);
        put(p, '}');
        if (shape == RFS_NO_ID)
            continue;
        put_text(p, rfs_dcp_words[RFS_DCP_ORIGINAL_SHAPE]);
        put_numbers(p, type_of(p, shape)->ndim, type_of(p, shape)->dims);
        put(p, 's'); /* SETITEM */
    }
    put(p, 'u');
}

/* Puts all; NAMES has room for each name. */
static int put_all(struct pickler *p, const struct rfs_dcp_listing *listing, struct put_name *names,
                   struct rfs_error *err)
{
    rfs_bytes_put_text(p->out, "\x80\x04");
    begin_object(p, RFS_DCP_METADATA);
    put_text(p, rfs_dcp_words[RFS_DCP_STATE_DICT_METADATA]);
    rfs_bytes_put_text(p->out, "}(");
    int rc = put_values(p, listing, names, err);
    if (rc)
        return rc;
    put(p, 'u');
    put_text(p, rfs_dcp_words[RFS_DCP_PLANNER_DATA]);
    rfs_bytes_put_text(p->out, "}(");
    for (size_t i = 0; i < listing->n + listing->n_objects; i++) {
        recall(p, names[i].memo);
        recall(p, names[i].memo);
        put(p, '\x85'); /* TUPLE1 */
    }
    put(p, 'u');
    put_text(p, rfs_dcp_words[RFS_DCP_STORAGE_DATA]);
    rfs_bytes_put_text(p->out, "}(");
    rc = put_infos(p, listing, names, err);
    if (rc)
        return rc;
    put(p, 'u');
    if (listing->program == RFS_DCP_TORCH) {
        put_text(p, rfs_dcp_words[RFS_DCP_STORAGE_META_FIELD]);
        put(p, 'N');
    }
    put_text(p, rfs_dcp_words[RFS_DCP_VERSION]);
    put_text(p, listing->program == RFS_DCP_TORCH ? "1.0.0" : "1.0");
    if (listing->mcore_data)
        put_shapes(p, listing, names);
    end_object(p);
    put(p, '.');
    return 0;
}

int rfs_dcp_encode_metadata(const struct rfs_tables *tables, const struct rfs_dcp_listing *listing,
                            struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_FREE struct put_name *names = calloc(listing->n + listing->n_objects + 1, sizeof *names);
    struct pickler pickler = {
        .tables = tables, .program = listing->program, .out = &builder.literals};

    *out = NULL;
    const int rc = names ? put_all(&pickler, listing, names, err) : rfs_fail_memory(err);
    return rc ? rc : rfs_image_finish(&builder, out) ? rfs_fail_memory(err) : 0;
}
