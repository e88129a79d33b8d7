/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extended attribute system.posix_acl_access, little-endian:
 *
 *   u32 version, 2
 *   and for each entry   u16 tag: 1 the owner, 2 a user, 4 the group, 8 another group, 16 the mask,
 *                        32 others
 *                        u16 permissions: 4 read, 2 write, 1 search
 *                        u32 id, of tags 2 and 8
 *
 * The mask bounds all entries but the owner's and that of others. The owner counts as the owner
 * alone, a named user as that user alone; of groups one suffices that grants; others are users that
 * match no entry.
 */
#include "store/access.h"

#include "base/cleanup.h"
#include "base/store.h"

#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#define LIST "system.posix_acl_access"
#define LIST_BYTES 65536 /* the most that the kernel gives */
#define LIST_VERSION 2
#define ENTRY 8u

enum tag { OWNER = 1, USER = 2, GROUP_OF = 4, GROUP = 8, MASK = 16, OTHERS = 32 };

struct rfs_access rfs_access_own(void)
{
    return (struct rfs_access){geteuid(), getegid(), true, false, false};
}

static struct rfs_access by_mode(const struct stat *st, unsigned wanted)
{
    return (struct rfs_access){st->st_uid, st->st_gid, st->st_mode & wanted << 6,
                               st->st_mode & wanted << 3, st->st_mode & wanted};
}

static unsigned u16(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* Returns the permissions of the mask; all, where there is none. */
static unsigned mask_of(const unsigned char *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (u16(entries + i * ENTRY) == MASK)
            return u16(entries + i * ENTRY + 2);
    return 07;
}

/*
 * Takes an entry of a list into account. A named user or group that is denied may be among those
 * that the mode would allow.
 */
static bool take_entry(struct rfs_access *access, unsigned tag, bool may)
{
    switch (tag) {
    case OWNER:
        access->user &= may;
        return true;
    case USER:
        access->group &= may;
        access->others &= may;
        return true;
    case GROUP_OF:
        access->group &= may;
        return true;
    case GROUP:
    case OTHERS:
        access->others &= may;
        return true;
    default:
        return tag == MASK;
    }
}

/* Renaming changes a file's ctime; a folder's is changed by all that is made in it. */
bool rfs_access_is_of(const struct stat *then, const struct stat *now)
{
    return then->st_dev == now->st_dev && then->st_ino == now->st_ino &&
           (S_ISDIR(then->st_mode) || (then->st_ctim.tv_sec == now->st_ctim.tv_sec &&
                                       then->st_ctim.tv_nsec == now->st_ctim.tv_nsec));
}

struct rfs_access rfs_access_listed(const struct stat *st, unsigned wanted, const void *list,
                                    size_t n)
{
    const unsigned char *bytes = list;
    const unsigned char *entries = bytes + 4;
    struct rfs_access access = by_mode(st, wanted);
    bool known = n >= 4 && n % ENTRY == 4 && u16(bytes) == LIST_VERSION && u16(bytes + 2) == 0;

    const size_t count = known ? n / ENTRY : 0;
    const unsigned mask = mask_of(entries, count);
    /* The mode has it in the place of the group's rights. */
    access.group = mask & wanted;
    for (size_t i = 0; i < count; i++) {
        const unsigned tag = u16(entries + i * ENTRY);
        unsigned granted = u16(entries + i * ENTRY + 2);
        if (tag != OWNER && tag != OTHERS)
            granted &= mask;
        known &= take_entry(&access, tag, tag == MASK || (granted & wanted));
    }
    access.group &= known;
    access.others &= known;
    return access;
}

struct rfs_access rfs_access_of(const char *path, const struct stat *st, unsigned wanted)
{
    struct rfs_access access = by_mode(st, wanted);
    char small[256];
    RFS_FREE char *large = NULL;

    if (rfs_store_is_url(path) || (!access.group && !access.others))
        return access; /* a list grants no more, as the group's bits are its mask */
    ssize_t n = getxattr(path, LIST, small, sizeof small);
    if (n < 0 && errno == ERANGE && (large = malloc(LIST_BYTES)))
        n = getxattr(path, LIST, large, LIST_BYTES);
    if (n >= 0)
        return rfs_access_listed(st, wanted, large ? large : small, (size_t)n);
    if (errno == ENODATA || errno == EOPNOTSUPP) /* none, or a file system without such */
        return access;
    access.group = access.others = false;
    return access;
}

static bool is_open(struct rfs_access a)
{
    return a.user && a.group && a.others;
}

/* Joins the access of users other than the owner, by group. */
static void join_groups(struct rfs_access a, struct rfs_access b, struct rfs_access *out)
{
    const bool a_for_all = a.group && a.others;
    const bool b_for_all = b.group && b.others;

    if (a.gid == b.gid || a_for_all == b_for_all) {
        /* No group can be named if two of them count. */
        const bool alike = a.gid == b.gid || a_for_all;
        out->gid = a.gid == b.gid ? a.gid : getegid();
        out->group = alike && a.group && b.group;
        out->others = alike && a.others && b.others;
        return;
    }
    const struct rfs_access counts = a_for_all ? b : a;
    out->gid = counts.gid;
    out->group = counts.group;
    out->others = counts.others;
}

struct rfs_access rfs_access_both(struct rfs_access a, struct rfs_access b)
{
    struct rfs_access both = {.uid = a.uid, .user = a.user && b.user};

    if (is_open(a) != is_open(b))
        return is_open(a) ? b : a;
    join_groups(a, b, &both);
    if (a.uid == b.uid)
        return both;
    /* An owner without access must not get it as one of the others. */
    both.group &= both.user;
    both.others &= both.user;
    both.uid = geteuid();
    both.user = true;
    return both;
}

struct rfs_access rfs_access_below(struct rfs_access above, struct rfs_access file)
{
    return is_open(above) ? file : rfs_access_both(file, above);
}

static struct rfs_access search(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? rfs_access_of(path, &st, RFS_MAY_SEARCH) : rfs_access_own();
}

/* Calls FN for "/" and each folder down to PATH. False when out of memory. */
static bool each_down_to(const char *path, void (*fn)(void *ctx, const char *folder), void *ctx)
{
    RFS_FREE char *above = strdup(path);

    if (!above)
        return false;
    fn(ctx, "/");
    for (char *at = above; *at;) {
        at += strcspn(at + 1, "/") + 1;
        const char slash = *at;
        *at = '\0';
        if (above[1])
            fn(ctx, above);
        *at = slash;
    }
    return true;
}

static void join_search(void *ctx, const char *folder)
{
    struct rfs_access *access = ctx;

    *access = rfs_access_both(*access, search(folder));
}

/* Returns search access to the folder PATH, and all above it. */
static struct rfs_access down_to(const char *path)
{
    struct rfs_access access = search("/");

    return each_down_to(path, join_search, &access) ? access : rfs_access_own();
}

/* The properties of a folder that change with its rights, or when another is in its place. */
struct state {
    uint64_t dev, ino, seconds, nanoseconds, before;
};

static void join_state(void *ctx, const char *folder)
{
    uint64_t *state = ctx;
    struct stat st = {.st_ino = 0};

    (void)stat(folder, &st);
    const struct state now = {st.st_dev, st.st_ino, (uint64_t)st.st_ctim.tv_sec,
                              (uint64_t)st.st_ctim.tv_nsec, *state};
    *state = XXH3_64bits(&now, sizeof now);
}

static uint64_t state_of(const char *path)
{
    uint64_t state = 0;

    return each_down_to(path, join_state, &state) ? state : 0;
}

/* Cuts the last name off; false when there is none. */
static bool cut_name(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static struct rfs_access down_to_known(struct rfs_access_above *above, const char *path)
{
    /* The state comes before the rights: a change in between makes the next call look again. */
    const uint64_t state = state_of(path);
    struct rfs_access access;

    pthread_mutex_lock(&above->lock);
    const bool known =
        above->path && state && above->state == state && strcmp(above->path, path) == 0;
    access = above->access;
    pthread_mutex_unlock(&above->lock);
    if (known)
        return access;
    access = down_to(path);
    RFS_FREE char *copy = strdup(path);
    RFS_LOCKED(&above->lock);
    if (copy) {
        char *before = above->path;
        above->path = copy;
        above->state = state;
        above->access = access;
        copy = before;
    }
    return access;
}

struct rfs_access rfs_access_above(struct rfs_access_above *above, const char *path)
{
    RFS_FREE char *folder = strdup(path);

    if (!folder || rfs_store_is_url(path))
        return rfs_access_own();
    if (!cut_name(folder))
        return search("/");
    const struct rfs_access access = search(folder);
    if (!cut_name(folder))
        return rfs_access_both(access, search("/"));
    return rfs_access_both(access, above ? down_to_known(above, folder) : down_to(folder));
}
