/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of ranks, or an unsharded checkpoint of several files: the parameters over all ranks, the
 * ranks, and the findings of missing or odd files. With a strategy also the whole tensors and how
 * they are cut.
 */
#include "tool/info/tree.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "store/crypt/cipher.h"
#include "view/strategy_files.h"

static const struct rfs_column rank_columns[] = {
    {"rank", RFS_CELL_NUMBER},
    {"file", RFS_CELL_TEXT},
    {"parameters", RFS_CELL_NUMBER},
    {"bytes", RFS_CELL_NUMBER},
};

/* ---- ranks ---- */

static const char *file_name(const struct rfs_info_tree *tree, uint32_t rank)
{
    return rfs_path_name(
        rfs_files_path(rfs_catalog_files(tree->catalog), rfs_catalog_file(tree->catalog, rank)));
}

static bool alike(const struct rfs_headers_rank *a, const struct rfs_headers_rank *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->rank + 1 == b->rank &&
           a->code == b->code && a->empty == b->empty;
}

static void add_rank(struct rfs_info_tree *tree, uint32_t first, uint32_t last)
{
    struct rfs_table *table = &tree->report->second;
    const struct rfs_headers_rank *rank = &tree->headers.ranks[first];
    const struct rfs_index *index = rfs_headers_index(&tree->headers, rank);
    const char *name = file_name(tree, rank->rank);
    const uint32_t more = rfs_catalog_parts(tree->catalog, rank->rank) - 1;

    if (last > first)
        rfs_table_add(table, "%" PRIu32 "-%" PRIu32, rank->rank, tree->headers.ranks[last].rank);
    else
        rfs_table_u64(table, rank->rank);
    if (more > 0)
        rfs_table_add(table, "%s and %" PRIu32 " more", name, more);
    else if (last > first && strcmp(name, file_name(tree, tree->headers.ranks[last].rank)) != 0)
        rfs_table_add(table, "%s to %s", name, file_name(tree, tree->headers.ranks[last].rank));
    else
        rfs_table_text(table, name);
    if (index || rank->empty)
        rfs_table_add(table, "%zu", index ? index->n : 0);
    else
        rfs_table_none(table, "?");
    rfs_table_u64(table, rank->bytes);
}

static void add_rank_rows(struct rfs_info_tree *tree)
{
    struct rfs_headers *headers = &tree->headers;

    RFS_TABLE_DESCRIBE(&tree->report->second, rank_columns);
    for (uint32_t i = 0; i < headers->n; i++) {
        uint32_t last = i;
        while (!tree->args->json && last + 1 < headers->n &&
               alike(&headers->ranks[last], &headers->ranks[last + 1]))
            last++;
        add_rank(tree, i, last);
        i = last;
    }
}

/* ---- in words ---- */

static void report_tree(struct rfs_info_tree *tree, const char *encrypted)
{
    struct rfs_report *report = tree->report;
    struct rfs_json_write *json = &report->json;
    const struct rfs_headers *headers = &tree->headers;
    const uint32_t ranks = rfs_catalog_ranks(tree->catalog);
    uint64_t bytes = 0;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;

    for (uint32_t i = 0; i < headers->n; i++) {
        bytes += headers->ranks[i].bytes;
        least = headers->ranks[i].bytes < least ? headers->ranks[i].bytes : least;
        most = headers->ranks[i].bytes > most ? headers->ranks[i].bytes : most;
    }
    fprintf(report->say, "tree: %" PRIu32 " rank%s", headers->n, headers->n == 1 ? "" : "s");
    if (headers->n != ranks)
        fprintf(report->say, ", %" PRIu32 " missing below the highest", ranks - headers->n);
    fprintf(report->say, ", %" PRIu64 " bytes", bytes);
    if (headers->n > 1 && least == most)
        fprintf(report->say, ", %" PRIu64 " each", least);
    else if (headers->n > 1)
        fprintf(report->say, ", %" PRIu64 " to %" PRIu64 " each", least, most);
    fputc('\n', report->say);
    if (encrypted)
        fprintf(report->say,
                "format: ckpt, encrypted (%s): to see its content, give its key: "
                "-o key_file=FILE\n",
                encrypted);
    else
        fprintf(report->say, "format: %s\n", rfs_format_name(rfs_catalog_format(tree->catalog)));
    rfs_json_put_u64(json, "ranks", headers->n);
    rfs_json_put_u64(json, "highest_rank", ranks - 1);
    rfs_json_put_u64(json, "bytes", bytes);
    rfs_json_put_u64(json, "least_rank_bytes", least);
    rfs_json_put_u64(json, "most_rank_bytes", most);
    rfs_json_put_u64(json, "kinds", headers->kinds.n);
    rfs_json_put_bool(json, "sampled", headers->sampled);
    rfs_json_put_text(json, "format", rfs_format_name(rfs_catalog_format(tree->catalog)));
    rfs_json_put_text(json, "encrypted", encrypted);
    if (encrypted)
        return;
    rfs_json_put_u64(json, "parameters", tree->rows.n);
    if (tree->strategy) {
        rfs_json_put_u64(json, "stages", tree->fit.stages);
        rfs_json_put_u64(json, "devices", tree->fit.devices);
        fprintf(report->say, "strategy: %" PRIu32 " stage%s of %" PRIu32 " device%s\n",
                tree->fit.stages, tree->fit.stages == 1 ? "" : "s", tree->fit.devices,
                tree->fit.devices == 1 ? "" : "s");
    }
    rfs_info_tell_filter(report, &tree->args->filter, &tree->rows);
    rfs_info_tell_types(report, &tree->rows);
    if (headers->sampled)
        fputs("headers: of one rank of each kind, and samples of the others (--all reads all)\n",
              report->say);
}

/* ---- reading ---- */

/* The strategy that -s or -o src_rules= gives. */
static int read_strategy(struct rfs_info_tree *tree)
{
    const struct rfs_options *options = &tree->args->source.options;

    if (!options->src_strategy)
        return 0;
    const int rc = rfs_view_read_strategy(options->src_strategy, &tree->strategy, tree->err);
    if (rc)
        return rc;
    rfs_fit_begin(&tree->headers, tree->strategy, &tree->fit);
    return 0;
}

/* The mode of files that are encrypted, and no key is given; else NULL. */
static const char *find_encryption(const struct rfs_info_tree *tree)
{
    unsigned char head[4];
    const uint32_t rank = rfs_catalog_lowest(tree->catalog);
    const char *path =
        rfs_files_path(rfs_catalog_files(tree->catalog), rfs_catalog_file(tree->catalog, rank));

    if (tree->args->source.encrypted || rfs_store_head(path, head, sizeof head) != sizeof head)
        return NULL;
    const enum rfs_cipher_mode mode = rfs_cipher_detect(head);
    return mode == RFS_NOT_ENCRYPTED ? NULL : rfs_cipher_name(mode);
}

/* Files without a look into them. */
static int list_only(struct rfs_info_tree *tree)
{
    struct rfs_headers *headers = &tree->headers;
    struct rfs_files *files = rfs_catalog_files(tree->catalog);

    headers->catalog = tree->catalog;
    headers->ranks = calloc(rfs_catalog_present(tree->catalog), sizeof *headers->ranks);
    if (!headers->ranks)
        return rfs_fail_memory(tree->err);
    for (uint32_t rank = 0; rank < rfs_catalog_ranks(tree->catalog); rank++) {
        struct stat st;
        if (!rfs_catalog_has(tree->catalog, rank))
            continue;
        struct rfs_headers_rank *at = &headers->ranks[headers->n++];
        *at = (struct rfs_headers_rank){.rank = rank, .kind = RFS_NO_KIND};
        if (rfs_files_stat(files, rfs_catalog_file(tree->catalog, rank), &st) == 0)
            at->bytes = (uint64_t)st.st_size;
    }
    return 0;
}

static int read_tree(struct rfs_info_tree *tree)
{
    struct rfs_progress progress;

    rfs_progress_init(&progress, false);
    int rc = rfs_headers_read(tree->catalog, tree->args->source.pool, tree->args->all, &progress,
                              &tree->headers, tree->err);
    rfs_progress_destroy(&progress);
    if (rc == 0)
        rc = read_strategy(tree);
    return rc ? rc : rfs_info_tree_count(tree);
}

static int show(struct rfs_info_tree *tree)
{
    const char *encrypted = find_encryption(tree);
    int rc = encrypted ? list_only(tree) : read_tree(tree);

    if (rc)
        return rc;
    if (!encrypted)
        rfs_info_tree_params(tree);
    add_rank_rows(tree);
    report_tree(tree, encrypted);
    if (tree->strategy)
        rc = rfs_fit_check(&tree->fit, &tree->report->findings, tree->err);
    if (rc == 0 && !rfs_info_tree_odd(tree, !encrypted))
        rc = rfs_fail_memory(tree->err);
    return rc;
}

int rfs_info_tree(struct rfs_info_args *args, const char *path, struct rfs_report *report,
                  struct rfs_error *err)
{
    struct rfs_info_tree tree = {.args = args, .report = report, .err = err};
    int rc = rfs_tool_source_open(&args->source, path, err);

    report->kind = "tree";
    tree.catalog = args->source.catalog;
    if (rc == 0)
        rc = show(&tree);
    rfs_headers_free(&tree.headers);
    rfs_rows_free(&tree.rows);
    rfs_strategy_free(tree.strategy);
    free(tree.params);
    return rc;
}
