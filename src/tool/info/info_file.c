/* SPDX-License-Identifier: Apache-2.0 */
/* Single files: checkpoints of any format, strategies, group info and rules. */
#include "tool/info/info.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "layout/layout_rules.h"
#include "tool/strategy/strategy_command.h"
#include "view/strategy_options.h"

#include <sys/stat.h>

/* ---- checkpoint files ------------------------------------------------------------------------ */

static const struct rfs_column encrypted_columns[] = {
    {"mode", RFS_CELL_TEXT},
    {"blocks", RFS_CELL_NUMBER},
    {"bytes", RFS_CELL_NUMBER},
};

/* Describes an encrypted file by its headers, without a key. */
static void report_encrypted(const struct rfs_inspect_file *file, struct rfs_info_report *report)
{
    report->kind = "encrypted";
    RFS_TABLE_DESCRIBE(&report->table, encrypted_columns);
    rfs_table_text(&report->table, file->mode);
    rfs_table_u64(&report->table, file->blocks);
    rfs_table_u64(&report->table, file->bytes);
    fprintf(report->say,
            "encrypted (%s, %" PRIu32 " block%s): to see its content, give its key: "
            "-o key_file=FILE\n",
            file->mode, file->blocks, file->blocks == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "mode", file->mode);
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

int rfs_info_file(struct rfs_info_args *args, const char *path, const struct rfs_format_row *row,
                  struct rfs_info_report *report, struct rfs_error *err)
{
    struct rfs_info_listing listing = {.filter = &args->filter};
    struct rfs_inspect_file file;
    const int rc =
        rfs_inspect_file(&args->source, path, row, rfs_info_listing_add, &listing, &file, err);

    rfs_info_rows_order(&listing.rows, &args->filter);
    if (rc == 0 && file.mode)
        report_encrypted(&file, report);
    else if (rc == 0)
        report_file(args, &file, &listing.rows, report);
    rfs_info_rows_free(&listing.rows);
    return rc;
}

/* ---- strategies, group info and rules -------------------------------------------------------- */

int rfs_info_strategy(struct rfs_info_args *args, struct rfs_info_report *report,
                      struct rfs_error *err)
{
    struct rfs_strategy *strategy = NULL;
    char summary[256];
    struct stat st;
    struct rfs_store *store = args->source.store;
    int rc = rfs_view_read_strategy(store, report->path, &strategy, err);
    RFS_FREE char *below = rc ? rfs_inspect_below(store, report->path) : NULL;

    if (rc == -EINVAL && rfs_store_stat(store, report->path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = rfs_fail(err, rc, RFS_IN(report->path),
                      below ? below : "one of its files, or a folder beside them",
                      "holds strategies, not checkpoints, and they are not the stages of one run");
    if (rc)
        return rc;
    report->kind = "strategy";
    rfs_command_strategy_rows(strategy, NULL, args->filter.globs, &report->table);
    rfs_command_strategy_summary(strategy, summary, sizeof summary);
    fprintf(report->say, "%s\n", summary);
    rfs_json_put_u64(&report->json, "parameters", rfs_strategy_count(strategy));
    rfs_json_put_u64(&report->json, "stages", rfs_strategy_stages(strategy));
    rfs_json_put_u64(&report->json, "devices", rfs_strategy_devices(strategy));
    rfs_strategy_free(strategy);
    return 0;
}

int rfs_info_group(struct rfs_store *store, struct rfs_info_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"rank", RFS_CELL_NUMBER}};
    RFS_FREE uint32_t *ranks = NULL;
    size_t n;
    const int rc = rfs_inspect_group(store, report->path, &ranks, &n, err);

    if (rc)
        return rc;
    report->kind = "group info";
    RFS_TABLE_DESCRIBE(&report->table, columns);
    for (size_t i = 0; i < n; i++)
        rfs_table_u64(&report->table, ranks[i]);
    if (n == 0)
        fputs("group info: no rank is equal to the rank that saved it\n", report->say);
    else
        fprintf(report->say, "group info: %zu ranks with equal checkpoints\n", n);
    return 0;
}

int rfs_info_rules(struct rfs_store *store, struct rfs_info_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"line", RFS_CELL_NUMBER}, {"text", RFS_CELL_TEXT}};
    struct rfs_layout_rules *rules = NULL;
    RFS_FREE char *text = NULL;
    uint32_t number = 0;
    size_t shown = 0;
    size_t size = 0;
    const int rc =
        rfs_store_read_whole(store, report->path, RFS_LAYOUT_RULES_BYTES, &text, &size, err)
            ?: rfs_layout_rules_parse(report->path, text, size, &rules, err);

    rfs_layout_rules_free(rules);
    if (rc)
        return rc;
    report->kind = "rules";
    RFS_TABLE_DESCRIBE(&report->table, columns);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        line += strspn(line, " \t\r");
        if (*line == '\0' || *line == '#')
            continue;
        rfs_table_u64(&report->table, number);
        rfs_table_text(&report->table, line);
        shown++;
    }
    fprintf(report->say, "rules: %zu line%s\n", shown, shown == 1 ? "" : "s");
    return 0;
}
