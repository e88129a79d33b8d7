/* SPDX-License-Identifier: Apache-2.0 */
#include "writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bytes_free(struct bytes *b)
{
    free(b->p);
    *b = (struct bytes){0};
}

void bytes_add(struct bytes *b, const void *data, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 64;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    if (n > 0)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}

void bytes_text(struct bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

void bytes_varint(struct bytes *b, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value >= 0x80 ? 0x80 : 0));
        bytes_add(b, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void bytes_field(struct bytes *b, unsigned number, const void *data, size_t n)
{
    bytes_varint(b, (uint64_t)number << 3 | 2);
    bytes_varint(b, n);
    bytes_add(b, data, n);
}

void bytes_number(struct bytes *b, unsigned number, uint64_t value)
{
    bytes_varint(b, (uint64_t)number << 3);
    bytes_varint(b, value);
}

struct bytes tensor_message(const int64_t *dims, unsigned ndim, const char *dtype,
                            const void *content, size_t n)
{
    struct bytes t = {0};
    for (unsigned i = 0; i < ndim; i++)
        bytes_number(&t, 1, (uint64_t)dims[i]);
    bytes_field(&t, 2, dtype, strlen(dtype));
    bytes_field(&t, 3, content, n);
    return t;
}

void put_value(struct bytes *file, const struct bytes *value)
{
    bytes_field(file, 1, value->p, value->n);
}

void put_tensor(struct bytes *file, const char *tag, const int64_t *dims, unsigned ndim,
                const char *dtype, const void *content, size_t n)
{
    struct bytes tensor = tensor_message(dims, ndim, dtype, content, n);
    struct bytes value = {0};
    bytes_field(&value, 1, tag, strlen(tag));
    bytes_field(&value, 2, tensor.p, tensor.n);
    put_value(file, &value);
    bytes_free(&tensor);
    bytes_free(&value);
}

const unsigned char *filler(size_t n)
{
    static unsigned char data[1 << 20];
    if (n > sizeof data)
        abort();
    for (size_t i = data[1] ? sizeof data : 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 167 + (i >> 8) * 13);
    return data;
}

int memory_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct memory *m = ctx;
    if (m->fail != 0)
        return m->fail;
    if (offset > m->n || n > m->n - offset)
        return -ERANGE; /* nobody should ask */
    memcpy(buf, m->p + offset, n);
    m->reads++;
    m->bytes += n;
    return 0;
}

uint64_t random_seed(void)
{
    const char *given = getenv("RFS_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec;
    printf("RFS_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t random_below(struct random *random, uint64_t n)
{
    return random_next(random) % n;
}

struct rfs_tables tables_new(void)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    if (!tables.names || !tables.types)
        abort();
    return tables;
}

void tables_free(struct rfs_tables *tables)
{
    rfs_intern_free(tables->names);
    rfs_intern_free(tables->types);
}
