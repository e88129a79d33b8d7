/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard ranks`: which source ranks a destination rank needs. */
#include "tool/common/ranks.h"
#include "base/text.h"
#include "tool/common/command.h"
#include "tool/common/open.h"
#include "tool/common/table.h"
#include "tool/ranks/needed.h"
#include "view/strategy_files.h"

struct job {
    const char *src, *dst;
    struct rfs_ranks ranks;
    bool json;
};

static const struct rfs_argument arguments[] = {
    RFS_ARG_RANKS(NULL, "RANK", "a rank, or several: 0-7,12", struct job, ranks,
                  "a rank of the destination, or several: 0-7,12; else all"),
    RFS_ARG_FILE('s', struct job, src, NULL),
    RFS_ARG_FILE('d', struct job, dst, "the strategies; a side without one is whole, on one rank"),
    RFS_ARG_FLAG("json", struct job, json, "for scripts"),
    {0},
};

/* The ranks that are looked up, and those that they need. */
struct query {
    const struct job *job;
    struct rfs_needed *needed;
    struct rfs_table table;
    unsigned char *wanted; /* [sources] */
    uint32_t *list;        /* [sources] */
};

static const struct rfs_column columns[] = {
    {"rank", RFS_CELL_NUMBER},
    {"source ranks", RFS_CELL_TEXT | RFS_FOR_PEOPLE},
    {"source_ranks", RFS_CELL_JSON | RFS_FOR_SCRIPTS},
};

static int add_rank(struct query *query, uint32_t rank, struct rfs_error *err)
{
    const uint32_t sources = rfs_needed_sources(query->needed);
    size_t n = 0;
    const int rc = rfs_needed_by(query->needed, rank, query->wanted, err);

    if (rc)
        return rc;
    for (uint32_t s = 0; s < sources; s++)
        if (query->wanted[s])
            query->list[n++] = s;
    rfs_table_u64(&query->table, rank);
    rfs_text_ranks(rfs_table_cell(&query->table), query->list, n);
    rfs_table_cell_end(&query->table);
    FILE *out = rfs_table_cell(&query->table);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%c%" PRIu32, i > 0 ? ',' : '[', query->list[i]);
    fputs(n > 0 ? "]" : "[]", out);
    rfs_table_cell_end(&query->table);
    return 0;
}

static int answer(struct query *query, struct rfs_error *err)
{
    int rc = rfs_ranks_check(&query->job->ranks, rfs_needed_ranks(query->needed), "", err);

    query->wanted = calloc(rfs_needed_sources(query->needed), 1);
    query->list = calloc(rfs_needed_sources(query->needed), sizeof *query->list);
    if (rc == 0 && (!query->wanted || !query->list))
        rc = rfs_fail_memory(err);
    for (uint32_t rank = 0; rc == 0 && rank < rfs_needed_ranks(query->needed); rank++)
        if (rfs_ranks_has(&query->job->ranks, rank))
            rc = add_rank(query, rank, err);
    if (rc)
        return rc;
    if (query->job->json) {
        struct rfs_json_write json = {.file = stdout};
        rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(&json, "destination_ranks", rfs_needed_ranks(query->needed));
        rfs_json_put_u64(&json, "source_ranks", rfs_needed_sources(query->needed));
        rfs_table_put_json(&query->table, &json, "rows");
        rfs_json_finish(&json);
    } else if (query->table.cells.n == 2) { /* of one rank: nothing but the answer, for scripts */
        puts(query->table.cells.data[1]);
    } else {
        rfs_table_print(&query->table, stdout);
    }
    return 0;
}

static int run(void *request, struct rfs_error *err)
{
    struct job *job = request;
    struct rfs_strategy *src = NULL;
    struct rfs_strategy *dst = NULL;
    struct query query = {.job = job, .table = RFS_TABLE(columns, job->json)};
    int rc = 0;

    if (!job->src && !job->dst)
        rc = rfs_fail_usage(err, "reshard ranks RANK -s FILE -d FILE",
                            "ranks takes a strategy; a side without one is one whole checkpoint");
    if (rc == 0)
        rc = rfs_tool_reach(NULL, (const char *const[]){job->src, job->dst}, 2, err);
    if (rc == 0 && job->src)
        rc = rfs_view_read_strategy(job->src, &src, err);
    if (rc == 0 && job->dst)
        rc = rfs_view_read_strategy(job->dst, &dst, err);
    if (rc == 0)
        rc = rfs_needed_open(src, dst, &query.needed, err);
    if (rc == 0)
        rc = answer(&query, err);
    free(query.wanted);
    free(query.list);
    rfs_table_free(&query.table);
    rfs_needed_free(query.needed);
    rfs_strategy_free(src);
    rfs_strategy_free(dst);
    return rc;
}

const struct rfs_command rfs_command_ranks = {
    .name = "ranks",
    .usage = "reshard ranks [RANK] [-s FILE] [-d FILE] [--json]\n",
    .summary = "shows the source ranks that a destination rank needs",
    .arguments = arguments,
    .request_bytes = sizeof(struct job),
    .run = run,
};
