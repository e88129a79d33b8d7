/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in a pickle of torch.save:
 *
 *     storage    = persistent id ("storage", CLASS, KEY, LOCATION, ELEMENTS)
 *     tensor     = torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks
 *                  [, metadata]), or _v3 with a dtype behind the hooks; offset and stride in elements
 *     parameter  = torch._utils._rebuild_parameter(tensor, requires_grad, hooks)
 *
 * Source: torch/serialization.py and torch/_utils.py of 1.13 and 2.9.
 */
#include "formats/torch/archive.h"

#include "base/checked.h"

#define REMEDY_COPY "compare the file with its original, or save it again"

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
    *record = rfs_torch_entry(looking->torch, name, 5 + key->of.text.n);
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

int rfs_torch_show(struct rfs_torch_shown *shown, uint64_t bytes, const char *file,
                   const char *param, struct rfs_error *err)
{
    uint64_t most;

    if (!rfs_mul_u64(shown->file_bytes, RFS_TORCH_SHOWN_TIMES, &most) ||
        !rfs_add_u64(most, RFS_TORCH_SHOWN_MORE, &most))
        most = UINT64_MAX;
    if (rfs_add_u64(shown->bytes, bytes, &shown->bytes) && shown->bytes <= most)
        return 0;
    return rfs_fail(err, -EFBIG, RFS_OF(file, param), "save it after contiguous()",
                    "tensors that are expanded or share storages have more than %d times the %llu "
                    "bytes of the file together",
                    RFS_TORCH_SHOWN_TIMES, (unsigned long long)shown->file_bytes);
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
    uint64_t reach;
    bool empty = false;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        empty |= tensor->dims[i] == 0;
    tensor->contiguous = true;
    for (uint32_t i = tensor->ndim; i-- > 0;) {
        const uint64_t dim = tensor->dims[i];
        if (dim <= 1)
            continue;
        tensor->contiguous &= tensor->strides[i] == step;
        if (!rfs_mul_u64(step, dim, &step) || step > INT64_MAX / 16 ||
            (!empty && (!rfs_mul_u64(dim - 1, tensor->strides[i], &reach) ||
                        !rfs_add_u64(last, reach, &last))))
            return fail_tensor(looking, "its size is impossible");
    }
    tensor->elements = empty ? 0 : step;
    tensor->contiguous |= empty;
    if (empty)
        tensor->offset = 0;
    else if (last >= room)
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
    int rc = find_dtype(looking, arg[0]->of.items.data[1], v3 ? arg[6] : NULL, &out->dtype);
    if (rc == 0)
        rc = find_record(looking, out->storage, &out->record);
    if (rc == 0)
        rc = check_reach(looking, out);
    return rc ? rc : check_metadata(looking, args, v3 ? 7 : 6);
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
