/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pathlist.h"

#include "base/order.h"
#include "base/store.h"
#include "base/vec.h"

#include <sys/stat.h>

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* How many bytes of TEXT are a URL: up to the first ':' behind its host and its port. */
static size_t next_url(const char *text)
{
    const char *host = strstr(text, "://") + 3;
    const char *path = host + strcspn(host, "/");

    return (size_t)(path - text) + strcspn(path, ":");
}

/*
 * How many bytes of TEXT, up to a ':' or the end, are the next path. Names longer than the system
 * takes do not exist, so that the time is in the length of the text, not its square.
 */
static size_t next_path(const char *text)
{
    const size_t first = strcspn(text, ":");
    char path[PATH_MAX];

    if (rfs_is_url(text))
        return next_url(text);
    for (size_t n = strnlen(text, sizeof path - 1); n > first; n--) {
        if (text[n] != ':' && text[n] != '\0')
            continue;
        memcpy(path, text, n);
        path[n] = '\0';
        if (exists(path))
            return n;
    }
    return first;
}

bool rfs_pathlist_add(struct rfs_pathlist *list, char *path)
{
    if (path && RFS_PUSH(list, path))
        return true;
    free(path);
    return false;
}

int rfs_pathlist_split(const char *text, struct rfs_pathlist *out)
{
    for (;;) {
        const size_t n = next_path(text);
        if (!rfs_pathlist_add(out, strndup(text, n)))
            return -ENOMEM;
        if (text[n] == '\0')
            return 0;
        text += n + 1;
    }
}

RFS_COMPARE(by_bytes, char *, x, y, strcmp(*x, *y))

void rfs_pathlist_sort(struct rfs_pathlist *list)
{
    RFS_SORT_ALL(list, by_bytes);
}

void rfs_pathlist_free(struct rfs_pathlist *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->data[i]);
    free(list->data);
    *list = (struct rfs_pathlist){0};
}
