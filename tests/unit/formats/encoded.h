/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of tensors made by hand, for encoders, and looks at what these make. All fail the test. */
#ifndef TESTS_UNIT_FORMATS_ENCODED_H
#define TESTS_UNIT_FORMATS_ENCODED_H

#include "base/error.h"
#include "formats/image.h"
#include "formats/walker.h"

struct world {
    struct rfs_tables tables;
    struct rfs_image_tensor *tensors;
    size_t n, cap;
    struct rfs_error err;
};

int set_up(void **state);
int tear_down(void **state);

/* Adds a value of NAME with that type. */
void add_target(struct world *w, const char *name, enum rfs_kind kind, enum rfs_dtype dtype,
                unsigned ndim, const uint64_t *dims, uint64_t bytes);
/* The same for a tensor, with the bytes that it has. */
void add_tensor(struct world *w, const char *name, enum rfs_dtype dtype, unsigned ndim,
                const uint64_t *dims);

/* Regions follow each other from 0 to the end, none empty, literals one after the other. */
void expect_covered(const struct rfs_image *image);
/* The first literal region is TEXT. */
void expect_literals(const struct rfs_image *image, const void *text, size_t n);

#endif
