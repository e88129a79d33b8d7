/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a path is in a mount of reshardfs. */
#include "base/mountinfo.h"
#include "base/store.h"
#include "base/text.h"
#include "tool/info/info.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#define TYPE "fuse.reshardfs"
#define XATTRS "user.reshardfs."
#define VALUE_BYTES 16384

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

/* A line with the mount's source and options, whatever path in it was given. */
static void say_options(FILE *say, const char *point)
{
    char value[VALUE_BYTES];

    if (!get_xattr(point, XATTRS "options", value))
        return;
    fputs("  options: ", say);
    rfs_text_put(say, value);
    fputc('\n', say);
}

struct search {
    struct rfs_report *report;
    const char *path;
    dev_t device; /* of it */
};

/* The one that PATH is in. */
static bool take(void *ctx, const struct rfs_mountinfo *mount)
{
    const struct search *search = ctx;
    struct rfs_report *report = search->report;

    if (mount->device != search->device || strcmp(mount->type, TYPE) != 0)
        return true;
    fprintf(report->say, "mount: %s, by reshardfs, of %s\n", mount->point, mount->source);
    say_options(report->say, mount->point);
    rfs_json_object(&report->json, "mount", RFS_JSON_TIGHT);
    rfs_json_put_text(&report->json, "point", mount->point);
    rfs_json_put_text(&report->json, "source", mount->source);
    rfs_json_put_text(&report->json, "options", mount->options);
    put_xattrs(&report->json, search->path);
    rfs_json_end(&report->json);
    return false;
}

void rfs_info_mount(struct rfs_report *report, const char *path)
{
    struct stat st;

    if (rfs_is_url(path) || stat(path, &st) != 0)
        return;
    struct search search = {report, path, st.st_dev};
    (void)rfs_mountinfo_each(take, &search); /* without the table nothing is said of it */
}
