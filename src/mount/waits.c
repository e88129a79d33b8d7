/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/waits.h"

#include "mount/hidden.h"

static bool is_folder(const struct rfs_mount *m, uint64_t id)
{
    uint64_t above;

    return reshard_lookup(m->view, id, "..", &above) == 0;
}

/* The entries of folders of tensors are known once the rank is planned. */
bool rfs_waits_list(const struct rfs_mount *m, uint64_t dir)
{
    reshard_stat st = {.struct_size = sizeof st};

    return dir != RESHARD_ROOT && dir != m->hidden && is_folder(m, dir) &&
           reshard_getattr(m->view, dir, &st, NULL) == 0 && st.hidden;
}

/* Even a size that is known may be compared with the sources. */
bool rfs_waits_getattr(const struct rfs_mount *m, uint64_t id)
{
    return !rfs_hidden_is_own(id) && !is_folder(m, id);
}

bool rfs_waits_lookup(const struct rfs_mount *m, uint64_t parent, const char *name)
{
    uint64_t id;

    return rfs_waits_list(m, parent) ||
           (rfs_hidden_lookup(m, parent, name, &id) == 0 && rfs_waits_getattr(m, id));
}
