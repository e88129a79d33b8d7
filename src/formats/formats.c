/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/formats.h"

#include "formats/ckpt/crc.h"
#include "formats/dcp/dcp.h"
#include "formats/fsdp/fsdp.h"
#include "formats/hyper_parallel/hyper_parallel.h"
#include "formats/mindformers/mindformers.h"
#include "formats/safetensors/safetensors.h"
#include "formats/shards/shards.h"
#include "formats/torch/torch_encode.h"
#include "formats/torch/zip.h"
#include "formats/zero/zero.h"
#include "store/files.h"

/* ---- .ckpt ----------------------------------------------------------------------------------- */

static int index_ckpt(struct rfs_format_file *file, const struct rfs_index *like,
                      struct rfs_index **out, struct rfs_error *err)
{
    const int rc = like ? rfs_ckpt_matches(file->from, like, file->tables, file->pool) : 0;
    if (rc < 0)
        return rfs_files_fail(err, file->from->file, rc);
    return rc ? rc : rfs_ckpt_walk(file->from, file->tables, out, err);
}

static int verify_ckpt(const struct rfs_format_file *file, const struct rfs_index *index,
                       struct rfs_error *err)
{
    return rfs_crc_verify(file->from, RFS_FORMAT_CKPT, index, file->tables, err);
}

static int encode_ckpt(const struct rfs_format_content *content, struct rfs_image **out,
                       struct rfs_error *err)
{
    const int rc = rfs_ckpt_encode(content->tensors, content->n, content->options->crc, out);

    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(content->path), NULL,
                        "a rank's file would be larger than a file can be");
    return rc ? rfs_fail_memory(err) : 0;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static int index_safetensors(struct rfs_format_file *file, const struct rfs_index *like,
                             struct rfs_index **out, struct rfs_error *err)
{
    return rfs_safetensors_walk(file->from, file->tables, like, out, err);
}

static int verify_safetensors(const struct rfs_format_file *file, const struct rfs_index *index,
                              struct rfs_error *err)
{
    return rfs_crc_verify(file->from, RFS_FORMAT_SAFETENSORS, index, file->tables, err);
}

static int encode_safetensors(const struct rfs_format_content *content, struct rfs_image **out,
                              struct rfs_error *err)
{
    return rfs_safetensors_encode(
        &(struct rfs_safetensors_content){.tensors = content->tensors,
                                          .n = content->n,
                                          .format = "ms",
                                          .path = content->path,
                                          .by_layers = content->options->order == RFS_BY_LAYERS},
        out, err);
}

/* ---- torch.save ------------------------------------------------------------------------------ */

static int index_torch(struct rfs_format_file *file, const struct rfs_index *like,
                       struct rfs_index **out, struct rfs_error *err)
{
    (void)like;
    return rfs_torch_walk(file->from, file->entry, file->tables, out, &file->left_out, err);
}

static int verify_torch(const struct rfs_format_file *file, const struct rfs_index *index,
                        struct rfs_error *err)
{
    (void)index;
    return rfs_zip_verify(file->from, err);
}

/* Makes a dict of tensors and objects, as torch.save writes it. */
static int encode_torch(const struct rfs_format_content *content, struct rfs_image **out,
                        struct rfs_error *err)
{
    struct rfs_document document = {0};
    const struct rfs_torch_content file = {.document = &document,
                                           .stem = "archive",
                                           .path = content->path,
                                           .crc = content->options->zip_crc};
    const int rc =
        rfs_document_dict(&document, content->tensors, content->n, content->path, err)
            ?: content->add(content->ctx, &document, err)
            ?: rfs_torch_encode(&file, out, err);

    rfs_document_free(&document);
    return rc;
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct rfs_format_row rfs_formats[RFS_ROWS] = {
    [RFS_FORMAT_CKPT] = {.folder = "ckpt",
                         .word = "ckpt",
                         .files = RFS_FORMAT_CKPT,
                         .index = index_ckpt,
                         .verify = verify_ckpt,
                         .encode = encode_ckpt},
    [RFS_FORMAT_SAFETENSORS] = {.folder = "safetensors",
                                .word = "safetensors",
                                .files = RFS_FORMAT_SAFETENSORS,
                                .index = index_safetensors,
                                .verify = verify_safetensors,
                                .encode = encode_safetensors},
    [RFS_FORMAT_TORCH] = {.folder = "torch",
                          .word = "pt",
                          .files = RFS_FORMAT_TORCH,
                          .index = index_torch,
                          .verify = verify_torch,
                          .encode = encode_torch},
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
    [RFS_ROW_HYPER_PARALLEL] = {.folder = "hyper_parallel",
                                .word = "hyper_parallel",
                                .files = RFS_FORMAT_SAFETENSORS,
                                .metadata = ".metadata",
                                .open = rfs_hyper_parallel_open},
    [RFS_ROW_ZERO] = {.folder = "zero", .files = RFS_FORMAT_TORCH, .open = rfs_zero_open},
#ifdef HAVE_HFAI
    [RFS_ROW_HFAI] = {.folder = "hfai", .files = RFS_FORMAT_TORCH},
#endif
};
