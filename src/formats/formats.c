/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/formats.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/text.h"
#include "formats/ckpt/crc.h"
#include "formats/dcp/dcp.h"
#include "formats/dcp/dcp_encode.h"
#include "formats/foreign.h"
#include "formats/fsdp/fsdp.h"
#include "formats/gguf/gguf.h"
#include "formats/hfai/hfai.h"
#include "formats/hyper_parallel/hyper_parallel.h"
#include "formats/mindformers/mindformers.h"
#include "formats/safetensors/safetensors.h"
#include "formats/shards/shards.h"
#include "formats/torch/torch.h"
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
    return rfs_crc_verify(file->from, true, index, file->tables, err);
}

static int encode_ckpt(const struct rfs_format_content *content, struct rfs_image **out,
                       struct rfs_error *err)
{
    for (size_t i = 0; i < content->n; i++) {
        const enum rfs_dtype dtype = (enum rfs_dtype)content->tensors[i].type->dtype;
        if (rfs_dtype_is_block(dtype))
            return rfs_fail(err, -EINVAL, RFS_OF(content->path, content->tensors[i].name),
                            RFS_DTYPE_DEQUANTIZE, "is of type %s, which .ckpt files cannot hold",
                            rfs_dtype_name(dtype));
    }
    const int rc = rfs_ckpt_encode(content->tensors, content->n, content->options->crc, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(content->path), NULL,
                        "a rank's file would be larger than a file can be");
    return rc ? rfs_fail_memory(err) : 0;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static bool is_safetensors(const unsigned char *head, size_t n)
{
    uint64_t length = 0;

    for (int i = 7; n > 8 && i >= 0; i--)
        length = length << 8 | head[i];
    return n > 8 && length > 1 && length <= UINT64_C(100000000) && head[8] == '{';
}

/* The library writes the metadata first. */
static bool by_mindspore(const unsigned char *head, size_t n)
{
    static const char mark[] = "{\"" RFS_SAFETENSORS_METADATA "\":{\"format\":\"ms\"";

    return n >= 8 + sizeof mark - 1 && memcmp(head + 8, mark, sizeof mark - 1) == 0;
}

static int index_safetensors(struct rfs_format_file *file, const struct rfs_index *like,
                             struct rfs_index **out, struct rfs_error *err)
{
    return rfs_safetensors_walk(file->from, file->tables, like, out, err);
}

static int verify_safetensors(const struct rfs_format_file *file, const struct rfs_index *index,
                              struct rfs_error *err)
{
    return rfs_crc_verify(file->from, false, index, file->tables, err);
}

static int encode_safetensors(const struct rfs_format_content *content, struct rfs_image **out,
                              struct rfs_error *err)
{
    return rfs_safetensors_encode(
        &(struct rfs_safetensors_content){.tensors = content->tensors,
                                          .n = content->n,
                                          .format = content->metadata,
                                          .path = content->path,
                                          .divide = content->divide,
                                          .by_layers = content->options->order == RFS_BY_LAYERS},
        out, err);
}

/* ---- torch.save ------------------------------------------------------------------------------ */

static bool is_torch(const unsigned char *head, size_t n)
{
    return n >= 4 && (memcmp(head, "PK\3\4", 4) == 0 || rfs_torch_is_legacy(head, n));
}

static int index_torch(struct rfs_format_file *file, const struct rfs_index *like,
                       struct rfs_index **out, struct rfs_error *err)
{
    (void)like;
    return rfs_torch_walk(file->from, file->entry, file->tables, out, &file->left_out,
                          &file->outside, err);
}

static int list_torch(struct rfs_format_file *file, rfs_index_each_fn *each, void *ctx,
                      struct rfs_error *err)
{
    return rfs_torch_list(file->from, each, ctx, &file->left_out, err);
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

/* ---- GGUF ------------------------------------------------------------------------------------ */

static bool is_gguf(const unsigned char *head, size_t n)
{
    return n >= 4 && memcmp(head, "GGUF", 4) == 0;
}

static int index_gguf(struct rfs_format_file *file, const struct rfs_index *like,
                      struct rfs_index **out, struct rfs_error *err)
{
    (void)like;
    return rfs_gguf_walk(file->from, file->tables, out, &file->left_out, err);
}

/* As in llama.cpp, the embeddings are the output of a model without one. */
static int config_gguf(const struct rfs_format_file *file, const struct rfs_index *index,
                       struct rfs_bytes *out, struct rfs_error *err)
{
    static const char output[] = "output.weight";
    const uint32_t name = rfs_intern_find(file->tables->names, output, sizeof output - 1);

    return rfs_gguf_config(file->from, name == RFS_NO_ID || !rfs_index_find(index, name), out, err);
}

static int encode_gguf(const struct rfs_format_content *content, struct rfs_image **out,
                       struct rfs_error *err)
{
    return rfs_gguf_encode(&(struct rfs_gguf_content){.tensors = content->tensors,
                                                      .n = content->n,
                                                      .path = content->path,
                                                      .config = content->options->hf_config,
                                                      .like = content->like,
                                                      .plain = content->options->dequantize,
                                                      .store = content->store},
                           out, err);
}

/* ---- torch.distributed.checkpoint ------------------------------------------------------------ */

static int encode_items(const struct rfs_format_content *content, struct rfs_image **out,
                        struct rfs_error *err)
{
    return rfs_dcp_encode_items(content->tensors, content->n, content->options->zip_crc,
                                content->path, out, err);
}

/* ---- the table ------------------------------------------------------------------------------- */

const struct rfs_format_row rfs_formats[RFS_ROWS] = {
    [RFS_FORMAT_CKPT] = {.folder = "ckpt",
                         .name = "ckpt",
                         .files = RFS_FORMAT_CKPT,
                         .endings = {".ckpt"},
                         .last = RFS_LAST_NAME,
                         .spread = true,
                         .no_empty = true,
                         .by_stage = true,
                         .index = index_ckpt,
                         .resembles = rfs_ckpt_resembles,
                         .verify = verify_ckpt,
                         .encode = encode_ckpt},
    [RFS_FORMAT_SAFETENSORS] = {.folder = "safetensors",
                                .name = "safetensors",
                                .files = RFS_FORMAT_SAFETENSORS,
                                .gives = RFS_FORMAT_SAFETENSORS,
                                .endings = {".safetensors"},
                                .is = is_safetensors,
                                .last = RFS_LAST_NUMBERS,
                                .alone = true,
                                .by_name = true,
                                .mapped = true,
                                .coded = true,
                                .by_mindspore = by_mindspore,
                                .index = index_safetensors,
                                .verify = verify_safetensors,
                                .encode = encode_safetensors},
    /* MindSpore ignores .pt files; PyTorch Lightning and others call them .ckpt. */
    [RFS_FORMAT_TORCH] = {.folder = "torch",
                          .name = "pt",
                          .files = RFS_FORMAT_TORCH,
                          .gives = RFS_FORMAT_SAFETENSORS,
                          .endings = {".pt", ".pth", ".bin", ".th"},
                          .is = is_torch,
                          .renamed = true,
                          .alone = true,
                          .beside = true,
                          .keyed = true,
                          .records = true,
                          .strided = true,
                          .objects = true,
                          .index = index_torch,
                          .list = list_torch,
                          .verify = verify_torch,
                          .encode = encode_torch},
    [RFS_FORMAT_GGUF] = {.folder = "gguf",
                         .name = "gguf",
                         .files = RFS_FORMAT_GGUF,
                         .gives = RFS_FORMAT_SAFETENSORS,
                         .endings = {".gguf"},
                         .is = is_gguf,
                         .alone = true,
                         .divided = true,
                         .beside = true,
                         .mapped = true,
                         .blocks = true,
                         .modelled = true,
                         .index = index_gguf,
                         .values = rfs_gguf_values,
                         .config = config_gguf,
                         .encode = encode_gguf},
    [RFS_ROW_HYPER_PARALLEL] = {.folder = "hyper_parallel",
                                .name = "hyper_parallel",
                                .files = RFS_FORMAT_SAFETENSORS,
                                .metadata = ".metadata",
                                .seen = &rfs_hyper_parallel_seen,
                                .open = rfs_hyper_parallel_open,
                                .encode = encode_safetensors},
    [RFS_ROW_DCP] = {.folder = "dcp",
                     .name = "dcp",
                     .files = RFS_FORMAT_TORCH,
                     .gives = RFS_FORMAT_SAFETENSORS,
                     .metadata = ".metadata",
                     .seen = &rfs_dcp_seen,
                     .open = rfs_dcp_open,
                     .encode = encode_items},
    [RFS_ROW_ZERO] = {.folder = "zero",
                      .name = "zero",
                      .files = RFS_FORMAT_TORCH,
                      .gives = RFS_FORMAT_SAFETENSORS,
                      .seen = &rfs_zero_seen,
                      .open = rfs_zero_open},
    [RFS_ROW_SHARDS] = {.folder = "shards",
                        .name = "shards",
                        .files = RFS_FORMAT_SAFETENSORS,
                        .gives = RFS_FORMAT_SAFETENSORS,
                        .names = &rfs_shards_names,
                        .open = rfs_shards_open},
    [RFS_ROW_FSDP] = {.folder = "fsdp",
                      .name = "fsdp",
                      .files = RFS_FORMAT_TORCH,
                      .gives = RFS_FORMAT_SAFETENSORS,
                      .names = &rfs_fsdp_names,
                      .open = rfs_fsdp_open},
    [RFS_ROW_MINDFORMERS] = {.folder = "mindformers",
                             .name = "mindformers",
                             .files = RFS_FORMAT_SAFETENSORS,
                             .metadata = "metadata.json",
                             .names = &rfs_mindformers_names,
                             .seen = &rfs_mindformers_seen,
                             .open = rfs_mindformers_open,
                             .encode = encode_safetensors},
    [RFS_ROW_HFAI] = {.folder = "hfai",
                      .name = "hfai",
                      .files = RFS_FORMAT_TORCH,
                      .first_part = RFS_HFAI_FIRST,
                      .state = rfs_hfai_state},
};

bool rfs_format_of_name(const char *name, enum rfs_format *format)
{
    for (unsigned i = 0; i < RFS_FORMAT_COUNT; i++)
        for (unsigned k = 0; k < RFS_FORMAT_ENDINGS && rfs_formats[i].endings[k]; k++)
            if (rfs_text_ends(name, rfs_formats[i].endings[k])) {
                *format = (enum rfs_format)i;
                return true;
            }
    return false;
}

size_t rfs_format_stem(const char *name, enum rfs_format format)
{
    const char *const *endings = rfs_formats[format].endings;
    unsigned k = 0;

    while (!rfs_text_ends(name, endings[k]))
        k++;
    return strlen(name) - strlen(endings[k]);
}

bool rfs_format_is_vague(enum rfs_format format)
{
    return !rfs_formats[format].is || rfs_formats[format].renamed;
}

/*
 * Corrects the FORMAT by a name whose ending says little, as .ckpt and .bin, where the first N
 * bytes show that the file is of another.
 */
static void correct(const unsigned char *head, size_t n, enum rfs_format *format)
{
    const struct rfs_format_row *named = &rfs_formats[*format];

    if (!rfs_format_is_vague(*format) || (named->is && named->is(head, n)))
        return;
    for (unsigned i = 0; i < RFS_FORMAT_COUNT; i++)
        if (rfs_formats[i].is && rfs_formats[i].is(head, n) &&
            (named->is || rfs_formats[i].renamed)) {
            *format = (enum rfs_format)i;
            return;
        }
}

/* Returns the row by whose mark a file begins, or NULL. */
static const struct rfs_format_row *marked(const unsigned char *head, size_t n)
{
    for (unsigned i = 0; i < RFS_FORMAT_COUNT; i++)
        if (rfs_formats[i].is && rfs_formats[i].is(head, n))
            return &rfs_formats[i];
    return NULL;
}

bool rfs_format_of_file(const char *name, const unsigned char *head, size_t n,
                        enum rfs_format *format)
{
    if (rfs_format_of_name(name, format)) {
        correct(head, n, format);
        return rfs_formats[*format].is;
    }
    const struct rfs_format_row *row = marked(head, n);
    if (row)
        *format = row->files;
    return row;
}

int rfs_format_explain(const struct rfs_format_row *row, const struct rfs_bytes_source *from,
                       int rc, struct rfs_error *err)
{
    unsigned char head[RFS_FORMAT_HEAD];
    const size_t n = from->size < sizeof head ? (size_t)from->size : sizeof head;
    const int said = rfs_foreign_explain(from, rc, err);

    if (said != -EINVAL || !err || !from->file || rfs_bytes_source_read(from, head, n, 0))
        return said;
    const struct rfs_format_row *begins = marked(head, n);
    if (!begins || begins == row)
        return said;
    RFS_FREE char *remedy = rfs_text_printf("a name in %s, if it is one", begins->endings[0]);
    return rfs_fail(err, said, RFS_IN(from->file), remedy,
                    "begins as a %s file, and is taken for a %s file by its name",
                    begins->endings[0], row->endings[0]);
}

const char *rfs_format_endings(bool all, char out[RFS_FORMAT_ENDINGS_TEXT])
{
    const char *list[RFS_FORMAT_COUNT];
    size_t n = 0;
    size_t used = 0;

    for (unsigned i = 0; i < RFS_FORMAT_COUNT; i++)
        if (all || !rfs_formats[i].beside)
            list[n++] = rfs_formats[i].endings[0];
    for (size_t i = 0; i < n && used < RFS_FORMAT_ENDINGS_TEXT; i++)
        used += (size_t)snprintf(out + used, RFS_FORMAT_ENDINGS_TEXT - used, "%s%s",
                                 i == 0       ? ""
                                 : i + 1 == n ? " or "
                                              : ", ",
                                 list[i]);
    return out;
}

unsigned rfs_format_sees(const struct rfs_format_row *row, const char *name)
{
    if (row->seen)
        return row->seen->name(name);
    return row->names && rfs_numbered_like(row->names, name) ? RFS_SEEN_FILE : 0;
}

struct rfs_seen rfs_format_settle(const struct rfs_format_row *row, unsigned bits)
{
    if (row->seen)
        return row->seen->settle(bits);
    return (struct rfs_seen){.as = bits ? RFS_SEEN_NAMES : RFS_SEEN_NOTHING};
}
