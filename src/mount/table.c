/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/table.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* Blanks, newlines and backslashes in paths are written as three octal digits. */
static bool is_path(const char *written, const char *path)
{
    for (; *written && *written != ' '; path++) {
        char c = *written++;

        if (c == '\\' && written[0] && written[1] && written[2]) {
            c = (char)((written[0] - '0') * 64 + (written[1] - '0') * 8 + (written[2] - '0'));
            written += 3;
        }
        if (c != *path)
            return false;
    }
    return *path == '\0';
}

/* "36 35 0:98 / /mnt/ckpt ro,nosuid ...": the last that fits is on top. */
static void take_line(const char *line, const char *path, struct rfs_mounted *out)
{
    unsigned long id;
    unsigned above, below;
    int root = 0;

    if (sscanf(line, "%lu %*u %u:%u %n", &id, &above, &below, &root) != 3 || root == 0)
        return;
    const char *at = strchr(line + root, ' ');
    if (at && is_path(at + 1, path))
        *out = (struct rfs_mounted){id, makedev(above, below)};
}

int rfs_table_find(const char *path, struct rfs_mounted *out)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    RFS_FREE char *line = NULL;
    size_t room = 0;

    *out = (struct rfs_mounted){0};
    if (!file)
        return -EIO;
    while (getline(&line, &room, file) >= 0)
        take_line(line, path, out);
    const bool bad = ferror(file) != 0;
    fclose(file);
    return bad ? -EIO : out->id ? 0 : -ENOENT;
}
