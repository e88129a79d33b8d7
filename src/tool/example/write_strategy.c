/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as MindSpore's compiler writes it, in protobuf. The
 * compiler's order is that of a hash table; here it is the order of the names' hashes.
 */
#include "base/order.h"
#include "layout/document.h"
#include "tool/example/value.h"
#include "tool/example/write.h"

#include "base/cleanup.h"

/* How the operator that uses a weight cuts its two inputs. */
static bool put_operator(struct rfs_doc *doc, const struct rfs_net_param *param,
                         const struct rfs_cut *cut, uint32_t ranks)
{
    struct rfs_cut plain = *cut;
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    char name[sizeof param->name + 8];

    plain.opt = false;
    rfs_cut_pieces(&plain, param->ndim, pieces);
    const int n =
        snprintf(name, sizeof name, "%s%s", param->ndim == 2 ? "MatMul_" : "Add_", param->name);
    const uint32_t input[] = {ranks / pieces[0] / pieces[1], pieces[0]};
    Straspb__ParallelStrategys *node = rfs_doc_add_node(doc, name, (size_t)n, 0);
    return node && rfs_doc_add_input(doc, node, input, 2) &&
           rfs_doc_add_input(doc, node, pieces, param->ndim);
}

static bool put_layout(struct rfs_doc *doc, const struct rfs_net_param *from,
                       const struct rfs_cut *cut)
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
    rfs_cut_shard(cut, from->ndim, &size, &layout.opt_step);
    if (!rfs_doc_make_layout(doc, from->name, &layout))
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

int rfs_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                       struct rfs_error *err)
{
    RFS_CLEANUP(rfs_doc_free) struct rfs_doc doc;
    RFS_FREE struct hashed *order = calloc(net->params.n + 1, sizeof *order);
    size_t n = 0;

    rfs_doc_begin(&doc, NULL);
    bool ok = order && rfs_doc_reserve(&doc, net->params.n, net->params.n);

    for (size_t i = 0; ok && i < net->params.n; i++)
        if (net->params.data[i].shared)
            order[n++] = (struct hashed){rfs_value_key(side, net->params.data[i].name),
                                         &net->params.data[i]};
    if (ok)
        RFS_SORT(order, n, by_hash);
    for (size_t i = 0; ok && i < n; i++) {
        const struct rfs_net_param *param = order[i].param;
        ok = (param->moment || put_operator(&doc, param, &param->cut[side], net->ranks[side])) &&
             put_layout(&doc, param, &param->cut[side]);
    }
    doc.map.current_stage = 2;
    return ok ? rfs_doc_protobuf(&doc, data, size, err) : rfs_fail_memory(err);
}
