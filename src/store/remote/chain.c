/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/chain.h"

#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/variables.h"
#include "store/remote/metadata.h"
#include "store/remote/settings.h"

#include <pthread.h>

#define BEFORE_END 300 /* seconds */
#define FILE_BYTES ((size_t)1 << 20)

static struct {
    /* a leaf lock, held over a look for credentials: others wait for the same */
    pthread_mutex_t lock;
    struct rfs_credentials *found; /* in guarded memory; NULL: none yet */
    const struct kind *kind;       /* that gave them */
    bool renew, has_settings;
    char *region, *endpoint; /* of the profile, once it was read; owned; NULL: it has none */
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

static int fail(const char *why)
{
    return rfs_store_fail(-ENOKEY, "%s", why);
}

static int from_environment(struct rfs_credentials *out)
{
    const char *id = rfs_variable("AWS_ACCESS_KEY_ID");
    const char *secret = rfs_variable("AWS_SECRET_ACCESS_KEY");
    const char *token = rfs_variable("AWS_SESSION_TOKEN");

    if (rfs_remote_settings()->profile || !id)
        return RFS_CREDENTIALS_UNASKED;
    if (!secret)
        return fail("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not");
    return copy(out->key_id, sizeof out->key_id, id) &&
                   copy(out->secret, sizeof out->secret, secret) &&
                   copy(out->token, sizeof out->token, token ? token : "")
               ? 0
               : fail("those of the environment are too long");
}

static int from_web_identity(struct rfs_credentials *out)
{
    return rfs_remote_settings()->profile ? RFS_CREDENTIALS_UNASKED
                                          : rfs_metadata_web_identity(out);
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

/* What a profile may have instead of keys, and other tools then go by. */
static const char *other_way(const char *text, const char *section)
{
    static const char *const ways[] = {"role_arn", "credential_process", "sso_session",
                                       "sso_start_url", "login_session"};
    char value[512];

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (rfs_credentials_find(text, section, ways[i], value, sizeof value))
            return ways[i];
    return NULL;
}

static int from_text(const char *text, struct rfs_credentials *out)
{
    const char *section = profile() ? profile() : "default";

    if (!rfs_credentials_find(text, section, "aws_access_key_id", out->key_id,
                              sizeof out->key_id)) {
        const char *way = other_way(text, section);
        return way ? rfs_store_fail(-ENOKEY, "the profile '%.100s' has %s, which is not read",
                                    section, way)
                   : RFS_CREDENTIALS_UNASKED;
    }
    if (!rfs_credentials_find(text, section, "aws_secret_access_key", out->secret,
                              sizeof out->secret))
        return rfs_store_fail(-ENOKEY,
                              "the profile '%.100s' has aws_access_key_id and no "
                              "aws_secret_access_key",
                              section);
    if (!rfs_credentials_find(text, section, "aws_session_token", out->token, sizeof out->token))
        out->token[0] = '\0';
    return 0;
}

static int from_file(const char *of, const char *name, struct rfs_credentials *out)
{
    size_t n = 0;
    RFS_FREE char *text = read_shared(of, name, &n);
    const int rc = text ? from_text(text, out) : RFS_CREDENTIALS_UNASKED;

    if (text)
        rfs_wipe(text, n);
    return rc;
}

static int from_profile(struct rfs_credentials *out)
{
    int rc = from_file(RFS_AWS_SHARED, "credentials", out);

    if (rc == RFS_CREDENTIALS_UNASKED)
        rc = from_file(RFS_AWS_CONFIG, "config", out);
    if (rc == RFS_CREDENTIALS_UNASKED && profile())
        rc = rfs_store_fail(-ENOKEY, "the profile '%.100s' has none in ~/.aws/credentials",
                            profile());
    return rc;
}

/* In the order in which they are looked for. */
static const struct kind {
    int (*get)(struct rfs_credentials *out); /* as those of metadata.h */
    bool ends;
} kinds[] = {
    {from_environment, false},      {from_web_identity, true},     {from_profile, false},
    {rfs_metadata_container, true}, {rfs_metadata_instance, true},
};

/* Credentials of the kind that gave those at hand, or (NULL) of the first that is asked for. */
static int look(const struct kind **kind, struct rfs_credentials *out)
{
    const size_t n = sizeof kinds / sizeof *kinds;
    int rc = RFS_CREDENTIALS_UNASKED;

    *out = (struct rfs_credentials){0};
    if (*kind)
        return (*kind)->get(out);
    for (size_t i = 0; rc == RFS_CREDENTIALS_UNASKED && i < n; i++) {
        rc = kinds[i].get(out);
        *kind = rc == 0 ? &kinds[i] : NULL;
        /* An instance is asked for by nothing but that all others are not. */
        if (rc == -ENOKEY && i == n - 1)
            rc = RFS_CREDENTIALS_UNASKED;
    }
    return rc == RFS_CREDENTIALS_UNASKED
               ? fail("neither the environment, nor ~/.aws, nor a metadata service has some")
               : rc;
}

/* ---- settings of the profile ----------------------------------------------------------------- */

static void read_settings(void)
{
    static const char *const names[] = {"region", "endpoint_url"};
    char **const values[] = {&all.region, &all.endpoint};
    char value[512];
    size_t n = 0;
    RFS_FREE char *text = read_shared(RFS_AWS_CONFIG, "config", &n);

    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (rfs_credentials_find(text, profile() ? profile() : "default", names[i], value,
                                 sizeof value) &&
            value[0])
            *values[i] = strdup(value);
    if (text)
        rfs_wipe(text, n);
    all.has_settings = true;
}

char *rfs_credentials_setting(const char *name)
{
    pthread_mutex_lock(&all.lock);
    if (!all.has_settings)
        read_settings();
    const char *value = strcmp(name, "region") == 0 ? all.region : all.endpoint;
    char *copied = value ? strdup(value) : NULL;
    pthread_mutex_unlock(&all.lock);
    return copied;
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
        rc = look(&all.kind, out);
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
    else
        rfs_wipe(out, sizeof *out);
    pthread_mutex_unlock(&all.lock);
    return rc;
}

bool rfs_credentials_renew(void)
{
    pthread_mutex_lock(&all.lock);
    all.renew = all.kind && all.kind->ends;
    const bool renews = all.renew;
    pthread_mutex_unlock(&all.lock);
    return renews;
}

void rfs_credentials_forget(void)
{
    pthread_mutex_lock(&all.lock);
    rfs_secret_unmap(all.found, sizeof *all.found);
    all.found = NULL;
    all.kind = NULL;
    free(all.region);
    free(all.endpoint);
    all.region = all.endpoint = NULL;
    all.has_settings = false;
    rfs_metadata_forget();
    pthread_mutex_unlock(&all.lock);
}

/* ---- in messages ----------------------------------------------------------------------------- */

#define TELLING 8 /* characters: so many in a row are no accident */

/* Counts the characters at AT that are a part of SECRET. */
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
