/* SPDX-License-Identifier: Apache-2.0 */
#include "view/outputs.h"

enum rfs_format rfs_view_format(const struct rfs_options *options)
{
    return options->format >= 0               ? (enum rfs_format)options->format
           : options->shown == RFS_SHOW_RANKS ? RFS_FORMAT_CKPT
           : options->shown == RFS_SHOW_DCP   ? RFS_FORMAT_TORCH
                                              : RFS_FORMAT_SAFETENSORS;
}

int rfs_view_check_outputs(const struct rfs_options *options, struct rfs_error *err)
{
    const char *shown = rfs_option_word("view", options->shown);
    const bool safetensors = rfs_view_format(options) == RFS_FORMAT_SAFETENSORS;
    const bool whole = options->shown == RFS_SHOW_HUGGINGFACE || options->shown == RFS_SHOW_UNIFIED;

    if (!whole && options->file_size > 0)
        return rfs_fail_usage(
            err, "-o view=huggingface or -o view=unified",
            "option file_size divides one whole checkpoint into files, and a view "
            "of ranks has one for each rank");
    if (options->shown != RFS_SHOW_DCP && options->chunk_size > 0)
        return rfs_fail_usage(err, "-o view=dcp", "option chunk_size is for view=dcp");
    if (options->shown == RFS_SHOW_DCP && options->format >= 0)
        return rfs_fail_usage(err, "leave format= out",
                              "view=dcp is made of the files of torch.distributed.checkpoint");
    if (options->shown != RFS_SHOW_RANKS && strcmp(options->prefix, RFS_PREFIX) != 0)
        return rfs_fail_usage(err, "leave prefix= out",
                              "view=%s has file names of its own, without a prefix", shown);
    if ((whole || options->shown == RFS_SHOW_MINDFORMERS) && !safetensors)
        return rfs_fail_usage(err, "leave format= out", "view=%s is made of safetensors files",
                              shown);
    if (whole && (options->dst_strategy || options->dst_rules))
        return rfs_fail_usage(err, "leave the destination's strategy out",
                              "view=%s shows one whole checkpoint, which no strategy cuts", shown);
    if (options->crc && rfs_view_format(options) == RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "-o zip_crc", "option crc is for .ckpt files");
    if (options->crc && safetensors)
        return rfs_fail_usage(
            err,
            options->shown == RFS_SHOW_RANKS ? "leave crc out, or -o format=ckpt" : "leave crc out",
            "option crc is for .ckpt files: in a safetensors file the checksum would "
            "stand before the data that it sums up");
    return 0;
}
