/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard info: describes any file or folder, from headers alone. This file has the command,
 * what it tells of each path (its mount, and the export in it), and what single files are:
 * checkpoints of any format, strategies, group info and rules.
 */
#include "tool/info/info.h"

#include "base/cleanup.h"
#include "base/mountinfo.h"
#include "base/options.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "layout/layout_rules.h"
#include "plan/strategy_files.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/manifest.h"
#include "tool/common/show.h"
#include "tool/strategy/strategy_command.h"

#include <pthread.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ---- mounts ---------------------------------------------------------------------------------- */

#define MOUNT_TYPE "fuse.reshardfs"
#define XATTRS "user.reshardfs."
#define VALUE_BYTES 16384

/* Reads the value of an attribute as a text. Returns false if there is none. */
static bool get_xattr(const char *path, const char *name, char out[VALUE_BYTES])
{
    const ssize_t size = getxattr(path, name, out, VALUE_BYTES - 1);

    if (size >= 0)
        out[size] = '\0';
    return size >= 0;
}

/* Writes all that the mount says of a path, for scripts. */
static void put_xattrs(struct rfs_json_write *json, const char *path)
{
    char names[4096], value[VALUE_BYTES];
    const ssize_t n = listxattr(path, names, sizeof names);

    rfs_json_object(json, "xattrs", RFS_JSON_TIGHT);
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
        if (strncmp(names + i, XATTRS, strlen(XATTRS)) == 0 && get_xattr(path, names + i, value))
            rfs_json_put_text(json, names + i + strlen(XATTRS), value);
    rfs_json_end(json);
}

/* Prints a line with the mount's options, whatever path in it was given. */
static void say_options(FILE *say, const char *point)
{
    char value[VALUE_BYTES];

    if (!get_xattr(point, XATTRS "options", value))
        return;
    fputs("  options: ", say);
    rfs_text_put(say, value);
    fputc('\n', say);
}

struct search {
    struct rfs_info_report *report;
    const char *path;
    dev_t device; /* device of the path */
};

/* Tells the mount that the path is in; false ends the search. */
static bool take_mount(void *ctx, const struct rfs_mountinfo *mount)
{
    const struct search *search = ctx;
    struct rfs_info_report *report = search->report;

    if (mount->device != search->device || strcmp(mount->type, MOUNT_TYPE) != 0)
        return true;
    fprintf(report->say, "mount: %s, by reshardfs, of %s\n", mount->point, mount->source);
    say_options(report->say, mount->point);
    rfs_json_object(&report->json, "mount", RFS_JSON_TIGHT);
    rfs_json_put_text(&report->json, "point", mount->point);
    rfs_json_put_text(&report->json, "source", mount->source);
    rfs_json_put_text(&report->json, "options", mount->options);
    put_xattrs(&report->json, search->path);
    rfs_json_end(&report->json);
    return false;
}

/* Tells the mount of reshardfs that PATH is in, if any: a line, and a member "mount". */
static void tell_mount(struct rfs_info_report *report, const char *path)
{
    struct stat st;

    if (rfs_store_is_url(path) || stat(path, &st) != 0)
        return;
    struct search search = {report, path, st.st_dev};
    (void)rfs_mountinfo_each(take_mount, &search); /* without the table nothing is told */
}

/* ---- exports --------------------------------------------------------------------------------- */

/* Counts files that are not as long as the manifest says, or not there. */
static size_t count_wrong(struct rfs_store *store, const char *folder,
                          const struct rfs_manifest *manifest, char *first, size_t size)
{
    size_t wrong = 0;

    for (size_t i = 0; i < manifest->entries.n; i++) {
        const char *name = rfs_intern_text(manifest->names, (uint32_t)i);
        RFS_FREE char *path = rfs_printed_memory(rfs_path_join(folder, name));
        struct stat st;
        if (rfs_store_stat(store, path, &st) == 0 &&
            (uint64_t)st.st_size == manifest->entries.data[i].size)
            continue;
        if (wrong++ == 0)
            snprintf(first, size, "%s", name);
    }
    return wrong;
}

static void tell_manifest(struct rfs_store *store, struct rfs_info_report *report,
                          const char *folder, const struct rfs_manifest *manifest)
{
    char first[512] = "";
    const size_t wrong = count_wrong(store, folder, manifest, first, sizeof first);

    fprintf(report->say, "export: %zu of %" PRIu64 " files completed, of %s\n", manifest->entries.n,
            manifest->total_files,
            manifest->source ? manifest->source : "a source that it does not name");
    rfs_json_object(&report->json, "export", RFS_JSON_TIGHT);
    rfs_json_put_u64(&report->json, "files", manifest->entries.n);
    rfs_json_put_u64(&report->json, "total_files", manifest->total_files);
    rfs_json_put_text(&report->json, "source", manifest->source ? manifest->source : "");
    rfs_json_put_u64(&report->json, "wrong_files", wrong);
    rfs_json_end(&report->json);
    if (wrong > 0)
        rfs_fit_findings_add(
            &report->findings, "export", false, RFS_FIT_ALL,
            "%zu file%s of the manifest %s not there, or not as long as it says: %s", wrong,
            wrong == 1 ? "" : "s", wrong == 1 ? "is" : "are", first);
}

/* Tells the export in a folder, if any, by its manifests. 0, or -errno with *err filled. */
static int tell_export(struct rfs_store *store, struct rfs_info_report *report, const char *path,
                       struct rfs_error *err)
{
    struct rfs_manifest manifest;
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const bool listed = rfs_dir_open(store, path, &dir) == 0;
    bool found = false;
    int rc = rfs_manifest_init(&manifest, RFS_MANIFEST_FILES) ? rfs_fail_memory(err) : 0;

    for (const struct dirent *entry; listed && rc == 0 && (entry = rfs_dir_next(&dir)) != NULL;)
        if (rfs_manifest_is_name(entry->d_name)) {
            RFS_FREE char *file = rfs_printed_memory(rfs_path_join(path, entry->d_name));
            rc = rfs_manifest_read(store, file, &manifest, err);
            found = true;
        }
    if (rc == 0 && found)
        tell_manifest(store, report, path, &manifest);
    rfs_manifest_free(&manifest);
    return rc;
}

/* ---- checkpoint files ------------------------------------------------------------------------ */

#define LINE_MOST 80 /* bytes of a name or a text that are shown */

RFS_CELL(put_mode, struct rfs_inspect_file, rfs_table_text(table, row->mode))
RFS_CELL(put_blocks, struct rfs_inspect_file, rfs_table_u64(table, row->blocks))
RFS_CELL(put_file_bytes, struct rfs_inspect_file, rfs_table_u64(table, row->bytes))
static const struct rfs_column encrypted_columns[] = {
    {"mode", RFS_CELL_TEXT, put_mode},
    {"blocks", RFS_CELL_NUMBER, put_blocks},
    {"file bytes", RFS_CELL_NUMBER, put_file_bytes},
};

/* Describes an encrypted file by its headers, without a key. */
static void report_encrypted(const struct rfs_inspect_file *file, struct rfs_info_report *report)
{
    report->kind = "encrypted";
    RFS_TABLE_DESCRIBE(&report->table, encrypted_columns);
    rfs_table_row(&report->table, file);
    fprintf(report->say,
            "encrypted (%s, %" PRIu32 " block%s): to see its content, give its key: "
            "-o key_file=FILE\n",
            file->mode, file->blocks, file->blocks == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "mode", file->mode);
}

static void say_value(const struct rfs_format_value *value, FILE *say)
{
    char text[LINE_MOST];

    rfs_text_printable(text, sizeof text, value->name);
    fprintf(say, "  %s: ", text);
    if (!value->text) {
        fprintf(say, "%" PRIu64 " of type %s\n", value->n, value->type);
        return;
    }
    rfs_text_printable(text, sizeof text, value->text);
    const bool all = !value->is_text || (value->n < LINE_MOST && strlen(text) + 4 < LINE_MOST);
    fprintf(say, "%s%s\n", text, all ? "" : "…");
}

static void put_value(const struct rfs_format_value *value, struct rfs_json_write *json)
{
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "name", value->name);
    rfs_json_put_text(json, "type", value->type);
    if (!value->text)
        rfs_json_put_u64(json, "elements", value->n);
    else if (value->is_text)
        rfs_json_put_text(json, "value", value->text);
    else
        rfs_json_print(json, "value", "%s", value->text);
    rfs_json_end(json);
}

void rfs_info_tell_values(struct rfs_info_report *report, const struct rfs_info_listing *listing)
{
    if (listing->values.n == 0)
        return;
    rfs_json_array(&report->json, "values", RFS_JSON_TIGHT);
    for (size_t i = 0; i < listing->values.n; i++) {
        say_value(&listing->values.data[i], report->say);
        put_value(&listing->values.data[i], &report->json);
    }
    rfs_json_end(&report->json);
}

static void report_file(const struct rfs_info_args *args, const struct rfs_inspect_file *file,
                        const struct rfs_info_rows *rows, struct rfs_info_report *report)
{
    rfs_info_rows_table(rows, true, &report->table);
    fprintf(report->say,
            "checkpoint: %zu parameter%s, %" PRIu64 " bytes of content in a file of %" PRIu64
            "%s\n",
            rows->n, rows->n == 1 ? "" : "s", rows->bytes, file->bytes,
            file->has_crc ? ", with a checksum" : "");
    rfs_info_tell_filter(report, &args->filter, rows);
    fprintf(report->say, "format: %s%s\n", file->format,
            file->redundancy_removed ? ", without what other ranks keep" : "");
    rfs_info_tell_types(report, rows);
    if (file->others > 0)
        fprintf(report->say, "and %zu value%s that %s no tensor%s\n", file->others,
                file->others == 1 ? "" : "s", file->others == 1 ? "is" : "are",
                file->others == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "format", file->format);
    rfs_json_put_u64(&report->json, "parameters", rows->n);
    rfs_json_put_u64(&report->json, "content_bytes", rows->bytes);
    rfs_json_put_u64(&report->json, "file_bytes", file->bytes);
    rfs_json_put_bool(&report->json, "checksum", file->has_crc);
    rfs_json_put_bool(&report->json, "redundancy_removed", file->redundancy_removed);
    rfs_json_put_u64(&report->json, "other_values", file->others);
}

static int add_checkpoint(struct rfs_info_args *args, const char *path,
                          const struct rfs_format_row *row, struct rfs_info_report *report,
                          struct rfs_error *err)
{
    struct rfs_info_listing listing = {.filter = &args->filter};
    struct rfs_inspect_file file;
    const int rc = rfs_inspect_file(&args->source, path, row, rfs_info_listing_add,
                                    rfs_info_listing_add_value, &listing, &file, err);

    rfs_info_rows_order(&listing.rows, &args->filter);
    if (rc == 0 && file.mode)
        report_encrypted(&file, report);
    else if (rc == 0)
        report_file(args, &file, &listing.rows, report);
    if (rc == 0)
        rfs_info_tell_values(report, &listing);
    free(listing.values.data);
    rfs_info_rows_free(&listing.rows);
    return rc;
}

/* ---- strategies, group info and rules -------------------------------------------------------- */

static int add_strategy(struct rfs_info_args *args, struct rfs_info_report *report,
                        struct rfs_error *err)
{
    struct rfs_strategy *strategy = NULL;
    struct stat st;
    struct rfs_store *store = args->source.store;
    int rc = rfs_plan_read_strategy(store, report->path, &strategy, err);
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list below = {0};

    if (rc)
        rfs_inspect_below(store, report->path, &below);
    if (rc == -EINVAL && rfs_store_stat(store, report->path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = rfs_fail(err, rc, RFS_IN(report->path),
                      below.n > 0 ? below.data[0] : "one of its files, or a folder beside them",
                      "holds strategies, not checkpoints, and they are not the stages of one run");
    if (rc)
        return rc;
    report->kind = "strategy";
    rfs_command_strategy_tell(strategy, args->filter.globs, &report->table, report->say,
                              &report->json);
    rfs_strategy_free(strategy);
    return 0;
}

RFS_CELL(put_equal_rank, uint32_t, rfs_table_u64(table, *row))

static int add_group(struct rfs_store *store, struct rfs_info_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"rank", RFS_CELL_NUMBER, put_equal_rank}};
    RFS_FREE uint32_t *ranks = NULL;
    size_t n;
    const int rc = rfs_inspect_group(store, report->path, &ranks, &n, err);

    if (rc)
        return rc;
    report->kind = "group info";
    RFS_TABLE_DESCRIBE(&report->table, columns);
    for (size_t i = 0; i < n; i++)
        rfs_table_row(&report->table, &ranks[i]);
    if (n == 0)
        fputs("group info: no rank is equal to the rank that saved it\n", report->say);
    else
        fprintf(report->say, "group info: %zu ranks with equal checkpoints\n", n);
    return 0;
}

struct rules_line {
    uint32_t number;
    const char *text;
};
RFS_CELL(put_line_number, struct rules_line, rfs_table_u64(table, row->number))
RFS_CELL(put_line_text, struct rules_line, rfs_table_text(table, row->text))
static const struct rfs_column rules_columns[] = {
    {"line", RFS_CELL_NUMBER, put_line_number},
    {"text", RFS_CELL_TEXT, put_line_text},
};

static int add_rules(struct rfs_store *store, struct rfs_info_report *report, struct rfs_error *err)
{
    struct rfs_layout_rules *rules = NULL;
    RFS_FREE char *text = NULL;
    struct rules_line row = {0};
    size_t shown = 0;
    size_t size = 0;
    const int rc =
        rfs_store_read_whole(store, report->path, RFS_LAYOUT_RULES_BYTES, &text, &size, err)
            ?: rfs_layout_rules_parse(report->path, text, size, &rules, err);

    rfs_layout_rules_free(rules);
    if (rc)
        return rc;
    report->kind = "rules";
    RFS_TABLE_DESCRIBE(&report->table, rules_columns);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        row.number++;
        row.text = line + strspn(line, " \t\r");
        if (*row.text == '\0' || *row.text == '#')
            continue;
        rfs_table_row(&report->table, &row);
        shown++;
    }
    fprintf(report->say, "rules: %zu line%s\n", shown, shown == 1 ? "" : "s");
    return 0;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Shows a file, or a folder of strategies. */
static int show_file(struct rfs_info_args *args, const char *path,
                     const struct rfs_inspect_kind *kind, struct rfs_info_report *report,
                     struct rfs_error *err)
{
    switch (kind->what) {
    case RFS_INSPECT_STRATEGY:
    case RFS_INSPECT_STRATEGIES:
        return add_strategy(args, report, err);
    case RFS_INSPECT_GROUP:
        return add_group(args->source.store, report, err);
    case RFS_INSPECT_RULES:
        return rfs_inspect_check_rules(args->source.store, path, err)
                   ?: add_rules(args->source.store, report, err);
    default:
        return add_checkpoint(args, path, kind->row, report, err);
    }
}

/* Shows the checkpoint that counts in the folder of a rank. */
static int show_rank(struct rfs_info_args *args, struct rfs_info_report *report,
                     struct rfs_error *err)
{
    RFS_FREE char *folder = RFS_STEAL(report->path);
    struct rfs_inspect_kind kind;
    int rc = rfs_inspect_rank_file(args->source.store, folder, &report->path, err)
                 ?: rfs_inspect_detect(args->source.store, report->path,
                                       args->source.encrypted != NULL, &kind, err);
    if (rc == 0 && kind.what == RFS_INSPECT_STRATEGY) {
        free(report->path);
        report->path = RFS_STEAL(folder);
    }
    rc = rc ?: show_file(args, report->path, &kind, report, err);
    struct rfs_error unused;
    if (rc == 0 && folder && rfs_headers_open(&args->source, folder, &unused) == 0)
        rfs_info_tell_aside(args, report);
    else if (rc == 0 && folder) /* each save of a rank has a file */
        rfs_info_find_beside(args->source.store, folder, &report->findings);
    return rc;
}

static int show_manifest(struct rfs_info_args *args, struct rfs_info_report *report,
                         struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_folder(args->path);
    struct rfs_inspect_kind kind;

    if (!folder)
        return rfs_fail_memory(err);
    int rc =
        rfs_inspect_detect(args->source.store, folder, args->source.encrypted != NULL, &kind, err);
    if (rc)
        return rc;
    free(report->path);
    report->path = strdup(folder);
    if (!report->path)
        return rfs_fail_memory(err);
    rc = kind.what == RFS_INSPECT_RANK ? show_rank(args, report, err)
                                       : rfs_info_tree(args, folder, report, err);
    return rc ? rc : tell_export(args->source.store, report, folder, err);
}

static int show_weight_map(struct rfs_info_args *args, struct rfs_info_report *report,
                           struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_folder(args->path);

    return folder ? rfs_info_tree(args, folder, report, err) : rfs_fail_memory(err);
}

static int show(struct rfs_info_args *args, const struct rfs_inspect_kind *kind,
                struct rfs_info_report *report, struct rfs_error *err)
{
    int rc = 0;

    switch (kind->what) {
    case RFS_INSPECT_MANIFEST:
        return show_manifest(args, report, err);
    case RFS_INSPECT_WEIGHT_MAP:
        return show_weight_map(args, report, err);
    case RFS_INSPECT_PARTS:
        return rfs_info_parts(args, args->path, kind->row, report, err);
    case RFS_INSPECT_CHUNKS:
        rc = rfs_info_chunks(args, args->path, report, err);
        break;
    case RFS_INSPECT_TREE:
        rc = rfs_info_tree(args, args->path, report, err);
        break;
    case RFS_INSPECT_RANK:
        rc = show_rank(args, report, err);
        break;
    case RFS_INSPECT_CONFIG:
        return rfs_fail(err, -EINVAL, RFS_IN(args->path), "the folder that it is in",
                        "is the config of a model, and no checkpoint");
    case RFS_INSPECT_FILE:
    case RFS_INSPECT_ENCRYPTED:
    case RFS_INSPECT_STRATEGY:
    case RFS_INSPECT_STRATEGIES:
    case RFS_INSPECT_GROUP:
    case RFS_INSPECT_RULES:
        return show_file(args, args->path, kind, report, err);
    }
    return rc ?: tell_export(args->source.store, report, args->path, err);
}

/* ---- the command line ------------------------------------------------------------------------ */

/* Finds the type by MindSpore's, numpy's or safetensors' name. False when it is none. */
static bool parse_dtype(const char *text, int *dtype)
{
    for (int i = 0; i < RFS_DTYPE_COUNT; i++)
        if (strcasecmp(text, rfs_dtype_name((enum rfs_dtype)i)) == 0) {
            *dtype = i;
            return true;
        }
    for (int i = 0; i < RFS_DTYPE_COUNT; i++) {
        const char *name = i == RFS_INT4 ? NULL : rfs_dtype_safetensors((enum rfs_dtype)i);
        if (name && strcasecmp(text, name) == 0) {
            *dtype = i;
            return true;
        }
    }
    return false;
}

/* The command line. */
struct request {
    struct rfs_info_args args;
    struct rfs_globs globs;
    struct rfs_settings options; /* options of the view */
};

static int take_dtype(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    struct request *parsed = request;

    return parse_dtype(given->value, &parsed->args.filter.dtype)
               ? 0
               : rfs_args_refuse(given, "Float32, BFloat16, Int8 or another", err);
}

/* The names of the orders, by enum rfs_info_order. */
static const char *const orders[] = {"file", "size", "name", "offset", NULL};

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("PATH", struct request, args.path, "one PATH"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options,
                 "a tree's strategy, for whole shapes, cuts and mismatches"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options,
                 "options to read it by, as for a mount: step=5,\nkey_file=FILE, "
                 "rank_dir=node%d, ..."),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "only these parameters; may be given several times"),
    RFS_ARG_OWN("dtype", "TYPE", take_dtype, "only this element type, such as BFloat16"),
    RFS_ARG_WORD("sort", "ORDER", orders, "size, name, offset or file", struct request,
                 args.filter.order, "size (the largest first), name, offset or file"),
    {.letter = 'n',
     .value = "N",
     .as = RFS_AS_NUMBER,
     .least = 1,
     .most = SIZE_MAX,
     .remedy = "a number of rows",
     RFS_TO(struct request, args.filter.most),
     .help = "the first N of them"},
    RFS_ARG_FLAG("all", struct request, args.all,
                 "read the headers of every rank, also of a large tree"),
    RFS_ARG_FLAG("json", struct request, args.json, "for scripts"),
    {0},
};

/* ---- the report ------------------------------------------------------------------------------ */

/* Makes a line of the log a finding. From any thread. */
static void take_line(void *ctx, enum rfs_level level, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rfs_info_report *report = ctx;

    if (level > RFS_WARNING)
        return;
    pthread_mutex_lock(&lock);
    rfs_fit_findings_add(&report->findings, "log", false, RFS_FIT_ALL, "%s", line);
    pthread_mutex_unlock(&lock);
}

static int begin_report(struct rfs_info_report *report, const char *path, bool json,
                        struct rfs_error *err)
{
    report->table.json = report->second.json = json;
    report->kind = "checkpoint";
    report->path = strdup(path);
    report->say = open_memstream(&report->lines, &report->lines_bytes);
    report->json.bytes = &report->more;
    rfs_json_object(&report->json, NULL, RFS_JSON_TIGHT);
    return report->path && report->say ? 0 : rfs_fail_memory(err);
}

static void end_report(struct rfs_info_report *report)
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

/* ---- printing -------------------------------------------------------------------------------- */

#define FINDINGS_SHOWN 12

static void print_text(const struct rfs_info_report *report)
{
    const struct rfs_table *const tables[] = {&report->table, &report->second};

    for (int i = 0; i < 2; i++)
        if (tables[i]->cells.n > 0) {
            rfs_table_print(tables[i], stdout);
            fputc('\n', stdout);
        }
    fputs(report->lines, stdout);
    rfs_show_findings(&report->findings, "odd", false, FINDINGS_SHOWN);
}

static void put_findings(struct rfs_json_write *json, const struct rfs_fit_findings *findings)
{
    rfs_json_array(json, "findings", RFS_JSON_ROWS);
    for (size_t i = 0; i < findings->list.n; i++) {
        const struct rfs_fit_finding *finding = &findings->list.data[i];
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(json, "kind", finding->kind);
        rfs_json_put_bool(json, "odd", finding->bad);
        rfs_json_put_text(json, "parameter", finding->at.param);
        if (finding->at.stage >= 0)
            rfs_json_put_i64(json, "stage", finding->at.stage);
        if (finding->at.rank >= 0)
            rfs_json_put_i64(json, "rank", finding->at.rank);
        rfs_json_put_text(json, "text", finding->text);
        rfs_json_end(json);
    }
    rfs_json_end(json);
}

static void print_json(const struct rfs_info_report *report)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "kind", report->kind);
    rfs_json_put_text(&json, "path", report->path);
    if (report->more.n > 1) /* beyond the bracket of its object */
        printf(",%.*s", (int)(report->more.n - 1), (const char *)report->more.data + 1);
    put_findings(&json, &report->findings);
    if (report->key)
        rfs_table_put_json(&report->table, &json, report->key);
    rfs_table_put_json(report->second.n_columns > 0 ? &report->second : &report->table, &json,
                       "rows");
    rfs_json_finish(&json);
}

/* Refuses the cuts of ranks for what has none: they would say nothing. */
static int check_cuts(const struct request *request, enum rfs_inspect_what what,
                      struct rfs_error *err)
{
    static const char *const cuts[] = {"src_strategy", "src_rules"};

    if (what == RFS_INSPECT_TREE || what == RFS_INSPECT_CHUNKS || what == RFS_INSPECT_MANIFEST ||
        what == RFS_INSPECT_WEIGHT_MAP)
        return 0;
    for (size_t i = 0; i < request->options.list.n; i++)
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++)
            if (strcmp(request->options.list.data[i].name, cuts[k]) == 0)
                return rfs_fail_usage(
                    err, "the folder of all ranks as PATH, or leave it out",
                    "option %s says how the ranks of a folder are cut, and '%s' is none", cuts[k],
                    request->args.path);
    return 0;
}

/* Says whether an option says which files of a folder are read: then a view finds them. */
static bool finds_files(const struct rfs_options *options)
{
    return options->step != RFS_ANY_NUMBER || options->epoch != RFS_ANY_NUMBER || options->file ||
           options->files || options->rank_dir || options->segmented;
}

static int run_report(struct request *request, struct rfs_info_report *report,
                      struct rfs_error *err)
{
    struct rfs_info_args *args = &request->args;
    struct rfs_inspect_kind kind;
    if (!args->path)
        return rfs_fail_usage(err, "reshard info PATH", "info takes one path");
    args->filter.globs = &request->globs;
    int rc = begin_report(report, args->path, args->json, err)
            ?: rfs_tool_source_prepare(&request->options, args->path, take_line, report,
                                       &args->source, err)
            ?: rfs_inspect_detect(args->source.store, args->path, args->source.encrypted != NULL,
                                  &kind, err);
    if (rc == 0 && kind.what == RFS_INSPECT_RANK && finds_files(args->source.options))
        kind.what = RFS_INSPECT_TREE;
    rc = rc ?: check_cuts(request, kind.what, err);
    if (rc == 0) {
        tell_mount(report, args->path);
        rc = show(args, &kind, report, err);
    }
    if (rc == 0 && (fflush(report->say) || report->json.failed || report->findings.failed))
        rc = rfs_fail_memory(err);
    return rc;
}

static int run(void *request, struct rfs_error *err)
{
    struct request *parsed = request;
    struct rfs_info_report report = {.kind = NULL};
    int rc = run_report(parsed, &report, err);

    if (rc == 0 && report.failure.code == 0)
        rc = rfs_globs_check(&parsed->globs, err);
    if (rc == 0 && parsed->args.json)
        print_json(&report);
    else if (rc == 0)
        print_text(&report);
    if (rc == 0 && report.failure.code) {
        fflush(stdout);
        *err = report.failure;
        rc = err->code;
    }
    end_report(&report);
    rfs_headers_close(&parsed->args.source);
    return rc;
}

static const struct request defaults = {.args.filter = {.dtype = -1, .most = SIZE_MAX}};

const struct rfs_command rfs_command_info = {
    .name = "info",
    .usage = "reshard info [option…] PATH\n",
    .summary = "lists the content of a checkpoint, tree, strategy or mount",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .run = run,
};
