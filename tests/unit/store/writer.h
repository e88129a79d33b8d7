/* SPDX-License-Identifier: Apache-2.0 */
/* Writes .ckpt bytes into memory, right or wrong, and reads them back as a file. For tests. */
#ifndef TESTS_UNIT_SOURCE_WRITER_H
#define TESTS_UNIT_SOURCE_WRITER_H

#include "formats/ckpt/ckpt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow; zero-initialise, release with bytes_free. Aborts when out of memory. */
struct bytes {
    unsigned char *p;
    size_t n, cap;
};

void bytes_free(struct bytes *b);
void bytes_add(struct bytes *b, const void *data, size_t n);
void bytes_text(struct bytes *b, const char *text);
void bytes_varint(struct bytes *b, uint64_t value);
/* A field of type 2. */
void bytes_field(struct bytes *b, unsigned number, const void *data, size_t n);
/* A field of type 0. */
void bytes_number(struct bytes *b, unsigned number, uint64_t value);

/* The message inside field 2 of a value: ndim dims, the type and n bytes of content. */
struct bytes tensor_message(const int64_t *dims, unsigned ndim, const char *dtype,
                            const void *content, size_t n);
/* Field 1 of a file: tag and tensor, as MindSpore writes them. */
void put_tensor(struct bytes *file, const char *tag, const int64_t *dims, unsigned ndim,
                const char *dtype, const void *content, size_t n);
/* Field 1 of a file: a value of these bytes. */
void put_value(struct bytes *file, const struct bytes *value);
/* n bytes that differ from place to place. */
const unsigned char *filler(size_t n);

/* A file in memory that counts what is read from it. */
struct memory {
    const unsigned char *p;
    size_t n;
    _Atomic uint64_t reads, bytes;
    int fail; /* when not 0, what reads return */
};
int memory_read(void *ctx, void *buf, size_t n, uint64_t offset);

/* Random numbers that a seed replays. */
struct random {
    uint64_t state;
};
uint64_t random_seed(void); /* from RFS_SEED or the clock; prints it */
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t n);

struct rfs_tables tables_new(void);
void tables_free(struct rfs_tables *tables);

#endif
