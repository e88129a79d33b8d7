/* SPDX-License-Identifier: Apache-2.0 */
/* Sources by themselves, without a view: the kinds of paths, and what is in files and folders. */
#include "survey/headers/inspect_file.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/catalog.h"
#include "catalog/scan/group.h"
#include "catalog/scan/scan.h"
#include "formats/chunks/chunks.h"
#include "formats/foreign.h"
#include "formats/formats.h"
#include "formats/safetensors/safetensors.h"
#include "store/crypt/cipher.h"
#include "store/files.h"

#include <sys/stat.h>

/* ---- the kind of a path ---------------------------------------------------------------------- */

/*
 * Files are detected so:
 *
 *   {…                         JSON: a weight map or the manifest of an export, by its name if that
 *                              says so: a damaged one is none of the others; or a strategy or a
 *                              config by its members
 *   the magic of a block       an encrypted .ckpt (cipher.h)
 *   a format's ending or mark  a file of tensors (formats.h)
 *   08 stage, no 0a            a strategy in protobuf: current_stage is required, comes first and
 *                              stands once
 *   0a …, 12 …                 a .ckpt, which has no mark; without that ending, group info if it
 *                              is that as a whole
 *   lines of text              rules
 *
 * Folders are a tree if rank folders or a map of safetensors files are in them, or a view takes
 * their files for one checkpoint; else those of a rank, unless all of their files are strategies.
 */
#define REMEDY "a checkpoint, a folder of one, or a strategy"
#define HEAD 65536                  /* bytes that are looked at */
#define MANIFEST "reshard-manifest" /* its format, and the beginning of its names */

static int fail_open(const char *path, int code, struct rfs_error *err)
{
    if (rfs_store_is_url(path) || rfs_store_is_foreign(path))
        return rfs_path_fail(path, code, err);
    return rfs_fail(err, code, RFS_IN(path), REMEDY, "cannot open: %s", rfs_store_why(path, code));
}

/* Reads the first bytes of a file. Returns their number, or -errno with *err filled. */
static ssize_t read_head(struct rfs_store *store, const char *path, unsigned char *head,
                         struct rfs_error *err)
{
    const ssize_t n = rfs_store_head(store, path, head, HEAD);

    return n >= 0 ? n : fail_open(path, (int)n, err);
}

static bool head_has(const unsigned char *head, size_t n, const char *word)
{
    return memmem(head, n, word, strlen(word)) != NULL;
}

static bool is_weight_map(const char *name)
{
    enum rfs_weight_map_style unused;

    return rfs_safetensors_map_style(name, &unused);
}

/* The kinds of JSON by the members that they have; the first that fits counts. */
static const struct {
    const char *member;
    enum rfs_inspect_what what;
} members[] = {
    {"\"parallel_layout_item\"", RFS_INSPECT_STRATEGY},
    {"\"parallel_strategy_item\"", RFS_INSPECT_STRATEGY},
    {"\"current_stage\"", RFS_INSPECT_STRATEGY},
    {"\"weight_map\"", RFS_INSPECT_WEIGHT_MAP},
    {"\"" MANIFEST "\"", RFS_INSPECT_MANIFEST},
    {"\"model_type\"", RFS_INSPECT_CONFIG},
};

/* Detects the kind of a file of JSON. 0, or -EINVAL with *err filled for one of no kind. */
static int detect_json(const char *path, const unsigned char *head, size_t n,
                       enum rfs_inspect_what *what, struct rfs_error *err)
{
    const char *name = rfs_path_name(path);

    if (is_weight_map(name) || strncmp(name, MANIFEST, strlen(MANIFEST)) == 0) {
        *what = is_weight_map(name) ? RFS_INSPECT_WEIGHT_MAP : RFS_INSPECT_MANIFEST;
        return 0;
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (head_has(head, n, members[i].member)) {
            *what = members[i].what;
            return 0;
        }
    return rfs_fail(err, -EINVAL, RFS_IN(path), REMEDY,
                    "is JSON, and none of these: a strategy, the index of a checkpoint, the "
                    "manifest of an export, the config of a model");
}

static bool is_strategy(const unsigned char *head, size_t n)
{
    size_t at = 1;

    while (at < n && head[at] & 0x80)
        at++;
    return n > 0 && head[0] == 0x08 && (at + 1 >= n || head[at + 1] != 0x0a);
}

static bool is_group(struct rfs_store *store, const char *path)
{
    struct rfs_group group;
    struct rfs_error err;
    const int rc = rfs_scan_group_read(store, path, &group, &err);

    free(group.ranks);
    return rc == 0;
}

/* Returns whether the first bytes are printable. */
static bool is_text(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((head[i] < 0x20 && !strchr("\t\n\r", head[i])) || head[i] == 0x7f || head[i] == 0)
            return false;
    return n > 0;
}

/*
 * Returns whether a text begins as rules do: its first line, without blank ones and comments, is
 * "axes …" or "like …", or has a ':' behind its first word.
 */
static bool begins_as_rules(const unsigned char *head, size_t n)
{
    const char *at = (const char *)head;
    const char *end = at + n;

    while (at < end && (strchr(" \t\r\n", *at) || *at == '#')) {
        const char *line = *at == '#' ? memchr(at, '\n', (size_t)(end - at)) : at;
        at = line ? line + 1 : end;
    }
    const char *word = at;
    while (at < end && !strchr(" \t\r\n:", *at))
        at++;
    const size_t length = (size_t)(at - word);
    while (at < end && strchr(" \t", *at))
        at++;
    return (at < end && *at == ':') ||
           (length == 4 && (memcmp(word, "axes", 4) == 0 || memcmp(word, "like", 4) == 0));
}

/* Detects what is no encrypted file and has no mark of a format: by its N first bytes and name. */
static int detect_unmarked(struct rfs_store *store, const char *path, const unsigned char *head,
                           size_t n, enum rfs_inspect_what *what, struct rfs_error *err)
{
    enum rfs_format unused;
    const bool named = rfs_format_of_name(path, &unused);
    size_t spaces = 0;

    *what = RFS_INSPECT_FILE;
    if (rfs_text_ends(path, ".json"))
        return detect_json(path, head, n, what, err);
    const struct rfs_foreign *foreign = named ? NULL : rfs_foreign_find(NULL, head, n);
    if (foreign)
        return rfs_foreign_fail(path, foreign, NULL, err);
    if (is_strategy(head, n)) {
        *what = RFS_INSPECT_STRATEGY;
    } else if (n > 0 && (head[0] == 0x0a || head[0] == 0x12) && !named && is_group(store, path)) {
        *what = RFS_INSPECT_GROUP;
    } else if (!named && is_text(head, n)) {
        while (spaces < n && strchr(" \t\r\n", head[spaces]))
            spaces++;
        if (spaces < n && head[spaces] == '{')
            return detect_json(path, head, n, what, err);
        *what = RFS_INSPECT_RULES;
    }
    return 0;
}

static int detect_file(struct rfs_store *store, const char *path, bool keyed,
                       struct rfs_inspect_kind *kind, struct rfs_error *err)
{
    RFS_FREE unsigned char *head = malloc(HEAD);
    const ssize_t got = head ? read_head(store, path, head, err) : rfs_fail_memory(err);
    const size_t n = got > 0 ? (size_t)got : 0;
    enum rfs_format format = RFS_FORMAT_CKPT; /* it has no mark, and may be encrypted */
    int rc = 0;

    *kind = (struct rfs_inspect_kind){.what = RFS_INSPECT_FILE};
    if (got < 0)
        return (int)got;
    const struct rfs_foreign *foreign = rfs_foreign_find(rfs_path_name(path), NULL, 0);
    if (foreign)
        return rfs_foreign_fail(path, foreign, rfs_path_name(path), err);
    if (n >= 4 && rfs_cipher_detect(head) != RFS_NOT_ENCRYPTED)
        kind->what = keyed ? RFS_INSPECT_FILE : RFS_INSPECT_ENCRYPTED;
    else if (!rfs_format_of_file(path, head, n, &format) && !keyed)
        rc = detect_unmarked(store, path, head, n, &kind->what, err);
    if (kind->what == RFS_INSPECT_FILE && rfs_scan_is_first(path, format))
        kind->what = RFS_INSPECT_TREE;
    else if (kind->what == RFS_INSPECT_FILE)
        kind->row = &rfs_formats[format];
    return rc;
}

int rfs_inspect_check_rules(struct rfs_store *store, const char *path, struct rfs_error *err)
{
    RFS_FREE unsigned char *head = malloc(HEAD);
    const ssize_t n = head ? read_head(store, path, head, err) : rfs_fail_memory(err);

    return n < 0 ? (int)n
           : begins_as_rules(head, (size_t)n)
               ? 0
               : rfs_fail(err, -EINVAL, RFS_IN(path), REMEDY, "is a text without rules");
}

/* What the entries of a folder are. */
struct entries {
    const struct rfs_format_row *parts; /* format of the first of some parts, or NULL */
    bool ranks;
    size_t files, strategies; /* files that are looked into, until one is no strategy */
};

/* Looks at an entry; files are looked into as long as all are strategies. */
static void look_at(struct rfs_store *store, const char *folder, const struct dirent *entry,
                    struct entries *seen)
{
    const char *name = entry->d_name;
    RFS_FREE char *path = rfs_path_join(folder, name);
    struct rfs_inspect_kind kind;
    struct rfs_error unused;
    struct stat st;

    seen->ranks = seen->ranks || rfs_scan_is_rank(name) || is_weight_map(name);
    seen->parts = seen->parts ? seen->parts : rfs_scan_of_parts(name);
    if (name[0] == '.' || !path || seen->files > seen->strategies || seen->ranks || seen->parts)
        return;
    seen->files++;
    if (rfs_store_stat(store, path, &st) == 0 && S_ISREG(st.st_mode) &&
        detect_file(store, path, false, &kind, &unused) == 0)
        seen->strategies += kind.what == RFS_INSPECT_STRATEGY;
}

/* Returns whether a folder is to be looked at as that of a rank: no view takes it as a whole. */
static bool has_rank_file(struct rfs_store *store, const char *path)
{
    RFS_FREE char *name = NULL;
    struct rfs_error unused;

    return rfs_scan_folder(store, path, &name, &unused) == 0 || !rfs_scan_is_whole(store, path);
}

static int detect_folder(struct rfs_store *store, const char *path, struct rfs_inspect_kind *kind,
                         struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    struct entries seen = {.files = 0};
    const int rc = rfs_dir_open(store, path, &dir);

    if (rc)
        return fail_open(path, rc, err);
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir)) != NULL;)
        look_at(store, path, entry, &seen);
    kind->row = seen.parts;
    if (seen.parts)
        kind->what = RFS_INSPECT_PARTS;
    else if (seen.ranks || rfs_scan_is_of_one_rank(store, path))
        kind->what = RFS_INSPECT_TREE;
    else if (rfs_scan_is_described(store, path))
        kind->what = RFS_INSPECT_CHUNKS;
    else if (seen.files > 0 && seen.files == seen.strategies)
        kind->what = RFS_INSPECT_STRATEGIES;
    else
        kind->what = rfs_scan_is_divided(store, path) || !has_rank_file(store, path)
                         ? RFS_INSPECT_TREE
                         : RFS_INSPECT_RANK;
    return 0;
}

int rfs_inspect_detect(struct rfs_store *store, const char *path, bool keyed,
                       struct rfs_inspect_kind *kind, struct rfs_error *err)
{
    struct stat st;
    const int rc = rfs_store_stat(store, path, &st);

    if (rc)
        return fail_open(path, rc, err);
    if (S_ISREG(st.st_mode))
        return detect_file(store, path, keyed, kind, err);
    if (S_ISDIR(st.st_mode))
        return detect_folder(store, path, kind, err);
    return rfs_fail(err, -EINVAL, RFS_IN(path), REMEDY, "neither a file nor a folder");
}

bool rfs_inspect_is(struct rfs_store *store, const char *path, enum rfs_inspect_what what)
{
    struct rfs_inspect_kind kind;
    struct rfs_error unused = {0};

    return rfs_inspect_detect(store, path, false, &kind, &unused) == 0 && kind.what == what;
}

bool rfs_inspect_is_name(const char *name)
{
    enum rfs_format unused;

    return rfs_format_of_name(name, &unused);
}

int rfs_inspect_rank_file(struct rfs_store *store, const char *folder, char **out,
                          struct rfs_error *err)
{
    RFS_FREE char *name = NULL;
    int rc = rfs_scan_folder(store, folder, &name, err);
    RFS_FREE char *inside = rc == 0 && !name ? rfs_scan_named(store, folder, RFS_ANY_NUMBER) : NULL;

    *out = NULL;
    if (rc == 0 && !name)
        rc = rfs_fail(err, -ENOENT, RFS_IN(folder),
                      inside ? inside : "a folder with rank_N folders or .ckpt files",
                      "holds no checkpoint");
    rc = rfs_scan_foreign(store, folder, rc, err);
    if (rc)
        return rc;
    *out = rfs_text_printf("%s/%s", folder, name);
    return *out ? 0 : rfs_fail_memory(err);
}

/* ---- a single file --------------------------------------------------------------------------- */

/* A file that is being described. */
struct description {
    const struct rfs_headers_source *source;
    const char *path;
    const struct rfs_format_row *row; /* NULL: it is encrypted */
    rfs_index_each_fn *each;
    rfs_format_value_fn *value;
    void *ctx;
    struct rfs_tables tables;
    struct rfs_inspect_file *out;
    struct rfs_error *err;
};

static int take_index(struct description *work, const struct rfs_index *index)
{
    work->out->has_crc = index->has_crc;
    work->out->redundancy_removed = index->redundancy_removed;
    for (size_t i = 0; i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        if (!work->each(work->ctx, rfs_intern_text(work->tables.names, entry->name),
                        rfs_intern_bytes(work->tables.types, entry->type, NULL), entry->offset))
            return rfs_fail_memory(work->err);
    }
    return 0;
}

/* Reads the headers of a file. 0, or -errno with *err filled. */
static int read_headers(struct description *work, struct rfs_reading *reading)
{
    struct rfs_format_file file = {.from = RFS_READING_SOURCE(reading, work->path),
                                   .tables = &work->tables,
                                   .entry = work->source->options->entry};
    struct rfs_index *index = NULL;

    const bool listed = work->row->list && !file.entry;
    int rc = listed ? work->row->list(&file, work->each, work->ctx, work->err)
                    : work->row->index(&file, NULL, &index, work->err);

    rc = rfs_format_explain(work->row, file.from, rc, work->err);
    work->out->format = work->row->name;
    work->out->bytes = reading->size;
    work->out->others = file.left_out;
    if (rc == 0 && index)
        rc = take_index(work, index);
    if (rc == 0 && work->value && work->row->values)
        rc = work->row->values(file.from, work->value, work->ctx, work->err);
    rfs_index_free(index);
    return rc;
}

static int read_spans(void *ctx, struct iovec *spans, int n, uint64_t offset)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; offset += spans[i].iov_len, i++)
        rc = rfs_reading_pread(ctx, spans[i].iov_base, spans[i].iov_len, offset);
    return rc;
}

/* Describes an encrypted file by its headers, without a key. */
static int describe_encrypted(struct rfs_reading *reading, const char *path,
                              struct rfs_inspect_file *out, struct rfs_error *err)
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
    out->mode = rfs_cipher_name(cipher.mode);
    out->blocks = cipher.blocks;
    out->bytes = reading->size;
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
    rc = work->row ? read_headers(work, &reading)
                   : describe_encrypted(&reading, work->path, work->out, work->err);
    const int end = rfs_reading_end(&reading);
    if (rc == 0 && end != 0)
        rc = rfs_fail(work->err, end, RFS_IN(work->path), "again", "changed while it was read");
    return rc;
}

int rfs_inspect_file(const struct rfs_headers_source *source, const char *path,
                     const struct rfs_format_row *row, rfs_index_each_fn *each,
                     rfs_format_value_fn *value, void *ctx, struct rfs_inspect_file *out,
                     struct rfs_error *err)
{
    struct description work = {.source = source,
                               .path = path,
                               .row = row,
                               .each = each,
                               .value = value,
                               .ctx = ctx,
                               .tables = {rfs_intern_new(), rfs_intern_new()},
                               .out = out,
                               .err = err};
    struct rfs_files *files = rfs_files_new(NULL);
    int rc = 0;

    *out = (struct rfs_inspect_file){0};
    if (!work.tables.names || !work.tables.types || !files || rfs_files_add(files, path) != 0)
        rc = rfs_fail_memory(err);
    else
        rfs_files_set_encrypted(files, source->encrypted);
    if (rc == 0)
        rfs_files_set_store(files, source->store);
    if (rc == 0)
        rc = read_file(&work, files);
    rfs_files_free(files);
    rfs_intern_free(work.tables.names);
    rfs_intern_free(work.tables.types);
    return rc;
}

int rfs_inspect_values(const struct rfs_headers_source *source, rfs_format_value_fn *value,
                       void *ctx, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(source->catalog);
    const struct rfs_format_row *row = &rfs_formats[rfs_catalog_format(source->catalog)];
    const uint32_t file = rfs_catalog_file(source->catalog, 0);
    struct rfs_reading reading;

    if (!row->values || rfs_catalog_ranks(source->catalog) > 1 || file == UINT32_MAX)
        return 0;
    const char *path = rfs_files_path(files, file);
    int rc = rfs_reading_begin(files, file, &reading);
    if (rc)
        return rfs_files_fail(err, path, rc);
    rc = row->values(RFS_READING_SOURCE(&reading, path), value, ctx, err);
    const int end = rfs_reading_end(&reading);
    return rc || end == 0 ? rc : rfs_files_fail(err, path, end);
}

void rfs_inspect_below(struct rfs_store *store, const char *folder, struct rfs_path_list *out)
{
    rfs_scan_inside(store, folder, RFS_ANY_NUMBER, true, out);
}

int64_t rfs_inspect_step(const char *path)
{
    return rfs_scan_step_of(rfs_path_name(path));
}

void rfs_inspect_likely(struct rfs_store *store, const char *folder, struct rfs_path_list *out)
{
    rfs_scan_likely(store, folder, out);
}

bool rfs_inspect_is_rank(const char *name)
{
    return rfs_scan_is_rank(name);
}

char *rfs_inspect_later(struct rfs_store *store, const char *path)
{
    return rfs_scan_later(store, path);
}

void rfs_inspect_ranked(struct rfs_store *store, const char *folder, struct rfs_scan_ranked *out)
{
    rfs_scan_ranked(store, folder, out);
}

int rfs_inspect_group(struct rfs_store *store, const char *path, uint32_t **ranks, size_t *n,
                      struct rfs_error *err)
{
    struct rfs_group group;
    const int rc = rfs_scan_group_read(store, path, &group, err);

    *ranks = group.ranks;
    *n = group.n;
    return rc;
}

/* ---- sources that describe themselves -------------------------------------------------------- */

int rfs_inspect_chunks(const struct rfs_headers_source *source, struct rfs_inspect_chunks *out,
                       struct rfs_error *err)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(source->catalog);
    struct rfs_inspect_chunk_file *files = calloc((size_t)chunks->n_files + 1, sizeof *files);

    *out = (struct rfs_inspect_chunks){.format = chunks->format->name,
                                       .tensors = chunks->tensors.n,
                                       .chunks = chunks->chunks.n,
                                       .unread = chunks->unread.n,
                                       .lost = chunks->lost,
                                       .dicts = &chunks->dicts,
                                       .inner_dicts = &chunks->dicts_in_one,
                                       .n_files = chunks->n_files,
                                       .files = files};
    if (!files)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < chunks->chunks.n; i++) {
        struct rfs_inspect_chunk_file *file =
            &files[chunks->chunks.data[i].file - chunks->first_file];
        file->chunks++;
        file->content += rfs_chunks_type_of(chunks, (uint32_t)i)->bytes;
    }
    for (uint32_t i = 0; i < chunks->n_files; i++) {
        struct stat st;
        files[i].name =
            rfs_files_path(chunks->files, chunks->first_file + i) + strlen(chunks->folder) + 1;
        files[i].is_there = rfs_files_stat(chunks->files, chunks->first_file + i, &st) == 0;
        files[i].bytes = files[i].is_there ? (uint64_t)st.st_size : 0;
    }
    return 0;
}

void rfs_inspect_chunked(const struct rfs_headers_source *source, size_t i,
                         struct rfs_inspect_chunked *out)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(source->catalog);

    if (i >= chunks->tensors.n) {
        const size_t at = i - chunks->tensors.n;
        *out = (struct rfs_inspect_chunked){
            .name = rfs_intern_text(chunks->tables->names, chunks->unread.data[at].name),
            .why = rfs_intern_text(chunks->tables->names, chunks->unread.data[at].why)};
        return;
    }
    const struct rfs_chunked_tensor *tensor = &chunks->tensors.data[i];
    *out = (struct rfs_inspect_chunked){.name = rfs_catalog_name(source->catalog, tensor->name),
                                        .type = rfs_chunks_type(chunks, tensor->type),
                                        .chunks = tensor->n,
                                        .incomplete = tensor->incomplete};
    for (uint32_t a = 0; a < out->type->ndim; a++)
        out->pieces[a] = rfs_chunks_pieces(chunks, tensor, a);
}

/* ---- parts of one state ---------------------------------------------------------------------- */

int rfs_inspect_parts(const struct rfs_headers_source *source, const struct rfs_format_row *row,
                      rfs_index_each_fn *each, void *ctx, struct rfs_inspect_parts *out,
                      struct rfs_error *err)
{
    const struct rfs_chunks_parts parts =
        rfs_catalog_parts(source->catalog, source->options->uneven_steps);
    const struct rfs_chunks_source to = rfs_catalog_chunks_source(source->catalog);

    *out = (struct rfs_inspect_parts){.format = row->name, .files = rfs_formats[row->files].name};
    return row->state(&parts, &to, each, ctx, out->state, err);
}
