/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/hyper_parallel/hyper_parallel.h"

#include "formats/chunks/chunk_reader.h"
#include "formats/chunks/headers.h"
#include "formats/dcp/dcp.h"

/* Its pickle is not looked at. */
static int prove_object(struct rfs_chunks *chunks, const struct rfs_chunked_object *object,
                        bool all, struct rfs_error *err)
{
    const char *path = rfs_files_path(chunks->files, object->file);
    struct rfs_reading reading;

    (void)all;
    int rc = rfs_reading_begin_quiet(chunks->files, object->file, &reading);
    if (rc < 0)
        return rfs_chunks_fail_file(chunks, object->file, rc, err);
    if (object->item > reading.size || object->item_bytes > reading.size - object->item)
        rc = rfs_fail(err, -EINVAL,
                      RFS_OF(path, rfs_intern_text(chunks->tables->names, object->name)),
                      "compare the file with its original, or save the checkpoint again",
                      "lies at offset %llu with %llu bytes, and the file has only %llu",
                      (unsigned long long)object->item, (unsigned long long)object->item_bytes,
                      (unsigned long long)reading.size);
    const int ended = rfs_reading_end(&reading);
    return ended < 0 ? rfs_files_fail(err, path, ended) : rc;
}

static const struct rfs_chunks_format format = {.name = "HyperParallel",
                                                .keyed = true,
                                                .again = true,
                                                .locate = rfs_chunks_locate_in_header,
                                                .locate_copy = rfs_chunks_copy_in_header,
                                                .check = rfs_chunks_check_header,
                                                .prove = prove_object,
                                                .free = rfs_chunks_free_headers};

bool rfs_hyper_parallel_owns(const struct rfs_chunks *chunks)
{
    return chunks->format == &format;
}

static int build(struct rfs_chunks *chunks, const struct rfs_chunks_source *source,
                 struct rfs_error *err)
{
    const int rc = rfs_dcp_describe_files(chunks, source, err);

    if (rc)
        return rc;
    return rfs_chunks_own_headers(chunks) ? rfs_fail_memory(err) : 0;
}

int rfs_hyper_parallel_open(const struct rfs_chunks_source *source, struct rfs_chunks **out,
                            struct rfs_error *err)
{
    struct rfs_chunks *chunks = rfs_chunks_new(&format, source);
    const int rc = chunks ? build(chunks, source, err) : rfs_fail_memory(err);

    if (rc) {
        rfs_chunks_free(chunks);
        chunks = NULL;
    }
    *out = chunks;
    return rc;
}
