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

/*
 * Settings of a profile, each read once: the mount's sandbox forbids it later, and an open view goes
 * on as it began.
 */
static struct {
    pthread_mutex_t lock; /* a leaf lock */
    struct setting {
        char section[128], name[32], value[512]; /* value "": it has none */
    } kept[2];
} settings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct setting read_setting(const char *section, const char *name)
{
    struct setting setting = {.value = ""};
    size_t n = 0;
    RFS_FREE char *text = read_shared(RFS_AWS_CONFIG, "config", &n);

    copy(setting.section, sizeof setting.section, section);
    copy(setting.name, sizeof setting.name, name);
    if (text) {
        if (!rfs_credentials_find(text, section, name, setting.value, sizeof setting.value))
            setting.value[0] = '\0';
        rfs_wipe(text, n);
    }
    return setting;
}

/* The kept one of that name, or a free one. */
static struct setting *kept_setting(const char *name)
{
    struct setting *free_one = &settings.kept[0];

    for (size_t i = 0; i < sizeof settings.kept / sizeof *settings.kept; i++) {
        if (strcmp(settings.kept[i].name, name) == 0)
            return &settings.kept[i];
        if (!settings.kept[i].name[0])
            free_one = &settings.kept[i];
    }
    return free_one;
}

char *rfs_credentials_setting(const char *name)
{
    const char *section = profile() ? profile() : "default";

    pthread_mutex_lock(&settings.lock);
    struct setting found = *kept_setting(name);
    pthread_mutex_unlock(&settings.lock);
    if (strcmp(found.name, name) != 0 || strcmp(found.section, section) != 0) {
        found = read_setting(section, name);
        pthread_mutex_lock(&settings.lock);
        *kept_setting(name) = found;
        pthread_mutex_unlock(&settings.lock);
    }
    return found.value[0] ? strdup(found.value) : NULL;
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
    pthread_mutex_lock(&settings.lock);
    memset(settings.kept, 0, sizeof settings.kept);
    pthread_mutex_unlock(&settings.lock);
}

/* ---- in messages ----------------------------------------------------------------------------- */

#define TELLING 8 /* characters: so many in a row are no accident */

/* How many characters at AT are a part of SECRET. */
static size_t part_of(const char *at, const char *secret)
{
    size_t longest = 0;

    for (; *secret; secret++) {
        size_t n = 0;

        while (at[n] && at[n] == secret[n])
            n++;
        longest = n > longest ? n : longest;
    }
    return longest;
}

void rfs_credentials_blank(char *text)
{
    pthread_mutex_lock(&all.lock);
    for (char *at = text; all.found && *at; at++) {
        const size_t secret = part_of(at, all.found->secret), token = part_of(at, all.found->token);
        const size_t n = secret > token ? secret : token;

        if (n >= TELLING) {
            memset(at, '*', n);
            at += n - 1;
        }
    }
    pthread_mutex_unlock(&all.lock);
}
