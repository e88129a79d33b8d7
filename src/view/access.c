/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may look into the folders shown. The source's own folder says it of those, with the folders above it where others
 * may come at all. In the hidden folder are names and counters of everything, and so it takes all sources to say who may.
 */
#include "source/io/access.h"
#include "view/internal.h"
#include "view/side.h"

#include <sys/stat.h>

void rfs_view_take_folder(struct reshard_view *view, const char *path)
{
    struct rfs_access access = rfs_access_own();
    unsigned list = 0444;
    struct stat st, now;

    if (stat(path, &st) == 0) {
        const bool folder = S_ISDIR(st.st_mode);
        access = rfs_access_of(path, &st, folder ? RFS_MAY_SEARCH : RFS_MAY_READ);
        if (view->log_config.for_others)
            access = rfs_access_below(rfs_access_above(NULL, path), access);
        if (folder)
            list = rfs_access_mode(rfs_access_of(path, &st, RFS_MAY_READ), 0444);
        if (view->log_config.for_others && (stat(path, &now) != 0 || !rfs_access_is_of(&st, &now)))
            access = rfs_access_own();
        if (list != 0444 && (access.uid != st.st_uid || access.gid != st.st_gid))
            list = 0400; /* they are not the same people */
        view->dir_mtime = st.st_mtim;
    }
    view->dir_uid = access.uid;
    view->dir_gid = access.gid;
    /* cp -r gives a copy this mode: without S_IWUSR its owner could not remove it. Writing here is EROFS. */
    view->dir_mode = S_IWUSR | rfs_access_mode(access, 0111 | list);
}

/* Takes the sources of a view, or of a save of it, into *ACCESS; *FIRST: there was none yet. */
static void take_sources(const struct reshard_view *view, bool *first, struct rfs_access *access)
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

/* Of several threads that are here at once, all find the same, or what was found first counts. */
static void find_access(struct reshard_view *view)
{
    struct rfs_access access = rfs_access_own();
    bool first = true;

    for (size_t i = 0; view->side && i < view->side->n; i++)
        take_sources(view->side->data[i].view, &first, &access);
    if (!view->side)
        take_sources(view, &first, &access);
    if (view->sealed) /* as what is decrypted */
        access.group = access.others = false;
    if (!access.user)
        access = rfs_access_own();
    pthread_mutex_lock(&view->lock);
    if (atomic_load(&view->control.mode) == 0) {
        view->control.uid = access.uid;
        view->control.gid = access.gid;
        atomic_store(&view->control.mode, S_IWUSR | rfs_access_mode(access, 0555));
    }
    pthread_mutex_unlock(&view->lock);
}

void rfs_view_fill_hidden(struct reshard_view *view, reshard_stat *st)
{
    if (!view->log_config.for_others)
        return;
    if (atomic_load(&view->control.mode) == 0)
        find_access(view);
    pthread_mutex_lock(&view->lock);
    st->mode = S_IFDIR | atomic_load(&view->control.mode);
    st->uid = view->control.uid;
    st->gid = view->control.gid;
    pthread_mutex_unlock(&view->lock);
}
