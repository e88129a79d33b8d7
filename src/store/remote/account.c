/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/account.h"

#include "base/variables.h"

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
static bool find_setting(const struct rfs_credentials_profile *profile, const char *option,
                         const char *first, const char *second, const char *name, char **out)
{
    const char *value = option && *option ? option : rfs_variable(first);

    if (!value)
        value = rfs_variable(second);
    if (!value)
        return rfs_credentials_setting(profile, name, out);
    *out = strdup(value);
    return *out;
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
    account->environment = rfs_credentials_hash_environment();
    const char *hub = rfs_variable("HF_ENDPOINT");
    const bool made =
        rfs_credentials_find_profile(options->profile, &account->profile) &&
        find_setting(&account->profile, options->endpoint, "AWS_ENDPOINT_URL_S3",
                     "AWS_ENDPOINT_URL", "endpoint_url", &account->endpoint) &&
        find_setting(&account->profile, options->region, "AWS_REGION", "AWS_DEFAULT_REGION",
                     "region", &account->region) &&
        (account->hub_endpoint = rfs_store_without_slash(hub ? hub : HUB)) &&
        (account->credentials = rfs_credentials_new(&account->profile, account->timeout));
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
    rfs_credentials_free_profile(&account->profile);
    free(account->endpoint);
    free(account->region);
    free(account->hub_endpoint);
    pthread_mutex_destroy(&account->learnt.lock);
    free(account);
}

bool rfs_account_equals(const struct rfs_account *a, const struct rfs_account *b)
{
    return same(a->endpoint, b->endpoint) && same(a->region, b->region) &&
           same(a->hub_endpoint, b->hub_endpoint) && a->environment == b->environment &&
           a->profile.given == b->profile.given && same(a->profile.name, b->profile.name) &&
           a->path_style == b->path_style && a->anonymous == b->anonymous && a->tries == b->tries &&
           a->timeout == b->timeout && a->client.most == b->client.most;
}
