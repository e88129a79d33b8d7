/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata.json, which mindformers.c draws, as save_metadata of MindSpore Transformers 2.1 writes
 * it (one line). Its reader takes the members of a layout by their order. Each slice is stored
 * once, by the lowest rank that holds it; rank_group has all of them. The device matrix is that of
 * the grid: an axis for each digit of the rank.
 */
#include "formats/mindformers/mindformers_encode.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/order.h"

/* A device matrix: the digits of a grid that have more than one value, the outermost first. */
struct matrix {
    uint32_t n;
    const struct rfs_digit *axis[RFS_MAX_DIGITS];
};

RFS_COMPARE(by_stride, struct rfs_digit *, x, y, RFS_ORDER((*y)->stride, (*x)->stride))

static void make_matrix(const struct rfs_grid *grid, struct matrix *matrix)
{
    matrix->n = 0;
    for (uint32_t i = 0; i < grid->n_digits; i++)
        if (grid->digits[i].extent > 1)
            matrix->axis[matrix->n++] = &grid->digits[i];
    RFS_SORT(matrix->axis, matrix->n, by_stride);
}

/* Lists the entries of a tensor's axis, the outermost first. Returns how many there are. */
static uint32_t entries_of(const struct matrix *matrix, uint32_t axis, int64_t *entries)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < matrix->n; k++) {
        uint32_t at = n;
        if (matrix->axis[k]->axis != (int32_t)axis)
            continue;
        for (n++; at > 0 && matrix->axis[matrix->n - 1 - (uint32_t)entries[at - 1]]->weight <
                                matrix->axis[k]->weight;
             at--)
            entries[at] = entries[at - 1];
        entries[at] = matrix->n - 1 - k;
    }
    return n;
}

static void put_map(struct rfs_json_write *json, const struct matrix *matrix, uint32_t ndim)
{
    rfs_json_array(json, "tensor_map", RFS_JSON_TIGHT);
    for (uint32_t i = 0; i < ndim; i++) {
        int64_t entries[RFS_MAX_DIGITS];
        const uint32_t n = entries_of(matrix, i, entries);
        if (n > 1)
            rfs_json_array(json, NULL, RFS_JSON_TIGHT);
        for (uint32_t k = 0; k < n; k++)
            rfs_json_put_i64(json, NULL, entries[k]);
        if (n > 1)
            rfs_json_end(json);
        if (n == 0)
            rfs_json_put_i64(json, NULL, -1);
    }
    rfs_json_end(json);
}

static void put_layout(struct rfs_json_write *json, const struct rfs_mindformers_tensor *tensor,
                       uint32_t ndim)
{
    struct matrix matrix;

    if (!tensor->grid) {
        rfs_json_put_null(json, "layout");
        return;
    }
    make_matrix(tensor->grid, &matrix);
    rfs_json_object(json, "layout", RFS_JSON_TIGHT);
    rfs_json_array(json, "device_matrix", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < matrix.n; k++)
        rfs_json_put_u64(json, NULL, matrix.axis[k]->extent);
    if (matrix.n == 0)
        rfs_json_put_u64(json, NULL, 1);
    rfs_json_end(json);
    put_map(json, &matrix, ndim);
    rfs_json_put_bool(json, "interleaved_parallel", false);
    rfs_json_array(json, "alias_name", RFS_JSON_TIGHT);
    for (uint32_t k = 0; k < matrix.n || k == 0; k++) {
        char alias[16];
        snprintf(alias, sizeof alias, "d%u", k);
        rfs_json_put_text(json, NULL, alias);
    }
    rfs_json_end(json);
    rfs_json_array(json, "rank_list", RFS_JSON_TIGHT);
    for (uint32_t r = 0; r < tensor->ranks; r++)
        rfs_json_put_u64(json, NULL, tensor->base + r);
    rfs_json_end(json);
    rfs_json_end(json);
}

/* Finds the cell of slice NUMBER; returns false beyond the last. */
static bool cell_of(const struct rfs_mindformers_tensor *tensor, uint64_t number, uint32_t *cell)
{
    for (uint32_t i = tensor->grid ? tensor->grid->ndim : 0; i-- > 0;) {
        cell[i] = (uint32_t)(number % tensor->grid->pieces[i]);
        number /= tensor->grid->pieces[i];
    }
    return number == 0;
}

static void put_tensor(struct rfs_json_write *json, const struct rfs_tables *tables,
                       const struct rfs_mindformers_tensor *tensor)
{
    const struct rfs_type *type = rfs_intern_bytes(tables->types, tensor->type, NULL);
    uint64_t pieces[RFS_MAX_DIMS];
    uint64_t local[RFS_MAX_DIMS];
    uint32_t cell[RFS_MAX_DIMS];

    for (uint32_t i = 0; i < type->ndim; i++) {
        pieces[i] = tensor->grid ? tensor->grid->pieces[i] : 1;
        local[i] = tensor->whole[i] / pieces[i];
    }
    rfs_json_object(json, rfs_intern_text(tables->names, tensor->name), RFS_JSON_TIGHT);
    rfs_json_object(json, "properties", RFS_JSON_TIGHT);
    rfs_json_put_text(json, "dtype", rfs_dtype_name((enum rfs_dtype)type->dtype));
    rfs_json_put_u64(json, "replica_id", 0);
    rfs_json_put_bool(json, "allow_shape_mismatch", false);
    rfs_json_put_bool(json, "allow_to_save", true);
    rfs_json_end(json);
    rfs_json_put_u64s(json, "global_shape", RFS_JSON_TIGHT, tensor->whole, type->ndim);
    rfs_json_put_u64s(json, "axis_fragmentations", RFS_JSON_TIGHT, pieces, type->ndim);
    put_layout(json, tensor, type->ndim);
    rfs_json_array(json, "chunk", RFS_JSON_TIGHT);
    for (uint64_t k = 0; cell_of(tensor, k, cell); k++) {
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_u64s(json, "global_offset", RFS_JSON_TIGHT, &k, 1);
        rfs_json_put_u64s(json, "local_shape", RFS_JSON_TIGHT, local, type->ndim);
        rfs_json_end(json);
    }
    rfs_json_end(json);
    rfs_json_end(json);
}

/* Puts the key of a slice: the tuple as Python prints it. */
static void put_key(struct rfs_json_write *json, struct rfs_bytes *key, const char *name,
                    uint64_t number)
{
    const char *quote = strchr(name, '\'') ? "\"" : "'";
    char end[48];

    key->n = 0;
    rfs_bytes_put_text(key, "(");
    rfs_bytes_put_text(key, quote);
    rfs_bytes_put_text(key, name);
    rfs_bytes_put_text(key, quote);
    snprintf(end, sizeof end, ", (%llu,))", (unsigned long long)number);
    rfs_bytes_put_text(key, end);
    json->failed |= key->failed;
    rfs_json_put_key(json, key->failed ? "" : (const char *)key->data, key->failed ? 0 : key->n);
}

static void put_slices(struct rfs_json_write *json, struct rfs_bytes *key,
                       const struct rfs_tables *tables, const struct rfs_mindformers_tensor *tensor)
{
    const char *name = rfs_intern_text(tables->names, tensor->name);
    uint32_t cell[RFS_MAX_DIMS];

    for (uint64_t k = 0; cell_of(tensor, k, cell); k++) {
        const uint32_t owner = tensor->grid ? rfs_grid_holder(tensor->grid, cell, 0) : 0;
        const uint32_t holders = tensor->grid ? tensor->grid->replicas : tensor->ranks;
        put_key(json, key, name, k);
        rfs_json_array(json, NULL, RFS_JSON_TIGHT);
        rfs_json_object(json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(json, "file_name", tensor->files[owner]);
        rfs_json_put_u64(json, "storage_rank", tensor->base + owner);
        rfs_json_array(json, "rank_group", RFS_JSON_TIGHT);
        for (uint32_t h = 0; h < holders; h++)
            rfs_json_put_u64(json, NULL,
                             tensor->base +
                                 (tensor->grid ? rfs_grid_replica(tensor->grid, owner, h) : h));
        rfs_json_end(json);
        rfs_json_end(json);
        rfs_json_end(json);
    }
}

/* ---- the text in parts ----------------------------------------------------------------------- */

/* The least bytes of a part. The last part of a section may have fewer. */
#define PART_BYTES ((uint64_t)256 << 10)

/* The two objects in the file; each has members of every tensor. */
enum section { OF_TENSORS, OF_SLICES, N_SECTIONS };

/* Members of tensors that follow each other, behind the brace of the section, or a comma. */
struct part {
    enum section section;
    size_t first, end;
};

struct writer {
    struct rfs_image_writer writer; /* the first member */
    const struct rfs_tables *tables;
    struct rfs_mindformers_tensor *tensors; /* owned */
    RFS_VEC(struct part) parts;             /* owned */
};

static void put_part(const struct writer *writer, const struct part *part, struct rfs_bytes *out)
{
    RFS_CLEANUP(rfs_bytes_free) struct rfs_bytes key = {0};
    struct rfs_json_write json = {.bytes = out, .escapes = RFS_JSON_UTF8};
    const size_t begin = out->n;

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    for (size_t i = part->first; i < part->end; i++)
        if (part->section == OF_TENSORS)
            put_tensor(&json, writer->tables, &writer->tensors[i]);
        else
            put_slices(&json, &key, writer->tables, &writer->tensors[i]);
    if (json.failed)
        out->failed = true;
    else if (part->first > 0)
        out->data[begin] = ',';
}

static void write_part(const struct rfs_image_writer *writer, uint64_t number,
                       struct rfs_bytes *out)
{
    const struct writer *of = (const struct writer *)writer;

    put_part(of, &of->parts.data[number], out);
}

static void free_writer(struct rfs_image_writer *writer)
{
    struct writer *of = (struct writer *)writer;

    free(of->tensors);
    free(of->parts.data);
    free(of);
}

/* ---- its size, without the text -------------------------------------------------------------- */

/* What the bytes of a tensor's members depend on besides the bytes of its name. */
struct kind {
    const void *whole, *grid, *files;
    uint32_t type, base, ranks;
    uint32_t quoted; /* the quotes around the name are escaped */
};

/* The bytes of the members of a tensor without its name, with the brace or comma before each. */
struct sizes {
    uint64_t bytes[N_SECTIONS], slices;
};

struct measuring {
    const struct writer *writer;
    struct rfs_intern *kinds;    /* struct kind; owned, as the others */
    RFS_VEC(struct sizes) sizes; /* by id of the kind */
    struct rfs_bytes text;
};

static void measuring_end(struct measuring *measuring)
{
    rfs_intern_free(measuring->kinds);
    free(measuring->sizes.data);
    rfs_bytes_free(&measuring->text);
}

/* Gives the bytes of a tensor's name in JSON. False when out of memory. */
static bool measure_name(struct measuring *measuring, const char *name, uint64_t *bytes)
{
    struct rfs_json_write json = {.bytes = &measuring->text, .escapes = RFS_JSON_UTF8};

    measuring->text.n = 0;
    rfs_json_put_text(&json, NULL, name);
    *bytes = measuring->text.n - 2; /* its quotes */
    return !json.failed;
}

/* Measures the members of tensor I, whose name has NAME bytes. False when out of memory. */
static bool measure_members(struct measuring *measuring, size_t i, uint64_t name,
                            struct sizes *sizes)
{
    const struct rfs_mindformers_tensor *tensor = &measuring->writer->tensors[i];
    uint32_t cell[RFS_MAX_DIMS];

    *sizes = (struct sizes){.slices = 0};
    while (cell_of(tensor, sizes->slices, cell))
        sizes->slices++;
    for (enum section s = OF_TENSORS; s < N_SECTIONS; s++) {
        measuring->text.n = 0;
        put_part(measuring->writer, &(struct part){s, i, i + 1}, &measuring->text);
        sizes->bytes[s] = measuring->text.n - (s == OF_TENSORS ? 1 : sizes->slices) * name;
    }
    return !measuring->text.failed;
}

/* Gives the bytes of the members of tensor I. False when out of memory. */
static bool measure(struct measuring *measuring, size_t i, uint64_t *bytes)
{
    const struct rfs_mindformers_tensor *tensor = &measuring->writer->tensors[i];
    const char *text = rfs_intern_text(measuring->writer->tables->names, tensor->name);
    struct sizes sizes;
    uint64_t name;
    struct kind kind;

    memset(&kind, 0, sizeof kind); /* with the bytes between members */
    kind.whole = tensor->whole;
    kind.grid = tensor->grid;
    kind.files = tensor->files;
    kind.type = tensor->type;
    kind.base = tensor->base;
    kind.ranks = tensor->ranks;
    kind.quoted = strchr(text, '\'') != NULL;
    const uint32_t id = rfs_intern_add(measuring->kinds, &kind, sizeof kind);
    if (id == RFS_NO_ID || !measure_name(measuring, text, &name))
        return false;
    if (id == measuring->sizes.n) {
        if (!measure_members(measuring, i, name, &sizes) || !RFS_PUSH(&measuring->sizes, sizes))
            return false;
    }
    sizes = measuring->sizes.data[id];
    bytes[OF_TENSORS] = sizes.bytes[OF_TENSORS] + name;
    bytes[OF_SLICES] = sizes.bytes[OF_SLICES] + sizes.slices * name;
    return true;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Adds the parts of a section, whose tensors have BYTES [N][N_SECTIONS]. */
static void add_section(struct writer *writer, enum section section, size_t n,
                        const uint64_t (*bytes)[N_SECTIONS], struct rfs_image_builder *builder)
{
    size_t i = 0;

    do {
        struct part part = {.section = section, .first = i};
        uint64_t all = n > 0 ? 0 : 1; /* the brace of a section without members */
        for (; i < n && all < PART_BYTES; i++)
            all += bytes[i][section];
        part.end = i;
        rfs_image_add(builder, RFS_WRITTEN, writer->parts.n, all);
        builder->failed |= !RFS_PUSH(&writer->parts, part);
    } while (i < n && !builder->failed);
}

/* Makes a writer of a copy of the list, or returns NULL when out of memory. */
static struct writer *new_writer(const struct rfs_tables *tables,
                                 const struct rfs_mindformers_tensor *tensors, size_t n)
{
    struct writer *writer = calloc(1, sizeof *writer);

    if (!writer)
        return NULL;
    *writer = (struct writer){.writer = {write_part, free_writer},
                              .tables = tables,
                              .tensors = malloc(n * sizeof *tensors + 1)};
    if (!writer->tensors) {
        free(writer);
        return NULL;
    }
    if (n > 0)
        memcpy(writer->tensors, tensors, n * sizeof *tensors);
    return writer;
}

int rfs_mindformers_encode_metadata(const struct rfs_tables *tables,
                                    const struct rfs_mindformers_tensor *tensors, size_t n,
                                    struct rfs_image **out)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_FREE uint64_t(*bytes)[N_SECTIONS] = calloc(n + 1, sizeof *bytes);
    struct writer *writer = new_writer(tables, tensors, n);
    RFS_CLEANUP(measuring_end)
    struct measuring measuring = {.writer = writer, .kinds = rfs_intern_new()};
    bool good = bytes && writer && measuring.kinds;

    *out = NULL;
    for (size_t i = 0; good && i < n; i++)
        good = measure(&measuring, i, bytes[i]);
    if (good) {
        rfs_bytes_put_text(&builder.literals, "{\"state_dict_metadata\":");
        add_section(writer, OF_TENSORS, n, bytes, &builder);
        rfs_bytes_put_text(&builder.literals, "},\"storage_data\":");
        add_section(writer, OF_SLICES, n, bytes, &builder);
        rfs_bytes_put_text(&builder.literals, "}}");
    }
    const int rc = good ? rfs_image_finish(&builder, out) : -ENOMEM;
    if (rc == 0)
        (*out)->writer = &writer->writer;
    else if (writer)
        free_writer(&writer->writer);
    return rc;
}
