/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a path is in a mount of reshardfs, by /proc/self/mountinfo:
 *
 *   36 35 98:0 /root /mnt/point rw,noatime shared:1 - fuse.reshardfs /data/ckpt rw,user_id=0
 *         dev        where      options    more     - type           source     options
 *
 * with space, tab, newline and backslash as \040 and the like. Source: proc(5).
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "tool/info/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define TYPE "fuse.reshardfs"
#define XATTRS "user.reshardfs."
#define VALUE_BYTES 16384

/* Undoes the escapes in place. */
static void unescape(char *text)
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
}

/* The value of an attribute as a text, in OUT. */
static bool get_xattr(const char *path, const char *name, char out[VALUE_BYTES])
{
    const ssize_t size = getxattr(path, name, out, VALUE_BYTES - 1);

    if (size >= 0)
        out[size] = '\0';
    return size >= 0;
}

/* All that the mount says of a path, for scripts. */
static void put_xattrs(struct rfs_json_write *json, const char *path)
{
    char names[4096], value[VALUE_BYTES];
    const ssize_t n = listxattr(path, names, sizeof names);

    rfs_json_object(json, "xattrs", RFS_JSON_TIGHT);
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
        if (strncmp(names + i, XATTRS, strlen(XATTRS)) == 0 && get_xattr(path, names + i, value))
            rfs_json_put_text(json, names + i + strlen(XATTRS), value);
    rfs_json_end(json);
}

/* A line with what the mount was made with, whatever path in it was given. */
static void say_options(FILE *say, const char *point)
{
    char value[VALUE_BYTES];

    if (!get_xattr(point, XATTRS "options", value))
        return;
    fputs("  options: ", say);
    rfs_text_put(say, value);
    fputc('\n', say);
}

/* A line of mountinfo, which it cuts. */
static bool tell_line(struct rfs_report *report, const char *path, char *line, const char *device)
{
    char *field[6];
    char *rest = line;

    for (int i = 0; i < 6; i++)
        if (!(field[i] = strsep(&rest, " ")))
            return false;
    rest = rest ? strstr(rest, "- ") : NULL;
    if (!rest || strcmp(field[2], device) != 0)
        return false;
    rest += 2;
    const char *type = strsep(&rest, " ");
    char *source = rest ? strsep(&rest, " ") : NULL;
    char *options = rest ? strsep(&rest, "\n") : NULL;
    if (strcmp(type, TYPE) != 0 || !source || !options)
        return false;
    unescape(source);
    unescape(field[4]);
    fprintf(report->say, "mount: %s, by reshardfs, of %s\n", field[4], source);
    say_options(report->say, field[4]);
    rfs_json_object(&report->json, "mount", RFS_JSON_TIGHT);
    rfs_json_put_text(&report->json, "point", field[4]);
    rfs_json_put_text(&report->json, "source", source);
    rfs_json_put_text(&report->json, "options", options);
    put_xattrs(&report->json, path);
    rfs_json_end(&report->json);
    return true;
}

void rfs_info_mount(struct rfs_report *report, const char *path)
{
    RFS_FREE char *line = NULL;
    size_t cap = 0;
    struct stat st;
    char device[32];
    FILE *file = fopen("/proc/self/mountinfo", "re");

    if (!file || stat(path, &st) != 0) {
        if (file)
            fclose(file);
        return;
    }
    snprintf(device, sizeof device, "%u:%u", major(st.st_dev), minor(st.st_dev));
    while (getline(&line, &cap, file) > 0)
        if (tell_line(report, path, line, device))
            break;
    fclose(file);
}
