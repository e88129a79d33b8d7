/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as metadata of HyperParallel: by their number that of all ranks, or of the second one
 * beside a good first one. The files that it names may be there or not, and of either kind; their
 * checksums are compared or not.
 */
#include "formats/hyper_parallel/hyper_parallel.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a tensor of one rank", "a tensor of all ranks", "a value that lies in its file");

static char first[4096]; /* its path */

static const char tensors[] = "9\0\0\0\0\0\0\0"
                              "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
                              "12345678";

/* Puts the opcodes of a text. */
static size_t put_text(char *out, const char *text)
{
    const size_t n = strlen(text);

    out[0] = (char)0x8c;
    out[1] = (char)n;
    memcpy(out + 2, text, n);
    return 2 + n;
}

static size_t put_class(char *out, const char *module, const char *name)
{
    char whole[96];
    size_t n;

    snprintf(whole, sizeof whole, "hyper_parallel.core.checkpoint.%s", module);
    n = put_text(out, whole);
    n += put_text(out + n, name);
    memcpy(out + n, "\x93)\x81}(", 5);
    return n + 5;
}

/* Rank 0 has no values at all. */
void fuzz_prepare(void)
{
    char data[512];
    size_t n = 0;

    memcpy(data, "\x80\4", 2);
    n = 2 + put_class(data + 2, "metadata", "Metadata");
    n += put_text(data + n, "state_dict_metadata");
    data[n++] = '}';
    n += put_text(data + n, "storage_data");
    memcpy(data + n, "}ub.", 4);
    snprintf(first, sizeof first, "%s", fuzz_file("0.metadata", data, n + 4));
    fuzz_file("_rank0_.safetensors", tensors, sizeof tensors - 1);
    fuzz_file("_rank1_.safetensors", "PK\3\4", 4);
    fuzz_file("_rank1_.bytes", tensors, sizeof tensors - 1);
}

/* Its chunks have as many bytes as it, unless files are lost. */
static void check_tensor(struct rfs_chunks *chunks, const struct rfs_chunked_tensor *tensor)
{
    uint64_t left = rfs_chunks_type(chunks, tensor->type)->bytes;
    struct rfs_chunked_copy copy;

    for (uint32_t i = tensor->first; i < tensor->first + tensor->n; i++) {
        const uint64_t bytes = rfs_chunks_type_of(chunks, i)->bytes;
        struct rfs_error err = {0};
        REQUIRE(bytes <= left);
        left -= bytes;
        REQUIRE(chunks->chunks.data[i].file >= chunks->first_file &&
                chunks->chunks.data[i].file < rfs_files_count_paths(chunks->files));
        if (i < 8)
            require_result(rfs_chunks_locate(chunks, i, &err), &err);
        err = (struct rfs_error){0};
        if (i < 8 && rfs_chunks_count_copies(chunks, i) > 0)
            require_result(rfs_chunks_locate_copy(chunks, i, 0, &copy, &err), &err);
    }
    REQUIRE(tensor->incomplete == (left > 0));
}

static void check_object(struct rfs_chunks *chunks, const struct rfs_chunked_object *object)
{
    struct rfs_error err = {0};

    if (require_result(chunks->format->prove(chunks, object, false, &err), &err))
        fuzz_reached(2);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    struct rfs_error err = {0};
    const bool alone = size % 2 == 0;

    REQUIRE(tables.names && tables.types && files);
    if (!alone)
        REQUIRE(rfs_files_add(files, first) == 0);
    REQUIRE(rfs_files_add(files, fuzz_file(alone ? ".metadata" : "1.metadata", data, size)) ==
            !alone);
    const struct rfs_chunks_source source = {.folder = fuzz_folder(),
                                             .files = files,
                                             .tables = &tables,
                                             .lost = size % 3 == 0 ? "'2.metadata' is" : NULL};
    if (require_result(rfs_hyper_parallel_open(&source, &chunks, &err), &err)) {
        if (size / 2 % 2)
            REQUIRE(rfs_chunks_set_checked(chunks) == 0);
        for (size_t i = 0; i < chunks->tensors.n; i++) {
            check_tensor(chunks, &chunks->tensors.data[i]);
            fuzz_reached(alone);
        }
    }
    for (size_t i = 0; chunks && i < chunks->objects.n && i < 8; i++)
        check_object(chunks, &chunks->objects.data[i]);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}
