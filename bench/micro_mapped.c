/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_mapped FILE [WINDOW] - copies every second run of FILE into one buffer of a MiB, and all of
 * it, from the page cache: by pread into a window (256 KiB unless given), and from mappings: one
 * that is kept and has its pages, one for each window whose pages are taken at once, and one for
 * each window whose pages are taken as they are touched. Prints GB/s of what was copied, the best
 * of five rounds.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "assemble/kernels.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, BUFFER = 1 << 20 };

enum way { BY_PREAD, FROM_KEPT, FROM_POPULATED, FROM_TOUCHED, WAYS };

struct input {
    int fd;
    size_t size, window;
    unsigned char *read; /* of a window */
    const unsigned char *kept;
    unsigned char *buffer;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *problem)
{
    perror(problem);
    exit(1);
}

static const unsigned char *mapped(int fd, size_t size, size_t at, enum way way)
{
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, (off_t)at);

    if (map == MAP_FAILED)
        die("mmap");
    if (way != FROM_TOUCHED && madvise(map, size, MADV_POPULATE_READ) != 0)
        die("madvise");
    return map;
}

/* Every second run of a window, or with a run of 0 all of it, a buffer at a time. */
static void copy(const struct input *in, const unsigned char *from, size_t run)
{
    const size_t step = run ? 2 * BUFFER : BUFFER;

    for (size_t at = 0; at < in->window; at += step) {
        const size_t left = in->window - at, n = left < step ? left : step;

        if (run)
            rfs_kernels_copy(in->buffer, run, from + at, 2 * run, run, n / (2 * run));
        else
            memcpy(in->buffer, from + at, n);
    }
}

static double rate(const struct input *in, enum way way, size_t run)
{
    const double begin = now();

    for (size_t at = 0; at < in->size; at += in->window) {
        const unsigned char *from = in->read;

        if (way == BY_PREAD) {
            unsigned char *to = run ? in->read : in->buffer;

            if (pread(in->fd, to, in->window, (off_t)at) != (ssize_t)in->window)
                die("pread");
            if (run)
                copy(in, from, run);
            continue;
        }
        from = way == FROM_KEPT ? in->kept + at : mapped(in->fd, in->window, at, way);
        copy(in, from, run);
        if (way != FROM_KEPT)
            munmap((void *)(uintptr_t)from, in->window);
    }
    return (double)(run ? in->size / 2 : in->size) / 1e9 / (now() - begin);
}

int main(int argc, char **argv)
{
    static const size_t runs[] = {0, 1024, 64, 2};
    static const char *const names[] = {"pread", "kept", "populated", "touched"};
    struct input in = {.fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1,
                       .window = argc > 2 ? strtoul(argv[2], NULL, 10) : 256 << 10};
    struct stat st;

    if (in.fd < 0 || fstat(in.fd, &st) != 0 || in.window == 0 || in.window % 4096 != 0 ||
        in.window > BUFFER)
        return fprintf(stderr, "usage: micro_mapped FILE [BYTES, of whole pages, 1 MiB at most]\n"),
               2;
    in.size = (size_t)st.st_size / in.window * in.window;
    in.read = malloc(in.window);
    in.buffer = malloc(BUFFER);
    if (!in.read || !in.buffer)
        die("malloc");
    in.kept = mapped(in.fd, in.size, 0, FROM_KEPT);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        if (runs[i])
            printf("runs of %zu bytes:", runs[i]);
        else
            printf("contiguous:");
        for (int way = 0; way < WAYS; way++) {
            double best = 0;

            for (int round = 0; round < ROUNDS; round++) {
                const double here = rate(&in, (enum way)way, runs[i]);

                best = here > best ? here : best;
            }
            printf(" %s %.1f", names[way], best);
        }
        printf(" GB/s\n");
    }
    return 0;
}
