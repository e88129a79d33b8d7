/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.save since torch 1.6: a zip archive of stored entries, in one folder named after the file:
 *
 *     NAME/data.pkl     the object, a pickle of protocol 2; tensors name their storages by key
 *     NAME/data/KEY     the bytes of a storage
 *     NAME/byteorder    "little" (torch 2; absent before)
 *     NAME/version      a number up to 10
 *
 * Tensors in the pickle:
 *
 *     storage    = persistent id ("storage", CLASS, KEY, LOCATION, ELEMENTS)
 *     tensor     = torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad,
 *                  hooks [, metadata]), or _v3 with a dtype behind the hooks; offset and stride in
 *                  elements
 *     parameter  = torch._utils._rebuild_parameter(tensor, requires_grad, hooks)
 *
 * Source: torch/serialization.py and torch/_utils.py of 1.13 and 2.9.
 */
#include "formats/torch/torch.h"

#include "base/budget.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "store/files.h"

#define REMEDY_SAVE "save it again with torch.save of torch 1.6 or later"
#define REMEDY_COPY "compare the file with its original, or save it again"
#define NO_PICKLE "the archive has no data.pkl, so it is not written by torch.save"
#define VERSION_MOST 10
#define LONG_PICKLE (16u << 20)

#define REMEDY_ENTRY "-o entry=NAME, which says where in it the state dict is"
/*
 * Bytes of all tensors of a file together, when each is written by itself, and bytes beside those.
 */
#define SHOWN_TIMES 64
#define SHOWN_MORE (UINT64_C(64) << 20)

struct opening {
    const struct rfs_bytes_source *from;
    uint16_t origin;
    struct rfs_budget *budget; /* or NULL */
    struct rfs_torch *torch;
    struct rfs_error *err;
    enum rfs_pickle_names names;
};

static int read_at(const struct opening *opening, void *buf, size_t n, uint64_t offset)
{
    const int rc = rfs_bytes_source_read(opening->from, buf, n, offset);

    return rc ? rfs_store_fail_read(opening->err, RFS_AT(opening->from->file, offset), rc) : 0;
}

static int fail(const struct opening *opening, int code, const char *remedy, const char *what)
{
    return rfs_fail(opening->err, code, RFS_IN(opening->from->file), remedy, "%s", what);
}

bool rfs_torch_is_legacy(const unsigned char *head, size_t n)
{
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc};

    return n >= sizeof legacy && memcmp(head, legacy, sizeof legacy) == 0;
}

/* Checks the file's first bytes. */
static int check_magic(const struct opening *opening)
{
    unsigned char head[6] = {0};

    if (opening->from->size < sizeof head)
        return fail(opening, -EINVAL, REMEDY_COPY,
                    "the file is truncated, or not written by torch.save");
    const int rc = read_at(opening, head, sizeof head, 0);
    if (rc)
        return rc;
    if (rfs_torch_is_legacy(head, sizeof head))
        return fail(opening, -ENOTSUP,
                    "torch.save(torch.load(FILE, map_location=\"cpu\"), FILE) with torch 1.6 or "
                    "later",
                    "the file is of torch.save's format before 1.6");
    if (memcmp(head, "PK\3\4", 4) != 0)
        return fail(opening, -EINVAL, REMEDY_SAVE, "the file is not written by torch.save");
    return 0;
}

/* Returns the entry NAME of the archive's folder, or NULL. O(log n). */
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

/* Finds the one folder that all entries are in; torch's reader insists on it. */
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
            return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->from->file, entry->name),
                            REMEDY_SAVE,
                            "the archive's entries are not all in one folder, as torch.save puts "
                            "them");
    }
    if (find_entry(torch, "constants.pkl", 13))
        return fail(opening, -ENOTSUP, "save its state_dict() with torch.save",
                    "the file is a TorchScript archive");
    return 0;
}

/* Reads a small entry as a text; empty when there is no such entry. */
static int read_small(const struct opening *opening, const char *name, char *text, size_t cap)
{
    const struct rfs_zip_entry *entry = find_entry(opening->torch, name, strlen(name));

    *text = '\0';
    if (!entry)
        return 0;
    if (entry->bytes >= cap)
        return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->from->file, name), REMEDY_COPY,
                        "the archive's entry is too long");
    const int rc = read_at(opening, text, (size_t)entry->bytes, entry->offset);
    if (rc)
        return rc;
    text[entry->bytes] = '\0';
    return 0;
}

static int check_versions(const struct opening *opening)
{
    char version[32];
    char order[32];

    int rc = read_small(opening, "version", version, sizeof version)
                 ?: read_small(opening, "byteorder", order, sizeof order);
    if (rc)
        return rc;
    char *end;
    const unsigned long number = strtoul(version, &end, 10);
    if (end == version || (*end && *end != '\n') || number < 1 || number > VERSION_MOST)
        return rfs_fail(opening->err, -ENOTSUP, RFS_IN(opening->from->file), REMEDY_SAVE,
                        "the file's version is not one of 1 to %d", VERSION_MOST);
    if (*order && strcmp(order, "little") != 0)
        return fail(opening, -ENOTSUP, "save it again on a little-endian machine",
                    "the file's byte order is not little-endian");
    return 0;
}

/*
 * Checks that a long pickle ends as one: so a hole in a sparse file is not read as a whole to find
 * out.
 */
static int look(const struct opening *opening, const struct rfs_zip_entry *entry)
{
    const uint64_t end = entry->offset + entry->bytes;
    char last = '.';
    const int rc = entry->bytes > LONG_PICKLE ? read_at(opening, &last, 1, end - 1) : 0;

    return rc            ? rc
           : last == '.' ? 0
                         : rfs_fail(opening->err, -EINVAL, RFS_AT(opening->from->file, end - 1),
                                    REMEDY_COPY, "the pickle in it is damaged: it has no end");
}

static int read_pickle(const struct opening *opening)
{
    const struct rfs_zip_entry *entry = find_entry(opening->torch, "data.pkl", 8);

    if (!entry)
        return fail(opening, -EINVAL, REMEDY_SAVE, NO_PICKLE);
    if (entry->bytes > RFS_PICKLE_MOST)
        return rfs_fail(opening->err, -EFBIG, RFS_AT(opening->from->file, entry->offset), NULL,
                        "the pickle in it has more than %zu bytes", RFS_PICKLE_MOST);
    int rc = look(opening, entry);
    if (rc)
        return rc;
    const size_t n = (size_t)entry->bytes;
    rc = rfs_budget_share_take(&opening->torch->share, n + rfs_pickle_memory(n));
    if (rc < 0)
        return rfs_files_fail(opening->err, opening->from->file, rc);
    RFS_FREE unsigned char *bytes = malloc(n + 1);
    if (!bytes)
        return rfs_fail_memory(opening->err);
    rc = read_at(opening, bytes, n, entry->offset);
    if (rc)
        return rc;
    const struct rfs_pickle_from from = {opening->from->file, entry->offset, opening->origin,
                                         opening->budget, opening->names};
    return rfs_pickle_read(RFS_STEAL(bytes), n, &from, &opening->torch->pickle, opening->err);
}

static int open_archive(const struct opening *opening)
{
    struct rfs_torch *torch = opening->torch;

    *torch = (struct rfs_torch){.prefix = ""};
    return check_magic(opening)
            ?: rfs_zip_open(opening->from, opening->budget, &torch->zip, opening->err)
            ?: find_prefix(opening)
            ?: check_versions(opening);
}

static int open_all(const struct opening *opening)
{
    int rc = open_archive(opening) ?: read_pickle(opening);

    if (rc < 0)
        rfs_torch_free(opening->torch);
    return rc;
}

int rfs_torch_open(const struct rfs_bytes_source *from, uint16_t origin, struct rfs_torch *out,
                   struct rfs_error *err)
{
    const struct opening opening = {from, origin, NULL, out, err, RFS_PICKLE_PLAIN};

    return open_all(&opening);
}

int rfs_torch_open_named(const struct rfs_bytes_source *from, enum rfs_pickle_names names,
                         struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {from, 0, NULL, out, err, names};

    return open_all(&opening);
}

int rfs_torch_keep(const struct rfs_bytes_source *from, uint16_t origin, struct rfs_budget *budget,
                   struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {from, origin, budget, out, err, RFS_PICKLE_PLAIN};
    const int rc = open_all(&opening);

    rfs_budget_share_give(&out->share);
    return rc;
}

/* Finds data.pkl, and checks that it may be a pickle: its last opcode is a dot, and none is 0. */
static int check_pickle(const struct opening *opening, const struct rfs_zip_entry **entry)
{
    char ends[2] = {0};

    *entry = find_entry(opening->torch, "data.pkl", 8);
    if (!*entry)
        return fail(opening, -EINVAL, REMEDY_SAVE, NO_PICKLE);
    int rc = (*entry)->bytes < 2
                 ? 0
                 : read_at(opening, &ends[0], 1, (*entry)->offset)
                       ?: read_at(opening, &ends[1], 1, (*entry)->offset + (*entry)->bytes - 1);
    if (rc == 0 && (ends[0] == 0 || ends[1] != '.'))
        rc = rfs_fail(opening->err, -EINVAL, RFS_AT(opening->from->file, (*entry)->offset),
                      REMEDY_COPY, "the pickle in it is damaged: it has no %s",
                      ends[0] ? "end" : "beginning");
    return rc;
}

int rfs_torch_prove(const struct rfs_bytes_source *from, bool all, struct rfs_error *err)
{
    struct rfs_torch torch;
    const struct opening opening = {from, 0, NULL, &torch, err, RFS_PICKLE_PLAIN};
    const struct rfs_zip_entry *pickle = NULL;

    int rc = open_archive(&opening) ?: check_pickle(&opening, &pickle);
    if (rc == 0)
        rc = all ? rfs_zip_verify_entries(from, torch.zip.entries, torch.zip.n, err)
                 : rfs_zip_verify_entries(from, pickle, 1, err);
    rfs_torch_free(&torch);
    return rc < 0 || all ? rc : 0;
}

bool rfs_torch_has_storages(const struct rfs_torch *torch)
{
    static const char data[] = "/data/";

    for (size_t i = 0; i < torch->zip.n; i++) {
        const struct rfs_zip_entry *entry = &torch->zip.entries[i];
        if (entry->name_bytes > torch->prefix_bytes + sizeof data - 1 &&
            memcmp(entry->name + torch->prefix_bytes, data, sizeof data - 1) == 0)
            return true;
    }
    return false;
}

void rfs_torch_free(struct rfs_torch *torch)
{
    rfs_zip_free(&torch->zip);
    rfs_pickle_free(&torch->pickle);
    rfs_budget_share_give(&torch->share);
    *torch = (struct rfs_torch){.prefix = ""};
}

/* ---- tensors --------------------------------------------------------------------------------- */

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
    {RFS_FLOAT8_E8M0, "float8_e8m0fnu", NULL},
    {RFS_FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", NULL},
    {RFS_FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", NULL},
    {RFS_FLOAT4_E2M1_X2, "float4_e2m1fn_x2", NULL},
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

bool rfs_torch_dtype(const struct rfs_node *name, enum rfs_dtype *out)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (rfs_pickle_is_named(name, dtypes[i].name)) {
            *out = dtypes[i].dtype;
            return true;
        }
    return false;
}

/* A tensor that is looked at. */
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

/* Says whether a storage class is the one for dtype I. */
static bool is_class(const struct rfs_node *class, size_t i)
{
    return dtypes[i].storage && rfs_pickle_is_named(class, dtypes[i].storage);
}

/* Finds the element type: that of the storage's class, or the dtype beside an untyped storage. */
static int find_dtype(const struct looking *looking, const struct rfs_node *class,
                      const struct rfs_node *dtype, enum rfs_dtype *out)
{
    if (dtype && rfs_torch_dtype(dtype, out))
        return 0;
    for (size_t i = 0; i < N_DTYPES && !dtype; i++)
        if (is_class(class, i)) {
            *out = dtypes[i].dtype;
            return 0;
        }
    return fail_tensor(looking, "a tensor in an untyped storage that says no dtype");
}

/* Returns the bytes of an element of a storage; an untyped one counts bytes. */
static uint64_t storage_item(const struct rfs_node *class)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (is_class(class, i))
            return rfs_dtype_bytes(dtypes[i].dtype);
    return 1;
}

/* Returns the bytes of a STORAGE node, by its own fields; UINT64_MAX when these are impossible. */
static uint64_t storage_bytes(const struct rfs_node *storage)
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
    if (storage_bytes(storage) != (*record)->bytes)
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

    if (!rfs_mul_u64(shown->file_bytes, SHOWN_TIMES, &most) ||
        !rfs_add_u64(most, SHOWN_MORE, &most))
        most = UINT64_MAX;
    if (rfs_add_u64(shown->bytes, bytes, &shown->bytes) && shown->bytes <= most)
        return 0;
    return rfs_fail(err, -EFBIG, RFS_OF(file, param), "save it after contiguous()",
                    "tensors that are expanded or share storages have more than %d times the %llu "
                    "bytes of the file together",
                    SHOWN_TIMES, (unsigned long long)shown->file_bytes);
}

bool rfs_torch_numbers(const struct rfs_node *node, uint32_t *n, uint64_t *out)
{
    if (node && rfs_pickle_is_call(node, RFS_CALL_SIZE) && node->of.call.args->of.items.n == 1)
        node = node->of.call.args->of.items.data[0];
    if (!node || (node->kind != RFS_NODE_TUPLE && node->kind != RFS_NODE_LIST) ||
        node->of.items.n > RFS_MAX_DIMS)
        return false;
    *n = node->of.items.n;
    for (uint32_t i = 0; i < *n; i++) {
        const struct rfs_node *item = node->of.items.data[i];
        if (item->kind != RFS_NODE_INT || item->of.integer < 0)
            return false;
        out[i] = (uint64_t)item->of.integer;
    }
    return true;
}

/* Checks that each element lies in the storage; counts them, and sees if they follow each other. */
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

/* Checks the metadata of torch 2: lazy conjugation and negation change the values that are read. */
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
        !rfs_torch_numbers(arg[2], &out->ndim, out->dims) ||
        !rfs_torch_numbers(arg[3], &strides, out->strides) || strides != out->ndim ||
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

    if (rfs_pickle_is_call(node, RFS_CALL_PARAMETER)) {
        if (node->of.call.args->of.items.n < 1)
            return fail_tensor(&looking, "its description is not a parameter's");
        node = node->of.call.args->of.items.data[0];
        is_parameter = true;
    }
    if (!rfs_pickle_is_call(node, RFS_CALL_TENSOR) && !rfs_pickle_is_call(node, RFS_CALL_TENSOR_V3))
        return is_parameter ? fail_tensor(&looking, "its description is not a parameter's") : 0;
    *out = (struct rfs_torch_tensor){.is_parameter = is_parameter};
    const int rc = read_tensor(&looking, node, out);
    return rc ? rc : 1;
}

/* ---- walks ----------------------------------------------------------------------------------- */

/*
 * Marks a node in MARKS, a bit for each, and says whether it was marked before. A node can be had
 * again for two bytes, so it is looked at no more than once.
 */
static bool mark(unsigned char *marks, const struct rfs_node *node)
{
    unsigned char *byte = &marks[node->number / 8];
    const unsigned char bit = (unsigned char)(1u << node->number % 8);
    const bool marked = *byte & bit;

    *byte |= bit;
    return marked;
}

struct walk {
    const struct rfs_torch *torch;
    const char *file;
    struct rfs_tables *tables;
    struct rfs_error *err;
    RFS_VEC(struct rfs_entry) entries;
    RFS_VEC(struct rfs_strided) strided;
    struct rfs_torch_shown shown;
    unsigned char *met; /* marks of nodes that were keys */
    const char *prefix; /* beginning of the keys that count; NULL: all do */
    size_t left_out;
    struct rfs_outside *outside; /* or NULL */
};

/* Returns the value of a dict by a key of N bytes, or NULL. */
static const struct rfs_node *member(const struct rfs_node *node, const char *key, size_t n)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);

    for (uint32_t i = 0; pairs && i < pairs->n; i += 2)
        if (pairs->data[i]->kind == RFS_NODE_TEXT && pairs->data[i]->of.text.n == n &&
            memcmp(pairs->data[i]->of.text.data, key, n) == 0)
            return pairs->data[i + 1];
    return NULL;
}

int rfs_torch_no_entry(const char *file, const char *entry, const struct rfs_text_names *dicts,
                       struct rfs_error *err)
{
    char remedy[sizeof dicts->text + 32];

    snprintf(remedy, sizeof remedy, "the name of a dict in it: %s", dicts->text);
    return rfs_fail(err, -EINVAL, RFS_IN(file), dicts->n > 0 ? remedy : "leave entry out",
                    dicts->n > 0 ? "it has nothing at entry=%s"
                                 : "it has nothing at entry=%s, and no dict",
                    entry);
}

/* Reports that a dict has nothing at ENTRY. */
static int fail_entry(const struct rfs_node *node, const char *file, const char *entry,
                      struct rfs_error *err)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);
    struct rfs_text_names dicts = {0};

    for (uint32_t i = 0; pairs && i < pairs->n; i += 2) {
        const struct rfs_node *key = pairs->data[i];
        char name[RFS_TORCH_ENTRY_SHOWN];
        if (key->kind != RFS_NODE_TEXT || !rfs_pickle_pairs(pairs->data[i + 1]))
            continue;
        snprintf(name, sizeof name, "'%.*s'", (int)rfs_min_u64(key->of.text.n, sizeof name),
                 (const char *)key->of.text.data);
        rfs_text_add_name(&dicts, RFS_TORCH_ENTRIES_SHOWN, name);
    }
    return rfs_torch_no_entry(file, entry, &dicts, err);
}

const char *rfs_torch_key_behind(const struct rfs_node *key, const char *prefix, size_t *n)
{
    const size_t skipped = prefix ? strlen(prefix) + 1 : 0;

    if (key->kind != RFS_NODE_TEXT || key->of.text.n <= skipped)
        return NULL;
    const char *text = key->of.text.data;
    *n = key->of.text.n - skipped;
    return !prefix || (memcmp(text, prefix, skipped - 1) == 0 && text[skipped - 1] == '.')
               ? text + skipped
               : NULL;
}

/* Says whether a dict has a key that begins with PREFIX and a dot. */
static bool has_behind(const struct rfs_node *node, const char *prefix)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);
    size_t n;

    for (uint32_t i = 0; pairs && i < pairs->n; i += 2)
        if (rfs_torch_key_behind(pairs->data[i], prefix, &n))
            return true;
    return false;
}

/*
 * Follows "a.b" from the root; a name with dots in it is found if it is there as a whole. What is
 * no dict may be the beginning of keys.
 */
int rfs_torch_find_dict(const struct rfs_torch *torch, const char *file, const char *entry,
                        const struct rfs_node **out, const char **prefix, struct rfs_error *err)
{
    const struct rfs_node *node = torch->pickle.root;
    const char *rest = entry;

    *prefix = NULL;
    while (rest && *rest) {
        const struct rfs_node *next = member(node, rest, strlen(rest));
        const size_t n = next ? strlen(rest) : strcspn(rest, ".");
        next = next ? next : member(node, rest, n);
        if (!(next && rfs_pickle_pairs(next)) && has_behind(node, rest)) {
            *prefix = rest;
            break;
        }
        if (!next)
            return fail_entry(node, file, entry, err);
        node = next;
        rest += n;
        rest += *rest == '.';
    }
    *out = node;
    return rfs_pickle_pairs(node) ? 0
                                  : rfs_fail(err, -EINVAL, RFS_IN(file), REMEDY_ENTRY,
                                             "its content is not a dict of tensors");
}

static int take_tensor(struct walk *walk, uint32_t name, const struct rfs_torch_tensor *tensor)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {.bytes = tensor->elements * item,
                            .ndim = (uint8_t)tensor->ndim,
                            .dtype = (uint8_t)tensor->dtype,
                            .kind = RFS_TENSOR};
    struct rfs_strided strided = {.entry = (uint32_t)walk->entries.n};

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        type.dims[i] = tensor->dims[i];
        strided.stride[i] = tensor->strides[i] * item;
    }
    const struct rfs_entry entry = {
        .offset = tensor->record->offset + tensor->offset * item,
        .name = name,
        .type = rfs_intern_add(walk->tables->types, &type, sizeof type),
    };
    const bool ok = entry.name != RFS_NO_ID && entry.type != RFS_NO_ID &&
                    RFS_PUSH(&walk->entries, entry) &&
                    (tensor->contiguous || type.bytes == 0 || RFS_PUSH(&walk->strided, strided));
    return ok ? 0 : rfs_fail_memory(walk->err);
}

static int fail_twice(const struct walk *walk, const char *name)
{
    return rfs_fail(walk->err, -EINVAL, RFS_OF(walk->file, name), "save it again",
                    "is twice in the file");
}

/* Refuses a value that may be a tensor: what makes it is not known. */
static int fail_opaque(const struct walk *walk, const char *name, const struct rfs_node *value)
{
    const struct rfs_node *callee = value->kind == RFS_NODE_GLOBAL ? value : value->of.call.callee;

    return rfs_fail(
        walk->err, -ENOTSUP, RFS_OF(walk->file, name), "save plain values and tensors only",
        "is made by %.*s.%.*s, which is not read; nothing was executed",
        callee ? (int)callee->of.global.module_bytes : 1, callee ? callee->of.global.module : "?",
        callee ? (int)callee->of.global.name_bytes : 1,
        callee ? rfs_pickle_global_name(callee) : "?");
}

/* Leaves out what has no name that counts: a tensor outside of the entry is noted. */
static int leave_out(struct walk *walk, const struct rfs_node *key, const struct rfs_node *value)
{
    struct rfs_torch_tensor tensor;
    struct rfs_error unused;

    if (!walk->prefix)
        walk->left_out++;
    else if (walk->outside && key->kind == RFS_NODE_TEXT &&
             rfs_torch_tensor(walk->torch, value, walk->file, "", &tensor, &unused) == 1)
        rfs_outside_note(walk->outside, key->of.text.data, key->of.text.n);
    return 0;
}

static int take_pair(struct walk *walk, const struct rfs_node *key, const struct rfs_node *value)
{
    struct rfs_torch_tensor tensor;
    char name[256];
    size_t n;
    const char *text = rfs_torch_key_behind(key, walk->prefix, &n);

    if (!text)
        return leave_out(walk, key, value);
    const size_t named = n < sizeof name ? n : sizeof name - 1;
    memcpy(name, text, named);
    name[named] = '\0';
    if (mark(walk->met, key))
        return fail_twice(walk, name);
    if (!rfs_text_is_utf8(text, n))
        return rfs_fail(walk->err, -EINVAL, RFS_OF(walk->file, name), "give it another name",
                        "the name is not UTF-8 text without NULs");
    if (value->kind == RFS_NODE_OPAQUE ||
        (value->kind == RFS_NODE_GLOBAL && value->callable == RFS_CALL_UNKNOWN))
        return fail_opaque(walk, name, value);
    int rc = rfs_torch_tensor(walk->torch, value, walk->file, name, &tensor, walk->err);
    walk->left_out += rc == 0;
    if (rc == 1)
        rc = rfs_torch_show(&walk->shown, tensor.elements * rfs_dtype_bytes(tensor.dtype),
                            walk->file, name, walk->err);
    else
        return rc;
    if (rc)
        return rc;
    return take_tensor(walk, rfs_intern_add(walk->tables->names, text, n), &tensor);
}

static int finish(struct walk *walk, uint64_t size, struct rfs_index **out)
{
    struct rfs_index *index = calloc(1, sizeof *index);
    size_t first;
    size_t second;

    if (!index)
        return rfs_fail_memory(walk->err);
    index->n = walk->entries.n;
    index->entries = walk->entries.data;
    index->n_strided = walk->strided.n;
    index->strided = walk->strided.data;
    index->file_bytes = size;
    walk->entries.data = NULL;
    walk->strided.data = NULL;
    const int rc = rfs_index_order_names(index, &first, &second);
    if (rc == 0) {
        *out = index;
        return 0;
    }
    const char *name =
        rc == 1 ? rfs_intern_text(walk->tables->names, index->entries[first].name) : "";
    const int failed = rc < 0 ? rfs_fail_memory(walk->err) : fail_twice(walk, name);
    rfs_index_free(index);
    return failed;
}

static int walk_dict(struct walk *walk, const char *entry, uint64_t size, struct rfs_index **out)
{
    const struct rfs_node *dict = NULL;

    int rc = rfs_torch_find_dict(walk->torch, walk->file, entry, &dict, &walk->prefix, walk->err);
    const struct rfs_items *pairs = rc == 0 ? rfs_pickle_pairs(dict) : NULL;
    for (uint32_t i = 0; pairs && rc == 0 && i < pairs->n; i += 2)
        rc = take_pair(walk, pairs->data[i], pairs->data[i + 1]);
    if (rc == 0 && walk->entries.n == 0)
        rc = rfs_fail(walk->err, -EINVAL, RFS_IN(walk->file), REMEDY_ENTRY,
                      "the dict in it has no tensors");
    return rc ? rc : finish(walk, size, out);
}

int rfs_torch_walk(const struct rfs_bytes_source *from, const char *entry,
                   struct rfs_tables *tables, struct rfs_index **out, size_t *left_out,
                   struct rfs_outside *outside, struct rfs_error *err)
{
    struct rfs_torch torch;

    *out = NULL;
    *left_out = 0;
    /* Beside the entry there may be anything, as in what a trainer saves. */
    int rc = rfs_torch_open_named(from, entry && *entry ? RFS_PICKLE_ANY : RFS_PICKLE_PLAIN, &torch,
                                  err);
    if (rc)
        return rc;
    RFS_FREE unsigned char *met = calloc((size_t)torch.pickle.n_nodes / 8 + 1, 1);
    struct walk walk = {.torch = &torch,
                        .file = from->file,
                        .tables = tables,
                        .err = err,
                        .shown = {.file_bytes = from->size},
                        .met = met,
                        .outside = outside};
    rc = met ? walk_dict(&walk, entry, from->size, out) : rfs_fail_memory(err);
    *left_out = walk.left_out;
    free(walk.entries.data);
    free(walk.strided.data);
    rfs_torch_free(&torch);
    return rc;
}

/* ---- a walk through all of the graph: each node once, in the order of the pickle ------------- */

struct check {
    const struct rfs_torch *torch;
    const char *file;
    struct rfs_error *err;
    unsigned char *seen; /* marks of nodes that were visited */
    unsigned depth;
    unsigned n_keys;
    const struct rfs_node *keys[RFS_PICKLE_DEPTH + 1]; /* that lead here, for messages */
    char name[200];
};

static int visit(struct check *check, const struct rfs_node *node);

static bool is_whole(const struct rfs_node *node)
{
    return node->kind <= RFS_NODE_TEXT || node->kind == RFS_NODE_GLOBAL;
}

/* Returns the keys that lead here, for messages; NULL at the root. */
static const char *name_of(struct check *check)
{
    size_t named = 0;

    for (unsigned i = 0; i < check->n_keys; i++) {
        const struct rfs_node *key = check->keys[i];
        const size_t left = sizeof check->name - named;
        const char *dot = named > 0 ? "." : "";
        int n = 0;
        if (key->kind == RFS_NODE_TEXT)
            n = snprintf(check->name + named, left, "%s%.*s", dot,
                         (int)(key->of.text.n < left ? key->of.text.n : left), key->of.text.data);
        else if (key->kind == RFS_NODE_INT)
            n = snprintf(check->name + named, left, "%s%lld", dot, (long long)key->of.integer);
        if (n > 0)
            named += (size_t)n < left ? (size_t)n : left - 1;
    }
    return named > 0 ? check->name : NULL;
}

static int visit_pairs(struct check *check, const struct rfs_items *pairs)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i + 1 < pairs->n; i += 2) {
        rc = visit(check, pairs->data[i]);
        check->keys[check->n_keys++] = pairs->data[i]; /* one for each level at most */
        if (rc == 0)
            rc = visit(check, pairs->data[i + 1]);
        check->n_keys--;
    }
    return rc;
}

static int visit_items(struct check *check, const struct rfs_items *items)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < items->n; i++)
        rc = visit(check, items->data[i]);
    return rc;
}

static int visit_call(struct check *check, const struct rfs_node *node)
{
    const struct rfs_after *after = node->of.call.after;
    struct rfs_torch_tensor tensor;

    int rc = rfs_torch_tensor(check->torch, node, check->file, NULL, &tensor, NULL);
    if (rc == 1 || rc == -ENOTSUP) /* lazily conjugated tensors can be written again as they are */
        return 0;
    if (rc < 0) /* again, for the error message */
        return rfs_torch_tensor(check->torch, node, check->file, name_of(check), &tensor,
                                check->err);
    rc = visit(check, node->of.call.args);
    if (rc == 0 && after && after->list)
        rc = visit_items(check, &after->list->of.items);
    if (rc == 0 && after && after->dict)
        rc = visit_pairs(check, &after->dict->of.items);
    return rc == 0 && after && after->state ? visit(check, after->state) : rc;
}

static int visit_kind(struct check *check, const struct rfs_node *node)
{
    const struct rfs_zip_entry *record;

    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_TUPLE:
    case RFS_NODE_LIST:
        return visit_items(check, &node->of.items);
    case RFS_NODE_DICT:
        return visit_pairs(check, &node->of.items);
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return visit_call(check, node);
    case RFS_NODE_STORAGE:
        return rfs_torch_record(check->torch, node, check->file, NULL, &record, NULL) == 0
                   ? 0
                   : rfs_torch_record(check->torch, node, check->file, name_of(check), &record,
                                      check->err);
    default:
        return 0;
    }
}

static int visit(struct check *check, const struct rfs_node *node)
{
    if (is_whole(node) || mark(check->seen, node))
        return 0;
    if (check->depth >= RFS_PICKLE_DEPTH)
        return rfs_fail(check->err, -EINVAL, RFS_OF(check->file, name_of(check)),
                        "save it with less nesting",
                        "a value in it is nested deeper than %d levels", RFS_PICKLE_DEPTH);
    check->depth++;
    const int rc = visit_kind(check, node);
    check->depth--;
    return rc;
}

int rfs_torch_check(const struct rfs_torch *torch, const char *file, struct rfs_error *err)
{
    RFS_FREE unsigned char *seen = calloc((size_t)torch->pickle.n_nodes / 8 + 1, 1);
    struct check check = {.torch = torch, .file = file, .err = err, .seen = seen};

    return seen ? visit(&check, torch->pickle.root) : rfs_fail_memory(err);
}
