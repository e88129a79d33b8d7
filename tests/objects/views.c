/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   views FOLDER LAST PAUSE SEED SOURCE OPTIONS [SOURCE OPTIONS …]
 *
 * Opens all views in one process. OPTIONS may begin with "NAME=VALUE;", a variable of the
 * environment that is set before the view is opened, and stays. Threads read all files of all of
 * them at once, each piece of another view than the last, and must get the same bytes; these go to
 * FOLDER/0, FOLDER/1 and so on. After PAUSE seconds view LAST is the only one that stays open, and
 * gives the same bytes again. Prints "OK", or the first failure.
 */
#include "reshard.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VIEWS 8
#define FILES 64
#define THREADS 8
#define PIECE 100000 /* bytes; more than stays in memory of small reads */

struct file {
    char path[256];
    uint64_t id, size;
    unsigned view;
    unsigned char *bytes; /* as the first thread read them */
};

static struct {
    reshard_view *views[VIEWS];
    unsigned n_views;
    struct file files[FILES];
    unsigned n_files;
    uint64_t seed;
    atomic_bool failed;
} all;

static void fail(const char *fmt, ...)
{
    va_list args;

    if (atomic_exchange(&all.failed, true))
        return;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

static void log_line(void *ctx, enum reshard_level level, const char *line)
{
    if (level <= RESHARD_LOG_WARNING)
        fprintf(stderr, "view %s: %s\n", (const char *)ctx, line);
}

/* Lists the files of a view, in the root and in folders of it. */
static void list(unsigned view, uint64_t folder, const char *name)
{
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t at = 0; reshard_list(all.views[view], folder, at, &entry) == 1; at = entry.next) {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", name, *name ? "/" : "", entry.name);
        if (entry.is_dir) {
            list(view, entry.id, path);
            continue;
        }
        reshard_stat st = {.struct_size = sizeof st};
        reshard_error err = {.struct_size = sizeof err};
        struct file *file = &all.files[all.n_files];
        if (all.n_files == FILES || reshard_getattr(all.views[view], entry.id, &st, &err)) {
            fail("view %u: %s: %s", view, path, err.message);
            return;
        }
        *file = (struct file){.id = entry.id, .size = st.size, .view = view};
        snprintf(file->path, sizeof file->path, "%s", path);
        file->bytes = calloc(st.size + 1, 1);
        all.n_files++;
    }
}

static void read_piece(const struct file *file, uint64_t from, unsigned char *to, size_t n)
{
    const ssize_t got = reshard_pread(all.views[file->view], file->id, to, n, from);

    if (got != (ssize_t)n)
        fail("view %u: %s at %llu: %s", file->view, file->path, (unsigned long long)from,
             got < 0 ? strerror((int)-got) : "too short");
}

/* Reads one piece of each file in turn, from another file on for each thread. */
static void *read_all(void *arg)
{
    const unsigned thread = (unsigned)(uintptr_t)arg;
    unsigned char *piece = malloc(PIECE);
    bool more = true;

    for (uint64_t from = 0; more && !atomic_load(&all.failed); from += PIECE) {
        more = false;
        for (unsigned i = 0; i < all.n_files; i++) {
            /* Files of the views take turns, as they are listed view by view. */
            const unsigned per = all.n_files / all.n_views;
            const unsigned at = i + thread + (unsigned)all.seed;
            struct file *file = &all.files[(at % all.n_views) * per + at / all.n_views % per];
            if (from >= file->size)
                continue;
            const size_t n = file->size - from < PIECE ? (size_t)(file->size - from) : PIECE;
            more = true;
            read_piece(file, from, thread == 0 ? file->bytes + from : piece, n);
        }
    }
    free(piece);
    return NULL;
}

/* Compares all files with what the first thread read. */
static void *compare_all(void *arg)
{
    unsigned char *piece = malloc(PIECE);
    const unsigned first = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; i < all.n_files; i++) {
        const struct file *file = &all.files[(i + first) % all.n_files];
        if (!all.views[file->view])
            continue;
        for (uint64_t from = 0; from < file->size && !atomic_load(&all.failed); from += PIECE) {
            const size_t n = file->size - from < PIECE ? (size_t)(file->size - from) : PIECE;
            read_piece(file, from, piece, n);
            if (!atomic_load(&all.failed) && memcmp(piece, file->bytes + from, n) != 0)
                fail("view %u: %s: other bytes at %llu", file->view, file->path,
                     (unsigned long long)from);
        }
    }
    free(piece);
    return NULL;
}

static void run(void *(*work)(void *))
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Writes the files to FOLDER/VIEW/PATH. */
static void write_all(const char *folder)
{
    for (unsigned i = 0; i < all.n_files; i++) {
        const struct file *file = &all.files[i];
        char path[1024];
        const int n = snprintf(path, sizeof path, "%s/%u/%s", folder, file->view, file->path);
        if (n < 0 || (size_t)n >= sizeof path)
            fail("a path is too long");
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
            *slash = '\0';
            mkdir(path, 0777);
            *slash = '/';
        }
        FILE *out = fopen(path, "w");
        if (!out || fwrite(file->bytes, 1, file->size, out) != file->size || fclose(out))
            fail("%s cannot be written", path);
    }
}

/* Sets the variables that OPTIONS begins with; returns the rest. */
static char *set_variables(char *options)
{
    for (char *end; (end = strchr(options, ';')); options = end + 1) {
        *end = '\0';
        putenv(options);
    }
    return options;
}

static void open_all(char **arguments, unsigned n)
{
    for (unsigned i = 0; i < n && !atomic_load(&all.failed); i++) {
        reshard_error err = {.struct_size = sizeof err};
        const reshard_config config = {.struct_size = sizeof config,
                                       .options = set_variables(arguments[2 * i + 1]),
                                       .log = log_line,
                                       .log_ctx = arguments[2 * i]};
        if (reshard_open(arguments[2 * i], &config, &all.views[i], &err))
            fail("view %u: %s", i, err.message);
    }
    for (unsigned i = 0; i < n && !atomic_load(&all.failed); i++)
        list(i, RESHARD_ROOT, "");
}

int main(int argc, char **argv)
{
    all.n_views = argc > 6 ? (unsigned)(argc - 5) / 2 : 0;
    if (all.n_views == 0 || all.n_views > VIEWS || argc % 2 == 0) {
        fprintf(stderr, "views FOLDER LAST PAUSE SEED SOURCE OPTIONS [SOURCE OPTIONS …]\n");
        return 2;
    }
    const unsigned last = (unsigned)atoi(argv[2]);
    all.seed = strtoull(argv[4], NULL, 10) % 1000;
    open_all(argv + 5, all.n_views);
    if (!atomic_load(&all.failed))
        run(read_all);
    if (!atomic_load(&all.failed))
        run(compare_all);
    if (!atomic_load(&all.failed))
        write_all(argv[1]);
    sleep((unsigned)atoi(argv[3]));
    for (unsigned i = 0; i < all.n_views; i++)
        if (i != last) {
            reshard_close(all.views[i]);
            all.views[i] = NULL;
        }
    if (!atomic_load(&all.failed))
        run(compare_all);
    reshard_close(all.views[last]);
    for (unsigned i = 0; i < all.n_files; i++)
        free(all.files[i].bytes);
    if (!atomic_load(&all.failed))
        puts("OK");
    return atomic_load(&all.failed);
}
