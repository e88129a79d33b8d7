/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes that MindSpore's own functions computed: tests/fixtures/layout_vectors.tsv. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t number(const char **at)
{
    char *end;
    const long long value = strtoll(*at, &end, 10);

    assert_ptr_not_equal(end, *at);
    *at = end;
    return value;
}

static void tab(const char **at)
{
    assert_int_equal(**at, '\t');
    (*at)++;
}

static uint32_t list(const char **at, uint64_t *values)
{
    uint32_t n = 0;

    do {
        if (n > 0)
            (*at)++;
        values[n++] = (uint64_t)number(at);
    } while (**at == ',');
    return n;
}

static void read_map(const char **at, struct spec *spec)
{
    do {
        if (spec->ndim > 0)
            (*at)++;
        const uint32_t i = spec->ndim++;
        do {
            if (spec->axis[i].n > 0)
                (*at)++;
            spec->axis[i].by[spec->axis[i].n++] = (int32_t)number(at);
        } while (**at == '+');
        if (spec->axis[i].by[0] == -1)
            spec->axis[i].n = 0;
    } while (**at == ',');
}

static void check_line(const char *line)
{
    struct spec spec = {.name = "w"};
    uint64_t dev[6], offset[4], slice[4], got_whole[4], got_slice[4];
    uint32_t cell[RFS_GRID_DIMS];
    struct rfs_grid grid;
    struct text text = {0};

    spec.n_dev = list(&line, dev);
    for (uint32_t i = 0; i < spec.n_dev; i++)
        spec.dev[i] = (uint32_t)dev[i];
    tab(&line);
    read_map(&line, &spec);
    tab(&line);
    assert_int_equal(list(&line, spec.shape), spec.ndim);
    tab(&line);
    spec.step = (int32_t)number(&line);
    tab(&line);
    spec.size = (int32_t)number(&line);
    tab(&line);
    const uint32_t rank = (uint32_t)number(&line);
    tab(&line);
    assert_int_equal(list(&line, offset), spec.ndim);
    tab(&line);
    assert_int_equal(list(&line, slice), spec.ndim);
    write_protobuf(&text, &spec, 1);
    struct rfs_strategy *strategy = parse_text("vector", &text);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, 0, 0);
    for (int of_slice = 0; of_slice < 2; of_slice++) {
        assert_int_equal(rfs_grid_resolve(layout, spec.ndim, of_slice ? slice : spec.shape,
                                          of_slice ? RFS_DIMS_OF_SLICE : RFS_DIMS_OF_WHOLE, &grid,
                                          got_whole, got_slice, RFS_NOWHERE, NULL),
                         0);
        rfs_grid_cell(&grid, rank, cell);
        for (uint32_t i = 0; i < spec.ndim; i++) {
            assert_int_equal(got_whole[i], spec.shape[i]);
            assert_int_equal(got_slice[i], slice[i]);
            assert_int_equal(cell[i] * slice[i], offset[i]);
        }
    }
    rfs_strategy_free(strategy);
    text_free(&text);
}

static void boxes_are_those_of_mindspore(void **unused)
{
    struct text text = read_fixture("layout_vectors.tsv");
    size_t lines = 0;
    char *rest = NULL;

    (void)unused;
    for (char *line = strtok_r(text.data, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        if (line[0] != '#') {
            check_line(line);
            lines++;
        }
    assert_true(lines > 300);
    text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(boxes_are_those_of_mindspore)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
