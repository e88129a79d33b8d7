/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that describes itself: the tensors with their chunks, and the files. */
#include "base/cleanup.h"
#include "formats/chunks/chunks.h"
#include "tool/common/whole.h"
#include "tool/info/info.h"

#include <sys/stat.h>

static const struct rfs_column tensor_columns[] = {
    {"name", RFS_CELL_TEXT},     {"dtype", RFS_CELL_TEXT}, {"shape", RFS_CELL_JSON},
    {"chunks", RFS_CELL_NUMBER}, {"cuts", RFS_CELL_JSON},  {"bytes", RFS_CELL_NUMBER},
};

static const struct rfs_column file_columns[] = {
    {"file", RFS_CELL_TEXT},
    {"chunks", RFS_CELL_NUMBER},
    {"tensor bytes", RFS_CELL_NUMBER},
    {"bytes", RFS_CELL_NUMBER},
};

/* Into how many pieces each axis is cut. */
static void add_cuts(struct rfs_table *table, const struct rfs_chunked_tensor *tensor,
                     uint32_t ndim)
{
    uint64_t pieces[RFS_MAX_DIMS];

    for (uint32_t i = 0; i < ndim; i++)
        pieces[i] = tensor->grid ? tensor->grid->pieces[i] : 1;
    rfs_table_dims(table, ndim, pieces);
}

static void add_tensors(const struct rfs_chunks *boxes, const struct rfs_rows *rows,
                        struct rfs_table *table)
{
    RFS_TABLE_DESCRIBE(table, tensor_columns);
    for (size_t i = 0; i < rows->list.n; i++) {
        const struct rfs_row *row = &rows->list.data[i];
        const struct rfs_chunked_tensor *tensor = &boxes->tensors.data[row->id];
        rfs_table_text(table, row->name);
        rfs_table_text(table, rfs_whole_dtype(row->type));
        rfs_table_dims(table, row->type->ndim, row->type->dims);
        rfs_table_u64(table, tensor->n);
        if (tensor->incomplete)
            rfs_table_none(table, "incomplete");
        else
            add_cuts(table, tensor, row->type->ndim);
        rfs_table_u64(table, row->bytes);
    }
}

/* The sum of the chunks of each file. */
struct file_sum {
    uint64_t chunks, bytes;
};

static int add_files(struct rfs_chunks *boxes, struct rfs_table *table, uint64_t *total,
                     uint64_t *missing, struct rfs_error *err)
{
    RFS_FREE struct file_sum *sums = calloc((size_t)boxes->n_files + 1, sizeof *sums);

    if (!sums)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < boxes->chunks.n; i++) {
        struct file_sum *sum = &sums[boxes->chunks.data[i].file - boxes->first_file];
        sum->chunks++;
        sum->bytes += rfs_chunks_type(boxes, boxes->chunks.data[i].type)->bytes;
    }
    RFS_TABLE_DESCRIBE(table, file_columns);
    for (uint32_t i = 0; i < boxes->n_files; i++) {
        const char *path = rfs_files_path(boxes->files, boxes->first_file + i);
        struct stat st;
        rfs_table_text(table, path + strlen(boxes->folder) + 1);
        rfs_table_u64(table, sums[i].chunks);
        rfs_table_u64(table, sums[i].bytes);
        if (rfs_files_stat(boxes->files, boxes->first_file + i, &st) == 0) {
            rfs_table_u64(table, (uint64_t)st.st_size);
            *total += (uint64_t)st.st_size;
            continue;
        }
        rfs_table_none(table, "missing");
        ++*missing;
    }
    return 0;
}

static int report_boxes(struct rfs_info_args *args, struct rfs_chunks *boxes,
                        const struct rfs_rows *rows, struct rfs_report *report,
                        struct rfs_error *err)
{
    uint64_t bytes = 0;
    uint64_t missing = 0;

    add_tensors(boxes, rows, &report->table);
    report->key = "tensors";
    const int rc = add_files(boxes, &report->second, &bytes, &missing, err);
    if (rc)
        return rc;
    fprintf(report->say,
            "checkpoint: of %s, %zu tensors in %zu chunks; %" PRIu32 " file%s of %" PRIu64
            " bytes\n",
            boxes->format->name, rows->n, boxes->chunks.n, boxes->n_files,
            boxes->n_files == 1 ? "" : "s", bytes);
    rfs_info_tell_filter(report, &args->filter, rows);
    rfs_info_tell_types(report, rows);
    rfs_json_put_text(&report->json, "format", boxes->format->name);
    rfs_json_put_u64(&report->json, "parameters", rows->n);
    rfs_json_put_u64(&report->json, "chunks", boxes->chunks.n);
    rfs_json_put_u64(&report->json, "files", boxes->n_files);
    rfs_json_put_u64(&report->json, "bytes", bytes);
    for (size_t i = 0; i < boxes->unread.n; i++)
        rfs_fit_findings_add(
            &report->findings,
            (struct rfs_fit_finding){
                .kind = "not read",
                .stage = -1,
                .rank = -1,
                .param = rfs_intern_text(boxes->tables->names, boxes->unread.data[i].name)},
            "%s", rfs_intern_text(boxes->tables->names, boxes->unread.data[i].why));
    if (missing > 0)
        rfs_fit_findings_add(
            &report->findings,
            (struct rfs_fit_finding){.kind = "missing", .stage = -1, .rank = -1, .bad = true},
            "%" PRIu64 " of the files that the metadata names %s not there", missing,
            missing == 1 ? "is" : "are");
    if (boxes->lost)
        rfs_fit_findings_add(
            &report->findings,
            (struct rfs_fit_finding){.kind = "missing", .stage = -1, .rank = -1, .bad = true},
            "%s missing, by the numbers in the names of the other files", boxes->lost);
    return 0;
}

int rfs_info_chunks(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err)
{
    struct rfs_rows rows = {.n = 0};
    int rc = rfs_tool_source_open(&args->source, report->path, err);

    report->kind = "boxes";
    if (rc)
        return rc;
    struct rfs_chunks *boxes = rfs_catalog_chunks(args->source.catalog);
    for (size_t i = 0; rc == 0 && i < boxes->tensors.n; i++) {
        const struct rfs_chunked_tensor *tensor = &boxes->tensors.data[i];
        const struct rfs_type *type = rfs_chunks_type(boxes, tensor->type);
        const struct rfs_row row = {.name = rfs_catalog_name(args->source.catalog, tensor->name),
                                    .type = type,
                                    .bytes = type->bytes,
                                    .id = (uint32_t)i};
        if (!rfs_rows_add(&rows, &args->filter, row))
            rc = rfs_fail_memory(err);
    }
    rfs_rows_order(&rows, &args->filter);
    if (rc == 0)
        rc = report_boxes(args, boxes, &rows, report, err);
    rfs_rows_free(&rows);
    return rc;
}
