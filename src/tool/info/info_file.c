/* SPDX-License-Identifier: Apache-2.0 */
/* Single files: checkpoints of any format, strategies, group info and rules. */
#include "tool/info/info.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/scan/group.h"
#include "catalog/scan/scan.h"
#include "formats/ckpt/ckpt.h"
#include "formats/safetensors/safetensors.h"
#include "formats/torch/torch.h"
#include "layout/layout_rules.h"
#include "store/crypt/cipher.h"
#include "store/files.h"
#include "tool/strategy/strategy_command.h"
#include "view/strategy_options.h"

#include <sys/stat.h>

/* ---- files of torch.save --------------------------------------------------------------------- */

/*
 * All tensors are listed, in whatever dicts and lists they are, each named by the keys on the way
 * to it. A shared value is shown where it is met first.
 */
struct torch_listing {
    const struct rfs_torch *torch;
    const char *path;
    const struct rfs_info_filter *filter;
    struct rfs_info_rows *rows;
    bool *seen; /* [number] containers that were visited */
    size_t others;
    struct rfs_error *err;
};

/* Writes a key that is no tuple. Returns its length, as far as it fits. */
static size_t put_key(const struct rfs_node *key, char *out, size_t size)
{
    int n;

    if (key->kind == RFS_NODE_TEXT)
        n = snprintf(out, size, "%.*s", (int)rfs_min_u64(key->of.text.n, size), key->of.text.data);
    else if (key->kind == RFS_NODE_INT)
        n = snprintf(out, size, "%" PRId64, key->of.integer);
    else
        n = snprintf(out, size, "?");
    return n < 0 ? 0 : rfs_min_u64((uint64_t)n, size - 1);
}

/* Writes a key; hfai's are tuples of a name and a number. Returns OUT. */
static const char *key_text(const struct rfs_node *key, char *out, size_t size)
{
    const struct rfs_items *items = key->kind == RFS_NODE_TUPLE ? &key->of.items : NULL;
    size_t at = items ? 0 : put_key(key, out, size);

    for (uint32_t i = 0; items && i < items->n; i++) {
        at += i > 0 && at + 1 < size ? (size_t)snprintf(out + at, size - at, ",") : 0;
        at += put_key(items->data[i], out + at, size - at);
    }
    if (at == 0)
        snprintf(out, size, "?");
    return out;
}

static int take_tensor(struct torch_listing *listing, const char *name,
                       const struct rfs_torch_tensor *tensor)
{
    const uint64_t item = rfs_dtype_bytes(tensor->dtype);
    struct rfs_type type = {.bytes = tensor->elements * item,
                            .ndim = (uint8_t)tensor->ndim,
                            .dtype = (uint8_t)tensor->dtype,
                            .kind = RFS_TENSOR};

    memcpy(type.dims, tensor->dims, tensor->ndim * sizeof *type.dims);
    return rfs_info_rows_add_copy(listing->rows, listing->filter, name, &type,
                                  tensor->record->offset + tensor->offset * item)
               ? 0
               : rfs_fail_memory(listing->err);
}

static int visit(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                 unsigned depth);

static int visit_below(struct torch_listing *listing, const struct rfs_node *node,
                       const char *above, const char *key, unsigned depth)
{
    RFS_FREE char *name = rfs_text_printf("%s%s%s", above, *above ? "." : "", key);
    if (!name)
        return rfs_fail_memory(listing->err);
    return visit(listing, node, name, depth + 1);
}

static int visit_items(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                       unsigned depth)
{
    const struct rfs_items *pairs = rfs_pickle_pairs(node);
    const struct rfs_items *items = pairs ? pairs : &node->of.items;
    const uint32_t step = pairs ? 2 : 1;
    char key[512];
    int rc = 0;

    for (uint32_t i = 0; i + step <= items->n && rc == 0; i += step) {
        if (pairs)
            key_text(items->data[i], key, sizeof key);
        else
            snprintf(key, sizeof key, "%" PRIu32, i);
        rc = visit_below(listing, items->data[i + step - 1], name, key, depth);
    }
    return rc;
}

static int visit(struct torch_listing *listing, const struct rfs_node *node, const char *name,
                 unsigned depth)
{
    struct rfs_torch_tensor tensor;
    const int rc =
        rfs_torch_tensor(listing->torch, node, listing->path, name, &tensor, listing->err);

    if (rc < 0)
        return rc;
    if (rc == 1)
        return take_tensor(listing, name, &tensor);
    if (!rfs_pickle_pairs(node) && node->kind != RFS_NODE_LIST && node->kind != RFS_NODE_TUPLE) {
        listing->others++;
        return 0;
    }
    if (depth >= RFS_PICKLE_DEPTH || listing->seen[node->number])
        return 0;
    listing->seen[node->number] = true;
    return visit_items(listing, node, name, depth);
}

/*
 * Lists the tensors of a file of torch.save: "model.layer.weight". *others is the number of other
 * values. 0, or -errno with *err filled.
 */
static int list_torch(rfs_read_fn *read, void *ctx, uint64_t size, const char *path,
                      const struct rfs_info_filter *filter, struct rfs_info_rows *rows,
                      size_t *others, struct rfs_error *err)
{
    struct rfs_torch torch;
    int rc = rfs_torch_open(read, ctx, size, 0, path, &torch, err);

    if (rc)
        return rc;
    struct torch_listing listing = {
        .torch = &torch,
        .path = path,
        .filter = filter,
        .rows = rows,
        .seen = calloc((size_t)torch.pickle.n_nodes + 1, sizeof *listing.seen),
        .err = err};
    rc = listing.seen ? visit(&listing, torch.pickle.root, "", 0) : rfs_fail_memory(err);
    *others = listing.others;
    free(listing.seen);
    rfs_torch_free(&torch);
    return rc;
}

/* ---- checkpoint files ------------------------------------------------------------------------ */

/* A file that is being described. */
struct description {
    struct rfs_info_args *args;
    struct rfs_info_report *report;
    const char *path;
    enum rfs_info_kind kind;
    struct rfs_tables tables;
    struct rfs_info_rows rows;
    uint64_t size;
    size_t others; /* values that are not tensors */
    bool has_crc, redundancy_removed;
    struct rfs_error *err;
};

static int take_index(struct description *work, const struct rfs_index *index)
{
    work->has_crc = index->has_crc;
    work->redundancy_removed = index->redundancy_removed;
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(work->tables.types, entry->type, NULL);
        const struct rfs_info_row row = {.name = rfs_intern_text(work->tables.names, entry->name),
                                         .type = type,
                                         .bytes = type->bytes,
                                         .offset = entry->offset};
        if (!rfs_info_rows_add(&work->rows, &work->args->filter, row))
            return rfs_fail_memory(work->err);
    }
    return 0;
}

/* Reads the headers of a file. 0, or -errno with *err filled. */
static int read_headers(struct description *work, struct rfs_reading *reading)
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
        rc = list_torch(rfs_reading_read, reading, reading->size, work->path, &work->args->filter,
                        &work->rows, &work->others, work->err);
    else
        rc = rfs_ckpt_walk(rfs_reading_read, reading, reading->size, work->path, &work->tables,
                           &index, work->err);
    if (rc == 0 && index)
        rc = take_index(work, index);
    rfs_index_free(index);
    return rc;
}

static const struct rfs_column encrypted_columns[] = {
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

/* Describes an encrypted file by its headers, without a key. */
static int describe_encrypted(struct rfs_reading *reading, const char *path,
                              struct rfs_info_report *report, struct rfs_error *err)
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
    RFS_TABLE_DESCRIBE(&report->table, encrypted_columns);
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

static int read_file(struct description *work, struct rfs_files *files)
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
             : read_headers(work, &reading);
    const int end = rfs_reading_end(&reading);
    if (rc == 0 && end != 0)
        rc = rfs_fail(work->err, end, RFS_IN(work->path), "again", "changed while it was read");
    return rc;
}

static const char *format_name(enum rfs_info_kind kind)
{
    return kind == RFS_INFO_SAFETENSORS ? "safetensors" : kind == RFS_INFO_TORCH ? "pt" : "ckpt";
}

static void report_file(struct description *work)
{
    struct rfs_info_report *report = work->report;
    const struct rfs_info_rows *rows = &work->rows;

    rfs_info_rows_table(rows, true, &report->table);
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

static int show_checkpoint(struct rfs_info_args *args, const char *path, enum rfs_info_kind kind,
                           struct rfs_info_report *report, struct rfs_error *err)
{
    struct description work = {
        .args = args, .report = report, .path = path, .kind = kind, .err = err};
    struct rfs_files *files = rfs_files_new(NULL);
    int rc = 0;

    work.tables = (struct rfs_tables){rfs_intern_new(), rfs_intern_new()};
    if (!work.tables.names || !work.tables.types || !files || rfs_files_add(files, path) != 0)
        rc = rfs_fail_memory(err);
    else
        rfs_files_set_encrypted(files, args->source.encrypted);
    if (rc == 0)
        rc = read_file(&work, files);
    rfs_info_rows_order(&work.rows, &args->filter);
    if (rc == 0 && kind != RFS_INFO_ENCRYPTED)
        report_file(&work);
    rfs_info_rows_free(&work.rows);
    rfs_files_free(files);
    rfs_intern_free(work.tables.names);
    rfs_intern_free(work.tables.types);
    return rc;
}

/* ---- strategies, group info and rules -------------------------------------------------------- */

static int show_strategy(struct rfs_info_args *args, struct rfs_info_report *report,
                         struct rfs_error *err)
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
    rfs_command_strategy_rows(strategy, NULL, args->filter.globs, &report->table);
    rfs_command_strategy_summary(strategy, summary, sizeof summary);
    fprintf(report->say, "%s\n", summary);
    rfs_json_put_u64(&report->json, "parameters", rfs_strategy_count(strategy));
    rfs_json_put_u64(&report->json, "stages", rfs_strategy_stages(strategy));
    rfs_json_put_u64(&report->json, "devices", rfs_strategy_devices(strategy));
    rfs_strategy_free(strategy);
    return 0;
}

static int show_group(struct rfs_info_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"rank", RFS_CELL_NUMBER}};
    struct rfs_group group;
    const int rc = rfs_scan_group_read(report->path, &group, err);

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

static int show_rules(struct rfs_info_report *report, struct rfs_error *err)
{
    static const struct rfs_column columns[] = {{"line", RFS_CELL_NUMBER}, {"text", RFS_CELL_TEXT}};
    RFS_FREE char *text = NULL;
    struct rfs_layout_rules *rules = NULL;
    size_t size = 0;
    uint32_t number = 0;
    size_t shown = 0;
    int rc = rfs_store_read_whole(report->path, RFS_LAYOUT_RULES_BYTES, &text, &size, err)
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

int rfs_info_file(struct rfs_info_args *args, const char *path, enum rfs_info_kind kind,
                  struct rfs_info_report *report, struct rfs_error *err)
{
    switch (kind) {
    case RFS_INFO_STRATEGY:
    case RFS_INFO_STRATEGIES:
        return show_strategy(args, report, err);
    case RFS_INFO_GROUP:
        return show_group(report, err);
    case RFS_INFO_RULES:
        return show_rules(report, err);
    default:
        return show_checkpoint(args, path, kind, report, err);
    }
}
