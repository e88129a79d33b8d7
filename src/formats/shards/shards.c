/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-00001-model-00001-of-00001.safetensors and so on, safetensors files whose shapes are those
 * of the chunks. Their places in the whole tensors are a text of JSON in the metadata:
 *
 *     {"__metadata__": {"format": "pt", "DCP_VERSION": "1.0",
 *                       "DCP_SHARDING_INFO": "{\"w\": {\"saved_offsets\": [4, 0]}}"},
 *      "w": {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 24]}}
 *
 * Nothing says how large the whole tensors are, or how many files there are: they end where their
 * chunks end.
 *
 * Source: torch/distributed/checkpoint/hf_storage.py and filesystem.py of torch 2.9.
 */
#include "formats/shards/shards.h"

#include "base/budget.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "formats/chunks/chunk_reader.h"
#include "formats/chunks/headers.h"
#include "formats/safetensors/safetensors.h"

#define INFO "DCP_SHARDING_INFO"
#define REMEDY "files of one save by HuggingFaceStorageWriter with save_distributed=True"

struct shard {
    struct rfs_local_chunks *locals;
    const char *path;
    uint32_t file;
    struct rfs_index *index;
    unsigned char *taken; /* by entry: whether it has offsets */
    struct rfs_error *err;
};

static void shard_end(struct shard *shard)
{
    rfs_index_free(shard->index);
    free(shard->taken);
}

static int damaged(const struct shard *shard, const char *param, const char *what)
{
    return rfs_fail(shard->err, -EINVAL, RFS_OF(shard->path, param), REMEDY,
                    "DCP_SHARDING_INFO in its header is damaged: %s", what);
}

/* ---- the text in the metadata ---------------------------------------------------------------- */

/* Reads the numbers of "saved_offsets". False when the text is wrong. */
static bool read_offsets(struct rfs_json_read *json, uint32_t *n, uint64_t *offsets)
{
    bool first = true;

    *n = 0;
    while (rfs_json_read_element(json, &first)) {
        if (*n == RFS_MAX_DIMS)
            return rfs_json_read_fail(json, "more than 16 offsets");
        if (!rfs_json_read_u64(json, &offsets[(*n)++]))
            return false;
    }
    return !json->wrong;
}

/* Reads the members of a tensor, whose name was read. */
static int read_tensor(struct shard *shard, struct rfs_json_read *json)
{
    const struct rfs_tables *tables = shard->locals->chunks->tables;
    const uint32_t name = rfs_intern_find(tables->names, json->text, json->text_n);
    const struct rfs_entry *entry = name == RFS_NO_ID ? NULL : rfs_index_find(shard->index, name);
    uint64_t offsets[RFS_MAX_DIMS];
    uint32_t n = UINT32_MAX;
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        if (!rfs_json_read_is(json, "saved_offsets"))
            rfs_json_read_skip(json);
        else
            read_offsets(json, &n, offsets);
    }
    if (json->wrong)
        return damaged(shard, NULL, json->wrong);
    if (!entry)
        return 0; /* the file lacks that tensor */
    const char *text = rfs_intern_text(tables->names, name);
    if (n != rfs_chunks_type(shard->locals->chunks, entry->type)->ndim)
        return damaged(shard, text, "its numbers of offsets and axes differ");
    if (shard->taken[entry - shard->index->entries]++)
        return damaged(shard, text, "it names it twice");
    const struct rfs_local_chunk local = {.name = name,
                                          .type = entry->type,
                                          .whole = RFS_NO_ID,
                                          .file = shard->file,
                                          .promised = 1,
                                          .at = entry->offset};
    return rfs_chunks_add_local(shard->locals, &local, offsets) ? 0 : rfs_fail_memory(shard->err);
}

static int read_info(struct shard *shard, const char *text, size_t n)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&json, &first))
        rc = read_tensor(shard, &json);
    if (rc == 0 && !rfs_json_read_end(&json))
        rc = damaged(shard, NULL, json.wrong);
    for (size_t i = 0; rc == 0 && i < shard->index->n; i++)
        if (!shard->taken[i])
            rc = damaged(shard,
                         rfs_intern_text(shard->locals->chunks->tables->names,
                                         shard->index->entries[i].name),
                         "the beginning of its piece is missing");
    return rc;
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Finds the text in a header, which is valid. */
static int read_header(struct shard *shard, const char *header, size_t n)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(header, n);
    bool first = true;

    while (rfs_json_read_member(&json, &first)) {
        bool inner = true;
        if (!rfs_json_read_is(&json, RFS_SAFETENSORS_METADATA) || rfs_json_read_null(&json)) {
            rfs_json_read_skip(&json);
            continue;
        }
        while (rfs_json_read_member(&json, &inner)) {
            const bool info = rfs_json_read_is(&json, INFO);
            if (rfs_json_read_string(&json) && info)
                return read_info(shard, json.text, json.text_n);
        }
    }
    return rfs_fail(shard->err, json.no_memory ? -ENOMEM : -EINVAL, RFS_IN(shard->path), REMEDY,
                    "its name promises DCP_SHARDING_INFO, but its header has none");
}

static int read_shard(struct shard *shard, struct rfs_reading *reading)
{
    struct rfs_chunks *chunks = shard->locals->chunks;
    RFS_BUDGET_SHARE share = 0;
    int rc = rfs_safetensors_walk(RFS_READING_SOURCE(reading, shard->path), chunks->tables, NULL,
                                  &shard->index, shard->err);

    if (rc == -ENODATA)
        return 0; /* the rank has no tensors */
    if (rc)
        return rc;
    const size_t n = (size_t)shard->index->header_bytes;
    rc = rfs_budget_share_take(&share, 3 * n);
    if (rc)
        return rfs_files_fail(shard->err, shard->path, rc);
    RFS_FREE char *header = malloc(n + 1);
    shard->taken = calloc(shard->index->n + 1, 1);
    if (!header || !shard->taken)
        return rfs_fail_memory(shard->err);
    rc = rfs_reading_pread(reading, header, n, sizeof(uint64_t));
    return rc ? rfs_files_fail(shard->err, shard->path, rc) : read_header(shard, header, n);
}

static int read_file(void *ctx, struct rfs_local_chunks *locals, uint32_t file,
                     struct rfs_error *err)
{
    struct rfs_files *files = locals->chunks->files;
    RFS_CLEANUP(shard_end)
    struct shard shard = {
        .locals = locals, .path = rfs_files_path(files, file), .file = file, .err = err};
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(files, file, &reading);

    (void)ctx;
    if (rc < 0)
        return rfs_files_fail(err, shard.path, rc);
    rc = read_shard(&shard, &reading);
    const int ended = rfs_reading_end(&reading);
    return ended < 0 ? rfs_files_fail(err, shard.path, ended) : rc;
}

/* All places are known when it is built. */
static const struct rfs_chunks_format format = {
    .name = "torch.distributed.checkpoint, in safetensors", .check = rfs_chunks_check_header};

const struct rfs_numbered_form rfs_shards_names = {
    .similar = "shard-*-model-*-of-*.safetensors",
    .words = {"shard-", "-model-", "-of-", ".safetensors"},
    .counts_parts = true,
    .choice = {"*-of-", ".safetensors"},
    .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_PART, RFS_NUMBERED_COUNT},
    .digits = 5,
    .first = 1};

int rfs_shards_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                    struct rfs_error *err)
{
    return rfs_chunks_open_local(&format, source, read_file, NULL, out, err);
}
