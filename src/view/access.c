/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the folders shown. It follows the source's own folder, with the folders above it if
 * other users are allowed at all. The hidden folder has names and counters of everything, so access
 * to it needs access to all sources.
 */
#include "store/access.h"
#include "base/store.h"
#include "view/internal.h"

#include <sys/stat.h>

void rfs_view_take_folder(struct reshard_view *set, const char *path)
{
    struct rfs_access access = rfs_access_own();
    unsigned list = 0444;
    struct stat st, now;

    if (rfs_store_stat(path, &st) == 0) {
        const bool folder = S_ISDIR(st.st_mode);
        access = rfs_access_of(path, &st, folder ? RFS_MAY_SEARCH : RFS_MAY_READ);
        if (set->config.for_others)
            access = rfs_access_below(rfs_access_above(NULL, path), access);
        if (folder)
            list = rfs_access_mode(rfs_access_of(path, &st, RFS_MAY_READ), 0444);
        if (set->config.for_others &&
            (rfs_store_stat(path, &now) != 0 || !rfs_access_is_of(&st, &now)))
            access = rfs_access_own();
        if (list != 0444 && (access.uid != st.st_uid || access.gid != st.st_gid))
            list = 0400; /* they are not the same people */
        set->dir_mtime = st.st_mtim;
    }
    set->dir_uid = access.uid;
    set->dir_gid = access.gid;
    /*
     * cp -r gives a copy this mode: without S_IWUSR its owner could not remove it. Writing here is
     * EROFS.
     */
    set->dir_mode = S_IWUSR | rfs_access_mode(access, 0111 | list);
}

/* Takes the sources of a plain view into *ACCESS; *FIRST: there was none yet. */
static void take_sources(const struct rfs_view *view, bool *first, struct rfs_access *access)
{
    struct rfs_files *files = rfs_catalog_files(view->catalog);

    for (uint32_t id = 0; id < rfs_files_count_paths(files); id++) {
        struct stat st;
        const struct rfs_access one = rfs_files_look(files, id, &st) == 0
                                          ? rfs_files_access(files, id, &st)
                                          : rfs_access_own();
        *access = *first ? one : rfs_access_both(*access, one);
        *first = false;
    }
}

/* Several threads that are here at once all find the same, or the first result counts. */
static void find_access(struct reshard_view *set)
{
    struct rfs_access access = rfs_access_own();
    bool first = true;

    for (size_t i = 0; i < set->n; i++)
        take_sources(set->data[i], &first, &access);
    if (set->encrypted) /* as for decrypted data */
        access.group = access.others = false;
    if (!access.user)
        access = rfs_access_own();
    pthread_mutex_lock(&set->lock);
    if (set->hidden_mode == 0) {
        set->hidden_uid = access.uid;
        set->hidden_gid = access.gid;
        set->hidden_mode = S_IWUSR | rfs_access_mode(access, 0555);
    }
    pthread_mutex_unlock(&set->lock);
}

void rfs_view_fill_hidden(struct reshard_view *set, reshard_stat *st)
{
    if (!set->config.for_others)
        return;
    pthread_mutex_lock(&set->lock);
    const bool known = set->hidden_mode != 0;
    pthread_mutex_unlock(&set->lock);
    if (!known)
        find_access(set);
    pthread_mutex_lock(&set->lock);
    st->mode = S_IFDIR | set->hidden_mode;
    st->uid = set->hidden_uid;
    st->gid = set->hidden_gid;
    pthread_mutex_unlock(&set->lock);
}
