/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/remote.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "store/remote/credentials.h"
#include "store/remote/http.h"
#include "store/remote/hub.h"
#include "store/remote/object.h"
#include "store/remote/remote_settings.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock; /* of the users; held while credentials are looked for */
    unsigned users;
} now = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Says whether one of the paths has a URL, or (not NULL) one of that kind. */
static bool any_url(const char *const *paths, size_t n, const char *scheme)
{
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any |= paths[i] && rfs_store_has_url(paths[i], scheme);
    return any;
}

/* Reads the token of a hub, which may have none, while its file can be read. */
static int try_token(struct rfs_error *err)
{
    char token[RFS_CREDENTIALS_BEARER];
    const int rc = rfs_credentials_bearer(token);

    explicit_bzero(token, sizeof token);
    return rc == 0 ? 0
                   : rfs_fail(err, rc, RFS_NOWHERE, "HF_TOKEN, or anonymous for public models",
                              "there is no token for hf://: %s", rfs_store_why("hf://", rc));
}

/* Reports missing credentials before anything is read. */
static int try_credentials(struct rfs_error *err)
{
    struct rfs_credentials who;
    const int rc = rfs_credentials_get(&who);

    explicit_bzero(&who, sizeof who);
    return rc == 0
               ? 0
               : rfs_fail(
                     err, rc, RFS_NOWHERE,
                     "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or anonymous for public objects",
                     "there are no credentials for s3://: %s", rfs_store_why("s3://", rc));
}

static int take(const struct rfs_options *options, bool s3, bool hub, struct rfs_error *err)
{
    if (now.users > 0 && !rfs_remote_agrees(options))
        return rfs_fail_usage(err, "the same values, or a process of its own",
                              "another view of this process reads objects with other values of "
                              "endpoint, region, profile, path_style or anonymous");
    if (now.users == 0 && rfs_remote_adopt(options))
        return rfs_fail_memory(err);
    rfs_store_register(rfs_object_store());
    rfs_object_forget();
    rfs_hub_forget();
    int rc = s3 && !options->anonymous ? try_credentials(err) : 0;
    if (rc == 0 && hub && !options->anonymous)
        rc = try_token(err);
    now.users += rc == 0;
    return rc;
}

int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    bool *taken, struct rfs_error *err)
{
    *taken = false;
    if (!any_url(paths, n, NULL))
        return 0;
    pthread_mutex_lock(&now.lock);
    const int rc = take(options, any_url(paths, n, "s3://"), any_url(paths, n, "hf://"), err);
    pthread_mutex_unlock(&now.lock);
    *taken = rc == 0;
    return rc;
}

void rfs_remote_give(bool *taken)
{
    if (!*taken)
        return;
    *taken = false;
    RFS_LOCKED(&now.lock);
    const bool last = --now.users == 0;
    if (last) {
        rfs_object_forget();
        rfs_http_close_idle();
        rfs_credentials_forget();
    }
}

const char *rfs_remote_library(void)
{
    return rfs_http_library();
}

const char *rfs_remote_token_file(void)
{
    return rfs_credentials_token_file();
}

void rfs_remote_load(void)
{
    rfs_http_load();
}
