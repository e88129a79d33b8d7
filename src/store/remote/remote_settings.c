/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/remote_settings.h"

#define TRIES 10
#define TIMEOUT 30 /* seconds */
#define CONNECTIONS 64

static struct rfs_remote_settings now = {
    .tries = TRIES, .timeout = TIMEOUT, .connections = CONNECTIONS};

const struct rfs_remote_settings *rfs_remote_settings(void)
{
    return &now;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool rfs_remote_agrees(const struct rfs_options *options)
{
    const struct rfs_remote_settings *set = &now;

    return same(set->endpoint, options->endpoint) && same(set->region, options->region) &&
           same(set->profile, options->profile) && set->path_style == options->path_style &&
           set->anonymous == options->anonymous;
}

static bool replace(char **text, const char *with)
{
    free(*text);
    *text = with ? strdup(with) : NULL;
    return !with || *text;
}

int rfs_remote_adopt(const struct rfs_options *options)
{
    struct rfs_remote_settings *set = &now;

    set->path_style = options->path_style;
    set->anonymous = options->anonymous;
    set->tries = options->tries ? options->tries : TRIES;
    set->timeout = options->timeout ? options->timeout : TIMEOUT;
    set->connections = options->connections ? options->connections : CONNECTIONS;
    return replace(&set->endpoint, options->endpoint) && replace(&set->region, options->region) &&
                   replace(&set->profile, options->profile)
               ? 0
               : -ENOMEM;
}
