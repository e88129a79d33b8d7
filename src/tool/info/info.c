/* SPDX-License-Identifier: Apache-2.0 */
/* reshard info: describes any file or folder, from headers alone. */
#include "tool/info/info.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/show.h"

#include <pthread.h>

#define FINDINGS_SHOWN 12

/* ---- common to all kinds ---- */

void rfs_info_tell_types(struct rfs_report *report, const struct rfs_rows *rows)
{
    const char *comma = "";

    fputs("types:", report->say);
    rfs_json_array(&report->json, "dtypes", RFS_JSON_TIGHT);
    for (int i = 0; i < RFS_COUNTED; i++) {
        const char *name = i == RFS_DTYPE_COUNT ? "map" : rfs_dtype_name((enum rfs_dtype)i);
        char bytes[RFS_SHOWN_BYTES];
        if (rows->counts[i] == 0)
            continue;
        fprintf(report->say, "%s %" PRIu64 " %s (%s)", comma, rows->counts[i], name,
                rfs_show_bytes(rows->content[i], bytes));
        rfs_json_object(&report->json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&report->json, "dtype", name);
        rfs_json_put_u64(&report->json, "parameters", rows->counts[i]);
        rfs_json_put_u64(&report->json, "bytes", rows->content[i]);
        rfs_json_end(&report->json);
        comma = ",";
    }
    fputs(*comma ? "\n" : " none\n", report->say);
    rfs_json_end(&report->json);
}

void rfs_info_tell_filter(struct rfs_report *report, const struct rfs_filter *filter,
                          const struct rfs_rows *rows)
{
    if (rows->list.n == rows->n)
        return;
    uint64_t bytes = 0;
    for (size_t i = 0; i < rows->list.n; i++)
        bytes += rows->list.data[i].bytes;
    fprintf(report->say, "shown: %zu of %zu parameters, %" PRIu64 " bytes%s\n", rows->list.n,
            rows->n, bytes, rows->list.n == filter->most ? " (-n)" : "");
    rfs_json_put_u64(&report->json, "shown", rows->list.n);
}

/* ---- the command line ---- */

struct parsed {
    struct rfs_info_args args;
    struct rfs_globs globs;
    struct rfs_settings options; /* of the view */
};

static int take_dtype(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    struct parsed *parsed = request;

    return rfs_rows_parse_dtype(given->value, &parsed->args.filter.dtype)
               ? 0
               : rfs_args_refuse(given, "Float32, BFloat16, Int8 or another", err);
}

/* By their numbers in enum rfs_order. */
static const char *const orders[] = {"file", "size", "name", "offset", NULL};

static const struct rfs_argument arguments[] = {
    RFS_ARG_PLACE("PATH", struct parsed, args.path, "one PATH"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct parsed, options,
                 "a tree's strategy, for whole shapes, cuts and misfits"),
    RFS_ARG_VIEW('o', "OPTIONS", NULL, struct parsed, options,
                 "options to read it by, as for a mount: step=5,\nkey_file=FILE, "
                 "rank_dir=node%d, ..."),
    RFS_ARG_TEXTS("name", "GLOB", struct parsed, globs,
                  "only these parameters; may be given several times"),
    RFS_ARG_OWN("dtype", "TYPE", take_dtype, "only this element type, such as BFloat16"),
    RFS_ARG_WORD("sort", "ORDER", orders, "size, name, offset or file", struct parsed,
                 args.filter.order, "size (the largest first), name, offset or file"),
    {.letter = 'n',
     .value = "N",
     .as = RFS_AS_NUMBER,
     .least = 1,
     .most = SIZE_MAX,
     .remedy = "a number of rows",
     RFS_TO(struct parsed, args.filter.most),
     .help = "the first N of them"},
    RFS_ARG_FLAG("all", struct parsed, args.all,
                 "read the headers of every rank, also of a large tree"),
    RFS_ARG_FLAG("json", struct parsed, args.json, "for scripts"),
    {0},
};

/* ---- the report ---- */

/* Lines of the log are findings, too. From any thread. */
static void take_line(void *ctx, enum rfs_level level, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rfs_report *report = ctx;

    if (level > RFS_WARNING)
        return;
    pthread_mutex_lock(&lock);
    rfs_fit_findings_add(&report->findings,
                         (struct rfs_fit_finding){.kind = "log", .stage = -1, .rank = -1}, "%s",
                         line);
    pthread_mutex_unlock(&lock);
}

static int begin(struct rfs_report *report, const char *path, bool json, struct rfs_error *err)
{
    report->table.json = report->second.json = json;
    report->kind = "checkpoint";
    report->path = strdup(path);
    report->say = open_memstream(&report->lines, &report->lines_bytes);
    report->json.bytes = &report->more;
    rfs_json_object(&report->json, NULL, RFS_JSON_TIGHT);
    return report->path && report->say ? 0 : rfs_fail_memory(err);
}

static void end(struct rfs_report *report)
{
    if (report->say)
        fclose(report->say);
    free(report->lines);
    rfs_bytes_free(&report->more);
    free(report->path);
    rfs_table_free(&report->table);
    rfs_table_free(&report->second);
    rfs_fit_findings_free(&report->findings);
}

static int show_manifest(struct rfs_info_args *args, struct rfs_report *report,
                         struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_folder(args->path);
    enum rfs_info_kind kind;

    if (!folder)
        return rfs_fail_memory(err);
    int rc = rfs_info_detect(folder, args->source.encrypted != NULL, &kind, err);
    if (rc)
        return rc;
    free(report->path);
    report->path = strdup(folder);
    if (!report->path)
        return rfs_fail_memory(err);
    rc = kind == RFS_INFO_RANK ? rfs_info_rank(args, report, err)
                               : rfs_info_tree(args, folder, report, err);
    return rc ? rc : rfs_info_manifest(report, folder, err);
}

static int show(struct rfs_info_args *args, enum rfs_info_kind kind, struct rfs_report *report,
                struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    int rc;

    switch (kind) {
    case RFS_INFO_STRATEGY:
    case RFS_INFO_STRATEGIES:
        return rfs_info_strategy(args, report, err);
    case RFS_INFO_GROUP:
        return rfs_info_group(report, err);
    case RFS_INFO_RULES:
        return rfs_info_rules(report, err);
    case RFS_INFO_MANIFEST:
        return show_manifest(args, report, err);
    case RFS_INFO_WEIGHT_MAP:
        folder = rfs_store_folder(args->path);
        return folder ? rfs_info_tree(args, folder, report, err) : rfs_fail_memory(err);
    case RFS_INFO_PARTS:
        return rfs_info_parts(args, report, err);
    case RFS_INFO_CHUNKS:
        rc = rfs_info_chunks(args, report, err);
        return rc ? rc : rfs_info_manifest(report, args->path, err);
    case RFS_INFO_TREE:
        rc = rfs_info_tree(args, args->path, report, err);
        return rc ? rc : rfs_info_manifest(report, args->path, err);
    case RFS_INFO_RANK:
        rc = rfs_info_rank(args, report, err);
        return rc ? rc : rfs_info_manifest(report, args->path, err);
    case RFS_INFO_CKPT:
    case RFS_INFO_SAFETENSORS:
    case RFS_INFO_TORCH:
    case RFS_INFO_ENCRYPTED:
        break;
    }
    return rfs_info_file(args, args->path, kind, report, err);
}

/* ---- printing ---- */

static void print(const struct rfs_report *report)
{
    if (report->table.cells.n > 0) {
        rfs_table_print(&report->table, stdout);
        fputc('\n', stdout);
    }
    if (report->second.cells.n > 0) {
        rfs_table_print(&report->second, stdout);
        fputc('\n', stdout);
    }
    fputs(report->lines, stdout);
    rfs_fit_findings_print(&report->findings, "odd", false, FINDINGS_SHOWN);
}

static void put_findings(struct rfs_json_write *json, const struct rfs_fit_findings *findings)
{
    rfs_json_array(json, "findings", RFS_JSON_ROWS);
    for (size_t i = 0; i < findings->list.n; i++) {
        const struct rfs_fit_finding *finding = &findings->list.data[i];
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(json, "kind", finding->kind);
        rfs_json_put_bool(json, "odd", finding->bad);
        rfs_json_put_text(json, "parameter", finding->param);
        if (finding->stage >= 0)
            rfs_json_put_i64(json, "stage", finding->stage);
        if (finding->rank >= 0)
            rfs_json_put_i64(json, "rank", finding->rank);
        rfs_json_put_text(json, "text", finding->text);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

static void print_json(const struct rfs_report *report)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "kind", report->kind);
    rfs_json_put_text(&json, "path", report->path);
    if (report->more.n > 1) /* the bracket of its object */
        printf(",%.*s", (int)(report->more.n - 1), (const char *)report->more.data + 1);
    put_findings(&json, &report->findings);
    if (report->key)
        rfs_table_put_json(&report->table, &json, report->key);
    rfs_table_put_json(report->second.n_columns > 0 ? &report->second : &report->table, &json,
                       "rows");
    rfs_json_finish(&json);
}

static int run_report(struct parsed *parsed, struct rfs_report *report, struct rfs_error *err)
{
    struct rfs_info_args *args = &parsed->args;
    enum rfs_info_kind kind;
    if (!args->path)
        return rfs_fail_usage(err, "reshard info PATH", "info takes one path");
    args->filter.globs = &parsed->globs;
    int rc = begin(report, args->path, args->json, err)
            ?: rfs_tool_source_prepare(&parsed->options, args->path, take_line, report,
                                       &args->source, err)
            ?: rfs_info_detect(args->path, args->source.encrypted != NULL, &kind, err);
    if (rc == 0) {
        rfs_info_mount(report, args->path);
        rc = show(args, kind, report, err);
    }
    if (rc == 0 && (fflush(report->say) || report->json.failed))
        rc = rfs_fail_memory(err);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct parsed *parsed = request;
    struct rfs_report report = {.kind = NULL};
    int rc = run_report(parsed, &report, err);

    if (rc == 0 && report.failure.code == 0)
        rc = rfs_globs_check(&parsed->globs, err);
    if (rc == 0 && parsed->args.json)
        print_json(&report);
    else if (rc == 0)
        print(&report);
    if (rc == 0 && report.failure.code) {
        fflush(stdout);
        *err = report.failure;
        rc = err->code;
    }
    end(&report);
    rfs_tool_source_close(&parsed->args.source);
    return rc;
}

static const struct parsed defaults = {.args.filter = {.dtype = -1, .most = SIZE_MAX}};

const struct rfs_command rfs_command_info = {
    .name = "info",
    .usage = "reshard info [option...] PATH\n",
    .summary = "lists the content of a checkpoint, tree, strategy or mount",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
