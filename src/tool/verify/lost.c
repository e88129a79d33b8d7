/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged and missing ranks. The tensors that they had a part of alone have no whole: beside a
 * source and its destination, the other ranks' slices of them are compared rank by rank; without,
 * they are among the findings. Tensors that the source has lost are compared with nothing.
 */
#include "tool/verify/verify.h"

#include "view/internal.h"

static void find_lost(struct rfs_verify *verify, enum rfs_finding_kind kind, const char *name,
                      const struct rfs_whole *whole, uint32_t rank)
{
    char why[96];

    snprintf(why, sizeof why, "rank %u%s %s", rank,
             kind == RFS_FOUND_UNCOMPARED ? " of the source" : "",
             !rfs_catalog_has(whole->view->stored, rank) ? "is missing"
             : rfs_lacking_file(&whole->lacking, rank)   ? "is damaged"
                                                         : "does not have it");
    rfs_verify_find(verify, kind, name, RFS_NO_RANK, why);
}

static void check_source(struct rfs_verify *verify, const struct rfs_whole *source)
{
    uint32_t rank;

    for (size_t i = 0; i < source->lacking.damaged.n; i++) {
        const struct rfs_index *index;
        struct rfs_error why = {0};
        rank = source->lacking.damaged.data[i];
        rfs_catalog_index(source->catalog, rank, RFS_NO_RANK, &index, &why);
        rfs_verify_find(verify, RFS_FOUND_SOURCE_RANK, NULL, rank, why.text);
    }
    uint32_t at = 0;
    for (const char *name; (name = rfs_whole_lost(source, &at, &rank));)
        if (rfs_globs_match(&verify->options->globs, name))
            find_lost(verify, RFS_FOUND_UNCOMPARED, name, source, rank);
}

static void check_tree(struct rfs_verify *verify)
{
    static const struct rfs_target as_it_is;
    const bool logged = !verify->shown.view || verify->options->manifest;
    uint32_t at = 0;
    uint32_t rank;

    for (const char *name; (name = rfs_whole_lost(&verify->tree, &at, &rank));) {
        const struct rfs_whole_tensor *src =
            verify->shown.view ? rfs_whole_find(&verify->src, name) : NULL;
        if (!rfs_globs_match(&verify->options->globs, name))
            continue;
        if (logged)
            find_lost(verify, RFS_FOUND_PARTIAL, name, &verify->tree, rank);
        if (src)
            verify->lost[verify->n_lost++] = (struct rfs_whole_tensor){
                .name = src->name, .type = src->type, .target = &as_it_is};
    }
}

int rfs_verify_lost(struct rfs_verify *verify, struct rfs_error *err)
{
    verify->lost = calloc(verify->tree.lacking.from.n + 1, sizeof *verify->lost);
    if (!verify->lost)
        return rfs_fail_memory(err);
    if (verify->src.view)
        check_source(verify, &verify->src);
    if (verify->shown.view)
        check_source(verify, &verify->shown);
    check_tree(verify);
    return 0;
}
