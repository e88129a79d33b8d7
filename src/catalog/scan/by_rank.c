/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of each rank in distributed checkpoints of HyperParallel and of torch, and the metadata
 * of a save without collectives, which each rank wrote by itself. No file says how many ranks there
 * were.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

/* The ranks that have metadata, ascending, and the highest that saved anything. */
struct ranks {
    uint32_t *data; /* owned */
    size_t n, cap;
    const struct rfs_seen_form *forms; /* of their names */
    const struct rfs_seen_form *form;  /* the form of their metadata, the last of two */
    const struct rfs_seen_form *other; /* the other of two; or NULL */
    uint32_t last;
    struct rfs_error *err;
};

static void ranks_end(struct ranks *ranks)
{
    free(ranks->data);
}

static int gather(void *ctx, const struct dirent *entry)
{
    struct ranks *ranks = ctx;
    uint32_t rank;
    const struct rfs_seen_form *form = rfs_seen_rank(ranks->forms, entry->d_name, &rank);

    if (!form)
        return 0;
    ranks->last = rank > ranks->last ? rank : ranks->last;
    if (!form->metadata)
        return 0;
    if (ranks->form && ranks->form != form)
        ranks->other = form < ranks->form ? form : ranks->form;
    if (!ranks->form || form > ranks->form)
        ranks->form = form;
    return RFS_PUSH(ranks, rank) ? 0 : rfs_fail_memory(ranks->err);
}

RFS_COMPARE(by_rank, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Names the metadata that is missing below the highest rank. False when out of memory. */
static bool note_lost(const struct ranks *ranks, struct rfs_scan *out)
{
    const size_t missing = (size_t)ranks->last + 1 - ranks->n;
    uint32_t first = 0;

    if (missing == 0)
        return true;
    while (first < ranks->n && ranks->data[first] == first)
        first++;
    out->lost = missing == 1 ? rfs_text_printf("'%s%u%s' is", ranks->form->before, first,
                                               ranks->form->behind)
                             : rfs_text_printf("'%s%u%s' and %zu more are", ranks->form->before,
                                               first, ranks->form->behind, missing - 1);
    return out->lost != NULL;
}

int rfs_scan_rank_metadata(const struct rfs_source_spec *spec, const struct rfs_seen_form *forms,
                           struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(ranks_end) struct ranks ranks = {.forms = forms, .err = err};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, gather, &ranks, err);

    if (rc)
        return rc;
    if (ranks.other)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), "move files of another save away",
                        "the folder has metadata of two saves, '%sN%s' and '%sN%s'",
                        ranks.other->before, ranks.other->behind, ranks.form->before,
                        ranks.form->behind);
    RFS_SORT_ALL(&ranks, by_rank);
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);
    for (size_t i = 0; item && i < ranks.n; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%u%s", ranks.form->before, ranks.data[i],
                 ranks.form->behind);
        if (!rfs_scan_add_file(item, rfs_path_join(spec->path, name)))
            item = NULL;
    }
    return item && note_lost(&ranks, out) ? 0 : rfs_fail_memory(err);
}
