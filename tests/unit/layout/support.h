/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies made up by tests, written in both formats by an encoder of the tests' own. */
#ifndef TESTS_LAYOUT_SUPPORT_H
#define TESTS_LAYOUT_SUPPORT_H

/* cmocka.h needs these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layout/grid.h"

struct text {
    char *data;
    size_t n;
    size_t cap;
};

/*
 * One parameter. axis[i] lists the device axes that cut tensor axis i, outer first; n 0: not cut.
 */
struct spec {
    const char *name;
    uint32_t n_dev;
    uint32_t dev[6];
    uint32_t ndim;
    struct {
        uint32_t n;
        int32_t by[6];
    } axis[4];
    uint64_t shape[4];
    int32_t step;
    int32_t size;
};

void put(struct text *text, const void *bytes, size_t n);
void putf(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void put_varint(struct text *text, uint64_t value);
/* A length-delimited field. */
void put_field(struct text *text, unsigned number, const struct text *content);
void put_number(struct text *text, unsigned number, int64_t value);
void text_free(struct text *text);

bool is_nested(const struct spec *spec);
void write_protobuf(struct text *out, const struct spec *specs, size_t n);
/* With tensor maps flattened and shapes expanded, as the compiler does. */
void write_json(struct text *out, const struct spec *specs, size_t n);

/* A file of the tests, or of the test's own folder when it is given by a path. Fails the test. */
struct text read_fixture(const char *name);
struct rfs_strategy *parse_fixture(const char *name);
struct rfs_strategy *parse_text(const char *name, const struct text *text);
/* Asserts that parsing fails with -EINVAL, and with WHAT in the message. */
void expect_refused(const char *name, const void *data, size_t size, const char *what);

/* Equal but for the id and the expanded shape. */
void assert_same_layout(const struct rfs_layout *a, const struct rfs_layout *b);

/* A generator seeded from RFS_SEED or the clock; prints the seed once. */
void seed_random(void);
uint32_t below(uint32_t limit);

#endif
