/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/formats/encoded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    assert_non_null(w->tables.names);
    assert_non_null(w->tables.types);
    *state = w;
    return 0;
}

int tear_down(void **state)
{
    struct world *w = *state;

    rfs_intern_free(w->tables.names);
    rfs_intern_free(w->tables.types);
    free(w->tensors);
    free(w);
    return 0;
}

void add_target(struct world *w, const char *name, enum rfs_kind kind, enum rfs_dtype dtype,
                unsigned ndim, const uint64_t *dims, uint64_t bytes)
{
    struct rfs_type type;

    memset(&type, 0, sizeof type);
    type.bytes = bytes;
    type.ndim = (uint8_t)ndim;
    type.dtype = (uint8_t)dtype;
    type.kind = (uint8_t)kind;
    for (unsigned i = 0; i < ndim; i++)
        type.dims[i] = dims[i];
    if (w->n == w->cap) {
        w->cap = 2 * w->cap + 8;
        w->tensors = realloc(w->tensors, w->cap * sizeof *w->tensors);
        assert_non_null(w->tensors);
    }
    const uint32_t name_id = rfs_intern_add(w->tables.names, name, strlen(name));
    const uint32_t type_id = rfs_intern_add(w->tables.types, &type, sizeof type);
    assert_int_not_equal(name_id, RFS_NO_ID);
    assert_int_not_equal(type_id, RFS_NO_ID);
    struct rfs_image_tensor *tensor = &w->tensors[w->n];
    *tensor = (struct rfs_image_tensor){.target = (uint32_t)w->n++};
    tensor->name = rfs_intern_bytes(w->tables.names, name_id, &tensor->name_bytes);
    tensor->source_name = tensor->name;
    tensor->type = rfs_intern_bytes(w->tables.types, type_id, NULL);
}

void add_tensor(struct world *w, const char *name, enum rfs_dtype dtype, unsigned ndim,
                const uint64_t *dims)
{
    uint64_t bytes = rfs_dtype_bytes(dtype);

    for (unsigned i = 0; i < ndim; i++)
        bytes *= dims[i];
    add_target(w, name, RFS_TENSOR, dtype, ndim, dims, bytes);
}

void expect_covered(const struct rfs_image *image)
{
    uint64_t literals = 0;

    assert_true(image->n > 0);
    assert_int_equal(image->regions[0].start, 0);
    for (size_t i = 0; i < image->n; i++) {
        const uint64_t end = rfs_image_end(image, i);
        const struct rfs_region *region = &image->regions[i];
        assert_true(end > region->start);
        assert_int_equal(rfs_image_find(image, region->start), i);
        assert_int_equal(rfs_image_find(image, end - 1), i);
        if (region->target == RFS_LITERAL) {
            assert_int_equal(region->at, literals);
            literals += end - region->start;
            assert_true(i == 0 || region[-1].target != RFS_LITERAL);
        }
    }
    assert_int_equal(rfs_image_end(image, image->n - 1), image->bytes);
    assert_int_equal(literals, image->literal_bytes);
}

void expect_literals(const struct rfs_image *image, const void *text, size_t n)
{
    assert_int_equal(image->regions[0].target, RFS_LITERAL);
    assert_int_equal(rfs_image_end(image, 0), n);
    assert_memory_equal(image->literals, text, n);
}
