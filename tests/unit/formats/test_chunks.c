/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes: random tilings of random tensors, against a map from each element to the chunk that holds
 * it. The seed is printed, and replayed from RFS_SEED.
 */
#include "formats/chunks/boxes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TILES 512
#define CELLS 20000

struct tile {
    uint64_t at[RFS_MAX_DIMS], size[RFS_MAX_DIMS];
};

/* A tensor, its tiles in random order, and for each element the tile that has it. */
struct world {
    struct rfs_type type;
    size_t n;
    struct tile tiles[TILES];
    uint16_t owner[CELLS];
};

struct chunks {
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_chunks *chunks;
    struct rfs_error err;
};

static unsigned seed;

static uint64_t pick(uint64_t n)
{
    return (uint64_t)rand_r(&seed) % n;
}

static int locate(struct rfs_chunks *chunks, uint32_t chunk, struct rfs_error *err)
{
    (void)err;
    atomic_store(&chunks->chunks.data[chunk].at, chunks->chunks.data[chunk].item + 7);
    return 0;
}

static const struct rfs_chunks_format format = {.name = "test", .locate = locate};

static void open_boxes(struct chunks *b)
{
    *b = (struct chunks){.files = rfs_files_new(NULL),
                         .tables = {rfs_intern_new(), rfs_intern_new()}};
    assert_int_equal(rfs_files_add(b->files, "/checkpoint/metadata"), 0);
    b->chunks = rfs_chunks_new(&format, &(struct rfs_chunks_source){.folder = "/checkpoint",
                                                                    .files = b->files,
                                                                    .tables = &b->tables});
    assert_non_null(b->chunks);
}

static void close_boxes(struct chunks *b)
{
    rfs_chunks_free(b->chunks);
    rfs_files_free(b->files);
    rfs_intern_free(b->tables.names);
    rfs_intern_free(b->tables.types);
}

static uint64_t elements(const struct rfs_type *type)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < type->ndim; i++)
        n *= type->dims[i];
    return n;
}

static bool inside(const struct tile *tile, uint32_t ndim, const uint64_t *at)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (at[i] < tile->at[i] || at[i] >= tile->at[i] + tile->size[i])
            return false;
    return true;
}

static void unravel(const struct rfs_type *type, uint64_t number, uint64_t *at)
{
    for (uint32_t i = type->ndim; i-- > 0; number /= type->dims[i])
        at[i] = number % type->dims[i];
}

/* Cuts tile T in two along an axis, or leaves it. */
static void cut(struct world *world, size_t t, uint32_t axis, uint64_t at)
{
    struct tile *tile = &world->tiles[t];

    if (world->n == TILES || at == 0 || at >= tile->size[axis])
        return;
    struct tile *rest = &world->tiles[world->n++];
    *rest = *tile;
    rest->at[axis] += at;
    rest->size[axis] -= at;
    tile->size[axis] = at;
}

static void make_world(struct world *world)
{
    memset(world, 0, sizeof *world);
    world->type.dtype = RFS_FLOAT32;
    world->type.ndim = (uint8_t)pick(4);
    for (uint32_t i = 0; i < world->type.ndim; i++)
        world->type.dims[i] = 1 + pick(i == 0 ? 40 : 12);
    world->n = 1;
    memcpy(world->tiles[0].size, world->type.dims, sizeof world->type.dims);
    const uint64_t cuts = world->type.ndim ? pick(5) : 0;
    for (uint64_t c = 0; c < cuts; c++) {
        const uint32_t axis = (uint32_t)pick(world->type.ndim);
        const uint64_t border = pick(world->type.dims[axis]);
        /* Through all tiles, as device meshes do, and now and then through one alone. */
        const bool one = pick(4) == 0;
        const size_t only = pick(world->n);
        for (size_t t = 0, n = world->n; t < n; t++)
            if ((!one || t == only) && border > world->tiles[t].at[axis])
                cut(world, t, axis, border - world->tiles[t].at[axis]);
    }
    for (size_t t = world->n; t-- > 1;) {
        const size_t other = pick(t + 1);
        const struct tile swap = world->tiles[t];
        world->tiles[t] = world->tiles[other];
        world->tiles[other] = swap;
    }
    for (uint64_t e = 0; e < elements(&world->type); e++) {
        uint64_t at[RFS_MAX_DIMS];
        unravel(&world->type, e, at);
        while (!inside(&world->tiles[world->owner[e]], world->type.ndim, at))
            world->owner[e]++;
    }
}

/* Declares the tiles but SKIP, some of them twice, and stores them; tile T at item T. */
static int declare(struct chunks *b, const struct world *world, size_t skip)
{
    struct rfs_type type = world->type;
    int rc = rfs_chunks_add_tensor(b->chunks, "before", 6,
                                   &(struct rfs_type){.dtype = RFS_INT8, .ndim = 1}, &b->err);

    assert_int_equal(rc, 0); /* without elements */
    assert_int_equal(rfs_chunks_add_tensor(b->chunks, "t", 1, &type, &b->err), 0);
    for (size_t t = 0; t < world->n; t++)
        for (uint64_t times = 1 + pick(2); t != skip && times-- > 0;)
            assert_int_equal(
                rfs_chunks_add_chunk(b->chunks, world->tiles[t].at, world->tiles[t].size, &b->err),
                0);
    rc = rfs_chunks_sort(b->chunks, &b->err);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(b->chunks, "t", 1);
    const uint32_t file = rfs_chunks_add_file(b->chunks, "a/file", 6, &b->err);
    assert_int_equal(file, 1);
    for (size_t t = 0; rc == 0 && t < world->n; t++)
        if (t != skip)
            assert_int_equal(
                rfs_chunks_store(b->chunks, tensor, world->tiles[t].at, file, t, 1, &b->err), 0);
    return rc ? rc : rfs_chunks_finish(b->chunks, &b->err);
}

/* The chunks of a random box are the owners of its elements, each once, with their corners. */
static void check_box(const struct chunks *b, const struct world *world)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(b->chunks, "t", 1);
    struct rfs_chunks_walk walk;
    struct tile wanted = {0};
    unsigned char expected[TILES] = {0};
    uint64_t at[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];
    struct rfs_chunk_box part;

    for (uint32_t i = 0; i < world->type.ndim; i++) {
        wanted.at[i] = pick(world->type.dims[i]);
        wanted.size[i] = 1 + pick(world->type.dims[i] - wanted.at[i]);
        hi[i] = wanted.at[i] + wanted.size[i];
    }
    for (uint64_t e = 0; e < elements(&world->type); e++) {
        unravel(&world->type, e, at);
        if (inside(&wanted, world->type.ndim, at))
            expected[world->owner[e]] = 1;
    }
    rfs_chunks_walk_begin(b->chunks, tensor, wanted.at, hi, &walk);
    while (rfs_chunks_walk_next(&walk, &part)) {
        const struct rfs_chunk *found = &b->chunks->chunks.data[part.chunk];
        const struct tile *tile = &world->tiles[found->item];
        assert_int_equal(expected[found->item], 1);
        expected[found->item] = 0;
        assert_memory_equal(part.at, tile->at, world->type.ndim * sizeof *at);
        assert_memory_equal(part.size, tile->size, world->type.ndim * sizeof *at);
        assert_ptr_equal(rfs_chunks_tensor_of(b->chunks, part.chunk), tensor);
    }
    for (size_t t = 0; t < world->n; t++)
        assert_int_equal(expected[t], 0);
}

static void test_random_tilings(void **state)
{
    (void)state;
    static struct world world;

    for (unsigned round = 0; round < 300; round++) {
        struct chunks b;
        open_boxes(&b);
        make_world(&world);
        const int rc = declare(&b, &world, SIZE_MAX);
        if (rc == -ENOTSUP) /* too irregular: many more cells than chunks */
            assert_non_null(strstr(b.err.text, "do not form a grid"));
        else
            assert_int_equal(rc, 0);
        for (unsigned k = 0; rc == 0 && k < 20; k++)
            check_box(&b, &world);
        close_boxes(&b);
    }
}

static void test_gaps_are_refused(void **state)
{
    (void)state;
    static struct world world;

    for (unsigned round = 0; round < 100; round++) {
        struct chunks b;
        open_boxes(&b);
        make_world(&world);
        const int rc = declare(&b, &world, pick(world.n));
        assert_true(rc == -EINVAL || rc == -ENOTSUP);
        assert_true(rc == -ENOTSUP || strstr(b.err.text, "has no chunk for"));
        close_boxes(&b);
    }
}

static void declare_rows(struct chunks *b)
{
    open_boxes(b);
    assert_int_equal(rfs_chunks_add_tensor(
                         b->chunks, "w", 1,
                         &(struct rfs_type){.dtype = RFS_INT8, .ndim = 2, .dims = {8, 4}}, &b->err),
                     0);
}

static void add(struct chunks *b, uint64_t row, uint64_t rows)
{
    assert_int_equal(rfs_chunks_add_chunk(b->chunks, (const uint64_t[]){row, 0},
                                          (const uint64_t[]){rows, 4}, &b->err),
                     0);
}

static void store(struct chunks *b, uint64_t row, int expected)
{
    assert_int_equal(rfs_chunks_store(b->chunks, rfs_chunks_find(b->chunks, "w", 1),
                                      (const uint64_t[]){row, 0}, 1, 0, 1, &b->err),
                     expected);
}

static void test_overlap(void **state)
{
    (void)state;
    struct chunks b;

    declare_rows(&b);
    add(&b, 0, 5);
    add(&b, 4, 4);
    assert_int_equal(rfs_chunks_sort(b.chunks, &b.err), 0);
    store(&b, 0, 0);
    store(&b, 4, 0);
    assert_int_equal(rfs_chunks_finish(b.chunks, &b.err), -EINVAL);
    assert_string_equal(b.err.text,
                        "/checkpoint/metadata: parameter 'w': two chunks of the metadata "
                        "overlap in [4:5, 0:4]");
    close_boxes(&b);

    declare_rows(&b);
    add(&b, 0, 5);
    add(&b, 0, 8);
    assert_int_equal(rfs_chunks_sort(b.chunks, &b.err), -EINVAL);
    close_boxes(&b);
}

static void test_stores(void **state)
{
    (void)state;
    struct chunks b;

    declare_rows(&b);
    add(&b, 0, 4);
    add(&b, 4, 4);
    add(&b, 8, 0); /* a rank that has none of it */
    assert_int_equal(rfs_chunks_sort(b.chunks, &b.err), 0);
    store(&b, 0, 0);
    store(&b, 0, -EINVAL);
    assert_non_null(strstr(b.err.text, "stores the chunk at [0, 0] twice"));
    store(&b, 2, -EINVAL);
    assert_non_null(strstr(b.err.text, "a chunk at [2, 0] that it does not describe"));
    store(&b, 8, 0);
    store(&b, 9, -EINVAL);
    assert_int_equal(rfs_chunks_finish(b.chunks, &b.err), -EINVAL);
    assert_non_null(strstr(b.err.text, "does not say where the chunk at [4, 0] is stored"));
    close_boxes(&b);
}

static unsigned checks;

/* Says that file 2, which is named "b", is damaged. */
static int check(struct rfs_chunks *chunks, uint32_t file, struct rfs_error *err)
{
    checks++;
    return file == 2 ? rfs_fail(err, -EINVAL, RFS_IN(rfs_files_path(chunks->files, file)), NULL,
                                "is damaged")
                     : 0;
}

static const struct rfs_chunks_format with_places = {.name = "test", .check = check};

/* Three copies of one chunk, and none of another; the places come with them. */
static void declare_copies(struct chunks *b, const struct rfs_chunks_format *of)
{
    static const uint64_t places[] = {70, 80};

    declare_rows(b);
    b->chunks->format = of;
    add(b, 0, 4);
    add(b, 4, 4);
    assert_int_equal(rfs_chunks_sort(b->chunks, &b->err), 0);
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(b->chunks, "w", 1);
    const uint32_t files[] = {rfs_chunks_add_copy_file(b->chunks, "b", 1, &b->err),
                              rfs_chunks_add_copy_file(b->chunks, "c", 1, &b->err)};
    for (uint64_t row = 0; row < 8; row += 4)
        assert_int_equal(rfs_chunks_store(b->chunks, tensor, (const uint64_t[]){row, 0},
                                          rfs_chunks_add_file(b->chunks, "a", 1, &b->err), row, 16,
                                          &b->err),
                         0);
    assert_int_equal(rfs_chunks_store_copies(b->chunks, tensor, (const uint64_t[]){4, 0}, files,
                                             places, 2, &b->err),
                     0);
    assert_int_equal(rfs_chunks_finish(b->chunks, &b->err), 0);
}

static void test_copies(void **state)
{
    (void)state;
    static const struct rfs_chunks_format unchecked = {.name = "test"};
    struct rfs_chunked_copy copy;
    struct chunks b;

    declare_copies(&b, &unchecked);
    assert_int_equal(b.chunks->n_files, 1); /* those with copies alone are behind them */
    assert_int_equal(b.chunks->n_all_files, 3);
    assert_int_equal(rfs_chunks_count_copies(b.chunks, 0), 0);
    assert_int_equal(rfs_chunks_count_copies(b.chunks, 1), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rfs_chunks_locate_copy(b.chunks, 1, i, &copy, &b.err), 0);
        assert_string_equal(rfs_files_path(b.files, copy.file),
                            i == 0 ? "/checkpoint/b" : "/checkpoint/c");
        assert_int_equal(copy.at, i == 0 ? 70 : 80);
        assert_int_equal(copy.type, b.chunks->chunks.data[1].type);
    }
    close_boxes(&b);
}

/* A file's checksums are compared once, before anything of it is located. */
static void test_checked(void **state)
{
    (void)state;
    struct rfs_chunked_copy copy;
    struct chunks b;

    checks = 0;
    declare_copies(&b, &with_places);
    assert_int_equal(rfs_chunks_set_checked(b.chunks), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(rfs_chunks_locate(b.chunks, 1, &b.err), 0);
        assert_int_equal(atomic_load(&b.chunks->chunks.data[1].at), 4);
        assert_int_equal(rfs_chunks_locate(b.chunks, 0, &b.err), 0);
        assert_int_equal(rfs_chunks_locate_copy(b.chunks, 1, 0, &copy, &b.err), -EINVAL);
        assert_string_equal(b.err.text, "/checkpoint/b: is damaged");
        assert_int_equal(rfs_chunks_locate_copy(b.chunks, 1, 1, &copy, &b.err), 0);
        assert_int_equal(checks, 3);
    }
    close_boxes(&b);
}

static void test_declarations(void **state)
{
    (void)state;
    struct chunks b;

    declare_rows(&b);
    assert_int_equal(
        rfs_chunks_add_chunk(b.chunks, (const uint64_t[]){6, 0}, (const uint64_t[]){4, 4}, &b.err),
        -EINVAL);
    assert_non_null(strstr(b.err.text, "the chunk [6:10, 0:4] lies outside of the tensor"));
    assert_int_equal(rfs_chunks_add_chunk(b.chunks, (const uint64_t[]){1, 0},
                                          (const uint64_t[]){UINT64_MAX, 4}, &b.err),
                     -EINVAL);
    assert_int_equal(
        rfs_chunks_add_tensor(b.chunks, "w", 1, &(struct rfs_type){.dtype = RFS_INT8}, &b.err),
        -EINVAL);
    struct rfs_type huge = {.dtype = RFS_INT64, .ndim = 2, .dims = {UINT64_C(1) << 40, 1 << 24}};
    assert_int_equal(rfs_chunks_add_tensor(b.chunks, "huge", 4, &huge, &b.err), -EINVAL);
    static const char *const bad[] = {"/etc/passwd", "..", "../x", "a/../../x", "a/..", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(rfs_chunks_add_file(b.chunks, bad[i], strlen(bad[i]), &b.err), RFS_NO_ID);
    assert_int_equal(rfs_chunks_add_file(b.chunks, "a\0b", 3, &b.err), RFS_NO_ID);
    assert_int_equal(rfs_chunks_add_file(b.chunks, "..a/b..", 7, &b.err), 1);
    assert_int_equal(rfs_chunks_add_file(b.chunks, "c", 1, &b.err), 2);
    assert_int_equal(rfs_chunks_add_file(b.chunks, "..a/b..", 7, &b.err), 1);
    assert_string_equal(rfs_files_path(b.files, 2), "/checkpoint/c");
    close_boxes(&b);
}

/* ---- flattened tensors ---- */

#define ELEMENTS 400

/* A tensor, in pieces, each cut into ranges; where each element of it is. */
struct flat {
    struct rfs_type whole, stored;
    uint64_t side[RFS_MAX_DIMS];
    uint64_t cuts[ELEMENTS + 1]; /* of each piece: the same */
    unsigned n_cuts;
    struct {
        uint64_t chunk, number; /* the first element of the range, in the stored tensor */
    } home[ELEMENTS];
};

static void make_flat(struct flat *flat)
{
    uint64_t piece = 1;

    *flat = (struct flat){.whole = {.dtype = RFS_INT16, .kind = RFS_TENSOR}};
    flat->whole.ndim = (uint8_t)(1 + pick(3));
    flat->stored = flat->whole;
    flat->stored.ndim++;
    for (uint32_t i = 0; i < flat->whole.ndim; i++) {
        flat->stored.dims[i] = 1 + pick(3);
        flat->side[i] = 1 + pick(flat->whole.ndim > 2 ? 2 : 5);
        flat->whole.dims[i] = flat->stored.dims[i] * flat->side[i];
        piece *= flat->side[i];
    }
    flat->stored.dims[flat->whole.ndim] = piece;
    flat->n_cuts = 1;
    for (uint64_t at = 1; at < piece; at++)
        if (pick(4) == 0)
            flat->cuts[flat->n_cuts++] = at;
    flat->cuts[flat->n_cuts] = piece;
}

/* Finds where each element is stored, one after the other. */
static void place_flat(struct flat *flat)
{
    uint64_t at[RFS_MAX_DIMS];

    for (uint64_t e = 0; e < elements(&flat->whole); e++) {
        uint64_t piece = 0;
        uint64_t number = 0;
        unsigned c = 0;
        unravel(&flat->whole, e, at);
        for (uint32_t i = 0; i < flat->whole.ndim; i++) {
            piece = piece * flat->stored.dims[i] + at[i] / flat->side[i];
            number = number * flat->side[i] + at[i] % flat->side[i];
        }
        while (flat->cuts[c + 1] <= number)
            c++;
        flat->home[e].chunk = piece * flat->stored.dims[flat->whole.ndim] + flat->cuts[c];
        flat->home[e].number = number - flat->cuts[c];
    }
}

static int declare_flat(struct chunks *b, struct flat *flat, const uint64_t *dims)
{
    const uint32_t file = rfs_chunks_add_file(b->chunks, "f", 1, &b->err);
    uint64_t corner[RFS_MAX_DIMS];
    uint64_t size[RFS_MAX_DIMS];
    const uint64_t row = flat->stored.dims[flat->whole.ndim];

    assert_int_equal(rfs_chunks_add_tensor(b->chunks, "t", 1, &flat->stored, &b->err), 0);
    for (int storing = 0; storing < 2; storing++) {
        const struct rfs_chunked_tensor *tensor = rfs_chunks_find(b->chunks, "t", 1);
        for (uint64_t first = 0; first < elements(&flat->stored); first += row)
            for (unsigned c = 0; c < flat->n_cuts; c++) {
                unravel(&flat->stored, first + flat->cuts[c], corner);
                for (uint32_t i = 0; i < flat->whole.ndim; i++)
                    size[i] = 1;
                size[flat->whole.ndim] = flat->cuts[c + 1] - flat->cuts[c];
                assert_int_equal(storing ? rfs_chunks_store(b->chunks, tensor, corner, file,
                                                            first + flat->cuts[c], 1, &b->err)
                                         : rfs_chunks_add_chunk(b->chunks, corner, size, &b->err),
                                 0);
            }
        if (!storing)
            assert_int_equal(rfs_chunks_sort(b->chunks, &b->err), 0);
    }
    assert_int_equal(rfs_chunks_finish(b->chunks, &b->err), 0);
    return rfs_chunks_unflatten(b->chunks, "t", 1, flat->whole.ndim, dims, &b->err);
}

/* Counts how often each element of a part is seen, and compares where it is. */
static void check_part(const struct chunks *b, const struct flat *flat,
                       const struct rfs_chunk_box *part, unsigned char *seen)
{
    struct rfs_type box = {.ndim = flat->whole.ndim};
    uint64_t at[RFS_MAX_DIMS];

    memcpy(box.dims, part->size, sizeof box.dims);
    for (uint64_t k = 0; k < elements(&box); k++) {
        uint64_t number = part->first;
        uint64_t e = 0;
        unravel(&box, k, at);
        for (uint32_t i = 0; i < box.ndim; i++) {
            number += at[i] * part->step[i];
            e = e * flat->whole.dims[i] + part->at[i] + at[i];
        }
        assert_true(e < elements(&flat->whole));
        assert_int_equal(b->chunks->chunks.data[part->chunk].item, flat->home[e].chunk);
        assert_int_equal(number, flat->home[e].number);
        assert_int_equal(seen[e], 0);
        seen[e] = 1;
    }
}

static void check_flat_box(const struct chunks *b, const struct flat *flat)
{
    unsigned char seen[ELEMENTS] = {0};
    uint64_t lo[RFS_MAX_DIMS];
    uint64_t hi[RFS_MAX_DIMS];
    uint64_t at[RFS_MAX_DIMS];
    struct rfs_chunks_walk walk;
    struct rfs_chunk_box part;

    for (uint32_t i = 0; i < flat->whole.ndim; i++) {
        lo[i] = pick(flat->whole.dims[i]);
        hi[i] = lo[i] + 1 + pick(flat->whole.dims[i] - lo[i]);
    }
    rfs_chunks_walk_begin(b->chunks, rfs_chunks_find(b->chunks, "t", 1), lo, hi, &walk);
    while (rfs_chunks_walk_next(&walk, &part)) {
        for (uint32_t i = 0; i < flat->whole.ndim; i++)
            assert_true(part.at[i] < hi[i] && part.at[i] + part.size[i] > lo[i]);
        check_part(b, flat, &part, seen);
    }
    for (uint64_t e = 0; e < elements(&flat->whole); e++) {
        bool within = true;
        unravel(&flat->whole, e, at);
        for (uint32_t i = 0; i < flat->whole.ndim; i++)
            within &= at[i] >= lo[i] && at[i] < hi[i];
        assert_true(seen[e] || !within);
    }
}

static void test_flattened(void **state)
{
    (void)state;
    static struct flat flat;

    for (unsigned round = 0; round < 300; round++) {
        struct chunks b;
        open_boxes(&b);
        make_flat(&flat);
        place_flat(&flat);
        if (declare_flat(&b, &flat, flat.whole.dims))
            fail_msg("%s", b.err.text);
        const struct rfs_chunked_tensor *tensor = rfs_chunks_find(b.chunks, "t", 1);
        assert_memory_equal(rfs_chunks_type(b.chunks, tensor->type)->dims, flat.whole.dims,
                            sizeof flat.whole.dims);
        for (unsigned k = 0; k < 20; k++)
            check_flat_box(&b, &flat);
        close_boxes(&b);
    }
}

static void test_shapes_of_flattened(void **state)
{
    (void)state;
    static struct flat flat;
    struct chunks b;

    flat = (struct flat){
        .whole = {.ndim = 2, .dtype = RFS_INT16, .kind = RFS_TENSOR},
        .stored = {.ndim = 3, .dims = {1, 2, 24}, .dtype = RFS_INT16, .kind = RFS_TENSOR},
        .cuts = {0, 5, 24},
        .n_cuts = 2};
    static const uint64_t wrong[][2] = {{6, 9}, {16, 3}, {0, 8}, {3, 8}, {UINT64_MAX, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_boxes(&b);
        assert_int_equal(declare_flat(&b, &flat, wrong[i]), -EINVAL);
        assert_non_null(strstr(b.err.text, "parameter 't': it is stored as [1, 2, 24], which is"));
        close_boxes(&b);
    }
    open_boxes(&b);
    assert_int_equal(declare_flat(&b, &flat, (const uint64_t[]){6, 8}), 0);
    assert_int_equal(rfs_chunks_unflatten(b.chunks, "t", 1, 2, (const uint64_t[]){6, 8}, &b.err),
                     -EINVAL);
    assert_non_null(strstr(b.err.text, "gives it two shapes"));
    assert_int_equal(rfs_chunks_unflatten(b.chunks, "u", 1, 2, (const uint64_t[]){6, 8}, &b.err),
                     -EINVAL);
    assert_non_null(strstr(b.err.text, "a tensor that it does not describe"));
    close_boxes(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tilings),
        cmocka_unit_test(test_gaps_are_refused),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_stores),
        cmocka_unit_test(test_declarations),
        cmocka_unit_test(test_flattened),
        cmocka_unit_test(test_shapes_of_flattened),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_checked),
    };
    const char *given = getenv("RFS_SEED");

    seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("seed %u\n", seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
