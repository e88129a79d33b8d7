/* SPDX-License-Identifier: Apache-2.0 */
#include "survey/verify/findings.h"

#include "base/order.h"
#include "layout/strategy.h"

#include <xxhash.h>

int rfs_findings_init(struct rfs_findings *findings)
{
    pthread_mutex_init(&findings->lock, NULL);
    findings->keys = rfs_intern_new();
    return findings->keys ? 0 : -ENOMEM;
}

void rfs_findings_free(struct rfs_findings *findings)
{
    rfs_intern_free(findings->keys);
    free(findings->list.data);
    rfs_arena_free(&findings->arena);
    pthread_mutex_destroy(&findings->lock);
}

/* Returns the file that tells findings apart, where no rank does; or NULL. */
static const char *apart(const struct rfs_finding *finding)
{
    return finding->rank == RFS_NO_RANK ? finding->file : NULL;
}

/* Adds a finding. The caller has the lock. */
static void add(struct rfs_findings *findings, struct rfs_finding finding)
{
    const uint64_t key[] = {finding.kind, finding.rank, (uintptr_t)finding.name,
                            finding.detail ? XXH3_64bits(finding.detail, strlen(finding.detail))
                                           : 0,
                            (uintptr_t)apart(&finding)};
    const uint32_t id = rfs_intern_add(findings->keys, key, sizeof key);

    if (id < findings->list.n) {
        struct rfs_finding *known = &findings->list.data[id];
        if (finding.at < known->at) {
            finding.detail = known->detail;
            *known = finding;
        }
        return;
    }
    if (finding.detail)
        finding.detail = rfs_arena_text(&findings->arena, finding.detail, strlen(finding.detail));
    findings->failed |= id == RFS_NO_ID || !RFS_PUSH(&findings->list, finding);
}

void rfs_findings_add(struct rfs_findings *findings, const struct rfs_finding *finding)
{
    pthread_mutex_lock(&findings->lock);
    if (!findings->failed)
        add(findings, *finding);
    pthread_mutex_unlock(&findings->lock);
}

void rfs_findings_add_plain(struct rfs_findings *findings, enum rfs_finding_kind kind,
                            const char *name, uint32_t rank, const char *detail)
{
    rfs_findings_add(
        findings,
        &(struct rfs_finding){
            .kind = kind, .name = name, .rank = rank, .detail = detail, .at = RFS_FOUND_NOWHERE});
}

/* Compares texts; NULL is less than any. */
static int order(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

RFS_COMPARE(by_group, struct rfs_finding, x, y,
            order(x->name, y->name)
                ?: RFS_ORDER(x->kind, y->kind)
                ?: order(x->detail, y->detail)
                ?: order(apart(x), apart(y)))
RFS_COMPARE(by_rank, struct rfs_finding, x, y, by_group(x, y) ?: RFS_ORDER(x->rank, y->rank))

void rfs_findings_sort(struct rfs_findings *findings)
{
    struct rfs_finding *list = findings->list.data;

    RFS_SORT_ALL(&findings->list, by_rank);
    for (size_t i = findings->list.n; i-- > 0;)
        list[i].group = i + 1 < findings->list.n && by_group(&list[i], &list[i + 1]) == 0
                            ? list[i + 1].group
                            : i + 1;
}

bool rfs_findings_fault(const struct rfs_findings *findings, const char *name)
{
    for (size_t i = 0; i < findings->list.n; i++)
        if (rfs_finding_is_fault(findings->list.data[i].kind) &&
            (!name || order(findings->list.data[i].name, name) == 0))
            return true;
    return false;
}
