/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path is walked as the kernel does it, one name after the other, with O_PATH: that crosses
 * into a file system without asking it for anything, and the walk ends there.
 */
#include "store/home.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MOST_LINKS 40 /* as the kernel has it */

enum place { ELSEWHERE, LINK, HOME };

static int open_path(int dir, const char *name)
{
    int fd;

    do
        fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Only attributes that the kernel has itself. */
static enum place place_of(int fd, dev_t device)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0)
        return ELSEWHERE;
    if (makedev(st.stx_dev_major, st.stx_dev_minor) == device)
        return HOME;
    return S_ISLNK(st.stx_mode) ? LINK : ELSEWHERE;
}

/* The target of a link, and REST behind it; NULL when there is none, or it is too long. */
static char *follow(int link, const char *rest)
{
    char target[PATH_MAX];
    const ssize_t n = readlinkat(link, "", target, sizeof target);

    if (n <= 0 || (size_t)n == sizeof target || (size_t)n + strlen(rest) > PATH_MAX)
        return NULL;
    return rfs_text_printf("%.*s/%s", (int)n, target, rest);
}

/* A walk: FROM is the folder that is reached, REST the rest of the path. */
struct walk {
    int from;
    char *path; /* owned */
    char *rest;
    unsigned links;
};

/* Goes to another path; false when that ends the walk. */
static bool turn(struct walk *walk, char *path)
{
    if (!path)
        return false;
    free(walk->path);
    walk->path = walk->rest = path;
    if (*path != '/')
        return true;
    if (walk->from >= 0)
        close(walk->from);
    walk->from = open_path(AT_FDCWD, "/");
    return walk->from >= 0;
}

/* One name on. False when the walk ends, in *PLACE. */
static bool step(struct walk *walk, dev_t device, enum place *place)
{
    char *name = walk->rest + strspn(walk->rest, "/");
    char *end = name + strcspn(name, "/");

    if (name == end)
        return false;
    walk->rest = *end ? end + 1 : end;
    *end = '\0';
    const int fd = open_path(walk->from, name);
    if (fd < 0)
        return false;
    *place = place_of(fd, device);
    if (*place != LINK) {
        close(walk->from);
        walk->from = fd;
        return *place == ELSEWHERE;
    }
    char *path = walk->links++ < MOST_LINKS ? follow(fd, walk->rest) : NULL;
    close(fd);
    return turn(walk, path);
}

bool rfs_leads_home(const char *path, dev_t device)
{
    struct walk walk = {.from = -1};
    enum place place = ELSEWHERE;

    if (!rfs_is_url(path) && turn(&walk, strdup(path)))
        while (step(&walk, device, &place))
            continue;
    if (walk.from >= 0)
        close(walk.from);
    free(walk.path);
    return place == HOME;
}
