/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/table.h"

#include "base/cleanup.h"
#include "mount/report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* Takes a byte off a field: blanks, newlines and backslashes are written as three octal digits. */
static char take_byte(const char **written)
{
    const char *at = *written;

    if (at[0] == '\\' && at[1] && at[2] && at[3]) {
        *written += 4;
        return (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
    }
    ++*written;
    return at[0];
}

static bool is_path(const char *written, const char *path)
{
    while (*written && *written != ' ')
        if (take_byte(&written) != *path++)
            return false;
    return *path == '\0';
}

/*
 * "... - fuse.reshardfs /src ro,...": the type and the source, behind fields that may be missing.
 */
static void take_source(const char *line, struct rfs_mounted *out)
{
    static const char type[] = "fuse." RFS_PROGRAM " ";
    const char *at = strstr(line, " - ");
    size_t n = 0;

    out->ours = at && strncmp(at + 3, type, sizeof type - 1) == 0;
    for (at = out->ours ? at + 3 + sizeof type - 1 : ""; *at && *at != ' ';) {
        const char byte = take_byte(&at);
        if (n < sizeof out->source - 1)
            out->source[n++] = byte;
    }
    out->source[n] = '\0';
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
    if (!at || !is_path(at + 1, path))
        return;
    out->id = id;
    out->device = makedev(above, below);
    take_source(at + 1, out);
}

int rfs_table_find(const char *path, struct rfs_mounted *out)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    RFS_FREE char *line = NULL;
    size_t room = 0;

    *out = (struct rfs_mounted){.ours = false};
    if (!file)
        return -EIO;
    while (getline(&line, &room, file) >= 0)
        take_line(line, path, out);
    const bool bad = ferror(file) != 0;
    fclose(file);
    return bad ? -EIO : out->id ? 0 : -ENOENT;
}
