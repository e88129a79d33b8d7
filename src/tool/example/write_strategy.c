/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as MindSpore's compiler writes it, in protobuf; layout/written.h packs it. The compiler's order is
 * that of a hash table; here it is the order of the names' hashes.
 */
#include "layout/written.h"
#include "tool/example/value.h"
#include "tool/example/write.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* N numbers in the arena. */
static bool put(struct rfs_written *out, struct rfs_numbers *to, uint32_t n, const int64_t *numbers)
{
    if (!rfs_numbers_new(&out->arena, n, to))
        return false;
    memcpy(to->data, numbers, n * sizeof *numbers);
    return true;
}

/* How the operator that uses a weight cuts its two inputs. */
static bool put_operator(struct rfs_written *out, const struct rfs_net_param *param,
                         const struct rfs_cut *cut, uint32_t ranks)
{
    struct rfs_cut plain = *cut;
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    char name[sizeof param->name + 8];
    struct rfs_written_node node = {.n_cuts = 2};

    plain.opt = false;
    rfs_cut_pieces(&plain, param->ndim, pieces);
    snprintf(name, sizeof name, "%s%s", param->ndim == 2 ? "MatMul_" : "Add_", param->name);
    node.name = rfs_arena_text(&out->arena, name, strlen(name));
    node.cuts = rfs_arena_alloc(&out->arena, 2 * sizeof *node.cuts);
    return node.name && node.cuts &&
           put(out, &node.cuts[0], 2,
               (const int64_t[]){ranks / pieces[0] / pieces[1], pieces[0]}) &&
           put(out, &node.cuts[1], param->ndim, (const int64_t[]){pieces[0], pieces[1]}) &&
           RFS_PUSH(&out->nodes, node);
}

static bool put_layout(struct rfs_written *out, const struct rfs_net_param *from,
                       const struct rfs_cut *cut)
{
    const int64_t dev[] = {cut->dev[0], cut->dev[1], cut->dev[2]};
    const int64_t map[] = {cut->map[0], cut->map[1]};
    struct rfs_written_param param = {.name = from->name, .n_maps = 1};
    uint32_t size;
    uint32_t step;

    rfs_cut_shard(cut, from->ndim, &size, &step);
    param.opt_step = step;
    param.opt_size = size > 1 ? -1 : 0; /* over all repeats */
    param.maps = rfs_arena_alloc(&out->arena, sizeof *param.maps);
    return param.maps && put(out, &param.dev, cut->n_dev, dev) &&
           put(out, param.maps, from->ndim, map) && RFS_PUSH(&out->params, param);
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

int rfs_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                       struct rfs_error *err)
{
    RFS_CLEANUP(rfs_written_free) struct rfs_written out = {.current_stage = 2};
    RFS_FREE struct hashed *order = calloc(net->params.n + 1, sizeof *order);
    bool ok = order != NULL;
    size_t n = 0;

    for (size_t i = 0; ok && i < net->params.n; i++)
        if (net->params.data[i].shared)
            order[n++] = (struct hashed){rfs_value_key(side, net->params.data[i].name),
                                         &net->params.data[i]};
    if (ok)
        qsort(order, n, sizeof *order, by_hash);
    for (size_t i = 0; ok && i < n; i++) {
        const struct rfs_net_param *param = order[i].param;
        ok = (param->moment || put_operator(&out, param, &param->cut[side], net->ranks[side])) &&
             put_layout(&out, param, &param->cut[side]);
    }
    return ok ? rfs_written_protobuf(&out, data, size, err) : rfs_fail_memory(err);
}
