/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard strategy`: shows, converts, merges, makes and checks strategy files. */
#include "tool/strategy/strategy_command.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "layout/layout_rules.h"
#include "layout/stages.h"
#include "layout/strategy.h"
#include "layout/strategy_doc.h"
#include "plan/strategy_files.h"
#include "survey/headers/made_strategy.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/output.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/common/tool.h"
#include "tool/strategy/devices.h"

#include <sys/stat.h>

/* The command line; the lists are owned, the rest is borrowed. */
struct request {
    size_t which; /* number of the subcommand */
    RFS_VEC(const char *) paths;
    struct rfs_globs globs;                         /* --name */
    struct rfs_settings options;                    /* -o, of the view */
    struct rfs_store *store;                        /* reads paths that are URLs; or NULL */
    const char *source;                             /* -s */
    const char *tree;                               /* --tree */
    const char *rules;                              /* --rules */
    enum { FORM_CKPT, FORM_JSON, FORM_BY_NAME } to; /* --to */
    uint32_t ranks;                                 /* --ranks; 0: not given */
    bool json, force, strict, whole;
    bool has_shape; /* --shape */
    uint32_t n_shape;
    uint64_t shape[RFS_GRID_DIMS];
};

/* A tree whose headers have been read. */
struct tree {
    struct rfs_headers_source source;
    struct rfs_headers headers;
    struct rfs_fit fit;
};

RFS_CLEANUP_OF(free_strategy, struct rfs_strategy *, rfs_strategy_free)

/*
 * Reads the headers of a tree. PATH NULL: there is none, and headers.n is 0. 0, or -errno with *err
 * filled; to be closed in any case.
 */
static int open_tree(const char *path, const struct rfs_settings *options, struct tree *tree,
                     struct rfs_error *err)
{
    struct rfs_progress progress;

    *tree = (struct tree){.headers = {.n = 0}};
    int rc = rfs_tool_source_prepare(options, path, NULL, NULL, &tree->source, err);
    if (rc || !path)
        return rc;
    rc = rfs_headers_open(&tree->source, path, err);
    if (rc == 0 && tree->source.parts)
        rc = rfs_fail(err, -EINVAL, RFS_IN(path), "a tree of MindSpore",
                      "hfai's parts are not cut by a strategy");
    if (rc)
        return rc;
    rfs_progress_init(&progress, false);
    rc = rfs_headers_read(&tree->source, RFS_HEADERS_SAMPLED, &progress, &tree->headers, err);
    rfs_progress_destroy(&progress);
    return rc;
}

static void close_tree(struct tree *tree)
{
    rfs_headers_free(&tree->headers);
    rfs_headers_close(&tree->source);
}

/*
 * Prepares to fit a strategy to a tree, which must have its ranks. 0, or -errno with *err filled.
 */
static int fit_tree(struct tree *tree, const struct rfs_strategy *strategy, struct rfs_error *err)
{
    rfs_fit_begin(&tree->headers, strategy, &tree->fit);
    return rfs_fit_ranks(&tree->fit, err);
}

/* Returns whether OUT is to be JSON, by --to or its name: 0 or 1, or -EINVAL with *err filled. */
static int choose_form(const struct request *request, const char *out, bool input_is_json,
                       struct rfs_error *err)
{
    const bool named = strcmp(out, "-") != 0;
    const bool json = request->to != FORM_BY_NAME ? request->to == FORM_JSON
                      : named                     ? rfs_strategy_is_json(out)
                                                  : input_is_json;

    /* Readers of the file go by its name. */
    if (named && json != rfs_strategy_is_json(out))
        return rfs_fail_usage(err, json ? "a name that ends in .json" : "a name without .json",
                              "'%s' would be read as %s", out, json ? "protobuf" : "JSON");
    return json;
}

/* Writes the file; MERGED as for rfs_strategy_doc_json. 0, or -errno with *err filled. */
static int write_file(const struct request *request, const char *out, bool json, bool merged,
                      const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int rc = json ? rfs_strategy_doc_json(doc, merged, &data, &size, err)
                        : rfs_strategy_doc_protobuf(doc, &data, &size, err);

    return rc ? rc : rfs_output_write(out, data, size, request->force, err);
}

/* Returns the name in "1-w", and its stage; stage 0 without a prefix. */
static const char *split_name(const char *name, uint32_t *stage)
{
    const char *dash = strchr(name, '-');

    *stage = dash ? (uint32_t)strtoul(name, NULL, 10) : 0;
    return dash ? dash + 1 : name;
}

/* Gives the document the shapes of the tree's tensors. 0, or -errno with *err filled. */
static int add_shapes(const struct rfs_fit *fit, struct rfs_strategy_doc *doc,
                      struct rfs_error *err)
{
    for (size_t i = 0; i < doc->map.n_parallel_layout_item; i++) {
        struct rfs_fit_tensor tensor = {.slice = NULL};
        uint32_t stage;
        const char *name =
            split_name(rfs_strategy_doc_text(doc->map.parallel_layout_item[i]->param_name), &stage);
        const ptrdiff_t at = rfs_strategy_find(fit->strategy, name);
        int rc = at < 0 ? 0 : rfs_fit_tensor(fit, (size_t)at, stage, &tensor, err);
        if (rc == 1)
            rc = rfs_strategy_doc_set_shape(doc, i, tensor.slice->ndim, tensor.whole, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- show ------------------------------------------------------------------------------------ */

/* A parameter in a stage, and its tensor in a tree. */
struct shown {
    const char *name;
    uint32_t stage;
    const struct rfs_layout *layout;
    int in_tree; /* 1: TENSOR is it, 0: the tree lacks it or there is none, negative: no fit */
    bool has_tree;
    struct rfs_fit_tensor tensor;
};

/* Adds the whole shape: the tree's, or that of JSON where nothing is flattened. */
static void put_shape(struct rfs_table *table, const void *of)
{
    const struct shown *row = of;
    const struct rfs_layout *layout = row->layout;

    if (row->in_tree == 1)
        rfs_table_dims(table, row->tensor.slice->ndim, row->tensor.whole);
    else if (layout->n_expanded > 0 && !layout->edge)
        rfs_table_dims(table, layout->n_expanded, layout->expanded);
    else
        rfs_table_none(table, "?");
}

static const char *note_of(const struct shown *row)
{
    const struct rfs_layout *layout = row->layout;

    if (layout->edge || layout->unclear == RFS_UNCLEAR_OFFSETS ||
        layout->unclear == RFS_UNCLEAR_SPLIT)
        return "uneven split";
    if (layout->field || layout->unclear == RFS_UNCLEAR_FIELD)
        return "field slicing";
    return row->in_tree < 0                     ? "does not fit the tree"
           : row->has_tree && row->in_tree == 0 ? "not in the tree"
                                                : "";
}

RFS_CELL(put_name, struct shown, rfs_table_text(table, row->name))
RFS_CELL(put_stage, struct shown, rfs_table_u64(table, row->stage))
RFS_CELL(put_devices, struct shown, rfs_table_layout(table, rfs_show_matrix, row->layout))
RFS_CELL(put_map, struct shown, rfs_table_layout(table, rfs_show_map, row->layout))
RFS_CELL(put_optimizer_shard, struct shown, rfs_table_u64(table, row->layout->opt_size))
RFS_CELL(put_note, struct shown, rfs_table_text(table, note_of(row)))

static const struct rfs_column show_columns[] = {
    {"name", RFS_CELL_TEXT, put_name},   {"stage", RFS_CELL_NUMBER, put_stage},
    {"shape", RFS_CELL_JSON, put_shape}, {"devices", RFS_CELL_JSON, put_devices},
    {"map", RFS_CELL_JSON, put_map},     {"optimizer_shard", RFS_CELL_NUMBER, put_optimizer_shard},
    {"note", RFS_CELL_TEXT, put_note},
};

static void add_row(const struct rfs_strategy *strategy, const struct rfs_fit *fit, size_t i,
                    uint32_t stage, struct rfs_table *table)
{
    struct shown row = {
        .name = rfs_strategy_param(strategy, i),
        .stage = stage,
        .layout = rfs_strategy_layout(strategy, i, stage),
        .has_tree = fit != NULL,
    };
    struct rfs_error unused = {0};

    row.in_tree = fit ? rfs_fit_tensor(fit, i, stage, &row.tensor, &unused) : 0;
    rfs_table_row(table, &row);
}

/* Adds a row for each parameter and stage that the globs take. FIT (NULL: no tree) gives shapes. */
static void add_rows(const struct rfs_strategy *strategy, const struct rfs_fit *fit,
                     struct rfs_globs *globs, struct rfs_table *table)
{
    RFS_TABLE_DESCRIBE(table, show_columns);
    for (size_t i = 0; i < rfs_strategy_count(strategy); i++)
        for (uint32_t stage = rfs_strategy_next_stage(strategy, i, 0);
             stage != RFS_NO_STAGE && rfs_globs_take(globs, rfs_strategy_param(strategy, i));
             stage = rfs_strategy_next_stage(strategy, i, stage + 1))
            add_row(strategy, fit, i, stage, table);
}

static void print_summary(const struct rfs_strategy *strategy, FILE *out)
{
    const uint32_t stages = rfs_strategy_stages(strategy);
    const uint32_t devices = rfs_strategy_devices(strategy);

    fprintf(out, "strategy: %zu parameters, %" PRIu32 " stage%s of %" PRIu32 " device%s\n",
            rfs_strategy_count(strategy), stages, stages == 1 ? "" : "s", devices,
            devices == 1 ? "" : "s");
}

/* Puts what the summary says as members of an object. */
static void put_counts(struct rfs_json_write *json, const struct rfs_strategy *strategy)
{
    rfs_json_put_u64(json, "parameters", rfs_strategy_count(strategy));
    rfs_json_put_u64(json, "stages", rfs_strategy_stages(strategy));
    rfs_json_put_u64(json, "devices", rfs_strategy_devices(strategy));
}

void rfs_command_strategy_tell(const struct rfs_strategy *strategy, struct rfs_globs *globs,
                               struct rfs_table *table, FILE *out, struct rfs_json_write *json)
{
    add_rows(strategy, NULL, globs, table);
    print_summary(strategy, out);
    put_counts(json, strategy);
}

static void print_show(const char *path, const struct rfs_strategy *strategy,
                       const struct rfs_table *table, bool json)
{
    if (!json) {
        rfs_table_print(table, stdout);
        putchar('\n');
        print_summary(strategy, stdout);
        return;
    }
    struct rfs_json_write out = {.file = stdout};
    rfs_json_object(&out, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&out, "kind", "strategy");
    rfs_json_put_text(&out, "path", path);
    put_counts(&out, strategy);
    rfs_table_put_json(table, &out, "rows");
    rfs_json_finish(&out);
}

static int show(const struct request *request, struct rfs_error *err)
{
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(close_tree) struct tree tree = {0};
    RFS_CLEANUP(rfs_table_free) struct rfs_table table = {.json = request->json};
    struct rfs_globs globs = request->globs;
    const char *path = request->paths.data[0];

    if (request->has_shape && request->paths.n == 1)
        return rfs_fail_usage(err, "reshard strategy show FILE NAME",
                              "--shape is that of one parameter");
    if (request->globs.n > 0 && request->paths.n > 1)
        return rfs_fail_usage(err, "NAME or --name GLOB",
                              "--name is for the table of all parameters");
    int rc = open_tree(request->tree, &request->options, &tree, err)
                 ?: rfs_plan_read_strategy(request->store, path, &strategy, err);

    if (rc == 0 && request->tree)
        rc = fit_tree(&tree, strategy, err);
    if (rc)
        return rc;
    if (request->paths.n == 2) {
        const struct rfs_devices devices = {
            .strategy = strategy,
            .path = path,
            .param = request->paths.data[1],
            .fit = request->tree ? &tree.fit : NULL,
            .shape = request->has_shape ? request->shape : NULL,
            .n_shape = request->n_shape,
        };
        return rfs_devices_print(&devices, request->json, err);
    }
    add_rows(strategy, request->tree ? &tree.fit : NULL, &globs, &table);
    rc = rfs_globs_check(&globs, err);
    if (rc == 0)
        print_show(path, strategy, &table, request->json);
    return rc;
}

/* ---- convert: a file in another form --------------------------------------------------------- */

static int convert(const struct request *request, struct rfs_error *err)
{
    const char *in = request->paths.data[0];
    const char *out = request->paths.data[1];
    RFS_CLEANUP(rfs_strategy_doc_free) struct rfs_strategy_doc doc = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(close_tree) struct tree tree = {0};
    RFS_FREE char *data = NULL;
    size_t size = 0;
    const int json = choose_form(request, out, !rfs_strategy_is_json(in), err);

    int rc = json < 0
                 ? json
                 : rfs_store_read_whole(request->store, in, RFS_STRATEGY_BYTES, &data, &size, err);
    rfs_strategy_doc_begin(&doc, in);
    rc = rc ?: rfs_strategy_doc_parse(&doc, data, size, err)
             ?: rfs_strategy_doc_build(&doc, &strategy, err)
             ?: open_tree(request->tree, &request->options, &tree, err);
    if (rc == 0 && request->tree)
        rc = fit_tree(&tree, strategy, err) ?: add_shapes(&tree.fit, &doc, err);
    return rc ? rc : write_file(request, out, json, false, &doc, err);
}

/* ---- merge: several files in one ------------------------------------------------------------- */

RFS_CLEANUP_OF(free_merge, struct rfs_stages *, rfs_stages_free)

static int merge_file(struct rfs_store *store, struct rfs_stages *merge, const char *path,
                      struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size = 0;
    return rfs_store_read_whole(store, path, RFS_STRATEGY_BYTES, &data, &size, err)
               ?: rfs_stages_add(merge, path, data, size, err);
}

/* Lists the files that are given, and those of folders. */
static int list_files(const struct request *request, struct rfs_path_list *files,
                      struct rfs_error *err)
{
    for (size_t i = 1; i < request->paths.n; i++) {
        const char *path = request->paths.data[i];
        struct stat st;
        int rc = 0;
        if (rfs_store_stat(request->store, path, &st) == 0 && S_ISDIR(st.st_mode))
            rc = rfs_plan_list_strategies(request->store, path, files, err);
        else if (!rfs_path_list_add(files, strdup(path)))
            rc = rfs_fail_memory(err);
        if (rc)
            return rc;
    }
    return 0;
}

static int merge_files(const struct request *request, struct rfs_error *err)
{
    const char *out = request->paths.data[0];
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};
    RFS_CLEANUP(free_merge) struct rfs_stages *merge = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    int rc = list_files(request, &files, err);
    const bool input_is_json = rc == 0 && rfs_strategy_is_json(files.data[0]);
    const int json = rc ? rc : choose_form(request, out, input_is_json, err);

    if (json < 0)
        return json;
    rc = rfs_stages_new(request->paths.n == 2 ? request->paths.data[1] : out, &merge, err);
    for (size_t i = 0; i < files.n && rc == 0; i++)
        rc = merge_file(request->store, merge, files.data[i], err);
    if (rc == 0)
        rc = rfs_stages_finish(merge, &strategy, err);
    return rc ? rc : write_file(request, out, json, true, rfs_stages_document(merge), err);
}

/* ---- new: a file from rules, or from a tree that says how it is cut -------------------------- */

/* What knows the number of a tensor's axes. */
struct axes_known {
    const struct rfs_headers *headers;
    const struct rfs_strategy *source; /* or NULL */
};

/*
 * Returns the number of a tensor's axes by the tree, else by a source strategy in which nothing is
 * flattened; -1: not known.
 */
static int ndim_of(void *ctx, const char *param, uint32_t stage)
{
    const struct axes_known *known = ctx;
    const struct rfs_headers_parameter *parameter = rfs_headers_parameter(known->headers, param);

    if (parameter)
        return parameter->type->ndim;
    const ptrdiff_t at = known->source ? rfs_strategy_find(known->source, param) : -1;
    const struct rfs_layout *layout =
        at < 0 ? NULL : rfs_strategy_layout(known->source, (size_t)at, stage);
    if (!layout && at >= 0)
        layout = rfs_strategy_layout(known->source, (size_t)at,
                                     rfs_strategy_next_stage(known->source, (size_t)at, 0));
    return layout && !layout->open && layout->n_expanded == 0 ? (int)layout->n_axes : -1;
}

/* Makes the strategy and its document, by rules, or by what the tree says if none are given. */
static int make(const struct request *request, struct tree *tree, const struct rfs_strategy *source,
                struct rfs_strategy_doc *doc, struct rfs_strategy **made, struct rfs_error *err)
{
    struct rfs_layout_rules_use use = {
        .source = source, .ranks = request->ranks, .ranks_option = "--ranks"};
    struct axes_known known = {&tree->headers, source};
    const struct rfs_strategy_doc_tensors tensors = {ndim_of, &known};

    return rfs_inspect_strategy(&tree->source, request->tree, &tree->headers, request->rules, &use,
                                made, err)
               ?: rfs_strategy_doc_make(*made, &tensors, doc, err);
}

static int make_new(const struct request *request, struct rfs_error *err)
{
    const char *out = request->paths.data[0];
    RFS_CLEANUP(close_tree) struct tree tree = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *source = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *made = NULL;
    RFS_CLEANUP(rfs_strategy_doc_free) struct rfs_strategy_doc doc = {0};

    const bool derived =
        !request->rules && request->ranks == 0 && !request->source && request->tree;

    if (!derived && !request->rules)
        return rfs_fail_usage(err, "--rules '*: whole' --ranks 8", "new needs --rules");
    if (!request->tree && !request->source)
        return rfs_fail_usage(err, "--tree SRC, or -s FILE", "there is no list of the parameters");
    const int json = choose_form(request, out, false, err);
    int rc = json < 0 ? json : 0;
    if (rc == 0 && request->source)
        rc = rfs_plan_read_strategy(request->store, request->source, &source, err);
    /* A rank that cannot be read may have tensors that nobody knows. */
    rc = rc ?: open_tree(request->tree, &request->options, &tree, err);
    if (rc == 0 && tree.headers.failure.code) {
        *err = tree.headers.failure;
        rc = err->code;
    }
    rc = rc ?: make(request, &tree, source, &doc, &made, err);
    /* A tree whose cuts are in the source strategy has the shapes that JSON is to have. */
    if (rc == 0 && request->tree && source) {
        struct rfs_fit from;
        rfs_fit_begin(&tree.headers, source, &from);
        rfs_fit_begin(&tree.headers, made, &tree.fit);
        tree.fit.source = &from;
        rc = rfs_fit_ranks(&from, err) ?: add_shapes(&tree.fit, &doc, err);
    } else if (rc == 0 && request->tree) {
        rfs_fit_begin(&tree.headers, made, &tree.fit);
        tree.fit.whole = request->whole || derived;
        rc = json ? rfs_fit_ranks(&tree.fit, err) : 0; /* protobuf has no shapes */
        rc = rc ?: add_shapes(&tree.fit, &doc, err);
    }
    return rc ? rc : write_file(request, out, json, rfs_strategy_stages(made) > 1, &doc, err);
}

/* ---- check: every mismatch between a strategy and a tree ------------------------------------- */

static void add_number(struct rfs_table *table, int64_t number)
{
    if (number < 0)
        rfs_table_none(table, "");
    else
        rfs_table_add(table, "%" PRId64, number);
}

RFS_CELL(put_kind, struct rfs_fit_finding, rfs_table_text(table, row->kind))
RFS_CELL(put_mismatch, struct rfs_fit_finding, rfs_table_bool(table, row->bad))
RFS_CELL(put_parameter, struct rfs_fit_finding, rfs_table_text(table, row->at.param ?: ""))
RFS_CELL(put_its_stage, struct rfs_fit_finding, add_number(table, row->at.stage))
RFS_CELL(put_its_rank, struct rfs_fit_finding, add_number(table, row->at.rank))
RFS_CELL(put_text, struct rfs_fit_finding, rfs_table_text(table, row->text))

static const struct rfs_column check_columns[] = {
    {"kind", RFS_CELL_TEXT, put_kind},           {"mismatch", RFS_CELL_JSON, put_mismatch},
    {"parameter", RFS_CELL_TEXT, put_parameter}, {"stage", RFS_CELL_NUMBER, put_its_stage},
    {"rank", RFS_CELL_NUMBER, put_its_rank},     {"text", RFS_CELL_TEXT, put_text},
};

static void print_json(const struct request *request, const struct rfs_strategy *strategy,
                       const struct rfs_fit_findings *findings, bool fits)
{
    struct rfs_table table = RFS_TABLE(check_columns, true);
    struct rfs_json_write json = {.file = stdout};

    for (size_t i = 0; i < findings->list.n; i++) {
        struct rfs_fit_finding row = findings->list.data[i];
        row.bad |= request->strict;
        rfs_table_row(&table, &row);
    }
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "kind", "check");
    rfs_json_put_text(&json, "strategy", request->paths.data[0]);
    rfs_json_put_text(&json, "tree", request->paths.data[1]);
    rfs_json_put_bool(&json, "fits", fits);
    put_counts(&json, strategy);
    rfs_table_put_json(&table, &json, "rows");
    rfs_json_finish(&json);
    rfs_table_free(&table);
}

static void print_check(const struct request *request, const struct rfs_strategy *strategy,
                        const struct rfs_fit_findings *findings, size_t bad)
{
    rfs_show_findings(findings, "mismatch", request->strict, SIZE_MAX);
    if (findings->list.n > 0)
        putchar('\n');
    print_summary(strategy, stdout);
    if (bad == 0)
        printf("fits: %s\n", request->paths.data[1]);
    else
        printf("does not fit: %s: %zu mismatch%s\n", request->paths.data[1], bad,
               bad == 1 ? "" : "es");
}

static int check(const struct request *request, const struct rfs_strategy *strategy,
                 const struct rfs_strategy *source, struct tree *tree, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_fit_findings_free) struct rfs_fit_findings findings = {.bad = 0};
    struct rfs_fit from;

    rfs_fit_begin(&tree->headers, strategy, &tree->fit);
    if (source) {
        rfs_fit_begin(&tree->headers, source, &from);
        tree->fit.source = &from;
    }
    tree->fit.whole = request->whole;
    tree->fit.bytes = true;
    int rc = rfs_fit_check(&tree->fit, &findings, err);
    if (rc)
        return rc;
    const size_t bad = request->strict ? findings.list.n : findings.bad;
    if (request->json)
        print_json(request, strategy, &findings, bad == 0);
    else
        print_check(request, strategy, &findings, bad);
    return bad > 0;
}

static int check_file(const struct request *request, struct rfs_error *err)
{
    RFS_CLEANUP(close_tree) struct tree tree = {0};
    RFS_CLEANUP(free_strategy) struct rfs_strategy *strategy = NULL;
    RFS_CLEANUP(free_strategy) struct rfs_strategy *source = NULL;

    if (request->whole && request->source)
        return rfs_fail_usage(err, "one of them",
                              "-s says how the tree is cut, and --whole that it is not");
    int rc = rfs_plan_read_strategy(request->store, request->paths.data[0], &strategy, err);
    if (rc == 0 && request->source)
        rc = rfs_plan_read_strategy(request->store, request->source, &source, err);
    if (rc == 0)
        rc = open_tree(request->paths.data[1], &request->options, &tree, err);
    return rc ? rc : check(request, strategy, source, &tree, err);
}

/* ---- the command line ------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int (*run)(const struct request *request, struct rfs_error *err);
    size_t least, most; /* number of paths */
    const char *form;
} subcommands[] = {
    {"show", show, 1, 2, "reshard strategy show FILE [NAME]"},
    {"convert", convert, 2, 2, "reshard strategy convert IN OUT"},
    {"merge", merge_files, 2, SIZE_MAX, "reshard strategy merge OUT FILE..."},
    {"new", make_new, 1, 1, "reshard strategy new OUT --rules RULES --ranks N"},
    {"check", check_file, 2, 2, "reshard strategy check FILE TREE"},
};
#define SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

/* Words of --to, by their numbers in request.to. */
static const char *const forms[] = {"ckpt", "json", NULL};

/* Parses dims such as "1024,512"; "" are those of a scalar. */
static bool parse_shape(const char *text, struct request *out)
{
    RFS_FREE char *copy = strdup(text);
    uint64_t extent = 0;

    out->has_shape = true;
    out->n_shape = 0;
    for (char *part = copy && *copy ? copy : NULL, *next; part; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (out->n_shape == RFS_GRID_DIMS || !rfs_tool_number(part, false, 1, INT64_MAX, &extent))
            return false;
        out->shape[out->n_shape++] = extent;
    }
    return copy != NULL;
}

static int take_shape(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    return parse_shape(given->value, request)
               ? 0
               : rfs_args_refuse(given, "a tensor's dims, such as --shape 1024,512", err);
}

static const struct rfs_argument arguments[] = {
    {.value = "FILE", .as = RFS_AS_TEXTS, RFS_TO(struct request, paths)},
    RFS_ARG_WORD("to", "FORM", forms, "ckpt or json", struct request, to,
                 "ckpt (protobuf) or json; else by OUT's ending"),
    RFS_ARG_TEXT("tree", "SRC", struct request, tree, "a checkpoint, for the shapes of tensors"),
    RFS_ARG_TEXT("rules", "RULES", struct request, rules,
                 "a file of rules, or their text with ';' between"),
    RFS_ARG_NUMBER("ranks", "N", 1, RFS_MAX_DEVICES, "a number of ranks", struct request, ranks,
                   "the ranks of the new strategy"),
    RFS_ARG_FILE('s', struct request, source,
                 "new: the strategy for rules with like; check: the\nstrategy of TREE, if FILE is "
                 "the one to show"),
    RFS_ARG_FLAG("whole", struct request, whole, "check: TREE is not cut"),
    RFS_ARG_FLAG("strict", struct request, strict,
                 "check: a parameter that one of them lacks is a mismatch"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options,
                 "options to read the tree by, as for a mount"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs, "show: only these parameters"),
    RFS_ARG_OWN("shape", "N,N,...", take_shape,
                "show NAME: the dims of its whole tensor, for slices in\nelements; else they are "
                "fractions of the axes"),
    RFS_ARG_FLAG("force", struct request, force, "replace OUT if it is there; OUT may be -"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

static int take_subcommand(void *given, const char *name, struct rfs_error *err)
{
    struct request *request = given;

    for (request->which = 0; request->which < SUBCOMMANDS; request->which++)
        if (strcmp(subcommands[request->which].name, name) == 0)
            return 0;
    return rfs_fail_usage(err, "reshard strategy --help",
                          *name ? "'%s' is not a command of strategy"
                                : "strategy takes show, convert, merge, new or check",
                          name);
}

/* Prepares for paths that are URLs, which the options say how to read. */
static int reach(struct request *request, struct rfs_error *err)
{
    const char *const more[] = {request->tree, request->source, request->rules};
    struct rfs_store *second = NULL; /* the same, if both are there */
    const int rc =
        rfs_tool_reach(&request->options, request->paths.data, request->paths.n, &request->store,
                       err)
            ?: rfs_tool_reach(&request->options, more, sizeof more / sizeof *more, &second, err);

    if (!request->store)
        request->store = second;
    return rc;
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    const size_t which = request->which;

    if (request->paths.n < subcommands[which].least || request->paths.n > subcommands[which].most)
        return rfs_fail_usage(err, subcommands[which].form, "%s takes %s", subcommands[which].name,
                              subcommands[which].most == 1    ? "one path"
                              : subcommands[which].least == 1 ? "a path, and perhaps a name"
                              : subcommands[which].most == 2  ? "two paths"
                                                              : "two paths or more");
    for (size_t i = 0; i < request->paths.n; i++)
        if (*request->paths.data[i] == '\0')
            return rfs_fail_usage(err, subcommands[which].form, "a path is empty");
    return reach(request, err) ?: subcommands[which].run(request, err);
}

static const struct request defaults = {.to = FORM_BY_NAME};

const struct rfs_command rfs_command_strategy = {
    .name = "strategy",
    .usage = "reshard strategy show FILE [--tree SRC] [--name GLOB] [--json]\n"
             "reshard strategy show FILE NAME [--tree SRC | --shape N,...] [--json]\n"
             "reshard strategy convert IN OUT [--to FORM] [--tree SRC] [--force]\n"
             "reshard strategy merge OUT FILE... | FOLDER [--force]\n"
             "reshard strategy new OUT --rules RULES --ranks N [-s FILE] [--tree SRC]\n"
             "reshard strategy new OUT --tree SRC\n"
             "reshard strategy check FILE TREE [-s FILE | --whole] [--strict] [--json]\n",
    .summary = "shows, converts, merges, makes and checks strategy files",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .take_word = take_subcommand,
    .run = run,
};
