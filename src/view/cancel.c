/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancelling calls on a view: a thread works for a struct rfs_cancel (base/cancel.h), below the
 * view's own threads do.
 */
#include "base/cancel.h"

#include "view/internal.h"

struct reshard_cancel {
    struct rfs_cancel work;
};

int reshard_cancel_new(reshard_view *view, reshard_cancel **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return -ENOMEM;
    (*out)->work.above = rfs_pool_cancel(view->pool);
    return 0;
}

void reshard_cancel_free(reshard_cancel *cancel)
{
    free(cancel);
}

void reshard_cancel_use(reshard_cancel *cancel)
{
    rfs_cancel_enter(cancel ? &cancel->work : NULL);
}

void reshard_cancel_set(reshard_cancel *cancel, bool cancelled)
{
    atomic_store(&cancel->work.now, cancelled);
}

void reshard_cancel_all(reshard_view *view)
{
    atomic_store(&rfs_pool_cancel(view->pool)->now, true);
}
