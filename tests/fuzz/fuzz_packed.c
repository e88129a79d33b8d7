/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the items of a distributed checkpoint that torch's ZStandard has compressed: both
 * halves of a tensor, and a value that is not a tensor. All elements and all bytes of the value are
 * read, by two openings, of which the second keeps no block.
 *
 *     flags   bits 0 to 2: that item's bytes are compressed here, so that any plain bytes come out
 *             of zstd; else they are what zstd reads. Bit 3: checksums are compared. Bit 4: the
 *             blocks have less room than a damaged item may ask for
 *     u16     bytes of the first item, little-endian
 *     u16     bytes of the second
 *     …       the items, one behind the other
 */
#include "formats/dcp/dcp.h"
#include "store/blocks.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/dcp_file.h"

#include <stdio.h>
#include <zstd.h>

FUZZ_GOALS("the first half", "the second half", "a value", "a pickle of a value");

#define FILE_NAME "__0_0.distcp"
#define LEVEL 1
#define PLAIN_VALUE 4
#define CHECKED 8
#define CRAMPED 16

enum { ITEMS = 3, HEAD = 5, ROWS = 4, COLUMNS = 6, ROOM = 1 << 20, LITTLE_ROOM = 32 << 10 };

static const int64_t corners[][2] = {{0, 0}, {ROWS, 0}};

struct item {
    int64_t at, bytes; /* in the file */
};

/* Appends an item to the file, compressed if it is PLAIN. */
static struct item add_item(struct bytes *file, const uint8_t *data, size_t size, bool plain)
{
    const size_t most = ZSTD_compressBound(size);
    struct item item = {.at = (int64_t)file->n};

    if (plain) {
        void *packed = malloc(most);
        REQUIRE(packed);
        const size_t n = ZSTD_compress(packed, most, data, size, LEVEL);
        REQUIRE(!ZSTD_isError(n));
        bytes_add(file, packed, n);
        free(packed);
    } else {
        bytes_add(file, data, size);
    }
    item.bytes = (int64_t)file->n - item.at;
    return item;
}

/* Writes the metadata of the items. */
static void describe(const struct item *items)
{
    static const char *const zstd[] = {"stream.zstd/1"};
    static const int64_t whole[] = {2 * ROWS, COLUMNS};
    static const int64_t half[] = {ROWS, COLUMNS};
    struct bytes out = {0};

    dcp_begin(&out);
    dcp_tensor(&out, "w", "float32", 2, whole);
    for (unsigned i = 0; i < 2; i++)
        dcp_chunk(&out, 2, corners[i], half);
    dcp_tensor_end(&out);
    dcp_left_out(&out, "step");
    dcp_storage(&out);
    for (unsigned i = 0; i < ITEMS; i++)
        dcp_place_through(&out, i < 2 ? "w" : "step", 2, i < 2 ? corners[i] : NULL, FILE_NAME,
                          items[i].at, items[i].bytes, 1, zstd);
    dcp_end(&out, "1.0.0");
    fuzz_file(".metadata", out.data, out.n);
    bytes_free(&out);
}

/* What was read of a checkpoint, and how that ended: 0 or -errno. */
struct got {
    float elements[2][ROWS * COLUMNS];
    int boxes[2];
    struct bytes object;
    int ended, opened, proved;
};

/* Reads the elements of half of the tensor. */
static int read_half(struct rfs_chunks *chunks, unsigned half, float *out)
{
    const uint64_t lo[] = {half * ROWS, 0};
    const uint64_t hi[] = {(half + 1) * ROWS, COLUMNS};
    struct rfs_chunks_walk walk;
    struct rfs_chunk_box box;
    struct rfs_chunk_place place;
    struct rfs_reading reading;
    struct rfs_error err = {0};

    rfs_chunks_walk_begin(chunks, &chunks->tensors.data[0], lo, hi, &walk);
    REQUIRE(rfs_chunks_walk_next(&walk, &box));
    int rc = rfs_chunks_locate_box(chunks, &box, &place, &err);
    if (!require_result(rc, &err))
        return rc;
    REQUIRE(rfs_reading_begin(chunks->files, place.file, &reading) == 0);
    for (unsigned i = 0; rc == 0 && i < ROWS * COLUMNS; i++) {
        const uint64_t strided = i / COLUMNS * place.stride[0] + i % COLUMNS * place.stride[1];
        rc = rfs_reading_pread(&reading, &out[i], sizeof *out,
                               place.at + (place.strided ? strided : i * sizeof *out));
    }
    REQUIRE(rfs_reading_end(&reading) == 0);
    return rc;
}

/* Reads the bytes of the value. */
static int read_object(struct rfs_chunks *chunks, struct bytes *out)
{
    const struct rfs_chunked_object *object = &chunks->objects.data[0];
    struct rfs_reading reading;
    struct rfs_error err = {0};
    uint64_t n = 0;
    uint8_t piece[1021];

    int rc = rfs_chunks_object_bytes(chunks, object, &n, &err);
    if (!require_result(rc, &err))
        return rc;
    REQUIRE(n > 0 && n <= ROOM);
    REQUIRE(rfs_reading_begin(chunks->files, object->file, &reading) == 0);
    for (uint64_t at = 0; rc == 0 && at < n; at += sizeof piece) {
        const size_t bytes = n - at < sizeof piece ? (size_t)(n - at) : sizeof piece;
        rc = rfs_reading_pread(&reading, piece, bytes, object->item + at);
        bytes_add(out, piece, bytes);
    }
    REQUIRE(rfs_reading_end(&reading) == 0);
    return rc;
}

/* Reads all; if DROPS, all blocks are made anew for each part of it. */
static void read_all(struct rfs_chunks *chunks, bool drops, struct got *out)
{
    struct rfs_blocks *blocks = rfs_files_packed(chunks->files);
    struct rfs_budget budget = {.most = ROOM};
    struct rfs_error err = {0};
    struct rfs_torch torch;

    for (unsigned i = 0; i < 2; i++) {
        out->boxes[i] = read_half(chunks, i, out->elements[i]);
        if (drops)
            rfs_blocks_drop(blocks);
    }
    out->ended = read_object(chunks, &out->object);
    if (drops)
        rfs_blocks_drop(blocks);
    out->proved = chunks->format->prove(chunks, &chunks->objects.data[0], true, &err);
    require_result(out->proved, &err);
    err = (struct rfs_error){0};
    out->opened = rfs_dcp_open_object(chunks, &chunks->objects.data[0], &budget, &torch, &err);
    if (require_result(out->opened, &err))
        rfs_torch_free(&torch);
}

static void require_same(const struct got *a, const struct got *b)
{
    for (unsigned i = 0; i < 2; i++)
        REQUIRE(a->boxes[i] == b->boxes[i] && (a->boxes[i] || memcmp(a->elements[i], b->elements[i],
                                                                     sizeof a->elements[i]) == 0));
    REQUIRE(a->ended == b->ended && a->proved == b->proved && a->opened == b->opened);
    REQUIRE(a->ended || (a->object.n == b->object.n &&
                         memcmp(a->object.data, b->object.data, a->object.n) == 0));
}

/* Opens the checkpoint, whose items may be refused by their sizes, and reads it. */
static void open_and_read(bool checked, uint64_t room, bool drops, struct got *out)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks;
    struct rfs_error err = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/.metadata", fuzz_folder());
    REQUIRE(files && tables.names && tables.types && rfs_files_add(files, path) == 0);
    const struct rfs_chunks_source source = {
        .folder = fuzz_folder(), .files = files, .tables = &tables};
    *out = (struct got){0};
    out->ended = rfs_dcp_open(&source, &chunks, &err);
    if (require_result(out->ended, &err)) {
        REQUIRE(!checked || rfs_chunks_set_checked(chunks) == 0);
        rfs_blocks_limit(rfs_files_packed(files), room);
        read_all(chunks, drops, out);
    }
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct bytes file = {0};
    struct item items[ITEMS];
    struct got got[2];

    if (size < HEAD)
        return;
    const uint8_t *rest = data + HEAD;
    size_t left = size - HEAD;
    for (unsigned i = 0; i < 2; i++) {
        const size_t given = data[1 + 2 * i] | (size_t)data[2 + 2 * i] << 8;
        const size_t n = given < left ? given : left;
        items[i] = add_item(&file, rest, n, data[0] >> i & 1);
        rest += n;
        left -= n;
    }
    items[2] = add_item(&file, rest, left, data[0] & PLAIN_VALUE);
    fuzz_file(FILE_NAME, file.data, file.n);
    bytes_free(&file);
    describe(items);
    for (unsigned i = 0; i < 2; i++)
        open_and_read((data[0] & CHECKED) != 0, data[0] & CRAMPED ? LITTLE_ROOM : ROOM, i > 0,
                      &got[i]);
    require_same(&got[0], &got[1]);
    for (unsigned i = 0; i < 2; i++)
        if (got[0].boxes[i] == 0)
            fuzz_reached(i);
    if (got[0].ended == 0)
        fuzz_reached(2);
    if (got[0].opened == 0)
        fuzz_reached(3);
    if ((data[0] & PLAIN_VALUE) && got[0].ended == 0)
        REQUIRE(got[0].object.n == left && memcmp(got[0].object.data, rest, left) == 0);
    for (unsigned i = 0; i < 2; i++)
        bytes_free(&got[i].object);
}
