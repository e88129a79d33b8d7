/* SPDX-License-Identifier: Apache-2.0 */
/* Finds missing and odd files of a tree. */
#include "tool/info/tree.h"

#include "base/cleanup.h"
#include "base/path.h"

static bool note(struct rfs_info_tree *tree, const char *kind, bool bad, int64_t rank,
                 const char *text)
{
    return rfs_fit_findings_add(
        &tree->report->findings,
        (struct rfs_fit_finding){.kind = kind, .bad = bad, .stage = -1, .rank = rank}, "%s", text);
}

static bool tell_missing(struct rfs_info_tree *tree)
{
    const uint32_t end = rfs_catalog_ranks(tree->catalog);
    bool ok = true;

    for (uint32_t rank = 0; rank < end && ok; rank++) {
        uint32_t last = rank;
        char text[96];
        if (rfs_catalog_has(tree->catalog, rank))
            continue;
        while (last + 1 < end && !rfs_catalog_has(tree->catalog, last + 1))
            last++;
        if (last > rank)
            snprintf(text, sizeof text, "rank_%" PRIu32 " to rank_%" PRIu32 " have no checkpoint",
                     rank, last);
        else
            snprintf(text, sizeof text, "rank_%" PRIu32 " has no checkpoint", rank);
        ok = note(tree, "ranks", true, rank, text);
        rank = last;
    }
    return ok;
}

static bool tell_unreadable(struct rfs_info_tree *tree)
{
    bool ok = true;

    for (uint32_t i = 0; i < tree->headers.n && ok; i++) {
        const struct rfs_headers_rank *rank = &tree->headers.ranks[i];
        if (rank->code == 0)
            continue;
        ok = note(tree, rank->empty ? "no parameters" : "unreadable", !rank->empty, rank->rank,
                  rank->why ? rank->why : "out of memory");
        if (!rank->empty && tree->report->failure.code == 0) {
            tree->report->failure = (struct rfs_error){.code = rank->code};
            snprintf(tree->report->failure.text, sizeof tree->report->failure.text, "%s",
                     rank->why ? rank->why : "out of memory");
        }
    }
    return ok;
}

/* A rank that is like no other, where most are alike. */
static bool tell_single(struct rfs_info_tree *tree)
{
    const struct rfs_headers *headers = &tree->headers;
    uint32_t most = 0;
    bool ok = true;

    for (size_t k = 0; k < headers->kinds.n; k++)
        most = headers->kinds.data[k].ranks > most ? headers->kinds.data[k].ranks : most;
    for (uint32_t i = 0; i < headers->n && ok; i++) {
        const uint32_t kind = headers->ranks[i].kind;
        char text[128];
        if (kind == RFS_NO_KIND || headers->kinds.data[kind].ranks > 1 || most < 3 ||
            most * 2 < headers->n)
            continue;
        snprintf(text, sizeof text,
                 "rank_%" PRIu32 " lists other parameters, shapes or offsets than any other rank",
                 headers->ranks[i].rank);
        ok = note(tree, "differs", false, headers->ranks[i].rank, text);
    }
    return ok;
}

/* Parameters that only some ranks have, or of several types; one line each, with an example. */
static bool tell_partial(struct rfs_info_tree *tree)
{
    const uint32_t n = rfs_intern_count(rfs_catalog_tables(tree->catalog)->names);
    const char *some = NULL;
    const char *mixed = NULL;
    size_t n_some = 0;
    size_t n_mixed = 0;
    uint32_t readable = 0;
    bool ok = true;

    for (size_t k = 0; k < tree->headers.kinds.n; k++)
        readable += tree->headers.kinds.data[k].ranks;
    for (uint32_t id = 0; id < n; id++) {
        const struct rfs_info_param *param = &tree->params[id];
        if (!param->type)
            continue;
        if (param->ranks < readable && n_some++ == 0)
            some = rfs_catalog_name(tree->catalog, id);
        if (param->types && n_mixed++ == 0)
            mixed = rfs_catalog_name(tree->catalog, id);
    }
    if (n_some > 0)
        ok = rfs_fit_findings_add(
            &tree->report->findings,
            (struct rfs_fit_finding){.kind = "some ranks", .stage = -1, .rank = -1},
            "%zu of %zu parameters are not on all ranks, as '%s': stages of a "
            "pipeline, or replicas that were left out",
            n_some, tree->rows.n, some);
    if (ok && n_mixed > 0)
        ok = rfs_fit_findings_add(
            &tree->report->findings,
            (struct rfs_fit_finding){.kind = "type", .bad = true, .stage = -1, .rank = -1},
            "%zu parameter%s of different types on different ranks, as '%s'", n_mixed,
            n_mixed == 1 ? " is" : "s are", mixed);
    return ok;
}

static bool tell_beside(struct rfs_info_tree *tree)
{
    struct rfs_beside beside = {0};
    struct rfs_files *files = rfs_catalog_files(tree->catalog);

    if (rfs_catalog_ranks(tree->catalog) == 1 && rfs_catalog_parts(tree->catalog, 0) > 1)
        return true; /* of one checkpoint in several files */
    for (uint32_t i = 0; i < tree->headers.n; i++) {
        const char *path =
            rfs_files_path(files, rfs_catalog_file(tree->catalog, tree->headers.ranks[i].rank));
        RFS_FREE char *folder = strdup(path);
        char *slash = folder ? strrchr(folder, '/') : NULL;
        if (!slash || rfs_catalog_parts(tree->catalog, tree->headers.ranks[i].rank) > 1)
            continue;
        *slash = '\0';
        rfs_info_look_beside(folder, rfs_path_name(folder), &beside);
    }
    return rfs_info_tell_beside(&beside, &tree->report->findings);
}

bool rfs_info_tree_odd(struct rfs_info_tree *tree, bool readable)
{
    bool ok = true;

    if (!tree->strategy)
        ok = tell_missing(tree) && (!readable || (tell_single(tree) && tell_partial(tree)));
    return ok && (!readable || tell_unreadable(tree)) && tell_beside(tree);
}
