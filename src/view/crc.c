/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum at the end of a .ckpt file, and those of storages in an archive: the file's own
 * bytes are read through once, when those of the checksum are read. Other readers of a .ckpt file's
 * checksum wait meanwhile.
 */
#include "view/internal.h"

#include "base/cancel.h"
#include "base/checked.h"
#include "base/publish.h"
#include "base/secret.h"

#include <zlib.h>

/* RFS_PIECE bytes for content, to be given to free_buffer; NULL when out of memory. */
static unsigned char *new_buffer(const struct rfs_view *view)
{
    struct rfs_secret *secret = rfs_files_secret(rfs_catalog_files(view->catalog));
    return secret ? rfs_secret_map(secret, RFS_PIECE) : malloc(RFS_PIECE);
}

static void free_buffer(const struct rfs_view *view, unsigned char *buf)
{
    if (rfs_files_secret(rfs_catalog_files(view->catalog)))
        rfs_secret_unmap(buf, RFS_PIECE);
    else
        free(buf);
}

/* The checksum of the file's bytes [begin, end). */
static int sum_up(struct rfs_view *view, size_t file, uint64_t begin, uint64_t end, uint32_t *crc)
{
    unsigned char *buf = new_buffer(view);
    struct reshard_reader *reader = NULL;
    uLong sum = crc32_z(0, NULL, 0);
    ssize_t n = 0;

    int rc = buf ? rfs_view_reader(view, file, &reader) : -ENOMEM;
    for (uint64_t at = begin; at < end && rc == 0; at += (uint64_t)n) {
        if (rfs_cancelled()) { /* all that it reads may be there already */
            rc = -EINTR;
            break;
        }
        n = rfs_view_fetch(reader, buf, (size_t)rfs_min_u64(RFS_PIECE, end - at), at);
        rc = n < 0 ? (int)n : n == 0 ? -EIO : 0;
        if (rc == 0)
            sum = crc32_z(sum, buf, (size_t)n);
    }
    reshard_reader_close(reader);
    free_buffer(view, buf);
    *crc = (uint32_t)sum;
    return rc;
}

int rfs_view_crc(struct rfs_view *view, size_t file, uint32_t *crc)
{
    struct shown_file *shown = &view->files[file];

    pthread_mutex_lock(&view->lock);
    int rc = rfs_once_begin(&shown->crc_made, &view->made, &view->lock);
    if (rc == 1) {
        pthread_mutex_unlock(&view->lock);
        const struct rfs_image *image = RFS_PUBLISHED(&shown->image);
        rc = sum_up(view, file, 0, image->bytes - RFS_CRC_TRAILER, crc);
        pthread_mutex_lock(&view->lock);
        shown->crc = *crc;
        rfs_once_end(&shown->crc_made, &view->made, rc == 0);
    }
    *crc = shown->crc;
    pthread_mutex_unlock(&view->lock);
    return rc;
}

void rfs_view_know_crc(struct rfs_view *view, size_t file, uint32_t crc)
{
    struct shown_file *shown = &view->files[file];

    pthread_mutex_lock(&view->lock);
    if (shown->crc_made.state == RFS_ONCE_NOT_YET) {
        shown->crc_made.state = RFS_ONCE_MADE;
        shown->crc = crc;
    }
    pthread_mutex_unlock(&view->lock);
}

/* Targets of an image. */
static size_t count_targets(const struct rfs_image *image)
{
    return image->storages ? image->storages->items.n : image->params->n;
}

/* Two readers of the same checksum at once both compute it, with the same result. */
int rfs_view_storage_crc(struct rfs_view *view, size_t file, const struct rfs_image *image,
                         size_t region, uint32_t *crc)
{
    struct shown_file *shown = &view->files[file];
    const uint32_t target = image->regions[region].target;

    pthread_mutex_lock(&view->lock);
    if (!shown->storage_crcs)
        shown->storage_crcs = calloc(count_targets(image), sizeof *shown->storage_crcs);
    const bool room = shown->storage_crcs != NULL;
    const uint64_t known = room ? shown->storage_crcs[target] : 0;
    pthread_mutex_unlock(&view->lock);
    *crc = (uint32_t)known;
    if (known || !room)
        return room ? 0 : -ENOMEM;
    const int rc =
        sum_up(view, file, image->regions[region].start, rfs_image_end(image, region), crc);
    if (rc)
        return rc;
    pthread_mutex_lock(&view->lock);
    shown->storage_crcs[target] = UINT64_C(1) << 32 | *crc;
    pthread_mutex_unlock(&view->lock);
    return 0;
}
