/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules that compute values, made up at random, in both directions. With 0 in place of their
 * numbers, and without pad, they move elements alone, which other tests prove. What they add to an
 * element is read from a source of zeros. Each element must be the sum of these two, by a slow
 * model of the addition; and whatever tells of bytes or reads them must know that they are
 * computed. The seed is printed, and replayed from RFS_SEED.
 */
#include "reshard.h"
#include "survey/origins.h"
#include "tests/support/loads.h"
#include "tests/unit/view/support.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 60
#define MOST_TENSORS 64
#define RANKS 2

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    return test_below(&rng, n);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A type: bytes, bits of the fraction and of the exponent. */
static const struct format {
    const char *name;
    unsigned bytes, fraction, exponent;
} formats[] = {
    {"BFloat16", 2, 7, 8}, {"Float16", 2, 10, 5}, {"Float32", 4, 23, 8}, {"Float64", 8, 52, 11}};

static double value_of(const struct format *format, uint64_t bits)
{
    const unsigned f = format->fraction;
    const int bias = (1 << (format->exponent - 1)) - 1;
    const double sign = bits >> (f + format->exponent) ? -1 : 1;
    const uint64_t e = bits >> f & ((1u << format->exponent) - 1);
    const uint64_t m = bits & ((UINT64_C(1) << f) - 1);

    if (e == (1u << format->exponent) - 1)
        return m ? (double)NAN : sign * (double)INFINITY;
    return sign * (e == 0 ? ldexp((double)m, 1 - bias - (int)f)
                          : ldexp((double)(m | UINT64_C(1) << f), (int)e - bias - (int)f));
}

/* The number of 16 bits that is nearest to a value of float32; of two, the even one. */
static uint64_t nearest(const struct format *format, double value)
{
    const uint64_t infinite =
        (UINT64_C(1) << (format->fraction + format->exponent)) - (UINT64_C(1) << format->fraction);
    const uint64_t sign = signbit(value) ? UINT64_C(1) << 15 : 0;
    uint64_t low = 0;

    value = fabs(value);
    for (uint64_t step = 1u << 14; step > 0; step /= 2)
        if (low + step <= infinite && value_of(format, low + step) <= value)
            low += step;
    if (low >= infinite)
        return sign | infinite;
    /* Beyond the largest number the next one would be where infinity is. */
    const double below_it = value_of(format, low);
    const double above =
        low + 1 == infinite ? 2 * below_it - value_of(format, low - 1) : value_of(format, low + 1);
    const double half = (below_it + above) / 2;
    return sign | (value > half || (value == half && low % 2 == 1) ? low + 1 : low);
}

static uint64_t added(const struct format *format, uint64_t bits, double plus)
{
    const double value = value_of(format, bits);

    if (format->bytes == 2)
        return nearest(format, (double)((float)value + (float)plus));
    uint64_t out = 0;
    if (format->bytes == 4)
        memcpy(&out, &(float){(float)value + (float)plus}, 4);
    else
        memcpy(&out, &(double){value + plus}, 8);
    return out;
}

static void test_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (uint64_t bits = 0; bits < 65536; bits++) {
            const double value = value_of(&formats[i], bits);
            if (!isnan(value))
                assert_int_equal(nearest(&formats[i], value), bits);
        }
    /*
     * 1 + 2^-8 lies between two numbers of bfloat16, and becomes the even one; so does 1 + 3 *
     * 2^-8.
     */
    assert_int_equal(added(&formats[0], 0x3b80, 1), 0x3f80);
    assert_int_equal(added(&formats[0], 0x3c40, 1), 0x3f82);
    assert_int_equal(added(&formats[1], 0x7bff, 1), 0x7bff);
}

/* ---- sources --------------------------------------------------------------------------------- */

struct tensor {
    char name[32];
    unsigned ndim;
    uint64_t dims[3];
    bool zeros;
};

struct side {
    struct tensor tensors[MOST_TENSORS];
    size_t n;
};

static struct side right;
/* The rules; and those that move elements alone, of the right side and of the left one. */
static char texts[3][1 << 14];
static const char *const rules = texts[0];
static const struct format *format;

static uint64_t elements(const struct tensor *tensor)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < tensor->ndim; i++)
        n *= tensor->dims[i];
    return n;
}

/* A number that is no NaN: often one near to 1 or 0. */
static uint64_t any_number(void)
{
    const uint64_t bits = (uint64_t)below(65536) << 48 | (uint64_t)below(65536) << 32 |
                          (uint64_t)below(65536) << 16 | below(65536);
    const uint64_t number = bits >> (64 - 8 * format->bytes);
    const uint64_t e = ((UINT64_C(1) << format->exponent) - 1) << format->fraction;

    if (below(2)) {
        const uint64_t one = (e >> 1) & ~((UINT64_C(1) << format->fraction) - 1);
        const uint64_t sign = below(2) ? UINT64_C(1) << (8 * format->bytes - 1) : 0;
        return sign | (one - (UINT64_C(1) << format->fraction) * below(format->fraction + 4) +
                       (number & ((UINT64_C(1) << format->fraction) - 1)));
    }
    return (number & e) == e ? number & ~((UINT64_C(1) << format->fraction) - 1) : number;
}

static void write_source(const char *root, const char *folder, const struct side *side, bool zeros)
{
    struct bytes file = {0};
    char path[64];

    for (size_t i = 0; i < side->n; i++) {
        const struct tensor *tensor = &side->tensors[i];
        const uint64_t n = elements(tensor);
        unsigned char *data = calloc(n + 1, format->bytes);
        assert_non_null(data);
        for (uint64_t k = 0; !zeros && !tensor->zeros && k < n; k++) {
            const uint64_t bits = any_number();
            memcpy(data + k * format->bytes, &bits, format->bytes);
        }
        ckpt_tensor(&file, tensor->name, format->name, tensor->ndim, tensor->dims, data,
                    n * format->bytes);
        free(data);
    }
    snprintf(path, sizeof path, "%s/rank_0/net.ckpt", folder);
    tree_write(root, path, file.data, file.n);
    bytes_free(&file);
}

/* ---- rules ----------------------------------------------------------------------------------- */

#define PUT_TO(text, ...)                                                                          \
    snprintf((text) + strlen(text), sizeof texts[0] - strlen(text), __VA_ARGS__)
#define PUT(...)                                                                                   \
    (PUT_TO(texts[0], __VA_ARGS__), PUT_TO(texts[1], __VA_ARGS__), PUT_TO(texts[2], __VA_ARGS__))

static void put_tensor(const char *name, uint64_t factor, uint64_t rows, uint64_t columns)
{
    struct tensor *tensor = &right.tensors[right.n++];

    assert_true(right.n < MOST_TENSORS);
    *tensor = (struct tensor){.ndim = 2, .dims = {factor * rows, columns}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    PUT("%s [%llu * %llu, %llu]", name, (unsigned long long)factor, (unsigned long long)rows,
        (unsigned long long)columns);
}

static void put_number(int number, const char *and)
{
    PUT_TO(texts[0], "plus(%d%s, ", number, and);
    PUT_TO(texts[1], "plus(0, ");
    PUT_TO(texts[2], "plus(0, ");
}

/* Writes a tensor, or one that a number is added to, and AND ("" or " + i") to that. */
static void put_plus(const char *name, uint64_t factor, uint64_t rows, uint64_t columns,
                     const char *and)
{
    const bool plus = below(4) > 0;
    const int number = (int)below(3) == 0 ? (int)below(513) - 256 : below(2) ? 1 : -1;

    if (plus)
        put_number(number > 250 ? 250 : number, and);
    put_tensor(name, factor, rows, columns);
    if (plus)
        PUT(")");
}

/*
 * Pads the rows of a tensor, or its columns; without pad by a tensor of zeros, or by leaving some
 * out.
 */
static void put_pad(unsigned number, uint64_t rows, uint64_t columns)
{
    const unsigned axis = below(2);
    const uint64_t of[] = {rows, columns};
    const uint64_t more = 2 * below(4);
    char name[32];

    snprintf(name, sizeof name, "right.%u.a", number);
    PUT_TO(texts[0], "left.%u = pad(%u, %llu, ", number, axis,
           (unsigned long long)(of[axis] + more));
    PUT_TO(texts[1], "left.%u = concat(%u, ", number, axis);
    PUT_TO(texts[2], "rows(%u, 0, %llu, left.%u) = ", axis, (unsigned long long)of[axis], number);
    put_plus(name, 1, rows, columns, "");
    struct tensor *zeros = &right.tensors[right.n++];
    *zeros = (struct tensor){.ndim = 2, .dims = {rows, columns}, .zeros = true};
    zeros->dims[axis] = more;
    snprintf(zeros->name, sizeof zeros->name, "right.%u.z", number);
    PUT_TO(texts[0], ")\n");
    PUT_TO(texts[1], ", right.%u.z [%llu, %llu])\n", number, (unsigned long long)zeros->dims[0],
           (unsigned long long)zeros->dims[1]);
    PUT_TO(texts[2], "\n");
}

enum kind { PLAIN, CONCAT, HALVES, GROUPS, TRANSPOSE, STACK, PARTS, PAD, KINDS };

static void put_rule(enum kind kind, unsigned number, uint64_t rows, uint64_t columns)
{
    char name[2][32];

    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "right.%u.%c", number, 'a' + i);
    if (kind == PAD) {
        put_pad(number, rows, columns);
        return;
    }
    PUT("left.%u = ", number);
    switch (kind) {
    case PLAIN:
        put_plus(name[0], 1, rows, columns, "");
        break;
    case CONCAT:
        PUT("concat(0, ");
        put_plus(name[0], 1, rows, columns, "");
        PUT(", ");
        put_plus(name[1], 2, rows, columns, "");
        PUT(")");
        break;
    case HALVES: /* one after the other on both sides, with a number of its own for each */
        PUT("concat(0, ");
        put_number(1, "");
        PUT("rows(0, 0, %llu, ", (unsigned long long)rows);
        put_tensor(name[0], 2, rows, columns);
        PUT(")), ");
        put_number(2, "");
        PUT("rows(0, %llu, %llu, ", (unsigned long long)rows, (unsigned long long)rows);
        put_tensor(name[0], 2, rows, columns);
        right.n--;
        PUT(")))");
        break;
    case GROUPS:
        PUT("groups(%llu, 0, ", (unsigned long long)rows);
        put_plus(name[0], rows, 1 + below(3), columns, "");
        PUT(", ");
        put_plus(name[1], rows, 1, columns, "");
        PUT(")");
        break;
    case TRANSPOSE:
        PUT("transpose(");
        put_plus(name[0], 1, rows, columns, "");
        PUT(")");
        break;
    case STACK:
        PUT("stack(i, 0, ");
        snprintf(name[0], sizeof name[0], "right.%u.0", number);
        put_plus(name[0], 1, rows, columns, " + i");
        for (unsigned i = 0; i < 3; i++) { /* the hole in place of the number */
            char *at = strstr(texts[i], name[0]);
            memmove(at + strlen(name[0]) + 2, at + strlen(name[0]),
                    strlen(at + strlen(name[0])) + 1);
            memcpy(at + strlen(name[0]) - 1, "{i}", 3);
        }
        for (unsigned i = 1; i < 3; i++) {
            right.tensors[right.n] = right.tensors[right.n - 1];
            snprintf(right.tensors[right.n++].name, 32, "right.%u.%u", number, i);
        }
        PUT(")");
        break;
    default:
        PUT("rows(0, 0, %llu, ", (unsigned long long)rows);
        put_tensor(name[0], 3, rows, columns);
        PUT(")\nleft.%u.rest = ", number);
        put_number(7, "");
        PUT("rows(0, %llu, %llu, ", (unsigned long long)rows, (unsigned long long)(2 * rows));
        put_tensor(name[0], 3, rows, columns);
        right.n--;
        PUT("))");
        break;
    }
    PUT("\n");
}

/* ---- views ----------------------------------------------------------------------------------- */

static reshard_view *open_by(const char *root, const char *source, const char *by, const char *more)
{
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;
    char options[2048];

    snprintf(
        options, sizeof options,
        "convert=%s,hf_config=%s,format=safetensors,dst_ranks=%d,dst_rules=*: axis -1 over all%s",
        tree_path(root, by), tree_path(root, "config.json"), RANKS, more);
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    if (reshard_open(tree_path(root, source), &config, &view, &err))
        fail_msg("%s\n%s", err.message, rules);
    return view;
}

static uint64_t rank_file(reshard_view *view, unsigned rank)
{
    char name[64];
    uint64_t id;

    snprintf(name, sizeof name, "rank_%u", rank);
    assert_int_equal(reshard_lookup(view, RESHARD_ROOT, name, &id), 0);
    snprintf(name, sizeof name, "checkpoint_%u.safetensors", rank);
    assert_int_equal(reshard_lookup(view, id, name, &id), 0);
    return id;
}

static struct bytes read_file(reshard_view *view, unsigned rank)
{
    reshard_stat st = {.struct_size = sizeof st};
    reshard_error err = {.struct_size = sizeof err};
    struct bytes out = {0};

    if (reshard_getattr(view, rank_file(view, rank), &st, &err))
        fail_msg("%s\n%s", err.message, rules);
    out.data = malloc(st.size + 1);
    assert_non_null(out.data);
    out.n = st.size;
    assert_int_equal(reshard_pread(view, st.id, out.data, st.size + 1, 0), st.size);
    return out;
}

/* Where the tensors begin. */
static size_t head_of(const struct bytes *file)
{
    uint64_t n;

    memcpy(&n, file->data, sizeof n);
    return (size_t)n + sizeof n;
}

/* What the file must have: each element of MOVED and what ZEROS has in its place. */
static void add_up(struct bytes *moved, const struct bytes *zeros)
{
    assert_int_equal(moved->n, zeros->n);
    for (size_t at = head_of(moved); at < moved->n; at += format->bytes) {
        uint64_t bits = 0;
        uint64_t plus = 0;
        memcpy(&bits, moved->data + at, format->bytes);
        memcpy(&plus, zeros->data + at, format->bytes);
        if (value_of(format, plus) == 0)
            continue;
        bits = added(format, bits, value_of(format, plus));
        memcpy(moved->data + at, &bits, format->bytes);
    }
}

/* Reads at random, lent and copied, also inside of elements. */
static void check_reads(reshard_view *view, unsigned rank, const struct bytes *want)
{
    static unsigned char buf[(1 << 18) + RESHARD_SCRATCH_EXTRA];
    reshard_reader *reader;

    assert_int_equal(reshard_reader_open(view, rank_file(view, rank), &reader), 0);
    for (unsigned i = 0; i < 40; i++) {
        const uint64_t offset = below((uint32_t)want->n);
        const size_t left = want->n - (size_t)offset;
        size_t size = 1 + below(below(2) ? 20 : 1 << 18);
        struct iovec iov[16];
        reshard_loan *loan;
        int n;

        size = size < left ? size : left;
        assert_int_equal(reshard_reader_pread(reader, buf, size, offset), size);
        assert_memory_equal(buf, want->data + offset, size);
        assert_int_equal(reshard_reader_borrow(reader, buf, size, offset, iov, 16, &n, &loan),
                         size);
        uint64_t at = offset;
        for (int k = 0; k < n; at += iov[k++].iov_len)
            assert_memory_equal(iov[k].iov_base, want->data + at, iov[k].iov_len);
        reshard_return(loan);
    }
    reshard_reader_close(reader);
}

struct lent {
    const struct rfs_origins_run *run;
    const struct bytes *want;
};

static void compare_lent(void *ctx, int fd)
{
    const struct lent *lent = ctx;
    const size_t n = lent->run->end - lent->run->begin;
    unsigned char *data = malloc(n + 1);

    assert_non_null(data);
    assert_int_equal(pread(fd, data, n, (off_t)lent->run->source), n);
    assert_memory_equal(data, lent->want->data + lent->run->begin, n);
    free(data);
}

/* Plain ranges of a source have the bytes that are shown. Returns how many there are. */
static uint64_t check_runs(reshard_view *view, unsigned rank, const struct bytes *want)
{
    const uint64_t id = rank_file(view, rank);
    struct rfs_origins_run run;
    uint64_t sum = 0;

    for (uint64_t at = 0; rfs_origins_find_run(view, id, at, want->n, 1, &run) == 1; at = run.end) {
        assert_int_equal(rfs_origins_lend(view, &run, compare_lent, &(struct lent){&run, want}), 0);
        sum += run.end - run.begin;
    }
    return sum;
}

/* Ranges with one key have the same bytes, whatever the view adds. */
static void check_keys(reshard_view *view, const struct bytes *file, reshard_view *other,
                       const struct bytes *others, unsigned rank)
{
    for (unsigned i = 0; i < 40; i++) {
        const uint64_t begin = below((uint32_t)file->n);
        const uint64_t end = begin + 1 + below(100);
        const size_t n = (end < file->n ? end : file->n) - begin;
        uint64_t a[2];
        uint64_t b[2];

        assert_int_equal(rfs_origins_key(view, rank_file(view, rank), begin, end, a), 0);
        assert_int_equal(rfs_origins_key(other, rank_file(other, rank), begin, end, b), 0);
        if (a[0] == b[0] && a[1] == b[1])
            assert_memory_equal(file->data + begin, others->data + begin, n);
    }
}

static void check_direction(const char *root, const char *source, const char *zeros,
                            const char *moves)
{
    reshard_view *view = open_by(root, source, "computed.rules", "");
    reshard_view *moved = open_by(root, source, moves, "");
    reshard_view *none = open_by(root, zeros, "computed.rules", below(2) ? ",cache=0" : "");
    struct loads loads;

    for (unsigned rank = 0; rank < RANKS; rank++) {
        struct bytes plain = read_file(moved, rank);
        struct bytes want = read_file(moved, rank);
        struct bytes plus = read_file(none, rank);
        struct bytes have = read_file(view, rank);

        add_up(&want, &plus);
        assert_int_equal(have.n, want.n);
        if (memcmp(have.data, want.data, want.n) != 0)
            fail_msg("other values by these rules, of %s:\n%s", source, rules);
        check_reads(view, rank, &want);
        assert_true(check_runs(moved, rank, &plain) >= check_runs(view, rank, &want));
        check_keys(view, &have, moved, &plain, rank);
        bytes_free(&plain);
        bytes_free(&want);
        bytes_free(&plus);
        bytes_free(&have);
    }
    loads_check(view, rng, true, &loads);
    assert_string_equal(loads.why, "");
    assert_true(loads.boxes > 0 && loads.failed == 0);
    reshard_close(none);
    reshard_close(moved);
    reshard_close(view);
}

/* Notes what the view has, for a source of these tensors. */
static void list_tensors(reshard_view *view, struct side *side)
{
    reshard_error err = {.struct_size = sizeof err};
    reshard_tensors *tensors;

    side->n = 0;
    if (reshard_tensors_open(view, "full", &tensors, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < reshard_tensors_count(tensors); i++) {
        struct tensor *to = &side->tensors[side->n++];
        reshard_tensor tensor = {.struct_size = sizeof tensor};
        assert_int_equal(reshard_tensors_get(tensors, i, &tensor), 0);
        *to = (struct tensor){.ndim = tensor.ndim};
        snprintf(to->name, sizeof to->name, "%s", tensor.name);
        memcpy(to->dims, tensor.shape, tensor.ndim * sizeof *to->dims);
    }
    reshard_tensors_close(tensors);
}

static void check_rules(void)
{
    static struct side left;
    char *root = tree_new();

    tree_write(root, "config.json", "{}", 2);
    tree_write(root, "computed.rules", rules, strlen(rules));
    tree_write(root, "to-left.rules", texts[1], strlen(texts[1]));
    tree_write(root, "to-right.rules", texts[2], strlen(texts[2]));
    write_source(root, "right", &right, false);
    write_source(root, "right0", &right, true);
    reshard_view *view = open_by(root, "right", "to-left.rules", "");
    list_tensors(view, &left);
    reshard_close(view);
    check_direction(root, "right", "right0", "to-left.rules");
    write_source(root, "left", &left, false);
    write_source(root, "left0", &left, true);
    check_direction(root, "left", "left0", "to-right.rules");
    tree_remove(root);
}

static void begin_rules(void)
{
    right.n = 0;
    for (unsigned i = 0; i < 3; i++)
        texts[i][0] = '\0';
    PUT("sides left right\nindex i = 0 .. 3\ndrop right *.z\n");
}

static void test_random_rules(void **state)
{
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned n = 1 + below(5);
        format = &formats[below(4)];
        begin_rules();
        for (unsigned i = 0; i < n; i++)
            put_rule((enum kind)below(KINDS), i, 2 * (1 + below(8)),
                     2 * (1 + below(below(8) == 0 ? 2000 : 8)));
        check_rules();
    }
}

/* Transposed ones that are made in bands, and gathered ones of several pieces. */
static void test_large_tensors(void **state)
{
    (void)state;
    format = &formats[below(2)];
    begin_rules();
    put_rule(TRANSPOSE, 0, 2500, 3500);
    put_rule(TRANSPOSE, 1, 700, 1200);
    put_rule(GROUPS, 2, 300, 1502);
    check_rules();
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Makes left.w of right.w: 1 + 2^-9 as Float32, 1.0 as BFloat16; and -1 the other way. */
static void expect_float32(const char *text, const char *more, const char *dtype, const char *name,
                           float value, float want)
{
    char *root = tree_new();
    struct bytes file = {0};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view;
    char options[1024];
    uint32_t bits;
    float have;

    memcpy(&bits, &value, sizeof bits);
    bits >>= strcmp(dtype, "BFloat16") == 0 ? 16 : 0;
    ckpt_tensor(&file, name, dtype, 1, (uint64_t[]){1}, &bits, strcmp(dtype, "BFloat16") ? 4 : 2);
    tree_write(root, "src/rank_0/net.ckpt", file.data, file.n);
    tree_write(root, "config.json", "{}", 2);
    tree_write(root, "x.rules", text, strlen(text));
    snprintf(options, sizeof options, "convert=%s,hf_config=%s,format=safetensors%s",
             tree_path(root, "x.rules"), tree_path(root, "config.json"), more);
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    if (reshard_open(tree_path(root, "src"), &config, &view, &err))
        fail_msg("%s", err.message);
    struct bytes shown = read_file(view, 0);
    assert_int_equal(shown.n - head_of(&shown), sizeof have);
    memcpy(&have, shown.data + head_of(&shown), sizeof have);
    if (have != want)
        fail_msg("%s%s: %a instead of %a", text, more, (double)have, (double)want);
    bytes_free(&shown);
    bytes_free(&file);
    reshard_close(view);
    tree_remove(root);
}

/* It is added in the type of the source, and what is shown is cast after that. */
static void test_casts_come_last(void **state)
{
#define RULES "sides left right\nleft.w = "
    static const float small = 0x1p-9F;
    (void)state;

    expect_float32(RULES "plus(1, right.w [1])\n", "", "Float32", "right.w", small, 1 + small);
    expect_float32(RULES "plus(1, right.w [1])\n", "", "Float32", "left.w", 1 + small, small);
    expect_float32(RULES "plus(1, right.w [1])\n", ",dtype=float32", "BFloat16", "right.w", small,
                   1);
    expect_float32(RULES "cast(float32, same, plus(1, right.w [1]))\n", "", "BFloat16", "right.w",
                   small, 1);
    expect_float32(RULES "plus(1, cast(float32, same, right.w [1]))\n", "", "BFloat16", "right.w",
                   small, 1);
    expect_float32(RULES "cast(same, float32, plus(1, right.w [1]))\n", "", "BFloat16", "left.w",
                   0x1p-20F, -1 + 0x1p-20F == -1 ? 0 : -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_model),
        cmocka_unit_test(test_random_rules),
        cmocka_unit_test(test_large_tensors),
        cmocka_unit_test(test_casts_come_last),
    };

    rng = test_seed();
    return cmocka_run_group_tests_name("view: computed values", tests, NULL, NULL);
}
