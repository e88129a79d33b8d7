/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "base/read_whole.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"
#include "view/internal.h"

#include <sys/stat.h>

/* ---- the manifest ---------------------------------------------------------------------------- */

static bool is_there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 || errno != ENOENT;
}

/* Before anything is read, so that a wrong file does not cost an hour. */
static int load(struct rfs_verify *verify, struct rfs_error *err)
{
    const struct rfs_verify_options *options = verify->options;
    RFS_FREE char *text = NULL;
    size_t size = 0;

    if (rfs_sums_init(&verify->sums))
        return rfs_fail_memory(err);
    if (!options->manifest || options->write || !is_there(options->manifest))
        return 0;
    verify->has_sums = true;
    const int rc = rfs_read_whole(options->manifest, RFS_SUMS_BYTES, &text, &size, err);
    return rc ? rc : rfs_sums_parse(options->manifest, text, size, &verify->sums, err);
}

void rfs_verify_find(struct rfs_verify *verify, enum rfs_finding_kind kind, const char *name,
                     uint32_t rank, const char *detail)
{
    rfs_findings_add(
        &verify->findings,
        &(struct rfs_finding){
            .kind = kind, .name = name, .rank = rank, .detail = detail, .at = RFS_NOWHERE_AT});
}

static void find_sum(struct rfs_verify *verify, const char *name, const char *detail)
{
    rfs_verify_find(verify, RFS_FOUND_MANIFEST, name, RFS_NO_RANK, detail);
}

static void check_sums(struct rfs_verify *verify)
{
    const struct rfs_sums *sums = &verify->sums;

    for (size_t i = 0; i < verify->tree.n; i++) {
        const struct rfs_verify_item *item = &verify->items[i];
        struct rfs_sum_entry *entry = rfs_sums_find(sums, item->tree->name);
        if (entry)
            entry->met = true;
        if (!entry)
            find_sum(verify, item->tree->name, "is not in the manifest");
        else if (!rfs_sums_fit(entry, item->tree->type))
            find_sum(verify, item->tree->name, "has another dtype or shape in the manifest");
        else if (!rfs_hash_equal(entry->hash, item->hash))
            find_sum(verify, item->tree->name, "has other bytes than the manifest says");
    }
    for (uint32_t i = 0; i < sums->entries.n; i++)
        if (!sums->entries.data[i].met &&
            !rfs_whole_lacks(&verify->tree, rfs_intern_text(sums->names, i)) &&
            rfs_globs_match(&verify->options->globs, rfs_intern_text(sums->names, i)))
            find_sum(verify, rfs_intern_text(sums->names, i),
                     "is in the manifest, and not in the tree");
}

/* A manifest is written only of a tree without faults. */
static int write_sums(struct rfs_verify *verify, struct rfs_error *err)
{
    for (size_t i = 0; i < verify->tree.n; i++) {
        const struct rfs_verify_item *item = &verify->items[i];
        const int rc = rfs_sums_put(&verify->sums, item->tree->name, item->tree->type, item->hash);
        if (rc == -EEXIST)
            return rfs_fail(err, rc, RFS_OF(verify->tree.path, item->tree->name),
                            "verify without --manifest",
                            "another name looks the same once it is printable");
        if (rc)
            return rfs_fail_memory(err);
    }
    return rfs_sums_save(&verify->sums, verify->options->manifest, err);
}

static int do_manifest(struct rfs_verify *verify, struct rfs_error *err)
{
    if (verify->has_sums)
        check_sums(verify);
    else if (verify->options->manifest && !rfs_findings_fault(&verify->findings, NULL))
        return write_sums(verify, err);
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/*
 * A tree that describes its own cuts got the destination's strategy: the view that makes such trees
 * is missing in the options.
 */
static void name_view(struct rfs_error *err)
{
    if (strstr(err->text, RFS_PLAN_DESCRIBED))
        rfs_fail_usage(err, "-o view=dcp or -o view=mindformers, with which such a tree is made",
                       "TREE describes its own cuts, and takes no strategy but by its view");
}

static int open_all(struct rfs_verify *verify, struct rfs_error *err)
{
    struct rfs_verify_options *options = verify->options;
    struct rfs_globs *globs = &options->globs;
    const struct rfs_view_how of_tree = {.late = true, .names = options->names};
    const struct rfs_view_how of_src = {.late = true};
    int rc = rfs_whole_open(options->tree, &options->tree_view, globs, &of_tree, &verify->tree,
                            NULL, err);

    rfs_whole_name_strategy(options->against ? "-d" : "-s", err);
    if (rc && options->against)
        name_view(err);
    if (rc == 0 && options->against)
        rc = rfs_whole_open(options->against, &options->src_view, globs, &of_src, &verify->src,
                            options->described ? &verify->cut : &verify->shown, err);
    if (rc == 0 && verify->cut.view)
        rc = rfs_whole_describe(&verify->src, &verify->cut, err);
    rfs_whole_name_strategy("-s", err);
    const char *parts = rc == 0 ? rfs_whole_match(&verify->tree, &verify->src) : NULL;
    if (parts)
        rfs_verify_find(verify, RFS_FOUND_MODELS, NULL, RFS_NO_RANK, parts);
    for (uint32_t i = 0; i < verify->sums.entries.n; i++)
        rfs_globs_take(globs, rfs_intern_text(verify->sums.names, i));
    return rc ? rc : rfs_globs_check(globs, err);
}

/* Whether a source that could not be opened has bad parts; not after a mistake of usage. */
static bool has_bad_parts(struct rfs_verify *verify, int rc, const struct rfs_error *err)
{
    const struct rfs_verify_options *options = verify->options;

    if (rc == -ENOMEM || rc == -EINTR || err->usage || verify->src.view)
        return false;
    const bool of_source = verify->tree.view != NULL;
    rfs_whole_close(&verify->tree); /* nothing of it is compared */
    return of_source ? rfs_verify_parts(verify, options->against, RFS_FOUND_SOURCE_RANK)
                     : rfs_verify_parts(verify, options->tree, RFS_FOUND_RANK);
}

static int compare_all(struct rfs_verify *verify, struct rfs_error *err)
{
    int rc = rfs_verify_ranks(verify, err);

    if (rc == 0)
        rc = rfs_verify_lost(verify, err);
    if (rc == 0)
        rc = rfs_verify_content(verify, err);
    if (rc == 0)
        rc = rfs_verify_objects(verify, err);
    if (rc == 0)
        rc = rfs_verify_frames(verify, err);
    if (rc == 0)
        rfs_verify_values(verify);
    return rc ? rc : do_manifest(verify, err);
}

static int do_all(struct rfs_verify *verify, struct rfs_error *err)
{
    int rc = load(verify, err);

    if (rc)
        return rc;
    rc = open_all(verify, err);
    if (rc == 0)
        rc = compare_all(verify, err);
    else if (has_bad_parts(verify, rc, err))
        rc = 0;
    if (rc == 0 && verify->findings.failed)
        rc = rfs_fail_memory(err);
    if (rc)
        return rc;
    rfs_findings_sort(&verify->findings);
    return rfs_verify_write(verify, err);
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_verify_options *options = request;
    struct rfs_verify verify = {.options = options};
    int rc = rfs_verify_settle(options, err);

    rfs_progress_init(&verify.progress, false);
    if (rfs_findings_init(&verify.findings) && rc == 0)
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = do_all(&verify, err);
    const bool fault = rc == 0 && rfs_findings_fault(&verify.findings, NULL);
    rfs_progress_destroy(&verify.progress);
    free(verify.items);
    free(verify.lost);
    rfs_findings_free(&verify.findings);
    rfs_sums_free(&verify.sums);
    rfs_whole_close(&verify.shown);
    rfs_whole_close(&verify.cut);
    rfs_whole_close(&verify.src);
    rfs_whole_close(&verify.tree);
    rfs_verify_views_free(options);
    return rc ? rc : fault ? RFS_EXIT_INPUT : RFS_EXIT_OK;
}

const struct rfs_command rfs_command_verify = {
    .name = "verify",
    .usage = "reshard verify TREE --against SRC [-s FILE] [-d FILE] [option…]\n"
             "reshard verify TREE [-s FILE] [--manifest FILE] [option…]\n",
    .summary = "proves that a mount, an export or a tree equals its source",
    .arguments = rfs_verify_arguments,
    .after = "\nExit status: 0 all is right, 1 something differs or is damaged, 2 wrong usage.\n",
    .request_bytes = sizeof(struct rfs_verify_options),
    .run = run,
};
