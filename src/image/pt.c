/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a file of torch.save (source/torch/zip.c draws zip archives, source/torch/archive.c what is in them):
 *
 *     STEM/data.pkl | STEM/byteorder | STEM/data/0 | STEM/data/1 | … | STEM/version | the directory
 *
 * Storages are numbered in the order in which the pickle names them. As torch writes them, contents begin
 * at multiples of 64 by an extra field "FB" of Zs in the local header, and sizes and checksums stand behind
 * the content and in the directory, not before it: so all but the tensors and the checksums of some is
 * known, and literal. A checksum that would take reading is 0, or a region to compute.
 */
#include "image/pt.h"

#include "base/cleanup.h"
#include "image/build.h"
#include "image/pickle_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

enum { ALIGN = 64, LOCAL_BYTES = 30, EXTRA_HEAD = 4, EXTRA64_LOCAL = 28 };
#define OVERFLOWS(number) ((number) >= UINT32_MAX)

#define NAME_MOST 300

/* An entry of the archive. */
struct entry {
    const char *name; /* in the folder; NULL: data/ and the number */
    uint32_t number;
    uint64_t header; /* where its local header is */
    uint64_t bytes;
    uint32_t crc;
    bool summed;   /* the checksum is to be computed, of */
    size_t region; /* this region */
};

struct encoder {
    const struct rfs_pt_config *config;
    struct rfs_image_builder builder;
    struct rfs_bytes pickle;
    struct rfs_storages storages;
    RFS_VEC(uint64_t) sizes;   /* of the storages */
    RFS_VEC(uint32_t) targets; /* of the storages: in the stock or in the parameter list */
    RFS_VEC(const void *) met; /* by storage: the record or the made storage that it is */
    uint32_t *table;           /* open addressing over met: number + 1 */
    size_t cap;
    RFS_VEC(struct entry) entries;
    struct rfs_error *err;
};

static void encoder_end(struct encoder *encoder)
{
    rfs_image_builder_end(&encoder->builder);
    free(encoder->pickle.data);
    rfs_storages_free(&encoder->storages);
    free(encoder->sizes.data);
    free(encoder->targets.data);
    free(encoder->met.data);
    free(encoder->table);
    free(encoder->entries.data);
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

static bool add_made(struct encoder *encoder, const struct rfs_made_storage *made)
{
    const struct rfs_document *document = encoder->config->document;

    if (encoder->config->params)
        return RFS_PUSH(&encoder->sizes, made->bytes) &&
               RFS_PUSH(&encoder->targets, (uint32_t)(made - document->made.data));
    if (!rfs_storages_begin(&encoder->storages))
        return false;
    for (size_t i = 0; i < made->n; i++) {
        const struct rfs_range *range = &document->ranges.data[made->first + i];
        const uint32_t file = rfs_catalog_file(encoder->config->catalog, range->origin);
        if (!rfs_storages_add(&encoder->storages, file, range))
            return false;
    }
    return RFS_PUSH(&encoder->sizes, made->bytes) &&
           RFS_PUSH(&encoder->targets, (uint32_t)encoder->storages.items.n - 1);
}

static bool add_record(struct encoder *encoder, const struct rfs_zip_entry *record, uint16_t origin)
{
    const struct rfs_range range = {record, 0, record->bytes, origin};
    const uint32_t file = rfs_catalog_file(encoder->config->catalog, origin);

    return rfs_storages_begin(&encoder->storages) &&
           rfs_storages_add(&encoder->storages, file, &range) &&
           RFS_PUSH(&encoder->sizes, record->bytes) &&
           RFS_PUSH(&encoder->targets, (uint32_t)encoder->storages.items.n - 1);
}

/* The number of a storage: the next one when it is met for the first time. */
static int number_storage(void *ctx, const struct rfs_node *storage, uint32_t *key)
{
    struct encoder *encoder = ctx;
    const struct rfs_pt_config *config = encoder->config;
    const struct rfs_zip_entry *record = NULL;
    const struct rfs_made_storage *made = NULL;
    const void *what;

    if (storage->origin == RFS_ORIGIN_MADE) {
        made = &config->document->made.data[storage->number];
        what = made;
    } else {
        const uint32_t file = rfs_catalog_file(config->catalog, storage->origin);
        const int rc = rfs_torch_record(config->torch(config->ctx, storage->origin), storage,
                                        rfs_files_path(rfs_catalog_files(config->catalog), file),
                                        NULL, &record, encoder->err);
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

static bool put_little(struct rfs_bytes *bytes, uint64_t number, unsigned n)
{
    unsigned char little[8];

    for (unsigned i = 0; i < n; i++)
        little[i] = (unsigned char)(number >> (8 * i));
    return rfs_bytes_put(bytes, little, n);
}

static bool put_fill(struct rfs_bytes *bytes, size_t n)
{
    static const char fill[] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                               "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    return rfs_bytes_put(bytes, fill, n);
}

/* An entry's name with that of the folder; its length. */
static size_t name_of(const struct encoder *encoder, const struct entry *entry, char *name)
{
    const char *stem = encoder->config->stem;
    const int n = entry->name ? snprintf(name, NAME_MOST, "%s/%s", stem, entry->name)
                              : snprintf(name, NAME_MOST, "%s/data/%u", stem, entry->number);
    return (size_t)n; /* it has room: a stem is not longer than a file's name */
}

/* The local header, up to the content. */
static bool put_local(struct encoder *encoder, struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder.literals;
    const size_t at = out->n;
    char text[NAME_MOST];
    const size_t name = name_of(encoder, entry, text);
    const bool wide = OVERFLOWS(entry->bytes) || OVERFLOWS(encoder->builder.offset);

    entry->header = encoder->builder.offset;
    const uint64_t before =
        entry->header + LOCAL_BYTES + name + (wide ? EXTRA64_LOCAL : 0) + EXTRA_HEAD;
    const size_t fill = (size_t)((ALIGN - before % ALIGN) % ALIGN);
    const size_t extra = (size_t)(wide ? EXTRA64_LOCAL : 0) + EXTRA_HEAD + fill;
    bool ok = rfs_bytes_put(out, "PK\3\4", 4) && put_little(out, 0, 2) &&
              put_little(out, entry->bytes > 0 ? 0x0808 : 0x0800, 2) && put_little(out, 0, 2 + 4) &&
              put_little(out, 0, 4) && put_little(out, wide ? UINT32_MAX : 0, 4) &&
              put_little(out, wide ? UINT32_MAX : 0, 4) && put_little(out, name, 2) &&
              put_little(out, extra, 2) && rfs_bytes_put(out, text, name);
    if (ok && wide)
        ok = put_little(out, 1, 2) && put_little(out, EXTRA64_LOCAL - 4, 2) &&
             put_little(out, 0, 8) && put_little(out, 0, 8) && put_little(out, entry->header, 8);
    return ok && rfs_bytes_put(out, "FB", 2) && put_little(out, fill, 2) && put_fill(out, fill) &&
           rfs_image_add_literals(&encoder->builder, at);
}

/* Four bytes of checksum: as known, or to be computed. */
static bool put_crc(struct encoder *encoder, const struct entry *entry)
{
    const size_t at = encoder->builder.literals.n;

    if (entry->summed)
        return rfs_image_add(&encoder->builder, RFS_STORAGE_CRC, (uint64_t)entry->region << 3, 4);
    return put_little(&encoder->builder.literals, entry->crc, 4) &&
           rfs_image_add_literals(&encoder->builder, at);
}

/* What follows a content of at least one byte. */
static bool put_descriptor(struct encoder *encoder, const struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder.literals;
    const unsigned width = OVERFLOWS(entry->bytes) || OVERFLOWS(entry->header) ? 8 : 4;
    size_t at = out->n;

    if (!rfs_bytes_put(out, "PK\7\10", 4) || !rfs_image_add_literals(&encoder->builder, at) ||
        !put_crc(encoder, entry))
        return false;
    at = out->n;
    return put_little(out, entry->bytes, width) && put_little(out, entry->bytes, width) &&
           rfs_image_add_literals(&encoder->builder, at);
}

static struct entry *new_entry(struct encoder *encoder, const char *name, uint32_t number)
{
    return RFS_PUSH(&encoder->entries, (struct entry){.name = name, .number = number})
               ? &encoder->entries.data[encoder->entries.n - 1]
               : NULL;
}

static bool add_small(struct encoder *encoder, const char *name, const void *content, size_t n)
{
    struct entry *entry = new_entry(encoder, name, 0);

    if (!entry)
        return false;
    entry->bytes = n;
    entry->crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), content, n);
    if (!put_local(encoder, entry))
        return false;
    const size_t at = encoder->builder.literals.n;
    return rfs_bytes_put(&encoder->builder.literals, content, n) &&
           rfs_image_add_literals(&encoder->builder, at) && put_descriptor(encoder, entry);
}

static bool add_storage(struct encoder *encoder, uint32_t number)
{
    const uint32_t target = encoder->targets.data[number];
    struct entry *entry = new_entry(encoder, NULL, number);

    if (!entry)
        return false;
    entry->bytes = encoder->sizes.data[number];
    const struct rfs_storage_item *item =
        encoder->config->params ? NULL : &encoder->storages.items.data[target];
    if (entry->bytes > 0 && item && item->crc_known)
        entry->crc = item->crc;
    else
        entry->summed = entry->bytes > 0 && encoder->config->crc;
    if (!put_local(encoder, entry))
        return false;
    entry->region = encoder->builder.regions.n;
    return rfs_image_add(&encoder->builder, target, 0, entry->bytes) &&
           (entry->bytes == 0 || put_descriptor(encoder, entry));
}

static bool put_central(struct encoder *encoder, const struct entry *entry)
{
    struct rfs_bytes *out = &encoder->builder.literals;
    const bool wide_size = OVERFLOWS(entry->bytes);
    const bool wide_offset = OVERFLOWS(entry->header);
    const unsigned extra = (wide_size ? 16u : 0u) + (wide_offset ? 8u : 0u);
    char text[NAME_MOST];
    const size_t name = name_of(encoder, entry, text);
    size_t at = out->n;

    if (!rfs_bytes_put(out, "PK\1\2", 4) || !put_little(out, 0, 4) ||
        !put_little(out, entry->bytes > 0 ? 0x0808 : 0x0800, 2) || !put_little(out, 0, 2 + 4) ||
        !rfs_image_add_literals(&encoder->builder, at) || !put_crc(encoder, entry))
        return false;
    at = out->n;
    const uint64_t size = wide_size ? UINT32_MAX : entry->bytes;
    bool ok = put_little(out, size, 4) && put_little(out, size, 4) && put_little(out, name, 2) &&
              put_little(out, extra > 0 ? extra + 4 : 0, 2) && put_little(out, 0, 2) &&
              put_little(out, 0, 8) &&
              put_little(out, wide_offset ? UINT32_MAX : entry->header, 4) &&
              rfs_bytes_put(out, text, name);
    if (ok && extra > 0)
        ok = put_little(out, 1, 2) && put_little(out, extra, 2);
    if (ok && wide_size)
        ok = put_little(out, entry->bytes, 8) && put_little(out, entry->bytes, 8);
    if (ok && wide_offset)
        ok = put_little(out, entry->header, 8);
    return ok && rfs_image_add_literals(&encoder->builder, at);
}

/* The directory and the ends, that of zip64 always, as torch writes it. */
static bool put_directory(struct encoder *encoder)
{
    struct rfs_bytes *out = &encoder->builder.literals;
    const uint64_t begin = encoder->builder.offset;
    const uint64_t n = encoder->entries.n;

    for (size_t i = 0; i < n; i++)
        if (!put_central(encoder, &encoder->entries.data[i]))
            return false;
    const uint64_t end = encoder->builder.offset;
    const size_t at = out->n;
    return rfs_bytes_put(out, "PK\6\6", 4) && put_little(out, 44, 8) &&
           put_little(out, 0x031e, 2) && put_little(out, 0x002d, 2) && put_little(out, 0, 8) &&
           put_little(out, n, 8) && put_little(out, n, 8) && put_little(out, end - begin, 8) &&
           put_little(out, begin, 8) && rfs_bytes_put(out, "PK\6\7", 4) && put_little(out, 0, 4) &&
           put_little(out, end, 8) && put_little(out, 1, 4) && rfs_bytes_put(out, "PK\5\6", 4) &&
           put_little(out, 0, 4) && put_little(out, n < 0xffff ? n : 0xffff, 2) &&
           put_little(out, n < 0xffff ? n : 0xffff, 2) &&
           put_little(out, OVERFLOWS(end - begin) ? UINT32_MAX : end - begin, 4) &&
           put_little(out, OVERFLOWS(begin) ? UINT32_MAX : begin, 4) && put_little(out, 0, 2) &&
           rfs_image_add_literals(&encoder->builder, at);
}

static bool encode(struct encoder *encoder)
{
    bool ok = add_small(encoder, "data.pkl", encoder->pickle.data, encoder->pickle.n) &&
              add_small(encoder, "byteorder", "little", 6);

    for (uint32_t i = 0; ok && i < encoder->sizes.n; i++)
        ok = add_storage(encoder, i);
    return ok && add_small(encoder, "version", "3\n", 2) && put_directory(encoder);
}

int rfs_image_pt(const struct rfs_pt_config *config, struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(encoder_end) struct encoder encoder = {.config = config, .err = err};

    *out = NULL;
    int rc =
        rfs_pickle_write(config->document->root, number_storage, &encoder, &encoder.pickle, err);
    if (rc)
        return rc;
    rc = encode(&encoder) ? rfs_image_finish(&encoder.builder, config->params, out) : -ENOMEM;
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(rfs_catalog_path(config->catalog)), NULL,
                        "'%s.pt' would be larger than a file can be", config->stem);
    if (rc)
        return rfs_fail_memory(err);
    if (!config->params) {
        (*out)->storages = calloc(1, sizeof *(*out)->storages);
        if (!(*out)->storages) {
            rfs_image_free(*out);
            *out = NULL;
            return rfs_fail_memory(err);
        }
        *(*out)->storages = encoder.storages;
        encoder.storages = (struct rfs_storages){0};
    }
    return 0;
}
