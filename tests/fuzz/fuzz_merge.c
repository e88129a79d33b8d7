/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files that are merged and written again. The input is files, each with its length before
 * it (u16); the first byte says whether they are JSON. A file that parses says the same after it is
 * written in its own form and read again. Files that merge are, as one strategy, what reading their
 * merged file gives.
 */
#include "layout/stages.h"
#include "layout/strategy_doc.h"
#include "tests/fuzz/fuzz.h"

struct form {
    const char *name;
    bool json;
};

static int write_form(const struct form *form, bool merged, const struct rfs_strategy_doc *doc,
                      char **data, size_t *size)
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

static void write_again(const struct form *form, bool merged, const struct rfs_strategy_doc *doc,
                        const struct rfs_strategy *strategy)
{
    struct rfs_strategy *again;
    struct rfs_error err = {0};
    char *data;
    size_t size;

    if (write_form(form, merged, doc, &data, &size))
        return;
    REQUIRE(rfs_strategy_parse(form->name, data, size, &again, &err) == 0);
    require_same(strategy, again);
    rfs_strategy_free(again);
    free(data);
}

/* Some files that parse cannot be written: what would be lost is refused. */
static void try_file(const struct form *form, const uint8_t *data, size_t size)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};

    rfs_strategy_doc_begin(&doc, form->name);
    if (rfs_strategy_doc_parse(&doc, data, size, &err) ||
        rfs_strategy_doc_build(&doc, &strategy, &err))
        require_refusal(&err);
    else
        write_again(form, false, &doc, strategy);
    rfs_strategy_free(strategy);
    rfs_strategy_doc_free(&doc);
}

/* Adds a file to the merge. Returns whether it is in it. */
static bool add_file(struct rfs_stages *merge, const struct form *form, const uint8_t *data,
                     size_t size)
{
    struct rfs_error err = {0};

    try_file(form, data, size);
    const int rc = rfs_stages_add(merge, form->name, data, size, &err);
    if (rc)
        require_refusal(&err);
    return rc == 0;
}

void fuzz_one(const uint8_t *data, size_t size)
{
    if (size == 0)
        return;
    const struct form form = {data[0] % 2 ? "s.json" : "s.ckpt", data[0] % 2};
    struct rfs_stages *merge;
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    REQUIRE(rfs_stages_new("folder", &merge, &err) == 0);
    for (size_t at = 1; size - at >= 2;) {
        const size_t n = data[at] | (size_t)data[at + 1] << 8;
        const size_t most = size - at - 2;
        const size_t taken = n < most ? n : most;
        uint8_t *file = malloc(taken + 1);

        REQUIRE(file);
        memcpy(file, data + at + 2, taken);
        add_file(merge, &form, file, taken);
        free(file);
        at += 2 + taken;
    }
    if (rfs_stages_finish(merge, &strategy, &err) == 0)
        write_again(&form, true, rfs_stages_document(merge), strategy);
    else
        require_refusal(&err);
    rfs_strategy_free(strategy);
    rfs_stages_free(merge);
}
