/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/copy.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

/* File systems whose servers copy; linux/magic.h does not have all of them. */
#define NFS_MAGIC 0x6969
#define CIFS_MAGIC 0xFF534D42
#define SMB2_MAGIC 0xFE534D42
#define CEPH_MAGIC 0x00C36400

void rfs_copier_init(struct rfs_copier *copier, int fd)
{
    struct statfs fs;
    int way = RFS_COPY_NOT;

    copier->block = 4096;
    if (fstatfs(fd, &fs) == 0) {
        const uint32_t magic = (uint32_t)fs.f_type;
        copier->block = fs.f_bsize > 0 ? (uint64_t)fs.f_bsize : 4096;
        way =
            magic == NFS_MAGIC || magic == CIFS_MAGIC || magic == SMB2_MAGIC || magic == CEPH_MAGIC
                ? RFS_COPY_SERVER
                : RFS_COPY_CLONE;
    }
    atomic_init(&copier->way, way);
    atomic_init(&copier->bytes_taken, 0);
}

/* Whole blocks at the same place in their blocks on both sides. */
static bool clone_range(struct rfs_copier *copier, int from, const struct rfs_plain *plain, int fd,
                        uint64_t *begin, uint64_t *end)
{
    const uint64_t block = copier->block;
    const uint64_t first = (plain->begin + block - 1) / block * block;
    const uint64_t last = plain->end / block * block;

    if (plain->begin % block != plain->source % block || last < first + RFS_COPY_LEAST)
        return true;
    const struct file_clone_range range = {
        .src_fd = from,
        .src_offset = plain->source + (first - plain->begin),
        .src_length = last - first,
        .dest_offset = first,
    };
    if (ioctl(fd, FICLONERANGE, &range) != 0)
        return errno == EINTR;
    *begin = first;
    *end = last;
    return true;
}

static bool copy_range(int from, const struct rfs_plain *plain, int fd, uint64_t *begin,
                       uint64_t *end)
{
    off_t in = (off_t)plain->source;
    off_t out = (off_t)plain->begin;

    *begin = *end = plain->begin;
    while (*end < plain->end) {
        const ssize_t n = copy_file_range(from, &in, fd, &out, (size_t)(plain->end - *end), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        *end += (uint64_t)n;
    }
    return true;
}

int rfs_copier_take(struct rfs_copier *copier, struct rfs_files *files,
                    const struct rfs_plain *plain, int fd, uint64_t *begin, uint64_t *end)
{
    struct rfs_reading reading;
    const int way = atomic_load_explicit(&copier->way, memory_order_relaxed);

    *begin = *end = plain->begin;
    if (way == RFS_COPY_NOT || plain->end - plain->begin < RFS_COPY_LEAST)
        return 0;
    int rc = rfs_reading_begin(files, plain->file, &reading);
    if (rc)
        return rc;
    if (plain->source <= reading.size &&
        plain->end - plain->begin <= reading.size - plain->source &&
        !(way == RFS_COPY_CLONE ? clone_range(copier, reading.fd, plain, fd, begin, end)
                                : copy_range(reading.fd, plain, fd, begin, end)))
        atomic_store_explicit(&copier->way, RFS_COPY_NOT, memory_order_relaxed);
    rc = rfs_reading_end(&reading);
    if (rc == 0)
        atomic_fetch_add_explicit(&copier->bytes_taken, *end - *begin, memory_order_relaxed);
    return rc;
}
