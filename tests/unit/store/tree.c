/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

void tree_new(struct tree *tree)
{
    snprintf(tree->root, sizeof tree->root, "/tmp/rfs-test-XXXXXX");
    must(mkdtemp(tree->root) != NULL, "mkdtemp");
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void tree_remove(struct tree *tree)
{
    must(nftw(tree->root, remove_one, 32, FTW_DEPTH | FTW_PHYS) == 0, tree->root);
}

const char *tree_path(const struct tree *tree, const char *name)
{
    static _Thread_local char paths[8][512];
    static _Thread_local unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", tree->root, name);
    return path;
}

void tree_folder(const struct tree *tree, const char *name)
{
    must(mkdir(tree_path(tree, name), 0755) == 0, name);
}

void tree_file(const struct tree *tree, const char *name, const void *data, size_t n)
{
    const int fd = open(tree_path(tree, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0, name);
    must(write(fd, data, n) == (ssize_t)n, name);
    must(close(fd) == 0, name);
}

void tree_ckpt(const struct tree *tree, const char *name, const char *param, size_t n, int byte)
{
    struct bytes file = {0};
    void *content = malloc(n);
    must(content != NULL, "malloc");
    memset(content, byte, n);
    put_tensor(&file, param, (const int64_t[]){(int64_t)n}, 1, "Int8", content, n);
    tree_file(tree, name, file.p, file.n);
    free(content);
    bytes_free(&file);
}

void tree_touch(const struct tree *tree, const char *name, long seconds, long nanoseconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds, .tv_nsec = nanoseconds},
                                      {.tv_sec = seconds, .tv_nsec = nanoseconds}};
    must(utimensat(AT_FDCWD, tree_path(tree, name), times, 0) == 0, name);
}

static void keep_line(void *ctx, enum rfs_level level, const char *line)
{
    struct lines *lines = ctx;
    (void)level;
    lines->n++;
    snprintf(lines->last, sizeof lines->last, "%s", line);
}

void lines_init(struct lines *lines)
{
    *lines = (struct lines){.n = 0};
    rfs_log_init(&lines->log, keep_line, lines);
}
