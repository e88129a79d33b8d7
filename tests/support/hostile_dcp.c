/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/dcp_file.h"
#include "tests/support/hostile.h"

#define FLOATS (dcp_package ? "torch.float32" : "float32")

/* Opcodes of two values that the memo has, over and over. */
static void repeat(struct bytes *out, const char *ops, size_t n_ops, size_t end)
{
    while (out->n < end)
        bytes_add(out, ops, n_ops);
}
#define REPEAT(out, ops, end) repeat(out, ops, sizeof(ops) - 1, end)

/* Six letters. */
static const char *name_of(size_t i)
{
    static char name[7];

    for (unsigned k = 0; k < 6; k++)
        name[k] = (char)('a' + (i >> 4 * k & 15));
    return name;
}

/* The place of the chunk at 0 in "a", as often as there is room: MEMO is how much it has so far. */
static void places_of_one(struct bytes *out, char memo, size_t n)
{
    const char again[] = {'h', memo, 'h', (char)(memo + 1)};

    dcp_storage(out);
    dcp_object(out, "MetadataIndex");
    dcp_text(out, "fqn");
    dcp_text(out, "a");
    dcp_text(out, "offset");
    dcp_shape(out, 1, (const int64_t[]){0});
    dcp_ops(out, DCP_BUILD "\x94");
    dcp_object(out, "_StorageInfo");
    dcp_text(out, "relative_path");
    dcp_text(out, "a");
    dcp_text(out, "offset");
    dcp_int(out, 0);
    dcp_text(out, "length");
    dcp_int(out, 1000);
    dcp_ops(out, DCP_BUILD "\x94");
    repeat(out, again, sizeof again, n);
    dcp_end(out, NULL);
}

/* One tensor of many chunks by many names. */
static void names_of_one(struct bytes *out, size_t n)
{
    dcp_begin(out);
    dcp_tensor(out, "a", FLOATS, 1, (const int64_t[]){1 << 30});
    for (int64_t i = 0; out->n < n / 4; i++)
        dcp_chunk(out, 1, &i, (const int64_t[]){1});
    dcp_tensor_end(out);
    dcp_ops(out, "\x94");
    for (size_t i = 0; out->n < n / 2; i++) {
        dcp_text(out, name_of(i));
        DCP_BYTES(out, "h\0");
    }
    places_of_one(out, 1, n);
}

/* One chunk, over and over. */
static void chunks_of_one(struct bytes *out, size_t n)
{
    const int64_t zero = 0;

    dcp_begin(out);
    dcp_tensor(out, "a", FLOATS, 1, (const int64_t[]){1 << 30});
    dcp_chunk(out, 1, &zero, (const int64_t[]){1});
    dcp_ops(out, "\x94");
    REPEAT(out, "h\0", n / 3);
    dcp_tensor_end(out);
    places_of_one(out, 1, n);
}

/* Chunks of two elements that each overlap the next. */
static void chunks_that_overlap(struct bytes *out, size_t n)
{
    int64_t i;

    dcp_begin(out);
    dcp_tensor(out, "a", FLOATS, 1, (const int64_t[]){1 << 30});
    for (i = 0; out->n < n / 3; i++)
        dcp_chunk(out, 1, &i, (const int64_t[]){2});
    dcp_tensor_end(out);
    dcp_storage(out);
    while (i-- > 0)
        dcp_place(out, "a", 1, &i, "a", 0, 1000);
    dcp_end(out, NULL);
}

/* Tensors of sixteen axes, with a chunk each. */
static void small_tensors(struct bytes *out, size_t n)
{
    int64_t dims[16];
    const int64_t zero[16] = {0};
    size_t count = 0;

    for (unsigned i = 0; i < 16; i++)
        dims[i] = 1;
    dcp_begin(out);
    for (; out->n < n / 2; count++) {
        dcp_tensor(out, name_of(count), FLOATS, 16, dims);
        dcp_chunk(out, 16, zero, dims);
        dcp_tensor_end(out);
    }
    dcp_storage(out);
    for (size_t i = 0; i < count; i++)
        dcp_place(out, name_of(i), 16, zero, name_of(i), 0, 1000);
    dcp_end(out, NULL);
}

/* Names of one value that is not a tensor. */
static void names_of_objects(struct bytes *out, size_t n)
{
    size_t count = 0;

    dcp_begin(out);
    dcp_left_out(out, "a");
    dcp_ops(out, "\x94");
    for (; out->n < n / 6; count++) {
        dcp_text(out, name_of(count));
        DCP_BYTES(out, "h\0");
    }
    dcp_storage(out);
    dcp_place(out, "a", 0, NULL, "a", 0, 1000);
    for (size_t i = 0; i < count; i++)
        dcp_place(out, name_of(i), 0, NULL, "a", 0, 1000);
    dcp_end(out, NULL);
}

static void wrapped(struct bytes *out, const char *unit, size_t n_unit, size_t n)
{
    DCP_BYTES(out, "\x80\4](");
    repeat(out, unit, n_unit, n);
    dcp_ops(out, "e.");
}

static void empty_lists(struct bytes *out, size_t n)
{
    wrapped(out, "]", 1, n);
}

static void memo(struct bytes *out, size_t n)
{
    wrapped(out, "N\x94", 2, n);
}

static void marks(struct bytes *out, size_t n)
{
    wrapped(out, "(", 1, n);
}

const struct hostile hostile_dcp[] = {
    {.name = "dcp: one tensor by many names", .make = names_of_one},
    {.name = "dcp: one chunk, over and over", .make = chunks_of_one},
    {.name = "dcp: chunks that overlap", .make = chunks_that_overlap},
    {.name = "dcp: small tensors of many axes", .make = small_tensors},
    {.name = "dcp: names of one object", .make = names_of_objects},
    {.name = "dcp: empty lists", .make = empty_lists},
    {.name = "dcp: a long memo", .make = memo},
    {.name = "dcp: marks", .make = marks},
    {.name = NULL},
};

/* The same as HyperParallel's. */
static void of_hyper(void (*make)(struct bytes *out, size_t n), struct bytes *out, size_t n)
{
    dcp_package = "distributed_checkpoint";
    make(out, n);
    dcp_package = NULL;
}

static void hyper_names(struct bytes *out, size_t n)
{
    of_hyper(names_of_one, out, n);
}

static void hyper_chunks(struct bytes *out, size_t n)
{
    of_hyper(chunks_of_one, out, n);
}

static void hyper_overlaps(struct bytes *out, size_t n)
{
    of_hyper(chunks_that_overlap, out, n);
}

static void hyper_tensors(struct bytes *out, size_t n)
{
    of_hyper(small_tensors, out, n);
}

static void hyper_objects(struct bytes *out, size_t n)
{
    of_hyper(names_of_objects, out, n);
}

/* One chunk in many files. */
static void hyper_copies(struct bytes *out, size_t n)
{
    const int64_t zero = 0;

    dcp_package = "distributed_checkpoint";
    dcp_begin(out);
    dcp_tensor(out, "a", FLOATS, 1, (const int64_t[]){1});
    dcp_chunk(out, 1, &zero, (const int64_t[]){1});
    dcp_tensor_end(out);
    dcp_storage(out);
    for (size_t i = 0; out->n < n; i++)
        dcp_place_key(out, "a", 1, &zero, name_of(i), name_of(i / 3));
    dcp_end(out, NULL);
    dcp_package = NULL;
}

const struct hostile hostile_hyper[] = {
    {.name = "hyper: one tensor by many names", .make = hyper_names},
    {.name = "hyper: one chunk, over and over", .make = hyper_chunks},
    {.name = "hyper: chunks that overlap", .make = hyper_overlaps},
    {.name = "hyper: small tensors of many axes", .make = hyper_tensors},
    {.name = "hyper: names of one object", .make = hyper_objects},
    {.name = "hyper: one chunk in many files", .make = hyper_copies},
    {.name = NULL},
};
