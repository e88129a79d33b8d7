/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/dcp_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define METADATA "torch.distributed.checkpoint.metadata"

const char *dcp_package;

void dcp_ops(struct bytes *out, const char *ops)
{
    bytes_add(out, ops, strlen(ops));
}

void dcp_text(struct bytes *out, const char *text)
{
    const uint32_t n = (uint32_t)strlen(text);
    unsigned char head[5] = {'X'};

    for (unsigned i = 0; i < 4; i++)
        head[1 + i] = (unsigned char)(n >> 8 * i);
    bytes_add(out, head, sizeof head);
    bytes_add(out, text, n);
}

void dcp_int(struct bytes *out, int64_t value)
{
    unsigned char number[10] = {0x8a, 8};

    for (unsigned i = 0; i < 8; i++)
        number[2 + i] = (unsigned char)((uint64_t)value >> 8 * i);
    bytes_add(out, number, sizeof number);
}

void dcp_name(struct bytes *out, const char *module, const char *name)
{
    dcp_text(out, module);
    dcp_text(out, name);
    dcp_ops(out, "\x93");
}

void dcp_object(struct bytes *out, const char *class)
{
    const bool info = strcmp(class, "_StorageInfo") == 0;
    char module[80];

    if (dcp_package) {
        snprintf(module, sizeof module, "hyper_parallel.core.%s.%s", dcp_package,
                 info ? "storage" : "metadata");
        dcp_name(out, module, class + info);
    } else {
        dcp_name(out, info ? "torch.distributed.checkpoint.filesystem" : METADATA, class);
    }
    dcp_ops(out, ")\x81}(");
}

void dcp_shape(struct bytes *out, unsigned n, const int64_t *numbers)
{
    dcp_name(out, "torch", "Size");
    dcp_ops(out, "(");
    for (unsigned i = 0; i < n; i++)
        dcp_int(out, numbers[i]);
    dcp_ops(out, "t\x85R");
}

void dcp_begin(struct bytes *out)
{
    DCP_BYTES(out, "\x80\4");
    dcp_object(out, "Metadata");
    dcp_text(out, "state_dict_metadata");
    dcp_ops(out, "}(");
}

void dcp_tensor(struct bytes *out, const char *name, const char *dtype, unsigned ndim,
                const int64_t *dims)
{
    dcp_text(out, name);
    dcp_object(out, "TensorStorageMetadata");
    dcp_text(out, "properties");
    if (dcp_package) {
        dcp_object(out, "TensorProperties");
        dcp_text(out, "dtype");
        dcp_text(out, dtype);
        dcp_ops(out, DCP_BUILD);
    } else {
        dcp_name(out, METADATA, "TensorProperties");
        dcp_ops(out, ")\x81(");
        dcp_name(out, "torch", dtype);
        dcp_name(out, "torch.serialization", "_get_layout");
        dcp_text(out, "torch.strided");
        dcp_ops(out, "\x85R\x89");
        dcp_name(out, METADATA, "_MEM_FORMAT_ENCODING");
        DCP_BYTES(out, "K\0\x85R\x89tb");
    }
    dcp_text(out, "size");
    dcp_shape(out, ndim, dims);
    dcp_text(out, "chunks");
    dcp_ops(out, "](");
}

void dcp_chunk(struct bytes *out, unsigned ndim, const int64_t *offset, const int64_t *size)
{
    dcp_object(out, "ChunkStorageMetadata");
    dcp_text(out, "offsets");
    dcp_shape(out, ndim, offset);
    dcp_text(out, "sizes");
    dcp_shape(out, ndim, size);
    dcp_ops(out, DCP_BUILD);
}

void dcp_tensor_end(struct bytes *out)
{
    dcp_ops(out, "e" DCP_BUILD);
}

void dcp_left_out(struct bytes *out, const char *name)
{
    dcp_text(out, name);
    dcp_object(out, "BytesStorageMetadata");
    dcp_ops(out, DCP_BUILD);
}

void dcp_storage(struct bytes *out)
{
    dcp_ops(out, "u");
    dcp_text(out, "storage_data");
    dcp_ops(out, "}(");
}

static void put_index(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset)
{
    dcp_object(out, "MetadataIndex");
    dcp_text(out, "fqn");
    dcp_text(out, name);
    dcp_text(out, "offset");
    if (offset)
        dcp_shape(out, ndim, offset);
    else
        dcp_ops(out, dcp_package ? ")" : "N");
    dcp_ops(out, DCP_BUILD);
}

/* A _StorageInfo without its end. */
static void put_info(struct bytes *out, const char *path, int64_t at, int64_t bytes)
{
    dcp_object(out, "_StorageInfo");
    dcp_text(out, "relative_path");
    dcp_text(out, path);
    dcp_text(out, "offset");
    dcp_int(out, at);
    dcp_text(out, "length");
    dcp_int(out, bytes);
}

void dcp_place(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
               const char *path, int64_t at, int64_t bytes)
{
    put_index(out, name, ndim, offset);
    put_info(out, path, at, bytes);
    dcp_ops(out, DCP_BUILD);
}

void dcp_place_through(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
                       const char *path, int64_t at, int64_t bytes, unsigned n,
                       const char *const *extensions)
{
    put_index(out, name, ndim, offset);
    put_info(out, path, at, bytes);
    dcp_text(out, "transform_descriptors");
    dcp_ops(out, "](");
    for (unsigned i = 0; i < n; i++)
        dcp_text(out, extensions[i]);
    dcp_ops(out, "e" DCP_BUILD);
}

void dcp_place_key(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
                   const char *path, const char *key)
{
    put_index(out, name, ndim, offset);
    put_info(out, path, 0, -1);
    if (key) {
        dcp_text(out, "tensor_key");
        dcp_text(out, key);
    }
    dcp_ops(out, DCP_BUILD);
}

void dcp_paths(struct bytes *out)
{
    dcp_ops(out, "u");
    dcp_text(out, "planner_data");
    dcp_ops(out, "}(");
}

void dcp_path(struct bytes *out, const char *name, unsigned n, const char *const *keys)
{
    dcp_text(out, name);
    dcp_ops(out, "(");
    for (unsigned i = 0; i < n; i++)
        if (keys[i][0] == '#')
            dcp_int(out, keys[i][1] - '0');
        else
            dcp_text(out, keys[i]);
    dcp_ops(out, "t");
}

void dcp_end(struct bytes *out, const char *version)
{
    dcp_ops(out, "u");
    if (version) {
        dcp_text(out, "version");
        dcp_text(out, version);
    }
    dcp_ops(out, DCP_BUILD ".");
}
