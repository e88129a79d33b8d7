/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files whose headers have as much as fits: tensors, values, texts, and arrays of nothing. */
#include "tests/support/hostile.h"

#define MADE(name, make)                                                                           \
    {                                                                                              \
        name, make, NULL, NULL, NULL                                                               \
    }

static void put(struct bytes *out, uint64_t number, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        bytes_add(out, &(unsigned char){(unsigned char)(number >> 8 * i)}, 1);
}

static void put_begin(struct bytes *out, uint64_t tensors, uint64_t values)
{
    bytes_add(out, "GGUF\3\0\0\0", 8);
    put(out, tensors, 8);
    put(out, values, 8);
}

static void put_array(struct bytes *out, unsigned type, uint64_t n)
{
    put(out, type, 4);
    put(out, n, 8);
}

/* Puts a value that is an array, with an empty key. */
static void put_value(struct bytes *out, unsigned type, uint64_t n)
{
    put(out, 0, 8);
    put(out, 9, 4);
    put_array(out, type, n);
}

static void tensors(struct bytes *out, size_t n)
{
    const uint64_t count = n / 28;

    put_begin(out, count, 0);
    for (uint64_t i = 0; i < count; i++) {
        put(out, 4, 8);
        for (unsigned k = 0; k < 4; k++) /* names of letters */
            put(out, '@' + (i >> 5 * k & 31), 1);
        put(out, 0, 4);
        put(out, 24, 4);
        put(out, i * 32, 8);
    }
}

static void values(struct bytes *out, size_t n)
{
    put_begin(out, 0, n / 13);
    for (uint64_t i = 0; i < n / 13; i++) {
        put(out, 0, 8);
        put(out, 0, 5);
    }
}

static void texts(struct bytes *out, size_t n)
{
    put_begin(out, 0, 1);
    put_value(out, 8, n / 8);
    for (uint64_t i = 0; i < n / 8; i++)
        put(out, 0, 8);
}

static void empty_arrays(struct bytes *out, size_t n)
{
    put_begin(out, 0, 1);
    put_value(out, 9, n / 12);
    for (uint64_t i = 0; i < n / 12; i++)
        put_array(out, i % 2 ? 9 : 8, 0);
}

static void deep_arrays(struct bytes *out, size_t n)
{
    put_begin(out, 0, 1);
    put(out, 0, 8);
    put(out, 9, 4);
    for (uint64_t i = 0; i < n / 12; i++)
        put_array(out, 9, 1);
}

static void wrong_counts(struct bytes *out, size_t n)
{
    put_begin(out, UINT64_MAX / 24, UINT64_MAX / 13);
    while (out->n < n)
        put(out, 0, 8);
}

const struct hostile hostile_gguf[] = {
    MADE("many tensors", tensors),
    MADE("many values", values),
    MADE("empty texts", texts),
    MADE("empty arrays", empty_arrays),
    MADE("arrays in arrays", deep_arrays),
    MADE("counts beyond the file", wrong_counts),
    MADE(NULL, NULL),
};
