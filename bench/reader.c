/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader [-b BYTES] [-w | -m] [-n READERS] [-t TRACE] FILE... - reads files as the benchmarks do
 * and says how fast. reader -q DEPTH [-b BYTES] [-p PERCENT] FILE... - reads all of them, with so
 * many reads under way at once.
 *
 * Each reader opens its file, reads it from begin to end with read() of BYTES (1 MiB unless given;
 * K and M suffixes) into one page-aligned buffer whose pages were touched before, and closes it. -w
 * reads the whole file with one call, as load_checkpoint does. -m maps the file, shared and
 * read-only, and copies from there, as safetensors does. -n starts that many readers at once, each
 * with its own descriptor; reader k takes FILE number k modulo the number given.
 *
 * -t records the reads for cache_replay, which says how.
 *
 * -q reads the first PERCENT % (100) of each file, by DEPTH threads that take the next BYTES in
 * turn, of the files side by side: what storage gives to whoever knows beforehand what is wanted.
 *
 * Prints one line: the rate in GB/s (10^9 bytes over the wall-clock time from the first reader's
 * start to the last one's end, all readers' bytes together) and the bytes read.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_READERS = 64 };

/* With -q: what is still to be read, shared by the threads. */
struct shared {
    char **paths;
    int *fds;
    uint64_t *sizes;           /* of what is wanted */
    uint64_t n, block, most;   /* most: of a size */
    atomic_uint_fast64_t next; /* block number: of file next % n, at next / n */
};

struct reader {
    pthread_t thread;
    struct shared *shared; /* or NULL */
    const char *path;
    int fd;
    unsigned char *buffer; /* `block` bytes, mapped */
    size_t block;
    const unsigned char *map; /* of the file, to be copied from; NULL: it is read */
    size_t map_bytes;
    uint64_t bytes;
    int error;   /* errno of what failed, else 0 */
    FILE *trace; /* or NULL; shared, and a line at a time */
};

static pthread_barrier_t start;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int prepare(struct reader *reader, size_t block, int whole, int maps)
{
    struct stat st = {0};

    if (!reader->shared) {
        reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC);
        if (reader->fd < 0 || fstat(reader->fd, &st) != 0) {
            return errno;
        }
    }
    reader->block = whole && st.st_size > 0 ? (size_t)st.st_size : block;
    reader->buffer = mmap(NULL, reader->block, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (reader->buffer != MAP_FAILED && maps && st.st_size > 0) {
        reader->map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, reader->fd, 0);
        reader->map_bytes = (size_t)st.st_size;
    }
    return reader->buffer == MAP_FAILED || reader->map == MAP_FAILED ? errno : 0;
}

static void copy_map(struct reader *reader)
{
    for (size_t at = 0, n; at < reader->map_bytes; at += n) {
        n = reader->map_bytes - at < reader->block ? reader->map_bytes - at : reader->block;
        memcpy(reader->buffer, reader->map + at, n);
        reader->bytes += n;
    }
}

static void *run(void *arg)
{
    struct reader *reader = arg;

    pthread_barrier_wait(&start);
    if (reader->map) {
        copy_map(reader);
        return NULL;
    }
    for (;;) {
        ssize_t got = read(reader->fd, reader->buffer, reader->block);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            reader->error = errno;
            break;
        }
        if (got > 0 && reader->trace) {
            fprintf(reader->trace, "%llu %zd %s\n", (unsigned long long)reader->bytes, got,
                    reader->path);
        }
        if (got > 0) {
            reader->bytes += (uint64_t)got;
        }
    }
    return NULL;
}

static int read_fully(struct reader *reader, int fd, uint64_t size, uint64_t at)
{
    while (size > 0) {
        const ssize_t got = pread(fd, reader->buffer, (size_t)size, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? errno : EIO;
        }
        reader->bytes += (uint64_t)got;
        at += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return 0;
}

static void *run_shared(void *arg)
{
    struct reader *reader = arg;
    struct shared *shared = reader->shared;

    pthread_barrier_wait(&start);
    for (;;) {
        const uint64_t number = atomic_fetch_add(&shared->next, 1);
        const uint64_t at = number / shared->n * shared->block;
        const uint64_t size = shared->sizes[number % shared->n];
        if (at >= shared->most || reader->error != 0) {
            return NULL;
        }
        if (at < size) {
            reader->error = read_fully(reader, shared->fds[number % shared->n],
                                       size - at < shared->block ? size - at : shared->block, at);
        }
    }
}

static int share(struct shared *shared, char **paths, int n, uint64_t block, uint64_t percent)
{
    struct stat st;

    *shared = (struct shared){.paths = paths,
                              .fds = calloc((size_t)n, sizeof(int)),
                              .sizes = calloc((size_t)n, sizeof(uint64_t)),
                              .n = (uint64_t)n,
                              .block = block};
    for (int i = 0; shared->fds && shared->sizes && i < n; i++) {
        shared->fds[i] = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (shared->fds[i] < 0 || fstat(shared->fds[i], &st) != 0) {
            fprintf(stderr, "reader: %s: %s\n", paths[i], strerror(errno));
            return 1;
        }
        shared->sizes[i] = (uint64_t)st.st_size / 100 * percent;
        shared->most = shared->sizes[i] > shared->most ? shared->sizes[i] : shared->most;
    }
    return shared->fds && shared->sizes ? 0 : 1;
}

/* Bytes with a K or M suffix; 0 for what isn't a size. */
static size_t parse_bytes(const char *text)
{
    char *end = NULL;
    unsigned long long n = strtoull(text, &end, 10);

    if (*end == 'K' || *end == 'M') {
        n <<= *end == 'K' ? 10 : 20;
        end++;
    }
    return *end == '\0' && n <= (UINT64_C(1) << 40) ? (size_t)n : 0;
}

static int measure(struct reader *readers, size_t n)
{
    uint64_t bytes = 0;
    int status = 0;

    if (pthread_barrier_init(&start, NULL, (unsigned)n + 1) != 0) {
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        int rc = pthread_create(&readers[i].thread, NULL, readers[i].shared ? run_shared : run,
                                &readers[i]);
        if (rc != 0) {
            fprintf(stderr, "reader: thread: %s\n", strerror(rc));
            exit(1); /* the others wait at the barrier for good */
        }
    }
    const double begin = seconds();
    pthread_barrier_wait(&start);
    for (size_t i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        bytes += readers[i].bytes;
        if (readers[i].error != 0) {
            fprintf(stderr, "reader: %s: %s\n", readers[i].path ? readers[i].path : "a file",
                    strerror(readers[i].error));
            status = 1;
        }
    }
    const double took = seconds() - begin;
    pthread_barrier_destroy(&start);
    if (status == 0) {
        printf("%.4f GB/s %llu bytes\n", took > 0 ? (double)bytes / took / 1e9 : 0.0,
               (unsigned long long)bytes);
    }
    return status;
}

int main(int argc, char **argv)
{
    static struct reader readers[MAX_READERS];
    size_t block = (size_t)1 << 20;
    static struct shared shared;
    size_t n = 1;
    size_t depth = 0;
    size_t percent = 100;
    int whole = 0;
    int maps = 0;
    FILE *trace = NULL;
    int option;

    while ((option = getopt(argc, argv, "b:mwn:t:q:p:")) != -1) {
        switch (option) {
        case 'b':
            block = parse_bytes(optarg);
            break;
        case 'm':
            maps = 1;
            break;
        case 'w':
            whole = 1;
            break;
        case 'n':
            n = parse_bytes(optarg);
            break;
        case 't':
            trace = fopen(optarg, "we");
            block = trace ? block : 0;
            break;
        case 'q':
            n = depth = parse_bytes(optarg);
            break;
        case 'p':
            percent = parse_bytes(optarg);
            break;
        default:
            block = 0;
        }
    }
    if (block == 0 || n == 0 || n > MAX_READERS || percent == 0 || percent > 100 ||
        optind >= argc) {
        fprintf(stderr, "usage: reader [-b BYTES] [-w | -m] [-n READERS] [-t TRACE] FILE...\n"
                        "       reader -q DEPTH [-b BYTES] [-p PERCENT] FILE...\n");
        return 2;
    }
    if (depth > 0 && share(&shared, argv + optind, argc - optind, block, percent) != 0) {
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        readers[i].path = depth > 0 ? NULL : argv[optind + (int)(i % (size_t)(argc - optind))];
        readers[i].shared = depth > 0 ? &shared : NULL;
        readers[i].trace = trace;
        int rc = prepare(&readers[i], block, whole, maps);
        if (rc != 0) {
            fprintf(stderr, "reader: %s: %s\n", depth > 0 ? "buffer" : readers[i].path,
                    strerror(rc));
            return 1;
        }
    }
    const int status = measure(readers, n);
    return trace && fclose(trace) != 0 ? 1 : status;
}
