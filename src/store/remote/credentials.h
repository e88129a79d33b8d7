/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials, found in the usual chain of AWS's tools.
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN (unless a profile is named)
 *   2. a role for a web identity: AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN (likewise)
 *   3. the profile (option, AWS_PROFILE, "default") in the shared credentials file, then in the
 *      config file
 *   4. a container's, by AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or …_FULL_URI
 *   5. an instance's metadata, unless AWS_EC2_METADATA_DISABLED is true
 *
 * The first kind that is asked for counts: if it gives none, that is an error, and no other kind is
 * tried. Those of 2, 4 and 5 end, and are asked for anew five minutes before, or when the store
 * refuses them as ended: from the service that gave them. Others are read once. Credentials lie in
 * memory that no core file holds (base/secret.h).
 *
 * Hubs have a token of their own, which is read once: HF_TOKEN, or the file of HF_TOKEN_PATH,
 * HF_HOME/token, or ~/.cache/huggingface/token.
 *
 * Each chain looks for itself, so that two profiles are two identities. Whenever it looks, it goes
 * by the environment that its view was opened in (environment.h).
 *
 * Threads: all functions but new and free. The lock of a chain is a leaf lock, held over a look for
 * credentials: others wait for them.
 */
#pragma once

#include "base/std.h"

#include <time.h>

struct rfs_environment;

struct rfs_credentials {
    char key_id[256], secret[256], token[8192]; /* "" where there is none */
    time_t ends;                                /* when they end; 0: never */
};

/* The credentials of one account, and the kind of the chain that gave them. */
struct rfs_credentials_chain;
/*
 * Makes a chain that has not looked yet; it borrows ENVIRONMENT. TIMEOUT is that of requests, in
 * seconds. NULL when out of memory.
 */
struct rfs_credentials_chain *rfs_credentials_new(const struct rfs_environment *environment,
                                                  unsigned timeout);
/* Wipes and frees all. Does nothing with NULL. */
void rfs_credentials_free(struct rfs_credentials_chain *chain);
/*
 * Copies those that are valid now; the caller wipes the copy. 0; -ENOKEY where there are none; or
 * another -errno. Messages by rfs_store_fail.
 */
int rfs_credentials_get(struct rfs_credentials_chain *chain, struct rfs_credentials *out);
/*
 * Notes that the store refused them as ended. Says whether the next call asks for others of that
 * kind.
 */
bool rfs_credentials_renew(struct rfs_credentials_chain *chain);
/*
 * Writes "Bearer TOKEN" for a hub to OUT, which the caller wipes; "" where there is no token. 0, or
 * -errno with rfs_store_fail: a token's file cannot be read, or has none.
 */
#define RFS_CREDENTIALS_BEARER 4096
int rfs_credentials_bearer(struct rfs_credentials_chain *chain, char out[RFS_CREDENTIALS_BEARER]);
/*
 * Reports a failure by rfs_store_fail, with text of a store's: a store knows the token, and may
 * repeat it, so parts of the secret key and of the tokens are overwritten. Returns CODE.
 */
int rfs_credentials_fail(struct rfs_credentials_chain *chain, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the file of the token that gave the last credentials; NULL: they took none. */
const char *rfs_credentials_token_file(const struct rfs_credentials_chain *chain);

/*
 * Reads the answer of a metadata service. False when it has no credentials. Other files than
 * credentials.c call it for tests alone.
 */
bool rfs_credentials_parse(const char *json, size_t n, struct rfs_credentials *out);
/*
 * Says whether a token may be sent to URL: over the network by TLS alone, else to this machine or
 * the addresses that containers use.
 */
bool rfs_credentials_trusts(const char *url);
