/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

#include <limits.h>
#include <string.h>

enum { WORD_MAX = 64 };

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned rfs_suggest_distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    unsigned d[WORD_MAX][WORD_MAX];

    if (n >= WORD_MAX || m >= WORD_MAX)
        return UINT_MAX;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            const unsigned replace = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            d[i][j] = min2(replace, min2(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = min2(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[n][m];
}
