/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard ranks`: which source ranks a destination rank needs. */
#include "base/text.h"
#include "survey/headers/needed_ranks.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

/* ---- the command line ------------------------------------------------------------------------ */

struct request {
    const char *src, *dst;
    struct rfs_ranks ranks;
    bool json;
};

static const struct rfs_argument arguments[] = {
    RFS_ARG_RANKS(NULL, "RANK", "a rank, or several: 0-7,12", struct request, ranks,
                  "a rank of the destination, or several: 0-7,12; else all"),
    RFS_ARG_RANKS("ranks", "LIST", "a rank, or several: 0-7,12", struct request, ranks,
                  "the same, as other commands have it"),
    RFS_ARG_FILE('s', struct request, src, NULL),
    RFS_ARG_FILE('d', struct request, dst,
                 "the strategies; a side without one is whole, on one rank"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

/* The ranks that are looked up, and those that they need. */
struct query {
    const struct request *request;
    struct rfs_inspect_ranks *needed;
    struct rfs_table table;
    unsigned char *wanted; /* [needed->sources] */
    uint32_t *list;        /* [needed->sources] */
};

/* A destination rank, and those that it needs. */
struct answered {
    uint32_t rank;
    const uint32_t *sources;
    size_t n;
};

static void put_list(struct rfs_table *table, const void *of)
{
    const struct answered *row = of;
    struct rfs_json_write json = {.file = rfs_table_cell(table)};

    rfs_json_put_u32s(&json, NULL, RFS_JSON_TIGHT, row->sources, row->n);
    rfs_table_cell_end(table);
}

RFS_CELL(put_rank, struct answered, rfs_table_u64(table, row->rank))
RFS_CELL(put_sources, struct answered, rfs_table_ranks(table, row->sources, row->n))

static const struct rfs_column columns[] = {
    {"rank", RFS_CELL_NUMBER, put_rank},
    {"source ranks", RFS_CELL_TEXT | RFS_FOR_PEOPLE, put_sources},
    {"source_ranks", RFS_CELL_JSON | RFS_FOR_SCRIPTS, put_list},
};

static int add_rank(struct query *query, uint32_t rank, struct rfs_error *err)
{
    const uint32_t sources = query->needed->sources;
    size_t n = 0;
    const int rc = rfs_inspect_ranks_needed(query->needed, rank, query->wanted, err);

    if (rc)
        return rc;
    for (uint32_t s = 0; s < sources; s++)
        if (query->wanted[s])
            query->list[n++] = s;
    const struct answered row = {rank, query->list, n};
    rfs_table_row(&query->table, &row);
    return 0;
}

static int answer(struct query *query, struct rfs_error *err)
{
    const uint32_t sources = query->needed->sources;
    const uint32_t destinations = query->needed->destinations;
    int rc = rfs_ranks_check(&query->request->ranks, destinations, "", err);

    query->wanted = calloc(sources, 1);
    query->list = calloc(sources, sizeof *query->list);
    if (rc == 0 && (!query->wanted || !query->list))
        rc = rfs_fail_memory(err);
    for (uint32_t rank = 0; rc == 0 && rank < destinations; rank++)
        if (rfs_ranks_has(&query->request->ranks, rank))
            rc = add_rank(query, rank, err);
    if (rc)
        return rc;
    if (query->request->json) {
        struct rfs_json_write json = {.file = stdout};
        rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64(&json, "destination_ranks", destinations);
        rfs_json_put_u64(&json, "source_ranks", sources);
        rfs_table_put_json(&query->table, &json, "rows");
        rfs_json_finish(&json);
    } else if (query->table.cells.n == 2) { /* one rank: nothing but the answer, for scripts */
        puts(query->table.cells.data[1]);
    } else {
        rfs_table_print(&query->table, stdout);
    }
    return 0;
}

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    struct query query = {.request = request, .table = RFS_TABLE(columns, request->json)};
    struct rfs_store *store = NULL;
    int rc = 0;

    if (!request->src && !request->dst)
        rc = rfs_fail_usage(err, "reshard ranks RANK -s FILE -d FILE",
                            "ranks takes a strategy; a side without one is one whole checkpoint");
    if (rc == 0)
        rc =
            rfs_tool_reach(NULL, (const char *const[]){request->src, request->dst}, 2, &store, err);
    if (rc == 0)
        rc = rfs_inspect_ranks_open(store, request->src, request->dst, &query.needed, err);
    if (rc == 0)
        rc = answer(&query, err);
    free(query.wanted);
    free(query.list);
    rfs_table_free(&query.table);
    rfs_inspect_ranks_close(query.needed);
    return rc;
}

const struct rfs_command rfs_command_ranks = {
    .name = "ranks",
    .usage = "reshard ranks [RANK] [-s FILE] [-d FILE] [--json]\n",
    .summary = "shows the source ranks that a destination rank needs",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .run = run,
};
