/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .metadata of distributed checkpoints: those that four versions of torch wrote, against what torch
 * finds in them (tests/fixtures/make_dcp.py), and wrong ones by hand.
 */
#include "formats/dcp/dcp.h"
#include "tests/support/dcp_file.h"
#include "tests/support/torch_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
    struct rfs_files *files;
    struct rfs_tables tables;
    struct rfs_chunks *chunks;
};

static const struct rfs_chunks_format format = {.name = "test"};

static int read_bytes(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *bytes = ctx;
    assert_true(offset <= bytes->n && n <= bytes->n - offset);
    memcpy(buf, bytes->data + offset, n);
    return 0;
}

static int describe_part(struct bytes *bytes, const char *entry, struct world *world,
                         struct rfs_error *err)
{
    *world = (struct world){.files = rfs_files_new(NULL),
                            .tables = {rfs_intern_new(), rfs_intern_new()}};
    assert_int_equal(rfs_files_add(world->files, "/c/.metadata"), 0);
    world->chunks = rfs_chunks_new(&format, &(struct rfs_chunks_source){.folder = "/c",
                                                                        .files = world->files,
                                                                        .tables = &world->tables,
                                                                        .entry = entry});
    assert_non_null(world->chunks);
    return rfs_dcp_describe(RFS_BYTES_SOURCE(read_bytes, bytes, bytes->n, "/c/.metadata"),
                            world->chunks, err);
}

static int describe(struct bytes *bytes, struct world *world, struct rfs_error *err)
{
    return describe_part(bytes, NULL, world, err);
}

static void end(struct world *world)
{
    rfs_chunks_free(world->chunks);
    rfs_files_free(world->files);
    rfs_intern_free(world->tables.names);
    rfs_intern_free(world->tables.types);
}

/* ---- what torch wrote ---- */

static FILE *fixture(const char *name)
{
    char path[4096];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof path, "%s/tests/fixtures/dcp/%s", top ? top : ".", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    return file;
}

static void load(const char *name, struct bytes *bytes)
{
    unsigned char part[4096];
    FILE *file = fixture(name);
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;)
        bytes_add(bytes, part, n);
    fclose(file);
}

/* "2,3", or "-" for none. */
static uint32_t numbers(const char *text, uint64_t *out)
{
    uint32_t n = 0;
    for (const char *at = strcmp(text, "-") == 0 ? NULL : text; at; n++) {
        out[n] = strtoull(at, NULL, 10);
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return n;
}

static const char *torch_name(enum rfs_dtype dtype)
{
    return dtype == RFS_BFLOAT16  ? "bfloat16"
           : dtype == RFS_FLOAT32 ? "float32"
           : dtype == RFS_INT64   ? "int64"
           : dtype == RFS_UINT8   ? "uint8"
                                  : "other";
}

/* name, dtype, full shape, offset, sizes, path, item, bytes */
static void check_chunk(const struct world *world, char **field)
{
    struct rfs_chunks *chunks = world->chunks;
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(chunks, field[0], strlen(field[0]));
    assert_non_null(tensor);
    const struct rfs_type *whole = rfs_chunks_type(chunks, tensor->type);
    uint64_t want[RFS_MAX_DIMS];
    uint64_t at[RFS_MAX_DIMS];
    assert_string_equal(torch_name((enum rfs_dtype)whole->dtype), field[1]);
    assert_int_equal(numbers(field[2], want), whole->ndim);
    if (whole->ndim > 0)
        assert_memory_equal(want, whole->dims, whole->ndim * sizeof *want);
    if (whole->bytes == 0) {
        assert_int_equal(tensor->n, 0);
        return;
    }
    assert_int_equal(numbers(field[3], want), whole->ndim);
    for (uint32_t c = tensor->first; c < tensor->first + tensor->n; c++) {
        const struct rfs_chunk *chunk = &chunks->chunks.data[c];
        rfs_chunks_corner(chunks, tensor, c, at);
        if (whole->ndim > 0 && memcmp(at, want, whole->ndim * sizeof *want) != 0)
            continue;
        const struct rfs_type *type = rfs_chunks_type(chunks, chunk->type);
        assert_int_equal(numbers(field[4], want), type->ndim);
        if (type->ndim > 0)
            assert_memory_equal(want, type->dims, type->ndim * sizeof *want);
        assert_string_equal(rfs_files_path(world->files, chunk->file) + strlen("/c/"), field[5]);
        assert_int_equal(chunk->item, strtoull(field[6], NULL, 10));
        assert_int_equal(chunk->item_bytes, strtoull(field[7], NULL, 10));
        return;
    }
    fail_msg("%s has no chunk at %s", field[0], field[3]);
}

static void test_fixture(const char *version)
{
    char name[80];
    char line[1024];
    struct bytes bytes = {0};
    struct world world;
    struct rfs_error err = {0};
    size_t chunks = 0;
    size_t objects = 0;
    snprintf(name, sizeof name, "torch-%s.metadata", version);
    load(name, &bytes);
    if (describe(&bytes, &world, &err))
        fail_msg("%s", err.text);
    FILE *expected = fixture("expected.tsv");
    while (fgets(line, sizeof line, expected)) {
        char *field[9] = {0};
        char *rest = line;
        for (int i = 0; i < 9 && (field[i] = strsep(&rest, "\t\n")); i++)
            ;
        if (strcmp(field[0], name) != 0)
            continue;
        if (strcmp(field[2], "object") == 0)
            objects++;
        else
            check_chunk(&world, field + 1);
        chunks += strcmp(field[2], "object") != 0 && strcmp(field[3], "0,4") != 0;
    }
    fclose(expected);
    assert_int_equal(world.chunks->chunks.n, chunks);
    assert_int_equal(world.chunks->objects.n, objects);
    assert_int_equal(world.chunks->tensors.n, 5);
    assert_true(chunks > 5);
    end(&world);
    /* Whatever is cut off is missed. */
    for (size_t n = bytes.n; n-- > 0;) {
        struct bytes part = {.data = bytes.data, .n = n};
        assert_int_equal(describe(&part, &world, &err), -EINVAL);
        assert_non_null(strstr(err.text, "damaged: it has no end"));
        end(&world);
    }
    bytes_free(&bytes);
}

static void test_fixtures(void **state)
{
    (void)state;
    test_fixture("2.1.2");
    test_fixture("2.3.1");
    test_fixture("2.9.1");
    test_fixture("2.15.0");
}

/* ---- by hand ---- */

static const int64_t zero[RFS_MAX_DIMS + 1];
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* A tensor "w" of float32 [4, 2] in two chunks of two rows. */
static void put_chunks(struct bytes *out)
{
    dcp_begin(out);
    dcp_tensor(out, "w", "float32", 2, DIMS(4, 2));
    dcp_chunk(out, 2, zero, DIMS(2, 2));
    dcp_chunk(out, 2, DIMS(2, 0), DIMS(2, 2));
    dcp_tensor_end(out);
}

static void put_first(struct bytes *out)
{
    put_chunks(out);
    dcp_storage(out);
    dcp_place(out, "w", 2, zero, "a", 0, 1000);
}

static struct bytes whole(const char *path, int64_t at, int64_t bytes, const char *version)
{
    struct bytes out = {0};
    put_first(&out);
    dcp_place(&out, "w", 2, DIMS(2, 0), path, at, bytes);
    dcp_end(&out, version);
    return out;
}

static void accepted(struct bytes bytes)
{
    struct world world;
    struct rfs_error err = {0};
    if (describe(&bytes, &world, &err))
        fail_msg("%s", err.text);
    assert_int_equal(world.chunks->chunks.n, 2);
    end(&world);
    bytes_free(&bytes);
}

static void refused(struct bytes bytes, int code, const char *part)
{
    struct world world;
    struct rfs_error err = {0};
    const int rc = describe(&bytes, &world, &err);
    if (rc != code || !strstr(err.text, part) || strncmp(err.text, "/c/.metadata: ", 14) != 0)
        fail_msg("%d instead of %d, no '%s' in: %s", rc, code, part, err.text);
    end(&world);
    describe(&bytes, &world, NULL);
    end(&world);
    bytes_free(&bytes);
}

static void test_places(void **state)
{
    (void)state;
    accepted(whole("b", 500, 700, NULL));
    accepted(whole("sub/b..c", INT64_MAX - 5, 5, "1.0.0"));
    refused(whole("../b", 0, 1, NULL), -EINVAL, "'../b' is not in the folder");
    refused(whole("b/../../c", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("/etc/passwd", 0, 1, NULL), -EINVAL, "'/etc/passwd' is not in the folder");
    refused(whole("", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("b/..", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("//host/b", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("s3://bucket/b", 0, 1, NULL), -EINVAL, "'s3://bucket/b' is not in the folder");
    refused(whole("hf://acme/net/b", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("http://host/b", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("https://host/b", 0, 1, NULL), -EINVAL, "is not in the folder");
    refused(whole("b", -1, 1, NULL), -EINVAL, "stored without a file, an offset or a length");
    refused(whole("b", 0, -1, NULL), -EINVAL, "stored without a file, an offset or a length");
    refused(whole("b", INT64_MAX, 1, NULL), -EINVAL, "stored without a file, an offset");
    refused(whole("b", 0, 1, "2.0.0"), -ENOTSUP, "is of version 2.0.0; version 1 is read");
    refused(whole("b", 0, 1, "10.0"), -ENOTSUP, "is of version 10.0;");
}

static void test_missing(void **state)
{
    (void)state;
    struct bytes b = {0};
    put_first(&b);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "parameter 'w': the metadata does not say where the chunk at [");
    b = (struct bytes){0};
    put_first(&b);
    dcp_place(&b, "w", 2, zero, "a", 0, 1000);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "stores the chunk at [0, 0] twice");
    b = (struct bytes){0};
    put_first(&b);
    dcp_place(&b, "w", 2, DIMS(1, 0), "a", 0, 1000);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "stores a chunk at [1, 0] that it does not describe");
    b = (struct bytes){0};
    put_first(&b);
    dcp_place(&b, "w", 1, DIMS(2), "a", 0, 1000);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "it stores a chunk of a tensor that it does not describe");
    b = (struct bytes){0};
    put_first(&b);
    dcp_place(&b, "v", 2, DIMS(2, 0), "a", 0, 1000);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "parameter 'v': the metadata is damaged: it stores a chunk of a tensor");
    b = (struct bytes){0};
    put_first(&b);
    dcp_place(&b, "w", 2, NULL, "a", 0, 1000);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "it stores a chunk without an offset");
}

/* One chunk of a tensor [4, 2] and one that is given. */
static struct bytes two_chunks(const int64_t *offset, const int64_t *size)
{
    struct bytes out = {0};
    dcp_begin(&out);
    dcp_tensor(&out, "w", "float32", 2, DIMS(4, 2));
    dcp_chunk(&out, 2, zero, DIMS(2, 2));
    dcp_chunk(&out, 2, offset, size);
    dcp_tensor_end(&out);
    dcp_storage(&out);
    dcp_place(&out, "w", 2, zero, "a", 0, 1000);
    dcp_place(&out, "w", 2, offset, "a", 1000, 1000);
    dcp_end(&out, NULL);
    return out;
}

static void test_boxes(void **state)
{
    (void)state;
    accepted(two_chunks(DIMS(2, 0), DIMS(2, 2)));
    refused(two_chunks(DIMS(1, 0), DIMS(3, 2)), -EINVAL, "overlap in [1:2, 0:2]");
    refused(two_chunks(DIMS(3, 0), DIMS(1, 2)), -EINVAL, "no chunk for [2:3, 0:2]");
    refused(two_chunks(DIMS(2, 0), DIMS(3, 2)), -EINVAL, "outside of the tensor");
    refused(two_chunks(DIMS(2, 0), DIMS(INT64_MAX, 2)), -EINVAL, "outside of the tensor");
    refused(two_chunks(DIMS(2, -1), DIMS(2, 2)), -EINVAL, "a chunk without offsets and sizes");
}

/* ---- a part of the state dict ---- */

/* A name with its path, and whether it is a tensor. */
struct named {
    const char *name;
    bool object;
    unsigned n;
    const char *keys[4];
};

/* Metadata of these names, a tensor of one chunk or an object each. */
static struct bytes metadata_of(const struct named *named, size_t n, bool paths)
{
    struct bytes out = {0};

    dcp_begin(&out);
    for (size_t i = 0; i < n; i++) {
        if (named[i].object) {
            dcp_left_out(&out, named[i].name);
            continue;
        }
        dcp_tensor(&out, named[i].name, "float32", 1, DIMS(2));
        dcp_chunk(&out, 1, zero, DIMS(2));
        dcp_tensor_end(&out);
    }
    dcp_storage(&out);
    for (size_t i = 0; i < n; i++)
        dcp_place(&out, named[i].name, 1, named[i].object ? NULL : zero, "a", 1000 * (int64_t)i,
                  1000);
    if (paths)
        dcp_paths(&out);
    for (size_t i = 0; paths && i < n; i++)
        if (named[i].n > 0)
            dcp_path(&out, named[i].name, named[i].n, named[i].keys);
    dcp_end(&out, "1.0.0");
    return out;
}

/* The names that an entry has: "tensor … | object …". */
static void has_part(const struct named *named, size_t n, bool paths, const char *entry,
                     const char *want)
{
    struct bytes bytes = metadata_of(named, n, paths);
    struct rfs_error err = {0};
    struct world world;
    char have[400] = "";

    if (describe_part(&bytes, entry, &world, &err))
        fail_msg("%s: %s", entry, err.text);
    for (size_t i = 0; i < world.chunks->tensors.n; i++) {
        strcat(have, rfs_intern_text(world.tables.names, world.chunks->tensors.data[i].name));
        strcat(have, " ");
    }
    for (size_t i = 0; i < world.chunks->objects.n; i++) {
        strcat(have, i == 0 ? "| " : "");
        strcat(have, rfs_intern_text(world.tables.names, world.chunks->objects.data[i].name));
        strcat(have, " ");
    }
    assert_string_equal(have, want);
    end(&world);
    bytes_free(&bytes);
}

static void has_no_part(const struct named *named, size_t n, bool paths, const char *entry,
                        const char *part)
{
    struct bytes bytes = metadata_of(named, n, paths);
    struct rfs_error err = {0};
    struct world world;

    assert_int_equal(describe_part(&bytes, entry, &world, &err), -EINVAL);
    if (!strstr(err.text, part) || strncmp(err.text, "/c/.metadata: ", 14) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
    end(&world);
    bytes_free(&bytes);
}

static const struct named trainer[] = {
    {"model.embed.w", false, 2, {"model", "embed.w"}},
    {"model.layers.0.w", false, 4, {"model", "layers", "0", "w"}},
    {"model.ema.w", false, 2, {"model.ema", "w"}},
    {"model.tag", true, 2, {"model", "tag"}},
    {"model", true, 1, {"model"}},
    {"optim.state.embed.w.exp_avg", false, 4, {"optim", "state", "embed.w", "exp_avg"}},
    {"optim.groups.0.lr", true, 4, {"optim", "groups", "#0", "lr"}},
    {"a.b.w", false, 3, {"a", "b", "w"}},
    {"a.b.v", false, 2, {"a.b", "v"}},
    {"lone.w", false, 1, {"lone.w"}},
    {"step", true, 1, {"step"}},
};
#define TRAINER trainer, sizeof trainer / sizeof *trainer

static const struct named nested[] = {
    {"app.model.w", false, 3, {"app", "model", "w"}},
    {"app.optim.state.w", false, 4, {"app", "optim", "state", "w"}},
    {"app.step", true, 2, {"app", "step"}},
    {"app.model.w", false, 2, {"app", "model.w"}},
    {"app.model.v.w", false, 3, {"app", "model.v", "w"}},
};

/* entry= is a dict by the paths of the metadata, not by the dots of names. */
static void test_part(void **state)
{
    (void)state;
    has_part(TRAINER, true, "model", "embed.w layers.0.w | tag ");
    has_part(TRAINER, true, "model.ema", "w ");
    has_part(TRAINER, true, "model.layers", "0.w ");
    has_part(TRAINER, true, "model.layers.0", "w ");
    has_part(TRAINER, true, "optim", "state.embed.w.exp_avg | groups.0.lr ");
    has_part(TRAINER, true, "optim.state.embed.w", "exp_avg ");
    has_part(TRAINER, true, "a.b", "v "); /* a key with dots is found as a whole */
    has_part(TRAINER, true, "a", "b.w ");
    has_part(TRAINER, true, "",
             "model.embed.w model.layers.0.w model.ema.w "
             "optim.state.embed.w.exp_avg a.b.w a.b.v lone.w "
             "| model.tag model optim.groups.0.lr step ");
    has_no_part(TRAINER, true, "mode",
                "it has nothing at entry=mode; try: the name of a dict in it: "
                "'model', 'model.ema', 'optim', 'a', 'a.b', 'lone'");
    has_no_part(TRAINER, true, "model.embed.w", "it has nothing at entry=model.embed.w");
    has_no_part(TRAINER, true, "step", "it has nothing at entry=step");
    has_no_part(TRAINER, true, "optim.groups", "the dict in it has no tensors");
    has_no_part(TRAINER, true, "optim.groups.0", "it has nothing at entry=optim.groups.0");
    has_no_part(trainer + 10, 1, true, "x", "it has nothing at entry=x, and no dict");
}

/* Without paths that lead there, names begin with the entry: flat, or within a dict. */
static void test_part_by_names(void **state)
{
    (void)state;
    has_part(TRAINER, true, "model.embed", "w ");
    has_part(nested + 3, 2, true, "app.model", "w "); /* "model.v" is another dict */
    has_no_part(nested + 3, 2, true, "app.mod", "it has nothing at entry=app.mod");
    has_no_part(nested + 3, 2, true, "ap.model", "it has nothing at entry=ap.model");
    has_part(TRAINER, true, "lone", "w ");
    has_part(TRAINER, false, "model", "embed.w layers.0.w ema.w | tag ");
    has_part(TRAINER, false, "a.b", "w v ");
    has_no_part(TRAINER, false, "mod", "the name of a dict in it: 'model', 'optim', 'a', 'lone'");
}

/*
 * The dicts at the top are told if all tensors are in one, and those in the only one; and what an
 * entry by names leaves out.
 */
static void test_dicts(void **state)
{
    (void)state;
    static const struct {
        const struct named *first;
        size_t n;
        bool paths;
        const char *entry, *want;
    } rows[] = {
        {trainer, 9, true, NULL, "model model.ema optim a a.b |"},
        {trainer, 10, true, NULL, "|"},
        {trainer, 9, false, NULL, "|"},
        {trainer, 9, true, "model", "|"},
        {trainer, 2, true, NULL, "model |"},
        {trainer + 1, 1, true, NULL, "model | model.layers"},
        {nested, 3, true, NULL, "app | app.model app.optim"},
        {nested, 3, true, "app", "|"},
        {trainer, 9, false, "model", "| -optim.state.embed.w.exp_avg -a.b.w"},
        {trainer, 11, true, "lone", "| -model.embed.w -optim.state.embed.w.exp_avg -a.b.w"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes bytes = metadata_of(rows[i].first, rows[i].n, rows[i].paths);
        struct rfs_error err = {0};
        struct world world;
        char have[200] = "";
        if (describe_part(&bytes, rows[i].entry, &world, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < world.chunks->dicts.n; k++) {
            strcat(have, world.chunks->dicts.data[k]);
            strcat(have, " ");
        }
        strcat(have, "|");
        for (size_t k = 0; k < world.chunks->dicts_in_one.n; k++) {
            strcat(have, " ");
            strcat(have, world.chunks->dicts_in_one.data[k]);
        }
        for (size_t k = 0; k < world.chunks->beside.n; k++) {
            strcat(have, " -");
            strcat(have, world.chunks->beside.data[k]);
        }
        assert_string_equal(have, rows[i].want);
        end(&world);
        bytes_free(&bytes);
    }
}

/* One tensor that is not read, and nothing else. */
static void unread(struct bytes bytes, const char *why)
{
    struct world world;
    struct rfs_error err = {0};
    if (describe(&bytes, &world, &err))
        fail_msg("%s", err.text);
    assert_int_equal(world.chunks->tensors.n, 0);
    assert_int_equal(world.chunks->unread.n, 1);
    assert_string_equal(rfs_intern_text(world.tables.names, world.chunks->unread.data[0].why), why);
    assert_null(rfs_chunks_find(world.chunks, "w", 1));
    end(&world);
    bytes_free(&bytes);
}

/* A tensor of a shape, with one chunk that is all of it. */
static struct bytes one(const char *name, const char *dtype, unsigned ndim, const int64_t *dims,
                        unsigned times)
{
    struct bytes out = {0};
    dcp_begin(&out);
    for (unsigned i = 0; i < times; i++) {
        dcp_tensor(&out, name, dtype, ndim, dims);
        dcp_chunk(&out, ndim, zero, dims);
        dcp_tensor_end(&out);
    }
    dcp_storage(&out);
    for (unsigned i = 0; i < times; i++)
        dcp_place(&out, name, ndim, zero, "a", 0, 1000);
    dcp_end(&out, NULL);
    return out;
}

static void test_tensors(void **state)
{
    (void)state;
    int64_t many[RFS_MAX_DIMS + 1];
    for (size_t i = 0; i <= RFS_MAX_DIMS; i++)
        many[i] = 1;
    refused(one("w", "float32", RFS_MAX_DIMS + 1, many, 1), -EINVAL, "without a size or chunks");
    refused(one("w", "float32", 2, DIMS(INT64_MAX, 9), 1), -EINVAL, "more than 2^63 bytes");
    refused(one("w", "float32", 1, DIMS(2), 2), -EINVAL, "the metadata describes it twice");
    refused(one("", "float32", 1, DIMS(2), 1), -EINVAL, "a name that is not UTF-8 text");
    unread(one("w", "float8_e4m3fnuz", 1, DIMS(2), 1), "its elements are torch.float8_e4m3fnuz");
    unread(one("w", "qint8", 1, DIMS(2), 1), "its elements are torch.qint8");
    unread(one("w", "int4", 1, DIMS(2), 1), "its elements are torch.int4");
    refused(one("w", "qint8", 1, DIMS(2), 2), -EINVAL, "describes it twice");
    refused(one("w", "Size", 1, DIMS(2), 1), -EINVAL, "a tensor without a dtype or a layout");
}

/* The metadata of one tensor, with bytes of it replaced by as many others. */
static struct bytes changed(const char *from, const char *to)
{
    struct bytes out = one("w", "float32", 1, DIMS(2), 1);
    unsigned char *at = memmem(out.data, out.n, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    return out;
}

static void test_fields(void **state)
{
    (void)state;
    unread(changed("torch.strided", "torch.sparse_"), "its layout is not torch.strided");
    refused(changed("storage_data", "storage_date"), -EINVAL, "it has no storage_data");
    refused(changed("state_dict_metadata", "state_dict_metadate"), -EINVAL,
            "it has no state_dict_metadata");
    refused(changed("chunks", "chunkz"), -EINVAL, "a tensor without a size or chunks");
    refused(changed("properties", "propertiez"), -EINVAL, "a tensor without a dtype");
    refused(changed("offsets", "offzets"), -EINVAL, "a chunk without offsets and sizes");
    refused(changed("fqn", "fqm"), -EINVAL, "something else than places");
    refused(changed("relative_path", "relative_pith"), -EINVAL, "without a file, an offset");
}

/* The state of a parameter, in two pieces, without the shape that it had. */
static void test_flattened(void **state)
{
    (void)state;
    static const char name[] = "optimizer.state.exp_avg.w";
    struct bytes out = {0};
    struct world world;
    struct rfs_error err = {0};
    dcp_begin(&out);
    dcp_tensor(&out, name, "float32", 3, DIMS(1, 2, 4));
    dcp_chunk(&out, 3, zero, DIMS(1, 1, 4));
    dcp_chunk(&out, 3, DIMS(0, 1, 0), DIMS(1, 1, 4));
    dcp_tensor_end(&out);
    dcp_tensor(&out, "w", "bfloat16", 2, DIMS(2, 4));
    dcp_chunk(&out, 2, zero, DIMS(2, 4));
    dcp_tensor_end(&out);
    dcp_storage(&out);
    dcp_place(&out, name, 3, zero, "a", 0, 1000);
    dcp_place(&out, name, 3, DIMS(0, 1, 0), "a", 1000, 1000);
    dcp_place(&out, "w", 2, zero, "a", 2000, 1000);
    dcp_end(&out, NULL);
    if (describe(&out, &world, &err))
        fail_msg("%s", err.text);
    assert_int_equal(world.chunks->tensors.n, 2);
    assert_int_equal(world.chunks->unread.n, 1);
    assert_string_equal(rfs_intern_text(world.tables.names, world.chunks->unread.data[0].name),
                        name);
    assert_non_null(strstr(rfs_intern_text(world.tables.names, world.chunks->unread.data[0].why),
                           "mcore_data"));
    end(&world);
    /* Without the parameter that it is the state of, too. */
    if (describe_part(&out, "optimizer", &world, &err))
        fail_msg("%s", err.text);
    assert_int_equal(world.chunks->tensors.n, 1);
    assert_int_equal(world.chunks->unread.n, 1);
    assert_string_equal(rfs_intern_text(world.tables.names, world.chunks->unread.data[0].name),
                        "state.exp_avg.w");
    end(&world);
    bytes_free(&out);
}

/* Both chunks, of which the first is compressed, and the second went through these. */
static struct bytes through(const char *path, int64_t bytes, unsigned n,
                            const char *const *extensions)
{
    static const char *const zstd[] = {"stream.zstd/1"};
    struct bytes b = {0};
    put_chunks(&b);
    dcp_storage(&b);
    dcp_place_through(&b, "w", 2, zero, "a", 700, 600, 1, zstd);
    dcp_place_through(&b, "w", 2, DIMS(2, 0), path, 100, bytes, n, extensions);
    dcp_end(&b, NULL);
    return b;
}

#define THROUGH(...)                                                                               \
    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), (const char *const[])             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Items that are compressed have places in plain bytes, each apart from the others. */
static void test_packed(void **state)
{
    (void)state;
    struct bytes b = through("a", 500, THROUGH("stream.zstd/1"));
    struct rfs_error err = {0};
    struct world world;
    if (describe(&b, &world, &err))
        fail_msg("%s", err.text);
    const struct rfs_chunk *chunks = world.chunks->chunks.data;
    assert_int_equal(world.chunks->chunks.n, 2);
    assert_non_null(rfs_files_packed(world.files));
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t most = rfs_chunks_type_of(world.chunks, i)->bytes + 65536;
        assert_int_equal(chunks[i].item_bytes, most);
        assert_int_equal(rfs_files_offset(world.files, chunks[i].file, chunks[i].item + most - 1),
                         i == 0 ? 700 : 100);
    }
    assert_true(chunks[0].item + chunks[0].item_bytes <= chunks[1].item ||
                chunks[1].item + chunks[1].item_bytes <= chunks[0].item);
    assert_int_equal(world.chunks->unpacking,
                     rfs_chunks_type_of(world.chunks, 0)->bytes + 65536 + 600);
    assert_string_equal(rfs_intern_text(world.tables.names, world.chunks->unpacking_name), "w");
    end(&world);
    bytes_free(&b);
    accepted(whole("b", 500, 700, NULL));
    /* Files may differ, as several writers may. */
    b = through("b", 500, 0, NULL);
    assert_int_equal(describe(&b, &world, &err), 0);
    assert_int_equal(world.chunks->chunks.data[1].item, 100);
    end(&world);
    bytes_free(&b);
}

static void test_transforms(void **state)
{
    (void)state;
    static const char other[] = "of torch's writer, which is not read";
    static const char more[] = "of torch's writer, and by others, which is not read";
    refused(through("a", 500, THROUGH("stream.zstd/2")), -ENOTSUP, other);
    refused(through("a", 500, THROUGH("stream.zstd@lab/1")), -ENOTSUP, other);
    refused(through("a", 500, THROUGH("stream.zstd/1 ")), -ENOTSUP, other);
    refused(through("a", 500, THROUGH("x")), -ENOTSUP,
            "parameter 'w': is stored by the extension x of torch's writer");
    refused(through("a", 500, THROUGH("stream.zstd/1", "stream.zstd/1")), -ENOTSUP, more);
    refused(through("a", 500, THROUGH("stream.zstd/1", "x")), -ENOTSUP, more);
    refused(through("a", 500, 0, NULL), -EINVAL, "its file has compressed items, and others");
    /* zstd makes more of nothing, but not this: so no item costs more than its tensor has. */
    refused(through("a", 70000, THROUGH("stream.zstd/1")), -EINVAL,
            "parameter 'w': the metadata is damaged: it is stored with more bytes than zstd makes");
}

/* An object that is declared, and stored at these places. */
static struct bytes object(const char *declared, const char *stored, unsigned times)
{
    struct bytes b = {0};

    dcp_begin(&b);
    dcp_left_out(&b, declared);
    dcp_storage(&b);
    for (unsigned i = 0; i < times; i++)
        dcp_place(&b, stored, 0, NULL, "__0_0.distcp", 100 * (int64_t)i, 50);
    dcp_end(&b, NULL);
    return b;
}

static void test_objects(void **state)
{
    struct bytes b = object("step", "step", 1);
    struct rfs_error err = {0};
    struct world world;

    (void)state;
    assert_int_equal(describe(&b, &world, &err), 0);
    assert_int_equal(world.chunks->objects.n, 1);
    assert_true(world.chunks->objects.data[0].item == 0 &&
                world.chunks->objects.data[0].item_bytes == 50);
    assert_null(rfs_chunks_find(world.chunks, "step", 4));
    end(&world);
    bytes_free(&b);
    refused(object("step", "step", 0), -EINVAL,
            "parameter 'step': the metadata does not say where");
    refused(object("step", "step", 2), -EINVAL, "parameter 'step': the metadata stores it twice");
    refused(object("step", "other", 1), -EINVAL, "parameter 'other': the metadata stores it and");
    b = (struct bytes){0};
    dcp_begin(&b);
    dcp_left_out(&b, "step");
    dcp_left_out(&b, "step");
    dcp_storage(&b);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "parameter 'step': the metadata describes it twice");
}

static void test_others(void **state)
{
    (void)state;
    struct bytes b = {0};
    DCP_BYTES(&b, "\x80\4}.");
    refused(b, -EINVAL, "the metadata is damaged: it is another object");
    b = (struct bytes){0};
    dcp_begin(&b);
    dcp_left_out(&b, "step");
    dcp_text(&b, "odd");
    dcp_ops(&b, "N");
    dcp_storage(&b);
    dcp_end(&b, NULL);
    refused(b, -EINVAL, "parameter 'odd': the metadata is damaged: it is neither a tensor");
    /* Megatron's further attribute. */
    b = whole("b", 0, 1, NULL);
    b.n -= strlen(DCP_BUILD ".");
    dcp_text(&b, "mcore_data");
    dcp_ops(&b, "}(");
    dcp_text(&b, "w");
    dcp_ops(&b, "}u" DCP_BUILD ".");
    accepted(b);
}

/* ---- the metadata of each rank ---- */

/* Writes an item with the two elements of a rank, which lie STEP apart; returns its bytes. */
static int64_t put_item(const char *root, const char *name, int64_t step)
{
    struct torch_file item = {0};
    torch_tensor(&item, &(struct torch_tensor){.class = "FloatStorage",
                                               .key = "0",
                                               .elements = 4,
                                               .ndim = 1,
                                               .dims = DIMS(2),
                                               .strides = DIMS(step)});
    torch_storage(&item, "0", "aaaabbbbccccdddd", 16);
    const struct bytes *all = torch_end(&item);
    const int64_t n = (int64_t)all->n;
    tree_write(root, name, all->data, all->n);
    torch_free(&item);
    return n;
}

/*
 * The metadata of rank RANK: half of "w" [4], all of "b" [2], and a value; OTHER text behind all.
 */
static void put_rank(const char *root, unsigned rank, int64_t elements, const char *other)
{
    const int64_t half[] = {2 * rank};
    struct bytes out = {0};
    char name[32];
    char file[32];

    snprintf(name, sizeof name, "__%u.metadata", rank);
    snprintf(file, sizeof file, "__%u_0.distcp", rank);
    const int64_t n = put_item(root, file, 1 + rank);
    dcp_begin(&out);
    dcp_tensor(&out, "w", "float32", 1, DIMS(elements));
    dcp_chunk(&out, 1, half, DIMS(2));
    dcp_tensor_end(&out);
    dcp_tensor(&out, "b", "float32", 1, DIMS(2));
    dcp_chunk(&out, 1, zero, DIMS(2));
    dcp_tensor_end(&out);
    dcp_left_out(&out, "step");
    dcp_storage(&out);
    dcp_place(&out, "w", 1, half, file, 0, n);
    dcp_place(&out, "b", 1, zero, file, 0, n);
    dcp_place(&out, "step", 0, NULL, file, 0, n);
    if (other) {
        dcp_ops(&out, "u");
        dcp_text(&out, other);
        dcp_ops(&out, "}(");
    }
    dcp_end(&out, "1.0.0");
    tree_write(root, name, out.data, out.n);
    bytes_free(&out);
}

static int open_ranks(struct world *world, const char *root, unsigned n, struct rfs_error *err)
{
    char name[32];

    *world = (struct world){.files = rfs_files_new(NULL),
                            .tables = {rfs_intern_new(), rfs_intern_new()}};
    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof name, "__%u.metadata", i);
        rfs_files_add(world->files, tree_path(root, name));
    }
    return rfs_dcp_open(&(struct rfs_chunks_source){.folder = root,
                                                    .files = world->files,
                                                    .tables = &world->tables},
                        &world->chunks, err);
}

static void ranks_refused(const char *root, unsigned n, const char *part)
{
    struct rfs_error err = {0};
    struct world world;

    assert_int_equal(open_ranks(&world, root, n, &err), -EINVAL);
    if (!strstr(err.text, part))
        fail_msg("'%s' instead of '%s'", err.text, part);
    assert_null(world.chunks);
    end(&world);
}

/* Halves are joined; what both have is the first one's, and the second is its copy. */
static void test_by_rank(void **state)
{
    struct rfs_error err = {0};
    struct rfs_chunked_copy copy;
    struct world world;
    char *root = tree_new();
    uint64_t begin[2];

    (void)state;
    put_rank(root, 0, 4, NULL);
    put_rank(root, 1, 4, NULL);
    if (open_ranks(&world, root, 2, &err))
        fail_msg("%s", err.text);
    assert_true(rfs_dcp_owns(world.chunks));
    const struct rfs_chunked_tensor *w = rfs_chunks_find(world.chunks, "w", 1);
    const struct rfs_chunked_tensor *b = rfs_chunks_find(world.chunks, "b", 1);
    assert_true(w && b && w->n == 2 && b->n == 1 && !w->on_trust && b->on_trust);
    assert_int_equal(rfs_chunks_count_copies(world.chunks, w->first + 1), 0);
    assert_int_equal(rfs_chunks_count_copies(world.chunks, b->first), 1);
    assert_int_equal(rfs_chunks_locate(world.chunks, b->first, &err), 0);
    for (unsigned i = 0; i < 3; i++) /* its strides are noted once */
        assert_int_equal(rfs_chunks_locate_copy(world.chunks, b->first, 0, &copy, &err), 0);
    assert_int_equal(world.chunks->strided.n, 1);
    assert_non_null(strstr(rfs_files_path(world.files, copy.file), "/__1_0.distcp"));
    assert_int_equal(copy.type, world.chunks->chunks.data[b->first].type);
    assert_false(rfs_chunks_are_alike(world.chunks, rfs_chunks_type_of(world.chunks, b->first),
                                      world.chunks->chunks.data[b->first].at, copy.at, begin));
    assert_int_equal(world.chunks->objects.n, 1);
    assert_non_null(
        strstr(rfs_files_path(world.files, world.chunks->objects.data[0].file), "/__0_0.distcp"));
    end(&world);
    tree_write(root, "__1_0.distcp", "cut off", 7);
    assert_int_equal(open_ranks(&world, root, 2, &err), 0);
    b = rfs_chunks_find(world.chunks, "b", 1);
    assert_int_equal(rfs_chunks_locate_copy(world.chunks, b->first, 0, &copy, NULL), -EINVAL);
    assert_int_equal(rfs_chunks_locate_copy(world.chunks, b->first, 0, &copy, &err), -EINVAL);
    assert_non_null(strstr(err.text, "__1_0.distcp: parameter 'b': lies at offset 0 with"));
    end(&world);
    ranks_refused(root, 1,
                  "parameter 'w': the metadata has no chunk for [2:4]; try: the metadata "
                  "of all ranks; that of 1 is here, '__0.metadata' to '__0.metadata'");
    put_rank(root, 1, 5, NULL);
    ranks_refused(root, 2, "__1.metadata: parameter 'w': its type or its size differs between");
    put_rank(root, 1, 4, "mcore_data");
    ranks_refused(root, 2, "__1.metadata: the metadata is damaged: Megatron-Core has one such");
    tree_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part),    cmocka_unit_test(test_part_by_names),
        cmocka_unit_test(test_dicts),   cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_places),  cmocka_unit_test(test_missing),
        cmocka_unit_test(test_boxes),   cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_fields),  cmocka_unit_test(test_flattened),
        cmocka_unit_test(test_packed),  cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_others),  cmocka_unit_test(test_objects),
        cmocka_unit_test(test_by_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
