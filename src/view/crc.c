/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum at the end of a .ckpt file: the file's own bytes are read through once, when somebody reads
 * those of the checksum. Whoever else wants it meanwhile waits.
 */
#include "view/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

static int sum_up(struct reshard_view *view, size_t file, uint32_t *crc)
{
    const uint64_t end =
        atomic_load_explicit(&view->files[file].image, memory_order_acquire)->bytes -
        RFS_CRC_TRAILER;
    RFS_FREE unsigned char *buf = malloc(RFS_PIECE);
    struct reshard_reader *reader;
    uLong sum = crc32_z(0, NULL, 0);
    ssize_t n = 0;

    int rc = buf ? rfs_view_reader(view, file, &reader) : -ENOMEM;
    if (rc)
        return rc;
    for (uint64_t at = 0; at < end && rc == 0; at += (uint64_t)n) {
        n = rfs_view_fetch(reader, buf, (size_t)rfs_min_u64(RFS_PIECE, end - at), at);
        rc = n < 0 ? (int)n : n == 0 ? -EIO : 0;
        if (rc == 0)
            sum = crc32_z(sum, buf, (size_t)n);
    }
    reshard_reader_close(reader);
    *crc = (uint32_t)sum;
    return rc;
}

int rfs_view_crc(struct reshard_view *view, size_t file, uint32_t *crc)
{
    struct shown_file *shown = &view->files[file];

    pthread_mutex_lock(&view->lock);
    while (shown->crc_state == CRC_BEING_SUMMED)
        pthread_cond_wait(&view->summed, &view->lock);
    const bool known = shown->crc_state == CRC_KNOWN;
    if (!known)
        shown->crc_state = CRC_BEING_SUMMED;
    *crc = shown->crc;
    pthread_mutex_unlock(&view->lock);
    if (known)
        return 0;

    const int rc = sum_up(view, file, crc);
    pthread_mutex_lock(&view->lock);
    shown->crc_state = rc ? CRC_UNKNOWN : CRC_KNOWN;
    shown->crc = *crc;
    pthread_cond_broadcast(&view->summed);
    pthread_mutex_unlock(&view->lock);
    return rc;
}
