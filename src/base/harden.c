/* SPDX-License-Identifier: Apache-2.0 */
#include "base/harden.h"

#include <sys/prctl.h>
#include <sys/resource.h>

int rfs_harden(struct rfs_error *err)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL,
                        "core files cannot be switched off, and so no key is read: %s",
                        strerror(errno));
    return 0;
}
