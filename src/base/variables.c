/* SPDX-License-Identifier: Apache-2.0 */
#include "base/variables.h"

#include "base/secret.h"

static const char *const secrets[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                      "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                      "HF_TOKEN",          "HUGGING_FACE_HUB_TOKEN"};
#define SECRETS (sizeof secrets / sizeof *secrets)
#define BYTES 8192 /* the longest token */

static struct {
    char (*values)[BYTES]; /* in guarded memory, one for each secret; NULL: not hidden */
} hidden;

const char *rfs_variable(const char *name)
{
    const char *value = secure_getenv(name);

    for (size_t i = 0; hidden.values && i < SECRETS; i++)
        if (strcmp(name, secrets[i]) == 0)
            value = hidden.values[i];
    return value && *value ? value : NULL;
}

void rfs_variables_wipe(void)
{
    for (size_t i = 0; i < SECRETS; i++) {
        char *value = getenv(secrets[i]);

        if (value)
            explicit_bzero(value, strlen(value));
    }
}

bool rfs_variables_hide(void)
{
    if (hidden.values)
        return true;
    char(*values)[BYTES] = rfs_secret_map(sizeof *values * SECRETS);
    if (!values)
        return false;
    for (size_t i = 0; i < SECRETS; i++) {
        const char *value = secure_getenv(secrets[i]);

        if (value && strlen(value) < BYTES)
            memcpy(values[i], value, strlen(value) + 1);
    }
    hidden.values = values;
    rfs_variables_wipe();
    return true;
}
