/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts: the options of a view about stores of objects, and all that is known by them. An
 * account is the store that the view reads (base/store.h), and no account knows another's
 * credentials, regions, lists or commits. Only idle connections are shared, as each request is
 * signed by itself.
 *
 * Where an option is not given, the environment and the profile count, as they are when the account
 * is made (environment.h).
 *
 * Threads: the first members are constant.
 */
#pragma once

#include "base/store.h"
#include "store/remote/credentials.h"
#include "store/remote/environment.h"
#include "store/remote/http.h"

#include <pthread.h>

struct rfs_hub_known;
struct rfs_options;
struct rfs_directory;

/* Facts about a bucket, as answers of the store gave them (bucket.c). "": none. */
struct rfs_account_bucket {
    char name[64], region[64];
    char endpoint[300]; /* "https://host:port" */
};
#define RFS_ACCOUNT_BUCKETS 16

struct rfs_account {
    struct rfs_store store;              /* the first member: rfs_account_of */
    char *endpoint;                      /* "https://host:port", or NULL: that of AWS; owned */
    char *region;                        /* or NULL: that of AWS's tools; owned */
    char *hub_endpoint;                  /* "https://host/prefix"; owned */
    struct rfs_environment *environment; /* owned */
    bool path_style, anonymous;
    unsigned tries, timeout /* seconds */;

    struct rfs_credentials_chain *credentials; /* owned, as the next two */
    struct rfs_hub_known *hub;                 /* hub.c */
    struct rfs_directory *directory;           /* directory.c */
    struct rfs_http_client client;

    struct {
        pthread_mutex_t lock; /* a leaf lock */
        struct rfs_account_bucket of[RFS_ACCOUNT_BUCKETS];
        unsigned next; /* that is forgotten for another bucket */
    } learnt;
    /* The hashes of the servers that last answered at all, and by a range (retries.c). 0: none. */
    atomic_uint_fast64_t answering, ranging;

    /* of remote.c, under its lock */
    unsigned users;
    struct rfs_account *next;
};

/* Returns the account that a store is. */
static inline struct rfs_account *rfs_account_of(struct rfs_store *store)
{
    return (struct rfs_account *)(void *)store;
}
