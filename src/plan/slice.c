/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/slice.h"

#include <stdlib.h>

void rfs_slice_free(struct rfs_slice *slice)
{
    free(slice->blocks);
    *slice = (struct rfs_slice){0};
}
