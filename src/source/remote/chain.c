/* SPDX-License-Identifier: Apache-2.0 */
#include "source/remote/chain.h"

#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/variables.h"
#include "source/remote/metadata.h"
#include "source/remote/settings.h"

#include <pthread.h>

#define BEFORE_END 300 /* seconds */
#define FILE_BYTES ((size_t)1 << 20)

static struct {
    pthread_mutex_t
        lock; /* a leaf lock, held over a look for credentials: others wait for the same */
    struct rfs_credentials *found; /* in guarded memory; NULL: none yet */
    bool renew;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct rfs_secret owner;

/* ---- the chain ------------------------------------------------------------------------------- */

static bool copy(char *out, size_t cap, const char *value)
{
    const size_t n = strlen(value);

    if (n >= cap)
        return false;
    memcpy(out, value, n + 1);
    return true;
}

/* The profile that is asked for; NULL: none by name. */
static const char *profile(void)
{
    const char *named = rfs_remote_settings()->profile;

    return named ? named : rfs_variable("AWS_PROFILE");
}

static bool from_environment(struct rfs_credentials *out)
{
    const char *id = rfs_variable("AWS_ACCESS_KEY_ID");
    const char *secret = rfs_variable("AWS_SECRET_ACCESS_KEY");
    const char *token = rfs_variable("AWS_SESSION_TOKEN");

    return !rfs_remote_settings()->profile && id && secret &&
           copy(out->key_id, sizeof out->key_id, id) &&
           copy(out->secret, sizeof out->secret, secret) &&
           copy(out->token, sizeof out->token, token ? token : "");
}

/* A shared file, to be wiped; NULL when there is none that can be read. */
static char *read_shared(const char *of, const char *name, size_t *n)
{
    RFS_FREE char *path = NULL;
    const char *given = rfs_variable(of);
    const char *home = rfs_variable("HOME");
    char *text = NULL;

    if (given)
        path = strdup(given);
    else if (home)
        path = rfs_text_printf("%s/.aws/%s", home, name);
    return path && rfs_read_whole(path, FILE_BYTES, &text, n, NULL) == 0 ? text : NULL;
}

static bool from_text(const char *text, struct rfs_credentials *out)
{
    const char *section = profile() ? profile() : "default";

    if (!rfs_credentials_find(text, section, "aws_access_key_id", out->key_id,
                              sizeof out->key_id) ||
        !rfs_credentials_find(text, section, "aws_secret_access_key", out->secret,
                              sizeof out->secret))
        return false;
    if (!rfs_credentials_find(text, section, "aws_session_token", out->token, sizeof out->token))
        out->token[0] = '\0';
    return true;
}

static bool from_file(const char *of, const char *name, struct rfs_credentials *out)
{
    size_t n = 0;
    RFS_FREE char *text = read_shared(of, name, &n);
    const bool found = text && from_text(text, out);

    if (text)
        rfs_wipe(text, n);
    return found;
}

static int look(struct rfs_credentials *out)
{
    *out = (struct rfs_credentials){0};
    if (from_environment(out) ||
        (!rfs_remote_settings()->profile && rfs_metadata_web_identity(out)))
        return 0;
    *out = (struct rfs_credentials){0};
    if (from_file(RFS_AWS_SHARED, "credentials", out) || from_file(RFS_AWS_CONFIG, "config", out))
        return 0;
    if (profile())
        return rfs_store_fail(-ENOKEY, "the profile '%.100s' has none in ~/.aws/credentials",
                              profile());
    return rfs_metadata_credentials(out);
}

char *rfs_credentials_setting(const char *name)
{
    char value[512];
    size_t n = 0;
    RFS_FREE char *text = read_shared(RFS_AWS_CONFIG, "config", &n);
    const bool found = text && rfs_credentials_find(text, profile() ? profile() : "default", name,
                                                    value, sizeof value);

    if (text)
        rfs_wipe(text, n);
    return found && value[0] ? strdup(value) : NULL;
}

/* ---- those at hand --------------------------------------------------------------------------- */

static bool is_valid(void)
{
    return all.found && !all.renew &&
           (all.found->ends == 0 || time(NULL) + BEFORE_END < all.found->ends);
}

int rfs_credentials_get(struct rfs_credentials *out)
{
    int rc = 0;

    pthread_mutex_lock(&all.lock);
    if (!all.found)
        all.found = rfs_secret_map(&owner, sizeof *all.found);
    if (!all.found)
        rc = rfs_store_fail(-ENOMEM, "out of memory");
    else if (!all.found->key_id[0] || !is_valid()) {
        rc = look(out);
        /* Those that have not ended yet serve while no others are to be had. */
        const bool serves =
            all.found->key_id[0] && (all.found->ends == 0 || all.found->ends > time(NULL));
        if (rc == 0)
            *all.found = *out;
        else if (serves)
            rc = 0;
        all.renew = false;
    }
    if (rc == 0)
        *out = *all.found;
    pthread_mutex_unlock(&all.lock);
    return rc;
}

void rfs_credentials_renew(void)
{
    pthread_mutex_lock(&all.lock);
    all.renew = true;
    pthread_mutex_unlock(&all.lock);
}

void rfs_credentials_forget(void)
{
    pthread_mutex_lock(&all.lock);
    rfs_secret_unmap(all.found, sizeof *all.found);
    all.found = NULL;
    rfs_metadata_forget();
    pthread_mutex_unlock(&all.lock);
}
