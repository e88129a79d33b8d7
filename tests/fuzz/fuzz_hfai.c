/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the only part of an hfai checkpoint, or as the pickle in it, shown by the library as
 * other parts and merged: each file of the view can be read, and is a sound file of torch.save.
 */
#include "formats/torch/torch.h"
#include "reshard.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
static void check_file(reshard_view *view, const reshard_dirent *entry)
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
    if (!st.mapped) {
        REQUIRE(rfs_torch_open(read_memory, &file, file.size, 0, "y.pt", &torch, &failure) == 0);
        REQUIRE(rfs_torch_check(&torch, "y.pt", &failure) == 0);
        rfs_torch_free(&torch);
    }
    free(file.data);
}

static void check_folder(reshard_view *view, uint64_t id)
{
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; reshard_list(view, id, i, &entry) == 1; i++)
        if (entry.is_dir)
            check_folder(view, entry.id);
        else
            check_file(view, &entry);
}

static void show(const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;

    const int rc = reshard_open(fuzz_folder(), &config, &view, &err);
    REQUIRE(rc == 0 || (err.message[0] && !strchr(err.message, '\n')));
    if (rc == 0)
        check_folder(view, RESHARD_ROOT);
    reshard_close(view);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct wrapped part = wrap_torch(data, size);

    fuzz_file("PART_000.pt", part.data, part.size);
    show("nshards=2,large_size=7,zip_crc,cache=1M");
    show("nshards=1,cache=1M");
    free(part.data);
}
