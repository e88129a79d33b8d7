/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tool writes, read back by the rooms: strategies by the layout room, whose grids must cut
 * as the network meant; source files by the scanner, with every element where its box says.
 */
#include "formats/ckpt/ckpt.h"
#include "formats/image.h"
#include "layout/grid.h"
#include "layout/strategy.h"
#include "tool/example/example.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t ranks[][2] = {{8, 4}, {4, 8}, {6, 4}, {1, 2}, {3, 1}, {7, 12}, {24, 16}};
enum { PAIRS = sizeof ranks / sizeof *ranks };

static const enum rfs_net_kind kinds[] = {RFS_NET_TUTORIAL, RFS_NET_TP,   RFS_NET_MIXED,
                                          RFS_NET_OPT,      RFS_NET_COLS, RFS_NET_ROWS};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void make(size_t kind, size_t pair, enum rfs_dtype dtype, struct rfs_net *net)
{
    struct rfs_error err = {0};
    const struct rfs_net_options options = {
        .kind = kinds[kind],
        .ranks = {ranks[pair][0], ranks[pair][1]},
        .layers = 1,
        .experts = pair % 2 == 0 ? 3 : 0,
        .hidden = 16,
        .size = kinds[kind] >= RFS_NET_COLS ? 20000 : 0,
        .run_bytes = 24,
        .dtype = dtype,
    };
    const int rc = rfs_net_make(&options, net, &err);
    if (rc != 0)
        fail_msg("%s", err.text);
}

/* The example in the format's description: a 4×8 float32 "w". */
static void a_value_head_is_the_one_that_mindspore_writes(void **state)
{
    static const unsigned char want[] = {0x0a, 0x96, 0x01, 0x0a, 0x01, 'w',  0x12, 0x90, 0x01,
                                         0x08, 0x04, 0x08, 0x08, 0x12, 7,    'F',  'l',  'o',
                                         'a',  't',  '3',  '2',  0x1a, 0x80, 0x01};
    const struct rfs_type type = {
        .ndim = 2, .dtype = RFS_FLOAT32, .kind = RFS_TENSOR, .dims = {4, 8}};
    struct rfs_bytes out = {0};
    (void)state;
    assert_true(rfs_ckpt_put_head(&out, "w", 1, &type, 128));
    assert_int_equal(out.n, sizeof want);
    assert_memory_equal(out.data, want, sizeof want);
    rfs_bytes_free(&out);
}

static void compare_cut(const struct rfs_strategy *strategy, const struct rfs_net_param *param,
                        unsigned side, uint32_t n)
{
    struct rfs_error err = {0};
    struct rfs_grid grid;
    const ptrdiff_t at = rfs_strategy_find(strategy, param->name);
    if (!param->shared) {
        assert_true(at < 0);
        return;
    }
    assert_true(at >= 0);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, (size_t)at, 0);
    assert_non_null(layout);
    if (rfs_grid_resolve(layout, param->ndim, param->dims, RFS_DIMS_OF_WHOLE, &grid, NULL, NULL,
                         RFS_NOWHERE, &err) != 0)
        fail_msg("%s: %s", param->name, err.text);
    uint32_t pieces[RFS_NET_DIMS];
    uint32_t step;
    uint32_t shard;
    rfs_net_cut_pieces(&param->cut[side], param->ndim, pieces);
    rfs_net_cut_shard(&param->cut[side], param->ndim, &shard, &step);
    assert_int_equal(layout->opt_step, step);
    assert_int_equal(grid.ranks, n);
    for (uint32_t axis = 0; axis < param->ndim; axis++)
        assert_int_equal(grid.pieces[axis], pieces[axis]);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t want[RFS_NET_DIMS];
        uint32_t got[RFS_GRID_DIMS];
        rfs_net_cut_cell(&param->cut[side], param->ndim, rank, want);
        rfs_grid_cell(&grid, rank, got);
        for (uint32_t axis = 0; axis < param->ndim; axis++)
            assert_int_equal(got[axis], want[axis]);
    }
}

static void the_layout_room_cuts_as_the_network_meant(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < PAIRS * 2; i++) {
            const unsigned side = i % 2;
            struct rfs_net net;
            char *data = NULL;
            size_t size = 0;
            struct rfs_strategy *strategy = NULL;
            struct rfs_error err = {0};
            size_t shared = 0;
            make(kind, i / 2, RFS_FLOAT32, &net);
            if (rfs_example_write_strategy(&net, side, &data, &size, &err) != 0)
                fail_msg("%s", err.text);
            if (rfs_strategy_parse("a.ckpt", data, size, &strategy, &err) != 0)
                fail_msg("%s", err.text);
            assert_int_equal(rfs_strategy_stages(strategy), 1);
            assert_int_equal(rfs_strategy_devices(strategy), net.ranks[side]);
            for (size_t p = 0; p < net.params.n; p++) {
                compare_cut(strategy, &net.params.data[p], side, net.ranks[side]);
                shared += net.params.data[p].shared;
            }
            assert_int_equal(rfs_strategy_count(strategy), shared);
            rfs_strategy_free(strategy);
            free(data);
            rfs_net_free(&net);
        }
}

static int read_at(void *ctx, void *buf, size_t n, uint64_t offset)
{
    return pread(*(int *)ctx, buf, n, (off_t)offset) == (ssize_t)n ? 0 : -EIO;
}

/* Each element of one value, computed alone from its place in the whole tensor. */
static void compare_content(const struct rfs_net_param *param, uint64_t seed, uint32_t rank,
                            const struct rfs_type *type, const unsigned char *content)
{
    uint32_t cell[RFS_NET_DIMS] = {0, 0};
    uint64_t slice[RFS_NET_DIMS] = {1, 1};
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    char name[sizeof param->name + 16];
    if (param->shared) {
        rfs_net_cut_cell(&param->cut[0], param->ndim, rank, cell);
        rfs_net_cut_pieces(&param->cut[0], param->ndim, pieces);
    }
    assert_int_equal(type->ndim, param->ndim);
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
        assert_int_equal(param->dims[axis] % pieces[axis], 0);
        slice[axis] = param->dims[axis] / pieces[axis];
        assert_int_equal(type->dims[axis], slice[axis]);
    }
    if (param->per_rank)
        snprintf(name, sizeof name, "%s@%u", param->name, rank);
    else
        snprintf(name, sizeof name, "%s", param->name);
    const uint64_t key = rfs_net_value_key(seed, name);
    const uint32_t bytes = rfs_net_value_bytes(param->dtype);
    const uint64_t columns = param->ndim == 2 ? param->dims[1] : 1;
    for (uint64_t i = 0; i < slice[0]; i++)
        for (uint64_t j = 0; j < slice[1]; j++) {
            unsigned char want[8];
            const uint64_t at = (cell[0] * slice[0] + i) * columns + cell[1] * slice[1] + j;
            rfs_net_value_fill(key, param->dtype, at, 1, want);
            assert_memory_equal(content + (i * slice[1] + j) * bytes, want, bytes);
        }
}

static void compare_rank(const struct rfs_net *net, uint64_t seed, uint32_t rank)
{
    struct rfs_error err = {0};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    struct stat st;
    FILE *file = tmpfile();
    assert_non_null(file);
    int fd = fileno(file);
    if (rfs_example_write_rank(net, seed, rank, fd, "rank", NULL, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(fstat(fd, &st), 0);
    if (rfs_ckpt_walk(RFS_BYTES_SOURCE(read_at, &fd, (uint64_t)st.st_size, "rank"), &tables, &index,
                      &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(index->n, net->params.n);
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_net_param *param = &net->params.data[i];
        const struct rfs_type *type = rfs_intern_bytes(tables.types, index->entries[i].type, NULL);
        assert_string_equal(rfs_intern_text(tables.names, index->entries[i].name), param->name);
        assert_int_equal(type->dtype, param->dtype);
        unsigned char *content = malloc(type->bytes);
        assert_non_null(content);
        assert_int_equal(read_at(&fd, content, type->bytes, index->entries[i].offset), 0);
        compare_content(param, seed, rank, type, content);
        free(content);
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    fclose(file);
}

static void source_files_hold_the_slices_that_the_strategy_says(void **state)
{
    static const enum rfs_dtype dtypes[] = {RFS_FLOAT32, RFS_BFLOAT16, RFS_INT8};
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t pair = 0; pair < PAIRS; pair++) {
            struct rfs_net net;
            make(kind, pair, dtypes[(kind + pair) % 3], &net);
            compare_rank(&net, pair, 0);
            compare_rank(&net, pair, net.ranks[0] / 2);
            compare_rank(&net, pair, net.ranks[0] - 1);
            rfs_net_free(&net);
        }
}

static void a_full_disk_is_an_error_that_names_file_and_parameter(void **state)
{
    struct rfs_net net;
    struct rfs_error err = {0};
    FILE *full = fopen("/dev/full", "w");
    (void)state;
    if (full == NULL)
        skip();
    make(0, 0, RFS_FLOAT32, &net);
    assert_int_equal(rfs_example_write_rank(&net, 1, 0, fileno(full), "out.ckpt", NULL, &err),
                     -ENOSPC);
    assert_non_null(strstr(err.text, "out.ckpt"));
    assert_non_null(strstr(err.text, "'layer1.weight'"));
    fclose(full);
    rfs_net_free(&net);
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    struct rfs_net net;
    struct rfs_error err = {0};
    struct rfs_net_options options = {
        .kind = RFS_NET_COLS, .ranks = {8, 4}, .run_bytes = 6, .dtype = RFS_FLOAT32};
    (void)state;
    assert_int_equal(rfs_net_make(&options, &net, &err), -EINVAL);
    assert_true(err.usage);
    options = (struct rfs_net_options){
        .kind = RFS_NET_TP, .ranks = {8, 4}, .hidden = UINT64_MAX, .dtype = RFS_FLOAT32};
    assert_int_equal(rfs_net_make(&options, &net, &err), -EINVAL);
    options = (struct rfs_net_options){.kind = RFS_NET_ROWS,
                                       .ranks = {8, 4},
                                       .layers = 10000,
                                       .hidden = UINT64_C(1) << 36,
                                       .size = INT64_MAX,
                                       .dtype = RFS_FLOAT64};
    assert_int_equal(rfs_net_make(&options, &net, &err), -EINVAL);
    /* More parameters than one may wish for: many layers are one matrix each, or few experts. */
    options = (struct rfs_net_options){
        .kind = RFS_NET_MIXED, .ranks = {8, 4}, .layers = 1000, .dtype = RFS_FLOAT32};
    for (int more = 0; more < 2; more++) {
        options.experts = more ? 400 : 100;
        assert_int_equal(rfs_net_make(&options, &net, &err), more ? -EINVAL : 0);
        assert_true(more || net.params.n > 3 * 2 * 100 * 1000);
        rfs_net_free(&net);
    }
    options = (struct rfs_net_options){
        .kind = RFS_NET_ROWS, .ranks = {8, 4}, .layers = 100000, .size = 1, .dtype = RFS_FLOAT32};
    assert_int_equal(rfs_net_make(&options, &net, &err), 0);
    assert_true(net.params.n > 100000);
    rfs_net_free(&net);
}

static void a_wanted_size_is_met(void **state)
{
    (void)state;
    for (size_t turn = 0; turn < 2 * RFS_NET_ROWS + 2; turn++) {
        struct rfs_net net;
        struct rfs_error err = {0};
        const enum rfs_net_kind kind = (enum rfs_net_kind)(turn / 2);
        if (kind == RFS_NET_TUTORIAL)
            continue;
        const struct rfs_net_options options = {.kind = kind,
                                                .ranks = {8, 4},
                                                .experts = turn % 2 ? 2 : 0,
                                                .size = 50000000,
                                                .dtype = RFS_FLOAT32};
        assert_int_equal(rfs_net_make(&options, &net, &err), 0);
        assert_in_range(net.bytes, 49500000, 60000000);
        rfs_net_free(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_head_is_the_one_that_mindspore_writes),
        cmocka_unit_test(the_layout_room_cuts_as_the_network_meant),
        cmocka_unit_test(source_files_hold_the_slices_that_the_strategy_says),
        cmocka_unit_test(a_full_disk_is_an_error_that_names_file_and_parameter),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(a_wanted_size_is_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
