/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/account.h"
#include "base/options.h"

#define TRIES 10
#define TIMEOUT 30 /* seconds */
#define CONNECTIONS 64
#define HUB "https://huggingface.co"

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

struct rfs_account *rfs_account_new(const struct rfs_options *options)
{
    struct rfs_account *account = calloc(1, sizeof *account);

    if (!account)
        return NULL;
    pthread_mutex_init(&account->learnt.lock, NULL);
    account->path_style = options->path_style;
    account->anonymous = options->anonymous;
    account->tries = options->tries ? options->tries : TRIES;
    account->timeout = options->timeout ? options->timeout : TIMEOUT;
    account->client.most = options->connections ? options->connections : CONNECTIONS;
    account->environment = rfs_environment_take(options->profile);
    const bool made =
        account->environment && find_settings(account, options) &&
        (account->credentials = rfs_credentials_new(account->environment, account->timeout));
    if (!made) {
        rfs_account_free(account);
        return NULL;
    }
    return account;
}

void rfs_account_free(struct rfs_account *account)
{
    if (!account)
        return;
    rfs_credentials_free(account->credentials);
    rfs_environment_free(account->environment);
    free(account->endpoint);
    free(account->region);
    free(account->hub_endpoint);
    pthread_mutex_destroy(&account->learnt.lock);
    free(account);
}

bool rfs_account_equals(const struct rfs_account *a, const struct rfs_account *b)
{
    return rfs_environment_equals(a->environment, b->environment) &&
           same(a->endpoint, b->endpoint) && same(a->region, b->region) &&
           a->path_style == b->path_style && a->anonymous == b->anonymous && a->tries == b->tries &&
           a->timeout == b->timeout && a->client.most == b->client.most;
}
