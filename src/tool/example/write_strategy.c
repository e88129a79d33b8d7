/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strategy file as MindSpore's compiler writes it, in protobuf; layout/document.h packs it. The
 * compiler's order is that of a hash table; here it is the order of the names' hashes.
 */
#include "base/order.h"
#include "layout/builder.h"
#include "layout/document.h"
#include "tool/example/value.h"
#include "tool/example/write.h"

#include "base/cleanup.h"

static bool put_input(struct rfs_strategy_doc *doc, uint32_t n, const uint32_t *cuts)
{
    bool ok = rfs_strategy_doc_input(doc);

    for (uint32_t i = 0; ok && i < n; i++)
        ok = rfs_strategy_doc_cut(doc, cuts[i]);
    return ok;
}

/* How the operator that uses a weight cuts its two inputs. */
static bool put_operator(struct rfs_strategy_doc *doc, const struct rfs_net_param *param,
                         const struct rfs_cut *cut, uint32_t ranks)
{
    struct rfs_cut plain = *cut;
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    char name[sizeof param->name + 8];

    plain.opt = false;
    rfs_cut_pieces(&plain, param->ndim, pieces);
    const int n =
        snprintf(name, sizeof name, "%s%s", param->ndim == 2 ? "MatMul_" : "Add_", param->name);
    const uint32_t id = rfs_intern_add(doc->pool, name, (size_t)n);
    return id != RFS_NO_ID && rfs_strategy_doc_node(doc) &&
           put_input(doc, 2, (const uint32_t[]){ranks / pieces[0] / pieces[1], pieces[0]}) &&
           put_input(doc, param->ndim, pieces) && rfs_strategy_doc_node_end(doc, id, 0);
}

static bool put_layout(struct rfs_layout_builder *item, const struct rfs_net_param *from,
                       const struct rfs_cut *cut)
{
    uint32_t size;
    uint32_t step;
    bool ok = true;

    rfs_layout_begin(item, from->name, strlen(from->name));
    for (uint32_t i = 0; ok && i < cut->n_dev; i++)
        ok = rfs_layout_add_dev(item, cut->dev[i]) == 0;
    for (uint32_t i = 0; ok && i < from->ndim; i++)
        ok = rfs_layout_add_axis(item) == 0 && rfs_layout_add_cut(item, cut->map[i]) == 0;
    rfs_cut_shard(cut, from->ndim, &size, &step);
    item->opt_step = step;
    item->opt_size = size > 1 ? -1 : 0; /* over all repeats */
    return ok && rfs_strategy_doc_keep(item) && rfs_strategy_doc_add(item);
}

struct hashed {
    uint64_t hash;
    const struct rfs_net_param *param;
};

RFS_COMPARE(by_hash, struct hashed, x, y, RFS_ORDER(x->hash, y->hash))

int rfs_write_strategy(const struct rfs_net *net, unsigned side, char **data, size_t *size,
                       struct rfs_error *err)
{
    RFS_CLEANUP(rfs_strategy_doc_free) struct rfs_strategy_doc doc = {0};
    RFS_CLEANUP(rfs_layout_end) struct rfs_layout_builder item = {.doc = &doc};
    RFS_FREE struct hashed *order = calloc(net->params.n + 1, sizeof *order);
    bool ok = rfs_strategy_doc_begin(&doc, NULL) && order;
    size_t n = 0;

    for (size_t i = 0; ok && i < net->params.n; i++)
        if (net->params.data[i].shared)
            order[n++] = (struct hashed){rfs_value_key(side, net->params.data[i].name),
                                         &net->params.data[i]};
    if (ok)
        RFS_SORT(order, n, by_hash);
    for (size_t i = 0; ok && i < n; i++) {
        const struct rfs_net_param *param = order[i].param;
        ok = (param->moment || put_operator(&doc, param, &param->cut[side], net->ranks[side])) &&
             put_layout(&item, param, &param->cut[side]);
    }
    doc.current_stage = 2;
    return ok ? rfs_strategy_doc_protobuf(&doc, data, size, err) : rfs_fail_memory(err);
}
