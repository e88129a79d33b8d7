/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of ranks, or an unsharded checkpoint of several files: the parameters over all ranks, the ranks, and what is
 * missing or odd. With a strategy also the whole tensors and how they are cut.
 */
#include "base/cleanup.h"
#include "layout/rules.h"
#include "source/cipher.h"
#include "tool/common/layout_text.h"
#include "tool/info/info.h"
#include "view/rules.h"
#include "view/strategy_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

static const struct rfs_column slice_columns[] = {
    {"name", false, false},  {"dtype", false, false}, {"slice", true, false},
    {"ranks", false, false}, {"bytes", true, true},
};
static const struct rfs_column whole_columns[] = {
    {"name", false, false},          {"dtype", false, false},  {"shape", true, false},
    {"cut", false, false},           {"slice", true, false},   {"ranks", false, false},
    {"bytes", true, true},           {"devices", true, false}, {"map", true, false},
    {"optimizer_shard", true, true}, {"replicas", true, true}, {"stages", true, false},
};
#define WHOLE_SHORT 7 /* of these, those for people */

static const struct rfs_column rank_columns[] = {
    {"rank", true, true},
    {"file", false, false},
    {"parameters", true, true},
    {"bytes", true, true},
};

/* A parameter over all ranks, by the id of its name. */
struct param {
    const struct rfs_type *type; /* of the first rank that has it; NULL: none has */
    uint64_t bytes;              /* over all ranks */
    uint32_t ranks;
    bool shapes, types; /* differ between ranks */
};

struct tree {
    struct rfs_info_args *args;
    struct rfs_report *report;
    struct rfs_catalog *catalog;
    struct rfs_headers headers;
    struct param *params; /* owned, as what follows */
    struct rfs_rows rows;
    struct rfs_strategy *strategy;
    struct rfs_fit fit;
    struct rfs_error *err;
};

static bool note(struct tree *tree, const char *kind, bool bad, int64_t rank, const char *text)
{
    return rfs_fit_findings_add(
        &tree->report->findings,
        (struct rfs_fit_finding){.kind = kind, .bad = bad, .stage = -1, .rank = rank}, "%s", text);
}

/* ---- parameters ---- */

static void count_kind(struct tree *tree, const struct rfs_headers_kind *kind)
{
    for (size_t e = 0; e < kind->index->n; e++) {
        const struct rfs_entry *entry = &kind->index->entries[e];
        const struct rfs_type *type = rfs_catalog_type(tree->catalog, entry->type);
        struct param *param = &tree->params[entry->name];
        if (!param->type)
            param->type = type;
        param->ranks += kind->ranks;
        param->bytes += type->bytes * kind->ranks;
        param->types |= type->dtype != param->type->dtype || type->kind != param->type->kind;
        param->shapes |= type->ndim != param->type->ndim ||
                         memcmp(type->dims, param->type->dims, sizeof type->dims) != 0;
    }
}

/* In the first stage that holds it. 1, 0 when the strategy does not have it, or -EINVAL: it does not fit. */
static int find_tensor(struct tree *tree, const char *name, ptrdiff_t *at,
                       struct rfs_fit_tensor *tensor)
{
    struct rfs_error unused;

    *at = rfs_strategy_find(tree->strategy, name);
    for (uint32_t stage = 0; *at >= 0 && stage < tree->fit.stages; stage++) {
        const int rc = rfs_fit_tensor(&tree->fit, (size_t)*at, stage, tensor, &unused);
        if (rc)
            return rc;
    }
    return 0;
}

/* The bytes of the whole tensor, or over all ranks where no strategy tells it. */
static uint64_t bytes_of(struct tree *tree, uint32_t name)
{
    const struct param *param = &tree->params[name];
    struct rfs_fit_tensor tensor = {.slice = NULL};
    ptrdiff_t at;

    if (!tree->strategy ||
        find_tensor(tree, rfs_catalog_name(tree->catalog, name), &at, &tensor) != 1)
        return param->bytes;
    uint64_t bytes = rfs_dtype_bytes((enum rfs_dtype)tensor.slice->dtype);
    for (uint32_t i = 0; i < tensor.slice->ndim; i++)
        if (__builtin_mul_overflow(bytes, tensor.whole[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* Rows in the order of the files. Those of a strategy are sorted by whole tensors. */
static int add_rows(struct tree *tree)
{
    const uint32_t n = rfs_intern_count(rfs_catalog_tables(tree->catalog)->names);
    RFS_FREE bool *seen = calloc((size_t)n + 1, sizeof *seen);

    tree->params = calloc((size_t)n + 1, sizeof *tree->params);
    if (!seen || !tree->params)
        return rfs_fail_memory(tree->err);
    for (size_t k = 0; k < tree->headers.kinds.n; k++)
        count_kind(tree, &tree->headers.kinds.data[k]);
    for (size_t k = 0; k < tree->headers.kinds.n; k++) {
        const struct rfs_index *index = tree->headers.kinds.data[k].index;
        for (size_t e = 0; e < index->n; e++) {
            const struct rfs_entry *entry = &index->entries[e];
            const struct param *param = &tree->params[entry->name];
            if (seen[entry->name])
                continue;
            seen[entry->name] = true;
            const struct rfs_row row = {.name = rfs_catalog_name(tree->catalog, entry->name),
                                        .type = param->type,
                                        .bytes = bytes_of(tree, entry->name),
                                        .offset = entry->offset,
                                        .id = entry->name};
            if (!rfs_rows_add(&tree->rows, &tree->args->filter, row))
                return rfs_fail_memory(tree->err);
        }
    }
    rfs_rows_order(&tree->rows, &tree->args->filter);
    return 0;
}

/* "0-3,8": the ranks for which HAS is true. */
static void put_ranks(FILE *out, const struct rfs_headers *headers, const bool *has_kind)
{
    bool first = true;

    for (uint32_t i = 0; i < headers->n; i++) {
        uint32_t last = i;
        if (headers->ranks[i].kind == RFS_NO_KIND || !has_kind[headers->ranks[i].kind])
            continue;
        while (last + 1 < headers->n && headers->ranks[last + 1].kind != RFS_NO_KIND &&
               has_kind[headers->ranks[last + 1].kind] &&
               headers->ranks[last + 1].rank == headers->ranks[last].rank + 1)
            last++;
        fprintf(out, "%s%" PRIu32, first ? "" : ",", headers->ranks[i].rank);
        if (last > i)
            fprintf(out, "-%" PRIu32, headers->ranks[last].rank);
        first = false;
        i = last;
    }
}

static void add_ranks(struct tree *tree, struct rfs_table *table, const struct rfs_row *row)
{
    const struct rfs_headers *headers = &tree->headers;
    uint32_t readable = 0;
    RFS_FREE bool *has = calloc(headers->kinds.n + 1, sizeof *has);
    RFS_FREE char *text = NULL;
    size_t size = 0;
    FILE *out = has ? open_memstream(&text, &size) : NULL;

    for (size_t k = 0; has && k < headers->kinds.n; k++) {
        has[k] = rfs_index_find(headers->kinds.data[k].index, row->id) != NULL;
        readable += headers->kinds.data[k].ranks;
    }
    if (out && tree->params[row->id].ranks == readable)
        fputs("all", out);
    else if (out)
        put_ranks(out, headers, has);
    if (out && fclose(out) == 0)
        rfs_table_add(table, "%s", text);
    else
        table->failed = true;
}

static void add_slice(struct tree *tree, struct rfs_table *table, const struct rfs_row *row)
{
    const struct param *param = &tree->params[row->id];

    if (param->shapes && tree->args->json)
        rfs_table_add(table, "null");
    else if (param->shapes)
        rfs_table_add(table, "differs");
    else
        rfs_info_add_shape(table, param->type->ndim, param->type->dims);
}

/* ---- with a strategy ---- */

static void add_text(struct rfs_table *table, const struct rfs_layout *layout,
                     void (*put)(FILE *out, const struct rfs_layout *layout))
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out) {
        table->failed = true;
        return;
    }
    put(out, layout);
    fclose(out);
    rfs_table_add(table, "%s", text);
}

static void add_cut(struct rfs_table *table, const struct rfs_grid *grid)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out) {
        table->failed = true;
        return;
    }
    rfs_put_cuts(out, grid);
    fclose(out);
    rfs_table_add(table, "%s", text);
}

static void add_stages(struct tree *tree, struct rfs_table *table, ptrdiff_t at)
{
    RFS_FREE char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    const char *comma = "";

    if (!out) {
        table->failed = true;
        return;
    }
    fputc('[', out);
    for (uint32_t stage = at < 0 ? RFS_NO_STAGE
                                 : rfs_strategy_next_stage(tree->strategy, (size_t)at, 0);
         stage != RFS_NO_STAGE;
         stage = rfs_strategy_next_stage(tree->strategy, (size_t)at, stage + 1)) {
        fprintf(out, "%s%" PRIu32, comma, stage);
        comma = ", ";
    }
    fputc(']', out);
    fclose(out);
    rfs_table_add(table, "%s", text);
}

static void add_whole(struct tree *tree, const struct rfs_row *row)
{
    struct rfs_table *table = &tree->report->table;
    struct rfs_fit_tensor tensor = {.slice = NULL};
    ptrdiff_t at;
    const int rc = find_tensor(tree, row->name, &at, &tensor);

    rfs_table_add(table, "%s", row->name);
    rfs_table_add(table, "%s", rfs_rows_dtype(row->type));
    if (rc == 1) {
        rfs_info_add_shape(table, tensor.slice->ndim, tensor.whole);
        add_cut(table, &tensor.grid);
    } else {
        rfs_table_add(table, tree->args->json ? "null" : "?");
        rfs_table_add(table, "%s", rc < 0 ? "does not fit" : "not in the strategy");
    }
    add_slice(tree, table, row);
    add_ranks(tree, table, row);
    rfs_table_add(table, "%" PRIu64, row->bytes);
    if (!tree->args->json)
        return;
    if (rc == 1) {
        add_text(table, tensor.layout, rfs_put_matrix);
        add_text(table, tensor.layout, rfs_put_map);
        rfs_table_add(table, "%" PRIu32, tensor.layout->opt_size);
        rfs_table_add(table, "%" PRIu32, tensor.grid.replicas);
    } else {
        for (int i = 0; i < 4; i++)
            rfs_table_add(table, "null");
    }
    add_stages(tree, table, at);
}

static void add_params(struct tree *tree)
{
    struct rfs_table *table = &tree->report->table;

    table->columns = tree->strategy ? whole_columns : slice_columns;
    table->n_columns = !tree->strategy    ? sizeof slice_columns / sizeof *slice_columns
                       : tree->args->json ? sizeof whole_columns / sizeof *whole_columns
                                          : WHOLE_SHORT;
    tree->report->key = "tensors";
    for (size_t i = 0; i < tree->rows.list.n; i++) {
        const struct rfs_row *row = &tree->rows.list.data[i];
        if (tree->strategy) {
            add_whole(tree, row);
            continue;
        }
        rfs_table_add(table, "%s", row->name);
        rfs_table_add(table, "%s",
                      tree->params[row->id].types ? "differs" : rfs_rows_dtype(row->type));
        add_slice(tree, table, row);
        add_ranks(tree, table, row);
        rfs_table_add(table, "%" PRIu64, row->bytes);
    }
}

/* ---- ranks ---- */

static const char *file_name(const struct tree *tree, uint32_t rank)
{
    const char *path =
        rfs_files_path(rfs_catalog_files(tree->catalog), rfs_catalog_file(tree->catalog, rank));
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool alike(const struct rfs_headers_rank *a, const struct rfs_headers_rank *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->rank + 1 == b->rank &&
           a->code == b->code && a->empty == b->empty;
}

static void add_rank(struct tree *tree, uint32_t first, uint32_t last)
{
    struct rfs_table *table = &tree->report->second;
    const struct rfs_headers_rank *rank = &tree->headers.ranks[first];
    const struct rfs_index *index = rfs_headers_index(&tree->headers, rank);
    const char *name = file_name(tree, rank->rank);
    const uint32_t more = rfs_catalog_parts(tree->catalog, rank->rank) - 1;

    if (last > first)
        rfs_table_add(table, "%" PRIu32 "-%" PRIu32, rank->rank, tree->headers.ranks[last].rank);
    else
        rfs_table_add(table, "%" PRIu32, rank->rank);
    if (more > 0)
        rfs_table_add(table, "%s and %" PRIu32 " more", name, more);
    else if (last > first && strcmp(name, file_name(tree, tree->headers.ranks[last].rank)) != 0)
        rfs_table_add(table, "%s to %s", name, file_name(tree, tree->headers.ranks[last].rank));
    else
        rfs_table_add(table, "%s", name);
    if (index || rank->empty)
        rfs_table_add(table, "%zu", index ? index->n : 0);
    else
        rfs_table_add(table, tree->args->json ? "null" : "?");
    rfs_table_add(table, "%" PRIu64, rank->bytes);
}

static void add_rank_rows(struct tree *tree)
{
    struct rfs_headers *headers = &tree->headers;

    tree->report->second.columns = rank_columns;
    tree->report->second.n_columns = sizeof rank_columns / sizeof *rank_columns;
    for (uint32_t i = 0; i < headers->n; i++) {
        uint32_t last = i;
        while (!tree->args->json && last + 1 < headers->n &&
               alike(&headers->ranks[last], &headers->ranks[last + 1]))
            last++;
        add_rank(tree, i, last);
        i = last;
    }
}

/* ---- what is odd ---- */

static bool tell_missing(struct tree *tree)
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

static bool tell_unreadable(struct tree *tree)
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
static bool tell_single(struct tree *tree)
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
static bool tell_partial(struct tree *tree)
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
        const struct param *param = &tree->params[id];
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

static bool tell_beside(struct tree *tree)
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
        const char *name = strrchr(folder, '/');
        rfs_info_look_beside(folder, name ? name + 1 : folder, &beside);
    }
    return rfs_info_tell_beside(&beside, &tree->report->findings);
}

/* ---- in words ---- */

static const char *format_name(const struct rfs_catalog *catalog)
{
    const enum rfs_format format = rfs_catalog_format(catalog);

    return format == RFS_FORMAT_CKPT          ? "ckpt"
           : format == RFS_FORMAT_SAFETENSORS ? "safetensors"
                                              : "pt";
}

static void tell(struct tree *tree, const char *encrypted)
{
    struct rfs_report *report = tree->report;
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
                "format: ckpt, encrypted (%s): what is in it is told to those who have its key, "
                "-o key_file=FILE\n",
                encrypted);
    else
        fprintf(report->say, "format: %s\n", format_name(tree->catalog));
    fprintf(report->tell,
            ",\"ranks\":%" PRIu32 ",\"highest_rank\":%" PRIu32 ",\"bytes\":%" PRIu64
            ",\"least_rank_bytes\":%" PRIu64 ",\"most_rank_bytes\":%" PRIu64
            ",\"kinds\":%zu,\"sampled\":%s",
            headers->n, ranks - 1, bytes, least, most, headers->kinds.n,
            headers->sampled ? "true" : "false");
    rfs_info_member(report, "format", format_name(tree->catalog));
    fputs(",\"encrypted\":", report->tell);
    if (encrypted)
        rfs_json_text(report->tell, encrypted);
    else
        fputs("null", report->tell);
    if (encrypted)
        return;
    fprintf(report->tell, ",\"parameters\":%zu", tree->rows.n);
    if (tree->strategy)
        fprintf(report->tell, ",\"stages\":%" PRIu32 ",\"devices\":%" PRIu32, tree->fit.stages,
                tree->fit.devices);
    if (tree->strategy)
        fprintf(report->say, "strategy: %" PRIu32 " stage%s of %" PRIu32 " device%s\n",
                tree->fit.stages, tree->fit.stages == 1 ? "" : "s", tree->fit.devices,
                tree->fit.devices == 1 ? "" : "s");
    rfs_info_tell_filter(report, &tree->args->filter, &tree->rows);
    rfs_info_tell_types(report, &tree->rows);
    if (headers->sampled)
        fputs("headers: of one rank of each kind, and samples of the others (--all reads all)\n",
              report->say);
}

/* ---- reading ---- */

/* The strategy that -s or -o src_rules= gives. */
static int read_strategy(struct tree *tree)
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
static const char *find_encryption(const struct tree *tree)
{
    unsigned char head[4];
    uint32_t rank = 0;

    while (!rfs_catalog_has(tree->catalog, rank))
        rank++;
    const char *path =
        rfs_files_path(rfs_catalog_files(tree->catalog), rfs_catalog_file(tree->catalog, rank));
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (tree->args->source.sealed || fd < 0 || pread(fd, head, sizeof head, 0) != sizeof head)
        return NULL;
    const enum rfs_cipher_mode mode = rfs_cipher_detect(head);
    return mode == RFS_NOT_ENCRYPTED ? NULL : rfs_cipher_name(mode);
}

/* Files without a look into them. */
static int list_only(struct tree *tree)
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

static int read_tree(struct tree *tree)
{
    struct rfs_progress progress;

    rfs_progress_init(&progress, false);
    int rc = rfs_headers_read(tree->catalog, tree->args->source.pool, tree->args->all, &progress,
                              &tree->headers, tree->err);
    rfs_progress_destroy(&progress);
    if (rc == 0)
        rc = read_strategy(tree);
    return rc ? rc : add_rows(tree);
}

static int show(struct tree *tree)
{
    const char *encrypted = find_encryption(tree);
    int rc = encrypted ? list_only(tree) : read_tree(tree);

    if (rc)
        return rc;
    if (!encrypted)
        add_params(tree);
    add_rank_rows(tree);
    tell(tree, encrypted);
    if (tree->strategy)
        rc = rfs_fit_check(&tree->fit, &tree->report->findings, tree->err);
    else if (!tell_missing(tree) || (!encrypted && !tell_single(tree)))
        rc = rfs_fail_memory(tree->err);
    if (rc == 0 && !encrypted && !tree->strategy && !tell_partial(tree))
        rc = rfs_fail_memory(tree->err);
    if (rc == 0 && !encrypted && !tell_unreadable(tree))
        rc = rfs_fail_memory(tree->err);
    if (rc == 0 && !tell_beside(tree))
        rc = rfs_fail_memory(tree->err);
    return rc;
}

int rfs_info_tree(struct rfs_info_args *args, const char *path, struct rfs_report *report,
                  struct rfs_error *err)
{
    struct tree tree = {.args = args, .report = report, .err = err};
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
