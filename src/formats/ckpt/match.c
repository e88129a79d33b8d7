/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is this index also that of another file? An index keeps no headers, but where values follow each
 * other as MindSpore writes them (walk.c draws it), the header of a content begins where the
 * content before it ends, and the index determines every byte of it. So the bytes there are
 * compared with the expected ones: when all agree, only the contents can differ.
 * Anything else (a map tensor, another order of fields, an unknown one) is left to a walk.
 */
#include "formats/ckpt/walk.h"

#include "base/checked.h"
#include "base/secret.h"

#define BATCH 32                   /* values a task, at least */
#define NEAR (UINT64_C(16) << 10)  /* contents up to this long are read rather than jumped over */
#define SPAN (UINT64_C(256) << 10) /* the most that is read at once, unless a name is longer */
/* The same of object storage, where a request takes as long as many bytes; 64 spans are 32 MiB. */
#define NEAR_REMOTE (UINT64_C(32) << 10)
#define SPAN_REMOTE (UINT64_C(512) << 10)
#define TRAILER_BYTES UINT64_C(17)

struct match {
    rfs_read_fn *read;
    void *ctx;
    const struct rfs_index *template;
    const struct rfs_tables *tables;
    size_t batch; /* values a task */
    uint64_t near, span;
};

/* A header and its content; steps through an index in file order. */
struct place {
    size_t entry;
    uint32_t extent; /* within the entry */
    uint64_t header; /* where the header begins */
    struct rfs_extent content;
};

static struct rfs_extent extent_of(const struct match *match, size_t i, uint32_t extent)
{
    const struct rfs_entry *entry = &match->template->entries[i];
    if (entry->extent_count > 0)
        return match->template->extents[entry->extent + extent];
    const struct rfs_type *type = rfs_intern_bytes(match->tables->types, entry->type, NULL);
    return (struct rfs_extent){entry->offset, type->bytes};
}

static struct place place_at(const struct match *match, size_t i)
{
    struct place place = {.entry = i, .content = extent_of(match, i, 0)};
    if (i > 0) {
        const uint32_t count = match->template->entries[i - 1].extent_count;
        const struct rfs_extent before = extent_of(match, i - 1, count > 0 ? count - 1 : 0);
        place.header = before.offset + before.bytes;
    }
    return place;
}

/* False past the value with number STOP - 1. */
static bool place_next(const struct match *match, struct place *place, size_t stop)
{
    place->header = place->content.offset + place->content.bytes;
    if (++place->extent >= match->template->entries[place->entry].extent_count) {
        place->extent = 0;
        if (++place->entry >= stop)
            return false;
    }
    place->content = extent_of(match, place->entry, place->extent);
    return true;
}

/* Takes expected bytes off the front of a header. */
struct rest {
    const unsigned char *p;
    size_t n;
    bool same;
};

static void expect(struct rest *rest, const void *bytes, size_t n)
{
    if (!rest->same || n > rest->n || memcmp(rest->p, bytes, n) != 0) {
        rest->same = false;
        return;
    }
    rest->p += n;
    rest->n -= n;
}

/* How many bytes a varint takes. */
static size_t varint_bytes(uint64_t value)
{
    return (70U - (unsigned)__builtin_clzll(value | 1)) / 7;
}

static void expect_byte(struct rest *rest, unsigned char byte)
{
    rest->same = rest->same && rest->n > 0 && *rest->p == byte;
    rest->p += rest->same;
    rest->n -= rest->same;
}

static void expect_field(struct rest *rest, unsigned char key, uint64_t value)
{
    expect_byte(rest, key);
    for (; value >= 0x80; value >>= 7)
        expect_byte(rest, (unsigned char)(value | 0x80));
    expect_byte(rest, (unsigned char)value);
}

/* Whether these N bytes are the header of a value, with dims [0] for a scalar's if ZERO. */
static bool is_header(const struct match *match, const struct place *place,
                      const unsigned char *bytes, size_t n, bool zero)
{
    const struct rfs_entry *entry = &match->template->entries[place->entry];
    const struct rfs_type *type = rfs_intern_bytes(match->tables->types, entry->type, NULL);
    const char *dtype = rfs_dtype_name((enum rfs_dtype)type->dtype);
    const size_t dtype_n = strlen(dtype);
    size_t name_n;
    const char *name = rfs_intern_bytes(match->tables->names, entry->name, &name_n);
    uint64_t tensor = zero ? 2 : 0;
    for (unsigned i = 0; i < type->ndim; i++)
        tensor += 1 + varint_bytes(type->dims[i]);
    tensor += 2 + dtype_n + 1 + varint_bytes(place->content.bytes) + place->content.bytes;
    const uint64_t value = 1 + varint_bytes(name_n) + name_n + 1 + varint_bytes(tensor) + tensor;

    struct rest rest = {bytes, n, true};
    expect_field(&rest, 0x0a, value);
    expect_field(&rest, 0x0a, name_n);
    expect(&rest, name, name_n);
    expect_field(&rest, 0x12, tensor);
    if (zero)
        expect_field(&rest, 0x08, 0);
    for (unsigned i = 0; i < type->ndim; i++)
        expect_field(&rest, 0x08, type->dims[i]);
    expect_field(&rest, 0x12, dtype_n);
    expect(&rest, dtype, dtype_n);
    expect_field(&rest, 0x1a, place->content.bytes);
    return rest.same && rest.n == 0;
}

/*
 * Whether these bytes, up to the content, are the header of a value; a scalar's may be written in
 * two ways.
 */
static bool is_value(const struct match *match, const struct place *place,
                     const unsigned char *bytes)
{
    const struct rfs_type *type =
        rfs_intern_bytes(match->tables->types, match->template->entries[place->entry].type, NULL);
    const bool scalar =
        type->kind == RFS_TENSOR && type->ndim == 0 && place->content.bytes == type->bytes;
    const size_t n = (size_t)(place->content.offset - place->header);

    return is_header(match, place, bytes, n, false) ||
           (scalar && is_header(match, place, bytes, n, true));
}

/* How far one read from this header on is worth going: over near contents, up to a header's end. */
static uint64_t span_end(const struct match *match, struct place place, size_t stop)
{
    const uint64_t begin = place.header;
    uint64_t end = place.content.offset;
    while (place.content.bytes <= match->near && place_next(match, &place, stop) &&
           place.content.offset >= end && place.content.offset - begin <= match->span)
        end = place.content.offset;
    return end;
}

/* Task I: 0 when its values' headers agree, 1 when one does not, or -errno. */
static int match_batch(void *ctx, size_t i)
{
    const struct match *match = ctx;
    const size_t first = i * match->batch;
    const size_t stop = (size_t)rfs_min_u64(match->template->n, first + match->batch);
    struct place place = place_at(match, first);
    unsigned char *buf = NULL;
    size_t cap = 0;
    uint64_t start = 0;
    uint64_t end = 0;
    int rc = 0;
    do {
        const uint64_t header = place.header;
        if (place.content.offset <= header || place.content.offset > match->template->file_bytes) {
            rc = 1;
            break;
        }
        if (header < start || place.content.offset > end) {
            start = header;
            end = span_end(match, place, stop);
            const size_t n = (size_t)(end - start);
            if (n > cap) {
                rfs_wipe(buf, cap);
                free(buf);
                buf = malloc(n);
                cap = buf ? n : 0;
            }
            if (!buf) {
                rc = -ENOMEM;
                break;
            }
            rc = match->read(match->ctx, buf, n, start);
            if (rc < 0)
                break;
        }
        rc = !is_value(match, &place, buf + (header - start));
    } while (rc == 0 && place_next(match, &place, stop));
    rfs_wipe(buf, cap); /* contents lie between headers, and files may be encrypted */
    free(buf);
    return rc;
}

/* Whether the file ends as LIKE: 1, 0 or -errno. */
static int match_end(const struct match *match)
{
    const struct rfs_index *template = match->template;
    struct place last = place_at(match, template->n - 1);
    while (place_next(match, &last, template->n))
        continue;
    const uint64_t left = template->file_bytes - last.header;
    if (left != (template->has_crc ? TRAILER_BYTES : 0))
        return 0;
    char bytes[7];
    const int rc = left > 0 ? match->read(match->ctx, bytes, sizeof bytes, last.header) : 0;
    if (rc < 0)
        return rc;
    return left == 0 || memcmp(bytes, "crc_num", sizeof bytes) == 0;
}

/* Whether a file of that size may be like LIKE, and ends as it: 1, 0 or -errno. */
static int match_size(const struct match *match, uint64_t size)
{
    const struct rfs_index *template = match->template;
    if (size != template->file_bytes || template->n == 0)
        return 0;
    for (size_t i = 0; i < template->n; i++) {
        const struct rfs_type *type =
            rfs_intern_bytes(match->tables->types, template->entries[i].type, NULL);
        if (type->kind == RFS_MAP)
            return 0;
    }
    return match_end(match);
}

/* The header of entry I: 1, 0 or -errno. */
static int match_one(const struct match *match, size_t i)
{
    const struct place place = place_at(match, i);
    if (place.content.offset <= place.header || place.content.offset > match->template->file_bytes)
        return 0;
    const size_t n = (size_t)(place.content.offset - place.header);
    unsigned char *buf = malloc(n);
    if (!buf)
        return -ENOMEM;
    int rc = match->read(match->ctx, buf, n, place.header) ?: is_value(match, &place, buf);
    rfs_wipe(buf, n);
    free(buf);
    return rc;
}

int rfs_ckpt_resembles(rfs_read_fn *read, void *ctx, uint64_t size,
                       const struct rfs_index *template, struct rfs_tables *tables, size_t samples)
{
    const struct match match = {.read = read, .ctx = ctx, .template = template, .tables = tables};
    int rc = match_size(&match, size);
    for (size_t k = 0; rc == 1 && k < samples; k++)
        rc = match_one(&match, k * (template->n - 1) / (samples - 1));
    return rc;
}

int rfs_ckpt_matches(rfs_read_fn *read, void *ctx, uint64_t size, const struct rfs_index *template,
                     struct rfs_tables *tables, struct rfs_pool *pool)
{
    struct match match = {.read = read, .ctx = ctx, .template = template, .tables = tables};
    int rc = match_size(&match, size);
    if (rc != 1)
        return rc;
    const bool remote = rfs_pool_expects_waits(pool);
    match.near = remote ? NEAR_REMOTE : NEAR;
    match.span = remote ? SPAN_REMOTE : SPAN;
    /* As many as one read takes, where they are small. */
    const uint64_t each = rfs_max_u64(template->file_bytes / template->n, 1);
    const uint64_t fit = match.span / each;
    match.batch = (size_t)(!remote              ? rfs_max_u64(BATCH, fit / BATCH * BATCH)
                           : each <= match.near ? fit
                                                : 1);
    const size_t tasks = template->n / match.batch + (template->n % match.batch != 0);
    rc = 0;
    if (pool)
        rc = rfs_pool_for(pool, tasks, match_batch, &match);
    for (size_t i = 0; !pool && rc == 0 && i < tasks; i++)
        rc = match_batch(&match, i);
    return rc < 0 ? rc : rc == 0;
}
