/* SPDX-License-Identifier: Apache-2.0 */
/* Source: torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.1 to 2.15. */
#include "formats/chunks/dcp_names.h"

#include "base/intern.h"
#include "formats/torch/archive.h"

static const char *const words[RFS_DCP_WORDS] = {
    [RFS_DCP_STATE_DICT_METADATA] = "state_dict_metadata",
    [RFS_DCP_STORAGE_DATA] = "storage_data",
    [RFS_DCP_VERSION] = "version",
    [RFS_DCP_PROPERTIES] = "properties",
    [RFS_DCP_SIZE] = "size",
    [RFS_DCP_CHUNKS] = "chunks",
    [RFS_DCP_OFFSETS] = "offsets",
    [RFS_DCP_SIZES] = "sizes",
    [RFS_DCP_FQN] = "fqn",
    [RFS_DCP_OFFSET] = "offset",
    [RFS_DCP_RELATIVE_PATH] = "relative_path",
    [RFS_DCP_LENGTH] = "length",
    [RFS_DCP_TRANSFORMS] = "transform_descriptors",
    [RFS_DCP_DTYPE] = "dtype",
    [RFS_DCP_LAYOUT] = "layout",
    [RFS_DCP_STRIDED] = "torch.strided",
    [RFS_DCP_MCORE_DATA] = "mcore_data",
    [RFS_DCP_ORIGINAL_SHAPE] = "nd_reformulated_orig_global_shape",
};

#define DCP "torch.distributed.checkpoint."
#define MCORE "megatron.core.dist_checkpointing."
#define SHARDED "torch.distributed._shard.sharded_tensor.metadata"

static const struct {
    const char *module;
    const char *name;
    enum rfs_dcp_use use;
    enum rfs_dcp_class class; /* of a CLASS */
} names[] = {
    {DCP "metadata", "Metadata", RFS_DCP_USE_CLASS, RFS_DCP_METADATA},
    {DCP "metadata", "TensorStorageMetadata", RFS_DCP_USE_CLASS, RFS_DCP_TENSOR},
    {DCP "metadata", "BytesStorageMetadata", RFS_DCP_USE_CLASS, RFS_DCP_BYTES},
    {DCP "metadata", "ChunkStorageMetadata", RFS_DCP_USE_CLASS, RFS_DCP_CHUNK},
    {DCP "metadata", "TensorProperties", RFS_DCP_USE_CLASS, RFS_DCP_TENSOR_PROPERTIES},
    {DCP "metadata", "MetadataIndex", RFS_DCP_USE_CLASS, RFS_DCP_INDEX},
    {DCP "metadata", "StorageMeta", RFS_DCP_USE_CLASS, RFS_DCP_STORAGE_META},
    {DCP "metadata", "_MEM_FORMAT_ENCODING", RFS_DCP_USE_ENUM, RFS_DCP_NO_CLASS},
    {DCP "filesystem", "_StorageInfo", RFS_DCP_USE_CLASS, RFS_DCP_STORAGE_INFO},
    {DCP "planner", "WriteItem", RFS_DCP_USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "TensorWriteData", RFS_DCP_USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "BytesIOWriteData", RFS_DCP_USE_CLASS, RFS_DCP_PLAN},
    {DCP "planner", "WriteItemType", RFS_DCP_USE_ENUM, RFS_DCP_NO_CLASS},
    {MCORE "strategies.torch", "MCoreSavePlan", RFS_DCP_USE_CLASS, RFS_DCP_PLAN},
    {SHARDED, "TensorProperties", RFS_DCP_USE_CLASS, RFS_DCP_TENSOR_PROPERTIES},
    {SHARDED, "MEM_FORMAT_ENCODING", RFS_DCP_USE_ENUM, RFS_DCP_NO_CLASS},
    {"torch", "Size", RFS_DCP_USE_SHAPE, RFS_DCP_NO_CLASS},
    {"torch.serialization", "_get_layout", RFS_DCP_USE_SAME, RFS_DCP_NO_CLASS},
    {"pathlib", "PosixPath", RFS_DCP_USE_PATH, RFS_DCP_NO_CLASS},
    {"pathlib._local", "PosixPath", RFS_DCP_USE_PATH, RFS_DCP_NO_CLASS},
    {"collections", "OrderedDict", RFS_DCP_USE_DICT, RFS_DCP_NO_CLASS},
};

/* Element types of torch that are not read. Source: torch/_C/__init__.pyi of torch 2.15. */
#define IS "its elements are torch."
static const char *const unread[] = {
    IS "float8_e8m0fnu",
    IS "float8_e4m3fnuz",
    IS "float8_e5m2fnuz",
    IS "float4_e2m1fn_x2",
    IS "complex32",
    IS "qint8",
    IS "quint8",
    IS "qint32",
    IS "quint4x2",
    IS "quint2x4",
    IS "bits8",
    IS "bits16",
    IS "bits1x8",
    IS "bits2x4",
    IS "bits4x2",
    IS "uint1",
    IS "uint2",
    IS "uint3",
    IS "uint4",
    IS "uint5",
    IS "uint6",
    IS "uint7",
    IS "int1",
    IS "int2",
    IS "int3",
    IS "int4",
    IS "int5",
    IS "int6",
    IS "int7",
};

enum {
    N_NAMES = sizeof names / sizeof *names,
    N_UNREAD = sizeof unread / sizeof *unread,
    DTYPES = RFS_DCP_NAMES + N_NAMES,
    UNREAD = DTYPES + RFS_DTYPE_COUNT,
};

bool rfs_dcp_add_words(struct rfs_intern *texts)
{
    for (uint32_t i = 0; i < RFS_DCP_WORDS; i++)
        if (rfs_intern_add(texts, words[i], strlen(words[i])) != i)
            return false;
    return true;
}

uint32_t rfs_dcp_name(const char *module, const char *name)
{
    for (uint32_t i = 0; i < N_NAMES; i++)
        if (strcmp(names[i].module, module) == 0 && strcmp(names[i].name, name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NAMES + i);
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < RFS_DTYPE_COUNT; i++) {
        const char *dtype = rfs_torch_dtype_name((enum rfs_dtype)i);
        if (dtype && strcmp(dtype, name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, DTYPES + i);
    }
    for (uint32_t i = 0; strcmp(module, "torch") == 0 && i < N_UNREAD; i++)
        if (strcmp(unread[i] + strlen(IS), name) == 0)
            return rfs_dcp_value(RFS_DCP_PLAIN, UNREAD + i);
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

bool rfs_dcp_use(uint32_t value, enum rfs_dcp_use *use)
{
    const uint32_t number = rfs_dcp_number(value);

    if (rfs_dcp_kind(value) != RFS_DCP_PLAIN || number < RFS_DCP_NAMES)
        return false;
    *use = number < DTYPES ? names[number - RFS_DCP_NAMES].use : RFS_DCP_USE_DTYPE;
    return true;
}

enum rfs_dcp_class rfs_dcp_name_class(uint32_t value)
{
    return names[rfs_dcp_number(value) - RFS_DCP_NAMES].class;
}

bool rfs_dcp_dtype(uint32_t value, enum rfs_dtype *dtype)
{
    enum rfs_dcp_use use;

    if (!rfs_dcp_use(value, &use) || use != RFS_DCP_USE_DTYPE || rfs_dcp_unread_dtype(value))
        return false;
    *dtype = (enum rfs_dtype)(rfs_dcp_number(value) - DTYPES);
    return true;
}

const char *rfs_dcp_unread_dtype(uint32_t value)
{
    const uint32_t number = rfs_dcp_number(value);

    return rfs_dcp_kind(value) == RFS_DCP_PLAIN && number >= UNREAD ? unread[number - UNREAD]
                                                                    : NULL;
}
