/* SPDX-License-Identifier: Apache-2.0 */
/* One checkpoint file, of any format, and the folder of a rank's. */
#include "base/cleanup.h"
#include "base/text.h"
#include "catalog/scan/scan.h"
#include "formats/ckpt/walk.h"
#include "formats/safetensors/header.h"
#include "formats/torch/index.h"
#include "store/crypt/cipher.h"
#include "store/files.h"
#include "tool/info/info.h"

/* A file that is being described. */
struct work {
    struct rfs_info_args *args;
    struct rfs_report *report;
    const char *path;
    enum rfs_info_kind kind;
    struct rfs_tables tables;
    struct rfs_rows rows;
    uint64_t size;
    size_t others; /* values that are not tensors */
    bool has_crc, redundancy_removed;
    struct rfs_error *err;
};

static int take_index(struct work *work, const struct rfs_index *index)
{
    work->has_crc = index->has_crc;
    work->redundancy_removed = index->redundancy_removed;
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(work->tables.types, entry->type, NULL);
        const struct rfs_row row = {.name = rfs_intern_text(work->tables.names, entry->name),
                                    .type = type,
                                    .bytes = type->bytes,
                                    .offset = entry->offset};
        if (!rfs_rows_add(&work->rows, &work->args->filter, row))
            return rfs_fail_memory(work->err);
    }
    return 0;
}

static int walk(struct work *work, struct rfs_reading *reading)
{
    const char *entry = work->args->source.options.entry;
    struct rfs_index *index = NULL;
    int rc;

    work->size = reading->size;
    if (work->kind == RFS_INFO_SAFETENSORS)
        rc = rfs_safetensors_walk(rfs_reading_read, reading, reading->size, work->path,
                                  &work->tables, NULL, &index, work->err);
    else if (work->kind == RFS_INFO_TORCH && entry)
        rc = rfs_torch_walk(rfs_reading_read, reading, reading->size, work->path, entry,
                            &work->tables, &index, &work->others, work->err);
    else if (work->kind == RFS_INFO_TORCH)
        rc = rfs_info_torch(rfs_reading_read, reading, reading->size, work->path,
                            &work->args->filter, &work->rows, &work->others, work->err);
    else
        rc = rfs_ckpt_walk(rfs_reading_read, reading, reading->size, work->path, &work->tables,
                           &index, work->err);
    if (rc == 0 && index)
        rc = take_index(work, index);
    rfs_index_free(index);
    return rc;
}

static const struct rfs_column columns[] = {
    {"mode", RFS_CELL_TEXT},
    {"blocks", RFS_CELL_NUMBER},
    {"bytes", RFS_CELL_NUMBER},
};

static int read_spans(void *ctx, struct iovec *spans, int n, uint64_t offset)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; offset += spans[i].iov_len, i++)
        rc = rfs_reading_pread(ctx, spans[i].iov_base, spans[i].iov_len, offset);
    return rc;
}

/* Describes an encrypted file by its headers, without its key. */
static int describe_encrypted(struct rfs_reading *reading, const char *path,
                              struct rfs_report *report, struct rfs_error *err)
{
    const struct rfs_cipher_input input = {read_spans, reading, reading->size, path};
    struct rfs_error why = {0};
    struct rfs_cipher cipher;
    const int rc = rfs_cipher_scan(&input, RFS_NOT_ENCRYPTED, RFS_CIPHER_BLOCK, &cipher, &why);
    if (rc != 0 && why.code == 0)
        return rfs_fail(err, rc, RFS_IN(path), NULL, "cannot read: %s", strerror(-rc));
    if (rc != 0) {
        *err = why;
        return rc;
    }
    const char *mode = rfs_cipher_name(cipher.mode);
    report->kind = "encrypted";
    RFS_TABLE_DESCRIBE(&report->table, columns);
    rfs_table_text(&report->table, mode);
    rfs_table_u64(&report->table, cipher.blocks);
    rfs_table_u64(&report->table, reading->size);
    fprintf(report->say,
            "encrypted (%s, %" PRIu32 " block%s): to see its content, give its key: "
            "-o key_file=FILE\n",
            mode, cipher.blocks, cipher.blocks == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "mode", mode);
    return 0;
}

static int read_it(struct work *work, struct rfs_files *files)
{
    struct rfs_reading reading;
    int rc = rfs_reading_begin_quiet(files, 0, &reading);

    if (rc)
        return rfs_files_reason(files, 0, rc, work->err)
                   ? rc
                   : rfs_fail(work->err, rc, RFS_IN(work->path), "a file that you may read",
                              "cannot open: %s", strerror(-rc));
    rc = work->kind == RFS_INFO_ENCRYPTED
             ? describe_encrypted(&reading, work->path, work->report, work->err)
             : walk(work, &reading);
    const int end = rfs_reading_end(&reading);
    if (rc == 0 && end != 0)
        rc = rfs_fail(work->err, end, RFS_IN(work->path), "again", "changed while it was read");
    return rc;
}

static const char *format_name(enum rfs_info_kind kind)
{
    return kind == RFS_INFO_SAFETENSORS ? "safetensors" : kind == RFS_INFO_TORCH ? "pt" : "ckpt";
}

static void report_file(struct work *work)
{
    struct rfs_report *report = work->report;
    const struct rfs_rows *rows = &work->rows;

    rfs_rows_table(rows, true, &report->table);
    fprintf(report->say,
            "checkpoint: %zu parameter%s, %" PRIu64 " bytes of content in a file of %" PRIu64
            "%s\n",
            rows->n, rows->n == 1 ? "" : "s", rows->bytes, work->size,
            work->has_crc ? ", with a checksum" : "");
    rfs_info_tell_filter(report, &work->args->filter, rows);
    fprintf(report->say, "format: %s%s\n", format_name(work->kind),
            work->redundancy_removed ? ", without what other ranks keep" : "");
    rfs_info_tell_types(report, rows);
    if (work->others > 0)
        fprintf(report->say, "and %zu value%s that %s no tensor%s\n", work->others,
                work->others == 1 ? "" : "s", work->others == 1 ? "is" : "are",
                work->others == 1 ? "" : "s");
    rfs_json_put_text(&report->json, "format", format_name(work->kind));
    rfs_json_put_u64(&report->json, "parameters", rows->n);
    rfs_json_put_u64(&report->json, "content_bytes", rows->bytes);
    rfs_json_put_u64(&report->json, "file_bytes", work->size);
    rfs_json_put_bool(&report->json, "checksum", work->has_crc);
    rfs_json_put_bool(&report->json, "redundancy_removed", work->redundancy_removed);
    rfs_json_put_u64(&report->json, "other_values", work->others);
}

int rfs_info_file(struct rfs_info_args *args, const char *path, enum rfs_info_kind kind,
                  struct rfs_report *report, struct rfs_error *err)
{
    struct work work = {.args = args, .report = report, .path = path, .kind = kind, .err = err};
    struct rfs_files *files = rfs_files_new(NULL);
    int rc = 0;

    work.tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    if (!work.tables.names || !work.tables.types || !files || rfs_files_add(files, path) != 0)
        rc = rfs_fail_memory(err);
    else
        rfs_files_set_encrypted(files, args->source.encrypted);
    if (rc == 0)
        rc = read_it(&work, files);
    rfs_rows_order(&work.rows, &args->filter);
    if (rc == 0 && kind != RFS_INFO_ENCRYPTED)
        report_file(&work);
    rfs_rows_free(&work.rows);
    rfs_files_free(files);
    rfs_intern_free(work.tables.names);
    rfs_intern_free(work.tables.types);
    return rc;
}

int rfs_info_rank(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err)
{
    RFS_FREE char *name = NULL;
    RFS_FREE char *folder = RFS_STEAL(report->path);
    struct rfs_beside beside = {0};
    enum rfs_info_kind kind = RFS_INFO_CKPT;
    int rc = rfs_scan_folder(folder, &name, err);

    RFS_FREE char *inside = rc == 0 && !name ? rfs_scan_inside(folder) : NULL;
    if (rc == 0 && !name)
        rc = rfs_fail(err, -ENOENT, RFS_IN(folder),
                      inside ? inside : "a folder with rank_N folders or .ckpt files",
                      "holds no checkpoint");
    rc = rfs_scan_foreign(folder, rc, err);
    if (rc == 0)
        report->path = rfs_text_printf("%s/%s", folder, name);
    if (rc == 0 && !report->path)
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = rfs_info_detect(report->path, args->source.encrypted != NULL, &kind, err);
    if (rc == 0)
        rc = rfs_info_file(args, report->path, kind, report, err);
    if (rc)
        return rc;
    rfs_info_look_beside(folder, "", &beside);
    return rfs_info_tell_beside(&beside, &report->findings) ? 0 : rfs_fail_memory(err);
}
