/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/strategies.h"

#include "tests/fuzz/fuzz.h"

static int write_form(const struct strategy_form *form, bool merged,
                      const struct rfs_strategy_doc *doc, char **data, size_t *size)
{
    struct rfs_error err = {0};
    const int rc = form->json ? rfs_strategy_doc_json(doc, merged, data, size, &err)
                              : rfs_strategy_doc_protobuf(doc, data, size, &err);

    if (rc)
        require_refusal(&err);
    return rc;
}

/* Parameters, stages and layouts; names are looked for, as merging may order them otherwise. */
static void require_same(const struct rfs_strategy *a, const struct rfs_strategy *b)
{
    REQUIRE(rfs_strategy_count(a) == rfs_strategy_count(b));
    REQUIRE(rfs_strategy_stages(a) == rfs_strategy_stages(b));
    REQUIRE(rfs_strategy_devices(a) == rfs_strategy_devices(b));
    for (size_t i = 0; i < rfs_strategy_count(a); i++) {
        const ptrdiff_t at = rfs_strategy_find(b, rfs_strategy_param(a, i));
        REQUIRE(at >= 0);
        for (uint32_t s = rfs_strategy_next_stage(a, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(a, i, s + 1)) {
            const struct rfs_layout *x = rfs_strategy_layout(a, i, s);
            const struct rfs_layout *y = rfs_strategy_layout(b, (size_t)at, s);
            REQUIRE(y && x->n_dev == y->n_dev && x->n_axes == y->n_axes);
            REQUIRE(memcmp(x->dev, y->dev, x->n_dev * sizeof *x->dev) == 0);
            REQUIRE(memcmp(x->start, y->start, (x->n_axes + 1) * sizeof *x->start) == 0);
            REQUIRE(memcmp(x->map, y->map, x->start[x->n_axes] * sizeof *x->map) == 0);
            REQUIRE(x->opt_size == y->opt_size && x->opt_step == y->opt_step);
            REQUIRE(x->n_edges == y->n_edges && x->field == y->field && x->unclear == y->unclear);
            REQUIRE(x->n_edges == 0 || memcmp(x->edge, y->edge, x->n_edges * sizeof *x->edge) == 0);
        }
    }
}

struct rfs_strategy *strategy_again(const struct strategy_form *form, bool merged,
                                    const struct rfs_strategy_doc *doc)
{
    struct rfs_strategy *again;
    struct rfs_error err = {0};
    char *data;
    size_t size;

    if (write_form(form, merged, doc, &data, &size))
        return NULL;
    REQUIRE(rfs_strategy_parse(form->name, data, size, &again, &err) == 0);
    free(data);
    return again;
}

void strategy_write_again(const struct strategy_form *form, bool merged,
                          const struct rfs_strategy_doc *doc, const struct rfs_strategy *strategy)
{
    struct rfs_strategy *again = strategy_again(form, merged, doc);

    if (again)
        require_same(strategy, again);
    rfs_strategy_free(again);
}
