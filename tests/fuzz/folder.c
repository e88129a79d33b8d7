/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/folder.h"

#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL until it is made, and nothing is removed before: what is removed lies below it. */
static const char *folder;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    if (walk->level > 0)
        remove(path);
    return 0;
}

static void remove_folder(void)
{
    fuzz_folder_clear("");
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    static char in_memory[] = "/dev/shm/rfs-fuzz-XXXXXX", on_disk[] = "/tmp/rfs-fuzz-XXXXXX";

    if (!folder) {
        folder = mkdtemp(in_memory);
        if (!folder)
            folder = mkdtemp(on_disk);
        REQUIRE(folder != NULL);
        REQUIRE(atexit(remove_folder) == 0);
    }
    return folder;
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    static char path[PATH_MAX];

    REQUIRE(snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name) < (int)sizeof path);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        REQUIRE(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    return path;
}

void fuzz_folder_clear(const char *name)
{
    char path[PATH_MAX];

    if (!folder)
        return;
    REQUIRE(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
