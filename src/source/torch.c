/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.save since torch 1.6: a zip archive of stored entries, in one folder named after the file:
 *
 *     NAME/data.pkl     the object, a pickle of protocol 2; tensors name their storages by key
 *     NAME/data/KEY     the bytes of a storage
 *     NAME/byteorder    "little" (torch 2; absent before)
 *     NAME/version      a number up to 10
 *
 * and, in the pickle,
 *
 *     storage    = persistent id ("storage", CLASS, KEY, LOCATION, ELEMENTS)
 *     tensor     = torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks
 *                  [, metadata]), or _v3 with a dtype behind the hooks; offset and stride in elements
 *     parameter  = torch._utils._rebuild_parameter(tensor, requires_grad, hooks)
 *
 * Source: torch/serialization.py and torch/_utils.py of 1.13 and 2.9.
 */
#include "source/torch.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMEDY_SAVE "save it again with torch.save of torch 1.6 or later"
#define REMEDY_COPY "compare the file with its original, or save it again"
#define VERSION_MOST 10

static const struct {
    enum rfs_dtype dtype;
    const char *name;
    const char *storage; /* NULL: in an UntypedStorage only */
} dtypes[] = {
    {RFS_FLOAT64, "float64", "DoubleStorage"},
    {RFS_FLOAT32, "float32", "FloatStorage"},
    {RFS_FLOAT16, "float16", "HalfStorage"},
    {RFS_BFLOAT16, "bfloat16", "BFloat16Storage"},
    {RFS_INT64, "int64", "LongStorage"},
    {RFS_INT32, "int32", "IntStorage"},
    {RFS_INT16, "int16", "ShortStorage"},
    {RFS_INT8, "int8", "CharStorage"},
    {RFS_UINT8, "uint8", "ByteStorage"},
    {RFS_BOOL, "bool", "BoolStorage"},
    {RFS_COMPLEX64, "complex64", "ComplexFloatStorage"},
    {RFS_COMPLEX128, "complex128", "ComplexDoubleStorage"},
    {RFS_UINT16, "uint16", NULL},
    {RFS_UINT32, "uint32", NULL},
    {RFS_UINT64, "uint64", NULL},
    {RFS_FLOAT8_E4M3FN, "float8_e4m3fn", NULL},
    {RFS_FLOAT8_E5M2, "float8_e5m2", NULL},
};

enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *rfs_torch_dtype_name(enum rfs_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

const char *rfs_torch_storage_class(enum rfs_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].storage;
    return NULL;
}

static bool names(const struct rfs_node *global, const char *name)
{
    return name && strlen(name) == global->of.global.name_bytes &&
           memcmp(rfs_node_global_name(global), name, strlen(name)) == 0;
}

struct opening {
    rfs_read_fn *read;
    void *ctx;
    uint64_t size;
    uint16_t origin;
    const char *file;
    struct rfs_torch *torch;
    struct rfs_error *err;
};

/* What the file is, by its first bytes. */
static int check_magic(const struct opening *opening)
{
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc};
    unsigned char head[6] = {0};

    if (opening->size < sizeof head)
        return rfs_fail(opening->err, -EINVAL, RFS_IN(opening->file), REMEDY_COPY,
                        "the file is truncated, or not written by torch.save");
    const int rc = opening->read(opening->ctx, head, sizeof head, 0);
    if (rc)
        return rfs_fail(opening->err, rc, RFS_AT(opening->file, 0), NULL, "cannot be read: %s",
                        strerror(-rc));
    if (memcmp(head, legacy, sizeof head) == 0)
        return rfs_fail(
            opening->err, -ENOTSUP, RFS_IN(opening->file),
            "torch.save(torch.load(FILE, map_location=\"cpu\"), FILE) with torch 1.6 or "
            "later",
            "the file is of torch.save's format before 1.6");
    if (memcmp(head, "PK\3\4", 4) != 0)
        return rfs_fail(opening->err, -EINVAL, RFS_IN(opening->file), REMEDY_SAVE,
                        "the file is not written by torch.save");
    return 0;
}

/* The entry PREFIX/NAME. */
static const struct rfs_zip_entry *find_entry(const struct rfs_torch *torch, const char *name,
                                              size_t name_bytes)
{
    char path[1024];
    const size_t n = torch->prefix_bytes + 1 + name_bytes;

    if (n >= sizeof path)
        return NULL;
    memcpy(path, torch->prefix, torch->prefix_bytes);
    path[torch->prefix_bytes] = '/';
    memcpy(path + torch->prefix_bytes + 1, name, name_bytes);
    return rfs_zip_find(&torch->zip, path, n);
}

/* All entries are in one folder; torch's reader insists on it. */
static int find_prefix(const struct opening *opening)
{
    struct rfs_torch *torch = opening->torch;

    for (size_t i = 0; i < torch->zip.n; i++) {
        const struct rfs_zip_entry *entry = &torch->zip.entries[i];
        const char *slash = memchr(entry->name, '/', entry->name_bytes);
        if (i == 0 && slash) {
            torch->prefix = entry->name;
            torch->prefix_bytes = (size_t)(slash - entry->name);
        }
        if (!slash || (size_t)(slash - entry->name) != torch->prefix_bytes ||
            memcmp(entry->name, torch->prefix, torch->prefix_bytes) != 0)
            return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->file, entry->name), REMEDY_SAVE,
                            "the archive's entries are not all in one folder, as torch.save puts "
                            "them");
    }
    if (find_entry(torch, "constants.pkl", 13))
        return rfs_fail(opening->err, -ENOTSUP, RFS_IN(opening->file),
                        "save its state_dict() with torch.save",
                        "the file is a TorchScript archive");
    return 0;
}

/* A small entry's content as a text; empty when there is no such entry. */
static int read_small(const struct opening *opening, const char *name, char *text, size_t cap)
{
    const struct rfs_zip_entry *entry = find_entry(opening->torch, name, strlen(name));

    *text = '\0';
    if (!entry)
        return 0;
    if (entry->bytes >= cap)
        return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->file, name), REMEDY_COPY,
                        "the archive's entry is too long");
    const int rc = opening->read(opening->ctx, text, (size_t)entry->bytes, entry->offset);
    if (rc)
        return rfs_fail(opening->err, rc, RFS_AT(opening->file, entry->offset), NULL,
                        "cannot be read: %s", strerror(-rc));
    text[entry->bytes] = '\0';
    return 0;
}

static int check_versions(const struct opening *opening)
{
    char version[32];
    char order[32];

    int rc = read_small(opening, "version", version, sizeof version);
    if (rc == 0)
        rc = read_small(opening, "byteorder", order, sizeof order);
    if (rc)
        return rc;
    char *end;
    const unsigned long number = strtoul(version, &end, 10);
    if (end == version || (*end && *end != '\n') || number < 1 || number > VERSION_MOST)
        return rfs_fail(opening->err, -ENOTSUP, RFS_IN(opening->file), REMEDY_SAVE,
                        "the file's version is not one of 1 to %d", VERSION_MOST);
    if (*order && strcmp(order, "little") != 0)
        return rfs_fail(opening->err, -ENOTSUP, RFS_IN(opening->file),
                        "save it again on a little-endian machine",
                        "the file's byte order is not little-endian");
    return 0;
}

static int read_pickle(const struct opening *opening)
{
    const struct rfs_zip_entry *entry = find_entry(opening->torch, "data.pkl", 8);

    if (!entry)
        return rfs_fail(opening->err, -EINVAL, RFS_IN(opening->file), REMEDY_SAVE,
                        "the archive has no data.pkl, so it is not written by torch.save");
    if (entry->bytes > RFS_PICKLE_MOST)
        return rfs_fail(opening->err, -EFBIG, RFS_AT(opening->file, entry->offset), NULL,
                        "the pickle in it has more than %zu bytes", RFS_PICKLE_MOST);
    RFS_FREE unsigned char *bytes = malloc((size_t)entry->bytes + 1);
    if (!bytes)
        return rfs_fail_memory(opening->err);
    const int rc = opening->read(opening->ctx, bytes, (size_t)entry->bytes, entry->offset);
    if (rc)
        return rfs_fail(opening->err, rc, RFS_AT(opening->file, entry->offset), NULL,
                        "cannot be read: %s", strerror(-rc));
    const struct rfs_pickle_from from = {opening->file, entry->offset, opening->origin};
    return rfs_pickle_read(RFS_STEAL(bytes), (size_t)entry->bytes, &from, &opening->torch->pickle,
                           opening->err);
}

int rfs_torch_open(rfs_read_fn *read, void *ctx, uint64_t size, uint16_t origin, const char *file,
                   struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {read, ctx, size, origin, file, out, err};

    *out = (struct rfs_torch){.prefix = ""};
    int rc = check_magic(&opening);
    if (rc == 0)
        rc = rfs_zip_open(read, ctx, size, file, &out->zip, err);
    if (rc == 0)
        rc = find_prefix(&opening);
    if (rc == 0)
        rc = check_versions(&opening);
    if (rc == 0)
        rc = read_pickle(&opening);
    if (rc < 0)
        rfs_torch_free(out);
    return rc;
}

void rfs_torch_free(struct rfs_torch *torch)
{
    rfs_zip_free(&torch->zip);
    rfs_pickle_free(&torch->pickle);
    *torch = (struct rfs_torch){.prefix = ""};
}

/* Looking at one tensor. */
struct looking {
    const struct rfs_torch *torch;
    const char *file;
    const char *param;
    struct rfs_error *err;
};

static int fail_tensor(const struct looking *looking, const char *what)
{
    return rfs_fail(looking->err, -EINVAL, RFS_OF(looking->file, looking->param), REMEDY_COPY, "%s",
                    what);
}

/* The element type: of the storage's class, or of the dtype given beside an untyped storage. */
static int find_dtype(const struct looking *looking, const struct rfs_node *class,
                      const struct rfs_node *dtype, enum rfs_dtype *out)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtype ? names(dtype, dtypes[i].name) : names(class, dtypes[i].storage)) {
            *out = dtypes[i].dtype;
            return 0;
        }
    return fail_tensor(looking, "a tensor in an untyped storage that says no dtype");
}

/* Bytes of an element of a storage; an untyped one counts bytes. */
static uint64_t storage_item(const struct rfs_node *class)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (names(class, dtypes[i].storage))
            return rfs_dtype_bytes(dtypes[i].dtype);
    return 1;
}

uint64_t rfs_torch_storage_bytes(const struct rfs_node *storage)
{
    const struct rfs_items *id = &storage->of.items;
    uint64_t bytes;

    return rfs_mul_u64((uint64_t)id->data[4]->of.integer, storage_item(id->data[1]), &bytes)
               ? bytes
               : UINT64_MAX;
}

static int find_record(const struct looking *looking, const struct rfs_node *storage,
                       const struct rfs_zip_entry **record)
{
    const struct rfs_items *id = &storage->of.items;
    char name[256];
    const struct rfs_node *key = id->data[2];

    if (key->of.text.n > sizeof name - 6)
        return fail_tensor(looking, "a storage's key is too long");
    memcpy(name, "data/", 5);
    memcpy(name + 5, key->of.text.data, key->of.text.n);
    *record = find_entry(looking->torch, name, 5 + key->of.text.n);
    if (!*record)
        return fail_tensor(looking, "its storage is not in the file");
    if (rfs_torch_storage_bytes(storage) != (*record)->bytes)
        return rfs_fail(looking->err, -EINVAL, RFS_OF(looking->file, looking->param), REMEDY_COPY,
                        "its storage has %llu bytes in the file, and not %lld elements of %llu",
                        (unsigned long long)(*record)->bytes, (long long)id->data[4]->of.integer,
                        (unsigned long long)storage_item(id->data[1]));
    return 0;
}

int rfs_torch_record(const struct rfs_torch *torch, const struct rfs_node *storage,
                     const char *file, const char *param, const struct rfs_zip_entry **record,
                     struct rfs_error *err)
{
    const struct looking looking = {torch, file, param, err};
    return find_record(&looking, storage, record);
}

static bool take_numbers(const struct rfs_node *tuple, uint32_t *n, uint64_t *out)
{
    if (tuple->kind == RFS_NODE_CALL && tuple->of.call.callee->callable == RFS_CALL_SIZE &&
        tuple->of.call.args->of.items.n == 1)
        tuple = tuple->of.call.args->of.items.data[0];
    if (tuple->kind != RFS_NODE_TUPLE || tuple->of.items.n > RFS_MAX_DIMS)
        return false;
    *n = tuple->of.items.n;
    for (uint32_t i = 0; i < *n; i++) {
        const struct rfs_node *number = tuple->of.items.data[i];
        if (number->kind != RFS_NODE_INT || number->of.integer < 0)
            return false;
        out[i] = (uint64_t)number->of.integer;
    }
    return true;
}

/* That every element lies in the storage; counts them, and sees whether they follow each other. */
static int check_reach(const struct looking *looking, struct rfs_torch_tensor *tensor)
{
    const uint64_t room = tensor->record->bytes / rfs_dtype_bytes(tensor->dtype);
    uint64_t last = tensor->offset;
    uint64_t step = 1;

    tensor->elements = 1;
    tensor->contiguous = true;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (tensor->dims[i] == 0)
            tensor->elements = 0;
    for (uint32_t i = tensor->ndim; tensor->elements > 0 && i-- > 0;) {
        uint64_t reach;
        if (tensor->dims[i] == 1)
            continue;
        tensor->contiguous &= tensor->strides[i] == step;
        if (!rfs_mul_u64(tensor->dims[i] - 1, tensor->strides[i], &reach) ||
            !rfs_add_u64(last, reach, &last) || !rfs_mul_u64(step, tensor->dims[i], &step) ||
            step > INT64_MAX / 16)
            return fail_tensor(looking, "its size is impossible");
        tensor->elements = step;
    }
    if (tensor->elements > 0 && last >= room)
        return fail_tensor(looking, "it reaches out of its storage");
    return 0;
}

/* Metadata of torch 2: lazy conjugation and negation would change the values that are read. */
static int check_metadata(const struct looking *looking, const struct rfs_items *args, uint32_t at)
{
    if (args->n <= at || (args->data[at]->kind == RFS_NODE_DICT && args->data[at]->of.items.n == 0))
        return 0;
    return rfs_fail(looking->err, -ENOTSUP, RFS_OF(looking->file, looking->param),
                    "save the tensor after resolve_conj() and resolve_neg()",
                    "the tensor is a lazy conjugate or negative");
}

static int read_tensor(const struct looking *looking, const struct rfs_node *node,
                       struct rfs_torch_tensor *out)
{
    const struct rfs_items *args = &node->of.call.args->of.items;
    const bool v3 = node->of.call.callee->callable == RFS_CALL_TENSOR_V3;
    struct rfs_node *const *arg = args->data;
    uint32_t strides;

    if (args->n < (v3 ? 7u : 6u) || args->n > (v3 ? 8u : 7u) || arg[0]->kind != RFS_NODE_STORAGE ||
        arg[1]->kind != RFS_NODE_INT || arg[1]->of.integer < 0 ||
        !take_numbers(arg[2], &out->ndim, out->dims) ||
        !take_numbers(arg[3], &strides, out->strides) || strides != out->ndim ||
        (v3 && (arg[6]->kind != RFS_NODE_GLOBAL || arg[6]->callable != RFS_CALL_DTYPE)))
        return fail_tensor(looking, "its description is not a tensor's");
    out->storage = arg[0];
    out->offset = (uint64_t)arg[1]->of.integer;
    int rc = check_metadata(looking, args, v3 ? 7 : 6);
    if (rc == 0)
        rc = find_dtype(looking, arg[0]->of.items.data[1], v3 ? arg[6] : NULL, &out->dtype);
    if (rc == 0)
        rc = find_record(looking, out->storage, &out->record);
    return rc ? rc : check_reach(looking, out);
}

int rfs_torch_tensor(const struct rfs_torch *torch, const struct rfs_node *node, const char *file,
                     const char *param, struct rfs_torch_tensor *out, struct rfs_error *err)
{
    const struct looking looking = {torch, file, param, err};
    bool is_parameter = false;

    if (node->kind == RFS_NODE_CALL && node->of.call.callee->callable == RFS_CALL_PARAMETER) {
        if (node->of.call.args->of.items.n < 1)
            return fail_tensor(&looking, "its description is not a parameter's");
        node = node->of.call.args->of.items.data[0];
        is_parameter = true;
    }
    const bool is_tensor =
        node->kind == RFS_NODE_CALL && (node->of.call.callee->callable == RFS_CALL_TENSOR ||
                                        node->of.call.callee->callable == RFS_CALL_TENSOR_V3);
    if (!is_tensor)
        return is_parameter ? fail_tensor(&looking, "its description is not a parameter's") : 0;
    *out = (struct rfs_torch_tensor){.is_parameter = is_parameter};
    const int rc = read_tensor(&looking, node, out);
    return rc ? rc : 1;
}
