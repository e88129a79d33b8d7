/* SPDX-License-Identifier: Apache-2.0 */
/* Files with pieces of tensors: of FSDP's ranks, and safetensors with DCP_SHARDING_INFO. */
#include "tests/support/hostile.h"
#include "tests/support/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES "torch.distributed.tensor.placement_types"
#define SPEC "torch.distributed.tensor._dtensor_spec"
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, NULL, NULL, NULL                                                               \
    }
#define MADE(name, make)                                                                           \
    {                                                                                              \
        name, make, NULL, NULL, NULL                                                               \
    }

/* ---- DTensors -------------------------------------------------------------------------------- */

/* Opcodes with NULs in them. */
#define OPS(file, ops) bytes_add(&(file)->pickle, ops, sizeof(ops) - 1)

/* What is long of a DTensor. */
enum part { SLOTS, FIELDS, MESH, ORDER, NOTHING };

static void fields(struct torch_file *file, size_t end)
{
    while (file->pickle.n < end)
        torch_ops(file, "NN");
}

static void tensor(struct torch_file *file, const char *class, const char *key)
{
    torch_tensor(
        file,
        &(struct torch_tensor){
            .class = class, .key = key, .elements = 1, .ndim = 1, .dims = (const int64_t[]){1}});
}

static void mesh(struct torch_file *file, size_t end)
{
    torch_global(file, "torch.distributed.device_mesh", "DeviceMesh");
    torch_ops(file, ")\x81}(");
    fields(file, end);
    torch_text(file, "mesh");
    tensor(file, "IntStorage", "1");
    torch_text(file, "_coordinate_on_dim");
    torch_tuple(file, 1, (const int64_t[]){0});
    torch_ops(file, "ub");
}

/* One entry over and over. */
static void order(struct torch_file *file, size_t end)
{
    torch_text(file, "shard_order");
    torch_ops(file, "(");
    torch_global(file, SPEC, "ShardOrderEntry");
    OPS(file, "(K\0(K\0tt\x81q\0");
    while (file->pickle.n < end)
        OPS(file, "h\0");
    torch_ops(file, "t");
}

static void spec(struct torch_file *file, enum part part, size_t end)
{
    torch_global(file, SPEC, "DTensorSpec");
    torch_ops(file, ")\x81}(");
    fields(file, part == FIELDS ? end : 0);
    torch_text(file, "mesh");
    mesh(file, part == MESH ? end : 0);
    torch_text(file, "placements");
    torch_global(file, PLACES, "Replicate");
    torch_ops(file, ")\x81\x85");
    if (part == ORDER)
        order(file, end);
    torch_ops(file, "ub");
}

/* Of one element, whole in each rank. */
static void dtensor(struct torch_file *file, enum part part, size_t end)
{
    torch_global(file, "torch._tensor", "_rebuild_from_type_v2");
    torch_ops(file, "(");
    torch_global(file, "torch._utils", "_rebuild_wrapper_subclass");
    torch_global(file, "torch.distributed.tensor", "DTensor");
    torch_ops(file, "(");
    torch_global(file, "torch.distributed.tensor", "DTensor");
    torch_global(file, "torch", "float32");
    torch_tuple(file, 1, (const int64_t[]){1});
    torch_ops(file, "tN}(");
    fields(file, part == SLOTS ? end : 0);
    torch_text(file, "_local_tensor");
    tensor(file, "FloatStorage", "0");
    torch_text(file, "_spec");
    spec(file, part, end);
    torch_ops(file, "u\x86tR");
}

#define SHARD "torch.distributed._shard"
#define SHARDED SHARD ".sharded_tensor"

/* One element of rank 0. */
static void shard_metadata(struct torch_file *file)
{
    torch_global(file, SHARD ".metadata", "ShardMetadata");
    torch_ops(file, ")\x81N}(");
    torch_text(file, "shard_offsets");
    OPS(file, "]K\0a");
    torch_text(file, "shard_sizes");
    torch_ops(file, "]K\1a");
    torch_text(file, "placement");
    torch_global(file, "torch.distributed.remote_device", "_remote_device");
    torch_ops(file, ")\x81}");
    torch_text(file, "_rank");
    OPS(file, "K\0sbu\x86"
              "b");
}

static void shard(struct torch_file *file)
{
    torch_global(file, SHARDED ".shard", "Shard");
    torch_ops(file, ")\x81N}(");
    torch_text(file, "tensor");
    tensor(file, "FloatStorage", "0");
    torch_text(file, "metadata");
    shard_metadata(file);
    torch_ops(file, "u\x86"
                    "b");
}

/* A list of what ONE makes, over and over up to END; its memo number is NUMBER. */
static void repeated(struct torch_file *file, void (*one)(struct torch_file *file), char number,
                     size_t end)
{
    torch_ops(file, "](");
    one(file);
    if (end > 0) {
        bytes_add(&file->pickle, "q", 1);
        bytes_add(&file->pickle, &number, 1);
    }
    while (file->pickle.n < end) {
        bytes_add(&file->pickle, "h", 1);
        bytes_add(&file->pickle, &number, 1);
    }
    torch_ops(file, "e");
}

static void group_state(struct torch_file *file)
{
    torch_global(file, "__builtin__", "getattr");
    torch_global(file, SHARDED ".api", "ShardedTensor");
    torch_text(file, "ProcessGroupState");
    torch_ops(file, "\x86R)\x81}(");
    torch_text(file, "local_rank");
    OPS(file, "K\0");
    torch_text(file, "global_rank");
    OPS(file, "K\0");
    torch_text(file, "local_world_size");
    torch_ops(file, "K\1");
    torch_text(file, "global_world_size");
    torch_ops(file, "K\1ub");
}

/* One element. Its Shards take the pickle up to SHARDS, the list of all ranks' up to LIST. */
static void sharded_tensor(struct torch_file *file, size_t shards, size_t list)
{
    torch_global(file, "torch._tensor", "_rebuild_from_type_v2");
    torch_ops(file, "(");
    torch_global(file, "torch._utils", "_rebuild_wrapper_subclass");
    torch_global(file, SHARDED ".api", "ShardedTensor");
    torch_ops(file, ")(");
    repeated(file, shard, 0, shards);
    torch_global(file, SHARDED ".metadata", "ShardedTensorMetadata");
    torch_ops(file, ")\x81}(");
    torch_text(file, "size");
    torch_tuple(file, 1, (const int64_t[]){1});
    torch_text(file, "tensor_properties");
    torch_global(file, SHARDED ".metadata", "TensorProperties");
    torch_ops(file, ")\x81(");
    torch_global(file, "torch", "float32");
    torch_ops(file, "NNNNtb");
    torch_text(file, "shards_metadata");
    repeated(file, shard_metadata, 1, list);
    torch_ops(file, "ub");
    group_state(file);
    torch_ops(file, "N\x89ttR");
}

/* SHARDS and LIST so many eighths of the file are one ShardedTensor, which many names share. */
static void shared_sharded(struct bytes *out, size_t n, size_t shards, size_t list)
{
    struct torch_file file = {0};
    char name[16];

    OPS(&file, "Nq\0q\1"); /* both lists are in the memo */
    sharded_tensor(&file, shards * (n / 8), list * (n / 8));
    OPS(&file, "q\2"
               "00}");
    for (unsigned i = 0; file.pickle.n < n; i++) {
        snprintf(name, sizeof name, "%x", i);
        torch_text(&file, name);
        OPS(&file, "h\2s");
    }
    torch_storage(&file, "0", "1234", 4);
    const struct bytes *all = torch_end(&file);
    bytes_add(out, all->data, all->n);
    torch_free(&file);
}

static void one_sharded(struct bytes *out, size_t n)
{
    shared_sharded(out, n, 0, 0);
}

static void long_list(struct bytes *out, size_t n)
{
    shared_sharded(out, n, 0, 1);
}

static void long_lists(struct bytes *out, size_t n)
{
    shared_sharded(out, n, 1, 2);
}

static void one_long(struct bytes *out, size_t n)
{
    shared_sharded(out, n, 3, 7);
}

/* A quarter or an eighth of the file is what many names share. */
static void shared(struct bytes *out, size_t n, enum part part)
{
    struct torch_file file = {0};
    char name[16];

    torch_ops(&file, "");
    dtensor(&file, part, n / (part == ORDER ? 4 : 8));
    OPS(&file, "q");
    bytes_add(&file.pickle, part == ORDER ? "\1" : "\0", 1);
    torch_ops(&file, "0}");
    for (unsigned i = 0; file.pickle.n < n; i++) {
        snprintf(name, sizeof name, "%x", i);
        torch_text(&file, name);
        bytes_add(&file.pickle, part == ORDER ? "h\1s" : "h\0s", 3);
    }
    torch_storage(&file, "0", "1234", 4);
    torch_storage(&file, "1", "1234", 4);
    const struct bytes *all = torch_end(&file);
    bytes_add(out, all->data, all->n);
    torch_free(&file);
}

static void shared_slots(struct bytes *out, size_t n)
{
    shared(out, n, SLOTS);
}

static void shared_fields(struct bytes *out, size_t n)
{
    shared(out, n, FIELDS);
}

static void shared_mesh(struct bytes *out, size_t n)
{
    shared(out, n, MESH);
}

static void shared_order(struct bytes *out, size_t n)
{
    shared(out, n, ORDER);
}

static void shared_dtensor(struct bytes *out, size_t n)
{
    shared(out, n, NOTHING);
}

/* Many names, each of a tensor with all parts of its own, which ONE makes. */
static void many(struct bytes *out, size_t n, void (*one)(struct torch_file *file))
{
    struct torch_file file = {0};
    char name[16];

    torch_ops(&file, "}");
    for (unsigned i = 0; file.pickle.n < n; i++) {
        snprintf(name, sizeof name, "%x", i);
        torch_text(&file, name);
        one(&file);
        torch_ops(&file, "s");
    }
    torch_storage(&file, "0", "1234", 4);
    torch_storage(&file, "1", "1234", 4);
    const struct bytes *all = torch_end(&file);
    bytes_add(out, all->data, all->n);
    torch_free(&file);
}

static void plain_dtensor(struct torch_file *file)
{
    dtensor(file, NOTHING, 0);
}

static void plain_sharded(struct torch_file *file)
{
    sharded_tensor(file, 0, 0);
}

static void many_dtensors(struct bytes *out, size_t n)
{
    many(out, n, plain_dtensor);
}

static void many_sharded(struct bytes *out, size_t n)
{
    many(out, n, plain_sharded);
}

const struct hostile hostile_fsdp[] = {
    MADE("one DTensor", shared_dtensor),
    MADE("many DTensors", many_dtensors),
    MADE("long slots", shared_slots),
    MADE("a long DTensorSpec", shared_fields),
    MADE("a long DeviceMesh", shared_mesh),
    MADE("a long shard_order", shared_order),
    MADE("one ShardedTensor", one_sharded),
    MADE("many ShardedTensors", many_sharded),
    MADE("a long list of shards", long_list),
    MADE("long lists of Shards", long_lists),
    MADE("a ShardedTensor of many Shards", one_long),
    END,
};

/* ---- DeepSpeed's ----------------------------------------------------------------------------- */

/* Begins a save of stage 2 in one process, whose dict has both files' keys, up to its shapes. */
static void begin_save(struct torch_file *file)
{
    torch_ops(file, "}");
    torch_text(file, "module");
    torch_ops(file, "}s");
    torch_text(file, "param_shapes");
    torch_ops(file, "]");
}

/* Ends it: FLATS groups of ELEMENTS each, with the state that the pickle has in memo 0. */
static void end_save(struct torch_file *file, unsigned flats, int64_t elements, struct bytes *out)
{
    const struct torch_tensor flat = {
        .class = "FloatStorage", .key = "0", .elements = elements, .ndim = 1, .dims = &elements};
    const size_t bytes = 4 * (size_t)elements;
    char *zeros = calloc(1, bytes);

    if (!zeros)
        abort();
    torch_text(file, "optimizer_state_dict");
    torch_ops(file, "}");
    torch_text(file, "zero_stage");
    torch_int(file, 2);
    torch_ops(file, "s");
    torch_text(file, "partition_count");
    torch_ops(file, "](");
    for (unsigned i = 0; i < flats; i++)
        torch_int(file, 1);
    torch_ops(file, "es");
    torch_text(file, "single_partition_of_fp32_groups");
    torch_ops(file, "](");
    for (unsigned i = 0; i < flats; i++)
        torch_tensor(file, &flat);
    torch_ops(file, "es");
    torch_text(file, "base_optimizer_state");
    torch_ops(file, "}");
    torch_text(file, "state");
    torch_ops(file, "}(");
    for (unsigned i = 0; i < flats; i++) {
        torch_int(file, i);
        bytes_add(&file->pickle, "h", 2); /* memo 0 */
    }
    torch_ops(file, "usss");
    torch_storage(file, "0", zeros, bytes);
    const struct bytes *all = torch_end(file);
    bytes_add(out, all->data, all->n);
    torch_free(file);
    free(zeros);
}

/* Keeps an empty dict in memo 0. */
static void keep_nothing(struct torch_file *file)
{
    torch_text(file, "state");
    torch_ops(file, "}");
    bytes_add(&file->pickle, "q", 2);
    torch_ops(file, "s");
}

/* Parameters of one element, and as many names for the first. */
static void many_parameters(struct bytes *out, size_t n)
{
    struct torch_file file = {0};
    char name[16];
    unsigned count = 0;

    begin_save(&file);
    torch_ops(&file, "}(");
    for (; file.pickle.n < n / 3; count++) {
        snprintf(name, sizeof name, "%x", count);
        torch_text(&file, name);
        torch_ops(&file, ")");
    }
    torch_ops(&file, "uas");
    torch_text(&file, "shared_params");
    torch_ops(&file, "}(");
    for (unsigned i = 0; file.pickle.n < 2 * n / 3; i++) {
        snprintf(name, sizeof name, "_%x", i);
        torch_text(&file, name);
        torch_text(&file, "0");
    }
    torch_ops(&file, "us");
    torch_text(&file, "param");
    torch_tensor(&file,
                 &(struct torch_tensor){.class = "FloatStorage", .key = "0", .elements = count});
    torch_ops(&file, "s");
    keep_nothing(&file);
    end_save(&file, 1, count, out);
}

/* Groups that have one long dict as their state. */
static void shared_state(struct bytes *out, size_t n)
{
    const unsigned groups = (unsigned)(n / 400);
    struct torch_file file = {0};
    char name[16];

    begin_save(&file);
    for (unsigned i = 0; i < groups; i++)
        torch_ops(&file, "}a");
    torch_ops(&file, "s");
    torch_text(&file, "state");
    torch_ops(&file, "}");
    bytes_add(&file.pickle, "q", 2);
    torch_ops(&file, "(");
    for (unsigned i = 0; file.pickle.n < n / 2; i++) {
        snprintf(name, sizeof name, "%x", i);
        torch_text(&file, name);
        torch_ops(&file, "N");
    }
    torch_ops(&file, "us");
    end_save(&file, groups, 0, out);
}

/* Objects of unknown classes, which get states. */
static void many_objects(struct bytes *out, size_t n)
{
    struct torch_file file = {0};

    begin_save(&file);
    torch_ops(&file, "}as");
    torch_text(&file, "args");
    torch_ops(&file, "](");
    while (file.pickle.n < n) {
        torch_global(&file, "a", "b");
        torch_ops(&file, ")R}b");
    }
    torch_ops(&file, "es");
    keep_nothing(&file);
    end_save(&file, 1, 0, out);
}

/* Empty groups of many ranks; the files of the others may have nothing. */
static void many_groups(struct bytes *out, size_t n)
{
    const unsigned groups = (unsigned)(n / 6);
    struct torch_file file = {0};

    begin_save(&file);
    torch_ops(&file, "(}");
    bytes_add(&file.pickle, "q", 2);
    for (unsigned i = 1; i < groups; i++)
        bytes_add(&file.pickle, "h", 2); /* memo 0 */
    torch_ops(&file, "es");
    torch_text(&file, "optimizer_state_dict");
    torch_ops(&file, "}");
    torch_text(&file, "zero_stage");
    torch_int(&file, 2);
    torch_ops(&file, "s");
    torch_text(&file, "partition_count");
    torch_int(&file, HOSTILE_ZERO_RANKS);
    torch_ops(&file, "s");
    torch_text(&file, "single_partition_of_fp32_groups");
    torch_ops(&file, "](");
    torch_tensor(&file,
                 &(struct torch_tensor){
                     .class = "FloatStorage", .key = "0", .ndim = 1, .dims = (int64_t[]){0}});
    bytes_add(&file.pickle, "q\1", 2);
    for (unsigned i = 1; i < groups; i++)
        bytes_add(&file.pickle, "h\1", 2);
    torch_ops(&file, "ess");
    torch_storage(&file, "0", "", 0);
    const struct bytes *all = torch_end(&file);
    bytes_add(out, all->data, all->n);
    torch_free(&file);
}

const struct hostile hostile_zero_ranks[] = {
    MADE("many groups of many ranks", many_groups),
    END,
};

const struct hostile hostile_zero[] = {
    MADE("many parameters", many_parameters),
    MADE("a shared state", shared_state),
    MADE("many objects", many_objects),
    END,
};

/* ---- safetensors ----------------------------------------------------------------------------- */

/* The header, with its size before it and so many bytes behind it. */
static void safetensors(struct bytes *out, const struct bytes *header, size_t data)
{
    unsigned char size[8];

    for (unsigned i = 0; i < sizeof size; i++)
        size[i] = (unsigned char)((uint64_t)header->n >> 8 * i);
    bytes_add(out, size, sizeof size);
    bytes_add(out, header->data, header->n);
    void *zeros = calloc(data + 1, 1);
    if (!zeros)
        abort();
    bytes_add(out, zeros, data);
    free(zeros);
}

static void text(struct bytes *out, const char *what)
{
    bytes_add(out, what, strlen(what));
}

#define INFO "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{"

/* Each of one byte, with so many axes. */
static void pieces(struct bytes *out, size_t n, unsigned axes)
{
    struct bytes header = {0};
    char item[300];
    char ones[64] = "1";
    char offsets[64] = "0";
    unsigned count = 0;

    for (unsigned i = 1; i < axes; i++) {
        strcat(ones, ",1");
        strcat(offsets, ",0");
    }
    text(&header, INFO);
    for (; header.n < n / 2; count++) {
        snprintf(item, sizeof item, "%s\\\"%x\\\":{\\\"saved_offsets\\\":[%s]}", count ? "," : "",
                 count, offsets);
        text(&header, item);
    }
    text(&header, "}\"}");
    for (unsigned i = 0; i < count; i++) {
        snprintf(item, sizeof item,
                 ",\"%x\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[%u,%u]}", i, ones, i,
                 i + 1);
        text(&header, item);
    }
    text(&header, "}");
    safetensors(out, &header, count);
    bytes_free(&header);
}

static void many_pieces(struct bytes *out, size_t n)
{
    pieces(out, n, 1);
}

static void wide_pieces(struct bytes *out, size_t n)
{
    pieces(out, n, 16);
}

/* One tensor, and what is said of it or of others: AGAIN over and over. */
static void said(struct bytes *out, size_t n, const char *head, const char *again, const char *tail)
{
    struct bytes header = {0};

    text(&header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},");
    text(&header, head);
    while (header.n < n)
        text(&header, again);
    text(&header, tail);
    safetensors(out, &header, 1);
    bytes_free(&header);
}

#define W "\\\"w\\\":{\\\"saved_offsets\\\":[0]}"

static void others(struct bytes *out, size_t n)
{
    said(out, n, &INFO[1], "\\\"x\\\":{\\\"saved_offsets\\\":[0]},", W "}\"}}");
}

static void offsets(struct bytes *out, size_t n)
{
    said(out, n, "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{",
         "\\\"saved_offsets\\\":[0],", "\\\"saved_offsets\\\":[0]}}\"}}");
}

static void long_offsets(struct bytes *out, size_t n)
{
    said(out, n, "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[0",
         ",0", "]}}\"}}");
}

static void escapes(struct bytes *out, size_t n)
{
    said(out, n, "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"", "\\u0020", "{" W "}\"}}");
}

static void nested(struct bytes *out, size_t n)
{
    said(out, n, "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"x\\\":", "[", "\"}}");
}

static void metadata(struct bytes *out, size_t n)
{
    said(out, n, "\"__metadata__\":{\"a\":\"\"", ",\"a\":\"\"",
         ",\"DCP_SHARDING_INFO\":\"{" W "}\"}}");
}

const struct hostile hostile_shards[] = {
    MADE("many pieces", many_pieces),
    MADE("pieces of 16 axes", wide_pieces),
    MADE("pieces of others", others),
    MADE("offsets again and again", offsets),
    MADE("a long list of offsets", long_offsets),
    MADE("escapes", escapes),
    MADE("nested", nested),
    MADE("much other metadata", metadata),
    END,
};
