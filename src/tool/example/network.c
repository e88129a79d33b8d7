/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/example/network.h"

#include "base/checked.h"

#include <endian.h>

#define MAX_DIM (UINT64_C(1) << 40)
#define MAX_LAYERS 10000

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
    add_cut(maker, layer, "mlp.up.weight", BY_COLUMN, 2, hidden, 4 * hidden);
    add_cut(maker, layer, "mlp.up.bias", BY_COLUMN, 1, 4 * hidden, 1);
    add_cut(maker, layer, "mlp.down.weight", BY_ROW, 2, 4 * hidden, hidden);
    add_cut(maker, layer, "mlp.down.bias", WHOLE, 1, hidden, 1);
}

/* Returns the bytes of the whole tensors, states included. See transformer_layer for 12 and 13. */
static double transformer_bytes(const struct maker *maker, double layers, double hidden)
{
    const double elements = layers * (12 * hidden * hidden + 13 * hidden) + 4 * hidden * hidden +
                            128 * hidden + 2 * hidden;
    return elements * (rfs_net_value_bytes(maker->options->dtype) + 2.0 * 4);
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
        for (layers = 1;
             layers < MAX_LAYERS && transformer_bytes(maker, layers, (double)hidden) < size;)
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
    if (options->layers > MAX_LAYERS || options->hidden > MAX_DIM / 16 ||
        options->run_bytes > MAX_DIM)
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
