/* SPDX-License-Identifier: Apache-2.0 */
/* A build without libcurl: every URL fails with a message about that. */
#include "base/store.h"
#include "store/remote/remote.h"

int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    bool *taken, struct rfs_error *err)
{
    (void)options;
    *taken = false;
    for (size_t i = 0; i < n; i++)
        if (paths[i] && rfs_store_is_url(paths[i]))
            return rfs_fail(err, -ENOTSUP, RFS_IN(paths[i]), "a build with libcurl",
                            "this build reads no sources from object storage");
    return 0;
}

void rfs_remote_give(bool *taken)
{
    *taken = false;
}

const char *rfs_remote_library(void)
{
    return NULL;
}

const char *rfs_remote_token_file(void)
{
    return NULL;
}

void rfs_remote_load(void)
{
}
