/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of /proc/self/mountinfo, in which blanks, newlines and backslashes are \040 and the like,
 * with any number of fields before the "-". Source: proc(5).
 *
 *   36 35 98:0 /root /mnt/point rw,noatime shared:1 - fuse.reshardfs /data/ckpt rw,user_id=0
 *   id    dev        point      of mount   more       type           source     options
 */
#include "base/mountinfo.h"

#include "base/cleanup.h"

#include <sys/sysmacros.h>

/* Undoes the escapes of a field in place. */
static char *unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
            *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    return text;
}

/* Takes the next field off a line. */
static char *take_field(char **rest)
{
    static char none[1];
    char *field = strsep(rest, " ");

    return field ? field : none;
}

static bool take_line(char *line, struct rfs_mountinfo *out)
{
    unsigned above, below;
    int at = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%lu %*u %u:%u %n", &out->id, &above, &below, &at) != 3 || at == 0)
        return false;
    char *rest = line + at;
    char *more = strstr(rest, " - ");
    out->device = makedev(above, below);
    take_field(&rest); /* the root */
    out->point = unescape(take_field(&rest));
    more = more ? more + 3 : NULL;
    out->type = take_field(&more);
    out->source = unescape(take_field(&more));
    out->options = take_field(&more);
    return true;
}

int rfs_mountinfo_each(bool (*take)(void *ctx, const struct rfs_mountinfo *mount), void *ctx)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    RFS_FREE char *line = NULL;
    size_t room = 0;
    bool more = true;

    if (!file)
        return -EIO;
    while (more && getline(&line, &room, file) >= 0) {
        struct rfs_mountinfo mount;
        more = !take_line(line, &mount) || take(ctx, &mount);
    }
    const bool bad = ferror(file) != 0;
    fclose(file);
    return bad ? -EIO : 0;
}

bool rfs_mountinfo_user(const struct rfs_mountinfo *mount, uid_t *user)
{
    static const char option[] = "user_id=";

    for (const char *at = mount->options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, option, sizeof option - 1) == 0)
            return sscanf(at + sizeof option - 1, "%u", user) == 1;
    }
    return false;
}
