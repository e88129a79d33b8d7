/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/image/support.h"

#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct bytes file = {0};

    assert_non_null(w);
    w->root = tree_new();
    ckpt_tensor(&file, "unused", "Int8", 0, NULL, "x", 1);
    tree_write(w->root, "rank_0/net.ckpt", file.data, file.n);
    bytes_free(&file);
    const struct rfs_source_spec spec = {
        .path = w->root, .step = RFS_ANY_NUMBER, .epoch = RFS_ANY_NUMBER};
    if (rfs_catalog_open(&spec, NULL, NULL, &w->catalog, &w->err))
        fail_msg("%s", w->err.text);
    w->params = calloc(1, sizeof *w->params);
    assert_non_null(w->params);
    *state = w;
    return 0;
}

int tear_down(void **state)
{
    struct world *w = *state;

    rfs_catalog_close(w->catalog);
    tree_remove(w->root);
    free(w->params);
    free(w);
    return 0;
}

void add_target(struct world *w, const char *name, enum rfs_kind kind, enum rfs_dtype dtype,
                unsigned ndim, const uint64_t *dims, uint64_t bytes)
{
    struct rfs_type type;
    struct rfs_tables *tables = rfs_catalog_tables(w->catalog);

    memset(&type, 0, sizeof type);
    type.bytes = bytes;
    type.ndim = (uint8_t)ndim;
    type.dtype = (uint8_t)dtype;
    type.kind = (uint8_t)kind;
    for (unsigned i = 0; i < ndim; i++)
        type.dims[i] = dims[i];
    if (w->params->n == w->cap) {
        w->cap = 2 * w->cap + 8;
        w->params = realloc(w->params, sizeof *w->params + w->cap * sizeof *w->params->targets);
        assert_non_null(w->params);
    }
    struct rfs_target *target = &w->params->targets[w->params->n++];
    *target = (struct rfs_target){.geometry = RFS_NO_ID, .lengths = RFS_NO_ID};
    target->shown_name = rfs_intern_add(tables->names, name, strlen(name));
    target->shown_type = rfs_intern_add(tables->types, &type, sizeof type);
    assert_int_not_equal(target->shown_name, RFS_NO_ID);
    assert_int_not_equal(target->shown_type, RFS_NO_ID);
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
