/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan's strided copies against a naive model: every element of the whole tensor is a number,
 * ranks hold the elements that cutting device axis by device axis gives them, and a destination
 * slice must come out as the elements that cutting gives the destination rank.
 *
 * Some layouts split axis 0 manually, into any rows, and some by field: the rows of each field are
 * then dealt to all ranks in equal parts.
 *
 * RFS_SEED replays a run; RFS_CASES sets how many cases.
 */
#include "plan/geometry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_WHOLE 4096 /* elements */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 11) % n);
}

struct model {
    uint32_t n_dev, ndim, ranks;
    uint32_t dev[4];
    uint32_t n_cuts[4];
    int32_t cuts[4][4]; /* by tensor axis, outer to inner: device axes from the right */
    int64_t opt;        /* pieces of the optimizer shard, 0 for none */
    bool split;         /* manually: piece k of axis 0 is edge[k] … edge[k + 1] */
    uint64_t edge[257];
    uint32_t field; /* so many fields of field_axis, 0 for none */
    uint32_t field_axis;
};

/* [lo, lo + len) of an axis. */
struct span {
    uint64_t lo, len;
};

static uint32_t coordinate(const struct model *m, uint32_t rank, int32_t from_right)
{
    for (int32_t i = 0; i < from_right; i++)
        rank /= m->dev[m->n_dev - 1 - (uint32_t)i];
    return rank % m->dev[m->n_dev - 1 - (uint32_t)from_right];
}

static void tensor_parallel(const struct model *m, const uint64_t *whole, uint32_t rank,
                            struct span *box)
{
    for (uint32_t a = 0; a < m->ndim; a++) {
        box[a] = (struct span){0, whole[a]};
        if (a == 0 && m->split) {
            const uint32_t k = m->n_cuts[0] > 0 ? coordinate(m, rank, m->cuts[0][0]) : 0;
            box[0] = (struct span){m->edge[k], m->edge[k + 1] - m->edge[k]};
            continue;
        }
        for (uint32_t c = 0; c < m->n_cuts[a]; c++) {
            const int32_t axis = m->cuts[a][c];
            box[a].len /= m->dev[m->n_dev - 1 - (uint32_t)axis];
            box[a].lo += box[a].len * coordinate(m, rank, axis);
        }
    }
}

/*
 * Among the ranks with the same slice, in ascending order, consecutive ones hold consecutive
 * pieces.
 */
static void model_box(const struct model *m, const uint64_t *whole, uint32_t rank, struct span *box)
{
    uint32_t before = 0;

    tensor_parallel(m, whole, rank, box);
    if (m->opt <= 1)
        return;
    for (uint32_t other = 0; other < rank; other++) {
        struct span theirs[4];
        tensor_parallel(m, whole, other, theirs);
        before += memcmp(theirs, box, m->ndim * sizeof *box) == 0;
    }
    box[0].len /= (uint64_t)m->opt;
    box[0].lo += box[0].len * (before % (uint64_t)m->opt);
}

static uint32_t repeats(const struct model *m)
{
    uint32_t cut = 1;
    for (uint32_t a = 0; a < m->ndim; a++)
        for (uint32_t c = 0; c < m->n_cuts[a]; c++)
            cut *= m->dev[m->n_dev - 1 - (uint32_t)m->cuts[a][c]];
    return m->ranks / cut;
}

static uint64_t pieces(const struct model *m, uint32_t axis)
{
    uint64_t n = axis == 0 && m->opt > 1 ? (uint64_t)m->opt : 1;
    for (uint32_t c = 0; c < m->n_cuts[axis]; c++)
        n *= m->dev[m->n_dev - 1 - (uint32_t)m->cuts[axis][c]];
    return n;
}

/* What the whole extent of an axis must be a multiple of. */
static uint64_t divisor(const struct model *m, uint32_t axis)
{
    if (axis == 0 && m->split)
        return 1;
    return pieces(m, axis) * (axis == m->field_axis && m->field > 0 ? m->field : 1);
}

/* A size of optimizer shard that the repeated device axes allow, taken from the right. */
static int64_t random_opt(const struct model *m)
{
    int64_t size = 1;

    if (m->ndim == 0 || repeats(m) == 1 || below(2))
        return 0;
    for (uint32_t axis = 0; axis < m->n_dev; axis++) {
        bool used = false;
        const uint32_t extent = m->dev[m->n_dev - 1 - axis];
        for (uint32_t a = 0; a < m->ndim; a++)
            for (uint32_t c = 0; c < m->n_cuts[a]; c++)
                used |= m->cuts[a][c] == (int32_t)axis;
        if (used || extent == 1)
            continue;
        if (extent % 2 == 0 && below(4) == 0)
            return size * (extent / 2 > 1 ? extent / 2 : 2);
        size *= extent;
        if (below(2))
            break;
    }
    return size;
}

static void random_model(struct model *m, uint32_t ndim)
{
    static const uint32_t extents[] = {1, 2, 2, 2, 3, 4};

    *m = (struct model){.n_dev = 1 + below(4), .ndim = ndim, .ranks = 1};
    for (uint32_t i = 0; i < m->n_dev; i++) {
        m->dev[i] = extents[below(6)];
        m->ranks *= m->dev[i];
    }
    for (int32_t axis = 0; axis < (int32_t)m->n_dev && ndim > 0; axis++) {
        const uint32_t a = below(ndim + 1);
        if (a == ndim)
            continue; /* this device axis repeats */
        m->cuts[a][m->n_cuts[a]++] = axis;
        if (m->n_cuts[a] > 1 && below(2)) { /* any order of cuts */
            const int32_t swap = m->cuts[a][0];
            m->cuts[a][0] = axis;
            m->cuts[a][m->n_cuts[a] - 1] = swap;
        }
    }
    m->opt = random_opt(m);
}

/* Makes one of the axes that are cut one of fields. */
static void random_field(struct model *m)
{
    m->opt = 0;
    for (uint32_t i = 0, a = below(4); i < m->ndim && m->field == 0; i++, a++)
        if (pieces(m, a % m->ndim) > 1) {
            m->field = 1 + below(4);
            m->field_axis = a % m->ndim;
        }
}

/* Makes the cut of axis 0 a manual split if it may be one. */
static void random_split(struct model *m)
{
    bool plain = m->ndim > 0 && m->opt <= 1 && m->field == 0;

    for (uint32_t a = 0; a < m->ndim; a++)
        plain &= m->n_cuts[a] <= 1;
    m->split = plain && below(2);
}

/* Rows for the manual split, 1 at least for each piece. */
static void random_edges(struct model *m, uint64_t rows)
{
    const uint64_t n = pieces(m, 0);

    for (uint64_t k = 0; k + 1 < n; k++)
        m->edge[k + 1] = m->edge[k] + 1 + below((uint32_t)(rows - m->edge[k] - (n - k) + 1));
    m->edge[n] = rows;
}

static void model_layout(const struct model *m, struct rfs_layout *layout)
{
    uint32_t at = 0;

    *layout = (struct rfs_layout){.n_dev = m->n_dev, .devices = m->ranks, .n_axes = m->ndim};
    memcpy(layout->dev, m->dev, m->n_dev * sizeof *m->dev);
    for (uint32_t a = 0; a < m->ndim; a++) {
        layout->start[a] = at;
        if (m->n_cuts[a] == 0)
            layout->map[at++] = -1;
        for (uint32_t c = 0; c < m->n_cuts[a]; c++)
            layout->map[at++] = m->cuts[a][c];
    }
    layout->start[m->ndim] = at;
    layout->opt_size = (uint32_t)m->opt;
    layout->opt_step = m->opt > 0;
    layout->field = m->field;
    layout->field_axis = m->field_axis;
    if (m->split) {
        layout->edge = m->edge;
        layout->n_edges = (uint32_t)pieces(m, 0) + 1;
    }
}

static uint64_t volume(const struct span *box, uint32_t ndim)
{
    uint64_t n = 1;
    for (uint32_t a = 0; a < ndim; a++)
        n *= box[a].len;
    return n;
}

/* The place in the whole of place AT of a slice along the axis that is dealt by field. */
static uint64_t dealt(const struct model *m, const struct span *box, uint64_t at)
{
    const uint64_t part = box->len / m->field; /* of a field, in one rank */
    return at / part * part * pieces(m, m->field_axis) + box->lo / box->len * part + at % part;
}

/* The whole tensor's flat number of the element at FLAT in the box. */
static uint64_t number_in_whole(const struct model *m, const struct span *box,
                                const uint64_t *whole, uint64_t flat)
{
    uint64_t number = 0;
    uint64_t weight = 1;

    for (uint32_t a = m->ndim; a-- > 0;) {
        const uint64_t at = flat % box[a].len;
        const bool by_field = m->field > 0 && a == m->field_axis;
        number += weight * (by_field ? dealt(m, &box[a], at) : box[a].lo + at);
        flat /= box[a].len;
        weight *= whole[a];
    }
    return number;
}

/* Element number N as ITEM bytes that differ in each place. */
static void put_element(unsigned char *at, uint32_t item, uint64_t n)
{
    for (uint32_t b = 0; b < item; b++)
        at[b] = (unsigned char)((n >> (8 * (b % 2))) + 31 * b);
}

static unsigned char *fill(const struct model *m, uint32_t rank, const uint64_t *whole,
                           uint32_t item, uint64_t *bytes)
{
    struct span box[4];
    model_box(m, whole, rank, box);
    const uint64_t n = volume(box, m->ndim);
    unsigned char *data = malloc(n * item);

    assert_non_null(data);
    for (uint64_t i = 0; i < n; i++)
        put_element(data + i * item, item, number_in_whole(m, box, whole, i));
    *bytes = n * item;
    return data;
}

static void run_block(const struct rfs_block *block, uint32_t loop, uint64_t dst, uint64_t src,
                      unsigned char *out, unsigned char *written, const unsigned char *in,
                      uint64_t out_bytes, uint64_t in_bytes)
{
    if (loop < block->n_loops) {
        for (uint64_t i = 0; i < block->loop[loop].count; i++)
            run_block(block, loop + 1, dst + i * block->loop[loop].dst_stride,
                      src + i * block->loop[loop].src_stride, out, written, in, out_bytes,
                      in_bytes);
        return;
    }
    assert_true(dst >= block->dst && dst + block->run <= block->dst_end);
    assert_true(dst + block->run <= out_bytes);
    assert_true(src + block->run <= in_bytes);
    for (uint64_t i = 0; i < block->run; i++) {
        assert_int_equal(written[dst + i], 0); /* each byte once */
        written[dst + i] = 1;
        out[dst + i] = in[src + i];
    }
}

static void check_strides(const struct rfs_block *block)
{
    uint64_t inner = block->run;
    for (uint32_t i = block->n_loops; i-- > 0;) {
        assert_true(block->loop[i].count > 1);
        assert_true(block->loop[i].dst_stride >= inner);
        inner = block->loop[i].dst_stride * (block->loop[i].count - 1) + inner;
    }
    assert_int_equal(block->dst_end, block->dst + inner);
}

static void check_rank(const struct rfs_geometry *geometry, const struct model *src,
                       const struct model *dst, const uint64_t *whole, uint32_t rank)
{
    struct rfs_cells cells;
    uint32_t cell[RFS_MAX_DIMS];
    uint64_t bytes;

    unsigned char *expected = fill(dst, rank, whole, geometry->item, &bytes);
    unsigned char *got = calloc(1, bytes);
    unsigned char *written = calloc(1, bytes);
    assert_true(got && written);
    rfs_geometry_cells(geometry, rank, &cells, cell);
    do {
        struct rfs_block block;
        uint64_t in_bytes;
        const uint32_t holder = rfs_grid_holder(&geometry->src, cell, rank % src->ranks);
        assert_true(holder < src->ranks);
        unsigned char *in = fill(src, holder, whole, geometry->item, &in_bytes);
        struct rfs_geometry_stored stored;
        rfs_geometry_cell(geometry, cell, NULL, &stored);
        rfs_geometry_block(geometry, &cells, &stored, &block);
        check_strides(&block);
        run_block(&block, 0, block.dst, block.src, got, written, in, bytes, in_bytes);
        free(in);
    } while (rfs_geometry_cells_next(geometry, &cells, cell));
    assert_null(memchr(written, 0, bytes));
    assert_memory_equal(got, expected, bytes);
    free(written);
    free(got);
    free(expected);
}

static bool random_shape(struct model *src, struct model *dst, uint64_t *whole)
{
    uint64_t total = 1;

    for (uint32_t a = 0; a < src->ndim; a++) {
        const uint64_t m = divisor(src, a);
        const uint64_t n = divisor(dst, a);
        uint64_t both = m;
        while (both % n)
            both += m;
        whole[a] = both * (1 + below(3));
        while (a == 0 && (whole[0] < pieces(src, 0) || whole[0] < pieces(dst, 0)))
            whole[0] += both;
        total *= whole[a];
    }
    if (src->split)
        random_edges(src, whole[0]);
    if (dst->split)
        random_edges(dst, whole[0]);
    return total <= MAX_WHOLE;
}

static void test_against_naive_model(void **unused)
{
    static const uint8_t dtypes[] = {RFS_INT8, RFS_FLOAT16, RFS_FLOAT32, RFS_FLOAT64};
    const char *seed = getenv("RFS_SEED");
    const char *cases = getenv("RFS_CASES");
    const uint64_t start = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    const int n = cases ? atoi(cases) : 4000;
    int done = 0, splits = 0, fields = 0;

    (void)unused;
    print_message("RFS_SEED=%llu\n", (unsigned long long)start);
    for (uint64_t i = 0; done < n; i++) {
        struct model src, dst;
        struct rfs_layout src_layout, dst_layout;
        struct rfs_geometry geometry;
        struct rfs_error err = {0};
        uint64_t whole[4] = {0};
        struct span box[4] = {{0, 0}};
        uint64_t dims[RFS_MAX_DIMS] = {0};

        state = (start + i) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        random_model(&src, below(5));
        random_model(&dst, src.ndim);
        if (below(4) == 0)
            random_field(&src);
        if (below(4) == 0)
            random_field(&dst);
        random_split(&src);
        random_split(&dst);
        if (!random_shape(&src, &dst, whole))
            continue;
        model_layout(&src, &src_layout);
        model_layout(&dst, &dst_layout);
        model_box(&src, whole, below(src.ranks), box); /* of any rank */
        struct rfs_type type = {.ndim = (uint8_t)src.ndim, .dtype = dtypes[below(4)]};
        for (uint32_t a = 0; a < src.ndim; a++)
            type.dims[a] = box[a].len;
        if (rfs_geometry_resolve(&type, &src_layout, &dst_layout, "src", "dst", "w", &geometry,
                                 &err))
            fail_msg("case %llu: %s", (unsigned long long)i, err.text);
        for (uint32_t a = 0; a < src.ndim; a++)
            assert_int_equal(geometry.whole[a], whole[a]);
        splits += src.split + dst.split;
        fields += (src.field > 0) + (dst.field > 0);
        const uint32_t some = below(dst.ranks);
        rfs_grid_slice(&geometry.dst, whole, some, dims);
        model_box(&dst, whole, some, box);
        for (uint32_t a = 0; a < dst.ndim; a++)
            assert_int_equal(dims[a], box[a].len);
        check_rank(&geometry, &src, &dst, whole, below(dst.ranks));
        check_rank(&geometry, &src, &dst, whole, dst.ranks - 1);
        done++;
    }
    assert_int_equal(done, n);
    print_message("%d manual splits, %d sliced by field\n", splits, fields);
    assert_true(splits > n / 20 && fields > n / 50);
}

static void test_absent_strategies_are_whole(void **unused)
{
    struct rfs_type type = {.ndim = 2, .dtype = RFS_FLOAT32, .dims = {4, 6}};
    struct rfs_geometry geometry;
    struct rfs_geometry_stored stored;
    struct rfs_cells cells;
    struct rfs_block block;
    uint32_t cell[RFS_MAX_DIMS];

    (void)unused;
    assert_int_equal(rfs_geometry_resolve(&type, NULL, NULL, NULL, NULL, "w", &geometry, NULL), 0);
    assert_int_equal(geometry.whole[0], 4);
    assert_int_equal(geometry.dst_dims[1], 6);
    rfs_geometry_cells(&geometry, 0, &cells, cell);
    rfs_geometry_cell(&geometry, cell, NULL, &stored);
    rfs_geometry_block(&geometry, &cells, &stored, &block);
    assert_int_equal(block.n_loops, 0);
    assert_int_equal(block.run, 96);
}

static void test_refuses_what_does_not_divide(void **unused)
{
    struct rfs_type type = {.ndim = 1, .dtype = RFS_FLOAT32, .dims = {5}};
    struct rfs_layout three = {.n_dev = 1, .dev = {3}, .devices = 3, .n_axes = 1, .start = {0, 1}};
    struct rfs_geometry geometry;
    struct rfs_error err = {0};

    (void)unused;
    assert_true(rfs_geometry_resolve(&type, NULL, &three, NULL, "dst.ckpt", "w", &geometry, &err) <
                0);
    assert_non_null(strstr(err.text, "dst.ckpt"));
    assert_non_null(strstr(err.text, "'w'"));
}

static void test_refuses_a_tensor_too_large_to_address(void **unused)
{
    struct rfs_type type = {
        .ndim = 2, .dtype = RFS_FLOAT32, .dims = {UINT64_C(1) << 31, UINT64_C(1) << 29}};
    struct rfs_layout cut = {
        .n_dev = 1, .dev = {8}, .devices = 8, .n_axes = 2, .start = {0, 1, 2}, .map = {0, -1}};
    struct rfs_geometry geometry;
    struct rfs_error err = {0};

    (void)unused;
    assert_true(rfs_geometry_resolve(&type, &cut, NULL, "s", NULL, "w", &geometry, &err) < 0);
    assert_non_null(strstr(err.text, "2^63"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_naive_model),
        cmocka_unit_test(test_absent_strategies_are_whole),
        cmocka_unit_test(test_refuses_what_does_not_divide),
        cmocka_unit_test(test_refuses_a_tensor_too_large_to_address),
    };
    return cmocka_run_group_tests_name("plan geometry", tests, NULL, NULL);
}
