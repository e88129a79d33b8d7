/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/example/network.h"

#include "base/checked.h"
#include "tool/example/value.h"

#define MAX_DIM (UINT64_C(1) << 40)
#define MAX_LAYERS 10000

enum { SRC, DST };

/* How a matrix or a vector is cut by tensor parallelism. */
enum way { WHOLE, BY_ROW, BY_COLUMN };

struct maker {
    const struct rfs_net_options *options;
    struct rfs_net *net;
    uint64_t lcm; /* of the ranks of both sides */
    bool failed;  /* out of memory */
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return value == 0 ? unit : (value + unit - 1) / unit * unit;
}

/* The smallest divisor over 1, or 1 for a prime. */
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

/* A scalar or a small vector that is in neither strategy. */
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

static struct rfs_cut replicated(uint32_t ranks)
{
    return (struct rfs_cut){.n_dev = 1, .dev = {ranks}, .map = {-1, -1}};
}

/* Over all ranks along one axis. */
static struct rfs_cut over_all(uint32_t ranks, enum way way)
{
    struct rfs_cut cut = replicated(ranks);
    if (way != WHOLE)
        cut.map[way == BY_COLUMN] = 0;
    return cut;
}

/* The cuts of MindSpore's tutorial: src8 and dst4 with optimizer parallel. */
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
        weight->cut[SRC] = (struct rfs_cut){
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
                (struct rfs_cut){.n_dev = 2, .dev = {n / 2, 2}, .map = {0, -1}, .opt = true};
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
        struct rfs_cut *cut = &param->cut[side];
        *cut = (struct rfs_cut){.n_dev = 2, .dev = {dp, ranks / dp}, .map = {-1, -1}};
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

/* Bytes of the whole tensors, states included. See transformer_layer for the 12 and the 13. */
static double transformer_bytes(const struct maker *maker, double layers, double hidden)
{
    const double elements = layers * (12 * hidden * hidden + 13 * hidden) + 4 * hidden * hidden +
                            128 * hidden + 2 * hidden;
    return elements * (rfs_value_bytes(maker->options->dtype) + 2.0 * 4);
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

/* Plain matrices for measuring: a destination reads runs of a known length. */
static int make_matrices(struct maker *maker, struct rfs_error *err)
{
    const struct rfs_net_options *options = maker->options;
    const uint64_t element = rfs_value_bytes(options->dtype);
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
        uint64_t bytes = rfs_value_bytes(param->dtype);
        for (uint32_t axis = 0; axis < param->ndim; axis++)
            if (param->dims[axis] > MAX_DIM || !rfs_mul_u64(bytes, param->dims[axis], &bytes))
                return rfs_fail_usage(err, "smaller --hidden or --size",
                                      "the network is too large");
        if (!rfs_add_u64(net->bytes, bytes, &net->bytes) || net->bytes > INT64_MAX)
            return rfs_fail_usage(err, "smaller --hidden or --size", "the network is too large");
    }
    return 0;
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

void rfs_net_free(struct rfs_net *net)
{
    free(net->params.data);
    *net = (struct rfs_net){0};
}
