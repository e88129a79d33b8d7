/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files that are merged and written again. The input is files, each with its length before
 * it (u16); the first byte says whether they are JSON. A file that parses says the same after it is
 * written in its own form and read again. Files that merge are, as one strategy, what reading their
 * merged file gives.
 */
#include "layout/stages.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/strategies.h"

FUZZ_GOALS("merged files of protobuf", "merged files of JSON");

/* Some files that parse cannot be written: what would be lost is refused. */
static void try_file(const struct strategy_form *form, const uint8_t *data, size_t size)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};

    rfs_strategy_doc_begin(&doc, form->name);
    if (rfs_strategy_doc_parse(&doc, data, size, &err) ||
        rfs_strategy_doc_build(&doc, &strategy, &err))
        require_refusal(&err);
    else
        strategy_write_again(form, false, &doc, strategy);
    rfs_strategy_free(strategy);
    rfs_strategy_doc_free(&doc);
}

/* Adds a file to the merge. Returns whether it is in it. */
static bool add_file(struct rfs_stages *merge, const struct strategy_form *form,
                     const uint8_t *data, size_t size)
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
    const struct strategy_form form = {data[0] % 2 ? "s.json" : "s.ckpt", data[0] % 2};
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
    if (require_result(rfs_stages_finish(merge, &strategy, &err), &err)) {
        strategy_write_again(&form, true, rfs_stages_document(merge), strategy);
        fuzz_reached(form.json);
    }
    rfs_strategy_free(strategy);
    rfs_stages_free(merge);
}
