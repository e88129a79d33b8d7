/* SPDX-License-Identifier: Apache-2.0 */
/* hfai's parts: the models' tensors, whole, and the files. */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "hfai/hfai.h"
#include "tool/info/info.h"

#include <sys/stat.h>

static const struct rfs_column file_columns[] = {
    {"part", RFS_CELL_NUMBER},
    {"file", RFS_CELL_TEXT},
    {"bytes", RFS_CELL_NUMBER},
};

static int add_models(struct rfs_info_args *args, const struct rfs_hfai *hfai,
                      struct rfs_rows *rows, struct rfs_storages *storages, struct rfs_error *err)
{
    const size_t models = rfs_hfai_models(hfai);

    for (size_t m = 0; m < models; m++)
        for (size_t i = 0;; i++) {
            struct rfs_hfai_tensor tensor;
            const int rc = rfs_hfai_tensor(hfai, m, i, storages, &tensor, err);
            if (rc == 0)
                break;
            if (rc < 0)
                return rc;
            RFS_FREE char *name =
                models > 1 ? rfs_text_printf("%zu.%.*s", m, (int)tensor.name_bytes, tensor.name)
                           : strndup(tensor.name, tensor.name_bytes);
            if (!name || !rfs_rows_keep(rows, &args->filter, name, &tensor.type, 0))
                return rfs_fail_memory(err);
        }
    return 0;
}

static void report_parts(struct rfs_info_args *args, struct rfs_catalog *catalog,
                         const struct rfs_hfai *hfai, const struct rfs_rows *rows,
                         struct rfs_report *report)
{
    const uint32_t parts = rfs_hfai_parts(hfai);
    uint64_t bytes = 0;

    rfs_rows_table(rows, false, &report->table);
    report->key = "tensors";
    RFS_TABLE_DESCRIBE(&report->second, file_columns);
    for (uint32_t part = 0; part < parts; part++) {
        const char *path =
            rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, part));
        struct stat st = {.st_size = 0};
        rfs_files_stat(rfs_catalog_files(catalog), rfs_catalog_file(catalog, part), &st);
        bytes += (uint64_t)st.st_size;
        rfs_table_u64(&report->second, part);
        rfs_table_text(&report->second, rfs_path_name(path));
        rfs_table_u64(&report->second, (uint64_t)st.st_size);
    }
    const size_t models = rfs_hfai_models(hfai);
    const size_t optimizers = rfs_hfai_optimizers(hfai);
    fprintf(report->say,
            "parts: %" PRIu32 " of hfai's, %" PRIu64
            " bytes; %zu model%s with %zu tensors, %zu optimizer%s\n",
            parts, bytes, models, models == 1 ? "" : "s", rows->n, optimizers,
            optimizers == 1 ? "" : "s");
    rfs_info_tell_filter(report, &args->filter, rows);
    rfs_info_tell_types(report, rows);
    rfs_json_put_text(&report->json, "format", "pt");
    rfs_json_put_u64(&report->json, "parts", parts);
    rfs_json_put_u64(&report->json, "bytes", bytes);
    rfs_json_put_u64(&report->json, "models", models);
    rfs_json_put_u64(&report->json, "optimizers", optimizers);
    rfs_json_put_u64(&report->json, "parameters", rows->n);
}

int rfs_info_parts(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err)
{
    struct rfs_hfai *hfai = NULL;
    struct rfs_storages storages = {.items = {.n = 0}};
    struct rfs_rows rows = {.n = 0};
    int rc = rfs_tool_source_open(&args->source, report->path, err);

    report->kind = "parts";
    if (rc == 0)
        rc = rfs_hfai_open(args->source.catalog, args->source.options.uneven_steps, &hfai, err);
    if (rc == 0)
        rc = add_models(args, hfai, &rows, &storages, err);
    rfs_rows_order(&rows, &args->filter);
    if (rc == 0)
        report_parts(args, args->source.catalog, hfai, &rows, report);
    rfs_rows_free(&rows);
    rfs_storages_free(&storages);
    if (hfai)
        rfs_hfai_free(hfai);
    return rc;
}
