/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of each rank in distributed checkpoints of HyperParallel and of torch, and the metadata
 * of a save without collectives, which each rank wrote by itself. No file says how many ranks there
 * were.
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

/*
 * https://github.com/mindspore-ai/hyper-parallel: filesystem_storage.py;
 * torch/distributed/checkpoint/filesystem.py of torch 2.9 to 2.15
 */
static const struct {
    const char *before, *behind; /* of the number; BEHIND is a pattern */
} forms[] = {
    [RFS_SCAN_HYPER_TENSORS] = {"_rank", "_.safetensors"},
    [RFS_SCAN_HYPER_METADATA] = {"", ".metadata"},
    [RFS_SCAN_HYPER_OLD_METADATA] = {".rank", "_metadata"}, /* before April 2026 */
    [RFS_SCAN_TORCH_TENSORS] = {"__", "_[0-9]*.distcp"},
    [RFS_SCAN_TORCH_METADATA] = {"__", ".metadata"},
    [RFS_SCAN_TORCH_TEMPORARY] = {"__", ".metadata.tmp"},
};

bool rfs_scan_rank_file(const char *name, enum rfs_scan_rank_file *kind, uint32_t *rank)
{
    for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
        char digits[16];
        const size_t before = strlen(forms[i].before);
        if (strncmp(name, forms[i].before, before) != 0)
            continue;
        const size_t n = strspn(name + before, "0123456789");
        if (n == 0 || n >= sizeof digits || !rfs_glob_match(forms[i].behind, name + before + n))
            continue;
        memcpy(digits, name + before, n);
        digits[n] = '\0';
        *kind = (enum rfs_scan_rank_file)i;
        return rfs_scan_name_decimal(digits, rank);
    }
    return false;
}

static int look(void *ctx, const struct dirent *entry)
{
    bool *found = ctx;
    enum rfs_scan_rank_file kind;
    uint32_t rank;

    *found |= rfs_scan_rank_file(entry->d_name, &kind, &rank) && kind <= RFS_SCAN_HYPER_LAST;
    return 0;
}

bool rfs_scan_is_hyper(struct rfs_store *store, const char *path)
{
    bool found = false;

    return rfs_scan_entry_each(store, path, look, &found, NULL) == 0 && found;
}

/* The ranks that have metadata, ascending, and the highest that saved anything. */
struct ranks {
    uint32_t *data; /* owned */
    size_t n, cap;
    bool torch;                   /* those of torch are taken, and no others */
    enum rfs_scan_rank_file kind; /* kind of their metadata */
    bool both;                    /* there is metadata of two kinds */
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
    enum rfs_scan_rank_file kind;
    uint32_t rank;

    if (!rfs_scan_rank_file(entry->d_name, &kind, &rank) ||
        (kind > RFS_SCAN_HYPER_LAST) != ranks->torch)
        return 0;
    ranks->last = rank > ranks->last ? rank : ranks->last;
    if (kind == RFS_SCAN_HYPER_TENSORS || kind == RFS_SCAN_TORCH_TENSORS ||
        kind == RFS_SCAN_TORCH_TEMPORARY)
        return 0;
    ranks->both |= ranks->n > 0 && kind != ranks->kind;
    ranks->kind = kind;
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
    out->lost = missing == 1
                    ? rfs_text_printf("'%s%u%s' is", forms[ranks->kind].before, first,
                                      forms[ranks->kind].behind)
                    : rfs_text_printf("'%s%u%s' and %zu more are", forms[ranks->kind].before, first,
                                      forms[ranks->kind].behind, missing - 1);
    return out->lost != NULL;
}

int rfs_scan_rank_metadata(const struct rfs_source_spec *spec, bool torch, struct rfs_scan *out,
                           struct rfs_error *err)
{
    RFS_CLEANUP(ranks_end) struct ranks ranks = {.torch = torch, .err = err};
    const int rc = rfs_scan_entry_each(spec->store, spec->path, gather, &ranks, err);

    if (rc)
        return rc;
    if (ranks.both)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), "move files of another save away",
                        "the folder has metadata of two saves, 'N.metadata' and "
                        "'.rankN_metadata'");
    RFS_SORT_ALL(&ranks, by_rank);
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);
    for (size_t i = 0; item && i < ranks.n; i++) {
        char name[48];
        snprintf(name, sizeof name, "%s%u%s", forms[ranks.kind].before, ranks.data[i],
                 forms[ranks.kind].behind);
        if (!rfs_scan_add_file(item, rfs_path_join(spec->path, name)))
            item = NULL;
    }
    return item && note_lost(&ranks, out) ? 0 : rfs_fail_memory(err);
}
