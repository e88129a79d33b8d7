/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as MindSpore's compiler writes it: proto2, package mindspore.straspb.
 *
 *     ParallelStrategyMap  { 1 current_stage, 2 repeated item, 3 repeated layout item }
 *     ParallelStrategyItem { 1 node_name, 2 { 1 stage, 2 repeated { 1 repeated dim } } }
 *     ParallelLayoutItem   { 1 param_name, 2 layouts }
 *     layouts              { 1 dev_matrix { 1 repeated dim }, 2 tensor_map { 1 repeated dim },
 *                            3 param_split_shape {}, 4 indices_offset {}, 5 field,
 *                            6 opt_weight_shard_step, 7 opt_weight_shard_size }
 *
 * The compiler's order is that of a hash table; here it is the order of the names' hashes.
 */
#include "tool/example/value.h"
#include "tool/example/write.h"

#include <stdlib.h>
#include <string.h>

static void put_dims(struct rfs_emit *to, uint32_t field, const int64_t *dims, size_t n)
{
    struct rfs_emit inner = {0};
    for (size_t i = 0; i < n; i++)
        rfs_emit_int(&inner, 1, dims[i]);
    rfs_emit_message(to, field, &inner);
    rfs_emit_free(&inner);
}

/* How the operator that uses a weight cuts its two inputs. */
static void put_operator(const struct rfs_net_param *param, const struct rfs_cut *cut,
                         uint32_t ranks, struct rfs_emit *out)
{
    struct rfs_cut plain = *cut;
    plain.opt = false;
    uint32_t pieces[RFS_NET_DIMS];
    rfs_cut_pieces(&plain, param->ndim, pieces);
    struct rfs_emit strategy = {0};
    struct rfs_emit item = {0};
    rfs_emit_uint(&strategy, 1, 0);
    if (param->ndim == 2) {
        put_dims(&strategy, 2, (int64_t[]){ranks / pieces[0] / pieces[1], pieces[0]}, 2);
        put_dims(&strategy, 2, (int64_t[]){pieces[0], pieces[1]}, 2);
    } else {
        put_dims(&strategy, 2, (int64_t[]){ranks / pieces[0], pieces[0]}, 2);
        put_dims(&strategy, 2, (int64_t[]){pieces[0]}, 1);
    }
    char node[sizeof param->name + 8];
    strcpy(node, param->ndim == 2 ? "MatMul_" : "Add_");
    strcat(node, param->name);
    rfs_emit_text(&item, 1, node);
    rfs_emit_message(&item, 2, &strategy);
    rfs_emit_message(out, 2, &item);
    rfs_emit_free(&strategy);
    rfs_emit_free(&item);
}

static void put_layout(const struct rfs_net_param *param, const struct rfs_cut *cut,
                       struct rfs_emit *out)
{
    int64_t dims[RFS_NET_AXES];
    struct rfs_emit layout = {0};
    struct rfs_emit item = {0};
    for (uint32_t i = 0; i < cut->n_dev; i++)
        dims[i] = cut->dev[i];
    put_dims(&layout, 1, dims, cut->n_dev);
    for (uint32_t i = 0; i < param->ndim; i++)
        dims[i] = cut->map[i];
    put_dims(&layout, 2, dims, param->ndim);
    put_dims(&layout, 3, NULL, 0);
    put_dims(&layout, 4, NULL, 0);
    uint32_t size;
    uint32_t step;
    rfs_cut_shard(cut, param->ndim, &size, &step);
    rfs_emit_int(&layout, 5, 0);
    rfs_emit_int(&layout, 6, step);
    rfs_emit_int(&layout, 7, size > 1 ? -1 : 0); /* -1: over all repeats */
    rfs_emit_text(&item, 1, param->name);
    rfs_emit_message(&item, 2, &layout);
    rfs_emit_message(out, 3, &item);
    rfs_emit_free(&layout);
    rfs_emit_free(&item);
}

struct hashed {
    uint64_t hash;
    const struct rfs_net_param *param;
};

static int by_hash(const void *a, const void *b)
{
    const uint64_t x = ((const struct hashed *)a)->hash;
    const uint64_t y = ((const struct hashed *)b)->hash;
    return (x > y) - (x < y);
}

void rfs_write_strategy(const struct rfs_net *net, unsigned side, struct rfs_emit *out)
{
    struct hashed *order = calloc(net->params.n + 1, sizeof *order);
    if (order == NULL) {
        out->failed = true;
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < net->params.n; i++)
        if (net->params.data[i].shared)
            order[n++] = (struct hashed){rfs_value_key(side, net->params.data[i].name),
                                         &net->params.data[i]};
    qsort(order, n, sizeof *order, by_hash);
    rfs_emit_uint(out, 1, 2);
    for (size_t i = 0; i < n; i++)
        if (!order[i].param->moment)
            put_operator(order[i].param, &order[i].param->cut[side], net->ranks[side], out);
    for (size_t i = 0; i < n; i++)
        put_layout(order[i].param, &order[i].param->cut[side], out);
    free(order);
}
