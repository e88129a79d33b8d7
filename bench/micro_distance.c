/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GB/s of reading a cached file, and of memcpy, by how far the destination is past the source
 * modulo
 * 4096. On some processors short distances are several times slower; src/assemble/distance.h keeps
 *       clear
 * of them. The best of 7 rounds.
 *
 * usage: micro_distance [FOLDER FOR A FILE OF 64 MIB]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)64 << 20)
#define READ_BYTES ((size_t)1 << 20)
#define COPY_BYTES ((size_t)256 << 10)
#define ROUNDS 7

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* An open file without a name, all of it written. */
static int make_file(const char *folder, const char *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/micro-distance-XXXXXX", folder);
    const int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    unlink(path);
    for (size_t at = 0; at < FILE_BYTES; at += READ_BYTES)
        if (write(fd, bytes, READ_BYTES) != (ssize_t)READ_BYTES)
            return -1;
    return fd;
}

static double read_speed(int fd, char *dst)
{
    double best = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const double begin = now();
        for (size_t at = 0; at < FILE_BYTES; at += READ_BYTES)
            if (pread(fd, dst, READ_BYTES, (off_t)at) != (ssize_t)READ_BYTES)
                return 0;
        const double rate = (double)FILE_BYTES / (now() - begin) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

static double copy_speed(char *dst, const char *src)
{
    double best = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const double begin = now();
        for (int i = 0; i < 50; i++) {
            memcpy(dst, src, COPY_BYTES);
            __asm__ volatile("" ::"r"(dst) : "memory"); /* each copy counts */
        }
        const double rate = 50 * (double)COPY_BYTES / (now() - begin) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const size_t distances[] = {0, 1, 8, 15, 16, 24, 31, 32, 48, 64, 1024, 4064, 4095};
    char *dst = aligned_alloc(4096, READ_BYTES + 8192);
    char *src = aligned_alloc(4096, READ_BYTES);
    if (!dst || !src)
        return 1;
    memset(dst, 1, READ_BYTES + 8192);
    memset(src, 2, READ_BYTES);
    const int fd = make_file(argc > 1 ? argv[1] : "/tmp", src);
    if (fd < 0) {
        perror("micro_distance");
        return 1;
    }
    printf("%8s %8s %8s\n", "distance", "pread", "memcpy");
    for (size_t i = 0; i < sizeof distances / sizeof distances[0]; i++)
        printf("%8zu %8.2f %8.2f\n", distances[i], read_speed(fd, dst + distances[i]),
               copy_speed(dst + distances[i], src));
    close(fd);
    free(dst);
    free(src);
    return 0;
}
