/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/jumps.h"

#include "base/checked.h"

#define NEAR ((uint64_t)64 << 10) /* reads that near each other are of one place */
#define SLACK UINT64_C(64)        /* names have other lengths: layers.9 and layers.10 */

void rfs_jumps_note(struct rfs_jumps *jumps, uint64_t offset)
{
    const uint64_t last = jumps->n > 0 ? jumps->at[jumps->n - 1] : 0;

    if (jumps->n > 0 && offset >= last && offset - last < NEAR)
        return;
    if (jumps->n > 0 && offset < last)
        jumps->n = 0;
    if (jumps->n == RFS_JUMPS_KEPT) {
        memmove(jumps->at, jumps->at + 1, (jumps->n - 1) * sizeof *jumps->at);
        jumps->n--;
    }
    jumps->at[jumps->n++] = offset;
}

static uint64_t jump(const struct rfs_jumps *jumps, size_t i)
{
    return jumps->at[i + 1] - jumps->at[i];
}

static bool alike(uint64_t a, uint64_t b)
{
    return a > b ? a - b <= SLACK : b - a <= SLACK;
}

/* How many of the last jumps are those of PERIOD before. */
static size_t repeated(const struct rfs_jumps *jumps, size_t period)
{
    const size_t n = jumps->n - 1;
    size_t k = 0;

    while (k + period < n && alike(jump(jumps, n - 1 - k), jump(jumps, n - 1 - k - period)))
        k++;
    return k;
}

size_t rfs_jumps_guess(const struct rfs_jumps *jumps, uint64_t out[RFS_JUMPS_AHEAD])
{
    size_t n = 0;

    for (size_t period = 1; n == 0 && jumps->n > 2 * period; period++) {
        const size_t found = repeated(jumps, period);
        if (found < period)
            continue;
        uint64_t at = jumps->at[jumps->n - 1];
        for (; n < RFS_JUMPS_AHEAD && n < 2 * found; n++) {
            if (!rfs_add_u64(at, jump(jumps, jumps->n - 1 - period + n % period), &at))
                break;
            out[n] = at;
        }
    }
    return n;
}
