/* SPDX-License-Identifier: Apache-2.0 */
#include "base/home.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <sys/stat.h>
#include <unistd.h>

/* Removes slashes at the end: with one behind it, a link would be followed. */
static void trim_slashes(char *path)
{
    for (size_t n = path ? strlen(path) : 0; n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
}

/* Returns the folder above our own by default: owned by the caller, or NULL. */
static char *default_place(void)
{
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");

    if (cache && cache[0] == '/') {
        char *place = strdup(cache);
        trim_slashes(place);
        return place;
    }
    return home && home[0] == '/' ? rfs_text_printf("%s/.cache", home) : NULL;
}

/* Makes a path absolute: the process may go elsewhere. */
static char *absolute(const char *path)
{
    RFS_FREE char *here = getcwd(NULL, 0);

    return here ? rfs_text_printf("%s/%s", here, path) : NULL;
}

bool rfs_home_find(const char *given, struct rfs_home *out)
{
    *out = (struct rfs_home){NULL, NULL};
    if (geteuid() != getuid() || getegid() != getgid())
        return false;
    if (given && given[0] == '/')
        out->path = strdup(given);
    else if (given)
        out->path = absolute(given);
    else if ((out->above = default_place()))
        out->path = rfs_text_printf("%s/reshardfs", out->above);
    if (!out->path) {
        rfs_home_free(out);
        return false;
    }
    trim_slashes(out->path);
    return true;
}

void rfs_home_free(struct rfs_home *kept)
{
    free(kept->above);
    free(kept->path);
    *kept = (struct rfs_home){NULL, NULL};
}

/*
 * Root uses no folder of another user, as it would with that user's HOME, and follows no link that
 * another user has made in its place. (Missing folders are reported when they are used.)
 */
static bool may_use(const char *path)
{
    struct stat st;

    return geteuid() != 0 || lstat(path, &st) != 0 || st.st_uid == 0;
}

/* Makes the folder above our own, if that is missing. Returns whether ours may be made in it. */
static bool make_above(const char *above)
{
    RFS_FREE char *parent = strdup(above);
    char *slash = parent ? strrchr(parent, '/') : NULL;

    if (slash)
        slash[slash == parent] = '\0'; /* "/" stays */
    const bool may = slash && (may_use(parent) || access(above, F_OK) == 0);
    if (may)
        (void)mkdir(above, 0700);
    return may && may_use(above);
}

bool rfs_home_reach(const struct rfs_home *kept, bool make)
{
    return !kept->above || (make ? make_above(kept->above) : may_use(kept->above));
}

int rfs_home_make(const struct rfs_home *kept)
{
    if (!rfs_home_reach(kept, true))
        return -EPERM;
    return mkdir(kept->path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}
