/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/ranks.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/show.h"
#include "tool/common/tool.h"

void rfs_ranks_free(struct rfs_ranks *ranks)
{
    free(ranks->data);
    *ranks = (struct rfs_ranks){0};
}

int rfs_ranks_check(const struct rfs_ranks *ranks, uint32_t n, const char *before,
                    struct rfs_error *err)
{
    char remedy[32];

    snprintf(remedy, sizeof remedy, n > 1 ? "ranks 0 to %u" : "rank %u", n > 1 ? n - 1 : 0);
    for (size_t i = 0; i < ranks->n; i++)
        if (ranks->data[i].last >= n)
            return rfs_fail_usage(err, remedy, "%sthere is no rank %u of %u", before,
                                  ranks->data[i].last, n);
    return 0;
}

/* "N" or "N-M". */
static bool parse_range(char *text, struct rfs_rank_range *out)
{
    char *dash = strchr(text, '-');
    uint64_t first = 0;
    uint64_t last = 0;

    if (dash)
        *dash = '\0';
    if (!rfs_tool_number(text, false, 0, UINT32_MAX - 1, &first))
        return false;
    last = first;
    if (dash && !rfs_tool_number(dash + 1, false, first, UINT32_MAX - 1, &last))
        return false;
    *out = (struct rfs_rank_range){(uint32_t)first, (uint32_t)last};
    return true;
}

int rfs_ranks_parse(const char *text, struct rfs_ranks *out)
{
    RFS_FREE char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    for (char *part = copy, *next; part; part = next) {
        struct rfs_rank_range range;

        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (!parse_range(part, &range))
            return -EINVAL;
        if (!RFS_PUSH(out, range))
            return -ENOMEM;
    }
    return 0;
}

bool rfs_ranks_has(const struct rfs_ranks *ranks, uint32_t rank)
{
    bool has = ranks->n == 0;

    for (size_t i = 0; !has && i < ranks->n; i++)
        has = rank >= ranks->data[i].first && rank <= ranks->data[i].last;
    return has;
}

char *rfs_ranks_text(const uint32_t *ranks, size_t n)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    rfs_text_ranks(out, ranks, n);
    return rfs_printed_end(&shown);
}
