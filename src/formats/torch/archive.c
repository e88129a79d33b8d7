/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.save since torch 1.6: a zip archive of stored entries, in one folder named after the file:
 *
 *     NAME/data.pkl     the object, a pickle of protocol 2; tensors name their storages by key
 *     NAME/data/KEY     the bytes of a storage
 *     NAME/byteorder    "little" (torch 2; absent before)
 *     NAME/version      a number up to 10
 *
 * tensor.c draws the contents of the pickle.
 *
 * Source: torch/serialization.py of 1.13 and 2.9.
 */
#include "formats/torch/archive.h"

#include "base/cleanup.h"
#include "base/share.h"
#include "store/files.h"

#define REMEDY_SAVE "save it again with torch.save of torch 1.6 or later"
#define REMEDY_COPY "compare the file with its original, or save it again"
#define NO_PICKLE "the archive has no data.pkl, so it is not written by torch.save"
#define VERSION_MOST 10
#define LONG_PICKLE (16u << 20)

struct opening {
    rfs_read_fn *read;
    void *ctx;
    uint64_t size;
    uint16_t origin;
    const char *file;
    struct rfs_budget *budget; /* or NULL */
    struct rfs_torch *torch;
    struct rfs_error *err;
    bool pieces;
};

static int read_at(const struct opening *opening, void *buf, size_t n, uint64_t offset)
{
    const int rc = opening->read(opening->ctx, buf, n, offset);

    return rc ? rfs_fail_read(opening->err, RFS_AT(opening->file, offset), rc) : 0;
}

static int fail(const struct opening *opening, int code, const char *remedy, const char *what)
{
    return rfs_fail(opening->err, code, RFS_IN(opening->file), remedy, "%s", what);
}

/* The kind of file, by its first bytes. */
static int check_magic(const struct opening *opening)
{
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc};
    unsigned char head[6] = {0};

    if (opening->size < sizeof head)
        return fail(opening, -EINVAL, REMEDY_COPY,
                    "the file is truncated, or not written by torch.save");
    const int rc = read_at(opening, head, sizeof head, 0);
    if (rc)
        return rc;
    if (memcmp(head, legacy, sizeof head) == 0)
        return fail(opening, -ENOTSUP,
                    "torch.save(torch.load(FILE, map_location=\"cpu\"), FILE) with torch 1.6 or "
                    "later",
                    "the file is of torch.save's format before 1.6");
    if (memcmp(head, "PK\3\4", 4) != 0)
        return fail(opening, -EINVAL, REMEDY_SAVE, "the file is not written by torch.save");
    return 0;
}

const struct rfs_zip_entry *rfs_torch_entry(const struct rfs_torch *torch, const char *name,
                                            size_t name_bytes)
{
    char path[1024];
    const size_t n = torch->prefix_bytes + 1 + name_bytes;

    if (n >= sizeof path)
        return NULL;
    memcpy(path, torch->prefix, torch->prefix_bytes);
    path[torch->prefix_bytes] = '/';
    memcpy(path + torch->prefix_bytes + 1, name, name_bytes);
    return rfs_zip_find(&torch->zip, path, n);
}

/* All entries are in one folder; torch's reader insists on it. */
static int find_prefix(const struct opening *opening)
{
    struct rfs_torch *torch = opening->torch;

    for (size_t i = 0; i < torch->zip.n; i++) {
        const struct rfs_zip_entry *entry = &torch->zip.entries[i];
        const char *slash = memchr(entry->name, '/', entry->name_bytes);
        if (i == 0 && slash) {
            torch->prefix = entry->name;
            torch->prefix_bytes = (size_t)(slash - entry->name);
        }
        if (!slash || (size_t)(slash - entry->name) != torch->prefix_bytes ||
            memcmp(entry->name, torch->prefix, torch->prefix_bytes) != 0)
            return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->file, entry->name), REMEDY_SAVE,
                            "the archive's entries are not all in one folder, as torch.save puts "
                            "them");
    }
    if (rfs_torch_entry(torch, "constants.pkl", 13))
        return fail(opening, -ENOTSUP, "save its state_dict() with torch.save",
                    "the file is a TorchScript archive");
    return 0;
}

/* A small entry's content as a text; empty when there is no such entry. */
static int read_small(const struct opening *opening, const char *name, char *text, size_t cap)
{
    const struct rfs_zip_entry *entry = rfs_torch_entry(opening->torch, name, strlen(name));

    *text = '\0';
    if (!entry)
        return 0;
    if (entry->bytes >= cap)
        return rfs_fail(opening->err, -EINVAL, RFS_OF(opening->file, name), REMEDY_COPY,
                        "the archive's entry is too long");
    const int rc = read_at(opening, text, (size_t)entry->bytes, entry->offset);
    if (rc)
        return rc;
    text[entry->bytes] = '\0';
    return 0;
}

static int check_versions(const struct opening *opening)
{
    char version[32];
    char order[32];

    int rc = read_small(opening, "version", version, sizeof version)
                 ?: read_small(opening, "byteorder", order, sizeof order);
    if (rc)
        return rc;
    char *end;
    const unsigned long number = strtoul(version, &end, 10);
    if (end == version || (*end && *end != '\n') || number < 1 || number > VERSION_MOST)
        return rfs_fail(opening->err, -ENOTSUP, RFS_IN(opening->file), REMEDY_SAVE,
                        "the file's version is not one of 1 to %d", VERSION_MOST);
    if (*order && strcmp(order, "little") != 0)
        return fail(opening, -ENOTSUP, "save it again on a little-endian machine",
                    "the file's byte order is not little-endian");
    return 0;
}

/*
 * Of a long pickle, whether it ends as one: a hole in a sparse file is not read as a whole to find
 * out.
 */
static int look(const struct opening *opening, const struct rfs_zip_entry *entry)
{
    const uint64_t end = entry->offset + entry->bytes;
    char last = '.';
    const int rc = entry->bytes > LONG_PICKLE ? read_at(opening, &last, 1, end - 1) : 0;

    return rc            ? rc
           : last == '.' ? 0
                         : rfs_fail(opening->err, -EINVAL, RFS_AT(opening->file, end - 1),
                                    REMEDY_COPY, "the pickle in it is damaged: it has no end");
}

static int read_pickle(const struct opening *opening)
{
    const struct rfs_zip_entry *entry = rfs_torch_entry(opening->torch, "data.pkl", 8);

    if (!entry)
        return fail(opening, -EINVAL, REMEDY_SAVE, NO_PICKLE);
    if (entry->bytes > RFS_PICKLE_MOST)
        return rfs_fail(opening->err, -EFBIG, RFS_AT(opening->file, entry->offset), NULL,
                        "the pickle in it has more than %zu bytes", RFS_PICKLE_MOST);
    int rc = look(opening, entry);
    if (rc)
        return rc;
    const size_t n = (size_t)entry->bytes;
    rc = rfs_share_take(&opening->torch->share, n + rfs_pickle_memory(n));
    if (rc < 0)
        return rfs_files_fail(opening->err, opening->file, rc);
    RFS_FREE unsigned char *bytes = malloc(n + 1);
    if (!bytes)
        return rfs_fail_memory(opening->err);
    rc = read_at(opening, bytes, n, entry->offset);
    if (rc)
        return rc;
    const struct rfs_pickle_from from = {opening->file, entry->offset, opening->origin,
                                         opening->budget, opening->pieces};
    return rfs_pickle_read(RFS_STEAL(bytes), n, &from, &opening->torch->pickle, opening->err);
}

static int open_archive(const struct opening *opening)
{
    struct rfs_torch *torch = opening->torch;

    *torch = (struct rfs_torch){.prefix = ""};
    return check_magic(opening)
            ?: rfs_zip_open(opening->read, opening->ctx, opening->size, opening->file,
                            opening->budget, &torch->zip, opening->err)
            ?: find_prefix(opening)
            ?: check_versions(opening);
}

static int open_all(const struct opening *opening)
{
    int rc = open_archive(opening) ?: read_pickle(opening);

    if (rc < 0)
        rfs_torch_free(opening->torch);
    return rc;
}

int rfs_torch_open(rfs_read_fn *read, void *ctx, uint64_t size, uint16_t origin, const char *file,
                   struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {read, ctx, size, origin, file, NULL, out, err, false};

    return open_all(&opening);
}

int rfs_torch_open_pieces(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                          struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {read, ctx, size, 0, file, NULL, out, err, true};

    return open_all(&opening);
}

int rfs_torch_keep(rfs_read_fn *read, void *ctx, uint64_t size, uint16_t origin, const char *file,
                   struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    const struct opening opening = {read, ctx, size, origin, file, budget, out, err, false};
    const int rc = open_all(&opening);

    rfs_share_give(&out->share);
    return rc;
}

/* ---- proof without reading the object -------------------------------------------------------- */

/* Whether data.pkl may be a pickle: its last opcode is a dot, and none is 0. */
static int check_pickle(const struct opening *opening, const struct rfs_zip_entry **entry)
{
    char ends[2] = {0};

    *entry = rfs_torch_entry(opening->torch, "data.pkl", 8);
    if (!*entry)
        return fail(opening, -EINVAL, REMEDY_SAVE, NO_PICKLE);
    int rc = (*entry)->bytes < 2
                 ? 0
                 : read_at(opening, &ends[0], 1, (*entry)->offset)
                       ?: read_at(opening, &ends[1], 1, (*entry)->offset + (*entry)->bytes - 1);
    if (rc == 0 && (ends[0] == 0 || ends[1] != '.'))
        rc = rfs_fail(opening->err, -EINVAL, RFS_AT(opening->file, (*entry)->offset), REMEDY_COPY,
                      "the pickle in it is damaged: it has no %s", ends[0] ? "end" : "beginning");
    return rc;
}

int rfs_torch_prove(rfs_read_fn *read, void *ctx, uint64_t size, const char *file, bool all,
                    struct rfs_error *err)
{
    struct rfs_torch torch;
    const struct opening opening = {read, ctx, size, 0, file, NULL, &torch, err, false};
    const struct rfs_zip_entry *pickle = NULL;

    bool lacks = false;

    int rc = open_archive(&opening) ?: check_pickle(&opening, &pickle);
    if (rc == 0 && !all)
        rc = rfs_zip_verify_entry(read, ctx, size, file, pickle, err);
    for (size_t i = 0; rc >= 0 && all && i < torch.zip.n; i++) {
        rc = rfs_zip_verify_entry(read, ctx, size, file, &torch.zip.entries[i], err);
        lacks |= rc == 1;
    }
    rfs_torch_free(&torch);
    return rc < 0 ? rc : lacks;
}

void rfs_torch_free(struct rfs_torch *torch)
{
    rfs_zip_free(&torch->zip);
    rfs_pickle_free(&torch->pickle);
    rfs_share_give(&torch->share);
    *torch = (struct rfs_torch){.prefix = ""};
}
