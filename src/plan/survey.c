/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/survey.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

/* While a survey is being made. */
struct making {
    struct rfs_catalog *catalog;
    uint32_t base;
    const struct rfs_index **indexes; /* [n_lists] by number */
};

void rfs_survey_free(struct rfs_survey *survey)
{
    if (!survey)
        return;
    free(survey->order);
    free(survey->of);
    free(survey->lists);
    free(survey->list_of);
    free(survey->members);
    free(survey->member);
    free(survey);
}

static void survey_cleanup(struct rfs_survey **survey)
{
    rfs_survey_free(*survey);
}

static const struct rfs_index *index_of(const struct making *making, uint32_t rank)
{
    return rfs_catalog_ready(making->catalog, making->base + rank);
}

/* By index, and by rank where it is the same. */
struct keyed {
    const struct rfs_index *index;
    uint32_t rank;
};

static int by_index(const void *a, const void *b)
{
    const struct keyed *x = a;
    const struct keyed *y = b;
    const uintptr_t p = (uintptr_t)x->index;
    const uintptr_t q = (uintptr_t)y->index;
    return p != q ? (p > q) - (p < q) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Numbers the distinct indexes and sets who has which. */
static int number_lists(struct making *making, struct rfs_survey *survey)
{
    RFS_FREE struct keyed *keyed = malloc(survey->devices * sizeof *keyed);
    uint32_t n = 0;

    survey->list_of = malloc(survey->devices * sizeof *survey->list_of);
    survey->members = malloc(survey->devices * sizeof *survey->members);
    survey->member = malloc(((size_t)survey->devices + 1) * sizeof *survey->member);
    making->indexes = malloc(survey->devices * sizeof(struct rfs_index *));
    if (!keyed || !survey->list_of || !survey->members || !survey->member || !making->indexes)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < survey->devices; rank++) {
        const struct rfs_index *index = index_of(making, rank);
        survey->present += rfs_catalog_has(making->catalog, making->base + rank);
        if (index)
            keyed[n++] = (struct keyed){index, rank};
    }
    qsort(keyed, n, sizeof *keyed, by_index);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || keyed[i].index != keyed[i - 1].index) {
            survey->member[survey->n_lists] = i;
            making->indexes[survey->n_lists++] = keyed[i].index;
        }
        survey->members[i] = keyed[i].rank;
    }
    survey->member[survey->n_lists] = n;
    for (uint32_t rank = 0; rank < survey->devices; rank++)
        survey->list_of[rank] = survey->n_lists;
    for (uint32_t list = 0; list < survey->n_lists; list++)
        for (size_t i = survey->member[list]; i < survey->member[list + 1]; i++)
            survey->list_of[survey->members[i]] = list;
    return 0;
}

/* Counts who has what, and lists each name with the indexes that have it. */
static int list_names(const struct making *making, struct rfs_survey *survey)
{
    size_t total = 0;

    survey->n_names = rfs_intern_count(rfs_catalog_tables(making->catalog)->names);
    survey->of = calloc((size_t)survey->n_names + 1, sizeof *survey->of);
    if (!survey->of)
        return -ENOMEM;
    for (uint32_t list = 0; list < survey->n_lists; list++) {
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++)
            survey->of[index->entries[i].name].lists++;
        total += index->n;
    }
    survey->lists = malloc(total * sizeof *survey->lists + 1);
    if (!survey->lists)
        return -ENOMEM;
    size_t next = 0;
    for (uint32_t name = 0; name < survey->n_names; name++) {
        survey->of[name].first = next;
        next += survey->of[name].lists;
        survey->of[name].lists = 0;
    }
    for (uint32_t list = 0; list < survey->n_lists; list++) {
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            struct rfs_surveyed *of = &survey->of[index->entries[i].name];
            survey->lists[of->first + of->lists++] = list;
            of->ranks += (uint32_t)(survey->member[list + 1] - survey->member[list]);
        }
    }
    return 0;
}

/* The types, from the lowest rank up: each distinct index once, where its lowest rank comes. */
static void take_types(const struct making *making, struct rfs_survey *survey)
{
    for (uint32_t rank = 0; rank < survey->devices; rank++) {
        const uint32_t list = survey->list_of[rank];
        if (list == survey->n_lists || survey->members[survey->member[list]] != rank)
            continue;
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            struct rfs_surveyed *of = &survey->of[index->entries[i].name];
            if (of->type == RFS_NO_ID)
                of->type = index->entries[i].type;
            of->mixed |= of->type != index->entries[i].type;
        }
    }
}

/* The names in the order of the files. A distinct index adds something only when it comes first. */
static int put_in_order(const struct making *making, struct rfs_survey *survey, bool ascending)
{
    size_t most = 0;

    for (uint32_t name = 0; name < survey->n_names; name++)
        most += survey->of[name].ranks > 0;
    survey->order = malloc(most * sizeof *survey->order + 1);
    RFS_FREE unsigned char *taken = calloc((size_t)survey->n_names + 1, 1);
    RFS_FREE unsigned char *seen = calloc((size_t)survey->n_lists + 1, 1);
    if (!survey->order || !taken || !seen)
        return -ENOMEM;
    for (uint32_t k = 0; k < survey->devices; k++) {
        const uint32_t list = survey->list_of[ascending ? k : survey->devices - 1 - k];
        if (list == survey->n_lists || seen[list])
            continue;
        seen[list] = 1;
        const struct rfs_index *index = making->indexes[list];
        for (size_t i = 0; i < index->n; i++) {
            const uint32_t name = index->entries[i].name;
            if (!taken[name])
                survey->order[survey->n++] = name;
            taken[name] = 1;
        }
    }
    return 0;
}

static int make(struct making *making, struct rfs_survey *survey, bool ascending)
{
    int rc = number_lists(making, survey);

    if (!rc)
        rc = list_names(making, survey);
    if (rc)
        return rc;
    for (uint32_t name = 0; name < survey->n_names; name++)
        survey->of[name].type = RFS_NO_ID;
    take_types(making, survey);
    return put_in_order(making, survey, ascending);
}

int rfs_survey_make(struct rfs_catalog *catalog, uint32_t base, uint32_t devices, bool ascending,
                    struct rfs_survey **out)
{
    RFS_CLEANUP(survey_cleanup) struct rfs_survey *survey = calloc(1, sizeof *survey);
    struct making making = {catalog, base, NULL};

    *out = NULL;
    if (!survey)
        return -ENOMEM;
    survey->devices = devices;
    const int rc = make(&making, survey, ascending);
    free(making.indexes);
    if (!rc)
        *out = RFS_STEAL(survey);
    return rc;
}

bool rfs_survey_has(const struct rfs_survey *survey, uint32_t name, uint32_t rank)
{
    const struct rfs_surveyed *of = rfs_survey_of(survey, name);
    const uint32_t list = survey->list_of[rank];

    if (!of || list == survey->n_lists)
        return false;
    const uint32_t *lists = &survey->lists[of->first];
    uint32_t low = 0;
    uint32_t high = of->lists;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (lists[middle] == list)
            return true;
        if (lists[middle] < list)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

uint32_t rfs_survey_lowest(const struct rfs_survey *survey, uint32_t name,
                           bool (*fits)(const void *ctx, uint32_t rank), const void *ctx)
{
    const struct rfs_surveyed *of = rfs_survey_of(survey, name);
    uint32_t lowest = RFS_NO_RANK;

    for (uint32_t k = 0; of && k < of->lists; k++) {
        const uint32_t list = survey->lists[of->first + k];
        for (size_t i = survey->member[list];
             i < survey->member[list + 1] && survey->members[i] < lowest; i++)
            if (fits(ctx, survey->members[i])) {
                lowest = survey->members[i];
                break;
            }
    }
    return lowest;
}
