/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a file of torch.save (formats/torch/zip.c draws zip archives,
 * formats/torch/torch.c their contents):
 *
 *     STEM/data.pkl | STEM/byteorder | STEM/data/0 | STEM/data/1 | … | STEM/version | the directory
 *
 * Storages are numbered in the order in which the pickle names them. As torch writes them, contents
 * begin at multiples of 64 by an extra field "FB" of Zs in the local header, and sizes and
 * checksums stand behind the content and in the directory, not before it: so all but the tensors
 * and the checksums of some is known, and literal. A checksum that would take reading is 0, or a
 * region to compute.
 */
#include "formats/torch/torch_encode.h"

#include "base/cleanup.h"
#include "formats/torch/pickler.h"

#include <zlib.h>

enum { ALIGN = 64, EXTRA_HEAD = 4, EXTRA64_LOCAL = 28 };
#define OVERFLOWS(number) ((number) >= UINT32_MAX)

#define NAME_MOST 300

/* An entry of the archive. */
struct entry {
    const char *name; /* name in the folder; NULL: data/ and the number */
    uint32_t number;
    uint64_t header; /* offset of its local header in the archive */
    uint64_t bytes;
    uint32_t crc;
    bool summed;   /* the checksum is to be computed */
    size_t region; /* number of the region with its bytes */
};

struct encoder {
    const struct rfs_torch_content *content;
    struct rfs_image_builder *builder;
    uint64_t base;   /* offset of the archive in the file */
    uint32_t target; /* target of made storage 0 */
    uint64_t at;     /* offset of its bytes in the target */
    struct rfs_storages storages;
    RFS_VEC(uint64_t) sizes;   /* bytes of each storage */
    RFS_VEC(uint32_t) targets; /* target of each storage */
    RFS_VEC(const void *) met; /* record or made storage of each storage */
    uint32_t *table;           /* open addressing over met: number + 1 */
    size_t cap;
    RFS_VEC(struct entry) entries;
    struct rfs_error *err;
};

static void encoder_end(struct encoder *encoder)
{
    rfs_storages_free(&encoder->storages);
    free(encoder->sizes.data);
    free(encoder->targets.data);
    free(encoder->met.data);
    free(encoder->table);
    free(encoder->entries.data);
}

/* Returns the offset in the archive of the next item. */
static uint64_t here(const struct encoder *encoder)
{
    return rfs_image_here(encoder->builder) - encoder->base;
}

static uint32_t *cell_of(const struct encoder *encoder, const void *what)
{
    size_t at = (size_t)(((uintptr_t)what >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 20);

    for (;; at++) {
        uint32_t *cell = &encoder->table[at & (encoder->cap - 1)];
        if (*cell == 0 || encoder->met.data[*cell - 1] == what)
            return cell;
    }
}

static bool grow(struct encoder *encoder)
{
    const size_t cap = encoder->cap ? encoder->cap * 2 : 256;
    uint32_t *table = calloc(cap, sizeof *table);

    if (!table)
        return false;
    free(encoder->table);
    encoder->table = table;
    encoder->cap = cap;
    for (size_t i = 0; i < encoder->met.n; i++)
        *cell_of(encoder, encoder->met.data[i]) = (uint32_t)i + 1;
    return true;
}

/* Takes a range into the storages of the image. */
static bool add_range(struct encoder *encoder, const struct rfs_range *range)
{
    return rfs_range_store(range, encoder->content->origins[range->origin].file,
                           &encoder->storages);
}

static bool add_made(struct encoder *encoder, const struct rfs_made_storage *made)
{
    const struct rfs_document *document = encoder->content->document;
    uint32_t target = encoder->target + (uint32_t)(made - document->made.data);

    if (encoder->content->origins) {
        if (!rfs_storages_begin(&encoder->storages))
            return false;
        for (size_t i = 0; i < made->n; i++)
            if (!add_range(encoder, &document->ranges.data[made->first + i]))
                return false;
        target = (uint32_t)encoder->storages.items.n - 1;
    }
    return RFS_PUSH(&encoder->sizes, made->bytes) && RFS_PUSH(&encoder->targets, target);
}

static bool add_record(struct encoder *encoder, const struct rfs_zip_entry *record, uint16_t origin)
{
    return rfs_storages_begin(&encoder->storages) &&
           add_range(encoder, &(const struct rfs_range){record, 0, record->bytes, origin}) &&
           RFS_PUSH(&encoder->sizes, record->bytes) &&
           RFS_PUSH(&encoder->targets, (uint32_t)encoder->storages.items.n - 1);
}

/* Gives a storage its number: the next one when it is met for the first time. */
static int number_storage(void *ctx, const struct rfs_node *storage, uint32_t *key)
{
    struct encoder *encoder = ctx;
    const struct rfs_torch_content *content = encoder->content;
    const struct rfs_zip_entry *record = NULL;
    const struct rfs_made_storage *made = NULL;
    const void *what;

    if (storage->origin == RFS_ORIGIN_MADE) {
        made = &content->document->made.data[storage->number];
        what = made;
    } else {
        const struct rfs_torch_origin *origin = &content->origins[storage->origin];
        const int rc =
            rfs_torch_record(origin->torch, storage, origin->path, NULL, &record, encoder->err);
        if (rc)
            return rc;
        what = record;
    }
    if (2 * (encoder->met.n + 1) > encoder->cap && !grow(encoder))
        return rfs_fail_memory(encoder->err);
    uint32_t *cell = cell_of(encoder, what);
    if (*cell == 0) {
        const bool ok =
            made ? add_made(encoder, made) : add_record(encoder, record, storage->origin);
        if (!ok || !RFS_PUSH(&encoder->met, what))
            return rfs_fail_memory(encoder->err);
        *cell = (uint32_t)encoder->met.n;
    }
    *key = *cell - 1;
    return 0;
}

/* A field of a header: a number in so many bytes. */
struct field {
    uint64_t number;
    unsigned bytes;
};

static void put_fields(struct rfs_bytes *bytes, const char *magic, const struct field *fields,
                       size_t n)
{
    rfs_bytes_put(bytes, magic, magic[0] ? 4 : 0);
    for (size_t i = 0; i < n; i++)
        rfs_image_put_little(bytes, fields[i].number, fields[i].bytes);
}
#define PUT(bytes, magic, ...)                                                                     \
    put_fields(bytes, magic, (const struct field[]){__VA_ARGS__},                                  \
               sizeof(const struct field[]){__VA_ARGS__} / sizeof(struct field))

static void put_fill(struct rfs_bytes *bytes, size_t n)
{
    static const char fill[] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                               "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    rfs_bytes_put(bytes, fill, n);
}

/* Writes an entry's name with the folder's to NAME; returns its length. */
static size_t name_of(const struct encoder *encoder, const struct entry *entry, char *name)
{
    const char *stem = encoder->content->stem;
    const int n = entry->name ? snprintf(name, NAME_MOST, "%s/%s", stem, entry->name)
                              : snprintf(name, NAME_MOST, "%s/data/%u", stem, entry->number);
    return (size_t)n; /* NAME has room: a stem is not longer than a file's name */
}

/*
 * Returns the flags of an entry's headers: names are UTF-8, and checksum and sizes follow the
 * content.
 */
static unsigned flags_of(const struct entry *entry)
{
    return entry->bytes > 0 ? 0x0808 : 0x0800;
}

/* Puts the local header, up to the content. */
static void put_local(struct encoder *encoder, struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder->literals;
    char text[NAME_MOST];
    const size_t name = name_of(encoder, entry, text);

    entry->header = here(encoder);
    const bool wide = OVERFLOWS(entry->bytes) || OVERFLOWS(entry->header);
    const uint64_t size = wide ? UINT32_MAX : 0;
    const uint64_t before =
        entry->header + RFS_ZIP_LOCAL_BYTES + name + (wide ? EXTRA64_LOCAL : 0) + EXTRA_HEAD;
    const size_t fill = (size_t)((ALIGN - before % ALIGN) % ALIGN);
    const size_t extra = (size_t)(wide ? EXTRA64_LOCAL : 0) + EXTRA_HEAD + fill;
    PUT(out, "PK\3\4", {0, 2}, {flags_of(entry), 2}, {0, 6}, {0, 4}, {size, 4}, {size, 4},
        {name, 2}, {extra, 2});
    rfs_bytes_put(out, text, name);
    if (wide)
        PUT(out, "", {1, 2}, {EXTRA64_LOCAL - 4, 2}, {0, 8}, {0, 8}, {entry->header, 8});
    rfs_bytes_put(out, "FB", 2);
    rfs_image_put_little(out, fill, 2);
    put_fill(out, fill);
}

/* Puts four bytes of checksum: known, or to be computed. */
static void put_crc(struct encoder *encoder, const struct entry *entry)
{
    if (entry->summed)
        rfs_image_add(encoder->builder, RFS_STORAGE_CRC, (uint64_t)entry->region << 3, 4);
    else
        rfs_image_put_little(&encoder->builder->literals, entry->crc, 4);
}

/* Puts the header behind a content of at least one byte. */
static void put_descriptor(struct encoder *encoder, const struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder->literals;
    const unsigned width = OVERFLOWS(entry->bytes) || OVERFLOWS(entry->header) ? 8 : 4;

    rfs_bytes_put(out, "PK\7\10", 4);
    put_crc(encoder, entry);
    PUT(out, "", {entry->bytes, width}, {entry->bytes, width});
}

/* Adds an entry to the directory. */
static void list_entry(struct encoder *encoder, const struct entry *entry)
{
    if (!RFS_PUSH(&encoder->entries, *entry))
        encoder->builder->failed = true;
}

/* Begins an entry of literals, which end_small ends. */
static struct entry begin_small(struct encoder *encoder, const char *name)
{
    struct entry entry = {.name = name, .bytes = 1};

    put_local(encoder, &entry);
    return entry;
}

/* Ends an entry whose content begins AT bytes into the literals. */
static void end_small(struct encoder *encoder, struct entry *entry, size_t at)
{
    const struct rfs_bytes *out = &encoder->builder->literals;

    entry->bytes = out->n - at;
    if (!out->failed)
        entry->crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), out->data + at, out->n - at);
    put_descriptor(encoder, entry);
    list_entry(encoder, entry);
}

static void add_small(struct encoder *encoder, const char *name, const char *content)
{
    struct entry entry = begin_small(encoder, name);
    const size_t at = encoder->builder->literals.n;

    rfs_bytes_put_text(&encoder->builder->literals, content);
    end_small(encoder, &entry, at);
}

/* Adds the pickle of the document, which gives the storages their numbers. */
static int add_pickle(struct encoder *encoder)
{
    struct entry entry = begin_small(encoder, "data.pkl");
    const size_t at = encoder->builder->literals.n;
    const int rc = rfs_pickler_write(encoder->content->document->root, number_storage, encoder,
                                     &encoder->builder->literals, encoder->err);

    if (rc == 0)
        end_small(encoder, &entry, at);
    return rc;
}

static void add_storage(struct encoder *encoder, uint32_t number)
{
    const uint32_t target = encoder->targets.data[number];
    const struct rfs_storage_item *item =
        encoder->content->origins ? &encoder->storages.items.data[target] : NULL;
    struct entry entry = {.number = number, .bytes = encoder->sizes.data[number]};

    if (entry.bytes > 0 && item && item->crc_known)
        entry.crc = item->crc;
    else
        entry.summed = entry.bytes > 0 && encoder->content->crc;
    put_local(encoder, &entry);
    entry.region = rfs_image_add(encoder->builder, target, encoder->at, entry.bytes);
    if (entry.bytes > 0)
        put_descriptor(encoder, &entry);
    list_entry(encoder, &entry);
}

static void put_central(struct encoder *encoder, const struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder->literals;
    const bool wide_size = OVERFLOWS(entry->bytes);
    const bool wide_offset = OVERFLOWS(entry->header);
    const unsigned extra = (wide_size ? 16u : 0u) + (wide_offset ? 8u : 0u);
    const uint64_t size = wide_size ? UINT32_MAX : entry->bytes;
    char text[NAME_MOST];
    const size_t name = name_of(encoder, entry, text);

    PUT(out, "PK\1\2", {0, 4}, {flags_of(entry), 2}, {0, 6});
    put_crc(encoder, entry);
    PUT(out, "", {size, 4}, {size, 4}, {name, 2}, {extra > 0 ? extra + 4 : 0, 2}, {0, 2}, {0, 8},
        {wide_offset ? UINT32_MAX : entry->header, 4});
    rfs_bytes_put(out, text, name);
    if (extra > 0)
        PUT(out, "", {1, 2}, {extra, 2});
    if (wide_size)
        PUT(out, "", {entry->bytes, 8}, {entry->bytes, 8});
    if (wide_offset)
        rfs_image_put_little(out, entry->header, 8);
}

/* Puts the directory and the ends, the one of zip64 always, as torch writes it. */
static void put_directory(struct encoder *encoder)
{
    struct rfs_bytes *out = &encoder->builder->literals;
    const uint64_t begin = here(encoder);
    const uint64_t n = encoder->entries.n;
    const uint64_t few = n < 0xffff ? n : 0xffff;

    for (size_t i = 0; i < n; i++)
        put_central(encoder, &encoder->entries.data[i]);
    const uint64_t end = here(encoder);
    PUT(out, "PK\6\6", {44, 8}, {0x031e, 2}, {0x002d, 2}, {0, 8}, {n, 8}, {n, 8}, {end - begin, 8},
        {begin, 8});
    PUT(out, "PK\6\7", {0, 4}, {end, 8}, {1, 4});
    PUT(out, "PK\5\6", {0, 4}, {few, 2}, {few, 2},
        {OVERFLOWS(end - begin) ? UINT32_MAX : end - begin, 4},
        {OVERFLOWS(begin) ? UINT32_MAX : begin, 4}, {0, 2});
}

static int encode(struct encoder *encoder)
{
    const int rc = add_pickle(encoder);

    if (rc)
        return rc;
    add_small(encoder, "byteorder", "little");
    for (uint32_t i = 0; i < encoder->sizes.n && !encoder->builder->failed; i++)
        add_storage(encoder, i);
    add_small(encoder, "version", "3\n");
    put_directory(encoder);
    return 0;
}

int rfs_torch_encode_item(struct rfs_image_builder *builder, const struct rfs_torch_item *item,
                          struct rfs_error *err)
{
    struct rfs_document document = {0};
    const struct rfs_torch_content content = {
        .document = &document, .stem = "archive", .crc = item->crc};
    RFS_CLEANUP(encoder_end)
    struct encoder encoder = {.content = &content,
                              .builder = builder,
                              .base = rfs_image_here(builder),
                              .target = item->target,
                              .at = item->at,
                              .err = err};

    rfs_document_reserve(&document, item->type->bytes);
    document.root = rfs_document_tensor(&document, (enum rfs_dtype)item->type->dtype,
                                        item->type->ndim, item->type->dims);
    const int rc = !document.failed ? encode(&encoder) : rfs_fail_memory(err);
    rfs_document_free(&document);
    return rc;
}

int rfs_torch_encode(const struct rfs_torch_content *content, struct rfs_image **out,
                     struct rfs_error *err)
{
    RFS_CLEANUP(rfs_image_builder_end) struct rfs_image_builder builder = {0};
    RFS_CLEANUP(encoder_end)
    struct encoder encoder = {.content = content, .builder = &builder, .err = err};

    *out = NULL;
    int rc = encode(&encoder);
    if (rc)
        return rc;
    rc = rfs_image_finish(&builder, out);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(content->path), NULL,
                        "'%s.pt' would be larger than a file can be", content->stem);
    if (rc)
        return rfs_fail_memory(err);
    if (!content->origins || rfs_image_take_storages(*out, &encoder.storages))
        return 0;
    rfs_image_free(*out);
    *out = NULL;
    return rfs_fail_memory(err);
}
