/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard example`: writes an example.
 *
 *     DIR/src/rank_N/checkpoint_N.ckpt    for each source rank, mode 0400 in folders of mode 0700
 *     DIR/src_strategy.ckpt
 *     DIR/dst_strategy.ckpt
 */
#include "tool/example/example.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/first_error.h"
#include "base/io.h"
#include "base/order.h"
#include "base/path.h"
#include "base/pool.h"
#include "base/text.h"
#include "layout/strategy_doc.h"
#include "survey/tensor_file.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define BUFFER ((size_t)1 << 20)
#define MAX_THREADS 8
#define MAX_RANKS 65536
#define REMEDY_RANKS "a number from 1 to 65536"
#define REMEDY "reshard example --help"
#define MAX_DIM (UINT64_C(1) << 40)
#define MAX_LAYERS 100000
#define MAX_EXPERTS 4096
/* A parameter takes 200 bytes, and the strategies several times as much. */
#define MAX_PARAMS 1000000

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t rfs_net_value_key(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return mix(hash ^ mix(seed));
}

/*
 * Masks that are repeated over 8 bytes. Floats keep the sign, two bits of the exponent and the
 * mantissa; the other bits of the exponent are fixed, so that it is 1, 3, 5 or 7 below the one of
 * 1.0.
 */
struct masks {
    uint32_t bytes;
    uint64_t and, or ;
};

static const struct masks masks_of[RFS_DTYPE_COUNT] = {
    [RFS_BOOL] = {1, UINT64_C(0x0101010101010101), 0},
    [RFS_INT8] = {1, UINT64_MAX, 0},
    [RFS_UINT8] = {1, UINT64_MAX, 0},
    [RFS_INT16] = {2, UINT64_MAX, 0},
    [RFS_UINT16] = {2, UINT64_MAX, 0},
    [RFS_INT32] = {4, UINT64_MAX, 0},
    [RFS_UINT32] = {4, UINT64_MAX, 0},
    [RFS_INT64] = {8, UINT64_MAX, 0},
    [RFS_UINT64] = {8, UINT64_MAX, 0},
    [RFS_FLOAT16] = {2, UINT64_C(0x9bff9bff9bff9bff), UINT64_C(0x2000200020002000)},
    [RFS_BFLOAT16] = {2, UINT64_C(0x837f837f837f837f), UINT64_C(0x3c003c003c003c00)},
    [RFS_FLOAT32] = {4, UINT64_C(0x837fffff837fffff), UINT64_C(0x3c0000003c000000)},
    [RFS_FLOAT64] = {8, UINT64_C(0x806fffffffffffff), UINT64_C(0x3f80000000000000)},
};

uint32_t rfs_net_value_bytes(enum rfs_dtype dtype)
{
    return masks_of[dtype].bytes;
}

static uint64_t word(uint64_t key, const struct masks *masks, uint64_t j)
{
    return htole64((mix(key + (j + 1) * UINT64_C(0x9e3779b97f4a7c15)) & masks->and) | masks->or);
}

void rfs_net_value_fill(uint64_t key, enum rfs_dtype dtype, uint64_t first, uint64_t count,
                        void *out)
{
    const struct masks *masks = &masks_of[dtype];
    unsigned char *to = out;
    uint64_t at = first * masks->bytes;
    const uint64_t end = at + count * masks->bytes;
    while (at < end) {
        const uint64_t w = word(key, masks, at / 8);
        const size_t skip = (size_t)(at % 8);
        const size_t left = (size_t)(end - at);
        const size_t n = left < 8 - skip ? left : 8 - skip;
        if (n == 8)
            memcpy(to, &w, 8);
        else
            memcpy(to, (const unsigned char *)&w + skip, n);
        to += n;
        at += n;
    }
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/*
 * Cuts follow the definition: a rank's coordinates are its row-major index in the device matrix.
 * No code is shared with the layout room, so that the examples do not share its mistakes.
 */
/* Returns the position in dev of the device axis that cuts tensor axis AXIS, or -1. */
static int dev_axis(const struct rfs_net_cut *cut, uint32_t axis)
{
    return cut->map[axis] < 0 ? -1 : (int)cut->n_dev - 1 - cut->map[axis];
}

static bool is_repeated(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t dev)
{
    for (uint32_t axis = 0; axis < ndim; axis++)
        if (dev_axis(cut, axis) == (int)dev)
            return false;
    return true;
}

static void coordinates(const struct rfs_net_cut *cut, uint32_t rank, uint32_t *at)
{
    for (uint32_t i = cut->n_dev; i-- > 0;) {
        at[i] = rank % cut->dev[i];
        rank /= cut->dev[i];
    }
}

void rfs_net_cut_shard(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t *size, uint32_t *step)
{
    *size = *step = 0;
    if (!cut->opt)
        return;
    uint32_t stride = 1;
    uint32_t pieces = 1;
    for (uint32_t i = cut->n_dev; i-- > 0; stride *= cut->dev[i]) {
        if (!is_repeated(cut, ndim, i) || cut->dev[i] == 1)
            continue;
        if (*step == 0)
            *step = stride;
        pieces *= cut->dev[i];
    }
    if (pieces > 1)
        *size = pieces;
}

void rfs_net_cut_pieces(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t *pieces)
{
    for (uint32_t axis = 0; axis < ndim; axis++) {
        const int dev = dev_axis(cut, axis);
        pieces[axis] = dev < 0 ? 1 : cut->dev[dev];
    }
    uint32_t size;
    uint32_t step;
    rfs_net_cut_shard(cut, ndim, &size, &step);
    if (size > 1)
        pieces[0] *= size;
}

void rfs_net_cut_cell(const struct rfs_net_cut *cut, uint32_t ndim, uint32_t rank, uint32_t *cell)
{
    uint32_t at[RFS_NET_AXES];
    coordinates(cut, rank, at);
    for (uint32_t axis = 0; axis < ndim; axis++) {
        const int dev = dev_axis(cut, axis);
        cell[axis] = dev < 0 ? 0 : at[dev];
    }
    if (!cut->opt || ndim == 0)
        return;
    for (uint32_t i = 0; i < cut->n_dev; i++)
        if (is_repeated(cut, ndim, i))
            cell[0] = cell[0] * cut->dev[i] + at[i];
}

/* ---- networks -------------------------------------------------------------------------------- */

enum { SRC, DST };

/* Ways in which tensor parallelism cuts a matrix or a vector. */
enum way { WHOLE, BY_ROW, BY_COLUMN };

struct maker {
    const struct rfs_net_options *options;
    struct rfs_net *net;
    uint64_t lcm; /* least common multiple of the ranks of both sides */
    bool failed;  /* out of memory */
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return value == 0 ? unit : (value + unit - 1) / unit * unit;
}

/* Returns the smallest divisor over 1, or 1 for a prime. */
static uint32_t data_parallel(uint32_t ranks)
{
    for (uint32_t d = 2; d <= ranks / d; d++)
        if (ranks % d == 0)
            return d;
    return 1;
}

static struct rfs_net_param *add(struct maker *maker, enum rfs_dtype dtype, uint32_t ndim,
                                 uint64_t rows, uint64_t columns, const char *name)
{
    struct rfs_net_param param = {
        .dtype = dtype, .ndim = ndim, .dims = {rows, columns}, .shared = true};
    snprintf(param.name, sizeof param.name, "%s", name);
    if (!RFS_PUSH(&maker->net->params, param)) {
        maker->failed = true;
        return NULL;
    }
    return &maker->net->params.data[maker->net->params.n - 1];
}

/* Adds a scalar or a small vector that is in neither strategy. */
static void add_alone(struct maker *maker, const char *name, enum rfs_dtype dtype, uint32_t ndim,
                      uint64_t length, bool per_rank)
{
    struct rfs_net_param *param = add(maker, dtype, ndim, length, 1, name);
    if (param == NULL)
        return;
    param->shared = false;
    param->per_rank = per_rank;
}

static void add_moments(struct maker *maker, const char *prefix)
{
    const size_t n = maker->net->params.n;
    for (size_t i = 0; i < n; i++) {
        struct rfs_net_param moment = maker->net->params.data[i];
        if (!moment.shared || moment.moment)
            continue;
        char name[sizeof moment.name];
        snprintf(name, sizeof name, "%s.%.80s", prefix, moment.name);
        memcpy(moment.name, name, sizeof name);
        moment.dtype = RFS_FLOAT32;
        moment.moment = true;
        maker->failed |= !RFS_PUSH(&maker->net->params, moment);
    }
}

static struct rfs_net_cut replicated(uint32_t ranks)
{
    return (struct rfs_net_cut){.n_dev = 1, .dev = {ranks}, .map = {-1, -1}};
}

/* Returns a cut over all ranks along one axis. */
static struct rfs_net_cut over_all(uint32_t ranks, enum way way)
{
    struct rfs_net_cut cut = replicated(ranks);
    if (way != WHOLE)
        cut.map[way == BY_COLUMN] = 0;
    return cut;
}

/* Adds a layer, cut as in MindSpore's tutorial: src8 and dst4 with optimizer parallel. */
static void tutorial_layer(struct maker *maker, unsigned layer, uint64_t in, uint64_t out)
{
    char name[64];
    snprintf(name, sizeof name, "layer%u.weight", layer);
    struct rfs_net_param *weight = add(maker, maker->options->dtype, 2, in, out, name);
    if (weight == NULL)
        return;
    const uint32_t m = maker->net->ranks[SRC];
    const uint32_t n = maker->net->ranks[DST];
    weight->cut[SRC] = replicated(m);
    weight->cut[DST] = replicated(n);
    if (layer == 2) {
        weight->cut[DST].opt = true;
    } else if (m % 4 == 0) {
        weight->cut[SRC] = (struct rfs_net_cut){
            .n_dev = 3, .dev = {2, 2, m / 4}, .map = {layer == 1 ? -1 : 1, layer == 1 ? 1 : -1}};
    } else {
        weight->cut[SRC] = over_all(m, layer == 1 ? BY_COLUMN : BY_ROW);
    }
    if (layer == 1) {
        weight->cut[DST] = over_all(n, BY_ROW);
    } else if (layer == 3) {
        weight->cut[DST] = over_all(n, BY_ROW);
        if (n % 2 == 0 && n > 2)
            weight->cut[DST] =
                (struct rfs_net_cut){.n_dev = 2, .dev = {n / 2, 2}, .map = {0, -1}, .opt = true};
    }
    snprintf(name, sizeof name, "layer%u.bias", layer);
    struct rfs_net_param *bias = add(maker, maker->options->dtype, 1, out, 1, name);
    if (bias == NULL)
        return;
    bias->cut[SRC] = replicated(m);
    bias->cut[DST] = replicated(n);
}

static void make_tutorial(struct maker *maker)
{
    const uint64_t in = round_up(768, maker->lcm);
    const uint64_t first = round_up(48, maker->lcm);
    const uint64_t second = round_up(96, maker->lcm);
    tutorial_layer(maker, 1, in, first);
    tutorial_layer(maker, 2, first, second);
    tutorial_layer(maker, 3, second, 12);
    add_alone(maker, "global_step", RFS_INT32, 1, 1, false);
    add_alone(maker, "learning_rate", RFS_FLOAT32, 0, 1, false);
    add_moments(maker, "moments");
    add_alone(maker, "rng_state", RFS_INT32, 1, 4, true);
}

static void add_cut(struct maker *maker, const char *layer, const char *part, enum way way,
                    uint32_t ndim, uint64_t rows, uint64_t columns)
{
    char name[96];
    snprintf(name, sizeof name, "transformer.%s%s", layer, part);
    struct rfs_net_param *param = add(maker, maker->options->dtype, ndim, rows, columns, name);
    if (param == NULL)
        return;
    for (int side = SRC; side <= DST; side++) {
        const uint32_t ranks = maker->net->ranks[side];
        const uint32_t dp = maker->options->kind == RFS_NET_TP ? 1 : data_parallel(ranks);
        struct rfs_net_cut *cut = &param->cut[side];
        *cut = (struct rfs_net_cut){.n_dev = 2, .dev = {dp, ranks / dp}, .map = {-1, -1}};
        if (dp == 1)
            *cut = replicated(ranks);
        if (way != WHOLE)
            cut->map[way == BY_COLUMN && ndim == 2] = 0;
        cut->opt = maker->options->kind == RFS_NET_OPT && side == SRC && dp > 1 && way != WHOLE &&
                   ndim == 2;
    }
}

/* Adds what a layer has in place of an MLP: a router, and experts that are cut like one. */
static void layer_experts(struct maker *maker, const char *layer, uint64_t hidden)
{
    const uint32_t experts = maker->options->experts;

    add_cut(maker, layer, "mlp.router.weight", WHOLE, 2, experts, hidden);
    for (uint32_t i = 0; i < experts && !maker->failed; i++) {
        char part[48];
        snprintf(part, sizeof part, "mlp.experts.%u.up.weight", i);
        add_cut(maker, layer, part, BY_COLUMN, 2, hidden, 4 * hidden);
        snprintf(part, sizeof part, "mlp.experts.%u.down.weight", i);
        add_cut(maker, layer, part, BY_ROW, 2, 4 * hidden, hidden);
    }
}

static void transformer_layer(struct maker *maker, uint32_t i, uint64_t hidden)
{
    char layer[32];
    snprintf(layer, sizeof layer, "layers.%u.", i);
    add_cut(maker, layer, "norm1.gamma", WHOLE, 1, hidden, 1);
    add_cut(maker, layer, "norm1.beta", WHOLE, 1, hidden, 1);
    add_cut(maker, layer, "attention.qkv.weight", BY_COLUMN, 2, hidden, 3 * hidden);
    add_cut(maker, layer, "attention.qkv.bias", BY_COLUMN, 1, 3 * hidden, 1);
    add_cut(maker, layer, "attention.out.weight", BY_ROW, 2, hidden, hidden);
    add_cut(maker, layer, "attention.out.bias", WHOLE, 1, hidden, 1);
    add_cut(maker, layer, "norm2.gamma", WHOLE, 1, hidden, 1);
    add_cut(maker, layer, "norm2.beta", WHOLE, 1, hidden, 1);
    if (maker->options->experts > 0) {
        layer_experts(maker, layer, hidden);
        return;
    }
    add_cut(maker, layer, "mlp.up.weight", BY_COLUMN, 2, hidden, 4 * hidden);
    add_cut(maker, layer, "mlp.up.bias", BY_COLUMN, 1, 4 * hidden, 1);
    add_cut(maker, layer, "mlp.down.weight", BY_ROW, 2, 4 * hidden, hidden);
    add_cut(maker, layer, "mlp.down.bias", WHOLE, 1, hidden, 1);
}

/* Returns the bytes of the whole tensors, with states. See transformer_layer for the numbers. */
static double transformer_bytes(const struct maker *maker, double layers, double hidden)
{
    const double experts = maker->options->experts;
    const double mlp =
        experts > 0 ? experts * (8 * hidden + 1) * hidden : (8 * hidden + 5) * hidden;
    const double elements = layers * ((4 * hidden + 8) * hidden + mlp) + 4 * hidden * hidden +
                            128 * hidden + 2 * hidden;
    return elements * (rfs_net_value_bytes(maker->options->dtype) + 2.0 * 4);
}

/* Returns the most layers of a network; see transformer_layer and add_moments. */
static uint32_t most_layers(const struct rfs_net_options *options)
{
    const uint64_t params = options->kind == RFS_NET_COLS || options->kind == RFS_NET_ROWS ? 1
                            : options->experts > 0 ? 3 * (9 + 2 * (uint64_t)options->experts)
                                                   : 3 * 12;

    return (uint32_t)rfs_min_u64(MAX_LAYERS, MAX_PARAMS / params);
}

static void make_transformer(struct maker *maker)
{
    const struct rfs_net_options *options = maker->options;
    const double size = (double)options->size;
    uint64_t hidden = round_up(options->hidden != 0 ? options->hidden : 256, maker->lcm);
    uint32_t layers = options->layers != 0 ? options->layers : 4;
    if (options->size != 0 && options->hidden == 0 && options->layers == 0 && size > 1e8)
        hidden = round_up(1024, maker->lcm);
    if (options->size != 0 && options->hidden == 0 && options->layers != 0)
        while (transformer_bytes(maker, layers, (double)hidden) < size)
            hidden += maker->lcm;
    else if (options->size != 0)
        for (layers = 1; layers < most_layers(options) &&
                         transformer_bytes(maker, layers, (double)hidden) < size;)
            layers++;
    add_cut(maker, "embedding.", "word", BY_ROW, 2, 4 * hidden, hidden);
    add_cut(maker, "embedding.", "position", WHOLE, 2, 128, hidden);
    for (uint32_t i = 0; i < layers && !maker->failed; i++)
        transformer_layer(maker, i, hidden);
    add_cut(maker, "norm.", "gamma", WHOLE, 1, hidden, 1);
    add_cut(maker, "norm.", "beta", WHOLE, 1, hidden, 1);
    add_alone(maker, "global_step", RFS_INT32, 1, 1, false);
    add_alone(maker, "learning_rate", RFS_FLOAT32, 0, 1, false);
    add_moments(maker, "adam_m");
    add_moments(maker, "adam_v");
    add_alone(maker, "rng_state", RFS_INT32, 1, 4, true);
}

/* Makes plain matrices for measuring: a destination reads runs of a known length. */
static int make_matrices(struct maker *maker, struct rfs_error *err)
{
    const struct rfs_net_options *options = maker->options;
    const uint64_t element = rfs_net_value_bytes(options->dtype);
    const uint64_t run = options->run_bytes != 0 ? options->run_bytes : 1024;
    if (run % element != 0)
        return rfs_fail_usage(err, "a multiple of the dtype's bytes",
                              "--run-bytes %llu is not whole elements of %llu bytes",
                              (unsigned long long)run, (unsigned long long)element);
    const bool cols = options->kind == RFS_NET_COLS;
    const uint32_t layers = options->layers != 0 ? options->layers : 4;
    const uint64_t columns = cols              ? run / element * maker->net->ranks[SRC]
                             : options->hidden ? options->hidden
                                               : 1024;
    const uint64_t size = options->size != 0 ? options->size : UINT64_C(64) << 20;
    const uint64_t rows = round_up(size / layers / (columns * element), maker->lcm);
    for (uint32_t i = 0; i < layers && !maker->failed; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%u.weight", i);
        struct rfs_net_param *param = add(maker, options->dtype, 2, rows, columns, name);
        if (param == NULL)
            break;
        param->cut[SRC] = over_all(maker->net->ranks[SRC], cols ? BY_COLUMN : BY_ROW);
        param->cut[DST] = over_all(maker->net->ranks[DST], BY_ROW);
    }
    add_alone(maker, "global_step", RFS_INT32, 1, 1, false);
    return 0;
}

static int count_bytes(struct rfs_net *net, struct rfs_error *err)
{
    net->bytes = 0;
    for (size_t i = 0; i < net->params.n; i++) {
        const struct rfs_net_param *param = &net->params.data[i];
        uint64_t bytes = rfs_net_value_bytes(param->dtype);
        for (uint32_t axis = 0; axis < param->ndim; axis++)
            if (param->dims[axis] > MAX_DIM || !rfs_mul_u64(bytes, param->dims[axis], &bytes))
                return rfs_fail_usage(err, "smaller --hidden or --size",
                                      "the network is too large");
        if (!rfs_add_u64(net->bytes, bytes, &net->bytes) || net->bytes > INT64_MAX)
            return rfs_fail_usage(err, "smaller --hidden or --size", "the network is too large");
    }
    return 0;
}

void rfs_net_free(struct rfs_net *net)
{
    free(net->params.data);
    *net = (struct rfs_net){0};
}

int rfs_net_make(const struct rfs_net_options *options, struct rfs_net *net, struct rfs_error *err)
{
    *net = (struct rfs_net){.ranks = {options->ranks[SRC], options->ranks[DST]}};
    const uint64_t m = options->ranks[SRC];
    const uint64_t n = options->ranks[DST];
    struct maker maker = {.options = options, .net = net, .lcm = m / rfs_gcd_u64(m, n) * n};
    int rc = 0;
    if (options->experts > MAX_EXPERTS || options->layers > most_layers(options) ||
        options->hidden > MAX_DIM / 16 || options->run_bytes > MAX_DIM)
        return rfs_fail_usage(err, "smaller numbers", "the network is too large");
    if (options->kind == RFS_NET_TUTORIAL)
        make_tutorial(&maker);
    else if (options->kind == RFS_NET_COLS || options->kind == RFS_NET_ROWS)
        rc = make_matrices(&maker, err);
    else
        make_transformer(&maker);
    if (rc == 0 && maker.failed)
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = count_bytes(net, err);
    if (rc != 0)
        rfs_net_free(net);
    return rc;
}

/* ---- a rank's .ckpt file, which formats/ckpt/ckpt.c draws ------------------------------------ */

/* A rank's slice of a tensor, as a sequence of runs that are contiguous in the whole tensor. */
struct slice {
    uint64_t key;
    enum rfs_dtype dtype;
    uint64_t run;    /* elements of a run */
    uint64_t stride; /* elements from run to run */
    uint64_t first;  /* number of the first element in the whole tensor */
    struct rfs_type type;
    uint64_t elements;
};

static struct slice slice_of(const struct rfs_net_param *param, uint64_t seed, uint32_t rank)
{
    struct slice slice = {.dtype = param->dtype, .elements = 1};
    uint64_t dims[RFS_NET_DIMS] = {1, 1};
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    uint32_t cell[RFS_NET_DIMS] = {0, 0};
    char name[sizeof param->name + 16];
    snprintf(name, sizeof name, "%s", param->name);
    if (param->per_rank)
        snprintf(name, sizeof name, "%s@%u", param->name, rank);
    slice.key = rfs_net_value_key(seed, name);
    if (param->shared) {
        rfs_net_cut_pieces(&param->cut[0], param->ndim, pieces);
        rfs_net_cut_cell(&param->cut[0], param->ndim, rank, cell);
    }
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
        dims[axis] = param->dims[axis] / pieces[axis];
        slice.elements *= dims[axis];
    }
    slice.type = (struct rfs_type){.ndim = (uint8_t)param->ndim,
                                   .dtype = (uint8_t)param->dtype,
                                   .kind = RFS_TENSOR,
                                   .dims = {dims[0], dims[1]}};
    const uint64_t row = param->ndim == 2 ? param->dims[1] : 1;
    slice.first = cell[0] * dims[0] * row + cell[1] * dims[1];
    slice.run = pieces[1] == 1 ? slice.elements : dims[1];
    slice.stride = row;
    return slice;
}

/* Writes COUNT elements from the slice's element BEGIN on to OUT. */
static void fill(const struct slice *slice, uint64_t begin, uint64_t count, unsigned char *out)
{
    const uint32_t bytes = rfs_net_value_bytes(slice->dtype);
    uint64_t run = begin / slice->run;
    uint64_t in_run = begin % slice->run;
    while (count > 0) {
        const uint64_t n = rfs_min_u64(count, slice->run - in_run);
        rfs_net_value_fill(slice->key, slice->dtype, slice->first + run * slice->stride + in_run, n,
                           out);
        out += n * bytes;
        count -= n;
        in_run = 0;
        run++;
    }
}

/* A file in the making, written in large pieces. */
struct sink {
    int fd;
    unsigned char *buffer; /* [BUFFER] */
    size_t used;
    struct rfs_progress *progress; /* NULL: none */
    const char *param;             /* parameter whose bytes are added */
    const char *pending; /* parameter of the oldest bytes that are not, or could not be, written */
};

static int flush(struct sink *sink)
{
    const size_t n = sink->used;
    const int rc = rfs_io_write_all(sink->fd, sink->buffer, n);
    sink->used = 0;
    if (rc == 0)
        sink->pending = sink->param;
    if (rc == 0 && sink->progress) {
        rfs_progress_add(sink->progress, n);
        rfs_progress_tick(sink->progress);
    }
    return rc;
}

static int write_head(struct sink *sink, const struct rfs_bytes *head)
{
    const int rc = head->n > BUFFER - sink->used ? flush(sink) : 0;
    if (rc != 0 || head->n > BUFFER)
        return rc != 0 ? rc : rfs_io_write_all(sink->fd, head->data, head->n);
    memcpy(sink->buffer + sink->used, head->data, head->n);
    sink->used += head->n;
    return 0;
}

/* Writes BYTES of the slice's content, from AT on. */
static int write_content(struct sink *sink, const struct slice *slice, uint64_t at, uint64_t bytes)
{
    const uint64_t element = rfs_net_value_bytes(slice->dtype);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < bytes;) {
        const uint64_t n = rfs_min_u64((bytes - done) / element, (BUFFER - sink->used) / element);
        fill(slice, (at + done) / element, n, sink->buffer + sink->used);
        sink->used += (size_t)(n * element);
        done += n * element;
        if (done < bytes)
            rc = flush(sink);
    }
    return rc;
}

static int write_param(const struct rfs_net_param *param, const struct slice *slice,
                       struct rfs_bytes *head, struct sink *sink)
{
    const uint64_t whole = slice->elements * rfs_net_value_bytes(param->dtype);
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < whole; at += RFS_INSPECT_CKPT_CHUNK) {
        const uint64_t chunk = rfs_min_u64(whole - at, RFS_INSPECT_CKPT_CHUNK);
        head->n = 0;
        rc = rfs_inspect_ckpt_head(head, param->name, &slice->type, chunk) ? write_head(sink, head)
                                                                           : -ENOMEM;
        if (rc == 0)
            rc = write_content(sink, slice, at, chunk);
    }
    return rc;
}

int rfs_example_write_rank(const struct rfs_net *net, uint64_t seed, uint32_t rank, int fd,
                           const char *path, struct rfs_progress *progress, struct rfs_error *err)
{
    RFS_FREE unsigned char *buffer = malloc(BUFFER);
    struct sink sink = {fd, buffer, 0, progress, NULL, NULL};
    struct rfs_bytes head = {0};
    int rc = buffer == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < net->params.n; i++) {
        const struct slice slice = slice_of(&net->params.data[i], seed, rank);
        sink.param = net->params.data[i].name;
        sink.pending = sink.used == 0 ? sink.param : sink.pending;
        rc = write_param(&net->params.data[i], &slice, &head, &sink);
    }
    if (rc == 0)
        rc = flush(&sink);
    if (buffer == NULL)
        rfs_fail(err, rc, RFS_NOWHERE, NULL, "out of memory");
    else if (rc != 0)
        rfs_fail(err, rc, RFS_OF(path, sink.pending), "a file system with more room",
                 "cannot write: %s", strerror(-rc));
    rfs_bytes_free(&head);
    return rc;
}

/* ---- strategies ------------------------------------------------------------------------------ */

/* Puts how the operator that uses a weight cuts its two inputs. */
static bool put_operator(struct rfs_strategy_doc *doc, const struct rfs_net_param *param,
                         const struct rfs_net_cut *cut, uint32_t ranks)
{
    struct rfs_net_cut plain = *cut;
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    char name[sizeof param->name + 8];

    plain.opt = false;
    rfs_net_cut_pieces(&plain, param->ndim, pieces);
    const int n =
        snprintf(name, sizeof name, "%s%s", param->ndim == 2 ? "MatMul_" : "Add_", param->name);
    const uint32_t input[] = {ranks / pieces[0] / pieces[1], pieces[0]};
    Straspb__ParallelStrategys *node = rfs_strategy_doc_add_node(doc, name, (size_t)n, 0);
    return node && rfs_strategy_doc_add_input(doc, node, input, 2) &&
           rfs_strategy_doc_add_input(doc, node, pieces, param->ndim);
}

static bool put_layout(struct rfs_strategy_doc *doc, const struct rfs_net_param *from,
                       const struct rfs_net_cut *cut)
{
    struct rfs_layout layout = {.n_dev = cut->n_dev, .n_axes = from->ndim};
    const size_t i = doc->map.n_parallel_layout_item;
    uint32_t size;

    for (uint32_t p = 0; p < cut->n_dev; p++)
        layout.dev[p] = cut->dev[p];
    for (uint32_t k = 0; k < from->ndim; k++) {
        layout.map[k] = cut->map[k];
        layout.start[k + 1] = k + 1;
    }
    rfs_net_cut_shard(cut, from->ndim, &size, &layout.opt_step);
    if (!rfs_strategy_doc_make_layout(doc, from->name, &layout))
        return false;
    if (size > 1) /* over all repeats */
        doc->map.parallel_layout_item[i]->parallel_layouts->opt_weight_shard_size = -1;
    return true;
}

struct hashed {
    uint64_t hash;
    const struct rfs_net_param *param;
};

RFS_COMPARE(by_hash, struct hashed, x, y, RFS_ORDER(x->hash, y->hash))

/*
 * The compiler's order is that of a hash table; here it is the order of the names' hashes.
 */
int rfs_example_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                               struct rfs_error *err)
{
    RFS_CLEANUP(rfs_strategy_doc_free) struct rfs_strategy_doc doc;
    RFS_FREE struct hashed *order = calloc(net->params.n + 1, sizeof *order);
    size_t n = 0;

    rfs_strategy_doc_begin(&doc, NULL);
    bool ok = order && rfs_strategy_doc_reserve(&doc, net->params.n, net->params.n);

    for (size_t i = 0; ok && i < net->params.n; i++)
        if (net->params.data[i].shared)
            order[n++] = (struct hashed){rfs_net_value_key(side, net->params.data[i].name),
                                         &net->params.data[i]};
    if (ok)
        RFS_SORT(order, n, by_hash);
    for (size_t i = 0; ok && i < n; i++) {
        const struct rfs_net_param *param = order[i].param;
        ok = (param->moment || put_operator(&doc, param, &param->cut[side], net->ranks[side])) &&
             put_layout(&doc, param, &param->cut[side]);
    }
    doc.map.current_stage = 2;
    return ok ? rfs_strategy_doc_protobuf(&doc, data, size, err) : rfs_fail_memory(err);
}

/* ---- the files ------------------------------------------------------------------------------- */

struct job {
    const char *dir;
    const struct rfs_net *net;
    uint64_t seed;
    atomic_uint_least64_t bytes;
    struct rfs_first_error first;
    struct rfs_progress progress;
};

static int make_dir(const char *path, mode_t mode, struct rfs_error *err)
{
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return rfs_fail(err, -errno, RFS_IN(path), "a folder that you may write to",
                        "cannot make the folder: %s", strerror(errno));
    return 0;
}

/* Says whether NAME is PREFIX, a decimal number, SUFFIX. */
static bool is_numbered(const char *name, const char *prefix, const char *suffix)
{
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, suffix) == 0;
}

static int unlink_one(const char *path, bool is_dir, struct rfs_error *err)
{
    if ((is_dir ? rmdir(path) : unlink(path)) != 0 && errno != ENOENT)
        return rfs_fail(err, -errno, RFS_IN(path), "another DIR", "cannot remove: %s",
                        strerror(errno));
    return 0;
}

static int fail_list(const char *path, struct rfs_error *err)
{
    return rfs_fail(err, -errno, RFS_IN(path), "another DIR", "cannot list: %s", strerror(errno));
}

/*
 * Removes from FOLDER the example's entries of that pattern, folders of ranks or files, then FOLDER
 * itself.
 */
static int remove_folder(const char *folder, const char *prefix, const char *suffix, bool of_ranks,
                         struct rfs_error *err)
{
    DIR *dir = opendir(folder);
    int rc = 0;

    if (!dir)
        return errno == ENOENT ? 0 : fail_list(folder, err);
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_numbered(entry->d_name, prefix, suffix))
            continue;
        RFS_FREE char *path = rfs_path_join(folder, entry->d_name);
        rc = !path      ? rfs_fail_memory(err)
             : of_ranks ? remove_folder(path, "checkpoint_", ".ckpt", false, err)
                        : unlink_one(path, false, err);
    }
    closedir(dir);
    return rc == 0 ? unlink_one(folder, true, err) : rc;
}

static int remove_example(const char *dir, struct rfs_error *err)
{
    RFS_FREE char *src = rfs_path_join(dir, "src");
    RFS_FREE char *one = rfs_path_join(dir, "src_strategy.ckpt");
    RFS_FREE char *two = rfs_path_join(dir, "dst_strategy.ckpt");
    if (src == NULL || one == NULL || two == NULL)
        return rfs_fail_memory(err);
    int rc = remove_folder(src, "rank_", "", true, err) ?: unlink_one(one, false, err);
    return rc == 0 ? unlink_one(two, false, err) : rc;
}

static int require_empty(const char *path, struct rfs_error *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_list(path, err);
    bool empty = true;
    for (struct dirent *entry; empty && (entry = readdir(dir)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(dir);
    return empty ? 0
                 : rfs_fail(err, -ENOTEMPTY, RFS_IN(path),
                            "another DIR, or --force to replace an example", "not empty");
}

/* Creates a file with mode 0400. Returns a descriptor, or -errno with *err filled. */
static int create(const char *path, struct rfs_error *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);

    return fd >= 0 ? fd
                   : rfs_fail(err, -errno, RFS_IN(path), "a folder that you may write to",
                              "cannot create: %s", strerror(errno));
}

/* Closes a file, once writing it has given RC, or removes it again. *bytes is its size. */
static int finish(int fd, const char *path, int rc, uint64_t *bytes, struct rfs_error *err)
{
    struct stat st = {0};

    if (rc == 0 && fstat(fd, &st) != 0)
        rc = -errno;
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    *bytes = (uint64_t)st.st_size;
    if (rc == 0)
        return 0;
    unlink(path);
    return err->code ? rc
                     : rfs_fail(err, rc, RFS_IN(path), "a file system with more room",
                                "cannot write: %s", strerror(-rc));
}

static int create_rank(void *ctx, size_t i)
{
    struct job *job = ctx;
    struct rfs_error err = {0};
    uint64_t bytes = 0;
    RFS_FREE char *folder = rfs_text_printf("%s/src/rank_%zu", job->dir, i);
    RFS_FREE char *path = rfs_text_printf("%s/src/rank_%zu/checkpoint_%zu.ckpt", job->dir, i, i);
    const int made =
        folder == NULL || path == NULL ? rfs_fail_memory(&err) : make_dir(folder, 0700, &err);
    const int fd = made == 0 ? create(path, &err) : made;
    const int rc = fd < 0 ? fd
                          : finish(fd, path,
                                   rfs_example_write_rank(job->net, job->seed, (uint32_t)i, fd,
                                                          path, &job->progress, &err),
                                   &bytes, &err);
    atomic_fetch_add(&job->bytes, bytes);
    return rfs_first_error_note(&job->first, i, rc, &err);
}

static int create_strategy(const struct job *job, unsigned side, struct rfs_error *err)
{
    RFS_FREE char *path =
        rfs_text_printf("%s/%s_strategy.ckpt", job->dir, side == 0 ? "src" : "dst");
    RFS_FREE char *data = NULL;
    size_t size = 0;
    uint64_t bytes;
    const int rc =
        path ? rfs_example_write_strategy(job->net, side, &data, &size, err) : rfs_fail_memory(err);
    const int fd = rc == 0 ? create(path, err) : rc;

    return fd < 0 ? fd : finish(fd, path, rfs_io_write_all(fd, data, size), &bytes, err);
}

/* Returns the bytes of all slices of the source: those of the files without their headers. */
static uint64_t content_bytes(const struct rfs_net *net)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < net->params.n; i++) {
        const struct slice slice = slice_of(&net->params.data[i], 0, 0);
        bytes += slice.elements * rfs_net_value_bytes(net->params.data[i].dtype);
    }
    return bytes * net->ranks[0];
}

static int write_ranks(struct job *job, struct rfs_error *err)
{
    struct rfs_pool *pool = rfs_pool_new(rfs_tool_processors(MAX_THREADS));
    if (pool == NULL)
        return rfs_fail_memory(err);
    rfs_progress_init(&job->progress, false);
    rfs_progress_begin(&job->progress, "writing", content_bytes(job->net), 0);
    const int rc = rfs_pool_for(pool, job->net->ranks[0], create_rank, job);
    rfs_progress_destroy(&job->progress);
    rfs_pool_free(pool);
    return rfs_first_error_take(&job->first, rc, err);
}

/*
 * Writes the files, several ranks at a time. DIR is made if it is not there, and must be empty
 * unless FORCE: then an example in it (and nothing else) is removed first. A tree that was begun is
 * removed on failure. *bytes is the size of all source files. 0 or -errno with *err filled.
 */
static int write_tree(const char *dir, const struct rfs_net *net, uint64_t seed, bool force,
                      uint64_t *bytes, struct rfs_error *err)
{
    struct job job = {.dir = dir, .net = net, .seed = seed, .first = RFS_FIRST_ERROR};
    RFS_FREE char *src = rfs_path_join(dir, "src");
    int rc = src == NULL ? rfs_fail_memory(err) : make_dir(dir, 0777, err);
    if (rc == 0 && force)
        rc = remove_example(dir, err);
    if (rc == 0)
        rc = require_empty(dir, err);
    if (rc)
        return rc;
    rc = make_dir(src, 0777, err) ?: write_ranks(&job, err);
    for (unsigned side = 0; rc == 0 && side < 2; side++)
        rc = create_strategy(&job, side, err);
    if (rc != 0)
        remove_example(dir, NULL);
    *bytes = atomic_load(&job.bytes);
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------ */

struct request {
    struct rfs_net_options net;
    uint64_t seed;
    int dtype; /* number in dtypes */
    bool force;
    const char *dir;
};

/* Words of --cut, by their numbers in enum rfs_net_kind; the tutorial has none. */
static const char *const cuts[] = {"tp", "mixed", "opt", "cols", "rows", NULL};

static const char *const dtypes[] = {"float32", "float16", "bfloat16", "float64",
                                     "int8",    "int32",   NULL};
static const enum rfs_dtype dtype_of[] = {RFS_FLOAT32, RFS_FLOAT16, RFS_BFLOAT16,
                                          RFS_FLOAT64, RFS_INT8,    RFS_INT32};

static const struct rfs_argument arguments[] = {
    {.value = "DIR",
     .as = RFS_AS_TEXT,
     RFS_TO(struct request, dir),
     .remedy = "one DIR",
     .is_folder = true},
    RFS_ARG_NUMBER("src", "M", 1, MAX_RANKS, REMEDY_RANKS, struct request, net.ranks[0],
                   "ranks of the source (8)"),
    RFS_ARG_NUMBER("dst", "N", 1, MAX_RANKS, REMEDY_RANKS, struct request, net.ranks[1],
                   "ranks of the destination (4)"),
    RFS_ARG_NUMBER("layers", "L", 1, UINT32_MAX, REMEDY, struct request, net.layers,
                   "a transformer of L layers, not the tutorial's network"),
    RFS_ARG_NUMBER("experts", "E", 1, UINT32_MAX, REMEDY, struct request, net.experts,
                   "experts of each layer, in place of its MLP"),
    RFS_ARG_NUMBER("hidden", "H", 1, INT64_MAX, REMEDY, struct request, net.hidden,
                   "its width, rounded up until every cut divides (256)"),
    RFS_ARG_BYTES("size", 1, INT64_MAX, REMEDY, struct request, net.size,
                  "about this many bytes of whole tensors, with K, M, G\nor T; copies on several "
                  "ranks are on top"),
    RFS_ARG_WORD("cut", "KIND", cuts, REMEDY, struct request, net.kind,
                 "tp, mixed, opt: how the transformer is cut;\nrows, cols: matrices, cut along the "
                 "first or the last axis"),
    RFS_ARG_BYTES("run-bytes", 1, INT64_MAX, REMEDY, struct request, net.run_bytes,
                  "cols: bytes of a row that one source rank holds (1024)"),
    RFS_ARG_WORD("dtype", "TYPE", dtypes, REMEDY, struct request, dtype,
                 "float32, float16, bfloat16, float64, int8, int32 (float32)"),
    RFS_ARG_NUMBER("seed", "S", 0, UINT64_MAX, REMEDY, struct request, seed, "another content (1)"),
    RFS_ARG_FLAG("force", struct request, force, "replace an example that is in DIR already"),
    {0},
};

/* Derives values from the given options, and refuses contradictions. */
static int settle(struct request *request, struct rfs_error *err)
{
    if (request->dir == NULL || request->dir[0] == '\0')
        return rfs_fail_usage(err, "reshard example DIR", "example takes one folder");
    request->net.dtype = dtype_of[request->dtype];
    if (request->net.kind == RFS_NET_TUTORIAL && request->net.run_bytes != 0)
        request->net.kind = RFS_NET_COLS;
    if (request->net.kind == RFS_NET_TUTORIAL &&
        (request->net.layers != 0 || request->net.experts != 0 || request->net.hidden != 0 ||
         request->net.size != 0))
        request->net.kind = RFS_NET_MIXED;
    if (request->net.experts != 0 &&
        (request->net.kind == RFS_NET_COLS || request->net.kind == RFS_NET_ROWS))
        return rfs_fail_usage(err, "--cut tp, mixed or opt", "--experts needs a transformer");
    if (request->net.run_bytes != 0 && request->net.kind != RFS_NET_COLS)
        return rfs_fail_usage(err, "--cut cols", "--run-bytes needs --cut cols");
    return 0;
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct rfs_net net = {0};
    uint64_t bytes = 0;
    int rc = settle(request, err)
            ?: rfs_net_make(&request->net, &net, err)
            ?: write_tree(request->dir, &net, request->seed, request->force, &bytes, err);

    if (rc == 0)
        printf("%s: %" PRIu32 " → %" PRIu32 " ranks, %zu parameters, %" PRIu64
               " bytes in the source files\n",
               request->dir, net.ranks[0], net.ranks[1], net.params.n, bytes);
    rfs_net_free(&net);
    return rc;
}

static const struct request defaults = {.net = {.kind = RFS_NET_TUTORIAL, .ranks = {8, 4}},
                                        .seed = 1};

const struct rfs_command rfs_command_example = {
    .name = "example",
    .usage = "reshard example DIR [option…]\n",
    .summary = "writes a sharded checkpoint and two strategies, of any size",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
