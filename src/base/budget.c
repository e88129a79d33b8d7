/* SPDX-License-Identifier: Apache-2.0 */
#include "base/budget.h"

int rfs_budget_take(struct rfs_budget *budget, uint64_t bytes, const char *file,
                    struct rfs_error *err)
{
    if (bytes > rfs_budget_rest(budget))
        return rfs_budget_fail(budget, file, err);
    budget->used += bytes;
    return 0;
}

int rfs_budget_fail(const struct rfs_budget *budget, const char *file, struct rfs_error *err)
{
    return rfs_fail(err, -EFBIG, RFS_IN(file), "a larger -o cache=: a quarter of it is the limit",
                    "the description of its tensors would take more than %" PRIu64
                    " bytes of memory",
                    budget->most);
}
