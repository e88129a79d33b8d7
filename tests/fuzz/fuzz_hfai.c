/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the only part of an hfai checkpoint, or as the pickle in it, or as the pickles of
 * two parts, one behind the other. Shown by the library as other parts and merged, each file of the
 * view can be read, and is a sound file of torch.save. Its list has the same tensors whether those
 * that are cut are rows or not, and the models' alone are the first of them.
 */
#include "formats/hfai/hfai.h"
#include "formats/torch/torch.h"
#include "reshard.h"
#include "tests/fuzz/chunks.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wrap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a file of two parts", "a merged file", "a listed tensor", "a listed value",
           "two parts");

#define MOST (UINT64_C(1) << 22) /* bytes of a file that is read; strides can make more of a few */

static int read_memory(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct wrapped *input = ctx;
    REQUIRE(offset <= input->size && n <= input->size - offset);
    memcpy(buf, input->data + offset, n);
    return 0;
}

/*
 * What is shown can be read again, but for safetensors, and has the checksums that were asked for.
 */
static void check_file(reshard_view *view, const reshard_dirent *entry, unsigned goal)
{
    reshard_stat st = {.struct_size = sizeof st};
    reshard_error err = {.struct_size = sizeof err};
    struct rfs_torch torch;
    struct rfs_error failure = {0};

    const int rc = reshard_getattr(view, entry->id, &st, &err);
    REQUIRE(rc == 0 || (rc == err.code && err.message[0] && !strchr(err.message, '\n')));
    if (rc || st.size > MOST)
        return;
    struct wrapped file = {malloc((size_t)st.size + 1), (size_t)st.size};
    REQUIRE(file.data != NULL);
    REQUIRE(reshard_pread(view, entry->id, file.data, file.size, 0) == (ssize_t)file.size);
    fuzz_reached(goal);
    if (!st.mapped) {
        REQUIRE(rfs_torch_open(RFS_BYTES_SOURCE(read_memory, &file, file.size, "y.pt"), 0, &torch,
                               &failure) == 0);
        REQUIRE(rfs_torch_check(&torch, "y.pt", &failure) == 0);
        rfs_torch_free(&torch);
    }
    free(file.data);
}

static void check_folder(reshard_view *view, uint64_t id, unsigned goal)
{
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; reshard_list(view, id, i, &entry) == 1; i++)
        if (entry.is_dir)
            check_folder(view, entry.id, goal);
        else
            check_file(view, &entry, goal);
}

static void show(const char *options, unsigned goal)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;

    const int rc = reshard_open(fuzz_folder(), &config, &view, &err);
    REQUIRE(rc == 0 || (err.message[0] && !strchr(err.message, '\n')));
    if (rc == 0)
        check_folder(view, RESHARD_ROOT, goal);
    reshard_close(view);
}

static uint32_t part_at(const void *ctx, uint32_t part)
{
    return part < *(const uint32_t *)ctx ? part : UINT32_MAX;
}

/* Lists what is opened, with each tensor that is cut as a row of elements if ROWS. */
static void list(const struct rfs_hfai *hfai, const struct rfs_chunks_source *to,
                 const struct rfs_hfai_division *rows, size_t *tensors)
{
    struct rfs_hfai_list all, models;
    struct rfs_error err = {0};

    *tensors = 0;
    const struct rfs_hfai_listing how = {.to = *to, .rows = rows};
    if (require_result(rfs_hfai_list(hfai, &how, &all, &err), &err)) {
        uint32_t *parts = calloc(all.tensors.n + 1, sizeof *parts);
        REQUIRE(parts && all.chunks->tensors.n == all.tensors.n);
        *tensors = all.tensors.n;
        require_chunks(all.chunks, (const uint64_t[]){UINT64_MAX, UINT64_MAX}, 2);
        if (all.tensors.n > 0)
            fuzz_reached(2);
        if (all.values.n > 0)
            fuzz_reached(3);
        if (rows)
            REQUIRE(rfs_hfai_hold(rows, &all, parts, &err) == 0);
        for (size_t i = 0; rows && i < all.tensors.n; i++)
            REQUIRE(parts[i] < 3 || parts[i] >= RFS_HFAI_EVERY);
        free(parts);
        const struct rfs_hfai_listing less = {.to = *to, .rows = rows, .models = true};
        REQUIRE(rfs_hfai_list(hfai, &less, &models, &err) == 0);
        REQUIRE(models.tensors.n == all.n_models && models.n_models == all.n_models);
        rfs_hfai_list_free(&models);
    }
    rfs_hfai_list_free(&all);
}

/* The lists of the state, as it is and with the pieces of three parts, have as many tensors. */
static void list_parts(uint32_t n)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_hfai *hfai = NULL;
    struct rfs_hfai_division *rows = NULL;
    struct rfs_error err = {0};
    char path[PATH_MAX];
    size_t tensors[2];

    REQUIRE(tables.names && tables.types && files);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/PART_%03u.pt", fuzz_folder(), i);
        REQUIRE(rfs_files_add(files, path) == i);
    }
    const struct rfs_chunks_parts source = {.folder = fuzz_folder(),
                                            .files = files,
                                            .n_parts = n,
                                            .most = UINT64_C(1) << 28,
                                            .part = part_at,
                                            .ctx = &n};
    const struct rfs_chunks_source to = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    if (require_result(rfs_hfai_open(&source, &hfai, &err), &err)) {
        REQUIRE(rfs_hfai_divide(hfai, 3, 7, &rows, &err) == 0);
        list(hfai, &to, NULL, &tensors[0]);
        list(hfai, &to, rows, &tensors[1]);
        REQUIRE(tensors[0] == tensors[1]);
        if (n == 2)
            fuzz_reached(4);
    }
    rfs_hfai_division_free(rows);
    rfs_hfai_free(hfai);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

/* Writes a part, which is bytes or a pickle. */
static void write_part(const char *name, const uint8_t *data, size_t size)
{
    struct wrapped part = wrap_torch(data, size);

    fuzz_file(name, part.data, part.size);
    free(part.data);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const uint8_t *second = size > 2 ? memmem(data + 2, size - 2, ".\x80\2", 3) : NULL;
    const size_t first = second ? (size_t)(second + 1 - data) : size;

    fuzz_folder_clear("");
    write_part("PART_000.pt", data, first);
    if (second)
        write_part("PART_001.pt", data + first, size - first);
    show("nshards=2,large_size=7,zip_crc,cache=1M", 0);
    show("nshards=1,cache=1M", 1);
    list_parts(second ? 2 : 1);
}
