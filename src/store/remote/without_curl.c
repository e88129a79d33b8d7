/* SPDX-License-Identifier: Apache-2.0 */
/* A build without libcurl: every URL fails with a message about that. */
#include "store/remote/remote.h"

int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    struct rfs_store **out, struct rfs_error *err)
{
    (void)options;
    *out = NULL;
    for (size_t i = 0; i < n; i++)
        if (paths[i] && rfs_store_is_url(paths[i]))
            return rfs_fail(err, -ENOTSUP, RFS_IN(paths[i]), "a build with libcurl",
                            "this build reads no sources from object storage");
    return 0;
}

void rfs_remote_give(struct rfs_store **store)
{
    *store = NULL;
}

const char *rfs_remote_library(void)
{
    return NULL;
}

const char *rfs_remote_token_file(struct rfs_store *store)
{
    (void)store;
    return NULL;
}

void rfs_remote_load(void)
{
}
