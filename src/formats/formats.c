/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/formats.h"

#include "formats/dcp/dcp.h"
#include "formats/fsdp/fsdp.h"
#include "formats/mindformers/mindformers.h"
#include "formats/shards/shards.h"

const struct rfs_format_row rfs_formats[RFS_ROWS] = {
    [RFS_FORMAT_CKPT] = {.folder = "ckpt", .word = "ckpt", .files = RFS_FORMAT_CKPT},
    [RFS_FORMAT_SAFETENSORS] = {.folder = "safetensors",
                                .word = "safetensors",
                                .files = RFS_FORMAT_SAFETENSORS},
    [RFS_FORMAT_TORCH] = {.folder = "torch", .word = "pt", .files = RFS_FORMAT_TORCH},
    [RFS_ROW_DCP] = {.folder = "dcp",
                     .word = "dcp",
                     .files = RFS_FORMAT_TORCH,
                     .metadata = ".metadata",
                     .open = rfs_dcp_open},
    [RFS_ROW_MINDFORMERS] = {.folder = "mindformers",
                             .word = "mindformers",
                             .files = RFS_FORMAT_SAFETENSORS,
                             .metadata = "metadata.json",
                             .names = &rfs_mindformers_names,
                             .open = rfs_mindformers_open},
    [RFS_ROW_SHARDS] = {.folder = "shards",
                        .files = RFS_FORMAT_SAFETENSORS,
                        .names = &rfs_shards_names,
                        .open = rfs_shards_open},
    [RFS_ROW_FSDP] = {.folder = "fsdp",
                      .files = RFS_FORMAT_TORCH,
                      .names = &rfs_fsdp_names,
                      .open = rfs_fsdp_open},
#ifdef HAVE_HFAI
    [RFS_ROW_HFAI] = {.folder = "hfai", .files = RFS_FORMAT_TORCH},
#endif
};
