/* SPDX-License-Identifier: Apache-2.0 */
#include "base/origin.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"

#include <ctype.h>

/* ---- names in documents ---------------------------------------------------------------------- */

/* Says whether one of the parts between slashes is "..", or with ALL one that no entry has. */
static bool has_other(const char *path, size_t n, bool all)
{
    const char *end = path + n;

    for (const char *at = path;;) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const size_t m = (size_t)((slash ? slash : end) - at);
        if ((m == 2 && at[0] == '.' && at[1] == '.') || (all && (m == 0 || (m == 1 && *at == '.'))))
            return true;
        if (!slash)
            return false;
        at = slash + 1;
    }
}

bool rfs_origin_is_names(const char *path, size_t n)
{
    return !has_other(path, n, true);
}

bool rfs_origin_stays(const char *name)
{
    return name[0] && name[0] != '/' && !rfs_store_is_url(name) &&
           !has_other(name, strlen(name), false);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Says whether URL is ORIGIN, or below it, as texts without "..". */
static bool is_below(const char *origin, const char *url)
{
    const size_t least = (size_t)(strstr(origin, "://") + 3 - origin);
    size_t n = strlen(origin);

    while (n > least && origin[n - 1] == '/')
        n--;
    return strncmp(url, origin, n) == 0 && (url[n] == '/' || url[n] == '\0') &&
           !has_other(url + n, strlen(url + n), false);
}

/*
 * Copies a URL as it is compared: a host in small letters, without the port of its scheme; a model
 * without "models/". NULL when out of memory.
 */
static char *comparable(const char *url)
{
    const bool tls = strncmp(url, "https://", 8) == 0;
    char *copy = strdup(url);
    char *host = copy ? strstr(copy, "://") + 3 : NULL;

    if (!copy)
        return NULL;
    if (strncmp(url, "hf://models/", 12) == 0)
        memmove(host, host + 7, strlen(host + 7) + 1);
    if (!tls && strncmp(url, "http://", 7) != 0)
        return copy;
    const size_t n = strcspn(host, "/?#");
    for (size_t i = 0; i < n; i++)
        host[i] = (char)tolower((unsigned char)host[i]);
    const char *port = tls ? ":443" : ":80";
    const size_t m = strlen(port);
    if (n > m && memcmp(host + n - m, port, m) == 0)
        memmove(host + n - m, host + n, strlen(host + n) + 1);
    return copy;
}

static bool has_url(const char *origin, const char *url)
{
    RFS_FREE char *of_origin = comparable(origin);
    RFS_FREE char *of_url = comparable(url);

    return of_origin && of_url && is_below(of_origin, of_url);
}

static bool has_path(const char *origin, const char *path)
{
    RFS_FREE char *real = realpath(origin, NULL);
    RFS_FREE char *folder = rfs_store_parent(path);
    RFS_FREE char *whole = folder ? rfs_path_join(folder, rfs_path_name(path)) : NULL;

    return real && whole && rfs_origin_stays(rfs_path_name(path)) && rfs_path_within(whole, real);
}

bool rfs_origin_has(const char *origin, const char *path)
{
    const bool url = rfs_store_is_url(path);

    if (url != rfs_store_is_url(origin))
        return false;
    return url ? has_url(origin, path) : has_path(origin, path);
}

/* Says whether PATH is in one of the places; -ENOMEM. */
static int is_in(const struct rfs_origins *origins, const char *path)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list list = {0};
    bool found = origins->source && rfs_store_is_url(origins->source) &&
                 rfs_origin_has(origins->source, path);

    if (origins->named && rfs_path_list_split(origins->named, &list) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < list.n && !found; i++)
        found = *list.data[i] && rfs_origin_has(list.data[i], path);
    return found;
}

int rfs_origin_lead(const char *folder, const char *name, const struct rfs_origins *origins,
                    char **path)
{
    const bool url = rfs_store_is_url(name);
    const bool whole = url || name[0] == '/';

    *path = whole ? strdup(name) : rfs_path_join(folder, name);
    if (!*path)
        return -ENOMEM;
    if (whole ? url && rfs_origin_has(folder, name) : rfs_origin_stays(name))
        return 0;
    if (origins->here && !url && !rfs_store_is_url(folder))
        return 0;
    const int rc = whole ? is_in(origins, name) : 0;
    if (rc > 0)
        return 0;
    if (rc < 0) {
        free(*path);
        *path = NULL;
    }
    return rc < 0 ? rc : -EXDEV;
}
