/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: against bytes written down here, and against an encoder that is as simple as
 * can be.
 */
#include "formats/safetensors/safetensors.h"
#include "tests/support/tree.h"
#include "tests/unit/formats/encoded.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), (uint64_t[])                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Encodes N tensors from FIRST on. */
static int try_to_encode(struct world *w, size_t first, size_t n, const char *format,
                         const char *divide, struct rfs_image **image)
{
    return rfs_safetensors_encode(
        &(struct rfs_safetensors_content){w->tensors + first, n, format, "/source", divide, false},
        image, &w->err);
}

static struct rfs_image *encode(struct world *w, size_t first, size_t n)
{
    struct rfs_image *image;

    if (try_to_encode(w, first, n, "ms", NULL, &image))
        fail_msg("%s", w->err.text);
    expect_covered(image);
    return image;
}

static struct rfs_image *encode_all(struct world *w)
{
    return encode(w, 0, w->n);
}

/* The header's text with its length before it and its padding behind it. */
static void expect_header(const struct rfs_image *image, const char *text)
{
    unsigned char want[4096] = {0};
    const size_t length = strlen(text);
    const size_t padded = (length + 7) / 8 * 8;

    assert_true(padded + 8 <= sizeof want);
    want[0] = (unsigned char)padded;
    want[1] = (unsigned char)(padded >> 8);
    memset(want + 8, ' ', padded);
    memcpy(want + 8, text, length);
    expect_literals(image, want, padded + 8);
}

static void test_by_hand(void **state)
{
    struct world *w = *state;

    add_tensor(w, "b", RFS_UINT8, 0, NULL);
    add_tensor(w, "w", RFS_FLOAT32, DIMS(4, 8));
    add_tensor(w, "empty", RFS_FLOAT32, DIMS(0, 3));
    add_tensor(w, "step", RFS_INT64, DIMS(1));
    struct rfs_image *image = encode_all(w);
    expect_header(image, "{\"__metadata__\":{\"format\":\"ms\"},"
                         "\"step\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                         "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
                         "\"w\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[8,136]},"
                         "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[136,137]}}");
    const uint32_t order[] = {3, 1, 0};
    const uint64_t bytes[] = {8, 128, 1};
    assert_int_equal(image->n, 4);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(image->regions[i + 1].target, order[i]);
        assert_int_equal(image->regions[i + 1].at, 0);
        assert_int_equal(rfs_image_end(image, i + 1) - image->regions[i + 1].start, bytes[i]);
    }
    rfs_image_free(image);
}

static void test_one_example_of_the_format(void **state)
{
    static const unsigned char want[] =
        "\x60\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"ms\"},\"w\":{\"dtype\":\"F32\","
        "\"shape\":[4,8],\"data_offsets\":[0,128]}}       ";
    struct world *w = *state;

    add_tensor(w, "w", RFS_FLOAT32, DIMS(4, 8));
    struct rfs_image *image = encode_all(w);
    expect_literals(image, want, sizeof want - 1);
    assert_int_equal(image->bytes, 8 + 96 + 128);
    rfs_image_free(image);
}

/* A view whose files have one format is told what it can do. */
static void test_remedies_of_parts(void **state)
{
    struct world *w = *state;
    struct rfs_image *image;
    static char name[65000];

    add_target(w, "s", RFS_STRING, RFS_STR, DIMS(0), 8);
    for (uint32_t i = 0; i < 1600; i++) {
        snprintf(name, sizeof name, "%064990u", i);
        add_tensor(w, name, RFS_FLOAT32, DIMS(1));
    }
    assert_int_equal(try_to_encode(w, 0, 1, "pt", "-o file_size=", &image), -EINVAL);
    assert_non_null(strstr(w->err.text, "; try: -o names= with a map that gives it null"));
    assert_int_equal(try_to_encode(w, 1, 1600, "pt", "-o file_size=", &image), -EFBIG);
    assert_non_null(strstr(w->err.text, "would have 104"));
    assert_non_null(strstr(w->err.text, "; try: -o file_size="));
}

/* As the library's save_file writes it: no metadata, unless the type needs it. */
static void test_without_format(void **state)
{
    struct world *w = *state;
    struct rfs_image *image;

    add_tensor(w, "a", RFS_INT4, DIMS(2));
    add_tensor(w, "b", RFS_FLOAT32, DIMS(3));
    assert_int_equal(try_to_encode(w, 1, 1, NULL, NULL, &image), 0);
    expect_header(image, "{\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}");
    rfs_image_free(image);
    assert_int_equal(try_to_encode(w, 0, 1, NULL, NULL, &image), 0);
    expect_header(image, "{\"__metadata__\":{\"a\":\"Int4\"},"
                         "\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}");
    rfs_image_free(image);
    add_target(w, "s", RFS_STRING, RFS_STR, DIMS(0), 8);
    assert_int_equal(try_to_encode(w, 2, 1, NULL, NULL, &image), -EINVAL);
    assert_non_null(strstr(w->err.text, "parameter 's': is a string"));
    assert_non_null(strstr(w->err.text, "try: a .npy file"));
}

static void test_escapes(void **state)
{
    struct world *w = *state;

    add_tensor(w, "a\"\\/\b\t\n\f\r\x01\x1f\x7f\xc3\xa9\xf0\x9f\x98\x80", RFS_INT8, 0, NULL);
    struct rfs_image *image = encode_all(w);
    expect_header(image, "{\"__metadata__\":{\"format\":\"ms\"},"
                         "\"a\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\xc3\xa9\xf0\x9f\x98\x80\":"
                         "{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    rfs_image_free(image);
}

static void test_int4(void **state)
{
    struct world *w = *state;

    add_tensor(w, "z", RFS_INT4, DIMS(2));
    add_tensor(w, "a", RFS_INT4, DIMS(1));
    add_tensor(w, "m", RFS_INT8, DIMS(1));
    struct rfs_image *image = encode_all(w);
    expect_header(image, "{\"__metadata__\":{\"a\":\"Int4\",\"format\":\"ms\",\"z\":\"Int4\"},"
                         "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                         "\"m\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]},"
                         "\"z\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[2,4]}}");
    rfs_image_free(image);

    /* MindSpore keeps both in one dictionary. */
    add_tensor(w, "format", RFS_INT4, 0, NULL);
    image = encode(w, 3, 1);
    expect_header(image, "{\"__metadata__\":{\"format\":\"Int4\"},"
                         "\"format\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    rfs_image_free(image);
}

static void test_selection(void **state)
{
    struct world *w = *state;

    for (unsigned i = 0; i < 9; i++)
        add_tensor(w, (const char[]){(char)('i' - i), 0}, RFS_INT16, DIMS(i + 1));
    w->tensors[0] = w->tensors[2];
    w->tensors[1] = w->tensors[7];
    w->tensors[2] = w->tensors[5];
    struct rfs_image *image = encode(w, 0, 3);
    expect_header(image, "{\"__metadata__\":{\"format\":\"ms\"},"
                         "\"b\":{\"dtype\":\"I16\",\"shape\":[8],\"data_offsets\":[0,16]},"
                         "\"d\":{\"dtype\":\"I16\",\"shape\":[6],\"data_offsets\":[16,28]},"
                         "\"g\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[28,34]}}");
    assert_int_equal(image->regions[1].target, 7);
    assert_int_equal(image->regions[2].target, 5);
    assert_int_equal(image->regions[3].target, 2);
    rfs_image_free(image);
}

/* Lowest in the file first is not how the library sorts: the last of these comes first. */
static const struct {
    enum rfs_dtype dtype;
    const char *name;
} ascending[] = {
    {RFS_BOOL, "BOOL"},
    {RFS_FLOAT4_E2M1_X2, "F4"},
    {RFS_FLOAT6_E2M3_X4, "F6_E2M3"},
    {RFS_FLOAT6_E3M2_X4, "F6_E3M2"},
    {RFS_UINT8, "U8"},
    {RFS_INT8, "I8"},
    {RFS_FLOAT8_E5M2, "F8_E5M2"},
    {RFS_FLOAT8_E4M3FN, "F8_E4M3"},
    {RFS_FLOAT8_E8M0, "F8_E8M0"},
    {RFS_FLOAT8_E4M3FNUZ, "F8_E4M3FNUZ"},
    {RFS_FLOAT8_E5M2FNUZ, "F8_E5M2FNUZ"},
    {RFS_INT16, "I16"},
    {RFS_UINT16, "U16"},
    {RFS_FLOAT16, "F16"},
    {RFS_BFLOAT16, "BF16"},
    {RFS_INT32, "I32"},
    {RFS_UINT32, "U32"},
    {RFS_FLOAT32, "F32"},
    {RFS_COMPLEX64, "C64"},
    {RFS_FLOAT64, "F64"},
    {RFS_INT64, "I64"},
    {RFS_UINT64, "U64"},
};
#define N_DTYPES (sizeof ascending / sizeof *ascending)

/* Returns how many numbers an element has, which shapes count. */
static unsigned packed(unsigned dtype)
{
    return strcmp(ascending[dtype].name, "F4") == 0        ? 2
           : strncmp(ascending[dtype].name, "F6_", 3) == 0 ? 4
                                                           : 1;
}

struct random_tensor {
    unsigned dtype; /* in ascending */
    char name[32];
    unsigned ndim;
    uint64_t dims[4];
    bool done;
};

/* Whether A stands before B in the file. */
static bool before(const struct random_tensor *a, const struct random_tensor *b)
{
    return a->dtype != b->dtype ? a->dtype > b->dtype : strcmp(a->name, b->name) < 0;
}

static void make_tensor(uint64_t *seed, unsigned number, struct random_tensor *t)
{
    static const char *const letters[] = {"a", "b", ".", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                          "A", " ", "~"};

    *t = (struct random_tensor){.dtype = test_below(seed, N_DTYPES), .ndim = test_below(seed, 5)};
    if (packed(t->dtype) > 1 && t->ndim == 0) /* there is no half an element */
        t->ndim = 1;
    for (unsigned i = 0; i < 2; i++)
        strcat(t->name, letters[test_below(seed, 8)]);
    snprintf(t->name + strlen(t->name), 16, "%u", number);
    for (unsigned i = 0; i < t->ndim; i++)
        t->dims[i] = test_below(seed, 8) == 0 ? 0 : test_below(seed, 300);
}

static void test_against_a_naive_encoder(void **state)
{
    struct world *w = *state;
    uint64_t seed = test_seed();

    for (unsigned round = 0; round < 40; round++) {
        const unsigned n = 1 + test_below(&seed, 30);
        struct random_tensor tensors[30];
        char text[16384] = "{\"__metadata__\":{\"format\":\"ms\"}";
        uint64_t at = 0;
        w->n = 0;
        for (unsigned i = 0; i < n; i++) {
            make_tensor(&seed, i, &tensors[i]);
            add_tensor(w, tensors[i].name, ascending[tensors[i].dtype].dtype, tensors[i].ndim,
                       tensors[i].dims);
        }
        struct rfs_image *image = encode_all(w);
        size_t region = 1;
        for (unsigned i = 0; i < n; i++) {
            struct random_tensor *next = NULL;
            for (unsigned k = 0; k < n; k++)
                if (!tensors[k].done && (!next || before(&tensors[k], next)))
                    next = &tensors[k];
            uint64_t bytes = rfs_dtype_bytes(ascending[next->dtype].dtype);
            size_t length = strlen(text);
            length += (size_t)snprintf(text + length, sizeof text - length,
                                       ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", next->name,
                                       ascending[next->dtype].name);
            for (unsigned d = 0; d < next->ndim; d++) {
                const uint64_t times = d + 1 == next->ndim ? packed(next->dtype) : 1;
                bytes *= next->dims[d];
                length +=
                    (size_t)snprintf(text + length, sizeof text - length, "%s%llu", d ? "," : "",
                                     (unsigned long long)(next->dims[d] * times));
            }
            snprintf(text + length, sizeof text - length, "],\"data_offsets\":[%llu,%llu]}",
                     (unsigned long long)at, (unsigned long long)(at + bytes));
            if (bytes > 0) {
                assert_int_equal(image->regions[region].target, next - tensors);
                assert_int_equal(image->regions[region].start, rfs_image_end(image, 0) + at);
                region++;
            }
            at += bytes;
            next->done = true;
        }
        assert_int_equal(region, image->n);
        assert_int_equal(image->bytes, rfs_image_end(image, 0) + at);
        strcat(text, "}");
        while (strlen(text) % 8)
            strcat(text, " ");
        unsigned char length[8] = {(unsigned char)strlen(text), (unsigned char)(strlen(text) >> 8)};
        assert_memory_equal(image->literals, length, 8);
        assert_int_equal(image->literal_bytes, 8 + strlen(text));
        assert_memory_equal(image->literals + 8, text, strlen(text));
        rfs_image_free(image);
    }
}

/* ---- the order of layers --------------------------------------------------------------------- */

static struct rfs_image *encode_layers(struct world *w)
{
    struct rfs_image *image;

    if (rfs_safetensors_encode(
            &(struct rfs_safetensors_content){w->tensors, w->n, "pt", "/source", NULL, true},
            &image, &w->err))
        fail_msg("%s", w->err.text);
    expect_covered(image);
    return image;
}

/* Fails unless N tensors are sorted into this order. */
static void expect_layers(struct world *w, const char *const *names, size_t n)
{
    assert_int_equal(w->n, n);
    assert_int_equal(rfs_safetensors_sort_layers(w->tensors, n, true), 0);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(w->tensors[i].name, names[i]);
}

static void test_layers_by_hand(void **state)
{
    struct world *w = *state;

    add_tensor(w, "lm_head.w", RFS_BFLOAT16, DIMS(2));
    add_tensor(w, "m.norm.w", RFS_BFLOAT16, DIMS(2));
    add_tensor(w, "m.layers.10.a", RFS_BFLOAT16, DIMS(2));
    add_tensor(w, "m.layers.9.a", RFS_BFLOAT16, DIMS(2));
    add_tensor(w, "m.layers.9.z", RFS_FLOAT32, 0, NULL);
    add_tensor(w, "m.embed.w", RFS_BFLOAT16, DIMS(2));
    struct rfs_image *image = encode_layers(w);
    expect_header(image,
                  "{\"__metadata__\":{\"format\":\"pt\"},"
                  "\"m.embed.w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                  "\"m.layers.9.z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
                  "\"m.layers.9.a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]},"
                  "\"m.layers.10.a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]},"
                  "\"m.norm.w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[16,20]},"
                  "\"lm_head.w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[20,24]}}");
    rfs_image_free(image);
}

static void test_layers_of_models(void **state)
{
    static const char *const sorted[] = {
        "gpt_neox.embed_in.weight",
        "shared.weight",
        "transformer.wte.weight",
        "visual.embeddings.0.weight",
        "0.weight",
        "model.layers.0.mlp.experts.2.w",
        "model.layers.0.mlp.experts.11.w",
        "model.layers.0.shared_head.norm", /* of a layer: no head, no embedding */
        "model.layers.2.embed_tokens",
        "model.layers.18446744073709551616.x",
        "model.layers.18446744073709551617.x",
        "x..7",
        "a9b.weight",
        "a10b.weight",
        "model.norm.weight",
        "decoder.output_layer.weight",
        "gpt_neox.embed_out.weight", /* a head, in spite of its name */
        "lm_head.weight",
        "medusa_head.0.weight",
    };
    enum { N = sizeof sorted / sizeof *sorted };
    struct world *w = *state;
    uint64_t seed = test_seed();
    unsigned places[N];

    for (unsigned i = 0; i < N; i++) {
        const unsigned k = test_below(&seed, i + 1);
        places[i] = places[k];
        places[k] = i;
    }
    for (unsigned i = 0; i < N; i++)
        add_tensor(w, sorted[places[i]], RFS_FLOAT32, DIMS(2));
    expect_layers(w, sorted, N);
}

/* What would move the next layer's double off its alignment goes to the end. */
static void test_layers_are_aligned(void **state)
{
    struct world *w = *state;

    add_tensor(w, "l.0.odd", RFS_INT8, DIMS(3));
    add_tensor(w, "l.0.double", RFS_FLOAT64, DIMS(1));
    add_tensor(w, "l.0.half", RFS_FLOAT16, DIMS(3));
    add_tensor(w, "l.1.double", RFS_FLOAT64, DIMS(1));
    add_tensor(w, "l.1.a", RFS_FLOAT32, DIMS(1)); /* two of 4 bytes together move nothing */
    add_tensor(w, "l.1.b", RFS_FLOAT32, DIMS(1));
    add_tensor(w, "l.2.a", RFS_FLOAT64, DIMS(1));
    expect_layers(w,
                  (const char *const[]){"l.0.double", "l.1.double", "l.1.a", "l.1.b", "l.2.a",
                                        "l.0.half", "l.0.odd"},
                  7);
}

/* A tensor whose place follows from how its name was made. */
struct layered {
    char name[32];
    unsigned layer; /* that of all that are in none of one part is the same */
    unsigned tail;  /* in the layer, by name */
    uint64_t width, bytes;
    bool late, done;
};

static bool before_in_layers(const struct layered *a, const struct layered *b)
{
    if (a->late != b->late)
        return b->late;
    if (!a->late && a->layer != b->layer)
        return a->layer < b->layer;
    if (a->width != b->width)
        return a->width > b->width;
    return a->layer != b->layer ? a->layer < b->layer : a->tail < b->tail;
}

static void add_layered(struct world *w, uint64_t *seed, struct layered *t, unsigned tail)
{
    static const enum rfs_dtype dtypes[] = {RFS_INT8,    RFS_FLOAT8_E4M3FN, RFS_BFLOAT16,
                                            RFS_FLOAT16, RFS_FLOAT32,       RFS_INT64};
    const enum rfs_dtype dtype = dtypes[test_below(seed, 6)];
    const uint64_t length =
        test_below(seed, 2) ? 8 * test_below(seed, 4) : test_below(seed, 20); /* often none */
    const unsigned number = test_below(seed, 13) * (test_below(seed, 2) ? 1 : 9);

    *t = (struct layered){
        .tail = tail, .width = rfs_dtype_bytes(dtype), .bytes = length * rfs_dtype_bytes(dtype)};
    switch (test_below(seed, 8)) {
    case 0:
        snprintf(t->name, sizeof t->name, "z.embed%u", tail);
        break;
    case 1:
        snprintf(t->name, sizeof t->name, "a.norm%u", tail);
        t->layer = 3000;
        break;
    case 2:
        snprintf(t->name, sizeof t->name, "a.head%u", tail);
        t->layer = 4000;
        break;
    case 3:
        snprintf(t->name, sizeof t->name, "towers.%u.head.%u", number, tail);
        t->layer = 2000 + number;
        break;
    default:
        snprintf(t->name, sizeof t->name, "m.layers.%u.x.%u.w", number, tail);
        t->layer = 1000 + number;
    }
    add_tensor(w, t->name, dtype, 1, &length);
}

/* Marks what is to be moved. */
static void mark_late(struct layered *tensors, unsigned n)
{
    uint64_t widest = 1;

    for (unsigned i = 0; i < n; i++)
        widest = tensors[i].width > widest ? tensors[i].width : widest;
    for (unsigned i = 0; i < n; i++) {
        uint64_t sum = 0;
        for (unsigned k = 0; k < n; k++)
            sum += tensors[k].layer == tensors[i].layer ? tensors[k].bytes : 0;
        tensors[i].late = sum % widest && tensors[i].bytes % widest;
    }
}

static void test_layers_against_a_model(void **state)
{
    struct world *w = *state;
    uint64_t seed = test_seed();

    for (unsigned round = 0; round < 300; round++) {
        const unsigned n = 1 + test_below(&seed, 40);
        struct layered tensors[40];
        uint64_t at = 0;
        w->n = 0;
        for (unsigned i = 0; i < n; i++)
            add_layered(w, &seed, &tensors[i], i);
        mark_late(tensors, n);
        struct rfs_image *image = encode_layers(w);
        size_t region = 1;
        for (unsigned i = 0; i < n; i++) {
            struct layered *next = NULL;
            for (unsigned k = 0; k < n; k++)
                if (!tensors[k].done && (!next || before_in_layers(&tensors[k], next)))
                    next = &tensors[k];
            assert_string_equal(w->tensors[i].name, next->name);
            assert_int_equal(at % next->width, 0);
            if (next->bytes > 0) {
                assert_int_equal(image->regions[region].target, next - tensors);
                assert_int_equal(image->regions[region++].start, rfs_image_end(image, 0) + at);
            }
            at += next->bytes;
            next->done = true;
        }
        assert_int_equal(region, image->n);
        rfs_image_free(image);
    }
}

static void expect_refusal(struct world *w, int code, const char *fragment)
{
    struct rfs_image *image;

    assert_int_equal(try_to_encode(w, 0, w->n, "ms", NULL, &image), code);
    assert_null(image);
    if (!strstr(w->err.text, fragment))
        fail_msg("'%s' is not in '%s'", fragment, w->err.text);
}

static void test_refused(void **state)
{
    struct world *w = *state;

    add_tensor(w, "w", RFS_FLOAT32, DIMS(2));
    add_target(w, "s", RFS_STRING, RFS_STR, DIMS(0), 8);
    expect_refusal(w, -EINVAL, "parameter 's': is a string");
    assert_non_null(strstr(w->err.text, "format=ckpt"));
    w->n = 1;
    add_target(w, "m", RFS_MAP, RFS_INT32, 0, NULL, 80);
    expect_refusal(w, -EINVAL, "parameter 'm': is a map tensor");
    w->n = 1;
    add_tensor(w, "c", RFS_COMPLEX128, DIMS(2));
    expect_refusal(w, -EINVAL, "parameter 'c': is of type Complex128");
    w->n = 1;
    add_tensor(w, "h", RFS_HIFLOAT8, DIMS(2));
    expect_refusal(w, -EINVAL, "parameter 'h': is of type HiFloat8");
    w->n = 1;
    add_tensor(w, "__metadata__", RFS_FLOAT32, DIMS(2));
    expect_refusal(w, -EINVAL,
                   "parameter '__metadata__': has a name that safetensors files reserve");
    w->n = 1;
    add_target(w, "huge", RFS_TENSOR, RFS_FLOAT32, DIMS(UINT64_C(1) << 59), UINT64_C(1) << 61);
    add_target(w, "huger", RFS_TENSOR, RFS_FLOAT32, DIMS(UINT64_C(1) << 60), UINT64_C(1) << 62);
    expect_refusal(w, -EFBIG, "parameter 'huger': with it, the file would be larger");
}

static void test_header_too_long(void **state)
{
    struct world *w = *state;
    const size_t length = (size_t)30 << 20;
    char *name = malloc(length + 1);

    assert_non_null(name);
    memset(name, 'n', length);
    name[length] = 0;
    for (char i = 0; i < 4; i++) {
        name[0] = (char)('a' + i);
        add_tensor(w, name, RFS_INT8, 0, NULL);
    }
    free(name);
    expect_refusal(w, -EFBIG, "take 100000000 at most");
    w->n = 3;
    rfs_image_free(encode_all(w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_by_hand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_example_of_the_format, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_remedies_of_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_format, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_escapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_int4, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_selection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_against_a_naive_encoder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_by_hand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_of_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_are_aligned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_against_a_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_header_too_long, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
