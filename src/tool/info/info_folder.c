/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders that hold one checkpoint in several files: a tree of ranks, a chunked checkpoint, which
 * describes itself, and parts of a state. A tree is the parameters over all ranks, the ranks, and
 * the findings of missing or odd files; with a strategy also the whole tensors and how they are
 * cut.
 */
#include "base/options.h"
#include "tool/info/info.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "plan/strategy_files.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

#include <sys/stat.h>

/* ---- files beside those that count ----------------------------------------------------------- */

/* Files of folders beside the checkpoints that count. */
struct beside {
    uint32_t folders;                   /* looked at */
    uint32_t several, temporary, empty; /* folders with several checkpoints, or such files */
    char first_several[512];            /* an example of each, as "rank_0/a.ckpt" */
    char first_temporary[512], first_empty[512];
    uint32_t most; /* checkpoints in one folder */
};

static bool is_checkpoint(const char *name)
{
    return name[0] != '.' && rfs_inspect_is_name(name);
}

/* Returns whether a name is one that programs give unfinished files. */
static bool is_temporary(const char *name)
{
    static const char *const ends[] = {".tmp", ".temp", ".part", ".partial", ".lock", "~"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (rfs_text_ends(name + 1, ends[i])) /* a name that is only an ending does not count */
            return true;
    return strstr(name, ".reshard-") != NULL;
}

/* Counts a file; writes the first one's name. */
static void note_file(uint32_t *count, char out[512], const char *folder, const char *name)
{
    if ((*count)++ == 0)
        snprintf(out, 512, "%s%s%s", folder, *folder ? "/" : "", name);
}

/*
 * Looks at FOLDER, which is shown as NAME. A folder that cannot be listed is passed over: an
 * earlier step has listed it.
 */
static void look_beside(struct rfs_store *store, const char *folder, const char *name,
                        struct beside *beside)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    uint32_t checkpoints = 0;
    bool temporary = false;
    bool empty = false;

    if (rfs_dir_open(store, folder, &dir))
        return;
    beside->folders++;
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir)) != NULL;) {
        RFS_FREE char *path = rfs_path_join(folder, entry->d_name);
        struct stat st;
        if (!temporary && is_temporary(entry->d_name)) {
            note_file(&beside->temporary, beside->first_temporary, name, entry->d_name);
            temporary = true;
        }
        if (!is_checkpoint(entry->d_name))
            continue;
        checkpoints++;
        if (!empty && path && rfs_store_stat(store, path, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_size == 0) {
            note_file(&beside->empty, beside->first_empty, name, entry->d_name);
            empty = true;
        }
    }
    if (checkpoints > 1 && beside->several++ == 0)
        snprintf(beside->first_several, sizeof beside->first_several, "%s", name);
    beside->most = checkpoints > beside->most ? checkpoints : beside->most;
}

/* Writes " (N folders)", or nothing if there is only one. Returns OUT. */
static const char *in_folders(const struct beside *beside, uint32_t n, char out[64])
{
    *out = '\0';
    if (beside->folders > 1)
        snprintf(out, 64, " (%" PRIu32 " folder%s)", n, n == 1 ? "" : "s");
    return out;
}

/* Adds findings of what was seen. */
static void tell_beside(const struct beside *beside, struct rfs_fit_findings *findings)
{
    char more[600] = "";

    if (beside->folders > 1)
        snprintf(more, sizeof more, " (%" PRIu32 " folder%s, %s the first)", beside->several,
                 beside->several == 1 ? "" : "s", beside->first_several);
    if (beside->several > 0)
        rfs_fit_findings_add(findings, "several checkpoints", false, RFS_FIT_ALL,
                             "up to %" PRIu32 " in a folder%s: the last by name counts",
                             beside->most, more);
    if (beside->empty > 0)
        rfs_fit_findings_add(findings, "empty file", false, RFS_FIT_ALL, "%s has 0 bytes%s",
                             beside->first_empty, in_folders(beside, beside->empty, more));
    if (beside->temporary > 0)
        rfs_fit_findings_add(findings, "temporary file", false, RFS_FIT_ALL,
                             "%s is left over, or being written%s", beside->first_temporary,
                             in_folders(beside, beside->temporary, more));
}

void rfs_info_find_beside(struct rfs_store *store, const char *folder,
                          struct rfs_fit_findings *findings)
{
    struct beside beside = {0};

    look_beside(store, folder, "", &beside);
    tell_beside(&beside, findings);
}

/* ---- files of tensors that are not read ------------------------------------------------------ */

RFS_CELL(put_aside_file, struct rfs_aside_file, rfs_table_text(table, rfs_path_name(row->path)))
RFS_CELL(put_aside_why, struct rfs_aside_file, rfs_table_text(table, row->why))
RFS_CELL(put_aside_news, struct rfs_aside_file,
         row->weighed ? rfs_table_u64(table, row->news) : rfs_table_none(table, "?"))
RFS_CELL(put_aside_first, struct rfs_aside_file,
         row->first ? rfs_table_text(table, row->first) : rfs_table_none(table, ""))
static const struct rfs_column aside_columns[] = {
    {"file", RFS_CELL_TEXT, put_aside_file},
    {"why", RFS_CELL_TEXT, put_aside_why},
    {"tensors of its own", RFS_CELL_NUMBER, put_aside_news},
    {"first", RFS_CELL_TEXT, put_aside_first},
};

void rfs_info_tell_aside(const struct rfs_info_args *args, struct rfs_info_report *report)
{
    struct rfs_table table = {.json = true};
    const struct rfs_aside *aside;
    struct rfs_error unused;
    size_t news = 0;
    size_t owners = 0;
    const char *first = NULL;

    (void)rfs_headers_aside(&args->source, &aside, &unused);
    RFS_TABLE_DESCRIBE(&table, aside_columns);
    for (size_t i = 0; i < aside->files.n; i++) {
        const struct rfs_aside_file *file = &aside->files.data[i];
        rfs_table_row(&table, file);
        news += file->news;
        owners += file->news > 0;
        first = first ? first : file->first;
    }
    rfs_table_put_json(&table, &report->json, "aside");
    rfs_table_free(&table);
    if (aside->files.n == 0)
        return;
    RFS_FREE char *text = rfs_printed_memory(rfs_aside_text(aside));
    rfs_text_put(report->say, text);
    if (owners > 0)
        fprintf(report->say, "; %zu tensor%s %s in %s alone, such as ", news, news == 1 ? "" : "s",
                news == 1 ? "is" : "are", owners == 1 ? "it" : "them");
    if (first)
        rfs_text_put(report->say, first);
    fputc('\n', report->say);
}

/* ---- a tree of ranks: parameters ------------------------------------------------------------- */

struct tree {
    struct rfs_info_args *args;
    struct rfs_info_report *report;
    struct rfs_headers headers;
    struct rfs_info_rows rows; /* ids are those of headers.parameters */
    struct rfs_strategy *strategy;
    struct rfs_fit fit;
    struct rfs_error *err;
};

/* Returns the bytes of the whole tensor, or over all ranks where no strategy gives it. */
static uint64_t bytes_of(struct tree *tree, const struct rfs_headers_parameter *param)
{
    struct rfs_fit_tensor tensor = {.slice = NULL};
    struct rfs_error unused;

    if (!tree->strategy || rfs_fit_find(&tree->fit, param->name, &tensor, &unused) != 1)
        return param->bytes;
    uint64_t bytes = rfs_dtype_bytes((enum rfs_dtype)tensor.slice->dtype);
    for (uint32_t i = 0; i < tensor.slice->ndim; i++)
        if (__builtin_mul_overflow(bytes, tensor.whole[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/*
 * Lists the parameters that the filter lets pass, in the order of the files; with a strategy they
 * count as whole tensors. 0 or -errno with tree->err filled.
 */
static int count_params(struct tree *tree)
{
    for (uint32_t i = 0; i < tree->headers.parameters.n; i++) {
        const struct rfs_headers_parameter *param = &tree->headers.parameters.data[i];
        const struct rfs_info_row row = {.name = param->name,
                                         .type = param->type,
                                         .bytes = bytes_of(tree, param),
                                         .offset = param->offset,
                                         .id = i};
        if (!rfs_info_rows_add(&tree->rows, &tree->args->filter, row))
            return rfs_fail_memory(tree->err);
    }
    rfs_info_rows_order(&tree->rows, &tree->args->filter);
    return 0;
}

/* A row of the table: a parameter, and with a strategy the whole tensor that it is a slice of. */
struct param_row {
    struct rfs_info_row row; /* the first member */
    struct tree *tree;
    const struct rfs_headers_parameter *param;
    int fit; /* 1: TENSOR is it, 0: the strategy lacks it, negative: it does not fit */
    struct rfs_fit_tensor tensor;
};

static void put_ranks(struct rfs_table *table, const void *of)
{
    const struct param_row *row = of;
    const struct rfs_headers *headers = &row->tree->headers;
    RFS_FREE bool *has = rfs_printed_memory(calloc(headers->kinds.n + 1, sizeof *has));
    RFS_FREE uint32_t *list = rfs_printed_memory(calloc((size_t)headers->n + 1, sizeof *list));
    uint32_t readable = 0;
    size_t n = 0;

    for (size_t k = 0; k < headers->kinds.n; k++) {
        has[k] = rfs_headers_type_in(headers, &headers->kinds.data[k], row->param->id) != NULL;
        readable += headers->kinds.data[k].ranks;
    }
    if (row->param->ranks == readable) {
        rfs_table_text(table, "all");
        return;
    }
    for (uint32_t i = 0; i < headers->n; i++)
        if (headers->ranks[i].kind != RFS_NO_KIND && has[headers->ranks[i].kind])
            list[n++] = headers->ranks[i].rank;
    rfs_table_ranks(table, list, n);
}

RFS_CELL(put_slice, struct param_row,
         row->param->shapes ? rfs_table_none(table, "differs")
                            : rfs_table_dims(table, row->param->type->ndim, row->param->type->dims))
RFS_CELL(put_slice_dtype, struct param_row,
         rfs_table_text(table, row->param->types ? "differs" : rfs_whole_dtype(row->row.type)))
RFS_CELL(put_whole_shape, struct param_row,
         row->fit == 1 ? rfs_table_dims(table, row->tensor.slice->ndim, row->tensor.whole)
                       : rfs_table_none(table, "?"))

static void put_cut(struct rfs_table *table, const void *of)
{
    const struct param_row *row = of;

    if (row->fit != 1) {
        rfs_table_text(table, row->fit < 0 ? "does not fit" : "not in the strategy");
        return;
    }
    rfs_show_cuts(rfs_table_cell(table), &row->tensor.grid);
    rfs_table_cell_end(table);
}

/* Defines the cell of a tensor that fits the strategy; others have none. */
#define CELL_OF_FIT(name, call)                                                                    \
    RFS_CELL(name, struct param_row, row->fit == 1 ? (call) : rfs_table_none(table, ""))
CELL_OF_FIT(put_devices, rfs_table_layout(table, rfs_show_matrix, row->tensor.layout))
CELL_OF_FIT(put_map, rfs_table_layout(table, rfs_show_map, row->tensor.layout))
CELL_OF_FIT(put_optimizer_shard, rfs_table_u64(table, row->tensor.layout->opt_size))
CELL_OF_FIT(put_replicas, rfs_table_u64(table, row->tensor.grid.replicas))

static void put_stages(struct rfs_table *table, const void *of)
{
    const struct param_row *row = of;
    const struct rfs_strategy *strategy = row->tree->strategy;
    const ptrdiff_t at = rfs_strategy_find(strategy, row->row.name);
    FILE *out = rfs_table_cell(table);
    const char *comma = "";

    fputc('[', out);
    for (uint32_t stage = at < 0 ? RFS_NO_STAGE : rfs_strategy_next_stage(strategy, (size_t)at, 0);
         stage != RFS_NO_STAGE; stage = rfs_strategy_next_stage(strategy, (size_t)at, stage + 1)) {
        fprintf(out, "%s%" PRIu32, comma, stage);
        comma = ", ";
    }
    fputc(']', out);
    rfs_table_cell_end(table);
}

static const struct rfs_column slice_columns[] = {
    {"name", RFS_CELL_TEXT, rfs_info_put_name},
    {"dtype", RFS_CELL_TEXT, put_slice_dtype},
    {"slice", RFS_CELL_JSON, put_slice},
    {"ranks", RFS_CELL_TEXT, put_ranks},
    {"bytes", RFS_CELL_NUMBER, rfs_info_put_bytes},
};
static const struct rfs_column whole_columns[] = {
    {"name", RFS_CELL_TEXT, rfs_info_put_name},
    {"dtype", RFS_CELL_TEXT, rfs_info_put_dtype},
    {"shape", RFS_CELL_JSON, put_whole_shape},
    {"cut", RFS_CELL_TEXT, put_cut},
    {"slice", RFS_CELL_JSON, put_slice},
    {"ranks", RFS_CELL_TEXT, put_ranks},
    {"bytes", RFS_CELL_NUMBER, rfs_info_put_bytes},
    {"devices", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_devices},
    {"map", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_map},
    {"optimizer_shard", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_optimizer_shard},
    {"replicas", RFS_CELL_NUMBER | RFS_FOR_SCRIPTS, put_replicas},
    {"stages", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_stages},
};

/* Adds the table of parameters; with a strategy, of whole tensors and how they are cut. */
static void add_params(struct tree *tree)
{
    struct rfs_table *table = &tree->report->table;

    if (tree->strategy)
        RFS_TABLE_DESCRIBE(table, whole_columns);
    else
        RFS_TABLE_DESCRIBE(table, slice_columns);
    tree->report->key = "tensors";
    for (size_t i = 0; i < tree->rows.list.n; i++) {
        struct param_row row = {.row = tree->rows.list.data[i], .tree = tree};
        struct rfs_error unused;
        row.param = &tree->headers.parameters.data[row.row.id];
        if (tree->strategy)
            row.fit = rfs_fit_find(&tree->fit, row.row.name, &row.tensor, &unused);
        rfs_table_row(table, &row);
    }
}

/* ---- a tree of ranks: missing and odd files -------------------------------------------------- */

/* Adds findings of ranks that are like no other, where most are alike. */
static void tell_single(struct tree *tree)
{
    const struct rfs_headers *headers = &tree->headers;
    uint32_t most = 0;

    for (size_t k = 0; k < headers->kinds.n; k++)
        most = headers->kinds.data[k].ranks > most ? headers->kinds.data[k].ranks : most;
    for (uint32_t i = 0; i < headers->n; i++) {
        const uint32_t kind = headers->ranks[i].kind;
        if (kind == RFS_NO_KIND || headers->kinds.data[kind].ranks > 1 || most < 3 ||
            most * 2 < headers->n)
            continue;
        rfs_fit_findings_add(
            &tree->report->findings, "differs", false, RFS_FIT_AT(NULL, -1, headers->ranks[i].rank),
            "rank_%" PRIu32 " lists other parameters, shapes or offsets than any other rank",
            headers->ranks[i].rank);
    }
}

/* Adds a finding of parameters that only some ranks have, and one of those of several types. */
static void tell_partial(struct tree *tree)
{
    const char *some = NULL;
    const char *mixed = NULL;
    size_t n_some = 0;
    size_t n_mixed = 0;
    uint32_t readable = 0;

    for (size_t k = 0; k < tree->headers.kinds.n; k++)
        readable += tree->headers.kinds.data[k].ranks;
    for (size_t i = 0; i < tree->headers.parameters.n; i++) {
        const struct rfs_headers_parameter *param = &tree->headers.parameters.data[i];
        if (param->ranks < readable && n_some++ == 0)
            some = param->name;
        if (param->types && n_mixed++ == 0)
            mixed = param->name;
    }
    if (n_some > 0)
        rfs_fit_findings_add(&tree->report->findings, "some ranks", false, RFS_FIT_ALL,
                             "%zu of %zu parameters are not on all ranks, as '%s': stages of a "
                             "pipeline, or replicas that were left out",
                             n_some, tree->rows.n, some);
    if (n_mixed > 0)
        rfs_fit_findings_add(&tree->report->findings, "type", true, RFS_FIT_ALL,
                             "%zu parameter%s of different types on different ranks, as '%s'",
                             n_mixed, n_mixed == 1 ? " is" : "s are", mixed);
}

/* Says whether the last checkpoint in the folder of a rank counts: no option chose another. */
static bool is_last_read(const struct rfs_options *options, const char *folder)
{
    return !options->file && !options->files && !options->segmented &&
           (options->rank_dir || rfs_inspect_is_rank(rfs_path_name(folder)));
}

static void tell_folders_beside(struct tree *tree)
{
    struct beside beside = {0};
    bool last = true;

    for (uint32_t i = 0; i < tree->headers.n; i++) {
        const struct rfs_headers_rank *rank = &tree->headers.ranks[i];
        if (rank->files > 1 && tree->headers.end == 1)
            return; /* one checkpoint in several files */
        RFS_FREE char *folder = strdup(rank->path);
        char *slash = folder ? strrchr(folder, '/') : NULL;
        if (!slash || rank->files > 1)
            continue;
        *slash = '\0';
        last = last && is_last_read(tree->args->source.options, folder);
        look_beside(tree->args->source.store, folder, rfs_path_name(folder), &beside);
    }
    beside.several = last ? beside.several : 0;
    tell_beside(&beside, &tree->report->findings);
}

/*
 * Adds to the report's findings what does not fit, and the missing and odd files; READABLE: the
 * headers were read. 0, or -ENOMEM with tree->err filled.
 */
static int tell_odd(struct tree *tree, bool readable)
{
    const int rc = rfs_fit_check(&tree->fit, &tree->report->findings, tree->err);

    if (readable && !tree->strategy) {
        tell_single(tree);
        tell_partial(tree);
    }
    if (readable)
        tree->report->failure = tree->headers.failure;
    tell_folders_beside(tree);
    return rc;
}

/* ---- a tree of ranks ------------------------------------------------------------------------- */

static bool alike(const struct rfs_headers_rank *a, const struct rfs_headers_rank *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->rank + 1 == b->rank &&
           a->code == b->code && a->empty == b->empty;
}

/* A row of the table: ranks whose files are alike. */
struct rank_row {
    const struct rfs_headers *headers;
    const struct rfs_headers_rank *rank, *last;
};

static void put_rank(struct rfs_table *table, const void *of)
{
    const struct rank_row *row = of;

    if (row->last > row->rank)
        rfs_table_add(table, "%" PRIu32 "-%" PRIu32, row->rank->rank, row->last->rank);
    else
        rfs_table_u64(table, row->rank->rank);
}

static void put_rank_file(struct rfs_table *table, const void *of)
{
    const struct rank_row *row = of;
    const char *name = rfs_path_name(row->rank->path);
    const char *last = rfs_path_name(row->last->path);

    if (row->rank->files > 1)
        rfs_table_add(table, "%s and %" PRIu32 " more", name, row->rank->files - 1);
    else if (row->last > row->rank && strcmp(name, last) != 0)
        rfs_table_add(table, "%s to %s", name, last);
    else
        rfs_table_text(table, name);
}

static void put_rank_parameters(struct rfs_table *table, const void *of)
{
    const struct rank_row *row = of;
    const struct rfs_headers_rank *rank = row->rank;

    if (rank->kind != RFS_NO_KIND || rank->empty)
        rfs_table_u64(table, rank->empty ? 0 : row->headers->kinds.data[rank->kind].n);
    else
        rfs_table_none(table, "?");
}

RFS_CELL(put_rank_bytes, struct rank_row, rfs_table_u64(table, row->rank->bytes))
static const struct rfs_column rank_columns[] = {
    {"rank", RFS_CELL_NUMBER, put_rank},
    {"file", RFS_CELL_TEXT, put_rank_file},
    {"parameters", RFS_CELL_NUMBER, put_rank_parameters},
    {"file bytes", RFS_CELL_NUMBER, put_rank_bytes},
};

static void add_rank_rows(struct tree *tree)
{
    const struct rfs_headers *headers = &tree->headers;

    RFS_TABLE_DESCRIBE(&tree->report->second, rank_columns);
    for (uint32_t i = 0; i < headers->n; i++) {
        uint32_t last = i;
        while (!tree->args->json && last + 1 < headers->n &&
               alike(&headers->ranks[last], &headers->ranks[last + 1]))
            last++;
        const struct rank_row row = {headers, &headers->ranks[i], &headers->ranks[last]};
        rfs_table_row(&tree->report->second, &row);
        i = last;
    }
}

static void report_tree(struct tree *tree, const char *encrypted)
{
    struct rfs_info_report *report = tree->report;
    struct rfs_json_write *json = &report->json;
    const struct rfs_headers *headers = &tree->headers;
    const uint32_t ranks = headers->end;
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
        fprintf(report->say, "format: %s\n", headers->format);
    rfs_json_put_u64(json, "ranks", headers->n);
    rfs_json_put_u64(json, "highest_rank", ranks - 1);
    rfs_json_put_u64(json, "file_bytes", bytes);
    rfs_json_put_u64(json, "least_rank_bytes", least);
    rfs_json_put_u64(json, "most_rank_bytes", most);
    rfs_json_put_u64(json, "kinds", headers->kinds.n);
    rfs_json_put_bool(json, "sampled", headers->sampled);
    rfs_json_put_text(json, "format", headers->format);
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

/* Reads the strategy that -s or -o src_rules= gives. */
static int read_strategy(struct tree *tree)
{
    const struct rfs_options *options = tree->args->source.options;

    if (!options->src_strategy)
        return 0;
    const int rc = rfs_plan_read_strategy(tree->args->source.store, options->src_strategy,
                                          &tree->strategy, tree->err);
    if (rc)
        return rc;
    rfs_fit_begin(&tree->headers, tree->strategy, &tree->fit);
    return 0;
}

static int read_tree(struct tree *tree)
{
    struct rfs_progress progress;

    rfs_progress_init(&progress, false);
    int rc = rfs_headers_read(&tree->args->source,
                              tree->args->all ? RFS_HEADERS_ALL : RFS_HEADERS_SAMPLED, &progress,
                              &tree->headers, tree->err);
    rfs_progress_destroy(&progress);
    if (rc == 0)
        rc = read_strategy(tree);
    return rc ? rc : count_params(tree);
}

/* Adds the values beside the tensors of a source that is one checkpoint. */
static int tell_values(struct tree *tree)
{
    struct rfs_info_listing listing = {.filter = &tree->args->filter};
    const int rc =
        rfs_inspect_values(&tree->args->source, rfs_info_listing_add_value, &listing, tree->err);

    if (rc == 0)
        rfs_info_tell_values(tree->report, &listing);
    free(listing.values.data);
    rfs_info_rows_free(&listing.rows);
    return rc;
}

static int report_all(struct tree *tree)
{
    const char *encrypted = tree->args->source.encryption;
    int rc = encrypted ? rfs_headers_read(&tree->args->source, RFS_HEADERS_LISTED, NULL,
                                          &tree->headers, tree->err)
                       : read_tree(tree);

    if (rc)
        return rc;
    if (!encrypted)
        add_params(tree);
    add_rank_rows(tree);
    report_tree(tree, encrypted);
    rfs_info_tell_aside(tree->args, tree->report);
    return tell_values(tree) ?: tell_odd(tree, !encrypted);
}

int rfs_info_tree(struct rfs_info_args *args, const char *path, struct rfs_info_report *report,
                  struct rfs_error *err)
{
    struct tree tree = {.args = args, .report = report, .fit.headers = &tree.headers, .err = err};
    int rc = rfs_headers_open(&args->source, path, err);

    report->kind = "tree";
    if (rc == 0)
        rc = report_all(&tree);
    rfs_headers_free(&tree.headers);
    rfs_info_rows_free(&tree.rows);
    rfs_strategy_free(tree.strategy);
    return rc;
}

/* ---- a chunked checkpoint -------------------------------------------------------------------- */

/* A row of the table: a tensor and its chunks. */
struct chunked_row {
    struct rfs_info_row row; /* the first member */
    struct rfs_inspect_chunked tensor;
};

RFS_CELL(put_chunks, struct chunked_row, rfs_table_u64(table, row->tensor.chunks))
RFS_CELL(put_cuts, struct chunked_row,
         row->tensor.incomplete ? rfs_table_none(table, "incomplete")
                                : rfs_table_dims(table, row->row.type->ndim, row->tensor.pieces))
static const struct rfs_column tensor_columns[] = {
    {"name", RFS_CELL_TEXT, rfs_info_put_name},
    {"dtype", RFS_CELL_TEXT, rfs_info_put_dtype},
    {"shape", RFS_CELL_JSON, rfs_info_put_shape},
    {"chunks", RFS_CELL_NUMBER, put_chunks},
    {"cuts", RFS_CELL_JSON, put_cuts},
    {"bytes", RFS_CELL_NUMBER, rfs_info_put_bytes},
};

static void add_tensors(const struct rfs_headers_source *source, const struct rfs_info_rows *rows,
                        struct rfs_table *table)
{
    RFS_TABLE_DESCRIBE(table, tensor_columns);
    for (size_t i = 0; i < rows->list.n; i++) {
        struct chunked_row row = {.row = rows->list.data[i]};
        rfs_inspect_chunked(source, row.row.id, &row.tensor);
        rfs_table_row(table, &row);
    }
}

RFS_CELL(put_file, struct rfs_inspect_chunk_file, rfs_table_text(table, row->name))
RFS_CELL(put_file_chunks, struct rfs_inspect_chunk_file, rfs_table_u64(table, row->chunks))
RFS_CELL(put_file_content, struct rfs_inspect_chunk_file, rfs_table_u64(table, row->content))
RFS_CELL(put_file_bytes, struct rfs_inspect_chunk_file,
         row->is_there ? rfs_table_u64(table, row->bytes) : rfs_table_none(table, "missing"))
static const struct rfs_column chunked_file_columns[] = {
    {"file", RFS_CELL_TEXT, put_file},
    {"chunks", RFS_CELL_NUMBER, put_file_chunks},
    {"bytes", RFS_CELL_NUMBER, put_file_content},
    {"file bytes", RFS_CELL_NUMBER, put_file_bytes},
};

static void add_chunked_files(const struct rfs_inspect_chunks *chunks, struct rfs_table *table,
                              uint64_t *total, uint64_t *missing)
{
    const struct rfs_inspect_chunk_file *files = chunks->files;

    RFS_TABLE_DESCRIBE(table, chunked_file_columns);
    for (uint32_t i = 0; i < chunks->n_files; i++) {
        rfs_table_row(table, &files[i]);
        *total += files[i].bytes;
        *missing += !files[i].is_there;
    }
}

/* Adds findings of what is not read, and of files that are not there. */
static void tell_chunks(const struct rfs_headers_source *source,
                        const struct rfs_inspect_chunks *chunks, uint64_t missing,
                        struct rfs_fit_findings *findings)
{
    for (size_t i = 0; i < chunks->unread; i++) {
        struct rfs_inspect_chunked tensor;
        rfs_inspect_chunked(source, chunks->tensors + i, &tensor);
        rfs_fit_findings_add(findings, "not read", false, RFS_FIT_AT(tensor.name, -1, -1), "%s",
                             tensor.why);
    }
    if (missing > 0)
        rfs_fit_findings_add(findings, "missing", true, RFS_FIT_ALL,
                             "%" PRIu64 " of the files that the metadata names %s not there",
                             missing, missing == 1 ? "is" : "are");
    if (chunks->lost)
        rfs_fit_findings_add(findings, "missing", true, RFS_FIT_ALL,
                             "%s missing, by the numbers in the names of the other files",
                             chunks->lost);
}

static void report_chunks(struct rfs_info_args *args, const struct rfs_inspect_chunks *chunks,
                          const struct rfs_info_rows *rows, struct rfs_info_report *report)
{
    uint64_t bytes = 0;
    uint64_t missing = 0;

    add_tensors(&args->source, rows, &report->table);
    report->key = "tensors";
    add_chunked_files(chunks, &report->second, &bytes, &missing);
    fprintf(report->say,
            "checkpoint: of %s, %zu tensors in %zu chunks; %" PRIu32 " file%s of %" PRIu64
            " bytes\n",
            chunks->format, rows->n, chunks->chunks, chunks->n_files,
            chunks->n_files == 1 ? "" : "s", bytes);
    rfs_info_tell_filter(report, &args->filter, rows);
    rfs_info_tell_types(report, rows);
    rfs_json_put_text(&report->json, "format", chunks->format);
    rfs_json_put_u64(&report->json, "parameters", rows->n);
    rfs_json_put_u64(&report->json, "chunks", chunks->chunks);
    rfs_json_put_u64(&report->json, "files", chunks->n_files);
    rfs_json_put_u64(&report->json, "file_bytes", bytes);
    tell_chunks(&args->source, chunks, missing, &report->findings);
}

int rfs_info_chunks(struct rfs_info_args *args, const char *path, struct rfs_info_report *report,
                    struct rfs_error *err)
{
    struct rfs_info_rows rows = {.n = 0};
    struct rfs_inspect_chunks chunks;
    int rc = rfs_headers_open(&args->source, path, err);

    report->kind = "boxes";
    if (rc)
        return rc;
    rc = rfs_inspect_chunks(&args->source, &chunks, err);
    for (size_t i = 0; rc == 0 && i < chunks.tensors; i++) {
        struct rfs_inspect_chunked tensor;
        rfs_inspect_chunked(&args->source, i, &tensor);
        const struct rfs_info_row row = {.name = tensor.name,
                                         .type = tensor.type,
                                         .bytes = tensor.type->bytes,
                                         .id = (uint32_t)i};
        if (!rfs_info_rows_add(&rows, &args->filter, row))
            rc = rfs_fail_memory(err);
    }
    rfs_info_rows_order(&rows, &args->filter);
    if (rc == 0) {
        report_chunks(args, &chunks, &rows, report);
        rfs_info_tell_aside(args, report);
    }
    free(chunks.files);
    rfs_info_rows_free(&rows);
    return rc;
}

/* ---- parts of one state ---------------------------------------------------------------------- */

/* Parts are numbered from 0 on, as their ranks are. */
RFS_CELL(put_part, struct rfs_headers_rank, rfs_table_u64(table, row->rank))
RFS_CELL(put_part_file, struct rfs_headers_rank, rfs_table_text(table, rfs_path_name(row->path)))
RFS_CELL(put_part_bytes, struct rfs_headers_rank, rfs_table_u64(table, row->bytes))
static const struct rfs_column part_columns[] = {
    {"part", RFS_CELL_NUMBER, put_part},
    {"file", RFS_CELL_TEXT, put_part_file},
    {"file bytes", RFS_CELL_NUMBER, put_part_bytes},
};

static void report_parts(struct rfs_info_args *args, const struct rfs_headers *headers,
                         const struct rfs_inspect_parts *parts, const struct rfs_info_rows *rows,
                         struct rfs_info_report *report)
{
    const struct rfs_chunks_state *state = parts->state;
    uint64_t bytes = 0;

    rfs_info_rows_table(rows, false, &report->table);
    report->key = "tensors";
    RFS_TABLE_DESCRIBE(&report->second, part_columns);
    for (uint32_t part = 0; part < headers->n; part++) {
        bytes += headers->ranks[part].bytes;
        rfs_table_row(&report->second, &headers->ranks[part]);
    }
    fprintf(report->say, "parts: %" PRIu32 " of %s's, %" PRIu64 " bytes; ", headers->n,
            parts->format, bytes);
    for (unsigned i = 0; i < RFS_CHUNKS_STATE; i++) {
        fprintf(report->say, "%s%zu %s%s", i == 0 ? "" : ", ", state[i].n, state[i].what,
                state[i].n == 1 ? "" : "s");
        if (i == 0)
            fprintf(report->say, " with %zu tensors", rows->n);
    }
    fputc('\n', report->say);
    rfs_info_tell_filter(report, &args->filter, rows);
    rfs_info_tell_types(report, rows);
    rfs_json_put_text(&report->json, "format", parts->files);
    rfs_json_put_u64(&report->json, "parts", headers->n);
    rfs_json_put_u64(&report->json, "file_bytes", bytes);
    for (unsigned i = 0; i < RFS_CHUNKS_STATE; i++) {
        char key[32];
        snprintf(key, sizeof key, "%ss", state[i].what);
        rfs_json_put_u64(&report->json, key, state[i].n);
    }
    rfs_json_put_u64(&report->json, "parameters", rows->n);
}

int rfs_info_parts(struct rfs_info_args *args, const char *path, const struct rfs_format_row *row,
                   struct rfs_info_report *report, struct rfs_error *err)
{
    struct rfs_info_listing listing = {.filter = &args->filter};
    struct rfs_headers headers = {.n = 0};
    struct rfs_inspect_parts parts;
    const int rc =
        rfs_headers_open(&args->source, path, err)
            ?: rfs_inspect_parts(&args->source, row, rfs_info_listing_add, &listing, &parts, err)
            ?: rfs_headers_read(&args->source, RFS_HEADERS_LISTED, NULL, &headers, err);

    report->kind = "parts";
    rfs_info_rows_order(&listing.rows, &args->filter);
    if (rc == 0)
        report_parts(args, &headers, &parts, &listing.rows, report);
    rfs_headers_free(&headers);
    rfs_info_rows_free(&listing.rows);
    return rc;
}
