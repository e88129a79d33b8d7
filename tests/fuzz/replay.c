/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main() for a fuzz target in ordinary builds: gives it every file of its corpus, so that what a
 * fuzzer found once is tested for ever. Without arguments the corpus is tests/fuzz/corpus/<thing>
 * of the source tree for a program named fuzz_<thing>; arguments are files or folders to use
 * instead. Prints each file's name before it is tried, so that the last line names the culprit of a
 * crash. Fails where the corpus does not reach what it is for (fuzz_goals).
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return -1;
}

/* In a buffer of exactly its size, so that a sanitizer sees a read past the end. */
static int try_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data;
    size_t got;

    if (!file)
        return fail(path, strerror(errno));
    data = malloc(size > 0 ? size : 1);
    if (!data) {
        fclose(file);
        return fail(path, "out of memory");
    }
    got = fread(data, 1, size, file);
    fclose(file);
    printf("%s (%zu bytes)\n", path, got);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 0;
}

/* Adds the number of files tried to *tried. */
static int try_path(const char *path, size_t *tried)
{
    struct dirent **names = NULL;
    struct stat st;
    int n, result = 0;

    if (stat(path, &st) != 0)
        return fail(path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        (*tried)++;
        return try_file(path, (size_t)st.st_size);
    }
    n = scandir(path, &names, NULL, alphasort);
    if (n < 0)
        return fail(path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *inner = NULL;

        if (names[i]->d_name[0] != '.' && result == 0) {
            if (asprintf(&inner, "%s/%s", path, names[i]->d_name) < 0)
                result = fail(path, "out of memory");
            else
                result = try_path(inner, tried);
            free(inner);
        }
        free(names[i]);
    }
    free(names);
    return result;
}

static int own_corpus(const char *program, char *path, size_t cap)
{
    const char *slash = strrchr(program, '/');
    const char *thing = strstr(slash ? slash : program, "fuzz_");
    const char *top = getenv("top_srcdir");

    if (!thing)
        return fail(program, "the name of the program is not fuzz_<thing>");
    snprintf(path, cap, "%s/tests/fuzz/corpus/%s", top ? top : ".", thing + strlen("fuzz_"));
    return 0;
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    size_t tried = 0;

    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            if (try_path(argv[i], &tried) != 0)
                return EXIT_FAILURE;
    } else if (own_corpus(argv[0], path, sizeof path) != 0 || try_path(path, &tried) != 0) {
        return EXIT_FAILURE;
    }
    if (tried == 0) {
        fprintf(stderr, "%s: the corpus is empty\n", argv[0]);
        return EXIT_FAILURE;
    }
    printf("%zu inputs\n", tried);
    return argc == 1 && fuzz_print_missed() > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
