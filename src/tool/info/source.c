/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/pool.h"
#include "source/catalog.h"
#include "source/safetensors.h"
#include "tool/info/info.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct rfs_column file_columns[] = {
    {"name", false, false}, {"dtype", false, false}, {"shape", true, false},
    {"bytes", true, true},  {"offset", true, true},
};

static const struct rfs_column tree_columns[] = {
    {"rank", true, true},
    {"file", false, false},
    {"parameters", true, true},
    {"bytes", true, true},
};

static int begin_report(struct rfs_report *report, const char *kind, const char *path,
                        const struct rfs_column *columns, size_t n, struct rfs_error *err)
{
    report->kind = kind;
    report->path = strdup(path);
    report->table.columns = columns;
    report->table.n_columns = n;
    return report->path == NULL ? rfs_fail_memory(err) : 0;
}

static void add_entry(struct rfs_table *table, const char *name, const struct rfs_entry *entry,
                      const struct rfs_type *type)
{
    char shape[RFS_MAX_DIMS * 22 + 3];
    size_t n = 0;
    shape[n++] = '[';
    for (unsigned i = 0; i < type->ndim; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, i > 0 ? ", " : "",
                              type->dims[i]);
    shape[n++] = ']';
    shape[n] = '\0';
    rfs_table_add(table, "%s", name);
    rfs_table_add(table, "%s",
                  type->kind == RFS_MAP ? "map" : rfs_dtype_name((enum rfs_dtype)type->dtype));
    rfs_table_add(table, "%s", shape);
    rfs_table_add(table, "%" PRIu64, type->bytes);
    rfs_table_add(table, "%" PRIu64, entry->offset);
}

static void add_index(struct rfs_report *report, const struct rfs_index *index,
                      const struct rfs_tables *tables)
{
    uint64_t content = 0;
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
        add_entry(&report->table, rfs_intern_text(tables->names, entry->name), entry, type);
        content += type->bytes;
    }
    snprintf(report->summary, sizeof report->summary,
             "checkpoint: %zu parameters, %" PRIu64 " bytes of content in a file of %" PRIu64 "%s",
             index->n, content, index->file_bytes, index->has_crc ? ", with a checksum" : "");
}

static int read_file(void *ctx, void *buf, size_t n, uint64_t offset)
{
    return rfs_reading_pread(ctx, buf, n, offset);
}

bool rfs_info_is_safetensors(const char *path)
{
    static const char ending[] = ".safetensors";
    const size_t n = strlen(path);
    return n >= sizeof ending - 1 && strcmp(path + n - (sizeof ending - 1), ending) == 0;
}

/* *index stays NULL when the report is made already, of an encrypted file. */
static int walk(struct rfs_files *files, const char *path, struct rfs_tables *tables,
                struct rfs_report *report, struct rfs_index **index, struct rfs_error *err)
{
    struct rfs_reading reading;
    int rc = rfs_reading_begin(files, 0, &reading);
    if (rc != 0)
        return rfs_fail(err, rc, RFS_IN(path), "a file that you may read", "cannot open: %s",
                        strerror(-rc));
    if (rfs_info_is_safetensors(path))
        rc =
            rfs_safetensors_walk(read_file, &reading, reading.size, path, tables, NULL, index, err);
    else if (rfs_info_is_encrypted(&reading))
        rc = rfs_info_encrypted(&reading, path, report, err);
    else
        rc = rfs_ckpt_walk(read_file, &reading, reading.size, path, tables, index, err);
    const int end = rfs_reading_end(&reading);
    if (rc == 0 && end != 0)
        rc = rfs_fail(err, end, RFS_IN(path), "again", "changed while it was read");
    return rc;
}

int rfs_info_file(const char *path, struct rfs_report *report, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_index *index = NULL;
    int rc = begin_report(report, "checkpoint", path, file_columns,
                          sizeof file_columns / sizeof *file_columns, err);
    if (rc == 0 && (tables.names == NULL || tables.types == NULL || files == NULL ||
                    rfs_files_add(files, path) != 0))
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = walk(files, path, &tables, report, &index, err);
    if (rc == 0 && index != NULL)
        add_index(report, index, &tables);
    rfs_index_free(index);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    return rc;
}

/* The index of a rank, NULL when its file holds nothing, as remove_redundancy leaves some. */
static int index_rank(struct rfs_catalog *catalog, uint32_t rank, uint32_t like,
                      const struct rfs_index **index, uint64_t *bytes, struct rfs_error *err)
{
    const int rc = rfs_catalog_index(catalog, rank, like, index, err);
    struct stat st;

    if (rc == 0)
        *bytes = (*index)->file_bytes;
    if (rc == 0 || !rfs_catalog_is_empty(catalog, rank))
        return rc;
    *index = NULL;
    *bytes = 0;
    if (rfs_files_stat(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank), &st) == 0)
        *bytes = (uint64_t)st.st_size;
    return 0;
}

static int add_ranks(struct rfs_catalog *catalog, struct rfs_report *report, struct rfs_error *err)
{
    const uint32_t ranks = rfs_catalog_ranks(catalog);
    uint32_t like = RFS_NO_RANK;
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!rfs_catalog_has(catalog, rank))
            continue;
        const struct rfs_index *index;
        uint64_t file_bytes;
        const int rc = index_rank(catalog, rank, like, &index, &file_bytes, err);
        if (rc != 0)
            return rc;
        const char *path =
            rfs_files_path(rfs_catalog_files(catalog), rfs_catalog_file(catalog, rank));
        const char *name = strrchr(path, '/');
        rfs_table_add(&report->table, "%" PRIu32, rank);
        const uint32_t more = rfs_catalog_parts(catalog, rank) - 1;
        if (more > 0)
            rfs_table_add(&report->table, "%s and %" PRIu32 " more", name == NULL ? path : name + 1,
                          more);
        else
            rfs_table_add(&report->table, "%s", name == NULL ? path : name + 1);
        rfs_table_add(&report->table, "%zu", index ? index->n : 0);
        rfs_table_add(&report->table, "%" PRIu64, file_bytes);
        bytes += file_bytes;
        like = index ? rank : like;
    }
    const uint32_t present = rfs_catalog_present(catalog);
    char missing[64] = "";
    if (present != ranks)
        snprintf(missing, sizeof missing, ", %" PRIu32 " missing below the highest",
                 ranks - present);
    snprintf(report->summary, sizeof report->summary,
             "tree: %" PRIu32 " ranks%s, %" PRIu64 " bytes", present, missing, bytes);
    return 0;
}

int rfs_info_tree(const char *path, struct rfs_report *report, struct rfs_error *err)
{
    int rc = begin_report(report, "tree", path, tree_columns,
                          sizeof tree_columns / sizeof *tree_columns, err);
    if (rc != 0)
        return rc;
    struct rfs_log log;
    struct rfs_catalog *catalog = NULL;
    struct rfs_pool *pool = rfs_pool_new(4);
    rfs_log_init(&log, NULL, NULL);
    rc = pool == NULL ? rfs_fail_memory(err)
                      : rfs_catalog_open(&(struct rfs_source_spec){.path = path,
                                                                   .step = RFS_ANY_NUMBER,
                                                                   .epoch = RFS_ANY_NUMBER},
                                         &log, pool, &catalog, err);
    if (rc == 0)
        rc = add_ranks(catalog, report, err);
    rfs_catalog_close(catalog);
    rfs_pool_free(pool);
    rfs_log_destroy(&log);
    return rc;
}
