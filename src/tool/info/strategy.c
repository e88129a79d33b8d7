/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies, rules and group info, as info shows them. */
#include "tool/strategy/strategy.h"
#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/store.h"
#include "catalog/scan/group_proto.h"
#include "catalog/scan/scan.h"
#include "layout/layout_rules.h"
#include "tool/info/info.h"
#include "view/strategy_files.h"

#include <sys/stat.h>

int rfs_info_strategy(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err)
{
    struct rfs_strategy *strategy = NULL;
    char summary[256];
    struct stat st;
    int rc = rfs_view_read_strategy(report->path, &strategy, err);
    RFS_FREE char *below = rc ? rfs_scan_below(report->path) : NULL;

    if (rc == -EINVAL && rfs_store_stat(report->path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = rfs_fail(err, rc, RFS_IN(report->path),
                      below ? below : "one of its files, or a folder beside them",
                      "holds strategies, not checkpoints, and they are not the stages of one run");
    if (rc)
        return rc;
    report->kind = "strategy";
    rfs_strategy_rows(strategy, NULL, args->filter.globs, &report->table);
    rfs_strategy_summary(strategy, summary, sizeof summary);
    fprintf(report->say, "%s\n", summary);
    rfs_json_put_u64(&report->json, "parameters", rfs_strategy_count(strategy));
    rfs_json_put_u64(&report->json, "stages", rfs_strategy_stages(strategy));
    rfs_json_put_u64(&report->json, "devices", rfs_strategy_devices(strategy));
    rfs_strategy_free(strategy);
    return 0;
}

int rfs_info_group(struct rfs_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"rank", RFS_CELL_NUMBER}};
    struct rfs_group group;
    const int rc = rfs_group_read(report->path, &group, err);

    if (rc == 0) {
        report->kind = "group info";
        RFS_TABLE_DESCRIBE(&report->table, columns);
        for (size_t i = 0; i < group.n; i++)
            rfs_table_u64(&report->table, group.ranks[i]);
        if (group.n == 0)
            fputs("group info: no rank is equal to the rank that saved it\n", report->say);
        else
            fprintf(report->say, "group info: %zu ranks with equal checkpoints\n", group.n);
    }
    free(group.ranks);
    return rc;
}

int rfs_info_rules(struct rfs_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"line", RFS_CELL_NUMBER}, {"text", RFS_CELL_TEXT}};
    RFS_FREE char *text = NULL;
    struct rfs_layout_rules *rules = NULL;
    size_t size = 0;
    uint32_t number = 0;
    size_t shown = 0;
    int rc = rfs_read_whole(report->path, RFS_RULES_BYTES, &text, &size, err)
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
