/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/remote.h"

#include "base/cleanup.h"
#include "base/forks.h"
#include "base/options.h"
#include "store/remote/account.h"
#include "store/remote/directory.h"
#include "store/remote/hub.h"
#include "store/remote/object.h"
#include "store/remote/upload.h"

#define TRIES 10
#define TIMEOUT 30 /* seconds */
#define CONNECTIONS 64
#define HUB "https://huggingface.co"

/* ---- one account ----------------------------------------------------------------------------- */

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/*
 * Finds the first setting that there is: the option, a variable, the profile's; NULL: none. False
 * when out of memory.
 */
static bool find_setting(const struct rfs_environment *environment, const char *option,
                         const char *first, const char *second, const char *name, char **out)
{
    const char *value = option && *option ? option : rfs_environment_get(environment, first);
    char of_profile[512];

    if (!value)
        value = rfs_environment_get(environment, second);
    if (!value &&
        rfs_profile_get(environment, RFS_PROFILE_CONFIG, name, of_profile, sizeof of_profile))
        value = of_profile;
    *out = value && *value ? strdup(value) : NULL;
    return !value || !*value || *out;
}

/* Finds the settings of stores and hubs. False when out of memory. */
static bool find_settings(struct rfs_account *account, const struct rfs_options *options)
{
    const struct rfs_environment *environment = account->environment;
    const char *hub = rfs_environment_get(environment, "HF_ENDPOINT");

    account->hub_endpoint = rfs_store_without_slash(hub ? hub : HUB);
    return account->hub_endpoint &&
           find_setting(environment, options->endpoint, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
                        "endpoint_url", &account->endpoint) &&
           find_setting(environment, options->region, "AWS_REGION", "AWS_DEFAULT_REGION", "region",
                        &account->region);
}

/* Frees an account, and wipes the credentials; one that is not complete, too. */
static void free_account(struct rfs_account *account)
{
    rfs_directory_free(account->directory);
    rfs_hub_free(account->hub);
    rfs_credentials_free(account->credentials);
    rfs_environment_free(account->environment);
    free(account->endpoint);
    free(account->region);
    free(account->hub_endpoint);
    pthread_mutex_destroy(&account->learnt.lock);
    free(account);
}

/* Makes an account by the options, the environment and the profile. NULL when out of memory. */
static struct rfs_account *new_account(const struct rfs_options *options)
{
    struct rfs_account *account = calloc(1, sizeof *account);

    if (!account)
        return NULL;
    account->store = (struct rfs_store){&rfs_directory_calls, &rfs_object_calls, &rfs_upload_calls};
    pthread_mutex_init(&account->learnt.lock, NULL);
    account->path_style = options->path_style;
    account->anonymous = options->anonymous;
    account->tries = options->tries ? options->tries : TRIES;
    account->timeout = options->timeout ? options->timeout : TIMEOUT;
    account->client.most = options->connections ? options->connections : CONNECTIONS;
    account->environment = rfs_environment_take(options->profile);
    const bool made =
        account->environment && find_settings(account, options) &&
        (account->credentials = rfs_credentials_new(account->environment, account->timeout)) &&
        (account->hub = rfs_hub_new()) && (account->directory = rfs_directory_new());
    if (made)
        return account;
    free_account(account);
    return NULL;
}

/* Says whether two accounts are one identity, and reach the same stores in the same way. */
static bool are_equal(const struct rfs_account *a, const struct rfs_account *b)
{
    return rfs_environment_equals(a->environment, b->environment) &&
           same(a->endpoint, b->endpoint) && same(a->region, b->region) &&
           a->path_style == b->path_style && a->anonymous == b->anonymous && a->tries == b->tries &&
           a->timeout == b->timeout && a->client.most == b->client.most;
}

/* ---- all accounts ---------------------------------------------------------------------------- */

/* The accounts of views that are open. */
static struct {
    pthread_mutex_t lock; /* of the list and the users; a leaf lock */
    struct rfs_account *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Has a child make accounts of its own: a thread of the parent may have held the locks in these. */
static void begin_anew(void)
{
    all.first = NULL;
}

RFS_FORKS_WITH(all.lock, begin_anew)

/* Says whether one of the paths has a URL, or (not NULL) one of that kind. */
static bool any_url(const char *const *paths, size_t n, const char *scheme)
{
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any |= paths[i] && rfs_store_has_url(paths[i], scheme);
    return any;
}

/* Reads the token of a hub, which may have none, while its file can be read. */
static int try_token(struct rfs_account *account, struct rfs_error *err)
{
    char token[RFS_CREDENTIALS_BEARER];
    const int rc = rfs_credentials_bearer(account->credentials, token);

    explicit_bzero(token, sizeof token);
    return rc == 0 ? 0
                   : rfs_fail(err, rc, RFS_NOWHERE, "HF_TOKEN, or anonymous for public models",
                              "there is no token for hf://: %s", rfs_store_why("hf://", rc));
}

/* Reports missing credentials before anything is read. */
static int try_credentials(struct rfs_account *account, struct rfs_error *err)
{
    struct rfs_credentials who;
    const int rc = rfs_credentials_get(account->credentials, &who);

    explicit_bzero(&who, sizeof who);
    return rc == 0
               ? 0
               : rfs_fail(
                     err, rc, RFS_NOWHERE,
                     "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or anonymous for public objects",
                     "there are no credentials for s3://: %s", rfs_store_why("s3://", rc));
}

/* Returns the account that equals FRESH, or FRESH, with one user more. */
static struct rfs_account *take(struct rfs_account *fresh)
{
    RFS_LOCKED(&all.lock);
    struct rfs_account *account = all.first;
    while (account && !are_equal(account, fresh))
        account = account->next;
    if (!account) {
        account = fresh;
        account->next = all.first;
        all.first = account;
    }
    account->users++;
    return account;
}

/* Takes one user from an account. Says whether it was the last one, and the account is out. */
static bool leave(struct rfs_account *account, bool *none_left)
{
    struct rfs_account **at = &all.first;

    RFS_LOCKED(&all.lock);
    const bool last = --account->users == 0;
    while (last && *at && *at != account)
        at = &(*at)->next;
    if (last && *at) /* it is not in the list when a parent took it */
        *at = account->next;
    *none_left = !all.first;
    return last;
}

int rfs_remote_take(const struct rfs_options *options, const char *const *paths, size_t n,
                    struct rfs_store **out, struct rfs_error *err)
{
    *out = NULL;
    if (!any_url(paths, n, NULL))
        return 0;
    struct rfs_account *fresh = new_account(options);
    if (!fresh)
        return rfs_fail_memory(err);
    struct rfs_account *account = take(fresh);
    if (account != fresh)
        free_account(fresh);
    *out = &account->store;
    (*out)->directory->forget(*out);
    int rc = account->anonymous || !any_url(paths, n, "s3://") ? 0 : try_credentials(account, err);
    if (rc == 0 && !account->anonymous && any_url(paths, n, "hf://"))
        rc = try_token(account, err);
    if (rc)
        rfs_remote_give(out);
    return rc;
}

void rfs_remote_give(struct rfs_store **store)
{
    bool none_left = false;

    if (!*store)
        return;
    struct rfs_account *account = rfs_account_of(*store);
    *store = NULL;
    if (leave(account, &none_left))
        free_account(account);
    if (none_left)
        rfs_http_close_idle();
}

const char *rfs_remote_library(void)
{
    return rfs_http_library();
}

const char *rfs_remote_token_file(struct rfs_store *store)
{
    return store ? rfs_credentials_token_file(rfs_account_of(store)->credentials) : NULL;
}

void rfs_remote_load(void)
{
    rfs_http_load();
}
